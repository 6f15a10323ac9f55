"""What a tensor's bytes can do where a rank takes objects: nothing.

torch's object collectives unpickle what arrives, and make room for whatever size arrives. Every
pair of a tensor operation and an object operation is tried, with a pickle that would create a file.
"""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from sampling import sampled

from torch_scenarios.errors import UnsupportedError
from torch_scenarios.execution import Launcher, LaunchOptions, backends
from torch_scenarios.execution.backends import require_no_foreign_object
from torch_scenarios.operations import OPERATIONS
from torch_scenarios.operations.base import operation_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.torch.conftest import AnalysedCase
    from torch_scenarios.model.trace import Trace

pytestmark = pytest.mark.torch

#: tensor operation -> its arguments on rank 0, for a tensor `T`: `T_list` are two like it, and
#: `T_two` is as long as both
TENSORS = {
    "send": "{tensor: T, dst: 1}",
    "recv": "{tensor: T, src: 1}",
    "isend": "{tensor: T, dst: 1}",
    "irecv": "{tensor: T, src: 1}",
    "batch_isend_irecv": "{p2p_op_list: [{op: isend, tensor: T, peer: 1}]}",
    "broadcast": "{tensor: T, src: 0}",
    "all_reduce": "{tensor: T}",
    "reduce": "{tensor: T, dst: 1}",
    "all_gather": "{tensor_list: T_list, tensor: T}",
    "all_gather_single": "{output: T_two, input: T}",
    "gather": "{tensor: T, dst: 1}",
    "scatter": "{tensor: T, scatter_list: [T, T], src: 0}",
    "reduce_scatter": "{output: T, input_list: [T, T]}",
    "reduce_scatter_single": "{output: T, input: T_two}",
    "all_to_all": "{output_tensor_list: T_list, input_tensor_list: [T, T]}",
    "all_to_all_single": "{output: T_two, input: T_two}",
    "barrier": "{}",
    "monitored_barrier": "{}",
    "all_reduce_coalesced": "{tensors: [T]}",
    "all_gather_coalesced": "{output_tensor_lists: [T_list], input_tensor_list: [T]}",
}
#: object operation -> its arguments on rank 1
OBJECTS = {
    "broadcast_object_list": "{object_list: one, src: 0}",
    "all_gather_object": "{object_list: both, obj: mine}",
    "gather_object": "{obj: mine, object_gather_list: both, dst: 1}",
    "scatter_object_list": "{scatter_object_output_list: one, src: 0}",
    "send_object_list": "{object_list: one, dst: 0}",
    "recv_object_list": "{object_list: one, src: 0}",
}
#: what Gloo carries alike, so that bytes of the one may arrive in the other
REFUSED = {
    "broadcast_object_list": {"broadcast"},
    "all_gather_object": {"all_gather", "all_gather_single", "all_gather_coalesced"},
    "gather_object": {"all_gather", "all_gather_single", "all_gather_coalesced", "gather"},
    "scatter_object_list": {"broadcast", "scatter"},
    "send_object_list": set(),
    "recv_object_list": {
        *("send", "recv", "isend", "irecv", "batch_isend_irecv", "monitored_barrier"),
    },
}


#: operations of several calls: any of these may speak as an object operation's peer would
COMPOUNDS = (
    *("distribute_tensor", "redistribute", "full_tensor", "from_local"),
    *("train", "join", "save", "load"),
)
#: a model that is saved, and a tensor whose bytes could be a plan
SAVED = """\
world_size: 2
timeout: 5s
models:
  net:
    layers: [fc: {Linear: {in_features: 2, out_features: 3}}]
    loss: mse_loss
    optimizer: {SGD: {lr: 0.1}}
    parallel: [DistributedDataParallel: {}]
tensors:
  data: {dtype: uint8, value: [1, 2, 3]}
  both: {dtype: uint8, value: "[zeros(3) for i in range(2)]"}
steps:
"""


class Payload:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        """Make a folder in place of the object."""
        return os.mkdir, (str(self._marker),)


#: object operation that takes -> the tensor operations that speak as its peer would
SPOKEN = {
    "broadcast_object_list": ("broadcast", "broadcast"),
    "all_gather_object": ("all_gather", "all_gather"),
    "gather_object": ("all_gather", "gather"),
    "scatter_object_list": ("broadcast", "scatter", "scatter"),
    "recv_object_list": ("send", "send"),
}


#: a world's timeout where a rank is to raise, which a busy machine may delay
PATIENT = "60s"


def program(
    tensors: tuple[str, ...], taking: str, size: int, content: bytes, timeout: str = "5s"
) -> str:
    """Return a scenario in which rank 0 sends a size, the bytes and the size, as tensors."""
    data = list(content)
    steps = "".join(
        f"  - {{ranks: 0, {tensor}: {TENSORS[tensor].replace('T', name)}}}\n"
        for tensor, name in zip(tensors, ("size", "data", "size"), strict=False)
    )
    return f"""\
world_size: 2
timeout: {timeout}
tensors:
  size: {{dtype: int64, value: [{size}]}}
  size_two: {{dtype: int64, value: [{size}, {size}]}}
  size_list: {{dtype: int64, value: "[zeros(1) for i in range(2)]"}}
  data: {{dtype: uint8, value: {data}}}
  data_two: {{dtype: uint8, value: {data + data}}}
  data_list: {{dtype: uint8, value: "[zeros({len(data)}) for i in range(2)]"}}
objects:
  one: [null]
  both: [null, null]
  mine: hello
steps:
{steps}  - {{ranks: 1, {taking}: {OBJECTS[taking]}}}
"""


