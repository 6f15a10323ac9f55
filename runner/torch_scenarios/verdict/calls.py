"""What a model's steps say, call by call: stated, predicted and observed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch_scenarios.expressions.values import PerRank
from torch_scenarios.model.scenario import Communicates
from torch_scenarios.model.trace import Trace
from torch_scenarios.operations.base import IssuedCall
from torch_scenarios.operations.join import Join
from torch_scenarios.operations.train import Train
from torch_scenarios.verdict.finding import Finding, Witness, ranks_text
from torch_scenarios.verdict.witnesses import Case, Memories

#: the backend whose calls are all seen by who listens
HEARD = "gloo"


def judge_calls(case: Case) -> list[Finding]:
    """Return the findings on what is stated of calls, and on those that are not stated.

    A training strategy is seen from outside by what it communicates: DistributedDataParallel by one
    all_reduce a bucket, FSDP by all_gathers and reduce_scatters. Values may be right while a
    strategy sends twice as much as it should.
    """
    found = [
        finding for stated in case.final.communicates for finding in _judge_stated(case, stated)
    ]
    return found or _judge_unstated(case)


def read_calls(case: Case, trace: Trace, rank: int, model: str) -> list[IssuedCall] | None:
    """Return the calls of all steps of a model on a rank; None where nothing listened.

    A run listens where the workers' process groups are wrapped, as on Gloo.
    """
    found: list[IssuedCall] = []
    for event in trace.ranks[rank].events:
        step = case.order.steps.get(event.index)
        form = step.arguments.get("model") if step is not None else None
        trained = step is not None and isinstance(step.operation, Train | Join)
        if trained and getattr(getattr(form, "value", None), "name", None) == model:
            if event.said is None and event.state == "done":
                return None
            found += event.said or ()
    return found


def floats(said: Iterable[IssuedCall]) -> list[IssuedCall]:
    """Return the calls that carry numbers of the model: none of torch's own bookkeeping.

    When DDP is made it compares the shapes of the parameters over all ranks, as tensors of
    integers.
    """
    return [each for each in said if "float" in each.dtype]


def _judge_stated(case: Case, stated: Communicates) -> list[Finding]:
    """Return the findings on one statement of `communicates`, by the witness that is alone."""
    wrong: dict[tuple[Witness, str], list[int]] = {}
    for rank in range(case.scenario.world_size):
        wanted = _find_wanted(case.predicted, rank, stated)
        if wanted is None:
            continue
        case.compared += 1
        mine = _compare(case, case.prediction, rank, stated, wanted)
        seen = _compare(case, case.run, rank, stated, wanted) if case.run is not None else None
        if mine and seen is None and case.run is not None and case.run.outcome == "completes":
            wrong.setdefault(("reference", f"in the reference {mine}"), []).append(rank)
        elif mine:
            wrong.setdefault(("expectation", mine), []).append(rank)
        elif seen:
            wrong.setdefault(("backend", seen), []).append(rank)
    return [
        Finding(
            witness=witness,
            code="calls_differ",
            prose=f"{ranks_text(tuple(ranks))}: {prose}",
            mark=stated.mark,
            ranks=tuple(ranks),
            name="communicates",
        )
        for (witness, prose), ranks in wrong.items()
    ]


def _find_wanted(
    memories: Memories, rank: int, stated: Communicates
) -> tuple[IssuedCall, ...] | None:
    if not isinstance(stated.calls, PerRank):
        return stated.calls
    process = memories.process(rank, memories.final(rank), None, None)
    chosen: tuple[IssuedCall, ...] | None = process.choose(stated.calls)
    return chosen


def _compare(
    case: Case, trace: Trace | None, rank: int, stated: Communicates, wanted: tuple[IssuedCall, ...]
) -> str | None:
    """Return how a trace departs from the calls that are stated on a rank, or None."""
    said = None if trace is None else read_calls(case, trace, rank, stated.model)
    if said is None:
        return None
    if stated.group is not None:
        asked = _members(case, rank, stated.group)
        said = [each for each in said if _members(case, rank, each.group) == asked]
    if len(floats(wanted)) == len(wanted):
        said = floats(said)
    return difference(wanted, said)


def difference(wanted: Sequence[IssuedCall], said: Sequence[IssuedCall]) -> str | None:
    """Return in words where two lists of calls part, whatever their groups; None where not.

    >>> one = IssuedCall(group="world", call="all_reduce", dtype="float32", numel=58)
    >>> difference([one], [one, one])
    'call 2 is all_reduce float32[58], and nothing more is expected'
    """
    for nth in range(max(len(wanted), len(said))):
        one = write_call(wanted[nth]) if nth < len(wanted) else "nothing more"
        other = write_call(said[nth]) if nth < len(said) else "nothing more"
        if one != other:
            return f"call {nth + 1} is {other}, and {one} is expected"
    return None


def write_call(each: IssuedCall) -> str:
    """Return a call as it is written: `all_reduce float32[58]`."""
    return f"{each.call} {each.dtype}[{each.numel}]"


# What is not stated: every call with numbers, in the order of its group, against the run.


def _judge_unstated(case: Case) -> list[Finding]:
    """Return the findings on calls that no one states: predicted, against those of the run.

    Only calls that carry the model's numbers count, group by group: how torch interleaves two
    groups is its own matter.
    """
    run = case.run
    if run is None or run.backend != HEARD or not case.reference:
        return []
    if case.own_names:
        return []  # the author knows that this backend holds other values: it may say other things
    wrong: dict[tuple[str, int], list[int]] = {}
    for rank, predicted in enumerate(case.prediction.ranks):
        seen = {(e.index, e.iteration): e for e in run.ranks[rank].events if e.said is not None}
        for event in predicted.events:
            other = seen.get((event.index, event.iteration))
            if event.said is None or other is None or event.state != "done" != other.state:
                continue
            case.compared += 1
            prose = _compare_groups(case, rank, event.said, other.said or ())
            if prose is not None:
                wrong.setdefault((prose, event.index), []).append(rank)
                break
    steps = case.order.steps
    return [
        Finding(
            witness="backend",
            code="calls_differ",
            prose=f"{ranks_text(tuple(ranks))}: {prose} (against the reference)",
            mark=steps[index].mark if index in steps else case.scenario.mark,
            ranks=tuple(ranks),
            index=index,
            name="calls",
        )
        for (prose, index), ranks in wrong.items()
    ]


def _compare_groups(
    case: Case, rank: int, predicted: Sequence[IssuedCall], observed: Sequence[IssuedCall]
) -> str | None:
    """Return in words where the calls of a rank part in some group; None where they do not."""
    lists: dict[object, tuple[str, list[IssuedCall], list[IssuedCall]]] = {}
    for at, said in enumerate((floats(predicted), floats(observed)), start=1):
        for each in said:
            members = _members(case, rank, each.group)
            entry = lists.setdefault(members, (each.group, [], []))
            (entry[1] if at == 1 else entry[2]).append(each)
    for name, mine, theirs in lists.values():
        found = difference(mine, theirs)
        if found is not None:
            return found if name == "world" else f"on {name}, {found}"
    return None


def _members(case: Case, rank: int, name: str) -> tuple[int, ...] | str:
    """Return the ranks of a group: a mesh of one dimension has the world's own group."""
    group = case.predicted.plan.group(name, rank)
    return name if group is None else group.ranks
