"""What is known while a tree becomes a scenario: names, limits, problems so far, likely words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from torch_scenarios.errors import (
    MOST_PROBLEMS,
    Mark,
    Problem,
    Repair,
    ScenarioError,
    cut_problems,
    is_slip,
    make_warning,
    nearest,
)
from torch_scenarios.expressions.values import PerRank
from torch_scenarios.files import project_root
from torch_scenarios.language.keys import BESIDE
from torch_scenarios.limits import Limits
from torch_scenarios.source.repairs import respell
from torch_scenarios.source.tree import Mapping as MappingNode
from torch_scenarios.source.tree import Node, Scalar
from torch_scenarios.vocabulary import BACKEND

# -------------------------------------------------------------------------------------------------
# What would be right, for problems whose own words leave it open: every problem has a hint.

#: code -> what would be right, where the place says nothing better
HINTS = {
    "bad_expectation": "write a name or an expression, and below it what it must be",
    "bad_key": "a key is a name, a number or a list of ranks",
    "bad_scalar": "leave the tag out, or write a value that fits it",
    "bad_world_size": "write a number such as `world_size: 2`",
    "duplicate_argument": "keep one of the two spellings",
    "duplicate_case": "keep it once",
    "duplicate_name": "give one of them another name",
    "empty_steps": "add a step, such as `- barrier: {}`",
    "expression_not_allowed": "numbers, names, arithmetic, indexing, list comprehensions and calls"
    " of the language's own functions are allowed",
    "expression_syntax": "expressions have Python's syntax",
    "handle_without_work": "leave `as` out",
    "loop_too_long": "run over fewer values; one round shows what a thousand show",
    "missing_value": "state it, or leave the key out",
    "nesting": "a scenario needs few levels; state large values as expressions",
    "not_constant": "it is the same on every rank; what differs is written in tensors and steps",
    "recursive_alias": "write the value out",
    "too_many_cases": "split the matrix over several files",
    "too_many_ranks": "fewer ranks show the same; `world_size` may be a parameter",
    "too_many_steps": "repeat steps with `for`",
    "unknown_function": "`scenario explain unknown_function` lists all there are",
    "unknown_handle": "name the work with `as` next to the asynchronous step",
    "unknown_name": "define it under `parameters:`, `tensors:`, `objects:` or `groups:`",
    "use_cycle": "a used file cannot need itself; let both use a third",
    "use_too_deep": "name the innermost file directly",
}


def add_hints(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems, each with a hint."""
    return tuple(
        problem if problem.hint else replace(problem, hint=_general(problem.code))
        for problem in problems
    )


def _general(code: str) -> str:
    return HINTS.get(code, f"`scenario explain {code}` shows an example, and the fix")


# -------------------------------------------------------------------------------------------------
# Words that people bring along from torch, NumPy, Python, MPI or YAML 1.1, and what they are here.
#
# Only messages read this: a foreign word is as wrong as any other, but its author reads the
# right one instead of the whole list.

_SELECTS = 'who takes a step is said by `ranks:`, also by what it holds: `ranks: "x[0] > 3"`'
_STATED = "`expect:` next to a step states what must hold there"
_FAULT = "a rank fails by `fault: kill`, `fault: exit` or `fault: {raise: message}`"

#: what stands where a step's action or key is wanted -> what to write
STEPS = {
    "if": _SELECTS,
    "when": _SELECTS,
    "only": _SELECTS,
    "unless": _SELECTS,
    "while": "`for` repeats a fixed number of times",
    "repeat": '`for` repeats: `for: {i: "range(3)"}` with `steps: [...]`',
    "loop": '`for` repeats: `for: {i: "range(3)"}` with `steps: [...]`',
    "assert": _STATED,
    "check": _STATED,
    "print": _STATED,
    "log": _STATED,
    "set": "`let:` names a number, `compute:` a tensor",
    "assign": "`let:` names a number, `compute:` a tensor",
    "kill": _FAULT,
    "exit": _FAULT,
    "raise": _FAULT,
    "crash": _FAULT,
    "include": "`use: {file: part.yaml}` inserts the steps of another file",
    "import": "`use: {file: part.yaml}` inserts the steps of another file",
    "handle": "`as:` names the work that an asynchronous step starts",
    "bcast": "did you mean `broadcast`?",
    "sendrecv": "did you mean `batch_isend_irecv`?",
    "init_process_group": "the world is there before step 1, with the `timeout` at the top",
    "init_device_mesh": "a mesh is an entry of `groups:`: {shape: [2, 4], dims: [dp, tp]}",
    "new_subgroups": "these groups are an entry of `groups:`: {size: 2}",
    "new_subgroups_by_enumeration": "these groups are an entry of `groups:`: {partition: [...]}",
}

