"""What each simulated rank holds, where it is, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.errors import Mark, Problem
from torch_scenarios.expressions.values import Undefined
from torch_scenarios.limits import Account, BoundError, Limits, account, explain_bound
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Call, Process
from torch_scenarios.model.scenario import Step
from torch_scenarios.model.trace import Event, Events
from torch_scenarios.operations.base import Entry, RemoteCall
from torch_scenarios.reference.matching import (
    CollectiveMatches,
    CreationPost,
    Creations,
    Mailbox,
    Streams,
    Work,
)
from torch_scenarios.reference.semantics import Semantics
from torch_scenarios.reference.symptoms import Symptom

# -------------------------------------------------------------------------------------------------
# How much the analysis may hold: every rank's tensors, and what its trace keeps of each step.

#: bytes that a step takes, whatever it stores: its event, and the ranks that it met (measured: 1.3
#: to 1.5 kB)
STEP_BYTES = 1_500

#: bytes of an item of a list: what points to it, and a number
ITEM_BYTES = 36

#: bytes that are copied for one unit of work
COPIED_BYTES = 4

#: units of work of a step, whatever it computes, and of each rank that takes it with others
STEP_WORK = 2_000
RANK_WORK = 24

#: units of work of a step that a rank only looks at
PASSED_WORK = 256

#: and where ranks look at it together
PASSED_TOGETHER = 2_000


class Ledger:
    """Counts the steps and bytes of one simulation, and refuses what goes beyond the limits.

    All is charged to the account of the case; a simulation outside of any has another one.

    A file of ten lines can ask for any amount of memory (`for: 10_000_000`, `full([1 << 30], 1)`),
    so that each thing is charged before it is made. What is counted is the same on every machine: a
    bound in seconds alone would let a verdict depend on how loaded the machine is (decision 41).

    >>> from torch_scenarios.limits import Limits
    >>> ledger = Ledger(Limits(max_steps=2))
    >>> ledger.step(None, 2)
    >>> try:
    ...     ledger.step(None)
    ... except BoundError as error:
    ...     print(error.problems[0].code)
    too_many_steps
    """

    def __init__(self, limits: Limits) -> None:
        """Begin at nothing."""
        self._limits = limits
        self._steps = 0
        self._kept = 0
        self._held = 0
        self.account = account() or Account(limits)

    def fork(self) -> Ledger:
        """Return a ledger that goes on from here; what it keeps is its own."""
        found = Ledger(self._limits)
        found._steps, found._held = self._steps, self._held
        return found

    def step(self, mark: Mark | None, count: int = 1, *, events: int = 1) -> None:
        """Count steps of ranks, and what is kept of them; ScenarioError beyond the limits.

        `events` tells how many things are kept of the steps: one of several ranks together.
        """
        account, kept = self.account, events * STEP_BYTES
        account.at = mark
        self._kept += kept
        if kept > account.bytes_left:
            account.room(kept, mark)
        account.bytes_left -= kept
        account.spend(kept // COPIED_BYTES + events * STEP_WORK + count * RANK_WORK, mark)
        self._steps += count
        if self._steps > self._limits.max_steps:
            message = (
                f"the program takes too many steps: {explain_bound('max_steps', self._limits)}"
            )
            raise BoundError([Problem(code="too_many_steps", message=message, mark=mark)])

    def begin(self, mark: Mark | None) -> None:
        """Take note of the place of what is computed next, for what is charged without one."""
        self.account.at = mark

    def turn(self, step: Step) -> None:
        """Count a turn of a loop, whether or not a rank takes a step in it."""
        self.account.turn(step.mark)

    def pass_by(self, step: Step, work: int = PASSED_WORK) -> None:
        """Count a step that is looked at, and not taken."""
        self.account.at = step.mark
        self.account.spend(work, step.mark)

    def keep(self, values: Iterable[Any], mark: Mark | None, *, copies: int = 1) -> None:
        """Count copies of values that are kept, before they are made; ScenarioError beyond."""
        count = copies * sum(map(count_held_bytes, values))
        self.keep_bytes(count, mark)
        self.hold(count)

    def hold(self, count: int) -> None:
        """Count bytes that the ranks of a run hold, their copies of what steps stored included."""
        self._held += count
        self.account.run_bytes = max(self.account.run_bytes, self._held)

    def keep_bytes(self, count: int, mark: Mark | None) -> None:
        """Count bytes that are kept; ScenarioError beyond `max_bytes`."""
        self._kept += count
        account = self.account
        if count > account.bytes_left:
            account.room(count, mark)
        account.bytes_left -= count
        if work := count // COPIED_BYTES:
            account.spend(work, mark)

    def room(self, values: Iterable[Any], mark: Mark | None, *, copies: int = 1) -> None:
        """Raise ScenarioError where copies of these values have no room beside what is kept.

        They are looked at only where it may be close: all that there is was kept before.
        """
        if self.account.bytes_left < (copies + 1) * self._kept:
            self.account.room(copies * sum(map(count_held_bytes, values)), mark)

    def release(self) -> None:
        """Give back all bytes: what was kept of this simulation is there no more."""
        self.account.bytes_left += self._kept
        self._kept = 0


def count_held_bytes(value: Any) -> int:
    """Return the bytes of an array, or of a list or a mapping with all that is in it."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list | tuple):
        return ITEM_BYTES * len(value) + sum(map(count_held_bytes, value))
    if isinstance(value, dict):
        return 2 * ITEM_BYTES * len(value) + sum(map(count_held_bytes, value.values()))
    return 0


