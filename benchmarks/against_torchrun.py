"""100 two-rank scenarios in one `scenario run`, against one `torchrun` script for each.

Both do the same calls on real Gloo and check the result. The scripts are measured on a sample,
because a hundred of them take minutes:

    python -m benchmarks.against_torchrun [scripts, 10 if left out]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.measure import SCENARIO, TORCHRUN, Row, seconds, show

CASES = 100

YAML = """\
world_size: 2
tensors:
  x: "full(4, rank + {n})"
  y: [0, 0, 0, 0]
steps:
  - all_reduce: {{tensor: x}}
    expect:
      x: "full(4, {total})"
  - ranks: 0
    send: {{tensor: x, dst: 1}}
  - ranks: 1
    recv: {{tensor: y, src: 0}}
    expect:
      y: "full(4, {total})"
"""

SCRIPT = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.full((4,), float(rank + {n}))
dist.all_reduce(x)
assert torch.equal(x, torch.full((4,), float({total})))
if rank == 0:
    dist.send(x, 1)
else:
    y = torch.zeros(4)
    dist.recv(y, 0)
    assert torch.equal(y, torch.full((4,), float({total})))
dist.destroy_process_group()
"""


def main() -> None:
    """Measure both sides in one run and print the ratio per scenario."""
    sampled = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n in range(CASES):
            (folder / f"case{n:03}.yaml").write_text(YAML.format(n=n, total=2 * n + 1))
        ours = seconds([*SCENARIO, "run", "--backend", "gloo", str(folder)]) / CASES
        script = folder / "script.py"
        theirs = 0.0
        for n in range(sampled):
            script.write_text(SCRIPT.format(n=n, total=2 * n + 1))
            theirs += seconds([*TORCHRUN, "--nproc-per-node", "2", "--standalone", str(script)])
    each = theirs / sampled
    show(
        [
            Row(what=f"`scenario run`, {CASES} scenarios, each", value=f"{1000 * ours:.0f} ms"),
            Row(what=f"`torchrun`, {sampled} scripts, each", value=f"{1000 * each:.0f} ms"),
            Row(what="times faster", value=f"{each / ours:.0f}", bound=">= 40"),
        ]
    )


if __name__ == "__main__":
    main()
