"""What leaves out items of a loop by their values, so that ranks have other numbers of turns.

Each rank reads as many rows, and a generator, a dataset or a line before the loop keeps some.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from torch_scenarios.record.evidence.choice import DecidedParting, Tally, count_turns
from torch_scenarios.record.evidence.reasons.origin import list_own_seeds
from torch_scenarios.record.evidence.reasons.value_source import HASHES_DIFFER, find_hash
from torch_scenarios.record.evidence.script import (
    Script,
    end_of,
    has_line,
    name_of,
    place_at,
    script_at,
)
from torch_scenarios.record.format import Decision

#: how it is said that a sampler of the script's own ends its batches by what is in them
BATCH_ENDS = "what a batch holds ends it"


def tell_left_out(
    parted: DecidedParting, at: tuple[str, int], counts: Mapping[int, int]
) -> tuple[str, str]:
    """Return what leaves out items of a loop by their values, and what mends it; or nothing.

    That is an `if` in what gives the items, by which a rank with fewer turns leaves out more of
    them, or ends its batches later, or a line with a filter. `counts` says how many turns each rank
    has.
    """
    source, loop = script_at(at[0]), place_at(*at, parted.folder)
    node = source.find_for(at[1]) if source is not None else None
    if source is None or node is None:
        return "", ""
    fix = (
        f"let all ranks take as many turns of the loop at {loop} as the one that has the fewest "
        "items left (an `all_reduce` with `op=min`): each of them leaves out others."
    )
    lines = [(source, at[1]), *source.traces(node.iter, at[1])]
    inside = [*_list_givers(source, node.iter, lines)]
    drawn = _tell_own_draws(inside, parted.folder)
    if drawn[0]:
        return drawn
    for decision, own in parted.tallies(whole=True).items():
        conditions = [
            script.condition(decision.line)
            for script, giver in inside
            if decision.file == script.file and has_line(giver, decision.line)
        ]
        if decision.kind != "if" or not any(_leaves_out_more(e, own, counts) for e in conditions):
            continue
        counted = count_turns(parted, decision, own)
        if any(map(_ends_batch, conditions)):
            words = f"{BATCH_ENDS}, so that each rank has its own number of batches: {counted}"
            return words, (
                f"let every rank cut the rows of all ranks into batches ({parted.place(decision)}) "
                "and take each n-th of these, as many as all have; or let them agree on the number "
                f"of turns of the loop at {loop} (an `all_reduce` with `op=min`)."
            )
        return f"items are left out by an `if`: {counted}", fix
    places = _list_unseen(parted, inside) or [
        (script, number)
        for script, first, last in (
            *((script, *script.span(line)) for script, line in lines[1:]),
            *((script, each.lineno, end_of(each)) for script, each in inside),
        )
        for number in _list_filters(script, first, last)
        if not script.names_rank(number)
    ]
    for script, number in places[:1]:
        place = script.place(number, parted.folder)
        words = f"items are left out by `{script.text(number)}` ({place})"
        for source, hashed in filter(None, [find_hash(script, number)]):
            place = source.place(hashed.lineno, parted.folder)
            words += f", which goes by `{ast.unparse(hashed)}` ({place}): {HASHES_DIFFER}"
        return words, fix
    return "", ""


def _list_unseen(
    parted: DecidedParting, inside: Sequence[tuple[Script, ast.FunctionDef]]
) -> list[tuple[Script, int]]:
    """Return each `if` by which a generator may leave out items, where no rank has come to it.

    A loader's worker runs it, in another process: what it decides is in no record.
    """
    seen = {(each.file, each.line) for each in parted.tallies(whole=True, alike=True)}
    return [
        (script, node.lineno)
        for script, giver in inside
        if not any(file == script.file and has_line(giver, at) for file, at in seen)
        for loop in ast.walk(giver)
        if isinstance(loop, ast.For)
        for node in ast.walk(loop)
        if (isinstance(node, ast.ExceptHandler) and _drops_item(loop, node))
        or (
            isinstance(node, ast.If)
            and _reads_item(loop, node)
            and _count_left(node, {}) is not None
            and not script.names_rank(node.lineno)
        )
    ]


def _drops_item(loop: ast.For, handler: ast.ExceptHandler) -> bool:
    """Whether a handler in a loop goes on to the next item, where the loop gives what was read.

    It raises nothing, gives nothing in its place, and leaves no loop.
    """
    ends = (ast.Raise, ast.Return, ast.Break, ast.Yield)
    inner = [each for part in handler.body for each in ast.walk(part)]
    if any(isinstance(each, ends) or _appends(each) for each in inner):
        return False
    return any(isinstance(each, ast.Yield) or _appends(each) for each in ast.walk(loop))


def _appends(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) == "append"


#: calls that draw an order from a generator which all of a process share
_SHARED = re.compile(
    r"\b(?:(?:np\.|numpy\.)?random\.(?:shuffle|permutation|permuted|sample|choices?)"
    r"|torch\.randperm)\("
)


def _tell_own_draws(
    inside: Sequence[tuple[Script, ast.FunctionDef]], folder: str
) -> tuple[str, str]:
    """Return that what gives a loop its items draws, and is seeded by the rank, and deals by rank.

    Each rank then takes its part of another order, and packs other batches.
    """
    for script, giver in inside:
        drawn = [
            node.lineno
            for node in ast.walk(giver)
            if isinstance(node, ast.Call)
            and _SHARED.match(f"{ast.unparse(node.func)}(")
            and not any(each.arg == "generator" for each in node.keywords)
        ]
        deals = any(
            isinstance(node, ast.Slice) and node.step is not None for node in ast.walk(giver)
        )
        if not drawn or not deals:
            continue
        for where, at in list_own_seeds([each for each, _ in inside])[:1]:
            seed, place = where.quote(at, folder), script.place(drawn[0], folder)
            words = f"its items are drawn at random by `{script.text(drawn[0])}` ({place}), and "
            words += f"{seed} seeds each rank differently: each deals from its own order"
            return words, (
                f"draw the same on all ranks at {place}, from a separate generator that is "
                "seeded alike on all of them (`random.Random(seed + epoch)`)."
            )
    return "", ""


def _reads_item(loop: ast.For, condition: ast.If) -> bool:
    """Whether a condition reads what a loop goes through, or what the loop makes of it before."""
    names = list_made(loop, condition.lineno)
    return any(each.id in names for each in ast.walk(condition.test) if isinstance(each, ast.Name))


def list_made(loop: ast.For, line: int) -> set[str]:
    """Return the loop's variables, and the names that are made of them in the loop before a line.

    buffer = torch.empty_like(weight)
    """
    names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    for each in ast.walk(loop):
        if isinstance(each, ast.Assign | ast.For) and each.lineno < line:
            value = each.value if isinstance(each, ast.Assign) else each.iter
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            read = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
            made = {node.id for part in targets for node in ast.walk(part) if _is_name(node)}
            names |= made if read & names else set()
    return names


def _is_name(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def find_skipped(
    parted: DecidedParting, ranks: Sequence[int], source: Script, loop: ast.For
) -> Decision | None:
    """Return the `if` by which what gives a loop its items has left out some on these ranks.

    None where the others have come to it too: then it is not what one side does alone.
    """
    lines = [(source, loop.lineno), *source.traces(loop.iter, loop.lineno)]
    inside = [*_list_givers(source, loop.iter, lines)]
    for decision, own in parted.tallies(whole=True).items():
        if any(own[rank].yes or own[rank].no for rank in parted.ranks if rank not in ranks):
            continue
        conditions = [
            script.condition(decision.line)
            for script, giver in inside
            if decision.file == script.file and has_line(giver, decision.line)
        ]
        if source.file == decision.file and has_line(loop, decision.line):
            conditions.append(source.condition(decision.line))
        for each in conditions:
            left = _count_left(each, own)
            if left is not None and any(left[rank] for rank in ranks):
                return decision
    return None


#: arguments that put a batch together of rows, and the method by which an object does
_COLLATES, _MAKES_BATCH = frozenset({"collate_fn", "data_collator"}), "__call__"
#: functions that take the largest of what they are given, or pad to it
_LARGEST = frozenset({"max", "pad_sequence", "pad"})


def list_collators(scripts: Sequence[Script]) -> list[tuple[Script, str, ast.FunctionDef]]:
    """Return the functions of scripts, or of their classes, that are given to make batches."""
    passed = [
        (source, node.value)
        for source in scripts
        for node in ast.walk(source.tree)
        if isinstance(node, ast.keyword) and node.arg in _COLLATES
    ]
    names = {name_of(each.func if isinstance(each, ast.Call) else each) for _, each in passed}
    for source, value in passed:
        for script, line in source.traces(value, value.lineno):
            names |= script.called(line)
    found = [
        (source, node.name, node)
        for source in scripts
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    return found + [
        (source, kind.name, node)
        for source in scripts
        for kind in ast.walk(source.tree)
        if isinstance(kind, ast.ClassDef) and kind.name in names
        for node in kind.body
        if isinstance(node, ast.FunctionDef) and node.name == _MAKES_BATCH
    ]


def find_filter(source: Script, function: ast.FunctionDef) -> int:
    """Return the line of a function that leaves out items by their values; 0 where none does.

    By brackets or a mask, or by an `if` in a loop that keeps the others, or an error that it
    catches there.
    """
    kept = (
        node.lineno
        for loop in ast.walk(function)
        if isinstance(loop, ast.For)
        for node in ast.walk(loop)
        if (isinstance(node, ast.ExceptHandler) and _drops_item(loop, node))
        or (isinstance(node, ast.If) and _count_left(node, {}) is not None)
    )
    filters = _list_filters(source, function.lineno, end_of(function))
    return next(filters, 0) or next(kept, 0)


def find_sizing(source: Script, function: ast.FunctionDef) -> int:
    """Return the line of a function that sizes a batch by what is in it; 0 where none does.

    It leaves out rows by their values, or takes the largest of them.
    """
    filters = _list_filters(source, function.lineno, end_of(function))
    sized = (
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for each in ast.walk(node.value)
        if isinstance(each, ast.Call) and name_of(each.func) in _LARGEST
    )
    return next(filters, 0) or next(sized, 0)


def _ends_batch(node: ast.If | ast.IfExp | None) -> bool:
    """Whether an `if` gives what was put together before, and begins it anew: a batch ends there.

    if batch and len(batch) * length > limit:
        yield batch
        batch = []
    """
    if not isinstance(node, ast.If):
        return False
    inner = [each for part in node.body for each in ast.walk(part)]
    given = {
        ast.unparse(each.value)
        for each in inner
        if isinstance(each, ast.Yield) and isinstance(each.value, ast.Name | ast.Attribute)
    }
    set_anew = {
        ast.unparse(target)
        for each in inner
        if isinstance(each, ast.Assign)
        for whole in each.targets
        for target in (whole.elts if isinstance(whole, ast.Tuple) else [whole])
    }
    return bool(given & set_anew)


def _list_givers(
    source: Script, value: ast.expr, lines: Sequence[tuple[Script, int]]
) -> Iterator[tuple[Script, ast.FunctionDef]]:
    """Yield the functions of the scripts that give what a loop goes through, as generators do.

    Those are what its expression, or a line behind it, calls: of a class how it is gone through.
    """
    names = {name_of(each.func) for each in ast.walk(value) if isinstance(each, ast.Call)}
    spans = [(script, *script.span(line)) for script, line in lines[1:]]
    names |= {
        name
        for script, first, last in spans
        for line in range(first, last + 1)
        for name in script.called(line)
    }
    names.discard("")
    known: set[str] = set()
    waiting = sorted(names)
    while waiting:
        name = waiting.pop(0)
        known.add(name)
        for script in (source, *source.imported()):
            for node in ast.walk(script.tree):
                kinds = [node] if isinstance(node, ast.FunctionDef) and node.name == name else []
                if isinstance(node, ast.ClassDef) and node.name == name:
                    kinds = [each for each in node.body if isinstance(each, ast.FunctionDef)]
                    kinds = [each for each in kinds if each.name in _GIVING]
                for each in kinds:
                    yield script, each
                    called = {name_of(c.func) for c in ast.walk(each) if isinstance(c, ast.Call)}
                    waiting += sorted(called - known - {"", *waiting})


#: methods by which an object of a class gives what a loop goes through
_GIVING = frozenset({"__init__", "__iter__", "__next__"})
#: functions and methods that leave out items by their values
_FILTERS = frozenset(
    {"filter", "filterfalse", "takewhile", "dropwhile", "masked_select", "dropna", "query"}
    | {"drop_duplicates", "unique", "nonzero"}
)


def _leaves_out_more(
    node: ast.If | ast.IfExp | None, own: Mapping[int, Tally], counts: Mapping[int, int]
) -> bool:
    """Whether an `if` leaves out items, and more of them on a rank with fewer turns."""
    left = _count_left(node, own)
    if left is None:
        return False
    left = {rank: count for rank, count in left.items() if rank in counts}
    most, least = max(left.values(), default=0), min(left.values(), default=0)
    shortest = min(counts.values())
    return most > least and all(
        counts[rank] == shortest for rank, count in left.items() if count == most
    )


def _count_left(node: ast.If | ast.IfExp | None, own: Mapping[int, Tally]) -> dict[int, int] | None:
    """Return how many items an `if` leaves out on each rank; None where it leaves out none.

    It goes on to the next item, or gives an item in its body alone.
    """
    if not isinstance(node, ast.If) or node.orelse:
        return None
    inner = [each for part in node.body for each in ast.walk(part)]
    gives = any(
        isinstance(each, ast.Yield)
        or (isinstance(each, ast.Call) and name_of(each.func) == "append")
        for each in inner
    )
    if not gives and not isinstance(node.body[-1], ast.Continue):
        return None
    return {rank: each.no if gives else each.yes for rank, each in own.items()}


def _list_filters(source: Script, first: int, last: int) -> Iterator[int]:
    """Yield the lines of a span that leave out items by their values: by brackets, or by a mask.

    Of calls that follow each other in several lines it is the one with the filter.
    """
    for node in ast.walk(source.tree):
        line = getattr(node, "lineno", 0)
        line = end_of(node.func) if isinstance(node, ast.Call) else line
        if first <= line <= last and _is_filter(source, node):
            yield line


def _is_filter(source: Script, node: ast.AST) -> bool:
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        return any(each.ifs for each in node.generators)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return _is_mask(source, node.slice, node.lineno)
    if not isinstance(node, ast.Call):
        return False
    asks = bool(node.args) and (
        isinstance(node.args[0], ast.Lambda) or any(source.functions(name_of(node.args[0])))
    )
    return name_of(node.func) in _FILTERS or (name_of(node.func) == "select" and asks)


def _is_mask(source: Script, value: ast.expr, line: int) -> bool:
    """Whether what is in the brackets of a tensor or an array compares values."""
    if isinstance(value, ast.Name):
        at = source.assignment(value, line)
        held = [
            e.value for e in ast.walk(source.tree) if isinstance(e, ast.Assign) and e.lineno == at
        ]
        return any(isinstance(each, ast.Compare) for each in held)
    return any(isinstance(each, ast.Compare) for each in ast.walk(value)) and not isinstance(
        value, ast.IfExp
    )
