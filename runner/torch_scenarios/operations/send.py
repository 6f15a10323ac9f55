"""`send`: one message to one rank; blocks until the receiver takes it, or may."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

from torch_scenarios.expressions.params import GROUP, TAG, root, tensor
from torch_scenarios.operations.base import (
    SENT,
    VALUE,
    Entry,
    Message,
    PointToPoint,
    Refusal,
    Trial,
    name_outsider,
)
from torch_scenarios.operations.checks import refuse_argument, refuse_none

# What the point-to-point operations have in common: the peer, and what torch refuses.


def peer_of(entry: Entry, role: str) -> int | None:
    """Return the peer's world rank from `src`/`group_src` or `dst`/`group_dst`; None for anyone.

    A group rank that does not exist yields -1, which :func:`refuse_message` refuses.
    """
    return world_rank(entry, entry[role], entry[f"group_{role}"])


def world_rank(entry: Entry, world: int | None, inside: int | None) -> int | None:
    """Return a peer as a world rank from either spelling; -1 for a group rank beyond the group."""
    if inside is None:
        return None if world is None else int(world)
    return entry.group.ranks[inside] if 0 <= inside < entry.size else -1


def name_peer(peer: int | None) -> str:
    """Return a peer as a label shows it."""
    return "anyone" if peer is None else str(peer)


def refuse_message(
    entry: Entry, role: str, what: str = "tensor", *, anyone: bool = False
) -> Refusal | None:
    """Refuse what `torch.distributed.send` and `recv` refuse, or cannot carry out.

    A rank outside the group, oneself as the peer, both spellings of the peer, a peer left out
    (unless `anyone` will do), a negative tag, an argument `what` that is None. A rank outside the
    *world* group is refused here although Gloo does not look and waits for it until its timeout.
    """
    refusal = refuse_peer(entry, role, entry[role], entry[f"group_{role}"], anyone=anyone)
    if refusal is not None:
        return refusal
    if entry.arguments.get("tag", 0) < 0:
        return refuse_argument("the tag is negative", "tag")
    if entry[what] is None:
        return refuse_none(what)
    return None


def refuse_peer(
    entry: Entry, role: str, world: int | None, inside: int | None, *, anyone: bool
) -> Refusal | None:
    """Refuse a peer that is given twice, not at all, outside the group, or the rank itself."""
    if entry.group_rank < 0:
        return Refusal(kind="not_member", message=f"rank {entry.rank} is not in the group")
    if world is not None and inside is not None:
        return refuse_argument(f"both {role} and group_{role} are given", f"group_{role}")
    peer = world_rank(entry, world, inside)
    if peer is None:
        return None if anyone else refuse_argument(f"neither {role} nor group_{role} is given")
    if inside is not None and peer < 0:
        return refuse_argument(
            f"group_{role} {inside} is not a rank of a group of {entry.size}", f"group_{role}"
        )
    if peer not in entry.group.ranks:
        return refuse_argument(name_outsider(entry, role, peer), role)
    if peer == entry.rank:
        return refuse_argument(
            f"{role} is the rank itself", role if inside is None else f"group_{role}"
        )
    return None


def police_peer(dist: ModuleType, arguments: dict[str, Any], role: str) -> None:
    """Raise ValueError for a peer that the group has not, before torch is called.

    torch looks only at global ranks in a subgroup; for any other it dies of SIGSEGV on Gloo, or
    waits in the store for a rank that never comes (measured on 2.13).
    """
    group = arguments.get("group")
    size = dist.get_world_size(group)
    if size < 0:
        return
    inside, world = arguments.get(f"group_{role}"), arguments.get(role)
    if inside is not None and not 0 <= inside < size:
        message = f"group_{role} {inside} is out of range for a group of {size} ranks"
        raise ValueError(message)
    whole = group is None or group is dist.group.WORLD
    if world is not None and whole and not 0 <= world < size:
        message = f"{role} {world} is out of range for a world of {size} ranks"
        raise ValueError(message)


class Send(PointToPoint):
    """Send a tensor to one rank. It may block until the receiver has posted its `recv`."""

    name = "send"
    params = (
        tensor("tensor", "What is sent."),
        *root("dst", "Who receives."),
        GROUP,
        TAG,
    )
    c10d = ("send",)
    dumped = ("send",)
    slots = SENT
    trial: ClassVar[Trial | None] = Trial({"a": VALUE}, {"tensor": "a"})
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
        """`send to 1`, in global ranks."""
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


# `isend`: starts to send one message; the handle completes it.


class ISend(Send):
    """Start to send a tensor to one rank. It must not change before the handle's `wait`."""

    name = "isend"
    asynchronous = True
    trial = None
    example = """\
world_size: 2
tensors:
  x: {0: [1, 2, 3], 1: [0, 0, 0]}
steps:
  - ranks: 0
    isend: {tensor: x, dst: 1}
    as: sending
  - ranks: 1
    recv: {tensor: x, src: 0}
    expect:
      x: [1, 2, 3]
  - wait: sending
"""
