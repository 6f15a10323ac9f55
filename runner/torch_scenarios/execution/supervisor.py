"""The supervisor of a launch: it gives orders, watches, breaks what is stuck, and concludes."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Self

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import LaunchError, UnsupportedError
from torch_scenarios.execution import heartbeat, nodes, protocol
from torch_scenarios.execution.backends import (
    LaunchOptions,
    choose_backend,
    require_no_foreign_object,
)
from torch_scenarios.execution.checkpoints import checkpoint_folder
from torch_scenarios.expressions.evaluator import LONGEST_S
from torch_scenarios.expressions.functions import NumpyArrays
from torch_scenarios.expressions.values import Constant, PerRank
from torch_scenarios.limits import RAISING, session_left_s
from torch_scenarios.model.needs import Lacks
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Process
from torch_scenarios.model.scenario import Expectation, RaiseSpec, steps_of
from torch_scenarios.model.trace import Event, RankTrace, Trace
from torch_scenarios.model.traits import carrier, device_type
from torch_scenarios.operations.base import Departure

# -------------------------------------------------------------------------------------------------
# How one scenario is going, as far as its mail tells.

#: seconds without a sign of life after which a rank on a device is taken to stand in a call that
#: does not let go of Python: it gives signs every second
SILENT_S = 6.0


class RunState(Struct):
    """What is known of the ranks of one scenario while it runs.

    Every rank is in one of them, and `moved_s` is when that last changed:

        ordered --> begun --> at a position --> reported --> free for the next scenario
                      |            |
                      | died, lost | all at their stops: a confirmed deadlock, `broken` from inside

    A run ends when each rank has reported or is known to be gone.
    """

    begun: set[int] = field(default_factory=set)
    #: ranks on a device, by when they last showed that they are alive
    alive_s: dict[int, float] = field(default_factory=dict)
    told: dict[int, protocol.RankReport] = field(default_factory=dict)
    stuck: dict[int, protocol.Position] = field(default_factory=dict)
    unable: dict[int, protocol.WorldFailed] = field(default_factory=dict)
    #: ranks whose processes were told to end, and when the first of them was
    leaving: set[int] = field(default_factory=set)
    left_s: float = 0.0
    free: set[int] = field(default_factory=set)
    died: dict[int, str] = field(default_factory=dict)
    #: ranks whose processes do not run any more, and what is wrong with each
    lost: dict[int, str] = field(default_factory=dict)
    #: a process ended, or was stopped, before every rank was ready
    unbegun: bool = False
    moved_s: float = field(default_factory=time.monotonic)
    broken: bool = False
    hung: bool = False

    @property
    def unsettled(self) -> bool:
        """Whether anything but steps has happened: what comes of it is decided within moments."""
        ended = self.told or self.unable or self.died or self.lost or self.leaving
        return bool(self.stuck or ended or self.broken)

    @property
    def silent(self) -> set[int]:
        """The ranks that have shown no life for long; on a CPU none is asked for it."""
        now_s = time.monotonic()
        found = {rank for rank, at_s in self.alive_s.items() if now_s - at_s > SILENT_S}
        return found - self.told.keys()

    def is_at_stop(self, rank: int, watch: protocol.Supervision) -> bool:
        """Return whether a rank is where it was predicted to be in the end."""
        stop = watch.stops[rank]
        report = self.told.get(rank)
        if report is not None:
            return stop.may_end or report.trace.ending == stop.ending
        return self.stuck.get(rank) in stop.positions or rank in self.silent

    def note(self, message: protocol.Message) -> None:
        """Take in one message. A sign of life is no move."""
        now_s = time.monotonic()
        if isinstance(message, protocol.WorldReady):
            self.begun.add(message.rank)
            self.alive_s[message.rank] = now_s
        elif message.rank in self.alive_s:
            self.alive_s[message.rank] = now_s
        if not isinstance(message, protocol.RankAlive):
            self.moved_s = now_s
            self.take(message)

    def take(self, message: protocol.Message) -> None:
        match message:
            case protocol.RankReport():
                self.told[message.rank] = message
                self.stuck.pop(message.rank, None)
            case protocol.RankStuck():
                self.stuck[message.rank] = message.position
            case protocol.RankMoved():
                self.stuck.pop(message.rank, None)
            case protocol.WorldFailed():
                self.unable[message.rank] = message
            case protocol.RankFree():
                self.free.add(message.rank)
            case protocol.RankLeaving():
                self.left_s = self.left_s if self.leaving else time.monotonic()
                self.leaving.add(message.rank)
            case _:
                pass  # that it came is all

    def take_in(self, inbox: protocol.Inbox, timeout_s: float) -> bool:
        """Take in all mail that is there, waiting a while for the first; whether any came."""
        first = parts = inbox.take(timeout_s)
        while parts is not None:
            self.note(protocol.open_parts(parts, protocol.Message))
            parts = inbox.take(0.0)
        return first is not None

    def give_up(self, watch: protocol.Supervision) -> None:
        """Give up the ranks of a scenario that takes too long: their launch ends with it."""
        how = f"the scenario takes longer than {watch.most_s:.3g} s ({watch.bound} raises it)"
        for rank in set(range(watch.world_size)) - self.told.keys():
            self.lost.setdefault(rank, how)

    def give_up_worlds(self, world_size: int) -> None:
        """Call ranks unable whose world is still being made: NCCL waits for the absent."""
        for rank in set(range(world_size)) - self.begun - self.told.keys() - self.unable.keys():
            reason = f"rank {rank} could not make its world within {WORLD_S:g} s: NCCL still waits"
            self.note(protocol.WorldFailed(rank=rank, reason=reason))


# -------------------------------------------------------------------------------------------------
# From a plan and its prediction: what the supervisor must watch a running scenario for.

#: kinds that only the backend's own timeout brings about
OF_A_TIMEOUT = frozenset({"timeout", "peer_lost", "aborted"})
#: seconds that a deadlock must stand: a predicted one, and one that the semantics leave open, which
#: a busy machine must not make of a call that is only slow
SETTLE_S, DOUBT_S = 0.04, 0.75
#: seconds that all ranks stand at calls where a backend's own halt was forecast at others
ANYWHERE_S = 3.0
#: seconds that a timeout is taken for which only the ranks can compute
UNKNOWN_S = 3600.0
#: times its own timeouts and sleeps that a scenario may take
PATIENT = 3.0
STANDING = frozenset({"blocked", "possibly_blocked"})


def watch_for(
    plan: Plan,
    predicted: Trace,
    *,
    confirm: str,
    backend: str | None = None,
    max_seconds: float | None = None,
) -> protocol.Supervision:
    """Return the watch for a plan, on a backend if one is named.

    It may take `max_seconds`, and where it states longer timeouts and sleeps three times these.

    A predicted deadlock is broken as soon as it is confirmed, unless the scenario's end, or
    `confirm`, asks for what the backend's own timeout brings. Ranks may stand where the semantics
    say and where the backend's forecast says; a forecast alone is given the longer time.
    """
    most_s = None if max_seconds is None else max(max_seconds, _sum_stated_s(plan, predicted))
    left_s = session_left_s()
    ends = left_s is not None and (most_s is None or left_s < most_s)
    if ends:
        most_s = left_s
    forecast = predicted.on(backend)
    every_semantics = (predicted,) if forecast is predicted else (predicted, forecast)
    halts = forecast.outcome == "deadlock"
    breaks = any("deadlock" in (each.outcome, *each.open) for each in every_semantics)
    breaks = breaks and confirm != "timeout" and not _expects_timeout(plan.scenario.expect.at_end)
    return protocol.Supervision(
        world_size=plan.world_size,
        patience_s=longest_timeout(plan),
        settle_s=SETTLE_S if predicted.outcome == "deadlock" else DOUBT_S,
        anywhere_s=ANYWHERE_S if breaks and every_semantics[1:] and halts else None,
        stopped_s=heartbeat.STOPPED_S,
        silent_s=heartbeat.SILENT_S,
        most_s=most_s,
        bound=RAISING["max_total_seconds" if ends else "max_seconds"],
        stops=_stops(plan, every_semantics) if breaks else {},
    )


def _sum_stated_s(plan: Plan, predicted: Trace) -> float:
    """Return three times the seconds of a plan's timeouts and sleeps, an hour of the latter."""
    return PATIENT * (longest_timeout(plan) + min(predicted.duration_s, LONGEST_S))


