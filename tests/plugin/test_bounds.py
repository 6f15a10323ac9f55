"""The bounds of the command line, and links, as options of a pytest session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ["pytester"]

LARGE = """\
world_size: 70
tensors: {x: [1]}
steps:
  - all_reduce: {tensor: x}
expect: {x: [2]}
"""


def test_a_bound_is_raised_on_the_command_line_and_in_the_configuration(
    pytester: pytest.Pytester,
) -> None:
    pytester.makefile(".yaml", large=LARGE)
    refused = pytester.runpytest_inprocess("--scenarios", "large.yaml")
    refused.stdout.fnmatch_lines(["*--limit ranks=N*"])
    taken = pytester.runpytest_inprocess(
        "--scenarios", "--scenario-limit", "ranks=70", "large.yaml"
    )
    taken.stdout.fnmatch_lines(["*your expectation*"])
    taken.stdout.no_fnmatch_line("*--limit ranks=N*")
    pytester.makeini("[pytest]\nscenario_bounds = max-ranks=70\n")
    configured = pytester.runpytest_inprocess("--scenarios", "large.yaml")
    configured.stdout.no_fnmatch_line("*--limit ranks=N*")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("max-rank=70", "*there is no limit `rank`; did you mean `ranks`?*"),
        ("max-ranks=many", "*ranks is a whole number above 0, not 'many'*"),
        ("max-ranks", "*ranks is a whole number above 0, not ''*"),
    ],
)
def test_a_wrong_bound_is_told(pytester: pytest.Pytester, given: str, told: str) -> None:
    pytester.makefile(".yaml", large=LARGE)
    result = pytester.runpytest_inprocess("--scenarios", "--scenario-bound", given, "large.yaml")
    result.stderr.fnmatch_lines([told])


def test_links_are_followed_where_they_are_asked_for(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(exist_ok=True)
    real = outside / "real.yaml"
    real.write_text(LARGE.replace("70", "2"), encoding="utf-8")
    inside = pytester.mkdir("project")
    (inside / "pyproject.toml").write_text("", encoding="utf-8")
    (inside / "link.yaml").symlink_to(real)
    refused = pytester.runpytest_inprocess("--scenarios", "project/link.yaml", "--collect-only")
    followed = pytester.runpytest_inprocess(
        "--scenarios", "--scenario-follow-links", "project/link.yaml", "--collect-only"
    )
    assert "link.yaml" in refused.stdout.str()
    followed.stdout.fnmatch_lines(["*ScenarioItem link*"])
    refused.stdout.no_fnmatch_line("*ScenarioItem*")
