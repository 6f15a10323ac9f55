"""A model shaped like Llama 3, sharded by FSDP2: `--layers`, `--batch`, `--recompute`, `--norm`.

`--shape mpt` is one like MPT: LayerNorm, GELU without a gate, one embedding, no rotation. With `--device cuda` rank 0 prints what a step takes there, and how much memory torch holds.
"""

import argparse
import functools
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

parser = argparse.ArgumentParser()
for name, value in (
    *(("layers", 32), ("hidden", 4096), ("inner", 14336), ("heads", 32), ("kv", 8)),
    *(("vocabulary", 128256), ("batch", 1), ("sequence", 8192), ("steps", 2), ("replicas", 1)),
):
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--recompute", choices=("no", "every-second", "products", "all"), default="no")
parser.add_argument("--shape", choices=("llama", "mpt"), default="llama")
parser.add_argument("--compile", choices=("no", "blocks", "blocks-and-loss"), default="no")
parser.add_argument("--norm", choices=("fused", "plain", "layer"), default="fused")
parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
asked = parser.parse_args()


class PlainNorm(nn.Module):
    """An RMSNorm written in operators, each a kernel of its own; the rows are float32 meanwhile."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.float()
        scale = torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (rows * scale).type_as(x) * self.weight


Norm = {
    **{"fused": nn.RMSNorm, "plain": PlainNorm},
    "layer": functools.partial(nn.LayerNorm, bias=False),
}[asked.norm]


class Block(nn.Module):
    """Attention with grouped keys, and a network, which is gated in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.size = asked.hidden // asked.heads
        linear = functools.partial(nn.Linear, bias=False)
        self.query = linear(asked.hidden, asked.hidden)
        self.key = linear(asked.hidden, asked.kv * self.size)
        self.value = linear(asked.hidden, asked.kv * self.size)
        self.out = linear(asked.hidden, asked.hidden)
        if asked.shape == "llama":
            self.gate = linear(asked.hidden, asked.inner)
        self.up = linear(asked.hidden, asked.inner)
        self.down = linear(asked.inner, asked.hidden)
        self.before, self.between = Norm(asked.hidden), Norm(asked.hidden)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        rows = self.before(x)
        query, key, value = (
            each(rows).unflatten(-1, (-1, self.size)) for each in (self.query, self.key, self.value)
        )
        if asked.shape == "llama":
            query, key = rotate(query, turn), rotate(key, turn)
        if asked.heads > asked.kv:
            key, value = (
                each.repeat_interleave(asked.heads // asked.kv, dim=2) for each in (key, value)
            )
        attended = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        rows = self.between(x)
        if asked.shape == "mpt":
            return x + self.down(F.gelu(self.up(rows)))
        return x + self.down(F.silu(self.gate(rows)) * self.up(rows))


def rotate(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Turn pairs of features by their positions, in float32."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(3).type_as(x)


def keep_products() -> object:
    """Keep what attention gives out, and every second product; recompute the rest."""
    turns = {True: 0, False: 0}

    def policy(context: object, op: object, *_: object, **__: object) -> CheckpointPolicy:
        name = str(op)
        if "attention" in name or "reduce_scatter" in name:
            return CheckpointPolicy.MUST_SAVE
        if name == "aten.mm.default":
            is_again = bool(context.is_recompute)
            turns[is_again] += 1
            if turns[is_again] % 2:
                return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class Model(nn.Module):
    """An embedding, blocks, and the logits of a vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(asked.vocabulary, asked.hidden)
        self.blocks = nn.ModuleList(Block() for _ in range(asked.layers))
        self.norm = Norm(asked.hidden)
        self.logits = nn.Linear(asked.hidden, asked.vocabulary, bias=False)
        if asked.shape == "mpt":
            self.logits.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for at, block in enumerate(self.blocks):
            if asked.recompute == "all" or (asked.recompute == "every-second" and at % 2 == 0):
                x = checkpoint(block, x, turn, use_reentrant=False)
            elif asked.recompute == "products":
                x = checkpoint(block, x, turn, use_reentrant=False, context_fn=keep_products)
            else:
                x = block(x, turn)
        return self.logits(self.norm(x))


def compute_loss(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy, in float32."""
    return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())


if asked.compile == "blocks-and-loss":
    compute_loss = torch.compile(compute_loss)
if asked.device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group({"cpu": "gloo", "cuda": "nccl"}[asked.device])
world = dist.get_world_size()
if asked.replicas > 1:
    shape, dims = (asked.replicas, world // asked.replicas), ("replicate", "shard")
else:
    shape, dims = (world,), ("shard",)
mesh = init_device_mesh(asked.device, shape, mesh_dim_names=dims)
with torch.device("meta"):
    model = Model()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for at, block in enumerate(model.blocks):
    if asked.compile != "no":
        block.compile()
    fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=at < asked.layers - 1)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device=asked.device)
for each in model.parameters():
    nn.init.normal_(each, std=0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
angles = torch.outer(
    torch.arange(asked.sequence),
    500000.0 ** -torch.linspace(0, 1, asked.hidden // asked.heads // 2),
)
turn = torch.polar(torch.ones_like(angles), angles)[None, :, None].to(asked.device)
times_s: list[float] = []
for step in range(asked.steps):
    began_s = time.perf_counter()
    ids = torch.randint(0, asked.vocabulary, (asked.batch, asked.sequence), device=asked.device)
    logits = model(ids, turn)
    loss = compute_loss(logits, ids)
    del logits
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad()
    if asked.device == "cuda":
        torch.cuda.synchronize()
        times_s.append(time.perf_counter() - began_s)
if times_s and dist.get_rank() == 0:
    held = {
        "allocated": torch.cuda.max_memory_allocated() / 2**30,
        "reserved": torch.cuda.max_memory_reserved() / 2**30,
    }
    print(json.dumps({"device": torch.cuda.get_device_name(), "times_s": times_s, "GiB": held}))
dist.destroy_process_group()
