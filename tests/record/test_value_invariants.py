"""Invariants of values, on records that are written by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.record.values.format.record import read_values
from torch_scenarios.record.values.invariants import judge_values
from torch_scenarios.record.values.roles import find_roles

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.record.values.invariants.finding import ValueFinding

ABOUT = {"kind": "parameter", "shape": [4], "local": [4], "dtype": "float32", "root": 0}
LOADER: list[Any] = [
    "l",
    9,
    0,
    {"replacement": False, "rows": 64, "num_replicas": 2, "shuffle": True},
]
DDP = ["ddp", 0, [0, 1], 0, True, [0], [], []]


def weight(number: int, value: str) -> list[Any]:
    return ["p", number, "w", 0, value, {**ABOUT, "constant": False, "frozen": False}]


def step(turn: int, number: int, after: str, place: int = 0) -> list[list[Any]]:
    """Return a backward pass and a step that leaves a weight so."""
    return [
        ["bw", turn, place],
        ["o", turn, 0, place, [0.1], [[number, f"g{turn}"]], [], [[number, after]]],
    ]


def judge(folder: Path, lines: dict[int, list[list[Any]]]) -> list[ValueFinding]:
    """Return the errors and warnings on what ranks wrote."""
    for rank, own in lines.items():
        text = [json.dumps({"scenario_values": 1, "rank": rank}), *map(json.dumps, own)]
        (folder / f"values-{rank:05d}.jsonl").write_text("\n".join(text) + "\n", encoding="utf-8")
    records = read_values(folder)
    return [*judge_values(records, find_roles(records)).findings]


@pytest.mark.parametrize(("dealt", "told"), [((0, 1), False), ((0, 0), True)])
def test_a_sampler_that_never_ends_may_deal_a_row_elsewhere_later(
    tmp_path: Path, dealt: tuple[int, int], *, told: bool
) -> None:
    """Of 64 rows each rank has 32 in a pass, and in the second pass those of the other one."""
    lines = {}
    for rank in (0, 1):
        own = [weight(0, "w"), DDP, LOADER]
        for turn in range(16):
            half = (dealt[rank] + turn // 8) % 2
            numbers = range(32 * half + 4 * (turn % 8), 32 * half + 4 * (turn % 8) + 4)
            own.append(["b", 9, 0, turn, 0, [f"r{n % 64}" for n in numbers], [*numbers]])
            own += step(turn, 0, f"w{turn}")
        own += [["b", 9, 0, 16, 0, [f"r{32 * dealt[rank] + n}" for n in range(4)], None]]
        own += step(16, 0, "w16")
        lines[rank] = own
    assert [each.code for each in judge(tmp_path, lines)] == ["same_samples"] * told


def noise(rank: int, drawn: str, rows: int = 2, steps: int = 3) -> list[list[Any]]:
    """Return steps of a rank with a batch of its own, and what is drawn before each backward."""
    lines = [weight(0, "w"), DDP, LOADER]
    for turn in range(steps):
        lines.append(["b", 9, 0, turn, 0, [f"{rank}-{turn}-{n}" for n in range(2)], None])
        lines.append(["noise", turn, 0, f"{drawn}{turn}", [rows, 8]])
        lines += step(turn, 0, f"w{turn}")
    return lines


def test_ranks_that_draw_one_noise_for_other_rows_are_told(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {rank: noise(rank, "n") for rank in (0, 1)})
    assert found.code == "same_mask"
    assert not found.error
    assert "draw one and the same noise for other rows, in all of the first 3" in found.message


def test_noise_of_each_rank_is_right(tmp_path: Path) -> None:
    assert judge(tmp_path, {rank: noise(rank, f"n{rank}-") for rank in (0, 1)}) == []


def test_noise_for_the_rows_of_all_ranks_is_right(tmp_path: Path) -> None:
    assert judge(tmp_path, {rank: noise(rank, "n", rows=4) for rank in (0, 1)}) == []


def test_one_noise_in_two_steps_says_nothing(tmp_path: Path) -> None:
    assert judge(tmp_path, {rank: noise(rank, "n", steps=2) for rank in (0, 1)}) == []


def test_noise_of_the_shape_of_weights_is_right(tmp_path: Path) -> None:
    of_weights = ["p", 1, "v", 0, "v", {**ABOUT, "shape": [2, 8], "constant": 0, "frozen": 0}]
    lines = {rank: [of_weights, *noise(rank, "n")] for rank in (0, 1)}
    assert judge(tmp_path, lines) == []


def augmented(rank: int, state: str) -> list[list[Any]]:
    """Return steps of a rank whose loader draws random numbers for each batch."""
    lines = noise(rank, f"n{rank}-")
    for turn in range(3):
        at = next(n for n, each in enumerate(lines) if each[:4] == ["b", 9, 0, turn])
        lines.insert(at, ["augmented", turn, 0, [f"{state}{turn}"]])
    return lines


def test_loaders_that_draw_the_same_for_other_rows_are_a_warning(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {rank: augmented(rank, "s") for rank in (0, 1)})
    assert found.code == "same_mask"
    assert not found.error
    assert "where a batch is loaded, in all of the first 3 batches" in found.message


def test_loaders_that_draw_for_themselves_are_right(tmp_path: Path) -> None:
    assert judge(tmp_path, {rank: augmented(rank, f"s{rank}-") for rank in (0, 1)}) == []


def resumed(*, skip: int, reload: bool = True, state: str = "w1") -> list[list[Any]]:
    """Return an epoch of four batches that is left after two, and gone on with."""
    lines = [weight(0, "w"), LOADER]
    for turn in range(2):
        lines += [["b", 9, 0, turn, 0, [f"r{turn}"], None], *step(turn, 0, f"w{turn}")]
    lines += [["load", 1, 0], *([["reload", 1, 0]] if reload else [])]
    lines.append(weight(1, state))
    for at, turn in enumerate(range(skip, 4)):
        lines += [["b", 9, 1, at, 0, [f"r{turn}"], None], *step(2 + at, 1, f"v{turn}")]
    return lines


def test_an_epoch_that_begins_anew_after_a_resume_is_told(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {0: resumed(skip=0)})
    assert found.code == "resumes_otherwise"
    assert found.error
    assert "the epoch begins anew: the 2 rows of its first 2 batches" in found.message


def test_an_epoch_that_begins_anew_and_ends_early_is_told(tmp_path: Path) -> None:
    lines = resumed(skip=0)
    longer = ["l", 9, 0, {**LOADER[3], "batches": 4}]
    until = lines.index(["b", 9, 1, 2, 0, ["r2"], None])
    (found,) = judge(tmp_path, {0: [longer if each is LOADER else each for each in lines[:until]]})
    assert found.code == "resumes_otherwise"


def test_a_second_epoch_in_the_order_of_the_first_is_right(tmp_path: Path) -> None:
    lines = resumed(skip=0)
    whole = ["l", 9, 0, {**LOADER[3], "batches": 2, "shuffle": False}]
    until = lines.index(["b", 9, 1, 2, 0, ["r2"], None])
    assert judge(tmp_path, {0: [whole if each is LOADER else each for each in lines[:until]]}) == []


def test_epochs_that_end_early_in_one_order_are_right(tmp_path: Path) -> None:
    lines = resumed(skip=0)
    longer = ["l", 9, 0, {**LOADER[3], "batches": 4, "shuffle": False}]
    until = lines.index(["b", 9, 1, 2, 0, ["r2"], None])
    own = [longer if each is LOADER else each for each in lines[:until]]
    assert judge(tmp_path, {0: own}) == []


def test_weights_that_are_put_back_into_one_model_are_right(tmp_path: Path) -> None:
    lines = resumed(skip=0)
    at = lines.index(weight(1, "w1"))
    back, rest = ["f", 1, 0, 0, 1, 1, [[0, "w1"]]], lines[at + 1 :]
    for each in (each for each in rest if each[0] == "o"):
        each[5], each[7] = [[0, "g"]], [[0, each[7][0][1]]]
    assert judge(tmp_path, {0: [*lines[:at], back, *rest]}) == []


def test_a_resume_that_skips_what_was_read_is_right(tmp_path: Path) -> None:
    assert judge(tmp_path, {0: resumed(skip=2)}) == []


def test_a_resume_that_reads_and_leaves_what_was_read_is_right(tmp_path: Path) -> None:
    lines = resumed(skip=0)
    at = lines.index(["bw", 2, 0])
    left = [["b", 9, 1, number, 0, [f"r{number}"], None] for number in range(2)]
    again = [["b", 9, 1, 2, 0, ["r2"], None], ["bw", 2, 0]]
    assert judge(tmp_path, {0: [*lines[: at - 1], *left, *again, *lines[at + 1 :]]}) == []


def test_a_second_phase_with_an_optimizer_of_its_own_is_right(tmp_path: Path) -> None:
    assert judge(tmp_path, {0: resumed(skip=0, reload=False)}) == []


def test_a_run_from_other_weights_is_right(tmp_path: Path) -> None:
    assert judge(tmp_path, {0: resumed(skip=0, state="other")}) == []


def perturbed(rank: int, off: float) -> list[list[Any]]:
    """Return a step in which a rank moves a weight by its own gradient, and back, `off` apart."""
    lines = [weight(0, "w"), DDP, ["f", 0, 0, 0, 1, 1, []], ["bw", 0, 0]]
    lines += [["f", 0, 0, 0, 1, 1, [[0, f"moved{rank}"]]], ["bw", 0, 0]]
    lines.append(["elements", 0, [[0, 0.5 + off * rank, -2.0]]])
    changed, after = [[0, f"back{rank}"]], [[0, f"after{rank}"]]
    return [*lines, ["o", 0, 0, 0, [0.1], [[0, "g"]], changed, after]]


def test_weights_that_are_put_back_up_to_rounding_are_a_warning(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {rank: perturbed(rank, 1e-7) for rank in (0, 1)})
    assert found.code == "replicas_differ"
    assert not found.error
    assert "differs by rounding at step 0" in found.message


def test_weights_that_are_not_put_back_are_an_error(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {rank: perturbed(rank, 1e-3) for rank in (0, 1)})
    assert found.code == "replicas_differ"
    assert found.error


def test_weights_whose_elements_show_no_rounding_are_an_error(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {rank: perturbed(rank, 0) for rank in (0, 1)})
    assert found.code == "replicas_differ"
    assert found.error


def call(operation: str, carries: str, number: int = 0, value: str = "w") -> list[Any]:
    """Return a collective of both ranks on one tensor."""
    about = {"size": 4, "shape": [4], "dtype": "float32", "graph": False, "hash": value}
    about |= {
        "carries": carries,
        "parameters": [number] if carries in {"weight", "gradient"} else [],
    }
    return ["c", 1, 0, operation, [0, 1], 0, "sum", [about], []]


def parting(rank: int, meets: str) -> list[list[Any]]:
    """Return weights that are broadcast once, and steps by a rank's own gradients."""
    lines = [weight(0, "w"), call("broadcast_", "weight"), ["f", 0, 0, 0, 1, 1, []]]
    for turn in range(3):
        lines.append(["bw", turn, 0])
        lines.append(["o", turn, 0, 0, [0.1], [[0, f"g{rank}{turn}"]], [], [[0, f"w{rank}{turn}"]]])
        lines.append(["f", turn + 1, 0, 0, 1, 1, [[0, f"{meets}{turn}"]] if meets else []])
    return lines


