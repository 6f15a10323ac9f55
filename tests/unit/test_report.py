"""What a person reads: places, grids, errors, summaries; what other programs read."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from judging import checked, hanging, ran, writing
from msgspec.structs import replace

import torch_scenarios
from torch_scenarios.errors import Mark, Problem, Source
from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.report import json as json_report
from torch_scenarios.report.operations import overview, page
from torch_scenarios.report.terminal import TerminalReport, summary_lines
from torch_scenarios.report.text import details, grid_lines, headline
from torch_scenarios.verdict import Verdict
from torch_scenarios.verdict.comparison import WantedValue, differences

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WRONG = """\
world_size: 3
tensors:
  x: "full(3, rank + 1)"
steps:
  - name: sum of all
    all_reduce: {tensor: x, op: sum}
    expect:
      x: {0: [6, 6, 6], else: [6, 7, 6]}
"""


def result(verdict: Verdict) -> Result:
    return Result(file="some/folder/sum.yaml", case="sum", verdict=verdict, duration_s=0.0123)


def text_of(verdict: Verdict) -> str:
    return "\n".join(line.text for line in (headline(result(verdict)), *details(result(verdict))))


def outcome(*verdicts: Verdict, interrupted: bool = False) -> Outcome:
    results = tuple(result(verdict) for verdict in verdicts)
    return Outcome(results=results, interrupted=interrupted, duration_s=1.5)


def printed(*verdicts: Verdict, durations: int = 0, **options: Any) -> str:
    file = io.StringIO()
    report = TerminalReport(file, durations=durations, **options)
    report.begin(len(verdicts))
    for verdict in verdicts:
        report.finish(result(verdict))
    report.end(outcome(*verdicts))
    return file.getvalue()


def test_a_log_names_what_did_not_pass_alone(tmp_path: Path) -> None:
    passed, failed = Verdict(status="PASSED"), checked(WRONG, tmp_path)
    assert printed(passed) == "1 passed in 1.50 s\n"
    shown = printed(*[passed] * 19, failed)
    assert shown.startswith("FAILED ")
    assert "PASSED " not in shown
    assert "19 passed, 1 failed" in shown
    assert printed(*[passed] * 19, failed, verbose=True).count("PASSED ") == 19


class Bar:
    """A progress bar that keeps what it shows."""

    def __init__(self) -> None:
        """Show nothing."""
        self.shown: list[tuple[str, int]] = [("", 0)]

    def name(self, case: str) -> None:
        """Keep the name."""
        self.shown.append((case, self.shown[-1][1]))

    def reach(self, count: int) -> None:
        """Keep the count."""
        self.shown.append((self.shown[-1][0], count))

    def stop(self) -> None:
        """Be silent."""


def test_the_bar_counts_what_is_done_and_names_what_the_next_report_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sum.yaml"
    path.write_text("world_size: 2\nmatrix: {n: [1, 2, 3, 4]}\nsteps: [{barrier: {}}]\n")
    cases = torch_scenarios.load(path)
    bar = Bar()
    report = TerminalReport(io.StringIO(), launches=2)
    monkeypatch.setattr(report, "_bar", bar)

    def done(at: int) -> None:
        report.finish(replace(result(Verdict(status="PASSED")), case=cases[at].case))

    for at in (0, 1, 2, 3):  # the first case takes long; the others follow each other
        report.start(cases[at].case)
    assert bar.shown[-1] == ("sum[n=1] and 1 more (torch is imported)", 2)
    done(0)
    done(1)
    assert bar.shown[-1] == ("sum[n=3] and 1 more (torch is imported)", 2)
    done(2)
    done(3)
    assert bar.shown[-1][1] == 4


def test_a_failure_shows_place_caret_grid_errors_and_a_guess(tmp_path: Path) -> None:
    verdict = checked(WRONG, tmp_path)
    assert (
        text_of(verdict).replace(str(tmp_path), "DIR")
        == """\
