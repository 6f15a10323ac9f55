"""The parts of a timeline. All of it is plain data: text, numbers, tuples, mappings of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

#: what a step does with others; `expect` is a step without an operation
Kind: TypeAlias = Literal["collective", "message", "creation", "wait", "local", "expect"]

#: whether a timeline is what the reference predicts, or what a run did
Witness: TypeAlias = Literal["predicted", "observed"]

#: a position: which lane, and the how-manieth span there
At: TypeAlias = tuple[int, int]

#: the states of a span that never returned
STUCK = frozenset({"blocked", "possibly_blocked", "running"})


class StepSpan(Struct, frozen=True, kw_only=True):
    """One step on one rank.

    `state` is that of :class:`torch_scenarios.model.trace.Event`. `column` is a logical time: it
    grows along every lane, the members of a collective and the two ends of a blocking message have
    one column, and an asynchronous message is completed in no earlier column than it starts (where
    ranks cross so that no such order exists, the first to come stands alone). `start_s` and `end_s`
    are seconds since the scenario began (virtual in a prediction); `end_s` is None where the step
    never returned, `complete_s` is when a device was done.

    `group` is the key of the group (`even`, `pair#1`), None where there is none. `line` is the
    step's line in the scenario's own file (from 1), None where `use` took it from another; `place`
    names file and line as prose does. `matches` are names of a :class:`Match`: those in which
    the call took part, and those that a `wait` completed. `values` are the tensors that the step
    stored into, afterwards, each as text that is short enough to be shown. `raised` is what it
    raised: kinds and words.
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
    place: str | None = None
    matches: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    raised: str | None = None

    @property
    def stuck(self) -> bool:
        """Whether the rank stands in this step, perhaps for ever."""
        return self.state in STUCK


class Lane(Struct, frozen=True, kw_only=True):
    """One rank: its spans in program order, what it held before the first, and how it ended.

    `host` is the name of its host where the ranks were on several, else empty.

    >>> Lane(rank=0, spans=(), initial={"x": "[1, 2]"}, ending="finished").died is None
    True
    """

    rank: int
    spans: tuple[StepSpan, ...]
    initial: Mapping[str, str]
    ending: str
    died: str | None = None
    host: str = ""


class Match(Struct, frozen=True, kw_only=True):
    """A collective, a message or a creation of a group: the spans that took part in it.

    `spans` are the calls: the sender's first, otherwise in order of lanes; where one end of a
    message is missing there is one. `completed` are, in the same order, the spans in which it was
    complete for each: the call itself, or the `wait` that waited for it. An arrow goes from
    `spans[0]` to `completed[1]`. `missing` are the ranks that had to come and did not (none for a
    receive from anyone). `complete` tells whether all came who had to, with the same operation.

        rank 0   isend ───────.  wait          spans (0, 0), (1, 0)
        rank 1   irecv         `▶ wait         completed (0, 1), (1, 1)
    """

    name: str
    kind: Kind
    label: str
    spans: tuple[At, ...]
    completed: tuple[At, ...]
    missing: tuple[int, ...]
    complete: bool


class Edge(Struct, frozen=True, kw_only=True):
    """One edge of the wait-for graph: the waiter cannot move before the peer does.

    `cycle` tells whether the edge lies on the cycle (or chain) that a diagnosis tells; `sure` is
    False where one of several peers would be enough.

    >>> Edge(waiter=0, peer=1, because="to send", cycle=True).sure
    True
    """

    waiter: int
    peer: int
    because: str
    cycle: bool
    sure: bool = True


class DrawnDiagnosis(Struct, frozen=True, kw_only=True):
    """A diagnosis: its name, its explanation, its ranks, and the first divergent line.

    `odd` are the ranks that most others disagree with.

        ranks 0, 1 and 3 pass `src=0`, rank 2 passes `src=2`      odd (2,): look there first
    """

    name: str
    prose: str
    ranks: tuple[int, ...]
    line: int | None
    odd: tuple[int, ...] = ()


class Timeline(Struct, frozen=True, kw_only=True):
    """One case, as it was predicted or observed. `witness` says which of the two.

    It is plain data for pictures: the diagram of the terminal, the SVG, the HTML page and the trace
    of Perfetto read the same one, and none of them knows a trace or an operation. Its `columns` are
    logical time, so that a prediction and a run of it can be laid side by side.
    """

    file: str
    case: str
    witness: Witness
    backend: str
    outcome: str
    lanes: tuple[Lane, ...]
    matches: tuple[Match, ...]
    edges: tuple[Edge, ...]
    faults: tuple[DrawnDiagnosis, ...]
    columns: int
    duration_s: float
