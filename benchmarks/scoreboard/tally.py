"""From verdicts to figures: recall, precision, causes, first steps, times, a class at a time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.scoreboard.catalogue import by_label
from benchmarks.scoreboard.sketch import CORRECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.scoreboard.spoken import Confirmed, Spoken
    from benchmarks.scoreboard.static import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one witness says of one class. Counts are of programs, times in seconds.

    `alarmed`: it says that something is wrong. `named`: it names the cause; `placed`: the first
    divergent step. `agreed`: nothing stands against it, by construction, or by the run.
    """

    programs: int
    alarmed: int = 0
    named: int = 0
    placed: int = 0
    agreed: int = 0
    median_s: float = 0.0
    p95_s: float = 0.0


def of_static(verdicts: Iterable[Verdict]) -> dict[str, Figures]:
    """Return the figures of the static verdict by class."""
    found = {verdict.program.name: verdict for verdict in verdicts}
    return {
        label: _timed(
            [found[program.name].took_s for program in held],
            alarmed=sum(found[program.name].alarmed for program in held),
            named=sum(found[program.name].named for program in held),
            placed=sum(found[program.name].placed for program in held),
            agreed=sum(found[program.name].right for program in held),
        )
        for label, held in by_label(verdict.program for verdict in found.values()).items()
    }


def of_spoken(verdicts: Iterable[Spoken]) -> dict[str, Figures]:
    """Return the figures of torch alone by class."""
    found = {verdict.program.name: verdict for verdict in verdicts}
    return {
        label: _timed(
            [found[program.name].took_s for program in held],
            alarmed=sum(found[program.name].alarmed for program in held),
            named=sum(found[program.name].named for program in held),
        )
        for label, held in by_label(verdict.program for verdict in found.values()).items()
    }


def of_confirmed(verdicts: Iterable[Confirmed]) -> dict[str, Figures]:
    """Return how often the run agrees with the prediction, by class."""
    found = {verdict.program.name: verdict for verdict in verdicts}
    return {
        label: _timed(
            [found[program.name].took_s for program in held],
            agreed=sum(found[program.name].status == "PASSED" for program in held),
        )
        for label, held in by_label(verdict.program for verdict in found.values()).items()
    }


def _timed(
    times_s: Sequence[float], *, alarmed: int = 0, named: int = 0, placed: int = 0, agreed: int = 0
) -> Figures:
    return Figures(
        programs=len(times_s),
        alarmed=alarmed,
        named=named,
        placed=placed,
        agreed=agreed,
        median_s=statistics.median(times_s),
        p95_s=sorted(times_s)[int(0.95 * (len(times_s) - 1))],
    )


def together(rows: Mapping[str, Figures]) -> Figures:
    """Return the figures of all wrong programs; times are the medians' median, the worst p95."""
    wrong = [figures for label, figures in rows.items() if label != CORRECT]
    return Figures(
        programs=sum(figures.programs for figures in wrong),
        alarmed=sum(figures.alarmed for figures in wrong),
        named=sum(figures.named for figures in wrong),
        placed=sum(figures.placed for figures in wrong),
        agreed=sum(figures.agreed for figures in wrong),
        median_s=statistics.median(figures.median_s for figures in wrong) if wrong else 0.0,
        p95_s=max((figures.p95_s for figures in wrong), default=0.0),
    )


def precision(rows: Mapping[str, Figures]) -> float:
    """Return which part of all alarms is about wrong programs; 1.0 where there is none."""
    false = rows[CORRECT].alarmed if CORRECT in rows else 0
    true = together(rows).alarmed
    return true / (true + false) if true + false else 1.0
