"""An error that some ranks catch and others do not."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason
from torch_scenarios.record.evidence.script import end_of, has_line, name_of, script_at
from torch_scenarios.record.format import (
    CaughtError,
    Decision,
    names_lost_peer,
)
from torch_scenarios.verdict.finding import ranks_text

#: how the advice about an error begins that some ranks catch
ERROR_CAUGHT = "let no error be caught at"


def find_caught(parted: DecidedParting, *, whole: bool, by_chance: bool = False) -> Reason | None:
    """Return the error that some ranks caught and others did not.

    `by_chance` counts what a rank may catch without harm: it tries until that works, in a loop in
    which nothing communicates.
    """
    found: dict[tuple[Decision, str], dict[int, CaughtError]] = {}
    for rank in parted.ranks:
        for each in parted.records[rank].caught:
            if parted.is_within(rank, each.before, whole=whole) and not names_lost_peer(each.words):
                alike = _NUMBERS.sub("0", each.words)  # `shard_1.pt` and `shard_2.pt` are one
                found.setdefault((each.decision, alike), {})[rank] = each
    for (decision, words), own in reversed(found.items()):
        if len(own) == len(parted.ranks) or (not by_chance and _is_tried_again(parted, decision)):
            continue
        if not words.startswith(_ENDS):
            return _tell_caught(parted, decision, own)
        if not _begins_anew(decision):
            skipped = _find_skipped(parted, decision, own)
            return _tell_caught(parted, *skipped) if skipped else _tell_end(parted, decision, own)
    return None


#: what the same error has of its own on each rank, as the number in a file's name
_NUMBERS = re.compile(r"\d+")
#: errors by which an iterator says that it has no more
_ENDS = ("StopIteration", "StopAsyncIteration")


def _tell_caught(
    parted: DecidedParting, decision: Decision, own: Mapping[int, CaughtError]
) -> Reason:
    caught = next(iter(own.values()))
    who, place = ranks_text([*own]), parted.place(decision)
    raised = caught.raised_at.short(parted.folder)
    sentence = f"{caught.words} ({raised})" if raised else caught.words
    verb = "catches" if len(own) == 1 else "catch"
    words = f"{who} {verb} {sentence} in `{decision.text}` ({place}), and {_goes_on(own)}"
    left = _tell_left_manager(parted, decision, caught)
    if left is not None:
        return Clause(f"{words}: {left[0]}"), left[1]
    clause = Clause(words)
    fix = (
        f"{ERROR_CAUGHT} {place} on one rank alone: agree on it (an `all_reduce` of "
        "a flag) before the ranks go on, or raise it."
    )
    return clause, fix


def _tell_left_manager(
    parted: DecidedParting, decision: Decision, caught: CaughtError
) -> tuple[str, str] | None:
    """Return which context manager an error leaves where it yields, and what mends that; or None.

    What such a generator has behind its `yield`, and in no `finally`, is left out: there it
    communicates, or the ranks that part are in a call before the `yield`.
    """
    source = script_at(decision.file)
    for file, line, _ in caught.raised_at.frames if source is not None else ():
        script = script_at(file)
        if script is None:
            continue
        names = [
            name_of(item.context_expr.func)
            for node, part in script.find_statements(line)
            if isinstance(node, ast.With) and part == "items"
            for item in node.items
            if isinstance(item.context_expr, ast.Call)
        ]
        for where, function in (found for name in names for found in script.functions(name)):
            at = _find_open_yield(function)
            if at and _is_in(parted, where.file, function):
                place = where.place(at, parted.folder)
                words = (
                    f"it leaves `{function.name}` at its `yield` ({place}), and what follows "
                    "there is not run"
                )
                fix = (
                    f"put what follows the `yield` ({place}) into a `finally` around it: an error "
                    f"under `with {function.name}` leaves it out on its rank."
                )
                return words, fix
    return None


#: decorators that make a context manager of a generator
_MANAGERS = frozenset({"contextmanager"})


def _find_open_yield(function: ast.FunctionDef) -> int:
    """Return the line of a context manager's `yield` that statements follow in no `finally`."""
    if not any(name_of(each) in _MANAGERS for each in function.decorator_list):
        return 0
    for at, node in enumerate(function.body[:-1]):
        is_yield = isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Yield)
        if is_yield and function.body[at + 1 :]:
            return node.lineno
    return 0


def _is_in(parted: DecidedParting, file: str, function: ast.FunctionDef) -> bool:
    """Whether a rank is in a call of a function where ranks part."""
    return any(
        each == file and has_line(function, line)
        for _, frames in parted.sides
        for each, line, _ in frames
    )


def _tell_end(parted: DecidedParting, decision: Decision, own: Mapping[int, CaughtError]) -> Reason:
    """Return that an iterator of some ranks has no more, and those of the others have."""
    who, place = ranks_text([*own]), parted.place(decision)
    owner = "the iterator" if len(own) == 1 else "the iterators"
    has = "has" if len(own) == 1 else "have"
    words = (
        f"{owner} of {who} {has} no more, which `{decision.text}` ({place}) catches, while the "
        "other ranks go on"
    )
    fix = (
        f"give every rank the same number of turns up to {place}: uneven batches need "
        "`drop_last=True` (of the sampler and the loader), or one number of "
        "steps that the ranks agree on."
    )
    return Clause(words), fix


