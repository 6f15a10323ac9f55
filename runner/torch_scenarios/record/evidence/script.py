"""The script of a run, parsed: what is around a line, and what leaves its block.

It is the script that was just recorded: it is read and never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, cached_property
from pathlib import Path

#: the part of a `match` that begins with a line
CASE = "case at "
#: bytes of a script that is parsed
MOST_SOURCE = 4 << 20
#: statements that leave a block
_JUMPS = (ast.Break, ast.Continue, ast.Return, ast.Raise)
#: lines that set what an expression reads
MOST_ORIGINS = 3
#: the same over several scripts, and folders in which an imported one is looked for
MOST_TRACES, MOST_FOLDERS = 12, 3
#: functions that are looked into from one on
MOST_REACHED = 200
#: what a line reads that differs between ranks by itself
OF_RANK = re.compile(
    r"rank|environ|getenv|hostname|listdir|glob|random|open\(|\bread|main_process|process_index|"
    r"by_node\b"
)
#: what names the rank of a process: no `lora_rank`, which is one of a matrix
_NAMES_RANK = re.compile(
    r"\b(?:(?:my|get|global|local|world|node|group|data|tensor|pipeline|parallel|dp|tp|pp)_)*rank\b"
    r"|\b(?:\w+_)?RANK\b|\bis_(?:\w+_)?(?:main|master)_process\b|\bis_(?:world_process|global)_zero\b"
    r"|\b(?:local_)?process_index\b|\bargs\.should_(?:save|log)\b"
)
#: a line that keeps the rank, or a variable of the environment, and makes nothing of it
_KEEPS_RANK = re.compile(r"[\w., ]+ = (?:int\()?[\w.]*(?:get_\w+\(|environ|getenv)(?!.* or ).*")
#: decorators that keep the answers of a function
_CACHES = re.compile(r"^(?:functools\.)?(?:lru_cache|cache|cached_property)\b")
#: calls that give an iterator
_ITERATORS = frozenset({"iter", "zip", "map", "filter", "enumerate", "islice", "chain", "cycle"})
#: what makes a method one that is read like a field
_PROPERTIES = frozenset({"property", "cached_property"})
#: calls by which one rank sends to all others what is then the same on all
_SENDS_TO_ALL = frozenset({"broadcast", "broadcast_object_list"})
#: calls that leave the program
_EXITS = frozenset({"exit", "_exit", "quit", "abort"})


#: how the first line of a statement of several lines ends
_OPEN = ("(", "[", "{", ",", "\\")


def place_at(file: str, line: int, folder: str) -> str:
    """Return where a line is, as reports show it: of a file in the folder from there on.

    >>> place_at("/home/me/model/net.py", 7, "/home/me"), place_at("/lib/net.py", 7, "/home/me")
    ('model/net.py:7', 'net.py:7')
    """
    path = Path(file)
    name = path.relative_to(folder) if folder and path.is_relative_to(folder) else path.name
    return f"{name}:{line}"


class Script:
    """A script, parsed: what stands around a line."""

    def __init__(self, file: str, text: str, tree: ast.Module) -> None:
        self.file = file
        self.tree = tree
        self._lines = text.splitlines()

    def frame(self, line: int) -> tuple[str, int, str]:
        """Return a line as a frame of a traceback has it: its file, its number, its text."""
        return self.file, line, self._lines[line - 1].strip()

    def has(self, line: int) -> bool:
        """Whether the script is so long: it may have been changed since its record."""
        return 0 < line <= len(self._lines)

    def text(self, line: int) -> str:
        """Return a line without its indent and its colon; of a statement of several lines, all."""
        text = self.frame(line)[2]
        if text.endswith(_OPEN):
            text = next(
                (
                    ast.unparse(each).split("\n")[0]
                    for each in ast.walk(self.tree)
                    if isinstance(each, ast.stmt) and each.lineno == line
                ),
                text,
            )
        if "#" in text:
            with suppress(SyntaxError):  # a head alone, or half a statement, is not parsed
                body = "pass" if text.partition("#")[0].rstrip().endswith(":") else ""
                text = ast.unparse(ast.parse(f"{text}\n {body}" if body else text)).split("\n")[0]
        return text.rstrip(":")[:120]

    def place(self, line: int, folder: str) -> str:
        """Return where a line is, as reports show it: `train.py:19`."""
        return place_at(self.file, line, folder)

    def quote(self, line: int, folder: str) -> str:
        """Return a line and where it is, as reports show both."""
        text, place = self.text(line), self.place(line, folder)
        return f"`{text}` ({place})"

    def find_statements(self, line: int) -> list[tuple[ast.stmt, str]]:
        """Return the statements around a line, innermost first, with the part of each it is in."""
        found: list[tuple[ast.stmt, str]] = []
        block: Sequence[ast.stmt] = self.tree.body
        while True:
            node = next((each for each in block if has_line(each, line)), None)
            if node is None:
                return found[::-1]
            head = getattr(node, "items", ())
            if head and node.lineno <= line <= end_of(head[-1].context_expr):
                return [(node, "items"), *found[::-1]]
            for name, part in _parts(node):
                if part and part[0].lineno <= line <= end_of(part[-1]):
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                        found.clear()
                    else:
                        found.append((node, name))
                        if isinstance(node, ast.With | ast.AsyncWith):
                            found.append((node, "items"))
                    block = part
                    break
            else:
                if isinstance(node, ast.For | ast.AsyncFor | ast.While):
                    found.append((node, "head"))
                return found[::-1]

    def scope(self, line: int) -> ast.AST:
        """Return the innermost function that a line is in, or the module."""
        found: ast.AST = self.tree
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and has_line(node, line):
                found = node
        return found

    def span(self, line: int) -> tuple[int, int]:
        """Return the first and the last line of the innermost statement there, or of its head."""
        first, last = line, line
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt) and node.lineno <= line:
                body = getattr(node, "body", None)
                end = max(node.lineno, body[0].lineno - 1) if body else end_of(node)
                if end >= line:
                    first, last = node.lineno, end
        return first, last

    def assigned(self, name: str, line: int) -> str:
        """Return the last assignment of a name before a line of its function; or nothing."""
        found = self.assignment(ast.Name(name), line)
        return f"{self.text(found)}, :{found}" if found else ""

    def assignment(self, target: ast.expr, line: int, *, in_parts: bool = False) -> int:
        """Return the line that last sets a name or an attribute before a line; 0 for none.

        A name is set in the same function, also by `with c as a`, an attribute anywhere in the
        file; `in_parts` counts what `a, b = c` sets too. Outside of functions a name may be set
        behind a line, in a loop.
        """
        text = ast.unparse(target)
        where = self.scope(line) if isinstance(target, ast.Name) else self.tree
        found = [
            at
            for node in ast.walk(where)
            for at, targets, _ in _list_set(node)
            if (at < line or where is self.tree)
            and any(
                ast.unparse(each) == text
                for each in (list_targets(targets) if in_parts else targets)
            )
        ]
        before = [at for at in found if at < line and isinstance(target, ast.Name)]
        return max(before or found, default=0)

    def settings(self, target: ast.expr) -> list[tuple[int, ast.expr]]:
        """Return all lines of the file that set a name or an attribute, and to what they do."""
        text = ast.unparse(target)
        return [
            (at, value)
            for node in ast.walk(self.tree)
            for at, targets, value in _list_set(node)
            if text in map(ast.unparse, targets)
        ]

    def values(self, line: int) -> list[ast.expr]:
        """Return what the assignments of a line set."""
        return [
            node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign) and node.lineno == line
        ]

    def constant(self, name: ast.expr, line: int) -> int:
        """Return the line that sets a name of the script's own which a function reads; 0 for none.

        It is the one statement outside of functions that sets it.
        """
        scope = self.scope(line)
        if not isinstance(name, ast.Name) or scope is self.tree:
            return 0
        own = {each.arg for each in ast.walk(scope) if isinstance(each, ast.arg)}
        found = [
            node.lineno
            for node in self.tree.body
            if isinstance(node, ast.Assign) and name.id in map(ast.unparse, node.targets)
        ]
        return found[0] if len(found) == 1 and name.id not in own else 0

    def assignments(self, target: ast.expr, line: int) -> list[int]:
        """Return the lines one of which has set a name or an attribute before a line, last first.

        They are several where an `if` sets a name in both of its parts, or in one and before it.
        """
        last, text = self.assignment(target, line), ast.unparse(target)
        found = [last] if last else []
        for node, part in (
            self.find_statements(last) if last and isinstance(target, ast.Name) else ()
        ):
            if not isinstance(node, ast.If) or has_line(node, line):
                continue
            other = [
                each.lineno
                for statement in (node.orelse if part == "body" else node.body)
                for each in ast.walk(statement)
                if isinstance(each, ast.Assign) and text in map(ast.unparse, each.targets)
            ]
            at = max(other, default=0) or self.assignment(target, node.lineno)
            if at < last and at not in (*found, 0):
                found.append(at)
        return found

    def nestings(self, outer: str, inner: str) -> list[int]:
        """Return the lines of a `with` of one lock that stand under the `with` of another one."""
        return [
            each.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.With) and outer in _list_locks(node)
            for each in ast.walk(node)
            if each is not node and isinstance(each, ast.With) and inner in _list_locks(each)
        ]

    def starts(self) -> list[int]:
        """Return the lines that start processes which run a Python function.

        Such as `Process(target=work)` and `spawn(work, args=(2,))`, not `generator.spawn(4)`.
        """
        return sorted(
            node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call)
            and (name := name_of(node.func))
            and (
                (name == "Process" and any(each.arg == "target" for each in node.keywords))
                or (
                    name in {"spawn", "start_processes"}
                    and (len(node.args) > 1 or {"args", "nprocs"} & {k.arg for k in node.keywords})
                )
            )
        )

    def runs(self, wanted: frozenset[str]) -> bool:
        """Whether the script, where it is run, calls one of some names, itself or by a function."""
        functions = [
            each
            for each in ast.walk(self.tree)
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        inner = {id(part) for each in functions for part in ast.walk(each)}
        called = {
            name_of(each.func)
            for each in ast.walk(self.tree)
            if isinstance(each, ast.Call) and id(each) not in inner
        }
        return bool(called & wanted) or any(self.reaches(each, wanted) for each in called)

    def starts_ranks(self) -> int:
        """Return the line that starts processes which make the process group; 0 for none.

        The script does not make one itself, as a rank does that starts further processes.
        """
        wanted = frozenset({"init_process_group"})
        if self.runs(wanted):
            return 0
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Call) or node.lineno not in self.starts():
                continue
            given = {each.arg: each.value for each in node.keywords}
            started = given.get("target") or given.get("fn") or next(iter(node.args), None)
            names = {name_of(each) for each in ast.walk(started)} if started is not None else set()
            if any(self.reaches(each, wanted) for each in names if each):
                return node.lineno
        return 0

    def changes(self, target: ast.expr, line: int) -> int:
        """Return the last line that puts a list in another order after it is set, before a line.

        That is a call for its effect alone, as `random.shuffle(names)` and `names.sort()`; 0 for
        none.
        """
        text, since = ast.unparse(target), self.assignment(target, line)
        found = [
            node.lineno
            for node in ast.walk(self.scope(line))
            if isinstance(node, ast.Expr)
            and since < node.lineno < line
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute | ast.Name)
            and _reorders(node.value, text)
        ]
        return max(found, default=0)

    def origins(self, value: ast.expr, line: int) -> list[int]:
        """Return the lines that set what an expression reads, and what these read.

        What a function of the script gives is what its one `return` reads there.
        """
        found: list[int] = []
        waiting = [(value, line)]
        while waiting and len(found) < MOST_ORIGINS:
            read, before = waiting.pop(0)
            for node in ast.walk(read):
                if not isinstance(node, ast.Name | ast.Attribute):
                    continue
                for at in self.assignments(node, before):
                    if at in found or (self.keeps_rank(at) and read is not value):
                        continue
                    found.append(at)
                    for each in ast.walk(self.tree):
                        if isinstance(each, ast.Assign) and each.lineno == at:
                            waiting.append((each.value, before))
                            waiting += self._find_returned(each.value)
        return found[:MOST_ORIGINS]

    def _find_returned(self, value: ast.expr) -> list[tuple[ast.expr, int]]:
        """Return what a call of the script's own function gives, with the line of its `return`."""
        at = self.returns(value)
        return [
            (each.value, at)
            for each in ast.walk(self.tree)
            if isinstance(each, ast.Return) and each.lineno == at and each.value is not None
        ]

    def returns(self, value: ast.expr) -> int:
        """Return the line of the one `return` of the script's function that is called; 0 for none.

        The function is known by its name alone, that of a method too.
        """
        if not isinstance(value, ast.Call):
            return 0
        name = name_of(value.func)
        found = [
            each.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef) and node.name == name
            for each in ast.walk(node)
            if isinstance(each, ast.Return) and each.value is not None
        ]
        return found[0] if len(found) == 1 else 0

    def functions(self, name: str) -> Iterator[tuple[Script, ast.FunctionDef]]:
        """Yield the functions of a name, methods too, of this script or of those it imports."""
        for source in (self, *self.imported()):
            for node in ast.walk(source.tree):
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    yield source, node

    def reaches(self, name: str, wanted: Collection[str]) -> bool:
        """Whether a function, or one that it calls, of the scripts, calls one of some names.

        A name that the scripts define is their own: its code is read instead.
        """
        waiting, known = [name], {name}
        while waiting and len(known) < MOST_REACHED:
            name = waiting.pop()
            for _, begin in (*self.functions(name), *self.makers(name)):
                for node in ast.walk(begin):
                    called = getattr(node, "func", None) if isinstance(node, ast.Call) else None
                    text = name_of(called)
                    if text in wanted and not self._defines(text):
                        return True
                    if text and text not in known:
                        known.add(text)
                        waiting.append(text)
        return False

    def _defines(self, name: str) -> bool:
        """Whether this script, or one that it imports, has a function or a class of a name."""
        return any(
            isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
            for source in (self, *self.imported())
            for node in ast.walk(source.tree)
        )

    def makers(self, name: str) -> Iterator[tuple[Script, ast.FunctionDef]]:
        """Yield what runs where a class of a name, of the scripts, is called: its `__init__`."""
        for source in (self, *self.imported()):
            for node in ast.walk(source.tree):
                if isinstance(node, ast.ClassDef) and node.name == name:
                    for each in node.body:
                        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                            yield source, each

    def imported(self) -> Iterator[Script]:
        """Yield the scripts of the same folder, or of one around it, that this one imports."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                head = f"{node.module}." if node.module else ""
                names = [*filter(None, [node.module]), *(head + each.name for each in node.names)]
            else:
                continue
            for name in dict.fromkeys(names):
                path = f"{name.replace('.', '/')}.py"
                near = (folder / path for folder in [*Path(self.file).parents][:MOST_FOLDERS])
                found = next(filter(None, map(script_at, map(str, near))), None)
                if found is not None and found is not self:
                    yield found

    def returned(self, call: ast.Call) -> tuple[Script, ast.Return] | None:
        """Return the one `return` of the function that is called; None for none, or for several.

        The function is known by its name alone, and may be one of another script (`imported`).
        """
        name = name_of(call.func)
        found = [
            (source, each)
            for source, function in self.functions(name)
            for each in ast.walk(function)
            if isinstance(each, ast.Return) and each.value is not None
        ]
        return found[0] if len(found) == 1 else None

    def gives(self, call: ast.Call, line: int) -> Iterator[tuple[Script, int, ast.expr]]:
        """Yield what a call of the scripts' own gives: its script, its line, and an expression.

        Of a function that is the one `return`, of a class what its `__init__` keeps, and of an
        object of a class, made before a line, what its `__call__` returns.
        """
        given = self.returned(call)
        if given is not None and given[1].value is not None:
            yield given[0], given[1].lineno, given[1].value
            return
        for source, begin in self.makers(name_of(call.func)):
            for node in ast.walk(begin):
                for at, targets, value in _list_set(node):
                    if any(ast.unparse(each).startswith("self.") for each in targets):
                        yield source, at, value
        kind = self._kind_of(call.func, line)
        for source in (self, *self.imported()) if kind else ():
            for node in ast.walk(source.tree):
                if isinstance(node, ast.ClassDef) and node.name == kind:
                    for each in _list_returned(node, "__call__"):
                        yield source, each.lineno, each.value or call

    def _kind_of(self, node: ast.expr, line: int) -> str:
        """Return the name of the class that an object is of, by what it is set to; or nothing."""
        at = self.assignment(node, line, in_parts=True) if isinstance(node, ast.Name) else 0
        name = ast.unparse(node)
        for each in ast.walk(self.tree):
            for set_at, targets, value in _list_set(each):
                for target in targets if at and set_at == at else ():
                    parts = [(target, value)]
                    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                        parts = [*zip(target.elts, value.elts, strict=False)]
                    for one, made in parts:
                        if ast.unparse(one) == name and isinstance(made, ast.Call):
                            return name_of(made.func)
        return ""

    def traces(
        self, value: ast.expr, line: int, *, in_parts: bool = False
    ) -> list[tuple[Script, int]]:
        """Return the lines of all scripts that set what an expression reads, and what these read.

        What a function gives is what its one `return` reads. The nearest lines come first. With
        `in_parts` what `a, b = c` sets is read from `c`.
        """
        found: dict[tuple[str, int], Script] = {}
        waiting: list[tuple[Script, ast.expr, int]] = [(self, value, line)]
        followed: set[tuple[str, int, int]] = set()  # a function may give what its own name gives
        while waiting and len(found) < MOST_TRACES:
            source, read, before = waiting.pop(0)
            if (source.file, before, id(read)) in followed:
                continue
            followed.add((source.file, before, id(read)))
            for node in ast.walk(read):
                for where, at, given in (
                    source.gives(node, before) if isinstance(node, ast.Call) else ()
                ):
                    if not isinstance(given, ast.Name):
                        found.setdefault((where.file, at), where)
                    waiting.append((where, given, at))
                if not isinstance(node, ast.Name | ast.Attribute):
                    continue
                where, at = source.held(node, before) or (
                    source,
                    source.assignment(node, before, in_parts=in_parts),
                )
                at = at or source.constant(node, before)
                known = source._list_fields(node, is_set=bool(at))
                for where, field_at, given in known:
                    found.setdefault((where.file, field_at), where)
                    waiting.append((where, given, field_at))
                if at and not known and (where.file, at) not in found:
                    found[where.file, at] = where
                    set_here = [
                        (targets, read_from)
                        for each in ast.walk(where.tree)
                        for set_at, targets, read_from in _list_set(each)
                        if set_at == at
                    ]
                    text = ast.unparse(node)
                    own = [each for each in set_here if text in map(ast.unparse, each[0])]
                    waiting += [(where, read_from, at) for _, read_from in own or set_here]
        return [(source, at) for (_, at), source in found.items()]

    def asks_rank(self, line: int) -> bool:
        """Whether a line reads what differs between ranks by itself."""
        return OF_RANK.search(self.text(line)) is not None

    def names_rank(self, line: int) -> bool:
        """Whether a line asks which rank it is on."""
        return _NAMES_RANK.search(self.text(line)) is not None

    def tests_rank(self, value: ast.expr, line: int) -> bool:
        """Whether an expression asks which rank it is on, itself or by what sets its names."""
        set_by = [source.text(at) for source, at in self.traces(value, line)]
        return any(map(_NAMES_RANK.search, (ast.unparse(value), *set_by)))

    def chooses(self, line: int) -> bool:
        """Whether a condition that reads the rank chooses what a line sets: `a if rank else b`."""
        return any(
            _NAMES_RANK.search(text)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.IfExp) and node.lineno == line
            for text in (
                ast.unparse(node.test),
                *(source.text(at) for source, at in self.traces(node.test, line)),
            )
        )

    def keeps_rank(self, line: int) -> bool:
        """Whether a line keeps which rank it is on, and makes nothing of it.

        Nor does one by which ranks differ that sets what one of them sends to all.
        """
        return _KEEPS_RANK.fullmatch(self.text(line)) is not None or line in self._sent

    @cached_property
    def _sent(self) -> frozenset[int]:
        """The lines that set what one rank sends to all others, behind them."""
        found = set()
        for call in ast.walk(self.tree):
            if not isinstance(call, ast.Call) or name_of(call.func) not in _SENDS_TO_ALL:
                continue
            passed = call.args[:1] or [each.value for each in call.keywords[:1]]
            for value in passed:
                if isinstance(value, ast.Name | ast.Attribute):
                    found.add(self.assignment(value, call.lineno))
        return frozenset(found)

    def held(self, node: ast.expr, line: int) -> tuple[Script, int] | None:
        """Return the line of a class by which an object of it, made before a line, has a value."""
        owner = node.value if isinstance(node, ast.Attribute) else None
        at = self.assignment(owner, line) if isinstance(owner, ast.Name) else 0
        made = {
            name_of(each.func)
            for each in ast.walk(self.tree)
            if isinstance(each, ast.Call) and at and each.lineno == at
        }
        for source in (self, *self.imported()) if made else ():
            for each in ast.walk(source.tree):
                if isinstance(each, ast.ClassDef) and each.name in made:
                    wanted = f"self.{node.attr}"  # type: ignore[attr-defined]
                    found = [
                        line.lineno
                        for line in ast.walk(each)
                        if isinstance(line, ast.Assign)
                        and wanted in {ast.unparse(target) for target in line.targets}
                    ]
                    if found:
                        return source, found[-1]
        return None

    def _list_fields(self, node: ast.expr, *, is_set: bool) -> list[tuple[Script, int, ast.expr]]:
        """Return the option of the command line that an attribute is, or what a class has of it."""
        if not isinstance(node, ast.Attribute):
            return []
        option = self.option(node)
        if option is not None:
            return [(*option[0], option[1])]
        return [] if is_set else self._list_of_class(node.attr)

    def _list_of_class(self, name: str) -> list[tuple[Script, int, ast.expr]]:
        """Return what a class of the scripts has of a name: a field's value, a property's answer.

        Nothing where several classes have it.
        """
        found: list[list[tuple[Script, int, ast.expr]]] = []
        for source in (self, *self.imported()):
            for node in ast.walk(source.tree):
                for each in node.body if isinstance(node, ast.ClassDef) else ():
                    if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == name:
                        found += [[(source, each.lineno, each.value)]] if each.value else []
                    if isinstance(each, ast.FunctionDef) and each.name == name:
                        if not _PROPERTIES & {name_of(at) for at in each.decorator_list}:
                            continue
                        returns = (at for at in ast.walk(each) if isinstance(at, ast.Return))
                        found += [[(source, at.lineno, at.value) for at in returns if at.value]]
        return found[0] if len(found) == 1 else []

    def option(
        self, node: ast.Attribute, *, is_fixed: bool = False
    ) -> tuple[tuple[Script, int], ast.expr] | None:
        """Return the line that adds an option of the command line with a default that it computes.

        It is the one that an attribute has the name of: `args.steps` is that of `--steps`. With
        `is_fixed` its default may be a number too.
        """
        for source in (self, *self.imported()):
            for each in ast.walk(source.tree):
                if not isinstance(each, ast.Call) or name_of(each.func) != "add_argument":
                    continue
                names = [arg.value for arg in each.args if isinstance(arg, ast.Constant)]
                given = {named.arg: named.value for named in each.keywords}
                held = given.get("dest")
                names += [held.value] if isinstance(held, ast.Constant) else []
                default = given.get("default")
                is_own = node.attr in {str(name).lstrip("-").replace("-", "_") for name in names}
                if not is_own or default is None:
                    continue
                if is_fixed or not isinstance(default, ast.Constant):
                    return (source, default.lineno), default
        return None

    def generator(self, value: ast.expr) -> tuple[Script, int] | None:
        """Return the loop in which a generator that is called yields, with the script that has it.

        That is this script, or one beside it which this one imports the function of.
        """
        if not isinstance(value, ast.Call):
            return None
        name = name_of(value.func)
        for script, node in self.functions(name):
            for loop in ast.walk(node):
                if isinstance(loop, ast.For) and any(
                    isinstance(each, ast.Yield) for each in ast.walk(loop)
                ):
                    return script, loop.lineno
        return None

    def is_iterator(self, value: ast.expr, line: int) -> bool:
        """Whether a name is surely an iterator before a line, which a second loop finds empty."""
        set_at = self.assignment(value, line)
        called = self.called(set_at) if set_at else set()
        is_made = any(
            isinstance(each, ast.Yield | ast.YieldFrom)
            for name in called
            for _, function in self.functions(name)
            for each in ast.walk(function)
        )
        is_written = any(
            isinstance(each, ast.Assign)
            and each.lineno == set_at
            and isinstance(each.value, ast.GeneratorExp)
            for each in ast.walk(self.tree)
        )
        return bool(called & _ITERATORS) or is_made or is_written

    def environment(self, names: Collection[str]) -> int:
        """Return the last line that sets one of some variables of the environment; 0 for none."""
        found = [
            node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Subscript)
            and ast.unparse(target.value) in {"os.environ", "environ"}
            and isinstance(target.slice, ast.Constant)
            and target.slice.value in names
        ]
        return max(found, default=0)

    def called(self, line: int) -> set[str]:
        """Return the names of the functions and classes that a line calls."""
        return {name_of(call.func) for call in self.calls(line)}

    def calls(self, line: int) -> list[ast.Call]:
        """Return the calls that a line is a part of, the outermost first."""
        return [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and has_line(node, line)
        ]

    def argument(
        self, line: int, names: Collection[str], positions: Mapping[str, int]
    ) -> ast.expr | None:
        """Return what a call in a line passes by one of some names, or at its function's place."""
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Call) or not has_line(node, line):
                continue
            for keyword in node.keywords:
                if keyword.arg in names:
                    return keyword.value
            name = name_of(node.func)
            at = positions.get(name, len(node.args))
            if at < len(node.args):
                return node.args[at]
        return None

    def condition(self, line: int) -> ast.If | ast.IfExp | None:
        """Return the `if` whose condition is in a line."""
        return next(
            (
                node
                for node in ast.walk(self.tree)
                if isinstance(node, ast.If | ast.IfExp) and node.test.lineno == line
            ),
            None,
        )

    def choice_part(self, test_line: int, line: int) -> str:
        """Return in which part of `x if test else y` a line communicates, as far as it may tell.

        Empty where no such expression with its test in `test_line` reaches the line.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.IfExp) and node.test.lineno == test_line:
                calls = {
                    name
                    for name in ("body", "orelse")
                    for each in ast.walk(getattr(node, name))
                    if isinstance(each, ast.Call)
                }
                if has_line(node, line) and calls:
                    return "body" if "body" in calls else "orelse"
        return ""

    def loop(self, line: int) -> tuple[int, int] | None:
        """Return the first and last line of the loop whose head is in a line."""
        node = self.find_loop(line)
        return (node.lineno, end_of(node)) if node is not None else None

    def find_loop(self, line: int) -> ast.For | ast.AsyncFor | ast.While | None:
        """Return the loop whose head is in a line: a `while` begins there, or has its condition."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.For | ast.AsyncFor) and node.lineno == line:
                return node
            if isinstance(node, ast.While) and line in {node.lineno, node.test.lineno}:
                return node
        return None

    def find_for(self, line: int) -> ast.For | None:
        """Return the `for` whose head is in a line."""
        node = self.find_loop(line)
        return node if isinstance(node, ast.For) else None

    def jump_under(self, line: int) -> tuple[str, str, int] | None:
        """Return what leaves the block under the `if` whose condition stands in a line.

        That is the part of it, `body` or `orelse`, the statement in a word, and its line.
        """
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.If) or node.test.lineno != line:
                continue
            for name, part in (("body", node.body), ("orelse", node.orelse)):
                for each in _list_run(part):
                    word = _jump_word(each)
                    if word:
                        return name, word, each.lineno
        return None

    def cached(self, line: int) -> ast.FunctionDef | None:
        """Return the innermost function that a line is in, where its answers are cached."""
        scope = self.scope(line)
        if isinstance(scope, ast.FunctionDef) and any(
            _CACHES.search(ast.unparse(each)) for each in scope.decorator_list
        ):
            return scope
        return None

    def compiled(self, line: int) -> ast.FunctionDef | None:
        """Return the function that begins in a line, with its first decorator or its `def`.

        A frame of compiled code is at that line, and one of Python's own is never.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef):
                first = min((each.lineno for each in node.decorator_list), default=node.lineno)
                if first <= line <= node.lineno:
                    return node
        return None

    def handler(self, line: int) -> tuple[str, int]:
        """Return the function of a line that handles a signal, and the line that says so."""
        scope = self.scope(line)
        for node in ast.walk(self.tree) if isinstance(scope, ast.FunctionDef) else ():
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in {"signal.signal", "signal"}
                and len(node.args) > 1
                and ast.unparse(node.args[1]).rpartition(".")[2] == scope.name  # type: ignore[attr-defined]
            ):
                return scope.name, node.lineno  # type: ignore[attr-defined]
        return "", 0

    def jump_before(self, line: int) -> ast.If | None:
        """Return the last `if` before a line whose body leaves its block, in the same function."""
        found = [
            node
            for node in ast.walk(self.scope(line))
            if isinstance(node, ast.If)
            and end_of(node) < line
            and isinstance([*_list_run(node.body)][-1], _JUMPS)
        ]
        return max(found, key=lambda each: each.lineno, default=None)


#: whether scripts may be opened: a record may be another person's, and names any file
_MAY_OPEN: ContextVar[bool] = ContextVar("may_open", default=True)


@contextmanager
def closed_scripts() -> Iterator[None]:
    """Let no script be opened: what is known of it is in the record alone."""
    token = _MAY_OPEN.set(False)
    try:
        yield
    finally:
        _MAY_OPEN.reset(token)


def script_at(file: str) -> Script | None:
    """Return a script of the user's own; None where it may not, or cannot, be read."""
    return _parse(file) if _MAY_OPEN.get() else None


