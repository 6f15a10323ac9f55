"""Files and keys that ranks share: who changes what another one looks for, and what orders the two.

A file is there sooner or later than another rank looks, unless a collective lies between::

    rank 0   save(index)                 barrier
    rank 1                  exists(index)  barrier     <- found, or not: a matter of time

Calls order what lies before them on one rank and behind them on another. What else may order it,
such as a lock or a poll, is not known: so this is a reason for what is found, and never a finding.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import PurePath

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, short
from torch_scenarios.record.evidence.divergence import calls_by_group
from torch_scenarios.record.evidence.script import (
    Script,
    end_of,
    find_one_call,
    name_of,
    place_at,
    script_at,
)
from torch_scenarios.record.format import Decision, FileChange, RankRecord, RecordedCall
from torch_scenarios.record.program import MESSAGES
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: calls of a record by which two deeds are ordered; of a longer one nothing is said
MOST_CALLS = 20_000
#: what changes a file, and what asks for it
_CHANGES, _QUESTIONS = ("writes", "makes", "removes", "renames"), ("finds", "misses")
#: races that are shown of a run in which nothing is wrong
MOST_SHOWN = 3


class CallOrder:
    """What lies before what on other ranks, by the calls in which they meet."""

    def __init__(self, records: Mapping[int, RankRecord]) -> None:
        """Know where each rank comes to each operation of its groups."""
        at = {
            rank: {id(item): number for number, item in enumerate(record.items)}
            for rank, record in records.items()
        }
        self._joined: list[dict[int, int]] = []
        #: from an item of a rank -> the first item of each rank that is surely behind it
        self._reached: dict[tuple[int, int], dict[int, int]] = {}
        self.is_known = sum(len(each.items) for each in records.values()) <= MOST_CALLS
        if not self.is_known:
            return
        for _, _, calls in calls_by_group(records):
            for number in range(max(map(len, calls.values()))):
                entered = {rank: own[number] for rank, own in calls.items() if number < len(own)}
                self._joined.append({rank: at[rank][id(call)] for rank, call in entered.items()})
        self._joined += _match_messages(records, at)

    def is_before(self, first: tuple[int, int], second: tuple[int, int]) -> bool:
        """Whether a rank is at an item, with all before it, surely before another is at one."""
        if first not in self._reached:
            self._reached[first] = self.reach(first)
        return self._reached[first].get(second[0], second[1] + 1) <= second[1]

    def reach(self, first: tuple[int, int]) -> dict[int, int]:
        """Return the first item of each rank that is surely behind one: a look at all calls."""
        reached = dict([first])
        moves = True
        while moves:
            moves = False
            for joint in self._joined:
                if any(number >= reached.get(rank, number + 1) for rank, number in joint.items()):
                    for rank, number in joint.items():
                        if number + 1 < reached.get(rank, number + 2):
                            reached[rank], moves = number + 1, True
        return reached

    def is_open(self, one: tuple[int, FileChange], two: tuple[int, FileChange]) -> bool:
        """Whether no calls order two deeds of two ranks."""
        (first, a), (second, b) = one, two
        here, there = (first, a.before), (second, b.before)
        return self.is_known and not (self.is_before(here, there) or self.is_before(there, here))


def _match_messages(
    records: Mapping[int, RankRecord], at: Mapping[int, Mapping[int, int]]
) -> Iterator[dict[int, int]]:
    ways: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
    for rank, record in records.items():
        for call in record.calls:
            if call.operation in MESSAGES and call.peer is not None:
                is_sent = MESSAGES.get(call.operation) == "dst"
                one, two = (rank, call.peer) if is_sent else (call.peer, rank)
                sides = ways.setdefault((one, two, call.tag or 0), ([], []))
                sides[not is_sent].append(at[rank][id(call)])
    for (one, two, _), (sent, taken) in ways.items():
        yield from ({one: a, two: b} for a, b in zip(sent, taken, strict=False))


def _races(
    records: Mapping[int, RankRecord],
    kinds: Sequence[str],
    matters: Callable[[FileChange], bool] = lambda _: True,
) -> Iterator[tuple[int, FileChange, int, FileChange]]:
    """Yield what ranks do to files, with what other ranks change there and no call orders.

    `matters` says of a deed whether it is looked at: to order two takes a look at all calls.
    """
    changed = {
        each.path for record in records.values() for each in record.changes if each.what in _CHANGES
    }
    order = None
    for rank, record in sorted(records.items()):
        for asked in record.changes:
            if asked.what not in kinds or asked.path not in changed or not matters(asked):
                continue
            for other, theirs in sorted(records.items()):
                for change in theirs.changes if other != rank else ():
                    if change.what not in _CHANGES or change.path != asked.path:
                        continue
                    order = CallOrder(records) if order is None else order
                    if order.is_open((rank, asked), (other, change)):
                        yield rank, asked, other, change


def _fix_race(rank: int, other: int, change: FileChange, folder: str) -> str:
    where = change.place.short(folder)
    return (
        f"let all ranks meet (a barrier) between what rank {other} does there ({where}) and what "
        f"rank {rank} reads: nothing makes rank {rank} wait for it."
    )


def tell_race(parted: DecidedParting) -> list[Clause]:
    """Return that ranks that part have asked for a file which one of them changes meanwhile."""
    for rank, asked, other, change in _races(parted.records, _QUESTIONS):
        if rank in parted.ranks and parted.is_within(rank, asked.before, whole=False):
            return [Clause(f"{_tell(rank, asked, other, change, parted.folder)}")]
    return []


def _tell(rank: int, asked: FileChange, other: int, change: FileChange, folder: str) -> str:
    found = {"finds": "finds", "misses": "does not find", "reads": "reads"}[asked.what]
    name, where = PurePath(asked.path).name, asked.place.short(folder)
    return (
        f"rank {rank} {found} {name} ({where}), which rank {other} {change.what} "
        f"({change.place.short(folder)}): no collective lies between the two"
    )


def list_races(records: Mapping[int, RankRecord], folder: str) -> list[str]:
    """Return in words where another run may go another way, though nothing is wrong in this one.

    A rank asks whether a file is there, another one changes it, no call orders the two, and ranks
    communicate in one of the ways that the question decides.
    """
    if any(each.what == "awaits" for record in records.values() for each in record.changes):
        return []  # keys of the store order what calls do not
    decides = cache(partial(_decides_calls, records))
    found: dict[tuple[str, int], str] = {}

    def matters(asked: FileChange) -> bool:
        place = _line(asked)
        return place not in found and decides(*place)

    for rank, asked, other, change in _races(records, _QUESTIONS, matters):
        words = _tell(rank, asked, other, change, folder)
        found.setdefault(_line(asked), f"{words}, and another run may go another way")
        if len(found) == MOST_SHOWN:
            break
    return list(found.values())


def _line(asked: FileChange) -> tuple[str, int]:
    file, line, _ = asked.place.frames[0] if asked.place.frames else ("", 0, "")
    return file, line


def _decides_calls(records: Mapping[int, RankRecord], file: str, line: int) -> bool:
    """Whether ranks communicate in what an `if` in a line decides; a loop of polls has none."""
    source = script_at(file)
    node = source.condition(line) if source is not None else None
    if source is None or not isinstance(node, ast.If):
        return False
    if any(isinstance(each, ast.While) for each, _ in source.find_statements(line)):
        return False
    last = end_of(node)
    if source.jump_under(line) is not None:
        last = max(
            (getattr(n, "end_lineno", 0) or 0 for n in ast.walk(source.scope(line))), default=0
        )
    return any(
        path == file and node.lineno < at <= last
        for record in records.values()
        for call in record.items
        if isinstance(call, RecordedCall)
        for path, at, _ in call.place.frames
    )


#: what is said where ranks ask for one key under prefixes of their own
PREFIX_DIFFERS = "the prefix of the key differs"


def explain_key(
    records: Mapping[int, RankRecord],
    ranks: Iterable[int],
    folder: str,
    lines: Collection[tuple[str, int]] = (),
) -> list[str]:
    """Return that ranks wait for keys of the store that no rank sets, and what helps.

    A rank waits for the last one that it asked for; with `lines`, its other threads wait there.
    """
    known = {
        each.path: f"`{each.path}` by rank {rank} ({each.place.short(folder)})"
        for rank, record in sorted(records.items())
        for each in record.changes
        if each.what == "sets"
    }
    found: dict[tuple[str, str, str], list[int]] = {}
    awaited: dict[str, FileChange] = {}
    for rank in ranks:
        record = records[rank]
        last = next((each for each in reversed(record.changes) if each.what == "awaits"), None)
        if lines:
            last = next(
                (
                    each
                    for each in record.changes
                    if each.what == "awaits"
                    and {(f, at) for f, at, _ in each.place.frames} & {*lines}
                ),
                None,
            )
        is_last = last is not None and (bool(lines) or last.before == len(record.items))
        if last is not None and is_last and last.path not in known:
            file = last.place.frames[0][0] if last.place.frames else ""
            found.setdefault((last.path, last.place.short(folder), file), []).append(rank)
            awaited[last.path] = last
    shown = []
    for (key, where, file), who in found.items():
        verb = "waits" if len(who) == 1 else "wait"
        words = (
            f"{ranks_text(who)} {verb} for the key `{key}` of the store ({where}), which no rank"
        )
        words += f" sets; set are {', '.join([*known.values()][:MOST_SHOWN])}" if known else " sets"
        fix = f"let a rank set `{key}`, or ask for a key that is set ({where})."
        alike = next((each for each in known if _is_written_alike(each, key)), None)
        setting = next(
            (
                change.place.short(folder)
                for record in records.values()
                for change in record.changes
                if change.what == "sets" and change.path == alike
            ),
            "",
        )
        if alike is not None and setting:
            fix = (
                f"{FORM_DIFFERS}, where it is set ({setting}) and where it is asked for ({where}): "
                "by one function that both call."
            )
        elif (numbered := _tell_numbers(awaited[key], records, folder)) is not None:
            words, fix = f"{words}; {numbered[0]}", numbered[1]
        elif any(
            each.rpartition("/")[2] == key.rpartition("/")[2] for each in known
        ) and not _has_shared_prefix(key, who, records):
            words += _tell_prefix(file, folder)
            fix = f"{PREFIX_DIFFERS}: let one rank choose it, and broadcast it before the stores "
            fix += "are made (`PrefixStore`)."
        shown += [words, f"fix: {fix}"]
    return shown


#: what is said where a key has one number where it is set, and another one where it is asked for
NUMBER_DIFFERS = "number the key alike"


def _tell_numbers(
    awaited: FileChange, records: Mapping[int, RankRecord], folder: str
) -> tuple[str, str] | None:
    """Return by what a key is numbered that a rank asks for, and by what others set it; or None."""
    asked = _find_number(awaited, folder)
    for record in records.values():
        for each in record.changes if asked is not None else ():
            is_alike = _DIGITS.sub("0", each.path) == _DIGITS.sub("0", awaited.path)
            given = _find_number(each, folder) if each.what == "sets" and is_alike else None
            if given is not None and asked is not None and asked[0] != given[0]:
                words = f"it is asked for by `{asked[0]}` ({asked[1]}), "
                words += f"and set by `{given[0]}` ({given[1]})"
                fix = f"{NUMBER_DIFFERS}, where it is set and where it is asked for: by "
                fix += f"`{given[0]}` or `{asked[0]}` in both."
                return words, fix
    return None


_DIGITS = re.compile(r"\d+")


def _find_number(change: FileChange, folder: str) -> tuple[str, str] | None:
    """Return the name or attribute that a key is made of at last, and its place; or None.

    It is that which is passed to the function that asks for the key, or sets it, from outside.
    """
    for file, line, _ in change.place.frames:
        source = script_at(file)
        calls = source.calls(line) if source is not None else []
        value: ast.expr | None = next((each.args[0] for each in calls if each.args), None)
        value = _find_last_part(source, value, line) if source is not None else None
        if source is None or not isinstance(value, ast.Name | ast.Attribute):
            return None
        scope = source.scope(line)
        given = [each.arg for each in scope.args.args] if isinstance(scope, ast.FunctionDef) else []
        if not isinstance(value, ast.Name) or value.id not in given:
            return ast.unparse(value), source.place(line, folder)
    return None


def _find_last_part(source: Script, value: ast.expr | None, line: int) -> ast.expr | None:
    """Return what a key is made of at last: of a call what it is given, of a name what sets it."""
    known: set[int] = set()
    while value is not None and id(value) not in known:
        known.add(id(value))
        parts: list[ast.expr] = []
        if isinstance(value, ast.Call):
            parts = value.args
        elif isinstance(value, ast.List):
            parts = value.elts
        elif isinstance(value, ast.JoinedStr):
            shown = value.values[::-1]
            parts = [each.value for each in shown if isinstance(each, ast.FormattedValue)]
        elif isinstance(value, ast.Name):
            at = source.assignment(value, line)
            parts = source.values(at)[:1] if at else []
            if any(isinstance(each, ast.ListComp) for each in parts):
                return None  # keys of several numbers
            parts = [each for each in parts if isinstance(each, ast.Call | ast.JoinedStr)]
            if not parts:
                return value
        else:
            return value
        value = parts[0] if parts else None
    return value


#: what is said where a rank asks for a key, and another has set it in another form
FORM_DIFFERS = "write the key in one form"


def _is_written_alike(one: str, other: str) -> bool:
    """Whether two keys have the same letters and numbers, with other marks, cases or zeros."""
    forms = [
        [str(int(part)) if part.isdigit() else part for part in re.findall(r"[a-z]+|\d+", each)]
        for each in (one.lower(), other.lower())
    ]
    return one != other and forms[0] == forms[1] and bool(forms[0])


def _has_shared_prefix(key: str, ranks: Collection[int], records: Mapping[int, RankRecord]) -> bool:
    """Whether one of some ranks, which wait for a key, finds keys of others under its prefix."""
    return any(
        each.what == "sets" and each.path.rpartition("/")[0] == key.rpartition("/")[0]
        for other, record in records.items()
        if {*ranks} - {other}
        for each in record.changes
    )


def _tell_prefix(file: str, folder: str) -> str:
    """Return the one line of a script that puts a prefix before keys of a store; or nothing."""
    text, line = find_one_call(file, "PrefixStore")
    return f"; the prefix comes from `{text}` ({place_at(file, line, folder)})" * bool(line)


def _explain_late_key(records: Mapping[int, RankRecord], rank: int, folder: str) -> list[str]:
    """Return that another rank sets the key for which one has waited, after its timeout."""
    record = records[rank]
    last = next((each for each in reversed(record.changes) if each.what == "awaits"), None)
    for other, each in _changes(records, rank, "sets"):
        if last is not None and each.path == last.path and last.before == len(record.items):
            at, there = short(last.place.frames, folder), short(each.place.frames, folder)
            words = f"rank {other} sets the key `{last.path}` ({there}) too late"
            fix = (
                f"give the wait at {at} a timeout longer than what rank {other} does before "
                f"{there}, or do that before the ranks meet."
            )
            return [words, f"fix: {fix}"]
    return []


#: errors of a store whose key does not come in time
_NO_KEY = re.compile(r"DistStoreError|[Ww]ait timeout|Socket Timeout")


#: errors about a file, what another rank did to it, and what mends it
_MISSING = re.compile(r"FileNotFoundError|No such file|does not exist|not a (?:valid )?directory")
_THERE = re.compile(r"FileExistsError|File exists|Directory not empty")
#: a path in the words of an error
_PATH = re.compile(r"['\"]([^'\"]*/[^'\"]*)['\"]|(?<![\w/])(/[^\s'\":,]+)")


def explain_file(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Finding:
    """Return a finding that a rank raised; where it is about a file, with who changes that."""
    rank = finding.ranks[0] if finding.ranks else None
    record = records.get(rank) if rank is not None else None
    error = record.error or "" if record is not None else ""
    if rank is not None and record is not None and _NO_KEY.search(error):
        key = explain_key(records, finding.ranks, folder) or _explain_late_key(
            records, rank, folder
        )
        return _add(finding, key[0], key[1].removeprefix("fix: ")) if key else finding
    is_missing = _MISSING.search(error) is not None
    if rank is None or record is None:
        return finding
    if not (is_missing or _THERE.search(error)):
        return _explain_half(finding, rank, record, records, folder)
    wanted = ("removes", "renames", "writes", "makes") if is_missing else ("makes", "writes")
    paths = [first or second for first, second in _PATH.findall(error)]
    order = CallOrder(records)
    for what in wanted:
        for other, each in _changes(records, rank, what):
            if _is_made_late(each, other, records[other], order, (rank, len(record.items))):
                continue
            if any(_is_of(each.path, path, is_whole=what != "removes") for path in paths):
                where = each.place.short(folder)
                clause = Clause(f"rank {other} {what} it ({where})")
                fix = _fix(what, rank, other, where, is_missing=is_missing)
                return replace(finding, notes=(clause,), fix=fix, help=(fix,))
    maker = _find_maker(record, records, paths) if is_missing else None
    if maker is None:
        return finding
    other, decision = maker
    source, place = script_at(decision.file), place_at(decision.file, decision.line, folder)
    text = source.text(decision.line) if source is not None else decision.text
    raised = short(record.raised_at.frames, folder)
    alone = f"rank {other} alone goes into `{text}` ({place}), and may still make it there"
    unknown = f"rank {other} may still make it under `{text}` ({place}), before its next call"
    is_known = any(each.decision == decision for each in records[other].ways)
    clause = Clause(alone if is_known else unknown)
    fix = (
        f"let all ranks meet (a barrier) between what rank {other} does under `{text}` ({place}) "
        f"and {raised}: nothing makes rank {rank} wait for it."
    )
    return replace(finding, notes=(clause,), fix=fix, help=(fix,))


def _is_made_late(
    change: FileChange, other: int, record: RankRecord, order: CallOrder, raised: tuple[int, int]
) -> bool:
    """Whether a rank removes a file that it made after another one looked for it, as it may be."""
    if change.what not in {"removes", "renames"} or not order.is_known:
        return False
    own = [each for each in record.changes if each.path == change.path]
    made = [each for each in own[: own.index(change)] if each.what in {"writes", "makes"}]
    return any(not order.is_before((other, each.before), raised) for each in made)


#: names of functions that make files
_MAKES = re.compile(
    r"write|save|dump|download|make|mkdir|prepare|extract|build|process|create|copy"
)


def _find_maker(
    record: RankRecord, records: Mapping[int, RankRecord], paths: Collection[str]
) -> tuple[int, Decision] | None:
    """Return the rank that alone is under an `if` which may make a file that another one misses.

    That is before the line that raises, in a function that leads there, and no call of the rank
    that raises lies between. What a rank that was ended has decided since its last call is not
    known: it may be there where the `if` asks for the rank.
    """
    names = {PurePath(each).name for each in paths}
    for way in reversed(record.ways):
        decision, source = way.decision, script_at(way.decision.file)
        node = source.condition(decision.line) if source is not None else None
        if way.before < len(record.items) or way.yes or source is None:
            continue
        if decision.kind != "if" or not isinstance(node, ast.If):
            continue
        is_on_the_way = any(
            file == decision.file
            and end_of(node) < line
            and source.scope(line) is source.scope(decision.line)
            for file, line, _ in record.raised_at.frames
        )
        asks = source.names_rank(decision.line)
        other = next(
            (
                rank
                for rank, each in sorted(records.items())
                for known in [[own for own in each.ways if own.decision == decision]]
                if any(own.yes for own in known) or (asks and not known and each.error is None)
            ),
            None,
        )
        if is_on_the_way and other is not None and _makes_files(source, node, names):
            return other, decision
    return None


def _makes_files(source: Script, node: ast.If, names: Collection[str]) -> bool:
    """Whether what is under an `if` makes files by its names, or names one of these."""
    calls = [e for part in node.body for e in ast.walk(part) if isinstance(e, ast.Call)]
    functions = [each for call in calls for _, each in source.functions(name_of(call.func))]
    parts = [each for part in (*node.body, *functions) for each in ast.walk(part)]
    return any(isinstance(each, ast.Constant) and each.value in names for each in parts) or any(
        isinstance(each, ast.Call) and _MAKES.search(name_of(each.func)) is not None
        for each in parts
    )


def _explain_half(
    finding: Finding,
    rank: int,
    record: RankRecord,
    records: Mapping[int, RankRecord],
    folder: str,
) -> Finding:
    """Return a finding that a rank raised where it reads a file that another one writes."""
    lines = {(file, line) for file, line, _ in record.raised_at.frames}
    scopes = [
        (file, source.scope(line))
        for file, line in lines
        if (source := script_at(file)) is not None
    ]
    for reader, read, other, change in _races(records, ("reads",)):
        file, line, _ = read.place.frames[0] if read.place.frames else ("", 0, "")
        source = script_at(file)
        near = source is not None and (file, source.scope(line)) in scopes
        if reader == rank and near and read.before == len(record.items):
            words = _tell(rank, read, other, change, folder)
            return _add(finding, words, _fix_race(rank, other, change, folder))
    return finding


def _add(finding: Finding, words: str, fix: str) -> Finding:
    return replace(finding, notes=(Clause(words), *finding.notes), fix=fix, help=(fix,))


def _changes(
    records: Mapping[int, RankRecord], rank: int, what: str
) -> list[tuple[int, FileChange]]:
    """Return what other ranks did to files, the latest first."""
    return [
        (other, each)
        for other, record in sorted(records.items())
        if other != rank
        for each in record.changes[::-1]
        if each.what == what
    ]


def _is_of(changed: str, path: str, *, is_whole: bool) -> bool:
    """Whether a change is of a path, or removes a folder that it is in."""
    own, other = PurePath(changed), PurePath(path)
    return own == other or (not is_whole and other.is_relative_to(own))


def _fix(what: str, rank: int, other: int, where: str, *, is_missing: bool) -> str:
    if not is_missing:
        return (
            f"two ranks make it: pass `exist_ok=True`, or let one rank make it ({where}) and the "
            "others wait at a barrier behind that."
        )
    if what in {"removes", "renames"}:
        return (
            f"let all ranks meet (a barrier) before rank {other} {what} it ({where}): nothing "
            f"makes it wait until rank {rank} has done with it."
        )
    return (
        f"let all ranks meet (a barrier) between what rank {other} does there ({where}) and what "
        f"rank {rank} reads: nothing makes rank {rank} wait for it."
    )
