"""Scenarios as items of a pytest session, in warm workers; the fixture that runs one."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from torch_scenarios.display import short
from torch_scenarios.errors import Mark, Problem, ScenarioError, nearest
from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.execution.backends import unknown
from torch_scenarios.files import SUFFIXES, read_file
from torch_scenarios.language import load
from torch_scenarios.language.document import load_content
from torch_scenarios.limits import FLAGS, Limits, OverdueError
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.pipeline.attempts import analyse, execute, overdue, result_of
from torch_scenarios.pipeline.results import Analysis, Result
from torch_scenarios.pipeline.run import TRIES
from torch_scenarios.pipeline.selection import replace_timeout
from torch_scenarios.report.text import details, write_warning
from torch_scenarios.verdict import Verdict

# -------------------------------------------------------------------------------------------------
# What a session chose: the command line first, then the configuration.


def launch_options(config: pytest.Config) -> LaunchOptions:
    """Return how the session executes scenarios. Raises UsageError for an unknown backend."""
    given = config.getoption
    backend = given("scenario_backend") or config.getini("scenario_backend")
    plugins = tuple(given("scenario_plugin") or config.getini("scenario_plugins"))
    fault = None if backend == "auto" else unknown(backend, plugins)
    if fault is not None:
        raise pytest.UsageError(fault.replace("--plugin", "--scenario-plugin"))
    return LaunchOptions(
        backend=backend,
        plugins=plugins,
        isolate=given("scenario_isolate") or config.getini("scenario_isolate"),
        max_seconds=limits_of(config).max_seconds,
    )


def is_strict(config: pytest.Config) -> bool:
    """Return whether a warning is a failure."""
    return bool(config.getoption("scenario_strict") or config.getini("scenario_strict"))


def limits_of(config: pytest.Config) -> Limits:
    """Return the bounds of the session: those of the configuration, then of the command line.

    Raises UsageError for one that is not known, or is no whole number above 0.
    """
    given = config.getoption
    names = {flag.removeprefix("--max-"): name for name, flag in FLAGS.items()}
    chosen: dict[str, Any] = {
        "follow_links": bool(
            given("scenario_follow_links") or config.getini("scenario_follow_links")
        )
    }
    for text in (*config.getini("scenario_bounds"), *(given("scenario_bound") or ())):
        name, _, number = text.removeprefix("--").partition("=")
        name = name.removeprefix("max-")
        if name not in names:
            close = nearest(name, names)
            hint = f"; did you mean `{close}`?" if close else f"; it is one of {', '.join(names)}"
            message = f"--scenario-limit: there is no limit `{short(name)}`{hint}"
            raise pytest.UsageError(message)
        if not number.isdecimal() or int(number) < 1:
            message = f"--scenario-limit: {name} is a whole number above 0, not {short(number)!r}"
            raise pytest.UsageError(message)
        chosen[names[name]] = int(number)
    return Limits(**chosen)


def timeout_s(config: pytest.Config) -> float | None:
    """Return the timeout in place of each scenario's own, in seconds. Raises UsageError."""
    option, text = "--scenario-timeout", config.getoption("scenario_timeout")
    if text is None:
        option, text = "scenario_timeout", config.getini("scenario_timeout")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        message = f"{option}: {text!r} is not a number of seconds above 0"
        raise pytest.UsageError(message)
    return seconds


def scenario_paths(config: pytest.Config) -> tuple[Path, ...]:
    """Return the configuration's `scenario_paths`, absolute.

    Raises UsageError for one that does not exist: its scenarios would silently never run.
    """
    found = tuple(Path(os.path.abspath(path)) for path in config.getini("scenario_paths"))  # noqa: PTH100 -- links stay
    for path in found:
        if not path.exists():
            where = config.inipath or "the command line"
            message = f"scenario_paths in {where}: there is no file or folder {path}"
            raise pytest.UsageError(message)
    return found


def find_named_paths(config: pytest.Config) -> Iterator[tuple[Path, str]]:
    """Yield each path that the session was given, absolute, with what stands behind its `::`."""
    for argument in config.args:
        path, _, inside = str(argument).partition("::")
        whole = os.path.join(config.invocation_params.dir, path)  # noqa: PTH118 -- links stay
        yield Path(os.path.normpath(whole)), inside


# -------------------------------------------------------------------------------------------------
# What a verdict is in pytest's terms: a pass, a skip, a failure with our report and its place.

ENVIRONMENT = "the environment, not the scenario"

