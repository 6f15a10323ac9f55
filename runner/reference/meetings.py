"""Who meets whom in collectives: by their position on a group.

Pure bookkeeping: nothing here knows what an operation computes, or when a rank may go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.reference.posts import Joining

if TYPE_CHECKING:
    from runner.call import Call
    from runner.operations.entries import Entry
    from runner.plan import Group


@dataclass(slots=True, kw_only=True, eq=False)
class Meeting:
    """The n-th collective of a group: who entered it, with which operation.

    In a correct program all members enter the same operation. `settled` tells that the result was
    computed; `spoiled` names the mismatch that leaves it undefined. `hopeful` are those who may
    pass before all are there.
    """

    group: Group
    position: int
    joined: dict[int, Joining] = field(default_factory=dict)  # by group rank
    entered: dict[str, dict[int, Joining]] = field(default_factory=dict)  # by operation
    hopeful: list[Joining] = field(default_factory=list)
    first_s: float = 0.0
    settled: bool = False
    spoiled: str | None = None

    def add(self, group_rank: int, joining: Joining, name: str) -> None:
        """Let a member enter the operation `name`."""
        self.first_s = min(self.first_s, joining.time_s) if self.joined else joining.time_s
        self.joined[group_rank] = joining
        self.entered.setdefault(name, {})[group_rank] = joining

    def of(self, name: str) -> dict[int, Joining]:
        """Return those who entered that operation and have not given up, by group rank."""
        return self.entered.get(name, {})

    def withdraw(self, joining: Joining) -> None:
        """Let a member give up: it no longer counts as having entered."""
        for members in self.entered.values():
            for group_rank in [at for at, other in members.items() if other is joining]:
                del members[group_rank]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the operations that were entered here, in order of group ranks."""
        if len(self.entered) == 1:
            return tuple(self.entered)
        names = [
            self.joined[at].call.operation.name  # type: ignore[union-attr]
            for at in sorted(self.joined)
        ]
        return tuple(dict.fromkeys(names))

    @property
    def complete(self) -> bool:
        """Whether every member entered the same operation."""
        return len(self.joined) == self.group.size and len(self.entered) == 1


class Meetings:
    """All collectives of a run, by group and position."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, int], Meeting] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._of: dict[str, list[Meeting]] = {}

    def join(self, call: Call, time_s: float) -> Joining:
        """Enter the rank's next collective on its group."""
        entry: Entry = call.entry
        group = entry.group
        position = self.position(group.key, entry.rank)
        self._next[group.key, entry.rank] = position + 1
        meeting = self._at.get((group.key, position))
        if meeting is None:
            meeting = self._at[group.key, position] = Meeting(group=group, position=position)
            self._of.setdefault(group.key, []).append(meeting)
        joining = Joining(rank=entry.rank, call=call, time_s=time_s, meeting=meeting, entry=entry)
        assert call.operation is not None  # noqa: S101 -- only operations are entered
        meeting.add(entry.group_rank, joining, call.operation.name)
        return joining

    def position(self, group_key: str, rank: int) -> int:
        """Return how many collectives the rank has entered on the group."""
        return self._next.get((group_key, rank), 0)

    def of_group(self, group_key: str) -> list[Meeting]:
        """Return the meetings of one group, in the order in which the first member came."""
        return self._of.get(group_key, [])

    def all(self) -> list[Meeting]:
        """Return every meeting, in the order in which the first member came."""
        return list(self._at.values())
