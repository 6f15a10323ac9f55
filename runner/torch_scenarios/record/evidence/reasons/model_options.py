"""DDP or FSDP that ranks build with other arguments: its calls follow from them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Mapping

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.notes.decision import SWITCHED, SWITCHED_BY, SWITCHES
from torch_scenarios.record.evidence.reasons.origin import tell_contents
from torch_scenarios.record.evidence.script import Script, script_at
from torch_scenarios.record.format import Decision, RankRecord, RecordedCall
from torch_scenarios.verdict.finding import ranks_text

#: arguments by which DDP communicates otherwise
_DECIDING = (
    *("find_unused_parameters", "static_graph", "bucket_cap_mb", "broadcast_buffers"),
    *("init_sync", "gradient_as_bucket_view"),
)
#: those that are flags
_FLAGS = {0.0: "False", 1.0: "True"}


def find_options(
    records: Mapping[int, RankRecord], folder: str, parted: Collection[int] = ()
) -> Reason | None:
    """Return the argument of DDP or FSDP that ranks pass otherwise; None where all agree.

    Units of FSDP are compared between the ranks that part: stages of a pipeline may differ.
    """
    built = [each.wrapped_models for each in records.values()]
    for models in itertools.takewhile(all, itertools.zip_longest(*built)):
        for name in _DECIDING:
            alike: dict[float | None, list[int]] = {}
            for rank, model in zip(records, models, strict=True):
                alike.setdefault(model.options.get(name), []).append(rank)
            if len(alike) < 2:
                continue
            place = models[0].place.short(folder)
            passed = "; ".join(
                f"{_show(name, value)} on {ranks_text(ranks)}" for value, ranks in alike.items()
            )
            words = f"DDP is built with another `{name}` ({place}): {passed}"
            return Clause(words), f"pass the same `{name}` to DDP on every rank ({place})."
    return _find_unit({r: records[r] for r in parted if r in records} or records, folder)


def find_buffers(records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return the buffers that have other shapes in a model which DDP wraps; None where all agree.

    DDP compares parameters at its construction, and broadcasts buffers as they are.
    """
    built = [each.buffers for each in records.values()]
    for models in itertools.takewhile(all, itertools.zip_longest(*built)):
        place, known = models[0]
        for name in known:
            alike: dict[tuple[int, ...] | None, list[int]] = {}
            for rank, (_, shapes) in zip(records, models, strict=True):
                alike.setdefault(shapes.get(name), []).append(rank)
            if len(alike) < 2:
                continue
            shown = "; ".join(
                (f"{[*shape]}" if shape is not None else "none") + f" on {ranks_text(ranks)}"
                for shape, ranks in alike.items()
            )
            at = place.short(folder)
            words = f"DDP ({at}) broadcasts the buffers of its model: `{name}` is {shown}"
            files = [each for each, _, _ in place.frames[:1]]
            made = "".join(_find_made(each, name.rpartition(".")[2], folder) for each in files)
            where = f" ({made})" if made else ""
            fix = f"give the buffer `{name}` the same shape on every rank{where}."
            return Clause(words + (f", made at {made}" if made else "")), fix
    return None


def _find_made(file: str, name: str, folder: str) -> str:
    """Return the line of the scripts that makes a buffer of a name; or nothing."""
    source = script_at(file)
    for script in (source, *source.imported()) if source is not None else ():
        for node in ast.walk(script.tree):
            is_call = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
                "register_buffer"
            )
            first = node.args[:1] if is_call and isinstance(node, ast.Call) else []
            if any(isinstance(each, ast.Constant) and each.value == name for each in first):
                return script.place(node.lineno, folder)  # type: ignore[attr-defined]
    return ""


#: how a switch is named that ranks set otherwise from a turn of its loop on
OTHER_TURN = "differs in its turn"


def find_flag(parted: DecidedParting) -> Reason | None:
    """Return the switch of a model that ranks set otherwise in the same turn, as to accumulate.

    ``model.set_requires_gradient_sync(is_last)`` decides whether a backward pass communicates, and
    so does ``model.require_backward_grad_sync = is_last`` of DDP.
    """
    calls = parted.parting.calls.values()
    if not any(
        e.place.via or (isinstance(e, RecordedCall) and e.maker != Maker.PYTHON) for e in calls
    ):
        return None
    for decision in parted.tallies(whole=True, alike=True):
        if decision.kind != "flag":
            continue
        passed = {rank: _list_flags(parted, rank, decision) for rank in parted.ranks}
        for turn, flags in enumerate(zip(*passed.values(), strict=False), 1):
            if len(set(flags)) < 2:
                continue
            alike: dict[bool, list[int]] = {}
            for rank, flag in sorted(zip(passed, flags, strict=True)):
                alike.setdefault(flag, []).append(rank)
            shown = "; ".join(f"{flag} on {ranks_text(ranks)}" for flag, ranks in alike.items())
            place = parted.place(decision)
            words = f"`{decision.text}` ({place}) {OTHER_TURN} {turn}: {shown}"
            fix = (
                f"pass the same to it in each turn on every rank ({place}): a number of batches "
                "of its own leads a rank to another step."
            )
            return Clause(words + _tell_flag(parted, decision)), fix
    return None


