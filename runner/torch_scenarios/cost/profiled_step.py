"""A step that torch.profiler traced on GPUs, next to its forecast: call by call, rank by rank.

A trace has events of Kineto: kernels (`cat: kernel`), those of NCCL among them with the collective
that they are, copies, and one annotation for each `prof.step()`. A collective ends on all its ranks
at once, and its kernel runs on each from when that rank has come. So the rank whose kernel is the
shortest has come last, and the others wait for it by what theirs are longer; no clock is compared::

    rank 0  | kernels |   all_reduce   |
    rank 1  | kernels     | all_reduce |
                      ^^^^^ rank 0 waits for rank 1
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf, isfinite
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from torch_scenarios.cost.collectives import CollectiveTimes
from torch_scenarios.cost.forecast import Forecast, microseconds
from torch_scenarios.cost.structure import amount
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.model.traffic import Enter, EnterGroups, Traffic
from torch_scenarios.operations import kind_of

#: bytes that a trace may have
MOST_BYTES = 1 << 29
#: what a GPU does that is not a kernel of NCCL
_ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
#: what starts it on the host
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
#: what NCCL's collectives are called by torch, where it is not the operation's own name
_NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "all_to_allv": "all_to_all",
}
#: bytes of an element, by the name of a dtype in a trace
_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "Float8_e4m3fn", "Float8_e5m2"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Float", "Int", "ComplexHalf"), 4),
    **dict.fromkeys(("Double", "Long", "ComplexFloat"), 8),
}
#: collectives that end on all their ranks at once
_TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})

#: a kernel's own name, as `ncclKernel_AllReduce_RING_LL_Sum_float`, and where its words begin
_KERNEL, _CAPITAL = (
    re.compile(r"nccl\w*Kernel_([A-Z][a-z]+[A-Z][A-Za-z]*)_"),
    re.compile("(?<=[a-z])(?=[A-Z])"),
)

Span = tuple[float, float]


class CallKey(NamedTuple):
    """What a forecast and a trace know of a call: its kind, its bytes, how many ranks make it.

    By it calls of both are matched: the groups of a trace have other names than those of a file.
    """

    kind: str
    size: float
    ranks: int


class ProfiledCall(Struct, frozen=True, kw_only=True):
    """A kernel of NCCL, in microseconds; `exposed` is how long nothing computes meanwhile.

    `group` is which ranks make the call, as far as the trace says so; `key` has no bytes where it
    does not. Its time has the wait for the last rank in it: NCCL's kernel runs, and polls, until
    all have come.
    """

    key: CallKey
    group: str
    began: float
    ended: float
    exposed: float

    @property
    def time(self) -> float:
        """How long it runs."""
        return self.ended - self.began


class ProfiledStep(Struct, frozen=True, kw_only=True):
    """One step of the trace of a rank, in microseconds; `calls` in the order of the GPU.

    `time` = `computing` (any other kernel runs) + `exposed` (NCCL runs alone) + `idle` (nothing
    runs).
    """

    name: str
    time: float
    computing: float
    exposed: float
    calls: tuple[ProfiledCall, ...]
    rank: int | None = None
    world_size: int | None = None

    @property
    def idle(self) -> float:
        """How long nothing runs on the GPU."""
        return max(0.0, self.time - self.computing - self.exposed)

    @property
    def times(self) -> dict[str, tuple[float, ...]]:
        """The times of the kernels of each collective."""
        found: dict[str, list[float]] = {}
        for call in self.calls:
            found.setdefault(call.key.kind, []).append(call.time)
        return {kind: tuple(times) for kind, times in found.items()}


def decompress(content: bytes) -> bytes:
    """Return what a file holds that may be packed by gzip. Raises ScenarioError if too large."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        found = unpacker.decompress(content, MOST_BYTES)
    except zlib.error:
        _refuse("the file is not one that gzip packed")
    if not unpacker.eof and not unpacker.unconsumed_tail:
        _refuse("the trace is cut off: gzip packed more than the file has")
    if unpacker.unconsumed_tail:
        _refuse(f"the trace has more than {amount(MOST_BYTES)}: profile fewer steps")
    return found


