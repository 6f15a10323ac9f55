"""Which ranks hold what: the roles of groups, as what they carry shows them.

A parameter is a *replica* on ranks where something keeps it equal: DDP, a DTensor's Replicate, a
collective of its gradient or of itself. Ranks are *data-parallel* where they hold replicas and
exchange no activations; a group that exchanges activations holds parts of one *model*.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct, field

from torch_scenarios.record.values.format.event import (
    BackwardPass,
    BackwardResult,
    CommunicationHook,
    DataParallelWrapper,
    ExpertModule,
    FlatWrapper,
    GatheredModule,
    GradientChange,
    LateParameter,
    UnitGather,
)
from torch_scenarios.record.values.format.record import (
    CarriedTensor,
    CarryingCall,
    OptimizerStep,
    ParameterRecord,
    ValueRecord,
)

#: collectives after which all members have one value
EQUALIZING = frozenset({"allreduce_", "broadcast_", "allreduce_coalesced_"})
#: collectives of gradients or weights that leave a part on each rank
SCATTERING = frozenset({"reduce_scatter_", "_reduce_scatter_base_"})
MESSAGES = frozenset({"send", "recv_"})
#: steps of an optimizer by which what it trains is known
MOST_STEPS = 3

Ranks = tuple[int, ...]
#: what finds the random parameters that a constant one follows
Neighbours = Callable[[ValueRecord, str], list[ParameterRecord]]


class ReplicaGroup(Struct, kw_only=True):
    """Ranks that hold the same parameters, by name, and why that is known.

    `averages` says that weights are averaged now and then and may differ in between; `gradients`
    that their gradients must agree at the optimizer; `only_used` that they need to be equal where
    a module is called alone; `surely` that no later equality makes a difference right; `intended`
    that an author may want them to differ; `hint` what to do about gradients that nothing sums.
    """

    ranks: Ranks
    names: set[str]
    because: str
    averages: bool = False
    gradients: bool = True
    buffers: set[str] = field(default_factory=set)
    keeps_buffers: bool = False
    only_used: bool = False
    surely: bool = True
    intended: bool = False
    hint: str = ""


class Roles(Struct, kw_only=True):
    """The groups of a program: replicas, data-parallel ranks, ranks of one model."""

    replicas: list[ReplicaGroup]
    #: whose gradients are reduced over ranks, and whose weights these ranks do not begin with
    unlike: list[ReplicaGroup]
    data: list[Ranks]
    model: list[Ranks]
    #: those of the latter that split the weights of a model among them, as tensor parallelism does
    split: list[Ranks]


def find_roles(records: Mapping[int, ValueRecord]) -> Roles:
    """Return the roles of groups, by all that the ranks wrote."""
    wrapped = [*_find_ddp(records)]
    sure = {each.ranks for each in wrapped} | _find_units(records)
    model = _model_groups(records) - sure
    replicas = [*wrapped, *_find_meshes(records), *_find_by_calls(records, model)]
    replicas += _find_by_optimizers(records, replicas, model)
    replicas += _find_biases(records, replicas)
    replicas += _find_unsharded(records)
    replicas += _find_owners(records, replicas)
    replicas += _find_resting_modules(records, replicas)
    reduced = {(each.ranks, n) for each in [*wrapped, *_find_meshes(records)] for n in each.names}
    split = [each for each in sorted(model) if _is_split(records, each, reduced)]
    replicas += _find_whole_parts(records, split, replicas)
    replicas += _find_norms(records, model, replicas)
    covered = {(each.ranks, name) for each in replicas for name in each.names}
    replicas += [
        each
        for each in _find_whole_models(records, model, replicas)
        if any((each.ranks, name) not in covered for name in each.names)
    ]
    data = {each.ranks for each in replicas if each.ranks not in model and len(each.ranks) > 1}
    data = {ranks for ranks in data if not _is_tensor_parallel(records, ranks)}
    data |= sure
    data |= {ranks for ranks in _find_sampled(records) if not _overlaps(ranks, model)}
    return Roles(
        replicas=replicas,
        unlike=[*_find_unlike_weights(records, model)],
        data=sorted(data),
        model=sorted(model),
        split=split,
    )


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
    has_experts = bool(find_experts(records))
    for rank, record in records.items():
        for call in record.calls:
            if not any(each.carries == "activation" for each in call.tensors):
                continue
            if has_experts and call.operation.startswith("alltoall"):
                continue  # ranks that exchange tokens with experts have rows of their own
            if call.operation in MESSAGES:
                piped.add(rank)
            elif len(call.ranks) > 1:
                found.add(call.ranks)
    if len(piped) > 1:
        found.add(tuple(sorted(piped)))
    return found


def find_experts(records: Mapping[int, ValueRecord]) -> set[str]:
    """Return the names of parameters that work on what other ranks have sent."""
    return {
        record.parameters[number].name
        for record in records.values()
        for each in record.of(ExpertModule)
        for number in each.parameters
    }


def find_stages(records: Mapping[int, ValueRecord]) -> list[int]:
    """Return the ranks that send or get what modules gave back: the stages of a pipeline."""

    def is_passed(call: CarryingCall) -> bool:
        kinds = {each.carries for each in call.tensors if each.size > 1}
        return call.operation in MESSAGES and bool(kinds & {"activation", "metric"})

    return [rank for rank, record in sorted(records.items()) if any(map(is_passed, record.calls))]


def _find_ddp(records: Mapping[int, ValueRecord]) -> Iterator[ReplicaGroup]:
    groups: dict[tuple[Ranks, int], ReplicaGroup] = {}
    hooks = {e.name for record in records.values() for e in record.of(CommunicationHook)}
    local = any(each == "Join" or "localsgd" in each.lower() for each in hooks)
    for record in records.values():
        for at, each in enumerate(record.of(DataParallelWrapper)):
            names = {record.parameters[number].name for number in each.parameters}
            group = groups.get((each.ranks, at))
            if group is None:
                groups[each.ranks, at] = group = ReplicaGroup(
                    ranks=each.ranks,
                    names=names,
                    because="DistributedDataParallel",
                    averages=local,
                    gradients=not local,
                    buffers={record.parameters[number].name for number in each.buffers},
                    keeps_buffers=each.keeps_buffers,
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


def _find_meshes(records: Mapping[int, ValueRecord]) -> Iterator[ReplicaGroup]:
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
            ranks=ranks,
            names=names,
            because="a DTensor's Replicate",
            gradients=False,
            hint="where a rank computes by itself with a part of a whole DTensor (its heads, its "
            "experts), `to_local(grad_placements=[Partial()])` says that its gradient is a part of "
            "a sum; where each rank has other rows, sum the gradients over the ranks",
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


def _find_by_calls(records: Mapping[int, ValueRecord], model: set[Ranks]) -> Iterator[ReplicaGroup]:
    """Yield the replicas that collectives of gradients and weights show."""
    names: dict[Ranks, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    averages: set[Ranks] = set()
    reduced: set[tuple[Ranks, str]] = set()
    for record, call, tensor in _equalized(records):
        for name in _names_of(record, tensor):
            names[call.ranks][name].add(record.rank)
            if tensor.carries == "gradient":
                reduced.add((call.ranks, name))
        if tensor.carries == "weight" and record.steps and call.at > record.steps[0].at:
            averages.add(call.ranks)
    for ranks, found in names.items():
        own = {
            name
            for name, carrying in found.items()
            if _equal_at_start(records, ranks, name)
            and _is_kept_by_all(records, ranks, name, carrying)
        }
        kept = {name for name in own if (ranks, name) in reduced}
        for each in filter(None, (kept, own - kept)):
            yield ReplicaGroup(
                ranks=ranks,
                names=each,
                because="a collective of its gradient or of its weights",
                averages=ranks in averages,
                gradients=ranks not in averages and _reduces_gradients(records, ranks, model),
                # weights that are sent alone may part and meet again, as in DiLoCo
                surely=each is kept,
            )


def _equalized(
    records: Mapping[int, ValueRecord],
) -> Iterator[tuple[ValueRecord, CarryingCall, CarriedTensor]]:
    """Yield the gradients and weights that a call leaves equal on several ranks."""
    for record in records.values():
        for call in record.calls:
            if len(call.ranks) > 1 and call.operation in EQUALIZING:
                for tensor in call.tensors:
                    if tensor.carries in {"gradient", "weight"}:
                        yield record, call, tensor


def _is_kept_by_all(
    records: Mapping[int, ValueRecord], ranks: Ranks, name: str, carrying: Collection[int]
) -> bool:
    """Whether all of some ranks reduce a parameter by its name, or step it, or none steps it.

    A stage of a pipeline may have built the whole model, and train a part of it alone: what it
    shares with another stage has another name there, and goes into the collective by that. (An
    owner of ZeRO steps alone, but all ranks hand in the gradient by one name.)
    """
    if all(rank in carrying for rank in ranks if rank in records):
        return True
    own = [records[rank] for rank in ranks if rank in records]
    stepped = {
        any(each.names.get(name) in s.gradients for s in find_first_steps(each)) for each in own
    }
    return len(stepped) == 1


def _find_unlike_weights(
    records: Mapping[int, ValueRecord], model: set[Ranks]
) -> Iterator[ReplicaGroup]:
    """Yield parameters whose gradients ranks reduce, and that these ranks do not begin alike."""
    groups: dict[Ranks, dict[str, bool]] = defaultdict(dict)
    carrying: dict[tuple[Ranks, str], set[int]] = defaultdict(set)
    for record, call, tensor in _reductions(records, "allreduce_"):
        if call.op in {"sum", "avg"} and call.ranks not in model:
            for name in _names_of(record, tensor):
                carrying[call.ranks, name].add(record.rank)
                exact = groups[call.ranks].get(name, True)
                groups[call.ranks][name] = exact and (tensor.exact or tensor.joined)
    for ranks, known in groups.items():
        # a rank may have given the name to another model of its own
        names = {n: exact for n, exact in known.items() if carrying[ranks, n] >= {*ranks}}
        unlike = {name for name in names if _differs_at_start(records, ranks, name)}
        random = {*_random_names(records, ranks, names)}
        if not random <= unlike:  # by its values alone, a gradient may be that of another one
            unlike = {name for name in unlike if names[name]}
        if unlike:
            yield ReplicaGroup(
                ranks=ranks, names=unlike, because="an all_reduce of its gradient", gradients=False
            )


def _reductions(
    records: Mapping[int, ValueRecord], operation: str
) -> Iterator[tuple[ValueRecord, CarryingCall, CarriedTensor]]:
    """Yield the gradients that an operation reduces over ranks all of which have a record."""
    for record in records.values():
        for call in record.calls:
            is_one = call.operation == operation and len(call.ranks) > 1
            if is_one and all(rank in records for rank in call.ranks):
                for tensor in call.tensors:
                    if tensor.carries == "gradient":
                        yield record, call, tensor


def _names_of(record: ValueRecord, tensor: CarriedTensor) -> set[str]:
    """Return the names of the parameters that a tensor of a call belongs to."""
    return {record.parameters[n].name for n in tensor.parameters if n in record.parameters}


def _random_names(
    records: Mapping[int, ValueRecord], ranks: Ranks, names: Iterable[str]
) -> Iterator[str]:
    """Yield the names whose first values are not constant on these ranks."""
    for name in names:
        own = [records[rank].parameters.get(records[rank].names.get(name, -1)) for rank in ranks]
        if all(each is not None and not each.constant for each in own):
            yield name


def _differs_at_start(records: Mapping[int, ValueRecord], ranks: Ranks, name: str) -> bool:
    """Whether all of some ranks train a parameter of one shape, and begin with other values."""
    hashes = {rank: find_first_use(records[rank]).get(name) for rank in ranks}
    if None in hashes.values() or len(set(hashes.values())) == 1:
        return False
    own = [records[rank].parameters[records[rank].names[name]] for rank in ranks]
    steps = all(_is_trained(records[rank], records[rank].names[name]) for rank in ranks)
    return steps and len({each.local for each in own}) == 1 and not own[0].placements


def _find_by_optimizers(
    records: Mapping[int, ValueRecord], groups: Sequence[ReplicaGroup], model: set[Ranks]
) -> Iterator[ReplicaGroup]:
    """Yield what an optimizer steps with replicas, and what ranks begin with alike."""
    experts = find_experts(records)
    if any(each.averages for each in groups) or (_exchanges_experts(records) and not experts):
        return
    for group in [each for each in groups if each.gradients and each.ranks not in model]:
        names: set[str] | None = None
        for rank in group.ranks:
            own = find_stepped_with(records[rank], group.names) if rank in records else set()
            names = own if names is None else names & own
        known = {n for each in groups if set(each.ranks) >= set(group.ranks) for n in each.names}
        names = (names or set()) - known - experts
        names = {each for each in names if _is_alike(records, group.ranks, each, _find_beside)}
        if names:
            yield ReplicaGroup(
                ranks=group.ranks,
                names=names,
                because="one optimizer that steps replicas, and one value at the start,",
                surely=False,
            )


def _find_biases(
    records: Mapping[int, ValueRecord], groups: Sequence[ReplicaGroup]
) -> Iterator[ReplicaGroup]:
    """Yield biases of layers whose weights ranks average now and then: they go with these.

    Unless each rank is to have biases of its own, as clients of a federation have.
    """
    for group in groups:
        own = [records[rank] for rank in group.ranks if rank in records]
        known = {name for each in groups if each.ranks == group.ranks for name in each.names}
        layers = {each.rpartition(".")[0] for each in group.names if _is_part_named(each, "weight")}
        names = {
            name
            for name in (own[0].names if group.averages and len(own) == len(group.ranks) else ())
            if _is_part_named(name, "bias")
            and name.rpartition(".")[0] in layers
            and name not in known
            if _equal_at_start(records, group.ranks, name)
            and all(_is_trained(record, record.names[name]) for record in own)
        }
        if names:
            yield ReplicaGroup(
                ranks=group.ranks,
                names=names,
                because="an average of the weight of its layer",
                averages=True,
                gradients=False,
                surely=False,
                intended=True,
            )


def _is_part_named(name: str, part: str) -> bool:
    """Whether a parameter has a name in its module."""
    return name.rpartition(".")[2] == part


def _find_unsharded(records: Mapping[int, ValueRecord]) -> Iterator[ReplicaGroup]:
    """Yield what an optimizer steps with parameters that FSDP2 shards, and that it does not shard.

    A root that was not wrapped leaves them out: nothing reduces their gradients. So of what came
    into a module after it was sharded.
    """
    yield from _find_late(records)
    for ranks in sorted({e.ranks for r in records.values() for e in r.of(UnitGather)}):
        if len(ranks) < 2 or any(rank not in records for rank in ranks):
            continue
        if _exchanges_experts(records):
            continue
        own = []
        for record in (records[rank] for rank in ranks):
            sharded = {e.name for e in record.parameters.values() if e.is_part}
            own.append(find_stepped_with(record, sharded) - sharded)
        names = set.intersection(*own) - find_experts(records)
        names = {each for each in names if _is_alike(records, ranks, each, _find_around)}
        if names:
            yield ReplicaGroup(
                ranks=ranks,
                names=names,
                because="one optimizer that steps it with what FSDP shards",
                surely=False,
            )


def _find_late(records: Mapping[int, ValueRecord]) -> Iterator[ReplicaGroup]:
    """Yield what came into a module after FSDP2 had sharded it."""
    late: dict[Ranks, set[str]] = defaultdict(set)
    for record in records.values():
        for each in record.of(LateParameter):
            if each.owner == "FSDP" and len(each.ranks) > 1:
                late[each.ranks].add(record.parameters[each.parameter].name)
    for ranks, found in late.items():
        alike = {each for each in found if _equal_at_start(records, ranks, each)}
        if alike and not _exchanges_experts(records):
            yield ReplicaGroup(
                ranks=ranks,
                names=alike,
                because="a module that FSDP had sharded before",
                surely=False,
            )


def _exchanges_experts(records: Mapping[int, ValueRecord]) -> bool:
    return any(call.operation.startswith("alltoall") for r in records.values() for call in r.calls)


def find_stepped_with(record: ValueRecord, names: set[str]) -> set[str]:
    """Return the parameters with gradients that an optimizer steps together with others."""
    found: set[str] = set()
    for step in find_first_steps(record):
        own = {record.parameters[n].name for n, each in step.gradients.items() if each is not None}
        if own & names:
            found |= own
    return found


def _is_alike(
    records: Mapping[int, ValueRecord], ranks: Ranks, name: str, find_others: Neighbours
) -> bool:
    """Whether ranks begin with one value of a parameter; a constant follows some random others."""
    if not _equal_at_start(records, ranks, name):
        return False
    record = records[ranks[0]]
    own = record.parameters[record.names[name]]
    if any(each != "R" for each in own.placements):
        return False
    if not own.constant:
        return True
    others = find_others(record, name)
    whole = [each.name for each in others if not each.is_part]
    return bool(others) and all(_equal_at_start(records, ranks, each) for each in whole)


def _find_beside(record: ValueRecord, name: str) -> list[ParameterRecord]:
    """Return the random parameters of the module of one.

    A norm has none: each rank may have one for a domain of its own.
    """
    module = name.rpartition(".")[0]
    own = [e for e in record.parameters.values() if e.name.rpartition(".")[0] == module]
    return [each for each in own if not each.constant]


def _find_around(record: ValueRecord, name: str) -> list[ParameterRecord]:
    """Return the random parameters of the innermost module around one that has some."""
    module = name
    while module:
        module = module.rpartition(".")[0]
        inside = f"{module}." if module else ""
        own = [e for e in record.parameters.values() if e.name.startswith(inside)]
        found = _find_beside(record, f"{inside}*") or [e for e in own if not e.constant]
        if found:
            return found
    return []


def _is_split(
    records: Mapping[int, ValueRecord], ranks: Ranks, reduced: set[tuple[Ranks, str]]
) -> bool:
    """Whether ranks that exchange activations compute one model, each with a part of its weights.

    What they hold whole, in front of the parts or behind them, gets one gradient then that no call
    has carried. The towers of a pair of encoders, peers and the stages of a pipeline have none.
    """
    if {*find_stages(records)} & {*ranks} or any(rank not in records for rank in ranks):
        return False
    own = [records[rank] for rank in ranks]
    if not all(record.steps for record in own):
        return False
    sent = [(e, t) for e in own for c in e.calls for t in c.tensors if t.carries == "gradient"]
    carried = {name for each in sent for name in _names_of(*each)}
    carried |= {name for group, name in reduced if len({*group} & {*ranks}) > 1}
    left = [_find_left(record) for record in own]
    return any(
        len({each[name][0] for each in left}) == 1 and len({*left[0][name]}) > 1
        for name in set.intersection(*map(set, left)) - carried
    )


def _find_left(record: ValueRecord) -> dict[str, list[str]]:
    """Return the hashes of each gradient as backward passes left it before the first steps."""
    found: dict[str, list[str]] = defaultdict(list)
    began = -1
    for step in find_first_steps(record):
        kept = [each for each in record.of(GradientChange) if began < each.at < step.at]
        before = dict(kept[-1].left) if kept else {}
        for number, now in step.gradients.items():
            if (each := before.get(number, now)) is not None:
                found[record.parameters[number].name].append(each)
        began = step.at
    return found


def _find_whole_parts(
    records: Mapping[int, ValueRecord], split: Sequence[Ranks], groups: Sequence[ReplicaGroup]
) -> Iterator[ReplicaGroup]:
    """Yield random weights that tensor-parallel ranks have whole, next to others that they split.

    As the one head of keys and values that several ranks of queries share.
    """
    for ranks in split:
        if _exchanges_experts(records):
            continue
        known = {n for each in groups if len({*each.ranks} & {*ranks}) > 1 for n in each.names}
        names = {
            name
            for name in _random_names(records, ranks, records[ranks[0]].names)
            if name not in known
            and _equal_at_start(records, ranks, name)
            and all(_is_trained(records[rank], records[rank].names[name]) for rank in ranks)
            and _is_next_to_parts(records, ranks, name)
        }
        if names:
            yield ReplicaGroup(
                ranks=ranks,
                names=names,
                because="one random value at the start, next to weights that the ranks split,",
                gradients=False,
                surely=False,
                hint="sum its gradient over the ranks before the optimizer steps: each rank's is "
                "that of its own part of the weights that it works with",
            )


def _find_norms(
    records: Mapping[int, ValueRecord], model: set[Ranks], groups: Sequence[ReplicaGroup]
) -> Iterator[ReplicaGroup]:
    """Yield norms before parts of a model that work on what ranks have gathered.

    Each works on its rank's part of a sequence, and has a gradient of that part alone. A norm is
    a module all of whose parameters are constants at first. (Those in a part are its own.)
    """
    for ranks in sorted(model):
        own = [records[rank] for rank in ranks if rank in records]
        if len(own) < len(ranks) or not all(_sums_gathered(each, ranks) for each in own):
            continue
        known = {n for each in groups if len({*each.ranks} & {*ranks}) > 1 for n in each.names}
        parts = {
            each.parameters[number].name
            for each in own
            for event in each.of(GatheredModule)
            for number in event.parameters
        }
        split = [
            each
            for each in own[0].parameters.values()
            if each.name in parts or _differs_at_start(records, ranks, each.name)
        ]
        names = {
            each.name
            for each in own[0].parameters.values()
            if each.constant and not each.placements and "." in each.name
            if _takes_width(split, each, len(ranks))
            if each.name not in known | parts and not _find_beside(own[0], each.name)
            if _equal_at_start(records, ranks, each.name)
            and all(_is_trained(record, record.names[each.name]) for record in own)
        }
        if names:
            yield ReplicaGroup(
                ranks=ranks,
                names=names,
                because="a norm before what gathers the parts of a sequence",
                gradients=False,
                surely=False,
                hint="sum the gradients of these norms over the ranks before the optimizer steps: "
                "each rank's norm has seen its part of the sequence alone",
            )


def _takes_width(parts: Sequence[ParameterRecord], norm: ParameterRecord, ranks: int) -> bool:
    """Whether the part behind a norm works on features as wide as the norm.

    One that works on the features of all ranks, side by side, is as wide as these.
    """
    width = norm.shape[-1:]
    wide = {*width, *(each * ranks for each in width)}
    near = [each for each in parts if wide & {*each.shape}]
    later = [each for each in near if each.number > norm.number] or near
    return bool(later) and later[0].shape[-1] not in wide - {*width}


def _sums_gathered(record: ValueRecord, ranks: Ranks) -> bool:
    """Whether a forward pass gathers activations over ranks, and sums products of them next."""
    own = [
        call.operation
        for call in record.calls
        if call.ranks == ranks
        and not is_in_backward(record, call)
        and any(each.carries == "activation" and each.size > 1 for each in call.tensors)
    ]
    return any(
        one.startswith(("allgather", "_allgather")) and other in SCATTERING | {"allreduce_"}
        for one, other in pairwise(own)
    )


def is_in_backward(record: ValueRecord, call: CarryingCall) -> bool:
    """Whether a call is made by a backward pass: one has begun since the last one has ended."""
    began = max((e.at for e in record.of(BackwardPass) if e.at < call.at), default=-1)
    ended = max((e.at for e in record.of(BackwardResult) if e.at < call.at), default=-1)
    return began > ended


def _is_next_to_parts(records: Mapping[int, ValueRecord], ranks: Ranks, name: str) -> bool:
    """Whether a module of a weight, or the module around that, has weights of other values."""
    module = name.rpartition(".")[0]
    around = module.rpartition(".")[0] if "." in module else module
    near = [each for each in records[ranks[0]].names if each.rpartition(".")[0] == module]
    if len(near) == 1 and around:
        near = [each for each in records[ranks[0]].names if each.startswith(f"{around}.")]
    return any(_differs_at_start(records, ranks, each) for each in near)


def _find_owners(
    records: Mapping[int, ValueRecord], groups: Sequence[ReplicaGroup]
) -> Iterator[ReplicaGroup]:
    """Yield parameters whose gradients one rank gets, and that all ranks step and begin alike.

    Where each rank steps its own part and sends it (ZeRO), all are equal at their next use.
    """
    found: dict[Ranks, set[str]] = defaultdict(set)
    for record, call, tensor in _reductions(records, "reduce_"):
        found[call.ranks] |= _names_of(record, tensor)
    for ranks, names in found.items():
        if any(each.ranks == ranks for each in groups):
            continue
        own = {
            name
            for name in names
            if _equal_at_start(records, ranks, name)
            and all(_is_trained(records[rank], records[rank].names[name]) for rank in ranks)
        }
        if own:
            yield ReplicaGroup(
                ranks=ranks,
                names=own,
                because="a reduce of its gradient, and a step of every rank,",
                gradients=False,
                only_used=True,
                surely=False,
            )


def find_owners(records: Mapping[int, ValueRecord]) -> Iterator[tuple[Ranks, set[str], set[str]]]:
    """Yield ranks that reduce gradients and step a part of the parameters each, as ZeRO does.

    With the names that they reduce, and those that some rank steps.
    """
    reduced: dict[Ranks, list[set[str]]] = {}
    for ranks in sorted({e.ranks for r in records.values() for e in r.calls if len(e.ranks) > 1}):
        if all(rank in records for rank in ranks):
            reduced[ranks] = [find_reduced(records[rank], ranks) for rank in ranks]
    for event in (e for record in records.values() for e in record.of(DataParallelWrapper)):
        ranks = event.ranks
        if all(rank in records for rank in ranks):
            own = [
                {records[rank].parameters[number].name for number in each.parameters}
                for rank in ranks
                for each in records[rank].of(DataParallelWrapper)
            ]
            reduced.setdefault(ranks, own)
    for ranks, each in reduced.items():
        names = set.intersection(*each)
        parts = [records[rank].stepped & names for rank in ranks]
        stepped = set.union(*parts)
        is_dealt = sum(map(len, parts)) == len(stepped) and sum(map(bool, parts)) > 1
        if is_dealt and all(each.steps for each in (records[rank] for rank in ranks)):
            yield ranks, names, stepped


def find_reduced(record: ValueRecord, ranks: Ranks) -> set[str]:
    """Return the parameters whose gradients a rank hands to sums over some ranks."""
    return {
        name
        for call in record.calls
        if call.ranks == ranks and call.operation in {"allreduce_", "reduce_"}
        for tensor in call.tensors
        if tensor.carries == "gradient"
        for name in _names_of(record, tensor)
    }


def _find_resting_modules(
    records: Mapping[int, ValueRecord], groups: Sequence[ReplicaGroup]
) -> Iterator[ReplicaGroup]:
    """Yield the weights of modules that no optimizer steps and that data-parallel ranks call."""
    for ranks in sorted({each.ranks for each in groups if each.gradients and not each.averages}):
        if any(rank not in records for rank in ranks):
            continue
        names: set[str] | None = None
        for rank in ranks:
            record = records[rank]
            stepped = {n for step in record.steps for n in step.gradients}
            called = {each.root for each in record.forwards}
            own = {
                each.name
                for number, each in record.parameters.items()
                if number not in stepped and each.kind == "parameter" and each.root in called
            }
            names = own if names is None else names & own
        alike = {each for each in names or () if _equal_at_start(records, ranks, each)}
        if alike:
            yield ReplicaGroup(
                ranks=ranks,
                names=alike,
                because="a call by every rank, and one value at the start,",
                gradients=False,
                only_used=True,
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
    hashes = {find_first_use(records[rank]).get(name) for rank in ranks if rank in records}
    return len(hashes) == 1 and None not in hashes


def find_first_use(record: ValueRecord) -> dict[str, str]:
    """Return the hash of each parameter when it was used first: before any step."""
    until = record.steps[0].at if record.steps else float("inf")
    state = {each.name: each.first for each in record.parameters.values()}
    for forward in record.forwards[:1]:
        if forward.at < until:
            for number, details in forward.changed.items():
                state[record.parameters[number].name] = details
    return state


def _find_whole_models(
    records: Mapping[int, ValueRecord], model: set[Ranks], known: Sequence[ReplicaGroup]
) -> Iterator[ReplicaGroup]:
    """Yield ranks that begin with one and the same model, and read or report as data-parallel."""
    world = tuple(sorted(records))
    if len(world) < 2 or model or any(each.averages for each in known):
        return
    if _exchanges_experts(records):
        return
    lines = [*_find_sampled(records)]
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
    yield ReplicaGroup(ranks=world, names=names, because="one model on all ranks", surely=False)


def find_first_steps(record: ValueRecord) -> Iterator[OptimizerStep]:
    """Yield the first three steps of each optimizer: an outer one steps once in many."""
    counts: Counter[int] = Counter()
    for step in record.steps:
        counts[step.optimizer] += 1
        if counts[step.optimizer] <= MOST_STEPS:
            yield step


def _is_trained(record: ValueRecord, number: int) -> bool:
    return any(step.gradients.get(number) is not None for step in find_first_steps(record))


def _find_sampled(records: Mapping[int, ValueRecord]) -> Iterator[Ranks]:
    """Yield the ranks that samplers deal rows to: one each."""
    world = tuple(sorted(records))
    for loader in sorted({number for rank in world for number in records[rank].loaders}):
        details = [records[rank].loaders.get(loader, {}) for rank in world]
        if all(each.get("num_replicas") == len(world) for each in details) and {
            each.get("rank") for each in details
        } == set(range(len(world))):
            yield world
            return


def _reports_losses(records: Mapping[int, ValueRecord], world: Ranks) -> bool:
    """Whether ranks reduce a number over all of them, another one on each, while they train.

    A score may be a mean over folds, or over models of each rank: what they reduce behind the last
    step, or behind a forward pass that trains nothing.
    """
    calls = [
        [
            call
            for call in record.calls
            if call.ranks == world and _is_report(call) and call.at < _find_last_step(record)
            if not _is_score(record, call)
        ]
        for record in records.values()
    ]
    for together in zip(*calls, strict=False):
        values = {call.tensors[0].hash for call in together}
        if len(values) == len(world):
            return True
    return False


def _find_last_step(record: ValueRecord) -> int:
    """Return the event of the last step of an optimizer; -1 where there is none."""
    return max((each.at for each in record.steps), default=-1)


def _is_score(record: ValueRecord, call: CarryingCall) -> bool:
    """Whether the last forward pass before a call trains nothing."""
    before = [each for each in record.forwards if each.at < call.at]
    return bool(before) and not before[-1].training


def _is_report(call: CarryingCall) -> bool:
    return (
        call.operation == "allreduce_"
        and len(call.tensors) == 1
        and call.tensors[0].size == 1
        and call.tensors[0].carries in {"metric", "loss"}
        and "float" in call.tensors[0].dtype
    )


def _find_units(records: Mapping[int, ValueRecord]) -> set[Ranks]:
    """Return the groups that FSDP shards over."""
    units = {e.ranks for r in records.values() for e in r.of(UnitGather)}
    flat = {e.ranks for r in records.values() for e in r.of(FlatWrapper)}
    return units | {ranks for ranks in flat if len(ranks) > 1}


def find_scattering_groups(records: Mapping[int, ValueRecord]) -> set[Ranks]:
    """Return the groups that leave a part of each gradient on each rank."""
    return {
        call.ranks
        for record in records.values()
        for call in record.calls
        if call.operation in SCATTERING
        and len(call.ranks) > 1
        and all(each.carries == "gradient" for each in call.tensors)
    }
