"""Whatever is done to a file of the corpus: it is a scenario, or it is told where it is none.

Each mutant changes the tree of one file: a value is replaced, wrapped, dropped, doubled, renamed or
exchanged for one of another file. It is read, planned, simulated and judged; no part may fail.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.attempts import analyse
from runner.language.loading import load_content
from runner.problems import Problem, ScenarioError

CORPUS = Path(__file__).parents[2] / "scenarios"
FILES = sorted(path for path in CORPUS.rglob("*.yaml") if path.stat().st_size < 3000)[::4]
MUTANTS = 50

#: what stands in place of a value: every sort of YAML, and much that is nearly right
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 99, 1.5, 1e300, float("inf"), float("nan"), 10**30),
    *("", "x", "rank", "world", "else", "unchanged", "sum", "float32", "timeout", "10s", "kill"),
    *("x + 1", "full(2, rank)", "range(4)", "[1, 2]", "[x, x]", "x[100]", "1 / 0", "(", "a: b"),
    *("before(x, 0)", "10 ** 10 ** 10", "full(10**9, 0)", "[i for i in range(9)]", "x.real"),
    *([], {}, [[]], [1, [2]], ["x", 1], {0: 1}, {"else": "x"}, {"value": "x", "dtype": "int8"}),
    *({"expr": "rank"}, {"raise": "a"}, {"min": "1s"}, {"partition": [[0.5]]}, {"size": "x"}),
)
KEYS = (
    *("x", "tensor", "group", "op", "src", "ranks", "name", "as", "expect", "steps", "for", "use"),
    *("wait", "compute", "fault", "send", "new_group", "tensors", "groups", "matrix", "inputs"),
    *(
        "world_size",
        "value",
        "shape",
        "outcome",
        "blocked",
        "raises",
        "elapsed",
        "gloo",
        "async_op",
    ),
    *(None, 0, True, 1.5, "", "rank == 0", "a.b"),
)


def places(tree: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 -- YAML data
    """Return every container of a tree with each of its keys, or positions."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    found = [(tree, key) for key in keys]
    for key in keys:
        if isinstance(tree[key], dict | list):
            found += places(tree[key])
    return found


def mutated(tree: Any, others: list[Any], chance: random.Random) -> Any:  # noqa: ANN401
    """Return a copy of a tree with one to three changes."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.choice((1, 1, 2, 3))):
        found = places(tree)
        if not found:
            break
        inside, at = chance.choice(found)
        match chance.randrange(7):
            case 0 | 1:
                inside[at] = copy.deepcopy(chance.choice(VALUES))
            case 2:
                del inside[at]
            case 3:
                inside[at] = chance.choice(([inside[at]], {chance.choice(KEYS): inside[at]}))
            case 4 if isinstance(inside, dict):
                inside[chance.choice(KEYS)] = inside.pop(at)
            case 5:
                other, there = chance.choice(places(chance.choice(others)))
                inside[at] = copy.deepcopy(other[there])
            case _:
                for _ in range(chance.choice((2, 70))):
                    inside[at] = chance.choice(([inside[at]], {"else": inside[at]}))
    return tree


def written(tree: Any) -> bytes:  # noqa: ANN401
    class Plain(yaml.SafeDumper):
        """Writes no aliases: every value stands where it is used."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
            return True

    text: str = yaml.dump(tree, Dumper=Plain, sort_keys=False, allow_unicode=True, width=100)
    return text.encode()


def told(path: Path, content: bytes) -> list[Problem]:
    """Return what is wrong with a file, after all that `check` does with it."""
    try:
        cases = load_content(path, content)
    except ScenarioError as error:
        return list(error.problems)
    verdicts = [analyse(case).verdict for case in cases[:1]]
    for verdict in verdicts:
        assert "failed inside scenario-runner" not in (verdict.reason or ""), verdict.notes
    return [problem for verdict in verdicts for problem in verdict.problems]


@pytest.fixture(scope="module")
def trees() -> dict[Path, Any]:
    return {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FILES}


@pytest.mark.parametrize("seed", range(6))
def test_no_mutant_of_the_corpus_fails_a_part_or_is_told_nowhere(
    seed: int, trees: dict[Path, Any]
) -> None:
    chance = random.Random(seed)  # noqa: S311 -- mutants are no secret
    others = list(trees.values())
    invalid = 0
    for _ in range(MUTANTS):
        path = chance.choice(FILES)
        content = written(mutated(trees[path], others, chance))
        problems = told(path, content)
        invalid += bool(problems)
        for problem in problems:
            assert problem.mark is not None, (problem, content)
            assert problem.mark.line >= 1
            assert problem.message
    assert 0 < invalid < MUTANTS
