"""The events that a rank writes of its values: what is written is what is read."""

from __future__ import annotations

import json
import types
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from torch_scenarios.errors import ScenarioError
from torch_scenarios.record.values.format.event import EVENTS, VERSION, NormClip, ValueEvent
from torch_scenarios.record.values.format.record import ValueRecord, read_values

#: what a field of a type may hold
PLAIN: dict[Any, Any] = {int: 7, float: 0.5, str: "x", bool: True, Any: [1, None]}

CLIP = ["clip", 0, 4, 2.5, 1.0, False, [0, 1]]


def value_of(kind: Any) -> Any:
    if kind in PLAIN:
        return PLAIN[kind]
    if get_origin(kind) is types.UnionType:
        return value_of(get_args(kind)[0])
    if get_origin(kind) is dict:
        return {value_of(each): value_of(get_args(kind)[1]) for each in get_args(kind)[:1]}
    parts = get_args(kind)
    return (value_of(parts[0]),) * 2 if parts[1:] == (...,) else tuple(map(value_of, parts))


def read_lines(folder: Path, *lines: Any, version: int = VERSION) -> ValueRecord:
    about = {"scenario_values": version, "rank": 0}
    text = "".join(f"{json.dumps(each)}\n" for each in (about, *lines))
    (folder / "values-00000.jsonl").write_text(text, encoding="utf-8")
    return read_values(folder)[0]


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_what_is_written_is_read(tmp_path: Path, kind: type[ValueEvent]) -> None:
    hints = get_type_hints(kind)
    values = {each.name: value_of(hints[each.name]) for each in fields(kind) if each.init}
    written = kind(**values)
    (found,) = read_lines(tmp_path, ["save", 0, 0], written.as_line()).of(kind)[-1:]
    assert found.at == 1
    written.at = 1
    assert found == written


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (CLIP[:-1], r"its line 3 \(`clip`\): .*missing required field `parameters`"),
        (["clip", 0, "4", *CLIP[3:]], r"its line 3 \(`clip`\): .*Expected `int`, got `str`"),
        ([*CLIP, 1], r"its line 3 \(`clip`\) has more than 6 fields"),
        (["clap", 0], r'its line 3 is \["clap", 0\]'),
        (["o", 0, 0], r'its line 3 is \["o", 0, 0\]'),
    ],
)
def test_a_line_that_is_no_event_is_refused(tmp_path: Path, line: list[Any], words: str) -> None:
    assert read_lines(tmp_path, CLIP).of(NormClip)[0].most == 1.0
    with pytest.raises(ScenarioError, match=words):
        read_lines(tmp_path, CLIP, line)


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=f"its version is 0, not {VERSION}"):
        read_lines(tmp_path, CLIP, version=0)
