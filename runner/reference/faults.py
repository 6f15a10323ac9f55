"""What is wrong with a program, read from a run that has come to rest.

The simulation itself notes what it meets on the way (arguments that disagree, refused calls,
races on buffers). Here is added what only the end shows: who never came, what nobody took, who
waits for whom in a ring, and what was started and never waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.reference.absences import absent_members, disputed_creations, mismatched_calls
from runner.reference.findings import Finding
from runner.reference.results import examine_present
from runner.reference.rings import rings
from runner.reference.telling import place
from runner.reference.unmatched import unmatched_messages
from runner.reference.waits import Futures, needs_of

if TYPE_CHECKING:
    from runner.reference.posts import Work
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState
    from runner.reference.waits import Need


def faults(simulation: Simulation, futures: Futures) -> tuple[list[Finding], list[Need]]:
    """Return every finding about a run that has come to rest, and what its ranks wait for."""
    stuck = [state for state in simulation.ranks if state.state == "blocked"]
    needs = needs_of(simulation, stuck)
    examine_present(simulation)
    _open_what_died_with_a_rank(simulation)
    found = list(simulation.findings)
    found += mismatched_calls(simulation, futures, needs)
    found += absent_members(simulation, futures)
    found += disputed_creations(simulation, futures)
    found += unmatched_messages(simulation, futures)
    found += rings(futures, needs)
    found += _unwaited(simulation, found)
    return found, needs


def _open_what_died_with_a_rank(simulation: Simulation) -> None:
    """Leave open whether others finish what an ended rank had started and did not wait for.

    Its part may have been done by then, or never be.
    """
    for state in simulation.ranks:
        if state.state in {"died", "raised"} and any(not work.waited for work in state.works):
            simulation.opened |= {"error", "deadlock"}


def _unwaited(simulation: Simulation, found: list[Finding]) -> list[Finding]:
    unmatched = {
        finding.index: finding
        for finding in found
        if finding.name in {"unmatched_send", "unmatched_recv", "tag_mismatch"}
    }
    missing: dict[int, Finding] = {}
    for state in simulation.ranks:
        for work in state.works:
            if state.gave_up(work):
                missing.setdefault(work.call.step.index, _missing_wait(state, work, unmatched))
    return list(missing.values())


def _missing_wait(state: RankState, work: Work, unmatched: dict[int, Finding]) -> Finding:
    step = work.call.step
    same = unmatched.get(step.index)
    return Finding(
        name="missing_wait",
        prose=(f"rank {state.rank} starts `{work.call.label}`{place(work)} and never waits for it"),
        kind=same.kind if same else f"missing_wait:{step.index}",
        index=step.index,
        iteration=work.call.iteration,
        ranks=(state.rank,),
    )
