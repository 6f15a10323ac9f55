"""`scenario run`, `check`, `list` and `merge`."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import click
from msgspec.structs import replace

from torch_scenarios.cli.nodes import (
    add_node_options,
    find_endpoint,
    leave_unmet,
    require_endpoint,
    secret_for_all,
    secret_or_leave,
    split_endpoint,
    token_or_leave,
)
from torch_scenarios.cli.options import (
    HOW,
    INCONCLUSIVE_EXIT,
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
    make_launcher,
    option,
    recall,
    refuse,
    refuse_usage,
    report,
    selection_of,
    settle_framework,
)
from torch_scenarios.cli.options import launch_options as executed_on
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError, Problem, ScenarioError
from torch_scenarios.files import read_file, replace_file
from torch_scenarios.model.versions import is_version
from torch_scenarios.pipeline.interruption import interrupt_on_termination
from torch_scenarios.report.formats import FORMATS
from torch_scenarios.report.output import STANDARD_OUTPUT, Reports

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch_scenarios.execution.backends import LaunchOptions
    from torch_scenarios.execution.launcher import Launcher
    from torch_scenarios.limits import Limits
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.pipeline.repair import Repaired
    from torch_scenarios.pipeline.results import Executor, Outcome, Selection
    from torch_scenarios.report.html.page import Shown
    from torch_scenarios.worker.frontend import CommandLine


# -------------------------------------------------------------------------------------------------
# `scenario run --watch`: the same scenarios, run again whenever a file of theirs is saved.

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

    A command line that makes no sense ends it at once, with exit code 2; files may come and go
    later.
    """
    _refuse_what_needs_an_end(click.get_current_context())
    from torch_scenarios.language import discover
    from torch_scenarios.pipeline.attempts import analyse
    from torch_scenarios.pipeline.selection import load_all, place_of
    from torch_scenarios.report.terminal import TerminalReport
    from torch_scenarios.watch import Screen, Watch

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
    for name, flag in _ENDING.items():
        given = context.get_parameter_source(name)
        if given is not None and given not in _UNGIVEN:
            message = f"{flag} is for a run that ends; it cannot be given with --watch"
            raise click.UsageError(message, context)


# -------------------------------------------------------------------------------------------------
# `scenario run`: check, run on a real backend under torchrun's machinery, judge.

#: seconds: longer than anyone waits, and far from what overflows in torch
LONGEST_S = 1e9


