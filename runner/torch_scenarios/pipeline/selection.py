"""Which cases a command line means, in which order, and how they are read."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import Problem, ScenarioError, nearest
from torch_scenarios.files import RealPaths, discover
from torch_scenarios.language import load
from torch_scenarios.language.document import load_content
from torch_scenarios.language.validation import StaleSchemaError
from torch_scenarios.limits import OverdueError, pause_collector
from torch_scenarios.model.scenario import Scenario, Step, steps_of
from torch_scenarios.pipeline import results
from torch_scenarios.pipeline.attempts import our_fault, overdue
from torch_scenarios.verdict import Verdict

C = TypeVar("C", bound=results.Selectable)

# -------------------------------------------------------------------------------------------------
# A path of the command line that means less than a file: `sum.yaml::case`, `sum.yaml:42`.
#
# A case is named as the headline of every report prints it; without its matrix keys all cases of
# that name are meant. A line means all cases of the file, and the step that stands there, whose
# values are then shown.

#: `sum.yaml:42`, `sum.yaml:42:7` as findings print it, `sum.yaml::case`
_NARROWED = re.compile(r"(?P<path>.+?)(?:::(?P<case>.+)|:(?P<line>\d+)(?::\d+)?:?)")


class Place(Struct, frozen=True, kw_only=True):
    """A path, and the case or the line in it that is meant; neither means all of it.

    >>> place = place_of("scenarios/sum.yaml:42:7")
    >>> place.path, place.line, place.whole
    ('scenarios/sum.yaml', 42, False)
    >>> place_of("scenarios/sum.yaml::n=2").case
    'n=2'

    They are the forms in which findings print a place, so that it can be pasted.
    """

    text: str
    path: str
    case: str | None = None
    line: int | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing narrows it."""
        return self.case is None and self.line is None


#: the path that means what comes on standard input
STANDARD_INPUT = "-"


def place_of(text: str) -> Place:
    """Read a path of the command line; a file that has such a name is that file."""
    found = _NARROWED.fullmatch(text)
    if found is None or Path(text).exists():
        return Place(text=text, path=text)
    line = found["line"]
    return Place(
        text=text, path=found["path"], case=found["case"], line=None if line is None else int(line)
    )


def narrow(
    scenarios: Sequence[Scenario], places: Sequence[Place], problems: list[Problem]
) -> list[Scenario]:
    """Return the cases of one file that its places mean; add what they name in vain."""
    kept: set[str] = set()
    for place in places:
        found = [each.case for each in scenarios if _means(place, each)]
        if not found:
            problems.append(_refuse_selection(place, scenarios))
        kept.update(found)
    return [scenario for scenario in scenarios if scenario.case in kept]


def step_at(scenario: Scenario, line: int) -> Step | None:
    """Return the innermost step whose text covers a line of the scenario's own file."""
    found: Step | None = None
    for step in steps_of(scenario.steps):
        mark = step.whole
        if mark is None or mark.source.path != scenario.source.path or mark.line > line:
            continue
        if line <= _find_last_line(step):
            found = step
    return found


def _find_last_line(step: Step) -> int:
    """Return the last line with text of a step: a block ends where the next one begins."""
    mark = step.whole
    assert mark is not None
    lines = mark.source.text.splitlines()
    indent = mark.column - 1
    last = mark.line
    for number in range(mark.line + 1, len(lines) + 1):
        text = lines[number - 1]
        if text.strip() and not text.lstrip().startswith("#"):
            if len(text) - len(text.lstrip()) < indent:
                break
            last = number
    return max(last, mark.end_line or last) if _flow(step, lines) else last


def _flow(step: Step, lines: Sequence[str]) -> bool:
    mark = step.whole
    return mark is not None and lines[mark.line - 1][mark.column - 1 : mark.column] == "{"


