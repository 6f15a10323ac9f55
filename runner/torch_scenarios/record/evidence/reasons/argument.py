"""Where a root, or a tensor, that differs between ranks comes from, by the text of the call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    DecidedParting,
    Reason,
    count_turns,
    list_values,
    short,
)
from torch_scenarios.record.evidence.divergence import Frames, Parting
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.reasons.left_out import (
    find_filter,
    find_sizing,
    list_collators,
)
from torch_scenarios.record.evidence.reasons.origin import tell_contents
from torch_scenarios.record.evidence.reasons.value_source import (
    HASHES_DIFFER,
    find_argument_of,
    find_hash,
    trace_value,
)
from torch_scenarios.record.evidence.script import (
    OF_RANK,
    Script,
    has_line,
    name_of,
    place_at,
    script_at,
)
from torch_scenarios.record.format import RankRecord, RecordedCall
from torch_scenarios.verdict.finding import ranks_text, values_text

#: arguments that name one rank
_ROOTS = frozenset({"src", "dst", "group_src", "group_dst"})
#: where functions take it by position
_POSITIONS = {
    **dict.fromkeys(("broadcast", "reduce", "broadcast_object_list"), 1),
    **dict.fromkeys(("gather", "scatter", "gather_object", "scatter_object_list"), 2),
}


def find_argument(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return the line that sets the root that ranks pass in one line; None where none is seen."""
    frames = next((at for _, at in parting.sides), ())
    for file, line, _ in frames[:1]:
        source = script_at(file)
        value = source.argument(line, _ROOTS, _POSITIONS) if source is not None else None
        if source is None or value is None:
            continue
        text, set_at = ast.unparse(value), source.assignment(value, line)
        place = source.place(set_at or line, folder)
        words = f"the root is `{text}`"
        if set_at:
            words += f", which is set by `{source.text(set_at)}` ({place})"
            if find_hash(source, set_at) is not None:
                words += f": {HASHES_DIFFER}"
        fix = (
            f"let `{text}` ({place}) be the same global rank on all ranks; "
            "`dist.get_global_rank(group, 0)` is the first of a group."
        )
        parted = DecidedParting(parting, records, folder)
        held, chosen = tell_contents(parted, (file, line), value) if not set_at else ("", "")
        if chosen:
            words += f", which {held.partition('` ')[2]}"
            fix = f"let all ranks take {chosen} the same way: {fix}"
        return Clause(words), fix
    return None


#: arguments that are the tensor which has to have one shape, and where functions take it
_TENSORS = frozenset({"tensor", "input_tensor", "output_tensor", "input", "output"})
_TENSOR_POSITIONS = {
    **dict.fromkeys(("all_reduce", "broadcast", "reduce", "gather", "scatter"), 0),
    **dict.fromkeys(("distribute_tensor", "send", "isend", "recv", "irecv"), 0),
    **dict.fromkeys(("all_gather", "all_gather_into_tensor", "reduce_scatter_tensor"), 1),
    "all_to_all_single": 1,
    **dict.fromkeys(("all_gather_tensor", "all_gather_tensor_autograd", "permute_tensor"), 0),
    **dict.fromkeys(("reduce_scatter_tensor_autograd", "all_to_all_single_autograd"), 0),
}
#: where those take it that give their result, and have the name of a function that fills a tensor
_GIVING_POSITIONS = dict.fromkeys(("all_gather", "reduce_scatter_tensor", "all_to_all_single"), 0)
#: arguments that are lists of tensors, and where functions take them
_LISTS = frozenset(
    {"scatter_list", "gather_list", "tensor_list", "input_list", "scatter_object_input_list"}
)
_LIST_POSITIONS = {
    **dict.fromkeys(("scatter", "gather", "reduce_scatter", "all_to_all"), 1),
    "all_gather": 0,
    "scatter_object_list": 1,
}
#: methods that part a tensor, and may leave a part short
_PARTS = frozenset({"chunk", "split", "tensor_split", "array_split"})
#: what these do
_PARTED_SHORT = (
    "`{}` leaves the last part short, or gives fewer parts, where the rows do not divide"
)


def _find_passed(source: Script, line: int) -> ast.expr | None:
    """Return the tensor that a call in a line passes; None where none is seen."""
    value = source.argument(line, _TENSORS, _TENSOR_POSITIONS)
    if value is None or isinstance(value, ast.Constant):
        return source.argument(line, {"self"}, _GIVING_POSITIONS) or value
    return value


def find_refused(call: RecordedCall, folder: str) -> str:
    """Return in words where a list of tensors comes from that torch refuses; or nothing."""
    for file, line, _ in call.place.frames[:1]:
        source = script_at(file)
        value = source.argument(line, _LISTS, _LIST_POSITIONS) if source is not None else None
        found = source.origins(value, line) if source is not None and value is not None else []
        if source is None or value is None or not found:
            continue
        words = f"the list is {_tell_origins(source, value, found, folder)}"
        more = [
            each.quote(at, folder)
            for each, at in source.traces(value, line)
            if (each is not source or at not in found) and not each.keeps_rank(at)
        ]
        words += f", from {', '.join(more[:MOST_MEASURED])}" if more else ""
        many, members = len(call.inputs), len(call.group)
        if call.operation == "scatter" and many != members:
            return f"{words}: it has {many} tensors, and the group has {members} ranks"
        parting = sorted(name for at in found for name in _list_parting(source, at))
        return f"{words}: {_PARTED_SHORT.format(parting[0])}" if parting else words
    return ""


