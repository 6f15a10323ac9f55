"""The command `scenario`: arguments in, the pipeline, an exit code out.

A module of :mod:`torch_scenarios.cli` is imported only when a command of it is asked for, so
that `scenario --help` imports neither NumPy nor torch.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

import click

#: command -> its module in torch_scenarios.cli, its name there, the line that `scenario --help`
#: shows
COMMANDS = {
    "run": ("run", "run", "Check scenarios, run them on a real backend, and judge them."),
    "check": ("run", "check", "Check scenarios and prove their expectations; start no process."),
    "record": ("record", "record", "Record a training script, prove it, and reproduce its fault."),
    "hang": ("hang", "hang", "Say why the job that hangs now does; end nothing."),
    "parity": ("parity", "parity", "Say whether n processes compute what one process computes."),
    "import": ("record", "import_records", "Judge a record, dumps of torch, or the log of a job."),
    "diff": ("record", "diff", "Compare two records or scenarios: whose communication differs."),
    "doctor": ("doctor", "doctor", "Look at every node of a run before anything runs."),
    "agent": ("run", "agent", "Lend this node's ranks to the run of another node."),
    "merge": ("run", "merge", "Join the results of shards, or of several runs."),
    "show": ("show", "show", "Draw a case as a space-time diagram, predicted or run."),
    "cost": ("cost", "cost", "Count rounds, messages and bytes; forecast time on a topology."),
    "conformance": (
        "conformance",
        "conformance",
        "Run the corpus and every call on what is installed; compare two versions.",
    ),
    "certify": (
        "certify",
        "certify",
        "Run the corpus on a backend of your own; say which levels it passes.",
    ),
    "plan": ("plan", "plan", "Search ways to train a model on so many GPUs; weigh each."),
    "bench": ("cost", "bench", "Measure how long programs take here; compare with before."),
    "topology": (
        "cost",
        "topology",
        "List, show and make the machines that times are forecast on.",
    ),
    "list": ("run", "list_cases", "List the cases that a command line selects."),
    "examples": ("show", "examples", "List the example scenarios that come with the package."),
    "ops": ("show", "ops", "Show the operations that a step may be, or one of them whole."),
    "schema": ("show", "schema", "Print the JSON Schema of scenario files (or of --json)."),
    "new": ("edit", "new", "Write a commented scenario that passes, to start from."),
    "bless": (
        "edit",
        "bless_files",
        "Fill in expected values, where reference and run agree on them.",
    ),
    "minimize": (
        "edit",
        "minimize_file",
        "Shrink a failing scenario to a smallest one with the same fault.",
    ),
    "lsp": ("lsp", "lsp", "Serve an editor: diagnostics, completion, hover, rename, edits."),
    "fmt": ("edit", "fmt", "Lay out scenario files; what they say never changes."),
    "explain": (
        "show",
        "explain",
        "Explain a problem code or a diagnosis: why, an example, the fix.",
    ),
    "completion": ("show", "completion", "Print the completion script of a shell."),
}

INVALID = 2
INTERRUPTED = 130
ENVIRONMENT = 3
#: what a standard output that is full, closed or broken raises
_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EBADF, errno.EIO, errno.EDQUOT, errno.EFBIG})
#: what the module tempfile says where no folder can be written
_NO_FOLDER = "No usable temporary directory found"

#: objects made before the collector of circles looks: importing the analysis makes 60,000, none of
#: which are to go, and what is read stays until it is analysed
COLLECTED_AT = 250_000

#: NumPy computes small arrays here, on every core in another process: threads beside it, which
#: OpenBLAS starts and lets spin when it is imported, would only take a core away
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "1")

EPILOG = """\
Exit codes: 0 all passed (unsupported scenarios are counted but are not failures), 1 a scenario
failed or was flaky, 2 a file or the command line is invalid and nothing ran, 3 inconclusive
because of the environment, 5 nothing was selected, 130 interrupted.

Shell completion: `scenario completion bash`, `zsh` or `fish` prints the script.
"""


class MisuseError(click.ClickException):
    """A command line that cannot be used: one line says what is wrong, and what to do.

    Exit code 2, as for every misuse of a command (POSIX utilities, click): 1 is for findings.
    """

    exit_code = INVALID

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        click.echo(self.message, file=file, err=True)


@contextmanager
def _report_in_one_line(context: click.Context | None = None) -> Iterator[None]:
    """Turn what click raises about a command line into one line."""
    try:
        yield
    except (MisuseError, click.exceptions.NoArgsIsHelpError):
        raise
    except click.UsageError as error:
        words = [context.command_path, context.invoked_subcommand] if context else ["scenario"]
        command = error.ctx.command_path if error.ctx else " ".join(filter(None, words))
        raise MisuseError(describe_misuse(error, command)) from None


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used; their names are known before.

    `scenario --help` lists commands without importing the analysis, and a command that does not
    need NumPy starts without it (decision 114).
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of :data:`COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, function, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"torch_scenarios.cli.{module}"), function)
        assert isinstance(command, click.Command)
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the command line. Raises MisuseError."""
        with _report_in_one_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises MisuseError."""
        with _report_in_one_line(ctx):
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write exit codes and completion with their line breaks."""
        formatter.write_paragraph()
        for paragraph in EPILOG.strip().split("\n\n"):
            formatter.write_text(paragraph)
            formatter.write_paragraph()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="torch-scenarios", prog_name="scenario")
def cli() -> None:
    """Executable scenarios for torch.distributed.

    A scenario is a YAML file: a small distributed program, and what each rank must hold after it.
    """


