"""A guess at the mistake where the numbers show one, and steps that say nothing about a program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.errors import Mark, ScenarioError
from torch_scenarios.expressions.compile import compile_expression
from torch_scenarios.expressions.evaluator import CANNOT_COMPUTE
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.values import (
    Constant,
    Form,
    PerRank,
    Selector,
    expressions_in,
    roots_of,
)
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Process
from torch_scenarios.model.scenario import Expectation, FinalExpectation, Scenario, Step, steps_of
from torch_scenarios.model.tolerance import read_numbers
from torch_scenarios.operations.base import Group, GroupCreation
from torch_scenarios.operations.checks import reduce_parts
from torch_scenarios.verdict.comparison import WantedValue, differences
from torch_scenarios.verdict.finding import Finding
from torch_scenarios.verdict.witnesses import Case, view_at_end
from torch_scenarios.vocabulary import REDUCE_OPS

# -------------------------------------------------------------------------------------------------
# A guess at the mistake where the numbers show one.
#
# For a value that differs at a step, the members' values before it are combined in all the ways in
# which such a step goes wrong; where one of them gives exactly the wrong numbers on every rank
# that differs, that is the guess. It changes no verdict.

MOST_MEMBERS = 64
MOST_ELEMENTS = 1 << 16


def guess(case: Case, finding: Finding) -> str | None:
    """Return what the wrong numbers of a finding look like, in a phrase; None where like nothing.

    The wrong numbers are the author's where the expectation stands alone, else the run's.

        ranks 0 and 1 hold [1, 10] and [2, 20]    all_reduce sum    the run shows [5, 50] on both
        guess: "the run shows the result with rank 1's contribution counted twice"
    """
    found = [d for d in finding.differences if d.code == "value_differs" and not d.item]
    if not found or len(found) != len(finding.differences):
        return None
    numbers = [
        (d, read_numbers(d.expected if finding.witness == "expectation" else d.got)) for d in found
    ]
    rights = [
        (d, read_numbers(d.got if finding.witness == "expectation" else d.expected)) for d in found
    ]
    if any(value is None or value.size > MOST_ELEMENTS for _, value in (*numbers, *rights)):
        return None
    wrong = {d.rank: value for d, value in numbers if value is not None}
    right = {d.rank: value for d, value in rights if value is not None}
    if _single(wrong, right):
        return None
    try:
        return next(_candidates(case, finding, wrong, right), None)
    except (ScenarioError, *CANNOT_COMPUTE):
        return None


def _single(wrong: dict[int, NDArray[Any]], right: dict[int, NDArray[Any]]) -> bool:
    """Return whether all that differs is one number for another: any formula may give that.

    Where `[3]` should be `[6]`, "without rank 1's contribution", "op: max" and "half" all fit by
    chance. Two different pairs of numbers are taken for evidence.
    """
    pairs: set[tuple[Any, Any]] = set()
    for rank, values in wrong.items():
        should = right.get(rank)
        if should is None or should.shape != values.shape:
            return False
        beside = zip(values.ravel().tolist(), should.ravel().tolist(), strict=True)
        pairs |= {(one, other) for one, other in beside if one != other}
        if len(pairs) > 1:
            return False
    return True


def _candidates(
    case: Case,
    finding: Finding,
    wrong: dict[int, NDArray[Any]],
    right: dict[int, NDArray[Any]],
) -> Iterator[str]:
    """Yield phrases for what the numbers look like, the most telling first.

    They are made of the members' inputs (another op, a rank left out, one counted twice), right
    values on wrong ranks, and last a factor of the group's size: an average that was to be a sum.
    """
    subject = "you expect" if finding.witness == "expectation" else "the run shows"
    step = next((s for s in steps_of(case.scenario.steps) if s.index == finding.index), None)
    inputs = _inputs(case, finding, step) if step is not None else None
    if inputs is not None:
        yield from (f"{subject} {text}" for text in _explain_by_inputs(*inputs, wrong))
    swapped = _hint_swapped(wrong, _find_right_values(case, finding, right))
    if swapped:
        yield f"{subject} {swapped}"
    if len(wrong) > 0:
        factor = _factor(wrong, right)
        size = inputs[0].size if inputs else case.scenario.world_size
        if factor is not None and size > 1:
            for value, text in ((size, "times"), (1 / size, "one part in")):
                if np.isclose(factor, value, rtol=1e-9):
                    yield f"{subject} {text} {size}: off by a factor of the group's size"


def _inputs(
    case: Case, finding: Finding, step: Step
) -> tuple[Group, str, list[NDArray[Any]]] | None:
    """Return the group, the step's own reduce op, and each member's contribution before it.

    None where the group is too large, or where no argument of the step has the shape of the result.
    """
    if step.operation is None:
        return None
    moment = case.order.moment(finding.index, finding.iteration)
    rank = finding.differences[0].rank
    process = case.predicted.process(rank, case.predicted.final(rank), None, None)
    group = process.group(step.operation.group_of(process, step.arguments))
    if not 1 < group.size <= MOST_MEMBERS:
        return None
    numbers = read_numbers(finding.differences[0].got)
    shape = () if numbers is None else numbers.shape
    form = step.arguments.get("op")
    operation = "sum" if form is None else process.evaluate(form)
    for name in _names_read(step, finding.name):
        parts = [case.predicted.before(name, member, moment) for member in group.ranks]
        if all(isinstance(part, np.ndarray) and part.shape == shape for part in parts):
            return group, str(operation), parts
    return None


def _names_read(step: Step, name: str | None) -> list[str]:
    names = [name] if name else []
    for param in step.operation.params if step.operation else ():
        names += sorted(roots_of(step.arguments.get(param.name)))
    return list(dict.fromkeys(names))


def _explain_by_inputs(
    group: Group, operation: str, parts: list[NDArray[Any]], wrong: dict[int, NDArray[Any]]
) -> Iterator[str]:
    """Yield what the wrong numbers are, made of the members' contributions."""
    own = dict(zip(group.ranks, parts, strict=True))
    if all(rank in own and _equal(value, own[rank]) for rank, value in wrong.items()):
        yield "the unreduced input: what each rank held before"
    for text, op, used in _reductions(group, operation, parts):
        if _gives(op, used, wrong):
            yield text


