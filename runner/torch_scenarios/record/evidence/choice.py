"""What ranks that part have decided before: each `if`, loop and `except`, and how often."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from typing import TypeAlias

from msgspec import Struct

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.divergence import Frames, Parting
from torch_scenarios.record.evidence.script import Script, place_at, script_at
from torch_scenarios.record.format import BlockingCall, Decision, RankRecord, RecordedCall
from torch_scenarios.verdict.finding import ranks_text

#: ranks whose values are told one by one
MOST_TOLD = 4


#: how often something is done, in words
_TIMES = {0: "never", 1: "once", 2: "twice"}


#: a condition that asks which rank it is on
ASKS_RANK = re.compile(r"rank|main_process|master|leader|primary|(?:global|process)_zero")
#: characters of what a function returns that is shown
MOST_RETURNED = 100


#: what a reason is: a clause that says it, and what to change
Reason: TypeAlias = tuple[Clause, str]


class Tally(Struct, kw_only=True):
    """How often a rank went each way at a place, and what the place read last.

    `led` is what it read last when it led in, `left` when it did not.
    """

    yes: int = 0
    no: int = 0
    values: tuple[str | None, ...] = ()
    led: tuple[str | None, ...] = ()
    left: tuple[str | None, ...] = ()

    def read_apart(self, others: Collection[Tally]) -> tuple[str | None, ...]:
        """Return what the place read on a rank that alone went a way: when it went there."""
        if self.yes and self.no and self.led and not all(each.yes for each in others):
            return self.led
        if self.yes and self.no and self.left and not all(each.no for each in others):
            return self.left
        return self.values


def _name_call(item: object) -> str:
    if isinstance(item, BlockingCall):
        return item.what
    return item.operation if isinstance(item, RecordedCall) else type(item).__name__


#: what ranks decided, by the place and by the rank
Tallies: TypeAlias = Mapping[Decision, Mapping[int, Tally]]


class DecidedParting:
    """A parting with what each rank decided: since the call before it, and from the beginning."""

    def __init__(self, parting: Parting, records: Mapping[int, RankRecord], folder: str) -> None:
        self.parting, self.records, self.folder = parting, records, folder
        self.ranks = [*parting.calls, *parting.missing]
        self._spans = {rank: self._span(rank) for rank in self.ranks}
        self.has_ways = any(records[rank].ways for rank in self.ranks)
        self.sides = [*self._list_leavers(), *((who, at) for who, at in parting.sides if at)]

    def _list_leavers(self) -> Iterator[tuple[list[int], Frames]]:
        """Yield the ranks that do not come, by the place at which they left."""
        found: dict[Frames, list[int]] = {}
        for rank in self.parting.missing:
            record = self.records[rank]
            frames = record.left_at.frames
            if not frames and len(record.items) > self._spans[rank][0] + 1:
                frames = record.items[-1].place.frames
            if frames:
                found.setdefault(frames, []).append(rank)
        yield from ((ranks, frames) for frames, ranks in found.items())

    def _span(self, rank: int) -> tuple[int, int]:
        items = self.records[rank].items
        before, call = self.parting.before.get(rank), self.parting.calls.get(rank)
        start = next((at for at, each in enumerate(items) if each is before), -1)
        end = next((at for at, each in enumerate(items) if each is call), len(items))
        return start, end

    @property
    def shared(self) -> int:
        """How many calls of the ranks are the same, from the beginning, before they part."""
        records = [self.records[rank] for rank in self.ranks]
        rows = zip(*(map(_name_call, each.items) for each in records), strict=False)
        alike = sum(1 for _ in takewhile(lambda row: len({*row}) == 1, rows))
        return min(alike, *(end for _, end in self._spans.values()))

    def is_within(self, rank: int, before: int, *, whole: bool) -> bool:
        """Whether what lies before an item of a rank is in the span that is asked for."""
        start, end = self._spans[rank]
        return (whole or before > start) and before <= end

    def tallies(self, *, whole: bool, alike: bool = False) -> dict[Decision, dict[int, Tally]]:
        """Return what ranks decided, in their order: where they decide apart, or `alike` too."""
        found: dict[Decision, dict[int, Tally]] = {}
        for rank in self.ranks:
            for way in self.records[rank].ways:
                if self.is_within(rank, way.before, whole=whole):
                    tally = found.setdefault(way.decision, {}).setdefault(rank, Tally())
                    tally.yes, tally.no = tally.yes + way.yes, tally.no + way.no
                    tally.values = way.values or tally.values
                    if way.yes:
                        tally.led = way.values or tally.led
                    else:
                        tally.left = way.values or tally.left
        for own in found.values():
            for rank in self.ranks:
                own.setdefault(rank, Tally())
        return {
            decision: own
            for decision, own in found.items()
            if alike or len({(each.yes, each.no) for each in own.values()}) > 1
        }

    def leads_on(self, decision: Decision, *, to_line: bool = False) -> bool:
        """Whether ranks decide something since the call before, or again and again between calls.

        What a rank decides once, long before, may be no more than what it alone prepares. With
        `to_line` the calls of the line at which they part are one, as of a loop over gradients.
        """
        for rank in self.ranks:
            start, end = self._spans[rank]
            start = self._start_of_line(rank) if to_line else start
            spans = {
                way.before
                for way in self.records[rank].ways
                if way.decision == decision and way.before <= end
            }
            if len(spans) > 1 or any(before > start for before in spans):
                return True
        return False

    def _start_of_line(self, rank: int) -> int:
        """Return which item of a rank is the last one before the calls of one line that part."""
        items, (start, _) = self.records[rank].items, self._spans[rank]
        lines = {call.place.frames for call in self.parting.calls.values()}
        while start >= 0 and items[start].place.frames in lines:
            start -= 1
        return start

    def count_elsewhere(self, decision: Decision, own: Mapping[int, Tally]) -> dict[int, Tally]:
        """Return what ranks of other groups decided at a place where each rank decided once."""
        if any(each.yes + each.no != 1 for each in own.values()):
            return {}
        return {
            rank: Tally(yes=way.yes, no=way.no)
            for rank, record in self.records.items()
            if rank not in own
            for way in record.ways
            if way.decision == decision
        }

    def place(self, decision: Decision) -> str:
        """Return the place of a decision as it is shown."""
        return place_at(decision.file, decision.line, self.folder)


def list_values(decision: Decision, tallies: Mapping[int, Tally]) -> str:
    """Return what a condition read last on each rank: `loss = 4.0 on rank 0`.

    What a function of the script gives that it calls follows, as it stands there.
    """
    return "; ".join(filter(None, (_list_read(decision, tallies), _tell_returned(decision))))


def _list_read(decision: Decision, tallies: Mapping[int, Tally]) -> str:
    alike: dict[str, list[int]] = {}
    values = _shorten({rank: tally.values for rank, tally in sorted(tallies.items())})
    for rank in sorted(tallies):
        words = ", ".join(
            f"{name} has {value}"
            if value.startswith("shape") or "item" in value
            else f"{name} = {value}"
            for name, value in zip(decision.names, values[rank], strict=False)
            if value is not None and not (name.endswith("rank") and value == str(rank))
        )
        if words:
            alike.setdefault(words, []).append(rank)
    if len(alike) > MOST_TOLD or not alike:
        return ""
    is_same = len(alike) == 1 and len(next(iter(alike.values()))) > 1
    if is_same and all("has shape" in words for words in alike):
        return ""  # a shape that all have decides nothing
    source = script_at(decision.file)
    assigned = ""
    if source is not None and len(decision.names) == 1 and decision.text.split()[-1].isidentifier():
        assigned = source.assigned(decision.names[0], decision.line)
    if source is not None and not assigned:
        assigned = _find_sized(source, decision, values)
    shown = "; ".join(f"{words} on {ranks_text(ranks)}" for words, ranks in alike.items())
    return f"{shown} (`{assigned}`)" if assigned else shown


def _find_sized(
    source: Script, decision: Decision, values: Mapping[int, tuple[str | None, ...]]
) -> str:
    """Return the line that sets the first of a condition's lists whose length differs by rank."""
    for at, name in enumerate(decision.names):
        sizes = {own[at] for own in values.values() if at < len(own)}
        if len(sizes) > 1 and all(each is not None and _OF_ITEMS.fullmatch(each) for each in sizes):
            line = source.assignment(ast.parse(name, mode="eval").body, decision.line)
            place = source.place(line, "")
            return f"{source.text(line)}, {place}" if line else ""
    return ""


