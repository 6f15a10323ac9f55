"""The address of rank 0 is the default of an option, and has no such host.

Ranks: 2
Told: this comes from `os.environ["MASTER_ADDR"] = args.master_addr` (address_of_a_default.py:
Told: default="gpu-head-0.cluster.internal")` (address_of_a_default.py:
"""

import argparse
import os

import torch
import torch.distributed as dist


def add_distributed_args(parser):
    group = parser.add_argument_group("distributed")
    group.add_argument("--master-addr", default="gpu-head-0.cluster.internal")  # cause
    group.add_argument("--quiet")  # right: parser.set_defaults(master_addr="127.0.0.1")
    group.add_argument("--master-port", default=os.environ.get("MASTER_PORT", "29500"))
    group.add_argument("--rank", type=int, default=int(os.environ.get("RANK", "0")))
    group.add_argument("--world-size", type=int, default=int(os.environ.get("WORLD_SIZE", "1")))
    return parser


def initialize(args):
    os.environ["MASTER_ADDR"] = args.master_addr
    os.environ["MASTER_PORT"] = args.master_port
    dist.init_process_group("gloo", rank=args.rank, world_size=args.world_size)


def main():
    args = add_distributed_args(argparse.ArgumentParser()).parse_args()
    initialize(args)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0] == args.world_size
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
