"""`scenario run`, `check`, `list` and `merge`."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torch_scenarios.cli import answers
from torch_scenarios.cli.nodes import add_node_options, split_endpoint
from torch_scenarios.cli.options import (
    HOW,
    REPORTS,
    GroupedCommand,
    add_execution_options,
    add_framework_option,
    add_memory_options,
    add_options,
    add_order_options,
    add_repeat_options,
    add_report_options,
    add_reports_as,
    add_selection_options,
    add_strict_option,
    check_backend,
    check_lacks,
    limits_of,
    option,
)
from torch_scenarios.errors import ScenarioError
from torch_scenarios.files import discover, project_root, read_file
from torch_scenarios.model.versions import is_version
from torch_scenarios.report.formats import FORMATS

if TYPE_CHECKING:
    from torch_scenarios.worker.frontend import CommandLine


# -------------------------------------------------------------------------------------------------
# `scenario run`: check, run on a real backend under torchrun's machinery, judge.

#: seconds: longer than anyone waits, and far from what overflows in torch
LONGEST_S = 1e9


def _check_seconds(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse a time that is infinite, or not a number."""
    if value is not None and not value <= LONGEST_S:
        message = f"{value} is not a number of seconds up to {LONGEST_S:.0e}"
        raise click.BadParameter(message, ctx=ctx, param=param)
    return value


def add_stop_options(command: Any) -> Any:
    """Add what ends a run before its end."""
    return option(HOW, "-x", "--exitfirst", is_flag=True, help="Stop at the first failure.")(
        command
    )


def add_launch_options(command: Any) -> Any:
    """Add the options that choose how scenarios are executed."""
    command = add_options(
        command,
        option(
            HOW,
            "--share-gpu",
            is_flag=True,
            help="Let several NCCL ranks share one GPU; its times then mean nothing.",
        ),
        option(
            HOW,
            "--confirm",
            type=click.Choice(["prediction", "timeout"]),
            default="prediction",
            show_default=True,
            help="How a predicted deadlock is confirmed: at once, when every rank waits where it "
            "must, or by the backend's own timeout.",
        ),
        option(
            HOW,
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            callback=_check_seconds,
            metavar="SECONDS",
            help="The process-group timeout, in place of each scenario's own.",
        ),
        add_stop_options,
        option(HOW, "--dry-run", is_flag=True, help="Analyse only; start no process."),
    )
    return add_strict_option(add_execution_options(command))


#: cores for each launch that `--jobs auto` starts: the ranks of a typical world
CORES_OF_A_LAUNCH = 4
#: launches of one run, each of which is a process that imports torch
MOST_JOBS = 64


