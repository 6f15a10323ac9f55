"""Lines of a recorded script that are to blame, found around a line that is known."""

from __future__ import annotations

import ast
from pathlib import Path

from torch_scenarios.record.values.format import ValueRecord

#: bytes of a script that is parsed
MOST_TEXT = 1 << 21


def frames_of_loss(record: ValueRecord, place: int) -> tuple[tuple[str, int, str], ...]:
    """Return the frames at which the loss of a backward pass is assigned; else of the pass."""
    frames = record.places.get(place, ())
    if not frames:
        return ()
    file, line, _ = frames[0]
    found = _assignment(Path(file), line)
    return frames if found is None else ((file, *found), *frames[1:])


def frames_of_return(
    frames: tuple[tuple[str, int, str], ...], kind: str
) -> tuple[tuple[str, int, str], ...]:
    """Return the last line of a module's `forward`, where its class is in a file of the frames."""
    for file, *_ in frames:
        tree, text = _parse(Path(file))
        for each in ast.walk(tree):
            if not isinstance(each, ast.ClassDef) or each.name != kind:
                continue
            lines = [
                part.lineno
                for method in each.body
                if isinstance(method, ast.FunctionDef) and method.name == "forward"
                for part in ast.walk(method)
                if isinstance(part, ast.Return)
            ]
            if lines:
                return ((file, max(lines), text.splitlines()[max(lines) - 1].strip()),)
    return frames


def is_in_forward(frames: tuple[tuple[str, int, str], ...]) -> bool:
    """Whether the innermost frame is in the `forward` of a module of the script's own."""
    if not frames:
        return False
    file, line, _ = frames[0]
    tree, _ = _parse(Path(file))
    return any(
        isinstance(each, ast.FunctionDef)
        and each.name == "forward"
        and each.lineno <= line <= (each.end_lineno or each.lineno)
        for each in ast.walk(tree)
    )


def find_gradient_writes(
    record: ValueRecord, first: int, last: int
) -> tuple[tuple[str, int, str], ...]:
    """Return the one line between two places of a function that writes gradients, if it is one."""
    begin, end = record.places.get(first, ()), record.places.get(last, ())
    if not begin or not end or begin[0][0] != end[0][0]:
        return ()
    tree, text = _parse(Path(end[0][0]))
    lines = {
        each.lineno
        for each in ast.walk(tree)
        if isinstance(each, ast.stmt)
        and begin[0][1] < each.lineno < end[0][1]
        and _writes_gradient(each)
    }
    if len(lines) != 1:
        return ()
    (line,) = lines
    return ((end[0][0], line, text.splitlines()[line - 1].strip()), *end[1:])


def _writes_gradient(statement: ast.stmt) -> bool:
    """Whether a statement assigns to a `.grad`, or calls what is in place, or named after it."""
    if isinstance(statement, ast.Assign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if any(_has_gradient(each) for each in targets):
            return True
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute) and value.func.attr == "all_reduce":
        return False
    called = getattr(value.func, "attr", getattr(value.func, "id", ""))
    return "grad" in called or (called.endswith("_") and _has_gradient(value.func))


def _has_gradient(tree: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in ast.walk(tree))


def _parse(path: Path) -> tuple[ast.Module, str]:
    """Return a file's tree and text; an empty tree where it cannot be read as Python."""
    try:
        if path.stat().st_size <= MOST_TEXT:
            text = path.read_text(encoding="utf-8", errors="replace")
            return ast.parse(text), text
    except (OSError, SyntaxError, ValueError):
        pass
    return ast.Module(body=[], type_ignores=[]), ""


def _assignment(path: Path, line: int) -> tuple[int, str] | None:
    """Return the line that assigned last, above, what `.backward()` is called on at a line."""
    tree, text = _parse(path)
    name = _receiver(tree, line)
    before = [
        each.lineno
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign)
        and each.lineno < line
        and any(isinstance(part, ast.Name) and part.id == name for part in each.targets)
    ]
    if not name or not before:
        return None
    return max(before), text.splitlines()[max(before) - 1].strip()


def _receiver(tree: ast.Module, line: int) -> str:
    """Return the variable in what `.backward()` is called on: `loss` of `(loss / n).backward()`."""
    for each in ast.walk(tree):
        if (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr == "backward"
            and each.lineno <= line <= (each.end_lineno or each.lineno)
        ):
            if isinstance(each.func.value, ast.Name):
                return each.func.value.id
            names = {part.id for part in ast.walk(each.func.value) if isinstance(part, ast.Name)}
            return "loss" if "loss" in names else ""
    return ""
