"""One file -> the text that it should have: loaded, stated anew, and proved against the reference.

Nothing here runs a process, reads or writes a file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.bless.asking import Answer, answers
from runner.bless.drafting import Draft, draft
from runner.bless.judging import analysed, police, proved
from runner.bless.places import Place, places, values_of
from runner.bless.refusal import refuse
from runner.bless.restating import Entry, restated
from runner.language.limits import DEFAULT, Limits
from runner.language.reader import decoded, parse
from runner.language.spans import spans
from runner.language.splice import Edit, splice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from runner.bless.written import Analysed
    from runner.results import Analysis

_CONFLICT = re.compile(r"^(<{7}|>{7}|={7})( |$)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A file's text as it is and as it should be; equal where nothing is open or wrong.

    `analyses` are the cases of the new text, each proved by the reference; `filled` counts the
    values that are new.
    """

    path: Path
    before: str
    after: str
    analyses: tuple[Analysis, ...]
    filled: int

    @property
    def changes(self) -> bool:
        """Whether the file is to be changed."""
        return self.before != self.after


def propose(
    path: Path, content: bytes, *, every: bool = False, limits: Limits = DEFAULT
) -> Proposal | None:
    """Return what a file of that content should say; None for a part, which has no cases.

    `every` lets every step state what it writes. Raises RefusedError with the reason, ScenarioError
    where the file is invalid.
    """
    source = decoded(str(path), content, limits)
    text = source.text
    _police_conflict(text)
    parse(source, limits=limits)
    root = spans(text)
    if root.kind == "mapping" and root.get("world_size") is None and root.get("inputs") is not None:
        return None
    made = draft(text, lambda each: analysed(path, each, limits), every=every)
    cases = analysed(path, made.text, limits)
    police(cases, limits)
    edits = list(_edits(made, cases, limits))
    after = splice(made.text, edits)
    return Proposal(
        path=path,
        before=text,
        after=after,
        analyses=proved(path, after, limits),
        filled=len(edits),
    )


def _police_conflict(text: str) -> None:
    found = _CONFLICT.search(text)
    if found is not None and "<<<<<<<" in text:
        line = text.count("\n", 0, found.start()) + 1
        message = "a conflict is not resolved here: resolve it, then bless"
        refuse("unresolved_conflict", message, line)


# ---------------------------------------------------------------------------- what is stated anew


def _edits(made: Draft, cases: Sequence[Analysed], limits: Limits) -> Iterator[Edit]:
    found = places(spans(made.text))
    stands = dict(_entries(found))
    by_entry: dict[tuple[int, int], list[Answer]] = defaultdict(list)
    for case in cases:
        for expectation, answer in answers(case, limits):
            mark = expectation.mark
            assert mark is not None  # noqa: S101 -- what is read from a file has its place
            if mark.source.path == case.scenario.source.path:
                by_entry[mark.line, mark.column].append(answer)
            elif answer.wrong:
                message = f"`{expectation.key.text}` is wrong in {mark}: a part serves every "
                refuse("used_part", message + "scenario that uses it, so change it yourself")
    groups = _groups(cases)
    unanswered = set(stands) - by_entry.keys()
    for key, entry in stands.items():
        if key in unanswered:
            _police_unanswered(made, entry)
        else:
            yield from restated(made, entry, by_entry[key], groups)


def _entries(found: Iterable[Place]) -> Iterator[tuple[tuple[int, int], Entry]]:
    for place in found:
        for key, value in values_of(place):
            assert place.expect is not None  # noqa: S101 -- it has values
            yield (key.line, key.column), Entry(key=key, value=value, parent=place.expect)


def _police_unanswered(made: Draft, entry: Entry) -> None:
    if any(entry.value.start <= offset < entry.value.end for offset in made.open):
        message = f"`{entry.key.text}` is asked of no rank: none reaches this place"
        refuse("nothing_written", message, entry.key.line)


def _groups(cases: Sequence[Analysed]) -> Mapping[frozenset[int], str]:
    """Return the sets of ranks that have a name, the same in every case."""
    named: list[dict[frozenset[int], str]] = []
    for case in cases:
        found: dict[frozenset[int], str] = {}
        for name, groups in case.plan.names.items():
            if len(groups) == 1 and name.isidentifier() and name != case.plan.world.name:
                found.setdefault(frozenset(groups[0].ranks), name)
        named.append(found)
    first = named[0] if named else {}
    return {
        ranks: name
        for ranks, name in first.items()
        if all(other.get(ranks) == name for other in named)
    }
