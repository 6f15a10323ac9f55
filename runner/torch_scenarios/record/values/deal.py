"""Batches of a training, dealt to other ranks: in the user's processes, by a plan made before.

The first run keeps what each rank gets (`record.values.redeal` makes a plan of it). In a further
run each loader's indices are replaced before rows are read: `collate_fn` sees the new ones.
A batch without indices (an IterableDataset, :func:`torch_scenarios.batch`) is kept and replaced as
tensors. The standard library and torch alone.
"""

from __future__ import annotations

import ast
import json
import os
from typing import Any

from torch_scenarios.record.evidence.frame import frame_of
from torch_scenarios.record.values.digest import tensors_in
from torch_scenarios.record.values.format.event import DealtBatch
from torch_scenarios.record.values.store import read_tensors, write_tensors

#: number of the first batch that is no loader's, but named by the script
NAMED = 1000
#: the name of the function that a marked line calls
CALLED = "__scenario_batch__"

#: that of this process, while it is recorded: one or none
_CURRENT: list[BatchDealer] = []


class BatchDealer:
    """Keeps the batches of a rank, or replaces them by those of a plan."""

    def __init__(self, witness: Any, folder: str, rank: int, plan: str) -> None:
        """Read this rank's part of a plan; without one, keep what has no indices."""
        self.witness, self._folder, self._rank = witness, folder, rank
        self._tensor = witness.torch.Tensor
        self._plan: dict[str, Any] | None = None
        self._home = os.path.dirname(plan)
        if plan:
            with open(plan, encoding="utf-8") as file:
                self._plan = json.load(file)[str(rank)]
        self._counts: dict[int, int] = {}
        _CURRENT[:] = [self]

    def indices(self, loader: int, epoch: int, number: int, found: Any) -> Any:
        """Return the indices of a batch: those of the plan in place of what a sampler drew."""
        entry = (self._plan or {}).get(f"{loader}-{epoch}-{number}")
        if entry is None or entry["to"] is None:
            return found
        if entry["from"] is not None and [int(each) for each in found] != entry["from"]:
            self.witness.put(DealtBatch(loader, epoch, number, "unlike"))
            return found
        self.witness.put(DealtBatch(loader, epoch, number, "indices"))
        return entry["to"]

    def batch(self, loader: int, epoch: int, number: int, batch: Any) -> Any:
        """Return a batch with the tensors that a plan has for it; keep those that it does not."""
        if self.witness.is_past:
            return batch
        tensors = [*tensors_in(batch, self._tensor)]
        name = f"{loader}-{epoch}-{number}"
        if self._plan is None or (self._plan.get(name) or {}).get("to") is not None:
            path = os.path.join(self._folder, f"values-{self._rank:05d}-batch-{name}.safetensors")
            write_tensors(path, {str(at): each for at, each in enumerate(tensors)})
            return batch
        path = os.path.join(self._home, f"dealt-{self._rank:05d}-{name}.safetensors")
        if name not in self._plan or not os.path.exists(path):
            return batch
        kept = read_tensors(path, self.witness.torch)
        by_place = {id(each): kept[str(at)] for at, each in enumerate(tensors)}
        self.witness.put(DealtBatch(loader, epoch, number, "tensors"))
        return _replace(batch, self._tensor, by_place)

    def number(self, values: tuple[Any, ...], place: int) -> tuple[Any, ...]:
        """Return the batch that a line of the script names."""
        number = self._counts.get(place, 0)
        self._counts[place] = number + 1
        loader = NAMED + sorted(self._counts).index(place)
        return tuple(self.witness.see_batch(loader, number, place, list(values)))


def _replace(value: Any, tensor: type, by_place: dict[int, Any]) -> Any:
    """Return a value whose tensors are other ones, its containers being as they were."""
    if isinstance(value, tensor):
        return by_place.get(id(value), value)
    if isinstance(value, dict):
        return {key: _replace(each, tensor, by_place) for key, each in value.items()}
    if isinstance(value, list):
        return [_replace(each, tensor, by_place) for each in value]
    if isinstance(value, tuple):
        parts = [_replace(each, tensor, by_place) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def batch(*values: Any) -> Any:
    """Return the arguments: they are a batch, which `scenario record --redeal` deals anew.

    One argument is returned as it is, several as a tuple::

        x, y = torch_scenarios.batch(x, y)
    """
    found = values
    for current in _CURRENT:
        with current.witness.guard:
            found = current.number(values, current.witness.place(frame_of(1)))
    return found[0] if len(values) == 1 else found


def insert_batch(text: str, path: str, line: int) -> ast.Module:
    """Return a script in which what a line assigns is a batch. Raises ValueError where none is.

    The line is an assignment to names, or a loop over batches.
    """
    tree = ast.parse(text, path)
    for node in ast.walk(tree):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if not isinstance(body, list):
                continue
            for at, each in enumerate(body):
                if getattr(each, "lineno", 0) != line:
                    continue
                if isinstance(each, ast.For) and _names_in(each.target):
                    each.body.insert(0, _write_call(each.target))
                    return ast.fix_missing_locations(tree)
                if isinstance(each, ast.Assign) and _names_in(each.targets[0]):
                    body.insert(at + 1, _write_call(each.targets[0]))
                    return ast.fix_missing_locations(tree)
    message = f"line {line} of {path} assigns no variables: name the line that makes the batch"
    raise ValueError(message)


def _names_in(target: ast.expr) -> list[str]:
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    names = [each.id for each in parts if isinstance(each, ast.Name)]
    return names if len(names) == len(parts) else []


def _write_call(target: ast.expr) -> ast.stmt:
    """Return the statement `x, y = __scenario_batch__(x, y)`, at the place of a target."""
    names = _names_in(target)
    call = ast.Call(
        func=ast.Name(id=CALLED, ctx=ast.Load()),
        args=[ast.Name(id=name, ctx=ast.Load()) for name in names],
        keywords=[],
    )
    parts: list[ast.expr] = [ast.Name(id=name, ctx=ast.Store()) for name in names]
    to = parts[0] if len(parts) == 1 else ast.Tuple(elts=parts, ctx=ast.Store())
    made = ast.Assign(targets=[to], value=call)
    for each in ast.walk(made):
        if isinstance(each, ast.expr | ast.stmt):
            ast.copy_location(each, target)
    return made
