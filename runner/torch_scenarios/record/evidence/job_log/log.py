"""What a log says of a job: each a fact of a rank, a group or the whole, and no judgment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.job_log.printed_error import PrintedError
from torch_scenarios.record.evidence.stack import RankStack
from torch_scenarios.verdict import Finding

#: ranks that a log may name
MOST_RANKS = 65_536
#: characters of a line that are read, and of what a system's log puts before a rank's
MOST_LINE, MOST_PREFIX = 20_000, 200
#: what takes or gives a part for each rank of its group
_GATHER_OR_SCATTER = {"_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"}
#: what torchrun puts before each line of a rank
WORLD_RANK = re.compile(r"\[rank(\d+)\]:")


class WatchedWork(Struct, frozen=True, kw_only=True):
    """A collective that NCCL's watchdog gave up, as one rank tells it; sizes are in elements."""

    number: int
    kind: str
    sizes: tuple[int, int] | None = None
    limit_s: float = 0.0

    @property
    def ranks(self) -> int:
        """How many ranks its group has, where the sizes say so; 0 where they do not."""
        if self.sizes is None or not all(self.sizes) or self.kind not in _GATHER_OR_SCATTER:
            return 0
        more, rest = divmod(max(self.sizes), min(self.sizes))
        return more if not rest else 0


class RankLog(Struct, kw_only=True):
    """What a log says of one rank in one group."""

    works: list[WatchedWork] = field(default_factory=list)
    begun: int | None = None
    done: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it has completed all that it has enqueued, and waits in none."""
        return not self.works and self.begun is not None and self.begun == self.done


class JobLog(Struct, kw_only=True):
    """What a log says: of ranks in groups, of errors, ends, stacks, and NCCL's communicators."""

    groups: dict[str, dict[int, RankLog]] = field(default_factory=dict)
    errors: dict[int, PrintedError] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    first_end: int | None = None
    #: the first process of a node that ended: its local rank, and its exit code
    local_end: tuple[int, int] | None = None
    #: seconds for which the watchdog of a rank has made no progress
    halted: dict[int, int] = field(default_factory=dict)
    #: where each rank called what has timed out
    called: dict[int, RankStack] = field(default_factory=dict)
    #: the numbers of parameters whose gradient DDP has waited for
    unused: dict[int, str] = field(default_factory=dict)
    #: what a rank has raised whose number nothing says, in a traceback or torchrun's error file
    unnamed: PrintedError | None = None
    #: the store that a rank has not reached: its host and port, and for how many seconds
    unreached: tuple[str, int, float] | None = None
    #: a port that another process listens on
    taken: int | None = None
    #: to how many other ranks Gloo has connected a rank, of how many
    connected: dict[int, tuple[int, int]] = field(default_factory=dict)
    stacks: dict[int, RankStack] = field(default_factory=dict)
    communicators: list[dict[str, Any]] = field(default_factory=list)
    #: ranks that did not come to a monitored barrier, with the seconds that others waited
    absent: dict[int, float] = field(default_factory=dict)
    #: the number of a collective in which ranks meet, and what each of them calls
    mismatch: dict[int, tuple[int, str]] = field(default_factory=dict)
    #: how many bytes Gloo has received in a collective, and how many it expected
    received: tuple[int, int] | None = None
    #: whether NCCL lost its connection to a rank: that one has left, or died
    is_peer_lost: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing that is known was in it."""
        others = (self.local_end, self.unnamed, self.unreached, self.taken, self.received)
        return not (self.ranks or self.communicators or any(others))

    @property
    def ranks(self) -> list[int]:
        """The ranks that are named."""
        found = {*self.errors, *self.ends, *self.stacks, *self.absent, *self.mismatch}
        found |= {*self.halted, *self.connected}
        found |= {rank for own in self.groups.values() for rank in own}
        found |= {rank for each in self.communicators for rank in each["counts"]}
        return sorted(found)


def read_rank(text: str) -> int | None:
    """Return the rank that digits name; None where no job has as many."""
    number = int(text[:9])
    return number if number < MOST_RANKS else None


def make_finding(
    code: str, words: str, ranks: Sequence[int], notes: Sequence[Clause] = (), fix: str = ""
) -> Finding:
    """Return a finding of the job itself; `fix` is empty where nothing is known to do."""
    return Finding(
        witness="program",
        code=code,
        prose=words,
        notes=tuple(notes),
        ranks=tuple(ranks),
        fix=fix or None,
    )
