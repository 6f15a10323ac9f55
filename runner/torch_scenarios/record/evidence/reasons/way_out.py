"""A `return`, `break` or `continue` that some ranks take and others do not."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    DecidedParting,
    Reason,
    Tallies,
    Tally,
    list_values,
    short,
    times,
)
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.reasons.caller import ends_early
from torch_scenarios.record.evidence.reasons.loop import CLOCKS
from torch_scenarios.record.evidence.reasons.origin import SEEDED, word_values
from torch_scenarios.record.evidence.reasons.part_of_model import advise_unwrapped
from torch_scenarios.record.evidence.script import (
    Script,
    end_of,
    has_line,
    name_of,
    place_at,
    script_at,
)
from torch_scenarios.record.format import BranchTaken, Decision, RankRecord
from torch_scenarios.verdict.finding import ranks_text


def find_way_out(
    parted: DecidedParting,
    tallies: Tallies,
    loop: tuple[str, int, int] | None,
    *,
    has_returned: bool | None = None,
) -> Reason | None:
    """Return the first `if` that leads some ranks out of their block, and others not.

    A function that ranks are not in where they part `has_returned` by then: it leads past no call,
    and only what it gives may do so, or an error. True asks for those alone, False for the others
    alone. `loop` is a file with its first and last line: what lies outside of it does not count,
    and what lies in it does in any case.
    """
    for decision, own in tallies.items():
        source = script_at(decision.file)
        if decision.kind != "if" or source is None:
            continue
        if loop is not None and not (
            decision.file == loop[0] and loop[1] <= decision.line <= loop[2]
        ):
            continue
        jump = source.jump_under(decision.line)
        if jump is None:
            continue
        name, word, line = jump
        is_wanted = loop is not None or has_returned is not (
            word == "raise" or _is_around(parted, decision)
        )
        if not is_wanted or (loop is None and not _leads_past(parted, decision)):
            continue
        counts = {rank: (each.yes if name == "body" else each.no) for rank, each in own.items()}
        most = max(counts.values())
        ranks = [rank for rank, count in counts.items() if count == most]
        is_later = bool(has_returned and min(counts.values())) and _is_decided_later(
            tallies, decision, source
        )
        if min(counts.values()) == most or is_later:
            continue
        verb = "takes" if len(ranks) == 1 else "take"
        place = parted.place(decision)
        at = f":{line}" if line != decision.line else ""
        words = (
            f"{ranks_text(ranks)} alone {verb} the `{word}`{at} under `{decision.text}` ({place})"
        )
        if most > 1 or min(counts.values()):
            words += f", {times(most)} ({_others(counts, most)})"
        is_once = all(each.yes + each.no == 1 for each in own.values())
        values = word_values(parted, decision, own, None if is_once else ranks)
        words += f", where {values}" if values else ""
        absent = [rank for rank, each in own.items() if not each.yes and not each.no]
        around = _find_around(parted, decision, source, absent)
        if around is not None:
            come, go = ("does", "it does") if len(absent) == 1 else ("do", "they do")
            words += (
                f"; {ranks_text(absent)} {come} not come there: {go} not go into "
                f"`{around.text}` ({parted.place(around)})"
            )
        advice = Clause(""), _advise(parted, around or decision, source, decision)
        behind, fix = _find_decorator(parted, decision, source) or advice
        words += behind.words
        if SEEDED in words:
            fix = f"seed all ranks alike for what is drawn there; or {fix}"
        return Clause(words), fix
    return None


def _is_decided_later(tallies: Tallies, decision: Decision, source: Script) -> bool:
    """Whether some ranks alone go into an `if` of the same function behind a way out of it.

    All ranks take the way out at times, and the `if` decides what follows from that::

        if value < self.best:
            return                    rank 0 three times, rank 1 twice
        self.waited += 1
        if self.waited >= 3:
            state.stop_training()     rank 1 alone
    """
    scope = source.scope(decision.line)
    return any(
        {bool(each.yes) for each in own.values()} == {True, False}
        and all(each.yes or each.no for each in own.values())
        for other, own in tallies.items()
        if other.kind == "if" and other.file == decision.file and other.line > decision.line
        if source.scope(other.line) is scope and source.jump_under(other.line) is None
    )


def _leads_past(parted: DecidedParting, decision: Decision) -> bool:
    """Whether a decision that is in no loop which is asked for may lead past a call."""
    files = {file for _, frames in parted.sides for file, _, _ in frames}
    return (not files or decision.file in files) and parted.leads_on(decision)


def _is_around(parted: DecidedParting, decision: Decision) -> bool:
    """Whether a decision is in a function that a side of the ranks is in where they part.

    What gives a loop its items is as good as in it: a generator, or the `__next__` of an iterator.
    """
    source = script_at(decision.file)
    scope = source.scope(decision.line) if source is not None else None
    if source is None or scope is None:
        return False
    return _gives_items(scope) or any(
        file == decision.file and source.scope(line) is scope
        for _, frames in parted.sides
        for file, line, _ in frames
    )


def _gives_items(scope: ast.AST) -> bool:
    """Whether a function is a generator, or how an object is gone through."""
    return isinstance(scope, ast.FunctionDef) and (
        scope.name in {"__iter__", "__next__"}
        or any(isinstance(each, ast.Yield) for each in ast.walk(scope))
    )


def _find_decorator(parted: DecidedParting, decision: Decision, source: Script) -> Reason | None:
    """Return the line that decorates a function with the one that a way out is in, if any does.

    The function that it wraps communicates, itself or by another decorator, which is below::

        @main_only        returns on all ranks but one
        @synchronized     ends with a barrier
        def save(self):
    """
    scope = source.scope(decision.line)
    outer = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef) and node is not scope and scope in [*ast.walk(node)]
    ]
    for _, frames in parted.sides if outer else ():
        within = [
            at
            for at, (file, line, _) in enumerate(frames)
            if file == decision.file and source.scope(line) is scope
        ]
        caller = frames[within[0] + 1] if within and within[0] + 1 < len(frames) else None
        script = script_at(caller[0]) if caller is not None else None
        if script is None or caller is None:
            continue
        names = script.called(caller[1])
        for found, function in (each for name in names for each in script.functions(name)):
            for each in function.decorator_list:
                made = each.func if isinstance(each, ast.Call) else each
                if name_of(made) not in {node.name for node in outer}:
                    continue
                place = found.place(each.lineno, parted.folder)
                text = f"`@{ast.unparse(each)}` ({place})"
                words = f"; {text} wraps `{function.name}` in it, which communicates"
                fix = (
                    f"let {text} wrap what one rank may do by itself alone: put it below what "
                    f"communicates for `{function.name}`, or take it off and call "
                    f"`{function.name}` on every rank."
                )
                return Clause(words), fix
    return None


def _find_around(
    parted: DecidedParting, decision: Decision, source: Script, absent: Sequence[int]
) -> Decision | None:
    """Return the `if` around another one that keeps ranks from it; None where none does."""
    around = {
        node.test.lineno
        for node, part in source.find_statements(decision.line)
        if isinstance(node, ast.If) and part == "body"
    }
    for each, own in parted.tallies(whole=True).items() if absent else ():
        is_around = each.file == decision.file and each.line in around and each != decision
        if is_around and all(own[rank].no and not own[rank].yes for rank in absent):
            return each
    return None


def _advise(parted: DecidedParting, decision: Decision, source: Script, inner: Decision) -> str:
    """Return what mends a way out that some ranks take, by the `if` that is `inner`.

    Where it asks which rank it is, ranks have nothing to agree on: the call behind it is for all.
    What is behind a loop is not passed by who leaves the loop.
    """
    place = parted.place(decision)
    node = source.condition(decision.line)
    last = _find_last_passed(source, inner)
    passed = [
        place_at(file, line, parted.folder)
        for _, frames in parted.sides
        for file, line, _ in frames
        if node is not None and file == decision.file
        if end_of(node) < line <= last
        if source.scope(line) is source.scope(decision.line)
    ]
    unwrapped = advise_unwrapped(parted)
    jump = source.jump_under(decision.line)
    if jump is not None and jump[1] == "continue" and _gives_items(source.scope(decision.line)):
        return (
            f"let all ranks take as many steps as the one that has the fewest items left behind "
            f"{place} (an `all_reduce` with `op=min`): each of them leaves out others there."
        )
    is_number = node is not None and _reads_number(node.test)
    if (
        passed
        and not is_number
        and node is not None
        and source.tests_rank(node.test, decision.line)
    ):
        return (
            f"let every rank come to {passed[0]}, which all ranks of the group have to call: put "
            f"under `{decision.text}` ({place}) what one rank may do by itself, as to print"
            f"{unwrapped and '; '}{unwrapped}."
        )
    if node is not None and decision != inner and source.tests_rank(node.test, decision.line):
        return (
            f"let the ranks that decide `{inner.text}` ({parted.place(inner)}) `broadcast` what "
            f"they decide, and all ranks take the way out by that, not under `{decision.text}` "
            f"({place})."
        )
    if node is not None and _asks_clock(source, node):
        return (
            f"{OWN_CLOCK} ({place}): let one of them decide and "
            "`broadcast` it, or decide by a number that all ranks count alike."
        )
    return (
        f"take the way out at {place} on all ranks or on none: agree on its condition first "
        "(an `all_reduce` of a flag)."
    )


def _reads_number(test: ast.expr) -> bool:
    """Whether a condition reads a number out of a tensor: which rank it is on is not asked."""
    calls = (each for each in ast.walk(test) if isinstance(each, ast.Call))
    return any(name_of(each.func) == "item" for each in calls)


#: how an advice begins about what each rank decides by the time
OWN_CLOCK = "each rank reads its own clock there"


def _asks_clock(source: Script, node: ast.If | ast.IfExp) -> bool:
    """Whether a condition compares what a clock says: in its line, or in one that sets a part."""
    read = [ast.unparse(node.test)]
    read += [script.text(at) for script, at in source.traces(node.test, node.test.lineno)]
    return any(map(CLOCKS.search, read))


def _find_last_passed(source: Script, decision: Decision) -> float:
    """Return the last line that a way out leads past: a `break` or a `continue`, of its loop."""
    jump = source.jump_under(decision.line)
    if jump is None or jump[1] not in {"break", "continue"}:
        return math.inf
    loops = (
        end_of(each)
        for each, part in source.find_statements(decision.line)
        if isinstance(each, ast.For | ast.AsyncFor | ast.While) and part == "body"
    )
    return next(loops, math.inf)


def find_unmet(parted: DecidedParting) -> Reason | None:
    """Return the way out that leads some ranks past their part of a call that others wait in.

    The other part may come far behind, in the same function::

    if rank != 0:            rank 1 waits here
        dist.barrier()
    if path.exists():        rank 0 leaves here
        return
    if rank == 0:            and never comes here
        dist.barrier()
    """
    tallies = parted.tallies(whole=False)
    for ranks, frames in parted.parting.sides:
        others = [rank for rank in parted.ranks if rank not in ranks]
        source = script_at(frames[0][0]) if frames else None
        if source is None or not others:
            continue
        file, line, _ = frames[0]
        inside = [node for node, _ in source.find_statements(line) if isinstance(node, ast.If)]
        answer = _find_answer(source, line, inside)
        for decision, own in tallies.items() if answer else ():
            jump = source.jump_under(decision.line) if decision.file == file else None
            if decision.kind != "if" or jump is None or not line < decision.line < answer:
                continue
            part, word, at = jump
            if not all(own[rank].yes if part == "body" else own[rank].no for rank in others):
                continue
            place, there = parted.place(decision), place_at(file, answer, parted.folder)
            waits = "waits" if len(ranks) == 1 else "wait"
            takes = "takes" if len(others) == 1 else "take"
            words = (
                f"{ranks_text(others)} {takes} the `{word}`:{at} under `{decision.text}` "
                f"({place}), before {there}, which answers {short(frames, parted.folder)}, where "
                f"{ranks_text(ranks)} {waits}"
            )
            fix = f"let no way out ({place}) lead past the call at {there}: the others wait for it."
            return Clause(words), fix
    return None


def _find_answer(source: Script, line: int, inside: Sequence[ast.If]) -> int:
    """Return the next line of a function, under another `if`, that calls what a line calls."""
    names = source.called(line)
    found = [
        node.lineno
        for node in ast.walk(source.scope(line))
        if isinstance(node, ast.Call) and node.lineno > line
        if name_of(node.func) in names
        if not any(has_line(each, node.lineno) for each in inside)
        if any(isinstance(each, ast.If) for each, _ in source.find_statements(node.lineno))
    ]
    return min(found, default=0) if inside else 0


def list_own_ways(records: Mapping[int, RankRecord], folder: str) -> list[str]:
    """Return in words where ranks decide by numbers of their own what they communicate.

    They decided alike in this run, and read other numbers: in another one they may not. They leave
    a loop that communicates, or communicate under the `if`. On fake ranks, where no gradient is
    averaged, each number is a rank's own.
    """
    own: dict[Decision, dict[int, BranchTaken]] = {}
    for rank, record in records.items():
        for way in record.ways:
            if way.values and way.decision.kind == "if":
                own.setdefault(way.decision, {})[rank] = way
    is_fake = any(each.about.get("mode") == "fake" for each in records.values())
    lines = []
    for decision, ways in own.items():
        if len(ways) < max(len(records), 2) or not _differs_in_number(list(ways.values())):
            continue
        what = _tell_what_hangs_on(decision, records)
        if what and not _is_agreed_on(decision, records):
            tallies = {rank: Tally(values=way.values) for rank, way in ways.items()}
            place = place_at(decision.file, decision.line, folder)
            if _is_timed(decision):
                lines.append(_TIMED.format(decision.text, place, what))
                continue
            words = (
                f"`{decision.text}` ({place}) {what} by each rank's own number "
                f"({list_values(decision, tallies)}): where it is true on some ranks alone, the "
                "others wait; let the ranks agree on it first (an `all_reduce`)"
            )
            lines.append(words + _NOT_DECIDED * is_fake)
    lines += _list_own_ends(records, folder) if is_fake else []
    lines += _list_own_clocks(records, folder)
    return lines[:MOST_OWN_WAYS]


#: what is said of an `if` that reads a clock: its text, its place, and what it leads to
_TIMED = (
    "`{}` ({}) {} by each rank's own clock: where it is true on some ranks alone, the others wait; "
    "let one rank decide and `broadcast` it, or decide by a number that all count alike"
)


def _is_timed(decision: Decision) -> bool:
    """Whether an `if` compares what a clock says."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    return source is not None and node is not None and _asks_clock(source, node)