def test_weights_that_are_sent_once_and_meet_again_are_right(tmp_path: Path) -> None:
    assert judge(tmp_path, {rank: parting(rank, "met") for rank in (0, 1)}) == []


def test_weights_that_are_sent_once_and_part_for_good_are_told(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {rank: parting(rank, "") for rank in (0, 1)})
    assert found.code == "gradients_differ"
    assert found.error


def named(number: int, name: str, value: str, **about: object) -> list[Any]:
    return ["p", number, name, 0, value, {**ABOUT, "constant": False, "frozen": False, **about}]


def ignored(rank: int, *, sharded: bool) -> list[list[Any]]:
    """Return a scale next to weights that FSDP shards, and its gradient of each rank's own."""
    shard = {"placements": ["S0"], "mesh": [0, 1], "local": [2]} if sharded else {}
    return [
        named(0, "scale", "s", constant=True),
        named(1, "image.weight", f"i{rank}", **shard),
        ["unit", 0, [0, 1], ["image.weight"], 0],
        ["bw", 0, 0],
        ["o", 0, 0, 0, [0.1], [[0, f"g{rank}"], [1, f"h{rank}"]], [], []],
    ]


def test_a_scale_that_fsdp_ignores_is_told(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {rank: ignored(rank, sharded=True) for rank in (0, 1)})
    assert found.code == "gradients_differ"
    assert "`scale`" in found.message


