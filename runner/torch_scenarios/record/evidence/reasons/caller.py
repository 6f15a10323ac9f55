"""The line under which some ranks communicate, and others do not."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypeGuard

from msgspec import Struct

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    ASKS_RANK,
    DecidedParting,
    Reason,
    count_turns,
    short,
)
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.reasons.origin import word_values
from torch_scenarios.record.evidence.script import Script, end_of, name_of, place_at, script_at
from torch_scenarios.record.format import RankRecord, RecordedCall
from torch_scenarios.verdict.finding import ranks_text

#: lines that are shown which decide what needs a gradient
MOST_SWITCHES = 2
#: a line that logs
_LOGS = re.compile(r"\b(?:log|logger|logging|_log|_logger)\w*\.(?:debug|info|warning|log)\(")
#: a line that lets a model write tokens, one forward pass each
_GENERATES = re.compile(r"\.generate\(")
#: a line by which a GradScaler may take a step
_SCALES = re.compile(r"scaler\w*\.step\(")


def find_answer(parted: DecidedParting) -> Reason | None:
    """Return the function that answers yes or no otherwise on some ranks, as a framework asks it.

    It is the last one before they part: a filter of events, a hook that may leave an epoch. Where
    an `if` of the script asks it, that comes first.
    """
    answered = [
        (decision, own)
        for decision, own in parted.tallies(whole=False).items()
        if decision.kind == "answer" and all(each.yes or each.no for each in own.values())
    ]
    for decision, own in reversed(answered):
        source = script_at(decision.file)
        name = getattr(source.scope(decision.line), "name", "") if source is not None else ""
        place, values = parted.place(decision), word_values(parted, decision, own)
        words = f"{count_turns(parted, decision, own)}, which `{name}` answers with" + (
            f", where {values}" if values else ""
        )
        fix = f"let `{name}` ({place}) answer the same on all ranks: agree on it first."
        return Clause(words), fix
    return None


def find_decorated(parted: DecidedParting) -> Reason | None:
    """Return the function in which some ranks communicate, and that a decorator runs on these."""
    for ranks, frames in parted.sides:
        if len(ranks) == len(parted.ranks):
            continue
        decorated = _find_decorated(frames)
        if decorated is None:
            continue
        wrapped, name, where = decorated
        place = short((where,), parted.folder)
        verb = "communicates" if len(ranks) == 1 else "communicate"
        others = [rank for rank in parted.ranks if rank not in ranks]
        if all(_comes_to(parted.records[rank], where[0], name) for rank in others):
            words = (
                f"{ranks_text(ranks)} {verb} in `{name}`, which {wrapped} ({place}) runs at other "
                f"times on {ranks_text(others)}"
            )
            return Clause(words), f"let `{name}` ({place}) run at the same times on all ranks."
        words = (
            f"{ranks_text(ranks)} alone {verb} in `{name}`, which {wrapped} ({place}) runs on some "
            "ranks alone"
        )
        fix = f"let `{name}` ({place}) call nothing that communicates: do that "
        instead = _HOOKS.get(name, ("", ""))[1]
        fix += f"in {instead}." if instead else "before, on every rank, and pass it what it needs."
        return Clause(words), fix
    return None


def _comes_to(record: RankRecord, file: str, name: str) -> bool:
    """Whether a rank communicates in a function at any time."""
    source = script_at(file)
    return source is not None and any(
        path == file and getattr(source.scope(line), "name", "") == name
        for call in record.calls
        for path, line, _ in call.place.frames
    )


#: functions that a framework calls on one rank of each node: which one, and what it calls on all
_HOOKS = {"prepare_data": ("Lightning", "`setup`, which it runs on every rank")}


def find_finalizer(parted: DecidedParting) -> Reason | None:
    """Return the `__del__` in which some ranks communicate: they run it where a reference ends."""
    for ranks, frames in parted.parting.sides:
        for file, line, _ in frames if len(parted.parting.sides) > 1 else ():
            source = script_at(file)
            scope = source.scope(line) if source is not None else None
            if not isinstance(scope, ast.FunctionDef) or scope.name != "__del__":
                continue
            place = place_at(file, scope.lineno, parted.folder)
            verb = "is" if len(ranks) == 1 else "are"
            words = (
                f"{ranks_text(ranks)} {verb} in `__del__` ({place}), which runs where the last "
                "reference to the object ends: that may be at another point on each rank"
            )
            fix = (
                f"let nothing that communicates be called in `__del__` ({place}): give the object "
                "a method (`close`) that every rank calls at the same point."
            )
            return Clause(words), fix
    return None


#: contexts that let ranks in one after another
_IN_TURN = re.compile(r"first|turn|sequential", re.IGNORECASE)


def find_turn(parted: DecidedParting) -> Reason | None:
    """Return the `with` that lets ranks in one after another, where one in it waits for others."""
    for ranks, frames in parted.parting.sides:
        others = [(who, at) for who, at in parted.parting.sides if at != frames]
        for file, line, _ in frames:
            source = script_at(file)
            for node, part in source.find_statements(line) if source is not None else ():
                if not isinstance(node, ast.With) or part != "body":
                    continue
                head = ", ".join(ast.unparse(each.context_expr) for each in node.items)
                last = end_of(node.items[-1].context_expr)
                waiting = [
                    rank
                    for who, at in others
                    if any(path == file and node.lineno <= of <= last for path, of, _ in at)
                    for rank in who
                ]
                if waiting and _IN_TURN.search(head):
                    place = place_at(file, node.lineno, parted.folder)
                    inner = short(frames, parted.folder)
                    outer = place_at(file, line, parted.folder)
                    return _tell_turn(ranks, waiting, (inner, outer), head, place)
    return None


def _tell_turn(
    ranks: Sequence[int], waiting: Sequence[int], where: tuple[str, str], head: str, place: str
) -> Reason:
    """Return the reason; `where` has the place of the call, and of what stands in the `with`."""
    verb = "is" if len(ranks) == 1 else "are"
    wait = "waits" if len(waiting) == 1 else "wait"
    words = (
        f"{ranks_text(list(ranks))} {verb} under `with {head}` ({place}), which lets the ranks in "
        f"one after another: {ranks_text(list(waiting))} {wait} there to be let in, and never "
        f"{'comes' if len(waiting) == 1 else 'come'} to {where[0]}"
    )
    inner = f", which comes to {where[0]}," if where[0] != where[1] else ""
    fix = f"take the call at {where[1]}{inner} out of `with {head}` ({place}): no call in it may "
    fix += "wait."
    return Clause(words), fix


def find_anew(parted: DecidedParting) -> Reason | None:
    """Return the decorated function that some ranks are in anew, and others for the first time.

    Nothing in the script calls it twice: what decorates it has caught an error, and tries again.
    """
    for ranks, frames in parted.parting.sides:
        for at, (file, line, _) in enumerate(frames):
            source = script_at(file)
            scope = source.scope(line) if source is not None else None
            if source is None or not isinstance(scope, ast.FunctionDef) or not scope.decorator_list:
                continue
            further = [
                rank
                for who, other in parted.parting.sides
                for place in (place for place, (path, _, _) in enumerate(other) if path == file)
                if source.scope(other[place][1]) is scope and line < other[place][1]
                if other[place + 1 :] == frames[at + 1 :]
                for rank in who
            ]
            if not further or not _is_repeated(parted, ranks, frames[at:]):
                continue
            wrapped = f"@{ast.unparse(scope.decorator_list[-1])}"
            place = source.place(scope.lineno, parted.folder)
            has = "has" if len(ranks) == 1 else "have"
            words = (
                f"{ranks_text(ranks)} {has} begun `{scope.name}` ({place}) anew, which `{wrapped}` "
                f"runs again after an error; {ranks_text(further)} still "
                f"{'runs' if len(further) == 1 else 'run'} it for the first time"
            )
            fix = (
                "let the ranks agree on an error of one of them (an `all_reduce` of a flag) before "
                f"`{wrapped}` begins `{scope.name}` anew: it knows of its own rank alone."
            )
            return Clause(words), fix
    return None


def _is_repeated(parted: DecidedParting, ranks: Sequence[int], frames: Frames) -> bool:
    """Whether ranks came to a line of a function before, and no loop of the script leads there."""
    for file, line, _ in frames:
        source = script_at(file)
        around = source.find_statements(line) if source is not None else []
        if any(isinstance(node, ast.For | ast.AsyncFor | ast.While) for node, _ in around):
            return False
    place = frames[0][:2]
    return all(
        any(
            place in {each[:2] for each in call.place.frames}
            for call in parted.records[rank].calls[:-1]
            if call is not parted.parting.calls[rank]
        )
        for rank in ranks
    )


def find_caller(parted: DecidedParting) -> Reason | None:
    """Return the line under which some ranks communicate and others, who pass it too, do not."""
    sides = [(ranks, frames) for ranks, frames in parted.parting.sides if len(frames) > 1]
    for ranks, frames in sides:
        others = [each for _, each in parted.parting.sides if each != frames]
        known = {(file, line) for other in others for file, line, _ in other}
        at = next((each for each in frames[::-1] if each[:2] not in known), frames[0])
        if at != frames[0] and others:
            at = _find_near(parted, ranks, frames, known) or at
            return _SoleCaller(parted=parted, ranks=tuple(ranks), frames=frames, at=at).tell()
    return None


class _SoleCaller(Struct, frozen=True, kw_only=True):
    """Some ranks under a line in which the others do not communicate: why, and what mends it.

        rank 0   log.debug("%s", evaluate())    whose level is another one there
        rank 1   log.debug("%s", evaluate())    `evaluate`, which communicates, is not called

    Each way to come there that is known has its method, and the first that fits tells it.
    """

    parted: DecidedParting
    ranks: tuple[int, ...]
    frames: Frames
    at: tuple[str, int, str]

    @property
    def place(self) -> str:
        """The place of the line."""
        return short((self.at,), self.parted.folder)

    @property
    def verb(self) -> str:
        """What these ranks do there."""
        return "communicates" if len(self.ranks) == 1 else "communicate"

    @property
    def words(self) -> str:
        """That these ranks alone do it."""
        where = f"`{self.at[2].strip()}` ({self.place})"
        return f"{ranks_text(self.ranks)} alone {self.verb} under {where}"

    def tell(self) -> Reason:
        """Return why they do, where it is known."""
        ways = (self._tell_logger, self._tell_scaler, self._tell_cache, self._tell_switch)
        fix = f"let every rank of the group make the calls under {self.place}, or none."
        words, fix = next(
            (found for way in (*ways, self._tell_end) if (found := way()) is not None),
            (self.words, fix),
        )
        return Clause(words), fix

    def _tell_logger(self) -> tuple[str, str] | None:
        if not _LOGS.search(self.at[2]):
            return None
        why = "a logger formats its arguments where its level lets the message through"
        return (
            f"{self.words}: {why}",
            f"take the value on every rank before {self.place}, and log that.",
        )

    def _tell_scaler(self) -> tuple[str, str] | None:
        if not _SCALES.search(self.at[2]):
            return None
        why = "a GradScaler leaves the step out where a gradient of its rank is not finite"
        fix = (
            f"let the ranks agree on that before {self.place} (an `all_reduce` of `found_inf`, as "
            "FSDP's ShardedGradScaler does), or communicate outside of the optimizer's step."
        )
        return f"{self.words}: {why}", fix

    def _tell_cache(self) -> tuple[str, str] | None:
        """Tell that a function around the call is not called again for arguments that it knows."""
        cached = _find_cached(self.frames)
        if cached is None:
            return None
        name, at = f"`{cached[0]}`", short((cached[1],), self.parted.folder)
        why = f"the answers of {name} ({at}) are cached, and it communicates where its arguments"
        fix = f"communicate outside of {name} ({at}), whose cache each rank has for itself."
        return f"{self.words}: {why} are new on the rank", fix

    def _tell_switch(self) -> tuple[str, str] | None:
        """Tell that autograd goes back through a function only where its input asks for it."""
        switched = _find_switched(self.frames)
        if switched is None:
            return None
        name, source, lines = switched
        shown = self._show((source, at) for at in lines)
        why = f"autograd runs `{name}.backward` where the input of `{name}` needs a gradient"
        why += f", which {shown} decides" if shown else ""
        fix = f"let the input of `{name}` need a gradient on every rank or on none"
        return f"{self.words}: {why}", fix + (f" ({shown})." if shown else ".")

    def _tell_end(self) -> tuple[str, str] | None:
        """Tell that the other ranks have left a loop of a framework, and what may end it."""
        left = _find_left(self.parted, self.ranks, self.at[:2])
        if not left:
            return None
        (file, _, text), place = self.at, self.place
        words = (
            f"{ranks_text(left)} {'has' if len(left) == 1 else 'have'} left `{text.strip()}` "
            f"({place}), in which {ranks_text(self.ranks)} still {self.verb}"
        )
        if _GENERATES.search(text):
            fix = (
                f"pass `synced_gpus=True` at {place}, or let every rank make as many tokens: "
                "each forward pass of a sharded model gathers its weights on all ranks."
            )
            return words, fix
        ends = self._show(_list_ends(file))
        fix = (
            f"let all ranks leave {place} in the same turn: agree first on what ends it there "
            "(an `all_reduce`), such as a score that each rank has for its own rows."
        )
        return f"{words}; what may end it: {ends}" if ends else words, fix

    def _show(self, lines: Iterable[tuple[Script, int]]) -> str:
        folder = self.parted.folder
        return ", ".join(source.quote(at, folder) for source, at in lines)


def _find_switched(frames: Frames) -> tuple[str, Script, list[int]] | None:
    """Return the autograd function whose backward pass makes a call, and what switches gradients.

    These are the lines that set `requires_grad` by a value, which may differ between ranks.
    """
    file, line, _ = frames[0]
    source = script_at(file)
    method = source.scope(line) if source is not None else None
    if source is None or not isinstance(method, ast.FunctionDef) or method.name != "backward":
        return None
    for kind in ast.walk(source.tree):
        if not isinstance(kind, ast.ClassDef) or method not in kind.body:
            continue
        if "Function" not in map(name_of, kind.bases):
            return None
        lines = [
            node.lineno
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Call)
            and name_of(node.func) == "requires_grad_"
            and any(not isinstance(each, ast.Constant) for each in node.args)
        ]
        lines += [
            node.lineno
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Assign)
            and not isinstance(node.value, ast.Constant)
            and "requires_grad" in map(name_of, node.targets)
        ]
        return kind.name, source, sorted(lines)[:MOST_SWITCHES]
    return None


def _find_near(
    parted: DecidedParting, ranks: Sequence[int], frames: Frames, known: Collection[tuple[str, int]]
) -> tuple[str, int, str] | None:
    """Return the innermost line in whose framework ranks still communicate, and others did."""
    if not parted.parting.calls[ranks[0]].place.via:
        return None
    return next(
        (e for e in frames if e[:2] not in known and _find_left(parted, ranks, e[:2])), None
    )


def _find_left(parted: DecidedParting, ranks: Sequence[int], at: tuple[str, int]) -> list[int]:
    """Return the other ranks, where all of them have communicated under a line before."""
    others = [rank for rank in parted.ranks if rank not in ranks]
    is_known = all(
        any(frame[:2] == at for call in parted.records[rank].calls for frame in call.place.frames)
        for rank in others
    )
    return others if is_known else []


#: names of what ends a loop of a framework early
_ENDS = re.compile(r"stop|terminate|prun(?:e|ing)", re.IGNORECASE)
#: lines that are shown which may end it
MOST_ENDS = 2


#: names of functions that say how good a model is
_RATES = re.compile(r"eval|metric|score|valid", re.IGNORECASE)


def find_early_end(parted: DecidedParting) -> Reason | None:
    """Return what of the script's may end a framework's loop early, where ranks part in that loop.

    All ranks are in one line of the script. What the loop is ended by is what a function of the
    script gives the framework, and each rank has that for itself.
    """
    sides = [frames for _, frames in parted.parting.sides if frames]
    is_in_framework = all(each.place.via for each in parted.parting.calls.values())
    if not is_in_framework or len({each[0][:2] for each in sides}) != 1:
        return None
    (file, line, text), folder = sides[0][0], parted.folder
    ends = _list_ends(file)
    if not ends:
        return None
    shown = ", ".join(_show_line(source, at, folder) for source, at in ends)
    place = place_at(file, line, folder)
    words = f"some ranks may have left the loop in `{text.strip()}` ({place}) early, by {shown}"
    rated = [
        f"`{node.name}` ({source.place(node.lineno, folder)})"
        for source in dict.fromkeys(source for source, _ in ends)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef) and _RATES.search(node.name)
        if _gives(node) and not _is_called(source, node.name)
    ]
    by = f"what {rated[0]} gives" if rated else "its value"
    words += f"; {by} may be another on each rank" if rated else ""
    fix = (
        f"let all ranks end {place} in the same turn: gather {by} over the ranks before it is used."
    )
    return Clause(words), fix


def _show_line(source: Script, at: int, folder: str) -> str:
    return f"`{source.text(at).rstrip(',')}` ({source.place(at, folder)})"


def _is_called(source: Script, name: str) -> bool:
    """Whether a script calls a function of a name, or asks it of another object."""
    calls = (each for each in ast.walk(source.tree) if isinstance(each, ast.Call))
    return any(name_of(each.func) == name for each in calls)


def _gives(function: ast.FunctionDef) -> bool:
    """Whether a function returns something of its own."""
    return any(isinstance(e, ast.Return) and e.value is not None for e in ast.walk(function))


def _list_ends(file: str) -> list[tuple[Script, int]]:
    """Return the lines of a script, and of those beside it, that may end a framework's loop early.

    `EarlyStopping(...)`, `engine.terminate()`, `trainer.should_stop = value < best`.
    """
    source = script_at(file)
    scripts = (source, *source.imported()) if source is not None else ()
    lines = [(script, node) for script in scripts for node in ast.walk(script.tree)]
    return [(script, node.lineno) for script, node in lines if ends_early(node)][:MOST_ENDS]


def ends_early(node: ast.AST) -> TypeGuard[ast.Call | ast.Assign]:
    """Whether a call, or what sets an attribute of something else, says that a loop is to end."""
    if isinstance(node, ast.Call):
        return _ENDS.search(name_of(node.func)) is not None
    if not isinstance(node, ast.Assign) or ast.unparse(node.value) == "False":
        return False
    targets = [each for each in node.targets if isinstance(each, ast.Attribute)]
    return any(_ENDS.search(each.attr) and name_of(each.value) != "self" for each in targets)


def _find_decorated(frames: Frames) -> tuple[str, str, tuple[str, int, str]] | None:
    """Return what runs a function around a call on some ranks alone, its name, and its place.

    That is a decorator, or a framework that calls it where the script itself does not.
    """
    for at, (file, line, _) in enumerate(frames):
        source = script_at(file)
        scope = source.scope(line) if source is not None else None
        if not isinstance(scope, ast.FunctionDef):
            continue
        caller = frames[at + 1][2] if at + 1 < len(frames) else ""
        if scope.name in _HOOKS and scope.name not in caller:
            return _HOOKS[scope.name][0], scope.name, (file, scope.lineno, "")
        for each in scope.decorator_list:
            if ASKS_RANK.search(text := ast.unparse(each)):
                return f"`@{text}`", scope.name, (file, each.lineno, "")
    return None


def _find_cached(frames: Frames) -> tuple[str, tuple[str, int, str]] | None:
    """Return the function around a call whose answers are cached, and its place."""
    for file, line, _ in frames:
        source = script_at(file)
        scope = source.cached(line) if source is not None else None
        if scope is not None:
            return scope.name, (file, scope.lineno, "")
    return None


def find_handler(parted: DecidedParting) -> Reason | None:
    """Return the function that handles a signal in which some ranks communicate, and others not."""
    inside: dict[tuple[str, int, str], list[int]] = {}
    for ranks, frames in parted.sides:
        for file, line, _ in frames:
            source = script_at(file)
            name, at = source.handler(line) if source is not None else ("", 0)
            if name:
                inside.setdefault((file, at, name), []).extend(ranks)
                break
    for (file, at, name), ranks in inside.items():
        if len(set(ranks)) == len(parted.ranks):
            continue
        place = place_at(file, at, parted.folder)
        verb = "is" if len(ranks) == 1 else "are"
        words = (
            f"{ranks_text(ranks)} alone {verb} in `{name}`, which handles a signal ({place}): it "
            "comes between any two lines, and to each rank by itself"
        )
        fix = (
            f"let `{name}` set a flag alone, and let the ranks agree on it after each step (an "
            "`all_reduce` with `op=max`) before they act on it together."
        )
        return Clause(words), fix
    return None


def find_compiled(parted: DecidedParting) -> Reason | None:
    """Return the `if` of a compiled function around the call that some ranks make in it."""
    for ranks, frames in parted.parting.sides:
        call = parted.parting.calls[ranks[0]]
        if not frames or not isinstance(call, RecordedCall) or len(ranks) == len(parted.ranks):
            continue
        file, line, _ = frames[0]
        source = script_at(file)
        scope = source.compiled(line) if source is not None else None
        for node in ast.walk(scope) if scope is not None else ():
            if isinstance(node, ast.If) and _leads_to(source, node, call.operation):
                verb = "communicates" if len(ranks) == 1 else "communicate"
                text = ast.unparse(node.test)
                place = place_at(file, node.lineno, parted.folder)
                words = (
                    f"{ranks_text(ranks)} alone {verb} in `{scope.name}`, which is compiled: "  # type: ignore[union-attr]
                    f"each rank compiles its own way through `if {text}` ({place})"
                )
                fix = f"decide `{text}` ({place}) the same way on all ranks."
                return Clause(words), fix
    return None


def _leads_to(source: Script | None, node: ast.If, operation: str) -> bool:
    """Whether a part of an `if` makes a call, itself or in a function of the scripts."""
    kind = operation.removesuffix("_single")
    wanted = {operation, kind, f"{kind}_tensor", f"{kind}_tensor_autograd"}
    called = {
        name_of(each.func)
        for part in (*node.body, *node.orelse)
        for each in ast.walk(part)
        if isinstance(each, ast.Call)
    }
    return source is not None and any(
        name in wanted or source.reaches(name, wanted) for name in called
    )
