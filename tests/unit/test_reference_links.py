"""Who met whom, as a predicted trace names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch_scenarios

if TYPE_CHECKING:
    from pathlib import Path


def links_of(text: str, folder: Path) -> list[dict[int, tuple[str, ...]]]:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return [
        dict(rank.links) for rank in torch_scenarios.simulate(torch_scenarios.plan(scenario)).ranks
    ]


def test_members_of_a_collective_share_its_name(tmp_path: Path) -> None:
    text = (
        "world_size: 3\ngroups: {pair: [0, 2]}\ntensors: {x: [1]}\nsteps:\n"
        "- {all_reduce: {tensor: x, group: pair}}\n- {barrier: {}}\n"
        "- {all_reduce: {tensor: x, group: pair}}\n"
    )
    both = {0: ("pair:0",), 1: ("world:0",), 2: ("pair:1",)}
    assert links_of(text, tmp_path) == [both, {0: ("world:0",)}, both]


def test_both_ends_of_a_message_share_its_name(tmp_path: Path) -> None:
    text = (
        "world_size: 2\ntensors: {x: [1], y: [0]}\nsteps:\n"
        "- {ranks: 0, isend: {tensor: x, dst: 1, tag: 7}, as: a}\n"
        "- {ranks: 0, send: {tensor: x, dst: 1, tag: 7}}\n- {ranks: 0, wait: a}\n"
        "- {ranks: 1, recv: {tensor: y, tag: 7}}\n- {ranks: 1, recv: {tensor: y, src: 0, tag: 7}}\n"
    )
    messages = {0: ("world:0>1#7:0",), 1: ("world:0>1#7:1",)}
    assert links_of(text, tmp_path) == [messages, messages]


def test_a_receive_that_met_nobody_names_no_message(tmp_path: Path) -> None:
    text = (
        "world_size: 2\ntensors: {x: [1], y: [0]}\nsteps:\n"
        "- {ranks: 1, recv: {tensor: y, src: 0}}\n- {ranks: 0, recv: {tensor: y, src: 1}}\n"
    )
    assert links_of(text, tmp_path) == [{0: ("world:1>0#0:?0",)}, {0: ("world:0>1#0:?0",)}]
