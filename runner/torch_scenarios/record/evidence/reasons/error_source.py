"""The line of a script that an error of torch is about, and that its words do not name.

An error is raised where something is noticed. What has to be changed is elsewhere: the first of two
`init_process_group`, the lambda that cannot be pickled, the checkpoint that runs a layer again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason, short
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.reasons.left_out import find_sizing, list_collators
from torch_scenarios.record.evidence.reasons.listed_files import find_listed
from torch_scenarios.record.evidence.script import Script, name_of, script_at
from torch_scenarios.record.format import RENDEZVOUS, BlockingCall, RankRecord

#: lines that set what a call passes which are shown
MOST_PASSED = 3


def find_source(record: RankRecord, folder: str) -> Reason | None:
    """Return the line that a rank's error is about, and what mends it; None where none is known."""
    for pattern, find in _KNOWN:
        found = pattern.search(record.error or "")
        if found is not None:
            return find(record, found, folder)
    return None


def tell_passed(record: RankRecord, folder: str) -> str:
    """Return the lines that set what a call passes which torch, or another library, refuses.

    Nothing where the script's own line raises. Lines of a constructor are left out.
    """
    for file, line, text in record.raised_at.frames[:1]:
        source = script_at(file)
        if source is None or text.startswith(("raise", "assert")):
            continue
        calls = source.calls(line)
        passed = [part for each in calls for part in each.args]
        passed += [each.value for call in calls for each in call.keywords]
        lines = [
            each.quote(at, folder)
            for each, at in source.traces(ast.Tuple(passed, ast.Load()), line)
            if not each.keeps_rank(at) and getattr(each.scope(at), "name", "") != "__init__"
        ]
        if lines:
            return f"what it passes comes from {', '.join(lines[:MOST_PASSED])}"
    return ""


def _find_first_start(record: RankRecord, _: re.Match[str], folder: str) -> Reason | None:
    """Return where the process group was made that a rank makes a second time."""
    items = (each for each in record.items if isinstance(each, BlockingCall))
    first = next((each for each in items if each.what == RENDEZVOUS and each.over), None)
    if first is None:
        return None
    where, again = first.place.short(folder), short(record.raised_at.frames, folder)
    words = f"it has made its process group already ({where})"
    fix = (
        f"make it in one place: leave one of the two out ({where}; {again}), or ask "
        "`dist.is_initialized()` first."
    )
    return Clause(words), fix


def _find_destroyed(record: RankRecord, _: re.Match[str], folder: str) -> Reason | None:
    """Return where a rank has destroyed a group which it uses again."""
    items = (each for each in record.items if isinstance(each, BlockingCall))
    last = next((each for each in reversed([*items]) if each.what.startswith("destroy")), None)
    if last is None:
        return None
    where, again = last.place.short(folder), short(record.raised_at.frames, folder)
    words = f"the rank has destroyed the group before, in `destroy_process_group` ({where})"
    fix = (
        f"destroy the group behind its last use ({again}), at the end of the program, or make it "
        f"anew with `new_group` on every rank after {where}."
    )
    return Clause(words), fix


def _find_indexed(record: RankRecord, _: re.Match[str], folder: str) -> Reason | None:
    """Return the line that sets what a rank takes an item of that is not there."""
    for file, line, _text in record.raised_at.frames[:1]:
        source = script_at(file)
        for node in ast.walk(source.tree) if source is not None else ():
            if not isinstance(node, ast.Subscript) or node.lineno != line or source is None:
                continue
            set_at = source.assignment(node.value, line) or source.constant(node.value, line)
            if not set_at:
                continue
            listed = find_listed(source, node.value, line, folder)
            if listed is not None:
                return listed
            held, place = ast.unparse(node.value), source.place(set_at, folder)
            words = f"`{held}` is set by `{source.text(set_at)}` ({place})"
            if source.called(set_at) & {"chunk", "split"}:
                words += ", which gives fewer parts than asked for where the rows do not divide"
            return Clause(words), f"let `{held}` ({place}) have an item for each rank that asks."
    return None


