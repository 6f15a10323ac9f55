"""One case before the judge: the three witnesses side by side, aligned rank by rank."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from runner.language.functions import numpy_arrays
from runner.problems import warning
from runner.scenario import RaiseSpec
from runner.trace import Diagnosis
from runner.verdict.memory import Memories
from runner.verdict.order import Moment, ProgramOrder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runner.forms import PerRank
    from runner.language.limits import Limits
    from runner.operations.entries import Undefined
    from runner.plan import Plan
    from runner.problems import Mark, Problem
    from runner.scenario import FinalExpectation, Scenario, Step, ValueExpectation
    from runner.trace import Event, Trace, Value

#: states in which what stands beside the step is asked
RETURNED = frozenset({"done", "raised"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One event of one trace, with what the rank held before and after it."""

    memories: Memories
    rank: int
    event: Event
    before: dict[str, Value]
    after: dict[str, Value]

    @property
    def returned(self) -> bool:
        """Whether the step returned or raised: it was not left blocked."""
        return self.event.state in RETURNED

    @property
    def moment(self) -> Moment:
        """Where the event stands in the program."""
        return self.memories.order.moment(self.event.index, self.event.iteration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One step taken by one rank, as the reference and the run have it; one may be missing."""

    rank: int
    step: Step
    predicted: Side | None
    observed: Side | None

    @property
    def event(self) -> Event:
        """The event, from whichever trace has it."""
        side = self.predicted or self.observed
        assert side is not None  # noqa: S101 -- an instance is made of one at least
        return side.event


@dataclass(slots=True, kw_only=True)
class Case:
    """The witnesses. `final` is what the author states for the end, on this backend.

    What a backend's own section states about values, or as an error or a crash, is a fact about
    that backend (an ability it lacks, a fault it has): only the run can contradict it.

    `general` is what the semantics make of the program on any backend: the prediction, unless the
    backend at hand is known to make something else of it.

    `taken` is the prediction for the order of arrival that the run took, where there are several.
    `reference` False switches the reference's own opinion off: only author and run are compared.
    `relied` collects what the judge learns on the way: which undefined values the author relies on.
    """

    scenario: Scenario
    final: FinalExpectation
    order: ProgramOrder
    predicted: Memories
    observed: Memories | None
    general: Trace
    taken: Memories | None = None
    reference: bool = True
    limits: Limits | None = None
    relied: list[Diagnosis] = field(default_factory=list)
    compared: int = 0
    notes: list[str] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def warn(self, code: str, message: str, mark: Mark | None, hint: str | None = None) -> None:
        """Add a warning: it changes no verdict, and a person should look at it."""
        self.warnings.append(warning(code, message, mark, hint))

    @property
    def prediction(self) -> Trace:
        """The predicted trace."""
        return self.predicted.trace

    @property
    def run(self) -> Trace | None:
        """The observed trace; None where nothing ran."""
        return self.observed.trace if self.observed else None

    @property
    def open(self) -> frozenset[str]:
        """The outcomes that a run may show in place of the predicted one.

        Where a backend was known to do otherwise, it may do what the semantics say as well.
        """
        opened = {*self.prediction.open, *self.general.open, self.general.outcome}
        return frozenset(opened - {self.prediction.outcome})

    @property
    def own_section(self) -> bool:
        """Whether the author has a section for this backend."""
        return self.final is not self.scenario.expect

    def own_value(self, expectation: ValueExpectation) -> bool:
        """Return whether a final value is stated for this backend alone."""
        return self.own_section and expectation not in self.scenario.expect.at_end.values

    @property
    def own_names(self) -> frozenset[str]:
        """The tensors about which this backend's section states values of its own."""
        if not self.own_section:
            return frozenset()
        own = (value for value in self.final.at_end.values if self.own_value(value))
        return frozenset().union(*(value.key.names for value in own))

    @property
    def own_outcome(self) -> bool:
        """Whether the stated outcome depends on what the backend can do, not on the semantics."""
        ends = set(self.final.ends)
        if "error" in ends and "unsupported" in _kinds(self.final.at_end.raises):
            return True
        own = self.own_section and ends != {*self.scenario.expect.ends}
        return own and bool(ends & {"error", "crash", "deadlock"})

    def forgives(self, value: Undefined) -> bool:
        """Return whether the author states why a value is undefined, so that only the run is asked.

        A value that is undefined without any mismatch (off a reduce's destination) is relied on
        under the diagnosis `undefined_read`.
        """
        return (value.diagnosis or "undefined_read") in self.final.diagnoses

    def rely(self, value: Undefined, prose: str, rank: int, event: Event | None) -> None:
        """Note that an expectation relies on a value that is undefined without any mismatch."""
        if value.diagnosis is None:
            self.relied.append(
                Diagnosis(
                    name="undefined_read",
                    prose=prose,
                    index=event.index if event else -1,
                    iteration=event.iteration if event else (),
                    ranks=(rank,),
                )
            )

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """What is wrong with the program, and with what the author relies on: one for each step."""
        found = list(self.prediction.diagnoses)
        number = max((each.finding for each in found), default=-1)
        together: dict[int, Diagnosis] = {}
        for each in self.relied:
            first = together.setdefault(each.index, each)
            ranks = tuple(sorted({*first.ranks, *each.ranks}))
            together[each.index] = replace(first, ranks=ranks)
        known = {each.index for each in found if each.name == "undefined_read"}
        own = [each for index, each in sorted(together.items()) if index not in known]
        numbered = (replace(each, finding=number + at) for at, each in enumerate(own, start=1))
        return (*found, *numbered)

    @property
    def orders(self) -> Sequence[Trace]:
        """What comes of each order of arrival; empty where there is one, or the author alone."""
        return self.prediction.orders if self.reference else ()

    def instances(self) -> Iterator[Instance]:
        """Yield every step beside which something is expected, on each rank that took it."""
        indexes = frozenset(
            step.index for step in self.order.steps.values() if step.expect is not None
        )
        if not indexes:
            return
        for rank in range(self.scenario.world_size):
            predicted = _by_instance(self.predicted, rank, indexes)
            observed = _by_instance(self.observed, rank, indexes) if self.observed else {}
            for key in dict.fromkeys((*predicted, *observed)):
                yield Instance(
                    rank=rank,
                    step=self.order.steps[key[0]],
                    predicted=predicted.get(key),
                    observed=observed.get(key),
                )


def _kinds(raises: PerRank[RaiseSpec] | RaiseSpec | None) -> set[str]:
    """Return every kind that is stated for any rank."""
    if raises is None:
        return set()
    if isinstance(raises, RaiseSpec):
        return set(raises.kinds)
    specs = [spec for _, spec in raises.branches]
    return {kind for spec in (*specs, raises.otherwise) if spec for kind in spec.kinds}


def _by_instance(memories: Memories, rank: int, indexes: frozenset[int]) -> dict[Occurrence, Side]:
    nth = Occurrences()
    return {
        nth(event): Side(memories=memories, rank=rank, event=event, before=before, after=after)
        for event, before, after in memories.fold(rank, indexes)
    }


#: step index, values of the loop variables, and which of equal ones
Occurrence: TypeAlias = tuple[int, tuple[int, ...], int]


class Occurrences:
    """Names a rank's events one after the other, so that equal loop values stay apart."""

    def __init__(self) -> None:
        """Begin before the first event."""
        self._counts: dict[tuple[int, tuple[int, ...]], int] = {}

    def __call__(self, event: Event) -> Occurrence:
        """Return the name of the next event."""
        name = (event.index, event.iteration)
        nth = self._counts.get(name, -1) + 1
        self._counts[name] = nth
        return (*name, nth)


def start(
    plan: Plan,
    predicted: Trace,
    observed: Trace | None,
    final: FinalExpectation,
    *,
    reference: bool,
    general: Trace | None = None,
    taken: Trace | None = None,
    limits: Limits | None = None,
) -> Case:
    """Lay the witnesses side by side; `general` is `predicted` where it is left out.

    `taken` is what is predicted of the order of arrival that the run took.
    """
    traces = (predicted,) if observed is None else (predicted, observed)
    order = ProgramOrder(plan.scenario.steps, traces)
    arrays = numpy_arrays(limits) if limits else numpy_arrays()
    expected = Memories(plan, predicted, order, arrays)
    return Case(
        scenario=plan.scenario,
        final=final,
        order=order,
        predicted=expected,
        observed=None if observed is None else Memories(plan, observed, order, arrays, expected),
        general=predicted if general is None else general,
        taken=None if taken is None else Memories(plan, taken, order, arrays),
        reference=reference,
        limits=limits,
    )
