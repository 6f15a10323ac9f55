"""What the point-to-point operations have in common: the peer, and what torch refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.operations.base import Refusal

if TYPE_CHECKING:
    from runner.operations.base import Entry


def peer_of(entry: Entry, role: str) -> int | None:
    """Return the peer's world rank from `src`/`group_src` or `dst`/`group_dst`; None for anyone.

    A group rank that does not exist yields -1, which :func:`refuse_message` refuses.
    """
    inside = entry[f"group_{role}"]
    if inside is None:
        given = entry[role]
        return None if given is None else int(given)
    return entry.group.ranks[inside] if 0 <= inside < entry.size else -1


def refuse_message(entry: Entry, role: str) -> Refusal | None:
    """Refuse what `torch.distributed.send` and `recv` refuse, or cannot carry out.

    A rank outside the group, oneself as the peer, both spellings of the peer, a send to nobody, a
    negative tag: ValueError, or RuntimeError for the tag. A rank outside the *world* group is
    refused here although Gloo does not look and waits for it until its timeout.
    """
    if entry.group_rank < 0:
        return Refusal(kind="not_member", message=f"rank {entry.rank} is not in the group")
    if entry[role] is not None and entry[f"group_{role}"] is not None:
        return _invalid(f"both {role} and group_{role} are given")
    peer = peer_of(entry, role)
    if peer is None:
        return None if role == "src" else _invalid(f"neither {role} nor group_{role} is given")
    if peer not in entry.group.ranks:
        return _invalid(f"{role} {peer} is not a rank of group {entry.group.name}")
    if peer == entry.rank:
        return _invalid(f"{role} is the rank itself")
    if entry["tag"] < 0:
        return _invalid("the tag is negative")
    if entry["tensor"] is None:
        return _invalid("the tensor is None on this rank")
    return None


def _invalid(message: str) -> Refusal:
    return Refusal(kind="invalid_argument", message=message)
