"""Scenario -> Plan: what each entry of `groups:` creates, in torch's own order.

The ranks of a group are computed once, for all ranks alike, because `groups:` states what every
rank agrees on; a program whose ranks disagree says so with `new_group` steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from math import prod
from typing import Any

from msgspec.structs import replace

from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.expressions.arrays import Arrays
from torch_scenarios.expressions.evaluator import CANNOT_COMPUTE, take_integer, wholes
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.values import Constant, Expression, Form, ListForm, PerRank
from torch_scenarios.limits import Limits, account
from torch_scenarios.model.plan import Creation, Plan
from torch_scenarios.model.process import Process
from torch_scenarios.model.scenario import GroupSpec, Scenario
from torch_scenarios.operations.base import Group
from torch_scenarios.vocabulary import WORLD

#: functions that ask of a group
_GROUP_FUNCTIONS = frozenset({"group_rank", "group_size", "group_ranks"})

#: units of work for each group before one that is computed from them
GROUP_WORK = 200


def plan(scenario: Scenario, *, limits: Limits | None = None, node_size: int = 0) -> Plan:
    """Resolve the groups of a scenario. Raises ScenarioError where they cannot be computed.

    `node_size` is how many ranks each host of the launch has; 0: one host has all of them. It
    decides what `node_rank()` and `local_rank()` are.
    """
    resolved = resolve(scenario, numpy_arrays(limits) if limits else numpy_arrays())
    return replace(resolved, node_size=node_size) if node_size else resolved


def resolve(scenario: Scenario, arrays: Arrays) -> Plan:
    """Return the plan of a scenario. Raises ScenarioError where a group cannot be computed."""
    world = Group(
        key=WORLD,
        name=WORLD,
        ranks=tuple(range(scenario.world_size)),
        timeout_s=scenario.timeout_s,
    )
    names: dict[str, tuple[Group, ...]] = {WORLD: (world,)}
    creations: list[Creation] = []
    alone: _Ranks | None = None
    for spec in scenario.groups:
        # A group may be computed from those before it (`ranks: group_ranks(dp)[0:2]`), and then
        # needs ranks that know them. All others share one set of ranks that know the world alone,
        # since a file may have thousands of groups.
        asks = _asks_groups(spec, names)
        found = account()
        if asks and found is not None:
            found.spend(GROUP_WORK * len(names), spec.mark)
        ranks = alone
        if ranks is None or asks:
            known = dict(names) if asks else {WORLD: (world,)}
            ranks = _Ranks(Plan(scenario=scenario, world=world, names=known), arrays)
            alone = alone if asks else ranks
        creation = _creation(spec, scenario, _Stated(ranks, spec))
        creations.append(creation)
        made: dict[str, list[Group]] = {}
        for group in creation.groups:
            made.setdefault(group.name, []).append(group)
        for name, groups in made.items():
            names[name] = (*names.get(name, ()), *groups)
        names.setdefault(spec.name, ())
    return Plan(scenario=scenario, world=world, creations=tuple(creations), names=names)


def _asks_groups(spec: GroupSpec, names: Collection[str]) -> bool:
    """Whether a group's ranks may be computed from groups before it."""
    forms = (spec.ranks, spec.partition, spec.size, spec.shape)
    return any(form is not None and _asks(form, names) for form in forms)


def _asks(form: Form, names: Collection[str]) -> bool:
    match form:
        case Constant():
            return False
        case Expression():
            return not form.names.isdisjoint(names) or not form.calls.isdisjoint(_GROUP_FUNCTIONS)
        case ListForm():
            return any(_asks(item, names) for item in form.items)
        case _:
            return True


class _Ranks:
    """The ranks of a plan, made as they are asked for.

    A form that is the same on every rank is computed on rank 0 only: of 1,024 ranks one is made.
    """

    def __init__(self, plan: Plan, arrays: Arrays) -> None:
        self.plan = plan
        self._arrays = arrays
        self._made: dict[int, Process] = {}

    def __getitem__(self, rank: int) -> Process:
        """Return a rank to which a group's name means its ranks, whether it is one or not."""
        if rank not in self._made:
            process = Process(self.plan, rank, self._arrays, initialise=False)
            names = self.plan.names
            single = {name: groups[0] for name, groups in names.items() if len(groups) == 1}
            process.scope |= {name: group.listed for name, group in single.items()}
            process.groups |= single
            self._made[rank] = process
        return self._made[rank]


