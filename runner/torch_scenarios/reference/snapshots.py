"""Where all ranks of a run stand before a choice, so that two runs can be found in one state.

From equal states everything goes on alike: two orders of arrival that lead to the same state are
one from there on. What no later step reads is no part of a state: a buffer that is filled anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.expressions.values import Expression, Undefined, expressions_in
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import Expectation, Step, steps_of
from torch_scenarios.model.tolerance import TOLERANCES
from torch_scenarios.operations.base import PointToPoint
from torch_scenarios.reference.matching import FunctionCall
from torch_scenarios.reference.state import RankState, Run, count_held_bytes, frozen

#: a name on a rank
Place = tuple[int, str]
#: what a rank reads and then writes whole, in the order of the run
Access = tuple[frozenset[Place], frozenset[Place]]

#: units of work of a rank in a state, and of each event and each work that it has behind it
RANK_WORK, PAST_WORK = 10_000, 60

#: bytes of a value in a state, small as it may be
PLACE_BYTES = 400

NOTHING: frozenset[Place] = frozenset()


class Snapshot(Struct, frozen=True, kw_only=True):
    """A state: `control` is which rank is where, `held` what the names hold, `beside` all else.

    Two orders of arrival that lead to the same state are explored once (decision 36). A rank 0 that
    receives from 8 others, from anyone, and adds what comes, has 8! = 40,320 orders. After each
    receive only which ranks are left matters, and there are 2^8 = 256 such sets.

    `control` is compared by hash, the values one by one and within the tolerance of their dtype:
    sums of the same terms in two orders are one state, although their last bits differ.

    >>> one = Snapshot(control=(), held={(0, "x"): 1, (0, "y"): 2}, beside={})
    >>> two = Snapshot(control=(), held={(0, "x"): 1, (0, "y"): 3}, beside={})
    >>> one.matches(two, live=[(0, "x")]), one.matches(two, live=[(0, "x"), (0, "y")])
    (True, False)

    `live` are the places that a later step reads: y may differ where it is filled anew before that.
    """

    control: Hashable
    held: Mapping[Place, Any]
    beside: Mapping[Hashable, Any]

    def matches(self, other: Snapshot, live: Iterable[Place]) -> bool:
        """Whether two states with the same control are the same in all that is read later."""
        return (
            self.beside.keys() == other.beside.keys()
            and all(equal(value, other.beside[key]) for key, value in self.beside.items())
            and all(equal(self.held.get(key), other.held.get(key)) for key in live)
        )

    def of(self, live: Iterable[Place]) -> Snapshot:
        """Return the state with no more of what is held than is read later."""
        return replace(self, held={key: self.held[key] for key in live if key in self.held})


# What is in a state, and what is not.
#
# In it is all that can make a difference later: where each rank is, what it holds, which works are
# under way with what they have brought, which messages and collectives are incomplete, the clocks.
# Left out is how the run came there: the numbers of messages, which rank came first to a mailbox,
# the events that were noted. If one of these were in it, no two orders would ever be in one state,
# and the search would be as long as without states. If one thing were left out that matters, a
# wrong order would be taken for one that was seen, and a race would be missed: so in doubt it is
# in.
def snapshot_of(run: Run) -> Snapshot:
    """Return the state in which a run waits for a choice, charged to the account of the case."""
    past = sum(len(state.events) + len(state.works) for state in run.ranks)
    work = RANK_WORK * len(run.ranks) + PAST_WORK * past
    run.ledger.account.spend(work)
    held: dict[Place, Any] = {}
    beside: dict[Hashable, Any] = {}
    # who came first to a mailbox, to a collective or to a creation is no part of a state: what a
    # receive may take is asked by rank, and of one rank's calls the numbers tell the order
    control = [
        tuple(_rank(run, state, held, beside) for state in run.ranks),
        frozenset(_messages(run, beside)),
        frozenset(_matches(run, beside)),
        frozenset(
            (each.rank, each.series, each.ordinal, each.group.ranks)
            for each in run.creating.values()
        ),
    ]
    kept = sum(
        PLACE_BYTES + count_held_bytes(value) for each in (held, beside) for value in each.values()
    )
    run.ledger.keep_bytes(kept + count_key_bytes(control), None)
    return Snapshot(control=tuple(control), held=held, beside=beside)


#: bytes of a tuple or a set, and of each thing in it
HOLDER_BYTES, SLOT_BYTES = 56, 24


def count_key_bytes(control: Any) -> int:
    """Return about how many bytes nested tuples take; what they name is held elsewhere."""
    if not isinstance(control, (tuple, list, frozenset)):
        return 0
    return HOLDER_BYTES + SLOT_BYTES * len(control) + sum(map(count_key_bytes, control))


def _rank(
    run: Run,
    state: RankState,
    held: dict[Place, Any],
    beside: dict[Hashable, Any],
) -> Hashable:
    """Return what tells a rank's state from another; what it holds goes into the other two."""
    process, constants = state.process, run.plan.scenario.constants
    for name, value in process.scope.items():
        # functions and operators have names that no author can write
        if name.isidentifier() and name != "__builtins__" and name not in constants:
            held[state.rank, name] = process.undefined.get(name) or frozen(value)
    works = []
    for work in state.works:
        for post in work.posts:
            if isinstance(post, FunctionCall):
                _call(post, beside)
        if work.waited and work.done and not any(post.outcome for post in work.posts):
            continue
        works.append(
            (work.number, work.begun, work.waited, tuple(post.done_s for post in work.posts))
        )
        for at, post in enumerate(work.posts):
            for part, (argument, value, _) in enumerate(post.outcome):
                beside["outcome", state.rank, work.number, at, part, argument] = frozen(value)
    return (
        state.state,
        state.died,
        state.clock_s,
        hash(tuple((each.index, each.iteration, each.state) for each in state.events.own)),
        len(state.events),
        (state.call.step.index, state.call.iteration) if state.call else None,
        tuple(sorted((name, work.number) for name, work in state.handles.items())),
        tuple(works),
        frozenset(state.broken),
        frozenset(state.raced),
        tuple((name, group.ranks) for name, group in process.groups.items()),
        frozenset(process.destroyed),
    )


