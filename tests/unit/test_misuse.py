"""Command lines that cannot be used: one line, one style, and every `--help` within 80 columns."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from torch_scenarios.cli import COMMANDS, cli

MISUSES = {
    "runn": "scenario: there is no command runn; did you mean run?",
    "juggle": "scenario: there is no command juggle; `scenario --help` lists the commands",
    "--verson": "scenario: there is no option --verson; did you mean scenario --version?",
    "run --jbos 3": "scenario run: there is no option --jbos; did you mean --jobs?",
    "run --versoin": "scenario run: there is no option --versoin; did you mean scenario --version?",
    "run --keep-going": "scenario run: there is no option --keep-going; "
    "`scenario run --help` shows how it is used",
    "record train.py --epochs 3": "scenario record: there is no option --epochs; an option of the "
    "script comes behind `--`, as `scenario record -- train.py --epochs`",
    "record --nproc-per-node 2 train.py": "scenario record: there is no option --nproc-per-node; "
    "`-n 2` starts two ranks, and torchrun comes behind `--`, as `scenario record -- torchrun "
    "--nproc-per-node=2 train.py`",
    "parity -n 2 train.py --jsno": "scenario parity: there is no option --jsno; did you mean "
    "--json? An option of the script comes behind `--`, as `scenario parity -- train.py --jsno`",
    "run --jobs": "scenario run: --jobs needs a value; `scenario run --help` shows how it is used",
    "run --jobs x": "scenario run: --jobs: 'x' is neither a number from 1 to 64 nor `auto`",
    "cost --nodes 0 x": "scenario cost: --nodes: 0 is not in the range x>=1; "
    "`scenario cost --help` shows how it is used",
    "merge": "scenario merge: RESULTS... is missing; `scenario merge --help` shows how it is used",
    "doctor a b": "scenario doctor: a b is more than it takes; "
    "`scenario doctor --help` shows how it is used",
    "agent": "scenario agent: --rdzv-endpoint is missing; "
    "`scenario agent --help` shows how it is used",
    "show": "scenario show: name a FILE to draw, or --last for the latest run",
    "ops al_reduce": "scenario ops: there is no operation al_reduce; did you mean all_reduce?",
    "explain circular": "scenario explain: there is no code circular; did you mean circular_wait?",
    "topology lsit": "scenario topology: there is no command lsit; did you mean list?",
}
#: other ways in which a command line may be wrong, of which the words are not fixed here
OTHERS = (
    "run --backend glo .",
    "run --seconds",
    "run --repeat 0 .",
    "run --timeout x .",
    "run --max-seconds nan .",
    "check --set ab .",
    "check --limit ranks .",
    "check --limit rnaks=3 .",
    "check --limit ranks=0 .",
    "check --torch two .",
    "check - .",
    "list --x",
    "list --tag",
    "show --ranks 5x .",
    "show --steps a:b .",
    "show --last --run",
    "show --lowered",
    "show --html page.html ring.yaml",
    "record",
    "record -n 0 -- x.py",
    "parity",
    "import",
    "diff a",
    "diff a b c",
    "hang --pid x",
    "plan",
    "certify",
    "conformance x",
    "cost --algo rign .",
    "cost --fit",
    "bench --fail-above 2 .",
    "bench --raw .",
    "topology",
    "examples nope",
    "schema x",
    "completion tcsh",
    "new",
    "new a/b?c",
    "fmt",
    "fmt - x.yaml",
    "bless",
    "bless --x",
    "minimize",
    "minimize --x y",
    "lsp x",
    "doctor --nnodes 0",
    "doctor --rdzv-endpoint x",
)


def refused(line: str) -> str:
    """Return what a command line that cannot be used is answered."""
    done = CliRunner().invoke(cli, line.split(), prog_name="scenario")
    assert done.exit_code == 2, (line, done.output, done.exception)
    assert done.stdout == "", line
    return done.stderr


@pytest.mark.parametrize("line", MISUSES)
def test_a_misuse_has_one_line_that_says_what_and_what_to_do(line: str) -> None:
    assert refused(line) == MISUSES[line] + "\n"


@pytest.mark.parametrize("line", OTHERS)
def test_every_misuse_has_the_same_style(line: str) -> None:
    words = refused(line)
    if words.startswith("Usage: "):  # a group alone shows its page
        assert line == "topology"
        return
    command = line.split(maxsplit=1)[0]
    assert re.fullmatch(rf"scenario {command}: [^\n]+[^.\n]\n", words), words


def commands(group: click.Group, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the command lines of a group and of all that is below it."""
    context = click.Context(group)
    found: list[tuple[str, ...]] = [names]
    for name in group.list_commands(context):
        inner = group.get_command(context, name)
        assert inner is not None
        below = commands(inner, (*names, name)) if isinstance(inner, click.Group) else None
        found += below or [(*names, name)]
    return found


def test_every_help_is_within_80_columns() -> None:
    lines = commands(cli, ())
    assert len(lines) > len(COMMANDS)
    for words in lines:
        page = CliRunner().invoke(cli, [*words, "--help"], terminal_width=80).stdout
        wide = [line for line in page.splitlines() if len(line) > 80]
        assert not wide, (words, wide)
