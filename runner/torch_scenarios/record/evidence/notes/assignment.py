"""What the lines of a script set: names, attributes, parameters, results, with their values.

Ranks that part have, as a rule, become unlike before: a list is longer on one, a flag is set on one
alone, a function returns another number. So the user's own files are compiled with a note behind
each statement that sets something, in the process that runs them::

    hidden = read(path)        hidden = read(path)
                               traced() or note(7, hidden)
    def fit(self, steps):      def fit(self, steps): traced() or note(8, steps); ...
    seen.append(batch)         seen.append(batch); traced() or note(9, seen)
    return found               traced() or note(10, found); return found

A note reads names, and attributes where an object holds them: nothing is computed again. Values are
a few words each, and are written where they change. This imports the standard library alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch_scenarios.record.evidence.notes.value_text import (
    DICTS,
    MOST_CHARACTERS,
    count_items,
    describe_given,
    read_number,
)

#: the name that the note has among Python's own, and that of a result on its way
NOTE, _RESULT = "__scenario_note__", "__scenario_result__"
#: the kind of a place that sets a value
SETS = "value"
#: what a function gives is kept under this name
RETURNS = "return"
#: changes of one variable that are noted, and of all; keys of a dict that is written itself
MOST_CHANGES, MOST_NOTED, MOST_KEYS = 2048, 200_000, 12
#: characters of a line
MOST_LINE = 120

#: methods that change what they are called on
CHANGING = frozenset(
    {
        *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popleft"),
        *("popitem", "put", "remove", "setdefault", "update"),
    }
)
#: functions that set something of torch for the whole process
SETTER = re.compile(r"torch\.(?:[\w.]+\.)?(?:set|use|manual)_\w+")
#: methods that Python itself calls at any time
_UNNOTED = frozenset(
    {
        *("__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__hash__", "__eq__"),
        *("__lt__", "__del__", "__repr__", "__str__", "__format__", "__reduce__", "__getstate__"),
        *("__setstate__", "__class_getitem__", "__init_subclass__", "__set_name__", "__get__"),
    }
)
_WHOLE = (bool, int, type(None))


def describe_set(value: Any) -> tuple[str, ...] | None:
    """Return a value that a line sets as text; of what holds others by name, see `describe_given`.

    None for a number with a point, since a loss is another one on each rank, and for what cannot be
    looked at.
    """
    try:
        return _describe(value)
    except Exception:  # an object that claims to be another one, of whatever kind
        return None


def _describe(value: Any) -> tuple[str, ...] | None:
    if value is ...:  # what an object does not hold itself
        return None
    words = _describe_plain(value)
    if words is not None:
        return (words,) if words else None
    if value.__class__ in DICTS and not 0 < len(value) <= MOST_KEYS:
        return (count_items(value),)
    found = describe_given(value)
    return found if found is not None else (f"a {value.__class__.__name__}",)


def _describe_plain(value: Any) -> str | None:
    """Return a value that holds no others by name, nothing for one that is left out; else None."""
    kind = value.__class__
    if kind in _WHOLE:
        return repr(value)[:MOST_CHARACTERS]
    if kind is float:
        return ""
    if kind.__name__ not in {"Tensor", "Parameter"}:
        return None
    dtype = str(value.dtype).removeprefix("torch.")
    if not len(value.shape):
        return "" if "float" in dtype else read_number(value)
    return f"shape {list(value.shape)} {dtype}"[:MOST_CHARACTERS]


#: puts a place into the list of places: its line, its text and its names; returns its number
Number = Callable[[int, str, Sequence[str]], int]
#: what is set: its name, its scope, and what reads it again
_Set = tuple[str, str, ast.expr]


class AssignmentNotes:
    """Puts a note behind each statement of a file that sets something."""

    def __init__(
        self,
        lines: Sequence[str],
        number: Number,
        read: Callable[[ast.expr], ast.expr | None],
        note: Callable[[str, Sequence[ast.expr], ast.stmt], ast.stmt],
    ) -> None:
        """Know the file's lines.

        `read` gives what reads a path of attributes again, `note` the statement that calls a
        function of the notes with arguments, at the place of a statement.
        """
        self._lines, self._number, self._read, self._note = lines, number, read, note

    def put_into(self, tree: ast.Module) -> None:
        """Put the notes into a file."""
        tree.body = self._follow(tree.body, "", "", frozenset())

    def _follow(
        self, body: Sequence[ast.stmt], scope: str, owner: str, shared: frozenset[str]
    ) -> list[ast.stmt]:
        """Return statements with their notes.

        `scope` names the function that they are of, `owner` its class, `shared` its globals.
        """
        found: list[ast.stmt] = []
        shared |= {name for each in body if isinstance(each, ast.Global) for name in each.names}
        for each in body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                self._follow_function(each, scope, owner)
                found.append(each)
            elif isinstance(each, ast.ClassDef):
                self._follow_class(each, scope)
                found.append(each)
            elif isinstance(each, ast.Return):
                found += self._list_return(each, scope)
            else:
                self._follow_inner(each, scope, owner, shared)
                read = self._note_all(each, _list_iterated(each), scope, owner, shared)
                changed = self._note_all(each, _list_set(each), scope, owner, shared)
                found += [*read, each, *changed]
        return found

    def _follow_inner(self, node: ast.stmt, scope: str, owner: str, shared: frozenset[str]) -> None:
        """Put notes into the statements that are in one."""
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                setattr(node, name, self._follow(inner, scope, owner, shared))
        for each in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            each.body = self._follow(each.body, scope, owner, shared)
        if isinstance(node, ast.For | ast.AsyncFor):
            taken = _list_taken(node)
            node.body[:0] = self._note_all(node, taken, scope, owner, shared)

    def _follow_class(self, node: ast.ClassDef, scope: str) -> None:
        """Put notes into the functions of a class: what its own body sets is the same on all."""
        name = f"{scope}.{node.name}" if scope else node.name
        for each in node.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                self._follow_function(each, name, name)
            elif isinstance(each, ast.ClassDef):
                self._follow_class(each, name)

    def _follow_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: str, owner: str
    ) -> None:
        if node.name in _UNNOTED:
            return
        name = f"{scope}.{node.name}" if scope else node.name
        body = self._follow(node.body, name, owner, frozenset())
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        names = [each.arg for each in given if each.arg not in {"self", "cls"}]
        taken = [ast.Name(each, ast.Load()) for each in names]
        at = int(ast.get_docstring(node, clean=False) is not None)
        body[at:at] = self._note_all(node, taken, name, owner, frozenset())
        node.body = body

    def _list_return(self, node: ast.Return, scope: str) -> list[ast.stmt]:
        """Return a statement that gives a result, and before it the note of that result."""
        value = node.value
        if value is None or not scope:
            return [node]
        number = self._number(node.lineno, self._text(node.lineno), (RETURNS, scope))
        if isinstance(value, ast.Name | ast.Constant):
            return [self._note(NOTE, [ast.Constant(number), value], node), node]
        keep = ast.Assign(targets=[ast.Name(_RESULT, ast.Store())], value=value)
        ast.copy_location(keep, node)
        ast.copy_location(keep.targets[0], node)
        kept: list[ast.expr] = [ast.Constant(number), ast.Name(_RESULT, ast.Load())]
        node.value = ast.copy_location(ast.Name(_RESULT, ast.Load()), value)
        return [keep, self._note(NOTE, kept, node), node]

    def _note_all(
        self,
        node: ast.stmt,
        targets: Sequence[ast.expr],
        scope: str,
        owner: str,
        shared: frozenset[str],
    ) -> list[ast.stmt]:
        """Return the note of what a statement sets; none where that cannot be read again."""
        found: dict[str, _Set] = {}
        for each in targets:
            name = ast.unparse(each)
            read = ast.Name(each.id, ast.Load()) if isinstance(each, ast.Name) else self._read(each)
            if isinstance(each, ast.Subscript) and isinstance(node, ast.Assign):
                read = read or _read_again(node.value)
            elif isinstance(each, ast.Call):
                name, given = ast.unparse(each.func), each.args[0]
                read = _read_again(given) or self._read(given)
            root = name.partition(".")[0].partition("[")[0]
            where = owner if root in {"self", "cls"} else "" if root in shared else scope
            if read is not None:
                found[name] = (name, where, read)
        if not found:
            return []
        text = self._text(node.lineno)
        numbers = [self._number(node.lineno, text, own[:2]) for own in found.values()]
        reads = [read for *_, read in found.values()]
        return [self._note(NOTE, [ast.Constant(numbers[0]), *reads], node)]

    def _text(self, line: int) -> str:
        return self._lines[line - 1].strip()[:MOST_LINE]


def _list_set(node: ast.stmt) -> list[ast.expr]:
    """Return the names, and the paths of attributes, that a statement sets or changes."""
    if isinstance(node, ast.Assign):
        return [found for each in node.targets for found in _list_targets(each)]
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.AnnAssign) and node.value):
        return [*_list_targets(node.target)]
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return []
    if isinstance(call.func, ast.Name) and call.func.id == "setattr" and call.args:
        return [*_list_targets(call.args[0])]
    if _sets_up(call):
        return [call]
    if isinstance(call.func, ast.Attribute) and call.func.attr in CHANGING:
        return [*_list_targets(call.func.value)]
    return []


def _sets_up(call: ast.Call) -> bool:
    """Whether a call sets something of torch for the whole process, to one value."""
    path = ast.unparse(call.func)
    return len(call.args) == 1 and SETTER.fullmatch(path) is not None


def _list_targets(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what a target sets; of an item, what holds it too, unless its key is a constant."""
    if isinstance(node, ast.Tuple | ast.List):
        for each in node.elts:
            yield from _list_targets(each)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield node
    elif isinstance(node, ast.Subscript):
        yield node
        if not isinstance(node.slice, ast.Constant):
            yield from _list_targets(node.value)


def _read_again(node: ast.expr) -> ast.expr | None:
    """Return what reads an expression again that is a name or a constant; else None."""
    return node if isinstance(node, ast.Name | ast.Constant) else None


def _list_iterated(node: ast.stmt) -> list[ast.expr]:
    """Return what a loop goes through, as `names` of `sorted(names)` and of `names.items()`.

    It may be changed where no line of the script sets it, under another name.
    """
    held = node.iter if isinstance(node, ast.For | ast.AsyncFor) else None
    while isinstance(held, ast.Call):
        if held.args:
            held = held.args[0]
        else:
            held = held.func.value if isinstance(held.func, ast.Attribute) else None
    return [held] if isinstance(held, ast.Name | ast.Attribute) else []


def _list_taken(node: ast.For | ast.AsyncFor) -> list[ast.expr]:
    """Return what a loop sets in each turn, without the number of the turn."""
    found, called = [*_list_targets(node.target)], ""
    for each in ast.walk(node.iter):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            called = called or each.func.id
    if called == "range":
        return []
    return found[1:] if called == "enumerate" else found
