"""What `scenario new`, `bless`, `minimize` and `fmt` do: the commands that make scenario files.

`bless` and `fmt` make the whole text first, and :func:`torch_scenarios.files.replace_file` puts it
in the place of the old one at once: a file is never left half written. `minimize` changes no file;
it prints the text that it found.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import click

from torch_scenarios.bless import NotBlessedError, Objection, Proposal, confirm, propose, write
from torch_scenarios.cli.answers.base import diff_text
from torch_scenarios.cli.answers.run import launch_options
from torch_scenarios.cli.options import INVALID_EXIT, limits_of, refuse, refuse_usage
from torch_scenarios.cli.starts import STARTER, starter
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError, Mark, Problem, ScenarioError, Source, nearest
from torch_scenarios.execution import Launcher
from torch_scenarios.files import corpus_folder, discover, examples_named, read_file, replace_file
from torch_scenarios.language import discover as discover_scenarios
from torch_scenarios.language import load
from torch_scenarios.language.format import format_file
from torch_scenarios.limits import DEFAULT, Limits, OverdueError
from torch_scenarios.minimize import (
    MinimizeResult,
    NothingToMinimizeError,
    Oracle,
    analysis_oracle,
    minimize,
    run_oracle,
    tell_size,
)
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.pipeline.interruption import interrupt_on_termination
from torch_scenarios.pipeline.results import Executor
from torch_scenarios.report.text import problem_lines


def new(*, name: str, example: str | None, strategy: str | None, force: bool) -> None:
    """Write NAME.yaml, a commented scenario that passes, to start from."""
    if example is not None and strategy is not None:
        message = "--from copies an example, --strategy writes a scenario of training: choose one"
        raise click.UsageError(message)
    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    if not re.fullmatch(r"[\w.-]+", path.name):
        refuse_usage(
            f"{path.name!r} is not a name for a scenario: letters, digits, _, - and . make one"
        )
    if path.exists() and not force:
        refuse_usage(f"{path} exists; choose another name, or replace it with --force")
    written = STARTER.format(file=path) if strategy is None else starter(strategy, path)
    texts = {path: written} if example is None else _copy_example(example, path)
    for file, text in texts.items():
        if file != path and file.exists():
            continue
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            refuse_usage(f"{file} cannot be written: {error.strerror or error}")
    click.echo(f"{path} is written; try: scenario run {path}")


_SCHEMA_LINE = re.compile(r"\A# yaml-language-server: .*\n")


_PART = re.compile(r"\bfile: ([\w/]+\.yaml)")


def _copy_example(example: str, path: Path) -> dict[Path, str]:
    """Return the text of an example at `path`, and those of the parts that it uses, by file.

    An example may have a step `use: {file: parts/turn.yaml}`: the part is copied to the same place
    below the folder of the copy.

    The line for editors is left out: it names a schema by where the example was.
    """
    found = examples_named(example)
    if len(found) > 1 and example in found:
        found = [example]
    if not found:
        close = nearest(example, examples_named(""))
        hint = f"did you mean {close}?" if close else "`scenario examples` lists them"
        refuse_usage(f"there is no example {clean(example)}; {hint}")
    if len(found) > 1:
        refuse_usage(f"several examples have the name {clean(example)}: {', '.join(found)}")
    source = corpus_folder() / f"{found[0]}.yaml"
    text = _SCHEMA_LINE.sub("", source.read_text(encoding="utf-8"))
    texts = {path: text}
    for part in _PART.findall(text):
        words = (source.parent / part).read_text(encoding="utf-8")
        texts[path.parent / part] = _SCHEMA_LINE.sub("", words)
    return texts


#: exit code of `fmt --check` where a file would be laid out in another way
WOULD_CHANGE = 1

#: exit codes of `fmt`, `bless` and `minimize`
REFUSED, INVALID, INCONCLUSIVE, NOTHING_SELECTED, INTERRUPTED = 1, 2, 3, 5, 130


def fmt(*, paths: tuple[str, ...], check: bool, diff: bool, stdin_filename: str) -> None:
    """Lay out scenario files: indentation, blanks, the order of keys at the top and in a step.

    A file that is invalid in its form is reported, and the others are laid out all the same. The
    exit code is that of invalid files if there is one, else 1 where `--check` finds something to
    change.
    """
    if "-" in paths:
        if len(paths) > 1:
            message = "`-` is used alone: standard input is one file"
            raise click.UsageError(message)
        _standard_input(stdin_filename, check=check, diff=diff)
        return

    try:
        files = discover(paths)
    except ScenarioError as error:
        refuse(error)
    if not files:
        click.echo("nothing was selected", err=True)
        sys.exit(NOTHING_SELECTED)
    changed, invalid = 0, 0
    for file in files:
        try:
            changed += _file(file, check=check, diff=diff)
        except ScenarioError as error:
            invalid += 1
            _report(error)
    _summary(len(files), changed, invalid, would=check or diff)
    if invalid:
        sys.exit(INVALID_EXIT)
    sys.exit(WOULD_CHANGE if check and changed else 0)


def _standard_input(name: str, *, check: bool, diff: bool) -> None:
    """Lay out what an editor pipes through.

    The text to standard output, all else to standard error.

    It is written even where nothing changes, for the editor takes what comes for the new text.
    """
    content = sys.stdin.buffer.read(DEFAULT.max_file_bytes + 1)
    try:
        made = _format(name, content)
    except ScenarioError as error:
        refuse(error)
    if diff:
        click.echo(clean(_difference(name, content, made)), nl=False)
    elif not check:
        sys.stdout.buffer.write(made)
        sys.stdout.buffer.flush()
    if check and made != content:
        click.echo(f"would change {name}", err=True)
        sys.exit(WOULD_CHANGE)


def _format(path: Path | str, content: bytes) -> bytes:
    return format_file(path, content, DEFAULT)


def _file(file: Path, *, check: bool, diff: bool) -> bool:
    """Format one file; return whether it changed, or would."""
    try:
        content = read_file(file)
        made = _format(file, content)
        if made != content and not check and not diff:
            replace_file(file, made)
    except OSError as error:
        mark = Mark(source=Source(path=str(file), text=""), line=1, column=1)
        message = f"the file cannot be read or written: {error.strerror or error}"
        problem = Problem(code="unreadable_file", message=message, mark=mark)
        raise ScenarioError([problem]) from None
    if made == content:
        return False
    if diff:
        click.echo(clean(_difference(str(file), content, made)), nl=False)
    else:
        click.echo(clean(f"{'would change' if check else 'formatted'} {file}"))
    return True


def _difference(name: str, before: bytes, after: bytes) -> str:
    return diff_text(before.decode(), after.decode(), name, f"{name} (formatted)")


def _report(error: ScenarioError) -> None:
    for problem in error.problems:
        for line in problem_lines(problem):
            click.echo(line.printable, err=True)


def _summary(total: int, changed: int, invalid: int, *, would: bool) -> None:
    """Say in one line what became of the files."""
    kept = total - changed - invalid
    parts = [
        f"{_files(changed)} {'would change' if would else 'formatted'}" if changed else "",
        f"{_files(kept)} left as {'it is' if kept == 1 else 'they are'}" if kept else "",
        f"{_files(invalid)} invalid" if invalid else "",
    ]
    click.echo(", ".join(part for part in parts if part), err=True)


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


#: reasons that lie in the environment, not in the file
_ENVIRONMENT = frozenset({"left_open", "cannot_run"})


_OFF = frozenset({"", "0", "false", "no", "off"})


def bless_files(options: dict[str, Any]) -> None:
    """Fill in expected values that are missing or wrong, and change nothing else in the file.

    Values are proposed by the analysis, and written only once runs have shown them too. All files
    are proposed for first: one that is invalid ends the command before anything is written.
    """
    _police(options)
    interrupt_on_termination()
    blessing = _Blessing(options)
    proposals = blessing.proposals(_bless_paths(options["paths"]))
    if options["dry_run"]:
        for proposal in proposals:
            blessing.show(proposal)
    else:
        blessing.write(proposals)
    sys.exit(blessing.exit_code)


def _police(options: dict[str, Any]) -> None:
    """End where no person would look at what is written: in CI, or where a review cannot ask.

    Blessing in CI would make each failing test pass by itself.
    """
    if os.environ.get("CI", "").strip().lower() not in _OFF and not options["dry_run"]:
        _refuse_bless(
            "this is CI (the variable CI is set): a person must look at what is blessed; "
            "bless on your machine, or see with --dry-run what would change"
        )
    if options["review"] and not options["dry_run"] and not sys.stdin.isatty():
        _refuse_bless(
            "--review asks, but standard input is not a terminal; --dry-run prints the changes"
        )


def _bless_paths(paths: Iterable[str]) -> tuple[Path, ...]:
    for path in paths:
        if "::" in path and not Path(path).exists():
            _refuse_bless(f"{path}: files are blessed whole, all their cases share one text")
    try:
        files = discover_scenarios(paths)
    except ScenarioError as error:
        _refuse_bless("\n".join(map(str, error.problems)))
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
        """Return what is to be changed; leave where a file is invalid.

        A file whose values are open (they depend on the order of arrival, or on time) is refused
        with the reason, and counted.
        """
        limits = limits_of(self.options)
        found, invalid = [], False
        for path in files:
            try:
                text = read_file(path, limits)
                made = propose(path, text, every=self.options["every_step"], limits=limits)
            except NotBlessedError as error:
                self.refuse(path, error.refusals)
            except OverdueError as error:
                slow = Objection(code="left_open", message=error.problem.message)
                self.refuse(path, (slow,))
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
        with ExitStack() as stack:
            executor = self._launch(stack) if proposals else None
            for proposal in proposals:
                assert executor is not None
                try:
                    goes_on = self._write(proposal, executor)
                except NotBlessedError as error:
                    self.refuse(proposal.path, error.refusals)
                except OSError as error:
                    _refuse_bless(f"{proposal.path} cannot be written: {error.strerror or error}")
                else:
                    if not goes_on:
                        break
        lines = [f"{count} {word}" for word, count in self.counts.items() if count]
        click.echo(", ".join(lines) or "nothing to bless")

    def _launch(self, stack: ExitStack) -> Executor:
        try:
            return stack.enter_context(Launcher(launch_options(self.options)))
        except LaunchError as error:
            click.echo(clean(str(error)), err=True)
            sys.exit(INCONCLUSIVE)

    def _write(self, proposal: Proposal, executor: Executor) -> bool:
        """Write one proposal that runs prove and that a person wants; return whether to go on."""
        confirm(proposal, executor, runs=self.options["runs"])
        answer = self._ask(proposal) if self.asks else "y"
        self.asks = self.asks and answer != "a"
        if answer in "nq":
            self.counts["skipped"] += 1
            return answer != "q"
        write(proposal)
        self.counts["blessed"] += 1
        values = "1 value" if proposal.filled == 1 else f"{proposal.filled} values"
        click.echo(clean(f"blessed    {proposal.path}  {values}"))
        return True

    def _ask(self, proposal: Proposal) -> str:
        click.echo(clean(difference(proposal)), nl=False)
        choices = click.Choice(["y", "n", "a", "q"])
        question = f"Write {proposal.path}? (y)es, (n)o, (a)ll that follow, (q)uit"
        return str(click.prompt(question, type=choices, show_choices=False))

    def refuse(self, path: Path, refusals: tuple[Objection, ...]) -> None:
        """Say why a file is not blessed."""
        self.counts["refused"] += 1
        for refusal in refusals:
            self.codes.add(refusal.code)
            place = f"{path}:{refusal.line}" if refusal.line else str(path)
            click.echo(clean(f"refused    {place}: {refusal.message} [{refusal.code}]"), err=True)


def difference(proposal: Proposal) -> str:
    """Return the unified diff of a proposal."""
    path = str(proposal.path)
    return diff_text(proposal.before, proposal.after, path, path)


def _refuse_bless(message: str) -> NoReturn:
    click.echo(clean(message), err=True)
    sys.exit(INVALID)


#: seconds between two lines of progress
OFTEN_S = 0.2


def minimize_file(options: dict[str, Any]) -> None:
    """Shrink a failing or deadlocking scenario to a smallest one with the same fault."""
    interrupt_on_termination()
    limits = limits_of(options)
    path, cases = _cases(options["target"], limits)
    with ExitStack() as stack:
        oracle = _oracle(path, limits, options, stack)
        done = _minimize(cases, oracle, options, limits)
    click.echo(clean(done.text), nl=False)
    sys.exit(INTERRUPTED if done.interrupted else 0)


def _cases(target: str, limits: Limits) -> tuple[Path, list[tuple[int, Scenario]]]:
    """Return the file and the cases that are meant, each with its number in the file."""
    name, _, case = target.partition("::")
    try:
        scenarios = load(name, limits=limits)
    except ScenarioError as error:
        _refuse_minimize("\n".join(map(str, error.problems)))
    found = [
        (number, scenario)
        for number, scenario in enumerate(scenarios)
        if case in {"", scenario.case, scenario.case.removeprefix(scenario.name).strip("[]")}
    ]
    if not scenarios:
        _refuse_minimize(f"{name} is a part that other files use: minimise one of those")
    if not found:
        known = ", ".join(scenario.case for scenario in scenarios)
        _refuse_minimize(f"{name} has no case {case}; it has: {known}")
    return Path(name), found


def _oracle(path: Path, limits: Limits, options: dict[str, Any], stack: ExitStack) -> Oracle:
    if not options["runs"]:
        return analysis_oracle(path, limits)

    try:
        executor = stack.enter_context(Launcher(launch_options(options)))
    except LaunchError as error:
        click.echo(clean(str(error)), err=True)
        sys.exit(INCONCLUSIVE)
    return run_oracle(path, limits, executor)


def _minimize(
    cases: list[tuple[int, Scenario]], oracle: Oracle, options: dict[str, Any], limits: Limits
) -> MinimizeResult:
    """Return the smallest text of the first case with a fault; leave where there is none.

    Cases that pass are named with why there is nothing to keep, so that a file in which none fails
    says it of each.
    """
    shown: list[str] = []
    for number, scenario in cases:
        progress = _Progress()
        began = time.perf_counter()
        try:
            done = minimize(
                scenario,
                number,
                oracle,
                limits=limits,
                most=options["max_attempts"],
                progress=progress,
            )
        except NothingToMinimizeError as error:
            shown.append(f"{scenario.case} ({error})")
            continue
        finally:
            progress.close()
        _minimize_summary(scenario, done, time.perf_counter() - began)
        if done.signature.open and not options["runs"]:
            outcomes = ", ".join(sorted(done.signature.open))
            click.echo(
                f"what a backend makes of it is open ({outcomes}): --run keeps that, too", err=True
            )
        return done
    more = "" if options["runs"] else "; if a run shows one, add --run"
    click.echo(f"there is no fault to keep: {', '.join(shown)}{more}", err=True)
    sys.exit(1)


def _minimize_summary(scenario: Scenario, done: MinimizeResult, took_s: float) -> None:
    before, after = tell_size(scenario.source.text), tell_size(done.text)
    click.echo(clean(f"{scenario.case}: {done.signature}"), err=True)
    click.echo(f"{before} -> {after}; {done.attempts} attempts in {took_s:.1f} s", err=True)
    if scenario.description and before != after:
        click.echo("the description is the author's: see whether it still fits", err=True)
    if done.interrupted:
        click.echo("interrupted: something more could perhaps be left out", err=True)
    elif not done.minimal:
        click.echo("the attempts are used up: --max-attempts allows more", err=True)


class _Progress:
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


def _refuse_minimize(message: str) -> NoReturn:
    click.echo(clean(message), err=True)
    sys.exit(INVALID)
