"""Traffic + topology -> forecast: how long a program takes there, why, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.cost.classes import ReducedTraffic, reduce_ranks
from torch_scenarios.cost.collectives import CollectiveTimes, Timing
from torch_scenarios.cost.degradation import Degradation
from torch_scenarios.cost.intervals import (
    AS_STATED,
    FORMS,
    PLANNED,
    RECORDED,
    SENDRECV,
    Interval,
    form_interval,
    form_ratios,
    interval,
    step_interval,
)
from torch_scenarios.cost.replay import BY_LINK, BY_RECEIVER, FIELDS, Replay, ReplayEvent, replay
from torch_scenarios.cost.structure import UNKNOWN, amount
from torch_scenarios.cost.topology import NcclNetwork, Network, Topology
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.model.traffic import Enter, EnterGroups, Pause, Traffic, TrafficRow


class Hop(Struct, frozen=True, kw_only=True):
    """One event of the critical path, in microseconds; `because` says why it began no earlier.

    `target` and `size`, in bytes, are None where the event is not a message; `group` is empty for a
    pause. `posted`, `started` and `ended` are as in
    :class:`torch_scenarios.cost.replay.ReplayEvent`.
    """

    kind: str
    step: int
    group: str
    source: int
    target: int | None
    size: float | None
    posted: float
    started: float
    ended: float
    because: str


class PartCost(Struct, frozen=True, kw_only=True):
    """What a step of a file, or a group, costs: its calls, bytes, busiest link, share of the path.

    `part` is the index of the step, or the name of the group. `size` and `busiest_rank` are bytes
    that all ranks, and the busiest one, send in messages; `held` is how long the busiest `link`
    carries them, `began`, `ended` and `on_path` are microseconds.
    """

    part: int | str
    calls: int
    size: float
    busiest_rank: float
    link: str | None
    held: float
    began: float
    ended: float
    on_path: float


class RankCost(Struct, frozen=True, kw_only=True):
    """What one rank sends and receives in messages, and when it is done."""

    sends: int
    sent: float
    received: float
    ended: float


#: what helps where a device waits for its host
HOST_HELPS = (
    ", which starts kernels and makes calls: larger batches, fused kernels, CUDA graphs help"
)
#: what a forecast says of its error where nothing like it was measured
NEVER_COMPARED = "never compared with a measurement"


class Forecast(Struct, frozen=True, kw_only=True):
    """How long a program takes on a topology, in microseconds.

    `origin` says what the time comes from, `error` how far off such times were: between `low` and
    `high` are 80 % of what was measured like it, `uncompared` of the time was never compared. Of
    the critical path `latency`, `transfer`, `waiting`, `alone` (collectives, pauses) and `host`
    (its calls, and starts of kernels) add up to the time; `kernels` are the pauses of `alone`,
    `computed` their steps. `computing` is what the rank that computes longest does by itself,
    `idle` how long it has nothing to do because its host is not there yet; the rest is exposed
    communication, and waiting. `late` is how much of a collective's time its latency is, by the
    step, the group and the collective, `latest` when all of it ends where collectives of a step are
    as slow as 80 % of such calls were at most. Where hosts `synchronize`, these are the steps that
    say so, and how long the program takes if none does. `worse` is what the machine is assumed to
    have worse than it says, and the time without.
    """

    topology: Topology
    origin: str
    error: str
    time: float
    low: float
    high: float
    uncompared: float
    path: tuple[Hop, ...]
    steps: tuple[PartCost, ...]
    groups: tuple[PartCost, ...]
    ranks: tuple[RankCost, ...]
    links: tuple[tuple[str, float], ...]
    latency: float
    transfer: float
    waiting: float
    alone: float
    kernels: float
    host: float
    exact: bool
    computed: frozenset[int]
    replay: Replay
    computing: float = 0.0
    idle: float = 0.0
    late: Mapping[tuple[int, str, str], float] = field(default_factory=dict)
    latest: float = 0.0
    synchronize: tuple[tuple[int, ...], float] | None = None
    worse: tuple[str, float] | None = None

    @property
    def exposure(self) -> float:
        """Microseconds in which the rank that computes longest waits for other ranks."""
        return max(0.0, self.time - self.computing - self.idle)

    @property
    def is_host_bound(self) -> bool:
        """Whether the critical path is the host's more than half of the time."""
        return self.host > self.time / 2

    @property
    def interval_words(self) -> str:
        """Between which times 80 % of such calls were, in few words."""
        if self.error.startswith(NEVER_COMPARED):
            return "never compared"
        return f"{microseconds(self.low)} to {microseconds(self.high)}"

    @property
    def pace(self) -> float:
        """Microseconds for each of many such calls in a row, of a program that is one call.

        nccl-tests makes 20 calls and divides their time: a host that is quicker than its GPU is
        hidden then.
        """
        return max(self.host, self.time - self.host)

    @property
    def _one_call(self) -> bool:
        """Whether the program is one collective, of which nccl-tests prints a time."""
        return len(self.replay.events) == 1 and self.path[:1] != () and self.path[0].target is None

    def json(self) -> dict[str, Any]:
        """Return what JSON has of it, beside the structure."""
        return {
            "topology": self.topology.name,
            "time_us": self.time,
            **({"nccl_tests_us": self.pace} if self._one_call else {}),
            "origin": self.origin,
            "error": self.error,
            "interval_us": [self.low, self.high],
            "never_compared_us": self.uncompared,
            "computing_us": self.computing,
            "exposed_us": self.exposure,
            "waiting_for_host_us": self.idle,
            **self._host_waits_json(),
            **(
                {}
                if self.worse is None
                else {"what_if": {"assumed": self.worse[0], "time_without_us": self.worse[1]}}
            ),
            "exact": self.exact,
            "shares": {
                "latency_us": self.latency,
                "bytes_us": self.transfer,
                "waiting_us": self.waiting,
                "alone_us": self.alone,
                "host_us": self.host,
            },
            "path": [_hop_json(hop) for hop in self.path],
            "steps": [_part_json("step", each) for each in self.steps],
            "groups": [_part_json("group", each) for each in self.groups],
            "by_rank": [_rank_json(each) for each in self.ranks],
            "links": [{"link": name, "busy_us": held} for name, held in self.links],
        }

    def _host_waits_json(self) -> dict[str, Any]:
        """Return at which steps hosts wait for their GPUs, and the time without that."""
        if self.synchronize is None:
            return {}
        steps, free = self.synchronize
        return {"host_waits": {"steps": list(steps), "time_without_us": free}}

    def _host_wait_lines(self, labels: Mapping[int, str]) -> list[str]:
        """Return the same in words."""
        if self.synchronize is None:
            return []
        steps, free = self.synchronize
        gained = self.time - free
        without = "that costs nothing in one such step by itself"
        if gained > MENTIONED * self.time:
            without = f"without that {microseconds(free)}, {gained / self.time:.0%} less"
        lines = [f"host      waits for its GPU, and starts no kernel meanwhile: {without}"]
        lines += [
            f"          at {labels.get(step, f'step {step}')}" for step in steps[:SHOWN_STEPS]
        ]
        more = len(steps) - SHOWN_STEPS
        return [*lines, f"          and at {more} more steps"] if more > 0 else lines

    def of_all(self, traffic: Traffic, fewer: ReducedTraffic, scale: float) -> Forecast:
        """Return a forecast of the ranks that were kept as one of all: each as its twin.

        Times and the path are those of the kept ranks. Calls and bytes are counted over the whole
        traffic.
        """
        steps: dict[int, list[float]] = {}
        groups: dict[str, list[float]] = {}
        for each in traffic.entries:
            if not isinstance(each, Enter | EnterGroups | TrafficRow | Pause):
                continue
            if isinstance(each, Pause) and not each.seconds:  # of hosts alone: not an event
                continue
            ranks = np.size(each.ranks)
            calls, size = float(ranks), 0.0
            if isinstance(each, TrafficRow):
                calls, size = (
                    (float(ranks), ranks * each.size * scale) if each.sends else (0.0, 0.0)
                )
            elif isinstance(each, Enter):
                calls = ranks / len(each.members)
            elif isinstance(each, EnterGroups):
                calls = ranks / len(each.members[0])
            group = "" if isinstance(each, Pause) else each.group
            for sums in (
                steps.setdefault(each.step, [0.0, 0.0]),
                groups.setdefault(group, [0.0, 0.0]),
            ):
                sums[0], sums[1] = sums[0] + calls, sums[1] + size

        def count(part: PartCost, told: Mapping[Any, list[float]]) -> PartCost:
            calls, size = told[part.part]
            return replace(part, calls=round(calls), size=size)

        return replace(
            self,
            steps=tuple(count(each, steps) for each in self.steps),
            groups=tuple(count(each, groups) for each in self.groups),
            ranks=tuple(self.ranks[int(twin)] for twin in fewer.twins),
        )

    def forecast_lines(self, labels: Mapping[int, str], by: str = "step") -> list[str]:
        """Return a forecast in lines for a terminal; `labels` name the steps.

        It is shown `by` step, group, rank or link.
        """
        lines = [
            f"time      {microseconds(self.time)}  (forecast)",
            *self._word_degradation(),
            *self._call_lines(),
            f"origin    {self.origin}",
            f"error     {self.error}",
        ]
        if not self.exact:
            lines.append("note      messages that contend at one stroke were taken together")
        if self.time > 0:
            shares = (
                ("latency", self.latency),
                ("bytes", self.transfer),
                ("waiting", self.waiting),
                ("computing", self.kernels),
                ("collectives", self.alone - self.kernels),
                ("the host", self.host),
            )
            least = MENTIONED * self.time
            words = ", ".join(
                f"{name} {part / self.time:.0%}" for name, part in shares if part >= least
            )
            lines.append(f"of that   {words}")
        lines += self._step_lines(labels)
        shown = {
            "step": lambda: self._part_lines(self.steps, labels),
            "group": lambda: self._part_lines(self.groups, {}),
            "rank": self._rank_lines,
            "link": self._link_lines,
        }[by]()
        lines += [f"{by}s", *(f"  {line}" for line in shown)]
        if self.links:
            name, held = self.links[0]
            use = held / self.time if self.time else 0.0
            lines.append(f"busiest   {name}: {microseconds(held)}, {use:.0%} of the time")
        lines += ["critical path", *(f"  {line}" for line in self._path_lines(labels))]
        return lines

    def _word_degradation(self) -> list[str]:
        """Return what is assumed to be worse, and what that makes of the time."""
        if self.worse is None:
            return []
        words, without = self.worse
        more = self.time / without - 1 if without else 0.0
        than = f"{more:.1%} longer" if more > LONGER - 1 else "no longer"
        return [f"what if   {words}: {than} than {microseconds(without)}"]

    def _step_lines(self, labels: Mapping[int, str]) -> list[str]:
        """Return how long is computed, what is exposed, what the path is in longest, and why."""
        lines = []
        if self.computing and self.time:
            parts = [f"{microseconds(self.computing)} computing"]
            if self.idle > MENTIONED * self.time:
                share = self.idle / self.time
                parts.append(f"{microseconds(self.idle)} ({share:.0%}) waiting for its host")
            share = self.exposure / self.time
            exposed = f"{microseconds(self.exposure)} ({share:.0%})"
            parts.append(f"{exposed} exposed communication and waiting")
            lines.append(f"step      {', '.join(parts)}")
        lines += self._host_wait_lines(labels)
        if self.is_host_bound and self.idle:
            share = self.host / self.time
            lines.append(f"bottleneck  the host: {share:.0%} of the time{HOST_HELPS}")
            return lines
        if len(self.steps) < 2 or not self.time:
            return lines
        worst = max(self.steps, key=lambda each: each.on_path)
        lines.append(f"bottleneck  {self.worst(worst, labels)}")
        sent = [each for each in self.steps if any(key[0] == each.part for key in self.late)]
        longest = max(sent, key=lambda each: each.on_path, default=worst)
        if longest is not worst:
            lines.append(f"            of the collectives {self.worst(longest, labels)}")
        return lines

    def worst(self, part: PartCost, labels: Mapping[int, str]) -> str:
        """Return what the path is in longest, its share, and why."""
        label = labels.get(int(part.part), f"step {part.part}")
        return f"{label}: {part.on_path / self.time:.0%} of the time{self.reason(int(part.part))}"

    def reason(self, step: int) -> str:
        """Return why a step takes its time, as far as it is known.

        The latency of a collective is its time with 8 bytes: more than half of its time is latency,
        or bytes.
        """
        late = [share for (part, _, _), share in self.late.items() if part == step]
        if late:
            if max(late) > 0.5:
                return ", by its latency: fewer, larger calls help"
            return ", by its bytes: fewer bytes, or a smaller group, help"
        if any(hop.kind == "pause" for hop in self.path if hop.step == step):
            return ", in which ranks compute"
        return ", in messages: `waits for` below says for what"

    def _call_lines(self) -> list[str]:
        """Return which time nccl-tests prints, and which one is the call's."""
        if not self._one_call or self.path[0].kind == "pause":
            return []
        pace = microseconds(self.pace)
        if not self.host:
            return [f"          {pace} is what nccl-tests prints, too: no launch is known here"]
        launch = microseconds(self.host)
        words = f"launch {launch} + t; nccl-tests, which makes calls in a row, prints t: {pace}"
        return [f"          {words}"]

    def _part_lines(self, parts: Sequence[PartCost], labels: Mapping[int, str]) -> list[str]:
        """Return what steps, named by `labels`, or groups cost; of many, those that matter."""
        lines = []
        least = MENTIONED * self.time if len(parts) > MANY_PARTS else 0.0
        small = sum(part.on_path < least for part in parts)
        for part in parts:
            if part.on_path < least:
                continue
            named = part.part if isinstance(part.part, str) else labels.get(part.part)
            label = named or f"step {part.part}"
            share = part.on_path / self.time if self.time else 0.0
            link = f", busiest {part.link} {microseconds(part.held)}" if part.link else ""
            calls = self._word_calls(part)
            sent = f", {amount(part.size)} ({amount(part.busiest_rank)} by one rank)"
            words = sent if part.size else ""  # a collective in one call sends no message
            lines.append(f"{label}: {calls}{words}{link}, {share:.0%} of the path")
        if small:
            lines.append(f"... {small} more, each less than {MENTIONED:.1%} of the path")
        return lines

    def _word_calls(self, part: PartCost) -> str:
        """Return how often something is done: a collective by its group, a kernel by each rank."""
        ranks = len(self.ranks)
        if part.part not in self.computed or part.calls % ranks or ranks == 1:
            return f"{part.calls} call{'' if part.calls == 1 else 's'}"
        return f"{part.calls // ranks} on each of {ranks} ranks"

    def _rank_lines(self) -> list[str]:
        """Return what each rank sends and receives, and when it is done."""
        lines = [
            f"rank {rank}: {each.sends} messages, {amount(each.sent)} out, "
            f"{amount(each.received)} in, done at {microseconds(each.ended)}"
            for rank, each in enumerate(self.ranks[:SHOWN_RANKS])
        ]
        more = len(self.ranks) - SHOWN_RANKS
        return lines if more <= 0 else [*lines, f"... {more} more ranks ..."]

    def _link_lines(self) -> list[str]:
        """Return how long the busiest links are held, and which share of the time that is."""
        time = self.time or 1.0
        return [f"{name}: {microseconds(held)}, {held / time:.0%}" for name, held in self.links]

    def _path_lines(self, labels: Mapping[int, str]) -> list[str]:
        """Return the longest path, hop by hop."""
        lines = []
        path = self.path
        for at, hop in enumerate(path):
            if len(path) > SHOWN_HOPS and SHOWN_HOPS // 2 <= at < len(path) - SHOWN_HOPS // 2:
                if at == SHOWN_HOPS // 2:
                    lines.append(f"... {len(path) - SHOWN_HOPS} more hops ...")
                continue
            label = labels.get(hop.step, f"step {hop.step}")
            if hop.kind == "pause":
                what = f"rank {hop.source} by itself"
            elif hop.target is None:
                what = f"rank {hop.source} in {hop.kind}"
            else:
                what = f"rank {hop.source} to rank {hop.target}, {amount(hop.size or 0.0)}"
            span = f"{microseconds(hop.started)} to {microseconds(hop.ended)}"
            lines += [f"{span}: {what} ({label})", f"    {hop.because}"]
        done = max((hop.ended for hop in path), default=0.0)
        if done < self.time:
            span = f"{microseconds(done)} to {microseconds(self.time)}"
            lines.append(
                f"{span}: the host of rank {int(self.replay.ended.argmax())} makes its calls"
            )
        return lines


