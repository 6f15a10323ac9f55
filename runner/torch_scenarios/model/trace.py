"""The stage `Trace`: what happened, on which rank, when, with what result.

Both executors give one, the reference a predicted and the launch an observed one, in the same
terms: values are NumPy arrays (with ml_dtypes for bfloat16 and float8), times are seconds since
the scenario began on that rank. Who reads a trace cannot tell, and need not know, where it is from.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, overload

from msgspec import Struct, field
from msgspec.structs import force_setattr

from torch_scenarios.errors import Clause, Compared, Problem, sentence_of
from torch_scenarios.model.needs import Needs
from torch_scenarios.model.traffic import Traffic
from torch_scenarios.model.traits import variant_of
from torch_scenarios.operations.base import IssuedCall

#: an array, a list of arrays, plain objects, or :class:`torch_scenarios.operations.base.Undefined`
Value: TypeAlias = Any


class Failure(Struct, frozen=True, kw_only=True):
    """What a call raised: a kind of :data:`~torch_scenarios.vocabulary.RAISE_KINDS`, its words.

    In a predicted trace `kinds` are all the kinds that a correct backend may raise here, and the
    words are the analysis's own unless the error is the program's `own`: then any run says them.
    """

    kinds: tuple[str, ...]
    message: str = ""
    own: bool = False


class Event(Struct, frozen=True, kw_only=True):
    """One step taken by one rank.

    `index` and `iteration` name the instance of the step, the same on every rank. `state` is
    `done`, `raised`, `blocked` (for sure, or as observed), `possibly_blocked` (predicted only: the
    semantics leave it open) or `running` (observed: busy with something that waits for no other
    rank). `writes` are the values, right after the step, of the tensors that it may have stored
    into; `slack` how far an observed element may be from the predicted one because the order of a
    reduction is open (arrays of absolute differences). `observed` are the values of the step's
    expectation keys that are expressions, by their text, and the numbers that are named there.
    `end_s` is None where it never returned. On a device, `complete_s` is when the device was done.
    """

    index: int
    label: str
    iteration: tuple[int, ...] = ()
    state: str = "done"
    start_s: float = 0.0
    end_s: float | None = None
    complete_s: float | None = None
    failure: Failure | None = None
    writes: Mapping[str, Value] = field(default_factory=dict)
    slack: Mapping[str, Value] = field(default_factory=dict)
    observed: Mapping[str, Value] = field(default_factory=dict)
    #: the collective calls of a step that makes several; None where nothing listened
    said: tuple[IssuedCall, ...] | None = None


#: the index and the iteration of a step instance
Place: TypeAlias = tuple[int, tuple[int, ...]]


class Events(Sequence[Event]):
    """The events of one rank, in program order: those taken together with others, then its `own`.

    A sequence like any other. Where ranks were taken together what they did is kept in columns
    (:mod:`torch_scenarios.reference.vector.record`), and an event is made when it is looked at: a
    large program has millions. Who needs a few of many asks the :class:`RankTrace` or the
    :class:`Trace`, which ask the methods below: these make no event that is not wanted.
    """

    #: how many events are before its own
    past = 0

    def __init__(self, own: Iterable[Event] = ()) -> None:
        """Begin with these of its events."""
        self._own = list(own)

    @property
    def own(self) -> Sequence[Event]:
        """The events after those that were taken together."""
        return self._own

    def together(self) -> Iterator[Event]:
        """Yield the events before its own."""
        return iter(())

    # ------------------------------------------------------------------ a sequence

    def __len__(self) -> int:
        """Return how many steps the rank took."""
        return self.past + len(self._own)

    def __iter__(self) -> Iterator[Event]:
        """Yield the events in order."""
        yield from self.together()
        yield from self._own

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, at: int | slice) -> Event | tuple[Event, ...]:
        """Return one event, or some; its events are found at once."""
        places = range(len(self))[at]
        if isinstance(places, int):
            return self._one(places)
        if not places or min(places[0], places[-1]) >= self.past:
            return tuple(self._own[place - self.past] for place in places)
        if len(places) == 1:
            return (self._one(places[0]),)
        wanted = set(places)
        made = {place: event for place, event in enumerate(self) if place in wanted}
        return tuple(made[place] for place in places)

    def _one(self, at: int) -> Event:
        if at >= self.past:
            return self._own[at - self.past]
        return next(islice(self.together(), at, None))

    def __eq__(self, other: object) -> bool:
        """Compare by value."""
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the events themselves."""
        return Events, (list(self),)

    # ------------------------------------------------------------------ a log

    def append(self, event: Event) -> None:
        """Add an event."""
        self._own.append(event)

    def copy(self) -> Events:
        """Return the same events, to be added to apart."""
        return Events(self._own)

    def __setitem__(self, at: int, event: Event) -> None:
        """Replace one of its events."""
        self._own[at - self.past] = event

    # ------------------------------------------------------------------ what is asked for

    @property
    def stores(self) -> bool:
        """Whether some step, on this rank or another, may have stored into something."""
        return any(event.writes for event in self._own)

    def final(self) -> dict[str, Value]:
        """Return what its steps left in the names that they may have stored into."""
        held: dict[str, Value] = {}
        for event in self._own:
            held.update(event.writes)
        return held

    def program(self) -> Iterator[Place]:
        """Yield the steps that any rank took together with others, in program order.

        The same for all ranks of a trace.
        """
        return iter(())

    def places(self) -> Sequence[Place]:
        """Return the step instances that the rank took together with others.

        It is one list for all ranks that took the same.
        """
        return ()

    def changes(self, name: str) -> Iterator[tuple[int, tuple[int, ...], Value]]:
        """Yield index and iteration of the events that write a name, and what it holds then."""
        for event in self._own:
            if name in event.writes:
                yield event.index, event.iteration, event.writes[name]

    def visit(
        self, indexes: frozenset[int], initial: Mapping[str, Value]
    ) -> Iterator[tuple[Event, dict[str, Value], dict[str, Value]]]:
        """Yield the events at these steps with what the rank held before and after each.

        `initial` is what it held before its own events. Something must be expected beside the
        steps: of others it need not be kept.
        """
        held = dict(initial)
        for event in self._own:
            before = dict(held) if event.index in indexes else held
            held.update(event.writes)
            if event.index in indexes:
                yield event, before, dict(held)


