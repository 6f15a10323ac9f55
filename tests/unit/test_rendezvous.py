"""Where nodes meet: who is let in, what is not read, and what is said while one waits."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from torch_scenarios.doctor.network import has_ipv6
from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import rendezvous
from torch_scenarios.execution.letters import SEAL, Secret
from torch_scenarios.execution.rendezvous import (
    GREETING,
    NONCE,
    Endpoint,
    Gate,
    LeaveNode,
    NodeConnection,
    NodeOffer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MISSED_S = 30.0
TOKEN = b"a token of this run, and no other"


def free_port(family: socket.AddressFamily = socket.AF_INET, host: str = "127.0.0.1") -> int:
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


class Door:
    """A gate at a port of this machine, and what it has told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.endpoint = Endpoint(host="127.0.0.1", port=free_port())
        listeners = self.endpoint.open(self.lines.append)
        assert len(listeners) == 1
        self.gate = Gate(listeners, self.endpoint, Secret(TOKEN), self.lines.append)

    def until(self, seen: Callable[[], object]) -> list[tuple[NodeConnection, NodeOffer]]:
        """Listen until something is so; return the nodes that came."""
        came: list[tuple[NodeConnection, NodeOffer]] = []
        for _ in range(3000):
            if seen():
                break
            came += self.gate.hear(0.01)
        assert seen(), self.lines
        return came

    def joined(
        self, secret: Secret, count: int = 2
    ) -> tuple[NodeConnection, tuple[NodeConnection, NodeOffer]]:
        """Let a node with the token in; return both ends."""
        found: list[NodeConnection] = []
        came: list[tuple[NodeConnection, NodeOffer]] = []

        def join() -> None:
            talk = self.endpoint.reach(secret, lambda _: None)
            talk.say(NodeOffer(host="node1", count=count))
            found.append(talk)

        thread = threading.Thread(target=join)
        thread.start()
        for _ in range(3000):
            came += self.gate.hear(0.01)
            if came:
                break
        thread.join(MISSED_S)
        (one,) = came
        return found[0], one


@pytest.fixture
def door() -> Iterator[Door]:
    found = Door()
    yield found
    found.gate.close()


def test_a_node_with_the_token_is_let_in_and_both_are_understood(door: Door) -> None:
    theirs, (ours, offer) = door.joined(Secret(TOKEN))
    with closing(theirs), closing(ours):
        assert offer == NodeOffer(host="node1", count=2)
        ours.say(LeaveNode(code=3))
        assert theirs.hear(MISSED_S) == LeaveNode(code=3)
    assert door.lines == []


def connected(door: Door) -> socket.socket:
    line = socket.create_connection((door.endpoint.host, door.endpoint.port), timeout=MISSED_S)
    door.gate.hear(0.5)
    return line


@pytest.mark.parametrize(
    "hello",
    [
        b"[]\n",
        b'{"host": "x", "count": -5}\n',
        b'{"host": "x", "count": 1000000000}\n',
        b'{"host": "x", "count": Infinity}\n',
        b"[" * 100_000,
        b"\0" * 1000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
    ],
    ids=lambda hello: repr(hello[:30]),
)
def test_what_does_not_have_the_token_costs_one_line_and_the_run_goes_on(
    door: Door, hello: bytes
) -> None:
    with connected(door) as line:
        with suppress(ConnectionError):
            line.sendall(hello)
            line.shutdown(socket.SHUT_WR)
        assert door.until(lambda: door.lines) == []
        (told,) = door.lines
        assert "was refused at 127.0.0.1:" in told
        assert "\n" not in told
    theirs, (ours, _) = door.joined(Secret(TOKEN))
    theirs.close()
    ours.close()


