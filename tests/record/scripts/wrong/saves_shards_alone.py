"""Rank 0 alone asks for the full state of a sharded model: that gathers.

Finds: call_mismatch
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(net)
net(torch.randn(2, 8)).sum().backward()
if dist.get_rank() == 0:
    get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))  # here
dist.barrier()  # here
dist.destroy_process_group()
