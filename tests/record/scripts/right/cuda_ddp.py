"""DDP as it is written for CUDA: devices, autocast, a scaler of gradients."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    net = DDP(nn.Linear(8, 4).to(device), device_ids=[local], output_device=local)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for i in range(3):
        x = torch.randn(4, 8, device=device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(x).sum()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        torch.cuda.synchronize()
    # torch.compile keeps a table of torch's functions, in which each is one of its own
    assert len({torch.cuda.synchronize, torch.cuda.set_device, torch.cuda.empty_cache}) == 3
    t = torch.tensor([loss.item()]).cuda(local, non_blocking=True)
    dist.all_reduce(t)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