def _jobs(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Return how many launches are meant; a project asks for at most one per core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if value == "auto":
        return max(1, min(MOST_JOBS, cores // CORES_OF_A_LAUNCH))
    number = int(value) if value.isdecimal() else 0
    if not 1 <= number <= MOST_JOBS:
        message = f"{value!r} is neither a number from 1 to {MOST_JOBS} nor `auto`"
        raise click.BadParameter(message, ctx=ctx, param=param)
    given = ctx.get_parameter_source(str(param.name))
    return min(number, cores) if given is click.core.ParameterSource.DEFAULT_MAP else number


def add_jobs_options(command: Any) -> Any:
    """Add what runs cases side by side."""
    return option(
        HOW,
        "-j",
        "--jobs",
        default="1",
        callback=_jobs,
        metavar="N",
        help="Run cases on N launches side by side; `auto`: one for each four cores. Results are "
        "reported in the same order.",
    )(command)


def add_host_options(command: Any) -> Any:
    """Add the options that spread the ranks over nodes, or over hosts that are simulated."""
    return option(
        HOW,
        "--netns",
        type=click.IntRange(2, 64),
        metavar="N",
        help="Simulate N hosts by network namespaces of this machine, joined by a bridge.",
    )(add_node_options(command))


@click.command("run", cls=GroupedCommand)
@option(HOW, "--watch", is_flag=True, help="Stay, and run again what a save changes; Ctrl-C ends.")
@add_host_options
@add_selection_options
@add_memory_options
@add_order_options
@add_repeat_options
@add_jobs_options
@add_framework_option
@add_launch_options
@add_report_options
def run(**options: Any) -> None:
    """Check scenarios, run them on a real backend, and judge every rank.

    PATHS are scenario files, folders that hold some, a case (sum.yaml::sum[n=2]), or a line
    (sum.yaml:42: the step there, whose values are shown); left out, those that pyproject.toml
    names, else this folder. With an invalid file nothing runs.
    """
    answers.run.run(options, _find_agent_command)


# -------------------------------------------------------------------------------------------------
# `scenario run --nnodes 2 --rdzv-endpoint HOST:PORT`, the same on each node; `--netns 2` does that
# on hosts that it simulates.


@click.command("agent", cls=GroupedCommand)
@option(
    HOW,
    "--rdzv-endpoint",
    callback=split_endpoint,
    required=True,
    metavar="HOST:PORT",
    help="Where the nodes meet: an address of the first node, on which `scenario run` is.",
)
@option(
    HOW,
    "--nproc-per-node",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    metavar="N",
    help="Ranks of this node.",
)
def agent(**options: Any) -> None:
    """Lend this node's ranks to the `scenario run --nnodes` of another.

    It takes the arguments of the first node, so that only that one needs them, plugins among them;
    the files must be here at the same paths. It waits for the first node for five minutes, and ends
    with its exit code. SCENARIO_TOKEN, or a file that SCENARIO_TOKEN_FILE names, has the token that
    the first node prints.
    """
    answers.run.agent(options, _find_agent_command)


# -------------------------------------------------------------------------------------------------
# `scenario check --fix` and `--diff`: the sure edits of what is wrong, made or shown.


def add_fix_options(command: Any) -> Any:
    """Add the options that edit files."""
    return add_options(
        command,
        option(
            HOW,
            "--diff",
            is_flag=True,
            help="Print what --fix would change; write nothing.",
        ),
        option(
            HOW,
            "--fix",
            is_flag=True,
            help="Make the edits that can only be meant (a misspelt word, a missing `wait`), each "
            "proved to help, and check the result. Comments stay.",
        ),
    )


# -------------------------------------------------------------------------------------------------
# `scenario check`: schema, semantics, reference; no process is started.


def _version(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse what is no version."""
    if value is not None and not is_version(value):
        message = f"{value!r} is not a version of torch, such as 2.14.1"
        raise click.BadParameter(message, ctx=ctx, param=param)
    return value


@click.command("check", cls=GroupedCommand)
@option(HOW, "--watch", is_flag=True, help="Stay, and check again what a save changes.")
@add_fix_options
@option(
    HOW,
    "--stdin-filename",
    default="<stdin>",
    metavar="PATH",
    help="What messages call the text on standard input.",
)
@add_selection_options
@add_memory_options
@add_order_options
@add_stop_options
@add_strict_option
@add_report_options
@option(
    HOW,
    "--plugin",
    "plugins",
    multiple=True,
    is_eager=True,
    callback=check_lacks,
    metavar="MODULE",
    help="The module that registers the backend of --backend in a run; nothing is imported here.",
)
@option(
    HOW,
    "--backend",
    callback=check_backend,
    metavar="NAME",
    help="What each case does on a backend that is known to do otherwise than the semantics "
    "say for sure: nccl. Everywhere, if left out.",
)
@option(
    HOW,
    "--torch",
    callback=_version,
    metavar="VERSION",
    help="What each case does with this version of torch, such as 2.14.1. What is stated for "
    "any version is checked if left out, with any version installed.",
)
def check(**options: Any) -> None:
    """Check scenarios and prove their expectations against the semantics; start no process.

    PATHS are scenario files, folders that hold some, a case (sum.yaml::sum[n=2]), or a line
    (sum.yaml:42: the step there, whose values are shown); left out, those that pyproject.toml
    names, else this folder. `-` is standard input.
    """
    answers.check.check(options)


# -------------------------------------------------------------------------------------------------
# `scenario list`: the cases that a command line selects.


@click.command("list", cls=GroupedCommand)
@add_selection_options
@click.option("-v", "--verbose", is_flag=True, help="Show ranks, tags and the description.")
@click.option(
    "--needs",
    is_flag=True,
    help="Show what each case needs of a backend; it is analysed for that.",
)
@click.option(
    "--json",
    "as_json",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write JSON; - is standard output.",
)
def list_cases(**options: Any) -> None:
    """List the cases that the options select, a line each: the file and the case.

    Files are read and validated; nothing is evaluated but with --needs. Exit code 2 where a file
    is invalid.
    """
    answers.cases.list_cases(options)


# -------------------------------------------------------------------------------------------------
# `scenario merge`: the results of shards, or of several runs, as one; its exit code is theirs.


@click.command("merge", cls=GroupedCommand)
@click.argument("results", nargs=-1, required=True, type=click.Path(dir_okay=False))
@add_reports_as([kind for kind in FORMATS if kind.again])
def merge(**options: Any) -> None:
    """Join the results of several runs: the shards of one, or runs of different files.

    RESULTS are files that `scenario run` wrote with --json or --jsonl, and for --html the pages of
    these runs as well, whose pictures the new page takes over. A case that is in two of them,
    results of different versions of torch or of this tool, and a shard that is missing are errors.
    What did not pass is shown once more; the exit code is what the whole run's would be.
    """
    answers.merge.merge(options)


# -------------------------------------------------------------------------------------------------
# `python -m torch_scenarios.worker`: `scenario run` for a launch that torchrun or a cluster has
# started.

#: the name that the command line has among the files that a node has read
COMMAND_LINE = "the command line"
#: what may name a file that a scenario uses
_NAMED = re.compile(rb"[\w./-]+\.ya?ml\b")


@click.command("torch_scenarios.worker", cls=GroupedCommand)
@add_selection_options
@add_order_options
@add_repeat_options
@add_launch_options
@add_report_options
@option(
    REPORTS,
    "--conformance",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Run every call as well, and write what was seen as `scenario conformance -o FILE` does.",
)
@click.pass_obj
def spmd(conduct: Any, /, **options: Any) -> None:
    """Run scenarios on the ranks of this launch, as `scenario run` does on ranks that it starts.

    PATHS are scenario files, or folders that hold some. Every rank gets the same command line; rank
    0 reads it, judges and reports. A scenario that ends a process ends the launch: those after it
    are inconclusive.
    """
    answers.conformance.spmd(conduct, options)


def plugins(arguments: Sequence[str], command: click.Command | None = None) -> tuple[str, ...]:
    """Return the modules that a command line names with --plugin; none where it makes no sense."""
    try:
        options = (command or spmd).make_context("torch_scenarios.worker", list(arguments)).params
    except (click.ClickException, click.exceptions.Exit):
        return ()
    return tuple(options["plugins"])


def read(arguments: Sequence[str], command: click.Command | None = None) -> dict[str, str]:
    """Return a digest of each file that a command line leads to, by its path, and of itself.

    What a file uses is among them. A path that is not there has no digest: rank 0 says so where it
    is so on every node. Raises nothing; a command line that makes no sense leads to no file.
    """
    found = {COMMAND_LINE: _digest("\0".join(arguments).encode())}
    try:
        options = (command or spmd).make_context("torch_scenarios.worker", list(arguments)).params
    except (click.ClickException, click.exceptions.Exit):
        return found
    from torch_scenarios.pipeline.selection import place_of

    limits = limits_of(options)
    waiting: list[tuple[Path, Path]] = []
    for path in options["paths"]:
        try:
            files = discover([place_of(path).path], limits)
        except ScenarioError:
            found[path] = "not there"
        else:
            waiting += [(file, project_root(file)) for file in files]
    while waiting:
        file, root = waiting.pop()
        if str(file) in found:
            continue
        try:
            text = read_file(file, limits, root)
        except ScenarioError:
            found[str(file)] = "cannot be read"
            continue
        found[str(file)] = _digest(text)
        named = (file.parent / name.decode() for name in set(_NAMED.findall(text)))
        waiting += [(other, root) for other in named if _is_below(root, other)]
    return found


def _find_agent_command() -> CommandLine:
    """Return what an agent's ranks do with the arguments of `scenario run`."""
    from torch_scenarios.worker.frontend import CommandLine

    return CommandLine(
        read=lambda words: read(words[1:], run),
        plugins=lambda words: plugins(words[1:], run),
        run=lambda *_: None,
    )


def _is_below(root: Path, path: Path) -> bool:
    """Return whether a file is there, in its project; others are only words that look like one."""
    try:
        return path.is_file() and path.resolve().is_relative_to(root)
    except OSError:  # too long for a name
        return False


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
