"""`scenario fmt`: the one layout of scenario files, without a change of what they say."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING

import click

from runner.commands.options import INVALID_EXIT, refuse
from runner.display import clean
from runner.problems import Mark, Problem, ScenarioError, Source
from runner.replacing import replace_file

if TYPE_CHECKING:
    from pathlib import Path

WOULD_CHANGE = 1
NOTHING_SELECTED = 5


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
def command(*, paths: tuple[str, ...], check: bool, diff: bool, stdin_filename: str) -> None:
    """Lay out scenario files: indentation, blanks, and the order of keys at the top and in a step.

    PATHS are scenario files, or folders that hold some; - reads standard input and writes to
    standard output, for editors. What a file says never changes, and no comment is lost: the new
    text is read again and compared before it is written. Flow mappings, texts that span lines and
    whatever could not be moved safely stay as they were written. An invalid file is reported, and
    left alone.
    """
    if "-" in paths:
        if len(paths) > 1:
            message = "`-` stands alone: standard input is one file"
            raise click.UsageError(message)
        _standard_input(stdin_filename, check=check, diff=diff)
        return
    from runner.language.discovery import discover  # noqa: PLC0415 -- after the line is parsed

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
    content = sys.stdin.buffer.read()
    try:
        made = _formatted(name, content)
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


def _formatted(path: Path | str, content: bytes) -> bytes:
    from runner.language.layout import formatted  # noqa: PLC0415 -- imports the language
    from runner.language.limits import DEFAULT  # noqa: PLC0415 -- the same

    return formatted(path, content, DEFAULT)


def _file(file: Path, *, check: bool, diff: bool) -> bool:
    """Format one file; return whether it changed, or would."""
    from runner.language.discovery import read_file  # noqa: PLC0415 -- imports the language

    try:
        content = read_file(file)
        made = _formatted(file, content)
        if made != content and not check and not diff:
            replace_file(file, made)
    except OSError as error:
        mark = Mark(source=Source(path=str(file), text=""), line=1, column=1)
        message = f"the file cannot be read or written: {error.strerror or error}"
        raise ScenarioError([Problem(code="unreadable_file", message=message, mark=mark)]) from None
    if made == content:
        return False
    if diff:
        click.echo(clean(_difference(str(file), content, made)), nl=False)
    else:
        click.echo(clean(f"{'would change' if check else 'formatted'} {file}"))
    return True


def _difference(name: str, before: bytes, after: bytes) -> str:
    old, new = (side.decode().splitlines(keepends=True) for side in (before, after))
    lines = difflib.unified_diff(old, new, fromfile=name, tofile=f"{name} (formatted)")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _report(error: ScenarioError) -> None:
    from runner.report.prose import problem_lines  # noqa: PLC0415 -- only where one is

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
