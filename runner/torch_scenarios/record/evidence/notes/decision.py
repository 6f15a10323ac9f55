"""Which way a script goes: each `if` with its values, each turn of a loop, each error it catches.

A hang begins where ranks go different ways, and calls show that too late: a rank that skipped a
step calls from the same line, one turn on. So the user's own files are compiled with a note at each
decision, in the process that runs them::

    if loss < best:          if (loss < best if traced() else decide(7, loss < best, loss, best)):
    for batch in loader:     traced() or decide(8, False)
                             for batch in loader: traced() or decide(8, True); ...
    except OSError:          except OSError: traced() or catch(9); ...
    with suppress(OSError):  with suppress(OSError): traced() or enter(9); ...
                             traced() or leave(9)
    if last and rank == 0:   if (... decide(2, last and read(2, rank == 0, 1, rank), last)):
    done or agree(done)      (done if traced() else keep(3, done)) or agree(done)
    any(ask(p) for p in ps)  any(ask(p) for p in ps if traced() or decide(5, True))
    list(names)              list(names if traced() else order(4, names))
    fit(max_epochs=left())   fit(max_epochs=left() if traced() else give(6, left()))
    Trainer(model, **own)    Trainer(model ..., **(own if traced() else give(7, own)))
    self.log_dict(found)     self.log_dict((found if traced() else log(8, found)))

Lines, tracebacks and what `inspect` shows stay as they are. Nothing is written to `__pycache__`.
What torch compiles is compiled without the notes. Notes are counted in memory and written before
the next call. Values are small: numbers, strings, sizes. No tensor is kept; what a condition reads
as a number of the CPU is read, as the condition does. This runs in the user's own process: it
imports the standard library alone.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import functools
import importlib.machinery
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torch_scenarios.record.evidence.frame import FIRST_TURN, Repetition
from torch_scenarios.record.evidence.notes.assignment import (
    MOST_CHANGES,
    MOST_NOTED,
    NOTE,
    SETS,
    AssignmentNotes,
    describe_set,
)
from torch_scenarios.record.evidence.notes.value_text import (
    HOLDS,
    MOST_KEYS,
    MOST_WORDS,
    describe_given,
    shorten_value,
)

#: set to 0, a script runs without notes
SWITCH = "SCENARIO_RECORD_DECISIONS"

#: names that the notes have among Python's own
_TRACED, _DECIDE = "__scenario_traced__", "__scenario_decide__"
_CATCH, _ATTRIBUTE = "__scenario_catch__", "__scenario_attribute__"
_ORDER, _HASH = "__scenario_order__", "__scenario_hash__"
_KEEP, _READ = "__scenario_keep__", "__scenario_read__"
_ENTER, _LEAVE = "__scenario_enter__", "__scenario_leave__"
_GIVE, _ANSWER = "__scenario_give__", "__scenario_answer__"
_LOG = "__scenario_log__"
#: bytes of a file that gets notes; values of a decision
MOST_SOURCE, MOST_VALUES = 1 << 21, 6
#: characters of a condition
MOST_TEXT = 120
#: times that one place decides between two calls from which on its values are not read
MOST_READ = 256
#: errors that are kept between two calls
MOST_CAUGHT = 4
#: times that what a place gives a call is noted; of what holds others by name
MOST_GIVEN, MOST_WHOLE = 64, 4

_SETS = (set, frozenset)
#: functions that stop at the first element that decides
_FIRSTS = frozenset({"any", "all"})
#: functions that go through what they get, in its order
_ORDERED = frozenset({"list", "tuple", "enumerate"})
#: functions whose results are no sets
_UNSET = frozenset({"range", "zip", "enumerate", "sorted", "list", "tuple", "reversed", "map"})
#: functions and methods that call nothing of a script's own
_PLAIN = frozenset(
    {
        *("abs", "bool", "dict", "float", "getattr", "hasattr", "int", "isinstance", "len", "list"),
        *("max", "min", "repr", "round", "set", "sorted", "str", "sum", "tuple", "type", "zip"),
        *("clone", "cpu", "cuda", "decode", "detach", "dim", "encode", "endswith", "float"),
        *("format", "get", "item", "items", "join", "keys", "lower", "numel", "replace", "reshape"),
        *("size", "split", "startswith", "strip", "to", "tolist", "upper", "values", "view"),
    }
)
#: contexts that keep errors to themselves by their name
_KEEPERS = re.compile(
    r"\w*(?:suppress|ignor|swallow|toler|catch|safe|skip|guard|retr)\w*", re.IGNORECASE
)
#: cases of a `match` that are counted
MOST_CASES = 8
#: names of conditions that are the same on every rank
_CONSTANT = frozenset({"__name__", "TYPE_CHECKING"})


class DecisionPlace:
    """A place that decides: its kind (`if`, `for`), its line, and what its condition reads."""

    __slots__ = ("file", "kind", "line", "names", "text")

    def __init__(self, kind: str, file: str, line: int, text: str, names: Sequence[str]) -> None:
        """Keep what is known of the place."""
        self.kind, self.file, self.line, self.text, self.names = kind, file, line, text, names


class Decisions:
    """What a process decided since its last call, by the number of the place."""

    def __init__(self, describe: Callable[[BaseException], tuple[str, list[list[Any]]]]) -> None:
        """Know no place; `describe` gives an error's words and where it was raised."""
        self.places: list[DecisionPlace] = []
        #: `argv` and `cwd` of the program that sends its functions here, where one does
        self.program: dict[str, Any] = {}
        #: number of a place -> how often yes, how often no, what it read last; an `if` that led in
        #: and then did not keeps what it read when it did
        self.pending: dict[int, list[Any]] = {}
        #: errors that were caught: the number of the place, words, where they were raised
        self.caught: list[tuple[int, str, list[list[Any]]]] = []
        #: what makes the order of sets this process's own, where it was forked; None leaves it
        self.salt: int | None = None
        #: what errors say that go through the body of a `with`, until it is known whether they
        #: leave it; not the errors, whose frames would keep a script's tensors alive
        self._held: dict[tuple[int, int], tuple[str, list[list[Any]]]] = {}
        self._describe = describe
        self._written: set[int] = set()
        #: how often what a place gives a call is still noted
        self._given: dict[int, int] = {}
        #: the names that a place has logged
        self._logged: dict[int, set[str]] = {}
        #: by the number of a place that sets a value: that value as it was last, and how often its
        #: changes are still noted; a list for each variable, whatever line sets it
        self._set: dict[int, list[Any]] = {}
        self._variables: dict[tuple[str, Sequence[str]], list[Any]] = {}
        self._noted = 0
        #: what later parts of an `and` or `or` have read, by place and thread: by their number
        self._parts: dict[tuple[int, int], dict[int, Any]] = {}
        #: loops that turn for long without a call; what is called with one that is never left
        self._repetitions: dict[int, Repetition] = {}
        self.end_in: Callable[..., None] | None = None

    def decide(self, number: int, test: Any, *values: Any) -> bool:
        """Count which way a place goes; returns whether it is yes."""
        is_true = bool(test)
        found = self.pending.get(number)
        if found is None:
            found = self.pending[number] = [0, 0, ()]
        found[not is_true] += 1
        if found[0] + found[1] >= FIRST_TURN:
            self._look_at_loop(number, found[0] + found[1])
        if not is_true and found[0] and self.places[number].kind == "if":
            self._take_parts(number, len(values))
            return False  # what led into it, since the last call, says more than what did not
        if values and found[0] + found[1] < MOST_READ:
            found[2] = tuple(map(shorten_value, values))
            if self._parts:
                found[2] += self._take_parts(number, len(values))
        return is_true

    def _look_at_loop(self, number: int, count: int) -> None:
        """Ask whether a loop is never left that has turned so often without a call."""
        if self.end_in is None or self.places[number].kind not in {"if", "while"}:
            return
        found = self._repetitions.setdefault(number, Repetition())
        frame = sys._getframe(2)
        if found.turn(count, frame):
            draws = found.draws
            self._repetitions.clear()
            end_in, self.end_in = self.end_in, None
            end_in(frame, draws=draws)

    def read(self, number: int, value: Any, at: int, *values: Any) -> Any:
        """Keep what a later part of a condition has read, as the names from `at` on; returns it.

        It is read only where the parts before it leave the condition open.
        """
        found = self.pending.get(number)
        if found is None or found[0] + found[1] < MOST_READ:
            parts = self._parts.setdefault((number, threading.get_ident()), {})
            parts.update((at + each, shorten_value(held)) for each, held in enumerate(values))
        return value

    def _take_parts(self, number: int, first: int) -> tuple[Any, ...]:
        """Return what later parts of a condition have read; None for a name that was not."""
        parts = self._parts.pop((number, threading.get_ident()), None)
        if parts is None:
            return ()
        return tuple(map(parts.get, range(first, len(self.places[number].names))))

    def keep(self, number: int, value: Any, *values: Any) -> Any:
        """Count whether a part of an `and` or `or` is true; returns it."""
        self.decide(number, value, *values)
        return value

    def answer(self, number: int, value: Any, *values: Any) -> Any:
        """Count which way a function answers that returns yes or no; returns what it does.

        A comparison of tensors answers neither, and is not looked at.
        """
        if value is True or value is False:
            self.decide(number, value, *values)
        return value

    def give(self, number: int, value: Any) -> Any:
        """Note what a call is given, as a number, a name or a dict of them; returns it."""
        left = self._given.get(number, MOST_GIVEN)
        if left > 0 and (words := describe_given(value)) is not None:
            self._given[number] = left - (MOST_GIVEN // MOST_WHOLE if words[0] == HOLDS else 1)
            self.decide(number, number >= 0)
            self.pending[number][2] = words
        return value

    def log(self, number: int, value: Any) -> Any:
        """Note the names by which a place logs, each of them once; returns what it logs by.

        A framework that averages over the ranks does so name by name.
        """
        names = [value] if value.__class__ is str else [*value] if isinstance(value, dict) else []
        known = self._logged.setdefault(number, set())
        for name in names:
            if name.__class__ is str and name not in known and len(known) < MOST_KEYS:
                known.add(name)
                self.decide(number, number >= 0)
                found = self.pending[number]
                found[2] = (*found[2], name[:MOST_WORDS])
        return value

    def note(self, number: int, *values: Any) -> None:
        """Note the values that a line has set, where they are others than before.

        They have numbers that follow one another.
        """
        if self._noted > MOST_NOTED:
            return
        for own, value in enumerate(values, number):
            variable = self._set.get(own) or self._know(own)
            words = describe_set(value) if variable[1] > 0 else None
            if words is not None and words != variable[0]:
                variable[0], variable[1] = words, variable[1] - 1
                self._noted += 1
                self.pending.pop(own, None)  # it is behind what was set before
                self.pending[own] = [1, 0, words]

    def _know(self, number: int) -> list[Any]:
        """Return what is known of the variable that a place sets."""
        at = self.places[number]
        found = self._variables.setdefault((at.file, tuple(at.names)), [None, MOST_CHANGES])
        self._set[number] = found
        return found

    def catch(self, number: int) -> None:
        """Keep the error that a place catches."""
        error = sys.exc_info()[1]
        if error is not None:
            self._note(number, *self._describe(error))

    def _note(self, number: int, words: str, frames: list[list[Any]]) -> None:
        self.decide(number, number >= 0)
        del self.caught[: 1 - MOST_CAUGHT]
        self.caught.append((number, words, frames))

    def enter(self, number: int, fails: int) -> None:
        """Keep what goes wrong in the body of a `with`; forget it where that begins."""
        key, error = (number, threading.get_ident()), sys.exc_info()[1]
        self._held.pop(key, None)
        if fails and isinstance(error, Exception):
            self._held[key] = self._describe(error)

    def leave(self, number: int) -> None:
        """Note the error that a `with` has kept to itself: the rank goes on behind it."""
        held = self._held.pop((number, threading.get_ident()), None)
        if held is not None:
            self._note(number, *held)

    def order(self, number: int, value: Any) -> Any:
        """Note a set of strings that the script goes through; returns it in the order it has here.

        Hashes of strings differ between processes, and not between those that were forked from one:
        these get the order that each would have for itself.
        """
        if value.__class__ not in _SETS or len(value) < 2:
            return value
        if not any(isinstance(each, str | bytes) for each in value):
            return value
        self.decide(number, test=True)
        salt = self.salt
        return value if salt is None else sorted(value, key=lambda each: hash((salt, each)))

    def hash(self, value: Any) -> int:
        """Return the hash of a value; of a string as another process would have it."""
        if self.salt is None or not isinstance(value, str | bytes):
            return hash(value)
        return hash((self.salt, value))

    def write(self, put: Callable[[str], None]) -> None:
        """Write what was decided since the last call."""
        if not self.pending:
            return
        while self._repetitions:
            self._repetitions.popitem()[1].close()
        decided, caught = list(self.pending.items()), self.caught[:]
        self.pending.clear()
        self.caught.clear()
        for number, _ in decided:
            if number not in self._written:
                self._written.add(number)
                at = self.places[number]
                row = ["v", number, at.kind, at.file, at.line, at.text, list(at.names)]
                put(json.dumps(row))
        words = ",".join(
            f"[{number},{yes},{no}{',' + json.dumps(values) if values else ''}]"
            for number, (yes, no, values) in decided
        )
        put(f'["t",[{words}]]')
        for each in caught:
            put(json.dumps(["y", *each]))

    def send(self) -> None:
        """Write the places that are known where processes find them that code is sent to."""
        rows = [[at.kind, at.file, at.line, at.text, list(at.names)] for at in self.places]
        about = {"argv": sys.argv, "cwd": os.getcwd()}
        path = os.path.join(os.environ["SCENARIO_RECORD"], SENT)
        with contextlib.suppress(OSError), open(path, "x", encoding="utf-8") as file:
            json.dump([about, rows], file)

    def receive(self) -> bool:
        """Know the places of the program that sends code here; returns whether there is one."""
        path = os.path.join(os.environ["SCENARIO_RECORD"], SENT)
        with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
            self.program, rows = json.load(file)
            self.places += [DecisionPlace(*row) for row in rows]
        return bool(self.program)

    def compile(self, source: bytes, file: str, *, is_main: bool = False) -> Any:
        """Return the code of a file with notes; without any where they cannot be put in.

        A script that is imported as `__main__` has no `__spec__`, as where Python itself runs it.
        """
        if len(source) > MOST_SOURCE or os.environ.get(SWITCH) == "0":
            return compile(source, file, "exec", dont_inherit=True)
        before = len(self.places)
        try:
            tree = ast.parse(source, file)
            lines = source.decode("utf-8", "replace").splitlines()
            tree = _Notes(self.places, file, lines, _list_keepers(tree)).visit(tree)
            AssignmentNotes(
                lines, functools.partial(self._add, file), _read_path, _call_note
            ).put_into(tree)
            if is_main:
                _unset_spec(tree)
            return compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)
        except (RecursionError, MemoryError, SyntaxError, TypeError, ValueError):
            del self.places[before:]
        return compile(source, file, "exec", dont_inherit=True)

    def _add(self, file: str, line: int, text: str, names: Sequence[str]) -> int:
        """Add a place that sets a value; returns its number."""
        self.places.append(DecisionPlace(SETS, file, line, text, names))
        return len(self.places) - 1

    def install(self, is_own: Callable[[str], bool], is_tracing: Callable[[], bool]) -> None:
        """Let the notes be known to all code, and files that are imported from now on have them.

        `is_tracing` says whether torch compiles: nothing is noted then.
        """
        for name, function in self.list_functions(is_tracing).items():
            setattr(builtins, name, function)
        loader = importlib.machinery.SourceFileLoader
        code_of = loader.get_code

        def get_code(own: Any, name: str) -> Any:
            path = own.get_filename(name)
            if not is_own(path):
                return code_of(own, name)
            return self.compile(own.get_data(path), path)

        loader.get_code = get_code  # type: ignore[method-assign, assignment]

    def list_functions(self, is_tracing: Callable[[], bool]) -> dict[str, Any]:
        """Return the functions that notes call, by the names that they have among Python's own."""
        return {
            _TRACED: is_tracing,
            _DECIDE: self.decide,
            _KEEP: self.keep,
            _READ: self.read,
            _GIVE: self.give,
            _ANSWER: self.answer,
            _LOG: self.log,
            NOTE: self.note,
            _CATCH: self.catch,
            _ENTER: self.enter,
            _LEAVE: self.leave,
            _ATTRIBUTE: attribute,
            _ORDER: self.order,
            _HASH: self.hash,
        }


