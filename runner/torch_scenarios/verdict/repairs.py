"""What to change in a file so that a diagnosis is gone, where one edit is plainly meant.

A `wait` that is missing, a root that was counted inside of the group, a message without the ranks
that send and receive it. Each is built from the file's own text, and None where that is written in
a way that no edit fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import yaml

from torch_scenarios.errors import Edit, Repair, Source
from torch_scenarios.expressions.values import Constant, expressions_in
from torch_scenarios.model.scenario import Scenario, Step, steps_of
from torch_scenarios.model.trace import Diagnosis
from torch_scenarios.operations.base import Waiting
from torch_scenarios.source.edit import Span, spans
from torch_scenarios.source.repairs import append_key, extent, insert_step, rename_key, step_of
from torch_scenarios.verdict.witnesses import Case

#: a longer file is not searched for an edit
_MOST_TEXT = 200_000
#: an operation whose peer is a rank -> how that argument is called
_PEERS = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}


def repair_of(case: Case, diagnosis: Diagnosis) -> Repair | None:
    """Return the edit that takes a diagnosis away; None where none is plainly meant.

    None as well where the step is written in a used file: to change that changes all that use it.
    """
    step = case.order.steps.get(diagnosis.index)
    make = _MADE.get(diagnosis.name)
    source = case.scenario.source
    if make is None or step is None or step.mark is None or len(source.text) > _MOST_TEXT:
        return None
    if step.mark.source.path != source.path:
        return None
    try:
        root = spans(source.text)
    except yaml.YAMLError:
        return None
    return make(case, diagnosis, step, root)


def _line(source: Source, offset: int) -> int:
    return source.place(offset)[0]


# `missing_wait`: before the first step that touches what the work moves, else at the end.


def _wait(case: Case, diagnosis: Diagnosis, step: Step, root: Span) -> Repair | None:
    """Return the repair of work that no one waits for: a `wait` before a step touches its tensors.

    - isend: {tensor: x, dst: 1}          - isend: {tensor: x, dst: 1}
    - compute: {x: "x + 1"}                 as: work
                                          - wait: work
                                          - compute: {x: "x + 1"}
    """
    scenario = case.scenario
    source, text = scenario.source, scenario.source.text
    found = None if step.mark is None else step_of(root, step.mark)
    if found is None or (step.handle is not None and _waits_for(scenario, step.handle)):
        return None
    parent, number = found
    handle = step.handle or _find_free_name(scenario)
    edits: list[Edit | None] = []
    if step.handle is None:
        edits.append(append_key(text, parent.items[number], f"as: {handle}"))
    moved = _find_moved(step)
    later = next(
        (
            at
            for at, item in enumerate(parent.items[number + 1 :], number + 1)
            if moved and _touches(text[item.start : item.end], moved)
        ),
        len(parent.items),
    )
    inserted = insert_step(text, parent, later, f"wait: {handle}")
    edits.append(inserted)
    made = [edit for edit in edits if edit is not None]
    if inserted is None or len(made) < len(edits):
        return None
    if later < len(parent.items):
        where = f"before line {parent.items[later].place[0]}"
    else:
        where = f"after line {_line(source, parent.items[-1].end - 1)}"
    named = "" if step.handle is not None else f"add `as: {handle}`, and "
    return Repair(
        title=f"{named}insert `- wait: {handle}` {where}", source=source, edits=tuple(made)
    )


def _waits_for(scenario: Scenario, handle: str) -> bool:
    """Return whether some step waits for a handle, or may: then another `wait` is one too many."""
    for step in steps_of(scenario.steps):
        if isinstance(step.operation, Waiting):
            words = set(re.findall(r"\w+", str(step.arguments.get("handles"))))
            if handle in words:
                return True
    return False


def _find_free_name(scenario: Scenario) -> str:
    """Return a name for work that the file does not use."""
    taken = set(re.findall(r"\w+", scenario.source.text))
    return next(
        name for name in ("work", *(f"work_{n}" for n in range(2, 100_000))) if name not in taken
    )


def _find_moved(step: Step) -> frozenset[str]:
    """Return the names that the arguments of a step read."""
    forms: Iterable[object] = step.arguments.values()
    return frozenset().union(*(each.names for form in forms for each in expressions_in(form)))


def _touches(text: str, names: frozenset[str]) -> bool:
    """Whether the text of a step has one of some names in it, also within an expression."""
    return any(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text) for name in names)


# `invalid_argument`: a root or a peer counted inside of the group, or a message to oneself.


def _argument(case: Case, diagnosis: Diagnosis, step: Step, root: Span) -> Repair | None:
    """Return the repair of a root or a peer that is not in the group, or is the rank itself."""
    name = diagnosis.argument
    form = step.arguments.get(name or "")
    if name not in {"src", "dst"} or not isinstance(form, Constant):
        return None
    rank = form.value
    if not isinstance(rank, int) or isinstance(rank, bool):
        return None
    if rank in diagnosis.ranks:
        return _select_ranks(case, step, root)
    return _repair_group_rank(case, step, root, name, rank) or _member(case, step, form, rank)


def _members(case: Case, step: Step) -> tuple[int, ...]:
    """Return the ranks of the group that a step names; none where it names several, or none."""
    group = step.arguments.get("group")
    named = group.value if isinstance(group, Constant) else None
    ranks = {each.ranks for each in case.predicted.plan.names.get(str(named), ())}
    return ranks.pop() if len(ranks) == 1 else ()


def _repair_group_rank(case: Case, step: Step, root: Span, name: str, rank: int) -> Repair | None:
    """Return the repair of a rank of the world that was counted inside of the group."""
    members = _members(case, step)
    found = None if step.mark is None else step_of(root, step.mark)
    if found is None or step.operation is None or not 0 <= rank < len(members):
        return None
    parent, number = found
    source, said = case.scenario.source, f"group_{name}"
    calls = (step.operation.name, *step.operation.aliases)
    named = (rename_key(source, parent.items[number], call, name, said) for call in calls)
    edit = next((each for each in named if each is not None), None)
    if edit is None:
        return None
    title = f"write `{said}: {rank}`, which is global rank {members[rank]}"
    return Repair(title=title, source=source, edits=(edit,))


def _member(case: Case, step: Step, form: Constant, rank: int) -> Repair | None:
    """Return the repair that names a rank of the group: sure where it has a single one."""
    members = _members(case, step)
    covered = extent(form.mark) if form.mark is not None else None
    if not members or rank in members or covered is None:
        return None
    edit = Edit(start=covered[0], end=covered[1], text=str(members[0]))
    title = f"write `{members[0]}`, a rank of the group"
    return Repair(title=title, source=case.scenario.source, edits=(edit,), sure=len(members) == 1)


def _select_ranks(case: Case, step: Step, root: Span) -> Repair | None:
    """Return the repair of a message that every rank sends, also the one that is to receive it.

    Both sides get their `ranks`, where a step without them receives it, or the world is of two.
    """
    source, steps = case.scenario.source, steps_of(case.scenario.steps)
    peer = _peer(step)
    if step.ranks is not None or peer is None:
        return None
    sends = step.operation is not None and _PEERS[step.operation.name] == "dst"
    others = [
        each
        for each in steps
        if each.ranks is None
        and (theirs := _peer(each)) is not None
        and theirs != peer
        and each.operation is not None
        and (_PEERS[each.operation.name] == "dst") != sends
    ]
    if len(others) > 1 or (not others and case.scenario.world_size != 2):
        return None
    own = _peer(others[0]) if others else 1 - peer
    asked = [(step, own), *((each, peer) for each in others)]
    edits, titles = [], []
    for each, rank in asked:
        found = None if each.mark is None else step_of(root, each.mark)
        edit = (
            None
            if found is None
            else append_key(source.text, found[0].items[found[1]], f"ranks: {rank}")
        )
        if edit is None or each.mark is None:
            return None
        edits.append(edit)
        titles.append((each.mark.line, f"`ranks: {rank}` to the step in line {each.mark.line}"))
    said = " and ".join(title for _, title in sorted(titles))
    return Repair(title=f"add {said}", source=source, edits=tuple(edits))


def _peer(step: Step) -> int | None:
    """Return the rank that a message of one step goes to, or comes from; None where it varies."""
    role = _PEERS.get(step.operation.name) if step.operation is not None else None
    form = step.arguments.get(role or "")
    if not isinstance(form, Constant) or isinstance(form.value, bool):
        return None
    return form.value if isinstance(form.value, int) else None


_MADE: dict[str, Callable[[Case, Diagnosis, Step, Span], Repair | None]] = {
    "missing_wait": _wait,
    "invalid_argument": _argument,
}