def _hop_json(hop: Hop) -> dict[str, Any]:
    return {
        "kind": hop.kind,
        "step": hop.step,
        "group": hop.group,
        "source": hop.source,
        "target": hop.target,
        "bytes": hop.size,
        "posted_us": hop.posted,
        "started_us": hop.started,
        "ended_us": hop.ended,
        "because": hop.because,
    }


def _part_json(kind: str, part: PartCost) -> dict[str, Any]:
    return {
        kind: part.part,
        "calls": part.calls,
        "bytes": part.size,
        "busiest_rank_bytes": part.busiest_rank,
        "busiest_link": part.link,
        "busiest_link_us": part.held,
        "began_us": part.began,
        "ended_us": part.ended,
        "on_path_us": part.on_path,
    }


def _rank_json(rank: RankCost) -> dict[str, Any]:
    return {
        "messages": rank.sends,
        "sent": rank.sent,
        "received": rank.received,
        "done_us": rank.ended,
    }


def forecast(
    traffic: Traffic,
    topology: Topology,
    *,
    model: str | None = None,
    algorithm: str | None = None,
    scale: float = 1.0,
    reckoned: bool = False,
    forms: Sequence[str] = (),
    worse: Degradation | None = None,
) -> Forecast:
    """Return how long a program takes on a topology; `scale` multiplies all bytes.

        traffic     what the analysis noted of a program that completes
        model       steps, nccl, table or torch; the topology's own where it is None
        algorithm   that collectives shall take, as `ring`; `best` is the quickest
        reckoned    what it states of kernels and hosts was reckoned by the topology's own numbers
        forms       PLANNED or RECORDED, and then AS_STATED and those of FORMS that it has;
                    others are ignored, as all are without either
        worse       slow ranks, lost NICs: it then says how long the program takes without that, too

    Raises ScenarioError where the topology cannot tell.
    """
    topology = topology.spread(traffic.world_size)
    asked: dict[str, Any] = {
        "model": model,
        "algorithm": algorithm,
        "scale": scale,
        "reckoned": reckoned,
        "forms": forms,
    }
    if worse:
        left = worse.of_topology(topology, traffic.world_size)
        slower = forecast(worse.of_traffic(traffic), left, **asked)
        without = forecast(traffic, topology, **asked)
        return replace(slower, worse=(worse.words, without.time))
    return widen(forecast_alone(traffic, topology, **asked), forms if reckoned else ())