def main() -> None:
    """Run the command line; `scenario` calls it behind :mod:`torch_scenarios.entry`."""
    os.environ.setdefault(*ONE_THREAD)
    gc.set_threshold(COLLECTED_AT)
    _open_streams()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)
    try:
        if _is_somewhere():
            code = _call()
        else:
            _say("the current folder is not there any more: change into another one")
            code = ENVIRONMENT
    except KeyboardInterrupt:
        code = INTERRUPTED
        _say("interrupted")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to be interrupted
    code = _flush(code)
    gc.freeze()  # the end of the process frees what there is: no circle need be looked for
    sys.exit(code)


def _leave(*_: object) -> NoReturn:
    """End at once: nothing is there to be saved until a command takes interrupts itself.

    Nothing is raised: a C module that imports another one prints what is raised in it.
    """
    with suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _is_somewhere() -> bool:
    """Whether the current folder is there."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _call() -> int:
    """Return the exit code of the command; an exception is reported in one line."""
    try:
        code = cli.main(prog_name="scenario", standalone_mode=False)
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            _say(code)
            code = 1
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        code = error.exit_code
    except click.Abort:
        _say("interrupted")
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of the output has left; what was asked for is not done
        code = ENVIRONMENT
    except OSError as error:
        words = _refusal_of_the_machine(error)
        if not words:
            raise
        _say(words)
        code = ENVIRONMENT
    except Exception as error:
        if not _is_overdue(error):
            raise
        _say(str(error))
        code = ENVIRONMENT
    return code if isinstance(code, int) else 0


def describe_misuse(error: click.UsageError, command: str) -> str:
    """Return one line about a command line: what is wrong, and what to do.

    click ends its own messages with a full stop, and they do not say what to do; ours do.
    """
    page = f"`{command} --help` shows how it is used"
    unknown = _UNKNOWN.fullmatch(error.message)
    match error:
        case click.NoSuchOption():
            known = [word for each in _params(error.ctx) for word in each.opts]
            near = _find_near(error.option_name, [*known, "--version"])
            near = "scenario --version" if near == "--version" else near
            text = f"there is no option {error.option_name}"
            own = _describe_script_option(error, command)
            text += f"; did you mean {near}?" if near else f"; {own or page}"
            text += f" {own[0].upper()}{own[1:]}" if near and own else ""
        case click.BadOptionUsage():
            text = f"{error.option_name} needs a value; {page}"
        case click.MissingParameter():
            text = f"{_name_of(error)} is missing; {page}"
        case click.BadParameter():
            text = f"{_name_of(error)}: {error.message}"
        case _ if unknown and error.ctx and isinstance(error.ctx.command, click.Group):
            near = _find_near(unknown[1], error.ctx.command.list_commands(error.ctx))
            text = f"there is no command {unknown[1]}; "
            text += f"did you mean {near}?" if near else f"`{command} --help` lists the commands"
        case _:
            text = _SURPLUS.sub(r"\1 is more than it takes.", error.message)
    if text.endswith("."):
        text = f"{text[:-1]}; {page}"
    return f"{command}: {' '.join(text.split())}"


#: what click says of a command, and of arguments, that are not there
_UNKNOWN = re.compile(r"No such command '(.+)'\.?")
_SURPLUS = re.compile(r"Got unexpected extra arguments? \((.+)\)$")


#: options of torchrun by which people start ranks
_OF_TORCHRUN = frozenset({"--nproc-per-node", "--nnodes", "--node-rank", "--standalone"})


def _describe_script_option(error: click.NoSuchOption, command: str) -> str:
    """Return what to do with an option that a script has; nothing where no script is run."""
    if not any(each.type is click.UNPROCESSED for each in _params(error.ctx)):
        return ""
    if error.option_name.replace("_", "-") in _OF_TORCHRUN:
        example = f"`{command} -- torchrun --nproc-per-node=2 train.py`"
        return f"`-n 2` starts two ranks, and torchrun comes behind `--`, as {example}"
    example = f"`{command} -- train.py {error.option_name}`"
    return f"an option of the script comes behind `--`, as {example}"


def _params(context: click.Context | None) -> list[click.Parameter]:
    return context.command.params if context is not None else []


def _name_of(error: click.BadParameter) -> str:
    """Return the name of an option, or the place of an argument, as the usage has it."""
    if isinstance(error.param, click.Option):
        return max(error.param.opts, key=len)
    if isinstance(error.param, click.Argument) and error.ctx is not None:
        return error.param.make_metavar(error.ctx)
    return str(error.param_hint or "the command line")


def _find_near(word: str, known: list[str]) -> str | None:
    """Return the word that is meant; the dashes of an option say nothing."""
    from torch_scenarios.errors import nearest

    bare = {each.lstrip("-"): each for each in known}
    return bare.get(nearest(word.lstrip("-"), bare) or "")


def _refusal_of_the_machine(error: OSError) -> str:
    """Return what this machine does not let a command write; nothing where it is another error."""
    if error.errno in _OUTPUT_ERRORS:
        return f"the output cannot be written: {error.strerror}"
    if str(error.strerror).startswith(_NO_FOLDER):
        return (
            "no temporary file can be written: let TMPDIR name a folder with room, or "
            "`ulimit -f unlimited`"
        )
    return ""


def _is_overdue(error: Exception) -> bool:
    """Whether there was no time left, in a command that gives no verdict."""
    from torch_scenarios.limits import OverdueError

    return isinstance(error, OverdueError)


def _open_streams() -> None:
    """Let a closed standard stream lead nowhere: the next file would take its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _flush(code: int) -> int:
    """Write what the streams still hold, or drop it; return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if code == 0 and stream is sys.stdout and not isinstance(error, BrokenPipeError):
                _say("the output cannot be written")
                code = ENVIRONMENT
    return code


def _say(words: str) -> None:
    with suppress(OSError):
        click.echo(words, err=True)


if __name__ == "__main__":
    main()
