"""The command `scenario`: arguments in, the pipeline, an exit code out.

Each command is a module of :mod:`runner.commands` that is imported only when it is asked for, so
that `scenario --help` imports neither NumPy nor torch.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

#: command -> its module in runner.commands, and the line that `scenario --help` shows for it
COMMANDS = {
    "run": ("run", "Check scenarios, run them on a real backend, and judge them."),
    "check": ("check", "Check scenarios and prove their expectations; start no process."),
    "merge": ("merge", "Join the results of shards, or of several runs."),
    "show": ("show", "Draw a case as a space-time diagram, predicted or run."),
    "list": ("listing", "List the cases that a command line selects."),
    "ops": ("ops", "Show the operations that a step may be, or one of them whole."),
    "schema": ("schema", "Print the JSON Schema of scenario files (or of --json)."),
    "new": ("new", "Write a commented scenario that passes, to start from."),
    "bless": ("bless", "Fill in expected values, where reference and run agree on them."),
    "minimize": ("minimize", "Shrink a failing scenario to a smallest one with the same fault."),
    "fmt": ("fmt", "Lay out scenario files; what they say never changes."),
    "explain": ("explain", "Explain a problem code or a diagnosis: why, an example, the fix."),
    "completion": ("completion", "Print the completion script of a shell."),
}

INTERRUPTED = 130

#: NumPy computes small arrays here, on every core in a process of its own: threads beside it, which
#: OpenBLAS starts and lets spin when it is imported, would only take a core away
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "1")

EPILOG = """\
Exit codes: 0 all passed (UNSUPPORTED ones are counted, and no failure), 1 a scenario failed or was
flaky, 2 a file or the command line is invalid and nothing ran, 3 inconclusive because of the
environment, 5 nothing was selected, 130 interrupted.

Shell completion: `scenario completion bash`, `zsh` or `fish` prints the script.
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used; their names are known before."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """Return the commands in the order of :data:`COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"runner.commands.{COMMANDS[cmd_name][0]}")
        command = module.command
        assert isinstance(command, click.Command)  # noqa: S101 -- every module there has one
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where one is misspelt."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from runner.problems import nearest  # noqa: PLC0415 -- only for a mistake

            close = nearest(args[0], COMMANDS) if args else None
            if close is None:
                raise
            message = f"{error.message.rstrip('.')}. Did you mean '{close}'?"
            raise click.UsageError(message, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write exit codes and completion with their line breaks."""
        formatter.write_paragraph()
        for paragraph in EPILOG.strip().split("\n\n"):
            formatter.write_text(paragraph)
            formatter.write_paragraph()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="scenario-runner", prog_name="scenario")
def cli() -> None:
    """Executable scenarios for torch.distributed.

    A scenario is a YAML file: a small distributed program, and what must come of it on each rank.
    """


def main() -> None:
    """Run the command line; the entry point of `scenario`."""
    os.environ.setdefault(*ONE_THREAD)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = cli.main(prog_name="scenario", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # whoever read the output has seen enough; nothing is left to be flushed to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
