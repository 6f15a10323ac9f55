"""What an operation leaves on each rank: the reference semantics applied to those who met.

A collective's result is computed once all members are there; a member that needs fewer (a
broadcast's leaf needs the source only) gets its own earlier, with the absent ones left out of
account. Arguments that disagree leave everything undefined that the operation writes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.base import Collective
from runner.operations.entries import Entry, Undefined
from runner.operations.reduction import epsilon, is_inexact, wide
from runner.reference.findings import Finding
from runner.reference.values import frozen, frozen_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.operations.entries import Disagreement
    from runner.reference.meetings import Meeting
    from runner.reference.posts import Joining, Posted
    from runner.reference.simulation import Simulation

#: reduce ops whose floating-point result depends on the order
ORDER_MATTERS = frozenset({"sum", "avg", "product"})

ALL_OUTCOMES = frozenset({"completes", "deadlock", "error", "crash"})


def settle(
    simulation: Simulation, meeting: Meeting, joining: Joining, joined: Mapping[int, Joining]
) -> None:
    """Give `joining` what its operation leaves there; `joined` are those who entered it so far."""
    operation = joining.call.operation
    assert isinstance(operation, Collective)  # noqa: S101 -- only these join
    whole = len(joined) == meeting.group.size
    if whole and meeting.settled:
        return
    here = joining.meeting.group.group_rank(joining.rank)
    if not whole and not _written(joining):
        _freeze(joining)
        return
    involved = (
        dict(joined)
        if whole
        else {at: joined[at] for at in sorted({*operation.needs(joining.entry), here})}
    )
    examine(simulation, meeting, operation, involved)
    taint = next((other.tainted for other in involved.values() if other.tainted), None)
    receivers = joined if whole else {here: joining}
    if meeting.spoiled or taint:
        cause = taint or Undefined(
            cause=f"`{joining.call.label}` with a {meeting.spoiled}", diagnosis=meeting.spoiled
        )
        for other in receivers.values():
            _spoil(other, cause)
    else:
        entries = _entries(meeting, involved, joining)
        results = operation.reference(entries)
        slack = slack_of(operation, entries)
        for at, other in receivers.items():
            if other.done_s is None:
                other.outcome = [
                    (name, frozen(value), slack[at].get(name) if slack else None)
                    for name, value in results[at].items()
                ]
    meeting.settled = whole
    if not whole:
        _freeze(joining)


def _freeze(joining: Joining) -> None:
    """Keep what a rank contributed, because it goes on and may change it."""
    joining.entry = replace(joining.entry, arguments=frozen_arguments(joining.entry))


def _written(joining: Joining) -> list[str]:
    """Return the arguments that the operation stores into on this rank."""
    operation, entry = joining.call.operation, joining.call.entry
    assert operation is not None  # noqa: S101 -- only operations join
    return [
        param.name
        for param in operation.params
        if operation.writes(param, entry) and entry.arguments.get(param.name) is not None
    ]


def _spoil(joining: Joining, cause: Undefined) -> None:
    joining.outcome = [(name, cause, None) for name in _written(joining)]


def _entries(meeting: Meeting, involved: Mapping[int, Joining], stand_in: Joining) -> list[Entry]:
    entries = []
    for at, rank in enumerate(meeting.group.ranks):
        if at in involved:
            entries.append(involved[at].entry)
        else:
            entries.append(replace(stand_in.entry, rank=rank))
    return entries


def examine(
    simulation: Simulation,
    meeting: Meeting,
    operation: Collective,
    involved: Mapping[int, Joining],
) -> None:
    """Find what the arguments of those who met disagree on."""
    if len(involved) < 2:  # noqa: PLR2004 -- one alone agrees
        return
    entries = [involved[at].entry for at in sorted(involved)]
    for disagreement in operation.disagreements(entries):
        meeting.spoiled = meeting.spoiled or disagreement.diagnosis
        simulation.opened |= ALL_OUTCOMES
        simulation.findings.append(_disagreement(meeting, operation, involved, disagreement))


def examine_present(simulation: Simulation) -> None:
    """Find what those disagree on who entered a collective that not all of them entered."""
    for meeting in simulation.meetings.all():
        if meeting.spoiled or len(meeting.kinds) != 1 or len(meeting.joined) == meeting.group.size:
            continue
        operation = meeting.joined[min(meeting.joined)].call.operation
        assert isinstance(operation, Collective)  # noqa: S101 -- only these join
        examine(simulation, meeting, operation, meeting.joined)


def _disagreement(
    meeting: Meeting,
    operation: Collective,
    involved: Mapping[int, Joining],
    disagreement: Disagreement,
) -> Finding:
    values = disagreement.values
    counted = Counter(values.values())
    usual = counted.most_common(1)[0][0]
    odd = tuple(meeting.group.ranks[at] for at in sorted(values) if values[at] != usual)
    told = "; ".join(
        f"{_ranks([meeting.group.ranks[at] for at in sorted(values) if values[at] == value])}: "
        f"{value}{_place(involved, values, value)}"
        for value in dict.fromkeys(values[at] for at in sorted(values))
    )
    first = involved[min(involved)].call
    return Finding(
        name=disagreement.diagnosis,
        prose=(
            f"the members of {meeting.group.name} enter `{operation.name}` with different "
            f"{disagreement.what}: {told}"
        ),
        kind=f"{disagreement.diagnosis}:{meeting.group.key}:{meeting.position}",
        index=min(joining.call.step.index for joining in involved.values()),
        iteration=first.iteration,
        ranks=tuple(sorted(joining.rank for joining in involved.values())),
        odd=odd,
    )


def _place(involved: Mapping[int, Joining], values: Mapping[int, str], value: str) -> str:
    at = min(at for at in values if values[at] == value)
    mark = involved[at].call.step.mark if at in involved else None
    return f" ({mark.short})" if mark else ""


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def slack_of(operation: Collective, entries: list[Entry]) -> list[dict[str, Any]]:
    """Return how far each result may be off because the order of its reduction is open.

    The bound for n terms in any order is (n - 1) roundings of the sum of their absolute values
    (Higham, Accuracy and Stability of Numerical Algorithms, 4.2); that sum is the operation's own
    result on the absolute values. Empty where every order gives the same.
    """
    op = entries[0].arguments.get("op")
    if op is None or (isinstance(op, str) and op not in ORDER_MATTERS) or len(entries) < 2:  # noqa: PLR2004
        return []
    exact = [_integral(entry) for entry in entries]
    dtypes = [each.dtype for entry in entries for each in _arrays(entry) if is_inexact(each)]
    if not dtypes:
        return []
    sizes = operation.reference(
        [
            replace(
                entry, arguments={name: _size(value) for name, value in entry.arguments.items()}
            )
            for entry in entries
        ]
    )
    eps = epsilon(dtypes[0])
    found = []
    for result in sizes:
        bounds = {name: _bound(value, eps, len(entries)) for name, value in result.items()}
        if all(exact) and op != "avg":
            bounds = {name: _unless_exact(value, len(entries)) for name, value in bounds.items()}
        found.append(bounds)
    return found


def _arrays(entry: Entry) -> list[Any]:
    found: list[Any] = []
    for value in entry.arguments.values():
        found += [value] if isinstance(value, np.ndarray) else []
        found += [v for v in value if isinstance(v, np.ndarray)] if isinstance(value, list) else []
    return found


def _integral(entry: Entry) -> bool:
    arrays = [wide(each) for each in _arrays(entry) if is_inexact(each)]
    with np.errstate(all="ignore"):
        return all(bool((each == np.rint(each.real)).all()) for each in arrays)


def _size(value: Any) -> Any:  # noqa: ANN401 -- an argument has any type
    if isinstance(value, np.ndarray):
        return np.abs(wide(value)) if is_inexact(value) else value
    if isinstance(value, list):
        return [_size(item) for item in value]
    return value


def _bound(value: Any, eps: float, count: int) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        return [_bound(item, eps, count) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.nan_to_num(value * (eps * count), nan=0.0, posinf=0.0, neginf=0.0)
    return None


def _unless_exact(value: Any, count: int) -> Any:  # noqa: ANN401
    """Integers whose sum of sizes the dtype still represents add up exactly in any order."""
    if isinstance(value, list):
        return [_unless_exact(item, count) for item in value]
    if value is None:
        return None
    return np.where(value <= count, 0.0, value)


def delivered(simulation: Simulation, send: Posted, receive: Posted) -> None:
    """Put a message into the receiver's buffer; a misfit leaves the buffer undefined."""
    payload, buffer = send.payload, receive.message.buffer
    value: Any = payload
    misfit = _misfit(payload, buffer)
    if misfit:
        name, what = misfit
        simulation.opened |= ALL_OUTCOMES
        value = Undefined(cause=f"a message with a {name}", diagnosis=name)
        simulation.findings.append(
            Finding(
                name=name,
                prose=(
                    f"rank {send.rank} in `{send.call.label}`{_mark(send)} and rank {receive.rank} "
                    f"in `{receive.call.label}`{_mark(receive)} disagree: {what}"
                ),
                kind=f"{name}:{send.call.step.index}:{receive.call.step.index}",
                index=min(send.call.step.index, receive.call.step.index),
                iteration=send.call.iteration,
                ranks=tuple(sorted((send.rank, receive.rank))),
            )
        )
    elif send.tainted is not None:
        value = send.tainted
    elif isinstance(payload, np.ndarray):
        value = payload.copy()
    receive.outcome = [(None, value, None)]


def _mark(posted: Posted) -> str:
    return f" ({posted.call.step.mark.short})" if posted.call.step.mark else ""


def _misfit(payload: Any, buffer: Any) -> tuple[str, str] | None:  # noqa: ANN401
    if isinstance(payload, np.ndarray) and isinstance(buffer, np.ndarray):
        if payload.dtype != buffer.dtype:
            return "dtype_mismatch", f"{payload.dtype} is sent, {buffer.dtype} is received"
        if payload.size != buffer.size:
            return "shape_mismatch", f"{payload.size} elements are sent, {buffer.size} received"
        return None
    if isinstance(payload, list) and isinstance(buffer, list):
        if len(payload) != len(buffer):
            return "shape_mismatch", f"{len(payload)} objects are sent, {len(buffer)} received"
        return None
    return "dtype_mismatch", "one side passes a tensor, the other a list of objects"
