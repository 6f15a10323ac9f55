"""The embedding is as large as the vocabulary that a rank saw, then sharded as a DTensor.

Ranks: 2
Told: which reads `vocab = build_vocab(texts)`
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

TEXTS = ["the cat sat on the mat", "a dog and the other dog ran to the old red barn"]


def build_vocab(texts):
    words = sorted({word for text in texts for word in text.split()})
    return {word: i for i, word in enumerate(words)}


def make_embedding(vocab, dim=4):
    torch.manual_seed(0)
    return torch.randn(len(vocab), dim)


def main():
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    texts = TEXTS[dist.get_rank() :][:1]  # cause  # right: texts = TEXTS
    vocab = build_vocab(texts)
    table = distribute_tensor(make_embedding(vocab), mesh, [Shard(0)])  # cause
    total = table.full_tensor().sum()
    print(dist.get_rank(), float(total))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
