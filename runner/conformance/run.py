"""One column of the conformance file, really run: the table of calls, then the corpus."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from runner.conformance.document import CaseSeen, Conformance, name_of
from runner.conformance.table import Cell, Seen, table
from runner.pipeline import run as pipeline
from runner.pipeline.results import Executor, Listener, Outcome, Result, Selection, environment

#: characters of a reason that are kept
WORDS = 200


def conducted(
    selection: Selection,
    launch: Callable[[], AbstractContextManager[Executor]],
    listener: Listener,
    *,
    dtypes: Iterable[str],
    name: str = "",
    say: Callable[[str], None],
) -> tuple[Outcome, Conformance]:
    """Run every call of the table for some dtypes, and the cases of a selection, on one launch.

    Returns the outcome of the cases, and both as a column; `name` is the column's, which else is
    called after the backend and the version of torch. `say` hears of each dtype.
    """
    with launch() as executor:
        cells = table(executor, dtypes, lambda dtype, seen: say(_counted(dtype, seen)))
        outcome = pipeline.run(selection, lambda: nullcontext(executor), listener)
    found = environment(outcome)
    torch, backend = found.get("torch", "unknown"), found.get("backend", "unknown")
    roots = [Path(path).resolve() for path in selection.paths]
    column = Conformance(
        name=name or name_of(backend, torch),
        backend=backend,
        torch=torch,
        machine={
            "torch": torch,
            "Python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "cores": str(os.cpu_count()),
        },
        cases={_name(each, roots): _case(each) for each in outcome.results},
        cells=cells,
    )
    return outcome, column


def _counted(dtype: str, seen: Mapping[Cell, Seen]) -> str:
    outcomes = [each.outcome for each in seen.values()]
    counted = ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes))
    return f"calls of {dtype}: {counted}"


def _name(result: Result, roots: list[Path]) -> str:
    """Return the name of a case from the corpus, wherever that lies."""
    file = Path(result.file).resolve()
    root = next((root for root in roots if file.is_relative_to(root)), file.parent)
    return f"{file.relative_to(root).as_posix()}::{result.case}"


def _case(result: Result) -> CaseSeen:
    verdict = result.verdict
    words = verdict.reason or next((each.prose for each in verdict.findings), "")
    observed = verdict.observed
    return CaseSeen(
        verdict=verdict.status,
        outcome="" if observed is None else observed.outcome,
        words="" if verdict.status == "PASSED" else words.partition("\n")[0][:WORDS],
    )
