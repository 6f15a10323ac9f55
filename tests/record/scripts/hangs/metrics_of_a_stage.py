"""The last stage of a pipeline watches no layer, and leaves before the others gather.

Ranks: 3
Told: rank 2 alone takes the `return`
"""

import torch
import torch.distributed as dist

LAYERS = {0: ["attention"], 1: ["attention", "attention"], 2: ["head"]}


def gather(own: dict[str, float]) -> list[object]:
    if not own:  # cause # right: if False:
        return []
    everyone: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, own)
    return everyone


def forward(x: torch.Tensor) -> dict[str, float]:
    if rank > 0:
        dist.recv(x, src=rank - 1)
    own = {}
    for number, layer in enumerate(LAYERS[rank]):
        x = x * 0.5 + number
        if layer == "attention":
            own[f"{layer}.{number}"] = float(x.norm())
    if rank + 1 < dist.get_world_size():
        dist.send(x, dst=rank + 1)
    return own


dist.init_process_group("gloo")
rank = dist.get_rank()
for _ in range(3):
    watched = forward(torch.ones(4))
    gather(watched)
dist.destroy_process_group()