def test_a_scale_next_to_weights_of_each_rank_is_right(tmp_path: Path) -> None:
    assert judge(tmp_path, {rank: ignored(rank, sharded=False) for rank in (0, 1)}) == []


def scaled(rank: int, factors: list[float | None]) -> list[list[Any]]:
    """Return steps before which a rank multiplies its shards of gradients."""
    shard = {"placements": ["S0"], "mesh": [0, 1], "local": [2]}
    lines = [named(0, "w", f"w{rank}", **shard), ["unit", 0, [0, 1], ["w"], 0]]
    for turn, factor in enumerate(factors):
        lines += [["bw", turn, 0], ["kept", 0, [[0, None]], None]]
        lines += [["parts", 0, factor]] if factor is not None else []
        lines.append(["o", turn, 0, 0, [0.1], [[0, f"g{rank}"]], [], []])
    return lines


def test_shards_that_each_rank_clips_by_its_own_norm_are_told(tmp_path: Path) -> None:
    factors: list[list[float | None]] = [[0.5, 0.25], [0.5, 0.2]]
    (found,) = judge(tmp_path, {rank: scaled(rank, factors[rank]) for rank in (0, 1)})
    assert found.code == "norm_is_local"
    assert "0.25 on rank 0, 0.2 on rank 1" in found.message
    assert found.turn == 1


