"""A lost wakeup: an error that a rank catches leaves out what would wake one of its threads."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from torch_scenarios.record.evidence.script import Script, has_line, name_of, script_at
from torch_scenarios.record.format import CaughtError, RankRecord

#: methods that wake a thread which waits
_WAKES = frozenset(
    {"set", "notify", "notify_all", "release", "put", "put_nowait", "set_result", "task_done"}
)


def explain_lost_wakeup(
    ranks: Iterable[int], records: Mapping[int, RankRecord], folder: str
) -> list[str]:
    """Return the error by which a rank alone has not woken a thread, and what helps.

    The call is behind the one that raised, in the same `try`::

        try:
            engine.load(update)
            running.set()           left out
        except KeyError: ...
    """
    for rank in ranks:
        others = {
            (each.decision, each.words)
            for other, record in records.items()
            for each in (record.caught if other != rank else ())
        }
        for each in reversed(records[rank].caught if rank in records else []):
            source = script_at(each.decision.file)
            if (each.decision, each.words) in others or source is None:
                continue
            call = _find_call(source, each)
            if call is None:
                continue
            place = source.place(each.decision.line, folder)
            at = source.place(call.lineno, folder)
            raised = each.raised_at.short(folder)
            words = f"rank {rank} has caught {each.words} ({raised}) in `{each.decision.text}` "
            words += f"({place}), which leaves out `{ast.unparse(call)}` ({at})"
            fix = f"fix: put `{ast.unparse(call)}` ({at}) into a `finally`, where it always comes."
            return [words, fix]
    return []


def _find_call(source: Script, caught: CaughtError) -> ast.Call | None:
    """Return the call that wakes, behind the statement of a `try` that has raised."""
    for node in ast.walk(source.tree):
        lines = {each.lineno for each in node.handlers} if isinstance(node, ast.Try) else set()
        if not isinstance(node, ast.Try) or caught.decision.line not in lines:
            continue
        raised = [line for file, line, _ in caught.raised_at.frames if file == source.file]
        at = next(
            (
                number
                for number, each in enumerate(node.body)
                if any(has_line(each, line) for line in raised)
            ),
            len(node.body),
        )
        for each in (part for later in node.body[at + 1 :] for part in ast.walk(later)):
            if isinstance(each, ast.Call) and _wakes(source, each):
                return each
    return None


def _wakes(source: Script, call: ast.Call) -> bool:
    """Whether a call wakes a thread: by itself, or in the function of the script that it calls."""
    inner = (
        each
        for _, function in source.functions(name_of(call.func))
        for each in ast.walk(function)
        if isinstance(each, ast.Call)
    )
    return any(name_of(each.func) in _WAKES for each in (call, *inner))
