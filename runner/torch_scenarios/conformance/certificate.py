"""A certificate: what a backend passes of the corpus, level by level.

A case belongs to the last level of :data:`torch_scenarios.model.needs.LEVELS` that it needs
anything of. A level is passed where each of its cases that ran passed, and at least one did; the
cases that need what the backend lacks are counted next to it, and never as passed.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from torch_scenarios.files import corpus_folder
from torch_scenarios.limits import Limits
from torch_scenarios.model.needs import CAPABILITIES, LEVELS
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import Scenario, steps_of
from torch_scenarios.model.trace import Trace
from torch_scenarios.operations.base import GroupCreation
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.pipeline.results import Outcome
from torch_scenarios.reference import derive, hangs_on_sends
from torch_scenarios.vocabulary import OUTCOMES

#: the backend that comes with torch: what it does otherwise, a file states under its name
OF_TORCH = "gloo"
#: the tag of what a backend does without a word
SURPRISE = "surprises"
FORMAT = "torch-scenarios certificate"
VERSION = 1
#: files of a level that did not pass which a line names
SHOWN = 5

#: the twenty files that say most, soonest: what a backend's author runs first
FIRST = (
    "collectives/all_reduce_sum",
    "collectives/all_reduce_ops",
    "collectives/all_reduce_matrix",
    "collectives/broadcast",
    "rooted/root_goes_round",
    "collectives/all_gather",
    "collectives/all_gather_single",
    "collectives/reduce_scatter",
    "collectives/all_to_all_single",
    "rooted/gather",
    "rooted/scatter",
    "barrier/nobody_passes_early",
    "p2p/send_recv",
    "p2p/tags_out_of_order",
    "p2p/from_anyone",
    "p2p/batch_ring",
    "groups/groups_even",
    "async/waits_backwards",
    "objects/broadcast_object_list",
    "faults/raises",
)

#: a case: its file and its name
Key = tuple[str, str]


class CaseLevel(Struct, frozen=True, kw_only=True):
    """Where one case belongs: its level, and all that it needs.

    >>> CaseLevel(level="groups", needs=("subgroups", "tags")).level
    'groups'

    A case belongs to the last level of all that it needs: one that sends objects in a group of its
    own is of `objects` (decision 102).
    """

    level: str
    needs: tuple[str, ...]


class LevelCount(Struct, frozen=True, kw_only=True):
    """One level: how many cases ran and passed, how many need what is lacking, and which failed.

    `words` are what the backend lacks of it. A case that was not judged counts as failed.

    >>> LevelCount(run=3, passed=3).holds, LevelCount(run=3, passed=2).holds, LevelCount().holds
    (True, False, False)

    A level of which nothing ran is not passed, although nothing failed.
    """

    run: int = 0
    passed: int = 0
    lacking: int = 0
    failed: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the level is passed."""
        return self.passed > 0 and self.passed == self.run


