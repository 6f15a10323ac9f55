"""The whole way, with an executor that does as the reference predicts."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from torch_scenarios.errors import LaunchError, ScenarioError, UnsupportedError
from torch_scenarios.limits import Account, Limits, OverdueError, account, open_account
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.pipeline.results import Outcome, Result, Selection, Shard
from torch_scenarios.pipeline.run import check, run
from torch_scenarios.pipeline.selection import keyword_matcher, load_all
from torch_scenarios.reference import simulate
from torch_scenarios.verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.model.trace import Trace
    from torch_scenarios.pipeline.results import Analysis

GOOD = """\
world_size: 2
tags: [TAG]
tensors: {x: [1, 2]}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [2, 4]}
"""
WRONG = GOOD.replace("[2, 4]", "[2, 5]")
INVALID = "world_size: two\nstep: []\n"


@dataclass
class Listening:
    """Keeps what the pipeline says."""

    total: int | None = None
    begun: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def begin(self, total: int) -> None:
        """Keep the total."""
        self.total = total

    def start(self, case: str) -> None:
        """Keep the case."""
        self.begun.append(case)

    def finish(self, result: Result) -> None:
        """Keep the result."""
        self.results.append(result)


@dataclass
class Obedient:
    """An executor whose runs are as predicted, or that raises what it is told for a case."""

    ran: list[str] = field(default_factory=list)
    raising: dict[str, BaseException] = field(default_factory=dict)
    started: int = 0
    ended: int = 0

    @contextmanager
    def launch(self) -> Iterator[Obedient]:
        """Count starts and ends."""
        self.started += 1
        try:
            yield self
        finally:
            self.ended += 1

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Do as predicted."""
        case = plan.scenario.case
        if case in self.raising:
            raise self.raising[case]
        self.ran.append(case)
        return replace(predicted, backend="gloo", diagnoses=(), open=())


def written(folder: Path, **files: str) -> Selection:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text.replace("TAG", name), encoding="utf-8")
    return Selection(paths=(str(folder),))


def went(
    selection: Selection, executor: Obedient, *, stop_at_failure: bool = False
) -> tuple[Outcome, Listening]:
    listening = Listening()
    outcome = run(selection, executor.launch, listening, stop_at_failure=stop_at_failure)
    return outcome, listening


def statuses(outcome: Outcome) -> dict[str, str]:
    return {result.case: result.verdict.status for result in outcome.results}


def test_scenarios_run_in_the_order_of_their_files(tmp_path: Path) -> None:
    executor = Obedient()
    outcome, listening = went(written(tmp_path, b=GOOD, a=GOOD), executor)
    assert executor.ran == ["a", "b"]
    assert outcome.exit_code == 0
    assert listening.total == 2
    assert listening.begun == ["a", "b"]
    assert (executor.started, executor.ended) == (1, 1)


def test_with_an_invalid_file_nothing_starts(tmp_path: Path) -> None:
    executor = Obedient()
    outcome, _ = went(written(tmp_path, good=GOOD, bad=INVALID), executor)
    assert executor.started == 0
    assert [result.verdict.status for result in outcome.results] == ["INVALID"]
    assert len(outcome.results[0].verdict.problems) > 1
    assert outcome.exit_code == 2


def test_a_value_that_cannot_be_computed_keeps_everything_from_running(tmp_path: Path) -> None:
    executor = Obedient()
    bad = GOOD.replace("[1, 2]", '"full(2, 1 // rank)"')
    outcome, _ = went(written(tmp_path, good=GOOD, bad=bad), executor)
    assert executor.ran == []
    assert outcome.exit_code == 2


def test_what_is_statically_wrong_is_not_run(tmp_path: Path) -> None:
    executor = Obedient()
    outcome, _ = went(written(tmp_path, good=GOOD, wrong=WRONG), executor)
    assert executor.ran == ["good"]
    assert statuses(outcome) == {"good": "PASSED", "wrong": "FAILED"}
    assert outcome.exit_code == 1


