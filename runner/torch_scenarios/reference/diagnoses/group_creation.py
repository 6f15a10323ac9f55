"""`group_creation`: groups that the ranks do not create alike."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from torch_scenarios.errors import Clause, Mark
from torch_scenarios.reference.matching import CreationPost
from torch_scenarios.reference.state import ALL_OUTCOMES
from torch_scenarios.reference.symptoms import Symptom, list_numbers, list_ranks, odd_first, place
from torch_scenarios.reference.waits import (
    StoppedRun,
    is_gone,
)


# Ranks that disagree on a group rarely fail in `new_group`: they do in the first collective on it.
#
#     rank 0   new_group [0, 1]       barrier       waits for rank 1 in a group of two
#     rank 1   new_group [0, 1, 2]    barrier       waits for ranks 0 and 2 in a group of three
#
# Which of the calls meet depends on how a backend names groups, so that all outcomes are opened.
# The lists that differ are what the message shows, and not the barrier.
def find(rest: StoppedRun) -> list[Symptom]:
    """Find groups that the ranks do not create alike."""
    run, futures = rest.run, rest.futures
    found = []
    elsewhere: dict[tuple[int, ...], set[int]] = {}
    for post in run.creating.values():
        if post.local:  # under another name, where names count the groups of a rank
            elsewhere.setdefault(post.series[0], set()).add(post.rank)
    for here in run.creations.all():
        lists = {creating.group.ranks for creating in here.values()}
        if len(lists) > 1:
            run.opened |= ALL_OUTCOMES
            found.append(_report_difference(here))
            continue
        first = here[min(here)]
        if first.local:
            absent = [rank for rank in first.group.ranks if rank not in here]
        else:
            absent = [rank for rank in range(len(run.ranks)) if rank not in here]
        there = elsewhere.get(first.series[0], ())
        never = [
            rank for rank in absent if rank not in there and futures.brings(first, rank) == "never"
        ]
        if never:
            excused = all(is_gone(run, rank) for rank in never)
            found.append(replace(_find_uncreated(first, tuple(never)), optional=excused))
    return found


def _report_difference(here: dict[int, CreationPost]) -> Symptom:
    parts: dict[str, list[int]] = {}
    for rank in sorted(here):
        lists = f"{list_numbers(here[rank].group.ranks)}{place(here[rank])}"
        parts.setdefault(lists, []).append(rank)

    def creates(lists: str) -> tuple[str, Mark | None]:
        first = here[parts[lists][0]]
        verb = "creates" if len(parts[lists]) == 1 else "create"
        return f"{verb} {list_numbers(first.group.ranks)}", first.call.mark

    clauses = odd_first(parts, creates)
    usual = Counter(here[rank].group.ranks for rank in sorted(here)).most_common(1)[0][0]
    ordinal = here[min(here)].ordinal
    first = here[min(here)].call
    return Symptom(
        name="group_creation",
        clauses=(Clause(f"the ranks disagree on group {ordinal + 1} that they create"), *clauses),
        kind=f"group_creation:{ordinal}",
        index=min(creating.call.step.index for creating in here.values()),
        iteration=first.iteration,
        ranks=tuple(sorted(here)),
        odd=tuple(rank for rank in sorted(here) if here[rank].group.ranks != usual),
        also=("missing_participant", "circular_wait"),
    )


def _find_uncreated(first: CreationPost, never: tuple[int, ...]) -> Symptom:
    members = set(first.group.ranks)
    name = "missing_participant" if members & set(never) else "group_creation"
    also = ("group_creation",) if name == "missing_participant" else ("missing_participant",)
    words = (
        f"{list_ranks(never)} never {'calls' if len(never) == 1 else 'call'} `{first.call.label}`"
    )
    clauses = [Clause(words, first.call.mark)]
    if not members & set(never):
        clauses.append(Clause("torch asks every rank of the world to, member or not"))
    return Symptom(
        name=name,
        clauses=tuple(clauses),
        kind=f"creation:{first.number}",
        index=first.call.step.index,
        iteration=first.call.iteration,
        ranks=tuple(sorted({first.rank, *never})),
        odd=never,
        also=also,
    )
