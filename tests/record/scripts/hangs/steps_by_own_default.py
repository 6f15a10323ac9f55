"""An option of the command line has a default that each rank computes for itself.

Ranks: 2
Told: the loop `for step in range(self.config.steps)`
Told: which depends on `parser.add_argument("--steps", type=int, default=len(own_files()))`
Told: and that from `return ["a", "b", "c", "d"][int(os.environ["RANK"]) :]`
Told: fix: give every rank the same number of turns
"""

import argparse
import os

import torch
import torch.distributed as dist


def own_files():
    return ["a", "b", "c", "d"][int(os.environ["RANK"]) :]


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=len(own_files()))  # cause
    parser.add_argument("--width", type=int, default=3)
    return parser.parse_args()


class Runner:
    def __init__(self, config):
        self.config = config

    def run(self):
        for step in range(self.config.steps):  # right: for step in range(3):
            value = torch.full((self.config.width,), float(step))
            dist.all_reduce(value)
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    args = parse()
    Runner(args).run()
    dist.destroy_process_group()


main()
