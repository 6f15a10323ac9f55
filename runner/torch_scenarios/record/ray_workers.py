"""Ray Train on fake ranks: each runs the loop of one worker in place.

Ray's workers are started by servers of its own, one set for the whole job, and a fake rank is a
process that runs alone. Ray has a local mode, in which a process that has torchrun's environment is
itself the worker of that rank: a trainer is told to take it. What the workers of Ray meet in apart
from torch (`report`, its barrier, its broadcast) is a barrier or a broadcast of the world there.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

_TRAINER = "ray.train.v2.api.data_parallel_trainer"
_WORKER = "ray.train.v2._internal.execution.train_fn_utils"


class RayWorkers:
    """Lets a trainer of Ray run its loop where it is called, as the worker of this rank."""

    def __init__(self, dist: Any, run: Callable[[int, Callable[[], Any], Any, Any], None]) -> None:
        """`run` runs a function as this rank: how many there are to be, and what it is given."""
        self._dist, self._run = dist, run

    def install(self) -> None:
        """Wait until the script imports Ray Train."""
        sys.meta_path.insert(0, _Finder({_TRAINER: self.take_fit, _WORKER: self.meet}))

    def take_fit(self, module: Any) -> None:
        """Let `fit` run in place; Ray's servers are started where something else asks for them."""
        trainer = module.DataParallelTrainer
        fit = trainer.fit

        def fit_in_place(own: Any) -> Any:
            if own.datasets:  # Ray Data has servers of its own, and its local mode none of them
                return fit(own)
            found: list[Any] = []
            own.running_in_local_mode = True
            self._run(
                own.scaling_config.num_workers or 1,
                lambda: found.append(fit(own)),
                own.train_loop_per_worker,
                (own.train_loop_config,),
            )
            return found[0] if found else None

        trainer.fit = fit_in_place
        _start_late(sys.modules["ray"])

    def meet(self, module: Any) -> None:
        """Let the ranks meet in what Ray's workers meet in."""
        worker, dist = module.LocalTrainFnUtils, self._dist
        report = worker.report

        def meet_and_report(own: Any, *args: Any, **kwargs: Any) -> None:
            dist.barrier()
            report(own, *args, **kwargs)

        def broadcast(_: Any, data: Any) -> Any:
            given = [data]
            dist.broadcast_object_list(given)
            return given[0]

        worker.report = meet_and_report
        worker.barrier = lambda _: dist.barrier()
        worker.broadcast_from_rank_zero = broadcast


def _start_late(ray: Any) -> None:
    """Let `ray.init` of a script start nothing; Ray calls it again where it wants its servers."""
    start = ray.init
    wanted: dict[str, Any] = {}

    def init(*args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").split(".")[0] == "ray":
            return start(*wanted.get("args", ()), **wanted.get("kwargs", {}), **kwargs)
        wanted.update(args=args, kwargs=kwargs)
        return None

    ray.init = init


class _Finder(importlib.abc.MetaPathFinder):
    """Calls functions with the modules of some names, once these have been imported."""

    def __init__(self, awaited: Mapping[str, Callable[[Any], None]]) -> None:
        self._awaited = dict(awaited)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Let the module be found by the others."""
        follow = self._awaited.pop(name, None)
        spec = importlib.util.find_spec(name) if follow else None
        if spec is None or spec.loader is None or follow is None:
            return spec
        run = spec.loader.exec_module

        def execute(module: Any) -> None:
            run(module)
            follow(module)

        spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec
