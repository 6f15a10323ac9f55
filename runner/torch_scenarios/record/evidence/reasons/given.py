"""What ranks were given otherwise: an argument of a framework's, or what makes what it is given.

Ranks that part inside of a framework are in one line of the script, and nothing near it differs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from typing import TypeAlias

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    DecidedParting,
    Reason,
    Tally,
    count_turns,
    list_values,
    short,
)
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.notes.decision import AMOUNTS
from torch_scenarios.record.evidence.notes.value_text import HOLDS
from torch_scenarios.record.evidence.script import Script, end_of, name_of, script_at
from torch_scenarios.record.format import Decision, RecordedCall
from torch_scenarios.verdict.finding import values_text

#: lines of a script: its file, the first and the last
_Span: TypeAlias = tuple[str, int, int]
#: names of what each rank may have for itself
_OF_EACH_RANK = re.compile(
    r"rank|seed|device|process_index|(?:^|[_.])(?:port|host|pid|dir|path|file|id|index|peer)(?:$|_)",
    re.IGNORECASE,
)
#: names of what one rank alone may do, as it shows something
_SHOWS = re.compile(r"verbose|progress|tqdm|logger|print|quiet|silent|main|master|bar(?:$|_)")
#: values that say how long a list is, and not what is in it
_OF_ITEMS = re.compile(r"\d+ items?(?: \(.*\))?")
#: keys of one argument that are shown, and other arguments that are
MOST_KEYS, MOST_OTHERS = 3, 2
#: how a tensor is shown, and a place in words
_OF_TENSOR = "a tensor ["
_PLACE = re.compile(r" \([^()]*:\d+\)")
#: what stands for a key that a rank's dict does not have
_NONE = "not given"


def tell_behind(parted: DecidedParting, decision: Decision) -> str:
    """Return the `if` behind an argument that ranks were given otherwise, or what reads the rank.

    Nothing is returned where neither is seen.
    """
    traces = _list_own_traces(decision)
    functions = _list_called(decision) | _list_functions(traces) | _list_changes(decision)
    behind = ""
    for each, own in parted.tallies(whole=True).items():
        is_apart = each.kind == "if" and len({tally.yes for tally in own.values()}) > 1
        if is_apart and _is_inside(each, functions):
            behind = f"; behind it, {count_turns(parted, each, own)}"
    for source, line in traces if not behind else ():
        if source.asks_rank(line) and not source.keeps_rank(line):
            place = source.place(line, parted.folder)
            return f"; behind it is `{source.text(line)}` ({place})"
    return behind


def _parse_given(decision: Decision) -> ast.expr | None:
    """Return what an argument is set to: `count(rank)` of `chunks=count(rank)`, if it is whole."""
    text = re.sub(r"^(?:[\w.]+=|\*\*)(?!=)", "", decision.text)
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _list_own_traces(decision: Decision) -> list[tuple[Script, int]]:
    """Return the lines that set what an argument reads, and no other argument of its line."""
    source, given = script_at(decision.file), _parse_given(decision)
    if source is None or given is None:
        return _list_traces(((decision.file, decision.line, ""),))[1:]
    return source.traces(given, decision.line, in_parts=True)


def _list_called(decision: Decision) -> set[_Span]:
    """Return the functions and classes of the scripts that an argument calls."""
    source, given = script_at(decision.file), _parse_given(decision)
    if source is None or given is None:
        return _list_functions(_list_traces(((decision.file, decision.line, ""),))[:1])
    return {
        (script.file, node.lineno, end_of(node))
        for each in ast.walk(given)
        if isinstance(each, ast.Call)
        for name in [name_of(each.func)]
        for script, node in (*source.functions(name), *source.makers(name))
    }


def _list_changes(decision: Decision) -> set[_Span]:
    """Return the `if`s under which the function of a line changes what the line passes."""
    source = script_at(decision.file)
    text = re.sub(r"^(?:\w+=|\*\*)(?!=)", "", decision.text)
    if source is None or not re.match(r"[A-Za-z_]\w*", text):
        return set()
    names = {*re.findall(r"[A-Za-z_]\w*", text)}
    return {
        (source.file, node.lineno, node.lineno)
        for node in ast.walk(source.scope(decision.line))
        if isinstance(node, ast.If) and node.lineno < decision.line
        for part in (*node.body, *node.orelse)
        for each in ast.walk(part)
        if isinstance(each, ast.Name) and each.id in names
    }


def _advise(parted: DecidedParting, decision: Decision, words: str) -> str:
    """Return what mends an argument that ranks were given otherwise."""
    place = parted.place(decision)
    if _OF_TENSOR in words:
        source = script_at(decision.file)
        is_generated = source is not None and "generate(" in source.text(decision.line)
        longer = ", or let all go on for as long as one does (`synced_gpus=True` of `generate`)"
        return (
            f"give `{decision.text}` ({place}) the same shape on all ranks by a pad"
            f"{longer if is_generated else ''}."
        )
    return f"pass the same `{decision.text}` on all ranks ({place}), or let them agree on it first."


def _word(parted: DecidedParting, decision: Decision, words: str) -> Reason:
    """Return an argument that differs, with what is behind it and what mends it."""
    fix, behind = _advise(parted, decision, words), tell_behind(parted, decision)
    decided = re.match(r"; behind it, (`if .+?` \([^()]*\)) is ", behind)
    asking = _find_asking(parted, decision) if not behind else None
    if decided is not None:
        fix = f"decide {decided[1]} the same way on all ranks: {fix}"
    elif asking is not None:
        behind = f"; {count_turns(parted, *asking)}, which asks for that"
        where = f"`{asking[0].text}` ({parted.place(asking[0])})"
        fix = f"let all ranks take {where} the same way, or send what it sets from one to all."
    return Clause(words + behind), fix


def _find_asking(
    parted: DecidedParting, decision: Decision
) -> tuple[Decision, Mapping[int, Tally]] | None:
    """Return the `if` of a class that asks for what its object was given otherwise on some ranks.

    The object keeps it by an attribute, which only this one of its arguments sets.
    """
    source, made = script_at(decision.file), decision.names[0] if decision.names else ""
    kept = set[tuple[str, str]]()
    for script, function in source.makers(made) if source is not None and made else ():
        names = [each.arg for each in function.args.args][1:]
        for call in source.calls(decision.line) if source is not None else ():
            given = dict(zip(names, call.args, strict=False)) if name_of(call.func) == made else {}
            kept |= {
                (script.file, ast.unparse(target))
                for node in ast.walk(function)
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
                if node.value.id in given and ast.unparse(given[node.value.id]) == decision.text
                for target in node.targets
            }
    for each, own in parted.tallies(whole=True).items() if kept else ():
        inner = script_at(each.file) if each.kind == "if" else None
        node = inner.condition(each.line) if inner is not None else None
        read = {ast.unparse(part) for part in ast.walk(node.test)} if node is not None else set()
        if len({tally.yes for tally in own.values()}) > 1 and any(
            file == each.file and name in read for file, name in kept
        ):
            return each, own
    return None


def find_given(parted: DecidedParting) -> Reason | None:
    """Return what ranks were given otherwise: `max_epochs=left()`, or a key of `**options`.

    A framework communicates as often as its arguments say.
    """
    if not _is_in_framework(parted):
        return None
    found = list_differing(parted)
    if not found:
        return None
    decision, words = found[0]
    others = [f"`{each.text}` ({parted.place(each)})" for each, _ in found[1 : 1 + MOST_OTHERS]]
    if others:
        words += f"; {' and '.join(others)} differ{'s' * (len(others) == 1)} too"
    return _word(parted, decision, words)


def list_differing(
    parted: DecidedParting, frames: Frames | None = None, *, of_items: bool = False
) -> list[tuple[Decision, str]]:
    """Return the arguments that ranks were given otherwise, in words, the likeliest cause first.

    Those come first that make what the line uses in which ranks part; those that say how often
    something is done; what was given first, as later ones follow from it. With `of_items` they are
    those alone that hold another number of items.
    """
    at = _find_shared(parted) if frames is None else frames[:1]
    made = _list_spans(at)
    found = []
    for decision, own in parted.tallies(whole=True, alike=True).items():
        if decision.kind != "given" or not all(each.yes == 1 for each in own.values()):
            continue
        shown = _tell_difference(decision, own)
        if shown and (not of_items or _OF_ITEMS.search(shown)):
            found.append((decision, shown))
    ordered = sorted(found, key=lambda each: _weigh(each[0], each[1], made))
    return [(each, f"{_name_given(parted, each)} {words}") for each, words in ordered]


def _weigh(decision: Decision, words: str, made: set[_Span]) -> tuple[bool, bool]:
    return not _is_inside(decision, made), not _is_amount(decision, words)


def _is_amount(decision: Decision, words: str) -> bool:
    """Whether an argument, or a key of it, says how often something is done.

    The name of the script's file says nothing of it, nor what a tensor has the shape of.
    """
    shown = _PLACE.sub("", words)
    is_named = any(map(AMOUNTS.search, (decision.text, shown)))
    return is_named and _OF_TENSOR not in shown


def _is_inside(decision: Decision, spans: Collection[_Span]) -> bool:
    return any(
        decision.file == file and first <= decision.line <= last for file, first, last in spans
    )


def find_given_here(parted: DecidedParting) -> Reason | None:
    """Return what ranks were given otherwise in a line that a side of them has come from."""
    if not _is_in_framework(parted):
        return None
    here = {
        (source.file, *source.span(line))
        for _, frames in parted.parting.sides
        for file, line, _ in frames[:1]
        for source in [script_at(file)]
        if source is not None
    }
    for decision, words in list_differing(parted):
        if _is_inside(decision, here):
            return _word(parted, decision, words)
    return None


def find_given_amount(parted: DecidedParting) -> Reason | None:
    """Return how often a framework does something, where ranks have it do so otherwise.

    It is what made what the line uses, or is used by it, at which ranks part.
    """
    if not _is_in_framework(parted):
        return None
    for _, frames in parted.parting.sides:
        spans = _list_spans(frames[:1])
        for decision, words in list_differing(parted, frames):
            if _is_amount(decision, words) and _is_inside(decision, spans):
                return _word(parted, decision, words)
    return None


#: places that words name
_PLACES = re.compile(r"\(([^\s()]+:\d+)\)")


def find_given_too(parted: DecidedParting, reason: str) -> Reason | None:
    """Return what ranks were given otherwise in what their lines use; None where a reason has it.

    A loop over the layers of a model is longer on some ranks as these have made another model.
    """
    if not _is_in_framework(parted):
        return None
    for _, frames in parted.parting.sides:
        spans = _list_spans(frames[:1])
        for decision, words in list_differing(parted, frames):
            difference = re.split(r" differs: |\), is ", words)[-1]
            found = _word(parted, decision, words)
            places = set(_PLACES.findall(found[0].words))
            is_known = difference in reason or bool(places & {*_PLACES.findall(reason)})
            if _is_inside(decision, spans) and not is_known:
                return found
    return None


def tell_given(parted: DecidedParting, frames: Frames) -> Reason | None:
    """Return what ranks were given otherwise in what makes what a line uses, as one that raised."""
    spans = _list_spans(frames)
    for decision, words in list_differing(parted, frames):
        if _is_inside(decision, spans):
            return _word(parted, decision, words)
    return None


def _name_given(parted: DecidedParting, decision: Decision) -> str:
    """Return an argument as it is shown: `config`, which `initialize` is given (train.py:4)."""
    place = parted.place(decision)
    by_name = re.match(r"\w+=", decision.text) is not None
    if by_name or not decision.names:
        return f"`{decision.text}` ({place})"
    return f"`{decision.text}`, passed to `{decision.names[0]}` ({place}),"


def _tell_difference(decision: Decision, own: Mapping[int, Tally]) -> str:
    """Return how what ranks were given differs, `is 3 on rank 0, 2 on rank 1`; or nothing."""
    values = {rank: own[rank].values for rank in sorted(own)}
    if len({*values.values()}) < 2 or not all(values.values()):
        return ""
    if not all(each[0] == HOLDS for each in values.values()):
        texts = {rank: str(each[0]) for rank, each in values.items()}
        if all(map(_OF_ITEMS.fullmatch, texts.values())):
            kinds = {text.partition(" (")[2] for text in texts.values()}
            texts = {r: t.partition(" (")[0] if len(kinds) == 1 else t for r, t in texts.items()}
        return "" if _is_own(_name_of(decision), texts) else f"is {values_text(texts)}"
    held = {
        rank: {key: text for word in each[1:] for key, _, text in [str(word).partition(": ")]}
        for rank, each in values.items()
    }
    keys = dict.fromkeys(key for each in held.values() for key in each)
    shown = []
    for key in keys:
        parts = {rank: each.get(key, _NONE) for rank, each in held.items()}
        if len({*parts.values()}) > 1 and not _is_own(key, parts):
            shown.append(f"`{key}` is {values_text(parts)}")
    more = f", and {len(shown) - MOST_KEYS} more differ" if len(shown) > MOST_KEYS else ""
    return f"differs: {'; '.join(shown[:MOST_KEYS])}{more}" if shown else ""


def _name_of(decision: Decision) -> str:
    """Return the name of an argument, or of the variable that is passed; nothing for a call."""
    by_name = re.match(r"(\w+)=", decision.text)
    if by_name is not None:
        return by_name[1]
    return decision.text if re.fullmatch(r"[\w.]+", decision.text) else ""


def _is_own(name: str, values: Mapping[int, str]) -> bool:
    """Whether each rank may have a value of a name for itself: a device, a seed, a progress bar.

    A switch is not a device: `gather_across_devices=True` is for all ranks or for none.
    """
    is_switch = {*values.values()} <= {"True", "False", "None"}
    if is_switch:
        return re.search(r"rank|process", name) is not None or _SHOWS.search(name) is not None
    return _OF_EACH_RANK.search(name) is not None or _is_of_rank(values)


def _is_of_rank(values: Mapping[int, str]) -> bool:
    """Whether values are the same up to the number of each rank, as names of devices are."""
    kept = {re.sub(rf"(?<!\d){rank}(?!\d)", "#", value) for rank, value in values.items()}
    return len(kept) == 1 and "#" in next(iter(kept))


def _find_shared(parted: DecidedParting) -> Frames:
    """Return the innermost line of the script that all sides have come from.

    It is the line that calls a framework: a side of them is in no other line of the script.
    """
    lines = [[each[:2] for each in frames] for _, frames in parted.parting.sides]
    shared = [at for at in lines[0] if all(at in each for each in lines)] if lines else []
    is_last = bool(shared) and any(each[0] == shared[0] for each in lines)
    return ((*shared[0], ""),) if is_last else ()


def _list_traces(at: Frames) -> list[tuple[Script, int]]:
    """Return a line and the lines that set what its calls use: their arguments and their object."""
    for file, line, _ in at:
        source = script_at(file)
        if source is None:
            return []
        parts = [
            each
            for call in source.calls(line)
            for each in (call.func, *call.args, *(named.value for named in call.keywords))
        ]
        parts += [
            node.iter
            for node in ast.walk(source.tree)
            if isinstance(node, ast.For) and node.iter.lineno == line
        ]
        return [(source, line), *source.traces(ast.Tuple(parts, ast.Load()), line, in_parts=True)]
    return []


def _list_spans(at: Frames) -> set[_Span]:
    """Return the statements that make what a line uses, and the functions that these call."""
    traces = _list_traces(at)
    statements = {(source.file, *source.span(line)) for source, line in traces}
    return statements | _list_functions(traces)


def _list_functions(traces: Collection[tuple[Script, int]]) -> set[_Span]:
    """Return the functions of the scripts that lines call, or their classes, and assignments."""
    return {
        (script.file, node.lineno, end_of(node))
        for each, line in traces
        for name in each.called(line)
        for script, node in (*each.functions(name), *each.makers(name))
    } | {
        (each.file, line, end_of(node))
        for each, line in traces
        for node in ast.walk(each.tree)
        if isinstance(node, ast.Assign) and node.lineno == line
    }


def find_passed(parted: DecidedParting) -> Reason | None:
    """Return the last `if` that ranks decide otherwise in what makes what their line uses.

    That is an argument, or the object whose method it calls: `trainer.fit(model)`.

    All ranks are in one line of the script, and part in the framework that it calls.
    """
    at = _find_shared(parted)
    if not at or not _is_in_framework(parted):
        return None
    functions = _list_functions(_list_traces(at))
    found: Reason | None = None
    for decision, own in parted.tallies(whole=True).items():
        is_inside = decision.kind == "if" and _is_inside(decision, functions)
        if is_inside and len({each.yes for each in own.values()}) > 1 and not _prepares(decision):
            place, where = parted.place(decision), short(at, parted.folder)
            values = list_values(decision, own)
            words = f"what {where} uses is made by it: {count_turns(parted, decision, own)}"
            fix = f"decide `{decision.text}` ({place}) the same way on all ranks."
            words += f", where {values}" if values else ""
            given = list_differing(parted)[:1]
            found = Clause("; ".join([words, *(each for _, each in given)])), fix
    return found


def _prepares(decision: Decision) -> bool:
    """Whether an `if` only prints, or calls functions of modules, which make nothing that is used.

    A rank alone may make a folder so, as by `os.makedirs`.
    """
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    if source is None or not isinstance(node, ast.If) or node.orelse:
        return False
    modules = {
        (each.asname or each.name).partition(".")[0]
        for part in ast.walk(source.tree)
        if isinstance(part, ast.Import)
        for each in part.names
    }
    called = [
        each.value.func if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) else None
        for each in node.body
    ]
    return all(
        each is not None and ast.unparse(each).partition(".")[0] in {*modules, "print"}
        for each in called
    )


def _is_in_framework(parted: DecidedParting) -> bool:
    """Whether a framework, or torch itself, makes a call at which ranks part."""
    return any(
        each.place.via or (isinstance(each, RecordedCall) and each.maker != Maker.PYTHON)
        for each in parted.parting.calls.values()
    )
