"""One rank of a model on torch: built from the same data, wrapped by torch's own strategies.

Knows torch only as what it is handed. What is said while a step trains is noted by a
`TorchDispatchMode`, which sees the calls of DDP's reducer, of FSDP2, of DTensor and of ZeRO alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from torch_scenarios.operations.base import Caller, Group, IssuedCall
from torch_scenarios.operations.placement import encode, layout_name, read_torch_placements
from torch_scenarios.strategies.model import Clip, Model, TrainStep, weights
from torch_scenarios.vocabulary import WORLD


class TorchModel:
    """A model in the worker.

    `module` is the plain module, `forward` what is called with a batch, `optimizer` torch's own;
    strategies replace them, one after the other.
    """

    def __init__(
        self,
        model: Model,
        torch: Any,
        caller: Caller,
        handle: Callable[[str], Any],
        mesh: Callable[[str], Any],
        folder: str | None = None,
        device: Any = None,
    ) -> None:
        """Build the module with its weights, and let each strategy have it.

        Its tensors are on `device`, a `torch.device`; None is the host.
        """
        model = self.model = model.of_rank(caller.rank)
        self.torch = torch
        self.caller = caller
        self.handle = handle
        self.mesh = mesh
        #: where checkpoints lie, a folder of this run's own
        self.folder = folder
        self.without_sync: Callable[[], AbstractContextManager[Any]] = nullcontext
        self.set_sync: Callable[[bool], None] = lambda _: None
        self.device = device
        #: the context of ranks with uneven inputs, where the strategy has one
        self.collective_post: Any = None
        #: the optimizer's state where each rank has some of it
        self.state_of_all: Any = None
        #: what follows a step of the optimizer
        self.behind_step: Callable[[], None] = lambda: None
        self.schedule: Callable[[Any, Any], Any] | None = None
        self.module = _make_passable(torch, model).to(device)
        self.load(weights(model, caller, caller.rank))
        self.forward: Any = self.module
        self.optimizer: Any = None
        said: list[IssuedCall] = []
        with recorder(torch, said, caller, handle):
            for strategy in model.parallel:
                strategy.apply(self)
        self.construction = tuple(said)
        if self.optimizer is None:
            self.optimizer = model.optimizer.build(torch, self.module.parameters())

    def stage(self, labels: tuple[str, ...]) -> Any:
        """Return a module of some layers alone, with other weights."""
        return stage_of(self.torch, self.model, labels).to(self.device)

    def target(self, given: Any) -> Any:
        """Return a target as the loss takes it."""
        return convert_target(self.model, given)

    def load(self, given: Mapping[str, Any]) -> None:
        """Let the parameters of the module hold these weights."""
        with self.torch.no_grad():
            for name, param in self.module.named_parameters():
                param.copy_(given[name])

    def read_held(self) -> dict[str, Any]:
        """Return what the rank holds before step 1, by the names of a scenario."""
        params = self._parameters()
        held = {**params, **dict(self.module.named_buffers())}
        found = {f"{self.model.name}.{name}": local(each) for name, each in held.items()}
        return found | {layout_name(self.model.name): self._layouts(params)}

    def _layouts(self, params: Mapping[str, Any]) -> Any:
        """Return in numbers how each parameter lies, and each gradient."""
        known = [params.get(each) for each in self.model.parameters]
        grads = [None if each is None else each.grad for each in known]
        rows = [encode(read_torch_placements(each)) for each in (*known, *grads)]
        return self.torch.tensor(rows, dtype=self.torch.int64)

    def _parameters(self) -> dict[str, Any]:
        return dict(self.module.named_parameters())

    def explain_refusal(self, given: Any) -> str | None:
        """Return nothing: torch itself refuses."""
        return None

    def unfit(self, given: Any) -> str | None:
        """Return nothing: torch itself refuses."""
        return None

    def train(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Take one step; return what the rank holds afterwards."""
        order = TrainStep.of(given)
        x, y = order.local(self.caller.group, self.caller.rank)
        if self.collective_post is not None:
            self.collective_post.enter()
        try:
            return self._train(order, x, y)
        except Exception:
            if self.collective_post is not None:
                self.collective_post.break_off()
            raise

    def _train(self, order: TrainStep, x: Any, y: Any) -> dict[str, Any]:
        self.module.passed_by = order.skip
        if order.zero_grad:
            self.optimizer.zero_grad()
        self.set_sync(order.sync)
        with nullcontext() if order.sync else self.without_sync():
            loss = self._learn(x, y)
        if order.clip is not None and order.sync:
            self._clip(order.clip)
        if order.step:
            self.optimizer.step()
            self.behind_step()
        name, values = self.model.name, {}
        values[f"{name}.loss"] = None if loss is None else loss.detach().clone()
        params = self._parameters()
        for each in self.model.parameters:
            param = params.get(each)
            grad = None if param is None else param.grad
            values[f"{name}.{each}.grad"] = None if grad is None else local(grad).clone()
            values[f"{name}.{each}"] = None if param is None else local(param).clone()
        for each, buffer in self.module.named_buffers():
            values[f"{name}.{each}"] = buffer.detach().clone()
        values[f"{name}.memory"] = self._memory(params)
        values[layout_name(name)] = self._layouts(params)
        return values

    def _clip(self, clip: Clip) -> None:
        most = clip.most[self.caller.rank]
        if not clip.local:
            self.torch.nn.utils.clip_grad_norm_(self.module.parameters(), most)
            return
        grads = [each.grad for each in self.module.parameters() if each.grad is not None]
        total = sum(float(local(grad).double().square().sum()) for grad in grads) ** 0.5
        for grad in grads:
            local(grad).mul_(min(1.0, most / (total + 1e-6)))

    def leave(self) -> dict[str, Any]:
        """Leave the context of ranks with uneven inputs; return what the rank holds then."""
        self.collective_post.leave()
        return {name: value.clone() for name, value in self.read_held().items()}

    # ------------------------------------------------------------------ checkpoints

    def save(self, name: str, members: Group) -> None:
        """Write what the ranks of the model hold into the run's own folder."""
        dcp = import_module("torch.distributed.checkpoint")
        group = None if members.name == WORLD else self.handle(members.name)
        with catch_errors(dcp):
            dcp.save(self._keep(), checkpoint_id=self._name_position(name), process_group=group)

    def restore(self, name: str, members: Group) -> dict[str, Any]:
        """Read the rank's part of what was written; return what it holds then."""
        dcp = import_module("torch.distributed.checkpoint")
        state_dict = import_module("torch.distributed.checkpoint.state_dict")
        group = None if members.name == WORLD else self.handle(members.name)
        kept = self._keep() if self.state_of_all is None else self._room(dcp, name)
        with catch_errors(dcp):
            dcp.load(kept, checkpoint_id=self._name_position(name), process_group=group)
        if self.state_of_all is None:
            state_dict.set_state_dict(
                self.module,
                self.optimizer,
                model_state_dict=kept["model"],
                optim_state_dict=kept["optimizer"],
            )
        else:
            state_dict.set_model_state_dict(self.module, kept["model"])
            self.state_of_all.load(kept["optimizer"])
        params, own = self._parameters(), self.model.name
        held = {each: params.get(each) for each in self.model.parameters}
        return {
            f"{own}.{each}": None if param is None else local(param).clone()
            for each, param in held.items()
        }

    def _keep(self) -> dict[str, Any]:
        state_dict = import_module("torch.distributed.checkpoint.state_dict")
        if self.state_of_all is None:
            model, optimizer = state_dict.get_state_dict(self.module, self.optimizer)
            return {"model": model, "optimizer": optimizer}
        model, optimizer = (
            state_dict.get_model_state_dict(self.module),
            self.state_of_all.collect(),
        )
        return {"model": model} if optimizer is None else {"model": model, "optimizer": optimizer}

    def _room(self, dcp: Any, name: str) -> dict[str, Any]:
        """Return tensors for what a checkpoint has, where no rank has all of the state."""
        state_dict = import_module("torch.distributed.checkpoint.state_dict")
        model = state_dict.get_model_state_dict(self.module)
        try:
            written = (
                dcp.FileSystemReader(self._name_position(name)).read_metadata().state_dict_metadata
            )
        except FileNotFoundError:
            written = {}  # the exchange of plans says so, on all ranks
        return {"model": model, "optimizer": self.state_of_all.empty(written)}

    def _name_position(self, name: str) -> str:
        assert self.folder is not None  # a scenario with a checkpoint has one
        return str(Path(self.folder) / name)

    def _memory(self, params: Mapping[str, Any]) -> Any:
        """Return the bytes of parameters, gradients and the optimizer's state, of local tensors."""
        grads = [param.grad for param in params.values() if param.grad is not None]
        optimizer = getattr(self.optimizer, "optim", self.optimizer)  # ZeRO's own part
        kept = [each for state in optimizer.state.values() for each in state.values()]
        counted = [
            sum(local(each).nbytes for each in listed if isinstance(each, self.torch.Tensor))
            for listed in (params.values(), grads, kept)
        ]
        return self.torch.tensor(counted, dtype=self.torch.int64)

    def _learn(self, x: Any, y: Any) -> Any:
        if self.schedule is not None:
            return self.schedule(x, y)
        made = self.forward(x)
        target = convert_target(self.model, y)
        if not hasattr(made, "to_local"):
            if made.is_floating_point() and target.is_floating_point():
                target = target.to(made.dtype)
            loss = self.model.loss.call(self.torch, made, target)
            loss.backward()
            return loss.detach().float()
        loss = self.model.loss.call(self.torch, made, self._lay_as(made, target))
        loss.backward()
        return loss.detach().full_tensor()

    def _lay_as(self, made: Any, target: Any) -> Any:
        """Return a target that lies as a distributed output does; it may be cut already."""
        (placement,) = made.placements
        if placement.is_shard() and target.shape != made.to_local().shape:
            parts = target.chunk(made.device_mesh.size(), placement.dim)
            at = made.device_mesh.get_local_rank()
            target = parts[at] if at < len(parts) else target.narrow(placement.dim, 0, 0)
        return self.torch.distributed.tensor.DTensor.from_local(
            target.contiguous(),
            made.device_mesh,
            made.placements,
            run_check=False,
            shape=made.shape,
            stride=made.stride(),
        )