def _reductions(
    group: Group, operation: str, parts: list[NDArray[Any]]
) -> Iterator[tuple[str, str, list[NDArray[Any]]]]:
    """Yield each way to reduce wrongly: its description, the op, and what it is applied to.

    An op whose result happens to be the right one is passed over by the caller: it is compared with
    the wrong numbers alone, on every rank.
    """
    for other in REDUCE_OPS:
        if other != operation:
            yield f"what `op: {other}` gives", other, parts
    for rank, part in zip(group.ranks, parts, strict=True):
        yield f"what rank {rank} held before", "sum", [part]
    if operation not in REDUCE_OPS:
        return
    for at, rank in enumerate(group.ranks):
        rest = [*parts[:at], *parts[at + 1 :]]
        yield f"the result without rank {rank}'s contribution", operation, rest
    if operation == "sum":
        for rank, part in zip(group.ranks, parts, strict=True):
            text = f"the result with rank {rank}'s contribution counted twice"
            yield text, "sum", [*parts, part]


def _gives(op: str, parts: list[NDArray[Any]], wrong: dict[int, NDArray[Any]]) -> bool:
    try:
        value = reduce_parts(op, parts)
    except (TypeError, ValueError, ArithmeticError):
        return False
    return isinstance(value, np.ndarray) and all(_equal(found, value) for found in wrong.values())


def _equal(left: NDArray[Any], right: NDArray[Any]) -> bool:
    return left.shape == right.shape and not differences(0, WantedValue(value=left), right)


