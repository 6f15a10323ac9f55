"""The parts of a timeline. All of it is plain data: text, numbers, tuples, mappings of these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

#: what a step does with others; `expect` is a step without an operation
Kind: TypeAlias = Literal["collective", "message", "creation", "wait", "local", "expect"]

#: a position: which lane, and the how-manieth span there
At: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One step on one rank.

    `state` is that of :class:`runner.trace.Event`. `column` is a logical time: it grows along every
    lane, all members of a collective have one column, and a message ends in no earlier column than
    it starts. `start_s` and `end_s` are seconds since the scenario began (virtual in a prediction);
    `end_s` is None where the step never returned, `complete_s` is when a device was done. `line` is
    the step's line in the scenario's file (from 1). `values` are the tensors that the step stored
    into, afterwards, each as text that is short enough to be shown; `raised` what it raised: kinds
    and words. `meetings` are names of :class:`Meeting`.
    """

    index: int
    iteration: tuple[int, ...]
    label: str
    kind: Kind
    operation: str | None
    group: str | None
    state: str
    column: int
    start_s: float
    end_s: float | None
    complete_s: float | None = None
    line: int | None = None
    meetings: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    raised: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One rank: its spans in program order, what it held before the first, and how it ended."""

    rank: int
    spans: tuple[Span, ...]
    initial: Mapping[str, str]
    ending: str
    died: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A collective, a message or a creation of a group: the spans that took part in it.

    A message has its sender first; where one end is missing there is one span. `complete` tells
    whether all came who had to.
    """

    name: str
    kind: Kind
    label: str
    spans: tuple[At, ...]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One edge of the wait-for graph: the waiter cannot move before the peer does.

    `cycle` tells whether the edge lies on the cycle (or chain) that the diagnosis tells.
    """

    waiter: int
    peer: int
    because: str
    cycle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A diagnosis: its name, its explanation, whom it concerns, and the first divergent line."""

    name: str
    prose: str
    ranks: tuple[int, ...]
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One case, as it was predicted or observed. `witness` says which of the two."""

    file: str
    case: str
    witness: Literal["predicted", "observed"]
    backend: str
    outcome: str
    lanes: tuple[Lane, ...]
    meetings: tuple[Meeting, ...]
    edges: tuple[Edge, ...]
    faults: tuple[Fault, ...]
    columns: int
    duration_s: float
