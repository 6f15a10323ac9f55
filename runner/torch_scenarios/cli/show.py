"""`scenario show`, `ops`, `schema`, `explain` and `completion`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from torch_scenarios.cli.options import (
    INCONCLUSIVE_EXIT,
    GroupedCommand,
    _pairs,
    add_execution_options,
    add_limit_options,
    launch_options,
    limits_of,
    option,
    refuse,
    refuse_usage,
    write_text,
)
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError, ScenarioError
from torch_scenarios.files import schema_file
from torch_scenarios.pipeline.interruption import interrupt_on_termination
from torch_scenarios.pipeline.results import Result
from torch_scenarios.report.diagram import (
    Line,
    NoStepsError,
    PictureView,
    Piece,
    Printer,
    picture,
    svg,
)
from torch_scenarios.timeline import Timeline

if TYPE_CHECKING:
    from torch_scenarios.model.scenario import Scenario

# -------------------------------------------------------------------------------------------------
# `scenario show`: a case as a space-time diagram in the terminal.

NOTHING_EXIT = 5

WHAT = "What is drawn"

#: ranks that one range may name
MOST_RANKS = 100_000

#: ranks of a world that is drawn: what starts no process may be larger than what does
MOST_LANES = 16_384

#: further cases that are named
MOST_NAMES = 8


def _ranks(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """Read `0,3,8-11`."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (each.strip() for each in part.partition("-"))
        ends = (first, last) if dash else (first, first)
        if not all(each.isdecimal() for each in ends) or not _few(*map(int, ends)):
            message = f"{text!r} names no ranks; ranks are written like 0,3,8-11"
            raise click.BadParameter(message, ctx=ctx, param=param)
        found += range(int(ends[0]), int(ends[1]) + 1)
    return tuple(found)


def _few(first: int, last: int) -> bool:
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
    if reports and not _is_record(options["target"]):
        message = f"--{reports[0]} is of the folder of a record; of scenarios `scenario run` has it"
        raise click.UsageError(message)
    if options["lowered"]:
        _print_lowered(options)
        return
    given = click.get_current_context().get_parameter_source("max_ranks")
    if given is ParameterSource.DEFAULT and not options["runs"]:
        options["max_ranks"] = MOST_LANES
    printer = Printer(sys.stdout)
    view = PictureView(
        width=printer.width,
        values=options["values"],
        ranks=options["ranks"],
        steps=options["steps"],
    )
    try:
        found, lines = _latest(options, view) if options["last"] else _draw(options, view)
    except ScenarioError as error:
        refuse(error)
    except LaunchError as error:
        click.echo(clean(str(error)), err=True)
        sys.exit(INCONCLUSIVE_EXIT)
    if options["svg_file"] is not None:
        write_text(options["svg_file"], svg(found, view))
    if options["svg_file"] != "-":
        printer.print(lines)


def _print_lowered(options: dict[str, Any]) -> None:
    """Print the case with the calls of its models as steps."""
    from torch_scenarios.report.lowered import lower

    if options["target"] is None:
        message = "--lowered takes a FILE"
        raise click.UsageError(message)
    try:
        scenario, _ = _choose_case(options)
        text = lower(scenario, limits_of(options))
    except ScenarioError as error:
        refuse(error)
    except ValueError as error:
        click.echo(str(error), err=True)
        sys.exit(NOTHING_EXIT)
    if text is None:
        click.echo(f"{scenario.case} trains no model: there is nothing to lower", err=True)
        sys.exit(NOTHING_EXIT)
    click.echo(text, nl=False)


def _draw(options: dict[str, Any], view: PictureView) -> tuple[Timeline, list[Line]]:
    """Return a case of a file, and its picture in lines. Raises ScenarioError or LaunchError."""
    from torch_scenarios.timeline import timeline

    if _is_record(options["target"]):
        others: list[Scenario] = []
        result = _of_record(options)
        assert result.scenario is not None
        scenario = result.scenario
    else:
        scenario, others = _choose_case(options)
        result = _result(options, scenario)
    verdict = result.verdict
    trace = verdict.observed or verdict.predicted
    if trace is None:
        if verdict.problems:
            raise ScenarioError(verdict.problems)
        raise LaunchError(verdict.reason or verdict.status)
    found = timeline(scenario, trace, verdict.predicted)
    lines = _picture(found, view)
    if options["runs"] or verdict.status != "PASSED":
        lines += [[], *_tell_verdict(result)]
    return found, lines + _also([f"{each.source.path}::{each.case}" for each in others])


