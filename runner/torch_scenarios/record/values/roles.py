"""Which ranks hold what: the roles of groups, as what they carry shows them.

A parameter is a *replica* on ranks where something keeps it equal: DDP, a DTensor's Replicate, a
collective of its gradient or of itself. Ranks are *data-parallel* where they hold replicas and
exchange no activations; a group that exchanges activations holds parts of one *model*.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from torch_scenarios.record.values.format import CarryingCall, ValueRecord

#: collectives after which all members have one value
EQUALIZING = frozenset({"allreduce_", "broadcast_", "allreduce_coalesced_"})
#: collectives of gradients or weights that leave a part on each rank
SCATTERING = frozenset({"reduce_scatter_", "_reduce_scatter_base_"})
MESSAGES = frozenset({"send", "recv_"})

Ranks = tuple[int, ...]


class ReplicaGroup(Struct, kw_only=True):
    """Ranks that hold the same parameters, by name, and why that is known.

    `averages` says that weights are averaged now and then and may differ in between; `gradients`
    that their gradients must agree at the optimizer.
    """

    ranks: Ranks
    names: set[str]
    because: str
    averages: bool = False
    gradients: bool = True
    buffers: set[str] = field(default_factory=set)
    keeps_buffers: bool = False


class Roles(Struct, kw_only=True):
    """The groups of a program: replicas, data-parallel ranks, ranks of one model."""

    replicas: list[ReplicaGroup]
    data: list[Ranks]
    model: list[Ranks]


def find_roles(records: Mapping[int, ValueRecord]) -> Roles:
    """Return the roles of groups, by all that the ranks wrote."""
    wrapped = [*_of_ddp(records)]
    sure = {each.ranks for each in wrapped} | _of_units(records)
    model = _model_groups(records) - sure
    replicas = [*wrapped, *_of_meshes(records), *_of_calls(records, model)]
    covered = {(each.ranks, name) for each in replicas for name in each.names}
    replicas += [
        each
        for each in _of_whole_models(records, model, replicas)
        if any((each.ranks, name) not in covered for name in each.names)
    ]
    data = {each.ranks for each in replicas if each.ranks not in model and len(each.ranks) > 1}
    data = {ranks for ranks in data if not _is_tensor_parallel(records, ranks)}
    data |= sure
    data |= {ranks for ranks in _of_samplers(records) if not _overlaps(ranks, model)}
    return Roles(replicas=replicas, data=sorted(data), model=sorted(model))


def _is_tensor_parallel(records: Mapping[int, ValueRecord], ranks: Ranks) -> bool:
    """Whether DTensors are split over a group, and replicas along it are of one model."""
    for rank, record in records.items():
        for each in record.parameters.values():
            for dimension, placement in enumerate(each.placements):
                if placement != "R" and line_of(each.mesh, dimension, rank) == ranks:
                    return True
    return False


def _overlaps(ranks: Ranks, model: set[Ranks]) -> bool:
    return any(len(set(ranks) & set(each)) > 1 for each in model)


def _model_groups(records: Mapping[int, ValueRecord]) -> set[Ranks]:
    """Return the groups that exchange activations, those of pipelines as one."""
    found: set[Ranks] = set()
    piped: set[int] = set()
    for rank, record in records.items():
        for call in record.calls:
            if not any(each.carries == "activation" for each in call.tensors):
                continue
            if call.operation in MESSAGES:
                piped.add(rank)
            elif len(call.ranks) > 1:
                found.add(call.ranks)
    if len(piped) > 1:
        found.add(tuple(sorted(piped)))
    return found


def _of_ddp(records: Mapping[int, ValueRecord]) -> Iterator[ReplicaGroup]:
    groups: dict[tuple[Ranks, int], ReplicaGroup] = {}
    hooks = {str(e.details[0]) for record in records.values() for e in record.of_kind("hook")}
    local = any(each == "Join" or "localsgd" in each.lower() for each in hooks)
    for record in records.values():
        for at, each in enumerate(record.of_kind("ddp")):
            _, ranks, _, keeps, own, buffers, _ = each.details
            names = {record.parameters[number].name for number in own}
            group = groups.get((tuple(ranks), at))
            if group is None:
                groups[tuple(ranks), at] = group = ReplicaGroup(
                    ranks=tuple(ranks),
                    names=names,
                    because="DistributedDataParallel",
                    averages=local,
                    gradients=not local,
                    buffers={record.parameters[number].name for number in buffers},
                    keeps_buffers=bool(keeps),
                )
            group.names &= names
    for group in groups.values():
        if not local and not _averages(records, group):
            yield group
        else:
            group.averages, group.gradients = True, False
            yield group


def _averages(records: Mapping[int, ValueRecord], group: ReplicaGroup) -> bool:
    """Whether weights of a group are sent again after the first step of an optimizer."""
    for rank in group.ranks:
        record = records.get(rank)
        if record is None or not record.steps:
            continue
        first = record.steps[0].at
        if any(
            each.at > first and "weight" in {t.carries for t in each.tensors}
            for each in record.calls
            if each.operation in EQUALIZING and set(each.ranks) >= set(group.ranks)
        ):
            return True
    return False


def _of_meshes(records: Mapping[int, ValueRecord]) -> Iterator[ReplicaGroup]:
    groups: dict[Ranks, set[str]] = defaultdict(set)
    for rank, record in records.items():
        for each in record.parameters.values():
            for dimension, placement in enumerate(each.placements):
                if placement == "R":
                    line = line_of(each.mesh, dimension, rank)
                    if len(line) > 1:
                        groups[line].add(each.name)
    for ranks, names in groups.items():
        yield ReplicaGroup(
            ranks=ranks, names=names, because="a DTensor's Replicate", gradients=False
        )


def line_of(mesh: Any, dimension: int, rank: int) -> Ranks:
    """Return the ranks of a mesh that differ from one in one dimension alone, with it."""
    place = _index(mesh, rank)
    if place is None:
        return ()
    found = []
    at: Any = mesh
    for each in place[:dimension]:
        at = at[each]
    for part in at:
        inner: Any = part
        for each in place[dimension + 1 :]:
            inner = inner[each]
        found.append(int(inner))
    return tuple(found)


def _index(mesh: Any, rank: int) -> list[int] | None:
    if not isinstance(mesh, list):
        return [] if mesh == rank else None
    for at, part in enumerate(mesh):
        inner = _index(part, rank)
        if inner is not None:
            return [at, *inner]
    return None


def _of_calls(records: Mapping[int, ValueRecord], model: set[Ranks]) -> Iterator[ReplicaGroup]:
    """Yield the replicas that collectives of gradients and weights show."""
    names: dict[tuple[Ranks, bool], set[str]] = defaultdict(set)
    averages: set[Ranks] = set()
    for record in records.values():
        first = record.steps[0].at if record.steps else None
        for call in record.calls:
            if len(call.ranks) < 2 or call.operation not in EQUALIZING | SCATTERING | {"reduce_"}:
                continue
            for tensor in call.tensors:
                if tensor.carries not in {"gradient", "weight"}:
                    continue
                exact = call.operation in EQUALIZING
                own = {
                    record.parameters[n].name for n in tensor.parameters if n in record.parameters
                }
                names[call.ranks, exact] |= own
                if tensor.carries == "weight" and first is not None and call.at > first:
                    averages.add(call.ranks)
    for (ranks, exact), found in names.items():
        own = {name for name in found if _equal_at_start(records, ranks, name)}
        if own and exact:
            yield ReplicaGroup(
                ranks=ranks,
                names=own,
                because="a collective of its gradient or of its weights",
                averages=ranks in averages,
                gradients=ranks not in averages and _reduces_gradients(records, ranks, model),
            )


def _reduces_gradients(records: Mapping[int, ValueRecord], ranks: Ranks, model: set[Ranks]) -> bool:
    """Whether gradients that a group holds must agree: it is data-parallel, and shards nothing."""
    scatters = any(
        call.operation in SCATTERING | {"reduce_"} and call.ranks == ranks
        for record in records.values()
        for call in record.calls
    )
    return ranks not in model and not scatters


def _equal_at_start(records: Mapping[int, ValueRecord], ranks: Ranks, name: str) -> bool:
    """Whether a parameter is equal on ranks when it is used first."""
    hashes = {first_use(records[rank]).get(name) for rank in ranks if rank in records}
    return len(hashes) == 1 and None not in hashes


def first_use(record: ValueRecord) -> dict[str, str]:
    """Return the hash of each parameter when it was used first: before any step."""
    until = record.steps[0].at if record.steps else float("inf")
    state = {each.name: each.first for each in record.parameters.values()}
    for forward in record.forwards[:1]:
        if forward.at < until:
            for number, details in forward.changed.items():
                state[record.parameters[number].name] = details
    return state


def _of_whole_models(
    records: Mapping[int, ValueRecord], model: set[Ranks], known: Sequence[ReplicaGroup]
) -> Iterator[ReplicaGroup]:
    """Yield ranks that begin with one and the same model, and read or report as data-parallel."""
    world = tuple(sorted(records))
    if len(world) < 2 or model or any(each.averages for each in known):
        return
    if any(call.operation.startswith("alltoall") for r in records.values() for call in r.calls):
        return
    lines = [*_of_samplers(records)]
    if world not in lines and not _reports_losses(records, world):
        return
    trained = [
        {each.name for each in record.parameters.values() if _is_trained(record, each.number)}
        for record in records.values()
    ]
    names = set.intersection(*trained) if trained else set()
    if not names or any(names != each for each in trained):
        return
    if not all(_equal_at_start(records, world, name) for name in names):
        return
    first = records[world[0]]
    if all(first.parameters[first.names[name]].constant for name in names):
        return
    rates = {step.rates for record in records.values() for step in record.steps[:1]}
    if len(rates) != 1:
        return
    yield ReplicaGroup(ranks=world, names=names, because="one model on all ranks")


def _is_trained(record: ValueRecord, number: int) -> bool:
    return any(step.gradients.get(number) is not None for step in record.steps[:3])


def _of_samplers(records: Mapping[int, ValueRecord]) -> Iterator[Ranks]:
    """Yield the ranks that samplers deal rows to: one each."""
    world = tuple(sorted(records))
    for loader in range(8):
        details = [records[rank].loaders.get(loader, {}) for rank in world]
        if all(each.get("num_replicas") == len(world) for each in details) and {
            each.get("rank") for each in details
        } == set(range(len(world))):
            yield world
            return


def _reports_losses(records: Mapping[int, ValueRecord], world: Ranks) -> bool:
    """Whether ranks reduce a number over all of them, another one on each, while they train."""
    calls = [
        [call for call in record.calls if call.ranks == world and _is_report(call)]
        for record in records.values()
    ]
    for together in zip(*calls, strict=False):
        values = {call.tensors[0].hash for call in together}
        if len(values) == len(world):
            return True
    return False


def _is_report(call: CarryingCall) -> bool:
    return (
        call.operation == "allreduce_"
        and len(call.tensors) == 1
        and call.tensors[0].size == 1
        and call.tensors[0].carries in {"metric", "loss"}
        and "float" in call.tensors[0].dtype
    )


def _of_units(records: Mapping[int, ValueRecord]) -> set[Ranks]:
    """Return the groups that FSDP shards over."""
    return {
        tuple(each.details[1]) for record in records.values() for each in record.of_kind("unit")
    }
