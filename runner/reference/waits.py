"""The wait-for graph of a run that stands still, with a cause on every edge.

An edge says which rank cannot move before which other one does what. Whether that ever comes is
read from the *future* of the other rank: the calls that it would still make if it were freed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from runner.operations.base import Collective, GroupCreation, Local, PointToPoint
from runner.problems import ScenarioError
from runner.reference.matching import Creating, Joining, Post, Posted
from runner.trace import Wait

if TYPE_CHECKING:
    from runner.operations.base import Message
    from runner.program import Call
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState

#: how far a stuck rank's future is looked at
HORIZON = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Rank `waiter`, stuck in `post`, waits for rank `peer`; `because` says to do what."""

    waiter: int
    peer: int
    post: Post
    because: str
    sure: bool = True

    def wait(self) -> Wait:
        """Return the edge as it stands in a trace."""
        step = self.post.call.step
        return Wait(
            waiter=self.waiter,
            peer=self.peer,
            label=self.post.call.label,
            index=step.index,
            because=self.because,
            place=step.mark.short if step.mark else "",
            sure=self.sure,
        )


def edges_of(simulation: Simulation, state: RankState) -> list[Edge]:
    """Return what a blocked rank waits for."""
    found: list[Edge] = []
    for work in state.waiting:
        for post in work.posts:
            if post.done_s is None:
                found += _edges(simulation, post)
    return found


def _edges(simulation: Simulation, post: Post) -> list[Edge]:
    if isinstance(post, Joining):
        operation = post.call.operation
        assert isinstance(operation, Collective)  # noqa: S101 -- only these join
        joined = post.meeting.of(operation.name)
        needs = operation.needs(post.entry)
        if simulation.reading.strict:
            needs = frozenset(range(post.meeting.group.size))
        absent = sorted(needs - joined.keys())
        because = f"to enter `{operation.label(post.entry)}`"
        peers = [post.meeting.group.ranks[at] for at in absent]
        return [Edge(waiter=post.rank, peer=peer, post=post, because=because) for peer in peers]
    if isinstance(post, Posted):
        because = "to receive" if post.message.sends else "to send"
        if post.message.peer is not None:
            peers = [post.message.peer]
        else:
            peers = [rank for rank in post.group.ranks if rank != post.rank]
        sure = post.message.peer is not None
        return [
            Edge(waiter=post.rank, peer=peer, post=post, because=because, sure=sure)
            for peer in peers
        ]
    assert isinstance(post, Creating)  # noqa: S101 -- the third and last kind of post
    here = simulation.creations.at(post.ordinal)
    return [
        Edge(waiter=post.rank, peer=peer, post=post, because="to create the same group")
        for peer in post.group.ranks
        if peer not in here or here[peer].group.ranks != post.group.ranks
    ]


