"""A launch over nodes that goes on after a death: an agent on each node, one command line.

    node 0                                   node 1
    scenario run --nnodes 2 ...              scenario run --nnodes 2 ...
      command line, store --- endpoint ------- agent: forks ranks 4 to 7
      agent: forks ranks 0 to 3

Each node starts the same command. The node that has the endpoint's address is the first: there the
command line reads, judges and reports, as it does on one machine. Every node has an agent, which
imports torch once, forks the ranks of its node when it is asked to, and kills them when it is asked
to. A scenario that ends a process costs its launch: the next scenario gets a new one, in the time
of a fork. The ranks are those of `python -m torch_scenarios.worker`, and lost nodes are found as
there.

Agents read lines of JSON, over one connection each; it carries no pickle. Where it
breaks, the agent ends its ranks and itself; the kernel notices a cut link within :data:`CUT_S`.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn, Self

import torch
import torch.distributed
from msgspec import Struct, field

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import LaunchOptions, backends
from torch_scenarios.execution.heartbeat import SILENT_S
from torch_scenarios.execution.nodes import FRONT, Leader
from torch_scenarios.execution.protocol import Supervision
from torch_scenarios.execution.supervisor import Conductor, Supervisor
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.trace import Trace
from torch_scenarios.worker.frontend import INCONCLUSIVE, CommandLine
from torch_scenarios.worker.serve import Member
from torch_scenarios.worker.watcher import Connection, die_with_parent

dist: Any = torch.distributed
#: seconds that the nodes get to come, and that an agent waits for the first one
COMES_S = 300.0
#: seconds that nodes which have not come get once the command line has ended without a launch
LATE_S = 30.0
#: seconds without an answer of the other kernel after which a connection is given up
CUT_S = 15
#: seconds that an agent gets to end its ranks
ENDS_S = 20.0
#: seconds between two looks whether an agent has ended
ENDED_LOOK_S = 0.005
#: seconds between two attempts to reach the first node
RETRY_S = 0.2
#: what an exit code means, on every node
MEANINGS = {
    0: "all passed",
    1: "a scenario failed",
    2: "a file or the command line is invalid",
    3: "inconclusive",
    5: "nothing was selected",
    130: "interrupted",
}


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where the nodes meet: an address of the first of them, and a port there."""

    host: str
    port: int

    def open(self) -> socket.socket | None:
        """Listen there; None where the address is another host's, or another node has it."""
        try:
            return socket.create_server((self.host, self.port), backlog=64)
        except OSError:
            return None


class Talk:
    """Lines of JSON over a connection whose other end may be cut off."""

    def __init__(self, line: socket.socket) -> None:
        """Own the connection."""
        self._line = line
        self._read = b""
        for option, value in (
            (socket.TCP_KEEPIDLE, 5),
            (socket.TCP_KEEPINTVL, 3),
            (socket.TCP_KEEPCNT, 3),
            (socket.TCP_USER_TIMEOUT, 1000 * CUT_S),
        ):
            line.setsockopt(socket.IPPROTO_TCP, option, value)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._line.fileno()

    def say(self, **words: Any) -> None:
        """Send a line. Raises OSError where the other end is gone."""
        self._line.sendall(json.dumps(words).encode() + b"\n")

    def hear(self, within_s: float | None = None) -> dict[str, Any]:
        """Return the next line. Raises OSError, or EOFError, where the other end is gone."""
        self._line.settimeout(within_s)
        while b"\n" not in self._read:
            more = self._line.recv(1 << 16)
            if not more:
                raise EOFError
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        self._line.settimeout(None)
        words: dict[str, Any] = json.loads(line)
        return words

    def close(self) -> None:
        """Close the connection."""
        self._line.close()


# -------------------------------------------------------------------------------------------------
# The agent of a node.


class Agent:
    """Forks the ranks of its node, and ends them, when it is asked to."""

    def __init__(
        self, talk: Talk, host: str, count: int, command_line: CommandLine, *, follows: bool
    ) -> None:
        """Offer `count` ranks to the command line, whose address here is `host`.

        With `follows` it has no arguments of its own, and takes those of the first node.
        """
        self._talk = talk
        self._host = host
        self._count = count
        self._command_line = command_line
        self._follows = follows
        self._ranks: list[int] = []

    def run(self) -> int:
        """Serve until told to leave; return the exit code of the command line.

        Raises EOFError or OSError where the command line is gone.
        """
        self._talk.say(host=socket.gethostname(), count=self._count)
        try:
            while True:
                told = self._talk.hear()
                match told["do"]:
                    case "launch":
                        self._launch(told)
                    case "end":
                        self._end()
                        self._talk.say(ended=True)
                    case _:
                        return int(told["code"])
        finally:
            self._end()

    def _launch(self, told: Mapping[str, Any]) -> None:
        """Fork the ranks of a launch, which connect to its store by themselves."""
        if self._follows:
            sys.argv = [sys.argv[0], *map(str, told["words"])]
        for local in range(self._count):
            if pid := os.fork():
                self._ranks.append(pid)
                continue
            os.environ.update(
                RANK=str(told["first"] + local),
                LOCAL_RANK=str(local),
                LOCAL_WORLD_SIZE=str(self._count),
                WORLD_SIZE=str(told["world"]),
                GROUP_RANK=str(told["node"]),
                MASTER_ADDR=self._host,
                MASTER_PORT=str(told["port"]),
            )
            _be_rank(told["first"] + local, told["launch"], self._talk, self._command_line)

    def _end(self) -> None:
        """Kill the ranks that are still there."""
        ranks, self._ranks = self._ranks, []
        for pid in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in ranks:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _be_rank(rank: int, launch: str, talk: Talk, command_line: CommandLine) -> NoReturn:
    """Be a rank of a launch in the process that was just forked."""
    try:
        die_with_parent()
        gc.freeze()
        talk.close()
        Member(rank, launch, command_line).run()
    except BaseException as error:  # noqa: BLE001 -- what left here would be the agent's twin
        with suppress(OSError):
            os.write(2, f"rank {rank}: {type(error).__name__}: {error}\n".encode())
    os._exit(INCONCLUSIVE)


