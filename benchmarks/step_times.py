"""Published steps of training against what is reckoned of a script: a table in Markdown.

`python -m benchmarks.step_times [NAME...]` records rank 0 of each row of step_times.yaml on tensors
without memory, weighs the step, and prints tokens a second on each GPU, and the memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROWS = Path(__file__).with_suffix(".yaml")
SCRIPT = Path(__file__).parents[1] / "tests" / "record" / "scripts" / "llama_fsdp2.py"
HEAD = (
    "| row | machine | measured | reckoned | off by | memory measured | reckoned | exposed | host |"
)


def main() -> None:
    """Print a line for each row that is asked for, all if none is."""
    rows = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    print(HEAD, "|---" * 9 + "|", sep="\n")
    for name, row in rows["rows"].items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            print(line(name, {**rows["models"][row["model"]], **row}), flush=True)


def line(name: str, row: dict[str, Any]) -> str:
    """Return a row as a line of the table."""
    found = weighed(row)
    rate = row["batch"] * row["sequence"] / (found["time_us"] / 1e6)
    memory = found["held_bytes"] / 2**30
    stated = f"{row['memory']} GiB" if "memory" in row else "not published"
    fitted = ", fitted to" if row.get("fitted") else ""
    exposed, host = (
        found[name] / found["time_us"] for name in ("exposed_us", "waiting_for_host_us")
    )
    return (
        f"| {name}{fitted} | {row['machine']} x {row['gpus']} | {row['tokens']} | {rate:.0f} "
        f"| {rate / row['tokens'] - 1:+.0%} | {stated} | {memory:.1f} GiB "
        f"| {exposed:.0%} | {host:.0%} |"
    )


def weighed(row: dict[str, Any]) -> dict[str, Any]:
    """Return what the step of a row costs."""
    words = ("layers", "hidden", "inner", "heads", "kv", "vocabulary", "batch", "sequence")
    args = [text for word in words for text in (f"--{word}", str(row[word]))]
    command = [sys.executable, "-m", "torch_scenarios.cli"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.yaml"
        subprocess.run(
            [
                *(*command, "record", "--fake", "-n", str(row["gpus"]), "--ranks", "0"),
                *("--times-on", row["machine"], "-o", f"{folder}/record", "--yaml", str(path)),
                *(
                    "--",
                    str(SCRIPT),
                    *args,
                    "--recompute",
                    row["recompute"],
                    *("--norm", row.get("norm", "fused")),
                    *("--shape", row.get("shape", "llama")),
                    *("--compile", row.get("compile", "no")),
                ),
            ],
            check=False,  # 3: the other ranks are not recorded
            capture_output=True,
        )
        done = subprocess.run(
            [*command, "cost", str(path), "--topology", row["machine"], "--json", "-"],
            check=True,
            capture_output=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)["cases"][0]
    return found


if __name__ == "__main__":
    main()