@contextmanager
def catch_errors(dcp: Any) -> Iterator[None]:
    """Raise what went wrong with a checkpoint as an error: torch's own is a BaseException."""
    try:
        yield
    except dcp.api.CheckpointException as error:
        raise RuntimeError(str(error)) from error


def convert_target(model: Model, target: Any) -> Any:
    """Return a target as its loss takes it: classes are integers of 64 bits."""
    return target.long() if model.loss.name == "cross_entropy" else target


def local(tensor: Any) -> Any:
    """Return the local part of a tensor that may be distributed."""
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _make_passable(torch: Any, model: Model, labels: tuple[str, ...] | None = None) -> Any:
    """Return the module; it can be told to pass layers by, as a wrong program does.

    `labels` are the layers of a stage; None is all of them.
    """

    class Layers(torch.nn.Sequential):  # type: ignore[misc]
        passed_by: tuple[str, ...] = ()

        def forward(self, given: Any) -> Any:
            for label, layer in self.named_children():
                if label not in self.passed_by:
                    given = layer(_convert(layer, given))
            return given

    def _convert(layer: Any, given: Any) -> Any:
        return given.long() if isinstance(layer, torch.nn.Embedding) else given

    built = model.network.build(torch.nn)
    made = Layers()
    for label, layer in built.named_children():
        if labels is None or label in labels:
            made.add_module(label, layer)
    return made


