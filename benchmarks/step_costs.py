"""What one step costs on a rank beside the call itself, in one process.

The calls go to torch's fake process group, which communicates nothing, so that what is left is the
price of the interpreter: the step's position and times, its arguments, a copy of what it wrote, and
on a GPU, where there is one, an event behind it. A scenario and the same loop written by hand
take turns; processor time of the thread counts, and the median of the rounds:

    python -m benchmarks.step_costs [rounds, 15 if left out]
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

import torch_scenarios
from benchmarks.measure import Row, show
from torch_scenarios.expressions.functions import TorchArrays
from torch_scenarios.worker.board import Board, Converter, DeviceCopies
from torch_scenarios.worker.device import completion_on
from torch_scenarios.worker.program import Program
from torch_scenarios.worker.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 5000
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
dist: Any = torch.distributed
cuda: Any = torch.cuda


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A kind of step: what a scenario repeats, and what a script would in its place.

    `steps` are those of one round, `unrolled` writes the rounds out in place of a `for`.
    """

    what: str
    steps: tuple[str, ...]
    by_hand: Callable[[Any, Any], None]
    unrolled: bool = False

    @property
    def rounds(self) -> int:
        """How often the body is repeated."""
        return STEPS // len(self.steps)

    @property
    def yaml(self) -> str:
        """The scenario."""
        head = 'world_size: 2\ntensors: {x: "full(4, rank)", y: "full(4, rank)"}\nsteps:\n'
        if self.unrolled:
            return head + "".join(f"  - {step}\n" for step in self.steps) * self.rounds
        body = "".join(f"      - {step}\n" for step in self.steps)
        return f'{head}  - for: {{i: "range({self.rounds})"}}\n    steps:\n{body}'


def _all_reduce(x: Any, _: Any) -> None:
    dist.all_reduce(x, op=dist.ReduceOp.MAX)


class Kept:
    """The same loop with what a scenario keeps of it: a copy, and an event behind each call."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: list[Any] = []

    def __call__(self, x: Any, _: Any) -> None:
        """Call, copy, record."""
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        event = None
        copy = x.clone()
        if DEVICE.type == "cuda":
            event = cuda.Event(enable_timing=True)
            event.record()
        self._kept.append((copy, event))


def _send_and_receive(x: Any, y: Any) -> None:
    dist.send(x, dst=1)
    dist.recv(y, src=1)


def _start_and_wait(x: Any, _: Any) -> None:
    dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True).wait()


def _compute(x: Any, _: Any) -> None:
    x.add(1)


def _compute_and_reduce(x: Any, _: Any) -> None:
    dist.all_reduce(x + 1, op=dist.ReduceOp.MAX)


def _barrier(_: Any, __: Any) -> None:
    dist.barrier()


REDUCE = "all_reduce: {tensor: x, op: max}"
LOOPS = (
    Loop(what="all_reduce, in a loop", steps=(REDUCE,), by_hand=_all_reduce),
    Loop(what="all_reduce, a copy and an event by hand too", steps=(REDUCE,), by_hand=Kept()),
    Loop(what="all_reduce, written out", steps=(REDUCE,), by_hand=_all_reduce, unrolled=True),
    Loop(
        what="send and recv",
        steps=("send: {tensor: x, dst: 1}", "recv: {tensor: y, src: 1}"),
        by_hand=_send_and_receive,
    ),
    Loop(
        what="async_op and wait",
        steps=(
            "{all_reduce: {tensor: x, op: max, async_op: true}, as: work}",
            "wait: work",
        ),
        by_hand=_start_and_wait,
    ),
    Loop(what="barrier", steps=("barrier: {}",), by_hand=_barrier),
    Loop(what="compute", steps=('compute: {y: "x + 1"}',), by_hand=_compute),
    Loop(
        what="compute and all_reduce",
        steps=('compute: {y: "x + 1"}', "all_reduce: {tensor: y, op: max}"),
        by_hand=_compute_and_reduce,
    ),
    Loop(
        what="send, the peer computed from the loop's variable",
        steps=('send: {tensor: x, dst: "(i % 2 + rank + 1) % 2 if i < 0 else 1"}',),
        by_hand=lambda x, _: dist.send(x, dst=1),
    ),
)


def planned(loop: Loop) -> Any:
    """Return the plan of a loop's scenario."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loop.yaml"
        path.write_text(loop.yaml, encoding="utf-8")
        (scenario,) = torch_scenarios.load(path)
    return torch_scenarios.plan(scenario)


def ours_s(plan: Any) -> float:
    """Return the processor seconds of rank 0 for the steps of a plan."""
    completion = completion_on(torch, DEVICE)
    world = World(torch, plan, 0, DEVICE)
    world.start(FakeStore(), "fake")
    board = (
        Board(0, Converter(torch, DeviceCopies(torch, DEVICE)), completion.seconds)
        if completion.enqueues
        else Board(0, Converter(torch))
    )
    program = Program(
        plan,
        world,
        TorchArrays(torch, DEVICE),
        board=board,
        completion=completion,
        broken=lambda: False,
    )
    gc.collect()
    began = time.thread_time()
    ending = program.prepare() or program.run()
    took = time.thread_time() - began
    if ending != "finished":
        sys.exit(f"the rank ended so: {ending}")
    dist.destroy_process_group()
    return took


def by_hand_s(loop: Loop) -> float:
    """Return the processor seconds of the same calls written by hand."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    x, y = torch.full((4,), 0.0, device=DEVICE), torch.full((4,), 0.0, device=DEVICE)
    call = loop.by_hand
    gc.collect()
    began = time.thread_time()
    for _ in range(loop.rounds):
        call(x, y)
    took = time.thread_time() - began
    dist.destroy_process_group()
    return took


def main() -> None:
    """Measure each loop in turns and print the medians."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(1)
    rows = []
    for loop in LOOPS:
        plan = planned(loop)
        ours, theirs = [], []
        for _ in range(rounds + 1):
            theirs.append(by_hand_s(loop))
            ours.append(ours_s(plan))
        steps = loop.rounds * len(loop.steps)
        mine = 1e6 * statistics.median(ours[1:]) / steps
        other = 1e6 * statistics.median(theirs[1:]) / steps
        rows.append(
            Row(what=loop.what, value=f"{mine:.1f} us, {other:.1f} by hand: {mine - other:+.1f}")
        )
    show(rows)


if __name__ == "__main__":
    main()
