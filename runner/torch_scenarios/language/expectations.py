"""What `expect` says, beside a step and at the end of a file.

Beside a step it is about each rank that took the step, right after it: values, what was raised, how
long it took. At the end it is about the whole program as well: how it ends, who is blocked, which
diagnosis it has, what it costs, and what of all this differs on a backend or a version of torch.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterable
from typing import Any

from msgspec.structs import replace

from torch_scenarios.errors import nearest
from torch_scenarios.expressions.values import Constant, Expression, Form, PerRank, TypedValue
from torch_scenarios.language import values
from torch_scenarios.language.context import Context, correct
from torch_scenarios.language.keys import (
    ELSE,
    FINAL_EXPECT,
    MEMORY,
    NO_ERROR,
    STEP_EXPECT,
    UNCHANGED,
)
from torch_scenarios.language.values import expression, read_object, unknown_name
from torch_scenarios.model import scenario
from torch_scenarios.model.traits import KNOWN_BACKENDS
from torch_scenarios.model.versions import VersionRange
from torch_scenarios.operations.base import IssuedCall
from torch_scenarios.source.edit import Span
from torch_scenarios.source.tree import Mapping, Node, Scalar, Sequence, key_text, kind_of
from torch_scenarios.vocabulary import DIAGNOSES, DTYPES, OUTCOMES, RAISE_KINDS, WORLD

# -------------------------------------------------------------------------------------------------
# What `raises:` says: kinds of error, none, or a kind with a part of its message.


def read_raises(node: Node, context: Context) -> scenario.RaiseSpec | PerRank[scenario.RaiseSpec]:
    """Return what `raises:` states, the same for all or by rank.

    A kind of error does not depend on a backend's words: `timeout` is Gloo's "Timed out waiting
    1000ms" and NCCL's watchdog. `{timeout: "waiting"}` states words besides.
    """
    node, context = values.resolve_given(node, context, "raises")
    kinds = {*RAISE_KINDS, NO_ERROR}
    if isinstance(node, Mapping) and not (node.entries and set(node.words()) <= kinds):
        return values.read_per_rank(node, context, _raise_spec)
    return _raise_spec(node, context)


def _raise_spec(node: Node, context: Context) -> scenario.RaiseSpec:
    """Return `timeout`, `[timeout, peer_lost]`, `{timeout: "substring"}` or `none`."""
    node, context = values.resolve_given(node, context, "raises")
    match node:
        case Mapping(entries=[(key, Scalar() as said)]):
            return scenario.RaiseSpec(kinds=(key_text(key),), contains=said.text, mark=node.mark)
        case Mapping():
            return scenario.RaiseSpec(kinds=(), mark=node.mark)
        case Sequence():
            kinds = [_listed_kind(item, context) for item in node.items]
            return scenario.RaiseSpec(kinds=tuple(kind for kind in kinds if kind), mark=node.mark)
        case _:
            kind = _kind(node, context, (*RAISE_KINDS, NO_ERROR))
            kinds = [] if kind == NO_ERROR else [kind]
            return scenario.RaiseSpec(kinds=tuple(kind for kind in kinds if kind), mark=node.mark)


def _listed_kind(node: Node, context: Context) -> str | None:
    if isinstance(node, Scalar) and node.text == NO_ERROR:
        message = f"`{NO_ERROR}` cannot be one of several errors"
        hint = f"a list names errors of which any will do; write `raises: {NO_ERROR}` for no error"
        context.problems.add("unknown_kind", message, node.mark, hint)
        return None
    return _kind(node, context, RAISE_KINDS)


def _kind(node: Node, context: Context, known: tuple[str, ...]) -> str | None:
    return values.read_fixed(node, context, known, code="unknown_kind", what="kind of error")


# -------------------------------------------------------------------------------------------------
# What `expect` beside a step says: values, elapsed time, what is raised.

#: keys that only the expectation at the top level has
_TOP_KEYS = FINAL_EXPECT.keys() - STEP_EXPECT.keys()
#: calls that `communicates` may state
CALLS = (
    *("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter", "scatter"),
    *("send", "recv"),
)
_BOUNDS = ("min", "max")


#: `gloo torch>=2.14`: a backend, a word that may be a misspelt `torch`, and what follows it
_VERSIONS = re.compile(
    r"(?:(?P<backend>[^\s<>=!]+)\s+)?(?P<word>[^\W\d]\w*)\s*(?P<range>[<>=!~].*)"
)
_TORCH = ("torch",)


def version_key(text: str) -> tuple[str, str, str] | None:
    """Return (backend, word, range) where a key of `expect` is about versions of torch.

    >>> version_key("gloo torch>=2.14")
    ('gloo', 'torch', '>=2.14')
    >>> version_key("trch>=2.14")
    ('', 'trch', '>=2.14')
    >>> version_key("nccl") is None
    True
    """
    found = _VERSIONS.fullmatch(text.strip())
    if found is None:
        bare = text.split()
        if bare and bare[-1] == "torch" and len(bare) <= 2:
            return " ".join(bare[:-1]), "torch", ""
        return None
    backend, word, versions = found["backend"] or "", found["word"], found["range"]
    if word != "torch" and nearest(word, _TORCH) is None:
        return None
    return backend, word, versions


def expectation(node: Node, context: Context) -> scenario.Expectation:
    """Return the `expect` beside a step."""
    assert isinstance(node, Mapping)
    return read_entries(node.entries, context.enter_expectation(), node)


def read_entries(
    entries: Iterable[tuple[Node, Node]],
    context: Context,
    whole: Mapping,
    *,
    at_end: bool = False,
) -> scenario.Expectation:
    """Return the expectation in some entries of the mapping `whole`; `at_end` at the top level.

    Each key that is no word of the language is a name or an expression, whose value on each rank is
    compared: `x`, `"x[0:2]"`, `"group_rank(even)"`.
    """
    values: list[scenario.ValueExpectation] = []
    fields: dict[str, Any] = {}
    for key, node in entries:
        match key_text(key):
            case "elapsed":
                fields["elapsed"] = _read_elapsed(node, context)
            case "raises":
                fields["raises"] = read_raises(node, context)
            case _:
                values += _value(key, node, context, at_end=at_end)
    return scenario.Expectation(values=tuple(values), **fields, mark=whole.mark)


# ---------------------------------------------------------------------- values


def _value(
    key: Node, node: Node, context: Context, *, at_end: bool
) -> list[scenario.ValueExpectation]:
    """Return what is expected of one key; empty where the key is not valid, which is noted.

    What may be meant is tried from the sure to the vague: a key of the top level in the wrong
    place, a section of versions, one word that nothing defines, an expression.
    """
    if not isinstance(key, Scalar) or not isinstance(key.value, str):
        context.problems.add(
            "bad_expectation",
            f"{kind_of(key)} is not a name of a value",
            key.mark,
            "ranks are written below a name: `x: {0: [1, 2], else: unchanged}`",
        )
        return []
    if key.value in {*_TOP_KEYS, *KNOWN_BACKENDS} and key.value not in context.readable:
        _refuse_top_key(key, context, at_end=at_end)
        return []
    if version_key(key.text) is not None and "torch" not in context.readable:
        if not at_end:
            context.problems.add(
                "bad_expectation",
                f"`{key.text}` cannot be written next to a step",
                key.mark,
                "what differs on versions of torch is written in the `expect` at the top level",
            )
        return []
    if _is_stranger(key, context):
        _note_stranger(key, context, tuple(FINAL_EXPECT if at_end else STEP_EXPECT))
        return []
    compiled = expression(key, context)
    wanted = _read_wanted(node, context, of_object=_is_object(compiled, context))
    if not isinstance(compiled, Expression):
        return []
    if (local := _local_view(wanted)) is not None and not _may_be_distributed(compiled, context):
        context.problems.add(
            "not_distributed",
            f"`{key.text}` is a plain tensor, which has no placements",
            local.mark,
            "leave `placements` out: a plain tensor is the same in a local view",
        )
    return [scenario.ValueExpectation(key=compiled, wanted=wanted, mark=key.mark)]


def _local_view(wanted: Any) -> TypedValue | None:
    """Return the first form that states placements, of any rank."""
    match wanted:
        case TypedValue() if wanted.placements is not None:
            return wanted
        case PerRank():
            parts = (*(value for _, value in wanted.branches), wanted.otherwise)
            return next(filter(None, map(_local_view, parts)), None)
    return None


def _may_be_distributed(key: Expression, context: Context) -> bool:
    """Whether a key names a tensor that a strategy, or a step, may distribute."""
    name = key.text.strip()
    if context.inlined is not None or name in context.distributed:
        return True
    model = context.names.models.get(name.partition(".")[0])
    return model is not None and model.is_distributed(name.partition(".")[2].removesuffix(".grad"))


def _refuse_top_key(key: Scalar, context: Context, *, at_end: bool) -> None:
    if at_end:
        message = f"what differs on `{key.text}` is not a mapping"
        hint = f"write `{key.text}: {{outcome: ..., x: ...}}`"
    else:
        message = f"`{key.text}` cannot be written next to a step"
        of_backend = key.text in KNOWN_BACKENDS
        what = "what differs on one backend" if of_backend else "how it all ends"
        hint = f"{what} is written in the `expect` at the top level"
    context.problems.add("bad_expectation", message, key.mark, hint)


def _is_stranger(key: Scalar, context: Context) -> bool:
    """Whether a key is one word that is no name here: a name, or a key, that is misspelt."""
    known = {*context.readable, *context.names.handles, *DTYPES}
    return context.inlined is None and key.text.isidentifier() and key.text not in known


def _note_stranger(key: Scalar, context: Context, keys: tuple[str, ...]) -> None:
    """Note a word that is neither a name nor a key of an expectation.

    `deadlock: true` is what people write for `outcome: deadlock`.
    """
    stated = {
        **dict.fromkeys(OUTCOMES, "outcome"),
        **dict.fromkeys(DIAGNOSES, "diagnosis"),
        **dict.fromkeys(RAISE_KINDS, "raises"),
    }
    word = stated.get(key.text)
    if word in keys:
        message = f"`{key.text}` is not a name but what `{word}` may say"
        context.problems.add("unknown_name", message, key.mark, f"write `{word}: {key.text}`")
    else:
        unknown_name(key.text, key, context, beside=keys)


def _is_object(key: Expression | Constant, context: Context) -> bool:
    return isinstance(key, Expression) and key.text.strip() in context.names.objects


def _read_wanted(node: Node, context: Context, *, of_object: bool) -> Any:
    """Return a Form, Unchanged, or a PerRank of these.

    For an object a mapping is data, unless its keys are ranks or `else`: `{lr: 0.1}` is what the
    object must be, `{0: {lr: 0.1}, else: unchanged}` is by rank.
    """
    node, context = values.resolve_given(node, context, "expected")
    if isinstance(node, Scalar) and node.value == UNCHANGED:
        return scenario.Unchanged(mark=node.mark)
    if isinstance(node, Mapping) and not (of_object and not _has_selectors(node)):
        if values.is_long_form(node, expected=True) and not of_object:
            return values.long_form(node, context)
        return values.read_per_rank(
            node,
            context,
            lambda item, there: _read_wanted(item, there, of_object=of_object),
            keys=() if of_object else values.EXPECTED_FORM,
        )
    if of_object:
        return read_object(node, context)
    return values.value(node, context)


def _has_selectors(node: Mapping) -> bool:
    keys = node.words()
    return ELSE in keys or all(
        isinstance(key, Sequence) or (isinstance(key, Scalar) and isinstance(key.value, int))
        for key, _ in node.entries
    )


# ---------------------------------------------------------------------- time


def _read_elapsed(
    node: Node, context: Context
) -> scenario.ElapsedBounds | PerRank[scenario.ElapsedBounds]:
    """Return the bounds of the time when a step returns: seconds since the scenario began there."""
    if isinstance(node, Mapping) and any(isinstance(item, Mapping) for _, item in node.entries):
        return values.read_per_rank(node, context, _bounds)
    return _bounds(node, context)


def _bounds(node: Node, context: Context) -> scenario.ElapsedBounds:
    assert isinstance(node, Mapping)
    found: dict[str, Form] = {
        f"{key_text(key)}_s": values.seconds(value, context, what=f"`{key_text(key)}`")
        for key, value in node.entries
    }
    low, high = found.get("min_s"), found.get("max_s")
    bounds = [form.value for form in (low, high) if isinstance(form, Constant)]
    if len(bounds) == 2 and None not in bounds and bounds[0] > bounds[1]:
        context.problems.add("bad_value", "`min` is greater than `max`", node.mark, "swap them")
    return scenario.ElapsedBounds(min_s=low, max_s=high, mark=node.mark)


# -------------------------------------------------------------------------------------------------
# Sections of single backends and versions, in the text of a file.


def is_section(key: Span, value: Span) -> bool:
    """Whether an entry of the top-level `expect` says what differs on a backend or a version.

    For those who edit the text of a file (`scenario bless`), and have spans of it in place of
    nodes.
    """
    if value.kind != "mapping" or key.text in FINAL_EXPECT:
        return False
    if version_key(key.text) is not None:
        return True
    return key.text in KNOWN_BACKENDS or any(word.text in FINAL_EXPECT for word, _ in value.entries)


# -------------------------------------------------------------------------------------------------
# What the `expect` at the top level says: outcome, who is blocked, diagnosis, deaths, backends.

#: what a backend's own outcome makes meaningless in the general expectation
_ONLY_WITH = {"blocked": {"deadlock", "error"}, "dies": {"crash"}}
COMPLETES = ("completes",)
#: sections of one `expect`: more are no facts about backends
MOST_SECTIONS = 16
_EXIT = re.compile(r"exit [0-9]{1,3}")


def final_expectation(
    node: Node | None, context: Context, backends: Collection[str]
) -> scenario.FinalExpectation:
    """Return the top-level `expect`, every backend's section merged over the general one.

        expect:
          outcome: deadlock
          x: 2
          nccl: {outcome: completes}
          "torch>=2.14": {x: 3}

    has two sections, and a run may be held by neither, by one, or by both. Each combination that
    can hold is merged here, once: a judge then looks up the one of its backend and version. A
    section states only what differs, value by value; what asks for both a backend and a version is
    laid over the others.
    """
    if node is None:
        return scenario.FinalExpectation()
    assert isinstance(node, Mapping)
    found: dict[str, tuple[scenario.Section, Mapping]] = {}
    for key, value in node.entries:
        section = _section(key, value, context, backends)
        if section is not None and isinstance(value, Mapping):
            found[key_text(key)] = section, value
    if len(found) > MOST_SECTIONS:
        context.problems.add(
            "too_many_sections",
            f"`expect` has {len(found)} sections for backends and versions; at most "
            f"{MOST_SECTIONS} can be distinguished",
            node.mark,
        )
        found.clear()
    general = _read_stated(node, context, leave_out=found.keys())
    # what asks for more is laid over what asks for less, a later one over an earlier
    ordered = sorted(found.values(), key=lambda each: _weight(each[0]))
    own = [_read_stated(value, context, leave_out=()) for _, value in ordered]
    sections = tuple(section for section, _ in ordered)
    whole = replace(_make(general, node), sections=sections)
    merged: dict[tuple[int, ...], scenario.FinalExpectation] = {}
    for backend in (None, *whole.backends):
        for version in whole.versions:
            holding = whole.find_holding(backend, version)
            if holding and holding not in merged:
                laid = general
                for number in holding:
                    laid = _merge(laid, own[number])
                merged[holding] = _make(laid, ordered[holding[-1]][1])
    return replace(whole, merged=merged)


def _weight(section: scenario.Section) -> int:
    """Return how much a condition asks: a backend, a version of torch, both."""
    return (section.backend is not None) + 2 * (section.torch is not None)


def _section(
    key: Node, value: Node, context: Context, backends: Collection[str]
) -> scenario.Section | None:
    """Return the condition that a key of `expect` states; None where it states none."""
    versions = version_key(key_text(key))
    if versions is not None and "torch" not in context.readable:
        return _read_version(*versions, key, value, context, backends)
    name = key_text(key)
    return scenario.Section(backend=name) if _is_backend(key, value, context, backends) else None


def _read_version(
    backend: str,
    word: str,
    range_text: str,
    key: Node,
    value: Node,
    context: Context,
    backends: Collection[str],
) -> scenario.Section | None:
    """Return what `gloo torch>=2.14` says, with every fault noted."""
    if word != "torch":
        context.problems.add(
            "unknown_key",
            f"`{word}` has no versions here",
            key.mark,
            "did you mean `torch`?",
            correct(word, "torch", _TORCH, key.mark),
        )
    known = {*backends, *KNOWN_BACKENDS}
    if backend and backend not in known:
        close = nearest(backend, known)
        hint = f"did you mean `{close}`?" if close else f"there are {', '.join(sorted(known))}"
        repair = correct(backend, close, known, key.mark)
        message = f"there is no backend `{backend}`"
        context.problems.add("unknown_key", message, key.mark, hint, repair)
    if not isinstance(value, Mapping):
        context.problems.add(
            "bad_expectation",
            f"what differs on `{key_text(key)}` is not a mapping",
            key.mark,
            f'write `"{key_text(key)}": {{outcome: ..., x: ...}}`',
        )
    try:
        found = VersionRange.read(range_text)
    except ValueError:
        context.problems.add(
            "bad_version",
            f"`{key_text(key)}` names no versions of torch",
            key.mark,
            'versions are written as in `"torch>=2.14, <2.16"`',
        )
        return scenario.Section(backend=backend or None, torch=VersionRange(bounds=()))
    return scenario.Section(backend=backend or None, torch=found)


def _is_backend(key: Node, value: Node, context: Context, backends: Collection[str]) -> bool:
    """Whether a key of `expect` names a backend, perhaps misspelt, which is then noted.

    A name with a mapping below it is otherwise a tensor, by rank: only a mapping with a key of an
    expectation (`outcome`) can be a section.
    """
    name = key_text(key)
    if not isinstance(value, Mapping) or name in FINAL_EXPECT or name in context.readable:
        return False
    if name in backends or name in KNOWN_BACKENDS:
        return True
    if not name.isidentifier() or not any(word in FINAL_EXPECT for word in value.words()):
        return False
    close = nearest(name, (*backends, *KNOWN_BACKENDS))
    if close is not None:
        context.problems.add(
            "unknown_key",
            f"there is no backend `{name}`",
            key.mark,
            f"did you mean `{close}`?",
            correct(name, close, (*backends, *KNOWN_BACKENDS), key.mark),
        )
    return True


def _read_stated(node: Mapping, context: Context, *, leave_out: Collection[str]) -> dict[str, Any]:
    """Return what one mapping states, by the field that it becomes."""
    found: dict[str, Any] = {"places": {key_text(key): value.mark for key, value in node.entries}}
    others: list[tuple[Node, Node]] = []
    for key, value in node.entries:
        match key_text(key):
            case "outcome":
                found["outcomes"] = _read_words(value, context, OUTCOMES, "outcome")
            case "blocked" | "dies" as name:
                found[name] = _texts(value, context, name)
            case "diagnosis":
                found["diagnoses"] = _read_words(value, context, tuple(DIAGNOSES), "diagnosis")
            case "within":
                found["within_s"] = values.read_seconds(value, context, what="`within`")
            case "communicates":
                found["communicates"] = communicates(value, context)
            case "memory":
                others += memory(value, context)
            case "cost":
                found["cost"] = _cost(value, context)
            case name if name not in leave_out:
                others.append((key, value))
    found["at_end"] = read_entries(others, context.enter_expectation(), node, at_end=True)
    return found


def memory(node: Node, context: Context) -> list[tuple[Node, Node]]:
    """Return what `memory:` states as values: `net.memory[0]` are the bytes of the parameters.

    Counted is what a rank holds at rest, after a step: its shards of the parameters, of the
    gradients, and of the optimizer's state (for Adam two numbers an element, and one count a
    parameter).
    """
    found: list[tuple[Node, Node]] = []
    for key, value in _read_models(node, context, "memory"):
        if not isinstance(value, Mapping):
            example = "`{parameters: 232, gradients: 232, optimizer: 480}`"
            values.wrong_type(value, context, "the memory of a model", example)
            continue
        for word, stated in value.entries:
            if key_text(word) not in MEMORY:
                context.problems.unknown(
                    "unknown_key",
                    f"unknown key `{key_text(word)}` of `memory`",
                    key_text(word),
                    MEMORY,
                    word.mark,
                    listed="its keys are",
                )
                continue
            text = f"{key_text(key)}.memory[{MEMORY.index(key_text(word))}]"
            asked = _read_members(stated, context, context.names.models[key_text(key)].where)
            found.append((Scalar(mark=word.mark, value=text, text=text), asked))
    return found


def _read_members(node: Node, context: Context, *groups: str | None) -> Node:
    """Return what is stated as what is asked of the members of groups alone: `else` is theirs.

    A model on the mesh `mesh` of ranks 0 to 3 of 8 does not exist on ranks 4 to 7, so `memory:
    {net: {parameters: 232}}` says nothing of them.
    """
    known = []
    for each in groups:
        # all members of a mesh are in a group of each of its dimensions
        dims = (name for name in context.names.groups if name.partition(".")[0] == each)
        group = each if each in context.names.groups else next(dims, None)
        known += [] if group is None else [group]
    if not known:
        return node
    text = " and ".join(f"group_rank({each}) >= 0" for each in known)
    members = Scalar(mark=node.mark, value=text, text=text)
    if not isinstance(node, Mapping) or values.is_long_form(node):
        return Mapping(node.mark, [(members, node)])
    return Mapping(
        node.mark,
        [(members if key_text(key) == ELSE else key, value) for key, value in node.entries],
    )


def communicates(node: Node, context: Context) -> tuple[scenario.Communicates, ...]:
    """Return what `communicates:` states: lists of calls, by model, and perhaps by group.

    A call is `[all_reduce, float32, 58]`: what c10d is asked for, by which a strategy is seen from
    outside. FSDP's forward is one all_gather a wrapped module, DDP's backward one all_reduce a
    bucket.
    """
    found: list[scenario.Communicates] = []
    for key, value in _read_models(node, context, "communicates"):
        name = key_text(key)
        where = context.names.models[name].where
        groups = {*context.names.groups, WORLD}
        if isinstance(value, Mapping) and value.words() and set(value.words()) <= groups:
            for group, listed in value.entries:
                asked = _read_members(listed, context, where, key_text(group))
                calls = _read_calls(asked, context)
                found.append(
                    scenario.Communicates(
                        model=name, calls=calls, group=key_text(group), mark=group.mark
                    )
                )
        else:
            calls = _read_calls(_read_members(value, context, where), context)
            found.append(scenario.Communicates(model=name, calls=calls, mark=key.mark))
    return tuple(found)


def _read_models(node: Node, context: Context, what: str) -> list[tuple[Node, Node]]:
    """Return the entries of a mapping from the names of models, without unreadable models."""
    if not isinstance(node, Mapping):
        values.wrong_type(node, context, f"`{what}`", "a mapping from the names of models")
        return []
    known = tuple(context.names.models)
    for key, _ in node.entries:
        if key_text(key) not in known:
            name = key_text(key)
            context.problems.unknown(
                "unknown_name",
                f"there is no model `{name}`",
                name,
                known,
                key.mark,
                listed="`models:` has",
            )
    models = context.names.models
    return [(key, value) for key, value in node.entries if models.get(key_text(key)) is not None]


def _read_calls(
    node: Node, context: Context
) -> tuple[IssuedCall, ...] | PerRank[tuple[IssuedCall, ...]]:
    node, context = context.resolve(node)
    if isinstance(node, Mapping):
        return values.read_per_rank(node, context, _calls)
    return _calls(node, context)


def _calls(node: Node, context: Context) -> tuple[IssuedCall, ...]:
    """Return a list of `[call, dtype, numel]`, in the order in which the rank issues them."""
    if not isinstance(node, Sequence):
        values.wrong_type(node, context, "what is said", "a list of `[call, dtype, numel]`")
        return ()
    found = []
    for item in node.items:
        parts = item.items if isinstance(item, Sequence) else []
        if len(parts) != 3:
            values.wrong_type(item, context, "a call", "`[all_reduce, float32, 58]`")
            continue
        word = values.read_fixed(parts[0], context, CALLS, code="unknown_word", what="call")
        dtype = values.read_fixed(parts[1], context, DTYPES, code="unknown_dtype", what="dtype")
        numel = values.constant_value(parts[2], context, what="the elements", extra=context.world)
        if numel is not None and not (type(numel) is int and numel >= 0):
            values.wrong_type(parts[2], context, "the number of elements", "an integer, 0 or more")
            continue
        if word is None or dtype is None or numel is None:
            continue
        found.append(IssuedCall(group="", call=word, dtype=dtype, numel=numel))
    return tuple(found)


def _make(fields: dict[str, Any], node: Mapping) -> scenario.FinalExpectation:
    given = {name: value for name, value in fields.items() if value is not None}
    return scenario.FinalExpectation(**given, mark=node.mark)


def _merge(general: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return a backend's section over the general expectation, value by value.

    Where the section states another outcome, what only goes with the general one does not hold
    there: who is blocked has no meaning where the program completes.
    """
    merged = {**general, **own, "places": {**general["places"], **own["places"]}}
    ends = set(merged.get("outcomes") or COMPLETES)
    alike = ends == set(general.get("outcomes") or COMPLETES)
    if not alike:
        for field, outcomes in _ONLY_WITH.items():
            if field not in own and not ends & outcomes:
                merged.pop(field, None)
    base: scenario.Expectation = general["at_end"]
    over: scenario.Expectation = own["at_end"]
    stated = {value.key.text for value in over.values}
    kept = tuple(value for value in base.values if value.key.text not in stated)
    raises = over.raises
    if raises is None and alike:
        raises = base.raises
    merged["at_end"] = scenario.Expectation(
        values=(*kept, *over.values),
        elapsed=over.elapsed if over.elapsed is not None else base.elapsed,
        raises=raises,
        mark=over.mark,
    )
    return merged


