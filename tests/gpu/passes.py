"""The corpus on a backend, as far as world sizes and time allow; every red case told in full."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.pipeline.attempts import analyse, execute
from torch_scenarios.pipeline.results import Selection
from torch_scenarios.pipeline.selection import load_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.pipeline.results import Result
    from torch_scenarios.verdict import Verdict

#: findings of a case that are printed
TOLD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One run over the corpus: which sizes of worlds, and whether ranks share GPUs."""

    name: str
    backend: str
    sizes: range
    share_gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What came of one case: `red` where nothing explains that it did not pass."""

    name: str
    status: str
    words: tuple[str, ...] = ()
    red: bool = False
    duration_s: float = 0.0
    world_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of a pass; `left` were not reached in time."""

    name: str
    cases: list[Case] = field(default_factory=list)
    left: int = 0
    duration_s: float = 0.0

    @property
    def counts(self) -> Counter[str]:
        """How many of each status."""
        return Counter(case.status for case in self.cases)

    @property
    def red(self) -> list[Case]:
        """What nothing explains."""
        return [case for case in self.cases if case.red]


def corpus(paths: tuple[str, ...]) -> tuple[Scenario, ...]:
    """Return every case of the corpus."""
    loaded = load_all(Selection(paths=paths))
    assert not loaded.invalid, [result.file for result in loaded.invalid]
    return loaded.scenarios


def run(
    what: Pass, scenarios: tuple[Scenario, ...], deadline_s: float, say: Callable[[str], None]
) -> Tally:
    """Run the cases of a pass until `deadline_s` (of the monotonic clock)."""
    chosen = [scenario for scenario in scenarios if scenario.world_size in what.sizes]
    chosen.sort(key=lambda scenario: scenario.source.path.count("/nccl/") == 0)
    tally = Tally(name=what.name)
    began_s = time.monotonic()
    options = LaunchOptions(backend=what.backend, share_gpu=what.share_gpu)
    with Launcher(options) as launcher:
        launcher.reserve(what.sizes.stop - 1)
        for number, scenario in enumerate(chosen):
            if time.monotonic() > deadline_s:
                tally.left = len(chosen) - number
                break
            case = told(execute(analyse(scenario), launcher), what.backend)
            tally.cases.append(case)
            if case.status != "PASSED":
                mark = "RED " if case.red else ""
                say(f"  {mark}{case.status} {case.name}")
                for line in case.words:
                    say(f"      {line}")
    tally.duration_s = time.monotonic() - began_s
    counted = ", ".join(f"{count} {status.lower()}" for status, count in tally.counts.items())
    late = f", {tally.left} NOT RUN (time)" if tally.left else ""
    say(f"{what.name}: {counted or 'nothing'}{late} in {tally.duration_s:.1f} s")
    return tally


def told(result: Result, backend: str) -> Case:
    """Return what a report keeps of a result.

    `OPEN` is a wrong program that ended there as it is known to, and not as it does everywhere;
    `FORESEEN` a right one that this backend halts, for a cause that the analysis named.
    """
    verdict = result.verdict
    case = Case(
        name=f"{result.file}::{result.case}",
        status=verdict.status,
        words=_words(verdict),
        duration_s=result.duration_s,
        world_s=_world_s(verdict),
    )
    if verdict.status == "UNSUPPORTED":
        return case
    if verdict.status == "PASSED":
        known = tuple(note for note in verdict.notes if note.startswith(f"on {backend}"))
        return replace(case, status="OPEN", words=known) if known else case
    halted = {finding.code for finding in verdict.findings} == {"outcome_differs"}
    foreseen = any(note.startswith(f"on {backend}, as predicted") for note in verdict.notes)
    if verdict.status == "FAILED" and halted and foreseen:
        return replace(case, status="FORESEEN", words=case.words[:1])
    return replace(case, red=True)


def _words(verdict: Verdict) -> tuple[str, ...]:
    if verdict.status == "PASSED":
        return ()
    found = [verdict.reason] if verdict.reason else []
    for finding in verdict.findings[:TOLD]:
        found.append(f"[{finding.witness}] {finding.prose}")
        found += [f"  {difference.message}" for difference in finding.differences[:TOLD]]
    if verdict.observed is not None:
        found.append(f"observed: {verdict.observed.outcome}")
        for rank in verdict.observed.ranks:
            last = rank.events[-1] if rank.events else None
            at = f" in `{last.label}` (step {last.index})" if last else ""
            why = f": {last.failure.message.splitlines()[0]}" if last and last.failure else ""
            found.append(f"  rank {rank.rank} {rank.ending}{at}{why}")
        found += list(verdict.observed.notes)
    return tuple(found)


def _world_s(verdict: Verdict) -> float:
    observed = verdict.observed
    return float(observed.environment.get("world_s", 0.0)) if observed else 0.0
