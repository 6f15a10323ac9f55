"""docs/explanation/semantics.md is what the rules say, and what docs/conformance.json measured."""

from __future__ import annotations

import sys

import pytest
from checkout import ROOT


def test_the_page_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    from reference_semantics import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(), "run python docs/reference_semantics.py"


def test_the_pictures_are_drawn_from_the_rules_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    from reference_semantics import PICTURES, pictures

    there = {path: path.read_text(encoding="utf-8") for path in PICTURES.glob("*")}
    assert there == pictures(), "run python docs/reference_semantics.py"


def test_a_scenario_ends_as_it_states_in_every_or_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    from reference_semantics import _end

    assert _end(["PASSED completes"]) == "as stated"
    assert _end(["PASSED completes", "UNSUPPORTED"]) == "1 as stated, 1 not supported"


def test_columns_that_say_the_same_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    from reference_semantics import NOT_MEASURED, _told

    assert _told(["as stated"] * 2, ["gloo", "mpi"]) == "as stated on all of them"
    assert _told([NOT_MEASURED], ["gloo"]) == NOT_MEASURED
    ends = ["as stated", "not supported", "as stated", "not supported"]
    words = _told(ends, ["gloo", "mpi", "nccl", "ucc"])
    assert words == "as stated, but not supported on mpi; ucc"


def test_a_title_is_what_the_rule_says_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    from reference_semantics import ROOMS, page, rules

    titles = [line[4:] for line in page().splitlines() if line.startswith("### ")]
    sentences = [rule.sentence for room in ROOMS for rule in rules(room)]
    assert len({*titles}) == len(titles) == len(sentences)
    for title, sentence in zip(titles, sentences, strict=True):
        assert sentence.startswith(title)