def read_steps(traces: Sequence[Any]) -> list[ProfiledStep]:
    """Return the last step that all decoded traces have. Raises ScenarioError where one has none.

    Traces of several ranks are of one program, each of another rank.
    """
    read = [_TraceReader(trace) for trace in traces]
    common = set.intersection(*(set(each.steps) for each in read))
    if not common:
        names = "; ".join(", ".join(each.steps) for each in read)
        _refuse(f"the traces have no step in common: {names}", "profile the same steps on each")
    last = max(common, key=lambda name: read[0].steps[name])
    found = [each.step(last) for each in read]
    ranks = [each.rank for each in found]
    if len(found) > 1 and (None in ranks or len(set(ranks)) < len(ranks)):
        said = ", ".join("unknown" if rank is None else str(rank) for rank in ranks)
        hint = "initialize the process group before the profiler: `distributedInfo` has the rank"
        _refuse(
            f"the traces are of the ranks {said}: each has to be of a rank of its own",
            hint if None in ranks else None,
        )
    return sorted(found, key=lambda each: each.rank or 0)


def _refuse(message: str, hint: str | None = None) -> Any:
    raise ScenarioError([Problem(code="bad_topology", message=message, hint=hint)])


class _TraceReader:
    """The steps of one decoded trace: what the host starts in each; all where none is named.

    `prof.step()` marks steps on the host, whose GPU may be a step behind. Kineto gives a kernel and
    the call that starts it one `correlation`, by which a kernel belongs to the step in which it was
    started.
    """

    def __init__(self, trace: Any) -> None:
        events = list(_spans(trace))
        self._kernels = [each for each in events if each[0].get("cat") in _ON_GPU]
        if not self._kernels:
            _refuse(
                "the trace has no kernel of a GPU: profile with `ProfilerActivity.CUDA`",
                "`scenario cost step.yaml --topology T --against trace.json`",
            )
        about = trace.get("distributedInfo")
        self._about = about if isinstance(about, dict) else {}
        self._launches = {
            number: span[0]
            for event, span in events
            if event.get("cat") in _LAUNCHES and (number := _find_correlation(event)) is not None
        }
        #: whether it is known when the host starts each kernel
        self._is_launched = any(
            _find_correlation(each) in self._launches for each, _ in self._kernels
        )
        #: when each step begins and ends: of the host, where that is known
        self.steps: dict[str, Span] = {}
        for kind in ("user_annotation", "gpu_user_annotation")[: 1 if self._is_launched else 2]:
            self.steps |= {
                str(event["name"]): span
                for event, span in sorted(events, key=lambda each: each[1])
                if event.get("cat") == kind and str(event.get("name")).startswith("ProfilerStep#")
            }
        if not self.steps:
            spans = [span for _, span in self._kernels]
            whole = min(first for first, _ in spans), max(last for _, last in spans)
            self.steps = {"all of it": whole}

    def _count(self, name: str) -> int | None:
        found = self._about.get(name)
        return found if isinstance(found, int) else None

    def step(self, name: str) -> ProfiledStep:
        """Return a step: what its host starts, or else what the GPU does in its time."""
        began, ended = self.steps[name]
        if self._is_launched:
            inside = [each for each in self._kernels if began <= self._launch(each[0]) < ended]
            began, ended = self._find_span(inside, (began, ended))
        else:
            inside = [each for each in self._kernels if began <= each[1][0] < ended]
        sent = [each for each in inside if str(each[0].get("name", "")).startswith("nccl")]
        sent.sort(key=lambda each: each[1])
        known = {id(event) for event, _ in sent}
        computing = _Union(span for event, span in inside if id(event) not in known)
        both = _Union(span for _, span in inside)
        return ProfiledStep(
            name=name,
            time=ended - began,
            computing=computing.total,
            exposed=both.total - computing.total,
            calls=tuple(_call_of(event, span, computing) for event, span in sent),
            rank=self._count("rank"),
            world_size=self._count("world_size"),
        )

    def _launch(self, event: Mapping[str, Any]) -> float:
        """Return when the host starts a kernel; before all steps where that is not in the trace."""
        number = _find_correlation(event)
        return -inf if number is None else self._launches.get(number, -inf)

    def _find_span(self, inside: Sequence[tuple[dict[str, Any], Span]], whole: Span) -> Span:
        """Return from when to when a step is on the GPU: from the end of the one before to its own.

        A host may be steps ahead of its GPU, and its annotation does not reach what other threads
        of it start, as a backward pass does.
        """
        if not inside:
            return whole
        first = min(span[0] for _, span in inside)
        last = max(span[1] for _, span in inside)
        own = {id(event) for event, _ in inside}
        before = [
            span[1] for event, span in self._kernels if id(event) not in own and span[0] < first
        ]
        return min(max(before, default=first), first), last


