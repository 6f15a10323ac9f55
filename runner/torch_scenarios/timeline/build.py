"""(Scenario, Trace) -> Timeline: every event becomes a span, every link a match."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.values import DEFAULT_DTYPE, Constant, PerRank, Undefined
from torch_scenarios.model.groups import plan
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Process
from torch_scenarios.model.scenario import Scenario, Step, steps_of
from torch_scenarios.model.trace import Event, Failure, RankTrace, Trace, Value
from torch_scenarios.operations.base import (
    Collective,
    GroupCreation,
    Operation,
    PointToPoint,
    Waiting,
    dtype_name,
)
from torch_scenarios.operations.placement import is_layout
from torch_scenarios.timeline import model

# -------------------------------------------------------------------------------------------------
# Values as short text: `[3, 3]`, `[3, 3] int64`, `float32[4, 1024] 0, 1, 2, …, 4095`.
#
# Small tensors are shown whole, with their dtype unless it is the language's default. Larger ones
# show dtype, shape and some elements; one element that stands everywhere is shown once.

#: elements up to which a tensor is shown whole, and those shown of a larger one
MOST_ELEMENTS, FIRST = 16, 4

#: elements up to which it is looked whether all are the same
MOST_COMPARED = 1 << 16

#: characters of a list of tensors, of objects, of an exception's words
MOST_CHARACTERS = 160

_DIGITS = 7


# A value is text here, since a picture, a page and a file all want it so, and because a timeline
# may outlive its tensors. A thousand ranks that hold the same after an all_reduce are one text.
class Texts:
    """Values as text; a value that many ranks hold is put into words once.

    >>> texts = Texts()
    >>> texts.of(np.array([3.0, 3.0], np.float32)), texts.of(np.array([1, 2]))
    ('[3, 3]', '[1, 2] int64')
    >>> texts.of(np.zeros((4, 1024), np.float32))
    'float32[4, 1024] all 0'
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[tuple[Any, ...], str] = {}

    def all_of(self, values: Mapping[str, Value]) -> dict[str, str]:
        """Return each value as text."""
        return {name: self.of(value) for name, value in values.items() if not is_layout(name)}

    def of(self, value: Value) -> str:
        """Return a tensor, a list of tensors, an object or an undefined value as text."""
        if isinstance(value, np.ndarray | np.generic):
            return self._tensor(np.asarray(value))
        if isinstance(value, Undefined):
            return f"undefined ({value.cause})"
        if isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
            return shorten(f"[{', '.join(map(self.of, value))}]")
        return shorten(repr(value))

    def _tensor(self, value: NDArray[Any]) -> str:
        if value.size > MOST_ELEMENTS:
            return _summary(value)
        key = (value.dtype, value.shape, value.tobytes())
        known = self._known.get(key)
        if known is None:
            name = dtype_name(value.dtype)
            suffix = "" if name == DEFAULT_DTYPE else f" {name}"
            known = self._known[key] = f"{_write_nested(_plain(value).tolist())}{suffix}"
        return known


def shorten(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""Return a text of at most `most` characters, on one line.

    >>> shorten("one\n two three", most=9)
    'one two …'
    """
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _summary(value: NDArray[Any]) -> str:
    """Return dtype and shape of a large tensor, with its one value, or its first and last ones."""
    name = f"{dtype_name(value.dtype)}[{', '.join(map(str, value.shape))}]"
    flat = value.reshape(-1)
    if value.size <= MOST_COMPARED and bool((flat == flat[0]).all()):
        return f"{name} all {_number(_plain(flat[:1])[0].item())}"
    first, last = _plain(flat[:FIRST]).tolist(), _plain(flat[-1:]).tolist()
    return f"{name} {', '.join(map(_number, chain(first)))}, …, {_number(last[0])}"


def _plain(value: NDArray[Any]) -> NDArray[Any]:
    """Return an array whose items are Python's own numbers; wide enough for every small float."""
    return value if value.dtype.kind in "biufc" else value.astype(np.float64)


def _write_nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_write_nested, value))}]"
    return _number(value)


def _number(value: complex) -> str:
    """Return a number as short as its dtype tells it: whole floats without a fraction."""
    if isinstance(value, int):
        return str(value)
    return f"{value:.{_DIGITS}g}"