@pytest.mark.parametrize(
    "factors",
    [
        ([0.5, 0.25], [0.5, 0.25]),  # one norm
        ([0.5, 0.5], [1.0, 1.0]),  # a design: layers of one rank learn more slowly
        ([2.0, 3.0], [2.0, 4.0]),  # no clip makes larger
        ([0.5, None], [0.5, 0.2]),
    ],
)
def test_numbers_that_are_no_local_norms_are_right(
    tmp_path: Path, factors: tuple[list[float | None], list[float | None]]
) -> None:
    assert judge(tmp_path, {rank: scaled(rank, factors[rank]) for rank in (0, 1)}) == []


def split(
    rank: int, *, parts: bool, apart: bool, operation: str = "allreduce_", whole: bool = True
) -> list[list[Any]]:
    """Return ranks that exchange activations, and that have one of two weights whole.

    Without a `whole` embedding in front of them, the ranks may be peers, or towers of two kinds.
    """
    lines = [named(0, "a.q.weight", f"q{rank}" if parts else "q"), named(1, "a.kv.weight", "kv")]
    lines.append(named(2, "embed.weight", "e"))
    lines.append(call(operation, "activation", value=f"x{rank}"))
    for turn in range(2):
        after = [[0, f"q{rank}{turn}"], [1, f"kv{turn}{rank if apart else ''}"]]
        gradients = [[0, f"g{rank}"], [1, f"h{rank if apart else ''}"]]
        gradients.append([2, f"e{turn}{'' if whole else rank}"])
        lines += [["bw", turn, 0], ["o", turn, 0, 0, [0.1], gradients, [], after]]
    return lines


