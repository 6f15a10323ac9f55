"""A dict of outputs is filled in the order of a set, and each entry is reduced in its own way.

Ranks: 2
Told: goes through a set, whose order each process has for itself
Told: `out` is filled in that order, and `for key, value in out.items()`
Told: fix: go through `sorted(...)` of it at outputs_of_a_set.py:
"""

import torch
import torch.distributed as dist

KNOWN = {"energy", "stress", "forces", "dipole", "charges", "virial", "magnetic", "gap"}


class Potential:
    def wanted(self):
        return KNOWN & {*KNOWN, "other"}

    def __call__(self):
        out = {}
        for name in self.wanted():  # cause  # right: for name in sorted(self.wanted()):
            out[name] = torch.ones(4, 2) if name in ("forces", "charges") else torch.ones(len(name))
        return out


def reduce(out):
    for key, value in out.items():
        if value.dim() == 1:
            dist.all_reduce(value)
        else:
            dist.all_to_all_single(torch.empty_like(value), value)


dist.init_process_group("gloo")
for step in range(3):
    reduce(Potential()())
dist.destroy_process_group()