def _stops(plan: Plan, every_semantics: tuple[Trace, ...]) -> dict[int, protocol.PredictedStop]:
    """Return where each rank may be for good; where a step expects a timeout, no rank is."""
    passing = {
        step.index for step in steps_of(plan.scenario.steps) if _expects_timeout(step.expect)
    }
    found: dict[int, protocol.PredictedStop] = {}
    for semantics in every_semantics:
        for rank in semantics.ranks:
            stop = _stop(rank, passing, semantics, plan)
            before = found.get(rank.rank, stop)
            found[rank.rank] = replace(
                stop,
                positions=before.positions | stop.positions,
                may_end=before.may_end or stop.may_end,
            )
    return found


def _stop(
    rank: RankTrace, passing: set[int], predicted: Trace, plan: Plan
) -> protocol.PredictedStop:
    positions = {*rank.may_block, *_departures(plan)}
    if rank.ending in STANDING and rank.events:
        positions.add((rank.events[-1].index, rank.events[-1].iteration))
    return protocol.PredictedStop(
        ending=rank.ending,
        positions=frozenset(place for place in positions if place[0] not in passing),
        may_end=rank.ending != "blocked" or bool(predicted.open),
    )


def _departures(plan: Plan) -> set[protocol.Position]:
    """Return the step in which ranks that have come to their end serve the others, if any."""
    steps = steps_of(plan.scenario.steps)
    return {(step.index, ()) for step in steps if isinstance(step.operation, Departure)}


def _expects_timeout(expectation: Expectation | None) -> bool:
    """Return whether an expectation asks for what only a timeout brings about."""
    return any(OF_A_TIMEOUT.intersection(spec.kinds) for spec in _specs(expectation))


def _specs(expectation: Expectation | None) -> Iterator[RaiseSpec]:
    raises = expectation.raises if expectation else None
    if isinstance(raises, RaiseSpec):
        yield raises
    elif isinstance(raises, PerRank):
        specs = (*(spec for _, spec in raises.branches), raises.otherwise)
        yield from (spec for spec in specs if spec is not None)