class Futures:
    """What each rank would still do; looking ahead uses up the ranks' programs."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._calls: dict[int, list[Call]] = {}

    def of(self, rank: int) -> list[Call]:
        """Return the calls after the one in which the rank stands."""
        if rank not in self._calls:
            self._calls[rank] = self._look(self._simulation.ranks[rank])
        return self._calls[rank]

    def _look(self, state: RankState) -> list[Call]:
        found: list[Call] = []
        if state.state != "blocked":
            return found
        try:
            for call in islice(state.walker, HORIZON):
                found.append(call)
                if isinstance(call.operation, Local):
                    if call.operation.ends(call.entry):
                        break
                    call.operation.run(state.process, call.entry)
                elif isinstance(call.operation, GroupCreation):
                    ordinal = self._simulation.creations.ordinal(state.rank)
                    timeout_s = self._simulation.plan.scenario.timeout_s
                    group = call.operation.group(call.entry, ordinal, timeout_s)
                    state.process.join(group)
                if call.step.handle is not None:
                    state.process.handles.add(call.step.handle)
        except ScenarioError:
            pass  # what lies behind needs values that never come
        return found

    def brings(self, edge: Edge) -> str:
        """Return `late` if the peer would come, `never`, or `other`: it would do something else."""
        post, peer = edge.post, edge.peer
        if peer not in range(len(self._simulation.ranks)):
            return "never"
        if isinstance(post, Joining):
            return self._joins(post, peer)
        if isinstance(post, Posted):
            wanted = [message for call in self.of(peer) for message in messages_of(call)]
            return "late" if any(_answers(post, peer, message) for message in wanted) else "never"
        assert isinstance(post, Creating)  # noqa: S101 -- the third and last kind of post
        return self._creates(post, peer)

    def _joins(self, post: Joining, peer: int) -> str:
        key = post.meeting.group.key
        ahead = post.meeting.position - self._simulation.meetings.position(key, peer)
        if ahead < 0:
            return "other"
        coming = [
            call
            for call in self.of(peer)
            if isinstance(call.operation, Collective) and call.entry.group.key == key
        ]
        if ahead >= len(coming):
            return "never"
        return "late" if coming[ahead].operation is post.call.operation else "other"

    def _creates(self, post: Creating, peer: int) -> str:
        if peer in self._simulation.creations.at(post.ordinal):
            return "other"
        coming = [call for call in self.of(peer) if isinstance(call.operation, GroupCreation)]
        ahead = post.ordinal - self._simulation.creations.ordinal(peer)
        return "late" if ahead < len(coming) else "never"


def messages_of(call: Call) -> tuple[Message, ...]:
    """Return the messages that a call would post."""
    operation = call.operation
    if not isinstance(operation, PointToPoint) or operation.refuse(call.entry) is not None:
        return ()
    return operation.messages(call.entry)


def _answers(post: Posted, peer: int, message: Message) -> bool:
    del peer
    return (
        message.sends != post.message.sends
        and message.tag == post.message.tag
        and (message.peer == post.rank or (message.peer is None and post.message.sends))
    )


def cycles(edges: list[Edge]) -> list[list[Edge]]:
    """Return the edges of each ring of ranks that wait for one another (Tarjan's components)."""
    follows: dict[int, list[Edge]] = {}
    for edge in edges:
        follows.setdefault(edge.waiter, []).append(edge)
    component = _components(follows)
    rings: dict[int, list[Edge]] = {}
    for edge in edges:
        mine = component.get(edge.waiter)
        if mine is not None and mine == component.get(edge.peer):
            rings.setdefault(mine, []).append(edge)
    return [rings[key] for key in sorted(rings)]


def _components(follows: dict[int, list[Edge]]) -> dict[int, int]:
    """Return rank -> its strongly connected component, named by its smallest rank.

    Kosaraju's two passes, iterative because a world may be deeper than Python's stack.
    """
    back: dict[int, list[int]] = {}
    for edges in follows.values():
        for edge in edges:
            back.setdefault(edge.peer, []).append(edge.waiter)
    component: dict[int, int] = {}
    for root in reversed(_finishing_order(follows)):
        if root in component:
            continue
        members, frontier = [root], [root]
        component[root] = root
        while frontier:
            for other in back.get(frontier.pop(), ()):
                if other not in component:
                    component[other] = root
                    members.append(other)
                    frontier.append(other)
        component.update(dict.fromkeys(members, min(members)))
    return component


def _finishing_order(follows: dict[int, list[Edge]]) -> list[int]:
    """Return the ranks in the order in which a depth-first walk leaves them."""
    order: list[int] = []
    seen: set[int] = set()
    for root in sorted(follows):
        stack = [] if root in seen else [(root, iter(follows[root]))]
        seen.add(root)
        while stack:
            rank, successors = stack[-1]
            step = next((edge.peer for edge in successors if edge.peer not in seen), None)
            if step is None:
                order.append(rank)
                stack.pop()
            else:
                seen.add(step)
                stack.append((step, iter(follows.get(step, ()))))
    return order
