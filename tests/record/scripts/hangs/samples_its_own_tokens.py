"""Generation with a tensor-parallel head: each rank samples the next token.

Ranks: 2
Told: and that from `seed = args.seed + tp.get_local_rank()`
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

EOS = 0


class Decoder(nn.Module):
    def __init__(self, vocab=12, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.up = nn.Linear(dim, 32)
        self.down = nn.Linear(32, vocab)

    def forward(self, ids):
        return self.down(torch.relu(self.up(self.embed(ids))))


class Generator:
    def __init__(self, model, temperature, seed):
        self.model = model
        self.temperature = temperature
        self.random = torch.Generator().manual_seed(seed)

    def sample(self, logits):
        probs = (logits / self.temperature).softmax(-1)
        return torch.multinomial(probs, 1, generator=self.random).item()

    @torch.no_grad()
    def generate(self, prompt, limit):
        tokens = list(prompt)
        while len(tokens) < limit:
            logits = self.model(torch.tensor(tokens[-1:]))[-1]
            token = self.sample(logits)
            tokens.append(token)
            if token == EOS:  # cause
                break
        return tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--temperature", type=float, default=2.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(args.seed)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model = parallelize_module(Decoder(), mesh["tp"], plan)
    tp = mesh["tp"]
    seed = args.seed + tp.get_local_rank()  # cause  # right: seed = args.seed
    generator = Generator(model, args.temperature, seed)
    out = generator.generate([3, 5], limit=40)
    lengths = [None] * dist.get_world_size()
    dist.all_gather_object(lengths, len(out))
    print(lengths)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
