"""Cases side by side on several launches: the same results in the same order as one by one."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import backends
from torch_scenarios.limits import Limits
from torch_scenarios.pipeline.results import FinalReport, Outcome, Selection
from torch_scenarios.pipeline.run import run
from torch_scenarios.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import Trace
    from torch_scenarios.pipeline.results import Result

#: seconds after which a test that waits has failed
LONG_S = 60.0

GOOD = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [2, 4]}
"""
WRONG = GOOD.replace("[2, 4]", "[2, 5]")


@dataclass
class Machine:
    """What the launches of a run share: which cases run, and what each of them waits for.

    A case in `after` ends once those that it names have ended; one in `raising` raises; one in
    `endless` ends when its launch is abandoned; one in `hanging` is stuck at its last step.
    """

    after: dict[str, tuple[str, ...]] = field(default_factory=dict)
    raising: dict[str, BaseException] = field(default_factory=dict)
    endless: frozenset[str] = frozenset()
    hanging: frozenset[str] = frozenset()
    running: set[str] = field(default_factory=set)
    tried: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    together: list[frozenset[str]] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def launch(self) -> Iterator[Launch]:
        """Start one more."""
        made = Launch(self)
        self.launches.append(made)
        try:
            yield made
        finally:
            made.left = True


@dataclass
class Launch:
    """Does as predicted."""

    machine: Machine
    left: bool = False
    abandoned: bool = False

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Wait for what the case waits for."""
        machine, case = self.machine, plan.scenario.case
        machine.tried.append(case)
        if case in machine.raising:
            raise machine.raising[case]
        needed = machine.after.get(case, ())
        with machine.changed:
            machine.running.add(case)
            machine.together.append(frozenset(machine.running))
            machine.changed.notify_all()
            met = machine.changed.wait_for(
                lambda: (
                    self.abandoned
                    or (case not in machine.endless and {*needed} <= {*machine.ended})
                ),
                LONG_S,
            )
            machine.running.discard(case)
            machine.ended.append(case)
            machine.changed.notify_all()
        if self.abandoned or not met:
            message = "it was abandoned"
            raise LaunchError(message)
        trace = replace(predicted, backend="gloo", diagnoses=(), open=())
        return _stuck(trace) if case in machine.hanging else trace

    def abandon(self) -> None:
        """End what runs."""
        with self.machine.changed:
            self.abandoned = True
            self.machine.changed.notify_all()


def _stuck(trace: Trace) -> Trace:
    """Return a trace whose ranks do not leave their last step."""
    ranks = tuple(
        replace(
            rank,
            ending="blocked",
            events=(*rank.events[:-1], replace(rank.events[-1], state="blocked", end_s=None)),
        )
        for rank in trace.ranks
    )
    return replace(trace, outcome="deadlock", ranks=ranks)


class LastBeat(FinalReport):
    """Keeps what began and what was reported, as one story."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.story: list[str] = []

    def start(self, case: str) -> None:
        """Keep it."""
        self.story.append(f"{case} begins")

    def finish(self, result: Result) -> None:
        """Keep it."""
        self.story.append(f"{result.case} {result.verdict.status}")


def went(
    folder: Path,
    machine: Machine,
    files: dict[str, str],
    *,
    jobs: int = 2,
    limits: Limits | None = None,
    stop_at_failure: bool = False,
    repeat: int = 1,
) -> tuple[Outcome, LastBeat]:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    heard = LastBeat()
    selection = Selection(paths=(str(folder),), limits=limits or Limits())
    outcome = run(
        selection,
        machine.launch,
        heard,
        stop_at_failure=stop_at_failure,
        repeat=repeat,
        jobs=jobs,
    )
    assert all(each.left for each in machine.launches)
    assert not [each for each in threading.enumerate() if each.name.startswith("launch ")]
    return outcome, heard


def statuses(outcome: Outcome) -> dict[str, str]:
    return {result.case: result.verdict.status for result in outcome.results}


def test_a_case_that_takes_long_holds_no_other_up_and_the_order_is_kept(tmp_path: Path) -> None:
    machine = Machine(after={"a": ("b", "c", "d")})
    outcome, heard = went(tmp_path, machine, dict.fromkeys("abcd", GOOD))
    assert machine.ended == ["b", "c", "d", "a"]
    assert [result.case for result in outcome.results] == ["a", "b", "c", "d"]
    assert outcome.exit_code == 0
    assert heard.story == [
        *(f"{case} begins" for case in "abcd"),
        *(f"{case} PASSED" for case in "abcd"),
    ]


def test_a_result_is_reported_as_soon_as_those_before_it_are(tmp_path: Path) -> None:
    machine = Machine(after={"b": ("c",)})
    _, heard = went(tmp_path, machine, dict.fromkeys("abcd", GOOD))
    assert heard.story.index("a PASSED") < heard.story.index("c begins")
    assert heard.story[-3:] == ["b PASSED", "c PASSED", "d PASSED"]


def test_there_are_no_more_launches_than_cases(tmp_path: Path) -> None:
    machine = Machine()
    went(tmp_path, machine, dict.fromkeys("ab", GOOD), jobs=8)
    assert len(machine.launches) == 2