#: the file that has the places of a program which sends its functions to other processes
SENT = "sent_places.json"
#: those of a script that a launcher of the user's own has started
of_script: Decisions | None = None


def follow_tracing(is_tracing: Callable[[], bool]) -> None:
    """Let notes that were installed before torch know whether it compiles."""
    setattr(builtins, _TRACED, is_tracing)


def _list_keepers(tree: ast.Module) -> frozenset[str]:
    """Return what a file defines that may keep an error of a `with` to itself."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            if any(isinstance(each, ast.ExceptHandler) for each in ast.walk(node)):
                found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            leaves = [
                each
                for each in node.body
                if isinstance(each, ast.FunctionDef) and each.name == "__exit__"
            ]
            if any(isinstance(each, ast.Return) for leave in leaves for each in ast.walk(leave)):
                found.add(node.name)
    return frozenset(found)


def _keeps_errors(context: ast.expr, own: frozenset[str]) -> bool:
    """Whether a context may keep errors: by its name, or by what its file defines."""
    made = context.func if isinstance(context, ast.Call) else context
    name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
    return isinstance(context, ast.Call) and bool(name in own or _KEEPERS.fullmatch(name))


def _unset_spec(tree: ast.Module) -> None:
    """Let a script begin without a `__spec__`, behind its docstring and its future imports."""
    at = next(
        (
            at
            for at, each in enumerate(tree.body)
            if not (isinstance(each, ast.ImportFrom) and each.module == "__future__")
            and not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        ),
        None,
    )
    if at is None:
        return
    for name in ("__package__", "__spec__"):
        unset = ast.Assign(targets=[ast.Name(name, ast.Store())], value=ast.Constant(None))
        _place(unset, tree.body[at])
        tree.body.insert(at, unset)


def attribute(owner: Any, *steps: str) -> Any:
    """Return what an object holds along a path, without calling anything of its own.

    A step is an attribute's name behind a `.`, or the key of a dict behind a `[`. What is not there
    as such is `...`, which is not written.
    """
    found = owner
    for step in steps:
        name = step[1:]
        try:
            held = found if step[0] == "[" else object.__getattribute__(found, "__dict__")
        except AttributeError:
            return ...
        if held.__class__ is not dict or name not in held:
            return ...
        found = held[name]
    return found


#: methods of FSDP's modules, and of DeepSpeed's engine, by which they communicate otherwise from
#: then on; attributes of DDP and accelerate that do so as well
SWITCHES = frozenset(
    {
        *("set_requires_gradient_sync", "set_requires_all_reduce", "set_is_last_backward"),
        *("set_reshard_after_backward", "set_reshard_after_forward"),
        *("set_gradient_accumulation_boundary", "_set_sync_gradients"),
    }
)
SWITCHED = frozenset({"require_backward_grad_sync", "sync_gradients"})
#: contexts of Fabric in which a model does not communicate, by the argument that says whether
SWITCHED_BY = {"no_backward_sync": "enabled"}
#: names, each with what gives its value again
_Reads: TypeAlias = Sequence[tuple[str, ast.expr]]
#: a part of an `and` or `or`: the whole, which of its parts, and the names that it alone reads
_Part: TypeAlias = tuple[ast.BoolOp, int, _Reads]
#: names of arguments that say how often something is done, whatever is called
AMOUNTS = re.compile(
    r"epoch|step|iter|batch|accum|interval|patience|(?:^|_)(?:max|min|num|limit|total|every)(?:_|$)"
)
#: functions that set something up, or start what communicates
_SETS_UP = re.compile(
    r"(?:init|initialize|setup|prepare|configure|build|make|create|load|from|wrap|fit|train|run|"
    r"launch|parallelize|partition|generate|evaluate|validate|test|predict|accumulate|shard|get_peft)"
    r"(?:_\w+)?|fully_shard|\w+_init"
)
#: classes that take what is each rank's own, or nothing that a framework goes by
_OF_EACH_RANK = re.compile(
    r"\w*(?:Error|Exception|Warning)|P2POp|Path|Thread|Process|Lock|Event|Tensor|Parameter"
)
#: nodes of an argument that is noted; what is longer is made in a line of its own
MOST_NODES = 60


#: expressions that decide often, for values and not for calls
_OF_MANY_TURNS = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class _Notes(ast.NodeTransformer):
    """Puts a note at each decision of a file."""

    def __init__(
        self, places: list[DecisionPlace], file: str, lines: list[str], keepers: frozenset[str]
    ) -> None:
        self._places, self._file, self._lines = places, file, lines
        self._keepers = keepers
        #: generators that a function asks no further than it has to -> its call, by their ids
        self._asked: dict[int, str] = {}

    def _text(self, node: ast.expr | ast.pattern) -> str:
        """Return an expression as it is written, where that is one line of plain letters."""
        line = self._lines[node.lineno - 1]
        if node.end_lineno == node.lineno and line.isascii():
            return line[node.col_offset : node.end_col_offset][:MOST_TEXT]
        return " ".join(ast.unparse(node).split())[:MOST_TEXT]

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._ask_test(node, "if")

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._ask_test(node, "if")

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._ask_test(node, "while")

    def _ask_test(self, node: ast.If | ast.IfExp | ast.While, kind: str) -> ast.AST:
        text, read = f"{kind} {self._text(node.test)}", _read_by(node.test)
        later = _list_later(node.test, read)
        is_asked = not isinstance(node.test, ast.Constant) and not any(
            isinstance(each, ast.Name) and each.id in _CONSTANT for each in ast.walk(node.test)
        )
        self.generic_visit(node)
        if is_asked:
            node.test = self._ask(node.test, kind, text, read, later)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        value = node.value
        is_answer = isinstance(value, ast.Compare | ast.BoolOp) or (
            isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
        )
        if value is None or not is_answer:
            self.generic_visit(node)
            return node
        text, read = f"return {self._text(value)}", _read_by(value)
        self.generic_visit(node)
        value = node.value or value
        number = self._number("answer", node.lineno, text, [name for name, _ in read])
        kept = _call(_ANSWER, number, copy.deepcopy(value), *(each for _, each in read))
        node.value = ast.IfExp(test=_call(_TRACED), body=value, orelse=kept)
        _place(node.value, value)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        at = next((at for at, each in enumerate(node.values) if at and _calls(each)), 0)
        text, first = self._text(node), node.values[at - 1]
        read = _read_by(first)
        self.generic_visit(node)
        if at and not isinstance(first, ast.Constant):
            names = [name for name, _ in read]
            kind = "and" if isinstance(node.op, ast.And) else "or"
            number = self._number(kind, node.lineno, text, names)
            value = node.values[at - 1]
            kept = _call(_KEEP, number, copy.deepcopy(value), *(each for _, each in read))
            found = ast.IfExp(test=_call(_TRACED), body=value, orelse=kept)
            _place(found, value)
            node.values[at - 1] = found
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        read, cases = _read_by(node.subject), node.cases[:MOST_CASES]
        texts = [f"case {self._text(each.pattern)}" for each in cases]
        self.generic_visit(node)
        names = [name for name, _ in read]
        numbers = [
            self._number("if", each.pattern.lineno, text, names)
            for each, text in zip(cases, texts, strict=True)
        ]
        for at, case in enumerate(node.cases):
            counted: list[ast.expr] = [
                _call(_DECIDE, number, ast.Constant(other == at), *copy.deepcopy(values))
                for other, number in enumerate(numbers)
                for values in [[each for _, each in read]]
            ]
            either: list[ast.expr] = [_call(_TRACED), ast.Tuple(counted, ast.Load())]
            found = ast.Expr(ast.BoolOp(op=ast.Or(), values=either))
            _place(found, case.body[0])
            case.body.insert(0, found)
        return node

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        self.generic_visit(node)
        text = f"for {self._text(node.target)} in {self._text(node.iter)}"
        node.iter = self._order(node.iter, text)
        turn, entry = self._note_twice("for", node.lineno, text, (node.body[0], node))
        node.body.insert(0, turn)
        return [entry, node]

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        text = f"except {self._text(node.type)}" if node.type is not None else "except"
        node.body.insert(0, self._note_error(node.lineno, text, node.body[0]))
        return node

    def visit_With(self, node: ast.With) -> ast.With | list[ast.stmt]:
        is_kept = any(_keeps_errors(each.context_expr, self._keepers) for each in node.items)
        heads = ", ".join(ast.unparse(each.context_expr) for each in node.items) if is_kept else ""
        self.generic_visit(node)
        if not is_kept:
            return node
        number = self._number("except", node.lineno, f"with {heads}"[:MOST_TEXT], ())
        enter, hold, leave = (
            ast.Expr(ast.BoolOp(op=ast.Or(), values=[_call(_TRACED), call]))
            for call in (
                _call(_ENTER, number, ast.Constant(0)),
                _call(_ENTER, number, ast.Constant(1)),
                _call(_LEAVE, number),
            )
        )
        again: list[ast.stmt] = [hold, ast.Raise()]
        guarded = ast.Try(
            body=[enter, *node.body],
            handlers=[ast.ExceptHandler(type=None, name=None, body=again)],
            orelse=[],
            finalbody=[],
        )
        _place(guarded, node.body[0])
        _place(leave, node)
        node.body = [guarded]
        return [node, leave]

    def visit(self, node: ast.AST) -> Any:
        """Put notes into a node; of what has many turns, those are counted that may call."""
        if not isinstance(node, _OF_MANY_TURNS):
            return super().visit(node)
        if not isinstance(node, ast.Lambda):
            self._count_turns(node, self._asked.get(id(node)) or self._text(node))
        if isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
            first = node.generators[0]
            text = f"for {self._text(first.target)} in {self._text(first.iter)}"
            first.iter = self._order(self.visit(first.iter), text)
        return node

    def _count_turns(self, node: ast.AST, text: str) -> None:
        """Count the turns of a comprehension whose elements may call what communicates."""
        parts = [getattr(node, name, None) for name in ("elt", "key", "value")]
        last = node.generators[-1]  # type: ignore[attr-defined]
        if any(part is not None and _calls(part) for part in parts):
            number = self._number("each", node.lineno, text, ())  # type: ignore[attr-defined]
            counted: list[ast.expr] = [
                _call(_TRACED),
                _call(_DECIDE, number, ast.Constant(value=True)),
            ]
            found = ast.BoolOp(op=ast.Or(), values=counted)
            _place(found, node)
            last.ifs.append(found)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        text = self._text(node)
        called = self._text(node.func)
        given = [(at, self._text(each)) for at, each in list_given(node)]
        is_logged = averages_names(node)
        if isinstance(node.func, ast.Name) and node.func.id in _FIRSTS and len(node.args) == 1:
            self._asked[id(node.args[0])] = text
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "hash" and len(node.args) == 1:
            found = ast.IfExp(test=_call(_TRACED), body=node, orelse=_call(_HASH, *node.args))
            _place(found, node)
            return found
        if isinstance(node.func, ast.Name) and node.func.id in _ORDERED and len(node.args) == 1:
            node.args[0] = self._order(node.args[0], text)
        if isinstance(node.func, ast.Attribute) and node.func.attr in SWITCHES and node.args:
            node.args[0] = self._keep_flag(node.args[0], node.lineno, text)
        switch = SWITCHED_BY.get(getattr(node.func, "attr", ""))
        for each in node.keywords if switch is not None else ():
            if each.arg == switch:
                each.value = self._keep_flag(each.value, node.lineno, text)
        if is_logged:
            number = self._number("logs", node.lineno, text, ())
            noted = _call(_LOG, number, copy.deepcopy(node.args[0]))
            found = ast.IfExp(test=_call(_TRACED), body=node.args[0], orelse=noted)
            _place(found, node.args[0])
            node.args[0] = found
        for at, text in given:
            if isinstance(at, int):
                node.args[at] = self._give(node.args[at], text, (called,))
            else:
                named = f"{at.arg}={text}" if at.arg else f"**{text}"
                at.value = self._give(at.value, named, (called,))
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        target = ast.unparse(node.targets[0])
        is_setting = isinstance(node.targets[0], ast.Attribute) and _SETTING.search(target)
        text = f"{target}={self._text(node.value)}"
        is_noted = is_setting and len(node.targets) == 1 and _is_noted(node.value)
        is_switch = getattr(node.targets[0], "attr", "") in SWITCHED
        self.generic_visit(node)
        if is_switch:
            node.value = self._keep_flag(node.value, node.lineno, text.replace("=", " = ", 1))
        elif is_noted:
            node.value = self._give(node.value, text, ())
        return node

    def _give(self, node: ast.expr, text: str, names: Sequence[str]) -> ast.expr:
        """Return an argument of a call, noted."""
        if not is_short(node):
            return node
        number = self._number("given", node.lineno, text[:MOST_TEXT], names)
        given = _call(_GIVE, number, copy.deepcopy(node))
        found = ast.IfExp(test=_call(_TRACED), body=node, orelse=given)
        _place(found, node)
        return found

    def _keep_flag(self, node: ast.expr, line: int, text: str) -> ast.expr:
        """Return what a switch of a model is set to, noted where it is no constant."""
        if isinstance(node, ast.Constant | ast.Starred):
            return node
        kept = _call(_KEEP, self._number("flag", line, text, ()), copy.deepcopy(node))
        found = ast.IfExp(test=_call(_TRACED), body=node, orelse=kept)
        _place(found, node)
        return found

    def _order(self, node: ast.expr, text: str) -> ast.expr:
        """Return what a loop goes through with a note, where it may be a set."""
        if not isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Set | ast.BinOp):
            return node
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _UNSET:
            return node
        number = self._number("set", node.lineno, text, ())
        found = ast.IfExp(test=_call(_TRACED), body=node, orelse=_call(_ORDER, number, node))
        _place(found, node)
        return found

    def _number(self, kind: str, line: int, text: str, names: Sequence[str]) -> ast.Constant:
        self._places.append(DecisionPlace(kind, self._file, line, text, names))
        return ast.Constant(len(self._places) - 1)

    def _ask(
        self, test: ast.expr, kind: str, text: str, read: _Reads, later: Sequence[_Part]
    ) -> ast.expr:
        names = [name for name, _ in (*read, *(each for *_, own in later for each in own))]
        number = self._number(kind, test.lineno, text, names)
        copies: dict[int, Any] = {}
        asked = copy.deepcopy(test, copies)
        at = len(read)
        for owner, place, own in later:
            values = copies[id(owner)].values
            held = (node for _, node in own)
            values[place] = _call(_READ, number, values[place], ast.Constant(at), *held)
            at += len(own)
        asking = _call(_DECIDE, number, asked, *(node for _, node in read))
        found = ast.IfExp(test=_call(_TRACED), body=test, orelse=asking)
        _place(found, test)
        return found

    def _note_twice(
        self, kind: str, line: int, text: str, at: tuple[ast.stmt, ast.stmt]
    ) -> list[ast.stmt]:
        """Return the notes of a turn of a loop, which is yes, and of its beginning, which is no."""
        number = self._number(kind, line, text, ())
        notes: list[ast.stmt] = []
        for is_turn, where in zip((True, False), at, strict=True):
            counted = _call(_DECIDE, number, ast.Constant(is_turn))
            notes.append(ast.Expr(ast.BoolOp(op=ast.Or(), values=[_call(_TRACED), counted])))
            _place(notes[-1], where)
        return notes

    def _note_error(self, line: int, text: str, at: ast.stmt) -> ast.stmt:
        number = self._number("except", line, text, ())
        asking: list[ast.expr] = [_call(_TRACED), _call(_CATCH, number)]
        found = ast.Expr(ast.BoolOp(op=ast.Or(), values=asking))
        _place(found, at)
        return found


#: what is set in the settings of a framework: `config.training.steps`, `args.every`
_SETTING = re.compile(
    r"(?:^|[._])(?:conf(?:ig)?s?|cfg|args|opts?|options?|settings?|hparams|flags?)\.", re.IGNORECASE
)


#: methods that log what they are given by name, and their argument that has it averaged over ranks
_LOGS, _AVERAGED = frozenset({"log", "log_dict"}), "sync_dist"


def averages_names(node: ast.Call) -> bool:
    """Whether a call logs by names that it works out, and has the ranks average each of them."""
    if getattr(node.func, "attr", "") not in _LOGS or not node.args:
        return False
    first = node.args[0]
    return (
        not isinstance(first, ast.Constant | ast.Starred)
        and is_short(first)
        and any(
            each.arg == _AVERAGED and ast.unparse(each.value) != str(False)
            for each in node.keywords
        )
    )


def list_given(node: ast.Call) -> list[tuple[int | ast.keyword, ast.expr]]:
    """Return the arguments of a call that are worth a note: the place, or the keyword, of each."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    is_class = name.lstrip("_")[:1].isupper() and _OF_EACH_RANK.fullmatch(name) is None
    takes_all = is_class or _SETS_UP.fullmatch(name) is not None
    found: list[tuple[int | ast.keyword, ast.expr]] = [
        (at, each) for at, each in enumerate(node.args) if takes_all and _is_noted(each)
    ]
    for each in node.keywords:
        is_amount = each.arg is not None and AMOUNTS.search(each.arg) is not None
        if (takes_all or is_amount) and _is_noted(each.value):
            found.append((each, each.value))
    return found


