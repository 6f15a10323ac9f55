"""The last `if` before ranks part that they decide otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    DecidedParting,
    Reason,
    Tallies,
    Tally,
    count_turns,
)
from torch_scenarios.record.evidence.reasons.origin import word_values
from torch_scenarios.record.evidence.script import end_of, script_at
from torch_scenarios.record.format import (
    Decision,
    RecordedCall,
)

#: how what ranks decided begins that is not around their calls, and that nothing ties to them
BEFORE, EARLY = "before that, ", "nothing near the calls differs; long before"


#: a condition that asks whether a model is in training
_MODE = re.compile(r"\.training\b")


def leave_modes(tallies: Tallies) -> Tallies:
    """Return what ranks decided without whether a model trains, where anything else is left.

    One rank evaluates, and the others train, by what they decided before that.
    """
    left = {each: own for each, own in tallies.items() if not _MODE.search(each.text)}
    return left if _list_decided(left) else tallies


def find_other_way(parted: DecidedParting, tallies: Tallies) -> Reason | None:
    """Return the last `if` of the same function that ranks decide otherwise, as a hint."""
    for _, frames in parted.sides:
        for file, line, _ in frames:
            source = script_at(file)
            if source is None:
                continue
            fitting = [
                decision
                for decision in tallies
                if decision.kind == "if"
                and decision.file == file
                and decision.line <= line
                and parted.leads_on(decision)
                and not _is_of_root(parted, tallies[decision])
                and source.scope(decision.line) is source.scope(line)
            ]
            if not fitting:
                continue
            decision = max(fitting, key=lambda each: each.line)
            own = tallies[decision]
            values = word_values(parted, decision, own)
            words = f"{count_turns(parted, decision, own)}" + (
                f", where {values}" if values else ""
            )
            return Clause(words), _advice(parted, decision)
    return None


def find_last_decided(
    parted: DecidedParting, *, by_all: bool = False, whole: bool = False
) -> Reason | None:
    """Return the last `if` before they part that ranks decide otherwise, as in a callback.

    `by_all` says that each rank has to come to it, `whole` looks from the beginning on, at what
    leads to the calls (:meth:`DecidedParting.leads_on`; of `by_all` to the line that makes them).
    """
    tallies = leave_modes(parted.tallies(whole=whole))
    decided = [
        decision
        for decision in _list_decided(tallies)
        if not _is_of_root(parted, tallies[decision])
        if not whole or parted.leads_on(decision, to_line=by_all)
    ]
    # what some ranks do not come to follows from what they decided before
    known = [each for each in decided if all(e.yes or e.no for e in tallies[each].values())]
    decided = known if known or by_all else decided
    if not decided:
        return None
    decision = decided[-1]
    own = tallies[decision]
    values = word_values(parted, decision, own)
    words = f"{BEFORE}{count_turns(parted, decision, own)}"
    return Clause(words + (f", where {values}" if values else "")), _advice(parted, decision)


def _is_of_root(parted: DecidedParting, own: Mapping[int, Tally]) -> bool:
    """Whether an `if` prepares what the root of one call alone passes, such as a list to gather."""
    calls = [each for each in parted.parting.calls.values() if isinstance(each, RecordedCall)]
    roots = {each.root for each in calls}
    is_one = len(calls) == len(parted.ranks) and len({each.place.frames for each in calls}) == 1
    into = {rank for rank, tally in own.items() if tally.yes}
    return is_one and len(roots) == 1 and None not in roots and into == roots


def list_early(parted: DecidedParting) -> Reason | None:
    """Return the `if`s and loops that ranks went through otherwise once, long before they part.

    Nothing ties them to the calls: they are named, and no advice follows. But an `if` under which a
    script registers what runs later, a hook or a handler, is why later calls are not every rank's.
    """
    tallies = parted.tallies(whole=True)
    asked = _list_decided(tallies)
    registered = next(((each, line) for each in asked if (line := _find_registered(each))), None)
    if registered is not None:
        return _tell_registered(parted, *registered)
    known = next(((each, line) for each in asked if (line := _find_variable(each))), None)
    if known is not None:
        return _tell_variable(parted, *known)
    alone = [each for each in asked if not all(own.yes for own in tallies[each].values())]
    logged = next(((each, line) for each in alone if (line := _find_logged(each))), None)
    if logged is not None:
        return _tell_logged(parted, *logged)
    loops = [each for each in tallies if each.kind in {"for", "while"}]
    decided = [each for each in loops if not _is_in_turn(parted, each, tallies[each])] + asked
    decided = sorted(decided, key=[*tallies].index)[-MOST_EARLY:]
    if not decided:
        return None
    *most, last = [f"`{each.text}` ({parted.place(each)})" for each in decided]
    words = f"{', '.join(most)} and {last}" if most else last
    return Clause(f"{EARLY}, ranks differ in {words}"), ""


def _is_in_turn(parted: DecidedParting, loop: Decision, own: Mapping[int, Tally]) -> bool:
    """Whether ranks with fewer turns of a loop are still in it: they wait, and would go on."""
    source = script_at(loop.file)
    first, last = (source.loop(loop.line) if source is not None else None) or (0, -1)
    fewest = min(each.yes for each in own.values())
    inside = {
        rank
        for ranks, frames in parted.sides
        if any(file == loop.file and first <= line <= last for file, line, _ in frames)
        for rank in ranks
    }
    return all(rank in inside for rank, each in own.items() if each.yes == fewest)


#: methods and decorators that keep a function, or what is made of it, to be called later
_REGISTERS = re.compile(r"^(?:attach|on|add_(?:event_|hook|callback)\w*|register_\w*|subscribe)$")


def _find_registered(decision: Decision) -> int:
    """Return the line under an `if` that registers what is called later; 0 for none."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    for part in (*node.body, *node.orelse) if isinstance(node, ast.If) else ():
        for each in ast.walk(part):
            function = each.func if isinstance(each, ast.Call) else None
            if isinstance(function, ast.Attribute) and _REGISTERS.match(function.attr):
                return end_of(function)
    return 0


