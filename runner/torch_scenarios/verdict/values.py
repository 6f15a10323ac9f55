"""Stated and unstated values against both witnesses, at every step and at the end.

Values            what the author states: against the reference, and against the run
judge_orders      the same, in every other order in which messages can arrive
judge_agreement   what no one states: each tensor that a step stores into, reference against run
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import Clause, Mark
from torch_scenarios.expressions.values import Undefined, names_of
from torch_scenarios.model.scenario import Step, ValueExpectation
from torch_scenarios.model.tolerance import are_identical
from torch_scenarios.model.trace import Event, RankTrace, Trace, Value
from torch_scenarios.operations.placement import is_layout
from torch_scenarios.verdict.comparison import WantedValue, differences, differences_beyond
from torch_scenarios.verdict.conduct import GAVE_UP, find_outcome
from torch_scenarios.verdict.finding import (
    ComparedRun,
    Difference,
    Finding,
    Witness,
    blame,
    prose_of,
    ranks_do,
)
from torch_scenarios.verdict.witnesses import (
    Case,
    Memories,
    Occurrences,
    RankView,
    Side,
    UndefinedRead,
    view_at_end,
    view_of,
)

# -------------------------------------------------------------------------------------------------
# The reference against the run, whatever the author states: every step, every written tensor.
#
# Each rank is followed to its first divergence; what comes after it is its consequence.

#: the moment before step 1, as an event
BEFORE = Event(index=-1, label="the initial values")

Blamed = set[tuple[int, int, tuple[int, ...], str]]


class _Departure(Struct, kw_only=True):
    """One name at one step instance, over all ranks.

    A backend that sums wrongly does so on all ranks: that is one finding with a difference for
    each.
    """

    event: Event
    name: str
    #: whether it is held at the end of the program, though no step stored it
    stray: bool = False
    differences: list[Difference] = field(default_factory=list)


def judge_agreement(case: Case, blamed: Blamed) -> list[Finding]:
    """Return where the run departs from the reference; `blamed` names what is reported already.

    So no scenario passes vacuously: a file of steps alone, without `expect`, is compared value by
    value.
    """
    if case.observed is None or not case.reference:
        return []
    departures: dict[tuple[int, tuple[int, ...], str], _Departure] = {}
    conduct: dict[tuple[int, tuple[int, ...], str], list[tuple[int, Event]]] = {}
    late = _find_predicted_ends(case.prediction)
    for rank in range(case.scenario.world_size):
        predicted = (case.taken or case.predicted).rank(rank)
        observed = case.observed.rank(rank)
        if predicted is not None and observed is not None:
            _initial(case, rank, departures)
            found_ = _Found(departures=departures, conduct=conduct, blamed=blamed, late=late)
            _follow(case, predicted, observed, found_)
            _compare_strays(case, predicted, observed, found_)
    found = [_tell_departure(case, departure) for departure in departures.values()]
    return found + [_conduct_finding(case, key, entries) for key, entries in conduct.items()]


class _Found(Struct, frozen=True, kw_only=True):
    """What was found so far: values that differ, ranks that end otherwise, what is known."""

    departures: dict[tuple[int, tuple[int, ...], str], _Departure]
    conduct: dict[tuple[int, tuple[int, ...], str], list[tuple[int, Event]]]
    blamed: Blamed
    #: where a rank gives up on another that comes too late: who need not wait there may as well
    late: frozenset[tuple[int, tuple[int, ...]]]


def _find_predicted_ends(predicted: Trace) -> frozenset[tuple[int, tuple[int, ...]]]:
    """Return the steps at which a rank is predicted to end because it, or another, is late.

    In a `monitored_barrier` with a rank that does not come, rank 0 names it and raises; whether the
    others raise as well, or have left, is a matter of time.
    """
    ended = [rank.events[-1] for rank in predicted.ranks if rank.ending == "raised" and rank.events]
    return frozenset((event.index, event.iteration) for event in ended if _gave_up(event))


def _initial(
    case: Case, rank: int, departures: dict[tuple[int, tuple[int, ...], str], _Departure]
) -> None:
    """Compare what both executors made of the initial values, where the run states them."""
    assert case.observed is not None
    found = case.observed.rank(rank)
    expected = case.predicted.initial(rank)
    for name, got in (found.initial if found else {}).items():
        if name in expected and not is_layout(name):
            _compare(case, rank, BEFORE, name, (expected[name], got, None), departures)


def _follow(case: Case, predicted: RankTrace, observed: RankTrace, found: _Found) -> None:
    """Follow one rank to where the run first does otherwise.

    Events are matched by step, iteration and how often that was met: a rank that left a loop early
    has fewer of them. What comes after the first departure follows from it.
    """
    nth = Occurrences()
    seen = {nth(event): event for event in observed.events}
    nth = Occurrences()
    for event in predicted.events:
        other = seen.get(nth(event))
        if other is None:
            return
        forgiven = (event.index, event.iteration) in found.late and _gave_up(other)
        problem = None if forgiven else _departs(case, predicted, event, other)
        if problem is not None:
            key = (event.index, event.iteration, problem)
            found.conduct.setdefault(key, []).append((predicted.rank, other))
            return
        if event.state != "done" or other.state != "done":
            if event.state != other.state:
                return
            continue
        _compare_written(case, predicted.rank, event, other, found)


def _compare_written(case: Case, rank: int, event: Event, other: Event, found: _Found) -> None:
    """Compare every tensor that a step may have stored into, on one rank.

    The last of these is how far the value may be off because sums may be taken in another order.
    """
    for name, expected in event.writes.items():
        if name not in other.writes or name in case.own_names or is_layout(name):
            continue
        if (rank, event.index, event.iteration, name) in found.blamed:
            continue
        case.compared += 1
        got = other.writes[name]
        if not are_identical(expected, got):
            values = (expected, got, event.slack.get(name))
            _compare(case, rank, event, name, values, found.departures)


def _compare_strays(
    case: Case,
    predicted: RankTrace,
    observed: RankTrace,
    found: _Found,
) -> None:
    """Compare what a rank holds in the end though no step stored it there.

    torch says of each operation which tensors it stores into; the inputs of all others are read.
    A backend that uses them as room for its own sums leaves them changed, and a program that sends
    them once more is silently wrong:

        reduce_scatter   parts [1, 2]   mine [0] -> [3]
        (the end)        parts [1, 0]
    """
    if predicted.ending != "finished":
        return
    if any(each.name == "missing_wait" for each in case.prediction.diagnoses):
        return  # a call that is never waited for stores at any time
    final = predicted.final() if observed.strays else {}
    for name, got in observed.strays.items():
        if name in case.own_names or is_layout(name):
            continue
        expected = final.get(name)
        if expected is None or any(
            name == at[2] and not each.stray for at, each in found.departures.items()
        ):
            continue  # what is wrong from an earlier step on is told there
        event = _find_reader(case, predicted, name)
        _compare(
            case, predicted.rank, event, name, (expected, got, None), found.departures, stray=True
        )


def _find_reader(case: Case, predicted: RankTrace, name: str) -> Event:
    """Return the first step since the last one that stored into a name that is given it."""
    found = None
    for event in predicted.events:
        step = case.order.steps.get(event.index)
        if name in event.writes:
            found = None
        elif found is None and step is not None and _mentions(step, name):
            found = event
    return found or Event(index=-1, label="the end")


def _mentions(step: Step, name: str) -> bool:
    return any(name in names_of(form) for form in step.arguments.values())


def _compare(
    case: Case,
    rank: int,
    event: Event,
    name: str,
    values: tuple[object, object, object],
    departures: dict[tuple[int, tuple[int, ...], str], _Departure],
    *,
    stray: bool = False,
) -> None:
    """Note where a value of a run is not the reference's; nothing is asked of an undefined one."""
    expected, got, slack = values
    if _is_undefined(expected):
        return
    place, wanted = (rank, event, name), WantedValue(value=expected, strict=True)
    off = differences_beyond(case.prediction, place, wanted, got, slack)
    if off:
        key = (event.index, event.iteration, name)
        known = departures.setdefault(key, _Departure(event=event, name=name, stray=stray))
        known.differences.extend(off)