def _call(asked: FunctionCall, beside: dict[Hashable, Any]) -> None:
    """Note what a call of a function carries: its arguments, or what it returned."""
    work = asked.work
    assert work is not None
    name = ("call", asked.rank, work.number)
    if not asked.performed:
        beside[name] = [asked.raced, [frozen(each) for each in asked.given]]
    elif not work.waited or asked.keeps:
        beside[name] = [asked.failure, frozen(asked.value)]


def _messages(run: Run, beside: dict[Hashable, Any]) -> Iterator[Hashable]:
    mailbox = run.mailbox
    for posted in [*mailbox.sends, *mailbox.receives]:
        message, number = posted.message, posted.work.number if posted.work else -1
        name = (posted.group.key, message.sends, posted.rank, message.peer, message.tag, number)
        if message.sends:
            beside["sent", *name, posted.nth] = frozen(posted.payload)
        yield (*name, posted.nth, posted.done_s, posted.tainted)


def _matches(run: Run, beside: dict[Hashable, Any]) -> Iterator[Hashable]:
    for match in run.matches.all():
        if match.complete:
            continue
        key = match.group.key, match.position
        for collective_post in match.joined.values():
            for name, value in collective_post.entry.arguments.items():
                beside["joined", *key, collective_post.rank, name] = frozen(value)
        yield (
            *key,
            match.spoiled,
            frozenset((at, each.call.label, each.done_s) for at, each in match.joined.items()),
            frozenset((name, frozenset(members)) for name, members in match.entered.items()),
        )


