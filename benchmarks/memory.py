"""Peak memory of a rank that reduces a tensor of 64 MiB, in tensors above the baseline.

The baseline is the same scenario with four elements. Peaks are the kernel's own (`VmHWM`), read
from the processes under the command while it runs:

    python -m benchmarks.memory
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import SCENARIO, Row, show

TENSOR_BYTES = 64 << 20

YAML = """\
world_size: 2
tensors:
  x: "full({elements}, rank + 1)"
steps:
  - all_reduce: {{tensor: x}}
    expect:
      x: "full({elements}, 3)"
"""


def children() -> dict[int, list[int]]:
    """Return every process's children."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            found.setdefault(int(after[1]), []).append(int(entry.name))
    return found


def peak_bytes(pid: int) -> int:
    """Return the kernel's high-water mark of a process; 0 once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def workers(root: int) -> list[int]:
    """Return the processes under `root` that have no children: the ranks."""
    tree = children()
    found, waiting = [], list(tree.get(root, []))
    while waiting:
        pid = waiting.pop()
        waiting += tree.get(pid, [])
        if pid not in tree:
            found.append(pid)
    return found


def peak_of(elements: int) -> int:
    """Return the highest peak among the ranks of a run with tensors of that many elements."""
    peaks: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "one.yaml"
        path.write_text(YAML.format(elements=elements))
        command = [*SCENARIO, "run", "--backend", "gloo", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            seen: set[int] = set()
            while running.poll() is None:
                ranks = workers(running.pid)
                seen.update(ranks if len(ranks) > 1 else [])
                for pid in seen:
                    peaks[pid] = max(peaks.get(pid, 0), peak_bytes(pid))
                time.sleep(0.01)
        if running.returncode:
            sys.exit(f"the scenario exited with {running.returncode}")
    return max(peaks.values())


def main() -> None:
    """Measure the small and the large, and print the difference in tensors."""
    small, large = peak_of(4), peak_of(TENSOR_BYTES // 4)
    above = (large - small) / TENSOR_BYTES
    show(
        [
            Row(what="peak of a rank, four elements", value=f"{small / 2**20:.0f} MiB"),
            Row(what="peak of a rank, 64 MiB", value=f"{large / 2**20:.0f} MiB"),
            Row(what="above the baseline, in tensors", value=f"{above:.1f}", bound="<= 4"),
        ]
    )


if __name__ == "__main__":
    main()