def _is_noted(node: ast.expr) -> bool:
    """Whether an argument is an expression whose value may be noted, and not an object's making."""
    if isinstance(node, ast.Constant | ast.Starred | ast.Lambda | ast.GeneratorExp | ast.JoinedStr):
        return False
    called = node.func if isinstance(node, ast.Call) else None
    name = getattr(called, "attr", getattr(called, "id", ""))
    return not name[:1].isupper()


def is_short(node: ast.expr) -> bool:
    """Whether an argument may be written twice: once for what torch compiles."""
    return sum(1 for _ in ast.walk(node)) <= MOST_NODES


def _place(node: ast.AST, at: ast.AST) -> None:
    """Give a node, and all that is in it, the place of another one."""
    for each in ast.walk(node):
        if not hasattr(each, "lineno"):
            ast.copy_location(each, at)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(name, ast.Load()), args=list(arguments), keywords=[])


def _read_path(node: ast.expr) -> ast.expr | None:
    """Return what reads a path of attributes again; None for anything else."""
    path = _path_of(node)
    if path is None:
        return None
    return _call(_ATTRIBUTE, ast.Name(path[0], ast.Load()), *map(ast.Constant, path[1]))


def _call_note(name: str, arguments: Sequence[ast.expr], at: ast.stmt) -> ast.stmt:
    """Return a statement that calls a note, where torch does not compile."""
    either: list[ast.expr] = [_call(_TRACED), _call(name, *arguments)]
    found = ast.Expr(ast.BoolOp(op=ast.Or(), values=either))
    _place(found, at)
    return found


