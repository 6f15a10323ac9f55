"""`scenario cost`: what a program costs on any machine, and its time on a topology."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from torch_scenarios.cli import answers
from torch_scenarios.cli.options import (
    GroupedCommand,
    add_execution_options,
    add_selection_options,
    option,
)

COSTS = "Costs"
TIMES = "Time on a machine"
WORSE = "What if the machine is worse"


@click.command(cls=GroupedCommand)
@add_selection_options
@option(
    COSTS,
    "--json",
    "json_file",
    type=click.Path(),
    metavar="FILE",
    help="Write what it costs as JSON; `-` is standard output.",
)
@option(
    TIMES,
    "--topology",
    "topology_name",
    metavar="NAME|FILE",
    help="Forecast the time on this machine; `scenario topology list` names some.",
)
@option(
    TIMES,
    "--model",
    type=click.Choice(["steps", "nccl", "table", "torch"]),
    help="What collectives in one call are forecast by, in place of the topology's own.",
)
@option(
    TIMES,
    "--algo",
    metavar="NAME",
    help="The algorithm of collectives: ring, tree, doubling, halving_doubling or best; with "
    "NCCL's tuner ring, tree, nvls or nvls_tree.",
)
@option(
    TIMES,
    "--nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Spread the ranks evenly over N nodes, in place of the topology's own.",
)
@option(
    WORSE,
    "--slow",
    metavar="RANK=FACTOR",
    multiple=True,
    help="Let a rank's kernels, and its host, take so many times as long, as 3=1.2. Repeatable.",
)
@option(
    WORSE,
    "--lost-nics",
    metavar="NODE=COUNT",
    multiple=True,
    help="Let a node have lost so many of its NICs, as 0=1. Repeatable.",
)
@option(
    WORSE,
    "--spine",
    metavar="PART",
    type=click.FloatRange(min=0, max=1, min_open=True),
    help="Leave each spine this part of its bandwidth, as 0.5.",
)
@option(
    TIMES,
    "--by",
    type=click.Choice(["step", "group", "rank", "link"]),
    help="Show the forecast by steps of the file (if left out), groups, ranks, or links.",
)
@option(
    TIMES,
    "--scale",
    "scales",
    metavar="F[,F...]",
    help="Multiply all bytes by F; several make a curve.",
)
@option(
    TIMES,
    "--sizes",
    metavar="MIN:MAX[:FACTOR]",
    help="A curve over sizes, as 1K:8G:4: of the parameter `bytes`, else of the largest tensor "
    "that `expect` names.",
)
@option(
    TIMES,
    "--against",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    multiple=True,
    help="Hold the forecast against what `scenario bench --json` or nccl-tests measured, or a step "
    "that torch.profiler traced, call by call. Traces of several ranks, once for each, name the "
    "rank that the others wait for.",
)
@option(
    COSTS,
    "--goal",
    "goal_file",
    type=click.Path(),
    metavar="FILE",
    help="Write the messages of one case as a schedule in GOAL, which LogGOPSim reads.",
)
@option(
    COSTS,
    "--chakra",
    "chakra_folder",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Write one case as Chakra's execution traces, which ASTRA-sim replays: a file for each "
    "rank, and one of the groups.",
)
@option(TIMES, "--html", "html_file", type=click.Path(), metavar="FILE", help="Write a page.")
@option(
    TIMES,
    "--trace",
    "trace_file",
    type=click.Path(),
    metavar="FILE",
    help="Write a Chrome trace of the forecast, which Perfetto opens.",
)
def cost(**options: Any) -> None:
    """Count what programs cost: rounds, messages, bytes; forecast time. Start no process.

    `--set n=8,64,1024` makes a curve over ranks. The cost of a program that has a diagnosis is
    refused, with the diagnosis and exit code 1.
    """
    answers.cost.cost(options)


# `scenario topology`: the machines that are known, one of them, one made of a log.


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def topology() -> None:
    """List, show and make descriptions of machines, on which `scenario cost` forecasts time."""


@topology.command("list")
def list_topologies() -> None:
    """List the topologies that come with this package."""
    answers.cost.list_topologies()


@topology.command("show")
@click.argument("name")
def show_topology(name: str) -> None:
    """Print a topology, checked: a preset to copy and change, or a file."""
    answers.cost.show_topology(name)


@topology.command("fit")
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--ranks", type=click.IntRange(min=2), help="Of how many ranks the logs are.")
@click.option("--collective", metavar="NAME", help="Of which collective the logs are.")
@click.option("--name", default="measured", show_default=True, help="What to call it.")
@click.option("--source", help="Where the numbers are from; the names of the logs if left out.")
@click.option("-o", "--output", type=click.Path(), default="-", help="Where to write it.")
def fit_topology(
    logs: Sequence[str],
    ranks: int | None,
    collective: str | None,
    name: str,
    source: str | None,
    output: str,
) -> None:
    """Make a topology of measurements: outputs of nccl-tests, or of `scenario bench --json`.

    Its times are the measured ones, interpolated; of what was measured up to twice the size. Of a
    size that was measured several times, in one log or in several, the median counts.
    """
    answers.cost.fit_topology(logs, ranks, collective, name, source, output)


# `scenario bench`: how long programs take here, beside the forecast, and against an earlier time.

MEASURES = "What is measured"


def _share(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Return a share that is written as 10% or 0.1."""
    try:
        share = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share < 100:
        message = f"{value!r} is not a share, as 10%"
        raise click.BadParameter(message)
    if share >= 1 and not value.endswith("%"):
        message = f"{value!r} is {share:.0%}: write {value}% or 0.{value.replace('.', '')}"
        raise click.BadParameter(message)
    return share


@click.command(cls=GroupedCommand)
@add_selection_options
@add_execution_options
@option(
    MEASURES,
    "--sizes",
    metavar="MIN:MAX[:FACTOR]",
    help="Sizes of the parameter `bytes`, as 8:64M:4.",
)
@option(
    MEASURES,
    "--iters",
    type=click.IntRange(min=1, max=100_000),
    default=100,
    show_default=True,
    help="Repetitions of each size, in five blocks.",
)
@option(
    MEASURES,
    "--seconds",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    metavar="S",
    help="As many repetitions of each size as take about so long, in place of --iters.",
)
@option(
    MEASURES,
    "--warmup",
    type=click.IntRange(min=0, max=10_000),
    help="Repetitions before each block that do not count; as many as take 50 ms, and at least 5, "
    "if left out.",
)
@option(
    MEASURES,
    "--topology",
    "topology_name",
    metavar="NAME|FILE",
    help="Show also the forecast on this machine.",
)
@option(
    COSTS,
    "--json",
    "json_file",
    type=click.Path(),
    metavar="FILE",
    help="Write what was measured as JSON; `-` is standard output.",
)
@option(COSTS, "--raw", is_flag=True, help="Put every repetition into the JSON.")
@option(COSTS, "--nccl-tests", is_flag=True, help="Print the table that nccl-tests prints.")
@option(
    MEASURES,
    "--compare",
    type=click.Path(),
    metavar="OLD.json",
    help="Compare with what --json wrote before.",
)
@option(
    MEASURES,
    "--fail-above",
    default="10%",
    show_default=True,
    callback=_share,
    help="With --compare: FAILED where the whole interval of new over old is more than so much "
    "slower.",
)
def bench(**options: Any) -> None:
    """Measure how long programs take on a real backend; their values are checked first.

    The headline is the median of the slowest rank. A comparison is FAILED only where its whole
    95 % interval is beyond --fail-above, and INCONCLUSIVE on a noisy machine.
    """
    answers.cost.bench(options)
