"""The nodes of a launch that others started: who is there, and who is lost.

A node is what one agent has started on one host; its first process (`LOCAL_RANK` 0) leads it, and
the command line that rank 0 has been started with leads the first. Each process shows once a second
that it runs:

    ranks 0, 1 ---> command line ---> store <--- rank 2 <--- rank 3
            socket       |         (on a host)     |   socket
        of this host     +-- reads the beats of all nodes
                                                   +-- reads that of the first node

A process that ends closes its socket, and its leader says so in the node's next beat. A node whose
beat does not change for a while is lost with its ranks. A cut link closes nothing: a call on the
store waits for minutes then. So every leader has a second thread that never touches the store and
gives it up once it has not answered for as long. Then the command line goes on by itself, to report
what is known; every other node says why and ends, for only the command line judges and reports.

The store has two small calls a second for each node, however many ranks it has: a beat is set, and
all beats are read in one call. Knows nothing of scenarios and nothing of torch.
"""

from __future__ import annotations

import os
import re
import select
import selectors
import signal
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from torch_scenarios.display import short
from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.heartbeat import BEAT_S, SILENT_S, STOPPED_S, is_stopped
from torch_scenarios.execution.letters import ForgedError, Secret
from torch_scenarios.execution.local_store import LocalStore, LocalStoreAddress, is_ours, peer_of
from torch_scenarios.execution.protocol import SealedStore, Store, WorkerReady, arrives

#: seconds without a beat of a node, or without an answer of the store, after which it is lost
SILENCE_S = 15.0
#: seconds without a beat of rank 0's node after which another gives it up: one process leads it,
#: and may hold the interpreter's lock for a while
FIRST_SILENCE_S = 25.0
#: seconds that the leader of a node gets to come up before its other processes do without it
DOOR_S = 300.0

#: seconds that torchrun's agent gets to end once its processes have: with a link that is cut it
#: may wait for its own store for minutes, and heeds no signal then
AGENT_S = 8.0

#: stands for the command line where a rank's number is asked for
FRONT = -1
#: said where what ranks say is in torch's store
NO_LOCAL_STORE = "-"
BEAT, GOODBYE, LOST, TOLD = b".", b",", b"!", b"t"
#: said of a process that was sent SIGTERM, as agents do to all when one has ended
TOLD_TO_END = "its process received SIGTERM"
#: seconds without a beat after which a node may be lost
QUIET_S = 3 * BEAT_S


# -------------------------------------------------------------------------------------------------
# The place of this process in its launch, as the launcher's variables say it.

#: how a launch is started where no variable says that there is one
HOW = (
    "torch_scenarios.worker is one rank of a launch: start it with\n"
    "  torchrun --nproc-per-node 4 -m torch_scenarios.worker scenarios/p2p\n"
    "  srun -N2 -n4 python -m torch_scenarios.worker scenarios/p2p\n"
    "  mpirun -n 4 python -m torch_scenarios.worker scenarios/p2p\n"
    "On one machine `scenario run scenarios/p2p` does that for you."
)
TORCH_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
THIS_HOST = "127.0.0.1"
#: ports of launches whose launcher names none: below those that the system gives to clients
FIRST_PORT, PORTS = 20_000, 12_000


class LauncherVariables(Struct, frozen=True, kw_only=True):
    """The variables by which a launcher tells a process its place.

    `rank`, `world_size` and `local_rank` are names, `local_size` that of how many ranks this host
    has, `hosts` those of how many hosts there are; `job` are those that tell one launch from
    another on the same host, `line` that of the number of an open file that its ranks share. `sign`
    shows that it is this launcher, where others set `rank` as well.
    """

    name: str
    rank: str
    world_size: str
    local_rank: str
    local_size: str = ""
    hosts: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    line: str = ""
    sign: str = ""