class Certificate(Struct, frozen=True, kw_only=True):
    """What a backend passes: of which plugin, with which torch, by the levels.

    >>> levels = {"p2p": LevelCount(run=2, passed=2), "groups": LevelCount(run=2, passed=1)}
    >>> Certificate(backend="mine", plugin="mine", torch="2.13", levels=levels).levels_passed
    ('p2p',)
    """

    backend: str
    plugin: str
    torch: str
    levels: Mapping[str, LevelCount] = field(default_factory=dict)

    @property
    def levels_passed(self) -> tuple[str, ...]:
        """The levels that it passes."""
        return tuple(name for name in LEVELS if name in self.levels and self.levels[name].holds)

    def lines(self) -> list[str]:
        """Return the certificate as lines of text: a table, then the cases that do not pass."""
        rows = [HEAD, *(_row(level, tally) for level, tally in self.levels.items())]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD) - 1)]
        lines = [_line(row, widths) for row in rows]
        for level, tally in self.levels.items():
            lines += [f"  {level}: {name}" for name in tally.failed[:SHOWN]]
            left = len(tally.failed) - SHOWN
            lines += [f"  {level}: and {left} more"] if left > 0 else []
        return [*lines, self.summary_of()]

    def summary_of(self) -> str:
        """Return in a line what the backend passes."""
        passed, levels = self.levels_passed, len(self.levels)
        words = ", ".join(passed) or "no level"
        return f"{self.backend} passes {len(passed)} of {levels} levels: {words}"

    def page(self) -> str:
        """Return the certificate as a page in Markdown."""
        lines = [
            f"# What the backend `{self.backend}` passes",
            "",
            "![levels](badge.svg)",
            "",
            f"{self.summary_of()}. Plugin `{self.plugin}`, torch {self.torch}.",
            "",
            "| level | run | passed | lacking | failed | lacks |",
            "|---|---:|---:|---:|---:|---|",
        ]
        for level, tally in self.levels.items():
            words = ", ".join(f"`{word}`" for word in tally.words)
            text = f"{tally.run} | {tally.passed} | {tally.lacking} | {len(tally.failed)} | {words}"
            lines.append(f"| {level} | {text} |")
        for level, tally in self.levels.items():
            if tally.failed:
                names = (name.replace("`", "") for name in tally.failed)
                lines += ["", f"## {level}: what does not pass", ""]
                lines += [f"- `{name}`" for name in names]
        return "\n".join([*lines, ""])

    def badge(self) -> str:
        """Return an image of one line, as SVG: how many levels the backend passes."""
        passed, levels = len(self.levels_passed), len(self.levels)
        colour = COLOURS[0 if passed == levels and passed else 1 if passed else 2]
        left, right = "torch-scenarios", f"{html.escape(self.backend)} {passed}/{levels} levels"
        first, second = (len(text) * CHARACTER + 2 * MARGIN for text in (left, right))
        style = 'font-family="Verdana,sans-serif" font-size="11" fill="#fff"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="20"'
            f' role="img" aria-label="{left}: {right}">\n'
            f'<rect width="{first}" height="20" fill="#444"/>\n'
            f'<rect x="{first}" width="{second}" height="20" fill="{colour}"/>\n'
            f'<text x="{MARGIN}" y="14" {style}>{left}</text>\n'
            f'<text x="{first + MARGIN}" y="14" {style}>{right}</text>\n</svg>\n'
        )

    def document(self) -> str:
        """Return the certificate as JSON."""
        levels: dict[str, Any] = {
            level: {
                "passes": tally.holds,
                "run": tally.run,
                "passed": tally.passed,
                "lacking": tally.lacking,
                "lacks": list(tally.words),
                "failed": list(tally.failed),
            }
            for level, tally in self.levels.items()
        }
        made = {
            "format": FORMAT,
            "version": VERSION,
            "backend": self.backend,
            "plugin": self.plugin,
            "torch": self.torch,
            "levels": levels,
        }
        return json.dumps(made, indent=2) + "\n"


# Which level a case belongs to.


def places_of(
    scenarios: Iterable[Scenario], limits: Limits, *, backend: str, torch: str
) -> dict[Key, CaseLevel | None]:
    """Return where each case belongs; None where no level asks this backend for it.

    That holds for cases of other backends, or versions of torch, for those of which it is known
    that Gloo, torch's own backend, does otherwise, for torch's own work, and for those whose end
    the semantics leave open. Cases that the analysis does not pass are left out.
    """
    found: dict[Key, CaseLevel | None] = {}
    for scenario in scenarios:
        key = scenario.source.path, scenario.case
        if (scenario.backends and backend not in scenario.backends) or scenario.not_for(torch):
            found[key] = None
            continue
        if backend != OF_TORCH and (
            OF_TORCH in scenario.expect.backends or _is_silent_case(scenario)
        ):
            found[key] = None
            continue
        analysis = analyse(scenario, limits)
        plan, predicted = analysis.plan, analysis.predicted
        if plan is None or predicted is None or analysis.verdict.status != "PASSED":
            continue
        needs = predicted.needs or derive(plan, predicted, limits)
        of_torch = any(CAPABILITIES[word].level is None for word in needs.words)
        if of_torch or _is_open(scenario, plan, predicted, limits):
            found[key] = None
            continue
        found[key] = CaseLevel(level=_level(needs.words, predicted), needs=needs.words)
    return found


