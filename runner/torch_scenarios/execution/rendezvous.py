"""Where the nodes of a launch meet: the endpoint, who is let in there, and the lines to them.

    first node                                   another node
      listens at the endpoint  <-- connects ---    waits for the name, the host, the port
      nonce                    --------------->
                               <---------------    nonce, proof that it has the token
      proof that it has it too --------------->
                               <-- NodeOffer ---   from here on every message is sealed

Of a program that does not prove the token 64 bytes are read, and no more; it costs one line and no
time of the others. Knows nothing of scenarios and nothing of torch.
"""

from __future__ import annotations

import errno
import hmac
import secrets
import select
import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.letters import SEAL, ForgedError, Secret

#: seconds that the nodes get to come, and that another node waits for the first one
COMES_S = 300.0
#: seconds after which a node says what it waits for, and between two such lines
SAYS_S, AGAIN_S = 3.0, 60.0
#: seconds between two attempts to reach the first node, or to resolve its name
RETRY_S = 0.2
#: seconds without an answer of the other kernel after which a connection is given up
CUT_S = 15
#: seconds that a program which has connected gets to prove the token and to say what it is
PROVES_S = 10.0
#: programs that may be about to prove it at once; of more, the one that came first is let go
MOST_GUESTS = 64
#: lines about what was refused
MOST_REFUSALS = 20
#: ranks that one node may offer
MOST_RANKS = 4096

#: what the first node says first: a program that says otherwise has nothing to do with it
GREETING = b"torch-scenarios rendezvous 1\n"
NONCE = 32
_PROOF = NONCE + SEAL
#: the length of a message, in bytes, before it
_LENGTH = struct.Struct("!I")
#: bytes of a message at most: of the first one of a node, and of any
_LARGEST_OFFER, _LARGEST = 4096, 4 << 20


# -------------------------------------------------------------------------------------------------
# The messages. Each is decoded into one of these, and has nothing else in it.

_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
_Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]
_Rank: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 20)]


