"""The pickler of torch's RPC in a worker: what crosses between ranks, and what does not."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any, ClassVar

import msgspec
import pytest
import torch
import torch.distributed.rpc as torch_rpc

from torch_scenarios.errors import UnsupportedError
from torch_scenarios.worker.calls import Codec, FunctionFailedError
from torch_scenarios.worker.world import require_callable

pytestmark = pytest.mark.torch


class Opened:
    """Tells that it was unpickled."""

    seen: ClassVar[list[str]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """Call something where it is read."""
        return Opened.seen.append, ("opened",)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def codec() -> Codec:
    return Codec(torch_rpc, {"double": double})


def test_a_call_of_a_known_function_arrives_with_its_tensors() -> None:
    asked = torch_rpc.internal.PythonUDF(double, (torch.ones(2),), {})
    message, tensors = codec().serialize(asked)
    arrived = codec().deserialize(message, tensors)
    assert arrived.func is double
    assert torch.equal(arrived.func(*arrived.args), torch.full((2,), 2.0))


@pytest.mark.parametrize(
    "message",
    [
        pickle.dumps(Opened()),
        msgspec.msgpack.encode(["call", "os.system", ["true"], {}]),
        msgspec.msgpack.encode(["value", {"tensor": 3}]),
        msgspec.msgpack.encode(["object", 1]),
        msgspec.msgpack.encode({"call": 1}),
        b"",
    ],
)
def test_bytes_of_a_stranger_become_no_object(message: bytes) -> None:
    arrived = codec().deserialize(message, [])
    assert isinstance(arrived, torch_rpc.internal.RemoteException)
    assert arrived.exception_type is FunctionFailedError
    assert Opened.seen == []


def test_what_no_function_returns_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot carry Opened"):
        codec().serialize(Opened())


@pytest.mark.parametrize(
    ("device", "here", "reason"),
    [("cuda", "4", "tensors of the CPU alone"), ("cpu", "2", "2 of its 4 ranks are on this one")],
)
def test_functions_are_called_on_one_machine_and_its_cpu(
    monkeypatch: pytest.MonkeyPatch, device: str, here: str, reason: str
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
    with pytest.raises(UnsupportedError, match=reason):
        require_callable(torch.device(device), 4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    require_callable(torch.device("cpu"), 4)


LATE = """
import sys
import torch.distributed.rpc as rpc
import torch.distributed.rpc.internal as internal
from torch_scenarios.worker.calls import Codec
internal._internal_rpc_pickler = Codec(rpc, {})
late = "torch.distributed.nn.api.remote_module"
assert late not in sys.modules
__import__(late)
"""


def test_a_module_of_torch_may_be_imported_behind_a_world_with_functions() -> None:
    """A process that has served functions may run a training next, whose modules it imports."""
    done = subprocess.run([sys.executable, "-P", "-c", LATE], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
