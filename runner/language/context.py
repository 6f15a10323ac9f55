"""What is known while a tree becomes a scenario: the names, the limits, the faults found so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from runner.language.foreign import likely
from runner.problems import MOST_PROBLEMS, Problem, ScenarioError, too_many, warning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from itertools import count
    from pathlib import Path

    from runner.language.limits import Limits
    from runner.language.making import Later
    from runner.language.tree import Node
    from runner.language.used_files import Library
    from runner.problems import Mark

#: words that a message lists
_MOST_WORDS = 30

#: names that every expression may read
ALWAYS = frozenset({"rank", "world_size", "world"})


class Faults:
    """Collects problems; the same problem of two cases of a matrix is one."""

    def __init__(self) -> None:
        """Start with none."""
        self._found: dict[tuple[str, str, str], Problem] = {}
        self._warnings: dict[tuple[str, str, str], Problem] = {}

    def add(self, code: str, message: str, mark: Mark | None, hint: str | None = None) -> None:
        """Add one problem."""
        self.keep([Problem(code=code, message=message, mark=mark, hint=hint)])

    def warn(self, code: str, message: str, mark: Mark | None, hint: str | None = None) -> None:
        """Add a warning: the file is a scenario, and this should be looked at."""
        if len(self._warnings) == MOST_PROBLEMS:
            return
        found = warning(code, message, mark, hint)
        self._warnings.setdefault((code, str(mark), message), found)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The warnings so far, in order of their places."""
        return tuple(sorted(self._warnings.values(), key=_place))

    def keep(self, problems: Iterable[Problem]) -> None:
        """Add problems that another stage found."""
        for problem in problems:
            self._found.setdefault((problem.code, str(problem.mark), problem.message), problem)
            if len(self._found) > MOST_PROBLEMS:
                self._found.popitem()
                raise ScenarioError(too_many(self.in_order()))

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
        """Add a problem about a word that is none of `known`, with the likely one, or a list.

        `sort` says what the word is, as :mod:`runner.language.foreign` calls it.
        """
        close = likely(word, known, sort)
        hint = f"did you mean `{close}`?" if close else None
        if hint is None and listed and known:
            hint = f"{listed}: {spelt_out(known)}"
        self.add(code, message, mark, hint)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a scenario defines, by sort; `used` further files add their own, renamed."""

    constants: Mapping[str, Any] = field(default_factory=dict)
    tensors: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    handles: frozenset[str] = frozenset()
    #: those of them that are one for each value of an index
    indexed: frozenset[str] = frozenset()
    #: the variables of all loops, each known only inside its own
    variables: frozenset[str] = frozenset()
    #: what an expression may read, once it was asked for
    _united: list[frozenset[str]] = field(
        init=False, default_factory=list, repr=False, compare=False
    )

    @property
    def readable(self) -> frozenset[str]:
        """What an expression may read; united when it is first asked for."""
        if not self._united:
            self._united.append(
                ALWAYS.union(self.constants, self.tensors, self.objects, self.computed, self.groups)
            )
        return self._united[0]

    @property
    def held(self) -> frozenset[str]:
        """The names that a rank may hold a value under."""
        return self.tensors | self.objects | self.computed


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What `with:` gave for an input: a node, to be read where it was written."""

    node: Node
    context: Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Inlined:
    """How the names of a used file read outside of it.

    `bindings` are its inputs, `renamed` its own names. While a library is checked by itself its
    inputs are `opaque`: they stand for anything.
    """

    stem: str
    bindings: Mapping[str, Binding] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    #: the variables of its loops, which are known only inside of them
    variables: Mapping[str, str] = field(default_factory=dict)
    opaque: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where in which file something is read, and what may be named there."""

    faults: Faults
    limits: Limits
    names: Names
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
    inlined: Inlined | None = None
    expecting: bool = False
    #: what has no value yet where a value at the top of the file is read, and the name it is for
    unmade: Mapping[str, Later] = field(default_factory=dict)
    making: str | None = None

    def within(self, variable: str, final: str) -> Context:
        """Return the context inside a `for` over `variable`, which outside reads `final`."""
        return replace(self, loops={**self.loops, variable: final})

    def inside_expectation(self) -> Context:
        """Return the context in which `before(x, r)` has a meaning."""
        return self if self.expecting else replace(self, expecting=True)

    def inlining(self, inlined: Inlined) -> Context:
        """Return the context inside a used file."""
        return replace(self, inlined=inlined)

    @property
    def readable(self) -> Collection[str]:
        """The names that an expression written here may read."""
        if self.inlined is None:
            return self.names.readable.union(self.loops) if self.loops else self.names.readable
        here = self.inlined
        return ALWAYS.union(here.bindings, here.renamed, here.opaque, self.loops)

    def resolve(self, node: Node) -> tuple[Node, Context]:
        """Return what `with:` gave where a node is no more than an input's name."""
        context = self
        while context.inlined is not None:
            text = getattr(node, "value", None)
            binding = context.inlined.bindings.get(text) if isinstance(text, str) else None
            if binding is None:
                break
            node, context = binding.node, replace(binding.context, expecting=context.expecting)
        return node, context

    def final(self, name: str) -> str:
        """Return how a name of this file reads in the whole scenario."""
        if self.inlined is None:
            return name
        return self.loops.get(name) or self.inlined.renamed.get(name, name)

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
