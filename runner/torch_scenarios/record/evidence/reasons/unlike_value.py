"""Where values become unlike: the first line that sets on one rank what it does not on another.

What ranks decide otherwise, or pass otherwise, was set before, perhaps in another file::

    hidden = sizes.get(name, 16)     sets 24 on rank 0 and 16 on rank 1
    model = Net(hidden)
    dist.all_reduce(grad)            where ranks part

Ranks that have made the same calls have set the same values, as far as these are not of one rank:
its number, its device, its loss. So what the record's lines set is compared call by call. Of what
is unlike, that counts which leads to where the ranks part: by assignments, arguments, results, and
by the `if`s and loops around them, name by name.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, takewhile
from typing import TypeAlias

from msgspec import Struct

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, short
from torch_scenarios.record.evidence.notes.assignment import CHANGING, RETURNS
from torch_scenarios.record.evidence.notes.value_text import HOLDS
from torch_scenarios.record.evidence.reasons.branch import ASKS_RANK
from torch_scenarios.record.evidence.script import Script, list_targets, name_of, script_at
from torch_scenarios.record.format import BlockingCall, Decision, RecordedCall, SetValue
from torch_scenarios.verdict.finding import ranks_text

#: a variable: its file, its name, and the function or class that it is of
Variable: TypeAlias = tuple[str, tuple[str, ...]]
#: lines that are shown, ranks whose values are, and characters of a value
MOST_LINES, MOST_SHOWN, MOST_WORDS = 2, 3, 60
#: values of one variable from which on it is taken for data, where the first differ
MOST_ALIKE = 3
#: names of what differs by rank as it should
_OF_RANK = re.compile(rf"{ASKS_RANK.pattern}|is_(?:main|first|last|root|zero|log)|seed|\bdevice\b")


class UnlikeValue(Struct, frozen=True, kw_only=True):
    """What a line sets that is not the same on all ranks: its value on each, and that line."""

    #: the latest line that set it on one of these ranks, and when that was
    place: Decision
    before: int
    order: int
    values: Mapping[int, str]
    places: Mapping[int, Decision]

    @property
    def name(self) -> str:
        """The name, or path of attributes, that is set; of a result, that of its function."""
        name, scope = self.place.names
        return f"{scope.rpartition('.')[2]}()" if name == RETURNS else name


def tell_unlike(parted: DecidedParting, words: str) -> Clause | None:
    """Return where values become unlike that lead to where ranks part; None where none are.

    None too where `words`, which say why ranks part, name that line.
    """
    needed = _list_needed(parted)
    leading = [each for each in list_unlike(parted) if _last_name(each.name) in needed]
    if all(ASKS_RANK.search(each.place.text) for each in leading):
        return None  # what each rank has by its number is as it should be
    shown: list[UnlikeValue] = []
    for each in leading:
        if not any(each.values == other.values for other in shown):
            shown.append(each)
    if _is_in(shown[0], parted.folder, words):
        return None
    new = [each for each in shown[:MOST_LINES] if not _is_in(each, parted.folder, words)]
    lines = "; then ".join(_word(each, parted.folder) for each in new)
    return Clause(f"values differ before: {lines}")


def _word(found: UnlikeValue, folder: str) -> str:
    """Return a value on each rank, and the line that sets it, or the lines."""
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, value in sorted(found.values.items()):
        line = _show_line(found.places[rank], folder)
        alike.setdefault((value[:MOST_WORDS], line), []).append(rank)
    lines = {line for _, line in alike}
    verb = "is set on one rank alone, to" if len(found.values) == 1 else "is"
    values = ", ".join(
        f"{value} on {ranks_text(ranks)}" + (f" ({line})" if len(lines) > 1 else "")
        for (value, line), ranks in [*alike.items()][:MOST_SHOWN]
    )
    return f"`{found.name}` {verb} {values}" + (f" ({lines.pop()})" if len(lines) == 1 else "")


def _show_line(place: Decision, folder: str) -> str:
    source, at = script_at(place.file), short(((place.file, place.line, ""),), folder)
    is_there = source is not None and source.has(place.line)
    return f"`{source.text(place.line) if source is not None and is_there else place.text}`, {at}"


def _is_in(found: UnlikeValue, folder: str, words: str) -> bool:
    """Whether a report names a line already."""
    place = short(((found.place.file, found.place.line, ""),), folder)
    return re.search(rf"{re.escape(place)}(?!\d)", words) is not None


def list_unlike(parted: DecidedParting) -> list[UnlikeValue]:
    """Return the lines that set unlike values before ranks part, in the order in which they did."""
    records = [parted.records[rank] for rank in parted.ranks]
    rows = zip(*(map(_name_call, each.items) for each in records), strict=False)
    shared = sum(1 for _ in takewhile(lambda row: len({*row}) == 1, rows))
    found: list[UnlikeValue] = []
    for own in _gather(parted).values():
        first = _find_first(own, shared) if len(own) > 1 else _find_alone(own, shared)
        is_usual = first is not None and first.before >= shared and _is_progress(own)
        if first is not None and not is_usual and not _is_of_data(own):
            found.append(first)
    return sorted(found, key=lambda each: (each.before, each.order))


def _gather(parted: DecidedParting) -> dict[Variable, dict[int, list[SetValue]]]:
    """Return what each rank set before it came to where ranks part, by the variable."""
    found: dict[Variable, dict[int, list[SetValue]]] = {}
    for rank in parted.ranks:
        for each in parted.records[rank].values:
            if parted.is_within(rank, each.before, whole=True) and not _asks_rank(each.place):
                key = (each.place.file, each.place.names)
                found.setdefault(key, {}).setdefault(rank, []).append(each)
    return found


def _asks_rank(place: Decision) -> bool:
    """Whether what a line sets is named after the rank that it is on."""
    return _OF_RANK.search(place.names[0]) is not None


def _is_progress(own: Mapping[int, Sequence[SetValue]]) -> bool:
    """Whether ranks have only come further in the same values.

    A loop's target, a parameter and a counter say how far a rank is.
    """
    rows = {rank: [each.words for each in values] for rank, values in own.items()}
    longest = max(rows.values(), key=len)
    last = next(iter(own.values()))[-1].place
    if all(row == longest[: len(row)] for row in rows.values()):
        further = [*map(" ".join, longest[min(map(len, rows.values())) - 1 :])]
        counts = all(map(str.isdecimal, further))
        is_counter = counts and [*map(int, further)] == [
            int(further[0]) + at for at in range(len(further))
        ]
        return is_counter or last.text.startswith(("for ", "async for ", "def ", "async def "))
    return False


def _is_of_data(own: Mapping[int, Sequence[SetValue]]) -> bool:
    """Whether each rank goes through data of its own: the first differ, and others follow."""
    rows = [[each.words for each in values] for values in own.values()]
    is_own = len({row[0] for row in rows}) > 1 and all(len({*row}) >= MOST_ALIKE for row in rows)
    return is_own and not any(row[0][0].startswith("shape ") for row in rows)


def _name_call(item: object) -> str:
    if isinstance(item, BlockingCall):
        return item.what
    return item.operation if isinstance(item, RecordedCall) else type(item).__name__


def _find_first(own: Mapping[int, Sequence[SetValue]], shared: int) -> UnlikeValue | None:
    """Return where a variable first is unlike, after calls that all ranks have made."""
    held: dict[int, SetValue] = {}
    events = [(each.before, rank, each) for rank, values in own.items() for each in values]
    for before, changes in groupby(sorted(events, key=lambda each: each[0]), lambda each: each[0]):
        if before > shared:
            return None
        held |= {rank: each for _, rank, each in changes}
        values = _compare({rank: each.words for rank, each in held.items()})
        if values:
            at = max((held[rank] for rank in values), key=lambda each: (each.before, each.order))
            return UnlikeValue(
                place=at.place,
                before=at.before,
                order=at.order,
                values=values,
                places={rank: held[rank].place for rank in values},
            )
    return None


def _find_alone(own: Mapping[int, Sequence[SetValue]], shared: int) -> UnlikeValue | None:
    """Return what one rank alone sets, and others never do, where all have made the same calls.

    It outlives its function: an attribute of a module or an object, an item.
    """
    ((rank, values),) = own.items()
    at = values[0]
    root, _, inner = at.place.names[0].partition(".")
    if at.before >= shared or not (inner or "[" in root) or root in {"self", "cls"}:
        return None
    return UnlikeValue(
        place=at.place,
        before=at.before,
        order=at.order,
        values={rank: "; ".join(at.words)},
        places={rank: at.place},
    )


def _compare(words: Mapping[int, tuple[str, ...]]) -> Mapping[int, str]:
    """Return the values that are unlike, as they are shown; nothing where all are alike."""
    if len({*words.values()}) < 2:
        return {}
    whole = {rank: "; ".join(own).removeprefix(f"{HOLDS}; ") for rank, own in words.items()}
    if any(own[:1] != (HOLDS,) for own in words.values()):
        return whole if _differ(whole) else {}
    held = {
        rank: dict(each.partition(": ")[::2] for each in own[1:]) for rank, own in words.items()
    }
    for key in dict.fromkeys(key for each in held.values() for key in each):
        own = {rank: each.get(key, "") for rank, each in held.items()}
        if _differ(own):
            return {rank: f"{key}: {it}" if it else f"without {key}" for rank, it in own.items()}
    return {}


#: a list that a collective fills, a path, and a number of many digits, as a loss is
_UNFILLED = re.compile(r"\[(?:(?:None|''|0)(?:, )?)+\]|\d+ items? \(Tensor\)")
_PATH = re.compile(r"['\"]/")
_LOSS = re.compile(r"-?\d+\.\d{5,}|-?\d\.\d+e")


def _differ(values: Mapping[int, str]) -> bool:
    """Whether values differ, and not by the number of each rank alone: `cuda:1`, `part-1.bin`."""
    plain = {re.sub(rf"(?<![\d.]){rank}(?![\d.])", "R", value) for rank, value in values.items()}
    if len({*values.values()}) < 2 or len(plain) < 2 or any(map(_LOSS.match, plain)):
        return False
    return not any(map(_UNFILLED.fullmatch, plain)) and not all(map(_PATH.match, plain))


_NAME = re.compile(r"[A-Za-z_]\w*")


def _list_needed(parted: DecidedParting) -> Collection[str]:
    """Return the names that lead to where ranks part, through all lines that set one of them."""
    files = {each.place.file for rank in parted.ranks for each in parted.records[rank].values}
    flows = [_Flow(each) for each in map(script_at, sorted(files)) if each is not None]
    waiting: list[str] = []
    for _, frames in parted.sides:
        for file, line, _ in frames:
            source = script_at(file)
            if source is not None and source.has(line):
                waiting += _list_read_at(source, line)
    for decision in parted.tallies(whole=True):
        waiting += _NAME.findall(decision.text)
    found = {*waiting}
    while waiting:
        name = waiting.pop()
        callers = [each for flow in flows for each in flow.takers[name]]
        further = {each for flow in flows for each in flow.sets[name]}
        further |= {each for flow in flows for caller in callers for each in flow.calls[caller]}
        waiting += further - found
        found |= further
    return found


def _list_read_at(source: Script, line: int) -> list[str]:
    """Return the names in a statement, and in the heads of those around it."""
    first, last = source.span(line)
    texts = [source.frame(each)[2] for each in range(first, last + 1) if source.has(each)]
    texts += [source.text(node.lineno) for node, _ in source.find_statements(line)]
    return [name for text in texts for name in _NAME.findall(text)]


class _Flow:
    """By which names each name of a script is set, by name alone, whatever object has it."""

    def __init__(self, script: Script) -> None:
        #: names in the statements that set a name, or give the result of a function
        self.sets: defaultdict[str, set[str]] = defaultdict(set)
        #: names in the statements that call a function or a class
        self.calls: defaultdict[str, set[str]] = defaultdict(set)
        #: the functions and classes that take something by a name
        self.takers: defaultdict[str, set[str]] = defaultdict(set)
        self._follow(script.tree.body, "", frozenset())

    def _follow(self, body: Sequence[ast.stmt], function: str, around: frozenset[str]) -> None:
        for each in body:
            if isinstance(each, ast.ClassDef):
                self._follow(each.body, each.name, around)
                self.sets[each.name] |= {own.name for own in each.body if hasattr(own, "name")}
            elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                name = function if each.name == "__init__" else each.name
                for given in (*each.args.args, *each.args.kwonlyargs):
                    self.takers[given.arg].add(name)
                for wrapper in each.decorator_list:
                    self.sets[each.name] |= {*map(_text_of, ast.walk(wrapper))}
                self._follow(each.body, each.name, frozenset())
            else:
                self._add(each, function, around)

    def _add(self, node: ast.stmt, function: str, around: frozenset[str]) -> None:
        """Add a statement, under conditions and in loops that read what is `around`."""
        inner = [part for name in _BLOCKS for part in getattr(node, name, ())]
        blocks = {id(each) for each in inner}
        parts = [each for each in ast.iter_child_nodes(node) if id(each) not in blocks]
        head = [each for part in parts for each in ast.walk(part)]
        read = around.union(*(map(_NAME.findall, map(_text_of, head))))
        for each in (node, *head):
            for target in _list_set(each):
                self.sets[_last_name(ast.unparse(target))] |= read
            if isinstance(each, ast.Call):
                self.calls[name_of(each.func)] |= read
                for given in each.keywords:
                    self.sets[given.arg or ""] |= read
            if isinstance(each, ast.Yield) or (each is node and isinstance(each, ast.Return)):
                self.sets[function] |= read
        for each in inner:
            own = each.body if isinstance(each, ast.ExceptHandler | ast.match_case) else [each]
            self._follow(own, function, frozenset(read))


#: the parts of a statement that are statements
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def _text_of(node: ast.AST) -> str:
    """Return the name that a node is; of an attribute its own."""
    return getattr(node, "id", getattr(node, "attr", ""))


def _list_set(node: ast.AST) -> list[ast.expr]:
    """Return what a node sets or changes."""
    if isinstance(node, ast.Assign):
        return [*list_targets(node.targets)]
    if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.For):
        return [*list_targets([node.target])]
    if isinstance(node, ast.withitem) and node.optional_vars is not None:
        return [*list_targets([node.optional_vars])]
    if not isinstance(node, ast.Call):
        return []
    if name_of(node.func) == "setattr":
        return node.args[:1]
    if isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
        return [node.func.value]
    return []


def _last_name(path: str) -> str:
    """Return the last name of a path of attributes: `steps` of `self.config.steps`."""
    names = _NAME.findall(path.partition("[")[0])
    return names[-1] if names else ""