def _find_unpicklable(record: RankRecord, found: re.Match[str], folder: str) -> Reason | None:
    """Return the lambda, or the inner function, that an object holds which a call is to send."""
    outer, name = found[1].split(".")[-1], found[2]
    for source in _list_scripts(record):
        for _, function in source.functions(outer):
            for node in ast.walk(function):
                is_it = isinstance(node, ast.Lambda) if name == "<lambda>" else False
                is_it |= isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
                if is_it and node is not function:
                    return _tell_unpicklable(source, node.lineno, folder)  # type: ignore[attr-defined]
    return None


def _tell_unpicklable(source: Script, line: int, folder: str) -> Reason:
    place = source.place(line, folder)
    words = f"what it sends holds `{source.text(line)}` ({place}), which has no name by which "
    words += "another process could find it"
    fix = (
        f"send a number or a name from which each rank makes the function ({place}), or define the "
        "function at the top of a module."
    )
    return Clause(words), fix


def _find_recomputed(record: RankRecord, _: re.Match[str], folder: str) -> Reason | None:
    """Return the reentrant checkpoints that a model has, which run a part of it again."""
    for source in _list_scripts(record):
        lines = sorted(
            node.lineno
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Call)
            and name_of(node.func) in {"checkpoint", "checkpoint_sequential"}
            and not any(
                each.arg == "use_reentrant"
                and isinstance(each.value, ast.Constant)
                and each.value.value is False
                for each in node.keywords
            )
        )
        if lines:
            place = source.place(lines[0], folder)
            words = (
                f"`{source.text(lines[0])}` ({place}) runs its part of the model again in the "
                "backward pass, once for each call: a parameter that two of these use is ready "
                "twice"
            )
            fix = f"pass `use_reentrant=False` ({place}), or `static_graph=True` to DDP."
            return Clause(words), fix
    return None


def _list_scripts(record: RankRecord) -> list[Script]:
    """Return the scripts that an error went through, and those that they import."""
    files = dict.fromkeys(file for file, _, _ in record.raised_at.frames)
    known = [source for source in map(script_at, files) if source is not None]
    return list({each.file: each for one in known for each in (one, *one.imported())}.values())


#: where functions of torch take the rank of another one
_PEERS = {
    **dict.fromkeys(("send", "isend", "recv", "irecv", "broadcast", "broadcast_object_list"), 1),
    **dict.fromkeys(("reduce", "gather", "scatter", "gather_object"), 1),
    "P2POp": 2,
}


def _find_peer(record: RankRecord, _: re.Match[str], folder: str) -> Reason | None:
    return find_own_peer(record.raised_at.frames, record.rank, folder)


def find_own_peer(frames: Frames, rank: int, folder: str) -> Reason | None:
    """Return what gives the rank that a message goes to, where it is the rank's own."""
    for file, line, _text in frames[:1]:
        source = script_at(file)
        value = (
            source.argument(line, {"dst", "src", "peer"}, _PEERS) if source is not None else None
        )
        if source is None or value is None:
            continue
        shown = [
            script.quote(at, folder)
            for script, at in source.traces(value, line)
            if not script.keeps_rank(at)
        ]
        words = f"the other rank is `{ast.unparse(value)}`"
        words += f", which comes from {', '.join(shown[:MOST_PASSED])}" if shown else ""
        words += f": that is {rank}, the rank itself"
        place = short(frames, folder)
        fix = (
            f"name a global rank at {place}: the number that a rank has in a group, or as a "
            "stage, is not it; `dist.get_global_rank(group, number)` gives it, or pass "
            "`group_dst=` or `group_src=` with the group."
        )
        return Clause(words), fix
    return None


def _find_slow_worker(record: RankRecord, found: re.Match[str], folder: str) -> Reason | None:
    """Return the limit of a DataLoader that one of its workers went over, and what it reads."""
    scripts = _list_scripts(record)
    limits = [
        (source, node.lineno)
        for source in scripts
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and any(each.arg == "timeout" for each in node.keywords)
        if name_of(node.func).endswith("DataLoader")
    ]
    if not limits:
        return None
    readers = [
        (source, each)
        for source in scripts
        for kind in ast.walk(source.tree)
        if isinstance(kind, ast.ClassDef)
        for each in kind.body
        if isinstance(each, ast.FunctionDef) and each.name in {"__getitem__", "__getitems__"}
    ]
    source, line = limits[0]
    place = source.place(line, folder)
    words = f"a worker took longer for a batch than `{source.text(line)}` ({place}) gives it"
    reads = "what the dataset reads"
    if len(readers) == 1:
        script, function = readers[0]
        at = script.place(function.lineno, folder)
        words += f"; each item is read by `{script.text(function.lineno)}` ({at})"
        reads = f"what it waits for there ({at})"
    fix = (
        f"look at {reads}, such as a slow disk or a lock, on this rank; or let the loader wait "
        f"longer than {found[1]} s ({place})."
    )
    return Clause(words), fix


