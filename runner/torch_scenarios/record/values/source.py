"""Lines of a recorded script that are to blame, found around a line that is known.

The witness knows the line of a call, of a backward pass and of a step. What is wrong may stand
elsewhere: where the loss is assigned that `backward` is called on, where a function writes
gradients between two known lines, where what was gathered goes into the loss. These are read in
the text of the script, which is parsed and never run; where the text does not say it, the line
that is known is shown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torch_scenarios.record.evidence.script import (
    Script,
    end_of,
    has_line,
    list_blocks,
    name_of,
    script_at,
)
from torch_scenarios.record.values.format.record import ValueRecord


def frames_of_loss(record: ValueRecord, place: int) -> tuple[tuple[str, int, str], ...]:
    """Return the frames at which the loss of a backward pass is assigned; else of the pass."""
    frames = record.places.get(place, ())
    if not frames:
        return ()
    file, line, _ = frames[0]
    script = script_at(file)
    found = _find_assignment(script, line) if script is not None else 0
    return frames if script is None or not found else (script.frame(found), *frames[1:])


def frames_of_return(
    frames: tuple[tuple[str, int, str], ...], kind: str
) -> tuple[tuple[str, int, str], ...]:
    """Return the last line of a module's `forward`, where its class is in a file of the frames."""
    for file, *_ in frames:
        script = script_at(file)
        for each in ast.walk(script.tree) if script is not None else ():
            if not isinstance(each, ast.ClassDef) or each.name != kind:
                continue
            lines = [
                part.lineno
                for method in each.body
                if isinstance(method, ast.FunctionDef) and method.name == "forward"
                for part in ast.walk(method)
                if isinstance(part, ast.Return)
            ]
            if script is not None and lines:
                return (script.frame(max(lines)),)
    return frames


def cuts_in_class(frames: tuple[tuple[str, int, str], ...], kind: str) -> bool:
    """Whether a class of the files of some frames cuts a product in a method: `chunk`, `split`."""
    for file in {file for file, *_ in frames}:
        script = script_at(file)
        for each in ast.walk(script.tree) if script is not None else ():
            if not isinstance(each, ast.ClassDef) or each.name != kind:
                continue
            forward = [
                e for e in each.body if isinstance(e, ast.FunctionDef) and e.name == "forward"
            ]
            if any(
                isinstance(part, ast.Attribute) and part.attr in {"chunk", "split", "unbind"}
                for method in forward
                for part in ast.walk(method)
            ):
                return True
    return False


def is_in_forward(frames: tuple[tuple[str, int, str], ...]) -> bool:
    """Whether the innermost frame is in the `forward` of a module of the script's own."""
    if not frames:
        return False
    file, line, _ = frames[0]
    script = script_at(file)
    return script is not None and any(
        isinstance(each, ast.FunctionDef) and each.name == "forward" and has_line(each, line)
        for each in ast.walk(script.tree)
    )


#: methods by which a function scales what it has
_SCALING = ("div", "mul", "mean", "true_divide")


def scales_values(record: ValueRecord, place: int) -> bool:
    """Whether the function at a place multiplies or divides anything; so where it is not known."""
    frames = record.places.get(place, ())
    script = script_at(frames[0][0]) if frames else None
    if script is None:
        return True
    return any(
        isinstance(each, ast.Div | ast.Mult)
        or (isinstance(each, ast.Attribute) and each.attr.rstrip("_") in _SCALING)
        for each in ast.walk(script.scope(frames[0][1]))
    )


#: how a script gets the number of ranks
_SIZES = frozenset({"get_world_size", "WORLD_SIZE", "size", "world_size"})


def scales_by_ranks(record: ValueRecord, place: int, ranks: int) -> bool:
    """Whether the script at a place divides or multiplies by the number of ranks, wherever it does.

    So it is with what a call has reduced (the tokens of all ranks), and where no text is known.
    """
    frames = record.places.get(place, ())
    script = script_at(frames[0][0]) if frames else None
    if script is None:
        return True
    counts = {*_SIZES}
    for each in ast.walk(script.tree):
        if isinstance(each, ast.Assign):
            for targets, value in _pairs_of(each):
                words = _words_in(value) | {
                    e.value
                    for e in ast.walk(value)
                    if isinstance(e, ast.Constant) and isinstance(e.value, str)
                }
                counts |= _words_in(targets) - {"self"} if words & _SIZES else set()
        elif isinstance(each, ast.Call) and name_of(each.func).endswith("all_reduce"):
            counts |= {word for e in each.args[:1] for word in _words_in(e)} - {"grad"}
    for each in ast.walk(script.tree):
        if isinstance(each, ast.BinOp | ast.AugAssign) and isinstance(each.op, ast.Div | ast.Mult):
            parts = [each.left, each.right] if isinstance(each, ast.BinOp) else [each.value]
        elif isinstance(each, ast.Call) and name_of(each.func).rstrip("_") in _SCALING:
            parts = [*each.args]
        else:
            continue
        if any(
            _words_in(e) & counts or (isinstance(e, ast.Constant) and e.value == ranks)
            for e in parts
        ):
            return True
    return False


