"""Two programs compared: which rank's communication differs, and where, with the lines of both.

A side is a record, torch's dumps or a scenario. Each rank's calls are held against its calls on
the other side in program order; nothing is matched between ranks, so that a program that hangs can
be compared too. What a rank would only know from what it receives is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.language import load
from torch_scenarios.language.document import load_content
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.model.process import Call, Process
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.operations.base import Compound, GroupCreation, Local, Waiting
from torch_scenarios.record.evidence.flight_recorder import read_dumps
from torch_scenarios.record.format import (
    BlockingCall,
    RankRecord,
    RecordedCall,
    RecordedWait,
    Tensor,
    is_record,
    read,
)
from torch_scenarios.record.program import MESSAGES, program_of
from torch_scenarios.vocabulary import WORLD

#: calls of one rank that are aligned exactly; of longer ones the first difference is reported
EXACT = 3000
#: how the line of a rank that raises begins
RAISES = "raises "
#: differences of one rank that are reported
MOST = 20


class CalledLine(Struct, frozen=True, kw_only=True):
    """One call of one rank: what it communicates, which is compared, and where it is.

    `parts` is the operation, then what it passes.
    """

    parts: tuple[str, ...]
    place: str = ""

    @property
    def what(self) -> str:
        """Return what is compared."""
        return " ".join(self.parts)

    @property
    def full(self) -> str:
        """Return both."""
        return f"{self.what} ({self.place})" if self.place else self.what

    @property
    def short(self) -> str:
        """Return the operation and its place."""
        return f"{self.parts[0]} ({self.place})" if self.place else self.parts[0]


class ComparedProgram(Struct, frozen=True, kw_only=True):
    """One of the two: its ranks' calls, as far as they are known, in the order of each rank."""

    name: str
    world_size: int
    lines: Mapping[int, Sequence[CalledLine]]


class ProgramDifference(Struct, frozen=True, kw_only=True):
    """One difference, and the ranks that have it.

    `kind` is `added`, `removed`, `changed`, `moved`, `repeated` where `calls`, which follow each
    other, come `times` more often (less often, where it is negative), `raised` where a rank now
    raises and makes no call after it, or `rank` where a side lacks the whole rank. `position`
    counts the rank's calls on the side of `a`, or of `b` where it is added, from 0. `before` is the
    call that a moved one now comes before; None at the end.
    """

    kind: str
    ranks: tuple[int, ...]
    position: int
    a: CalledLine | None = None
    b: CalledLine | None = None
    before: CalledLine | None = None
    #: calls that a rank which raises no longer makes
    missing: int = 0
    calls: tuple[CalledLine, ...] = ()
    times: int = 1

    @property
    def words(self) -> str:
        """Return it in words."""
        match self.kind, self.a, self.b:
            case "moved", CalledLine() as one, CalledLine() as two:
                where = f"before {self.before.short}" if self.before else "to the end"
                return f"{one.parts[0]}{_places(one, two)} moved {where}"
            case "changed", CalledLine() as one, CalledLine() as two:
                return _tell_change(one, two)
            case "repeated", _, _:
                turns = abs(self.times)
                often = "once" if turns == 1 else f"{turns} times"
                more = f"{often} {'more' if self.times > 0 else 'less'}"
                verb = "calls" if len(self.calls) == 1 else "repeats"
                return f"{verb} {_list_calls(self.calls)} {more}"
            case "removed", CalledLine() as one, _ if one.parts[0].startswith(RAISES):
                return f"no longer {one.full}"
            case "removed", CalledLine() as one, _:
                return f"no longer calls {one.full}"
            case "added", _, CalledLine() as two:
                return f"now calls {two.full}"
            case "raised", _, CalledLine() as two:
                calls = f"{self.missing} call{'s' * (self.missing > 1)}"
                return two.full + (f": it no longer makes {calls}" if self.missing else "")
        return "is in one of the two only"


def _places(one: CalledLine, two: CalledLine) -> str:
    """Return where a call was, and where it is now, where that is another line."""
    if one.place == two.place or not one.place or not two.place:
        place = one.place or two.place
        return f" ({place})" if place else ""
    return f" ({one.place}, now {two.place})"


