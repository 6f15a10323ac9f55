"""NCCL's RAS, in JSON -> which ranks cannot be reached, and which have called less often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch_scenarios.display import clean_line
from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.job_log.log import MOST_RANKS, JobLog, make_finding
from torch_scenarios.source.documents import DocumentError, decode_json
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text


def read_communicators(content: bytes, lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield what NCCL's RAS says of each communicator: counts by rank, and who is missing."""
    texts: list[bytes | str] = [content] if content.lstrip()[:1] == b"{" else []
    texts += [each for each in lines if '"communicators"' in each and each.lstrip()[:1] == "{"]
    known = set()
    for text in texts:
        try:
            document = decode_json(text)
        except DocumentError:
            continue
        if repr(document) in known:  # the whole file is one line
            continue
        known.add(repr(document))
        given = document.get("communicators") if isinstance(document, dict) else None
        for each in given if isinstance(given, list) else ():
            if isinstance(each, dict) and isinstance(each.get("ranks"), list):
                yield _communicator(each)


def _communicator(given: Mapping[str, Any]) -> dict[str, Any]:
    counts: dict[int, dict[str, int]] = {}
    for each in given["ranks"]:
        if not isinstance(each, dict) or not _is_rank(each.get("rank")):
            continue
        told = each.get("collective_counts")
        counts[each["rank"]] = {
            clean_line(str(kind)[:40]): number
            for kind, number in (told.items() if isinstance(told, dict) else ())
            if isinstance(number, int)
        }
    missing = given.get("missing_ranks")
    lost = [each.get("rank") if isinstance(each, dict) else each for each in missing or ()]
    return {
        "hash": clean_line(str(given.get("hash", ""))[:40]),
        "counts": counts,
        "missing": [each for each in lost if _is_rank(each)],
    }


def _is_rank(number: object) -> bool:
    return isinstance(number, int) and 0 <= number < MOST_RANKS


def find(log: JobLog) -> Iterator[Finding]:
    """Yield who cannot be reached, and who called a collective less often than the others."""
    for each in log.communicators:
        name = f" of communicator {each['hash']}" if each["hash"] else ""
        if each["missing"]:
            words = f"{ranks_text(each['missing'])} of NCCL's communicator cannot be reached"
            fix = "look at their processes and machines: NCCL's RAS lost its connection to them."
            yield make_finding("missing_participant", words, each["missing"], fix=fix)
        kinds = sorted({kind for own in each["counts"].values() for kind in own})
        for kind in kinds:
            alike: dict[int, list[int]] = {}
            for rank, own in sorted(each["counts"].items()):
                alike.setdefault(own.get(kind, 0), []).append(rank)
            if len(alike) < 2:
                continue
            behind = alike[min(alike)]
            notes = [Clause(f"{ranks_text(who)}: {n} times") for n, who in sorted(alike.items())]
            words = f"{ranks_text(behind)} called {kind}{name} less often than the others"
            fix = f"find the {kind} that is missing on {ranks_text(behind)}."
            yield make_finding("call_mismatch", words, behind, notes, fix)
