"""The lines that a call's value comes from, through parameters and loops, up to what differs.

A function that communicates is passed what it sends; its callers have made that, in other lines::

    seed = 100 + rank                      differs by rank
    for length in lengths(seed, 3):        what the loop goes through
        ids = torch.randint(9, (2, length))
        model(ids)                         passed to `forward(self, ids)`, which communicates
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.script import Script, has_line, name_of, script_at

#: why ranks do not agree on what is made of a string's hash
HASHES_DIFFER = "unless PYTHONHASHSEED is set, the hash of a string is another one in each process"

#: lines that are followed at most
MOST_FOLLOWED = 16


def trace_value(
    frames: Frames, value: ast.expr, *, in_branches: bool = False
) -> list[tuple[Script, int]]:
    """Return the lines that a value comes from, the nearest first, in the frames of its call.

    With `in_branches` a name that both ways of an `if` set comes from both.
    """
    found: dict[tuple[str, int], Script] = {}
    known: set[tuple[int, str]] = set()
    waiting: list[tuple[int, ast.expr, int]] = [(0, value, frames[0][1])] if frames else []
    while waiting and len(found) < MOST_FOLLOWED:
        depth, read, line = waiting.pop(0)
        source = script_at(frames[depth][0])
        if source is None:
            continue
        for script, at in source.traces(read, line, in_parts=in_branches):
            found.setdefault((script.file, at), script)
        for name in _list_names(source, read, line, in_parts=in_branches):
            if (depth, name) in known:
                continue
            known.add((depth, name))
            for at in source.assignments(ast.Name(name), line)[1:] if in_branches else ():
                waiting += [(depth, given, at) for given in source.values(at)]
            loop = _find_loop(source, name, line)
            if loop is not None:
                found.setdefault((source.file, loop.lineno), source)
                waiting.append((depth, loop.iter, loop.lineno))
            passed = find_argument_of(source, name, line, frames[depth + 1 :])
            if passed is not None:
                waiting.append((depth + 1, passed, frames[depth + 1][1]))
    return [(source, at) for (_, at), source in found.items()]


def find_hash(source: Script, line: int) -> tuple[Script, ast.Call] | None:
    """Return the call of Python's own `hash` in a line, or in a function that the line calls."""
    for call in source.calls(line):
        script, value = source.returned(call) or (source, call)
        for each in ast.walk(value):
            if (
                isinstance(each, ast.Call)
                and isinstance(each.func, ast.Name)
                and each.func.id == "hash"
            ):
                return script, each
    return None


def _list_names(
    source: Script, read: ast.expr, line: int, *, in_parts: bool = False
) -> Iterator[str]:
    """Yield the names that an expression reads, and those that the lines read which set them."""
    traced = source.traces(read, line, in_parts=in_parts)
    lines = {at for script, at in traced if script is source}
    for node in (read, *ast.walk(source.tree)):
        is_set = isinstance(node, ast.Assign) and node.lineno in lines
        if node is read or is_set:
            held = node.value if isinstance(node, ast.Assign) else node
            yield from (each.id for each in ast.walk(held) if isinstance(each, ast.Name))


def _find_loop(source: Script, name: str, line: int) -> ast.For | None:
    """Return the loop around a line that sets a name."""
    for node, part in source.find_statements(line):
        if isinstance(node, ast.For) and part == "body":
            targets = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
            if name in targets:
                return node
    return None


def find_argument_of(source: Script, name: str, line: int, callers: Frames) -> ast.expr | None:
    """Return what the caller of a function passes as one of its parameters; None where none is.

    `line` is one of the function, `callers` are the frames behind it.
    """
    scope = source.scope(line)
    names = [each.arg for each in scope.args.args] if isinstance(scope, ast.FunctionDef) else []
    is_own = name in {"self", "cls"} or name not in names
    caller = script_at(callers[0][0]) if callers and not is_own else None
    if caller is None or not isinstance(scope, ast.FunctionDef):
        return None
    place, at = names.index(name) - (names[0] in {"self", "cls", "ctx"}), callers[0][1]
    calls = [
        node for node in ast.walk(caller.tree) if isinstance(node, ast.Call) and has_line(node, at)
    ]
    named = [each for each in calls if name_of(each.func) == scope.name]
    if not named and scope.name in {"forward", "__call__"}:  # a module is called by its own name
        named = [each for each in calls if name_of(each.func) == "apply"]  # a function of autograd
        named = named or [each for each in calls if len(each.args) > place][-1:]
    for call in named:
        given = {each.arg: each.value for each in call.keywords}
        several = [each for each in call.args[: place + 1] if isinstance(each, ast.Starred)]
        if name in given or several or place < len(call.args):
            return given.get(name) or (several[0] if several else call.args[place])
    return None
