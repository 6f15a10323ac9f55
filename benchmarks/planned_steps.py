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

from torch_scenarios.cost.candidates import ALL, NOTHING, SOME, Candidate, Decoder
from torch_scenarios.cost.intervals import FLOAT8
from torch_scenarios.cost.topology import topology
from torch_scenarios.pipeline.plan import weigh_candidate
from torch_scenarios.strategies.pipeline import INTERLEAVED, ZERO_BUBBLE, ZERO_BUBBLE_V

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
GPT_OSS_20B = {**GPT_OSS, "layers": 24, "experts": 32}
MIXTRAL = {"layers": 32, "hidden": 4096, "inner": 14336, "heads": 32, "vocabulary": 32000}
MIXTRAL |= {**MOE, "kv_heads": 8, "experts": 8, "active": 2}
#: GPT has two matrices of 4 h in its network, a decoder of ours three of 8/3 h. Theirs keeps the
#: matrix of attention: a block's activations are counted with it (Qi et al., table 1)
GPT = {
    size: {
        "layers": layers,
        "hidden": hidden,
        "inner": 8 * hidden // 3,
        "heads": heads,
        "kv_heads": heads,
        "vocabulary": 50304,
        "sequence": 1024,
        "matrix": 1,
    }
    for size, layers, hidden, heads in (
        ("1.5B", 22, 2304, 24),
        ("6.2B", 30, 4096, 32),
        ("14.6B", 46, 5120, 40),
        ("28.3B", 62, 6144, 48),
    )
}
#: Qi et al., tables 4 and 6: a model, GPUs, sequences of a microbatch, microbatches, and for each
#: schedule samples a second of each GPU, and memory in GB
ZERO_BUBBLE_ROWS = (
    ("1.5B", 8, 6, 24, {"1F1B": (11.8, 30), "ZB-1p": (12.9, 32)}),
    ("1.5B", 8, 6, 32, {"1F1B": (12.5, 30), "ZB-1p": (13.4, 32)}),
    ("1.5B", 8, 6, 64, {"1F1B": (13.6, 30), "ZB-1p": (14.2, 32)}),
    ("6.2B", 8, 3, 24, {"1F1B": (3.50, 39), "ZB-1p": (3.88, 42)}),
    ("6.2B", 8, 3, 32, {"1F1B": (3.70, 39), "ZB-1p": (4.00, 42)}),
    ("6.2B", 8, 3, 64, {"1F1B": (4.03, 39), "ZB-1p": (4.20, 42)}),
    ("14.6B", 16, 1, 48, {"1F1B": (1.40, 32), "ZB-1p": (1.61, 33)}),
    ("14.6B", 16, 1, 64, {"1F1B": (1.49, 32), "ZB-1p": (1.67, 33)}),
    ("14.6B", 16, 1, 128, {"1F1B": (1.64, 32), "ZB-1p": (1.76, 33)}),
    ("28.3B", 32, 1, 96, {"1F1B": (0.76, 43), "ZB-1p": (0.87, 44)}),
    ("28.3B", 32, 1, 128, {"1F1B": (0.80, 43), "ZB-1p": (0.90, 44)}),
    ("28.3B", 32, 1, 256, {"1F1B": (0.88, 43), "ZB-1p": (0.96, 44)}),
    ("6.2B", 16, 6, 48, {"1F1B": (3.38, 61), "ZB-1p": (3.87, 62), "ZB-V": (4.15, 64)}),
    ("6.2B", 16, 6, 64, {"1F1B": (3.57, 61), "ZB-1p": (4.00, 62), "ZB-V": (4.21, 64)}),
    ("6.2B", 16, 6, 128, {"1F1B": (3.91, 61), "ZB-1p": (4.29, 62), "ZB-V": (4.35, 64)}),
    ("14.6B", 24, 2, 72, {"1F1B": (1.52, 44), "ZB-1p": (1.72, 46), "ZB-V": (1.85, 45)}),
    ("14.6B", 24, 2, 96, {"1F1B": (1.61, 44), "ZB-1p": (1.78, 46), "ZB-V": (1.88, 45)}),
    ("14.6B", 24, 2, 192, {"1F1B": (1.76, 44), "ZB-1p": (1.89, 46), "ZB-V": (1.93, 45)}),
    ("28.3B", 32, 2, 96, {"1F1B": (0.82, 69), "ZB-1p": (0.94, 73), "ZB-V": (1.01, 71)}),
    ("28.3B", 32, 2, 128, {"1F1B": (0.87, 69), "ZB-1p": (0.97, 73), "ZB-V": (1.02, 71)}),
    ("28.3B", 32, 2, 256, {"1F1B": (0.95, 69), "ZB-1p": (1.03, 73), "ZB-V": (1.06, 71)}),
)
#: their schedule of the memory of 1F1B has the bubble of ZB-H1 in each setting (table 5)
SCHEDULES = {"1F1B": (INTERLEAVED, 1), "ZB-1p": (ZERO_BUBBLE, 1), "ZB-V": (ZERO_BUBBLE_V, 2)}
#: mosaicml/llm-foundry, scripts/train/benchmarking/README.md at 061f2c7c: a model, GPUs, the letter
#: of these, sequences of a microbatch, tokens of one, microbatches, whether a block is computed
#: anew, tokens a second of each GPU
FOUNDRY_ROWS = (
    ("70B", 64, "H", 8, 2048, 4, True, 1039),
    ("30B", 32, "H", 14, 2048, 3, True, 2308),
    ("30B", 16, "H", 10, 2048, 3, True, 2263),
    ("13B", 64, "H", 2, 2048, 1, False, 4800),
    ("13B", 8, "H", 10, 4096, 3, True, 4717),
    ("13B", 8, "H", 3, 16384, 3, True, 2985),
    ("7B", 8, "H", 16, 4096, 2, True, 8611),
    ("7B", 8, "H", 2, 32768, 2, True, 3318),
    ("3B", 64, "H", 6, 2048, 3, False, 22525),
    ("3B", 8, "H", 5, 4096, 6, False, 20964),
    ("3B", 8, "H", 20, 1024, 6, False, 27046),
    ("1B", 64, "H", 20, 2048, 1, False, 44402),
    ("1B", 8, "H", 7, 4096, 4, False, 38535),
    ("1B", 8, "H", 2, 16384, 4, False, 19649),
    ("70B", 64, "A", 8, 2048, 4, True, 410),
    ("30B", 8, "A", 3, 2048, 21, True, 916),
    ("13B", 8, "A", 2, 2048, 3, False, 2262),
    ("7B", 8, "A", 16, 4096, 2, True, 3684),
    ("7B", 8, "A", 4, 16384, 2, True, 2453),
    ("3B", 8, "A", 5, 4096, 6, False, 9457),
    ("1B", 8, "A", 7, 4096, 4, False, 17807),
    ("13B", 128, "A", 16, 2048, 1, True, 1972),
    ("7B", 128, "A", 18, 2048, 1, True, 3623),
    ("30B", 128, "A", 6, 2048, 1, True, 865),
)
#: layers, hidden, and heads of these
FOUNDRY = {
    "70B": (80, 8192, 64),
    "30B": (48, 7168, 64),
    "13B": (40, 5120, 40),
    "7B": (32, 4096, 32),
    "3B": (32, 2560, 20),
    "1B": (24, 2048, 16),
}
#: Narayanan et al., arXiv 2104.04473, table 1: layers, hidden, heads, stages, GPUs, sequences, and
#: TFLOP/s of each GPU, with all computed anew; parts of a stage and sizes of microbatches are ours
MEGATRON_ROWS = (
    ("18.4B", 40, 6144, 48, 1, 256, 1024, 135, 1, 8),
    ("39.1B", 48, 8192, 64, 2, 512, 1536, 138, 2, 4),
    ("76.1B", 60, 10240, 80, 4, 1024, 1792, 140, 3, 2),
    ("145.6B", 80, 12288, 96, 8, 1536, 2304, 148, 2, 2),
)
LLAMA_405B = {"layers": 126, "hidden": 16384, "inner": 53248, "heads": 128, **LLAMA}
LLAMA_2 = {
    size: {"layers": layers, "hidden": hidden, "inner": inner, "heads": heads, "kv_heads": keys}
    | {"vocabulary": 32000, "sequence": 4096}
    for size, layers, hidden, inner, heads, keys in (
        ("7B", 32, 4096, 11008, 32, 32),
        ("13B", 40, 5120, 13824, 40, 40),
        ("34B", 48, 8192, 22016, 64, 8),
        ("70B", 80, 8192, 28672, 64, 8),
    )
}


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


