"""In which turn a stage of a pipeline computes what, where the backward pass is in two.

What a stage computes, in order, is torch's (`strategies.pipeline`): ZB-H1 and ZB-V of zero bubble
(Qi et al., arXiv 2401.10241). A backward pass is one by the input, for which the stage before
waits, and one by the weights, which fills the time in which a stage would wait. Here each of these
gets a turn, the same for all stages, so that what a stage sends in a turn its neighbour receives in
the same turn. A turn in which a stage has nothing to do takes no time::

    ZB-H1, 4 stages, 4 microbatches

    stage 0   F0 F1 F2 F3 .. .. .. I0 W0 I1 W1 I2 W2 I3 W3
    stage 1   .. F0 F1 F2 .. .. I0 F3 I1 W0 I2 W1 I3 W2 W3
    stage 2   .. .. F0 F1 .. I0 F2 I1 F3 I2 W0 I3 W1 W2 W3
    stage 3   .. .. .. F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate

from msgspec import Struct

from torch_scenarios.strategies.pipeline import (
    BY_INPUT,
    FORWARD,
    INTERLEAVED,
    ZERO_BUBBLE,
    ZERO_BUBBLE_V,
    Move,
    list_turns,
)

#: schedules whose backward passes are in two, and how many parts of a model a stage has with each
ZERO_BUBBLES = {ZERO_BUBBLE: 1, ZERO_BUBBLE_V: 2}
#: schedules by the words that file names and reports have for them
WORDS = {INTERLEAVED: "1F1B", ZERO_BUBBLE: "ZB-H1", ZERO_BUBBLE_V: "ZB-V"}
#: a move as a number: this many kinds, of which 0 is nothing to do
KINDS = ("", "F", "I", "W")


class PipelineTurns(Struct, frozen=True, kw_only=True):
    """What each stage does turn by turn, None where nothing.

    `rooms` are what a part of a stage receives in: as many as activations, and as gradients, have
    come at once and are not used.

    >>> turns = find_turns("ScheduleZBVZeroBubble", stages=2, count=3)
    >>> [move.kind + str(move.stage) if move else ".." for move in turns.moves[0]][:8]
    ['F0', 'F0', 'F0', 'F3', 'I3', 'W3', 'F3', 'I3']
    >>> turns.rooms
    (2, 1)
    """

    moves: tuple[tuple[Move | None, ...], ...]
    rooms: tuple[int, int]

    @property
    def count(self) -> int:
        """How many turns there are."""
        return len(self.moves[0])

    def numbers(self, parts: int) -> list[list[int]]:
        """Return each move as a number: of its microbatch, its part on the stage, and its kind.

        A stage has `parts` of the model. A move is its microbatch times the parts, plus its part,
        times the kinds, plus its kind; 0 is nothing to do.
        """
        stages = len(self.moves)
        return [
            [
                0
                if move is None
                else (move.part * parts + move.stage // stages) * len(KINDS)
                + KINDS.index(move.kind)
                for move in row
            ]
            for row in self.moves
        ]

    def count_kept(self, stage: int, blocks: Callable[[int], int]) -> Iterator[tuple[int, int]]:
        """Yield the blocks that are kept of a stage behind each move: to go back by each half.

        The first are of passes that have gone forward alone, the second of those whose gradients of
        weights are left. `blocks` are those of a part of the model.
        """
        forward = back = 0
        for move in filter(None, self.moves[stage]):
            own = blocks(move.stage)
            if move.kind == FORWARD:
                forward += own
            elif move.kind == BY_INPUT:
                forward, back = forward - own, back + own
            else:
                back -= own
            yield forward, back


def part_of(schedule: str, stages: int, stage: int, nth: int) -> int:
    """Return the number in the model of the nth part of a stage: they go round, or there and back.

    >>> [part_of("ScheduleZBVZeroBubble", 4, stage=1, nth=nth) for nth in range(2)]
    [1, 6]
    """
    if schedule == ZERO_BUBBLE_V and nth == 1:
        return 2 * stages - 1 - stage
    return nth * stages + stage


@cache
def find_turns(schedule: str, stages: int, count: int) -> PipelineTurns:
    """Return the turns of a schedule, of so many microbatches.

    A stage takes its next move in the first turn that begins when what it waits for has come.

    >>> row = find_turns("ScheduleInterleavedZeroBubble", stages=4, count=4).moves[1]
    >>> " ".join(move.kind + str(move.part) if move else ".." for move in row)
    '.. F0 F1 F2 .. .. I0 F3 I1 W0 I2 W1 I3 W2 W3'
    """
    parts = stages * ZERO_BUBBLES[schedule]
    orders = [
        [move for turn in list_turns(schedule, stage, stages, parts, count) for move in turn]
        for stage in range(stages)
    ]
    rows: list[list[Move | None]] = [[] for _ in orders]
    place = [0] * stages
    done: dict[Move, int] = {}
    turn = 0
    while any(at < len(order) for at, order in zip(place, orders, strict=True)):
        now: list[Move] = []
        for stage, order in enumerate(orders):
            move = order[place[stage]] if place[stage] < len(order) else None
            needed = None if move is None else _find_needed(move, parts)
            if needed is not None and done.get(needed, turn) >= turn:
                move = None
            rows[stage].append(move)
            if move is not None:
                place[stage] += 1
                now.append(move)
        done |= dict.fromkeys(now, turn)
        turn += 1
    forwards, backs = (
        max(_count_rooms(row, kind, parts, done) for row in rows) for kind in (FORWARD, BY_INPUT)
    )
    return PipelineTurns(moves=tuple(map(tuple, rows)), rooms=(forwards, backs))


def _find_needed(move: Move, parts: int) -> Move | None:
    """Return the move that one needs, of the part before or behind; None where it needs none."""
    if move.kind == FORWARD and move.stage:
        return move._replace(stage=move.stage - 1)
    if move.kind == BY_INPUT and move.stage < parts - 1:
        return move._replace(stage=move.stage + 1)
    return None


def _count_rooms(row: Sequence[Move | None], kind: str, parts: int, done: dict[Move, int]) -> int:
    """Return how many messages of a kind, of one part, have come to a stage and are not used."""
    changes: dict[int, list[tuple[int, int]]] = {}
    for turn, move in enumerate(row):
        needed = _find_needed(move, parts) if move and move.kind == kind else None
        if move is not None and needed is not None:  # it is used before others come in its turn
            changes.setdefault(move.stage, []).extend([(done[needed], 1), (turn, -1)])
    return max(
        (max(accumulate(change for _, change in sorted(each))) for each in changes.values()),
        default=1,
    )
