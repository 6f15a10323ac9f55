"""Certificates: which level a case belongs to, and what is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_scenarios.conformance.certificate import FIRST, Certificate, LevelCount, places_of
from torch_scenarios.files import corpus_folder
from torch_scenarios.language import load
from torch_scenarios.limits import DEFAULT

X = "world_size: 2\ntensors: {x: [1], y: [0]}\n"
SEND = "  - {ranks: 0, send: {tensor: x, dst: 1}}\n  - {ranks: 1, recv: {tensor: y, src: 0}}\n"
PROGRAMS = {
    "p2p": f"{X}steps:\n{SEND}",
    "collectives": f"{X}steps: [{{all_reduce: {{tensor: x}}}}]\n",
    "groups": f"{X}groups: {{g: [0, 1]}}\nsteps:\n{SEND}  - all_reduce: {{tensor: x, group: g}}\n",
    "async": f"{X}steps:\n  - all_reduce: {{tensor: x, async_op: true}}\n    as: h\n  - wait: h\n",
    "objects": "world_size: 2\nobjects: {o: [1]}\n"
    "steps: [{broadcast_object_list: {object_list: o, src: 0}}]\n",
    "errors": f"{X}steps:\n  - broadcast: {{tensor: x, src: 7}}\n"
    "    expect: {raises: invalid_argument}\nexpect: {diagnosis: invalid_argument}\n",
    "hangs": f"{X}steps:\n  - {{ranks: 0, all_reduce: {{tensor: x}}}}\n"
    "expect: {outcome: deadlock, diagnosis: missing_participant}\n",
    "dtypes": "world_size: 2\ntensors: {x: {dtype: bfloat16, value: [1]}}\n"
    "steps: [{all_reduce: {tensor: x, async_op: true}, as: h}, {wait: h}]\n",
}


@pytest.mark.parametrize("level", PROGRAMS)
def test_a_case_belongs_to_the_last_level_that_it_needs(tmp_path: Path, level: str) -> None:
    path = tmp_path / "it.yaml"
    path.write_text(PROGRAMS[level])
    (place,) = places_of(load(path), DEFAULT, backend="mine", torch="2.13.0").values()
    assert place is not None
    assert place.level == level


@pytest.mark.parametrize("line", ["backends: [gloo]\n", 'torch: "<2.0"\n', "rpc"])
def test_a_case_that_is_not_for_the_backend_has_no_place(tmp_path: Path, line: str) -> None:
    path = tmp_path / "it.yaml"
    if line == "rpc":
        line = "functions: {f: {returns: x}}\n"  # a case for torch's RPC, and for no backend
        program = f"{X}{line}steps: [{{ranks: 0, rpc_sync: {{to: 1, func: f}}}}]\n"
    else:
        program = line + PROGRAMS["p2p"]
    path.write_text(program)
    (place,) = places_of(load(path), DEFAULT, backend="mine", torch="2.13.0").values()
    assert place is None


@pytest.mark.parametrize("line", ["expect: {gloo: {x: [3]}}\n", "tags: [surprises]\n"])
def test_what_gloo_does_otherwise_is_asked_of_no_other_backend(tmp_path: Path, line: str) -> None:
    path = tmp_path / "it.yaml"
    path.write_text(line + PROGRAMS["collectives"])
    (place,) = places_of(load(path), DEFAULT, backend="mine", torch="2.13.0").values()
    assert place is None
    (place,) = places_of(load(path), DEFAULT, backend="gloo", torch="2.13.0").values()
    assert place is not None


@pytest.mark.parametrize("end", ["recv", "barrier"])
def test_what_a_buffer_lets_pass_is_asked_of_no_backend(tmp_path: Path, end: str) -> None:
    path = tmp_path / "it.yaml"
    sends = "  - {ranks: 0, send: {tensor: x, dst: 1}}\n"
    last = "  - {ranks: 1, recv: {tensor: y, src: 0}}\n" if end == "recv" else ""
    path.write_text(
        f"{X}steps:\n{sends}  - barrier: {{}}\n{last}"
        "expect: {outcome: [deadlock, completes], diagnosis: DIAGNOSIS}\n".replace(
            "DIAGNOSIS", "[buffering_hazard, circular_wait]" if last else "[buffering_hazard]"
        )
    )
    (place,) = places_of(load(path), DEFAULT, backend="mine", torch="2.13.0").values()
    assert place is None


#: programs of which right backends make different things, and what a file states of one
LEFT_OPEN = {
    # rank 1 sends one element of the two that rank 0 expects of it: a backend may notice
    "any end": """\
