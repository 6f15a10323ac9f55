"""The thread beside a rank: still or stuck, broken, and its last words."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import protocol
from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.local_store import LocalStoreAddress, LocalStoreClient
from torch_scenarios.worker.board import Board, TakenStep
from torch_scenarios.worker.program import explain_loss
from torch_scenarios.worker.world import World

# -------------------------------------------------------------------------------------------------
# What a dying worker leaves behind: its account, and what its last moment printed.
#
# Gloo aborts the process, uncatchably, when a message is larger than the buffer that waits for it.
# `abort` raises SIGABRT in the thread at fault and waits for the handler: this one gives the
# rank's account and lets the process die as it would have.

HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
#: bytes of standard error that are kept
TAIL = 4000
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent's thread ends (Linux; elsewhere nothing)."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError):
        return


class StandardError:
    """Standard error kept in memory: what torch and Gloo print belongs to a rank's account.

    With 64 ranks on one terminal the line that matters is lost among the others. Here each rank's
    is kept, and its end is shown with the rank that died.
    """

    def __init__(self) -> None:
        """Let descriptor 2 lead into anonymous memory; no file is left behind, however it ends."""
        self._fd = os.memfd_create("stderr")
        os.dup2(self._fd, 2)

    def clear(self) -> None:
        """Forget what was printed."""
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)

    def tail(self) -> str:
        """Return the end of what was printed."""
        size = os.fstat(self._fd).st_size
        return os.pread(self._fd, TAIL, max(0, size - TAIL)).decode(errors="replace").strip()


class AbortHandler:
    """Calls `speak` when the process aborts, in the thread that aborts.

    An abort of Gloo is no exception: no `finally` runs. The handler of SIGABRT is the last code of
    ours in the process, and sends what the rank saw until then.
    """

    def __init__(self, speak: Callable[[], None]) -> None:
        """Install the handler; this object must live as long as the process."""
        self._spoken = False
        self._speak = speak
        self._handler: Any = HANDLER(self._on_abort)
        ctypes.CDLL(None).signal(int(signal.SIGABRT), self._handler)

    def _on_abort(self, _signal: int) -> None:
        if not self._spoken:
            self._spoken = True
            self._speak()


# -------------------------------------------------------------------------------------------------
# A worker's line to the store of its launch: opened once, cut only where a call hangs in it.
#
# A group that not every member creates hangs in the store, on the main thread's own connection.
# Shutting that connection's socket down is the one thing that makes such a call return.

#: seconds that torch's own calls on the store may take, unless they say otherwise
TIMEOUT_S = 60.0
#: seconds that a rank waits for the store of its launch to open: another node may start later
OPENS_S = 300.0
DESCRIPTORS = "/proc/self/fd"


class TorchLine:
    """One connection to torch's store, under the prefix of this launch.

    It knows which socket it opened, by comparing this process's descriptors before and after: torch
    gives no handle, and a call that hangs in the store returns only if that socket is shut down.
    """

    def __init__(self, dist: ModuleType, prefix: str) -> None:
        """Connect where the launcher's variables say the store is."""
        before = _sockets()
        port = int(os.environ["MASTER_PORT"])
        dist_: Any = dist
        client = dist_.TCPStore(
            os.environ["MASTER_ADDR"],
            port,
            is_master=False,
            timeout=timedelta(seconds=OPENS_S),
        )
        client.set_timeout(timedelta(seconds=TIMEOUT_S))
        self.store: Any = dist_.PrefixStore(prefix, client)
        self._descriptors = [fd for fd in _sockets() - before if _leads_to(fd, port)]

    def cut(self) -> None:
        """Let whatever waits on this connection fail at once; the line is of no use afterwards."""
        for descriptor in self._descriptors:
            with suppress(OSError), closing(socket.socket(fileno=os.dup(descriptor))) as end:
                end.shutdown(socket.SHUT_RDWR)


def open_store(dist: ModuleType, host: str, listener: socket.socket, timeout_s: float) -> Any:
    """Return a store of torch's that listens at a socket of ours, and at no other address.

    `host` is the address by which this process reaches it.
    """
    make = partial(
        dist.TCPStore,
        host,
        listener.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_s),
        multi_tenant=True,
        master_listen_fd=listener.detach(),
    )
    try:
        return make()
    except NotImplementedError:
        # up to torch 2.6 only the older of its two servers takes a socket
        return make(use_libuv=False)


