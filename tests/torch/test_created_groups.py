"""Groups that ranks create while the program runs: which calls of `new_group` belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sampling import sampled

import torch_scenarios
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.reference import backends
from torch_scenarios.verdict import witnesses

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.execution import Launcher
    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import Trace
    from torch_scenarios.verdict import Verdict


def judged(text: str, folder: Path) -> Verdict:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return torch_scenarios.judge(scenario, torch_scenarios.simulate(torch_scenarios.plan(scenario)))


APART = """\
world_size: 4
tensors: {x: "full(1, rank + 1)"}
steps:
  - new_group: {name: g, ranks: "[0, 1] if rank < 2 else [2, 3]", use_local_synchronization: true}
  - all_reduce: {tensor: x, group: g}
    expect: {x: {"rank < 2": [3], else: [7]}}
"""

ANY_ORDER = """\
world_size: 3
tensors: {x: "full(1, rank + 1)"}
steps:
  - ranks: [0, 1]
    new_group: {name: left, ranks: [0, 1], use_local_synchronization: true}
  - ranks: [0, 2]
    new_group: {name: right, ranks: [0, 2], use_local_synchronization: true}
  - all_reduce: {tensor: x, group: left}
  - all_reduce: {tensor: x, group: right}
    expect: {x: {0: [6], 2: [6]}}
"""

TWO_NAMES = """\
world_size: 2
tensors: {x: "full(1, rank + 1)"}
steps:
  - {ranks: 0, new_group: {name: a, ranks: [0, 1]}}
  - {ranks: 1, new_group: {name: b, ranks: [0, 1]}}
  - {ranks: 0, all_reduce: {tensor: x, group: a}}
  - {ranks: 1, all_reduce: {tensor: x, group: b}}
expect: {x: [3]}
"""

TWICE = """\
world_size: 2
tensors: {x: "full(1, rank + 1)"}
steps:
  - for: {i: "range(2)"}
    steps:
    - new_group: {name: g, ranks: [0, 1], use_local_synchronization: true}
    - all_reduce: {tensor: x, group: g}
expect: {x: [6]}
"""

RENAMED = """\
world_size: 3
tensors: {x: [1]}
steps:
  - new_group: {name: g, group_ranks: [0, 1]}
  - new_group: {name: g, group_ranks: [1, 2]}
  - expect: {"group_rank(g)": {0: -1, 1: 0, 2: 1}}
  - all_reduce: {tensor: x, group: g}
expect: {x: {0: [1], else: [2]}}
"""


@pytest.mark.parametrize("text", [APART, ANY_ORDER, TWO_NAMES, TWICE])
def test_groups_that_their_members_create_alike_are_right(text: str, tmp_path: Path) -> None:
    verdict = judged(text, tmp_path)
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


@pytest.mark.torch
@pytest.mark.parametrize("text", [APART, TWO_NAMES, TWICE, RENAMED])
def test_torch_creates_them_too(text: str, tmp_path: Path, launcher: Launcher) -> None:
    path = tmp_path / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    plan = torch_scenarios.plan(scenario)
    predicted = torch_scenarios.simulate(plan)
    verdict = torch_scenarios.judge(scenario, predicted, launcher.run(plan, predicted))
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


def test_ranks_that_stand_alone_in_groups_of_one_name_do_not_meet(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: "full(1, rank + 1)"}
steps:
  - new_group: {name: own, ranks: "[rank]", use_local_synchronization: true}
  - all_reduce: {tensor: x, group: own}
    expect: {x: "full(1, rank + 1)"}
"""
    path = tmp_path / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    predicted = torch_scenarios.simulate(torch_scenarios.plan(scenario))
    assert torch_scenarios.judge(scenario, predicted).status == "PASSED"
    assert predicted.ranks[0].links[1] != predicted.ranks[1].links[1]


def test_a_member_that_creates_another_group_is_missed(tmp_path: Path) -> None:
    text = """\
world_size: 3
steps:
  - ranks: [0, 1]
    new_group: {name: g, ranks: "[0, 1] if rank == 0 else [0, 1, 2]",
      use_local_synchronization: true}
expect: {outcome: deadlock, diagnosis: group_creation, blocked: {0: new_group g, 1: new_group g}}
"""
    verdict = judged(text, tmp_path)
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


