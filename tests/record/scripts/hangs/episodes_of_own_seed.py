"""Each rank plays by a seed of its own until an episode is done, and asks all ranks at each step.

Ranks: 2
Told: the loop `while not done` (episodes_of_own_seed.py:44) has more turns on some ranks
Told: and that from `env = Walk(seed=dist.get_rank())` (episodes_of_own_seed.py:40)
Told: let all ranks end the loop at episodes_of_own_seed.py:44 in the same turn
"""

import random

import torch
import torch.distributed as dist


class Walk:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def reset(self):
        self.left = self.rng.randint(3, 9)
        return torch.tensor([1.0, float(self.left)])

    def step(self, action):
        self.left -= 1
        return torch.tensor([float(action), float(self.left)]), 1.0, self.left <= 0


class SharedPolicy:
    def __init__(self):
        self.part = torch.ones(2, 2)
        self.parts = [torch.empty_like(self.part) for _ in range(dist.get_world_size())]

    def act(self, state):
        dist.all_gather(self.parts, self.part)
        return int(torch.cat(self.parts).matmul(state).argmax())


dist.init_process_group("gloo")
policy = SharedPolicy()
env = Walk(seed=dist.get_rank())  # right: env = Walk(seed=0)
total = torch.zeros(())
for _ in range(3):
    state, done = env.reset(), False
    while not done:  # cause
        action = policy.act(state)
        state, reward, done = env.step(action)
        total += reward
dist.all_reduce(total)
dist.destroy_process_group()
