"""What is wrong with a program: every diagnosis found in a run at rest, and its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from runner.model.process import Call
from runner.model.trace import Diagnosis, Wait
from runner.operations.base import Group, Message
from runner.reference.engine import ALL_OUTCOMES, Simulation, examine_present
from runner.reference.matching import Creating, Joining, Meeting, Posted, Work
from runner.reference.state import RankState
from runner.reference.symptoms import Finding, listing, odd_first, place, several
from runner.reference.waits import Futures, Need, gone, messages_of, needs_of, on, rings

# -------------------------------------------------------------------------------------------------
# Collectives and groups that not every member reaches, or not in the same way.


def mismatched_calls(simulation: Simulation, futures: Futures, needs: list[Need]) -> list[Finding]:
    """Find members whose n-th operations on a group are not the same."""
    found = []
    seen: set[tuple[str, int]] = set()
    for meeting in simulation.meetings.all():
        if len(meeting.kinds) > 1:
            simulation.opened |= ALL_OUTCOMES
            seen.add((meeting.group.key, meeting.position))
            found.append(_call_mismatch(meeting))
    for need in needs:
        post = need.waiters[0]
        if not isinstance(post, Joining):
            continue
        key = (post.meeting.group.key, post.meeting.position)
        other = [peer for peer in need.peers if futures.brings(post, peer) == "other"]
        if other and key not in seen:
            seen.add(key)
            found.append(_later_mismatch(post, tuple(other)))
    return found


def _call_mismatch(meeting: Meeting) -> Finding:
    names = {
        at: joining.call.operation.name  # type: ignore[union-attr]
        for at, joining in meeting.joined.items()
    }
    usual = Counter(names[at] for at in sorted(names)).most_common(1)[0][0]
    parts: dict[str, list[int]] = {}
    for at in sorted(names):
        parts.setdefault(names[at], []).append(meeting.group.ranks[at])
    told = odd_first(parts, lambda name: f" in `{name}`{_first_place(meeting, names, name)}")
    first = min(meeting.joined.values(), key=lambda joining: joining.call.step.index)
    return Finding(
        name="call_mismatch",
        prose=(
            f"operation {meeting.position + 1} on {meeting.group.name} is not the same for all: "
            f"{told}"
        ),
        kind=f"call_mismatch:{meeting.group.key}:{meeting.position}",
        index=first.call.step.index,
        iteration=first.call.iteration,
        ranks=tuple(sorted(joining.rank for joining in meeting.joined.values())),
        odd=tuple(meeting.group.ranks[at] for at in sorted(names) if names[at] != usual),
        also=("circular_wait",),
    )


def _first_place(meeting: Meeting, names: dict[int, str], name: str) -> str:
    at = min(at for at in names if names[at] == name)
    return place(meeting.joined[at])


def _later_mismatch(post: Joining, others: tuple[int, ...]) -> Finding:
    call = post.call
    return Finding(
        name="call_mismatch",
        prose=(
            f"operation {post.meeting.position + 1} on {post.meeting.group.name} is `{call.label}` "
            f"for rank {post.rank}{place(post)}, and something else for {several(others)}"
        ),
        kind=f"call_mismatch:{post.meeting.group.key}:{post.meeting.position}",
        index=call.step.index,
        iteration=call.iteration,
        ranks=tuple(sorted({post.rank, *others})),
        odd=others,
        also=("circular_wait",),
    )


def absent_members(simulation: Simulation, futures: Futures) -> list[Finding]:
    """Find collectives that a member never reaches, whether or not someone is stuck for it."""
    found = []
    for meeting in simulation.meetings.all():
        if len(meeting.kinds) != 1 or len(meeting.joined) == meeting.group.size:
            continue
        joining = meeting.joined[min(meeting.joined)]
        absent = [rank for at, rank in enumerate(meeting.group.ranks) if at not in meeting.joined]
        never = [rank for rank in absent if futures.brings(joining, rank) == "never"]
        if never:
            excused = all(gone(simulation, rank) for rank in never)
            found.append(
                replace(
                    _missing(simulation, futures, meeting, joining, tuple(never)), optional=excused
                )
            )
    return found


def _missing(
    simulation: Simulation,
    futures: Futures,
    meeting: Meeting,
    joining: Joining,
    never: tuple[int, ...],
) -> Finding:
    present = sorted(other.rank for other in meeting.joined.values())
    alone = len(never) == 1
    skipped = _skipped(simulation, futures, joining, never[0])
    waiting = (
        f"{several(present)} {'waits' if len(present) == 1 else 'wait'} in "
        f"`{joining.call.label}`{place(joining)}"
    )
    if skipped is None:
        prose = (
            f"{several(never)} never enter{'s' if alone else ''} "
            f"`{joining.call.label}`{place(joining)}, where {several(present)} "
            f"{'waits' if len(present) == 1 else 'wait'}"
        )
    else:
        prose = (
            f"{several(never)} skip{'s' if alone else ''} `{skipped.call.label}`{place(skipped)}, "
            f"and so never make{'s' if alone else ''} operation {meeting.position + 1} on "
            f"{meeting.group.name}, for which {waiting}"
        )
    return Finding(
        name="missing_participant",
        prose=prose,
        kind=f"missing:{meeting.group.key}:{joining.call.step.index}:{never}",
        index=joining.call.step.index,
        iteration=joining.call.iteration,
        ranks=tuple(sorted({*present, *never})),
        odd=never,
    )


def _skipped(
    simulation: Simulation, futures: Futures, joining: Joining, absent: int
) -> Joining | None:
    """Return the first call on the group that `absent` skips, if it takes the one waited in.

    Collectives meet by their number on the group: a rank that leaves one out is in each later one
    too early, and what it lacks in the end is none of the steps that it skipped.
    """
    key = joining.meeting.group.key
    there = joining.meeting.group.group_rank(absent)
    here = joining.meeting.group.group_rank(joining.rank)
    before = simulation.meetings.of_group(key)
    taken = [each.joined[there].call for each in before if there in each.joined]
    taken += [call for call in futures.of(absent) if call.entry.group.key == key]
    instances = {(call.step.index, call.iteration) for call in taken}
    if (joining.call.step.index, joining.call.iteration) not in instances:
        return None
    mine = (each.joined[here] for each in before if here in each.joined)
    return next(
        (own for own in mine if (own.call.step.index, own.call.iteration) not in instances), None
    )


def disputed_creations(simulation: Simulation, futures: Futures) -> list[Finding]:
    """Find groups that the ranks do not create alike."""
    found = []
    elsewhere: dict[tuple[int, ...], set[int]] = {}
    for post in simulation.creating.values():
        if post.local:  # under another name, where names count the groups of a rank
            elsewhere.setdefault(post.series[0], set()).add(post.rank)
    for here in simulation.creations.all():
        lists = {creating.group.ranks for creating in here.values()}
        if len(lists) > 1:
            simulation.opened |= ALL_OUTCOMES
            found.append(_created_differently(here))
            continue
        first = here[min(here)]
        if first.local:
            absent = [rank for rank in first.group.ranks if rank not in here]
        else:
            absent = [rank for rank in range(len(simulation.ranks)) if rank not in here]
        there = elsewhere.get(first.series[0], ())
        never = [
            rank for rank in absent if rank not in there and futures.brings(first, rank) == "never"
        ]
        if never:
            excused = all(gone(simulation, rank) for rank in never)
            found.append(replace(_never_created(first, tuple(never)), optional=excused))
    return found


def _created_differently(here: dict[int, Creating]) -> Finding:
    parts: dict[str, list[int]] = {}
    for rank in sorted(here):
        lists = f"{listing(here[rank].group.ranks)}{place(here[rank])}"
        parts.setdefault(lists, []).append(rank)
    told = odd_first(parts, lambda lists: f" create{'s' if len(parts[lists]) == 1 else ''} {lists}")
    usual = Counter(here[rank].group.ranks for rank in sorted(here)).most_common(1)[0][0]
    ordinal = here[min(here)].ordinal
    first = here[min(here)].call
    return Finding(
        name="group_creation",
        prose=f"the ranks disagree on group {ordinal + 1} that they create: {told}",
        kind=f"group_creation:{ordinal}",
        index=min(creating.call.step.index for creating in here.values()),
        iteration=first.iteration,
        ranks=tuple(sorted(here)),
        odd=tuple(rank for rank in sorted(here) if here[rank].group.ranks != usual),
        also=("missing_participant", "circular_wait"),
    )


def _never_created(first: Creating, never: tuple[int, ...]) -> Finding:
    members = set(first.group.ranks)
    name = "missing_participant" if members & set(never) else "group_creation"
    also = ("group_creation",) if name == "missing_participant" else ("missing_participant",)
    tail = "" if members & set(never) else "; torch asks every rank of the world to, member or not"
    return Finding(
        name=name,
        prose=(
            f"{several(never)} never {'calls' if len(never) == 1 else 'call'} "
            f"`{first.call.label}`{place(first)}{tail}"
        ),
        kind=f"creation:{first.number}",
        index=first.call.step.index,
        iteration=first.call.iteration,
        ranks=tuple(sorted({first.rank, *never})),
        odd=never,
        also=also,
    )


# -------------------------------------------------------------------------------------------------
# Messages that no one takes, receives that nothing answers, and tags that do not fit.

#: members of a group whose futures are looked at for a receive from anyone
MOST_PEERS = 64


def unmatched_messages(simulation: Simulation, futures: Futures) -> list[Finding]:
    """Find messages that no one takes, and receives that nothing answers."""
    found: list[Finding] = []
    box = simulation.mailbox
    for post in (*box.sends, *box.receives, *box.abandoned):
        peers = (
            [post.message.peer]
            if post.message.peer is not None
            else [rank for rank in post.group.ranks if rank != post.rank]
        )
        excused = any(gone(simulation, peer) for peer in peers)
        excused = excused or simulation.ranks[post.rank].state in {"raised", "died"}
        outcomes = [futures.brings(post, peer) for peer in peers]
        if not {"late", "beyond"} & {*outcomes}:
            found.append(replace(_unmatched(simulation, futures, post), optional=excused))
    return found


def _unmatched(simulation: Simulation, futures: Futures, post: Posted) -> Finding:
    sends = post.message.sends
    step = post.call.step
    other = _other_tag(simulation, futures, post)
    if other is not None:
        peer, tag, where = other
        first, second = (post.rank, peer) if sends else (peer, post.rank)
        mine, theirs = ("sends", "receives") if sends else ("receives", "sends")
        whom = " from anyone" if post.message.peer is None else ""
        return Finding(
            name="tag_mismatch",
            prose=(
                f"rank {post.rank} {mine}{whom} with tag {post.message.tag} in "
                f"`{post.call.label}`{place(post)}, rank {peer} {theirs} with tag {tag}{where}"
            ),
            kind=f"tag:{post.group.key}:{first}:{second}",
            index=step.index,
            iteration=post.call.iteration,
            ranks=tuple(sorted({post.rank, peer})),
            also=("unmatched_send", "unmatched_recv", "circular_wait"),
        )
    elsewhere = _other_group(simulation, futures, post)
    here = on(simulation, post)
    if elsewhere is not None:
        here, there = f" on {post.group.name}", f" on {elsewhere}"
    whom = "anyone" if post.message.peer is None else f"rank {post.message.peer}"
    mine, lacks = ("sends to", "receives it") if sends else ("receives from", "sends")
    prose = f"rank {post.rank} {mine} {whom}{here} in `{post.call.label}`{place(post)}, and "
    if elsewhere is not None:
        does = f"receives from rank {post.rank}" if sends else f"sends to rank {post.rank}"
        prose += f"{whom} {does}, and only{there}: messages of two groups never meet"
    else:
        prose += f"{whom} never {lacks}"
    name = "unmatched_send" if sends else "unmatched_recv"
    return Finding(
        name=name,
        prose=prose,
        kind=f"{name}:{step.index}:{post.rank}",
        index=step.index,
        iteration=post.call.iteration,
        ranks=(post.rank,) if post.message.peer is None else (post.rank, post.message.peer),
        odd=() if post.message.peer is None else (post.message.peer,),
        also=("buffering_hazard",) if sends else ("missing_participant",),
    )


def _other_tag(
    simulation: Simulation, futures: Futures, post: Posted
) -> tuple[int, int, str] | None:
    """Return a peer, the tag of the message that it has for this rank under another tag, where."""
    tag = post.message.tag
    for peer, group, message, call in _opposite(simulation, futures, post):
        if group == post.group and message.tag != tag:
            return peer, message.tag, f" ({call.mark.short})" if call.mark else ""
    return None


def _other_group(simulation: Simulation, futures: Futures, post: Posted) -> str | None:
    """Return the group on which a named peer has the opposite of a message, under its tag."""
    if post.message.peer is None:
        return None
    for _, group, message, _ in _opposite(simulation, futures, post):
        if group != post.group and message.tag == post.message.tag:
            return group.name
    return None


def _opposite(
    simulation: Simulation, futures: Futures, post: Posted
) -> Iterator[tuple[int, Group, Message, Call]]:
    """Yield the messages that would be the other end of one, but for tag and group."""
    mine = post.message
    box = simulation.mailbox.receives if mine.sends else simulation.mailbox.sends
    for other in box:
        if _meets(mine.peer, other.rank) and _meets(other.message.peer, post.rank):
            yield other.rank, other.group, other.message, other.call
    members = post.group.ranks if mine.peer is None else (mine.peer,)
    for peer in members if len(members) <= MOST_PEERS else ():
        for call in futures.of(peer) if peer != post.rank else ():
            for message in messages_of(call):
                if message.sends != mine.sends and _meets(message.peer, post.rank):
                    yield peer, call.entry.group, message, call


def _meets(peer: int | None, rank: int) -> bool:
    """Whether a message to or from `peer` (None: anyone) may be one with `rank`."""
    return peer is None or peer == rank


# -------------------------------------------------------------------------------------------------
# What is wrong with a program, read from a run that has come to rest.
#
# The simulation itself notes what it meets on the way (arguments that disagree, refused calls,
# races on buffers). Here is added what only the end shows: who never came, what nobody took, who
# waits for whom in a ring, and what was started and never waited for.


def faults(simulation: Simulation, futures: Futures) -> tuple[list[Finding], list[Need]]:
    """Return every finding about a run that has come to rest, and what its ranks wait for."""
    stuck = [state for state in simulation.ranks if state.state == "blocked"]
    needs = needs_of(simulation, stuck)
    examine_present(simulation)
    _open_what_died_with_a_rank(simulation)
    found = list(simulation.findings)
    found += mismatched_calls(simulation, futures, needs)
    found += absent_members(simulation, futures)
    found += disputed_creations(simulation, futures)
    found += unmatched_messages(simulation, futures)
    found += rings(futures, needs)
    found += _unwaited(simulation, found)
    return found, needs


def _open_what_died_with_a_rank(simulation: Simulation) -> None:
    """Leave open whether others finish what an ended rank had started and did not wait for.

    Its part may have been done by then, or never be.
    """
    for state in simulation.ranks:
        if state.state in {"died", "raised"} and any(not work.waited for work in state.works):
            simulation.opened |= {"error", "deadlock"}


def _unwaited(simulation: Simulation, found: list[Finding]) -> list[Finding]:
    unmatched = {
        finding.index: finding
        for finding in found
        if finding.name in {"unmatched_send", "unmatched_recv", "tag_mismatch"}
    }
    missing: dict[int, Finding] = {}
    for state in simulation.ranks:
        for work in state.works:
            if state.gave_up(work):
                missing.setdefault(work.call.step.index, _missing_wait(state, work, unmatched))
    return list(missing.values())


def _missing_wait(state: RankState, work: Work, unmatched: dict[int, Finding]) -> Finding:
    step = work.call.step
    same = unmatched.get(step.index)
    return Finding(
        name="missing_wait",
        prose=(f"rank {state.rank} starts `{work.call.label}`{place(work)} and never waits for it"),
        kind=same.kind if same else f"missing_wait:{step.index}",
        index=step.index,
        iteration=work.call.iteration,
        ranks=(state.rank,),
    )


# -------------------------------------------------------------------------------------------------
# Findings -> diagnoses: one for each name of each fault, the first divergent step first.

#: among the names of one fault: which comes first, which follow the one they accompany
RANKING = {"message_race": -1, "buffering_hazard": 1, "missing_wait": 2}

#: waits that explain one diagnosis
EXPLAINING = 64


def diagnosed(findings: Sequence[Finding], needs: Sequence[Need]) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of a program; `needs` are what its stuck ranks wait for."""
    ordered = _ordered(_merged(findings))
    numbers: dict[str, int] = {}
    for finding in ordered:
        numbers.setdefault(finding.kind, len(numbers))
    return tuple(
        Diagnosis(
            name=finding.name,
            prose=finding.prose,
            index=finding.index,
            iteration=finding.iteration,
            ranks=finding.ranks,
            odd=finding.odd,
            waits=_waits(finding, needs),
            finding=numbers[finding.kind],
            also=finding.also,
            optional=finding.optional,
        )
        for finding in ordered
    )


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Put the sightings of one fault together: the first step's words, everyone's ranks."""
    together: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        together.setdefault((finding.name, finding.kind), []).append(finding)
    return [
        replace(
            min(same, key=lambda finding: finding.index),
            ranks=tuple(sorted({rank for each in same for rank in each.ranks})),
        )
        for same in together.values()
    ]


def _ordered(findings: list[Finding]) -> list[Finding]:
    first: dict[str, int] = {}
    for finding in findings:
        first[finding.kind] = min(finding.index, first.get(finding.kind, finding.index))
    return sorted(
        findings,
        key=lambda finding: (
            first[finding.kind],
            finding.kind,
            RANKING.get(finding.name, 0),
            finding.index,
        ),
    )


def _waits(finding: Finding, needs: Sequence[Need]) -> tuple[Wait, ...]:
    """Return the waits that explain a finding: its own path, else those of its ranks."""
    if finding.path:
        return tuple(edge.wait() for edge in finding.path[:EXPLAINING])
    concerned = set(finding.ranks)
    found: list[Wait] = []
    for need in needs:
        if len(found) >= EXPLAINING:
            break
        found += [edge.wait() for edge in need.edges() if edge.post.rank in concerned]
    return tuple(found[:EXPLAINING])