def test_a_run_stops_at_the_first_failure_where_asked(tmp_path: Path) -> None:
    executor = Obedient()
    outcome, _ = went(written(tmp_path, a=WRONG, b=GOOD), executor, stop_at_failure=True)
    assert statuses(outcome) == {"a": "FAILED"}


def test_what_a_backend_cannot_do_is_unsupported_and_not_passed(tmp_path: Path) -> None:
    executor = Obedient(raising={"a": UnsupportedError("no tags on this backend")})
    outcome, _ = went(written(tmp_path, a=GOOD, b=GOOD), executor)
    assert statuses(outcome) == {"a": "UNSUPPORTED", "b": "PASSED"}
    assert outcome.results[0].verdict.reason == "no tags on this backend"
    assert outcome.exit_code == 0


def test_a_launch_that_fails_is_inconclusive_and_the_rest_goes_on(tmp_path: Path) -> None:
    executor = Obedient(raising={"a": LaunchError("no port is free")})
    outcome, _ = went(written(tmp_path, a=GOOD, b=GOOD), executor)
    assert statuses(outcome) == {"a": "INCONCLUSIVE", "b": "PASSED"}
    assert outcome.exit_code == 3


def test_an_environment_without_hope_is_not_tried_for_every_scenario(tmp_path: Path) -> None:
    executor = Obedient(raising={case: LaunchError("no GPU here") for case in "abc"})
    outcome, _ = went(written(tmp_path, a=GOOD, b=GOOD, c=GOOD, d=GOOD, e=WRONG), executor)
    assert statuses(outcome) == {**dict.fromkeys("abcd", "INCONCLUSIVE"), "e": "FAILED"}
    assert [result.verdict.reason for result in outcome.results[:4]] == ["no GPU here"] * 4
    assert executor.ran == []


def test_failures_for_different_reasons_do_not_stop_the_attempts(tmp_path: Path) -> None:
    executor = Obedient(raising={case: LaunchError(f"reason {case}") for case in "abc"})
    outcome, _ = went(written(tmp_path, a=GOOD, b=GOOD, c=GOOD, d=GOOD), executor)
    assert statuses(outcome)["d"] == "PASSED"


def test_an_interrupt_keeps_the_results_so_far(tmp_path: Path) -> None:
    executor = Obedient(raising={"b": KeyboardInterrupt()})
    outcome, _ = went(written(tmp_path, a=GOOD, b=GOOD, c=GOOD), executor)
    assert statuses(outcome) == {"a": "PASSED"}
    assert outcome.interrupted
    assert outcome.exit_code == 130
    assert executor.ended == 1


def test_no_tensor_outlives_its_case(tmp_path: Path) -> None:
    outcome, listening = went(written(tmp_path, a=GOOD), Obedient())
    (kept,) = outcome.results
    for trace in (kept.verdict.predicted, kept.verdict.observed):
        assert trace is not None
        assert all(not rank.initial for rank in trace.ranks)
        assert all(not event.writes for rank in trace.ranks for event in rank.events)
    shown = listening.results[0].verdict.predicted
    assert shown is not None
    assert shown.ranks[0].events[0].writes


def test_check_starts_nothing_and_judges_everything(tmp_path: Path) -> None:
    listening = Listening()
    outcome = check(written(tmp_path, a=GOOD, b=WRONG, c=INVALID), listening)
    assert sorted(result.verdict.status for result in outcome.results) == [
        "FAILED",
        "INVALID",
        "PASSED",
    ]
    assert outcome.exit_code == 2