#: the first that is set counts. Slurm: srun(1), OUTPUT ENVIRONMENT VARIABLES; Open MPI:
#: mpirun(1); torchrun: torch.distributed.run; MPICH: what its Hydra sets (`mpiexec -n 1 env`)
LAUNCHERS = (
    LauncherVariables(
        name="torchrun",
        rank="RANK",
        world_size="WORLD_SIZE",
        local_rank="LOCAL_RANK",
        local_size="LOCAL_WORLD_SIZE",
    ),
    LauncherVariables(
        name="Open MPI",
        rank="OMPI_COMM_WORLD_RANK",
        world_size="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
        job=("PMIX_NAMESPACE",),
    ),
    LauncherVariables(
        name="MPICH",
        rank="PMI_RANK",
        world_size="PMI_SIZE",
        local_rank="MPI_LOCALRANKID",
        local_size="MPI_LOCALNRANKS",
        line="HYDI_CONTROL_FD",
        sign="MPI_LOCALRANKID",  # `srun --mpi=pmi2` sets PMI_RANK
    ),
    LauncherVariables(
        name="Slurm",
        rank="SLURM_PROCID",
        world_size="SLURM_NTASKS",
        local_rank="SLURM_LOCALID",
        hosts=("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
        job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
)


class ProcessPlace(Struct, frozen=True, kw_only=True):
    """Where a process is in its launch; `address` and `port` are those of rank 0's store.

    >>> place = ProcessPlace(rank=5, world_size=8, local_rank=1, address="host0", port=29500)
    >>> place.variables()["RANK"], place.variables()["MASTER_ADDR"]
    ('5', 'host0')
    """

    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int
    #: whether all ranks are known to be on this host
    is_alone: bool = False

    def variables(self) -> dict[str, str]:
        """Return torchrun's variables for it, which torch reads as well."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }


def placement(environment: Mapping[str, str]) -> ProcessPlace:
    """Return the place of this process, by the variables of torchrun, Open MPI, MPICH or Slurm.

    `MASTER_ADDR` and `MASTER_PORT` count whatever the launcher; where they are not set, the first
    host of a Slurm step has the store, or this host where an MPI started every rank on it, and
    the port follows from the number of the job. Raises LaunchError where variables are missing or
    are no numbers; the message names them.
    """
    launcher = next((each for each in LAUNCHERS if (each.sign or each.rank) in environment), None)
    if launcher is None:
        given = [name for name in TORCH_VARIABLES if name in environment]
        missing = [name for name in TORCH_VARIABLES if name not in environment]
        what = f"{_are(given)} set, and {_are(missing)} not\n" if given else ""
        raise LaunchError(what + HOW)
    if launcher.name == "Slurm" and not {"SLURM_STEP_ID", "SLURM_STEPID"} & environment.keys():
        message = (
            "this process is the batch script of a Slurm job, not a rank of a launch: write "
            "`srun python -m torch_scenarios.worker ...` in the script"
        )
        raise LaunchError(message)
    alone = _is_alone(launcher, environment)
    address = environment.get("MASTER_ADDR") or _find_first_host(launcher, environment)
    if alone and not agent_has_store(environment):
        address = THIS_HOST  # the store is rank 0's, and no other host has to reach it
    port = environment.get("MASTER_PORT") or _port(launcher, environment)
    missing = [
        name
        for name, value in (
            (launcher.world_size, environment.get(launcher.world_size)),
            ("MASTER_ADDR", address),
            ("MASTER_PORT", port),
        )
        if not value
    ]
    if missing:
        message = (
            f"{launcher.rank} is set, and {_are(missing)} not: a launch by {launcher.name} needs "
            f"{'them' if len(missing) > 1 else 'it'} on every rank"
        )
        raise LaunchError(message)
    rank = _number(launcher.rank, environment)
    return ProcessPlace(
        rank=rank,
        world_size=_number(launcher.world_size, environment),
        local_rank=(
            _number(launcher.local_rank, environment)
            if launcher.local_rank in environment
            else rank
        ),
        address=address,
        port=_number("MASTER_PORT", {"MASTER_PORT": port}),
        is_alone=alone,
    )


def agent_has_store(environment: Mapping[str, str]) -> bool:
    """Return whether torchrun's agent has opened the store of this launch."""
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)


def _is_alone(launcher: LauncherVariables, environment: Mapping[str, str]) -> bool:
    """Return whether all ranks are on this host, as far as the variables say so."""
    hosts = next((environment[name] for name in launcher.hosts if name in environment), "")
    local = environment.get(launcher.local_size, "")
    return hosts == "1" or (bool(local) and local == environment.get(launcher.world_size))


def _are(names: list[str]) -> str:
    return f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'}"


def _number(name: str, environment: Mapping[str, str]) -> int:
    try:
        return int(environment[name])
    except ValueError as error:
        message = f"{name} is {short(environment[name])}, which is not a whole number"
        raise LaunchError(message) from error


def _find_first_host(launcher: LauncherVariables, environment: Mapping[str, str]) -> str:
    if launcher.name == "Slurm":
        names = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
        return first_host(names)
    if launcher.name in {"Open MPI", "MPICH"}:
        return THIS_HOST if _is_alone(launcher, environment) else ""
    return ""


def first_host(names: str) -> str:
    """Return the first host of a list in Slurm's notation: `n[001-003,7],m2` begins with `n001`.

    >>> first_host("n[001-003,7],m2")
    'n001'
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", names)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first.group()) if first else ""


def _port(launcher: LauncherVariables, environment: Mapping[str, str]) -> str:
    """Return a port that the ranks of one launch agree on, and others of the host hardly share."""
    job = "/".join(environment.get(name, "") for name in launcher.job)
    if launcher.line in environment:
        with suppress(OSError):  # it names a socket by its number, which no other launch has
            job = str(Path("/proc/self/fd", environment[launcher.line]).readlink())
    return str(FIRST_PORT + zlib.crc32(job.encode()) % PORTS) if job else ""


# -------------------------------------------------------------------------------------------------
# Who is there, and who is lost.


class BeatStore(Store, Protocol):
    """A store that also gives many keys in one call, as torch's do.

    A leader reads the beats of all nodes once a second: one exchange, and not one for each node.
    """

    def multi_get(self, keys: list[str], /) -> list[bytes]: ...


class Beat(Struct, frozen=True, kw_only=True):
    """What a node shows once a second: a number that grows, its host, its ranks.

    `lost` says of each rank that is lost what is wrong with it; `quiet` of each that has long shown
    no sign of life for how many seconds.
    """

    number: int
    host: str
    ranks: tuple[int, ...]
    lost: Mapping[int, str] = field(default_factory=dict)
    quiet: Mapping[int, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return it as the store keeps it."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> Beat:
        """Return what the store has kept. Raises RuntimeError where that is not a beat."""
        try:
            return msgspec.msgpack.decode(content, type=cls)
        except (msgspec.MsgspecError, RecursionError) as error:
            message = f"the store holds a beat that cannot be read: {error}"
            raise RuntimeError(message) from error


class LastBeat(Struct):
    """The last beat of a node, and for how many seconds none has followed it.

    A beat that is read twice is no sign of life: the number in it has to grow.
    """

    beat: Beat
    quiet_s: float = 0.0


class Nodes:
    """What one leader knows of the nodes whose beats it reads.

        node 0    1 2 3 4 5 6 7
        node 1    1 2 3 3 3 3 3      its link was cut after 3: quiet for 4 s, and lost after a while

    A closed socket would tell a death at once; a cut link closes none, and leaves silence as the
    only sign.
    """

    def __init__(self) -> None:
        """Know of no node."""
        self._lock = threading.Lock()
        self._heard: dict[str, LastBeat] = {}
        self._looked_s: float | None = None

    def hear(self, beats: Mapping[str, Beat], now_s: float) -> None:
        """Take in the beats that the store holds now, by the names of their nodes."""
        with self._lock:
            # a listener that did not run itself has heard nothing, and knows nothing
            looked_s = now_s if self._looked_s is None else self._looked_s
            passed_s = min(now_s - looked_s, 2 * BEAT_S)
            self._looked_s = now_s
            for name, beat in beats.items():
                heard = self._heard.setdefault(name, LastBeat(beat))
                moved = beat != heard.beat
                heard.beat = beat
                heard.quiet_s = 0.0 if moved else heard.quiet_s + passed_s

    def find_lost(self, more_s: float = 0.0) -> dict[int, str]:
        """Return the ranks that are lost, each with what is wrong, in words.

        `more_s` are seconds that a node or a rank may be silent beyond what is usual.
        """
        found: dict[int, str] = {}
        with self._lock:
            for heard in self._heard.values():
                beat = heard.beat
                if heard.quiet_s >= SILENCE_S + more_s:
                    how = (
                        f"its host {beat.host} ({name_ranks(beat.ranks)}) shows no sign of life "
                        f"for {heard.quiet_s:.0f} s: the processes there are gone or stopped, or "
                        "the link to it is cut"
                    )
                    found.update(dict.fromkeys(beat.ranks, how))
                for rank, how in beat.lost.items():
                    found[rank] = f"{how} on host {beat.host}"
                found.pop(FRONT, None)
                for rank, quiet_s in beat.quiet.items():
                    if quiet_s >= SILENT_S + more_s:
                        found[rank] = (
                            f"its process on host {beat.host} shows no sign of life for {quiet_s} s"
                        )
        # what a process was told is no cause where another is known
        causes = {rank: how for rank, how in found.items() if not how.startswith(TOLD_TO_END)}
        return causes or found

    def several(self) -> bool:
        """Whether there is another node than the one that reads."""
        with self._lock:
            return len(self._heard) > 1

    def quiet(self) -> bool:
        """Whether a node has been silent for so long that it may be lost."""
        with self._lock:
            return any(heard.quiet_s >= QUIET_S for heard in self._heard.values())

    def first_lost(self) -> str | None:
        """Return what is wrong with the command line, whose node alone is heard, if anything."""
        with self._lock:
            for heard in self._heard.values():
                where = f"the command line on host {heard.beat.host}"
                if FRONT in heard.beat.lost:
                    return f"{where}: {heard.beat.lost[FRONT]}"
                if heard.quiet_s >= FIRST_SILENCE_S:
                    return f"{where} shows no sign of life for {heard.quiet_s:.0f} s"
        return None


def name_ranks(ranks: Iterable[int]) -> str:
    """Name some ranks: `rank 3`, `ranks 2, 3`, `ranks 0 to 7`.

    >>> name_ranks([3]), name_ranks([3, 2]), name_ranks(range(8))
    ('rank 3', 'ranks 2, 3', 'ranks 0 to 7')
    """
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"ranks {ordered[0]} to {ordered[-1]}"
    return f"ranks {', '.join(map(str, ordered))}"


def name_hosts(hosts: Mapping[int, str]) -> str:
    """Say which ranks are on which host: `ranks 0, 1 on node0; rank 2 on node1`.

    >>> name_hosts({0: "node0", 1: "node0", 2: "node1"})
    'ranks 0, 1 on node0; rank 2 on node1'
    """
    by_host: dict[str, list[int]] = {}
    for rank, host in sorted(hosts.items()):
        by_host.setdefault(host, []).append(rank)
    return "; ".join(f"{name_ranks(ranks)} on {host}" for host, ranks in by_host.items())


def difference(
    hellos: Mapping[int, WorkerReady], files: Callable[[int], Mapping[str, str]]
) -> str | None:
    """Return what keeps the ranks of a launch from being one: other versions, or other files.

    All are held against rank 0. `files` gives what the leader of a node has read.
    """
    first = hellos[0]
    for rank in sorted(hellos):
        hello = hellos[rank]
        for name, version in first.versions.items():
            other = hello.versions.get(name, "none")
            if other != version:
                return (
                    f"rank {rank} on host {hello.host} has {name} {other}, and rank 0 on host "
                    f"{first.host} has {name} {version}: every node needs the same versions"
                )
    for rank in sorted(hellos):
        hello = hellos[rank]
        if hello.digest not in {"", first.digest}:
            what = _find_difference(files(0), files(rank), hello.host)
            return (
                f"host {hello.host} (rank {rank}) does not read what host {first.host} (rank 0) "
                f"reads: {what}. Every node needs the same files and the same command line"
            )
    return None


def _find_difference(own: Mapping[str, str], others: Mapping[str, str], host: str) -> str:
    different = sorted(
        path for path in own.keys() | others.keys() if own.get(path) != others.get(path)
    )
    path, more = different[0], len(different) - 1
    if path not in others:
        what = f"{path} is not there on {host}"
    elif path not in own:
        what = f"{path} is on {host} only"
    else:
        what = f"{path} differs"
    return f"{what} ({more} more differ)" if more else what


def name_of_node() -> str:
    """Return what tells this node from the others of its launch.

    torchrun and Slurm number them. Where nothing does (Open MPI, Kubernetes), one node is one host.
    """
    number = os.environ.get("GROUP_RANK") or os.environ.get("SLURM_NODEID")
    return number or socket.gethostname()


def end_agent() -> None:
    """See to it that torchrun's agent, which started this process, ends soon after it.

    Another process waits for that, and kills an agent that has not ended by then. Nothing is
    done where the process was started by anything else.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    try:
        agent = os.pidfd_open(os.getppid())
    except OSError:
        return  # it has ended
    if os.fork():
        os.close(agent)
        return
    try:
        os.setsid()  # the agent ends its processes by their groups
        os.closerange(0, agent)
        os.closerange(agent + 1, os.sysconf("SC_OPEN_MAX"))
        ended, _, _ = select.select([agent], [], [], AGENT_S)
        if not ended:
            signal.pidfd_send_signal(agent, signal.SIGKILL)
    finally:
        os._exit(0)


class Leader:
    """The first process of a node: hears the others of its node, and beats for all of them.

        ranks 4 5 6 7 on node 1      4 leads; 5, 6 and 7 have a socket each to it
        a socket closes              that rank has ended; the next beat of node 1 says so

    So a launch of 1,024 ranks on 128 nodes has 128 beats a second in its store, and not 1,024.
    """

    def __init__(
        self,
        doors: Store,
        place: str,
        secret: Secret,
        rank: int,
        name: str,
        *,
        lost: Callable[[str], None],
        local_store: LocalStore | None = None,
    ) -> None:
        """Use `doors`, a connection to torch's store that it alone uses, under the prefix `place`.

        The command line (FRONT) reads all beats, which `secret` seals. A process of this node and
        of this user that knocks is handed the secret. Where all ranks are on this host
        `local_store` has what they say: a process that knocks is sent there, and the beats stay
        there as well.

        `lost` is called once, in a thread, with what is wrong, where the store or rank 0 is gone.
        """
        self.nodes = Nodes()
        self.secret = secret
        self._doors = doors
        self._store: BeatStore = (
            SealedStore(doors, place, secret) if local_store is None else local_store
        )
        self._local_store = b"" if local_store is None else local_store.address.name
        self._rank = rank
        self._name = name
        self._lose = lost
        self._host = socket.gethostname()
        self._members: dict[int, _Member] = {}
        self._lost: dict[int, str] = {}
        self._unanswered_s = 0.0
        self._wake = threading.Event()
        self._over = threading.Event()
        self._number = 0
        self._known: list[str] = []
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._ears = selectors.DefaultSelector()

    def start(self) -> None:
        """Let the others of this node in, and beat from now on."""
        self._door.bind("")  # the kernel gives a name that no file stands for
        self._door.listen(512)
        self._ears.register(self._door, selectors.EVENT_READ)
        self._beat_once()
        if self._rank == FRONT:
            self._store.set("nodes/first", self._name.encode())
        else:
            place = self._store.add("nodes/others", 1)
            self._store.set(f"nodes/{place}", self._name.encode())
        # not sealed: who knocks may not have the secret yet, and asks the kernel whose door it is
        self._doors.set(_door(self._name), self._door.getsockname())
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        threading.Thread(target=self._beat, name="heart", daemon=True).start()

    def part(self) -> None:
        """Stop: the run is over, and what ends from now on is no loss.

        The other processes of this node hear it: they may come to know the end of the run later,
        over a slow link, and this process is gone by then.
        """
        self._stop()
        self._tell(GOODBYE)

    def _stop(self) -> None:
        self._over.set()
        self._wake.set()

    def _tell(self, words: bytes) -> None:
        for member in list(self._members.values()):
            with suppress(OSError):
                member.line.send(words)

    def tell_told(self) -> None:
        """Say nothing: this process is the one that would be told."""

    def tell_lost(self) -> None:
        """Let the other processes of this node end: the run is lost."""
        self._stop()
        self._tell(LOST)

    # ------------------------------------------------------------------ this host

    def _listen(self) -> None:
        """Hear the processes of this node; never touches the store."""
        looked_s = time.monotonic()
        while not self._over.is_set():
            for key, _ in self._ears.select(BEAT_S):
                if key.fileobj is self._door:
                    self._let_in()
                else:
                    self._hear(key.data)
            now_s = time.monotonic()
            if now_s - looked_s >= BEAT_S:
                # while this process did not run itself it has heard nothing, and knows nothing
                passed_s = min(now_s - looked_s, 2 * BEAT_S)
                looked_s = now_s
                self._unanswered_s += passed_s
                self._look(passed_s)
            if self._unanswered_s > SILENCE_S:
                self._give_up(f"the store has not answered for {SILENCE_S:.0f} s")

    def _let_in(self) -> None:
        line, _ = self._door.accept()
        if not is_ours(line):
            line.close()
            return
        line.settimeout(BEAT_S)
        try:
            rank = int(line.recv(64).partition(b"\n")[0])
            store = self._local_store.hex() or NO_LOCAL_STORE
            line.send(f"{self._rank} {self.secret.key.hex()} {store}\n".encode())
        except (OSError, ValueError):
            line.close()
            return
        line.setblocking(False)  # noqa: FBT003 -- its one argument
        member = _Member(line=line, rank=rank, pid=peer_of(line)[0])
        self._members[rank] = member
        self._ears.register(line, selectors.EVENT_READ, member)

    def _hear(self, member: _Member) -> None:
        try:
            words = member.line.recv(64)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        member.quiet_s = 0.0
        member.leaves = member.leaves or GOODBYE in words
        member.told = member.told or TOLD in words
        if not words:
            self._ears.unregister(member.line)
            member.line.close()
            member.gone = True
            if not member.leaves and member.rank not in self._lost:
                how = TOLD_TO_END if member.told else "its process ended"
                self._note_lost(member.rank, how)

    def _look(self, passed_s: float) -> None:
        """Count for how long each process of this node has been silent."""
        for member in self._members.values():
            if member.gone or member.leaves:
                continue
            member.quiet_s += passed_s
            stopped = member.quiet_s >= STOPPED_S and is_stopped(member.pid)
            if stopped and member.rank not in self._lost:
                self._note_lost(member.rank, "its process is stopped (SIGSTOP or the like)")
                with suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGKILL)  # it heeds nothing else; its agent waits

    def _note_lost(self, rank: int, how: str) -> None:
        self._lost = {**self._lost, rank: how}
        self._wake.set()

    # ------------------------------------------------------------------ the store

    def _beat(self) -> None:
        """Beat, and read the others' beats; each call on the store may take for ever."""
        while not self._over.is_set():
            try:
                self._beat_once()
                self._read()
            except ForgedError as error:
                self._give_up(str(error))
                return
            except RuntimeError as error:
                if not self._over.is_set():
                    self._give_up(f"the connection to the store is lost ({_line(error)})")
                return
            self._unanswered_s = 0.0
            self._wake.wait(BEAT_S)
            self._wake.clear()

    def _beat_once(self) -> None:
        self._number += 1
        members = list(self._members.values())
        beat = Beat(
            number=self._number,
            host=self._host,
            ranks=tuple(sorted({self._rank, *self._members} - {FRONT})),
            lost=self._lost,
            quiet={each.rank: int(each.quiet_s) for each in members if each.quiet_s >= SILENT_S},
        )
        self._store.set(_beat(self._name), beat.encode())

    def _read(self) -> None:
        if self._rank == FRONT:
            for place in range(len(self._known) + 1, self._store.add("nodes/others", 0) + 1):
                self._known.append(self._store.get(f"nodes/{place}").decode())
            names = [self._name, *self._known]
        else:
            names = self._known = self._known or [self._store.get("nodes/first").decode()]
        texts = self._store.multi_get([_beat(name) for name in names])
        beats = {name: Beat.decode(text) for name, text in zip(names, texts, strict=True)}
        self.nodes.hear(beats, time.monotonic())
        if self._rank != FRONT and (why := self.nodes.first_lost()) is not None:
            self._give_up(why)

    def _give_up(self, reason: str) -> None:
        if not self._over.is_set():
            self._stop()
            self._lose(reason)


