"""Parameters that an optimizer or a wrapper does not have."""

from __future__ import annotations

from collections.abc import Iterator

from torch_scenarios.record.values.invariants.finding import Records, ValueFinding, list_names
from torch_scenarios.record.values.roles import Roles


def find_late_parameters(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield parameters that were made after DDP or the optimizer took its list."""
    del roles
    yield from _idle_optimizers(records)
    for rank, record in records.items():
        late = [*record.of_kind("late")]
        if not late:
            continue
        names = [record.parameters[each.details[0]].name for each in late]
        were = "were" if len(names) > 1 else "was"
        who = "the optimizer" if late[0].details[1] == "optimizer" else "DistributedDataParallel"
        place = late[0].details[2]
        yield ValueFinding(
            code="parameter_not_wrapped",
            message=f"{list_names(names)} {were} made after {who} took its list, and is not in it",
            ranks=tuple(sorted(records)),
            rank=rank,
            place=place if place >= 0 else record.parameters[late[0].details[0]].place,
            hint="make the whole model first, then wrap it, then make the optimizer",
            error=False,
            name=names[0],
        )
        return


def _idle_optimizers(records: Records) -> Iterator[ValueFinding]:
    """Yield an optimizer none of whose parameters ever has a gradient, though a loss has them."""
    for rank, record in records.items():
        for number in sorted({each.optimizer for each in record.steps}):
            own = [each for each in record.steps if each.optimizer == number]
            names = {n for each in own for n in each.gradients}
            backward = {e.details[0] for e in record.of_kind("bw")}
            is_idle = all(value is None for each in own for value in each.gradients.values())
            if not is_idle or len(own) < 2 or not names or len(backward) < 2:
                continue
            if len({step.optimizer for step in record.steps}) > 1:
                continue
            yield ValueFinding(
                code="parameter_not_wrapped",
                message=f"no parameter of the optimizer has a gradient at any of {len(own)} steps, "
                "so nothing is trained: its parameters are not those of the model that is called",
                ranks=tuple(sorted(records)),
                rank=rank,
                place=own[0].place,
                hint="make the optimizer after the model is wrapped or sharded, from "
                "`model.parameters()`",
            )
            return
