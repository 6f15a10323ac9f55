"""Only rank 0 saves a sharded model.

Finds: call_mismatch
"""

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
if rank == 0:
    dcp.save({"m": net.state_dict()}, checkpoint_id=os.environ["CHECKPOINT"])  # here
dist.barrier()  # here
dist.destroy_process_group()
