"""Which capabilities a program uses (:mod:`torch_scenarios.model.needs`), from what its ranks call.

The program is walked once, and every call that starts work is looked at with its arguments: what
ranks compute for themselves needs no backend, and a step that no rank takes needs nothing. Two
words ask for more than one call: messages cross where a host that connects at the first message
waits for good, and a rank is to be broken off where it is predicted to hang.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.values import PerRank
from torch_scenarios.limits import DEFAULT, Limits, open_account
from torch_scenarios.model.needs import CAPABILITIES, OPEN, OPEN_WITH_MESSAGES, Needs, StatedNeed
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Call
from torch_scenarios.model.scenario import Scenario, Step, steps_of
from torch_scenarios.model.trace import Trace
from torch_scenarios.model.traits import Traits
from torch_scenarios.operations.base import (
    Collective,
    Compound,
    Entry,
    GroupCreation,
    PointToPoint,
    PremulSum,
    RemoteCall,
)
from torch_scenarios.reference.backends import hosts_of
from torch_scenarios.reference.schedules import ExaminedRun, rest
from torch_scenarios.reference.semantics import Semantics
from torch_scenarios.vocabulary import WORLD

#: what a call raises that waited in vain
IN_VAIN = frozenset({"timeout", "peer_lost", "aborted"})
#: a backend whose hosts wait at the first message between two ranks, and nowhere else
CONNECTING = Traits(connects_late=True)

#: operations -> the word that each is
WORDS = {
    "batch_isend_irecv": "batch",
    "all_reduce_coalesced": "coalesced",
    "all_gather_coalesced": "coalesced",
    "monitored_barrier": "monitored_barrier",
}
#: how much each rank sends to each other one, and gets
SPLITS = ("input_split_sizes", "output_split_sizes")


def derive(plan: Plan, predicted: Trace, limits: Limits = DEFAULT) -> Needs:
    """Return what a case needs: what its program uses, and what its file states beside that.

    Raises ScenarioError where a bound is exceeded.
    """
    found: dict[str, set[int]] = defaultdict(set)
    scenario = plan.scenario
    with open_account(limits):
        run = rest(plan, numpy_arrays(limits), Semantics(), limits=limits)
        for state in run.simulation.ranks:
            for call in (work.call for work in state.works):
                for word in words_of(call):
                    found[word].add(call.step.index)
        behind = {
            word
            for state in run.simulation.ranks
            for call in run.futures.find_later(state.rank)
            if call.operation is not None
            for word in words_of(call)
        }
        if _crosses(run, found):
            found["crossing_messages"] |= found["p2p"]
        run.simulation.dissolve()
    for word, indexes in _find_file_needs(scenario):
        found[word] |= indexes
    for word, index in _find_end_needs(predicted):
        found[word].add(index)
    return _add_stated(scenario, found, behind)


def _add_stated(scenario: Scenario, found: Mapping[str, set[int]], behind: set[str]) -> Needs:
    """Add what the file states, apart from what the program is known not to use."""
    steps = {word: frozenset(found[word]) for word in CAPABILITIES if word in found}
    possible = {*steps, *behind, *OPEN}
    possible |= OPEN_WITH_MESSAGES if "p2p" in possible else frozenset()
    refuted: list[StatedNeed] = []
    for stated in scenario.needs:
        if stated.word in possible or scenario.truncated:
            steps.setdefault(stated.word, frozenset())
        else:
            refuted.append(stated)
    return Needs(steps=steps, refuted=tuple(refuted))


def words_of(call: Call) -> Iterator[str]:
    """Yield the words of one call that starts work; one may come twice."""
    operation, entry = call.operation, call.entry
    assert operation is not None
    if isinstance(operation, RemoteCall):
        yield "rpc"  # no process group has a part in it
        return
    if operation.name in WORDS:
        yield WORDS[operation.name]
    if operation.takes_objects:
        yield "objects"
    if call.asynchronous:
        yield "async"
    if isinstance(operation, GroupCreation) or entry.group.name != WORLD:
        yield "subgroups"
    if isinstance(operation, PointToPoint):
        yield from _find_message_needs(operation, entry)
    yield from _find_argument_needs(entry)
    if isinstance(operation, Collective) and operation.name not in WORDS and _is_uneven(entry):
        yield "uneven_split"


def _find_message_needs(operation: PointToPoint, entry: Entry) -> Iterator[str]:
    yield "p2p"
    for message in operation.messages(entry):
        if message.tag:
            yield "tags"
        if message.peer is None:
            yield "any_source"


def _find_argument_needs(entry: Entry) -> Iterator[str]:
    op = entry.arguments.get("op")
    if isinstance(op, PremulSum):
        yield "premul_sum"
    elif op == "avg":
        yield "avg"
    for tensor in _tensors(list(entry.arguments.values())):
        name = tensor.dtype.name
        word = next((word for word in CAPABILITIES if name.startswith(word)), None)
        if word is not None:
            yield word


def _tensors(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the tensors in an argument: one, a list of them, the items of a batch."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))


def _is_uneven(entry: Entry) -> bool:
    """Return whether the parts that a member sends, or gets, differ in size."""
    sizes = [entry.arguments.get(name) for name in SPLITS]
    if any(len(set(each)) > 1 for each in sizes if each is not None):
        return True
    return any(
        len({each.size for each in value if isinstance(each, np.ndarray)}) > 1
        for name, value in entry.arguments.items()
        if isinstance(value, list) and name not in SPLITS
    )


def _crosses(run: ExaminedRun, found: Mapping[str, set[int]]) -> bool:
    """Return whether a host that waits at a first message for its receive waits for good.

    Not asked of a program that does not come to its end, nor where a receive names no sender. What
    lies beyond a truncated program may hold the receive, or not.
    """
    ends = run.outcome == "completes"
    plain = "p2p" in found and "any_source" not in found
    return ends and plain and bool(hosts_of(run, CONNECTING).standing)


def _find_file_needs(scenario: Scenario) -> Iterator[tuple[str, frozenset[int]]]:
    """Yield what is there before a rank takes its first step, or is made of several calls."""
    if scenario.groups:
        yield "subgroups", frozenset()
    for step in steps_of(scenario.steps):
        operation = step.operation
        if isinstance(operation, Compound) and operation.checkpoints:
            yield "objects", frozenset({step.index})
        if _states_in_vain(step):
            yield "timeouts", frozenset({step.index})


def _states_in_vain(step: Step) -> bool:
    """Return whether a step is expected to raise what only a call that waited in vain raises."""
    stated = None if step.expect is None else step.expect.raises
    if isinstance(stated, PerRank):
        specs = [*(spec for _, spec in stated.branches), stated.otherwise]
    else:
        specs = [stated]
    return any(spec and spec.kinds and IN_VAIN.issuperset(spec.kinds) for spec in specs)


def _find_end_needs(predicted: Trace) -> Iterator[tuple[str, int]]:
    """Yield what a backend must do for the program to end as it is predicted."""
    for rank in predicted.ranks:
        event = rank.events[-1] if len(rank.events) else None
        if event is not None and rank.ending == "blocked":
            yield "abort", event.index
        for each in rank.own:
            if each.failure is not None and IN_VAIN & set(each.failure.kinds):
                yield "timeouts", each.index
