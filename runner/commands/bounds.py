"""The bounds on scenarios, and what they are executed on, as options of every command with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from runner.commands.grouping import BOUNDS, HOW, WHICH, option
from runner.language import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.execution import LaunchOptions

F = TypeVar("F", bound="Callable[..., Any]")


def bounding(command: F) -> F:
    """Add the options that bound what a file may ask for."""
    for bound in reversed(limits.BOUNDS):
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
    return option(
        WHICH,
        "--follow-links",
        is_flag=True,
        help="Read files that a link leads to outside of the project: for mounted configuration.",
    )(command)


def known_backend(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse a backend that neither torch has nor a module named with --plugin may register."""
    if value is None or (value == "auto" and param.default == "auto"):
        return value
    from runner.execution.backends import unknown  # noqa: PLC0415 -- only where one is named

    fault = unknown(value, ctx.params["plugins"])
    if fault is not None:
        raise click.BadParameter(fault, ctx=ctx, param=param)
    return value


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
            is_eager=True,  # what may register a backend is read before --backend
            metavar="MODULE",
            help="Import this module in every worker first; it may register a backend. Repeatable.",
        ),
        option(
            HOW,
            "--backend",
            default="auto",
            show_default=True,
            callback=known_backend,
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
        max_seconds=options["max_seconds"],
    )