class RankTrace(Compared, frozen=True, kw_only=True):
    """One rank: what it held before step 1, its events in program order, and how it ended.

    `ending` is `finished`, `blocked`, `possibly_blocked`, `raised` (an exception that no step
    expected) or `died` (`died` then says how: `SIGABRT`, `exit 1`). In a predicted trace
    `may_block` are further places (index, iteration) where a correct backend may leave the rank
    stuck because the semantics leave it open: a broadcast's source whose leaf is absent. `late_s`
    (observed only) is how many seconds after the first rank this one began: the ranks start
    together, but not at the same instant.

    `links` (predicted only) names, by the position of an event, the matches in which its call took
    part, alike on every rank that met there: `world:3` is the collective at position 3 of the group
    `world`, `world:0>1#7:2` the message at position 2 from rank 0 to rank 1 with tag 7,
    `new_group:0` a creation. A receive that met no message has a `?` before its position.
    """

    apart = ("_log",)

    rank: int
    initial: Mapping[str, Value] = field(default_factory=dict)
    events: Sequence[Event] = ()
    ending: str = "finished"
    died: str | None = None
    late_s: float = 0.0
    may_block: tuple[tuple[int, tuple[int, ...]], ...] = ()
    #: what `let` has named by the end
    numbers: Mapping[str, Value] = field(default_factory=dict)
    #: observed only: what names hold in the end that hold otherwise than after the last step that
    #: may have stored into them: something else stored there
    strays: Mapping[str, Value] = field(default_factory=dict)
    links: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    _log: Events = field(default_factory=Events)

    def __post_init__(self) -> None:
        """Let events that are a plain sequence answer what is asked of them."""
        events = self.events if isinstance(self.events, Events) else Events(self.events)
        force_setattr(self, "_log", events)

    @property
    def own(self) -> Sequence[Event]:
        """The events after those that were taken together with other ranks."""
        return self._log.own

    @property
    def stores(self) -> bool:
        """Whether some step may have stored into something."""
        return self._log.stores

    def final(self) -> dict[str, Value]:
        """Return what the rank holds in the end, as far as the trace tells."""
        return {**self.initial, **self._log.final()}

    def program(self) -> Iterator[Place]:
        """Yield the steps that any rank took together with others, in program order."""
        return self._log.program()

    def changes(self, name: str) -> Iterator[tuple[int, tuple[int, ...], Value]]:
        """Yield index and iteration of the events that write a name, and what it holds then."""
        return self._log.changes(name)

    def visit(
        self, indexes: frozenset[int]
    ) -> Iterator[tuple[Event, dict[str, Value], dict[str, Value]]]:
        """Yield the events at these steps with what the rank held before and after each.

        Something must be expected beside the steps: of others it need not be kept.
        """
        return self._log.visit(indexes, self.initial)