#: what is shown of a list that a condition reads
_OF_ITEMS = re.compile(r"\d+ items?")


def _tell_returned(decision: Decision) -> str:
    """Return what a function gives that a condition calls, where it is one of the script's own."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    for call in ast.walk(node.test) if node is not None else ():
        given = source.returned(call) if isinstance(call, ast.Call) and source is not None else None
        if given is not None and given[1].value is not None:
            where, line = given[0], given[1].lineno
            name = ast.unparse(call.func)  # type: ignore[attr-defined]
            text = ast.unparse(given[1].value)
            if not isinstance(given[1].value, ast.Constant) and len(text) <= MOST_RETURNED:
                return f"`{name}` returns `{text}` ({where.place(line, '')})"
    return ""


#: a number with more digits than a person reads
_LONG = re.compile(r"-?\d+\.\d{4,}(?:e[+-]?\d+)?")


def _shorten(
    values: Mapping[int, tuple[str | None, ...]],
) -> dict[int, tuple[str | None, ...]]:
    """Return what ranks read with numbers of four digits, where these still differ as before."""
    short_of = {
        each: f"{float(each):.4g}"
        for own in values.values()
        for each in own
        if each is not None and _LONG.fullmatch(each)
    }
    if len(set(short_of.values())) < len(short_of):
        return dict(values)
    return {
        rank: tuple(each if each is None else short_of.get(each, each) for each in own)
        for rank, own in values.items()
    }


def count_turns(parted: DecidedParting, decision: Decision, own: Mapping[int, Tally]) -> str:
    """Return on which ranks a condition is true, or how often where it is so on several."""
    where = f"`{decision.text}` ({parted.place(decision)})"
    own = {**own, **parted.count_elsewhere(decision, own)}
    ranks = [rank for rank, each in sorted(own.items()) if each.yes]
    if ranks and all(not each.yes or not each.no for each in own.values()):
        return f"{where} is true on {ranks_text(ranks)} alone"
    alike: dict[tuple[int, int], list[int]] = {}
    for rank, each in sorted(own.items()):
        alike.setdefault((each.yes, each.no), []).append(rank)
    words = ", ".join(
        f"{ranks_text(ranks)} {times(yes)} of {yes + no}" for (yes, no), ranks in alike.items()
    )
    return f"{where} is not true as often on all ranks: {words}"


def list_times(counts: Mapping[int, int]) -> str:
    """Return how often each rank did something, ranks alike together: `rank 0 twice`."""
    alike: dict[int, list[int]] = {}
    for rank, count in sorted(counts.items()):
        alike.setdefault(count, []).append(rank)
    return ", ".join(f"{ranks_text(who)} {times(count)}" for count, who in alike.items())


def times(count: int) -> str:
    """Return how often something is done, in words."""
    return _TIMES.get(count, f"{count} times")


def short(frames: Frames, folder: str) -> str:
    """Return the innermost place of frames as it is shown: `train.py:19`."""
    if not frames:
        return "an unknown line"
    return place_at(frames[0][0], frames[0][1], folder)
