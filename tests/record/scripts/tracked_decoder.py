"""A decoder like Llama under FSDP2, whose memory torch tracks: `--layers`, `--shards`, `--turns`.

No tensor has memory. With `--zero 0` nothing is sharded: weights of float32 are cast by autocast, as
with DDP, whose buckets are one more tensor as large as all gradients, as its own reducer wants
tensors that have memory. Norms are LayerNorm, which is one kernel on a CPU too, and keeps what a fused
RMSNorm does. What is printed is what one rank holds at most in its second step's last
microbatch, in bytes.
"""

import argparse
import functools
import json

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
for name, value in (
    *(("layers", 4), ("hidden", 4096), ("inner", 14336), ("heads", 32), ("kv_heads", 8)),
    *(("vocabulary", 128256), ("micro", 1), ("sequence", 8192), ("turns", 1)),
    *(("replicas", 1), ("shards", 8), ("zero", 3), ("tensor", 1), ("experts", 0), ("active", 0)),
):
    parser.add_argument(f"--{name}", type=int, default=value)
for flag in ("recompute", "plain-gate", "bfloat16-loss", "bfloat16-model", "weighed-gate"):
    parser.add_argument(f"--{flag}", action="store_true")
asked = parser.parse_args()


class Gate(torch.autograd.Function):
    """silu(gate) * other as one kernel, which keeps both and nothing between."""

    @staticmethod
    def forward(ctx, gate, other):
        ctx.save_for_backward(gate, other)
        return F.silu(gate) * other

    @staticmethod
    def backward(ctx, grad):
        gate, other = ctx.saved_tensors
        part = torch.sigmoid(gate)
        return grad * other * part * (1 + gate * (1 - part)), grad * F.silu(gate)


