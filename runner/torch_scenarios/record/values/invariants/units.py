"""Collectives join parts of the same parameters.

The n-th collective of a group carries the same parameters on each of its ranks, and FSDP2 gathers
the same unit. A rank that goes through its parameters in the order of a set, or of a condition on
its number, adds the gradient of one layer to that of another: the shapes fit, and nothing fails.
Judged are calls that carry parameters by their memory alone. Two stages of a pipeline that share
a weight may each call it by a name of its own: what began with one value is one weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch_scenarios.record.values.format.event import UnitGather
from torch_scenarios.record.values.format.record import CarryingCall
from torch_scenarios.record.values.invariants.finding import (
    Records,
    ValueFinding,
    find_groups_of_calls,
    join_calls,
    list_names,
    part_ranks,
    tell_call,
)
from torch_scenarios.record.values.roles import Ranks, Roles


def find_crossed_units(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield collectives that join parts of different parameters."""
    del roles
    for ranks in find_groups_of_calls(records):
        for met in join_calls(records, ranks, _names_parameters):
            names = {
                rank: tuple(
                    records[rank].parameters[n].name for t in call.tensors for n in t.parameters
                )
                for rank, call in met.items()
            }
            if len(set(names.values())) > 1 and not _are_tied(records, names):
                one, other = part_ranks(names)[0][0], part_ranks(names)[-1][0]
                call = met[other]
                yield _report_crossed(
                    f"one {tell_call(call.operation)} joins {list_names(names[one])} of rank {one} "
                    f"with {list_names(names[other])} of rank {other}",
                    ranks,
                    other,
                    call.place,
                    call.turn,
                )
                return
    yield from _find_crossed_fsdp_units(records)


def _names_parameters(call: CarryingCall) -> bool:
    return all(each.exact and each.parameters for each in call.tensors)


def _are_tied(records: Records, names: Mapping[int, tuple[str, ...]]) -> bool:
    """Whether parameters of other names hold the same: one weight that two stages share."""
    firsts = {
        tuple(records[rank].parameters[records[rank].names[name]].first for name in own)
        for rank, own in names.items()
    }
    return len(firsts) == 1


def _report_crossed(words: str, ranks: Ranks, rank: int, place: int, turn: int) -> ValueFinding:
    return ValueFinding(
        code="units_crossed",
        message=words,
        ranks=ranks,
        rank=rank,
        place=place,
        hint="let every rank go through its parameters in one order: that of "
        "`named_parameters()`, never that of a set or of a condition on the rank",
        turn=turn,
    )


def _find_crossed_fsdp_units(records: Records) -> Iterator[ValueFinding]:
    groups = {e.ranks for record in records.values() for e in record.of(UnitGather)}
    for ranks in sorted(groups):
        lists = [
            [e for e in records[rank].of(UnitGather) if e.ranks == ranks]
            for rank in ranks
            if rank in records
        ]
        for together in zip(*lists, strict=False):
            names = [each.names for each in together]
            if len(set(names)) > 1 and all(all(each) for each in names):
                other = next(at for at, each in enumerate(names) if each != names[0])
                yield _report_crossed(
                    f"FSDP gathers {list_names(names[0])} on rank {ranks[0]} and "
                    f"{list_names(names[other])} on rank {ranks[other]} in one all_gather",
                    ranks,
                    ranks[other],
                    together[other].place,
                    together[other].turn,
                )
                return