def _pairs_of(assignment: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what is assigned with its value: `rank, world = a(), b()` are two."""
    value = assignment.value
    for target in assignment.targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(target.elts, value.elts, strict=False)
        else:
            yield target, value


#: functions of torch that take a tensor and read none of its elements
_SHAPING = frozenset({"empty_like", "zeros_like", "ones_like", "chunk", "split", "unbind", "numel"})
#: methods after which a call may be over
_WAITING = re.compile("wait|synchronize|is_completed|result")
#: functions whose sender may read its tensor
_SENDING = frozenset({"broadcast"})
#: what is asked of a tensor, and is no element of it
_ASKED = frozenset({"shape", "size", "dtype", "device", "numel", "data_ptr", "dim"})


def find_early_read(record: ValueRecord, place: int) -> tuple[tuple[str, int, str], ...]:
    """Return where a script computes with the result of an asynchronous call before any wait.

    It reads the statements behind the call in the same block, up to one that waits for something.
    """
    frames = record.places.get(place, ())
    script = script_at(frames[0][0]) if frames else None
    if script is None:
        return ()
    for block in list_blocks(script.tree):
        for at, statement in enumerate(block):
            if not has_line(statement, frames[0][1]):
                continue
            if isinstance(statement, ast.Assign) and (name := _result_of(statement.value)):
                works = {name for each in statement.targets for name in _words_in(each)}
                line = _find_use(block[at + 1 :], name, works)
                return (script.frame(line), *frames[1:]) if line else ()
    return ()


def find_unread_copy(record: ValueRecord, place: int) -> str:
    """Return the variable that a call writes into, where it is a copy that nothing reads after it.

    It is assigned in the block of the call, from what is computed of a gradient.
    """
    frames = record.places.get(place, ())
    script = script_at(frames[0][0]) if frames else None
    if script is None:
        return ""
    for block in list_blocks(script.tree):
        for at, statement in enumerate(block):
            if not has_line(statement, frames[0][1]):
                continue
            call = statement.value if isinstance(statement, ast.Expr) else None
            given = call.args[0] if isinstance(call, ast.Call) and call.args else None
            if not isinstance(given, ast.Name):
                continue
            made = any(
                isinstance(each, ast.Assign)
                and isinstance(each.value, ast.Call | ast.BinOp)
                and _has_gradient(each.value)
                and any(isinstance(e, ast.Name) and e.id == given.id for e in each.targets)
                for each in block[:at]
            )
            later = [
                each
                for each in _walk_scope(script.scope(statement.lineno))
                if isinstance(each, ast.Name)
                and each.id == given.id
                and each.lineno > end_of(statement)
            ]
            return given.id if made and not later else ""
    return ""


def _words_in(node: ast.AST) -> set[str]:
    """Return the variables that a piece of a script has, and the methods."""
    parts = [*ast.walk(node)]
    return {each.id for each in parts if isinstance(each, ast.Name)} | {
        each.attr for each in parts if isinstance(each, ast.Attribute)
    }


def _result_of(value: ast.expr) -> str:
    """Return the variable that an asynchronous call writes into; nothing where it is none.

    The rank that broadcasts may read what it sends.
    """
    if not isinstance(value, ast.Call) or not value.args or not isinstance(value.args[0], ast.Name):
        return ""
    is_late = any(
        each.arg == "async_op" and getattr(each.value, "value", False) is True
        for each in value.keywords
    )
    return value.args[0].id if is_late and not _words_in(value.func) & _SENDING else ""


def _find_use(statements: list[ast.stmt], name: str, works: set[str]) -> int:
    """Return the line that computes with a variable before one that may wait; 0 where none does.

    A statement that has the work of the call may wait for it: it passes it to a function. So may a
    function of the script's own that takes nothing. What gives the variable another value, and the
    body of a function, which runs later, end the search.
    """
    for statement in statements:
        parts = [each for each in ast.walk(statement) if isinstance(each, ast.expr)]
        if _may_wait(statement, works) or isinstance(
            statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ):
            return 0
        for each in parts:
            read: list[ast.expr] = []
            if isinstance(each, ast.BinOp):
                read = [each.left, each.right]
            elif isinstance(each, ast.Compare):
                read = [each.left, *each.comparators]
            elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
                owner = ast.unparse(each.func).split(".")[0]
                read = each.args if owner in {"torch", "F"} else []
                read = [] if each.func.attr in _SHAPING else read
            if any(_is_of(part, name) for part in read):
                return each.lineno
        if any(
            isinstance(each, ast.Name) and each.id == name and not isinstance(each.ctx, ast.Load)
            for each in parts
        ):
            return 0
    return 0


def _may_wait(statement: ast.stmt, works: set[str]) -> bool:
    """Whether a statement may wait for a call whose work has some names."""
    names = _words_in(statement)
    return (
        bool(works & names)
        or any(_WAITING.search(each) for each in names)
        or any(
            isinstance(each, ast.Lambda)
            or (isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and not each.args)
            for each in ast.walk(statement)
        )
    )


def _is_of(value: ast.expr, name: str) -> bool:
    """Whether an expression has a variable's elements: itself, a part or a view of it."""
    while isinstance(value, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(value, ast.Attribute) and value.attr in _ASKED:
            return False
        value = value.func if isinstance(value, ast.Call) else value.value
    return isinstance(value, ast.Name) and value.id == name


def names_attribute(record: ValueRecord, place: int, name: str) -> bool:
    """Whether the script of a place has an attribute of a name anywhere."""
    frames = record.places.get(place, ())
    script = script_at(frames[0][0]) if frames else None
    return script is not None and any(
        isinstance(each, ast.Attribute) and each.attr == name for each in ast.walk(script.tree)
    )


def find_gradient_writes(
    record: ValueRecord, first: int, last: int
) -> tuple[tuple[str, int, str], ...]:
    """Return the one line between two places of a function that writes gradients, if it is one.

    Where functions of the script do that are called in between, the last line of the last of them.
    """
    begin, end = record.places.get(first, ()), record.places.get(last, ())
    if not begin or not end or begin[0][0] != end[0][0]:
        return ()
    script = script_at(end[0][0])
    if script is None:
        return ()
    is_one = script.scope(begin[0][1]) is script.scope(end[0][1])
    found = _find_writes(script, begin[0][1] if is_one else 0, end[0][1])
    lines = {line for line, _ in found}
    if not found or (is_one and len(lines) > 1 and not all(called for _, called in found)):
        return ()
    return (script.frame(found[-1][0]), *end[1:])


def _find_writes(script: Script, since: int, until: int) -> list[tuple[int, bool]]:
    """Return the lines that write gradients between two lines of a function, in order.

    And whether each is of a function of the script that is called there: its last one counts.
    """
    functions = {
        each.name: each for each in ast.walk(script.tree) if isinstance(each, ast.FunctionDef)
    }
    found = []
    statements = [e for e in _walk_scope(script.scope(until)) if isinstance(e, ast.stmt)]
    for each in sorted(statements, key=lambda one: one.lineno):
        if not since < each.lineno < until:
            continue
        value = getattr(each, "value", None)
        called = value.func if isinstance(value, ast.Call) else None
        own = functions.get(name_of(called))
        inside = [
            e.lineno
            for e in (_walk_scope(own) if own is not None else ())
            if isinstance(e, ast.stmt) and _writes_gradient(e)
        ]
        if inside:
            found.append((max(inside), True))
        elif _writes_gradient(each):
            found.append((each.lineno, False))
    return found


def _writes_gradient(statement: ast.stmt) -> bool:
    """Whether a statement assigns to a `.grad`, or calls what is in place, or named after it."""
    if isinstance(statement, ast.Assign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if any(_has_gradient(each) for each in targets):
            return True
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Call):
        return False
    called = name_of(value.func)
    return "grad" in called or (called.endswith("_") and _has_gradient(value.func))


def _has_gradient(tree: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in ast.walk(tree))


def find_batch_line(record: ValueRecord, place: int) -> tuple[str, int] | None:
    """Return the file and line that made the variables with which a model is called at a place."""
    frames = record.places.get(place, ())
    if not frames:
        return None
    file, line, _ = frames[0]
    script = script_at(file)
    if script is None:
        return None
    scope = script.scope(line)
    used = {
        name
        for each in _walk_scope(scope)
        if isinstance(each, ast.Call) and has_line(each, line)
        for part in each.args
        for name in _names_in(part)
    }
    made = [
        each.lineno
        for each in _walk_scope(scope)
        if isinstance(each, ast.Assign) and each.lineno < line
        if any(_names_in(part) & used for part in each.targets)
    ]
    return (file, max(made)) if made else None


def is_shown(record: ValueRecord, place: int) -> bool:
    """Whether the statement at a place hands on what it reads, as a print does, and undivided."""
    frames = record.places.get(place, ())
    if not frames:
        return False
    file, line, _ = frames[0]
    script = script_at(file)
    own = [
        each
        for each in (ast.walk(script.tree) if script is not None else ())
        if isinstance(each, ast.Expr) and has_line(each, line)
    ]
    return any(
        isinstance(each.value, ast.Call)
        and not any(isinstance(part, ast.Div | ast.Mult) for part in ast.walk(each))
        for each in own
    )


def goes_into_loss(record: ValueRecord, gather: int, backward: int) -> bool:
    """Whether a script's text computes a loss of what a call gathers, from name to name.

    Not where the rank's own part is put back, nor through a `detach()`.
    """
    begin, end = record.places.get(gather, ()), record.places.get(backward, ())
    if not begin or not end or begin[0][0] != end[0][0]:
        return False
    script = script_at(begin[0][0])
    if script is None:
        return False
    maker, user = script.scope(begin[0][1]), script.scope(end[0][1])
    functions: set[str] = set()
    until = end[0][1] if maker is user else 1 << 30
    names = _follow(maker, _outputs_of_call(maker, begin[0][1]), functions, until)
    if names is None:
        return False
    if maker is not user:
        returns = [each for each in _walk_scope(maker) if isinstance(each, ast.Return)]
        if not any(each.value is not None and _reads(each.value, names, set()) for each in returns):
            return False
        functions = {getattr(maker, "name", "")}
        names = _follow(user, set(), functions, end[0][1])
    calls = [
        each
        for each in _walk_scope(user)
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr == "backward"
        and has_line(each, end[0][1])
    ]
    return names is not None and any(_reads(each.func, names, functions) for each in calls)


def _walk_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope without those of functions in it."""
    for each in ast.iter_child_nodes(scope):
        if not isinstance(each, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            yield each
            yield from _walk_scope(each)


def _outputs_of_call(scope: ast.AST, line: int) -> set[str]:
    """Return the variable that a call gathers into: its first argument."""
    return {
        each.args[0].id
        for each in _walk_scope(scope)
        if isinstance(each, ast.Call)
        and has_line(each, line)
        and each.args
        and isinstance(each.args[0], ast.Name)
    }


def _follow(scope: ast.AST, names: set[str], functions: set[str], until: int) -> set[str] | None:
    """Return variables computed of others before a line; None where a part is put back."""
    names = {*names}
    assigns = [
        each
        for each in _walk_scope(scope)
        if isinstance(each, ast.Assign | ast.AugAssign) and each.lineno <= until
    ]
    for each in sorted(assigns, key=lambda one: one.lineno):
        targets = each.targets if isinstance(each, ast.Assign) else [each.target]
        if any(_names_in(part) & names for part in targets if isinstance(part, ast.Subscript)):
            return None
        if _reads(each.value, names, functions):
            for part in targets:
                names |= _names_in(part)
    return names


def _names_in(tree: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}


def _reads(tree: ast.AST, names: set[str], functions: set[str]) -> bool:
    """Whether an expression reads one of some variables, or calls one of some functions."""
    if isinstance(tree, ast.Call):
        called = name_of(tree.func)
        if called == "detach":
            return False
        if called in functions:
            return True
    if isinstance(tree, ast.Name):
        return tree.id in names
    return any(_reads(each, names, functions) for each in ast.iter_child_nodes(tree))


def _find_assignment(script: Script, line: int) -> int:
    """Return the last line, above, that assigns what `.backward()` is called on; 0 for none."""
    name = _receiver(script.tree, line)
    return max(
        (
            each.lineno
            for each in ast.walk(script.tree)
            if isinstance(each, ast.Assign)
            and each.lineno < line
            and any(isinstance(part, ast.Name) and part.id == name for part in each.targets)
        ),
        default=0,
    )


def _receiver(tree: ast.Module, line: int) -> str:
    """Return the variable in what `.backward()` is called on: `loss` of `(loss / n).backward()`."""
    for each in ast.walk(tree):
        if (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr == "backward"
            and has_line(each, line)
        ):
            if isinstance(each.func.value, ast.Name):
                return each.func.value.id
            names = {part.id for part in ast.walk(each.func.value) if isinstance(part, ast.Name)}
            return "loss" if "loss" in names else ""
    return ""
