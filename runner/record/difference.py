"""Two programs compared: which rank's communication differs, and where, with the lines of both.

A side is a record, torch's dumps or a scenario. Each rank's calls are held against its calls on
the other side in program order; nothing is matched between ranks, so that a program that hangs can
be compared too. What a rank would only know from what it receives is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from runner.errors import Problem, ScenarioError
from runner.expressions.functions import numpy_arrays
from runner.language.document import load, load_content
from runner.limits import DEFAULT
from runner.model.groups import plan
from runner.model.process import Call, Process
from runner.model.scenario import Scenario
from runner.operations.base import Compound, GroupCreation, Local, Waiting
from runner.record.flight_recorder import read_dumps
from runner.record.format import (
    Blocking,
    RankRecord,
    RecordedCall,
    RecordedWait,
    Tensor,
    is_record,
    read,
)
from runner.record.program import MESSAGES, program_of
from runner.vocabulary import WORLD

#: calls of one rank that are aligned exactly; of longer ones the first difference is reported
EXACT = 3000
#: how the line of a rank that raises begins
RAISES = "raises "
#: differences of one rank that are reported
MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledLine:
    """One call of one rank: what it communicates, which is compared, and where it is."""

    what: str
    place: str = ""

    @property
    def told(self) -> str:
        """Return both."""
        return f"{self.what} ({self.place})" if self.place else self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedProgram:
    """One of the two: its ranks' calls, as far as they are known."""

    name: str
    world_size: int
    lines: Mapping[int, Sequence[CalledLine]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramDifference:
    """One difference, and the ranks that have it.

    `kind` is `added`, `removed`, `changed`, `moved`, `raised` where a rank now raises and makes no
    call after it, or `rank` where a side lacks the whole rank.
    `position` counts the rank's calls on the side of `a`, or of `b` where it is added, from 0.
    `before` is the call that a moved one now comes before; None at the end.
    """

    kind: str
    ranks: tuple[int, ...]
    position: int
    a: CalledLine | None = None
    b: CalledLine | None = None
    before: CalledLine | None = None
    #: calls that a rank which raises no longer makes
    missing: int = 0

    @property
    def words(self) -> str:
        """Return it in words."""
        match self.kind, self.a, self.b:
            case "moved", CalledLine() as one, CalledLine() as two:
                where = f"comes before {self.before.told}" if self.before else "comes last"
                return f"{one.told} is moved: now it {where}, at {two.place or two.what}"
            case "changed", CalledLine() as one, CalledLine() as two:
                return f"{one.told} is now {two.told}"
            case "removed", CalledLine() as one, _ if one.what.startswith(RAISES):
                return f"no longer {one.told}"
            case "removed", CalledLine() as one, _:
                return f"{one.told} is no longer called"
            case "added", _, CalledLine() as two:
                return f"{two.told} is new"
            case "raised", _, CalledLine() as two:
                calls = f"{self.missing} call{'s' * (self.missing > 1)}"
                return two.told + (f": it no longer makes {calls}" if self.missing else "")
        return "is in one of the two only"


def side_of(path: Path) -> ComparedProgram:
    """Return what a path holds: a folder of a record or of dumps, or a scenario.

    Raises ScenarioError where it is neither.
    """
    if path.suffix in {".yaml", ".yml"}:
        return _side_of_scenario(path, _only(load(path), path))
    records = read(path) if path.is_dir() and is_record(path) else read_dumps(path)
    world = max(each.world_size for each in records.values())
    lines = {rank: tuple(_recorded(each)) for rank, each in records.items()}
    return ComparedProgram(name=str(path), world_size=world, lines=lines)


def as_scenario(path: Path) -> ComparedProgram:
    """Return a record as the scenario that is written of it, to be compared with one."""
    if path.suffix in {".yaml", ".yml"}:
        return side_of(path)
    records = read(path) if path.is_dir() and is_record(path) else read_dumps(path)
    world = max(each.world_size for each in records.values())
    home = str(Path(str(next(iter(records.values())).about.get("cwd", ""))))
    text = program_of(records, folder=home).text
    limits = replace(DEFAULT, max_ranks=max(DEFAULT.max_ranks, world))
    found = load_content(path / "scenario.yaml", text.encode(), limits=limits)
    whole = _side_of_scenario(path, _only(found, path))
    return replace(whole, lines={rank: whole.lines[rank] for rank in records})


def sides_of(a: Path, b: Path) -> tuple[ComparedProgram, ComparedProgram]:
    """Return both sides, told in one way. Raises ScenarioError."""
    if {a.suffix, b.suffix} & {".yaml", ".yml"}:
        return as_scenario(a), as_scenario(b)
    return side_of(a), side_of(b)


def _only(scenarios: Sequence[Scenario], path: Path) -> Scenario:
    if len(scenarios) != 1:
        message = f"{path}: it has {len(scenarios)} cases; two programs are compared"
        raise ScenarioError([Problem(code="selection", message=message)])
    return scenarios[0]


# -------------------------------------------------------------------------------------------------
# The calls of a record.


def _recorded(record: RankRecord) -> Iterator[CalledLine]:
    home = str(record.about.get("cwd", ""))
    for item in record.items:
        place = item.place.short(home)
        if isinstance(item, RecordedCall):
            yield CalledLine(what=_called(item, record.world_size), place=place)
        elif isinstance(item, RecordedWait):
            yield CalledLine(what="wait", place=place)
        elif isinstance(item, Blocking) and item.ranks is not None:
            yield CalledLine(what=f"{item.what} {list(item.ranks)}", place=place)
    if record.ending == "raised" and record.error is not None:
        yield CalledLine(what=f"{RAISES}{record.error}", place=record.raised_at.short(home))


def _called(call: RecordedCall, world: int) -> str:
    told = [call.operation if call.completes else f"{call.operation} (async)"]
    for word, tensors in (("", call.inputs), ("-> ", call.outputs)):
        if tensors:
            told.append(word + _tensors(tensors))
    if call.op not in {None, "sum"}:
        told.append(f"op {call.op}")
    if call.root is not None:
        told.append(f"root {call.root}")
    if call.peer is not None:
        told.append(f"{'to' if MESSAGES.get(call.operation) == 'dst' else 'from'} {call.peer}")
    if call.tag:
        told.append(f"tag {call.tag}")
    if any(call.splits):
        told.append(f"splits {[list(each) for each in call.splits]}")
    if call.group != tuple(range(world)):
        told.append(f"on {list(call.group)}")
    return " ".join(told)


def _tensors(tensors: Sequence[Tensor]) -> str:
    alike = groupby(tensors, key=lambda each: f"{each.dtype}{list(each.shape)}")
    counted = ((sum(each.count for each in some), told) for told, some in alike)
    return ", ".join(f"{count} x {told}" if count > 1 else told for count, told in counted)


# -------------------------------------------------------------------------------------------------
# The calls of a scenario.


def _side_of_scenario(path: Path, scenario: Scenario) -> ComparedProgram:
    resolved = plan(scenario)
    lines = {}
    for rank in range(scenario.world_size):
        process = Process(resolved, rank, numpy_arrays())
        found = []
        for call in process.walk():
            if call.operation is None or isinstance(call.operation, Compound):
                continue  # the calls that a compound one is made of came before it
            if isinstance(call.operation, GroupCreation):
                made = call.operation.group(call.entry, scenario.timeout_s)
                if rank in made.ranks:
                    process.join(made)
            elif isinstance(call.operation, Local):
                if call.operation.ends(call.entry):
                    break
                if not call.operation.duration_s(call.entry):
                    call.operation.run(process, call.entry)
                continue
            process.keep(call)
            found.append(CalledLine(what=_taken(call), place=_place(call)))
        lines[rank] = tuple(found)
    return ComparedProgram(name=str(path), world_size=scenario.world_size, lines=lines)


def _taken(call: Call) -> str:
    assert call.operation is not None
    if isinstance(call.operation, Waiting):
        return call.operation.name  # what a file calls its work is its own
    told = [call.operation.name]
    for name, value in sorted(call.entry.arguments.items()):
        if name == "group" or (_plain(value) and value in _DEFAULTS):
            continue
        told.append(f"{name} {_value(value)}")
    if call.entry.group.name != WORLD:
        told.append(f"on {list(call.entry.group.ranks)}")
    return " ".join(told)


_DEFAULTS = (None, False, "sum", 0)


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | str)


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return str(value)


