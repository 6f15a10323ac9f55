"""From verdicts to figures: recall, precision, causes, first steps, times, a class at a time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.scoreboard.catalogue import by_label
from benchmarks.scoreboard.sketch import CORRECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.scoreboard.spoken import Confirmed, Spoken
    from benchmarks.scoreboard.static import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one witness says of one class. Counts are of programs, times in seconds.

    `alarmed`: it says that something is wrong. `named`: it names the cause; `placed`: the first
    divergent step. `agreed`: nothing stands against it, by construction, or by the run. `times_s`
    are the times to a verdict, of the alarms alone where the witness is one that can miss.
    """

    programs: int
    alarmed: int = 0
    named: int = 0
    placed: int = 0
    agreed: int = 0
    times_s: tuple[float, ...] = ()

    @property
    def median_s(self) -> float:
        """The median time to a verdict; 0 where there is none."""
        return statistics.median(self.times_s) if self.times_s else 0.0

    @property
    def p95_s(self) -> float:
        """The time within which 95 % of the verdicts are there."""
        return sorted(self.times_s)[int(0.95 * (len(self.times_s) - 1))] if self.times_s else 0.0

    def brief(self) -> dict[str, float]:
        """Return the figures for a file."""
        counts = {name: getattr(self, name) for name in ("programs", "alarmed", "named")}
        more = {"placed": self.placed, "agreed": self.agreed}
        return {**counts, **more, "median_s": self.median_s, "p95_s": self.p95_s}


def of_static(verdicts: Iterable[Verdict]) -> dict[str, Figures]:
    """Return the figures of the static verdict by class."""
    found = {verdict.program.name: verdict for verdict in verdicts}
    rows = {}
    for label, held in by_label(verdict.program for verdict in found.values()).items():
        here = [found[program.name] for program in held]
        rows[label] = Figures(
            programs=len(here),
            alarmed=sum(each.alarmed for each in here),
            named=sum(each.named for each in here),
            placed=sum(each.placed for each in here if not each.program.correct),
            agreed=sum(each.right for each in here),
            times_s=tuple(each.took_s for each in here),
        )
    return rows


def of_spoken(verdicts: Iterable[Spoken]) -> dict[str, Figures]:
    """Return the figures of torch alone by class."""
    found = {verdict.program.name: verdict for verdict in verdicts}
    rows = {}
    for label, held in by_label(verdict.program for verdict in found.values()).items():
        here = [found[program.name] for program in held]
        rows[label] = Figures(
            programs=len(here),
            alarmed=sum(each.alarmed for each in here),
            named=sum(each.named for each in here),
            times_s=tuple(each.took_s for each in here if each.alarmed or each.program.correct),
        )
    return rows


def of_confirmed(verdicts: Iterable[Confirmed]) -> dict[str, Figures]:
    """Return how often the run agrees with the prediction, by class."""
    found = {verdict.program.name: verdict for verdict in verdicts}
    rows = {}
    for label, held in by_label(verdict.program for verdict in found.values()).items():
        here = [found[program.name] for program in held]
        rows[label] = Figures(
            programs=len(here),
            agreed=sum(each.status == "PASSED" for each in here),
            times_s=tuple(each.took_s for each in here),
        )
    return rows


def together(rows: Mapping[str, Figures]) -> Figures:
    """Return the figures of all wrong programs."""
    wrong = [figures for label, figures in rows.items() if label != CORRECT]
    return Figures(
        programs=sum(figures.programs for figures in wrong),
        alarmed=sum(figures.alarmed for figures in wrong),
        named=sum(figures.named for figures in wrong),
        placed=sum(figures.placed for figures in wrong),
        agreed=sum(figures.agreed for figures in wrong),
        times_s=tuple(time_s for figures in wrong for time_s in figures.times_s),
    )


def precision(rows: Mapping[str, Figures]) -> float:
    """Return which part of all alarms is about wrong programs; 1.0 where there is none."""
    false = rows[CORRECT].alarmed if CORRECT in rows else 0
    true = together(rows).alarmed
    return true / (true + false) if true + false else 1.0