# -------------------------------------------------------------------------------------------------
# The steps of a scenario, as the spans of a timeline name them.

_KINDS: tuple[tuple[type[Operation], model.Kind], ...] = (
    (Collective, "collective"),
    (PointToPoint, "message"),
    (Waiting, "wait"),
    (GroupCreation, "creation"),
)


class StepPlace(Struct, frozen=True, kw_only=True):
    """What the spans of one step have in common; `line` is of the scenario's own file."""

    kind: model.Kind
    operation: str | None
    line: int | None
    place: str | None
    step: Step | None


#: of the groups that a scenario declares: their creation is refused before step 1
_UNKNOWN = StepPlace(kind="creation", operation=None, line=None, place=None, step=None)


class Places:
    """The steps of a scenario by their index, as spans name them.

    Of a used part without a line here.
    """

    def __init__(self, scenario: Scenario) -> None:
        """Name every step, also those inside of loops."""
        self._path = scenario.source.path
        self._known = {step.index: self._find_place(step) for step in steps_of(scenario.steps)}

    def __getitem__(self, index: int) -> StepPlace:
        """Return what the spans of a step have in common."""
        return self._known.get(index, _UNKNOWN)

    def lines(self) -> dict[int, int | None]:
        """Return each step's line in the scenario's own file."""
        return {index: place.line for index, place in self._known.items()}

    def _find_place(self, step: Step) -> StepPlace:
        mark, operation = step.mark, step.operation
        shape = (kind for shape, kind in _KINDS if isinstance(operation, shape))
        own = mark is not None and mark.source.path == self._path
        return StepPlace(
            kind=next(shape, "expect" if operation is None else "local"),
            operation=operation.name if operation else None,
            line=mark.line if mark and own else None,
            place=mark.short if mark else None,
            step=step,
        )


# -------------------------------------------------------------------------------------------------
# Which handles a `wait` waits for, on one rank.


class Handles:
    """The handles of one rank's waits: fixed names, which may differ from rank to rank.

        wait: {rank == 0: h, else: k}      of rank 0 `h`, of the others `k`

    A handle that is computed in the run is not known here, and its arrow is drawn to the call.
    """

    def __init__(self, plan: Plan, rank: int) -> None:
        """Evaluate nothing before it is asked for."""
        self._plan = plan
        self._rank = rank
        self._process: Process | None = None

    def of(self, step: Step) -> tuple[str, ...]:
        """Return the names of a `wait`'s handles here; none where a selector needs a run."""
        form = next(iter(step.arguments.values()), None)
        chosen = self._choose(form) if isinstance(form, PerRank) else form
        if not isinstance(chosen, Constant):
            return ()
        return (chosen.value,) if isinstance(chosen.value, str) else tuple(chosen.value)

    def _choose(self, form: PerRank[Constant]) -> Constant | None:
        if self._process is None:
            self._process = Process(self._plan, self._rank, numpy_arrays(), initialise=False)
        try:
            chosen: Constant | None = self._process.choose(form)
        except ScenarioError:
            return None
        return chosen


# -------------------------------------------------------------------------------------------------
# The events of each rank, beside what the reference knows of the same instances of steps.

#: an instance of a step on a rank: its name, and how often it had come before
Instance = tuple[int, tuple[int, ...], int]


class LaneRow(Struct, kw_only=True):
    """A lane while it is made: each event with the links and the label that the reference gave.

    The events are made once: a trace may build them whenever it is asked.
    """

    trace: RankTrace
    events: tuple[Event, ...]
    initial: Mapping[str, object]
    links: list[tuple[str, ...]] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    waits: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))


def rows_of(trace: Trace, predicted: Trace | None) -> list[LaneRow]:
    """Return a row for each rank of a trace, with what the reference says of each event.

    A run does not see what its calls met with: which send a receive got is the prediction's, for
    the same instance of the same step.
    """
    foreseen = {rank.rank: rank for rank in predicted.ranks} if predicted else {}
    rows = []
    for rank in trace.ranks:
        events = tuple(rank.events)
        source = foreseen.get(rank.rank)
        row = LaneRow(trace=rank, events=events, initial=rank.initial)
        rows.append(row)
        if source is rank:
            row.links = [rank.links.get(position, ()) for position in range(len(events))]
            row.labels = [event.label for event in events]
            continue
        known = _list_known(source) if source else {}
        row.initial = {**(source.initial if source else {}), **rank.initial}
        for instance in _instances(events):
            links, label = known.get(instance, ((), None))
            row.links.append(links)
            row.labels.append(label)
    return rows


