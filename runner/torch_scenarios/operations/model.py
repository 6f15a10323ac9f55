"""What operations on a model have in common: `train`, `join`, `save` and `load`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Form
from torch_scenarios.operations.base import Caller, Compound, Entry

MODEL = Param(name="model", kind="model", required=True, description="A name of `models:`.")


class ModelOperation(Compound):
    """A step of a model: each rank takes it with its own part, and one that has none does not."""

    def label(self, entry: Entry) -> str:
        """`train net`."""
        return f"{self.name} {entry['model'].name}"

    def concerns(self, caller: Caller, given: Mapping[str, Form]) -> bool:
        """A rank that has no part of the model takes no step."""
        return model_in(given).name in caller.trainees

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate the arguments, and find the rank's own part of the model."""
        arguments = super().evaluate(caller, given)
        arguments["trainee"] = caller.trainees.get(arguments["model"].name)
        return arguments


def model_in(given: Mapping[str, Form]) -> Any:
    """Return the model of a step."""
    return getattr(given.get("model"), "value", None)


def keep(caller: Caller, values: Mapping[str, Any]) -> None:
    """Hold values by their names; one that is None is absent."""
    for name, value in values.items():
        if value is None:
            caller.scope[name] = None
        else:
            caller.hold(name, value)
