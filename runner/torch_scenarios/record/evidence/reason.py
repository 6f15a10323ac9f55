"""Why ranks part: the loop that one takes once more, the `if` that one takes, the error it catches.

A finding says which calls meet. What a person mends is before: the first operation that ranks enter
from different lines, and what in the script leads there::

    14   for batch in loader:          rank 0 takes it a fourth time, rank 1 three times
    17       loss.backward()           rank 0 is here
    18   dist.barrier()                rank 1 is here

The source is parsed and never run; it is the script that was just recorded.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.format import MESSAGES, RankRecord, RecordedCall, RecordedWait
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: bytes of a script that is parsed
MOST_SOURCE = 4 << 20
#: diagnoses of ranks that went different ways
PARTED = frozenset(
    {
        *("call_mismatch", "missing_participant", "dtype_mismatch", "shape_mismatch"),
        *("op_mismatch", "root_mismatch", "split_mismatch", "circular_wait"),
    }
)
#: what backends raise where a timeout strikes, with its milliseconds
_TIMED_OUT = re.compile(r"[Tt]imed out (?:after )?(?:waiting )?(\d+) ?ms")
#: times its timeout by which a fake rank has to be later: its clock is that of a busy machine
_FAKE_MARGIN = 1.2
#: how often something is done, in words
_TIMES = {0: "never", 1: "once", 2: "twice"}

_Frames: TypeAlias = tuple[tuple[str, int, str], ...]


class Parting(Struct, frozen=True, kw_only=True):
    """The first operation of a group that ranks enter from different lines, or that some miss."""

    group: str
    at: int
    calls: Mapping[int, RecordedCall]
    missing: tuple[int, ...] = ()

    @property
    def sides(self) -> list[tuple[list[int], _Frames]]:
        """The ranks at each place, the fewest first."""
        found: dict[_Frames, list[int]] = {}
        for rank, call in sorted(self.calls.items()):
            found.setdefault(call.place.frames, []).append(rank)
        return sorted(((who, at) for at, who in found.items()), key=lambda each: len(each[0]))


def add_reasons(
    findings: Sequence[Finding], records: Mapping[int, RankRecord], folder: str
) -> tuple[Finding, ...]:
    """Return the findings; the first of ranks that part with where they do, and why."""
    told = list(findings)
    at = next((at for at, each in enumerate(told) if each.diagnosis in PARTED), None)
    if at is None:
        return tuple(told)
    parting = find_parting(records)
    if parting is None:
        return tuple(told)
    clauses, fix = explain_parting(parting, records, folder)
    if not clauses:
        return tuple(told)
    finding = told[at]
    help_ = (fix, *finding.help[:1]) if fix else finding.help
    told[at] = replace(
        finding,
        notes=(*finding.notes, *clauses),
        fix=fix if fix and not (finding.fix or "").startswith("rank ") else finding.fix,
        help=help_,
    )
    return tuple(told)


def find_parting(records: Mapping[int, RankRecord]) -> Parting | None:
    """Return where ranks first part: from different lines, and no two ways to one operation."""
    found: list[tuple[int, Parting]] = []
    for group, members, calls in calls_by_group(records):
        longest = max(map(len, calls.values()))
        for at in range(longest):
            entered = {rank: own[at] for rank, own in sorted(calls.items()) if at < len(own)}
            missing = tuple(r for r in members if r in records and r not in entered)
            began = max(_time(records[rank], call) for rank, call in entered.items())
            if missing or _is_apart(entered, records):
                parting = Parting(group=group, at=at, calls=entered, missing=missing)
                found.append((began, parting))
                break
    return min(found, key=lambda each: each[0])[1] if found else None


def _time(record: RankRecord, call: RecordedCall) -> int:
    started = record.about.get("time", 0.0)
    return int(float(started) * 1e6) + call.began_us if isinstance(started, int | float) else 0


def calls_by_group(
    records: Mapping[int, RankRecord],
) -> Iterator[tuple[str, tuple[int, ...], dict[int, list[RecordedCall]]]]:
    """Yield the collectives of each group by rank, in order, with its name and members."""
    found: dict[tuple[str, tuple[int, ...]], dict[int, list[RecordedCall]]] = {}
    for rank, record in records.items():
        for call in record.calls:
            if call.operation not in MESSAGES:
                name, members, _ = record.groups[int(call.group_name)]
                found.setdefault((name, members), {}).setdefault(rank, []).append(call)
    for (name, members), calls in found.items():
        yield name, members, calls


def _is_apart(entered: Mapping[int, RecordedCall], records: Mapping[int, RankRecord]) -> bool:
    """Whether calls that meet are of different places that one rank comes to both of."""
    places = {call.place.frames for call in entered.values()}
    if len(places) < 2:
        return False
    if len({(call.operation, call.dtype, call.maker == "bw") for call in entered.values()}) > 1:
        return True
    return any(
        len(places & {call.place.frames for call in records[rank].calls}) > 1 for rank in entered
    )


# -------------------------------------------------------------------------------------------------
# Why.


def explain_parting(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> tuple[list[Clause], str]:
    """Return where ranks part and why, and what mends it; nothing where nothing is known."""
    sides = parting.sides
    clauses: list[Clause] = []
    if len(sides) > 1:
        where = "; ".join(
            f"{ranks_text(ranks)} {'comes' if len(ranks) == 1 else 'come'} from "
            f"{_short(frames, folder)}"
            for ranks, frames in sides
        )
        clauses.append(Clause(f"the ranks part at operation {parting.at + 1}: {where}"))
    turns = _turns(parting, records, folder)
    if turns is not None:
        return [*clauses, turns[0]], turns[1]
    branch = _branch(parting, records, folder)
    if branch is not None:
        return [*clauses, branch[0]], branch[1]
    return clauses, ""


def _short(frames: _Frames, folder: str) -> str:
    if not frames:
        return "an unknown line"
    path = Path(frames[0][0])
    name = path.relative_to(folder) if folder and path.is_relative_to(folder) else path.name
    return f"{name}:{frames[0][1]}"


def _turns(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> tuple[Clause, str] | None:
    """Return that some ranks come to a line of a loop once more than others, and how often."""
    for ranks, frames in parting.sides:
        if not frames:
            continue
        maker = parting.calls[ranks[0]].maker
        counts = {
            rank: _passes(records[rank], frames, maker, parting.calls.get(rank))
            for rank in (*parting.calls, *parting.missing)
        }
        own, others = counts[ranks[0]], {counts[r] for r in counts if r not in ranks}
        if not others or min(others) < 1 or max(others) >= own:
            continue
        loop = _loop_of(frames, [each for _, each in parting.sides if each != frames])
        if loop is None:
            continue
        text, line, file = loop
        alike: dict[int, list[int]] = {}
        for rank, count in sorted(counts.items()):
            alike.setdefault(count, []).append(rank)
        told = ", ".join(f"{ranks_text(who)} {_times(count)}" for count, who in alike.items())
        place = _short(((file, line, ""),), folder)
        call = parting.calls[ranks[0]]
        is_backward = call.maker in {"bw", "cc"}
        what = "backward passes" if call.maker == "bw" else f"calls of {_short(frames, folder)}"
        clause = Clause(f"the loop `{text}` ({place}) has more turns on some ranks; {what}: {told}")
        fix = (
            f"give every rank as many turns of the loop at {place}: uneven batches need "
            "`drop_last=True` (of the sampler and the loader), or one number of steps that the "
            "ranks agree on"
        )
        fix += "; with DDP also `with Join([model]):` around the loop." if is_backward else "."
        return clause, fix
    return None


def _times(count: int) -> str:
    return _TIMES.get(count, f"{count} times")


def _passes(record: RankRecord, frames: _Frames, maker: str, until: RecordedCall | None) -> int:
    """Return how often a rank comes to a place, up to a call; the buckets of a backward are one."""
    count, is_open = 0, False
    for item in record.items:
        if not isinstance(item, RecordedCall):
            is_open = is_open and not isinstance(item, RecordedWait)
            continue
        if item.place.frames == frames and item.maker == maker:
            count += not (is_open and item.maker == "bw")
            is_open = item.maker == "bw" and not item.completes
        if item is until:
            break
    return count


def _loop_of(frames: _Frames, others: Sequence[_Frames]) -> tuple[str, int, str] | None:
    """Return the loop that a place is in and the other places are not: its text, line and file."""
    for file, line, _ in frames:
        source = _source_of(file)
        if source is None:
            continue
        for node, _branch_name in source.around(line):
            if isinstance(node, ast.For | ast.AsyncFor | ast.While):
                inside = [
                    at
                    for other in others
                    for name, at, _ in other
                    if name == file and node.lineno <= at <= (node.end_lineno or node.lineno)
                ]
                if not inside:
                    return source.text(node.lineno), node.lineno, file
    return None


def _branch(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> tuple[Clause, str] | None:
    """Return the `if` or `except` that some ranks take to where they part."""
    sides = [(ranks, frames) for ranks, frames in parting.sides if frames]
    if parting.missing:
        last = {
            rank: records[rank].calls[-1].place.frames if records[rank].calls else ()
            for rank in parting.missing
        }
        sides.append((list(parting.missing), last[parting.missing[0]]))
    for ranks, frames in sides:
        others = [each for who, each in sides if who is not ranks]
        for file, line, _ in frames:
            source = _source_of(file)
            if source is None:
                continue
            shared = {
                (id(node), name)
                for other in others
                for path, at, _ in other
                if path == file
                for node, name in source.around(at)
            }
            apart = [
                (node, name)
                for node, name in source.around(line)
                if (id(node), name) not in shared and isinstance(node, ast.If | ast.Try)
            ]
            if apart:
                tries = [each for each in apart if isinstance(each[0], ast.Try)]
                asks_rank = "rank" in source.text(apart[-1][0].lineno)
                chosen = tries[0] if tries and not asks_rank else apart[-1]
                return _decision(*chosen, source, ranks, folder, records)
    return _jump(sides, folder)


def _decision(
    node: ast.stmt,
    name: str,
    source: _Source,
    ranks: list[int],
    folder: str,
    records: Mapping[int, RankRecord],
) -> tuple[Clause, str]:
    place = _short(((source.file, node.lineno, ""),), folder)
    who = ranks_text(ranks)
    verb = "goes" if len(ranks) == 1 else "go"
    alone = " alone" if 0 < len(ranks) < len(records) else ""
    if isinstance(node, ast.Try):
        caught = next((each for each in node.handlers), None)
        handler = "" if caught is None else f", which `{source.text(caught.lineno)}` catches"
        words = f"{who}{alone} {verb} into an `except` of the `try` at {place}"
        if name == "body":
            stay = "stays" if len(ranks) == 1 else "stay"
            words = f"others leave the `try` at {place} by an error{handler}; {who} {stay} in it"
        fix = (
            f"let no error be caught around the calls at {place} on one rank alone: agree on it "
            "(an `all_reduce` of a flag) before the ranks go on."
        )
        return Clause(words), fix
    text = source.text(node.lineno)
    way = "into" if name == "body" else "into the `else` of"
    words = f"{who}{alone} {verb} {way} `{text}` ({place})"
    fix = (
        f"let every rank of the group make the calls under `{text}` ({place}), or none: move them "
        "out of the condition, or decide it alike on all ranks."
    )
    return Clause(words), fix


def _jump(sides: Sequence[tuple[list[int], _Frames]], folder: str) -> tuple[Clause, str] | None:
    """Return the way out under an `if` (`return`, `continue`) that leads some past a call."""
    placed = [(ranks, frames[0]) for ranks, frames in sides if frames]
    if len(placed) < 2:
        return None
    (early, (file, line, _)), (late, (other, _, _)) = sorted(placed, key=lambda each: each[1][1])[
        :2
    ]
    source = _source_of(file)
    if source is None or file != other:
        return None
    node = source.jump_before(line)
    if node is None:
        return None
    text, place = source.text(node.lineno), _short(((file, node.lineno, ""),), folder)
    who, verb = ranks_text(late), "goes" if len(late) == 1 else "go"
    words = (
        f"{who} {verb} past {_short(((file, line, ''),), folder)}, where {ranks_text(early)} wait"
        f"{'s' * (len(early) == 1)}: `{text}` ({place}) may lead past it"
    )
    fix = f"take the way out at {place} on all ranks or on none: agree on its condition first."
    return Clause(words), fix


class _Source:
    """A script, parsed: what stands around a line."""

    def __init__(self, file: str, text: str, tree: ast.Module) -> None:
        self.file = file
        self._lines = text.splitlines()
        self._tree = tree

    def text(self, line: int) -> str:
        """Return a line without its indent and its colon."""
        return self._lines[line - 1].strip().rstrip(":")[:120]

    def around(self, line: int) -> list[tuple[ast.stmt, str]]:
        """Return the statements around a line, innermost first, with the part of each it is in."""
        found: list[tuple[ast.stmt, str]] = []
        block: Sequence[ast.stmt] = self._tree.body
        while True:
            node = next(
                (each for each in block if each.lineno <= line <= (each.end_lineno or 0)), None
            )
            if node is None:
                return found[::-1]
            for name, part in _parts(node):
                if part and part[0].lineno <= line <= (part[-1].end_lineno or 0):
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                        found.clear()
                    else:
                        found.append((node, name))
                    block = part
                    break
            else:
                return found[::-1]

    def jump_before(self, line: int) -> ast.If | None:
        """Return the last `if` before a line whose body leaves its block, in the same function."""
        scope: ast.AST = self._tree
        for node in ast.walk(self._tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (
                node.end_lineno or 0
            ):
                scope = node
        found = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.If)
            and (node.end_lineno or 0) < line
            and isinstance(node.body[-1], ast.Return | ast.Continue | ast.Break | ast.Raise)
        ]
        return max(found, key=lambda each: each.lineno, default=None)


@cache
def _source_of(file: str) -> _Source | None:
    """Return a script of the user's own; None where it cannot be read or is no Python."""
    path = Path(file)
    try:
        if not path.is_file() or path.stat().st_size > MOST_SOURCE:
            return None
        text = path.read_text(encoding="utf-8")
        return _Source(file, text, ast.parse(text))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _parts(node: ast.stmt) -> Iterator[tuple[str, Sequence[ast.stmt]]]:
    """Yield the blocks of a statement by name."""
    for name in ("body", "orelse", "finalbody"):
        part = getattr(node, name, None)
        if isinstance(part, list) and part and isinstance(part[0], ast.stmt):
            yield name, part
    for handler in getattr(node, "handlers", ()):
        yield "except", handler.body


