"""The tables of the scoreboard, in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.scoreboard.sketch import CORRECT
from benchmarks.scoreboard.tally import Figures, precision, together

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
