"""One eight-rank file by `scenario run`, cold, against `torchrun --nproc-per-node 8`.

python -m benchmarks.cold_eight [pairs, 3 if left out]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import SCENARIO, TORCHRUN, Row, seconds, show

YAML = """\
world_size: 8
tensors:
  x: "full(5, rank + 1)"
steps:
  - all_reduce: {tensor: x}
    expect:
      x: "full(5, 36)"
"""

SCRIPT = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.full((5,), float(dist.get_rank() + 1))
dist.all_reduce(x)
assert torch.equal(x, torch.full((5,), 36.0))
dist.destroy_process_group()
"""


def main() -> None:
    """Measure pairs and print the median ratio."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name:
        path, script = Path(name) / "eight.yaml", Path(name) / "eight.py"
        path.write_text(YAML)
        script.write_text(SCRIPT)
        for _ in range(pairs):
            ours.append(seconds([*SCENARIO, "run", "--backend", "gloo", str(path)]))
            command = [*TORCHRUN, "--nproc-per-node", "8", "--standalone", str(script)]
            theirs.append(seconds(command))
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    show(
        [
            Row(what="`scenario run`, eight ranks, cold", value=f"{statistics.median(ours):.1f} s"),
            Row(what="`torchrun`, the same calls", value=f"{statistics.median(theirs):.1f} s"),
            Row(what="ratio", value=f"{statistics.median(ratios):.2f}", bound="<= 0.5"),
        ]
    )


if __name__ == "__main__":
    main()
