"""`pipeline`: each rank has some layers, and a batch runs through them in parts.

GPipe sends all parts forward before the first comes back; 1F1B lets a stage take one back as soon
as it can, so that it keeps fewer. With several stages a rank (interleaved 1F1B, breadth first) a
part passes each rank more than once, and a rank is idle for less; zero-bubble schedules part the
backward in two, the gradient of the input, for which the stage before waits, and those of the
weights, which fill the gaps. DualPipeV couples the forward of one part with the backward of
another, for torch to run them as one. All compute the same, and one process's gradients where each
part's are divided by their number (`scale_grads`).

The orders are those of the papers as `torch.distributed.pipelining` reads them (torch 2.13):
interleaved 1F1B of arXiv 2104.04473, breadth first of 2211.05953, zero bubble of 2401.10241,
DualPipeV of 2412.19437.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torch_scenarios.errors import DataError
from torch_scenarios.modules import Sequential
from torch_scenarios.modules.base import Array
from torch_scenarios.operations.base import Group, Part, operation_named
from torch_scenarios.operations.placement import call
from torch_scenarios.strategies.model import Arrays, Calls, Strategy, TrainStep
from torch_scenarios.strategies.trainee import Trainee

GPIPE, ONE_EACH = "ScheduleGPipe", "Schedule1F1B"
INTERLEAVED, BREADTH_FIRST = "ScheduleInterleaved1F1B", "ScheduleLoopedBFS"
ZERO_BUBBLE, ZERO_BUBBLE_V = "ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble"
DUAL_V = "ScheduleDualPipeV"
#: schedules of one stage a rank, and of several
SINGLE = (GPIPE, ONE_EACH)
SEVERAL = (INTERLEAVED, BREADTH_FIRST, ZERO_BUBBLE, ZERO_BUBBLE_V, DUAL_V)
#: schedules of two stages a rank, to the last rank and back
IN_A_V = (ZERO_BUBBLE_V, DUAL_V)
#: what a stage does with a part: forward, the whole backward, that by the input, by the weights
FORWARD, BACKWARD, BY_INPUT, BY_WEIGHT = "F", "B", "I", "W"
#: what follows and precedes: an activation sent and received, a gradient sent and received
SEND_F, RECV_F, SEND_B, RECV_B = "SEND_F", "RECV_F", "SEND_B", "RECV_B"
#: a turn in which torch only cares for its memory
REST = "-"
#: stages that a rank is ready for at once
ACTIVE = 3


class Pipeline(Strategy, frozen=True, kw_only=True):
    """A schedule of `torch.distributed.pipelining` over stages of layers.

        GPipe, 2 stages, 3 parts; time to the right

        rank 0   F0 F1 F2 .. .. B0 B1 B2
        rank 1   .. F0 F1 F2 B0 B1 B2 ..

        1F1B

        rank 0   F0 F1 .. B0 F2 B1 .. B2
        rank 1   .. F0 B0 F1 B1 F2 B2 ..

    Both send the same messages; 1F1B holds the activations of two parts in place of three.

    >>> "".join(f"{kind}{part} " for kind, part in actions("Schedule1F1B", at=1, stages=2, parts=3))
    'F0 B0 F1 B1 F2 B2 '
    """

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
        if given not in (*SINGLE, *SEVERAL):
            message = (
                f"there is no schedule `{given}` here; there are {', '.join(SINGLE + SEVERAL)}"
            )
            raise ValueError(message)
        return str(given)

    @property
    def broken(self) -> Mapping[str, str]:
        """Releases before the schedule, and before the messages that the reference knows."""
        before = {"<2.9": f"it has no {DUAL_V}"} if self.schedule == DUAL_V else {}
        return before | {
            "<2.13": "its schedules begin with messages of one element between neighbouring stages"
        }

    @property
    def where(self) -> str | None:
        """Its mesh."""
        return self.mesh

    def find_mismatch(self, network: Sequential) -> str | None:
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
        at, size = mesh.get_local_rank(), mesh.size()
        own = [stage for stage in range(len(self.stages)) if self.rank_of(stage, size) == at]
        whole = real.module
        real.module = real.stage(tuple(label for stage in own for label in self.stages[stage]))
        given = dict(whole.named_parameters())
        real.load({name: given[name] for name, _ in real.module.named_parameters()})
        made: list[Any] = []

        def step(x: Any, y: Any) -> Any:
            if not made:
                made.append(self._schedule(real, mesh, own, x))
            losses: list[Any] = []
            first = (x,) if 0 in own else ()
            if len(self.stages) - 1 in own:
                made[0].step(*first, target=real.target(y), losses=losses)
                every = real.torch.stack([each.detach() for each in losses])
                return every.sum() if real.model.loss.reduction == "sum" else every.mean()
            made[0].step(*first)
            return None

        real.schedule = step

    def rank_of(self, stage: int, size: int) -> int:
        """Return the rank of a stage: stages go round, or to the last rank and back."""
        if self.schedule in IN_A_V and stage >= size:
            return 2 * size - 1 - stage
        return stage % size

    def _schedule(self, real: Any, mesh: Any, own: list[int], x: Any) -> Any:
        """Return torch's schedule over the stages that this rank has.

        `x` is the batch of which the shapes between stages are computed.
        """
        pipelining = real.torch.distributed.pipelining
        shape = (x.shape[0] // self.n_microbatches, *x.shape[1:])
        layers = dict(real.model.network.layers)
        ends = []
        for labels in self.stages:
            begin = shape
            for label in labels:
                shape = layers[label].output_shape(shape)
            ends.append((begin, shape))
        children = dict(real.module.named_children())
        stages = []
        for stage in own:
            part = type(real.module)()
            for label in self.stages[stage]:
                part.add_module(label, children[label])
            entered = real.torch.empty(ends[stage][0], device=real.device, requires_grad=stage > 0)
            stages.append(
                pipelining.PipelineStage(
                    part,
                    stage,
                    len(self.stages),
                    real.torch.device("cpu") if real.device is None else real.device,
                    input_args=(entered,),
                    output_args=(
                        real.torch.empty(ends[stage][1], device=real.device, requires_grad=True),
                    ),
                    group=mesh.get_group(),
                )
            )
        kind = getattr(pipelining, self.schedule)
        return kind(
            stages[0] if self.schedule in SINGLE else stages,
            self.n_microbatches,
            loss_fn=lambda made, wanted: real.model.loss.call(real.torch, made, wanted),
            scale_grads=self.scale_grads,
        )


# -------------------------------------------------------------------------------------------------
# Orders: what each rank does, and where it sends and receives.


class Move(NamedTuple):
    """One thing that a rank does: with which stage, and with which part of the batch.

    >>> Move("F", stage=1, part=0)
    Move(kind='F', stage=1, part=0)
    """

    kind: str
    stage: int
    part: int = -1


def actions(schedule: str, at: int, stages: int, parts: int) -> Iterator[tuple[str, int]]:
    """Yield what a stage does, in order: `("F", 2)` is the forward of part 2, `B` the backward.

    >>> gpipe = actions("ScheduleGPipe", at=0, stages=2, parts=3)
    >>> "".join(f"{kind}{part} " for kind, part in gpipe)
    'F0 F1 F2 B0 B1 B2 '
    >>> "".join(f"{kind}{part} " for kind, part in actions("Schedule1F1B", at=0, stages=2, parts=3))
    'F0 F1 B0 F2 B1 B2 '
    """
    early = parts if schedule == GPIPE else min(parts, stages - at)
    yield from (("F", part) for part in range(early))
    forward, backward = early, 0
    while backward < parts:
        yield "B", backward
        backward += 1
        if forward < parts:
            yield "F", forward
            forward += 1


#: what a rank does before it looks for what it may do next: one move, or two that are coupled
Turn: TypeAlias = tuple[Move, ...]


def list_turns(schedule: str, rank: int, size: int, stages: int, parts: int) -> list[Turn]:
    """Return what a rank of a schedule of several stages computes, in order."""
    if schedule == DUAL_V:
        return _order_dual_v(rank, size, parts)
    return [(move,) for move in _one_by_one(schedule, rank, size, stages, parts)]


def _one_by_one(schedule: str, rank: int, size: int, stages: int, parts: int) -> list[Move]:
    if schedule == ZERO_BUBBLE_V:
        return _order_v(rank, size, parts)
    own = range(rank, stages, size)
    if schedule == BREADTH_FIRST:
        forward = [Move(FORWARD, stage, part) for stage in own for part in range(parts)]
        back = [(stage, part) for stage in reversed(own) for part in reversed(range(parts))]
        return [*forward, *(Move(BACKWARD, *each) for each in back)]
    return _interleave(own, rank, size, parts, zero_bubble=schedule == ZERO_BUBBLE)


def _interleave(own: range, rank: int, size: int, parts: int, *, zero_bubble: bool) -> list[Move]:
    """Some forwards to warm up, then one forward and one backward, then the backwards left."""
    a_round = parts // max(1, parts // size)
    total = len(own) * parts
    ahead = (1 if zero_bubble else 2) * (size - 1 - rank)
    warm = min((len(own) - 1) * a_round + ahead, total)
    forwards = _rounds(own, a_round, parts)
    backwards = _rounds(own[::-1], a_round, parts)
    back = BY_INPUT if zero_bubble else BACKWARD
    moves: list[Move] = [Move(FORWARD, *next(forwards)) for _ in range(warm)]
    waiting: deque[tuple[int, int]] = deque()
    for nth in range(total):
        if nth < total - warm:
            moves.append(Move(FORWARD, *next(forwards)))
        each = next(backwards)
        moves.append(Move(back, *each))
        waiting.append(each)
        if zero_bubble and nth >= rank:
            moves.append(Move(BY_WEIGHT, *waiting.popleft()))
    return [*moves, *(Move(BY_WEIGHT, *each) for each in waiting if zero_bubble)]


def _rounds(own: range, a_round: int, parts: int) -> Iterator[tuple[int, int]]:
    """Yield stages with parts: some parts through each stage, then the next parts."""
    for first in range(0, parts, a_round):
        yield from ((stage, part) for stage in own for part in range(first, first + a_round))


def _order_v(rank: int, size: int, parts: int) -> list[Move]:
    """Two stages a rank, the second on the way back: as if for enough parts, without those over.

        rank 0   stages 0 and 7     of 4 ranks, in a V: the last stage is on the rank
        rank 1   stages 1 and 6     that has the first one, so that the loss is where the
        rank 2   stages 2 and 5     targets are
        rank 3   stages 3 and 4

    Zero bubble schedules split a backward: by input first, for the stage before waits for that, and
    by weight whenever nothing else is to be done (Qi et al., "Zero Bubble Pipeline Parallelism",
    arXiv 2401.10241). This one is their ZB-V, which is torch's ScheduleZBVZeroBubble.
    """
    down, up = rank, 2 * size - 1 - rank
    most = max(2 * size - 1, parts)
    moves: list[Move] = []
    count: dict[tuple[str, int], int] = defaultdict(int)

    def take(stage: int, kinds: str, times: int = 1) -> None:
        for kind in kinds * times:
            moves.append(Move(kind, stage, count[kind, stage]))
            count[kind, stage] += 1

    take(down, FORWARD, 2 * (size - rank) - 1)
    for _ in range(rank):
        take(up, FORWARD)
        take(down, FORWARD)
    take(up, FORWARD + BY_INPUT + BY_WEIGHT, size - rank)
    while count[FORWARD, up] < count[FORWARD, down] or count[FORWARD, down] < most:
        take(down, FORWARD, int(count[FORWARD, down] < most))
        take(down, BY_INPUT + BY_WEIGHT)
        take(up, FORWARD + BY_INPUT + BY_WEIGHT)
    for _ in range(rank):
        take(down, BY_INPUT)
        take(up, BY_INPUT)
    take(down, BY_INPUT + BY_WEIGHT, size - rank)
    for stage in (up, down):
        take(stage, BY_WEIGHT, count[BY_INPUT, stage] - count[BY_WEIGHT, stage])
    return [each for each in moves if each.part < parts]


class _Turns:
    """The turns of a rank as they are drawn: it counts the parts of each stage."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._count: dict[tuple[bool, int], int] = defaultdict(int)
        self._waiting: deque[Move] = deque()

    def take(self, *pairs: tuple[str, int]) -> None:
        """Do the next part of each stage, in one turn."""
        turn = []
        for kind, stage in pairs:
            key = (kind == FORWARD, stage)
            turn.append(Move(kind, stage, self._count[key]))
            self._count[key] += 1
        self._waiting.extend(move for move in turn if move.kind == BY_INPUT)
        self.turns.append(tuple(turn))

    def weigh(self) -> None:
        """Go back by the weights where that waits the longest, if it waits anywhere."""
        if self._waiting:
            self.turns.append((self._waiting.popleft()._replace(kind=BY_WEIGHT),))


