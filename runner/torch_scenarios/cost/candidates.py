"""How a model may be trained on so many GPUs: what each way holds, and the program of its step.

A model is a decoder as Llama has it: attention with grouped keys, a gated network, an embedding and
a matrix of logits. A candidate shards it by dimensions of a mesh: pipeline stages, replicas, shards
of FSDP, and tensor parallelism within a node, whose ranks share the sequence between products
(sequence parallelism, as torch's and Megatron's). Its step is written as a scenario with real
sizes, which is weighed, and so proved, as any other file::

    one stage     the weights of a block are gathered one block ahead, its gradients are scattered
    several       1F1B; gradients are scattered and weights gathered once a step, as ZeRO-1 does
    interleaved   1F1B of several parts of the model on each stage, which is idle for less
                  (Narayanan et al., arXiv 2104.04473)

Where the parts of a pipeline do not divide the blocks, the last one and the first one have fewer:
these hold the embedding and the logits as well (Llama 3, arXiv 2407.21783, 3.3.2).

Bytes of a rank: weights, gradients and two averages in float32, and a copy in bfloat16 of what is
gathered. Stages of a pipeline shard weights and averages of float32, and keep whole their copy in
bfloat16 and gradients in float32, as FSDP2 without resharding and Megatron's distributed optimizer
do (6 + 12/d bytes of a parameter by its documentation). Of a token of a block it is what its
backward pass needs, counted as Korthikanti et al. do (arXiv 2205.05198), but of Llama's block:
without masks of dropout, and without the matrix of attention, which fused kernels do not keep.
What is recomputed is nothing, all of a block, or *some* of it: as torchtitan's default does, a
block keeps what attention gives and every second product.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from pathlib import Path

from msgspec import Struct

from torch_scenarios.cost.collectives import CollectiveTimes
from torch_scenarios.cost.nccl import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from torch_scenarios.cost.topology import Gpu, Topology
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.files import read_file
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.traffic import Enter
from torch_scenarios.source.tree import Mapping as Node
from torch_scenarios.source.tree import key_text, read_tree

#: bytes of weights, gradients and the two averages of Adam, each in float32
STATE = 16
#: bytes of a token's feature that kernels other than products move in a block, forwards: norms,
#: positions, sums; and of a feature of the gated network
MOVED, MOVED_INNER = 60, 12
#: what a backward pass takes, in forward passes
BACKWARD = 2.0
#: bytes of a logit: in bfloat16, in float32, its gradient
OF_LOGIT = 10
#: microbatches of a pipeline, for each of its stages: of m microbatches on p stages (p - 1) / m are
#: idle, at most a sixteenth with these; programs of more have more steps to weigh. `plan` counts
#: them. Of several parts on a stage a microbatch counts once for each
MOST_TURNS = 16
#: what is written of a shorter time
SHORTEST_US = 0.001
#: sizes of microbatches, ways to shard, that are looked at
MICROBATCHES, TENSOR, STAGES, TOGETHER = (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2)
#: parts of a model on each stage of a pipeline; several want three stages, as ranks exchange both
#: activations and gradients with one neighbour where there are two
PARTS, FEWEST_OF_SEVERAL = (1, 2, 4, 8), 3
#: parts of a model that may have no block: the first, which embeds, and the last, of the logits
EMPTY = 2
#: what a backward pass computes anew, see the module
NOTHING, SOME, ALL = "nothing", "some", "all"


class Decoder(Struct, frozen=True, kw_only=True):
    """A model; `batch` is that of all ranks together, in sequences."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int
    sequence: int
    batch: int

    @property
    def block(self) -> int:
        """The parameters of a block."""
        keys = self.hidden * self.kv_heads // self.heads
        return 2 * self.hidden * (self.hidden + keys) + 3 * self.hidden * self.inner

    @property
    def ends(self) -> int:
        """The parameters of the embedding and the logits."""
        return 2 * self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.layers * self.block + self.ends

    def candidates(self, machine: Topology, ranks: int) -> Iterator[Candidate]:
        """Yield the ways to train it on so many GPUs; those of one tensor group share a node."""
        node = min(machine.node_ranks or ranks, ranks)
        for tensor, (stages, parts) in ((t, each) for t in TENSOR for each in self._pipelines()):
            if node % tensor or self.kv_heads % tensor or ranks % (tensor * stages):
                continue
            data = ranks // (tensor * stages)
            many = dict.fromkeys((1, max(1, data * tensor // node)))
            for replicas in many if stages == 1 else (1,):
                if data % replicas:
                    continue
                for micro in MICROBATCHES:
                    turns = self.batch // (data * micro)
                    if self.batch % (data * micro) or (parts > 1 and turns % stages):
                        continue
                    for together in TOGETHER if stages == 1 else (1,):
                        if self.layers % together:
                            continue
                        for recompute in (NOTHING, SOME, ALL):
                            yield Candidate(
                                stages=stages,
                                parts=parts,
                                replicas=replicas,
                                shards=data // replicas,
                                tensor=tensor,
                                micro=micro,
                                turns=turns,
                                together=together,
                                recompute=recompute,
                            )

    def _pipelines(self) -> Iterator[tuple[int, int]]:
        """Yield the stages, and the parts on each of them, that blocks can be divided into."""
        yield 1, 1
        for stages, parts in ((p, v) for p in STAGES[1:] for v in PARTS):
            count = stages * parts
            lacking = -self.layers % count
            filled = lacking < stages if self.layers > count else lacking <= EMPTY
            if filled and (parts == 1 or stages >= FEWEST_OF_SEVERAL):
                yield stages, parts

    def count_blocks(self, way: Candidate) -> int:
        """Return the blocks of the parts of a pipeline that have most."""
        return ceil(self.layers / (way.stages * way.parts))

    def blocks_of(self, way: Candidate, part: int) -> int:
        """Return the blocks of a part of a pipeline, by its number in the model from 0."""
        first, last = self.short_parts(way)
        is_short = part < first or part >= way.stages * way.parts - last
        return self.count_blocks(way) - is_short

    def short_parts(self, way: Candidate) -> tuple[int, int]:
        """Return how many parts have a block less, at the beginning of the model and at its end."""
        lacking = -self.layers % (way.stages * way.parts)
        return lacking // 2, lacking - lacking // 2

    def load(self, way: Candidate, gpu: Gpu) -> RankLoad:
        """Return what a rank holds and computes, of the stage that holds most."""
        loads = [self.load_of_stage(way, gpu, stage) for stage in range(way.stages)]
        return max(loads, key=lambda load: load.held)

    def parameters_of(self, way: Candidate, stage: int) -> float:
        """Return the parameters of a rank of a stage, before they are sharded."""
        blocks = sum(self.blocks_of(way, part * way.stages + stage) for part in range(way.parts))
        ends = self.ends / 2 * ((stage == 0) + (stage == way.stages - 1))
        return (blocks * self.block + ends) / way.tensor

    def load_of_stage(self, way: Candidate, gpu: Gpu, stage: int) -> RankLoad:
        """Return what a rank of a stage holds and computes."""
        tokens = way.micro * self.sequence
        own = self.parameters_of(way, stage)
        state = STATE * own / way.shards
        if way.stages == 1:
            # weights twice in bfloat16, and their gradient in float32; the ends once; own parts
            whole, ends = (each / way.tensor for each in (way.together * self.block, self.ends))
            gathered = 8 * whole + 6 * ends + 6 * (whole + ends) / way.shards
            rows = 0.0
        else:
            state = 12 * own / way.shards + 4 * own
            gathered = 2 * own + (6 * own / way.shards if way.shards > 1 else 0)
            rows = 4.0 / way.tensor  # what goes from stage to stage
        if way.tensor > 1:
            rows += 1 + 1 / way.tensor
        gathered += 2 * rows * tokens * self.hidden
        whole_block, kept = (
            tokens * self.hidden * self._count_kept(each) / way.tensor
            for each in (NOTHING, way.recompute)
        )
        activations = self._count_kept_blocks(way, stage) * kept
        if way.recompute != NOTHING:
            activations += whole_block  # what the block that is computed anew keeps
        has_logits = stage == way.stages - 1
        logits = tokens * self.vocabulary / way.tensor * OF_LOGIT if has_logits else 0.0
        rate = gpu.tflops["bfloat16"] * 1e6
        products = 2 * tokens * self.block / way.tensor / (rate * gpu.matmul)
        attended = 2 * way.micro * self.sequence**2 * self.hidden / way.tensor
        moved = tokens * (MOVED * self.hidden + MOVED_INNER * self.inner) / way.tensor
        attention = rate * gpu.attention_of(self.hidden // self.heads)
        passed = moved / (gpu.bandwidth * gpu.memory)
        block = products + attended / attention + passed
        again = {NOTHING: 0.0, SOME: products * self._find_repeated() + passed, ALL: block}[
            way.recompute
        ]
        ending = 3 * 2 * tokens * self.hidden * self.vocabulary / way.tensor / (rate * gpu.matmul)
        return RankLoad(
            state=state,
            gathered=gathered,
            activations=activations + logits,
            block=block,
            backwards=block * BACKWARD + again,
            logits=ending,
            optimizer=20 * 4 * own / way.shards / (gpu.bandwidth * gpu.memory),
        )

    def _count_kept_blocks(self, way: Candidate, stage: int) -> int:
        """Return the passes through a block whose activations a stage keeps at once, at most."""
        ahead, total, order = way.ahead(stage), way.turns * way.parts, way.stages * way.parts
        if self.layers % order == 0:
            return way.count_microbatches(stage) * self.count_blocks(way)
        found = most = 0
        for turn in range(min(total, ahead + 2 * order)):
            part = turn // way.stages % way.parts
            found += self.blocks_of(way, part * way.stages + stage)
            most = max(most, found)
            if turn >= ahead:
                part = way.parts - 1 - (turn - ahead) // way.stages % way.parts
                found -= self.blocks_of(way, part * way.stages + stage)
        return most

    def _count_kept(self, recompute: str) -> float:
        """Return the bytes of a token's feature that a block keeps from its forward pass.

        All are what goes in, and what products, attention and the gate need: both norms' results
        and the sum between them, queries, keys and values, attention, and three of the gated
        network. Of *some*: what goes in, two products of that width and one of keys, attention,
        and one of the gated network.
        """
        keys, inner = self.kv_heads / self.heads, self.inner / self.hidden
        some, everything = 2 * (4 + keys + inner), 2 * (6 + 2 * keys + 3 * inner)
        return {NOTHING: everything, SOME: some, ALL: 2.0}[recompute]

    def _find_repeated(self) -> float:
        """Return the part of a block's products that is computed anew where *some* is.

        Products are those of queries, keys, values, the output of attention, the gate, the other
        half and the way down: each second one is computed anew.
        """
        keys, inner = self.kv_heads / self.heads, self.inner / self.hidden
        return (keys + 1 + inner) / (2 + 2 * keys + 3 * inner)

    def estimate_us(self, way: Candidate, gpu: Gpu, times: CollectiveTimes) -> float:
        """Return about how long a step takes: what is gathered or scattered hides behind kernels.

        So a block takes the longer of both; sums of a tensor group, and stages that wait for each
        other, are added.
        """
        found = self.load(way, gpu)

        def take(name: str, group: str, size: float) -> float:
            members = way.members(group)
            if len(members) == 1:
                return 0.0
            call = Enter(0, members[0], 0.0, name, group, size, members)
            return times.of(call).time

        rows = 2.0 * way.micro * self.sequence * self.hidden
        gather_rows, scatter_rows = (
            take(ALL_GATHER, "tensor", rows),
            take(REDUCE_SCATTER, "tensor", rows),
        )
        forwards = found.block + 2 * (gather_rows + scatter_rows)
        gathers, scatters = way.again
        backwards = found.backwards + 2 * (
            (1 + gathers) * gather_rows + (1 + scatters) * scatter_rows
        )
        if way.stages > 1:
            own = max(self.parameters_of(way, stage) for stage in range(way.stages))
            turn = self.count_blocks(way) * (forwards + backwards) + found.logits / way.stages
            ends = take(REDUCE_SCATTER, "shard", 4 * own) + take(ALL_GATHER, "shard", 2 * own)
            return (way.turns * way.parts + way.stages - 1) * turn + ends + found.optimizer
        whole, ends = way.together * self.block / way.tensor, self.ends / way.tensor
        gather = take(ALL_GATHER, "shard", 2 * whole)
        scatter = take(REDUCE_SCATTER, "shard", 4 * whole)
        scatter += take(ALL_REDUCE, "replicate", 4 * whole / way.shards)
        turn = max(way.together * forwards, gather)
        turn += max(way.together * backwards, gather + scatter)
        outside = take(ALL_GATHER, "shard", 2 * ends) + take(REDUCE_SCATTER, "shard", 4 * ends)
        calls = self.layers / way.together
        return way.turns * (calls * turn + found.logits) + outside + found.optimizer

    # The program of a step.
    def program(self, way: Candidate, gpu: Gpu) -> str:
        """Return the step of a candidate as a scenario."""
        found = self.load(way, gpu)
        tensors, steps = self._one_stage(way, found) if way.stages == 1 else self.stages(way, found)
        sums = tensors.get("sums" if way.stages == 1 else "grads", (0, ""))[0]
        sent = sum(size for size, _ in tensors.values()) - sums
        counted = {"state": sums, "gathered": sent}  # what the program holds by other names
        for name in ("state", "gathered", "activations"):
            held = getattr(found, name) - counted.get(name, 0)
            if held >= 1:
                tensors[f"held_{name}"] = (int(held), "uint8")
        lines = [
            "version: 1",
            f"name: {way.name}",
            f"description: a step of {self.parameters / 1e9:.1f}e9 parameters, to be weighed",
            f"world_size: {way.ranks}",
            *_group_lines(way),
            "tensors:",
        ]
        for name, (size, dtype) in tensors.items():
            count = size // _WIDTHS[dtype]
            lines.append(f"  {name}: {{shape: {count}, value: 0, dtype: {dtype}}}")
        return "\n".join([*lines, "steps:", *steps]) + "\n"

    def _one_stage(
        self, way: Candidate, found: RankLoad
    ) -> tuple[dict[str, tuple[int, str]], list[str]]:
        """Return the tensors, as bytes and dtype, and the steps of FSDP, or HSDP, on one stage."""
        calls = self.layers // way.together
        whole = _even(way.together * self.block / way.tensor, way.shards)
        ends = _even(self.ends / way.tensor, way.shards)
        tensors = {
            "sent": (2 * whole // way.shards, "bfloat16"),
            "weights": (2 * whole, "bfloat16"),
            "weights_next": (2 * whole, "bfloat16"),
            "grads": (4 * whole, "float32"),
            "part": (4 * whole // way.shards, "float32"),
            "ends_sent": (2 * ends // way.shards, "bfloat16"),
            "ends": (2 * ends, "bfloat16"),
            "ends_grads": (4 * ends, "float32"),
            "ends_part": (4 * ends // way.shards, "float32"),
        }
        if way.tensor > 1:
            rows = 2 * way.micro * self.sequence * self.hidden
            tensors |= {"rows": (rows, "bfloat16"), "own_rows": (rows // way.tensor, "bfloat16")}
        if way.replicas > 1 and calls > 1:
            tensors["sums"] = (4 * (calls - 1) * whole // way.shards, "float32")
        steps = [
            "  - all_gather_single: {output: ends, input: ends_sent, group: mesh.shard}",
            f"  - for: {{turn: range({way.turns})}}",
            "    steps:",
            "      - all_gather_single: {output: weights, input: sent, group: mesh.shard,",
            "                            async_op: true}",
            "        as: gather",
        ]
        steps += self.passes(way, found.block)
        steps.append(f"      - compute: {{time: {_time(found.logits)}}}")
        steps += self.passes(way, found.backwards, is_backward=True)
        steps += ["      - wait: [gather, scatter]"]
        if way.replicas > 1 and calls > 1:
            steps.append("      - wait: sum")
        steps += [
            "  - reduce_scatter_single: {output: ends_part, input: ends_grads, group: mesh.shard}",
            f"  - compute: {{time: {_time(found.optimizer)}}}",
        ]
        return tensors, steps

    def passes(self, way: Candidate, us: float, *, is_backward: bool = False) -> list[str]:
        """Return a pass through all blocks, while the next ones are gathered.

        Backwards the gradients of those before are scattered meanwhile.
        """
        again = way.again if is_backward else (0, 0)
        calls = self.layers // way.together

        def body(indent: str) -> list[str]:
            return [
                f"{indent}- wait: gather",
                (
                    f"{indent}- all_gather_single: {{output: weights_next, input: sent, "
                    "group: mesh.shard,"
                ),
                f"{indent}                      async_op: true}}",
                f"{indent}  as: gather",
                f"{indent}- for: {{block: range({way.together})}}",
                f"{indent}  steps:",
                *_block_lines(us, way, f"{indent}    ", again),
            ]

        def scatter(indent: str) -> list[str]:
            return [
                (
                    f"{indent}- reduce_scatter_single: {{output: part, input: grads, "
                    "group: mesh.shard,"
                ),
                f"{indent}                          async_op: true}}",
                f"{indent}  as: scatter",
            ]

        if not is_backward:
            return [f"      - for: {{at: range({calls})}}", "        steps:", *body("          ")]
        lines = [*body("      "), *scatter("      ")]
        if calls > 1:
            part = _even(way.together * self.block / way.tensor, way.shards) // way.shards
            lines += [
                f"      - for: {{at: range({calls - 1})}}",
                "        steps:",
                *body("          "),
            ]
            lines.append("          - wait: scatter")
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
        own = _even(max(self.parameters_of(way, each) for each in range(way.stages)), way.shards)
        rows = 2 * way.micro * self.sequence * self.hidden
        sent = rows // way.tensor
        tensors = {
            "grads": (4 * own, "float32"),
            "weights": (2 * own, "bfloat16"),
            "into": (sent, "bfloat16"),
            "out": (sent, "bfloat16"),
            "grad_into": (sent, "bfloat16"),
            "grad_out": (sent, "bfloat16"),
        }
        if way.tensor > 1:
            tensors |= {"rows": (rows, "bfloat16"), "own_rows": (sent, "bfloat16")}
        if way.shards > 1:
            part = own // way.shards
            tensors |= {"part": (4 * part, "float32"), "sent": (2 * part, "bfloat16")}
        scatter = "  - reduce_scatter_single: {output: part, input: grads, group: mesh.shard}"
        gather = "  - all_gather_single: {output: weights, input: sent, group: mesh.shard}"
        stride = way.ranks // way.stages
        steps = [
            f"  - let: {{stage: rank // {stride}}}",
            f'  - {{ranks: "stage > 0", recv: {{tensor: into, src: "rank - {stride}"}}}}',
            f"  - for: {{turn: range({way.turns * way.parts + way.ahead(0)})}}",
            "    steps:",
            *(f"      {line}" for line in self._turn_lines(way, found)),
            *[scatter] * (way.shards > 1),
            f"  - compute: {{time: {_time(found.optimizer)}}}",
            *[gather] * (way.shards > 1),
        ]
        return tensors, steps

    def _turn_lines(self, way: Candidate, found: RankLoad) -> list[str]:
        """Return a turn of a pipeline, in which microbatch `f` goes forward and `b` backward.

        Of several parts on a stage `f` and `b` count what passes it: as many microbatches as there
        are stages pass a part, and then its next. What a rank sends and receives at a time is one
        batch: single messages of two ranks that both send first may wait for each other on NCCL.
        """
        total, stages, ahead = way.turns * way.parts, way.stages, way.ahead(0)
        goes, comes, last = f"f < {total}", f"0 <= b < {total}", stages * way.parts - 1
        by_stage = "stage" if way.parts == 1 else "2 * stage"
        lines = [f'- let: {{f: turn, b: "turn - {ahead} + {by_stage}"}}']
        part_of_f = part_of_b = next_of_f = next_of_b = "stage"
        if way.parts > 1:
            part_of_f, part_of_b, next_of_f, next_of_b = "f_part", "b_part", "f_next", "b_next"
            for name, plus in (("part", ""), ("next", " + 1")):
                f, b = (f"({of}{plus}) // {stages} % {way.parts}" for of in "fb")
                lines.append(f'- let: {{f_{name}: "{f} * {stages} + stage",')
                lines.append(f'        b_{name}: "({way.parts - 1} - {b}) * {stages} + stage"}}')
        forwards = self._pass_lines(way, found.block, part_of_f, goes)
        backwards = [
            f'- ranks: "{comes} and {part_of_b} == {last}"',
            f"  compute: {{time: {_time(found.logits)}}}",
            *self._pass_lines(way, found.backwards, part_of_b, comes, way.again),
        ]
        out = ("isend", "out", 1, f"{goes} and {part_of_f} < {last}")
        into = ("irecv", "into", -1, f"f + 1 < {total} and {next_of_f} > 0")
        grad_out = ("isend", "grad_out", -1, f"{comes} and {part_of_b} > 0")
        if way.parts == 1:  # the gradient comes in the turn whose backward pass it is for
            grad_into = ("irecv", "grad_into", 1, f"{comes} and stage < {last}")
            lines += [*forwards, *_batch_lines(way, "ahead", out, grad_into)]
            return [*lines, *backwards, *_batch_lines(way, "back", grad_out, into)]
        grad_into = ("irecv", "grad_into", 1, f"0 <= b + 1 < {total} and {next_of_b} < {last}")
        exchange = _batch_lines(way, "exchange", out, grad_out, into, grad_into)
        return [*lines, *forwards, *backwards, *exchange]

    def _pass_lines(
        self, way: Candidate, us: float, part: str, where: str, again: tuple[int, int] = (0, 0)
    ) -> list[str]:
        """Return a pass through the blocks of a part, which an expression numbers, where one is."""
        count, (first, final) = way.stages * way.parts, self.short_parts(way)
        short = [f"{part} < {first}"] * (first > 0)
        short += [f"{part} >= {count - final}"] * (final > 0)
        most = self.count_blocks(way)
        lines = [f"- for: {{block: range({most})}}"]
        if not short:
            lines += [f'  ranks: "{where}"', "  steps:"]
            return [*lines, *_block_lines(us, way, "    ", again)]
        condition = f"{where} and block < {most} - ({' or '.join(short)})"
        lines += ["  steps:", "    - for: {once: range(1)}", f'      ranks: "{condition}"']
        return [*lines, "      steps:", *_block_lines(us, way, "        ", again)]


class Candidate(Struct, frozen=True, kw_only=True):
    """A way to train a model: the sizes of the dimensions of its mesh, and what goes through it.

    `micro` sequences are a microbatch of a rank, of which a step has `turns`; each stage has so
    many `parts` of the model. `together` blocks are gathered by one call. `recompute` is NOTHING,
    SOME or ALL of a block.
    """

    stages: int
    parts: int = 1
    replicas: int
    shards: int
    tensor: int
    micro: int
    turns: int
    together: int
    recompute: str

    @property
    def is_long(self) -> bool:
        """Whether it is a pipeline of more microbatches than are weighed."""
        return self.stages > 1 and self.turns * self.parts > MOST_TURNS * self.stages

    def ahead(self, stage: int) -> int:
        """Return how many microbatches a stage sends forward before the first comes back.

        One for each stage that follows; of several parts, a microbatch counts once for each of
        them, and a stage is ahead by two for each that follows, and by all its parts but one.
        """
        behind = self.stages - 1 - stage
        return behind if self.parts == 1 else 2 * behind + (self.parts - 1) * self.stages

    def count_microbatches(self, stage: int) -> int:
        """Return how many microbatches a stage keeps at once, each counted once for each part."""
        return min(self.turns * self.parts, self.ahead(stage) + 1)

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
            "tensor": (self.tensor, 1),
            "shard": (self.shards, self.tensor),
            "replicate": (self.replicas, self.shards * self.tensor),
        }
        count, stride = strides[dim]
        return tuple(range(0, count * stride, stride))

    @property
    def name(self) -> str:
        """What its file is called."""
        parts = {
            "pp": self.stages,
            "parts": self.parts,
            "hsdp": self.replicas,
            "dp": self.shards,
            "tp": self.tensor,
            "buckets": self.together,
        }
        lines = [f"{name}{size}" for name, size in parts.items() if size > 1]
        lines += [f"micro{self.micro}x{self.turns}"]
        again = {NOTHING: [], SOME: ["recompute-some"], ALL: ["recompute"]}[self.recompute]
        return "-".join([*lines, *again])


def read_decoder(path: Path) -> Decoder:
    """Return the model of a file. Raises ScenarioError with all that is wrong in it."""
    names = Decoder.__struct_fields__
    tree = read_tree(str(path), read_file(path, DEFAULT, None), limits=DEFAULT)
    hint = f"a model has {', '.join(names)}, each a whole number"
    if not isinstance(tree, Node):
        raise ScenarioError(
            [Problem(code="bad_model", message="a model is a mapping", mark=tree.mark, hint=hint)]
        )
    found: dict[str, int] = {}
    problems = []
    for key, value in tree.entries:
        name, number = key_text(key), getattr(value, "value", None)
        if name not in names:
            message = f"a model has no `{name}`"
            problems.append(Problem(code="bad_model", message=message, mark=key.mark, hint=hint))
        elif isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 2**40:
            message = f"`{name}` of a model is a whole number above zero"
            problems.append(Problem(code="bad_model", message=message, mark=value.mark))
        else:
            found[name] = number
    missing = [name for name in names if name not in found]
    if missing and not problems:
        message = f"a model states {', '.join(f'`{name}`' for name in missing)}"
        problems.append(Problem(code="bad_model", message=message, mark=tree.mark, hint=hint))
    if problems:
        raise ScenarioError(problems)
    return Decoder(**found)


class RankLoad(Struct, frozen=True, kw_only=True):
    """What a rank of a candidate holds, in bytes, and what its kernels take, in microseconds.

    `block` is what a block takes forwards with a microbatch, `logits` the end of the model.
    """

    state: float
    gathered: float
    activations: float
    block: float
    backwards: float
    logits: float
    optimizer: float

    @property
    def held(self) -> float:
        """All bytes that it holds."""
        return self.state + self.gathered + self.activations


_WIDTHS = {"uint8": 1, "bfloat16": 2, "float32": 4}


def _time(us: float) -> str:
    """Return a time with its unit, and four digits."""
    unit, size = ("us", 1.0) if us < 1e3 else ("ms", 1e3) if us < 1e6 else ("s", 1e6)
    number = max(float(f"{us / size:.4g}"), SHORTEST_US)
    return f"{number:.6f}".rstrip("0").rstrip(".") + unit


def _even(count: float, parts: int) -> int:
    """Return a number of elements that so many ranks share evenly."""
    return max(1, round(count / parts)) * parts


def _block_lines(
    us: float, way: Candidate, indent: str, again: tuple[int, int] = (0, 0)
) -> list[str]:
    """Return a pass through one block: kernels, and what its tensor group gathers and scatters.

    `again` gathers and scatters of the forward pass are done once more.
    """
    group = "group: mesh.tensor}"
    gather = f"{indent}- all_gather_single: {{output: rows, input: own_rows, {group}"
    scatter = f"{indent}- reduce_scatter_single: {{output: own_rows, input: rows, {group}"
    lines = []
    for _ in range(2):
        lines += [gather] * (way.tensor > 1)
        lines.append(f"{indent}- compute: {{time: {_time(us / 2)}}}")
        if way.tensor > 1:
            lines += [scatter, *[gather] * again[0], *[scatter] * again[1]]
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


def _group_lines(way: Candidate) -> list[str]:
    """Return the groups of a candidate."""
    dims = {"stage": way.stages, "replicate": way.replicas, "shard": way.shards}
    shape = [*dims.values(), way.tensor]
    return ["groups:", f"  mesh: {{shape: {shape}, dims: [{', '.join(dims)}, tensor]}}"]
