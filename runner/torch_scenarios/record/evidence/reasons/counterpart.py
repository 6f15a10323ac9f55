"""Why a message has no counterpart: a loop that is longer on one side, or an `if` not taken.

Messages are in other lines on each side, so ranks do not *part* as those of a collective do::

    for m in range(self.n):          rank 1 takes it 4 times, rank 2 3 times
        dist.recv(x, self.prev)

    if rank < world - 1:             rank 2 does not go in, where it would send
        ops.append(P2POp(dist.isend, x, right))
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason, list_times, list_values
from torch_scenarios.record.evidence.divergence import Parting
from torch_scenarios.record.evidence.reasons.caught_error import find_caught
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import RankRecord
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: diagnoses of messages without a counterpart
UNANSWERED = frozenset({"unmatched_send", "unmatched_recv", "circular_wait", "missing_wait"})
#: what a rank waits for another one to do
_ANSWERS = re.compile(r"for rank (\d+) to (send|receive)|rank (\d+) never (sends|receives)")
#: the functions that do it
_CALLS = {"send": re.compile(r"\bi?send\b"), "receive": re.compile(r"\bi?recv\b")}


def explain_message(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return why a message of a finding has no counterpart; None where nothing is known."""
    if finding.diagnosis not in UNANSWERED:
        return None
    words = " ".join(each.words + each.rest for each in finding.notes)
    answers = [
        (int(one or other), (what or also).rstrip("s"))
        for one, what, other, also in _ANSWERS.findall(words)
    ]
    answers = [(rank, what) for rank, what in answers if rank in records]
    if not answers:
        return None
    parted = Parted(Parting(group="", at=0, calls={}, missing=tuple(records)), records, folder)
    return (
        find_caught(parted, whole=True)
        or _loop(finding, parted)
        or next(filter(None, (_answer(parted, *each) for each in answers)), None)
    )


def _loop(finding: Finding, parted: Parted) -> Reason | None:
    """Return the loop around a message that some ranks have left after fewer turns than others."""
    marks = {each.mark.at for each in finding.notes if each.mark is not None}
    frames = {
        call.place.frames
        for record in parted.records.values()
        for call in record.calls
        if call.place.short(parted.folder) in marks
    }
    tallies = parted.tallies(whole=True)
    for decision, own in tallies.items():
        if decision.kind not in {"for", "while"}:
            continue
        turns = {rank: each.yes for rank, each in own.items() if each.yes}
        if len(turns) < 2 or len(set(turns.values())) < 2:
            continue
        span = _span(decision.file, decision.line)
        if span is None or not any(_is_inside(each, decision.file, span) for each in frames):
            continue
        fewest = [rank for rank, count in turns.items() if count == min(turns.values())]
        if any(_ends_inside(parted.records[rank], decision.file, span) for rank in fewest):
            continue  # it is still in the loop, and waits there for something else
        place = parted.place(decision)
        clause = Clause(
            f"the loop `{decision.text}` ({place}) has more turns on some ranks: "
            + list_times(turns)
        )
        fix = f"give every rank that takes it as many turns of the loop at {place}."
        return clause, fix
    return None


def _span(file: str, line: int) -> tuple[int, int] | None:
    """Return the first and last line of the loop whose head is in a line."""
    source = script_at(file)
    return source.loop(line) if source is not None else None


def _is_inside(frames: Sequence[tuple[str, int, str]], file: str, span: tuple[int, int]) -> bool:
    return any(each == file and span[0] <= line <= span[1] for each, line, _ in frames)


def _ends_inside(record: RankRecord, file: str, span: tuple[int, int]) -> bool:
    """Whether a rank was inside of lines when its record ended."""
    last = record.items[-1] if record.items else None
    return last is not None and record.inside and _is_inside(last.place.frames, file, span)


def _answer(parted: Parted, rank: int, what: str) -> Reason | None:
    """Return the `if` under which a rank would send or receive, and which it does not take."""
    for decision, own in parted.tallies(whole=True).items():
        source = script_at(decision.file)
        node = source.condition(decision.line) if source is not None else None
        if decision.kind != "if" or node is None:
            continue
        mine = own[rank]
        for name, part, taken in _branches(node, mine.yes, mine.no):
            if taken or not (mine.yes or mine.no) or not _CALLS[what].search(part):
                continue
            place = parted.place(decision)
            way = "into" if name == "body" else "into the `else` of"
            values = list_values(decision, {rank: mine})
            clause = Clause(
                f"{ranks_text([rank])} does not go {way} `{decision.text}` ({place}), where it "
                f"would {what}" + (f"; {values}" if values else "")
            )
            fix = (
                f"let rank {rank} {what} too ({place}), or let the other rank not wait for it: "
                "each message needs a rank at both ends."
            )
            return clause, fix
    return None


def _branches(node: ast.If | ast.IfExp, yes: int, no: int) -> Iterator[tuple[str, str, int]]:
    """Yield the parts of a condition: its name, its text, and how often a rank took it."""
    for name, taken in (("body", yes), ("orelse", no)):
        part = getattr(node, name)
        nodes = part if isinstance(part, list) else [part]
        yield name, "\n".join(ast.unparse(each) for each in nodes), taken