_BOOLEAN = "in YAML 1.2 this is not a boolean but text: write true, false, 1 or 0"
#: what stands where the name of a value is wanted -> what to write
NAMES = {
    "unchanged": "`unchanged` is a whole value: `x: unchanged`",
    **dict.fromkeys(("yes", "no", "on", "off", "Yes", "No", "On", "Off"), _BOOLEAN),
    **dict.fromkeys(("null", "nil", "NULL"), "the word for nothing is `None` in an expression"),
    "true": "the boolean is `True` in an expression",
    "false": "the boolean is `False` in an expression",
    **dict.fromkeys(("all", "everyone", "every"), "every rank is `world`; `ranks` left out, too"),
    "inf": "infinity is `.inf` in YAML, and 1e999 in an expression",
    "nan": "not a number is `.nan` in YAML",
    "pi": "write it as a number: 3.141592653589793",
}

#: sort of word -> the foreign words and, for each, those of the language that it may mean
_MEANT: dict[str, dict[str, tuple[str, ...]]] = {
    "argument": {
        "root": ("src", "dst"),
        "peer": ("src", "dst"),
        "to": ("dst",),
        "dest": ("dst",),
        "destination": ("dst",),
        "from": ("src",),
        "source": ("src",),
        "reduce_op": ("op",),
        "reduction": ("op",),
        "async": ("async_op",),
        "pg": ("group",),
        "comm": ("group",),
        "process_group": ("group",),
        "data": ("tensor",),
        "buffer": ("tensor",),
        "value": ("tensor",),
        "seconds": ("duration",),
        "handle": ("handles",),
        "out": ("output",),
        "in": ("input",),
    },
    "dtype": {
        "float": ("float32",),
        "single": ("float32",),
        "double": ("float64",),
        "half": ("float16",),
        "brain": ("bfloat16",),
        "short": ("int16",),
        "int": ("int32",),
        "long": ("int64",),
        "byte": ("uint8",),
        "char": ("int8",),
        "boolean": ("bool",),
        "complex": ("complex64",),
        "cfloat": ("complex64",),
        "cdouble": ("complex128",),
        "fp8": ("float8_e4m3fn",),
        "float8": ("float8_e4m3fn",),
        "bf16": ("bfloat16",),
        **{f"{word}{bits}": (f"float{bits}",) for word in ("f", "fp") for bits in (16, 32, 64)},
        **{f"i{bits}": (f"int{bits}",) for bits in (8, 16, 32, 64)},
        **{f"u{bits}": (f"uint{bits}",) for bits in (8, 16, 32, 64)},
    },
    "reduce op": {
        "add": ("sum",),
        "plus": ("sum",),
        "mean": ("avg",),
        "average": ("avg",),
        "prod": ("product",),
        "mul": ("product",),
        "minimum": ("min",),
        "maximum": ("max",),
        "and": ("band",),
        "or": ("bor",),
        "xor": ("bxor",),
    },
    "outcome": {
        **dict.fromkeys(("hang", "hangs", "stuck", "blocked", "timeout", "blocks"), ("deadlock",)),
        **dict.fromkeys(("ok", "pass", "passes", "passed", "success", "succeeds"), ("completes",)),
        **dict.fromkeys(("finishes", "finished", "done", "fine"), ("completes",)),
        **dict.fromkeys(("fail", "fails", "failure", "raises", "exception"), ("error",)),
        **dict.fromkeys(("dies", "abort", "aborts", "kill", "killed"), ("crash",)),
    },
    "diagnosis": {
        "deadlock": ("circular_wait",),
        "cycle": ("circular_wait",),
        "race": ("message_race", "buffer_race"),
    },
    "kind of error": {
        "nothing": ("none",),
        "no": ("none",),
        "valueerror": ("invalid_argument",),
        "typeerror": ("invalid_argument",),
        "notimplementederror": ("unsupported",),
        "connection_closed": ("peer_lost",),
        "outofmemoryerror": ("out_of_memory",),
        "oom": ("out_of_memory",),
    },
    "`debug`": {"verbose": ("detail",), "debug": ("detail",), "full": ("detail",)},
    "key of the file": {
        "ranks": ("world_size",),
        "nprocs": ("world_size",),
        "nproc_per_node": ("world_size",),
        "num_ranks": ("world_size",),
        "world": ("world_size",),
        "constants": ("parameters",),
        "variables": ("parameters",),
        "vars": ("parameters",),
        "data": ("tensors",),
        "values": ("tensors",),
        "process_groups": ("groups",),
        "program": ("steps",),
        "title": ("name",),
    },
}


