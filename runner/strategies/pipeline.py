"""`pipeline`: each rank has some layers, and a batch runs through them in parts.

GPipe sends all parts forward before the first comes back; 1F1B lets a stage take one back as soon
as it can, so that it keeps fewer. Both compute the same, and one process's gradients where each
part's are divided by their number (`scale_grads`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.modules.base import Array
from runner.modules.sequential import Sequential
from runner.operations.base import Group, Part, operation_named
from runner.operations.placement import call
from runner.strategies.base import Arrays, Strategy, Trainee, TrainStep

GPIPE, ONE_EACH = "ScheduleGPipe", "Schedule1F1B"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Strategy):
    """A schedule of `torch.distributed.pipelining` over stages of layers."""

    name = "pipeline"
    imports = ("torch.distributed.pipelining",)
    mesh: str
    stages: tuple[tuple[str, ...], ...]
    schedule: str = GPIPE
    n_microbatches: int = 1
    scale_grads: bool = True

    @staticmethod
    def read_stages(given: Any) -> tuple[tuple[str, ...], ...]:
        """Return the labels of the layers of each stage. Raises ValueError."""
        if not isinstance(given, list) or not all(isinstance(each, list) for each in given):
            message = "a list of lists of labels is wanted: `[[up, act], [down]]`"
            raise ValueError(message)
        return tuple(tuple(map(str, each)) for each in given)

    @staticmethod
    def read_schedule(given: Any) -> str:
        """Return the name of a schedule. Raises ValueError."""
        if given not in (GPIPE, ONE_EACH):
            message = f"there is no schedule `{given}` here; there are {GPIPE} and {ONE_EACH}"
            raise ValueError(message)
        return str(given)

    @property
    def where(self) -> str | None:
        """Its mesh."""
        return self.mesh

    def misfit(self, network: Sequential) -> str | None:
        """The stages have all layers, in their order."""
        listed = [label for stage in self.stages for label in stage]
        layers = [label for label, _ in network.layers]
        if listed == layers and all(self.stages):
            bare = next((each for each in self.stages if not network.only(each).shapes()), None)
            return f"the stage [{', '.join(bare)}] has nothing to learn" if bare else None
        return f"the stages have {', '.join(listed)}, and the layers are {', '.join(layers)}"

    def apply(self, real: Any) -> None:
        """Keep the rank's own layers; torch's stage is made with the first batch: it has shapes."""
        mesh = real.mesh(self.mesh)
        at = mesh.get_local_rank()
        labels = self.stages[at]
        whole = real.module
        real.module = real.stage(labels)
        given = dict(whole.named_parameters())
        real.load({name: given[name] for name, _ in real.module.named_parameters()})
        made: list[Any] = []

        def step(x: Any, y: Any) -> Any:
            if not made:
                made.append(self._schedule(real, mesh, at, x))
            losses: list[Any] = []
            first = (x,) if at == 0 else ()
            if at == len(self.stages) - 1:
                made[0].step(*first, target=real.target(y), losses=losses)
                every = real.torch.stack([each.detach() for each in losses])
                return every.sum() if real.model.loss.reduction == "sum" else every.mean()
            made[0].step(*first)
            return None

        real.schedule = step

    def _schedule(self, real: Any, mesh: Any, at: int, x: Any) -> Any:
        pipelining = real.torch.distributed.pipelining
        shape = (x.shape[0] // self.n_microbatches, *x.shape[1:])
        layers = dict(real.model.network.layers)
        ends = []
        for labels in self.stages:
            begin = shape
            for label in labels:
                shape = layers[label].output_shape(shape)
            ends.append((begin, shape))
        learns = {"requires_grad": True}
        given = real.torch.empty(ends[at][0], **(learns if at else {}))
        stage = pipelining.PipelineStage(
            real.module,
            at,
            len(self.stages),
            real.torch.device("cpu") if real.device is None else real.device,
            input_args=(given,),
            output_args=(real.torch.empty(ends[at][1], **learns),),
            group=mesh.get_group(),
        )
        kind = getattr(pipelining, self.schedule)
        return kind(
            stage,
            self.n_microbatches,
            loss_fn=lambda made, wanted: real.model.loss.call(real.torch, made, wanted),
            scale_grads=self.scale_grads,
        )


def actions(schedule: str, at: int, stages: int, parts: int) -> Iterator[tuple[str, int]]:
    """Yield what a stage does, in order: `("F", 2)` is the forward of part 2, `B` the backward."""
    early = parts if schedule == GPIPE else min(parts, stages - at)
    yield from (("F", part) for part in range(early))
    forward, backward = early, 0
    while backward < parts:
        yield "B", backward
        backward += 1
        if forward < parts:
            yield "F", forward
            forward += 1


class PipelineStage(Trainee):
    """One rank of a model in stages."""

    def settle(self) -> None:
        """Find the stage."""
        self._said: Pipeline = self.model.strategy(Pipeline)
        self._group: Group = self.groups[0]
        self._at = self._group.group_rank(self.rank)
        labels = self._said.stages[self._at] if self._at < len(self._said.stages) else ()
        self._network = self.model.network.only(labels)

    def begin(self) -> Arrays:
        """Return the weights of the rank's own layers."""
        own = self._network.shapes()
        return {name: value for name, value in self.whole.items() if name in own}

    def refused(self, given: Any) -> str | None:
        """Refuse stages that are not as many as ranks, and parts that torch cannot make."""
        said, rows = self._said, len(given["input"])
        if len(said.stages) != self._group.size:
            return f"{len(said.stages)} stages for {self._group.size} ranks"
        if said.schedule == ONE_EACH and said.n_microbatches < len(said.stages):
            return f"{ONE_EACH} of {len(said.stages)} stages takes as many microbatches, or more"
        if rows % said.n_microbatches:
            return f"{rows} rows do not divide into {said.n_microbatches} microbatches"
        return None

    def learn(self, order: TrainStep, x: Array, y: Array) -> Generator[Part, None, Array | None]:
        """Follow the schedule."""
        self.know_loss(order, x, y)
        parts, last = self._said.n_microbatches, len(self._said.stages) - 1
        xs, ys = np.split(x, parts), np.split(y, parts)
        shapes = self._shapes(xs[0].shape)
        saved: dict[int, Any] = {}
        losses: dict[int, Array] = {}
        ends: dict[int, Array] = {}
        sent: list[str] = []
        for kind, part in actions(self._said.schedule, self._at, last + 1, parts):
            if kind == "F":
                given = xs[part]
                if self._at:
                    given = yield from self._received(self._at - 1, shapes[0], part)
                made, saved[part] = self._network.forward(self.params, given)
                if self._at < last:
                    sent.append((yield from self._sent(self._at + 1, made, f"F{part}")))
                else:
                    losses[part], ends[part] = self.model.loss.value(made, ys[part])
                continue
            dy = ends.get(part)
            if dy is None:
                dy = yield from self._received(self._at + 1, shapes[1], part)
            dx, found = self._network.backward(self.params, saved.pop(part), dy)
            self.added(found)
            if self._at:
                sent.append((yield from self._sent(self._at - 1, dx, f"B{part}")))
        if sent:
            wait = operation_named("wait")
            yield Part(operation=wait, group=self._group, arguments={"handles": sent})
        if self._said.scale_grads:
            factor = np.float32(1 / parts)
            self.grads = {name: value * factor for name, value in self.grads.items()}
        if self._at < last:
            return None
        every = [losses[part] for part in range(parts)]
        joined = np.sum if self.model.loss.reduction == "sum" else np.mean
        return np.asarray(joined(every), np.float32)

    def _shapes(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of what enters the stage, and of what leaves it."""
        layers = dict(self.model.network.layers)
        for stage, labels in enumerate(self._said.stages):
            entered = shape
            for label in labels:
                shape = layers[label].output_shape(shape)
            if stage == self._at:
                break
        return entered, shape

    def _received(
        self, peer: int, shape: tuple[int, ...], part: int
    ) -> Generator[Part, None, Array]:
        buffer = np.zeros(shape, np.float32)
        yield call("recv", self._group, tensor=buffer, group_src=peer)
        return buffer

    def _sent(self, peer: int, value: Array, name: str) -> Generator[Part, None, str]:
        handle = f"{self.model.name} {name}"
        made = call("isend", self._group, tensor=value.copy(), group_dst=peer)
        yield Part(
            operation=made.operation, group=made.group, arguments=made.arguments, handle=handle
        )
        return handle
