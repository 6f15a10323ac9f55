"""Metrics of an evaluation: each row counts once, and as much as any other.

A DistributedSampler pads a dataset to a multiple of the ranks: an evaluation that sums hits and
rows counts some rows twice, which shows where the sum that is reduced is the padded length. And
the mean over ranks of a share of own rows (`correct / rows`, then `all_reduce` by AVG) weighs a
row of a rank with fewer rows more. Quiet are evaluations of datasets that need no padding, shares
of even rows, and ranks that reduce their counts of rows as well: they weigh what they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch_scenarios.record.values.format.record import CarryingCall, ValueRecord
from torch_scenarios.record.values.invariants.finding import (
    Records,
    ValueFinding,
    find_groups_of_calls,
    join_calls,
)
from torch_scenarios.record.values.roles import Roles


def find_padded_metrics(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield evaluations whose metric counts the rows that a sampler adds twice."""
    del roles
    for rank, record in records.items():
        for loader, about in record.loaders.items():
            size, total = about["rows"], about.get("total_size", 0)
            if size <= 0 or total <= size or about.get("drop_last"):
                continue
            evaluated = [b for b in record.batches if b.loader == loader and not b.trained]
            if not evaluated or any(b.loader == loader and b.trained for b in record.batches):
                continue
            last = evaluated[-1]
            sums = [
                call
                for call in record.calls
                if call.at > evaluated[0].at and call.operation == "allreduce_"
            ]
            for call in sums:
                values = [v for each in call.tensors for v in (*each.sums, each.sum)]
                if any(value is not None and value == total for value in values):
                    yield ValueFinding(
                        code="same_samples",
                        message=f"{total - size} of {size} rows count twice in the metric: the "
                        f"sampler pads the dataset to {total} rows, and that many are summed",
                        ranks=tuple(sorted(records)),
                        rank=rank,
                        place=call.place,
                        hint="evaluate without padding: give each rank "
                        "`range(rank, len(dataset), world_size)`, or drop the rows that were added",
                        turn=10**6,
                    )
                    return
            del last


def find_means_of_means(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield a share that ranks reduce of what each has evaluated, where these are uneven rows.

    A share of a rank's own rows is a whole number of them over their count. Where counts, or sums,
    are reduced too, ranks weigh what they have.
    """
    del roles
    for ranks in find_groups_of_calls(records):
        for met in join_calls(records, ranks, _is_number):
            rows = {r: _rows_evaluated(records[r], call) for r, call in met.items()}
            values = {r: call.tensors[0].value for r, call in met.items()}
            uneven = len(met) == len(ranks) and len(set(rows.values())) > 1
            if not uneven or not all(map(_is_share, values.values(), rows.values())):
                continue
            if set(values.values()) <= {0.0, 1.0} or _weighs(records, met, rows):
                continue
            rank, call = next(iter(met.items()))
            counts = ", ".join(f"{n} on rank {r}" for r, n in [*rows.items()][:4])
            yield ValueFinding(
                code="metric_mean_of_means",
                message="each rank reduces a share of its own rows, and these are uneven "
                f"({counts}): a row of a rank with fewer rows counts more",
                ranks=ranks,
                rank=rank,
                place=call.place,
                hint="reduce the count of what is right and the count of rows, and divide after: "
                "`dist.all_reduce(torch.tensor([right, rows]))`",
                turn=call.turn,
            )
            return


def _is_number(call: CarryingCall) -> bool:
    """Whether a call sums one number that no gradient goes through."""
    tensor = call.tensors[0] if len(call.tensors) == 1 else None
    is_one = tensor is not None and tensor.value is not None and "float" in tensor.dtype
    return is_one and call.operation in {"allreduce_", "reduce_"} and call.op in {"sum", "avg"}


def _rows_evaluated(record: ValueRecord, call: CarryingCall) -> int:
    """Return the rows of the last loader that a rank has read through since its last step."""
    began = max((each.at for each in record.steps if each.at < call.at), default=-1)
    own = [b for b in record.batches if began < b.at < call.at and not b.trained]
    last = own[-1] if own else None
    return sum(
        len(each.rows)
        for each in own
        if last is not None and (each.loader, each.epoch) == (last.loader, last.epoch)
    )


def _is_share(value: float | None, rows: int) -> bool:
    """Whether a number is some of so many rows over all of them, within float32."""
    if value is None or not rows or not 0.0 <= value <= 1.0:
        return False
    return abs(value * rows - round(value * rows)) <= 1e-6 * max(rows, 1)


def _weighs(records: Records, met: Mapping[int, CarryingCall], rows: Mapping[int, int]) -> bool:
    """Whether every rank hands its count of rows to another call between the same two steps."""

    def counts(rank: int, call: CarryingCall) -> bool:
        record = records[rank]
        began = max((each.at for each in record.steps if each.at < call.at), default=-1)
        ended = min((each.at for each in record.steps if each.at > call.at), default=float("inf"))
        return any(
            each.value == rows[rank]
            for other in record.calls
            if other is not call and began < other.at < ended
            for each in other.tensors
        )

    return all(counts(rank, call) for rank, call in met.items())