#: the property of an item that could not be judged
INCONCLUSIVE = ("verdict", "INCONCLUSIVE")


class ScenarioFailure(Exception):
    """A scenario that did not pass: its report, and a line and a place for pytest's summary.

    The traceback of such a failure would be ours, from the plugin to the verdict. What its author
    needs is the report, and the place in the YAML file.
    """

    def __init__(self, report: str, summary: str, mark: Mark | None) -> None:
        """Keep the three; the report is what the exception says."""
        super().__init__(report)
        self.summary = summary
        self.mark = mark


class ScenarioWarning(UserWarning):
    """What passes in a scenario and should be looked at; pytest lists and counts it.

    With `--scenario-strict` it is a failure; with pytest's own `-W error` as well.
    """


def warn_of(result: Result) -> None:
    """Give each warning of a case to pytest; where it makes errors of them, the case fails."""
    for each in result.verdict.warnings:
        line = each.mark.line if each.mark else 1
        file = each.mark.source.path if each.mark else result.file
        said = ScenarioWarning(f"{each.message} [{each.code}]")
        try:
            warnings.warn_explicit(said, ScenarioWarning, file, line)
        except ScenarioWarning as error:
            lines = [line.printable for line in write_warning(each)]
            raise ScenarioFailure("\n".join(lines), str(error), each.mark) from None


def raise_unless_passed(result: Result) -> None:
    """Do nothing for a pass, skip what is UNSUPPORTED, raise ScenarioFailure for the rest."""
    verdict = result.verdict
    if verdict.status == "PASSED":
        return
    if verdict.status == "UNSUPPORTED":
        reason = f"UNSUPPORTED: {verdict.reason}"
        raise pytest.skip.Exception(reason, _use_item_location=True)
    raise ScenarioFailure(report_of(result), summary_of(result), _place(result))


def report_of(result: Result) -> str:
    """Return the whole report on a case as plain text, as `scenario run` prints it."""
    verdict = result.verdict
    lines = [line.printable for line in details(result)]
    if verdict.status == "INCONCLUSIVE":
        lines.insert(0, f"{ENVIRONMENT}:")
    return "\n".join(lines) or verdict.status


def summary_of(result: Result) -> str:
    """Return the one line of pytest's summary."""
    verdict = result.verdict
    if verdict.status == "INCONCLUSIVE":
        return f"{ENVIRONMENT}: {verdict.reason}"
    if verdict.problems:
        first = verdict.problems[0]
        place = f"{first.mark}: " if first.mark else ""
        return f"INVALID: {place}{first.message} [{first.code}]"
    if verdict.findings:
        finding = verdict.findings[0]
        return finding.summary
    return verdict.status


def _place(result: Result) -> Mark | None:
    verdict = result.verdict
    marks = [*(each.mark for each in verdict.problems), *(each.mark for each in verdict.findings)]
    return next((mark for mark in marks if mark is not None), None)


def properties_of(result: Result) -> list[tuple[str, object]]:
    """Return what a JUnit report should know of a case: its verdict, and what it ran on."""
    found: list[tuple[str, object]] = [("verdict", result.verdict.status)]
    if result.scenario is not None:
        found.append(("world_size", result.scenario.world_size))
    observed = result.verdict.observed
    if observed is not None:
        found.append(("backend", observed.backend))
        found += [("torch", observed.environment["torch"])] if observed.environment else []
    return found


# -------------------------------------------------------------------------------------------------
# The launch that a session's scenarios share: opened at the first, ended with the session.

#: seconds for which scenarios are analysed ahead, while the workers' process imports torch
AHEAD_S = 2.0


def warm_of(config: pytest.Config) -> SessionLauncher:
    """Return the session's launch; it ends when the session does, however that comes about."""
    warm = config.stash.get(_KEY, None)
    if warm is None:
        warm = config.stash[_KEY] = SessionLauncher(launch_options(config))
        config.add_cleanup(warm.close)
    return warm


