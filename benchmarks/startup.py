"""How fast the command answers without a run: `--help`, and `check` of the whole corpus.

python -m benchmarks.startup
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.measure import SCENARIO, Row, median_seconds, show

CORPUS = Path(__file__).parents[1] / "scenarios"


def imports_torch(arguments: list[str]) -> bool:
    """Return whether the command imports torch, by the interpreter's own record."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *SCENARIO[1:], *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return any(line.rsplit("|", 1)[-1].strip() == "torch" for line in done.stderr.splitlines())


def main() -> None:
    """Measure both, and look for torch among what they import."""
    rows = []
    for what, arguments, times, bound in (
        ("`scenario --help`", ["--help"], 7, "0.25 s"),
        ("`scenario check` of the corpus", ["check", str(CORPUS)], 5, "1.5 s"),
    ):
        took = median_seconds([*SCENARIO, *arguments], times)
        torch = "imports torch" if imports_torch(arguments) else "without torch"
        rows.append(Row(what=what, value=f"{took:.2f} s, {torch}", bound=f"<= {bound}"))
    show(rows)


if __name__ == "__main__":
    main()
