"""The gate runs the few that fail once more: those that pass then are flaky, the rest is red."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

AGAIN = Path(__file__).parents[1] / ".ci" / "again.py"
#: `first` is true in the first run of a test alone
TESTS = """\
import pathlib
import pytest


@pytest.fixture
def first(request):
    mark = pathlib.Path(request.node.name.replace("/", " "))
    found = mark.exists()
    mark.touch()
    return not found


@pytest.fixture
def broken(first):
    assert not first


def test_good():
    pass


@pytest.mark.parametrize("word", ["a::b [c]"])
def test_once(first, word):
    assert not first


def test_once_set_up(broken):
    pass


def test_wrong():
    assert False


def test_skipped_then(first):
    assert not first
    pytest.skip("there is too little memory")


@pytest.mark.parametrize("number", range(11))
def test_many(first, number):
    assert not first
"""
#: stands in for the command: it writes what the file of its number says
SCENARIO = """\
#!/bin/sh
echo "$@" >> calls
shift
while [ "$1" != --json ]; do shift; done
cp "results.$(wc -l < calls | tr -d ' ')" "$2"
! grep -q FAILED "$2"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path


def gate(*arguments: str, **environment: str) -> tuple[int, list[str], str]:
    """Return the exit code, the summary's lines, and all else that is said."""
    what, *rest = arguments
    done = subprocess.run(
        [sys.executable, str(AGAIN), what, "summary", *rest],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    summary = Path("summary")
    return (
        done.returncode,
        summary.read_text().splitlines() if summary.exists() else [],
        done.stdout,
    )


@pytest.mark.parametrize(
    ("chosen", "workers", "code", "summary"),
    [
        (
            "good or once",
            2,
            0,
            [
                "flaky: test_it.py::test_once[a::b [c]]",
                "flaky: test_it.py::test_once_set_up",
                "1 failed, 1 passed, 1 error in",
                "2 passed in",
            ],
        ),
        (
            "once_set_up or wrong",
            0,
            1,
            ["flaky: test_it.py::test_once_set_up", "1 failed, ", "1 failed, 1 passed in"],
        ),
        ("skipped", 0, 1, ["1 failed, ", "1 skipped in"]),
        ("many", 0, 1, ["11 failed, "]),
    ],
)
def test_few_red_tests_run_once_more(
    chosen: str, workers: int, code: int, summary: list[str]
) -> None:
    Path("test_it.py").write_text(TESTS)
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist.plugin"}
    ended, lines, said = gate("tests", "-q", "-n", str(workers), "-k", chosen, **alone)
    assert ended == code, said
    assert len(lines) == len(summary), lines
    for line, words in zip(lines, summary, strict=True):
        assert line.startswith(words), lines


@pytest.mark.parametrize(
    ("second", "code", "summary"),
    [("PASSED", 0, ["flaky: a.yaml::n=2"]), ("FAILED", 1, [])],
)
def test_few_red_cases_run_once_more(
    second: str, code: int, summary: list[str], folder: Path
) -> None:
    (folder / "scenario").write_text(SCENARIO)
    (folder / "scenario").chmod(0o755)
    first = {"n=1": "PASSED", "n=2": "FAILED", "nccl": "UNSUPPORTED"}
    for number, verdicts in (1, first), (2, {"n=2": second}):
        found = [{"file": "a.yaml", "case": case, "verdict": verdicts[case]} for case in verdicts]
        (folder / f"results.{number}").write_text(json.dumps({"results": found}))
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    ended, lines, said = gate("corpus", "first.json", "again.json", PATH=path)
    assert (ended, lines) == (code, summary), said
    assert (folder / "calls").read_text().splitlines() == [
        "run scenarios --json first.json",
        "run -j 1 a.yaml::n=2 --json again.json",
    ]


def test_a_green_corpus_runs_once(folder: Path) -> None:
    (folder / "scenario").write_text(SCENARIO)
    (folder / "scenario").chmod(0o755)
    (folder / "results.1").write_text('{"results": []}')
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    assert gate("corpus", "first.json", "again.json", PATH=path)[:2] == (0, [])
    assert not (folder / "again.json").exists()