class SessionLauncher:
    """One launcher for a whole session. Under pytest-xdist each worker process has its own."""

    def __init__(self, options: LaunchOptions) -> None:
        """Start nothing yet."""
        self._options = options
        self._launcher: Launcher | None = None
        self._warmed = False
        #: why the last scenarios never started; None for one that did
        self._reasons: deque[str | None] = deque(maxlen=TRIES)

    def begin(self, ahead: Iterable[ScenarioItem]) -> None:
        """Start the process that imports torch, once; analyse further items until it is there.

        One launch is to hold all of these items' ranks.
        """
        launcher = self._open()
        if self._warmed:
            return
        self._warmed = True
        items = list(ahead)
        launcher.reserve(max((item.scenario.world_size for item in items), default=1))
        deadline_s = time.monotonic() + AHEAD_S
        for item in items:
            item.analyse()
            if time.monotonic() > deadline_s:
                return

    def run(self, analysis: Analysis) -> Result:
        """Execute an analysed case.

        Three scenarios that could not start for one reason are enough: a session of hundreds need
        not try the rest.
        """
        if analysis.verdict.status != "PASSED":
            return result_of(analysis)
        if len(self._reasons) == TRIES and len(set(self._reasons)) == 1 and self._reasons[0]:
            verdict = replace(analysis.verdict, status="INCONCLUSIVE", reason=self._reasons[0])
            return replace(result_of(analysis), verdict=verdict)
        try:
            result = execute(analysis, self._open())
        except BaseException:
            # an interrupt or a time limit leaves an answer on its way that no call waits for
            self.close()
            raise
        never_ran = result.verdict.status == "INCONCLUSIVE" and result.verdict.observed is None
        self._reasons.append(result.verdict.reason if never_ran else None)
        return result

    def _open(self) -> Launcher:
        if self._launcher is None:
            self._launcher = Launcher(self._options).__enter__()
        return self._launcher

    def close(self) -> None:
        """End every process of the launch at once."""
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            launcher.__exit__(None, None, None)


_KEY = pytest.StashKey[SessionLauncher]()


# -------------------------------------------------------------------------------------------------
# Scenarios as pytest sees them: a file is a collector, each of its cases an item.
#
# A file that is no valid scenario is one item that fails with every problem of it, rather than an
# error of the collection: that would keep pytest from running anything else.

#: marks that change what pytest does with an item; a tag only selects
_PYTESTS_OWN = {"skip", "skipif", "xfail", "usefixtures", "parametrize", "filterwarnings"}
_MARK = re.compile(r"[^\W_][\w.-]*")


def show_path(path: Path) -> Path:
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
    """A file of scenarios; a library that others use has no items.

    scenarios/sum.yaml::int32       one item for each case of the matrix
    scenarios/sum.yaml::int64
    """

    def collect(self) -> Iterator[pytest.Item]:
        """Yield its cases, or one item that tells what is wrong with it."""
        asked = {inside for path, inside in find_named_paths(self.config) if path == self.path}
        try:
            scenarios = replace_timeout(
                load(show_path(self.path), limits=limits_of(self.config)), timeout_s(self.config)
            )
        except (ScenarioError, OverdueError) as error:
            # under the names that were asked for, so that they are found and fail with the reason
            for name in sorted(asked - {""}) or [self.path.stem]:
                yield UnreadFile.from_parent(self, name=name, error=error)
            return
        for name, scenario in zip(item_names(scenarios), scenarios, strict=True):
            # `scenario run` calls the case by its whole name, which may be pasted here
            known_as = scenario.case if scenario.case in asked else name
            yield ScenarioItem.from_parent(self, name=known_as, scenario=scenario)


