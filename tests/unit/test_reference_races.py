"""What a race leaves undefined does not depend on the order in which the ranks came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import torch_scenarios
from torch_scenarios.expressions.values import Undefined

if TYPE_CHECKING:
    from pathlib import Path

BATCH = """\
world_size: 3
tensors:
  x: arange(2) + rank
  y: zeros(2)
steps:
  - batch_isend_irecv:
      - {op: isend, tensor: x, peer: (rank + 1) % 3}
      - {op: irecv, tensor: y, peer: (rank - 1) % 3}
    as: work
  - compute: {x: x + 1}
    ranks: RACING
  - wait: work
"""
MESSAGE = """\
world_size: 3
tensors:
  x: arange(2) + rank
  y: zeros(2)
steps:
  - isend: {tensor: x, dst: (rank + 1) % 3}
    as: sent
  - recv: {tensor: y, src: (rank - 1) % 3}
  - compute: {x: x + 1}
    ranks: RACING
  - wait: sent
"""
RECEIVED = BATCH.replace("x: x + 1", "y: y + 1")
COLLECTIVE = """\
world_size: 3
tensors:
  y: arange(2) + rank
steps:
  - all_reduce: {tensor: y, async_op: true}
    as: work
  - compute: {y: y + 1}
    ranks: RACING
  - wait: work
"""


def undefined(text: str, racing: list[int], folder: Path) -> set[int]:
    """Return the ranks that end with an undefined `y`."""
    path = folder / "race.yaml"
    path.write_text(text.replace("RACING", str(racing)), encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    trace = torch_scenarios.simulate(torch_scenarios.plan(scenario))
    assert {diagnosis.name for diagnosis in trace.diagnoses} == {"buffer_race"}
    held = [
        [each.writes["y"] for each in rank.events if "y" in each.writes] for rank in trace.ranks
    ]
    return {rank for rank, values in enumerate(held) if isinstance(values[-1], Undefined)}


@pytest.mark.parametrize("racing", [[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
def test_a_race_spoils_what_others_get_whoever_comes_first(
    racing: list[int], tmp_path: Path
) -> None:
    after = {(rank + 1) % 3 for rank in racing}
    assert undefined(BATCH, racing, tmp_path) == after
    assert undefined(MESSAGE, racing, tmp_path) == after
    assert undefined(RECEIVED, racing, tmp_path) == set(racing)
    assert undefined(COLLECTIVE, racing, tmp_path) == {0, 1, 2}


@pytest.mark.parametrize("racing", [0, 17, 31])
def test_many_ranks_are_spoiled_as_few_are(racing: int, tmp_path: Path) -> None:
    for text, spoiled in (
        (BATCH, {(racing + 1) % 32}),
        (RECEIVED, {racing}),
        (COLLECTIVE, set(range(32))),
    ):
        wide = text.replace("world_size: 3", "world_size: 32").replace("% 3", "% 32")
        assert undefined(wide, [racing], tmp_path) == spoiled


def test_ranks_that_wait_for_one_source_are_told_in_order(tmp_path: Path) -> None:
    path = tmp_path / "leaves.yaml"
    path.write_text(
        "world_size: 12\ntensors: {x: zeros(2)}\n"
        "steps:\n  - broadcast: {tensor: x, src: 0}\n    ranks: range(1, 12)\n",
        encoding="utf-8",
    )
    (scenario,) = torch_scenarios.load(path)
    waits = torch_scenarios.simulate(torch_scenarios.plan(scenario)).waits
    assert [(edge.waiter, edge.peer) for edge in waits] == [(rank, 0) for rank in range(1, 12)]
