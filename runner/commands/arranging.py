"""The options for which part runs, in which order, how often, and what is remembered."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runner.commands.grouping import HOW, WHICH, option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.results import Key, Report, Shard

_SHARD = re.compile(r"(\d+)/(\d+)")
_SEEDS = 1 << 31


def arranging(command: Any) -> Any:  # noqa: ANN401 -- click's decorators are untyped
    """Add what takes a part, shuffles and repeats."""
    for add in (
        option(
            WHICH,
            "--shuffle",
            "seed",
            callback=_seed,
            metavar="SEED",
            help="Run in another order, which the seed alone decides; `random` takes a new seed "
            "and prints it.",
        ),
        option(
            WHICH,
            "--shard",
            callback=_shard,
            metavar="K/N",
            help="Only part K of N, as 2/5; `scenario merge` joins the results of all.",
        ),
        option(
            HOW,
            "--repeat",
            type=click.IntRange(min=1),
            default=1,
            metavar="N",
            help="Run each case N times; one that does not always come to the same is FLAKY, "
            "and no pass.",
        ),
    ):
        command = add(command)
    return command


def remembering(command: Any) -> Any:  # noqa: ANN401 -- click's decorators are untyped
    """Add what depends on the last run."""
    for add in (
        option(
            WHICH,
            "--no-cache",
            is_flag=True,
            help="Neither read nor write what is remembered of the last run, in .scenario/ beside "
            "the project.",
        ),
        option(
            WHICH,
            "--failed-first",
            "--ff",
            is_flag=True,
            help="What did not pass the last time comes first.",
        ),
        option(
            WHICH,
            "--last-failed",
            "--lf",
            is_flag=True,
            help="Only what did not pass the last time; all, where everything did.",
        ),
    ):
        command = add(command)
    return command


def _seed(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    if value == "random":
        return secrets.randbelow(_SEEDS)
    try:
        return int(value)
    except ValueError:
        message = f"{value!r} is neither a number nor `random`"
        raise click.BadParameter(message, ctx=ctx, param=param) from None


def _shard(ctx: click.Context, param: click.Parameter, value: str | None) -> Shard | None:
    if value is None:
        return None
    from runner.results import Shard  # noqa: PLC0415 -- imports the language

    found = _SHARD.fullmatch(value)
    if found is not None:
        number, of = map(int, found.groups())
        if 1 <= number <= of:
            return Shard(number=number, of=of)
    message = f"{value!r} is not K/N with K from 1 to N, as in --shard 2/5"
    raise click.BadParameter(message, ctx=ctx, param=param)


def remembered(options: Mapping[str, Any]) -> tuple[frozenset[Key], dict[str, Report]]:
    """Return what did not pass the last time, and what remembers this run."""
    from runner.history import failed, folder_of, keepers  # noqa: PLC0415 -- only where it runs

    wanted = options["last_failed"] or options["failed_first"]
    if options["no_cache"]:
        if wanted:
            message = "--last-failed and --failed-first need what --no-cache leaves unread"
            raise click.UsageError(message)
        return frozenset(), {}
    folder = folder_of(Path.cwd())
    found: frozenset[Key] = frozenset()
    if wanted:
        found, notes = failed(folder)
        for note in notes:
            click.echo(f"note: {note}", err=True)
    return found, {} if options["dry_run"] else keepers(folder)