#: methods by which a dataset gives rows
_GIVES_ROWS = frozenset({"__iter__", "__getitem__"})


def _find_collate(record: RankRecord, _: re.Match[str], folder: str) -> Reason | None:
    """Return what makes batches of other sizes, which one rank reads for all and joins.

    That is the script's own function that collates rows, or the dataset that gives them.
    """
    scripts = _list_scripts(record)
    found = list_collators(scripts)
    found += [
        (source, kind.name, node)
        for source in scripts
        for kind in ast.walk(source.tree)
        if isinstance(kind, ast.ClassDef)
        for node in kind.body
        if isinstance(node, ast.FunctionDef) and node.name in _GIVES_ROWS
    ]
    if not found:
        return None
    source, name, node = found[0]
    place = source.place(node.lineno, folder)
    sized = find_sizing(source, node)
    at = f" by {source.quote(sized, folder)}" * bool(sized)
    words = (
        f"one rank reads the batches of all ranks and joins them: what `{name}` ({place}) gives is "
        f"of another size from batch to batch{at}"
    )
    fix = (
        f"pad to one length in `{name}` ({place}), or let each rank read its own batches: "
        "`dispatch_batches=False` (of accelerate's `DataLoaderConfiguration`, or in Trainer's "
        "`accelerator_config`)."
    )
    return Clause(words), fix


#: methods and functions that make a plain number, or a list of them, of a tensor
_PLAIN = frozenset(
    {"item", "tolist", "float", "int", "str", "len", "round", "size", "numel", "repr"}
)


def _find_unprintable(record: RankRecord, _: re.Match[str], folder: str) -> Reason | None:
    """Return what is written as JSON and is a tensor: what the lines pass that no call makes plain.

    The innermost line of the script may pass on what it is given itself.
    """
    for file, line, _text in record.raised_at.frames:
        source = script_at(file)
        calls = source.calls(line) if source is not None else []
        passed = [part for each in calls for part in each.args]
        passed += [each.value for call in calls for each in call.keywords if each.arg]
        passed += [
            value for part in passed if isinstance(part, ast.Dict) for value in part.values if value
        ]
        for value in passed:
            if source is None or not isinstance(value, ast.Name | ast.Attribute):
                continue
            at = source.assignment(value, line, in_parts=True)
            made = source.values(at)[:1] if at else []
            if not made or not isinstance(made[0], ast.Call) or name_of(made[0].func) in _PLAIN:
                continue
            name, place = ast.unparse(value), source.place(line, folder)
            words = f"`{name}` ({place}) is set by {source.quote(at, folder)}"
            return Clause(words), (
                f"write a plain number at {place}: `{name}.item()`, or `{name}.tolist()` where "
                "it has several."
            )
    return None


_Find = Callable[[RankRecord, re.Match[str], str], Reason | None]
#: what an error says -> what finds the line that it is about
_KNOWN: tuple[tuple[re.Pattern[str], _Find], ...] = (
    (re.compile(r"initialize the default process group twice"), _find_first_start),
    (re.compile(r"^(?:IndexError|KeyError)\b"), _find_indexed),
    (re.compile(r"not initialized in the world group map|Invalid process group"), _find_destroyed),
    (
        re.compile(r"[Cc]an't pickle local object '([\w.]+)\.<locals>\.([\w<>]+)'"),
        _find_unpicklable,
    ),
    (re.compile(r"[Cc]an't (?:get|pickle) .*?([\w.]+)\.<locals>\.([\w<>]+)"), _find_unpicklable),
    (re.compile(r"Object of type \w+ is not JSON serializable"), _find_unprintable),
    (re.compile(r"rank should not be the same as the rank of the current process"), _find_peer),
    (re.compile(r"DataLoader timed out after (\d+) seconds"), _find_slow_worker),
    (re.compile(r"batches of different size with `dispatch_batches"), _find_collate),
    (re.compile(r"mark a variable ready only once|marked as ready twice"), _find_recomputed),
)