def _bearable(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
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
            callback=_bearable,
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


def _require_one_launch(options: dict[str, Any]) -> None:
    """Leave one launch where there can only be one; UsageError where the command line has more."""
    from torch_scenarios.execution.backends import may_be_here
    from torch_scenarios.model.traits import device_type

    backend = options["backend"]
    if options["netns"] is not None or options["nnodes"] > 1:
        reason = "the launch of several nodes is the only one"
    elif may_be_here() if backend == "auto" else device_type(backend) != "cpu":
        reason = "launches would share the GPUs; --backend gloo does without GPUs"
    else:
        return
    context = click.get_current_context()
    given = context.get_parameter_source("jobs") is click.core.ParameterSource.COMMANDLINE
    if given and options["jobs"] > 1:
        message = f"--jobs {options['jobs']} is not possible here: {reason}"
        raise click.UsageError(message, context)
    options["jobs"] = 1


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
    settle_framework(options)
    if options["jobs"] > 1 and not options["dry_run"]:
        _require_one_launch(options)
    if options["netns"] is not None:
        _on_simulated_hosts(options)
    if options["nnodes"] > 1:
        _on_nodes(options)
    _run_here(options, lambda: _launcher(options))


def _run_here(options: dict[str, Any], launch: Callable[[], Any]) -> NoReturn:
    """Read, judge and report in this process, on what `launch` starts."""
    if options["watch"]:
        watch({**options, "failed": frozenset()}, launch)
    failed, keepers = recall(options)
    options["failed"] = failed
    report(options, lambda reports: run_selected(options, reports, launch), keepers=keepers)


# -------------------------------------------------------------------------------------------------
# `scenario run --nnodes 2 --rdzv-endpoint HOST:PORT`, the same on each node; `--netns 2` does that
# on hosts that it simulates.


def _on_nodes(options: dict[str, Any]) -> NoReturn:
    """Be the command line of several nodes, or the agent of one; end with the exit code."""
    require_endpoint(options)
    token = token_or_leave()
    _set_environment()
    from torch_scenarios.worker.agent import Cluster, fork_agent, say, serve

    endpoint, own = find_endpoint(options), _of_an_agent()
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


def _of_an_agent() -> CommandLine:
    """Return what an agent's ranks do with the arguments of `scenario run`."""
    from torch_scenarios.worker.frontend import CommandLine

    return CommandLine(
        read=lambda words: read(words[1:], run),
        plugins=lambda words: plugins(words[1:], run),
        run=lambda *_: None,
    )


def _leave_node(code: int) -> NoReturn:
    """End with the exit code of the first node, and say what it means."""
    from torch_scenarios.worker.agent import MEANINGS

    click.echo(f"exit code {code}: {MEANINGS.get(code, 'see the first node')}", err=True)
    sys.exit(code)


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
    secret = secret_or_leave(token_or_leave())
    _set_environment()
    from torch_scenarios.worker.agent import serve

    count = options["nproc_per_node"]
    _leave_node(serve(find_endpoint(options), count, _of_an_agent(), secret, follows=True))


def _set_environment() -> None:
    """Set what torch reads when it is imported."""
    from torch_scenarios.execution import backends
    from torch_scenarios.execution.launcher import ENVIRONMENT

    os.environ.update({**ENVIRONMENT, **backends.make_environment(os.environ)})


def _on_simulated_hosts(options: dict[str, Any]) -> NoReturn:
    """Run the same command on hosts that are simulated here; UNSUPPORTED where none can be."""
    from torch_scenarios.execution import netns

    reason = netns.lack()
    if reason is not None:
        from torch_scenarios.execution.launcher import NoLauncher

        _run_here(options, lambda: NoLauncher(f"--netns: {reason}"))
    words = [*sys.argv[1:]]
    at = next(i for i, word in enumerate(words) if word.partition("=")[0] == "--netns")
    del words[at : at + (1 if "=" in words[at] else 2)]
    nodes = ["--nnodes", str(options["netns"])]
    where = ["--rdzv-endpoint", f"{netns.address(0)}:{netns.PORT}"]
    sys.argv = [sys.argv[0], words[0], *nodes, *where, *words[1:]]
    from torch_scenarios.execution.token import TOKEN, fresh_token

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
    """Return which GPUs each simulated host sees; nothing where there are none, or all share."""
    from torch_scenarios.execution import backends

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
    from torch_scenarios.pipeline import run as pipeline

    selection = selection_of(options)
    if options["dry_run"]:
        return pipeline.check(
            selection,
            reports,
            traces=reports.traces,
            costs=reports.costs,
            endings=reports.endings,
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


def _launcher(options: dict[str, Any]) -> Any:
    return make_launcher(options["framework"], launch_options(options))


def launch_options(options: dict[str, Any]) -> LaunchOptions:
    """Return what the command line chose for the execution."""
    return replace(executed_on(options), confirm=options["confirm"], share_gpu=options["share_gpu"])


# -------------------------------------------------------------------------------------------------
# `scenario check --fix` and `--diff`: the sure edits of what is wrong, made or shown.

WOULD_CHANGE = 1

_BOM = b"\xef\xbb\xbf"


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


def refuse_watch(options: Mapping[str, Any]) -> None:
    """Raise UsageError where files are to be edited while a person edits them."""
    if options["fix"] or options["diff"]:
        message = "--watch checks what you save; run --fix or --diff once, without it"
        raise click.UsageError(message)


def fix(options: Mapping[str, Any], selection: Selection) -> Selection:
    """Edit the files of a selection, and return what is to be checked; with `--diff` leave."""
    if not options["fix"] and not options["diff"]:
        return selection
    if selection.given is not None:
        made = _repaired(Path(selection.given[0]), selection.given[1], selection)
        if options["diff"]:
            _show_repairs([made])
        click.echo(made.after, nl=False)
        return replace(selection, given=(selection.given[0], made.after.encode()))
    from torch_scenarios.pipeline.selection import files_of

    found = [
        (path, content)
        for path, _ in files_of(selection).found
        if (content := _content(path)) is not None
    ]
    repaired = [
        (content, made)
        for path, content in found
        if (made := _repaired(path, content, selection)).changes
    ]
    if options["diff"]:
        _show_repairs(made for _, made in repaired)
    for content, made in repaired:
        _write_repaired(content, made)
    count = sum(len(made.titles) for _, made in repaired)
    if count:
        files = "1 file" if len(repaired) == 1 else f"{len(repaired)} files"
        edits = "1 edit" if count == 1 else f"{count} edits"
        click.echo(f"{edits} in {files}", err=True)
    return selection


def _content(path: Path) -> bytes | None:
    """Return the bytes of a file; None where the check will say why they cannot be read."""
    try:
        return read_file(path)
    except (ScenarioError, OSError):
        return None


def _repaired(path: Path, content: bytes, selection: Selection) -> Repaired:
    from torch_scenarios.limits import OverdueError
    from torch_scenarios.pipeline.repair import Repaired, repair

    try:
        return repair(path, content, limits=selection.limits, sets=selection.sets)
    except (ScenarioError, OverdueError):
        text = content.decode(errors="replace")
        return Repaired(path=path, before=text, after=text)


def _write_repaired(content: bytes, made: Repaired) -> None:
    """Write a file whole, where it still holds what was repaired; say what was changed."""
    try:
        if read_file(made.path) != content:
            refuse_usage(f"{made.path} changed meanwhile: run the command again")
        mark = _BOM if content.startswith(_BOM) else b""
        replace_file(made.path.resolve(), mark + made.after.encode())
    except OSError as error:
        refuse_usage(f"{made.path} cannot be written: {error.strerror or error}")
    for title in made.titles:
        click.echo(clean(f"fixed {made.path}: {title}"), err=True)


def _show_repairs(found: Iterable[Repaired]) -> NoReturn:
    """Print a unified diff of each file, and leave: 1 where there is one."""
    would = False
    for made in found:
        if made.changes:
            would = True
            click.echo(clean(_repair_difference(made)), nl=False)
    sys.exit(WOULD_CHANGE if would else 0)


def _repair_difference(made: Repaired) -> str:
    before, after = (text.splitlines(keepends=True) for text in (made.before, made.after))
    lines = difflib.unified_diff(before, after, str(made.path), f"{made.path} (fixed)")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


# -------------------------------------------------------------------------------------------------
# `scenario check`: schema, semantics, reference; no process is started.


def _version(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse what is no version."""
    if value is not None and not is_version(value):
        message = f"{value!r} is not a version of torch, such as 2.14.1"
        raise click.BadParameter(message, ctx=ctx, param=param)
    return value


def _standard_input(options: dict[str, Any], selection: Selection) -> Selection:
    """Return the selection with what `-` means; UsageError where that makes no sense."""
    from torch_scenarios.pipeline.selection import STANDARD_INPUT, place_of

    named = [place_of(path).path for path in selection.paths]
    if STANDARD_INPUT not in named:
        return selection
    if options["watch"] or len(named) > 1:
        message = "`-` is used alone: standard input is one text"
        raise click.UsageError(message)
    options["no_cache"] = True
    options["text_on_output"] = options["fix"]
    content = sys.stdin.buffer.read(selection.limits.max_file_bytes + 1)
    return replace(selection, given=(options["stdin_filename"], content))


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
    from torch_scenarios.pipeline.run import check

    backend = options["backend"]
    if backend is not None:
        from torch_scenarios.model.traits import carrier

        backend = carrier(backend)
    given = _standard_input(options, selection_of(options))
    if options["watch"]:
        refuse_watch(options)
        watch({**options, "failed": frozenset()}, backend=backend)
    options["failed"], keepers = recall(options, checks=True)
    selection = fix(options, replace(given, failed=options["failed"]))
    report(
        options,
        lambda told: check(
            selection,
            told,
            traces=told.traces,
            costs=told.costs,
            endings=told.endings,
            backend=backend,
            torch=options["torch"],
            stop_at_failure=options["exitfirst"],
        ),
        keepers=keepers,
    )


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
    from torch_scenarios.pipeline.results import INVALID, NOTHING_SELECTED
    from torch_scenarios.pipeline.selection import load_all

    try:
        selection = selection_of(options)
        loaded = load_all(selection)
    except ScenarioError as error:
        refuse(error)
    needs = _needs(loaded.scenarios, selection.limits) if options["needs"] else {}
    if options["as_json"]:
        _write_list(options["as_json"], [_entry(each, needs) for each in loaded.scenarios])
    if options["as_json"] != STANDARD_OUTPUT:
        lines = (_lines(each, needs, verbose=options["verbose"]) for each in loaded.scenarios)
        click.echo("".join(f"{clean(line)}\n" for case in lines for line in case), nl=False)
    for result in loaded.invalid:
        verdict = result.verdict
        for words in map(str, verdict.problems or (f"{result.file}: {verdict.reason}",)):
            click.echo(clean(words), err=True)
    if loaded.invalid:
        invalid = any(result.verdict.status == "INVALID" for result in loaded.invalid)
        sys.exit(INVALID if invalid else INCONCLUSIVE_EXIT)
    if not loaded.scenarios:
        click.echo("nothing was selected", err=True)
        sys.exit(NOTHING_SELECTED)


#: what each case needs, or why that is not known, by its file and its name
Needed: TypeAlias = Mapping[tuple[str, str], tuple[str, ...] | str]


def _needs(scenarios: Sequence[Scenario], limits: Limits) -> Needed:
    """Return what each case needs: it is analysed for that."""
    from torch_scenarios.pipeline.attempts import needs_of

    return {(each.source.path, each.case): needs_of(each, limits) for each in scenarios}


def _write_list(path: str, entries: list[dict[str, Any]]) -> None:
    """Write the cases as JSON; a file that cannot be written ends the command with exit code 3."""
    text = json.dumps(entries, indent=2)
    if path == STANDARD_OUTPUT:
        click.echo(text)
        return
    try:
        replace_file(Path(path), f"{text}\n".encode())
    except OSError as error:
        click.echo(f"{clean(path)} cannot be written: {error.strerror or error}", err=True)
        sys.exit(INCONCLUSIVE_EXIT)


def _entry(scenario: Scenario, needs: Needed) -> dict[str, Any]:
    found = needs.get((scenario.source.path, scenario.case))
    need = {} if found is None else {"needs": None if isinstance(found, str) else list(found)}
    return {
        "file": scenario.source.path,
        "case": scenario.case,
        "world_size": scenario.world_size,
        "tags": list(scenario.tags),
        "backends": None if scenario.backends is None else list(scenario.backends),
        "description": scenario.description,
        **need,
    }


def _lines(
    scenario: Scenario,
    needs: Needed,
    *,
    verbose: bool,
) -> list[str]:
    lines = [f"{scenario.source.path}::{scenario.case}"]
    found = needs.get((scenario.source.path, scenario.case))
    if found is not None:
        words = found if isinstance(found, str) else f"needs {', '.join(found) or 'nothing'}"
        lines[0] += f"  {words}"
    if verbose:
        tags = f"  [{', '.join(scenario.tags)}]" if scenario.tags else ""
        lines.append(f"    {scenario.world_size} ranks{tags}")
        lines += [f"    {line}" for line in scenario.description.strip().splitlines()]
    return lines


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
    report(options, lambda reports: _merge_reports(options["results"], reports))


def _merge_reports(paths: tuple[str, ...], reports: Reports) -> Outcome:
    from torch_scenarios.pipeline.merge import merge_outcomes
    from torch_scenarios.report.html.page import cases_of, draw, is_page
    from torch_scenarios.report.json import results_of

    problems: list[Problem] = []
    outcomes: dict[str, Outcome] = {}
    pages: dict[str, Mapping[tuple[str, str], Shown]] = {}
    for path in paths:
        if path in outcomes or path in pages:
            message = f"{path} is named twice"
            problems.append(Problem(code="not_mergeable", message=message))
            continue
        try:
            if is_page(path):
                pages[path] = cases_of(path)
            else:
                outcomes[path] = results_of(path)
        except ScenarioError as error:
            problems += error.problems
    if not outcomes and not problems:
        message = "pages alone cannot be joined: name also what --json wrote with them"
        problems.append(Problem(code="not_mergeable", message=message))
    if problems:
        raise ScenarioError(problems)
    outcome = draw(merge_outcomes(outcomes), pages)
    reports.begin(len(outcome.results))
    for result in outcome.results:
        reports.finish(result)
    return outcome


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
    launch = partial(conduct, launch_options(options))
    if options["conformance"]:
        from torch_scenarios.cli.answers.conformance import keep_column

        report(
            options, lambda reports: keep_column(options, reports, launch, options["conformance"])
        )
    report(options, lambda reports: run_selected(options, reports, launch))


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
    from torch_scenarios.files import discover, project_root, read_file
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


def _is_below(root: Path, path: Path) -> bool:
    """Return whether a file is there, in its project; others are only words that look like one."""
    try:
        return path.is_file() and path.resolve().is_relative_to(root)
    except OSError:  # too long for a name
        return False


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