FAILED       some/folder/sum.yaml::sum  12 ms
  error[value_differs]: your expectation is wrong: x differs in 1 of 3 elements on ranks 1 and 2
    --> DIR/judged.yaml:8:31
              x: {0: [6, 6, 6], else: [6, 7, 6]}
                                      ^^^^^^^^^
    at step `sum of all`
    by rank and index, expected≠what the semantics give:
      rank │ [0]  [1]  [2]
       1-2 │   6  7≠6    6
    largest error: 1 absolute, 0.142857 relative
  found by the analysis; no process was started"""
    )


def test_a_deviating_backend_shows_what_the_run_gave(tmp_path: Path) -> None:
    text = WRONG.replace("[6, 7, 6]", "[6, 6, 6]")
    shown = text_of(ran(text, tmp_path, writing(0, 2, "x", [3, 3, 3])))
    assert "the backend deviates: x differs in 3 of 3 elements on rank 2" in shown
    assert "expected≠what the run gave" in shown
    assert "2 │ 6≠3  6≠3  6≠3" in shown
    assert "no process was started" not in shown


def test_a_hang_shows_who_stands_where(tmp_path: Path) -> None:
    text = WRONG.replace("[6, 7, 6]", "[6, 6, 6]")
    shown = " ".join(text_of(ran(text, tmp_path, hanging(0, 1))).split())
    assert "the run's outcome is deadlock (rank 1 is blocked in `sum of all`)" in shown
    assert "rank 1 hangs where nothing should block it" in shown


def difference_lines(expected: Any, got: Any) -> Sequence[str]:
    return grid_lines(differences(0, WantedValue(value=np.asarray(expected)), np.asarray(got)))


STUCK = """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1}}
  - {ranks: 1, send: {tensor: x, dst: 0}}
  - recv: {tensor: y, src: "1 - rank"}
"""


def test_each_step_of_a_finding_has_its_place_in_a_form_that_terminals_link(
    tmp_path: Path,
) -> None:
    verdict = checked(STUCK, tmp_path)
    (finding,) = verdict.findings
    lines = text_of(verdict).splitlines()
    at = lines.index(f"    --> {tmp_path}/judged.yaml:4:16")
    assert lines[at + 3 : at + 6] == [
        f"    {tmp_path}/judged.yaml:4: rank 0 waits in `send to 1` for rank 1 to receive",
        f"    {tmp_path}/judged.yaml:5: rank 1 waits in `send to 0` for rank 0 to receive",
        "    neither can move",
    ]
    notes = json_report.document(outcome(verdict))["results"][0]["problems"][0]["notes"]
    assert [note["line"] for note in notes] == [4, 5, None]
    assert notes[0]["message"] == "rank 0 waits in `send to 1` for rank 1 to receive"
    assert "(judged.yaml:4)" in finding.because[0]


def test_the_only_place_of_a_finding_is_said_once(tmp_path: Path) -> None:
    text = "world_size: 2\ntensors: {x: [1]}\nsteps:\n  - {ranks: 0, all_reduce: {tensor: x}}\n"
    lines = text_of(checked(text, tmp_path)).splitlines()
    assert "    rank 1 never enters `all_reduce`, where rank 0 waits" in lines


def test_a_grid_shows_the_elements_at_both_ends_and_counts_them_all() -> None:
    lines = difference_lines(np.zeros(100), np.ones(100))
    assert lines == [
        "rank │ [0]  [1]  [2]  ...  [97]  [98]  [99]",
        "   0 │ 0≠1  0≠1  0≠1  ...   0≠1   0≠1   0≠1",
        "100 elements differ in all",
    ]


def test_a_grid_fits_a_terminal() -> None:
    lines = difference_lines(np.full(8, 123456.5), np.full(8, 987654.5))
    assert all(len(line) <= 88 for line in lines)
    assert lines[0].split()[2:] == ["[0]", "[1]", "...", "[6]", "[7]"]


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_report_is_as_wide_as_its_terminal(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """\
world_size: 4
tensors: {x: "arange(8) * 12345.5 + rank", y: "arange(100) * 12345.5 + rank"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: "arange(8) * 1.25"}
  - all_reduce: {tensor: y, op: max}
    expect: {y: "arange(100) * 1.25 + rank"}