def test_a_name_means_the_latest_group_also_where_it_is_of_others(tmp_path: Path) -> None:
    verdict = judged(RENAMED, tmp_path)
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


DISPUTED = """\
world_size: 4
steps:
  - {ranks: [0, 1, 2], new_group: {name: g, group_ranks: [1, 3]}}
  - new_group: {name: h, group_ranks: [0, 3]}
  - barrier: {}
expect: {outcome: deadlock, diagnosis: group_creation BLOCKED}
"""


def test_who_creates_after_a_dispute_is_not_blocked_for_sure(tmp_path: Path) -> None:
    # rank 1 and rank 3 each wait for the other under one count, and on Gloo they meet
    without = judged(DISPUTED.replace(" BLOCKED", ""), tmp_path)
    assert without.status == "PASSED", [finding.prose for finding in without.findings]
    assert without.predicted is not None
    endings = [rank.ending for rank in without.predicted.ranks]
    assert endings == ["possibly_blocked"] * 4
    for rank, step in {0: "new_group h", 1: "new_group g", 2: "barrier"}.items():
        stated = judged(DISPUTED.replace(" BLOCKED", f", blocked: {{{rank}: {step}}}"), tmp_path)
        assert any("only possibly blocked" in finding.prose for finding in stated.findings)


def test_who_waits_for_a_creation_that_nobody_disputes_is_blocked_for_sure(tmp_path: Path) -> None:
    text = """\
world_size: 3
steps:
  - {ranks: [0, 2], new_group: {name: g, group_ranks: [0, 1]}}
expect: {outcome: deadlock, diagnosis: missing_participant, blocked: {0: new_group g}}
"""
    verdict = judged(text, tmp_path)
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


# ---------------------------------------------------------------------------- counted on Gloo

#: name -> what every rank does before step 1, the steps (a creation is `ranks: group of members`),
#: and what Gloo makes of it: the outcome, and the ranks that are blocked
COUNTED: dict[str, tuple[str, str, str, set[int]]] = {
    "pairs_in_a_chain": ("", "a01 b12", "deadlock", {1, 2}),
    "pairs_in_a_ring": ("", "a01 c23 b12 d03 =a =b =c =d", "completes", set()),
    "pairs_of_a_star": ("", "a01 b02", "deadlock", {0, 2}),
    "declared_before_for_some": ("groups: {e: [0, 2]}", "a01", "deadlock", {0, 1}),
    "declared_before_for_all": ("groups: {e: [0, 1]}", "a01 =a", "completes", set()),
    "a_part_of_a_partition": ("groups: {p: {partition: [[0, 1]]}}", "a12", "deadlock", {1, 2}),
    "every_part_of_a_partition": (
        "groups: {p: {partition: [[0, 1], [2, 3]]}}",
        "a12 =a",
        "completes",
        set(),
    ),
    "a_smaller_mesh": ("groups: {m: {shape: [2], dims: [d]}}", "a12", "deadlock", {1, 2}),
    "a_mesh": ("groups: {m: {shape: [2, 2], dims: [d, t]}}", "a12 =a", "completes", set()),
    "ordinary_before_for_some": ("", "*e02 a01", "deadlock", {0, 1}),
    "ordinary_before_for_all": ("", "*e0123 a01 =a", "completes", set()),
    "alone_before": ("", "o0 a01", "deadlock", {0, 1}),
    "each_alone_before": ("", "o0 p1 a01 =a", "completes", set()),
    "destroyed_before": ("", "a01 -a01 b12 =b", "completes", set()),
    "destroyed_before_by_one": ("", "a012 -a1 b12", "deadlock", {1, 2}),
    "behind_a_hang": ("", "o0 a01 b12", "deadlock", {0, 1, 2}),
    "a_name_in_use": ("groups: {g: [0, 1]}", "a01 -g01 b01", "error", {0, 1}),
    "a_name_in_use_by_one": ("groups: {g: [0, 1]}", "a01 -g0 b01", "error", {0, 1}),
    "an_ordinary_one_behind": ("", "a01 *e0123 =e", "completes", set()),
    "an_ordinary_one_behind_equals": ("", "a01 b23 *e0123 =e", "completes", set()),
    "an_ordinary_one_behind_for_others": ("", "a01 *e23 =e", "completes", set()),
    "an_ordinary_one_behind_for_one_of_them": ("", "a01 *e12", "completes", set()),
}


