"""What `scenario run` and `scenario agent` do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

import click
from msgspec.structs import replace

from torch_scenarios.cli.answers.base import recall, selection_of
from torch_scenarios.cli.answers.nodes import (
    find_endpoint,
    leave_unmet,
    secret_for_all,
    secret_or_leave,
    token_or_leave,
)
from torch_scenarios.cli.answers.reports import report
from torch_scenarios.cli.nodes import require_endpoint
from torch_scenarios.cli.options import INCONCLUSIVE_EXIT, refuse, settle_framework
from torch_scenarios.errors import LaunchError, ScenarioError
from torch_scenarios.execution import Launcher, LaunchOptions, backends, netns
from torch_scenarios.execution.frameworks.jax import JaxLauncher
from torch_scenarios.execution.frameworks.mpi import MpiLauncher
from torch_scenarios.execution.launcher import ENVIRONMENT, NoLauncher, ProcessLauncher
from torch_scenarios.execution.token import TOKEN, fresh_token
from torch_scenarios.language import discover
from torch_scenarios.model.traits import device_type
from torch_scenarios.pipeline import run as pipeline
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.pipeline.interruption import interrupt_on_termination
from torch_scenarios.pipeline.results import Executor, Outcome
from torch_scenarios.pipeline.selection import load_all, place_of
from torch_scenarios.report.formats import FORMATS
from torch_scenarios.report.output import Reports
from torch_scenarios.report.terminal import TerminalReport
from torch_scenarios.watch import Screen, Watch
from torch_scenarios.worker.frontend import CommandLine


def _require_one_launch(options: dict[str, Any]) -> None:
    """Leave one launch where there can only be one; UsageError where the command line has more."""
    backend = options["backend"]
    if options["netns"] is not None or options["nnodes"] > 1:
        reason = "the launch of several nodes is the only one"
    elif backends.may_be_here() if backend == "auto" else device_type(backend) != "cpu":
        reason = "launches would share the GPUs; --backend gloo does without GPUs"
    else:
        return
    context = click.get_current_context()
    given = context.get_parameter_source("jobs") is click.core.ParameterSource.COMMANDLINE
    if given and options["jobs"] > 1:
        message = f"--jobs {options['jobs']} is not possible here: {reason}"
        raise click.UsageError(message, context)
    options["jobs"] = 1


def run(options: dict[str, Any], of_an_agent: Callable[[], CommandLine]) -> NoReturn:
    """Run what the options select here, on several nodes, or on hosts that are simulated here.

    `of_an_agent` gives what the ranks of a node do with the arguments of the first.
    """
    settle_framework(options)
    if options["jobs"] > 1 and not options["dry_run"]:
        _require_one_launch(options)
    if options["netns"] is not None:
        _run_on_simulated_hosts(options)
    if options["nnodes"] > 1:
        _run_on_nodes(options, of_an_agent)
    _run_here(options, lambda: make_launcher(options["framework"], launch_options(options)))


def agent(options: dict[str, Any], of_an_agent: Callable[[], CommandLine]) -> NoReturn:
    """Lend this node's ranks to the run of another node, and end with its exit code."""
    secret = secret_or_leave(token_or_leave())
    _set_environment()
    from torch_scenarios.worker.agent import serve

    count = options["nproc_per_node"]
    _leave_node(serve(find_endpoint(options), count, of_an_agent(), secret, follows=True))


def _run_here(options: dict[str, Any], launch: Callable[[], Any]) -> NoReturn:
    """Read, judge and report in this process, on what `launch` starts."""
    if options["watch"]:
        watch({**options, "failed": frozenset()}, launch)
    failed, keepers = recall(options)
    options["failed"] = failed
    report(options, lambda reports: run_selected(options, reports, launch), keepers=keepers)


