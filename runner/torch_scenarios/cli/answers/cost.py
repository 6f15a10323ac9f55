"""What `scenario cost`, `bench` and `topology` do."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from torch_scenarios.cli.answers.base import selection_of
from torch_scenarios.cli.answers.run import launch_options
from torch_scenarios.cli.options import refuse, refuse_usage, write_text
from torch_scenarios.cost.chakra import traces
from torch_scenarios.cost.collectives import NAMES, CollectiveTimes
from torch_scenarios.cost.degradation import Degradation
from torch_scenarios.cost.forecast import forecast, microseconds
from torch_scenarios.cost.intervals import (
    FITS,
    PLANNED,
    TIGHT,
    TOO_LARGE,
    find_least,
    memory_interval,
    reserve,
    tell_fit,
)
from torch_scenarios.cost.logs import (
    Log,
    choose_logs,
    is_log,
    read_bench,
    read_logs,
    read_rows,
    tables_of,
)
from torch_scenarios.cost.measurements import Table, base_size, name_table, write_topology
from torch_scenarios.cost.picture import Point, page, trace_events
from torch_scenarios.cost.profiled_step import (
    MOST_BYTES,
    Arrivals,
    ComparedCall,
    ProfiledStep,
    arrival_lines,
    call_lines,
    calls_of,
    compare_calls,
    decompress,
    find_arrivals,
    profile_lines,
    read_steps,
)
from torch_scenarios.cost.replay import goal
from torch_scenarios.cost.structure import (
    CostRefusedError,
    amount,
    structure_json,
    structure_lines,
    structure_of,
)
from torch_scenarios.cost.topology import Topology, path_of, presets, size_in_bytes, topology
from torch_scenarios.cost.topology import topology as known
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError, ScenarioError, UnsupportedError, WorkerError
from torch_scenarios.execution import Launcher
from torch_scenarios.files import read_file, replace_file
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.scenario import Scenario, steps_of
from torch_scenarios.model.traffic import Structure, Traffic
from torch_scenarios.operations import kind_of
from torch_scenarios.pipeline.attempts import analyse, execute, weigh
from torch_scenarios.pipeline.bench import (
    BLOCKS,
    changes,
    collective_of,
    compare,
    environment,
    facts_of,
    measure,
    nccl_tests_tables,
    noise,
    repetitions,
    row_of,
    warmups,
)
from torch_scenarios.pipeline.results import INVALID, NOTHING_SELECTED, Analysis, Selection
from torch_scenarios.pipeline.selection import load_all
from torch_scenarios.reference.vector.footprint import Footprint
from torch_scenarios.report.text import problem_lines
from torch_scenarios.source.documents import decode_json

#: `--set n=8,64,1024`: a number for each point of a curve
_SEVERAL = re.compile(r"\s*\d+\s*(,\s*\d+\s*)+")


#: what is proved of a program that is too large for its values
BY_SHAPES = (
    "by shapes: order, groups, sizes and dtypes fit; values were not computed (`scenario check`)"
)


#: ranks of a world whose cost is counted, if no `--limit ranks` says otherwise
MOST_RANKS = 2**20


#: points of a curve at most
MOST_POINTS = 1000


def cost(options: Mapping[str, Any]) -> None:
    """Count what programs cost: rounds, messages, bytes; forecast time. Start no process.

    Each case is counted once; sizes and scales multiply its bytes, and are points of one curve. The
    exit code is the largest of all cases (see :func:`_cost_case`), so that one wrong program is not
    hidden by a hundred right ones.
    """
    topology = _read_topology(options)
    selection = _allow_large_worlds(selection_of(options))
    quiet = options["json_file"] == "-"
    cases: list[dict[str, Any]] = []
    points: list[Point] = []
    codes: set[int] = set()
    selected = False
    for each in _selections(selection):
        for scenario, problems in _load_cases(each):
            selected = True
            if scenario is None:
                codes.add(INVALID)
                for line in problems:
                    click.echo(line, err=True)
                continue
            entries, lines, code, found = _cost_case(scenario, each.limits, topology, options)
            codes.add(code)
            cases += entries
            points += found
            for line in [] if quiet else lines:
                click.echo(clean(line))
    if options["against"]:
        codes.add(_compare(options, points, cases, quiet=quiet))
    _write(options, cases, points)
    if not selected:
        click.echo("nothing was selected", err=True)
        sys.exit(NOTHING_SELECTED)
    sys.exit(max(codes, default=0))


def _allow_large_worlds(selection: Selection) -> Selection:
    """Return a selection whose worlds may be large: no rank of them is started, nor walked.

    The analysis takes ranks that do the same together, so that a million of them can be counted.
    """
    given = click.get_current_context().get_parameter_source("max_ranks")
    if given is not None and given is not ParameterSource.DEFAULT:
        return selection
    limits = replace(selection.limits, max_ranks=MOST_RANKS)
    return replace(selection, limits=limits)


def _read_topology(options: Mapping[str, Any]) -> Topology | None:
    """Return the topology that is asked for; refuses what makes no sense without one."""
    if options["topology_name"] is None:
        for name in (
            "model",
            "algo",
            "nodes",
            "by",
            "scales",
            "sizes",
            "against",
            "html_file",
            "trace_file",
            *_WORSE,
        ):
            if options[name]:
                flag = "--" + name.removesuffix("_file").replace("scales", "scale")
                flag = flag.replace("_", "-")
                message = f"{flag} is about time, which has a topology: give --topology too"
                raise click.UsageError(message)
        return None
    # `--scale 2` doubles every byte; `--sizes 1K:1M` says what the largest tensor, or the parameter
    # `bytes`, is to have.
    if options["scales"] is not None and options["sizes"] is not None:
        message = "--scale and --sizes are two ways to say the same"
        raise click.UsageError(message)

    algorithm = options["algo"]
    if algorithm is not None and algorithm not in {*NAMES, "nvls", "nvls_tree"}:
        message = f"--algo {algorithm}: known are {', '.join(NAMES)}, nvls and nvls_tree"
        raise click.UsageError(message)
    try:
        return topology(options["topology_name"])
    except ScenarioError as error:
        refuse(error)


def _selections(selection: Selection) -> Iterator[Selection]:
    """Yield a selection for each combination of the numbers that `--set` lists.

    >>> found = _selections(Selection(paths=(), sets={"n": "8,64", "op": "sum"}))
    >>> [each.sets["n"] for each in found]
    ['8', '64']

    `--set n=8,64 --set bytes=1024,65536` are four. A value that is a list in brackets is one value.
    """
    several = {
        name: [part.strip() for part in text.split(",")]
        for name, text in selection.sets.items()
        if _SEVERAL.fullmatch(text)
    }
    for values in itertools.product(*several.values()):
        yield replace(selection, sets={**selection.sets, **dict(zip(several, values, strict=True))})


def _load_cases(selection: Selection) -> Iterator[tuple[Scenario | None, list[str]]]:
    """Yield the cases, and what is wrong with files that cannot be read."""
    try:
        loaded = load_all(selection)
    except ScenarioError as error:
        refuse(error)
    for result in loaded.invalid:
        shown = [
            line.printable for problem in result.verdict.problems for line in problem_lines(problem)
        ]
        yield None, shown
    for scenario in loaded.scenarios:
        yield scenario, []


def _cost_case(
    scenario: Scenario, limits: Any, topology: Topology | None, options: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[str], int, list[Point]]:
    """Return the entries of one case in JSON, its lines, its exit code, its points of a curve.

    0    counted
    1    the program is wrong: it has no cost
    2    the file is invalid, or the topology cannot tell
    3    the analysis reached a limit
    """
    analysis: Analysis = weigh(_leave_out_time(scenario), limits)
    head = f"{scenario.source.path}::{scenario.case}"
    entry: dict[str, Any] = {"file": scenario.source.path, "case": scenario.case}
    if analysis.predicted is None or analysis.verdict.status == "INVALID":
        shown = [each for problem in analysis.verdict.problems for each in problem_lines(problem)]
        lines = [f"{analysis.verdict.status}  {head}", *(each.printable for each in shown)]
        reason = analysis.verdict.reason
        refusal = {**entry, "refused": reason or "invalid"}
        code = 3 if analysis.verdict.status == "INCONCLUSIVE" else 2
        return [refusal], lines + ([reason] if reason else []), code, []
    try:
        structure = structure_of(analysis.predicted)
    except CostRefusedError as refused:
        lines = [head, *(f"  {line}" for line in str(refused).splitlines())]
        names = list(dict.fromkeys(each.name for each in analysis.predicted.diagnoses))
        return [{**entry, "refused": str(refused), "diagnoses": names}], lines, 1, []
    structure = _scale(structure, options["scales"])
    lines = [head, *(f"  {line}" for line in structure_lines(structure))]
    if not analysis.predicted.ranks:
        lines.append(f"  proved    {BY_SHAPES}")
    entry |= {"ranks": scenario.world_size, **structure_json(structure)}
    for option, write in (("goal_file", _write_goal), ("chakra_folder", _write_chakra)):
        if options[option] is not None:
            write(_take_only_traffic(analysis, option), options[option])
    if topology is None:
        return [entry], lines, 0, []
    try:
        points = list(_points(scenario, analysis, topology, options))
    except ScenarioError as error:
        shown = [each for problem in error.problems for each in problem_lines(problem)]
        words = "\n".join(str(problem) for problem in error.problems)
        lines += [f"  no forecast: {each.printable.strip()}" for each in shown[:1]]
        lines += [f"  {each.printable}" for each in shown[1:]]
        return [{**entry, "no_forecast": words}], lines, 2, []
    if analysis.footprint is not None:
        found, memory = _memory(analysis.footprint, topology, analysis.scenario.tags)
        lines += [f"  {line}" for line in found]
        entry |= memory
    if len(points) == 1:
        lines += [f"  {line}" for line in points[0].lines]
    else:
        lines += [f"  {line}" for line in _curve_lines(points)]
    entries = [
        {
            **entry,
            **({} if point.bytes is None else {"bytes": point.bytes}),
            **point.forecast.json(),
        }
        for point in points
    ]
    return entries, lines, 0, points


def _is_reckoned(footprint: Footprint | None) -> bool:
    """Return whether a program is a step that `record --times-on` wrote, or `scenario plan`.

    It has tensors for what is held.
    """
    names = set() if footprint is None else footprint.sizes.keys()
    return not names.isdisjoint(("held_parameters", "held_state", "held_activations"))


def _memory(
    footprint: Footprint, topology: Topology, tags: Collection[str]
) -> tuple[Sequence[str], dict[str, Any]]:
    """Return whether the machine has the memory of the program, and which tensors it holds.

    torch's allocator reserves more than tensors have (blocks are rounded, and kept): how much more
    was measured of training steps, and is shown as an interval of those.
    """
    held = footprint.bytes_held
    found: dict[str, Any] = {"held_bytes": held}
    if not topology.memory:
        words = f"memory    {amount(held)} in the program's tensors on each rank"
        return [words, *_name_largest(footprint)], found
    found |= {"memory_bytes": topology.memory, "fits": held <= topology.memory}
    if not _is_reckoned(footprint):
        fits = "its tensors fit" if found["fits"] else "its tensors do not fit"
        words = f"memory    {fits}: {amount(held)} on each rank, of {amount(topology.memory)}"
        words += "; what kernels and an allocator take on top was never compared"
        return [words, *_name_largest(footprint)], found
    is_planned = PLANNED in tags
    interval = memory_interval(is_planned=is_planned)
    least = find_least(held, tags)
    low, high = reserve(held, least, is_planned=is_planned)
    verdict = tell_fit(held, topology.memory, least, is_planned=is_planned)
    found |= {"fits": verdict != TOO_LARGE, "tight": verdict == TIGHT}
    found["reserved_bytes"] = [low, high]
    fits = {FITS: "fits", TIGHT: "may fit", TOO_LARGE: "does not fit"}[verdict]
    words = f"memory    {fits}: 80 % of such steps reserve {amount(low)} to {amount(high)} of "
    words += f"{amount(topology.memory)} ({interval.rows} steps that {interval.sets} projects "
    words += "measured)"
    of = f"tensors   {amount(held)} on each rank, of which an allocator reserves "
    of += f"{interval.low:.2f} to {interval.high:.2f} times"
    of += f"; by the code that holds least {amount(least)}" * (least < held)
    return [words, of, *_name_largest(footprint)], found


#: the part of a rank's tensors from which on one of them is named, and how many are
_LARGE_PART, _MOST_NAMED = 0.05, 3
#: the bytes of all tensors from which on they are named
_WORTH_NAMING = 2**20


def _name_largest(footprint: Footprint) -> Sequence[str]:
    """Return a line with the largest tensors of a rank, where there are several."""
    held = footprint.bytes_held
    sizes = sorted(footprint.sizes.items(), key=lambda each: -each[1])
    named = [
        f"{name.removeprefix('held_')} {amount(size)}"
        for name, size in sizes[:_MOST_NAMED]
        if size >= _LARGE_PART * held
    ]
    return [f"largest   {', '.join(named)}"] if len(sizes) > 1 and held >= _WORTH_NAMING else []


def _scale(structure: Structure, scales: str | None) -> Structure:
    """Return a structure whose bytes are those that `--scale` asks for, where it asks for one."""
    try:
        factor = float(scales or 1)
    except ValueError:
        return structure  # several make a curve
    return replace(structure, sent=tuple(each * factor for each in structure.sent))


def _take_only_traffic(analysis: Analysis, option: str) -> Traffic:
    """Return what goes between the ranks of a case; refuses a second case.

    The first case is kept in the context of the command, since one file can hold one schedule.
    """
    context = click.get_current_context()
    case = analysis.scenario.case
    if context.meta.setdefault(f"torch_scenarios.{option}", case) != case:
        flag = f"--{option.partition('_')[0]}"
        message = f"{flag} writes one case: name it, as in ring.yaml::ring[n=4]"
        raise click.UsageError(message)
    assert analysis.predicted is not None
    traffic = analysis.predicted.traffic
    assert isinstance(traffic, Traffic)
    return traffic


def _write_goal(traffic: Traffic, file: str) -> None:
    """Write the schedule of a case; refuses what has none."""
    try:
        write_text(file, goal(traffic))
    except ScenarioError as error:
        refuse(error)


def _write_chakra(traffic: Traffic, folder: str) -> None:
    """Write the traces of a case: `trace.RANK.et`, and `groups.json`."""
    try:
        found = traces(traffic)
    except ScenarioError as error:
        refuse(error)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for rank, content in enumerate(found.ranks):
            replace_file(Path(folder) / f"trace.{rank}.et", content)
        replace_file(Path(folder) / "groups.json", found.groups.encode())
    except OSError as error:
        refuse_usage(f"{folder}: it cannot be written: {error.strerror or error}")


def _leave_out_time(scenario: Scenario) -> Scenario:
    """Return a case in which no time is stated: a forecast is what is asked for, and no verdict."""
    stated = scenario.expect.cost
    if stated is None or stated.time is None:
        return scenario
    rest = replace(stated, time=None)
    empty = (rest.rounds, rest.messages, rest.sent, rest.sent_by) == (None,) * 4
    return replace(scenario, expect=replace(scenario.expect, cost=None if empty else rest))


def _points(
    scenario: Scenario, analysis: Analysis, topology: Topology, options: Mapping[str, Any]
) -> Iterator[Point]:
    """Yield the forecasts of a case: one for each size that is asked for.

    All are made of the same traffic. Which algorithm is forecast may change with the size, as
    NCCL's own choice does.
    """
    assert analysis.predicted is not None
    assert analysis.predicted.traffic is not None
    labels = _labels(analysis)
    topology = _spread_over_nodes(topology, scenario.world_size, options["nodes"])
    collective, own = collective_of(analysis)
    worse = _degradation(options)
    traffic = analysis.predicted.traffic
    for size, scale in _scales(scenario, analysis, options):
        found = forecast(
            traffic,
            topology,
            model=options["model"],
            algorithm=options["algo"],
            scale=scale,
            reckoned=_is_reckoned(analysis.footprint),
            forms=scenario.tags,
            worse=worse,
        )
        yield Point(
            case=scenario.case,
            ranks=scenario.world_size,
            bytes=size,
            lines=tuple(found.forecast_lines(labels, options["by"] or "step")),
            forecast=found,
            collective=None if collective is None else kind_of(collective),
            size=None if own is None else float(round(own * scale)),
            traffic=traffic,
            labels=labels,
        )


#: options that say what is worse than the topology states
_WORSE = ("slow", "lost_nics", "spine")


def _degradation(options: Mapping[str, Any]) -> Degradation:
    """Return what is assumed to be worse than the topology says. Raises UsageError."""
    return Degradation(
        slow={rank: each for rank, each in _pairs("--slow", options["slow"], float) if each != 1},
        lost=dict(_pairs("--lost-nics", options["lost_nics"], int)),
        spine=options["spine"] or 1.0,
    )


def _pairs(flag: str, given: Sequence[str], kind: Callable[[str], Any]) -> Iterator[Any]:
    """Yield the numbers of ranks or nodes, and what is stated of each. Raises UsageError.

    >>> list(_pairs("--slow", ["3=1.2"], float))
    [(3, 1.2)]
    """
    for text in given:
        number, _, stated = text.partition("=")
        try:
            pair = int(number), kind(stated)
        except ValueError:
            pair = -1, 0
        if pair[0] < 0 or not 0 < pair[1] < float("inf"):
            form = "RANK=FACTOR, as 3=1.2" if kind is float else "NODE=COUNT, as 0=1"
            message = f"{flag} {text}: it is not {form}"
            raise click.UsageError(message)
        yield pair


def _spread_over_nodes(topology: Topology, ranks: int, nodes: int | None) -> Topology:
    """Return a topology on which so many ranks are on so many nodes. Raises UsageError."""
    if nodes is None:
        return topology
    if ranks % nodes:
        message = f"--nodes {nodes}: {ranks} ranks cannot be spread evenly over {nodes} nodes"
        raise click.UsageError(message)
    return replace(topology, node_ranks=ranks // nodes)


def _labels(analysis: Analysis) -> dict[int, str]:
    """Return what steps are called, by their index, with their lines."""
    found = {}
    for step in steps_of(analysis.scenario.steps):
        name = step.name or getattr(step.operation, "name", None) or "step"
        found[step.index] = name if step.mark is None else f"{name}, line {step.mark.line}"
        if isinstance(step.at, str):  # the line of the script that was recorded
            found[step.index] += f", {step.at}"
    return found


def _scales(
    scenario: Scenario, analysis: Analysis, options: Mapping[str, Any]
) -> Iterator[tuple[float | None, float]]:
    """Yield sizes, and what all bytes are multiplied by for each.

        --scale 1,4         the size of the program, and four times that
        --sizes 1K:4K       of a program of 2 KiB: (1024, 0.5), (2048, 1.0), (4096, 2.0)

    The size of a program is its parameter `bytes`, else that of its largest tensor.
    """
    known = analysis.footprint.sizes if analysis.footprint is not None else None
    own = base_size(scenario, analysis.predicted, known)
    if options["scales"] is not None:
        try:
            factors = [float(part) for part in options["scales"].split(",")]
        except ValueError:
            factors = []
        if not factors or not all(0 < factor < float("inf") for factor in factors):
            message = f"--scale {options['scales']}: numbers above zero, as in 1,1024"
            raise click.UsageError(message)
        for factor in factors:
            yield own * factor, factor
        return
    if options["sizes"] is None:
        yield None, 1.0
        return
    if own <= 0:
        message = "--sizes: the program has neither a parameter `bytes` nor a tensor with elements"
        raise click.UsageError(message)
    for size in sizes_of(options["sizes"], "--sizes"):
        yield size, size / own


def sizes_of(text: str, flag: str) -> list[float]:
    """Return the sizes in MIN:MAX[:FACTOR], or in a list with commas. Raises UsageError.

    As nccl-tests has them in `-b MIN -e MAX -f FACTOR`.

    >>> sizes_of("1K:8K:2", "--sizes")
    [1024.0, 2048.0, 4096.0, 8192.0]
    >>> sizes_of("64K,1M", "--sizes")
    [65536.0, 1048576.0]
    """
    parts = text.split(":")
    if len(parts) == 1:
        found = [size_in_bytes(part) for part in text.split(",")]
        if any(size is None or not size > 0 for size in found):
            message = f"{flag} {text}: sizes, as 1K,64K,1M, or MIN:MAX[:FACTOR], as 1K:8G:4"
            raise click.UsageError(message)
        return [size for size in found if size]
    first, last = size_in_bytes(parts[0]), size_in_bytes(parts[1])
    try:
        factor = float(parts[2]) if len(parts) > 2 else 2.0
    except ValueError:
        factor = 0.0
    if first is None or last is None or not 0 < first <= last or factor <= 1 or len(parts) > 3:
        message = f"{flag} {text}: MIN:MAX[:FACTOR], as 1K:8G:4, with a factor above 1"
        raise click.UsageError(message)
    sizes: list[float] = []
    while first <= last * (1 + 1e-9) and len(sizes) < MOST_POINTS:
        sizes.append(first)
        first *= factor
    return sizes


def _curve_lines(points: Sequence[Point]) -> list[str]:
    """Return a curve over sizes in lines: what it is from, once, then a row for each size.

    A row says what it is from only where that differs: a table of measurements ends at some size,
    beyond which a model takes its place.
    """
    first = points[0].forecast
    lines = [f"origin    {first.origin}"]
    for point in points:
        size = "" if point.bytes is None else amount(point.bytes)
        origin = point.forecast.origin
        other = "" if origin == first.origin else f"  ({origin.partition(', on ')[0]})"
        time = microseconds(point.forecast.time)
        lines.append(f"{size:>12}  {time:>12}  {point.forecast.error}{other}")
    return lines


def _compare(
    options: Mapping[str, Any], points: Sequence[Point], cases: list[dict[str, Any]], *, quiet: bool
) -> int:
    """Hold forecasts against measurements; returns an exit code. No verdict is made of it.

    A file may be a trace of torch.profiler, what nccl-tests printed, or the rows of `scenario
    bench`: which one is seen from its content.
    """
    path, *more = options["against"]
    try:
        limits = replace(DEFAULT, max_file_bytes=MOST_BYTES)
        read = [
            decompress(read_file(Path(each), limits, Path(each).parent.resolve()))
            for each in options["against"]
        ]
        if all(b'"traceEvents"' in content for content in read):
            return _compare_with_profile(read, points, cases, options, quiet=quiet)
        if more:
            others = (
                each
                for each, text in zip(options["against"], read, strict=True)
                if b'"traceEvents"' not in text
            )
            refuse_usage(
                f"--against {next(others)}: it is not a trace of torch.profiler, and several files "
                "are traces, one of each rank"
            )
        (content,) = read
        if is_log(content):
            tables = tables_of(read_logs(Path(path), content))
            return _compare_with_log(path, tables, points, cases, quiet=quiet)
        rows = read_rows(Path(path))
    except ScenarioError as error:
        refuse(error)
    compared = 0
    # Points and entries of a forecast are in the same order, and a case without a forecast has
    # neither.
    timed = [entry for entry in cases if "time_us" in entry]
    for point, entry in zip(points, timed, strict=True):
        row = next(
            (
                row
                for row in rows
                if row["case"] == point.case
                and row["ranks"] == point.ranks
                and (point.bytes is None or abs(row["bytes"] - point.bytes) < 1)
            ),
            None,
        )
        if row is None:
            continue
        compared += 1
        ratio = point.forecast.time / row["min_us"] if row["min_us"] else float("inf")
        entry["measured"] = {"min_us": row["min_us"], "median_us": row["median_us"], "ratio": ratio}
        if not quiet:
            words = (
                f"{microseconds(row['min_us'])} at least, {microseconds(row['median_us'])} median"
            )
            click.echo(
                f"{point.case} {row['bytes']:.12g} bytes: forecast "
                f"{microseconds(point.forecast.time)}, measured {words}: "
                f"forecast / minimum {ratio:.3g}"
            )
    if not compared:
        click.echo(f"--against {path}: no row of it is of these cases and sizes", err=True)
        return 2
    return 0


def _compare_with_profile(
    contents: Sequence[bytes],
    points: Sequence[Point],
    cases: list[dict[str, Any]],
    options: Mapping[str, Any],
    *,
    quiet: bool,
) -> int:
    """Hold forecasts of a step against what torch.profiler wrote of it, on one rank or several."""
    try:
        steps = read_steps([decode_json(each, parts=MOST_BYTES // 8) for each in contents])
    except ValueError as error:
        refuse_usage(f"--against: a trace cannot be read: {error}")
    step, arrivals = steps[0], find_arrivals(steps)
    for point, entry in zip(points, (each for each in cases if "time_us" in each), strict=True):
        assert point.traffic is not None
        asked = {"model": options["model"], "algorithm": options["algo"]}
        times = CollectiveTimes(
            point.forecast.topology, point.ranks, **asked, traffic=point.traffic
        )
        made = calls_of(point.traffic, times, step.rank or 0)
        both, missing, more = compare_calls(made, step.calls)
        entry["measured"] = _profile_json(point, step, both, arrivals)
        lines = [*profile_lines(step, point.forecast), ""]
        lines += call_lines(both, missing, more, point.labels)
        if step.world_size not in {None, point.ranks}:
            lines.append(f"the trace is of {step.world_size} ranks, the program of {point.ranks}")
        lines += ["", *arrival_lines(arrivals)] if len(steps) > 1 else [_ONE_RANK]
        for line in [] if quiet else lines:
            click.echo(clean(line))
    return 0


#: what one trace cannot tell
_ONE_RANK = (
    "a call that takes longer than its forecast may wait for another rank: give the traces of more "
    "ranks (`--against` once for each), and the straggler is named"
)


def _profile_json(
    point: Point, step: ProfiledStep, both: Sequence[ComparedCall], arrivals: Arrivals
) -> dict[str, Any]:
    """Return a traced step next to its forecast, call by call and rank by rank, for JSON."""
    found: dict[str, Any] = {
        "ratio": point.forecast.time / step.time if step.time else 0.0,
        "step_us": step.time,
        "computing_us": step.computing,
        "exposed_us": step.exposed,
        "idle_us": step.idle,
        "calls_us": {kind: list(times) for kind, times in step.times.items()},
        "calls": [
            {
                "step": each.made.step,
                "kind": each.made.key.kind,
                "bytes": each.made.key.size,
                "forecast_us": each.made.time,
                "measured_us": each.traced.time,
                "exposed_us": each.traced.exposed,
            }
            for each in both
        ],
    }
    if len(arrivals.ranks) < 2:
        return found
    found["ranks"] = [
        {
            "rank": each.step.rank,
            "step_us": each.step.time,
            "computing_us": each.step.computing,
            "idle_us": each.step.idle,
            "waits_us": each.waits,
            "comes_last": each.last,
        }
        for each in arrivals.ranks
    ]
    late = arrivals.straggler
    found["straggler"] = None if late is None else late.step.rank
    return found


def _compare_with_log(
    path: str,
    tables: Mapping[str, Mapping[int, Table]],
    points: Sequence[Point],
    cases: list[dict[str, Any]],
    *,
    quiet: bool,
) -> int:
    """Hold forecasts of collectives against a log, whose calls are many in a row.

    nccl-tests starts its calls one after the other and divides the time by their number. The launch
    of a call is then hidden behind the one before, so that the forecast is held against it by its
    `pace`, the time from one call to the next.
    """
    compared = 0
    timed = [entry for entry in cases if "time_us" in entry]
    for point, entry in zip(points, timed, strict=True):
        table = tables.get(point.collective or "", {}).get(point.ranks)
        if table is None or point.size not in table.sizes:
            continue
        compared += 1
        mean, pace = table.at(point.size), point.forecast.pace
        entry["measured"] = {"mean_us": mean, "pace_us": pace, "ratio": pace / mean}
        if not quiet:
            click.echo(
                f"{point.case} {point.size:.12g} bytes, many calls in a row: forecast "
                f"{microseconds(pace)} a call, measured {microseconds(mean)}: "
                f"forecast / measured {pace / mean:.3g}"
            )
    if not compared:
        message = f"--against {path}: no row of it is of a collective, ranks and size at hand"
        click.echo(message, err=True)
        return 2
    return 0


def _write(
    options: Mapping[str, Any], cases: list[dict[str, Any]], points: Sequence[Point]
) -> None:
    """Write what is asked for: JSON, a page, a trace."""
    if options["json_file"] is not None:
        content = json.dumps({"version": 1, "cases": cases}, indent=2) + "\n"
        write_text(options["json_file"], content)
    if options["html_file"] is not None:
        write_text(options["html_file"], page(points))
    if options["trace_file"] is not None:
        content = json.dumps({"traceEvents": trace_events(points)}) + "\n"
        write_text(options["trace_file"], content)


def list_topologies() -> None:
    """List the topologies that come with this package."""
    names = presets()
    width = max(map(len, names))
    for name in names:
        click.echo(f"{name:<{width}}  {known(name).describes}")


def show_topology(name: str) -> None:
    """Print a topology, checked: a preset to copy and change, or a file."""
    try:
        known(name)
        path, root = path_of(name)
        click.echo(clean(read_file(path, root=root).decode()), nl=False)
    except ScenarioError as error:
        refuse(error)


def fit_topology(
    logs: Sequence[str],
    ranks: int | None,
    collective: str | None,
    name: str,
    source: str | None,
    output: str,
) -> None:
    """Make a topology of measurements: outputs of nccl-tests, or of `scenario bench --json`."""
    found: list[Log] = []
    for each in logs:
        path = Path(each)
        try:
            asked = None if collective is None else name_table(collective)
            content = read_file(path, root=path.parent.resolve())
            log = choose_logs(read_logs(path, content), path, asked, ranks)
        except ScenarioError as error:
            refuse(error)
        for value, flag in (("ranks", "--ranks"), ("collective", "--collective")):
            if any(getattr(part, value) is None for part in log):
                message = f"{each} does not say of what it is: give {flag}"
                raise click.UsageError(message)
        found += log
    try:
        text = write_topology(name, source or ", ".join(logs), tables_of(found))
    except ScenarioError as error:
        refuse(error)
    write_text(output, text)


def bench(options: Mapping[str, Any]) -> None:
    """Measure how long programs take on a real backend; their values are checked first.

    What is measured of a program that is wrong says nothing. The load of the machine is taken
    before anything starts, for the ranks are a load themselves.
    """
    topology = _bench_asked(options)
    old: dict[str, Any] = {"rows": []}
    try:
        if options["compare"] is not None:
            old = read_bench(Path(options["compare"]))
    except ScenarioError as error:
        refuse(error)
    load = os.getloadavg()[0]
    with Launcher(launch_options(options)) as launcher:
        found = _bench(options, launcher, topology)
    content = [row.json() for row in found.rows]
    ranks = max((row.ranks for row in found.rows), default=0)
    where = environment(found.facts, load)
    notes = noise(ranks, where["backend"], content, load) if found.rows else []
    notices = [*notes, *changes(old.get("environment"), where)]
    lines = bench_lines(found.rows, content, notices, nccl=options["nccl_tests"])
    verdicts = []
    for row in content if options["compare"] is not None else []:
        compared = _compare_with_old(row, old["rows"], options["fail_above"], noisy=bool(notes))
        if compared is not None:
            verdicts.append(compared.status)
            row["comparison"] = asdict(compared)
            mark = "# " if options["nccl_tests"] else ""
            lines.append(mark + _comparison_line(row, compared))
    for line in [] if options["json_file"] == "-" else lines:
        click.echo(clean(line))
    if options["json_file"] is not None:
        for row, entry in zip(found.rows, content if options["raw"] else [], strict=False):
            entry["samples_us"] = [list(block) for block in row.blocks]
        whole = {"version": 1, "environment": where, "notes": notices, "rows": content}
        write_text(options["json_file"], json.dumps(whole, indent=2) + "\n")
    sys.exit(_bench_code(options, found.rows, verdicts, found.code))


def _bench_asked(options: Mapping[str, Any]) -> Topology | None:
    """Return the topology that is asked for; refuses what would be wrong after all repetitions.

    A file that cannot be written at the end of an hour would lose that hour.
    """
    given = click.get_current_context().get_parameter_source("fail_above")
    if given is ParameterSource.COMMANDLINE and options["compare"] is None:
        message = "--fail-above is about a comparison: give --compare too"
        raise click.UsageError(message)
    if options["raw"] and options["json_file"] is None:
        message = "--raw is about JSON: give --json too"
        raise click.UsageError(message)
    if options["sizes"] is not None and "bytes" in options["sets"]:
        message = "--sizes sets the parameter `bytes`: leave out --set bytes"
        raise click.UsageError(message)
    target = None if options["json_file"] in {None, "-"} else Path(options["json_file"])
    if target is not None and (target.is_dir() or not target.absolute().parent.is_dir()):
        message = f"--json {target}: it is a folder, or its folder does not exist"
        raise click.UsageError(message)
    return _read_topology({**options, **dict.fromkeys((*_ONLY_COST, "sizes"))})


def _bench_code(
    options: Mapping[str, Any], rows: Sequence[Any], verdicts: Sequence[str], code: int
) -> int:
    """Return the exit code: what could not be measured first, then the comparisons."""
    if not rows and code == 0:
        click.echo("nothing was selected", err=True)
        return 5
    if options["compare"] is not None and rows and not verdicts:
        click.echo(f"--compare {options['compare']}: no row of it is of these cases", err=True)
        return max(code, 2)
    return code or (1 if "FAILED" in verdicts else 3 if "INCONCLUSIVE" in verdicts else 0)


_ONLY_COST = (
    *("model", "algo", "nodes", "by", "scales", "against", "html_file", "trace_file"),
    *_WORSE,
)


class _Benched(Struct):
    """The rows of all cases and sizes, an exit code where one cannot be measured.

    `facts` are the backend and what torch says of itself, of the last run.
    """

    rows: list[Any] = field(default_factory=list)
    code: int = 0
    facts: dict[str, str] = field(default_factory=dict)


def _bench(options: Mapping[str, Any], launcher: Any, topology: Topology | None) -> _Benched:
    """Measure all cases and sizes.

    Sizes take turns, block by block, so that what drifts meanwhile is in all of them.

        block 1   1 KiB x 20   64 KiB x 20   1 MiB x 20
        block 2   1 KiB x 20   ...

    The first block of a size is preceded by a trial, from which the repetitions to warm up, and
    with `--seconds` those to measure, are computed.
    """
    ready: list[tuple[Analysis, float, dict[str, Any] | None, list[Any]]] = []
    whole = _Benched(facts={"backend": options["backend"]})
    for analysis, size, foreseen in _bench_cases(options, topology):
        reason = _unfit(analysis)
        if reason is not None:
            worse = {"INCONCLUSIVE": 3, "INVALID": 2}.get(analysis.verdict.status, 1)
            whole.code = max(whole.code, worse)
            click.echo(clean(f"{analysis.scenario.case} is not measured: {reason}"), err=True)
            continue
        result = execute(analysis, launcher)
        if result.verdict.status != "PASSED":
            worse = {"INCONCLUSIVE": 3, "INVALID": 2}.get(result.verdict.status, 1)
            whole.code = max(whole.code, worse)
            reason = result.verdict.reason or "`scenario run` shows why"
            click.echo(f"{result.verdict.status}  {result.case}: {reason}", err=True)
            continue
        ready.append((analysis, size, foreseen, []))
        whole.facts = facts_of(result.verdict.observed)
    seconds = options["seconds"]
    warmup = [options["warmup"]] * len(ready)
    each = [max(1, -(-options["iters"] // BLOCKS))] * len(ready)
    for turn in range(BLOCKS):
        for at, (analysis, _size, _foreseen, blocks) in enumerate(ready):
            try:
                if turn == 0 and (warmup[at] is None or seconds is not None):
                    tried = measure(analysis, launcher, warmup=warmup[at] or 0, iterations=BLOCKS)
                    warmup[at] = warmups(tried) if warmup[at] is None else warmup[at]
                    each[at] = each[at] if seconds is None else repetitions(tried, seconds)
                chosen = {"warmup": warmup[at], "iterations": each[at]}
                blocks.append(measure(analysis, launcher, **chosen))
            except (LaunchError, WorkerError, UnsupportedError) as error:
                click.echo(f"INCONCLUSIVE  {analysis.scenario.case}: {error}", err=True)
                whole.code = 3
                return whole
    device = "CPU" if whole.facts["backend"] == "gloo" else "GPU"
    whole.rows = [
        row_of(analysis, blocks, size, foreseen, warmup=warmup[at] or 0, device=device)
        for at, (analysis, size, foreseen, blocks) in enumerate(ready)
    ]
    return whole


def _unfit(analysis: Analysis) -> str | None:
    """Return why a case cannot be repeated: it is invalid, wrong, or does not complete."""
    if analysis.predicted is None or analysis.verdict.status == "INVALID":
        shown = [each for problem in analysis.verdict.problems for each in problem_lines(problem)]
        return "\n".join(each.printable for each in shown) or analysis.verdict.reason or "invalid"
    try:
        structure_of(analysis.predicted)
    except CostRefusedError as refused:
        return str(refused)
    return None


def _bench_cases(
    options: Mapping[str, Any], topology: Topology | None
) -> Iterator[tuple[Analysis, float, dict[str, Any] | None]]:
    """Yield each case at each size, with its bytes and its forecast."""
    selection = selection_of(options)
    sizes: list[float | None] = [None]
    if options["sizes"] is not None:
        sizes = list(sizes_of(options["sizes"], "--sizes"))
    for size in sizes:
        sets = {} if size is None else {"bytes": str(int(size))}
        for chosen in _selections(replace(selection, sets={**selection.sets, **sets})):
            for scenario, problems in _load_cases(chosen):
                if scenario is None:
                    for line in problems:
                        click.echo(
                            line.replace("--set bytes", "--sizes") if sets else line, err=True
                        )
                    sys.exit(2)
                analysis = analyse(_leave_out_time(scenario), chosen.limits)
                found = None
                traffic = analysis.predicted.traffic if analysis.predicted else None
                if topology is not None and traffic is not None:
                    try:
                        made = forecast(traffic, topology)
                        found = {"time_us": made.time, "origin": made.origin, "error": made.error}
                    except ScenarioError as error:
                        click.echo(f"no forecast: {error.problems[0].message}", err=True)
                own = collective_of(analysis)[1]
                if own is None:
                    own = base_size(scenario, analysis.predicted) if traffic else 0.0
                yield analysis, own, found


def bench_lines(
    rows: Sequence[Any], content: Sequence[Mapping[str, Any]], notes: Sequence[str], *, nccl: bool
) -> list[str]:
    """Return what was measured in lines: noise first, then a row for each case and size."""
    if nccl:
        return [*(f"# note: {note}" for note in notes), *nccl_tests_tables(rows)]
    lines = [f"note: {note}" for note in notes]
    if not rows:
        return lines
    lines.append("median, min, p99: of the slowest rank, in each repetition")
    for row in content:
        p99 = "" if row["p99_us"] is None else f", p99 {microseconds(row['p99_us'])}"
        speed = f"algbw {row['algbw_gbps']:.3g} GB/s, busbw {row['busbw_gbps']:.3g} GB/s"
        lines.append(
            f"{row['case']} {amount(row['bytes'])}, {row['ranks']} ranks: median "
            f"{microseconds(row['median_us'])}, min {microseconds(row['min_us'])}{p99} "
            f"(n={row['n']}), {speed}"
        )
        if "forecast" in row:
            stated = row["forecast"]
            lines.append(
                f"  forecast {microseconds(stated['time_us'])}, {stated['ratio']:.3g} of the "
                f"minimum; {stated['origin']}; known error: {stated['error']}"
            )
    return lines


def _compare_with_old(
    row: Mapping[str, Any], old: Sequence[Mapping[str, Any]], fail_above: float, *, noisy: bool
) -> Any:
    """Return the comparison of a row with the old one of its case and size; None without one.

    The file may have another path by now; case, ranks and bytes must be the same.
    """
    names = ("file", "case", "ranks", "bytes")
    before = next((each for each in old if all(each.get(n) == row[n] for n in names[1:])), None)
    if before is None or not before.get("block_medians_us"):
        return None
    return compare(before["block_medians_us"], row["block_medians_us"], fail_above, noisy=noisy)


def _comparison_line(row: Mapping[str, Any], found: Any) -> str:
    """Return a comparison in words: the ratio of the medians, and the interval that decides."""
    return (
        f"{found.status}  {row['case']} {amount(row['bytes'])}: new / old {found.ratio:.3f}, "
        f"95 % interval {found.low:.3f} to {found.high:.3f}"
    )
