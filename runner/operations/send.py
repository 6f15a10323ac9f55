"""`send`: one message to one rank; blocks until the receiver takes it, or may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.operations.base import PointToPoint
from runner.operations.entries import Entry, Message, Refusal
from runner.operations.messages import peer_of, police_peer, refuse_message
from runner.operations.params import GROUP, TAG, root, tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class Send(PointToPoint):
    """Send a tensor to one rank. It may block until the receiver has posted its `recv`."""

    name = "send"
    params = (
        tensor("tensor", "What is sent."),
        *root("dst", "Who receives."),
        GROUP,
        TAG,
    )
    example = """\
world_size: 2
tensors:
  x: {0: [1, 2, 3], 1: [0, 0, 0]}
steps:
  - ranks: 0
    send: {tensor: x, dst: 1}
  - ranks: 1
    recv: {tensor: x, src: 0}
    expect:
      x: [1, 2, 3]
"""

    def label(self, entry: Entry) -> str:
        """`send to 1`, in world ranks."""
        return f"{self.name} to {peer_of(entry, 'dst')}"

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a peer outside the group, a self-send and a negative tag."""
        return refuse_message(entry, "dst")

    def messages(self, entry: Entry) -> tuple[Message, ...]:
        """One message out."""
        peer = peer_of(entry, "dst")
        return (Message(sends=True, peer=peer, tag=entry["tag"], payload=entry["tensor"]),)

    def bound(self, dist: ModuleType, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Call torch, once the peer is known to exist."""
        police_peer(dist, arguments, "dst")
        return super().bound(dist, arguments)
