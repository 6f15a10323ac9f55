"""Every report of a real run tells what went wrong in it, also of one that was interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lxml import etree
from processes import ended
from sampling import sampled

from torch_scenarios.report.formats import FORMATS
from torch_scenarios.report.json import results_of
from torch_scenarios.vocabulary import DIAGNOSES

if TYPE_CHECKING:
    from warm_hosts import WarmHosts

pytestmark = pytest.mark.torch

SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).parents[2] / "schemas" / "junit.xsd"))

FILES = {
    "deadlock": """\
world_size: 2
tensors: {x: [1, 2], y: [0, 0]}
steps:
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
""",
    "wrong": """\
world_size: 3
tensors: {x: "full(2, rank + 1)"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [6, 7]}
""",
    "crash": """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 1, fault: kill}
  - all_reduce: {tensor: x}
""",
    "good": """\
world_size: 2
tensors: {x: [1]}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [2]}
""",
}
CAUSES = (DIAGNOSES["circular_wait"], "x differs in 1 of 2 elements", "outcome is crash")

SLOW = """\
world_size: 2
matrix: {n: [1, 2, 3, 4, 5, 6, 7, 8, 9]}
tensors: {x: [1]}
steps:
  - sleep: 2s
  - all_reduce: {tensor: x}
"""

#: reports whose words are read by a program before a person sees them; they have tests of their own
DRAWN = frozenset({"html", "trace"})
TOLD = [kind.name for kind in FORMATS if kind.name not in DRAWN]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(hosts: WarmHosts, *arguments: str) -> list[str]:
    reports = [part for kind in FORMATS for part in (kind.option, f"r.{kind.name}")]
    return hosts.command("scenario", "run", *arguments, *reports)


def told(name: str) -> str:
    return Path(f"r.{name}").read_text(encoding="utf-8")


def test_each_report_tells_a_deadlock_a_wrong_value_and_a_crash(
    folder: Path, forked_hosts: WarmHosts
) -> None:
    for name, text in FILES.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run(run(forked_hosts, "."), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    for cause in CAUSES:
        assert cause in done.stdout
        for name in TOLD:
            assert cause in told(name), f"{name} does not tell: {cause}"
    root = etree.fromstring(told("junit").encode())
    SCHEMA.assertValid(root)
    facts = {each.get("name"): each.get("value") for each in root[-1].iter("property")}
    assert facts["backend"] == "gloo"
    assert facts["world_size"] == "3"
    assert "torch" in facts
    assert [each.case for each in results_of("r.jsonl").results] == [
        each.case for each in results_of("r.json").results
    ]


def test_each_report_tells_an_invalid_file_and_that_nothing_ran(
    folder: Path, forked_hosts: WarmHosts
) -> None:
    (folder / "good.yaml").write_text(FILES["good"], encoding="utf-8")
    (folder / "bad.yaml").write_text("world_size: two\n", encoding="utf-8")
    done = subprocess.run(run(forked_hosts, "."), capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "1 invalid, 1 not run" in done.stdout
    for name in TOLD:
        assert "nothing defines the name `two`" in told(name), name
    SCHEMA.assertValid(etree.fromstring(told("junit").encode()))
    (only,) = results_of("r.json").results
    assert only.verdict.observed is None


@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGTERM], 2))
def test_an_interrupted_run_keeps_what_it_had(
    folder: Path, number: signal.Signals, forked_hosts: WarmHosts
) -> None:
    (folder / "slow.yaml").write_text(SLOW, encoding="utf-8")
    process = subprocess.Popen(
        run(forked_hosts, "slow.yaml"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    try:
        deadline_s = time.monotonic() + 120
        while time.monotonic() < deadline_s and process.poll() is None:
            lines = Path("r.jsonl")
            if lines.exists() and '"kind": "result"' in lines.read_text(encoding="utf-8"):
                break
            time.sleep(0.05)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    finally:
        ended(process)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    for name in ("json", "jsonl"):
        outcome = results_of(f"r.{name}")
        assert outcome.interrupted
        assert 1 <= len(outcome.results) < outcome.cases == 9
        assert {each.verdict.status for each in outcome.results} == {"PASSED"}
    assert "Bail out! interrupted" in told("tap")
    assert "interrupted" in told("markdown")
    SCHEMA.assertValid(etree.fromstring(told("junit").encode()))
    assert {path.name for path in folder.iterdir()} - {".scenario"} == {
        "slow.yaml",
        *(f"r.{kind.name}" for kind in FORMATS),
    }


def test_what_failed_is_run_alone_until_it_passes(folder: Path, forked_hosts: WarmHosts) -> None:
    for name in ("good", "wrong"):
        (folder / f"{name}.yaml").write_text(FILES[name], encoding="utf-8")

    def ran(*arguments: str) -> list[str]:
        command = forked_hosts.command("scenario", "run", ".", "--json", "-", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return [each["case"] for each in json.loads(done.stdout)["results"]]

    assert ran() == ["good", "wrong"]
    (folder / "wrong.yaml").write_text(FILES["wrong"].replace("7", "6"), encoding="utf-8")
    assert ran("--lf") == ["wrong"]
    assert ran("--lf") == ["good", "wrong"]
