"""The values that operations take and give: who enters with what, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from runner.plan import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What torch raises at the call itself, on this rank, before anything is communicated.

    `kind` is one of :data:`runner.vocabulary.RAISE_KINDS`. The diagnosis is `invalid_argument`. A
    `late` one is raised by the wait where the call is asynchronous.
    """

    kind: str
    message: str
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Members of one operation whose arguments do not fit together.

    `diagnosis` is one of `root_mismatch` `op_mismatch` `dtype_mismatch` `shape_mismatch`;
    `values` maps each group rank to what it passed, as text.
    """

    diagnosis: str
    what: str
    values: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undefined:
    """A value that an operation leaves undefined; never equal to anything.

    `cause` says in a phrase which operation left it so, `diagnosis` which mismatch did, if one.
    `measure` has its shapes and dtypes, which are defined: zeros in the place of its elements, or
    lists of such; None where they are not known. `memory` are the arrays that are undefined where
    that is a part of what a name holds; empty for all of it.
    """

    cause: str
    diagnosis: str | None = None
    measure: Any = field(default=None, compare=False, repr=False)
    memory: tuple[Any, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PremulSum:
    """The reduce op `{premul_sum: factor}`: every contribution times `factor`, then the sum."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One rank entering an operation, its arguments evaluated.

    `arguments` holds every declared parameter under its declared name (defaults filled in).
    Tensors are arrays of the executor's namespace (NumPy in the reference), possibly views into
    what the rank holds; lists of tensors are Python lists; roots are integers or None.
    """

    rank: int
    group: Group
    arguments: Mapping[str, Any]

    @property
    def group_rank(self) -> int:
        """This rank inside the group; -1 for a non-member."""
        return self.group.group_rank(self.rank)

    @property
    def size(self) -> int:
        """The number of members."""
        return self.group.size

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 -- an argument has any type
        """Return the argument `name`."""
        return self.arguments[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a point-to-point operation, seen from the rank that posts it.

    `peer` is a world rank, or None for a receive from anyone. `payload` is what is sent; `buffer`
    is where to receive (a tensor, or a list for objects). `group` is None for the call's own.
    """

    sends: bool
    peer: int | None
    tag: int
    payload: Any = None
    buffer: Any = None
    group: Group | None = None


class Ending(Exception):  # noqa: N818 -- not an error: a scenario asked for it
    """A `fault: kill` or `fault: exit` step: the process ends here.

    `how` is a signal's name or `exit N`.
    """

    def __init__(self, how: str) -> None:
        """Keep how the process ends."""
        super().__init__(how)
        self.how = how


class ProgramError(Exception):
    """A `fault: {raise: message}` step: the program raises here, of kind `other`."""


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype; NumPy builds it anew each time it is asked."""
    return dtype.name
