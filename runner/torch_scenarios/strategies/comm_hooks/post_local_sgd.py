"""`post_localSGD_hook`: the mean over all ranks at first, and then over those of a subgroup.

From `start_localSGD_iter` on a rank only knows the gradients of its subgroup, or, with
`post_local_gradient_allreduce: false`, its own: the weights have to be averaged then, which
`PeriodicModelAverager` does (torch 2.13, `post_localSGD_hook.py`; arXiv 1808.07217).
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module
from typing import Any

from torch_scenarios.modules.base import Array
from torch_scenarios.operations.base import Caller, Group, Part
from torch_scenarios.strategies.comm_hooks.all_reduce import average
from torch_scenarios.strategies.comm_hooks.base import AT, Bucket, Hook, HookSide


class PostLocalSGD(Hook, frozen=True, kw_only=True):
    """`post_localSGD_hook`, with the arguments of `PostLocalSGDState`."""

    name = "post_localSGD_hook"
    #: without one torch makes a group of each node, by its GPUs
    subgroup: str
    start_localSGD_iter: int
    post_local_gradient_allreduce: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for a number of steps below 0."""
        if self.start_localSGD_iter < 0:
            message = "`start_localSGD_iter` is a number of steps, 0 or more"
            raise ValueError(message)

    @property
    def groups(self) -> tuple[str, ...]:
        """The subgroup."""
        return (self.subgroup,)

    def register(self, real: Any, wrapped: Any, group: Any) -> None:
        """Register it with its state."""
        module = import_module(f"{AT}.post_localSGD_hook")
        state = module.PostLocalSGDState(
            process_group=group,
            subgroup=real.handle(self.subgroup),
            start_localSGD_iter=self.start_localSGD_iter,
            post_local_gradient_allreduce=self.post_local_gradient_allreduce,
        )
        wrapped.register_comm_hook(state, module.post_localSGD_hook)

    def side(self, group: Group, caller: Caller, shared: dict[Any, Any]) -> HookSide:
        """Return a side that counts steps."""
        return LocalSide(self, group, caller.group(self.subgroup))


class LocalSide(HookSide):
    """The mean over all ranks, then over some.

    start_localSGD_iter: 2, subgroups (0, 1) and (2, 3)

    step 0, 1     the mean of ranks 0 to 3
    step 2 on     the means of (0, 1) and of (2, 3): the models part
    """

    def __init__(self, hook: PostLocalSGD, group: Group, few: Group) -> None:
        """Begin with no step."""
        super().__init__(group)
        self._hook, self._few, self._steps = hook, few, 0

    def mean(self, bucket: Bucket) -> Generator[Part, None, Array]:
        """Average over all, over some, or not at all."""
        if self._steps < self._hook.start_localSGD_iter:
            self._steps += bucket.is_last
            return (yield from average(self.group, bucket.flat))
        self.of_all = False
        if not self._hook.post_local_gradient_allreduce:
            return bucket.flat
        return (yield from average(self._few, bucket.flat))