class Connection:
    """What leads a process to its launch: `store` for what it says and hears, `groups` for torch.

    On one machine these are two: a local store that lets in this user's processes alone, and a
    store of torch's in which its process groups meet. In a launch over hosts both are in torch's
    store.
    """

    def __init__(self, store: Any, open_groups: Callable[[], TorchLine]) -> None:
        """Use `store`; torch's is opened when it is first asked for."""
        self.store: Any = store
        self._open = open_groups
        self._line: TorchLine | None = None

    @classmethod
    def seal(cls, dist: ModuleType, prefix: str, secret: Secret) -> Connection:
        """Return a connection to torch's store alone, in which all is sealed that is this run's."""
        line = TorchLine(dist, prefix)
        return cls(protocol.SealedStore(line.store, prefix, secret), lambda: line).open()

    @classmethod
    def local(cls, dist: ModuleType, prefix: str, local_store: LocalStoreAddress) -> Connection:
        """Return a connection to a local store of this machine, and to torch's store."""
        return cls(LocalStoreClient(local_store), partial(TorchLine, dist, prefix))

    def open(self) -> Connection:
        """Connect to torch's store now, and return this connection."""
        self._line = self._line or self._open()
        return self

    @property
    def groups(self) -> Any:
        """The store in which torch's process groups meet."""
        if self._line is None:
            self._line = self._open()
        return self._line.store

    def cut(self) -> None:
        """Let what waits in torch's store fail at once; the connection is of no use afterwards."""
        if self._line is not None:
            self._line.cut()


def _sockets() -> set[int]:
    """Return the descriptors of this process that are sockets; none where /proc is not."""
    found = set()
    with suppress(OSError):
        for name in os.listdir(DESCRIPTORS):  # noqa: PTH208 -- names, not paths
            with suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    found.add(int(name))
    return found


def _leads_to(descriptor: int, port: int) -> bool:
    with suppress(OSError), closing(socket.socket(fileno=os.dup(descriptor))) as end:
        return end.family != socket.AF_UNIX and bool(end.getpeername()[1] == port)
    return False


# -------------------------------------------------------------------------------------------------
# One scenario on one rank, under watch: where the rank stands is published once that is still.
#
# What cannot wait for the main thread, which may be deep in a call that never returns, is done
# here: a stuck call is broken when the supervisor says so, a device that is overdue is given up,
# and the account is given, once.

#: seconds without a move after which a rank counts as stuck
STILL_S = 0.03
#: seconds between two looks at the board; while every look finds that the rank moves, twice as long
#: each time, up to the longest: what looks takes time from the steps
LOOK_S, LONGEST_LOOK_S = 0.01, 0.04
#: seconds between two signs of life of a rank on a device
ALIVE_S = 1.0
#: seconds beyond a call's own timeout after which a device is given up from beside the main thread
LATE_S = 3.0
#: seconds that a poisoned call gets to return before it is looked for in the store
CUT_S = 0.05
#: seconds that an account may take which another thread gives; it may be a large one
ACCOUNT_S = 10.0