#: what makes tensors alike that ranks pass, by what differs
_ALIKE = {
    "shape": (
        "where that comes from the rank's own data, agree on the largest first (an `all_reduce` of "
        "its size with `op=max`) and pad to it."
    ),
    "dtype": "name it where the tensor is made (`dtype=`), also where there is nothing to put in.",
}


#: what a reason has of one tensor with another dtype on each rank
HELD_OTHERWISE = "they hold it in other dtypes"


#: calls whose items come in the order in which something is over
_BY_TIME = frozenset({"as_completed", "imap_unordered", "iter_unordered"})


def _calls_of(value: ast.expr) -> set[str]:
    return {name_of(each.func) for each in ast.walk(value) if isinstance(each, ast.Call)}


def _find_by_time(source: Script, line: int, read: set[str]) -> ast.For | None:
    """Return the loop around a line whose items come as they are over, and are read there."""
    for node, _ in source.find_statements(line):
        is_by_time = isinstance(node, ast.For) and bool(_calls_of(node.iter) & _BY_TIME)
        if isinstance(node, ast.For) and is_by_time and read & _names_of(node.target):
            return node
    return None


def _explain_completion(source: Script, node: ast.For, folder: str) -> Reason:
    """Return that a loop takes its items in the order in which each rank's own tasks are over."""
    place = source.place(node.lineno, folder)
    words = (
        f"`{source.text(node.lineno)}` ({place}) gives its items in the order in which tasks end, "
        "and that order differs between ranks"
    )
    fix = (
        f"communicate in one order on all ranks ({place}): go over the tasks as they were begun, "
        "or wait for all of them and sort what they give."
    )
    return Clause(words), fix


def find_tensor(
    parting: Parting, records: Mapping[int, RankRecord], folder: str, what: str
) -> Reason | None:
    """Return what gives a tensor its shape or dtype that ranks pass in one line: a loop, a line."""
    frames = next((at for _, at in parting.sides), ())
    for file, line, _ in frames[:1]:
        source = script_at(file)
        value = _find_passed(source, line) if source is not None else None
        if source is None or value is None:
            continue
        given = _find_given(frames, value)
        made = _tell_batch_maker(frames, value, folder) if what == "shape" else ("", "")
        if given is not None:
            return _add_maker(_explain_given(given, folder, what), made)
        parted = DecidedParting(parting, records, folder)
        found = _list_run(source, value, line, parted)
        is_untyped = what == "dtype" and any(_takes_dtype(source, at) for at in found)
        looped = _find_looped(source, (value, line), found, (parting, records, folder), what)
        if looped is not None and not is_untyped:
            return looped
        measured = ""
        if what == "shape" and found:
            measured = _tell_size(source, value, (line, *found), folder)
            measured += _tell_rank(frames, value, (source, found), folder)
        if what == "shape" and not measured:
            decided = _find_decided(parted, (file, line), value)
            if decided is not None:
                return decided
        if found:
            return _add_maker(_explain_set(source, value, found, (measured, folder), what), made)
        if what == "shape" and (behind := _find_measured(frames, value, folder)) is not None:
            return behind
    return None


def _add_maker(reason: Reason, made: tuple[str, str]) -> Reason:
    """Return a reason with what makes the batch, in words, and the advice on that where it is."""
    return replace(reason[0], words=reason[0].words + made[0]), made[1] or reason[1]


def _explain_set(
    source: Script, value: ast.expr, found: list[int], about: tuple[str, str], what: str
) -> Reason:
    """Return the lines that set a tensor, with the words on its size, and what makes it alike."""
    measured, folder = about
    kept = [number for number, at in enumerate(found) if "from_numpy" in source.called(at)]
    found = found[: kept[0] + 1] if what == "dtype" and kept else found
    place = source.place(found[0], folder)
    text = ast.unparse(value)
    words = f"the tensor is {_tell_origins(source, value, found, folder)}{measured}"
    fix = f"give `{text}` ({place}) the same {what} on every rank: {_ALIKE[what]}"
    for at in found if what == "dtype" else ():
        if _takes_dtype(source, at):
            words += "; it takes the dtype of the numbers in it"
            words += ": the `sum` of no numbers is an int" * ("sum" in source.called(at))
            break
    if what == "dtype" and kept:
        there = source.place(found[-1], folder)
        words += "; `from_numpy` keeps the dtype of its array"
        fix = f"convert the array to one dtype at {there}, such as "
        fix += f"`.astype(numpy.float32)`, so that `{text}` has it on every rank."
    return Clause(words), fix


def _find_measured(frames: Frames, value: ast.expr, folder: str) -> Reason | None:
    """Return the line that parts, or measures, a tensor which callers pass to its function."""
    traced = [(each, at) for each, at in trace_value(frames, value) if not each.keeps_rank(at)]
    for script, at in traced:
        parting = sorted(_list_parting(script, at))
        if not parting and not (_MEASURES.search(script.text(at)) and script.asks_rank(at)):
            continue
        place = script.place(at, folder)
        words = f"the tensor is `{ast.unparse(value)}`, of `{script.text(at)}` ({place})"
        words += f": {_PARTED_SHORT.format(parting[0])}" if parting else ""
        fix = f"let {place} give a part of the same shape on every rank: "
        fix += (
            "pad the rows, or choose as many, so that they divide."
            if parting
            else "it depends on the rank."
        )
        return Clause(words), fix
    return None