#: rows that come to something else from torch 2.14 on, where calls are counted instead of groups
SINCE_2_14: dict[str, tuple[str, set[int]]] = {
    "declared_before_for_some": ("completes", set()),
    "a_part_of_a_partition": ("completes", set()),
    "a_smaller_mesh": ("completes", set()),
    "ordinary_before_for_some": ("completes", set()),
    "destroyed_before": ("deadlock", {1, 2}),
    "destroyed_before_by_one": ("completes", set()),
    "a_name_in_use": ("completes", set()),
    "a_name_in_use_by_one": ("completes", set()),
    "an_ordinary_one_behind": ("deadlock", {0, 1, 2, 3}),
    "an_ordinary_one_behind_for_one_of_them": ("deadlock", {1, 2}),
}


def counted(name: str) -> str:
    """Return the scenario of a row of the table."""
    head, words, _, _ = COUNTED[name]
    steps = []
    for word in words.split():
        group, ranks = word.strip("*-=")[0], [int(digit) for digit in word if digit.isdigit()]
        if word[0] == "=":
            steps.append(f"  - barrier: {{group: {group}}}")
        elif word[0] == "-":
            steps.append(f"  - {{ranks: {ranks}, destroy_process_group: {{group: {group}}}}}")
        elif word[0] == "*":
            steps.append(f"  - new_group: {{name: {group}, group_ranks: {ranks}}}")
        else:
            made = f"name: {group}, group_ranks: {ranks}, use_local_synchronization: true"
            steps.append(f"  - {{ranks: {ranks}, new_group: {{{made}}}}}")
    return "\n".join(["world_size: 4", "timeout: 2s", head, "steps:", *steps, ""])


def predicted_on_gloo(text: str, folder: Path) -> tuple[Plan, Trace, Trace]:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    plan = torch_scenarios.plan(scenario)
    predicted = torch_scenarios.simulate(plan)
    return plan, predicted, predicted.on("gloo")


def held_up(trace: Trace) -> set[int]:
    return {rank.rank for rank in trace.ranks if rank.ending != "finished"}


@pytest.mark.parametrize("torch", ["2.13.0+cpu", "2.14.1"])
@pytest.mark.parametrize("name", COUNTED)
def test_a_local_group_on_gloo_is_forecast(name: str, torch: str, tmp_path: Path) -> None:
    _, _, outcome, blocked = COUNTED[name]
    if torch == "2.14.1":
        outcome, blocked = SINCE_2_14.get(name, (outcome, blocked))
    _, predicted, _ = predicted_on_gloo(counted(name), tmp_path)
    forecast = predicted.on("gloo", torch)
    assert (predicted.outcome, predicted.diagnoses) == ("completes", ())
    assert (forecast.outcome, forecast.open, held_up(forecast)) == (outcome, (), blocked)
    assert bool(forecast.because) == (outcome != "completes")


@pytest.mark.torch
@pytest.mark.parametrize("name", sampled(list(COUNTED), 2))
def test_gloo_does_with_a_local_group_what_is_forecast(
    name: str, tmp_path: Path, launcher: Launcher
) -> None:
    plan, predicted, forecast = predicted_on_gloo(counted(name), tmp_path)
    observed = launcher.run(plan, predicted)
    assert observed.outcome == forecast.outcome
    assert held_up(observed) == held_up(forecast)
    for rank, other in zip(observed.ranks, forecast.ranks, strict=True):
        assert (rank.events[-1].label if rank.events else "") == (
            other.events[-1].label if other.events else ""
        )


