"""The figure of cost.md: what was measured over what was forecast, on projects that were left out.

`python docs/figure_residuals.py` writes explanation/figures/residuals.svg; Sphinx does so when it
builds the pages. It needs matplotlib, of the extra `docs`.
"""

from __future__ import annotations

import sys
from math import exp
from pathlib import Path

DOCS = Path(__file__).parent
FIGURE = DOCS / "explanation" / "figures" / "residuals.svg"

#: colours that can be told apart, and be seen, on a light page and on a dark one
GREY, OWN, OTHERS = "#808080", "#2f8ac4", "#d9822b"
#: factors that are marked
TICKS = (0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0)


def write(path: Path = FIGURE) -> None:
    """Draw the rows of each kind of machine, and write the figure."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    sys.path[:0] = [str(DOCS.parent), str(DOCS.parent / "runner")]
    from benchmarks.folds import folds

    points: dict[str, list[tuple[float, bool, bool]]] = {}
    for fold in folds():
        for row, alike, inside in zip(fold.rows, fold.alike, fold.inside, strict=True):
            told = points.setdefault(row.kind, [])
            told.append((exp(row.log_ratio), alike, inside))
    kinds = sorted(points, reverse=True)
    mpl.rcParams |= {"svg.hashsalt": "residuals", "svg.fonttype": "none", "font.size": 9}
    mpl.rcParams |= {"text.color": GREY, "axes.labelcolor": GREY, "axes.edgecolor": GREY}
    mpl.rcParams |= {"xtick.color": GREY, "ytick.color": GREY}
    figure, axes = plt.subplots(figsize=(7.5, 0.32 * len(kinds) + 1.2), layout="constrained")
    for at, kind in enumerate(kinds):
        for inside, mark in ((True, "o"), (False, "x")):
            for alike, colour in ((True, OWN), (False, OTHERS)):
                own = [
                    ratio
                    for ratio, same, within in points[kind]
                    if (same, within) == (alike, inside)
                ]
                shift = 0.12 if alike else -0.12
                axes.scatter(
                    own, [at + shift] * len(own), s=14, c=colour, marker=mark, alpha=0.6, lw=0.8
                )
    axes.axvline(1, color=GREY, lw=0.8)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set_xlabel(
        "measured / forecast, of projects left out  (circle: in the 80 % interval, cross: not;\n"
        "blue: others measured the kind, orange: none did)",
        fontsize=7,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)


if __name__ == "__main__":
    write()
