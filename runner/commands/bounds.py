"""The bounds on scenarios, and how they are executed, as options of commands that write YAML."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from runner.language.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.execution import LaunchOptions

F = TypeVar("F", bound="Callable[..., Any]")


def bounding(command: F) -> F:
    """Add the options that bound what a file may ask for."""
    for bound in reversed(fields(Limits)):
        command = click.option(
            str(bound.metadata["flag"]),
            type=click.IntRange(min=1),
            default=bound.default,
            show_default=True,
            metavar="N",
            help=f"Bound: {bound.metadata['counts']}.",
        )(command)
    return command


def executing(command: F) -> F:
    """Add the options that choose what scenarios are run on."""
    for option in (
        click.option(
            "--isolate", is_flag=True, help="Give each scenario fresh processes of its own."
        ),
        click.option(
            "--plugin",
            "plugins",
            multiple=True,
            metavar="MODULE",
            help="Import this module in every worker first; it may register a backend. Repeatable.",
        ),
        click.option(
            "--backend",
            default="auto",
            show_default=True,
            metavar="NAME",
            help="gloo, nccl, one that a plugin registers, or auto: NCCL with a GPU for each rank.",
        ),
    ):
        command = option(command)
    return command


def launch_options(options: Mapping[str, Any]) -> LaunchOptions:
    """Return what the command line chose for the execution."""
    from runner.execution import LaunchOptions  # noqa: PLC0415 -- only where it runs

    return LaunchOptions(
        backend=options["backend"],
        plugins=tuple(options["plugins"]),
        isolate=options["isolate"],
        max_ranks=options["max_ranks"],
    )