def likely(word: str, known: Collection[str], sort: str | None = None) -> str | None:
    """Return which of `known` the author of `word` means, or None where that cannot be told.

    `sort` is the kind of word, by which those of other libraries are known: MPI's `root`, C's
    `double`.

    >>> likely("double", {"float32", "float64"}, "dtype"), likely("all_reduec", {"all_reduce"})
    ('float64', 'all_reduce')
    """
    said = word.rpartition(".")[2].lower().replace("-", "_")
    for meant in _MEANT.get(sort or "", {}).get(said, ()):
        if meant in known:
            return meant
    return nearest(word, known)


# -------------------------------------------------------------------------------------------------
# What is known while a tree becomes a scenario: the names, the limits, the problems found so far.

#: words that a message lists
_MOST_WORDS = 30

#: names that every expression may read
ALWAYS = frozenset({"rank", "world_size", "world", BACKEND})


def correct(
    word: str,
    meant: str | None,
    known: Iterable[str],
    mark: Mark | None,
    sort: str | None = None,
) -> Repair | None:
    """Return the repair that writes the word that is meant; sure where it can only be a slip."""
    if meant is None or mark is None:
        return None
    said = word.rpartition(".")[2].lower().replace("-", "_")
    foreign = _MEANT.get(sort or "", {}).get(said, ())
    one = len([each for each in foreign if each in known]) == 1
    return respell(mark, word, meant, sure=one or is_slip(word, meant, known))