# -------------------------------------------------------------------------------------------------
# What `cost` says: rounds, messages and bytes, exactly or between bounds, and a forecast of time.


def _cost(node: Node, context: Context) -> scenario.CostExpectation | None:
    """Return what a program costs on any machine (`rounds`, `messages`, `sent`), or on one."""
    if not isinstance(node, Mapping):
        return None
    found: dict[str, Any] = {}
    for key, value in node.entries:
        match key_text(key):
            case "rounds" | "messages" as name:
                found[name] = _amount(value, context, name)
            case "sent" if isinstance(value, Mapping) and not _is_bounds(value):
                found["sent_by"] = values.read_per_rank(value, context, _amount_of_a_rank)
            case "sent":
                found["sent"] = _amount(value, context, "sent")
            case "time" if isinstance(value, Mapping):
                found["time"] = _time(value, context)
    return scenario.CostExpectation(**found, mark=node.mark)


def _time(node: Mapping, context: Context) -> scenario.TimeExpectation | None:
    """Return between which times a forecast must be, and on which topology.

    The forecast counts in microseconds. `60us` is 6e-05 s as a float, and 59.99999999999999 us
    after multiplying; 12 digits give the 60 that was written.
    """
    low, high = (
        None
        if (item := node.get(word)) is None
        else values.read_seconds(item, context, what=f"`{word}` of `time`")
        for word in _BOUNDS
    )
    _police_bounds(low, high, node, context)
    on = node.get("on")
    if not isinstance(on, Scalar) or not isinstance(on.value, str):
        return None
    return scenario.TimeExpectation(
        on=on.value,
        low=None if low is None else float(f"{low * 1e6:.12g}"),
        high=None if high is None else float(f"{high * 1e6:.12g}"),
        mark=node.mark,
    )


