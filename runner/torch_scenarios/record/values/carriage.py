"""What collectives carry: gradients, weights, activations or metrics, and what becomes of it.

Each call of the user's own is hashed as it begins; a tensor that belongs to a parameter has its
name. Three mistakes are proved here, in the process itself: a result that no variable holds, a
tensor that is touched in use, and a graph that ends at a call of `torch.distributed`.
"""

from __future__ import annotations

import ast
import ctypes
import linecache
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from torch_scenarios.record.evidence.frame import frame_of
from torch_scenarios.record.values.digest import (
    address_of,
    bytes_of,
    digest,
    is_constant,
    local_part,
    tensors_in,
)
from torch_scenarios.record.values.format.event import CallMistake, ConstantTerm

#: operations whose result is written into the tensor that is passed
IN_PLACE = frozenset({"allreduce_", "broadcast_", "reduce_", "allreduce_coalesced_"})
#: where a call has its tensors: those it sends
SENT_AT = {
    **dict.fromkeys(("allreduce_", "broadcast_", "reduce_", "allreduce_coalesced_", "send"), 0),
    **dict.fromkeys(("allgather_", "_allgather_base_", "gather_", "allgather_coalesced_"), 1),
    **dict.fromkeys(("reduce_scatter_", "_reduce_scatter_base_", "alltoall_", "alltoall_base_"), 1),
    "scatter_": 1,
    "recv_": 0,
    "allgather_into_tensor_coalesced_": 1,
    "reduce_scatter_tensor_coalesced_": 1,
}
#: whose result is in other tensors than what they send
GATHERS = frozenset({"allgather_", "_allgather_base_", "gather_"})
#: whose results are looked at, so that their work is waited for first. A message of Gloo may be
#: waited for once alone: a second wait never returns
LOOKED_AT = frozenset({"allreduce_", "broadcast_"})
#: what sums activations, whole or in parts
SUMMING = frozenset({"allreduce_", "reduce_scatter_", "_reduce_scatter_base_"})
#: what leaves the sum of a gradient on the rank that steps it
REDUCING = frozenset({"allreduce_", "reduce_"})
#: what Gloo does wrongly where the elements of a tensor are not one block of memory
STRIDED = frozenset({"allreduce_", "broadcast_", "reduce_"})
#: where a call has tensors whose elements Gloo takes in the order of their memory
IN_MEMORY_ORDER = {"scatter_": (0, 1), "reduce_scatter_": (0, 1), "alltoall_base_": (0,)}
#: what sends each rank's tokens to the ranks of their experts, and back
EXCHANGING = frozenset({"alltoall_", "alltoall_base_"})
#: calls that only read their tensor
SENDING = frozenset({"send"})
#: elements that tell one tensor from another
HEAD = 8
#: terms of a loss that are looked at
MOST_TERMS = 64
#: nodes of a graph that are looked at, and bytes of a tensor in which others are looked for
MOST_NODES, MOST_SEARCHED = 20_000, 1 << 22
#: where torch has collectives that gradients go through
DIFFERENTIABLE = ("distributed/nn/functional.py", "_functional_collectives.py")
#: calls that leave parts of other ranks here, each of which needs a call in the backward
PARTING = frozenset(
    {"allgather_", "_allgather_base_", "alltoall_", "alltoall_base_"}
    | {"reduce_scatter_", "_reduce_scatter_base_"}
)
#: backward passes of a function that are looked at, and functions of a pass
MOST_LOOKS, MOST_KEPT = 3, 64
#: how a loss depends on gathered parts that a script puts together
JOINED = "the parts of the other ranks are joined with this rank's own"
#: frames between a call and the function that makes it
MOST_FRAMES = 20
#: files of torch between a call and what makes it
PASSED = (
    "distributed_c10d.py",
    "c10d_logger.py",
    "_ops.py",
    "autograd/function.py",
    "_jit_internal.py",
)


class _Suspect:
    """A call that took a tensor with a graph: its node, and what it gathered."""

    __slots__ = ("members", "name", "node", "outputs", "place", "shape", "size")

    def __init__(self, name: str, place: int, node: Any, outputs: list[Any], size: int) -> None:
        self.name, self.place, self.node, self.outputs, self.size = name, place, node, outputs, size
        self.members: list[bytes] | None = None
        self.shape: list[int] = []


class _Pending:
    """A tensor that an asynchronous call uses until its wait."""

    __slots__ = ("carries", "name", "on_host", "place", "storage", "tensor", "turn", "version")

    def __init__(self, name: str, place: int, tensor: Any, carries: str, turn: int) -> None:
        self.name, self.place, self.carries, self.turn = name, place, carries, turn
        self.on_host = tensor.device.type == "cpu"
        self.tensor = weakref.ref(tensor)
        self.version = tensor._version
        self.storage = tensor.untyped_storage()._cdata