def test_a_head_that_tensor_parallel_ranks_share_must_stay_one(tmp_path: Path) -> None:
    lines = {rank: split(rank, parts=True, apart=True) for rank in (0, 1)}
    (found,) = judge(tmp_path, lines)
    assert found.code == "replicas_differ"
    assert "`a.kv.weight` is not equal any more after step 0" in found.message
    assert "next to weights that the ranks split" in found.message


@pytest.mark.parametrize(
    ("parts", "apart", "operation"),
    [
        (True, False, "allreduce_"),
        (False, True, "allreduce_"),  # parts of one seed: nothing says that one is whole
        (True, True, "alltoall_base_"),  # experts
        (True, True, "send"),  # stages have modules of their own
    ],
)
def test_weights_of_one_value_may_be_parts(
    tmp_path: Path, operation: str, *, parts: bool, apart: bool
) -> None:
    ranks = {r: split(r, parts=parts, apart=apart, operation=operation) for r in (0, 1)}
    assert [each for each in judge(tmp_path, ranks) if each.code == "replicas_differ"] == []


def test_peers_from_one_checkpoint_with_heads_of_their_own_are_right(tmp_path: Path) -> None:
    lines = {rank: split(rank, parts=True, apart=True, whole=False) for rank in (0, 1)}
    assert judge(tmp_path, lines) == []
    lines[1] = lines[1][:-1]  # and each of them steps when it likes
    assert judge(tmp_path, lines) == []


@pytest.mark.parametrize(
    ("changed", "factor", "told"),
    [
        ([0, 1, 2], True, True),
        ([0, 1, 2], False, False),
        ([0], True, False),  # a tensor that is clipped alone
    ],
)
def test_parts_that_are_clipped_by_hand_are_told_where_all_of_them_are(
    tmp_path: Path, changed: list[int], *, factor: bool, told: bool
) -> None:
    lines = {rank: split(rank, parts=True, apart=False) for rank in (0, 1)}
    for rank, own in lines.items():
        for turn in range(2):
            at = next(n for n, each in enumerate(own) if each[:2] == ["o", turn])
            before = dict(own[at][5])
            number = 0.5 / (1 + rank * turn) if factor else None
            own.insert(at, ["kept", 0, [[n, before[n]] for n in changed], number])
    assert [each.code for each in judge(tmp_path, lines)] == ["norm_is_local"] * told


@pytest.mark.parametrize(
    ("operation", "shared", "own_loss", "told"),
    [
        ("send", False, True, False),  # each tower has a loss of its own
        ("send", False, False, True),  # a stage of a pipeline
        ("allgather_", False, True, False),
        ("allgather_", True, True, True),  # nothing but a gradient that they reduce shows it
    ],
)
def test_towers_may_clip_by_norms_of_their_own(
    tmp_path: Path, operation: str, *, shared: bool, own_loss: bool, told: bool
) -> None:
    lines = {}
    for rank in (0, 1):
        own = [named(0, "body.weight", f"b{'' if shared else rank}")]
        own += [call(operation, "activation", value=f"x{rank}"), ["bw", 0, 0, own_loss]]
        if shared:
            own.append(call("allreduce_", "gradient", value=f"g{rank}"))
        own.append(["clip", 0, 0, 2.0 + rank, 1.0, False, [0]])
        own.append(["o", 0, 0, 0, [0.1], [[0, f"g{rank}"]], [], [[0, f"a{rank}"]]])
        lines[rank] = own
    assert [each.code for each in judge(tmp_path, lines)] == ["norm_is_local"] * told


