"""The GPU checks themselves, as far as they need no GPU and no process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from tests.gpu import pages
from tests.gpu.__main__ import planned
from tests.gpu.pages import Findings
from tests.gpu.passes import Case, Tally, told
from tests.gpu.timings import Timing
from torch_scenarios.conformance import table as cells
from torch_scenarios.conformance.table import Cell, CellOutcome, list_cells
from torch_scenarios.model.trace import Diagnosis, Event, Failure, RankTrace, Trace
from torch_scenarios.pipeline.results import Result
from torch_scenarios.verdict import Finding, Verdict

SUM = Cell(operation="all_reduce", op="sum", dtype="int64")
BITS = Cell(operation="all_reduce", op="bor", dtype="float32")


def test_every_operation_is_in_the_table_with_every_dtype_once() -> None:
    table = list_cells()
    flat = [cell for each in table.values() for cell in each]
    assert len(flat) == len(set(flat))
    assert {cell.operation for cell in flat} == {each.name for each in cells.TRIED}
    assert {len(each) for each in table.values()} == {54}


def test_a_program_makes_every_call_with_tensors_of_its_own() -> None:
    (own,) = list_cells(("int64",)).values()
    text, by_step = cells.program(own, freely=True)
    document = yaml.safe_load(text)
    assert set(by_step.values()) == set(own)
    assert len(document["steps"]) == len(by_step) == 56  # two cells are two steps each
    assert all("timeout" not in step["expect"]["raises"] for step in document["steps"])


# ---------------------------------------------------------------------------- passes


@pytest.mark.parametrize(
    ("gpus", "sizes"),
    [
        (1, [(1, 1, False), (2, 2, True), (3, 4, True), (5, 8, True)]),
        (4, [(1, 4, False), (5, 8, True)]),
        (8, [(1, 8, False)]),
    ],
)
def test_ranks_beyond_the_gpus_share_them_at_two_four_and_eight(
    gpus: int, sizes: list[tuple[int, int, bool]]
) -> None:
    found = [(p.sizes[0], p.sizes[-1], p.share_gpu) for p, _ in planned("nccl", gpus, 8)]
    assert found == sizes


def test_gloo_takes_every_size_in_one_pass() -> None:
    ((only, _),) = planned("gloo", 0, 16)
    assert (only.sizes[0], only.sizes[-1], only.share_gpu) == (1, 16, False)


def result(status: str, *diagnoses: str, outcome: str = "completes") -> Result:
    prediction = Trace(
        backend="reference",
        outcome="deadlock",
        ranks=(),
        diagnoses=tuple(Diagnosis(name=name, clauses=()) for name in diagnoses),
    )
    failure = Failure(kinds=("other",), message="CUDA error: words\nmore")
    event = Event(index=3, label="send to 1", failure=failure)
    run = Trace(
        backend="nccl",
        outcome=outcome,
        ranks=(RankTrace(rank=0, events=(event,), ending="raised"),),
        notes=("flight recorder of rank 0: all_reduce #2",),
    )
    finding = Finding(witness="backend", code="outcome_differs", prose="the run completes")
    verdict = Verdict(status=status, findings=(finding,), predicted=prediction, observed=run)  # type: ignore[arg-type]
    return Result(file="a.yaml", case="a", verdict=verdict)


def test_a_red_case_is_told_in_full() -> None:
    case = told(result("FAILED"), "nccl")
    assert case.red
    assert case.words == (
        "[backend] the run completes",
        "observed: completes",
        "  rank 0 raised in `send to 1` (step 3): CUDA error: words",
        "flight recorder of rank 0: all_reduce #2",
    )


def test_what_ended_as_a_backend_is_known_to_end_it_is_open_there() -> None:
    known = "on nccl this was predicted to end in a deadlock"
    passed = result("PASSED")
    noted = replace(passed, verdict=replace(passed.verdict, notes=(known, "another note")))
    case = told(noted, "nccl")
    assert (case.status, case.red, case.words) == ("OPEN", False, (known,))
    assert told(noted, "gloo").status == "PASSED"


def test_a_program_that_fails_is_red_whatever_is_known() -> None:
    assert told(result("FAILED", "buffering_hazard"), "nccl").red


def test_a_right_program_that_a_backend_halts_as_foreseen_is_not_red() -> None:
    failed = result("FAILED")
    known = "on nccl, as predicted: deadlock, because the first message waits"
    noted = replace(failed, verdict=replace(failed.verdict, notes=(known,)))
    case = told(noted, "nccl")
    assert (case.status, case.red) == ("FORESEEN", False)
    assert case.words == ("[backend] the run completes",)
    worse = replace(failed.verdict.findings[0], code="value_differs")
    both = replace(noted.verdict, findings=(*failed.verdict.findings, worse))
    assert told(replace(noted, verdict=both), "nccl").red
    assert told(noted, "gloo").red


def test_what_passed_has_nothing_to_tell() -> None:
    assert told(result("PASSED"), "nccl").words == ()


# ---------------------------------------------------------------------------- pages


def noted() -> dict[str, object]:
    found = Findings(
        cells={
            SUM: CellOutcome(outcome="same"),
            BITS: CellOutcome(outcome="refuses", words="unsupported: no"),
        },
        tallies=[
            Tally(
                name="every size",
                cases=[
                    Case(name="a", status="PASSED"),
                    Case(name="b", status="FAILED", red=True),
                ],
                left=3,
            )
        ],
        timings=[Timing(what="a warm scenario", value="12 ms")],
    )
    machine = {"torch": "2.13.0", "gpus": "1"}
    return pages.noted(pages.blank(), "nccl", machine, found, shared=True)


def test_nothing_is_seen_at_first() -> None:
    blank = pages.blank()
    assert {entry["nccl"] for entry in blank["cells"]} == {"unseen"}
    assert "not seen" in pages.section(blank)


def test_what_was_seen_of_one_backend_leaves_the_other_as_it_was() -> None:
    document = noted()
    by_cell = {
        (entry["operation"], entry["op"], entry["dtype"]): entry
        for entry in json.loads(pages.text(document))["cells"]
    }
    bits = by_cell["all_reduce", "bor", "float32"]
    assert (bits["nccl"], bits["gloo"], bits["words"]) == (
        "refuses",
        "unseen",
        {"nccl": "unsupported"},
    )
    assert document["backends"]["gloo"] == {"seen": False}  # type: ignore[index]


def test_what_was_not_looked_at_this_time_is_kept() -> None:
    document = noted()
    later = pages.noted(document, "nccl", {"torch": "9"}, Findings(), shared=False)
    assert later == document


def test_the_page_says_the_machine_the_counts_and_what_is_red() -> None:
    text = pages.section(noted())
    assert (
        "**NCCL**: torch 2.13.0, gpus 1; ranks shared GPUs, so that its times mean nothing." in text
    )
    assert "* every size: 1 failed, 1 passed, 3 not run" in text
    assert "* RED: `b`" in text
    assert "* a warm scenario: 12 ms" in text


def test_the_part_between_the_marks_is_replaced_and_nothing_else() -> None:
    page = f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n"
    once = pages.put(page, noted())
    assert once.startswith("before\n")
    assert once.endswith(f"{pages.END}\nafter\n")
    assert "old" not in once
    assert pages.put(once, noted()) == once


def test_a_page_without_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no"):
        pages.put("a page", pages.blank())


def test_the_page_and_the_document_of_this_repository_agree() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "nccl.md").read_text(encoding="utf-8")
    assert pages.put(page, pages.read(docs / "nccl.json")) == page


def test_of_simulated_gpus_only_what_torch_refuses_is_kept() -> None:
    cells_of = {
        name: Cell(operation=name, op="sum", dtype="int16") for name in ("a", "b", "c", "d")
    }
    kept = pages.of_torch_alone(
        {
            cells_of["a"]: CellOutcome(outcome="refuses", words="unsupported: torch says so"),
            cells_of["b"]: CellOutcome(outcome="refuses", words="other: NCCL error in: somewhere"),
            cells_of["c"]: CellOutcome(outcome="differs", words="[1] instead of [2]"),
            cells_of["d"]: CellOutcome(outcome="not run"),
        }
    )
    assert {cell.operation: seen.outcome for cell, seen in kept.items()} == {
        "a": "refuses",
        "b": pages.THROUGH,
        "c": pages.THROUGH,
    }
    assert not any(seen.words for cell, seen in kept.items() if cell.operation != "a")