def _list_flags(parted: DecidedParting, rank: int, decision: Decision) -> list[bool]:
    """Return what a rank has passed, turn by turn, as far as the call at which the ranks part."""
    return [
        flag
        for way in parted.records[rank].ways
        if way.decision == decision and parted.is_within(rank, way.before, whole=True)
        for flag in [False] * way.no + [True] * way.yes
    ]


def _tell_flag(parted: DecidedParting, decision: Decision) -> str:
    """Return in words the line that sets what is passed, and where that comes from.

    Empty where the line itself has it.
    """
    source = script_at(decision.file)
    for node in ast.walk(source.tree) if source is not None else ():
        value = _find_switched(node) if getattr(node, "lineno", 0) == decision.line else None
        at = source.assignment(value, decision.line) if source is not None and value else 0
        if source is None or value is None:
            continue
        words = f" (`{source.text(at)}`, {source.place(at, parted.folder)})" if at else ""
        behind = tell_contents(parted, (source.file, at), value)[0] if at else ""
        if behind:
            return f"; {behind}"
        turns = _tell_turns(parted, source, decision.line)
        if not at and not turns:  # a caller passes it
            behind = tell_contents(parted, (source.file, decision.line), value)[0]
            return f"; {behind}" if behind else ""
        return words + (f"; {turns}" if turns else "")
    return ""


def _tell_turns(parted: DecidedParting, source: Script, line: int) -> str:
    """Return the innermost loop around a line that has more turns on some ranks; or nothing."""
    tallies = parted.tallies(whole=True)
    loops = [each for each, _ in source.find_statements(line) if isinstance(each, ast.For)]
    for node in loops:
        for decision, own in tallies.items():
            if (decision.file, decision.line) != (source.file, node.lineno):
                continue
            each = {rank: tally.yes / (tally.no or 1) for rank, tally in own.items()}
            if len({*each.values()}) > 1:
                behind = tell_contents(parted, (source.file, node.lineno), node.iter)[0]
                words = (
                    f"the loop around it, `{decision.text}` ({parted.place(decision)}), has other "
                )
                return f"{words}turns on some ranks{behind and f': {behind}'}"
    return ""


def _find_switched(node: ast.AST) -> ast.expr | None:
    """Return what a statement sets a switch of a model to; None for any other statement."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in SWITCHES:
        return node.args[0] if node.args else None
    if isinstance(node, ast.Call) and (name := SWITCHED_BY.get(getattr(node.func, "attr", ""))):
        return next((each.value for each in node.keywords if each.arg == name), None)
    if isinstance(node, ast.Assign) and getattr(node.targets[0], "attr", "") in SWITCHED:
        return node.value
    return None


def _find_unit(records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return the argument of FSDP that ranks pass otherwise for one unit."""
    for unit, options in next((each.units for each in records.values()), {}).items():
        for name in options:
            alike: dict[str, list[int]] = {}
            for rank, record in records.items():
                if unit in record.units:
                    alike.setdefault(record.units[unit].get(name, "none"), []).append(rank)
            if len(alike) < 2:
                continue
            passed = "; ".join(f"{value} on {ranks_text(ranks)}" for value, ranks in alike.items())
            words = f"FSDP shards {unit} with another `{name}`: {passed}"
            at, where = _tell_passed(records, _PASSED_AS.get(name, name), folder)
            wraps = _WRAPS_BY.get(name, "fully_shard")
            fix = f"pass the same `{name}` to `{wraps}` on every rank{at and f' ({at})'}."
            return Clause(words + where), fix
    return None


#: arguments that `fully_shard` is given inside of another
_PASSED_AS = {"param_dtype": "mp_policy", "reduce_dtype": "mp_policy"}
#: arguments of FSDP1, which FSDP2 does not have; what the two are called
_WRAPS_BY = {"sharding_strategy": "FullyShardedDataParallel"}
_WRAPPERS = ("fully_shard", "FullyShardedDataParallel", "FSDP")


def _tell_passed(records: Mapping[int, RankRecord], name: str, folder: str) -> tuple[str, str]:
    """Return where FSDP is given an argument, and in words what sets that there."""
    files = dict.fromkeys(
        file
        for record in records.values()
        for item in record.items[:1]
        for file, _, _ in item.place.frames
    )
    own = [source for file in files if (source := script_at(file)) is not None]
    for source in dict.fromkeys([*own, *(each for one in own for each in one.imported())]):
        for node in ast.walk(source.tree):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            given = [
                each.value
                for each in (node.keywords if isinstance(node, ast.Call) else ())
                if each.arg == name and called.endswith(_WRAPPERS)
            ]
            if given:
                place = source.place(given[0].lineno, folder)
                made = source.traces(given[0], given[0].lineno)
                asking = [each for each in made if each[0].asks_rank(each[1])] or made[:1]
                shown = "".join(
                    f", which {script.quote(at, folder)} decides" for script, at in asking[:1]
                )
                return place, f" (`{name}={ast.unparse(given[0])}`, {place}{shown})"
    return "", ""


def _show(name: str, value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if name.endswith("mb") else _FLAGS.get(value, f"{value:g}")
