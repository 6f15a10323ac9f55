"""A whole examination: this host, and where there are several nodes each of them.

Every node looks at itself first. Then the one that has the endpoint's address waits for the others.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from msgspec import Struct

from torch_scenarios.doctor import machine, network
from torch_scenarios.doctor.check import Check, exit_code, fine, note, report_untested, wrong
from torch_scenarios.doctor.nodes import FirstNode, Survey, TestPort, attend
from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.rendezvous import Endpoint, UnreachedError
from torch_scenarios.execution.token import MISSING, token_of

#: seconds that a program which has the endpoint's port on this host gets to be another doctor
NEIGHBOUR_S = 5.0


class Examination(Struct, frozen=True, kw_only=True):
    """What was found, host by host, and the exit code of it.

    >>> Examination(hosts=(("host0", ()),), code=0).hosts[0][0]
    'host0'
    """

    hosts: tuple[tuple[str, tuple[Check, ...]], ...]
    code: int


class Subject(Struct, frozen=True, kw_only=True):
    """What is to be looked at: `ranks` of each node, `nodes`, and the environment that they get.

    Without an `endpoint` this machine alone is looked at. `make_secret` gives the first node's
    secret where the environment has no token; `say` gets a line about what is waited for, for
    `within_s` seconds at most.
    """

    ranks: int
    nodes: int
    endpoint: Endpoint | None
    environment: Mapping[str, str]
    make_secret: Callable[[], Secret]
    say: Callable[[str], None]
    within_s: float


def examine(subject: Subject) -> Examination:
    """Look at this host, and with an endpoint at every node."""
    own = look(subject)
    if subject.endpoint is None:
        return _examine_host(own.host, own.checks)
    try:
        token = token_of(subject.environment)
    except LaunchError as error:
        fix = "let the token be this user's alone, and long enough"
        return _examine_host(own.host, (*own.checks, wrong("token", str(error), fix)))
    try:
        listeners = subject.endpoint.open(subject.say, subject.within_s)
    except LaunchError as error:
        return _examine_host(
            own.host, (*own.checks, *_explain_unopened(subject.endpoint, str(error)))
        )
    checks = (*own.checks, *network.look_at_endpoint(subject.endpoint, subject.nodes))
    if listeners:
        return _lead_nodes(subject, listeners, token, own, checks)
    return _another(subject, token, own, checks)


def look(subject: Subject) -> Survey:
    """Look at this host by itself."""
    found = machine.ask_torch()
    ranks, environment = subject.ranks, subject.environment
    inventory = machine.Inventory() if isinstance(found, str) else found
    checks = machine.look_at_torch(found)
    if not isinstance(found, str):
        checks += machine.look_at_gpus(found, ranks, environment)
    checks += machine.look_at_environment(environment)
    checks += network.look_at_own_name(subject.nodes, environment)
    checks += network.look_at_interfaces(environment)
    checks += network.look_at_ipv6()
    checks += machine.look_at_shared_memory(len(inventory.gpus), ranks)
    checks += machine.look_at_memory(ranks)
    checks += machine.look_at_limits(ranks, ranks * subject.nodes)
    checks += machine.look_at_folder()
    return Survey(
        host=socket.gethostname(),
        checks=tuple(checks),
        versions=inventory.versions,
        variables=machine.variables(environment),
    )


def _examine_host(host: str, checks: tuple[Check, ...]) -> Examination:
    return Examination(hosts=((host, checks),), code=exit_code(checks))


def _explain_unopened(endpoint: Endpoint, why: str) -> list[Check]:
    """Say why no node can come: the name does not resolve, or the port is not to be had."""
    found = network.look_at_endpoint(endpoint, 1) + network.look_at_port(endpoint)
    return [each for each in found if each.status == "wrong"] or [
        wrong("endpoint", why, "name another one with --rdzv-endpoint on every node")
    ]


def _survey(own: Survey, checks: tuple[Check, ...], ear: TestPort) -> Survey:
    return Survey(
        host=own.host,
        checks=checks,
        versions=own.versions,
        variables=own.variables,
        address=ear.address,
        port=ear.port,
    )


def _lead_nodes(
    subject: Subject,
    listeners: list[socket.socket],
    token: str | None,
    own: Survey,
    checks: tuple[Check, ...],
) -> Examination:
    """Be the node that has the endpoint's address: all others come here."""
    assert subject.endpoint is not None
    port = fine("port", f"port {subject.endpoint.port} is free on this host, the first node")
    if token is None:
        secret = subject.make_secret()
        known = note("token", "the environment has no token: this run made one")
    else:
        secret, known = Secret(token.encode()), fine("token", "the environment has one")
    ear = TestPort(subject.environment)
    meets = FirstNode(listeners, subject.endpoint, secret, subject.nodes, subject.say)
    try:
        found = meets.examine(_survey(own, (*checks, port, known), ear), subject.within_s)
    finally:
        ear.close()
    hosts = tuple((each.survey.host, each.checks) for each in found)
    return Examination(hosts=hosts, code=exit_code(each for _, some in hosts for each in some))


def _another(
    subject: Subject, token: str | None, own: Survey, checks: tuple[Check, ...]
) -> Examination:
    """Be a node that comes to the first."""
    assert subject.endpoint is not None
    held = tuple(network.look_at_port(subject.endpoint))  # another node of this host may have it
    if token is None:
        fix = "the first node prints one, or make one for all: `openssl rand -hex 32`"
        return _examine_host(own.host, (*checks, *held, wrong("token", MISSING, fix)))
    same = fine("token", "the first node has the same")
    within_s = NEIGHBOUR_S if held else subject.within_s
    ear = TestPort(subject.environment)
    try:
        conclusion = attend(
            subject.endpoint,
            Secret(token.encode()),
            subject.ranks,
            lambda: _survey(own, (*checks, same), ear),
            subject.say,
            within_s,
        )
    except UnreachedError as error:
        fix = "the same command must run on the first node, and no firewall be in between"
        return _examine_host(
            own.host, (*checks, *(held or (report_untested("nodes", str(error), fix),)))
        )
    except LaunchError as error:
        fix = "one run has one token, one port and one command"
        return _examine_host(own.host, (*checks, *(held or (wrong("nodes", str(error), fix),))))
    finally:
        ear.close()
    every = (*checks, same, *conclusion.checks)
    return Examination(hosts=((own.host, every),), code=conclusion.code)
