"""Minimise: what is left shows the same fault, and nothing of it can go alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from judging import writing
from random_programs import programs
from sampling import sampled

from benchmarks.scoreboard.catalogue import programs as scoreboard
from benchmarks.scoreboard.catalogue import sample
from torch_scenarios.cli import cli
from torch_scenarios.language.document import load_content
from torch_scenarios.language.format import format_file
from torch_scenarios.limits import DEFAULT
from torch_scenarios.minimize import (
    FaultSignature,
    MinimizeResult,
    NothingToMinimizeError,
    analysis_oracle,
    bare,
    ddmin,
    minimize,
    removals,
    remove_ranks,
    run_oracle,
    smaller_worlds,
)
from torch_scenarios.source.edit import spans

if TYPE_CHECKING:
    from benchmarks.scoreboard.program import Program
    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import Trace

CORPUS = Path(__file__).parents[2] / "scenarios"
#: programs with a fault; what is wrong with another one is what it costs
WRONG = [
    path
    for folder in ("wrong", "reported")
    for path in sorted((CORPUS / folder).rglob("*.yaml"))
    if not path.stem.endswith("_fixed") and "diagnosis:" in path.read_text(encoding="utf-8")
]
PATH = Path("small.yaml")


def minimized(
    text: str, *, path: Path = PATH, most: int = 10_000, number: int = 0
) -> MinimizeResult:
    scenario = load_content(path, text.encode())[number]
    return minimize(scenario, number, analysis_oracle(path, DEFAULT), most=most)


def shown(text: str, *, path: Path = PATH) -> FaultSignature:
    found = analysis_oracle(path, DEFAULT)(text)
    assert found is not None
    return found


def is_one_minimal(text: str, *, path: Path = PATH) -> bool:
    """Whether no node and no rank of a text can go without its fault."""
    oracle = analysis_oracle(path, DEFAULT)
    target = oracle(bare(text))
    size = int(spans(text).get("world_size").text)  # type: ignore[union-attr]
    worlds = (
        world
        for rank in range(size if size > 1 else 0)
        for world in smaller_worlds(text, size, [each for each in range(size) if each != rank])
    )
    return all(oracle(bare(each)) != target for each in (*removals(text, spans(text)), *worlds))


# ---------------------------------------------------------------------------- delta debugging


@given(st.lists(st.integers(0, 60), unique=True, min_size=1), st.data())
def test_ddmin_finds_what_is_needed(items: list[int], data: st.DataObject) -> None:
    needed = set(data.draw(st.lists(st.sampled_from(items), unique=True)))
    assert set(ddmin(items, lambda part: needed <= set(part))) == needed


@given(st.lists(st.integers(0, 12), unique=True, min_size=1), st.integers(0, 10**6))
def test_what_ddmin_leaves_is_one_minimal(items: list[int], seed: int) -> None:
    def holds(part: list[int]) -> bool:
        if part == items:
            return True
        return random.Random(f"{seed} {part}").random() < 0.2  # noqa: S311 -- no secret

    kept = ddmin(items, holds)
    assert holds(kept)
    smaller = [[each for each in kept if each != gone] for gone in kept]
    assert not any(holds(each) for each in smaller)


# ---------------------------------------------------------------------------- the property


@pytest.mark.parametrize("path", sampled(WRONG, 48), ids=lambda path: path.stem)
def test_a_wrong_program_stays_as_wrong_and_becomes_one_minimal(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    done = minimized(text, path=path)
    assert done.minimal
    assert shown(done.text, path=path) == done.signature
    assert done.signature.status == "PASSED"
    assert len(done.text) <= len(text)
    assert is_one_minimal(done.text, path=path)
    assert format_file(path, done.text.encode(), DEFAULT).decode() == done.text


@pytest.mark.parametrize(
    "program",
    sampled([each for each in sample(1, 5, scoreboard()) if not each.correct], 8),
    ids=lambda program: program.name,
)
def test_programs_of_the_scoreboard_become_one_minimal(program: Program) -> None:
    done = minimized(program.text)
    assert done.minimal
    assert shown(done.text) == done.signature
    assert is_one_minimal(done.text)


@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(programs(wrong=True))
def test_random_programs_become_one_minimal(text: str) -> None:
    found = shown(text)
    assume(found.shows_a_fault and found.status == "FAILED")
    done = minimized(text)
    assert done.minimal
    assert shown(done.text) == found
    assert len(done.text) <= len(text)
    assert is_one_minimal(done.text)


# ---------------------------------------------------------------------------- what is left

LONG = """\
# a header
description: Two of four ranks miss a barrier.
world_size: 4
parameters: {width: 6}
groups:
  half: [0, 3]
tensors:
  # what is summed
  x: "full(width, rank)"
  y: [1, 2, 3]
steps:
  - all_reduce: {tensor: x}

  # the one that hangs
  - name: the barrier  # here
    ranks: [0, 3]
    barrier: {}

  - for: {i: "range(8)"}
    steps:
      - all_reduce: {tensor: y}