def _place(call: Call) -> str:
    mark = call.mark or call.step.mark
    return "" if mark is None else mark.short


# -------------------------------------------------------------------------------------------------
# The difference.


def differences(a: ComparedProgram, b: ComparedProgram) -> list[ProgramDifference]:
    """Return what differs; ranks that differ alike are reported together."""
    found: dict[tuple[Any, ...], list[int]] = {}
    firsts: dict[tuple[Any, ...], ProgramDifference] = {}
    for rank in range(max(a.world_size, b.world_size)):
        for each in _of_rank(rank, a.lines.get(rank), b.lines.get(rank)):
            # what comes after a call tells of it only where it moved
            before = each.before if each.kind == "moved" else None
            key = (each.kind, each.position, each.a, each.b, before)
            found.setdefault(key, []).append(rank)
            firsts.setdefault(key, each)
    return [replace(firsts[key], ranks=tuple(ranks)) for key, ranks in found.items()]


def _of_rank(
    rank: int, one: Sequence[CalledLine] | None, two: Sequence[CalledLine] | None
) -> Iterator[ProgramDifference]:
    if one is None or two is None:
        if (one is None) != (two is None):
            yield ProgramDifference(kind="rank", ranks=(rank,), position=0)
        return
    edits = list(_edits_until_raised(one, two))
    moved: dict[int, int] = {}
    came = [at for at, each in enumerate(edits) if each.kind == "added"]
    for at, old in enumerate(edits):
        if old.kind == "removed" and old.a is not None:
            same = (other for other in came if _what(edits[other]) == old.a.what)
            new = next(same, None)
            if new is not None:
                came.remove(new)
                moved[at] = new
    taken = set(moved.values())
    for at, each in enumerate(edits[:MOST]):
        if at in moved:
            put = edits[moved[at]]
            yield replace(each, kind="moved", ranks=(rank,), b=put.b, before=put.before)
        elif at not in taken:
            yield replace(each, ranks=(rank,))