def _takes_dtype(source: Script, line: int) -> bool:
    """Whether a line makes a tensor of numbers, and does not say of which dtype."""
    return any(
        name_of(call.func) in {"tensor", "as_tensor"}
        and len(call.args) == 1
        and isinstance(call.args[0], ast.List | ast.Tuple)
        and not any(each.arg in {None, "dtype"} for each in call.keywords)
        for call in source.calls(line)
    )


def _list_parting(source: Script, line: int) -> set[str]:
    """Return the methods that part a tensor which a line calls, of torch and not of the scripts."""
    return {each for each in source.called(line) & _PARTS if not any(source.functions(each))}


def _find_decided(parted: DecidedParting, at: tuple[str, int], value: ast.expr) -> Reason | None:
    """Return the `if` that ranks decided otherwise, and that sets what a size depends on."""
    held, chosen = tell_contents(parted, at, value)
    if not chosen:
        return None
    text, place = ast.unparse(value), place_at(*at, parted.folder)
    fix = f"let all ranks take {chosen} the same way, so that `{text}` ({place}) has one shape."
    return Clause(f"the tensor {held}"), fix


def _list_run(source: Script, value: ast.expr, line: int, parted: DecidedParting) -> list[int]:
    """Return the lines that set a tensor and what these read, without those that no rank ran.

    An attribute may be set in several methods, the last of them under an `if` that none took.
    """
    found = source.origins(value, line)
    if not isinstance(value, ast.Attribute) or not found or _has_run(source, found[0], parted):
        return found
    setting = [
        (at, given)
        for at, given in source.settings(value)
        if _has_run(source, at, parted) and not isinstance(given, ast.Constant)
    ]
    behind = [at for set_at, given in setting for at in source.origins(given, set_at)]
    ran = dict.fromkeys([*(at for at, _ in setting), *behind])
    return [at for at in ran if _has_run(source, at, parted)] or found


def _has_run(source: Script, line: int, parted: DecidedParting) -> bool:
    """Whether a line may have run: no `if` around it was decided otherwise by every rank."""
    around = {
        node.test.lineno: part
        for node, part in source.find_statements(line)
        if isinstance(node, ast.If) and part in {"body", "orelse"}
    }
    tallies = parted.tallies(whole=True, alike=True) if around else {}
    return all(
        any(each.yes if around[decision.line] == "body" else each.no for each in own.values())
        for decision, own in tallies.items()
        if decision.kind == "if" and decision.file == source.file and decision.line in around
    )


