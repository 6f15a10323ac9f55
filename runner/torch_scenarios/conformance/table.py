"""The differential table: operation x reduce op x dtype, each cell one call on two ranks.

All cells of a dtype are steps of one scenario, each with its tensors, because making a world
costs NCCL more than a hundred calls. What a step raises ends nothing: the kinds are allowed beside
it. A cell that hangs or ends a process is left out of the next attempt, and so are those before it.
What is right is asked of the reference cell by cell, as it would take a stated error for granted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import LaunchError, ScenarioError, UnsupportedError
from torch_scenarios.expressions.values import Undefined
from torch_scenarios.language import load
from torch_scenarios.limits import OverdueError
from torch_scenarios.model.groups import plan
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.trace import Event, Trace
from torch_scenarios.operations import BY_NAME, OPERATIONS
from torch_scenarios.pipeline.results import Executor
from torch_scenarios.reference import simulate
from torch_scenarios.verdict.comparison import WantedValue, differences
from torch_scenarios.vocabulary import DTYPES, RAISE_KINDS, REDUCE_OPS

#: what a cell can come to. `undefined`: the reference gives it no value, so that nothing can differ
OUTCOMES = ("same", "differs", "refuses", "undefined", "hangs", "dies", "not run", "unseen")
RANKS = 2
OPS = (*REDUCE_OPS, "premul_sum")
#: the operations that are tried
TRIED = tuple(each for each in OPERATIONS if each.trial is not None)
#: attempts for one dtype before the rest is given up
ATTEMPTS = 6


class Cell(Struct, frozen=True, kw_only=True, order=True):
    """One call: what is done, with which reduce op (none where nothing is reduced), on what.

    >>> str(Cell(operation="all_reduce", op="sum", dtype="int16"))
    'all_reduce sum int16'
    """

    operation: str
    op: str
    dtype: str

    def __str__(self) -> str:
        """Name the cell: `all_reduce sum int16`."""
        return " ".join(filter(None, (self.operation, self.op, self.dtype)))


class CellOutcome(Struct, frozen=True, kw_only=True):
    """What came of a cell on one backend: one of :data:`OUTCOMES`, and the words for it.

    The words are the backend's own, shortened: "Invalid scalar type" says more than a code of ours.
    """

    outcome: str
    words: str = ""


def list_cells(dtypes: tuple[str, ...] = DTYPES) -> dict[str, list[Cell]]:
    """Return the cells of each dtype."""
    return {
        dtype: [
            Cell(operation=each.name, op=op, dtype=dtype)
            for each in TRIED
            for op in (OPS if each.reduces else ("",))
        ]
        for dtype in dtypes
    }


#: kinds after which the next cell can still be tried; after the others the group is gone
HARMLESS = [kind for kind in RAISE_KINDS if kind not in {"timeout", "peer_lost", "aborted"}]


def program(cells: list[Cell], *, freely: bool) -> tuple[str, dict[int, Cell]]:
    """Return a scenario that makes each call in turn, and which step is which cell.

    `freely`: whatever a call raises, the next one is made.
    """
    tensors: dict[str, Any] = {}
    steps: list[dict[str, Any]] = []
    by_step: dict[int, Cell] = {}
    for number, cell in enumerate(cells):
        trial = BY_NAME[cell.operation].trial
        assert trial is not None
        names = {name: f"{name}{number}" for name in trial.tensors}
        for name, value in trial.tensors.items():
            tensors[names[name]] = {"dtype": cell.dtype, "value": value}
        arguments = _rename(trial.arguments, names)
        for step in _steps(cell, arguments, number):
            if freely:
                step["expect"] = {"raises": HARMLESS}
            by_step[len(steps)] = cell
            steps.append(step)
    document = {"world_size": RANKS, "timeout": "10s", "tensors": tensors, "steps": steps}
    return yaml.safe_dump(document, sort_keys=False), by_step


def _rename(form: Any, names: Mapping[str, str]) -> Any:
    """Return arguments with other names of tensors."""
    if isinstance(form, str):
        return names.get(form, form)
    if isinstance(form, Mapping):
        return {key: _rename(value, names) for key, value in form.items()}
    return [_rename(item, names) for item in form] if isinstance(form, list) else form


def _steps(cell: Cell, arguments: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    if cell.op:
        arguments = {**arguments, "op": {"premul_sum": 2} if cell.op == "premul_sum" else cell.op}
    return STEPS.get(cell.operation, _call)(cell, arguments, number)


def _call(cell: Cell, arguments: dict[str, Any], _number: int) -> Iterator[dict[str, Any]]:
    yield {cell.operation: arguments}


def _message(_cell: Cell, arguments: dict[str, Any], _number: int) -> Iterator[dict[str, Any]]:
    yield {"ranks": 0, "send": {**arguments, "dst": 1}}
    yield {"ranks": 1, "recv": {**arguments, "src": 0}}


def _batch(cell: Cell, arguments: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    yield {cell.operation: arguments, "as": f"w{number}"}
    yield {"wait": f"w{number}"}


#: the operations that take more than one step
STEPS = {"send": _message, "batch_isend_irecv": _batch}


def write_scenario(operation: str, op: str, dtypes: Iterable[str]) -> str:
    """Return a scenario file that makes one call for some dtypes and is right where it passes."""
    chosen = list(dtypes)
    text, _ = program([Cell(operation=operation, op=op, dtype="dtype")], freely=False)
    document = yaml.safe_load(text)
    parameters: dict[str, Any] = {"matrix": {"dtype": chosen}}
    if len(chosen) == 1:
        parameters = {"parameters": {"dtype": chosen[0]}}
    about = {"description": f"{operation} {op}".strip() + " of two ranks: every value is compared."}
    return yaml.safe_dump({**about, **parameters, **document}, sort_keys=False)


def table(
    executor: Executor,
    dtypes: Iterable[str],
    say: Callable[[str, Mapping[Cell, CellOutcome]], None],
) -> dict[Cell, CellOutcome]:
    """Return what came of every cell of some dtypes; `say` hears of each dtype once it is done."""
    found: dict[Cell, CellOutcome] = {}
    with tempfile.TemporaryDirectory() as folder:
        for dtype, cells in list_cells(tuple(dtypes)).items():
            seen = {
                # a refusal's words differ by version; its kind does not
                cell: replace(each, words=each.words.partition(":")[0])
                if each.outcome == "refuses"
                else each
                for cell, each in observe(executor, cells, Path(folder)).items()
            }
            found |= seen
            say(dtype, seen)
    return found


def observe(launcher: Executor, cells: list[Cell], folder: Path) -> dict[Cell, CellOutcome]:
    """Return what came of each cell; cells of one dtype."""
    found: dict[Cell, CellOutcome] = {}
    waiting = list(cells)
    for _ in range(ATTEMPTS):
        if not waiting:
            break
        found |= _attempt(launcher, waiting, folder)
        waiting = [cell for cell in waiting if cell not in found]
    return {cell: found.get(cell, CellOutcome(outcome="not run")) for cell in cells}


def _attempt(launcher: Executor, cells: list[Cell], folder: Path) -> dict[Cell, CellOutcome]:
    """Run cells until one of them ends the run; what comes after that is not in the result."""
    try:
        planned, by_step = _plan_cells(cells, folder, freely=True)
        observed = launcher.run(planned, simulate(planned))
    except (ScenarioError, OverdueError, UnsupportedError, LaunchError) as error:
        words = str(error).splitlines()[0]
        return {cell: CellOutcome(outcome="not run", words=words) for cell in cells}
    got = _index_events(observed)
    steps: dict[Cell, list[int]] = {}
    for step, cell in by_step.items():
        steps.setdefault(cell, []).append(step)
    found: dict[Cell, CellOutcome] = {}
    for cell, own in steps.items():
        here = [rank[step] for step in own for rank in got if step in rank]
        whole = all(any(step in rank for rank in got) for step in own)
        if not whole and not any(event.failure for event in here):
            break  # what waits for a refused batch is no step at all
        found[cell] = _judge(
            _predict(cell, folder), [[rank.get(step) for rank in got] for step in own]
        )
        if found[cell].outcome == "hangs":
            break
    if observed.outcome == "crash":
        # who died tells nothing of the call that killed it: the last one that anybody entered
        culprit = list(found)[-1] if found else cells[0]
        found[culprit] = CellOutcome(outcome="dies", words=_deaths(observed))
    return found


def _plan_cells(cells: list[Cell], folder: Path, *, freely: bool) -> tuple[Plan, dict[int, Cell]]:
    text, by_step = program(cells, freely=freely)
    path = folder / "cells.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = load(path)
    return plan(scenario), by_step


def _predict(cell: Cell, folder: Path) -> Trace:
    """Return what the reference says of a cell by itself."""
    return simulate(_plan_cells([cell], folder, freely=False)[0])


def _index_events(trace: Trace) -> list[dict[int, Event]]:
    return [{event.index: event for event in rank.events} for rank in trace.ranks]


def _deaths(trace: Trace) -> str:
    return "; ".join(f"rank {rank.rank}: {rank.died}" for rank in trace.ranks if rank.died)


def _judge(wanted: Trace, got: list[list[Event | None]]) -> CellOutcome:
    """Return what a cell came to; `got` holds its steps, and each step its event on each rank."""
    happened = [event for step in got for event in step if event is not None]
    stuck = [event for event in happened if event.state in {"blocked", "running"}]
    if stuck:
        return CellOutcome(outcome="hangs", words=f"{stuck[0].label} never returns")
    refused = [event.failure for event in happened if event.failure is not None]
    if refused:
        words = refused[0].message.splitlines()[0]
        return CellOutcome(outcome="refuses", words=f"{refused[0].kinds[0]}: {words[:120]}")
    if wanted.outcome != "completes":
        failures = [
            event.failure for rank in wanted.ranks for event in rank.events if event.failure
        ]
        words = failures[0].message if failures else wanted.outcome
        return CellOutcome(outcome="differs", words=f"it should be refused: {words}")
    return _compare(wanted, got)


def _compare(wanted: Trace, got: list[list[Event | None]]) -> CellOutcome:
    """Compare what was stored; the steps of a cell are 0, 1, ... in its own prediction."""
    values = 0
    for rank, predicted in enumerate(wanted.ranks):
        for expected in predicted.events:
            event = got[expected.index][rank]
            for name, value in expected.writes.items():
                if _is_undefined(value):
                    continue
                values += 1
                found = _take_result(event, name)
                if differences(rank, WantedValue(value=value), found, expected.slack.get(name)):
                    return CellOutcome(
                        outcome="differs", words=_tell_difference(rank, value, found)
                    )
    return CellOutcome(outcome="same" if values else "undefined")


def _take_result(event: Event | None, name: str) -> Any:
    """Return what was written to a cell's tensor, which is numbered otherwise in the long run."""
    letter = name.rstrip("0123456789")
    written = event.writes if event is not None else {}
    return next((v for key, v in written.items() if key.rstrip("0123456789") == letter), None)


def _is_undefined(value: Any) -> bool:
    if isinstance(value, list):
        return any(_is_undefined(item) for item in value)
    return isinstance(value, Undefined)


def _tell_difference(rank: int, wanted: Any, got: Any) -> str:
    def text(value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(text, value))}]"
        return str(value.tolist() if hasattr(value, "tolist") else value)

    return f"rank {rank}: {text(got)} instead of {text(wanted)}"
