"""`scenario parity`: n processes against one, right and with one mistake each."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from recorded_steps import averaged_step, lonely_step
from recordings import SCRIPTS
from sampling import sampled

from torch_scenarios.cli import cli
from torch_scenarios.errors import ScenarioError
from torch_scenarios.record.values.arrangement import (
    Arrangement,
    UnlikeError,
    arrange,
    read_tensor_file,
)
from torch_scenarios.record.values.deviation import (
    find_deviations,
    find_first_output,
    is_left_apart,
    name_arrangement,
)
from torch_scenarios.record.values.format.event import ModuleOutput
from torch_scenarios.record.values.format.record import ValueRecord

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.torch, pytest.mark.slow]

FOLDER = SCRIPTS / "values" / "parity"

#: script, its mistake, what is found, words of the report
WRONG = [
    ("data_parallel.py", "scaled", "not_equivalent", "1/2 times what one process"),
    ("data_parallel.py", "same", "same_samples", "8 of the 16 rows"),
    ("data_parallel.py", "uneven", "not_equivalent", "step 0, forward: the loss is"),
    ("data_parallel.py", "sched", "not_equivalent", "the learning rate is"),
    ("tensor_parallel.py", "back", "not_equivalent", "the sum over ranks 0 and 1"),
    ("tensor_parallel.py", "bare", "not_equivalent", "the gradients of `1.down.weight`, `1.up."),
    ("tensor_parallel.py", "front", "not_equivalent", "forward: the output of `0` (Block) on rank"),
    ("data_parallel.py", "norm", "not_equivalent", "the output of `1` (BatchNorm1d) on rank 0"),
    ("tensor_parallel.py", "slice", "wrong_arrangement", "8 of 16 rows of"),
    ("reduces_by_hand.py", "shifted", "not_equivalent", "before its own in the order of the param"),
    ("reduces_by_hand.py", "again", "not_equivalent", "it is reduced 2 times in a step, each time"),
    ("reduces_by_hand.py", "times", "not_equivalent", "(2 times as large), and"),
    ("zero_owners.py", "owner", "not_equivalent", "its weights are what this broadcast left"),
    ("zero_owners.py", "sum", "not_equivalent", "the optimizer reduces it, and the weight moves 2"),
    ("zero_owners.py", "rest", "not_equivalent", "and no rank's optimizer steps `4.bias`"),
    ("functional.py", "bias", "not_equivalent", "the weight `0.bias` on rank 0 "),
    ("pipeline_by_hand.py", "micro", "not_equivalent", "on rank 1 (4 times as large), and"),
    ("stages_of_one_model.py", "micro", "not_equivalent", "on rank 1 (4 times as large), and"),
    ("pipeline_by_hand.py", "clip", "not_equivalent", "multiplies them by a number of its own ("),
    ("clips_by_hand.py", "local", "not_equivalent", "multiplies them by a number of its own ("),
    ("experts_by_hand.py", "all", "not_equivalent", "0 and 1 hold other parts of this parameter"),
    ("experts_by_hand.py", "sum", "not_equivalent", "is 2 times what one process has"),
    ("derivatives.py", "own", "not_equivalent", "the mean over ranks 0 and 1 is what one process"),
    ("orthogonal_steps.py", "part", "not_equivalent", "exchanges values (all_gather) in its step"),
    ("loss_module.py", "twice", "not_equivalent", "is 1/2 times what one process has"),
    ("padded_tokens.py", "twice", "not_equivalent", "is 1/2 times what one process has"),
    ("vocabulary_loss.py", "gathered", "not_equivalent", "step 0, forward: the loss is 4.4"),
    ("pipeline_of_torch.py", "again", "not_equivalent", "on rank 1 (4 times as large), and"),
    ("unfreezes_later.py", "late", "not_equivalent", "step 2: the gradient of `0.2.bias` on rank"),
    ("hook_in_bfloat16.py", "sum", "not_equivalent", "times what one process has (there are 2"),
    ("standardised.py", "own", "not_equivalent", "by the statistics of this rank's own rows"),
    ("fsdp1.py", "scaled", "not_equivalent", "is 1/2 times what one process has (there are 2"),
    ("fsdp1.py", "mean", "not_equivalent", "times what one process has, by the root of 2: of"),
    ("fsdp1.py", "clip", "not_equivalent", "multiplies them by a number of its own ("),
    ("pipeline_by_hand.py", "last", "not_equivalent", "look at the gradient that each backward"),
    ("reduces_by_hand.py", "clip", "not_equivalent", "each rank clips it by a norm of its own ("),
    ("reduces_by_hand.py", "late", "not_equivalent", "the mean over ranks 0 and 1 is what one"),
    ("heads_of_whole_sequences.py", "turns", "not_equivalent", "values between `att.qkv` and this"),
    ("fsdp1.py", "flat-scaled", "not_equivalent", "is 1/2 times what one process has"),
    (
        "split_sequence.py",
        "positions",
        "not_equivalent",
        "no rank has rows 8 to 15: several ranks have",
    ),
    ("split_sequence.py", "labels", "not_equivalent", "shift the labels before they are split, so"),
    (
        "pipeline_with_criterion.py",
        "micro",
        "not_equivalent",
        "is the sum of 4 microbatches, each",
    ),
    ("autocast.py", "scaled", "not_equivalent", "is 1/1.999 times what one process has (there are"),
]


def test_tensors_that_are_a_fifo_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "values-00000-step-00000.safetensors"
    os.mkfifo(path)
    with pytest.raises(ScenarioError, match="it cannot be read"):
        read_tensor_file(path)


def test_tensors_come_in_the_order_of_their_file(tmp_path: Path) -> None:
    names = [f"before/{number}.{part}" for number in (3, 1, 2) for part in ("weight", "bias")]
    place = {"dtype": "F32", "shape": [1]}
    header = json.dumps(
        {name: {**place, "data_offsets": [4 * at, 4 * at + 4]} for at, name in enumerate(names)}
    ).encode()
    path = tmp_path / "values-00000-step-00000.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4 * len(names)))
    assert list(read_tensor_file(path)) == names


@pytest.mark.parametrize("starts", [(0, 64), (0, 32, 64, 96)])
def test_equal_numbers_of_a_lower_precision_are_told_by_those_around_them(
    starts: tuple[int, ...],
) -> None:
    whole = np.random.default_rng(0).normal(size=128).round(1)
    assert len({*whole}) < 64
    size = 128 // len(starts)
    rows = [(*range(start, start + size),) for start in starts]
    dealt = [rows[0], rows[1]] if len(rows) == 2 else [rows[0] + rows[2], rows[1] + rows[3]]
    held = {rank: {0: {"before/bias": whole[[*own]]}} for rank, own in enumerate(dealt)}
    layout = arrange({0: {"before/bias": whole}}, held)
    assert [layout[rank]["bias"].rows for rank in held] == dealt


@pytest.mark.parametrize(("times", "is_wrong"), [(1.0, False), (2.0, True)])
def test_a_sign_that_a_lower_precision_decides_moves_no_weight_wrongly(
    times: float, *, is_wrong: bool
) -> None:
    draw = np.random.default_rng(0)
    weight, gradient = draw.normal(size=(2, 256)).astype(np.float32)
    gradient[:64] *= 1e-4
    rounded = np.where(np.arange(256) < 64, -gradient, gradient)
    output = np.ones((4, 256), ml_dtypes.bfloat16)
    reference, held = (
        {
            0: {
                "out/0#0": output,
                "before/weight": weight,
                "gradient/weight": own,
                "after/weight": (weight - rate * np.sign(own)).astype(np.float32),
            }
        }
        for own, rate in ((gradient, 1e-3), (rounded, times * 1e-3))
    )
    records: Any = {0: SimpleNamespace(names={})}
    layout = arrange(reference, {0: held})
    found = [*find_deviations(reference, {0: held}, layout, records, {})]
    assert [(each.kind, each.sure) for each in found] == [("after", True)] * is_wrong


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("kind", ["gradient", "after"])
@pytest.mark.parametrize(
    ("mine", "theirs", "is_wrong"),
    [(np.nan, 1.0, True), (np.inf, -np.inf, True), (np.nan, np.nan, False)],
)
def test_what_is_no_number_is_off_where_one_process_has_another(
    kind: str, mine: float, theirs: float, *, is_wrong: bool
) -> None:
    draw = np.random.default_rng(0)
    weight, value = draw.normal(size=(2, 64)).astype(np.float32)
    reference, held = (
        {
            0: {
                "before/weight": weight,
                "gradient/weight": value,
                f"{kind}/weight": np.where(np.arange(64) < 3, odd, value).astype(np.float32),
            }
        }
        for odd in (theirs, mine)
    )
    records: Any = {0: SimpleNamespace(names={})}
    found = [*find_deviations(reference, {0: held}, arrange(reference, {0: held}), records, {})]
    assert [(each.kind, each.sure) for each in found] == [(kind, True)] * is_wrong


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("is_right", [True, False])
def test_a_mask_of_minus_infinity_is_compared(*, is_right: bool) -> None:
    scores = np.random.default_rng(0).normal(size=(6, 8))
    scores[scores > 1] = -np.inf
    parts = [scores[:3], scores[3:]]
    if not is_right:
        parts = [np.where(np.isfinite(each), each, 0.0) for each in parts]
    assert bool(name_arrangement(scores, parts)) == is_right


@pytest.mark.parametrize(("is_reduced", "is_told"), [(False, True), (True, False)])
def test_a_rank_s_own_gradient_is_told_however_much_a_lower_precision_rounds(
    *, is_reduced: bool, is_told: bool
) -> None:
    draw = np.random.default_rng(0)
    weight, first, second = draw.normal(size=(3, 256)).astype(np.float32)
    mean = (first + second) / 2
    rounded = mean + draw.normal(size=256).astype(np.float32) / 4
    output = np.ones((4, 256), ml_dtypes.bfloat16)
    reference, *ranks = (
        {0: {"out/0#0": output, "before/weight": weight, "gradient/weight": own}}
        for own in (mean, *([rounded] * 2 if is_reduced else [first, second]))
    )
    held = dict(enumerate(ranks))
    records: Any = {rank: SimpleNamespace(names={}) for rank in held}
    noise = {(0, "gradient", "weight"): 0.15}
    layout = arrange(reference, held)
    found = [*find_deviations(reference, held, layout, records, noise)]
    assert not any(each.sure for each in found)
    assert [is_left_apart(each, reference, held, layout) for each in found] == [True] * 2 * is_told


def parity_of(
    folder: Path, script: str, mistake: str = "", *more: str
) -> tuple[int, str, dict[str, Any]]:
    """Return the exit code, what is printed, and the JSON of two ranks against one."""
    words = [str(FOLDER / script), *filter(None, [mistake])]
    results = folder / "result.json"
    command = ["parity", "-n", "2", *more, "-o", str(folder / "records"), "--json", str(results)]
    command += ["--reference", " ".join(words), "--", *words]
    done = CliRunner().invoke(cli, command)
    return done.exit_code, done.output, json.loads(results.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "script", sampled(["data_parallel.py", "tensor_parallel.py", "autocast.py"], 2)
)
def test_a_right_strategy_computes_what_one_process_does(tmp_path: Path, script: str) -> None:
    code, output, result = parity_of(tmp_path, script)
    assert code == 0, output
    assert result["verdict"] == "PASSED"
    assert result["compared"] > 50
    assert result["problems"] == []


@pytest.mark.parametrize(("script", "mistake", "code", "words"), sampled(WRONG, 24))
def test_the_first_deviation_is_named_with_what_it_is(
    tmp_path: Path, script: str, mistake: str, code: str, words: str
) -> None:
    exit_code, output, result = parity_of(tmp_path, script, mistake)
    assert exit_code == 1, output
    (problem,) = result["problems"]
    assert problem["code"] == code
    assert words in " ".join(output.split())
    assert problem["file"].endswith(script)
    assert problem["line"] > 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("script", "mistake"),
    [
        ("reduces_by_hand.py", ""),
        ("zero_owners.py", ""),
        ("stages_of_one_model.py", ""),
        ("standardised.py", ""),
        ("fsdp1.py", ""),
        ("fsdp1.py", "flat"),
        ("hook_in_bfloat16.py", ""),
        ("hook_in_bfloat16.py", "torch"),
        ("zero_owners.py", "inside"),
        ("functional.py", ""),
        ("pipeline_by_hand.py", ""),
        ("clips_by_hand.py", ""),
        ("unfreezes_later.py", ""),
        ("experts_by_hand.py", ""),
        ("vocabulary_loss.py", ""),
        ("padded_tokens.py", ""),
        ("loss_module.py", ""),
        ("heads_of_whole_sequences.py", ""),
        ("split_sequence.py", ""),
        ("pipeline_with_criterion.py", ""),
        ("derivatives.py", ""),
        ("orthogonal_steps.py", ""),
    ],
)
def test_a_strategy_by_hand_computes_what_one_process_does(
    tmp_path: Path, script: str, mistake: str
) -> None:
    code, output, _ = parity_of(tmp_path, script, mistake)
    assert code == 0, output


@pytest.mark.parametrize(
    ("mistake", "more", "code", "words"),
    sampled(
        [
            (
                "sum",
                (),
                0,
                "warning[not_equivalent]: weights are right, and the number that is read",
            ),
            ("python", (), 0, "its ranks compute what one process computes"),
            (
                "resume",
                (),
                0,
                "note: rank 0 loads a state after step 3 (line 40), behind the 3 steps",
            ),
            ("resume", ("--steps", "6"), 1, "error[not_equivalent]: step 4: the weight"),
            ("", ("--steps", "6"), 0, "its ranks compute what one process computes"),
            ("masks", (), 3, "rank 0 before the backward pass (line 27): draw them"),
        ],
        6,
    ),
)
def test_what_is_shown_drawn_and_loaded_is_compared_or_named(
    tmp_path: Path, mistake: str, more: tuple[str, ...], code: int, words: str
) -> None:
    script = "reports_and_resumes.py"
    exit_code, output, result = parity_of(tmp_path, script, mistake, *more)
    assert exit_code == code, output
    assert words in " ".join(output.split())
    severe = {each["severity"] for each in result["problems"]}
    assert severe == {"sum": {"warning"}}.get(mistake, {"error"} if code == 1 else set())


@pytest.mark.nightly
def test_a_deviation_names_a_call_with_strides_before_it(tmp_path: Path) -> None:
    code, output, _ = parity_of(tmp_path, "../wrong/strided_gradient.py")
    assert code == 1, output
    shown = " ".join(output.split())
    assert "a call before it (line 27) hands Gloo a tensor with strides" in shown
    assert "fix: pass a contiguous copy" in shown


@pytest.mark.nightly
@pytest.mark.parametrize("mistake", ["0", "1"])
def test_steps_that_a_scaler_leaves_out_on_ranks_alone_are_not_compared(
    tmp_path: Path, mistake: str
) -> None:
    code, output, _ = parity_of(tmp_path, "scaler_skips.py", mistake)
    assert code == 3, output
    assert "the GradScaler leaves a step of the optimizer out on rank 0" in " ".join(output.split())


@pytest.mark.nightly
def test_a_sum_that_is_too_large_for_half_precision_is_named(tmp_path: Path) -> None:
    code, output, _ = parity_of(tmp_path, "hook_in_float16.py")
    assert code == 1, output
    assert "gradients are summed in float16 (line 16)" in " ".join(output.split())


@pytest.mark.nightly
def test_rows_that_a_loader_draws_at_random_are_not_compared(tmp_path: Path) -> None:
    code, output, _ = parity_of(tmp_path, "padded_tokens.py", "masks")
    assert code == 3, output
    assert "where a batch is loaded (random_in_forward), so that rows" in " ".join(output.split())


@pytest.mark.parametrize(
    ("mode", "code", "words"),
    sampled(
        [
            ("signs", 3, "is int8 in place of gradients (line 65): a vote"),
            ("chosen", 3, "is int64 in place of gradients (line 38): a vote"),
            ("perturbs", 3, "the model is called with weights of each rank's own (line 26)"),
            ("averages", 3, "weights are averaged over the ranks now and then (line 30)"),
            ("half", 0, "its ranks compute what one process computes"),
            ("counts", 1, "is 2 times what one process has"),
            ("perturbs,sums", 1, "is not what one process has"),
        ],
        6,
    ),
)
def test_what_is_another_algorithm_on_several_ranks_is_not_known(
    tmp_path: Path, mode: str, code: int, words: str
) -> None:
    exit_code, output, result = parity_of(tmp_path, "another_algorithm.py", mode)
    assert exit_code == code, output
    assert words in " ".join(output.split())
    assert result["open"] == (["another_algorithm"] if code == 3 else [])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("mode", "code", "words"),
    [
        ("", 3, "a hook of DistributedDataParallel sends int32 in place of gradients (line 20)"),
        ("sum", 1, "is about 2 times what one process has"),
        ("own", 1, "the ranks show of themselves (gradients_differ)"),
    ],
)
def test_a_hook_that_sends_whole_numbers_is_another_algorithm(
    tmp_path: Path, mode: str, code: int, words: str
) -> None:
    exit_code, output, _ = parity_of(tmp_path, "hook_in_int8.py", mode)
    assert exit_code == code, output
    assert words in " ".join(output.split())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("script", "world"),
    [
        *(("fsdp2.py", 2), ("tp_dtensor.py", 2), ("zero1.py", 2), ("hsdp_tp.py", 4)),
        ("pipeline_of_torch.py", 2),
    ],
)
def test_strategies_of_torch_compute_what_one_process_does(
    tmp_path: Path, script: str, world: int
) -> None:
    code, output, result = parity_of(tmp_path, script, "", "-n", str(world))
    assert code == 0, output
    assert result["compared"] >= 80


@pytest.mark.nightly
def test_the_line_is_where_the_module_gives_its_output_back(tmp_path: Path) -> None:
    _, output, result = parity_of(tmp_path, "tensor_parallel.py", "front")
    text = (FOLDER / "tensor_parallel.py").read_text(encoding="utf-8").splitlines()
    line = next(n for n, each in enumerate(text, 1) if "return x + FromAll" in each)
    assert result["problems"][0]["line"] == line, output


@pytest.mark.nightly
def test_what_rounding_does_is_measured_where_it_decides(tmp_path: Path) -> None:
    code, output, result = parity_of(tmp_path, "cancels.py")
    assert code == 0, output
    assert result["verdict"] == "PASSED"
    records = tmp_path / "records"
    assert len([*(records / "one").glob("disturbed-*")]) == 3
    folders = [str(records / "one"), str(records / "many")]
    measured = CliRunner().invoke(cli, ["parity", *folders])
    assert measured.exit_code == 0, measured.output
    for each in (records / "one").glob("disturbed-*"):
        shutil.rmtree(each)
    stated = CliRunner().invoke(cli, ["parity", *folders])
    # a bound that is only stated says that it is a mistake
    assert stated.exit_code == 1, stated.output


@pytest.mark.nightly
def test_ranks_that_each_step_some_of_the_optimizers_are_not_compared(tmp_path: Path) -> None:
    code, output, _ = parity_of(tmp_path, "optimizers_of_owners.py")
    assert code == 3, output
    assert "one process steps 2 optimizers, and rank 0 steps 1" in " ".join(output.split())


@pytest.mark.nightly
def test_statistics_of_all_ranks_that_round_otherwise_are_no_rank_s_own(tmp_path: Path) -> None:
    code, output, _ = parity_of(tmp_path, "standardised.py", "years")
    assert code == 3, output
    assert "the global batch is another one" in " ".join(output.split())


@pytest.mark.nightly
@pytest.mark.parametrize(("mistake", "exit_code"), [("world", 1), ("", 0)])
def test_a_half_on_four_ranks_is_the_size_of_a_group(
    tmp_path: Path, mistake: str, exit_code: int
) -> None:
    code, output, _ = parity_of(tmp_path, "tp_inside_dp.py", mistake, "-n", "4")
    assert code == exit_code, output
    words = " ".join(output.split())
    assert ("1/2 times what one process has (there are 4 ranks)" in words) == bool(exit_code)


@pytest.mark.nightly
def test_a_page_draws_the_modules_and_what_the_ranks_have_of_them(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, output, _ = parity_of(tmp_path, "tensor_parallel.py", "front", "--html", str(page))
    assert code == 1, output
    text = page.read_text(encoding="utf-8")
    assert "error[not_equivalent]" in text
    (wrong,) = re.findall(r'<details class="wrong" open><summary><code>([^<]*)</code>', text)
    assert wrong == "0"
    assert "split along dimension 0, which has " in text
    halves = ["left:0.00%;width:50.00%", "left:50.00%;width:50.00%"]
    assert all(half in text for half in halves)
    for right in ("", "half"):
        code, output, _ = parity_of(tmp_path, "tensor_parallel.py", right, "--html", str(page))
        assert code == 0, output
        text = page.read_text(encoding="utf-8")
        assert 'class="right"' in text
        assert 'class="wrong"' not in text
        assert 'class="later"' not in text


@pytest.mark.nightly
def test_ranks_may_begin_with_the_weights_of_the_reference(tmp_path: Path) -> None:
    code, output, _ = parity_of(tmp_path, "data_parallel.py", "unlike")
    assert code == 3, output
    assert "not_initialised_alike" in output
    code, output, _ = parity_of(tmp_path, "data_parallel.py", "unlike", "--init", "reference")
    assert code == 0, output


@pytest.mark.nightly
def test_dropout_is_left_out_of_both(tmp_path: Path) -> None:
    code, output, _ = parity_of(tmp_path, "data_parallel.py", "drop")
    assert code == 3, output
    assert "`--no-dropout`" in output
    code, output, _ = parity_of(tmp_path, "data_parallel.py", "drop", "--no-dropout")
    assert code == 0, output


@pytest.mark.nightly
def test_two_records_are_compared_without_a_run(tmp_path: Path) -> None:
    parity_of(tmp_path, "data_parallel.py", "scaled")
    records = tmp_path / "records"
    done = CliRunner().invoke(cli, ["parity", str(records / "one"), str(records / "many")])
    assert done.exit_code == 1, done.output
    assert "error[not_equivalent]" in done.output
    same = tmp_path / "same"
    shutil.copytree(records / "one", same)
    done = CliRunner().invoke(cli, ["parity", str(records / "one"), str(same)])
    assert done.exit_code == 0, done.output


def test_a_record_without_values_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["parity", str(tmp_path), str(tmp_path)])
    assert done.exit_code == 2
    assert "record it with --values" in done.output


def test_parity_needs_a_reference() -> None:
    done = CliRunner().invoke(cli, ["parity", "--", "train.py"])
    assert done.exit_code == 2
    assert "--reference" in done.output


def test_a_function_is_held_to_one_process(assert_parity: Callable[..., None]) -> None:
    assert_parity(averaged_step, world_size=2)
    with pytest.raises(AssertionError, match=r"mean over\s+ranks 0 and 1"):
        assert_parity(lonely_step, averaged_step, world_size=2)


@pytest.mark.parametrize(("step", "is_alike"), [(1, True), (0, False)])
def test_a_model_that_loads_what_was_trained_is_that_of_one_process_but_for_rounding(
    step: int, *, is_alike: bool
) -> None:
    """Weights are equal to the last bit where nothing has been trained yet."""
    weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    sides = [{0: {}, step: {"before/0.weight": own}} for own in (weight, weight * (1 + 1e-6))]
    if is_alike:
        layout = arrange(sides[0], {0: sides[1]})
        assert layout[0]["0.weight"].name == "0.weight"
    else:
        with pytest.raises(UnlikeError, match="not_initialised_alike"):
            arrange(sides[0], {0: sides[1]})


@pytest.mark.parametrize("own_name", ["layers.1", "place", "net.layers.1"])
def test_rows_that_no_rank_has_are_told_whatever_ranks_call_the_module(own_name: str) -> None:
    whole = np.arange(32.0).reshape(4, 8)
    names = ["layers.1", own_name, own_name]
    values: list[Any] = [
        {0: {f"out/{name}#0": out}}
        for name, out in zip(names, (whole, whole[:, :4], whole[:, :4]), strict=True)
    ]
    records = [
        ValueRecord(
            rank=rank, settings={}, events={ModuleOutput: [ModuleOutput(0, f"{name}#0", "E", -1)]}
        )
        for rank, name in enumerate(names)
    ]
    held = dict(enumerate(values[1:]))
    layout = {rank: {f"{own_name}.weight": Arrangement(name="layers.1.weight")} for rank in held}
    found = find_first_output(
        records[0], values[0], held, layout, dict(enumerate(records[1:])), step=0
    )
    assert found is not None
    assert "each rank has a part of the 8 rows (dimension 1)" in found.message
    assert "no rank has rows 4 to 7: several ranks" in found.message


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([0, 1, 0, 1], "some of its rows are there in several calls, and others in none"),
        ([0, 1, 2, 3], ""),
        ([0, 1, 2, 2], "some of its rows are there in several calls, and others in none"),
    ],
)
def test_rows_of_one_microbatch_in_place_of_another_s_are_told(rows: list[int], words: str) -> None:
    """As where each microbatch is received into one buffer, and the passes come later."""
    whole = np.arange(32.0).reshape(4, 8)
    values: list[Any] = [{0: {"out/layers.1#0": out}} for out in (whole, whole[rows])]
    records = [
        ValueRecord(
            rank=rank, settings={}, events={ModuleOutput: [ModuleOutput(0, "layers.1#0", "E", -1)]}
        )
        for rank in (0, 0)
    ]
    layout = {0: {"layers.1.weight": Arrangement(name="layers.1.weight")}}
    found = find_first_output(
        records[0], values[0], {0: values[1]}, layout, {0: records[1]}, step=0
    )
    assert (found is not None) == bool(words)
    assert found is None or words in found.message
