"""Whatever stands in whatever place of a file: it is a scenario, or it is told where it is none.

Every value of a few files that together say nearly everything is replaced, wrapped, dropped or
renamed. Each mutant is read, planned, simulated and judged; no part of that may fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from mutants import FILES, Plain, mutants
from sampling import strides

from torch_scenarios.errors import ScenarioError
from torch_scenarios.language.document import load_content
from torch_scenarios.pipeline.attempts import analyse

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.errors import Problem


def told(content: bytes, path: Path) -> list[Problem]:
    """Return what is wrong with a file, after all that `check` does with it."""
    try:
        case = load_content(path, content)[0]
    except ScenarioError as error:
        return list(error.problems)
    verdict = analyse(case).verdict
    assert "failed inside torch-scenarios" not in (verdict.reason or ""), verdict.notes
    return list(verdict.problems)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_a_scenario_with_them_all_unchanged(name: str, tmp_path: Path) -> None:
    (scenario, *_) = load_content(tmp_path / "it.yaml", FILES[name].encode())
    assert analyse(scenario).verdict.status in {"PASSED", "FAILED"}


@pytest.mark.parametrize("stride", strides(47, 7))
@pytest.mark.parametrize("name", FILES)
def test_no_mutant_fails_a_part_or_is_told_nowhere(name: str, stride: int, tmp_path: Path) -> None:
    every = list(mutants(yaml.safe_load(FILES[name])))
    invalid = 0
    for mutant in every[::stride]:
        content: bytes = yaml.dump(mutant, Dumper=Plain, sort_keys=False, encoding="utf-8")
        problems = told(content, tmp_path / "it.yaml")
        invalid += bool(problems)
        for problem in problems:
            assert problem.mark is not None, (problem, content)
            assert problem.mark.line >= 1
    assert 0 < invalid < len(every) // stride
