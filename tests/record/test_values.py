"""Trainings that are wrong in silence, and right ones of the same kinds, by `record --values`.

A wrong script says in its docstring what is found, and marks the line that a report must name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from recordings import SCRIPTS

if TYPE_CHECKING:
    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

VALUES = ("-n", "2", "--values")

#: right scripts that every run records; the others are for the night
ALWAYS = {
    "sampler",
    "by_hand",
    "tensor_parallel",
    "ema_and_norms",
    "fsdp2",
    "zero_clips_whole",
    "whole_loss_of_gathered_parts",
}
#: wrong scripts for the night: kinds that others have already
NIGHTLY = {
    *("sampler_of_local_zero", "iterable_not_sharded", "shuffles_before_sharding"),
    *("sampler_seed_of_rank", "head_outside_of_ddp", "unfrozen_after_ddp", "reduced_after_step"),
    *("split_by_seed_of_rank", "masters_before_ddp", "heads_of_a_whole_dtensor"),
    "outer_biases_left_out",
    *("init_of_each_rank_flat", "optimizer_state_on_rank_zero", "schedule_on_rank_zero"),
    *("teacher_of_local_ema", "skips_bad_batch_alone", "no_sync_on_last"),
    *("fsdp_root_not_wrapped", "sparse_gradient_left_out", "fsdp_last_microbatch_unsynced"),
    *("weights_in_forward", "sequence_parallel_norm", "one_seed_of_dropout", "stale_params_fsdp"),
    *("strided", "skips_a_step_alone", "noise_of_each_rank", "gradient_dropped_on_one_rank"),
    *("own_part_put_back", "limits_weights_by_rank", "biases_not_reduced", "inner_module"),
    *("router_not_reduced", "scales_after_reduction", "decays_by_rank", "init_of_each_rank"),
    *("experts_reduced_with_all", "reduce_to_zero_alone", "scaler_of_each_rank"),
    *("fsdp1_clips_own_shards", "zero_clips_own_shard"),
    *("half_of_a_copy", "same_rng_batches", "term_of_gathered_parts"),
    *("one_seed_of_noise", "epoch_anew_after_resume", "fsdp2_scales_own_shards"),
    *("never_awaited", "shared_head_not_reduced", "biases_not_averaged", "adapters_after_fsdp"),
    *("norms_of_a_split_sequence", "average_object_before_ddp", "owners_clip_alone"),
    *("shard_of_rank_zero_resumed", "owners_leave_positions_out", "owners_overwritten"),
    *("hooks_sum_what_is_summed", "flat_copies_summed_twice"),
    *("hook_scales_by_rank", "flag_set_behind_forward", "reads_in_flight"),
    *("clips_by_another_limit", "ema_on_one_rank", "gathers_for_a_contrast", "list_of_one_tensor"),
    *("loss_of_no_label", "masks_of_tensor_parallel_ranks", "missing_on_some", "no_set_epoch"),
    *("second_loss_unsynced", "sums_twice", "tied_weight_of_stages", "zero_shard_not_sent"),
}
#: findings that are warnings: the script is not wrong for sure
WARNINGS = {
    *("sum_of_replicas", "same_mask", "gradient_missing"),
    *("parameter_not_wrapped", "in_place_of_strided"),
}


#: scripts of such a finding that are wrong for sure: nothing is trained, parts are one part
SURE = {
    *("stale_params_fsdp", "parts_of_one_seed", "owners_leave_one_out", "owners_overwritten"),
    *("sums_what_is_summed", "hooks_sum_what_is_summed", "flat_copies_summed_twice"),
    "strided_gradient",
}
#: scripts of an error that may be on purpose: each rank has biases of its own
UNSURE = {"biases_not_averaged"}


def scripts(folder: str) -> list[object]:
    return [
        pytest.param(
            path,
            id=path.stem,
            marks=[] if _is_always(folder, path.stem) else [pytest.mark.nightly],
        )
        for path in sorted((SCRIPTS / "values" / folder).glob("*.py"))
    ]


def _is_always(folder: str, name: str) -> bool:
    return name not in NIGHTLY if folder == "wrong" else name in ALWAYS


def found_of(path: Path) -> tuple[str, int]:
    """Return what a script's docstring says is found, and the line that it marks."""
    text = path.read_text(encoding="utf-8")
    match = re.search(r"^Found: (\w+)$", text, re.MULTILINE)
    assert match is not None
    lines = [n for n, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {match[1]}")]
    assert len(lines) == 1
    return match[1], lines[0]


@pytest.mark.parametrize("path", scripts("wrong"))
def test_a_training_that_is_wrong_in_silence_is_found(recording: Recording, path: Path) -> None:
    code, line = found_of(path)
    ran = recording.of(f"values/wrong/{path.name}", *VALUES)
    is_warning = path.stem in UNSURE or (code in WARNINGS and path.stem not in SURE)
    kind, exit_code = ("warning", 0) if is_warning else ("error", 1)
    first = re.search(r"^  (?:error|warning)\[\w+\]", ran.output, re.MULTILINE)
    assert first is not None, ran.output
    assert first[0].strip() == f"{kind}[{code}]", ran.output
    assert f"{path.name}:{line}:" in ran.output
    if says := re.search(r"^Says: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
        assert says[1] in re.sub(r"\s+", " ", ran.output)
    assert "fix: " in ran.output
    assert ran.code == exit_code, ran.output
    details = ran.result["warnings" if is_warning else "problems"]
    assert code in {each["code"] for each in details}


@pytest.mark.parametrize("path", scripts("right"))
def test_a_right_training_is_quiet(recording: Recording, path: Path) -> None:
    ran = recording.of(f"values/right/{path.name}", *VALUES)
    assert ran.code == 0, ran.output
    assert "error[" not in ran.output
    assert "warning[" not in ran.output, ran.output
    assert "communication: nothing wrong; values: " in ran.output


def test_a_warning_is_a_failure_with_strict(recording: Recording) -> None:
    ran = recording.of("values/wrong/sums_twice.py", *VALUES, "--strict")
    assert ran.code == 1


def test_a_fault_of_the_witness_is_a_line_of_the_report(recording: Recording) -> None:
    ran = recording.of("values/odd/hides_its_parameters.py", *VALUES)
    assert ran.code == 0, ran.output
    assert "not all could be seen" in ran.output.splitlines()[0]
    assert "note: the witness failed on rank 0 in parameters (" in ran.output
    assert "RuntimeError: no parameters here" in ran.output


def test_data_parallel_ranks_without_rank_0_are_judged(recording: Recording) -> None:
    ran = recording.of("values/odd/groups_of_two.py", "-n", "4", "--values")
    assert ran.code == 0, ran.output
    assert "communication: nothing wrong; values: " in ran.output


@pytest.mark.nightly
def test_a_gather_within_each_line_of_ranks_is_quiet(recording: Recording) -> None:
    ran = recording.of("values/right/gathers_of_each_line.py", "-n", "4", "--values")
    assert ran.code == 0, ran.output
    assert "warning[" not in ran.output, ran.output


@pytest.mark.parametrize("over", [pytest.param("", marks=pytest.mark.nightly), "world"])
def test_a_flat_copy_is_reduced_over_the_ranks_of_one_part(recording: Recording, over: str) -> None:
    """A copy is known for the gradients that it joins, as tensors in place are."""
    ran = recording.of("values/odd/flat_copy_of_parts.py", "-n", "4", "--values", OVER=over)
    assert ran.code == int(over == "world"), ran.output
    words = "the gradients of different parts of `up.weight` are reduced together"
    assert (words in ran.output) == (over == "world")
    assert "same_samples" not in ran.output


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("script", "code"), [("wrong/owners_clip_alone", 1), ("right/owners_clip_together", 0)]
)
def test_owners_of_one_parameter_alone_are_judged_with_the_others(
    recording: Recording, script: str, code: int
) -> None:
    ran = recording.of(f"values/{script}.py", "-n", "4", "--values")
    assert ran.code == code, ran.output
    assert ("error[norm_is_local]" in ran.output) == bool(code)


@pytest.mark.parametrize("copy", ["teacher", "average"])
def test_a_copy_of_each_rank_is_an_error_where_something_writes_it(
    recording: Recording, copy: str
) -> None:
    """A teacher that is never written may be the rank's own; an average follows the model."""
    script = "odd/teacher_of_each_rank" if copy == "teacher" else "wrong/average_object_before_ddp"
    ran = recording.of(f"values/{script}.py", *VALUES)
    assert ("error[replicas_differ]" in ran.output) == (copy == "average"), ran.output
    assert ("warning[replicas_differ]" in ran.output) == (copy == "teacher"), ran.output


@pytest.mark.nightly
def test_a_norm_is_of_a_sequence_where_the_next_part_is_as_wide(recording: Recording) -> None:
    ran = recording.of("values/odd/sensors_as_wide_as_a_part.py", "-n", "4", "--values")
    assert ran.code == 0, ran.output


def test_a_broken_row_that_all_ranks_leave_out_is_a_warning(recording: Recording) -> None:
    ran = recording.of("values/odd/broken_row_left_out.py", *VALUES)
    assert ran.code == 0, ran.output
    assert "warning[first_nan]" in ran.output
    assert "no step has used it" in ran.output


def test_a_sum_of_gradients_that_nothing_divides_is_said(recording: Recording) -> None:
    """It need not be a mistake: the learning rate may be meant for sums."""
    said = "are summed over ranks 0 and 1 (line 21) and not divided afterwards"
    ran = recording.of("values/odd/sums_gradients.py", *VALUES)
    assert (ran.code, said in ran.output) == (0, True), ran.output
    assert "not divided" not in recording.of("values/right/by_hand.py", *VALUES).output


def test_a_head_of_each_rank_next_to_replicas_is_said(recording: Recording) -> None:
    """It need not be a mistake: each rank may train its own."""
    said = "`weight`, `bias` are not equal on ranks 0 and 1 from the beginning, the optimizer steps"
    ran = recording.of("values/odd/head_of_each_rank.py", *VALUES)
    assert (ran.code, said in ran.output) == (0, True), ran.output


def test_without_values_a_verdict_says_what_it_covers(recording: Recording) -> None:
    ran = recording.of("values/wrong/inner_module.py", "-n", "2")
    assert ran.code == 0
    assert "values were not compared" in ran.output.splitlines()[0]
    assert ran.result["verdict"] == "PASSED"
    assert "values were not compared" in ran.result["notes"][-1]


def test_a_verdict_on_values_says_which_were_judged(recording: Recording) -> None:
    ran = recording.of("values/right/pipeline_by_hand.py", *VALUES)
    assert "not judged, as nothing of the kind was seen: " in ran.output
    assert "masks_differ" in ran.output
    none = "metric_mean_of_means, resumes_otherwise"
    only = f"values: not judged, as nothing of the kind was seen: {none}\n"
    assert only in recording.of("values/right/sampler.py", *VALUES).output
    scope, rest = ran.result["notes"][-2:]
    assert scope.startswith("communication: nothing wrong; values: ")
    assert rest.startswith("not judged, ")


@pytest.mark.nightly
@pytest.mark.parametrize("path", sorted((SCRIPTS / "right").glob("*.py")), ids=lambda p: p.stem)
def test_scripts_that_communicate_rightly_have_no_error(recording: Recording, path: Path) -> None:
    more = ("--cuda-as-cpu",) if path.stem.startswith("cuda") else ()
    ran = recording.of(f"right/{path.name}", "-n", "4", "--values", *more)
    assert ran.code == 0, ran.output
    assert "error[" not in ran.output
