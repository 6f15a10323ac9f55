"""The fixture `run_scenario`: a test in Python runs a scenario in the session's warm workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.language import load
from runner.language.loading import load_content
from runner.loading import with_timeout
from runner.pipeline import analyse
from runner.plugin.items import item_names, shown
from runner.plugin.options import is_strict, timeout_s
from runner.plugin.warm import warm_of
from runner.plugin.wording import report_of
from runner.problems import Problem, ScenarioError, nearest
from runner.results import Result
from runner.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from runner.scenario import Scenario


class RunScenario:
    """Runs a scenario and returns its typed result; what the fixture `run_scenario` gives.

    ::

        def test_sum(run_scenario: RunScenario) -> None:
            result = run_scenario("scenarios/sum.yaml", case="int64", sets={"width": 3})
            assert result.verdict.status == "PASSED"

    Where the test fails, the report on every scenario that did not pass is shown with it.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """Remember the test."""
        self._config = request.config
        self._node = request.node
        self._file = request.path

    def __call__(
        self,
        source: str | Path | Mapping[str, Any],
        *,
        case: str | None = None,
        sets: Mapping[str, object] | None = None,
    ) -> Result:
        """Run one case and return what came of it.

        `source` is a path (a relative one begins at pytest's root folder, as in a node id), YAML
        text (a string with a line break; files that it uses are looked for beside the test), or
        the same as a mapping. `case` says which, where the matrix makes several: by its name in
        pytest (`int64`), or as `scenario run` calls it. `sets` replaces parameters and matrix keys,
        as `--set` does.

        Nothing that is wrong with the scenario is an exception: `result.verdict.status` is one of
        PASSED, FAILED, INCONCLUSIVE, UNSUPPORTED and INVALID. Raises ValueError where `case` is
        missing or unknown.
        """
        texts = {name: _yaml(value) for name, value in (sets or {}).items()}
        try:
            loaded = with_timeout(self._load(source, texts), timeout_s(self._config))
            scenario = _one(loaded, case)
        except ScenarioError as error:
            name = str(source) if _is_path(source) else self._node.nodeid
            verdict = Verdict(status="INVALID", problems=error.problems)
            return self._told(Result(file=name, case=name, verdict=verdict))
        warm = warm_of(self._config)
        warm.begin(())
        return self._told(warm.run(analyse(scenario, strict=is_strict(self._config))))

    def _load(
        self, source: str | Path | Mapping[str, Any], sets: Mapping[str, str]
    ) -> tuple[Scenario, ...]:
        if _is_path(source):
            return load(shown(self._config.rootpath / str(source)), sets=sets)
        text = source if isinstance(source, str) else _yaml(source)
        words = re.sub(r"\W+", "_", self._node.name).strip("_")
        place = shown(self._file.with_name(f"{self._file.name}::{words}"))
        return load_content(place, text.encode(errors="replace"), sets=sets)

    def _told(self, result: Result) -> Result:
        """Let the test's report, if it fails, hold ours."""
        if result.verdict.status != "PASSED":
            text = f"{result.verdict.status} {result.case}\n{report_of(result)}"
            self._node.add_report_section("call", "scenario", text)
        return result


def _is_path(source: str | Path | Mapping[str, Any]) -> bool:
    return isinstance(source, Path) or (isinstance(source, str) and "\n" not in source)


def _yaml(value: object) -> str:
    import yaml  # noqa: PLC0415 -- rarely needed

    if isinstance(value, str):
        return value
    data = dict(value) if isinstance(value, Mapping) else value
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def _one(scenarios: Sequence[Scenario], case: str | None) -> Scenario:
    """Return the case that is meant. Raises ScenarioError for a library, ValueError otherwise."""
    if not scenarios:
        problem = Problem(
            code="not_a_scenario",
            message="a file with `inputs:` is for others to use; it cannot run by itself",
        )
        raise ScenarioError([problem])
    names = item_names(scenarios)
    if case is None and len(scenarios) == 1:
        return scenarios[0]
    for name, scenario in zip(names, scenarios, strict=True):
        if case in {name, scenario.case}:
            return scenario
    listed = ", ".join(names)
    if case is None:
        message = f"it has {len(names)} cases: {listed}; say which with case="
    else:
        close = nearest(case, names)
        meant = f"; did you mean {close!r}?" if close else "."
        message = f"it has no case {case!r}{meant} Its cases: {listed}"
    raise ValueError(message)
