"""A wrong number in an expectation never passes: sampled mutations of the corpus are all caught.

Each mutant changes one number that an author expects. `check` must refuse it (against the
reference), and so must the run alone, with the reference's own opinion switched off.
"""

from __future__ import annotations

import random
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from sampling import sampled

import torch_scenarios
from torch_scenarios.language.expectations import version_key
from torch_scenarios.model.groups import plan
from torch_scenarios.model.traits import KNOWN_BACKENDS
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch_scenarios.execution import Launcher
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.verdict import Finding

CORPUS = Path(__file__).parents[1] / "scenarios"
#: libyaml's, where PyYAML has it: every file is read before a test runs
SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SAMPLED = 150
RUN = 30
#: bfloat16 tells integers below this apart
FINE = 100

#: what stands in `expect` beside values
NO_VALUES = frozenset(
    {
        *("outcome", "blocked", "diagnosis", "dies", "within", "raises", "elapsed"),
        *("rtol", "atol", "shape", "dtype"),
    }
)
NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
FULL = re.compile(r"full\([^(),]+, (-?\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One number, by its place in a file's text, and what stands there instead."""

    path: Path
    start: int
    end: int
    instead: str
    lines: range

    def __str__(self) -> str:
        """Name the file, the line and the change."""
        line = self.lines.stop - 1
        return f"{self.path.relative_to(CORPUS)}:{line} {self.old} -> {self.instead}"

    @property
    def old(self) -> str:
        """What the author wrote."""
        return self.path.read_text(encoding="utf-8")[self.start : self.end]

    def text(self) -> str:
        """Return the file's text with the wrong number in it."""
        text = self.path.read_text(encoding="utf-8")
        return text[: self.start] + self.instead + text[self.end :]


def states_a_value(key: str) -> bool:
    """Whether `check` judges what stands under a key: a section on a backend is the run's alone."""
    return key not in {*NO_VALUES, *KNOWN_BACKENDS} and version_key(key) is None


def wrong(number: str) -> str:
    """Return another number, beyond what the coarsest dtype rounds away.

    0 and 1 change places, so that a boolean changes as well.
    """
    value = float(number)
    if value in {0, 1}:
        return str(int(1 - value))
    small = number.lstrip("-").isdigit() and abs(value) < FINE
    return str(int(value) + 1) if small else str(2 * value + 1)


def expected(node: yaml.Node, *, inside: bool = False) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Yield (key, mapping value) for everything that an `expect` states about a value."""
    if isinstance(node, yaml.SequenceNode) and not inside:
        for item in node.value:
            yield from expected(item)
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if inside and states_a_value(key.value):
            yield key, value
        elif not inside:
            yield from expected(value, inside=key.value == "expect")


def scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from scalars(item)
    elif not any(key.value == "atol" for key, _ in node.value):
        for key, value in node.value:
            if states_a_value(key.value):
                yield from scalars(value)


def mutants(path: Path) -> Iterator[Mutant]:
    text = path.read_text(encoding="utf-8")
    root = yaml.compose(text, Loader=SafeLoader)
    assert root is not None
    for key, value in expected(root):
        for scalar in scalars(value):
            start, end = scalar.start_mark.index, scalar.end_mark.index
            found = FULL.search(text, start, end)
            if not scalar.style and NUMBER.fullmatch(scalar.value):
                number = scalar.value
            elif found and found.end() == end - 1:
                start, end, number = found.start(1), found.end(1), found[1]
            else:
                continue
            lines = range(key.start_mark.line + 1, scalar.end_mark.line + 2)
            yield Mutant(path=path, start=start, end=end, instead=wrong(number), lines=lines)


ALL = [mutant for path in sorted(CORPUS.rglob("*.yaml")) for mutant in mutants(path)]
SAMPLE = random.Random(2).sample(ALL, SAMPLED)  # noqa: S311 -- a sample, no secret
#: what may stand in for the mutated number on Gloo, whichever torch is installed
ELSEWHERE = re.compile(r'gloo:|"(?:gloo )?torch[<>=]|backends: \[nccl\]')
RUNNABLE = [
    mutant for mutant in SAMPLE if not ELSEWHERE.search(mutant.path.read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(CORPUS, tmp_path_factory.mktemp("corpus") / "scenarios"))


@contextmanager
def mutated(mutant: Mutant, corpus: Path) -> Iterator[tuple[Scenario, ...]]:
    """Load the mutant in a copy of the corpus, beside the parts that it may use."""
    copy = corpus / mutant.path.relative_to(CORPUS)
    copy.write_text(mutant.text(), encoding="utf-8")
    try:
        yield torch_scenarios.load(copy)
    finally:
        copy.write_text(mutant.path.read_text(encoding="utf-8"), encoding="utf-8")


def places(findings: tuple[Finding, ...]) -> set[int]:
    return {finding.mark.line for finding in findings if finding.mark is not None}


def test_there_is_much_to_mutate() -> None:
    assert len(ALL) > 5 * SAMPLED


@pytest.mark.parametrize("mutant", sampled(SAMPLE, 3), ids=str)
def test_check_catches(mutant: Mutant, corpus: Path) -> None:
    with mutated(mutant, corpus) as cases:
        verdicts = [analyse(scenario).verdict for scenario in cases]
    failed = [verdict for verdict in verdicts if verdict.status == "FAILED"]
    assert failed, "the analysis believes a wrong number"
    assert any(places(verdict.findings) & set(mutant.lines) for verdict in failed)


@pytest.mark.torch
@pytest.mark.parametrize("mutant", sampled(RUNNABLE[:RUN], 3), ids=str)
def test_run_catches_without_the_reference(
    mutant: Mutant, corpus: Path, launcher: Launcher
) -> None:
    with mutated(mutant, corpus) as cases:
        for scenario in cases:
            resolved = torch_scenarios.plan(scenario)
            predicted = torch_scenarios.simulate(resolved)
            observed = launcher.run(resolved, predicted)
            verdict = judge(plan(scenario), predicted, observed, "gloo", reference=False)
            if verdict.status == "FAILED":
                assert places(verdict.findings) & set(mutant.lines)
                return
    pytest.fail("the run believes a wrong number")