class _Stated:
    """Evaluates the forms of a group's specification, which must be the same on every rank.

    torch asks each rank for the same lists, in the same order, and checks nothing: ranks that pass
    others wait for members that never come. So a form that differs from rank to rank is a mistake
    of the file here.
    """

    def __init__(self, ranks: _Ranks, spec: GroupSpec) -> None:
        self._plan = ranks.plan
        self._spec = spec
        self._at = ranks

    def members(self, form: Form) -> list[int]:
        """Return the ranks that a form selects: a list, one, or a condition that holds on them.

        ranks: [0, 2]             0 and 2
        ranks: 1                  1 alone
        ranks: rank % 2 == 0      those on which it is true, asked of each
        """
        values = self._evaluate_on_ranks(form)
        if all(isinstance(value, bool) for value in values):
            return [rank for rank, value in enumerate(values) if value]
        value = self._require_agreement(values, form)
        return self._ranks([value] if value.__class__ is int else value, form)

    def partition(self, form: Form) -> list[list[int]]:
        """Return lists of ranks."""
        parts = self._require_agreement(self._evaluate_on_ranks(form), form)
        if not isinstance(parts, list):
            raise self._refuse(parts, form, "a list of lists of ranks")
        return [self._ranks(part, form) for part in parts]

    def size(self, form: Form) -> int:
        """Return an integer."""
        value = self._require_agreement(self._evaluate_on_ranks(form), form)
        try:
            return take_integer(value)
        except CANNOT_COMPUTE:
            raise self._refuse(value, form, "an integer") from None

    def shape(self, form: Form) -> tuple[int, ...]:
        """Return a list of integers."""
        return tuple(
            self._ranks(self._require_agreement(self._evaluate_on_ranks(form), form), form)
        )

    def _evaluate_on_ranks(self, form: Form) -> list[Any]:
        """Return what a form is on each rank that may have another value of it.

        On rank 0 if none may.
        """
        parted = {name for name, groups in self._plan.names.items() if len(groups) > 1}
        asked = range(self._plan.world_size) if _depends_on_rank(form, parted) else (0,)
        return [_make_list(self._at[rank].evaluate(form)) for rank in asked]

    def _require_agreement(self, values: list[Any], form: Form) -> Any:
        if any(value != values[0] for value in values):
            raise ScenarioError(
                [
                    Problem(
                        code="group_differs",
                        message=f"the group `{self._spec.name}` differs from rank to rank",
                        mark=form.mark or self._spec.mark,
                        hint="a group for each rank's own part is {partition: [[0, 1], [2, 3]]}; "
                        "ranks that disagree are shown with new_group steps",
                    )
                ]
            )
        return values[0]

    def _ranks(self, value: Any, form: Form) -> list[int]:
        try:
            return wholes(value)
        except CANNOT_COMPUTE:
            raise self._refuse(value, form, "a list of integers") from None

    def _refuse(self, value: Any, form: Form, wanted: str) -> ScenarioError:
        message = f"the group `{self._spec.name}` states {_show(value)}, not {wanted}"
        hint = "write ranks as integers: [0, 2], or an expression such as `range(4)`"
        mark = form.mark or self._spec.mark
        return ScenarioError([Problem(code="bad_group", message=message, mark=mark, hint=hint)])


def _depends_on_rank(form: Form, parted: Collection[str]) -> bool:
    """Whether ranks may disagree; a name in `parted` means another group on another rank.

    `group_size(dp)` of a mesh with groups of one size each is the same everywhere, but that is not
    known here: where a name has several groups, each rank is asked.
    """
    match form:
        case Expression():
            asked = {"group_rank", *(("group_size", "group_ranks") if parted else ())}
            return not (form.names.isdisjoint(("rank", *parted)) and form.calls.isdisjoint(asked))
        case ListForm():
            return any(_depends_on_rank(item, parted) for item in form.items)
        case PerRank():
            return True
        case _:
            return False


