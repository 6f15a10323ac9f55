"""`scenario run`: check, run on a real backend under torchrun's machinery, judge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from runner.commands.arranging import arranging, remembered, remembering
from runner.commands.bounds import executing
from runner.commands.bounds import launch_options as executed_on
from runner.commands.grouping import HOW, GroupedCommand, option
from runner.commands.options import (
    judging_strictly,
    reported,
    reporting,
    selecting,
    selection_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from runner.execution import LaunchOptions
    from runner.report.several import Reports
    from runner.results import Executor, Outcome


#: seconds: longer than anyone waits, and far from what overflows in torch
LONGEST_S = 1e9


def _bearable(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse a time that never ends, or that is none."""
    if value is not None and not value <= LONGEST_S:
        message = f"{value} is no number of seconds up to {LONGEST_S:.0e}"
        raise click.BadParameter(message, ctx=ctx, param=param)
    return value


def launching(command: Any) -> Any:  # noqa: ANN401 -- click's decorators are untyped
    """Add the options that choose how scenarios are executed."""
    for add in (
        option(
            HOW,
            "--share-gpu",
            is_flag=True,
            help="Let several NCCL ranks share one GPU; its times then mean nothing.",
        ),
        option(
            HOW,
            "--confirm",
            type=click.Choice(["prediction", "timeout"]),
            default="prediction",
            show_default=True,
            help="How a predicted deadlock is confirmed: at once, when every rank stands where it "
            "must, or by the backend's own timeout.",
        ),
        option(
            HOW,
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            callback=_bearable,
            metavar="SECONDS",
            help="The process-group timeout, in place of each scenario's own.",
        ),
        option(HOW, "-x", "--exitfirst", is_flag=True, help="Stop at the first failure."),
        option(HOW, "--dry-run", is_flag=True, help="Analyse only; start no process."),
    ):
        command = add(command)
    return judging_strictly(executing(command))


@click.command("run", cls=GroupedCommand)
@option(HOW, "--watch", is_flag=True, help="Stay, and run again what a save changes; Ctrl-C ends.")
@selecting
@remembering
@arranging
@launching
@reporting
def command(**options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Check scenarios, run them on a real backend, and judge every rank.

    PATHS are scenario files, folders that hold some, a case (sum.yaml::sum[n=2]), or a line
    (sum.yaml:42: the step there, whose values are shown). With an invalid file nothing runs.
    """
    if options["watch"]:
        from runner.commands.watching import watch  # noqa: PLC0415 -- only where it is asked for

        watch({**options, "failed": frozenset()}, lambda: _launcher(options))
    failed, keepers = remembered(options)
    options["failed"] = failed
    reported(
        options,
        lambda reports: conducted(options, reports, lambda: _launcher(options)),
        keepers=keepers,
    )


def conducted(
    options: dict[str, Any],
    reports: Reports,
    launch: Callable[[], AbstractContextManager[Executor]],
) -> Outcome:
    """Run what the options select on what `launch` starts, or analyse it only."""
    from runner import pipeline  # noqa: PLC0415 -- after the command line is parsed

    selection = selection_of(options)
    if options["dry_run"]:
        return pipeline.check(
            selection, reports, traces=reports.traces, stop_at_failure=options["exitfirst"]
        )
    return pipeline.run(
        selection,
        launch,
        reports,
        stop_at_failure=options["exitfirst"],
        repeat=options["repeat"],
    )


def _launcher(options: dict[str, Any]) -> Any:  # noqa: ANN401 -- runner.execution.Launcher
    from runner.execution import Launcher  # noqa: PLC0415 -- only where it runs

    return Launcher(launch_options(options))


def launch_options(options: dict[str, Any]) -> LaunchOptions:
    """Return what the command line chose for the execution."""
    return replace(executed_on(options), confirm=options["confirm"], share_gpu=options["share_gpu"])
