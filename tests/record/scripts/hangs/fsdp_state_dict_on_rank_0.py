"""Rank 0 alone gathers the state dict of a sharded model to save it.

Ranks: 2
Told: `if dist.get_rank() == 0`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(model: nn.Module) -> None:
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    print(len(state))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
fully_shard(model)
model(torch.ones(2, 4)).sum().backward()
if dist.get_rank() == 0:  # cause # right: if True:
    save(model)
dist.barrier()
dist.destroy_process_group()
