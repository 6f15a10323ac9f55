"""A real Slurm starts the ranks: `srun`, and the job that docs/how-to/cluster.md shows."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from slurm import Slurm, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hosts import Hosts

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "cluster.md"
WRONG = "world_size: 4\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}, expect: {x: [5]}}]\n"


@pytest.fixture
def slurm(hosts: Hosts) -> Iterator[Slurm]:
    """Return a Slurm over two hosts."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Slurm(hosts) as started:
        yield started


def documented(language: str) -> list[str]:
    """Return the blocks of the page in a language."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_srun_starts_a_launch_over_two_hosts(slurm: Slurm, hosts: Hosts) -> None:
    line = next(block for block in documented("sh") if block.startswith("srun "))
    shutil.copytree(ROOT / "scenarios" / "groups", hosts.folder / "scenarios")
    command = line.split()
    code, output = slurm.run(*command[:-1], "--json", "results.json", command[-1])
    report = json.loads((hosts.folder / "results.json").read_text(encoding="utf-8"))
    verdicts = {result["verdict"] for result in report["results"]}
    assert code == 0, output
    assert verdicts <= {"PASSED", "UNSUPPORTED"}, output
    assert "PASSED" in verdicts


@pytest.mark.parametrize("wrong", [False, True])
def test_the_documented_job_reports_and_ends_with_the_code(
    slurm: Slurm, hosts: Hosts, *, wrong: bool
) -> None:
    (script,) = documented("bash")
    (hosts.folder / "scenarios.sbatch").write_text(script, encoding="utf-8")
    shutil.copytree(ROOT / "scenarios" / "groups", hosts.folder / "scenarios")
    if wrong:
        (hosts.folder / "scenarios" / "wrong.yaml").write_text(WRONG, encoding="utf-8")
    code, output = slurm.run("sbatch", "--wait", "scenarios.sbatch")
    logs = [path.read_text(encoding="utf-8") for path in hosts.folder.glob("scenarios-*.log")]
    assert code == int(wrong), (output, logs)
    report = json.loads((hosts.folder / "results.json").read_text(encoding="utf-8"))
    failed = {each["case"] for each in report["results"] if each["verdict"] == "FAILED"}
    assert failed == ({"wrong"} if wrong else set())
    assert "<testcase" in (hosts.folder / "results.xml").read_text(encoding="utf-8")


def test_a_worker_in_the_batch_script_says_that_srun_is_missing(slurm: Slurm, hosts: Hosts) -> None:
    script = "#!/bin/bash\n#SBATCH --output=out.log\npython -m torch_scenarios.worker scenarios\n"
    (hosts.folder / "bare.sbatch").write_text(script, encoding="utf-8")
    code, _ = slurm.run("sbatch", "--wait", "bare.sbatch")
    assert code == 1
    assert "`srun python -m torch_scenarios.worker" in (hosts.folder / "out.log").read_text()