expect:
  outcome: deadlock
  blocked: {"[0, 3]": the barrier, else: all_reduce}
  diagnosis: call_mismatch
"""


def test_places_in_a_script_stay_and_a_loop_of_other_turns_becomes_its_body() -> None:
    done = minimized(
        """\
world_size: 4
tensors:
  x: zeros(9)
  y: "[zeros(2) for i in range(4)]"
  z: zeros(2)
steps:
  - {all_reduce: {tensor: x}, at: train.py:9}
  - for: {i0: "range([3, 3, 3, 2][rank])"}
    steps:
      - all_reduce: {tensor: x}
        at: {3: "train.py:12", else: "train.py:13"}
  - {all_gather: {tensor_list: y, tensor: z}, at: train.py:14}
truncated: all
"""
    )
    assert done.text.count("\n  - ") == 2, done.text
    assert "world_size: 2" in done.text
    assert "train.py:13" in done.text
    assert "train.py:14" in done.text


def test_a_hang_on_purpose_passes_when_small() -> None:
    done = minimized(LONG)
    assert done.text == (
        "# a header\ndescription: Two of four ranks miss a barrier.\nworld_size: 2\ntensors:\n"
        "  y: [1]\nsteps:\n  # the one that hangs\n  - name: the barrier  # here\n    ranks: 1\n"
        "    barrier: {}\n\n  - all_reduce: {tensor: y}\nexpect:\n  outcome: deadlock\n"
        "  blocked: {0: all_reduce, 1: the barrier}\n  diagnosis: call_mismatch\n"
    )


def test_a_failing_program_fails_alike_when_small() -> None:
    done = minimized(LONG[: LONG.index("expect:")])
    assert done.signature.status == "FAILED"
    assert shown(done.text) == done.signature
    assert "expect" not in done.text


def test_a_wrong_value_keeps_its_operation() -> None:
    text = "world_size: 4\ntensors:\n  x: 'full(8, rank)'\n  y: [1]\nsteps:\n  - barrier: {}\n"
    text += "  - all_reduce: {tensor: x}\n    expect: {x: 'full(8, 7)'}\n  - compute: {y: y + 1}\n"
    done = minimized(text)
    assert done.text == (
        "world_size: 1\ntensors:\n  x: 'full(1, rank)'\nsteps:\n  - all_reduce: {tensor: x}\n"
        "    expect: {x: 'full(1, 7)'}\n"
    )


def test_what_is_left_is_laid_out_as_fmt_does() -> None:
    text = """\
world_size: 2
tensors: {x: [1], y: [2]}
steps:
    - {ranks:  0,send: {tensor: x , dst: 1}}
    - {ranks:  0,send: {tensor: y , dst: 1}}
    - {ranks: 1, recv:  {tensor: x, src: 0}}
expect: {outcome: deadlock, diagnosis: unmatched_send}
"""
    done = minimized(text)
    assert format_file(PATH, done.text.encode(), DEFAULT).decode() == done.text
    assert "\n  - {ranks: 0, send: {tensor: " in done.text


def test_one_case_of_a_matrix_is_left() -> None:
    text = (
        "world_size: 2\nmatrix:\n  n: [1, 2]\n  last: [0, 1]\ntensors: {x: 'full(n, 1)'}\nsteps:\n"
    )
    text += "  - ranks: 'rank <= last'\n    all_reduce: {tensor: x}\n"
    done = minimized(text, number=2)
    assert "matrix" not in done.text
    assert "ranks: 'rank <= 0'" in done.text


def test_one_of_the_cases_that_belong_together_is_left() -> None:
    text = (
        "world_size: 2\nmatrix: {n: [1, 2]}\ncases:\n  - {to: 0, at: 1}\n  - {to: 1, at: 0}\n"
        "tensors: {x: 'full(n, 1)'}\nsteps:\n  - ranks: at\n    send: {tensor: x, dst: to}\n"
    )
    done = minimized(text, number=3)
    assert "cases" not in done.text
    assert "matrix" not in done.text
    assert "dst: 1" in done.text


def test_a_program_without_fault_is_told() -> None:
    with pytest.raises(NothingToMinimizeError, match="PASSED, completes"):
        minimized("world_size: 2\nsteps:\n  - barrier: {}\n")


def test_a_program_that_is_unsupported_is_told_with_the_reason() -> None:
    text = (
        "world_size: 2\ntensors: {x: [[1, 2]]}\n"
        "models:\n  m:\n    layers: [{up: {Linear: {in_features: 2, out_features: 2}}}]\n"
        "    loss: mse_loss\n    optimizer: {SGD: {lr: 0.1}}\n"
        "    parallel: [DistributedDataParallel: {comm_hook: bf16_compress_hook}]\n"
        "steps:\n  - train: {model: m, input: x, target: x}\n"
    )
    with pytest.raises(NothingToMinimizeError, match=r"UNSUPPORTED: .*bf16_compress_hook"):
        minimized(text)


def test_the_budget_gives_the_smallest_so_far() -> None:
    done = minimized(LONG, most=3)
    assert not done.minimal
    assert done.attempts == 3
    assert shown(done.text) == done.signature


def test_an_interruption_gives_the_smallest_so_far() -> None:
    calls = 0
    oracle = analysis_oracle(PATH, DEFAULT)

    def impatient(text: str) -> FaultSignature | None:
        nonlocal calls
        calls += 1
        if calls == 12:
            raise KeyboardInterrupt
        return oracle(text)

    (scenario,) = load_content(PATH, LONG.encode())
    done = minimize(scenario, 0, impatient)
    assert done.interrupted
    assert len(done.text) < len(LONG)
    assert shown(done.text) == done.signature


def test_a_fault_of_a_run_is_kept_by_running() -> None:
    class Deviates:
        """Lets rank 1 hold something else after every all_reduce of x."""

        def run(self, plan: Plan, predicted: Trace) -> Trace:
            """Return the prediction with that change."""
            run = predicted
            for step in plan.scenario.steps:
                if step.operation is not None and step.operation.name == "all_reduce":
                    run = writing(step.index, 1, "x", [9])(run)
            return run

    text = "world_size: 3\ntensors: {x: [1], y: [2]}\nsteps:\n  - barrier: {}\n"
    text += "  - all_reduce: {tensor: x}\n  - compute: {y: y + 1}\n"
    (scenario,) = load_content(PATH, text.encode())
    done = minimize(scenario, 0, run_oracle(PATH, DEFAULT, Deviates()))
    assert done.text == ("world_size: 2\ntensors: {x: [1]}\nsteps:\n  - all_reduce: {tensor: x}\n")


# ---------------------------------------------------------------------------- ranks

WORLD = """\
world_size: 4
groups: {g: [1, 2], h: {partition: [[0, 3], [1, 2]]}, k: "range(2, 4)"}
tensors:
  x: {0: [1], "[1, 3]": [2], 2: [3]}
