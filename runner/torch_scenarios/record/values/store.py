"""Values of the first steps, kept in the user's process by the standard library alone.

One file a step and rank: `values-RANK-step-K.safetensors` holds `before/NAME` (the weights at the
first step, before it), `in/K` (the data that a model is called with before the first step),
`left/NAME` as backward leaves a gradient, `gradient/NAME` as the optimizer gets it, and
`after/NAME`.
"""

from __future__ import annotations

import json
import os
from typing import Any

from torch_scenarios.record.evidence.frame import frame_of
from torch_scenarios.record.values.digest import bytes_of, local_part, tensors_in
from torch_scenarios.record.values.format.event import LossValues, ModuleOutput

#: elements of a module's output at most that are kept
MOST_OUTPUT = 1 << 20
#: dtype of torch -> its name in the format; others are not kept
DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


#: placements of a DTensor whose local part has rows that are not its own, until they are masked
MASKED = ("MaskPartial", "_MaskPartial")


class ValueStore:
    """Keeps what the steps of optimizers read and write, for some steps."""

    def __init__(self, witness: Any, steps: int, most: int) -> None:
        """Keep the values of so many steps, and so many bytes at most."""
        self._witness, self._steps, self._most = witness, steps, most
        self.count = 0
        self._size = 0
        self._outputs = bool(witness.settings.get("outputs"))
        self._calls: dict[str, int] = {}
        self._entered: dict[int, int] = {}
        #: parameters whose weights are kept as they were when an optimizer stepped them first
        self._begun: set[str] = set()
        self._kept: dict[str, Any] = {}

    def enter(self, module: Any, inputs: Any, depth: int) -> None:
        """Note how often a module of this name is called: what wraps one has its name as well."""
        name = self._witness.parameters.name_module(module)
        if name is not None:
            self._entered[id(module)] = self._calls.get(name, 0)
        if depth == 0 and self._outputs and self.count == 0:
            self._keep_rows(module, inputs)

    def _keep_rows(self, module: Any, inputs: Any) -> None:
        """Keep the data that a model is called with before the first step: `in/K` at call K."""
        witness = self._witness
        if witness.in_backward or not module.training or not witness.torch.is_grad_enabled():
            return
        tensor = next(tensors_in(inputs, witness.torch.Tensor), None)
        if tensor is None or tensor.grad_fn is not None or not tensor.is_floating_point():
            return
        if tensor.dim() > 1 and tensor.numel() <= MOST_OUTPUT:
            self._keep(f"in/{self._rows}", tensor)
            self._rows += 1

    _rows = 0

    def leave(self, module: Any, output: Any, depth: int) -> None:
        """Keep what a module gives back in training: `out/NAME#K` at its call K since a step."""
        witness = self._witness
        if not self._outputs or self.count >= self._steps or witness.in_backward:
            return
        name = witness.parameters.name_module(module)
        if name is None or not module.training or not witness.torch.is_grad_enabled():
            return
        tensor = next(tensors_in(output, witness.torch.Tensor), None)
        if tensor is None or not tensor.is_floating_point() or tensor.numel() > MOST_OUTPUT:
            return
        if not _is_there(tensor):
            return
        call = self._calls.get(name, 0)
        if call > self._entered.get(id(module), call):
            return  # the module that it wraps has given this back
        self._calls[name] = call + 1
        self._keep(f"out/{name}#{call}", tensor)
        if f"out/{name}#{call}" in self._kept:
            place = witness.place(frame_of(1))
            kind = type(module).__name__
            witness.put(ModuleOutput(witness.turn, f"{name}#{call}", kind, place))

    def before_backward(self, roots: Any) -> None:
        """Write down the losses."""
        tensor = self._witness.torch.Tensor  # a root may be an edge of a graph
        tensors = [each for each in roots if isinstance(each, tensor)]
        values = [float(local_part(each).double()) for each in tensors if each.numel() == 1]
        if values and self.count < self._steps:
            self._witness.put(LossValues(self._witness.turn, tuple(values)))

    def after_backward(self) -> None:
        """Keep what a backward pass leaves in gradients: the last one before a step counts."""
        if not self._outputs or self.count >= self._steps or self._witness.in_backward:
            return
        for known in self._witness.parameters.known.values():
            tensor = known.tensor
            if tensor is not None and tensor.requires_grad and tensor.grad is not None:
                self._keep(f"left/{known.name}", tensor.grad, _count_padding(tensor))

    def before_clip(self, parameters: Any) -> None:
        """Keep nothing of what is clipped."""

    def before_step(self, optimizer: Any) -> None:
        """Keep gradients, and the weights that an optimizer steps for the first time."""
        if self.count >= self._steps:
            return
        for known, tensor in self._parameters(optimizer):
            if known.name not in self._begun:
                self._begun.add(known.name)
                self._keep(f"before/{known.name}", tensor, _count_padding(tensor))
            if tensor.grad is not None:
                self._keep(f"gradient/{known.name}", tensor.grad, _count_padding(tensor))

    def after_step(self, optimizer: Any) -> None:
        """Keep weights, and write the file of this step."""
        if self.count >= self._steps:
            return
        for known, tensor in self._parameters(optimizer):
            self._keep(f"after/{known.name}", tensor, _count_padding(tensor))
        self._write()
        self.count += 1

    def may_write(self) -> None:
        """Keep the weights of a script that may write them itself, before it does."""
        if self.count == 0 and not self._begun:
            for known, tensor in self._trained():
                self._begun.add(known.name)
                self._keep(f"before/{known.name}", tensor, _count_padding(tensor))

    def written(self, numbers: set[int]) -> None:
        """Keep the weights that a script has written without an optimizer."""
        if self.count >= self._steps:
            return
        for known, tensor in self._trained():
            if known.number in numbers:
                self._keep(f"after/{known.name}", tensor, _count_padding(tensor))
        self._write()
        self.count += 1

    def _trained(self) -> list[tuple[Any, Any]]:
        known = self._witness.parameters.known.values()
        numbers = set(self._witness.parameters.in_training())
        return [(each, each.tensor) for each in known if each.number in numbers]

    def end(self) -> None:
        """Forget what no step has written."""
        self._kept.clear()

    def _parameters(self, optimizer: Any) -> list[tuple[Any, Any]]:
        found = []
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                known = self._witness.parameters.find(tensor)
                if known is not None:
                    found.append((known, tensor))
        return found

    def _keep(self, name: str, tensor: Any, padding: int = 0) -> None:
        local = local_part(tensor)
        if padding:
            local = local[: local.numel() - padding]
        dtype = DTYPES.get(str(local.dtype)[6:])
        if dtype is None or local.is_meta:
            return
        if name not in self._kept:
            self._size += local.numel() * local.element_size()
        if self._size <= self._most:
            self._kept[name] = local.clone()

    def _write(self) -> None:
        """Write what is kept."""
        rank = self._witness.recorder.about["rank"]
        name = f"values-{rank:05d}-step-{self.count}.safetensors"
        write_tensors(os.path.join(self._witness.recorder.folder, name), self._kept)
        self._kept.clear()
        self._calls.clear()


