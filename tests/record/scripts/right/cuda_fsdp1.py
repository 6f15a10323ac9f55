"""FSDP as it is written for CUDA: a device by its number, mixed precision, ranges of a profiler."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


def main():
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    low = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    net = FSDP(
        nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), device_id=local, mixed_precision=low
    )
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        with torch.cuda.nvtx.range("step"):
            net(torch.randn(4, 8, device=local)).sum().backward()
            net.clip_grad_norm_(1.0)
            opt.step()
            opt.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