def _find_variable(decision: Decision) -> int:
    """Return the line under an `if` that sets a variable of the environment; 0 for none."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    for part in (*node.body, *node.orelse) if isinstance(node, ast.If) else ():
        for each in ast.walk(part):
            for target in each.targets if isinstance(each, ast.Assign) else ():
                if ast.unparse(target).startswith("os.environ["):
                    return target.lineno
    return 0


def _find_logged(decision: Decision) -> int:
    """Return the line under an `if` that logs to a framework, which may average it; 0 for none."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    for part in (*node.body, *node.orelse) if isinstance(node, ast.If) else ():
        for each in ast.walk(part):
            if isinstance(each, ast.Call) and ast.unparse(each.func) in _LOGS:
                return each.lineno
    return 0


#: methods of a framework's that keep what they are given under a name, and may average it later
_LOGS = frozenset({"self.log", "self.log_dict", "pl_module.log", "pl_module.log_dict"})


def _tell_logged(parted: DecidedParting, decision: Decision, line: int) -> Reason:
    """Return that some ranks log what a framework averages at the end, with the `if` around it."""
    own = parted.tallies(whole=True)[decision]
    at, source = parted.place(replace(decision, line=line)), script_at(decision.file)
    text = source.text(line) if source is not None else ""
    values = word_values(parted, decision, own)
    words = f"{BEFORE}{count_turns(parted, decision, own)}" + (
        f", where {values}" if values else ""
    )
    words += f"; under it `{text}` ({at}) logs a name that the framework averages over all ranks"
    fix = (
        f"log the same names on every rank ({at}): take the line out of `{decision.text}` "
        f"({parted.place(decision)}), or log a neutral value on the others."
    )
    return Clause(words), fix


