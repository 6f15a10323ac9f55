"""One invariant that does not hold, and what several of them ask of records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from msgspec import Struct

from torch_scenarios.operations import C10D
from torch_scenarios.record.values.format.record import CarryingCall, ValueRecord
from torch_scenarios.record.values.roles import Ranks
from torch_scenarios.verdict.finding import ranks_text

Records = Mapping[int, ValueRecord]
#: names that one message lists
MOST_NAMES = 3


class Cause(Enum):
    """What is known of a mistake; what else is said of it, and what it explains, depends on it."""

    #: nothing more than the values
    UNLIKE = auto()
    #: an optimizer steps copies that are older than what made the weights equal
    EARLY_COPIES = auto()
    #: a value has no number where one process has
    INFINITE = auto()
    #: a value is zero
    ZERO = auto()
    #: a value is several times that of one process, or a fraction of it
    MULTIPLE = auto()
    FRACTION = auto()
    #: times a number that is neither a whole one nor one divided by it
    SCALED = auto()
    #: about as many times, or as a fraction, as there are ranks
    ABOUT_A_MULTIPLE = auto()
    #: by the root of the number of ranks
    ROOT = auto()
    #: a gradient is a rank's own, and nothing reduces it; or the optimizer does, and too far
    OWN = auto()
    OWN_IN_OPTIMIZER = auto()
    #: a gradient is that of the step before
    STALE = auto()
    #: a gradient has the elements of other parameters
    SHIFTED = auto()


class ValueFinding(Struct, frozen=True, kw_only=True):
    """One invariant that does not hold: what is wrong, on which ranks, at which line, what to do.

    `rank` and `place` name the line, `frames` where the record has none for it; `turn` the step of
    training; `error` whether the program is wrong, or should be looked at; `is_measured` whether
    it depends on what rounding does.
    """

    code: str
    message: str
    ranks: Ranks
    rank: int
    place: int
    hint: str
    turn: int = 0
    error: bool = True
    name: str = ""
    frames: tuple[tuple[str, int, str], ...] = ()
    cause: Cause = Cause.UNLIKE
    is_measured: bool = False


def list_names(names: Sequence[str]) -> str:
    """Return names in backticks; of many the first, and how many more there are."""
    shown = ", ".join(f"`{each}`" for each in names[:MOST_NAMES])
    return shown + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def list_by_rank(values: Mapping[int, str]) -> str:
    """Return what each rank has, in words; of many ranks the first."""
    shown = [f"{value} on rank {rank}" for rank, value in [*values.items()][:4]]
    return ", ".join(shown) + (", ..." if len(values) > 4 else "")


def tell_line(record: ValueRecord, place: int) -> str:
    """Return the line of a place in parentheses, to follow what happens there."""
    frames = record.places.get(place, ())
    return f" (line {frames[0][1]})" if frames else ""


def tell_call(operation: str) -> str:
    """Return torch's public name of a call (`all_reduce`), which c10d calls otherwise."""
    return C10D.get(operation, operation.strip("_"))


def part_ranks(values: Mapping[int, Any]) -> list[list[int]]:
    """Return ranks by what they hold, the largest part first."""
    parts: dict[Any, list[int]] = defaultdict(list)
    for rank, value in values.items():
        parts[value].append(rank)
    return sorted(parts.values(), key=lambda ranks: (-len(ranks), ranks))


def tell_apart(values: Mapping[int, Any]) -> str:
    """Say which ranks hold something else than the others."""
    parts = part_ranks(values)
    if len(parts) == len(values):
        return f"{ranks_text([*values])} each hold another value"
    others = sorted(rank for part in parts[1:] for rank in part)
    verb = "holds" if len(others) == 1 else "hold"
    return f"{ranks_text(others)} {verb} another value than {ranks_text(parts[0])}"


def join_calls(
    records: Records, ranks: Ranks, keep: Callable[[CarryingCall], bool]
) -> Iterator[dict[int, CarryingCall]]:
    """Yield the calls of a group that belong together: the n-th of each rank."""
    lists = [
        [c for c in records[rank].calls if c.ranks == ranks and keep(c)]
        for rank in ranks
        if rank in records
    ]
    if len(lists) < 2 or len({len(each) for each in lists}) != 1:
        return
    for together in zip(*lists, strict=True):
        if len({(each.operation, each.tensors[0].size) for each in together}) == 1:
            yield dict(zip((r for r in ranks if r in records), together, strict=True))


def find_groups_of_calls(records: Records) -> list[Ranks]:
    """Return the groups of several ranks that make calls."""
    return sorted({c.ranks for r in records.values() for c in r.calls if len(c.ranks) > 1})
