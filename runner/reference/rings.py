"""Rings: ranks of which each waits for another, so that none can move first."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from runner.reference.findings import Finding
from runner.reference.posts import Creating, Joining
from runner.reference.telling import place, several
from runner.reference.waits import Edge

if TYPE_CHECKING:
    from runner.reference.posts import Post
    from runner.reference.waits import Futures, Need

#: ranks of a ring that are named one by one
TOLD = 6

Graph = dict[int, list[int]]


def rings(futures: Futures, needs: list[Need]) -> list[Finding]:
    """Return a finding for each set of ranks that wait for one another.

    Edges are those to ranks that would come if they were freed: who never comes is no ring.
    """
    graph = _graph(futures, needs)
    found = []
    for members in _components(graph):
        inside = [need for at, need in enumerate(needs) if -1 - at in members]
        found.append(_finding(inside, _path(graph, needs, members), members))
    return found


def _graph(futures: Futures, needs: list[Need]) -> Graph:
    """Return nodes with their successors: ranks from 0 up, needs from -1 down."""
    graph: Graph = {}
    for at, need in enumerate(needs):
        hub = -1 - at
        first = need.waiters[0]
        graph[hub] = [peer for peer in need.peers if futures.brings(first, peer) == "late"]
        for post in need.waiters:
            graph.setdefault(post.rank, []).append(hub)
    return graph


def _components(graph: Graph) -> list[set[int]]:
    """Return the strongly connected components of two nodes and more (Kosaraju, iterative)."""
    back: Graph = {}
    for node, successors in graph.items():
        for other in successors:
            back.setdefault(other, []).append(node)
    seen: set[int] = set()
    found = []
    for root in reversed(_finishing_order(graph)):
        if root in seen:
            continue
        seen.add(root)
        members, frontier = {root}, [root]
        while frontier:
            for other in back.get(frontier.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    members.add(other)
                    frontier.append(other)
        if len(members) > 1:
            found.append(members)
    return sorted(found, key=lambda members: min(node for node in members if node >= 0))


def _finishing_order(graph: Graph) -> list[int]:
    """Return the nodes in the order in which a depth-first walk leaves them."""
    order: list[int] = []
    seen: set[int] = set()
    for root in sorted(graph):
        stack = [] if root in seen else [(root, iter(graph[root]))]
        seen.add(root)
        while stack:
            node, successors = stack[-1]
            step = next((other for other in successors if other not in seen), None)
            if step is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(step)
                stack.append((step, iter(graph.get(step, ()))))
    return order


def _path(graph: Graph, needs: list[Need], members: set[int]) -> list[Edge]:
    """Return a shortest ring through the component's smallest rank, edge by edge."""
    start = min(node for node in members if node >= 0)
    before: dict[int, int] = {}
    frontier = deque([start])
    while frontier and start not in before:
        node = frontier.popleft()
        for other in graph.get(node, ()):
            if other in members and other not in before:
                before[other] = node
                frontier.append(other)
    nodes = [start]
    while len(nodes) == 1 or nodes[-1] != start:
        nodes.append(before[nodes[-1]])
    nodes.reverse()
    return [
        _edge(needs[-1 - hub], waiter, peer)
        for waiter, hub, peer in zip(nodes[::2], nodes[1::2], nodes[2::2], strict=False)
    ]


def _edge(need: Need, waiter: int, peer: int) -> Edge:
    post = next(post for post in need.waiters if post.rank == waiter)
    return Edge(post=post, peer=peer, because=need.because, sure=not need.anyone)


def _finding(needs: list[Need], path: list[Edge], members: set[int]) -> Finding:
    posts = [post for need in needs for post in need.waiters if post.rank in members]
    ranks = tuple(sorted(node for node in members if node >= 0))
    told = "; ".join(tell(edge) for edge in path[:TOLD])
    if len(path) > TOLD:
        told += f"; and so on over {len(path)} ranks"
    others = sorted(set(ranks) - {edge.post.rank for edge in path})
    beside = f", and {several(others)} with them" if others else ""
    end = "neither can move" if len(path) == 2 else "none can move"  # noqa: PLR2004 -- a pair
    first = min(posts, key=lambda post: (post.call.step.index, post.rank)).call
    name, also = _named(posts)
    return Finding(
        name=name,
        prose=f"{told}; {end}{beside}",
        kind=f"ring:{ranks[0]}:{first.step.index}",
        index=first.step.index,
        iteration=first.iteration,
        ranks=ranks,
        also=also,
        path=tuple(path),
    )


def _named(posts: list[Post]) -> tuple[str, tuple[str, ...]]:
    groups = {post.meeting.group.key for post in posts if isinstance(post, Joining)}
    if all(isinstance(post, Joining) for post in posts) and len(groups) > 1:
        return "group_order", ("circular_wait",)
    if all(isinstance(post, Creating) for post in posts):
        return "group_creation", ("circular_wait",)
    return "circular_wait", ()


def tell(edge: Edge) -> str:
    """Put an edge into words."""
    return (
        f"rank {edge.post.rank} waits in `{edge.post.call.label}`{place(edge.post)} for rank "
        f"{edge.peer} {edge.because}"
    )
