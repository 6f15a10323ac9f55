"""Traffic + network -> when each message started and ended, and what it waited for.

A message starts once both of its ends have been posted (its sender's alone, where it is small
enough to be buffered) and its links are free; it takes the latency of its route, then its bytes at
the bandwidth of the slowest link. A link is held for the bytes alone, latency is no occupancy; of
the messages that wait for it the first to be ready goes on whose other links are free, too. A
sender of up to `eager` bytes is free once they are out, any other when they have arrived. A
collective in one call begins when its last member has entered, and the one before it in its group
is done: a communicator has one stream.

Where a call takes its host some time, each rank has two lines of time: its host's, which makes one
call after the other, and its stream's, on which a call begins once it is made and what is before it
is done. A host runs ahead of its stream, until it waits for it (:class:`HostTimes`).

There are two replays of the same rules. :func:`replay_events` takes one event after the other in
the order of time. :func:`replay_together` takes what many ranks do at one stroke together, as the
analysis noted it; it says whether that was exact: where messages contend for a link in another
order than they came about, it is not.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from math import inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from torch_scenarios.cost.topology import Network, Routes
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.model.traffic import (
    Enter,
    EnterGroups,
    Finish,
    Meet,
    Pause,
    Traffic,
    TrafficRow,
)
from torch_scenarios.model.traits import NCCL

#: what made a rank, or a message, wait: nothing (the start), an event by its number
START = -1

#: the time of a collective: what ranks entered, and when the last one did -> microseconds
Timed: TypeAlias = Callable[[Enter], float]
#: the part of a GPU's SMs that a collective takes from kernels while it runs
Taken: TypeAlias = Callable[[Enter], float]
#: a collective that runs: from when until when, and what it takes
Running: TypeAlias = tuple[float, float, float]
#: what collectives leave of a GPU at the least
LEAST_LEFT = 0.25

#: why a message started no earlier
BY_SENDER, BY_RECEIVER, BY_LINK = 0, 1, 2


class ReplayEvent(Struct, frozen=True):
    """What took time: a message, or else `name`. Times are microseconds.

    `cause` is why it started no earlier, `before` the event that this came of (START: none), `link`
    the link that was held. `source` and `target` are ranks; `target` is -1 where the event is not a
    message. `group` is the name of the process group, empty for a pause.

        posted        started              sent       ended
           | waits for   |  bytes on the    | latency   |
           | the other   |  links           |           |

    `posted` is when the sender posts; the links are free again at `sent`.
    """

    source: int
    target: int
    size: float
    posted: float
    started: float
    sent: float
    ended: float
    cause: int
    before: int
    link: int
    step: int
    group: str
    name: str | None


#: one stroke of events: a column for each field of them, or a number that all have
Stroke: TypeAlias = tuple[Any, ...]
FIELDS = (
    *("source", "target", "size", "posted", "started", "sent", "ended"),
    *("cause", "before", "link", "step", "group"),
)


class ReplayEvents:
    """Everything that took time, by number, as it was noted: the columns of each stroke.

    Columns are joined only where one is asked for: millions of messages are told by their sums and
    by the few of the critical path.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.strokes: list[Stroke] = []
        self.names: dict[int, str] = {}
        self._firsts: list[int] = []
        self._count = 0
        self._joined: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    def add(self, width: int, *columns: Any) -> int:
        """Note a stroke of which `source` is a column; returns the number of its first event.

        The columns are those of `FIELDS`, each an array of `width` elements, or a number that all
        have.
        """
        first = self._count
        if width:
            self.strokes.append(columns)
            self._firsts.append(first)
            self._count += width
        return first

    def __getitem__(self, number: int) -> ReplayEvent:
        """Return an event."""
        stroke = bisect_right(self._firsts, number) - 1
        row = number - self._firsts[stroke]
        fields: list[Any] = [
            part if isinstance(part, int | float | str) else part[row].item()
            for part in self.strokes[stroke]
        ]
        event = dict(zip(FIELDS, fields, strict=True))
        return ReplayEvent(name=self.names.get(number), **event)

    def column(self, name: str) -> NDArray[Any]:
        """Return one field of all events."""
        found = self._joined.get(name)
        if found is None:
            place = FIELDS.index(name)
            parts = [
                np.full(len(stroke[0]), stroke[place])
                if isinstance(stroke[place], int | float | str)
                else stroke[place]
                for stroke in self.strokes
            ]
            found = self._joined[name] = np.concatenate(parts) if parts else np.zeros(0)
        return found


class Replay(Struct, frozen=True, kw_only=True, dict=True):
    """The times of a program: when each rank is done, by which event, and all events.

    `ended` and `last` are `[W]`: microseconds, and the number of the event that a rank was done
    with last (START: none). `idle` `[W]` is how long the stream of each waited for its host, and
    `slowed` `[W]` how much longer its kernels took for collectives that ran meanwhile.
    """

    ended: NDArray[np.float64]
    last: NDArray[np.int64]
    events: ReplayEvents
    idle: NDArray[np.float64]
    slowed: NDArray[np.float64]
    exact: bool = True

    @property
    def time(self) -> float:
        """When the last rank is done, in microseconds."""
        return float(self.ended.max(initial=0.0))

    @cached_property
    def path(self) -> list[int]:
        """The events of the critical path, the first one first.

        Each event knows the one that it waited for (`before`). From the last event of the rank that
        ends last, that leads back to the start: the chain of which each link would have to be
        quicker for the program to be.
        """
        found: list[int] = []
        at = int(self.last[int(self.ended.argmax())]) if len(self.ended) else START
        while at != START:
            found.append(at)
            at = self.events[at].before
        return found[::-1]


# -------------------------------------------------------------------------------------------------
# The hosts, which make the calls that their streams run.