def _is_undefined(value: object) -> bool:
    if isinstance(value, list):
        return any(_is_undefined(item) for item in value)
    return isinstance(value, Undefined)


def _departs(case: Case, predicted: RankTrace, event: Event, other: Event) -> str | None:
    """Return how an observed event contradicts its prediction; None where it may be so."""
    opened = set(case.open)
    if case.own_outcome:
        opened = opened | {*case.final.ends}
    if (event.index, event.iteration) in predicted.may_block:
        opened = opened | {"deadlock"}
    if event.state == "possibly_blocked" or other.state == "running":
        return None
    if event.state == "done":
        return _departs_from_done(other, opened)
    if event.state == "blocked":
        if other.state == "done" and "completes" not in opened:
            return "finished what no correct implementation could let pass"
        return None
    if event.state == "raised":
        return _departs_from_raised(event, other, opened)
    return None


def _gave_up(other: Event) -> bool:
    return other.failure is not None and not GAVE_UP.isdisjoint(other.failure.kinds)


def _departs_from_done(other: Event, opened: set[str]) -> str | None:
    """Return how a rank departs that was to pass a step: it raised, or it hangs."""
    if other.state == "raised" and other.failure and not opened & {"error", "deadlock", "crash"}:
        words = other.failure.message.strip().splitlines()
        said = f": {words[0]}" if words else ""
        return f"raised {' or '.join(other.failure.kinds)}, which nothing explains{said}"
    if other.state == "blocked" and "deadlock" not in opened:
        return "hangs where nothing should block it"
    return None


