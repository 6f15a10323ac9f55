"""The other ranks read a file that a program of the first one still makes, and do not wait for it.

Ranks: 2
Told: rank 1 raises FileNotFoundError
Told: rank 0 alone goes into `if dist.get_rank() == 0` (vocab_still_in_work.py:27)
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER = Path(tempfile.gettempdir())


def prepare(path: Path) -> None:
    program = f"import time; time.sleep(3); open({str(path)!r}, 'w').write('[1, 2]')"
    subprocess.run([sys.executable, "-c", program], check=True)


def load(path: Path) -> list[int]:
    if dist.get_rank() == 0:  # cause
        prepare(path)
    path = path.absolute()  # right: dist.barrier()
    return json.loads(path.read_text())


dist.init_process_group("gloo")
made = [f"vocab-{time.time_ns()}.json"]
dist.broadcast_object_list(made, src=0)
path = FOLDER / made[0]
words = load(path)
dist.all_reduce(torch.ones(len(words)))
dist.barrier()
if dist.get_rank() == 0:
    path.unlink()
dist.destroy_process_group()
