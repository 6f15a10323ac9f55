"""The settings of one rank name a hook more, which communicates.

Ranks: 2
Told: comes from `settings.update(OWN.get(rank, {}))`
Told: of `OWN = {0: {"hooks": ["clip", "norm"]}}`
"""

import torch
import torch.distributed as dist

OWN = {0: {"hooks": ["clip", "norm"]}}  # cause # right: OWN = {}


def settings_of(rank):
    settings = {"hooks": ["clip"], "rate": 0.1}
    settings.update(OWN.get(rank, {}))
    return settings


def run(name, model):
    total = sum(each.grad.norm() for each in model.parameters())
    if name == "norm":
        dist.all_reduce(total)


def main():
    dist.init_process_group("gloo")
    settings = settings_of(dist.get_rank())
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    for name in settings["hooks"]:
        run(name, model)
    dist.all_reduce(model.weight.grad)
    dist.destroy_process_group()


main()
