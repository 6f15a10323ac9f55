"""Steps of `torch.distributed.rpc`: how they are read, and which orders of them are told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from torch_scenarios import judge, load, plan, simulate
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
  - barrier: {}
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
    "too few arguments": ("args: [grad], timeout", "timeout", "`push` takes 1 argument (g)"),
    "an output of nothing": (
        "returns: w}",
        "takes: 1ms}",
        "`push` returns nothing",
    ),
    "a name that is reserved": ("output: doubled", "output: rank", "reserved_name"),
}


def written(folder: Path, text: str) -> Path:
    path = folder / "rpc.yaml"
    path.write_text(text)
    return path


def test_a_program_with_every_call_is_right(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["check", str(written(tmp_path, PROGRAM))])
    assert found.exit_code == 0, found.output
    assert "1 passed" in found.output


@pytest.mark.parametrize("change", WRONG)
def test_what_is_wrong_is_invalid(tmp_path: Path, change: str) -> None:
    path = tmp_path / "rpc.yaml"
    old, new, words = WRONG[change]
    assert old in PROGRAM
    path.write_text(PROGRAM.replace(old, new))
    found = CliRunner().invoke(cli, ["check", str(path)])
    assert found.exit_code == 2, found.output
    assert words in found.output


HEAD = """\
world_size: 3
tensors: {w: {0: [1, 2]}, x: [0, 0], g: "full(2, rank)"}
functions:
  add: {arguments: [g], sets: {w: "w + g"}, returns: w}
  double: {sets: {w: "w * 2"}, returns: w}
  look: {returns: w}
  slow: {sets: {w: "w * 2"}, returns: w, takes: 2s}
  part: {arguments: [g], sets: {"w[0:1]": "g[0:1]"}}
  bad: {returns: "w + ones(3)"}
