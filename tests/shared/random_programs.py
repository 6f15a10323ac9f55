"""Random programs: a strategy of hypothesis that writes scenarios, right ones and broken ones.

A program is built right: collectives on the world and on subgroups, messages in pairs, exchanges,
asynchronous work that is waited for. Then up to two faults may be put in: a rank that skips a
step, a rank that takes two steps in the other order, a message with another tag.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

REDUCE_OPS = ("sum", "max", "min", "product")
DTYPES = ("float32", "int64", "float64", "int32")


@dataclass(slots=True)
class Writer:
    """Builds one program; `draw` is hypothesis' own."""

    draw: Callable[..., Any]
    world_size: int
    groups: dict[str, list[int]]
    steps: list[dict[str, Any]] = field(default_factory=list)
    handles: int = 0

    def pick(self, items: Any) -> Any:
        """Choose one item of a sequence."""
        return self.draw(st.sampled_from(list(items)))

    def group(self) -> tuple[str, list[int]]:
        """Choose a group with its members."""
        name = self.pick(self.groups)
        return name, self.groups[name]

    def take(self, ranks: list[int], **action: Any) -> None:
        """Add a step that exactly these ranks take."""
        self.steps.append({"ranks": list(ranks), **action})

    def fresh(self, ranks: list[int], **values: str) -> None:
        """Compute new tensors on these ranks, so that nothing depends on what came before."""
        self.take(ranks, compute=values)

    def handle(self) -> str:
        """Return a new handle's name."""
        self.handles += 1
        return f"h{self.handles}"


def all_reduce(writer: Writer) -> None:
    """In place, on any group."""
    name, members = writer.group()
    writer.take(
        members, all_reduce={"tensor": "x", "op": writer.pick(REDUCE_OPS[:3]), "group": name}
    )


def all_reduce_later(writer: Writer) -> None:
    """Asynchronous, with something else before the wait."""
    name, members = writer.group()
    handle = writer.handle()
    writer.fresh(members, z="x + rank")
    action = {"tensor": "z", "op": "sum", "group": name, "async_op": True}
    writer.take(members, all_reduce=action, **{"as": handle})
    writer.fresh(members, y="y + 1")
    writer.take(members, wait=handle)


def broadcast(writer: Writer) -> None:
    """From any member."""
    name, members = writer.group()
    writer.take(members, broadcast={"tensor": "x", "src": writer.pick(members), "group": name})


def reduce(writer: Writer) -> None:
    """To any member, out of a tensor that nobody uses afterwards."""
    name, members = writer.group()
    writer.fresh(members, z="x + 1")
    action = {"tensor": "z", "dst": writer.pick(members), "op": "max", "group": name}
    writer.take(members, reduce=action)
    writer.fresh(members, z="x * 1")


def gathering(writer: Writer) -> None:
    """all_gather into a list, then one of its parts."""
    name, members = writer.group()
    writer.fresh(members, parts=f"[x * 0 for i in range({len(members)})]")
    writer.take(members, all_gather={"tensor_list": "parts", "tensor": "x", "group": name})
    writer.fresh(members, x=f"parts[{writer.draw(st.integers(0, len(members) - 1))}]")


def scattering(writer: Writer) -> None:
    """reduce_scatter_single, then all_gather_single."""
    name, members = writer.group()
    size = len(members)
    writer.fresh(
        members, long=f"astype(arange({2 * size}) + rank, int64)", part="astype(zeros(2), int64)"
    )
    action = {"output": "part", "input": "long", "op": "sum", "group": name}
    writer.take(members, reduce_scatter_single=action)
    writer.take(members, all_gather_single={"output": "long", "input": "part", "group": name})


def exchange(writer: Writer) -> None:
    """all_to_all_single, even."""
    name, members = writer.group()
    length = 2 * len(members)
    writer.fresh(members, sent=f"arange({length}) + 100 * rank", got=f"zeros({length})")
    writer.take(members, all_to_all_single={"output": "got", "input": "sent", "group": name})


def barrier(writer: Writer) -> None:
    """On any group."""
    name, members = writer.group()
    writer.take(members, barrier={"group": name})


def message(writer: Writer) -> None:
    """One blocking send and its receive."""
    source, target = pair(writer)
    tag = writer.draw(st.integers(0, 2))
    writer.take([source], send={"tensor": "x", "dst": target, "tag": tag})
    writer.take([target], recv={"tensor": "x", "src": source, "tag": tag})