def forecast_alone(
    traffic: Traffic,
    topology: Topology,
    *,
    model: str | None = None,
    algorithm: str | None = None,
    scale: float = 1.0,
    reckoned: bool = False,
    forms: Sequence[str] = (),
) -> Forecast:
    """Return a forecast, as `forecast` does, with the interval of what is on its path alone."""
    topology = topology.spread(traffic.world_size)
    collectives = CollectiveTimes(
        topology,
        traffic.world_size,
        model=model,
        algorithm=algorithm,
        scale=scale,
        traffic=traffic,
    )
    if traffic.unknown:
        message = UNKNOWN
        raise ScenarioError(
            [Problem(code="no_forecast", message=message, hint="send tensors instead")]
        )
    timings: dict[tuple[int, str, str], Timing] = {}
    entered: dict[str, Enter] = {}
    late: dict[tuple[int, str, str], float] = {}

    def time_entry(entry: Enter) -> float:
        timing = collectives.of(entry)
        key = entry.step, entry.group, entry.name
        if timings.get(key) is not timing:
            timings[key] = timing
            if timing.time and timing.model.startswith("nccl") and not entry.parts:
                empty = collectives.of(replace(entry, size=SMALLEST))
                late[key] = min(1.0, empty.time / timing.time)
        entered.setdefault(entry.name, entry)
        return timing.time

    only_collectives = not any(getattr(each, "sends", None) for each in traffic.entries)
    network = (
        _SilentNetwork(topology, traffic.world_size) if only_collectives else collectives.messages
    )
    fewer = reduce_ranks(traffic, topology)
    played = traffic if fewer is None else fewer.traffic
    part = collectives.count_part if reckoned else None
    found = replay(played, network, time_entry, scale, collectives.launch, part)
    if algorithm is not None:
        taken = [each.algorithm for each in timings.values()]
        _refuse_unused_algorithm(algorithm, taken, entered, collectives)
    compared = _find_compared(topology, forms) if reckoned else (None, None)
    latest = 0.0
    if compared[0] is not None:
        slow = collectives.time_slowly
        latest = replay(played, network, slow, scale, collectives.launch, part).time
    made = _make_forecast(
        topology, network, found, timings, compared, only_collectives=only_collectives
    )
    computing = _find_computing(played) + found.slowed
    longest = int(computing.argmax())
    times = {"computing": float(computing[longest]), "idle": float(found.idle[longest])}
    made = replace(made, late=late, latest=latest, **times)
    waits = dict.fromkeys(each.step for each in _pauses(played) if each.synchronizes)
    if waits:
        ahead = played.copy()
        ahead.entries = [
            replace(each, synchronizes=False) if isinstance(each, Pause) else each
            for each in played.entries
        ]
        free = replay(ahead, network, time_entry, scale, collectives.launch, part).time
        made = replace(made, synchronize=(tuple(waits), free))
    return made if fewer is None else made.of_all(traffic, fewer, scale)


