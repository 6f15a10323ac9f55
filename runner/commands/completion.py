"""`scenario completion`: the script with which a shell completes commands, options and paths."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SCENARIO_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, *, shell: str) -> None:
    """Print the completion script for SHELL, as Click generates it.

    Write it where the shell looks for such scripts, once for each version:

    \b
    bash  scenario completion bash > ~/.local/share/bash-completion/completions/scenario
    zsh   scenario completion zsh > "${fpath[1]}/_scenario"
    fish  scenario completion fish > ~/.config/fish/completions/scenario.fish
    """  # noqa: D301 -- Click's mark for a paragraph whose lines stay
    from click.shell_completion import get_completion_class  # noqa: PLC0415 -- only for a script

    generator = get_completion_class(shell)
    assert generator is not None  # noqa: S101 -- Click knows all of SHELLS
    click.echo(generator(context.find_root().command, {}, "scenario", VARIABLE).source())