def find_batch(parting: Parting, records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return the loop over a loader whose last batch has fewer rows on some ranks.

    Until then the line has passed as many rows on all ranks, in each turn.
    """
    calls = {rank: each for rank, each in parting.calls.items() if isinstance(each, RecordedCall)}
    rows = {rank: _list_rows(call) for rank, call in calls.items()}
    known = {
        tuple(_list_rows(each))
        for rank, call in calls.items()
        for each in records[rank].calls[: records[rank].calls.index(call)]
        if each.place.frames == call.place.frames
    }
    if len(known) != 1 or any(len(each) != 1 for each in (*rows.values(), *known)):
        return None
    (full,), last = next(iter(known)), {rank: each[0] for rank, each in rows.items()}
    if len(parting.sides) != 1 or min(last.values()) >= full:
        return None
    frames = parting.sides[0][1]
    source = script_at(frames[0][0]) if frames else None
    value = _find_passed(source, frames[0][1]) if source is not None else None
    if value is None:
        return None
    counts = values_text({rank: _word_rows(count) for rank, count in sorted(last.items())})
    found = _tell_last_batch(frames, value, f"{counts}, after {full} in each turn before", folder)
    if found is None:
        return None
    words, at = found
    fix = (
        f"let the loader leave out what does not fill a batch (`drop_last=True`, {at}), or "
        "deal each rank as many rows, or pad to the longest before the ranks gather."
    )
    return Clause(f"the tensor is made of {words}"), fix


def _tell_last_batch(
    frames: Frames, value: ast.expr, has: str, folder: str
) -> tuple[str, str] | None:
    """Return in words the loop over a loader that a value is of, whose last batch is not full.

    The second is the line that makes the loader. `has` says how many rows the batch has.
    """
    traced = trace_value(frames, value, in_branches=True)
    for script, line in traced:
        head = script.find_for(line)
        made = next(
            ((each, at) for each, at in traced if "DataLoader" in each.called(at)), (script, 0)
        )
        if head is None or not made[1] or _drops_last(*made) or _counts(head.iter):
            continue
        place, at = (each.place(no, folder) for each, no in ((script, line), made))
        words = (
            f"a batch of `{script.text(line)}` ({place}), and the last batch has {has}; the loader "
            f"is `{made[0].text(made[1])}` ({at})"
        )
        return words, at
    return None


def find_collated(parting: Parting, folder: str) -> Reason | None:
    """Return the function that leaves rows out of a batch, where ranks have other numbers of them.

    It is one that a loader is given, and that may run in the loader's workers.
    """
    calls = {rank: each for rank, each in parting.calls.items() if isinstance(each, RecordedCall)}
    rows = {rank: _list_rows(call) for rank, call in calls.items()}
    if len(parting.sides) != 1 or any(len(each) != 1 for each in rows.values()):
        return None
    frames = parting.sides[0][1]
    source = script_at(frames[0][0]) if frames else None
    value = _find_passed(source, frames[0][1]) if source is not None else None
    if source is None or value is None or len({each[0] for each in rows.values()}) < 2:
        return None
    traced = trace_value(frames, value, in_branches=True)
    loops = [(e, at, node) for e, at in traced if (node := e.find_for(at)) is not None]
    head = next(((e, at) for e, at, node in loops if not _counts(node.iter)), None)
    if head is None or not any("DataLoader" in each.called(at) for each, at in traced):
        return None
    scripts = list({each.file: each for each, _ in traced}.values())
    for script, name, function in list_collators(scripts):
        at = find_filter(script, function)
        if not at:
            continue
        place, loop = (each.place(no, folder) for each, no in ((script, function.lineno), head))
        has = values_text({rank: _word_rows(each[0]) for rank, each in sorted(rows.items())})
        words = (
            f"the tensor is made of a batch of `{head[0].text(head[1])}` ({loop}), of which "
            f"`{name}` ({place}) leaves out rows by {script.quote(at, folder)}: it has {has}"
        )
        fix = (
            f"let `{name}` ({place}) put another row where it leaves one out, so that all batches "
            "are as large; or agree on the largest first (an `all_reduce` with `op=max`) and pad."
        )
        return Clause(words), fix
    return None


def _counts(items: ast.expr) -> bool:
    """Whether a loop goes over numbers, as those of the parts of a batch."""
    return any(
        isinstance(each, ast.Call) and name_of(each.func) == "range" for each in ast.walk(items)
    )


def find_last_message(
    send: RecordedCall, before: Sequence[RecordedCall], folder: str
) -> Reason | None:
    """Return the loop over a loader whose last batch gives a message fewer rows than those before.

    The stages of a pipeline agree on the shapes of their messages with the first batch.
    """
    rows, known = _list_rows(send), {each for call in before for each in _list_rows(call)}
    if len(rows) != 1 or len(known) != 1 or rows[0] >= min(known):
        return None
    for file, line, _ in send.place.frames[:1]:
        source = script_at(file)
        for value in (part for each in source.calls(line) for part in each.args) if source else ():
            has = f"fewer rows: a part of it has {rows[0]}, after {min(known)} in each turn before"
            found = _tell_last_batch(send.place.frames, value, has, folder)
            if found is not None:
                words, at = found
                fix = (
                    f"let the loader leave out what does not fill a batch (`drop_last=True`, {at}),"
                    " or fill the last one up: ranks that pass messages on have agreed on their "
                    "shapes with the first batch."
                )
                return Clause(f"what is sent is made of {words}"), fix
    return None


def _list_rows(call: RecordedCall) -> list[int]:
    """Return how many rows the one shape has that a call passes; none where there are several."""
    return [*{each.shape[0] if each.shape else 0 for each in call.inputs}]


def _word_rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def _drops_last(source: Script, line: int) -> bool:
    """Whether a loader that is made in a line leaves out a last batch that is not full."""
    return any(
        each.arg == "drop_last" and ast.unparse(each.value) != str(False)
        for call in source.calls(line)
        for each in call.keywords
    )


def _find_looped(
    source: Script,
    passed: tuple[ast.expr, int],
    found: Sequence[int],
    about: tuple[Parting, Mapping[int, RankRecord], str],
    what: str,
) -> Reason | None:
    """Return the loop that gives a tensor which ranks pass in one line, where its items differ."""
    (value, line), (parting, records, folder) = passed, about
    read = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
    made_of = _read_at(source, found)
    is_of_loop = not found or what != "shape" or not _is_new(parting, records)
    if (loop := _find_by_time(source, line, read | made_of)) is not None:
        return _explain_completion(source, loop, folder)
    loops = [node for node, _ in source.find_statements(line) if isinstance(node, ast.For)]
    for node in loops if what == "shape" else ():
        if (read | made_of) & _names_of(node.target):
            filled = _find_filled(source, node, DecidedParting(parting, records, folder))
            if filled is not None:
                return filled
    for node in loops if is_of_loop else ():
        names = _names_of(node.target)
        if not read & names and not (made_of & names and _is_of_names(node.iter)):
            continue
        if what == "dtype" and not _is_mixed(parting, records):
            return _explain_converted(source, node, ast.unparse(value), folder)
        return _explain_order(source, node, folder)
    return None


def _find_filled(source: Script, loop: ast.For, parted: DecidedParting) -> Reason | None:
    """Return the `if` under which a list is filled that a loop goes through, decided otherwise.

    Buckets of gradients, or packed samples, are as large as each rank's own limit lets them be.
    """
    items = ast.unparse(loop.iter)
    if not isinstance(loop.iter, ast.Name | ast.Attribute):
        return None
    for decision, own in parted.tallies(whole=True).items():
        node = source.condition(decision.line) if decision.file == source.file else None
        if decision.kind != "if" or not isinstance(node, ast.If):
            continue
        if not any(f"{items}.append(" in ast.unparse(each) for each in node.body):
            continue
        place = source.place(loop.lineno, parted.folder)
        values = list_values(decision, own)
        words = (
            f"`{source.text(loop.lineno)}` ({place}) goes through what each rank has put together: "
            f"{count_turns(parted, decision, own)}" + (f", where {values}" if values else "")
        )
        fix = (
            f"let every rank decide `{decision.text}` ({parted.place(decision)}) by the same "
            "values: take its limit from the code, or from one rank for all of them."
        )
        return Clause(words), fix
    return None


#: arguments that are lists of objects, and where functions take them
_OBJECTS = frozenset({"object_list", "scatter_object_output_list"})
_OBJECT_POSITIONS = dict.fromkeys(("broadcast_object_list", "scatter_object_list"), 0)


def find_objects(parted: DecidedParting) -> Reason | None:
    """Return the lines in which ranks make the lists of objects that they pass in one line."""
    call = next(iter(parted.parting.calls.values()))
    frames = call.place.frames
    source = script_at(frames[0][0]) if frames and "object_list" in call.place.api else None
    value = (
        source.argument(frames[0][1], _OBJECTS, _OBJECT_POSITIONS) if source is not None else None
    )
    if value is not None and (given := _find_given(frames, value)) is not None:
        frames = frames[1:]
        source, value = script_at(given[0]), ast.parse(given[2], mode="eval").body
    lines = _list_set(parted, source, value, frames[0][1]) if source and value is not None else {}
    if len(lines) < 2 or source is None or value is None:
        return None
    where = {line: source.place(line, parted.folder) for line in lines}
    (first, ranks), *rest = sorted(lines.items(), key=lambda each: each[1])
    verb = "passes" if len(ranks) == 1 else "pass"
    words = (
        f"{ranks_text(ranks)} {verb} `{ast.unparse(value)}`, set by `{source.text(first)}` "
        f"({where[first]})"
    )
    for line, others in rest:
        words += f"; {ranks_text(others)} by `{source.text(line)}` ({where[line]})"
    root = call.root if isinstance(call, RecordedCall) else None
    change = [line for line, who in lines.items() if root not in who]
    shown = " and ".join(f"`{source.text(line)}` ({where[line]})" for line in sorted(change))
    return Clause(words), f"pass a list of as many objects on every rank: change {shown}."


def _list_set(
    parted: DecidedParting, source: Script, value: ast.expr, line: int
) -> dict[int, list[int]]:
    """Return the lines that have set a name, each with the ranks on which it has, by their ways.

    Nothing where it is not known of a rank which of them has.
    """
    lines, found = source.assignments(value, line), dict[int, list[int]]()
    for rank in parted.ranks:
        ways: dict[int, tuple[int, int]] = {}
        for way in parted.records[rank].ways:
            if way.decision.file == source.file:
                yes, no = ways.get(way.decision.line, (0, 0))
                ways[way.decision.line] = yes + way.yes, no + way.no
        taken = [
            at
            for at in lines
            if all(
                not isinstance(node, ast.If)
                or part not in {"body", "orelse"}
                or ways.get(node.test.lineno, (0, 0))[part == "orelse"]
                for node, part in source.find_statements(at)
            )
        ]
        if not taken:
            return {}
        found.setdefault(taken[0], []).append(rank)
    return found


#: where functions take the sizes of the parts that a rank sends, and of those that it expects
_SENT, _EXPECTED = {"all_to_all_single": 3}, {"all_to_all_single": 2}


def find_sizes(parting: Parting, folder: str) -> Reason | None:
    """Return what sets the sizes of the parts of an `all_to_all_single`; None for other calls."""
    for file, line, _ in next((at for _, at in parting.sides), ())[:1]:
        source, parts = script_at(file), []
        for what, name, positions in (
            ("sent", "input_split_sizes", _SENT),
            ("expected", "output_split_sizes", _EXPECTED),
        ):
            value = source.argument(line, {name}, positions) if source is not None else None
            if source is None or value is None:
                continue
            found = source.origins(value, line)
            origin = _tell_origins(source, value, found, folder) if found else ""
            origin += _tell_returned(source, found, folder)
            parts.append(f"what is {what} is {origin or f'`{ast.unparse(value)}`'}")
        if parts:
            return Clause("; ".join(parts)), ""
    return None


def _tell_returned(source: Script, lines: Sequence[int], folder: str) -> str:
    """Return in words what a function gives that a line calls to set something; or nothing."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and node.lineno in lines[:1]:
            given = source.returned(node.value) if isinstance(node.value, ast.Call) else None
            if given is not None:
                script, at = given[0], given[1].lineno
                return f": {script.quote(at, folder)}"
    return ""


def is_split_evenly(parting: Parting) -> bool:
    """Whether the calls are `all_to_all_single`s whose line passes no sizes: parts are alike."""
    calls = [each for each in parting.calls.values() if isinstance(each, RecordedCall)]
    if not calls or any(each.operation != "all_to_all_single" for each in calls):
        return False
    for file, line, _ in calls[0].place.frames[:1]:
        source = script_at(file)
        sizes = {"input_split_sizes", "output_split_sizes"}
        positions = {"all_to_all_single": 2}
        return source is not None and source.argument(line, sizes, positions) is None
    return False


def _is_new(parting: Parting, records: Mapping[int, RankRecord]) -> bool:
    """Whether a tensor has a shape that no rank has passed before in a line where all have passed.

    Then a loop has not reached another tensor: what it reaches has another size, as the rows of a
    sparse gradient have.
    """
    calls = {rank: each for rank, each in parting.calls.items() if isinstance(each, RecordedCall)}
    passed: dict[int, set[tuple[tuple[int, ...], ...]]] = {rank: set() for rank in calls}
    for rank, call in calls.items():
        for each in records[rank].calls:
            if each is call:
                break
            if each.place.frames == call.place.frames:
                passed[rank].add(_list_shapes(each))
    known = set().union(*passed.values())
    return all(passed.values()) and any(_list_shapes(each) not in known for each in calls.values())


def _list_shapes(call: RecordedCall) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each.shape) for each in call.inputs)