class NodeMessage(Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """A message between the first node and another.

    >>> from msgspec import msgpack
    >>> offer = NodeOffer(host="host1", count=4)
    >>> _MESSAGES.decode(msgpack.encode(offer)) == offer
    True
    >>> _MESSAGES.decode(msgpack.encode(StartRanks(
    ...     launch="a", words=[], node=0, first=0, world=2, port=70000)))
    Traceback (most recent call last):
        ...
    msgspec.ValidationError: ...

    They are bounded in what they can say: a count, a port and an exit code have a least and a most,
    and a name has a length. What does not fit ends the line.
    """


class NodeOffer(NodeMessage, frozen=True, kw_only=True):
    """A node is here, and lends so many ranks.

    It is the first message of a node, once both ends have proved that they have the token.
    """

    host: _Name
    count: Annotated[int, Meta(ge=1, le=MOST_RANKS)]


class RanksEnded(NodeMessage, frozen=True, kw_only=True):
    """The ranks of a node have ended.

    It is how the first node knows that what they used, as their GPUs, is free for another launch.
    """


class StartRanks(NodeMessage, frozen=True, kw_only=True):
    """A node starts its ranks, from `first` on, of a launch whose store is at `port`.

    nodes of 4 and 2 ranks      node 0: first 0, world 6       node 1: first 4, world 6
    """

    launch: _Name
    words: Annotated[list[str], Meta(max_length=1 << 16)]
    node: _Rank
    first: _Rank
    world: _Rank
    port: _Port


class EndRanks(NodeMessage, frozen=True, kw_only=True):
    """A node ends its ranks.

    The launch is over, although some of them may still hang in a call.
    """


class LeaveNode(NodeMessage, frozen=True, kw_only=True):
    """It is over: a node ends with the exit code of the first one.

    So a scheduler that started the same command on each node sees one result.
    """

    code: Annotated[int, Meta(ge=-256, le=256)]


_Message: TypeAlias = NodeOffer | RanksEnded | StartRanks | EndRanks | LeaveNode
_MESSAGES = msgspec.msgpack.Decoder(_Message)
_OFFERS = msgspec.msgpack.Decoder(NodeOffer)


class NodeConnection:
    """Sealed messages over a connection whose other end may be cut off.

    A message has its number and its direction under the seal: one that is repeated, left out, or
    sent back to its sender does not open. The kernel's keepalive closes a connection whose other
    end is gone.
    """

    def __init__(self, line: socket.socket, session: Secret, *, first: bool) -> None:
        """Own the connection; `first`: this end is the first node's."""
        self._line = line
        self._session = session
        self._own, self._others = ("first", "other") if first else ("other", "first")
        self._sent = self._heard = 0
        for option, value in (
            (socket.TCP_KEEPIDLE, 5),
            (socket.TCP_KEEPINTVL, 3),
            (socket.TCP_KEEPCNT, 3),
            (socket.TCP_USER_TIMEOUT, 1000 * CUT_S),
        ):
            line.setsockopt(socket.IPPROTO_TCP, option, value)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        line.settimeout(None)

    @property
    def here(self) -> str:
        """The address of this end: by which the other node is reached, and reaches this one."""
        return str(self._line.getsockname()[0])

    @property
    def there(self) -> str:
        """The address of the other end."""
        return str(self._line.getpeername()[0])

    def say(self, message: NodeMessage) -> None:
        """Send a message. Raises OSError where the other end is gone."""
        sealed = self._session.seal(f"{self._own}/{self._sent}", msgspec.msgpack.encode(message))
        self._sent += 1
        self._line.sendall(_LENGTH.pack(len(sealed)) + sealed)

    def hear(
        self, within_s: float | None = None, decoder: msgspec.msgpack.Decoder[Any] = _MESSAGES
    ) -> Any:
        """Return the next message: one of this module's, or of `decoder`'s.

        Raises OSError, or EOFError, where the other end is gone, and LaunchError for what it did
        not say.
        """
        self._line.settimeout(within_s)
        (size,) = _LENGTH.unpack(_take(self._line, _LENGTH.size))
        if not SEAL <= size <= _LARGEST:
            words = f"a message of {size} bytes is not one of this run"
            raise ForgedError(words)
        sealed = _take(self._line, size)
        self._line.settimeout(None)
        return self.open(sealed, decoder)

    def open(self, sealed: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
        """Return the message that was sealed as the next one. Raises LaunchError."""
        body = self._session.open(f"{self._others}/{self._heard}", sealed)
        self._heard += 1
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            message = f"its message cannot be read: {error}"
            raise LaunchError(message) from error

    def close(self) -> None:
        """Close the connection."""
        self._line.close()


def _take(line: socket.socket, size: int) -> bytes:
    """Return so many bytes. Raises OSError, or EOFError, where the other end is gone."""
    found = b""
    while len(found) < size:
        more = line.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _proof(secret: Secret, end: bytes, ours: bytes, theirs: bytes) -> bytes:
    return secret.digest(b"rendezvous", end, ours, theirs)


# -------------------------------------------------------------------------------------------------
# The endpoint: which node has it, and the way there.


class UnreachedError(LaunchError):
    """The first node is not there, or no way leads to it.

    The message names the address and for how long it was tried. Most often the name leads to
    another network, or the first node has not started yet.
    """


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where the nodes meet: an address of the first of them, and a port there.

    >>> str(Endpoint(host="host0", port=29400)), str(Endpoint(host="fd79::10", port=29400))
    ('host0:29400', '[fd79::10]:29400')

    All nodes are given the same one. The node that has the address among its own is the first.
    """

    host: str
    port: int

    def __str__(self) -> str:
        """Return `host0:29400`, or `[fd79::10]:29400`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def addresses(self) -> list[tuple[socket.AddressFamily, Any]]:
        """Return the addresses of the name, of either family. Raises socket.gaierror."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        return list({(family, address): None for family, _, _, _, address in found})

    def open(
        self, say: Callable[[str], None], within_s: float | None = None
    ) -> list[socket.socket]:
        """Listen at every address of this host's that the name has; [] where it has none here.

        A name that does not resolve yet is waited for, and `say` gets a line about that. Where
        another program has the port it may be a node of this launch on the same host: [] as well.
        Raises LaunchError where the name never resolves, or this user may not have the port.
        """
        addresses = self._resolve(_Patience(say, within_s))
        listeners: list[socket.socket] = []
        for family, address in addresses:
            listener = socket.socket(family, socket.SOCK_STREAM)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(address)
                listener.listen(64)
                listeners.append(listener)
            except OSError as error:
                listener.close()
                if error.errno not in _ELSEWHERE:
                    for other in listeners:
                        other.close()
                    message = f"this host cannot listen at {self}: {error.strerror or error}"
                    raise LaunchError(message) from error
        return listeners

    def _resolve(self, patience: _Patience) -> list[tuple[socket.AddressFamily, Any]]:
        while True:
            try:
                return self.addresses()
            except (socket.gaierror, UnicodeError) as error:
                why = _words_of(error)
                if isinstance(error, UnicodeError) or patience.is_over:
                    message = f"the name {self.host} of {self} cannot be resolved: {why}"
                    raise LaunchError(message) from error
            patience.wait(f"the name {self.host} of {self} does not resolve yet ({why})")

    def reach(
        self, secret: Secret, say: Callable[[str], None], within_s: float | None = None
    ) -> NodeConnection:
        """Connect to the first node, which may come later, and prove the token to each other.

        `say` gets a line about what it waits for. Raises UnreachedError where that does not come,
        LaunchError where another program is there, or where the first node has another token.
        """
        patience = _Patience(say, within_s)
        while True:
            try:
                return _proven(self, secret, patience)
            except (OSError, UnicodeError) as error:
                why = _words_of(error)
                if isinstance(error, UnicodeError) or patience.is_over:
                    message = f"the first node cannot be reached at {self}: {why}"
                    raise UnreachedError(message) from error
            patience.wait(f"waiting for {self}: {why}")


#: a name is another host's where this is what binding to it says, and where the port is in use:
#: there another node of the launch may be on this host
_ELSEWHERE = frozenset({errno.EADDRNOTAVAIL, errno.EADDRINUSE, errno.EAFNOSUPPORT})


def _words_of(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there yet"
    return str(getattr(error, "strerror", None) or error)


class _Patience:
    """How long something is waited for, and when a line says so."""

    def __init__(self, say: Callable[[str], None], within_s: float | None) -> None:
        self._say = say
        now_s = time.monotonic()
        self._until_s = now_s + (COMES_S if within_s is None else within_s)
        self._says_s = now_s + SAYS_S

    @property
    def is_over(self) -> bool:
        """Whether it was waited for long enough."""
        return time.monotonic() > self._until_s

    def wait(self, words: str) -> None:
        """Wait a little; say why once it takes seconds, and each minute from then on."""
        now_s = time.monotonic()
        if now_s >= self._says_s:
            self._says_s = now_s + AGAIN_S
            self._say(f"{words}; for {self._until_s - now_s:.0f} s more")
        time.sleep(RETRY_S)


def _proven(endpoint: Endpoint, secret: Secret, patience: _Patience) -> NodeConnection:
    """Connect, prove the token, and have the other end prove it. Raises OSError to try again."""
    line = socket.create_connection((endpoint.host, endpoint.port), timeout=CUT_S)
    # the first node may still be reading its files: it greets once it waits for the nodes
    while not select.select([line], [], [], SAYS_S)[0]:
        if patience.is_over:
            message = "it does not answer"
            raise TimeoutError(errno.ETIMEDOUT, message)
        patience.wait(f"waiting for {endpoint}: it does not answer yet")
    try:
        greeting = _take(line, len(GREETING) + NONCE)
    except (EOFError, OSError):
        greeting = b""
    if not greeting.startswith(GREETING):
        line.close()
        message = (
            f"what listens at {endpoint} is not `scenario run --nnodes`: another program has the "
            "port; name another one with --rdzv-endpoint, on every node"
        )
        raise LaunchError(message)
    theirs = greeting[len(GREETING) :]
    ours = secrets.token_bytes(NONCE)
    line.sendall(ours + _proof(secret, b"other", theirs, ours))
    try:
        proof = _take(line, SEAL)
    except (EOFError, ConnectionError):
        proof = b""
    if not hmac.compare_digest(proof, _proof(secret, b"first", theirs, ours)):
        line.close()
        message = f"{endpoint} does not have the token of this node: one run has one token"
        raise LaunchError(message)
    return NodeConnection(line, secret.derive(theirs, ours), first=False)


# -------------------------------------------------------------------------------------------------
# The gate of the first node.


class _Guest:
    """A program that has connected, and what came from it so far."""

    def __init__(self, line: socket.socket, address: str) -> None:
        self.line = line
        self.address = address
        self.nonce = secrets.token_bytes(NONCE)
        self.until_s = time.monotonic() + PROVES_S
        self.came = b""
        self.wanted = _PROOF
        self.talk: NodeConnection | None = None


class Gate:
    """Lets in the nodes that have the token, and no other program that connects.

    Each guest gets a number that was never used, and has to answer with its HMAC under the token:
    the token itself crosses no wire, and an answer that was heard once is of no use. A guest has
    some seconds for it, and waits for no other guest.
    """

    def __init__(
        self,
        listeners: list[socket.socket],
        endpoint: Endpoint,
        secret: Secret,
        say: Callable[[str], None],
    ) -> None:
        """Own the listeners; `say` gets a line for each program that is refused."""
        self._listeners = listeners
        self._endpoint = endpoint
        self._secret = secret
        self._say = say
        self._refusals = 0
        self._guests: list[_Guest] = []
        self._ears = selectors.DefaultSelector()
        for listener in listeners:
            listener.settimeout(0)
            self._ears.register(listener, selectors.EVENT_READ)

    def hear(self, within_s: float) -> list[tuple[NodeConnection, NodeOffer]]:
        """Return the nodes that have come, after so many seconds at most."""
        came: list[tuple[NodeConnection, NodeOffer]] = []
        for key, _ in self._ears.select(within_s):
            if key.data is None:
                self._let_in(key.fileobj)
            else:
                with suppress(BlockingIOError):
                    came += self._read(key.data)
        now_s = time.monotonic()
        for guest in [each for each in self._guests if each.until_s < now_s]:
            self._refuse(guest, f"it was silent for {PROVES_S:.0f} s")
        return came

    def close(self) -> None:
        """Let no one in any more."""
        for guest in list(self._guests):
            self._forget(guest)
            guest.line.close()
        self._ears.close()
        for listener in self._listeners:
            listener.close()

    def _let_in(self, listener: Any) -> None:
        with suppress(OSError):
            line, address = listener.accept()
            line.settimeout(0)
            guest = _Guest(line, str(Endpoint(host=address[0], port=address[1])))
            self._guests.append(guest)
            self._ears.register(line, selectors.EVENT_READ, guest)
            line.send(GREETING + guest.nonce)
        if len(self._guests) > MOST_GUESTS:
            self._refuse(self._guests[0], "too many others connect at once")

    def _read(self, guest: _Guest) -> list[tuple[NodeConnection, NodeOffer]]:
        """Take in what a guest says, no more than is due; return it where it has come."""
        try:
            more = guest.line.recv(guest.wanted - len(guest.came))
        except BlockingIOError:
            raise
        except OSError:
            more = b""
        if not more:
            self._refuse(guest, "it left before it was known what it is")
            return []
        guest.came += more
        if len(guest.came) < guest.wanted:
            return []
        words, guest.came = guest.came, b""
        if guest.talk is None:
            self._prove(guest, words)
        elif guest.wanted == _LENGTH.size:
            (guest.wanted,) = _LENGTH.unpack(words)
            if not SEAL <= guest.wanted <= _LARGEST_OFFER:
                self._refuse(guest, f"its first message would have {guest.wanted} bytes")
        else:
            return self._admit(guest, guest.talk, words)
        return []

    def _prove(self, guest: _Guest, words: bytes) -> None:
        theirs, proof = words[:NONCE], words[NONCE:]
        if not hmac.compare_digest(proof, _proof(self._secret, b"other", guest.nonce, theirs)):
            self._refuse(guest, "it does not have the token of this run")
            return
        try:
            guest.line.send(_proof(self._secret, b"first", guest.nonce, theirs))
        except OSError:
            self._refuse(guest, "it left before it was known what it is")
            return
        guest.talk = NodeConnection(
            guest.line, self._secret.derive(guest.nonce, theirs), first=True
        )
        guest.line.settimeout(0)
        guest.wanted = _LENGTH.size

    def _admit(
        self, guest: _Guest, talk: NodeConnection, words: bytes
    ) -> list[tuple[NodeConnection, NodeOffer]]:
        try:
            offer = talk.open(words, _OFFERS)
        except LaunchError as error:
            self._refuse(guest, str(error))
            return []
        self._forget(guest)
        guest.line.settimeout(None)
        return [(talk, offer)]

    def _forget(self, guest: _Guest) -> None:
        self._guests.remove(guest)
        self._ears.unregister(guest.line)

    def _refuse(self, guest: _Guest, why: str) -> None:
        self._forget(guest)
        guest.line.close()
        self._refusals += 1
        if self._refusals <= MOST_REFUSALS:
            self._say(f"{guest.address} was refused at {self._endpoint}: {why}")
        if self._refusals == MOST_REFUSALS:
            self._say(f"further programs that are refused at {self._endpoint} are not named")
