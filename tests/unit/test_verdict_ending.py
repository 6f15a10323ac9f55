"""How a scenario ends, what ranks raise and when: author, reference and run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import at_step, checked, codes, hanging, on_rank, raising, ran
from msgspec.structs import replace

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.trace import Trace

STUCK = """\
world_size: 2
tensors: {x: [1]}
steps:
  - name: sum of both
    ranks: 0
    all_reduce: {tensor: x}
expect:
  outcome: deadlock
  diagnosis: missing_participant
"""


@pytest.mark.parametrize("name", ["sum of both", "all_reduce"])
def test_blocked_takes_a_steps_name_or_its_operation(name: str, tmp_path: Path) -> None:
    assert checked(f"{STUCK}  blocked: {{0: {name}}}\n", tmp_path).findings == ()


EITHER = """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 0, broadcast: {tensor: x, src: 0}}
expect:
  diagnosis: missing_participant
"""


def test_a_list_of_outcomes_takes_any_of_them(tmp_path: Path) -> None:
    listed = f"{EITHER}  outcome: [completes, deadlock]\n"
    assert checked(listed, tmp_path).findings == ()
    assert ran(listed, tmp_path).findings == ()
    assert ran(listed, tmp_path, hanging(0, 0)).findings == ()
    assert codes(ran(listed, tmp_path, raising(0, 0, "other"))) == ["outcome_differs"]


def test_a_list_without_a_possible_outcome_is_wrong(tmp_path: Path) -> None:
    verdict = checked(f"{EITHER}  outcome: [error, crash]\n", tmp_path)
    assert codes(verdict) == ["outcome_differs"]
    assert "you expect error or crash" in verdict.findings[0].prose


def test_an_open_outcome_is_no_warning_where_its_fault_is_not_stated(tmp_path: Path) -> None:
    verdict = checked(EITHER.replace("expect:\n  diagnosis: missing_participant\n", ""), tmp_path)
    assert codes(verdict) == ["diagnosis_undeclared"]
    assert verdict.warnings == ()


def test_an_open_outcome_that_is_not_stated_is_a_warning(tmp_path: Path) -> None:
    (said,) = checked(EITHER, tmp_path).warnings
    assert (said.code, said.message) == (
        "outcome_open",
        "no outcome is stated, and deadlock stays possible",
    )
    for stated in ("completes", "deadlock", "[completes, deadlock]"):
        assert checked(f"{EITHER}  outcome: {stated}\n", tmp_path).warnings == ()
    assert checked("world_size: 2\nsteps: [barrier: {}]\n", tmp_path).warnings == ()


def test_a_run_is_held_against_completes_where_nothing_is_stated(tmp_path: Path) -> None:
    assert codes(ran(EITHER, tmp_path, hanging(0, 0))) == ["outcome_differs"]


def test_a_backends_section_states_a_list_of_its_own(tmp_path: Path) -> None:
    own = f"{EITHER}  outcome: completes\n  gloo: {{outcome: [completes, deadlock]}}\n"
    assert ran(own, tmp_path, hanging(0, 0)).findings == ()


@pytest.mark.parametrize("stated", ["x: [2]", "'x[0]': 2", "x: {0: [2], else: [3]}"])
@pytest.mark.parametrize("place", ["step", "end"])
def test_who_relies_on_an_undefined_value_has_the_diagnosis(
    place: str, stated: str, tmp_path: Path
) -> None:
    text = "world_size: 2\ntensors: {x: [1]}\nsteps: [{reduce: {tensor: x, dst: 0}AT}]\nEND"
    beside, end = (f", expect: {{{stated}}}", "") if place == "step" else ("", f"  {stated}\n")
    for diagnosis, relied in (("", ["undefined_read"]), ("  diagnosis: undefined_read\n", [])):
        final = f"expect:\n{diagnosis}{end}" if diagnosis or end else ""
        verdict = checked(text.replace("AT", beside).replace("END", final), tmp_path)
        assert verdict.predicted is not None
        assert [each.name for each in verdict.predicted.diagnoses] == ["undefined_read"]
        assert [each.ranks for each in verdict.predicted.diagnoses] == [(1,)]
        assert [code for code in codes(verdict) if code == "undefined_read"] == relied


def test_blocked_takes_a_label_with_the_peer(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1}}
expect: {outcome: deadlock, diagnosis: unmatched_send, blocked: {0: send to 1}}
"""
    assert checked(text, tmp_path).findings == ()
    assert codes(checked(text.replace("send to 1", "send to 2"), tmp_path)) == ["blocked_differs"]


