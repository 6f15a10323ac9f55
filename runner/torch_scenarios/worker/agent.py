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

An agent and the command line prove the token of the run to each other
(:mod:`torch_scenarios.execution.rendezvous`); what they say after that is sealed. Where the
connection breaks, the agent ends its ranks and itself; the kernel notices a cut link within
:data:`~torch_scenarios.execution.rendezvous.CUT_S`.
"""

from __future__ import annotations

import gc
import os
import secrets
import signal
import socket
import sys
import time
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, NoReturn, Self

import torch
import torch.distributed
from msgspec import Struct, field

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import LaunchOptions, backends, rendezvous
from torch_scenarios.execution.heartbeat import SILENT_S
from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.nodes import FRONT, Leader
from torch_scenarios.execution.protocol import Supervision
from torch_scenarios.execution.supervisor import PlanRunner, Supervisor
from torch_scenarios.model.needs import Lacks
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.trace import Trace
from torch_scenarios.model.traits import carrier
from torch_scenarios.worker.frontend import INCONCLUSIVE, CommandLine
from torch_scenarios.worker.serve import Member
from torch_scenarios.worker.watcher import Connection, TorchLine, die_with_parent, open_store

dist: Any = torch.distributed
#: seconds that the gate is listened to at once
GATE_LOOK_S = 0.5
#: connections to the store of the ranks that may wait
BACKLOG = 512
#: seconds that nodes which have not come get once the command line has ended without a launch
LATE_S = 30.0
#: seconds that an agent gets to end its ranks
ENDS_S = 20.0
#: seconds between two looks whether an agent has ended
ENDED_LOOK_S = 0.005
#: what an exit code means, on every node
MEANINGS = {
    0: "all passed",
    1: "a scenario failed",
    2: "a file or the command line is invalid",
    3: "inconclusive",
    5: "nothing was selected",
    130: "interrupted",
}


# -------------------------------------------------------------------------------------------------
# The agent of a node.


class Agent:
    """Forks the ranks of its node, and ends them, when it is asked to.

    It imports torch once for all launches of a run. It never judges: what its ranks saw goes to the
    first node.
    """

    def __init__(
        self,
        talk: rendezvous.NodeConnection,
        host: str,
        count: int,
        command_line: CommandLine,
        secret: Secret,
        *,
        follows: bool,
    ) -> None:
        """Offer `count` ranks to the command line, whose address here is `host`.

        `secret` seals what the ranks say. With `follows` it has no arguments, and takes
        those of the first node.
        """
        self._talk = talk
        self._host = host
        self._count = count
        self._command_line = command_line
        self._secret = secret
        self._follows = follows
        self._ranks: list[int] = []

    def run(self) -> int:
        """Serve until told to leave; return the exit code of the command line.

        Raises EOFError or OSError where the command line is gone.
        """
        self._talk.say(rendezvous.NodeOffer(host=socket.gethostname(), count=self._count))
        try:
            while True:
                match self._talk.hear():
                    case rendezvous.StartRanks() as order:
                        self._start(order)
                    case rendezvous.EndRanks():
                        self._end()
                        self._talk.say(rendezvous.RanksEnded())
                    case rendezvous.LeaveNode(code=code):
                        return code
                    case other:
                        message = f"the first node said {type(other).__name__} to an agent"
                        raise LaunchError(message)
        finally:
            self._end()

    def _start(self, order: rendezvous.StartRanks) -> None:
        """Fork the ranks of a launch, which connect to its store by themselves."""
        if self._follows:
            sys.argv = [sys.argv[0], *order.words]
        for local in range(self._count):
            if pid := os.fork():
                self._ranks.append(pid)
                continue
            os.environ.update(
                RANK=str(order.first + local),
                LOCAL_RANK=str(local),
                LOCAL_WORLD_SIZE=str(self._count),
                WORLD_SIZE=str(order.world),
                GROUP_RANK=str(order.node),
                MASTER_ADDR=self._host,
                MASTER_PORT=str(order.port),
            )
            self._be_rank(order.first + local, order.launch)

    def _be_rank(self, rank: int, launch: str) -> NoReturn:
        """Be a rank of a launch in the process that was just forked."""
        try:
            die_with_parent()
            gc.freeze()
            self._talk.close()
            Member(rank, launch, self._command_line, self._secret).run()
        except BaseException as error:  # noqa: BLE001 -- what left here would be the agent's twin
            with suppress(OSError):
                os.write(2, f"rank {rank}: {type(error).__name__}: {error}\n".encode())
        os._exit(INCONCLUSIVE)

    def _end(self) -> None:
        """Kill the ranks that are still there."""
        ranks, self._ranks = self._ranks, []
        for pid in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in ranks:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def serve(
    endpoint: rendezvous.Endpoint,
    count: int,
    command_line: CommandLine,
    secret: Secret,
    *,
    follows: bool = False,
) -> int:
    """Be the agent of a node: find the first node, serve, return the exit code.

    Prints what it waits for, what the code means, or why the node ends without one.
    """
    os.environ.update(backends.make_environment(os.environ))
    host = socket.gethostname()
    try:
        talk = endpoint.reach(secret, say)
    except LaunchError as error:
        sys.stderr.write(f"host {host}: {error}\n")
        return INCONCLUSIVE
    try:
        agent = Agent(talk, endpoint.host, count, command_line, secret, follows=follows)
        return agent.run()
    except (OSError, EOFError, LaunchError) as error:
        why = str(error) or "it has ended, or it refused this node"
        sys.stderr.write(
            f"host {host} is cut off from the command line at {endpoint}: {why}. It judges and "
            f"reports; this node ends without a result, with exit code {INCONCLUSIVE}\n"
        )
        return INCONCLUSIVE


def say(words: str) -> None:
    """Print a line about the meeting of the nodes."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def fork_agent(
    endpoint: rendezvous.Endpoint, count: int, command_line: CommandLine, secret: Secret
) -> int:
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
        code = serve(endpoint, count, command_line, secret)
        sys.stderr.flush()
    finally:
        os._exit(code)


