"""A metric that has no values on one rank is summed to an int, and so is its tensor.

Ranks: 2
Told: the `sum` of no numbers is an int
Told: name it where the tensor is made (`dtype=`)
"""

import torch
import torch.distributed as dist


def mean_of(values):
    return torch.tensor([sum(values), len(values)], dtype=torch.float64)


class Meters:
    def __init__(self, names):
        self.values = {name: [] for name in names}

    def reduce(self):
        for name, values in self.values.items():
            count = len(values)
            total = torch.tensor([sum(values), count])  # cause  # right: total = mean_of(values)
            dist.all_reduce(total)
            print(name, total.tolist())


dist.init_process_group("gloo")
meters = Meters(["loss", "score"])
meters.values["loss"] += [0.5, 0.25]
if dist.get_rank() == 0:
    meters.values["score"].append(0.75)
meters.reduce()
dist.destroy_process_group()