def _find_right_values(
    case: Case, finding: Finding, right: dict[int, NDArray[Any]]
) -> dict[int, NDArray[Any]]:
    """Return the right value on every rank: of those that differ, and of the others."""
    found = dict(right)
    for rank in range(case.scenario.world_size):
        if rank in found or finding.name is None:
            continue
        trace = case.predicted.rank(rank)
        for event in trace.events if trace else ():
            if (event.index, event.iteration) == (finding.index, finding.iteration):
                value = event.writes.get(finding.name)
                if isinstance(value, np.ndarray):
                    found[rank] = value
    return found


def _hint_swapped(wrong: dict[int, NDArray[Any]], right: dict[int, NDArray[Any]]) -> str | None:
    """Say so where every rank has what another should have, as after a list in another order."""
    places: dict[int, int] = {}
    for rank, value in wrong.items():
        match = [r for r, other in right.items() if r != rank and _equal(value, other)]
        if not match:
            return None
        taken = [r for r in match if r not in places.values()]
        places[rank] = taken[0] if taken else match[0]
    if len(places) == 1:
        rank, other = next(iter(places.items()))
        return f"on rank {rank} what belongs on rank {other}"
    pairs = ", ".join(
        f"rank {rank} has rank {other}'s" for rank, other in sorted(places.items())[:4]
    )
    return f"the right values on the wrong ranks ({pairs})"


def _factor(wrong: dict[int, NDArray[Any]], right: dict[int, NDArray[Any]]) -> float | None:
    """Return the one factor between wrong and right numbers, over all elements that have one.

    0, an infinity and what is no number stay what they are, times any factor above 0.

    >>> _factor({0: np.array([2.0, 0.0])}, {0: np.array([4.0, 0.0])})
    0.5
    """
    factors: list[float] = []
    for rank, value in wrong.items():
        if value.dtype.kind not in "iuf" or right[rank].dtype.kind not in "iuf":
            return None
        left, base = value.astype(np.float64).ravel(), right[rank].astype(np.float64).ravel()
        stays = (base == 0) | ~np.isfinite(base)
        if not np.array_equal(left[stays], base[stays], equal_nan=True):
            return None
        with np.errstate(over="ignore"):
            factors += (left[~stays] / base[~stays]).tolist()
    if not factors or not np.allclose(factors, factors[0], rtol=1e-6, atol=0.0):
        return None
    return factors[0]


# -------------------------------------------------------------------------------------------------
# What no rank reaches: an expectation that is never compared, a step that no rank takes.
#
# Both are judged over all cases of the file, and a used part over all its uses: a loop may have no
# turn in one case, and a key may select a rank that only a larger world has. What counts is which
# ranks are *selected*; the end of the program does not: a step behind a hang is selected all the
# same. Where a tensor decides (`"x[0] > 3"`), a trace that completes tells; without one it is
# taken for reached.

#: where a unit is written: path, line and column of its expectation, name, number of the key
Place: TypeAlias = tuple[str, int, int, str, int]

#: selectors and loops that are evaluated for one case; beyond, all is taken for reached
MOST_LOOKS = 100_000
#: index of what is stated for the end
AT_END = -1


class _Unit(Struct, frozen=True, kw_only=True):
    """What some rank must reach: a step, or a key of a mapping by rank (`form`, its `branch`).

    `index` is that of the step. `name` is what the key belongs to, and `compared` whether it is a
    value, whose chosen keys are known once values were compared. `expects` is False where the unit
    is an action without any expectation: it is a warning only. `whole` is the place of the
    expectation as its file has it, which all uses of a part share.
    """

    mark: Mark
    whole: Mark
    index: int
    label: str
    name: str = ""
    form: PerRank[Any] | None = None
    branch: int = -1
    compared: bool = False
    expects: bool = True

    @property
    def place(self) -> Place:
        """What names the unit in every case of the file."""
        whole = self.whole
        name = "" if self.compared else self.name  # a part's names depend on its use
        return whole.source.path, whole.line, whole.column, name, self.branch


