"""What `expect` beside a step says: values, elapsed time, what is raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.language import choosing, durations, forms, words
from runner.language.expressing import expression
from runner.language.objects import expected_object
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, kind_of
from runner.scenario import (
    RAISE_KINDS,
    Constant,
    ElapsedBounds,
    Expectation,
    Expression,
    PerRank,
    RaiseSpec,
    Unchanged,
    ValueExpectation,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.language.context import Context
    from runner.scenario import Form

#: keys of an expectation that are no names
STEP_KEYS = ("elapsed", "raises")
#: keys that only the expectation at the top level has
TOP_KEYS = ("outcome", "blocked", "diagnosis", "dies", "within")
#: names that are backends even where the scenario's own `backends:` does not list them
KNOWN_BACKENDS = frozenset({"gloo", "nccl", "mpi", "ucc", "xccl", "hccl", "cncl", "fake"})
_UNCHANGED = "unchanged"
_NONE = "none"
_BOUNDS = ("min", "max")


def expectation(node: Node, context: Context) -> Expectation:
    """Return the `expect` beside a step."""
    if not isinstance(node, Mapping):
        choosing.wrong_type(node, context, "`expect`", "a mapping from names to values")
        return Expectation(mark=node.mark)
    return from_entries(node.entries, context.inside_expectation(), node)


def from_entries(
    entries: Iterable[tuple[Node, Node]], context: Context, whole: Mapping
) -> Expectation:
    """Return the expectation in some entries of the mapping `whole`."""
    values: list[ValueExpectation] = []
    fields: dict[str, Any] = {}
    for key, node in entries:
        match key_text(key):
            case "elapsed":
                fields["elapsed"] = _elapsed(node, context)
            case "raises":
                fields["raises"] = _raises(node, context)
            case _:
                values += _value(key, node, context)
    return Expectation(values=tuple(values), **fields, mark=whole.mark)


# ---------------------------------------------------------------------- values


def _value(key: Node, node: Node, context: Context) -> list[ValueExpectation]:
    if not isinstance(key, Scalar) or not isinstance(key.value, str):
        context.faults.add(
            "bad_expectation",
            f"{kind_of(key)} is no name of a value",
            key.mark,
            "ranks stand below a name: `x: {0: [1, 2], else: unchanged}`",
        )
        return []
    if key.value in {*TOP_KEYS, *KNOWN_BACKENDS} and key.value not in context.readable:
        what = "what differs on one backend" if key.value in KNOWN_BACKENDS else "how it all ends"
        context.faults.add(
            "bad_expectation",
            f"`{key.value}` does not stand beside a step",
            key.mark,
            f"{what} stands in the `expect` at the top level",
        )
        return []
    compiled = expression(key, context)
    wanted = _wanted(node, context, of_object=_is_object(compiled, context))
    if not isinstance(compiled, Expression):
        return []
    return [ValueExpectation(key=compiled, wanted=wanted, mark=key.mark)]


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


# ---------------------------------------------------------------------- errors


def _raises(node: Node, context: Context) -> RaiseSpec | PerRank[RaiseSpec]:
    node, context = context.resolve(node)
    if isinstance(node, Mapping) and not _is_spec(node):
        return choosing.per_rank(node, context, _raise_spec)
    return _raise_spec(node, context)


def _is_spec(node: Mapping) -> bool:
    return len(node.entries) == 1 and node.words()[0] in (*RAISE_KINDS, _NONE)


def _raise_spec(node: Node, context: Context) -> RaiseSpec:
    """Return `timeout`, `[timeout, peer_lost]`, `{timeout: "substring"}` or `none`."""
    node, context = context.resolve(node)
    match node:
        case Mapping() if _is_spec(node):
            key, said = node.entries[0]
            if not isinstance(said, Scalar) or said.value is None:
                choosing.wrong_type(said, context, "what the message contains", "text")
                return RaiseSpec(kinds=(key_text(key),), mark=node.mark)
            return RaiseSpec(kinds=(key_text(key),), contains=said.text, mark=node.mark)
        case Mapping():
            key = node.entries[0][0] if node.entries else node
            word = key_text(key)
            context.faults.unknown(
                "unknown_kind",
                f"`{word}` is no kind of error",
                word,
                RAISE_KINDS,
                key.mark,
                listed="kinds are",
            )
            return RaiseSpec(kinds=(), mark=node.mark)
        case Sequence():
            kinds = [_kind(item, context, RAISE_KINDS) for item in node.items]
            if not kinds:
                context.faults.add(
                    "bad_value", "an empty list of kinds", node.mark, "write `none` instead"
                )
            return RaiseSpec(kinds=tuple(kind for kind in kinds if kind), mark=node.mark)
        case _:
            kind = _kind(node, context, (*RAISE_KINDS, _NONE))
            return RaiseSpec(kinds=(kind,) if kind and kind != _NONE else (), mark=node.mark)


def _kind(node: Node, context: Context, known: tuple[str, ...]) -> str | None:
    return words.fixed(node, context, known, code="unknown_kind", what="kind of error")