@pytest.mark.parametrize("before", ["0.weight", "1.scale"])
def test_a_norm_of_each_rank_in_a_module_of_its_own_is_right(tmp_path: Path, before: str) -> None:
    """A norm for each domain: its constants are next to no random weight."""
    body = {**ABOUT, "constant": False, "frozen": False}
    lines: dict[int, list[list[Any]]] = {}
    for rank in (0, 1):
        lines[rank] = [["p", 0, before, 0, "w", body]]
        lines[rank] += [["p", 1, "1.weight", 0, "ones", {**body, "constant": True}]]
        lines[rank] += [call("allreduce_", "gradient")]
        gradients = [[0, "g"], [1, f"h{rank}"]]
        lines[rank] += [["bw", 0, 0], ["o", 0, 0, 0, [0.1], gradients, [], [[0, "v"], [1, "n"]]]]
    codes = [each.code for each in judge(tmp_path, lines)]
    assert codes == (["gradients_differ"] if before.startswith("1.") else [])


def test_a_step_that_one_part_of_a_model_leaves_out_is_told(tmp_path: Path) -> None:
    lines = {rank: split(rank, parts=True, apart=False) for rank in (0, 1)}
    assert judge(tmp_path, lines) == []
    lines[1] = lines[1][:-1]
    (found,) = judge(tmp_path, lines)
    assert found.code == "replicas_differ"
    assert "rank 1 leaves the step of the optimizer out" in found.message


def test_a_reduction_that_nothing_waits_for_is_told(tmp_path: Path) -> None:
    left = ["x", "touched_in_flight", 0, {"how": "left", "steps": 3}]
    (found,) = judge(tmp_path, {0: [weight(0, "w"), call("allreduce_", "gradient"), left]})
    assert found.code == "touched_in_flight"
    assert found.error
    assert "nothing waits for this call, which reduces gradients, in 3 steps" in found.message


def copied(rank: int, *, early: bool) -> list[list[Any]]:
    """Return a model whose optimizer steps a copy, made before or after a broadcast."""
    lines = [named(0, "w", f"own{rank}"), call("broadcast_", "weight")]
    lines += [named(1, "master", f"own{rank}" if early else "w", root=-1)]
    for turn in range(3):
        now = f"w{turn}{rank if early and turn else ''}"
        lines += [["f", turn, 0, 0, 1, 1, [[0, now]]], ["bw", turn, 0]]
        lines.append(call("allreduce_", "gradient", 1, f"g{rank}{turn}"))
        lines[-1][7][0]["exact"] = True
        after = [[1, f"m{turn}{rank if early else ''}"]]
        lines.append(["o", turn, 0, 0, [0.1], [[1, f"g{turn}"]], [], after])
    return lines


def test_copies_that_are_older_than_a_broadcast_are_told_once(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {rank: copied(rank, early=True) for rank in (0, 1)})
    assert found.code == "replicas_differ"
    assert "these are copies that were made before a call made the weights equal" in (found.message)
    assert found.hint.startswith("make the copies that the optimizer steps after")


def test_copies_that_are_made_after_a_broadcast_are_right(tmp_path: Path) -> None:
    assert judge(tmp_path, {rank: copied(rank, early=False) for rank in (0, 1)}) == []


def flat_of_parts(rank: int, *, joined: bool) -> list[list[Any]]:
    """Return steps of four ranks, two and two with a part, whose gradients go in one flat copy."""
    lines = [named(0, "w", "w"), named(1, "part", f"part{rank % 2}")]
    for turn in range(2):
        lines += [["f", turn, 0, 0, 1, 1, []], ["bw", turn, 0]]
        about = {"size": 8, "shape": [8], "dtype": "float32", "carries": "gradient"}
        about |= {"graph": False, "hash": f"{rank}", "parameters": [0, 1], "joined": joined}
        lines.append(["c", turn, turn, "allreduce_", [0, 1, 2, 3], 0, "sum", [about], []])
        after = [[0, f"w{turn}"], [1, f"part{rank % 2}{turn}"]]
        lines.append(["o", turn, 0, 0, [0.1], [[0, "g"], [1, f"g{turn}"]], [], after])
    return lines


