"""One column of the conformance file, really run: the table of calls, then the corpus."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.conformance.document import CaseOutcome, Conformance, name_of
from torch_scenarios.conformance.document import one as read_one
from torch_scenarios.conformance.table import Cell, CellOutcome, list_cells, table
from torch_scenarios.errors import LaunchError
from torch_scenarios.pipeline import run as pipeline
from torch_scenarios.pipeline.results import (
    Executor,
    Listener,
    Outcome,
    Result,
    Selection,
    environment,
)
from torch_scenarios.pipeline.selection import load_all
from torch_scenarios.source.documents import DocumentError, decode_json

#: what a run tells of what its calls are made with
_FRAMEWORKS = ("torch", "MPI", "mpi4py", "JAX", "jaxlib")
#: cases that are tried for a first result of a launch
FIRST_CASES = 8
#: lines of what a launch printed that are shown
SHOWN = 4
#: between the calls of a dtype and why some did not run
NOT_RUN = "because "
#: characters of a reason that are kept
WORDS = 200


def conduct(
    selection: Selection,
    launch: Callable[[], AbstractContextManager[Executor]],
    listener: Listener,
    *,
    dtypes: Iterable[str],
    backend: str,
    name: str = "",
    known: Conformance | None = None,
    say: Callable[[str], None],
) -> tuple[Outcome, Conformance]:
    """Run every call of the table for some dtypes, and the cases of a selection, on one launch.

    Returns the outcome of the cases, and both as a column; `name` is the column's, which else is
    called after the backend and the version of torch, or after the framework's; `backend` is what
    was asked for. `say` hears of each dtype. No call is run where no case can be
    (:func:`is_runnable`). Of a column that is `known` only what it lacks is run, and the rest is
    kept.
    """
    cells: dict[Cell, CellOutcome] = {}
    roots = find_roots(selection)
    if known is not None:
        selection, dtypes = find_missing(known, selection, dtypes)
    if is_runnable(selection):
        with launch() as executor:
            cells = table(executor, dtypes, lambda dtype, seen: say(tell_counts(dtype, seen)))
            outcome = pipeline.run(selection, lambda: nullcontext(executor), listener)
    else:
        outcome = pipeline.run(selection, launch, listener)
    found = environment(outcome)
    # where nothing ran, nothing says on what: a column that is known keeps what it says
    silent = "" if found or known is not None else metadata.version("torch")
    torch = found.get("torch", silent)
    facts = {word: text for word, text in found.items() if word in _FRAMEWORKS}
    backend = found.get("backend") or backend
    column = Conformance(
        name=name or (name_of(backend, torch) if torch or not facts else _name_framework(facts)),
        backend=backend,
        torch=torch,
        machine={
            **(facts or ({"torch": torch} if torch else {})),
            "Python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "cores": str(os.cpu_count()),
        },
        cases={_name(each, roots): _case(each) for each in outcome.results},
        cells=cells,
    )
    return outcome, column if known is None else complete(known, column)


def _name_framework(facts: Mapping[str, str]) -> str:
    """Return the name of a column without torch: `JAX 0.10.2, without torch`."""
    words = facts.get("MPI") or f"JAX {facts['JAX']}"
    return f"{words}, without torch"


def find_roots(selection: Selection) -> list[Path]:
    """Return the files and folders that cases are named from."""
    return [Path(path).resolve() for path in selection.paths]


def find_missing(
    known: Conformance, selection: Selection, dtypes: Iterable[str]
) -> tuple[Selection, list[str]]:
    """Return what a column lacks: the cases of a selection, and the dtypes with a call.

    A case that was INCONCLUSIVE is lacking, too: it says of the machine that it failed on, such as
    one without a library of MPI, and nothing of the backend.
    """
    roots = find_roots(selection)
    judged = {name for name, seen in known.cases.items() if seen.verdict != "INCONCLUSIVE"}
    places = [
        place
        for place in (f"{each.source.path}::{each.case}" for each in load_all(selection).scenarios)
        if _place(place, roots) not in judged
    ]
    calls = list_cells(tuple(dtypes))
    return (
        replace(selection, paths=tuple(places), keyword=None),
        [dtype for dtype, each in calls.items() if not known.cells.keys() >= set(each)],
    )


def complete(known: Conformance, seen: Conformance) -> Conformance:
    """Return a column with what was seen since.

    A version without its build (`2.13.0`) is that of the package, where no rank had more. Raises
    LaunchError where that was another torch or another MPI.
    """
    machine = dict(known.machine)
    for fact, now in seen.machine.items():
        before = machine.get(fact, now)
        if fact in _FRAMEWORKS and now != before.partition("+")[0]:
            machine[fact] = now
            if before not in {now, now.partition("+")[0]}:
                message = (
                    f"the column {known.name!r} was run on {fact} {before}, and this is {now}: "
                    "leave out `--missing`, and all of it is run"
                )
                raise LaunchError(message)
    return replace(
        known,
        torch=machine.get("torch", known.torch),
        machine=machine,
        cases={**known.cases, **seen.cases},
        cells={**known.cells, **seen.cells},
    )


def is_runnable(selection: Selection) -> bool:
    """Return whether a selection has a case, and no file that is invalid.

    Raises ScenarioError as :func:`torch_scenarios.pipeline.selection.load_all` does.
    """
    loaded = load_all(selection)
    return bool(loaded.scenarios) and not loaded.invalid


def launch_column(
    launcher: Sequence[str],
    arguments: Sequence[str],
    selection: Selection,
    *,
    name: str = "",
    known: Conformance | None = None,
    say: Callable[[str], None],
) -> Conformance:
    """Return a column of ranks that `launcher` starts, launch after launch (`mpirun -n 8`).

    `arguments` are those of `python -m torch_scenarios.worker` that choose the backend. A case that
    ends a launch before it is judged is INCONCLUSIVE, and what it left goes to the next one. Of a
    column that is `known` only the cases that it lacks are run. Raises LaunchError where no launch
    with one of the first cases comes to a result: a case may end its launch by what it states.
    """
    roots = find_roots(selection)
    if known is not None:
        selection, _ = find_missing(known, selection, ())
    worker = [*launcher, sys.executable, "-m", "torch_scenarios.worker", *arguments]
    waiting = [f"{each.source.path}::{each.case}" for each in load_all(selection).scenarios]
    cases: dict[str, CaseOutcome] = {}
    with TemporaryDirectory() as folder:
        first, lines = Path(folder) / "first.json", Path(folder) / "results.jsonl"
        printed = ""
        for place in waiting[:FIRST_CASES]:
            printed = _start([*worker, "--conformance", str(first), place])
            if first.exists():
                break
        else:
            message = f"no rank that `{' '.join(launcher)}` starts gives a result: {printed}"
            raise LaunchError(message)
        column = read_one(str(first))
        if known is not None:
            column, cases = complete(known, column), dict(known.cases)
        while waiting:
            lines.unlink(missing_ok=True)
            _start([*worker, "--jsonl", str(lines), *waiting])
            seen, whole = _read_results(lines)
            done = {f"{each.file}::{each.case}": each for each in seen}
            for place, each in done.items():
                cases[_place(place, roots)] = each.make_entry()
            waiting = [place for place in waiting if place not in done]
            if waiting and (not whole or not done):
                words = "its launch ended before it was judged"
                cases[_place(waiting.pop(0), roots)] = CaseOutcome(
                    verdict="INCONCLUSIVE", words=words
                )
            say(f"{len(cases)} cases seen, {len(waiting)} left")
    return replace(column, name=name or column.name, cases=cases)


def _start(command: Sequence[str]) -> str:
    """Run a launch to its end, and return what it prints of what went wrong, each cause once."""
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    lines = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace").splitlines()
    causes = {line.rpartition(NOT_RUN)[2]: line for line in reversed(lines)}
    return "\n  ".join([*reversed(causes.values())][:SHOWN]) or "it printed nothing"


class _CaseEnd(Struct, frozen=True):
    """How the run of a case ended."""

    outcome: str


class _CaseProblem(Struct, frozen=True):
    """One thing that is wrong with a case."""

    message: str


class _JudgedCase(Struct, frozen=True):
    """What a column keeps of a result that a launch wrote."""

    file: str
    case: str
    verdict: str
    problems: tuple[_CaseProblem, ...]
    reason: str | None
    observed: _CaseEnd | None

    def make_entry(self) -> CaseOutcome:
        """Return it as an entry of the column."""
        words = self.reason or next((each.message for each in self.problems), "")
        return _see(self.verdict, self.observed.outcome if self.observed else "", words)


class _Line(Struct, frozen=True):
    """A line of `--jsonl`: the beginning, a result, or the end."""

    kind: str
    result: _JudgedCase | None = None


def _read_results(path: Path) -> tuple[list[_JudgedCase], bool]:
    """Return the results of a launch that were judged, and whether it came to its end."""
    if not path.exists():
        return [], False
    found: list[_JudgedCase] = []
    whole = False
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = decode_json(text, _Line)
        except DocumentError:
            break  # it was killed while it wrote
        whole = line.kind == "end"
        if line.result is not None and not _is_unstarted(line.result):
            found.append(line.result)
    return found, whole


def _is_unstarted(result: _JudgedCase) -> bool:
    return result.verdict == "INCONCLUSIVE" and "this launch ended" in str(result.reason)


def _place(place: str, roots: list[Path]) -> str:
    file, _, case = place.partition("::")
    return _name_case(Path(file), case, roots)


def _see(verdict: str, outcome: str, words: str) -> CaseOutcome:
    """Return what a column has of a case: the first line of its words, and none where it passed."""
    short = "" if verdict == "PASSED" else words.partition("\n")[0][:WORDS]
    return CaseOutcome(verdict=verdict, outcome=outcome, words=short)


def tell_counts(dtype: str, seen: Mapping[Cell, CellOutcome]) -> str:
    """Say what came of the calls of a dtype, and why some did not run."""
    outcomes = [each.outcome for each in seen.values()]
    counted = ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes))
    why = next((each.words for each in seen.values() if each.outcome == "not run"), "")
    return f"calls of {dtype}: {counted}" + (f"; {NOT_RUN}{why}" if why else "")


def _name(result: Result, roots: list[Path]) -> str:
    """Return the name of a case from the corpus, wherever that lies."""
    return _name_case(Path(result.file), result.case, roots)


def _name_case(path: Path, case: str, roots: list[Path]) -> str:
    file = path.resolve()
    root = next((root for root in roots if file.is_relative_to(root)), file.parent)
    return f"{file.relative_to(root).as_posix()}::{case}"


def _case(result: Result) -> CaseOutcome:
    verdict = result.verdict
    words = verdict.reason or next((each.prose for each in verdict.findings), "")
    outcome = "" if verdict.observed is None else verdict.observed.outcome
    return _see(verdict.status, outcome, words)
