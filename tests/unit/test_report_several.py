"""Several reports of one run: each to its own file, whole or not at all, none at another's cost."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.errors import ScenarioError
from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.pipeline.results import FinalReport, Outcome, Result
from torch_scenarios.report.formats import FORMATS, Format
from torch_scenarios.report.output import Reports, Target, timeline
from torch_scenarios.verdict import Verdict

if TYPE_CHECKING:
    from typing import TextIO

OUTCOME = Outcome(results=(Result(file="a.yaml", case="a", verdict=Verdict(status="PASSED")),))

GOOD = "world_size: 2\ntensors: {x: [1]}\nsteps:\n  - all_reduce: {tensor: x}\n"


class CallDescription(FinalReport):
    """Writes that it heard a result, and the end."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def finish(self, result: Result) -> None:
        """Write the case."""
        self.file.write(f"{result.case}\n")

    def end(self, outcome: Outcome) -> None:
        """Write the exit code."""
        self.file.write(f"end {outcome.exit_code}\n")


class Faulty(FinalReport):
    """Has a fault that the first result brings to light."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        file.write("half a document")

    def finish(self, result: Result) -> None:
        """Fail."""
        raise KeyError(result.case)

    def end(self, outcome: Outcome) -> None:
        """Never be called again."""
        raise AssertionError(outcome)


def kind(made: type, *, streams: bool = False) -> Format:
    return Format(name="said", made_by=f"{__name__}:{made.__name__}", help="", streams=streams)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def told(reports: Reports) -> None:
    with reports:
        reports.begin(1)
        reports.finish(OUTCOME.results[0])
        reports.end(OUTCOME)


def refused(*wanted: tuple[Format, str]) -> list[str]:
    with pytest.raises(ScenarioError) as raised:
        Reports().open(wanted)
    return [problem.message for problem in raised.value.problems]


def test_each_report_hears_all_and_has_a_file_of_its_own(folder: Path) -> None:
    told(
        Reports().open(
            [(kind(CallDescription), "a.txt"), (kind(CallDescription, streams=True), "b.txt")]
        )
    )
    assert (folder / "a.txt").read_text() == (folder / "b.txt").read_text() == "a\nend 0\n"
    assert names() == ["a.txt", "b.txt"]


def test_a_report_appears_whole_at_the_end_and_one_that_streams_at_once(folder: Path) -> None:
    (folder / "old.txt").write_text("of the run before")
    wanted = [
        (kind(CallDescription), "old.txt"),
        (kind(CallDescription, streams=True), "stream.txt"),
    ]
    with Reports().open(wanted) as reports:
        reports.begin(1)
        reports.finish(OUTCOME.results[0])
        assert (folder / "old.txt").read_text() == "of the run before"
        assert (folder / "stream.txt").exists()
        reports.end(OUTCOME)
    assert (folder / "old.txt").read_text() == "a\nend 0\n"


def test_a_run_without_an_end_leaves_what_stood_there_and_nothing_else(folder: Path) -> None:
    (folder / "old.txt").write_text("of the run before")
    wanted = [(kind(CallDescription), "old.txt"), (kind(CallDescription), "new.txt")]
    with Reports().open(wanted) as reports:
        reports.finish(OUTCOME.results[0])  # and the block is left before the end
    assert names() == ["old.txt"]
    assert (folder / "old.txt").read_text() == "of the run before"


def test_a_stream_that_never_began_leaves_what_stood_there(folder: Path) -> None:
    (folder / "old.txt").write_text("of the run before")
    streams = kind(CallDescription, streams=True)
    with Reports().open([(streams, "old.txt"), (streams, "new.txt")]):
        pass
    assert names() == ["old.txt"]
    assert (folder / "old.txt").read_text() == "of the run before"
    told(Reports().open([(streams, "old.txt")]))
    assert (folder / "old.txt").read_text() == "a\nend 0\n"


def test_a_report_with_a_fault_costs_the_others_nothing(folder: Path) -> None:
    reports = Reports().open([(kind(Faulty), "bad.txt"), (kind(CallDescription), "good.txt")])
    told(reports)
    assert names() == ["good.txt"]
    assert (folder / "good.txt").read_text() == "a\nend 0\n"
    (failure,) = reports.failures
    assert "--said bad.txt cannot be written: KeyError: 'a'" in failure
    assert "report it" in failure


class Slow(FinalReport):
    """Takes its time, and keeps in which thread it was told what."""

    told: ClassVar[list[tuple[str, bool]]] = []

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.told.clear()

    def finish(self, result: Result) -> None:
        """Wait, and keep the case."""
        time.sleep(0.01)
        self.told.append((result.case, threading.current_thread() is threading.main_thread()))

    def end(self, outcome: Outcome) -> None:
        """Keep that all was told before."""
        self.file.write(f"{len(self.told)} of {len(outcome.results)}")


def test_files_are_written_beside_the_run_in_order_and_whole(folder: Path) -> None:
    results = tuple(replace(OUTCOME.results[0], case=str(number)) for number in range(20))
    before = threading.active_count()
    with Reports().open([(kind(Slow), "slow.txt")]) as reports:
        reports.begin(len(results))
        for each in results:
            reports.finish(each)
        reports.end(replace(OUTCOME, results=results))
    assert (folder / "slow.txt").read_text() == "20 of 20"
    assert Slow.told == [(str(number), False) for number in range(20)]
    assert threading.active_count() == before


def test_a_run_without_an_end_leaves_no_thread(folder: Path) -> None:
    before = threading.active_count()
    with Reports().open([(kind(Slow), "slow.txt")]) as reports:
        reports.finish(OUTCOME.results[0])
    assert threading.active_count() == before
    assert names() == []
    assert folder.exists()


def test_every_path_that_cannot_be_written_is_named_and_none_is_touched(folder: Path) -> None:
    (folder / "a_folder").mkdir()
    messages = refused(
        (kind(CallDescription), "missing/r.txt"),
        (kind(CallDescription), "good.txt"),
        (kind(CallDescription), "a_folder"),
    )
    assert "missing/r.txt cannot be written: No such file or directory" in messages[0]
    assert "a_folder cannot be written: Is a directory" in messages[1]
    assert names() == ["a_folder"]


def test_two_reports_to_one_file_are_refused(folder: Path) -> None:
    (folder / "link.txt").symlink_to("a.txt")
    (message,) = refused((kind(CallDescription), "a.txt"), (kind(CallDescription), "link.txt"))
    assert message.endswith("--said is written there too")
    (message,) = refused((kind(CallDescription), "-"), (kind(CallDescription), "-"))
    assert message.endswith("--said is written there too")


def test_a_report_never_takes_the_place_of_a_scenario(folder: Path) -> None:
    (folder / "mine.yaml").write_text(GOOD)
    (message,) = refused((kind(CallDescription), "mine.yaml"))
    assert "would replace it" in message
    assert (folder / "mine.yaml").read_text() == GOOD


def test_a_link_stays_a_link_and_rights_stay_as_they_are(folder: Path) -> None:
    (folder / "real.txt").write_text("")
    (folder / "real.txt").chmod(0o640)
    (folder / "link.txt").symlink_to("real.txt")
    told(Reports().open([(kind(CallDescription), "link.txt")]))
    assert (folder / "link.txt").is_symlink()
    assert (folder / "real.txt").read_text() == "a\nend 0\n"
    assert stat.S_IMODE((folder / "real.txt").stat().st_mode) == 0o640


def test_a_device_is_written_in_place() -> None:
    target = Target("/dev/null")
    target.file.write("gone")
    target.keep()
    assert Path("/dev/null").is_char_device()


def test_an_open_pipe_is_written_to() -> None:
    semantics, writing = os.pipe()
    told(Reports().open([(kind(CallDescription), f"/dev/fd/{writing}")]))
    os.close(writing)
    with os.fdopen(semantics) as pipe:
        assert pipe.read() == "a\nend 0\n"


def test_an_open_file_is_added_to_and_not_emptied(folder: Path) -> None:
    with (folder / "log.txt").open("w") as log:
        log.write("before\n")
        log.flush()
        told(Reports().open([(kind(CallDescription, streams=True), f"/dev/fd/{log.fileno()}")]))
    assert (folder / "log.txt").read_text() == "before\na\nend 0\n"


def test_an_unwritable_report_is_told_before_anything_runs(folder: Path) -> None:
    (folder / "good.yaml").write_text(GOOD)
    for command in ("run", "check"):
        called = CliRunner().invoke(cli, [command, "good.yaml", "--junit", "no/r.xml"])
        assert called.exit_code == 2
        assert "--junit no/r.xml cannot be written" in called.output
        assert "PASSED" not in called.output


def test_one_run_writes_every_kind_of_report(folder: Path) -> None:
    (folder / "good.yaml").write_text(GOOD)
    files = {each.name: f"r.{each.name}" for each in FORMATS}
    options = [part for name, path in files.items() for part in (f"--{name}", path)]
    assert CliRunner().invoke(cli, ["check", "good.yaml", *options]).exit_code == 0
    assert names() == sorted(["good.yaml", *files.values()])
    assert json.loads((folder / "r.json").read_text())["exit_code"] == 0


def test_reports_share_the_timelines_of_a_result_and_none_outlives_it(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (scenario,) = load(tmp_path / "a.yaml")
    analysis = analyse(scenario)
    assert analysis.predicted is not None
    first = timeline(scenario, analysis.predicted, analysis.predicted)
    assert timeline(scenario, analysis.predicted, analysis.predicted) is first
    Reports().finish(OUTCOME.results[0])
    assert timeline(scenario, analysis.predicted, analysis.predicted) is not first