def _is_mixed(parting: Parting, records: Mapping[int, RankRecord]) -> bool:
    """Whether ranks may have come to another tensor of a loop: its shape, or its dtype, says so.

    What has one shape on all ranks, and on each of them a dtype that it has in every turn, is the
    same tensor, which ranks hold in other dtypes.
    """
    calls = {rank: each for rank, each in parting.calls.items() if isinstance(each, RecordedCall)}
    if len({tuple(each.shape for each in call.inputs) for call in calls.values()}) > 1:
        return True
    passed = {
        rank: {
            each.dtype
            for other in records[rank].calls
            if other.place.frames == call.place.frames
            for each in other.inputs
        }
        for rank, call in calls.items()
    }
    return any(len(dtypes) > 1 for dtypes in passed.values())


def _explain_converted(source: Script, node: ast.For, text: str, folder: str) -> Reason:
    place = source.place(node.lineno, folder)
    words = (
        f"the tensor is `{text}` of `{source.text(node.lineno)}` ({place}), of one shape on all "
        f"ranks: {HELD_OTHERWISE}"
    )
    fix = (
        f"hold what the loop at {place} goes through in one dtype on every rank: convert it where "
        "it is made or loaded (`.to(dtype)`, `load_state_dict` without `assign=True`)."
    )
    return Clause(words), fix


