"""DDP or FSDP that ranks build with other arguments: its calls follow from them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Mapping

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason, short
from torch_scenarios.record.evidence.script import Script, script_at
from torch_scenarios.record.format import RankRecord
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


def _find_unit(records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return the argument of `fully_shard` that ranks pass otherwise for one unit."""
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
            fix = f"pass the same `{name}` to `fully_shard` on every rank{at and f' ({at})'}."
            return Clause(words + where), fix
    return None


#: arguments that `fully_shard` is given inside of another
_PASSED_AS = {"param_dtype": "mp_policy", "reduce_dtype": "mp_policy"}


def _tell_passed(records: Mapping[int, RankRecord], name: str, folder: str) -> tuple[str, str]:
    """Return where `fully_shard` is given an argument, and in words what sets that there."""
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
                if each.arg == name and called.endswith("fully_shard")
            ]
            if given:
                place = _place(source, given[0].lineno, folder)
                made = source.traces(given[0], given[0].lineno)
                asking = [each for each in made if each[0].asks_rank(each[1])] or made[:1]
                shown = "".join(
                    f", which `{script.text(at)}` ({_place(script, at, folder)}) decides"
                    for script, at in asking[:1]
                )
                return place, f" (`{name}={ast.unparse(given[0])}`, {place}{shown})"
    return "", ""


def _place(source: Script, line: int, folder: str) -> str:
    return short(((source.file, line, ""),), folder)


def _show(name: str, value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if name.endswith("mb") else _FLAGS.get(value, f"{value:g}")
