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
LLAMA_405B = {"layers": 126, "hidden": 16384, "inner": 53248, "heads": 128, **LLAMA}


class PublishedStep(NamedTuple):
    """A model, the way it was trained, and tokens a second, or TFLOP/s, of each GPU.

    `memory` is what torch had reserved, in GiB. Of a step in float8 that alone is compared.
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
    def measured(self) -> float | None:
        """Tokens a second of each GPU."""
        if self.tokens is not None or self.tflops is None:
            return self.tokens
        return self.tflops * 1e12 / self.flops


def step(
    machine: str, model: Mapping[str, int], batch: int, measured: Mapping[str, float], **way: Any
) -> PublishedStep:
    """Return a row; what a way does not say is 1, or NOTHING."""
    plain = {"stages": 1, "parts": 1, "replicas": 1, "turns": 1, "together": 1}
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
    **{
        # torchtitan, benchmarks/llama3_h100_202412_torchtitan.md at 31a17bfd, table 5; a stage has
        # 8 microbatches and one part, or two, where nothing is said (train.py at 9dec370)
        f"Llama 3 405B, FSDP 8 x TP 8 x PP 8, {schedule}, recomputed": step(
            "grand-teton",
            LLAMA_405B,
            256,
            {"memory": memory},
            stages=8,
            parts=parts,
            shards=8,
            tensor=8,
            micro=4,
            turns=8,
            recompute=ALL,
        )
        for schedule, parts, memory in (("1F1B", 1, 82.5), ("interleaved", 2, 72.7))
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
    stated, error, memory = "not in bfloat16", "", "not published"
    if row.measured is not None:
        stated = f"{row.measured:.0f}" + (f" ({row.tflops:.0f} TFLOP/s)" if row.tflops else "")
        error = f"{tokens / row.measured - 1:+.0%}"
    if row.memory is not None:
        memory = f"{row.memory} GiB"
    return (
        f"| {name} | {row.machine} x {row.way.ranks} | {stated} | {tokens:.0f} "
        f"| {slow:.0f} to {quick:.0f} | {error} | {took.exposure / took.time:.0%} "
        f"| {memory} | {found.held / 2**30:.1f} GiB |"
    )


if __name__ == "__main__":
    main()