@pytest.mark.parametrize("joined", [True, False])
def test_parts_of_a_model_that_one_flat_copy_reduces_together_are_told(
    tmp_path: Path, *, joined: bool
) -> None:
    """What a flat tensor holds is known where it is its gradients, one after another."""
    found = judge(tmp_path, {rank: flat_of_parts(rank, joined=joined) for rank in range(4)})
    assert [each.code for each in found] == ["replicas_differ"] * joined
    for each in found:
        assert "the gradients of different parts of `part` are reduced together" in each.message


def owned(rank: int, *, loads: bool, weights: bool = True) -> list[list[Any]]:
    """Return a resume of two ranks, of which each steps a parameter of its own."""
    lines = [named(0, "a", "a"), named(1, "b", "b"), ["f", 0, 0, 0, 1, 1, []], ["bw", 0, 0]]
    lines.append(["o", 0, 0, 0, [0.1], [[rank, "g"]], [], [[rank, "x"]]])
    lines += [["load", 0, 0]] if weights else []
    if loads:
        lines += [["reload", 0, 0], ["loaded_state", 0, 0, [["0.0", "x", f"momentum{rank}"]]]]
    lines += [["f", 1, 0, 0, 1, 1, []], ["bw", 1, 0]]
    return [*lines, ["o", 1, 1, 0, [0.1], [[rank, "h"]], [], [[rank, "y"]]]]


def test_a_state_of_its_own_that_one_owner_does_not_load_is_told(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {rank: owned(rank, loads=rank == 0) for rank in (0, 1)})
    assert found.code == "resumes_otherwise"
    assert found.error
    assert "rank 0 loads a state of its optimizer, and rank 1 loads the weights" in found.message


@pytest.mark.parametrize(("loads", "weights"), [(True, True), (False, False)])
def test_owners_that_load_or_begin_anew_are_right(
    tmp_path: Path, *, loads: bool, weights: bool
) -> None:
    lines = {0: owned(0, loads=True), 1: owned(1, loads=loads, weights=weights)}
    assert judge(tmp_path, lines) == []


def test_an_owner_whose_optimizer_keeps_no_state_has_none_to_load(tmp_path: Path) -> None:
    """A stage of a pipeline may step with SGD without momentum, where another one has Adam."""
    lines = {rank: owned(rank, loads=rank == 0) for rank in (0, 1)}
    for rank, kind in ((0, "Adam"), (1, "SGD")):
        lines[rank].insert(2, ["set", 1, kind, [{"momentum": 0}]])
    assert judge(tmp_path, lines) == []
    lines[1][2][2:] = ["Adam", [{"momentum": 0}]]
    assert [each.code for each in judge(tmp_path, lines)] == ["resumes_otherwise"]


def test_a_parameter_made_after_ddp_is_told_though_all_ranks_step_it(tmp_path: Path) -> None:
    """DDP reduces no gradient of what it does not know, whoever steps it."""
    lines = {}
    for rank in (0, 1):
        lines[rank] = [weight(0, "w"), DDP, named(1, "late", "x")]
        lines[rank] += [["late", 1, "DistributedDataParallel", -1], *step(0, 0, "w1")]
        lines[rank][-1][5].append([1, "g"])
    (found,) = judge(tmp_path, lines)
    assert found.code == "parameter_not_wrapped"
    assert "`late` was made after DistributedDataParallel took its list" in found.message


