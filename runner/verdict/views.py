"""One rank of one trace at one moment: where keys and wanted values are evaluated."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.forms import PerRank, Typed
from runner.problems import ScenarioError
from runner.scenario import Unchanged
from runner.verdict.comparison import Wanted
from runner.verdict.memory import defined

if TYPE_CHECKING:
    from runner.forms import Expression, Form
    from runner.program import Process
    from runner.scenario import ValueExpectation
    from runner.trace import Event, Value
    from runner.verdict.case import Side
    from runner.verdict.memory import Memories
    from runner.verdict.order import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One rank of one trace at one moment: where keys and wanted values are evaluated."""

    memories: Memories
    rank: int
    event: Event | None
    moment: Moment | None
    before: dict[str, Value]
    after: dict[str, Value]

    def process(self, *, before: bool = False) -> Process:
        """Return the rank's process, holding what it held after (or before) the step."""
        memory = self.before if before else self.after
        return self.memories.process(self.rank, memory, self.event, self.moment)

    def value(self, key: Expression, *, before: bool = False, measured: bool = False) -> Value:
        """Return what the key is here. Raises UndefinedRead where it looks at such a value.

        With `measured` only its shape and dtype count, which are always defined.
        """
        memory = self.before if before else self.after
        if key.text in memory:
            return memory[key.text]
        if not before and self.event is not None and key.text in self.event.observed:
            return self.event.observed[key.text]
        process = self.process(before=before)
        if measured:
            with suppress(ScenarioError):
                return process.evaluate(key)
        return defined(process, lambda: process.evaluate(key))

    def wanted(self, expectation: ValueExpectation) -> Wanted | None:
        """Return what the author wants here; None where the rank is asked nothing."""
        form: Any = expectation.wanted
        process = self.process()
        while isinstance(form, PerRank):
            form = self._chosen(process, form)
            self.memories.chosen.add(id(form))
        if form is None:
            return None
        if isinstance(form, Unchanged):
            value = self.value(expectation.key, before=True)
            return Wanted(value=value, rtol=0.0, atol=0.0, unchanged=True)
        return defined(process, lambda: _wanted(process, form))

    def _chosen(self, process: Process, form: PerRank[Any]) -> Any:  # noqa: ANN401 -- a form or None
        return defined(process, lambda: process.choose(form))


def view_of(side: Side) -> View:
    """Return the view right after one step."""
    return View(
        memories=side.memories,
        rank=side.rank,
        event=side.event,
        moment=side.moment,
        before=side.before,
        after=side.after,
    )


def view_at_end(memories: Memories, rank: int) -> View:
    """Return the view after a rank's last step; before it is the beginning."""
    return View(
        memories=memories,
        rank=rank,
        event=None,
        moment=None,
        before=dict(memories.initial(rank)),
        after=memories.final(rank),
    )


def _wanted(process: Process, form: Form) -> Wanted:
    if not isinstance(form, Typed):
        return Wanted(value=process.evaluate(form))
    return Wanted(
        value=process.evaluate(form.value),
        has_value=form.value is not None,
        dtype=process.evaluate(form.dtype),
        shape=process.sizes(form.shape),
        rtol=form.rtol,
        atol=form.atol,
    )
