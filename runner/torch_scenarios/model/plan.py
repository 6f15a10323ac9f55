"""The stage `Plan`: a scenario with its groups resolved, ready for either executor.

A plan knows every process group that exists before step 1, in the order of creation, and which of
them a name means on which rank; and what is known of each step's call before any rank takes it.
What a rank does, step by step, is read from it by :mod:`torch_scenarios.model.process`; it is made
by :mod:`torch_scenarios.model.groups`. Nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from torch_scenarios.errors import Compared
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Constant, Expression, Form, PerRank, roots_of
from torch_scenarios.model.scenario import GroupSpec, Scenario, Step, steps_of
from torch_scenarios.operations.base import Group, Operation

# What is known of a step's call before any rank takes it: most arguments are the same each time.
#
# Told from the step alone, once for all ranks and all rounds of a loop, so that a call evaluates
# only what may differ. Knows no rank and no array.

#: kinds whose constant is the argument itself, by the types that it may have
_PLAIN: dict[str, tuple[type, ...]] = {
    "rank": (int,),
    "group_rank": (int,),
    "tag": (int,),
    "group": (str,),
    "reduce_op": (str,),
    "flag": (bool,),
    "handles": (str,),
    "word": (str,),
    "text": (str,),
    "name": (str,),
}


#: kinds of arguments that are the tensor itself where a form is a tensor's name
_TENSORS = {"tensor", "tensors", "tensor_lists"}


class PreparedCall(Struct, frozen=True, kw_only=True):
    """One step's call, as far as it is known.

    `arguments` has every parameter, in order: what is known of them, and a default for those
    `given` by forms that are evaluated each time; None where the operation evaluates them itself.
    `names` are what the forms given consist of, where each is the name of a tensor alone: then the
    same tensors make the same call. `roots` has every argument with the names whose storage it may
    share, and `chosen` the forms of those that depend on the rank. `group` is the name of the
    group; `computed` tells that it is not known.

        - all_reduce: {tensor: x, op: sum}
          arguments  {tensor: None, op: "sum", group: None, async_op: False}
          given      tensor, by the expression `x`; names ("x",)

    In a loop of 10,000 rounds on 64 ranks the group and the reduce op are thus looked up once, and
    the call of a round is that of the round before, as long as `x` is the same tensor (decision
    28).
    """

    arguments: dict[str, Any] | None
    given: tuple[tuple[Param, Form], ...]
    names: tuple[str, ...] | None
    roots: dict[str, frozenset[str]] | None
    chosen: tuple[tuple[str, Form], ...]
    group: str | None
    computed: bool


def prepare(step: Step) -> PreparedCall:
    """Return what is known of the call of a step that has an operation."""
    operation = step.operation
    assert operation is not None
    kind = type(operation)
    known: dict[str, Any] = {}
    given: list[tuple[Param, Form]] = []
    for param in operation.params:
        form = step.arguments.get(param.name)
        known[param.name] = param.default
        if form is not None and not _is_plain(param, form):
            given.append((param, form))
        elif isinstance(form, Constant) and form.value is not None:
            known[param.name] = form.value
    stated = operation.find_shared(step.arguments)
    group = step.arguments.get("group")
    fixed = group is None or isinstance(group, Constant)
    return PreparedCall(
        arguments=known if kind.evaluate is Operation.evaluate else None,
        given=tuple(given),
        names=_names(given),
        roots={name: roots_of(form) for name, form in stated.items()}
        if kind.roots is Operation.roots
        else None,
        chosen=tuple((name, form) for name, form in stated.items() if isinstance(form, PerRank)),
        group=group.value if isinstance(group, Constant) else None,
        computed=not fixed or kind.group_of is not Operation.group_of,
    )


def _names(given: list[tuple[Param, Form]]) -> tuple[str, ...] | None:
    """Return the names that forms consist of; None where one is more than a tensor's name."""
    if any(
        param.kind not in _TENSORS
        or not isinstance(form, Expression)
        or form.names != {form.text.strip()}
        for param, form in given
    ):
        return None
    return tuple(form.text.strip() for _, form in given if isinstance(form, Expression))