# -------------------------------------------------------------------------------------------------
# What a simulated rank holds: copies for the trace, results put in place, undefined marks.

#: units of work of a look at one item of a list
ITEM_WORK = 100

#: candidates that are tried to tell whether two strided arrays share an element: in general that is
#: as hard as an equation in integers (`numpy.shares_memory`)
_MOST_TRIED = 100_000


def frozen(value: Any) -> Any:
    """Return a copy that later steps cannot change."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [frozen(item) for item in value]
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    return value


def snapshot(process: Process, name: str) -> Any:
    """Return what a name holds now, for the trace."""
    undefined, held = process.undefined.get(name), process.scope.get(name)
    if undefined is None and name in process.busy:
        undefined = process.busy[name][0]
    return measure(undefined, held) if undefined is not None else frozen(held)


def measure(undefined: Undefined, held: Any) -> Undefined:
    """Return an undefined value with the shapes and dtypes of what is held."""
    return replace(undefined, measure=_make_hollow(held), memory=())


def _make_hollow(held: Any) -> Any:
    if isinstance(held, np.ndarray):
        return np.broadcast_to(np.zeros((), held.dtype), held.shape)
    if isinstance(held, list):
        items = [_make_hollow(item) for item in held]
        return None if any(item is None for item in items) else items
    return None


def find_undefined(process: Process, call: Call, name: str) -> Undefined | None:
    """Return what is undefined of a name in the arguments that a call makes of it, or None."""
    left = process.undefined.get(name)
    if left is None:
        return None
    given = [
        call.entry.arguments.get(param) for param, names in call.roots.items() if name in names
    ]
    if given and not any(map(_has_elements, given)):
        return None
    if not left.memory:
        return left
    held = [process.scope.get(root) for names in call.roots.values() for root in names]
    return None if all(is_made_of(left.memory, value, held) for value in given) else left


def frozen_arguments(entry: Entry) -> dict[str, Any]:
    """Return a copy of an entry's arguments."""
    return {name: frozen(value) for name, value in entry.arguments.items()}


def store(process: Process, names: tuple[str, ...], target: Any, value: Any) -> None:
    """Put a result where a call's argument is; `names` are the held names it may belong to."""
    if isinstance(value, Undefined):
        for name in names if _has_elements(target) else ():
            if _shares(process.scope.get(name), target):
                process.undefined[name] = leave_undefined(process, name, target, value)
        return
    if isinstance(target, np.ndarray):
        alike = isinstance(value, np.ndarray) and value.shape == target.shape
        given = value if alike else np.asarray(value).reshape(target.shape)
        np.copyto(target, given, casting="unsafe")
        if process.undefined:
            forget_undefined(process, names, target)
    elif isinstance(target, list):
        if _holds_tensors(target) and isinstance(value, list) and len(value) == len(target):
            for inner, item in zip(target, value, strict=True):
                store(process, names, inner, item)
        else:
            target[:] = value
        if process.undefined:
            forget_undefined(process, names, target)


def leave_undefined(process: Process, name: str, target: Any, value: Undefined) -> Undefined:
    """Return what is undefined of a name once `target`, all or a part of it, is, too."""
    held, before = process.scope.get(name), process.undefined.get(name)
    part = isinstance(target, np.ndarray) and not (
        isinstance(held, np.ndarray) and held.size == target.size
    )
    if not part or (before and not before.memory):
        return replace(value, memory=())
    return replace(value, memory=(*(before.memory if before else ()), target))


