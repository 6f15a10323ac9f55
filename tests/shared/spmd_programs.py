"""Random programs that all ranks take together: a strategy of hypothesis, right and broken ones.

Made of the patterns that large programs are made of: shifts around a ring, exchanges between
neighbours and across a hypercube, chains, turns of a buffer of several parts, collectives on the
world and on parts of it, arithmetic whose indexes depend on the rank, loops around all that. A
broken one lacks something on one rank, has another tag, touches a tensor in flight, or forgets to
wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import yaml
from hypothesis import strategies as st

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

Steps = list[dict[str, Any]]
Draw: TypeAlias = "DrawFn"

INDEXES = (
    "rank",
    "(rank + {i}) % n",
    "(rank * 3 - {i}) % n",
    "n - 1 - rank",
    "{i} % n",
    "-1",
    "rank - 1",
)
EXPRESSIONS = (
    "x + {one}",
    "x * 2 - {one}",
    "where(arange(n) == {at}, x, y)",
    "concat([x[: {at0}], y[{at0} :]])",
    "x + y",
    "maximum(x, y)",
    "abs(x - rank)",
    "x if rank % 2 == 0 else y",
    "flip(x)",
    "x * (rank > {i})",
    "astype(astype(x, int32), float32)",
    "sqrt(abs(x))",
    "exp(minimum(x, 1))",
    "full(n, sum(x))",
    "full(n, rank - {i})",
    "reshape(stack([x, y]), [2 * n])[{i} % n : {i} % n + n]",
    "x / (rank + 1)",
    "[rank + j for j in range(n)]",
    "roll(x, rank)",
)


def _at(draw: Draw, i: str) -> str:
    return str(draw(st.sampled_from(INDEXES))).replace("{i}", i)


def _tag(draw: Draw) -> Any:
    return draw(st.sampled_from([0, 0, 3, "rank % 2 * 0 + 1"]))


def computing(draw: Draw, i: str) -> Steps:
    """Assign to x, y or z."""
    name = draw(st.sampled_from(["x", "y", "z"]))
    text = str(draw(st.sampled_from(EXPRESSIONS)))
    one = f"x[{_at(draw, i)}]"
    text = text.replace("{one}", one).replace("{at0}", f"({i} % n)")
    text = text.replace("{at}", _at(draw, i)).replace("{i}", i)
    step: dict[str, Any] = {"compute": {name: text}}
    if draw(st.integers(0, 3)) == 0:
        step["ranks"] = draw(st.sampled_from(["rank % 2 == 0", "range(1, n)", "low", "x[0] > 1"]))
    if draw(st.integers(0, 2)) == 0:
        step["expect"] = {f"{name}[0] * 0 == 0": True, name: {"shape": ["n"]}}
    return [step]


def shift(draw: Draw, i: str) -> Steps:
    """Around the ring: started, received, waited for."""
    by, tag = draw(st.integers(1, 3)), _tag(draw)
    sent, got = "x", "y"
    if draw(st.booleans()):
        at, there = _at(draw, i), _at(draw, i)
        at, there = (f"({each} + n) % n" for each in (at, there))
        sent, got = f"x[{at} : {at} + 1]", f"y[{there} : {there} + 1]"
    source, target = f"(rank - {by}) % n", f"(rank + {by}) % n"
    start = {"isend": {"tensor": sent, "dst": target, "tag": tag}, "as": "s"}
    if draw(st.booleans()):
        return [start, {"recv": {"tensor": got, "src": source, "tag": tag}}, {"wait": "s"}]
    receive = {"irecv": {"tensor": got, "src": source, "tag": tag}, "as": "r"}
    waits: Steps = [{"wait": ["s", "r"]}] if draw(st.booleans()) else [{"wait": "r"}, {"wait": "s"}]
    both = [start, receive] if draw(st.booleans()) else [receive, start]
    return [*both, *waits]


def neighbours(draw: Draw, i: str) -> Steps:
    """Even ranks send to the odd ones above them, which answer."""
    low, high = "rank % 2 == 0 and rank + 1 < n", "rank % 2 == 1"
    tag = _tag(draw)
    steps: Steps = [
        {"ranks": low, "send": {"tensor": "x", "dst": "rank + 1", "tag": tag}},
        {"ranks": high, "recv": {"tensor": "y", "src": "rank - 1", "tag": tag}},
        {"ranks": high, "send": {"tensor": "y", "dst": "rank - 1"}},
        {"ranks": low, "recv": {"tensor": "y", "src": "rank + 1"}},
    ]
    if draw(st.booleans()):
        steps[0], steps[1] = steps[1], steps[0]
    return steps


def chain(draw: Draw, i: str) -> Steps:
    """From rank to rank: each receives before it sends."""
    receive = {"ranks": "range(1, n)", "recv": {"tensor": "y", "src": "rank - 1"}}
    send = {"ranks": "range(n - 1)", "send": {"tensor": "y", "dst": "rank + 1"}}
    change = {"ranks": "range(1, n)", "compute": {"y": "y + rank"}}
    steps = [receive, change, send] if draw(st.booleans()) else [receive, send]
    return [dict(step) for step in steps]


def batch(draw: Draw, i: str) -> Steps:
    """Exchange with the next rank in one batch."""
    by = draw(st.integers(1, 2))
    ops = [
        {"op": "isend", "tensor": "x", "peer": f"(rank + {by}) % n"},
        {"op": "irecv", "tensor": "y", "peer": f"(rank - {by}) % n"},
    ]
    if draw(st.booleans()):
        ops.reverse()
    return [{"batch_isend_irecv": ops, "as": "b"}, {"wait": "b"}]


def together(draw: Draw, i: str) -> Steps:
    """One collective, on the world or on a part."""
    group = draw(st.sampled_from([None, "low", "pair", "world"]))
    kind = draw(st.sampled_from(["barrier", "all_reduce", "broadcast", "later", "gather"]))
    where: dict[str, Any] = {} if group is None else {"group": group}
    if kind == "barrier":
        return [{"barrier": where}]
    if kind == "broadcast":
        inside = {"group_src": 0} if group else {"src": f"{i} % n"}
        return [{"broadcast": {"tensor": "x", **inside, **where}}]
    if kind == "gather":
        made = {"all": "zeros(n * n)"}
        return [{"compute": made}, {"all_gather_single": {"output": "all", "input": "x"}}]
    reduce = {"tensor": "x", "op": draw(st.sampled_from(["sum", "max"])), **where}
    if kind == "all_reduce":
        return [{"all_reduce": reduce, "expect": {"x": {"shape": ["n"]}}}]
    return [
        {"all_reduce": {**reduce, "async_op": True}, "as": "w"},
        {"compute": {"z": "y + 1"}},
        {"wait": "w"},
    ]


def turns(draw: Draw, i: str) -> Steps:
    """Messages in turns into parts of one buffer, waited for by index some turns later."""
    depth, lag = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    number = draw(st.sampled_from(["turn", "2 * turn + 1", "turn + rank", f"turn + {i}"]))
    part = draw(st.sampled_from([f"turn % {depth}", f"({number}) % {depth}", "turn"]))
    sends, takes = "True", "True"
    target, source = "(rank + 1) % n", "(rank - 1) % n"
    if draw(st.booleans()):  # from the lower half to the upper one
        sends, takes = "rank < n // 2", "rank >= n - n // 2"
        target, source = "rank + n - n // 2", "rank - n + n // 2"
    steps: Steps = []
    if draw(st.booleans()):
        steps.append({"ranks": sends, "compute": {"out[at:at + 2]": f"[rank + turn, {i}]"}})
    if draw(st.integers(0, 3)):
        earlier = "came" if number.startswith("2") else f"came[own - {lag}]"
        steps.append({"ranks": f"{takes} and turn >= {lag}", "wait": earlier})
        if draw(st.booleans()):
            steps[-1]["expect"] = {"into": {"shape": [8]}}
    steps += [
        {"ranks": sends, "isend": {"tensor": "out[at:at + 2]", "dst": target}, "as": "went[own]"},
        {"ranks": takes, "irecv": {"tensor": "into[at:at + 2]", "src": source}, "as": "came[own]"},
    ]
    if draw(st.booleans()):
        steps.append({"let": {"at": f"at + {draw(st.integers(0, 2))}"}})
    if draw(st.booleans()):
        steps = draw(st.permutations(steps))
    count = f"range({draw(st.integers(1, 4))})"
    named = {"let": {"own": number, "at": f"2 * ({part})"}}
    ends: Steps = [{"wait": ["went", "came"]}]
    if draw(st.booleans()):
        ends.append({"ranks": takes, "compute": {"y": "y + sum(into)"}})
    return [{"for": {"turn": count}, "steps": [named, *steps]}, *ends]


PATTERNS = (computing, computing, shift, shift, neighbours, chain, batch, together, turns, turns)


def without_a_rank(draw: Draw, steps: Steps) -> None:
    """Let one rank skip a step."""
    step = draw(st.sampled_from(steps))
    step["ranks"] = f"rank != {draw(st.integers(0, 4))}"


def forgotten(draw: Draw, steps: Steps) -> None:
    """Leave a step out."""
    steps.pop(draw(st.integers(0, len(steps) - 1)))


def swapped(draw: Draw, steps: Steps) -> None:
    """Let two steps change places."""
    at = draw(st.integers(0, max(len(steps) - 2, 0)))
    steps[at : at + 2] = reversed(steps[at : at + 2])


def touched(draw: Draw, steps: Steps) -> None:
    """Compute where something may be in flight."""
    name = draw(st.sampled_from(["x", "y"]))
    steps.insert(draw(st.integers(0, len(steps))), {"compute": {name: f"{name} + 1"}})


def elsewhere(draw: Draw, steps: Steps) -> None:
    """Compute what has no value on some rank."""
    text = draw(st.sampled_from(["x[rank + 1]", "x / 0 + nothing", "x[: rank]", "full(rank, 1)"]))
    text = text.replace("nothing", "where(rank > 0, x, y)")
    steps.insert(draw(st.integers(0, len(steps))), {"compute": {"z": text}})


FAULTS = (without_a_rank, forgotten, swapped, touched, elsewhere)


@st.composite
def spmd_programs(draw: Draw, *, wrong: bool) -> str:
    """Return the YAML of a program of 2 to 9 ranks; `wrong` ones may still turn out right."""
    size = draw(st.integers(2, 9))
    steps: Steps = []
    for pattern in draw(st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=5)):
        if draw(st.integers(0, 2)) == 0:
            count = draw(st.sampled_from(["range(2)", "range(n - 1)", "[3, 1]"]))
            steps.append({"for": {"i": count}, "steps": pattern(draw, "i")})
        else:
            steps += pattern(draw, str(draw(st.integers(0, 2))))
    if wrong:
        fault = draw(st.sampled_from(FAULTS))
        loops = [step["steps"] for step in steps if "steps" in step]
        fault(draw, draw(st.sampled_from([steps, *loops])))
    document = {
        "parameters": {"n": size},
        "world_size": "n",
        "groups": {
            "low": "range(0, (n + 1) // 2)",
            "pair": {"partition": [[r, r + 1] for r in range(0, size - 1, 2)]},
        },
        "tensors": {
            "x": "arange(n) + rank",
            "y": {"dtype": "float32", "value": "full(n, rank * 2)"},
            "z": [0.0] * size,
            "out": "arange(8) * 2 + rank",
            "into": "zeros(8)",
        },
        "steps": steps or [{"barrier": {}}],
    }
    return yaml.safe_dump(document, sort_keys=False, width=100)
