"""What `scenario explain` says: every code, diagnosis and word of a report, with an example.

Examples are whole scenarios, checked by a test: that of a problem shows just this problem, that of
a diagnosis states it and passes, that of a warning passes with it, and what `fixed` holds passes
without it.
"""

from __future__ import annotations

from torch_scenarios.display import wrap
from torch_scenarios.errors import Explanation
from torch_scenarios.explain.prose import Explanations
from torch_scenarios.limits import FLAGS

__all__ = ["EXPLANATIONS", "Explanation", "explanation", "page"]

#: columns of a line
COLUMNS = 98

#: code -> its explanation
EXPLANATIONS = Explanations()


def explanation(word: str) -> Explanation | None:
    """Return what explains a word that the tool prints, in any case; the name of a limit too."""
    plain = word.strip("[]`:. ").removeprefix("error[").removeprefix("warning[").casefold()
    code = {each.casefold(): each for each in EXPLANATIONS}.get(plain)
    name = plain.removeprefix("--").removeprefix("limit ").partition("=")[0].replace("-", "_")
    if code is None and not {name, f"max_{name}"}.isdisjoint(FLAGS):
        return EXPLANATIONS["limits"]
    return EXPLANATIONS.get(code or plain.removeprefix("--").removesuffix("s"))


def page(found: Explanation) -> str:
    """Return the whole explanation as text."""
    parts = [
        found.code if found.code == found.sort else f"{found.code} ({found.sort})",
        _paragraph(found.what),
        _paragraph(f"Why: {found.why}" if found.why else ""),
        _block("Example:", found.example),
        _paragraph(f"Fix: {found.fix}" if found.fix else ""),
        _block("Fixed:", found.fixed),
        _rows(found.table),
    ]
    return "\n\n".join(part for part in parts if part)


def _paragraph(text: str) -> str:
    """Return prose as lines that a terminal holds; a paragraph that is indented is a picture."""
    parts = text.split("\n\n") if text else []
    return "\n\n".join(
        part if part.startswith("    ") else "\n".join(wrap(part, COLUMNS, "", ""))
        for part in parts
    )


def _rows(table: tuple[tuple[str, str], ...]) -> str:
    width = max((len(name) for name, _ in table), default=0)
    return "\n".join(f"  {name:<{width}}  {meaning}" for name, meaning in table)


def _block(title: str, text: str) -> str:
    if not text.strip():
        return ""
    lines = ("    " + line if line else "" for line in text.rstrip().splitlines())
    return "\n\n".join([title, "\n".join(lines)])