def _order_dual_v(rank: int, size: int, parts: int) -> list[Turn]:
    """Two stages a rank; in the middle each forward on one is coupled with a backward on the other.

    Of the last backwards the part by the weights waits, to fill the end.
    """
    down, up = rank, 2 * size - 1 - rank
    behind = size - 1 - rank
    drawn = _Turns()
    take, weigh = drawn.take, drawn.weigh
    for _ in range(2 * behind):
        take((FORWARD, down))
    for _ in range(rank + 1):
        take((FORWARD, down))
        take((FORWARD, up))
    for _ in range(behind):
        take((BY_INPUT, up))
        weigh()
        take((FORWARD, up))
    for nth in range(parts - size - behind):
        if nth or behind:
            take((FORWARD, down), (BACKWARD, up))
        else:  # on the last rank both stages meet
            take((FORWARD, down))
            take((BACKWARD, up))
        take((FORWARD, up), (BACKWARD, down))
    for _ in range(behind):
        take((BACKWARD, up))
        take((FORWARD, up), (BACKWARD, down))
    for nth in range(2 * (rank + 1)):
        take((BACKWARD if nth <= rank else BY_INPUT, (up, down)[nth % 2]))
    for _ in range(behind):
        weigh()
        take((BY_INPUT, down))
    for _ in range(rank + 1):
        weigh()
    return drawn.turns