def gpt(
    layers: int, hidden: int, heads: int, sequence: int = 2048, vocabulary: int = 51200
) -> dict[str, int]:
    """Return a model like GPT; see GPT."""
    return {
        "layers": layers,
        "hidden": hidden,
        "inner": 8 * hidden // 3,
        "heads": heads,
        "kv_heads": heads,
        "vocabulary": vocabulary,
        "sequence": sequence,
    }


#: NVIDIA/NeMo, docs/source/performance/performance_summary.md, container 24.07, float8: a model,
#: sequences of a step, tokens a second of each GPU, and the way
NEMO_ROWS: tuple[tuple[str, dict[str, int], int, float, dict[str, int]], ...] = (
    ("Llama 2 7B, 8 GPUs", LLAMA_2["7B"], 128, 16934, {"shards": 8, "turns": 16}),
    (
        "Llama 2 13B, PP 4, 16 GPUs",
        LLAMA_2["13B"],
        128,
        8715,
        {"stages": 4, "parts": 10, "shards": 4, "turns": 32},
    ),
    (
        "Llama 2 70B, TP 4, PP 4, 64 GPUs",
        LLAMA_2["70B"],
        128,
        1728,
        {"stages": 4, "parts": 20, "shards": 4, "tensor": 4, "turns": 32},
    ),
    (
        "GPT 20B, TP 2, 64 GPUs",
        gpt(44, 6144, 48),
        256,
        5851,
        {"shards": 32, "tensor": 2, "micro": 2, "turns": 4},
    ),
    (
        "GPT 175B, TP 4, PP 8, 128 GPUs",
        gpt(96, 12288, 96),
        256,
        716,
        {"stages": 8, "parts": 6, "shards": 4, "tensor": 4, "turns": 64},
    ),
    (
        "Llama 2 7B, 16,384 tokens, TP 2, 16 GPUs",
        {**LLAMA_2["7B"], "sequence": 16384},
        256,
        10082,
        {"shards": 8, "tensor": 2, "turns": 32},
    ),
    (
        "Llama 2 7B, 32,768 tokens, TP 2, CP 2, 32 GPUs",
        {**LLAMA_2["7B"], "sequence": 32768},
        128,
        6687,
        {"shards": 16, "context": 2, "tensor": 2, "turns": 16},
    ),
    (
        "Llama 2 7B, 131,072 tokens, TP 4, CP 4, 128 GPUs",
        {**LLAMA_2["7B"], "sequence": 131072},
        32,
        2260,
        {"shards": 32, "context": 4, "tensor": 4, "turns": 4},
    ),
)

