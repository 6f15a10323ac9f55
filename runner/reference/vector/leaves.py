"""Names -> functions that give their value on all active ranks at once: leaves of expressions."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.reference.vector.values import Active, Lanes, Value, leave

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.plan import Plan
    from runner.reference.vector.memory import Memory


@dataclass(slots=True, eq=False)
class Scene:
    """Where an expression is evaluated: which ranks, the loops' variables, and what names hold."""

    active: Active
    variables: Mapping[str, int]
    memory: Memory


if TYPE_CHECKING:
    Closure = Callable[[Scene], Value]


class Leaves:
    """Compiles the names and constants of one plan's expressions."""

    def __init__(self, plan: Plan, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Share the language's functions, by the keys that compiled expressions use."""
        self._plan = plan
        self._functions = functions
        self._constants = plan.scenario.constants

    def constant(self, node: ast.Constant) -> Closure:
        """A number, True, False or None."""
        value = node.value
        return lambda _: value

    def name(self, node: ast.Name) -> Closure:
        """A constant, the variable of a loop, a tensor, a group."""
        name = node.id
        if name == "rank":
            return lambda scene: scene.active.rank
        if name == "world_size":
            size = self._plan.world_size
            return lambda _: size
        if name in self._constants:
            value = self._constants[name]
            return lambda _: value
        if name in self._plan.names:
            return lambda scene: self._group_ranks(name, scene)

        def held(scene: Scene) -> Value:
            if name in scene.variables:
                return scene.variables[name]
            return scene.memory.view(name, scene.active)

        if name not in self._plan.scenario.tensors and name not in self._plan.introduced:
            return self._variable_or_dtype(name)
        return held

    def _variable_or_dtype(self, name: str) -> Closure:
        def found(scene: Scene) -> Value:
            if name in scene.variables:
                return scene.variables[name]
            if _is_dtype(self._functions, name):
                return name
            return leave(name)

        return found

    def attribute(self, node: ast.Attribute) -> Closure:
        """The dotted name of a group."""
        dotted = ast.unparse(node)
        return lambda scene: self._group_ranks(dotted, scene)

    # ------------------------------------------------------------------ groups

    def _group_ranks(self, name: str, scene: Scene) -> list[int]:
        """Return a group's ranks where all active ranks are its members."""
        groups = self._plan.names.get(name, ())
        if len(groups) != 1 or groups[0].size < scene.active.size:
            leave("the ranks of several groups")
        if scene.memory.group_ranks(name)[scene.active.index].min(initial=0) < 0:
            leave("the ranks of a group of others")
        return groups[0].listed

    def group_call(self, node: ast.Call, name: str) -> Closure:
        """`group_rank(g)`, `group_size(g)`, `group_ranks(g)`."""
        given = node.args[0] if node.args else node.keywords[0].value
        group = ast.unparse(given)
        if group not in self._plan.names:
            group = str(self._constants.get(group, group))
        if name == "group_ranks":
            return lambda scene: list(self._group_ranks(group, scene))

        def group_rank(scene: Scene) -> Value:
            values = scene.memory.group_ranks(group)[scene.active.index]
            return Lanes(values, -1, self._plan.world_size - 1)

        def group_size(scene: Scene) -> Value:
            values = scene.memory.group_sizes(group)[scene.active.index]
            low, high = int(values.min()), int(values.max())
            return low if low == high else Lanes(values, low, high)

        return group_rank if name == "group_rank" else group_size


def _is_dtype(functions: Mapping[str, Callable[..., Any]], name: str) -> bool:
    try:
        functions["zeros()"](0, name)
    except TypeError:
        return False
    return True
