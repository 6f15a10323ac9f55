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
from itertools import groupby
from typing import TypeAlias

from msgspec import Struct

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    ASKS_RANK,
    DecidedParting,
    Reason,
    count_turns,
    list_values,
)
from torch_scenarios.record.evidence.notes.assignment import CHANGING, RETURNS, SETTER
from torch_scenarios.record.evidence.notes.value_text import HOLDS
from torch_scenarios.record.evidence.script import (
    Script,
    list_targets,
    name_of,
    place_at,
    script_at,
)
from torch_scenarios.record.format import Decision, RecordedCall, SetValue
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
    #: whether other ranks never set it
    is_alone: bool = False

    @property
    def name(self) -> str:
        """The name, or path of attributes, that is set; of a result, that of its function."""
        name, scope = self.place.names
        return f"{scope.rpartition('.')[2]}()" if name == RETURNS else name


def find_unlike(parted: DecidedParting, words: str) -> Reason | None:
    """Return where values become unlike that lead to where ranks part; None where none are.

    None too where `words`, which say why ranks part, name that line.
    """
    apart = parted.tallies(whole=True)
    leading = _list_leading(parted, apart)
    if all(ASKS_RANK.search(each.place.text) for each in leading):
        return None  # what each rank has by its number is as it should be
    shown: list[UnlikeValue] = []
    for each in leading:
        if not any(each.values == other.values for other in shown):
            shown.append(each)
    shown.sort(key=lambda each: not _is_gone_through(each, words))
    under = _find_under(shown[0], apart)
    is_known = under is None or _is_named(under.file, under.line, parted.folder, words)
    if _is_in(shown[0], parted.folder, words) and is_known:
        return None
    lines = [_word(shown[0], parted.folder)]
    if under is not None and not is_known:
        lines[0] += f"; {count_turns(parted, under, apart[under])}"
        values = list_values(under, apart[under])
        lines[0] += f", where {values}" if values else ""
    lines += [
        _word(each, parted.folder)
        for each in shown[1:MOST_LINES]
        if not _is_object(each) and not _is_in(each, parted.folder, words)
    ]
    at = place_at(shown[0].place.file, shown[0].place.line, parted.folder)
    fix = (
        f"look first at `{shown[0].name}` ({at}), which is not the same on all ranks from there on"
    )
    return Clause(f"values differ before: {'; then '.join(lines)}"), fix


def is_read_otherwise(parted: DecidedParting) -> bool:
    """Whether what first differs and leads to where ranks part is set in one line, by all ranks.

    It is read there, from a file of each rank's own or its environment: no `if` of some ranks sets
    it, whatever one rank alone does for all before.
    """
    apart = parted.tallies(whole=True)
    for first in _list_leading(parted, apart)[:1]:
        places = {*first.places.values()}
        is_whole = {*first.places} == {*parted.ranks} and not first.is_alone
        return is_whole and len(places) == 1 and _find_under(first, apart) is None
    return False


def _list_leading(parted: DecidedParting, apart: Collection[Decision]) -> list[UnlikeValue]:
    """Return the unlike values that lead to where ranks part, in the order in which they did."""
    unlike = _leave_out_places(list_unlike(parted))
    if not unlike:
        return []
    needed, sides = _list_needed(parted, apart), _list_sides(parted)
    return [
        each
        for each in unlike
        if _last_name(each.name) in needed or SETTER.fullmatch(each.name)
        if not _is_of_main(each) and _divides(each, sides)
    ]


def _find_under(found: UnlikeValue, apart: Collection[Decision]) -> Decision | None:
    """Return the `if` under which some ranks alone have set a value; None for none."""
    decisions = {(each.file, each.line): each for each in apart}
    for at in found.places.values():
        source = script_at(at.file)
        for node, _ in source.find_statements(at.line) if source is not None else ():
            decision = decisions.get((at.file, node.lineno)) if isinstance(node, ast.If) else None
            if decision is not None:
                return decision
    return None


def _list_sides(parted: DecidedParting) -> list[set[int]]:
    """Return which ranks part from which: by their lines, or by what they pass in one line."""
    if len(parted.sides) > 1:
        return [{*ranks} for ranks, _ in parted.sides]
    found: dict[object, set[int]] = {}
    for rank, call in parted.parting.calls.items():
        if isinstance(call, RecordedCall):
            passed = [(each.dtype, each.shape) for each in call.inputs or call.outputs]
            found.setdefault((call.operation, tuple(passed)), set()).add(rank)
    return [*found.values()]


def _divides(found: UnlikeValue, sides: Sequence[set[int]]) -> bool:
    """Whether ranks of one value are on one side: else the value is not why they part."""
    alike: defaultdict[str, set[int]] = defaultdict(set)
    for rank, value in found.values.items():
        alike[value].add(rank)
    return all(sum(1 for side in sides if side & ranks) < 2 for ranks in alike.values())


def _leave_out_places(found: Sequence[UnlikeValue]) -> list[UnlikeValue]:
    """Return values without those that say where a rank is: its stage, its number in a group.

    They are whole numbers and flags, computed from the rank's number or from one of them alone.
    """
    of_rank: set[str] = set()
    names = {_last_name(each.name) for each in found}
    others = []
    for each in found:
        read = {*_NAME.findall(each.place.text)} & (names - {_last_name(each.name)})
        is_place = all(re.fullmatch(r"\d+|True|False", it) for it in each.values.values())
        if is_place and (ASKS_RANK.search(each.place.text) or (read and read <= of_rank)):
            of_rank.add(_last_name(each.name))
        else:
            others.append(each)
    return others