def test_of_what_does_not_have_the_token_64_bytes_are_read(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(NodeConnection, "open", lambda *words: opened.append(words))
    with connected(door) as line:
        line.sendall(bytes(NONCE + SEAL) + bytes(100_000))
        door.until(lambda: door.lines)
    assert "does not have the token" in door.lines[0]
    assert opened == []


def proven(door: Door) -> tuple[socket.socket, Secret]:
    """Connect as a node with the token that goes on as it likes."""
    line = connected(door)
    theirs = line.recv(len(GREETING) + NONCE)[len(GREETING) :]
    ours, secret = bytes(NONCE), Secret(TOKEN)
    line.sendall(ours + secret.digest(b"rendezvous", b"other", theirs, ours))
    door.gate.hear(0.5)
    assert line.recv(SEAL) == secret.digest(b"rendezvous", b"first", theirs, ours)
    return line, secret.derive(theirs, ours)


def framed(session: Secret, body: bytes, place: str = "other/0") -> bytes:
    sealed = session.seal(place, body)
    return struct.pack("!I", len(sealed)) + sealed


BODIES = {
    "an empty list": b"\x90",
    "json": b"[]",
    "a count below 1": {"type": "NodeOffer", "host": "x", "count": -5},
    "a billion ranks": {"type": "NodeOffer", "host": "x", "count": 1_000_000_000},
    "infinity": {"type": "NodeOffer", "host": "x", "count": float("inf")},
    "no host": {"type": "NodeOffer", "host": "", "count": 1},
    "a long host": {"type": "NodeOffer", "host": "x" * 300, "count": 1},
    "one field more": {"type": "NodeOffer", "host": "x", "count": 1, "run": "rm"},
    "another message": {"type": "StartRanks", "host": "x", "count": 1},
    "brackets": b"\x91" * 3000,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_wrong_hello_of_a_node_costs_one_line_and_the_run_goes_on(
    door: Door, body: bytes | dict[str, Any]
) -> None:
    content = body if isinstance(body, bytes) else msgspec.msgpack.encode(body)
    line, session = proven(door)
    with line:
        line.sendall(framed(session, content))
        assert door.until(lambda: door.lines) == []
    assert "its message cannot be read" in door.lines[0]
    theirs, (ours, _) = door.joined(Secret(TOKEN))
    theirs.close()
    ours.close()


@pytest.mark.parametrize("size", [0, 31, 5000, (1 << 32) - 1])
def test_a_hello_of_another_size_is_not_waited_for(door: Door, size: int) -> None:
    line, _ = proven(door)
    with line:
        line.sendall(struct.pack("!I", size))
        door.until(lambda: door.lines)
    assert f"would have {size} bytes" in door.lines[0]


def test_a_hello_under_another_seal_is_refused(door: Door) -> None:
    line, session = proven(door)
    with line:
        body = msgspec.msgpack.encode(NodeOffer(host="x", count=1))
        line.sendall(framed(session, body, "first/0"))
        assert door.until(lambda: door.lines) == []
    assert "this run did not write" in door.lines[0]


def test_those_that_say_nothing_keep_no_node_out(door: Door) -> None:
    silent = [connected(door) for _ in range(rendezvous.MOST_GUESTS + 3)]
    theirs, (ours, _) = door.joined(Secret(TOKEN))
    for line in silent:
        line.close()
    theirs.close()
    ours.close()
    assert all("too many others connect at once" in told for told in door.lines)
    assert door.lines


def test_refusals_are_few_lines_however_many_there_are(door: Door) -> None:
    for _ in range(2 * rendezvous.MOST_REFUSALS):
        with connected(door) as line:
            line.sendall(bytes(NONCE + SEAL))
            door.gate.hear(0.5)
    assert len(door.lines) == rendezvous.MOST_REFUSALS + 1
    assert "not named" in door.lines[-1]


def test_a_node_with_another_token_is_told_so(door: Door) -> None:
    found: list[str] = []

    def join() -> None:
        try:
            door.endpoint.reach(Secret(b"another token"), found.append)
        except LaunchError as error:
            found.append(str(error))

    thread = threading.Thread(target=join)
    thread.start()
    door.until(lambda: door.lines)
    thread.join(MISSED_S)
    assert found == [f"{door.endpoint} does not have the token of this node: one run has one token"]
    assert "does not have the token of this run" in door.lines[0]


# ---------------------------------------------------------------------------- what is waited for


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say what is waited for at once, and wait for moments."""
    monkeypatch.setattr(rendezvous, "SAYS_S", 0.0)
    monkeypatch.setattr(rendezvous, "COMES_S", 0.3)
    monkeypatch.setattr(rendezvous, "RETRY_S", 0.05)


@pytest.mark.usefixtures("at_once")
def test_another_program_at_the_port_is_named_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        endpoint = Endpoint(host="127.0.0.1", port=other.getsockname()[1])
        assert endpoint.open(lambda _: None) == []

        def answer() -> None:
            line, _ = other.accept()
            with line:
                line.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(LaunchError, match="another program has the port"):
            endpoint.reach(Secret(TOKEN), lambda _: None)
        thread.join(MISSED_S)


@pytest.mark.usefixtures("at_once")
def test_a_first_node_that_is_not_there_yet_is_named_while_it_is_waited_for() -> None:
    lines: list[str] = []
    endpoint = Endpoint(host="127.0.0.1", port=free_port())
    with pytest.raises(LaunchError, match=r"cannot be reached at 127\.0\.0\.1:"):
        endpoint.reach(Secret(TOKEN), lines.append)
    assert lines[0].startswith(f"waiting for {endpoint}: nothing listens there yet; for ")


@pytest.mark.usefixtures("at_once")
def test_a_name_that_is_not_known_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    known, lines = socket.getaddrinfo, list[str]()
    asked: list[str] = []

    def resolve(host: Any, *words: Any, **more: Any) -> Any:
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known("127.0.0.1", *words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    for listener in Endpoint(host="pod-0.scenarios", port=free_port()).open(lines.append):
        listener.close()
    assert len(asked) == 3
    assert "the name pod-0.scenarios of pod-0.scenarios:" in lines[0]
    assert "does not resolve yet (Name or service not known)" in lines[0]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 300, "x..y"])
def test_a_name_that_never_resolves_ends_with_its_reason(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(name: str, *_: Any, **__: Any) -> Any:
        name.encode("idna")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(LaunchError, match="cannot be resolved"):
        Endpoint(host=host, port=29400).open(lambda _: None)


def test_an_address_of_another_host_is_not_this_ones() -> None:
    assert Endpoint(host="192.0.2.7", port=29400).open(lambda _: None) == []


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_nodes_meet_over_ipv6() -> None:
    endpoint = Endpoint(host="::1", port=free_port(socket.AF_INET6, "::1"))
    assert str(endpoint) == f"[::1]:{endpoint.port}"
    lines: list[str] = []
    gate = Gate(endpoint.open(lines.append), endpoint, Secret(TOKEN), lines.append)
    found: list[NodeConnection] = []
    thread = threading.Thread(
        target=lambda: found.append(endpoint.reach(Secret(TOKEN), lines.append))
    )
    thread.start()
    for _ in range(3000):
        gate.hear(0.01)
        if found:
            break
    thread.join(MISSED_S)
    gate.close()
    assert found[0].there == "::1"
    found[0].close()
    assert lines in ([], lines[:1])