def judge_reach(case: Case) -> list[Finding]:
    """Return a finding for each expectation that no rank reaches; warn of steps without ranks.

    The values of the case were compared before. `expect: {x: {4: [1]}}` in a world of 4 compares
    nothing, and would pass for ever.
    """
    memories = (case.predicted, case.observed)
    chosen = {each for known in memories if known is not None for each in known.chosen}
    units = _units(case.scenario, case.final)
    taken = _find_taken(case, {unit.index for unit in units})
    seen = {unit.place for unit in units if _is_seen(unit, taken, chosen)}
    left = [unit for unit in units if unit.place not in seen]
    if left:
        reach = _Reach(case.predicted.plan, left, certain=_is_certain(case), taken=taken)
        reached = reach.places()
        left = [unit for unit in left if unit.place not in reached]
    left = _find_unreached(case, left)
    early = _warn_of_early_use(case)
    for unit in left:
        if not unit.expects and unit.index not in early:
            case.warn(
                "step_without_ranks",
                f"no rank takes {unit.label}",
                unit.mark,
                "change its `ranks:` or its group, or remove the step",
            )
    return [_make_finding(unit) for unit in left if unit.expects]


def _make_finding(unit: _Unit) -> Finding:
    if unit.form is None:
        prose = f"no rank takes {unit.label}, so that its expectation is never compared"
    else:
        selector, _ = unit.form.branches[unit.branch]
        who = "no rank" if unit.index == AT_END else f"no rank that takes {unit.label}"
        prose = f"{who} reaches the key `{selector.text.strip()}` of `{unit.name}`"
    return Finding(
        witness="expectation",
        code="expectation_unreached",
        prose=prose,
        mark=unit.mark,
        index=unit.index,
        name=unit.name or None,
    )


# ---------------------------------------------------------------------------- what is to be reached


def _units(scenario: Scenario, final: FinalExpectation) -> list[_Unit]:
    """Return all that some rank must reach: steps, and the keys of each mapping by rank."""
    found: list[_Unit] = []
    for step in steps_of(scenario.steps):
        expect, label, mark = step.expect, f"`{_name(step)}`", step.mark
        if expect is not None and (expect.values or expect.raises or expect.elapsed):
            whole = expect.mark or mark
            if whole is not None:
                place = _choice(step) or whole
                found.append(_Unit(mark=place, whole=whole, index=step.index, label=label))
                found += _keys_of(expect, step.index, label, whole)
        elif step.operation is not None and mark and _is_own(scenario, mark):
            place, index = _choice(step) or mark, step.index
            found.append(_Unit(mark=place, whole=mark, index=index, label=label, expects=False))
    whole = final.mark or scenario.mark
    if whole is not None:
        found += _keys_of(final.at_end, AT_END, "", whole)
        for name, stated in (("blocked", final.blocked), ("dies", final.dies)):
            found += _keys(stated, AT_END, "", name, whole)
    return found


def _choice(step: Step) -> Mark | None:
    """Return the place of what says who takes a step: its `ranks`, else its `group`."""
    if step.ranks is not None:
        return step.ranks.mark
    group = step.arguments.get("group")
    return None if group is None else group.mark


def _is_own(scenario: Scenario, mark: Mark) -> bool:
    """Return whether a place is in the scenario's own file: a used part fits other worlds too."""
    return mark.source.path == scenario.source.path


def _keys_of(expect: Expectation, index: int, label: str, whole: Mark) -> Iterator[_Unit]:
    for value in expect.values:
        name, place = value.key.text.strip(), value.mark or whole
        for unit in _keys(value.wanted, index, label, name, place):
            yield replace(unit, compared=True)
    yield from _keys(expect.raises, index, label, "raises", whole)
    yield from _keys(expect.elapsed, index, label, "elapsed", whole)


def _keys(stated: object, index: int, label: str, name: str, whole: Mark) -> Iterator[_Unit]:
    if not isinstance(stated, PerRank):
        return
    for branch, (selector, _) in enumerate(stated.branches):
        yield _Unit(
            mark=selector.mark or whole,
            whole=whole,
            index=index,
            label=label,
            name=name,
            form=stated,
            branch=branch,
        )


def _name(step: Step) -> str:
    return step.name or (step.operation.name if step.operation else "expect")


# ---------------------------------------------------------------------------- what traces show


