"""How an operation meets torch and the program: names old and new, peers, what a call touches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torch_scenarios.expressions.functions import NumpyArrays
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.model.process import Process
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Collective, Local, ProcessExit, ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch_scenarios.model.process import Call
    from torch_scenarios.operations.base import Entry

    Enter = Callable[[str, Mapping[int, Mapping[str, Any]]], list[Entry]]


class Recorder(SimpleNamespace):
    """A `torch.distributed` of the given functions, which note how they were called."""

    def __init__(self, *names: str, size: int = 3) -> None:
        super().__init__(group=SimpleNamespace(WORLD="the world"), calls=[])
        self.get_world_size = lambda _group=None: size
        for name in names:
            setattr(self, name, self._noting(name))

    def _noting(self, name: str) -> Callable[..., str]:
        def call(*args: object, **kwargs: object) -> str:
            self.calls.append((name, args, kwargs))
            return f"work of {name}"

        return call


@pytest.mark.parametrize(
    ("name", "older"),
    [
        ("all_gather_single", "all_gather_into_tensor"),
        ("reduce_scatter_single", "reduce_scatter_tensor"),
    ],
)
def test_a_renamed_function_is_found_under_either_name(name: str, older: str) -> None:
    for names, expected in (((name, older), name), ((older,), older)):
        dist: Any = Recorder(*names)
        work = BY_NAME[older].execute(dist, {"output": "o", "input": "i", "async_op": True})
        assert work == f"work of {expected}"
        assert dist.calls == [(expected, ("o", "i"), {"async_op": True})]


@pytest.mark.parametrize(
    ("name", "arguments", "torch_calls"),
    [
        ("all_reduce", {"tensor": "x", "op": "SUM"}, "all_reduce"),
        ("send", {"tensor": "x", "dst": 1}, "send"),
        ("all_gather_single", {"output": "o", "input": "i"}, "all_gather_single"),
        ("batch_isend_irecv", {"p2p_op_list": [{"op": "isend", "peer": 1}]}, "batch_isend_irecv"),
    ],
)
def test_a_call_that_is_bound_once_is_made_as_often_as_wanted(
    name: str, arguments: dict[str, Any], torch_calls: str
) -> None:
    dist: Any = Recorder(torch_calls)
    dist.isend, dist.P2POp = "isend", lambda *args, **kwargs: (args, kwargs)
    call = BY_NAME[name].bound(dist, arguments)
    assert dist.calls == []
    assert call() == call() == f"work of {torch_calls}"
    assert len(dist.calls) == 2
    assert dist.calls[0] == dist.calls[1]


def test_new_group_passes_on_what_older_torch_knows() -> None:
    dist: Any = Recorder("new_group")
    arguments = {"name": "g", "group_ranks": [1, 0], "sort_ranks": True, "timeout": "1 s"}
    BY_NAME["new_group"].execute(dist, arguments)
    BY_NAME["new_group"].execute(dist, {**arguments, "sort_ranks": False})
    assert [call[2] for call in dist.calls] == [
        {"timeout": "1 s"},
        {"timeout": "1 s", "sort_ranks": False},
    ]
    assert [call[1] for call in dist.calls] == [([1, 0],), ([1, 0],)]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("send", {"tensor": "x", "dst": 3}),
        ("isend", {"tensor": "x", "group_dst": -1, "group": "a group"}),
        ("recv", {"tensor": "x", "group_src": 3}),
        ("irecv", {"tensor": "x", "src": 7, "group": "the world"}),
        ("send_object_list", {"object_list": [1], "dst": 9}),
        ("recv_object_list", {"object_list": [1], "group_src": 4}),
    ],
)
def test_torch_is_never_asked_for_a_peer_that_is_not_there(
    name: str, arguments: dict[str, Any]
) -> None:
    dist: Any = Recorder(name)
    with pytest.raises(ValueError, match="out of range"):
        BY_NAME[name].execute(dist, arguments)
    assert dist.calls == []


def test_a_world_rank_in_a_group_is_torchs_to_judge() -> None:
    dist: Any = Recorder("send", size=2)
    BY_NAME["send"].execute(dist, {"tensor": "x", "dst": 5, "group": "a group of two"})
    assert len(dist.calls) == 1


BATCH = """\
world_size: 4
groups: {odd: [3, 1], pair: {ranks: [3, 1], sort_ranks: false}}
tensors: {mine: [1, 2], theirs: [0, 0]}
steps:
  - ranks: odd
    batch_isend_irecv:
      p2p_op_list:
        1: [{op: isend, tensor: mine, group_peer: 0, group: pair, tag: 3}]
        3:
          - {op: irecv, tensor: "theirs[0:2]", peer: 1, group: pair, tag: 3}
          - {op: isend, tensor: mine, peer: 1, group: pair}
    as: h
  - ranks: odd
    wait: h
