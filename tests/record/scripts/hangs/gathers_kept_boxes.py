"""Detection: boxes above a threshold are gathered on rank 0.

Ranks: 2
Told: `keep = scores > threshold`
"""

import torch
import torch.distributed as dist


class Detector:
    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)

    def __call__(self, images):
        n = images.shape[0] * 5
        boxes = torch.rand(n, 4, generator=self.random)
        scores = torch.rand(n, generator=self.random)
        return boxes, scores


def keep_best(boxes, scores, threshold=0.5):
    keep = scores > threshold  # cause  # right: keep = torch.arange(len(scores)) < 5
    return boxes[keep]  # cause


def gather_rows(rows, dst=0):
    world = dist.get_world_size()
    parts = [torch.empty_like(rows) for _ in range(world)] if dist.get_rank() == dst else None
    dist.gather(rows, parts, dst=dst)
    return torch.cat(parts) if parts is not None else None


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    detector = Detector(seed=rank)
    found = []
    for i in range(3):
        boxes, scores = detector(torch.zeros(2, 3, 8, 8))
        best = keep_best(boxes, scores)
        rows = gather_rows(best)
        if rank == 0:
            found.append(rows)
    dist.barrier()
    if rank == 0:
        print(sum(len(rows) for rows in found), "boxes")
    dist.destroy_process_group()


main()
