"""How ranks that never come have left: by an exit, or by their end."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason, short
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import (
    Blocking,
    RankRecord,
)
from torch_scenarios.verdict.finding import ranks_text


def find_departure(parted: Parted) -> Reason | None:
    """Return how ranks that never come have left: the line of their exit, or of their end."""
    ended: dict[str, list[int]] = {}
    for rank in parted.parting.missing:
        record = parted.records[rank]
        left = record.left_at.short(parted.folder)
        if left:
            text = record.left_at.frames[0][2]
            ended.setdefault(f"`{text}` ({left})" if text else left, []).append(rank)
            continue
        last = record.items[-1] if record.items else None
        if isinstance(last, Blocking) and last.what.startswith("destroy"):
            where = last.place.short(parted.folder)
            ended.setdefault(f"`{last.what}` ({where})", []).append(rank)
    if not ended:
        return None
    words = "; ".join(
        f"{ranks_text(ranks)} {'has' if len(ranks) == 1 else 'have'} left by {how}"
        for how, ranks in ended.items()
    )
    how = next(iter(ended))
    fix = f"let no rank leave by {how} while others still communicate with it."
    return Clause(words), fix


#: a file of a stack, what such a rank waits for, and what helps
_KNOWN = (
    (
        re.compile(r"torch/utils/file_baton\.py"),
        (
            "waits for another process to build an extension of torch: where none does, one that "
            "was ended has left the file `lock` in the extension's folder (of TORCH_EXTENSIONS_DIR,"
            " or ~/.cache/torch_extensions); remove it"
        ),
    ),
    (
        re.compile(r"torch/utils/data/dataloader\.py.* in _try_get_data"),
        (
            "waits for a worker of its DataLoader: look at what the worker does (`py-spy dump`), "
            "such as a lock that a thread held when it was forked; `num_workers=0` shows an error "
            "of the dataset itself, `multiprocessing_context='spawn'` forks nothing"
        ),
    ),
    (
        re.compile(r"/filelock/"),
        "waits for a lock on a file that another process, or another rank, holds",
    ),
)


def explain_waits(stacks: Mapping[int, str]) -> list[str]:
    """Return what ranks outside of any call wait for, where their stacks say so."""
    found: dict[str, list[int]] = {}
    for rank, stack in sorted(stacks.items()):
        for pattern, words in _KNOWN:
            if pattern.search(stack):
                found.setdefault(words, []).append(rank)
    return [f"{ranks_text(who[:1])} {words}" for words, who in found.items()]


def explain_outside(
    places: Mapping[int, Frames], records: Mapping[int, RankRecord], folder: str
) -> list[str]:
    """Return in words why some ranks are outside of any call; nothing where that is not known.

    `places` says where each of them is: what it decided since its last call is in its memory alone.
    """
    lines = []
    for rank in places:
        for each in records[rank].lost[-1:] if rank in records else ():
            where = each.raised_at.short(folder)
            at = f" ({where})" if where else ""
            lines.append(
                f"a thread of rank {rank}, {each.name}, has died by {each.words}{at}: what waits "
                "for it waits for ever"
            )
    waiting = [r for r, each in records.items() if r not in places and each.inside]
    return lines or [*_find_apart(places, waiting, records, folder), *_find_polls(places, folder)]


def _find_polls(places: Mapping[int, Frames], folder: str) -> list[str]:
    """Return the loop with a condition that ranks outside of any call are in."""
    found: dict[str, list[int]] = {}
    for rank, frames in places.items():
        for file, line, _ in frames:
            source = script_at(file)
            around = source.around(line) if source is not None else []
            loop = next((node for node, _ in around if isinstance(node, ast.While)), None)
            if loop is not None and not isinstance(loop.test, ast.Constant):
                place = short(((file, loop.lineno, ""),), folder)
                found.setdefault(f"`while {ast.unparse(loop.test)}` ({place})", []).append(rank)
                break
    return [
        f"{ranks_text(ranks)} {'asks' if len(ranks) == 1 else 'ask'} again and again in {text}: "
        "look at what has to change for it to end, and at the rank that changes it"
        for text, ranks in found.items()
    ]


def _find_apart(
    places: Mapping[int, Frames],
    waiting: Sequence[int],
    records: Mapping[int, RankRecord],
    folder: str,
) -> list[str]:
    """Return the `if` around where ranks are that others, who wait in calls, decide otherwise."""
    for rank, frames in places.items():
        for file, line, _ in frames:
            source = script_at(file)
            for node, name in source.around(line) if source is not None else ():
                if not isinstance(node, ast.If) or name not in {"body", "orelse"}:
                    continue
                at = (file, node.test.lineno)
                others = [each for each in waiting if _goes_past(records[each], at, name)]
                if others:
                    text, own = ast.unparse(node.test), ranks_text([rank])
                    way = "into" if name == "body" else "into the `else` of"
                    verb = "does" if len(others) == 1 else "do"
                    where = short(((*at, ""),), folder)
                    inner = short(frames, folder)
                    words = f"{ranks_text(others)} {verb} not go {way} `if {text}` ({where})"
                    return [f"{words}, under which {own} is ({inner})"]
    return []


def _goes_past(record: RankRecord, at: tuple[str, int], name: str) -> bool:
    """Whether a rank decided an `if` the other way, each time."""
    ways = [way for way in record.ways if (way.decision.file, way.decision.line) == at]
    taken = sum(way.yes if name == "body" else way.no for way in ways)
    return bool(ways) and not taken