def _departs_from_raised(event: Event, other: Event, opened: set[str]) -> str | None:
    """Return how a rank departs that was to raise: it returned, hangs, or raised another kind."""
    kinds = set(event.failure.kinds) if event.failure else set()
    if other.state == "done" and "completes" not in opened:
        return f"returned, where it should raise {' or '.join(sorted(kinds))}"
    if other.state == "blocked" and "deadlock" not in opened and not kinds & GAVE_UP:
        return f"hangs, where it should raise {' or '.join(sorted(kinds))}"
    if other.state == "raised" and other.failure and kinds and "error" not in opened:
        raised = set(other.failure.kinds)
        if not raised & kinds:
            return f"raised {' or '.join(sorted(raised))}, expected {' or '.join(sorted(kinds))}"
    return None


def _tell_departure(case: Case, departure: _Departure) -> Finding:
    step = case.order.steps.get(departure.event.index)
    against = " (against the reference)"
    if departure.stray:
        against = " in the end, though no step stores into it"
    return Finding(
        witness="backend",
        code=departure.differences[0].code,
        prose=prose_of(departure.name, departure.differences) + against,
        mark=(step.mark if step else None) or case.scenario.mark,
        ranks=tuple(sorted({difference.rank for difference in departure.differences})),
        label=departure.event.label,
        index=departure.event.index,
        iteration=departure.event.iteration,
        name=departure.name,
        differences=tuple(departure.differences),
    )


def _conduct_finding(
    case: Case, key: tuple[int, tuple[int, ...], str], entries: list[tuple[int, Event]]
) -> Finding:
    index, iteration, problem = key
    step = case.order.steps.get(index)
    ranks = tuple(rank for rank, _ in entries)
    return Finding(
        witness="backend",
        code="conduct_differs",
        prose=ranks_do(ranks, problem),
        mark=(step.mark if step else None) or case.scenario.mark,
        ranks=ranks,
        label=entries[0][1].label,
        index=index,
        iteration=iteration,
    )


# -------------------------------------------------------------------------------------------------
# The author's values against the reference's and the run's: beside every step, and at the end.


