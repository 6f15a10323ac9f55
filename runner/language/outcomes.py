"""What the `expect` at the top level says: outcome, who is blocked, diagnosis, deaths, backends."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.language import choosing, durations, words
from runner.language.expectations import FINAL_KEYS, from_entries, version_key
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text
from runner.problems import nearest
from runner.scenario import Expectation, FinalExpectation, Section
from runner.traits import KNOWN_BACKENDS
from runner.versions import VersionRange
from runner.vocabulary import DIAGNOSES, OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Collection

    from runner.forms import PerRank
    from runner.language.context import Context

#: what a backend's own outcome makes meaningless in the general expectation
_ONLY_WITH = {"blocked": {"deadlock", "error"}, "dies": {"crash"}}
COMPLETES = ("completes",)
#: sections of one `expect`: more are no facts about backends
MOST_SECTIONS = 16
_EXIT = re.compile(r"exit [0-9]{1,3}")


def final_expectation(
    node: Node | None, context: Context, backends: Collection[str]
) -> FinalExpectation:
    """Return the top-level `expect`, every backend's section merged over the general one."""
    if node is None:
        return FinalExpectation()
    if not isinstance(node, Mapping):
        choosing.wrong_type(node, context, "`expect`", "a mapping")
        return FinalExpectation(mark=node.mark)
    found: dict[str, tuple[Section, Mapping]] = {}
    for key, value in node.entries:
        section = _section(key, value, context, backends)
        if section is not None and isinstance(value, Mapping):
            found[key_text(key)] = section, value
    if len(found) > MOST_SECTIONS:
        context.faults.add(
            "too_many_sections",
            f"`expect` has {len(found)} sections for backends and versions; at most "
            f"{MOST_SECTIONS} can be told apart",
            node.mark,
        )
        found.clear()
    general = _stated(node, context, leave_out=found.keys())
    # what asks for more is laid over what asks for less, a later one over an earlier
    ordered = sorted(found.values(), key=lambda each: _weight(each[0]))
    own = [_stated(value, context, leave_out=()) for _, value in ordered]
    sections = tuple(section for section, _ in ordered)
    whole = replace(_made(general, node), sections=sections)
    merged: dict[tuple[int, ...], FinalExpectation] = {}
    for backend in (None, *whole.backends):
        for version in whole.versions:
            holding = whole.holding(backend, version)
            if holding and holding not in merged:
                laid = general
                for number in holding:
                    laid = _merged(laid, own[number])
                merged[holding] = _made(laid, ordered[holding[-1]][1])
    return replace(whole, merged=merged)


def _weight(section: Section) -> int:
    """Return how much a condition asks: a backend, a version of torch, both."""
    return (section.backend is not None) + 2 * (section.torch is not None)


def _section(key: Node, value: Node, context: Context, backends: Collection[str]) -> Section | None:
    """Return the condition that a key of `expect` states; None where it states none."""
    versions = version_key(key_text(key))
    if versions is not None and "torch" not in context.readable:
        return _of_version(*versions, key, value, context, backends)
    name = key_text(key)
    return Section(backend=name) if _is_backend(key, value, context, backends) else None


def _of_version(
    backend: str,
    word: str,
    range_text: str,
    key: Node,
    value: Node,
    context: Context,
    backends: Collection[str],
) -> Section | None:
    """Return what `gloo torch>=2.14` says, with every fault noted."""
    if word != "torch":
        context.faults.add(
            "unknown_key", f"`{word}` has no versions here", key.mark, "did you mean `torch`?"
        )
    known = {*backends, *KNOWN_BACKENDS}
    if backend and backend not in known:
        close = nearest(backend, known)
        hint = f"did you mean `{close}`?" if close else f"there are {', '.join(sorted(known))}"
        context.faults.add("unknown_key", f"there is no backend `{backend}`", key.mark, hint)
    if not isinstance(value, Mapping):
        context.faults.add(
            "bad_expectation",
            f"what differs on `{key_text(key)}` is no mapping",
            key.mark,
            f'write `"{key_text(key)}": {{outcome: ..., x: ...}}`',
        )
    try:
        found = VersionRange.read(range_text)
    except ValueError:
        context.faults.add(
            "bad_version",
            f"`{key_text(key)}` names no versions of torch",
            key.mark,
            'versions are written as in `"torch>=2.14, <2.16"`',
        )
        return Section(backend=backend or None, torch=VersionRange(bounds=()))
    return Section(backend=backend or None, torch=found)