def _means(place: Place, scenario: Scenario) -> bool:
    if place.case is not None:
        return place.case in {scenario.case, scenario.name}
    if place.line is None:
        return True
    return 0 < place.line <= len(scenario.source.text.splitlines())


def _refuse_selection(place: Place, scenarios: Sequence[Scenario]) -> Problem:
    if not scenarios:
        message = f"{place.text}: the file has no case, it is there to be used by others"
        return Problem(code="unknown_place", message=message)
    if place.case is None:
        count = len(scenarios[0].source.text.splitlines())
        message = f"{place.text}: the file has {count} lines"
        return Problem(code="unknown_place", message=message)
    cases = [scenario.case for scenario in scenarios]
    close = nearest(place.case, cases)
    hint = f"did you mean {place.path}::{close}?" if close else f"it has {_list_cases(cases)}"
    return Problem(
        code="unknown_place", message=f"{place.text}: the file has no such case", hint=hint
    )


def _list_cases(cases: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(cases[:most])
    return f"{shown} and {len(cases) - most} more" if len(cases) > most else shown


# -------------------------------------------------------------------------------------------------
# Which cases a command line means, and in which order they run.
#
# First what the words say: a `-k` expression over names, and tags. Then, in this order, a shard,
# what did not pass the last time, and the order: so that the shards of one command line are
# disjoint whatever each machine remembers.


def chooser(
    keyword: str | None, tags: Sequence[str]
) -> Callable[[Iterable[Scenario]], list[Scenario]]:
    """Return what keeps the scenarios that a `-k` expression and all of the tags select, in order.

    Raises ValueError where the expression cannot be read.
    """
    matches = keyword_matcher(keyword) if keyword else None

    def choose(scenarios: Iterable[Scenario]) -> list[Scenario]:
        return [
            scenario
            for scenario in scenarios
            if set(tags) <= set(scenario.tags)
            and (matches is None or matches(f"{scenario.source.path} {scenario.case}".lower()))
        ]

    return choose


def arrange(scenarios: Sequence[C], selection: results.Selection) -> tuple[list[C], list[str]]:
    """Return the part that is to run, in its order, and what a person should know of that."""
    notes: list[str] = []
    kept = list(scenarios) if selection.shard is None else part(scenarios, selection.shard)
    if selection.seed is not None:
        notes.append(f"in the order of --shuffle {selection.seed}")
        kept = shuffle(kept, selection.seed)
    if selection.only_failed or selection.failed_first:
        failed = [scenario for scenario in kept if _has_failed(scenario, selection)]
        others = [scenario for scenario in kept if not _has_failed(scenario, selection)]
        if not failed:
            notes.append(_word_no_failures(selection))
        elif selection.only_failed:
            notes.append(f"only what did not pass the last time: {len(failed)} of {len(kept)}")
            others = []
        kept = [*failed, *others]
    return kept, notes


def _word_no_failures(selection: results.Selection) -> str:
    if not selection.failed:
        return "nothing is known to have failed: all are run"
    count = len(selection.failed)
    return f"the last failures ({count}) are not among the selected cases, so all of these are run"


def _has_failed(scenario: results.Selectable, selection: results.Selection) -> bool:
    """Return whether a case failed, or its whole file was invalid."""
    path, case = key_of(scenario)
    return not {(path, case), (path, "")}.isdisjoint(selection.failed)


def key_of(scenario: results.Selectable) -> results.Key:
    """Return what names a case wherever the command is given."""
    return str(Path(scenario.file).resolve()), scenario.case


def part(scenarios: Sequence[C], shard: results.Shard) -> list[C]:
    """Return one shard: every `of`-th case, so that the cases of a matrix are spread over all."""
    return list(scenarios[shard.number - 1 :: shard.of])


def shuffle(scenarios: Sequence[C], seed: int) -> list[C]:
    """Return the cases in an order that depends on the seed and their names alone."""
    found = sorted(scenarios, key=lambda scenario: (scenario.file, scenario.case))
    random.Random(seed).shuffle(found)  # noqa: S311 -- an order, no secret
    return found


def keyword_matcher(text: str) -> Callable[[str], bool]:
    """Compile a `-k` expression: words that must occur, with `and`, `or`, `not`, parentheses.

    As in pytest. Raises ValueError, saying what is wrong.
    """
    tokens = re.findall(r"\(|\)|[^\s()]+", text.lower())
    return _Keyword(tokens).whole()


class _Keyword:
    """Recursive descent over the tokens: or_ := and_ {or and_}; and_ := not_ {and not_}."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def _peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self._peek()
        if token is None:
            message = "a word is missing at the end"
            raise ValueError(message)
        self.at += 1
        return token

    def whole(self) -> Callable[[str], bool]:
        found = self.either()
        if self._peek() is not None:
            message = f"{self._peek()!r} is not expected there; join words with `and` or `or`"
            raise ValueError(message)
        return found

    def either(self) -> Callable[[str], bool]:
        parts = [self.both()]
        while self._peek() == "or":
            self.take()
            parts.append(self.both())
        return lambda text: any(part(text) for part in parts)

    def both(self) -> Callable[[str], bool]:
        parts = [self._parse_not()]
        while self._peek() == "and":
            self.take()
            parts.append(self._parse_not())
        return lambda text: all(part(text) for part in parts)

    def _parse_not(self) -> Callable[[str], bool]:
        word = self.take()
        if word == "not":
            inner = self._parse_not()
            return lambda text: not inner(text)
        if word == "(":
            inner = self.either()
            if self._peek() != ")":
                message = "a parenthesis is not closed"
                raise ValueError(message)
            self.take()
            return inner
        if word in {")", "and", "or"}:
            message = f"a word is missing before {word!r}"
            raise ValueError(message)
        return lambda text: word in text


# -------------------------------------------------------------------------------------------------
# The files of a command line, read: which cases are meant, and what is wrong with the others.


@pause_collector()
def load_all(selection: results.Selection) -> results.LoadedFiles[Scenario]:
    """Read every file; nothing is evaluated yet.

    Raises ScenarioError where the command line itself is wrong: a `-k` that cannot be read, a case
    or a line that is not there.
    """
    files = files_of(selection)
    return gather(files, map(file_loader(selection, files), range(len(files.found))), selection)


class NamedFiles(Struct, frozen=True, kw_only=True):
    """The files of a command line, each once, with the places that name it.

    `invalid` are results of paths that lead to none, `warnings` of files that are passed over.

        scenarios scenarios/sum.yaml:42       sum.yaml is there once, and whole: the folder means it
    """

    found: tuple[tuple[Path, tuple[Place, ...]], ...]
    invalid: tuple[results.Result, ...]
    warnings: tuple[Problem, ...]


def files_of(selection: results.Selection) -> NamedFiles:
    """Return every file that is named or below what is named, once; nothing is read."""
    invalid: list[results.Result] = []
    warnings: list[Problem] = []
    found = _files(selection, invalid, warnings)
    return NamedFiles(
        found=tuple((path, tuple(places)) for path, places in found.items()),
        invalid=tuple(invalid),
        warnings=tuple(warnings),
    )


def file_loader(
    selection: results.Selection, files: NamedFiles
) -> Callable[..., results.FileCases[Scenario]]:
    """Return what reads the file of a number, and keeps of its cases those that are meant.

    It takes the text too, where that has been read. Raises ScenarioError where a `-k` cannot be
    read; what it returns raises nothing.
    """
    meant = _make_filter(selection)

    def read(number: int, text: bytes | None = None) -> results.FileCases[Scenario]:
        path, places = files.found[number]
        try:
            cases = _read(path, selection, text)
            cases = replace_timeout(cases, selection.timeout_s)
        except OverdueError as error:
            return _report_unread(path, overdue(error))
        except StaleSchemaError as error:
            return _report_unread(path, Verdict(status="INCONCLUSIVE", reason=str(error)))
        except ScenarioError as error:
            return results.FileCases(invalid=_invalid(str(path), error.problems))
        except Exception as error:  # noqa: BLE001 -- a fault of ours is reported as one
            return _report_unread(path, our_fault("reading", error))
        problems: list[Problem] = []
        whole = any(place.whole for place in places)
        found = meant(cases if whole else narrow(cases, places, problems))
        return results.FileCases(cases=tuple(found), problems=tuple(problems))

    return read


def _read(path: Path, selection: results.Selection, text: bytes | None) -> tuple[Scenario, ...]:
    """Return the cases of a file: of its text, or that on standard input. Raises as `load`."""
    if selection.given is not None and str(path) == selection.given[0]:
        text = selection.given[1]
    read = load if text is None else partial(load_content, text=text)
    return read(path, sets=selection.sets, limits=selection.limits, backend=selection.backend)


def _report_unread(path: Path, verdict: Verdict) -> results.FileCases[Scenario]:
    return results.FileCases(
        invalid=results.Result(file=str(path), case=str(path), verdict=verdict)
    )


def gather(
    files: NamedFiles, loaded: Iterable[results.FileCases[C]], selection: results.Selection
) -> results.LoadedFiles[C]:
    """Return what all files hold together, the cases in the order that is selected.

    Raises ScenarioError where a case or a line is not there.
    """
    invalid = list(files.invalid)
    problems: list[Problem] = []
    kept: list[C] = []
    for each in loaded:
        if each.invalid is not None:
            invalid.append(each.invalid)
        problems += each.problems
        kept += each.cases
    if problems:
        raise ScenarioError(problems)
    ordered, notes = arrange(kept, selection)
    return results.LoadedFiles(
        scenarios=tuple(ordered),
        invalid=tuple(invalid),
        selected=len(kept),
        notes=tuple(notes),
        warnings=files.warnings,
    )


def _make_filter(selection: results.Selection) -> Callable[[Sequence[Scenario]], list[Scenario]]:
    """Return what keeps of some cases those that the words of a selection mean."""
    try:
        return chooser(selection.keyword, selection.tags)
    except ValueError as error:
        text = f"-k {selection.keyword!r} cannot be read: {error}"
        raise ScenarioError([Problem(code="bad_keyword", message=text)]) from error


def replace_timeout(
    scenarios: tuple[Scenario, ...], timeout_s: float | None
) -> tuple[Scenario, ...]:
    """Return the scenarios with another process-group timeout, in seconds; None keeps their own.

    It is replaced before the analysis, which must know when a blocked call gives up.
    """
    if timeout_s is None:
        return scenarios
    return tuple(replace(scenario, timeout_s=timeout_s) for scenario in scenarios)


def _files(
    selection: results.Selection, invalid: list[results.Result], warnings: list[Problem]
) -> dict[Path, list[Place]]:
    """Return every file that is named or below what is named, once, and the places that name it."""
    paths: dict[str, Path] = {}
    places: dict[Path, list[Place]] = {}
    real = RealPaths()
    once = len(selection.paths) == 1  # then nothing is found twice
    for named in selection.paths:
        place = place_of(named)
        if selection.given is not None and place.path == STANDARD_INPUT:
            places.setdefault(Path(selection.given[0]), []).append(place)
            continue
        try:
            found = discover([place.path], selection.limits, warnings, real)
        except ScenarioError as error:
            invalid.append(_invalid(named, error.problems))
            continue
        for path in found:
            key = path if once else paths.setdefault(real.of(path), path)
            places.setdefault(key, []).append(place)
    return places


def _invalid(path: str, problems: tuple[Problem, ...]) -> results.Result:
    return results.Result(
        file=path, case=path, verdict=Verdict(status="INVALID", problems=problems)
    )