def test_the_forecast_is_of_the_torch_that_is_asked_for_stated_or_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = counted("declared_before_for_some")

    def codes(more: str = "", torch: str | None = None) -> list[str]:
        path = tmp_path / "program.yaml"
        path.write_text(more + text, encoding="utf-8")
        (scenario,) = torch_scenarios.load(path)
        verdict = analyse(scenario, torch=torch).verdict
        on_gloo = analyse(scenario, backend="gloo", torch=torch).verdict
        assert (on_gloo.status == "PASSED") == (not verdict.warnings)
        return [warning.code for warning in verdict.warnings]

    versions: dict[str | None, list[str]] = {
        "2.13.0+cpu": ["gloo_differs"],
        "2.14.1": [],
        None: [],
    }
    for version, found in versions.items():
        monkeypatch.setattr(backends, "find_torch_version", lambda version=version: version)
        monkeypatch.setattr(witnesses, "find_torch_version", lambda version=version: version)
        assert codes() == found
        assert codes('torch: "<2.14"\n') == ["gloo_differs"]
        assert codes('torch: ">=2.14"\n') == []
        assert codes(torch="2.14.1") == []
        assert codes(torch="2.13.0") == ["gloo_differs"]


@pytest.mark.parametrize(
    ("name", "versions", "stuck"),
    [
        ("an_ordinary_one_behind", ">=2.14", "world: new_group e"),
        ("a_smaller_mesh", "<2.14", "1: new_group a, 2: new_group a"),
    ],
)
def test_a_section_of_versions_is_held_against_the_forecast_of_these(
    name: str, versions: str, stuck: str, tmp_path: Path
) -> None:
    text = f'{counted(name)}expect:\n  "gloo torch{versions}": '
    right = f"{{outcome: deadlock, blocked: {{{stuck}}}}}"
    wrong = right.replace("new_group", "barrier")
    assert judged(text + right, tmp_path).status == "PASSED"
    assert judged(text + wrong, tmp_path).status == "FAILED"


AGAIN = """\
world_size: 2
timeout: 3s
tensors: {x: "full(1, rank + 1)"}
steps:
  - new_group: {name: a, group_ranks: [0, 1], use_local_synchronization: true}
  - all_reduce: {tensor: x, group: a}
  - destroy_process_group: {group: a}
  - {ranks: 0, sleep: 0.5s}
  - new_group: {name: a, group_ranks: [0, 1], use_local_synchronization: true}
  - all_reduce: {tensor: x, group: a}
"""


def test_a_name_that_was_used_before_leaves_open_what_gloo_does(tmp_path: Path) -> None:
    _, predicted, _ = predicted_on_gloo(AGAIN, tmp_path)
    forecast = predicted.on("gloo", "2.13.0")
    assert (predicted.outcome, predicted.open) == ("completes", ())
    assert (forecast.outcome, forecast.open) == ("completes", ("deadlock", "error"))
    assert "ranks 0, 1 made with the same members and destroyed" in forecast.because[0]


@pytest.mark.torch
def test_gloo_does_one_of_what_is_open_with_a_used_name(tmp_path: Path, launcher: Launcher) -> None:
    plan, predicted, forecast = predicted_on_gloo(AGAIN, tmp_path)
    observed = launcher.run(plan, predicted)
    assert observed.outcome in {forecast.outcome, *forecast.open}


def test_a_chain_of_pairs_says_who_is_in_how_many_groups(tmp_path: Path) -> None:
    *_, forecast = predicted_on_gloo(counted("pairs_in_a_chain"), tmp_path)
    (because,) = forecast.because
    assert because == (
        "the members of `new_group b` (program.yaml:6) look for each other under the number of "
        "groups that each is in: rank 1 is in 2 groups; rank 2 is in the world alone"
    )
    assert forecast.diagnoses == ()


def test_another_backend_counts_no_groups(tmp_path: Path) -> None:
    _, predicted, _ = predicted_on_gloo(counted("pairs_in_a_chain"), tmp_path)
    assert predicted.on("ucc") is predicted


CHAIN = """world_size: 3
steps:
  - {ranks: [0, 1], new_group: {name: a, group_ranks: [0, 1], use_local_synchronization: true}}
  - {ranks: [1, 2], new_group: {name: b, group_ranks: [1, 2], use_local_synchronization: true}}
"""


