"""The signature of a fault: what must stay while a scenario shrinks, and what is stated anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from torch_scenarios.errors import Edit, ScenarioError
from torch_scenarios.language.document import load_content
from torch_scenarios.limits import Limits, OverdueError
from torch_scenarios.model.groups import plan
from torch_scenarios.model.scenario import Scenario, steps_of
from torch_scenarios.model.trace import RankTrace
from torch_scenarios.pipeline.attempts import analyse, execute
from torch_scenarios.pipeline.results import Analysis, Executor
from torch_scenarios.reference import simulate
from torch_scenarios.source.edit import (
    Stated,
    fill,
    plain,
    remove_items,
    selector,
    spans,
    splice,
    state_values,
)
from torch_scenarios.verdict import Finding, Verdict

# What must stay while a scenario shrinks: its verdict, what it is called, how it ends.

#: findings about a value: there the operation that gave it stays, too
_VALUES = frozenset(
    {"value_differs", "shape_differs", "dtype_differs", "value_missing", "undefined_read"}
)


class FaultSignature(Struct, frozen=True, kw_only=True):
    """The fault of a scenario, whatever its size.

    `findings` are (code, witness, operation); the operation is named where a value is concerned.
    `open` are the outcomes that the semantics leave to a backend, `observed` is that of a run, None
    where nothing ran.
    """

    status: str
    outcome: str
    diagnoses: frozenset[str]
    findings: frozenset[tuple[str, str, str]]
    open: frozenset[str] = frozenset()
    observed: str | None = None

    @property
    def shows_a_fault(self) -> bool:
        """Whether there is anything to keep: a diagnosis, a finding, an ending before the end."""
        ends = {self.outcome, self.observed or "completes"}
        return bool(self.diagnoses or self.findings) or ends != {"completes"}

    def __str__(self) -> str:
        """Name the fault."""
        codes = sorted({code for code, _, _ in self.findings} - {"diagnosis_undeclared"})
        names = [*sorted(self.diagnoses), *codes]
        return f"{self.status}, {self.outcome}" + (f": {', '.join(names)}" if names else "")


#: a text -> its signature; None where it is no valid scenario of one case
Oracle: TypeAlias = "Callable[[str], FaultSignature | None]"


def signature_of(scenario: Scenario, verdict: Verdict) -> FaultSignature | None:
    """Return the signature of a verdict; None where it is INVALID."""
    if verdict.status == "INVALID" or verdict.predicted is None:
        return None
    return FaultSignature(
        status=verdict.status,
        outcome=verdict.predicted.outcome,
        open=frozenset(verdict.predicted.open),
        diagnoses=frozenset(each.name for each in verdict.predicted.diagnoses),
        findings=frozenset(_findings(scenario, verdict)),
        observed=verdict.observed.outcome if verdict.observed is not None else None,
    )


def _findings(scenario: Scenario, verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    """Yield each kind of finding once, about a value with the first operation that gave one.

    What is computed from a wrong value is wrong for the same reason.
    """
    seen: set[tuple[str, str]] = set()
    # what stands at the end is a consequence of a step, where one is found as well
    for finding in sorted(verdict.findings, key=lambda each: (each.index < 0, each.index)):
        kind = (finding.code, finding.witness)
        if kind not in seen:
            seen.add(kind)
            yield (*kind, _operation(scenario, finding))


def _operation(scenario: Scenario, finding: Finding) -> str:
    if finding.code not in _VALUES:
        return ""
    steps = steps_of(scenario.steps)
    step = steps[finding.index] if 0 <= finding.index < len(steps) else None
    return step.operation.name if step is not None and step.operation is not None else ""


def analysis_oracle(path: Path, limits: Limits) -> Oracle:
    """Return the oracle that analyses a text as if it stood at `path`."""

    def ask(text: str) -> FaultSignature | None:
        analysis = _analyse(path, text, limits)
        return None if analysis is None else signature_of(analysis.scenario, analysis.verdict)

    return ask


def run_oracle(path: Path, limits: Limits, executor: Executor) -> Oracle:
    """Return the oracle that runs a text on a backend, where the analysis lets it pass."""

    def ask(text: str) -> FaultSignature | None:
        analysis = _analyse(path, text, limits)
        if analysis is None:
            return None
        return signature_of(analysis.scenario, execute(analysis, executor).verdict)

    return ask


def _analyse(path: Path, text: str, limits: Limits) -> Analysis | None:
    try:
        scenarios = load_content(path, text.encode(), limits=limits)
    except (ScenarioError, OverdueError):
        return None
    return analyse(scenarios[0], limits) if len(scenarios) == 1 else None


# Who is stuck where, and who dies: left out while a program shrinks, stated anew in the end.
#
# `blocked` and `dies` name ranks and steps, and so change with every rank and step that goes. The
# outcome and the diagnosis stay, for they are what is kept.

#: what is stated anew in the end, in the top-level `expect`
RESTATED = frozenset({"blocked", "dies"})


def bare(text: str, *, keep: bool = False) -> str:
    """Return a text that does not say who is blocked or dies; `keep` leaves it as it is."""
    root = spans(text)
    expect = root.get("expect")
    if keep or expect is None:
        return text
    gone = {number for number, (key, _) in enumerate(expect.entries) if key.text in RESTATED}
    if not gone:
        return text
    if len(gone) < len(expect.entries):
        return splice(text, remove_items(text, expect, gone))
    number = root.entry("expect")
    return splice(text, remove_items(text, root, {number} if number is not None else set()))


def restate(text: str, path: Path, limits: Limits) -> str:
    """Return a text in which `blocked` and `dies`, where it has them, are those of its program."""
    root = spans(text)
    expect = root.get("expect")
    if expect is None or not any(expect.get(word) for word in RESTATED):
        return text
    try:
        (scenario,) = load_content(path, bare(text).encode(), limits=limits)
        ranks = simulate(plan(scenario, limits=limits), limits=limits).ranks
    except (ScenarioError, OverdueError, ValueError):
        return bare(text)
    edits: list[Edit] = []
    gone: set[int] = set()
    for number, (key, value) in enumerate(expect.entries):
        if key.text in RESTATED:
            found = {rank.rank: _tell_end(key.text, rank) for rank in ranks}
            if any(found.values()):
                edits.append(fill(text, value, _write_mapping(state_values(found, {}), len(ranks))))
            else:
                gone.add(number)
    return splice(text, [*edits, *(remove_items(text, expect, gone) if gone else [])])


def _tell_end(word: str, rank: RankTrace) -> str | None:
    if word == "dies":
        return plain(rank.died) if rank.died else None
    stuck = rank.ending == "blocked" and rank.events
    return plain(rank.events[-1].label) if stuck else None


def _write_mapping(made: Stated, count: int) -> str:
    if made.alone is None:
        return made.line
    return "{" + f"{selector(tuple(range(count)), {})}: {made.alone}" + "}"