def _find_correlation(event: Mapping[str, Any]) -> int | None:
    """Return the number that a kernel and the call that starts it have in common."""
    args = event.get("args")
    found = args.get("correlation") if isinstance(args, dict) else None
    return found if isinstance(found, int) else None


def _spans(trace: Any) -> Iterator[tuple[dict[str, Any], Span]]:
    """Yield the events that take a time, each with its begin and its end."""
    listed = trace.get("traceEvents") if isinstance(trace, dict) else None
    for event in listed if isinstance(listed, list) else ():
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        began, took = event.get("ts"), event.get("dur")
        if isinstance(began, int | float) and isinstance(took, int | float):
            span = float(began), float(began) + float(took)
            if isfinite(span[0]) and isfinite(span[1]) and took >= 0:
                yield event, span


class _Union:
    """When at least one of some spans lasts.

    >>> both = _Union([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    >>> both.total, both.until(2.5)
    (4.0, 2.5)
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        apart: list[Span] = []
        for first, last in sorted(spans):
            if apart and first <= apart[-1][1]:
                apart[-1] = (apart[-1][0], max(last, apart[-1][1]))
            else:
                apart.append((first, last))
        self._begins = [first for first, _ in apart]
        self._ends = [last for _, last in apart]
        lengths = (last - first for first, last in apart)
        self._sums = [0.0, *accumulate(lengths)]

    @property
    def total(self) -> float:
        """How long that is."""
        return self._sums[-1]

    def until(self, time: float) -> float:
        """Return how long that is up to a time."""
        at = bisect_right(self._begins, time)
        later = max(0.0, self._ends[at - 1] - time) if at else 0.0
        return self._sums[at] - later


def _call_of(event: Mapping[str, Any], span: Span, computing: _Union) -> ProfiledCall:
    """Return what a kernel of NCCL says of its call: torch notes its arguments beside it.

    The bytes are of the larger of input and output, as nccl-tests counts them.
    """
    args = event.get("args")
    given: dict[str, Any] = args if isinstance(args, dict) else {}
    counts = (given.get("In msg nelems"), given.get("Out msg nelems"))
    elements = max((each for each in counts if isinstance(each, int)), default=0)
    ranks = given.get("Group size")
    hidden = computing.until(span[1]) - computing.until(span[0])
    return ProfiledCall(
        key=CallKey(
            kind=_collective(event, given),
            size=float(elements * _BYTES.get(str(given.get("dtype")), 0)),
            ranks=ranks if isinstance(ranks, int) else 0,
        ),
        group=str(given.get("Process Group Ranks") or given.get("Process Group Name") or ""),
        began=span[0],
        ended=span[1],
        exposed=max(0.0, round(span[1] - span[0] - hidden, 3)),
    )


def _collective(event: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return what a kernel of NCCL does: as torch says, or else by the kernel's own name."""
    name = given.get("Collective name")
    if not name:
        found = _KERNEL.match(str(event["name"]))
        return _CAPITAL.sub("_", found[1]).lower() if found else "a collective without a name"
    return kind_of(_NAMES.get(str(name), str(name)))


# Call by call: the n-th call of a kind, of so many bytes, in a group of so many ranks, is the n-th
# such call of the forecast. Of older traces, which have no sizes, the n-th of its kind.


class ForecastCall(Struct, frozen=True, kw_only=True):
    """A collective of a rank as it is forecast, from when all have come: step, and microseconds."""

    step: int
    key: CallKey
    time: float


class ComparedCall(Struct, frozen=True, kw_only=True):
    """A call as it is forecast, and as it was traced."""

    made: ForecastCall
    traced: ProfiledCall