class _Group(Struct, kw_only=True):
    """Findings on one expectation from one witness: the first instance whole, others counted.

    An expectation in a loop of 1,000 turns that is wrong in each is one finding, with 999 more.
    """

    label: str | None
    index: int
    iteration: tuple[int, ...]
    expectation: ValueExpectation
    witness: Witness
    against: ComparedRun
    mark: Mark | None = None
    differences: list[Difference] = field(default_factory=list)
    others: set[tuple[int, ...]] = field(default_factory=set)


class Values:
    """Judges the values of a case, and collects what differs.

    author against reference   author against run   who is alone
    equal                      equal                no one
    differ                     differ               the expectation
    equal                      differ               the backend
    differ                     equal                the reference
    differ                     (no run)             the expectation
    """

    def __init__(self, case: Case) -> None:
        """Begin with nothing found."""
        self.case = case
        self.groups: dict[tuple[int, int, Witness], _Group] = {}
        #: (rank, step index, iteration, name) that a finding blames on the backend already
        self.blamed: set[tuple[int, int, tuple[int, ...], str]] = set()
        #: what came of each expectation at each instance: by step, iteration and rank
        self.asked: dict[_Asked, tuple[_Place, list[Difference]]] = {}

    def judge(self) -> list[Finding]:
        """Return the findings on all values that the author states."""
        for instance in self.case.instances(lambda expect: bool(expect.values)):
            expect = instance.step.expect
            assert expect is not None
            raises = expect.raises is not None
            views = (
                _view(instance.predicted, raises=raises),
                _view(instance.observed, raises=raises),
            )
            if views == (None, None):
                continue
            for expectation in expect.values:
                self._ask(instance.rank, expectation, *views)
        self._judge_end()
        return [_make_finding(group) for group in self.groups.values()]

    def _judge_end(self) -> None:
        """Ask for the values at the end, of each witness who ended as the author states.

        Where one did not, the outcome is the finding, and values are its consequence.
        """
        values, stated = self.case.final.at_end.values, self.case.final.ends
        predicted = self.case.predicted if self.case.prediction.outcome in stated else None
        observed = self.case.observed if find_outcome(self.case) in stated else None
        for rank in range(self.case.scenario.world_size) if values else ():
            mine = view_at_end(predicted, rank) if predicted else None
            seen = view_at_end(observed, rank) if observed and _lives(observed, rank) else None
            for expectation in values:
                self._ask(rank, expectation, mine, seen)

    # ------------------------------------------------------------------ one value on one rank

    def _ask(
        self,
        rank: int,
        expectation: ValueExpectation,
        predicted: RankView | None,
        observed: RankView | None,
    ) -> None:
        """Compare one expectation on one rank with both witnesses, and note who is alone.

        What is wanted is evaluated in the reference's memory, and held against both: `before(x, 0)`
        of the run could be wrong in the way in which the result is.
        """
        event = next((v.event for v in (predicted, observed) if v), None)
        place = _Place(rank=rank, event=event, expectation=expectation)
        shared = _opinion(predicted, expectation)
        slack = None
        if predicted is not None and predicted.event is not None:
            slack = predicted.event.slack.get(expectation.key.text)
        asked = self.case.reference and not self.case.own_value(expectation)
        mine = self._compare(predicted, expectation, shared) if asked else None
        seen = self._compare(observed, expectation, shared, slack)
        self.case.compared += (mine is not None) + (seen is not None)
        view = predicted or observed
        if view is not None and (found := mine or seen):
            place = replace(place, mark=view.place_of(expectation, found[0].code))
        if mine is not None:
            self.asked[(id(expectation), *place.instance, rank)] = place, mine
        for witness, found in _blame(mine, seen, ran=observed is not None):
            self._add(place, witness, "run" if mine is None else "reference", found)

    def _compare(
        self,
        view: RankView | None,
        expectation: ValueExpectation,
        shared: WantedValue | None,
        slack: Value = None,
    ) -> list[Difference] | None:
        """Compare one trace with the author; None where it has nothing to say.

        Undefined values come in three ways: a read raises one while what is wanted is computed, a
        name holds one, or the wanted value is one itself. All of these are judged apart from
        numbers: what the author states of a value that is anything is a mistake of its own.
        """
        if view is None:
            return None
        try:
            wanted = view.find_wanted(expectation) if shared is None else shared
            if wanted is None:
                return None
            wanted, got = view.find(expectation.key, wanted)
        except UndefinedRead as read:
            return self._judge_undefined(view, read.value, read.name, expectation.key.text)
        if wanted.has_value and wanted.value is None and got is None:
            return []
        if isinstance(got, Undefined) and got.measure is not None and not wanted.has_value:
            got = got.measure
        for value in (wanted.value, got):
            if isinstance(value, Undefined):
                return self._judge_undefined(
                    view, value, expectation.key.text, expectation.key.text
                )
        if view.memories is not self.case.observed:
            return differences(view.rank, wanted, got, slack)
        place = view.rank, view.event, expectation.key.text
        return differences_beyond(self.case.prediction, place, wanted, got, slack)

    def _judge_undefined(
        self, view: RankView, value: Undefined, name: str, key: str
    ) -> list[Difference] | None:
        """Return the difference of a value that an operation leaves undefined; or None.

        That is a `reduce` off its destination: MPI and torch say nothing of what its buffer then
        holds. The program gets the diagnosis `undefined_read`.
        """
        if value.diagnosis == "message_race" and self.case.orders:
            return None  # judge_orders asks every order
        text = f"is undefined after {value.cause}: no value may be relied on"
        if name != key:
            text = f"relies on {name}, which is undefined after {value.cause}"
        self.case.rely(value, f"on rank {view.rank} {key} {text}", view.rank, view.event)
        if self.case.forgives(value):
            return None
        return [
            Difference(
                rank=view.rank, code="undefined_read", message=text, expected=None, got=value
            )
        ]

    def _add(
        self, place: _Place, witness: Witness, against: ComparedRun, found: list[Difference]
    ) -> None:
        index = place.event.index if place.event else -1
        iteration = place.event.iteration if place.event else ()
        key = (index, id(place.expectation), witness)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = _Group(
                label=place.event.label if place.event else None,
                index=index,
                iteration=iteration,
                expectation=place.expectation,
                witness=witness,
                against=against,
                mark=place.mark,
            )
        if group.iteration == iteration:
            group.differences += found
        else:
            group.others.add(iteration)
        if witness != "expectation":
            self.blamed.add((place.rank, index, iteration, place.expectation.key.text))


