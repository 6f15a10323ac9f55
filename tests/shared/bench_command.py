"""The command `scenario bench`, and a small program that it measures."""

from __future__ import annotations

from click.testing import CliRunner

from torch_scenarios.cli import cli

BENCHED = """
world_size: 2
parameters: {bytes: 64}
tensors: {x: "full(bytes // 4, rank + 1)"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: "full(bytes // 4, 3)"}
"""


def benched(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the output of `scenario bench`."""
    result = CliRunner().invoke(cli, ["bench", *arguments])
    return result.exit_code, result.output