"""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(tmp_path)
    lines = printed(checked(text, tmp_path)).splitlines()
    assert all(len(line) <= columns for line in lines if not line.lstrip().startswith("-->"))
    whole = [line for line in lines if " │ [0] " in line and "..." not in line]
    assert len(whole) == (columns >= 100)


def rows_of(numbers: Sequence[float], world_size: int | None = None) -> list[str]:
    found = [
        each
        for rank, number in enumerate(numbers)
        for each in differences(rank, WantedValue(value=np.zeros(1)), np.full(1, number))
    ]
    return [line.partition(" │")[0].strip() for line in grid_lines(found, world_size)[1:]]


def test_ranks_with_equal_rows_share_one() -> None:
    assert rows_of([1, 1, 1]) == ["0-2"]
    assert rows_of([1, 1, 1], 3) == ["all ranks"]
    assert rows_of([1, 1, 2, 1], 4) == ["0-1, 3", "2"]
    assert rows_of([1, 2, 1, 2, 1, 2, 1, 2]) == ["0, 2, 4, ...", "1, 3, 5, ..."]
    many = rows_of([float(rank + 1) for rank in range(20)])
    assert many[-2:] == ["... and 12 more ranks", "20 elements differ in all"]


def test_a_grid_names_indices_in_several_dimensions() -> None:
    lines = difference_lines(np.zeros((2, 2)), np.asarray([[0, 0], [0, 5]]))
    assert lines == ["rank │ [0,0]  [0,1]  [1,0]  [1,1]", "   0 │     0      0      0    0≠5"]


def test_a_grid_of_a_scalar_has_one_column() -> None:
    assert difference_lines(1, 2) == ["rank │ value", "   0 │   1≠2"]


def problem() -> Problem:
    source = Source(path="a.yaml", text="world_size: two\n")
    mark = Mark(source=source, line=1, column=13, end_line=1, end_column=16)
    return Problem(code="unknown_name", message="nothing defines `two`", mark=mark, hint="write 2")


def test_an_invalid_file_shows_every_problem_with_caret_and_hint() -> None:
    verdict = Verdict(status="INVALID", problems=(problem(), problem()))
    shown = text_of(verdict)
    assert shown.count("error[unknown_name]: nothing defines `two`\n    --> a.yaml:1:13\n") == 2
    assert "        world_size: two\n                    ^^^\n    = help: write 2" in shown


def test_the_summary_counts_and_shows_silently_wrong_programs(tmp_path: Path) -> None:
    text = WRONG.replace("op: sum", "op: {0: sum, else: max}").replace("[6, 7, 6]", "[6, 6, 6]")
    wrong = ran(text + "expect: {diagnosis: op_mismatch}\n", tmp_path)
    unsupported = Verdict(status="UNSUPPORTED", reason="no such backend")
    shown = printed(wrong, checked(WRONG, tmp_path), unsupported, durations=1)
    assert (
        "wrong programs that the backend let finish:\n  some/folder/sum.yaml::sum  op_mismatch"
        in shown
    )
    assert "slowest 1:" in shown
    assert "  12 ms  some/folder/sum.yaml::sum" in shown
    assert shown.rstrip().endswith("1 passed, 1 failed, 1 unsupported, 1 warning in 1.50 s")


def test_verbose_shows_prediction_and_explanation(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 0, all_reduce: {tensor: x}}
expect: {outcome: deadlock, diagnosis: missing_participant}
"""
    shown = printed(ran(text, tmp_path), verbose=True)
    assert "predicted: deadlock; blocked: 0 in `all_reduce`" in shown
    assert "observed: deadlock" in shown
    assert "missing_participant: " in shown


def test_plain_output_has_no_escape_sequences(tmp_path: Path) -> None:
    assert "\x1b" not in printed(checked(WRONG, tmp_path))


def test_a_files_own_words_cannot_steer_the_terminal() -> None:
    fault = Problem(code="unknown_key", message="unknown key `\x1b[2J\x07`")
    assert "\x1b" not in printed(Verdict(status="INVALID", problems=(fault,)))


def test_nothing_selected_is_said() -> None:
    assert printed().strip() == "nothing was selected"
    assert outcome().exit_code == 5


def test_what_was_not_run_is_counted_in_the_summary() -> None:
    def shown(found: Outcome) -> str:
        return summary_lines(found)[0].text

    cut = replace(outcome(Verdict(status="PASSED"), interrupted=True), cases=4)
    assert shown(cut) == "interrupted: 1 passed, 3 not run in 1.50 s"
    bad = Result(file="a.yaml", case="a.yaml", verdict=Verdict(status="INVALID"))
    assert shown(replace(cut, results=(bad,), interrupted=False)) == (
        "1 invalid, 4 not run in 1.50 s"
    )


def test_exit_codes_follow_the_worst_verdict() -> None:
    def code(*statuses: Any) -> int:
        return outcome(*(Verdict(status=status) for status in statuses)).exit_code

    assert code("PASSED", "UNSUPPORTED") == 0
    assert code("PASSED", "INCONCLUSIVE") == 3
    assert code("FAILED", "INCONCLUSIVE") == 1
    assert code("FAILED", "INVALID") == 2
    assert outcome(Verdict(status="FAILED"), interrupted=True).exit_code == 130


def test_json_keeps_predicted_and_observed_apart(tmp_path: Path) -> None:
    entry = json_report.entry(result(ran(WRONG, tmp_path, hanging(0, 1))))
    assert entry["predicted"]["outcome"] == "completes"
    assert entry["observed"]["outcome"] == "deadlock"
    assert entry["observed"]["blocked"] == {"1": "sum of all"}
    static = json_report.entry(result(checked(WRONG, tmp_path)))
    assert static["observed"] is None
    (found,) = static["problems"]
    assert (found["code"], found["line"], found["alone"]) == ("value_differs", 8, "expectation")
    assert found["max_abs"] == 1.0


