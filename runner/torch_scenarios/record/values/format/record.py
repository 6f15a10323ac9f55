"""What the ranks wrote of their values, read back: one record a rank, each event in order.

A line that is no event of a kind that is known is refused, with its number, and the file with it:
nothing is judged by half of a record. Only the last line may be torn, where a process has died.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, field

from torch_scenarios.record.format import lines_of, refusal
from torch_scenarios.record.values.format.event import (
    EVENTS,
    FIELDS,
    VERSION,
    BackwardPass,
    LoadedBatch,
    ValueEvent,
)

#: a class of events
Kind = TypeVar("Kind", bound=ValueEvent)


class ParameterRecord(Struct, kw_only=True):
    """A parameter or buffer as a rank has it: its name, its first hash, how it is laid out.

    `placements` are those of a DTensor: `S0`, `R` or `P`, one for each dimension of `mesh`.
    """

    number: int
    name: str
    place: int
    first: str
    kind: str
    shape: tuple[int, ...]
    local: tuple[int, ...]
    dtype: str
    constant: bool
    frozen: bool
    root: int
    placements: tuple[str, ...] = ()
    mesh: Any = None
    made: int = -1

    @property
    def is_part(self) -> bool:
        """Whether the rank has a shard of a DTensor."""
        return "S" in "".join(self.placements)


class Forward(Struct, kw_only=True):
    """A module that is called from outside of any other, and what was written before."""

    at: int
    turn: int
    root: int
    place: int
    training: bool
    changed: dict[int, str]


class OptimizerStep(Struct, kw_only=True):
    """A step of an optimizer: the hash of each gradient, and of each weight that it wrote."""

    at: int
    turn: int
    optimizer: int
    place: int
    rates: tuple[float, ...]
    gradients: dict[int, str | None]
    changed: dict[int, str]
    after: dict[int, str]


class CarriedTensor(Struct, kw_only=True):
    """A tensor that a collective took: what it is, whose, and its hash."""

    size: int
    shape: tuple[int, ...]
    dtype: str
    carries: str
    graph: bool = False
    parameters: tuple[int, ...] = ()
    #: whether it lies in the memory of what it belongs to
    exact: bool = False
    #: whether it is a flat copy of several gradients, in a row
    joined: bool = False
    hash: str = ""
    constant: bool = False
    value: float | None = None
    sum: float | None = None
    sums: tuple[float, ...] = ()
    #: whether its elements are one number, its negative and zero: signs
    levels: bool = False


class CarryingCall(Struct, kw_only=True):
    """A collective, as the user's own code made it."""

    at: int
    number: int
    turn: int
    operation: str
    ranks: tuple[int, ...]
    place: int
    op: str
    tensors: tuple[CarriedTensor, ...]
    results: tuple[str, ...]


class ValueRecord(Struct, kw_only=True):
    """All that one rank wrote of its values, in order."""

    rank: int
    settings: dict[str, Any]
    parameters: dict[int, ParameterRecord] = field(default_factory=dict)
    forwards: list[Forward] = field(default_factory=list)
    steps: list[OptimizerStep] = field(default_factory=list)
    loaders: dict[int, dict[str, Any]] = field(default_factory=dict)
    calls: list[CarryingCall] = field(default_factory=list)
    #: all other events, by their class
    events: dict[type[ValueEvent], list[Any]] = field(default_factory=dict)
    #: number of a place -> its frames: file, line, text; the innermost first
    places: dict[int, tuple[tuple[str, int, str], ...]] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, int]:
        """The number of each parameter, by its name."""
        return {each.name: number for number, each in self.parameters.items()}

    @property
    def stepped(self) -> set[str]:
        """The names of the parameters that its optimizers step."""
        return {self.parameters[n].name for step in self.steps for n in step.gradients}

    @property
    def batches(self) -> Sequence[LoadedBatch]:
        """The batches that left loaders, in order."""
        return self.of(LoadedBatch)

    def of(self, kind: type[Kind]) -> Sequence[Kind]:
        """Return the events of a kind, in order: `record.of(NormClip)`."""
        return self.events.get(kind, ())

    def find_last(self, kind: type[Kind], began: int, ended: int) -> Kind | None:
        """Return the last event of a kind between two others, by where these stand; or None."""
        return next((each for each in reversed(self.of(kind)) if began < each.at < ended), None)


def has_values(folder: Path) -> bool:
    """Whether a folder has a record of values."""
    return any(folder.glob("values-*.jsonl"))


def read_values(folder: Path) -> dict[int, ValueRecord]:
    """Return the records of values by rank. Raises ScenarioError where a file is not one."""
    found = {}
    for path in sorted(folder.glob("values-*.jsonl")):
        try:
            record = _read(path)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise refusal(path, "bad_record", f"it is not a record of values: {error}") from None
        record.places = dict(_places(folder, record.rank))
        found[record.rank] = record
    return found


