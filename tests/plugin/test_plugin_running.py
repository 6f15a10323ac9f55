"""Scenarios in a pytest session, on real Gloo: what is told, what is shared, what is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, TypeAlias
from xml.etree import ElementTree as ET

import pytest
from processes import ended, of_run, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from warm_hosts import WarmHosts

    Session: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.torch, pytest.mark.slow]

GOOD = """\
world_size: 2
tags: [sums, skip, xfail]
tensors: {x: [1, 2]}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [2, 4]}
"""
HANGS = """\
world_size: 2
timeout: 600s
tensors: {x: [1]}
steps:
  - {ranks: 0, sleep: 60s}
  - all_reduce: {tensor: x}
"""
FILES = {
    "good.yaml": GOOD.replace("tensors:", "matrix: {dtype: [int64, float32]}\ntensors:"),
    "wrong.yaml": GOOD.replace("[2, 4]", "[2, 5]"),
    "stuck.yaml": "world_size: 2\ntensors: {x: [1], y: [0]}\nsteps:\n"
    "  - send: {tensor: x, dst: 1 - rank}\n  - recv: {tensor: y, src: 1 - rank}\n",
    "bad.yaml": "world_size: two\nstep: []\n",
    "only_nccl.yaml": GOOD.replace("tags:", "backends: [nccl]\ntags:"),
    "crash.yaml": "world_size: 2\ntensors: {x: [1]}\nsteps:\n  - {ranks: 0, fault: kill}\n"
    "  - all_reduce: {tensor: x}\nexpect: {outcome: crash, dies: {0: SIGKILL}}\n",
}
#: writes a line for each process that imports torch for a session
COUNTING = """
import os
import pathlib

from torch_scenarios.execution import Launcher

started = Launcher._start


def counted(launcher):
    with pathlib.Path("starts.txt").open("a") as file:
        file.write(f"{os.getpid()}\\n")
    started(launcher)


