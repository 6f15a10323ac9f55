"""Each rank makes its vocabulary of its own sentences, and an embedding as large.

Ranks: 2
Told: `embedding.weight` is made with another shape on some ranks
Told: and that from `mine = SENTENCES[rank::2]`
"""

import torch
import torch.distributed as dist
from torch import nn

SENTENCES = ["the cat sat", "a dog ran in the park", "the cat ate", "my dog likes a park"]


class Bag(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.embedding = nn.Embedding(len(words), 4)  # cause
        self.output = nn.Linear(4, 2)

    def forward(self, ids):
        return self.output(self.embedding(ids).mean(0))


def sync(model):
    for _, parameter in model.named_parameters():
        dist.all_reduce(parameter.grad)


dist.init_process_group("gloo")
rank = dist.get_rank()
mine = SENTENCES[rank::2]  # right: mine = SENTENCES
words = sorted({word for sentence in mine for word in sentence.split()})
model = Bag(words)
for sentence in mine:
    ids = torch.tensor([words.index(word) for word in sentence.split()])
    model(ids).sum().backward()
    sync(model)
dist.destroy_process_group()