def _find_taken(case: Case, wanted: set[int]) -> set[int]:
    """Return which of the wanted steps some rank took; looks no further than needed."""
    taken: set[int] = set()
    for trace in (case.prediction, case.run, *case.orders):
        walks = trace.walks() if trace is not None else ()
        for index in (index for walk in walks for index, _ in walk):
            if index in wanted and index not in taken:
                taken.add(index)
                if len(taken) == len(wanted):
                    return taken
    return taken


def _is_seen(unit: _Unit, taken: set[int], chosen: set[int]) -> bool:
    if unit.form is None:
        return unit.index in taken
    return id(unit.form.branches[unit.branch][1]) in chosen


def _is_certain(case: Case) -> bool:
    """Return whether the predicted trace has every step that a rank takes in any schedule.

    Then what it lacks is not reached. In a trace that ends in a deadlock a step may be missing
    because no rank came so far.
    """
    predicted = case.prediction
    races = any(diagnosis.name == "message_race" for diagnosis in predicted.diagnoses)
    ended = predicted.outcome == "completes" and "completes" in case.final.ends
    return ended and not predicted.open and not predicted.limits and not races


# ---------------------------------------------------------------------------- who is selected


def _find_unreached(case: Case, left: list[_Unit]) -> list[_Unit]:
    """Return the units that no other case of the file reaches either.

    `matrix: {n: [2, 4]}` with a key `3` is right: the case of 4 ranks reaches it.
    """
    scenario = case.scenario
    if not left or not scenario.constants:
        return left
    if case.cases_of is None:
        return []
    for other in case.cases_of(scenario, case.limits or DEFAULT):
        if not left:
            break
        places = {unit.place for unit in left}
        units = [each for each in _list_units(other) if each.place in places]
        try:
            reached = _Reach(plan(other), units, certain=False).places()
        except ScenarioError:
            return []
        left = [unit for unit in left if unit.place not in reached]
    return left


def _list_units(scenario: Scenario) -> list[_Unit]:
    finals = (scenario.expect, *scenario.expect.merged.values())
    return [unit for final in finals for unit in _units(scenario, final)]


class _BeyondLooksError(Exception):
    """There is more to evaluate than is worth it."""


