"""A step that torch.profiler traced on a GPU, next to a forecast of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli
from torch_scenarios.cost.picture import read_profile
from torch_scenarios.errors import ScenarioError

SCHEMA = Path(__file__).parents[2] / "schemas" / "cost.schema.json"

STEP = """\
world_size: 8
tensors: {x: {shape: 1048576, value: 1}}
steps:
  - compute: {time: 2ms, host: 3ms}
  - all_reduce: {tensor: x}
"""


def event(name: str, began: float, took: float, cat: str = "kernel", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": began, "dur": took, "args": args}


def nccl(began: float, took: float, name: str = "allreduce") -> dict[str, Any]:
    return event("ncclDevKernel_Sum", began, took, **{"Collective name": name})


#: two steps of 5 ms; in the last one 2 ms of kernels, a sum that is behind them for 1 ms, and alone
#: for 0.5 ms
EVENTS = [
    event("ProfilerStep#1", 0, 5000, "gpu_user_annotation"),
    event("ProfilerStep#2", 5000, 5000, "gpu_user_annotation"),
    event("ProfilerStep#2", 4000, 100, "user_annotation"),
    event("gemm", 100, 4000),
    event("gemm", 5000, 1000),
    event("gemm", 5500, 1000),
    event("Memcpy DtoH", 6500, 500, "gpu_memcpy"),
    nccl(6000, 1500),
    {"ph": "i", "name": "a mark", "ts": 1},
]


def test_the_last_step_is_divided_by_what_runs() -> None:
    step = read_profile({"traceEvents": EVENTS})
    assert step.name == "ProfilerStep#2"
    assert (step.time, step.computing, step.exposed, step.idle) == (5000, 2000, 500, 2500)
    assert step.calls == {"all_reduce": (1500,)}


def test_without_steps_all_of_it_counts_and_names_of_torch_are_known() -> None:
    kernels = [nccl(0, 10, "_allgather_base"), nccl(20, 10, "_reduce_scatter_base")]
    step = read_profile({"traceEvents": kernels})
    assert (step.name, step.time, step.exposed) == ("all of it", 30, 20)
    assert set(step.calls) == {"all_gather", "reduce_scatter"}


def test_older_kernels_say_by_their_name_what_they_do() -> None:
    names = ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ncclDevKernel_Generic(x)")
    step = read_profile({"traceEvents": [event(name, 0, 10) for name in names]})
    assert step.calls == {"all_reduce": (10,), "a collective without a name": (10,)}


@pytest.mark.parametrize("trace", [{}, [], {"traceEvents": 3}, {"traceEvents": [{"ph": "X"}, 4]}])
def test_a_trace_without_kernels_is_refused(trace: Any) -> None:
    with pytest.raises(ScenarioError, match="no kernel of a GPU"):
        read_profile(trace)


def test_cost_shows_the_measured_step_next_to_its_forecast(tmp_path: Path) -> None:
    step, trace, told = tmp_path / "step.yaml", tmp_path / "trace.json", tmp_path / "told.json"
    step.write_text(STEP)
    trace.write_text(json.dumps({"traceEvents": EVENTS}))
    command = ["cost", str(step), "--topology", "h100-8x400g", "--against", str(trace)]
    shown = CliRunner().invoke(cli, command)
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert "ProfilerStep#2 of the trace" in lines
    words = {line.split("  ")[0]: line.split() for line in lines}
    assert words["computing"][1:] == ["2", "ms", "2", "ms", "1.00"]
    assert words["all_reduce, median of 1"][-3:-1] == ["1.5", "ms"]
    assert "nothing runs" in words
    shown = CliRunner().invoke(cli, [*command, "--json", str(told)])
    found = json.loads(told.read_text())
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    (entry,) = found["cases"]
    assert entry["measured"]["exposed_us"] == 500


def test_a_trace_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    step, trace = tmp_path / "step.yaml", tmp_path / "trace.json"
    step.write_text(STEP)
    trace.write_text(json.dumps({"traceEvents": EVENTS})[:-20])
    command = ["cost", str(step), "--topology", "h100-8x400g", "--against", str(trace)]
    shown = CliRunner().invoke(cli, command)
    assert shown.exit_code == 2
    assert "not JSON" in shown.output
