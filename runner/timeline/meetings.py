"""Who met whom: from the names that a trace gives to meetings to the spans that took part."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.timeline.model import Meeting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.timeline.model import At, Kind

#: `world:0>1#7:2`, as :class:`runner.trace.RankTrace` names a message; `?2` where none was met
_MESSAGE = re.compile(r"(?P<group>.*):(?P<from>\d+|any)>(?P<to>\d+)#(?P<tag>\d+):\??\d+")


@dataclass(slots=True, kw_only=True)
class Draft:
    """A meeting while its spans are collected, in order of lanes.

    `labels` are those of the calls, `operations` theirs; `stuck` tells that one never returned.
    """

    name: str
    kind: Kind
    spans: list[At] = field(default_factory=list)
    labels: dict[str, None] = field(default_factory=dict)
    operations: set[str | None] = field(default_factory=set)
    stuck: bool = False


def group_of(link: str) -> str:
    """Return the key of the group that a message or a collective belongs to."""
    found = _MESSAGE.fullmatch(link)
    return found["group"] if found else link.rpartition(":")[0]


def ends_of(name: str) -> tuple[int | None, int] | None:
    """Return sender (None: anyone) and receiver of the message of that name; None for others."""
    found = _MESSAGE.fullmatch(name)
    if found is None:
        return None
    return None if found["from"] == "any" else int(found["from"]), int(found["to"])


def settled(
    draft: Draft,
    ranks: Sequence[int],
    completed: Mapping[At, At],
    members: Mapping[str, tuple[int, ...]],
) -> Meeting:
    """Return the meeting of a draft.

    `ranks` are those of the lanes; `completed` tells which `wait` completed the call at a span, if
    one did; `members` are the ranks of the groups that are known, by key.
    """
    found = _MESSAGE.fullmatch(draft.name)
    spans = sorted(draft.spans)
    came = [ranks[lane] for lane, _ in spans]
    if found:
        sender = -1 if found["from"] == "any" else int(found["from"])
        spans.sort(key=lambda at: ranks[at[0]] != sender)
        ends = (sender, int(found["to"]))
        missing = tuple(rank for rank in ends if rank >= 0 and rank not in came)
        both = len(spans) == len(ends)
    else:
        wanted = members.get(draft.name.rpartition(":")[0], ())
        missing = tuple(rank for rank in wanted if rank not in set(came))
        # who creates groups with different members all come, and wait for ever
        both = len(draft.operations) == 1 and not (draft.kind == "creation" and draft.stuck)
    return Meeting(
        name=draft.name,
        kind=draft.kind,
        label=_told(found) if found else " ≠ ".join(draft.labels),
        spans=tuple(spans),
        completed=tuple(completed.get(at, at) for at in spans),
        missing=missing,
        complete=both and not missing,
    )


def _told(message: re.Match[str]) -> str:
    sender = "anyone" if message["from"] == "any" else message["from"]
    tag = "" if message["tag"] == "0" else f" tag {message['tag']}"
    return f"{sender} → {message['to']}{tag}"
