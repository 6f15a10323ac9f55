"""From verdicts to figures and tables: recall, precision, causes, first steps, times, by class."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.scoreboard.catalogue import by_label
from benchmarks.scoreboard.program import CORRECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from benchmarks.scoreboard.witnesses import Confirmation, StaticVerdict, TorchReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one witness says of one class. Counts are of programs, times in seconds.

    `alarmed`: it says that something is wrong. `named`: it names the cause; `placed`: the first
    divergent step. `agreed`: nothing speaks against it, by construction, or by the run. `times_s`
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
        """The median time to a verdict; 0 without any verdict."""
        return statistics.median(self.times_s) if self.times_s else 0.0

    @property
    def p95_s(self) -> float:
        """The time within which 95 % of the verdicts are there."""
        return sorted(self.times_s)[int(0.95 * (len(self.times_s) - 1))] if self.times_s else 0.0

    def brief(self) -> dict[str, float]:
        """Return the figures for a file."""
        counts = ("programs", "alarmed", "named", "placed", "agreed", "median_s", "p95_s")
        return {name: getattr(self, name) for name in counts}


def of_static(verdicts: Iterable[StaticVerdict]) -> dict[str, Figures]:
    """Return the figures of the static verdict by class."""
    return {
        label: Figures(
            programs=len(here),
            alarmed=sum(each.alarmed for each in here),
            named=sum(each.named for each in here),
            placed=sum(each.placed for each in here if not each.program.correct),
            agreed=sum(each.right for each in here),
            times_s=tuple(each.took_s for each in here),
        )
        for label, here in by_label(verdicts, lambda each: each.program).items()
    }


def of_torch(reports: Iterable[TorchReport]) -> dict[str, Figures]:
    """Return the figures of torch alone by class."""
    return {
        label: Figures(
            programs=len(here),
            alarmed=sum(each.alarmed for each in here),
            named=sum(each.named for each in here),
            times_s=tuple(each.took_s for each in here if each.alarmed or each.program.correct),
        )
        for label, here in by_label(reports, lambda each: each.program).items()
    }


def of_confirmed(runs: Iterable[Confirmation]) -> dict[str, Figures]:
    """Return how often the run agrees with the prediction, by class."""
    return {
        label: Figures(
            programs=len(here),
            agreed=sum(each.status == "PASSED" for each in here),
            times_s=tuple(each.took_s for each in here),
        )
        for label, here in by_label(runs, lambda each: each.program).items()
    }


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
    """Return which part of all alarms is about wrong programs; 1.0 without any alarm."""
    false = rows[CORRECT].alarmed if CORRECT in rows else 0
    true = together(rows).alarmed
    return true / (true + false) if true + false else 1.0


# ---------------------------------------------------------------------------- the tables


def static_table(rows: Mapping[str, Figures]) -> Iterator[str]:
    """Yield the lines of the static verdict's table."""
    yield "| class | programs | found | cause named | first step named | median | p95 |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for label, each in rows.items():
        if label != CORRECT:
            yield _static_row(label, each)
    yield _static_row("**all wrong programs**", together(rows))
    if CORRECT in rows:
        right = rows[CORRECT]
        yield (
            f"| **correct twins** | {right.programs} | {right.alarmed} false alarms | | "
            f"| {_ms(right.median_s)} | {_ms(right.p95_s)} |"
        )
    yield ""
    share = together(rows)
    yield (
        f"Recall {_percent(share.alarmed, share.programs)}, "
        f"precision {100 * precision(rows):.1f} %, "
        f"cause named {_percent(share.named, share.programs)}, "
        f"first step named {_percent(share.placed, share.programs)}."
    )


def _static_row(label: str, each: Figures) -> str:
    found, named, placed = (
        _percent(count, each.programs) for count in (each.alarmed, each.named, each.placed)
    )
    times = f"{_ms(each.median_s)} | {_ms(each.p95_s)}"
    return f"| {label} | {each.programs} | {found} | {named} | {placed} | {times} |"


def side_by_side(
    static: Mapping[str, Figures],
    plain: Mapping[str, Figures],
    detail: Mapping[str, Figures],
    run: Mapping[str, Figures],
) -> Iterator[str]:
    """Yield the lines of the table that compares the witnesses on one sample."""
    yield (
        "| class | sample | Gloo: found / named | time | DETAIL: found / named | time "
        "| static: found / named | time | the run agrees | time |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    labels = [label for label in static if label != CORRECT]
    for label in labels:
        yield _row(label, static[label], plain[label], detail[label], run[label])
    yield _row(
        "**all wrong programs**",
        *(together(each) for each in (static, plain, detail, run)),
    )
    if CORRECT in static:
        four = (static[CORRECT], plain[CORRECT], detail[CORRECT], run[CORRECT])
        yield _row("**correct** (found: false alarms)", *four)


def _row(label: str, static: Figures, plain: Figures, detail: Figures, run: Figures) -> str:
    cells = [label, str(static.programs)]
    for each in (plain, detail):
        cells += [f"{each.alarmed} / {each.named}", _s(each.median_s)]
    cells += [f"{static.alarmed} / {static.named}", _ms(static.median_s)]
    cells += [f"{run.agreed}", _s(run.median_s)]
    return f"| {' | '.join(cells)} |"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def _s(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds else "-"