Launcher._start = counted
"""


@pytest.fixture(scope="session")
def session(forked_hosts: WarmHosts) -> Session:
    """Run a session of pytest as a process of its own, in a folder."""

    def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            forked_hosts.command("pytest", "-W", "error", *arguments),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


# ---------------------------------------------------------------------------- one mixed session


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, session: Session) -> Path:
    """Run a session with a case of every verdict once; its words are in `said.txt`."""
    folder = tmp_path_factory.mktemp("mixed")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "conftest.py").write_text(COUNTING, encoding="utf-8")
    done = session(folder, "--scenarios", "-rA", "-v", "--junitxml=junit.xml", ".")
    (folder / "said.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    (folder / "code.txt").write_text(str(done.returncode), encoding="utf-8")
    return folder


def test_every_verdict_has_its_place_in_pytest(mixed: Path) -> None:
    said = (mixed / "said.txt").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(\S+\.yaml::\S+) (PASSED|FAILED|SKIPPED)", said, re.MULTILINE))
    assert found == {
        "bad.yaml::bad": "FAILED",
        "crash.yaml::crash": "PASSED",
        "good.yaml::float32": "PASSED",
        "good.yaml::int64": "PASSED",
        "only_nccl.yaml::only_nccl": "SKIPPED",
        "stuck.yaml::stuck": "FAILED",
        "wrong.yaml::wrong": "FAILED",
    }
    assert (mixed / "code.txt").read_text() == "1"


def test_a_failure_prints_our_report_and_no_traceback(mixed: Path) -> None:
    said = (mixed / "said.txt").read_text(encoding="utf-8")
    assert "stuck.yaml:4: rank 0 waits in `send to 1` for rank 1 to receive" in said
    assert "expected≠what the semantics give" in said
    assert "= help: did you mean `steps`?" in said
    assert "_ scenario stuck.yaml::stuck _" in said
    assert "Traceback" not in said
    assert ".py:" not in said


def test_the_summary_says_what_is_wrong(mixed: Path) -> None:
    said = (mixed / "said.txt").read_text(encoding="utf-8")
    assert "SKIPPED [1] only_nccl.yaml:1: UNSUPPORTED: it is meant for nccl" in said
    assert "FAILED stuck.yaml::stuck - error[circular_wait]: these ranks wait" in said
    assert "FAILED bad.yaml::bad - INVALID: bad.yaml:1:" in said


def test_a_warning_is_in_pytests_own_summary_and_fails_where_it_is_asked_for(
    tmp_path: Path,
    session: Session,
) -> None:
    write(tmp_path, odd=GOOD + "  - {name: lost, ranks: rank > 5, barrier: {}}\n")
    says = "ScenarioWarning: no rank takes `lost` [step_without_ranks]"
    warned = session(tmp_path, "-W", "default", "--scenarios", "odd.yaml")
    assert warned.returncode == 0, warned.stdout + warned.stderr
    assert says in warned.stdout
    assert "1 passed, 1 warning" in warned.stdout
    strict = session(tmp_path, "-W", "default", "--scenarios", "--scenario-strict", "odd.yaml")
    assert strict.returncode == 1
    assert "with --strict a warning is a failure" in strict.stdout
    raised = session(tmp_path, "--scenarios", "odd.yaml")
    assert raised.returncode == 1
    assert "warning[step_without_ranks]: no rank takes `lost`" in raised.stdout
    assert "Traceback" not in raised.stdout


def test_junit_knows_what_a_case_ran_on(mixed: Path) -> None:
    root = ET.parse(mixed / "junit.xml").getroot()  # noqa: S314 -- pytest wrote it just now
    (case,) = root.findall(".//testcase[@name='int64']")
    properties = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert properties["verdict"] == "PASSED"
    assert properties["world_size"] == "2"
    assert properties["backend"] == "gloo"
    assert str(properties["torch"]).startswith("2.")
    (stuck,) = root.findall(".//testcase[@name='stuck']/failure")
    assert "circular_wait" in str(stuck.get("message"))
    assert "neither can move" in str(stuck.text)


def test_all_items_share_one_launch(mixed: Path) -> None:
    assert len((mixed / "starts.txt").read_text().splitlines()) == 1


# ---------------------------------------------------------------------------- sessions of their own


def test_what_the_environment_prevents_is_an_error_that_says_so(
    tmp_path: Path, session: Session
) -> None:
    write(tmp_path, good=GOOD)
    done = session(tmp_path, "--scenarios", "--scenario-plugin=no_such_module")
    assert "1 error" in done.stdout
    assert "INCONCLUSIVE good.yaml::good - the environment, not the scenario" in done.stdout
    assert "no_such_module" in done.stdout
    assert done.returncode == 1


@pytest.mark.nightly
def test_options_stand_in_the_configuration_and_the_command_line_comes_first(
    tmp_path: Path,
    session: Session,
) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nscenario_paths = .\nscenario_isolate = true\nscenario_backend = gloo\n"
        "scenario_timeout = 600\nscenario_plugins = no_such_module\n"
    )
    write(tmp_path, good=GOOD)
    done = session(tmp_path)
    assert "no_such_module" in done.stdout
    given = session(
        tmp_path, "--scenario-plugin=json", "--scenario-timeout=30", "--scenario-isolate"
    )
    assert "1 passed" in given.stdout


@pytest.mark.nightly
def test_under_xdist_each_worker_has_a_launch_of_its_own(tmp_path: Path, session: Session) -> None:
    write(tmp_path, **{f"good_{number}": GOOD for number in range(6)}, wrong=FILES["wrong.yaml"])
    (tmp_path / "conftest.py").write_text(COUNTING)
    done = session(tmp_path, "--scenarios", "-n", "2", "--dist", "each", "--tx", "2*popen")
    assert "2 failed, 12 passed" in done.stdout
    assert "expected≠what the semantics give" in done.stdout
    starts = (tmp_path / "starts.txt").read_text().split()
    assert len(starts) == len(set(starts)) == 2


@pytest.mark.nightly
def test_a_session_stops_at_the_first_failure_and_takes_it_up_again(
    tmp_path: Path, session: Session
) -> None:
    write(tmp_path, a=GOOD, b=FILES["wrong.yaml"], c=GOOD)
    assert "1 failed, 1 passed" in session(tmp_path, "--scenarios", "-x").stdout
    again = session(tmp_path, "--scenarios", "--lf", "--durations=2")
    assert "b.yaml::b" in again.stdout
    assert "passed" not in again.stdout


@pytest.mark.nightly
def test_an_answer_that_no_request_waited_for_is_not_taken_for_the_next(
    tmp_path: Path, session: Session
) -> None:
    write(tmp_path, a_hangs=HANGS, b_wrong=FILES["wrong.yaml"], c=GOOD)
    (tmp_path / "conftest.py").write_text(
        """
import signal

import pytest


def over(number, frame):
    pytest.fail("a time limit of somebody else")


def pytest_runtest_call(item):
    if item.name == "a_hangs":
        signal.signal(signal.SIGALRM, over)
        signal.alarm(4)
"""
    )
    done = session(tmp_path, "--scenarios", "-rA")
    assert "a time limit of somebody else" in done.stdout
    assert "PASSED c.yaml::c" in done.stdout
    assert "2 failed, 1 passed" in done.stdout


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param((), id="alone"),
        pytest.param(("-n", "2"), id="xdist", marks=pytest.mark.nightly),
    ],
)
def test_an_interrupt_leaves_nothing(
    workers: tuple[str, ...], tmp_path: Path, session: Session
) -> None:
    write(tmp_path, hangs=HANGS, more=HANGS)
    files = tmp_path / "tmp"
    files.mkdir()
    name, value = "SCENARIO_TEST", f"{tmp_path.name}-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--scenarios", "-p", "no:cacheprovider", *workers],
        cwd=tmp_path,
        env={**os.environ, name: value, "TMPDIR": str(files)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    mark = f"{name}={value}"
    everybody = 9 if workers else 4
    try:
        assert until(lambda: len(of_run(mark)) >= everybody, 60)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        ended(process)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "KeyboardInterrupt" in output
    assert until(lambda: of_run(mark) == [], 5)
    assert [path for path in files.iterdir() if "scenario" in path.name] == []