class _Reach:
    """Finds which of some units a rank is selected for, without running anything.

    A selector that reads what a rank holds is `None`: unknown. With `certain`, `taken` are all the
    steps that any rank takes, and what a tensor decides was seen already; without, it counts as
    reached.
    """

    def __init__(
        self,
        plan_: Plan,
        units: Iterable[_Unit],
        *,
        certain: bool,
        taken: set[int] | None = None,
    ) -> None:
        self._plan = plan_
        self._certain = certain
        self._taken = taken if certain else None
        self._left: dict[int, list[_Unit]] = {}
        for unit in units:
            self._left.setdefault(unit.index, []).append(unit)
        self._found: set[Place] = set()
        scenario = plan_.scenario
        self._lines = dict(_lines(scenario.steps, ()))
        self._needed = self._list_steps_to()
        dynamic = {name for step in steps_of(scenario.steps) for name in _list_created(step)}
        self._created = dynamic - plan_.names.keys()
        self._unknown = {*scenario.tensors, *scenario.objects, *plan_.introduced, *self._created}
        self._unknown |= plan_.numbers
        self._looks = 0

    def places(self) -> set[Place]:
        """Return the places that some rank reaches."""
        try:
            for rank in range(self._plan.world_size):
                if not self._left:
                    break
                self._follow(Process(self._plan, rank, numpy_arrays(), initialise=False))
        except _BeyondLooksError:
            self._found |= {unit.place for units in self._left.values() for unit in units}
        return self._found

    def _follow(self, process: Process) -> None:
        if AT_END in self._left:
            self._reach(process, AT_END, selected=True)
        self._walk(process, self._plan.scenario.steps, sure=True)

    def _walk(self, process: Process, steps: tuple[Step, ...], *, sure: bool) -> None:
        """Go through steps; not `sure` where a tensor decided whether the rank comes here."""
        for step in steps:
            if step.index not in self._needed:
                continue
            self._looks += 1
            if self._looks > MOST_LOOKS:
                raise _BeyondLooksError
            if step.variable is not None:
                self._loop(process, step, sure=sure)
            else:
                selected = self._takes(process, step)
                self._reach(
                    process, step.index, selected=selected if sure or not selected else None
                )

    def _list_steps_to(self) -> set[int]:
        """Return the indexes of the steps that are left, and of the loops around them."""
        return {each for index in self._left for each in self._lines.get(index, ())}

    def _loop(self, process: Process, step: Step, *, sure: bool) -> None:
        """Go through a loop with each value of its variable.

        Where a tensor decides how often it turns, its body is gone through once with a variable
        that is unknown: what depends on it may be reached.
        """
        selected = True if step.ranks is None else self._selects(process, step.ranks)
        if selected is False:
            return
        variable = step.variable or ""
        if self._is_unknown(step.over):
            known = variable not in self._unknown
            self._unknown.add(variable)
            self._walk(process, step.body, sure=False)
            if known:
                self._unknown.discard(variable)
            return
        try:
            values = process.find_turns(step.over, variable, step.mark)
        except (ScenarioError, *CANNOT_COMPUTE):
            values = []
        for value in values:
            if step.index not in self._needed:
                return
            process.scope[variable] = value
            self._walk(process, step.body, sure=sure and selected is True)

    def _takes(self, process: Process, step: Step) -> bool | None:
        """Return whether the rank is selected for a step; None where a tensor decides.

        Without `ranks:` the members of the step's group take it. Of a group that a step creates it
        is not known who that is before the program runs.
        """
        if step.ranks is not None:
            return self._selects(process, step.ranks)
        if step.operation is None:
            return True
        group = step.arguments.get("group")
        if isinstance(group, Constant) and group.value in self._created:
            return None
        try:
            named = process.group(step.operation.group_of(process, step.arguments))
        except (ScenarioError, *CANNOT_COMPUTE):
            return None
        return named.group_rank(process.rank) >= 0

    def _reach(self, process: Process, index: int, *, selected: bool | None) -> None:
        if selected is False:
            return
        units = self._left[index]
        left = [unit for unit in units if not self._is_reached(process, unit, selected=selected)]
        self._found |= {unit.place for unit in units if unit not in left}
        if left:
            self._left[index] = left
        else:
            del self._left[index]
            self._needed = self._list_steps_to()

    def _is_reached(self, process: Process, unit: _Unit, *, selected: bool | None) -> bool:
        """Return whether a rank that may take a unit's step reaches the unit."""
        if self._taken is not None and unit.index not in {AT_END, *self._taken}:
            # the trace says that no rank does: a branch that data do not take needs no warning
            return selected is None and not unit.expects
        if unit.form is None:
            return True
        answer = self._chooses(process, unit.form, unit.branch)
        return (not (self._certain and unit.compared)) if answer is None else answer

    def _chooses(self, process: Process, form: PerRank[Any], branch: int) -> bool | None:
        """Return whether a key is the first that selects this rank."""
        for at, (selector, _) in enumerate(form.branches):
            selected = self._selects(process, selector)
            if selected is None or at == branch:
                return selected
            if selected:
                return False
        return False

    def _selects(self, process: Process, selector: Selector) -> bool | None:
        if self._is_unknown(selector.form):
            return None
        try:
            return process.selects(selector)
        except (ScenarioError, *CANNOT_COMPUTE):
            return None

    def _is_unknown(self, form: Form | None) -> bool:
        for each in expressions_in(form):
            words = each.names | each.calls | each.before
            asked = {*re.findall(r"\w+", each.text)} & self._created
            if asked or words & self._unknown:
                return True
        return False