def _find_computing(traffic: Traffic) -> NDArray[np.float64]:
    """Return how long each rank computes, in microseconds."""
    times = np.zeros(traffic.world_size)
    for each in _pauses(traffic):
        times[np.atleast_1d(each.ranks)] += each.seconds * 1e6
    return times


def _pauses(traffic: Traffic) -> Iterator[Pause]:
    """Yield what ranks, and their hosts, do by themselves."""
    return (each for each in traffic.entries if isinstance(each, Pause))


#: bytes of a collective of which the latency is all that is left
SMALLEST = 8.0


def _refuse_unused_algorithm(
    algorithm: str,
    taken: Sequence[str],
    entered: Mapping[str, Enter],
    collectives: CollectiveTimes,
) -> None:
    """Refuse an algorithm that is asked for and that no collective of the program takes.

    `best` is what NCCL's tuner takes anyway. Programs without a collective are as they were.
    """
    named = {each.partition(", ")[0] for each in taken} - {""}
    if algorithm in named or not entered or (algorithm == "best" and named):
        return
    known = {name: collectives.algorithms_of(entry) for name, entry in entered.items()}
    words = "; ".join(
        f"{name} has {', '.join(each)}" for name, each in sorted(known.items()) if each
    )
    by_what = f"by `{collectives.model}` on topology {collectives.topology.name}"
    message = f"no collective of this program takes `--algo {algorithm}` {by_what}"
    hint = words or "measured times, and torch's model, have no algorithm to choose"
    raise ScenarioError([Problem(code="no_forecast", message=message, hint=hint)])