world_size: 2
tensors: {out: [1, 2, 3], got: {0: [0, 0, 0], 1: [0, 0, 0, 0]}}
steps:
  - all_to_all_single:
      {output: got, input: out, input_split_sizes: [1, 2],
       output_split_sizes: {0: [1, 2], 1: [2, 2]}}
expect: {outcome: STATED, diagnosis: shape_mismatch}
""",
    # a backend that connects in the first call of a group lets rank 0 pass
    "a group that one rank does not create": """\
world_size: 3
tensors: {x: [1]}
steps:
  - {ranks: [0, 2], new_group: {name: g, group_ranks: [0, 1]}}
expect: {outcome: STATED, diagnosis: missing_participant}
""",
}
STATED = {"any end": "completes", "a group that one rank does not create": "deadlock"}


@pytest.mark.parametrize("program", LEFT_OPEN)
def test_an_end_that_the_semantics_leave_open_is_asked_of_no_backend(
    tmp_path: Path, program: str
) -> None:
    path = tmp_path / "it.yaml"
    path.write_text(LEFT_OPEN[program].replace("STATED", STATED[program]))
    (place,) = places_of(load(path), DEFAULT, backend="mine", torch="2.13.0").values()
    assert place is None


def test_a_case_that_allows_every_end_is_asked_of_a_backend(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    every = "[completes, deadlock, error, crash]"
    path.write_text(LEFT_OPEN["any end"].replace("STATED", every))
    (place,) = places_of(load(path), DEFAULT, backend="mine", torch="2.13.0").values()
    assert place is not None


def test_a_barrier_that_one_rank_does_not_reach_is_asked_of_a_backend(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    path.write_text(
        f"{X}steps: [{{ranks: 0, barrier: {{}}}}]\n"
        "expect: {outcome: deadlock, diagnosis: missing_participant}\n"
    )
    (place,) = places_of(load(path), DEFAULT, backend="mine", torch="2.13.0").values()
    assert place is not None


def test_the_twenty_first_files_are_there() -> None:
    assert len(set(FIRST)) == 20
    assert [name for name in FIRST if not (corpus_folder() / f"{name}.yaml").is_file()] == []


def test_a_level_without_a_case_that_passed_is_not_passed() -> None:
    found = Certificate(
        backend="<mine>",
        plugin="p",
        torch="2.13.0",
        levels={
            "p2p": LevelCount(run=2, passed=2, lacking=1, words=("tags",)),
            "groups": LevelCount(lacking=3, words=("subgroups",)),
            "async": LevelCount(run=9, passed=2, failed=tuple(f"f.yaml::{n}" for n in range(7))),
        },
    )
    assert found.levels_passed == ("p2p",)
    assert found.summary_of() == "<mine> passes 1 of 3 levels: p2p"
    assert found.lines() == [
        "level   run  passed  lacking  failed",
        "p2p       2       2        1       0  without tags",
        "groups    0       0        3       0  without subgroups",
        "async     9       2        0       7",
        *(f"  async: f.yaml::{number}" for number in range(5)),
        "  async: and 2 more",
        "<mine> passes 1 of 3 levels: p2p",
    ]
    assert "<mine>" not in found.badge()