def calls_of(traffic: Traffic, times: CollectiveTimes, rank: int) -> Iterator[ForecastCall]:
    """Yield the collectives that a rank makes, in the order of the program."""
    for each in traffic.entries:
        if not isinstance(each, Enter | EnterGroups):
            continue
        here = np.flatnonzero(np.atleast_1d(each.ranks) == rank)
        if not len(here):
            continue
        one = each if isinstance(each, Enter) else each.of_group(int(each.groups[here[0]]), here)
        key = CallKey(kind_of(one.name), one.size, len(one.members))
        yield ForecastCall(step=one.step, key=key, time=times.of(one).time)


def compare_calls(
    made: Iterable[ForecastCall], traced: Sequence[ProfiledCall]
) -> tuple[list[ComparedCall], list[ForecastCall], list[ProfiledCall]]:
    """Return the calls that both have, those of the forecast alone, and of the trace alone.

    The n-th call of a key is the n-th of the other: within one group a program's order is fixed,
    between groups it is not.
    """
    is_sized = any(call.key.size for call in traced)

    def find_key(key: CallKey) -> CallKey:
        return key if is_sized else CallKey(key.kind, 0, 0)

    waiting: dict[CallKey, list[ProfiledCall]] = {}
    for call in reversed(traced):
        waiting.setdefault(find_key(call.key), []).append(call)
    both, missing = [], []
    for each in made:
        same = waiting.get(find_key(each.key))
        if same:
            both.append(ComparedCall(made=each, traced=same.pop()))
        else:
            missing.append(each)
    more = [call for same in waiting.values() for call in same]
    return both, missing, sorted(more, key=lambda call: call.began)


def call_lines(
    both: Sequence[ComparedCall],
    missing: Sequence[ForecastCall],
    more: Sequence[ProfiledCall],
    labels: Mapping[int, str],
) -> list[str]:
    """Return the calls of each step of the file in lines: forecast, and traced."""
    steps: dict[int, list[ComparedCall]] = {}
    for each in both:
        steps.setdefault(each.made.step, []).append(each)
    rows: list[tuple[str, ...]] = [("", "calls", "forecast", "median", "longest", "exposed")]
    for step, calls in steps.items():
        times = [each.traced.time for each in calls]
        exposed = sum(each.traced.exposed for each in calls)
        times_us = (median(each.made.time for each in calls), median(times), max(times), exposed)
        label = labels.get(step, f"step {step}")
        rows.append((label, str(len(calls)), *map(microseconds, times_us)))
    lines = _table(rows) if both else []
    for what, others in (
        ("forecast, and not in the trace", missing),
        ("traced, and not forecast", more),
    ):
        kinds = dict.fromkeys(each.key.kind for each in others)
        for kind in kinds:
            count = sum(each.key.kind == kind for each in others)
            lines.append(f"{count} {kind} {'is' if count == 1 else 'are'} {what}")
    return lines


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows in columns: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [f"{row[0]:{widths[0]}}"]
            + [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in rows
    ]


def profile_lines(step: ProfiledStep, forecast: Forecast) -> list[str]:
    """Return a step as it was measured next to its forecast, in lines for a terminal."""
    of_rank = "" if step.rank is None else f" of rank {step.rank}"
    rows = [
        (f"{step.name} of the trace{of_rank}", "forecast", "measured", "forecast / measured"),
        _row("the step", forecast.time, step.time),
        _row("computing", forecast.computing, step.computing),
        _row("exposed communication", forecast.exposure, step.exposed),
        _row("nothing runs", forecast.idle, step.idle),
    ]
    return _table(rows)


def _row(name: str, made: float, measured: float) -> tuple[str, str, str, str]:
    ratio = f"{made / measured:.2f}" if measured and made else "-"
    return name, microseconds(made) if made else "-", microseconds(measured), ratio


# Rank by rank: who comes last.


class RankWaits(Struct, kw_only=True):
    """How long a rank waits for others in calls that all traced ranks of a group make.

    `lets_wait` is how long the others wait for it together, `last` how often they do.
    """

    step: ProfiledStep
    waits: float = 0.0
    lets_wait: float = 0.0
    last: int = 0