steps:
"""

#: steps behind HEAD, and the diagnoses that they have
ORDERS = {
    "sums in any order": ("- {ranks: [1, 2], rpc_sync: {to: 0, func: add, args: [g]}}", ()),
    "a sum and a product": (
        (
            "- {ranks: 1, rpc_sync: {to: 0, func: add, args: [g]}}\n"
            "- {ranks: 2, rpc_sync: {to: 0, func: double}}"
        ),
        ("message_race",),
    ),
    "what a caller got and nothing reads": (
        "- {ranks: [1, 2], rpc_sync: {to: 0, func: add, args: [g], output: seen}}",
        (),
    ),
    "what a caller got and computes with": (
        (
            "- {ranks: [1, 2], rpc_sync: {to: 0, func: add, args: [g], output: seen}}\n"
            '- {ranks: [1, 2], compute: {kept: "seen * 1"}}'
        ),
        ("message_race",),
    ),
    "one after the other": (
        (
            "- {ranks: 1, rpc_sync: {to: 0, func: add, args: [g]}}\n- barrier: {}\n"
            "- {ranks: 2, rpc_sync: {to: 0, func: double}}"
        ),
        (),
    ),
    "two futures of one caller": (
        (
            "- {ranks: 1, rpc_async: {to: 0, func: add, args: [g]}, as: a}\n"
            "- {ranks: 1, rpc_async: {to: 0, func: double}, as: b}\n- wait: [a, b]"
        ),
        ("message_race",),
    ),
    "a future that is waited for before the next": (
        (
            "- {ranks: 1, rpc_async: {to: 0, func: add, args: [g]}, as: a}\n- wait: a\n"
            "- {ranks: 1, rpc_async: {to: 0, func: double}, as: b}\n- wait: b"
        ),
        (),
    ),
    "a look next to a push": (
        (
            "- {ranks: 1, rpc_sync: {to: 0, func: look, output: y}}\n"
            "- {ranks: 2, rpc_sync: {to: 0, func: double}}\n- {ranks: 1, compute: {z: y}}"
        ),
        ("message_race",),
    ),
    "a step of the called rank": (
        "- {ranks: 1, rpc_sync: {to: 0, func: double}}\n- {ranks: 0, compute: {w: w + 1}}",
        ("message_race",),
    ),
    "a step that touches something else": (
        "- {ranks: 1, rpc_sync: {to: 0, func: double}}\n- {ranks: 0, compute: {x: x + 1}}",
        (),
    ),
    "a step that takes another way": (
        (
            "- {ranks: 1, rpc_sync: {to: 0, func: double}}\n"
            '- {ranks: "rank == 0 and w[0] > 1", compute: {x: x + 1}}'
        ),
        ("message_race",),
    ),
    "a push in the middle of a broadcast": (
        (
            "- {ranks: 1, rpc_async: {to: 0, func: double}, as: a}\n"
            "- {ranks: 0, compute: {v: w}}\n- barrier: {}\n- wait: a"
        ),
        ("message_race",),
    ),
    "a push while the weights are sent": (
        (
            "- {ranks: 1, rpc_sync: {to: 0, func: double}}\n"
            "- {ranks: 0, send: {tensor: w, dst: 2}}\n- {ranks: 2, recv: {tensor: x, src: 0}}"
        ),
        ("buffer_race",),
    ),
    "a look while the weights are sent": (
        (
            "- {ranks: 1, rpc_sync: {to: 0, func: look}}\n- {ranks: 0, send: {tensor: w, dst: 2}}\n"
            "- {ranks: 2, recv: {tensor: x, src: 0}}"
        ),
        (),
    ),
    "a push right behind what the weights are used in": (
        (
            "- {ranks: 0, send: {tensor: w, dst: 2}}\n- {ranks: 2, recv: {tensor: x, src: 0}}\n"
            "- {ranks: 2, rpc_sync: {to: 0, func: double}}"
        ),
        ("buffer_race",),
    ),
    "a push behind a barrier after it": (
        (
            "- {ranks: 0, send: {tensor: w, dst: 2}}\n- {ranks: 2, recv: {tensor: x, src: 0}}\n"
            "- barrier: {}\n- {ranks: 2, rpc_sync: {to: 0, func: double}}"
        ),
        (),
    ),
    "a push while work is under way": (
        (
            "- {ranks: 0, isend: {tensor: w, dst: 2}, as: s}\n- barrier: {}\n"
            "- {ranks: 1, rpc_sync: {to: 0, func: double}}\n"
            "- {ranks: 2, recv: {tensor: x, src: 0}}\n- wait: s"
        ),
        ("buffer_race",),
    ),
    "an argument that changes under way": (
        (
            "- {ranks: 1, rpc_async: {to: 0, func: add, args: [g]}, as: a}\n"
            "- {ranks: 1, compute: {g: g * 2}}\n- wait: a"
        ),
        ("buffer_race",),
    ),
    "a future that is dropped": (
        "- {ranks: 1, rpc_async: {to: 0, func: double}}",
        ("missing_wait",),
    ),
    "a reference that is not fetched": (
        "- {ranks: 1, remote: {to: 0, func: double}, as: r}",
        (),
    ),
    "the effect of a call that was too late": (
        (
            "- {ranks: 1, rpc_sync: {to: 0, func: slow, timeout: 1s}, expect: {raises: timeout}}\n"
            "- barrier: {}\n- {ranks: 0, compute: {seen: w}}"
        ),
        ("message_race",),
    ),
    "a call to itself": ("- {ranks: 0, rpc_sync: {to: rank, func: double}}", ()),
    "a rank that is not there": (
        "- {ranks: 0, rpc_sync: {to: rank + 3, func: double}, expect: {raises: invalid_argument}}",
        ("invalid_argument",),
    ),
    "a rank without the tensor": (
        "- {ranks: 0, rpc_sync: {to: 1, func: double}, expect: {raises: other}}",
        ("invalid_argument",),
    ),
    "a function that fails": (
        "- {ranks: 1, rpc_sync: {to: 0, func: bad}, expect: {raises: other}}",
        (),
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders_that_end_differently_are_found(tmp_path: Path, name: str) -> None:
    steps, diagnoses = ORDERS[name]
    (scenario,) = load(written(tmp_path, HEAD + steps + "\n"))
    trace = simulate(plan(scenario))
    assert {each.name for each in trace.diagnoses} == {*diagnoses}
    assert trace.outcome == "completes"
    assert not trace.limits


def test_a_value_that_a_step_states_holds_in_every_order(tmp_path: Path) -> None:
    steps = (
        "- {ranks: 1, rpc_sync: {to: 0, func: add, args: [g], output: y}, expect: {y: [2, 3]}}\n"
        "- {ranks: 2, rpc_sync: {to: 0, func: add, args: [g]}}\n"
    )
    (scenario,) = load(written(tmp_path, HEAD + steps))
    resolved = plan(scenario)
    verdict = judge(resolved, simulate(resolved))
    assert [each.code for each in verdict.findings] == ["holds_in_some_orders"]


def test_a_rank_serves_while_it_is_blocked_and_once_it_has_ended(tmp_path: Path) -> None:
    steps = (
        "- {ranks: 0, recv: {tensor: x, src: 2}}\n"
        "- {ranks: 1, rpc_sync: {to: 0, func: double, output: y}, expect: {y: [2, 4]}}\n"
        "- {ranks: 1, rpc_sync: {to: 2, func: look}, expect: {raises: other}}\n"
        "expect: {outcome: deadlock, diagnosis: [unmatched_recv, invalid_argument],"
        " blocked: {0: recv from 2}}\n"
    )
    (scenario,) = load(written(tmp_path, HEAD + steps))
    resolved = plan(scenario)
    assert judge(resolved, simulate(resolved)).status == "PASSED"


def test_pushes_that_only_add_up_cost_few_orders(tmp_path: Path) -> None:
    text = HEAD.replace("world_size: 3", "world_size: 4") + (
        "- for: {i: range(3)}\n  steps:\n"
        "  - {ranks: 'range(1, 4)', rpc_sync: {to: 0, func: add, args: [g]}}\n"
    )
    (scenario,) = load(written(tmp_path, text))
    trace = simulate(plan(scenario))
    assert not trace.diagnoses
    assert not trace.limits
