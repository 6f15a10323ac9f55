"""A GAN whose discriminator is trained until it is good enough, before each generator step.

Ranks: 2
Told: fix: agree in each turn on what the loop at critic_stops_by_own_loss.py:
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def agree(loss):
    shared = loss.detach().clone()
    dist.all_reduce(shared)
    return shared.item() / dist.get_world_size()


@dataclass
class GanConfig:
    latent: int = 4
    width: int = 8
    target: float = 0.55
    most: int = 6
    rounds: int = 3


class Data:
    def __init__(self, rank: int):
        self.generator = torch.Generator().manual_seed(rank)
        self.spread = 0.1 if rank == 0 else 3.0

    def sample(self, n: int, width: int) -> torch.Tensor:
        return 2.0 + self.spread * torch.randn(n, width, generator=self.generator)


class Gan:
    def __init__(self, config: GanConfig, data: Data):
        torch.manual_seed(0)
        self.config, self.data = config, data
        self.generator = DDP(nn.Linear(config.latent, config.width))
        self.critic = DDP(nn.Sequential(nn.Linear(config.width, 8), nn.ReLU(), nn.Linear(8, 1)))
        self.opt_g = torch.optim.Adam(self.generator.parameters(), lr=0.01)
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=0.05)

    def critic_step(self) -> float:
        real = self.data.sample(8, self.config.width)
        fake = self.generator.module(torch.randn(8, self.config.latent)).detach()
        scores = self.critic(torch.cat([real, fake]))
        labels = torch.cat([torch.ones(8, 1), torch.zeros(8, 1)])
        loss = nn.functional.binary_cross_entropy_with_logits(scores, labels)
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        return loss.item()  # right: return agree(loss)

    def train_critic(self):
        loss, rounds = float("inf"), 0
        while loss > self.config.target and rounds < self.config.most:  # cause
            loss = self.critic_step()
            rounds += 1
        return rounds

    def generator_step(self):
        fake = self.generator(torch.randn(8, self.config.latent))
        loss = -self.critic.module(fake).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()

    def run(self):
        for _ in range(self.config.rounds):
            self.train_critic()
            self.generator_step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Gan(GanConfig(), Data(dist.get_rank())).run()
    dist.barrier()
    dist.destroy_process_group()