def longest_timeout(plan: Plan) -> float:
    """Return the longest time, in seconds, that any call of the plan may block."""
    times = [plan.world.timeout_s]
    times += [group.timeout_s for creation in plan.creations for group in creation.groups]
    for step in steps_of(plan.scenario.steps):
        stated = step.arguments.get("timeout")
        if isinstance(stated, Constant) and isinstance(stated.value, int | float):
            times.append(float(stated.value))
        elif stated is not None:
            times.append(UNKNOWN_S)
    return max(times)


def replace_timeout(plan: Plan, timeout_s: float) -> Plan:
    """Return the plan with another process-group timeout; groups that state their own keep it."""
    scenario = replace(plan.scenario, timeout_s=timeout_s)
    creations = tuple(
        creation
        if creation.spec.timeout_s is not None
        else replace(
            creation,
            groups=tuple(replace(group, timeout_s=timeout_s) for group in creation.groups),
        )
        for creation in plan.creations
    )
    made = {group.key: group for creation in creations for group in creation.groups}
    world = replace(plan.world, timeout_s=timeout_s)
    names = {
        name: tuple(made.get(group.key, world) for group in groups)
        for name, groups in plan.names.items()
    }
    return replace(
        plan,
        scenario=scenario,
        world=world,
        creations=creations,
        names=names,
        prepared={},
        selected={},
    )


# -------------------------------------------------------------------------------------------------
# From what the ranks told to the observed trace: endings settled, the outcome named.

#: seconds by which a rank may have begun later than one of another host, whose clock is another
BETWEEN_HOSTS_S = 0.05
#: signals that a process raises itself: the backend crashed, or aborted
CRASHES = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})
#: what a call raises that could not end within its timeout, itself or through its peer
CASCADE = frozenset({"timeout", "peer_lost", "aborted"})


def observe(plan: Plan, findings: Findings, predicted: Trace) -> Trace:
    """Return the observed trace of a plan of which something was predicted.

    Raises UnsupportedError or LaunchError where a rank could not make its world, LaunchError where
    the process of one did not run any more, or was ended by neither the program nor the backend.
    """
    if findings.lost:
        rank = min(findings.lost)
        message = f"rank {rank} was given up: {findings.lost[rank]}"
        raise LaunchError(message)
    if findings.unable:
        raise unable(findings)
    for rank, how in sorted(findings.died.items()):
        if _is_ended_outside(rank, how, findings):
            raise LaunchError(_explain_kill(rank, how, findings))
    late_s = _measure_lateness(findings)
    ranks = [_rank(rank, findings) for rank in range(plan.world_size)]
    departures = _departures(plan)
    ranks = [_end_service(rank) if _serves_in(rank, departures) else rank for rank in ranks]
    ranks = [replace(rank, late_s=late_s.get(rank.rank, 0.0)) for rank in ranks]
    ranks = _settle(plan, ranks, predicted)
    any_told = next(iter(findings.told.values()), None)
    notes = [*findings.notes, *(note for report in findings.told.values() for note in report.notes)]
    if findings.hung:
        notes.append("the backend's own timeout did not end it")
    return Trace(
        backend=any_told.backend if any_told else "unknown",
        outcome=outcome(ranks),
        ranks=tuple(ranks),
        duration_s=findings.duration_s,
        notes=tuple(filter(None, notes)),
        environment=_environment(findings),
        hosts=_hosts(findings),
    )


def _is_ended_outside(rank: int, how: str, findings: Findings) -> bool:
    """Return whether neither a step nor the backend ended a rank's process.

    A rank whose step ends it says so before; a backend ends it by a signal, or exits.
    """
    report = findings.told.get(rank)
    if report is not None and report.trace.ending == "died":
        return False
    return how not in CRASHES and not how.startswith("exit ")


def _explain_kill(rank: int, how: str, findings: Findings) -> str:
    pid = findings.pids.get(rank)
    process = "" if pid is None else f" (process {pid})"
    if not how.startswith("SIG"):
        return f"rank {rank}{process} ended with its launch: {how}"
    memory = "; the kernel does so where memory runs out" if how == "SIGKILL" else ""
    return f"rank {rank}{process} was killed from outside by {how}, which no step asks for{memory}"


def _environment(findings: Findings) -> dict[str, str]:
    """Return what the run was on; `world_s` is the seconds that its world took to be made."""
    made_s = max((report.world_s for report in findings.told.values()), default=0.0)
    found = dict(findings.environment)
    if made_s:
        found["world_s"] = f"{made_s:.4f}"
    if hosts := _hosts(findings):
        found["hosts"] = nodes.name_hosts(hosts)
    if findings.ready_s:
        found["ready_s"] = f"{findings.ready_s:.4f}"
    return found


def _hosts(findings: Findings) -> dict[int, str]:
    """Return the host of each rank; nothing where there is one host."""
    found = {rank: report.host for rank, report in sorted(findings.told.items())}
    return found if len(set(found.values())) > 1 else {}


