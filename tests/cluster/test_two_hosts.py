"""Two hosts come to the same verdicts as one machine, and run nothing where they differ."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hosts import Hosts

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]

CORPUS = Path(__file__).parents[2] / "scenarios"
#: what ends a process ends a launch that others started: docs/how-to/cluster.md
FOLDERS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir() and path.name != "faults")
SUM = "world_size: 4\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}, expect: {x: [4]}}]\n"
#: seconds that a folder may take on two hosts, with every core busy
FOLDER_S = 600.0


def on_one_machine(folder: Path, report: Path) -> dict[str, dict[str, Any]]:
    """Return the results of `scenario run`, by case."""
    subprocess.run(
        [
            *(sys.executable, "-c", "from runner.cli import main; main()"),
            *("run", str(folder), "--json", str(report)),
        ],
        capture_output=True,
        check=False,
        timeout=FOLDER_S,
    )
    told = json.loads(report.read_text(encoding="utf-8"))
    return {result["case"]: result for result in told["results"]}


def ends_a_process(result: dict[str, Any]) -> bool:
    """Return whether a case ends a process, and so a launch that others started."""
    return bool((result.get("observed") or {}).get("died"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_comes_to_the_same_on_two_hosts(hosts: Hosts, folder: str) -> None:
    near = on_one_machine(CORPUS / folder, hosts.folder / "near.json")
    ending = {case for case, result in near.items() if ends_a_process(result)}
    # a call that hangs in the store does not come back, and its launch with it
    ending |= {"group_creation"}
    left_out = ["-k", " and ".join(f"not {case}" for case in sorted(ending))]
    hosts.launch(str(CORPUS / folder), *left_out, ranks=4)
    far = hosts.ended(FOLDER_S)
    verdicts = {case: near[case]["verdict"] for case in far.verdicts}
    # what needs more ranks than the eight of this launch is unsupported here
    wide = {case for case in verdicts if "ranks; this launch has" in far.reason(case)}
    assert far.verdicts == {**verdicts, **dict.fromkeys(wide, "UNSUPPORTED")}, far
    assert set(far.codes) == {0}, far


def test_hosts_with_different_files_run_nothing(hosts: Hosts) -> None:
    folders = {}
    for number in range(2):
        folders[number] = hosts.folder / str(number)
        folders[number].mkdir()
        (folders[number] / "same.yaml").write_text(SUM, encoding="utf-8")
        text = SUM if number == 0 else SUM.replace("[1]", "[2]")
        (folders[number] / "other.yaml").write_text(text, encoding="utf-8")
    hosts.launch(".", folders=folders)
    ended = hosts.ended()
    assert all(code != 0 for code in ended.codes), ended
    assert set(ended.verdicts.values()) == {"INCONCLUSIVE"}
    assert "host node1 (rank 2)" in ended.reason("same")
    assert "other.yaml differs" in ended.reason("same")


def test_hosts_with_different_versions_run_nothing(hosts: Hosts) -> None:
    (hosts.folder / "same.yaml").write_text(SUM, encoding="utf-8")
    # the version of the package is read from its metadata, of which the first on the path counts
    other = hosts.folder / "other" / "scenario_runner-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: scenario-runner\nVersion: 9.9\n")
    path = os.pathsep.join(filter(None, [str(other.parent), os.environ.get("PYTHONPATH", "")]))
    hosts.launch(str(hosts.folder / "same.yaml"), environment={1: {"PYTHONPATH": path}})
    ended = hosts.ended()
    assert all(code != 0 for code in ended.codes), ended
    assert ended.verdicts == {"same": "INCONCLUSIVE"}
    assert "rank 2 on host node1 has scenario-runner 9.9" in ended.reason("same")


def test_a_host_without_the_files_is_named(hosts: Hosts) -> None:
    folders = {number: hosts.folder / str(number) for number in range(2)}
    for folder in folders.values():
        folder.mkdir()
        (folder / "same.yaml").write_text(SUM, encoding="utf-8")
    (folders[0] / "only.yaml").write_text(SUM, encoding="utf-8")
    hosts.launch(".", folders=folders)
    ended = hosts.ended()
    assert "only.yaml is not there on node1" in ended.reason("same")
    shutil.rmtree(folders[1])
