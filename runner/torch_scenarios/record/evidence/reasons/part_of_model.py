"""Calls of one line that carry different parts of a model: a gradient, a unit of FSDP."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason, short
from torch_scenarios.record.evidence.divergence import Parting, calls_by_group
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.reasons.earlier_condition import find_last_decided
from torch_scenarios.record.evidence.reasons.loop import find_surrounding_loop
from torch_scenarios.record.evidence.reasons.origin import draws, tell_contents, tell_seed
from torch_scenarios.record.evidence.script import place_at, script_at
from torch_scenarios.record.evidence.tensor_names import BUFFERS
from torch_scenarios.record.format import RankRecord, RecordedCall
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text


def list_parts(parted: DecidedParting) -> str:
    """Return what each rank passes: `rank 0 passes the gradient of head.weight; ...`."""
    return "; ".join(
        f"{ranks_text(ranks)} {'passes' if len(ranks) == 1 else 'pass'} {part}"
        for part, ranks in parted.parting.parts.items()
    )


def find_part(parted: DecidedParting) -> Reason | None:
    """Return the last `if` that ranks decided otherwise before their parts of a model differ.

    None where their calls come from several lines, or carry the same.
    """
    if len(parted.parting.sides) > 1:
        return None
    if has_buffers(parted.parting):
        return _find_buffer(parted)
    if len(parted.parting.parts) < 2:
        return None
    fix = (
        "let every rank pass the same parameters in the same order: use each layer in each forward "
        "pass, and reduce zeros for a gradient that is None."
    )
    earlier = find_last_decided(parted, by_all=True, whole=True)
    if earlier is not None:
        return earlier[0], f"decide that the same way on all ranks, or {fix}"
    found = _find_drawn(parted) or _find_order(parted)
    return found or (Clause("they use other parts of the model"), fix)


def _find_drawn(parted: DecidedParting) -> Reason | None:
    """Return the `if` that each rank draws for itself, as one that leaves layers out.

    Ranks may go as often into it by then, and not for the same layers.
    """
    for decision, own in parted.tallies(whole=True, alike=True).items():
        is_asked = decision.kind == "if" and parted.leads_on(decision, to_line=True)
        if not is_asked or not draws(decision) or not any(e.yes and e.no for e in own.values()):
            continue
        place, seed = parted.place(decision), tell_seed(parted, decision)
        words = f"`{decision.text}` ({place}) is drawn by each rank: {seed or 'at random'}"
        fix = (
            f"draw the same on all ranks ({place}): by a generator that all seed alike and that "
            "nothing else draws from, or let rank 0 draw and `broadcast` it."
        )
        return Clause(words), fix
    return None


def _find_order(parted: DecidedParting) -> Reason | None:
    """Return the loop whose variable the line of the calls reads: it goes through the parts."""
    for _, frames in parted.parting.sides:
        for file, line, _ in frames:
            loop = find_surrounding_loop(file, line)
            if loop is None:
                continue
            place = place_at(file, loop.lineno, parted.folder)
            text = f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"
            held, chosen = tell_contents(parted, (file, line), loop.iter)
            if held:
                words = f"`{text}` ({place}) goes through them, and {held}"
                what = ast.unparse(loop.iter)
                fix = f"let `{what}` ({place}) be the same on every rank in each turn: "
                fix += (
                    f"take {chosen} the same way on all."
                    if chosen
                    else "seed alike what it is chosen by, or let rank 0 choose and `broadcast` it."
                )
                return Clause(words), fix
            words = f"`{text}` ({place}) goes through them, in an order that is not every rank's"
            return Clause(words), (
                f"let the loop at {place} go through the same parts in the same order on every "
                "rank."
            )
    return None


def find_own_shape(parted: DecidedParting) -> Reason | None:
    """Return the line that makes a part of a model which has another shape on some ranks.

    All of them pass the same part, by its name: not the order of the parts differs, but its size.
    """
    parting = parted.parting
    names = [_GRADIENT.sub("", part) for part in parting.parts]
    carried = {rank for ranks in parting.parts.values() for rank in ranks}
    if len(names) != 1 or carried != {*parting.calls} or not _DOTTED.fullmatch(names[0]):
        return None
    files = dict.fromkeys(file for _, frames in parting.sides for file, _, _ in frames)
    own = [each for each in map(script_at, files) if each is not None]
    scripts = dict.fromkeys([*own, *(other for each in own for other in each.imported())])
    for name in names[0].split(".")[::-1]:
        made = [
            (script, node.value)
            for script in scripts
            for node in ast.walk(script.tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and any(ast.unparse(each) == f"self.{name}" for each in node.targets)
        ]
        for script, value in made if len(made) == 1 else ():
            at = (script.file, value.lineno)
            given = ast.Tuple([*value.args, *(each.value for each in value.keywords)], ast.Load())
            held = tell_contents(parted, at, ast.copy_location(given, value))[0]
            place = place_at(*at, parted.folder)
            words = f"`{names[0]}` is made with another shape on some ranks: "
            words += f"`{script.text(value.lineno)}` ({place})" + f", where {held}" * bool(held)
            return Clause(words), f"make `{names[0]}` ({place}) of the same size on every rank."
    return None


#: how a part says that it is a gradient, and the name of a parameter
_GRADIENT = re.compile(r"^the gradient of ")
_DOTTED = re.compile(r"\w+(?:\.\w+)+")


def find_other_unit(records: Mapping[int, RankRecord]) -> Finding | None:
    """Return the finding that one operation gathers other units of FSDP on some ranks; or None.

    Where units are of one size nothing fails: each rank gets a unit that is made of two. A rank
    calls one unit by one name, so that one of them communicates for both at some time.
    """
    for name, _, calls in calls_by_group(records):
        own = {rank: {each.carries for each in listed} for rank, listed in calls.items()}
        for at in range(min(map(len, calls.values()))):
            met = {rank: listed[at] for rank, listed in sorted(calls.items())}
            units = {call.carries for call in met.values()}
            is_met = len(units) > 1 and all(map(_UNIT.fullmatch, units))
            if is_met and any(len(units & carried) > 1 for carried in own.values()):
                return Finding(
                    witness="program",
                    code="diagnosis_undeclared",
                    diagnosis="call_mismatch",
                    prose=(
                        "ranks communicate for other units of a model in one operation: the sizes "
                        "fit, so that nothing fails, and each rank gets parts of both"
                    ),
                    notes=(
                        Clause(f"operation {at + 1} on {name} is of another unit on some ranks"),
                    ),
                    ranks=tuple(met),
                    name="outcome",
                )
    return None


#: the name of a unit of FSDP
_UNIT = re.compile(r"the unit .*|the root unit", re.DOTALL)


def has_buffers(parting: Parting) -> bool:
    """Whether calls that meet carry buffers that have changed their shapes, on some ranks."""
    return bool(parting.parts) and all(part.startswith(BUFFERS) for part in parting.parts)


#: classes that wrap a model, and broadcast its buffers when they do
_DDP = frozenset({"DistributedDataParallel", "DDP"})


def advise_unwrapped(parted: DecidedParting) -> str:
    """Return what ranks may call alone in place of a model under DDP, whose buffers it broadcasts.

    Nothing where no side of them is in such a forward pass.
    """
    for ranks, frames in parted.parting.sides:
        call, source = parted.parting.calls[ranks[0]], script_at(frames[0][0]) if frames else None
        if source is None or not isinstance(call, RecordedCall) or call.place.via:
            continue
        called = source.called(frames[0][1])
        if (call.maker, call.operation) == (Maker.CPP, "broadcast") and not called & _DDP:
            where = short(frames, parted.folder)
            return f"or call the `.module` of what DDP wraps at {where}, which sends no buffers"
    return ""


def _find_buffer(parted: DecidedParting) -> Reason:
    """Return the buffers that DDP broadcasts in other shapes, with the lines that set them anew."""
    parts = [part.removeprefix(BUFFERS) for part in parted.parting.parts]
    names = dict.fromkeys(re.findall(r"(\w+) \[", " ".join(parts)))
    words = f"{list_parts(parted)}: " if len(parts) == 1 else ""
    words += "before each forward pass DDP broadcasts the buffers of its model, from rank 0"
    for _, frames in parted.sides[:1]:
        source = script_at(frames[0][0])
        for script in (source, *source.imported()) if source is not None else ():
            words += "".join(
                f"; `{script.text(node.lineno)}` "
                f"({script.place(node.lineno, parted.folder)}) sets one anew"
                for node in ast.walk(script.tree)
                if isinstance(node, ast.Assign)
                and any(
                    ast.unparse(each) in {f"self.{name}" for name in names} for each in node.targets
                )
            )
    fix = (
        f"give {' and '.join(f'`{name}`' for name in names)} the same shape on every rank: make it "
        "as large as it may become at once, keep it as a plain attribute, or pass "
        "`broadcast_buffers=False` to DDP."
    )
    return Clause(words), fix