@pytest.mark.usefixtures("forkable")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_an_analysis_whose_process_is_killed_costs_one_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = os.getpid()

    def killed(
        scenario: Scenario, limits: Limits, backend: str | None, *, strict: bool, torch: str | None
    ) -> Analysis:
        if scenario.case == "case30" and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return analyse(scenario, limits, backend, strict=strict, torch=torch)

    monkeypatch.setattr("torch_scenarios.pipeline.run.analyse", killed)
    selection = written(tmp_path, **{f"case{number}": GOOD for number in range(40)})
    outcome = check(selection, Listening())
    lost = {"case30"} if len(os.sched_getaffinity(0)) > 1 else set()
    assert {case for case, status in statuses(outcome).items() if status != "PASSED"} == lost
    assert all("was killed" in (r.verdict.reason or "") for r in outcome.results if r.case in lost)


def test_a_check_of_many_files_is_that_of_each(tmp_path: Path) -> None:
    texts = {f"case{at:02}": (GOOD, WRONG, INVALID)[at % 3] for at in range(26)}
    whole = check(written(tmp_path, **texts), Listening())
    each = [check(Selection(paths=(str(p),)), Listening()) for p in sorted(tmp_path.iterdir())]
    assert sorted(map(_told, whole.results)) == sorted(_told(one.results[0]) for one in each)
    part = check(Selection(paths=(str(tmp_path),), shard=Shard(number=2, of=2)), Listening())
    assert len(part.results) == 9 + 8


@pytest.mark.usefixtures("forkable")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_cases_of_one_large_file_are_shared_by_all_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = {f"case{number}": GOOD for number in range(20)}
    many = f"matrix: {{n: {list(range(60))}}}\n{GOOD}"
    selection = written(tmp_path, **alone, many=many)
    found = check(selection, Listening())
    monkeypatch.setattr("torch_scenarios.pipeline.parallel.WORTHWHILE", 1000)
    one_by_one = check(selection, Listening())
    assert len(found.results) == 80
    assert list(map(_told, found.results)) == list(map(_told, one_by_one.results))
    assert found.exit_code == one_by_one.exit_code == 0


def _told(result: Result) -> tuple[str, str, tuple[str, ...]]:
    problems = (each.code for each in result.verdict.problems)
    return result.case, result.verdict.status, tuple(problems)


def test_tags_and_words_select_cases(tmp_path: Path) -> None:
    selection = written(tmp_path, sums=GOOD, others=GOOD)
    tagged = check(replace(selection, tags=("sums",)), Listening())
    assert list(statuses(tagged)) == ["sums"]
    worded = check(replace(selection, keyword="not sums and yaml"), Listening())
    assert list(statuses(worded)) == ["others"]
    assert check(replace(selection, keyword="nothing"), Listening()).exit_code == 5


def test_a_keyword_that_cannot_be_read_is_a_fault_of_the_command_line(tmp_path: Path) -> None:
    selection = replace(written(tmp_path, a=GOOD), keyword="a and")
    with pytest.raises(ScenarioError) as raised:
        check(selection, Listening())
    assert raised.value.problems[0].code == "bad_keyword"


@pytest.mark.parametrize(
    ("words", "text", "selected"),
    [
        ("sum", "all_sum", True),
        ("sum and all", "all_sum", True),
        ("sum and not all", "all_sum", False),
        ("sum or other", "other", True),
        ("not (sum or other)", "third", True),
        ("not not sum", "sum", True),
        ("SUM", "sum", True),
    ],
)
def test_keywords_combine_as_in_pytest(words: str, text: str, selected: bool) -> None:  # noqa: FBT001 -- a parameter of the table
    assert keyword_matcher(words)(text) is selected


@pytest.mark.parametrize("words", ["and", "a and", "(a", "a)", "a b", "not", "()"])
def test_a_keyword_that_makes_no_sense_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r"word|parenthesis|expected"):
        keyword_matcher(words)


def test_a_fault_of_the_analysis_costs_one_case_and_asks_to_be_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(plan: Plan, **bounds: object) -> Trace:
        if plan.scenario.name == "bad":
            raise KeyError(str(bounds.keys()))
        return simulate(plan)

    monkeypatch.setattr("torch_scenarios.reference.simulate", faulty)
    selection = written(tmp_path, bad=GOOD, good=GOOD)
    for outcome in (check(selection, Listening()), went(selection, Obedient())[0]):
        assert statuses(outcome) == {"bad": "INCONCLUSIVE", "good": "PASSED"}
        assert outcome.exit_code == 3
        verdict = outcome.results[0].verdict
        assert "report it" in (verdict.reason or "")
        assert "KeyError" in (verdict.reason or "")
        assert "Traceback" in verdict.notes[0]