def _edits_until_raised(
    one: Sequence[CalledLine], two: Sequence[CalledLine]
) -> Iterator[ProgramDifference]:
    """Yield the edits; where the rank now raises, that in place of the calls it no longer makes."""
    raised = two[-1] if two and two[-1].what.startswith(RAISES) else None
    if raised is None or (one and one[-1].what == raised.what):
        yield from _edits(one, two)
        return
    edits = list(_edits(one, two[:-1]))
    end = len(one)
    while edits and edits[-1].kind == "removed" and edits[-1].position == end - 1:
        edits.pop()
        end -= 1
    yield from edits
    missing = len(one) - end
    yield ProgramDifference(kind="raised", ranks=(), position=end, b=raised, missing=missing)


def _what(added: ProgramDifference) -> str:
    return "" if added.b is None else added.b.what


def _edits(one: Sequence[CalledLine], two: Sequence[CalledLine]) -> Iterator[ProgramDifference]:
    head = 0
    while head < min(len(one), len(two)) and one[head].what == two[head].what:
        head += 1
    if head == len(one) == len(two):
        return
    tail = 0
    while tail < min(len(one), len(two)) - head and one[-1 - tail].what == two[-1 - tail].what:
        tail += 1
    left, right = one[head : len(one) - tail], two[head : len(two) - tail]
    if max(len(left), len(right)) > EXACT:
        left, right = left[:1], right[:1]
    matcher = SequenceMatcher(
        None, [each.what for each in left], [each.what for each in right], autojunk=False
    )
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            continue
        pairs: Iterable[tuple[CalledLine | None, CalledLine | None]]
        if tag == "replace" and j - i == m - k and _alike(left[i:j], right[k:m]):
            pairs = list(zip(left[i:j], right[k:m], strict=True))
        else:
            pairs = [*((each, None) for each in left[i:j]), *((None, each) for each in right[k:m])]
        for at, (old, new) in enumerate(pairs):
            kind = "changed" if old and new else "removed" if old else "added"
            following = head + m if old else head + k + at - (j - i) * bool(len(pairs) > m - k) + 1
            after = two[following] if following < len(two) else None
            position = head + (i + at if old else k + at - (j - i))
            yield ProgramDifference(
                kind=kind, ranks=(), position=position, a=old, b=new, before=after
            )


def _alike(left: Sequence[CalledLine], right: Sequence[CalledLine]) -> bool:
    """Whether calls that differ are pairwise of one operation: then their arguments changed."""
    return all(
        one.what.split()[0] == two.what.split()[0] for one, two in zip(left, right, strict=True)
    ) or (len(left) == 1 and left[0].what != right[0].what)