def _list_known(rank: RankTrace) -> dict[Instance, tuple[tuple[str, ...], str | None]]:
    """Return the links and the label of each instance that the reference saw a rank take."""
    events = tuple(rank.events)
    return {
        instance: (rank.links.get(position, ()), events[position].label)
        for position, instance in enumerate(_instances(events))
    }


def _instances(events: Iterable[Event]) -> Iterator[Instance]:
    """Yield the name of each event's instance, alike in prediction and observation."""
    seen: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for event in events:
        key = (event.index, event.iteration)
        yield (*key, seen[key])
        seen[key] += 1


def completions(resolved: Plan, places: Places, rows: list[LaneRow]) -> dict[model.At, model.At]:
    """Return which `wait` waited for an asynchronous call; fill in what each `wait` completes.

    `up = isend(...)`, again `up = isend(...)` and one `wait: up` is for the second: a name given
    anew drops the work before. Of `up[t]` all those are kept that were not waited for yet.
    """
    completed: dict[model.At, model.At] = {}
    for lane, row in enumerate(rows):
        handles = Handles(resolved, row.trace.rank)
        started: dict[str, list[int]] = {}
        indexed: set[str] = set()
        for position, event in enumerate(row.events):
            step = places[event.index].step
            if step is None:
                continue
            if step.handle is not None:
                if step.handle_index is not None:
                    indexed.add(step.handle)
                kept = started.get(step.handle, []) if step.handle in indexed else []
                started[step.handle] = [*kept, position]
            if isinstance(step.operation, Waiting):
                for name in handles.of(step):
                    for at in started.get(name, ()):
                        completed.setdefault((lane, at), (lane, position))
                        row.waits[position] += row.links[at]
                    if name in indexed:
                        started.pop(name, None)
    return completed


# -------------------------------------------------------------------------------------------------
# What is wrong, as a timeline shows it: which rank waits for which, and the diagnoses.


def edges_of(trace: Trace, predicted: Trace | None) -> Iterator[model.Edge]:
    """Yield the waits of the ranks that are where the reference saw them blocked.

    In a run a rank may be elsewhere than predicted; what it waits for is then not known.
    """
    if predicted is None:
        return
    foreseen = {rank.rank: _stands(rank) for rank in predicted.ranks}
    standing = {r.rank for r in trace.ranks if _stands(r) and _stands(r) == foreseen.get(r.rank)}
    edges = {
        (wait.waiter, wait.peer, wait.index)
        for diagnosis in predicted.diagnoses
        for wait in diagnosis.waits
    }
    for wait in predicted.waits:
        if wait.waiter in standing:
            yield model.Edge(
                waiter=wait.waiter,
                peer=wait.peer,
                because=wait.because,
                cycle=(wait.waiter, wait.peer, wait.index) in edges,
                sure=wait.sure,
            )


def _stands(rank: RankTrace) -> tuple[int, tuple[int, ...]] | None:
    """Return the step in which a rank is left standing, if it is."""
    last = rank.events[-1] if rank.events else None
    return (last.index, last.iteration) if last is not None and last.state in model.STUCK else None


def faults_of(
    predicted: Trace | None, lines: Mapping[int, int | None]
) -> Iterator[model.DrawnDiagnosis]:
    """Yield what the reference found wrong; `lines` are those of the steps, by index."""
    for diagnosis in predicted.diagnoses if predicted else ():
        yield model.DrawnDiagnosis(
            name=diagnosis.name,
            prose=diagnosis.prose,
            ranks=diagnosis.ranks,
            line=lines.get(diagnosis.index),
            odd=diagnosis.odd,
        )


# -------------------------------------------------------------------------------------------------
# Which calls matched: from the names that a trace gives to matches to the spans that took part.

#: `world:0>1#7:2`, as :class:`torch_scenarios.model.trace.RankTrace` names a message; `?2` where
#: none was met
_MESSAGE = re.compile(r"(?P<group>.*):(?P<from>\d+|any)>(?P<to>\d+)#(?P<tag>\d+):\??\d+")


