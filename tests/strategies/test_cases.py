"""The 34 cases that a training strategy is held against, and what shows each of them.

A file passes its check, in as many cases as its row says, and states the row's diagnosis; the ranks
of torch take every file with the corpus. What no file can show is a test, named by its row.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest
from sampling import sampled

from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse

ROOT = Path(__file__).parents[2]
STRATEGIES, WRONG, UNEQUAL, SURPRISES = (
    "strategies",
    "wrong",
    "wrong/not_equivalent",
    "surprises",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCase:
    """What shows a case: files with the number of their cases, and tests as `file::function`."""

    what: str
    folder: str = STRATEGIES
    files: tuple[tuple[str, int], ...] = ()
    #: what each file states that the program has; empty where it is right
    diagnosis: str = ""
    #: files of what torch refuses
    refused: tuple[tuple[str, int], ...] = ()
    #: a file states what Gloo's ranks hold in the place of the right value
    deviates: bool = False
    tests: tuple[str, ...] = ()


CASES: dict[int, PageCase] = {
    1: PageCase(what="DDP on 2, 3, 4 ranks, three optimizers", files=(("ddp_optimizers", 3),)),
    2: PageCase(
        what="buckets by their limits",
        files=(("ddp_buckets", 3), ("ddp_buckets_of_a_mebibyte", 2)),
        tests=("test_training::test_buckets_are_closed_as_they_reach_their_limit",),
    ),
    3: PageCase(
        what="unused parameters, a static graph, no_sync",
        files=(("ddp_finds_unused_parameters", 2), ("ddp_accumulates", 1)),
    ),
    4: PageCase(
        what="FSDP2 units, resharding, uneven rows",
        files=(
            ("fully_shard_equals_one_process", 6),
            ("fully_shard_reshards_over_two", 1),
            ("fully_shard_pads", 1),
        ),
    ),
    5: PageCase(what="HSDP on 2 x 2", files=(("fully_shard_hybrid", 1),)),
    6: PageCase(
        what="TP: column and row, gathered, cut",
        files=(("column_then_row", 1), ("tensor_parallel_plans", 1)),
    ),
    7: PageCase(
        what="SP with LayerNorm",
        files=(("sequence_parallel", 1), ("sequence_parallel_adamw", 1)),
    ),
    8: PageCase(what="FSDP2 x TP on 2 x 2", files=(("fully_shard_and_tensor_parallel", 1),)),
    9: PageCase(
        what="schedules of pipelines",
        files=(
            ("pipeline_schedules", 2),
            ("pipeline_of_four_stages", 2),
            ("pipeline_of_three_parts", 1),
            ("pipeline_interleaved", 5),
        ),
    ),
    10: PageCase(what="ZeRO-1: owners, broadcasts, bytes", files=(("zero1_owns_parameters", 1),)),
    11: PageCase(
        what="sizes of shards, 64 pairs, 256 transitions",
        files=(
            ("uneven_shards", 12),
            ("redistribute_one_dimension", 3),
            ("redistribute_2x2", 9),
        ),
        refused=(("partial_of_one_dimension", 5), ("redistribute_to_partial", 7)),
        tests=(
            "test_placements::test_a_transition_of_two_dimensions",
            "test_placements::test_a_transition_of_one_dimension",
        ),
    ),
    12: PageCase(
        what="DistributedSampler, 1632 combinations",
        files=(("distributed_sampler", 2),),
        tests=("test_sampler::test_every_rank_takes_the_samples_that_torch_gives_it",),
    ),
    13: PageCase(
        what="checkpoints of 2, 3 and 1 ranks, and from strategy to strategy",
        files=(
            ("checkpoint_of_other_ranks", 1),
            ("checkpoint_goes_round", 1),
            ("checkpoint_of_owned_states", 1),
        ),
    ),
    14: PageCase(what="memory at rest", files=(("what_each_stage_keeps", 1),)),
    15: PageCase(what="seven strategies over one model", files=(("seven_strategies", 7),)),
    16: PageCase(
        what="8 and 4 rows",
        folder=UNEQUAL,
        files=(("mean_of_means", 1),),
        diagnosis="not_equivalent",
    ),
    17: PageCase(
        what="the same samples",
        folder=UNEQUAL,
        files=(("same_samples_on_two_ranks", 1),),
        diagnosis="not_equivalent",
    ),
    18: PageCase(
        what="never synchronised",
        folder=UNEQUAL,
        files=(("never_synchronised", 1),),
        diagnosis="not_equivalent",
    ),
    19: PageCase(
        what="rate times ranks",
        folder=UNEQUAL,
        files=(("rate_times_ranks", 1),),
        diagnosis="not_equivalent",
    ),
    20: PageCase(
        what="sum for mean",
        folder=UNEQUAL,
        files=(("sum_for_mean", 1),),
        diagnosis="not_equivalent",
    ),
    21: PageCase(
        what="other weights at first",
        folder=UNEQUAL,
        files=(("weights_differ_at_first", 1),),
        diagnosis="not_equivalent",
    ),
    22: PageCase(
        what="a pipeline that does not scale: factor 3.000",
        folder=UNEQUAL,
        files=(("pipeline_does_not_scale", 1),),
        diagnosis="not_equivalent",
        tests=("test_cases::test_the_factor_of_an_unscaled_pipeline_is_named",),
    ),
    # rank 0 has ended: no other call of its own meets the one that rank 1 waits in
    23: PageCase(
        what="one batch more",
        folder=WRONG,
        files=(("one_batch_more", 1),),
        diagnosis="missing_participant",
    ),
    24: PageCase(
        what="a unit that one rank skips",
        folder=WRONG,
        files=(("one_rank_skips_a_unit", 1),),
        diagnosis="call_mismatch shape_mismatch",
    ),
    25: PageCase(
        what="features over 3 ranks, fewer parts than stages",
        folder=WRONG,
        files=(("features_do_not_divide", 1), ("fewer_parts_than_stages", 1)),
        diagnosis="invalid_argument",
    ),
    26: PageCase(
        what="other inputs on TP ranks",
        folder=UNEQUAL,
        files=(("inputs_of_tensor_parallel_ranks", 1),),
        diagnosis="not_equivalent",
    ),
    27: PageCase(
        what="mse_loss of a shard",
        folder=SURPRISES,
        files=(("mse_loss_on_a_shard", 1), ("mse_loss_on_uneven_shards", 1)),
        deviates=True,
    ),
    28: PageCase(
        what="a flattened mesh loses a row",
        folder=SURPRISES,
        files=(("flattened_mesh_loses_a_row", 1),),
        deviates=True,
    ),
    29: PageCase(
        what="the sum of 3e38 and 3e38",
        folder=UNEQUAL,
        files=(("sum_flows_over", 1),),
        diagnosis="not_equivalent",
    ),
    30: PageCase(
        what="mutations turn a case red",
        tests=(
            "test_mutations::test_a_mutation_of_a_reference_turns_a_scenario_red",
            "test_lowering::test_a_fault_in_a_lowering_turns_a_scenario_red",
            "test_lowering::test_a_fault_in_a_layer_is_found_by_the_run",
        ),
    ),
    31: PageCase(
        what="what is no model is INVALID",
        tests=(
            "test_training::test_what_is_no_model_is_invalid_at_its_place",
            "test_checkpoints::test_a_path_is_invalid_at_its_place",
        ),
    ),
    32: PageCase(
        what="what a build lacks is UNSUPPORTED",
        tests=("test_training::test_what_is_left_out_is_unsupported_with_its_reason",),
    ),
    33: PageCase(
        what="which witness is alone",
        tests=(
            "test_lowering::test_a_fault_in_a_lowering_turns_a_scenario_red",
            "test_lowering::test_a_fault_in_a_layer_is_found_by_the_run",
        ),
    ),
    34: PageCase(
        what="a lowered scenario passes by itself",
        tests=("test_lowering::test_what_is_lowered_is_a_scenario_that_passes_by_itself",),
    ),
}


def test_there_are_34_cases() -> None:
    assert sorted(CASES) == list(range(1, 35))
    assert all(shown.files or shown.tests for shown in CASES.values())


@pytest.mark.parametrize("number", sampled(list(CASES), 2))
def test_a_case_is_shown_as_its_row_says(number: int) -> None:
    shown = CASES[number]
    for name, count in (*shown.files, *shown.refused):
        wrong = "invalid_argument" if (name, count) in shown.refused else shown.diagnosis
        cases = load(ROOT / "scenarios" / shown.folder / f"{name}.yaml")
        assert len(cases) == count, name
        for case in cases:
            assert analyse(case).verdict.status == "PASSED", case.name
            assert {*case.expect.diagnoses} == {*wrong.split()}, name
            assert not shown.deviates or case.expect.sections, name
    for test in shown.tests:
        module, _, function = test.partition("::")
        text = (ROOT / "tests" / "strategies" / f"{module}.py").read_text(encoding="utf-8")
        assert function in {
            each.name for each in ast.parse(text).body if isinstance(each, ast.FunctionDef)
        }


def test_the_factor_of_an_unscaled_pipeline_is_named() -> None:
    (case,) = load(ROOT / "scenarios" / UNEQUAL / "pipeline_does_not_scale.yaml")
    predicted = analyse(case).predicted
    assert predicted is not None
    assert any("a factor of 3.000 everywhere" in each.prose for each in predicted.diagnoses)
