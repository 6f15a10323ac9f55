"""Where the ranks of a hang are, by their stacks -> who is not where the others wait.

A stack says where a rank is now, and nothing of what it did before. So what is found is about
places: ranks of one job that wait in different calls, or a rank that is in none::

    rank 0   barrier (train.py:21)
    rank 1   all_reduce (train.py:14)   <- still in the loop at train.py:12
    rank 2   time.sleep (data.py:88)    <- in no call of torch.distributed

Ranks that wait at one line may be in different turns of a loop, so that some have made fewer calls
before. The variable that counts is in the stack::

    for epoch in range(2):           # 0 on rank 0, 1 on rank 1
        for rows in loader:          # rank 1 had fewer rows in epoch 0
            model(rows).backward()   # both wait here

A loop counts where it goes through `range` or `enumerate`, with bounds that ask no rank, or adds a
number to a name in each turn.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import PurePath

from msgspec import Struct

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.reasons import (
    advise_turns,
    explain_places,
    explain_wait,
    find_polls,
)
from torch_scenarios.record.evidence.script import (
    Script,
    closed_scripts,
    name_of,
    place_at,
    script_at,
)
from torch_scenarios.record.evidence.stack import ENDS, RankStack
from torch_scenarios.record.format import MESSAGES
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text, values_text

#: variables that are shown, and values of each
MOST_LINES = 4
#: what a loop goes through that counts from one number on each rank
_COUNTS = frozenset({"range", "trange", "enumerate"})


def position_lines(stacks: Mapping[int, RankStack], folder: str = "") -> list[str]:
    """Return where the ranks are; ranks at one place are one line."""
    alike: dict[str, list[int]] = {}
    for rank, stack in sorted(stacks.items()):
        alike.setdefault(position_of(stack, folder), []).append(rank)
    return [f"{ranks_text(ranks)}: {words}" for words, ranks in alike.items()]


def position_of(stack: RankStack, folder: str = "") -> str:
    """Return where a rank is, in words: its call and line, or that it is in none."""
    where = stack.place.short(folder) or "no line of the script"
    if stack.call:
        return f"in {_tell_call(stack)} ({where})"
    inner = stack.frames[0]
    if inner in stack.own:
        return f"in no call of torch.distributed, at {where}"
    name = f"{inner.name}, {PurePath(inner.filename).name}:{inner.line}"
    return f"in no call of torch.distributed, at {where} (in {name})"


def _tell_call(stack: RankStack) -> str:
    """Return the call that a rank is in, with the rank that it sends to or receives from."""
    if stack.peer is None:
        return stack.call
    return f"{stack.call} {ENDS[stack.call][1]} rank {stack.peer}"


def value_lines(stacks: Mapping[int, RankStack], folder: str = "") -> list[str]:
    """Return the numbers that differ between ranks in one function of the script, the outermost.

    A variable that has the number of its rank on each says nothing.
    """
    own = {rank: [*reversed(stack.own)] for rank, stack in sorted(stacks.items())}
    if len(own) < 2:
        return []
    for frames in zip(*own.values(), strict=False):
        if len({(each.filename, each.name) for each in frames}) > 1:
            break
        held = [dict(each.values) for each in frames]
        lines = []
        for name in held[0]:
            values = {rank: each.get(name, "") for rank, each in zip(own, held, strict=True)}
            if len({*values.values()}) < 2 or "" in values.values():
                continue
            if all(value == str(rank) for rank, value in values.items()):
                continue
            where = place_at(frames[0].filename, frames[0].line, folder)
            lines.append(f"`{name}` is {values_text(values, MOST_LINES)} ({where})")
        if lines:
            return lines[:MOST_LINES]
    return []


def find_in_stacks(
    stacks: Mapping[int, RankStack], folder: str = "", *, parses: bool = True
) -> list[Finding]:
    """Return what is wrong by where ranks are: one is in no call, or they are in different ones.

    `parses` says whether the files that they name are of this machine and may be read.
    """
    waiting = {rank: each for rank, each in stacks.items() if each.call}
    outside = [rank for rank in stacks if rank not in waiting]
    if cycle := _find_cycle(waiting):
        return [_report_cycle({rank: waiting[rank] for rank in cycle}, folder)]
    if waiting and outside:
        return [_report_outside(stacks, waiting, outside, folder, parses=parses)]
    places = {(each.call, each.place.frames[:1]) for each in waiting.values()}
    if (lone := _find_lone_message(waiting)) is not None:
        return [_report_message(*lone, folder, parses=parses)]
    if len(places) < 2 or any(each.call in MESSAGES for each in waiting.values()):
        turns = _find_turns(waiting, folder) if parses else None
        return [turns] if turns is not None else []
    return [_report_apart(waiting, folder, parses=parses)]


def find_absent(
    absent: Sequence[int], stacks: Mapping[int, RankStack], folder: str = ""
) -> Finding | None:
    """Return the finding that ranks have no process, of a job all of which is on one machine.

    None where no rank is absent, or none waits in a call.
    """
    waiting = {rank: each for rank, each in stacks.items() if each.call}
    if not absent or not waiting:
        return None
    own = "its log" if len(absent) == 1 else "their logs"
    fix = f"look at the end of {own} for an error, or at `dmesg` for a process killed for memory"
    if any(each.call == "init_process_group" for each in waiting.values()):
        fix += "; where none was started, set WORLD_SIZE to as many ranks as are"
    verb = "has" if len(absent) == 1 else "have"
    return Finding(
        witness="program",
        code="missing_participant",
        prose=f"{ranks_text([*absent])} {verb} no process, and the others wait",
        notes=tuple(Clause(f"others wait: {line}") for line in position_lines(waiting, folder)[:8]),
        ranks=tuple(absent),
        fix=f"{fix}.",
    )


def _find_cycle(waiting: Mapping[int, RankStack]) -> list[int]:
    """Return ranks each of which waits in a message for the next, which is in no answer to it."""
    for start in waiting:
        chain = [start]
        while (peer := _next_of(waiting, chain[-1])) is not None and peer not in chain:
            chain.append(peer)
        if peer is not None and len(cycle := chain[chain.index(peer) :]) > 1:
            return cycle
    return []


def _next_of(waiting: Mapping[int, RankStack], rank: int) -> int | None:
    """Return for which rank another one waits in a message that the first does not answer now."""
    own = waiting.get(rank)
    other = waiting.get(own.peer) if own is not None and own.peer is not None else None
    if own is None or other is None:
        return None
    is_answer = other.call == ENDS[own.call][2] and other.peer in {rank, None}
    return None if is_answer else other.rank


def _report_cycle(cycle: Mapping[int, RankStack], folder: str) -> Finding:
    calls = {each.call for each in cycle.values()}
    fix = "put the calls in an order in which each `send` meets its `recv`."
    if len(calls) == 1:
        first = ENDS[next(iter(calls))][2]
        fix = (
            f"let one of them call `{first}` first, such as every other rank; or make both calls "
            "in one `batch_isend_irecv`."
        )
    return Finding(
        witness="program",
        code="circular_wait",
        prose=f"{ranks_text(sorted(cycle))} wait for each other in messages, each for the next one",
        notes=tuple(
            Clause(f"rank {rank} is {position_of(each, folder)}") for rank, each in cycle.items()
        ),
        ranks=tuple(sorted(cycle)),
        fix=fix,
    )


def _find_lone_message(waiting: Mapping[int, RankStack]) -> tuple[RankStack, RankStack] | None:
    """Return a rank that waits in a message, and the one that it waits for, in a collective."""
    for rank, own in waiting.items():
        peer = _next_of(waiting, rank)
        if peer is not None and waiting[peer].call not in MESSAGES:
            return own, waiting[peer]
    return None


def _report_message(own: RankStack, peer: RankStack, folder: str, *, parses: bool) -> Finding:
    sides = [([each.rank], each.place.frames) for each in (own, peer)]
    reason = explain_places(sides, folder) if parses else None
    answer = ENDS[own.call][2]
    notes = [Clause(f"rank {each.rank} is {position_of(each, folder)}") for each in (own, peer)]
    return Finding(
        witness="program",
        code=f"unmatched_{own.call}",
        prose=f"rank {own.rank} waits in {_tell_call(own)}, which is in {_tell_call(peer)}",
        notes=(*((reason[0],) if reason is not None else ()), *notes),
        ranks=tuple(sorted((own.rank, peer.rank))),
        fix=f"let rank {peer.rank} call `{answer}` {ENDS[answer][1]} rank {own.rank} before it "
        f"enters `{peer.call}`, or leave the `{own.call}` out.",
    )


def _report_outside(
    stacks: Mapping[int, RankStack],
    waiting: Mapping[int, RankStack],
    outside: Sequence[int],
    folder: str,
    *,
    parses: bool,
) -> Finding:
    """Return the finding that some ranks are in no call while others wait."""
    notes = [
        Clause(f"{ranks_text([rank])} is {position_of(stacks[rank], folder)}")
        for rank in outside[:8]
    ]
    with nullcontext() if parses else closed_scripts():
        waits = {
            rank: found
            for rank in outside[:8]
            if (found := explain_wait(stacks[rank].frames, "", folder)) is not None
        }
        others = {rank: stacks[rank].place.frames for rank in outside[:8] if rank not in waits}
        polls = find_polls(others, {}, folder)
    notes += [Clause(f"rank {rank} waits {words}") for rank, (words, _) in waits.items()]
    notes += map(Clause, polls)
    fixes = list(dict.fromkeys(fix for _, fix in waits.values()))
    notes += [Clause(f"others wait: {line}") for line in position_lines(waiting, folder)[:8]]
    verb = "is" if len(outside) == 1 else "are"
    return Finding(
        witness="program",
        code="missing_participant",
        prose=f"{ranks_text(list(outside))} {verb} in no call, and the others wait",
        notes=tuple(notes),
        ranks=tuple(outside),
        fix=fixes[0]
        if fixes
        else (
            f"look at what {ranks_text(list(outside))} does there: the others go on after it "
            "enters the same call."
        ),
    )


def _report_apart(waiting: Mapping[int, RankStack], folder: str, *, parses: bool) -> Finding:
    sides: dict[tuple[tuple[str, int, str], ...], list[int]] = {}
    for rank, each in sorted(waiting.items()):
        sides.setdefault(each.place.frames, []).append(rank)
    ordered = sorted(((who, at) for at, who in sides.items()), key=lambda each: len(each[0]))
    reason = explain_places(ordered, folder) if parses else None
    notes = [Clause(line) for line in position_lines(waiting, folder)[:8]]
    return Finding(
        witness="program",
        code="call_mismatch",
        prose="ranks wait in different calls, and none of them can go on",
        notes=(*((reason[0],) if reason is not None else ()), *notes),
        ranks=tuple(sorted(waiting)),
        fix=reason[1]
        if reason is not None
        else "let every rank make the same calls of a group in the same order.",
    )


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


def _find_turns(waiting: Mapping[int, RankStack], folder: str) -> Finding | None:
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
