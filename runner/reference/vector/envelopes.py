"""The messages of a call: to whom or from whom, with which tag, and where in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.forms import Constant, ListForm, Record
from runner.operations.entries import Entry
from runner.plan import WORLD
from runner.reference.vector.mail import Messages
from runner.reference.vector.rows import own
from runner.reference.vector.values import Active, Lanes, leave, varies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from runner.forms import Form
    from runner.operations.base import PointToPoint
    from runner.operations.params import Param
    from runner.plan import Plan
    from runner.reference.vector.evaluating import Evaluation
    from runner.reference.vector.leaves import Scene
    from runner.reference.vector.memory import Memory
    from runner.scenario import Step

#: the kinds of the arguments that make one message
_ONE = {"tensor", "rank", "group_rank", "group", "tag"}


class Envelopes:
    """Evaluates the messages of one plan."""

    def __init__(self, plan: Plan, evaluation: Evaluation, memory: Memory) -> None:
        """Remember nothing but peers that are the same each time."""
        self._plan = plan
        self._evaluation = evaluation
        self._memory = memory
        self._peers: dict[tuple[int, int], tuple[Any, NDArray[np.int64]]] = {}

    def of(
        self, step: Step, operation: PointToPoint, scene: Scene
    ) -> tuple[list[Messages], dict[str, Any], str]:
        """Return a post for each message that every rank posts, what names the call, its group.

        Raises Beyond where torch would refuse one.
        """
        group = group_of(step)
        if self._memory.group_numbers(group)[scene.active.index].min() < 0:
            leave("a message in a group of others")
        listed = _listed(step, operation)
        if listed is None:
            post, said = self._message(step, 0, operation.params, step.arguments, scene)
            return self._directed(operation, [post], said, group, scene), said, group
        param, items = listed
        pairs = [
            self._message(step, at, param.fields, item, scene) for at, item in enumerate(items)
        ]
        told = {param.name: [said for _, said in pairs]}
        posts = [post for post, _ in pairs]
        return self._directed(operation, posts, told, group, scene), told, group

    def _directed(
        self,
        operation: PointToPoint,
        posts: list[Messages],
        said: dict[str, Any],
        group: str,
        scene: Scene,
    ) -> list[Messages]:
        """Let the operation itself say, of one rank, which of its messages it sends."""
        rank = int(scene.active.ranks[0])
        number = int(self._memory.group_numbers(group)[rank])
        arguments = {param.name: param.default for param in operation.params}
        first = {**arguments, **{name: own(value, 0) for name, value in said.items()}}
        entry = Entry(rank=rank, group=self._plan.names[group][number], arguments=first)
        for post, message in zip(posts, operation.messages(entry), strict=True):
            post.sends = message.sends
        return posts

    def _message(
        self,
        step: Step,
        at: int,
        params: Sequence[Param],
        forms: Mapping[str, Form],
        scene: Scene,
    ) -> tuple[Messages, dict[str, Any]]:
        """Return one message of each rank, and its arguments but for the tensor."""
        kinds = {param.kind: param for param in params}
        if not set(kinds) >= _ONE or len(kinds) != len(params):
            leave("no message of one tensor")
        world, inside, tag = (
            self._integers(forms.get(kinds[kind].name), kinds[kind], scene)
            for kind in ("rank", "group_rank", "tag")
        )
        if (world is None) == (inside is None):
            leave("a peer that is given twice, or not at all")
        peers = self._peer(step, at, world, inside, scene.active)
        low = int(tag.values.min()) if isinstance(tag, Lanes) else tag
        if low < 0:
            leave("a negative tag")
        post = Messages(
            active=scene.active,
            peers=peers,
            tags=tag.values if isinstance(tag, Lanes) else tag,
            payload=self._evaluation.argument(forms.get(kinds["tensor"].name), scene),
        )
        said: dict[str, Any] = {param.name: param.default for param in params}
        said[kinds["rank"].name] = peers
        said[kinds["tag"].name] = post.tags
        for kind in kinds.keys() - _ONE:
            form = forms.get(kinds[kind].name)
            if not isinstance(form, Constant):
                leave("an argument that is computed")
            said[kinds[kind].name] = form.value
        return post, said

    def _integers(self, form: Form | None, param: Param, scene: Scene) -> Any:  # noqa: ANN401 -- one, or Lanes
        if form is None:
            return param.default
        value = self._evaluation.value(form, scene)
        if value is None:
            return param.default
        if isinstance(value, Lanes) and value.kind in "bi":
            return value
        if varies(value) or value.__class__ not in {bool, int}:
            leave("an argument that is no integer")
        return int(value)

    def _peer(
        self,
        step: Step,
        at: int,
        world: int | Lanes | None,
        inside: int | Lanes | None,
        active: Active,
    ) -> NDArray[np.int64]:
        """Return the peers in world ranks `[L]`. Raises Beyond where torch refuses one."""
        given: Any = world if inside is None else inside
        known = self._peers.get((step.index, at))
        if known is not None and known[0] is given and active.everyone:
            return known[1]
        if isinstance(given, Lanes):
            values = given.values.astype(np.int64)
        else:
            values = np.full(active.size, given, np.int64)
        group = group_of(step)
        numbers = self._memory.group_numbers(group)
        mine = numbers[active.index]
        if inside is not None:
            values = self._world_ranks(group, mine, values, active)
        if values.min() < 0 or values.max() >= active.world_size:
            leave("a peer outside of the world")
        if (numbers[values] != mine).any() or (values == active.ranks).any():
            leave("a peer outside of the group, or the rank itself")
        if active.everyone and isinstance(given, Lanes):
            self._peers[step.index, at] = given, values
        return values

    def _world_ranks(
        self, group: str, mine: NDArray[np.int64], inside: NDArray[np.int64], active: Active
    ) -> NDArray[np.int64]:
        """Return world ranks for ranks inside of each rank's own group of that name."""
        sizes = self._memory.group_sizes(group)[active.index]
        if inside.min() < 0 or (inside >= sizes).any():
            leave("a group rank that is none")
        groups = self._plan.names[group]
        table = np.zeros((len(groups), max(each.size for each in groups)), np.int64)
        for number, each in enumerate(groups):
            table[number, : each.size] = each.ranks
        return np.asarray(table[mine, inside])


def _listed(
    step: Step, operation: PointToPoint
) -> tuple[Param, tuple[Mapping[str, Form], ...]] | None:
    """Return the messages of a call that takes a list of them; None of one that takes none."""
    params = [param for param in operation.params if param.fields]
    if not params:
        return None
    form = step.arguments.get(params[0].name)
    if len(operation.params) > 1 or not isinstance(form, ListForm) or not form.items:
        leave("a list of messages that is computed")
    items = tuple(item.fields for item in form.items if isinstance(item, Record))
    if len(items) != len(form.items):
        leave("a list of messages that is computed")
    return params[0], items


def group_of(step: Step) -> str:
    """Return the name of the group of a step; raises Beyond where it is computed."""
    records = [
        item
        for form in step.arguments.values()
        if isinstance(form, ListForm)
        for item in form.items
        if isinstance(item, Record)
    ]
    names = set()
    for form in [each.get("group") for each in ([r.fields for r in records] or [step.arguments])]:
        if form is not None and not isinstance(form, Constant):
            leave("a group that is computed")
        names.add(WORLD if form is None or form.value is None else str(form.value))
    if len(names) != 1:
        leave("messages in several groups")
    return names.pop()
