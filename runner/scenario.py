"""The stage `Scenario`: what one case of one file says, checked and resolved, still unevaluated.

Made by :mod:`runner.language` from YAML; read by :mod:`runner.plan` and by the verdict. Parameters
and matrix keys are already constants here and `use` is already inlined; what depends on a rank, a
loop variable or a tensor is kept as a *form*:

* :class:`Constant` - the value itself: a number, a nested list, a fixed name, None;
* :class:`Expression` - Python expression text, compiled, evaluated on each rank;
* :class:`ListForm` - a YAML list with at least one item that is a form of its own;
* :class:`Record` - a YAML mapping whose values are forms;
* :class:`PerRank` - a mapping from selectors to forms; the first that matches wins;
* :class:`Typed` - the long form of a tensor value, with dtype and shape.

Nothing here evaluates anything but a single expression in a given scope.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from types import CodeType

    from runner.operations.base import Operation
    from runner.problems import Mark, Source

T = TypeVar("T")

#: What an expression sees: variables under their own name, functions under `name()`.
Scope: TypeAlias = Mapping[str, Any]

OUTCOMES = ("completes", "deadlock", "error", "crash")

RAISE_KINDS = (
    "timeout",
    "shape_mismatch",
    "dtype_mismatch",
    "invalid_argument",
    "unsupported",
    "peer_lost",
    "not_member",
    "aborted",
    "out_of_memory",
    "other",
)

DIAGNOSES = (
    "circular_wait",
    "missing_participant",
    "call_mismatch",
    "root_mismatch",
    "op_mismatch",
    "dtype_mismatch",
    "shape_mismatch",
    "tag_mismatch",
    "unmatched_send",
    "unmatched_recv",
    "group_order",
    "group_creation",
    "buffering_hazard",
    "message_race",
    "buffer_race",
    "missing_wait",
    "undefined_read",
    "invalid_argument",
)

DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)

REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A value that is the same on every rank. Nested lists hold plain numbers only."""

    value: Any
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An expression of the language, compiled to a code object over guarded operations.

    `names` are the free variables it may read, `reads` those among them whose elements it may,
    `roots` those whose storage the value may share (`x`, `x[0:2]`, `[x[i] for i in range(2)]`:
    `{"x"}`; `x + 1`: empty), and `calls` the functions it uses. `before` lists the tensors it asks
    `before(x, r)` for.
    """

    text: str
    code: CodeType = field(compare=False, repr=False)
    names: frozenset[str]
    reads: frozenset[str]
    roots: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()
    mark: Mark | None = field(default=None, compare=False, repr=False)

    def evaluate(self, scope: Scope) -> Any:  # noqa: ANN401 -- a scenario's value has any type
        """Return the value in `scope`; whatever the guarded operations raise passes through.

        `scope` must be a plain dict: it serves as the code's globals, because a comprehension
        inside evaluated code sees no locals.
        """
        return eval(self.code, scope)  # type: ignore[arg-type]  # noqa: S307 -- allow-listed AST

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the code as marshalled bytes: a plan travels from the launcher to its workers."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return _expression, ({**fields, "code": marshal.dumps(self.code)},)


def _expression(fields: dict[str, Any]) -> Expression:
    return Expression(**{**fields, "code": marshal.loads(fields["code"])})  # noqa: S302 -- ours


@dataclass(frozen=True, slots=True, kw_only=True)
class ListForm:
    """A YAML list whose items are forms: evaluates to the list of their values."""

    items: tuple[Form, ...]
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A YAML mapping whose values are forms: evaluates to the dict of their values."""

    fields: Mapping[str, Form]
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A tensor value in its long form. `value` is None where only dtype and shape are stated.

    In an expectation `rtol` and `atol` replace the dtype's default tolerance.
    """

    value: Form | None
    dtype: Form | None = None
    shape: Form | None = None
    rtol: float | None = None
    atol: float | None = None
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """A plain YAML value for the object collectives; its `{expr: ...}` parts are Expressions.

    `tree` is built of dicts, lists, scalars and :class:`Expression` leaves.
    """

    tree: Any
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which ranks: a form whose value is a boolean, an integer or a collection of integers.

    The name of a group evaluates to the list of its ranks. `text` is what the author wrote.
    """

    form: Form
    text: str
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerRank(Generic[T]):
    """A mapping from selectors to values. `otherwise` is `else`, or None when there is none.

    A rank that no branch selects has no value: the name does not exist there.
    """

    branches: tuple[tuple[Selector, T], ...]
    otherwise: T | None = None
    mark: Mark | None = field(default=None, compare=False, repr=False)