def _find_given(frames: Frames, value: ast.expr) -> tuple[str, int, str] | None:
    """Return the line of the caller that passes what a function calls with, and how it is called.

    None where the function sets it itself: then its own lines say where it comes from.
    """
    (file, line, _), *callers = frames
    source = script_at(file)
    scope = source.scope(line) if source is not None else None
    if source is None or not isinstance(scope, ast.FunctionDef) or not callers:
        return None
    names = [each.arg for each in scope.args.args]
    is_own = isinstance(value, ast.Name) and value.id in names
    if not is_own or source.assignment(value, line) or not isinstance(value, ast.Name):
        return None
    at_file, at_line, _ = callers[0]
    caller = script_at(at_file)
    for call in ast.walk(caller.tree) if caller is not None else ():
        if not isinstance(call, ast.Call):
            continue
        name = name_of(call.func)
        if name != scope.name or not has_line(call, at_line):
            continue
        place = names.index(value.id) - (names[0] in {"self", "cls"})
        named = {each.arg: each.value for each in call.keywords}
        found = named.get(value.id) or (call.args[place] if place < len(call.args) else None)
        return (at_file, at_line, ast.unparse(found)) if found is not None else None
    return None


def _explain_given(given: tuple[str, int, str], folder: str, what: str) -> Reason:
    file, line, text = given
    place = place_at(file, line, folder)
    source, value = script_at(file), ast.parse(text, mode="eval").body
    found = source.origins(value, line) if source is not None else []
    shown = f"`{text}`, which"
    if source is not None and found:
        shown = f"{_tell_origins(source, value, found, folder)}, and"
    words = f"the tensor is {shown} is passed at {place}"
    if source is not None and what == "shape":
        words += _tell_size(source, value, (line, *found), folder)
    fix = f"give `{text}` ({place}) the same {what} on every rank: {_ALIKE[what]}"
    return Clause(words), fix


def _tell_batch_maker(frames: Frames, value: ast.expr, folder: str) -> tuple[str, str]:
    """Return what of the script's makes the batch that a framework passes on, and its size.

    That is where a value comes from a parameter of a function that no script calls. The second is
    what mends it; both are empty where nothing is seen.
    """
    source = script_at(frames[0][0])
    if source is None or not _is_given_by_framework(frames, value):
        return "", ""
    for script, name, function in list_collators((source, *source.imported())):
        at = find_sizing(script, function)
        if at:
            place = script.place(at, folder)
            words = (
                f"; `{name}` makes the batch, and sets its size by `{script.text(at)}` ({place})"
            )
            fix = f"let `{name}` make batches of one size on every rank ({place}): it may replace, "
            return (
                words,
                f"{fix}cut or pad rows, and not leave them out; or pad before the ranks meet.",
            )
    return "", ""


def _is_given_by_framework(frames: Frames, value: ast.expr) -> bool:
    """Whether a value comes from a parameter of a function that no script calls."""
    for depth, (file, line, _) in enumerate(frames):
        source = script_at(file)
        scope = source.scope(line) if source is not None else None
        if source is None or not isinstance(scope, ast.FunctionDef):
            return False
        traced = source.traces(value, line, in_parts=True)
        lines = [at for script, at in traced if script is source]
        read = _read_at(source, lines) | {
            each.id for each in ast.walk(value) if isinstance(each, ast.Name)
        }
        names = [each.arg for each in scope.args.args if each.arg in read - {"self", "cls"}]
        passed = [find_argument_of(source, name, line, frames[depth + 1 :]) for name in names]
        if not names:
            return False
        held = [each for each in passed if each is not None]
        if not held:
            return True
        value = ast.Tuple(held, ast.Load())
    return False


