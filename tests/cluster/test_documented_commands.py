"""Each command of docs/how-to/cluster.md runs as it is written there, on small scenarios.

Those of Slurm are in test_slurm.py; the manifest is in tests/unit/test_cluster_page.py.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.execution import netns

if TYPE_CHECKING:
    from hosts import Hosts

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md"
SUM = "world_size: 4\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}, expect: {x: [4]}}]\n"
RUN_S = 300.0
#: what the page says to export on each node before
GIVEN = "the token of these tests"
#: the page's programs are those of this environment; mpirun is told what a test needs
ENVIRONMENT = {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


def commands() -> list[list[str]]:
    """Return the commands of the page, word by word, but for Slurm's."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    found = [shlex.split(block.replace("\\\n", " ")) for block in blocks]
    return [words for words in found if words[0] not in {"srun", "export"}]


ALONE = [words for words in commands() if "--nnodes" not in words and words[1] != "agent"]
SPREAD = [words for words in commands() if "--nnodes" in words and words[1] != "doctor"]
(AGENT,) = [words for words in commands() if words[1] == "agent"]


def written(folder: Path) -> Path:
    """Write the scenarios that the commands name, and return the folder they are run in."""
    place = folder / "scenarios" / "p2p"
    place.mkdir(parents=True)
    for name in ("one", "two"):
        (place / f"{name}.yaml").write_text(SUM, encoding="utf-8")
    return folder


@pytest.mark.parametrize("words", ALONE, ids=" ".join)
def test_a_command_for_one_machine_runs(words: list[str], tmp_path: Path) -> None:
    if shutil.which(words[0], path=ENVIRONMENT["PATH"]) is None:
        pytest.skip(f"{words[0]} is not installed")
    if "--netns" in words and (lack := netns.lack()) is not None:
        pytest.skip(lack)
    done = subprocess.run(
        words,
        cwd=written(tmp_path),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def on_both(hosts: Hosts, *each: list[str]) -> None:
    """Run a command on each host, and assert that the first reports two passes, and both end so."""
    folder = written(hosts.folder)
    outputs = [hosts.folder / f"output{number}.txt" for number in range(2)]
    for number, words in enumerate(each):
        with outputs[number].open("wb") as output:
            more = {**ENVIRONMENT, "GLOO_SOCKET_IFNAME": "eth0", "SCENARIO_TOKEN": GIVEN}
            hosts.agents.append(
                hosts.start(number, words, output=output, folder=folder, environment=more)
            )
    codes = [agent.wait(RUN_S) for agent in hosts.agents]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in outputs]
    assert codes == [0, 0], texts
    assert "2 passed" in texts[0], texts
    assert (folder / "results.json").exists()


@pytest.mark.parametrize("words", SPREAD, ids=" ".join)
def test_a_command_for_two_nodes_runs_on_both(words: list[str], hosts: Hosts) -> None:
    on_both(hosts, words, words)


def test_an_agent_takes_the_command_line_of_the_first_node(hosts: Hosts) -> None:
    (first,) = [words for words in SPREAD if words[0] == "scenario"]
    on_both(hosts, first, AGENT)
