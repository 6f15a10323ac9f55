"""Who takes a step, and with which arguments: a call of many ranks at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.argument_types import READ
from runner.evaluation import CANNOT_COMPUTE
from runner.forms import Constant, PerRank
from runner.plan import WORLD
from runner.reference.vector.envelopes import group_of
from runner.reference.vector.leaves import Scene
from runner.reference.vector.values import Active, Lanes, Stack, Value, View, leave, varies

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runner.forms import Form
    from runner.operations.base import Collective, Operation, Waiting
    from runner.operations.params import Param
    from runner.plan import Plan
    from runner.reference.vector.evaluating import Evaluation
    from runner.reference.vector.memory import Memory
    from runner.scenario import Step

#: kinds of arguments that are tensors
_TENSORS = {"tensors", "tensor_lists", "objects", "object", "p2p_ops"}


class Calls:
    """Evaluates the calls of one plan."""

    def __init__(self, plan: Plan, evaluation: Evaluation, memory: Memory) -> None:
        """Remember who started what, to tell whom a `wait` concerns."""
        self._plan = plan
        self._evaluation = evaluation
        self._memory = memory
        self._started: dict[str, NDArray[np.bool_]] = {}
        self._members: dict[str, Active | None] = {}

    def taking(self, step: Step, scene: Scene) -> Active | None:
        """Return which of the active ranks take a step; None for none of them."""
        active: Active | None = scene.active
        if step.ranks is not None:
            active = self._evaluation.selected(step.ranks, scene)
        elif step.operation is not None:
            active = self._inside(group_of(step), scene.active)
        if active is None or step.operation is None or step.handle is None:
            named = step.arguments.get("handles")
            if active is None or named is None:
                return active
            return self._concerned(named, active, scene)
        started = self._started.get(step.handle)
        if started is None:
            started = np.zeros(active.world_size, np.bool_)
            self._started[step.handle] = started
        started[active.index] = True
        return active

    def _concerned(self, named: Form, active: Active, scene: Scene) -> Active | None:
        """Return the ranks that started some of the work that is waited for."""
        names = self._evaluation.value(named, Scene(active, scene.variables, self._memory))
        if not isinstance(names, str | list):
            leave("handles that differ")
        listed = [names] if isinstance(names, str) else names
        mask = np.zeros(active.size, np.bool_)
        for name in listed:
            if name in self._started:
                mask |= self._started[name][active.index]
        return active.among(mask) if mask.any() else None

    def _inside(self, group: str, active: Active) -> Active | None:
        if group == WORLD:
            return active
        if active.everyone and group in self._members:
            return self._members[group]
        mask = self._memory.group_numbers(group)[active.index] >= 0
        inside = active.among(mask) if mask.any() else None
        if active.everyone:
            self._members[group] = inside
        return inside

    def handles(
        self, step: Step, operation: Waiting, scene: Scene
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Return the names of the handles that are waited for, and the arguments."""
        (param,) = operation.params
        names = self._evaluation.value(step.arguments[param.name], scene)
        return (names,) if isinstance(names, str) else tuple(names), {param.name: names}

    # ------------------------------------------------------------------ collectives

    def collective(
        self, step: Step, operation: Collective, scene: Scene
    ) -> tuple[dict[str, Value], str]:
        """Return the arguments of a collective: tensors, and what is the same for all or `[L]`."""
        arguments: dict[str, Value] = {}
        for param in operation.params:
            if param.kind in _TENSORS:
                leave("a list of tensors, or objects")
            if param.kind == "group":
                continue
            if param.kind == "tensor":
                if param.required or param.name in step.arguments:
                    arguments[param.name] = self._evaluation.argument(
                        step.arguments.get(param.name), scene
                    )
                continue
            arguments[param.name] = self._plain(step, operation, param, scene)
        return arguments, group_of(step)

    def _plain(self, step: Step, operation: Operation, param: Param, scene: Scene) -> Value:
        form = step.arguments.get(param.name)
        if form is None:
            return param.default
        if isinstance(form, PerRank):
            parts = list(self._evaluation.branches(form, scene))
            if len(parts) > 1:
                leave(f"{operation.name} with an argument that differs")
            form = parts[0][1]
        if isinstance(form, Constant):
            if form.value is None:
                return param.default
            return _typed(param, form.value)
        value = self._evaluation.value(form, scene)
        if isinstance(value, Lanes):
            if value.kind == "i" and param.kind in {"rank", "group_rank"}:
                return value.values
            leave("an argument that differs")
        if varies(value) or isinstance(value, np.ndarray | np.generic):
            leave("an argument that is a tensor")
        return param.default if value is None else _typed(param, value)

    # ------------------------------------------------------------------ expectations

    def observed(self, step: Step, scene: Scene) -> dict[str, Value]:
        """Return the values of the step's expectation keys that are more than a name, by text."""
        found: dict[str, Value] = {}
        assert step.expect is not None  # noqa: S101 -- asked by the caller
        for value in step.expect.values:
            key = value.key
            if key.before or self._is_name(key.text, scene):
                continue
            made = self._evaluation.value(key, scene)
            if isinstance(made, View):
                made = Stack(made.take().copy())
            found[key.text] = made
        return found

    def _is_name(self, text: str, scene: Scene) -> bool:
        scenario = self._plan.scenario
        known = (scenario.tensors, scenario.constants, self._plan.introduced, scene.variables)
        return any(text in names for names in known) or text in {"rank", "world_size"}


def _typed(param: Param, value: Value) -> Value:
    """Return a plain argument in the type of its kind, as the evaluator does.

    Raises Beyond where it is none: the other engine says why.
    """
    read = READ.get(param.kind)
    if read is None:
        return value
    try:
        return read(value)
    except CANNOT_COMPUTE:
        leave(f"a {param.kind} that is none")
