"""What a rank of a planned step holds at most, and what torch's FSDPMemTracker says of a script.

`python -m benchmarks.tracked_memory [NAME...]` prints a table in Markdown, in GiB. Both have the
same sizes; the script (tests/record/scripts/tracked_decoder.py) is run by torch without memory.
`_find_peak` was written with FIRST at hand; LATER were chosen before any of them was tracked, and
forecast once. KEPT are steps whose weights stay whole (`reshard_after_forward=False`), with
gradients that are scattered once a step where `zero` is 1: these wait untracked, and are added,
which is right where most is held in the loss. GROUPS have tensor groups, in WHOLE nothing is
sharded, MIXED have experts, whose rows were chosen before any of them was tracked; expert groups
are in none.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from torch_scenarios.cost.candidates import (
    ALL,
    NOTHING,
    ZERO_0,
    ZERO_1,
    ZERO_2,
    ZERO_3,
    Candidate,
    Decoder,
)
from torch_scenarios.cost.topology import topology

SCRIPT = Path(__file__).parents[1] / "tests" / "record" / "scripts" / "tracked_decoder.py"
#: sizes of the model and the way that are not those of Llama 3 8B on eight GPUs with 4 layers
PLAIN: dict[str, Any] = {
    "layers": 4,
    "hidden": 4096,
    "inner": 14336,
    "heads": 32,
    "kv_heads": 8,
    "vocabulary": 128256,
    "sequence": 8192,
    "micro": 1,
    "turns": 1,
    "replicas": 1,
    "shards": 8,
    "zero": ZERO_3,
    "tensor": 1,
    "experts": 0,
    "active": 0,
    "recompute": False,
}
OF_70B = {"hidden": 8192, "inner": 28672, "heads": 64}
OF_13B = {"hidden": 5120, "inner": 13824, "heads": 40, "kv_heads": 40, "vocabulary": 32000}
OF_3B = {"hidden": 3072, "inner": 8192, "heads": 24}
OF_1B = {"hidden": 2048, "inner": 5632, "heads": 16, "kv_heads": 16, "vocabulary": 32000}
#: flags of the script, and what a model says for the same
FLAGS: dict[str, dict[str, int]] = {
    "plain-gate": {"gated_rows": 4},
    "bfloat16-loss": {"logit_bytes": 6},
    "bfloat16-model": {"weight_bytes": 2, "gradient_bytes": 2, "average_bytes": 2},
    "weighed-gate": {"expert_rows": 1},
}
FIRST: dict[str, dict[str, Any]] = {
    "4 layers of 8B": {},
    "4 layers of 8B, recomputed": {"recompute": True},
    "16 layers of 8B, few words": {"layers": 16, "vocabulary": 8192},
    "16 layers, few words, recomputed": {"layers": 16, "vocabulary": 8192, "recompute": True},
    "16 layers, few words, HSDP 2 x 4": {
        "layers": 16,
        "vocabulary": 8192,
        "replicas": 2,
        "shards": 4,
    },
    "Llama 3 8B": {"layers": 32},
    "Llama 3 8B, recomputed": {"layers": 32, "recompute": True},
    "8 layers of 70B, 64 GPUs": {**OF_70B, "layers": 8, "sequence": 4096, "shards": 64},
    "8 layers of 70B, 64 GPUs, recomputed": {
        **OF_70B,
        "layers": 8,
        "sequence": 4096,
        "shards": 64,
        "recompute": True,
    },
    "24 layers of 1B, 4 sequences": {
        **OF_1B,
        "layers": 24,
        "sequence": 2048,
        "micro": 4,
        "shards": 4,
    },
    "8 layers of 8B, 512 tokens, 4 GPUs": {
        "layers": 8,
        "vocabulary": 32000,
        "sequence": 512,
        "shards": 4,
    },
    "8 layers of 8B, 512 tokens, 2 GPUs, recomputed": {
        "layers": 8,
        "vocabulary": 32000,
        "sequence": 512,
        "shards": 2,
        "recompute": True,
    },
}
LATER: dict[str, dict[str, Any]] = {
    "16 layers of 8B, 2 x 4096, 16 GPUs": {
        "layers": 16,
        "sequence": 4096,
        "micro": 2,
        "shards": 16,
    },
    "28 layers of 3B, recomputed": {**OF_3B, "layers": 28, "sequence": 4096, "recompute": True},
    "20 layers of 13B, 32 GPUs": {**OF_13B, "layers": 20, "sequence": 4096, "shards": 32},
    "10 layers of 70B, 128 GPUs, recomputed": {
        **OF_70B,
        "layers": 10,
        "shards": 128,
        "recompute": True,
    },
    "22 layers of 1B, HSDP 4 x 4": {
        **OF_1B,
        "layers": 22,
        "sequence": 4096,
        "replicas": 4,
        "shards": 4,
    },
    "8 layers of 8B, 3 microbatches": {"layers": 8, "turns": 3},
    "16 layers of 13B, 4 microbatches, recomputed": {
        **OF_13B,
        "layers": 16,
        "sequence": 2048,
        "turns": 4,
        "recompute": True,
    },
    "16 layers of 8B in bfloat16": {"layers": 16, "flags": ["bfloat16-model"]},
    "16 layers of 8B, loss in bfloat16": {"layers": 16, "flags": ["bfloat16-loss"]},
    "16 layers of 8B, plain gate": {"layers": 16, "flags": ["plain-gate"]},
}
KEPT: dict[str, dict[str, Any]] = {
    "8 layers of 8B, weights whole": {"layers": 8, "zero": ZERO_2},
    "8 layers of 8B, 2 microbatches, weights whole": {"layers": 8, "turns": 2, "zero": ZERO_2},
    "8 layers of 8B, 2 microbatches, gradients too": {"layers": 8, "turns": 2, "zero": ZERO_1},
    "16 layers of 13B, 3 microbatches, recomputed, weights whole": {
        **OF_13B,
        "layers": 16,
        "sequence": 2048,
        "turns": 3,
        "zero": ZERO_2,
        "recompute": True,
    },
    "12 layers of 3B, 2 x 2048, HSDP 2 x 4, weights whole": {
        **OF_3B,
        "layers": 12,
        "sequence": 2048,
        "micro": 2,
        "turns": 2,
        "replicas": 2,
        "shards": 4,
        "zero": ZERO_2,
    },
}
#: tensor groups that share the sequence, and keep what they gathered of it
GROUPS: dict[str, dict[str, Any]] = {
    "8 layers of 8B, TP 4": {"layers": 8, "tensor": 4, "shards": 2},
    "8 layers of 8B, TP 2, few words": {
        "layers": 8,
        "tensor": 2,
        "vocabulary": 32000,
        "shards": 4,
    },
    "8 layers of 8B, TP 8, recomputed": {
        "layers": 8,
        "tensor": 8,
        "vocabulary": 32000,
        "shards": 2,
        "recompute": True,
    },
    "8 layers of 13B, TP 4, weights whole": {
        **OF_13B,
        "layers": 8,
        "sequence": 4096,
        "tensor": 4,
        "shards": 4,
        "zero": ZERO_2,
    },
}
#: DDP and one GPU: nothing is sharded, and autocast makes copies of weights in float32
WHOLE: dict[str, dict[str, Any]] = {
    "24 layers of 1B, DDP on 4": {
        **OF_1B,
        "layers": 24,
        "sequence": 2048,
        "micro": 4,
        "replicas": 4,
        "shards": 1,
        "zero": ZERO_0,
    },
    "24 layers of 1B, DDP on 4, 3 microbatches, recomputed": {
        **OF_1B,
        "layers": 24,
        "sequence": 2048,
        "turns": 3,
        "replicas": 4,
        "shards": 1,
        "zero": ZERO_0,
        "recompute": True,
    },
    "12 layers of 1B in bfloat16, DDP on 8": {
        **OF_1B,
        "layers": 12,
        "sequence": 2048,
        "micro": 2,
        "replicas": 8,
        "shards": 1,
        "zero": ZERO_0,
        "flags": ["bfloat16-model"],
    },
    "8 layers of 3B, many words, DDP on 2": {
        **OF_3B,
        "layers": 8,
        "sequence": 4096,
        "replicas": 2,
        "shards": 1,
        "zero": ZERO_0,
    },
}

OF_MIXTRAL = {"vocabulary": 32000, "sequence": 4096, "experts": 8, "active": 2}
SMALL_EXPERTS = {**OF_1B, "inner": 768, "kv_heads": 4, "experts": 64, "active": 8}
#: experts that each rank has whole
MIXED: dict[str, dict[str, Any]] = {
    "4 layers of Mixtral": {**OF_MIXTRAL},
    "6 layers of Mixtral, recomputed": {**OF_MIXTRAL, "layers": 6, "shards": 16, "recompute": True},
    "4 layers of Mixtral, 3 microbatches": {**OF_MIXTRAL, "turns": 3, "shards": 16},
    "4 layers of Mixtral, weights in the gate": {**OF_MIXTRAL, "flags": ["weighed-gate"]},
    "12 layers of 64 experts": {**SMALL_EXPERTS, "layers": 12, "sequence": 4096},
    "12 layers of 64 experts, 4 sequences, recomputed": {
        **SMALL_EXPERTS,
        "layers": 12,
        "sequence": 4096,
        "micro": 4,
        "recompute": True,
    },
    "4 layers of Mixtral, weights whole": {**OF_MIXTRAL, "zero": ZERO_2, "shards": 32},
}


def plan_case(case: dict[str, Any]) -> float:
    """Return what a rank holds by the plan, in bytes."""
    sizes = {**PLAIN, **case}
    ranks = sizes["replicas"] * sizes["shards"]
    names = ("layers", "hidden", "inner", "heads", "kv_heads", "vocabulary", "sequence", "experts")
    code: dict[str, Any] = {}
    for flag in sizes.get("flags", ()):
        code |= FLAGS[flag]
    model = Decoder(
        batch=ranks * sizes["micro"] * sizes["turns"],
        **{name: sizes[name] for name in (*names, "active")},
        **code,
    )
    way = Candidate(
        stages=1,
        recompute=ALL if sizes["recompute"] else NOTHING,
        **{
            name: sizes[name] for name in ("replicas", "shards", "tensor", "micro", "turns", "zero")
        },
    )
    gpu = topology("h100-8x400g").gpu
    assert gpu is not None
    return model.load(way, gpu).held


def track_case(case: dict[str, Any]) -> float:
    """Return what torch's tracker says, in bytes."""
    sizes = {**PLAIN, **case}
    words = [*(["--recompute"] * sizes.pop("recompute"))]
    words += [f"--{flag}" for flag in sizes.pop("flags", ())]
    words += [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found["Total"]


def main() -> None:
    """Print a line for each case that is asked for, all if none is."""
    print("| step | tracked | planned | off by |", "|---" * 4 + "|", sep="\n")
    for cases in (FIRST, LATER, KEPT, GROUPS, WHOLE, MIXED):
        for name, case in cases.items():
            if len(sys.argv) < 2 or any(asked in name for asked in sys.argv[1:]):
                tracked, planned = track_case(case), plan_case(case)
                print(
                    f"| {name} | {tracked / 2**30:.2f} | {planned / 2**30:.2f} "
                    f"| {planned / tracked - 1:+.1%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
