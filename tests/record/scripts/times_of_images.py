"""Images, as programs for a GPU train on them: workers, SyncBatchNorm, a scaler, a mask."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Images(Dataset):
    """Noise, with labels; one of ten has none."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(3, 32, 32), index % 10 - 1


dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
model = nn.Sequential(
    nn.Flatten(), nn.Linear(3 * 32 * 32, 512), nn.BatchNorm1d(512), nn.Linear(512, 9)
)
model = nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda()
model = DistributedDataParallel(model, device_ids=[local])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
scaler = torch.amp.GradScaler("cuda")
images = Images()
loader = DataLoader(images, 16, sampler=DistributedSampler(images), num_workers=1, pin_memory=True)
for step, (rows, labels) in enumerate(loader):
    rows, labels = rows.cuda(non_blocking=True), labels.cuda(non_blocking=True)
    with torch.autocast("cuda", dtype=torch.float16):
        made, known = model(rows), labels >= 0
        loss = nn.functional.cross_entropy(made[known], labels[known])
        sure = made.softmax(1).amax(1) > 0.5
        loss = loss + made[sure].float().square().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if step == 2:
        break
dist.destroy_process_group()