class Problems:
    """Collects problems; the same problem of two cases of a matrix is one.

    >>> problems = Problems()
    >>> problems.add("bad_value", "`tag` is negative", None)
    >>> problems.add("bad_value", "`tag` is negative", None)
    >>> len(problems.in_order())
    1
    """

    def __init__(self) -> None:
        """Start with none."""
        self._found: dict[tuple[str, str, str], Problem] = {}
        self._warnings: dict[tuple[str, str, str], Problem] = {}

    def add(
        self,
        code: str,
        message: str,
        mark: Mark | None,
        hint: str | None = None,
        repair: Repair | None = None,
    ) -> None:
        """Add one problem."""
        self.keep([Problem(code=code, message=message, mark=mark, hint=hint, repair=repair)])

    def warn(self, code: str, message: str, mark: Mark | None, hint: str | None = None) -> None:
        """Add a warning: the file is a scenario, and this should be looked at."""
        if len(self._warnings) == MOST_PROBLEMS:
            return
        found = make_warning(code, message, mark, hint)
        self._warnings.setdefault((code, str(mark), message), found)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The warnings so far, in order of their places."""
        return tuple(sorted(self._warnings.values(), key=_place))

    def keep(self, problems: Iterable[Problem]) -> None:
        """Add problems that another stage found; raises ScenarioError where they are too many."""
        for problem in problems:
            self._found.setdefault((problem.code, str(problem.mark), problem.message), problem)
            if len(self._found) > MOST_PROBLEMS:
                self._found.popitem()
                raise ScenarioError(cut_problems(self.in_order()))

    def unknown(
        self,
        code: str,
        message: str,
        word: str,
        known: Collection[str],
        mark: Mark | None,
        *,
        listed: str | None = None,
        sort: str | None = None,
    ) -> None:
        """Add a problem about a word that is not in `known`, with the likely one, or a list.

        `sort` says what the word is, as :mod:`torch_scenarios.language.context` calls it.
        """
        close = likely(word, known, sort)
        hint = f"did you mean `{close}`?" if close else None
        if hint is None and sort == "argument" and word in BESIDE:
            hint = f"`{word}` is a key of the step: write it next to the operation"
        elif hint is None and listed and known:
            hint = f"{listed}: {spelt_out(known)}"
        self.add(code, message, mark, hint, correct(word, close, known, mark, sort))

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return bool(self._found)

    def in_order(self) -> list[Problem]:
        """Return the problems sorted by file and place; those without a place come first."""
        return sorted(self._found.values(), key=_place)

    def raise_any(self) -> None:
        """Raise ScenarioError if anything is wrong."""
        if self._found:
            raise ScenarioError(self.in_order())


def spelt_out(known: Collection[str]) -> str:
    """Return words as a list for messages: in their own order where they have one."""
    words = known if isinstance(known, tuple) else sorted(known)
    if len(words) > _MOST_WORDS:
        return ", ".join(words[:_MOST_WORDS]) + f", and {len(words) - _MOST_WORDS} more"
    return ", ".join(words)


def _place(problem: Problem) -> tuple[str, int, int, str, str]:
    if problem.mark is None:
        return "", 0, 0, problem.code, problem.message
    mark = problem.mark
    return mark.source.path, mark.line, mark.column, problem.code, problem.message


class Definition(Struct, frozen=True):
    """One name where it is defined."""

    sort: str
    name: str
    node: Scalar


class Library(Struct):
    """The files that a scenario uses, each read once. `root` is found when first asked for.

    A path of `use:` may not lead out of the project's folder: a scenario of a stranger could show
    the lines of any file in its messages.
    """

    path: Path
    read: dict[Path, MappingNode | None] = field(default_factory=dict)
    _root: Path | None = None

    @property
    def root(self) -> Path:
        """The folder below which files may be used."""
        if self._root is None:
            self._root = project_root(self.path)
        return self._root


class DefinedNames(Struct, frozen=True, kw_only=True):
    """What a scenario defines, by sort; `used` further files add their own, renamed."""

    constants: Mapping[str, Any] = field(default_factory=dict)
    #: the words that parameters and keys of the matrix hold in any case of the file
    words: frozenset[str] = frozenset()
    tensors: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    handles: frozenset[str] = frozenset()
    #: those of them that `rpc_async` and `remote` return, and the functions that these call
    futures: frozenset[str] = frozenset()
    references: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    #: the handles that are one for each value of an index
    indexed: frozenset[str] = frozenset()
    #: the variables of all loops, each known only inside its own
    variables: frozenset[str] = frozenset()
    #: what `let` names anywhere, each known from there to the end of its list of steps
    numbers: frozenset[str] = frozenset()
    #: the models, by their names
    models: Mapping[str, Any] = field(default_factory=dict)
    #: what an expression may read, once it was asked for
    _united: list[frozenset[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Forget what a copy with other names was asked for."""
        force_setattr(self, "_united", [])

    @property
    def readable(self) -> frozenset[str]:
        """What an expression may read; united when it is first asked for."""
        if not self._united:
            self._united.append(
                ALWAYS.union(self.constants, self.tensors, self.objects, self.computed, self.groups)
            )
        return self._united[0]

    @property
    def value_names(self) -> frozenset[str]:
        """The names that a rank may hold a value under."""
        return self.tensors | self.objects | self.computed


