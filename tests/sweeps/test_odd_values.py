"""An odd value in any place of the corpus is read, or told with its place: never a bug of ours."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from sampling import sampled

from torch_scenarios.errors import ScenarioError
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.reference import simulate
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPUS = Path(__file__).parents[2] / "scenarios"
#: libyaml's, where PyYAML has it
SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: what no place wants, or few: other kinds, other shapes, and what cannot be computed
ODD: list[Any] = [
    *("1 > 0", "[1, 2]", "1 / 3", "None", "{}", "rank", "'a'", "zeros(2)", "1e400", "-1", "x9", ""),
    *(True, None, [], {}, [[1]], {"a": 1}, {0: 1}, -1, 1.5),
]
#: keys of a file whose values are any text
WORDS = frozenset({"description", "name", "tags"})
#: how many values are tried with one seed, and how many cases of a file
TRIED, CASES = 150, 2


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of a document, the whole last."""
    entries: Any = node.items() if isinstance(node, dict) else ()
    for key, value in enumerate(node) if isinstance(node, list) else entries:
        yield from paths(value, (*path, key))
    if path and path[0] not in WORDS:
        yield path


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a document with another value in one place."""
    changed = copy.deepcopy(document)
    within = changed
    for key in path[:-1]:
        within = within[key]
    within[path[-1]] = value
    return changed


def fault(path: Path) -> str:
    """Return what reading or analysing a file raises, but for problems of the file."""
    try:
        for case in load(path)[:CASES]:
            judge(plan(case), simulate(plan(case)), None, None)
    except ScenarioError:
        pass
    except Exception as error:  # noqa: BLE001 -- any other one is a bug, which is what is looked for
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("seed", sampled(list(range(40)), 40))
def test_an_odd_value_is_told_with_its_place(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)  # noqa: S311 -- the same values each time
    files = sorted(CORPUS.rglob("*.yaml"))
    changed = tmp_path / "changed.yaml"
    found = {}
    for _ in range(TRIED):
        file = chosen.choice(files)
        document = yaml.load(file.read_text(encoding="utf-8"), SafeLoader)  # noqa: S506 -- it is safe
        places = list(paths(document))
        place, value = chosen.choice(places), chosen.choice(ODD)
        text = yaml.safe_dump(put(document, place, value), sort_keys=False)
        changed.write_text(text, encoding="utf-8")
        wrong = fault(changed)
        if wrong:
            found[file.stem, place] = (value, wrong)
    assert found == {}