#: what the code of the next rows holds. AutoModel makes a model in bfloat16, and torch's Adam its
#: averages like its weights; its loss makes no logits of float32, and keeps what log_softmax gives
#: and its gradient; a token's weight is multiplied within an expert (components/moe/experts.py)
AUTOMODEL_CODE = {"weight_bytes": 2, "gradient_bytes": 2, "average_bytes": 2}
AUTOMODEL_CODE |= {"logit_bytes": 6, "expert_rows": 1}
#: Megatron-Bridge keeps weights and averages of float32, and gradients in bfloat16; its loss is
#: TransformerEngine's (perf_recipes/_common.py), and so are its products
BRIDGE_CODE = {"weight_bytes": 4, "gradient_bytes": 2, "average_bytes": 4}
BRIDGE_CODE |= {"logit_bytes": 2, "expert_rows": 1, "whole_rows": 0, "float8_inputs": 1}
#: a model, sequences of a step, tokens a second of each GPU, and the way; all on H100, in bfloat16
AUTOMODEL_ROWS: tuple[tuple[str, dict[str, int], int, float, dict[str, Any]], ...] = (
    (
        "Qwen3 30B A3B, EP 8, 8 GPUs, recomputed",
        QWEN_30B,
        512,
        12040,
        {"shards": 8, "expert": 8, "micro": 4, "turns": 16, "recompute": ALL},
    ),
    (
        "GPT-OSS 20B, EP 8, 8 GPUs",
        GPT_OSS_20B,
        256,
        13058,
        {"shards": 8, "expert": 8, "micro": 2, "turns": 16},
    ),
    (
        "GPT-OSS 120B, EP 64, 64 GPUs",
        GPT_OSS,
        512,
        7626,
        {"shards": 64, "expert": 64, "micro": 2, "turns": 4},
    ),
    (
        "Llama 3 70B, CP 2, 64 GPUs, recomputed",
        LLAMA_70B,
        128,
        866.77,
        {"shards": 64, "context": 2, "turns": 4, "recompute": ALL},
    ),
)
#: the same, with the machine; in float8, or in MXFP8 where the name says so
BRIDGE_ROWS: tuple[tuple[str, str, dict[str, int], int, float, dict[str, Any]], ...] = (
    (
        "Llama 3 70B, TP 2, PP 4, 64 GB200, MXFP8",
        "gb200-nvl72",
        LLAMA_70B,
        256,
        3712,
        {"stages": 4, "parts": 5, "shards": 8, "tensor": 2, "turns": 32},
    ),
    (
        "Llama 3.1 405B, TP 4, PP 16, 256 GB200, float8",
        "gb200-nvl72",
        LLAMA_405B,
        1536,
        843,
        {"stages": 16, "parts": 4, "shards": 4, "tensor": 4, "turns": 384},
    ),
    (
        "Llama 3.1 405B, TP 4, PP 16, 256 GB200, MXFP8",
        "gb200-nvl72",
        LLAMA_405B,
        1536,
        783,
        {"stages": 16, "parts": 8, "shards": 4, "tensor": 4, "turns": 384},
    ),
    (
        "Llama 3.1 405B, TP 8, PP 8, CP 2, 1024 H100, float8",
        "h100-8x400g",
        LLAMA_405B,
        1536,
        326,
        {"stages": 8, "parts": 8, "shards": 16, "context": 2, "tensor": 8, "turns": 192},
    ),
    (
        "GPT-OSS 120B, EP 64, 64 GB200, bfloat16",
        "gb200-nvl72",
        GPT_OSS,
        1280,
        16640,
        {"shards": 64, "expert": 64, "micro": 4, "turns": 5},
    ),
    (
        "GPT-OSS 120B, EP 64, 64 GB200, MXFP8",
        "gb200-nvl72",
        GPT_OSS,
        1280,
        28672,
        {"shards": 64, "expert": 64, "micro": 4, "turns": 5},
    ),
    (
        "Qwen3 30B A3B, EP 8, 8 GB200, MXFP8",
        "gb200-nvl72",
        QWEN_30B,
        512,
        39936,
        {"shards": 8, "expert": 8, "micro": 4, "turns": 16},
    ),
    (
        "Qwen3 30B A3B, EP 8, 8 B200, MXFP8",
        "b200-8x400g",
        QWEN_30B,
        512,
        27136,
        {"shards": 8, "expert": 8, "micro": 4, "turns": 16},
    ),
    (
        "Qwen3 235B A22B, PP 8, EP 32, 256 GB200, MXFP8",
        "gb200-nvl72",
        QWEN_235B,
        8192,
        7280,
        {"stages": 8, "parts": 3, "shards": 32, "expert": 32, "turns": 256},
    ),
    (
        "Qwen3 235B A22B, PP 8, EP 8, 256 B200, MXFP8",
        "b200-8x400g",
        QWEN_235B,
        8192,
        3776,
        {"stages": 8, "shards": 32, "expert": 8, "turns": 256},
    ),
)


