"""Ranks that wait at one line, but in different turns of a loop: some have made fewer calls before.

The variable of a loop that counts is in the stack, and says how often a rank has gone round::

    for epoch in range(2):           # 0 on rank 0, 1 on rank 1
        for rows in loader:          # rank 1 had fewer rows in epoch 0
            model(rows).backward()   # both wait here

A loop counts where it goes through `range` or `enumerate`, with bounds that ask no rank, or adds a
number to a name in each turn.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from msgspec import Struct

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.reasons import advise_turns
from torch_scenarios.record.evidence.script import Script, name_of, script_at
from torch_scenarios.record.evidence.stack import RankStack
from torch_scenarios.record.format import MESSAGES
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text, values_text

#: what a loop goes through that counts from one number on each rank
_COUNTS = frozenset({"range", "trange", "enumerate"})


class _Loop(Struct, frozen=True):
    """A loop around the line at which ranks wait."""

    script: Script
    node: ast.For | ast.While

    def quote(self, folder: str) -> str:
        return self.script.quote(self.node.lineno, folder)

    @property
    def counter(self) -> str:
        """The variable that counts its turns; empty where none does, or ranks begin apart."""
        node = self.node
        call, target = (
            (node.iter, node.target) if isinstance(node, ast.For) else (node.test, node.test)
        )
        kind = name_of(call.func) if isinstance(call, ast.Call) else ""
        if kind in _COUNTS and not self.script.tests_rank(call, node.lineno):
            first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
            return name_of(first)
        added = (each for each in node.body if isinstance(each, ast.AugAssign))
        return next((name_of(each.target) for each in added if _is_sum(each)), "")


def _is_sum(node: ast.AugAssign) -> bool:
    """Whether a statement adds a number to a name."""
    is_name = isinstance(node.target, ast.Name) and isinstance(node.op, ast.Add)
    return is_name and isinstance(node.value, ast.Constant)


def find_turns(waiting: Mapping[int, RankStack], folder: str) -> Finding | None:
    """Return the finding that ranks wait in one call at one line, in different turns of a loop.

    None where they are at different lines, in messages, or in the same turn as far as is known.
    """
    if len({(each.call, each.place) for each in waiting.values()}) != 1:
        return None
    first = next(iter(waiting.values()))
    if first.call in MESSAGES or len(waiting) < 2:
        return None
    loops = [*_list_loops(waiting)]
    for at, (loop, values) in enumerate(loops):
        if len({*values.values()}) < 2:
            continue
        within = next((each for each, _ in loops[at + 1 :]), None)
        least = min(values.values())
        ahead = [rank for rank, value in values.items() if value != least]
        shown = values_text({rank: str(value) for rank, value in values.items()}, len(values))
        who, s = ranks_text(ahead), "s" if len(ahead) == 1 else ""
        if within is None:
            place = loop.script.place(loop.node.lineno, folder)
            why = f"{who} make{s} fewer calls in some turn of the loop"
            fix = (
                f"let every rank make the same calls in each turn of the loop at {place}: a "
                "`continue`, or an `if` or `except` that some ranks take, leaves calls out."
            )
        else:
            place = within.script.place(within.node.lineno, folder)
            shorter = within.quote(folder)
            why = f"{who} take{s} fewer turns of the loop {shorter}, or make{s} fewer calls in them"
            head = within.script.text(within.node.lineno).removesuffix(":")
            fix = advise_turns(
                head,
                (within.script.file, within.node.lineno),
                place,
                is_backward=first.call == "backward",
            )
        return Finding(
            witness="program",
            code="call_mismatch",
            prose="ranks wait at one line in different turns of a loop, and none can go on",
            notes=(
                Clause(f"`{loop.counter}` is {shown}, in the loop {loop.quote(folder)}"),
                Clause(why),
            ),
            ranks=tuple(sorted(waiting)),
            fix=fix,
        )
    return None


def _list_loops(waiting: Mapping[int, RankStack]) -> Iterator[tuple[_Loop, dict[int, int]]]:
    """Yield the loops around where ranks wait, outermost first, with the turn of each rank.

    A loop that does not count has no turns. It ends where the ranks are at different lines.
    """
    for frames in zip(*(reversed(each.own) for each in waiting.values()), strict=False):
        if len({(each.filename, each.name, each.line) for each in frames}) > 1:
            return
        script = script_at(frames[0].filename)
        around = script.find_statements(frames[0].line) if script is not None else []
        for node, part in reversed(around):
            if script is None or not isinstance(node, ast.For | ast.While) or part != "body":
                continue
            loop = _Loop(script, node)
            held = [dict(each.values).get(loop.counter, "") for each in frames]
            known = all(value.removeprefix("-").isdigit() for value in held)
            yield loop, dict(zip(waiting, map(int, held), strict=True)) if known else {}
