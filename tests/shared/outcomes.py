"""An outcome with a result of every kind, as reports hear it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judging import checked, hanging, on_rank, raising, ran, writing
from msgspec.structs import replace

from torch_scenarios.errors import Mark, Problem, Source
from torch_scenarios.pipeline.results import Outcome, Result, Shard
from torch_scenarios.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.trace import Trace
    from torch_scenarios.pipeline.results import Report

SUM = """\
world_size: 3
tensors: {x: "full(3, rank + 1)"}
steps:
  - name: sum of all
    all_reduce: {tensor: x}
    expect: {x: [6, 6, 6]}
"""
STUCK = """\
world_size: 2
tensors: {x: [1, 2], y: [0, 0]}
steps:
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
"""


def crashing(rank: int) -> object:
    """Let the process of one rank end by a signal."""

    def changed(trace: Trace) -> Trace:
        ended = on_rank(rank, lambda found: replace(found, ending="died", died="SIGSEGV"))
        return replace(ended(trace), outcome="crash")

    return changed


def invalid() -> Verdict:
    """Return the verdict on a file that is no scenario."""
    mark = Mark(source=Source(path="bad.yaml", text="step: 1\n"), line=1, column=1)
    problem = Problem(code="unknown_key", message="unknown key `step`", mark=mark, hint="`steps`")
    return Verdict(status="INVALID", problems=(problem,))


def every_kind(folder: Path) -> Outcome:
    """Return results of every kind; those that ran say so with a backend and a version."""
    verdicts = {
        "passed": ran(SUM, folder, _at_home),
        "wrong_expectation": checked(SUM.replace("[6, 6, 6]", "[6, 7, 6]"), folder),
        "deadlock": checked(STUCK, folder),
        "wrong_value": ran(SUM, folder, _at_home, writing(0, 2, "x", [3, 3, 3])),
        "hang": ran(SUM, folder, _at_home, hanging(0, 1)),
        "crash": ran(SUM, folder, _at_home, crashing(1)),  # type: ignore[arg-type]
        "error": ran(SUM, folder, _at_home, raising(0, 1, "timeout", "too late")),
        "unsupported": Verdict(status="UNSUPPORTED", reason="no GPU # at all"),
        "environment": Verdict(status="INCONCLUSIVE", reason="no worker", notes=("a", "b")),
        "now_and_then": Verdict(status="FLAKY", reason="it passed in 1 of 2 runs"),
    }
    results = [
        Result(
            file="some/sum.yaml",
            case=f"sum[n={name}]",
            verdict=verdict,
            duration_s=0.25 * at,
            description="Sums <b>a lot</b>.",
            tags=("a", "b"),
            world_size=2 if name == "deadlock" else 3,
            attempts=("PASSED", "FAILED") if verdict.status == "FLAKY" else (),
        )
        for at, (name, verdict) in enumerate(verdicts.items())
    ]
    results.append(Result(file="bad.yaml", case="bad.yaml", verdict=invalid()))
    return Outcome(
        results=tuple(results),
        duration_s=3.5,
        cases=10,
        selected=22,
        shard=Shard(number=2, of=2),
        seed=7,
        repeat=2,
        notes=("in the order of --shuffle 7",),
    )


def _at_home(trace: Trace) -> Trace:
    return replace(trace, environment={"torch": "2.13.0+cpu", "world_s": "0.1"})


def told(report: Report, outcome: Outcome) -> None:
    """Let a report hear a whole run."""
    report.begin(len(outcome.results))
    for result in outcome.results:
        report.finish(result)
    report.end(outcome)
