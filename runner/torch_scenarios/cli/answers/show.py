"""The answer of `scenario show`: a case as a space-time diagram in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from torch_scenarios.cli.answers.run import launch_options
from torch_scenarios.cli.options import INCONCLUSIVE_EXIT, is_record, limits_of, refuse, write_text
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError, ScenarioError
from torch_scenarios.execution import Launcher
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.pipeline.attempts import analyse, execute, result_of
from torch_scenarios.pipeline.history import folder_of
from torch_scenarios.pipeline.interruption import interrupt_on_termination
from torch_scenarios.pipeline.results import Outcome, Result, Selection
from torch_scenarios.pipeline.selection import load_all
from torch_scenarios.record.format import read
from torch_scenarios.record.picture import picture as picture_of_record
from torch_scenarios.report.diagram import (
    Line,
    NoStepsError,
    PictureView,
    Printer,
    StyledText,
    picture,
    svg,
)
from torch_scenarios.report.formats import FORMATS
from torch_scenarios.report.latest import find_latest
from torch_scenarios.report.lowered import lower
from torch_scenarios.report.text import headline
from torch_scenarios.timeline import Timeline, timeline

NOTHING_EXIT = 5

#: further cases that are named
MOST_NAMES = 8


def show(options: dict[str, Any]) -> None:
    """Draw the case that is meant."""
    printer = Printer(sys.stdout)
    view = PictureView(
        width=printer.width,
        values=options["values"],
        ranks=options["ranks"],
        steps=options["steps"],
    )
    try:
        found, lines = _read_latest(options, view) if options["last"] else _draw(options, view)
    except ScenarioError as error:
        refuse(error)
    except LaunchError as error:
        click.echo(clean(str(error)), err=True)
        sys.exit(INCONCLUSIVE_EXIT)
    if options["svg_file"] is not None:
        write_text(options["svg_file"], svg(found, view))
    if options["svg_file"] != "-":
        printer.print(lines)


def print_lowered(options: dict[str, Any]) -> None:
    """Print the case with the calls of its models as steps."""
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
    """Return a case of a file, and its picture in lines. Raises ScenarioError or LaunchError.

    What was observed is drawn if the case was run, else what is predicted. The verdict is below the
    picture where the case was run, or does not pass.
    """
    if is_record(options["target"]):
        others: list[Scenario] = []
        result = _judge_record(options)
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
    analysis = analyse(scenario, limits_of(options))
    if not options["runs"]:
        return result_of(analysis)
    interrupt_on_termination()
    with Launcher(launch_options(options)) as executor:
        return execute(analysis, executor)


def _judge_record(options: dict[str, Any]) -> Result:
    """Return the result of a record, and write the reports of it that are asked for.

    A record has no expectations; its result is drawn by the same reports as that of a case.
    """
    folder = Path(options["target"])
    records = read(folder)
    about = next(iter(records.values())).about
    argv = about.get("argv")
    script = str(argv[0]) if isinstance(argv, list) and argv else str(folder)
    home = str(Path(str(about.get("cwd", "")), script).parent)
    result = picture_of_record(records, folder / "scenario.yaml", script=script, folder=home)
    for each in FORMATS:
        path = options.get(each.parameter)
        if path is not None:
            with Path(path).open("w", encoding="utf-8") as file:
                report = each.make(file)
                report.begin(1)
                report.finish(result)
                report.end(Outcome(results=(result,), cases=1, selected=1))
    return result


def _read_latest(options: dict[str, Any], view: PictureView) -> tuple[Timeline, list[Line]]:
    """Return a case of the latest run, and its picture in lines. Raises ScenarioError.

    It was kept with its traces when the run ended, and is not run again. Without a name it is the
    first that was kept; the others are named below it.
    """
    kept, names = find_latest(folder_of(Path.cwd()), options["target"] or "")
    if kept is None:
        click.echo(f"of the latest run no case {options['target']} is kept", err=True)
        also = _also([f"{status:<12} {name}" for name, status in names.items()])
        Printer(sys.stderr).print(also[1:])
        sys.exit(NOTHING_EXIT)
    found = kept.predicted if options["predicted"] else kept.observed or kept.predicted
    if found is None:
        click.echo(f"{kept.name} is {kept.status}: it was not analysed", err=True)
        sys.exit(INCONCLUSIVE_EXIT)
    said = [StyledText(f"{kept.status} in the latest run", "dim")]
    others = [f"{status:<12} {name}" for name, status in names.items() if name != kept.name]
    lines = [*_picture(found, view), [], said, *_also([] if options["target"] else others)]
    return found, lines


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
    verdict = result.verdict
    lines = [[StyledText(headline(result).text, "strong")]]
    lines += [[StyledText(f"  {found.summary}")] for found in verdict.findings]
    return lines + ([[StyledText(f"  {verdict.reason}")]] if verdict.reason else [])


def _also(names: Sequence[str]) -> list[Line]:
    """Return the names of further cases, a few of them."""
    if not names:
        return []
    more = [f"  and {len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    lines = [*(f"  {name}" for name in names[:MOST_NAMES]), *more]
    return [[], [StyledText("also there:", "dim")], *([StyledText(text, "dim")] for text in lines)]