class _Place(Struct, frozen=True, kw_only=True):
    """One expectation on one rank at one event (None: the end), and where it is written."""

    rank: int
    event: Event | None
    expectation: ValueExpectation
    #: of what is wanted, where it is not there
    mark: Mark | None = None

    @property
    def instance(self) -> tuple[int, tuple[int, ...]]:
        """The step and its iteration; the end is -1."""
        return (self.event.index, self.event.iteration) if self.event else (-1, ())


#: an expectation, a step, its iteration, a rank
_Asked: TypeAlias = tuple[int, int, tuple[int, ...], int]


def judge_orders(case: Case, known: Values) -> list[Finding]:
    """Return the stated values that do not hold in every order of arrival.

        rank 0   recv from anyone -> x ; recv from anyone -> y      expect: {x: [1]}
        ranks 1 and 2 send [1] and [2]

    holds where rank 1's message comes first, and a run may happen to pass: `holds_in_some_orders`.
    `known` are those of the prediction itself: what holds or fails in all orders alike.
    """
    failing: dict[_Asked, tuple[_Place, list[Difference], tuple[str, ...]]] = {}
    holding: set[_Asked] = set()
    for order in case.orders:
        predicted = Memories(case.predicted.plan, order, case.order, case.predicted.arrays)
        values = Values(
            replace(case, predicted=predicted, observed=None, relied=[], notes=[], compared=0)
        )
        values.judge()
        case.predicted.chosen |= predicted.chosen
        for asked, (place, differences_) in values.asked.items():
            if asked in known.asked:
                continue
            if differences_:
                failing.setdefault(asked, (place, differences_, order.because))
            else:
                holding.add(asked)
    case.compared += len(failing.keys() | holding)
    groups: dict[tuple[int, int], list[_Asked]] = {}
    for asked in sorted(failing, key=lambda each: each[1:]):
        groups.setdefault((asked[0], asked[1]), []).append(asked)
    return [_report_order(failing, holding, group) for group in groups.values()]


