"""Which function runs on which ranks, where the line that leads to it is the same on all of them.

A task of an event loop, a method that a class has for itself, a hook that some ranks register.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import pairwise

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason, short
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.reasons.left_out import find_skipped, list_made
from torch_scenarios.record.evidence.reasons.origin import word_values
from torch_scenarios.record.evidence.script import Script, end_of, name_of, place_at, script_at
from torch_scenarios.record.format import CREATION, BlockingCall, Decision, RecordedCall
from torch_scenarios.verdict.finding import ranks_text

#: how many callers lead from the line that registers a function to a condition of it
MOST_CALLERS = 3
#: sides that make one call in loops of their own
MOST_ROLES = 4


def find_coroutine(parted: DecidedParting) -> Reason | None:
    """Return the coroutine whose tasks make the calls of ranks that part; None for any other.

    It, or one that awaits it, runs as a task: somewhere it is called and not awaited there. Where
    nothing is seen to call it, ranks that come from different lines say that tasks took turns.
    """
    for _, frames in parted.sides:
        for file, line, _ in frames:
            source = script_at(file)
            scope = source.scope(line) if source is not None else None
            if source is None or not isinstance(scope, ast.AsyncFunctionDef):
                continue
            is_task = _is_task(parted, source, scope.name)
            if is_task is False or (is_task is None and len(parted.sides) < 2):
                continue
            place = source.place(scope.lineno, parted.folder)
            words = (
                f"`{scope.name}` ({place}) is a coroutine: each rank's event loop runs its "
                "tasks in its own order, as each becomes ready"
            )
            fix = (
                f"let no task communicate by itself ({short(frames, parted.folder)}): await "
                "what is slow, and then communicate in one order on all ranks."
            )
            return Clause(words), fix
    return None


#: functions that run a coroutine until it is done
_RUNNERS = frozenset({"run", "run_until_complete"})


def _is_task(parted: DecidedParting, source: Script, name: str) -> bool | None:
    """Whether a coroutine is called where nothing awaits it; None where it is not seen called."""
    found = None
    for script in _list_scripts(parted, source):
        awaited = {
            id(each)
            for node in ast.walk(script.tree)
            for each in (
                [node.value]
                if isinstance(node, ast.Await)
                else node.args
                if isinstance(node, ast.Call) and name_of(node.func) in _RUNNERS
                else []
            )
        }
        for call in ast.walk(script.tree):
            if isinstance(call, ast.Call) and name_of(call.func) == name:
                found = bool(found) or id(call) not in awaited
    return found


def find_override(parted: DecidedParting) -> Reason | None:
    """Return the method that another class has for itself, where ranks communicate in the first.

    Ranks of one side are in it, the others came past the line that calls it and never were::

        rank 1   trainer.py:14 self.on_epoch_end()   Trainer.on_epoch_end        barrier
        rank 0   trainer.py:14 self.on_epoch_end()   MainTrainer.on_epoch_end    nothing
    """
    for ranks, frames in parted.parting.sides:
        others = [rank for rank in parted.ranks if rank not in ranks]
        for (file, line, _), (_, _, caller) in pairwise(frames):
            source = script_at(file)
            method = source.scope(line) if source is not None else None
            if not isinstance(method, ast.FunctionDef) or f".{method.name}(" not in caller:
                continue
            owner = _class_of(source, method)
            span = (method.lineno, end_of(method))
            if owner is None or not others or _have_been(parted, others, file, span):
                continue
            for own_source, kind, own in _list_overrides(parted, frames, owner, method.name):
                if not _have_been(parted, ranks, own_source.file, (own.lineno, end_of(own))):
                    return _tell_override(
                        parted, (ranks, others), (file, owner, method), own_source, kind, own
                    )
    return None


def _class_of(source: Script | None, method: ast.FunctionDef) -> ast.ClassDef | None:
    """Return the class that has a method; None of a function."""
    nodes = ast.walk(source.tree) if source is not None else ()
    return next((e for e in nodes if isinstance(e, ast.ClassDef) and method in e.body), None)


def _have_been(
    parted: DecidedParting, ranks: Sequence[int], file: str, span: tuple[int, int]
) -> bool:
    """Whether some ranks have made a call in lines of a file."""
    return any(
        path == file and span[0] <= line <= span[1]
        for rank in ranks
        for item in parted.records[rank].items
        for path, line, _ in item.place.frames
    )


def _list_overrides(
    parted: DecidedParting, frames: Frames, owner: ast.ClassDef, name: str
) -> Iterator[tuple[Script, ast.ClassDef, ast.FunctionDef]]:
    """Yield the methods of a name by which classes replace that of a base, and do not call it."""
    files = dict.fromkeys(
        file for _, at in (*parted.parting.sides, ([], frames)) for file, _, _ in at
    )
    known = [source for file in files if (source := script_at(file)) is not None]
    scripts = {each.file: each for one in known for each in (one, *one.imported())}
    for source in scripts.values():
        for kind in ast.walk(source.tree):
            bases = map(name_of, kind.bases) if isinstance(kind, ast.ClassDef) else ()
            if not isinstance(kind, ast.ClassDef) or owner.name not in bases:
                continue
            for own in kind.body:
                if not isinstance(own, ast.FunctionDef) or own.name != name:
                    continue
                if f"super().{name}(" not in ast.unparse(own):
                    yield source, kind, own


def _tell_override(
    parted: DecidedParting,
    sides: tuple[Sequence[int], Sequence[int]],
    base: tuple[str, ast.ClassDef, ast.FunctionDef],
    source: Script,
    kind: ast.ClassDef,
    own: ast.FunctionDef,
) -> Reason:
    ranks, others = sides
    file, owner, method = base
    place = source.place(own.lineno, parted.folder)
    first = place_at(file, method.lineno, parted.folder)
    verb = "is" if len(ranks) == 1 else "are"
    have = "has" if len(others) == 1 else "have"
    words = (
        f"{ranks_text([*ranks])} {verb} in `{owner.name}.{method.name}` ({first}), and "
        f"{ranks_text([*others])} {have} never been in it: `{kind.name}` has its own "
        f"`{method.name}` ({place}), which does not call it"
    )
    chosen = _find_choice(parted, kind.name)
    words += f"; {chosen}" if chosen else ""
    fix = (
        f"let `{kind.name}.{method.name}` ({place}) make the calls too that communicate "
        f"(`super().{method.name}()`), or take these out of `{owner.name}.{method.name}` ({first})."
    )
    return Clause(words), fix


def _find_choice(parted: DecidedParting, name: str) -> str:
    """Return the condition that ranks decide otherwise in a line that names a class; or nothing."""
    for decision, own in parted.tallies(whole=True).items():
        source = script_at(decision.file)
        if source is not None and decision.kind == "if" and name in source.text(decision.line):
            yes = [rank for rank, each in own.items() if each.yes]
            if yes and len(yes) < len(own):
                where = parted.place(decision)
                return f"`{decision.text}` ({where}) is true on {ranks_text(yes)} alone"
    return ""


def find_registered(parted: DecidedParting) -> Reason | None:
    """Return the condition under which some ranks alone register the function they are in.

    Torch, or another library, calls it where all ranks come by: a hook of a module, a callback.
    """
    for ranks, frames in parted.sides:
        if len(ranks) == len(parted.ranks):
            continue
        for script, call, name in _list_given_away(parted, ranks[0], frames):
            decision = _find_condition_of(parted, script, call.lineno, ranks)
            if decision is not None:
                return _tell_registered(parted, ranks, (script.file, call, name), decision)
        for at, (file, line, _) in enumerate(frames):
            source = script_at(file)
            scope = source.scope(line) if source is not None else None
            caller = frames[at + 1][2] if at + 1 < len(frames) else ""
            if source is None or not isinstance(scope, ast.FunctionDef) or scope.name in caller:
                continue
            for call in _list_passing(source, scope.name):
                decision = _find_condition_of(parted, source, call.lineno, ranks)
                if decision is not None:
                    return _tell_registered(parted, ranks, (file, call, scope.name), decision)
    return None


def _list_given_away(
    parted: DecidedParting, rank: int, frames: Frames
) -> Iterator[tuple[Script, ast.Call, str]]:
    """Yield the calls that are passed the very function of torch in which a rank is.

    What it is passed to calls it later, as an `ExitStack` does at the end of its `with`: the line
    where the rank is does not name it.
    """
    made = parted.parting.calls.get(rank)
    source = script_at(frames[0][0]) if frames else None
    if source is None or not isinstance(made, RecordedCall) or made.maker != Maker.PYTHON:
        return
    first, last = source.span(frames[0][1])
    texts = [source.text(line) for line in range(first, last + 1) if source.has(line)]
    if not texts or any(made.operation in text for text in texts):
        return
    for script in _list_scripts(parted, source):
        for call in _list_passing(script, made.operation):
            yield script, call, made.operation


def find_made_alone(parted: DecidedParting) -> Reason | None:
    """Return the condition under which some ranks alone make the object whose method they are in.

    A loop over callbacks, hooks or metrics is the same on all ranks, and what it calls is not::

        if rank == 0: callbacks.append(SampleTable())       for callback in callbacks:
                                                                callback.on_epoch_end()
    """
    for ranks, frames in parted.sides:
        others = [rank for rank in parted.ranks if rank not in ranks]
        made = parted.parting.calls.get(ranks[0])
        if isinstance(made, BlockingCall) and made.what == CREATION:
            continue  # the group is to be made elsewhere, and not the object by all
        for file, line, _ in frames if others else ():
            source = script_at(file)
            method = source.scope(line) if source is not None else None
            owner = _class_of(source, method) if isinstance(method, ast.FunctionDef) else None
            if source is None or owner is None:
                continue
            span = (owner.lineno, end_of(owner))
            if _have_been(parted, others, file, span):
                continue
            for script in _list_scripts(parted, source):
                for call in ast.walk(script.tree):
                    if not isinstance(call, ast.Call) or name_of(call.func) != owner.name:
                        continue
                    decision = _find_condition_of(parted, script, call.lineno, ranks)
                    if decision is not None:
                        return _tell_made(parted, ranks, (script, call), owner, decision)
    return None


def _tell_made(
    parted: DecidedParting,
    ranks: Sequence[int],
    made: tuple[Script, ast.Call],
    owner: ast.ClassDef,
    decision: Decision,
) -> Reason:
    source, call = made
    where = source.place(call.lineno, parted.folder)
    verb, place = "makes" if len(ranks) == 1 else "make", parted.place(decision)
    values = word_values(parted, decision, parted.tallies(whole=True)[decision])
    words = (
        f"{ranks_text([*ranks])} alone {verb} a `{owner.name}` (`{ast.unparse(call)}`, {where}), "
        f"under `{decision.text}` ({place})" + (f", where {values}" if values else "")
    )
    fix = (
        f"make the `{owner.name}` on every rank ({place}) or on none: it communicates; what is for "
        "one rank alone, such as a print, goes under a condition inside of it."
    )
    return Clause(words), fix


def _list_passing(source: Script, name: str) -> Iterator[ast.Call]:
    """Yield the calls that are passed a function by its name, and do not call it there."""
    for call in ast.walk(source.tree):
        if isinstance(call, ast.Call):
            given = [*call.args, *(each.value for each in call.keywords)]
            if any(
                isinstance(each, ast.Name | ast.Attribute) and name_of(each) == name
                for each in given
            ):
                yield call


def _find_condition_of(
    parted: DecidedParting, source: Script, line: int, ranks: Sequence[int]
) -> Decision | None:
    """Return the `if` around a line, or around a call of its function, true on some ranks alone."""
    tallies = parted.tallies(whole=True)
    waiting, known = [(source, line)], {(source.file, line)}
    for _ in range(MOST_CALLERS):
        callers: list[tuple[Script, int]] = []
        for script, at in waiting:
            for node, name in script.find_statements(at):
                for decision, own in tallies.items():
                    is_there = (
                        isinstance(node, ast.If)
                        and decision.kind == "if"
                        and (decision.file, decision.line) == (script.file, node.test.lineno)
                    )
                    went = [r for r, e in own.items() if (e.yes if name == "body" else e.no)]
                    is_asked_by_all = all(each.yes or each.no for each in own.values())
                    if is_there and is_asked_by_all and sorted(went) == sorted(ranks):
                        return decision
            scope = script.scope(at)
            if isinstance(scope, ast.FunctionDef):
                callers += _list_callers(parted, script, scope.name)
        waiting = [each for each in callers if (each[0].file, each[1]) not in known]
        known |= {(script.file, at) for script, at in waiting}
    return None


def _list_callers(
    parted: DecidedParting, source: Script, name: str
) -> Iterator[tuple[Script, int]]:
    """Yield the lines that call a function by its name, of the scripts that ranks come from."""
    for script in _list_scripts(parted, source):
        for call in ast.walk(script.tree):
            if isinstance(call, ast.Call) and name_of(call.func) == name:
                yield script, call.lineno


def _list_scripts(parted: DecidedParting, source: Script) -> Iterator[Script]:
    """Yield a script, and those that ranks come from."""
    files = (file for _, at in parted.parting.sides for file, _, _ in at)
    yield from filter(None, map(script_at, dict.fromkeys((source.file, *files))))


def _tell_registered(
    parted: DecidedParting,
    ranks: Sequence[int],
    registered: tuple[str, ast.Call, str],
    decision: Decision,
) -> Reason:
    file, call, name = registered
    where, place = place_at(file, call.lineno, parted.folder), parted.place(decision)
    verb = "registers" if len(ranks) == 1 else "register"
    values = word_values(parted, decision, parted.tallies(whole=True)[decision])
    words = (
        f"{ranks_text([*ranks])} alone {verb} `{name}` by `{ast.unparse(call)}` ({where}), under "
        f"`{decision.text}` ({place})" + (f", where {values}" if values else "")
    )
    fix = (
        f"register `{name}` on every rank ({place}) or on none: it communicates, and is called on "
        "each rank that has it."
    )
    return Clause(words), fix


def find_roles(parted: DecidedParting, *, leaving_out: bool = False) -> Reason | None:
    """Return the loops from which ranks of other roles take what they pass to one operation.

    Each side makes the call in a loop of its own, and never comes to that of the other::

        rank 0   for p in module.parameters():             broadcast(p)
        rank 1   for t in module.state_dict().values():    broadcast(t)

    What one side leaves out of its loop is shown with its `if`; `leaving_out` asks for those alone.
    """
    sides = parted.parting.sides
    calls = parted.parting.calls.values()
    if not 2 <= len(sides) <= MOST_ROLES or parted.parting.missing:
        return None
    if len({each.operation for each in calls if isinstance(each, RecordedCall)}) > 1:
        return None
    found, left = [], []
    for ranks, frames in sides:
        others = [rank for rank in parted.ranks if rank not in ranks]
        loop = _loop_that_gives(frames)
        if loop is None or _have_been(parted, others, frames[0][0], (frames[0][1],) * 2):
            return None
        source, node = loop
        place = source.place(node.lineno, parted.folder)
        verb = "takes" if len(ranks) == 1 else "take"
        found.append((f"{ranks_text(ranks)} {verb} what is passed from", node, place, source))
        decision = find_skipped(parted, ranks, source, node)
        if decision is not None:
            leave = "leaves" if len(ranks) == 1 else "leave"
            at = parted.place(decision)
            left.append(f"{ranks_text(ranks)} {leave} out items by `{decision.text}` ({at})")
    if len({id(node) for _, node, *_ in found}) < len(found) or (leaving_out and not left):
        return None
    shown = [f"{who} `{src.text(node.lineno)}` ({at})" for who, node, at, src in found]
    words = "; ".join([*shown, *left])
    *places, last = (at for *_, at, _ in found)
    which = "both" if len(found) == 2 else "all"
    alike = f"; or let {which} leave out what {left[0].partition(' by ')[2]} does" if left else ""
    fix = (
        f"let {which} loops ({', '.join(places)} and {last}) go over the same tensors in the same "
        f"order: as many, and each of the same shape and dtype{alike}"
    )
    return Clause(words), f"{fix}."


def _loop_that_gives(frames: Frames) -> tuple[Script, ast.For] | None:
    """Return the innermost loop around a call whose line reads the loop's variable."""
    for file, line, _ in frames[:1]:
        source = script_at(file)
        for node, part in source.find_statements(line) if source is not None else ():
            if isinstance(node, ast.For) and part == "body" and source is not None:
                names = list_made(node, line)
                reads = {
                    each.id
                    for each in ast.walk(source.tree)
                    if isinstance(each, ast.Name) and each.lineno == line
                }
                return (source, node) if names & reads else None
    return None
