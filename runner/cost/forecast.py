"""Traffic + topology -> forecast: how long a program takes there, why, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.cost.collectives import CollectiveTimes, Timing
from runner.cost.replay import BY_LINK, BY_RECEIVER, START, Replay, ReplayEvents, replay
from runner.cost.structure import UNKNOWN, amount
from runner.cost.topology import MODELS, Network, Topology
from runner.errors import Problem, ScenarioError
from runner.model.traffic import Enter, Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One event of the critical path, in microseconds; `because` says why it began no earlier.

    `target` and `size` are None for what is no message.
    """

    kind: str
    step: int
    source: int
    target: int | None
    size: float | None
    posted: float
    started: float
    ended: float
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What one step of a file costs: its messages, bytes, busiest link, and share of the path."""

    step: int
    calls: int
    size: float
    busiest_rank: float
    link: str | None
    held: float
    began: float
    ended: float
    on_path: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How long a program takes on a topology, in microseconds.

    `origin` says what the time comes from, `error` how far off such times were. Of the critical
    path `latency`, `transfer`, `waiting` and `alone` (collectives, pauses) add up to the time.
    """

    topology: Topology
    origin: str
    error: str
    time: float
    path: tuple[Hop, ...]
    steps: tuple[StepCost, ...]
    links: tuple[tuple[str, float], ...]
    latency: float
    transfer: float
    waiting: float
    alone: float
    exact: bool
    replay: Replay

    def json(self) -> dict[str, Any]:
        """Return what JSON has of it, beside the structure."""
        return {
            "topology": self.topology.name,
            "time_us": self.time,
            "origin": self.origin,
            "error": self.error,
            "exact": self.exact,
            "shares": {
                "latency_us": self.latency,
                "bytes_us": self.transfer,
                "waiting_us": self.waiting,
                "alone_us": self.alone,
            },
            "path": [_hop_json(hop) for hop in self.path],
            "steps": [_step_json(step) for step in self.steps],
            "links": [{"link": name, "busy_us": held} for name, held in self.links],
        }


def _hop_json(hop: Hop) -> dict[str, Any]:
    return {
        "kind": hop.kind,
        "step": hop.step,
        "source": hop.source,
        "target": hop.target,
        "bytes": hop.size,
        "posted_us": hop.posted,
        "started_us": hop.started,
        "ended_us": hop.ended,
        "because": hop.because,
    }


def _step_json(step: StepCost) -> dict[str, Any]:
    return {
        "step": step.step,
        "calls": step.calls,
        "bytes": step.size,
        "busiest_rank_bytes": step.busiest_rank,
        "busiest_link": step.link,
        "busiest_link_us": step.held,
        "began_us": step.began,
        "ended_us": step.ended,
        "on_path_us": step.on_path,
    }


def forecast(
    traffic: Traffic,
    topology: Topology,
    *,
    model: str | None = None,
    algorithm: str | None = None,
    scale: float = 1.0,
) -> Forecast:
    """Return how long a program takes on a topology; `scale` multiplies all bytes.

    Raises ScenarioError where the topology cannot tell.
    """
    collectives = CollectiveTimes(
        topology, traffic.world_size, model=model, algorithm=algorithm, scale=scale
    )
    if traffic.unknown:
        message = UNKNOWN
        raise ScenarioError(
            [Problem(code="no_forecast", message=message, hint="send tensors instead")]
        )
    timings: list[Timing] = []

    def timed(entry: Enter) -> float:
        timing = collectives.of(entry)
        timings.append(timing)
        return timing.time

    only_collectives = not any(getattr(each, "sends", None) for each in traffic.entries)
    network = _Silent(topology, traffic.world_size) if only_collectives else collectives.network
    found = replay(traffic, network, timed, scale)
    return _made(topology, network, found, timings, only_collectives=only_collectives)


class _Silent(Network):
    """The network of a program without messages: no link is ever asked for."""

    def __init__(self, topology: Topology, world_size: int) -> None:
        self.topology, self.world_size, self.count = topology, world_size, 0
        self.nodes = 1


def _made(
    topology: Topology,
    network: Network,
    found: Replay,
    timings: list[Timing],
    *,
    only_collectives: bool,
) -> Forecast:
    path = _path(found, network)
    models = dict.fromkeys(timing.model for timing in timings)
    if not only_collectives or not models:
        models = dict.fromkeys(["steps", *models])
    algorithms = dict.fromkeys(f"{each.algorithm}" for each in timings if each.algorithm)
    shown = f" ({'; '.join(algorithms)})" if algorithms else ""
    tuner = topology.tuner
    if tuner is not None and any(model.startswith("nccl") for model in models):
        shown += f"; NCCL {tuner.version}, constants of {tuner.constants.commit}"
    origin = f"{' and '.join(models)}{shown}, on {topology.name}: {topology.source}"
    error = "; ".join(f"{model}: {MODELS[model]}" for model in models)
    return Forecast(
        topology=topology,
        origin=origin,
        error=error,
        time=found.time,
        path=path,
        steps=_steps(found.events, path, network),
        links=_busy(found.events, network),
        exact=found.exact,
        replay=found,
        **_shares(found),
    )