def _tell_what_hangs_on(decision: Decision, records: Mapping[int, RankRecord]) -> str:
    """Return what an `if` leads to that all ranks are needed for; nothing where that is nothing.

    It leaves a loop that communicates, or a function before that communicates, or there is
    communication under it.
    """
    if head := _find_loop_left(decision, records):
        return f"leaves the loop at :{head}"
    if inside := _find_call_inside(decision, records):
        return f"leads to communication (:{inside})"
    behind = _find_call_behind(decision, records)
    return f"leads past communication (:{behind})" if behind else ""


def _find_call_behind(decision: Decision, records: Mapping[int, RankRecord]) -> int:
    """Return the first line in which ranks communicate behind a way out; 0 for none.

    A `return` leads past the rest of its function, a `continue` past that of its loop.
    """
    source = script_at(decision.file)
    jump = source.jump_under(decision.line) if source is not None else None
    node = source.condition(decision.line) if source is not None else None
    if source is None or node is None or jump is None or jump[1] not in {"return", "continue"}:
        return 0
    scope = source.scope(decision.line)
    last = _find_last_passed(source, decision) if jump[1] == "continue" else math.inf
    lines = {
        at
        for record in records.values()
        for call in record.calls
        for path, at, _ in call.place.frames
        if path == decision.file and end_of(node) < at <= last and source.scope(at) is scope
    }
    return min(lines, default=0)


