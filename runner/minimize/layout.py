"""What removing lines leaves behind: blank lines in a row, and at the end."""

from __future__ import annotations

import re

from runner.language.spans import Span, spans

_BLANKS = re.compile(r"(\r?\n)(?:[ \t]*\r?\n){2,}")
#: blank lines below a key, before the first of what it holds
_FIRST = re.compile(r"(^[ ]*\w+:[ \t]*\r?\n)(?:[ \t]*\r?\n)+", re.MULTILINE)


def tidy(text: str) -> str:
    """Return a text without blank lines in a row or below a key, if it says the same."""
    shorter = _FIRST.sub(r"\1", _BLANKS.sub(r"\1\1", text)).rstrip() + "\n"
    return shorter if _said(spans(shorter)) == _said(spans(text)) else text


def _said(span: Span) -> list[str]:
    found = [span.kind, span.text]
    for key, value in span.entries:
        found += [*_said(key), *_said(value)]
    for item in span.items:
        found += _said(item)
    return found