"""


def first_call(text: str, rank: int, folder: Path) -> Call:
    path = folder / "case.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = load(path)
    return next(Process(plan(scenario), rank, NumpyArrays()).walk())


def test_a_batch_reads_what_it_sends_and_writes_what_it_receives(tmp_path: Path) -> None:
    call = first_call(BATCH, 3, tmp_path)
    assert call.read == ("mine",)
    assert call.targets == ("theirs",)
    assert call.asynchronous
    assert call.label == "batch_isend_irecv (irecv from 1, isend to 1)"


def test_a_batch_takes_its_group_from_its_messages(tmp_path: Path) -> None:
    call = first_call(BATCH, 1, tmp_path)
    operation: Any = call.operation
    assert call.entry.group.ranks == (3, 1)
    (message,) = operation.messages(call.entry)
    assert (message.sends, message.peer, message.tag) == (True, 3, 3)
    assert operation.refuse(call.entry) is None


@pytest.mark.parametrize(
    ("name", "arguments", "written"),
    [
        ("broadcast", {"src": 0}, {1, 2}),
        ("broadcast", {"group_src": 0, "group": "pair"}, {0}),
        ("reduce", {"dst": 0}, {0, 1, 2}),
        ("gather", {"dst": 1}, {1}),
        ("scatter", {"src": 1}, {0, 1, 2}),
        ("gather_object", {}, {0}),
        ("broadcast_object_list", {}, {1, 2}),
    ],
)
def test_only_who_receives_is_written_to(
    enter: Enter, name: str, arguments: dict[str, Any], written: set[int]
) -> None:
    operation = BY_NAME[name]
    ranks = (2, 0) if "group" in arguments else (0, 1, 2)
    tensors = {"tensor": np.zeros(1), "object_list": [1]}
    entries = enter(name, {rank: {**tensors, **arguments} for rank in ranks})
    found = {
        entry.rank
        for entry in entries
        if any(operation.writes(param, entry) for param in operation.params)
    }
    assert found == written


def test_a_refused_root_is_nobodys(enter: Enter) -> None:
    operation = BY_NAME["gather"]
    assert isinstance(operation, Collective)
    entries = enter("gather", {rank: {"dst": 9} for rank in range(3)})
    assert [operation.is_root(entry) for entry in entries] == [False] * 3


@pytest.mark.parametrize(
    ("how", "error", "words", "label"),
    [
        ("kill", ProcessExit, "SIGKILL", "fault kill"),
        ("exit", ProcessExit, "exit 1", "fault exit"),
        ({"raise": "boom"}, ProgramError, "boom", "fault raise"),
    ],
)
def test_a_fault_ends_as_it_says(
    enter: Enter, how: object, error: type[Exception], words: str, label: str
) -> None:
    operation = BY_NAME["fault"]
    assert isinstance(operation, Local)
    (entry,) = enter("fault", {0: {"how": how}})
    assert operation.ends(entry)
    assert operation.label(entry) == label
    nobody: Any = None
    with pytest.raises(error, match=words):
        operation.run(nobody, entry)


def test_sleep_takes_the_time_that_it_states(enter: Enter) -> None:
    operation = BY_NAME["sleep"]
    assert isinstance(operation, Local)
    assert [
        operation.duration_s(entry)
        for entry in enter("sleep", {0: {"duration": 0.5}, 1: {"duration": None}})
    ] == [0.5, 0.0]