def tokens_by_megatron(layers: int, hidden: int, tflops: float) -> float:
    """Return tokens a second of a GPU by its TFLOP/s, as Narayanan et al. count them (section 5.1).

    They count a forward pass twice, as all is computed anew, and all of attention.
    """
    whole = 96 * layers * hidden**2 * (1 + 2048 / (6 * hidden) + 51200 / (16 * layers * hidden))
    return tflops * 1e12 / whole


def step(
    machine: str, model: Mapping[str, Any], batch: int, measured: Mapping[str, float], **way: Any
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
    **{
        f"GPT {size}, {name}, PP {gpus}, {turns} x {micro}": step(
            "a100-8x200g",
            GPT[size],
            micro * turns,
            {"tokens": samples * 1024, "memory": memory / 1.0737},
            stages=gpus,
            schedule=SCHEDULES[name][0],
            parts=SCHEDULES[name][1],
            micro=micro,
            turns=turns,
        )
        for size, gpus, micro, turns, found in ZERO_BUBBLE_ROWS
        for name, (samples, memory) in found.items()
    },
    **{
        f"MPT {size}, {gpus} {letter}100, {micro} x {tokens}, {turns} turn{'s'[: turns > 1]}": step(
            {"H": "h100-8x400g", "A": "a100-8x200g"}[letter],
            gpt(*FOUNDRY[size], tokens, 50368),
            gpus * micro * turns,
            {"tokens": found},
            shards=gpus,
            micro=micro,
            turns=turns,
            recompute=ALL if is_anew else NOTHING,
        )
        for size, gpus, letter, micro, tokens, turns, is_anew, found in FOUNDRY_ROWS
    },
    **{
        # foundation-model-stack/fms-fsdp, README.md at 0d319983, 128 A100 on a network of their own
        f"Llama 2 {size}, {'HSDP' if replicas > 1 else 'FSDP'}, batch {micro}": step(
            "a100-8x200g",
            {"vocabulary": 32000, "sequence": 4096, "kv_heads": keys, **sizes},
            128 * micro,
            {"tokens": found},
            replicas=replicas,
            shards=128 // replicas,
            micro=micro,
            recompute=NOTHING if replicas > 1 else ALL,
        )
        for size, keys, replicas, micro, found, sizes in (
            ("7B", 32, 16, 2, 3760, {"layers": 32, "hidden": 4096, "inner": 11008, "heads": 32}),
            ("13B", 40, 16, 1, 1700, {"layers": 40, "hidden": 5120, "inner": 13824, "heads": 40}),
            ("34B", 8, 1, 8, 772, {"layers": 48, "hidden": 8192, "inner": 22016, "heads": 64}),
            ("70B", 8, 1, 6, 380, {"layers": 80, "hidden": 8192, "inner": 28672, "heads": 64}),
        )
    },
    # Korthikanti et al., arXiv 2205.05198, table 5: 1.10 s, attention alone computed anew
    "GPT 22B, Megatron of 2022": step(
        "a100-8x200g",
        gpt(48, 6144, 64),
        4,
        {"tokens": 4 * 2048 / 1.10 / 8},
        tensor=8,
        micro=4,
    ),
    **{
        f"GPT {size}, Megatron of 2021": step(
            "a100-8x200g",
            gpt(layers, hidden, heads),
            batch,
            {"tokens": tokens_by_megatron(layers, hidden, tflops)},
            stages=stages,
            parts=parts,
            shards=gpus // 8 // stages,
            tensor=8,
            micro=micro,
            turns=batch * 8 * stages // gpus // micro,
            recompute=ALL,
        )
        for size, layers, hidden, heads, stages, gpus, batch, tflops, parts, micro in MEGATRON_ROWS
    },
    # jzhang38/TinyLlama, README.md: 16 A100 of 40 GB, hybrid shards
    "TinyLlama 1.1B": step(
        "a100-8x200g",
        {"layers": 22, "hidden": 2048, "inner": 5632, "heads": 32, "kv_heads": 4}
        | {"vocabulary": 32000, "sequence": 2048},
        512,
        {"tokens": 24000},
        replicas=2,
        shards=8,
        micro=8,
        turns=4,
    ),
    # NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md at 21a2ced8, of 25.11 and 25.09
    **{
        f"Llama 3 8B, FSDP 8, {name}, float8": step(
            machine,
            LLAMA_8B,
            128,
            {"tokens": tokens},
            shards=8,
            micro=2,
            turns=8,
            products=FLOAT8,
        )
        for name, machine, tokens in (
            ("B200", "b200-8x400g", 30624),
            ("GB200", "gb200-nvl72", 31508),
        )
    },
    "Llama 3 70B, FSDP 64, GB200, float8": step(
        "gb200-nvl72",
        LLAMA_70B,
        128,
        {"tokens": 4312},
        shards=64,
        micro=2,
        products=FLOAT8,
    ),
    "GPT-OSS 120B, EP 8, B200": step(
        "b200-8x400g", GPT_OSS, 512, {"tokens": 8213}, shards=64, expert=8, micro=4, turns=2
    ),
    **{
        f"Qwen3 30B A3B, EP 8, B200, float8{words}": step(
            "b200-8x400g",
            QWEN_30B,
            512,
            {"tokens": tokens},
            shards=8,
            expert=8,
            turns=64,
            products=FLOAT8,
        )
        for words, tokens in (("", 9299), (", tokens dropped", 18066))
    },
    **{
        f"NeMo {name}, float8": step(
            "h100-8x400g", model, batch, {"tokens": tokens}, products=FLOAT8, **way
        )
        for name, model, batch, tokens, way in NEMO_ROWS
    },
    # NVIDIA/dgxc-benchmarking, its recipe of Llama 3.1, tables of 2025
    **{
        f"DGXC Llama 3.1 8B, CP 2, {gpus} GPUs{words}": step(
            "h100-8x400g",
            LLAMA_8B,
            16 * gpus,
            {"tokens": tokens},
            shards=gpus,
            context=2,
            turns=32,
            **products,
        )
        for gpus, words, tokens, products in (
            (8, "", 10682, {}),
            (128, "", 10630, {}),
            (8, ", float8", 14049, {"products": FLOAT8}),
        )
    },
    "DGXC Llama 3.1 70B, TP 4, PP 4, CP 2, 64 GPUs": step(
        "h100-8x400g",
        LLAMA_70B,
        128,
        {"tokens": 1118},
        stages=4,
        parts=5,
        shards=4,
        context=2,
        tensor=4,
        turns=64,
    ),
    "DGXC Llama 3.1 405B, TP 8, PP 8, CP 2, 512 GPUs": step(
        "h100-8x400g",
        LLAMA_405B,
        256,
        {"tokens": 207},
        stages=8,
        parts=8,
        shards=8,
        context=2,
        tensor=8,
        turns=64,
    ),
    # the same, its recipe of MaxText: it does not state what is computed anew, and whole it fits
    **{
        f"MaxText Llama 2 70B, FSDP {gpus}{words}": step(
            "h100-8x400g",
            LLAMA_2["70B"],
            2 * gpus,
            {"tokens": tokens},
            shards=gpus,
            micro=2,
            recompute=ALL,
            **products,
        )
        for gpus, words, tokens, products in (
            (64, "", 1170, {}),
            (256, "", 1145, {}),
            (64, ", float8", 1895, {"products": FLOAT8}),
        )
    },
    # PyTorch's blog of March 2024 on FSDP at IBM: 96 H100, whose nodes have 800 Gb/s
    **{
        f"IBM Llama 2 {size}, 96 H100": step(
            "h100-8x400g",
            LLAMA_2[size],
            192,
            {"tokens": tokens},
            shards=96,
            micro=2,
            recompute=anew,
        )
        for size, tokens, anew in (
            ("7B", 7500, NOTHING),
            ("34B", 1550, ALL),
            ("70B", 800, ALL),
        )
    },
    # chosen and written down on 2026-11-29, before any of them was forecast. First NVIDIA-NeMo's
    # Automodel, docs/performance-summary.mdx at 36044ad3, with what examples/llm_benchmark computes
    # anew (GPT-OSS 120B: at 037e04a6, when a microbatch had two sequences, as the table has it)
    **{
        f"AutoModel {name}": step(
            "h100-8x400g", {**model, **AUTOMODEL_CODE}, batch, {"tokens": tokens}, **way
        )
        for name, model, batch, tokens, way in AUTOMODEL_ROWS
    },
    # NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md and -archive.md at 067f987d, the last
    # container that has the row; its recipes compute nothing anew, but of GPT-OSS norms and gates
    **{
        f"Bridge {name}": step(
            machine,
            {**model, **BRIDGE_CODE},
            batch,
            {"tokens": tokens},
            **({} if "bfloat16" in name else {"products": FLOAT8}),
            **way,
        )
        for name, machine, model, batch, tokens, way in BRIDGE_ROWS
    },
    # torchtitan, docs/performance.md at eaea6f6a: H100 with HBM2e and less power, 8,192 tokens (its
    # MFU says so)
    **{
        f"torchtitan 405B, FSDP 16 x TP 8{words}": step(
            "grand-teton",
            LLAMA_405B,
            32,
            {"tokens": tokens},
            shards=16,
            tensor=8,
            micro=2,
            recompute=ALL,
            **products,
        )
        for words, tokens, products in (
            ("", 109, {}),
            (", float8", 177, {"products": FLOAT8}),
        )
    },
}


def main() -> None:
    """Print a line for each row that is asked for, all if none is."""
    print(HEAD, "|---" * 9 + "|", sep="\n")
    for name, row in ROWS.items():
        if len(sys.argv) < 2 or any(asked in name for asked in sys.argv[1:]):
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
    memory = "not published" if row.memory is None else f"{row.memory:.1f} GiB"
    return (
        f"| {name} | {row.machine} x {row.way.ranks} | {stated} | {tokens:.0f} "
        f"| {slow:.0f} to {quick:.0f} | {tokens / row.measured - 1:+.0%} "
        f"| {took.exposure / took.time:.0%} "
        f"| {memory} | {found.held / 2**30:.1f} GiB |"
    )


if __name__ == "__main__":
    main()