def _choose_case(options: dict[str, Any]) -> tuple[Scenario, list[Scenario]]:
    """Return the first case that is meant, and the others."""
    from torch_scenarios.pipeline.results import Selection
    from torch_scenarios.pipeline.selection import load_all

    selection = Selection(
        paths=(options["target"],), sets=options["sets"], limits=limits_of(options)
    )
    loaded = load_all(selection)
    problems = [problem for result in loaded.invalid for problem in result.verdict.problems]
    if problems:
        raise ScenarioError(problems)
    if not loaded.scenarios:
        click.echo("nothing was selected", err=True)
        sys.exit(NOTHING_EXIT)
    first, *others = loaded.scenarios
    return first, others


def _result(options: dict[str, Any], scenario: Scenario) -> Result:
    """Return the result of a case, analysed or run, with its traces."""
    from torch_scenarios.pipeline.attempts import analyse, execute, result_of

    analysis = analyse(scenario, limits_of(options))
    if not options["runs"]:
        return result_of(analysis)
    from torch_scenarios.execution import Launcher

    interrupt_on_termination()
    with Launcher(launch_options(options)) as executor:
        return execute(analysis, executor)


def _is_record(target: str | None) -> bool:
    """Whether a path is the folder of a record."""
    return target is not None and any(Path(target).glob("rank-*.jsonl"))


def _of_record(options: dict[str, Any]) -> Result:
    """Return the result of a record, and write the reports of it that are asked for."""
    from torch_scenarios.pipeline.results import Outcome
    from torch_scenarios.record.format import read
    from torch_scenarios.record.picture import picture
    from torch_scenarios.report.formats import FORMATS

    folder = Path(options["target"])
    records = read(folder)
    about = next(iter(records.values())).about
    argv = about.get("argv")
    script = str(argv[0]) if isinstance(argv, list) and argv else str(folder)
    home = str(Path(str(about.get("cwd", "")), script).parent)
    result = picture(records, folder / "scenario.yaml", script=script, folder=home)
    for each in FORMATS:
        path = options.get(each.parameter)
        if path is not None:
            with Path(path).open("w", encoding="utf-8") as file:
                report = each.make(file)
                report.begin(1)
                report.finish(result)
                report.end(Outcome(results=(result,), cases=1, selected=1))
    return result


def _latest(options: dict[str, Any], view: PictureView) -> tuple[Timeline, list[Line]]:
    """Return a case of the latest run, and its picture in lines. Raises ScenarioError."""
    from torch_scenarios.pipeline.selection import folder_of
    from torch_scenarios.report.latest import latest

    kept, names = latest(folder_of(Path.cwd()), options["target"] or "")
    if kept is None:
        click.echo(f"of the latest run no case {options['target']} is kept", err=True)
        also = _also([f"{status:<12} {name}" for name, status in names.items()])
        Printer(sys.stderr).print(also[1:])
        sys.exit(NOTHING_EXIT)
    found = kept.predicted if options["predicted"] else kept.observed or kept.predicted
    if found is None:
        click.echo(f"{kept.name} is {kept.status}: it was not analysed", err=True)
        sys.exit(INCONCLUSIVE_EXIT)
    said = [Piece(f"{kept.status} in the latest run", "dim")]
    others = [f"{status:<12} {name}" for name, status in names.items() if name != kept.name]
    lines = [*_picture(found, view), [], said, *_also([] if options["target"] else others)]
    return found, lines


# ---------------------------------------------------------------------------- lines


def _picture(timeline: Timeline, view: PictureView) -> list[Line]:
    """Return the picture. Raises BadParameter for ranks and steps that are not there."""
    world = [lane.rank for lane in timeline.lanes]
    strange = [rank for rank in view.ranks or () if rank not in world]
    if strange:
        message = f"there is no rank {strange[0]}, the world has ranks 0 to {world[-1]}"
        raise click.BadParameter(message, param_hint="--ranks")
    try:
        return picture(timeline, view)
    except NoStepsError as error:
        raise click.BadParameter(str(error), param_hint="--steps") from None