@pytest.fixture
def unguarded(
    monkeypatch: pytest.MonkeyPatch, analysed: Callable[[str], AnalysedCase], launcher: Launcher
) -> Callable[[str], Trace]:
    """Run what would be refused: the worker's own guard alone is left."""
    monkeypatch.setattr(
        "torch_scenarios.execution.launcher.require_no_foreign_object", lambda *_: None
    )
    return lambda text: analysed(text).run_on(launcher)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(LaunchOptions(backend="gloo")) as started:
        started.reserve(2)
        yield started


def test_every_pair_is_listed() -> None:
    exchanging = [each for each in OPERATIONS if each.exchanges]
    tensors = {each.name for each in exchanging if not each.takes_objects}
    assert set(TENSORS) | set(COMPOUNDS) == tensors
    assert set(OBJECTS) == {each.name for each in exchanging if each.takes_objects}


def test_a_compound_operation_meets_every_object_operation_that_takes() -> None:
    for name in COMPOUNDS:
        for taking in OBJECTS:
            compound, other = operation_named(name), operation_named(taking)
            assert backends.may_meet(compound, other, ("gloo",))


@pytest.mark.parametrize("taking", OBJECTS)
@pytest.mark.parametrize("tensor", TENSORS)
def test_a_pair_that_may_unpickle_a_tensor_is_not_run(
    tensor: str, taking: str, tmp_path: Path, analysed: Callable[[str], AnalysedCase]
) -> None:
    content = pickle.dumps(Payload(tmp_path / "marker"))
    case = analysed(program((tensor,) * 3, taking, len(content), content))
    assert case.predicted.diagnoses
    refused = False
    try:
        require_no_foreign_object(case.plan, case.predicted, ("gloo",))
    except UnsupportedError as error:
        refused = f"`{taking}`" in str(error)
    assert refused == (tensor in REFUSED[taking])


@pytest.mark.parametrize("taking", sampled(list(OBJECTS), 3))
def test_no_tensor_runs_code_where_an_object_is_taken(
    taking: str, tmp_path: Path, unguarded: Callable[[str], Trace]
) -> None:
    marker = tmp_path / "marker"
    content = pickle.dumps(Payload(marker))
    for tensor in TENSORS:
        unguarded(program((tensor,) * 3, taking, len(content), content))
        assert not marker.exists(), tensor


@pytest.mark.parametrize("taking", SPOKEN)
def test_a_pickle_that_arrives_is_refused_by_the_name_that_it_names(
    taking: str, tmp_path: Path, unguarded: Callable[[str], Trace]
) -> None:
    marker = tmp_path / "marker"
    content = pickle.dumps(Payload(marker))
    trace = unguarded(program(SPOKEN[taking], taking, len(content), content, timeout=PATIENT))
    assert "it names posix.mkdir" in failure_on(1, trace)
    assert not marker.exists()


SAVES = "save: {model: net, checkpoint: a}"
LOADS = "load: {model: net, checkpoint: never}, expect: {raises: invalid_argument}"
GATHERS = "all_gather: {tensor_list: both, tensor: data}"


@pytest.mark.parametrize("step", [f"{{{SAVES}}}", f"{{ranks: 0, {SAVES}}}", f"{{{LOADS}}}"])
def test_ranks_that_save_and_load_alone_are_run(
    step: str, analysed: Callable[[str], AnalysedCase]
) -> None:
    case = analysed(f"{SAVED}  - {step}\n")
    require_no_foreign_object(case.plan, case.predicted, ("gloo",))


@pytest.mark.parametrize(
    "steps",
    [
        [f"{{ranks: 0, {GATHERS}}}", f"{{ranks: 1, {SAVES}}}"],
        [f"{{ranks: 1, {LOADS}}}", f"{{{GATHERS}}}"],
    ],
    ids=["save", "load"],
)
def test_no_tensor_is_read_as_the_plan_of_a_checkpoint(
    steps: list[str], analysed: Callable[[str], AnalysedCase]
) -> None:
    case = analysed(SAVED + "".join(f"  - {step}\n" for step in steps))
    with pytest.raises(UnsupportedError, match="may take the bytes of `all_gather`"):
        require_no_foreign_object(case.plan, case.predicted, ("gloo",))


@pytest.mark.parametrize("size", [-1, 2**40, 2**60, 2**63 - 1])
@pytest.mark.parametrize("taking", SPOKEN)
def test_a_size_from_a_tensor_makes_no_room(
    taking: str, size: int, unguarded: Callable[[str], Trace]
) -> None:
    trace = unguarded(program(SPOKEN[taking], taking, size, b"0123", timeout=PATIENT))
    if size < 0 and taking in {"all_gather_object", "gather_object"}:
        return  # the larger of both sizes is rank 1's own
    assert f"was sent a size of {size} bytes" in failure_on(1, trace)


def failure_on(rank: int, trace: Trace) -> str:
    """Return what the last failure on a rank said."""
    failures = [event.failure for event in trace.ranks[rank].events if event.failure]
    return failures[-1].message if failures else ""
