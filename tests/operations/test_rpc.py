"""Steps of `torch.distributed.rpc`: read whole, UNSUPPORTED with a reason, INVALID where wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
world_size: 2
tensors: {w: [1, 2], grad: [1, 1]}
functions:
  push: {arguments: [g], sets: {w: "w - 0.1 * g"}, returns: w}
  slow: {returns: "w * 2", takes: 200ms}
steps:
  - rpc_sync: {to: 1, func: push, args: [grad], timeout: 1s, output: fresh}
    ranks: 0
    expect: {fresh: [0.9, 1.9]}
  - for: {i: "range(2)"}
    steps:
      - remote: {to: 1, func: slow}
        as: r
        ranks: 0
      - to_here: {rref: r, output: z}
        ranks: 0
  - rpc_async: {to: rank, func: slow, args: []}
    as: f
  - wait: {handle: f, output: doubled}
  - all_reduce: {tensor: grad, async_op: true}
    as: work
  - wait: work
expect:
  doubled: {0: [2, 4], 1: [1.8, 3.8]}
"""
WRONG = {
    "a misspelt call": ("rpc_sync:", "rpc_sinc:", "unknown_operation"),
    "a misspelt argument": ("timeout: 1s", "time_out: 1s", "unknown_argument"),
    "no rank": ("to: 1, func: push", "func: push", "missing_argument"),
    "an unknown function": ("func: push", "func: pusch", "did you mean `push`?"),
    "a misspelt key of a function": ("returns: w}", "return: w}", "did you mean `returns`?"),
    "an unknown name in a function": ("w - 0.1 * g", "w - 0.1 * h", "unknown_name"),
    "a function that calls another": ("w * 2", "push(w)", "unknown_function"),
    "a function that sets what no rank holds": ("sets: {w:", "sets: {v:", "unknown_name"),
    "a function that sets its argument": ("sets: {w:", "sets: {g:", "`g` is an argument"),
    "an argument twice": ("[g]", "[g, g]", "duplicate_name"),
    "an unknown handle": ("rref: r", "rref: q", "unknown_handle"),
    "a handle of something else": ("rref: r", "rref: work", "is not what `remote` returned"),
    "an output of a collective": (
        "wait: work",
        "wait: {handle: work, output: y}",
        "is not the work of `rpc_async`",
    ),
    "a name that is reserved": ("output: doubled", "output: rank", "reserved_name"),
}


@pytest.mark.parametrize("command", ["check", "run", "list --needs"])
def test_a_case_with_rpc_is_unsupported_with_its_reason(tmp_path: Path, command: str) -> None:
    path = tmp_path / "rpc.yaml"
    path.write_text(PROGRAM)
    found = CliRunner().invoke(cli, [*command.split(), str(path)])
    assert found.exit_code == 0, found.output
    assert "runs a function on the rank that it calls" in found.output
    if command != "list --needs":
        assert "UNSUPPORTED" in found.output


@pytest.mark.parametrize("change", WRONG)
def test_what_is_wrong_is_invalid(tmp_path: Path, change: str) -> None:
    path = tmp_path / "rpc.yaml"
    old, new, words = WRONG[change]
    assert old in PROGRAM
    path.write_text(PROGRAM.replace(old, new))
    found = CliRunner().invoke(cli, ["check", str(path)])
    assert found.exit_code == 2, found.output
    assert words in found.output