def work_of(result: Any, unbox: Callable[[Any], Any]) -> Any:
    """Return the work of what a call of c10d's gave back, or None.

    A call of NCCL's that waits has none: its result is there for what follows on the stream.
    """
    boxed = result[-1] if isinstance(result, (tuple, list)) and result else result
    return None if boxed is None else unbox(boxed)


class _OwnFunctions:
    """The autograd functions of a script that gather in their forward: what their backward does.

    Each rank's loss is computed of the parts of all: the gradient of a part is the sum over ranks
    then, and the backward has to call a collective. It need not where each rank computes one and
    the same loss from what it gathered: the gradient that arrives is equal on all ranks. `put`
    writes an event, `guard` lets nothing raise.
    """

    def __init__(self, torch: Any, put: Callable[[Any], None], guard: Any) -> None:
        """Know none yet."""
        self._torch, self._put, self._guard = torch, put, guard
        self._waiting: list[tuple[Any, int, list[int]]] = []
        self._looks: Counter[type] = Counter()
        #: calls of this process, of whatever kind
        self.calls = 0

    def see(self, name: str, tensor: Any, frame: Any, place: int) -> None:
        """Keep the function in whose forward a call takes an activation with a graph."""
        if name not in PARTING or not tensor.is_floating_point():
            return
        forward = _find_forward(frame, self._torch.autograd.function.BackwardCFunction)
        if forward is None or not _takes_activation(forward, tensor, self._torch.Tensor):
            return
        context = _first_argument(forward)
        if self._looks[type(context)] < MOST_LOOKS and len(self._waiting) < MOST_KEPT:
            self._waiting.append((context, place, list(tensor.shape)))

    def before_backward(self, reached: set[int]) -> None:
        """Watch the functions that a loss depends on."""
        waiting, self._waiting = self._waiting, []
        for context, place, shape in waiting:
            if id(context) in reached and self._looks[type(context)] < MOST_LOOKS:
                self._looks[type(context)] += 1
                self._watch(context, place, shape)

    @property
    def are_waiting(self) -> bool:
        """Whether a forward has called one since the last backward pass."""
        return bool(self._waiting)

    def forget(self) -> None:
        """Forget those that no backward pass has come to: an optimizer has stepped."""
        self._waiting.clear()

    def _watch(self, context: Any, place: int, shape: list[int]) -> None:
        """Write down what arrives at a function whose backward calls no collective."""
        arrived: list[list[float]] = []
        begun: list[int] = []
        name = type(context).__name__.removesuffix("Backward")

        def arrive(gradients: Any) -> None:
            with self._guard:
                known = [each for each in gradients if each is not None]
                with self._torch.no_grad():
                    norm = sum(float(each.double().norm()) for each in known)
                    total = sum(float(each.double().sum()) for each in known)
                arrived.append([norm, total])
                begun.append(self.calls)

        def leave(_: Any, __: Any) -> None:
            with self._guard:
                if begun and self.calls == begun[-1]:
                    about = {"function": name, "shape": shape, "arrives": arrived[-1]}
                    self._put(CallMistake("no_gradient_through", place, about))

        context.register_prehook(arrive)
        context.register_hook(leave)


