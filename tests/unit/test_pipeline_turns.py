"""Turns of pipelines whose backward passes are in two: order, idle turns, what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_scenarios.cost.schedule import ZERO_BUBBLES, find_turns, part_of
from torch_scenarios.strategies.pipeline import ZERO_BUBBLE, ZERO_BUBBLE_V

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch_scenarios.cost.schedule import PipelineTurns

CASES = [
    (schedule, stages, count)
    for schedule in ZERO_BUBBLES
    for stages, count in ((2, 4), (4, 8), (4, 13), (8, 16))
    if schedule == ZERO_BUBBLE_V or count % (count // stages) == 0
]


def moves(turns: PipelineTurns) -> Iterator[tuple[int, int, tuple[str, int, int]]]:
    for stage, row in enumerate(turns.moves):
        for turn, move in enumerate(row):
            if move is not None:
                yield stage, turn, (move.kind, move.stage, move.part)


@pytest.mark.parametrize(("schedule", "stages", "count"), CASES)
def test_each_pass_is_taken_once_behind_what_it_needs(
    schedule: str, stages: int, count: int
) -> None:
    turns = find_turns(schedule, stages, count)
    parts = stages * ZERO_BUBBLES[schedule]
    done = {move: turn for _, turn, move in moves(turns)}
    assert set(done) == {
        (kind, part, nth) for kind in "FIW" for part in range(parts) for nth in range(count)
    }
    for (kind, part, nth), turn in done.items():
        needed = {
            "F": [("F", part - 1, nth)] * (part > 0),
            "I": [("I", part + 1, nth)] * (part < parts - 1) + [("F", part, nth)],
            "W": [("I", part, nth)],
        }[kind]
        assert all(done[each] < turn for each in needed), (kind, part, nth)
    own = {stage: [part_of(schedule, stages, stage, nth) for nth in range(parts // stages)]
           for stage in range(stages)}  # fmt: skip
    assert all(move[1] in own[stage] for stage, _, move in moves(turns))


@pytest.mark.parametrize(("stages", "count"), [(4, 8), (8, 24), (16, 48)])
def test_idle_turns_are_those_of_the_papers(stages: int, count: int) -> None:
    """ZB-H1 is idle for (p - 1)(F + B - W), ZB-V for nothing, where each takes a turn.

    Qi et al. (arXiv 2401.10241, 2.1 and 6). A stage of ZB-V begins when the first message comes.
    """
    turns = find_turns(ZERO_BUBBLE, stages, count)
    assert turns.count - 3 * count == stages - 1
    for row in find_turns(ZERO_BUBBLE_V, stages, count).moves:
        busy = [turn for turn, move in enumerate(row) if move is not None]
        assert busy[-1] - busy[0] + 1 == len(busy) == 6 * count


@pytest.mark.parametrize(("stages", "count"), [(4, 8), (8, 24)])
def test_stages_keep_what_1f1b_keeps_at_most(stages: int, count: int) -> None:
    """All stages keep p microbatches, as the first of 1F1B does (the paper's table 1, and 6)."""
    for schedule, parts in ZERO_BUBBLES.items():
        turns = find_turns(schedule, stages, count)
        kept = [max(map(sum, turns.count_kept(stage, lambda _: 1))) for stage in range(stages)]
        assert kept == [stages * parts] * stages