def find_made(parted: DecidedParting) -> Reason | None:
    """Return what the calls of a line depend on that differs by rank, over all scripts.

    Nothing says that this is why ranks part: it is named where nothing else is known, as of a
    framework that is made with another setting on each rank. What all ranks were given alike is
    not it.
    """
    folder = parted.folder
    for _, frames in parted.parting.sides:
        source = script_at(frames[0][0]) if frames else None
        line = frames[0][1] if frames else 0
        calls = source.calls(line) if source is not None else []
        read: list[ast.expr] = [each.func for each in calls]
        read += [arg for each in calls for arg in each.args]
        made = source.traces(ast.Tuple(read, ast.Load()), line) if source is not None else []
        asking = [
            (each, at)
            for each, at in made
            if each.asks_rank(at) and not each.keeps_rank(at)
            if not _is_given_alike(parted, each, at)
        ][:MOST_MADE]
        if asking:
            shown = ", ".join(each.quote(at, folder) for each, at in asking)
            place, last = short(frames, folder), shown.split(", `")[-1].strip("`")
            fix = f"look first at `{last}: let every rank make the same of it."
            return Clause(f"what {place} calls depends on what differs by rank: {shown}"), fix
    return None


#: lines that differ by rank which are shown
MOST_MADE = 2


def _is_given_alike(parted: DecidedParting, source: Script, line: int) -> bool:
    """Whether a statement asks what differs by rank for arguments that all ranks were given alike.

    The arguments of a call are named: `output_dir=os.environ["RUN"]`.
    """
    first, last = source.span(line)
    alike = {
        decision.text.partition("=")[0]
        for decision, own in parted.tallies(whole=True, alike=True).items()
        if decision.kind == "given" and decision.file == source.file
        if first <= decision.line <= last and len({each.values for each in own.values()}) == 1
    }
    named = [
        each
        for call in source.calls(line)
        for each in call.keywords
        if OF_RANK.search(ast.unparse(each))
    ]
    return bool(named) and all(each.arg in alike for each in named)


def find_order(parting: Parting, folder: str) -> Reason | None:
    """Return the loop in which ranks pass other members to `new_group` in the same turn.

    Where an `if` in the loop leaves groups out on some ranks, it is that.
    """
    for file, line, _ in next((at for _, at in parting.sides), ())[:1]:
        source, chosen = script_at(file), 0
        for node, part in source.find_statements(line) if source is not None else ():
            if source is None:
                break
            if isinstance(node, ast.If) and part == "body" and source.names_rank(node.lineno):
                chosen = chosen or node.lineno
            if not isinstance(node, ast.For):
                continue
            place = source.place(node.lineno, folder)
            if chosen:
                where, at = (source.place(each, folder) for each in (chosen, line))
                words = (
                    f"each rank makes the groups alone that it is in: `{source.text(chosen)}` "
                    f"({where}) leaves out those of others"
                )
                return Clause(words), (
                    f"call `new_group` ({at}) for each group on every rank, also on those that are "
                    f"not in it: move it out of `{source.text(chosen)}` ({where}), and keep there "
                    "which group is the rank's own."
                )
            order, _ = _explain_order(source, node, folder, "makes another group")
            return order, (
                f"let the loop at {place} make the same groups in the same order on every "
                "rank, also those without that rank: all ranks call `new_group` for each one."
            )
    return None


def _tell_rank(
    frames: Frames, value: ast.expr, known: tuple[Script, Sequence[int]], folder: str
) -> str:
    """Return in words the lines behind a tensor by which it differs between ranks."""
    source, lines = known
    found = [
        each.quote(at, folder)
        for each, at in trace_value(frames, value)
        if each.asks_rank(at)
        and not each.keeps_rank(at)
        and (each is not source or at not in lines)
    ]
    return f"; it differs by rank through {', '.join(found[:MOST_MEASURED])}" if found else ""


#: lines that measure, or draw, how large something is
_MEASURES = re.compile(
    r"\b(?:len|max|min|numel|size|count|nonzero|randint|randrange|choice)\(|\.shape\b"
)
#: such lines that are shown
MOST_MEASURED = 2


def _tell_size(source: Script, value: ast.expr, known: Sequence[int], folder: str) -> str:
    """Return in words the lines behind those of a tensor that measure how large it is."""
    found = [
        each.quote(at, folder)
        for each, at in source.traces(value, known[0])
        if (each is not source or at not in known) and _MEASURES.search(each.text(at))
    ]
    return f"; its size comes from {', '.join(found[:MOST_MEASURED])}" if found else ""


def _tell_origins(source: Script, value: ast.expr, lines: Sequence[int], folder: str) -> str:
    """Return an expression with the lines that set what it reads."""
    verb = "is set by" if isinstance(value, ast.Name | ast.Attribute) else "reads"
    set_by = ", ".join(source.quote(at, folder) for at in lines)
    return f"`{ast.unparse(value)}`, which {verb} {set_by}"


def find_buffer(place: Frames, folder: str) -> tuple[str, str]:
    """Return what a message's line passes as its tensor, and the line that sets it; or nothing."""
    for file, line, _ in place[:1]:
        source = script_at(file)
        value = _find_passed(source, line) if source is not None else None
        if source is None or value is None:
            continue
        found = source.origins(value, line)
        if not found:
            return f"`{ast.unparse(value)}`", short(place, folder)
        where = source.place(found[0], folder)
        return _tell_origins(source, value, found, folder), where
    return "", ""


