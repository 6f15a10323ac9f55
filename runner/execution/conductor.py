"""The near side inside a launch that somebody else started: rank 0 of `python -m runner.worker`.

It is what :class:`runner.execution.Launcher` is on one machine, without the processes: it analyses,
gives orders through the store and judges, while the main thread of the same process is a worker.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from runner.execution import nodes
from runner.execution.backends import carrier, require_no_foreign_object, resolve
from runner.execution.observation import observed
from runner.execution.orders import Order
from runner.execution.watching import replaced_timeout, watch_for
from runner.problems import LaunchError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from runner.execution.options import LaunchOptions
    from runner.execution.supervisor import Supervisor
    from runner.plan import Plan
    from runner.trace import Trace

#: seconds that the other ranks get to come up
START_S = 300.0
#: seconds that a call which was broken gets to come back: there are no processes to replace it by
FREE_S = 5.0


class Conductor:
    """Runs plans on the ranks of the launch that this process is in."""

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
            self._lost = self._why_ended()
        return self

    def __exit__(self, *_: object) -> None:
        """The ranks are dismissed by whoever made them, also where no scenario ran."""

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Run one plan; as :meth:`runner.execution.Launcher.run`."""
        options = self._options
        if plan.world_size > self._size:
            message = f"it needs {plan.world_size} ranks; this launch has {self._size}"
            raise UnsupportedError(message)
        if self._lost is None and self._ranks_lost():
            self._lost = self._why_ended()
        if self._lost is not None:
            raise LaunchError(self._lost)
        if options.timeout_s is not None:
            plan = replaced_timeout(plan, options.timeout_s)
        choice = resolve(
            self._torch,
            options.backend,
            plan.scenario,
            share_gpu=options.share_gpu,
            here=int(os.environ.get("LOCAL_WORLD_SIZE", self._size)),
        )
        require_no_foreign_object(plan, predicted, (carrier(choice.backend),))
        self._number += 1
        order = Order(
            number=self._number,
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
            findings = self._supervisor.run(order, watch)
            usable = findings.usable and self._supervisor.settled(FREE_S)
        except RuntimeError as error:
            # the store is gone, or was given up; what a scenario does, the ranks tell in their mail
            self._lost = self._why_ended()
            raise LaunchError(self._lost) from error
        if findings.lost:
            self._lost = self._why_ended()
        elif not usable:
            self._lost = (
                f"this launch ended with {plan.scenario.case}, which ended a process or left one "
                "in a call that does not return. `scenario run` gives the scenarios after it a new "
                "launch; under torchrun, run it by itself."
            )
        findings = replace(
            findings, environment=choice.environment, notes=(*choice.notes, *findings.notes)
        )
        return observed(plan, findings, predicted)

    def _why_ended(self) -> str:
        """Return why this launch can run nothing any more."""
        lost = self._ranks_lost()
        if not lost:
            return "the store of this launch is gone: the process that held it ended"
        rank = min(lost)
        return f"this launch lost rank {rank}: {lost[rank]}"