def test_json_of_an_invalid_file_has_its_problems() -> None:
    entry = json_report.entry(result(Verdict(status="INVALID", problems=(problem(),))))
    assert entry["verdict"] == "INVALID"
    assert entry["predicted"] is None
    assert entry["problems"] == [
        {
            "code": "unknown_name",
            "file": "a.yaml",
            "line": 1,
            "column": 13,
            "end_line": 1,
            "end_column": 16,
            "message": "nothing defines `two`",
            "hint": "write 2",
        }
    ]


def test_the_reference_of_operations_shows_each_with_its_example() -> None:
    from torch_scenarios.operations import OPERATIONS

    shown = overview()
    for operation in OPERATIONS:
        assert f"  {operation.name} " in shown
        assert operation.example.splitlines()[0] in page(operation)


def test_the_end_lists_what_did_not_pass_with_the_command_that_runs_it(tmp_path: Path) -> None:
    right = checked(WRONG.replace("[6, 7, 6]", "[6, 6, 6]"), tmp_path)
    shown = printed(right, checked(WRONG, tmp_path), again="check")
    assert (
        """
what did not pass:
  FAILED       some/folder/sum.yaml::sum  value_differs
these alone: scenario check some/folder/sum.yaml
1 passed, 1 failed, 1 warning in 1.50 s
""".replace(", 1 warning", "")
        in shown.replace(", 1 warning", "")
    )
    assert "what did not pass" not in printed(right, right, again="check")
    assert "what did not pass" not in printed(checked(WRONG, tmp_path), again="check")
    wrong = [checked(WRONG, tmp_path)] * 4
    many = printed(*wrong, again="run", paths=("a folder", "b.yaml"))
    assert "these alone: scenario run --last-failed 'a folder' b.yaml\n" in many
    paths = tuple(f"{number}.yaml" for number in range(9))
    assert "--last-failed 0.yaml 1.yaml 2.yaml, with" in printed(*wrong, again="run", paths=paths)


MATRIX = """\
world_size: 2
matrix: {n: [2, 3], kind: [float32, int32]}
tensors: {x: {value: "full(2, rank + n)", dtype: kind}}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [5, 5]}
"""


def test_cases_of_a_file_of_which_the_same_is_wrong_are_shown_once(tmp_path: Path) -> None:
    path = tmp_path / "sums.yaml"
    path.write_text(MATRIX, encoding="utf-8")
    cases = load(path)
    file = io.StringIO()
    report = TerminalReport(file, folds=True)
    results = tuple(
        Result(file="sums.yaml", case=case.case, verdict=analyse(case).verdict, scenario=case)
        for case in cases
    )
    for each in results:
        report.finish(each)
    report.end(Outcome(results=results, cases=len(results)))
    text = file.getvalue()
    assert text.count("error[value_differs]") == 1
    assert "FAILED       sums.yaml::sums\n" in text
    assert "  in 2 cases: [n=3,kind=float32], [n=3,kind=int32]\n" in text
    document = json_report.document(Outcome(results=results, cases=len(results)))
    assert sum(len(each["problems"]) for each in document["results"]) == 2


def test_a_brief_report_has_the_summary_alone(tmp_path: Path) -> None:
    shown = printed(checked(WRONG, tmp_path), checked(WRONG, tmp_path), brief=True, again="check")
    assert shown.startswith("what did not pass:")
    assert "judged.yaml" not in shown


@pytest.mark.parametrize("again", ["run", ""])
def test_a_brief_report_names_the_one_case_that_did_not_pass(tmp_path: Path, again: str) -> None:
    shown = printed(checked(WRONG, tmp_path), brief=True, again=again)
    assert shown.startswith("what did not pass:\n  FAILED ")
    assert "some/folder/sum.yaml::sum" in shown
    assert "these alone" not in shown


def test_the_start_of_the_workers_has_a_line_for_who_asks_for_more(tmp_path: Path) -> None:
    verdict = ran(WRONG.replace("[6, 7, 6]", "[6, 6, 6]"), tmp_path)
    for verbose, said in ((False, 0), (True, 1)):
        file = io.StringIO()
        report = TerminalReport(file, verbose=verbose)
        report.begin(2)
        report.finish(replace(result(verdict), ready_s=2.4))
        report.finish(replace(result(verdict), ready_s=0.001))
        assert file.getvalue().count("workers ready in 2.40 s\n") == said
