"""Scenarios as pytest sees them: a file is a collector, each of its cases an item.

A file that is no valid scenario is one item that fails with every problem of it, rather than an
error of the collection: that would keep pytest from running anything else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.language import load
from runner.loading import with_timeout
from runner.pipeline import analyse
from runner.plugin.options import is_strict, named_on_the_command_line, timeout_s
from runner.plugin.warm import warm_of
from runner.plugin.wording import ScenarioFailure, properties_of, raise_unless_passed, warn_of
from runner.problems import ScenarioError
from runner.results import Result
from runner.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runner.results import Analysis
    from runner.scenario import Scenario

#: marks that change what pytest does with an item; a tag only selects
_PYTESTS_OWN = {"skip", "skipif", "xfail", "usefixtures", "parametrize", "filterwarnings"}
_MARK = re.compile(r"[^\W_][\w.-]*")


def shown(path: Path) -> Path:
    """Return a path as reports show it: relative where it is below the working folder."""
    working = Path.cwd()
    return path.relative_to(working) if path.is_relative_to(working) else path


def item_names(scenarios: Sequence[Scenario]) -> list[str]:
    """Return a short name for each case of a file: its matrix values, or the scenario's name.

    As pytest names its parameters: `int64`, `int64-4`. No two are equal: a matrix with two cases of
    one name is refused.
    """
    suffixes = [scenario.case.removeprefix(scenario.name) for scenario in scenarios]
    return [
        "-".join(part.partition("=")[2] for part in _split(suffix)) if suffix else scenario.name
        for scenario, suffix in zip(scenarios, suffixes, strict=True)
    ]


def _split(suffix: str) -> list[str]:
    """Return the `key=value` parts of `[dtype=int64,shape=[2,3]]`."""
    return re.split(r",(?=[^\W\d]\w*=)", suffix[1:-1])


class ScenarioFile(pytest.File):
    """A file of scenarios; a library that others use has no items."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield its cases, or one item that tells what is wrong with it."""
        asked = {
            inside for path, inside in named_on_the_command_line(self.config) if path == self.path
        }
        try:
            scenarios = with_timeout(load(shown(self.path)), timeout_s(self.config))
        except ScenarioError as error:
            # under the names that were asked for, so that they are found and fail with the reason
            for name in sorted(asked - {""}) or [self.path.stem]:
                yield InvalidFile.from_parent(self, name=name, error=error)
            return
        for name, scenario in zip(item_names(scenarios), scenarios, strict=True):
            # `scenario run` calls the case by its whole name, which may be pasted here
            known_as = scenario.case if scenario.case in asked else name
            yield ScenarioItem.from_parent(self, name=known_as, scenario=scenario)


class _Item(pytest.Item):
    """What valid and invalid scenarios have in common: how they fail."""

    line = 1

    def __init__(self, **arguments: Any) -> None:  # noqa: ANN401 -- pytest's own
        super().__init__(**arguments)
        self.add_marker("scenario")

    def judge(self, result: Result) -> None:
        """Keep what a JUnit report wants to know; fail, skip or pass."""
        self.user_properties += properties_of(result)
        warn_of(result)
        raise_unless_passed(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401 -- pytest's own types
        """Return our report in place of a traceback, and its place in the YAML file."""
        failure = excinfo.value
        if not isinstance(failure, ScenarioFailure):
            return super().repr_failure(excinfo, style=style)
        told = excinfo.getrepr(style="value")
        if told.reprcrash is not None:
            told.reprcrash.path = str(failure.mark.source.path if failure.mark else self.path)
            told.reprcrash.lineno = failure.mark.line if failure.mark else self.line
            told.reprcrash.message = failure.summary
        if self.config.getoption("tbstyle") == "line":
            told.reprtraceback.reprentries = []  # pytest prints the line of the summary itself
        return told

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the file, its line counted from 0, and the headline of a failure.

        The headline must not be the node id's own end: pytest takes that for a dotted name in
        Python, and prints `sum::yaml` for `sum.yaml`.
        """
        return self.path, self.line - 1, f"scenario {shown(self.path)}::{self.name}"


class ScenarioItem(_Item):
    """One case of a scenario."""

    def __init__(self, *, scenario: Scenario, **arguments: Any) -> None:  # noqa: ANN401 -- pytest's own
        """Mark it with its tags; let `-k` find it by tag, name and whole case."""
        super().__init__(**arguments)
        self.scenario = scenario
        self.line = scenario.mark.line if scenario.mark else 1
        self._analysis: Analysis | None = None
        self.extra_keyword_matches |= {scenario.case, scenario.name, *scenario.tags}
        for tag in scenario.tags:
            if _MARK.fullmatch(tag) and tag not in _PYTESTS_OWN:
                _register(self.config, tag)
                self.add_marker(tag)

    def analyse(self) -> Analysis:
        """Return its analysis, made once."""
        if self._analysis is None:
            self._analysis = analyse(self.scenario, strict=is_strict(self.config))
        return self._analysis

    def setup(self) -> None:
        """See that the session's workers are on their way, and analyse meanwhile."""
        warm_of(self.config).begin(self._ahead())
        self.analyse()

    def _ahead(self) -> Iterator[ScenarioItem]:
        """Yield the items that are surely to come: none under pytest-xdist, which deals them."""
        if hasattr(self.config, "workerinput"):
            return
        items = self.session.items
        for item in items[items.index(self) :]:
            if isinstance(item, ScenarioItem):
                yield item

    def runtest(self) -> None:
        """Run the case in the session's warm workers, and judge it."""
        analysis, self._analysis = self.analyse(), None  # its tensors are free once it is judged
        self.judge(warm_of(self.config).run(analysis))


class InvalidFile(_Item):
    """A file that is no scenario: fails with every problem that was found in it."""

    def __init__(self, *, error: ScenarioError, **arguments: Any) -> None:  # noqa: ANN401 -- pytest's own
        """Keep what is wrong."""
        super().__init__(**arguments)
        self._problems = error.problems

    def runtest(self) -> None:
        """Fail."""
        path = str(shown(self.path))
        verdict = Verdict(status="INVALID", problems=self._problems)
        self.judge(Result(file=path, case=path, verdict=verdict))


def _register(config: pytest.Config, tag: str) -> None:
    """Make a tag a known marker, for --strict-markers."""
    known = config.stash.setdefault(_TAGS, set())
    if tag not in known:
        known.add(tag)
        config.addinivalue_line("markers", f"{tag}: a tag of a scenario")


_TAGS = pytest.StashKey[set[str]]()