@pytest.mark.parametrize(
    "stated", ["{0: barrier}", "{1: all_reduce}", "{0: all_reduce, 1: all_reduce}"]
)
def test_blocked_elsewhere_fails(stated: str, tmp_path: Path) -> None:
    assert "blocked_differs" in codes(checked(f"{STUCK}  blocked: {stated}\n", tmp_path))


@pytest.mark.parametrize(
    ("stated", "column"),
    [
        ("blocked: {0: sum}", 16),
        ("blocked: {[0]: sum}", 18),
        ("blocked: {else: sum}", 19),
        ("blocked: {1: sum, 0: sum of both}", 16),
        ("dies: {1: SIGABRT}", 13),
    ],
)
def test_what_is_stated_wrongly_of_a_rank_is_shown_at_its_value(
    stated: str, column: int, tmp_path: Path
) -> None:
    findings = checked(f"{STUCK}  {stated}\n", tmp_path).findings
    mark = findings[0].mark
    assert mark is not None
    assert (mark.line, mark.column) == (10, column)


def test_a_run_may_add_only_ranks_that_are_possibly_blocked(tmp_path: Path) -> None:
    text = """\
world_size: 3
tensors: {x: [1]}
steps:
  - {ranks: [0, 1], broadcast: {tensor: x, src: 0}}
expect:
  diagnosis: missing_participant
  outcome: deadlock
  blocked: {}
"""
    text = text.replace("  blocked: {}\n", "")
    assert ran(text, tmp_path, hanging(0, 0)).status == "PASSED"


def test_an_outcome_that_is_not_there_fails_and_says_why(tmp_path: Path) -> None:
    text = STUCK.replace("  outcome: deadlock\n", "")
    (finding,) = checked(text, tmp_path).findings
    assert finding.code == "outcome_differs"
    assert (
        finding.prose
        == "the program's outcome is deadlock; no outcome is stated, so it must complete"
    )
    assert "rank 1 never enters `sum of both` (judged.yaml:6)" in finding.because[0]


def test_a_diagnosis_must_be_stated_and_must_be_there(tmp_path: Path) -> None:
    undeclared = STUCK.replace("  diagnosis: missing_participant\n", "")
    assert codes(checked(undeclared, tmp_path)) == ["diagnosis_undeclared"]
    absent = STUCK.replace("missing_participant", "[missing_participant, missing_wait]")
    assert codes(checked(absent, tmp_path)) == ["diagnosis_absent"]