def _is_backend(key: Node, value: Node, context: Context, backends: Collection[str]) -> bool:
    name = key_text(key)
    if not isinstance(value, Mapping) or name in FINAL_KEYS or name in context.readable:
        return False
    if name in backends or name in KNOWN_BACKENDS:
        return True
    if not name.isidentifier() or not any(word in FINAL_KEYS for word in value.words()):
        return False
    close = nearest(name, (*backends, *KNOWN_BACKENDS))
    if close is not None:
        context.faults.add(
            "unknown_key", f"there is no backend `{name}`", key.mark, f"did you mean `{close}`?"
        )
    return True


def _stated(node: Mapping, context: Context, *, leave_out: Collection[str]) -> dict[str, Any]:
    """Return what one mapping states, by the field that it becomes."""
    found: dict[str, Any] = {}
    others: list[tuple[Node, Node]] = []
    for key, value in node.entries:
        match key_text(key):
            case "outcome":
                found["outcomes"] = _several(value, context, OUTCOMES, "outcome")
            case "blocked":
                found["blocked"] = _texts(value, context, "blocked")
            case "diagnosis":
                found["diagnoses"] = _several(value, context, DIAGNOSES, "diagnosis")
            case "dies":
                found["dies"] = _texts(value, context, "dies")
            case "within":
                found["within_s"] = durations.fixed_seconds(value, context, what="`within`")
            case name if name not in leave_out:
                others.append((key, value))
    found["at_end"] = from_entries(others, context.inside_expectation(), node, at_end=True)
    return found


def _made(fields: dict[str, Any], node: Mapping) -> FinalExpectation:
    given = {name: value for name, value in fields.items() if value is not None}
    return FinalExpectation(**given, mark=node.mark)


def _merged(general: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return a backend's section over the general expectation, value by value."""
    merged = {**general, **own}
    ends = set(merged.get("outcomes") or COMPLETES)
    alike = ends == set(general.get("outcomes") or COMPLETES)
    if not alike:
        for field, outcomes in _ONLY_WITH.items():
            if field not in own and not ends & outcomes:
                merged.pop(field, None)
    base: Expectation = general["at_end"]
    over: Expectation = own["at_end"]
    stated = {value.key.text for value in over.values}
    kept = tuple(value for value in base.values if value.key.text not in stated)
    raises = over.raises
    if raises is None and alike:
        raises = base.raises
    merged["at_end"] = Expectation(
        values=(*kept, *over.values),
        elapsed=over.elapsed if over.elapsed is not None else base.elapsed,
        raises=raises,
        mark=over.mark,
    )
    return merged


def _several(node: Node, context: Context, known: Collection[str], what: str) -> tuple[str, ...]:
    """Return the words of a list, or the one that stands in its place."""
    items = node.items if isinstance(node, Sequence) else [node]
    found = (words.fixed(item, context, known, code=f"unknown_{what}", what=what) for item in items)
    return tuple(name for name in found if name is not None)


def _texts(node: Node, context: Context, name: str) -> PerRank[str] | None:
    if not isinstance(node, Mapping):
        example = "{0: send to 1}" if name == "blocked" else "{1: SIGABRT}"
        choosing.wrong_type(node, context, f"`{name}`", f"a mapping from ranks, such as {example}")
        return None
    return choosing.per_rank(node, context, _death if name == "dies" else _label)


def _label(node: Node, context: Context) -> str:
    if isinstance(node, Scalar) and node.value is not None and node.text.strip():
        return node.text
    choosing.wrong_type(
        node, context, "where a rank is blocked", "a step's name, as in `send to 1`"
    )
    return ""


def _death(node: Node, context: Context) -> str:
    text = node.text if isinstance(node, Scalar) else ""
    if text not in signal.Signals.__members__ and not _EXIT.fullmatch(text):
        context.faults.add(
            "bad_value",
            f"`{text}` is no way to die",
            node.mark,
            "name a signal such as SIGABRT, or an exit code as in `exit 1`",
        )
    return text