def _find_skipped(
    parted: DecidedParting, end: Decision, own: Mapping[int, CaughtError]
) -> tuple[Decision, dict[int, CaughtError]] | None:
    """Return the error that the same ranks alone caught before, where an iterator gives its items.

    A generator, or a `__next__`, that leaves out what cannot be read ends earlier because of it.
    """
    source = script_at(end.file)
    found: dict[Decision, dict[int, CaughtError]] = {}
    for rank in parted.ranks if source is not None else ():
        for each in parted.records[rank].caught:
            if parted.is_within(rank, each.before, whole=True):
                found.setdefault(each.decision, {})[rank] = each
    for decision, caught in reversed(found.items()):
        if decision == end or {*caught} != {*own}:
            continue
        handler = script_at(decision.file)
        scope = handler.scope(decision.line) if handler is not None else None
        is_beside = source is not None and scope is source.scope(end.line)
        if is_beside or _gives_items(scope):
            return decision, caught
    return None


def _gives_items(scope: ast.AST | None) -> bool:
    """Whether a function is a generator, or what an iterator or a dataset gives its items by."""
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    is_generator = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(scope))
    return is_generator or scope.name in _GIVING


#: methods by which an iterator, or a dataset, gives its items
_GIVING = frozenset({"__next__", "__anext__", "__getitem__"})


def _begins_anew(decision: Decision) -> bool:
    """Whether what catches the end of an iterator begins it once more."""
    return any(
        isinstance(each, ast.Call) and getattr(each.func, "id", "") in {"iter", "next"}
        for handler in _handlers_at(decision)
        for part in handler.body
        for each in ast.walk(part)
    )


def _handlers_at(decision: Decision) -> list[ast.ExceptHandler]:
    source = script_at(decision.file)
    return [
        each
        for each in ast.walk(source.tree if source is not None else ast.Module([], []))
        if isinstance(each, ast.ExceptHandler) and each.lineno == decision.line
    ]


def _is_tried_again(parted: DecidedParting, decision: Decision) -> bool:
    """Whether an error is caught in a loop that ends where no error comes, and makes no call."""
    source = script_at(decision.file)
    if source is None:
        return False
    loops = [
        node
        for node, _ in source.find_statements(decision.line)
        if isinstance(node, ast.For | ast.While)
    ]
    tried = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Try) and decision.line in {each.lineno for each in node.handlers}
    ]
    if not tried or not loops:
        return False
    ends = [each for part in (*tried[0].body, *tried[0].orelse) for each in ast.walk(part)]
    first, last = loops[0].lineno, end_of(loops[0])
    return any(isinstance(each, ast.Return | ast.Break) for each in ends) and not any(
        file == decision.file and first <= line <= last
        for rank in parted.ranks
        for item in parted.records[rank].items
        for file, line, _ in item.place.frames
    )


def find_lost(parted: DecidedParting) -> Reason | None:
    """Return the error of a task in another thread, which some ranks have and others have not.

    One that comes after the ranks have parted, as at the end of a rank, has not led them apart.
    """
    failed = {
        rank: each
        for rank in parted.ranks
        for each in parted.records[rank].lost
        if parted.is_within(rank, each.before, whole=True) and not names_lost_peer(each.words)
    }
    if not failed or len(failed) == len(parted.ranks):
        return None
    lost = next(iter(failed.values()))
    raised = lost.raised_at.short(parted.folder)
    ended = (
        f"{lost.words} ({raised}) has ended what a thread of {ranks_text([*failed])} does, "
        f"{lost.name}"
    )
    asked = _find_asked(parted)
    if asked is not None:
        place = parted.place(asked)
        is_one = len(failed) == 1
        verb = "goes into" if is_one else "go into"
        if not parted.tallies(whole=False)[asked][next(iter(failed))].yes:
            verb = "does not go into" if is_one else "do not go into"
        words = f"{ended}; {ranks_text([*failed])} alone {verb} `{asked.text}` ({place})"
        fix = (
            f"let the ranks agree on that error (an `all_reduce` of a flag) before `{asked.text}` "
            f"({place}) leads one of them another way."
        )
        return Clause(words), fix
    words = f"{ended}; no thread asks for it, and the rank {_goes_on((0,))}"
    fix = (
        f"let the error at {raised} reach the main thread (`future.result()`), and let the ranks "
        "agree on it before they go on."
    )
    return Clause(words), fix


#: what asks a task for the error that it has ended by
_ASKS = re.compile(r"\.exception\((?:timeout=)?[\d.]*\)")


def _find_asked(parted: DecidedParting) -> Decision | None:
    """Return the `if` that ranks decide otherwise by the error for which they ask a task."""
    for decision in parted.tallies(whole=False):
        source = script_at(decision.file)
        node = source.condition(decision.line) if source is not None else None
        if decision.kind != "if" or source is None or node is None:
            continue
        reads = [each for each in ast.walk(node.test) if isinstance(each, ast.Name | ast.Attribute)]
        set_by = [source.text(at) for each in reads if (at := source.assignment(each, node.lineno))]
        if any(map(_ASKS.search, (ast.unparse(node.test), *set_by))):
            return decision
    return None


def _goes_on(ranks: Sequence[int] | Mapping[int, object]) -> str:
    return "goes on another way" if len(ranks) == 1 else "go on another way"