class GrowingMatch(Struct, kw_only=True):
    """A match while its spans are collected, in order of lanes.

    `labels` are those of the calls, `operations` theirs; `stuck` tells that one never returned.
    """

    name: str
    kind: model.Kind
    spans: list[model.At] = field(default_factory=list)
    labels: dict[str, None] = field(default_factory=dict)
    operations: set[str | None] = field(default_factory=set)
    stuck: bool = False


def group_of(link: str) -> str:
    """Return the key of the group that a message or a collective belongs to."""
    found = _MESSAGE.fullmatch(link)
    return found["group"] if found else link.rpartition(":")[0]


def ends_of(name: str) -> tuple[int | None, int] | None:
    """Return sender (None: anyone) and receiver of the message of that name; None for others."""
    found = _MESSAGE.fullmatch(name)
    if found is None:
        return None
    return None if found["from"] == "any" else int(found["from"]), int(found["to"])


def settle_match(
    draft: GrowingMatch,
    ranks: Sequence[int],
    completed: Mapping[model.At, model.At],
    members: Mapping[str, tuple[int, ...]],
) -> model.Match:
    """Return the match of a draft.

    `ranks` are those of the lanes; `completed` tells which `wait` completed the call at a span, if
    one did; `members` are the ranks of the groups that are known, by key.
    """
    found = _MESSAGE.fullmatch(draft.name)
    spans = sorted(draft.spans)
    came = [ranks[lane] for lane, _ in spans]
    if found:
        sender = -1 if found["from"] == "any" else int(found["from"])
        spans.sort(key=lambda at: ranks[at[0]] != sender)
        ends = (sender, int(found["to"]))
        missing = tuple(rank for rank in ends if rank >= 0 and rank not in came)
        both = len(spans) == len(ends)
    else:
        wanted = members.get(draft.name.rpartition(":")[0], ())
        missing = tuple(rank for rank in wanted if rank not in set(came))
        # who creates groups with different members all come, and wait for ever
        both = len(draft.operations) == 1 and not (draft.kind == "creation" and draft.stuck)
    return model.Match(
        name=draft.name,
        kind=draft.kind,
        label=_tell_message(found) if found else " ≠ ".join(draft.labels),
        spans=tuple(spans),
        completed=tuple(completed.get(at, at) for at in spans),
        missing=missing,
        complete=both and not missing,
    )


def _tell_message(message: re.Match[str]) -> str:
    sender = "anyone" if message["from"] == "any" else message["from"]
    tag = "" if message["tag"] == "0" else f" tag {message['tag']}"
    return f"{sender} → {message['to']}{tag}"


# -------------------------------------------------------------------------------------------------
# Logical time: a column for every span, so that who met stands together.
#
#     rank 0   a   S───┐   M         S a blocking send and R its receive: one column
#     rank 1   b   c   R   M         M a collective: one column
#
# The earliest columns that keep the order on every lane. Where ranks cross so that no order keeps
# all of it (asynchronous calls in two groups, started in opposite order), the first to come stands
# alone, and the rest is as before.


def columns_of(
    lengths: Sequence[int],
    together: Iterable[Sequence[model.At]],
    not_before: Iterable[tuple[model.At, model.At]],
) -> list[list[int]]:
    """Return the column of every span, by lane and position; `lengths` are the spans of each lane.

    The spans of each item of `together` share a column; the second span of each item of
    `not_before` stands in no earlier column than the first.
    """
    return _Placing(lengths, together, not_before).run()


