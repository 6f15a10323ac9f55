"""`circular_wait`, `group_order`: ranks that wait for each other, so that none can move first.

The ring of a program whose sends may be buffered is `buffering_hazard` too: what another
implementation makes of the program is compared by :mod:`torch_scenarios.reference.schedules`.
"""

from __future__ import annotations

from collections import deque

from torch_scenarios.errors import AwaitedAct, Clause
from torch_scenarios.reference.matching import CollectivePost, CreationPost, Post
from torch_scenarios.reference.symptoms import PostEdge, Symptom, list_ranks
from torch_scenarios.reference.waits import (
    Futures,
    Need,
    StoppedRun,
)

#: ranks of a ring that are named one by one
TOLD = 6

Graph = dict[int, list[int]]


def find(rest: StoppedRun) -> list[Symptom]:
    """Return a finding for each set of ranks that wait for one another.

    Edges are those to ranks that would come if they were freed: who never comes is no ring.
    """
    needs = rest.needs
    graph = _graph(rest.futures, needs)
    found = []
    for members in _components(graph):
        inside = [needs[-1 - node] for node in sorted(members, reverse=True) if node < 0]
        found.append(_make_symptom(inside, _path(graph, needs, members), members))
    return found


# Why only ranks that would come are successors.
#
#     rank 0   barrier                 waits for rank 1
#     rank 1   recv from 0             waits for rank 0, and has no barrier after it
#
# There is a circle in what the two wait for. But if rank 0 were freed, rank 1 would still never
# enter the barrier: the program lacks a call, and `missing_participant` says which. A circle is to
# blame only where each rank on it would do what the next one waits for; then the order is wrong,
# and any one of them could be moved to break it.
#
# A need is a node of its own between its waiters and its peers, so that 1,000 ranks in one
# collective have 1,000 edges to it and not a million to each other.
def _graph(futures: Futures, needs: list[Need]) -> Graph:
    """Return nodes with their successors: ranks from 0 up, needs from -1 down."""
    graph: Graph = {}
    for at, need in enumerate(needs):
        hub = -1 - at
        first = need.waiters[0]
        brought = {peer: futures.brings(first, peer) for peer in need.peers}
        # who waits for anyone may be freed by what lies beyond
        if not (need.anyone and "beyond" in brought.values()):
            graph[hub] = [peer for peer, how in brought.items() if how in {"late", "beyond"}]
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
    for root in reversed(_order_by_finish(graph)):
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


def _order_by_finish(graph: Graph) -> list[int]:
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


def _path(graph: Graph, needs: list[Need], members: set[int]) -> list[PostEdge]:
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


def _edge(need: Need, waiter: int, peer: int) -> PostEdge:
    post = next(post for post in need.waiters if post.rank == waiter)
    return PostEdge(post=post, peer=peer, because=need.because, act=need.act, sure=not need.anyone)


def _make_symptom(needs: list[Need], path: list[PostEdge], members: set[int]) -> Symptom:
    posts = [post for need in needs for post in need.waiters if post.rank in members]
    ranks = tuple(sorted(node for node in members if node >= 0))
    clauses = [tell(edge) for edge in path[:TOLD]]
    if len(path) > TOLD:
        clauses.append(Clause(f"and so on over {len(path)} ranks"))
    others = sorted(set(ranks) - {edge.post.rank for edge in path})
    beside = f", and {list_ranks(others)} with them" if others else ""
    end = "neither can move" if len(path) == 2 else "none can move"
    first = min(posts, key=lambda post: (post.call.step.index, post.rank)).call
    name, also = _name_posts(posts)
    return Symptom(
        name=name,
        clauses=(*clauses, Clause(f"{end}{beside}")),
        kind=f"ring:{ranks[0]}:{first.step.index}",
        index=first.step.index,
        iteration=first.iteration,
        ranks=ranks,
        also=also,
        path=tuple(path),
    )


def _name_posts(posts: list[Post]) -> tuple[str, tuple[str, ...]]:
    groups = {post.match.group.key for post in posts if isinstance(post, CollectivePost)}
    if all(isinstance(post, CollectivePost) for post in posts) and len(groups) > 1:
        return "group_order", ("circular_wait",)
    if all(isinstance(post, CreationPost) for post in posts):
        return "group_creation", ("circular_wait",)
    return "circular_wait", ()


def tell(edge: PostEdge) -> Clause:
    """Put an edge into words."""
    call, rank = edge.post.call, edge.post.rank
    return Clause(
        f"rank {rank} waits in `{call.label}`",
        call.mark,
        f" for rank {edge.peer} {edge.because}",
        awaits=AwaitedAct(rank=rank, peer=edge.peer, act=edge.act, call=call.label),
    )