#: why a run of fake ranks shows nothing of a decision by numbers
_NOT_DECIDED = "; fake ranks cannot decide it, as they send no numbers"


def _list_own_clocks(records: Mapping[int, RankRecord], folder: str) -> list[str]:
    """Return in words which loops that communicate end by the time that each rank reads.

    The condition reads a clock, itself or by a function in which no rank communicates.
    """
    asked = {way.decision for each in records.values() for way in each.ways}
    lines = []
    for decision in sorted(asked, key=lambda each: (each.file, each.line)):
        source = script_at(decision.file)
        node = source.find_loop(decision.line) if source is not None else None
        if decision.kind != "while" or source is None or not isinstance(node, ast.While):
            continue
        traced = [(source, node.lineno), *source.traces(node.test, node.lineno)]
        read = [(script, at) for script, at in traced if CLOCKS.search(script.text(at))]
        loop = source.scope(node.lineno)
        is_own = any(
            at == node.lineno
            if script.scope(at) is loop
            else not _communicates(records, script, script.scope(at))
            for script, at in read[:1]
        )
        span = node.body[0].lineno, end_of(node)
        is_within = len(records) > 1 and all(
            any(
                path == decision.file and span[0] <= at <= span[1]
                for call in record.calls
                for path, at, _ in call.place.frames
            )
            for record in records.values()
        )
        if is_own and is_within:
            place = source.place(decision.line, folder)
            lines.append(
                f"`{decision.text}` ({place}) ends by each rank's own clock, and communicates: "
                "where one rank leaves it a turn before the others, these wait; let one rank "
                "decide and `broadcast` it"
            )
    return lines


