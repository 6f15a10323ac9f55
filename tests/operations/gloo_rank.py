"""One real Gloo rank that takes calls from standard input: what the reference is held against.

Started as `python gloo_rank.py STORE RANK SIZE`. A request is (operation name, arguments), with
arrays for tensors; an answer is ("done", the arguments as they were left) or ("raised", the
exception's type, its text). Both are pickled; the other end is the test that started it.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from datetime import timedelta
from typing import Any

import ml_dtypes
import numpy as np
import torch
import torch.distributed as dist

from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import PremulSum

TIMEOUT = timedelta(seconds=20)


def to_torch(kind: str, value: Any, groups: dict[str, Any]) -> Any:
    """Return torch's form of an argument of that kind."""
    match kind:
        case "group":
            return groups[value]
        case "reduce_op" if isinstance(value, PremulSum):
            return torch._C._distributed_c10d._make_nccl_premul_sum(value.factor)  # noqa: SLF001
        case "reduce_op":
            return getattr(dist.ReduceOp, value.upper())
        case "seconds":
            return timedelta(seconds=value)
        case "p2p_ops":
            return [
                {
                    **item,
                    "tensor": tensors(item["tensor"]),
                    "group": None if item["group"] is None else groups[item["group"]],
                }
                for item in value
            ]
        case "tensor" | "tensors" | "tensor_lists":
            return tensors(value)
        case _:
            return value


def tensors(value: Any) -> Any:
    """Return tensors with the values of arrays."""
    if isinstance(value, list):
        return [tensors(item) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(value)


def arrays(value: Any) -> Any:
    """Return the values of tensors as arrays."""
    if isinstance(value, list):
        return [arrays(item) for item in value]
    if isinstance(value, dict):
        return {name: arrays(item) for name, item in value.items()}
    if not isinstance(value, torch.Tensor):
        return value if not isinstance(value, dist.ProcessGroup) else None
    if value.dtype == torch.bfloat16:
        return value.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16).copy()
    return value.numpy().copy()


def call(name: str, arguments: dict[str, Any], groups: dict[str, Any]) -> tuple[Any, ...]:
    """Carry one call out, wait for what it started, and return the answer."""
    operation = BY_NAME[name]
    kinds = {param.name: param.kind for param in operation.params}
    given = {
        key: to_torch(kinds[key], value, groups)
        for key, value in arguments.items()
        if value is not None or kinds[key] in {"tensor", "tensors", "tensor_lists", "objects"}
    }
    kept = {key: value for key, value in given.items() if kinds[key] not in {"group", "reduce_op"}}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            work = operation.execute(dist, dict(given))
        for handle in work if isinstance(work, list) else [work]:
            if hasattr(handle, "wait") and not isinstance(handle, dist.ProcessGroup):
                handle.wait()
    except Exception as error:  # noqa: BLE001 -- whatever torch raises is the answer
        return ("raised", type(error).__name__, str(error))
    if name == "new_group":
        groups[arguments["name"]] = work
        return ("done", {})
    return ("done", arrays(kept))


def main() -> None:
    """Join the world, then answer until the input ends."""
    path, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=size, timeout=TIMEOUT
    )
    groups: dict[str, Any] = {"world": dist.group.WORLD}
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 -- from our own test
        except EOFError:
            break
        pickle.dump(call(name, arguments, groups), answers)
        answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