def _make_list(value: Any) -> Any:
    if isinstance(value, list | range | tuple):
        return [_make_list(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _show(value: Any) -> str:
    return "nothing" if value is None else f"{value!r}"


def _creation(spec: GroupSpec, scenario: Scenario, stated: _Stated) -> Creation:
    """Return what an entry of `groups:` makes, by the one key that it has.

    ranks       new_group
    partition   new_subgroups_by_enumeration
    size        new_subgroups
    shape       init_device_mesh
    """
    if spec.ranks is not None:
        return _single(spec, scenario, stated.members(spec.ranks))
    if spec.partition is not None:
        parts = stated.partition(spec.partition)
        return _parts("new_subgroups_by_enumeration", spec, scenario, parts)
    if spec.size is not None:
        return _subgroups(spec, scenario, stated.size(spec.size))
    assert spec.shape is not None
    return _mesh(spec, scenario, stated.shape(spec.shape))


def _group(
    spec: GroupSpec, scenario: Scenario, *, key: str, name: str, ranks: Sequence[int]
) -> Group:
    return Group(
        key=key,
        name=name,
        ranks=tuple(ranks),
        timeout_s=scenario.timeout_s if spec.timeout_s is None else spec.timeout_s,
        backend=spec.backend,
        mark=spec.mark,
    )


def _single(spec: GroupSpec, scenario: Scenario, ranks: list[int]) -> Creation:
    """Return the creation of one group.

    torch sorts the ranks of `new_group` unless `sort_ranks=False`: with that, the rank within the
    group follows the list, and so does the order of what is gathered.
    """
    ordered = sorted(ranks) if spec.sort_ranks else ranks
    group = _group(spec, scenario, key=spec.name, name=spec.name, ranks=ordered)
    refused = explain_refusal(ranks, scenario.world_size)
    return Creation(kind="new_group", spec=spec, groups=(group,), refused=refused)


def explain_refusal(ranks: Sequence[int], world_size: int) -> str | None:
    """Return why `torch.distributed.new_group` refuses these ranks, or None.

    >>> explain_refusal([0, 3], 2), explain_refusal([0, 1], 2)
    ('rank 3 is not in a world of 2', None)
    """
    if not ranks:
        return "a group needs at least one rank"
    outside = [rank for rank in ranks if not 0 <= rank < world_size]
    if outside:
        return f"rank {outside[0]} is not in a world of {world_size}"
    if len(set(ranks)) < len(ranks):
        return "a rank appears twice"
    return None


def _parts(kind: str, spec: GroupSpec, scenario: Scenario, parts: list[list[int]]) -> Creation:
    """Return the creation of several groups of one name, each with a key of its own.

    `dp#0`, `dp#1`.

    On a rank the name means the part that it is in. A rank in two of them is what
    `new_subgroups_by_enumeration` refuses; one in none is allowed.
    """
    groups = tuple(
        _group(spec, scenario, key=f"{spec.name}#{number}", name=spec.name, ranks=sorted(part))
        for number, part in enumerate(parts)
    )
    refusals = [explain_refusal(part, scenario.world_size) for part in parts]
    together = [rank for part in parts for rank in part]
    if len(set(together)) < len(together):
        refusals.append("a rank is in two parts")
    return Creation(kind=kind, spec=spec, groups=groups, refused=next(filter(None, refusals), None))


def _subgroups(spec: GroupSpec, scenario: Scenario, size: int) -> Creation:
    """Return the creation of groups of one size, of neighbours.

    With 2 in a world of 4, [0, 1] and [2, 3].
    """
    world = scenario.world_size
    if size < 1 or size > world or world % size:
        return Creation(
            kind="new_subgroups",
            spec=spec,
            groups=(),
            shape=(size,),
            refused=f"a world of {world} does not divide into groups of {size}",
        )
    parts = [list(range(first, first + size)) for first in range(0, world, size)]
    made = _parts("new_subgroups", spec, scenario, parts)
    return Creation(kind=made.kind, spec=spec, groups=made.groups, shape=(size,))


# Which groups `init_device_mesh` makes, and in which order:
#
#     shape [2, 2, 2], dims [pp, dp, tp]     rank = 4 * pp + 2 * dp + tp
#
#     pp   (0, 4) (1, 5) (2, 6) (3, 7)       ranks that differ in pp alone
#     dp   (0, 2) (1, 3) (4, 6) (5, 7)       in dp alone
#     tp   (0, 1) (2, 3) (4, 5) (6, 7)       neighbours: tp comes last, for one host has them
#
# Every rank takes part in the creation of all twelve, and is in three of them.
def _mesh(spec: GroupSpec, scenario: Scenario, shape: tuple[int, ...]) -> Creation:
    """Row-major, the last dimension fastest: as `torch.distributed.init_device_mesh`.

    It takes the first ranks of the world; the rest, where it is smaller, are in none of its groups.
    """
    refused = None
    if any(extent < 1 for extent in shape):
        refused = f"a mesh of {list(shape)} holds no rank"
    elif prod(shape) > scenario.world_size:
        refused = f"a mesh of {list(shape)} is larger than a world of {scenario.world_size}"
    elif len(spec.dims) != len(shape):
        refused = f"{list(shape)} has {len(shape)} dimensions, `dims` names {len(spec.dims)}"
    if refused:
        return Creation(kind="init_device_mesh", spec=spec, groups=(), shape=shape, refused=refused)
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    groups = []
    for axis, dim in enumerate(spec.dims):
        others = [range(extent) for at, extent in enumerate(shape) if at != axis]
        rest = [stride for at, stride in enumerate(strides) if at != axis]
        for number, place in enumerate(itertools.product(*others)):
            first = sum(at * stride for at, stride in zip(place, rest, strict=True))
            ranks = [first + at * strides[axis] for at in range(shape[axis])]
            name = f"{spec.name}.{dim}"
            groups.append(_group(spec, scenario, key=f"{name}#{number}", name=name, ranks=ranks))
    return Creation(kind="init_device_mesh", spec=spec, groups=tuple(groups), shape=shape)
