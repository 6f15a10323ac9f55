"""What the tests of records share: scripts that are recorded, once a session each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from projections import in_order, of_program, of_record

from torch_scenarios.cli import cli
from torch_scenarios.language.format import format_file
from torch_scenarios.limits import DEFAULT
from torch_scenarios.record.format import read
from torch_scenarios.record.live import RunOrder, RunProcess, WarmLaunch, start_ranks
from torch_scenarios.record.program import program_of
from torch_scenarios.record.program.fold import project

if TYPE_CHECKING:
    from collections.abc import Mapping

#: word of a script -> why torch 2.6 cannot run it on this machine: on any ranks, on real ones
LACKING_IN_2_6 = {
    "fully_shard": "FSDP2 of torch 2.6 asks the CPU for a stream's events",
    "ScheduleDualPipeV": "torch 2.6 has no DualPipeV",
    "ScheduleZBVZeroBubble": "torch 2.6 asks the rank before for the shapes of a V",
}
LACKING_IN_2_6_LIVE = {
    "torch.distributed.pipelining": "the pipeline schedules of torch 2.6 hang on Gloo",
    "reduce_scatter": "the Gloo of torch 2.6 has no reduce_scatter",
    ".then(": "the Gloo of torch 2.6 waits for a thread that waits for the lock of Python's",
}

SCRIPTS = Path(__file__).parents[1] / "record" / "scripts"


def lacking(script: str, *, live: bool) -> str:
    """Return why the torch that is installed cannot run a script; empty where it can."""
    if not version("torch").startswith("2.6."):
        return ""
    text = (SCRIPTS / script).read_text(encoding="utf-8")
    reasons = {**LACKING_IN_2_6, **(LACKING_IN_2_6_LIVE if live else {})}
    return next((why for word, why in reasons.items() if word in text), "")


def install(folder: Path, package: str, files: Mapping[str, str]) -> str:
    """Write the modules of a package as pip installs one; returns the folder that holds it."""
    held = folder / "site-packages"
    for name, text in {"__init__": "", **files}.items():
        path = held / package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (held / f"{package}-1.0.dist-info").mkdir()
    return str(held)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """What `scenario record` said of a script."""

    code: int
    output: str
    errors: str
    folder: Path
    script: Path
    result: dict[str, Any]

    @property
    def diagnoses(self) -> list[str]:
        """The names of what is wrong."""
        return list(self.result["predicted"]["diagnoses"])

    @property
    def messages(self) -> str:
        """All that is told of what is wrong."""
        return " ".join(problem["message"] for problem in self.result["problems"])

    def is_projected(self) -> None:
        """Assert that the scenario is, projected on each rank, its record, event by event."""
        records = read(self.folder)
        home = str(self.script.parent)
        program = program_of(records, name=self.script.stem, folder=home)
        assert (self.folder / "scenario.yaml").read_text(encoding="utf-8") == program.text
        assert format_file("scenario.yaml", program.text.encode(), DEFAULT).decode() == program.text
        sizes = not any("sizes" in note for note in program.notes)
        world = max(each.world_size for each in records.values())
        found = of_program(program, self.folder / "scenario.yaml", sizes=sizes, world=world)
        for rank, record in records.items():
            assert list(project(program.nodes, rank)) == list(program.programs[rank])
            assert found[rank] == in_order(of_record(record, home, sizes=sizes)), f"rank {rank}"


class SharedLaunch(WarmLaunch):
    """A warm process that stays where one of those who share it is done with it."""

    def start(self, order: RunOrder) -> RunProcess:
        """Start a run; a launcher of the user's own starts its ranks itself."""
        return start_ranks(order) if order.own_launcher else super().start(order)

    def close(self) -> None:
        """Leave it to the others."""

    def end(self) -> None:
        """End it."""
        super().close()


class Recording:
    """Records scripts by the command, the same one once."""

    def __init__(self, folder: Path) -> None:
        """Keep records under a folder."""
        self._folder = folder
        self.of = cache(self._of)

    def _of(self, script: str, *options: str, **variables: str) -> RunEnd:
        if why := lacking(script, live="--fake" not in options):
            pytest.skip(why)
        return self.record(SCRIPTS / script, *options, **variables)

    def record(self, script: Path, *options: str, **variables: str) -> RunEnd:
        """Record a script, wherever it is."""
        folder = self._folder / f"record{len(list(self._folder.iterdir()))}"
        results = folder / "result.json"
        command = ["record", *options, "-o", str(folder), "--json", str(results)]
        limit = [] if "--max-seconds" in options else ["--max-seconds", "240"]
        command += [*limit, "--", str(script)]
        done = CliRunner().invoke(
            cli, command, env={"CHECKPOINT": str(folder / "checkpoint"), **variables}
        )
        assert results.exists(), f"{done.output} {done.exit_code} {done.exception!r}"
        (result,) = json.loads(results.read_text(encoding="utf-8"))["results"]
        return RunEnd(
            code=done.exit_code,
            output=done.stdout,
            errors=done.stderr,
            folder=folder,
            script=script,
            result=result,
        )
