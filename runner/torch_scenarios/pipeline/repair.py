"""One file repaired: the sure edits of its problems and findings, made and proved to help.

An edit is kept where its mistake is gone afterwards, and where the program has no diagnosis that it
did not have before. Nothing here runs a process, reads or writes a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from torch_scenarios.errors import Problem, Repair, ScenarioError
from torch_scenarios.language.document import load_content
from torch_scenarios.limits import DEFAULT, Limits
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.source.edit import splice
from torch_scenarios.source.tree import decode
from torch_scenarios.verdict import Finding

#: a repaired file may show its next mistake: rounds of edits, and edits tried in all
_MOST_ROUNDS = 10
_MOST_TRIES = 100

#: what keeps a text from being read at all
_UNREADABLE = frozenset({"yaml_syntax", "yaml_tab", "duplicate_key", "bad_key", "bad_scalar"})

#: what a mistake is recognised by once its line has moved
Mistake: TypeAlias = tuple[str, str]


class Mistakes(Struct, frozen=True, kw_only=True):
    """What is wrong with a text: problems of the file, or findings and warnings of its cases.

    >>> Mistakes().all, Mistakes().is_unreadable
    (frozenset(), False)

    A repair is kept only if it takes its mistake away and brings no other: the two sets are
    compared, before and after, by code and words, since the line of a mistake moves with each edit.
    """

    problems: tuple[Problem, ...] = ()
    findings: tuple[Finding, ...] = ()
    #: whether the text is no scenario
    is_invalid: bool = False

    @property
    def all(self) -> frozenset[Mistake]:
        """Every mistake, by its code and its words."""
        said = [(each.code, each.message) for each in self.problems]
        return frozenset((*said, *((each.kind, each.prose) for each in self.findings)))

    @property
    def kinds(self) -> frozenset[str]:
        """The diagnoses that the program has."""
        return frozenset(each.diagnosis for each in self.findings if each.diagnosis is not None)

    @property
    def is_unreadable(self) -> bool:
        """Whether the text is no YAML of this language: nothing else of it is known then."""
        codes = {each.code for each in self.problems}
        return bool(codes & _UNREADABLE)

    def repairs(self, path: str) -> list[tuple[Mistake, Repair]]:
        """Return the repairs of one file, each with its mistake, in the order of the text."""
        of_problems = [((each.code, each.message), each.repair) for each in self.problems]
        of_findings = [((each.kind, each.prose), each.repair) for each in self.findings]
        found = {
            repair.edits: (mistake, repair)
            for mistake, repair in (*of_problems, *of_findings)
            if repair is not None and repair.source.path == path
        }
        return sorted(found.values(), key=lambda each: each[1].edits[0].start)


def look(
    path: Path, text: str, limits: Limits = DEFAULT, sets: Mapping[str, str] | None = None
) -> Mistakes:
    """Return what is wrong with a file at `path` that holds `text`."""
    try:
        scenarios = load_content(path, text.encode(), sets=sets, limits=limits)
    except ScenarioError as error:
        return Mistakes(problems=error.problems, is_invalid=True)
    verdicts = [analyse(each, limits).verdict for each in scenarios]
    return Mistakes(
        problems=tuple(
            dict.fromkeys(
                problem for each in verdicts for problem in (*each.problems, *each.warnings)
            )
        ),
        findings=tuple(finding for each in verdicts for finding in each.findings),
    )


class RepairedFile(Struct, frozen=True, kw_only=True):
    r"""A file before and after; `titles` say in order what was changed.

    >>> RepairedFile(path=Path("a.yaml"), before="x: 1\n", after="x: 1\n").changes
    False
    """

    path: Path
    before: str
    after: str
    titles: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether the file is to be changed."""
        return self.before != self.after


def repair(
    path: Path,
    content: bytes,
    *,
    limits: Limits = DEFAULT,
    sets: Mapping[str, str] | None = None,
) -> RepairedFile:
    """Return a file with every sure edit made that helps.

    Raises ScenarioError where it cannot be read as text, OverdueError where its analysis takes more
    time than it may.
    """
    text = before = decode(str(path), content, limits).text
    titles: list[str] = []
    refused: set[Mistake] = set()
    tries = 0
    for _ in range(_MOST_ROUNDS):
        now = look(path, text, limits, sets)
        open_ = [
            (mistake, each)
            for mistake, each in now.repairs(str(path))
            if each.sure and mistake not in refused
        ]
        chosen = _choose_disjoint(open_)
        while chosen and tries < _MOST_TRIES:
            tries += 1
            made = splice(text, [edit for _, each in chosen for edit in each.edits])
            then = look(path, made, limits, sets)
            failed = _find_useless(now, then, [mistake for mistake, _ in chosen])
            if not failed:
                text = made
                titles += [each.title for _, each in chosen]
                break
            refused.update(failed)
            chosen = [(mistake, each) for mistake, each in chosen if mistake not in failed]
        if not chosen:
            break
    return RepairedFile(path=path, before=before, after=text, titles=tuple(titles))


def _choose_disjoint(found: Sequence[tuple[Mistake, Repair]]) -> list[tuple[Mistake, Repair]]:
    """Return the repairs of which no two touch the same characters, the first ones."""
    kept: list[tuple[Mistake, Repair]] = []
    taken: list[tuple[int, int]] = []
    for mistake, each in found:
        spans = [(edit.start, edit.end) for edit in each.edits]
        if not any(start <= last and first <= end for start, end in spans for first, last in taken):
            kept.append((mistake, each))
            taken += spans
    return kept


def _find_useless(now: Mistakes, then: Mistakes, tried: Iterable[Mistake]) -> set[Mistake]:
    """Return those whose edits do not help: what is left, or all of them where it got worse."""
    chosen = set(tried)
    left = chosen & then.all
    worse = bool(then.kinds - now.kinds) and not now.is_invalid
    broken = (then.is_invalid and not now.is_invalid) or (
        then.is_unreadable and not now.is_unreadable
    )
    return left or (chosen if worse or broken else set())