class HostTimes:
    """The hosts of ranks: when each is free, and the event for which it waited last (START: none).

    A call takes a host `launch` microseconds. Three calls of t on one stream, and a barrier::

        host    |call|call|call|call|           waits|
        stream       |  t   |  t   |  t   | barrier  |

    So n calls take launch + t + (n - 1) max(launch, t), and n that are each waited for n (launch +
    t). `work.wait()` lets the stream wait, and not the host. Kernels of t that a host takes h to
    start end no sooner than it has started them. A host that synchronizes begins with what follows
    once its stream has nothing left to do.

    >>> hosts, rank, clock = HostTimes(1, launch=3.0), np.array([0]), np.array([0.0])
    >>> for _ in range(3):
    ...     began, _ = hosts.call(rank, clock, np.array([START]))
    ...     clock = began + 10.0
    ...     print(began, clock)
    [3.] [13.]
    [13.] [23.]
    [23.] [33.]
    >>> hosts.free, hosts.idle
    (array([9.]), array([3.]))
    """

    def __init__(self, world_size: int, launch: float) -> None:
        """Begin with hosts that are free."""
        self.launch = launch
        self.free = np.zeros(world_size)
        self.waited = np.full(world_size, START)
        #: how long the stream of each rank waited for its host, with nothing to do
        self.idle = np.zeros(world_size)

    def call(self, ranks: Any, clock: Any, last: Any) -> tuple[Any, Any]:
        """Let ranks make a call, whose streams are done with `last` at `clock`.

        Returns from when on the call may run, and the event that this comes of: what the stream was
        done with last, or what the host had waited for where the host is the later of the two.
        """
        return self.work(ranks, self.launch, clock, last)

    def work(self, ranks: Any, took: float, clock: Any, last: Any) -> tuple[Any, Any]:
        """Let the hosts of ranks work so long; the rest as in :meth:`call`."""
        self.free[ranks] += took
        late = self.free[ranks] > clock
        self.idle[ranks] += np.maximum(0.0, self.free[ranks] - clock)
        return np.where(late, self.free[ranks], clock), np.where(late, self.waited[ranks], last)

    def wait(self, ranks: Any, clock: Any, last: Any) -> None:
        """Let the hosts of ranks wait until their streams are done with `last`, at `clock`."""
        late = clock > self.free[ranks]
        self.waited[ranks] = np.where(late, last, self.waited[ranks])
        self.free[ranks] = np.where(late, clock, self.free[ranks])


def has_hosts(traffic: Traffic, launch: float) -> bool:
    """Return whether anything of a program takes its hosts some time."""
    return launch > 0 or any(isinstance(each, Pause) and each.host_s for each in traffic.entries)


def host_waits(entry: Enter) -> bool:
    """Return whether a host waits for a collective on NCCL: for all members, or for bytes to read.

    torch/distributed/distributed_c10d.py reads the sizes of objects on the host.
    """
    return entry.name in NCCL.join_hosts or bool(entry.parts)


# -------------------------------------------------------------------------------------------------
# Kernels, from which collectives take SMs.


def end_of_kernels(began: float, took: float, running: Sequence[Running]) -> float:
    """Return when kernels end that take so long by themselves, while collectives run.

    A collective's thread blocks keep SMs for themselves, so that kernels go on more slowly until it
    ends. Those of 9 us of which a third of the GPU is taken for the first 3:

    >>> end_of_kernels(0.0, 9.0, [(0.0, 3.0, 1 / 3)])
    10.0
    """
    now, left = began, took
    while True:
        part = sum(each for start, end, each in running if start <= now < end)
        rate = max(LEAST_LEFT, 1 - part)
        later = [edge for start, end, _ in running for edge in (start, end) if edge > now]
        until = min(later, default=inf)
        if left <= (until - now) * rate:
            return now + left / rate
        left -= (until - now) * rate
        now = until


class RunningCollectives:
    """What collectives run on each rank, and how much longer its kernels took for them."""

    def __init__(self, world_size: int, taken: Taken | None) -> None:
        """Begin with none; `taken` is None where what kernels take is measured, theirs included."""
        self._taken = taken
        self.is_asked = taken is not None
        self._running: dict[int, list[Running]] = {}
        self._until = np.zeros(world_size)
        self.slowed = np.zeros(world_size)

    def add(self, entry: Enter, ranks: Iterable[int], began: float, ended: float) -> None:
        """Note a collective that runs on some ranks."""
        part = 0.0 if self._taken is None else self._taken(entry)
        if part == 0:
            return
        for rank in ranks:
            self._running.setdefault(rank, []).append((began, ended, part))
            self._until[rank] = max(self._until[rank], ended)

    def end(self, rank: int, began: float, took: float) -> float:
        """Return when kernels of a rank end that begin then; forget what has ended before."""
        if self._until[rank] <= began:
            return began + took
        own = [each for each in self._running[rank] if each[1] > began]
        self._running[rank] = own
        ended = end_of_kernels(began, took, own)
        self.slowed[rank] += ended - began - took
        return ended

    def end_together(
        self, ranks: NDArray[np.int64], began: NDArray[np.float64], took: float
    ) -> NDArray[np.float64]:
        """Return the same of many ranks."""
        found = began + took
        for row in np.flatnonzero(self._until[ranks] > began).tolist():
            found[row] = self.end(int(ranks[row]), float(began[row]), took)
        return found


# -------------------------------------------------------------------------------------------------
# One event after the other.


class _SentMessage(NamedTuple):
    """A message of `size` bytes from one rank to another, posted by the step of that index."""

    source: int
    target: int
    size: float
    step: int
    group: str


#: the group of all ranks
WORLD = "world"


def _time_on_channels(
    network: Network,
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    sizes: Any,
    steps: NDArray[np.int64] | int = 0,
) -> NDArray[np.float64]:
    """Return what messages of a step take at least, where all ranks are in one node.

    A rank to which one of them goes, and that sends one in the same step, has posted both at once.
    One that sends several has as many channels for each of them, and its links take longer.
    """
    least = np.zeros(len(src))
    if network.nodes == 1:
        places = network.world_size * np.asarray(steps)
        _, at, sends = np.unique(places + src, return_inverse=True, return_counts=True)
        both = np.isin(places + dst, places + src) & (sends[at] == 1)
        own = np.broadcast_to(sizes, len(src))
        for size in np.unique(own[both]):
            time = network.time_on_channels(float(size), network.world_size)
            least[both & (own == size)] = time
    return least


def _find_steps_of_several(traffic: Traffic) -> frozenset[int]:
    """Return the steps in which a rank sends more than one message."""
    sends: Counter[tuple[int, int]] = Counter()
    for each in traffic.split_groups():
        if isinstance(each, TrafficRow) and each.sends:
            sends.update((each.step, rank) for rank in np.atleast_1d(each.ranks).tolist())
    return frozenset(step for (step, _), count in sends.items() if count > 1)


