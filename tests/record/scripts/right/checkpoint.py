"""A distributed checkpoint, saved and loaded."""

import os, torch
import torch.distributed as dist
from torch import nn
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

net = nn.Linear(8, 8)
fully_shard(net)
net(torch.randn(2, 8)).sum().backward()
dcp.save({"m": net.state_dict()}, checkpoint_id=os.environ["CHECKPOINT"])
dcp.load({"m": net.state_dict()}, checkpoint_id=os.environ["CHECKPOINT"])
dist.destroy_process_group()