def _path(found: Replay, network: Network) -> tuple[Hop, ...]:
    """Return the critical path, the first hop first, each with its because."""
    events = found.events
    hops: list[Hop] = []
    numbers = found.path()
    for at, number in enumerate(numbers):
        source, target = int(events.source[number]), int(events.target[number])
        name = events.names.get(number)
        before = numbers[at - 1] if at else START
        hops.append(
            Hop(
                kind=name or "message",
                step=int(events.step[number]),
                source=source,
                target=None if name else target,
                size=None if name else float(events.size[number]),
                posted=float(events.posted[number]),
                started=float(events.started[number]),
                ended=float(events.ended[number]),
                because=_because(events, number, before, network),
            )
        )
    return tuple(hops)


def _because(events: ReplayEvents, number: int, before: int, network: Network) -> str:
    """Return why an event began no earlier."""
    source, target = int(events.source[number]), int(events.target[number])
    name = events.names.get(number)
    cause = int(events.cause[number])
    if before == START:
        return "nothing: it can begin at once"
    if name is None and cause == BY_LINK:
        held = f"{_told(events, before)}"
        return f"waits for link {network.name_of(int(events.link[number]))}, held by {held}"
    rank = target if cause == BY_RECEIVER and name is None else source
    after = _after(events, before, rank)
    if name is None:
        return f"waits for rank {rank} to post, {after}"
    if name == "pause":
        return f"rank {rank} is busy by itself, {after}"
    return f"waits for rank {rank} to enter, {after}"


def _after(events: ReplayEvents, before: int, rank: int) -> str:
    """Return what a rank did until then."""
    name = events.names.get(before)
    if name == "pause":
        return "which is busy by itself before"
    if name is not None:
        return f"which is in {name} before"
    size = amount(float(events.size[before]))
    source, target = int(events.source[before]), int(events.target[before])
    if rank == target:
        return f"which waits for the {size} of rank {source}"
    return f"which sends {size} to rank {target} before"


def _told(events: ReplayEvents, number: int) -> str:
    size = amount(float(events.size[number]))
    return f"the {size} from rank {int(events.source[number])} to rank {int(events.target[number])}"


def _shares(found: Replay) -> dict[str, float]:
    """Return how much of the path is latency, bytes, waiting for links, and what is no message.

    A hop counts until the next one starts. One that holds a link which the next waits for is
    waiting; a message is its bytes first, and what is left is latency.
    """
    shares = {"latency": 0.0, "transfer": 0.0, "waiting": 0.0, "alone": 0.0}
    numbers, events = found.path(), found.events
    for at, number in enumerate(numbers):
        last = at + 1 == len(numbers)
        until = found.time if last else float(events.started[numbers[at + 1]])
        taken = until - float(events.started[number])
        if number in events.names:
            shares["alone"] += taken
        elif not last and int(events.cause[numbers[at + 1]]) == BY_LINK:
            shares["waiting"] += taken
        else:
            bytes_alone = float(events.sent[number] - events.started[number])
            shares["transfer"] += min(taken, bytes_alone)
            shares["latency"] += max(0.0, taken - bytes_alone)
    return shares


def _steps(events: ReplayEvents, path: tuple[Hop, ...], network: Network) -> tuple[StepCost, ...]:
    """Return what each step of the file costs, in the order of the file."""
    found = []
    share: dict[int, float] = {}
    reached = 0.0
    for hop in path:
        share[hop.step] = share.get(hop.step, 0.0) + max(0.0, hop.ended - max(reached, 0.0))
        reached = max(reached, hop.ended)
    for step in np.unique(events.step).tolist():
        mine = events.step == step
        messages = mine & (events.target >= 0)
        sizes = events.size[messages]
        by_rank = np.bincount(events.source[messages], weights=sizes, minlength=1)
        link, held = None, 0.0
        if messages.any():
            link, held = _busiest(events, messages, network)
        found.append(
            StepCost(
                step=step,
                calls=int(mine.sum()),
                size=float(sizes.sum()),
                busiest_rank=float(by_rank.max()),
                link=link,
                held=held,
                began=float(events.started[mine].min()),
                ended=float(events.ended[mine].max()),
                on_path=share.get(step, 0.0),
            )
        )
    return tuple(found)


def _loads(events: ReplayEvents, messages: Any, network: Network) -> Any:
    routes = network.routes(events.source[messages], events.target[messages])
    used = routes.links >= 0
    held = routes.per_byte * events.size[messages][:, np.newaxis]
    return np.bincount(routes.links[used], weights=held[used], minlength=1)


