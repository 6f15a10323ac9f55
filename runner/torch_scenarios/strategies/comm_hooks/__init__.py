"""The communication hooks of DistributedDataParallel, one file each, in one explicit table.

A hook takes the place of the mean of a bucket of gradients. To add one: read a neighbour, write its
file, add it to `HOOKS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_scenarios.strategies.comm_hooks.all_reduce import AllReduceHook, Fp16Compress
from torch_scenarios.strategies.comm_hooks.base import Bucket, Hook, HookSide
from torch_scenarios.strategies.comm_hooks.post_local_sgd import PostLocalSGD
from torch_scenarios.strategies.comm_hooks.power_sgd import PowerSGD
from torch_scenarios.strategies.model import LeftOutError

#: every hook, by torch's name
HOOKS: dict[str, type[Hook]] = {
    each.name: each for each in (AllReduceHook, Fp16Compress, PostLocalSGD, PowerSGD)
}

#: hooks of torch's that no model here is trained by -> why
LEFT_OUT: dict[str, str] = {
    "bf16_compress_hook": "Gloo refuses it when it is registered: it wants NCCL",
    "fp16_compress_wrapper": "a hook inside of another one is not lowered here",
    "bf16_compress_wrapper": "Gloo refuses it when it is registered: it wants NCCL",
    "batched_powerSGD_hook": "a bucket as one square matrix is not lowered here: powerSGD_hook is",
    "quantization_pertensor_hook": "gradients of eight bits are not lowered here",
    "quantization_perchannel_hook": "gradients of eight bits are not lowered here",
    "noop_hook": "it only measures: gradients stay those of the rank, as with `sync: false`",
}

__all__ = ["HOOKS", "LEFT_OUT", "Bucket", "Hook", "HookSide", "hook_of"]


def hook_of(given: Any) -> Hook | None:
    """Return the hook that `comm_hook:` names, a name or `{name: {arguments}}`.

    Raises ValueError and TypeError, and LeftOutError for one of torch's that is not here.
    """
    if given is None:
        return None
    stated = {given: None} if isinstance(given, str) else given
    if not isinstance(stated, Mapping) or len(stated) != 1:
        message = "a name is wanted, or one with its arguments: `{powerSGD_hook: {...}}`"
        raise TypeError(message)
    ((name, arguments),) = stated.items()
    if name in LEFT_OUT:
        message = f"{name}: {LEFT_OUT[name]}"
        raise LeftOutError(message)
    if name not in HOOKS:
        message = f"there is no hook `{name}` here; there are {', '.join(HOOKS)}"
        raise ValueError(message)
    kind = HOOKS[name]
    declared = kind.types()
    if not isinstance(arguments, Mapping | None):
        message = f"the arguments of {name} are a mapping"
        raise TypeError(message)
    for key, value in (arguments or {}).items():
        if key not in declared:
            listed = ", ".join(declared) or "none"
            message = f"{name} has no argument `{key}`; there are {listed}"
            raise ValueError(message)
        if not _FITS[declared[key]](value):
            message = f"`{key}` of {name} is {_WANTED[declared[key]]}"
            raise TypeError(message)
    lacking = [each for each in kind.list_required() if each not in (arguments or {})]
    if lacking:
        message = f"{name} has no `{lacking[0]}`"
        raise ValueError(message)
    return kind(**(arguments or {}))


_FITS = {
    "int": lambda value: type(value) is int,
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
}
_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a name",
}
