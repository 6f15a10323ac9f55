"""How soon a watch shows the verdict on a save of a small two-rank scenario.

From the moment in which the saved file stands on the disk to the moment in which the verdict can be
read from the command's output:

    python -m benchmarks.watch
"""

from __future__ import annotations

import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import SCENARIO, Row, show

TIMES = 25
GIVE_UP_S = 60.0
#: seconds of silence between two saves
PAUSE_S = 0.3

YAML = """\
world_size: 2
tensors:
  x: "full(4, rank)"
steps:
  - all_reduce: {{tensor: x}}
    expect:
      x: "full(4, {total})"  # {number}
"""


class Watch:
    """A running `scenario run --watch`."""

    def __init__(self, path: Path) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [*SCENARIO, "run", "--watch", str(path)],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()

    def seconds_until(self, words: bytes) -> float:
        """Return how long it takes until it has said the words."""
        began, said = time.perf_counter(), b""
        while words not in said:
            ready, _, _ = select.select([self._output], [], [], GIVE_UP_S)
            chunk = os.read(self._output, 65536) if ready else b""
            if not chunk:
                sys.exit(f"no verdict; it said {said.decode()}")
            said += chunk
        return time.perf_counter() - began

    def settle(self) -> None:
        """Wait until it has said everything."""
        while select.select([self._output], [], [], PAUSE_S)[0]:
            os.read(self._output, 65536)

    def end(self) -> None:
        """Interrupt it."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()


def saves_s(path: Path, *, passing: bool) -> list[float]:
    """Return the seconds from each of many saves to its verdict."""
    watch, took = Watch(path), []
    watch.seconds_until(b"Ctrl-C ends")
    for number in range(TIMES):
        watch.settle()
        beside = path.with_suffix(".new")
        beside.write_text(YAML.format(total=1 if passing else 2, number=number))
        beside.rename(path)
        took.append(watch.seconds_until(b"PASSED" if passing else b"FAILED"))
    watch.end()
    return took


def main() -> None:
    """Measure saves that pass, which run, and saves that fail, which the analysis finds."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.yaml"
        for what, passing in (("a save that passes", True), ("a save that fails", False)):
            path.write_text(YAML.format(total=1, number="first"))
            took = saves_s(path, passing=passing)
            value = f"{1000 * statistics.median(took):.0f} ms, {1000 * max(took):.0f} ms at most"
            rows.append(Row(what=f"from {what} to its verdict", value=value, bound="<= 1000 ms"))
    show(rows)


if __name__ == "__main__":
    main()
