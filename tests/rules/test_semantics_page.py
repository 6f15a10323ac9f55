"""docs/explanation/semantics.md is what the rules say, and what docs/conformance.json measured."""

from __future__ import annotations

import sys

import pytest
from checkout import ROOT


def test_the_page_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    from reference_semantics import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(), "run python docs/reference_semantics.py"


def test_a_scenario_ends_as_it_states_in_every_or_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    from reference_semantics import _end

    assert _end(["PASSED completes"]) == "as stated"
    assert _end(["PASSED completes", "UNSUPPORTED"]) == "1 as stated, 1 not supported"
