"""Published steps of Megatron, by Calculon and by us: a table in Markdown.

`python -m benchmarks.neighbours FOLDER PYTHON [NAME...]`: FOLDER is a clone of Calculon, which has
the rows (Korthikanti et al., arXiv 2205.05198, table 5, full recomputation) and its own forecast of
each, PYTHON an interpreter with what it needs. Ours is a candidate of `scenario plan`,
a program, on a100-8x200g. Nothing was fitted to these rows. Behind them the bytes of weights and
optimizer, and of activations, which figure 1 of the same paper states for the first stage, with a
sequence that a tensor group shares and attention recomputed, as fused attention is.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch_scenarios.cost.candidates import ALL, NOTHING, Candidate, Decoder
from torch_scenarios.cost.topology import topology

MACHINE = "a100-8x200g"
#: GPT has two matrices of 4 h in its network, a decoder of ours three: as many products
GATED = 8 / 3
VOCABULARY = 51200
MEMORY = "| model | GPUs | weights, optimizer | ours | off by | activations | ours | off by |"
HEAD = "| model | GPUs | measured | Calculon | off by | CPU | ours | off by | CPU |"


def main() -> None:
    """Print a line for each row that Calculon has."""
    folder = Path(sys.argv[1])
    source = (folder / "calculon" / "llm" / "validation.py").read_text(encoding="utf-8")
    published = source.partition("def seqsel_tab5")[2]
    rows = re.findall(r"'([\w-]+)': \{\s*'full': ([\d.]+)", published)
    print(HEAD, "|---" * 9 + "|", sep="\n")
    for name, measured in rows:
        if len(sys.argv) > 3 and name not in sys.argv[3:]:
            continue
        print(line(folder, name, float(measured)), flush=True)
    published = source.partition("def seqsel_fig1")[2].partition("def get_files")[0]
    number = r"([\d.]+)"
    found = re.findall(
        rf"'([\w-]+)': \{{\s*'none'.*?'seqsel': \{{\s*'par_opt': {number},\s*'act': {number}",
        published,
        re.DOTALL,
    )
    print("", MEMORY, "|---" * 8 + "|", sep="\n")
    for name, *sizes in found:
        print(memory_line(folder, name, *map(float, sizes)), flush=True)


def memory_line(folder: Path, name: str, state: float, activations: float) -> str:
    """Return a row of what a rank of the first stage holds, in GiB."""
    model = json.loads((folder / "models" / f"{name}.json").read_text(encoding="utf-8"))
    path = folder / "validation" / "seqsel" / "fig1" / f"{name}_seqsel.json"
    execution = json.loads(path.read_text(encoding="utf-8"))
    decoder, way = read_way(model, execution, NOTHING)
    gpu = topology(MACHINE).gpu
    assert gpu is not None
    load = decoder.load_of_stage(way, gpu, 0)
    own, kept = (load.state + load.gathered) / 2**30, load.activations / 2**30
    return (
        f"| {name} | {way.ranks} | {state:.1f} GiB | {own:.1f} GiB | {own / state - 1:+.0%} "
        f"| {activations:.1f} GiB | {kept:.1f} GiB | {kept / activations - 1:+.0%} |"
    )


def line(folder: Path, name: str, measured: float) -> str:
    """Return a row as a line of the table."""
    model = json.loads((folder / "models" / f"{name}.json").read_text(encoding="utf-8"))
    way = folder / "validation" / "seqsel" / "tab5" / f"{name}_full.json"
    execution = json.loads(way.read_text(encoding="utf-8"))
    theirs, their_cpu = time_calculon(folder, name, way)
    own, own_cpu = weigh(model, execution)
    return (
        f"| {name} | {execution['num_procs']} | {measured} s | {theirs:.2f} s "
        f"| {theirs / measured - 1:+.0%} | {their_cpu:.1f} s | {own:.2f} s "
        f"| {own / measured - 1:+.0%} | {own_cpu:.1f} s |"
    )


def time_calculon(folder: Path, name: str, way: Path) -> tuple[float, float]:
    """Return the seconds of a step by Calculon, and the CPU seconds that this took."""
    system = folder / "systems" / "a100_80g.json"
    with tempfile.TemporaryDirectory() as out:
        found = Path(out) / "stats.json"
        command = ["bin/calculon", "llm", str(folder / "models" / f"{name}.json")]
        cpu = run([sys.argv[2], *command, str(way), str(system), str(found)], cwd=folder)
        return float(json.loads(found.read_text(encoding="utf-8"))["total_time"]), cpu


def read_way(
    model: dict[str, Any], execution: dict[str, Any], recompute: str
) -> tuple[Decoder, Candidate]:
    """Return a model of Calculon's, and how it is trained, as ours."""
    decoder = Decoder(
        layers=model["num_blocks"],
        hidden=model["hidden"],
        inner=round(GATED * model["hidden"]),
        heads=model["attn_heads"],
        kv_heads=model["attn_heads"],
        vocabulary=VOCABULARY,
        sequence=model["seq_size"],
        batch=execution["batch_size"],
    )
    rows = execution["batch_size"] // execution["data_par"]
    way = Candidate(
        stages=execution["pipeline_par"],
        parts=execution["pipeline_interleaving"],
        replicas=1,
        shards=execution["data_par"],
        tensor=execution["tensor_par"],
        micro=execution["microbatch_size"],
        turns=rows // execution["microbatch_size"],
        recompute=recompute,
    )
    return decoder, way


def weigh(model: dict[str, Any], execution: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds of a step by us, and the CPU seconds that this took."""
    decoder, way = read_way(model, execution, ALL)
    gpu = topology(MACHINE).gpu
    assert gpu is not None
    with tempfile.TemporaryDirectory() as out:
        path, found = Path(out) / "step.yaml", Path(out) / "cost.json"
        path.write_text(decoder.program(way, gpu), encoding="utf-8")
        command = ["-m", "torch_scenarios.cli", "cost", str(path), "--topology", MACHINE]
        cpu = run([sys.executable, *command, "--json", str(found)])
        (case,) = json.loads(found.read_text(encoding="utf-8"))["cases"]
        return case["time_us"] / 1e6, cpu


def run(command: list[str], cwd: Path | None = None) -> float:
    """Run a command; return the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "PYTHONPATH": str(cwd or "")}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=cwd, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
