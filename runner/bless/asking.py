"""What every expectation of a file is answered by the reference, on each rank that is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.forms import PerRank
from runner.operations.entries import Undefined
from runner.problems import ScenarioError
from runner.verdict.case import start
from runner.verdict.comparison import differences
from runner.verdict.memory import UndefinedRead, defined
from runner.verdict.views import View, view_at_end, view_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.bless.written import Analysed
    from runner.forms import Selector
    from runner.language.limits import Limits
    from runner.program import Process
    from runner.scenario import ValueExpectation
    from runner.trace import Value
    from runner.verdict.case import Case

_RIGHT: frozenset[str] = frozenset()
_VALUE = frozenset({"value"})
#: the step in a path through per-rank mappings that is `else`
REST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
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


def answers(case: Analysed, limits: Limits) -> Iterator[tuple[ValueExpectation, Answer]]:
    """Yield the answer to every expectation on every rank that reaches it.

    Raises ScenarioError where what the author asks for cannot be computed.
    """
    scenario = case.scenario
    judged = start(case.plan, case.predicted, None, scenario.expect, reference=True, limits=limits)
    for expectation, view in _standing(judged):
        path, asked = _path(view, expectation)
        value, wrong = _compared(view, expectation) if asked else (_held(view, expectation), _RIGHT)
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


def _standing(case: Case) -> Iterator[tuple[ValueExpectation, View]]:
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


def _path(view: View, expectation: ValueExpectation) -> tuple[tuple[int, ...], bool]:
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
    return defined(process, lambda: process.selects(selector))


def _held(view: View, expectation: ValueExpectation) -> Value:
    """Return what a rank holds that the author does not ask; None where it cannot be computed."""
    try:
        return view.value(expectation.key)
    except UndefinedRead as read:
        return read.value
    except ScenarioError:
        return None


def _compared(view: View, expectation: ValueExpectation) -> tuple[Value, frozenset[str]]:
    """Return what a rank holds, and what of it is not as stated.

    Where no more than a shape and a dtype are stated, what is undefined is held to be its measure:
    these two it always has.
    """
    try:
        wanted, relies = view.wanted(expectation), False
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
