"""One rank's program: the plan projected onto a rank, step by step, arguments evaluated.

Both executors drive the same :class:`Process`, the reference one for every rank on NumPy, the
worker one on torch; only the array library they hand in differs. A process evaluates and
remembers; it communicates nothing, and it learns nothing of other ranks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from runner.argument_types import whole
from runner.call import Call
from runner.forms import PerRank, roots_of
from runner.membership import Membership
from runner.nesting import DEFAULT_DTYPE
from runner.operations.entries import Entry
from runner.plan import WORLD
from runner.prepared import prepared
from runner.scenario import steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from runner.arrays import Arrays
    from runner.forms import Form
    from runner.plan import Plan
    from runner.prepared import Prepared
    from runner.problems import Mark
    from runner.scenario import Step


class Counting(Protocol):
    """What counts the values that a process holds and the turns of its loops, and may refuse."""

    def begin(self, mark: Mark | None) -> None:
        """Take note of the place of what is computed next."""

    def keep(self, values: Iterable[Any], mark: Mark | None, *, copies: int = 1) -> None:
        """Count copies of values before they are made."""

    def turn(self, step: Step) -> None:
        """Count a turn of a loop."""

    def passed(self, step: Step) -> None:
        """Count a step that the rank does not take."""


class Process(Membership):
    """The state of one rank: what it holds, which groups it knows, where it is."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        arrays: Arrays,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        initialise: bool = True,
        ledger: Counting | None = None,
    ) -> None:
        """Bind constants, groups and initial values; `functions` replace or add names.

        `ledger` counts the initial values before they are held, and every turn of a loop. Raises
        ScenarioError where an initial value cannot be computed.
        """
        super().__init__(plan, rank, arrays)
        self.held: set[str] = set()
        self.handles: set[str] = set()
        #: step index -> its call in the round before, where only other tensors would make another
        self._last: dict[int, Call] = {}
        self._ledger = ledger
        self.scope = {
            **arrays.functions(),
            "group_rank()": self.group_rank,
            "group_size()": self.group_size,
            "group_ranks()": self.group_ranks,
            **(functions or {}),
            "__builtins__": {},
            **plan.scenario.constants,
            "rank": rank,
            "world_size": plan.world_size,
        }
        self.found()
        if initialise:
            self._initialise()

    # ------------------------------------------------------------------ what it holds

    def _initialise(self) -> None:
        scenario = self.plan.scenario
        for name in self.plan.introduced:
            self.scope.setdefault(name, None)
        for name in (*scenario.tensors, *scenario.objects):
            self.scope[name] = None
        for name, form in scenario.objects.items():
            value = self.evaluate(form)
            if value is not None:
                self.hold(name, value)
        for name, form in scenario.tensors.items():
            if self._ledger is not None:
                self._ledger.begin(form.mark)
            value = self.tensor_value(form, dtype=DEFAULT_DTYPE)
            if value is not None:
                if self._ledger is not None:
                    self._ledger.keep((value,), form.mark, copies=2)  # held, and in the trace
                self._guarded(partial(self.assign, name, value), form.mark)

    def hold(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Let `name` hold `value` itself, without a copy."""
        self.scope[name] = value
        self.held.add(name)
        self.undefined.pop(name, None)

    def compute(self, name: str, form: Form) -> None:
        """Let `name` hold a copy of the form's value; undefined if what it was made of is."""
        noted = len(self.undefined_reads)
        value = self.tensor_value(form, dtype=None)
        self._guarded(lambda: self.assign(name, value), form.mark)
        if len(self.undefined_reads) > noted:
            self.undefined[name] = self.undefined_reads[-1][1]

    def assign(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Let `name` hold a copy of `value`: an array, a list of arrays or a number."""
        if isinstance(value, list):
            self.hold(name, [self.arrays.copy(self._as_array(item)) for item in value])
        else:
            self.hold(name, self.arrays.copy(self._as_array(value)))

    def _as_array(self, value: Any) -> Any:  # noqa: ANN401
        return value if self.arrays.is_array(value) else self.arrays.array(value, DEFAULT_DTYPE)

    def roots(self, form: Form | None) -> frozenset[str]:
        """Return the names of the held tensors whose storage the form's value may share here."""
        chosen = self.choose(form) if isinstance(form, PerRank) else form
        return roots_of(chosen) & self.held

    def made_at(self, name: str) -> Mark | None:
        """Return the place of the first step that gives a name a value; None where none does."""
        for step in steps_of(self.plan.scenario.steps):
            if step.operation is not None and name in step.operation.introduces(step):
                return step.mark
        return None

    # ------------------------------------------------------------------ the program

    def walk(self) -> Iterator[Call]:
        """Yield this rank's calls in program order; what a call does must be done before the next.

        Raises ScenarioError where a selector or an argument cannot be computed.
        """
        yield from self._walk(self.plan.scenario.steps, ())

    def _walk(self, steps: tuple[Step, ...], iteration: tuple[int, ...]) -> Iterator[Call]:
        ledger = self._ledger
        for step in steps:
            if step.variable is not None:
                for value in self.rounds(step):
                    if ledger is not None:
                        ledger.turn(step)
                    self.scope[step.variable] = value
                    yield from self._walk(step.body, (*iteration, value))
            else:
                call = self.call(step, iteration)
                if call is not None:
                    yield call
                elif ledger is not None:
                    ledger.passed(step)

    def rounds(self, step: Step) -> list[int]:
        """Return what the variable of a `for` counts through; nothing where this rank skips it.

        Raises ScenarioError where that cannot be computed.
        """
        if step.ranks is not None and not self.selects(step.ranks):
            return []
        return self.counted(step.over, step.variable or "", step.mark)

    def call(self, step: Step, iteration: tuple[int, ...]) -> Call | None:
        """Return a step's call as this rank makes it now; None where it does not take the step.

        Raises ScenarioError where a selector or an argument cannot be computed.
        """
        self._at = step.mark
        operation = step.operation
        if step.ranks is not None and not self.selects(step.ranks):
            return None
        if operation is None:
            return Call(step=step, iteration=iteration, operation=None, entry=self._entry({}))
        known = self.plan.prepared.get(step.index)
        if known is None:
            known = self.plan.prepared[step.index] = prepared(step)
        group = self.group(operation.group_of(self, step) if known.computed else known.group)
        if step.ranks is None and group.group_rank(self.rank) < 0:
            return None
        if not operation.concerns(self, step):
            return None
        last = self._last.get(step.index)
        if last is not None and last.entry.group is group and self._same_tensors(last, known):
            entry, roots = last.entry, last.roots
        else:
            entry = Entry(rank=self.rank, group=group, arguments=self._arguments(step, known))
            roots = operation.roots(self, step) if known.roots is None else self._roots(known)
        call = Call(
            step=step,
            iteration=iteration,
            operation=operation,
            entry=entry,
            roots=roots,
            handle=step.handle if step.handle_index is None else self._indexed(step),
        )
        if known.names is not None and known.arguments is not None and iteration:
            self._last[step.index] = call
        return call

    def _indexed(self, step: Step) -> str:
        """Return the name of a handle with the value of its index."""
        index = self.evaluate(step.handle_index)
        number = self._guarded(partial(whole, index), step.mark)
        return f"{step.handle}[{number}]"

    def keep(self, call: Call) -> None:
        """Know the handle of work that was started, and of `up[3]` that there is an `up`."""
        if call.handle is not None and call.step.handle is not None:
            self.handles |= {call.handle, call.step.handle}

    def _same_tensors(self, call: Call, known: Prepared) -> bool:
        """Return whether a call would be the same now: its tensors are what their names hold."""
        arguments, scope = call.entry.arguments, self.scope
        return all(
            arguments[param.name] is scope.get(name)
            for (param, _), name in zip(known.given, known.names or (), strict=True)
        )

    def _arguments(self, step: Step, known: Prepared) -> dict[str, Any]:
        assert step.operation is not None  # noqa: S101 -- asked by the caller
        if known.arguments is None:
            return step.operation.evaluate(self, step)
        arguments = known.arguments.copy()
        for param, form in known.given:
            arguments[param.name] = self.evaluate_argument(param, form)
        return arguments

    def _roots(self, known: Prepared) -> dict[str, frozenset[str]]:
        """Return, by argument, the names of the held tensors whose storage it may share here."""
        assert known.roots is not None  # noqa: S101 -- asked by the caller
        found = {name: roots & self.held for name, roots in known.roots.items()}
        for name, form in known.chosen:
            found[name] = self.roots(form)
        return found

    def _entry(self, arguments: dict[str, Any]) -> Entry:
        return Entry(rank=self.rank, group=self.group(WORLD), arguments=arguments)

    def observe(self, step: Step) -> dict[str, Any]:
        """Evaluate the keys of the step's expectations that are more than a name, by their text.

        What a key asks `before(x, r)` of other ranks only the judge can say.
        """
        if step.expect is None:
            return {}
        keys = (value.key for value in step.expect.values if not value.key.before)
        return {
            key.text: self._kept(self.evaluate(key)) for key in keys if key.text not in self.scope
        }

    def _kept(self, value: Any) -> Any:  # noqa: ANN401
        """Return a value that later steps cannot change: a key such as `x[0]` is a view."""
        if isinstance(value, list):
            return [self._kept(item) for item in value]
        return self.arrays.copy(value) if self.arrays.is_array(value) else value