class Binding(Struct, frozen=True, kw_only=True):
    """What `with:` gave for an input: a node, to be read where it was written.

        use: ring.yaml, with: {size: n}      `n` is the outer file's, also where ring.yaml has one

    It is hygiene as in macros: a name means what it means where it is written.
    """

    node: Node
    context: Context


class InlinedNames(Struct, frozen=True, kw_only=True):
    """How the names of a used file read outside of it.

    `bindings` are its inputs, `renamed` its own names. While a library is checked by itself its
    inputs are `opaque`: they stand for anything.
    """

    stem: str
    bindings: Mapping[str, Binding] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    #: the variables of its loops, which are known only inside of them
    variables: Mapping[str, str] = field(default_factory=dict)
    #: what its own `let` steps name
    numbers: Mapping[str, str] = field(default_factory=dict)
    opaque: frozenset[str] = frozenset()


class Context(Struct, frozen=True, kw_only=True):
    """Where in which file something is read, and what may be named there.

    It is handed down, and changed by copies: a `for` hands its body one with its variable, a `use`
    one of the other file. What is shared by all of them is held by reference: the problems, the
    counters of steps, the names that are taken.
    """

    problems: Problems
    limits: Limits
    names: DefinedNames
    index: count[int]
    uses: count[int]
    step_names: set[str]
    #: every name of the whole scenario, also those made for used files
    taken: set[str]
    library: Library
    path: Path
    #: the files that use each other on the way to this one, itself last
    chain: tuple[Path, ...]
    #: `world_size`, where it is known
    world: dict[str, Any] = field(default_factory=dict)
    #: how many ranks there are, where every case of the file has as many
    ranks: int | None = None
    loops: Mapping[str, str] = field(default_factory=dict)
    #: what `let` has named so far, in each of the enclosing lists of steps: name here -> finally
    lets: tuple[dict[str, str], ...] = field(default_factory=lambda: ({},))
    #: what `let` names in the body of each loop around, also in used files
    turns: tuple[set[str], ...] = ()
    inlined: InlinedNames | None = None
    expecting: bool = False
    #: what has no value yet where a value at the top of the file is read, and the name it is for
    unmade: Mapping[str, UnboundName] = field(default_factory=dict)
    making: str | None = None
    #: the names of tensors that a step of the file may distribute
    distributed: frozenset[str] = frozenset()
    #: what the launch decides, as far as an expression of the case reads it: the backend
    asked: set[str] = field(default_factory=set)
    #: where the steps of a used part stand in the program that they were recorded from
    at: str | PerRank[str] | None = None

    def within(self, variable: str, final: str, turns: set[str]) -> Context:
        """Return the context inside a `for` over `variable`, which outside reads `final`.

        `turns` gathers what `let` names inside.
        """
        return self.change(
            loops={**self.loops, variable: final},
            lets=(*self.lets, {}),
            turns=(*self.turns, turns),
        )

    def change(self, **changes: Any) -> Context:
        """Return this context with other values of some fields, sooner than `replace` does."""
        return Context(**(dict(zip(_FIELDS, _FIELDS_OF(self), strict=True)) | changes))

    def let(self, name: str) -> str:
        """Name a number; returns how it reads in the whole scenario.

        A name that an enclosing list has named is that one; a new one is of the innermost list.
        """
        for named in reversed(self.lets):
            if name in named:
                return named[name]
        final = name if self.inlined is None else self.inlined.numbers.get(name, name)
        self.lets[-1][name] = final
        for turn in self.turns:
            turn.add(final)
        return final

    @property
    def let_names(self) -> frozenset[str]:
        """What `let` has named, as far as it is known here."""
        return frozenset().union(*self.lets)

    def enter_expectation(self) -> Context:
        """Return the context in which `before(x, r)` has a meaning."""
        return self if self.expecting else self.change(expecting=True)

    def inline(self, inlined: InlinedNames) -> Context:
        """Return the context inside a used file."""
        return self.change(inlined=inlined)

    @property
    def readable(self) -> Collection[str]:
        """The names that an expression written here may read."""
        named = self.let_names
        if self.inlined is None:
            readable = self.names.readable
            return readable.union(self.loops, named) if self.loops or named else readable
        here = self.inlined
        return ALWAYS.union(here.bindings, here.renamed, here.opaque, self.loops, named)

    def resolve(self, node: Node) -> tuple[Node, Context]:
        """Return what `with:` gave where a node is no more than an input's name."""
        context = self
        while context.inlined is not None:
            text = getattr(node, "value", None)
            binding = context.inlined.bindings.get(text) if isinstance(text, str) else None
            if binding is None:
                break
            node = binding.node
            context = binding.context.change(expecting=context.expecting)
        return node, context

    def final(self, name: str) -> str:
        """Return how a name of this file reads in the whole scenario."""
        if self.inlined is None:
            return name
        if name in self.loops:
            return self.loops[name]
        for named in reversed(self.lets):
            if name in named:
                return named[name]
        return self.inlined.renamed.get(name, name)

    def variable(self, name: str) -> str:
        """Return how the variable of a loop in this file reads in the whole scenario."""
        return name if self.inlined is None else self.inlined.variables.get(name, name)

    def fresh(self, wanted: str) -> str:
        """Return a name like `wanted` that nothing has, and take it."""
        base = "".join(
            letter if letter.isascii() and letter.isalnum() else "_" for letter in wanted
        )
        while "__" in base:
            base = base.replace("__", "_")
        base = base.strip("_") or "used"
        name, count = base if base[0].isalpha() else f"f_{base}", 1
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name

    def is_opaque(self, name: str) -> bool:
        """Whether a name is an input of a library that is checked by itself."""
        return self.inlined is not None and name in self.inlined.opaque


