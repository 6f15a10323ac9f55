"""The same batches dealt to other ranks: which trainings depend on that, and which do not."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from recorded_steps import train_on_tokens
from recordings import SCRIPTS
from safetensors.numpy import save_file
from sampling import sampled

import torch_scenarios
from torch_scenarios.cli import cli
from torch_scenarios.record.values.deal import insert_batch
from torch_scenarios.record.values.format.record import ValueRecord
from torch_scenarios.record.values.redeal import compare_dealings, write_plan
from torch_scenarios.record.values.source import frames_of_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from recordings import Recording

FOLDER = SCRIPTS / "values" / "redeal"
REDEAL = ("-n", "2", "--redeal")


def line_of(script: str, mark: str) -> int:
    text = (FOLDER / script).read_text(encoding="utf-8")
    (found,) = [n for n, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {mark}")]
    return found


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    sampled(
        [
            ("norm_of_own_rows.py", "`1` (BatchNorm1d) is the first module whose rows depend on"),
            ("mean_of_own_tokens.py", "the forward pass of each row is the same"),
            ("lines_of_own_tokens.py", "the forward pass of each row is the same"),
        ],
        3,
    ),
)
def test_a_gradient_that_depends_on_the_dealing_is_found(
    recording: Recording, script: str, words: str
) -> None:
    ran = recording.of(f"values/redeal/{script}", *REDEAL)
    assert ran.code == 1, ran.output
    assert "error[depends_on_dealing]" in ran.output
    assert f"{script}:{line_of(script, 'depends_on_dealing')}:" in ran.output
    assert words in " ".join(ran.output.split())
    assert [each["code"] for each in ran.result["problems"]] == ["depends_on_dealing"]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "kind"), sampled([("own_data.py", "rows"), ("norm_of_each_row.py", "ranks")], 2)
)
def test_a_right_gradient_does_not_depend_on_it(
    recording: Recording, script: str, kind: str
) -> None:
    ran = recording.of(f"values/redeal/{script}", "-n", "2", "--redeal", kind)
    assert ran.code == 0, ran.output
    assert "36 gradients do not depend on the dealing" in ran.output


@pytest.mark.torch
@pytest.mark.nightly
def test_data_that_are_dealt_to_the_ranks_twice_are_found(recording: Recording) -> None:
    ran = recording.of("values/redeal/own_data.py", *REDEAL, TWICE="1")
    assert ran.code == 1, ran.output
    assert "error[same_samples]: the sampler deals a dataset of 24 rows to 2 ranks" in ran.output
    assert f"own_data.py:{line_of('own_data.py', 'same_samples')}:" in ran.output


@pytest.mark.torch
@pytest.mark.nightly
@pytest.mark.slow
def test_a_vote_of_signs_is_another_algorithm_and_no_mistake(recording: Recording) -> None:
    ran = recording.of("values/redeal/votes.py", *REDEAL)
    assert ran.code == 3, ran.output
    assert f"in place of gradients (line {line_of('votes.py', 'votes')}): a vote" in ran.output
    assert "another_algorithm" in ran.output


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("draws", "words"),
    sampled(
        [
            (
                "numpy",
                f"drawn before the backward pass (line {line_of('draws_itself.py', 'pass')})",
            ),
            (
                "random",
                f"drawn before the backward pass (line {line_of('draws_itself.py', 'pass')})",
            ),
            ("closure", "the step of the optimizer computes gradients itself (line"),
        ],
        3,
    ),
)
def test_why_a_dealing_is_not_compared_is_named(
    recording: Recording, draws: str, words: str
) -> None:
    ran = recording.of("values/redeal/draws_itself.py", *REDEAL, DRAWS=draws)
    assert ran.code == 3, ran.output
    assert words in " ".join(ran.output.split())


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_a_line_names_the_batch_where_there_is_no_loader(recording: Recording) -> None:
    script = "tokens_of_all.py"
    ran = recording.of(f"values/redeal/{script}", *REDEAL)
    assert ran.code == 3, ran.output
    assert "`--batch tokens_of_all.py:24`" in ran.output
    line = f"{script}:{line_of(script, 'batch')}"
    ran = recording.of(f"values/redeal/{script}", *REDEAL, "--batch", line)
    assert ran.code == 0, ran.output
    assert "18 gradients do not depend on the dealing" in ran.output


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("means", ["", "1"])
def test_microbatches_that_are_cut_by_hand_are_dealt_by_their_line(
    recording: Recording, means: str
) -> None:
    script = "microbatches_by_hand.py"
    line = f"{script}:{line_of(script, 'batch')}"
    ran = recording.of(f"values/redeal/{script}", *REDEAL, MEANS=means)
    assert ran.code == 3, ran.output
    assert f"`--redeal micro --batch {line}` deals its rows" in " ".join(ran.output.split())
    dealt = ("-n", "2", "--redeal", "micro", "--batch", line)
    ran = recording.of(f"values/redeal/{script}", *dealt, MEANS=means)
    assert ran.code == int(bool(means)), ran.output


@pytest.mark.torch
@pytest.mark.slow
def test_a_module_may_be_allowed_to_make_the_difference(recording: Recording) -> None:
    ran = recording.of("values/redeal/norm_of_own_rows.py", *REDEAL, "--allow", "BatchNorm1d")
    assert ran.code == 0, ran.output
    assert "only `1` makes a difference, which is allowed" in ran.output


@pytest.mark.torch
@pytest.mark.nightly
@pytest.mark.slow
def test_a_lower_precision_rounds_and_is_no_mistake(recording: Recording) -> None:
    ran = recording.of("values/redeal/autocast.py", *REDEAL)
    assert ran.code == 0, ran.output
    ran = recording.of("values/redeal/autocast.py", *REDEAL, TOKENS="own")
    assert ran.code == 1, ran.output
    assert "error[depends_on_dealing]" in ran.output


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_random_masks_are_not_a_mistake(recording: Recording) -> None:
    ran = recording.of("values/redeal/draws_masks.py", *REDEAL)
    assert ran.code == 3, ran.output
    assert "random_in_forward" in ran.output
    ran = recording.of("values/redeal/draws_masks.py", *REDEAL, "--no-dropout")
    assert ran.code == 0, ran.output


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "script", "mistake", "words"),
    sampled(
        [
            ("micro", "microbatches.py", "means", "the forward pass of each row is the same"),
            ("world", "any_world.py", "two", "half as many ranks"),
            ("world", "shards.py", "again", "half as many ranks"),
            ("resume", "resumes.py", "momentum", "the same gradients move the weights in another"),
            ("resume", "resumes.py", "schedule", "the learning rate is 0.05, and 0.00625 without"),
            ("resume", "resumes.py", "rows", "it trains on other rows: 0 of 8 are the same"),
        ],
        4,
    ),
)
def test_what_depends_on_microbatches_ranks_or_a_stop_is_found(
    recording: Recording, kind: str, script: str, mistake: str, words: str
) -> None:
    code = "resumes_otherwise" if kind == "resume" else "depends_on_dealing"
    ran = recording.of(f"values/redeal/{script}", "-n", "2", "--redeal", kind, MISTAKE=mistake)
    assert ran.code == 1, ran.output
    assert [each["code"] for each in ran.result["problems"]] == [code]
    assert f"{script}:{line_of(script, code)}:" in ran.output
    assert words in " ".join(ran.output.split())
    assert not (FOLDER / "checkpoint.pt").exists()


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "script", "words"),
    sampled(
        [
            ("micro", "microbatches.py", "gradients do not depend on the dealing"),
            ("world", "any_world.py", "gradients do not depend on the dealing"),
            ("world", "shards.py", "gradients do not depend on the dealing"),
            ("resume", "resumes.py", "3 steps after a checkpoint are as without a stop"),
        ],
        4,
    ),
)
def test_what_depends_on_none_of_these_is_right(
    recording: Recording, kind: str, script: str, words: str
) -> None:
    ran = recording.of(f"values/redeal/{script}", "-n", "2", "--redeal", kind)
    assert ran.code == 0, ran.output
    assert words in ran.output


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("micro", "each step has one microbatch"),
        ("resume", "no checkpoint is written between two steps"),
    ],
)
def test_where_there_is_nothing_of_a_kind_it_is_not_known(
    recording: Recording, kind: str, words: str
) -> None:
    ran = recording.of("values/redeal/any_world.py", "-n", "2", "--redeal", kind)
    assert ran.code == 3, ran.output
    assert words in ran.output


@pytest.mark.torch
@pytest.mark.slow
def test_a_function_is_dealt_anew(record_program: Callable[..., Any]) -> None:
    found = record_program(train_on_tokens, world_size=2, redeal="rows")
    assert found.status == "FAILED"
    assert found.diagnoses == ("depends_on_dealing",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--redeal", "--batch", "other.py:3"], "names no line of the script"),
        (["--redeal", "--batch", "train.py:1"], "assigns no variables"),
        (["--allow", "BatchNorm1d"], "are for `--redeal`"),
        (["--redeal", "--fake"], "leave `--fake` out"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, options: list[str], words: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print()\n", encoding="utf-8")
    done = CliRunner().invoke(cli, ["record", *options, "--", str(script)])
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.parametrize(
    ("text", "line", "then"),
    [
        ("x = f()\ny = x\n", 1, "x = f()\nx = __scenario_batch__(x)\ny = x"),
        (
            "if a:\n    x, y = f()\n",
            2,
            "if a:\n    x, y = f()\n    x, y = __scenario_batch__(x, y)",
        ),
        ("for x, y in z:\n    g(x)\n", 1, "for x, y in z:\n    x, y = __scenario_batch__(x, y)\n"),
    ],
)
def test_a_line_becomes_a_batch(text: str, line: int, then: str) -> None:
    assert ast.unparse(insert_batch(text, "train.py", line)).startswith(then)


def test_without_a_record_a_batch_is_what_it_was() -> None:
    x, y = object(), object()
    assert torch_scenarios.batch(x) is x
    assert torch_scenarios.batch(x, y) == (x, y)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("loss = f(x)\nother = 1\nloss.backward()\n", 1),
        ("loss = f(x)\n(loss / 2).backward()\n", 1),
        ("f(x).backward()\n", 1),
        ("total = f(x)\ntotal.backward()\n", 1),
    ],
)
def test_the_line_of_a_loss_is_found(tmp_path: Path, text: str, line: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(text, encoding="utf-8")
    last = len(text.splitlines())
    record = ValueRecord(rank=0, settings={}, places={4: ((str(script), last, ""),)})
    assert frames_of_loss(record, 4)[0][1] == line
    assert frames_of_loss(record, 5) == ()


def write_dealing(
    folder: Path,
    calls: list[str],
    gradient: float,
    *,
    own: str = "",
    outputs: list[list[float]] | None = None,
    passes: int = 1,
) -> Path:
    """Write a step of ranks that call a module each, of two that all of them have.

    Each rank begins with a weight of its own in module `own`, and gets a row of `outputs`.
    """
    folder.mkdir()
    about = {"kind": "parameter", "shape": [2], "local": [2], "dtype": "float32", "root": 0}
    for rank, call in enumerate(calls):
        lines: list[Any] = [{"scenario_values": 1, "rank": rank, "steps": 1}]
        for number, name in enumerate(("one", "two")):
            more = {"constant": False, "frozen": False}
            value = f"h{number}{rank if name == own else ''}"
            lines.append(["p", number, f"{name}.weight", 0, value, {**about, **more}])
        lines += [
            ["b", 9, 0, 0, 0, [f"row {rank}"], None],
            ["dealt", 0, 0, 0, "followed"],
            ["out", 0, f"{call}#0", "Linear", 0],
            *[["bw", 0, 0]] * passes,
            ["o", 0, 0, 0, [0.1], [[0, "g"], [1, "g"]], [], []],
        ]
        text = "\n".join(map(json.dumps, lines)) + "\n"
        (folder / f"values-{rank:05d}.jsonl").write_text(text, encoding="utf-8")
        values = {
            f"gradient/{name}.weight": np.array([gradient, 1], np.float32)
            for name in ("one", "two")
        }
        if outputs is not None:
            values[f"out/{call}#0"] = np.array([outputs[rank]], np.float32)
        save_file(values, folder / f"values-{rank:05d}-step-0.safetensors")
    return folder


@pytest.mark.parametrize(
    ("calls", "dealt", "told"),
    [
        (["one", "two"], ["one", "two"], True),
        (["one", "one"], ["one", "one"], False),
        (["one", "two"], ["two", "one"], False),
    ],
)
def test_ranks_that_call_modules_of_their_own_are_not_dealt_to(
    tmp_path: Path, calls: list[str], dealt: list[str], *, told: bool
) -> None:
    first = write_dealing(tmp_path / "first", calls, 1)
    again = write_dealing(tmp_path / "dealt", dealt, 2)
    found = compare_dealings(first, again, write_dealing(tmp_path / "order", calls, 1))
    assert bool(found.findings) is not told
    words = "the ranks call different modules with their rows (rank 0: `one`; rank 1: `two`)"
    assert (words in found.reason) is told


@pytest.mark.parametrize("passes", [1, 2])
def test_an_order_that_matters_among_microbatches_names_the_other_dealing(
    tmp_path: Path, passes: int
) -> None:
    calls = ["one", "one"]
    first, dealt, order = (
        write_dealing(tmp_path / str(gradient), calls, gradient, passes=passes)
        for gradient in range(1, 4)
    )
    found = compare_dealings(first, dealt, order)
    assert "depends on the order of the rows on one and the same rank" in found.reason
    assert ("`--redeal micro`" in found.reason) is (passes > 1)


@pytest.mark.parametrize("first", [1.0, 1.5])
def test_rows_that_depend_on_their_padding_are_not_compared(tmp_path: Path, first: float) -> None:
    """A row of two comes to a batch of three; its padding may change what it is, or not."""
    calls, rows = ["one", "one"], [[1.0, 2.0], [3.0, 4.0, 5.0]]
    begun = write_dealing(tmp_path / "first", calls, 1, outputs=rows)
    padded = [[3.0, 4.0, 5.0], [first, 2.0, 0.0]]
    again = write_dealing(tmp_path / "dealt", calls, 2, outputs=padded)
    order = write_dealing(tmp_path / "order", calls, 1, outputs=rows)
    found = compare_dealings(begun, again, order)
    assert bool(found.findings) is (first == 1.0)
    assert ("depends on how far the row is padded" in found.reason) is (first != 1.0)


@pytest.mark.parametrize(("step", "is_told"), [(0, True), (1, False)])
def test_what_a_lower_precision_rounds_is_more_a_step_later(
    tmp_path: Path, step: int, *, is_told: bool
) -> None:
    """Weights that gradients of half precision have stepped are no longer quite alike."""
    calls, sides = ["one", "one"], {"first": 1.0, "dealt": 1.02, "order": 1.0}
    for name, gradient in sides.items():
        folder = write_dealing(tmp_path / name, calls, 1)
        for rank in range(2):
            with (folder / f"values-{rank:05d}.jsonl").open("a", encoding="utf-8") as more:
                more.write(json.dumps(["o", 0, 1, 0, [0.1], [[0, "g"], [1, "g"]], [], []]) + "\n")
            for at in range(2):
                values: dict[str, Any] = {
                    "gradient/one.weight": np.array([gradient if at == step else 1, 1], np.float32),
                    "out/one#0": np.array([[1.0, float(rank)]], np.float16),
                }
                save_file(values, folder / f"values-{rank:05d}-step-{at}.safetensors")
    found = compare_dealings(tmp_path / "first", tmp_path / "dealt", tmp_path / "order")
    assert bool(found.findings) is is_told
    assert found.reason == ""


@pytest.mark.parametrize("own", ["two", ""])
def test_ranks_with_a_head_of_their_own_are_not_dealt_to(tmp_path: Path, own: str) -> None:
    calls = ["one", "one"]
    first = write_dealing(tmp_path / "first", calls, 1, own=own)
    again = write_dealing(tmp_path / "dealt", calls, 2, own=own)
    found = compare_dealings(first, again, write_dealing(tmp_path / "order", calls, 1, own=own))
    assert bool(found.findings) is not bool(own)
    assert ("each rank trains `two.weight` from values of its own" in found.reason) is bool(own)


def test_a_further_run_that_ends_early_on_a_rank_is_not_compared(tmp_path: Path) -> None:
    first = write_dealing(tmp_path / "first", ["one", "one"], 1)
    again = write_dealing(tmp_path / "dealt", ["one", "one"], 2)
    path = again / "values-00000.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:4]), encoding="utf-8")
    (again / "values-00000-step-0.safetensors").unlink()
    found = compare_dealings(first, again, write_dealing(tmp_path / "order", ["one", "one"], 1))
    assert found.findings == ()
    assert "rank 0 takes no step in a further run" in found.reason


@pytest.mark.parametrize("rows", [[8, 8], [8, 16]])
def test_rows_of_datasets_of_other_lengths_are_dealt_by_content(
    tmp_path: Path, rows: list[int]
) -> None:
    first = write_dealing(tmp_path / "first", ["one", "one"], 1)
    for rank, length in enumerate(rows):
        path = first / f"values-{rank:05d}.jsonl"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for line in lines[1:]:
            if line[0] == "b":
                line[-1] = [rank]
        lines.append(["l", 9, 0, {"rows": length}])
        path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
        batch = {"0": np.array([[rank]], np.float32)}
        save_file(batch, first / f"values-{rank:05d}-batch-9-0-0.safetensors")
    plan = json.loads(write_plan(first, tmp_path / "again", "rows").read_text(encoding="utf-8"))
    assert plan["0"] == {
        "9-0-0": {"from": None, "to": None} if rows[0] != rows[1] else {"from": [0], "to": [1]}
    }
