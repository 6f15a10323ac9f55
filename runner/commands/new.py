"""`scenario new`: a commented scenario that passes, to start from."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from runner.commands.options import INVALID_EXIT

STARTER = """\
# A scenario: a small distributed program, and what must come of it on each rank.
#   scenario check {file}    proves the expectations; starts no process
#   scenario run {file}      runs it on a real backend and compares every rank
version: 1
description: >
  Say here what a reader should learn from it.
world_size: 4

# A number or a list is data; a string is an expression, computed on each rank.
parameters:
  width: 3                      # replace it with --set width=5

groups:
  even: "range(0, world_size, 2)"

# What each rank holds before step 1: rank 0 holds [1, 1, 1], rank 1 holds [2, 2, 2] ...
tensors:
  x: "full(width, rank + 1)"

# Each rank takes, in this order, the steps that select it.
steps:
  - name: sum inside the group
    all_reduce: {{tensor: x, op: sum, group: even}}
    expect:
      # Ranks 0 and 2 hold 1 + 3; the others took no part, so this step asks nothing of them.
      x: "full(width, 4)"

  - name: rank 0 tells everyone
    broadcast: {{tensor: x, src: 0}}

# What must hold in the end, on every rank.
expect:
  outcome: completes            # the default; or deadlock, error, crash
  x: "full(width, 4)"
"""


@click.command("new")
@click.argument("name")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def command(*, name: str, force: bool) -> None:
    """Write NAME.yaml, a commented scenario that passes, to start from."""
    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    if not re.fullmatch(r"[\w.-]+", path.name):
        _refuse(f"{path.name!r} is no name for a scenario: letters, digits, _, - and . make one")
    if path.exists() and not force:
        _refuse(f"{path} exists; choose another name, or replace it with --force")
    try:
        path.write_text(STARTER.format(file=path), encoding="utf-8")
    except OSError as error:
        _refuse(f"{path} cannot be written: {error.strerror or error}")
    click.echo(f"{path} is written; try: scenario run {path}")


def _refuse(message: str) -> None:
    click.echo(message, err=True)
    sys.exit(INVALID_EXIT)
