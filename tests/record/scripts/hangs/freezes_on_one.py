"""DDP: the configuration of one rank freezes the encoder.

Ranks: 2
Told: encoder.weight, encoder.bias on rank 0 alone
"""

import os
import torch
import torch.distributed as dist
from torch import nn

from dataclasses import dataclass
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    freeze_encoder: bool = False
    lr: float = 0.1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.decoder = nn.Linear(4, 2)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def read_config():
    cfg = Config()
    if os.environ["RANK"] == "1":  # right: if os.environ["RANK"] == "9":
        cfg.freeze_encoder = True
    return cfg


def build(cfg):
    model = Model()
    if cfg.freeze_encoder:  # cause
        for p in model.encoder.parameters():
            p.requires_grad_(False)
    return DDP(model)  # cause


dist.init_process_group("gloo")
cfg = read_config()
net = build(cfg)
net(torch.ones(2, 4)).sum().backward()
dist.barrier()
dist.destroy_process_group()
