"""Rank 0 counts a comment of its hostfile as a host.

Ranks: 3
Told: `return text.splitlines()` (counts_the_hosts.py:
"""

import argparse
import os

import torch
import torch.distributed as dist

HOSTS = {
    "head": "# cluster A\nnode0\nnode1\nnode2\n",
    "worker": "node0\nnode1\nnode2\n",
}


def parse_hosts(text):
    """Returns the names in a hostfile."""
    return text.splitlines()  # cause # right: return [n for n in text.split() if "node" in n]


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=int(os.environ.get("RANK", 0)))
    parser.add_argument("--role", default="head" if os.environ.get("RANK") == "0" else "worker")
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def main():
    args = get_args()
    hosts = parse_hosts(HOSTS[args.role])
    url = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    dist.init_process_group("gloo", init_method=url, rank=args.rank, world_size=len(hosts))
    weights = torch.zeros(8)
    for step in range(args.steps):
        grad = torch.full((8,), float(args.rank + step))
        dist.all_reduce(grad)
        weights -= 0.1 * grad
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
