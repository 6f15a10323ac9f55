"""What the rules say of a mistake: its symptom, in words, with every place that it concerns.

A symptom is made of clauses, each with the place in the file that it is about. The message is their
texts, one after the other; with the places behind them in a terminal, and as related information in
an editor:

    the members of world enter `all_reduce` with different reduce ops: rank 1 passes max
    (a.yaml:9), ranks 0 and 2-3 pass sum (a.yaml:7)

`kind` is what makes two symptoms one: the same disagreement is found by each member, and in each
order that is tried, and is to be reported once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch_scenarios.errors import Clause, Mark
from torch_scenarios.expressions.values import Expression, children
from torch_scenarios.model.process import Call
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.operations.base import Collective, Compound, Disagreement, Refusal
from torch_scenarios.reference.matching import (
    CollectiveMatch,
    CollectivePost,
    FunctionCall,
    MessagePost,
    Work,
)
from torch_scenarios.reference.state import InFlightAccess as Access
from torch_scenarios.reference.state import RankState, Run
from torch_scenarios.reference.symptoms import Symptom, clip, list_ranks, odd_first


def name_disagreement(
    match: CollectiveMatch,
    operation: Collective,
    members: Mapping[int, CollectivePost],
    disagreement: Disagreement,
) -> Symptom:
    """Say what the members of a collective disagree on: the fewest ranks first.

    What most ranks pass is taken for what was meant, so that `odd` are the others. Of two ranks
    that differ neither is usual, and the value of the lower rank counts as that.
    """
    values = disagreement.values
    usual = Counter(values.values()).most_common(1)[0][0]
    odd = tuple(match.group.ranks[at] for at in sorted(values) if values[at] != usual)
    parts: dict[str, list[int]] = {}
    for at in sorted(values):
        parts.setdefault(values[at], []).append(match.group.ranks[at])
    places = _places(members, values)

    def tell(value: str) -> tuple[str, Mark | None]:
        verb = "passes" if len(parts[value]) == 1 else "pass"
        return f"{verb} {clip(value)}", places[value]

    return Symptom(
        name=disagreement.diagnosis,
        clauses=(
            Clause(
                f"the members of {match.group.name} enter `{operation.name}` with different "
                f"{disagreement.what}"
            ),
            *odd_first(parts, tell),
        ),
        kind=f"{disagreement.diagnosis}:{match.group.key}:{match.position}",
        index=min(each.call.step.index for each in members.values()),
        iteration=members[min(members)].call.iteration,
        ranks=tuple(sorted(each.rank for each in members.values())),
        odd=odd,
        argument=operation.argument_of(disagreement.what, members[min(members)].entry),
    )


def _places(
    members: Mapping[int, CollectivePost], values: Mapping[int, str]
) -> dict[str, Mark | None]:
    """Return, by value, the place of the first call that has it."""
    places: dict[str, Mark | None] = {}
    for at in sorted(values):
        if values[at] not in places:
            places[values[at]] = members[at].call.mark if at in members else None
    return places


def name_misfit(
    send: MessagePost, receive: MessagePost, name: str, sends: str, receives: str
) -> Symptom:
    """Say how the two ends of a message do not fit.

        rank 0 in `send` sends 4 x float32, and rank 1 in `recv` receives 3 x float32

    `name` is the diagnosis, `sends` and `receives` the verbs with what they have.
    """
    ends = ((send, sends), (receive, receives))
    return Symptom(
        name=name,
        clauses=tuple(
            Clause(f"rank {post.rank} in `{post.call.label}`", post.call.mark, f" {does}")
            for post, does in ends
        ),
        kind=f"{name}:{send.call.step.index}:{receive.call.step.index}",
        index=min(send.call.step.index, receive.call.step.index),
        iteration=send.call.iteration,
        ranks=tuple(sorted((send.rank, receive.rank))),
    )


def name_second_wait(state: RankState, call: Call, work: Work) -> Symptom:
    """Say for which work a rank waits once more.

    The place of the wait is one clause, and that of the call that started the work the other: the
    mistake is mostly between the two, where a loop begins or a handle is used again.
    """
    busy = work.call
    return _make_symptom(
        "double_wait",
        state,
        call,
        Clause(
            f"rank {state.rank} in `{call.label}`",
            call.mark,
            f" waits for `{busy.label}`, for which it has waited before",
        ),
        Clause(f"`{busy.label}` starts here", busy.mark),
    )


def name_destroyed(state: RankState, call: Call, message: str) -> Symptom:
    """Say that a call is on a group that its rank destroyed."""
    clause = Clause(f"rank {state.rank} in `{call.label}`", call.mark, f": {message}")
    kind = f"destroyed:{call.entry.group.key}"
    return _make_symptom("invalid_argument", state, call, clause, kind=kind)


def name_unequal(state: RankState, call: Call, operation: Compound) -> Symptom | None:
    """Say what a step of a model does not compute as one process would; None where it does.

    `nth` counts how often the rank has taken the step: gradients that are not averaged often agree
    in the first step of an optimizer and differ from the second on.
    """
    unequal = operation.unequal(call.entry)
    if unequal is None:
        return None
    nth = len([event for event in state.events if event.label == call.label])
    clause = Clause(
        f"rank {state.rank} in `{call.label}`", call.mark, f", step {nth}: {unequal.prose}"
    )
    kind = f"not_equivalent:{unequal.model}"
    return _make_symptom("not_equivalent", state, call, clause, kind=kind)


def name_touch(state: RankState, asked: FunctionCall, access: Access) -> Symptom:
    """Say that a function may touch a tensor while a step of its rank has it in use."""
    call, user = asked.call, access.work.call
    names = ", ".join(sorted(access.names)) or "a tensor"
    touches = f", and `{asked.function.name}` touches {names} on rank {state.rank}"
    return Symptom(
        name="buffer_race",
        clauses=(
            Clause(f"rank {asked.rank} calls `{call.label}`", call.mark, touches),
            Clause(f"`{user.label}`", user.mark, " may still use it", joint=" while "),
        ),
        index=min(call.step.index, user.step.index),
        iteration=call.iteration,
        ranks=tuple(sorted({asked.rank, state.rank})),
        kind=f"race:{user.step.index}",
    )


def name_failed(asked: FunctionCall, message: str) -> Symptom:
    """Say why torch refuses what a function does."""
    call = asked.call
    where = f"rank {asked.rank} in `{call.label}`"
    return Symptom(
        name="invalid_argument",
        clauses=(Clause(where, call.mark, f": {message}"),),
        kind=f"invalid_argument:{call.step.index}",
        index=call.step.index,
        iteration=call.iteration,
        ranks=(asked.rank,),
    )


def name_refusal(run: Run, state: RankState, call: Call, refusal: Refusal) -> Symptom:
    """Say why torch refuses a call; of a tensor that a rank lacks, which, and who has it.

    torch's own message for a tensor that is None is about a type ("expected Tensor, got NoneType").
    The reader needs another: that `x` is given on rank 0 alone, or is made by a step that this rank
    has not taken yet. So the names that the argument reads are looked through for one without a
    value.
    """
    where = f"rank {state.rank} in `{call.label}`"
    lacking = _find_lacking(run, state, call, refusal)
    if refusal.lacks is None:
        clause = Clause(where, call.mark, f": {refusal.message}")
        return _make_symptom("invalid_argument", state, call, clause, argument=refusal.about)
    if lacking is None:
        words = f": its `{refusal.lacks}` is None, because no value is given for this rank"
        clause = Clause(where, call.mark, words)
        return _make_symptom("invalid_argument", state, call, clause, argument=refusal.lacks)
    what = f"its `{refusal.lacks}`"
    if refusal.lacks == "p2p_op_list":
        what = f"a tensor in {what}"
    words = f": `{lacking}` has no value on this rank, so that {what} is None"
    clause = Clause(where, call.mark, words)
    origin = _origin_of(run, state, call, lacking)
    return _make_symptom("invalid_argument", state, call, clause, origin, argument=refusal.lacks)


def _find_lacking(run: Run, state: RankState, call: Call, refusal: Refusal) -> str | None:
    """Return the first name with no value on the rank, of those that the argument reads."""
    if refusal.lacks is None:
        return None
    known = {*_makers(run), *run.plan.scenario.tensors}
    names = sorted(_names_in(call.step.arguments.get(refusal.lacks)))
    scope = state.process.scope
    return next((name for name in names if name in known and scope.get(name) is None), None)


def _makers(run: Run) -> dict[str, Any]:
    """Return the names that steps give a value to, each with the first such step."""
    return {
        name: step
        for step in reversed(steps_of(run.plan.scenario.steps))
        if step.operation is not None
        for name in step.operation.introduces(step.arguments)
    }


def _origin_of(run: Run, state: RankState, call: Call, name: str) -> Clause:
    """Say where a name gets its value, and on which ranks.

    Of a tensor of `tensors:` the place is its definition. Of another it is the first step that
    makes it: behind the call in the file it is "has not yet taken", before it "does not take",
    since the rank went past.
    """
    tensors = run.plan.scenario.tensors
    if name in tensors:
        holders = [other.rank for other in run.ranks if other.initial.get(name) is not None]
        has = list_ranks(holders) if holders else "no rank"
        verb = "has" if len(holders) < 2 else "have"
        mark = getattr(tensors[name], "mark", None)
        return Clause(f"`{name}`", mark, f" is defined here, and only {has} {verb} it")
    maker = _makers(run)[name]
    does = "has not yet taken" if maker.index >= call.step.index else "does not take"
    words = f" gets its value in this step, which rank {state.rank} {does}"
    return Clause(f"`{name}`", maker.mark, words)


def _names_in(form: Any) -> set[str]:
    """Return the names that a form reads."""
    if isinstance(form, Expression):
        return set(form.names)
    return {name for part in ([] if form is None else children(form)) for name in _names_in(part)}


def _make_symptom(
    name: str,
    state: RankState,
    call: Call,
    *clauses: Clause,
    kind: str | None = None,
    argument: str | None = None,
) -> Symptom:
    """Return a symptom that one call of one rank shows."""
    return Symptom(
        name=name,
        clauses=clauses,
        kind=f"{name}:{call.step.index}" if kind is None else kind,
        index=call.step.index,
        iteration=call.iteration,
        ranks=(state.rank,),
        argument=argument,
    )
