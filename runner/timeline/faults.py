"""What is wrong, as a timeline shows it: who waits for whom, and the diagnoses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.timeline.model import STUCK, Edge, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runner.trace import RankTrace, Trace


def edges_of(trace: Trace, predicted: Trace | None) -> Iterator[Edge]:
    """Yield who waits for whom, of the ranks that stand where the reference saw them stand."""
    if predicted is None:
        return
    foreseen = {rank.rank: _stands(rank) for rank in predicted.ranks}
    standing = {r.rank for r in trace.ranks if _stands(r) and _stands(r) == foreseen.get(r.rank)}
    told = {
        (wait.waiter, wait.peer, wait.index)
        for diagnosis in predicted.diagnoses
        for wait in diagnosis.waits
    }
    for wait in predicted.waits:
        if wait.waiter in standing:
            yield Edge(
                waiter=wait.waiter,
                peer=wait.peer,
                because=wait.because,
                cycle=(wait.waiter, wait.peer, wait.index) in told,
                sure=wait.sure,
            )


def _stands(rank: RankTrace) -> tuple[int, tuple[int, ...]] | None:
    """Return the step in which a rank is left standing, if it is."""
    last = rank.events[-1] if rank.events else None
    return (last.index, last.iteration) if last is not None and last.state in STUCK else None


def faults_of(predicted: Trace | None, lines: Mapping[int, int | None]) -> Iterator[Fault]:
    """Yield what the reference found wrong; `lines` are those of the steps, by index."""
    for diagnosis in predicted.diagnoses if predicted else ():
        yield Fault(
            name=diagnosis.name,
            prose=diagnosis.prose,
            ranks=diagnosis.ranks,
            line=lines.get(diagnosis.index),
            odd=diagnosis.odd,
        )
