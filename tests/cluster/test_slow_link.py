"""A link that is slow, or that loses packets, costs time and no verdict.

TCP waits longer and sends again; what is silent for a moment is not lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import link
import pytest

if TYPE_CHECKING:
    from hosts import Hosts

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]

CORPUS = Path(__file__).parents[2] / "scenarios"
#: files that pass over two hosts of two ranks, with one call each or a few
FILES = (
    "collectives/all_gather_single.yaml",
    "collectives/all_reduce_sum.yaml",
    "collectives/all_to_all_uneven.yaml",
    "collectives/reduce_scatter.yaml",
    "collectives/two_broadcasts.yaml",
)
#: seconds that they may take over such a link, with every core busy
RUN_S = 600.0
LINKS = {"100 ms": (0.1, 0.0), "2 % loss": (0.0, 0.02), "both": (0.1, 0.02)}
STUCK = """\
world_size: 4
tensors: {x: [1]}
steps:
  - {send: {tensor: x, dst: "(rank + 2) % 4"}}
  - {recv: {tensor: x, src: "(rank + 2) % 4"}}
expect:
  outcome: deadlock
  diagnosis: circular_wait
"""
DIES = """\
world_size: 4
steps:
  - {ranks: 3, fault: kill}
expect:
  outcome: crash
  dies: {3: SIGKILL}
"""
#: too much for one packet: what is lost of it is sent again
LARGE = """\
world_size: 4
tensors: {x: "full(100_000, rank)"}
steps:
  - {all_reduce: {tensor: x}, expect: {x: "full(100_000, 6)"}}
"""


@pytest.fixture(autouse=True)
def able() -> None:
    """Skip where no link can be slowed down, with the reason."""
    reason = link.why_not()
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("launcher", ["scenario", "torchrun"])
@pytest.mark.parametrize("kind", LINKS)
def test_a_bad_link_costs_no_verdict(hosts: Hosts, kind: str, launcher: str) -> None:
    folder = hosts.folder / "scenarios"
    folder.mkdir()
    (folder / "large.yaml").write_text(LARGE, encoding="utf-8")
    (folder / "stuck.yaml").write_text(STUCK, encoding="utf-8")
    if launcher == "scenario":  # a launch of torchrun's would end there
        (folder / "dies.yaml").write_text(DIES, encoding="utf-8")
    delay_s, loss = LINKS[kind]
    hosts.impair(1, delay_s=delay_s, loss=loss)
    start = hosts.spread if launcher == "scenario" else hosts.launch
    start(str(folder), *(str(CORPUS / name) for name in FILES))
    ended = hosts.ended(RUN_S)
    assert set(ended.codes) == {0}, ended
    assert set(ended.verdicts.values()) == {"PASSED"}, ended
    assert {"large", "stuck"} < ended.verdicts.keys()
