"""`scenario minimize`: the smallest scenario with the same fault, as YAML on standard output."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from runner.commands.bounds import bounding, executing, launch_options
from runner.commands.grouping import HOW, GroupedCommand, option
from runner.commands.options import limits_of
from runner.display import clean
from runner.interruption import interrupt_on_termination
from runner.problems import LaunchError, ScenarioError

if TYPE_CHECKING:
    from runner.language.limits import Limits
    from runner.minimize import Minimized
    from runner.minimize.signature import Oracle
    from runner.scenario import Scenario

INVALID, INCONCLUSIVE, INTERRUPTED = 2, 3, 130
#: seconds between two lines of progress
OFTEN_S = 0.2


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
@executing
@bounding
def command(**options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Shrink a failing or deadlocking scenario to a smallest one with the same fault.

    Steps, ranks, groups, tensors, sizes, rounds of loops, parameters and arguments are left out or
    made smaller, as long as the verdict, the outcome, the diagnoses and the kinds of findings stay
    the same. The result goes to standard output, ready to be committed: comments and layout of what
    remains stay, and it passes or fails as FILE does. Nothing in it can be left out alone. The
    name, the description and the tags are kept: see whether they still fit.

    Of a file with several cases the first with a fault is taken, or CASE. The analysis tells what
    an attempt shows, some hundred times a second. --run asks a backend as well, for a fault that
    only a run shows, or where the semantics leave open what comes of one. Ctrl-C gives the smallest
    so far.

    \b
    Exit codes: 0 the result is printed; 1 the scenario shows no fault that could be kept; 2 the
    file or the command line is invalid; 3 the environment could not run it; 130 interrupted, and
    the smallest so far is printed.
    """  # noqa: D301 -- Click asks for a real backspace
    interrupt_on_termination()
    limits = limits_of(options)
    path, cases = _cases(options["target"], limits)
    with ExitStack() as stack:
        oracle = _oracle(path, limits, options, stack)
        done = _minimized(cases, oracle, options, limits)
    click.echo(clean(done.text), nl=False)
    sys.exit(INTERRUPTED if done.interrupted else 0)


def _cases(target: str, limits: Limits) -> tuple[Path, list[tuple[int, Scenario]]]:
    """Return the file and the cases that are meant, each with its number in the file."""
    from runner.language import load  # noqa: PLC0415 -- after the command line is parsed

    name, _, case = target.partition("::")
    try:
        scenarios = load(name, limits=limits)
    except ScenarioError as error:
        _refuse("\n".join(map(str, error.problems)))
    found = [
        (number, scenario)
        for number, scenario in enumerate(scenarios)
        if case in {"", scenario.case, scenario.case.removeprefix(scenario.name).strip("[]")}
    ]
    if not scenarios:
        _refuse(f"{name} is a part that other files use: minimise one of those")
    if not found:
        known = ", ".join(scenario.case for scenario in scenarios)
        _refuse(f"{name} has no case {case}; it has: {known}")
    return Path(name), found


def _oracle(path: Path, limits: Limits, options: dict[str, Any], stack: ExitStack) -> Oracle:
    from runner.minimize import analysis_oracle, run_oracle  # noqa: PLC0415 -- NumPy only now

    if not options["runs"]:
        return analysis_oracle(path, limits)
    from runner.execution import Launcher  # noqa: PLC0415 -- only where it runs

    try:
        executor = stack.enter_context(Launcher(launch_options(options)))
    except LaunchError as error:
        click.echo(clean(str(error)), err=True)
        sys.exit(INCONCLUSIVE)
    return run_oracle(path, limits, executor)


def _minimized(
    cases: list[tuple[int, Scenario]], oracle: Oracle, options: dict[str, Any], limits: Limits
) -> Minimized:
    """Return the smallest text of the first case with a fault; leave where there is none."""
    from runner.minimize import NothingToMinimizeError, minimize  # noqa: PLC0415 -- the same

    shown: list[str] = []
    for number, scenario in cases:
        telling = _Telling()
        began = time.perf_counter()
        try:
            done = minimize(
                scenario,
                number,
                oracle,
                limits=limits,
                most=options["max_attempts"],
                progress=telling,
            )
        except NothingToMinimizeError as error:
            shown.append(f"{scenario.case} ({error})")
            continue
        finally:
            telling.close()
        _summary(scenario, done, time.perf_counter() - began)
        if done.signature.open and not options["runs"]:
            outcomes = ", ".join(sorted(done.signature.open))
            click.echo(
                f"what a backend makes of it is open ({outcomes}): --run keeps that, too", err=True
            )
        return done
    more = "" if options["runs"] else "; if a run shows one, add --run"
    click.echo(f"there is no fault to keep: {', '.join(shown)}{more}", err=True)
    sys.exit(1)


def _summary(scenario: Scenario, done: Minimized, took_s: float) -> None:
    from runner.minimize.minimizing import size_of  # noqa: PLC0415 -- NumPy only now

    before, after = size_of(scenario.source.text), size_of(done.text)
    click.echo(clean(f"{scenario.case}: {done.signature}"), err=True)
    click.echo(f"{before} -> {after}; {done.attempts} attempts in {took_s:.1f} s", err=True)
    if scenario.description and before != after:
        click.echo("the description is the author's: see whether it still fits", err=True)
    if done.interrupted:
        click.echo("interrupted: something more could perhaps be left out", err=True)
    elif not done.minimal:
        click.echo("the attempts are used up: --max-attempts allows more", err=True)


class _Telling:
    """Shows how far the search is, on a terminal, not too often."""

    def __init__(self) -> None:
        self.shows = sys.stderr.isatty()
        self.last_s = 0.0

    def __call__(self, attempts: int, size: int) -> None:
        now_s = time.monotonic()
        if self.shows and now_s - self.last_s > OFTEN_S:
            self.last_s = now_s
            click.echo(f"\r{attempts} attempts, {size} characters ", nl=False, err=True)

    def close(self) -> None:
        if self.shows and self.last_s:
            click.echo("\r" + " " * 40 + "\r", nl=False, err=True)


def _refuse(message: str) -> NoReturn:
    click.echo(clean(message), err=True)
    sys.exit(INVALID)
