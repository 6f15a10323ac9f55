"""`scenario plan`: ways to train a model on so many GPUs, each a program that is weighed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torch_scenarios.cli import answers
from torch_scenarios.cli.options import GroupedCommand, option

WHAT, REPORTS = "What is planned", "Reports"


@click.command("plan", cls=GroupedCommand)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option(
    WHAT,
    "--topology",
    "machine",
    metavar="NAME|FILE",
    required=True,
    help="The machine; `scenario topology list` names some. It needs a `gpu`.",
)
@option(
    WHAT, "--gpus", type=click.IntRange(1, 1 << 16), required=True, help="How many GPUs there are."
)
@option(
    WHAT,
    "--most",
    type=click.IntRange(1, 64),
    default=6,
    show_default=True,
    help="How many ways are proved and weighed, of those that compute least.",
)
@option(
    WHAT,
    "--float8",
    is_flag=True,
    help="Products of blocks are in float8; logits and attention stay in bfloat16.",
)
@option(
    REPORTS,
    "-o",
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("plan"),
    show_default=True,
    help="The folder of the scenarios.",
)
@option(
    REPORTS,
    "--json",
    "json_file",
    type=click.Path(),
    metavar="FILE",
    help="Write the plan as JSON; `-` is standard output.",
)
def plan(**options: Any) -> None:
    """Search ways to train a model: stages, shards, tensor, context and expert groups.

    MODEL is a YAML file with layers, hidden, inner, heads, kv_heads, vocabulary, sequence and
    batch (sequences of all ranks together). It may have head (features of each head), experts, how
    many are active for a token, and how many are shared by all. It may state what the code that
    trains it holds: weight_bytes, gradient_bytes and average_bytes of a parameter, logit_bytes of
    a logit, expert_rows, gated_rows and whole_rows of a token, float8_inputs, matrix; of how many
    recomputed_blocks a way that recomputes does so, and of which recomputed_operations where it is
    some of a block; whether the kernels between products are eager, fused or compiled, and with
    tensor_overlap that ranks of a tensor group exchange while products run. Each way that is shown
    is a scenario with real sizes, which `scenario cost` weighs in full.

    Exit codes: 0 a way fits, 1 none does, 2 the model or the machine cannot be read.
    """
    answers.plan.plan(options)