def _tell_verdict(result: Result) -> list[Line]:
    """Return the verdict, and in short what speaks against it."""
    from torch_scenarios.report.text import headline

    verdict = result.verdict
    lines = [[Piece(headline(result).text, "strong")]]
    lines += [[Piece(f"  {found.summary}")] for found in verdict.findings]
    return lines + ([[Piece(f"  {verdict.reason}")]] if verdict.reason else [])


def _also(names: Sequence[str]) -> list[Line]:
    """Return the names of further cases, a few of them."""
    if not names:
        return []
    more = [f"  and {len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    lines = [*(f"  {name}" for name in names[:MOST_NAMES]), *more]
    return [[], [Piece("also there:", "dim")], *([Piece(text, "dim")] for text in lines)]


# -------------------------------------------------------------------------------------------------
# `scenario ops`: the operations, as their own declarations describe them.


@click.command("ops")
@click.argument("name", required=False)
@click.option(
    "--functions", is_flag=True, help="The functions of expressions, with an example each."
)
def ops(*, name: str | None, functions: bool) -> None:
    """Show every operation that a step may be, or NAME whole: arguments, semantics, an example."""
    from torch_scenarios.errors import nearest
    from torch_scenarios.operations import BY_NAME
    from torch_scenarios.report.operations import functions as every_function
    from torch_scenarios.report.operations import overview, page

    if functions:
        click.echo(every_function())
        return
    if name is None:
        click.echo(overview())
        return
    operation = BY_NAME.get(name)
    if operation is None:
        close = nearest(name, BY_NAME)
        hint = f"did you mean {close}?" if close else "`scenario ops` lists them all"
        refuse_usage(f"there is no operation {name}; {hint}")
    click.echo(page(operation))


# -------------------------------------------------------------------------------------------------
# `scenario examples`: the corpus, by subject.


@click.command("examples")
@click.argument("subject", required=False)
def examples(*, subject: str | None) -> None:
    """List the example scenarios that come with the package: the subjects, or those of SUBJECT.

    `scenario new NAME --from groups/groups_even` copies one.
    """
    from torch_scenarios.errors import nearest
    from torch_scenarios.explain.corpus import SUBJECTS
    from torch_scenarios.explain.corpus import examples as examples_of

    if subject is None:
        width = max(map(len, SUBJECTS))
        for name, about in SUBJECTS.items():
            click.echo(f"{name:<{width}}  {about}")
        click.echo("\n`scenario examples SUBJECT` lists those of one.")
        return
    if subject not in SUBJECTS:
        close = nearest(subject, SUBJECTS)
        hint = f"did you mean {close}?" if close else "`scenario examples` lists the subjects"
        refuse_usage(f"there is no subject {subject}; {hint}")
    for each in examples_of(subject):
        click.echo(each.name)
        click.echo(textwrap.fill(each.lesson, 96, initial_indent="    ", subsequent_indent="    "))


# -------------------------------------------------------------------------------------------------
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


# -------------------------------------------------------------------------------------------------
# `scenario explain`: what a code means, why it is a fault, an example, the fix.

SORTS = ("diagnosis", "finding", "problem", "kind of error")


@click.command("explain")
@click.argument("code", required=False)
def explain(*, code: str | None) -> None:
    """Explain CODE, any word that a report has: a code, a verdict, an outcome, a kind of error.

    Without CODE it lists them all.

    A code is the word in brackets in a message, as in `error[circular_wait]`.
    """
    from torch_scenarios.errors import nearest
    from torch_scenarios.explain import EXPLANATIONS, explanation, page
    from torch_scenarios.operations import BY_NAME

    if code is None:
        width = max(map(len, EXPLANATIONS))
        sorts = dict.fromkeys(each.sort for each in EXPLANATIONS.values())
        for sort in (
            "diagnosis",
            "finding",
            "warning",
            *(s for s in sorts if s not in {"diagnosis", "finding", "warning"}),
        ):
            click.echo(f"{sort}:")
            for each in EXPLANATIONS.values():
                if each.sort == sort:
                    click.echo(f"  {each.code:<{width}}  {each.what}")
        return
    found = explanation(code)
    if found is None:
        close = nearest(code, EXPLANATIONS)
        hint = f"did you mean {close}?" if close else "`scenario explain` lists them all"
        if code in BY_NAME:
            hint = f"`scenario ops {code}` shows the operation"
        refuse_usage(f"there is no code {code}; {hint}")
    click.echo(page(found))


# -------------------------------------------------------------------------------------------------
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
