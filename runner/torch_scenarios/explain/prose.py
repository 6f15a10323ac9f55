"""The pages of codes as files: `pages/SORT/CODE.md`, read one by one when they are asked for.

A page is Markdown. Below its heading are a paragraph that says what the code means and, each where
there is one, a paragraph that begins with `Why:` (and a picture, which is indented), a block
`Example:`, a paragraph `Fix:`, a block `Fixed:` (or a link to a file of `pages/fixed`, where more
pages have the same), and a table:

    # not_utf8

    The file is not encoded in UTF-8.

    Why: YAML files are Unicode text.

    Fix: save it as UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from torch_scenarios.errors import Explanation
from torch_scenarios.expressions.signatures import SIGNATURES
from torch_scenarios.limits import COUNTS, DEFAULT, FLAGS

PAGES = Path(__file__).parent / "pages"
#: the sorts of codes, in the order in which they are listed
SORTS = (
    "diagnosis",
    "finding",
    "warning",
    "kind of error",
    "problem",
    "finding of values",
    "finding of a record",
    "refusal to bless",
    "verdict",
    "outcome",
    "word",
    "limits",
)

_FENCED = re.compile(r"^(Example|Fixed):\n\n```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINKED = re.compile(r"^Fixed: \[.*\]\(\.\./(.*)\)$", re.MULTILINE)
_PICTURE = re.compile(r"\n\n(?:    .*\n)+")
_ROW = re.compile(r"^\| (.*?) \| (.*?) \|$", re.MULTILINE)


class Explanations(Mapping[str, Explanation]):
    """Every code with its explanation, each a page.

    A page is read when its code is asked for, and the names of the files are the codes that exist.
    So to add a code is to add a file.
    """

    def __init__(self) -> None:
        self._read: dict[str, Explanation] = {}

    @cached_property
    def _files(self) -> dict[str, Path]:
        """The pages, by code."""
        files = sorted(PAGES.glob("*/*.md"))
        pages = {sort: [each for each in files if sort_of(each) == sort] for sort in SORTS}
        return {each.stem: each for sort in SORTS for each in pages[sort]}

    def __getitem__(self, code: str) -> Explanation:
        """Return the explanation of a code; raise KeyError where it is not one."""
        if code not in self._read:
            self._read[code] = read_page(self._files[code])
        return self._read[code]

    def __iter__(self) -> Iterator[str]:
        """Yield the codes, sort by sort."""
        return iter(self._files)

    def __len__(self) -> int:
        """Return how many codes there are."""
        return len(self._files)


def sort_of(page: Path) -> str:
    """Return the sort of a code, which is the folder of its page."""
    return page.parent.name.replace("_", " ")


def read_page(page: Path) -> Explanation:
    """Return what a page says."""
    text = page.read_text(encoding="utf-8")
    blocks = dict(_FENCED.findall(text))
    linked = _LINKED.search(text)
    if linked:
        blocks["Fixed"] = (PAGES / linked[1]).read_text(encoding="utf-8")
    prose = _LINKED.sub("", _FENCED.sub("", _PICTURE.sub("", text))).split("\n\n")[1:]
    what, *more = (" ".join(part.split()) for part in prose if part.strip())
    named = dict(part.split(": ", 1) for part in more if part.startswith(("Why: ", "Fix: ")))
    picture = "".join(_PICTURE.findall(_FENCED.sub("", text))).rstrip("\n")
    functions = ", ".join(each.usage for each in SIGNATURES.values())
    return Explanation(
        code=page.stem,
        sort=sort_of(page),
        what=what,
        why=named.get("Why", "").replace("{functions}", functions) + picture,
        fix=named.get("Fix", ""),
        example=blocks.get("Example", ""),
        fixed=blocks.get("Fixed", ""),
        table=_bounds() if page.stem == "limits" else tuple(_ROW.findall(text)[1:]),
    )


def _bounds() -> tuple[tuple[str, str], ...]:
    """Return each limit by its name, with its default and what it counts."""
    return tuple(
        (FLAGS[name].removeprefix("--max-"), f"{getattr(DEFAULT, name)}: {counts}")
        for name, counts in COUNTS.items()
    )