steps:
  - ranks: [1, 2]
    send: {tensor: x, dst: 3}
  - ranks: 3
    recv: {tensor: x, src: 1}
  - ranks: "rank == 3"
    barrier: {group: g}
"""


def test_a_rank_that_goes_takes_what_is_its_own() -> None:
    assert remove_ranks(WORLD, [0, 2, 3]) == (
        'world_size: 3\ngroups: {g: [1], h: {partition: [[0, 2], [1]]}, k: "range(1, 3)"}\n'
        "tensors:\n  x: {0: [1], 2: [2], 1: [3]}\nsteps:\n  - ranks: [1]\n"
        '    send: {tensor: x, dst: 2}\n  - ranks: "rank == 2"\n    barrier: {group: g}\n'
    )


def test_a_peer_that_goes_takes_the_step_or_is_another() -> None:
    assert "send" not in remove_ranks(WORLD, [0, 1, 2])
    assert "send: {tensor: x, dst: 0}" in remove_ranks(WORLD, [0, 1, 2], keep_peers=True)


# ---------------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.yaml").write_text(LONG, encoding="utf-8")
    return tmp_path


def called(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["minimize", *arguments])


def test_the_result_goes_to_standard_output_and_passes(folder: Path) -> None:
    result = called("long.yaml")
    assert result.exit_code == 0
    assert "4 ranks, 4 steps, 25 lines -> 2 ranks, 2 steps" in result.stderr
    assert "see whether it still fits" in result.stderr
    (folder / "small.yaml").write_text(result.stdout, encoding="utf-8")
    assert CliRunner().invoke(cli, ["check", "small.yaml"]).exit_code == 0


def test_a_case_is_named_and_a_missing_one_told(folder: Path) -> None:
    text = LONG.replace("parameters: {width: 6}", "matrix: {width: [6, 7]}")
    (folder / "long.yaml").write_text(text, encoding="utf-8")
    assert called("long.yaml::width=7").exit_code == 0
    result = called("long.yaml::width=8")
    assert result.exit_code == 2
    assert "it has: long[width=6], long[width=7]" in result.stderr


def test_without_a_fault_it_exits_1(folder: Path) -> None:
    (folder / "good.yaml").write_text("world_size: 2\nsteps: [barrier: {}]\n", encoding="utf-8")
    result = called("good.yaml")
    assert result.exit_code == 1
    assert "there is no fault to keep: good (PASSED, completes)" in result.stderr
    assert result.stdout == ""


def test_an_invalid_or_missing_file_exits_2(folder: Path) -> None:
    (folder / "bad.yaml").write_text("world_size: 0\n", encoding="utf-8")
    assert called("bad.yaml").exit_code == 2
    assert called("none.yaml").exit_code == 2
    (folder / "part.yaml").write_text("inputs: [x]\nsteps: [barrier: {}]\n", encoding="utf-8")
    assert "is a part" in called("part.yaml").stderr
