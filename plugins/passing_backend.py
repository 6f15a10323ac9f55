"""A whole backend in Python: every call of torch's is passed on to Gloo.

Importing it registers the backend `passing`. To begin a backend of your own, replace one method
after the other. An heir that changes one method wrongly is a backend with one fault
(benchmarks/mutants.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

#: what torch calls by another name than Gloo's, in versions that have the two
ALIASES = {
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
#: what torch calls of a process group, and Gloo has under the same name
METHODS = (
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "broadcast",
    "allgather",
    "_allgather_base",
    "allgather_coalesced",
    "gather",
    "scatter",
    "alltoall",
    "alltoall_base",
    "barrier",
    "send",
    "recv",
    "recv_anysource",
    "monitored_barrier",
)


class Passing(dist.ProcessGroup):
    """Every call of torch's, passed on to a group of Gloo's."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        """Make the group of Gloo's."""
        super().__init__(rank, size)  # type: ignore[call-arg]  # torch has both
        self.gloo: Any = dist.ProcessGroupGloo(store, rank, size, timeout)
        self.known_as = ""

    def getBackendName(self) -> str:  # noqa: N802 -- torch's name
        """Return the name that torch shows."""
        return "passing"

    def getGroupName(self) -> str:  # noqa: N802 -- torch's name
        """Return what torch calls this group; a mesh, and DDP, ask for it."""
        return self.known_as

    @property
    def group_name(self) -> str:
        """What torch calls this group."""
        return self.known_as

    def abort(self) -> None:
        """Break off what waits."""
        self.gloo.abort()

    def shutdown(self) -> None:
        """End nothing: Gloo needs none."""


class Several(dist.Work):
    """Several works that are waited for as one."""

    def __init__(self, works: Sequence[Any]) -> None:
        """Keep them."""
        super().__init__()
        self._works = works

    def wait(self, *timeout: Any) -> bool:
        """Wait for each."""
        done = [bool(work.wait(*timeout)) for work in self._works]
        return all(done)

    def is_completed(self) -> bool:
        """Return whether each is done."""
        return all(work.is_completed() for work in self._works)


def _one_by_one(name: str) -> Callable[..., Any]:
    """Return a method for lists of tensors: DTensor calls it, and Gloo has it for one tensor."""

    def call(self: Passing, outputs: Sequence[Any], inputs: Sequence[Any], *options: Any) -> Any:
        method = getattr(self, name)
        given = [each for each in options if name != "_allgather_base"]
        return Several([method(one, two, *given) for one, two in zip(outputs, inputs, strict=True)])

    return call


#: of lists of tensors -> of one tensor
ONE_BY_ONE = {
    "allgather_into_tensor_coalesced": "_allgather_base",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
}


def _passed_on(name: str) -> Callable[..., Any]:
    def call(self: Passing, *arguments: Any, **options: Any) -> Any:
        return getattr(self.gloo, name)(*arguments, **options)

    call.__name__ = name
    return call


for _name in METHODS:
    setattr(Passing, _name, _passed_on(_name))


for _name, _single in ONE_BY_ONE.items():
    setattr(Passing, _name, _one_by_one(_single))


def _renamed(name: str) -> Callable[..., Any]:
    """Return a method that is another one: of a heir, the heir's."""

    def call(self: Passing, *arguments: Any, **options: Any) -> Any:
        return getattr(self, name)(*arguments, **options)

    return call


for _alias, _name in ALIASES.items():
    setattr(Passing, _alias, _renamed(_name))


def register(name: str, group: type[Passing] = Passing) -> None:
    """Register a backend of that name whose groups are of a class."""

    def create(options: Any, _group_options: Any = None) -> Passing:
        made = group(options.store, options.group_rank, options.group_size, options.timeout)
        made.known_as = options.group_id
        return made

    dist.Backend.register_backend(name, create, extended_api=True, devices=["cpu"])


if "passing" not in dist.Backend.backend_list:
    register("passing")