def _has_elements(target: Any) -> bool:
    """Whether something can be undefined there: in a tensor without elements nothing can."""
    if isinstance(target, list):
        return any(_has_elements(item) for item in target)
    return not isinstance(target, np.ndarray) or target.size > 0


def _holds_tensors(target: list[Any]) -> bool:
    """Whether a list is made of tensors, or of lists of tensors; objects are assigned whole."""
    return bool(target) and all(
        isinstance(item, np.ndarray) or (isinstance(item, list) and _holds_tensors(item))
        for item in target
    )


def forget_undefined(process: Process, names: tuple[str, ...], target: Any) -> None:
    """Forget that a name is undefined once all of it was written."""
    for name in names:
        held = process.scope.get(name)
        if held is target or (
            isinstance(held, np.ndarray)
            and isinstance(target, np.ndarray)
            and held.size == target.size
            and np.may_share_memory(held, target)
        ):
            process.undefined.pop(name, None)
        elif (left := process.undefined.get(name)) is not None and left.memory:
            memory = tuple(part for part in left.memory if not _is_same_place(part, target))
            if memory:
                process.undefined[name] = replace(left, memory=memory)
            else:
                process.undefined.pop(name)


def _is_same_place(one: NDArray[Any], two: Any) -> bool:
    if not isinstance(two, np.ndarray):
        return False
    places = [(each.ctypes.data, each.shape, each.strides, each.dtype) for each in (one, two)]
    return places[0] == places[1]


def is_made_of(memory: tuple[Any, ...], value: Any, held: Any) -> bool:
    """Whether a value is made of parts of what is `held`, and of none that is in `memory`.

    Of a copy it cannot be told what was read.
    """
    whole, parts = arrays_of(held), arrays_of(value)
    views = bool(parts) and all(overlap((part,), whole) for part in parts)
    return views and not overlap(memory, parts)


def arrays_of(value: Any) -> tuple[Any, ...]:
    """Return the arrays, and lists of plain objects, that a value is made of."""
    if isinstance(value, np.ndarray):
        return (value,)
    if isinstance(value, dict):
        return tuple(each for item in value.values() for each in arrays_of(item))
    if isinstance(value, list | tuple):
        found = account()
        if found is not None:
            found.spend(ITEM_WORK * len(value))
        parts = tuple(each for item in value for each in arrays_of(item))
        return parts or (value,)
    return ()


def byte_span(part: NDArray[Any]) -> tuple[int, int]:
    """Return the first and the last byte that an array uses, the latter exclusive.

    >>> low, high = byte_span(np.zeros(4, np.float32)[::2])
    >>> high - low
    12

    Two of four elements of 4 bytes, one left out between them: the last one is used, what follows
    it is not.
    """
    first = int(part.ctypes.data)
    reach = [stride * (size - 1) for stride, size in zip(part.strides, part.shape, strict=True)]
    low = first + sum(each for each in reach if each < 0)
    return low, first + sum(each for each in reach if each > 0) + part.itemsize


def span_of(memory: tuple[Any, ...]) -> tuple[int, int] | None:
    """Return the first and the last byte of arrays; None where there is something else."""
    if not memory or not all(isinstance(part, np.ndarray) and part.size for part in memory):
        return None
    spans = [byte_span(part) for part in memory]
    return min(low for low, _ in spans), max(high for _, high in spans)