class _OtherEvent(NamedTuple):
    """An event other than a message, as a collective or a pause: when, and on which rank."""

    began: float
    ended: float
    before: int
    step: int
    name: str
    rank: int
    group: str


class _Program(Struct):
    """What each rank does, in order, and the messages and collectives that it takes part in.

    `ranks` has, for each rank, triples of a kind (`_POST_SEND`, ...), the number of a message or a
    collective, and for a pause its microseconds.
    """

    ranks: list[list[tuple[int, int, float]]]
    messages: list[_SentMessage]
    #: of each collective: its members' number, the entry, those that entered
    collectives: list[tuple[int, Enter]]


_POST_SEND, _POST_RECEIVE, _DONE_SEND, _DONE_RECEIVE, _ENTER, _LEAVE, _PAUSE = range(7)
#: what hosts do
_CALL, _WAIT, _HOST = 7, 8, 9


def _rows(rows: Any, width: int) -> Sequence[int]:
    if rows is None:
        return range(width)
    found: list[int] = np.atleast_1d(rows).tolist()
    return found


class _Unrolled:
    """Traffic, rank by rank, as it is read entry by entry; with what `hosts` do, if asked.

    The analysis notes strokes: rows of many ranks that post at once, and rows of two posts that
    meet. Here each row becomes a line in the program of its rank. Meets are read first, since a
    post comes before the analysis knows which message it is the end of.
    """

    def __init__(self, traffic: Traffic, *, hosts: bool = False) -> None:
        self.hosts = hosts
        self.program = _Program([[] for _ in range(traffic.world_size)], [], [])
        self.posts: dict[int, TrafficRow] = {}
        #: (post, row) -> message
        self.ends: dict[tuple[int, int], int] = {}
        #: (post, row) -> the message that goes before it
        self.headers: dict[tuple[int, int], int] = {}
        self.counts: dict[tuple[str, int], int] = {}
        self.numbers: dict[tuple[str, int], int] = {}
        self.entered: dict[tuple[int, int], int] = {}
        for each in traffic.entries:
            if isinstance(each, TrafficRow):
                self.posts[each.number] = each
            elif isinstance(each, Meet):
                self.meet(each)
        for each in traffic.split_groups():
            if isinstance(each, TrafficRow):
                self.post(each)
            elif isinstance(each, Finish):
                self.finish(each)
            elif isinstance(each, Enter):
                self.enter(each)
            elif isinstance(each, Pause):
                self.pause(each)

    def pause(self, entry: Pause) -> None:
        for rank in np.atleast_1d(entry.ranks).tolist():
            program = self.program.ranks[rank]
            if entry.seconds:
                program.append((_PAUSE, entry.step, entry.seconds * 1e6))
            if entry.host_s and self.hosts:
                program.append((_HOST, entry.step, entry.host_s * 1e6))
            if entry.synchronizes and self.hosts:
                program.append((_WAIT, entry.step, 0.0))

    def meet(self, entry: Meet) -> None:
        """Number the messages of two posts; an object has one for its length before its own."""
        send, receive = self.posts[entry.send], self.posts[entry.receive]
        out, into = np.atleast_1d(send.ranks), np.atleast_1d(receive.ranks)
        sent, got = _rows(entry.sent, len(out)), _rows(entry.received, len(into))
        messages = self.program.messages
        for one, two in zip(sent, got, strict=True):
            if send.header is not None:
                self.headers[entry.send, one] = self.headers[entry.receive, two] = len(messages)
                ends = int(out[one]), int(into[two])
                messages.append(_SentMessage(*ends, float(send.header), send.step, send.group))
            self.ends[entry.send, one] = self.ends[entry.receive, two] = len(messages)
            ends = int(out[one]), int(into[two])
            messages.append(_SentMessage(*ends, float(send.size), send.step, send.group))

    def post(self, entry: TrafficRow) -> None:
        kind = _POST_SEND if entry.sends else _POST_RECEIVE
        for row, rank in enumerate(np.atleast_1d(entry.ranks).tolist()):
            message = self.ends.get((entry.number, row))
            header = self.headers.get((entry.number, row))
            program = self.program.ranks[rank]
            if self.hosts and entry.begins:
                program.append((_CALL, 0, 0.0))
            if header is not None:
                done = _DONE_SEND if entry.sends else _DONE_RECEIVE
                program += [(kind, header, 0.0), (done, header, 0.0)]
                if self.hosts:  # which reads the size before it makes the next call
                    program += [(_WAIT, 0, 0.0), (_CALL, 0, 0.0)]
            if message is not None:
                program.append((kind, message, 0.0))

    def finish(self, entry: Finish) -> None:
        post = self.posts.get(entry.post)
        mine: list[int] = np.atleast_1d(entry.ranks).tolist()
        if post is None:
            for rank in mine:
                number = self.entered[entry.post, rank]
                self.program.ranks[rank].append((_LEAVE, number, 0.0))
                if self.hosts and host_waits(self.program.collectives[number][1]):
                    self.program.ranks[rank].append((_WAIT, 0, 0.0))
            return
        kind = _DONE_SEND if post.sends else _DONE_RECEIVE
        for rank, row in zip(mine, _rows(entry.rows, len(mine)), strict=True):
            message = self.ends.get((entry.post, row))
            if message is not None:
                self.program.ranks[rank].append((kind, message, 0.0))
            if self.hosts and post.header is not None and not post.sends:
                self.program.ranks[rank].append((_WAIT, 0, 0.0))

    def enter(self, entry: Enter) -> None:
        collectives = self.program.collectives
        for rank in np.atleast_1d(entry.ranks).tolist():
            nth = self.counts[entry.key, rank] = self.counts.get((entry.key, rank), -1) + 1
            number = self.numbers.setdefault((entry.key, nth), len(collectives))
            if number == len(collectives):
                collectives.append((entry.quorum, entry))
            self.entered[entry.number, rank] = number
            if self.hosts:
                self.program.ranks[rank].append((_CALL, 0, 0.0))
            self.program.ranks[rank].append((_ENTER, number, 0.0))


def replay_events(
    traffic: Traffic,
    network: Network,
    timed: Timed,
    scale: float = 1.0,
    launch: float = 0.0,
    taken: Taken | None = None,
) -> Replay:
    """Return the times of a program, one event after the other.

    `scale` multiplies all bytes; `launch` is what a call takes its host, in microseconds; `taken`
    is what a collective takes of a GPU.
    """
    program = _Unrolled(traffic, hosts=has_hosts(traffic, launch)).program
    return _Run(program, network, timed, scale, launch, taken).run()


