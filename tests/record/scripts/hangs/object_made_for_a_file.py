"""Each rank goes on from its own last file, and one file was never written.

Ranks: 2
Told: the loop `for step in range(progress.step, 8)`
Told: values differ before: `names` is
Told: fix: give every rank the same number of turns of the loop
"""

import dataclasses
import json
import pathlib
import tempfile

import torch
import torch.distributed as dist


@dataclasses.dataclass
class Progress:
    step: int = 0


class Files:
    def __init__(self, folder, rank):
        self.folder, self.rank = pathlib.Path(folder), rank

    def write(self, progress):
        path = self.folder / f"latest_{progress.step}-rank{self.rank}.json"
        path.write_text(json.dumps(dataclasses.asdict(progress)))

    def read(self):
        names = sorted(each.name for each in self.folder.glob(f"*-rank{self.rank}.json"))  # cause
        return Progress(**json.loads((self.folder / names[-1]).read_text()))


def leave_files(folder):
    for rank in range(2):
        for step in (2, 4):
            if rank == 0 or step == 2:  # right: if True:
                Files(folder, rank).write(Progress(step=step))


def train(progress):
    for step in range(progress.step, 8):
        grad = torch.ones(4) * step
        dist.all_reduce(grad)
        progress.step = step + 1


dist.init_process_group("gloo")
rank = dist.get_rank()
box = [tempfile.mkdtemp()] if rank == 0 else [None]
if rank == 0:
    leave_files(box[0])
dist.broadcast_object_list(box, src=0)
train(Files(box[0], rank).read())
dist.barrier()
dist.destroy_process_group()
