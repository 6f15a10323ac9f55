"""Which handles a `wait` waits for, on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.forms import Constant, PerRank
from runner.language.functions import numpy_arrays
from runner.problems import ScenarioError
from runner.program import Process

if TYPE_CHECKING:
    from runner.plan import Plan
    from runner.scenario import Step


class Handles:
    """The handles of one rank's waits: fixed names, which may differ from rank to rank."""

    def __init__(self, plan: Plan, rank: int) -> None:
        """Evaluate nothing before it is asked for."""
        self._plan = plan
        self._rank = rank
        self._process: Process | None = None

    def of(self, step: Step) -> tuple[str, ...]:
        """Return the names of a `wait`'s handles here; none where a selector needs a run."""
        form = next(iter(step.arguments.values()), None)
        chosen = self._chosen(form) if isinstance(form, PerRank) else form
        if not isinstance(chosen, Constant):
            return ()
        return (chosen.value,) if isinstance(chosen.value, str) else tuple(chosen.value)

    def _chosen(self, form: PerRank[Constant]) -> Constant | None:
        if self._process is None:
            self._process = Process(self._plan, self._rank, numpy_arrays(), initialise=False)
        try:
            chosen: Constant | None = self._process.choose(form)
        except ScenarioError:
            return None
        return chosen
