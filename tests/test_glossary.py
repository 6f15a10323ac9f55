"""One word a concept: those that docs/explanation/glossary.md replaces only get rarer."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest
from checkout import PACKAGE, ROOT

MODULES = sorted(PACKAGE.rglob("*.py"))

#: a word that another one replaces -> how often it may be in names, docstrings and messages, a part
#: of a name (`slack_of`, `_note_busy`) or its plural (`flights`) counted as well
AT_MOST = {
    "busy": 90,
    "conductor": 0,
    "course": 0,
    "crew": 3,
    "drift": 30,
    "envelope": 0,
    "everybody": 1,
    "fault": 210,
    "flight": 230,
    "flying": 1,
    "front": 30,
    "joining": 1,
    "meeting": 25,
    "moment": 90,
    "nobody": 5,
    "reading": 25,
    "said": 350,
    "slack": 140,
    "somebody": 0,
    "spot": 1,
    "standing": 35,
    "stands": 200,
    "stuck": 180,
    "sweep": 5,
    "told": 250,
    "whoever": 0,
    "whom": 2,
}


def words(text: str) -> Counter[str]:
    """Return how often each word is in a text, parts of names one by one, plurals as singulars."""
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower()
    found = Counter(re.findall(r"[a-z]+", parted))
    for word in AT_MOST:
        found[word] += found.pop(f"{word}s", 0)
    return found


@cache
def words_of_package() -> Counter[str]:
    """Return how often each word is in the package."""
    return words("\n".join(module.read_text(encoding="utf-8") for module in MODULES))


@pytest.mark.parametrize("word", AT_MOST)
def test_a_word_that_another_one_replaces_only_gets_rarer(word: str) -> None:
    assert words_of_package()[word] <= AT_MOST[word]


def test_the_glossary_has_every_such_word_that_names_a_concept() -> None:
    """Indefinite pronouns are a matter of style (docs/contributing/style.md)."""
    page = (ROOT / "docs" / "explanation" / "glossary.md").read_text(encoding="utf-8")
    style = {"everybody", "nobody", "somebody", "whoever", "whom", "said", "told"}
    style |= {"stands", "standing"}
    assert [word for word in AT_MOST if word not in style and word not in page] == []