@cache
def _parse(file: str) -> Script | None:
    path = Path(file)
    try:
        if not path.is_file() or path.stat().st_size > MOST_SOURCE:
            return None
        text = path.read_text(encoding="utf-8")
        return Script(file, text, ast.parse(text))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def find_one_call(file: str, name: str) -> tuple[str, int]:
    """Return the line of a script that calls a name, and its number; 0 for none or several."""
    source = script_at(file)
    lines = {
        node.lineno
        for node in (ast.walk(source.tree) if source is not None else ())
        if isinstance(node, ast.Call) and name_of(node.func) == name
    }
    if source is None or len(lines) != 1:
        return "", 0
    (line,) = lines
    return source.text(line), line


def list_targets(targets: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """Yield what an assignment sets, one by one: of `a, b = c` both `a` and `b`."""
    for each in targets:
        if isinstance(each, ast.Tuple | ast.List):
            yield from list_targets(each.elts)
        else:
            yield each


def _list_set(node: ast.AST) -> list[tuple[int, list[ast.expr], ast.expr]]:
    """Return what a statement sets: its line, the names and attributes, and what it sets them to.

    A `with c as a` sets `a` by what `c` gives, and `a, b = c, d` sets each by its own.
    """
    if isinstance(node, ast.Assign):
        (target, *more), value = node.targets, node.value
        if (
            not more
            and isinstance(target, ast.Tuple | ast.List)
            and isinstance(value, ast.Tuple | ast.List)
            and len(target.elts) == len(value.elts)
            and not any(isinstance(each, ast.Starred) for each in (*target.elts, *value.elts))
        ):
            pairs = zip(target.elts, value.elts, strict=True)
            return [(node.lineno, [one], given) for one, given in pairs]
        return [(node.lineno, node.targets, value)]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return [(node.lineno, [node.target], node.value)]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [
            (each.context_expr.lineno, [each.optional_vars], each.context_expr)
            for each in node.items
            if each.optional_vars is not None
        ]
    return []


def _list_returned(kind: ast.ClassDef, name: str) -> Iterator[ast.Return]:
    """Yield what a method of a class returns."""
    for function in kind.body:
        if isinstance(function, ast.FunctionDef) and function.name == name:
            for each in ast.walk(function):
                if isinstance(each, ast.Return) and each.value is not None:
                    yield each


def _list_locks(node: ast.With) -> set[str]:
    return {ast.unparse(each.context_expr) for each in node.items}


def end_of(node: ast.stmt | ast.expr | ast.excepthandler) -> int:
    """Return the last line of a part of a script."""
    return node.end_lineno or node.lineno


def has_line(node: ast.stmt | ast.expr | ast.excepthandler, line: int) -> bool:
    """Whether a line is one of those of a part of a script."""
    return node.lineno <= line <= end_of(node)


def name_of(node: ast.AST | None) -> str:
    """Return the last part of a name, as `step` of `optimizer.step`; nothing of other expressions.

    >>> name_of(ast.parse("optimizer.step", mode="eval").body)
    'step'
    """
    return str(getattr(node, "attr", getattr(node, "id", "")))


#: methods of a list, and functions that take one, which change its order
_REORDERING = frozenset({"shuffle", "sort", "reverse", "insert"})


def _reorders(call: ast.Call, text: str) -> bool:
    """Whether a call puts what is written as `text` in another order, in place."""
    name = name_of(call.func)
    of = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return name in _REORDERING and text in (of, *map(ast.unparse, call.args[:1]))


def _list_run(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements that run one after another, those under a `with` too."""
    for each in block:
        yield each
        if isinstance(each, ast.With | ast.AsyncWith):
            yield from _list_run(each.body)


def _jump_word(node: ast.stmt) -> str:
    """Return `break`, `continue`, `return`, `raise` or a call that ends the program; or nothing."""
    if isinstance(node, _JUMPS):
        return type(node).__name__.lower()
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return ast.unparse(node.value) if name in _EXITS else ""
    return ""


def list_blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements that run one after another."""
    for each in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(each, name, None)
            if isinstance(block, list):
                yield block


def _parts(node: ast.stmt) -> Iterator[tuple[str, Sequence[ast.stmt]]]:
    """Yield the blocks of a statement by name."""
    for name in ("body", "orelse", "finalbody"):
        part = getattr(node, name, None)
        if isinstance(part, list) and part and isinstance(part[0], ast.stmt):
            yield name, part
    for handler in getattr(node, "handlers", ()):
        yield "except", handler.body
    for case in getattr(node, "cases", ()):
        yield f"{CASE}{case.pattern.lineno}", case.body