def _count_padding(tensor: Any) -> int:
    """Return how many elements at the end of a rank's part are none of a model's.

    FullyShardedDataParallel makes all parts of a flat parameter equally long.
    """
    count = getattr(tensor, "_shard_numel_padded", 0)
    return int(count) if isinstance(count, int) and 0 < count < tensor.numel() else 0


def _is_there(tensor: Any) -> bool:
    """Whether what this rank has of an output is there: a collective may still have to write it."""
    if any(type(each).__name__ in MASKED for each in getattr(tensor, "placements", ())):
        return False
    held = getattr(tensor, "_local_tensor", tensor)
    return type(held).__name__ != "AsyncCollectiveTensor" or bool(held.completed)


def write_tensors(path: str, tensors: dict[str, Any]) -> None:
    """Write tensors: eight bytes with the size of a header, the header, the values."""
    header: dict[str, Any] = {}
    contents = []
    place = 0
    for name, tensor in tensors.items():
        dtype = DTYPES.get(str(tensor.dtype)[6:])
        if dtype is None:
            continue
        contents.append(bytes_of(tensor))
        end = place + len(contents[-1])
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [place, end],
        }
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        file.writelines(contents)


def read_tensors(path: str, torch: Any) -> dict[str, Any]:
    """Return the tensors of a file."""
    names = {kind: name for name, kind in DTYPES.items()}
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        content = bytearray(file.read())
    found = {}
    for name, about in header.items():
        start, end = about["data_offsets"]
        dtype = getattr(torch, names[about["dtype"]])
        part = torch.frombuffer(content[start:end], dtype=dtype) if end > start else torch.empty(0)
        found[name] = part.to(dtype).reshape(about["shape"]).clone()
    return found