def _add_rests(turns: list[Turn], parts: int) -> list[Turn]:
    """Return turns with those in which torch makes stages ready, and takes them down again."""
    active: dict[int, None] = {}
    done: dict[int, int] = defaultdict(int)
    found: list[Turn] = []
    for at, turn in enumerate(turns):
        ahead = (move.stage for later in turns[at:] for move in later)
        coming = list(dict.fromkeys(ahead))[:ACTIVE]
        gone = [each for each in active if each not in coming]
        come = [each for each in coming if each not in active]
        found += [(Move(REST, each),) for each in (*gone, *come)]
        active = dict.fromkeys([*(each for each in active if each in coming), *come])
        found.append(turn)
        for move in turn:
            done[move.stage] += move.kind in (BACKWARD, BY_WEIGHT)
            if move.kind in (BACKWARD, BY_WEIGHT) and done[move.stage] == parts:
                found.append((Move(REST, move.stage),))
    return found + [(Move(REST, each),) for each in active]


def add_calls(
    orders: Mapping[int, list[Turn]], rank_of: Callable[[int], int], stages: int
) -> dict[int, list[Move]]:
    """Return what each rank does, with its calls, from what each computes.

    Ranks take turns. Who computes sends at once, and with that the receiver's turn to receive is
    known; a turn waits until what its moves need was received, or was computed on the same rank.
    """
    left = {rank: deque(turns) for rank, turns in orders.items()}
    found: dict[int, list[Move]] = {rank: [] for rank in orders}
    known: dict[int, set[Move]] = {rank: set() for rank in orders}

    def calls(rank: int, move: Move) -> None:
        sent = _find_send(move, stages)
        if sent is None or rank_of(sent.stage) == rank:
            return
        forward = sent.kind == RECV_F
        found[rank].append(Move(SEND_F if forward else SEND_B, move.stage, move.part))
        found[rank_of(sent.stage)].append(sent)
        known[rank_of(sent.stage)].add(sent)

    while any(left.values()):
        before = sum(map(len, left.values()))
        for rank, turns in left.items():
            needed = [_find_needed(move, stages) for move in turns[0]] if turns else []
            if not turns or any(each and not known[rank] & {*each} for each in needed):
                continue
            turn = turns.popleft()
            known[rank].update(turn)
            found[rank] += [move for move in turn if move.kind != REST]
            for move in turn:
                calls(rank, move)
        if sum(map(len, left.values())) == before:
            message = "no stage of this schedule can go on"
            raise ValueError(message)
    return found


