"""What the reference answers to every expectation of a file, as values by rank and round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.bless.draft import AnalysedCase, NotBlessedError, refuse
from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.values import PerRank, Selector, Undefined
from torch_scenarios.limits import Limits
from torch_scenarios.model.process import Process
from torch_scenarios.model.scenario import ValueExpectation
from torch_scenarios.model.trace import Value
from torch_scenarios.source.edit import CannotWordError, Span, Stated, state_values
from torch_scenarios.verdict.comparison import WantedValue, differences
from torch_scenarios.verdict.witnesses import (
    Case,
    RankView,
    UndefinedRead,
    require_defined,
    start,
    view_at_end,
    view_of,
)

# What every expectation of a file is answered by the reference, on each rank that is asked.

_RIGHT: frozenset[str] = frozenset()
_VALUE = frozenset({"value"})
#: the step in a path through per-rank mappings that is `else`
REST = -1


class Answer(Struct, frozen=True, kw_only=True):
    """What one rank holds, where an expectation stands, in one case and one round of a loop.

    `path` leads to the branch that speaks of this rank: the position of a selector in each mapping
    on the way, :data:`REST` for `else`; `asked` is False where the last mapping speaks of others
    only. `round` holds the loop variables with their values. `value` is None where the name does
    not exist, or cannot be computed. `wrong` names what is not as stated: `value`, `dtype`,
    `shape`, or `extent` for the shape of a value that states none.
    """

    case: str
    rank: int
    round: tuple[tuple[str, int], ...]
    path: tuple[int, ...]
    asked: bool
    value: Value
    wrong: frozenset[str]


def answers(case: AnalysedCase, limits: Limits) -> Iterator[tuple[ValueExpectation, Answer]]:
    """Yield the answer to every expectation on every rank that reaches it.

    Raises ScenarioError where what the author asks for cannot be computed.
    """
    scenario = case.scenario
    judged = start(case.plan, case.predicted, None, scenario.expect, reference=True, limits=limits)
    for expectation, view in _list_expectations(judged):
        path, asked = _path(view, expectation)
        value, wrong = (
            _compare(view, expectation) if asked else (_read_held(view, expectation), _RIGHT)
        )
        variables = judged.order.variables(view.event) if view.event is not None else {}
        yield (
            expectation,
            Answer(
                case=scenario.case,
                rank=view.rank,
                round=tuple(variables.items()),
                path=path,
                asked=asked,
                value=value,
                wrong=wrong,
            ),
        )


def _list_expectations(case: Case) -> Iterator[tuple[ValueExpectation, RankView]]:
    """Yield every expectation with the view of each rank that reaches it."""
    for instance in case.instances():
        expect, side = instance.step.expect, instance.predicted
        if expect is None or side is None:
            continue
        if side.event.state == "done" or (expect.raises is not None and side.returned):
            for expectation in expect.values:
                yield expectation, view_of(side)
    final = case.final
    if case.prediction.outcome in final.ends:
        for rank in range(case.scenario.world_size):
            for expectation in final.at_end.values:
                yield expectation, view_at_end(case.predicted, rank)


def _path(view: RankView, expectation: ValueExpectation) -> tuple[tuple[int, ...], bool]:
    """Return the way to the branch that speaks of a rank, and whether there is one."""
    form: Any = expectation.wanted
    process = view.process()
    path: list[int] = []
    while isinstance(form, PerRank):
        for number, (selector, value) in enumerate(form.branches):
            if _selects(process, selector):
                path.append(number)
                form = value
                break
        else:
            if form.otherwise is None:
                return tuple(path), False
            path.append(REST)
            form = form.otherwise
    return tuple(path), True


def _selects(process: Process, selector: Selector) -> bool:
    return require_defined(process, lambda: process.selects(selector))


def _read_held(view: RankView, expectation: ValueExpectation) -> Value:
    """Return what a rank holds that the author does not ask; None where it cannot be computed."""
    try:
        return view.join(expectation.key, view.value(expectation.key))
    except UndefinedRead as read:
        return read.value
    except ScenarioError:
        return None


def _compare(view: RankView, expectation: ValueExpectation) -> tuple[Value, frozenset[str]]:
    """Return what a rank holds, and what of it is not as stated.

    Where no more than a shape and a dtype are stated, what is undefined is held to be its measure:
    these two it always has.
    """
    try:
        wanted, relies = view.find_wanted(expectation), False
    except UndefinedRead:
        wanted, relies = None, True
    measured = wanted is not None and not wanted.has_value
    try:
        value = view.value(expectation.key, measured=measured)
    except UndefinedRead as read:
        return read.value, _VALUE
    if measured and isinstance(value, Undefined) and value.measure is not None:
        value = value.measure
    if isinstance(value, Undefined) or relies:
        return value, _VALUE
    if wanted is not None and wanted.local:
        wanted, value = view.find(expectation.key, wanted)
    else:
        value = view.join(expectation.key, value)
        wanted = None if wanted is None else replace(wanted, part=None)
    if wanted is None or (wanted.has_value and wanted.value is None and value is None):
        return value, _RIGHT
    found = differences(view.rank, wanted, value)
    return value, frozenset(_part(each.code, shaped=wanted.shape is not None) for each in found)


def _part(code: str, *, shaped: bool) -> str:
    if code == "dtype_differs":
        return "dtype"
    if code == "shape_differs":
        return "shape" if shaped else "extent"
    return "value"


# Answers -> what is stated: one value, values by rank, or by round of a loop and then by rank.

if TYPE_CHECKING:
    TextOf: TypeAlias = Callable[[Value], str]

#: rounds of a loop that have answers of their own; more belong into an expression
MOST_ROUNDS = 8


def state_answers(
    key: Span,
    given: Sequence[Answer],
    text_of: TextOf,
    groups: Mapping[frozenset[int], str],
    *,
    rest: bool = True,
) -> Stated:
    """Return what states the answers to the expectation `key`; `text_of` words a value.

    `rest` tells whether nothing else in the mapping speaks of further ranks. Raises RefusedError.
    """
    try:
        return state_values(_write_ranks(key, given, text_of), groups, rest=rest)
    except NotBlessedError as error:
        if error.refusals[0].code != "rounds_differ":
            raise
        rounds = _rounds(given)
        if len(rounds) > MOST_ROUNDS:
            raise
    lines: dict[str, list[tuple[tuple[str, int], ...]]] = defaultdict(list)
    for variables, answers in rounds.items():
        by_rank = _write_ranks(key, answers, text_of)
        if any(text is not None for text in by_rank.values()):
            lines[state_values(by_rank, groups).line].append(variables)
    return Stated(entries=tuple((_select_rounds(each), line) for line, each in lines.items()))


def _rounds(given: Iterable[Answer]) -> dict[tuple[tuple[str, int], ...], list[Answer]]:
    found: dict[tuple[tuple[str, int], ...], list[Answer]] = {}
    for answer in sorted(given, key=lambda each: each.round):
        found.setdefault(answer.round, []).append(answer)
    return found


def _select_rounds(rounds: Sequence[tuple[tuple[str, int], ...]]) -> str:
    """Return the selector of some rounds: `"i == 0"`, `"i in [0, 2]"`, `"i == 0 and j == 1"`."""
    if len(rounds) > 1 and all(len(variables) == 1 for variables in rounds):
        name = rounds[0][0][0]
        return f'"{name} in {[value for ((_, value),) in rounds]}"'
    each = (" and ".join(f"{name} == {value}" for name, value in one) for one in rounds)
    return '"' + " or ".join(each) + '"'


def _write_ranks(key: Span, given: Iterable[Answer], text_of: TextOf) -> dict[int, str | None]:
    """Return the text of each rank's value; None where there is none, or none that is defined."""
    spoken: dict[int, tuple[str, Answer]] = {}
    silent: dict[int, None] = {}
    for answer in given:
        if answer.value is None or is_undefined(answer.value):
            silent[answer.rank] = None
            continue
        try:
            text = text_of(answer.value)
        except CannotWordError as error:
            refuse("value_too_large", f"`{key.text}` {error}", key.line)
        before = spoken.setdefault(answer.rank, (text, answer))
        if before[0] != text:
            spoken[answer.rank] = _find_common_text(key, before, (text, answer))
    both = sorted(spoken.keys() & silent.keys())
    if both:
        message = f"`{key.text}` has a value on rank {both[0]} in one case or round, and none in "
        refuse("cases_differ", message + "another", key.line)
    return {**{rank: text for rank, (text, _) in spoken.items()}, **silent}


