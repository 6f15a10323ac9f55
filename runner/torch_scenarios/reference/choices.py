"""Choices of receives from anyone, and which of their options come to the same.

Messages with the same content to one receiver are one choice where it does not matter which of
their senders goes on first: each does nothing but send more of the same, until it ends or stands in
a collective that needs all of them. The order does not show until all have come there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from msgspec import Struct

from torch_scenarios.errors import Clause
from torch_scenarios.model.scenario import Step, steps_of
from torch_scenarios.operations.base import Local
from torch_scenarios.reference.matching import Address, CollectivePost, FunctionCall, MessagePost
from torch_scenarios.reference.rules.collective import needs
from torch_scenarios.reference.state import RankState, Run


class Sender(Struct, frozen=True, kw_only=True):
    """The sender of an option at the time of the choice.

    `content` tells what it sends, `at` is the position of its next event; `stands`: it waits for
    this message alone, and goes on once it is taken.

        rank 1   send [1.0] to 0      content equal to that of rank 2: which of the two rank 0 takes
        rank 2   send [1.0] to 0      first does not show afterwards
        rank 3   send [2.0] to 0      another one
    """

    rank: int
    at: int
    clock_s: float
    content: Hashable
    stands: bool


class Choice(Struct, frozen=True, kw_only=True, eq=False):
    """One choice: `options` are pairs of a send and the receive that may take it.

    The first are those of one address, of which the first is from anyone. `mark` is the number of
    accesses that the run had noted before, `posted` that of its messages.

        rank 0   recv from anyone, recv from anyone
        rank 1   send to 0
        rank 2   send to 0

        choice 0: options (1, first recv), (2, first recv); chosen 0
        choice 1: option  (2, second recv): no choice is left

    A choice is made only when nothing else moves. By then every message that could come has come,
    so that no order is missed (delayed matching, the ISP checker; Vakkalanka and others 2008).
    """

    options: tuple[tuple[MessagePost, MessagePost], ...]
    chosen: int
    mark: int
    posted: int
    senders: tuple[Sender, ...]

    @property
    def receive(self) -> MessagePost:
        """The receive from anyone whose turn it is."""
        return self.options[0][1]


def sender_of(run: Run, send: MessagePost) -> Sender:
    """Return the sender of a message as it is now."""
    state = run.ranks[send.rank]
    return Sender(
        rank=send.rank,
        at=len(state.events),
        clock_s=state.clock_s,
        content=content_of(send),
        stands=(
            state.state == "blocked"
            and send.work is not None
            and state.waiting == (send.work,)
            and len(send.work.posts) == 1
        ),
    )


def content_of(send: MessagePost) -> Hashable:
    """Return what a message carries, to be compared; None where that is undefined."""
    if send.tainted is not None:
        return None
    return send.message.tag, _content(send.payload)


def _content(payload: Any) -> Hashable:
    if isinstance(payload, np.ndarray):
        return str(payload.dtype), payload.shape, hash(payload.tobytes())
    return repr(payload)


class ChosenRun(Run, Protocol):
    """A run, and the choices that it made.

    The schedule of a run is the list of its `chosen`: a run that is made again with that schedule
    does the same, since nothing else in a simulation is open.
    """

    choices: list[Any]


#: a collective, by its group and position; None is the end
PredictedStop: TypeAlias = tuple[str, int] | None


class _Sort(Struct, frozen=True, kw_only=True):
    content: Hashable
    clock_s: float
    stop: PredictedStop


class NamedReceive(Struct, frozen=True, kw_only=True):
    """A receive that names its sender: where, which one, and how far its rank was on each group.

    It is why equal messages may not be merged: who receives from rank 2 by name wants rank 2's
    message, and an order in which a receive from anyone has taken that one deadlocks.
    """

    address: Address
    sender: int
    passed: frozenset[tuple[str, int]]


class MergedOptions(Struct, frozen=True, kw_only=True):
    """Options that come to the same as others, the ranks of all of them, and where these stop.

    1,023 workers that each send one gradient of zeros to rank 0, and then enter a barrier, are one
    option in place of 1,023: `stops` is the barrier. The merge is taken back (`is_doubted`) where
    an order is found after all that tells the senders apart.
    """

    options: tuple[int, ...] = ()
    ranks: frozenset[int] = frozenset()
    stops: frozenset[PredictedStop] = frozenset()

    def is_doubted(
        self, address: Hashable, named: Iterable[NamedReceive], left: Iterable[int]
    ) -> bool:
        """Whether some order tells these senders apart.

        One does in which a receive names one of them before all have come to their stop, and one
        that leaves a rank of them behind.
        """
        return not self.ranks.isdisjoint(left) or any(
            each.address == address
            and each.sender in self.ranks
            and not all(_has_passed(stop, each) for stop in self.stops)
            for each in named
        )


def _has_passed(stop: PredictedStop, named: NamedReceive) -> bool:
    return stop is not None and any(
        group == stop[0] and count > stop[1] for group, count in named.passed
    )


def merge_options(
    run: ChosenRun, number: int, options: Sequence[int]
) -> tuple[list[int], MergedOptions]:
    """Part the options of a choice into those that differ, and others that come to the same.

    What came after the choice in the run tells: it came to rest.
    """
    choice = run.choices[number]
    if any(receive.message.peer is not None for _, receive in choice.options):
        return list(options), MergedOptions()
    sorts: dict[Hashable, list[int]] = {}
    for option in options:
        sorts.setdefault(_sort(run, number, option), []).append(option)
    alike = {sort: found for sort, found in sorts.items() if len(found) > 1}
    return [found[0] for found in sorts.values()], MergedOptions(
        options=tuple(option for found in alike.values() for option in found[1:]),
        ranks=frozenset(
            choice.senders[option].rank for found in alike.values() for option in found
        ),
        stops=frozenset(sort.stop for sort in alike if isinstance(sort, _Sort)),
    )


def find_named_receives(run: Run) -> list[tuple[int, NamedReceive]]:
    """Return the receives of a run that name their sender, with their order of posting."""
    found = []
    for state in run.ranks:
        passed: dict[str, int] = {}
        for work in state.works:
            for post in work.posts:
                if isinstance(post, CollectivePost):
                    passed[post.match.group.key] = post.match.position + 1
                elif isinstance(post, MessagePost) and not post.message.sends:
                    address, sender = run.mailbox.address(post), post.message.peer
                    if sender is not None:
                        place = frozenset(passed.items())
                        found.append(
                            (post.order, NamedReceive(address=address, sender=sender, passed=place))
                        )
    return found


def _sort(run: ChosenRun, number: int, option: int) -> Hashable:
    """Return what is the same for options that come to the same; the option itself where none."""
    choice = run.choices[number]
    sender, (_, receive) = choice.senders[option], choice.options[option]
    if receive is not choice.receive or not sender.stands or sender.content is None:
        return option
    stop = _stop(run, number, sender)
    if stop is None:
        return option
    return _Sort(content=sender.content, clock_s=sender.clock_s, stop=stop[0])


def _stop(run: ChosenRun, number: int, sender: Sender) -> tuple[PredictedStop] | None:
    """Return where a sender stops after nothing but more of the same; None: it does otherwise."""
    state, receiver = run.ranks[sender.rank], run.choices[number].receive
    works = {work.at: work for work in state.works}
    alike = {
        id(choice.options[at][0])
        for choice in run.choices[number:]
        for at, each in enumerate(choice.senders)
        if each.rank == sender.rank and each.content == sender.content
        if choice.receive.rank == receiver.rank and choice.receive.group.key == receiver.group.key
    }
    steps = {step.index: step for step in steps_of(run.plan.scenario.steps)}
    if sender.at >= len(state.events):
        return None
    for at in range(sender.at, len(state.events)):
        event, work = state.events[at], works.get(at)
        if event.state != "done":
            return None
        operation = steps[event.index].operation
        if at == sender.at or operation is None or isinstance(operation, Local):
            continue
        if work is not None and len(work.posts) == 1 and not work.call.asynchronous:
            post = work.posts[0]
            if isinstance(post, MessagePost) and id(post) in alike and post.partner is not None:
                continue
            return _joins(post)
        return None
    if state.state == "finished":
        return (None,)
    return _stands(state)


def _stands(state: RankState) -> tuple[PredictedStop] | None:
    """Return in which collective a rank stands that needs all; None where it stands elsewhere."""
    if state.state != "blocked" or len(state.waiting) != 1 or len(state.waiting[0].posts) != 1:
        return None
    return _joins(state.waiting[0].posts[0])


def _joins(post: object) -> tuple[PredictedStop] | None:
    if not isinstance(post, CollectivePost):
        return None
    whole = len(needs(post.operation, post.entry)) == post.match.group.size
    return ((post.match.group.key, post.match.position),) if whole else None


# Whose turn it is on a rank that serves: its own next step, or a function that others call there.
#
# Nothing else moves when such a choice is made, so that every call that can have arrived by then is
# among its options. Taking each in turn, depth first, visits every order that can be told apart; a
# state that was gone through before ends an order.

#: where turns are taken: a rank; or the address of a message
TurnPlace: TypeAlias = Address | int


class Turn(Struct, frozen=True, kw_only=True, eq=False):
    """One option: a function runs on `rank`, its own step goes on, or a message is received.

    Just one of `asked`, `step` and `pair` is not None.

        rank 0   rpc_async(2, push, 1)        rank 2 holds w = 0, and its step is y = w
        rank 1   rpc_async(2, push, 10)       turns: push 1, push 10, y = w; y is 0, 1, 10 or 11
    """

    rank: int
    asked: FunctionCall | None = None
    step: Step | None = None
    pair: tuple[MessagePost, MessagePost] | None = None

    def place(self, run: Run) -> TurnPlace:
        """Return where the turn is taken."""
        return self.rank if self.pair is None else run.mailbox.address(self.pair[1])

    def clause(self) -> Clause:
        """Say what happens."""
        if self.asked is not None:
            call = self.asked.call
            return Clause(f"`{call.label}` of rank {self.asked.rank}", call.mark)
        if self.pair is not None:
            call = self.pair[0].call
            return Clause(f"the message of rank {self.pair[0].rank} in `{call.label}`", call.mark)
        assert self.step is not None
        name = self.step.name or (self.step.operation.name if self.step.operation else "expect")
        return Clause(f"its own step `{name}`", self.step.mark)


class TurnChoice(Struct, frozen=True, kw_only=True, eq=False):
    """One choice of a run: its options, and which was taken.

    `mark` is the number of accesses that the run had noted before, `posted` that of its messages,
    `asked` that of its calls of functions. The three numbers say what the turns after it did,
    without a copy of the state for each of them.
    """

    options: tuple[Turn, ...]
    chosen: int
    mark: int
    posted: int
    asked: int

    @property
    def turn(self) -> Turn:
        """What was taken."""
        return self.options[self.chosen]