def _find_needed(move: Move, stages: int) -> tuple[Move, ...]:
    """Return the moves of the same rank of which one has to come before; none: it can always go."""
    if move.kind == FORWARD and move.stage:
        return Move(RECV_F, move.stage, move.part), Move(FORWARD, move.stage - 1, move.part)
    if move.kind in (BACKWARD, BY_INPUT) and move.stage < stages - 1:
        behind = [Move(kind, move.stage + 1, move.part) for kind in (BACKWARD, BY_INPUT)]
        return Move(RECV_B, move.stage, move.part), *behind
    return ()


def _find_send(move: Move, stages: int) -> Move | None:
    """Return how the neighbour receives what a move has made; None where there is none."""
    if move.kind == FORWARD and move.stage + 1 < stages:
        return Move(RECV_F, move.stage + 1, move.part)
    if move.kind in (BACKWARD, BY_INPUT) and move.stage:
        return Move(RECV_B, move.stage - 1, move.part)
    return None


def order_of(schedule: str, rank: int, size: int, stages: int, parts: int) -> list[Move]:
    """Return what a rank does, calls and all."""
    if schedule in SINGLE:
        found: list[Move] = []
        for kind, part in actions(schedule, rank, stages, parts):
            received = RECV_F if kind == FORWARD else RECV_B
            sent = SEND_F if kind == FORWARD else SEND_B
            ends = (0, stages - 1) if kind == FORWARD else (stages - 1, 0)
            found += [Move(received, rank, part)] * (rank != ends[0])
            found.append(Move(kind, rank, part))
            found += [Move(sent, rank, part)] * (rank != ends[1])
        return found
    said = Pipeline(mesh="", stages=(), schedule=schedule)
    orders = {
        each: _add_rests(list_turns(schedule, each, size, stages, parts), parts)
        for each in range(size)
    }
    return add_calls(orders, lambda stage: said.rank_of(stage, size), stages)[rank]


