"""Small files that together say nearly everything, and every value of them replaced."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

#: small files that together have every sort of place
FILES = {
    "collectives": """\
world_size: 4
parameters: {n: 2, which: sum}
matrix: {dtype: [float32, int64]}
groups:
  even: [0, 2]
  pair: {partition: [[0, 1], [2, 3]]}
  node: {size: 2, timeout: 3s}
  mesh: {shape: [2, 2], dims: [dp, tp]}
tensors: {x: {dtype: dtype, value: "full(n, rank)", shape: [2]}, y: {0: [1, 2], else: [3, 4]}}
objects: {config: [{lr: 0.1, of: {expr: rank}}]}
steps:
  - {all_reduce: {tensor: x, op: which, group: even, async_op: true}, as: work}
  - wait: [work]
  - {broadcast: {tensor: y, src: 0, group: mesh.dp}, ranks: "rank in world", name: copy}
  - all_to_all_single: {input: x, output: y, input_split_sizes: [1, 1], group: pair}
  - broadcast_object_list: {object_list: config, src: 0}
""",
    "messages": """\
world_size: 2
timeout: 5s
tensors: {x: "full(2, rank)", y: [0, 0]}
steps:
  - ranks: 0
    send: {tensor: "x[0:1]", dst: 1, tag: 3}
  - ranks: 1
    recv: {tensor: "y[0:1]", src: 0, tag: 3}
    expect: {y: {value: [0, 0], rtol: 0.1}, "before(x, 0)": [0, 0], elapsed: {min: 0s, max: 9s}}
  - batch_isend_irecv: [{isend: {tensor: x, dst: 0}}, {op: irecv, tensor: y, peer: 0}]
    ranks: []
    as: batch
  - for: {i: "range(2)"}
    steps: [{compute: {x: "x + i", z: {value: [1], dtype: int8}}, expect: {z: unchanged}}]
  - new_group: {name: made, group_ranks: [0, 1], timeout: 1s, sort_ranks: false}
  - sleep: 1ms
  - {ranks: 1, fault: {raise: enough}, expect: {raises: {1: {other: enough}, else: none}}}
expect: {outcome: completes, within: 9s, x: {else: unchanged, 0: [1, 1]}, gloo: {outcome: error}}
""",
    "wrong": """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - {ranks: 1, fault: kill}
  - {barrier: {timeout: 1s}}
expect:
  outcome: crash
  dies: {1: SIGKILL}
  blocked: {0: barrier}
  diagnosis: [missing_participant]
  raises: {0: [peer_lost, timeout]}
""",
}
#: what stands in place of a value: every sort of YAML, and much that is nearly right
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 99, 1.5, 1e300, float("inf"), float("nan"), 10**30),
    *("", "x", "rank", "world", "else", "unchanged", "sum", "float32", "timeout", "10s", "kill"),
    *("x + 1", "full(2, rank)", "range(4)", "[1, 2]", "[x, x]", "x[100]", "1 / 0", "(", "a: b"),
    *("before(x, 0)", "10 ** 10 ** 10", "full(10**9, 0)", "[i for i in range(9)]", "x.real"),
    *([], {}, [[]], [1, [2]], ["x", 1], {0: 1}, {"else": "x"}, {"value": "x", "dtype": "int8"}),
    *({"expr": "rank"}, {"raise": "a"}, {"min": "1s"}, {"partition": [[0.5]]}, {"size": "x"}),
)
KEYS = ("x", "group", "expect", "value", "raises", None, 0, "rank == 0", "a.b")


def places(tree: Any) -> list[tuple[Any, ...]]:
    """Return the path to every value of a tree."""
    if isinstance(tree, dict):
        parts = list(tree.items())
    else:
        parts = list(enumerate(tree)) if isinstance(tree, list) else []
    return [(key, *path) for key, part in parts for path in ((), *places(part))]


def mutants(tree: Any) -> Iterator[Any]:
    """Yield the tree with one value replaced, wrapped, left out or renamed, in every way."""
    for *path, at in places(tree):
        held = reached(tree, path)[at]
        for value in (*VALUES, [held], {0: held}, {"else": held}):
            made = copy.deepcopy(tree)
            reached(made, path)[at] = copy.deepcopy(value)
            yield made
        made = copy.deepcopy(tree)
        del reached(made, path)[at]
        yield made
        for key in KEYS if isinstance(reached(tree, path), dict) else ():
            made = copy.deepcopy(tree)
            inside = reached(made, path)
            inside[key] = inside.pop(at)
            yield made


def reached(tree: Any, path: Sequence[Any]) -> Any:
    """Return the part of a tree that a path leads to."""
    for key in path:
        tree = tree[key]
    return tree


class Plain(yaml.CSafeDumper):
    """Writes no aliases: every value stands where it is used."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: D102 -- the dumper's own
        return True
