"""Steps that say nothing about the program: a warning for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.forms import Constant, Expression
from runner.operations.base import GroupCreation
from runner.trace import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.scenario import Step
    from runner.trace import Trace
    from runner.verdict.case import Case


def warn_of_steps(case: Case) -> None:
    """Warn of each step that no rank takes, or whose group no step before it creates.

    A loop without rounds is no step of nobody: in another world it may have some. Nor is a step for
    which a tensor decides who takes it, nor what comes after the point at which ranks end or stand.
    What is expected beside a step has its own note.
    """
    if case.prediction.outcome != "completes":
        return
    steps = case.order.steps
    acting = {index for index, step in steps.items() if step.operation is not None}
    taken = _taken(case.prediction, acting)
    if case.run is not None:
        taken |= _taken(case.run, acting - taken)
    rounds = {loop.index for index in taken for loop in case.order.loops[index]}
    created = _created(case)
    for index in sorted(acting):
        step = steps[index]
        missing = _missing_group(case, step, created)
        if missing is not None:
            case.warn(
                "group_before_creation",
                f"{_named(step)} uses the group {missing}, which no step before it creates",
                step.mark,
                "move the `new_group` before the step",
            )
        elif index in taken or _has_note(step) or _asks_data(case, step):
            continue
        elif all(loop.index in rounds for loop in case.order.loops[index]):
            case.warn(
                "step_without_ranks",
                f"no rank takes {_named(step)}",
                step.mark,
                "change its `ranks:` or its group, or remove the step",
            )


def _taken(trace: Trace, wanted: set[int]) -> set[int]:
    """Return which of the wanted steps some rank took; looks no further than needed."""
    taken: set[int] = set()
    for index in _indexes(trace):
        if index in wanted and index not in taken:
            taken.add(index)
            if len(taken) == len(wanted):
                break
    return taken


def _indexes(trace: Trace) -> Iterator[int]:
    for rank in trace.ranks:
        if isinstance(rank.events, Recorded):
            yield from (index for index, _ in rank.events.program())
            return
        yield from (event.index for event in rank.events)


def _created(case: Case) -> dict[str, list[Step]]:
    """Return the steps that create groups, by the name that they give."""
    found: dict[str, list[Step]] = {}
    for step in case.order.steps.values():
        if isinstance(step.operation, GroupCreation):
            for param in step.operation.params:
                name = step.arguments.get(param.name)
                if param.kind == "name" and isinstance(name, Constant):
                    found.setdefault(str(name.value), []).append(step)
    return found


def _missing_group(case: Case, step: Step, created: dict[str, list[Step]]) -> str | None:
    """Return the name of a step's group where only later steps create it, and no loop goes back."""
    group = step.arguments.get("group")
    if not isinstance(group, Constant) or group.value is None:
        return None
    name, loops = str(group.value), case.order.loops
    if name in case.predicted.plan.names or name not in created:
        return None
    around = {loop.index for loop in loops[step.index]}
    before = any(
        creation.index < step.index or any(loop.index in around for loop in loops[creation.index])
        for creation in created[name]
    )
    return None if before else name


def _asks_data(case: Case, step: Step) -> bool:
    """Return whether what the ranks hold decides which of them take the step."""
    loops = case.order.loops[step.index]
    chosen = [each.ranks.form for each in (*loops, step) if each.ranks is not None]
    held = {*case.scenario.tensors, *case.scenario.objects, *case.predicted.plan.introduced}
    return any(isinstance(form, Expression) and form.names & held for form in chosen)


def _has_note(step: Step) -> bool:
    return step.expect is not None and bool(step.expect.values)


def _named(step: Step) -> str:
    assert step.operation is not None  # noqa: S101 -- only steps that do something come here
    return f"`{step.name or step.operation.name}`"
