"""Values as a scenario writes them, checked and resolved, not yet evaluated."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec.structs import replace

from torch_scenarios.errors import Compared, Mark, Marked, Problem
from torch_scenarios.expressions.arrays import Arrays
from torch_scenarios.expressions.params import Param


class Undefined(Compared, frozen=True, kw_only=True):
    """A value that an operation leaves undefined; never equal to anything.

    `cause` says in a phrase which operation left it so, `diagnosis` which mismatch did, if one;
    `origin` is the index of that operation's step, -1 where it is not known. `measure` has its
    shapes and dtypes, which are defined: zeros in the place of its elements, or lists of such; None
    where they are not known. `memory` are the arrays that are undefined where that is a part of
    what a name holds; empty for all of it.

    "Never equal" is meant of what it is in place of: no expectation holds of it. As objects two of
    them are equal where they have one cause, wherever that was, so that two orders of arrival which
    leave the same thing undefined are one state.

    >>> Undefined(cause="a buffer race", origin=1) == Undefined(cause="a buffer race", origin=2)
    True
    """

    apart = ("measure", "memory", "origin")

    cause: str
    diagnosis: str | None = None
    measure: Any = None
    memory: tuple[Any, ...] = ()
    origin: int = -1


# Forms: what a scenario writes where a value stands, checked and resolved, still unevaluated.
#
# Parameters and matrix keys are already constants; what depends on a rank, a loop variable or a
# tensor is kept as one of these:
#
# * :class:`Constant` - the value itself: a number, a nested list, a fixed name, None;
# * :class:`Expression` - Python expression text, compiled, evaluated on each rank;
# * :class:`ListForm` - a YAML list with at least one item that is a form;
# * :class:`Record` - a YAML mapping whose values are forms;
# * :class:`PerRank` - a mapping from selectors to forms; the first that matches wins;
# * :class:`TypedValue` - the long form of a tensor value, with dtype and shape;
# * :class:`Objects` - a plain YAML value for the object collectives.
#
# Nothing here evaluates anything but a single expression in a given scope;
# :mod:`torch_scenarios.expressions.evaluator` gives the rest their values.

T = TypeVar("T")

#: What an expression sees: variables under their own name, functions under `name()`.
Scope: TypeAlias = Mapping[str, Any]


class Constant(Marked, frozen=True, kw_only=True):
    """A value that is the same on every rank. Nested lists hold plain numbers only.

    >>> Constant(value=[1, 2]) == Constant(value=[1, 2])
    True

    Where it is written takes no part in that: two files that say the same have equal scenarios.
    """

    value: Any


class Expression(Marked, frozen=True, kw_only=True):
    """An expression of the language, compiled to a code object over guarded operations.

    `names` are the free variables it may read, `reads` those among them whose elements it may,
    `roots` those whose storage the value may share (`x`, `x[0:2]`, `[x[i] for i in range(2)]`:
    `{"x"}`; `x + 1`: empty), and `calls` the functions it uses. `before` lists the tensors it asks
    `before(x, r)` for.

    >>> from torch_scenarios.expressions.compile import compile_expression
    >>> part = compile_expression("x[rank:rank + 2]", None)
    >>> sorted(part.names), sorted(part.roots)
    (['rank', 'x'], ['x'])
    >>> total = compile_expression("sum(x) + 1", None)
    >>> sorted(total.reads), sorted(total.roots), sorted(total.calls)
    (['x'], [], ['sum'])

    The sets are what the analysis lives on. `reads` without elements (`shape(x)`) may look at a
    tensor in flight; `roots` tell which tensor an `isend` of `x[0:2]` keeps in use.
    """

    apart = ("code", "mark")

    text: str
    code: CodeType
    names: frozenset[str]
    reads: frozenset[str]
    roots: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()

    def evaluate(self, scope: Scope) -> Any:
        """Return the value in `scope`; whatever the guarded operations raise passes through.

        `scope` must be a plain dict: it serves as the code's globals, because a comprehension
        inside evaluated code sees no locals.
        """
        return eval(self.code, scope)  # type: ignore[arg-type]  # noqa: S307 -- allow-listed AST

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the code as marshalled bytes: a plan travels from the launcher to its workers."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return _expression, ({**fields, "code": marshal.dumps(self.code)},)


def _expression(fields: dict[str, Any]) -> Expression:
    return Expression(**{**fields, "code": marshal.loads(fields["code"])})  # noqa: S302 -- ours


class ListForm(Marked, frozen=True, kw_only=True):
    """A YAML list whose items are forms: evaluates to the list of their values.

    [1, rank]     ->   ListForm(items=(Constant(1), Expression("rank")))
    [1, 2]        ->   Constant([1, 2]): no item depends on anything
    """

    items: tuple[Form, ...]


class Record(Marked, frozen=True, kw_only=True):
    """A YAML mapping whose values are forms: evaluates to the dict of their values.

    As an item of a list it may be there on some `ranks` only, and once for each value of the
    variables of its `loops`, outermost first.

        p2p_op_list:
          - {for: {j: range(3)}, op: irecv, tensor: "y[j]", peer: j}                one for each j
          - {op: isend, tensor: x, peer: rank + 1, ranks: rank + 1 < world_size}    on some ranks
    """

    fields: Mapping[str, Form]
    ranks: Selector | None = None
    loops: tuple[tuple[str, Form], ...] = ()


class TypedValue(Marked, frozen=True, kw_only=True):
    """A tensor value in its long form. `value` is None where only dtype and shape are stated.

    In an expectation `rtol` and `atol` replace the dtype's default tolerance, and `placements` says
    how a distributed tensor lies on its mesh: the rest is then of what the rank itself holds.

        x: {value: [1, 2], dtype: bfloat16}       y: {shape: [4], dtype: float32}

    >>> TypedValue(value=None, shape=Constant(value=[4])).rtol is None
    True
    """

    value: Form | None
    placements: Form | None = None
    dtype: Form | None = None
    shape: Form | None = None
    rtol: float | None = None
    atol: float | None = None


class Objects(Marked, frozen=True, kw_only=True):
    """A plain YAML value for the object collectives; its `{expr: ...}` parts are Expressions.

    `tree` is built of dicts, lists, scalars and :class:`Expression` leaves.

        meta: {step: 3, owner: {expr: rank}}

    Without the mark a text in an object is a text: `owner: rank` is the word "rank" on every rank.
    In a tensor's value it is an expression, since a tensor has no texts.
    """

    tree: Any


class Selector(Marked, frozen=True, kw_only=True):
    """Which ranks: a form whose value is a boolean, an integer or a collection of integers.

    The name of a group evaluates to the list of its ranks. `text` is what the author wrote.

        ranks: rank > 0     ranks: 3     ranks: [0, 2]     ranks: even      four selectors
    """

    form: Form
    text: str


class PerRank(Marked, Generic[T], frozen=True, kw_only=True):
    """A mapping from selectors to values. `otherwise` is `else`, or None when there is none.

    A rank that no branch selects has no value: the name does not exist there. `places` are those of
    the values of the branches, and at last that of `else`.

        x: {rank == 0: [1, 2], else: [0, 0]}

    The first branch that selects a rank counts, as in a chain of `if` and `elif`.
    """

    apart = ("mark", "places")

    branches: tuple[tuple[Selector, T], ...]
    otherwise: T | None = None
    places: tuple[Mark, ...] = ()


Form: TypeAlias = "Constant | Expression | ListForm | Record | PerRank[Any] | TypedValue | Objects"


def children(form: Any) -> Iterator[Any]:
    """Yield what a form is made of, one level down: forms, and the selectors between them.

    What is no form, as an expectation that nothing changes, is made of nothing.
    """
    return (part for part in _parts(form) if part is not None)


def _parts(form: Any) -> Iterable[Any]:
    match form:
        case ListForm():
            return form.items
        case Record():
            return (form.ranks, *(over for _, over in form.loops), *form.fields.values())
        case PerRank():
            return (*(part for branch in form.branches for part in branch), form.otherwise)
        case Selector():
            return (form.form,)
        case TypedValue():
            return (form.value, form.dtype, form.shape)
        case Objects():
            return _leaves(form.tree)
        case _:
            return ()


def _leaves(tree: Any) -> Iterator[Expression]:
    """Yield the expressions in a tree of plain YAML."""
    if isinstance(tree, Expression):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _leaves(value)


def expressions_in(form: Any) -> Iterator[Expression]:
    """Yield every expression that a form is made of, itself included."""
    if isinstance(form, Expression):
        yield form
    elif form is not None:
        for child in children(form):
            yield from expressions_in(child)


def names_of(form: Any) -> frozenset[str]:
    """Return every name that the value of a form may depend on, on some rank."""
    if isinstance(form, Expression):
        return form.names
    if isinstance(form, Record) and form.loops:
        own = {variable for variable, _ in form.loops}
        counted = frozenset().union(*(names_of(over) for _, over in form.loops))
        return (names_of(replace(form, loops=())) - own) | counted
    return frozenset().union(*map(names_of, children(form)))


def roots_of(form: Form | None) -> frozenset[str]:
    """Return the names whose storage the value of a form may share."""
    match form:
        case Expression():
            return form.roots
        case ListForm():
            return frozenset().union(*(roots_of(item) for item in form.items))
        case Record():
            return frozenset().union(*(roots_of(item) for item in form.fields.values()))
        case PerRank():
            parts = [roots_of(item) for _, item in form.branches]
            return frozenset().union(*parts, roots_of(form.otherwise))
        case _:
            return frozenset()


# Tensors, lists of tensors and lists of such lists: the arguments that nest, told apart.

DEFAULT_DTYPE = "float32"

#: kind of argument -> how many lists stand around its tensors
DEPTHS = {"tensor": 0, "tensors": 1, "tensor_lists": 2}

_WANTED = ("a tensor", "a list of tensors", "a list of lists of tensors")


def has_depth(arrays: Arrays, value: object, depth: int) -> bool:
    """Return whether `depth` lists stand around the tensors of a value; None fits everywhere."""
    if value is None:
        return True
    if depth == 0:
        return arrays.is_array(value)
    return isinstance(value, list) and all(has_depth(arrays, item, depth - 1) for item in value)


def data_at(arrays: Arrays, depth: int, value: Any) -> Any:
    """Return plain data as tensors below `depth` lists; None stays None."""
    if value is None:
        return None
    if depth == 0:
        return arrays.array(value, DEFAULT_DTYPE)
    return [data_at(arrays, depth - 1, item) for item in value]


def wrong_value(param: Param, mark: Mark | None, rank: int) -> Problem:
    """Return the problem for a tensor where a list of tensors is wanted, or the reverse."""
    return Problem(
        code="wrong_type",
        message=f"`{param.name}` is not {_WANTED[DEPTHS[param.kind]]} on rank {rank}",
        mark=mark,
        hint="a list of tensors is `[x, y]`, or an expression: `[zeros(2) for i in range(4)]`",
    )
