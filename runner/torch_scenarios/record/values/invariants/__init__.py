"""What must agree between ranks, held against what they wrote: one function an invariant.

Each takes the records and the roles of their groups, and yields what is wrong. What rests on
a role that is not known is silent. Of what follows from one another the first alone is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from torch_scenarios.record.values.format.event import (
    DataParallelWrapper,
    DropoutCall,
    LoaderDraw,
    LossScale,
    ModelInput,
    NoiseDraw,
    NormClip,
    OptimizerLoad,
    ReducedChange,
    UnitGather,
    ValueEvent,
)
from torch_scenarios.record.values.invariants.finding import (
    Records,
    ValueFinding,
    find_groups_of_calls,
)
from torch_scenarios.record.values.invariants.gradients import find_unreduced
from torch_scenarios.record.values.invariants.masks import (
    find_augmentations,
    find_masks,
    find_noise,
)
from torch_scenarios.record.values.invariants.metrics import (
    find_means_of_means,
    find_padded_metrics,
)
from torch_scenarios.record.values.invariants.norms import find_local_norms
from torch_scenarios.record.values.invariants.numbers import find_first_nan
from torch_scenarios.record.values.invariants.optimizers import find_late_parameters
from torch_scenarios.record.values.invariants.proofs import find_proved
from torch_scenarios.record.values.invariants.replicas import find_replicas_apart
from torch_scenarios.record.values.invariants.resumption import (
    find_epochs_begun_anew,
    find_foreign_states,
    find_lone_states,
)
from torch_scenarios.record.values.invariants.samples import find_same_order, find_same_samples
from torch_scenarios.record.values.invariants.start import find_early_copies, tell_own_weights
from torch_scenarios.record.values.invariants.sums import (
    find_sums_of_replicas,
    tell_undivided_sums,
)
from torch_scenarios.record.values.invariants.ties import find_ties_apart
from torch_scenarios.record.values.invariants.units import find_crossed_units
from torch_scenarios.record.values.roles import Roles, find_stages


class Judgement(Struct, frozen=True, kw_only=True):
    """What the witness says: its findings, the invariants that were judged, those that were not.

    `hints` say what may be a mistake, and need not be one.
    """

    findings: tuple[ValueFinding, ...]
    judged: tuple[str, ...]
    open: tuple[str, ...]
    hints: tuple[str, ...] = ()


def judge_values(records: Records, roles: Roles) -> Judgement:
    """Return all findings, the errors first, in the order of computing."""
    found: list[ValueFinding] = []
    judged: list[str] = []
    left: list[str] = []
    for code, applies, search in INVARIANTS:
        if not applies(records, roles):
            left.append(code)
            continue
        judged.append(code)
        found += search(records, roles)
    kept = _keep_first_causes(found)
    order = {code: at for at, (code, *_) in enumerate(INVARIANTS)}
    kept.sort(key=lambda each: (not each.error, each.turn, order.get(each.code, 99)))
    hints = (
        () if kept else (*tell_undivided_sums(records, roles), *tell_own_weights(records, roles))
    )
    return Judgement(findings=tuple(kept), judged=tuple(judged), open=tuple(left), hints=hints)


#: what follows from another finding at the same turn or before: consequence -> causes
FOLLOWS = {
    "replicas_differ": {"gradients_differ", "first_nan", "norm_is_local", "units_crossed"}
    | {"touched_in_flight", "result_dropped", "in_place_of_strided"},
    "gradients_differ": {"result_dropped", "touched_in_flight", "norm_is_local", "first_nan"}
    | {"units_crossed", "replicas_differ", "in_place_of_strided", "masks_differ"}
    | {"no_gradient_through"},
    "norm_is_local": {"gradients_differ", "replicas_differ", "first_nan", "result_dropped"},
    "gradient_missing": {"gradients_differ", "replicas_differ", "parameter_not_wrapped"},
    "same_order_each_epoch": {"same_samples"},
    "parameter_not_wrapped": {"gradients_differ"},
    "sum_of_replicas": {"first_nan"},
    "same_mask": {"same_samples", "gradients_differ", "replicas_differ", "masks_differ"},
}


def _keep_first_causes(found: Sequence[ValueFinding]) -> list[ValueFinding]:
    """Return findings without those that follow from another one, and each of a place once."""
    kept = []
    known = set()
    for each in sorted(found, key=lambda each: each.turn):
        what = (each.code, each.name or each.place)
        if what in known:
            continue
        known.add(what)
        causes = [
            other
            for other in found
            if other.code in FOLLOWS.get(each.code, ())
            and (other.error or not each.error)
            and other.turn <= each.turn
            and (each.code not in FOLLOWS.get(other.code, ()) or _precedes(other, each))
        ]
        if not causes:
            kept.append(each)
    return kept


def _precedes(one: ValueFinding, other: ValueFinding) -> bool:
    """Whether a finding is the cause of another one where either may be."""
    if one.turn != other.turn:
        return one.turn < other.turn
    rank = ("replicas_differ", "norm_is_local", "gradients_differ")
    return one.code in rank and rank.index(one.code) > rank.index(other.code)


Applies = Callable[[Records, Roles], bool]
Search = Callable[[Records, Roles], Iterator[ValueFinding]]


def _has(kind: type[ValueEvent]) -> Applies:
    return lambda records, _: any(r.of(kind) for r in records.values())


#: code -> whether it can be judged, and what searches
INVARIANTS: tuple[tuple[str, Applies, Search], ...] = (
    (
        "replicas_differ",
        lambda records, roles: (
            bool(roles.replicas or roles.unlike or roles.model) or _has(LossScale)(records, roles)
        ),
        find_replicas_apart,
    ),
    ("replicas_differ", lambda records, _: len(find_stages(records)) > 1, find_ties_apart),
    ("replicas_differ", _has(DataParallelWrapper), find_early_copies),
    (
        "same_samples",
        lambda records, roles: (
            bool(roles.data) and any(r.batches or r.of(ModelInput) for r in records.values())
        ),
        find_same_samples,
    ),
    (
        "same_samples",
        lambda records, _: any(r.loaders for r in records.values()),
        find_padded_metrics,
    ),
    (
        "metric_mean_of_means",
        lambda records, _: any(not b.trained for r in records.values() for b in r.batches),
        find_means_of_means,
    ),
    (
        "gradients_differ",
        lambda records, roles: bool(roles.replicas) or _has(UnitGather)(records, roles),
        find_unreduced,
    ),
    (
        "same_order_each_epoch",
        lambda records, _: any(r.loaders for r in records.values()),
        find_same_order,
    ),
    (
        "units_crossed",
        lambda records, roles: (
            bool(find_groups_of_calls(records)) or _has(UnitGather)(records, roles)
        ),
        find_crossed_units,
    ),
    (
        "sum_of_replicas",
        lambda records, roles: bool(roles.data or find_groups_of_calls(records)),
        find_sums_of_replicas,
    ),
    (
        "no_gradient_through",
        lambda records, _: any(r.calls for r in records.values()),
        find_proved,
    ),
    (
        "norm_is_local",
        lambda records, roles: (
            any(_has(kind)(records, roles) for kind in (NormClip, UnitGather, ReducedChange))
            or bool(roles.model)
        ),
        find_local_norms,
    ),
    ("resumes_otherwise", _has(OptimizerLoad), find_epochs_begun_anew),
    ("resumes_otherwise", _has(OptimizerLoad), find_foreign_states),
    ("resumes_otherwise", _has(OptimizerLoad), find_lone_states),
    ("masks_differ", _has(DropoutCall), find_masks),
    ("same_mask", _has(NoiseDraw), find_noise),
    ("same_mask", _has(LoaderDraw), find_augmentations),
    ("first_nan", lambda records, _: any(r.forwards for r in records.values()), find_first_nan),
    (
        "parameter_not_wrapped",
        lambda records, _: any(r.steps for r in records.values()),
        find_late_parameters,
    ),
)