@pytest.mark.parametrize("limits", [Limits(max_ranks=3), Limits(max_run_bytes=90)])
def test_cases_together_stay_within_the_bounds_of_one(tmp_path: Path, limits: Limits) -> None:
    machine = Machine()
    outcome, _ = went(tmp_path, machine, dict.fromkeys("abcd", GOOD), jobs=4, limits=limits)
    assert outcome.exit_code == 0, outcome
    assert machine.together == [frozenset(case) for case in "abcd"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_comes_after_the_first_failure_is_not_reported(tmp_path: Path, jobs: int) -> None:
    # side by side b fails while a runs, and c may run as well
    machine = Machine(after={"a": ("b",)} if jobs > 1 else {}, hanging=frozenset({"b"}))
    files = dict.fromkeys("abcd", GOOD)
    outcome, heard = went(tmp_path, machine, files, jobs=jobs, stop_at_failure=True)
    assert statuses(outcome) == {"a": "PASSED", "b": "FAILED"}
    assert outcome.not_run == 2
    assert heard.story[-1] == "b FAILED"


def test_a_failure_that_stops_the_run_ends_what_runs(tmp_path: Path) -> None:
    machine = Machine(endless=frozenset({"b"}))
    files = {"a": WRONG, "b": GOOD, "c": GOOD}
    outcome, heard = went(tmp_path, machine, files, stop_at_failure=True)
    assert statuses(outcome) == {"a": "FAILED"}
    assert "c begins" not in heard.story


def test_an_interrupt_ends_what_runs_and_keeps_the_results_so_far(tmp_path: Path) -> None:
    machine = Machine(endless=frozenset({"b"}), raising={"c": KeyboardInterrupt()})
    outcome, _ = went(tmp_path, machine, dict.fromkeys("abcd", GOOD))
    assert statuses(outcome) == {"a": "PASSED"}
    assert outcome.exit_code == 130
    assert any(each.abandoned for each in machine.launches)


def test_a_launch_that_fails_costs_one_case(tmp_path: Path) -> None:
    machine = Machine(raising={"b": LaunchError("no port is free")})
    outcome, _ = went(tmp_path, machine, dict.fromkeys("abcd", GOOD))
    assert statuses(outcome) == {**dict.fromkeys("acd", "PASSED"), "b": "INCONCLUSIVE"}


def test_an_environment_without_hope_is_not_tried_for_every_scenario(tmp_path: Path) -> None:
    names = "abcdefgh"
    machine = Machine(raising={name: LaunchError("no port is free") for name in names})
    outcome, _ = went(tmp_path, machine, dict.fromkeys(names, GOOD))
    assert statuses(outcome) == dict.fromkeys(names, "INCONCLUSIVE")
    assert len(machine.tried) <= 4  # three that count, and one that ran beside the last of them


def test_verdicts_are_found_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judging: list[str] = []
    at_once: list[int] = []

    def judge(plan: Plan, *_: object, **__: object) -> Verdict:
        judging.append(plan.scenario.case)
        time.sleep(0.01)  # another one would begin meanwhile
        at_once.append(len(judging))
        judging.remove(plan.scenario.case)
        return Verdict(status="PASSED")

    files = dict.fromkeys("abcdef", GOOD)
    machine = Machine()
    monkeypatch.setattr("torch_scenarios.pipeline.attempts.judge", judge)
    outcome, _ = went(tmp_path, machine, files, jobs=4)
    assert at_once == [1] * 2 * len(outcome.results)  # once analysed, once run


def test_a_repeated_case_stays_on_one_launch(tmp_path: Path) -> None:
    machine = Machine()
    outcome, _ = went(tmp_path, machine, dict.fromkeys("ab", GOOD), repeat=3)
    assert sorted(machine.ended) == [*"aaabbb"]
    assert [result.attempts for result in outcome.results] == [("PASSED",) * 3] * 2


# -------------------------------------------------------------------------------------------------
# The option.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a project with one case."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "p"\n')
    (tmp_path / "good.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asking(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of launches that each run asks for; none starts."""
    asked: list[int] = []

    def conducted(options: dict[str, Any], *_: object) -> Outcome:
        asked.append(options["jobs"])
        return Outcome(results=())

    monkeypatch.setattr("torch_scenarios.cli.answers.run.run_selected", conducted)
    return asked


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-j", "0"], "'0' is neither a number from 1 to 64 nor `auto`"),
        (["-j", "many"], "'many' is neither a number"),
        (["-j", "65"], "'65' is neither a number"),
        (["-j2", "--nnodes", "2"], "the launch of several nodes is the only one"),
        (["-j2", "--netns", "2"], "the launch of several nodes is the only one"),
        (["-j2", "--backend", "nccl"], "launches would share the GPUs"),
        (["-j2", "--watch"], "--jobs is for a run that ends"),
    ],
)
def test_jobs_that_cannot_be_are_refused(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(cli, ["run", *arguments])
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.output.split())


def test_where_a_gpu_may_be_one_launch_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "may_be_here", lambda: True)
    asked = asking(monkeypatch)
    refused = CliRunner().invoke(cli, ["run", "-j2"])
    assert refused.exit_code == 2
    assert "--backend gloo" in refused.output
    (folder / "pyproject.toml").write_text("[tool.scenario]\njobs = 2\n")
    CliRunner().invoke(cli, ["run"])
    CliRunner().invoke(cli, ["run", "-j2", "--backend", "gloo"])
    assert asked == [1, 2]


def test_a_project_asks_for_no_more_launches_than_cores(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asking(monkeypatch)
    for cores, text, arguments in (
        (3, "jobs = 9", []),
        (3, 'jobs = "auto"', []),
        (9, 'jobs = "auto"', []),
        (3, "", ["--jobs", "9"]),
    ):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        (folder / "pyproject.toml").write_text(f"[tool.scenario]\n{text}\n")
        CliRunner().invoke(cli, ["run", *arguments])
    assert asked == [3, 1, 2, 9]