class _Member(Struct):
    """A process of a leader's node: its socket, and for how many seconds it has been silent."""

    line: socket.socket
    rank: int
    pid: int
    quiet_s: float = 0.0
    leaves: bool = False
    told: bool = False
    gone: bool = False


class Follower:
    """Any other process of a node: shows its leader that it runs, and ends with it.

    A follower never talks to the store for that. When its leader is gone it looks there once more,
    to say why it ends.
    """

    def __init__(
        self,
        doors: Store,
        place: str,
        secret: Secret | None,
        rank: int,
        name: str,
        *,
        lost: Callable[[str], None],
    ) -> None:
        """Use `doors`, torch's store, once now, and once more if the leader is lost.

        Without a `secret` it is the leader's. `lost` is called once, in a thread, with what is
        wrong; an empty text where the leader has said it already.
        """
        #: the secret of the launch, once it is known
        self.secret = secret
        #: where the store of the launch is, where all its ranks are on this host
        self.local_store: LocalStoreAddress | None = None
        self._doors = doors
        self._place = place
        self._rank = rank
        self._name = name
        self._lose = lost
        #: whether the leader has said that the run is over
        self.is_over = False
        self._over = threading.Event()
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._leader = -1

    def start(self) -> None:
        """Find the leader, and beat from now on."""
        if not arrives(self._doors, _door(self._name), DOOR_S):
            return  # rank 0 waits for the leader as well, and says so
        self._line.settimeout(BEAT_S)
        try:
            self._line.connect(self._doors.get(_door(self._name)))
            if not is_ours(self._line):
                self._lose("the door of its node is another user's")
                return
            self._line.send(f"{self._rank}\n".encode())
            rank, key, local_store = self._line.recv(4096).decode().partition("\n")[0].split()
            self._leader = int(rank)
            self.secret = self.secret or Secret(bytes.fromhex(key))
            if local_store != NO_LOCAL_STORE:
                name, key_of_all = bytes.fromhex(local_store), self.secret.key
                self.local_store = LocalStoreAddress(name=name, key=key_of_all)
        except (OSError, ValueError) as error:
            self._lose(f"the first process of its node does not answer ({error})")
            return
        threading.Thread(target=self._beat, name="heart", daemon=True).start()

    def part(self) -> None:
        """Stop: the run is over, and that this process ends is no loss."""
        self._over.set()
        with suppress(OSError):
            self._line.send(GOODBYE)

    def tell_told(self) -> None:
        """Say that this process was told to end, so that its end is not taken for a cause."""
        with suppress(OSError):
            self._line.send(TOLD)

    def _beat(self) -> None:
        said = b""
        while not self._over.is_set():
            try:
                self._line.send(BEAT)
                said = self._line.recv(64)
            except TimeoutError:
                continue
            except OSError:
                said = b""
            break
        self.is_over = GOODBYE in said
        if self.is_over or self._over.is_set():
            return
        if LOST not in said:
            self._tell_of_leader()
        leader = "the command line" if self._leader == FRONT else f"rank {self._leader}"
        self._lose("" if LOST in said else f"{leader}, which leads its node, ended")

    def _tell_of_leader(self) -> None:
        """Beat once more for the node, whose leader cannot say any more that it is gone."""
        beat = Beat(
            number=-1,
            host=socket.gethostname(),
            ranks=tuple(sorted({self._leader, self._rank} - {FRONT})),
            lost={self._leader: "its process ended"},
        )
        assert self.secret is not None
        if self.local_store is not None:
            return  # it ended with the command line, which alone would read it
        with suppress(RuntimeError):
            sealed = SealedStore(self._doors, self._place, self.secret)
            sealed.set(_beat(self._name), beat.encode())


def _beat(name: str) -> str:
    return f"node/{name}/beat"


def _door(name: str) -> str:
    return f"node/{name}/door"


def _line(error: Exception) -> str:
    lines: list[Any] = str(error).strip().splitlines() or [type(error).__name__]
    return f"{lines[0]}"