def _names_of(target: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}


def _read_at(source: Script, lines: Sequence[int]) -> set[str]:
    """Return the names that assignments read, by their lines."""
    return {
        name.id
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and node.lineno in lines
        for name in ast.walk(node.value)
        if isinstance(name, ast.Name)
    }


#: calls that give what a dict or a set holds, in the order in which it was put in
_HELD = frozenset({"items", "values", "keys", "set", "named_parameters", "parameters"})
#: what gives results in the order in which they are ready
_READY = re.compile(r"\b(?:as_completed|imap_unordered)\(")
#: calls that keep the order of what they are given
_KEEPING = frozenset({"enumerate", "zip", "list", "tuple", "reversed"})


def _is_of_names(node: ast.expr) -> bool:
    """Whether a loop goes through a dict or a set, whose order each rank has for itself."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Set)
    name = name_of(node.func)
    return name in _HELD or (name in _KEEPING and any(map(_is_of_names, node.args)))


def _explain_order(
    source: Script, node: ast.For, folder: str, what: str = "reaches another tensor"
) -> Reason:
    """Return that a loop comes to something else on some ranks in the same turn."""
    place = source.place(node.lineno, folder)
    words = f"`{source.text(node.lineno)}` ({place}) {what} on some ranks"
    returned, generator = source.returns(node.iter), source.generator(node.iter)
    made = [(source, returned)] if returned else []
    made += [generator] if generator is not None and not made else []
    if not made:  # `reverse` and `insert` keep an order that the list has had by what made it
        changed = source.changes(node.iter, node.lineno)
        made += [(source, changed)] if changed else []
        origins = source.origins(node.iter, node.lineno)[:1]
        made += [(source, at) for at in origins if not changed or source.asks_rank(at)]
    for script, at in made:
        words += f": {script.quote(at, folder)}"
        if _READY.search(script.text(at)):
            words += " gives them in the order in which they are ready"
            return Clause(words), (
                f"let the loop at {place} go through the same in the same order on every rank: in "
                "the order in which they were submitted."
            )
    fix = (
        f"let the loop at {place} go through the same in the same order on every rank: by names "
        "that all have, sorted, and not by what each rank has measured or drawn."
    )
    return Clause(words), fix


def find_forward_input(parting: Parting, folder: str) -> Reason | None:
    """Return what a line gives to a model whose layers ranks share; None where that is not seen.

    The calls of tensor parallelism are as large as the batch: where a sampler deals each rank rows
    of its own, as for data parallelism, ranks that compute one layer together do not fit.
    """
    frames = next((at for _, at in parting.sides), ())
    calls = [each for each in parting.calls.values() if isinstance(each, RecordedCall)]
    if (
        len(parting.sides) != 1
        or not calls
        or any(each.maker != Maker.FUNCTIONAL for each in calls)
    ):
        return None
    for file, line, _ in frames:
        source = script_at(file)
        for call in source.calls(line) if source is not None else ():
            for name, given in _list_names_given(call):
                origin = _tell_dealt(source, name, line, folder) if source is not None else ""
                if not origin:
                    continue
                place, model = place_at(file, line, folder), ast.unparse(call.func)
                words = f"`{given}`, which `{model}` is given ({place}), has another shape on "
                words += f"each rank; it comes from {origin}"
                fix = (
                    f"give the ranks that share the layers of `{model}` the same `{given}`: let "
                    "what deals the rows take the rank and the size of the data-parallel dimension "
                    "of the mesh, or `broadcast` what one of them has read."
                )
                return Clause(words), fix
        scope = source.scope(line) if source is not None else None
        if getattr(scope, "name", "") != "forward":
            return None  # the next line calls no module of the scripts
    return None


def _deals_to_world(source: Script, line: int) -> bool:
    """Whether a line makes a sampler that deals to all ranks of the world, as none are named."""
    return any(
        name_of(call.func) == "DistributedSampler"
        and len(call.args) < DEALS_AT
        and not any(each.arg in {None, "rank"} for each in call.keywords)
        for call in source.calls(line)
    )


#: the place at which `DistributedSampler` takes the rank that it deals to
DEALS_AT = 3


def _list_names_given(call: ast.Call) -> Iterator[tuple[ast.Name, str]]:
    """Yield the names that a call is given, or parts of, each as it is written there."""
    for given in call.args:
        held = given
        while isinstance(held, ast.Subscript | ast.Attribute):
            held = held.value
        if isinstance(held, ast.Name):
            yield held, ast.unparse(given)


def _tell_dealt(source: Script, name: ast.Name, line: int, folder: str) -> str:
    """Return the loop that gives a name, and the line behind it that reads the rank; or nothing."""
    loops = [
        node
        for node, _ in source.find_statements(line)
        if isinstance(node, ast.For)
        and name.id in {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
    ]
    read, at = (loops[0].iter, loops[0].lineno) if loops else (name, line)
    shown = [source.quote(at, folder)] * bool(loops)
    own = next(
        (
            (script, number)
            for script, number in source.traces(read, at)
            if (script.asks_rank(number) and not script.keeps_rank(number))
            or _deals_to_world(script, number)
        ),
        None,
    )
    if own is not None:
        script, number = own
        shown += [script.quote(number, folder)]
    return ", and that from ".join(shown)
