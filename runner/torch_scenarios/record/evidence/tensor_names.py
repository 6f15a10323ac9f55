"""What a call carries, by the model's own names: a unit of FSDP, a parameter, a gradient.

Calls of one line that meet may carry different things: a rank that has no gradient for a layer
reduces the next one where the others reduce that. Names are looked up where the line of the call
speaks of parameters or gradients, by the address of the tensor, and only then. This runs in the
user's own process: it imports the standard library and torch.
"""

from __future__ import annotations

import functools
import gc
import re
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

#: lines of a script whose calls carry a part of a model
OF_MODEL = re.compile(r"grad|param|weight|\.data\b|bias|state")
#: the module of torch whose objects are units of FSDP2, and their methods that communicate
_UNITS = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
_COMMUNICATING = ("unshard", "post_backward")
#: the module whose objects are units of FSDP1, the one whose functions reduce their gradients, and
#: what it wraps a module by
_FLAT_UNITS = "torch.distributed.fsdp._flat_param"
_REDUCING = ("torch.distributed.fsdp._runtime_utils", ("_reduce_grad", "_reduce_grad_no_shard"))
_WRAPPED = "_fsdp_wrapped_module"
#: how often tensors that have no name let models be looked for again
MOST_MISSES = 8


class _Current(threading.local):
    """The unit of FSDP for which a thread communicates now; empty for none."""

    unit = ""


CURRENT = _Current()


class TensorNames:
    """The names of parameters, gradients and buffers, by their addresses."""

    def __init__(self) -> None:
        """Know no model."""
        self._models: list[weakref.ref[Any]] = []
        self._names: dict[int, str] = {}
        self._misses = 0
        #: the modules of torch whose units are watched
        self._watched: set[str] = set()
        #: whether gradients may be others than those that are known
        self.is_stale = True

    def watch_units(self, note: Callable[[str, dict[str, str]], None]) -> None:
        """Let calls know for which unit of FSDP they are made, once that is imported.

        How a unit is sharded is noted once, where it communicates first.
        """
        group = self._find_class(_UNITS, "FSDPParamGroup")
        for name in _COMMUNICATING if group is not None else ():
            if hasattr(group, name):
                watched = _note_unit(getattr(group, name), _name_unit, _list_options, note)
                setattr(group, name, watched)
        flat, (runs, functions) = self._find_class(_FLAT_UNITS, "FlatParamHandle"), _REDUCING
        if flat is None:
            return
        names = _FlatNames()
        gather = _note_unit(flat._all_gather_flat_param, names.find, _list_flat_options, note)
        flat._all_gather_flat_param = gather
        for name in functions:
            function = getattr(sys.modules.get(runs), name, None)
            if function is not None:
                watched = _note_unit(function, names.find, _list_flat_options, note, at=1)
                setattr(sys.modules[runs], name, watched)

    def _find_class(self, module: str, name: str) -> Any:
        """Return a class of a module of torch, once; None where that is not imported yet."""
        found = getattr(sys.modules.get(module), name, None)
        if found is None or module in self._watched:
            return None
        self._watched.add(module)
        return found

    def find(self, tensors: Any) -> str:
        """Return the name of the one tensor of a call; empty for one that has none."""
        while isinstance(tensors, list | tuple):
            if len(tensors) != 1:
                return ""
            tensors = tensors[0]
        try:
            address = tensors.data_ptr()
        except (RuntimeError, AttributeError):
            return ""
        if self.is_stale:
            self._look()
        if address not in self._names and self._misses < MOST_MISSES:
            self._misses += 1
            self._models = _find_models()
            self._look()
        return self._names.get(address, "")

    def _look(self) -> None:
        self.is_stale = False
        self._names.clear()
        for reference in self._models:
            model = reference()
            for name, each, is_trained in _list_tensors(model) if model is not None else ():
                plain = name.replace("module.", "").replace("_orig_mod.", "")
                self._name(each, plain)
                if is_trained and each.grad is not None:
                    self._name(each.grad, f"the gradient of {plain}")

    def _name(self, tensor: Any, name: str) -> None:
        try:
            tensor = getattr(tensor, "_local_tensor", tensor)
            if tensor.numel():
                self._names.setdefault(tensor.data_ptr(), name)
        except (RuntimeError, ValueError):  # it has no memory, or no shape yet
            return