#: a loop as a reason names it
_LOOP = re.compile(r"the loop `for [^`]+ in ([^`]+)`")


def _is_gone_through(found: UnlikeValue, words: str) -> bool:
    """Whether a value is what a loop goes through that has more turns, and has a key more.

    That key says more than the rows of which it was made.
    """
    has_more = any(each.startswith("without ") for each in found.values.values())
    pattern = rf"(?<![\w.]){re.escape(found.name)}(?!\w)"
    return has_more and any(re.search(pattern, text) for text in _LOOP.findall(words))


def _is_of_main(found: UnlikeValue) -> bool:
    """Whether one rank alone has an object, or a flag, by the line that says so."""
    is_flag = {*found.values.values()} == {"True", "False"}
    is_usual = is_flag or _is_object(found)
    return is_usual and ASKS_RANK.search(found.place.text) is not None


def _is_object(found: UnlikeValue) -> bool:
    """Whether some ranks have an object that others do not have."""
    values = {*found.values.values()}
    return "None" in values and any(each.startswith("a ") for each in values)


def _word(found: UnlikeValue, folder: str) -> str:
    """Return a value on each rank, and the line that sets it, or the lines."""
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, value in sorted(found.values.items()):
        line = _show_line(found.places[rank], folder)
        alike.setdefault((value[:MOST_WORDS], line), []).append(rank)
    lines = {line for _, line in alike}
    verb = "is set on some ranks alone, to" if found.is_alone else "is"
    values = ", ".join(
        f"{value} on {ranks_text(ranks)}" + (f" ({line})" if len(lines) > 1 else "")
        for (value, line), ranks in [*alike.items()][:MOST_SHOWN]
    )
    return f"`{found.name}` {verb} {values}" + (f" ({lines.pop()})" if len(lines) == 1 else "")


def _show_line(place: Decision, folder: str) -> str:
    source, at = script_at(place.file), place_at(place.file, place.line, folder)
    is_there = source is not None and source.has(place.line)
    return f"`{source.text(place.line) if source is not None and is_there else place.text}`, {at}"


def _is_in(found: UnlikeValue, folder: str, words: str) -> bool:
    """Whether a report names the line of a value already."""
    return _is_named(found.place.file, found.place.line, folder, words)


def _is_named(file: str, line: int, folder: str, words: str) -> bool:
    place = place_at(file, line, folder)
    return re.search(rf"{re.escape(place)}(?!\d)", words) is not None


def list_unlike(parted: DecidedParting) -> list[UnlikeValue]:
    """Return the lines that set unlike values before ranks part, in the order in which they did."""
    shared = parted.shared
    found: list[UnlikeValue] = []
    for own in _gather(parted).values():
        first = _find_first(own, shared)
        if first is None and len(own) < len(parted.ranks):
            first = _find_alone(own, shared)
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
    if last.text.startswith(("for ", "async for ")):
        return True  # what it goes through is a value too
    if all(row == longest[: len(row)] for row in rows.values()):
        further = [*map(" ".join, longest[min(map(len, rows.values())) - 1 :])]
        counts = all(map(str.isdecimal, further))
        is_counter = counts and [*map(int, further)] == [
            int(further[0]) + at for at in range(len(further))
        ]
        is_series = len(longest) >= MOST_ALIKE or last.text.startswith(("def ", "async def "))
        return is_counter or is_series
    return False


def _is_of_data(own: Mapping[int, Sequence[SetValue]]) -> bool:
    """Whether each rank goes through its own data: the first values differ, and others follow.

    Which row a dataset is asked for is of each rank by the sampler.
    """
    if all(each.place.text.startswith("def __getitem__(") for row in own.values() for each in row):
        return True
    rows = [[each.words for each in values] for values in own.values()]
    is_own = len({row[0] for row in rows}) > 1 and all(len({*row}) >= MOST_ALIKE for row in rows)
    return is_own and not any(row[0][0].startswith("shape ") for row in rows)


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
    """Return what some ranks set, and others never do, where all have made the same calls.

    It outlives its function: an attribute of a module or an object, an item.
    """
    at = min((values[0] for values in own.values()), key=lambda each: (each.before, each.order))
    root, _, inner = at.place.names[0].partition(".")
    if at.before >= shared or not (inner or "[" in root) or root in {"self", "cls"}:
        return None
    return UnlikeValue(
        place=at.place,
        before=at.before,
        order=at.order,
        values={rank: "; ".join(values[0].words) for rank, values in own.items()},
        places={rank: values[0].place for rank, values in own.items()},
        is_alone=True,
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
    if len(values) >= MOST_ALIKE and all(map(str.isdecimal, values.values())):
        steps = {int(value) - rank for rank, value in values.items()}
        if len(steps) == 1:
            return False  # each rank's own item of a series
    return not any(map(_UNFILLED.fullmatch, plain)) and not all(map(_PATH.match, plain))


_NAME = re.compile(r"[A-Za-z_]\w*")


def _list_needed(parted: DecidedParting, apart: Collection[Decision]) -> Collection[str]:
    """Return the names that lead to where ranks part, through all lines that set one of them.

    `apart` are the decisions that ranks took otherwise.
    """
    files = {each.place.file for rank in parted.ranks for each in parted.records[rank].values}
    flows = [_Flow(each) for each in map(script_at, sorted(files)) if each is not None]
    waiting: list[str] = []
    for _, frames in parted.sides:
        for file, line, _ in frames:
            source = script_at(file)
            if source is not None and source.has(line):
                waiting += _list_read_at(source, line)
    for decision in apart:
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
