"""`scenario new`, `fmt`, `bless` and `minimize`."""

from __future__ import annotations

from typing import Any

import click

from torch_scenarios.cli import answers
from torch_scenarios.cli.options import (
    HOW,
    GroupedCommand,
    add_execution_options,
    add_limit_options,
    option,
)
from torch_scenarios.cli.starts import STARTS

# `scenario new`: a commented scenario that passes, to start from.


# scenarios of training, one a strategy: `scenario new --strategy`


@click.command("new")
@click.argument("name")
@click.option(
    "--from",
    "example",
    metavar="EXAMPLE",
    help="Copy this example of the package, such as groups/groups_even.",
)
@click.option(
    "--strategy",
    type=click.Choice(tuple(STARTS)),
    help="Write one that trains a small model so.",
)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def new(*, name: str, example: str | None, strategy: str | None, force: bool) -> None:
    """Write NAME.yaml, a commented scenario that passes, to start from.

    `scenario examples` lists what --from can copy.
    """
    answers.edit.new(name=name, example=example, strategy=strategy, force=force)


# `scenario fmt`: the one layout of scenario files, without a change of what they say.


@click.command("fmt")
@click.argument("paths", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; name the files that would change, and exit with 1 if there is one.",
)
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
@click.option(
    "--stdin-filename",
    default="<stdin>",
    metavar="PATH",
    help="What messages call the text on standard input.",
)
def fmt(*, paths: tuple[str, ...], check: bool, diff: bool, stdin_filename: str) -> None:
    """Lay out scenario files: indentation, blanks, and the order of keys at the top and in a step.

    PATHS are scenario files, or folders that hold some; - reads standard input and writes to
    standard output, for editors. What a file says never changes, and no comment is lost: the new
    text is read again and compared before it is written. Flow mappings, texts that span lines and
    whatever could not be moved safely stay as they were written. An invalid file is reported, and
    left alone.
    """
    answers.edit.fmt(paths=paths, check=check, diff=diff, stdin_filename=stdin_filename)


# `scenario bless`: fill in what a file expects, where the reference and the run agree on it.


@click.command("bless", cls=GroupedCommand)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@option(HOW, "--review", is_flag=True, help="Show each file's change and ask before it is made.")
@option(
    HOW,
    "--dry-run",
    is_flag=True,
    help="Print the changes; run nothing, write nothing. For CI, too.",
)
@option(
    HOW,
    "--every-step",
    is_flag=True,
    help="Let each step state what it writes, also where the file already states something.",
)
@option(
    HOW,
    "--runs",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    metavar="N",
    help="How often each case must pass before it is written.",
)
@add_execution_options
@add_limit_options
def bless_files(**options: Any) -> None:
    """Fill in expected values that are missing or wrong, and change nothing else in the file.

    PATHS are scenario files, or folders that hold some. Missing is a value that is left out (`x:`,
    `x: null`, `x: ...`), what a step with an empty `expect:` writes and, in a file without any
    `expect`, what each step writes. Values come from the reference semantics, and are written only
    where the new file passes: in the analysis, and in every one of several runs.

    Refused, with the reason: programs that hang, crash or raise without the file saying so, cases
    that do not pass every time, values on which reference and run disagree, values that no
    program may rely on, one text for cases that differ, expectations in a used part. How a
    scenario ends (outcome, blocked, diagnosis, raises) is never written. In CI (the variable CI
    is set) nothing is blessed: a person must look at an expectation.

    \b
    Exit codes: 0 everything is blessed or as it should be; 1 a file was refused
    or, with --dry-run, would change; 2 a file or the command line is invalid, and
    nothing was written; 3 the environment could not run it; 5 nothing was
    selected; 130 interrupted.
    """
    answers.edit.bless_files(options)


# `scenario minimize`: the smallest scenario with the same fault, as YAML on standard output.


@click.command("minimize", cls=GroupedCommand)
@click.argument("target", metavar="FILE[::CASE]")
@option(
    HOW,
    "--run",
    "runs",
    is_flag=True,
    help="Run each attempt on a backend: for a fault that only a run shows.",
)
@option(
    HOW,
    "--max-attempts",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Give the smallest so far after so many attempts.",
)
@add_execution_options
@add_limit_options
def minimize_file(**options: Any) -> None:
    """Shrink a failing or deadlocking scenario to a smallest one with the same fault.

    Steps, ranks, groups, tensors, sizes, rounds of loops, parameters and arguments are left out or
    made smaller, as long as the verdict, the outcome, the diagnoses and the kinds of findings stay
    the same. The result goes to standard output, ready to be committed: comments and layout of what
    remains stay, and it passes or fails as FILE does. Nothing in it can be left out alone. The
    name, the description and the tags are kept: see whether they still fit.

    Of a file with several cases the first with a fault is used, or CASE. The analysis tells what
    an attempt shows, some hundred times a second. --run asks a backend as well, for a fault that
    only a run shows, or where the semantics leave open how one ends. Ctrl-C gives the smallest
    so far.

    \b
    Exit codes: 0 the result is printed; 1 the scenario shows no fault that could
    be kept; 2 the file or the command line is invalid; 3 the environment could
    not run it; 130 interrupted, and the smallest so far is printed.
    """
    answers.edit.minimize_file(options)