def _is_open(scenario: Scenario, plan: Plan, predicted: Trace, limits: Limits) -> bool:
    """Return whether right backends may end a case otherwise than it states.

    Either nothing is promised of the program any more, and the case states some ends of all; or it
    hangs as long as no buffer takes what is sent, or as `new_group` waits for the members (torch
    asks every rank to call it, and not to wait there: communicators may connect later).
    """
    possible = {predicted.outcome, *predicted.open}
    if possible.issuperset(OUTCOMES) and not possible.issubset(scenario.expect.ends):
        return True
    if predicted.outcome != "deadlock":
        return False
    if "completes" in predicted.open or _hangs_in_creation(scenario, predicted):
        return True
    return hangs_on_sends(plan, limits)


def _hangs_in_creation(scenario: Scenario, predicted: Trace) -> bool:
    """Return whether a rank is blocked in the creation of a group."""
    creations = {
        step.index for step in steps_of(scenario.steps) if isinstance(step.operation, GroupCreation)
    }
    return any(
        event.index in creations and event.state in {"blocked", "possibly_blocked"}
        for rank in predicted.ranks
        for event in rank.own
    )


def _is_silent_case(scenario: Scenario) -> bool:
    """Return whether a case shows what a backend does without a word."""
    return SURPRISE in scenario.tags


def _level(words: Iterable[str], predicted: Trace) -> str:
    """Return the last level that a case needs anything of."""
    levels = {CAPABILITIES[word].level for word in words} - {None}
    if predicted.outcome in {"error", "crash"} or _raises(predicted):
        levels.add("errors")
    if levels <= {"p2p"} and "p2p" in levels:
        return "p2p"
    levels.add("collectives")
    return max((level for level in levels if level is not None), key=LEVELS.index)


def _raises(predicted: Trace) -> bool:
    return any(event.failure is not None for rank in predicted.ranks for event in rank.own)


def certificate(
    outcome: Outcome,
    places: Mapping[Key, CaseLevel | None],
    *,
    backend: str,
    plugin: str,
    torch: str,
) -> Certificate:
    """Count what came of the cases, level by level."""
    counts: dict[str, dict[str, list[str]]] = {level: {} for level in LEVELS}
    words: dict[str, set[str]] = {level: set() for level in LEVELS}
    for result in outcome.results:
        place = places.get((result.file, result.case))
        if place is None:
            continue
        status = result.verdict.status
        name = result.file.removeprefix(f"{corpus_folder()}{os.sep}")
        counts[place.level].setdefault(status, []).append(f"{name}::{result.case}")
        if status == "UNSUPPORTED":
            reason = result.verdict.reason or ""
            words[place.level].update(word for word in place.needs if f"`{word}`" in reason)
    return Certificate(
        backend=backend,
        plugin=plugin,
        torch=torch,
        levels={level: _tally(counts[level], words[level]) for level in LEVELS if counts[level]},
    )


def _tally(by_status: Mapping[str, list[str]], words: set[str]) -> LevelCount:
    failed = [
        name
        for status, names in by_status.items()
        if status not in {"PASSED", "UNSUPPORTED"}
        for name in names
    ]
    passed = len(by_status.get("PASSED", ()))
    return LevelCount(
        run=passed + len(failed),
        passed=passed,
        lacking=len(by_status.get("UNSUPPORTED", ())),
        failed=tuple(sorted(failed)),
        words=tuple(word for word in CAPABILITIES if word in words),
    )


# The certificate as lines, a page, a badge and JSON.

HEAD = ("level", "run", "passed", "lacking", "failed", "")


def _row(level: str, tally: LevelCount) -> tuple[str, ...]:
    lacks = f"without {', '.join(tally.words)}" if tally.words else ""
    numbers = (tally.run, tally.passed, tally.lacking, len(tally.failed))
    return (level, *map(str, numbers), lacks)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [row[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=True)]
    return "  ".join([*cells, row[-1]]).rstrip()


#: colours of a badge: every level, some, none
COLOURS = ("#2e7d32", "#b58900", "#c62828")
#: pixels of a character and around a text
CHARACTER, MARGIN = 7, 10