def message_later(writer: Writer) -> None:
    """A message that is started on both sides and waited for later."""
    source, target = pair(writer)
    handle = writer.handle()
    writer.fresh([target], z="x * 0")
    writer.take([target], irecv={"tensor": "z", "src": source, "tag": 3}, **{"as": handle})
    writer.take([source], isend={"tensor": "x", "dst": target, "tag": 3}, **{"as": handle})
    writer.take([source, target], wait=handle)


def swap(writer: Writer) -> None:
    """Two ranks exchange tensors in one batch."""
    one, two = pair(writer)
    handle = writer.handle()
    writer.fresh([one, two], z="x * 0")
    for rank, peer in ((one, two), (two, one)):
        batch = [
            {"op": "isend", "tensor": "x", "peer": peer},
            {"op": "irecv", "tensor": "z", "peer": peer},
        ]
        writer.take([rank], batch_isend_irecv=batch, **{"as": handle})
    writer.take([one, two], wait=handle)


def pair(writer: Writer) -> tuple[int, int]:
    """Choose two ranks."""
    first, second = writer.draw(st.permutations(range(writer.world_size)))[:2]
    return first, second


SHAPES = (
    all_reduce,
    all_reduce_later,
    broadcast,
    reduce,
    gathering,
    scattering,
    exchange,
    barrier,
    message,
    message_later,
    swap,
)


def skip(writer: Writer, at: int) -> None:
    """Let one rank skip a step."""
    step = writer.steps[at]
    gone = writer.pick(step["ranks"])
    step["ranks"] = [rank for rank in step["ranks"] if rank != gone]
    if not step["ranks"]:
        del writer.steps[at]


def cross(writer: Writer, at: int) -> None:
    """Let one rank take a step after the one that follows it."""
    if at + 1 >= len(writer.steps):
        return
    first, second = writer.steps[at], writer.steps[at + 1]
    both = sorted(set(first["ranks"]) & set(second["ranks"]))
    if "compute" in first or "compute" in second or "as" in first or not both:
        return
    rank = writer.pick(both)
    late = {**first, "ranks": [rank]}
    first["ranks"] = [other for other in first["ranks"] if other != rank]
    writer.steps.insert(at + 2, late)
    if not first["ranks"]:
        del writer.steps[at]


def retag(writer: Writer, at: int) -> None:
    """Give one side of a message another tag."""
    for name in ("send", "recv"):
        if name in writer.steps[at]:
            writer.steps[at][name] = {**writer.steps[at][name], "tag": 7}


FAULTS = (skip, cross, retag)


@st.composite
def programs(draw: Callable[..., Any], *, wrong: bool) -> str:
    """Return the YAML of a program of two to six ranks and up to about thirty steps."""
    world_size = draw(st.integers(2, 6))
    ranks = list(range(world_size))
    groups = {"world": ranks}
    for name in ("g", "h"):
        members = draw(st.sets(st.sampled_from(ranks), min_size=2, max_size=world_size))
        groups[name] = sorted(members)
    writer = Writer(draw=draw, world_size=world_size, groups=groups)
    for shape in draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=12)):
        shape(writer)
    if wrong:
        for _ in range(draw(st.integers(1, 2))):
            if writer.steps:
                fault = draw(st.sampled_from(FAULTS))
                fault(writer, draw(st.integers(0, len(writer.steps) - 1)))
    # nobody can wait for what a fault took away from both sides: that would be no scenario
    begun = {step["as"] for step in writer.steps if "as" in step}
    writer.steps = [step for step in writer.steps if step.get("wait") in {None, *begun}]
    if not writer.steps:
        barrier(writer)
    dtype = draw(st.sampled_from(DTYPES))
    document = {
        "world_size": world_size,
        "timeout": "20s",
        "groups": {name: groups[name] for name in ("g", "h")},
        "tensors": {
            "x": {"dtype": dtype, "value": "arange(3) + 1 + rank"},
            "y": [0, 0],
            "z": {"dtype": dtype, "value": "zeros(3)"},
        },
        "steps": [{**step, "ranks": step["ranks"]} for step in writer.steps],
    }
    return yaml.safe_dump(document, sort_keys=False, width=100)
