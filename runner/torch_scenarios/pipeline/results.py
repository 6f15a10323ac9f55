"""What the pipeline takes and gives: a selection in, results and an exit code out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import Problem
from torch_scenarios.limits import DEFAULT, Limits
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.model.trace import Trace
from torch_scenarios.reference.vector.footprint import Footprint
from torch_scenarios.verdict import STATUSES, Status, Verdict

# What is kept of a verdict once its reports are written: no tensor outlives its case.


def slim_down(verdict: Verdict, *, costs: bool = False) -> Verdict:
    """Return a verdict whose traces tell who ended where, and hold no value.

    With `costs` it still tells what the program costs.
    """
    predicted = _slim(verdict.predicted, costs=costs)
    return replace(verdict, predicted=predicted, observed=_slim(verdict.observed))


def _slim(trace: Trace | None, *, costs: bool = False) -> Trace | None:
    """Return a trace without its values: who ended where remains."""
    if trace is None:
        return None
    ranks = tuple(
        replace(
            rank,
            initial={},
            links={},
            events=tuple(replace(e, writes={}, slack={}, observed={}) for e in rank.events[-1:]),
        )
        for rank in trace.ranks
    )
    traffic = None if trace.traffic is None else trace.traffic.summary(asked=costs)
    return replace(trace, ranks=ranks, forecasts={}, drift=None, orders=(), traffic=traffic)


# A report that has nothing to say before the end.


class FinalReport:
    """Hears everything of a run but its end in silence; the end is the heir's.

    begin(2)   start("a")   finish(...)   start("b")   finish(...)   end(outcome)
    """

    def begin(self, total: int) -> None:
        """Hear it in silence."""

    def start(self, case: str) -> None:
        """Hear it in silence."""

    def finish(self, result: Result) -> None:
        """Hear it in silence."""


# What the results of a run share of their environment.

#: what a trace tells of its case; all else in its environment is the same for a whole run
_OF_ONE_CASE = frozenset({"world_s", "ready_s", "gpus"})


def environment(outcome: Outcome) -> dict[str, str]:
    """Return what the run knows of torch and the backend; empty where nothing ran."""
    ran = [each.verdict.observed for each in outcome.results if each.verdict.observed is not None]
    if not ran:
        return {}
    # of several hosts all are named by the case with the most ranks
    observed = max(ran, key=lambda trace: len(trace.hosts))
    facts = {k: v for k, v in observed.environment.items() if k not in _OF_ONE_CASE}
    return {**facts, "backend": observed.backend}


PASSED, FAILED, INVALID, INTERRUPTED = 0, 1, 2, 130
INCONCLUSIVE, NOTHING_SELECTED = 3, 5

#: what decides the exit code, the worst first
_CODES: dict[Status, int] = {
    "INVALID": INVALID,
    "FAILED": FAILED,
    "FLAKY": FAILED,
    "INCONCLUSIVE": INCONCLUSIVE,
}


#: a case, wherever it is named from: the resolved path of its file, and its name
Key: TypeAlias = tuple[str, str]


class Shard(Struct, frozen=True, kw_only=True):
    """One of `of` parts of the selected cases, counted from 1.

    >>> str(Shard(number=2, of=4))
    '2/4'

    The parts are taken from the order of the files, before anything shuffles it. So jobs that start
    apart divide the cases among them without a word.
    """

    number: int
    of: int

    def __str__(self) -> str:
        """Return it as the command line has it."""
        return f"{self.number}/{self.of}"


class Selection(Struct, frozen=True, kw_only=True):
    """Which cases are meant, in which order, and with which parameters and bounds they are read.

    A path may name a case or a line (:mod:`torch_scenarios.pipeline.selection`). `failed` are the
    cases that did not pass when they last ran: none but they are meant with `only_failed`, they
    come first with `failed_first`. `seed` shuffles; `shard` takes a part, before either.
    `timeout_s` is the process-group timeout, in seconds, in place of each scenario's own. `strict`
    makes a case with a warning FAILED. `backend` is what expressions read under that name, where
    the command line names one. `given` is a name and the text that the path `-` means.
    """

    paths: tuple[str, ...]
    keyword: str | None = None
    tags: tuple[str, ...] = ()
    sets: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = DEFAULT
    timeout_s: float | None = None
    seed: int | None = None
    shard: Shard | None = None
    failed: frozenset[Key] = frozenset()
    only_failed: bool = False
    failed_first: bool = False
    strict: bool = False
    backend: str | None = None
    given: tuple[str, bytes] | None = None


class Result(Struct, frozen=True, kw_only=True):
    """What came of one case; of a whole file where it is INVALID (`case` is then its path).

    `attempts` are the verdicts of each run of a case that was run several times. `scenario` is None
    where the file is INVALID, where the case was only analysed and no report asks for what its
    ranks hold, or where the result was read back from a file: `text` then has the lines that a
    person was told, without styles, and `page` what an HTML page showed of it.
    `duration_s` is the case's own time; `ready_s` what it waited before for torch and the workers.
    """

    file: str
    case: str
    verdict: Verdict
    duration_s: float = 0.0
    ready_s: float = 0.0
    scenario: Scenario | None = None
    description: str = ""
    tags: tuple[str, ...] = ()
    world_size: int | None = None
    attempts: tuple[Status, ...] = ()
    text: tuple[str, ...] | None = None
    page: str | None = None

    @property
    def name(self) -> str:
        """How the command line and every report name it: `file::case`."""
        return f"{self.file}::{self.case}" if self.of_a_case else self.file

    @property
    def of_a_case(self) -> bool:
        """Whether it is of a case, and not of a whole file; a case may be called like its file."""
        return self.case != self.file or self.verdict.status != "INVALID"


class Analysis(Struct, frozen=True, kw_only=True):
    """A case before it runs: its plan, what the reference predicts, and the static verdict.

    With `strict` the verdict, of the run as well, is FAILED where there is a warning. `limits` are
    the bounds of what is asked of it later, too. `run_bytes` is what the ranks of a run hold
    together. `footprint` is what shapes alone tell, where that was asked for.

    `scenario check` ends with it. `scenario run` hands plan and prediction to a launcher: the run
    is watched for what is predicted, and a hang that was expected needs no timeout.
    """

    scenario: Scenario
    plan: Plan | None
    predicted: Trace | None
    verdict: Verdict
    duration_s: float = 0.0
    run_bytes: int = 0
    too_large: Problem | None = None
    strict: bool = False
    limits: Limits = DEFAULT
    footprint: Footprint | None = None


class Selectable(Protocol):
    """A case, as it is selected and reported: a scenario, or what another process tells of one.

    The process that reports need not have read the file: the one that analysed it did (decision
    65).
    """

    @property
    def file(self) -> str:
        """The path of its file, as it is named."""

    @property
    def case(self) -> str:
        """Its name, with the values of its matrix."""


C_co = TypeVar("C_co", bound=Selectable, covariant=True)


class Outline(Struct, frozen=True, kw_only=True):
    """What a process tells of a case that it has read, for all that reports say of it.

    `at` is the number of its file among those of the command line, and its own in the file. `key`
    is that of its file among the proofs that are kept, empty where none is; with `proved` it has
    passed before, and is not analysed.

    It is some hundred bytes, where the scenario with its plan and its trace may be megabytes that
    would cross a pipe for one line of a report.
    """

    file: str
    case: str
    at: tuple[int, int]
    description: str = ""
    tags: tuple[str, ...] = ()
    world_size: int | None = None
    key: str = ""
    proved: bool = False


class FileCases(Struct, Generic[C_co], frozen=True, kw_only=True):
    """What came of one file: the cases that are meant; a result where it is invalid.

    `problems` are of the command line, which names a case or a line that is not there.

    An invalid file is a result and no error: the other files of the run are judged (decision 20).
    """

    cases: tuple[C_co, ...] = ()
    invalid: Result | None = None
    problems: tuple[Problem, ...] = ()


class LoadedFiles(Struct, Generic[C_co], frozen=True, kw_only=True):
    """All files, read: the selected cases in order, and a result for each file that is invalid.

    A file for which there was no time has a result among the `invalid`, which is INCONCLUSIVE.
    `selected` counts the cases before a shard of them was taken. `warnings` are of files that were
    passed over.
    """

    scenarios: tuple[C_co, ...]
    invalid: tuple[Result, ...]
    selected: int = 0
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()


class Outcome(Struct, frozen=True, kw_only=True):
    """What a whole command came to: every result so far, whether it was cut short, how long.

    `cases` is how many were to be judged: with fewer results it was interrupted, or stopped at the
    first failure. `selected` counts the cases of all shards together; `notes` are for a person.
    `warnings` are of no case (a file that was passed over); with `strict` they fail as a case's do.
    `release` is the version of this program where the outcome was read back from a file.
    """

    results: tuple[Result, ...]
    interrupted: bool = False
    duration_s: float = 0.0
    cases: int = 0
    selected: int = 0
    shard: Shard | None = None
    seed: int | None = None
    repeat: int = 1
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    strict: bool = False
    release: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code: interrupted, invalid, failed, inconclusive, nothing selected, passed.

        A shard may be empty where there are fewer cases than shards.
        """
        if self.interrupted:
            return INTERRUPTED
        if not self.results:
            return PASSED if self.shard is not None and self.selected else NOTHING_SELECTED
        found = {result.verdict.status for result in self.results}
        if self.strict and self.warnings:
            found.add("FAILED")
        return next((code for status, code in _CODES.items() if status in found), PASSED)

    @property
    def not_run(self) -> int:
        """How many cases were selected and not judged: an interrupt, a failure, an invalid file."""
        judged = sum(result.of_a_case for result in self.results)
        return max(0, self.cases - judged)

    @property
    def all_warnings(self) -> tuple[Problem, ...]:
        """Every warning once: the same of several cases of a file is one."""
        of_cases = (each for result in self.results for each in result.verdict.warnings)
        return tuple(dict.fromkeys((*self.warnings, *of_cases)))

    @property
    def counts(self) -> dict[Status, int]:
        """How many results have each verdict."""
        found = [result.verdict.status for result in self.results]
        return {status: found.count(status) for status in STATUSES}


class Executor(Protocol):
    """Runs plans on a backend: the launcher, or the worker that torchrun started.

    It takes a plan with its prediction, and returns what was observed, or raises why it could not
    (`UnsupportedError`, `LaunchError`). That is all the pipeline knows of torch.
    """

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Return what happened. Raises UnsupportedError or LaunchError."""


class Listener(Protocol):
    """Hears how far it is: a report on a terminal, a progress bar, nothing at all.

    begin(2), start("a"), finish(result of a), start("b"), finish(result of b)
    """

    def begin(self, total: int) -> None:
        """Hear how many cases are selected."""

    def start(self, case: str) -> None:
        """Hear that the case of this name starts."""

    def finish(self, result: Result) -> None:
        """Hear what came of a case; called once for each result."""


class Report(Listener, Protocol):
    """A listener that also hears the end: it tells a person or a program what came of a run.

    To add one: a class that is made with an open file, and a line in `report/formats.py`.
    """

    def end(self, outcome: Outcome) -> None:
        """Hear the whole; called once, also where the run was interrupted. No values in it."""