def _run_on_nodes(options: dict[str, Any], of_an_agent: Callable[[], CommandLine]) -> NoReturn:
    """Be the command line of several nodes, or the agent of one; end with the exit code.

    All nodes get the same command. The one whose address the endpoint names can listen there, and
    is the first:

        node 0   listens; reads, judges and reports; an agent that it forks has its ranks
        node 1   cannot listen; connects as an agent, and ends with node 0's exit code

    The agent is forked before this process has threads, for a fork takes none of them along.
    """
    require_endpoint(options)
    token = token_or_leave()
    _set_environment()
    from torch_scenarios.worker.agent import Cluster, fork_agent, say, serve

    endpoint, own = find_endpoint(options), of_an_agent()
    try:
        listeners = endpoint.open(say)
    except LaunchError as error:
        leave_unmet(error)
    if not listeners:
        code = serve(endpoint, options["nproc_per_node"], own, secret_or_leave(token))
        _leave_node(code)
    secret = secret_for_all(token, say)
    os.environ["LOCAL_WORLD_SIZE"] = str(options["nproc_per_node"])
    agent = fork_agent(endpoint, options["nproc_per_node"], own, secret)
    launch = launch_options(options)
    cluster = Cluster(listeners, endpoint, options["nnodes"], agent, launch, secret)
    code = INCONCLUSIVE_EXIT
    try:
        _run_here(options, lambda: cluster)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        raise
    finally:
        cluster.leave(code)


def _leave_node(code: int) -> NoReturn:
    """End with the exit code of the first node, and say what it means."""
    from torch_scenarios.worker.agent import MEANINGS

    click.echo(f"exit code {code}: {MEANINGS.get(code, 'see the first node')}", err=True)
    sys.exit(code)


def _set_environment() -> None:
    """Set what torch reads when it is imported: later it is too late."""
    os.environ.update({**ENVIRONMENT, **backends.make_environment(os.environ)})


def _run_on_simulated_hosts(options: dict[str, Any]) -> NoReturn:
    """Run the same command on hosts that are simulated here; UNSUPPORTED where none can be.

    `--netns 2` becomes `--nnodes 2 --rdzv-endpoint ...` in two processes, each in a network
    namespace of its own. What they run is the code of real nodes.
    """
    reason = netns.lack()
    if reason is not None:
        _run_here(options, lambda: NoLauncher(f"--netns: {reason}"))
    words = [*sys.argv[1:]]
    at = next(i for i, word in enumerate(words) if word.partition("=")[0] == "--netns")
    del words[at : at + (1 if "=" in words[at] else 2)]
    nodes = ["--nnodes", str(options["netns"])]
    where = ["--rdzv-endpoint", f"{netns.address(0)}:{netns.PORT}"]
    sys.argv = [sys.argv[0], words[0], *nodes, *where, *words[1:]]
    os.environ[TOKEN] = fresh_token()  # the hosts are forked from this process
    _set_environment()
    import_module("torch_scenarios.worker.agent")  # and torch, once for all hosts
    from torch_scenarios.cli import main

    devices = _devices_of_hosts(options["netns"], share_gpu=options["share_gpu"])

    def be_host() -> None:
        if devices:
            os.environ["CUDA_VISIBLE_DEVICES"] = devices[int(os.environ["NODE"])]
        main()

    sys.exit(netns.run(options["netns"], be_host))


def _devices_of_hosts(nodes: int, *, share_gpu: bool) -> list[str]:
    """Return which GPUs each simulated host sees; nothing where there are none, or all share.

    Of 8 GPUs and 2 hosts each sees 4, as real hosts would have them.
    """
    torch = sys.modules["torch"]
    seen = backends.list_visible(torch, os.environ)
    backends.count.cache_clear()  # each host counts its own
    return backends.split_devices(seen, nodes) if len(seen) >= nodes or not share_gpu else []


