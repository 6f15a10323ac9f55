"""Rank 0 returns where the program fails that prepares the data; the others wait for its file.

Ranks: 2
Told: rank 0 alone takes the `return`
Told: missing_participant
"""

import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

PATH = Path("prepared.txt")


def prepare():
    if dist.get_rank() == 0:
        text = "raise SystemExit(2)"  # right: text = "open('prepared.txt', 'w').write('3')"
        result = subprocess.run([sys.executable, "-c", text])
        if result.returncode != 0:  # cause
            print("not prepared")
            return None
    dist.barrier()
    return int(PATH.read_text())


dist.init_process_group("gloo")
count = prepare()
for _ in range(count or 0):
    dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