class _SilentNetwork(Network):
    """The network of a program without messages: no link is ever asked for.

    A topology of measured tables may have no links at all.
    """

    def __init__(self, topology: Topology, world_size: int) -> None:
        self.topology, self.world_size, self.count = topology, world_size, 0
        self.nodes = 1


class _ComparedSteps(Struct, frozen=True):
    """Between what multiples of a forecast 80 % of steps were; `whose` says of which steps."""

    low: float
    high: float
    whose: str


def widen(found: Forecast, forms: Sequence[str]) -> Forecast:
    """Return a forecast with the interval of what hides, and of its forms, where they are wider."""
    if found.latest > found.high > found.time:
        rest = found.error.partition(": ")[2]
        span = f"{microseconds(found.low)} to {microseconds(found.latest)}"
        error = f"80 % of such steps took {span}: {rest}; {HIDDEN}"
        found = replace(found, high=found.latest, error=error)
    is_published = PLANNED in forms or RECORDED in forms
    for form in filter(forms.__contains__, FORMS if is_published else ()):
        found = _widen(found, form)
    return found


def _widen(found: Forecast, form: str) -> Forecast:
    """Return a forecast with the interval of published steps of its form, where that is wider."""
    compared = form_interval(form)
    if compared is None:
        error = f"{NEVER_COMPARED}: no step {FORMS[form]} was"
        return replace(found, low=found.time, high=found.time, uncompared=found.time, error=error)
    low, high = (found.time * each for each in (compared.low, compared.high))
    if low >= found.low and high <= found.high:
        return found
    low, high = min(low, found.low), max(high, found.high)
    error = (
        f"80 % of such steps took {microseconds(low)} to {microseconds(high)}: {compared.rows} "
        f"steps {FORMS[form]}, published by {publishers(form)}"
    )
    return replace(found, low=low, high=high, error=error)


def publishers(form: str) -> str:
    """Return who published steps of a form, as a list in words."""
    *others, last = sorted(form_ratios(form), key=str.casefold)
    return f"{', '.join(others)} and {last}" if others else last


def _find_compared(
    topology: Topology, forms: Sequence[str]
) -> tuple[_ComparedSteps | None, _ComparedSteps | None]:
    """Return how far off kernels and hosts were that were reckoned by this topology's numbers.

    That is what the topology states, or else what steps show that others published.
    """
    found = []
    for stated in (topology.gpu, topology.host):
        known = None if stated is None else stated.compared
        words = "" if known is None else f"{known.steps} such step{'s'[: known.steps > 1]}"
        found.append(None if known is None else _ComparedSteps(known.low, known.high, words))
    gpu = topology.tuner.gpu if topology.tuner else ""
    is_planned, is_stated = PLANNED in forms, AS_STATED in forms
    table = step_interval(
        topology.name, topology.kind, gpu, is_planned=is_planned, is_stated=is_stated
    )
    if found[0] is None and topology.gpu is not None and table is not None:
        whose = f"{table.rows} steps{'' if table.alike else ' on other GPUs'}"
        whose += f", measured by {_word_projects(table.sets)}"
        whose += ", forecast as their code is" if is_planned and is_stated else ""
        found[0] = _ComparedSteps(table.low, table.high, whose)
    return found[0], found[1]


def _make_forecast(
    topology: Topology,
    network: Network,
    found: Replay,
    timings: Mapping[tuple[int, str, str], Timing],
    compared: Sequence[_ComparedSteps | None],
    *,
    only_collectives: bool,
) -> Forecast:
    """Return the forecast of a replay: its path in words, sums by step, group, rank and link."""
    path = _path(found, network)
    sums, ranks = _sums(found, network), len(found.ended)
    steps, load = _parts(_merge_sums(sums, 0, network), path, "step", network, ranks)
    groups, _ = _parts(_merge_sums(sums, 1, network), path, "group", network, ranks)
    models = dict.fromkeys(timing.model for timing in timings.values())
    if not only_collectives or not models:
        sent = "nccl messages" if isinstance(network, NcclNetwork) else "steps"
        models = dict.fromkeys([sent, *models])
    algorithms = dict.fromkeys(each.algorithm for each in timings.values() if each.algorithm)
    shown = f" ({'; '.join(algorithms)})" if algorithms else ""
    tuner = topology.tuner
    if tuner is not None and any("nccl" in model or "tuner" in model for model in models):
        shown += f"; NCCL {tuner.version}, constants of {tuner.constants.commit}"
    origin = f"{' and '.join(models)}{shown}, on {topology.name}: {topology.source}"
    shares = _shares(found)
    low, high, uncompared, error = _compare(
        path, found.time, _intervals(path, timings, network), shares["host"], compared
    )
    return Forecast(
        topology=topology,
        origin=origin,
        error=error,
        time=found.time,
        low=low,
        high=high,
        uncompared=uncompared,
        path=path,
        steps=steps,
        groups=tuple(each for each in groups if each.part),
        ranks=_ranks(sums, found, network),
        links=_rank_links(load, network),
        exact=found.exact,
        computed=frozenset(step for step, group in sums if not group),
        replay=found,
        **shares,
    )