def overlap(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """Whether some array of the one shares an element with some of the other.

    >>> x = np.zeros(4)
    >>> overlap((x[:2],), (x[2:],)), overlap((x[:2],), (x[1:3],)), overlap((x[::2],), (x[1::2],))
    (False, True, False)

    The last two interleave without an element in common: the columns of a matrix may be sent and
    received at once.
    """
    return any(_share(one, two) for one in mine for two in theirs)


def _share(one: Any, two: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        if not (one.size and two.size):
            return False
        try:
            return np.shares_memory(one, two, max_work=_MOST_TRIED)  # type: ignore[arg-type]
        except RuntimeError:  # `TooHardError`, wherever this NumPy has it
            return True  # it cannot be told in time: it is taken for shared
    return one is two


def _shares(held: Any, target: Any) -> bool:
    if held is target:
        return True
    if isinstance(target, list):
        return any(_shares(held, item) for item in target)
    if isinstance(held, list):
        return any(_shares(item, target) for item in held)
    return (
        isinstance(held, np.ndarray)
        and isinstance(target, np.ndarray)
        and bool(np.may_share_memory(held, target))
    )


# -------------------------------------------------------------------------------------------------
# Where one simulated rank is, and what it holds.

#: a step and its iteration
Place = tuple[int, tuple[int, ...]]

#: what a rank entered or sent, by its link, whose tensor it touched while others got it
Touched = tuple[str, int]


class InFlightAccess(Struct, frozen=True, kw_only=True, eq=False):
    """A tensor argument in the hands of asynchronous work.

    `memory` are the arrays themselves, `names` the held names they belong to; `whole` tells that
    they are all of what those names hold.

        x = zeros [4]
        isend x[0:2] to 1        memory: a view of 2 elements; names {x}; it reads, a part
        irecv x[2:4] from 1      memory: the other 2; it writes. The two share no element: no race
        x[3] = 1                 shares one with the receive: `buffer_race`

    What counts is memory and not names: two names may hold one tensor, and `x[0:2]` is no name at
    all.
    """

    work: Work
    memory: tuple[Any, ...]
    names: frozenset[str]
    writes: bool
    whole: bool
    #: the first and the last byte of the memory; None where it is not of arrays alone
    span: tuple[int, int] | None = None


#: bytes of a page of addresses, and pages of an access at most: a larger one is looked at each time
_PAGE, _MOST_PAGES = 1 << 10, 64


class Accesses:
    """The accesses in flight of a rank, in the order in which they began.

    Those that may share memory with something are found by pages of addresses: a program may have
    thousands of them, and each call looks at those that are near to its tensors. A rank that begins
    1,000 receives before its first wait would else compare half a million pairs.
    """

    __slots__ = ("_begun", "_every", "_large", "_of_work", "_pages")

    def __init__(self) -> None:
        """Have none."""
        self._begun = 0
        self._every: dict[int, InFlightAccess] = {}
        self._pages: dict[int, dict[int, InFlightAccess]] = {}
        self._large: dict[int, InFlightAccess] = {}
        self._of_work: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._every)

    def __iter__(self) -> Iterator[InFlightAccess]:
        """Yield each one."""
        return iter(self._every.values())

    def add(self, access: InFlightAccess) -> None:
        """Let an access begin."""
        number = self._begun
        self._begun += 1
        self._every[number] = access
        self._of_work.setdefault(id(access.work), []).append(number)
        for held in self._find_held(access):
            held[number] = access

    def of(self, work: Work) -> list[InFlightAccess]:
        """Return what a work still uses."""
        return [self._every[number] for number in self._of_work.get(id(work), ())]

    def end(self, work: Work) -> None:
        """Let all that a work uses end."""
        for number in self._of_work.pop(id(work), ()):
            access = self._every.pop(number)
            for held in self._find_held(access):
                del held[number]
            for page in _pages(access.span) or ():
                if not self._pages[page]:
                    del self._pages[page]

    def find_near(self, memory: tuple[Any, ...]) -> list[InFlightAccess]:
        """Return those that may share memory with arrays, or plain objects."""
        span = span_of(memory)
        pages = _pages(span)
        if span is None:
            return list(self)
        if pages is None or len(pages) > len(self._every):
            found: Iterable[InFlightAccess] = self
        else:
            numbered = dict(self._large)
            for page in pages:
                numbered |= self._pages.get(page, {})
            found = [numbered[number] for number in sorted(numbered)]
        low, high = span
        return [
            each
            for each in found
            if each.span is None or (low < each.span[1] and each.span[0] < high)
        ]

    def _find_held(self, access: InFlightAccess) -> Iterator[dict[int, InFlightAccess]]:
        """Yield where an access is found by its addresses."""
        pages = _pages(access.span)
        if pages is None:
            yield self._large
        else:
            yield from (self._pages.setdefault(page, {}) for page in pages)


def _pages(span: tuple[int, int] | None) -> range | None:
    """Return the pages that a span touches; None where they are too many, or there is no span."""
    if span is None:
        return None
    pages = range(span[0] // _PAGE, (span[1] - 1) // _PAGE + 1)
    return pages if len(pages) <= _MOST_PAGES else None


def links_of(works: Sequence[Work]) -> dict[int, tuple[str, ...]]:
    """Return the matches in which each event took part; several of a compound operation."""
    found: dict[int, tuple[str, ...]] = {}
    for work in works:
        found[work.at] = (*found.get(work.at, ()), *(post.link for post in work.posts))
    return found


class RankState(Struct, kw_only=True, eq=False):
    """One rank of a simulation; `clock_s` is virtual time since the scenario began.

    `state` is `ready`, `blocked`, `finished`, `raised` or `died`; and where functions of other
    ranks may run on it `paused` before a step, `lingering` in one that is done, or `departing`.
    `open_accesses` is what asynchronous work still uses; `raced` the names of tensors that two
    operations had at once, and `racing` whether the rank's call touches such a tensor. `misread` is
    what the call's arguments were computed from although it is undefined.

                 next step            needs another rank            that has come
        ready  ------------> ready   ------------------> blocked   -------------> ready
          |                                                 |
          | no step is left: finished                       | nothing moves any more: it stays,
          | `fault: kill`: died                             | or its peer is gone: raised
    """

    rank: int
    process: Process
    walker: Iterator[Call]
    ledger: Ledger
    #: what is seen of mistakes, on all ranks
    findings: list[Symptom] = field(default_factory=list)
    clock_s: float = 0.0
    events: Events = field(default_factory=Events)
    #: names, of a rank's works, those that it met at each of its events
    links: Callable[[Sequence[Work]], Mapping[int, tuple[str, ...]]] = field(
        default_factory=lambda: links_of
    )
    initial: dict[str, Any] = field(default_factory=dict)
    state: str = "ready"
    died: str | None = None
    call: Call | None = None
    #: the step before which it stops, so that functions of other ranks may run
    pausing: Step | None = None
    waiting: tuple[Work, ...] = ()
    handles: dict[str, Work] = field(default_factory=dict)
    works: list[Work] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    raced: set[str] = field(default_factory=set)
    #: what races have brought to other ranks, of all ranks
    touched: set[Touched] = field(default_factory=set)
    racing: bool = False
    misread: Undefined | None = None
    open_accesses: Accesses = field(default_factory=Accesses)
    #: whether its program goes on beyond what is written
    truncated: bool = False

    def gave_up(self, work: Work) -> bool:
        """Whether nothing can wait for a work any more: its handle was dropped, as in a script.

        A step without `as` drops its work at once, a name given anew the one before, and the end of
        the program every one; what is written of a truncated program is not its end.
        """
        if work.waited or not work.call.asynchronous:
            return False
        operation = work.call.operation
        if isinstance(operation, RemoteCall) and operation.keeps_there:
            return False  # what another rank keeps need not be fetched
        kept = work.handle is not None and self.handles.get(work.handle) is work
        return not kept or (self.state == "finished" and not self.truncated)

    def add_event(
        self,
        call: Call,
        start_s: float,
        *,
        state: str = "done",
        written: tuple[str, ...] = (),
        slack: Mapping[str, Any] | None = None,
        raced: Mapping[str, Undefined] | None = None,
        **fields: Any,
    ) -> None:
        """Note that the rank took a step, with a copy of what it may have stored.

        `raced` is undefined because something is expected of it while it is in flight.
        """
        if written:
            scope = self.process.scope
            self.ledger.keep([scope.get(name) for name in written], call.step.mark)
        if slack:
            self.ledger.keep_bytes(sum(map(count_held_bytes, slack.values())), call.step.mark)
        kept = {name: snapshot(self.process, name) for name in written}
        if raced:
            kept.update(raced)
        self.events.append(
            Event(
                index=call.step.index,
                label=call.label,
                iteration=call.iteration,
                state=state,
                start_s=start_s,
                writes=kept,
                slack={} if slack is None else slack,
                **fields,
            )
        )


def stands_at(state: RankState) -> Place | None:
    """Return where a rank is blocked, or None."""
    if state.state != "blocked" or state.call is None:
        return None
    return state.call.step.index, state.call.iteration


ALL_OUTCOMES = frozenset({"completes", "deadlock", "error", "crash"})


class Run(Protocol):
    """One run of all ranks, as those look at it who find out what came of it.

    It is the face of :class:`torch_scenarios.reference.walk.Simulation` that rules and diagnoses
    see: they read it, and what they want to change they return as effects.
    """

    plan: Plan
    semantics: Semantics
    ledger: Ledger
    ranks: list[RankState]
    mailbox: Mailbox
    matches: CollectiveMatches
    streams: Streams
    creations: Creations
    #: rank -> the creation that it waits in
    creating: dict[int, CreationPost]
    findings: list[Symptom]
    #: the outcomes that a run may show in place of the predicted one
    opened: set[str]