class _Item(pytest.Item):
    """What valid and invalid scenarios have in common: how they fail."""

    line = 1

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.add_marker("scenario")

    def judge(self, result: Result) -> None:
        """Keep what a JUnit report wants to know; fail, skip or pass."""
        self.user_properties += properties_of(result)
        warn_of(result)
        raise_unless_passed(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return our report in place of a traceback, and its place in the YAML file."""
        failure = excinfo.value
        if not isinstance(failure, ScenarioFailure):
            return super().repr_failure(excinfo, style=style)
        shown = excinfo.getrepr(style="value")
        if shown.reprcrash is not None:
            shown.reprcrash.path = str(failure.mark.source.path if failure.mark else self.path)
            shown.reprcrash.lineno = failure.mark.line if failure.mark else self.line
            shown.reprcrash.message = failure.summary
        if self.config.getoption("tbstyle") == "line":
            shown.reprtraceback.reprentries = []  # pytest prints the line of the summary itself
        return shown

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the file, its line counted from 0, and the headline of a failure.

        The headline must not be the node id's own end: pytest takes that for a dotted name in
        Python, and prints `sum::yaml` for `sum.yaml`.
        """
        return self.path, self.line - 1, f"scenario {show_path(self.path)}::{self.name}"


class ScenarioItem(_Item):
    """One case of a scenario.

    Its tags are markers, so that `-m ring` selects by them, and its name is what `scenario run`
    calls the case.
    """

    def __init__(self, *, scenario: Scenario, **arguments: Any) -> None:
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
            limits = limits_of(self.config)
            self._analysis = analyse(self.scenario, limits, strict=is_strict(self.config))
        return self._analysis

    def setup(self) -> None:
        """See that the session's workers are on their way, and analyse meanwhile."""
        warm_of(self.config).begin(self._list_coming())
        self.analyse()

    def _list_coming(self) -> Iterator[ScenarioItem]:
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


class UnreadFile(_Item):
    """A file that is no scenario, or that there was no time to read: fails, and says why.

    It is an item and no error of the collection: the other files of the session run.
    """

    def __init__(self, *, error: ScenarioError | OverdueError, **arguments: Any) -> None:
        """Keep what is wrong."""
        super().__init__(**arguments)
        if isinstance(error, OverdueError):
            self._verdict = overdue(error)
        else:
            self._verdict = Verdict(status="INVALID", problems=error.problems)

    def runtest(self) -> None:
        """Fail."""
        path = str(show_path(self.path))
        self.judge(Result(file=path, case=path, verdict=self._verdict))


def _register(config: pytest.Config, tag: str) -> None:
    """Make a tag a known marker, for --strict-markers."""
    known = config.stash.setdefault(_TAGS, set())
    if tag not in known:
        known.add(tag)
        config.addinivalue_line("markers", f"{tag}: a tag of a scenario")


_TAGS = pytest.StashKey[set[str]]()


# -------------------------------------------------------------------------------------------------
# Which files of a session are scenarios: no file of anybody else is ever taken.
#
# Every YAML file below the configuration's `scenario_paths` is one, as for `scenario run`; a
# broken one fails. With `--scenarios` those are that are named on the command line, and below the
# named folders those that look like one; how many were left alone is reported.

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


class CollectionHooks:
    """The hooks of a session that asked for scenarios.

    They are registered only then: a session that has no scenarios imports nothing of this package
    but the plugin's first module.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Read what was asked for. Raises UsageError."""
        timeout_s(config)  # complains now rather than at the first scenario
        limits_of(config)
        self._asked = bool(config.getoption("scenarios"))
        self._ours = scenario_paths(config)
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            self._add_to(config)
        self._named = {path for path, _ in find_named_paths(config)}
        self._left_alone: list[str] = []

    def _add_to(self, config: pytest.Config) -> None:
        """Let a session that names no path run the scenarios too, where `testpaths` has not them.

        One that started in a folder elsewhere runs what lies in that folder, as pytest does.
        """
        there = [path for path, _ in find_named_paths(config)]
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


# -------------------------------------------------------------------------------------------------
# The fixture `run_scenario`: a test in Python runs a scenario in the session's warm workers.


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
            loaded = replace_timeout(self._load(source, texts), timeout_s(self._config))
            scenario = _choose_case(loaded, case)
        except ScenarioError as error:
            name = str(source) if _is_path(source) else self._node.nodeid
            verdict = Verdict(status="INVALID", problems=error.problems)
            return self._tell(Result(file=name, case=name, verdict=verdict))
        warm = warm_of(self._config)
        warm.begin(())
        analysis = analyse(scenario, limits_of(self._config), strict=is_strict(self._config))
        return self._tell(warm.run(analysis))

    def _load(
        self, source: str | Path | Mapping[str, Any], sets: Mapping[str, str]
    ) -> tuple[Scenario, ...]:
        if _is_path(source):
            path = show_path(self._config.rootpath / str(source))
            return load(path, sets=sets, limits=limits_of(self._config))
        text = source if isinstance(source, str) else _yaml(source)
        words = re.sub(r"\W+", "_", self._node.name).strip("_")
        place = show_path(self._file.with_name(f"{self._file.name}::{words}"))
        content = text.encode(errors="replace")
        return load_content(place, content, sets=sets, limits=limits_of(self._config))

    def _tell(self, result: Result) -> Result:
        """Let the test's report, if it fails, hold ours."""
        if result.verdict.status != "PASSED":
            text = f"{result.verdict.status} {result.case}\n{report_of(result)}"
            self._node.add_report_section("call", "scenario", text)
        return result


def _is_path(source: str | Path | Mapping[str, Any]) -> bool:
    return isinstance(source, Path) or (isinstance(source, str) and "\n" not in source)


def _yaml(value: object) -> str:
    if isinstance(value, str):
        return value
    data = dict(value) if isinstance(value, Mapping) else value
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def _choose_case(scenarios: Sequence[Scenario], case: str | None) -> Scenario:
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