def test_a_fault_of_the_reading_is_ours_and_costs_one_file_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*_: object, **__: object) -> list[Scenario]:
        raise RecursionError

    monkeypatch.setattr("torch_scenarios.pipeline.selection.load", faulty)
    executor = Obedient()
    outcome, _ = went(written(tmp_path, a=GOOD), executor)
    assert outcome.exit_code == 3
    assert executor.started == 0
    assert "its reading failed inside torch-scenarios" in str(outcome.results[0].verdict.reason)


def test_a_fault_of_the_verdict_costs_one_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*arguments: object, **options: object) -> Verdict:
        if len(arguments) > 2 and arguments[2] is not None:
            raise ZeroDivisionError
        return judge(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("torch_scenarios.pipeline.attempts.judge", faulty)
    outcome, _ = went(written(tmp_path, a=GOOD), Obedient())
    assert statuses(outcome) == {"a": "INCONCLUSIVE"}


@dataclass
class Moody(Obedient):
    """Does as predicted, but for the runs that are counted out: then everything hangs."""

    hangs: tuple[int, ...] = ()
    fails_to_start: tuple[int, ...] = ()

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Count the run."""
        trace = super().run(plan, predicted)
        if len(self.ran) in self.fails_to_start:
            reason = "no worker"
            raise LaunchError(reason)
        if len(self.ran) not in self.hangs:
            return trace
        stuck = tuple(
            replace(
                rank,
                ending="blocked",
                events=(*rank.events[:-1], replace(rank.events[-1], state="blocked", end_s=None)),
            )
            for rank in trace.ranks
        )
        return replace(trace, outcome="deadlock", ranks=stuck)


def repeats(folder: Path, executor: Obedient, times: int, text: str = GOOD) -> Outcome:
    return run(written(folder, a=text), executor.launch, Listening(), repeat=times)


def test_a_case_that_fails_now_and_then_is_flaky_and_no_pass(tmp_path: Path) -> None:
    executor = Moody(hangs=(2, 4))
    outcome = repeats(tmp_path, executor, 5)
    (result,) = outcome.results
    assert len(executor.ran) == 5
    assert result.verdict.status == "FLAKY"
    assert result.attempts == ("PASSED", "FAILED", "PASSED", "FAILED", "PASSED")
    assert "passed in 3 of 5 runs and failed in 2 (run 2, 4)" in (result.verdict.reason or "")
    assert result.verdict.findings
    assert outcome.exit_code == 1
    assert outcome.counts["FLAKY"] == 1


def test_a_case_that_always_comes_to_the_same_is_not_flaky(tmp_path: Path) -> None:
    assert repeats(tmp_path, Moody(), 3).results[0].verdict.status == "PASSED"
    assert repeats(tmp_path, Moody(hangs=(1, 2, 3)), 3).results[0].verdict.status == "FAILED"


def test_a_run_that_could_not_start_makes_a_repeated_case_inconclusive_not_flaky(
    tmp_path: Path,
) -> None:
    (result,) = repeats(tmp_path, Moody(fails_to_start=(2,)), 3).results
    assert result.verdict.status == "INCONCLUSIVE"
    assert result.attempts == ("PASSED", "INCONCLUSIVE")


def test_what_the_analysis_finds_wrong_is_not_repeated(tmp_path: Path) -> None:
    executor = Moody()
    (result,) = repeats(tmp_path, executor, 5, WRONG).results
    assert result.verdict.status == "FAILED"
    assert result.attempts == ()
    assert executor.ran == []


def test_a_flaky_case_stops_a_run_that_stops_at_the_first_failure(tmp_path: Path) -> None:
    executor = Moody(hangs=(2,))
    outcome = run(
        written(tmp_path, a=GOOD, b=GOOD),
        executor.launch,
        Listening(),
        repeat=2,
        stop_at_failure=True,
    )
    assert statuses(outcome) == {"a": "FLAKY"}
    assert outcome.cases == 2


def test_another_timeout_is_known_to_the_analysis(tmp_path: Path) -> None:
    text = """\
world_size: 2
timeout: 3s
tensors: {x: [1]}
steps:
  - {ranks: 0, sleep: 2s}
  - {all_reduce: {tensor: x}}
"""
    path = tmp_path / "late.yaml"
    path.write_text(text, encoding="utf-8")
    outcomes = []
    for timeout_s in (None, 0.5):
        selection = Selection(paths=(str(path),), timeout_s=timeout_s)
        (scenario,) = load_all(selection).scenarios
        predicted = analyse(scenario).predicted
        assert predicted is not None
        outcomes.append(predicted.outcome)
    assert outcomes == ["completes", "error"]


LONG = """\
world_size: 2
tensors: {x: [0]}
steps:
  - for: {i: "range(100000)"}
    steps:
      - compute: {x: "[sum([a * b for a in range(100) for b in range(100)])]"}
"""


def test_the_clock_ends_an_analysis_and_decides_nothing(tmp_path: Path) -> None:
    selection = written(tmp_path, first=GOOD, long=LONG, other=GOOD)
    outcome = check(replace(selection, limits=Limits(max_seconds=0)), Listening())
    assert statuses(outcome) == {"first": "PASSED", "long": "INCONCLUSIVE", "other": "PASSED"}
    (reason,) = [r.verdict.reason for r in outcome.results if r.verdict.reason]
    assert "--limit seconds=N" in reason
    assert outcome.exit_code == 3


#: what an analysis computes with: each look at the clock is after so much of it
UNTIL_THE_CLOCK = Limits(max_seconds=0)


@pytest.mark.parametrize("stage", ["read", "planned", "simulated", "judged"])
def test_time_that_is_over_is_no_verdict_about_a_file_and_costs_no_other_one_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    place, name = {
        "read": ("torch_scenarios.language.document", "scenarios"),
        "planned": ("torch_scenarios.model.groups", "plan"),
        "simulated": ("torch_scenarios.reference", "simulate"),
        "judged": ("torch_scenarios.verdict", "sections"),
    }[stage]
    module = importlib.import_module(place)
    real = getattr(module, name)

    def slow(*arguments: Any, **named: Any) -> Any:
        if "long.yaml" in repr(arguments):
            opened = account()
            assert opened is not None
            opened.spend(1 << 21)  # which makes it look at the clock
        return real(*arguments, **named)

    monkeypatch.setattr(module, name, slow)
    selection = replace(written(tmp_path, a=GOOD, long=GOOD, z=GOOD), limits=UNTIL_THE_CLOCK)
    executor = Obedient()
    outcome, listening = went(selection, executor)
    assert executor.ran == ["a", "z"]
    assert outcome.exit_code == 3
    assert listening.total == 3
    (late,) = [each for each in outcome.results if each.verdict.status != "PASSED"]
    assert (late.verdict.status, Path(late.file).name) == ("INCONCLUSIVE", "long.yaml")
    assert "too_slow" in str(late.verdict.reason)
    assert check(selection, Listening()).exit_code == 3


def test_a_machine_that_is_busy_with_other_things_takes_nothing_from_an_analysis() -> None:
    with open_account(Limits(max_seconds=1, max_work=1 << 62)) as opened:
        time.sleep(1.5)  # no processor time of this thread
        opened.spend(1 << 21)
        with pytest.raises(OverdueError):
            compute_on(opened)


def compute_on(opened: Account) -> None:
    while True:
        opened.spend(1 << 10)


def test_too_much_work_is_the_same_verdict_whatever_the_clock_says(tmp_path: Path) -> None:
    selection = written(tmp_path, long=LONG)
    told = {
        str(check(replace(selection, limits=limits), Listening()).results[0].verdict.problems)
        for limits in (
            Limits(max_work=50_000_000, max_seconds=1000),
            Limits(max_work=50_000_000, max_seconds=2000),
        )
    }
    assert len(told) == 1
    assert "too_much_work" in told.pop()


def test_a_session_without_time_reports_what_is_left_as_inconclusive(tmp_path: Path) -> None:
    selection = replace(
        written(tmp_path, first=GOOD, other=GOOD), limits=Limits(max_total_seconds=0)
    )
    outcome = check(selection, Listening())
    assert {result.verdict.status for result in outcome.results} == {"INCONCLUSIVE"}
    assert all("--limit total-seconds=N" in (each.verdict.reason or "") for each in outcome.results)
    assert outcome.exit_code == 3


def test_a_session_that_ends_during_a_run_keeps_the_results_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Obedient()
    monkeypatch.setattr("torch_scenarios.pipeline.run.session_over", lambda: bool(executor.ran))
    selection = written(tmp_path, first=GOOD, other=GOOD)
    outcome, _ = went(selection, executor)
    assert statuses(outcome) == {"first": "PASSED", "other": "INCONCLUSIVE"}
    assert executor.ran == ["first"]
    assert outcome.exit_code == 3


def test_ranks_that_would_hold_too_much_are_not_run(tmp_path: Path) -> None:
    large = GOOD.replace("[1, 2]", '"ones(2**20)"').replace("[2, 4]", '"full(2**20, 2)"')
    selection = replace(written(tmp_path, large=large), limits=Limits(max_run_bytes=2**20))
    executor = Obedient()
    outcome, _ = went(selection, executor)
    assert executor.ran == []
    assert outcome.exit_code == 2
    (problem,) = outcome.results[0].verdict.problems
    assert "--limit run-bytes=N" in problem.message
    assert check(selection, Listening()).exit_code == 0


#: programs whose ranks wait for each other in every way: all that is made of them is free at once
FREED = {
    "a collective": GOOD,
    "a wrong value": WRONG,
    "messages": """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - isend: {tensor: x, dst: "1 - rank"}
    as: s
  - recv: {tensor: y, src: "1 - rank"}
  - wait: s
  - compute: {y: "x + y + group_rank(world)"}
    expect: {y: ["2 + rank"]}
""",
    "several orders of arrival": """\
world_size: 3
tensors: {x: [rank], y: [0], z: [0]}
steps:
  - {ranks: "rank > 0", send: {tensor: x, dst: 0}}
  - {ranks: 0, recv: {tensor: y}}
  - {ranks: 0, recv: {tensor: z}}
expect: {diagnosis: message_race, y + z: {"rank == 0": [3], else: [0]}}
""",
    "calls of functions in any order": """\
world_size: 2
tensors: {count: [0]}
functions:
  add: {sets: {count: "count + 1"}, returns: count}
steps:
  - rpc_sync: {to: 0, func: add, output: now}
expect: {count: {"rank == 0": [2], else: [0]}}
""",
    "a ring that stands": """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
expect: {outcome: deadlock, diagnosis: [circular_wait, buffering_hazard]}
""",
}


@pytest.mark.parametrize("name", FREED)
def test_an_analysis_leaves_nothing_to_the_collector(name: str, tmp_path: Path) -> None:
    """What only the collector frees is not used again before it comes: a check takes longer."""
    path = tmp_path / "case.yaml"
    path.write_text(FREED[name], encoding="utf-8")
    for _ in range(2):  # the first one makes what is kept
        (scenario,) = load_all(Selection(paths=(str(path),))).scenarios
        gc.collect()
        gc.disable()
        try:
            status = analyse(scenario).verdict.status
            left = gc.collect()
        finally:
            gc.enable()
    assert (status, left) == ("FAILED" if name == "a wrong value" else "PASSED", 0)