def _lines(
    steps: tuple[Step, ...], loops: tuple[int, ...]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each step's index, with it and those of the loops around it."""
    for step in steps:
        yield step.index, (*loops, step.index)
        yield from _lines(step.body, (*loops, step.index))


def _list_created(step: Step) -> Iterator[str]:
    """Yield the names that a step gives to groups."""
    if isinstance(step.operation, GroupCreation):
        for param in step.operation.params:
            name = step.arguments.get(param.name)
            if param.kind == "name" and isinstance(name, Constant):
                yield str(name.value)


# ---------------------------------------------------------------------------- groups made too late


def _warn_of_early_use(case: Case) -> set[int]:
    """Warn of each step whose group only a later step creates; return their indexes.

    A rank is in no such group yet and skips the step, as it does on a group of others: nothing
    fails, and nothing is tested.
    """
    steps, loops = case.order.steps, case.order.loops
    created: dict[str, list[Step]] = {}
    for step in steps.values():
        for name in _list_created(step):
            created.setdefault(name, []).append(step)
    found: set[int] = set()
    for index, step in sorted(steps.items()):
        group = step.arguments.get("group")
        if not isinstance(group, Constant) or group.value is None:
            continue
        name = str(group.value)
        if name in case.predicted.plan.names or name not in created:
            continue
        around = {loop.index for loop in loops[index]}
        if any(
            creation.index < index or any(loop.index in around for loop in loops[creation.index])
            for creation in created[name]
        ):
            continue
        found.add(index)
        case.warn(
            "group_before_creation",
            f"`{_name(step)}` uses the group {name}, which no step before it creates",
            step.mark,
            "move the `new_group` before the step",
        )
    return found


# -------------------------------------------------------------------------------------------------
# A slice that holds nothing, though its tensor does.
#
# Bounds in the wrong order, or beyond the end, raise nothing in Python: the step moves nothing.
# Only what is empty on every rank that takes the step is a mistake: `x[:rank]` on rank 0 is none.


def warn_of_empty_slices(case: Case) -> None:
    """Warn of each slice of a tensor that is empty wherever its step is taken."""
    plan_ = case.predicted.plan
    if plan_.world_size == 1:
        return
    steady = case.scenario.tensors.keys() - set(plan_.introduced)
    for step in steps_of(case.scenario.steps):
        forms = [*step.arguments.values(), *(step.expect.values if step.expect else ())]
        texts = {each.text: each.mark for form in forms for each in expressions_in(form)}
        texts |= {name: step.mark for name in step.arguments if "[" in name}
        for text, mark in texts.items():
            for part, name in _slices(text):
                if name in steady and _is_empty(case, step, part, name):
                    case.warn(
                        "empty_slice",
                        f"`{part}` is empty on every rank that takes the step, and `{name}` is not",
                        mark or step.mark,
                        "correct its bounds: a slice ends before its second one",
                    )


def _slices(text: str) -> Iterator[tuple[str, str]]:
    """Yield each slice of a name in an expression, and the name.

    >>> list(_slices("x[2:1] + y[0]"))
    [('x[2:1]', 'x')]
    """
    if "[" not in text or ":" not in text:
        return
    source = text.strip()
    for node in ast.walk(ast.parse(source, mode="eval")):
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            continue
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        part = ast.get_source_segment(source, node)
        if part is not None and any(isinstance(each, ast.Slice) for each in parts):
            yield part, node.value.id


def _is_empty(case: Case, step: Step, part: str, name: str) -> bool:
    """Whether a slice has no element on any rank that takes a step; False where it is not known.

    It is asked at the end of the trace: the tensor keeps its shape (`steady`), and `part` reads no
    other name than the rank holds.
    """
    predicted, taken = case.predicted, False
    try:
        asked = compile_expression(f"numel({part}) == 0 and numel({name}) > 0", step.mark)
        for rank in range(case.scenario.world_size):
            process = view_at_end(predicted, rank).process()
            if not asked.names <= process.scope.keys():
                return False
            empty = bool(process.evaluate(asked))
            found = predicted.rank(rank)
            takes = found is not None and any(each.index == step.index for each in found.events)
            if takes and not empty:
                return False
            taken = taken or takes
    except (ScenarioError, *CANNOT_COMPUTE):
        return False
    return taken
