"""`scenario certify`: levels, what is lacking, what it writes, and backends with a fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from sampling import sampled

from torch_scenarios.cli import cli

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
PLUGIN = """\
import sys

sys.path.insert(0, {root!r})
from benchmarks.mutants import MUTANTS, group_of
from plugins.passing_backend import Passing, register

LACKS = {lacks!r}
register("mine", group_of(MUTANTS[{mutant!r}][1]) if {mutant!r} else Passing)
"""
FILES = (
    "p2p/send_recv",
    "p2p/tags_out_of_order",
    "collectives/all_reduce_sum",
    "collectives/broadcast",
    "groups/groups_even",
    "async/work_and_wait",
    "objects/all_gather_object",
    "wrong/missing_participant/one_round_less",
    "p2p/both_send_first",
)


def certified(
    folder: Path, *arguments: str, mutant: str = "", lacks: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, on a plugin that it has as a file."""
    plugin = folder / "my_backend.py"
    plugin.write_text(PLUGIN.format(root=str(ROOT), lacks=list(lacks), mutant=mutant))
    command = [sys.executable, "-m", "torch_scenarios.cli", "certify", "--plugin", str(plugin)]
    files = [str(ROOT / "scenarios" / f"{name}.yaml") for name in FILES]
    return subprocess.run(
        [*command, "--backend", "mine", *arguments, *files],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


#: names end in these: where the package is installed, the corpus is not this folder
STEMS = {name.split("/")[-1] for name in FILES}


def failed_of(level: dict[str, object]) -> list[object]:
    """Return the cases that failed; there is one at least."""
    failed = level["failed"]
    assert isinstance(failed, list)
    assert failed
    return failed


def levels(folder: Path) -> dict[str, dict[str, object]]:
    document = json.loads((folder / "out" / "certificate.json").read_text())
    found: dict[str, dict[str, object]] = document["levels"]
    return found


@pytest.mark.nightly
def test_a_right_backend_passes_each_level_that_is_asked_for(tmp_path: Path) -> None:
    done = certified(tmp_path, "-o", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note: 1 case is left out: no level asks this backend for it" in done.stderr
    assert "both_send_first" not in done.stdout
    assert "mine passes 6 of 6 levels: p2p, collectives, groups, async, objects, hangs" in (
        done.stdout
    )
    assert all(each["passes"] for each in levels(tmp_path).values())
    page = (tmp_path / "out" / "certificate.md").read_text()
    assert "| p2p | 1 | 1 | 0 | 0 |  |" in page
    badge = (tmp_path / "out" / "badge.svg").read_text()
    assert 'aria-label="torch-scenarios: mine 6/6 levels"' in badge


@pytest.mark.nightly
def test_what_a_plugin_lacks_is_counted_apart(tmp_path: Path) -> None:
    done = certified(tmp_path, "-o", "out", lacks=("tags",), mutant="ignores_tags")
    assert done.returncode == 0, done.stdout + done.stderr
    found = levels(tmp_path)["async"]
    assert (found["passes"], found["lacking"], found["lacks"]) == (True, 1, ["tags"])


@pytest.mark.parametrize(
    ("mutant", "level"),
    sampled([("all_reduce_keeps_the_last", "collectives"), ("ignores_tags", "async")], 2),
)
def test_a_backend_with_a_fault_loses_the_level(tmp_path: Path, mutant: str, level: str) -> None:
    done = certified(tmp_path, "-o", "out", mutant=mutant)
    assert done.returncode == 1, done.stdout + done.stderr
    found = levels(tmp_path)
    assert not found[level]["passes"]
    assert {Path(str(name).split("::")[0]).stem for name in failed_of(found[level])} <= STEMS
    assert found["p2p"]["passes"]
    assert "note: 1 case is left out: no level asks this backend for it" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--backend", "auto"), "name the backend"),
        (("--first", "some.yaml"), "leave PATHS out"),
        (("--plugin", "no_such_file.py"), "there is no file"),
    ],
)
def test_a_wrong_command_line_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    plugin = tmp_path / "my_backend.py"
    plugin.write_text("")
    command = ["certify", "--plugin", str(plugin), "--backend", "mine", *arguments]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2
    assert words in done.output


STORE = """\
import sys

sys.path.insert(0, {root!r})
import torch.distributed as dist
from plugins.store_backend import StoreGroup

LACKS = ["monitored_barrier"]


class Mine(StoreGroup):
    def alltoall(self, outputs, inputs, *options):
        return super().alltoall(outputs, inputs[::-1] if {fault} else inputs, *options)


def make(options, _=None):
    made = Mine(options.store, options.group_rank, options.group_size, options.timeout)
    made.known_as = options.group_id
    return made


dist.Backend.register_backend("mine", make, extended_api=True, devices=["cpu"])
"""


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [True, False])
def test_a_backend_without_gloo_is_certified_and_its_fault_is_named(
    tmp_path: Path, *, fault: bool
) -> None:
    plugin = tmp_path / "my_backend.py"
    plugin.write_text(STORE.format(root=str(ROOT), fault=fault))
    names = (
        "collectives/all_to_all",
        "p2p/tags_out_of_order",
        "groups/groups_even",
        "rooted/gather",
    )
    files = [str(ROOT / "scenarios" / f"{name}.yaml") for name in names]
    command = [sys.executable, "-m", "torch_scenarios.cli", "certify", "--plugin", str(plugin)]
    done = subprocess.run(
        [*command, "--backend", "mine", *files],
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert done.returncode == int(fault), done.stdout + done.stderr
    assert [Path(line.split()[1].partition("::")[0]).stem for line in failed] == (
        ["all_to_all"] if fault else []
    )


METHOD = """\
import sys

sys.path.insert(0, {root!r})
from plugins.passing_backend import Passing, register


def helper(one):
    return one


class Mine(Passing):
    def allreduce(self, {parameters}):
        {line}
        return self.gloo.allreduce({parameters})


register("mine", Mine)
"""


@pytest.mark.parametrize(
    ("parameters", "line", "status", "words"),
    sampled(
        [
            ("tensors, options", "helper(1, two=2)", "FAILED", "helper() got an unexpected"),
            ("tensors, options", "None + 1", "FAILED", "unsupported operand type(s)"),
            ("tensors", "pass", "UNSUPPORTED", "torch calls the method `allreduce` of the"),
        ],
        2,
    ),
)
def test_a_bug_inside_of_a_method_fails_and_other_arguments_are_lacking(
    tmp_path: Path, parameters: str, line: str, status: str, words: str
) -> None:
    plugin = tmp_path / "my_backend.py"
    plugin.write_text(METHOD.format(root=str(ROOT), parameters=parameters, line=line))
    command = [sys.executable, "-m", "torch_scenarios.cli", "certify", "--plugin", str(plugin)]
    done = subprocess.run(
        [*command, "--backend", "mine", str(ROOT / "scenarios/collectives/all_reduce_sum.yaml")],
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == int(status == "FAILED"), done.stdout + done.stderr
    assert any(line.startswith(status) for line in done.stdout.splitlines())
    assert words in " ".join(done.stdout.split())