class Carriage:
    """Sees each collective of a process before and after it is made."""

    def __init__(self, witness: Any) -> None:
        """Stand behind the recorder's own kernels."""
        self._witness, self._torch = witness, witness.torch
        self._put = witness.put
        self._suspects: list[_Suspect] = []
        self._functions = _OwnFunctions(self._torch, witness.put, witness.guard)
        self.pending: dict[int, _Pending] = {}
        self._gradients: dict[int, Any] | None = None
        self._weights: dict[int, Any] | None = None
        self._known = -1
        #: exchanges of activations since the forward pass began: between two of them are experts
        self.exchanges = 0
        #: whether activations were gathered, and their products are not summed yet: each rank has
        #: a part of the weights in between
        self.is_gathered = False
        #: shapes of the floating tensors that other ranks have sent: activations of a pipeline
        self.received: set[tuple[int, ...]] = set()
        #: code of the hooks by which a script reduces DDP's gradients
        self.hooks: set[Any] = set()
        recorder = witness.recorder
        self._recorder = recorder
        #: torch's own `Work.wait`, where the recorder has put one around it
        wait = recorder.dist.distributed_c10d.Work.wait
        self._wait_of = getattr(wait, "__wrapped__", wait)
        self._answer = recorder.answer
        recorder.answer = self.answer

    def answer(
        self, number: int, name: str, group: Any, args: Any, go_on: Any, *, is_awaited: bool
    ) -> Any:
        """Make a call as it would be made, and write down what it carries."""
        before = None
        self._functions.calls += 1
        with self._witness.guard:
            frame = frame_of(2)
            before = self._see_before(number, name, group, args, frame, is_awaited=is_awaited)
        if self._answer is None:
            result = go_on()
        else:
            result = self._answer(number, name, group, args, go_on, is_awaited=is_awaited)
        if before is not None:
            if is_awaited and name in LOOKED_AT | REDUCING:
                self._wait(result)
            with self._witness.guard:
                self._see_after(before, number, name, is_awaited=is_awaited)
        return result

    def _wait(self, result: Any) -> None:
        """Wait for the work of a call that its caller waits for: then its result is there."""
        work = work_of(result, self._recorder.dist.distributed_c10d.Work.unbox)
        if work is not None:
            self._wait_of(work)

    # ------------------------------------------------------------------ one call

    def _see_before(
        self, number: int, name: str, group: Any, args: Any, frame: Any, *, is_awaited: bool
    ) -> Any:
        """Return what a collective carries before it changes that; None where none is compared.

        Calls that torch makes by itself are left out, as are those without values.
        """
        at = SENT_AT.get(name)
        if at is None:
            return None
        maker = self._maker(frame)
        self._look_at_strides(name, args, frame)
        if maker == "torch":
            return None
        tensors = [*tensors_in(args[at], self._torch.Tensor)]
        if not tensors or any(each.is_meta for each in tensors):
            return None
        if name == "recv_":
            self.received |= {(*t.shape,) for t in tensors if t.is_floating_point()}
        place = self._witness.place(frame)
        if maker == "user":
            self._witness.know_modules(frame, place)
        ranks = list(self._recorder.dist.get_process_group_ranks(group))
        details = []
        with self._torch.no_grad():
            details += [self._describe(tensor, name, maker) for tensor in tensors[:64]]
            if name in REDUCING and (own := self._heads_of(tensors, details)):
                self._witness.left.reduce_again(own, within=bool(self._witness.in_backward))
        if name in EXCHANGING and not self._witness.in_backward and tensors[0].is_floating_point():
            self.exchanges += 1
        if not self._witness.in_backward and details and details[0]["carries"] == "activation":
            self.is_gathered = name in GATHERS or (self.is_gathered and name not in SUMMING)
        self._witness.parameters.distrust(
            number
            for each in details
            if each["carries"] == "weight"
            for number in each["parameters"]
        )
        if maker == "user":
            self._look_at_use(name, tensors, frame, place, is_awaited=is_awaited)
            self._look_at_outputs(name, args, place)
            self._look_at_graph(name, tensors, args, frame, place)
        op = self._op(name, args)
        entry = ["c", number, self._witness.turn, name, ranks, place, op, details]
        return entry, tensors

    def _see_after(self, before: Any, number: int, name: str, *, is_awaited: bool) -> None:
        entry, tensors = before
        results = []
        if is_awaited and name in LOOKED_AT and len(tensors) == 1:
            what = entry[-1][0]
            if what["carries"] in {"gradient", "weight", "metric", "loss"}:
                with self._torch.no_grad():
                    results = [digest(tensors[0])]
                    if what["size"] == 1:
                        what["sum"] = float(tensors[0].double())
                    elif what["size"] <= HEAD and not tensors[0].is_complex():
                        what["sums"] = [float(x) for x in tensors[0].reshape(-1).double()]
        elif not is_awaited and len(tensors) <= 4:
            self._note_pending(number, name, tensors, entry)
        if is_awaited and name in REDUCING:
            with self._torch.no_grad():
                self._witness.left.reduce(self._heads_of(tensors, entry[-1]))
        self._put([*entry, results])

    def _heads_of(self, tensors: list[Any], details: list[dict[str, Any]]) -> dict[int, Any]:
        """Return the first elements of each gradient that a call has, by its parameter's number.

        A call of a backward pass counts where it has the gradient's own memory and no hook of DDP's
        makes it: what it sums is what that parameter has accumulated.
        """
        within = bool(self._witness.in_backward)
        own = [
            (tensor, about)
            for tensor, about in zip(tensors, details, strict=False)
            if about["carries"] == "gradient" and (about["exact"] or not within)
        ]
        if not own or (within and self._is_in_hook()):
            return {}
        known = {each.number: each for each in self._witness.parameters.known.values()}
        found: dict[int, Any] = {}
        for tensor, about in own:
            flat, begin = local_part(tensor).reshape(-1), 0
            for number in about["parameters"]:
                parameter = known[number].tensor if number in known else None
                if parameter is None:
                    break
                size = local_part(parameter).numel()
                part = flat[begin : begin + size]
                if about["exact"] and parameter.grad is not None:  # in memory in any order
                    part = local_part(parameter.grad).reshape(-1)
                found[number] = part[:HEAD].double().clone()
                begin += size
        return found

    def _maker(self, frame: Any) -> str:
        """Return who makes a call: the user, a differentiable function of torch, or torch."""
        made = "user"
        while frame is not None:
            file = frame.f_code.co_filename
            if not self._witness.is_foreign(file):
                return made
            if file.endswith(DIFFERENTIABLE):
                made = "graph"
            elif "/torch/" in file and not file.endswith(PASSED):
                return "torch"
            frame = frame.f_back
        return "torch"

    def _op(self, name: str, args: Any) -> str:
        if name not in {"allreduce_", "reduce_"}:
            return ""
        try:
            code = args[2].op()
            number = int(getattr(code, "value", code))
        except (AttributeError, TypeError, IndexError):
            return ""
        names = ("sum", "avg", "product", "min", "max")
        return names[number] if number < len(names) else ""

    def _describe(self, tensor: Any, name: str, maker: str) -> dict[str, Any]:
        """Return what a tensor is: whose, its hash, and whether it has one value alone."""
        details: dict[str, Any] = {"size": tensor.numel(), "shape": list(tensor.shape)}
        details["dtype"] = str(tensor.dtype)[6:]
        details["graph"] = bool(tensor.requires_grad)
        if name == "recv_":
            details["carries"] = "activation" if tensor.is_floating_point() else "other"
            return details
        carries, numbers, exact = self._describe_tensor(tensor, maker)
        if carries == "gradient" and not exact and self._joins(tensor, numbers):
            details["joined"] = True
        details["carries"], details["parameters"], details["exact"] = carries, numbers, exact
        details["hash"] = digest(tensor)
        details["constant"] = is_constant(tensor)
        if carries == "gradient" and not details["constant"] and _has_levels(tensor):
            details["levels"] = True
        if tensor.numel() == 1 and not tensor.is_complex():
            details["value"] = float(tensor.double())
        return details

    def _describe_tensor(self, tensor: Any, maker: str) -> tuple[str, list[int], bool]:
        """Return what a tensor is, the parameters it belongs to, and whether by its memory."""
        witness = self._witness
        if address_of(tensor):
            for kind in ("gradient", "weight"):
                if found := self._find_covered(kind, tensor):
                    return kind, found, True
        is_inside = witness.depth.module > 0 or witness.in_backward
        if not tensor.is_floating_point():
            return "other", [], False
        if tensor.numel() > 1 and self._is_in_hook():
            return "gradient", [], False
        if maker == "graph" or (is_inside and tensor.numel() > 1):
            owner = (
                self._find_by_shape(tensor) if witness.in_backward and not _is_in_function() else []
            )
            return ("gradient", owner, False) if owner else ("activation", [], False)
        if tensor.numel() > 1 and (found_by_value := self._find_by_value(tensor)) is not None:
            return (*found_by_value, False)
        if tensor.requires_grad:
            return ("loss" if tensor.numel() == 1 else "activation"), [], False
        return "metric", [], False

    def _is_in_hook(self) -> bool:
        """Whether a hook that the script gave to DDP makes a call: then it carries gradients."""
        frame: Any = frame_of(2) if self.hooks else None
        while frame is not None and frame.f_code not in self.hooks:
            frame = frame.f_back
        return frame is not None

    def _find_by_shape(self, tensor: Any) -> list[int]:
        """Return the parameter of one shape, where one alone has it, in a hook of a backward."""
        own = [
            each.number
            for each in self._witness.parameters.known.values()
            if (p := each.tensor) is not None and p.requires_grad and p.shape == tensor.shape
        ]
        return own if len(own) == 1 else []

    def _find_covered(self, kind: str, tensor: Any) -> list[int]:
        """Return the parameters whose values or gradients a tensor covers in memory.

        It begins where one of them does. A gradient may be new since the table was made; and what
        was in the table's memory then may be gone: another tensor can have it now.
        """
        start = address_of(tensor)
        end = start + tensor.numel() * tensor.element_size()
        found = self._find_within(kind, start, end)
        if not found and kind == "gradient" and not self._witness.in_backward:
            self._gradients = None
            found = self._find_within(kind, start, end)
        return sorted(found)

    def _find_within(self, kind: str, start: int, end: int) -> list[int]:
        table = self._find_gradients() if kind == "gradient" else self._find_weights()
        if not _is_at(table.get(start), kind, start):
            return []
        return [
            each.number
            for place, each in table.items()
            if start <= place < end and _is_at(each, kind, place)
        ]

    def _find_gradients(self) -> dict[int, Any]:
        if self._gradients is None or self._witness.in_backward:
            self._gradients = {
                address_of(p.grad): each
                for each in self._witness.parameters.known.values()
                if (p := each.tensor) is not None and p.grad is not None
            }
        return self._gradients

    def _find_weights(self) -> dict[int, Any]:
        known = len(self._witness.parameters.known)
        if self._weights is None or known != self._known:
            self._known = known
            self._weights = {
                address_of(p): each
                for each in self._witness.parameters.known.values()
                if (p := each.tensor) is not None and local_part(p).numel()
            }
        return self._weights

    def _find_by_value(self, tensor: Any) -> tuple[str, list[int]] | None:
        """Return the parameters whose gradients or weights a flat tensor begins with, times k."""
        flat = tensor.detach().reshape(-1)
        head = flat[:HEAD].double()
        parameters = [
            (each.number, p)
            for each in self._witness.parameters.known.values()
            if (p := each.tensor) is not None and p.requires_grad
        ]
        for kind in ("gradient", "weight"):
            for at, (_, p) in enumerate(parameters):
                held = p.grad if kind == "gradient" else p
                if held is None or local_part(held).numel() > flat.numel():
                    continue
                own = local_part(held).reshape(-1)[:HEAD].double()
                if _is_multiple(head[: own.numel()], own):
                    return kind, _cover(flat.numel(), parameters[at:])
        return None

    def _joins(self, tensor: Any, numbers: list[int]) -> bool:
        """Whether a flat tensor consists of the gradients of several parameters, in a row."""
        flat, begin = tensor.detach().reshape(-1), 0
        known = {each.number: each.tensor for each in self._witness.parameters.known.values()}
        for number in numbers:
            parameter = known.get(number)
            if parameter is None or parameter.grad is None:
                return False
            own = local_part(parameter.grad).reshape(-1)
            head = flat[begin : begin + min(own.numel(), HEAD)].double()
            if own.numel() > 1 and not _is_multiple(head, own[:HEAD].double()):
                return False
            begin += own.numel()
        return len(numbers) > 1 and begin == flat.numel()

    # ------------------------------------------------------------------ mistakes that show here

    def _look_at_strides(self, name: str, args: Any, frame: Any) -> None:
        """See whether Gloo takes other elements than those of a tensor, or in another order.

        Also in the backward passes of torch's own functions: a gradient may come transposed.
        """
        if self._recorder.dist.get_backend() != "gloo":
            return
        kind = self._torch.Tensor
        if name in STRIDED:
            found = [each for each in tensors_in(args[0], kind) if not _fills_its_memory(each)]
        else:
            found = [
                each
                for at in IN_MEMORY_ORDER.get(name, ())
                for each in tensors_in(args[at], kind)
                if not each.is_contiguous()
                # the parts of a reduce_scatter are copied where they have gaps
                and ((name, at) != ("reduce_scatter_", 1) or _fills_its_memory(each))
            ]
        if found and found[0].device.type == "cpu":
            place = self._witness.place(frame)
            about: dict[str, Any] = {"shape": list(found[0].shape)}
            if self._mixes(name, args, found) and self._is_trained(found[0]):
                about["trained"] = True
            self._put(CallMistake("in_place_of_strided", place, about))

    def _mixes(self, name: str, args: Any, found: list[Any]) -> bool:
        """Whether a call of Gloo's takes or leaves elements elsewhere than their tensor has them.

        Parts and results that are laid out alike keep their order, and elements that are all equal
        have none.
        """
        with self._torch.no_grad():
            if all(is_constant(each) for each in found):
                return False
        sides = [
            [*tensors_in(args[at], self._torch.Tensor)] for at in IN_MEMORY_ORDER.get(name, ())
        ]
        layouts = {
            tuple(n for n, size in zip(each.stride(), each.shape, strict=True) if size > 1)
            for side in sides
            for each in side
        }
        return name in STRIDED or name == "alltoall_base_" or len(layouts) > 1

    def _is_trained(self, tensor: Any) -> bool:
        """Whether a tensor is part of a training: has a graph, or is a gradient or a weight."""
        if self._witness.in_backward or tensor.requires_grad:
            return bool(tensor.is_floating_point())
        return any(self._find_covered(kind, tensor) for kind in ("gradient", "weight"))

    def _look_at_graph(
        self, name: str, tensors: list[Any], args: Any, frame: Any, place: int
    ) -> None:
        """Keep a call that takes what a graph has computed: here, or in an autograd function."""
        if self._torch.is_grad_enabled():
            self._suspect(name, tensors, args, place)
        elif not self._witness.in_backward:
            self._functions.see(name, tensors[0], frame, place)

    def _look_at_use(
        self, name: str, tensors: list[Any], frame: Any, place: int, *, is_awaited: bool
    ) -> None:
        """See whether the result of a call in place is lost at once: its tensor is a temporary.

        The work of an asynchronous call has the tensor, and its future gives it to a hook.
        """
        if name not in {"allreduce_", "broadcast_"} or len(tensors) != 1:
            return
        if not is_awaited and _reads_results(frame, self._witness.is_foreign):
            return
        tensor = tensors[0]
        storage = tensor.untyped_storage()
        if self._torch._C._storage_Use_Count(storage._cdata) > 2 or is_constant(tensor):
            return
        written = _argument(frame, self._witness.is_foreign)
        if written is not None and not self._is_held(written, frame, storage._cdata):
            words = ast.unparse(written)[:80]
            self._put(CallMistake("result_dropped", place, {"argument": words}))

    def _is_held(self, written: Any, frame: Any, storage: int) -> bool:
        """Whether what a temporary is made of has its memory: `x.contiguous()` may be `x`."""
        while frame is not None and self._witness.is_foreign(frame.f_code.co_filename):
            frame = frame.f_back
        called: Any = written
        inner = called.func.value if isinstance(written, ast.Call) else None
        names: list[str] = []
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if frame is None or not isinstance(inner, ast.Name):
            return False
        value = frame.f_locals.get(inner.id, frame.f_globals.get(inner.id))
        for name in reversed(names):
            value = getattr(value, name, None)
        is_tensor = isinstance(value, self._torch.Tensor)
        return is_tensor and local_part(value).untyped_storage()._cdata == storage

    def _look_at_outputs(self, name: str, args: Any, place: int) -> None:
        """See whether a list for the parts of all ranks holds one tensor many times."""
        if name not in {"allgather_", "gather_"}:
            return
        outputs = [each for each in tensors_in(args[0], self._torch.Tensor) if each.numel()]
        if len(outputs) > len({each.data_ptr() for each in outputs}):
            self._put(CallMistake("result_dropped", place, {"parts": len(outputs)}))

    def _suspect(self, name: str, tensors: list[Any], args: Any, place: int) -> None:
        """Keep a call that takes a tensor with a graph until the backward pass shows its use."""
        if name not in IN_PLACE and name not in GATHERS and name != "_reduce_scatter_base_":
            return
        for tensor in tensors:
            if tensor.grad_fn is None or not tensor.is_floating_point():
                continue
            outputs = [*tensors_in(args[0], self._torch.Tensor)] if name in GATHERS else []
            suspect = _Suspect(name, place, tensor.grad_fn, outputs, tensor.numel())
            suspect.shape = list(tensor.shape)
            self._suspects.append(suspect)
            del self._suspects[:-16]

    def before_backward(self, roots: Any) -> None:
        """Find the suspects that the loss depends on."""
        self.exchanges, self.is_gathered = 0, False
        if not self._suspects and not self._functions.are_waiting:
            return
        waiting, self._suspects = self._suspects, []
        own_nodes = (
            getattr(each, "node", None) or getattr(each, "grad_fn", None) for each in roots
        )
        nodes = [each for each in own_nodes if each is not None]
        own = set(map(id, nodes))
        graph = [*_nodes_of(nodes)]
        reached = {id(each) for each in graph}
        self._functions.before_backward(reached)
        for suspect in waiting:
            if suspect.name in GATHERS and (joins := _find_joins(suspect, graph)):
                for node in joins:
                    self._watch_join(suspect, node, JOINED)
                continue
            how = ""
            if suspect.name in GATHERS:
                how = self._depends(suspect, graph)
            elif id(suspect.node) in reached and id(suspect.node) not in own:
                how = "the loss is computed from the result"
                if suspect.name == "allreduce_":
                    self._watch_join(suspect, suspect.node, how)
                    continue
            if how:
                about = {"how": how, "size": suspect.size, "shape": suspect.shape}
                self._put(CallMistake("no_gradient_through", suspect.place, about))
            elif suspect.name in GATHERS and any(map(_adds_a_constant, nodes)):
                self._put(ConstantTerm(suspect.place, suspect.size, tuple(suspect.shape)))

    def _watch_join(self, suspect: _Suspect, node: Any, how: str) -> None:
        """Write down the gradient that arrives where the parts of all ranks are joined or summed.

        Where it is the same on all ranks, each computes the whole loss, and its own part's gradient
        is whole.
        """
        about = {"how": how, "size": suspect.size, "shape": suspect.shape}

        def arrive(gradients: Any) -> None:
            with self._witness.guard:
                known = [each for each in gradients if each is not None]
                with self._torch.no_grad():
                    norm = sum(float(each.double().norm()) for each in known)
                    total = sum(float(each.double().sum()) for each in known)
                arrived = {"arrives": [norm, total]}
                found = {**about, **arrived}
                self._put(CallMistake("no_gradient_through", suspect.place, found))

        node.register_prehook(arrive)

    def _depends(self, suspect: _Suspect, graph: list[Any]) -> str:
        """Return how a graph uses what a call gathered, or nothing."""
        storages = {each.untyped_storage()._cdata for each in suspect.outputs}
        contents = [
            bytes_of(each)
            for each in suspect.outputs[:8]
            if each.numel() >= HEAD and not is_constant(each)
        ]
        for saved in _find_saved(graph, self._torch.Tensor):
            if saved.untyped_storage()._cdata in storages:
                return "the loss is computed with what was gathered"
            if contents and saved.numel() * saved.element_size() <= MOST_SEARCHED:
                held = _storage_bytes(saved)
                if all(each in held for each in contents):
                    return "the loss is computed with what was gathered"
        return ""

    # ------------------------------------------------------------------ in use

    def _note_pending(self, number: int, name: str, tensors: list[Any], entry: list[Any]) -> None:
        uses, place = [], entry[5]
        for tensor, about in zip(tensors, entry[-1], strict=True):
            try:
                uses.append(_Pending(name, place, tensor, about["carries"], self._witness.turn))
            except RuntimeError:
                return
        for at, use in enumerate(uses):
            self.pending[number * 4 + at] = use

        def finish() -> None:
            with self._witness.guard:
                for at, use in enumerate(uses):
                    self.pending.pop(number * 4 + at, None)
                    tensor = use.tensor()
                    if tensor is not None and tensor._version != use.version:
                        about = {"how": "written", "shape": list(tensor.shape)}
                        self._put_use(place, about)

        self._recorder.late[number] = finish

    def _put_use(self, place: int, about: dict[str, Any]) -> None:
        """Write down that something uses a tensor that a call is still to write, or never waits."""
        self._put(CallMistake("touched_in_flight", place, about))

    def reads(self, values: Any, reader: str) -> None:
        """See whether something reads a tensor that a call is still to write."""
        storages = {
            each.untyped_storage()._cdata for each in tensors_in(values, self._torch.Tensor)
        }
        for key, use in [*self.pending.items()]:
            if use.storage in storages and use.tensor() is not None and use.name not in SENDING:
                del self.pending[key]
                about = {"how": "read", "by": reader, "at": self._witness.place(frame_of(2))}
                self._put_use(use.place, about)

    def end(self) -> None:
        """Write down calls for gradients, of several steps, that nothing has ever waited for.

        A device's stream may order what the host does not wait for.
        """
        turns: dict[int, set[int]] = {}
        for use in self.pending.values():
            if use.carries == "gradient" and use.name not in SENDING and use.on_host:
                turns.setdefault(use.place, set()).add(use.turn)
        for place, own in turns.items():
            if len(own) > 1:
                about = {"how": "left", "steps": len(own), "turn": min(own)}
                self._put_use(place, about)

    def before_step(self, optimizer: Any, place: int) -> None:
        """See whether an optimizer reads gradients that are still in use."""
        if not self.pending:
            return
        gradients = [
            local_part(p.grad)
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        self.reads(gradients, "the optimizer")

    def forget(self) -> None:
        """Forget what was known of gradients and weights: an optimizer has stepped."""
        self._gradients = self._weights = None
        self._suspects.clear()
        self._functions.forget()

    def forget_gradients(self) -> None:
        """Forget where gradients are: a backward pass has made them."""
        self._gradients = None


#: nodes of a graph between a loss and the terms that it is the sum of
_TERMS = ("Add", "Sub", "Mul", "Div", "Neg", "Mean", "Sum")


def _adds_a_constant(root: Any) -> bool:
    """Whether a loss is a sum of which a term has no graph."""
    waiting, seen = [root], 0
    while waiting and seen < MOST_TERMS:
        node, seen = waiting.pop(), seen + 1
        name = type(node).__name__
        edges = [each for each, _ in node.next_functions]
        if name.startswith(("AddBackward", "SubBackward")) and None in edges:
            return True
        if name.startswith(_TERMS):
            waiting += [each for each in edges if each is not None]
    return False


def _find_joins(suspect: _Suspect, graph: list[Any]) -> list[Any]:
    """Return the nodes that join parts of other ranks, which have no graph, with the own one."""
    count = len(suspect.outputs)
    return [
        node
        for node in graph
        if count > 1
        and type(node).__name__.startswith(("CatBackward", "StackBackward"))
        and len(edges := node.next_functions) == count
        and any(each is None for each, _ in edges)
    ]


def _is_at(known: Any, kind: str, place: int) -> bool:
    """Whether a parameter, or its gradient, begins at an address still."""
    tensor = None if known is None else known.tensor
    held = tensor if tensor is None or kind == "weight" else tensor.grad
    return held is not None and address_of(held) == place


def _fills_its_memory(tensor: Any) -> bool:
    """Whether a tensor's elements are one block of memory, in whatever order of dimensions."""
    size = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1 and stride != size:
            return False
        size *= length
    return True


def _has_levels(tensor: Any) -> bool:
    """Whether a tensor's elements are one number, its negative and zero."""
    sizes = local_part(tensor).abs()
    most = sizes.max()
    return bool(((sizes == most) | (sizes == 0)).all())


def _reads_results(frame: Any, is_foreign: Any) -> bool:
    """Whether the function that makes a call reads results of works or of their futures."""
    while frame is not None and is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and not {"get_future", "result"}.isdisjoint(frame.f_code.co_names)


def _is_multiple(head: Any, own: Any) -> bool:
    """Whether some elements are those of another tensor times one number that is not zero."""
    if not own.numel() or head.numel() != own.numel():
        return False
    place = int(own.abs().argmax())
    if float(own[place]) == 0.0:
        return False
    ratio = float(head[place]) / float(own[place])
    if ratio == 0.0 or not math.isfinite(ratio):
        return False
    away = (head - ratio * own).abs().max()
    return bool(away <= 1e-5 * float(head.abs().max())) and own.numel() > 1


def _cover(size: int, parameters: list[tuple[int, Any]]) -> list[int]:
    found: list[int] = []
    for number, parameter in parameters:
        size -= local_part(parameter).numel()
        if size < 0:
            break
        found.append(number)
    return found


def _is_in_function() -> bool:
    """Whether a backward of an autograd function of the user's is among the frames."""
    frame: Any = frame_of(2)
    deep = 0
    while frame is not None and deep < 40:
        if frame.f_code.co_filename.endswith("autograd/function.py"):
            return True
        frame, deep = frame.f_back, deep + 1
    return False


def _find_forward(frame: Any, kind: type) -> Any:
    """Return the frame of the autograd function's forward in which a call is made, or None.

    Its first argument is the context, of class `kind`. Who calls it is not asked: from torch 2.15
    on that is no Python code. The locals of other functions are not read: before Python 3.13 a
    frame keeps alive what was read of it.
    """
    for _ in range(MOST_FRAMES):
        if frame is None:
            return None
        if frame.f_code.co_name == "forward" and isinstance(_first_argument(frame), kind):
            return frame
        frame = frame.f_back
    return None


def _first_argument(frame: Any) -> Any:
    """Return what the function of a frame was called with first, where it still has it."""
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def _takes_activation(forward: Any, tensor: Any, kind: Any) -> bool:
    """Whether a call has an argument of a function's forward that a graph has computed.

    A copy of it has as many elements; a scale or a count that is computed from it has fewer.
    """
    names = forward.f_code.co_varnames[1 : forward.f_code.co_argcount]
    own = [forward.f_locals.get(each) for each in names]
    return any(_first_argument(forward).needs_input_grad) and any(
        isinstance(each, kind)
        and each.requires_grad
        and each.grad_fn is not None
        and each.numel() == tensor.numel()
        for each in own
    )


def _nodes_of(roots: list[Any]) -> Iterator[Any]:
    """Yield the nodes of a graph, from its roots on."""
    waiting, kept = [*roots], []
    seen: set[int] = set()
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        kept.append(node)  # a node's Python object lives as long as it is referenced
        yield node
        waiting += [each for each, _ in node.next_functions if each is not None]


def _find_saved(graph: list[Any], kind: type) -> Iterator[Any]:
    """Yield the tensors that a graph has saved for its backward pass."""
    for node in graph:
        for name in dir(node):
            if not name.startswith("_saved_"):
                continue
            try:
                value = getattr(node, name)
            except (RuntimeError, AttributeError):
                continue
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, kind):
                    yield each