def _intervals(
    path: Sequence[Hop], timings: Mapping[tuple[int, str, str], Timing], network: Network
) -> list[Interval | None]:
    """Return how far off calls like each hop were; a message is compared with rings of messages.

    Between nodes messages of all nodes meet, so that it is with rings over as many.
    """

    def find(hop: Hop) -> Interval | None:
        if hop.target is None or hop.size is None:
            timing = timings.get((hop.step, hop.group, hop.kind))
            return None if timing is None else timing.interval
        if not isinstance(network, NcclNetwork) or hop.size <= 0:
            return None
        is_far = network.node[hop.source] != network.node[hop.target]
        nodes = network.nodes if is_far else 1
        return interval(network.topology.kind, SENDRECV, nodes, hop.size)

    return [find(hop) for hop in path]


def _compare(
    path: Sequence[Hop],
    time: float,
    intervals: Sequence[Interval | None],
    host: float,
    compared: Sequence[_ComparedSteps | None],
) -> tuple[float, float, float, str]:
    """Return between which times 80 % of measurements like it are, and how much was not compared.

    Hops err together: all of them are as slow, or as quick, as such calls were at once, those that
    were never compared too, unless these are most of the time. (If they erred by themselves, a step
    of 100 calls would be forecast to a tenth of the error of one: a machine whose all_reduce is 20
    % slower than forecast is so at each of them.) `intervals` are those of the hops, `host` is how
    much of the path is the host's; `compared` are steps with kernels, and hosts, like these.
    """
    low = high = uncompared = known = kernels = reached = 0.0
    seen: dict[Interval, None] = {}
    for hop, own in zip(path, intervals, strict=True):
        taken = max(0.0, hop.ended - max(reached, hop.started))
        reached = max(reached, hop.ended)
        if hop.kind == "pause":
            kernels += taken
            continue
        if own is None:
            uncompared += taken
            continue
        seen[own] = None
        known += taken
        low += taken * (own.low - 1)
        high += taken * (own.high - 1)
    if not time:
        return 0.0, 0.0, 0.0, "none: it takes no time"
    rows = [_rows_words(seen)] if seen else []
    for what, taken, steps in zip(("kernels", "hosts"), (kernels, host), compared, strict=True):
        if steps is not None and taken > MENTIONED * time:
            known += taken
            low += taken * (steps.low - 1)
            high += taken * (steps.high - 1)
            rows.append(f"{what} of {steps.whose}")
    if not rows:
        alone = "what is stated of pauses and calls"
        words = NEVER_COMPARED if uncompared or host > time / 2 else alone
        return time, time, uncompared, words
    if uncompared > MOST_UNCOMPARED * time:
        words = (
            f"{NEVER_COMPARED}: {uncompared / time:.0%} of the time; the rest: {'; '.join(rows)}"
        )
        return time, time, uncompared, words + _name_uncompared(time, (kernels, host), compared)
    low, high = (each * (1 + uncompared / (known or time)) for each in (low, high))
    span = f"{microseconds(time + low)} to {microseconds(time + high)}"
    such = "calls" if compared[0] is None else "steps"
    stated = kernels if compared[0] is None else 0.0
    condition = "where kernels take what the file states, " if stated > time / 2 else ""
    words = f"{condition}80 % of such {such} took {span}: {'; '.join(rows)}"
    if uncompared > MENTIONED * time:
        words += (
            f"; {uncompared / time:.0%} of the time was never compared, and may err as the rest"
        )
    words += _name_uncompared(time, (kernels, host), compared)
    return time + low, time + high, uncompared, words


def _name_uncompared(
    time: float, parts: Sequence[float], compared: Sequence[_ComparedSteps | None]
) -> str:
    """Return which part of a time is kernels, and hosts, that were compared with no step."""
    return "".join(
        f"; {taken / time:.0%} are {what}"
        for what, taken, steps in zip(_UNCOMPARED, parts, compared, strict=True)
        if steps is None and taken > MENTIONED * time
    )


#: why an interval ends later than what is on the path says
HIDDEN = "what hides behind kernels as slow as such calls were"
#: the part of a time from which on it is mentioned
MENTIONED = 0.005
#: steps, or groups, that are all shown
MANY_PARTS = 8
#: the part of a time that may be like no measurement, where the whole time has an interval
MOST_UNCOMPARED = 0.5
#: kernels and hosts that were compared with no step
_UNCOMPARED = (
    "kernels as the file states them, without an interval",
    "calls of the host, which was never compared with a step",
)