def _list_own_ends(records: Mapping[int, RankRecord], folder: str) -> list[str]:
    """Return in words where a number that a rank reads out of a tensor ends a framework's loop.

    No rank communicates in the functions that read it: nothing makes it one for all ranks.
    """
    asked = {way.decision for each in records.values() for way in each.ways if way.values}
    lines = []
    for decision in sorted(asked, key=lambda each: (each.file, each.line)):
        source = script_at(decision.file)
        node = source.condition(decision.line) if source is not None else None
        if source is None or not isinstance(node, ast.If) or decision.kind != "if":
            continue
        ends = [each for part in node.body for each in ast.walk(part) if ends_early(each)]
        reads = [decision.line, *source.origins(node.test, decision.line)]
        read = next((at for at in reads if "item" in source.called(at)), 0)
        scopes = [source.scope(at) for at in (decision.line, read)] if read else []
        if not ends or not read or any(_communicates(records, source, each) for each in scopes):
            continue
        place = source.place(decision.line, folder)
        lines.append(
            f"`{decision.text}` ({place}) ends the training (`{source.text(ends[0].lineno)}`, "
            f":{ends[0].lineno}) by a number that each rank reads for itself "
            f"(`{source.text(read)}`, :{read}): where it is true on some ranks alone, the others "
            f"wait; let the ranks agree on it first (an `all_reduce`){_NOT_DECIDED}"
        )
    return lines