def _is_plain(param: Param, form: Form) -> bool:
    if not isinstance(form, Constant):
        return False
    if param.kind not in _PLAIN:
        return False
    return form.value is None or form.value.__class__ in _PLAIN[param.kind]


class Creation(Struct, frozen=True, kw_only=True):
    """One call that creates groups before step 1, made by every rank.

    `kind` is the torch function: `new_group`, `new_subgroups`, `new_subgroups_by_enumeration` or
    `init_device_mesh`. `groups` are its results in torch's order of creation. `refused` says why
    torch refuses the call, on every rank, or is None.

        mesh: {shape: [2, 3], dims: [dp, tp]}       6 ranks, row-major, the last dimension fastest

             tp ->                 groups, in order
          0  1  2                  mesh.dp#0 (0, 3)  mesh.dp#1 (1, 4)  mesh.dp#2 (2, 5)
          3  4  5                  mesh.tp#0 (0, 1, 2)  mesh.tp#1 (3, 4, 5)

    The order matters: ranks meet in their n-th creation, and a rank that is in none of a call's
    groups makes the call all the same.
    """

    kind: str
    spec: GroupSpec
    groups: tuple[Group, ...]
    shape: tuple[int, ...] = ()
    refused: str | None = None


class Plan(Compared, frozen=True, kw_only=True):
    """A scenario, its world, and the groups that exist before step 1.

    >>> from torch_scenarios.errors import Source
    >>> world = Group(key="world", name="world", ranks=(0, 1, 2, 3), timeout_s=10.0)
    >>> scenario = Scenario(source=Source(path="a.yaml", text=""), name="a", case="a", world_size=4)
    >>> plan = Plan(scenario=scenario, world=world, node_size=2)
    >>> [plan.place(rank) for rank in range(4)]
    [(0, 0), (0, 1), (1, 0), (1, 1)]

    It is made once and read by every rank. Nothing of it depends on values that a step computes:
    where a group does, the program says so with a `new_group` step.
    """

    apart = ("introduced", "numbers", "prepared", "selected", "_members")

    scenario: Scenario
    world: Group
    creations: tuple[Creation, ...] = ()
    #: name -> the groups of that name; a rank is in at most one of them
    names: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)
    #: how many ranks each host of the launch has; 0: one host has all of them
    node_size: int = 0
    #: names that steps may give a value first; on a rank without one they are None
    introduced: tuple[str, ...] = ()
    #: names that `let` gives to numbers
    numbers: frozenset[str] = frozenset()
    #: step index -> what is known of its call (see :mod:`torch_scenarios.model.process`)
    prepared: dict[int, PreparedCall] = field(default_factory=dict)
    #: what selectors say that nothing changes, in all runs (see `Evaluator.selects`)
    selected: dict[tuple[int, int], tuple[Form, bool]] = field(default_factory=dict)
    #: name -> world rank -> the group that the name means there
    _members: dict[str, dict[int, Group]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the groups, and what steps introduce, once for all ranks."""
        introduced = dict.fromkeys(
            name
            for step in steps_of(self.scenario.steps)
            if step.operation is not None
            for name in step.operation.introduces(step.arguments)
        )
        force_setattr(self, "introduced", tuple(introduced))
        numbers = (
            step.operation.numbers(step.arguments)
            for step in steps_of(self.scenario.steps)
            if step.operation is not None
        )
        force_setattr(self, "numbers", frozenset().union(*numbers))
        members = {
            name: {rank: group for group in reversed(groups) for rank in group.ranks}
            for name, groups in self.names.items()
        }
        force_setattr(self, "_members", members)

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.world.size

    def place(self, rank: int) -> tuple[int, int]:
        """Return on which host a rank is, and which process of it: what torchrun tells it."""
        return divmod(rank, self.node_size or self.world_size)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of torch's, beside torch itself, that the steps need."""
        found = {
            module: None
            for step in steps_of(self.scenario.steps)
            if step.operation is not None
            for module in step.operation.modules
        }
        for model in self.scenario.models.values():
            found |= dict.fromkeys(model.modules)
        return tuple(found)

    def group(self, name: str, rank: int) -> Group | None:
        """Return the group that `name` means on `rank`; None where it is in no such group."""
        return self._members.get(name, {}).get(rank)
