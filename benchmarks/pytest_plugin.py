"""The corpus through pytest against `scenario run`, and the plugin's cost in a session without it.

The two alternate, and the fastest of each counts: whatever else the machine does only adds.

    python -m benchmarks.pytest_plugin [TIMES]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.measure import SCENARIO, Row, seconds, show

ROOT = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
STARTS = 5


def corpus_s(times: int) -> tuple[float, float]:
    """Return the fastest seconds of `scenario run` and of pytest over the corpus."""
    # --rootdir and -c keep this repository's own configuration out of it
    plain = ["-c", "/dev/null", "--rootdir", str(ROOT), "-W", "error"]
    run = [*SCENARIO, "run", "scenarios"]
    items = [*PYTEST, *plain, "--scenarios", "scenarios"]
    # a machine that is too busy may fail a scenario with a short timeout: 1 is let pass
    codes = (0, 1)
    pairs = [
        (seconds(run, folder=ROOT, codes=codes), seconds(items, folder=ROOT, codes=codes))
        for _ in range(times)
    ]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def start_s() -> tuple[float, float]:
    """Return the fastest seconds of another project's session, without and with the plugin."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_one.py").write_text("def test_one(): pass\n")
        pairs = [
            (seconds([*PYTEST, "-p", "no:scenario"], folder=folder), seconds(PYTEST, folder=folder))
            for _ in range(STARTS)
        ]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def main() -> None:
    """Measure both."""
    without, with_plugin = start_s()
    run, items = corpus_s(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    show(
        [
            Row(what="`scenario run scenarios`", value=f"{run:.1f} s"),
            Row(what="`pytest --scenarios scenarios`", value=f"{items:.1f} s"),
            Row(what="ratio", value=f"{items / run:.2f}", bound="<= 1.15"),
            Row(what="a session of one test, `-p no:scenario`", value=f"{1000 * without:.0f} ms"),
            Row(what="the same, with the plugin, unasked", value=f"{1000 * with_plugin:.0f} ms"),
        ]
    )


if __name__ == "__main__":
    main()