# -------------------------------------------------------------------------------------------------
# A rank that comes after the timeout of another one.


def find_late_rank(records: Mapping[int, RankRecord], folder: str = "") -> Finding | None:
    """Return that a rank came to an operation later than another one waits; None where none does.

    On real ranks both clocks are in the record. Fake ranks wait for nothing: what counts is how
    much longer one takes from the operation before, against the timeout of the job's start.
    """
    for _, _, calls in calls_by_group(records):
        for at in range(min(map(len, calls.values()))):
            entered = {rank: own[at] for rank, own in calls.items()}
            if len(entered) < 2:
                continue
            times = {rank: _arrival(records[rank], calls[rank], at) for rank in entered}
            early, late = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
            after_s = times[late] - times[early]
            timeout_s = _timeout_s(records, entered, early)
            fake = records[early].about.get("mode") == "fake"
            if timeout_s is not None and after_s > timeout_s * (_FAKE_MARGIN if fake else 1):
                return _late_finding(entered, early, late, after_s, timeout_s, folder)
    return None


def _arrival(record: RankRecord, calls: list[RecordedCall], at: int) -> float:
    """Return when a rank comes to an operation, in seconds, by a clock that all ranks have."""
    began = calls[at].began_us / 1e6
    if record.about.get("mode") != "fake":
        started = record.about.get("time", 0.0)
        return began + (float(started) if isinstance(started, int | float) else 0.0)
    return began - calls[at - 1].began_us / 1e6 if at else 0.0


