"""`recv`: takes one message from one rank, or from anyone."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch_scenarios.expressions.params import GROUP, TAG, root, tensor
from torch_scenarios.operations.base import Entry, Message, PointToPoint, Refusal, Slot
from torch_scenarios.operations.send import name_peer, peer_of, police_peer, refuse_message


class Recv(PointToPoint):
    """Receive a tensor from one rank, or from anyone where no source is given. Blocks."""

    name = "recv"
    params = (
        tensor("tensor", "Where the message is stored.", writes=True, reads=False),
        *root("src", "Who sends; anyone if left out."),
        GROUP,
        TAG,
    )
    c10d = ("recv_", "recv_any_source_")
    dumped = ("recv",)
    slots = (Slot(name="tensor", of="out"),)
    example = """\
world_size: 2
tensors:
  x: {0: [0, 0], 1: [3, 4]}
steps:
  - ranks: 0
    recv: {tensor: x}
    expect:
      x: [3, 4]
  - ranks: 1
    send: {tensor: x, dst: 0}
"""

    def label(self, entry: Entry) -> str:
        """`recv from 1`, in global ranks, or `recv from anyone`."""
        return f"{self.name} from {name_peer(peer_of(entry, 'src'))}"

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a peer outside the group, oneself and a negative tag."""
        return refuse_message(entry, "src", anyone=True)

    def messages(self, entry: Entry) -> tuple[Message, ...]:
        """One message in."""
        peer = peer_of(entry, "src")
        return (Message(sends=False, peer=peer, tag=entry["tag"], buffer=entry["tensor"]),)

    def bound(self, dist: ModuleType, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Call torch, once the peer is known to exist."""
        police_peer(dist, arguments, "src")
        return super().bound(dist, arguments)


# `irecv`: starts to receive one message; the handle completes it.


class IRecv(Recv):
    """Start to receive a tensor. It holds the message only after the handle's `wait`."""

    name = "irecv"
    asynchronous = True
    example = """\
world_size: 2
tensors:
  x: {0: [0, 0], 1: [3, 4]}
steps:
  - ranks: 0
    irecv: {tensor: x, src: 1}
    as: receiving
  - ranks: 1
    send: {tensor: x, dst: 0}
  - wait: receiving
    expect:
      x: [3, 4]
"""