class Whole(torch.autograd.Function):
    """What a tensor group gathers of its sequence: as large as a gather, without a message."""

    @staticmethod
    def forward(ctx, rows):
        return rows.repeat(1, asked.tensor, 1)

    @staticmethod
    def backward(ctx, grad):
        return grad[:, : grad.shape[1] // asked.tensor].clone()


class Own(torch.autograd.Function):
    """What is scattered to a rank of a tensor group, the other way round."""

    @staticmethod
    def forward(ctx, rows):
        return rows[:, : rows.shape[1] // asked.tensor].clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.repeat(1, asked.tensor, 1)


class Experts(nn.Module):
    """Gated networks, of which a token passes `--active`; each gets as many rows as the others.

    A row is multiplied by its weight behind its expert, or with `--weighed-gate` within it.
    """

    def __init__(self) -> None:
        super().__init__()
        shape = asked.experts, asked.hidden, asked.inner
        self.router = nn.Linear(asked.hidden, asked.experts, bias=False)
        self.gate, self.up = (nn.Parameter(torch.empty(shape)) for _ in range(2))
        self.down = nn.Parameter(torch.empty(asked.experts, asked.inner, asked.hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows).softmax(-1).topk(asked.active)
        order = chosen.flatten().argsort()
        sorted_rows = rows[order // asked.active].unflatten(0, (asked.experts, -1))
        weights = weights.flatten()[order].unflatten(0, (asked.experts, -1))[..., None]
        joined = Gate.apply(torch.bmm(sorted_rows, self.gate), torch.bmm(sorted_rows, self.up))
        if asked.weighed_gate:
            out = torch.bmm(joined * weights, self.down)
        else:
            out = torch.bmm(joined, self.down) * weights
        found = torch.zeros_like(rows).index_add(0, order // asked.active, out.flatten(0, 1))
        return found.view_as(x)


class Block(nn.Module):
    """Attention with grouped keys, and a gated network, or experts."""

    def __init__(self) -> None:
        super().__init__()
        self.size = asked.hidden // asked.heads
        linear = functools.partial(nn.Linear, bias=False)
        own, inner = asked.hidden // asked.tensor, asked.inner // asked.tensor
        keys = asked.kv_heads * self.size // asked.tensor
        self.query = linear(asked.hidden, own)
        self.key = linear(asked.hidden, keys)
        self.value = linear(asked.hidden, keys)
        self.out = linear(own, asked.hidden)
        if asked.experts:
            self.experts = Experts()
        else:
            self.gate = linear(asked.hidden, inner)
            self.up = linear(asked.hidden, inner)
            self.down = linear(inner, asked.hidden)
        self.before = nn.LayerNorm(asked.hidden, bias=False)
        self.between = nn.LayerNorm(asked.hidden, bias=False)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        rows = gather(self.before(x))
        query, key, value = (
            each(rows).unflatten(-1, (-1, self.size)) for each in (self.query, self.key, self.value)
        )
        query, key = rotate(query, turn), rotate(key, turn)
        attended = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=asked.kv_heads < asked.heads,
        )
        x = x + scatter(self.out(attended.transpose(1, 2).flatten(2)))
        rows = gather(self.between(x))
        if asked.experts:
            return x + self.experts(rows)
        gate, other = self.gate(rows), self.up(rows)
        joined = F.silu(gate) * other if asked.plain_gate else Gate.apply(gate, other)
        return x + scatter(self.down(joined))


def gather(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows of a whole tensor group."""
    return Whole.apply(rows) if asked.tensor > 1 else rows


def scatter(rows: torch.Tensor) -> torch.Tensor:
    """Return a rank's own of them."""
    return Own.apply(rows) if asked.tensor > 1 else rows


def rotate(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Turn pairs of features by their positions, in float32."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(3).type_as(x)


class Model(nn.Module):
    """An embedding, blocks, and the logits of a vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(asked.vocabulary // asked.tensor, asked.hidden)
        self.blocks = nn.ModuleList(Block() for _ in range(asked.layers))
        self.norm = nn.LayerNorm(asked.hidden, bias=False)
        self.logits = nn.Linear(asked.hidden, asked.vocabulary // asked.tensor, bias=False)

    def forward(self, ids: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        x = scatter(self.tokens(ids))
        for block in self.blocks:
            if asked.recompute:
                x = checkpoint(block, x, turn, use_reentrant=False)
            else:
                x = block(x, turn)
        return self.logits(gather(self.norm(x)))


def groups(model: nn.Module):
    """Yield what FSDP gathers and scatters together."""
    for module in model.modules():
        if isinstance(module, FSDPModule) and (group := module._get_fsdp_state()._fsdp_param_group):
            yield group


def train(turns: int, *, is_last: bool = True) -> None:
    """Take so many microbatches, without a step of the optimizer."""
    for at in range(turns):
        if (
            0 < asked.zero < 3
        ):  # weights stay, and with 1 gradients are summed before they are scattered
            model.set_reshard_after_backward(False)
            model.set_requires_gradient_sync(asked.zero == 2 or (is_last and at == turns - 1))
        ids = torch.randint(0, asked.vocabulary // asked.tensor, (asked.micro, asked.sequence))
        with torch.autocast("cpu", torch.bfloat16, enabled=is_cast):
            logits = model(ids, turn).flatten(0, 1)
        if not asked.bfloat16_loss:
            logits = logits.float()
        loss = F.cross_entropy(logits, ids.flatten())
        del logits
        loss.backward()


is_cast = asked.zero == 0 and not asked.bfloat16_model
world = asked.replicas * asked.shards
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
if asked.replicas > 1:
    shape, dims = (asked.replicas, asked.shards), ("replicate", "shard")
else:
    shape, dims = (world,), ("shard",)
mesh = init_device_mesh("cpu", shape, mesh_dim_names=dims)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
with FakeTensorMode():
    torch.set_default_dtype(torch.bfloat16 if asked.bfloat16_model else torch.float32)
    model = Model()
    torch.set_default_dtype(torch.float32)
    keep = {} if asked.zero == 3 else {"reshard_after_forward": False}
    if 0 < asked.experts < asked.shards:  # as torchtitan: a shard of no expert would be filled up
        keep["shard_placement_fn"] = lambda each: Shard(1) if each.dim() == 3 else None
    for block in [*model.blocks, model] if asked.zero else []:
        fully_shard(block, mesh=mesh, mp_policy=policy, **keep)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    angles = torch.ones(asked.sequence, asked.hidden // asked.heads // 2)
    turn = torch.polar(angles, angles)[None, :, None]
    train(1)
    optimizer.step()
    optimizer.zero_grad()
    train(asked.turns - 1, is_last=False)  # torch tracks one pass of each module
    summed = 0  # gradients that wait to be scattered, which the tracker does not see
    for parameter in (each for group in groups(model) for each in group.fsdp_params):
        if parameter.unsharded_accumulated_grad is not None:
            summed += parameter.unsharded_accumulated_grad.nbytes
    tracker = FSDPMemTracker(model, optimizer) if asked.zero else MemTracker()
    if asked.zero == 0:
        buckets = [torch.empty_like(each) for each in model.parameters() if asked.replicas > 1]
        tracker.track_external(model, optimizer, *buckets)
    with tracker:
        train(1)
        optimizer.step()
    (found,) = tracker.get_tracker_snapshot("peak").values()
sizes = {str(getattr(kind, "value", kind)): size for kind, size in found.items()}
print(json.dumps({**sizes, "Total": sizes["Total"] + summed}))
