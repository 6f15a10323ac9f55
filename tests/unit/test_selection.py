"""Which cases a command line means: a case, a line, a shard, what failed, and in which order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from torch_scenarios.errors import ScenarioError, Source
from torch_scenarios.language import load
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.pipeline.results import Selection, Shard
from torch_scenarios.pipeline.selection import (
    arrange,
    key_of,
    load_all,
    part,
    place_of,
    shuffle,
    step_at,
)

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
world_size: 2
matrix: {n: [1, 2]}
tensors: {x: "full(n, 1)"}
steps:
  - all_reduce: {tensor: x}
    expect:
      x: "full(n, 2)"

  # between two steps
  - for: {i: "range(2)"}
    steps:
      - barrier: {}
      - name: again
        all_reduce:
          tensor: x
  - {name: flow, all_reduce: {
      tensor: x}}
expect:
  outcome: completes
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sum.yaml").write_text(TEXT, encoding="utf-8")
    (tmp_path / "other.yaml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def selected(*paths: str) -> list[str]:
    return [scenario.case for scenario in load_all(Selection(paths=paths)).scenarios]


def refused(path: str) -> str:
    with pytest.raises(ScenarioError) as raised:
        load_all(Selection(paths=(path,)))
    (problem,) = raised.value.problems
    assert problem.code == "unknown_place"
    return f"{problem.message}; {problem.hint}"


def test_a_case_is_selected_as_headlines_print_it(folder: Path) -> None:
    assert selected(f"{folder}/sum.yaml::sum[n=2]") == ["sum[n=2]"]
    assert selected(f"{folder}/sum.yaml::sum") == ["sum[n=1]", "sum[n=2]"]


def test_places_of_one_file_add_up_and_the_whole_file_is_all(folder: Path) -> None:
    one, two = f"{folder}/sum.yaml::sum[n=1]", f"{folder}/sum.yaml::sum[n=2]"
    assert selected(two, one) == ["sum[n=1]", "sum[n=2]"]
    assert selected(one, str(folder)) == ["sum[n=1]", "sum[n=2]", "other[n=1]", "other[n=2]"]


def test_a_line_selects_every_case_of_its_file(folder: Path) -> None:
    for place in ("sum.yaml:5", "sum.yaml:5:7", "sum.yaml:5:7:", "sum.yaml:1"):
        assert selected(f"{folder}/{place}") == ["sum[n=1]", "sum[n=2]"]


def test_a_place_that_is_not_there_is_refused_with_what_is(folder: Path) -> None:
    assert "did you mean" in refused(f"{folder}/sum.yaml::sum[n=3]")
    assert "it has sum[n=1], sum[n=2]" in refused(f"{folder}/sum.yaml::zzz")
    assert "the file has 19 lines" in refused(f"{folder}/sum.yaml:20")
    assert "the file has 19 lines" in refused(f"{folder}/sum.yaml:0")


def test_an_invalid_file_is_told_before_a_place_in_it(folder: Path) -> None:
    (folder / "bad.yaml").write_text("world_size: two\n", encoding="utf-8")
    loaded = load_all(Selection(paths=(f"{folder}/bad.yaml::x",)))
    assert [result.verdict.status for result in loaded.invalid] == ["INVALID"]


def test_a_file_may_have_the_name_of_a_place(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml:7"
    path.write_text(TEXT, encoding="utf-8")
    assert place_of(str(path)).whole
    assert selected(str(path)) == ["odd[n=1]", "odd[n=2]"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (1, None),
        (4, None),
        (5, 0),
        (7, 0),
        (8, None),
        (9, None),
        (10, 1),
        (12, 2),
        (13, 3),
        (15, 3),
        (16, 4),
        (17, 4),
        (18, None),
        (19, None),
    ],
)
def test_the_innermost_step_at_a_line_is_found(folder: Path, line: int, named: int | None) -> None:
    step = step_at(load(folder / "sum.yaml")[0], line)
    assert (None if step is None else step.index) == named


# ---------------------------------------------------------------------------- parts and orders


def scenarios(count: int) -> list[Scenario]:
    sources = [Source(path=f"{at % 3}.yaml", text="") for at in range(count)]
    return [
        Scenario(source=source, name="n", case=f"n[{at}]", world_size=1)
        for at, source in enumerate(sources)
    ]


@given(count=st.integers(0, 60), of=st.integers(1, 12))
def test_shards_are_disjoint_complete_and_balanced(count: int, of: int) -> None:
    whole = scenarios(count)
    shards = [part(whole, Shard(number=number, of=of)) for number in range(1, of + 1)]
    assert Counter(each.case for shard in shards for each in shard) == Counter(
        each.case for each in whole
    )
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1
    assert shards == [part(whole, Shard(number=number, of=of)) for number in range(1, of + 1)]


@given(count=st.integers(0, 30), seed=st.integers())
def test_a_seed_gives_one_order_whatever_order_the_files_came_in(count: int, seed: int) -> None:
    whole = scenarios(count)
    found = shuffle(whole, seed)
    assert shuffle(whole[::-1], seed) == found
    assert sorted(each.case for each in found) == sorted(each.case for each in whole)


@given(
    count=st.integers(1, 30),
    of=st.integers(1, 4),
    seed=st.none() | st.integers(),
    remembered=st.lists(st.sets(st.integers(0, 29)), min_size=4, max_size=4),
)
def test_shards_stay_disjoint_and_complete_with_failures_first_and_any_order(
    count: int, of: int, seed: int | None, remembered: list[set[int]]
) -> None:
    whole = scenarios(count)
    found: list[str] = []
    for number in range(1, of + 1):
        failed = frozenset(key_of(whole[at]) for at in remembered[number - 1] if at < count)
        selection = Selection(
            paths=(),
            seed=seed,
            shard=Shard(number=number, of=of),
            failed=failed,
            failed_first=True,
        )
        kept, _ = arrange(whole, selection)
        states = [key_of(each) in failed for each in kept]
        assert states == sorted(states, reverse=True)
        found += [each.case for each in kept]
    assert sorted(found) == sorted(each.case for each in whole)


def test_only_what_failed_is_run_and_all_where_nothing_did() -> None:
    whole = scenarios(4)
    selection = Selection(paths=(), only_failed=True, failed=frozenset({key_of(whole[2])}))
    kept, notes = arrange(whole, selection)
    assert kept == [whole[2]]
    assert notes == ["only what did not pass the last time: 1 of 4"]
    kept, notes = arrange(whole, replace(selection, failed=frozenset()))
    assert kept == whole
    assert notes == ["nothing is known to have failed: all are run"]
    kept, notes = arrange(whole[:2], selection)
    assert kept == whole[:2]
    assert "not among the selected cases" in notes[0]
