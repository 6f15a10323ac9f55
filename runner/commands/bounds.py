"""The bounds on scenarios, and what they are executed on, as options of every command with them."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from runner.commands.grouping import BOUNDS, HOW, option
from runner.language.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.execution import LaunchOptions

F = TypeVar("F", bound="Callable[..., Any]")


def bounding(command: F) -> F:
    """Add the options that bound what a file may ask for."""
    for bound in reversed(fields(Limits)):
        counts = str(bound.metadata["counts"])
        command = option(
            BOUNDS,
            str(bound.metadata["flag"]),
            type=click.IntRange(min=1),
            default=bound.default,
            show_default=True,
            metavar="N",
            help=f"{counts[:1].upper()}{counts[1:]}.",
        )(command)
    return command


def executing(command: F) -> F:
    """Add the options that choose what scenarios are run on."""
    for add in (
        option(
            HOW, "--isolate", is_flag=True, help="Give each scenario fresh processes of its own."
        ),
        option(
            HOW,
            "--plugin",
            "plugins",
            multiple=True,
            metavar="MODULE",
            help="Import this module in every worker first; it may register a backend. Repeatable.",
        ),
        option(
            HOW,
            "--backend",
            default="auto",
            show_default=True,
            metavar="NAME",
            help="gloo, nccl, one that a plugin registers, or auto: NCCL with a GPU for each rank.",
        ),
    ):
        command = add(command)
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