def equal(one: Any, two: Any) -> bool:
    """Return whether two values are equal within the tolerance of their dtype (NaN equals NaN).

    >>> equal(np.array([1.0, np.nan]), np.array([1.0 + 1e-9, np.nan])), equal(1.0, 1.0 + 1e-9)
    (True, False)
    """
    if one is two:
        return True
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        if one.dtype != two.dtype or one.shape != two.shape:
            return False
        if one.tobytes() == two.tobytes():
            return True
        rtol, atol = TOLERANCES.get(str(one.dtype), (0.0, 0.0))
        if not rtol:
            return False
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        left, right = one.astype(wide), two.astype(wide)
        near = np.isclose(left, right, rtol=rtol, atol=atol, equal_nan=True)
        return bool(near.all())
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(
            equal(mine, theirs) for mine, theirs in zip(one, two, strict=True)
        )
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(
            equal(value, two[key]) for key, value in one.items()
        )
    if isinstance(one, Undefined) and isinstance(two, Undefined):
        return (one.cause, one.diagnosis) == (two.cause, two.diagnosis)
    if isinstance(one, np.ndarray | Undefined) or isinstance(two, np.ndarray | Undefined):
        return False
    return bool(one == two)


class Reads:
    """What the steps of one plan read, by their forms: more than a rank does, never less.

    It is asked what is live after a choice. To count a name that is not read costs one more order;
    to miss one that is read would join two states that end differently, and hide a race. So both
    branches of a condition count, and a name that another rank is asked for counts on every rank.
    """

    def __init__(self, plan: Plan) -> None:
        """Look at selectors, and at what the end states: these are read by every rank."""
        scenario, self._size = plan.scenario, plan.world_size
        self._steps: dict[int, tuple[frozenset[str], frozenset[str], frozenset[str]]] = {}
        steps = steps_of(scenario.steps)
        chosen = {
            name for step in steps for form in (step.ranks, step.over) for name in _find_names(form)
        }
        finals = (scenario.expect, *scenario.expect.merged.values())
        stated = {name for final in finals for name in _find_stated(final.at_end)}
        #: read at any time, and read at the end
        self.always = self.everywhere(chosen)
        self.at_end = self.everywhere(stated)

    def everywhere(self, names: Iterable[str]) -> frozenset[Place]:
        """Return a name of every rank."""
        return frozenset((rank, name) for name in names for rank in range(self._size))

    def find_given(self, rank: int, step: Step) -> Access:
        """Return what a rank's call reads; a receive does not read its buffer."""
        return frozenset((rank, name) for name in self._find_accesses(step)[0]), NOTHING

    def find_stated(self, rank: int, step: Step) -> Access:
        """Return what is stated beside a step."""
        _, stated, before = self._find_accesses(step)
        return frozenset((rank, name) for name in stated) | self.everywhere(before), NOTHING

    def _find_accesses(self, step: Step) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        if step.index not in self._steps:
            given = {
                name
                for argument, form in step.arguments.items()
                if not _is_only_filled(step, argument, form)
                for name in _find_names(form)
            }
            beside = () if step.expect is None else step.expect.values
            before = {
                name
                for value in beside
                for form in (value.key, value.wanted)
                for name in _find_asked_names(form)
            }
            stated = _find_stated(step.expect) if step.expect is not None else frozenset()
            self._steps[step.index] = frozenset(given), stated, frozenset(before)
        return self._steps[step.index]


def _is_only_filled(step: Step, argument: str, form: Any) -> bool:
    """Whether an argument is a name that a receive fills whole."""
    if not isinstance(step.operation, PointToPoint) or not isinstance(form, Expression):
        return False
    param = next((each for each in step.operation.params if each.name == argument), None)
    return param is not None and param.writes and not param.reads and form.text.isidentifier()


def _find_stated(expect: Expectation) -> frozenset[str]:
    forms = [form for value in expect.values for form in (value.key, value.wanted)]
    return frozenset(name for form in forms for name in _find_names(form))


def _find_names(form: Any) -> frozenset[str]:
    """Return the names that a form may look at."""
    return frozenset().union(*(each.names | each.before for each in expressions_in(form)))


def _find_asked_names(form: Any) -> frozenset[str]:
    """Return the names that a form asks other ranks for."""
    return frozenset().union(*(each.before for each in expressions_in(form)))