class _Run:
    """The state of one replay of single events.

    Ranks go on (`go`) until each waits for a message or a collective that has not started. Then
    time goes on (`run`): the earliest message that is ready, or link that becomes free. A message
    starts, and its ranks go on. No rank goes beyond what it knows, so that times never have to be
    taken back.
    """

    def __init__(
        self,
        program: _Program,
        network: Network,
        timed: Timed,
        scale: float,
        launch: float,
        taken: Taken | None,
    ) -> None:
        self.program, self.network, self.timed = program, network, timed
        self.hosts = HostTimes(len(program.ranks), launch)
        self.running = RunningCollectives(len(program.ranks), taken)
        count = len(program.messages)
        src = np.array([each.source for each in program.messages], np.int64)
        dst = np.array([each.target for each in program.messages], np.int64)
        self.size = [each.size * scale for each in program.messages]
        if count:
            routes = network.routes(src, dst)
            sizes = np.array(self.size)
            late = np.where(sizes <= network.small, routes.quick, routes.latency)
            self.latency: list[float] = late.tolist()
            carried = network.count_link_bytes(sizes)
            steps = np.array([each.step for each in program.messages], np.int64)
            least = _time_on_channels(network, src, dst, sizes, steps)
            least *= [each.group == WORLD for each in program.messages]
            self.busy: list[float] = np.maximum(routes.slowest * carried, least).tolist()
            held = routes.per_byte * carried[:, np.newaxis]
            self.links: list[list[tuple[int, float]]] = [
                [(link, time) for link, time in zip(row, times, strict=True) if link >= 0]
                for row, times in zip(routes.links.tolist(), held.tolist(), strict=True)
            ]
        self.eager = network.topology.eager
        world = len(program.ranks)
        self.clock = [0.0] * world
        self.last = [START] * world
        self.at = [0] * world
        #: of messages: when each end was posted, and by which event its rank came there
        nan = None
        self.sent_at: list[float | None] = [nan] * count
        self.got_at: list[float | None] = [nan] * count
        self.sent_by, self.got_by = [START] * count, [START] * count
        self.started, self.out, self.ended = [-1.0] * count, [-1.0] * count, [-1.0] * count
        self.cause, self.before, self.link = [0] * count, [START] * count, [-1] * count
        #: message, or collective (negative), -> ranks that wait for it
        self.waiting: dict[int, list[int]] = {}
        #: (time, message) that is ready by then, (time, -1 - link) that is free by then
        self.heap: list[tuple[float, int]] = []
        #: link -> (when it was ready, message) for those that wait for it
        self.queues: dict[int, list[tuple[float, int]]] = {}
        self.free = [0.0] * network.count
        self.holder = [START] * network.count
        collectives = len(program.collectives)
        self.entered: list[list[tuple[float, int, int]]] = [[] for _ in range(collectives)]
        self.left = [-1.0] * collectives
        self.number_of = [START] * collectives
        #: until when the collectives of a group keep its stream, and the last one of them
        self.streams: dict[str, tuple[float, int]] = {}
        self.others: list[_OtherEvent] = []
        #: how many collectives each rank has entered that have not begun, and whose kernels wait
        #: until as many ranks as can have come to theirs; and those that may go on
        self.open = [0] * world
        self.deferred: list[int] = []
        self.allowed: set[int] = set()
        #: ranks that may go on, and what each kind of their steps does: False where it waits
        self.todo: deque[int] = deque()
        self.does: tuple[Callable[[int, int, float], bool], ...] = (
            *(self._post_send, self._post_receive, self._finish_send, self._finish_receive),
            *(self.enter, self.leave, self.pause, self.call, self.wait, self.work),
        )

    def run(self) -> Replay:
        """Take what is ready in the order of time, until nothing is left.

        The heap holds numbers of messages, and links as -1 - link. Of those that waited for a link
        the one that was ready first starts first, if its other links are free: another may overtake
        it there.
        """
        for rank in range(len(self.clock)):
            self.go(rank)
        self.release()
        heap = self.heap
        while heap:
            now, message = heapq.heappop(heap)
            if message >= 0:
                self.ready(message, now, now)
                self.release()
                continue
            link = -1 - message
            queue = self.queues.get(link)
            if not queue or self.free[link] > now:
                continue
            self.queues[link] = []
            for since, waiting in sorted(queue):
                self.ready(waiting, since, now, link)
            self.release()
        return self.result()

    def release(self) -> None:
        """Let the kernels of ranks run that waited to know which collectives run meanwhile.

        Their ranks have entered some whose last member came later by the order in which ranks are
        taken, and not by the clock.
        """
        while self.deferred:
            ranks, self.deferred = self.deferred, []
            self.allowed.update(ranks)
            for rank in ranks:
                self.go(rank)

    def ready(self, message: int, since: float, now: float, freed: int = -1) -> None:
        """Start a message whose links are free, or let it wait for one that is not.

        It waits in the queue of one link at a time. Once that is free all of its links are looked
        at again: a message from rank 0 to rank 1 needs the port out of 0 and the port into 1.
        """
        free = self.free
        for link, _ in self.links[message]:
            if free[link] > now:
                queue = self.queues.setdefault(link, [])
                if not queue:
                    heapq.heappush(self.heap, (free[link], -1 - link))
                queue.append((since, message))
                return
        self.start(message, now, freed)
        for rank in self.waiting.pop(message, ()):
            self.go(rank)

    def go(self, rank: int) -> None:
        """Let a rank, and those it releases, go on until they wait for what has not started."""
        todo, does = self.todo, self.does
        todo.append(rank)
        while todo:
            rank = todo.popleft()
            program = self.program.ranks[rank]
            at, end = self.at[rank], len(program)
            while at < end:
                kind, number, duration = program[at]
                if not does[kind](rank, number, duration):
                    break
                at += 1
            self.at[rank] = at

    def _post_send(self, rank: int, number: int, _: float) -> bool:
        clock = self.clock[rank]
        self.sent_at[number], self.sent_by[number] = clock, self.last[rank]
        got = self.got_at[number]
        if self.size[number] <= self.eager:
            heapq.heappush(self.heap, (clock, number))
        elif got is not None:
            heapq.heappush(self.heap, (max(clock, got), number))
        return True

    def _post_receive(self, rank: int, number: int, _: float) -> bool:
        clock = self.clock[rank]
        self.got_at[number], self.got_by[number] = clock, self.last[rank]
        # whichever end is posted last makes the message ready; an eager one was ready with its send
        sent = self.sent_at[number]
        if sent is not None and self.size[number] > self.eager:
            heapq.heappush(self.heap, (max(sent, clock), number))
        return True

    def _finish_send(self, rank: int, number: int, _: float) -> bool:
        small = self.size[number] <= self.eager
        return self.finish(rank, number, (self.out if small else self.ended)[number])

    def _finish_receive(self, rank: int, number: int, _: float) -> bool:
        return self.finish(rank, number, self.ended[number])

    def finish(self, rank: int, number: int, done: float) -> bool:
        """Let a rank be done with a message; returns False where that has not started yet."""
        if self.started[number] < 0:
            self.waiting.setdefault(number, []).append(rank)
            return False
        if done > self.clock[rank]:
            self.clock[rank], self.last[rank] = done, number
        return True

    def pause(self, rank: int, step: int, duration: float) -> bool:
        if self.open[rank] and rank not in self.allowed:
            self.deferred.append(rank)
            return False
        self.allowed.discard(rank)
        clock = self.clock[rank]
        ended = self.running.end(rank, clock, duration)
        event = self.other(clock, ended, self.last[rank], step, "pause", rank, "")
        self.clock[rank], self.last[rank] = ended, event
        return True

    def call(self, rank: int, _number: int, _: float) -> bool:
        clock, last = self.hosts.call(rank, self.clock[rank], self.last[rank])
        self.clock[rank], self.last[rank] = float(clock), int(last)
        return True

    def work(self, rank: int, _step: int, duration: float) -> bool:
        clock, last = self.hosts.work(rank, duration, self.clock[rank], self.last[rank])
        self.clock[rank], self.last[rank] = float(clock), int(last)
        return True

    def wait(self, rank: int, _number: int, _: float) -> bool:
        self.hosts.wait(rank, self.clock[rank], self.last[rank])
        return True

    def enter(self, rank: int, number: int, _: float) -> bool:
        entered = self.entered[number]
        entered.append((self.clock[rank], self.last[rank], rank))
        members, entry = self.program.collectives[number]
        self.open[rank] += self.running.is_asked
        if len(entered) == members:
            for _, _, each in entered:
                self.open[each] -= self.running.is_asked
            began, before, slowest = max(entered, key=lambda each: each[0])
            free, last = self.streams.get(entry.key, (0.0, START))
            if free > began:
                began, before = free, last
            self.left[number] = began + self.timed(entry)
            self.running.add(entry, (each for _, _, each in entered), began, self.left[number])
            self.streams[entry.key] = (
                self.left[number],
                len(self.program.messages) + len(self.others),
            )
            self.number_of[number] = self.other(
                began, self.left[number], before, entry.step, entry.name, slowest, entry.group
            )
            self.todo.extend(self.waiting.pop(-1 - number, ()))
        return True

    def leave(self, rank: int, number: int, _: float) -> bool:
        left = self.left[number]
        if left < 0:
            self.waiting.setdefault(-1 - number, []).append(rank)
            return False
        if left > self.clock[rank]:
            self.clock[rank], self.last[rank] = left, self.number_of[number]
        return True

    def start(self, message: int, started: float, link: int) -> None:
        """Start a message; `link` is the one that it waited for, -1 for none.

        Each link is held for its bytes alone, as long as that link takes for them: the latency is
        on the way of this message, and not in the way of the next. (In LogGP's terms G counts, and
        L does not; Alexandrov et al., 1995.)
        """
        for each, time in self.links[message]:
            self.free[each] = started + time
            if self.queues.get(each):
                heapq.heappush(self.heap, (started + time, -1 - each))
        if link >= 0:
            self.cause[message], self.before[message] = BY_LINK, self.holder[link]
            self.link[message] = link
        else:
            sent, got = self.sent_at[message], self.got_at[message]
            late = self.size[message] > self.eager and (got or 0.0) > (sent or 0.0)
            self.cause[message] = BY_RECEIVER if late else BY_SENDER
            self.before[message] = (self.got_by if late else self.sent_by)[message]
        for each, _ in self.links[message]:
            self.holder[each] = message
        self.started[message] = started
        self.out[message] = started + self.busy[message]
        self.ended[message] = started + self.latency[message] + self.busy[message]

    def other(
        self,
        began: float,
        ended: float,
        before: int,
        step: int,
        name: str,
        rank: int,
        group: str,
    ) -> int:
        """Note an event that is not a message; return its number."""
        self.others.append(_OtherEvent(began, ended, before, step, name, rank, group))
        return len(self.program.messages) + len(self.others) - 1

    def result(self) -> Replay:
        messages, others = self.program.messages, self.others
        events = ReplayEvents()
        if messages:
            sources, targets, _, steps, groups = map(np.array, zip(*messages, strict=True))
            posted = [0.0 if each is None else each for each in self.sent_at]
            columns = (self.size, posted, self.started, self.out, self.ended)
            rest = (self.cause, self.before, self.link)
            noted = (sources, targets, *map(np.array, (*columns, *rest)), steps, groups)
            events.add(len(messages), *noted)
        if others:
            began, ended, before, step, _, ranks, group = map(np.array, zip(*others, strict=True))
            times = (began, began, ended, ended)
            events.add(len(others), ranks, -1, 0.0, *times, BY_SENDER, before, -1, step, group)
        events.names = {len(messages) + at: each.name for at, each in enumerate(others)}
        return Replay(
            ended=np.array(self.clock),
            last=np.array(self.last, np.int64),
            events=events,
            idle=self.hosts.idle,
            slowed=self.running.slowed,
        )