_FIELDS = Context.__struct_fields__
_FIELDS_OF = attrgetter(*_FIELDS)


# -------------------------------------------------------------------------------------------------
# In which order a scenario's names get their values, and the problem of a name used too early.
#
# Parameters first, then groups, objects, tensors, each in the order of the file; then the steps.

#: sort of definition -> how early, and what all of its sort are called
_MADE = {
    "matrix key": (0, "parameters"),
    "case key": (0, "parameters"),
    "parameter": (0, "parameters"),
    "group": (1, "groups"),
    "object": (2, "objects"),
    "tensor": (3, "tensors"),
    "computed name": (4, "steps"),
    "new group": (4, "steps"),
}


class UnboundName(Struct, frozen=True):
    """Why a name has no value yet, and what to do.

    tensors: {x: y + 1, y: [1]}       `y` is made after `x`: put it first
    """

    reason: str
    hint: str


def unmade(section: str, found: Sequence[Definition]) -> dict[str, UnboundName]:
    """Return what has no value while the first entry of a section is made.

    `section` is the plural, such as `tensors`; the function that makes an entry takes its name out.
    """
    now = next(early for early, plural in _MADE.values() if plural == section)
    later: dict[str, tuple[int, UnboundName]] = {}
    for each in found:
        early, plural = _MADE.get(each.sort, (now, ""))
        if not plural or early < now or (each.name in later and later[each.name][0] <= early):
            continue
        line = each.node.mark.line
        if early == now:
            reason = f"is made further down (line {line})"
            hint = f"{section} are made in the order of the file: move it up"
        elif plural == "steps":
            reason = f"is made by a step (line {line}), after the {section}"
            hint = "give it a value at the top first, or compute this in a step"
        else:
            reason = f"is a {each.sort} (line {line}), and {section} are made before {plural}"
            hint = f"state it in numbers, or compute this where {plural} are known"
        later[each.name] = early, UnboundName(reason, hint)
    return {name: why for name, (_, why) in later.items()}


def note_unmade(name: str, mark: Mark, context: Context) -> None:
    """Note an expression that reads a name too early; call for names in `context.unmade` only."""
    why = context.unmade[name]
    if name == context.making:
        why = UnboundName(
            "is made here, so it has no value yet", "`compute:` changes a value in a step"
        )
    context.problems.add("not_made_yet", f"`{name}` {why.reason}", mark, why.hint)