def _tell_variable(parted: DecidedParting, decision: Decision, line: int) -> Reason:
    """Return that some ranks set a variable of the environment, with the `if` around it."""
    own = parted.tallies(whole=True)[decision]
    at, source = parted.place(replace(decision, line=line)), script_at(decision.file)
    text = source.text(line) if source is not None else ""
    words = (
        f"{BEFORE}{count_turns(parted, decision, own)}; under it `{text}` ({at}) is set, which a "
        "framework may read"
    )
    return Clause(words), f"set the same variable on all ranks ({at})."


def _tell_registered(parted: DecidedParting, decision: Decision, line: int) -> Reason:
    """Return that some ranks register what communicates later, with the `if` around it."""
    own = parted.tallies(whole=True)[decision]
    place = parted.place(decision)
    values = word_values(parted, decision, own)
    at = parted.place(replace(decision, line=line))
    words = f"{BEFORE}{count_turns(parted, decision, own)}" + (
        f", where {values}" if values else ""
    )
    words += f"; what is registered under it ({at}) is called later"
    fix = (
        f"register at {at} on every rank, or on none: decide `{decision.text}` ({place}) the "
        "same way on all ranks."
    )
    return Clause(words), fix


def _list_decided(tallies: Tallies) -> list[Decision]:
    """Return the `if`s that are true on some ranks more often, and that do more than tell it."""
    return [
        decision
        for decision, own in tallies.items()
        if decision.kind == "if"
        and len({each.yes for each in own.values()}) > 1
        and not is_idle(decision)
    ]


def _advice(parted: DecidedParting, decision: Decision) -> str:
    """Return what to change; nothing for ranks of one line, where what they pass is the mistake."""
    if len(parted.sides) < 2 and not parted.parting.missing:
        return ""
    return f"decide `{decision.text}` ({parted.place(decision)}) the same way on all ranks."


def is_idle(decision: Decision) -> bool:
    """Whether an `if` only prints, logs or collects, which decides nothing that comes later."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    if source is None or not isinstance(node, ast.If) or node.orelse:
        return False
    return all(_speaks(each) or _is_kept(_collects(each), source.tree) for each in node.body)


#: early decisions that are named
MOST_EARLY = 3
#: calls that tell a person something
_SPEECH = frozenset(
    {"print", "debug", "info", "warning", "warn", "error", "log", "write", "set_postfix", "update"}
)


#: methods that put something into a list or a set
_COLLECTING = frozenset({"append", "add", "extend"})


def _collects(node: ast.stmt) -> str:
    """Return the name of the script's own that a statement adds to: `self.rows`; else nothing."""
    owner: ast.AST | None = None
    if isinstance(node, ast.AugAssign):
        owner = node.target
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr in _COLLECTING:
            owner = function.value
    text = ast.unparse(owner) if owner is not None else ""
    return text if text.removeprefix("self.").isidentifier() else ""


def _is_kept(name: str, tree: ast.Module) -> bool:
    """Whether a script does nothing with a name but add to it, print it and log it."""
    if not name:
        return False
    told = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and _speaks(each)]
    told += [
        each for each in ast.walk(tree) if isinstance(each, ast.stmt) and _collects(each) == name
    ]
    idle = {id(part) for each in told for part in ast.walk(each)}
    last = name.removeprefix("self.")
    return not any(
        isinstance(each, ast.Name | ast.Attribute)
        and isinstance(each.ctx, ast.Load)
        and id(each) not in idle
        and last in {getattr(each, "id", ""), getattr(each, "attr", "")}
        for each in ast.walk(tree)
    )


def _speaks(node: ast.stmt) -> bool:
    """Whether a statement prints or logs what is known already.

    A `self.log` is a framework's, which may average over the ranks what it is given.
    """
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    function = node.value.func
    if ast.unparse(function) == "self.log":
        return False
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in _SPEECH