class WaitEdge(Struct, frozen=True, kw_only=True):
    """An edge of the wait-for graph: rank `waiter`, in `label`, cannot move before `peer` does.

    `because` says in a phrase what it waits for: `to receive`, `to enter all_reduce`.
    """

    waiter: int
    peer: int
    label: str
    index: int
    because: str
    place: str = ""
    sure: bool = True


class Diagnosis(Struct, frozen=True, kw_only=True):
    """What is wrong with a program: its name, the first step where it shows, its ranks.

    `index` and `iteration` are the first divergent step; `ranks` those concerned, `odd` the rank
    (or ranks) that most others disagree with; `clauses` explain it to a person, with the places of
    the steps that they name, and `prose` is all of them in one sentence.

    Diagnoses with the same `finding` are names for one fault seen from several sides
    (`circular_wait` and `buffering_hazard`): a scenario that states one of them has stated the
    fault. `also` lists further names that describe the same fault less exactly.
    `argument` is the one of the step's call that is wrong, where it is one.
    An `optional` diagnosis follows from a fault that the scenario itself asks for (a killed rank is
    a missing participant): to state it is right, to leave it out is no omission.
    """

    name: str
    clauses: tuple[Clause, ...]
    index: int = -1
    iteration: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    waits: tuple[WaitEdge, ...] = ()
    finding: int = 0
    also: tuple[str, ...] = ()
    optional: bool = False
    argument: str | None = None

    @property
    def prose(self) -> str:
        """The explanation in one sentence."""
        return sentence_of(self.clauses)


class Orders(Sequence["Trace"]):
    """The outcome of a program in each order of arrival at its receives from anyone.

    An order that leads to the state of one before it ends there, with the outcome ''. `because` of
    an order says whose messages were taken.
    """

    @abstractmethod
    def follow(self, observed: Trace) -> tuple[Trace | None, bool]:
        """Return what is predicted of the order that a run took, and whether all were looked at.

        None where the run agrees with no order that was looked at.
        """

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle nothing: what asks has the plan."""
        return tuple, ()


class Trace(Compared, frozen=True, kw_only=True):
    """What a whole scenario did. `backend` is `reference` or the backend's name.

    `outcome` is one of :data:`torch_scenarios.vocabulary.OUTCOMES`. In a predicted trace `open`
    lists the outcomes that a correct backend may show instead, because the program is wrong in a
    way whose effect the semantics leave open; and `limits` what the analysis could not explore; and
    `warnings` what passes and should be looked at.

    `forecasts` (predicted only) has, by the name of a backend (or of one with the versions of torch
    that differ, :func:`torch_scenarios.model.traits.variant_of`), the trace of what it is known to
    make of the program, where that differs; `because` then says in phrases what of the backend
    makes it so. What is right, the semantics alone say. `drift` (predicted only) tells how far a
    value on a rank, after a step or (None) in the end, may be off because reductions before it are.
    `orders` (predicted only, where more than one is possible) has the outcome of each order of
    arrival; what they do not agree on is undefined in the trace itself.
    """

    apart = ("forecasts", "drift", "orders", "traffic", "needs")

    backend: str
    outcome: str
    ranks: tuple[RankTrace, ...]
    open: tuple[str, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    waits: tuple[WaitEdge, ...] = ()
    limits: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    duration_s: float = 0.0
    notes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: the host of each rank, where they are on several (observed only)
    hosts: Mapping[int, str] = field(default_factory=dict)
    forecasts: Mapping[str, Trace] = field(default_factory=dict)
    because: tuple[str, ...] = ()
    drift: Callable[[int, tuple[int, tuple[int, ...]] | None, str], Value] | None = None
    orders: Sequence[Trace] = ()
    #: the capabilities that the program needs (predicted only); None where no one asked for them
    needs: Needs | None = None
    #: what went between the ranks (predicted only)
    traffic: Traffic | None = None

    @property
    def stores(self) -> bool:
        """Whether a step of some rank may have stored into something."""
        return any(rank.stores for rank in self.ranks)

    def walks(self) -> Iterator[Iterator[Place]]:
        """Yield the step instances that ranks took, in their order; alike ranks are one."""
        if self.ranks:
            yield self.ranks[0].program()
        for rank in self.ranks:
            if rank.own:
                yield ((event.index, event.iteration) for event in rank.own)

    def on(self, backend: str | None, torch: str | None = None) -> Trace:
        """Return what is predicted on a backend: this trace, where nothing is known to differ.

        `torch` is a version; None: the one that is installed.
        """
        if backend is None:
            return self
        asked = backend if torch is None else variant_of(backend, torch)
        return self.forecasts.get(asked, self)