class Arrivals(Struct, frozen=True, kw_only=True):
    """Who comes last to how many `calls`; `apart` names groups whose ranks make unlike calls."""

    ranks: tuple[RankWaits, ...]
    calls: int
    apart: tuple[str, ...] = ()

    @property
    def straggler(self) -> RankWaits | None:
        """The rank that the others wait for most, if that is much of the step, and most often."""
        worst = max(self.ranks, key=lambda each: each.lets_wait)
        mean = worst.lets_wait / (len(self.ranks) - 1)
        is_often = 2 * worst.last > self.calls
        return worst if is_often and mean > MUCH * worst.step.time else None


#: the part of a step that others wait for a rank from which on it is a straggler
MUCH = 0.01


def find_arrivals(steps: Sequence[ProfiledStep]) -> Arrivals:
    """Return which rank comes last to the calls that several traces have.

    A collective ends at once on all its ranks, so that the rank whose kernel is the shortest came
    last. Calls that are not made by all traced ranks alike are left out (`apart`): their n-th calls
    are not the same one.
    """
    ranks = [RankWaits(step=step) for step in steps]
    groups: dict[str, list[tuple[RankWaits, list[ProfiledCall]]]] = {}
    for each in ranks:
        own: dict[str, list[ProfiledCall]] = {}
        for call in each.step.calls:
            if call.key.kind in _TOGETHER:
                own.setdefault(call.group, []).append(call)
        for group, calls in own.items():
            groups.setdefault(group, []).append((each, calls))
    total, apart = 0, []
    for group, members in groups.items():
        if len(members) < 2:
            continue
        kinds = {tuple(call.key for call in calls) for _, calls in members}
        if len(kinds) > 1:
            apart.append(group)
            continue
        for same in zip(*(own for _, own in members), strict=True):
            total += 1
            shortest = min(range(len(same)), key=lambda at: same[at].time)
            late = members[shortest][0]
            late.last += max(call.time for call in same) > same[shortest].time
            for (each, _), call in zip(members, same, strict=True):
                waited = call.time - same[shortest].time
                each.waits += waited
                late.lets_wait += waited
    return Arrivals(ranks=tuple(ranks), calls=total, apart=tuple(apart))


def arrival_lines(found: Arrivals) -> list[str]:
    """Return what each rank does, who comes last, and why, in lines for a terminal."""
    rows: list[tuple[str, ...]] = [
        (f"{found.ranks[0].step.name}", "step", "computing", "nothing runs", "waits", "comes last")
    ]
    for each in found.ranks:
        step = each.step
        times_us = (step.time, step.computing, step.idle, each.waits)
        last = f"{each.last} of {found.calls}"
        rows.append((f"rank {step.rank}", *map(microseconds, times_us), last))
    lines = _table(rows)
    lines += [
        f"ranks make unlike calls in group {each}, which are left out" for each in found.apart
    ]
    if not found.calls:
        return [*lines, "straggler  unknown: no two of these ranks make calls in one group"]
    late = found.straggler
    if late is None:
        return [*lines, "straggler  none: no rank is waited for most of the time"]
    others = [each for each in found.ranks if each is not late]
    mean = late.lets_wait / len(others)
    share = mean / late.step.time
    words = f"rank {late.step.rank}: comes last to {late.last} of {found.calls} calls, and "
    words += f"each other rank waits {microseconds(mean)} for it, {share:.0%} of the step"
    return [*lines, f"straggler  {words}", f"           {_cause_of(late.step, others, mean)}"]


def _cause_of(step: ProfiledStep, others: Sequence[RankWaits], waited: float) -> str:
    """Return what the straggler does longer than others: kernels, or its host; else neither."""
    parts = {
        "its kernels take": [step.computing, *(each.step.computing for each in others)],
        "its GPU waits for its host": [step.idle, *(each.step.idle for each in others)],
    }
    longer = {words: times[0] - median(times[1:]) for words, times in parts.items()}
    words = max(longer, key=lambda each: longer[each])
    if longer[words] < waited / 4:
        return "its kernels and its host take as long as those of the others: look at its network"
    helps = "its clock, its heat, or more work of its own"
    if "host" in words:
        helps = "loading of data, other processes on its CPU, garbage collection"
    mine, theirs = parts[words][0], median(parts[words][1:])
    return f"{words} {microseconds(mine)}, of the others {microseconds(theirs)}: look at {helps}"
