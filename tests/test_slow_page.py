"""The page on slow programs: each forecast and each plan that it shows is what is printed now."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from pages import Block, blocks, noted, scenario, write_files

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "slow.md"
TEXT = PAGE.read_text(encoding="utf-8")
#: the plans by what asks for them: keys of the model that differ from the first one, and options
PLANS = noted(PAGE, "plan:")
#: options of a plan that states none
FEW = "--gpus 64 --most 3"
#: the sizes of the model that the five questions are asked about
SIZES = "--topology h100-8x400g --set layers=80 --set block=855654400 --set hidden=8192"


def cost(folder: Path, options: str) -> str:
    write_files(PAGE, folder)
    done = scenario("cost", "llama.yaml", *shlex.split(f"{SIZES} {options}"), folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "session",
    [each for each in blocks(PAGE) if each.kind == "console"],
    ids=lambda each: each.about,
)
def test_forecasts_are_those_of_the_command_to_their_last_digit(
    session: Block, tmp_path: Path
) -> None:
    """A forecast is no measurement: its times do not change from run to run."""
    write_files(PAGE, tmp_path)
    command, _, shown = session.body.partition("\n")
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "scenario"
    assert scenario(*arguments, folder=tmp_path).stdout.strip() == shown.strip()


@pytest.mark.parametrize(
    ("options", "step", "exposed", "memory"),
    re.findall(
        r"^\| [^|]+ \| `([^`]+)` \| ([^|]+ s) \| ([^|]+%\)) \| ([^|]+) \|$", TEXT, re.MULTILINE
    ),
)
def test_variants_of_a_step_are_those_of_the_command(
    options: str, step: str, exposed: str, memory: str, tmp_path: Path
) -> None:
    shown = cost(tmp_path, options if options.startswith("--") else "")
    size, _, fits = memory.partition(", ")
    assert f"  time      {step}  (forecast)" in shown
    assert f"{exposed} exposed communication and waiting" in shown
    said = {"fits": "its tensors fit", "does not fit": "its tensors do not fit"}[fits]
    assert f"  memory    {said}: {size} on each rank, of 80 GiB" in shown


def test_all_variants_are_compared() -> None:
    assert TEXT.count("| `--set ") + TEXT.count("| `as it is` |") == 4


@pytest.mark.parametrize(
    ("options", "about"),
    [("--slow 3=1.2", "rank 3 takes 1.2 times"), ("--lost-nics 0=1", "node 0 has lost 1 NIC")],
)
def test_what_if_is_what_the_command_says(options: str, about: str, tmp_path: Path) -> None:
    (line,) = re.findall(rf"^  what if   {about}.*$", TEXT, re.MULTILINE)
    assert line in cost(tmp_path, options).splitlines()


@pytest.mark.parametrize(
    "asked",
    [pytest.param(each, marks=[] if each == FEW else pytest.mark.nightly) for each in PLANS],
)
def test_a_plan_is_the_one_that_is_shown(asked: str, tmp_path: Path) -> None:
    sizes = next(each.body for each in blocks(PAGE) if each.body.startswith("layers: "))
    words = asked.split()
    changed = dict(each.split("=") for each in words if "=" in each)
    model = {**yaml.safe_load(sizes), **{key: int(value) for key, value in changed.items()}}
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(model), encoding="utf-8")
    options = [each for each in words if "=" not in each] or FEW.split()
    machine = ("--topology", "h100-8x400g")
    done = scenario("plan", "model.yaml", *machine, *options, folder=tmp_path)
    assert done.stdout.strip() == PLANS[asked].body.strip()


def test_all_plans_are_compared() -> None:
    tables = [each for each in blocks(PAGE) if "tokens/s/GPU" in each.body]
    assert len(tables) == len(PLANS) == 4