def _storage_bytes(tensor: Any) -> bytes:
    storage = tensor.untyped_storage()
    if tensor.device.type != "cpu" or storage.nbytes() > 4 * MOST_SEARCHED:
        return b""
    return ctypes.string_at(storage.data_ptr(), storage.nbytes())


#: what makes a tensor that nothing else has, out of another one
_MAKING = frozenset(
    {"contiguous", "half", "float", "double", "bfloat16", "to", "type", "clone", "cpu", "cuda"}
    | {"flatten", "reshape", "t", "long", "int", "mean", "sum", "type_as"}
)


def _argument(frame: Any, is_foreign: Any) -> Any:
    """Return the expression of a call's tensor where it is a temporary, else None."""
    while frame is not None and is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    at = frame.f_lasti // 2
    positions = getattr(frame.f_code, "co_positions", None)
    found = next((p for n, p in enumerate(positions()) if n == at), None) if positions else None
    if found is None or None in found:
        return None
    first, last, start, end = found
    lines = [linecache.getline(frame.f_code.co_filename, n) for n in range(first, last + 1)]
    text = "".join(lines).encode()
    before = sum(len(line.encode()) for line in lines[:-1])
    try:
        called = ast.parse(text[start : before + end].decode().strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(called, ast.Call):
        return None
    named = [each.value for each in called.keywords if each.arg == "tensor"]
    passed = [*called.args[:1], *named[:1]]
    if not passed:
        return None
    argument = passed[0]
    if isinstance(argument, ast.Subscript | ast.BinOp | ast.UnaryOp):
        return argument
    if isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute):
        return argument if argument.func.attr in _MAKING else None
    return None
