"""A step that torch.profiler traced on a GPU, next to a forecast of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli
from torch_scenarios.cost.profiled_step import read_steps
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
    (step,) = read_steps([{"traceEvents": EVENTS}])
    assert step.name == "ProfilerStep#2"
    assert (step.time, step.computing, step.exposed, step.idle) == (5000, 2000, 500, 2500)
    assert step.times == {"all_reduce": (1500,)}


def test_without_steps_all_of_it_counts_and_names_of_torch_are_known() -> None:
    kernels = [nccl(0, 10, "_allgather_base"), nccl(20, 10, "_reduce_scatter_base")]
    (step,) = read_steps([{"traceEvents": kernels}])
    assert (step.name, step.time, step.exposed) == ("all of it", 30, 20)
    assert set(step.times) == {"all_gather", "reduce_scatter"}


def test_older_kernels_say_by_their_name_what_they_do() -> None:
    names = ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ncclDevKernel_Generic(x)")
    (step,) = read_steps([{"traceEvents": [event(name, 0, 10) for name in names]}])
    assert step.times == {"all_reduce": (10,), "a collective without a name": (10,)}


def test_a_step_has_what_its_host_starts_however_far_it_is_ahead() -> None:
    def launch(at: float, number: int) -> dict[str, Any]:
        return event("cudaLaunchKernel", at, 5, "cuda_runtime", correlation=number)

    events = [  # two steps of 100 on the host; the GPU is a step behind, and needs 400 for each
        event("ProfilerStep#1", 0, 100, "user_annotation"),
        event("ProfilerStep#2", 100, 100, "user_annotation"),
        event("ProfilerStep#2", 500, 150, "gpu_user_annotation"),  # of one thread's kernels alone
        launch(10, 1),
        launch(20, 2),
        launch(110, 3),
        launch(120, 4),
        event("gemm", 40, 60, correlation=0),  # of a step before the trace
        event("gemm", 100, 300, correlation=1),
        event("ncclDevKernel_Sum", 400, 100, correlation=2, **{"Collective name": "allreduce"}),
        event("gemm", 500, 150, correlation=3),
        event("ncclDevKernel_Sum", 700, 200, correlation=4, **{"Collective name": "allreduce"}),
    ]
    (step,) = read_steps([{"traceEvents": events}])
    assert step.name == "ProfilerStep#2"
    assert (step.time, step.computing, step.exposed, step.idle) == (400, 150, 200, 50)


@pytest.mark.parametrize("trace", [{}, [], {"traceEvents": 3}, {"traceEvents": [{"ph": "X"}, 4]}])
def test_a_trace_without_kernels_is_refused(trace: Any) -> None:
    with pytest.raises(ScenarioError, match="no kernel of a GPU"):
        read_steps([trace])


def test_cost_shows_the_measured_step_next_to_its_forecast(tmp_path: Path) -> None:
    step, trace, told = tmp_path / "step.yaml", tmp_path / "trace.json", tmp_path / "told.json"
    step.write_text(STEP)
    trace.write_text(json.dumps({"traceEvents": EVENTS}))
    command = ["cost", str(step), "--topology", "h100-8x400g", "--against", str(trace)]
    shown = CliRunner().invoke(cli, command)
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert any(line.startswith("ProfilerStep#2 of the trace") for line in lines)
    words = {line.split("  ")[0]: line.split() for line in lines}
    assert words["computing"][1:] == ["2", "ms", "2", "ms", "1.00"]
    assert "nothing runs" in words
    # of one call, with the line of the file: forecast, median, longest, and 0.5 ms of it exposed
    (row,) = [line.split() for line in lines if line.startswith("all_reduce, line 5")]
    assert row[3:4] + row[-6:] == ["1", "1.5", "ms", "1.5", "ms", "500", "us"]
    assert "--against` once for each" in shown.output
    shown = CliRunner().invoke(cli, [*command, "--json", str(told)])
    found = json.loads(told.read_text())
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    (entry,) = found["cases"]
    assert entry["measured"]["exposed_us"] == 500
    (call,) = entry["measured"]["calls"]
    assert (call["kind"], call["measured_us"], call["exposed_us"]) == ("all_reduce", 1500, 500)


def test_a_trace_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    step, trace = tmp_path / "step.yaml", tmp_path / "trace.json"
    step.write_text(STEP)
    trace.write_text(json.dumps({"traceEvents": EVENTS})[:-20])
    command = ["cost", str(step), "--topology", "h100-8x400g", "--against", str(trace)]
    shown = CliRunner().invoke(cli, command)
    assert shown.exit_code == 2
    assert "not JSON" in shown.output


def sized(began: float, took: float, elements: int) -> dict[str, Any]:
    """Return a sum as newer versions of torch trace it, with its bytes and its ranks."""
    told: dict[str, Any] = {"Collective name": "allreduce"}
    told |= {"In msg nelems": elements, "Out msg nelems": elements}
    told |= {"dtype": "Float", "Group size": 8, "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"}
    return event("ncclDevKernel_Sum", began, took, **told)


def trace_of(rank: int, late: float = 0.0, *, by_kernels: bool = True) -> bytes:
    """Return the trace of a rank that comes late to both sums of a step, packed."""
    events = [event("ProfilerStep#7", 0, 9000, "gpu_user_annotation")]
    for began in (0, 4000):
        works = 1000 + (late if by_kernels else 0)
        events.append(event("gemm", began + (0 if by_kernels else late), works))
        come = began + 1000 + late
        events.append(sized(come, began + 2000 - come, 1048576))
    events.append(sized(8000, 100, 8))
    about = {"rank": rank, "world_size": 8}
    return gzip.compress(json.dumps({"traceEvents": events, "distributedInfo": about}).encode())


def against(folder: Path, *traces: bytes) -> tuple[str, Any]:
    step, told = folder / "step.yaml", folder / "told.json"
    step.write_text(STEP.replace("  - all_reduce", "  - all_reduce: {tensor: x}\n  - all_reduce"))
    command = ["cost", str(step), "--topology", "h100-8x400g", "--json", str(told)]
    for number, content in enumerate(traces):
        (folder / f"{number}.json.gz").write_bytes(content)
        command += ["--against", str(folder / f"{number}.json.gz")]
    shown = CliRunner().invoke(cli, command)
    if shown.exit_code:
        return shown.output, None
    found = json.loads(told.read_text())
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    return shown.output, found["cases"][0]["measured"]


@pytest.mark.parametrize(("by_kernels", "cause"), [(True, "its kernels"), (False, "its host")])
def test_the_rank_that_the_others_wait_for_is_named_with_its_reason(
    tmp_path: Path, *, by_kernels: bool, cause: str
) -> None:
    late = trace_of(3, late=600, by_kernels=by_kernels)
    shown, found = against(tmp_path, late, trace_of(0), trace_of(5))
    assert "straggler  rank 3: comes last to 2 of 3 calls" in shown
    # twice 0.6 ms of a step of 9 ms
    assert "each other rank waits 1.2 ms for it, 13% of the step" in shown
    assert cause in shown.splitlines()[-1]
    assert found["straggler"] == 3
    assert [(each["rank"], each["waits_us"]) for each in found["ranks"]] == [
        *((0, 1200), (3, 0)),
        (5, 1200),
    ]


def test_ranks_that_come_together_have_no_straggler(tmp_path: Path) -> None:
    shown, found = against(tmp_path, trace_of(0), trace_of(1))
    assert "straggler  none" in shown
    assert found["straggler"] is None


def test_calls_of_other_sizes_are_of_another_program(tmp_path: Path) -> None:
    shown, found = against(tmp_path, trace_of(0))
    assert len(found["calls"]) == 2
    assert "1 all_reduce is traced, and not forecast" in shown


@pytest.mark.parametrize(
    ("traces", "told"),
    [
        ((trace_of(1), trace_of(1)), "the traces are of the ranks 1, 1"),
        ((trace_of(1), gzip.compress(b"x")), "1.json.gz: it is not a trace"),
        ((b"\x1f\x8bno",), "not one that gzip packed"),
        ((trace_of(1)[:-9],), "the trace is cut off"),
    ],
)
def test_traces_that_cannot_be_compared_are_refused(
    tmp_path: Path, traces: tuple[bytes, ...], told: str
) -> None:
    shown, found = against(tmp_path, *traces)
    assert found is None
    assert told in " ".join(shown.split())


def test_traces_of_other_steps_are_refused() -> None:
    other = [event("ProfilerStep#3", 0, 100, "user_annotation"), event("gemm", 0, 10)]
    with pytest.raises(ScenarioError, match="no step in common"):
        read_steps([{"traceEvents": EVENTS}, {"traceEvents": other}])
