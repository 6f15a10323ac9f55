"""How a model may be trained on so many GPUs: what each way holds, and the program of its step.

A model is a decoder as Llama has it: attention with grouped keys, a gated network, an embedding and
a matrix of logits. A candidate shards it by dimensions of a mesh: pipeline stages, replicas, shards
of FSDP, and tensor parallelism within a node, whose ranks share the sequence between products
(sequence parallelism, as torch's and Megatron's). Its step is written as a scenario with real
sizes, which is weighed, and so proved, as any other file::

    one stage     the weights of a block are gathered one block ahead, its gradients are scattered
    several       1F1B; gradients are scattered and weights gathered once a step, as ZeRO-1 does

Bytes of a rank: weights, gradients and two averages in float32, and a copy in bfloat16 of what is
gathered; of a token of a block what its backward pass needs, after Korthikanti et al.
(arXiv 2205.05198), without the matrix of attention, which fused kernels do not keep.
"""

from __future__ import annotations

from collections.abc import Iterator
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
#: bytes of a token's feature that a block keeps for its backward pass, shared in a tensor group
KEPT = 34
#: bytes of a token's feature that kernels other than products move in a block, forwards: norms,
#: positions, sums; and of a feature of the gated network
MOVED, MOVED_INNER = 60, 12
#: what a backward pass takes, in forward passes
BACKWARD = 2.0
#: bytes of a logit: in bfloat16, in float32, its gradient
OF_LOGIT = 10
#: microbatches of a pipeline, for each of its stages: of m microbatches on p stages (p - 1) / m are
#: idle, at most an eighth with these; programs of more have more steps to weigh. `plan` counts them
MOST_TURNS = 8
#: what is written of a shorter time
SHORTEST_US = 0.001
#: sizes of microbatches, ways to shard, that are looked at
MICROBATCHES, TENSOR, STAGES, TOGETHER = (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8), (1, 2)


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
        for tensor, stages in ((t, p) for t in TENSOR for p in STAGES):
            if node % tensor or self.kv_heads % tensor or self.layers % stages:
                continue
            if ranks % (tensor * stages):
                continue
            data = ranks // (tensor * stages)
            many = dict.fromkeys((1, max(1, data * tensor // node)))
            for replicas in many if stages == 1 else (1,):
                if data % replicas:
                    continue
                for micro in MICROBATCHES:
                    if self.batch % (data * micro):
                        continue
                    turns = self.batch // (data * micro)
                    for together in TOGETHER if stages == 1 else (1,):
                        for recompute in (False, True):
                            yield Candidate(
                                stages=stages,
                                replicas=replicas,
                                shards=data // replicas,
                                tensor=tensor,
                                micro=micro,
                                turns=turns,
                                together=together,
                                recompute=recompute,
                            )

    def load(self, way: Candidate, gpu: Gpu) -> RankLoad:
        """Return what the rank of a candidate holds and computes: one of the first stage."""
        tokens = way.micro * self.sequence
        own = self.parameters / (way.stages * way.tensor)
        weights = STATE * own / way.shards
        layers = self.layers // way.stages
        if way.stages == 1:
            # weights twice in bfloat16, and their gradient in float32; the ends once; own parts
            blocks, ends = (each / way.tensor for each in (way.together * self.block, self.ends))
            gathered = 8 * blocks + 6 * ends + 6 * (blocks + ends) / way.shards
            rows = 0.0
        else:
            weights = (8 * own / way.shards) + 8 * own  # ZeRO-1: weights and gradients are whole
            gathered = 2 * own + 6 * own / way.shards
            rows = 4.0  # what goes from stage to stage
        if way.tensor > 1:
            rows += 1 + 1 / way.tensor
        gathered += 2 * rows * tokens * self.hidden
        kept = tokens * self.hidden * KEPT / way.tensor
        at_once = min(way.turns, way.stages)
        if way.recompute:
            activations = at_once * layers * 2 * tokens * self.hidden / way.tensor + kept
        else:
            activations = at_once * layers * kept
        logits = tokens * self.vocabulary / way.tensor * OF_LOGIT if way.stages == 1 else 0.0
        rate = gpu.tflops["bfloat16"] * 1e6
        products = 2 * tokens * self.block / way.tensor / (rate * gpu.matmul)
        attended = 2 * way.micro * self.sequence**2 * self.hidden / way.tensor
        moved = tokens * (MOVED * self.hidden + MOVED_INNER * self.inner) / way.tensor
        attention = rate * gpu.attention_of(self.hidden // self.heads)
        block = products + attended / attention + moved / (gpu.bandwidth * gpu.memory)
        ending = 3 * 2 * tokens * self.hidden * self.vocabulary / way.tensor / (rate * gpu.matmul)
        return RankLoad(
            state=weights,
            gathered=gathered,
            activations=activations + logits,
            block=block,
            backwards=block * (BACKWARD + way.recompute),
            logits=ending,
            optimizer=20 * 4 * own / way.shards / (gpu.bandwidth * gpu.memory),
        )

    def estimate_us(self, way: Candidate, gpu: Gpu, times: CollectiveTimes) -> float:
        """Return about how long a step takes: what is gathered or scattered hides behind kernels.

        So a block takes the longer of both; sums of a tensor group, and stages that wait for each
        other, are added.
        """
        found = self.load(way, gpu)
        layers, again = self.layers // way.stages, 2 if way.recompute else 1

        def take(name: str, group: str, size: float) -> float:
            members = way.members(group)
            if len(members) == 1:
                return 0.0
            call = Enter(0, members[0], 0.0, name, group, size, members)
            return times.of(call).time

        rows = 2.0 * way.micro * self.sequence * self.hidden
        row = take(ALL_GATHER, "tensor", rows) + take(REDUCE_SCATTER, "tensor", rows)
        forwards = found.block + 2 * row
        backwards = found.backwards + 2 * again * row
        if way.stages > 1:
            own = self.parameters / (way.stages * way.tensor)
            turn = layers * (forwards + backwards) + found.logits / way.stages
            ends = take(REDUCE_SCATTER, "shard", 4 * own) + take(ALL_GATHER, "shard", 2 * own)
            return (way.turns + way.stages - 1) * turn + ends + found.optimizer
        whole, ends = way.together * self.block / way.tensor, self.ends / way.tensor
        gather = take(ALL_GATHER, "shard", 2 * whole)
        scatter = take(REDUCE_SCATTER, "shard", 4 * whole)
        scatter += take(ALL_REDUCE, "replicate", 4 * whole / way.shards)
        turn = max(way.together * forwards, gather)
        turn += max(way.together * backwards, gather + scatter)
        outside = take(ALL_GATHER, "shard", 2 * ends) + take(REDUCE_SCATTER, "shard", 4 * ends)
        calls = layers / way.together
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
        again = 2 if is_backward and way.recompute else 1
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
        own = _even(self.parameters / (way.stages * way.tensor), way.shards)
        layers, stride = self.layers // way.stages, way.ranks // way.stages
        rows = 2 * way.micro * self.sequence * self.hidden
        tensors = {
            "grads": (4 * own, "float32"),
            "part": (4 * own // way.shards, "float32"),
            "sent": (2 * own // way.shards, "bfloat16"),
            "weights": (2 * own, "bfloat16"),
            "into": (rows, "bfloat16"),
            "out": (rows, "bfloat16"),
            "grad_into": (rows, "bfloat16"),
            "grad_out": (rows, "bfloat16"),
        }
        if way.tensor > 1:
            tensors |= {"rows": (rows, "bfloat16"), "own_rows": (rows // way.tensor, "bfloat16")}
        first, last = stride, way.ranks - stride
        again = 2 if way.recompute else 1

        def forwards(indent: str) -> list[str]:
            return [
                f'{indent}- ranks: "rank >= {first}"',
                f'{indent}  recv: {{tensor: into, src: "rank - {stride}"}}',
                f"{indent}- for: {{block: range({layers})}}",
                f"{indent}  steps:",
                *_block_lines(found.block, way, f"{indent}    "),
                f'{indent}- ranks: "rank < {last}"',
                f'{indent}  isend: {{tensor: out, dst: "rank + {stride}"}}',
                f"{indent}  as: ahead",
            ]

        def backwards(indent: str, *, is_drain: bool = False) -> list[str]:
            logits = f"compute: {{time: {_time(found.logits)}}}"
            last_stage = f'{indent}- {{ranks: "rank >= {last}", {logits}}}'
            return [
                f'{indent}- ranks: "rank < {last}"',
                f'{indent}  recv: {{tensor: grad_into, src: "rank + {stride}"}}',
                *([] if is_drain else [last_stage]),
                f"{indent}- for: {{block: range({layers})}}",
                f"{indent}  steps:",
                *_block_lines(found.backwards, way, f"{indent}    ", again),
                f'{indent}- ranks: "rank >= {first}"',
                f'{indent}  isend: {{tensor: grad_out, dst: "rank - {stride}"}}',
                f"{indent}  as: back",
            ]

        def ends(indent: str, *, ahead: bool, back: bool) -> list[str]:
            lines = []
            if ahead:
                lines.append(f'{indent}- {{ranks: "rank < {last}", wait: ahead}}')
            if back:
                lines.append(f'{indent}- {{ranks: "rank >= {first}", wait: back}}')
            return lines

        most = min(way.turns, way.stages - 1)
        warm = f"min({way.turns}, {way.stages - 1} - rank // {stride})"
        inner = "          "

        def turns(count: int, ranks: str) -> list[str]:
            return [
                f"  - for: {{turn: range({count})}}",
                "    steps:",
                "      - for: {once: range(1)}",
                f'        ranks: "{ranks}"',
                "        steps:",
            ]

        steps = [
            *turns(most, f"turn < {warm}"),
            *forwards(inner),
            *ends(inner, ahead=True, back=False),
            *turns(way.turns, f"turn < {way.turns} - {warm}"),
            *forwards(inner),
            *backwards(inner),
            *ends(inner, ahead=True, back=True),
            *turns(most, f"turn < {warm}"),
            *backwards(inner, is_drain=True),
            *ends(inner, ahead=False, back=True),
            "  - reduce_scatter_single: {output: part, input: grads, group: mesh.shard}",
            f"  - compute: {{time: {_time(found.optimizer)}}}",
            "  - all_gather_single: {output: weights, input: sent, group: mesh.shard}",
        ]
        return tensors, steps


class Candidate(Struct, frozen=True, kw_only=True):
    """A way to train a model: the sizes of the dimensions of its mesh, and what goes through it.

    `micro` sequences are a microbatch of a rank, of which a step has `turns`. `together` blocks
    are gathered by one call. `recompute`: blocks keep what goes into them alone.
    """

    stages: int
    replicas: int
    shards: int
    tensor: int
    micro: int
    turns: int
    together: int
    recompute: bool

    @property
    def is_long(self) -> bool:
        """Whether it is a pipeline of more microbatches than are weighed."""
        return self.stages > 1 and self.turns > MOST_TURNS * self.stages

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
            "hsdp": self.replicas,
            "dp": self.shards,
            "tp": self.tensor,
            "buckets": self.together,
        }
        lines = [f"{name}{size}" for name, size in parts.items() if size > 1]
        lines += [f"micro{self.micro}x{self.turns}"]
        return "-".join([*lines, "recompute"] if self.recompute else lines)


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


def _block_lines(us: float, way: Candidate, indent: str, also: int = 1) -> list[str]:
    """Return a pass through one block: kernels, and what its tensor group gathers and scatters."""
    group = "group: mesh.tensor}"
    gather = f"{indent}- all_gather_single: {{output: rows, input: own_rows, {group}"
    scatter = f"{indent}- reduce_scatter_single: {{output: own_rows, input: rows, {group}"
    lines = []
    for _ in range(2):
        lines += [gather] * (way.tensor > 1)
        lines.append(f"{indent}- compute: {{time: {_time(us / 2)}}}")
        lines += [scatter, *[gather, scatter] * (also - 1)] if way.tensor > 1 else []
    return lines


def _group_lines(way: Candidate) -> list[str]:
    """Return the groups of a candidate."""
    dims = {"stage": way.stages, "replicate": way.replicas, "shard": way.shards}
    shape = [*dims.values(), way.tensor]
    return ["groups:", f"  mesh: {{shape: {shape}, dims: [{', '.join(dims)}, tensor]}}"]
