"""Steps as one rank takes them: evaluated when first taken, and kept where the call stays the same.

A step in a loop is most often the same call each round. So its first round leaves behind a closure
with everything settled, and later rounds only make sure that what it was made of is still there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from runner.execution.rank.board import Record, Site
from runner.execution.rank.sameness import UNKNOWN, Same, Sameness, key
from runner.execution.rank.values import is_large
from runner.forms import PerRank
from runner.operations.base import Local, Operation, Waiting
from runner.operations.entries import Ending
from runner.problems import ScenarioError
from runner.scenario import RaiseSpec

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from runner.call import Call
    from runner.execution.rank.acts import Act, Acts
    from runner.execution.rank.board import Board
    from runner.execution.rank.completion import Completion
    from runner.execution.rank.failing import Failures
    from runner.execution.rank.values import Copies
    from runner.forms import Expression
    from runner.program import Process
    from runner.scenario import Step

#: takes the step of an index at an iteration; returns whether the rank goes on
Taking: TypeAlias = Callable[[int, tuple[int, ...]], bool]
#: the same, or None where the step would be another call now
Again: TypeAlias = Callable[[int, tuple[int, ...]], bool | None]


#: rounds in which a step is kept that counts with its loop, over all steps
ROUNDS = 1000


class Stepping:
    """Takes the steps of a program on one rank, and puts what happens on its board."""

    def __init__(
        self,
        process: Process,
        board: Board,
        *,
        acts: Acts,
        copies: Copies,
        completion: Completion,
        failures: Failures,
    ) -> None:
        """Have taken nothing yet."""
        self._process = process
        self._board = board
        self._acts = acts
        self._copies = copies
        self._completion = completion
        self._failures = failures
        self._sameness = Sameness(process.plan)
        #: step index -> how to take it again
        self.kept: dict[int, Again] = {}
        #: what a step has in common with others written alike -> how to take those
        self._alike: dict[Hashable, Again | None] = {}

    def take(self, step: Step, iteration: tuple[int, ...]) -> bool:
        """Evaluate a step and take it; False where it raised what it does not expect.

        Raises ScenarioError where it cannot be evaluated, Ending where a `fault` ends the process,
        Broken where the supervisor broke the call.
        """
        same = self._sameness.of(step) if iteration else UNKNOWN
        alike = self._counted(step, same.counting) if iteration else key(step)
        known = self._alike.get(alike)
        goes_on = None if known is None else known(step.index, iteration)
        if goes_on is not None:
            return goes_on
        call = self._process.call(step, iteration)
        if alike in self._alike:
            same = self._sameness.of(step)
        names = same.names
        if call is None:
            names = same.selection if _always_concerns(step) else None
        late = {} if call is None or names is None else self._late(same)
        taking: Taking = _passing if call is None else self._taking(call, late)
        again = None if names is None else self._again(names, late, taking)
        if alike is not None:
            self._alike[alike] = again
        elif again is not None and not same.counting:
            self.kept[step.index] = again
        return taking(step.index, iteration)

    def _counted(self, step: Step, counting: tuple[Expression, ...]) -> Hashable:
        """Return what tells a round from another for a step that counts; None for any other step.

        None as well where that cannot be told, or where too many rounds were told apart.
        """
        if not counting or len(self._alike) >= ROUNDS:
            return None
        try:
            values = [self._process.evaluate(form) for form in counting]
        except ScenarioError:
            return None  # perhaps this rank does not take the step
        if any(isinstance(value, list) for value in values):
            return None
        return (step.index, *((value.__class__, value) for value in values))

    def _late(self, same: Same) -> dict[str, str]:
        """Return the arguments that are looked up by name each time: they hold a tensor now."""
        scope, is_array = self._process.scope, self._process.arrays.is_array
        return {param: name for param, name in same.tensors.items() if is_array(scope.get(name))}

    def _again(
        self, names: frozenset[str], late: Mapping[str, str], taking: Taking
    ) -> Again | None:
        """Return what takes a step for as long as the names hold what they hold now.

        A name in `late` may come to hold another tensor. None where what the others hold is large:
        it would live on after the program let go of it.
        """
        process = self._process
        scope, regrouped = process.scope, process.regrouped
        tensors = [(name, scope[name].__class__) for name in sorted(set(late.values()))]
        watched = [(name, scope.get(name)) for name in sorted(names - set(late.values()))]
        if any(is_large(value) for _, value in watched):
            return None

        def again(index: int, iteration: tuple[int, ...]) -> bool | None:
            if process.regrouped != regrouped:
                return None
            for name, value in watched:
                if scope.get(name) is not value:
                    return None
            for name, kind in tensors:
                if scope[name].__class__ is not kind:
                    return None
            return taking(index, iteration)

        return again

    def _taking(self, call: Call, late: Mapping[str, str]) -> Taking:
        """Return what takes the step of a call, once or again."""
        step, operation = call.step, call.operation
        communicates = operation is not None and not isinstance(operation, Local)
        site = Site(call.label, communicates)
        board, copies, now_s = self._board, self._copies.named, time.monotonic
        records = board.records
        looks = step.expect is not None and bool(step.expect.values)
        mark = self._completion.mark if self._completion.enqueues else None
        awaits = isinstance(operation, Waiting)
        timeout_s = self._acts.timeout_s(call) if mark and communicates and not awaits else None
        act: Act | None = None

        def taking(index: int, iteration: tuple[int, ...]) -> bool:
            nonlocal act
            record = Record(site, index, iteration, now_s())
            records.append(record)
            if communicates:
                board.inside = record
            goes_on = True
            try:
                if act is None:
                    act = self._acts.act(call, late)
                written = act()
            except Ending:
                raise
            except Exception as error:  # noqa: BLE001 -- whatever torch raises is what is observed
                goes_on, written = self._failed(record, call, error)
            end_s = now_s()
            if written:
                record.kept = copies(written)
                record.written = written
            record.end_s = end_s
            board.inside = None
            if mark is not None:
                record.timeout_s = self._acts.timeout_s(call) if awaits else timeout_s
                # behind the copies: they may be read once it has happened
                record.event = mark()
            if looks:
                self._observe(record, step)
            return goes_on

        return taking

    def _failed(self, record: Record, call: Call, error: Exception) -> tuple[bool, tuple[str, ...]]:
        """Note what a step raised; returns whether it expects that, and what it stored into."""
        failure = self._failures.note(record, error)
        self.kept.clear()
        self._alike.clear()
        return failure.kinds[0] in self._expected(call), self._acts.stores(call)

    def _expected(self, call: Call) -> tuple[str, ...]:
        """Return the kinds that the step's own `raises` allows on this rank."""
        raises: Any = call.step.expect.raises if call.step.expect else None
        if isinstance(raises, PerRank):
            raises = self._process.choose(raises)
        return raises.kinds if isinstance(raises, RaiseSpec) else ()

    def _observe(self, record: Record, step: Step) -> None:
        """Note what the step's expectation looks at that is more than a name."""
        try:
            seen = self._process.observe(step)
            record.observed = {text: self._copies.of(value) for text, value in seen.items()}
        except ScenarioError as error:
            record.observed = {"": str(error)}
        if record.observed and self._completion.enqueues:
            self._board.behind(record, self._completion.mark())


def _always_concerns(step: Step) -> bool:
    """Return whether a rank that skips a step does so because of its group or `ranks:` alone."""
    operation = step.operation
    return operation is None or type(operation).concerns is Operation.concerns


def _passing(_index: int, _iteration: tuple[int, ...]) -> bool:
    """Take nothing: another rank's step."""
    return True