def _measure_lateness(findings: Findings) -> dict[int, float]:
    """Return how many seconds after the first rank each began, as far as their clocks tell."""
    first_s: dict[str, float] = {}
    for report in findings.told.values():
        first_s[report.host] = min(report.began_s, first_s.get(report.host, report.began_s))
    between_s = BETWEEN_HOSTS_S if len(first_s) > 1 else 0.0
    return {
        rank: report.began_s - first_s[report.host] + between_s
        for rank, report in findings.told.items()
    }


def unable(findings: Findings) -> Exception:
    """Return the error for ranks that could not make their world."""
    first = findings.unable[min(findings.unable)]
    kind = UnsupportedError if first.unsupported else LaunchError
    return kind(first.reason)


def _rank(rank: int, findings: Findings) -> RankTrace:
    report = findings.told.get(rank)
    died = findings.died.get(rank)
    if report is not None:
        trace = replace(report.trace, events=tuple(report.trace.events))
        if died is not None and trace.ending in {"finished", "blocked"}:
            return replace(trace, ending="died", died=died)
        return trace
    position = findings.stuck.get(rank)
    events = (_make_event(position),) if position else ()
    if died is not None:
        return RankTrace(rank=rank, events=events, ending="died", died=died)
    return RankTrace(rank=rank, events=events, ending="blocked")


def _make_event(position: protocol.Position) -> Event:
    index, iteration = position
    return Event(index=index, label=f"step {index}", iteration=iteration, state="blocked")


def _settle(plan: Plan, ranks: list[RankTrace], predicted: Trace) -> list[RankTrace]:
    """Call a rank blocked that raised only because its call could not end within its timeout.

    So it is where no step and no top-level `raises` asked for what the timeout brings, and it was
    not predicted either: who waits for a rank that comes, but comes too late, is not blocked. A
    rank that lost its peer counts as blocked with it where that peer timed out, and none died or
    raised anything else.
    """
    if any(_is_expected_to_raise(plan, rank.rank) for rank in ranks if rank.ending == "raised"):
        return ranks
    late = {rank.rank for rank in predicted.ranks if _find_kind(rank) in CASCADE}
    if any(rank.ending == "raised" and rank.rank in late for rank in ranks):
        return ranks
    last = {rank.rank: _find_kind(rank) for rank in ranks if rank.ending == "raised"}
    timed_out = "timeout" in last.values()
    others = any(rank.ending == "died" for rank in ranks) or set(last.values()) - CASCADE
    if not timed_out or others:
        return ranks
    return [_block(rank) if rank.rank in last else rank for rank in ranks]


def _serves_in(rank: RankTrace, places: set[protocol.Position]) -> bool:
    last = rank.events[-1] if rank.ending == "blocked" and len(rank.events) else None
    return last is not None and (last.index, last.iteration) in places


def _end_service(rank: RankTrace) -> RankTrace:
    """Let a rank that only serves others have ended: they do not come to their end."""
    return replace(rank, ending="finished", events=tuple(rank.events)[:-1])


def _find_kind(rank: RankTrace) -> str:
    """Return what a rank that ended so raised; `other` where it ended otherwise."""
    ended = rank.ending == "raised" and len(rank.events)
    failure = rank.events[-1].failure if ended else None
    return failure.kinds[0] if failure else "other"


def _block(rank: RankTrace) -> RankTrace:
    *before, last = rank.events
    return replace(rank, ending="blocked", events=(*before, replace(last, state="blocked")))


def _is_expected_to_raise(plan: Plan, rank: int) -> bool:
    """Return whether the scenario's top-level `raises` concerns a rank."""
    raises = plan.scenario.expect.at_end.raises
    if isinstance(raises, RaiseSpec):
        return bool(raises.kinds)
    if isinstance(raises, PerRank):
        chosen = Process(plan, rank, NumpyArrays(), initialise=False).choose(raises)
        return isinstance(chosen, RaiseSpec) and bool(chosen.kinds)
    return False


def outcome(ranks: list[RankTrace]) -> str:
    """Name the outcome: the gravest ending decides."""
    endings = {rank.ending for rank in ranks}
    if "died" in endings:
        return "crash"
    if "raised" in endings:
        return "error"
    return "deadlock" if "blocked" in endings else "completes"


# -------------------------------------------------------------------------------------------------
# The supervisor: gives a launch its orders and learns, through the store, how they went.
#
# It knows a store and nothing of processes, so that it serves a launch on any number of hosts. The
# positions that ranks publish tell it when a predicted deadlock has come about: then it gives the
# verdict, long before any timeout, and has the stuck calls broken from inside.

#: said of a rank that showed no life
SILENT = "rank {rank} is in a call of the backend's that does not let go of Python"
#: seconds between two looks at what is not in the mail: deaths, deadlines; while nothing happens,
#: twice as long each time, up to the longest: what looks takes time from the ranks
LOOK_S, LONGEST_LOOK_S = 0.02, 0.1
#: seconds for which a predicted deadlock must stand before it is confirmed
LOSS_SETTLE_S = 0.03
#: seconds for which ranks must stand where nothing was predicted before survivors are given up
QUIET_S = 1.5
#: seconds that ranks which were told to end get to show why
LEAVE_S = 3.0
#: seconds that the others get after a rank was unable to make its world
UNABLE_S = 1.0
#: seconds that a rank gets to give its account once its call is broken; it may be a large one
TELL_S = 10.0
#: seconds that a broken call gets to come back: on a CPU, and where communicators are aborted
FREE_S, FREE_DEVICE_S = 0.15, 10.0
#: seconds that a world on a device may take to be made
WORLD_S = 90.0
#: seconds that a fresh world gets, after an abort, to be made and used once
PROOF_S = 20.0
#: seconds beyond a call's own timeout before a hang is called one
GRACE_S = 5.0


