"""Which files of a session are scenarios: no file of anybody else is ever taken.

Every YAML file below the configuration's `scenario_paths` is one, as for `scenario run`; a broken
one fails. With `--scenarios` those are that are named on the command line, and below the named
folders those that look like one; how many were left alone is told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from runner.language.discovery import SUFFIXES, read_file
from runner.plugin.items import ScenarioFile
from runner.plugin.options import named_on_the_command_line, scenario_paths, timeout_s
from runner.plugin.wording import INCONCLUSIVE
from runner.problems import ScenarioError

if TYPE_CHECKING:
    from pathlib import Path

#: the line by which an editor finds our schema, or a key that every scenario has
_OURS = re.compile(rb"^(#.*\$schema=\S*scenario\.schema\.json|world_size[ \t]*:)", re.MULTILINE)
#: a file that scenarios `use`
_LIBRARY = re.compile(rb"^inputs[ \t]*:(?s:.*)^steps[ \t]*:", re.MULTILINE)
#: bytes of a file in which it must show
_LOOKED_AT = 100_000
#: files that are named where files were left alone
_NAMED = 3


def looks_like_a_scenario(path: Path) -> bool:
    """Return whether a file's text has what only scenarios have; it may be broken otherwise."""
    try:
        text = read_file(path)[:_LOOKED_AT]
    except ScenarioError:
        return False
    return bool(_OURS.search(text) or _LIBRARY.search(text))


class Collecting:
    """The hooks of a session that asked for scenarios."""

    def __init__(self, config: pytest.Config) -> None:
        """Read what was asked for. Raises UsageError."""
        timeout_s(config)  # complains now rather than at the first scenario
        self._asked = bool(config.getoption("scenarios"))
        self._ours = scenario_paths(config)
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            self._add_to(config)
        self._named = {path for path, _ in named_on_the_command_line(config)}
        self._left_alone: list[str] = []

    def _add_to(self, config: pytest.Config) -> None:
        """Let a session that names no path run the scenarios too, where `testpaths` has not them.

        One that started in a folder elsewhere runs what lies in that folder, as pytest does.
        """
        there = [path for path, _ in named_on_the_command_line(config)]
        if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            config.args += [
                str(path)
                for path in self._ours
                if not any(path.is_relative_to(folder) for folder in there)
            ]

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
        """Return a collector for a file that is ours."""
        return ScenarioFile.from_parent(parent, path=file_path) if self._takes(file_path) else None

    def _takes(self, path: Path) -> bool:
        if path in self._ours or (self._asked and path in self._named and _is_yaml(path)):
            return True
        if not _is_yaml(path) or path.name.startswith("."):
            return False
        if any(path.is_relative_to(folder) for folder in self._ours):
            return True
        if self._asked and not looks_like_a_scenario(path):
            self._left_alone.append(path.name)
            return False
        return self._asked

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say which YAML files were looked at and left alone."""
        left = sorted(set(self._left_alone))
        if not left:
            return []
        named = ", ".join(left[:_NAMED]) + (", ..." if len(left) > _NAMED else "")
        return [f"scenarios: {len(self._left_alone)} other YAML files left alone ({named})"]

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Count a scenario that the environment did not let run as an error, not as a failure."""
        if report.when == "call" and report.failed and INCONCLUSIVE in report.user_properties:
            return "error", "E", "INCONCLUSIVE"
        return None


def _is_yaml(path: Path) -> bool:
    return path.suffix in SUFFIXES
