"""`recv_object_list`: a list of objects from one rank."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch_scenarios.expressions.params import GROUP, Param, root
from torch_scenarios.operations.base import Entry, Message, PointToPoint, Refusal
from torch_scenarios.operations.send import name_peer, peer_of, police_peer, refuse_message


class RecvObjectList(PointToPoint):
    """Receive a list of objects from one rank, into a list of as many items. Blocks."""

    name = "recv_object_list"
    params = (
        Param(
            name="object_list",
            kind="objects",
            required=True,
            writes=True,
            reads=False,
            description="Where the objects are stored.",
        ),
        *root("src", "Who sends."),
        GROUP,
    )
    example = """\
world_size: 2
objects:
  letter: {0: [null], 1: [{from: 1}]}
steps:
  - ranks: 0
    recv_object_list: {object_list: letter, src: 1}
    expect:
      letter: [{from: 1}]
  - ranks: 1
    send_object_list: {object_list: letter, dst: 0}
"""

    def label(self, entry: Entry) -> str:
        """`recv_object_list from 1`, in global ranks."""
        return f"{self.name} from {name_peer(peer_of(entry, 'src'))}"

    def looks_up(self, entry: Entry) -> bool:
        """Torch asks for its own rank in the group."""
        return True

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a peer left out, outside the group or oneself, and no list to store into."""
        return refuse_message(entry, "src", "object_list")

    def messages(self, entry: Entry) -> tuple[Message, ...]:
        """One message in (torch receives two: the sizes, then the bytes)."""
        peer = peer_of(entry, "src")
        buffer = entry["object_list"]
        return (Message(sends=False, peer=peer, tag=0, buffer=buffer, objects=True),)

    def bound(self, dist: ModuleType, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Call torch, once the peer is known to exist."""
        police_peer(dist, arguments, "src")
        return super().bound(dist, arguments)