def _tell_change(one: CalledLine, two: CalledLine) -> str:
    """Return what a call passes differently; of another operation both calls."""
    if one.parts[0] != two.parts[0]:
        return f"{one.full} is now {two.full}"
    mine, theirs = one.parts[1:], two.parts[1:]
    was = [each for each in (*mine, *_list_defaults(mine, theirs)) if each not in theirs]
    now = [each for each in (*theirs, *_list_defaults(theirs, mine)) if each not in mine]
    head = f"{one.parts[0]}{_places(one, two)}"
    if not was:
        return f"{head} is now {', '.join(now)}"
    if not now:
        return f"{head} is no longer {', '.join(was)}"
    return f"{head}: {', '.join(was)} is now {', '.join(now)}"


#: what a call passes where it does not say so
_DEFAULT_PARTS = {
    "on": "on all ranks",
    "op": "op sum",
    "tag": "tag 0",
    "src": "src 0",
    "dst": "dst 0",
}


def _list_defaults(parts: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the defaults of what only the other call says."""
    own, theirs = ([each.partition(" ")[0] for each in some] for some in (parts, others))
    return [_DEFAULT_PARTS[each] for each in theirs if each in _DEFAULT_PARTS and each not in own]


def _list_calls(calls: Sequence[CalledLine]) -> str:
    if len(calls) == 1:
        return calls[0].full
    to = "and" if len(calls) == 2 else "to"
    return f"{calls[0].short} {to} {calls[-1].short}, {len(calls)} calls,"


def difference_words(found: Sequence[ProgramDifference]) -> list[tuple[tuple[int, ...], str]]:
    """Return differences as lines: ranks, words. What is alike, or of one part, is one line."""
    lines: dict[str, Counter[int]] = {}
    at = 0
    while at < len(found):
        first, until = found[at], at + 1
        if first.kind in {"added", "removed"} and not first.words.startswith("no longer raises"):
            while until < len(found) and _follows(found[until - 1], found[until]):
                until += 1
        words = first.words
        if until - at > 1:
            lined = [each.b or each.a for each in found[at:until]]
            calls = _list_calls([each for each in lined if each is not None]).rstrip(",")
            words = f"{'now' if first.kind == 'added' else 'no longer'} calls {calls}"
        lines.setdefault(words, Counter()).update(first.ranks)
        at = until
    together = []
    for words, ranks in lines.items():
        for count in dict.fromkeys(ranks.values()):
            chosen = tuple(rank for rank, times in ranks.items() if times == count)
            together.append((chosen, words if count == 1 else f"{words} ({count} times)"))
    return together


def _follows(one: ProgramDifference, two: ProgramDifference) -> bool:
    alike = (one.kind, one.ranks) == (two.kind, two.ranks)
    return alike and two.position == one.position + 1


def side_of(path: Path) -> ComparedProgram:
    """Return what a path holds: a folder of a record or of dumps, or a scenario.

    Raises ScenarioError where it is neither.
    """
    if path.suffix in {".yaml", ".yml"}:
        return _side_of_scenario(path, _read_only_case(load(path), path))
    records = read(path) if path.is_dir() and is_record(path) else read_dumps(path)
    world = max(each.world_size for each in records.values())
    lines = {rank: tuple(_list_recorded(each)) for rank, each in records.items()}
    return ComparedProgram(name=str(path), world_size=world, lines=lines)


def read_as_scenario(path: Path) -> ComparedProgram:
    """Return a record as the scenario that is written of it, to be compared with one."""
    if path.suffix in {".yaml", ".yml"}:
        return side_of(path)
    records = read(path) if path.is_dir() and is_record(path) else read_dumps(path)
    world = max(each.world_size for each in records.values())
    home = str(Path(str(next(iter(records.values())).about.get("cwd", ""))))
    text = program_of(records, folder=home).text
    limits = replace(DEFAULT, max_ranks=max(DEFAULT.max_ranks, world))
    found = load_content(path / "scenario.yaml", text.encode(), limits=limits)
    whole = _side_of_scenario(path, _read_only_case(found, path))
    return replace(whole, lines={rank: whole.lines[rank] for rank in records})


def sides_of(a: Path, b: Path) -> tuple[ComparedProgram, ComparedProgram]:
    """Return both sides, told in one way. Raises ScenarioError."""
    if {a.suffix, b.suffix} & {".yaml", ".yml"}:
        return read_as_scenario(a), read_as_scenario(b)
    return side_of(a), side_of(b)


def _read_only_case(scenarios: Sequence[Scenario], path: Path) -> Scenario:
    if len(scenarios) != 1:
        message = f"{path}: it has {len(scenarios)} cases; two programs are compared"
        raise ScenarioError([Problem(code="selection", message=message)])
    return scenarios[0]


# -------------------------------------------------------------------------------------------------
# The calls of a record.


def _list_recorded(record: RankRecord) -> Iterator[CalledLine]:
    home = str(record.about.get("cwd", ""))
    for item in record.items:
        place = item.place.short(home)
        if isinstance(item, RecordedCall):
            yield CalledLine(parts=_write_call(item, record.world_size), place=place)
        elif isinstance(item, RecordedWait):
            yield CalledLine(parts=("wait",), place=place)
        elif isinstance(item, BlockingCall) and item.ranks is not None:
            yield CalledLine(parts=(item.what, str(list(item.ranks))), place=place)
    if record.ending == "raised" and record.error is not None:
        yield CalledLine(parts=(f"{RAISES}{record.error}",), place=record.raised_at.short(home))


def _write_call(call: RecordedCall, world: int) -> tuple[str, ...]:
    parts = [call.operation]
    if not call.completes:
        parts.append("async")
    for word, tensors in (("", call.inputs), ("-> ", call.outputs)):
        if tensors:
            parts.append(word + _tensors(tensors))
    if call.op not in {None, "sum"}:
        parts.append(f"op {call.op}")
    if call.root is not None:
        parts.append(f"root {call.root}")
    if call.peer is not None:
        parts.append(f"{'to' if MESSAGES.get(call.operation) == 'dst' else 'from'} {call.peer}")
    if call.tag:
        parts.append(f"tag {call.tag}")
    if any(call.splits):
        parts.append(f"splits {[list(each) for each in call.splits]}")
    if call.group != tuple(range(world)):
        parts.append(f"on {list(call.group)}")
    return tuple(parts)


def _tensors(tensors: Sequence[Tensor]) -> str:
    """Return tensors in words: `3 x float32[64, 64], int64[1]`."""
    alike = groupby(tensors, key=lambda each: f"{each.dtype}{list(each.shape)}")
    counted = ((sum(each.count for each in some), kind) for kind, some in alike)
    return ", ".join(f"{count} x {kind}" if count > 1 else kind for count, kind in counted)


# -------------------------------------------------------------------------------------------------
# The calls of a scenario.


def _side_of_scenario(path: Path, scenario: Scenario) -> ComparedProgram:
    """Return the calls of a scenario, rank by rank, as :meth:`Process.walk` gives them.

    Nothing is received, so that a step whose `ranks` depends on a received tensor goes by its first
    value.
    """
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
            found.append(CalledLine(parts=_make_key(call), place=_place(call)))
        lines[rank] = tuple(found)
    return ComparedProgram(name=str(path), world_size=scenario.world_size, lines=lines)


def _make_key(call: Call) -> tuple[str, ...]:
    """Return what is compared of a call: the operation, its arguments, the ranks of its group.

    Names of tensors, handles and groups are each file's own, and are not.
    """
    assert call.operation is not None
    if isinstance(call.operation, Waiting):
        return (call.operation.name,)  # what a file calls its work is its own
    parts = [call.operation.name]
    for name, value in sorted(call.entry.arguments.items()):
        if name == "group" or (_is_plain(value) and value in _DEFAULTS):
            continue
        parts.append(f"{name} {_value(value)}")
    if call.entry.group.name != WORLD:
        parts.append(f"on {list(call.entry.group.ranks)}")
    return tuple(parts)


_DEFAULTS = (None, False, "sum", 0)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | str)


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):  # a message of a batch
        return " ".join(
            f"{key} {_value(each)}"
            for key, each in value.items()
            if not (_is_plain(each) and each in _DEFAULTS)
        )
    return str(value)


def _place(call: Call) -> str:
    mark = call.mark or call.step.mark
    return "" if mark is None else mark.short


# -------------------------------------------------------------------------------------------------
# The difference.


def differences(a: ComparedProgram, b: ComparedProgram) -> list[ProgramDifference]:
    """Return what differs; ranks that differ alike are reported together.

    >>> def program(calls):
    ...     lines = [CalledLine(parts=(call,)) for call in calls]
    ...     return ComparedProgram(name="", world_size=1, lines={0: lines})
    >>> difference_words(differences(program("abcd"), program("abd")))
    [((0,), 'no longer calls c')]
    >>> difference_words(differences(program("abcd"), program("ababcd")))
    [((0,), 'repeats a and b, 2 calls, once more')]
    >>> difference_words(differences(program("abcd"), program("bacd")))
    [((0,), 'b moved before a')]
    """
    found: dict[tuple[Any, ...], list[int]] = {}
    firsts: dict[tuple[Any, ...], ProgramDifference] = {}
    for rank in range(max(a.world_size, b.world_size)):
        for each in _compare_rank(rank, a.lines.get(rank), b.lines.get(rank)):
            # what comes after a call tells of it only where it moved
            before = each.before if each.kind == "moved" else None
            key = (each.kind, each.position, each.a, each.b, before, each.calls, each.times)
            found.setdefault(key, []).append(rank)
            firsts.setdefault(key, each)
    return [replace(firsts[key], ranks=tuple(ranks)) for key, ranks in found.items()]


def _compare_rank(
    rank: int, one: Sequence[CalledLine] | None, two: Sequence[CalledLine] | None
) -> Iterator[ProgramDifference]:
    """Yield what differs on one rank; a call that is removed here and added there has moved."""
    if one is None or two is None:
        if (one is None) != (two is None):
            yield ProgramDifference(kind="rank", ranks=(rank,), position=0)
        return
    edits = list(_edits_until_raised(one, two))
    moved: dict[int, int] = {}
    came = [at for at, each in enumerate(edits) if each.kind == "added"]
    for at, old in enumerate(edits):
        if old.kind == "removed" and old.a is not None:
            same = (other for other in came if _word_call(edits[other]) == old.a.what)
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


def _word_call(added: ProgramDifference) -> str:
    return "" if added.b is None else added.b.what


def _edits(one: Sequence[CalledLine], two: Sequence[CalledLine]) -> Iterator[ProgramDifference]:
    """Yield the calls that are added, removed or changed, in order.

    What both begin and end with is cut off first. What is left is aligned by difflib (Ratcliff and
    Obershelp's matching), which people find easier to read than a shortest edit.
    """
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
        shown = one if tag == "delete" else two
        part = (head + i, head + j) if tag == "delete" else (head + k, head + m)
        turn = _turn(shown, *part) if tag in {"insert", "delete"} else None
        if turn is not None:
            calls, times = turn
            yield ProgramDifference(
                kind="repeated",
                ranks=(),
                position=part[0],
                a=calls[0] if tag == "delete" else None,
                b=calls[0] if tag == "insert" else None,
                calls=calls,
                times=-times if tag == "delete" else times,
            )
            continue
        pairs: Iterable[tuple[CalledLine | None, CalledLine | None]]
        if tag == "replace" and j - i == m - k and _is_pairwise(left[i:j], right[k:m]):
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


def _turn(
    lines: Sequence[CalledLine], start: int, end: int
) -> tuple[tuple[CalledLine, ...], int] | None:
    """Return the turn of a loop that a part repeats, and how often; None where it is no turns.

    What is before the part, or after it, is one turn at least. A turn begins where the first one
    does::

        a b c a b c | a b c | d      lines, and what is in them only
    """
    size = end - start
    for period in range(1, size + 1):
        if size % period:
            continue
        whole = lines[start - period : end], lines[start : end + period]
        if not any(len(each) == size + period and _repeats(each, period) for each in whole):
            continue
        first = start
        while first and lines[first - 1] == lines[first - 1 + period]:
            first -= 1
        return tuple(lines[first : first + period]), size // period
    return None


def _repeats(lines: Sequence[CalledLine], period: int) -> bool:
    return all(one == two for one, two in zip(lines[:-period], lines[period:], strict=True))


def _is_pairwise(left: Sequence[CalledLine], right: Sequence[CalledLine]) -> bool:
    """Whether calls that differ are pairwise of one operation: then their arguments changed."""
    return all(one.parts[0] == two.parts[0] for one, two in zip(left, right, strict=True)) or (
        len(left) == 1 and left[0].what != right[0].what
    )
