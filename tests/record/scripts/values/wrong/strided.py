"""A column of a matrix is reduced, which Gloo takes for its first elements.

Found: in_place_of_strided
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

table = torch.arange(8.0).reshape(4, 2) + rank
dist.all_reduce(table[:, 0])  # in_place_of_strided
dist.destroy_process_group()
