"""What `expect` beside a step says: values, elapsed time, what is raised."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from runner.forms import Constant, Expression, PerRank
from runner.language import choosing, durations, forms
from runner.language.expressing import expression, unknown_name
from runner.language.objects import expected_object
from runner.language.raised import raised
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, kind_of
from runner.problems import nearest
from runner.scenario import ElapsedBounds, Expectation, Unchanged, ValueExpectation
from runner.traits import KNOWN_BACKENDS
from runner.vocabulary import DIAGNOSES, DTYPES, OUTCOMES, RAISE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.forms import Form
    from runner.language.context import Context

#: keys of an expectation that are no names
STEP_KEYS = ("elapsed", "raises")
#: keys that only the expectation at the top level has
TOP_KEYS = ("outcome", "blocked", "diagnosis", "dies", "within")
#: keys of the top-level expectation that are no names
FINAL_KEYS = (*TOP_KEYS, *STEP_KEYS)
_UNCHANGED = "unchanged"
_BOUNDS = ("min", "max")


#: `gloo torch>=2.14`: a backend, a word that may be a misspelt `torch`, and what follows it
_VERSIONS = re.compile(
    r"(?:(?P<backend>[^\s<>=!]+)\s+)?(?P<word>[^\W\d]\w*)\s*(?P<range>[<>=!~].*)"
)
_TORCH = ("torch",)


def version_key(text: str) -> tuple[str, str, str] | None:
    """Return (backend, word, range) where a key of `expect` is about versions of torch."""
    found = _VERSIONS.fullmatch(text.strip())
    if found is None:
        bare = text.split()
        if bare and bare[-1] == "torch" and len(bare) <= 2:  # noqa: PLR2004 -- a backend, and the word
            return " ".join(bare[:-1]), "torch", ""
        return None
    backend, word, versions = found["backend"] or "", found["word"], found["range"]
    if word != "torch" and nearest(word, _TORCH) is None:
        return None
    return backend, word, versions


def expectation(node: Node, context: Context) -> Expectation:
    """Return the `expect` beside a step."""
    if not isinstance(node, Mapping):
        choosing.wrong_type(node, context, "`expect`", "a mapping from names to values")
        return Expectation(mark=node.mark)
    return from_entries(node.entries, context.inside_expectation(), node)


def from_entries(
    entries: Iterable[tuple[Node, Node]],
    context: Context,
    whole: Mapping,
    *,
    at_end: bool = False,
) -> Expectation:
    """Return the expectation in some entries of the mapping `whole`; `at_end` at the top level."""
    values: list[ValueExpectation] = []
    fields: dict[str, Any] = {}
    for key, node in entries:
        match key_text(key):
            case "elapsed":
                fields["elapsed"] = _elapsed(node, context)
            case "raises":
                fields["raises"] = raised(node, context)
            case _:
                values += _value(key, node, context, at_end=at_end)
    return Expectation(values=tuple(values), **fields, mark=whole.mark)


# ---------------------------------------------------------------------- values


def _value(key: Node, node: Node, context: Context, *, at_end: bool) -> list[ValueExpectation]:
    if not isinstance(key, Scalar) or not isinstance(key.value, str):
        context.faults.add(
            "bad_expectation",
            f"{kind_of(key)} is no name of a value",
            key.mark,
            "ranks stand below a name: `x: {0: [1, 2], else: unchanged}`",
        )
        return []
    if key.value in {*TOP_KEYS, *KNOWN_BACKENDS} and key.value not in context.readable:
        _refuse_top_key(key, context, at_end=at_end)
        return []
    if version_key(key.text) is not None and "torch" not in context.readable:
        if not at_end:
            context.faults.add(
                "bad_expectation",
                f"`{key.text}` does not stand beside a step",
                key.mark,
                "what differs on versions of torch stands in the `expect` at the top level",
            )
        return []
    if _is_stranger(key, context):
        _note_stranger(key, context, FINAL_KEYS if at_end else STEP_KEYS)
        return []
    compiled = expression(key, context)
    wanted = _wanted(node, context, of_object=_is_object(compiled, context))
    if not isinstance(compiled, Expression):
        return []
    return [ValueExpectation(key=compiled, wanted=wanted, mark=key.mark)]


def _refuse_top_key(key: Scalar, context: Context, *, at_end: bool) -> None:
    if at_end:
        message = f"what differs on `{key.text}` is no mapping"
        hint = f"write `{key.text}: {{outcome: ..., x: ...}}`"
    else:
        message = f"`{key.text}` does not stand beside a step"
        of_backend = key.text in KNOWN_BACKENDS
        what = "what differs on one backend" if of_backend else "how it all ends"
        hint = f"{what} stands in the `expect` at the top level"
    context.faults.add("bad_expectation", message, key.mark, hint)


def _is_stranger(key: Scalar, context: Context) -> bool:
    """Whether a key is one word that is no name here: a name, or a key, that is misspelt."""
    known = {*context.readable, *context.names.handles, *DTYPES}
    return context.inlined is None and key.text.isidentifier() and key.text not in known


def _note_stranger(key: Scalar, context: Context, keys: tuple[str, ...]) -> None:
    """Note a word that is neither a name nor a key of an expectation."""
    stated = {
        **dict.fromkeys(OUTCOMES, "outcome"),
        **dict.fromkeys(DIAGNOSES, "diagnosis"),
        **dict.fromkeys(RAISE_KINDS, "raises"),
    }
    word = stated.get(key.text)
    if word in keys:
        message = f"`{key.text}` is no name but what `{word}` may say"
        context.faults.add("unknown_name", message, key.mark, f"write `{word}: {key.text}`")
    else:
        unknown_name(key.text, key, context, beside=keys)


def _is_object(key: Expression | Constant, context: Context) -> bool:
    return isinstance(key, Expression) and key.text.strip() in context.names.objects


def _wanted(node: Node, context: Context, *, of_object: bool) -> Any:  # noqa: ANN401 -- see below
    """Return a Form, Unchanged, or a PerRank of these."""
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and node.value == _UNCHANGED:
        return Unchanged()
    if isinstance(node, Mapping) and not (of_object and not _has_selectors(node)):
        if forms.is_long_form(node):
            return forms.long_form(node, context, tolerances=True)
        return choosing.per_rank(
            node, context, lambda item, there: _wanted(item, there, of_object=of_object)
        )
    if of_object:
        return expected_object(node, context)
    if isinstance(node, Scalar) and node.value is None:
        context.faults.add(
            "missing_value", "no value is stated here", node.mark, "leave the name out, or state it"
        )
    return forms.value(node, context)


def _has_selectors(node: Mapping) -> bool:
    keys = node.words()
    return choosing.ELSE in keys or all(
        isinstance(key, Sequence) or (isinstance(key, Scalar) and isinstance(key.value, int))
        for key, _ in node.entries
    )


# ---------------------------------------------------------------------- time


def _elapsed(node: Node, context: Context) -> ElapsedBounds | PerRank[ElapsedBounds]:
    if isinstance(node, Mapping) and any(isinstance(item, Mapping) for _, item in node.entries):
        return choosing.per_rank(node, context, _bounds)
    return _bounds(node, context)


def _bounds(node: Node, context: Context) -> ElapsedBounds:
    if not isinstance(node, Mapping):
        choosing.wrong_type(node, context, "`elapsed`", "`{min: 0.3s, max: 2s}`")
        return ElapsedBounds(mark=node.mark)
    found: dict[str, Form] = {}
    for key, value in node.entries:
        if isinstance(value, Scalar) and value.value is None:
            context.faults.add("missing_value", "no duration is stated here", value.mark)
        elif key_text(key) in _BOUNDS:
            found[f"{key_text(key)}_s"] = durations.seconds(
                value, context, what=f"`{key_text(key)}`"
            )
        else:
            context.faults.unknown(
                "unknown_key",
                f"unknown key `{key_text(key)}` of `elapsed`",
                key_text(key),
                _BOUNDS,
                key.mark,
                listed="its keys are",
            )
    low, high = found.get("min_s"), found.get("max_s")
    bounds = [form.value for form in (low, high) if isinstance(form, Constant)]
    if len(bounds) == 2 and None not in bounds and bounds[0] > bounds[1]:  # noqa: PLR2004 -- both
        context.faults.add("bad_value", "`min` is greater than `max`", node.mark, "swap them")
    return ElapsedBounds(min_s=low, max_s=high, mark=node.mark)
