"""How a model may be trained on so many GPUs: what each way holds, and the program of its step.

A model is a decoder as Llama has it: attention with grouped keys, a gated network, an embedding and
a matrix of logits. Instead of one network a block may have experts, of which a router gives some to
each token (Mixtral), and shared experts that each token passes. A candidate shards it by dimensions
of a mesh: pipeline stages, replicas, shards of FSDP, and tensor parallelism within a node, whose
ranks share the sequence between products (sequence parallelism, as torch's and Megatron's). Shards
may be divided once more: ranks of a context group share a sequence, and gather its keys and values
(Llama 3, 3.3.2); ranks of an expert group share the experts, and exchange tokens by all_to_all,
evenly. Its step is written as a scenario with real sizes, which is weighed, and so proved, as any
other file::

    one stage     the weights of a block are gathered one block ahead, its gradients are scattered
                  (FSDP, ZeRO-3); or weights are gathered once a step (ZeRO-2), and gradients are
                  scattered once too (ZeRO-1); or nothing is sharded, and the gradients of a block
                  are summed behind its last backward pass (DDP)
    several       1F1B; gradients are scattered and weights gathered once a step, as ZeRO-1 does
    interleaved   1F1B of several parts of the model on each stage, which is idle for less
                  (Narayanan et al., arXiv 2104.04473)
    zero bubble   1F1B, or two parts on each stage, whose backward passes are in two; see `schedule`

Where the parts of a pipeline do not divide the blocks, the last one and the first one have fewer:
these hold the embedding and the logits as well (Llama 3, arXiv 2407.21783, 3.3.2).

Bytes of a rank: weights, gradients and two averages in float32, and a copy in bfloat16 of what is
gathered. Stages of a pipeline shard weights and averages of float32, and keep whole their copy in
bfloat16 and gradients in float32, as FSDP2 without resharding and Megatron's distributed optimizer
do (6 + 12/d bytes of a parameter by its documentation). Of a token of a block it is what its
backward pass needs, counted as Korthikanti et al. do (arXiv 2205.05198), but of Llama's block:
without masks of dropout, and without the matrix of attention, which fused kernels do not keep; a
model whose attention does says `matrix: 1`.

The step of AdamW moves what its foreach kernels do: a weight 4 times, its gradient twice, and the
averages and what is made of them 14 times, each in its own dtype. FSDP2 copies what it has gathered
out of one buffer into the weights, and gradients into another one that it scatters, on the stream
of the kernels (`split_with_sizes_copy` and `chunk_cat` in
torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py).

What is trained with decides the rest, and a model may state it (`RECIPE`): averages and gradients
in bfloat16, a loss that makes no logits of float32, products that keep what goes into them in
float8. What it does not state is taken as torch does it by default, which is the most;
`hold_least` is the same with the least that a published recipe has, and between both is a step.
What is recomputed is nothing, all of a block, or *some* of it: the operations that a model states.
Where it states none, a block keeps what attention gives and every second product, as torchtitan's
default does. `kernels` are what a block does between its products: several kernels for each norm,
position and gate (EAGER), one for each (FUSED), or one for all between two products (COMPILED).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import ceil
from operator import sub
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.cost.collectives import CollectiveTimes
from torch_scenarios.cost.intervals import (
    AS_STATED,
    CONTEXT_GROUPS,
    EXPERTS,
    FLOAT8,
    HOST,
    IN_TWO,
    LEAST,
    LONG,
    PLANNED,
    SMALL_EXPERTS,
)
from torch_scenarios.cost.nccl import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from torch_scenarios.cost.schedule import (
    KINDS,
    WORDS,
    ZERO_BUBBLES,
    PipelineTurns,
    find_turns,
    part_of,
)
from torch_scenarios.cost.topology import Gpu, Topology
from torch_scenarios.errors import Problem, ScenarioError, nearest
from torch_scenarios.files import read_file
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.traffic import Enter
from torch_scenarios.source.tree import Mapping as Node
from torch_scenarios.source.tree import Scalar, key_text, read_tree
from torch_scenarios.source.tree import Sequence as Items
from torch_scenarios.strategies.pipeline import INTERLEAVED, ZERO_BUBBLE_V

#: what a model may state of the code that it is trained with: how it is taken where it is not
#: stated, and the least that a published recipe has. Bytes of a parameter: of the weights that an
#: optimizer steps; of gradients; of each average of Adam. Bytes of a logit: what log_softmax gives
#: and two gradients, in float32; the loss of TransformerEngine writes one where the logits were.
#: Rows that a token keeps of each expert: what goes in, and what comes out where its weight is
#: multiplied behind the expert. Rows that a gated network keeps: 4 where its gate is several
#: kernels. Rows as wide as the model that each rank of a tensor group keeps whole: what goes into
#: the products of attention and of the network, as torch keeps it; Megatron gathers it once more; 4
#: where its ranks do not share the sequence. 1 where products in float8 keep what goes into them in
#: float8, as TransformerEngine does and torchao does not
RECIPE = {
    "weight_bytes": (4, 2),
    "gradient_bytes": (4, 2),
    "average_bytes": (4, 2),
    "logit_bytes": (12, 2),
    "expert_rows": (2, 1),
    "gated_rows": (3, 3),
    "whole_rows": (2, 0),
    "float8_inputs": (0, 1),
}
#: rows that go into a block, that a rank keeps whole where the sequence is not shared: what comes
#: in, what is between attention and the network, and what the norms give of both
NOT_SHARED = 4
#: what kernels do between the products of a block
EAGER, FUSED, COMPILED = "eager", "fused", "compiled"
#: bytes of a token's feature that they move in a block, forwards: norms, positions, sums; and of a
#: feature of the gated network. EAGER are read off what IBM's Llama gained by torch.compile, four
#: sizes on A100 and on H100; COMPILED are counted: each sum with its norm, positions, the gate
MOVED = {EAGER: (150, 30), FUSED: (60, 12), COMPILED: (24, 6)}
#: bytes of a feature that each of two norms keeps in EAGER code, of what it makes: its input in
#: float32, and what it multiplies by its weight
NORM_KEPT = 6
#: `gated_rows` of it
EAGER_GATE = 4
#: how often AdamW by foreach moves a weight, its gradient, and an average or what is made of them
STEPPED, STEPPED_GRADIENT, STEPPED_AVERAGE = 4, 2, 14
#: bytes of a parameter that FSDP2 moves to copy out what it has gathered, in bfloat16; and that it
#: reads of a gradient in bfloat16, to write it in the dtype in which it is scattered
COPIED_OUT, COPIED_GRADIENT = 4, 2
#: such bytes of a feature of a token for each of its experts: it is sorted by expert, and once more
#: where it arrives, the same on its way back, and summed
MOVED_ROUTED = 18
#: what a backward pass computes, in forward passes; attention, whose matrix is computed once more
BACKWARD, ATTENDED_BACKWARD = 2.0, 2.5
#: operators of torch that a block is, and the kernels that they start, forwards and backwards: of a
#: Llama's, as `record --times-on` counts them, without what FSDP2 adds; in EAGER code those of
#: transformers 4.57.1, as torch dispatches them; and the kernels of COMPILED code, whose operators
#: take a host no time
STARTED = {
    EAGER: ((76, 38), (142, 81)),
    FUSED: ((72, 21), (105, 35)),
    COMPILED: ((0, 14), (0, 24)),
}
#: the part of a block from which on a step is compared with those whose kernels wait for their HOST
WAITS_FROM = 0.1
#: what a model need not state
OPTIONAL = (
    *("head", "experts", "active", "shared", "matrix"),
    *("recomputed_blocks", "recomputed_operations", "kernels", "tensor_overlap"),
    *RECIPE,
)
#: what others call the sizes: Hugging Face's config.json, Llama's params.json, GPT-2, Megatron
_OTHER_NAMES = {
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layers", "n_layer"), "layers"),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), "hidden"),
    **dict.fromkeys(("intermediate_size", "ffn_hidden_size", "ffn", "d_ff", "n_inner"), "inner"),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head"), "heads"),
    **dict.fromkeys(("num_key_value_heads", "num_query_groups", "n_kv_heads"), "kv_heads"),
    **dict.fromkeys(("vocab_size", "padded_vocab_size", "vocab"), "vocabulary"),
    **dict.fromkeys(("seq_length", "seq_len", "max_seq_len", "block_size"), "sequence"),
    **dict.fromkeys(("global_batch_size", "batch_size"), "batch"),
    **dict.fromkeys(("num_local_experts", "n_routed_experts", "num_experts"), "experts"),
    "head_dim": "head",
    "num_experts_per_tok": "active",
    "n_shared_experts": "shared",
}
#: keys by which a file is a config of Hugging Face
_OF_CONFIG = frozenset({"architectures", "model_type", "transformers_version"})
#: operations of a block, and those that are computed anew where *some* is and a model states none:
#: every second product, as torchtitan does
OPERATIONS = ("queries", "keys", "values", "attention", "output", "gate", "up", "down")
EVERY_SECOND = ("keys", "output", "up")
#: dtypes by the bytes of an element, and what a model may state
DTYPES = {2: "bfloat16", 4: "float32"}
STATED = {
    **dict.fromkeys(("weight_bytes", "gradient_bytes", "average_bytes"), (2, 4)),
    "expert_rows": (1, 2),
    "gated_rows": (3, EAGER_GATE),
    "whole_rows": (0, 2, NOT_SHARED),
    "float8_inputs": (0, 1),
    "kernels": (EAGER, FUSED, COMPILED),
    "tensor_overlap": (0, 1),
}
#: keys that a scenario has, and no model
OF_SCENARIO = frozenset({"steps", "world_size"})
#: bytes that attention without a fused kernel keeps of each head for each pair of tokens: what goes
#: into softmax, what comes out of it, and a mask of dropout (Korthikanti et al., arXiv 2205.05198)
OF_PAIR = 5
#: microbatches of a pipeline, for each of its stages: of m microbatches on p stages (p - 1) / m are
#: idle, at most a sixteenth with these; programs of more have more steps to weigh. `plan` counts
#: them. Of several parts on a stage a microbatch counts once for each
MOST_TURNS = 16
#: bytes of a feature that becomes float8: it is read for its largest value, read, and written; of
#: a parameter, whose scale is known; and of a feature that is turned for the gradient of weights
CAST, CAST_WEIGHT, TURNED = 5, 3, 2
#: what products of blocks are computed in, or else in FLOAT8
BFLOAT16 = "bfloat16"
#: tokens of a sequence from which on a step is compared with those of LONG sequences
LONG_FROM = 16384
#: an expert with fewer features is one of SMALL_EXPERTS
WIDE_FROM = 1024
#: what is written of a shorter time
SHORTEST_US = 0.001
#: sizes of microbatches, ways to shard, that are looked at
MICROBATCHES, TENSOR, STAGES, TOGETHER = (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2)
#: ranks that share experts, or a sequence of which each has so many tokens at the least
EXPERT, CONTEXT, FEWEST_TOKENS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16), 8192
#: parts of a model on each stage of a pipeline; several want three stages, as ranks exchange both
#: activations and gradients with one neighbour where there are two
PARTS, FEWEST_OF_SEVERAL = (1, 2, 4, 8), 3
#: what ranks of one stage shard, as DeepSpeed numbers it: nothing (DDP), the averages alone,
#: gradients too, and weights too. ZERO_1 and ZERO_2 are FSDP2's with `reshard_after_forward=False`,
#: where the gradients are synchronized with the last microbatch alone, or with each
ZERO_0, ZERO_1, ZERO_2, ZERO_3 = 0, 1, 2, 3
#: parts of a model that may have no block: the first, which embeds, and the last, of the logits
EMPTY = 2
#: what a backward pass computes anew, see the module
NOTHING, SOME, ALL = "nothing", "some", "all"


class Decoder(Struct, frozen=True, kw_only=True):
    """A model; `batch` is that of all ranks together, in sequences.

    `head` are the features of a head (0: as many as divide `hidden`). Of `experts`, each as wide as
    `inner`, a token passes `active`, and all that are `shared`; without experts there is one.
    `matrix` is 1 where attention keeps its matrix, and 0 where its kernel is fused. A way that
    computes anew does so in so many `recomputed_blocks` (0: in all); where it does so of *some* of
    a block, it is of these `recomputed_operations`. `kernels` are those between products, and
    `tensor_overlap` is 1 where ranks of a tensor group exchange while their products run. What is
    in RECIPE is None where it is not stated.
    """

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int
    sequence: int
    batch: int
    head: int = 0
    experts: int = 0
    active: int = 0
    shared: int = 0
    matrix: int = 0
    recomputed_blocks: int = 0
    recomputed_operations: tuple[str, ...] = EVERY_SECOND
    kernels: str = FUSED
    tensor_overlap: int = 0
    weight_bytes: int | None = None
    gradient_bytes: int | None = None
    average_bytes: int | None = None
    logit_bytes: int | None = None
    expert_rows: int | None = None
    gated_rows: int | None = None
    whole_rows: int | None = None
    float8_inputs: int | None = None

    def take(self, name: str) -> int:
        """Return what is stated of the code that trains it, or how that is taken."""
        stated: int | None = getattr(self, name)
        if stated is None and name == "gated_rows" and self.kernels == EAGER:
            return EAGER_GATE
        return RECIPE[name][0] if stated is None else stated

    def hold_least(self) -> Decoder:
        """Return the same model, trained by code that holds least, but for what is stated."""
        open_names = (name for name in RECIPE if getattr(self, name) is None)
        least = {name: RECIPE[name][1] for name in open_names}
        return replace(self, **least, kernels=FUSED if self.kernels == EAGER else self.kernels)

    @property
    def width(self) -> int:
        """The features of all heads."""
        return self.heads * self.head or self.hidden

    @property
    def keys(self) -> int:
        """The features of all keys."""
        return self.width * self.kv_heads // self.heads

    @property
    def networks(self) -> int:
        """The gated networks that a token passes in a block."""
        return self.active + self.shared if self.experts else 1

    @property
    def routed(self) -> int:
        """The parameters of a block that a router chooses from."""
        return self.experts * 3 * self.hidden * self.inner

    @property
    def passed(self) -> int:
        """The parameters of a block that a token passes."""
        attention = 2 * self.hidden * (self.width + self.keys)
        return attention + self.hidden * (self.experts + 3 * self.networks * self.inner)

    @property
    def block(self) -> int:
        """The parameters of a block."""
        return self.passed - self.active * 3 * self.hidden * self.inner + self.routed

    @property
    def ends(self) -> int:
        """The parameters of the embedding and the logits."""
        return 2 * self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.layers * self.block + self.ends

    def candidates(
        self, machine: Topology, ranks: int, products: str = BFLOAT16
    ) -> Iterator[Candidate]:
        """Yield the ways to train it on so many GPUs; those of one tensor group share a node."""
        node = min(machine.node_ranks or ranks, ranks)
        pipelines = list(self._pipelines())
        for tensor, (schedule, stages, parts) in ((t, each) for t in TENSOR for each in pipelines):
            if node % tensor or self.kv_heads % tensor or ranks % (tensor * stages):
                continue
            data = ranks // (tensor * stages)
            many = dict.fromkeys((1, max(1, data * tensor // node)))
            for replicas in many if stages == 1 else (1,):
                if data % replicas:
                    continue
                shards = data // replicas
                zeros = (ZERO_3, ZERO_2, ZERO_1) if stages == 1 < shards else (ZERO_3,)
                for (expert, context), zero in product(self._divisions(shards, replicas), zeros):
                    plain = Candidate(
                        schedule=schedule,
                        stages=stages,
                        parts=parts,
                        replicas=replicas,
                        shards=shards,
                        expert=expert,
                        context=context,
                        tensor=tensor,
                        zero=zero,
                        products=products,
                    )
                    yield from self._turns(plain)
            if stages == 1 < data:
                plain = Candidate(
                    stages=1, replicas=data, shards=1, tensor=tensor, zero=ZERO_0, products=products
                )
                yield from self._turns(plain)

    def _divisions(self, shards: int, replicas: int) -> Iterator[tuple[int, int]]:
        """Yield how many of the shards share experts, and how many a sequence."""
        groups = EXPERT if self.experts and replicas == 1 else (1,)
        for expert in groups:
            if shards % expert or self.experts % expert:
                continue
            for context in CONTEXT:
                enough = context == 1 or self.sequence >= context * FEWEST_TOKENS
                if shards % context == 0 and enough:
                    yield expert, context

    def _turns(self, plain: Candidate) -> Iterator[Candidate]:
        """Yield a way with each microbatch, size of a call, and part that is computed anew."""
        data = plain.replicas * plain.shards // plain.context
        for micro in MICROBATCHES if plain.context == 1 else (1,):
            turns = self.batch // (data * micro)
            if self.batch % (data * micro) or not plain.takes(turns):
                continue
            if plain.zero == ZERO_1 and turns == 1:
                continue  # it sends what ZERO_2 does, and holds more
            for together in TOGETHER if plain.stages == 1 and plain.zero > ZERO_1 else (1,):
                if self.layers % together == 0:
                    for recompute in (NOTHING, SOME, ALL):
                        yield replace(
                            plain, micro=micro, turns=turns, together=together, recompute=recompute
                        )

    def _pipelines(self) -> Iterator[tuple[str, int, int]]:
        """Yield schedules, their stages, and the parts on each, that blocks can be divided into."""
        yield INTERLEAVED, 1, 1
        for stages, parts in ((p, v) for p in STAGES[1:] for v in PARTS):
            count = stages * parts
            lacking = -self.layers % count
            filled = lacking < stages if self.layers > count else lacking <= EMPTY
            if filled and (parts == 1 or stages >= FEWEST_OF_SEVERAL):
                yield INTERLEAVED, stages, parts
            if filled:
                for schedule, own in ZERO_BUBBLES.items():
                    if own == parts:
                        yield schedule, stages, parts

    def count_blocks(self, way: Candidate) -> int:
        """Return the blocks of the parts of a pipeline that have most."""
        return ceil(self.layers / (way.stages * way.parts))

    def blocks_of(self, way: Candidate, part: int) -> int:
        """Return the blocks of a part of a pipeline, by its number in the model from 0."""
        return divide_blocks(self.layers, way.stages * way.parts)[part]

    def short_parts(self, way: Candidate) -> tuple[int, int]:
        """Return how many parts have a block less, at the beginning of the model and at its end."""
        return count_short_parts(self.layers, way.stages * way.parts)

    @property
    def states_kernels(self) -> bool:
        """Return whether its code is known between products: its kernels, or what hides there."""
        return self.kernels != FUSED or self.tensor_overlap == 1

    def forms_of(self, way: Candidate, gpu: Gpu) -> list[str]:
        """Return by what a way's step is compared with published ones: see `intervals`."""
        found = self.load(way, gpu)
        forms = {
            PLANNED: True,
            AS_STATED: self.states_kernels,
            EXPERTS: self.experts > 0,
            CONTEXT_GROUPS: way.context > 1,
            FLOAT8: way.products == FLOAT8,
            IN_TWO: way.is_in_two,
            LONG: way.context == 1 and self.sequence >= LONG_FROM,
            SMALL_EXPERTS: self.experts > 0 and self.inner < WIDE_FROM,
            HOST: found.waits > WAITS_FROM * (found.block + found.backwards),
        }
        return [form for form, has_it in forms.items() if has_it]

    def load(self, way: Candidate, gpu: Gpu) -> RankLoad:
        """Return what a rank holds and computes, of the stage that holds most."""
        kept = self._find_kept(way)
        held = [self._find_held(way, stage, *kept) for stage in range(way.stages)]
        stage = max(range(way.stages), key=lambda stage: sum(held[stage]))
        return self._time_kernels(way, gpu, stage, held[stage])

    def parameters_of(self, way: Candidate, stage: int) -> tuple[float, float]:
        """Return the parameters of a rank of a stage before they are sharded.

        First those that all shards share, then those that each expert group has once.
        """
        numbers = way.numbers(stage)
        blocks = sum(self.blocks_of(way, number) for number in numbers)
        ends = self.ends / 2 * ((0 in numbers) + (way.last in numbers))
        plain, routed = self.parameters_of_block(way)
        return blocks * plain + ends / way.tensor, blocks * routed

    def parameters_of_block(self, way: Candidate) -> tuple[float, float]:
        """Return the same of one block."""
        if way.expert == 1:
            return self.block / way.tensor, 0.0
        own = self.routed / way.expert
        return (self.block - self.routed) / way.tensor, own / way.tensor

    def load_of_stage(self, way: Candidate, gpu: Gpu, stage: int) -> RankLoad:
        """Return what a rank of a stage holds and computes."""
        held = self._find_held(way, stage, *self._find_kept(way))
        return self._time_kernels(way, gpu, stage, held)

    def _find_kept(self, way: Candidate) -> tuple[float, float, float]:
        """Return the bytes that a block keeps: of its way, of all in it, and of its products."""
        tokens = self.tokens_of(way)
        of_products, kept = (
            tokens * self.hidden * self._count_kept(way, each) / way.tensor
            for each in (NOTHING, way.recompute)
        )
        whole = self.take("whole_rows")
        row = 2 * tokens * self.hidden * (1 - 1 / way.tensor)  # what others would have of one
        of_products += whole * row
        kept += whole // NOT_SHARED * row
        pairs = tokens * self.sequence * self.heads / way.tensor
        whole_block = of_products + self.matrix * OF_PAIR * pairs
        recomputed = self.find_recomputed(way)
        return recomputed * kept + (1 - recomputed) * whole_block, whole_block, of_products

    def _find_held(
        self, way: Candidate, stage: int, kept: float, whole_block: float, of_products: float
    ) -> tuple[float, float, float]:
        """Return what a rank of a stage holds: of state, what is gathered, and activations."""
        tokens = self.tokens_of(way)
        has_logits = way.last in way.numbers(stage)
        logits = tokens * self.vocabulary / way.tensor * self.take("logit_bytes") * has_logits
        if way.stages == 1:
            return self._find_peak(way, kept, whole_block, logits)
        if way.is_in_two:  # what gradients of weights need is all that products take and give
            most = min(way.turns, 4 * way.stages)
            passes = list_kept_in_two(way.schedule, way.stages, most, stage, self.layers)
            activations = max(first * kept + second * of_products for first, second in passes)
        else:
            activations = self._count_kept_blocks(way, stage) * kept
        state, gathered = self._find_state(way, stage)
        activations += logits
        if way.recompute != NOTHING:
            activations += whole_block  # what the block that is computed anew keeps
        return state, gathered, activations

    def _time_kernels(
        self, way: Candidate, gpu: Gpu, stage: int, held: tuple[float, float, float]
    ) -> RankLoad:
        """Return what a rank of a stage holds, and what its kernels take."""
        tokens = self.tokens_of(way)
        rate = gpu.tflops["bfloat16"] * 1e6
        products = self._time_products(way, gpu)
        attended = 2 * way.micro * self.sequence**2 * self.width / (way.tensor * way.context)
        of_feature, of_inner = MOVED[self.kernels]
        moved = tokens * (
            of_feature * self.hidden
            + of_inner * self.inner * self.networks
            + MOVED_ROUTED * self.hidden * self.active
        )
        size = self.width // self.heads
        attention = attended / (rate * gpu.attention_of(size))
        attention_backward = ATTENDED_BACKWARD * attended / (rate * gpu.attention_backward_of(size))
        passed = moved / way.tensor / (gpu.bandwidth * gpu.memory)
        block = products + attention + passed
        cast, cast_backwards = self._time_casts(way, gpu)
        attended_anew = attention * ("attention" in self.recomputed_operations)
        some = products * self._find_repeated() + attended_anew + passed
        again = {NOTHING: 0.0, SOME: some, ALL: block}[way.recompute]
        again += cast if way.recompute != NOTHING else 0.0
        ending = 3 * 2 * tokens * self.hidden * self.vocabulary / way.tensor / (rate * gpu.matmul)
        own, routed = self.parameters_of(way, stage)
        sharded = own / way.shards + routed / way.experts_shards
        recomputed = self.find_recomputed(way)
        starts, starts_backward = (gpu.time_starts(*each) for each in STARTED[self.kernels])
        if way.recompute == ALL:
            starts_backward += recomputed * starts
        backwards = BACKWARD * (products + passed) + attention_backward + cast_backwards
        backwards += recomputed * again
        copied, copied_backwards = self._time_copies(way, gpu)
        block += copied
        backwards += copied_backwards
        state, gathered, activations = held
        return RankLoad(
            state=state,
            gathered=gathered,
            activations=activations,
            block=max(block + cast, starts),
            backwards=max(backwards, starts_backward),
            waits=max(starts - block - cast, 0.0) + max(starts_backward - backwards, 0.0),
            of_weights=products,
            logits=ending,
            optimizer=self._count_stepping() * sharded / (gpu.bandwidth * gpu.memory),
        )

    def find_recomputed(self, way: Candidate) -> float:
        """Return the part of all blocks that a backward pass computes anew, as far as it does."""
        if way.recompute == NOTHING:
            return 0.0
        return (self.recomputed_blocks or self.layers) / self.layers

    def tokens_of(self, way: Candidate) -> int:
        """Return the tokens of a microbatch that a context group's rank has."""
        return way.micro * self.sequence // way.context

    def _time_products(self, way: Candidate, gpu: Gpu) -> float:
        """Return what products of a block take forwards; experts read their weights at least."""
        rate = gpu.tflops[way.products] * 1e6 * gpu.matmul
        of_token = 2 * self.tokens_of(way) / way.tensor
        active = self.active * 3 * self.hidden * self.inner
        read = 2 * self.routed / way.expert / way.tensor / (gpu.bandwidth * gpu.memory)
        return of_token * (self.passed - active) / rate + max(of_token * active / rate, read)

    def _time_casts(self, way: Candidate, gpu: Gpu) -> tuple[float, float]:
        """Return what a block's casts to float8 take, forwards and backwards.

        Cast are what goes into products, and backwards the gradients of what comes out.
        """
        if way.products != FLOAT8:
            return 0.0, 0.0
        inner = self.networks * self.inner
        into = 2 * self.hidden + self.width + inner
        out = self.width + 2 * self.keys + 2 * self.hidden + 2 * inner
        weights = CAST_WEIGHT * sum(self.parameters_of_block(way))
        tokens, rate = self.tokens_of(way) / way.tensor, gpu.bandwidth * gpu.memory
        forwards = (CAST * into * tokens + weights) / rate
        return forwards, ((CAST * out + TURNED * (into + out)) * tokens + weights) / rate

    def _time_copies(self, way: Candidate, gpu: Gpu) -> tuple[float, float]:
        """Return what FSDP2's copies of a block take, forwards and backwards."""
        if way.zero != ZERO_3 or way.stages > 1:
            return 0.0, 0.0
        dims = zip(self.parameters_of_block(way), (way.shards, way.experts_shards), strict=True)
        sharded = sum(own for own, shards in dims if shards > 1)
        rate = gpu.bandwidth * gpu.memory
        gradient = COPIED_GRADIENT + self.take("gradient_bytes")
        return COPIED_OUT * sharded / rate, (COPIED_OUT + gradient) * sharded / rate

    def _find_state(self, way: Candidate, stage: int) -> tuple[float, float]:
        """Return the bytes of weights, gradients and averages of a stage, and of its copy.

        Both are of what all shards share, and of what each expert group has once. What a rank sends
        of its shard is a part of the copy, and its part of the gradients one of its state: FSDP2
        and Megatron gather and scatter in place.
        """
        stepped, gradient = self._count_stepped(), self.take("gradient_bytes")
        state, gathered = 0.0, float(self._count_exchanged(way))
        for own, shards in zip(
            self.parameters_of(way, stage), (way.shards, way.experts_shards), strict=True
        ):
            state += (stepped / shards + gradient) * own
            gathered += 2 * own
        return state, gathered

    def _count_stepped(self) -> int:
        """Return the bytes of a parameter that an optimizer steps, and of its averages."""
        return self.take("weight_bytes") + 2 * self.take("average_bytes")

    def _count_stepping(self) -> int:
        """Return the bytes of a parameter that its step by AdamW moves."""
        return (
            STEPPED * self.take("weight_bytes")
            + STEPPED_GRADIENT * self.take("gradient_bytes")
            + STEPPED_AVERAGE * self.take("average_bytes")
        )

    def _find_peak(
        self, way: Candidate, kept: float, whole_block: float, logits: float
    ) -> tuple[float, float, float]:
        """Return what a rank of FSDP holds where it holds most, of state, gathered, activations.

        That is one of these times of its last microbatch, as torch's FSDPMemTracker shows them:

        - its loss: all activations, the logits, and the weights of the embedding and the logits;
        - the backward pass of the last block, where gradients within it are made: the weights of
          two blocks in bfloat16, and a quarter of its gradient in it;
        - that of the one before, when the last one's gradient is in what is scattered;
        - the end of one, where all of its gradient is in what is scattered too;
        - the same of the first block, where the gradients of all others are there;
        - where the gradients of the embedding and the logits are scattered, which is last;
        - the step of the optimizer, which makes as much anew as one average is.

        Gradients of an earlier microbatch are there from the beginning. With ZERO_2 all weights are
        there in bfloat16 until the optimizer has stepped, and with ZERO_1 all gradients are too.
        DDP has its buckets, as large as all gradients, at all times; of weights in float32 autocast
        makes copies in bfloat16, which a block's backward pass needs.
        """
        gradient = self.take("gradient_bytes")
        stepped = grads = averages = late = weights_whole = grads_whole = copies = 0.0
        dims = zip(
            self.parameters_of(way, 0),
            self.parameters_of_block(way),
            (way.shards, way.experts_shards),
            (self.ends / way.tensor, 0.0),
            strict=True,
        )
        for own, of_block, shards, ends in dims:
            stepped += self._count_stepped() * own / shards
            averages += self.take("average_bytes") * own / shards
            grads += gradient * own / shards
            weights_whole += 2 * own if way.zero in {ZERO_1, ZERO_2} else 0.0
            has_whole = way.zero == ZERO_1 or (way.zero == ZERO_0 and way.replicas > 1)
            grads_whole += gradient * own if has_whole else 0.0
            copies += 2 * own if self._is_cast(way) else 0.0
            late += gradient * min(own, 2 * way.together * of_block + ends) / shards
        block = way.together * sum(self.parameters_of_block(way))
        ends = self.ends / way.tensor
        feature = self.tokens_of(way) * self.hidden / way.tensor
        inner = self.networks * self.inner / self.hidden
        passed = whole_block * (way.recompute != NOTHING)
        passed += 2 * feature * (3 * inner + 2)  # gradients within the network and around it
        all_kept = self.layers * kept
        is_repeated = way.turns > 1 and way.zero != ZERO_1
        before = stepped + grads * is_repeated
        behind = stepped + (grads if is_repeated else grads - late)
        weights = 4 * block if way.zero == ZERO_3 else 0.0  # of two blocks
        ends_weights = 2 * ends if way.zero == ZERO_3 else 0.0
        root = ends_weights + ends  # and the gradient of the logits' in bfloat16
        scattered = 0.0 if way.zero <= ZERO_1 else gradient * block
        within, behind_it = weights + block / 2 + scattered, weights + 2 * block + scattered
        found = max(
            (
                (before, ends_weights + copies, all_kept + logits + 4 * feature),
                (before, weights + block / 2 + root + copies, all_kept + passed),
                (before, within + root + copies, all_kept - kept + passed),
                (before, behind_it + root + copies, all_kept - kept),
                (behind, within + root, kept + passed),
                (behind, behind_it + root, kept),
                (stepped + grads, ends_weights + gradient * ends, 0.0),
                (stepped + grads, averages, 0.0),
            ),
            key=sum,
        )
        gathered = found[1] + weights_whole + self._count_exchanged(way)
        return found[0] + grads_whole, gathered, found[2]

    def _is_cast(self, way: Candidate) -> bool:
        """Return whether autocast makes what products take: weights are in float32, and whole."""
        return way.zero == ZERO_0 and self.take("weight_bytes") > _WIDTHS[BFLOAT16]

    def _count_exchanged(self, way: Candidate) -> int:
        """Return the bytes that a rank sends of activations, and that come to it."""
        sizes = self.sizes(way)
        between = way.count_messages() * sizes["own_rows"] if way.stages > 1 else 0
        return between + sum(sizes[name] for name in self._exchanged(way))

    def _exchanged(self, way: Candidate) -> list[str]:
        """Return the tensors of a block's calls."""
        calls = self.calls(way)
        return list(dict.fromkeys(name for each in calls for name in (each.output, each.input)))

    def sizes(self, way: Candidate) -> dict[str, int]:
        """Return the bytes of the tensors that a block's calls take."""
        own = 2 * self.tokens_of(way) * self.hidden // way.tensor
        keys = 4 * self.tokens_of(way) * self.keys // way.tensor
        tokens = 2 * _share_evenly(own // 2 * self.active, way.expert)
        return {
            "rows": own * way.tensor,
            "own_rows": own,
            "keys": keys * way.context,
            "own_keys": keys,
            "tokens": tokens,
            "own_tokens": tokens,
            "all_tokens": tokens * way.tensor,
        }

    def calls(self, way: Candidate, *, is_backward: bool = False) -> list[BlockCall]:
        """Return what a pass through a block calls."""
        halves = self.halves(way, is_backward=is_backward)
        return [call for half in halves for call in half.calls]

    def halves(self, way: Candidate, *, is_backward: bool = False) -> list[HalfBlock]:
        """Return the halves of a block, with what each calls.

        The first half is attention, the second the network. Backwards calls are those of the
        forward pass in reverse, which have the same form, and those of what is computed anew.
        """
        rows = BlockCall("all_gather_single", "rows", "own_rows", "mesh.tensor")
        sum_rows = BlockCall("reduce_scatter_single", "own_rows", "rows", "mesh.tensor")
        keys = BlockCall("all_gather_single", "keys", "own_keys", "contexts.context")
        sum_keys = BlockCall("reduce_scatter_single", "own_keys", "keys", "contexts.context")
        give = BlockCall("all_to_all_single", "own_tokens", "tokens", "experts.expert")
        bring = BlockCall("all_to_all_single", "tokens", "own_tokens", "experts.expert")
        spread = BlockCall("all_gather_single", "all_tokens", "own_tokens", "mesh.tensor")
        join = BlockCall("reduce_scatter_single", "own_tokens", "all_tokens", "mesh.tensor")
        gathers, sums = way.again if is_backward else (0, 0)
        split, cut = way.tensor > 1, way.context > 1
        behind = [*[sum_keys] * (cut and is_backward), *[sum_rows] * split]
        anew = [*[rows] * split * gathers, *[keys] * cut * sums, *[sum_rows] * split * sums]
        first = self._make_half([*[rows] * split, *[keys] * cut], [*behind, *anew])
        if way.expert == 1:
            anew = [*[rows] * split * gathers, *[sum_rows] * split * sums]
            return [first, self._make_half([rows] * split, [*[sum_rows] * split, *anew])]
        there, back = [give, *[spread] * split], [*[join] * split, bring]
        anew = (there + back) * sums or [spread] * split * gathers
        return [first, self._make_half(there, [*back, *anew])]

    def _make_half(self, before: list[BlockCall], behind: list[BlockCall]) -> HalfBlock:
        hides = self.tensor_overlap == 1
        calls = (*before, *behind)
        return HalfBlock(before, behind, [e for e in calls if hides and e.group == "mesh.tensor"])

    def _count_kept_blocks(self, way: Candidate, stage: int) -> int:
        """Return the passes through a block whose activations a stage keeps at once, at most."""
        if self.layers % (way.stages * way.parts) == 0:
            return way.count_microbatches(stage) * self.count_blocks(way)
        total, ahead = way.turns * way.parts, way.count_sent_ahead(stage)
        count = min(total, ahead + 2 * way.stages * way.parts)
        return count_most_kept(self.layers, way.stages, way.parts, stage, ahead, count)

    def _count_kept(self, way: Candidate, recompute: str) -> float:
        """Return the bytes of a token's feature that a block keeps from its forward pass.

        All are what goes in, and what products, attention and the gate need: both norms' results
        and the sum between them, queries, keys and values, attention, and three of the gated
        network. Of *some*: what goes in, and what operations give that are not computed anew; of
        what is none of these, as norms, nothing is kept. Of each expert a token's row is kept, and
        what it gives where `expert_rows` says so. What goes into products is kept in one byte where
        `float8_inputs` says so: both norms' results, one of the gated network, rows, and attention
        once more.

        Norms of EAGER code keep what they make between. With autocast, what goes into both norms is
        in float32, and of their results each product that takes them makes one copy: of queries,
        keys and values, of the gate and up.
        """
        width, keys, inner = (
            each / self.hidden for each in (self.width, self.keys, self.networks * self.inner)
        )
        rows = self.take("expert_rows") * self.active
        given = zip(OPERATIONS, (width, keys, keys, width, 1, inner, inner, 1), strict=True)
        kept = sum(each for name, each in given if name not in self.recomputed_operations)
        some = 2 * (1 + kept + rows)
        gated = self.take("gated_rows") * inner
        everything = 2 * (4 + 2 * width + 2 * keys + gated + rows)
        everything += 2 * NORM_KEPT * (self.kernels == EAGER)
        if way.products == FLOAT8 and self.take("float8_inputs"):
            norms = 1 if self.experts else 2  # a router takes the second in bfloat16
            everything += width - norms - inner - self.active
        rows_of_cast = {NOTHING: 5, SOME: 1, ALL: 1}[recompute] if self._is_cast(way) else 0
        return {NOTHING: everything, SOME: some, ALL: 2.0}[recompute] + 2 * rows_of_cast

    def _find_repeated(self) -> float:
        """Return the part of a block's products that is computed anew where *some* is.

        Nothing needs what the last one gives, so that it is not computed anew, kept or not.
        """
        width, keys, inner = self.width, self.keys, self.networks * self.inner
        costs = zip(OPERATIONS, (width, keys, keys, 0, width, inner, inner, 0), strict=True)
        anew = sum(each for name, each in costs if name in self.recomputed_operations)
        return anew / (2 * width + 2 * keys + 3 * inner)

    def estimate_us(self, way: Candidate, found: RankLoad, times: CollectiveTimes) -> float:
        """Return about how long a step takes: what is gathered or scattered hides behind kernels.

        So a block takes the longer of both; sums of a tensor group, and stages that wait for each
        other, are added. `found` is what a rank of the way holds and computes.
        """
        gradient = self.take("gradient_bytes")
        forwards, backwards = self._time_passes(way, found, times)
        if way.stages > 1 or way.zero == ZERO_1:
            owns = [self.parameters_of(way, stage) for stage in range(way.stages)]
            busy = max(
                sum(self.blocks_of(way, number) for number in numbers) * (forwards + backwards)
                + found.logits * (way.last in numbers)
                for numbers in map(way.numbers, range(way.stages))
            )
            ends, shards = found.optimizer, ("mesh.shard", "experts.shard")
            for group, own in zip(shards, map(max, zip(*owns, strict=True)), strict=True):
                ends += _take(times, way, REDUCE_SCATTER, group, gradient * own)
                ends += _take(times, way, ALL_GATHER, group, 2 * own)
            return way.turns * busy + self._find_bubble(way, found, forwards + backwards) + ends
        if way.zero == ZERO_0:
            own, of_block = self.parameters_of(way, 0)[0], self.parameters_of_block(way)[0]
            of_all, of_one, of_ends = (
                _take(times, way, ALL_REDUCE, "mesh.replicate", gradient * each)
                for each in (own, of_block, self.ends / way.tensor)
            )
            busy = self.layers * (forwards + backwards) + found.logits
            part = _count_part(times, way, ALL_REDUCE, "mesh.replicate", gradient * of_block)
            behind = (self.layers - 1) * backwards
            last = hide(behind, of_all - of_ends - of_one, part) - behind
            return way.turns * busy + last + of_ends + of_one + found.optimizer
        gather = scatter = 0.0
        dims = (("mesh.shard", way.shards), ("experts.shard", way.experts_shards))
        for (group, shards_of), own in zip(dims, self.parameters_of_block(way), strict=True):
            gather += _take(times, way, ALL_GATHER, group, 2 * way.together * own)
            scatter += _take(times, way, REDUCE_SCATTER, group, gradient * way.together * own)
            part = gradient * way.together * own / shards_of
            scatter += _take(times, way, ALL_REDUCE, "mesh.replicate", part)
        once = 0.0
        if way.zero == ZERO_2:
            once, gather = gather * self.layers / way.together, 0.0
        part = _count_part(times, way, ALL_GATHER, "mesh.shard", way.together * self.block)
        turn = hide(way.together * forwards, gather, part)
        turn += hide(way.together * backwards, gather + scatter, part)
        ends = self.ends / way.tensor
        outside = once + _take(times, way, ALL_GATHER, "mesh.shard", 2 * ends)
        outside += _take(times, way, REDUCE_SCATTER, "mesh.shard", gradient * ends)
        calls = self.layers / way.together
        return way.turns * (calls * turn + found.logits) + outside + found.optimizer

    def bubble_us(self, way: Candidate, found: RankLoad, times: CollectiveTimes) -> float:
        """Return about how long a stage of a pipeline has nothing to do in a step, its bubble.

        Each stage but one waits for a pass through a part, forwards and backwards. Where a backward
        pass is in two, a stage computes gradients of weights meanwhile: two such passes are saved,
        the one that the stage before does not wait for, and the one that fills its own gap (Qi et
        al., arXiv 2401.10241, 2.1; the README of DeepSeek's DualPipe has the same formula).
        """
        if way.stages == 1:
            return 0.0
        return self._find_bubble(way, found, sum(self._time_passes(way, found, times)))

    def _find_bubble(self, way: Candidate, found: RankLoad, passes_us: float) -> float:
        """Return the same of a block's passes, forwards and backwards, in microseconds."""
        saved = 2 * found.of_weights if way.is_in_two else 0.0
        return (way.stages - 1) * self.count_blocks(way) * max(0.0, passes_us - saved)

    def _time_passes(
        self, way: Candidate, found: RankLoad, times: CollectiveTimes
    ) -> tuple[float, float]:
        """Return what a block takes forwards and backwards, with the calls of its groups."""
        sizes = self.sizes(way)

        def add(us: float, *, is_backward: bool) -> float:
            took = 0.0
            for half in self.halves(way, is_backward=is_backward):
                part = half.count_part(us)
                took += us / 2
                for each in half.calls:
                    size = max(sizes[each.output], sizes[each.input])
                    alone = _take(times, way, each.operation, each.group, size)
                    took += max(0.0, alone - part) if each in half.hidden else alone
            return took

        return add(found.block, is_backward=False), add(found.backwards, is_backward=True)

    # The program of a step.
    def program(self, way: Candidate, gpu: Gpu) -> str:
        """Return the step of a candidate as a scenario."""
        found = self.load(way, gpu)
        tensors, steps = (
            self.stages(way, found)
            if way.stages > 1
            else self._plan_stage(way, found)
            if way.zero == ZERO_3
            else self._plan_replicas(way, found)
            if way.zero == ZERO_0
            else self._plan_whole(way, found)
        )
        of_state = {"sums", "part", "sent", "ends_part", "ends_sent"}
        of_state |= {"grads"} if way.stages > 1 or way.zero <= ZERO_1 else set()
        counted = {"gathered": 0, "state": 0, "activations": 0}  # what it holds by other names
        for name, (size, _) in tensors.items():
            counted["state" if name.removeprefix("expert_") in of_state else "gathered"] += size
        over = 0.0  # tensors of calls that are not there where most is held
        for name, size in counted.items():
            held = getattr(found, name) - size - over
            over = max(0.0, -held)
            if held >= 1:
                tensors[f"held_{name}"] = (int(held), "uint8")
        least = self.hold_least().load(way, gpu).held
        tags = [*self.forms_of(way, gpu), *[f"{LEAST}{int(least)}"] * (least < found.held)]
        lines = [
            "version: 1",
            f"name: {way.name}",
            f"description: a step of {self.parameters / 1e9:.1f}e9 parameters, to be weighed",
            # by these `scenario cost` knows which published steps it is compared with, and what
            # other code holds
            f"tags: [{', '.join(tags)}]",
            f"world_size: {way.ranks}",
            *_table_lines(way),
            *_group_lines(way),
            "tensors:",
        ]
        for name, (size, dtype) in tensors.items():
            count = size // _WIDTHS[dtype]
            lines.append(f"  {name}: {{shape: {count}, value: 0, dtype: {dtype}}}")
        return "\n".join([*lines, "steps:", *steps]) + "\n"

    def _plan_stage(
        self, way: Candidate, found: RankLoad
    ) -> tuple[dict[str, tuple[int, str]], list[str]]:
        """Return the tensors, as bytes and dtype, and the steps of FSDP, or HSDP, on one stage."""
        calls = self.layers // way.together
        ends = _share_evenly(self.ends / way.tensor, way.shards)
        gradient = self.take("gradient_bytes")
        dtype = DTYPES[gradient]
        tensors: dict[str, tuple[int, str]] = {}
        for name, own, shards in self._sharded(way):
            whole = _share_evenly(way.together * own, shards)
            tensors |= {
                f"{name}sent": (2 * whole // shards, "bfloat16"),
                f"{name}weights": (2 * whole, "bfloat16"),
                f"{name}weights_next": (2 * whole, "bfloat16"),
                f"{name}grads": (gradient * whole, dtype),
                f"{name}part": (gradient * whole // shards, dtype),
            }
        whole = _share_evenly(way.together * self.parameters_of_block(way)[0], way.shards)
        tensors |= {
            "ends_sent": (2 * ends // way.shards, "bfloat16"),
            "ends": (2 * ends, "bfloat16"),
            "ends_grads": (gradient * ends, dtype),
            "ends_part": (gradient * ends // way.shards, dtype),
        }
        sizes = self.sizes(way)
        tensors |= {name: (sizes[name], "bfloat16") for name in self._exchanged(way)}
        if way.replicas > 1 and calls > 1:
            tensors["sums"] = (gradient * (calls - 1) * whole // way.shards, dtype)
        steps = [
            "  - all_gather_single: {output: ends, input: ends_sent, group: mesh.shard}",
            f"  - for: {{turn: range({way.turns})}}",
            "    steps:",
            *_gather_lines(way, "      ", "weights"),
        ]
        steps += self.passes(way, found.block)
        steps.append(f"      - compute: {{time: {_time(found.logits)}}}")
        steps += self.passes(way, found.backwards, is_backward=True)
        steps += [f"      - wait: [{', '.join(way.handles('gather') + way.handles('scatter'))}]"]
        if way.replicas > 1 and calls > 1:
            steps.append("      - wait: sum")
        steps += [
            "  - reduce_scatter_single: {output: ends_part, input: ends_grads, group: mesh.shard}",
            f"  - compute: {{time: {_time(found.optimizer)}}}",
        ]
        return tensors, steps

    def _plan_replicas(
        self, way: Candidate, found: RankLoad
    ) -> tuple[dict[str, tuple[int, str]], list[str]]:
        """Return the same of DDP: a bucket for each block, and one for the rest, which is last.

        Gradients are summed with the last microbatch (`no_sync` for those before), each bucket
        while the blocks before its own compute.
        """
        gradient, of_block = self.take("gradient_bytes"), round(self.parameters_of_block(way)[0])
        whole = round(self.parameters_of(way, 0)[0])
        tensors = {"grads": (gradient * whole, DTYPES[gradient])}
        sizes = self.sizes(way)
        tensors |= {name: (sizes[name], "bfloat16") for name in self._exchanged(way)}

        def take(indent: str) -> list[str]:
            passes = self.passes(way, found.block)
            logits = f"      - compute: {{time: {_time(found.logits)}}}"
            return [f"{indent}{line[6:]}" for line in [*passes, logits]]

        def sum_lines(indent: str, part: str, name: str) -> list[str]:
            begin = f"{indent}- all_reduce: {{"
            return [
                f'{begin}tensor: "grads[{part}]", group: mesh.replicate, async_op: true}}',
                f"{indent}  as: {name}",
            ]

        steps = []
        if way.turns > 1:
            steps = [f"  - for: {{turn: range({way.turns - 1})}}", "    steps:", *take("      ")]
            steps += self.passes(way, found.backwards, is_backward=True)
        block = self._block_lines(found.backwards, way, is_backward=True)
        blocks = self.layers * of_block
        steps += [
            *take("  "),
            f"  - for: {{at: range({self.layers})}}",
            "    steps:",
            *(f"      {line}" for line in block),
            *sum_lines("      ", f"at * {of_block}:at * {of_block} + {of_block}", "sum[at]"),
            *sum_lines("  ", f"{blocks}:{whole}", "rest"),
            "  - wait: sum",
            "  - wait: rest",
            f"  - compute: {{time: {_time(found.optimizer)}}}",
        ]
        return tensors, steps

    def _plan_whole(
        self, way: Candidate, found: RankLoad
    ) -> tuple[dict[str, tuple[int, str]], list[str]]:
        """Return the same of one stage whose weights are whole in each rank, ZERO_2 and ZERO_1."""
        gradient = self.take("gradient_bytes")
        dtype = DTYPES[gradient]
        tensors: dict[str, tuple[int, str]] = {}
        scatters: list[str] = []
        gathers: list[str] = []
        dims = (("", "mesh", way.shards), ("expert_", "experts", way.experts_shards))
        owns = zip(self.parameters_of(way, 0), self.parameters_of_block(way), strict=True)
        for (name, mesh, shards), (own, of_block) in zip(dims, owns, strict=True):
            if own == 0:
                continue
            whole = _share_evenly(own, shards)
            sent = whole if way.zero == ZERO_1 else _share_evenly(way.together * of_block, shards)
            tensors |= {f"{name}weights": (2 * whole, "bfloat16")}
            tensors |= {f"{name}grads": (gradient * sent, dtype)}
            if shards == 1:
                continue
            tensors[f"{name}sent"] = (2 * whole // shards, "bfloat16")
            tensors[f"{name}part"] = (gradient * sent // shards, dtype)
            gathers.append(
                f"  - all_gather_single: {{output: {name}weights, input: {name}sent, "
                f"group: {mesh}.shard}}"
            )
            if way.zero == ZERO_1:
                scatters.append(
                    f"  - reduce_scatter_single: {{output: {name}part, input: {name}grads, "
                    f"group: {mesh}.shard}}"
                )
        if way.zero == ZERO_1 and way.replicas > 1:
            scatters.append("  - all_reduce: {tensor: part, group: mesh.replicate}")
        calls = self.layers // way.together
        has_sums = way.zero == ZERO_2 and way.replicas > 1 and calls > 1
        if way.zero == ZERO_2:
            ends = _share_evenly(self.ends / way.tensor, way.shards)
            tensors["ends_grads"] = (gradient * ends, dtype)
            tensors["ends_part"] = (gradient * ends // way.shards, dtype)
            scatters.append(
                "  - reduce_scatter_single: {output: ends_part, input: ends_grads, "
                "group: mesh.shard}"
            )
        if has_sums:
            own = _share_evenly(way.together * self.parameters_of_block(way)[0], way.shards)
            tensors["sums"] = (gradient * (calls - 1) * own // way.shards, dtype)
        sizes = self.sizes(way)
        tensors |= {name: (sizes[name], "bfloat16") for name in self._exchanged(way)}
        steps = [f"  - for: {{turn: range({way.turns})}}", "    steps:"]
        steps += self.passes(way, found.block)
        steps.append(f"      - compute: {{time: {_time(found.logits)}}}")
        steps += self.passes(way, found.backwards, is_backward=True)
        if way.zero == ZERO_2:
            steps.append(f"      - wait: [{', '.join(way.handles('scatter'))}]")
        steps += ["      - wait: sum"] * has_sums
        steps += [*scatters, f"  - compute: {{time: {_time(found.optimizer)}}}", *gathers]
        return tensors, steps

    def passes(self, way: Candidate, us: float, *, is_backward: bool = False) -> list[str]:
        """Return a pass through all blocks, while the next ones are gathered with ZERO_3.

        Backwards the gradients of those before are scattered meanwhile, but for ZERO_1.
        """
        calls = self.layers // way.together
        block = self._block_lines(us, way, is_backward=is_backward)

        def body(indent: str) -> list[str]:
            gathers = [
                f"{indent}- wait: [{', '.join(way.handles('gather'))}]",
                *_gather_lines(way, indent, "weights_next"),
            ]
            return [
                *(gathers if way.zero == ZERO_3 else []),
                f"{indent}- for: {{block: range({way.together})}}",
                f"{indent}  steps:",
                *(f"{indent}    {line}" for line in block),
            ]

        def scatter(indent: str) -> list[str]:
            return _shard_lines(way, indent, "reduce_scatter_single", "part", "grads", "scatter")

        if not is_backward or way.zero <= ZERO_1:
            return [f"      - for: {{at: range({calls})}}", "        steps:", *body("          ")]
        lines = [*body("      "), *scatter("      ")]
        if calls > 1:
            own = way.together * self.parameters_of_block(way)[0]
            part = _share_evenly(own, way.shards) // way.shards
            lines += [
                f"      - for: {{at: range({calls - 1})}}",
                "        steps:",
                *body("          "),
            ]
            lines.append(f"          - wait: [{', '.join(way.handles('scatter'))}]")
            if way.replicas > 1:
                lines += [
                    f'          - all_reduce: {{tensor: "sums[at * {part}:at * {part} + {part}]",',
                    "                         group: mesh.replicate,",
                    "                         async_op: true}",
                    "            as: sum[at]",
                ]
            lines += scatter("          ")
        return lines

    def stages(
        self, way: Candidate, found: RankLoad
    ) -> tuple[dict[str, tuple[int, str]], list[str]]:
        """Return the tensors, as bytes and dtype, and the steps of 1F1B with ZeRO-1."""
        gradient = self.take("gradient_bytes")
        dtype = DTYPES[gradient]
        tensors: dict[str, tuple[int, str]] = {}
        ends: tuple[list[str], list[str]] = ([], [])
        owns = zip(*(self.parameters_of(way, each) for each in range(way.stages)), strict=True)
        dims = (("", "mesh", way.shards), ("expert_", "experts", way.experts_shards))
        for (name, mesh, shards), own in zip(dims, map(max, owns), strict=True):
            if own == 0:
                continue
            whole = _share_evenly(own, shards)
            tensors |= {f"{name}grads": (gradient * whole, dtype)}
            tensors |= {f"{name}weights": (2 * whole, "bfloat16")}
            if shards == 1:
                continue
            part = whole // shards
            tensors[f"{name}part"] = (gradient * part, dtype)
            tensors[f"{name}sent"] = (2 * part, "bfloat16")
            ends[0].append(
                f"  - reduce_scatter_single: {{output: {name}part, input: {name}grads, "
                f"group: {mesh}.shard}}"
            )
            ends[1].append(
                f"  - all_gather_single: {{output: {name}weights, input: {name}sent, "
                f"group: {mesh}.shard}}"
            )
        sizes = self.sizes(way)
        for name, count in way.rooms().items():
            tensors[name] = (count * sizes["own_rows"], "bfloat16")
        tensors |= {name: (sizes[name], "bfloat16") for name in self._exchanged(way)}
        stride = way.ranks // way.stages
        steps = [f"  - let: {{stage: rank // {stride}}}"]
        if way.is_in_two:
            rows = sizes["own_rows"] // _WIDTHS["bfloat16"]
            count, lines = way.find_turns().count, self._lines_in_two(way, found, rows)
        else:
            count = way.turn_passes * (way.turns * way.parts + way.count_sent_ahead(0))
            lines = self._turn_lines(way, found)
        steps += [
            f"  - for: {{turn: range({count})}}",
            "    steps:",
            *(f"      {line}" for line in lines),
            *["  - wait: [went, grad_went]"] * way.is_in_two,
            *ends[0],
            f"  - compute: {{time: {_time(found.optimizer)}}}",
            *ends[1],
        ]
        return tensors, steps

    def _turn_lines(self, way: Candidate, found: RankLoad) -> list[str]:
        """Return a turn of a pipeline, in which microbatch `f` goes forward and `b` backward.

        A stage is a turn behind the one before it, so that what it sends at the end of a turn its
        neighbour receives at the end of the same turn: all ranks can be taken together. Where a
        stage has one part of the model a turn is one pass, and `f` and `b` count each twice; else
        it is one of each::

            1F1B, 3 stages, 3 microbatches

            stage 0   F0 .. F1 .. F2 B0 .. B1 .. B2
            stage 1   .. F0 .. F1 B0 F2 B1 .. B2 ..
            stage 2   .. .. F0 B0 F1 B1 F2 B2 .. ..

        Of several parts `f` and `b` count what passes a stage: as many microbatches as there are
        stages pass a part, and then its next. What a rank sends and receives at a time is one
        batch: single messages of two ranks that both send first may wait for each other on NCCL.
        """
        stages, passes, ahead = way.stages, way.turn_passes, way.count_sent_ahead(0)
        total, last = passes * way.turns * way.parts, stages * way.parts - 1
        lines = [f'- let: {{f: turn - stage, b: "turn - {passes * (ahead + 1) - 1} + stage"}}']
        part_of_f = part_of_b = next_of_f = next_of_b = "stage"
        if way.parts > 1:
            part_of_f, part_of_b, next_of_f, next_of_b = "f_part", "b_part", "f_next", "b_next"
            for name, plus in (("part", ""), ("next", " + 1")):
                f, b = (f"({of}{plus}) // {stages} % {way.parts}" for of in "fb")
                lines.append(f'- let: {{f_{name}: "{f} * {stages} + stage",')
                lines.append(f'        b_{name}: "({way.parts - 1} - {b}) * {stages} + stage"}}')

        def passing(count: str) -> str:
            turn = f" and ({count}) % {passes} == 0" if passes > 1 else ""
            return f"0 <= {count} < {total}{turn}"

        goes, comes = passing("f"), passing("b")
        forwards = self._pass_lines(way, part_of_f, goes, self._block_lines(found.block, way))
        backwards = [
            f'- ranks: "{comes} and {part_of_b} == {last}"',
            f"  compute: {{time: {_time(found.logits)}}}",
            *self._pass_lines(
                way, part_of_b, comes, self._block_lines(found.backwards, way, is_backward=True)
            ),
        ]
        exchange = _batch_lines(
            way,
            "exchange",
            ("isend", "out", 1, f"{goes} and {part_of_f} < {last}"),
            ("isend", "grad_out", -1, f"{comes} and {part_of_b} > 0"),
            ("irecv", "into", -1, f"{passing('f + 1')} and {next_of_f} > 0"),
            ("irecv", "grad_into", 1, f"{passing('b + 1')} and {next_of_b} < {last}"),
        )
        return [*lines, *forwards, *backwards, *exchange]

    def _lines_in_two(self, way: Candidate, found: RankLoad, rows: int) -> list[str]:
        """Return a turn of a pipeline whose backward passes are in two.

        What each stage does in it is a number of the table (`PipelineTurns.numbers`). What a stage
        sends at its end its neighbour receives at the end of the same turn, first what goes to
        the next stage and then what goes to the one before, so that two that send to each other do
        it in the same order. None of them is waited for before it is used.
        """
        stages, kinds = way.stages, len(KINDS)
        table = f"moves[%s * {way.find_turns().count} + turn]"
        number = "stage"
        if way.schedule == ZERO_BUBBLE_V:
            number = f"{way.last} - stage if own // {kinds} % 2 else stage"
        lines = [
            f'- let: {{own: "{table % "stage"}",',
            f'        previous: "{table % "(stage - 1)"} if stage else 0",',
            f'        following: "{table % "(stage + 1)"} if stage < {stages - 1} else 0"}}',
            f'- let: {{does: own % {kinds}, number: "{number}"}}',
            '- {ranks: "does == 1", wait: "came[own]"}',
            *self._pass_lines(way, "number", "does == 1", self._block_lines(found.block, way)),
            '- {ranks: "does == 2", wait: "grad_came[own]"}',
            f'- ranks: "does == 2 and number == {way.last}"',
            f"  compute: {{time: {_time(found.logits)}}}",
        ]
        by_input = self._block_lines(found.backwards - found.of_weights, way, is_backward=True)
        lines += self._pass_lines(way, "number", "does == 2", by_input)
        by_weights = [f"- compute: {{time: {_time(found.of_weights)}}}"]
        lines += self._pass_lines(way, "number", "does == 3", by_weights)
        return [*lines, *_exchange_lines(way, rows)]

    def _pass_lines(self, way: Candidate, part: str, where: str, block: list[str]) -> list[str]:
        """Return a pass through the blocks of a part, which an expression numbers, where one is."""
        count, (first, final) = way.stages * way.parts, self.short_parts(way)
        short = [f"{part} < {first}"] * (first > 0)
        short += [f"{part} >= {count - final}"] * (final > 0)
        most = self.count_blocks(way)
        lines = [f"- for: {{block: range({most})}}"]
        if not short:
            lines += [f'  ranks: "{where}"', "  steps:"]
            return [*lines, *(f"    {line}" for line in block)]
        condition = f"{where} and block < {most} - ({' or '.join(short)})"
        lines += ["  steps:", "    - for: {once: range(1)}", f'      ranks: "{condition}"']
        return [*lines, "      steps:", *(f"        {line}" for line in block)]

    def _sharded(self, way: Candidate) -> list[tuple[str, float, int]]:
        """Return what is gathered block by block, its parameters of a block, and its shards."""
        owns = zip(self.parameters_of_block(way), (way.shards, way.experts_shards), strict=True)
        return [(name, *each) for (name, _), each in zip(way.sharded, owns, strict=False)]

    def _block_lines(self, us: float, way: Candidate, *, is_backward: bool = False) -> list[str]:
        """Return a pass through one block: kernels, and what its groups exchange meanwhile."""
        halves = self.halves(way, is_backward=is_backward)
        return [line for half in halves for line in half.lines(us)]


class BlockCall(NamedTuple):
    """A call of a group in a pass through a block, with the names of its tensors."""

    operation: str
    output: str
    input: str
    group: str

    def line(self, *more: str) -> str:
        """Return it as a step of a scenario."""
        words = (f"output: {self.output}", f"input: {self.input}", f"group: {self.group}", *more)
        return f"- {self.operation}: {{{', '.join(words)}}}"


class HalfBlock(NamedTuple):
    """A half of a block: what is called before its kernels, what behind them, and what hides.

    Calls that are `hidden` behind kernels take turns with parts of these, each behind one:

        before       all_gather  all_gather            hidden       all_gather  all_gather
        kernels                              kernels   kernels      first half  second half
    """

    before: list[BlockCall]
    behind: list[BlockCall]
    hidden: list[BlockCall]

    @property
    def calls(self) -> list[BlockCall]:
        """All calls, in their order."""
        return [*self.before, *self.behind]

    def count_part(self, us: float) -> float:
        """Return the microseconds of kernels behind which one call may hide, of a block's."""
        return us / 2 / max(1, len(self.hidden))

    def lines(self, us: float) -> Iterator[str]:
        """Yield its calls and kernels as steps of a scenario."""
        kernels = f"- compute: {{time: {_time(self.count_part(us))}}}"
        yield from (each.line() for each in self.before if each not in self.hidden)
        for each in self.hidden:
            yield from (each.line("async_op: true"), "  as: rows_come", kernels)
            yield "- wait: rows_come"
        if not self.hidden:
            yield kernels
        yield from (each.line() for each in self.behind if each not in self.hidden)


class Candidate(Struct, frozen=True, kw_only=True):
    """A way to train a model: the sizes of the dimensions of its mesh, and what goes through it.

    Of the `shards` so many next to each other share the experts, and so many a sequence. `micro`
    sequences are a microbatch of a rank, of which a step has `turns`; each stage has so
    many `parts` of the model. `together` blocks are gathered by one call. `recompute` is NOTHING,
    SOME or ALL of a block. `zero` is what ranks of one stage shard; a pipeline is as ZERO_1 says.
    `products` are those of blocks; logits and attention are in bfloat16.
    `schedule` is the name of the one by which microbatches pass several stages.
    """

    stages: int
    parts: int = 1
    replicas: int
    shards: int
    expert: int = 1
    context: int = 1
    tensor: int
    micro: int = 1
    turns: int = 1
    together: int = 1
    recompute: str = NOTHING
    zero: int = ZERO_3
    products: str = BFLOAT16
    schedule: str = INTERLEAVED

    @property
    def is_in_two(self) -> bool:
        """Whether a backward pass is one by the input, and later one by the weights."""
        return self.schedule in ZERO_BUBBLES

    @property
    def last(self) -> int:
        """The number of the last part of the model."""
        return self.stages * self.parts - 1

    def numbers(self, stage: int) -> list[int]:
        """Return which parts of the model a stage has."""
        return [part_of(self.schedule, self.stages, stage, nth) for nth in range(self.parts)]

    def takes(self, turns: int) -> bool:
        """Whether its schedule is for so many microbatches: rounds of several parts are whole."""
        if self.is_in_two:
            return self.parts > 1 or turns % max(1, turns // self.stages) == 0
        return self.parts == 1 or turns % self.stages == 0

    def find_turns(self, most: int | None = None) -> PipelineTurns:
        """Return what stages do in each turn, of `most` microbatches where it has more."""
        count = self.turns if most is None else min(self.turns, most)
        return find_turns(self.schedule, self.stages, count)

    def rooms(self) -> dict[str, int]:
        """Return how many messages the tensors have that stages send and receive."""
        into, grad_into = self.find_turns(4 * self.stages).rooms if self.is_in_two else (1, 1)
        parts = self.parts if self.is_in_two else 1
        return {"into": parts * into, "out": 1, "grad_into": parts * grad_into, "grad_out": 1}

    def count_messages(self) -> int:
        """Return how many they have together."""
        return sum(self.rooms().values())

    @property
    def experts_shards(self) -> int:
        """How many expert groups the shards are, each of which has all experts."""
        return self.shards // self.expert

    @property
    def sharded(self) -> tuple[tuple[str, str], ...]:
        """What is gathered block by block on one stage: how its names begin, and its group."""
        experts = (("expert_", "experts.shard"),)
        return (("", "mesh.shard"), *experts * (self.expert > 1 and self.experts_shards > 1))

    def handles(self, name: str) -> list[str]:
        """Return the handles of the calls of such a name."""
        return [f"{begins}{name}" for begins, _ in self.sharded]

    @property
    def turn_passes(self) -> int:
        """Return how many passes of a microbatch follow each other in two turns; see `program`."""
        return 1 if self.parts > 1 else 2

    @property
    def is_long(self) -> bool:
        """Whether it is a pipeline of more microbatches than are weighed."""
        return self.stages > 1 and self.turns * self.parts > MOST_TURNS * self.stages

    def count_sent_ahead(self, stage: int) -> int:
        """Return how many microbatches a stage sends forward before the first comes back.

        One for each stage that follows; of several parts, a microbatch counts once for each of
        them, and a stage is ahead by two for each that follows, and by all its parts but one.
        """
        behind = self.stages - 1 - stage
        return behind if self.parts == 1 else 2 * behind + (self.parts - 1) * self.stages

    def count_microbatches(self, stage: int) -> int:
        """Return how many microbatches a stage keeps at once, each counted once for each part."""
        return min(self.turns * self.parts, self.count_sent_ahead(stage) + 1)

    @property
    def again(self) -> tuple[int, int]:
        """How often a backward pass gathers and scatters rows of the forward pass once more."""
        return {NOTHING: (0, 0), SOME: (1, 0), ALL: (1, 1)}[self.recompute]

    @property
    def ranks(self) -> int:
        """How many GPUs it takes."""
        return self.stages * self.replicas * self.shards * self.tensor

    def members(self, dim: str) -> tuple[int, ...]:
        """Return the group of rank 0 along a dimension of the mesh."""
        strides = {
            "mesh.tensor": (self.tensor, 1),
            "mesh.shard": (self.shards, self.tensor),
            "mesh.replicate": (self.replicas, self.shards * self.tensor),
            "experts.expert": (self.expert, self.tensor),
            "experts.shard": (self.experts_shards, self.expert * self.tensor),
            "contexts.context": (self.context, self.tensor),
        }
        count, stride = strides[dim]
        return tuple(range(0, count * stride, stride))

    @property
    def name(self) -> str:
        """What its file is called."""
        schedule = [WORDS[self.schedule].lower()] * self.is_in_two
        parts = {
            "pp": self.stages,
            "parts": 1 if self.is_in_two else self.parts,
            "ddp" if self.zero == ZERO_0 else "hsdp": self.replicas,
            "dp": self.shards // self.context,
            "cp": self.context,
            "ep": self.expert,
            "tp": self.tensor,
            "buckets": self.together,
        }
        lines = [f"{name}{size}" for name, size in parts.items() if size > 1]
        lines += [f"zero{self.zero}"] * (self.zero in {ZERO_1, ZERO_2})
        lines += [f"micro{self.micro}x{self.turns}"]
        again = {NOTHING: [], SOME: ["recompute-some"], ALL: ["recompute"]}[self.recompute]
        lines[1:1] = schedule
        return "-".join([*lines, *again, *[FLOAT8] * (self.products == FLOAT8)])


def read_decoder(path: Path) -> Decoder:
    """Return the model of a file. Raises ScenarioError with all that is wrong in it."""
    names = Decoder.__struct_fields__
    needed = ", ".join(name for name in names if name not in OPTIONAL)
    hint = f"a model has {needed}, each a whole number, and may have {', '.join(OPTIONAL)}"
    try:
        tree = read_tree(str(path), read_file(path, DEFAULT, None), limits=DEFAULT)
    except ScenarioError as error:  # `scenario new` writes no model
        found_problems = (
            replace(each, hint=hint) if each.code == "empty_file" else each
            for each in error.problems
        )
        raise ScenarioError(list(found_problems)) from None
    if not isinstance(tree, Node):
        raise ScenarioError(
            [Problem(code="bad_model", message="a model is a mapping", mark=tree.mark, hint=hint)]
        )
    _refuse_other_files(tree, path, hint)
    found: dict[str, Any] = {}
    problems = []
    for key, value in tree.entries:
        name = key_text(key)
        if name not in names:
            message = f"a model has no `{name}`"
            close = _OTHER_NAMES.get(name) or nearest(name, names)
            words = f"did you mean `{close}`?" if close else hint
            problems.append(Problem(code="bad_model", message=message, mark=key.mark, hint=words))
            continue
        found[name], message = _read_value(name, value)
        if message:
            problems.append(Problem(code="bad_model", message=message, mark=value.mark))
    missing = [name for name in names if name not in found and name not in OPTIONAL]
    if missing and not problems:
        message = f"a model states {', '.join(f'`{name}`' for name in missing)}"
        problems.append(Problem(code="bad_model", message=message, mark=tree.mark, hint=hint))
    if not problems:
        marks = {key_text(key): value.mark for key, value in tree.entries}
        problems = [
            Problem(code="bad_model", message=message, mark=marks[name])
            for name, message in _contradictions(Decoder(**found))
        ]
    if problems:
        raise ScenarioError(problems)
    return Decoder(**found)


def _refuse_other_files(tree: Node, path: Path, hint: str) -> None:
    """Raise ScenarioError where a file is a scenario, or a config of Hugging Face.

    The sizes that such a config has are shown as the model that they make.
    """
    keys = {key_text(key) for key, _ in tree.entries}
    if keys & OF_SCENARIO:
        message = "this is a scenario, and not the sizes of a model"
        hint = f"`scenario cost {path} --topology NAME` forecasts its time; {hint}"
    elif keys & _OF_CONFIG:
        message = "this is a config of Hugging Face, and a model has other names"
        sizes = {
            name: value.text
            for key, value in tree.entries
            if (name := _OTHER_NAMES.get(key_text(key))) and isinstance(value, Scalar)
        }
        needed = [name for name in Decoder.__struct_fields__ if name not in OPTIONAL]
        stated = {name: sizes.pop(name, "N") for name in needed}
        stated |= {name: size for name, size in sizes.items() if size.isdigit()}
        written = ", ".join(f"{name}: {size}" for name, size in stated.items())
        hint = f"as a model: {{{written}}}; state each N, and `batch` in sequences of all ranks"
    else:
        return
    raise ScenarioError([Problem(code="bad_model", message=message, mark=tree.mark, hint=hint)])


def _read_value(name: str, value: Scalar | Items | Node) -> tuple[Any, str]:
    """Return the value of a name of a model, and what is wrong with it."""
    if name == "kernels" and isinstance(value, Scalar):
        return value.text, ""
    if name == "recomputed_operations":
        items = value.items if isinstance(value, Items) else []
        stated = tuple(each.text if isinstance(each, Scalar) else "" for each in items)
        if stated and set(stated) <= set(OPERATIONS) and len(set(stated)) == len(stated):
            return stated, ""
        return None, f"`{name}` of a model is a list of some of {', '.join(OPERATIONS)}"
    number = value.value if isinstance(value, Scalar) else None
    least = name not in OPTIONAL
    if isinstance(number, int) and not isinstance(number, bool) and least <= number < 2**40:
        return number, ""
    return None, f"`{name}` of a model is a whole number{' above zero' * least}"


def _contradictions(model: Decoder) -> Iterator[tuple[str, str]]:
    """Yield what does not fit together in a model, behind the name whose line it is of."""
    if model.heads % model.kv_heads:
        yield "kv_heads", f"{model.kv_heads} `kv_heads` do not divide {model.heads} `heads`"
    if not model.head and model.hidden % model.heads:
        words = f"{model.heads} `heads` do not divide `hidden`, {model.hidden}: state `head`"
        yield "heads", words
    if model.experts and not 0 < model.active <= model.experts:
        words = f"a token passes at least 1 of {model.experts} `experts`, and all at most: `active`"
        yield "active" if model.active else "experts", words
    if model.matrix > 1:
        yield "matrix", "`matrix` is 1 where attention keeps its matrix, or else 0"
    if model.recomputed_blocks > model.layers:
        words = f"a model of {model.layers} `layers` has no {model.recomputed_blocks} blocks"
        yield "recomputed_blocks", words
    for name, choices in STATED.items():
        if getattr(model, name) not in (None, *choices):
            words = f"{', '.join(map(str, choices[:-1]))} or {choices[-1]}"
            yield name, f"`{name}` of a model is {words}"
    for name, count in (("active", model.active), ("shared", model.shared)):
        if count and not model.experts:
            yield name, f"`{name}` is of a model with `experts`"


class RankLoad(Struct, frozen=True, kw_only=True):
    """What a rank of a candidate holds, in bytes, and what its kernels take, in microseconds.

    `block` is what a block takes forwards with a microbatch, `of_weights` what of its backward pass
    the gradients of weights take, `logits` the end of the model. `waits` is how long kernels of a
    block wait for their host, forwards and backwards, which starts them one by one.
    """

    state: float
    gathered: float
    activations: float
    block: float
    backwards: float
    waits: float
    of_weights: float
    logits: float
    optimizer: float

    @property
    def held(self) -> float:
        """All bytes that it holds."""
        return self.state + self.gathered + self.activations


_WIDTHS = {"uint8": 1, "bfloat16": 2, "float32": 4}


def count_short_parts(layers: int, parts: int) -> tuple[int, int]:
    """Return how many parts of a model have a block less, at its beginning and at its end."""
    lacking = -layers % parts
    return lacking // 2, lacking - lacking // 2


@cache
def divide_blocks(layers: int, parts: int) -> tuple[int, ...]:
    """Return the blocks of each part of a model: the first parts and the last have one less.

    >>> divide_blocks(10, 4)
    (2, 3, 3, 2)
    """
    count, (first, last) = ceil(layers / parts), count_short_parts(layers, parts)
    return tuple(count - (part < first or part >= parts - last) for part in range(parts))


@cache
def count_most_kept(
    layers: int, stages: int, parts: int, stage: int, ahead: int, count: int
) -> int:
    """Return the passes through a block that a stage of 1F1B keeps at once, at most.

    It sends `ahead` microbatches forward before the first comes back; `count` of all turns are
    looked at.
    """
    blocks = divide_blocks(layers, stages * parts)
    found = most = 0
    for turn in range(count):
        found += blocks[turn // stages % parts * stages + stage]
        most = max(most, found)
        if turn >= ahead:
            part = parts - 1 - (turn - ahead) // stages % parts
            found -= blocks[part * stages + stage]
    return most


@cache
def list_kept_in_two(
    schedule: str, stages: int, count: int, stage: int, layers: int
) -> tuple[tuple[int, int], ...]:
    """Return what a stage keeps for backward passes in two, where no other moment has more of both.

    The first number of each pair is of blocks that have gone forward alone, the second of those
    whose gradients of weights are left.
    """
    blocks = divide_blocks(layers, stages * ZERO_BUBBLES[schedule])
    passes = set(find_turns(schedule, stages, count).count_kept(stage, blocks.__getitem__))
    return tuple(
        one
        for one in sorted(passes)
        if not any(other != one and min(map(sub, other, one)) >= 0 for other in passes)
    )


def _take(times: CollectiveTimes, way: Candidate, name: str, group: str, size: float) -> float:
    """Return how long a call of a group takes, in microseconds: none where it has one rank."""
    members = way.members(group)
    if len(members) == 1:
        return 0.0
    return times.of(Enter(0, members[0], 0.0, name, group, size, members)).time


def _count_part(
    times: CollectiveTimes, way: Candidate, name: str, group: str, size: float
) -> float:
    """Return the part of a GPU that a call of a group takes from kernels that it hides behind."""
    members = way.members(group)
    return times.count_part(Enter(0, members[0], 0.0, name, group, size, members))


def hide(kernels: float, calls: float, part: float) -> float:
    """Return what kernels and the calls that hide behind them take, which have a part of the GPU.

    Of kernels of 9 us a third of the GPU is taken for 3 us; or for as long as they last:

    >>> hide(9.0, 3.0, 1 / 3), round(hide(9.0, 12.0, 0.1), 6), hide(9.0, 12.0, 0.25)
    (10.0, 12.0, 12.0)
    """
    return max(min(kernels + part * calls, kernels / (1 - part)), calls)


def _time(us: float) -> str:
    """Return a time with its unit, and four digits."""
    unit, size = ("us", 1.0) if us < 1e3 else ("ms", 1e3) if us < 1e6 else ("s", 1e6)
    number = max(float(f"{us / size:.4g}"), SHORTEST_US)
    return f"{number:.6f}".rstrip("0").rstrip(".") + unit


def _share_evenly(count: float, parts: int) -> int:
    """Return a number of elements that so many ranks share evenly."""
    return max(1, round(count / parts)) * parts


def _gather_lines(way: Candidate, indent: str, into: str) -> list[str]:
    """Return the gathers of the next weights, which run while a rank computes."""
    return _shard_lines(way, indent, "all_gather_single", into, "sent", "gather")


def _shard_lines(
    way: Candidate, indent: str, operation: str, output: str, given: str, handle: str
) -> list[str]:
    """Return an asynchronous call for each part of a block that is sharded for itself."""
    lines = []
    for name, group in way.sharded:
        begin = f"{indent}- {operation}: {{"
        lines += [
            f"{begin}output: {name}{output}, input: {name}{given},",
            f"{' ' * len(begin)}group: {group}, async_op: true}}",
            f"{indent}  as: {name}{handle}",
        ]
    return lines


def _exchange_lines(way: Candidate, rows: int) -> list[str]:
    """Return what a turn sends and receives where backward passes are in two; see the table.

    Activations go to the next stage, and gradients to the one before; of a second part of a V it is
    the other way round. A message is of so many elements.
    """
    in_a_v, kinds, stride = way.schedule == ZERO_BUBBLE_V, len(KINDS), way.ranks // way.stages
    lines = []
    for away, near in ((1, "previous"), (-1, "following")):
        for begins, kind, plain in (("", 1, 1), ("grad_", 2, -1)):
            if away != plain and not in_a_v:
                continue
            part = f" and own // {kinds} % 2 == {int(away != plain)}" if in_a_v else ""
            peer, source = (f"rank {'+' if to > 0 else '-'} {stride}" for to in (away, -away))
            has_peer = f"stage < {way.stages - 1}" if away > 0 else "stage > 0"
            into, room = f"{begins}into", ""
            count = way.rooms()[into] // way.parts
            if count * way.parts > 1:
                own = f"{near} // {kinds}"
                at = f"({own} // {way.parts} % {count} + {own} % {way.parts} * {count}) * {rows}"
                room = f"[{at}:{at} + {rows}]"
            lines += [
                f'- ranks: "does == {kind} and {has_peer}{part}"',
                f'  isend: {{tensor: {begins}out, dst: "{peer}"}}',
                f'  as: "{begins}went[turn]"',
                f'- ranks: "{near} % {kinds} == {kind}{part.replace("own", near)}"',
                f'  irecv: {{tensor: "{into}{room}", src: "{source}"}}',
                f'  as: "{begins}came[{near}]"',
            ]
    return lines


def _batch_lines(way: Candidate, name: str, *entries: tuple[str, str, int, str]) -> list[str]:
    """Return a batch of messages, and the wait for it.

    Of each message: its operation, its tensor, how many stages away its peer is, its ranks.
    """
    lines = ["- batch_isend_irecv:", "    p2p_op_list:"]
    for operation, tensor, away, ranks in entries:
        peer = f"rank {'+' if away > 0 else '-'} {way.ranks // way.stages}"
        peer = f"({peer}) % {way.ranks}" if way.parts > 1 else peer
        lines.append(f'      - {{op: {operation}, tensor: {tensor}, peer: "{peer}",')
        lines.append(f'         ranks: "{ranks}"}}')
    return [*lines, f'  as: "{name}[turn]"', f'- wait: "{name}[turn]"']


def _table_lines(way: Candidate) -> list[str]:
    """Return the table of a pipeline whose backward passes are in two, a line for each stage."""
    if not way.is_in_two:
        return []
    rows = way.find_turns().numbers(way.parts)
    words = f"4 x (microbatch x {way.parts} + part) + 1 forward, 2 back by the input, 3 by weights"
    return [
        "parameters:",
        f"  # {WORDS[way.schedule]}: what each stage does turn by turn, 0 nothing, or",
        f"  # {words}",
        "  moves: [",
        *(f"    {', '.join(map(str, row))}," for row in rows),
        "  ]",
    ]


def _group_lines(way: Candidate) -> list[str]:
    """Return the groups of a candidate: a mesh, and one more for each way to divide its shards."""
    lines = ["groups:"]
    for name, inside, size in (
        ("mesh", "", 1),
        ("experts", "expert", way.expert),
        ("contexts", "context", way.context),
    ):
        if inside and size == 1:
            continue
        dims = {"stage": way.stages, "replicate": way.replicas, "shard": way.shards // size}
        dims |= {inside: size} if inside else {}
        dims["tensor"] = way.tensor
        sizes = ", ".join(map(str, dims.values()))
        lines.append(f"  {name}: {{shape: [{sizes}], dims: [{', '.join(dims)}]}}")
    return lines