def _is_bounds(node: Mapping) -> bool:
    return bool(node.entries) and set(node.words()) <= {*_BOUNDS}


def _amount(node: Node, context: Context, name: str) -> scenario.Bounds | None:
    """Return a number that is the same on every rank: exact, or `{min: ..., max: ...}`."""
    if isinstance(node, Mapping):
        low, high = (_number(node.get(word), context, f"`{word}` of `{name}`") for word in _BOUNDS)
        _police_bounds(low, high, node, context)
        return scenario.Bounds(low=low, high=high, mark=node.mark)
    exact = _number(node, context, f"`{name}`")
    return None if exact is None else scenario.Bounds(low=exact, high=exact, mark=node.mark)


def _police_bounds(low: float | None, high: float | None, node: Node, context: Context) -> None:
    if low is not None and high is not None and low > high:
        context.problems.add("bad_value", "`min` is greater than `max`", node.mark, "swap them")


def _number(node: Node | None, context: Context, what: str) -> float | None:
    if node is None:
        return None
    found = values.constant_value(node, context, what=what, extra=context.world)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not found >= 0:
        context.problems.add(
            "bad_value",
            f"{what} is not a number of zero or more",
            node.mark,
            "state a number, or an expression over parameters",
        )
        return None
    return found


def _amount_of_a_rank(node: Node, context: Context) -> scenario.RankBounds:
    """Return how many bytes one rank sends, or bounds of it: any expression that it can compute."""
    if isinstance(node, Mapping):
        low, high = (
            None if (item := node.get(word)) is None else values.value(item, context)
            for word in _BOUNDS
        )
        return scenario.RankBounds(low=low, high=high, mark=node.mark)
    exact = values.value(node, context)
    return scenario.RankBounds(low=exact, high=exact, mark=node.mark)


def _read_words(node: Node, context: Context, known: Collection[str], what: str) -> tuple[str, ...]:
    """Return the words of a list, or the one that stands in its place."""
    items = node.items if isinstance(node, Sequence) else [node]
    found = (
        values.read_fixed(item, context, known, code=f"unknown_{what}", what=what) for item in items
    )
    return tuple(name for name in found if name is not None)


def _texts(node: Node, context: Context, name: str) -> PerRank[str] | None:
    assert isinstance(node, Mapping)
    return values.read_per_rank(node, context, _death if name == "dies" else _label)


def _label(node: Node, context: Context) -> str:
    return key_text(node)


def _death(node: Node, context: Context) -> str:
    """Return how a process ends: a signal's name, or `exit 3`."""
    text = node.text if isinstance(node, Scalar) else ""
    if text not in signal.Signals.__members__ and not _EXIT.fullmatch(text):
        context.problems.add(
            "bad_value",
            f"`{text}` is not a way to die",
            node.mark,
            "name a signal such as SIGABRT, or an exit code as in `exit 1`",
        )
    return text