Form: TypeAlias = "Constant | Expression | ListForm | Record | PerRank[Any] | Typed | Objects"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """The word `unchanged`: what the rank held before the step (at the top: in the beginning)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElapsedBounds:
    """Seconds since the scenario began, on that rank; None is no bound."""

    min_s: Form | None = None
    max_s: Form | None = None
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseSpec:
    """Kinds of which any will do; empty means that nothing may be raised (`none`).

    `contains` asks for a substring of the backend's own message.
    """

    kinds: tuple[str, ...]
    contains: str | None = None
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueExpectation:
    """`key` must be `wanted`: key is a name or an expression, evaluated on the rank that is asked.

    `wanted` is a form, :class:`Unchanged`, or a PerRank of these.
    """

    key: Expression
    wanted: Form | Unchanged | PerRank[Form | Unchanged]
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What must hold right after a step, on every rank that took it."""

    values: tuple[ValueExpectation, ...] = ()
    elapsed: ElapsedBounds | PerRank[ElapsedBounds] | None = None
    raises: RaiseSpec | PerRank[RaiseSpec] | None = None
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalExpectation:
    """The top-level `expect`. A field that is None, or empty, was not stated.

    `blocked` and `dies` map a selector to text (a step's name or label; a signal name or
    `exit N`). `backends` holds what differs on one backend: each a complete FinalExpectation that
    was already merged over the general one.
    """

    outcome: str = "completes"
    blocked: PerRank[str] | None = None
    diagnoses: tuple[str, ...] = ()
    dies: PerRank[str] | None = None
    within_s: float | None = None
    at_end: Expectation = Expectation()
    backends: Mapping[str, FinalExpectation] = field(default_factory=dict)
    mark: Mark | None = field(default=None, compare=False, repr=False)

    def on(self, backend: str) -> FinalExpectation:
        """Return what is expected on `backend`."""
        return self.backends.get(backend, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """One entry of `groups:`. Exactly one of the five forms is not None.

    `ranks` a selector-like form (list or expression); `partition` a form that yields lists of
    ranks; `size` of `new_subgroups`; `shape` with `dims` of `init_device_mesh`.
    """

    name: str
    ranks: Form | None = None
    partition: Form | None = None
    size: Form | None = None
    shape: Form | None = None
    dims: tuple[str, ...] = ()
    timeout_s: float | None = None
    backend: str | None = None
    sort_ranks: bool = True
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the list, or (with `body`) a `for` over further steps.

    `index` numbers the steps of a scenario in the order of the file after `use` was inlined,
    depth first, from 0. `arguments` maps an argument's name (torch's) to its form; for `compute`
    to the assigned names in order. A step that is an `expect` alone has `operation` None.
    """

    index: int
    operation: Operation | None = None
    arguments: Mapping[str, Form] = field(default_factory=dict)
    name: str | None = None
    ranks: Selector | None = None
    handle: str | None = None
    expect: Expectation | None = None
    variable: str | None = None
    over: Form | None = None
    body: tuple[Step, ...] = ()
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One case: a file, one combination of its matrix, its parameters bound."""

    source: Source
    name: str
    case: str
    world_size: int
    description: str = ""
    tags: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    backends: tuple[str, ...] | None = None
    timeout_s: float = 10.0
    debug: str = "off"
    groups: tuple[GroupSpec, ...] = ()
    tensors: Mapping[str, Form] = field(default_factory=dict)
    objects: Mapping[str, Form] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    expect: FinalExpectation = FinalExpectation()
    mark: Mark | None = field(default=None, compare=False, repr=False)


def steps_of(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return every step in `steps`, bodies included, in order of their index."""
    found: list[Step] = []
    for step in steps:
        found.append(step)
        found.extend(steps_of(step.body))
    return tuple(found)