class _Placing:
    """The work of placing: each lane has a head, the first of its spans that has no column."""

    def __init__(
        self,
        lengths: Sequence[int],
        together: Iterable[Sequence[model.At]],
        not_before: Iterable[tuple[model.At, model.At]],
    ) -> None:
        self.lengths = lengths
        self.heads = [0] * len(lengths)
        self.columns = [[-1] * length for length in lengths]
        self.units = _units(together)
        self.after: dict[model.At, list[model.At]] = defaultdict(list)
        self.sources: dict[model.At, list[model.At]] = defaultdict(list)
        for first, second in not_before:
            self.after[first].append(second)
            self.sources[second].append(first)
        #: what the unit of a span still waits for: members that are no heads, sources not placed
        self.lacking: dict[int, int] = {}
        for unit in {id(unit): unit for unit in self.units.values()}.values():
            self.lacking[id(unit)] = len(unit) + sum(len(self.sources.get(at, ())) for at in unit)
        self.ready: deque[list[model.At]] = deque()

    def run(self) -> list[list[int]]:
        for lane in range(len(self.lengths)):
            self._arrive(lane)
        while True:
            while self.ready:
                self._place(self.ready.popleft())
            waiting = [
                (head, lane) for lane, head in enumerate(self.heads) if head < self.lengths[lane]
            ]
            if not waiting:
                return self.columns
            head, lane = min(waiting)
            self._part((lane, head))

    def _unit(self, at: model.At) -> list[model.At]:
        unit = self.units.get(at)
        if unit is None:
            unit = self.units[at] = [at]
            self.lacking[id(unit)] = 1 + len(self.sources.get(at, ()))
        return unit

    def _arrive(self, lane: int) -> None:
        if self.heads[lane] < self.lengths[lane]:
            self._satisfy((lane, self.heads[lane]))

    def _satisfy(self, at: model.At) -> None:
        unit = self._unit(at)
        self.lacking[id(unit)] -= 1
        if self.lacking[id(unit)] == 0:
            self.ready.append(unit)

    def _place(self, unit: list[model.At]) -> None:
        column = max(self._earliest(at) for at in unit)
        for lane, position in unit:
            self.columns[lane][position] = column
            self.heads[lane] = position + 1
        for at in unit:
            for other in self.after.get(at, ()):
                if self.columns[other[0]][other[1]] < 0:
                    self._satisfy(other)
        for lane, _ in unit:
            self._arrive(lane)

    def _earliest(self, at: model.At) -> int:
        lane, position = at
        before = self.columns[lane][position - 1] if position else -1
        sources = (self.columns[other][place] for other, place in self.sources.get(at, ()))
        return max(before + 1, *sources, 0)

    def _part(self, at: model.At) -> None:
        """Let a head go alone, because nothing else can move."""
        unit = self._unit(at)
        open_sources = [
            source for source in self.sources.get(at, ()) if self.columns[source[0]][source[1]] < 0
        ]
        unit.remove(at)
        self.lacking[id(unit)] -= len(open_sources)
        self.units[at] = alone = [at]
        if unit and self.lacking[id(unit)] == 0:
            self.ready.append(unit)
        self._place(alone)


def _units(together: Iterable[Sequence[model.At]]) -> dict[model.At, list[model.At]]:
    """Return the sets of spans that share a column, by span; sets that overlap are one."""
    units: dict[model.At, list[model.At]] = {}
    for spans in together:
        merged = list(dict.fromkeys(other for at in spans for other in units.get(at, (at,))))
        for at in merged:
            units[at] = merged
    return units


# -------------------------------------------------------------------------------------------------
# (Scenario, Trace) -> Timeline: every event becomes a span, every link a match.

#: the place in its own sources that a backend's message begins with: `[/src/pair.cc:553] `
_SOURCE_PLACE = re.compile(r"\A\s*\[[^\]\s]*:\d+\]\s*")


def timeline(scenario: Scenario, trace: Trace, predicted: Trace | None) -> model.Timeline:
    """Return the timeline of a trace.

    `predicted` is the reference's trace of the same case, or `trace` itself: it tells which calls
    matched, which rank waits for which, and what is wrong. An observed event that it has no
    counterpart for (a rank that came further than the semantics promise) stands alone, and a
    receive from anyone is shown with the sender that the reference's first schedule gives it. No
    tensor is kept.
    """
    resolved = plan(scenario)
    places = Places(scenario)
    rows = rows_of(trace, predicted)
    completed = completions(resolved, places, rows)
    matches = _matches(resolved, places, rows, completed)
    columns = columns_of([len(row.links) for row in rows], *_constraints(matches))
    texts = Texts()
    lanes = tuple(
        _lane(row, places, texts, own, trace.hosts.get(row.trace.rank, ""))
        for row, own in zip(rows, columns, strict=True)
    )
    return model.Timeline(
        file=scenario.source.path,
        case=scenario.case,
        witness="predicted" if trace is predicted else "observed",
        backend=trace.backend,
        outcome=trace.outcome,
        lanes=lanes,
        matches=tuple(matches),
        edges=tuple(edges_of(trace, predicted)),
        faults=tuple(faults_of(predicted, places.lines())),
        columns=max((own[-1] + 1 for own in columns if own), default=0),
        duration_s=round(trace.duration_s, 6),
    )