@pytest.mark.parametrize(("number", "is_told"), [(1, False), (2, True)])
def test_a_late_parameter_that_another_rank_steps_is_not_left_out(
    tmp_path: Path, number: int, *, is_told: bool
) -> None:
    lines = {rank: owned(rank, loads=False, weights=False) for rank in (0, 1)}
    lines[0] += [named(2, "c", "c"), ["late", number, "optimizer", 0]]
    found = judge(tmp_path, lines)
    assert [each.code for each in found] == ["parameter_not_wrapped"] * is_told


@pytest.mark.parametrize(
    ("epoch", "is_told"), [([0, 1, 2, 3], True), ([0], False), ([0, 0, 1, 1], False)]
)
def test_the_rows_of_an_epoch_come_again_in_the_next_one(
    tmp_path: Path, epoch: list[int], *, is_told: bool
) -> None:
    """Without a loader: two ranks call DDP with the same batches; one batch alone is a trial."""
    lines: dict[int, list[list[Any]]] = {rank: [weight(0, "w"), DDP] for rank in (0, 1)}
    for turn, batch in enumerate(epoch * 2):
        rows = [f"{batch}-{n}" for n in range(16)]
        for each in lines.values():
            each.extend([["in", turn, rows, 0, 0, [[4]]], ["f", turn, 0, 0, 1, 1, []]])
            each.extend([["bw", turn, 0], *step(turn, 0, f"w{turn}")])
    found = judge(tmp_path, lines)
    assert [(each.code, each.error) for each in found] == [("same_samples", True)] * is_told


def tensor_parallel(rank: int) -> list[list[Any]]:
    """Return a rank of a model of two ranks that all four reduce gradients with: one batch each."""
    lines = [named(0, "w", "w"), named(1, "part", f"part{rank % 2}")]
    for turn in range(6):
        rows = [f"{rank // 2}-{turn}-{n}" for n in range(16)]
        lines += [["in", turn, rows, 0, 0, [[4]]], ["f", turn, 0, 0, 1, 1, []]]
        about = {"size": 4, "shape": [4], "dtype": "float32", "graph": True, "parameters": []}
        about |= {"carries": "activation", "hash": f"{rank}{turn}"}
        pair = [rank - rank % 2, rank - rank % 2 + 1]
        lines += [["c", turn, turn, "allreduce_", pair, 0, "sum", [about], []], ["bw", turn, 0]]
        own = {**about, "carries": "gradient", "parameters": [0], "exact": True}
        lines.append(["c", turn, turn, "allreduce_", [0, 1, 2, 3], 0, "sum", [own], []])
        after = [[0, f"w{turn}"], [1, f"part{rank % 2}{turn}"]]
        lines.append(["o", turn, 0, 0, [0.1], [[0, f"g{turn}"], [1, f"h{turn}"]], [], after])
    return lines


def test_ranks_of_one_model_train_on_the_same_rows_in_a_group_of_all(tmp_path: Path) -> None:
    assert judge(tmp_path, {rank: tensor_parallel(rank) for rank in range(4)}) == []


def test_another_model_of_one_rank_may_have_the_name_of_what_all_train(tmp_path: Path) -> None:
    """Rank 0 makes a checkpoint by a model of its own first, which takes the shorter names."""
    lines = {}
    for rank in (0, 1):
        number = 1 - rank
        own = [named(0, "w", "own", root=0), ["f", 0, 0, 0, 1, 1, []], ["bw", 0, 0]]
        own.append(["o", 0, 7, 0, [0.1], [[0, "g"]], [], [[0, "x"]]])
        own = own if rank == 0 else []
        own.append(named(number, "w" if rank else "net.w", "sent", root=number))
        for turn in (1, 2):
            own += [["f", turn, number, 0, 1, 1, []], ["bw", turn, 0]]
            own.append(call("allreduce_", "gradient", number, f"g{rank}{turn}"))
            own[-1][7][0]["exact"] = True
            own.append(["o", turn, 8, 0, [0.1], [[number, "g"]], [], [[number, f"w{turn}"]]])
        lines[rank] = own
    assert judge(tmp_path, lines) == []
