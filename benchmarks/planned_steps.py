"""Published steps with tensor groups and pipelines, and what `scenario plan`'s programs take.

`python -m benchmarks.planned_steps [NAME...]` prints a table in Markdown: tokens a second on each
GPU, measured and by the program of the published way. Nothing is fitted to a row.

Llama 3's table states TFLOP/s, and not how they are counted. Here a token takes 6 operations for
each parameter, and 6 for each layer, feature and token of the sequence, as attention is causal.
Counted with all of attention, its GPUs took 4 % fewer tokens a second.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch_scenarios.cost.candidates import ALL, FLOAT8, NOTHING, SOME, Candidate, Decoder
from torch_scenarios.cost.topology import topology
from torch_scenarios.pipeline.plan import weigh_candidate

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD = (
    "| row | machine | measured | reckoned | 80 % | off by | exposed | memory measured | reckoned |"
)
LLAMA = {"vocabulary": 128256, "sequence": 8192, "kv_heads": 8}
LLAMA_8B = {"layers": 32, "hidden": 4096, "inner": 14336, "heads": 32, **LLAMA}
LLAMA_70B = {"layers": 80, "hidden": 8192, "inner": 28672, "heads": 64, **LLAMA}
MOE = {"sequence": 4096, "kv_heads": 4, "experts": 128, "active": 8}
QWEN = {**MOE, "vocabulary": 151936, "head": 128}
QWEN_30B = {"layers": 48, "hidden": 2048, "inner": 768, "heads": 32, **QWEN}
QWEN_235B = {"layers": 94, "hidden": 4096, "inner": 1536, "heads": 64, **QWEN}
GPT_OSS = {"layers": 36, "hidden": 2880, "inner": 2880, "heads": 64, "vocabulary": 201088}
GPT_OSS |= {**MOE, "head": 64, "kv_heads": 8, "active": 4}
MIXTRAL = {"layers": 32, "hidden": 4096, "inner": 14336, "heads": 32, "vocabulary": 32000}
MIXTRAL |= {**MOE, "kv_heads": 8, "experts": 8, "active": 2}
LLAMA_405B = {"layers": 126, "hidden": 16384, "inner": 53248, "heads": 128, **LLAMA}


class PublishedStep(NamedTuple):
    """A model, the way it was trained, and tokens a second, or TFLOP/s, of each GPU.

    `memory` is what torch had reserved, in GiB.
    """

    machine: str
    model: Decoder
    way: Candidate
    tokens: float | None = None
    tflops: float | None = None
    memory: float | None = None

    @property
    def flops(self) -> float:
        """Floating-point operations of a token, forwards and backwards."""
        model = self.model
        attention = 6 * model.layers * model.hidden * model.sequence
        return 6 * model.parameters + attention

    @property
    def measured(self) -> float:
        """Tokens a second of each GPU."""
        if self.tokens is not None:
            return self.tokens
        assert self.tflops is not None
        return self.tflops * 1e12 / self.flops


def step(
    machine: str, model: Mapping[str, int], batch: int, measured: Mapping[str, float], **way: Any
) -> PublishedStep:
    """Return a row; what a way does not say is 1, or NOTHING."""
    plain = dict.fromkeys(("stages", "parts", "replicas", "shards", "tensor", "micro"), 1)
    given: dict[str, Any] = {**plain, "recompute": NOTHING, **way}
    return PublishedStep(
        machine,
        Decoder(batch=batch, **model),
        Candidate(**given),
        **measured,
    )


ROWS = {
    # torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md at 820504e
    "Llama 3 70B, FSDP 32 x TP 8, 16 sequences, recomputed": step(
        "grand-teton",
        LLAMA_70B,
        512,
        {"tokens": 597.3, "memory": 71.9},
        shards=32,
        tensor=8,
        micro=16,
        recompute=ALL,
    ),
    "Llama 3 8B, FSDP 8 x TP 8, 12 sequences, some operators": step(
        "grand-teton",
        LLAMA_8B,
        96,
        {"tokens": 4378},
        shards=8,
        tensor=8,
        micro=12,
        recompute=SOME,
    ),
    **{
        # Llama 3, arXiv 2407.21783, table 4: a step has 2,048 sequences, one a microbatch
        f"Llama 3 405B, TP 8, PP 16, DP {replicas}": step(
            "h100-8x400g",
            LLAMA_405B,
            2048,
            {"tflops": tflops},
            stages=16,
            parts=8,
            shards=replicas,
            tensor=8,
            micro=1,
            turns=2048 // replicas,
        )
        for replicas, tflops in ((64, 430), (128, 400))
    },
    # the same table, its last row
    "Llama 3 405B, 131,072 tokens, TP 8, CP 16, PP 16, DP 8": step(
        "h100-8x400g",
        {**LLAMA_405B, "sequence": 131072},
        128,
        {"tflops": 380},
        stages=16,
        parts=8,
        shards=128,
        context=16,
        tensor=8,
        turns=16,
    ),
    # NVIDIA/Megatron-LM, megatron/core/transformer/moe/README.md at 022bcb5a: 468 TFLOP/s, of which
    # Megatron counts all of attention, and no embedding
    "Mixtral 8x7B, PP 4, EP 8": step(
        "h100-8x400g",
        MIXTRAL,
        256,
        {"tokens": 5643},
        stages=4,
        parts=8,
        shards=16,
        expert=8,
        turns=16,
    ),
    # NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary-archive.md at 067f987d
    "GPT-OSS 120B, PP 4, EP 8": step(
        "h100-8x400g",
        GPT_OSS,
        1280,
        {"tokens": 5824},
        stages=4,
        shards=16,
        expert=8,
        turns=80,
    ),
    "Qwen3 30B A3B, EP 16, float8": step(
        "h100-8x400g",
        QWEN_30B,
        1024,
        {"tokens": 8960},
        shards=16,
        expert=16,
        turns=64,
        products=FLOAT8,
    ),
    "Qwen3 235B A22B, TP 2, PP 8, EP 16 for 32, float8": step(
        "h100-8x400g",
        QWEN_235B,
        2048,
        {"tokens": 1575},
        stages=8,
        parts=4,
        shards=16,
        expert=16,
        tensor=2,
        turns=128,
        products=FLOAT8,
    ),
    "Llama 3 8B, FSDP 8, 16 turns, float8": step(
        "h100-8x400g",
        LLAMA_8B,
        128,
        {"tokens": 14451},
        shards=8,
        turns=16,
        products=FLOAT8,
    ),
    "Llama 3 70B, TP 4, PP 8, DP 2, float8": step(
        "h100-8x400g",
        LLAMA_70B,
        256,
        {"tokens": 1664},
        stages=8,
        parts=5,
        shards=2,
        tensor=4,
        turns=128,
        products=FLOAT8,
    ),
    # torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md at 820504e
    "Llama 3 70B, FSDP 32 x TP 8, 16 sequences, recomputed, float8": step(
        "grand-teton",
        LLAMA_70B,
        512,
        {"tokens": 809.8, "memory": 71.9},
        shards=32,
        tensor=8,
        micro=16,
        recompute=ALL,
        products=FLOAT8,
    ),
    "Llama 3 8B, FSDP 8 x TP 8, 12 sequences, some operators, float8": step(
        "grand-teton",
        LLAMA_8B,
        96,
        {"tokens": 5078},
        shards=8,
        tensor=8,
        micro=12,
        recompute=SOME,
        products=FLOAT8,
    ),
    **{
        # torchtitan, benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md at e7c0cae
        f"Llama 3 8B, FSDP {gpus}, some operators, float8, H200": step(
            "h200-8x400g",
            LLAMA_8B,
            2 * gpus,
            {"tokens": tokens, "memory": memory},
            shards=gpus,
            micro=2,
            recompute=SOME,
            products=FLOAT8,
        )
        for gpus, tokens, memory in ((32, 10938, 47.96), (64, 10753, 46.97))
    },
    # torchtitan, benchmarks/llama3_h100_202412_torchtitan.md at 31a17bfd
    **{
        f"Llama 3 8B, FSDP {gpus}, some operators, float8": step(
            "grand-teton",
            LLAMA_8B,
            2 * gpus,
            {"tokens": tokens, "memory": memory},
            shards=gpus,
            micro=2,
            recompute=SOME,
            products=FLOAT8,
        )
        for gpus, tokens, memory in ((8, 8532, 76.8), (128, 8380, 61.8))
    },
    **{
        f"Llama 3 8B, {context} x 32,768 tokens, FSDP {8 // context} x CP {context}, float8": step(
            "grand-teton",
            {**LLAMA_8B, "sequence": 32768 * context},
            8 // context,
            {"tokens": tokens, "memory": memory},
            shards=8,
            context=context,
            recompute=ALL,
            products=FLOAT8,
        )
        for context, tokens, memory in (
            (1, 3890, 83.9),
            (2, 2540, 84.2),
            (4, 1071, 84.0),
            (8, 548, 84.5),
        )
    },
    **{
        # a stage has 8 microbatches and one part, or two, where nothing is said (train.py at
        # 9dec370); tensor groups compute and exchange at once, which ours do not
        f"Llama 3 405B, FSDP 8 x TP 8 x PP 8, {schedule}, recomputed, float8": step(
            "grand-teton",
            LLAMA_405B,
            256,
            {"tokens": tokens, "memory": memory},
            stages=8,
            parts=parts,
            shards=8,
            tensor=8,
            micro=4,
            turns=8,
            recompute=ALL,
            products=FLOAT8,
        )
        for schedule, parts, tokens, memory in (
            ("1F1B", 1, 100, 82.5),
            ("interleaved", 2, 128, 72.7),
        )
    },
    **{
        f"Llama 3 405B, {context} x 32,768 tokens, TP 8 x PP 8 x CP {context}, float8": step(
            "grand-teton",
            {**LLAMA_405B, "sequence": 32768 * context},
            64 // context,
            {"tokens": tokens, "memory": memory},
            stages=8,
            shards=8,
            context=context,
            tensor=8,
            turns=8,
            recompute=ALL,
            products=FLOAT8,
        )
        for context, tokens, memory in (
            (1, 76, 75.3),
            (2, 47, 75.9),
            (4, 31, 77.1),
            (8, 16, 84.9),
        )
    },
}


def main() -> None:
    """Print a line for each row that is asked for, all if none is."""
    print(HEAD, "|---" * 9 + "|", sep="\n")
    for name, row in ROWS.items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            print(line(name, row), flush=True)


def line(name: str, row: PublishedStep) -> str:
    """Return a row as a line of the table."""
    machine = topology(row.machine)
    assert machine.gpu is not None
    with tempfile.TemporaryDirectory() as folder:
        found = weigh_candidate(row.model, row.way, machine, machine.gpu, Path(folder))
    took = found.forecast
    own = row.model.batch * row.model.sequence / row.way.ranks
    tokens, quick, slow = (own / us * 1e6 for us in (took.time, took.low, took.high))
    stated = f"{row.measured:.0f}" + (f" ({row.tflops:.0f} TFLOP/s)" if row.tflops else "")
    memory = "not published" if row.memory is None else f"{row.memory} GiB"
    return (
        f"| {name} | {row.machine} x {row.way.ranks} | {stated} | {tokens:.0f} "
        f"| {slow:.0f} to {quick:.0f} | {tokens / row.measured - 1:+.0%} "
        f"| {took.exposure / took.time:.0%} "
        f"| {memory} | {found.held / 2**30:.1f} GiB |"
    )


if __name__ == "__main__":
    main()
