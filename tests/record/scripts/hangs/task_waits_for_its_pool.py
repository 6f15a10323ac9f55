"""Rank 0 writes reports in a pool of one thread, from which a report asks for another one.

Ranks: 2
Told: waits at task_waits_for_its_pool.py:28 for a task of its pool as well
"""

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist


class Reporter:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.pool = ThreadPoolExecutor(1)  # cause  # right: self.pool = ThreadPoolExecutor(2)

    def write_json(self, name, values):
        path = self.folder / name
        path.write_text(json.dumps(values))
        return path

    def write_report(self, step, values):
        table = self.pool.submit(self.write_json, f"{step}.json", values)
        return [str(table.result())]  # cause

    def report(self, step, values):
        return self.pool.submit(self.write_report, step, values).result()  # cause


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reporter = Reporter(tempfile.mkdtemp())
    for step in range(3):
        loss = torch.tensor(1.0 / (step + 1))
        dist.all_reduce(loss)
        if rank == 0 and step == 1:
            print(reporter.report(step, {"loss": loss.item()}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
