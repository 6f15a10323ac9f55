"""The streams of a rank -> one list of what it does, in which calls begin as early as they could.

A script on a GPU is ahead of it: what it calls is on a stream at once, and begins there when what
is before it on that stream, and the events that the stream waits for, are done. In the order of the
script FSDP2 gathers the weights of a layer after the kernels of the layer before; on the GPU they
are gathered meanwhile::

    script   kernels 1 | gather 2 | wait 2 | kernels 2 | gather 3 | wait 3 | ...
    GPU      kernels 1            | kernels 2            |
             gather 2             | gather 3             |
    here     gather 2 begins | kernels 1 | wait 2 | gather 3 begins | kernels 2 | wait 3 | ...

So each call is put where the main stream is done with what the call needs, and its wait before what
needs it. Kernels of other streams share the GPU with those of the main one: they are added to them,
where what they need is there. Calls of one group keep their order, as a communicator keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.record.format import (
    BlockingCall,
    LaneEvent,
    RankRecord,
    RecordedCall,
    RecordedKernels,
    RecordedWait,
    ScriptPlace,
)
from torch_scenarios.record.kernels.launches import KernelRun

#: the stream that a program begins on
MAIN = 0

#: the groups of a rank by their numbers: name, ranks, description
_Groups: TypeAlias = dict[int, tuple[str, tuple[int, ...], str]]
Item: TypeAlias = RecordedCall | RecordedWait | RecordedKernels | BlockingCall


class StreamPart(Struct, kw_only=True):
    """Kernels, a call, or a wait of the host on a stream; `after` are those that it needs.

    `slot` is the number of main kernels before which it is done, `needs` are the calls that have to
    be waited for before. A wait of the host has its `place`.
    """

    lane: int
    after: set[int]
    us: float = 0.0
    host_us: float = 0.0
    call: RecordedCall | None = None
    place: ScriptPlace | None = None
    slot: int = 0
    needs: set[int] = field(default_factory=set)


class _Graph:
    """What one rank starts, in the order of its script, with what each part needs.

    A part needs what is before it on its stream, what its stream waits for (`Event.wait`,
    `Stream.wait_*`), and what the host has waited for, as CUDA orders them. `_tails` has by stream
    the last parts of it, `_marks` what an event comes after, `_host` what the host knows to be
    done.
    """

    def __init__(self, record: RankRecord) -> None:
        self.nodes: list[StreamPart] = []
        #: the number of the first part that begins after a step of an optimizer, for each step
        self.steps: list[int] = []
        self._lane = MAIN
        self._tails: dict[int, set[int]] = {}
        self._marks: dict[int, set[int]] = {}
        self._host: set[int] = set()
        self._of_call: dict[int, int] = {}
        events = iter(record.lanes)
        event = next(events, None)
        for at, item in enumerate([*record.items, None]):
            while event is not None and event.before <= at:
                self._take(event)
                event = next(events, None)
            if isinstance(item, RecordedCall):
                self._call(item)
            elif isinstance(item, RecordedWait):
                known = (self._of_call[each] for each in item.numbers if each in self._of_call)
                self._tail(self._lane).update(known)

    def _tail(self, lane: int) -> set[int]:
        return self._tails.setdefault(lane, set())

    def _take(self, event: LaneEvent) -> None:
        """Take one event.

        Kernels, another stream, a CUDA event recorded or waited for, a wait of the host.
        """
        match event.kind:
            case "kernels":
                part = StreamPart(lane=self._lane, after=set(), us=event.us, host_us=event.host_us)
                self._start(part, ends=True)
            case "on":
                self._lane = event.lane
            case "mark":
                self._marks[event.mark] = set(self._tail(event.lane))
            case "await":
                self._tail(event.lane).update(self._marks.get(event.mark, ()))
            case "host" if not event.place.frames:  # of an older record: an order, and no line
                self._host |= self._tail(self._lane)
            case "host":
                if event.all:
                    self._tail(self._lane).update(*self._tails.values())
                part = StreamPart(lane=self._lane, after=set(), place=event.place)
                self._host = {self._start(part, ends=True)}
            case "step":
                self.steps.append(len(self.nodes))

    def _call(self, call: RecordedCall) -> None:
        number = self._start(
            StreamPart(lane=self._lane, after=set(), call=call), ends=call.completes
        )
        self._of_call[call.number] = number
        if call.operation.endswith("barrier"):
            self._host.add(number)

    def _start(self, node: StreamPart, *, ends: bool) -> int:
        """Add a part; what follows on its stream needs it where it `ends` what is before."""
        number = len(self.nodes)
        tail = self._tail(node.lane)
        node.after |= tail | self._host
        if ends:
            self._tails[node.lane] = {number}
        self.nodes.append(node)
        return number


def take_last_step(record: RankRecord) -> RankRecord:
    """Return the record of the last step of an optimizer alone, in the order of the GPU.

    Without two steps it is the whole program.
    """
    graph = _Graph(record)
    nodes = graph.nodes
    begin, end = 0, len(nodes)
    if len(graph.steps) > 1:
        begin, end = graph.steps[-2:]
    if len(graph.steps) == 1:
        end = graph.steps[0]
    step = [
        replace(each, after={at - begin for at in each.after if at >= begin})
        for each in nodes[begin:end]
    ]
    created = [item for item in record.items if isinstance(item, BlockingCall)]
    return replace(record, items=[*created, *_order_items(step)], lanes=[], threaded=False)


def _order_items(nodes: list[StreamPart]) -> Iterable[Item]:
    """Return the items of parts in the order in which they begin."""
    main = _main_needs(nodes)
    _find_slots(nodes, main)
    slots: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        if node.call is not None or node.lane != MAIN:
            slots.setdefault(node.slot, []).append(number)
    writer = _Writer(nodes)
    for slot, (number, needs) in enumerate([*main.items(), (-1, set())]):
        for each in sorted(slots.get(slot, ()), key=lambda at: (bool(nodes[at].needs), at)):
            writer.write(each)
        writer.wait(needs)
        if number >= 0:
            writer.write(number)
    writer.wait(set(writer.open))
    return writer.items()


def _main_needs(nodes: list[StreamPart]) -> dict[int, set[int]]:
    """Return the calls that each part of the main stream waits for first, with what those need.

    A call that was waited for by an earlier part is not in the list: its kernels have come after
    it.
    """
    found: dict[int, set[int]] = {}
    waited: set[int] = set()
    for number, node in enumerate(nodes):
        is_main = node.call is None and node.lane == MAIN
        for before in node.after:
            other = nodes[before]
            if other.call is not None:
                node.needs |= {before, *other.needs}
            elif before not in found:
                node.needs |= other.needs
        if is_main:
            found[number] = node.needs - waited
            waited |= node.needs
    return found


def _find_slots(nodes: list[StreamPart], main: Mapping[int, set[int]]) -> None:
    """Find before which part of the main stream each other part is done."""
    index = {number: at for at, number in enumerate(main)}
    waited = {call: index[number] for number, calls in main.items() for call in calls}
    last: dict[str, int] = {}
    for number, node in enumerate(nodes):
        if number in index:
            continue
        slot = 0
        for before in node.after:
            slot = max(slot, index[before] + 1 if before in index else nodes[before].slot)
        for call in node.needs:
            slot = max(slot, waited.get(call, len(main)))
        if node.call is not None:  # a communicator keeps the order of its calls
            group = node.call.group_name
            if group in last:
                previous = nodes[last[group]]
                slot = max(slot, previous.slot)
                if previous.needs and slot == previous.slot:
                    node.needs |= previous.needs
            last[group] = number
        node.slot = slot


class _Writer:
    """Writes parts as items; kernels that follow each other are one."""

    def __init__(self, nodes: list[StreamPart]) -> None:
        self._nodes = nodes
        self._items: list[Item] = []
        #: calls that are begun and not waited for, in order
        self.open: dict[int, None] = {}
        self._run = KernelRun()

    def write(self, number: int) -> None:
        """Write a part, behind the waits that it needs."""
        node = self._nodes[number]
        if node.call is None:
            self.wait(node.needs)
            part = KernelRun(node.us, node.host_us)
            if not self._run.takes(part):
                self._flush()
            self._run.add(part)
            if node.place is not None:
                self._flush(node.place)
            return
        self.wait(node.needs)
        self._flush()
        self.open[number] = None
        self._items.append(replace(node.call, completes=False, loose=False, waited=True))

    def wait(self, calls: set[int]) -> None:
        """Write a wait for those of some calls that are under way."""
        found = [each for each in self.open if each in calls]
        if not found:
            return
        self._flush()
        for each in found:
            del self.open[each]
        begun = [self._nodes[each].call for each in found]
        known = [call for call in begun if call is not None]
        last = self._items[-1]
        if len(known) == 1 and isinstance(last, RecordedCall) and last.number == known[0].number:
            last.completes = last.batch is None
            if last.completes:
                return
        numbers = tuple(call.number for call in known)
        self._items.append(RecordedWait(numbers=numbers, place=known[0].place))

    def _flush(self, place: ScriptPlace | None = None) -> None:
        run, self._run = self._run, KernelRun()
        item = RecordedKernels(us=run.us, host_us=run.host_us)
        if place is not None:
            item = replace(item, place=place, synchronizes=True)
            last = self._items[-1] if self._items else None
            if isinstance(last, RecordedKernels) and last.place == place and not run.us:
                item = replace(item, us=last.us, host_us=last.host_us + run.host_us)
                self._items.pop()
        if run.us or run.host_us or place is not None:
            self._items.append(item)

    def items(self) -> list[Item]:
        """Return what was written."""
        self._flush()
        return self._items


def add_twins(records: Mapping[int, RankRecord]) -> dict[int, RankRecord] | None:
    """Return the records, and for a rank without one that of the recorded rank before it.

    A twin does the same in the groups along the same dimensions of the mesh of ranks. None where a
    group of a recorded rank is not along a dimension of a mesh: then only that rank knows its part.

        tp groups of 2: (0, 1) (2, 3)    rank 0 is recorded in (0, 1)    its twin 2 is in (2, 3)
    """
    world = max((each.world_size for each in records.values()), default=0)
    found = dict(records)
    lines = {
        source.rank: {gid: _find_line(ranks) for gid, (_, ranks, _) in source.groups.items()}
        for source in records.values()
    }
    if any(line is None for each in lines.values() for line in each.values()):
        return None
    sends = {
        source.rank: any(isinstance(i, RecordedCall) and i.peer is not None for i in source.items)
        for source in records.values()
    }
    #: twins in the same groups have these, and their calls, in common
    known: dict[tuple[int, tuple[int, ...]], tuple[_Groups, list[Item]]] = {}
    for rank in range(world):
        if rank in records:
            continue
        source = records[max((each for each in records if each <= rank), default=min(records))]
        along = {gid: line for gid, line in lines[source.rank].items() if line is not None}
        shift = rank - source.rank
        shared = (source.rank, tuple(line.find_first(rank) for line in along.values()))
        has_peers = sends[source.rank]
        groups, items = known.get(shared, ({}, []))
        if not groups:
            groups = {
                gid: (name, along[gid].list_ranks(rank), described)
                for gid, (name, _, described) in source.groups.items()
            }
        if not items or has_peers:
            items = [_item_of(item, groups, shift) for item in source.items]
        known[shared] = groups, items
        about = {"mode": "assumed"} if not has_peers else {}
        found[rank] = replace(source, rank=rank, items=items, groups=groups, about=about)
    return found


class _Line(NamedTuple):
    """The groups along a dimension of a mesh: so many ranks, each so far from the one before."""

    stride: int
    extent: int

    def find_first(self, rank: int) -> int:
        """Return the first rank of the group that a rank is in."""
        return rank - rank // self.stride % self.extent * self.stride

    def list_ranks(self, rank: int) -> tuple[int, ...]:
        """Return the group that a rank is in."""
        first = self.find_first(rank)
        return tuple(range(first, first + self.extent * self.stride, self.stride))


def _find_line(ranks: tuple[int, ...]) -> _Line | None:
    """Return the dimension that a group is along; None where that has none."""
    line = _Line(ranks[1] - ranks[0] if len(ranks) > 1 else 1, len(ranks))
    return line if line.stride > 0 and line.list_ranks(ranks[0]) == ranks else None


def _item_of(item: Item, groups: _Groups, shift: int) -> Item:
    if not isinstance(item, RecordedCall):
        return item
    ranks = groups[int(item.group_name)][1]
    root = None if item.root is None else ranks[item.group.index(item.root)]
    peer = None if item.peer is None else item.peer + shift
    return replace(item, group=ranks, root=root, peer=peer)