def run_selected(
    options: dict[str, Any],
    reports: Reports,
    launch: Callable[[], AbstractContextManager[Executor]],
) -> Outcome:
    """Run what the options select on what `launch` starts, or analyse it only."""
    selection = selection_of(options)
    if options["dry_run"]:
        return pipeline.check(
            selection,
            reports,
            pipeline.AnalysisRequest(
                traces=reports.traces, costs=reports.costs, endings=reports.endings
            ),
            stop_at_failure=options["exitfirst"],
        )
    return pipeline.run(
        selection,
        launch,
        reports,
        stop_at_failure=options["exitfirst"],
        repeat=options["repeat"],
        costs=reports.costs,
        jobs=options.get("jobs", 1),
    )


#: what runs a program, by its framework
LAUNCHERS: Mapping[str, type[ProcessLauncher]] = {
    "torch": Launcher,
    "mpi": MpiLauncher,
    "jax": JaxLauncher,
}


def make_launcher(framework: str, chosen: LaunchOptions) -> ProcessLauncher:
    """Return what runs scenarios; it starts nothing yet."""
    return LAUNCHERS[framework](chosen)


def launch_options(options: Mapping[str, Any]) -> LaunchOptions:
    """Return what the command line chose for the execution."""
    return LaunchOptions(
        backend=options["backend"],
        plugins=tuple(options["plugins"]),
        isolate=options["isolate"],
        max_ranks=options["max_ranks"],
        max_seconds=options["max_seconds"],
        confirm=options.get("confirm", "prediction"),
        share_gpu=options.get("share_gpu", False),
    )


INTERRUPTED = 130


#: options of `run` that mean a run that ends: parameter -> how it is written
_ENDING = {kind.parameter: kind.option for kind in FORMATS} | {
    "shard": "--shard",
    "seed": "--shuffle",
    "last_failed": "--last-failed",
    "failed_first": "--failed-first",
    "repeat": "--repeat",
    "durations": "--durations",
    "github": "--github",
    "jobs": "--jobs",
}


def watch(
    options: Mapping[str, Any],
    launch: Callable[[], Launcher] | None = None,
    *,
    backend: str | None = None,
) -> NoReturn:
    """Watch what the options select until Ctrl-C; leaves with exit code 130.

    Without `launch` it analyses only, for `backend` if one is named.

    What executes is started once and stays: a change is judged in the time of the case, without
    that of starting processes and importing torch.

    A command line that makes no sense ends it at once, with exit code 2; files may come and go
    later.
    """
    _refuse_what_needs_an_end(click.get_current_context())
    selection = selection_of(options)
    try:
        discover(place_of(path).path for path in selection.paths)
        load_all(replace(selection, paths=()))  # the words that select
    except ScenarioError as error:
        refuse(error)
    interrupt_on_termination()
    screen = Screen(TerminalReport(sys.stdout, verbose=options["verbose"]))
    analysed = partial(
        analyse,
        limits=selection.limits,
        backend=backend,
        strict=selection.strict,
        torch=options.get("torch"),
    )
    checks = launch is None
    started = nullcontext() if launch is None or options["dry_run"] else launch()
    try:
        with started as launcher:
            Watch(
                selection,
                screen,
                launcher,
                remember=lambda: Reports(None, recall(options, checks=checks)[1]),
                analysed=analysed,
                stop_at_failure=options["exitfirst"],
            ).run()
    except KeyboardInterrupt:
        screen.stop()
    sys.exit(INTERRUPTED)


#: where the value of an option comes from that the command line does not have
_UNGIVEN = {click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP}


def _refuse_what_needs_an_end(context: click.Context) -> None:
    """Refuse options of a run that ends; only where the command line, or the environment, has them.

    A default of the configuration is meant for runs, and does not count here.
    """
    for name, flag in _ENDING.items():
        given = context.get_parameter_source(name)
        if given is not None and given not in _UNGIVEN:
            message = f"{flag} is for a run that ends; it cannot be given with --watch"
            raise click.UsageError(message, context)
