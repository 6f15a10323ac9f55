"""The bytes of objects, as the analysis counts them, against what torch sends for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from torch_scenarios.language.document import load
from torch_scenarios.model.groups import plan
from torch_scenarios.model.traffic import Enter, TrafficRow
from torch_scenarios.reference import simulate

#: three ranks on Gloo; what each hands to a call of tensors: its name, bytes of the rank's tensor
PROGRAM = """
import json, os, sys
import torch.distributed as dist
import torch.distributed.distributed_c10d as d

folder, n = sys.argv[1], 3

def rank_of(rank):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=n)
    calls = []

    def spied(name, at):
        real = getattr(d, name)

        def spy(*a, **k):
            calls.append((name, a[at].numel() * a[at].element_size()))
            return real(*a, **k)

        setattr(d, name, spy)

    spied("all_gather", 1)
    for name in ("gather", "broadcast", "scatter", "send"):
        spied(name, 0)
    out = [None] * n
    d.all_gather_object(out, [{"rank": 0}, {"rank": 1, "name": "a longer one"}, [2]][rank])
    d.gather_object([rank * 300, 0.5], out if rank == 1 else None, dst=1)
    d.broadcast_object_list([{"x": 1}, "hi"] if rank == 1 else [None, None], src=1)
    d.scatter_object_list([None], [[0], [0, 1], [None, True]] if rank == 2 else None, src=2)
    if rank == 0:
        d.send_object_list([{"a": 1}, None], dst=2)
    if rank == 2:
        d.recv_object_list([None, None], src=0)
    with open(f"{folder}/{rank}", "w") as file:
        json.dump(calls, file)
    dist.barrier()
    os._exit(0)

children = []
for rank in range(n):
    child = os.fork()
    if child == 0:
        rank_of(rank)
    children.append(child)
sys.exit(max(os.waitpid(child, 0)[1] for child in children))
"""

SCENARIO = """
world_size: 3
objects:
  mine: {0: {rank: 0}, 1: {rank: 1, name: a longer one}, 2: [2]}
  pair: {expr: "[rank * 300, 0.5]"}
  out: [null, null, null]
  pairs: {1: [null, null, null]}
  news: {0: [null, null], 1: [{x: 1}, hi], 2: [null, null]}
  parts: {2: [[0], [0, 1], [null, true]]}
  part: [null]
  sent: {0: [{a: 1}, null], 2: [null, null]}
steps:
  - all_gather_object: {object_list: out, obj: mine}
  - gather_object: {obj: pair, object_gather_list: pairs, dst: 1}
  - broadcast_object_list: {object_list: news, src: 1}
  - scatter_object_list:
      {scatter_object_output_list: part, scatter_object_input_list: parts, src: 2}
  - ranks: 0
    send_object_list: {object_list: sent, dst: 2}
  - ranks: 2
    recv_object_list: {object_list: sent, src: 0}
"""


def test_objects_have_the_bytes_that_torch_sends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    seen = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(3)]
    file = tmp_path / "objects.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    (case,) = load(file)
    traffic = simulate(plan(case)).traffic
    assert traffic is not None
    for rank in range(3):
        told: list[list[Any]] = []
        for each in traffic.entries:
            if isinstance(each, Enter) and each.ranks == rank:
                # of `all_gather`, `gather` and `scatter` nccl-tests counts the whole
                told += [
                    [name, size if name == "broadcast" else size / 3] for name, size in each.parts
                ]
            elif isinstance(each, TrafficRow) and each.sends and each.ranks == rank:
                told += [["send", each.header], ["send", each.size]]
        assert told == seen[rank]