class Findings(Struct, frozen=True, kw_only=True):
    """What is known of one scenario in the end.

    `lost` are ranks whose processes did not run any more, and what was wrong with each; `pids` are
    the processes of all ranks; `unbegun`: one of them ended, or was stopped, before the scenario
    began. `usable`: the launch can take another. `duration_s`: from the order to the verdict, in
    seconds; `busy_s`: how long the workers were at it; `ready_s`: how long until torch was imported
    and they were up. `environment` is what the backend was chosen by; `notes` is for the report.
    """

    told: Mapping[int, protocol.RankReport]
    stuck: Mapping[int, protocol.Position]
    unable: Mapping[int, protocol.WorldFailed]
    died: Mapping[int, str]
    usable: bool
    lost: Mapping[int, str] = field(default_factory=dict)
    pids: Mapping[int, int] = field(default_factory=dict)
    unbegun: bool = False
    hung: bool = False
    duration_s: float = 0.0
    busy_s: float = 0.0
    ready_s: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


# -------------------------------------------------------------------------------------------------
# A world on devices that serves two scenarios.
#
# NCCL takes up to some seconds for the communicator of eight ranks, which is most of what a small
# scenario takes. One that finished, made no group and called what travels the rings that
# were connected with the communicator leaves it as it was made, and the next one may run in it. A
# message does not: the first one of two ranks waits for its counterpart, and a later one does not.

#: what a call may be, by its kind, so that nothing of it stays in a communicator
RING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier"})
#: what needs no communicator
LOCAL = frozenset({"compute", "let", "sleep", "wait"})


def leaves_world_as_made(plan: Plan) -> bool:
    """Whether nothing of a scenario that finished stays in the world's communicator."""
    scenario = plan.scenario
    operations = (step.operation for step in steps_of(scenario.steps))
    kinds = {operation.kind for operation in operations if operation is not None}
    return not plan.creations and not scenario.models and kinds <= RING | LOCAL


def can_share_world(before: protocol.Assignment, after: protocol.Assignment) -> bool:
    """Whether a scenario can run in the world of the one before it, which finished on every rank.

    On a CPU a world takes milliseconds, and each scenario has its own.
    """

    def world_of(order: protocol.Assignment) -> tuple[object, ...]:
        scenario = order.plan.scenario
        how = order.backend, order.plugins, order.share_gpu, order.sharing
        return (*how, order.plan.world_size, scenario.debug)

    return (
        device_type(before.backend) != "cpu"
        and world_of(before) == world_of(after)
        and leaves_world_as_made(before.plan)
    )