def _timeout_s(
    records: Mapping[int, RankRecord], entered: Mapping[int, RecordedCall], early: int
) -> float | None:
    """Return the timeout that strikes, or on fake ranks the one that would."""
    record = records[early]
    if record.about.get("mode") == "fake":
        return record.timeout_s
    words = " ".join(filter(None, (entered[early].failed, record.error)))
    found = _TIMED_OUT.search(words)
    if found is not None:
        return int(found[1]) / 1000
    return record.timeout_s if "imed out" in words or "imeout" in words else None


def _late_finding(
    entered: Mapping[int, RecordedCall],
    early: int,
    late: int,
    after_s: float,
    timeout_s: float,
    folder: str,
) -> Finding:
    first, last = entered[early], entered[late]
    clauses = [
        Clause(f"rank {early} waits in {first.operation} ({first.place.short(folder)})"),
        Clause(
            f"rank {late} enters {last.operation} ({last.place.short(folder)}) {after_s:.1f} s "
            f"after rank {early}, whose timeout is {timeout_s:.4g} s"
        ),
    ]
    if first.failed:
        clauses.append(Clause(f"rank {early} raises {first.failed}"))
    fix = (
        "give the group a longer `timeout=` (of `init_process_group` or `new_group`), or do what "
        f"takes rank {late} so long on every rank, or before the ranks meet."
    )
    return Finding(
        witness="program",
        code="outcome_differs",
        prose=f"timeout_too_short: rank {late} comes too late, and rank {early} gives up before",
        notes=tuple(clauses),
        ranks=(early, late),
        name="outcome",
        fix=fix,
        help=(fix,),
    )
