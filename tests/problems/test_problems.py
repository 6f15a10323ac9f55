"""Wrong files, one kind of mistake each: the message is the whole of what their authors see.

Beside each `name.yaml` lies `name.txt`. After a change of wording write all of them anew, and read
the difference: `python tests/problems/test_problems.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torch_scenarios.errors import ScenarioError
from torch_scenarios.language import discover, load
from torch_scenarios.limits import DEFAULT

FOLDER = Path(__file__).parent
FILES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def told(name: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(name)
    return "".join(f"{problem}\n" for problem in caught.value.problems)


def codes(path: Path) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(path)
    return [problem.code for problem in caught.value.problems]


@pytest.mark.parametrize("name", FILES)
def test_message_is_the_golden_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    assert told(f"{name}.yaml") == Path(f"{name}.txt").read_text(encoding="utf-8"), (
        "`python tests/problems/test_problems.py` writes all of them anew: read the difference"
    )


def test_there_are_enough_and_none_without_its_message() -> None:
    assert len(FILES) >= 60
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_each_mistake_is_told_once_with_its_place_and_a_hint(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    with pytest.raises(ScenarioError) as caught:
        load(f"{name}.yaml")
    problems = caught.value.problems
    marks = [problem.mark for problem in problems if problem.mark]
    assert len(marks) == len(problems)
    places = [(mark.line, mark.column) for mark in marks]
    assert len(set(places)) == len(places)
    assert all(problem.hint for problem in problems)


def test_many_mistakes_are_all_told_in_the_order_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(FOLDER)
    with pytest.raises(ScenarioError) as caught:
        load("several_mistakes.yaml")
    lines = [problem.mark.line for problem in caught.value.problems if problem.mark]
    assert len(lines) >= 10
    assert lines == sorted(lines)


def test_a_file_beyond_the_bound_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_bytes(b"# " + b"x" * 10_000_000)
    assert codes(file) == ["file_too_large"]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"world_size: 2\nname: caf\xe9\n", (2, 10)),
        ("world_size: 2\n".encode("utf-16"), (1, 1)),
        (b"\x80", (1, 1)),
    ],
)
def test_a_file_that_is_not_utf8_is_told_where(
    content: bytes, place: tuple[int, int], tmp_path: Path
) -> None:
    file = tmp_path / "foreign.yaml"
    file.write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert problem.code == "not_utf8"
    assert problem.mark is not None
    assert (problem.mark.line, problem.mark.column) == place


def test_a_control_character_is_told_where(tmp_path: Path) -> None:
    file = tmp_path / "control.yaml"
    file.write_bytes(b"world_size: 2\nname: a\x07b\n")
    assert codes(file) == ["control_character"]


def test_an_anchor_bomb_is_stopped_at_its_bound(tmp_path: Path) -> None:
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join(rows), encoding="utf-8")
    assert codes(file) == ["alias_expansion"]


def test_aliases_within_the_bound_are_values_like_others(tmp_path: Path) -> None:
    file = tmp_path / "alias.yaml"
    file.write_text(
        "world_size: 2\ntensors: {x: &x [1, 2], y: *x}\nsteps:\n  - all_reduce: {tensor: y}\n",
        encoding="utf-8",
    )
    (scenario,) = load(file)
    assert scenario.tensors["x"] == scenario.tensors["y"]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_nesting_is_stopped_at_its_bound(opening: str, tmp_path: Path) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text(opening * 100_000, encoding="utf-8")
    assert codes(file) == ["nesting"]
    assert DEFAULT.max_nesting < 1000


def test_a_folder_without_the_file_says_where_one_of_that_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups" / "even.yaml").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScenarioError) as caught:
        discover(["even.yaml"])
    assert caught.value.problems[0].hint == f"did you mean {Path('groups', 'even.yaml')}?"
    with pytest.raises(ScenarioError) as caught:
        load("even.yaml")
    assert caught.value.problems[0].code == "file_not_found"


def test_an_unreadable_file_is_a_problem_not_a_traceback(tmp_path: Path) -> None:
    assert codes(tmp_path) == ["unreadable_file"]


if __name__ == "__main__":
    os.chdir(FOLDER)
    for each in FILES:
        Path(f"{each}.txt").write_text(told(f"{each}.yaml"), encoding="utf-8")
