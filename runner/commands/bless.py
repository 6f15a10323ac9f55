"""`scenario bless`: fill in what a file expects, where the reference and the run agree on it."""

from __future__ import annotations

import difflib
import os
import sys
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
    from collections.abc import Iterable

    from runner.bless import Proposal, Refusal
    from runner.results import Executor

REFUSED, INVALID, INCONCLUSIVE, NOTHING_SELECTED = 1, 2, 3, 5
#: reasons that lie in the environment, not in the file
_ENVIRONMENT = frozenset({"left_open", "cannot_run"})
_OFF = frozenset({"", "0", "false", "no", "off"})


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
@executing
@bounding
def command(**options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Fill in expected values that are missing or wrong, and change nothing else in the file.

    PATHS are scenario files, or folders that hold some. Missing is a value that is left out (`x:`,
    `x: null`, `x: ...`), whatever a step with an empty `expect:` writes and, in a file without any
    `expect`, what each step writes. Values come from the reference semantics, and are written only
    where the new file passes: in the analysis, and in every one of several runs.

    Refused, with the reason: programs that hang, crash or raise without the file saying so, cases
    that do not pass every time, values on which reference and run disagree or on which nobody may
    rely, one text for cases that differ, expectations in a used part. How a scenario ends
    (outcome, blocked, diagnosis, raises) is never written. In CI (the variable CI is set) nothing
    is blessed: what nobody looks at is no expectation.

    \b
    Exit codes: 0 everything is blessed or as it should be; 1 a file was refused or, with
    --dry-run, would change; 2 a file or the command line is invalid, and nothing was written;
    3 the environment could not run it; 5 nothing was selected; 130 interrupted.
    """  # noqa: D301 -- Click asks for a real backspace
    _police(options)
    interrupt_on_termination()
    blessing = _Blessing(options)
    proposals = blessing.proposals(_files(options["paths"]))
    if options["dry_run"]:
        for proposal in proposals:
            blessing.show(proposal)
    else:
        blessing.write(proposals)
    sys.exit(blessing.exit_code)


def _police(options: dict[str, Any]) -> None:
    if os.environ.get("CI", "").strip().lower() not in _OFF and not options["dry_run"]:
        _refuse(
            "this is CI (the variable CI is set): expectations that nobody has looked at are none; "
            "bless on your machine, or see with --dry-run what would change"
        )
    if options["review"] and not options["dry_run"] and not sys.stdin.isatty():
        _refuse("--review asks, but standard input is no terminal; --dry-run prints the changes")


def _files(paths: Iterable[str]) -> tuple[Path, ...]:
    from runner.language import discover  # noqa: PLC0415 -- after the command line is parsed

    for path in paths:
        if "::" in path and not Path(path).exists():
            _refuse(f"{path}: files are blessed whole, all their cases share one text")
    try:
        files = discover(paths)
    except ScenarioError as error:
        _refuse("\n".join(map(str, error.problems)))
    if not files:
        click.echo("nothing was selected", err=True)
        sys.exit(NOTHING_SELECTED)
    return files


class _Blessing:
    """One command: what came of each file so far."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.codes: set[str] = set()
        self.counts = {"blessed": 0, "unchanged": 0, "refused": 0, "skipped": 0}
        self.would_change = False
        self.asks = bool(options["review"])

    @property
    def exit_code(self) -> int:
        if self.would_change or self.codes - _ENVIRONMENT:
            return REFUSED
        return INCONCLUSIVE if self.codes else 0

    def proposals(self, files: Iterable[Path]) -> list[Proposal]:
        """Return what is to be changed; leave where a file is invalid."""
        from runner.bless import RefusedError, propose  # noqa: PLC0415 -- NumPy only now
        from runner.language.discovery import read_file  # noqa: PLC0415 -- the same

        limits = limits_of(self.options)
        found, invalid = [], False
        for path in files:
            try:
                text = read_file(path, limits)
                made = propose(path, text, every=self.options["every_step"], limits=limits)
            except RefusedError as error:
                self.refused(path, error.refusals)
            except ScenarioError as error:
                invalid = True
                for problem in error.problems:
                    click.echo(str(problem), err=True)
            else:
                if made is not None and made.changes:
                    found.append(made)
                else:
                    self.counts["unchanged"] += 1
        if invalid:
            click.echo("a file is invalid: nothing is written", err=True)
            sys.exit(INVALID)
        return found

    def show(self, proposal: Proposal) -> None:
        """Print what would change."""
        self.would_change = True
        click.echo(clean(difference(proposal)), nl=False)

    def write(self, proposals: list[Proposal]) -> None:
        """Run, ask, and write one proposal after the other."""
        from runner.bless import RefusedError  # noqa: PLC0415 -- NumPy only now

        with ExitStack() as stack:
            executor = self._launched(stack) if proposals else None
            for proposal in proposals:
                assert executor is not None  # noqa: S101 -- there are proposals
                try:
                    going_on = self._write(proposal, executor)
                except RefusedError as error:
                    self.refused(proposal.path, error.refusals)
                except OSError as error:
                    _refuse(f"{proposal.path} cannot be written: {error.strerror or error}")
                else:
                    if not going_on:
                        break
        told = [f"{count} {word}" for word, count in self.counts.items() if count]
        click.echo(", ".join(told) or "nothing to bless")

    def _launched(self, stack: ExitStack) -> Executor:
        from runner.execution import Launcher  # noqa: PLC0415 -- only where it runs

        try:
            return stack.enter_context(Launcher(launch_options(self.options)))
        except LaunchError as error:
            click.echo(clean(str(error)), err=True)
            sys.exit(INCONCLUSIVE)

    def _write(self, proposal: Proposal, executor: Executor) -> bool:
        """Write one proposal that runs prove and that a person wants; return whether to go on."""
        from runner.bless import confirm, write  # noqa: PLC0415 -- NumPy only now

        confirm(proposal, executor, runs=self.options["runs"])
        answer = self._asked(proposal) if self.asks else "y"
        self.asks = self.asks and answer != "a"
        if answer in "nq":
            self.counts["skipped"] += 1
            return answer != "q"
        write(proposal)
        self.counts["blessed"] += 1
        values = "1 value" if proposal.filled == 1 else f"{proposal.filled} values"
        click.echo(clean(f"blessed    {proposal.path}  {values}"))
        return True

    def _asked(self, proposal: Proposal) -> str:
        click.echo(clean(difference(proposal)), nl=False)
        choices = click.Choice(["y", "n", "a", "q"])
        question = f"Write {proposal.path}? (y)es, (n)o, (a)ll that follow, (q)uit"
        return str(click.prompt(question, type=choices, show_choices=False))

    def refused(self, path: Path, refusals: tuple[Refusal, ...]) -> None:
        """Say why a file is not blessed."""
        self.counts["refused"] += 1
        for refusal in refusals:
            self.codes.add(refusal.code)
            place = f"{path}:{refusal.line}" if refusal.line else str(path)
            click.echo(clean(f"refused    {place}: {refusal.message} [{refusal.code}]"), err=True)


def difference(proposal: Proposal) -> str:
    """Return the unified diff of a proposal."""
    before, after = (text.splitlines(keepends=True) for text in (proposal.before, proposal.after))
    lines = difflib.unified_diff(before, after, str(proposal.path), str(proposal.path))
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _refuse(message: str) -> NoReturn:
    click.echo(clean(message), err=True)
    sys.exit(INVALID)