def _report_order(
    failing: dict[_Asked, tuple[_Place, list[Difference], tuple[str, ...]]],
    holding: set[_Asked],
    group: list[_Asked],
) -> Finding:
    """Return the finding on one expectation, at the first instance at which it fails.

    `failing` and `holding` are the instances that fail, or hold, in some order; one that is in both
    is `holds_in_some_orders`.
    """
    place, _, because = failing[group[0]]
    index, iteration = place.instance
    here = [asked for asked in group if asked[2] == iteration]
    key, found = place.expectation.key.text, [each for asked in here for each in failing[asked][1]]
    some = any(asked in holding for asked in group)
    prose = prose_of(key, found)
    return Finding(
        witness="expectation",
        code="holds_in_some_orders" if some else found[0].code,
        prose=f"{key} holds in some orders of arrival only: in another, {prose}" if some else prose,
        notes=tuple(map(Clause, because)),
        mark=place.mark or place.expectation.mark or place.expectation.key.mark,
        ranks=tuple(sorted({each.rank for each in found})),
        label=place.event.label if place.event else None,
        index=index,
        iteration=iteration,
        name=key,
        differences=tuple(found),
        more=len({asked[2] for asked in group}) - 1,
    )


def _view(side: Side | None, *, raises: bool) -> RankView | None:
    """Return the view after a step that returned, or raised as something beside it states."""
    if side is None or not (side.event.state == "done" or (raises and side.returned)):
        return None
    return view_of(side)


def _opinion(view: RankView | None, expectation: ValueExpectation) -> WantedValue | None:
    """Return what the author wants, evaluated in the reference's memory; None where it cannot be.

    `unchanged` is asked of each trace by itself.
    """
    if view is None:
        return None
    try:
        wanted = view.find_wanted(expectation)
    except UndefinedRead:
        return None
    if wanted is None or wanted.unchanged or isinstance(wanted.value, Undefined):
        return None
    return wanted


def _lives(observed: Memories, rank: int) -> bool:
    """Whether a rank of a run is there, and its process did not end."""
    found = observed.rank(rank)
    return found is not None and found.died is None


def _blame(
    mine: list[Difference] | None, seen: list[Difference] | None, *, ran: bool
) -> list[tuple[Witness, list[Difference]]]:
    """Return who is alone; `mine` is author against reference, `seen` author against run."""
    if mine is None:
        return [("expectation", seen)] if seen else []
    witness = blame(predicted=bool(mine), observed=None if seen is None or not ran else bool(seen))
    match witness:
        case None:
            return []
        case "backend":
            return [(witness, seen or [])]
        case "reference":
            return [(witness, [_turn(difference) for difference in mine])]
    return [(witness, mine)]


def _turn(difference: Difference) -> Difference:
    """Return a difference from the reference's point of view: it is the one that is off."""
    return replace(difference, message=f"in the reference {difference.message}")


def _make_finding(group: _Group) -> Finding:
    ranks = tuple(sorted({difference.rank for difference in group.differences}))
    first = group.differences[0]
    return Finding(
        witness=group.witness,
        code=first.code,
        prose=prose_of(group.expectation.key.text, group.differences),
        mark=group.mark or group.expectation.mark or group.expectation.key.mark,
        ranks=ranks,
        label=group.label,
        index=group.index,
        iteration=group.iteration,
        name=group.expectation.key.text,
        differences=tuple(group.differences),
        more=len(group.others),
        against=group.against,
    )