# -------------------------------------------------------------------------------------------------
# The command line's side: launches over all nodes, one after the other.


class Node(Struct, kw_only=True):
    """A node as the command line knows it.

    `first` is the rank that its ranks begin with in the launch at hand; `gone` says why it is lost.
    """

    talk: rendezvous.NodeConnection
    host: str
    count: int
    first: int = 0
    gone: str = ""


class NodesLaunch(Struct, kw_only=True):
    """One launch over the nodes: what leads it, what gives it orders.

    launch 1      ranks 0-7      a scenario kills rank 3: this launch ends
    launch 2      ranks 0-7      the next scenario, on new processes of the same agents
    """

    leader: Leader
    lines: list[TorchLine | Connection]
    supervisor: Supervisor
    plan_runner: PlanRunner
    failure: list[str] = field(default_factory=list)


class Cluster:
    """Runs plans over nodes, launch after launch; an executor, and a context manager.

    It waits for as many agents as there are nodes, and numbers ranks in the order of the nodes. A
    node that is lost ends the run, since no other can take its ranks (decision 32).
    """

    def __init__(
        self,
        listeners: list[socket.socket],
        endpoint: rendezvous.Endpoint,
        nodes: int,
        agent: int,
        options: LaunchOptions,
        secret: Secret,
    ) -> None:
        """Wait for agents at `listeners`; `agent` is the process id of this node's.

        `secret` is that of the token.
        """
        self._addresses = [(each.family, each.getsockname()[0]) for each in listeners]
        self._gate = rendezvous.Gate(listeners, endpoint, secret, say)
        self._secret = secret
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

    @property
    def lacks(self) -> Lacks:
        """What the plugins declare that they lack, and what the backends may lack that it comes to.

        Raises ScenarioError where a plugin declares what is not a capability.
        """
        backend = self._options.backend
        return self._options.lacks(("nccl",) if backend == "auto" else (carrier(backend),))

    def reserve(self, world_size: int) -> None:
        """Do nothing: the nodes have the ranks that they have."""

    # ------------------------------------------------------------------ scenarios

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Run one plan; as a launcher does."""
        if self._unable:
            raise LaunchError(self._unable)
        launch = self._launch or self._begin()
        try:
            trace = launch.plan_runner.run(plan, predicted)
        finally:
            if self._options.isolate or launch.plan_runner.end_reason is not None:
                self._finish()
        return trace

    def _begin(self) -> NodesLaunch:
        """Start the ranks of every node. Raises LaunchError where one does not come up.

            prefix   .../launch-1, .../launch-2: one store, in which a late rank of launch 1 writes
                     what no one in launch 2 reads
            beats    a line to the store on which the leader hears of nodes that are gone
            orders   another one, sealed with the secret, on which ranks get their scenarios

        Where the leader loses the store, both lines are cut, and what waits on either of them ends.
        """
        self._meet()
        self._launches += 1
        if self._store is None:
            # one store serves every launch, each under another prefix
            self._store = open_store(
                dist, self._endpoint.host, self._listener(), rendezvous.COMES_S
            )
        os.environ["MASTER_ADDR"] = self._endpoint.host
        os.environ["MASTER_PORT"] = str(self._store.port)
        prefix = f"torch_scenarios/{secrets.token_hex(8)}/launch-{self._launches}"
        world = sum(node.count for node in self._nodes)
        failure: list[str] = []
        beats = TorchLine(dist, prefix)
        orders = Connection.seal(dist, prefix, self._secret)
        lines: list[TorchLine | Connection] = [beats, orders]

        def lose(reason: str) -> None:
            failure.append(reason)
            for line in lines:
                line.cut()

        leader = Leader(beats.store, prefix, self._secret, FRONT, "0", lost=lose)
        leader.start()

        def find_lost(watch: Supervision | None = None) -> dict[int, str]:
            if failure:
                how = f"the store of this launch is out of reach: {failure[0]}"
                return dict.fromkeys(range(world), how)
            found = leader.nodes.find_lost(0.0 if watch is None else watch.silent_s - SILENT_S)
            return {
                rank: how for rank, how in found.items() if watch is None or rank < watch.world_size
            }

        supervisor = Supervisor(orders.store, dict, find_lost)
        plan_runner = PlanRunner(torch, supervisor, world, self._options, lost=find_lost)
        launch = NodesLaunch(
            leader=leader,
            lines=lines,
            supervisor=supervisor,
            plan_runner=plan_runner,
            failure=failure,
        )
        self._launch = launch
        for number, node in enumerate(self._nodes):
            order = rendezvous.StartRanks(
                launch=prefix,
                words=sys.argv[1:],
                node=number,
                first=node.first,
                world=world,
                port=self._store.port,
            )
            self._tell(node, order)
        plan_runner.__enter__()
        if plan_runner.end_reason is not None:  # it did not come up, or the nodes differ
            self._unable = plan_runner.end_reason
        return launch

    def _meet(self) -> None:
        """Wait for the agents of all nodes. Raises LaunchError where one is not there."""
        self._hear_nodes(rendezvous.COMES_S)
        missing = self._expected - len(self._nodes)
        if missing:
            hosts = ", ".join(node.host for node in self._nodes) or "none"
            self._unable = (
                f"{missing} of {self._expected} nodes did not come to {self._endpoint} within "
                f"{rendezvous.COMES_S:.0f} s; there are {hosts}"
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
        began_s = time.monotonic()
        says_s = began_s + rendezvous.SAYS_S
        came = list(self._nodes)
        while len(came) < self._expected and time.monotonic() - began_s < within_s:
            for talk, offer in self._gate.hear(GATE_LOOK_S):
                came.append(Node(talk=talk, host=offer.host, count=offer.count))
            if self._has_ended():
                break
            if time.monotonic() >= says_s and len(came) < self._expected:
                says_s = time.monotonic() + rendezvous.AGAIN_S
                say(self._waits_for(came))
        if len(came) == len(self._nodes):
            return
        here = socket.gethostname()
        self._nodes = sorted(came, key=lambda node: (node.host != here, node.host))
        first = 0
        for node in self._nodes:
            node.first = first
            first += node.count

    def _waits_for(self, came: list[Node]) -> str:
        """Say how many nodes are not there yet, and which are."""
        missing = self._expected - len(came)
        hosts = ", ".join(node.host for node in came) or "none"
        words = f"waiting for {missing} of {self._expected} nodes at {self._endpoint}; "
        words += f"there are {hosts}"
        addresses = [address for _, address in self._addresses]
        if all(ip_address(each.partition("%")[0]).is_loopback for each in addresses):
            words += f"; no other host can reach {', '.join(addresses)}"
        return words

    def _listener(self) -> socket.socket:
        """Listen for the store of the ranks, at the addresses of the endpoint alone."""
        if len({family for family, _ in self._addresses}) > 1:
            where, both = ("::", 0), True
            return socket.create_server(where, family=socket.AF_INET6, dualstack_ipv6=both)
        family, address = self._addresses[0]
        return socket.create_server((address, 0), family=family, backlog=BACKLOG)

    def _tell(
        self, to: Node, message: rendezvous.StartRanks | rendezvous.EndRanks | rendezvous.LeaveNode
    ) -> None:
        try:
            to.talk.say(message)
        except OSError as error:
            to.gone = to.gone or str(error)

    def _finish(self) -> None:
        """End the ranks of the launch on every node, and wait until that is so."""
        launch, self._launch = self._launch, None
        if launch is None:
            return
        launch.leader.part()
        for node in self._nodes:
            self._tell(node, rendezvous.EndRanks())
        deadline_s = time.monotonic() + ENDS_S
        for node in self._nodes:
            if node.gone:
                continue
            try:
                node.talk.hear(max(0.1, deadline_s - time.monotonic()))
            except (OSError, EOFError, LaunchError) as error:
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
            self._tell(node, rendezvous.LeaveNode(code=code))
        self._gate.close()
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