def test_one_name_of_a_fault_states_the_fault(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
expect: {outcome: deadlock, diagnosis: circular_wait}
"""
    assert checked(text, tmp_path).status == "PASSED"
    assert checked(text.replace("circular_wait", "buffering_hazard"), tmp_path).status == "PASSED"


def test_a_deadlock_left_to_its_timeout_is_still_that_deadlock(tmp_path: Path) -> None:
    text = STUCK + "  blocked: {0: all_reduce}\n"
    assert ran(text, tmp_path, raising(0, 0, "timeout")).status == "PASSED"
    assert ran(text, tmp_path, raising(0, 0, "dtype_mismatch")).status == "FAILED"


def completed(trace: Trace) -> Trace:
    """Let a run take its last step everywhere."""
    for rank in range(len(trace.ranks)):
        trace = at_step(0, rank, lambda event: replace(event, state="done", end_s=0.1))(trace)
        trace = on_rank(rank, lambda found: replace(found, ending="finished"))(trace)
    return replace(trace, outcome="completes")


def test_a_predicted_hang_that_finished_is_found(tmp_path: Path) -> None:
    verdict = ran(STUCK, tmp_path, completed)
    assert verdict.status == "FAILED"
    assert {"outcome_differs", "conduct_differs"} == set(codes(verdict))


# ---------------------------------------------------------------------------- raises

REFUSED = """\
world_size: 2
groups: {one: [1]}
tensors: {x: [1]}
steps:
  - broadcast: {tensor: x, src: 0, group: one}
    expect: {raises: KIND}
expect: {diagnosis: invalid_argument}
"""


@pytest.mark.parametrize(
    ("stated", "right"),
    [
        ("invalid_argument", True),
        ("[timeout, invalid_argument]", True),
        ("{1: invalid_argument}", True),
        ("timeout", False),
        ("none", False),
    ],
)
def test_raises_states_any_of_its_kinds(stated: str, right: bool, tmp_path: Path) -> None:  # noqa: FBT001 -- a parameter of the table
    verdict = checked(REFUSED.replace("KIND", stated), tmp_path)
    assert (verdict.status == "PASSED") is right


def test_raises_asks_for_words_of_the_backend(tmp_path: Path) -> None:
    text = REFUSED.replace("KIND", '{invalid_argument: "not in group"}')
    assert ran(text, tmp_path).status == "PASSED"
    other = REFUSED.replace("KIND", '{invalid_argument: "no such words"}')
    assert checked(other, tmp_path).status == "PASSED"
    assert codes(ran(other, tmp_path)) == ["raises_differs"]


def test_a_run_that_raises_another_kind_deviates(tmp_path: Path) -> None:
    text = REFUSED.replace("KIND", "invalid_argument")
    verdict = ran(
        text,
        tmp_path,
        at_step(
            0,
            1,
            lambda event: replace(
                event, failure=replace(event.failure, kinds=("timeout",)) if event.failure else None
            ),
        ),
    )
    assert {finding.witness for finding in verdict.findings} == {"backend"}


def test_an_error_at_the_end_is_stated_at_the_top(tmp_path: Path) -> None:
    text = """\
world_size: 2
steps:
  - {ranks: 0, fault: {raise: no more}}
expect: {outcome: error, raises: {0: OTHER}}
"""
    assert checked(text.replace("OTHER", "other"), tmp_path).status == "PASSED"
    assert codes(checked(text.replace("OTHER", "timeout"), tmp_path)) == ["raises_differs"]


# ---------------------------------------------------------------------------- time, death

SLEEPS = """\
world_size: 2
steps:
  - sleep: "0.1 * rank"
  - barrier: {}
    expect: {elapsed: BOUNDS}
"""


@pytest.mark.parametrize("bounds", ["{min: 0.1s}", "{max: 0.1s}", "{min: 0.05s, max: 1s}"])
def test_elapsed_within_its_bounds_passes(bounds: str, tmp_path: Path) -> None:
    assert checked(SLEEPS.replace("BOUNDS", bounds), tmp_path).findings == ()


@pytest.mark.parametrize("bounds", ["{min: 0.2s}", "{max: 0.05s}"])
def test_elapsed_beyond_its_bounds_fails_without_a_run(bounds: str, tmp_path: Path) -> None:
    (finding,) = checked(SLEEPS.replace("BOUNDS", bounds), tmp_path).findings
    assert (finding.code, finding.ranks) == ("elapsed_differs", (0, 1))


def test_a_step_that_takes_too_long_in_the_run_deviates(tmp_path: Path) -> None:
    late = at_step(1, 0, lambda event: replace(event, end_s=5.0))
    (finding,) = ran(SLEEPS.replace("BOUNDS", "{max: 1s}"), tmp_path, late).findings
    assert (finding.witness, finding.code, finding.ranks) == ("backend", "elapsed_differs", (0,))


def test_a_rank_that_began_late_may_wait_that_much_shorter(tmp_path: Path) -> None:
    text = SLEEPS.replace("BOUNDS", "{min: 0.1s}")

    def began_late(trace: Trace, late_s: float) -> Trace:
        first, second = trace.ranks
        barrier = replace(first.events[1], end_s=0.04)
        late = replace(first, events=(first.events[0], barrier), late_s=late_s)
        return replace(trace, ranks=(late, second))

    assert ran(text, tmp_path, lambda trace: began_late(trace, 0.07)).status == "PASSED"
    (finding,) = ran(text, tmp_path, lambda trace: began_late(trace, 0.03)).findings
    assert (finding.witness, finding.code, finding.ranks) == ("backend", "elapsed_differs", (0,))


def test_within_bounds_the_whole(tmp_path: Path) -> None:
    text = "world_size: 1\nsteps:\n  - sleep: 0.2s\nexpect: {within: LIMIT}\n"
    assert checked(text.replace("LIMIT", "1s"), tmp_path).status == "PASSED"
    assert codes(checked(text.replace("LIMIT", "0.1s"), tmp_path)) == ["within_exceeded"]
    slow = ran(text.replace("LIMIT", "1s"), tmp_path, lambda trace: replace(trace, duration_s=9.0))
    assert codes(slow) == ["within_exceeded"]


def test_dies_states_who_ends_and_how(tmp_path: Path) -> None:
    text = """\
world_size: 2
steps:
  - {ranks: 1, fault: kill}
expect: {outcome: crash, dies: {1: SIGKILL}}
"""
    assert checked(text, tmp_path).status == "PASSED"
    assert codes(checked(text.replace("SIGKILL", "SIGABRT"), tmp_path)) == ["dies_differs"]
    assert codes(checked(text.replace("{1: SIG", "{0: SIG"), tmp_path)).count("dies_differs") == 2


def test_an_unexpected_death_is_told_with_its_rank_and_step(tmp_path: Path) -> None:
    text = (
        "world_size: 2\ntensors: {x: [1]}\nsteps:\n"
        "- {barrier: {}}\n- {ranks: 1, fault: kill}\n- {all_reduce: {tensor: x}}\n"
    )
    verdict = checked(text, tmp_path)
    (finding,) = [each for each in verdict.findings if each.code == "outcome_differs"]
    assert finding.prose.startswith(
        "the program's outcome is crash (rank 1 dies (SIGKILL) in `fault"
    )
    assert finding.mark is not None
    assert finding.mark.line == 5


ALONE_AT_THE_SOURCE = """\
world_size: 3
tensors: {x: [1]}
steps:
  - {ranks: 0, broadcast: {tensor: x, src: 0}}
expect: {diagnosis: missing_participant}
"""


def test_an_open_outcome_that_came_otherwise_is_the_authors_mistake(tmp_path: Path) -> None:
    (finding,) = ran(ALONE_AT_THE_SOURCE, tmp_path, hanging(0, 0)).findings
    assert finding.witness == "expectation"
    assert "leave the outcome open (completes or deadlock)" in finding.prose


def test_ranks_that_ended_alike_are_told_together(tmp_path: Path) -> None:
    text = "world_size: 3\ntensors: {x: [1]}\nsteps:\n  - broadcast: {tensor: x}\n"
    text += "expect: {diagnosis: invalid_argument}\n"
    (finding,) = checked(text, tmp_path).findings
    assert "(ranks 0, 1 and 2 raise invalid_argument in `broadcast`:" in finding.prose


def test_what_several_ranks_would_raise_is_a_sentence(tmp_path: Path) -> None:
    text = "world_size: 2\nsteps:\n  - {fault: {raise: no}, expect: {raises: timeout}}\n"
    finding = next(f for f in checked(text, tmp_path).findings if f.code == "raises_differs")
    assert finding.prose.startswith("ranks 0 and 1 would raise other, expected timeout")


def test_a_mesh_with_a_name_too_few_is_told_in_numbers(tmp_path: Path) -> None:
    text = "world_size: 4\ngroups: {m: {shape: [2, 2], dims: [a]}}\nsteps:\n  - barrier: {}\n"
    (finding,) = checked(text, tmp_path).findings
    assert any("[2, 2] has 2 dimensions, `dims` names 1" in told for told in finding.because)


@pytest.mark.parametrize("group", ["[]", "[0, 0]", "{shape: [2], dims: [a, b]}"])
def test_a_refused_group_is_told_at_its_own_line(group: str, tmp_path: Path) -> None:
    text = f"world_size: 2\ngroups:\n  h: [0]\n  g: {group}\nsteps:\n  - barrier: {{}}\n"
    findings = checked(text, tmp_path).findings
    assert {finding.code for finding in findings} == {"diagnosis_undeclared"}
    assert {finding.mark.line for finding in findings if finding.mark} == {4}
    (told,) = checked(f"{text}expect: {{outcome: error}}\n", tmp_path).findings
    assert told.mark is not None
    assert (told.code, told.mark.line) == ("diagnosis_undeclared", 4)


FAULT = """\
world_size: 2
steps:
  - ranks: 0
    fault: {raise: the disk is full}
"""


def test_the_words_of_a_fault_are_known_without_a_run(tmp_path: Path) -> None:
    stated = "    expect: {raises: {other: disk is WORD}}\n"
    assert checked(FAULT + stated.replace("WORD", "full"), tmp_path).findings == ()
    (finding,) = checked(FAULT + stated.replace("WORD", "empty"), tmp_path).findings
    assert (finding.witness, finding.code) == ("expectation", "raises_differs")
    assert "without the words 'disk is empty': the disk is full" in finding.prose


def test_the_words_of_a_fault_are_known_at_the_end_too(tmp_path: Path) -> None:
    stated = "expect: {outcome: error, raises: {0: {other: disk is WORD}}}\n"
    assert checked(FAULT + stated.replace("WORD", "full"), tmp_path).findings == ()
    (finding,) = checked(FAULT + stated.replace("WORD", "empty"), tmp_path).findings
    assert finding.code == "raises_differs"


@pytest.mark.parametrize("at_end", [False, True])
def test_the_words_of_torch_only_a_run_can_know(at_end: bool, tmp_path: Path) -> None:  # noqa: FBT001
    text = "world_size: 2\ntensors: {x: [1]}\nsteps:\n  - send: {tensor: x, dst: rank}\n"
    raises = "raises: {invalid_argument: Invalid destination rank}"
    if at_end:
        text += f"expect: {{outcome: error, diagnosis: invalid_argument, {raises}}}\n"
    else:
        text += f"    expect: {{{raises}}}\nexpect: {{diagnosis: invalid_argument}}\n"
    assert checked(text, tmp_path).findings == ()


def test_a_fault_that_torch_no_longer_has_is_told_with_the_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run does what the semantics say; the file states a fault of an earlier version."""
    monkeypatch.setattr(
        "torch_scenarios.verdict.conduct.find_torch_version", lambda: "2.15.0+cu132"
    )
    text = """\
world_size: 2
torch: ">=2.6"
steps:
  - barrier: {}
expect:
  outcome: completes
  gloo: {outcome: error}
"""
    verdict = ran(text, tmp_path)
    (finding,) = verdict.findings
    assert (finding.code, finding.witness) == ("outcome_differs", "backend")
    assert "torch 2.15.0+cu132 does something else than the file says of torch 2.6" in finding.prose
    assert '`torch: ">=2.6, <2.15"`' in finding.help[0]