# -------------------------------------------------------------------------------------------------
# What many ranks do at one stroke, together.


class _Ends(Struct):
    """One post: when each row was posted, by which event, and when it is done.

    The columns are as long as the post has rows: `ranks`, `posted` (microseconds), `by` (the event
    that each rank was done with before), `done`, and `number` (the event that the message became).
    """

    ranks: NDArray[np.int64]
    size: float
    sends: bool
    step: int
    posted: NDArray[np.float64]
    by: NDArray[np.int64]
    done: NDArray[np.float64]
    number: NDArray[np.int64]
    group: str


class _CollectiveTimes(Struct):
    """A collective of which some members came: how many, which, when the last did, by which event.

    Once all came, it ended at `ended`, as the event of that `number`.
    """

    count: int = 0
    ranks: list[int] = field(default_factory=list)
    came: float = -1.0
    before: int = START
    ended: float = -1.0
    number: int = START


class _Column(Struct, frozen=True):
    """One link of each of some messages: `distinct` where no two have the same.

    `rows` are the messages that have such a link, `links` its number for each, `per_byte`
    microseconds. The ports out of ranks are distinct where each rank sends one message; the NIC of
    a node is not.
    """

    rows: Any
    links: NDArray[np.int64]
    per_byte: NDArray[np.float64]
    distinct: bool