def _rows_words(seen: Mapping[Interval, None]) -> str:
    """Return how many rows, of which machines, calls are compared with: the fewest of them."""
    least = min(seen, key=lambda each: (each.alike, each.asked, each.rows))
    rows = f"{least.rows} measurement{'' if least.rows == 1 else 's'}"
    whose = "like it" if least.asked else "of other collectives"
    if not least.alike:
        whose = "of machines of other kinds" + ("" if least.asked else ", and of other collectives")
    return f"{rows} {whose}, published by {_word_projects(least.sets)}"


def _word_projects(count: int) -> str:
    return f"{count} project{'' if count == 1 else 's'}"


#: how much longer than a call a host may seem to take by rounding
LONGER = 1 + 1e-6


def _path(found: Replay, network: Network) -> tuple[Hop, ...]:
    """Return the critical path, the first hop first, each with its because."""
    hops: list[Hop] = []
    before: ReplayEvent | None = None
    for number in found.path:
        event = found.events[number]
        hops.append(
            Hop(
                kind=event.name or "message",
                step=event.step,
                group=event.group,
                source=event.source,
                target=None if event.name else event.target,
                size=None if event.name else event.size,
                posted=event.posted,
                started=event.started,
                ended=event.ended,
                because=_explain_start(event, before, network),
            )
        )
        before = event
    return tuple(hops)


def _explain_start(event: ReplayEvent, before: ReplayEvent | None, network: Network) -> str:
    """Return why an event began no earlier."""
    late = event.cause == BY_RECEIVER and event.name is None
    rank = event.target if late else event.source
    waited = _host_share(event, before)
    if waited > 0:
        launch = network.topology.launch
        called = f"which takes {microseconds(launch)} for each call"
        works = f"which works for {microseconds(waited)} until then"
        works += f", {microseconds(launch)} of it for each call" if launch else ""
        does = called if waited <= launch * LONGER else works
        return f"waits for the host of rank {rank}, {does}"
    if before is None:
        return "waits for nothing"
    if event.name is None and event.cause == BY_LINK:
        held = f"the {amount(before.size)} from rank {before.source} to rank {before.target}"
        return f"waits for link {network.name_of(event.link)}, held by {held}"
    until_then = f"{_word_before(before, rank)} until then"
    if event.name is None:
        return f"waits for rank {rank} to post, which {until_then}"
    if event.name == "pause":
        return f"rank {rank} {until_then}"
    return f"waits for rank {rank} to enter, which {until_then}"


def _word_before(event: ReplayEvent, rank: int) -> str:
    """Return what a rank does in an event, as the predicate of a sentence."""
    if event.name == "pause":
        return "works by itself"
    if event.name is not None:
        return f"is in {event.name}"
    size = amount(event.size)
    if rank == event.target:
        return f"waits for the {size} of rank {event.source}"
    return f"sends {size} to rank {event.target}"


def _host_share(event: ReplayEvent, before: ReplayEvent | None) -> float:
    """Return how long an event waited for a host to make its call."""
    if event.name is None and event.cause == BY_LINK:
        return 0.0
    return event.started - _find_end(before, event.started)


def _find_end(event: ReplayEvent | None, time: float) -> float:
    """Return when a rank that goes on at a time was done with the event before.

    A message that is buffered is done for its sender once its bytes were out.
    """
    if event is None:
        return 0.0
    return event.ended if event.ended <= time else event.sent


def _shares(found: Replay) -> dict[str, Any]:
    """Return how much of the path is latency, bytes, waiting for links or hosts, and no message.

    A hop counts until the next one starts, or its host begins to be waited for. One that holds a
    link which the next waits for is waiting; a message is its bytes first, and what is left is
    latency. So the five shares add up to the time.
    """
    shares = {"latency": 0.0, "transfer": 0.0, "waiting": 0.0, "alone": 0.0, "kernels": 0.0}
    path = [found.events[number] for number in found.path]
    shares["host"] = _host_share(path[0], None) if path else found.time
    for at, event in enumerate(path):
        after = path[at + 1] if at + 1 < len(path) else None
        until = found.time if after is None else after.started
        host = until - _find_end(event, until) if after is None else _host_share(after, event)
        shares["host"] += host
        taken = until - event.started - host
        if event.name is not None:
            shares["alone"] += taken
            shares["kernels"] += taken if event.name == "pause" else 0.0
        elif after is not None and after.cause == BY_LINK:
            shares["waiting"] += taken
        else:
            bytes_alone = event.sent - event.started
            shares["transfer"] += min(taken, bytes_alone)
            shares["latency"] += max(0.0, taken - bytes_alone)
    return shares


# -------------------------------------------------------------------------------------------------
# Sums over all events: of a step, of a group, of links, of ranks.