#: the module of some layers alone
stage_of = _make_passable


#: calls as torch's dispatcher has them -> as an author writes them
CALLS: Mapping[str, str] = {
    "allreduce_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "broadcast_": "broadcast",
    "scatter_": "scatter",
    "send": "send",
    "recv_": "recv",
    "alltoall_base_": "all_to_all",
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}


#: the call of which the dispatcher has the input alone, and the number of ranks
GATHERS = "all_gather_into_tensor"


def recorder(
    torch: Any, said: list[IssuedCall], caller: Caller, handle_of: Callable[[str], Any]
) -> Any:
    """Return a mode under which every collective call is noted, in order."""
    mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    names = _names(caller, handle_of)

    class Noting(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if any("DTensor" in each.__name__ for each in types):
                return NotImplemented
            name = collective(func)
            if name is not None:
                tensors = list(_tensors(torch, args))
                if tensors:
                    largest = max(tensors, key=lambda each: each.numel())
                    dtype = str(largest.dtype).removeprefix("torch.")
                    group = _group(torch, args, names)
                    scale = 1
                    if name == GATHERS:
                        scale = next(each for each in args if isinstance(each, int))
                    numel = largest.numel() * scale
                    said.append(IssuedCall(group=group, call=CALLS[name], dtype=dtype, numel=numel))
            return func(*args, **(kwargs or {}))

    return Noting()


@cache
def collective(func: Any) -> str | None:
    """Return the dispatcher's name of an operation that is one of CALLS, or None.

    A step of training has thousands of operations, of some hundred kinds, and torch takes long to
    say what each is called.
    """
    space, _, name = func._schema.name.partition("::")  # noqa: SLF001
    return name if space in {"c10d", "_c10d_functional"} and name in CALLS else None


def _tensors(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(torch, each)


def _names(caller: Any, handle_of: Callable[[str], Any]) -> dict[str, str]:
    """Return the author's name of each group, by torch's own."""
    found: dict[str, str] = {}
    for name in caller.groups:
        handle = handle_of(name)
        found.setdefault(getattr(handle, "group_name", ""), name)
    return found


def _group(torch: Any, args: Any, names: Mapping[str, str]) -> str:
    for each in args:
        if isinstance(each, str) and each in names:
            return names[each]
        handle = each
        if isinstance(each, torch.ScriptObject):
            try:
                handle = torch.distributed.ProcessGroup.unbox(each)
            except (RuntimeError, AttributeError, TypeError):
                continue
        if hasattr(handle, "group_name"):
            # one that torch made for itself is known by its ranks
            ranks = torch.distributed.get_process_group_ranks
            return names.get(handle.group_name) or str(ranks(handle))
    return "world"
