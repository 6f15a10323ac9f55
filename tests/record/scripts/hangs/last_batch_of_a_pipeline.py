"""The last batch has fewer rows than the stages of a pipeline have agreed on with the first one.

Ranks: 2
Told: the last batch has fewer rows
Told: let the loader leave out what does not fill a batch
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
stage = PipelineStage(nn.Linear(8, 8), rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
rows = TensorDataset(torch.randn(20, 8), torch.randn(20, 8))
loader = DataLoader(rows, 8)  # cause # right: loader = DataLoader(rows, 8, drop_last=True)
for x, y in loader:
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y, losses=[])
dist.barrier()
dist.destroy_process_group()
