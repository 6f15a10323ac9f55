"""The doctor over several nodes: they meet as those of a run do, and the first compares them.

first node                        another node
  Gate  <------ NodeOffer ----------- Endpoint.reach
  AskSurvey ------------------------> looks at itself
        <------ Survey --------------
  AskTime --------------------------> its clock
        <------ Time ----------------
  Peers (all addresses) ------------> connects to each of them
        <------ UnreachedNodes ----
  Conclusion ------------------------> its checks with what the first found, the exit code
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from torch_scenarios.doctor import network
from torch_scenarios.doctor.check import Check, exit_code, fine, report_untested, wrong
from torch_scenarios.doctor.machine import compare_variables
from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.rendezvous import (
    Endpoint,
    Gate,
    NodeConnection,
    NodeMessage,
    NodeOffer,
)

#: seconds that a node gets to look at itself, and to connect to the others
LOOKS_S, CONNECTS_S = 300.0, 120.0
#: seconds that the gate is listened to at once
GATE_LOOK_S = 0.5
#: seconds by which clocks may differ before times of two nodes cannot be compared
SKEW_S = 5.0


# What they say to each other.

_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
_Checks: TypeAlias = Annotated[tuple[Check, ...], Meta(max_length=1024)]
_Texts: TypeAlias = Annotated[dict[str, str], Meta(max_length=1024)]
_Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]


class Survey(NodeMessage, frozen=True, kw_only=True):
    """What a node found on itself, and where it listens for the others.

    The first node compares them: two versions of torch, or one variable that is set on one node
    alone, are findings that no node could make by itself.
    """

    host: _Name
    checks: _Checks
    versions: _Texts = field(default_factory=dict)
    variables: _Texts = field(default_factory=dict)
    address: _Name = "127.0.0.1"
    port: _Port = 0


class AskSurvey(NodeMessage, frozen=True, kw_only=True):
    """The first node asks for a survey."""


class AskTime(NodeMessage, frozen=True, kw_only=True):
    """The first node asks for the time.

    first      asks at 10.0 s            hears 12.3 s at 10.2 s
    another    12.3 s by its clock       it is 2.2 s ahead, give or take 0.1 s
    """


class Time(NodeMessage, frozen=True, kw_only=True):
    """Seconds since 1970 by a node's clock.

    Clocks that are apart make logs of two nodes unreadable side by side, and certificates invalid.
    """

    seconds: float


class Peers(NodeMessage, frozen=True, kw_only=True):
    """Where each node listens: its host, an address, a port.

    Every node tries every other, since networks are not symmetric: a firewall may let one direction
    through.
    """

    places: Annotated[tuple[tuple[_Name, _Name, _Port], ...], Meta(max_length=4096)]


class UnreachedNodes(NodeMessage, frozen=True, kw_only=True):
    """Which of the other nodes a node could not connect to, and why.

    >>> UnreachedNodes(failures={"host2": "timed out"}).failures
    {'host2': 'timed out'}
    """

    failures: Annotated[dict[str, str], Meta(max_length=4096)]


class Conclusion(NodeMessage, frozen=True, kw_only=True):
    """What the first node found about a node, and the exit code of all.

    Each node prints its own, so that a log of any of them has the reason.
    """

    checks: _Checks
    code: Annotated[int, Meta(ge=0, le=255)]


_OF_THE_FIRST = msgspec.msgpack.Decoder(AskSurvey | AskTime | Peers | Conclusion)
_OF_ANOTHER = msgspec.msgpack.Decoder(Survey | Time | UnreachedNodes)


class TestPort:
    """A port at which this host's Gloo would listen, for the others to try.

    It is at the address that Gloo would choose (`GLOO_SOCKET_IFNAME`, or the host's own name), for
    that is where the others will connect.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Listen, at a port that the kernel chooses. Raises OSError."""
        self.address = network.gloo_address(environment)
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self._listener = socket.create_server((self.address, 0), family=family, backlog=4096)

    @property
    def port(self) -> int:
        """The port that others connect to; the kernel answers them."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()


def reach_all(peers: Peers, own: tuple[str, int]) -> dict[str, str]:
    """Connect to every other node; return why not, by host."""
    failures = {}
    for host, address, port in peers.places:
        if (address, port) == own:
            continue
        why = "" if not network.is_loopback(address) else "its Gloo listens at the loopback alone"
        if why := why or network.explain_refusal(address, port):
            failures[host] = f"{address}: {why}"
    return failures


def attend(
    endpoint: Endpoint,
    secret: Secret,
    ranks: int,
    survey: Callable[[], Survey],
    say: Callable[[str], None],
    within_s: float,
) -> Conclusion:
    """Be another node than the first, and return what the first concludes of this one.

    Raises LaunchError where the first node is not reached or leaves; a conclusion is
    then drawn by the caller.
    """
    talk = endpoint.reach(secret, say, within_s)
    own = ("", 0)
    try:
        talk.say(NodeOffer(host=socket.gethostname(), count=ranks))
        while True:
            match talk.hear(LOOKS_S, _OF_THE_FIRST):
                case AskSurvey():
                    found = survey()
                    own = (found.address, found.port)
                    talk.say(found)
                case AskTime():
                    talk.say(Time(seconds=time.time()))
                case Peers() as peers:
                    talk.say(UnreachedNodes(failures=reach_all(peers, own)))
                case Conclusion() as conclusion:
                    return conclusion
    except (OSError, EOFError) as error:
        message = f"the first node at {endpoint} left: {error or 'it has ended'}"
        raise LaunchError(message) from error
    finally:
        talk.close()


class NodeReport(Struct, kw_only=True):
    """A node as the first one knows it; the first itself has no `talk`."""

    talk: NodeConnection | None
    survey: Survey
    #: what the first node found about it
    found: list[Check] = field(default_factory=list)

    @property
    def checks(self) -> tuple[Check, ...]:
        """All that is known of this node."""
        return (*self.survey.checks, *self.found)


class FirstNode:
    """The first node: lets the others in, asks each of them, compares them all."""

    def __init__(
        self,
        listeners: list[socket.socket],
        endpoint: Endpoint,
        secret: Secret,
        count: int,
        say: Callable[[str], None],
    ) -> None:
        """Own the listeners; `say` gets a line for what is refused and what is waited for."""
        self._gate = Gate(listeners, endpoint, secret, say)
        self._endpoint = endpoint
        self._count = count
        self._say = say

    def examine(self, own: Survey, within_s: float) -> list[NodeReport]:
        """Return all nodes with what is known of each, this one first; tell the others the code.

        Those that come later than `within_s` seconds are not there.
        """
        first = NodeReport(talk=None, survey=own)
        try:
            nodes = [first, *self._admit(first, within_s)]
        finally:
            self._gate.close()
        self._ask_time(nodes)
        compare(nodes)
        self._connect(nodes)
        code = exit_code(check for each in nodes for check in each.checks)
        for each in nodes:
            if each.talk is not None:
                with suppress(OSError):
                    each.talk.say(Conclusion(checks=tuple(each.found), code=code))
                each.talk.close()
        return nodes

    def _admit(self, first: NodeReport, within_s: float) -> list[NodeReport]:
        """Wait for the other nodes, and for what each found on itself."""
        came: list[tuple[NodeConnection, NodeOffer]] = []
        until_s, is_silent = time.monotonic() + within_s, True
        while len(came) < self._count - 1 and time.monotonic() < until_s:
            came += self._gate.hear(GATE_LOOK_S)
            if is_silent and time.monotonic() > until_s - within_s + 3.0:
                is_silent = False
                missing = self._count - 1 - len(came)
                self._say(f"waiting for {missing} of {self._count} nodes at {self._endpoint}")
        names = [first.survey.host, *(offer.host for _, offer in came)]
        if len(names) < self._count:
            message = f"{len(names)} of {self._count} nodes came within {within_s:.0f} s "
            message += f"({', '.join(names)})"
            fix = f"run the same command on the others, which must reach {self._endpoint}"
            first.found.append(report_untested("nodes", message, fix))
        else:
            first.found.append(fine("nodes", f"all {self._count} came: {', '.join(names)}"))
        return [each for talk, offer in came if (each := self._hear_survey(talk, offer, first))]

    def _hear_survey(
        self, talk: NodeConnection, offer: NodeOffer, first: NodeReport
    ) -> NodeReport | None:
        try:
            talk.say(AskSurvey())
            survey = talk.hear(LOOKS_S, _OF_ANOTHER)
            if isinstance(survey, Survey):
                return NodeReport(talk=talk, survey=survey)
            why = "it is not a doctor: start the same command on every node"
        except (OSError, EOFError, LaunchError) as error:
            why = str(error) or "it has ended; another command than this one may run there"
        talk.close()
        first.found.append(report_untested("nodes", f"node {offer.host} left: {why}"))
        return None

    def _ask_time(self, nodes: list[NodeReport]) -> None:
        """Find out by how much the clocks of the others differ from this one's."""
        for each in nodes:
            if each.talk is None:
                continue
            began_s = time.time()
            answer = _ask(each, AskTime(), Time, LOOKS_S)
            if isinstance(answer, Time):
                ended_s = time.time()
                skew_s, most_s = answer.seconds - (began_s + ended_s) / 2, (ended_s - began_s) / 2
                each.found.append(judge_clock(skew_s, most_s, nodes[0].survey.host))

    def _connect(self, nodes: list[NodeReport]) -> None:
        """Let every node connect to every other, as Gloo and NCCL do."""
        places = tuple((p.survey.host, p.survey.address, p.survey.port) for p in nodes)
        peers = Peers(places=places)
        if len(nodes) == 1:
            return
        for each in nodes:
            own = (each.survey.address, each.survey.port)
            if each.talk is None:
                failures = reach_all(peers, own)
            else:
                answer = _ask(each, peers, UnreachedNodes, CONNECTS_S)
                if not isinstance(answer, UnreachedNodes):
                    continue
                failures = answer.failures
            each.found += _reach(failures, len(nodes) - 1, own[0])


def _ask(of: NodeReport, question: NodeMessage, kind: type[NodeMessage], within_s: float) -> object:
    """Return a node's answer; where there is none, it says so among its checks."""
    assert of.talk is not None
    try:
        of.talk.say(question)
        answer = of.talk.hear(within_s, _OF_ANOTHER)
        if isinstance(answer, kind):
            return answer
        why = "it answers something else"
    except (OSError, EOFError, LaunchError) as error:
        why = str(error) or "it has ended"
    of.found.append(report_untested("nodes", f"node {of.survey.host} does not answer: {why}"))
    return None


def judge_clock(skew_s: float, most_s: float, first: str) -> Check:
    """Say by how many seconds a clock is off, known to `most_s`."""
    words = f"{abs(skew_s):.1f} s {'ahead of' if skew_s > 0 else 'behind'} {first}'s"
    if abs(skew_s) - most_s <= SKEW_S:
        return fine("clock", f"within {abs(skew_s) + most_s:.1f} s of {first}'s")
    return wrong("clock", f"this clock is {words}", "let a time service set both (chrony, NTP)")


def _reach(failures: Mapping[str, str], others: int, own: str) -> list[Check]:
    if not failures:
        return [fine("reach", f"reaches {others} other nodes at the addresses of Gloo; own: {own}")]
    fix = "let GLOO_SOCKET_IFNAME name an interface that leads there, and every port be open"
    return [
        wrong("reach", f"cannot connect to {host} at {why}", fix) for host, why in failures.items()
    ]


def compare(nodes: list[NodeReport]) -> None:
    """Say of each node what it has otherwise than the first: versions, and variables."""
    first = nodes[0].survey
    for each in nodes[1:]:
        found = each.survey
        different = [
            f"{name} {found.versions.get(name, 'unknown')}, and {first.host} has {version}"
            for name, version in first.versions.items()
            if found.versions.get(name) != version
        ]
        fix = "install the same on every node"
        each.found += [wrong("versions", f"this node has {words}", fix) for words in different]
        if not different and first.versions:
            each.found.append(fine("versions", f"the same as on {first.host}"))
        each.found += compare_variables(found.variables, first.variables, first.host)
