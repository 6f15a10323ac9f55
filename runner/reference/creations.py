"""Who meets whom in `new_group`: by count, or by the members that a call names.

Pure bookkeeping: nothing here knows when a rank may go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.reference.posts import Creating

if TYPE_CHECKING:
    from runner.call import Call
    from runner.plan import Group

#: creations that ranks meet in one after the other: () are those of the whole world, the members
#: those of groups that only their members create
Series = tuple[int, ...]


class Creations:
    """The groups that ranks create while the program runs.

    Ranks meet in their n-th creation of a series. All ordinary calls of `new_group` are one
    series, whatever members they name. With `use_local_synchronization` the calls that name the
    same members are a series of their own: torch names such a group after its ranks, every other
    by a counter (`torch.distributed.distributed_c10d._process_group_name`).
    """

    def __init__(self) -> None:
        self._at: dict[tuple[Series, int], dict[int, Creating]] = {}
        self._keys: dict[tuple[Series, int], dict[tuple[int, ...], str]] = {}
        self._numbers: dict[tuple[Series, int], int] = {}
        self._next: dict[tuple[int, Series], int] = {}
        self._named: dict[str, int] = {}
        self._splits: dict[int, dict[int, Creating]] = {}
        self._split: dict[int, int] = {}

    @staticmethod
    def series(group: Group, *, local: bool) -> Series:
        """Return the series in which a call creates the group."""
        return tuple(sorted(group.ranks)) if local else ()

    def ordinal(self, rank: int, series: Series) -> int:
        """Return how many groups of the series the rank has created by steps."""
        return self._next.get((rank, series), 0)

    def create(
        self, call: Call, time_s: float, group: Group, *, local: bool, splits: bool
    ) -> Creating:
        """Enter the rank's next creation; its group gets a key that only its members share.

        `splits`: the rank splits the world for it, as every rank must that makes such a call.
        """
        rank = call.entry.rank
        series = self.series(group, local=local)
        ordinal = self.ordinal(rank, series)
        self._next[rank, series] = ordinal + 1
        place = (series, ordinal)
        here = self._at.setdefault(place, {})
        keys = self._keys.setdefault(place, {})
        if group.ranks not in keys:
            nth = self._named.get(group.name, 0)
            self._named[group.name] = nth + 1
            keys[group.ranks] = f"{group.name}#{nth}"
        creating = Creating(
            rank=rank,
            call=call,
            time_s=time_s,
            series=series,
            ordinal=ordinal,
            number=self._numbers.setdefault(place, len(self._numbers)),
            nth=self._split.get(rank, 0) if splits else None,
            group=replace(group, key=keys[group.ranks]),
        )
        here[rank] = creating
        if creating.nth is not None:
            self._split[rank] = creating.nth + 1
            self._splits.setdefault(creating.nth, {})[rank] = creating
        return creating

    def splitting(self, creating: Creating) -> dict[int, Creating]:
        """Return who splits the world with a rank, by rank; only itself where it does not."""
        if creating.nth is None:
            return {creating.rank: creating}
        return self._splits[creating.nth]

    def key(self, group: Group, series: Series, ordinal: int) -> str | None:
        """Return the key that a rank which created the group gave it, or None."""
        return self._keys.get((series, ordinal), {}).get(group.ranks)

    def beside(self, creating: Creating) -> dict[int, Creating]:
        """Return who is in the same creation, by rank."""
        return self._at[creating.series, creating.ordinal]

    def disputed(self, series: Series, ordinal: int) -> bool:
        """Whether ranks disagree on that creation of a series, or on one before it."""
        places = ((series, at) for at in range(ordinal + 1))
        return any(len(self._keys.get(place, ())) > 1 for place in places)

    def all(self) -> list[dict[int, Creating]]:
        """Return the creations, in the order in which the first rank came."""
        return list(self._at.values())
