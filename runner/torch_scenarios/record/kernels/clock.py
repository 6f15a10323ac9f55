"""A script on tensors without memory: its calls are recorded, its kernels are reckoned.

Whatever an operator makes that has floating-point elements is a tensor of torch's `FakeTensorMode`:
it has a shape and a dtype, and no memory, so that a rank of any model fits anywhere. Numbers that
steer a program (integers, flags, objects) are real, and are exchanged as in any fake world. What a
script reads of a value that is not there is a guess: 1 of a number, False of a flag; a mask selects
all, so that a step is reckoned for the most that it may hold.

Calls of a script go to the kernels of the recorder; between them a line says how long the kernels
take that were started meanwhile, on which stream::

    dist.all_reduce ──┐                                      ┌── recorder's kernel, fake exchange
    aten.mm ──────────┴── the clock (a dispatch mode) ───────┴── FakeTensorMode; roofline, ledger
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed._tools.fake_collectives  # calls on tensors without memory
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode

from torch_scenarios.record import recorder as recorder_module
from torch_scenarios.record.evidence.frame import frame_of
from torch_scenarios.record.format import CONVOLUTION
from torch_scenarios.record.kernels.lanes import StreamWatch
from torch_scenarios.record.kernels.launches import CompiledParts, HostWork, KernelRun, kernel_run
from torch_scenarios.record.kernels.ledger import (
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    HeldMemory,
    tensors_among,
)
from torch_scenarios.record.kernels.roofline import Roofline, rms_norm

#: bytes of a tensor without floating-point elements up to which it is real
MOST_REAL_BYTES = 1 << 24
#: namespaces of operators that are no kernels
NO_KERNELS = frozenset({"prim", "profiler"})
#: files that read a count of steps, which lies in the memory of the host
_OWN_STEPS = ("/torch/optim/optimizer.py",)
#: the file that asks whether a gradient is infinite, as a number, and skips the optimizer then
_SCALER = "/torch/amp/grad_scaler.py"
#: files whose frames are between a call and a dispatch mode
_BETWEEN = (
    *(__file__, "/torch/_dynamo/eval_frame.py", "/torch/_compile.py"),
    *("/torch/_ops.py", "/torch/utils/checkpoint.py"),
)


class KernelClock:
    """What sees the operators of one process."""

    def __init__(self, recorder: Any, gpu: Mapping[str, Any], *, cuda: bool) -> None:
        """Take the place of torch's streams and of what answers calls."""
        self._torch: Any = torch
        self._recorder = recorder
        self._fake_kind: Any = FakeTensor
        #: the kinds of tensors that are no subclass with operators of its own
        self._plain = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor})
        self._fake: Any = FakeTensorMode(allow_non_fake_inputs=True)
        self._roofline, self.ledger = Roofline(gpu), HeldMemory()
        #: the kinds of kernels seen so far of which no step was compared with a measurement
        self._kinds: set[str] = set()
        self._host, self._run = HostWork(gpu["host"]), KernelRun()
        self._compiled = CompiledParts(torch, self.ledger.keep)
        self._compiled.install()
        #: whether the operator that is done now is compiled, and its kernels are one graph
        self._joined = self._graph = False
        self.lanes = StreamWatch(self._tell, self._wait_on_host)
        self.lanes.install(cuda=cuda)
        self._kernels = {
            operation: make(frame_of=_caller) for operation, make in recorder.makers.items()
        }
        self._keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        recorder_module.PLACELESS = (FakeTensor,)
        self._exchange, recorder.answer = recorder.answer, self._answer
        recorder.settle = self._settle
        torch._dynamo.config.disable = True
        self._fuse()
        self._watch_waits()
        self._watch_copies()
        self._watch_memory()
        self._watch_conversion()
        self.mode = _mode(self.see)
        self._is_forked = False
        os.register_at_fork(after_in_child=self._leave)

    def _fuse(self) -> None:
        """Let what is several kernels on a CPU be the one that it is on a GPU."""
        torch = self._torch
        several = torch.rms_norm

        def fuse(x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
            if not self._is_fake(x) or self._compiled.has(torch.ops.aten.mul.Tensor)[0]:
                return several(x, shape, weight, eps)
            return rms_norm(x, weight, self.move)

        torch.rms_norm = fuse

    def move(self, *tensors: Any) -> None:
        """Start a kernel that reads or writes tensors."""
        self._launch(self._roofline.move_us(tensors))

    def _launch(self, us: float) -> None:
        """Let the host start a kernel, where an operator has one."""
        if us:
            self._start(us, 0.0 if self._graph else self._host.kernel_us)

    def _start(self, us: float, host_us: float) -> None:
        """Let the host work for so long, and start a kernel of `us` then."""
        each = kernel_run(us, host_us)
        if not self._run.takes(each):
            self._settle()
        self._run.add(each)

    def _tell(self, line: list[Any]) -> None:
        self._settle()
        self._recorder.sink.put(json.dumps(line))

    def _settle(self) -> None:
        """Write down how long the kernels take that were started since the last line."""
        self._launch(self._roofline.bytes_us(self._compiled.end()))
        run, self._run = self._run, KernelRun()
        if run.us or run.host_us:
            self._recorder.sink.put(f'["q",{round(run.us, 3)},{round(run.host_us, 3)}]')

    def _wait_on_host(self, *, for_all: bool = False) -> None:
        """Write down that the host waits for its stream, or for all, and at which line.

        An optimizer reads its count of steps, which is in the host's own memory.
        """
        frame: Any = _caller(1)
        while frame is not None and "/torch_scenarios/record/" in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is None or frame.f_code.co_filename.endswith(_OWN_STEPS):
            return
        self._tell(["h", self._recorder.sites.of(frame).number, int(for_all)])

    def _watch_copies(self) -> None:
        """See what reads a tensor on the host that is not there: `.cpu()`, `.numpy()`, `.tolist()`.

        Each element is what a number is taken to be that is not there.
        """
        torch = self._torch
        kind = torch.Tensor

        def watch(name: str) -> None:
            read = getattr(kind, name)

            def read_or_guess(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                local = getattr(tensor, "_local_tensor", tensor)
                if not self._is_fake(local):
                    return read(tensor, *args, **kwargs)
                self._wait_on_host()
                if name == "cpu":
                    return tensor
                with _suspend_modes(torch):
                    real = torch.full(tensor.shape, _guess(tensor.dtype), dtype=tensor.dtype)
                    return read(real, *args, **kwargs)

            setattr(kind, name, read_or_guess)

        for name in ("cpu", "numpy", "tolist"):
            watch(name)

    def end(self) -> None:
        """Write down what is left."""
        self._settle()
        self._recorder.sink.put(json.dumps(["z", self.ledger.begin(), 0]))

    def _leave(self) -> None:
        """Leave a child alone: the worker of a DataLoader makes real samples, which it sends."""
        self._is_forked = True

    def see(self, mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Let the host come to an operator, and do it."""
        if self._is_forked:
            return func(*args, **kwargs)
        self._joined, self._graph = self._compiled.has(func)
        if func.namespace not in NO_KERNELS and not self._joined:
            self._start(0.0, self._host.operator_us(args))
        return self.dispatch(mode, func, types, args, kwargs)

    def dispatch(self, mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Do an operator as if it ran on the GPU.

        a collective            the time of kernels before it is written down
        `.item()`, `equal`      the host waits for its stream, and gets a guess
        on the host's tensors   done as it is
        all else                done on fake tensors, which have shapes and no elements, and counted
        """
        if not self._plain.issuperset(types):
            return NotImplemented  # a subclass, as DTensor, makes its own operators first
        namespace = func.namespace
        if namespace == "c10d":
            kernel = self._kernels.get(func)
            if kernel is not None:
                self._settle()
                return kernel(self._keys, *args, **kwargs)
        elif namespace == "_c10d_functional":
            return self._functional(mode, func, args, kwargs)
        if func._schema.name == "aten::_local_scalar_dense" and self._is_fake(args[0]):
            self._wait_on_host()
            is_scaler = _caller(1).f_code.co_filename.endswith(_SCALER)
            return 0.0 if is_scaler else _guess(args[0].dtype)
        if func._schema.name == "aten::equal" and any(map(self._is_fake, args)):
            self._wait_on_host()
            return True
        tensors = [*tensors_among(args), *tensors_among(kwargs.values())]
        kwargs = _name_host(kwargs)
        if namespace in NO_KERNELS or self._is_meta(tensors, kwargs):
            with self._fake if any(map(self._is_fake, tensors)) else nullcontext():
                return func(*args, **kwargs)
        if not any(map(self._is_fake, tensors)):
            is_made = any(each.is_meta for each in tensors)  # as `empty_like(x, device="cuda")`
            if (tensors and not is_made) or not self._is_floating(func, args, kwargs):
                return func(*args, **kwargs)
        args = _name_rows(func, args, self._is_fake)
        with self._fake:
            out = _select(func, args, kwargs)
        outs = [each for each in tensors_among((out,)) if self._is_fake(each)]
        self._count(func, args, kwargs, out, tensors, outs)
        return out

    def _count(self, func: Any, args: Any, kwargs: Any, out: Any, tensors: Any, outs: Any) -> None:
        """Start the kernel of an operator, or let it be a part of one that is compiled."""
        read = [each for each in tensors if self._is_fake(each)]
        if self._joined and self._roofline.is_fused(func, args, kwargs, out):
            self.ledger.add_made_of(read, outs)
            self._compiled.fuse(read, outs)
            return
        self.ledger.add(outs)
        if CONVOLUTION in func._schema.name and CONVOLUTION not in self._kinds:
            self._kinds.add(CONVOLUTION)
            self._tell(["kernel", CONVOLUTION])
        us = self._roofline.us(func, args, kwargs, out, tensors, outs)
        if us:
            self._launch(self._roofline.bytes_us(self._compiled.end()))
            needed = self._compiled.need(read, outs)
            us += self._roofline.bytes_us(needed)
        self._launch(us)

    def _is_fake(self, value: Any) -> bool:
        return isinstance(value, self._fake_kind)

    def _is_meta(self, tensors: list[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether an operator is one of tensors on torch's own device without memory."""
        device = kwargs.get("device")
        if device is None and tensors:
            return any(not self._is_fake(each) and each.is_meta for each in tensors)
        return str(device) == "meta"

    def _is_floating(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether what an operator makes has floating-point elements, or is too large to be."""
        with self._fake:
            made = func(*args, **kwargs)
        return any(
            each.dtype.is_floating_point or each.dtype.is_complex or each.nbytes > MOST_REAL_BYTES
            for each in tensors_among((made,))
        )

    def _functional(self, mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
        """Do a functional collective: by torch's own code, which calls the group."""
        self._settle()
        key = self._torch._C.DispatchKey.CompositeExplicitAutograd
        if func._schema.name.endswith("wait_tensor"):
            return self._recorder.wait_tensor(args[0], functools.partial(func._op_dk, key))
        with mode:
            return func._op_dk(key, *args, **kwargs)

    def _answer(
        self,
        number: int,
        name: str,
        group: Any,
        args: tuple[Any, ...],
        go_on: Any,
        *,
        is_awaited: bool,
    ) -> Any:
        """Answer a call: of tensors without memory at once, of any other as in a fake world."""
        tensors = list(tensors_among(args))
        if not any(map(self._is_fake, tensors)):
            return self._exchange(number, name, group, args, go_on, is_awaited=is_awaited)
        first = args[0]
        future = self._torch.futures.Future()
        future.set_result(list(first) if isinstance(first, list | tuple) else [first])
        work = self._torch._C._distributed_c10d._create_work_from_future(future).boxed()
        schema = self._torch._C._jit_get_schemas_for_operator(f"c10d::{name}")[0]
        return (first, work) if len(schema.returns) > 1 else work

    def _watch_waits(self) -> None:
        """Write down what kernels take before a wait begins."""
        kind = self._recorder.dist.distributed_c10d.Work
        wait = kind.wait

        def settle_and_wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            self._settle()
            return wait(work, *args, **kwargs)

        kind.wait = settle_and_wait

    def _watch_conversion(self) -> None:
        """Let `module.to(...)` give a parameter new data, as it does with real ones.

        For tensors of torch's fake mode it swaps them, which it refuses where something has a weak
        reference to one, as an optimizer, DeepSpeed and the fake mode itself have.
        """
        swap = self._torch.utils.swap_tensors

        def convert(own: Any, converted: Any) -> None:
            if self._is_fake(own) and self._is_fake(converted):
                own.data = converted.data
            else:
                swap(own, converted)

        self._torch.utils.swap_tensors = convert

    def _watch_memory(self) -> None:
        """See what storages become, and where a step of an optimizer ends."""
        torch, ledger = self._torch, self.ledger
        resize = torch.UntypedStorage.resize_

        def resize_and_note(storage: Any, size: Any) -> Any:
            result = resize(storage, size)
            ledger.resize(storage)
            return result

        torch.UntypedStorage.resize_ = resize_and_note

        def begin(optimizer: Any, *_: Any) -> None:
            own = [each for group in optimizer.param_groups for each in group["params"]]
            ledger.become(PARAMETERS, self._local(own))
            ledger.become(GRADIENTS, self._local(each.grad for each in own))

        def end(optimizer: Any, *_: Any) -> None:
            state = (each for own in optimizer.state.values() for each in own.values())
            ledger.become(OPTIMIZER, self._local(state))
            self._tell(["z", ledger.begin(), 1])

        register_optimizer_step_pre_hook(begin)
        register_optimizer_step_post_hook(end)

    def _local(self, tensors: Any) -> Iterator[Any]:
        """Yield the tensors without memory among some, those of a DTensor on this rank."""
        for each in tensors:
            local = getattr(each, "_local_tensor", each)
            if self._is_fake(local):
                yield local


def _name_host(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keywords with `cpu` for `cpu:0`, as torch has it, and its fake mode does not."""
    if getattr(kwargs.get("device"), "type", "") != "cpu":
        return kwargs
    return {**kwargs, "device": torch.device("cpu")}


def _mode(dispatch: Callable[..., Any]) -> Any:
    """Return a dispatch mode that hands every operator on."""

    class ClockMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return dispatch(self, func, types, args, kwargs or {})

    return ClockMode()  # type: ignore[no-untyped-call]


def _suspend_modes(torch: Any) -> Any:
    """Return a context in which no dispatch mode sees an operator."""
    return torch.utils._python_dispatch._disable_current_modes()


def _caller(depth: int) -> Any:
    """Return the frame that makes a call: that behind the frames of this module."""
    frame: Any = frame_of(depth + 1)
    while frame is not None and frame.f_code.co_filename.endswith(_BETWEEN):
        frame = frame.f_back
    return frame


def _guess(dtype: Any) -> bool | int | float:
    """Return what a value is taken to be that is not there; a byte may be a flag of an overflow."""
    if dtype.is_floating_point:
        return 1.0
    return False if dtype in {torch.bool, torch.uint8} else 1


def _name_rows(func: Any, args: Any, is_fake: Callable[[Any], bool]) -> Any:
    """Return the arguments of an operator with numbers of rows in place of masks."""
    if func._schema.name != "aten::index":
        return args
    table, indices, *rest = args
    return (table, list(_list_rows(indices, is_fake)), *rest)


def _list_rows(indices: Any, is_fake: Callable[[Any], bool]) -> Iterator[Any]:
    for each in indices:
        if each is None or each.dtype not in {torch.bool, torch.uint8}:
            yield each
        elif is_fake(each):
            rows = each.new_empty(each.numel(), dtype=torch.int64)
            yield from (rows for _ in each.shape)
        else:
            yield from each.nonzero(as_tuple=True)


def _select(func: Any, args: Any, kwargs: Any) -> Any:
    """Do an operator on tensors without memory; one that selects by their values selects all."""
    known = _SELECT.get(func._schema.name)
    return func(*args, **kwargs) if known is None else known(*args, **kwargs)


def _find_nonzero(x: Any) -> Any:
    return x.new_empty((x.numel(), x.dim()), dtype=torch.int64)


def _select_masked(x: Any, mask: Any) -> Any:
    return x.logical_and(mask).to(x.dtype).flatten()


def _find_unique(x: Any, *_: Any, **__: Any) -> tuple[Any, Any, Any]:
    inverse = x.new_empty(x.shape, dtype=torch.int64)
    return x.new_empty(x.numel()), inverse, inverse.flatten()


_SELECT: dict[str, Callable[..., Any]] = {
    "aten::nonzero": _find_nonzero,
    "aten::masked_select": _select_masked,
    "aten::_unique2": _find_unique,
}
