"""What the doctor says of names, interfaces and ports."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from torch_scenarios.doctor import network
from torch_scenarios.execution.rendezvous import Endpoint

NAMES = {
    "here": ["10.0.0.7"],
    "loops": ["127.0.1.1"],
    "six": ["fd79::10"],
    "both": ["10.0.0.7", "fd79::10"],
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the resolver know these names alone, and numbers."""
    real = socket.getaddrinfo

    def resolve(host: str, port: Any, *words: Any, **more: Any) -> Any:
        if host in NAMES:
            return [each for a in NAMES[host] for each in real(a, port, *words, **more)]
        if host[0].isdigit() or ":" in host:
            return real(host, port, *words, **more)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("host", "status", "words"),
    [
        ("here", "ok", "here:29400 is at 10.0.0.7"),
        ("both", "ok", "both:29400 is at 10.0.0.7, fd79::10"),
        ("loops", "wrong", "leads to 127.0.1.1 alone, which no other host reaches"),
        ("nowhere", "wrong", "does not resolve (Name or service not known)"),
    ],
)
def test_the_name_of_the_endpoint_leads_where_the_nodes_can_meet(
    host: str, status: str, words: str
) -> None:
    (check,) = network.look_at_endpoint(Endpoint(host=host, port=29400), 2)
    assert check.status == status
    assert words in check.message


@pytest.mark.usefixtures("names")
def test_a_name_of_ipv6_alone_needs_ipv6_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "has_ipv6", lambda: False)
    (check,) = network.look_at_endpoint(Endpoint(host="six", port=29400), 2)
    assert check.message.startswith("six has addresses of IPv6 alone (fd79::10)")
    monkeypatch.setattr(network, "has_ipv6", lambda: True)
    assert network.look_at_endpoint(Endpoint(host="six", port=29400), 2)[0].status == "ok"


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("name", "nodes", "status"),
    [
        ("here", 2, "ok"),
        ("loops", 1, "ok"),
        ("loops", 2, "wrong"),
        ("nowhere", 2, "wrong"),
        ("nowhere", 1, "note"),
    ],
)
def test_the_name_of_a_host_leads_to_an_address_that_others_reach(
    name: str, nodes: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    (check,) = network.look_at_own_name(nodes, {})
    assert check.status == status
    (check,) = network.look_at_own_name(nodes, {"GLOO_SOCKET_IFNAME": "eth0"})
    assert check.status != "wrong"


@pytest.mark.usefixtures("names")
def test_a_slow_resolver_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "SLOW_S", -1.0)
    first, second = network.look_at_endpoint(Endpoint(host="here", port=29400), 2)
    assert (first.status, second.status) == ("note", "ok")
    assert "the resolver took" in first.message


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "lo 127.0.0.1"),
        ({"GLOO_SOCKET_IFNAME": "lo"}, "lo 127.0.0.1"),
        ({"GLOO_SOCKET_IFNAME": "eth9"}, "this host has no interface 'eth9'"),
        ({"NCCL_SOCKET_IFNAME": "=eth9"}, "this host has no interface 'eth9'"),
        ({"NCCL_SOCKET_IFNAME": "^docker"}, "lo 127.0.0.1"),
        ({"NCCL_SOCKET_IFNAME": "l"}, "lo 127.0.0.1"),
    ],
    ids=str,
)
def test_an_interface_that_is_named_has_to_be_here(environment: dict[str, str], words: str) -> None:
    (check,) = network.look_at_interfaces(environment)
    assert words in check.message


def test_gloo_listens_at_its_interface() -> None:
    assert network.gloo_address({"GLOO_SOCKET_IFNAME": "lo"}) == "127.0.0.1"


def test_a_free_port_is_free_and_one_in_use_has_a_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        endpoint = Endpoint(host="127.0.0.1", port=other.getsockname()[1])
        (check,) = network.look_at_port(endpoint)
        assert check.status == "wrong"
        assert f"process {os.getpid()} (" in check.message
    (check,) = network.look_at_port(endpoint)
    assert check.status == "ok"


def test_a_port_of_another_host_is_not_looked_at() -> None:
    assert network.look_at_port(Endpoint(host="192.0.2.7", port=29400)) == []


def test_a_connection_that_cannot_be_made_has_a_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert network.explain_refusal("127.0.0.1", port) == ""
    assert network.explain_refusal("127.0.0.1", port) == "Connection refused"