class PipelineStage(Trainee):
    """One rank of a model in stages.

    It has the layers of its stages and no others: what comes before arrives as an activation, what
    comes after sends a gradient back. Which of both it waits for next is the schedule's, and two
    ranks with other schedules wait for each other.
    """

    def settle(self) -> None:
        """Find the stages."""
        self._said: Pipeline = self.model.strategy(Pipeline)
        self._group: Group = self.groups[0]
        self._at = self._group.group_rank(self.rank)
        self._networks = {
            stage: self.model.network.only(labels)
            for stage, labels in enumerate(self._said.stages)
            if self._said.rank_of(stage, self._group.size) == self._at
        }

    def begin(self) -> Arrays:
        """Return the weights of the rank's own layers."""
        own = {name for each in self._networks.values() for name in each.shapes()}
        return {name: value for name, value in self.whole.items() if name in own}

    def explain_refusal(self, given: Any) -> str | None:
        """Refuse stages that do not fit the ranks, and parts that torch cannot make."""
        order = TrainStep.of(given)
        try:
            x = order.input[order.index(self.caller.group, self.rank)]
        except DataError as error:
            return str(error)
        if not np.ndim(x):
            return "a number has no rows to make microbatches of"
        said, size = self._said, self._group.size
        stages, parts = len(said.stages), said.n_microbatches
        if said.schedule in SINGLE and stages != size:
            return f"{stages} stages for {size} ranks"
        if said.schedule == ONE_EACH and parts < stages:
            return f"{ONE_EACH} of {stages} stages takes as many microbatches, or more"
        return self._explain_refusal_of_several(stages, parts, size)

    def _explain_refusal_of_several(self, stages: int, parts: int, size: int) -> str | None:
        schedule = self._said.schedule
        if schedule in SINGLE:
            return None
        if stages % size or stages // size < 2:
            return f"{schedule} has two stages or more a rank, not {stages} for {size} ranks"
        if schedule in IN_A_V and stages != 2 * size:
            return f"{schedule} has two stages a rank, not {stages} for {size} ranks"
        if schedule == DUAL_V and parts < stages:
            return f"{schedule} of {stages} stages takes as many microbatches, or more"
        rounds = max(1, parts // size)
        if schedule in (INTERLEAVED, ZERO_BUBBLE) and parts % rounds:
            return f"{schedule} has rounds of equal size, and {parts} microbatches make no {rounds}"
        return None

    def learn(self, order: TrainStep, x: Array, y: Array) -> Generator[Part, None, Array | None]:
        """Follow the schedule: the list of moves that torch makes for this rank.

            entered[stage, part]   what goes into a stage, of a microbatch
            made[stage, part]      what comes out of it, for the next one
            saved[stage, part]     what its backward needs of its forward
            back[stage, part]      the gradient of what came out, from the stage behind
            grads[stage, part]     gradients of parameters that wait for their own move (BY_WEIGHT)

        A receive is started where the schedule has it, and waited for only where its tensor is
        used; sends are waited for at the end, as in torch's own schedules.
        """
        self.know_loss(order, x, y)
        said, parts, last = self._said, self._said.n_microbatches, len(self._said.stages) - 1
        xs, ys = _microbatches(x, y, parts)
        shapes = self._shapes(xs[0].shape)
        entered: dict[tuple[int, int], Array] = {(0, part): xs[part] for part in range(parts)}
        back: dict[tuple[int, int], Array] = {}
        saved: dict[tuple[int, int], Any] = {}
        grads: dict[tuple[int, int], Arrays] = {}
        made: dict[tuple[int, int], Array] = {}
        losses: dict[int, Array] = {}
        waited: dict[tuple[str, int, int], str] = {}
        sent: list[str] = []
        for kind, stage, part in order_of(
            said.schedule, self._at, self._group.size, last + 1, parts
        ):
            key = (stage, part)
            if kind in (RECV_F, RECV_B):
                forward = kind == RECV_F
                buffer = np.zeros(shapes[stage if forward else stage + 1], np.float32)
                (entered if forward else back)[key] = buffer
                peer = self._peer(stage - 1 if forward else stage + 1)
                handle = f"{self.model.name} {kind}{stage} {part}"
                waited[kind, stage, part] = handle
                yield self._call("irecv", peer, buffer, handle)
            elif kind in (SEND_F, SEND_B):
                forward = kind == SEND_F
                value = made[key] if forward else back.pop((stage - 1, part))
                peer = self._peer(stage + 1 if forward else stage - 1)
                handle = f"{self.model.name} {kind}{stage} {part}"
                sent.append(handle)
                yield self._call("isend", peer, value.copy(), handle)
            elif kind == FORWARD:
                yield from self._arrive(waited, (RECV_F, stage, part))
                y_, saved[key] = self._networks[stage].forward(self.params, entered[key])
                made[key] = y_
                if stage < last:
                    entered[stage + 1, part] = y_
                else:
                    losses[part], back[key] = self.model.loss.value(y_, ys[part])
            elif kind == BY_WEIGHT:
                self.add_gradients(grads.pop(key))
            else:
                yield from self._arrive(waited, (RECV_B, stage, part))
                dx, found = self._networks[stage].backward(self.params, saved.pop(key), back[key])
                back[stage - 1, part] = dx
                if kind == BACKWARD:
                    self.add_gradients(found)
                else:
                    grads[key] = found
        yield from self._wait(sent)
        return self._finish(losses)

    def _finish(self, losses: Mapping[int, Array]) -> Array | None:
        """Divide the gradients, and return the loss where it is known."""
        parts = self._said.n_microbatches
        if self._said.scale_grads:
            factor = np.float32(1 / parts)
            self.grads = {name: value * factor for name, value in self.grads.items()}
        if not losses:
            return None
        every = [losses[part] for part in range(parts)]
        joined = np.sum if self.model.loss.reduction == "sum" else np.mean
        return np.asarray(joined(every), np.float32)

    def _shapes(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shapes of what enters each stage, and of what leaves the last."""
        layers = dict(self.model.network.layers)
        found = [shape]
        for labels in self._said.stages:
            for label in labels:
                shape = layers[label].output_shape(shape)
            found.append(shape)
        return found

    def _peer(self, stage: int) -> int:
        return self._said.rank_of(stage, self._group.size)

    def _call(self, name: str, peer: int, tensor: Array, handle: str) -> Part:
        side = "group_dst" if name == "isend" else "group_src"
        made = call(name, self._group, tensor=tensor, **{side: peer})
        return Part(
            operation=made.operation, group=made.group, arguments=made.arguments, handle=handle
        )

    def _arrive(self, waited: dict[tuple[str, int, int], str], key: Any) -> Calls:
        handle = waited.pop(key, None)
        yield from self._wait([] if handle is None else [handle])

    def _wait(self, handles: list[str]) -> Calls:
        if handles:
            wait = operation_named("wait")
            yield Part(operation=wait, group=self._group, arguments={"handles": handles})


def _microbatches(x: Array, y: Array, parts: int) -> tuple[list[Array], list[Array]]:
    """Return the parts of a batch; DataError where the target has other rows than the input."""
    if not y.ndim or len(x) != len(y):
        message = f"no microbatches are made here of a target of {list(y.shape)}"
        raise DataError(message)
    if len(x) % parts:
        message = f"{len(x)} rows do not divide into {parts} microbatches of one size"
        raise DataError(message)
    return np.split(x, parts), np.split(y, parts)
