"""`send_object_list`: a list of objects to one rank."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch_scenarios.expressions.params import GROUP, Param, root
from torch_scenarios.operations.base import Entry, Message, PointToPoint, Refusal
from torch_scenarios.operations.checks import refuse_argument
from torch_scenarios.operations.send import peer_of, police_peer, refuse_message


class SendObjectList(PointToPoint):
    """Send a list of objects to one rank. It may block until the receiver takes it."""

    name = "send_object_list"
    params = (
        Param(name="object_list", kind="objects", required=True, description="What is sent."),
        *root("dst", "Who receives."),
        GROUP,
    )
    example = """\
world_size: 2
objects:
  letter: {0: [hello, 7], 1: [null, null]}
steps:
  - ranks: 0
    send_object_list: {object_list: letter, dst: 1}
  - ranks: 1
    recv_object_list: {object_list: letter, src: 0}
    expect:
      letter: [hello, 7]
"""

    def label(self, entry: Entry) -> str:
        """`send_object_list to 1`, in global ranks."""
        return f"{self.name} to {peer_of(entry, 'dst')}"

    def looks_up(self, entry: Entry) -> bool:
        """Torch asks for its own rank in the group."""
        return True

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a peer outside the group, a self-send, and nothing to send."""
        refusal = refuse_message(entry, "dst", "object_list")
        if refusal is None and not entry["object_list"]:
            return refuse_argument("object_list is empty", "object_list")
        return refusal

    def messages(self, entry: Entry) -> tuple[Message, ...]:
        """One message out (torch sends two: the sizes, then the bytes)."""
        peer = peer_of(entry, "dst")
        payload = entry["object_list"]
        return (Message(sends=True, peer=peer, tag=0, payload=payload, objects=True),)

    def bound(self, dist: ModuleType, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Call torch, once the peer is known to exist."""
        police_peer(dist, arguments, "dst")
        return super().bound(dist, arguments)
