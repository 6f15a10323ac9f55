"""`scenario show`, `ops`, `schema`, `explain` and `completion`."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from torch_scenarios.cli import answers
from torch_scenarios.cli.options import (
    GroupedCommand,
    _pairs,
    add_execution_options,
    add_limit_options,
    is_record,
    option,
)
from torch_scenarios.files import schema_file

# `scenario show`: a case as a space-time diagram in the terminal.

WHAT = "What is drawn"

#: ranks that one range may name
MOST_RANKS = 100_000

#: ranks of a world that is drawn: what starts no process may be larger than what does
MOST_LANES = 16_384


def _ranks(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """Read `0,3,8-11`."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (each.strip() for each in part.partition("-"))
        ends = (first, last) if dash else (first, first)
        if not all(each.isdecimal() for each in ends) or not _is_short(*map(int, ends)):
            message = f"{text!r} names no ranks; ranks are written like 0,3,8-11"
            raise click.BadParameter(message, ctx=ctx, param=param)
        found += range(int(ends[0]), int(ends[1]) + 1)
    return tuple(found)


def _is_short(first: int, last: int) -> bool:
    """Whether a range of ranks has members, and not more than a terminal could ever show."""
    return 0 <= last - first < MOST_RANKS


def _steps(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[int | None, int | None] | None:
    """Read `10:30`, `10:`, `:30` or `10`."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    ends = [part.strip() for part in (first, last if colon else first)]
    if not any(ends) or not all(part.isdecimal() or not part for part in ends):
        message = f"{text!r} names no steps; they are written like 10:30, 10: or :30"
        raise click.BadParameter(message, ctx=ctx, param=param)
    return (int(ends[0]) if ends[0] else None, int(ends[1]) if ends[1] else None)


@click.command("show", cls=GroupedCommand)
@click.argument("target", required=False, metavar="FILE[::CASE]")
@option(WHAT, "--run", "runs", is_flag=True, help="Run it, and draw what was observed.")
@option(
    WHAT,
    "--last",
    is_flag=True,
    help="Draw the latest run, what failed first; FILE[::CASE] then chooses by a part of the name.",
)
@option(WHAT, "--predicted", is_flag=True, help="With --last: draw the prediction of that run.")
@option(
    WHAT,
    "--lowered",
    is_flag=True,
    help="Print the case as a scenario in which each call of its models is a step.",
)
@option(
    WHAT,
    "--html",
    "html_file",
    type=click.Path(),
    metavar="FILE",
    help="Of the folder of a record: write the page that `run --html` writes.",
)
@option(
    WHAT,
    "--trace",
    "trace_file",
    type=click.Path(),
    metavar="FILE",
    help="Of the folder of a record: write a Chrome trace in real times, for ui.perfetto.dev.",
)
@option(
    WHAT,
    "--svg",
    "svg_file",
    type=click.Path(),
    metavar="FILE",
    help="Write the diagram as a picture; `-` is standard output, without the text.",
)
@option(WHAT, "--values", is_flag=True, help="Show what each step left in its tensors.")
@option(
    WHAT,
    "--steps",
    callback=_steps,
    metavar="A:B",
    help="Draw only these steps of the picture, counted from 1: 10:30, 480:, :20.",
)
@option(WHAT, "--ranks", callback=_ranks, metavar="LIST", help="Draw only these ranks: 0,3,8-11.")
@option(
    WHAT,
    "--set",
    "sets",
    multiple=True,
    metavar="K=V",
    callback=_pairs,
    help="Replace a parameter or a matrix key; the value is YAML. Repeatable.",
)
@add_execution_options
@add_limit_options
def show(**options: Any) -> None:
    """Draw a case as a space-time diagram: one lane per rank, time downwards, one row per step.

    Without --run nothing runs: drawn is what the reference semantics predict. Of a file with
    several cases the first is drawn, unless FILE::CASE names one.

    \b
      line  rank 0  rank 1  rank 2
         4  ●━━━━━━━●━━━━━━━●  all_reduce   a collective, over its members
         6  ●──────▶●       │  send / recv  a message; rank 2 takes no part
         8  │       ✗╌╌╌╌╌╌▷?  send to 2    stuck: rank 2 never receives

    On the left are lines of the file; of the folder of a record those of the script. Below it says
    what is wrong, and which rank waits for which.

    \b
    Exit codes: 0 it is drawn, with any verdict; 2 a file or the command line is
    invalid; 3 the environment could not run it; 5 there is no such case.
    """
    if options["last"] and options["runs"]:
        message = "--last draws the latest run; --run makes a new one"
        raise click.UsageError(message)
    if options["target"] is None and not options["last"]:
        message = "name a FILE to draw, or --last for the latest run"
        raise click.UsageError(message)
    reports = [each for each in ("html", "trace") if options[f"{each}_file"] is not None]
    if reports and not is_record(options["target"]):
        message = f"--{reports[0]} is of the folder of a record; of scenarios `scenario run` has it"
        raise click.UsageError(message)
    if options["lowered"]:
        answers.show.print_lowered(options)
        return
    given = click.get_current_context().get_parameter_source("max_ranks")
    if given is ParameterSource.DEFAULT and not options["runs"]:
        options["max_ranks"] = MOST_LANES
    answers.show.show(options)


# `scenario ops`: the operations, as their own declarations describe them.


@click.command("ops")
@click.argument("name", required=False)
@click.option(
    "--functions", is_flag=True, help="The functions of expressions, with an example each."
)
def ops(*, name: str | None, functions: bool) -> None:
    """Show every operation that a step may be, or NAME whole: arguments, semantics, an example."""
    answers.reference.show_operations(name, functions=functions)


# `scenario examples`: the corpus, by subject.


@click.command("examples")
@click.argument("subject", required=False)
def examples(*, subject: str | None) -> None:
    """List the example scenarios that come with the package: the subjects, or those of SUBJECT.

    `scenario new NAME --from groups/groups_even` copies one.
    """
    answers.reference.list_examples(subject)


# `scenario schema`: the JSON Schema of scenario files, for editors; or of the results.


@click.command("schema")
@click.option("--result", is_flag=True, help="The schema of --json instead.")
@click.option("--path", is_flag=True, help="Print where the schema file is, not its text.")
def schema(*, result: bool, path: bool) -> None:
    """Print the JSON Schema (Draft 2020-12) of scenario files.

    An editor's YAML language server completes and explains every key from it; name it in a
    scenario's first line: # yaml-language-server: $schema=PATH
    """
    file = schema_file("result.schema.json" if result else "scenario.schema.json")
    click.echo(str(file) if path else file.read_text(encoding="utf-8"), nl=path)


# `scenario explain`: what a code means, why it is a fault, an example, the fix.

SORTS = ("diagnosis", "finding", "problem", "kind of error")


@click.command("explain")
@click.argument("code", required=False)
def explain(*, code: str | None) -> None:
    """Explain CODE, any word that a report has: a code, a verdict, an outcome, a kind of error.

    Without CODE it lists them all.

    A code is the word in brackets in a message, as in `error[circular_wait]`.
    """
    answers.reference.explain(code)


# `scenario completion`: the script with which a shell completes commands, options and paths.

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SCENARIO_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print the completion script for SHELL, as Click generates it.

    Write it where the shell looks for such scripts, once for each version:

    \b
    bash  d=~/.local/share/bash-completion/completions
          scenario completion bash > $d/scenario
    zsh   scenario completion zsh > "${fpath[1]}/_scenario"
    fish  scenario completion fish > ~/.config/fish/completions/scenario.fish
    """
    from click.shell_completion import get_completion_class

    generator = get_completion_class(shell)
    assert generator is not None
    click.echo(generator(context.find_root().command, {}, "scenario", VARIABLE).source())
