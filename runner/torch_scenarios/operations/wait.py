"""`wait`: completes asynchronous work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torch_scenarios.expressions.evaluator import take_integer
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Constant, Form
from torch_scenarios.operations.base import Caller, Entry, Waiting

T = TypeVar("T")


class Wait(Waiting):
    """Wait for the work behind one handle, or behind several, in order.

    `up` waits for those of `up[0]`, `up[1]`, ... that were not waited for yet. `{handle: f, output:
    x}` holds what the function of an `rpc_async` returned.
    """

    name = "wait"
    bare = "handles"
    params = (
        Param(
            name="handles",
            kind="handles",
            required=True,
            description="The handle that `as` named, or a list of handles.",
        ),
    )
    source = "torch.distributed.Work.wait"
    example = """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: work
  - wait: work
    expect:
      x: [3, 3]
"""

    def label(self, entry: Entry) -> str:
        """`wait work`."""
        return "wait " + ", ".join(self.handles(entry))

    def concerns(self, caller: Caller, given: Mapping[str, Form]) -> bool:
        """A rank that started none of this work skips the step."""
        named = caller.evaluate(given["handles"])
        return not caller.handles.isdisjoint(parts_of(named))

    def introduces(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """The output."""
        return output_of(given)

    def handles(self, entry: Entry) -> tuple[str, ...]:
        """Return the handles in the order in which they are waited for."""
        return parts_of(entry["handles"])


def find_work(name: str, kept: Mapping[str, T], waited: Callable[[T], bool]) -> list[T]:
    """Return the work that a name means, of what names keep.

    `up` means those of `up[...]` not yet waited for; all of them where there is none left.
    """
    if name in kept:
        return [kept[name]]
    found = [work for key, work in kept.items() if key.startswith(f"{name}[")]
    return [work for work in found if not waited(work)] or found


#: the argument of a `wait` that names what a function returned
OUTPUT = "output"


def output_of(given: Mapping[str, Form]) -> tuple[str, ...]:
    """Return the name under which a result is held; nothing where it is dropped."""
    output = given.get(OUTPUT)
    return (str(output.value),) if isinstance(output, Constant) and output.value else ()


def parts_of(named: Any) -> tuple[str, ...]:
    """Return the names of handles, of which some have an index."""
    if isinstance(named, str):
        return (named,)
    return tuple(
        each if isinstance(each, str) else f"{each[0]}[{take_integer(each[1])}]" for each in named
    )
