"""The trainer sends the weights that it trains, and the actors wait for each of the model.

Ranks: 3
Told: rank 0 takes what is passed from
Told: rank 0 leaves out items by `if weight.requires_grad`
Told: fix: let both loops
"""

import torch
import torch.distributed as dist
import torch.nn as nn


class Sender:
    def __init__(self, model):
        self.model = model

    def trained(self):
        for weight in self.model.parameters():
            if weight.requires_grad:  # cause  # right: if True:
                yield weight

    def send(self):
        for weight in self.trained():
            packed = weight.detach().contiguous()
            dist.broadcast(packed, src=0)


class Receiver:
    def __init__(self, model):
        self.model = model

    def receive(self):
        for weight in self.model.parameters():
            buffer = torch.empty_like(weight)
            dist.broadcast(buffer, src=0)
            weight.data.copy_(buffer)


dist.init_process_group("gloo")
model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4))
model[0].weight.requires_grad_(False)
if dist.get_rank() == 0:
    sender = Sender(model)
else:
    receiver = Receiver(model)
for step in range(2):
    if dist.get_rank() == 0:
        sender.send()
    else:
        receiver.receive()
    dist.barrier()
dist.destroy_process_group()