class _Way(Struct, frozen=True):
    """The routes of messages, made ready: a column for each link of a route, all of them `[L]`."""

    latency: NDArray[np.float64]
    quick: NDArray[np.float64]
    slowest: NDArray[np.float64]
    columns: tuple[_Column, ...]


#: routes that are remembered, of so many different strokes
MOST_WAYS = 256


def _way(routes: Routes) -> _Way:
    columns = []
    for number in range(routes.links.shape[1]):
        links = routes.links[:, number]
        used = links >= 0
        rows: Any = slice(None) if used.all() else np.flatnonzero(used)
        mine = links[rows]
        if len(mine):
            distinct = len(np.unique(mine)) == len(mine)
            columns.append(
                _Column(rows, mine.copy(), routes.per_byte[rows, number].copy(), distinct)
            )
    return _Way(routes.latency, routes.quick, routes.slowest, tuple(columns))


def replay_together(
    traffic: Traffic,
    network: Network,
    timed: Timed,
    scale: float = 1.0,
    launch: float = 0.0,
    taken: Taken | None = None,
) -> Replay:
    """Return the times of a program, what many ranks do at one stroke taken together.

    `scale` multiplies all bytes; `launch` is what a call takes its host, in microseconds; `taken`
    is what a collective takes of a GPU.
    """
    found = _StrokeReplay(traffic, network, timed, scale, launch, taken).run()
    assert found is not None
    return found