# ---------------------------------------------------------------------------- which calls matched


def _matches(
    resolved: Plan, places: Places, rows: list[LaneRow], completed: Mapping[model.At, model.At]
) -> list[model.Match]:
    drafts: dict[str, GrowingMatch] = {}
    for lane, row in enumerate(rows):
        for position, links in enumerate(row.links):
            if not links:
                continue
            event = row.events[position]
            place = places[event.index]
            for name in links:
                draft = drafts.get(name)
                if draft is None:
                    draft = drafts[name] = GrowingMatch(name=name, kind=place.kind)
                draft.spans.append((lane, position))
                draft.labels[row.labels[position] or event.label] = None
                draft.operations.add(place.operation)
                draft.stuck = draft.stuck or event.state in model.STUCK
    order = {name: nth for nth, name in enumerate(drafts)}
    for row in rows:
        row.links = [tuple(sorted(links, key=order.__getitem__)) for links in row.links]
    ranks = [row.trace.rank for row in rows]
    members = _members(resolved)
    return [settle_match(draft, ranks, completed, members) for draft in drafts.values()]


def _members(resolved: Plan) -> dict[str, tuple[int, ...]]:
    """Return the members of the groups that exist before step 1, by key."""
    found = {group.key: group.ranks for groups in resolved.names.values() for group in groups}
    return {**found, resolved.world.key: resolved.world.ranks}


def _constraints(
    matches: list[model.Match],
) -> tuple[list[tuple[model.At, ...]], list[tuple[model.At, model.At]]]:
    """Return which spans share a column, and which may not stand before which."""
    together, ordered = [], []
    for match in matches:
        if match.kind != "message" or (match.complete and match.completed == match.spans):
            together.append(match.spans)
        elif match.complete:
            ordered.append((match.spans[0], match.completed[1]))
    return together, ordered


# ---------------------------------------------------------------------------- lanes


def _lane(row: LaneRow, places: Places, texts: Texts, columns: list[int], host: str) -> model.Lane:
    rank = row.trace
    spans = [
        _span(row, position, places[event.index], texts, columns[position])
        for position, event in enumerate(row.events)
    ]
    return model.Lane(
        rank=rank.rank,
        spans=tuple(spans),
        initial=texts.all_of(row.initial),
        ending=rank.ending,
        died=rank.died,
        host=host,
    )


def _span(
    row: LaneRow, position: int, place: StepPlace, texts: Texts, column: int
) -> model.StepSpan:
    event, links = row.events[position], row.links[position]
    return model.StepSpan(
        index=event.index,
        iteration=event.iteration,
        label=row.labels[position] or _label(event, place),
        kind=place.kind,
        operation=place.operation,
        group=group_of(links[0]) if links and place.kind != "creation" else None,
        state=event.state,
        column=column,
        start_s=round(event.start_s, 6),
        end_s=_round(event.end_s),
        complete_s=_round(event.complete_s),
        line=place.line,
        place=place.place,
        matches=(*links, *row.waits[position]) if position in row.waits else links,
        values=texts.all_of(event.writes),
        raised=_tell_raised(event.failure),
    )


def _round(seconds: float | None) -> float | None:
    """Return a time in whole microseconds, as it is stored."""
    return None if seconds is None else round(seconds, 6)


def _label(event: Event, place: StepPlace) -> str:
    """Return the label of an unforeseen event; a rank that gave no label gave a number."""
    if event.label == f"step {event.index}" and place.step is not None:
        return place.step.name or place.operation or "expect"
    return event.label


def _tell_raised(failure: Failure | None) -> str | None:
    if failure is None:
        return None
    kinds = " or ".join(failure.kinds)
    words = _SOURCE_PLACE.sub("", failure.message, count=1)
    return shorten(f"{kinds}: {words}") if words else kinds