def is_undefined(value: Value) -> bool:
    """Whether a value, or a part of it, is undefined."""
    if isinstance(value, list | tuple):
        return any(is_undefined(item) for item in value)
    return isinstance(value, Undefined)


def _find_common_text(
    key: Span, one: tuple[str, Answer], other: tuple[str, Answer]
) -> tuple[str, Answer]:
    """Return which of two texts says both values, as `[1, 0]` says [true, false]; or raise."""
    first, second = one[1], other[1]
    if first.case == second.case or differences(
        first.rank, WantedValue(value=first.value), second.value
    ):
        _refuse_both(key, one, other)
    return min(one, other, key=lambda each: (*_rate_generality(each[0]), -len(each[0])))


def _refuse_both(key: Span, one: tuple[str, Answer], other: tuple[str, Answer]) -> NoReturn:
    (text, first), (instead, second) = one, other
    line, name, rank = key.line, key.text, first.rank
    if first.case != second.case:
        message = f"`{name}` on rank {rank} is {text} in {first.case} and {instead} in "
        message += f"{second.case}: one text serves both, so state it as an expression"
        refuse("cases_differ", message, line)
    message = f"`{name}` on rank {rank} is {text} with {_tell_round(first)} and {instead} with "
    message += f"{_tell_round(second)}: state it as an expression, or next to the `for`"
    refuse("rounds_differ", message, line)


def _rate_generality(text: str) -> tuple[bool, bool]:
    """Return what makes a text less general: complex numbers, booleans."""
    return text.startswith('"'), "true" in text or "false" in text


def _tell_round(answer: Answer) -> str:
    return ", ".join(f"{name} = {value}" for name, value in answer.round) or "the last round"