class _StrokeReplay:
    """The state of one sweep over the strokes of a program.

    A stroke is what many ranks do at once in the analysis: 16,384 sends of a ring are one row of
    numpy, and not 16,384 events in a heap. That is right as long as links are asked for in the
    order of time. It need not be: a stroke may ask for a link later than a stroke that comes after
    it. Where that is seen, `exact` is False, and a program of a size that one event after the other
    can take is replayed so.
    """

    def __init__(
        self,
        traffic: Traffic,
        network: Network,
        timed: Timed,
        scale: float,
        launch: float,
        taken: Taken | None,
    ) -> None:
        self.traffic, self.network, self.timed, self.scale = traffic, network, timed, scale
        world = traffic.world_size
        self.running = RunningCollectives(world, taken)
        self.hosts = HostTimes(world, launch) if has_hosts(traffic, launch) else None
        #: what ranks entered at one stroke, and their hosts wait for
        self.host_waits: set[int] = set()
        self.clock = np.zeros(world)
        self.last = np.full(world, START)
        self.posts: dict[int, _Ends] = {}
        self.free = np.zeros(network.count)
        self.holder = np.full(network.count, START)
        #: when what holds a link was ready, to see whether it came first; and whether a link was
        #: left idle for what waited for another one, so that a later message would go before it
        self.claimed = np.zeros(network.count)
        self.idle = np.zeros(network.count, bool)
        self.events = ReplayEvents()
        self.exact = True
        self._ways: dict[tuple[bytes, bytes], _Way] = {}
        self.eager = network.topology.eager
        self.several = _find_steps_of_several(traffic) if network.nodes == 1 else frozenset()
        #: the n-th collective of a group
        self.groups: dict[tuple[str, int], _CollectiveTimes] = {}
        self.counts: dict[str, NDArray[np.int64]] = {}
        #: of what ranks entered at one stroke, by its number: each key, its ranks, which call it is
        self.entered: dict[int, list[tuple[str, NDArray[np.int64], NDArray[np.int64]]]] = {}
        #: until when the collectives of a group keep its stream, and the last one of them
        self.streams: dict[str, tuple[float, int]] = {}

    def run(self, *, only_exact: bool = False) -> Replay | None:
        """Take one stroke after the other; None where that is not exact, and has to be."""
        for each in self.traffic.split_groups():
            if isinstance(each, TrafficRow):
                self.post(each)
            elif isinstance(each, Meet):
                self.meet(each)
            elif isinstance(each, Finish):
                self.finish(each)
            elif isinstance(each, Enter):
                self.enter(each)
            else:
                self.pause(each)
            if only_exact and not self.exact:
                return None
        idle = np.zeros(len(self.clock)) if self.hosts is None else self.hosts.idle
        times = {"ended": self.clock, "last": self.last, "idle": idle}
        slowed = self.running.slowed
        return Replay(**times, slowed=slowed, events=self.events, exact=self.exact)

    def call(self, ranks: NDArray[np.int64]) -> None:
        """Let hosts make a call, where that takes them some time."""
        if self.hosts is not None:
            made = self.hosts.call(ranks, self.clock[ranks], self.last[ranks])
            self.clock[ranks], self.last[ranks] = made

    def post(self, entry: TrafficRow) -> None:
        ranks = np.atleast_1d(entry.ranks)
        if entry.begins:
            self.call(ranks)
        self.posts[entry.number] = _Ends(
            ranks=ranks,
            size=entry.size * self.scale,
            sends=entry.sends,
            step=entry.step,
            posted=self.clock[ranks],
            by=self.last[ranks],
            done=np.zeros(len(ranks)),
            number=np.full(len(ranks), START),
            group=entry.group,
        )

    def meet(self, entry: Meet) -> None:
        """Start the messages of rows that meet: once both ends are posted, and links are free."""
        send, receive = self.posts[entry.send], self.posts[entry.receive]
        out = slice(None) if entry.sent is None else np.atleast_1d(entry.sent)
        into = slice(None) if entry.received is None else np.atleast_1d(entry.received)
        src, dst = send.ranks[out], receive.ranks[into]
        sent, got = send.posted[out], receive.posted[into]
        # A small message leaves its sender whether or not a receive is posted (it is buffered), so
        # that only a larger one can be late by its receiver.
        eager = send.size <= self.eager
        late = np.zeros(0, bool) if eager else got > sent
        ready, before = sent, send.by[out]
        cause: Any = BY_SENDER
        if late.any():
            ready, before = np.maximum(sent, got), np.where(late, receive.by[into], before)
            cause = np.where(late, BY_RECEIVER, BY_SENDER)
        way = self.way(src, dst)
        carried = float(self.network.count_link_bytes(send.size))
        started, link, holder = self.claim(ready, way, carried)
        took = way.slowest * carried
        if send.group == WORLD and send.step not in self.several:
            took = np.maximum(took, _time_on_channels(self.network, src, dst, send.size))
        out_at = started + took
        ended = out_at + (way.quick if send.size <= self.network.small else way.latency)
        if link is not None and holder is not None:
            cause = np.where(link >= 0, BY_LINK, cause)
            before = np.where(link >= 0, holder, before)
        width = len(src)
        times = (sent, started, out_at, ended)
        held = -1 if link is None else link
        rest = (cause, before, held, send.step, send.group)
        first = self.events.add(width, src, dst, send.size, *times, *rest)
        numbers = np.arange(first, first + width)
        for column in way.columns:
            mine = numbers[column.rows]
            if not column.distinct:  # who is done with the link last holds it from now on
                order = np.argsort(started[column.rows], kind="stable")
                self.holder[column.links[order]] = mine[order]
            else:
                self.holder[column.links] = mine
        send.done[out], send.number[out] = (out_at if eager else ended), numbers
        receive.done[into], receive.number[into] = ended, numbers

    def way(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> _Way:
        """Return the routes of messages; the same ranks most often talk again."""
        key = (src.tobytes(), dst.tobytes())
        found = self._ways.get(key)
        if found is None:
            if len(self._ways) >= MOST_WAYS:
                self._ways.clear()
            found = self._ways[key] = _way(self.network.routes(src, dst))
        return found

    def claim(
        self, ready: NDArray[np.float64], way: _Way, size: float
    ) -> tuple[NDArray[np.float64], NDArray[np.int64] | None, NDArray[np.int64] | None]:
        """Return when messages start that are ready then, the links they wait for, who has those.

            ready    `[L]`, microseconds
            way      their links, by column
            size     bytes that pass the links

        None where no message waits for a link. A message waits for the latest of its links, and
        then holds all of them.
        """
        started = ready
        waited = holder = None
        for column in way.columns:
            rows, mine = column.rows, column.links
            free = self.free[mine]
            asked = ready[rows]
            busy = free > asked
            taken = bool(busy.any())
            if self.exact and taken:
                # one that was ready later has the link already, or left it idle meanwhile
                before = (self.claimed[mine] > asked) | self.idle[mine]
                self.exact = not bool((busy & before).any())
            begin = free
            if not column.distinct:
                self.exact = False
                begin = _queue(mine, asked, column.per_byte * size, free)
            elif not taken:
                continue
            later = begin > started[rows]
            if later.any():
                if waited is None or holder is None:
                    started = started.copy()
                    waited, holder = np.full(len(ready), -1), np.full(len(ready), START)
                started[rows] = np.where(later, begin, started[rows])
                waited[rows] = np.where(later, mine, waited[rows])
                holder[rows] = np.where(later, self.holder[mine], holder[rows])
        for column in way.columns:
            rows, mine = column.rows, column.links
            until = started[rows] + column.per_byte * size
            if waited is not None:
                free = self.free[mine]
                self.idle[mine] = started[rows] > np.maximum(ready[rows], free)
            if column.distinct:
                self.free[mine] = until
                self.claimed[mine] = ready[rows]
            else:
                np.maximum.at(self.free, mine, until)
                np.maximum.at(self.claimed, mine, ready[rows])
        return started, waited, holder

    def finish(self, entry: Finish) -> None:
        ranks = np.atleast_1d(entry.ranks)
        post = self.posts.get(entry.post)
        if post is None:
            done, number = self.leave(entry.post, ranks)
        else:
            rows = slice(None) if entry.rows is None else np.atleast_1d(entry.rows)
            done, number = post.done[rows], post.number[rows]
        later = done > self.clock[ranks]
        self.clock[ranks] = np.where(later, done, self.clock[ranks])
        self.last[ranks] = np.where(later, number, self.last[ranks])
        if self.hosts is not None and entry.post in self.host_waits:
            self.hosts.wait(ranks, self.clock[ranks], self.last[ranks])

    def pause(self, entry: Pause) -> None:
        ranks = np.atleast_1d(entry.ranks)
        if entry.seconds:
            began = self.clock[ranks]
            self.clock[ranks] = self.running.end_together(ranks, began, entry.seconds * 1e6)
            times = (began, self.clock[ranks])
            self.last[ranks] = self.other(ranks, *times, self.last[ranks], entry.step, "")
            for rank in ranks:
                self.events.names[int(self.last[rank])] = "pause"
        if self.hosts is not None and entry.host_s:
            took = entry.host_s * 1e6
            made = self.hosts.work(ranks, took, self.clock[ranks], self.last[ranks])
            self.clock[ranks], self.last[ranks] = made
        if self.hosts is not None and entry.synchronizes:
            self.hosts.wait(ranks, self.clock[ranks], self.last[ranks])

    def other(
        self,
        ranks: NDArray[np.int64],
        began: NDArray[np.float64],
        ended: NDArray[np.float64],
        before: NDArray[np.int64],
        step: int,
        group: str,
    ) -> NDArray[np.int64]:
        """Note events that are not messages; return their numbers."""
        width = len(ranks)
        times = (began, began, ended, ended)
        first = self.events.add(width, ranks, -1, 0.0, *times, BY_SENDER, before, -1, step, group)
        return np.arange(first, first + width)

    def enter(self, entry: Enter) -> None:
        ranks = np.atleast_1d(entry.ranks)
        self.call(ranks)
        if host_waits(entry):
            self.host_waits.add(entry.number)
        counts = self.counts.setdefault(entry.key, np.zeros(self.traffic.world_size, np.int64))
        nths = counts[ranks]
        counts[ranks] += 1
        self.entered.setdefault(entry.number, []).append((entry.key, ranks, nths))
        for nth in np.unique(nths).tolist():
            mine = ranks[nths == nth]
            call = self.groups.setdefault((entry.key, nth), _CollectiveTimes())
            slowest = int(mine[self.clock[mine].argmax()])
            call.count += len(mine)
            call.ranks += mine.tolist()
            if self.clock[slowest] > call.came:
                call.came, call.before = float(self.clock[slowest]), int(self.last[slowest])
            if call.count == entry.quorum:
                free, last = self.streams.get(entry.key, (0.0, START))
                if free > call.came:
                    call.came, call.before = free, last
                call.ended = call.came + self.timed(entry)
                self.running.add(entry, call.ranks, call.came, call.ended)
                (number,) = self.other(
                    np.array([slowest]),
                    np.array([call.came]),
                    np.array([call.ended]),
                    np.array([call.before]),
                    entry.step,
                    entry.group,
                )
                call.number = int(number)
                self.streams[entry.key] = call.ended, call.number
                self.events.names[call.number] = entry.name

    def leave(
        self, number: int, ranks: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return when ranks left the collective that they entered at a stroke, and its event."""
        done, events = np.zeros(len(ranks)), np.full(len(ranks), START)
        for key, members, nths in self.entered.get(number, ()):
            places = {int(rank): int(nth) for rank, nth in zip(members, nths, strict=True)}
            for row, rank in enumerate(ranks.tolist()):
                if rank in places:
                    call = self.groups[key, places[rank]]
                    done[row], events[row] = call.ended, call.number
        return done, events


def _queue(
    links: NDArray[np.int64],
    ready: NDArray[np.float64],
    held: NDArray[np.float64],
    free: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return when each of many messages gets its link: first come, first served.

    All are `[L]`: the link of each message, from when on it is `ready`, how long the link is
    `held`, and from when on that link is `free` of what came before.

    Two messages on link 0, ready at 1 and at 0, and one on link 1, which is free at 5:

    >>> links, ready = np.array([0, 0, 1]), np.array([1.0, 0.0, 0.0])
    >>> _queue(links, ready, np.array([2.0, 2.0, 2.0]), np.array([0.0, 0.0, 5.0])).tolist()
    [2.0, 0.0, 5.0]
    """
    order = np.lexsort((ready, links))
    sorted_links, times = links[order], held[order]
    wanted = np.maximum(ready[order], free[order])
    # begin[i] = max(wanted[i], begin[i - 1] + times[i - 1]) on each link: a running maximum of what
    # is wanted less all that comes before it, on each link far above the one before
    total = np.concatenate([[0.0], np.cumsum(times)[:-1]])
    starts = np.concatenate([[True], sorted_links[1:] != sorted_links[:-1]])
    group = np.cumsum(starts) - 1
    before = total - total[starts][group]
    least = wanted - before
    apart = (least.max() - least.min() + 1.0) * 2
    begin = np.maximum.accumulate(least + group * apart) - group * apart + before
    found: NDArray[np.float64] = np.empty(len(begin))
    found[order] = begin
    return found


# -------------------------------------------------------------------------------------------------
# Which of the two.

#: messages up to which one event after the other is quick enough
FEW = 100_000


def replay(
    traffic: Traffic,
    network: Network,
    timed: Timed,
    scale: float = 1.0,
    launch: float = 0.0,
    taken: Taken | None = None,
) -> Replay:
    """Return the times of a program: by strokes where that is exact, or where it is large.

    Below 8 messages a stroke there is little to take together, and one event after the other is as
    quick.
    """
    posts = [each for each in traffic.entries if isinstance(each, TrafficRow) and each.sends]
    messages = sum(np.size(each.ranks) for each in posts)
    if posts and messages / len(posts) >= 8:
        together = _StrokeReplay(traffic, network, timed, scale, launch, taken)
        found = together.run(only_exact=messages <= FEW)
        if found is not None:
            return found
    return replay_events(traffic, network, timed, scale, launch, taken)


# -------------------------------------------------------------------------------------------------
# GOAL, the language of LogGOPSim's schedules (Hoefler, Schneider and Lumsdaine, 2010).


def goal(traffic: Traffic) -> str:
    """Return a program of messages as a schedule in GOAL, for simulators that read it.

    What a rank posts requires what it has returned from before; of what is posted at once the order
    is kept. Each message has a tag of its own. Pauses are nanoseconds. Raises ScenarioError where a
    collective is one call.

        num_ranks 2

        rank 0 {
        l1: send 16b to 1 tag 0
        l2: recv 16b from 1 tag 1
        l2 requires l1
        }

    `requires` waits for the end of an action, `irequires` for its start: two `isend` in a row are
    `irequires`, a `send` before a `recv` is `requires`.
    """
    entered = (each for each in traffic.entries if isinstance(each, Enter | EnterGroups))
    named = sorted({each.name for each in entered})
    if named or traffic.unknown:
        message = (
            f"a schedule has only messages, and {named[0] if named else 'an object'} is not one"
        )
        hint = "write the algorithm out, or `use` its file"
        raise ScenarioError([Problem(code="no_forecast", message=message, hint=hint)])
    program = _Unrolled(traffic).program
    lines = [f"num_ranks {traffic.world_size}"]
    for rank, steps in enumerate(program.ranks):
        lines += ["", f"rank {rank} {{", *_schedule(steps, program.messages), "}"]
    return "\n".join(lines) + "\n"


def _schedule(
    steps: Sequence[tuple[int, int, float]], messages: Sequence[_SentMessage]
) -> list[str]:
    """Return what one rank does in GOAL, a line for each action and each dependency."""
    lines: list[str] = []
    labels: dict[tuple[int, int], int] = {}
    returned: list[int] = []
    number = 0
    for kind, which, duration in steps:
        if kind in {_DONE_SEND, _DONE_RECEIVE}:
            returned.append(labels[kind - _DONE_SEND, which])
            continue
        number += 1
        if kind == _PAUSE:
            lines.append(f"l{number}: calc {round(duration * 1e3)}")
        else:
            labels[kind, which] = number
            message = messages[which]
            sends = kind == _POST_SEND
            way = f"to {message.target}" if sends else f"from {message.source}"
            word = "send" if sends else "recv"
            lines.append(f"l{number}: {word} {int(message.size)}b {way} tag {which}")
        lines += [f"l{number} requires l{each}" for each in returned]
        if not returned and number > 1:
            lines.append(f"l{number} irequires l{number - 1}")
        returned = [number] if kind == _PAUSE else []
    return lines