def _communicates(records: Mapping[int, RankRecord], source: Script, scope: ast.AST) -> bool:
    """Whether ranks have communicated in a function, or under it."""
    return not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) or any(
        path == source.file and has_line(scope, at)
        for record in records.values()
        for call in record.calls
        for path, at, _ in call.place.frames
    )


#: functions by which a rank communicates, as a script calls them
_COMMUNICATING = frozenset(
    {
        *("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all"),
        *("all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather"),
        *("gather_object", "monitored_barrier", "new_group", "reduce", "reduce_scatter"),
        *("reduce_scatter_tensor", "scatter", "scatter_object_list"),
    }
)


def _find_call_inside(decision: Decision, records: Mapping[int, RankRecord]) -> int:
    """Return the first line under an `if` in which ranks communicate, or would; 0 for none.

    A backward pass communicates where one of the run has.
    """
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    if source is None or not isinstance(node, ast.If):
        return 0
    calls = [call for record in records.values() for call in record.calls]
    by = _COMMUNICATING | (
        {"backward"} if any(each.maker == Maker.BACKWARD for each in calls) else set()
    )
    seen = {at for call in calls for path, at, _ in call.place.frames if path == decision.file}
    for part in (node.body, node.orelse):
        for each in (
            call for stmt in part for call in ast.walk(stmt) if isinstance(call, ast.Call)
        ):
            name, owner = name_of(each.func), getattr(each.func, "value", None)
            is_direct = name in by and (name == "backward" or _is_of_torch(owner))
            if each.lineno in seen or is_direct or source.reaches(name, by):
                return each.lineno
    return 0


