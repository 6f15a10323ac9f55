"""`scenario run --netns 2`: hosts simulated on this machine; a launch goes on after deaths.

Each host runs `scenario run --nnodes 2 --rdzv-endpoint ...`, as real ones do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hosts import LONG, SUM, until

from torch_scenarios.execution import netns

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]

CORPUS = Path(__file__).parents[2] / "scenarios"
DIES = """\
world_size: 4
steps:
  - ranks: 3
    fault: kill
expect:
  outcome: crash
  dies: {3: SIGKILL}
"""
#: seconds that a run may take with every core busy
RUN_S = 600.0


@pytest.fixture(scope="module", autouse=True)
def able() -> None:
    """Skip where no hosts can be simulated, with the reason."""
    reason = netns.lack()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder for scenarios."""
    place = tmp_path / "scenarios"
    place.mkdir()
    return place


class Run:
    """A run on two simulated hosts, with its reports."""

    def __init__(self, where: Path, *paths: str, ranks: int = 2) -> None:
        self.report = where / "report.json"
        self._output = where / "output.txt"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-c", "from torch_scenarios.cli import main; main()"),
                    *("run", "--netns", "2", "--nproc-per-node", str(ranks), "--no-cache", "-v"),
                    *("--json", str(self.report), *paths),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def ended(self) -> int:
        """Wait for the end; return the exit code."""
        return self.process.wait(RUN_S)

    @property
    def output(self) -> str:
        """What the hosts have printed so far."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def results(self) -> dict[str, dict[str, Any]]:
        """Return the results by case."""
        told = json.loads(self.report.read_text(encoding="utf-8"))
        return {result["case"]: result for result in told["results"]}

    def verdicts(self) -> dict[str, str]:
        """Return the verdicts by case."""
        return {case: result["verdict"] for case, result in self.results().items()}

    def descendants(self) -> list[int]:
        """Return the processes below this run, children after their parents."""
        return list(_below(self.process.pid))


def _below(pid: int) -> Iterator[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return
    for child in map(int, children):
        yield child
        yield from _below(child)


def _host(pid: int) -> str:
    """Return the name of a process: on a simulated host, that of the host."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def test_a_death_costs_its_launch_and_the_rest_goes_on(folder: Path, tmp_path: Path) -> None:
    for name, text in {"a_sum": SUM, "b_dies": DIES, "c_sum": SUM, "d_dies": DIES}.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    run = Run(tmp_path, str(folder))
    assert run.ended() == 0, run.output
    assert set(run.verdicts().values()) == {"PASSED"}
    assert "exit code 0: all passed" in run.output  # what the other host prints


def test_both_hosts_end_with_the_code_of_a_failure(folder: Path, tmp_path: Path) -> None:
    (folder / "wrong.yaml").write_text(SUM.replace("[4]", "[5]"), encoding="utf-8")
    run = Run(tmp_path, str(folder))
    assert run.ended() == 1, run.output
    assert "exit code 1: a scenario failed" in run.output


def _but_times_and_hosts(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without what may differ between two runs of the same case.

    Where the semantics leave open what comes of a case, what was seen may differ too.
    """
    same = {key: value for key, value in result.items() if key != "duration_s"}
    observed = same.get("observed")
    if observed is not None:
        same["observed"] = {**observed, "duration_s": 0.0}
        same["observed"].pop("hosts", None)
        if not same["predicted"]["sure"] or "message_race" in same["predicted"]["diagnoses"]:
            same["observed"] = {"backend": observed["backend"]}
            same["compared"] = same["silently_wrong"] = None
    return same


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", sorted(each.name for each in CORPUS.iterdir() if each.is_dir()))
def test_a_folder_comes_to_the_same_on_simulated_hosts(
    name: str, ranks: int, tmp_path: Path
) -> None:
    near = tmp_path / "near.json"
    subprocess.run(
        [
            *(sys.executable, "-P", "-c", "from torch_scenarios.cli import main; main()"),
            *("run", "--no-cache", "--json", str(near), str(CORPUS / name)),
        ],
        capture_output=True,
        check=False,
        timeout=RUN_S,
    )
    told = json.loads(near.read_text(encoding="utf-8"))
    here = {result["case"]: result for result in told["results"]}
    run = Run(tmp_path, str(CORPUS / name), ranks=ranks)
    run.ended()
    far = run.results()
    wide = {case for case in far if "ranks; this launch has" in str(far[case].get("reason"))}
    assert all(far[case]["world_size"] > 2 * ranks for case in wide)
    assert far.keys() == here.keys()
    near_only = {case for case in far if "on one machine alone" in str(far[case].get("reason"))}
    assert {far[case]["verdict"] for case in near_only} <= {"UNSUPPORTED"}
    for case in far.keys() - wide - near_only:
        assert _but_times_and_hosts(far[case]) == _but_times_and_hosts(here[case])


@pytest.mark.parametrize("whom", ["run", "switch"])
def test_nothing_outlives_a_run_that_is_killed(folder: Path, tmp_path: Path, whom: str) -> None:
    (folder / "long.yaml").write_text(LONG, encoding="utf-8")
    run = Run(tmp_path, str(folder))

    def ranks() -> list[int]:
        return [pid for pid in run.descendants() if _host(pid).startswith("node")]

    until(lambda: len(ranks()) >= 1 + 2 + 4)  # the command line, two agents, the ranks
    below = run.descendants()
    links = {str(Path(f"/proc/{pid}/ns/net").readlink()) for pid in ranks()}
    os.kill(run.process.pid if whom == "run" else below[0], signal.SIGKILL)
    run.process.wait(RUN_S)
    until(lambda: not [pid for pid in below if _is_alive(pid)])
    time.sleep(0.5)
    assert not links & _namespaces()


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _namespaces() -> set[str]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found.add(str((entry / "ns" / "net").readlink()))
        except OSError:
            continue
    return found


def test_a_worker_killed_from_outside_costs_its_case_alone(folder: Path, tmp_path: Path) -> None:
    for name, text in {"a_sum": SUM, "b_long": LONG, "c_sum": SUM}.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    run = Run(tmp_path, str(folder))
    until(lambda: "a_sum" in run.output)
    until(lambda: len(_leaves(run)) >= 4)
    time.sleep(3.0)  # the case that does not end has begun
    os.kill(_leaves(run)[-1], signal.SIGKILL)
    assert run.ended() == 3, run.output
    assert run.verdicts() == {"a_sum": "PASSED", "b_long": "INCONCLUSIVE", "c_sum": "PASSED"}
    assert "host node" in str(run.results()["b_long"]["reason"])


def test_a_lost_agent_ends_the_run_with_what_was_there(folder: Path, tmp_path: Path) -> None:
    for name, text in {"a_sum": SUM, "b_long": LONG, "c_sum": SUM}.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    run = Run(tmp_path, str(folder))
    until(lambda: "a_sum" in run.output)
    agents = [pid for pid in run.descendants() if _host(pid) == "node1"]
    os.kill(agents[0], signal.SIGKILL)  # the second host's command, which is its agent
    assert run.ended() == 3, run.output
    assert run.verdicts() == {
        "a_sum": "PASSED",
        "b_long": "INCONCLUSIVE",
        "c_sum": "INCONCLUSIVE",
    }
    assert "host node1" in str(run.results()["c_sum"]["reason"])


def _leaves(run: Run) -> list[int]:
    """Return the ranks: they are at the end of the tree."""
    below = run.descendants()
    return [pid for pid in below if not list(_below(pid)) and _host(pid).startswith("node")]