def serve(
    endpoint: Endpoint, count: int, command_line: CommandLine, *, follows: bool = False
) -> int:
    """Be the agent of a node: find the first node, serve, return the exit code.

    Prints what the code means, or why the node ends without one.
    """
    for name, value in backends.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    host = socket.gethostname()
    try:
        talk = Talk(_reached(endpoint))
        code = Agent(talk, endpoint.host, count, command_line, follows=follows).run()
    except (OSError, EOFError, ValueError) as error:
        why = str(error) or "it has ended"
        sys.stderr.write(
            f"host {host} is cut off from the command line at {endpoint.host}:{endpoint.port}: "
            f"{why}. It judges and reports; this node ends without a result, with exit code "
            f"{INCONCLUSIVE}\n"
        )
        return INCONCLUSIVE
    return code


def fork_agent(endpoint: Endpoint, count: int, command_line: CommandLine) -> int:
    """Fork the agent of the first node, which has torch already; return its process id.

    To be called before this process has threads: a fork takes none of them along.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = INCONCLUSIVE
    try:
        os.setsid()  # what interrupts the command line is no order to its agent
        die_with_parent()
        gc.freeze()
        code = serve(endpoint, count, command_line)
        sys.stderr.flush()
    finally:
        os._exit(code)


def _reached(endpoint: Endpoint) -> socket.socket:
    """Connect to the first node, which may come later. Raises OSError after a while."""
    deadline_s = time.monotonic() + COMES_S
    while True:
        try:
            line = socket.create_connection((endpoint.host, endpoint.port), timeout=CUT_S)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(RETRY_S)
        else:
            line.settimeout(None)
            return line


# -------------------------------------------------------------------------------------------------
# The command line's side: launches over all nodes, one after the other.


class Node(Struct, kw_only=True):
    """A node as the command line knows it."""

    talk: Talk
    host: str
    count: int
    first: int = 0
    gone: str = ""


class NodesLaunch(Struct, kw_only=True):
    """One launch over the nodes: what leads it, what gives it orders."""

    leader: Leader
    lines: list[Connection]
    supervisor: Supervisor
    conductor: Conductor
    failure: list[str] = field(default_factory=list)


class Cluster:
    """Runs plans over nodes, launch after launch; an executor, and a context manager."""

    def __init__(
        self,
        listener: socket.socket,
        endpoint: Endpoint,
        nodes: int,
        agent: int,
        options: LaunchOptions,
    ) -> None:
        """Wait for agents at `listener`; `agent` is the process id of this node's."""
        self._listener = listener
        self._endpoint = endpoint
        self._expected = nodes
        self._agent = agent
        self._ended = False
        self._options = options
        self._nodes: list[Node] = []
        self._store: Any = None
        self._launch: NodesLaunch | None = None
        self._launches = 0
        #: why nothing can run any more
        self._unable = ""

    def __enter__(self) -> Self:
        """Wait for nothing: the first run waits for the agents."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the ranks; the agents stay until they have been told the exit code."""
        self._finish()

    def reserve(self, world_size: int) -> None:
        """Do nothing: the nodes have the ranks that they have."""

    # ------------------------------------------------------------------ scenarios

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Run one plan; as :meth:`torch_scenarios.execution.Launcher.run`."""
        if self._unable:
            raise LaunchError(self._unable)
        launch = self._launch or self._begin()
        try:
            trace = launch.conductor.run(plan, predicted)
        finally:
            if self._options.isolate or launch.conductor.ended is not None:
                self._finish()
        return trace

    def _begin(self) -> NodesLaunch:
        """Start the ranks of every node. Raises LaunchError where one does not come up."""
        self._meet()
        self._launches += 1
        if self._store is None:
            # one store serves every launch, each under a prefix of its own
            self._store = dist.TCPStore(
                "0.0.0.0",
                0,
                is_master=True,
                wait_for_workers=False,
                timeout=timedelta(seconds=COMES_S),
            )
        os.environ["MASTER_ADDR"] = self._endpoint.host
        os.environ["MASTER_PORT"] = str(self._store.port)
        prefix = f"torch_scenarios/launch-{self._launches}"
        world = sum(node.count for node in self._nodes)
        failure: list[str] = []
        lines = [Connection(dist, prefix), Connection(dist, prefix)]

        def lose(reason: str) -> None:
            failure.append(reason)
            for line in lines:
                line.cut()

        leader = Leader(lines[0].store, FRONT, "0", lost=lose)
        leader.start()

        def lost(watch: Supervision | None = None) -> dict[int, str]:
            if failure:
                how = f"the store of this launch is out of reach: {failure[0]}"
                return dict.fromkeys(range(world), how)
            found = leader.nodes.lost(0.0 if watch is None else watch.silent_s - SILENT_S)
            return {
                rank: how for rank, how in found.items() if watch is None or rank < watch.world_size
            }

        supervisor = Supervisor(lines[1].store, dict, lost)
        conductor = Conductor(torch, supervisor, world, self._options, lost=lost)
        launch = NodesLaunch(
            leader=leader,
            lines=lines,
            supervisor=supervisor,
            conductor=conductor,
            failure=failure,
        )
        self._launch = launch
        for number, node in enumerate(self._nodes):
            self._tell(
                node,
                do="launch",
                launch=prefix,
                words=sys.argv[1:],
                node=number,
                first=node.first,
                world=world,
                port=self._store.port,
            )
        conductor.__enter__()
        if conductor.ended is not None:  # it did not come up, or the nodes differ
            self._unable = conductor.ended
        return launch

    def _meet(self) -> None:
        """Wait for the agents of all nodes. Raises LaunchError where one is not there."""
        self._hear_nodes(COMES_S)
        missing = self._expected - len(self._nodes)
        if missing:
            hosts = ", ".join(node.host for node in self._nodes) or "none"
            self._unable = (
                f"{missing} of {self._expected} nodes did not come to {self._endpoint.host}:"
                f"{self._endpoint.port} within {COMES_S:.0f} s; there are {hosts}"
            )
        gone = [node for node in self._nodes if node.gone]
        if gone:
            last = gone[0].first + gone[0].count - 1
            self._unable = (
                f"host {gone[0].host} (ranks {gone[0].first} to {last}) is lost: {gone[0].gone}"
            )
        if self._unable:
            raise LaunchError(self._unable)

    def _hear_nodes(self, within_s: float) -> None:
        """Let agents in until all are there, in the order of their hosts; this node's is first."""
        deadline_s = time.monotonic() + within_s
        came = list(self._nodes)
        while len(came) < self._expected and (left_s := deadline_s - time.monotonic()) > 0:
            ready, _, _ = select.select([self._listener], [], [], min(left_s, 1.0))
            if not ready:
                if self._has_ended():
                    break
                continue
            line, _ = self._listener.accept()
            talk = Talk(line)
            with suppress(OSError, EOFError, ValueError, KeyError):
                hello = talk.hear(CUT_S)
                came.append(Node(talk=talk, host=str(hello["host"]), count=int(hello["count"])))
        if len(came) == len(self._nodes):
            return
        here = socket.gethostname()
        self._nodes = sorted(came, key=lambda node: (node.host != here, node.host))
        first = 0
        for node in self._nodes:
            node.first = first
            first += node.count

    def _tell(self, to: Node, /, **words: Any) -> None:
        try:
            to.talk.say(**words)
        except OSError as error:
            to.gone = to.gone or str(error)

    def _finish(self) -> None:
        """End the ranks of the launch on every node, and wait until that is so."""
        launch, self._launch = self._launch, None
        if launch is None:
            return
        launch.leader.part()
        for node in self._nodes:
            self._tell(node, do="end")
        deadline_s = time.monotonic() + ENDS_S
        for node in self._nodes:
            if node.gone:
                continue
            try:
                node.talk.hear(max(0.1, deadline_s - time.monotonic()))
            except (OSError, EOFError) as error:
                node.gone = str(error) or "its agent has ended"
        launch.supervisor.close()

    # ------------------------------------------------------------------ the end

    def leave(self, code: int) -> None:
        """Tell every node the exit code of the command line, and wait for this node's agent."""
        with suppress(OSError, EOFError):
            self._finish()
            if not self._unable:
                self._hear_nodes(LATE_S)
        for node in self._nodes:
            self._tell(node, do="leave", code=code)
        self._listener.close()
        deadline_s = time.monotonic() + ENDS_S
        while not self._has_ended():
            if time.monotonic() > deadline_s:
                os.kill(self._agent, signal.SIGKILL)
            time.sleep(ENDED_LOOK_S)

    def _has_ended(self) -> bool:
        """Return whether this node's agent has."""
        if not self._ended:
            try:
                self._ended = os.waitpid(self._agent, os.WNOHANG)[0] != 0
            except ChildProcessError:
                self._ended = True
        return self._ended
