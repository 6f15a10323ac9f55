"""`scenario record` and `import`: programs as they are, recorded and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torch_scenarios.cli import answers
from torch_scenarios.cli.options import HOW, REPORTS, GroupedCommand, option


@click.command("record", cls=GroupedCommand, context_settings={"ignore_unknown_options": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@option(
    HOW, "-n", "--world-size", type=click.IntRange(1, 65_536), default=None, help="How many ranks."
)
@option(HOW, "-m", "--module", is_flag=True, help="Run a module, as `python -m` does.")
@option(
    HOW, "--fake", is_flag=True, help="Communicate nothing: torch's fake group, one process a rank."
)
@option(HOW, "--ranks", "ranks", default="all", help="With --fake: which ranks; `all`, or `0,8`.")
@option(
    HOW, "-j", "--jobs", type=click.IntRange(1), default=None, help="With --fake: ranks at once."
)
@option(
    HOW, "--writes-allowed", is_flag=True, help="With --fake: let ranks write the script's files."
)
@option(
    HOW,
    "--times-on",
    "machine",
    metavar="NAME|FILE",
    help="With --fake: reckon kernels and memory on this machine, on tensors without memory; "
    "`scenario cost` weighs the step.",
)
@option(
    HOW, "--values", is_flag=True, help="Compare what the ranks hold: weights, gradients, rows."
)
@option(
    HOW,
    "--redeal",
    type=click.Choice(["rows", "ranks", "micro", "world", "resume"]),
    is_flag=False,
    flag_value="rows",
    default=None,
    help="Deal the same batches to other ranks in further runs: gradients must not change.",
)
@option(HOW, "--allow", multiple=True, help="With --redeal: a module that may make a difference.")
@option(HOW, "--batch", default="", help="With --redeal: the line that makes a batch, FILE:LINE.")
@option(HOW, "--no-dropout", is_flag=True, help="With values: let every dropout keep all.")
@option(
    HOW,
    "--nemesis",
    type=click.Choice(["raise", "die", "late", "all"]),
    is_flag=False,
    flag_value="raise",
    default=None,
    help="Run it again for each of its calls: one rank raises there, is killed or late. Which of "
    "them hang?",
)
@option(HOW, "--cuda-as-cpu", is_flag=True, help="Take the CPU for every CUDA device.")
@option(
    HOW, "--max-seconds", type=click.FloatRange(0), default=0.0, help="End the run after so long."
)
@option(HOW, "--keep", is_flag=True, help="Leave ranks that are stuck alone.")
@option(
    HOW, "--join", is_flag=True, help="Where it is stuck, run it again with fake ranks to its end."
)
@option(
    HOW, "--attach", is_flag=True, help="Print the variables under which your launcher records."
)
@option(
    REPORTS,
    "-o",
    "--output",
    "folder",
    type=click.Path(),
    default=None,
    help="The folder of the record.",
)
@option(REPORTS, "-q", "--quiet", is_flag=True, help="Show the verdict alone.")
@option(
    REPORTS, "--yaml", "yaml", type=click.Path(), default=None, help="Write the scenario there."
)
@option(
    REPORTS,
    "--json",
    "as_json",
    type=click.Path(),
    default=None,
    help="Write the result as `check` does.",
)
@option(REPORTS, "--strict", is_flag=True, help="Let a warning be a failure.")
def record(**options: Any) -> None:
    """Record a training script on its ranks, and judge what it communicates.

    COMMAND is a script with its arguments, behind `--`; or a launcher of your own (torchrun),
    under which the ranks record themselves. Exit codes: 1 where something is wrong, 3 where nothing
    is and the record is not the whole program, otherwise the script's own.
    """
    answers.record.record(options)


@click.command("import", cls=GroupedCommand)
@click.argument("folder", type=click.Path(exists=True))
@option(REPORTS, "-q", "--quiet", is_flag=True, help="Show the verdict alone.")
@option(
    REPORTS, "--yaml", "yaml", type=click.Path(), default=None, help="Write the scenario there."
)
@option(
    REPORTS,
    "--json",
    "as_json",
    type=click.Path(),
    default=None,
    help="Write the result as `check` does.",
)
def import_records(**options: Any) -> None:
    """Judge a record of ours, dumps of torch's flight recorder, or what a job has printed.

    The content shows which. Of a log, lines of NCCL's watchdog, torchrun's table of errors,
    tracebacks of ranks, stacks of py-spy and the JSON of NCCL's RAS are read.

    Exit codes: 0 nothing is wrong, 1 something is, 2 it is not a record, 3 it is not whole.
    """
    answers.record.import_records(options)


@click.command("diff", cls=GroupedCommand)
@click.argument("a", type=click.Path(exists=True, path_type=Path))
@click.argument("b", type=click.Path(exists=True, path_type=Path))
@option(
    REPORTS,
    "--json",
    "as_json",
    type=click.Path(),
    default=None,
    help="Write the differences as JSON; `-` is standard output.",
)
@option(
    REPORTS,
    "--html",
    "html_file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Of two pages: write the second one anew, with what each case was in the first.",
)
def diff(**options: Any) -> None:
    """Compare what the ranks of two programs communicate: A before, B after.

    Each is the folder of a record, dumps of the flight recorder, or a scenario. A difference is
    shown with the ranks that have it and the lines of both sides. Values are not compared.

    Or A and B are pages that `scenario run --html` wrote: cases whose verdicts, endings or values
    differ are shown, and how long each run took.

    Exit codes: 0 they are equal, 1 they differ, 2 one of them is neither of these.
    """
    answers.record.diff(options)
