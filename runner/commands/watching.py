"""`scenario run --watch`: the same scenarios, run again whenever a file of theirs is saved."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from runner.commands.arranging import remembered
from runner.commands.options import refuse, selection_of
from runner.interruption import interrupt_on_termination
from runner.problems import ScenarioError
from runner.report.formats import FORMATS
from runner.report.several import Reports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.execution import Launcher

INTERRUPTED = 130

#: options of `run` that mean a run that ends: parameter -> how it is written
_ENDING = {kind.parameter: kind.option for kind in FORMATS} | {
    "shard": "--shard",
    "seed": "--shuffle",
    "last_failed": "--last-failed",
    "failed_first": "--failed-first",
    "repeat": "--repeat",
    "durations": "--durations",
    "github": "--github",
}


def watch(options: Mapping[str, Any], launch: Callable[[], Launcher]) -> NoReturn:
    """Watch what the options select until Ctrl-C; leaves with exit code 130.

    A command line that makes no sense ends it at once, with exit code 2; files may come and go
    later.
    """
    _refuse_what_needs_an_end(click.get_current_context())
    from runner.language import discover  # noqa: PLC0415 -- after the command line is parsed
    from runner.loading import load_all  # noqa: PLC0415 -- the same
    from runner.places import place_of  # noqa: PLC0415 -- the same
    from runner.report.terminal import TerminalReport  # noqa: PLC0415 -- the same
    from runner.watching.loop import Watch  # noqa: PLC0415 -- only where it is asked for
    from runner.watching.screen import Screen  # noqa: PLC0415 -- the same

    selection = selection_of(options)
    try:
        discover(place_of(path).path for path in selection.paths)
        load_all(replace(selection, paths=()))  # the words that select
    except ScenarioError as error:
        refuse(error)
    interrupt_on_termination()
    screen = Screen(TerminalReport(sys.stdout, verbose=options["verbose"]))
    started = nullcontext() if options["dry_run"] else launch()
    try:
        with started as launcher:
            Watch(
                selection,
                screen,
                launcher,
                remember=lambda: Reports(None, remembered(options)[1]),
                stop_at_failure=options["exitfirst"],
            ).run()
    except KeyboardInterrupt:
        screen.stopped()
    sys.exit(INTERRUPTED)


def _refuse_what_needs_an_end(context: click.Context) -> None:
    for name, option in _ENDING.items():
        given = context.get_parameter_source(name)
        if given is not None and given is not click.core.ParameterSource.DEFAULT:
            message = f"{option} is for a run that ends; it cannot be given with --watch"
            raise click.UsageError(message, context)