STATED = "expect: {gloo: {outcome: deadlock, blocked: {1: new_group b, 2: new_group b}}}\n"


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        ("", ["gloo_differs"]),
        ("backends: [gloo]\n", ["gloo_differs"]),
        ("backends: [nccl]\n", []),
        (STATED, []),
    ],
)
def test_without_a_backend_a_warning_says_what_gloo_does(
    more: str, warned: list[str], tmp_path: Path
) -> None:
    verdict = judged(CHAIN + more, tmp_path)
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]
    assert [each.code for each in verdict.warnings] == warned


def test_with_gloo_asked_for_it_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "program.yaml"
    path.write_text(CHAIN, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    verdict = torch_scenarios.judge(
        scenario, torch_scenarios.simulate(torch_scenarios.plan(scenario)), backend="gloo"
    )
    assert (verdict.status, verdict.warnings) == ("FAILED", ())
    (finding,) = verdict.findings
    assert (
        finding.prose
        == "the program's outcome on gloo is deadlock; no outcome is stated, so it must complete"
    )
    assert "rank 1 is in 2 groups; rank 2 is in the world alone" in finding.because[0]


def arriving(arrivals: list[float], timeout: str = "2s") -> str:
    """Return a program whose ranks call `new_group` at these seconds."""
    at = ", ".join(f"{rank}: {seconds}s" for rank, seconds in enumerate(arrivals))
    return f"""\
world_size: {len(arrivals)}
timeout: 30s
tensors: {{x: [1]}}
steps:
  - sleep: {{{at}}}
  - new_group: {{name: g, timeout: {timeout}}}
  - all_reduce: {{tensor: x, group: g}}
"""


@pytest.mark.parametrize(
    "arrivals",
    [[0, 1.5, 3], [1.5, 0, 3], [0, 1.5, 3, 4.5], [0.5, 0, 2.2], [1, 0, 2, 2.5]],
    ids=str,
)
def test_members_that_wait_for_one_after_the_other_do_not_add_up_their_waits(
    arrivals: list[float], tmp_path: Path
) -> None:
    assert judged(arriving(arrivals), tmp_path).status == "PASSED"


@pytest.mark.parametrize(
    ("arrivals", "gave_up"),
    [
        ([0, 3], {0: 2}),
        ([3, 0], {1: 2}),
        ([0, 3, 1.5], {0: 2}),
        ([3, 0, 1.5], {1: 2}),
        ([3, 1.5, 0], {2: 2}),
        ([0, 0.5, 3], {0: 2.5, 1: 2.5}),
        ([0, 3, 0], {0: 2, 2: 2}),
    ],
    ids=str,
)
def test_who_comes_late_to_a_creation_raises_in_it_and_no_member_has_the_group(
    arrivals: list[float], gave_up: dict[int, float], tmp_path: Path
) -> None:
    path = tmp_path / "program.yaml"
    path.write_text(arriving(arrivals) + "expect: {outcome: error}\n", encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    trace = torch_scenarios.simulate(torch_scenarios.plan(scenario))
    assert trace.outcome == "error"
    for rank in trace.ranks:
        last = rank.events[-1]
        assert (last.label, rank.ending) == ("new_group g", "raised")
        assert last.failure is not None
        assert ("other" in last.failure.kinds) == (rank.rank not in gave_up)
        assert last.end_s == gave_up.get(rank.rank, max(arrivals))


def test_a_rank_whose_creation_raised_skips_what_its_members_would_do(tmp_path: Path) -> None:
    raises = "    expect: {raises: {0: timeout, else: [timeout, peer_lost, aborted, other]}}\n"
    text = arriving([0, 3]).replace("  - all_reduce", raises + "  - all_reduce")
    assert judged(text + "expect: {x: [1]}\n", tmp_path).status == "PASSED"


def test_each_member_counts_a_timeout_of_its_own(tmp_path: Path) -> None:
    patient = arriving([0, 3], "{0: 5s, 1: 1s}")
    assert judged(patient, tmp_path).status == "PASSED"