class Supervisor:
    """Runs scenarios on the workers of one launch, one after the other.

    It gives an order to each rank, reads what they report, and decides when a run is over: all have
    reported; or all are where the prediction has them blocked; or a process is gone; or time is up.
    It then lets the ranks break the calls that hold them, and proves the launch, so that the next
    scenario finds it as new.
    """

    def __init__(
        self,
        store: protocol.Store,
        deaths: Callable[[], Mapping[int, str]],
        lost: Callable[[protocol.Supervision], Mapping[int, str]] = lambda _: {},
        suspects: Callable[[], bool] = bool,
    ) -> None:
        """Use `store`; `deaths` gives the ranks whose processes ended so far, and how.

        `lost` gives those whose processes do not run, or are out of reach, each with
        what is wrong; `suspects` says whether another loss may soon show.
        """
        self._store = store
        self._deaths = deaths
        self._lost = lost
        self._suspects = suspects
        self._turns: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._unsettled: tuple[RunState, protocol.Inbox, protocol.Assignment] | None = None
        #: the mail of the last scenario, and its number: both are still in the store
        self._read: tuple[protocol.Inbox, int] | None = None
        #: the last order, where its ranks still have its world and it is as it was made
        self._kept: protocol.Assignment | None = None

    def close(self) -> None:
        """Let go of the store, and of what leads to it."""
        self._read = self._unsettled = None
        del self._store

    def greet(
        self,
        count: int,
        timeout_s: float,
        lost: Callable[[], Mapping[int, str]] = dict,
    ) -> dict[int, protocol.WorkerReady]:
        """Wait until `count` workers are up. Raises LaunchError where one does not come up.

        `lost` gives those that will not, each with what is wrong.
        """
        inbox = protocol.Inbox(self._store, "mail")
        came: dict[int, protocol.WorkerReady] = {}
        deadline_s = time.monotonic() + timeout_s
        while len(came) < count:
            parts = inbox.take(LOOK_S)
            if parts is not None:
                hello = protocol.open_parts(parts, protocol.WorkerReady)
                came[hello.rank] = hello
            elif ended := self._deaths() or lost():
                rank, how = next(iter(ended.items()))
                message = f"worker {rank} ended before it was up ({how})"
                raise LaunchError(message)
            elif time.monotonic() > deadline_s:
                absent = sorted(set(range(count)) - came.keys())
                message = f"worker {absent[0]} was not up after {timeout_s:g} s"
                raise LaunchError(message)
        self._pids = {rank: hello.pid for rank, hello in came.items()}
        return came

    def files(self, rank: int) -> Mapping[str, str]:
        """Return what a rank that leads its node has read: a digest for each file, by its path."""
        read: Mapping[str, str] = protocol.open_parts(
            protocol.fetch(self._store, f"files/{rank}", keep=True), dict
        )
        return read

    def dismiss(self, count: int, code: int = 0) -> None:
        """Let `count` workers end; the first of each node with an exit code."""
        self._store.set("code", str(code).encode())
        for rank in range(count):
            self._turn(rank, protocol.STOP)

    def _turn(self, rank: int, number: int) -> None:
        turn = self._turns[rank] = self._turns.get(rank, 0) + 1
        self._store.set(f"turn/{rank}/{turn}", str(number).encode())

    # ------------------------------------------------------------------ one scenario

    def run(self, order: protocol.Assignment, watch: protocol.Supervision) -> Findings:
        """Run one scenario to its end, whatever that is."""
        kept, self._kept = self._kept, None
        keeps = kept is not None and can_share_world(kept, order)
        order = replace(order.renew(), keeps_world=keeps)
        name = order.place
        began_s = time.monotonic()
        inbox = self._give(order)
        run_state = RunState()
        if device_type(order.backend) != "cpu":
            # a backend's call may keep Python's lock there for as long as it waits
            silent_s = max(watch.silent_s, watch.patience_s + GRACE_S)
            watch = replace(watch, silent_s=silent_s)
        pause_s = LOOK_S
        while not self._is_over(run_state, watch, inbox):
            came = run_state.take_in(inbox, pause_s)
            # A short case is over within a few looks; in one that takes minutes nothing is lost by
            # looking less often.
            pause_s = LOOK_S if came or run_state.unsettled else min(2 * pause_s, LONGEST_LOOK_S)
            self._look_for_losses(run_state, inbox, watch, name)
            if watch.most_s is not None and time.monotonic() - began_s > watch.most_s:
                run_state.give_up(watch)
            if device_type(order.backend) != "cpu" and time.monotonic() - began_s > WORLD_S:
                run_state.give_up_worlds(watch.world_size)
            # Ranks that are blocked for good are released: each sees the word in the store, raises
            # out of its call, and reports where it was. Only what does not raise has to be killed.
            if not run_state.broken and self._has_stopped(run_state, watch):
                run_state.broken = True
                run_state.moved_s = time.monotonic()
                self._store.set(f"{name}/break", b"1")
        self._store.set(f"{name}/over", b"1")
        self._read = inbox, order.number
        # The processes serve the next case if all of them have reported, and none is left in a
        # call. After a release they have to settle first; after an end in good order even their
        # groups can be kept.
        usable = not (run_state.died or run_state.lost or run_state.leaving or run_state.unable)
        usable = usable and len(run_state.told) == watch.world_size
        usable = usable and not any(
            report.spoilt or report.trace.ending == "died" for report in run_state.told.values()
        )
        if usable and run_state.broken:
            self._unsettled = (run_state, inbox, order)
        elif usable and all(each.trace.ending == "finished" for each in run_state.told.values()):
            self._kept = order
        return Findings(
            told=run_state.told,
            stuck=run_state.stuck,
            unable=run_state.unable,
            died=run_state.died,
            lost=run_state.lost,
            unbegun=run_state.unbegun,
            pids=self._pids,
            usable=usable,
            hung=run_state.hung,
            notes=tuple(SILENT.format(rank=rank) for rank in sorted(run_state.silent)),
            duration_s=time.monotonic() - began_s,
        )

    def _give(self, order: protocol.Assignment) -> protocol.Inbox:
        """Hand an order to the ranks of its world; returns where their mail will come."""
        protocol.put(self._store, f"order/{order.number}", order)
        for rank in range(order.plan.world_size):
            self._turn(rank, order.number)
        return protocol.Inbox(self._store, f"{order.place}/mail")

    def _look_for_losses(
        self, run_state: RunState, inbox: protocol.Inbox, watch: protocol.Supervision, name: str
    ) -> None:
        """Note whose process ended, or does not run: before its account, and before the start.

        A rank that ends as its scenario says gives its account first: the mail is read once more.
        """
        run_state.died.update(self._deaths())
        found = dict(self._lost(watch))
        if found:
            run_state.take_in(inbox, 0.0)
        if (run_state.died or found) and not protocol.holds(
            self._store, f"{name}/{protocol.BEGUN}"
        ):
            run_state.unbegun = True
            for rank, how in run_state.died.items():
                found[rank] = f"its process ended ({how}) before the scenario began"
        found = found or self._find_stopped(run_state)
        run_state.lost.update(
            {rank: how for rank, how in found.items() if rank not in run_state.told}
        )

    def _find_stopped(self, run_state: RunState) -> dict[int, str]:
        """Return the ranks that were told to end, where nothing that happened accounts for it.

        torchrun's agent tells the others to end when a process has, which a scenario may want: then
        they go on until every mistake is reported.
        """
        if not run_state.leaving or time.monotonic() - run_state.left_s < LEAVE_S:
            return {}
        ended = any(report.trace.ending == "died" for report in run_state.told.values())
        if ended or run_state.died or self._suspects():
            return {}
        return dict.fromkeys(run_state.leaving, nodes.TOLD_TO_END)

    def _is_over(
        self, run_state: RunState, watch: protocol.Supervision, inbox: protocol.Inbox
    ) -> bool:
        """Return whether nothing more is to be learnt."""
        missing = set(range(watch.world_size)) - run_state.told.keys() - run_state.unable.keys()
        if not missing or run_state.lost:
            return True
        still_s = time.monotonic() - run_state.moved_s
        if run_state.unable:
            return still_s > UNABLE_S
        if missing <= run_state.died.keys():
            return still_s > LOSS_SETTLE_S and not inbox.expects()
        if run_state.broken and missing <= run_state.silent:
            return still_s > LOSS_SETTLE_S  # they cannot tell
        return run_state.broken and still_s > TELL_S

    # When a deadlock is confirmed, long before any timeout (decision 14).
    #
    #     predicted    rank 0 blocked in recv (step 0), rank 1 finished
    #     observed     rank 0 has been in step 0 for 30 ms, rank 1 has reported
    #
    # A rank that is in a call for a while may only be slow. But if *every* rank is where the
    # prediction has it in the end, each of them waits for one that is not coming, by proof, and no
    # time will change that. So no rank may compute or sleep, none may have moved for a short while,
    # and all must be at their stops. Otherwise it takes longer to say: after a death the survivors
    # get `QUIET_S` to lose their peer; a halt that is known of the backend alone, `anywhere_s`; and
    # what nothing predicts, the backend's own timeout and some grace, after which that timeout
    # itself has failed (`hung`).
    def _has_stopped(self, run_state: RunState, watch: protocol.Supervision) -> bool:
        """Return whether no rank moves any more: as predicted, because of a death, or for too long.

        Every rank stands in a communication call or has ended; a rank that computes or sleeps is
        neither, and is always waited for.
        """
        still_s = time.monotonic() - run_state.moved_s
        running = set(range(watch.world_size)) - run_state.told.keys() - run_state.died.keys()
        standing = run_state.stuck.keys() | run_state.silent
        if run_state.unable or still_s < LOSS_SETTLE_S or not running <= standing:
            return False
        if run_state.died or run_state.leaving:
            return still_s > QUIET_S
        if still_s >= watch.settle_s and running and watch.stops:
            at_stop = (run_state.is_at_stop(rank, watch) for rank in range(watch.world_size))
            if all(at_stop):
                return True
        if running and watch.anywhere_s is not None and still_s >= watch.anywhere_s:
            return True
        run_state.hung = still_s > watch.patience_s + GRACE_S
        return run_state.hung

    def settle(self, within_s: float = FREE_S) -> bool:
        """Wait until every call that was broken came back; False where one did not.

        On a CPU it gets `within_s` seconds: where new processes are soon there, few are worth it.

        Where communicators were aborted, a fresh world must prove that they can be made anew. To be
        called between two scenarios; the verdict need not wait for it.
        """
        if self._read is not None:
            (read, number), self._read = self._read, None
            read.clear()
            protocol.fetch(self._store, f"order/{number}")
        if self._unsettled is None:
            return True
        (run_state, inbox, order), self._unsettled = self._unsettled, None
        on_device = device_type(order.backend) != "cpu"
        held = {rank for rank, report in run_state.told.items() if report.trace.ending == "blocked"}
        came_back = self._come_free(
            run_state, inbox, held, FREE_DEVICE_S if on_device else within_s
        )
        return came_back and (not on_device or self.proven(order))

    def _come_free(
        self, run_state: RunState, inbox: protocol.Inbox, ranks: set[int], within_s: float
    ) -> bool:
        deadline_s = time.monotonic() + within_s
        while not ranks <= run_state.free:
            parts = inbox.take(LOOK_S)
            if parts is not None:
                run_state.note(protocol.open_parts(parts, protocol.Message))
            elif time.monotonic() > deadline_s or run_state.unable or self._deaths():
                return False
        return not run_state.unable

    def lack(self, look: protocol.Assignment) -> str | None:
        """Return why a rank cannot use the folder of an order that looks; None if all can."""
        look = look.renew()
        run_state, inbox = RunState(), self._give(look)
        self._come_free(run_state, inbox, set(range(look.plan.world_size)), PROOF_S)
        inbox.clear()
        protocol.fetch(self._store, f"order/{look.number}")
        return run_state.unable[min(run_state.unable)].reason if run_state.unable else None

    def proven(self, order: protocol.Assignment) -> bool:
        """Let the ranks of an order make a fresh world of its kind and use it once."""
        proof = replace(order, number=protocol.STOP - order.number, proof=True).renew()
        inbox = self._give(proof)
        proves = self._come_free(RunState(), inbox, set(range(order.plan.world_size)), PROOF_S)
        protocol.fetch(self._store, f"order/{proof.number}")
        return proves


