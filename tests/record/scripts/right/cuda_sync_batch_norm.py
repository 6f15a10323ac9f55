"""SyncBatchNorm as a program for CUDA trains it: it gathers into one tensor of a row on NCCL."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    net = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net).cuda(), device_ids=[local])
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        net(torch.randn(4, 3, 8, 8, device="cuda")).sum().backward()
        opt.step()
        opt.zero_grad()
    net.eval()
    net(torch.randn(1, 3, 8, 8, device="cuda"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