class WatchedScenario:
    """One scenario under watch on one rank.

        main thread      step 0   step 1 (recv) ..................   never returns
        this thread      .        .        position (1, ()) reported   break it: the socket is cut

    The main thread is in C++ by then, where no signal and no exception of Python's reaches it.
    """

    def __init__(
        self,
        store: protocol.Store,
        name: str,
        board: Board,
        *,
        backend: str,
        world: World,
        cut: Callable[[], None],
    ) -> None:
        """Publish into the mailbox of the scenario `name`.

        Poisoning the world breaks what is stuck between ranks, `cut` what is stuck in the store.
        """
        self._name = name
        self.outbox = protocol.Outbox(store, self.key("mail"))
        self._board = board
        self._backend = backend
        self._world = world
        self._cut = cut
        self.told = False
        self._lock = threading.Lock()
        self._moves = -1
        self._since_s = 0.0
        #: seconds until the next look
        self.pause_s = LOOK_S
        self._alive_s = time.monotonic()
        self._published: TakenStep | None = None
        self.broken = False
        self._back = threading.Event()
        self._accounted = threading.Event()
        self._was_cut = False

    @property
    def on_device(self) -> bool:
        """Whether the calls of its world return before they are done."""
        return self._world.on_device

    def key(self, what: str) -> str:
        """Name a key of this scenario in the store."""
        return f"{self._name}/{what}"

    def take_device(self) -> None:
        """Let this thread ask the rank's own device.

        The current device is each thread's own, and the first at its start: there CUDA would make
        a context of this process, which takes half a gigabyte, and fails where the device is in
        exclusive mode.
        """
        self._world.take_device()

    def look(self, store: protocol.Store) -> None:
        """Publish a position that has not changed for a while, and its change after that."""
        board = self._board
        inside = board.position
        now_s = time.monotonic()
        self._show_life(now_s)
        moves = board.moves
        self.pause_s = min(2 * self.pause_s, LONGEST_LOOK_S) if moves != self._moves else LOOK_S
        if moves != self._moves:
            self._moves, self._since_s = moves, now_s
            if self._published is not None:
                self._published = None
                self.outbox.post(protocol.RankMoved(rank=board.rank))
            return
        if inside is not None and self._overdue(inside, now_s):
            self._give_up(inside)
            return
        if self._published is not None:
            if not self.broken and protocol.holds(store, self.key("break")):
                self._break(store)
            return
        if inside is not None and now_s - self._since_s >= STILL_S:
            self._published = inside
            self.outbox.post(protocol.RankStuck(rank=board.rank, position=inside.position))

    def _overdue(self, record: TakenStep, now_s: float) -> bool:
        """Whether a device stands at a call for longer than the main thread would let it.

        It asks for itself after its last step. A step that waits for the device keeps it from that.
        """
        if self.told or not self._world.on_device or record.event is None:
            return False
        allowed_s = record.timeout_s
        return allowed_s is not None and now_s - self._since_s > allowed_s + LATE_S

    def _give_up(self, record: TakenStep) -> None:
        self._board.fail(record, explain_loss(record, self._board, self._world))
        self.tell("raised", then=self._world.poison)

    def _show_life(self, now_s: float) -> None:
        """Tell that this thread runs: calls on a device may stand without letting go of Python."""
        if self._world.on_device and not self.told and now_s - self._alive_s >= ALIVE_S:
            self._alive_s = now_s
            self.outbox.post(protocol.RankAlive(rank=self._board.rank))

    # How a call that hangs is broken from inside, in the order of how much each way spoils.
    #
    # 1. The account is given first. A call that is broken raises, and an account taken after that
    #    would be of a program that raised, and not of one that hung.
    # 2. On a device every rank gives its account before any of them aborts: to abort a communicator
    #    lets the peers' kernels end, and what they do next would be in their accounts.
    # 3. The groups are poisoned: a call in Gloo returns with an error.
    # 4. Where that does not bring the main thread back, it hangs in the store (a group that not
    #    every member creates), and the socket of its own connection is shut down. The worker then
    #    needs another connection.
    #
    # What none of them brings back is ended by its launcher, with its process.
    def _break(self, store: protocol.Store) -> None:
        self.broken = True
        self.tell("blocked")
        self.settle(store)
        # a main thread that only looks at a device leaves by itself, and aborts what hangs there
        if self._world.on_device and self._back.wait(CUT_S):
            return
        self._world.poison()
        if not self._back.wait(CUT_S):
            with self._lock:
                if not self._back.is_set():
                    self._was_cut = True
                    self._cut()

    def settle(self, store: protocol.Store) -> None:
        """Wait until the account is given, and on a device until that of every rank is.

        A communicator that one rank aborts lets its device go on, and what it does next may let a
        peer's device go on that has not been looked at yet.
        """
        until_s = time.monotonic() + ACCOUNT_S
        self._accounted.wait(ACCOUNT_S)
        while self._world.on_device and time.monotonic() < until_s:
            if protocol.holds(store, self.key("over")):
                return
            time.sleep(LOOK_S)

    def came_back(self) -> bool:
        """Say that the main thread came back from a broken call.

        Returns whether its line to the store was cut for that, so that it needs another.
        """
        with self._lock:
            self._back.set()
        return self._was_cut

    def tell(
        self,
        ending: str,
        died: str | None = None,
        notes: tuple[str, ...] = (),
        via: Any = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Give the account, once, from the thread that comes first: the main or a watching one.

        `then` is done between the account and the word of it, in the same thread: what lets go of
        the groups. A device whose calls are aborted is done with all of them, and an account taken
        after that would be of a program that never hung.
        """
        with self._lock:
            first, self.told = not self.told, True
        message = None
        if first:
            try:
                message = self._report(ending, died, notes)
            finally:
                self._accounted.set()
        if then is not None:
            self._accounted.wait(ACCOUNT_S)
            then()
        if message is not None:
            (via or self.outbox).post(message)

    def _report(self, ending: str, died: str | None, notes: tuple[str, ...]) -> protocol.RankReport:
        if ending == "blocked":
            notes = (*notes, *self._world.witness())
        return protocol.RankReport(
            rank=self._board.rank,
            trace=self._board.account(ending, died),
            backend=self._backend,
            notes=notes,
            world_s=self._world.made_s,
            began_s=self._board.begin_s,
            host=socket.gethostname(),
            spoilt=self._board.fault is not None or self._world.spoilt,
        )

    def free(self, outbox: protocol.Outbox) -> None:
        """Say that the main thread came back from the call that was broken."""
        outbox.post(protocol.RankFree(rank=self._board.rank))


# -------------------------------------------------------------------------------------------------
# The watching thread of a worker: it looks after the scenario that runs, and after the process.
#
# It ends the process when it is asked to, once the account is given, and when no rank is left.

#: seconds between two looks at the parent process while there is nothing to do
IDLE_S = 0.5
#: seconds that a worker which was told to end waits for the others' accounts
LAST_S = 25.0


class Watcher:
    """What one worker has going on, seen from beside it.

    It looks at the board that the main thread writes, and at the line to the launcher. It has its
    own connection to the store, since the main thread may hang in a call on the other.
    """

    def __init__(
        self,
        store: protocol.Store,
        rank: int,
        *,
        lifeline: int | None,
        alone: Callable[[str], None],
        told: Callable[[], None],
    ) -> None:
        """Watch nothing yet. `store` is this thread's own connection.

        `alone` is called where the store is gone, with what its connection says; `told` where this
        process is asked to end.
        """
        self._alone = alone
        self._told = told
        self._store = store
        self._rank = rank
        self._lifeline = lifeline
        self._parent = os.getppid()
        self._running: WatchedScenario | None = None
        self._told_to_end_s: float | None = None
        #: the scenario that was last said to lose this rank
        self._left: WatchedScenario | None = None
        self._ears, self._mouth = os.pipe()
        os.set_blocking(self._mouth, False)
        os.set_blocking(self._ears, False)

    def listen(self) -> None:
        """Take SIGTERM's way away from the main thread, and start; call in the main thread."""
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._mouth, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="watcher", daemon=True).start()

    # ------------------------------------------------------------------ the main thread's side

    def begin(self, running: WatchedScenario) -> None:
        """Watch a scenario."""
        self._running = running
        os.write(self._mouth, b"\0")

    # ------------------------------------------------------------------ the watching side

    def _watch(self) -> None:
        watched = [self._ears] if self._lifeline is None else [self._ears, self._lifeline]
        before: WatchedScenario | None = None
        while True:
            running = self._running
            if running is not None and running is not before:
                running.take_device()
            before = running
            pause_s = IDLE_S if running is None or running.told else running.pause_s
            pause_s = pause_s if self._told_to_end_s is None else LOOK_S
            ready, _, _ = select.select(watched, [], [], pause_s)
            if self._lifeline in ready or os.getppid() != self._parent:
                os.kill(os.getpid(), signal.SIGKILL)
            told_to_end = self._ears in ready and signal.SIGTERM in os.read(self._ears, 64)
            try:
                if told_to_end:
                    self._note_end()
                self._leave(running)
                if running is not None:
                    running.look(self._store)
                self._end_if_told()
            except (RuntimeError, LaunchError) as error:
                self._alone(str(error))
                return

    def _note_end(self) -> None:
        if self._told_to_end_s is None:
            self._told_to_end_s = time.monotonic()
            self._told()

    def _leave(self, running: WatchedScenario | None) -> None:
        """Tell a scenario that it loses this rank, which was told to end; also one that begins."""
        if self._told_to_end_s is not None and running is not None and running is not self._left:
            self._left = running
            running.outbox.post(protocol.RankLeaving(rank=self._rank))

    def _end_if_told(self) -> None:
        """End a process that was told to, once the supervisor has what it wants."""
        if self._told_to_end_s is None:
            return
        running = self._running
        released = running is None or protocol.holds(self._store, running.key("over"))
        if released or time.monotonic() - self._told_to_end_s > LAST_S:
            os._exit(protocol.TERMINATED)