def _list_tensors(model: Any) -> list[tuple[str, Any, bool]]:
    """Return the tensors of a model by name, each with whether it may have a gradient."""
    module = sys.modules["torch"].nn.Module
    found = [(name, each, True) for name, each in module.named_parameters(model)]
    return found + [(name, each, False) for name, each in module.named_buffers(model)]


def _find_models() -> list[weakref.ref[Any]]:
    """Return the modules that are no parts of others.

    Only the types of objects are asked: `isinstance` asks a proxy, which may raise.
    """
    kind = sys.modules["torch"].nn.Module
    found = [each for each in gc.get_objects() if issubclass(type(each), kind)]
    parts = {id(part) for each in found for part in vars(each).get("_modules", {}).values()}
    whole = [each for each in found if id(each) not in parts and "_parameters" in vars(each)]
    return [weakref.ref(each) for each in whole]


class _FlatNames:
    """The names of units of FSDP1, by the modules that they are."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def find(self, unit: Any) -> str:
        """Return the name of a unit in its model; of one without a model, that of none."""
        owner = getattr(unit, "_fully_sharded_module", None)
        if owner not in self._known:
            kind = sys.modules["torch"].nn.Module
            for model in (reference() for reference in _find_models()):
                for name, each in kind.named_modules(model) if model is not None else ():
                    parts = [part for part in name.split(".") if part != _WRAPPED]
                    self._known[each] = ".".join(parts)
        name = self._known.get(owner, "")
        return f"the unit {name}" if name else "the root unit"


def _name_unit(unit: Any) -> str:
    """Return the name of a unit of FSDP2."""
    name = getattr(unit, "_module_fqn", None)
    return f"the unit {name}" if name else "the root unit"


def _note_unit(
    method: Callable[..., Any],
    name_of: Callable[[Any], str],
    options_of: Callable[[Any], dict[str, str]],
    note: Callable[[str, dict[str, str]], None],
    *,
    at: int = 0,
) -> Callable[..., Any]:
    """Return what communicates for a unit of FSDP, its argument `at`; its calls know the name."""
    known: weakref.WeakSet[Any] = weakref.WeakSet()

    @functools.wraps(method)
    def communicate(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= at:
            return method(*args, **kwargs)
        unit, before = args[at], CURRENT.unit
        CURRENT.unit = name_of(unit)
        if unit not in known:
            known.add(unit)
            note(CURRENT.unit, options_of(unit))
        try:
            return method(*args, **kwargs)
        finally:
            CURRENT.unit = before

    return communicate


#: how the name begins of buffers that DDP broadcasts, where they have other shapes than at first
BUFFERS = "the buffers with "
#: buffers that such a name has
_MOST_BUFFERS = 3


def watch_buffers(kind: Any) -> None:
    """Let the broadcasts of DDP know the buffers of its model that have changed their shapes.

    A table that grows with the longest batch of a rank has another shape on each.
    """
    broadcast = kind._sync_module_buffers
    first: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    @functools.wraps(broadcast)
    def sync_module_buffers(model: Any, *args: Any, **kwargs: Any) -> Any:
        shapes = [each.shape for each in model.modules_buffers]
        before, unit = first.setdefault(model, shapes), CURRENT.unit
        if shapes != before:
            names = {id(each): name for name, each in model.module.named_buffers()}
            changed = [
                f"{names.get(id(each), 'one')} {list(each.shape)}"
                for each, earlier in zip(model.modules_buffers, before, strict=False)
                if each.shape != earlier
            ]
            CURRENT.unit = BUFFERS + ", ".join(changed[:_MOST_BUFFERS])
        try:
            return broadcast(model, *args, **kwargs)
        finally:
            CURRENT.unit = unit

    kind._sync_module_buffers = sync_module_buffers


def _list_options(unit: Any) -> dict[str, str]:
    """Return the arguments of `fully_shard` by which a unit communicates otherwise."""
    policy, after = getattr(unit, "mp_policy", None), getattr(unit, "post_forward_mesh_info", None)
    is_whole = after is None or after == getattr(unit, "mesh_info", None)
    size = getattr(after, "shard_mesh_size", 0)
    return {
        "reshard_after_forward": str(after is not None) if is_whole else str(size),
        **{
            name: str(getattr(policy, name, None)).removeprefix("torch.")
            for name in ("param_dtype", "reduce_dtype")
        },
    }


def _list_flat_options(unit: Any) -> dict[str, str]:
    """Return the arguments of FSDP1 by which a unit communicates otherwise."""
    strategy = getattr(unit, "_sharding_strategy", None)
    return {"sharding_strategy": str(getattr(strategy, "name", strategy))}