def _busiest(events: ReplayEvents, messages: Any, network: Network) -> tuple[str, float]:
    load = _loads(events, messages, network)
    link = int(load.argmax())
    return network.name_of(link), float(load[link])


#: ranks that are told one by one
SHOWN_RANKS = 64
#: links that are named: the busiest
SHOWN_LINKS = 8


def _busy(events: ReplayEvents, network: Network) -> tuple[tuple[str, float], ...]:
    """Return the busiest links and how long each is held."""
    messages = events.target >= 0
    if not messages.any():
        return ()
    load = _loads(events, messages, network)
    order = np.argsort(-load, kind="stable")[:SHOWN_LINKS]
    return tuple((network.name_of(int(link)), float(load[link])) for link in order if load[link])


# -------------------------------------------------------------------------------------------------
# In words.


def microseconds(time: float) -> str:
    """Return a time as people read it."""
    if time < 1000:
        return f"{time:.4g} us"
    if time < 1e6:
        return f"{time / 1e3:.4g} ms"
    return f"{time / 1e6:.4g} s"


#: hops that are shown of a path: the first and the last ones
SHOWN_HOPS = 12


def forecast_lines(found: Forecast, labels: Mapping[int, str], by: str = "step") -> list[str]:
    """Return a forecast in lines for a terminal; `labels` name the steps.

    It is shown `by` step, rank or link.
    """
    lines = [
        f"time      {microseconds(found.time)}  (forecast)",
        f"origin    {found.origin}",
        f"error     {found.error}",
    ]
    if not found.exact:
        lines.append("note      messages that contend at one stroke were taken together")
    if found.time > 0:
        shares = (
            ("latency", found.latency),
            ("bytes", found.transfer),
            ("waiting", found.waiting),
            ("collectives, pauses", found.alone),
        )
        told = ", ".join(f"{name} {part / found.time:.0%}" for name, part in shares if part > 0)
        lines.append(f"of that   {told}")
    told_by = {"rank": _rank_lines(found), "link": _link_lines(found)}.get(by)
    shown = _step_lines(found, labels) if told_by is None else told_by
    lines += [f"{by}s", *(f"  {line}" for line in shown)]
    if found.links:
        name, held = found.links[0]
        use = held / found.time if found.time else 0.0
        lines.append(f"busiest   {name}: {microseconds(held)}, {use:.0%} of the time")
    lines += ["critical path", *(f"  {line}" for line in _path_lines(found, labels))]
    return lines


def _step_lines(found: Forecast, labels: Mapping[int, str]) -> list[str]:
    lines = []
    for step in found.steps:
        label = labels.get(step.step, f"step {step.step}")
        share = step.on_path / found.time if found.time else 0.0
        link = f", busiest {step.link} {microseconds(step.held)}" if step.link else ""
        lines.append(
            f"{label}: {step.calls} calls, {amount(step.size)}"
            f" ({amount(step.busiest_rank)} by one rank){link}, {share:.0%} of the path"
        )
    return lines


def _rank_lines(found: Forecast) -> list[str]:
    """Return what each rank sends and receives, and when it is done."""
    events, ended = found.replay.events, found.replay.ended
    messages = events.target >= 0
    count = len(ended)
    sizes = events.size[messages]
    sent, got = (
        np.bincount(ends[messages], weights=sizes, minlength=count)
        for ends in (events.source, events.target)
    )
    posted = np.bincount(events.source[messages], minlength=count)
    lines = [
        f"rank {rank}: {int(posted[rank])} messages, {amount(float(sent[rank]))} out, "
        f"{amount(float(got[rank]))} in, done at {microseconds(float(ended[rank]))}"
        for rank in range(min(count, SHOWN_RANKS))
    ]
    return lines if count <= SHOWN_RANKS else [*lines, f"... {count - SHOWN_RANKS} more ranks ..."]


def _link_lines(found: Forecast) -> list[str]:
    """Return how long the busiest links are held, and which share of the time that is."""
    time = found.time or 1.0
    return [f"{name}: {microseconds(held)}, {held / time:.0%}" for name, held in found.links]


def _path_lines(found: Forecast, labels: Mapping[int, str]) -> list[str]:
    lines = []
    path = found.path
    for at, hop in enumerate(path):
        if len(path) > SHOWN_HOPS and SHOWN_HOPS // 2 <= at < len(path) - SHOWN_HOPS // 2:
            if at == SHOWN_HOPS // 2:
                lines.append(f"... {len(path) - SHOWN_HOPS} more hops ...")
            continue
        label = labels.get(hop.step, f"step {hop.step}")
        if hop.target is None:
            what = f"rank {hop.source} in {hop.kind}"
        else:
            what = f"rank {hop.source} to rank {hop.target}, {amount(hop.size or 0.0)}"
        span = f"{microseconds(hop.started)} to {microseconds(hop.ended)}"
        lines += [f"{span}: {what} ({label})", f"    {hop.because}"]
    return lines
