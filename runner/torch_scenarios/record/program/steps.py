"""The steps of each rank: its calls, its waits, the groups that it creates, how it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.record.format import (
    BATCH,
    CREATION,
    RENDEZVOUS,
    BlockingCall,
    RankRecord,
    RecordedCall,
    RecordedKernels,
    RecordedWait,
    ScriptPlace,
    Tensor,
)
from torch_scenarios.record.program.fold import Item
from torch_scenarios.record.program.groups import WORLD, Groups, list_ranks
from torch_scenarios.record.program.tensors import MESSAGES, NOWHERE, InUse, TensorInUse, Tensors
from torch_scenarios.record.program.work import IN_ORDER, TOGETHER, count_handles
from torch_scenarios.vocabulary import REDUCE_OPS

#: operations that leave something undefined where they are no root
LEAVING = frozenset({"reduce"})

#: marks a wait that is at no place of the script: in torch's own code, or in another thread
ELSEWHERE = "elsewhere"


class ProgramStep(Struct, frozen=True, kw_only=True):
    """What a step has in common on all ranks that take it.

    `kind` is `call`, `await`, `create` (a group), `reset` (a tensor), `kernels` (`words` says how
    long they take) or `fail`.

    It is the key by which steps of several ranks become one: what differs by rank (the peer of a
    message, its tag, the place in the script) is kept beside it. `root` counts inside of the group.
    """

    kind: str = "call"
    operation: str = ""
    group: str = WORLD
    tensors: tuple[str, ...] = ()
    op: str | None = None
    root: int | None = None
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    handle: str | None = None
    is_async: bool = False
    has_peer: bool = False
    handles: tuple[str, ...] = ()
    words: str = ""
    ranks: tuple[int, ...] = ()
    local: bool = False


class BatchedMessage(Struct, frozen=True, kw_only=True):
    """One message of a `batch_isend_irecv`: how far its other rank is, by the way up.

    `far` is (peer - rank) % world, so that the messages of a ring are the same on every rank.
    """

    operation: str
    tensor: str
    far: int
    tag: int


class ScriptPlaces:
    """Where steps stand, told from the folder of the script."""

    def __init__(self, folder: str) -> None:
        """Begin with that folder."""
        self._folder = folder
        self._known: dict[tuple[int, bool], str] = {}

    def tell(self, place: ScriptPlace, *, is_named: bool = True) -> str:
        """Return a place, with the function of torch that calls, if `is_named`."""
        key = id(place), is_named
        found = self._known.get(key)
        if found is None:
            brief = place if is_named else replace(place, api="")
            found = self._known[key] = brief.short(self._folder)
        return found


class Steps:
    """The steps that each rank takes, made of what it called.

    With `is_together`, work that is waited for together has no name; `links` has what the steps of
    such work begin, or wait for. With `is_numbered`, receives that are waited for alone have none;
    `orders` has the numbers of them and of their waits.

    A name in the key of a step would part ranks, or turns of a loop, that do the same with another
    name: `work_3` here and `work_4` there. So names are given when all programs are one
    (`program.work`).
    """

    def __init__(
        self,
        records: Mapping[int, RankRecord],
        groups: Groups,
        tensors: Tensors,
        places: ScriptPlaces,
        *,
        is_together: bool,
        is_numbered: bool,
    ) -> None:
        """Make none yet."""
        self._records, self._groups, self._tensors = records, groups, tensors
        self._places = places
        self._is_together, self._is_numbered = is_together, is_numbered
        self._world = max((each.world_size for each in records.values()), default=1)
        self.links: dict[int, list[tuple[int, ...]]] = {}
        self.orders: dict[int, list[int]] = {}
        self._assumed: dict[Hashable, tuple[Item, ...]] = {}
        #: whether some rank did not come to its end
        self._torn = any(each.truncated for each in records.values())
        #: whether a rank waits for others to begin
        self._waits_to_begin = any(
            isinstance(item, BlockingCall) and item.what == RENDEZVOUS and not item.over
            for record in records.values()
            for item in record.items[:8]
        )

    def program(self, record: RankRecord) -> tuple[Item, ...]:
        """Return the program of a rank; ranks that only take part in collectives share one."""
        if record.about.get("mode") != "assumed":
            return tuple(self._items(record))
        names = self._groups.names(record)
        key = (id(record.items), names)
        if key not in self._assumed:
            self._assumed[key] = tuple(self._items(record))
        return self._assumed[key]

    def find_lone_receives(self, record: RankRecord) -> frozenset[int]:
        """Return the receives that are waited for later, once, in a step of their own."""
        if record.threaded:
            return frozenset()
        together = self._find_joint_waits(record) | self._batches(record).keys()
        waits = [each for each in record.items if isinstance(each, RecordedWait)]
        times = Counter(number for each in waits for number in each.numbers)
        return frozenset(
            call.number
            for call in record.calls
            if MESSAGES.get(call.operation) == "src"
            and not (call.completes or call.loose or call.coalesced)
            and call.waited
            and times[call.number] == 1
            and call.number not in together
            and len(call.outputs) == 1
        )

    def _items(self, record: RankRecord) -> Iterable[Item]:
        """Yield the steps of a rank, in the order in which it called."""
        links = self.links[record.rank] = []
        work = _RankWork(
            together=self._find_joint_waits(record) if self._is_together else frozenset(),
            alone=self.find_lone_receives(record) if self._is_numbered else frozenset(),
            batches=self._batches(record),
            links=links,
            waits=_WaitStep(links),
        )
        self.orders[record.rank] = work.order
        for item in record.items:
            if isinstance(item, RecordedWait):
                yield from self._wait_of(item, work)
                continue
            yield from work.waits.steps()
            if isinstance(item, RecordedCall):
                yield from self._call_of(record.rank, item, work)
            elif isinstance(item, RecordedKernels):
                at = self._places.tell(item.place) if item.synchronizes else ""
                yield ProgramStep(kind="kernels", words=_write_kernels(item)), (at, None)
            else:
                yield from self._write_blocking(record, item, self._places.tell(item.place))
        yield from work.waits.steps()
        yield from self._end_of(record, work.loose.values(), work.in_use)

    def _wait_of(self, item: RecordedWait, work: _RankWork) -> Iterable[Item]:
        """Yield the steps of a wait, where it does not belong to one that goes on."""
        at = self._places.tell(item.place, is_named=item.numbers[0] not in work.batches)
        names = [name for each in item.numbers for name in work.handles.get(each, ())]
        for each in item.numbers:
            for other in work.batches.get(each, ()):  # their one handle is waited for once
                work.handles[other.number] = []
        for name in names:
            work.in_use.pop(name, None)
        if not work.alone.isdisjoint(item.numbers):
            work.order += item.numbers
            yield from work.waits.alone(at)
        elif names:
            yield from work.waits.take(names, at)

    def _call_of(self, rank: int, item: RecordedCall, work: _RankWork) -> Iterable[Item]:
        """Yield the steps of a call; of a batch, where it begins."""
        at = self._places.tell(item.place, is_named=item.number not in work.batches)
        batch = work.batches.get(item.number)
        if batch is not None:
            if item is batch[0]:
                begun = self._begin_batch(rank, batch, at, work)
                yield from _link([begun], work.waits, work.links)
            return
        if item.completes and item.operation not in MESSAGES and item.group_name in work.loose:
            # operations of a group end in order: what torch awaits somewhere has ended
            yield self._write_wait(work.loose.pop(item.group_name), work.in_use)
        if item.number in work.alone:
            work.order.append(item.number)
            yield self._begin_ahead(rank, item, at, work)
            return
        yield from _link(self._begin(rank, item, at, work), work.waits, work.links)
        if item.loose:
            work.loose.setdefault(item.group_name, []).extend(work.handles[item.number])

    def _begin_ahead(self, rank: int, call: RecordedCall, at: str, work: _RankWork) -> Item:
        """Return the step of a receive without a name, which is waited for later."""
        tensor = self._tensors.name_ahead(call, work.in_use)
        handle = f"{IN_ORDER}{call.number}"
        work.in_use[handle] = (call.number, (tensor,))
        work.handles[call.number] = [handle]
        own = None if call.peer is None else (call.peer - rank) % self._world
        step = ProgramStep(
            operation=call.operation,
            group=self._groups.name(rank, call.group_name),
            tensors=(tensor.name,),
            handle=IN_ORDER,
            is_async=True,
            has_peer=call.peer is not None,
        )
        return step, (at, (own, call.tag))

    def _find_joint_waits(self, record: RankRecord) -> frozenset[int]:
        """Return the calls whose work is waited for once, in one step with the work of others."""
        runs = self._runs_of_waits(record)
        times = Counter(each for run in runs for each in run)
        return frozenset(each for run in runs if len(run) > 1 for each in run if times[each] == 1)

    def _runs_of_waits(self, record: RankRecord) -> list[list[int]]:
        """Return the numbers that a rank waits for without a call in between, at one place."""
        found: list[list[int]] = []
        before: tuple[bool, str] = False, ""
        for item in record.items:
            is_wait = isinstance(item, RecordedWait)
            now = is_wait, self._places.tell(item.place)
            if isinstance(item, RecordedWait):
                if now != before:
                    found.append([])
                found[-1] += item.numbers
            before = now
        return found

    def _batches(self, record: RankRecord) -> dict[int, list[RecordedCall]]:
        """Return the messages of each `batch_isend_irecv` that is a step, by their numbers.

        It has one handle in a scenario, so its work is waited for once, in one step: the last one
        of the rank may have waited for a part of it only.
        """
        batches: dict[int, list[RecordedCall]] = {}
        after: dict[int, int] = {}
        for at, item in enumerate(record.items):
            if isinstance(item, RecordedCall) and item.batch is not None:
                if after.setdefault(item.batch, at) == at:
                    after[item.batch] = at + 1
                    batches.setdefault(item.batch, []).append(item)
                else:  # calls of another thread lie in between
                    batches[item.batch] = []
        if not batches:
            return {}
        runs = self._runs_of_waits(record)
        in_run = {each: at for at, run in enumerate(runs) for each in run}
        times = Counter(each for run in runs for each in run)
        last = len(runs) - 1 if record.truncated else -1
        if not isinstance(record.items[-1], RecordedWait):
            last = -1
        found: dict[int, list[RecordedCall]] = {}
        for batch in batches.values():
            waited = [in_run[call.number] for call in batch if call.number in in_run]
            is_whole = len(waited) in {0, len(batch)} or set(waited) == {last}
            if (
                is_whole
                and len(set(waited)) <= 1
                and all(times[call.number] <= 1 for call in batch)
                and len({call.group_name for call in batch}) == 1
                and not any(call.completes or call.loose or call.peer is None for call in batch)
            ):
                found.update((call.number, batch) for call in batch)
        return found

    def _write_blocking(self, record: RankRecord, item: BlockingCall, at: str) -> Iterable[Item]:
        """Yield the step of a call other than an operation, where it has one."""
        if item.what == CREATION and self._groups.is_created:
            ranks = list_ranks(item, self._world)
            name = self._groups.name_created(record, item)
            yield (
                ProgramStep(kind="create", words=name, ranks=ranks, local=item.local),
                (at, None),
            )
        elif item.what == RENDEZVOUS and self._waits_to_begin:
            # it waits for every rank, as a barrier does; a later one is of another world
            before = [
                each
                for each in record.items
                if isinstance(each, BlockingCall)
                and each.what == RENDEZVOUS
                and each.number < item.number
            ]
            name = f"{RENDEZVOUS}_{len(before) + 1}" if before else RENDEZVOUS
            yield ProgramStep(operation="barrier", words=name), (at, None)

    def _write_wait(self, names: list[str], in_use: dict[str, Any]) -> Item:
        for name in names:
            in_use.pop(name, None)
        # its words keep it apart from a wait of another rank that is at a place of the script
        return ProgramStep(kind="await", handles=tuple(names), words=ELSEWHERE), ("", None)

    def _end_of(
        self, record: RankRecord, loose: Iterable[list[str]], in_use: dict[str, Any]
    ) -> Iterable[Item]:
        """Yield the waits that are nowhere else, and how a rank fails, where it does."""
        for names in loose if not record.truncated else ():
            yield self._write_wait(names, in_use)
        if record.ending == "raised" and record.error is not None:
            at = self._places.tell(record.raised_at)
            yield ProgramStep(kind="fail", words=record.error), (at, None)
        elif record.ending == "ended" and record.code and self._torn:
            yield ProgramStep(kind="fail"), ("", None)

    def _begin(self, rank: int, call: RecordedCall, at: str, work: _RankWork) -> Iterable[Item]:
        """Yield the steps of a call: one, or one for each tensor of a coalesced one.

        A handle is the first name that the rank has not in use: so a loop that waits for what it
        starts has the same name in each round, and folds. Work that is never waited for keeps its
        tensors in use for ever; where its handle is lost, the next call may take the name.

        Peers are noted as distances, and roots as ranks of the group, which are the same on many
        ranks where the numbers are not: each rank of a ring sends 1 further.
        """
        group = self._groups.name(rank, call.group_name)
        is_async = not call.completes
        parts: list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = [(call.inputs, call.outputs)]
        if call.coalesced and call.operation.endswith("single"):
            parts = [
                ((one,), (other,)) for one, other in zip(call.inputs, call.outputs, strict=True)
            ]
        for inputs, outputs in parts:
            used: list[TensorInUse] = []
            names = self._tensors.name_all(call, inputs, outputs, work.in_use, used)
            handle = None
            if is_async:
                is_named = call.number not in work.together or call.loose
                handle = next(name for name in count_handles() if name not in work.in_use)
                if not is_named:
                    number = f"{len(work.handles)}.{len(work.handles.get(call.number, ()))}"
                    handle = f"{TOGETHER}{number}"
                # work that is never waited for may use its memory at any time
                held = (
                    used
                    if call.waited and not call.loose
                    else [replace(each, tensor=NOWHERE, writes=True) for each in used]
                )
                work.in_use[handle] = (call.number, tuple(held))
                work.handles.setdefault(call.number, []).append(handle)
                ended = call.dropped or not self._records[rank].truncated
                if ended and not call.waited and not call.loose:
                    # its handle is lost: the next one has another name
                    lost = handle
                    handle = None
                    del work.in_use[lost]
            operation = call.operation
            root = None
            if call.root is not None:
                root = call.group.index(call.root)
            if operation in LEAVING:
                yield ProgramStep(kind="reset", tensors=names), (at, None)
            own: Hashable = None
            if call.peer is not None:
                own = ((call.peer - rank) % self._world, call.tag)
            elif operation in MESSAGES:
                own = (None, call.tag)
            yield (
                ProgramStep(
                    operation=operation,
                    group=group,
                    tensors=names,
                    op=call.op if call.op in {*REDUCE_OPS} else ("sum" if call.op else None),
                    root=root,
                    splits=call.splits,
                    handle=handle,
                    is_async=is_async,
                    has_peer=call.peer is not None,
                ),
                (at, own),
            )

    def _begin_batch(
        self, rank: int, batch: Sequence[RecordedCall], at: str, work: _RankWork
    ) -> Item:
        """Return the step of a `batch_isend_irecv`, whose messages have one handle together.

        As with other messages the distances are what ranks have in common. They travel with the
        item and not with the step: ranks that send to other distances take the same step.
        """
        first = batch[0]
        handle = next(name for name in count_handles() if name not in work.in_use)
        if self._is_together:
            handle = f"{TOGETHER}{len(work.handles)}"
        waited = any(call.waited for call in batch)
        held: list[TensorInUse] = []
        parts = []
        for call in batch:
            used: list[TensorInUse] = []
            (tensor,) = self._tensors.name_all(call, call.inputs, call.outputs, work.in_use, used)
            held += used if waited else [replace(x, tensor=NOWHERE, writes=True) for x in used]
            work.in_use[handle] = first.number, tuple(held)
            work.handles[call.number] = [handle]
            assert call.peer is not None
            parts.append(
                BatchedMessage(
                    operation=f"i{call.operation}",
                    tensor=tensor,
                    far=(call.peer - rank) % self._world,
                    tag=call.tag,
                )
            )
        ended = any(call.dropped for call in batch) or not self._records[rank].truncated
        is_lost = ended and not waited
        if is_lost:
            del work.in_use[handle]
        step = ProgramStep(
            operation=BATCH,
            group=self._groups.name(rank, first.group_name),
            handle=None if is_lost else handle,
            is_async=True,
        )
        return step, (at, tuple(parts))


class _WaitStep:
    """Waits that follow each other at one place: together they are one step.

    `links` hears of each wait for work without a name: the numbers of it.
    """

    def __init__(self, links: list[tuple[int, ...]]) -> None:
        self._names: list[str] = []
        self._at = ""
        self._links = links
        #: work in flight that has no name: its key -> its number, its operation and peer
        self.unnamed: dict[str, tuple[int, str]] = {}

    def take(self, names: list[str], at: str) -> Iterable[Item]:
        """Take a wait; yields the step of those before, where it is another one."""
        if at != self._at or set(names) & set(self._names):
            yield from self.steps()
        self._names, self._at = [*self._names, *names], at

    def alone(self, at: str) -> Iterable[Item]:
        """Yield the step of those before, and one that waits for a receive without a name."""
        yield from self.steps()
        yield ProgramStep(kind="await", handles=(IN_ORDER,)), (at, None)

    def steps(self) -> Iterable[Item]:
        """Yield the step of what was taken."""
        if self._names:
            unnamed = [self.unnamed.pop(each) for each in self._names if each in self.unnamed]
            named = [each for each in self._names if not each.startswith(TOGETHER)]
            own = None
            if unnamed:
                self._links.append(tuple(number for number, _ in unnamed))
                named.append(TOGETHER)
                own = tuple(sorted({what for _, what in unnamed}))
            yield ProgramStep(kind="await", handles=tuple(named)), (self._at, own)
            self._names = []


class _RankWork(Struct, kw_only=True):
    """What a rank begins and waits for, while its steps are made.

    `together`, `alone` and `batches` say of its calls how they are waited for, `handles` what the
    work of each is called, `in_use` what is in flight, and `loose` what is waited for somewhere.
    """

    together: frozenset[int]
    alone: frozenset[int]
    batches: Mapping[int, Sequence[RecordedCall]]
    links: list[tuple[int, ...]]
    waits: _WaitStep
    order: list[int] = field(default_factory=list)
    handles: dict[int, list[str]] = field(default_factory=dict)
    in_use: InUse = field(default_factory=dict)
    loose: dict[str, list[str]] = field(default_factory=dict)


def _link(called: Iterable[Item], waits: _WaitStep, links: list[tuple[int, ...]]) -> Iterable[Item]:
    """Yield steps; those that begin work without a name are known to `waits` and `links`."""
    for each in called:
        step: Any = each[0]
        if step.handle is not None and step.handle.startswith(TOGETHER):
            own: Any = each[1][1]
            to = "" if own is None else own[0]
            if isinstance(to, BatchedMessage):
                to = [(part.operation, part.far) for part in own]
            waits.unnamed[step.handle] = len(links), f"{step.operation} {to}"
            links.append((len(links),))
            step = replace(step, handle=TOGETHER)
        yield step, each[1]


def _write_kernels(item: RecordedKernels) -> str:
    """Return what kernels take, and their host, as `compute` states it."""
    times = {"time": item.us, "host": item.host_us}
    stated = [f"{name}: {_write_time(us)}" for name, us in times.items() if us]
    if item.synchronizes:
        stated = [*(stated or ["host: 0us"]), "synchronize: true"]
    return ", ".join(stated)


def _write_time(us: float) -> str:
    """Return a time with its unit, and four digits.

    >>> _write_time(12.34567), _write_time(1234.5)
    ('12.35us', '1.234ms')
    """
    for unit, most in (("us", 1e3), ("ms", 1e6), ("s", inf)):
        if us < most:
            return f"{float(f'{us * 1e3 / min(most, 1e9):.4g}'):.12g}{unit}"
    raise ValueError(us)


def find_distance(world: int, rank: int, own: Any) -> Hashable:
    """Return how far from a rank its messages go, or those that it waits for.

    In a line of 4 ranks the last sends nothing; in a ring it sends to rank 0, which is -3 here, so
    that it is no step of those that send to the next.
    """
    if own is None or own[0] is None:
        return None
    far: Hashable = own
    if isinstance(own[0], int):
        far = (rank + own[0]) % world - rank
    elif isinstance(own[0], BatchedMessage):
        far = tuple((rank + each.far) % world - rank for each in own)
    return far


def find_way(world: int, rank: int, own: Any) -> Hashable:
    """Return how far from a rank its messages go by the shorter way around.

    Here the last rank of a ring sends +1 as all others do.

    >>> find_distance(4, 3, (1, 0)), find_way(4, 3, (1, 0))
    (-3, 1)
    """
    if own is not None and isinstance(own[0], int):
        return own[0] if own[0] <= world // 2 else own[0] - world
    return find_distance(world, rank, own)