def _places(folder: Path, rank: int) -> Iterator[tuple[int, tuple[tuple[str, int, str], ...]]]:
    for path in folder.glob(f"rank-{rank:05d}*.jsonl"):
        for line in lines_of(path):
            if isinstance(line, list) and line and line[0] == "s":
                frames = tuple((str(file), int(at), str(text)) for file, at, text in line[3])
                yield int(line[1]), frames


def _read(path: Path) -> ValueRecord:
    lines = lines_of(path)
    about = next(lines)
    if about["scenario_values"] != VERSION:
        message = f"its version is {about['scenario_values']}, not {VERSION}"
        raise ValueError(message)
    record = ValueRecord(rank=int(about["rank"]), settings=about)
    for at, line in enumerate(lines):
        _take(record, at, line)
    return record


def _take(record: ValueRecord, at: int, line: list[Any]) -> None:
    """Add one event to a record."""
    match line:
        case ["p", number, name, place, first, about]:
            record.parameters[number] = ParameterRecord(
                number=number,
                name=str(name),
                place=place,
                first=first,
                kind=about["kind"],
                shape=tuple(about["shape"]),
                local=tuple(about["local"]),
                dtype=about["dtype"],
                constant=about["constant"],
                frozen=about["frozen"],
                root=about["root"],
                placements=tuple(about.get("placements", ())),
                mesh=about.get("mesh"),
                made=int(about.get("made", -1)),
            )
        case ["f", turn, root, place, training, grad, changed]:
            record.forwards.append(
                Forward(
                    at=at,
                    turn=turn,
                    root=root,
                    place=place,
                    training=bool(training and grad),
                    changed=dict(changed),
                )
            )
        case ["o", turn, optimizer, place, rates, gradients, changed, after]:
            record.steps.append(
                OptimizerStep(
                    at=at,
                    turn=turn,
                    optimizer=optimizer,
                    place=place,
                    rates=tuple(rates),
                    gradients=dict(gradients),
                    changed=dict(changed),
                    after=dict(after),
                )
            )
        case ["l", number, place, about]:
            record.loaders[number] = {**about, "place": place}
        case ["c", number, turn, operation, ranks, place, op, tensors, results]:
            record.calls.append(
                CarryingCall(
                    at=at,
                    number=number,
                    turn=turn,
                    operation=operation,
                    ranks=tuple(ranks),
                    place=place,
                    op=op,
                    tensors=tuple(map(_tensor, tensors)),
                    results=tuple(results),
                )
            )
        case [str(kind), *fields] if kind in EVENTS:
            event = _make_event(EVENTS[kind], at, fields)
            if isinstance(event, BackwardPass):
                _train(record.batches, record.steps[-1].at if record.steps else -1)
            record.events.setdefault(type(event), []).append(event)
        case _:
            message = f"its line {at + 2} is {json.dumps(line)[:60]}"
            raise ValueError(message)


def _make_event(kind: type[ValueEvent], at: int, fields: list[Any]) -> ValueEvent:
    """Return the event of a line. Raises ValueError where a field is missing or of another type."""
    names = FIELDS[kind.KIND]
    if len(fields) > len(names):
        message = f"its line {at + 2} (`{kind.KIND}`) has more than {len(names)} fields"
        raise ValueError(message)
    try:
        return convert({**dict(zip(names, fields, strict=False)), "at": at}, kind)
    except ValidationError as error:
        message = f"its line {at + 2} (`{kind.KIND}`): {error}"
        raise ValueError(message) from None


def _train(batches: Sequence[LoadedBatch], began: int) -> None:
    """Know that a backward pass uses the batch that was read last, and others of the same step.

    Microbatches may be read before the first of them is used. `began` is the step before.
    """
    for each in reversed(batches):
        last = batches[-1]
        if each is not last and (
            each.at < began or (each.loader, each.epoch) != (last.loader, last.epoch)
        ):
            break
        each.trained = True


def _tensor(details: Mapping[str, Any]) -> CarriedTensor:
    return CarriedTensor(
        size=int(details["size"]),
        shape=tuple(details["shape"]),
        dtype=str(details["dtype"]),
        carries=str(details["carries"]),
        graph=bool(details["graph"]),
        parameters=tuple(details.get("parameters", ())),
        exact=bool(details.get("exact", False)),
        joined=bool(details.get("joined", False)),
        hash=str(details.get("hash", "")),
        constant=bool(details.get("constant", False)),
        value=details.get("value"),
        sum=details.get("sum"),
        sums=tuple(details.get("sums", ())),
        levels=bool(details.get("levels", False)),
    )