# -------------------------------------------------------------------------------------------------
# The near side inside a launch that the user started: rank 0 of `python -m torch_scenarios.worker`.
#
# It is what :class:`torch_scenarios.execution.Launcher` is on one machine, without the processes:
# it analyses, gives orders through the store and judges, while the main thread of the same process
# is a worker.

#: seconds that the other ranks get to come up
START_S = 300.0
#: seconds that a call which was broken gets to come back: there are no processes to replace it by
PLAN_RUNNER_FREE_S = 5.0


class PlanRunner:
    """Runs plans on the ranks of the launch that this process is in.

    It is what `scenario run` has under torchrun: there are as many ranks as torchrun started, no
    more can be forked, and one that dies ends the launch.
    """

    def __init__(
        self,
        torch: ModuleType,
        supervisor: Supervisor,
        size: int,
        options: LaunchOptions,
        *,
        lost: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        """Give orders to `size` ranks through `supervisor`; `lost` gives those that are lost."""
        self._torch: Any = torch
        self._supervisor = supervisor
        self._size = size
        self._options = options
        self._number = 0
        self._ranks_lost = lost
        self._lost: str | None = None

    @property
    def lacks(self) -> Lacks:
        """What the plugins declare that they lack, and what the backends may lack that it comes to.

        Raises ScenarioError where a plugin declares what is not a capability.
        """
        backend = self._options.backend
        return self._options.lacks(("nccl",) if backend == "auto" else (carrier(backend),))

    @property
    def end_reason(self) -> str | None:
        """Why this launch can run nothing any more; None while it can."""
        return self._lost

    def __enter__(self) -> Self:
        """Wait for the other ranks, and compare what they are.

        Where one does not come up, or is not what rank 0 is, every scenario is told so: it could
        not run, and the reports say why.
        """
        try:
            hellos = self._supervisor.greet(self._size, START_S, self._ranks_lost)
            self._lost = nodes.difference(hellos, self._supervisor.files)
        except LaunchError as error:
            self._lost = str(error)
        except RuntimeError:
            self._lost = self._explain_end()
        return self

    def __exit__(self, *_: object) -> None:
        """The launch that made the ranks dismisses them, also where no scenario ran."""

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Run one plan; as a launcher does."""
        options = self._options
        if plan.world_size > self._size:
            message = f"it needs {plan.world_size} ranks; this launch has {self._size}"
            raise UnsupportedError(message)
        if self._lost is None and self._ranks_lost():
            self._lost = self._explain_end()
        if self._lost is not None:
            raise LaunchError(self._lost)
        if options.timeout_s is not None:
            plan = replace_timeout(plan, options.timeout_s)
        choice = choose_backend(
            self._torch,
            options.backend,
            plan,
            share_gpu=options.share_gpu,
            here=int(os.environ.get("LOCAL_WORLD_SIZE", self._size)),
            needs=() if predicted.needs is None else predicted.needs.words,
        )
        require_no_foreign_object(plan, predicted, (carrier(choice.backend),))
        order = protocol.Assignment(
            number=0,
            plan=plan,
            backend=choice.backend,
            plugins=options.plugins,
            share_gpu=options.share_gpu,
            sharing=choice.sharing,
        )
        watch = watch_for(
            plan,
            predicted,
            confirm=options.confirm,
            backend=carrier(choice.backend),
            max_seconds=options.max_seconds,
        )
        try:
            with checkpoint_folder(plan) as folder:
                order = replace(order, folder=folder)
                self._require_shared(order)
                findings = self._supervisor.run(self._give_number(order), watch)
            usable = findings.usable and self._supervisor.settle(PLAN_RUNNER_FREE_S)
        except RuntimeError as error:
            # the store is gone, or was given up; what a scenario does, the ranks tell in their mail
            self._lost = self._explain_end()
            raise LaunchError(self._lost) from error
        if findings.lost:
            self._lost = _explain_loss(findings.lost)
        elif not usable:
            self._lost = (
                f"this launch ended with {plan.scenario.case}, which ended a process or left one "
                "in a call that does not return. `scenario run` gives the scenarios after it a new "
                "launch; under torchrun, run it by itself."
            )
        findings = replace(
            findings, environment=choice.environment, notes=(*choice.notes, *findings.notes)
        )
        return observe(plan, findings, predicted)

    def _give_number(self, order: protocol.Assignment) -> protocol.Assignment:
        self._number += 1
        return replace(order, number=self._number)

    def _require_shared(self, order: protocol.Assignment) -> None:
        """Raise UnsupportedError where a rank cannot use the folder of the order's checkpoints."""
        if order.folder is None:
            return
        lack = self._supervisor.lack(self._give_number(replace(order, looks=True)))
        if lack is not None:
            message = (
                f"checkpoints lie in a folder of rank 0's host {socket.gethostname()} that every "
                f"rank must see, and {lack}: let TMPDIR name a folder there that all nodes share"
            )
            raise UnsupportedError(message)

    def _explain_end(self) -> str:
        """Return why this launch can run nothing any more."""
        lost = self._ranks_lost()
        if not lost:
            return "the store of this launch is gone: the process that held it ended"
        return _explain_loss(lost)


def _explain_loss(lost: Mapping[int, str]) -> str:
    rank = min(lost)
    return f"this launch lost rank {rank}: {lost[rank]}"
