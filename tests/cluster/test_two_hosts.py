"""Two hosts come to the same verdicts as one machine, and run nothing where they differ."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hosts import SUM, Hosts

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]

CORPUS = Path(__file__).parents[2] / "scenarios"
FOLDERS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir())
#: what is said of a case whose launch ended with the one before
ENDED = "this launch ended with"
#: seconds that a folder may take on two hosts, with every core busy
FOLDER_S = 600.0


def on_one_machine(folder: Path, report: Path) -> dict[str, dict[str, Any]]:
    """Return the results of `scenario run`, by case."""
    subprocess.run(
        [
            *(sys.executable, "-c", "from torch_scenarios.cli import main; main()"),
            *("run", str(folder), "--json", str(report)),
        ],
        capture_output=True,
        check=False,
        timeout=FOLDER_S,
    )
    told = json.loads(report.read_text(encoding="utf-8"))
    return {result["case"]: result for result in told["results"]}


def on_two_hosts(folder: Path, cases: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the results of cases on two hosts, by name.

    A case that ends a process, or leaves one in a call that does not return, ends the launch
    (docs/how-to/cluster.md): what it left goes to the next one.
    """
    left, found = dict(cases), {}
    while left:
        places = [f"{result['file']}::{case}" for case, result in left.items()]
        (folder / "report.json").unlink(missing_ok=True)
        with Hosts(folder) as hosts:
            hosts.launch(*places, ranks=4)
            ended = hosts.ended(FOLDER_S)
        assert ended.report is not None, ended.output
        results = {result["case"]: result for result in ended.report["results"]}
        done = {case for case in results if ENDED not in str(results[case].get("reason"))}
        assert done, ended
        assert done == left.keys() or all(code != 0 for code in ended.codes), ended
        found.update({case: results[case] for case in done})
        left = {case: result for case, result in left.items() if case not in done}
    return found


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_comes_to_the_same_on_two_hosts(folder: str, tmp_path: Path) -> None:
    near = on_one_machine(CORPUS / folder, tmp_path / "near.json")
    far = on_two_hosts(tmp_path, near)
    # what needs more ranks than the eight of this launch is unsupported there
    wide = {case for case in far if "ranks; this launch has" in str(far[case].get("reason"))}
    expected = {case: "UNSUPPORTED" if case in wide else near[case]["verdict"] for case in near}
    assert {case: result["verdict"] for case, result in far.items()} == expected, {
        case: far[case] for case in far if far[case]["verdict"] != expected[case]
    }


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
    other = hosts.folder / "other" / "torch_scenarios-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-scenarios\nVersion: 9.9\n")
    path = os.pathsep.join(filter(None, [str(other.parent), os.environ.get("PYTHONPATH", "")]))
    hosts.launch(str(hosts.folder / "same.yaml"), environment={1: {"PYTHONPATH": path}})
    ended = hosts.ended()
    assert all(code != 0 for code in ended.codes), ended
    assert ended.verdicts == {"same": "INCONCLUSIVE"}
    assert "rank 2 on host node1 has torch-scenarios 9.9" in ended.reason("same")


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
