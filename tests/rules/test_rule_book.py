"""The rule book: each rule has a source, and scenarios of the corpus that show it and pass."""

from __future__ import annotations

import importlib

import pytest
from checkout import NAME, PACKAGE, ROOT

from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.reference.rules import RULES, Article, message, waiting
from torch_scenarios.stages import load

ROOMS = ("collective", "message", "waiting", "creation", "local", "compound", "call", "procedure")
for room in ROOMS:
    importlib.import_module(f"{NAME}.reference.rules.{room}")
SHOWN = sorted({name for rule in RULES for name in rule.shown})


def test_every_shape_has_rules() -> None:
    assert {rule.room for rule in RULES} == set(ROOMS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.room}.{rule.name}")
def test_a_rule_has_its_sentence_its_source_and_a_scenario(rule: Article) -> None:
    assert rule.sentence.endswith(".")
    assert rule.source
    assert rule.shown
    assert all((ROOT / "scenarios" / f"{name}.yaml").exists() for name in rule.shown), rule.shown


@pytest.mark.nightly  # the gate runs the corpus, which they are of
@pytest.mark.parametrize("name", SHOWN)
def test_what_shows_a_rule_is_as_it_states(name: str) -> None:
    for scenario in load(ROOT / "scenarios" / f"{name}.yaml"):
        assert analyse(scenario).verdict.status in {"PASSED", "UNSUPPORTED"}


def test_rules_know_no_engine() -> None:
    for path in (PACKAGE / "reference" / "rules").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "reference.walk" not in text, path
        assert "reference.vector" not in text, path


def test_a_message_has_elements_and_no_shape() -> None:
    sent, received = message.Content("float32", 4), message.Content("float32", 3)
    assert message.find_mismatch(sent, sent) is None
    found = message.find_mismatch(sent, received)
    assert found is not None
    assert (found.name, found.sends) == ("shape_mismatch", "sends 4 elements")


@pytest.mark.parametrize(("uses", "clashes"), [("rr", False), ("rw", True), ("ww", True)])
def test_two_reads_do_not_clash(uses: str, *, clashes: bool) -> None:
    assert waiting.clash(*(use == "w" for use in uses)) is clashes