def _is_of_torch(owner: ast.expr | None) -> bool:
    """Whether a function is called by its name alone, or is one of `torch.distributed`.

    Tensors have a `gather` and a `scatter` of their own.
    """
    return owner is None or ast.unparse(owner) in {"dist", "torch.distributed", "distributed"}


#: ways by own numbers that are told
MOST_OWN_WAYS = 2


def _is_agreed_on(decision: Decision, records: Mapping[int, RankRecord]) -> bool:
    """Whether every rank communicates in the condition itself, and so decides for all of them."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    last = end_of(node.test) if node is not None else 0
    return all(
        any(
            path == decision.file and decision.line <= at <= last
            for call in record.calls
            for path, at, _ in call.place.frames
        )
        for record in records.values()
    )


def _differs_in_number(ways: Sequence[BranchTaken]) -> bool:
    """Whether what ranks read last is a number with a fraction, and another one on each."""
    for values in zip(*(way.values for way in ways), strict=False):
        numbers = [each for each in values if each is not None and _FRACTION.fullmatch(each)]
        if len(numbers) == len(ways) and len(set(numbers)) > 1:
            return True
    return False


#: a number with a fraction, as Python writes it
_FRACTION = re.compile(r"-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)")


def _find_loop_left(decision: Decision, records: Mapping[int, RankRecord]) -> int:
    """Return the line of the loop that a `break` under an `if` leaves while ranks communicate."""
    source = script_at(decision.file)
    jump = source.jump_under(decision.line) if source is not None else None
    if source is None or jump is None or jump[1] not in {"break", "return"}:
        return 0
    for node, _ in source.find_statements(decision.line):
        if isinstance(node, ast.For | ast.While):
            last = end_of(node)
            is_left = any(
                path == decision.file and node.lineno < at <= last
                for record in records.values()
                for call in record.calls
                for path, at, _ in call.place.frames
            )
            return node.lineno if is_left else 0
    return 0


def _others(counts: Mapping[int, int], most: int) -> str:
    alike: dict[int, list[int]] = {}
    for rank, count in counts.items():
        if count != most:
            alike.setdefault(count, []).append(rank)
    return ", ".join(f"{ranks_text(ranks)} {times(count)}" for count, ranks in alike.items())
