"""What `scenario explain` says: every problem code, diagnosis and finding, with an example.

Examples are whole scenarios, checked by a test: that of a problem shows just this problem, that of
a diagnosis states it and passes, that of a warning passes with it, and what `fixed` holds passes
without it.
"""

from __future__ import annotations

from runner.errors import Explanation
from runner.explain.findings import FINDINGS, KINDS, WARNINGS
from runner.explain.problems import (
    BLESSING,
    COMMANDS,
    EXPRESSIONS,
    LIMITS,
    NAMES,
    READING,
    STRUCTURE,
    USING,
)
from runner.reference.diagnoses import EXPLANATIONS as DIAGNOSES

__all__ = ["EXPLANATIONS", "Explanation", "page"]

#: code -> its explanation; where a word is a diagnosis and a kind of error, the diagnosis comes
EXPLANATIONS: dict[str, Explanation] = {
    each.code: each
    for each in (
        *KINDS,
        *READING,
        *STRUCTURE,
        *NAMES,
        *EXPRESSIONS,
        *USING,
        *COMMANDS,
        *LIMITS,
        *FINDINGS,
        *WARNINGS,
        *DIAGNOSES,
        *BLESSING,
    )
}


def page(explanation: Explanation) -> str:
    """Return the whole explanation as text."""
    parts = [
        f"{explanation.code} ({explanation.sort})",
        explanation.what,
        f"Why: {explanation.why}" if explanation.why else "",
        _block("Example:", explanation.example),
        f"Fix: {explanation.fix}" if explanation.fix else "",
        _block("Fixed:", explanation.fixed),
    ]
    return "\n\n".join(part for part in parts if part)


def _block(title: str, text: str) -> str:
    if not text.strip():
        return ""
    lines = ("    " + line if line else "" for line in text.rstrip().splitlines())
    return "\n\n".join([title, "\n".join(lines)])
