"""How fast the command answers without a run: `--help`, and `check` of cases beside torch's import.

python -m benchmarks.startup

The cases are those of startup_cases.txt: what the corpus had at revision b77c866, 473 cases, less
one that is no more. Byte code is written first, as an installer does: a checkout that is told not
to write it (PYTHONDONTWRITEBYTECODE) compiles this package anew at each start. The three commands
take turns, so that other work of the machine meets all of them.
"""

from __future__ import annotations

import compileall
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import SCENARIO, Row, median_seconds, seconds, show

ROOT = Path(__file__).parents[1]
CASES = (Path(__file__).parent / "startup_cases.txt").read_text(encoding="utf-8").split("\n")[:-1]
ROUNDS = 9


def imports_torch(arguments: list[str]) -> bool:
    """Return whether the command imports torch, by the interpreter's own record."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *SCENARIO[1:], *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    return any(line.rsplit("|", 1)[-1].strip() == "torch" for line in done.stderr.splitlines())


def main() -> None:
    """Measure all three, and look for torch among what the first two import."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "runner" / "torch_scenarios", quiet=1)
    checking = ["check", *CASES]
    checks, imports = [], []
    for _ in range(ROUNDS):
        checks.append(seconds([*SCENARIO, *checking], folder=ROOT))
        imports.append(seconds([sys.executable, "-c", "import torch"]))
    ratio = statistics.median(one / other for one, other in zip(checks, imports, strict=True))
    rows = [
        Row(
            what="`scenario --help`",
            value=f"{median_seconds([*SCENARIO, '--help'], ROUNDS):.2f} s, {_torch(['--help'])}",
            bound="<= 0.25 s",
        ),
        Row(
            what=f"`scenario check` of {len(CASES)} cases",
            value=f"{statistics.median(checks):.2f} s, {_torch(checking)}",
        ),
        Row(what="`python -c 'import torch'`", value=f"{statistics.median(imports):.2f} s"),
        Row(what="the second over the third", value=f"{ratio:.2f}", bound="<= 0.7"),
    ]
    show(rows)


def _torch(arguments: list[str]) -> str:
    return "imports torch" if imports_torch(arguments) else "without torch"


if __name__ == "__main__":
    main()
