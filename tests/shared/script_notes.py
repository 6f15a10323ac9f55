"""What the tests of notes share: a script that runs with them in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_scenarios.record.evidence.notes.decision import Decisions

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest


def run_with_notes(
    source: str,
    monkeypatch: pytest.MonkeyPatch,
    names: Mapping[str, Any],
    *,
    salt: int | None = None,
) -> tuple[dict[str, Any], Decisions]:
    """Run a script that has some names; returns what it has at its end, and the notes."""
    decisions = Decisions(lambda error: (str(error), []))
    decisions.salt = salt
    for name, function in decisions.list_functions(lambda: False).items():
        monkeypatch.setattr(f"builtins.{name}", function, raising=False)
    found = {**names}
    exec(decisions.compile(source.encode(), "train.py"), found)  # noqa: S102
    return found, decisions