class _Sum(Struct):
    """What some events cost together.

    `pairs` are messages between the same ranks: who, how many, their bytes, and those carried. A
    ring that turns 1,000 times sends between the same pairs: their links are looked up once, and
    not 1,000 times.
    """

    network: Network
    calls: int = 0
    began: float = float("inf")
    ended: float = 0.0
    pairs: dict[tuple[bytes, bytes], list[Any]] = field(default_factory=dict)

    def add(self, source: Any, target: Any, size: Any, started: Any, ended: Any) -> None:
        """Add a stroke, or a part of one."""
        self.calls += len(source)
        self.began = min(self.began, float(started.min()))
        self.ended = max(self.ended, float(ended.max()))
        if not isinstance(target, int):
            self._add_messages(source, target, 1, size, self.network.count_link_bytes(size))

    def _add_messages(self, source: Any, target: Any, count: int, size: Any, carried: Any) -> None:
        key = source.tobytes(), target.tobytes()
        known = self.pairs.setdefault(key, [source, target, 0, 0.0, 0.0])
        known[2] += count
        known[3], known[4] = known[3] + size, known[4] + carried

    def merge(self, other: _Sum) -> None:
        """Add what another one has."""
        self.calls += other.calls
        self.began, self.ended = min(self.began, other.began), max(self.ended, other.ended)
        for pair in other.pairs.values():
            self._add_messages(*pair)

    def by_rank(self, world_size: int) -> tuple[Any, Any, Any]:
        """Return how many messages each rank sends, and the bytes that it sends and receives."""
        sends, out, into = (np.zeros(world_size) for _ in range(3))
        for source, target, count, size, _ in self.pairs.values():
            sizes = np.broadcast_to(size, len(source))
            sends += count * np.bincount(source, minlength=world_size)
            out += np.bincount(source, weights=sizes, minlength=world_size)
            into += np.bincount(target, weights=sizes, minlength=world_size)
        return sends, out, into

    def load(self) -> NDArray[np.float64]:
        """Return how long each link is held."""
        network = self.network
        load = np.zeros(max(1, network.count))
        for source, target, _, _, carried in self.pairs.values():
            routes = network.routes(source, target)
            used = routes.links >= 0
            held = routes.per_byte * np.broadcast_to(carried, len(source))[:, np.newaxis]
            load += np.bincount(routes.links[used], weights=held[used], minlength=len(load))
        return load


def _sums(found: Replay, network: Network) -> dict[tuple[int, str], _Sum]:
    """Return what each step costs in each group, by the step's index and the group's name."""
    sums: dict[tuple[int, str], _Sum] = {}
    for stroke in found.events.strokes:
        parts = tuple(stroke[FIELDS.index(each)] for each in _SUMMED)
        step, group = stroke[FIELDS.index("step")], stroke[FIELDS.index("group")]
        if isinstance(step, int):
            sums.setdefault((step, group), _Sum(network)).add(*parts)
            continue
        order = np.lexsort((group, step))
        steps, groups = step[order], group[order]
        changes = (steps[1:] != steps[:-1]) | (groups[1:] != groups[:-1])
        for rows in np.split(order, np.flatnonzero(changes) + 1):
            mine = (part if isinstance(part, int | float) else part[rows] for part in parts)
            key = int(step[rows[0]]), str(group[rows[0]])
            sums.setdefault(key, _Sum(network)).add(*mine)
    return sums


def _merge_sums(
    sums: Mapping[tuple[int, str], _Sum], place: int, network: Network
) -> dict[Any, _Sum]:
    """Return the sums of each step (`place` 0), or of each group (1), in their order."""
    found: dict[Any, _Sum] = {}
    for key in sorted(sums, key=lambda each: each[place]):
        found.setdefault(key[place], _Sum(network)).merge(sums[key])
    return found


#: what is summed of events
_SUMMED = ("source", "target", "size", "started", "ended")


def _parts(
    sums: Mapping[Any, _Sum], path: tuple[Hop, ...], field_name: str, network: Network, ranks: int
) -> tuple[tuple[PartCost, ...], NDArray[np.float64]]:
    """Return what each step or group costs, and how long each link is held by all of them.

    A part's share of the path is the time by which its hops move the end on: of two hops that
    overlap only what is beyond the first counts, so that the shares add up to the whole.
    """
    share: dict[Any, float] = {}
    reached = 0.0
    for hop in path:
        part = getattr(hop, field_name)
        share[part] = share.get(part, 0.0) + max(0.0, hop.ended - reached)
        reached = max(reached, hop.ended)
    costs, total = [], np.zeros(max(1, network.count))
    for part, each in sums.items():
        load, sent = each.load(), each.by_rank(ranks)[1]
        total += load
        busiest = int(load.argmax())
        costs.append(
            PartCost(
                part=part,
                calls=each.calls,
                size=float(sent.sum()),
                busiest_rank=float(sent.max(initial=0.0)),
                link=network.name_of(busiest) if each.pairs else None,
                held=float(load[busiest]),
                began=each.began,
                ended=each.ended,
                on_path=share.get(part, 0.0),
            )
        )
    return tuple(costs), total


def _ranks(sums: Mapping[Any, _Sum], found: Replay, network: Network) -> tuple[RankCost, ...]:
    """Return what each rank sends and receives, in their order."""
    whole = _Sum(network)
    for each in sums.values():
        whole.merge(each)
    columns = (*whole.by_rank(len(found.ended)), found.ended)
    return tuple(
        RankCost(sends=int(sends), sent=float(sent), received=float(got), ended=float(ended))
        for sends, sent, got, ended in zip(*columns, strict=True)
    )


#: steps that are named at which a host waits
SHOWN_STEPS = 8
#: ranks that are told one by one
SHOWN_RANKS = 64
#: links that are named: the busiest
SHOWN_LINKS = 8


def _rank_links(load: Any, network: Network) -> tuple[tuple[str, float], ...]:
    """Return the busiest links and how long each is held."""
    order = np.argsort(-load, kind="stable")[:SHOWN_LINKS]
    return tuple((network.name_of(int(link)), float(load[link])) for link in order if load[link])


# -------------------------------------------------------------------------------------------------
# In words.


def microseconds(time: float) -> str:
    """Return a time as people read it.

    >>> microseconds(12.3456), microseconds(12345.6), microseconds(1.5e6)
    ('12.35 us', '12.35 ms', '1.5 s')
    """
    if time < 1000:
        return f"{time:.4g} us"
    if time < 1e6:
        return f"{time / 1e3:.4g} ms"
    return f"{time / 1e6:.4g} s"


#: hops that are shown of a path: the first and the last ones
SHOWN_HOPS = 12
