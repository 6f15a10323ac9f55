"""The supervisor: gives a launch its orders and learns, through the store, how they went.

It knows a store and nothing of processes, so that it serves a launch on any number of hosts. The
positions that ranks publish tell it when a predicted deadlock has come about: then it gives the
verdict, long before any timeout, and has the stuck calls broken from inside.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runner.execution.backends import device_type
from runner.execution.course import Course, at_its_stop, note
from runner.execution.mailbox import Inbox, fetch, opened, put
from runner.execution.orders import (
    BEGUN,
    STOP,
    Hello,
    Order,
    Told,
    Unable,
    Watch,
)
from runner.problems import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.execution.mailbox import Store
    from runner.execution.orders import Position

#: said of a rank that showed no life
SILENT = "rank {rank} stands in a call of the backend's that does not let go of Python"
#: seconds between two looks at what is not in the mail: deaths, deadlines
LOOK_S = 0.02
#: seconds for which a predicted deadlock must stand before it is confirmed
SETTLE_S = 0.03
#: seconds for which ranks must stand where nothing was predicted before survivors are given up
QUIET_S = 1.5
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is known of one scenario in the end.

    `lost` are ranks whose processes did not run any more, and what was wrong with each; `pids` are
    the processes of all ranks; `unbegun`: one of them ended before the scenario began. `usable`:
    the launch can take another. `duration_s`: from the order to the verdict, in seconds.
    `environment` is what the backend was chosen by; `notes` is for the report.
    """

    told: Mapping[int, Told]
    stuck: Mapping[int, Position]
    unable: Mapping[int, Unable]
    died: Mapping[int, str]
    usable: bool
    lost: Mapping[int, str] = field(default_factory=dict)
    pids: Mapping[int, int] = field(default_factory=dict)
    unbegun: bool = False
    hung: bool = False
    duration_s: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Supervisor:
    """Runs scenarios on the workers of one launch, one after the other."""

    def __init__(
        self,
        store: Store,
        deaths: Callable[[], Mapping[int, str]],
        lost: Callable[[Watch], Mapping[int, str]] = lambda _: {},
    ) -> None:
        """Use `store`; `deaths` gives the ranks whose processes ended so far, and how.

        `lost` gives those whose processes do not run, or are out of reach, each with
        what is wrong.
        """
        self._store = store
        self._deaths = deaths
        self._lost = lost
        self._turns: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._unsettled: tuple[Course, Inbox, Order] | None = None
        #: the mail of the last scenario, and its number: both are still in the store
        self._read: tuple[Inbox, int] | None = None

    def close(self) -> None:
        """Let go of the store, and of what leads to it."""
        self._read = self._unsettled = None
        del self._store

    def greet(
        self,
        count: int,
        timeout_s: float,
        lost: Callable[[], Mapping[int, str]] = dict,
    ) -> dict[int, Hello]:
        """Wait until `count` workers are up. Raises LaunchError where one does not come up.

        `lost` gives those that will not, each with what is wrong.
        """
        inbox = Inbox(self._store, "mail")
        came: dict[int, Hello] = {}
        deadline_s = time.monotonic() + timeout_s
        while len(came) < count:
            parts = inbox.take(LOOK_S)
            if parts is not None:
                hello = opened(parts)
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
        read: Mapping[str, str] = opened(fetch(self._store, f"files/{rank}", keep=True))
        return read

    def dismiss(self, count: int, code: int = 0) -> None:
        """Let `count` workers end; the first of each node with an exit code."""
        self._store.set("code", str(code).encode())
        for rank in range(count):
            self._turn(rank, STOP)

    def _turn(self, rank: int, number: int) -> None:
        turn = self._turns[rank] = self._turns.get(rank, 0) + 1
        self._store.set(f"turn/{rank}/{turn}", str(number).encode())

    # ------------------------------------------------------------------ one scenario

    def run(self, order: Order, watch: Watch) -> Findings:
        """Run one scenario to its end, whatever that is."""
        name = f"scenario/{order.number}"
        began_s = time.monotonic()
        inbox = self._give(order)
        course = Course()
        if device_type(order.backend) != "cpu":
            # a backend's call may keep Python's lock there for as long as it waits
            silent_s = max(watch.silent_s, watch.patience_s + GRACE_S)
            watch = replace(watch, silent_s=silent_s)
        while not self._over(course, watch, inbox):
            _take_in(course, inbox, LOOK_S)
            self._look_for_losses(course, inbox, watch, name)
            if watch.most_s is not None and time.monotonic() - began_s > watch.most_s:
                _give_up(course, watch)
            if device_type(order.backend) != "cpu" and time.monotonic() - began_s > WORLD_S:
                _give_up_worlds(course, watch.world_size)
            if not course.broken and self._for_good(course, watch):
                course.broken = True
                course.moved_s = time.monotonic()
                self._store.set(f"{name}/break", b"1")
        self._store.set(f"{name}/over", b"1")
        self._read = inbox, order.number
        usable = not (course.died or course.lost or course.leaving or course.unable)
        usable = usable and len(course.told) == watch.world_size
        usable = usable and not any(
            told.spoilt or told.trace.ending == "died" for told in course.told.values()
        )
        if usable and course.broken:
            self._unsettled = (course, inbox, order)
        return Findings(
            told=course.told,
            stuck=course.stuck,
            unable=course.unable,
            died=course.died,
            lost=course.lost,
            unbegun=course.unbegun,
            pids=self._pids,
            usable=usable,
            hung=course.hung,
            notes=tuple(SILENT.format(rank=rank) for rank in sorted(course.silent)),
            duration_s=time.monotonic() - began_s,
        )

    def _give(self, order: Order) -> Inbox:
        """Hand an order to the ranks of its world; returns where their mail will come."""
        put(self._store, f"order/{order.number}", order)
        for rank in range(order.plan.world_size):
            self._turn(rank, order.number)
        return Inbox(self._store, f"scenario/{order.number}/mail")

    def _look_for_losses(self, course: Course, inbox: Inbox, watch: Watch, name: str) -> None:
        """Note whose process ended, or does not run: before its account, and before the start.

        A rank that ends as its scenario says gives its account first: the mail is read once more.
        """
        course.died.update(self._deaths())
        found = dict(self._lost(watch))
        if found:
            _take_in(course, inbox, 0.0)
        if course.died and not self._store.check([f"{name}/{BEGUN}"]):
            course.unbegun = True
            for rank, how in course.died.items():
                found[rank] = f"its process ended ({how}) before the scenario began"
        course.lost.update({rank: how for rank, how in found.items() if rank not in course.told})

    def _over(self, course: Course, watch: Watch, inbox: Inbox) -> bool:
        """Return whether nothing more is to be learnt."""
        missing = set(range(watch.world_size)) - course.told.keys() - course.unable.keys()
        if not missing or course.lost:
            return True
        still_s = time.monotonic() - course.moved_s
        if course.unable:
            return still_s > UNABLE_S
        if missing <= course.died.keys():
            return still_s > SETTLE_S and not inbox.expects()
        if course.broken and missing <= course.silent:
            return still_s > SETTLE_S  # they cannot tell
        return course.broken and still_s > TELL_S

    def _for_good(self, course: Course, watch: Watch) -> bool:
        """Return whether nobody moves any more: as predicted, because of a death, or for too long.

        Every rank stands in a communication call or has ended; a rank that computes or sleeps is
        neither, and is always waited for.
        """
        still_s = time.monotonic() - course.moved_s
        running = set(range(watch.world_size)) - course.told.keys() - course.died.keys()
        standing = course.stuck.keys() | course.silent
        if course.unable or still_s < SETTLE_S or not running <= standing:
            return False
        if course.died or course.leaving:
            return still_s > QUIET_S
        if still_s >= watch.settle_s and running and watch.stops:
            at_stop = (at_its_stop(course, rank, watch) for rank in range(watch.world_size))
            if all(at_stop):
                return True
        if running and watch.anywhere_s is not None and still_s >= watch.anywhere_s:
            return True
        course.hung = still_s > watch.patience_s + GRACE_S
        return course.hung

    def settled(self, within_s: float = FREE_S) -> bool:
        """Wait until every call that was broken came back; False where one did not.

        On a CPU it gets `within_s` seconds: where new processes are soon there, few are worth it.

        Where communicators were aborted, a fresh world must prove that they can be made anew. To be
        called between two scenarios; the verdict need not wait for it.
        """
        if self._read is not None:
            (read, number), self._read = self._read, None
            read.clear()
            fetch(self._store, f"order/{number}")
        if self._unsettled is None:
            return True
        (course, inbox, order), self._unsettled = self._unsettled, None
        on_device = device_type(order.backend) != "cpu"
        held = {rank for rank, told in course.told.items() if told.trace.ending == "blocked"}
        came_back = self._come_free(course, inbox, held, FREE_DEVICE_S if on_device else within_s)
        return came_back and (not on_device or self.proven(order))

    def _come_free(self, course: Course, inbox: Inbox, ranks: set[int], within_s: float) -> bool:
        deadline_s = time.monotonic() + within_s
        while not ranks <= course.free:
            parts = inbox.take(LOOK_S)
            if parts is not None:
                note(course, opened(parts))
            elif time.monotonic() > deadline_s or course.unable or self._deaths():
                return False
        return not course.unable

    def proven(self, order: Order) -> bool:
        """Let the ranks of an order make a fresh world of its kind and use it once."""
        proof = replace(order, number=STOP - order.number, proof=True)
        inbox = self._give(proof)
        proves = self._come_free(Course(), inbox, set(range(order.plan.world_size)), PROOF_S)
        fetch(self._store, f"order/{proof.number}")
        return proves


def _take_in(course: Course, inbox: Inbox, timeout_s: float) -> None:
    """Take in all mail that is there, waiting a while for the first message."""
    parts = inbox.take(timeout_s)
    while parts is not None:
        note(course, opened(parts))
        parts = inbox.take(0.0)


def _give_up(course: Course, watch: Watch) -> None:
    """Give up the ranks of a scenario that takes too long: their launch ends with it."""
    how = f"the scenario takes longer than {watch.most_s:.3g} s ({watch.bound} raises it)"
    for rank in set(range(watch.world_size)) - course.told.keys():
        course.lost.setdefault(rank, how)


def _give_up_worlds(course: Course, world_size: int) -> None:
    """Call ranks unable whose world is still being made: NCCL waits for ever for an absent one."""
    for rank in set(range(world_size)) - course.begun - course.told.keys() - course.unable.keys():
        reason = f"rank {rank} could not make its world within {WORLD_S:g} s: NCCL still waits"
        note(course, Unable(rank=rank, reason=reason))