def _calls(node: ast.AST) -> bool:
    """Whether an expression may call a function of the script's own, or one that communicates."""
    return any(
        isinstance(each, ast.Call)
        and getattr(each.func, "attr", getattr(each.func, "id", "")) not in _PLAIN
        for each in ast.walk(node)
    )


def _list_later(test: ast.expr, read: _Reads) -> list[_Part]:
    """Return the parts of each `and` and `or` behind its first, with what they read beside it.

    They are read only where the parts before them leave the whole open.
    """
    known = {name for name, _ in read}
    found: list[_Part] = []
    waiting: list[ast.expr] = [test]
    stored = _list_stored(test)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            waiting.append(node.operand)
        elif isinstance(node, ast.BoolOp):
            for at, part in enumerate(node.values):
                waiting.append(part)
                names = [(name, held) for name, held in _read_by(part) if name not in known]
                own = [each for each in names if each[0].split(".")[0] not in stored]
                own = own[: MOST_VALUES - len(known)] if at else []
                known |= {name for name, _ in own}
                found += [(node, at, own)] if own else []
    return found


def _list_stored(test: ast.expr) -> set[str]:
    """Return the names that a condition itself sets."""
    return {
        each.id
        for each in ast.walk(test)
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
    }


def _read_by(test: ast.expr) -> list[tuple[str, ast.expr]]:
    """Return the names that a condition surely reads, each with what gives its value again."""
    found: dict[str, ast.expr] = {}
    waiting: list[ast.AST] = [test]
    stored = _list_stored(test)
    while waiting and len(found) < MOST_VALUES:
        node = waiting.pop(0)
        if isinstance(node, ast.Name):
            if node.id not in stored:
                found.setdefault(node.id, ast.Name(node.id, ast.Load()))
        elif (path := _path_of(node)) is not None:
            owner, steps = path
            if owner not in stored:
                held = _call(_ATTRIBUTE, ast.Name(owner, ast.Load()), *map(ast.Constant, steps))
                found.setdefault(ast.unparse(node), held)
        elif not isinstance(node, ast.Attribute):
            waiting += _find_read_parts(node)
    return list(found.items())


def _find_read_parts(node: ast.AST) -> list[ast.expr]:
    """Return the parts of an expression that are read whatever comes out of the others."""
    match node:
        case ast.BoolOp():
            return node.values[:1]
        case ast.Compare():
            return [node.left, node.comparators[0]]
        case ast.UnaryOp():
            return [node.operand]
        case ast.BinOp():
            return [node.left, node.right]
        case ast.Subscript():
            return [node.slice]
        case ast.Call(func=ast.Attribute(value=tensor, attr="item")):
            return [*node.args, tensor]
        case ast.Call():
            return node.args
    return []


def _path_of(node: ast.AST) -> tuple[str, list[str]] | None:
    """Return the name that a path of attributes and constant keys begins with, and its steps."""
    steps: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            steps.append(f".{node.attr}")
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            steps.append(f"[{node.slice.value}")
        else:
            return None
        node = node.value
    return (node.id, steps[::-1]) if isinstance(node, ast.Name) and steps else None
