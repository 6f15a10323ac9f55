"""What a run observes: values, events, times, and the world that torch really made."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import torch_scenarios
from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.limits import Limits, session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import Trace

pytestmark = pytest.mark.torch

SUM = """\
world_size: 2
tensors: {x: "full(3, rank + 1)"}
steps:
  - all_reduce: {tensor: x}
"""


def test_values_before_and_after_a_step_are_told(observe: Callable[[str], Trace]) -> None:
    trace = observe(SUM)
    assert trace.outcome == "completes"
    assert [rank.initial["x"].tolist() for rank in trace.ranks] == [[1, 1, 1], [2, 2, 2]]
    assert [rank.events[0].writes["x"].tolist() for rank in trace.ranks] == [[3, 3, 3]] * 2
    assert trace.environment["backend"] == trace.backend == "gloo"


def test_the_public_way_starts_and_ends_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "sum.yaml").write_text(SUM, encoding="utf-8")
    (scenario,) = torch_scenarios.load(tmp_path / "sum.yaml")
    plan = torch_scenarios.plan(scenario)
    predicted = torch_scenarios.simulate(plan)
    observed = torch_scenarios.launch(plan, predicted)
    assert torch_scenarios.judge(scenario, predicted, observed).status == "PASSED"


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8, 16])
def test_every_world_size_runs(observe: Callable[[str], Trace], world_size: int) -> None:
    trace = observe(SUM.replace("world_size: 2", f"world_size: {world_size}"))
    total = world_size * (world_size + 1) / 2
    assert [rank.events[0].writes["x"].tolist() for rank in trace.ranks] == [
        [total] * 3
    ] * world_size


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "complex64", "bool", "uint16"])
def test_dtypes_that_numpy_lacks_or_has_arrive_as_they_are(
    observe: Callable[[str], Trace], dtype: str
) -> None:
    trace = observe(
        f"""\
world_size: 2
tensors:
  x: {{dtype: {dtype}, value: [1, 0]}}
steps:
  - {{ranks: 0, send: {{tensor: x, dst: 1}}}}
  - {{ranks: 1, recv: {{tensor: x, src: 0}}}}
"""
    )
    received = trace.ranks[1].events[0].writes["x"]
    assert str(received.dtype) == dtype
    assert received.astype(np.complex64).tolist() == [1, 0]


def test_a_tensor_of_many_pieces_arrives_whole(observe: Callable[[str], Trace]) -> None:
    trace = observe(
        """\
world_size: 2
tensors: {x: "arange(3000000)"}
steps:
  - {ranks: 0, compute: {x: "x + 1"}}
  - broadcast: {tensor: x, src: 0}
"""
    )
    assert np.array_equal(
        trace.ranks[1].events[0].writes["x"], np.arange(1, 3000001, dtype=np.float32)
    )


def test_asynchronous_work_writes_when_it_is_waited_for(observe: Callable[[str], Trace]) -> None:
    trace = observe(
        """\
world_size: 2
tensors: {x: "full(1, rank + 1)"}
steps:
  - {all_reduce: {tensor: x, async_op: true}, as: work}
  - wait: work
"""
    )
    started, waited = trace.ranks[0].events
    assert started.writes == {}
    assert waited.writes["x"].tolist() == [3]


def test_torch_itself_answers_for_ranks_in_groups(observe: Callable[[str], Trace]) -> None:
    trace = observe(
        """\
world_size: 4
groups:
  odd: [1, 3]
  pair: {partition: [[0, 1], [2, 3]]}
  node: {size: 2}
  mesh: {shape: [2, 2], dims: [dp, tp]}
steps:
  - expect:
      "group_rank(odd)": {1: 0, 3: 1, else: -1}
      "group_size(odd)": {odd: 2, else: 0}
      "group_ranks(pair)": {"rank < 2": [0, 1], else: [2, 3]}
      "group_ranks(node)": {"rank < 2": [0, 1], else: [2, 3]}
      "group_ranks(mesh.dp)": {"rank % 2 == 0": [0, 2], else: [1, 3]}
      "group_ranks(mesh.tp)": {"rank < 2": [0, 1], else: [2, 3]}
"""
    )
    first: dict[str, Any] = dict(trace.ranks[0].events[0].observed)
    last: dict[str, Any] = dict(trace.ranks[3].events[0].observed)
    assert first["group_rank(odd)"] == -1
    assert first["group_size(odd)"] == 0
    assert last["group_rank(odd)"] == 1
    assert last["group_ranks(mesh.dp)"] == [1, 3]
    assert last["group_ranks(node)"] == [2, 3]


def test_an_unsorted_group_keeps_its_order(observe: Callable[[str], Trace]) -> None:
    trace = observe(
        """\
world_size: 3
groups: {g: {ranks: [2, 0], sort_ranks: false}}
steps:
  - expect: {"group_ranks(g)": {1: [], else: [2, 0]}}
"""
    )
    assert trace.ranks[2].events[0].observed["group_ranks(g)"] == [2, 0]


def test_times_count_from_the_beginning_on_that_rank(observe: Callable[[str], Trace]) -> None:
    trace = observe(
        """\
world_size: 2
steps:
  - {ranks: 1, sleep: 0.2s}
  - barrier: {}
"""
    )
    waits, sleeps = (rank.events[-1] for rank in trace.ranks)
    assert waits.end_s is not None
    # the ranks do not begin at one moment, so that rank 0 may wait for less than rank 1 sleeps
    assert sleeps.start_s >= 0.2 > waits.start_s
    assert waits.end_s > waits.start_s


def test_workers_stay_warm_and_isolated_ones_do_not(
    launcher: Launcher, observe: Callable[[str], Trace], analysed: Callable[[str], Any]
) -> None:
    observe(SUM)
    before = launcher.processes()
    observe(SUM)
    assert launcher.processes() == before
    with Launcher(LaunchOptions(isolate=True)) as isolating:
        analysed(SUM).run_on(isolating)
        first = set(isolating.processes())
        analysed(SUM).run_on(isolating)
        assert len(set(isolating.processes()) & first) == 1  # the host


def test_the_near_side_never_imports_torch(tmp_path: Path) -> None:
    path = tmp_path / "sum.yaml"
    path.write_text(SUM, encoding="utf-8")
    program = f"""\
import sys
from torch_scenarios.cli import main
sys.argv = ["scenario", "run", {str(path)!r}]
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_scenario_that_takes_too_long_is_given_up_and_the_next_one_runs(tmp_path: Path) -> None:
    slow = planned(tmp_path, "slow", "world_size: 2\nsteps: [sleep: 3000s]\n")
    quick = planned(tmp_path, "quick", SUM)
    with Launcher(LaunchOptions()) as launcher:
        launcher.run(quick, torch_scenarios.simulate(quick))
        with session(Limits(max_total_seconds=2)), pytest.raises(LaunchError) as raised:
            launcher.run(slow, torch_scenarios.simulate(slow))
        assert "--limit total-seconds=N" in str(raised.value)
        assert launcher.run(quick, torch_scenarios.simulate(quick)).outcome == "completes"


def planned(folder: Path, name: str, text: str) -> Plan:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return torch_scenarios.plan(scenario)
