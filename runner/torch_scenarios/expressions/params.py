"""The arguments of operations, declared once.

From a :class:`Param` follow the JSON Schema of the argument, its validation, the way its YAML is
read into a form, its place in the step reference, and its conversion for torch. A *kind* names
the sort of value; what a kind means for YAML and for the schema stands in
`torch_scenarios.language`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

#: kind -> what the evaluated value is, on one rank
KINDS = {
    "tensor": "a tensor: the name of one, a view of one (`x[0:2]`), an expression or data",
    "tensors": "a list of tensors: the name of one, an expression that yields one, or a YAML list",
    "tensor_lists": "a list of lists of tensors",
    "rank": "an integer: a global rank",
    "group_rank": "an integer: a rank inside the group",
    "group": "the name of a process group; the world if left out",
    "reduce_op": "sum avg product min max band bor bxor, or {premul_sum: factor}",
    "sizes": "a list of integers: elements along dimension 0, one for each rank",
    "tag": "a non-negative integer that tells messages between the same two ranks apart",
    "flag": "true or false",
    "seconds": "a duration such as 1.5s, 200ms or 2min, or an expression in seconds",
    "ranks": "a list of global ranks, or an expression that yields one",
    "objects": "a list of plain values: the name of one in `objects:`, or YAML data",
    "object": "one plain value: the name of one in `objects:`, or YAML data",
    "handles": "the name of a work handle (`up`, `up[t]`), or a list of them",
    "reference": "the name of what `remote` returned",
    "function": "the name of a function in `functions:`",
    "name": "a new name",
    "word": "one of a few fixed words",
    "text": "free text",
    "p2p_ops": "a list of isend and irecv, with the arguments of torch's P2POp",
    "numbers": "a mapping from names to numbers or lists of numbers, named in order",
    "assignments": "a mapping from names to values, assigned in order",
    "held": "the name of a tensor that the rank holds",
    "model": "the name of a model",
    "checkpoint": "the name of a checkpoint, and no path",
    "batch": "a group, {group: g, sizes: [8, 4]} or {DistributedSampler: {group: g}}",
    "labels": "a list of labels of layers",
    "number": "a number, or an expression of parameters and `world_size`: one for all ranks",
    "clip": "a number, an expression of `rank`, or {max: 1.0, over: local}",
    "mesh": "the name of a device mesh, or of one of its dimensions: `mesh`, `mesh.dp`",
    "placements": "a list of Shard(dim), Replicate() and Partial(op), one for each mesh dimension",
}


class Param(Struct, frozen=True, kw_only=True):
    """One argument of an operation, under torch's own name for it.

    `writes` says that the operation stores into it, `reads` that it looks at what was there before
    (a pure output does not). `aliases` are names that other versions of torch use for the same
    argument. `words` are the values of kind `word`, `worded` those of them that come with a text:
    `{word: text}`.

    >>> tensor = Param(name="tensor", kind="tensor", description="It is reduced.", writes=True)
    >>> tensor.reads and tensor.writes
    True

    Races, undefined values and results all follow from `writes` and `reads`: an `irecv` of a tensor
    that is read meanwhile is a race because this says that it stores there.
    """

    name: str
    kind: str
    description: str
    required: bool = False
    default: Any = None
    writes: bool = False
    reads: bool = True
    aliases: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    worded: tuple[str, ...] = ()
    #: of kind `p2p_ops`: the keys of each item
    fields: tuple[Param, ...] = ()

    def __post_init__(self) -> None:
        """Fail at import on a kind that does not exist."""
        if self.kind not in KINDS:
            message = f"parameter {self.name!r} has the unknown kind {self.kind!r}"
            raise ValueError(message)


def tensor(
    name: str,
    description: str,
    *,
    writes: bool = False,
    reads: bool = True,
    required: bool = True,
    aliases: tuple[str, ...] = (),
) -> Param:
    """Declare one tensor."""
    return Param(
        name=name,
        kind="tensor",
        description=description,
        writes=writes,
        reads=reads,
        required=required,
        aliases=aliases,
    )


def tensors(name: str, description: str, **rest: Any) -> Param:
    """Declare a list of tensors, with what else :func:`tensor` takes."""
    return replace(tensor(name, description, **rest), kind="tensors")


GROUP = Param(name="group", kind="group", description="The process group; the world if left out.")

ASYNC_OP = Param(
    name="async_op",
    kind="flag",
    default=False,
    description="Return at once; the work is complete after a `wait` on the handle named by `as`.",
)

TIMEOUT = Param(
    name="timeout",
    kind="seconds",
    description="How long this call may block; the group's timeout if left out.",
)

REDUCE_OP = Param(
    name="op",
    kind="reduce_op",
    default="sum",
    description="How the contributions are combined; `sum` if left out.",
)

TAG = Param(
    name="tag",
    kind="tag",
    default=0,
    description="Only a receive with the same tag takes the message.",
)


def root(role: str, description: str) -> tuple[Param, Param]:
    """Declare a root in both of torch's spellings: `src` and `group_src`, `dst` and `group_dst`."""
    return (
        Param(name=role, kind="rank", description=f"{description} A global rank."),
        Param(
            name=f"group_{role}",
            kind="group_rank",
            description=f"{description} A rank inside the group, in place of `{role}`.",
        ),
    )
