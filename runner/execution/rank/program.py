"""One rank's program, taken step by step on torch; everything that happens goes on the board.

It knows the shapes of operations and no operation by name, and it knows nothing of other ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.execution.rank.acts import Acts, Pending
from runner.execution.rank.board import Site
from runner.execution.rank.draining import drain
from runner.execution.rank.failing import Failures
from runner.execution.rank.start import UNCONNECTED
from runner.execution.rank.stepping import Stepping
from runner.execution.rank.values import Copies
from runner.problems import ScenarioError
from runner.program import Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.arrays import Arrays
    from runner.execution.rank.board import Board
    from runner.execution.rank.completion import Completion
    from runner.execution.rank.world import World
    from runner.plan import Creation, Plan
    from runner.scenario import Step


class Program:
    """A rank of a plan, running."""

    def __init__(
        self,
        plan: Plan,
        world: World,
        arrays: Arrays,
        *,
        board: Board,
        completion: Completion,
        broken: Callable[[], bool],
    ) -> None:
        """Hold nothing yet. `broken` tells whether the supervisor broke a call."""
        self._plan = plan
        self._world = world
        self._arrays = arrays
        self._board = board
        self._completion = completion
        self._failures = Failures(broken, world.mend)
        #: the work that a name keeps
        self.pending: dict[str, Pending] = {}
        self._ready: tuple[Process, Copies, dict[str, Any]] | None = None

    @property
    def lost(self) -> bool:
        """Whether a call failed in a way that closed connections: the peers cannot go on either."""
        return self._failures.lost

    def prepare(self) -> str | None:
        """Create the groups and make what the rank holds before step 1.

        Returns how the rank ended, where it did. Raises Broken where the supervisor broke a call.
        """
        for creation in self._plan.creations:
            if not self._create(creation):
                return "raised"
        try:
            process = self._process()
        except ScenarioError as error:
            self._cannot_go_on(error)
            return "raised"
        convert = None if self._completion.enqueues else self._board.convert
        copies = Copies(self._world.torch, process.scope, convert)
        names = tuple(sorted(process.held))
        initial = dict(zip(names, copies.named(names), strict=True))
        self._completion.begin()  # once here, so that the device has it before any rank goes on
        self._ready = process, copies, initial
        return None

    @property
    def unconnected(self) -> bool:
        """Whether the rank ended because the connections of a group could not be made."""
        last = self._board.records[-1] if self._board.records else None
        failure = last.failure if last is not None and last.index < 0 else None
        return failure is not None and failure.kinds[0] in UNCONNECTED

    def run(self) -> str:
        """Take every step, once prepared; returns how the rank ended.

        Raises Ending where a `fault` ends the process, Broken where the supervisor broke a call.
        """
        assert self._ready is not None  # noqa: S101 -- prepared
        process, copies, initial = self._ready
        self._completion.begin()
        self._board.begin(initial)
        ending = self._take_all(process, copies)
        return drain(self._board, self._world, self._failures) or ending

    def _create(self, creation: Creation) -> bool:
        """Create the groups of one entry of `groups:`; False where torch refuses."""
        site = Site(f"{creation.kind} {creation.spec.name}", communicates=True)
        record = self._board.enter(site, -1)
        try:
            self._world.create(creation)
        except Exception as error:  # noqa: BLE001 -- whatever torch raises is what is observed
            self._failures.note(record, error)
            return False
        finally:
            self._board.leave(record)
        self._board.forget(record)
        return True

    def _process(self) -> Process:
        """Evaluate what the rank holds before step 1, where the groups are known already."""
        world = self._world
        asked = {
            "group_rank()": world.group_rank,
            "group_size()": world.group_size,
            "group_ranks()": world.group_ranks,
        }
        return Process(self._plan, world.rank, self._arrays, asked)

    def _cannot_go_on(self, error: ScenarioError) -> None:
        """Note that the next step's arguments cannot be computed from what the rank holds."""
        last = self._board.records[-1].position if self._board.records else (-1, ())
        record = self._board.enter(Site("what comes next", communicates=False), *last)
        self._failures.note(record, error)
        self._board.leave(record)

    # ------------------------------------------------------------------ its steps

    def _take_all(self, process: Process, copies: Copies) -> str:
        """Take every step, as far as the rank gets; returns how it ended."""
        stepping = Stepping(
            process,
            self._board,
            acts=Acts(self._world, process, self.pending),
            copies=copies,
            completion=self._completion,
            failures=self._failures,
        )
        try:
            finished = _walk(stepping, process, self._plan.scenario.steps, ())
        except ScenarioError as error:
            self._cannot_go_on(error)
            return "raised"
        if finished:
            self.pending.clear()  # the names of a script end with it
        return "finished" if finished else "raised"


def _walk(
    stepping: Stepping, process: Process, steps: tuple[Step, ...], iteration: tuple[int, ...]
) -> bool:
    """Take steps in order, and those of a loop once a round; False where the rank ends early."""
    kept = stepping.kept
    for step in steps:
        again = kept.get(step.index)
        goes_on = None if again is None else again(step.index, iteration)
        if goes_on is None and step.variable is None:
            goes_on = stepping.take(step, iteration)
        elif goes_on is None:
            goes_on = _repeat(stepping, process, step, iteration)
        if not goes_on:
            return False
    return True


def _repeat(stepping: Stepping, process: Process, step: Step, iteration: tuple[int, ...]) -> bool:
    """Take the steps of a loop, once for each value of its variable."""
    assert step.variable is not None  # noqa: S101 -- asked by the caller
    for value in process.rounds(step):
        process.scope[step.variable] = value
        if not _walk(stepping, process, step.body, (*iteration, value)):
            return False
    return True
