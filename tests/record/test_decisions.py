"""What the notes in a script do beside counting: the order of sets, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

from torch_scenarios.record.evidence.decision import Decisions

NAMES = frozenset({"encoder", "decoder", "head", "embed", "norm", "gate"})


def ran(source: str, salt: int | None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a script with notes; returns what it has at its end."""
    decisions = Decisions(lambda error: (str(error), []))
    decisions.salt = salt
    for name, value in (
        ("__scenario_traced__", lambda: False),
        ("__scenario_decide__", decisions.decide),
        ("__scenario_order__", decisions.order),
    ):
        monkeypatch.setattr(f"builtins.{name}", value, raising=False)
    found: dict[str, Any] = {"NAMES": NAMES}
    exec(decisions.compile(source.encode(), "train.py"), found)  # noqa: S102
    return found


@pytest.mark.parametrize(
    "source",
    [
        "x = []\nfor each in NAMES:\n    x.append(each)",
        "x = [each for each in NAMES]",
        "x = list(NAMES)",
        "x = [each for _, each in enumerate(NAMES)]",
    ],
)
def test_ranks_of_one_process_go_through_a_set_each_in_an_order_of_its_own(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = {tuple(ran(source, salt, monkeypatch)["x"]) for salt in (None, 1, 2, 3)}
    assert {frozenset(order) for order in orders} == {NAMES}
    assert len(orders) > 1


@pytest.mark.parametrize("value", ["[3, 1, 2]", "{3, 1, 2}", "{'b': 1, 'a': 2}", "'cab'"])
def test_what_has_one_order_in_every_process_keeps_it(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ran(f"y = {value}\nx = [each for each in y]\n", 1, monkeypatch)
    assert found["x"] == [*found["y"]]
