"""The five forms of an entry of `groups:`."""

from __future__ import annotations

from dataclasses import replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from runner.language import choosing, durations
from runner.language.expressing import FAILED
from runner.language.namespace import refusal_of
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, kind_of
from runner.scenario import GroupSpec
from runner.traits import KNOWN_BACKENDS

if TYPE_CHECKING:
    from runner.forms import Form
    from runner.language.context import Context
    from runner.language.making import Later

#: which keys decide the form, and which may stand beside them
FORMS = {
    "ranks": ("ranks", "timeout", "backend", "sort_ranks"),
    "partition": ("partition", "timeout", "backend"),
    "size": ("size", "timeout", "backend"),
    "shape": ("shape", "dims", "timeout", "backend"),
}
_KEYS = tuple(dict.fromkeys(key for keys in FORMS.values() for key in keys))

#: letters of a word, and how alike it is to a known backend, where it is a near miss of that
MOST_WORD, NEAR = 20, 0.85


def group_specs(node: Node, context: Context, unmade: dict[str, Later]) -> tuple[GroupSpec, ...]:
    """Return the entries of `groups:` in order; what is made is taken out of `unmade`."""
    if not isinstance(node, Mapping):
        choosing.wrong_type(node, context, "`groups`", "a mapping from names to groups")
        return ()
    found = []
    parts: dict[str, list[str]] = {}
    for each in unmade:
        parts.setdefault(each.partition(".")[0], []).append(each)
    for key, value in node.entries:
        name = key_text(key)
        found.append(_group(key, value, replace(context, unmade=unmade, making=name)))
        for made in parts.pop(name, ()):
            del unmade[made]
    return tuple(found)


def _group(key: Node, node: Node, context: Context) -> GroupSpec:
    name = key_text(key)
    if not isinstance(key, Scalar) or not isinstance(key.value, str):
        context.faults.add("bad_name", f"{kind_of(key)} is no name for a group", key.mark)
    if isinstance(node, Mapping):
        return _long(name, key, node, context)
    ranks = choosing.integers(node, context, what=f"the group `{name}`")
    if isinstance(node, Scalar) and node.value is None:
        context.faults.add("missing_key", f"the group `{name}` has no ranks", key.mark)
    return GroupSpec(name=name, ranks=ranks, mark=key.mark)


def _long(name: str, key: Node, node: Mapping, context: Context) -> GroupSpec:
    given = [word for word in node.words() if word in FORMS]
    if len(given) != 1:
        context.faults.add(
            "bad_group",
            f"the group `{name}` states {' and '.join(given) if given else 'no ranks'}",
            key.mark,
            "state exactly one of ranks, partition, size, or shape with dims",
        )
    allowed = FORMS[given[0]] if len(given) == 1 else _KEYS
    fields: dict[str, Any] = {}
    for word, value in node.entries:
        if key_text(word) in allowed:
            fields |= _field(key_text(word), value, context)
            continue
        message = f"unknown key `{key_text(word)}` of the group `{name}`"
        if key_text(word) in _KEYS:
            message = f"`{key_text(word)}` does not go with `{given[0]}` in the group `{name}`"
        context.faults.unknown(
            "unknown_key", message, key_text(word), allowed, word.mark, listed="its keys are"
        )
    if "shape" in fields and not fields.get("dims"):
        context.faults.add(
            "missing_key",
            f"the mesh `{name}` has no `dims`",
            key.mark,
            "name each dimension: {shape: [2, 4], dims: [dp, tp]}",
        )
    return GroupSpec(name=name, **fields, mark=key.mark)


def _field(word: str, node: Node, context: Context) -> dict[str, Any]:
    match word:
        case "ranks" | "shape":
            return {word: choosing.integers(node, context, what=f"`{word}`")}
        case "partition":
            return {word: _partition(node, context)}
        case "size":
            return {word: choosing.integer(node, context, what="`size`")}
        case "dims":
            return {word: _dims(node, context)}
        case "timeout":
            return {"timeout_s": durations.fixed_seconds(node, context, what="`timeout`")}
        case "sort_ranks":
            return {word: _flag(node, context)}
        case _:
            return {word: backend_name(node, context)}


def _partition(node: Node, context: Context) -> Form:
    if isinstance(node, Sequence):
        return choosing.listing(
            node, context, lambda item, there: choosing.integers(item, there, what="a part")
        )
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return choosing.integers(node, context)
    return choosing.wrong_type(node, context, "`partition`", "a list of lists of ranks")


def _dims(node: Node, context: Context) -> tuple[str, ...]:
    items = node.items if isinstance(node, Sequence) else [node]
    names: list[str] = []
    for item in items:
        if not isinstance(item, Scalar) or not isinstance(item.value, str):
            choosing.wrong_type(item, context, "a dimension", "a name")
        elif (refused := refusal_of(item.value)) and refused[0] == "bad_name":
            context.faults.add("bad_name", refused[1], item.mark)
        elif item.value in names:
            context.faults.add("duplicate_name", f"`{item.value}` stands twice", item.mark)
        else:
            names.append(item.value)
    return tuple(names)


def _flag(node: Node, context: Context) -> bool:
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    failed = choosing.wrong_type(node, context, "`sort_ranks`", "true or false")
    return failed is not FAILED


def backend_name(node: Node, context: Context) -> str | None:
    """Return the name of a backend: any word, or the word that a parameter of that name holds."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.value:
        choosing.wrong_type(node, context, "a backend", "a name such as gloo")
        return None
    constant = context.names.constants.get(node.value)
    name = constant if isinstance(constant, str) else node.value
    _police_backend(name, node, context)
    return name


def _police_backend(name: str, node: Node, context: Context) -> None:
    """Refuse a near miss of a known backend; warn of any other that only a plugin can register.

    Such a scenario is UNSUPPORTED wherever no backend has that name, which a misspelling is always.
    """
    for part in name.split(","):
        word = part.strip().rpartition(":")[2].strip()
        if word in KNOWN_BACKENDS:
            continue
        close = next((known for known in sorted(KNOWN_BACKENDS) if _near_miss(word, known)), None)
        if close is not None:
            context.faults.add(
                "unknown_word",
                f"there is no backend `{word}`",
                node.mark,
                f"did you mean `{close}`?",
            )
        else:
            context.faults.warn(
                "unknown_backend",
                f"no backend `{word}` is known: unless a plugin registers it, nothing runs",
                node.mark,
                f"known are {', '.join(sorted(KNOWN_BACKENDS))}",
            )


def _near_miss(word: str, known: str) -> bool:
    """Return whether a word is a known one in other letters' case, order, or with one amiss."""
    folded = word.casefold()
    if sorted(folded) == sorted(known):
        return True
    return SequenceMatcher(None, folded[:MOST_WORD], known).ratio() >= NEAR
