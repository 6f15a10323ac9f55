"""Which calls match among many ranks at once: calls, collectives and messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from torch_scenarios.expressions.evaluator import READ
from torch_scenarios.expressions.hollow import is_hollow, need
from torch_scenarios.expressions.lanes import Lanes, Stack, Value, copy_value
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Constant, Form, Record, Undefined
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import Step
from torch_scenarios.model.traffic import Enter, EnterGroups, Traffic
from torch_scenarios.operations.base import (
    Collective,
    Entry,
    Group,
    Operation,
    PointToPoint,
    Waiting,
)
from torch_scenarios.reference.matching import are_unlikely_pair
from torch_scenarios.reference.rules.collective import concerns, disagree, is_whole, leave_to_all
from torch_scenarios.reference.rules.collective import leave as leave_each
from torch_scenarios.reference.rules.message import Content, answers, find_mismatch
from torch_scenarios.reference.vector.call import (
    CollectiveColumn,
    Messages,
)
from torch_scenarios.reference.vector.cohort import (
    ActiveRanks,
    LetBindings,
    Scene,
    View,
    argument_of,
    leave,
    leave_apart,
    make_list,
    stay_small,
)
from torch_scenarios.reference.vector.evaluator import Evaluation, read_integer, read_same
from torch_scenarios.reference.vector.fitness import MESSAGE, find_list, group_of, list_records
from torch_scenarios.reference.vector.state import Memory
from torch_scenarios.vocabulary import WORLD

# -------------------------------------------------------------------------------------------------
# Messages of many ranks at once: which calls match, in the order of posting.
#
# A post holds at most one message of each rank, so that within two posts the ends decide. Between
# the same ends with the same tag, the first message posted meets the first receive.

#: posts of one side that wait in one group; to look through more takes longer than the other engine
MOST = 4_096


class UnmatchedMessages:
    """Messages that were posted and have not met, by group.

    The walk's :class:`torch_scenarios.reference.matching.Mailbox` has a queue for each pair of
    ends. Here a post is a column, and the columns of one group lie in the order of posting:

        sends      [ranks 0-3 -> +1]  [ranks 0-3 -> +1]
        receives   [ranks 0-3 <- -1]

    A receive column looks at the sends in order, and takes of each the rows whose ends and tag
    answer. Since no column has two messages of one rank, first posted is first met, as MPI 4.1, 3.5
    asks.
    """

    def __init__(self, traffic: Traffic) -> None:
        """Begin with none; who meets is noted in `traffic`."""
        self._traffic = traffic
        self._waiting: dict[tuple[str, bool], list[Messages]] = {}

    @property
    def empty(self) -> bool:
        """Whether every message has met its other side."""
        return not any(self._waiting.values())

    def post(self, group: str, post: Messages) -> Iterator[tuple[Messages, Any]]:
        """Post messages; yield every post of which rows are done by that, with these rows.

        None are all rows. What a receive gets is in its `arrived` before.
        """
        others = self._waiting.setdefault((group, not post.sends), [])
        for other in list(others):
            pairs = _pairs(post, other)
            if pairs is None:
                continue
            mine, theirs = pairs
            met = (post, mine, other, theirs) if post.sends else (other, theirs, post, mine)
            self._traffic.meet(met[0].number, met[1], met[2].number, met[3])
            _deliver(*met)
            yield other, other.meet(theirs)
            yield post, post.meet(mine)
            if not other.left:
                others.remove(other)
            if not post.left:
                return
        own = self._waiting.setdefault((group, post.sends), [])
        own.append(post)
        stay_small(len(own), MOST)


def _pairs(one: Messages, two: Messages) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the rows of two posts, the one of sends and the other of receives, that meet.

    None where no row does. Eight ranks of a ring, of which each sends to the next:

        sends      ranks 0 .. 7    peers 1 .. 7, 0
        receives   ranks 0 .. 7    peers 7, 0 .. 6
        pairs      rows 0 .. 7  and  1 .. 7, 0

    A row meets that of its peer if the peer names the rank in turn, has the same tag, and neither
    has met another. The smaller post is the one that looks, since each of its rows is one look-up.
    """
    same_tag: Any = one.tags == two.tags if _single(one.tags) and _single(two.tags) else None
    if same_tag is False:
        return None
    if two.active.size < one.active.size:
        turned = _pairs(two, one)
        return None if turned is None else (turned[1], turned[0])
    rows, there = two.active.find(one.peers)
    ranks, peers = (one.active.ranks, two.active.ranks[rows]), (one.peers, two.peers[rows])
    there = there & answers(ranks, peers)
    if one.left < one.active.size:
        there &= one.unmet
    if two.left < two.active.size:
        there &= two.unmet[rows]
    if same_tag is None:
        tags = two.tags if _single(two.tags) else two.tags[rows]
        there &= one.tags == tags
    if there.all():
        return np.arange(one.active.size), rows
    mine = np.flatnonzero(there)
    return (mine, rows[mine]) if len(mine) else None


def _single(tags: Any) -> bool:
    return tags.__class__ is int


def _deliver(
    send: Messages, sent: NDArray[np.int64], receive: Messages, got: NDArray[np.int64]
) -> None:
    """Put what was sent before those who receive it; raises CohortError where it does not fit.

    A message has elements and no shape: `[1, 4]` fills `[2, 2]`. Hollow payloads (of a forecast)
    have a shape and a dtype alone, so that nothing is copied. Where all rows are received in order,
    what was sent is taken as it is; else it is put into an array of zeros, whose other rows come
    with later posts.
    """
    shape = receive.payload.shape
    leave_apart(find_mismatch(_content(send), _content(receive)))
    if is_hollow(send.payload.take(sent[:1])):
        return
    found = send.payload.take(sent).reshape(len(sent), *shape)
    if len(got) == receive.active.size and receive.arrived is None and _is_ascending(got):
        receive.arrived = found
        return
    if receive.arrived is None:
        receive.arrived = np.zeros((receive.active.size, *shape), found.dtype)
    receive.arrived[got] = found


def _content(messages: Messages) -> Content:
    return Content(messages.payload.dtype, prod(messages.payload.shape))


def _is_ascending(rows: NDArray[np.int64]) -> bool:
    return bool((rows[1:] > rows[:-1]).all())


# -------------------------------------------------------------------------------------------------
# The messages of a call: their peers, with which tag, and where in memory.


class MessageEvaluator:
    """Evaluates the messages of one plan.

    A peer is checked for all ranks in one comparison: outside of the group, or a rank itself, is
    what torch refuses. Then the text of the refusal depends on the rank, and the walk says it.
    """

    def __init__(self, plan: Plan, evaluation: Evaluation, memory: Memory) -> None:
        """Remember nothing but peers that are the same each time."""
        self._plan = plan
        self._evaluation = evaluation
        self._memory = memory
        self._peers: dict[tuple[int, int], tuple[Any, NDArray[np.int64]]] = {}

    def of(
        self, step: Step, operation: PointToPoint, scene: Scene, items: Items | None = None
    ) -> tuple[list[Messages], dict[str, Any], str]:
        """Return a post for each message that every rank posts, what names the call, its group.

        `items` are those of a list that are there on these ranks; None for all of them. Raises
        CohortError where torch would refuse one.
        """
        group = group_of(step)
        param = find_list(operation)
        if param is None:
            post, description = self._message(step, 0, operation.params, step.arguments, scene)
            return self._direct(operation, [post], description, group, scene), description, group
        if items is None:
            records = list_records([step.arguments[param.name]])
            items = [(record, scene.variables) for record in records]
        pairs = [
            self._message(step, at, param.fields, item.fields, Scene(scene.active, variables))
            for at, (item, variables) in enumerate(items)
        ]
        values = {param.name: [description for _, description in pairs]}
        posts = [post for post, _ in pairs]
        return self._direct(operation, posts, values, group, scene), values, group

    def _direct(
        self,
        operation: PointToPoint,
        posts: list[Messages],
        description: dict[str, Any],
        group: str,
        scene: Scene,
    ) -> list[Messages]:
        """Let the operation itself say, of one rank, which of its messages it sends."""
        rank = int(scene.active.ranks[0])
        number = int(self._memory.group_numbers(group)[rank])
        arguments = {param.name: param.default for param in operation.params}
        first = {
            **arguments,
            **{name: argument_of(value, 0) for name, value in description.items()},
        }
        entry = Entry(rank=rank, group=self._memory.groups[group][number], arguments=first)
        # Which way a message of a list goes is the same on every rank, since `op: isend` is a word
        # of the list and no expression. So one rank is asked for all.
        for post, message in zip(posts, operation.messages(entry), strict=True):
            post.sends = message.sends
        return posts

    def _message(
        self,
        step: Step,
        at: int,
        params: Sequence[Param],
        forms: Mapping[str, Form],
        scene: Scene,
    ) -> tuple[Messages, dict[str, Any]]:
        """Return one message of each rank, and its arguments but for the tensor.

        `at` is its place in the list of the call, 0 where the call is one message. A peer or a tag
        that is the same for all ranks is an int, one that differs an array `[L]`.
        """
        kinds = {param.kind: param for param in params}
        world, inside, tag = (
            self._integer(forms.get(kinds[kind].name), kinds[kind], scene)
            for kind in ("rank", "group_rank", "tag")
        )
        peers = self._peer(step, at, world, inside, scene.active)
        low = int(tag.values.min()) if isinstance(tag, Lanes) else tag
        leave_apart(peers is None or low < 0)
        assert peers is not None
        post = Messages(
            active=scene.active,
            peers=peers,
            tags=tag.values if isinstance(tag, Lanes) else tag,
            payload=self._evaluation.argument(forms[kinds["tensor"].name], scene),
        )
        description: dict[str, Any] = {param.name: param.default for param in params}
        description[kinds["rank"].name] = peers
        description[kinds["tag"].name] = post.tags
        for kind in kinds.keys() - MESSAGE:
            description[kinds[kind].name] = cast("Constant", forms[kinds[kind].name]).value
        return post, description

    def _integer(self, form: Form | None, param: Param, scene: Scene) -> Any:
        found = None if form is None else self._evaluation.read(form, scene, read_integer)
        return param.default if found is None else found

    def _peer(
        self,
        step: Step,
        at: int,
        world: int | Lanes | None,
        inside: int | Lanes | None,
        active: ActiveRanks,
    ) -> NDArray[np.int64] | None:
        """Return the peers in global ranks `[L]`; None where torch refuses one, or none is given.

        `world` is what the call gives as a world rank (`dst`), `inside` what it gives as a rank of
        its group (`group_dst`); one of the two must be there. With the groups [0, 2] and [1, 3],
        `group_dst: 1` is rank 2 on rank 0 and rank 3 on rank 1.

        What all ranks of the world have evaluated to the same array as before has the same peers: a
        loop of a thousand rounds of `dst: rank + 1` checks them once.
        """
        given: Any = world if inside is None else inside
        known = self._peers.get((step.index, at))
        if known is not None and known[0] is given and active.everyone:
            return known[1]
        numbers = self._memory.group_numbers(group_of(step))
        mine = numbers[active.index]
        if (world is None) == (inside is None) or mine.min() < 0:
            return None
        if isinstance(given, Lanes):
            values = given.values.astype(np.int64)
        else:
            values = np.full(active.size, given, np.int64)
        if inside is not None:
            values = self._world_ranks(group_of(step), mine, values)
        if values.min() < 0 or values.max() >= active.world_size:
            return None
        if (numbers[values] != mine).any() or (values == active.ranks).any():
            return None
        if active.everyone and isinstance(given, Lanes):
            self._peers[step.index, at] = given, values
        return values

    def _world_ranks(
        self, group: str, mine: NDArray[np.int64], inside: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return global ranks for ranks inside of each rank's own group; -1 for none.

        The table has a row for each group of the name, and a last column of -1 to which all numbers
        go that are outside of a group, the negative ones included: NumPy would count these from the
        end.

            groups [0, 2] and [1, 3]    table [[0, 2, -1], [1, 3, -1]]
        """
        groups = self._memory.groups[group]
        table = np.full((len(groups), max(each.size for each in groups) + 1), -1, np.int64)
        for number, each in enumerate(groups):
            table[number, : each.size] = each.ranks
        none = table.shape[1] - 1
        return np.asarray(table[mine, np.where((inside < 0) | (inside > none), none, inside)])


#: items of a list of messages that are there on some ranks, each with its variables
Items: TypeAlias = list[tuple[Record, Mapping[str, int | LetBindings]]]


def part_items(
    step: Step, operation: Operation | None, evaluation: Evaluation, scene: Scene
) -> list[tuple[ActiveRanks, Items]] | None:
    """Return the ranks on which the same items of a list are there, and these items.

    None for a call whose items are there on every rank. If 8 ranks in a line each send to their
    neighbours, an item for the one before and one for the one behind, they are three parts:

        rank 0        the one behind
        ranks 1 - 6   both
        rank 7        the one before

    Each part is evaluated as a call of its own, with a column for each of its items.
    """
    param = find_list(operation)
    if param is None:
        return None
    records = list(list_records([step.arguments.get(param.name)]))
    if not any(record.ranks is not None or record.loops for record in records):
        return None
    found = [each for record in records for each in _turns(record, evaluation, scene)]
    table = np.stack([mask for _, _, mask in found])
    apart: list[tuple[ActiveRanks, Items]] = []
    for pattern, same in _find_patterns(table):
        items = [found[at][:2] for at in np.flatnonzero(pattern).tolist()]
        if items:
            apart.append((scene.active.among(same), [(item, known) for item, known in items]))
    return apart


def _find_patterns(
    table: NDArray[np.bool_],
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Yield the columns of a table `[items, L]` that differ, and who has each `[L]`.

    Rows part the columns one after the other, those without an item first, so that no column is
    sorted: what is sorted are 16,384 of them for each turn of a pipeline.
    """
    parts = [np.ones(table.shape[1], np.bool_)]
    for row in table:
        halves = ((mask & ~row, mask & row) for mask in parts)
        parts = [half for both in halves for half in both if half.any()]
    for mask in parts:
        yield table[:, int(mask.argmax())], mask


def _turns(
    record: Record, evaluation: Evaluation, scene: Scene
) -> Iterator[tuple[Record, Mapping[str, int | LetBindings], NDArray[np.bool_]]]:
    """Yield an item for each turn of its loops: with its variables, and who has it `[L]`."""
    active = scene.active
    turns = [(scene.variables, np.ones(active.size, np.bool_))]
    for variable, over in record.loops:
        turns = [
            ({**variables, variable: value}, mask)
            for variables, before in turns
            for value, mask in _values(over, evaluation, active, variables, before)
        ]
    for variables, mask in turns:
        there = mask
        if record.ranks is not None and mask.any():
            inner = Scene(active.among(mask), variables)
            chosen = evaluation.select(record.ranks, inner)
            there = np.zeros(active.size, np.bool_)
            if chosen is not None:
                there[active.rows(chosen.ranks)] = True
        yield record, variables, there


def _values(
    over: Form,
    evaluation: Evaluation,
    active: ActiveRanks,
    variables: Mapping[str, int | LetBindings],
    before: NDArray[np.bool_],
) -> Iterator[tuple[LetBindings, NDArray[np.bool_]]]:
    """Yield the values that an item's variable has on each rank, the first of each together."""
    if not before.any():
        return
    here = active.among(before)
    lists = evaluation.lists(over, Scene(here, variables))
    for at in range(max(map(len, lists), default=0)):
        has = np.asarray([len(values) > at for values in lists])
        numbers = np.asarray([values[at] for values in lists if len(values) > at], np.int64)
        named = LetBindings(active.world_size)
        ranks = here.among(has)
        named.assign(ranks, Lanes(numbers))
        mask = np.zeros(active.size, np.bool_)
        mask[active.rows(ranks.ranks)] = True
        yield named, mask


# -------------------------------------------------------------------------------------------------
# Collectives of many ranks at once: counted in, and computed once a group is complete.
#
# Without tensors (a barrier) nothing is made for a single rank. With them the operation's own
# reference gets the entries of all members, as the other engine gives them.


class _Position(Struct, eq=False):
    """The n-th collectives of all groups of one name: who has entered, and who must."""

    operation: Collective
    arrived: NDArray[np.int64]
    posts: list[CollectiveColumn] = field(default_factory=list)


class Collectives:
    """The collectives of a run, by the name of the groups and the position.

    All groups of a name are one table: 512 groups of two ranks enter their n-th all_reduce as one
    post.

        name "pair", position 0      arrived  [2, 1, 2]      of groups of size 2
                                     the groups 0 and 2 are complete, and their rows are done
    """

    def __init__(self, plan: Plan, memory: Memory) -> None:
        """Begin with none."""
        self._plan = plan
        self._memory = memory
        self._open: dict[tuple[str, int], _Position] = {}
        #: how many collectives each rank `[W]` has entered, by the name of the groups
        self.entered: dict[str, NDArray[np.int64]] = {}
        self._sizes: dict[str, NDArray[np.int64]] = {}

    @property
    def empty(self) -> bool:
        """Whether every collective that was entered is complete."""
        return not self._open

    def positions(self, name: str, active: ActiveRanks) -> NDArray[np.int64]:
        """Return how many collectives each of these ranks has entered on its group of a name.

        Ranks that differ in it enter other collectives, and so cannot enter as one post.
        """
        entered = self.entered.get(name)
        if entered is None:
            entered = self.entered[name] = np.zeros(active.world_size, np.int64)
            self._sizes[name] = np.asarray([group.size for group in self._memory.groups[name]])
        here: NDArray[np.int64] = entered[active.index]
        return here

    def is_whole(self, name: str, active: ActiveRanks) -> bool:
        """Whether each group of some ranks is here with all its members, who are at one position.

        Then no other rank has a part in what they enter, wherever other groups are. It is asked of
        hollow tensors alone: what is computed and recorded has one position.
        """
        if not self._memory.hollow:
            return False
        positions = self.positions(name, active)
        numbers, sizes = self._memory.group_numbers(name)[active.index], self._sizes[name]
        of_groups = np.zeros(len(sizes), np.int64)
        of_groups[numbers] = positions
        counts = np.bincount(numbers, minlength=len(sizes))
        whole = is_whole(counts, sizes) | (counts == 0)
        return bool(whole.all() and (of_groups[numbers] == positions).all())

    def enter(self, name: str, post: CollectiveColumn) -> Iterator[tuple[CollectiveColumn, Any]]:
        """Let ranks enter; yield each post with its rows that are done.

        They are at one position, or all groups are whole (`is_whole`), which wait for no one.
        """
        positions = self.positions(name, post.active)
        position = post.position = int(positions[0])
        if (positions != position).any():
            self.entered[name][post.active.index] += 1
            arrived = np.bincount(post.numbers, minlength=len(self._sizes[name]))
            alone = _Position(post.operation, arrived, [post])
            yield from self._complete(name, alone, arrived > 0)
            return
        self.entered[name][post.active.index] += 1
        key = (name, position)
        here = self._open.get(key)
        if here is None:
            here = _Position(post.operation, np.zeros(len(self._sizes[name]), np.int64))
            self._open[key] = here
        leave_apart(here.operation is not post.operation)
        leave_apart(any(self._are_apart(post, other) for other in here.posts))
        counts = np.bincount(post.numbers, minlength=len(here.arrived))
        here.arrived += counts
        here.posts.append(post)
        whole = is_whole(here.arrived, self._sizes[name]) & (counts > 0)
        if whole.any():
            yield from self._complete(name, here, whole)
        if (here.arrived[here.arrived > 0] == self._sizes[name][here.arrived > 0]).all():
            del self._open[key]

    def _are_apart(self, one: CollectiveColumn, other: CollectiveColumn) -> bool:
        """Whether members of one group enter by steps that are likely to be no pair."""
        assert one.work is not None
        assert other.work is not None
        mine, yours = one.work.instance.step, other.work.instance.step
        if mine is yours or np.intersect1d(one.numbers, other.numbers).size == 0:
            return False
        return are_unlikely_pair(self._plan, mine, yours)

    def _complete(
        self, name: str, here: _Position, whole: NDArray[np.bool_]
    ) -> Iterator[tuple[CollectiveColumn, Any]]:
        """Compute the groups that are complete by this post, and yield whose rows are done.

        Rows are None where all rows of a post are done. Without values (a forecast) only agreement
        is looked at; without tensors, and with nothing to disagree on, no group is looked at for
        itself.
        """
        if self._memory.hollow:
            _police_agreement(self._memory, name, here, whole)
        elif _says_something(here.operation, here.posts):
            for number in np.flatnonzero(whole).tolist():
                self._settle(self._memory.groups[name][number], here.posts)
        for post in here.posts:
            done = whole[post.numbers]
            if done.all():
                yield post, None
            elif done.any():
                yield post, np.flatnonzero(done)

    def _settle(self, group: Group, posts: list[CollectiveColumn]) -> None:
        """Compute what the members of one group hold afterwards.

        Members may be in several posts, and in any order in them. Each part has, for the members
        that entered by one post, their ranks in the group and their rows in the post:

            group [4, 2, 9]     post A of ranks 0 - 4: members 0, 1 in rows 4, 2
                                post B of ranks 5 - 9: member 2 in row 4
        """
        members = np.asarray(group.ranks, np.int64)
        parts = []
        for post in posts:
            rows, there = post.active.find(members)
            at = np.flatnonzero(there)
            if len(at):
                parts.append((post, at, rows[at]))
        if not _settle_alike(group, parts):
            _settle_each(group, parts)


def _police_agreement(memory: Memory, name: str, here: _Position, whole: NDArray[np.bool_]) -> None:
    """Raise CohortError where torch refuses a call, or members may disagree; computes no value."""
    groups, first = memory.groups[name], here.posts[0]
    likeness = {key: _likeness(value) for key, value in first.arguments.items()}
    for post in here.posts[1:]:
        if any(_likeness(value) != likeness[key] for key, value in post.arguments.items()):
            need("members with arguments that differ")
    rooted = [key for key, value in first.arguments.items() if isinstance(value, np.ndarray)]
    for key in rooted:
        for post in here.posts:
            _police_roots(post, np.asarray(post.arguments[key]), key)
    if not rooted and here.operation.rooted is None and memory.list_groups(name)[1] is not None:
        return  # what one member enters with was looked at, and all enter with the same
    looked: set[int] = set()
    for post in here.posts:
        numbers, rows = np.unique(post.numbers, return_index=True)
        varied = any(isinstance(value, np.ndarray) for value in post.arguments.values())
        for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
            group = groups[number]
            # What torch refuses depends on the shapes and on the size of the group: of 512 groups
            # of two with the same shapes one is enough.
            if not whole[number] or (group.size in looked and not varied):
                continue
            looked.add(group.size)
            entry = _entry(group, int(post.active.ranks[row]), post, row, here.operation)
            if here.operation.refuse(entry) is not None:
                need("a call that is refused")


def _likeness(value: Value) -> Any:
    """Return what of an argument members must have in common: tensors their shape and dtype.

    An array `[L]` (of ranks, one for each row) is like every other one; whether it is the same
    within a group is looked at by :func:`_police_roots`.
    """
    if isinstance(value, Stack):
        return value.shape, value.dtype
    return np.ndarray if isinstance(value, np.ndarray) else (value.__class__, repr(value))


def _police_roots(post: CollectiveColumn, given: NDArray[Any], name: str) -> None:
    """Raise CohortError where members of one group give different ranks."""
    numbers, rows, at = np.unique(post.numbers, return_index=True, return_inverse=True)
    if len(numbers) and (given != given[rows][at]).any():
        need(f"members that differ in {name}")


#: some members of one group who entered together: their group ranks and rows
_Part = tuple[CollectiveColumn, NDArray[np.int64], NDArray[np.int64]]


def _settle_alike(group: Group, parts: list[_Part]) -> bool:
    """Compute one result for all members, from what they give stacked; False where none is.

    An all_reduce of 1,024 ranks is one sum over the first dimension of `[1024, *shape]`, written to
    all rows at once. It needs an operation that has such a `common` result, and members that give
    tensors of one shape and the same plain arguments. What members disagree on, or torch refuses,
    is looked at for two entries only: the others have the same.
    """
    operation = parts[0][0].operation
    if type(operation).common is Collective.common:
        return False
    arguments = _stacks(group, operation, parts)
    if arguments is None:
        return False
    given = parts[0][0].arguments
    two = [
        Entry(
            rank=rank,
            group=group,
            arguments={
                name: make_list(value[at, ...], _is_list(given.get(name)))
                if isinstance(value, np.ndarray)
                else value
                for name, value in arguments.items()
            },
        )
        for at, rank in enumerate(group.ranks[:2])
    ]
    # all give tensors of the shapes that two of them give
    own = type(operation).disagreements is not Collective.disagreements
    _police(operation, two[:1], two if own else ())
    found = leave_to_all(operation, arguments, group.size)
    assert found is not None
    results, slack = found
    for post, _, rows in parts:
        for argument, value in results.items():
            _put(post, post.results, argument, rows, value)
            if slack.get(argument) is not None:
                _put(post, post.bounds, argument, rows, slack[argument])
    return True


def _stacks(group: Group, operation: Operation, parts: list[_Part]) -> dict[str, Any] | None:
    """Return the arguments of all members, tensors stacked; None where other than these differ."""
    arguments = {param.name: param.default for param in operation.params}
    for name, value in parts[0][0].arguments.items():
        given = [part[0].arguments[name] for part in parts]
        if isinstance(value, np.ndarray):
            return None
        if isinstance(value, Stack):
            stack = _stack(group, parts, given)
            if stack is None:
                return None
            arguments[name] = stack
        elif all(each.__class__ is value.__class__ and each == value for each in given):
            arguments[name] = value
        else:
            return None
    return arguments


def _stack(group: Group, parts: list[_Part], given: list[Value]) -> NDArray[Any] | None:
    """Return the tensors of all members `[n, *shape]`; None where they are not of one kind.

    All rows of one post in ascending order are the stack already, and no copy is made.
    """
    if len({(each.shape, each.dtype) if _is_stack(each) else None for each in given}) > 1:
        return None
    (post, _, rows), first = parts[0], given[0]
    if len(parts) == 1 and len(rows) == post.active.size and _is_ascending(rows):
        return np.asarray(first.take())
    stack = np.empty((group.size, *first.shape), first.dtype)
    for (_, at, chosen), each in zip(parts, given, strict=True):
        stack[at] = each.take(chosen)
    return stack


def _is_stack(value: Value) -> bool:
    return isinstance(value, Stack)


def _is_list(value: Value) -> bool:
    """Whether an argument is a list of tensors, which lie along dimension 1."""
    return isinstance(value, View) and value.listed


def _settle_each(group: Group, parts: list[_Part]) -> None:
    """Compute each member's result, from the entries of all.

    The slow way, and the one that always works: as the walk does it, one entry for each member.
    """
    placed: dict[int, tuple[CollectiveColumn, int]] = {}
    for post, there, rows in parts:
        pairs = zip(there.tolist(), rows.tolist(), strict=True)
        placed |= {inside: (post, row) for inside, row in pairs}
    operation = parts[0][0].operation
    entries = [_entry(group, rank, *placed[at], operation) for at, rank in enumerate(group.ranks)]
    _police(operation, entries, entries)
    results, slack = leave_each(operation, entries)
    for at, result in enumerate(results):
        post, row = placed[at]
        for argument, value in result.items():
            _put(post, post.results, argument, row, value)
            if slack and slack[at].get(argument) is not None:
                _put(post, post.bounds, argument, row, slack[at][argument])


def _police(operation: Collective, asked: Sequence[Entry], members: Sequence[Entry]) -> None:
    """Raise CohortError where torch refuses one of some entries, or members disagree."""
    leave_apart(any(operation.refuse(entry) is not None for entry in asked))
    leave_apart(disagree(operation, members))


def _says_something(operation: Collective, posts: list[CollectiveColumn]) -> bool:
    """Return whether a collective stores anything, or its members could disagree."""
    plain = type(operation).refuse is Collective.refuse and not operation.rooted
    tensors = any(isinstance(value, Stack) for value in posts[0].arguments.values())
    return tensors or not plain or bool(operation.agree)


def entries(
    memory: Memory, operation: Collective, name: str, post: CollectiveColumn, step: Step
) -> Iterator[Enter | EnterGroups]:
    """Yield who enters a collective with how many bytes: the ranks of each group apart.

    Members of a group send the same, unless one of them is the root: then each is asked. The values
    do not matter for that, so that tensors are handed over hollow: zeros with a stride of 0, which
    take no memory whatever their shape.
    """
    if memory.hollow:
        together = _enter_together(memory, operation, name, post, step)
        if together is not None:
            yield together
            return
    hollow = {
        key: make_list(np.broadcast_to(np.zeros((), value.dtype), value.shape), _is_list(value))
        for key, value in post.arguments.items()
        if isinstance(value, Stack | View)
    }
    plain = {key: value for key, value in post.arguments.items() if key not in hollow}
    defaults = {param.name: param.default for param in operation.params}
    for number in np.unique(post.numbers).tolist():
        group = memory.groups[name][number]
        rows = np.flatnonzero(post.numbers == number)
        ranks = post.active.ranks[rows]
        found = []
        alike = operation.rooted is None
        for row in rows[:1].tolist() if alike else rows.tolist():
            given = {name: argument_of(value, row) for name, value in plain.items()}
            arguments = {**defaults, **given, **hollow}
            rank = int(post.active.ranks[row])
            entry = Entry(rank=rank, group=group, arguments=arguments)
            if operation.refuse(entry) is None:
                found.append(operation.volume(entry))
        if len(found) in {1, len(rows)}:
            sent = np.asarray([each.sent for each in found])
            yield Enter(
                number=post.number,
                ranks=ranks,
                sent=sent,
                name=operation.name,
                key=group.key,
                size=found[0].size,
                members=group.ranks,
                step=step.index,
                group=group.name,
            )


def _enter_together(
    memory: Memory, operation: Collective, name: str, post: CollectiveColumn, step: Step
) -> EnterGroups | None:
    """Return who enters, for all groups at once; None where members send different bytes.

    A forecast of 4,096 ranks has 512 groups of 8 that gather at once: one entry in place of 512.
    """
    groups = memory.groups[name]
    members, keys = memory.list_groups(name)
    varied = any(isinstance(value, np.ndarray) for value in post.arguments.values())
    if varied or operation.rooted is not None or keys is None:
        return None
    group, rank = groups[int(post.numbers[0])], int(post.active.ranks[0])
    entry = _entry(group, rank, post, 0, operation)
    if operation.refuse(entry) is not None:
        need("a call that is refused")
    found = operation.volume(entry)
    return EnterGroups(
        number=post.number,
        ranks=post.active.ranks,
        groups=post.numbers,
        sent=found.sent,
        name=operation.name,
        size=found.size,
        members=members,
        keys=keys,
        step=step.index,
        group=group.name,
    )


def find_stored(
    operation: Collective, group: Group, rank: int, arguments: Mapping[str, Value], row: int
) -> tuple[str, ...]:
    """Return the arguments that a collective stores into on one rank."""
    plain = {param.name: param.default for param in operation.params}
    for name, value in arguments.items():
        plain[name] = None if isinstance(value, Stack) else argument_of(value, row)
    entry = Entry(rank=rank, group=group, arguments=plain)
    return tuple(param.name for param in operation.params if operation.writes(param, entry))


def _entry(
    group: Group, rank: int, post: CollectiveColumn, row: int, operation: Operation
) -> Entry:
    arguments = {param.name: param.default for param in operation.params}
    for name, value in post.arguments.items():
        if isinstance(value, Stack):
            found = value.take(np.asarray([row]))[0, ...]
            arguments[name] = make_list(found, _is_list(value))
        else:
            arguments[name] = argument_of(value, row)
    return Entry(rank=rank, group=group, arguments=arguments)


def _put(
    post: CollectiveColumn, into: dict[str, Any], argument: str, rows: Any, value: Any
) -> None:
    """Keep what a rank, or some, hold afterwards in an argument; of all ranks in one array.

    `into` is `results` or `bounds` of the post. Rows that have nothing yet are 0 and are not looked
    at before their group is complete. Raises CohortError for what has no column: a value that
    is undefined on some ranks, or of another size than what was given (the object of an
    `all_gather_object`).
    """
    given = post.arguments.get(argument)
    parts = value if isinstance(value, list) else [value]
    unclear = any(isinstance(each, Undefined) for each in parts)
    unclear = unclear or (into is post.bounds and isinstance(value, list))
    alike = isinstance(given, Stack) and (unclear or np.size(value) == prod(given.shape))
    if unclear or not alike or not isinstance(given, Stack):
        leave("a result that is undefined or of another size, or a list that is off by rounding")
    found = np.asarray(value)
    if argument not in into:
        dtype = given.dtype if into is post.results else np.dtype(np.float64)
        into[argument] = np.zeros((post.active.size, *given.shape), dtype)
    into[argument][rows, ...] = found.reshape(given.shape).astype(into[argument].dtype)


# -------------------------------------------------------------------------------------------------
# Who takes a step, and with which arguments: a call of many ranks at once.


class Calls:
    """Evaluates the calls of one plan.

    It says first which ranks take a step at all: those that its `ranks:` selects, and of a
    collective the members of its group. A rank that is outside of the group passes, as in torch,
    where the call returns None there with a warning.
    """

    def __init__(self, plan: Plan, evaluation: Evaluation, memory: Memory) -> None:
        """Remember which ranks started what: a `wait` concerns those."""
        self._plan = plan
        self._evaluation = evaluation
        self._memory = memory
        self._started: dict[str, NDArray[np.bool_]] = {}
        self._members: dict[str, ActiveRanks | None] = {}
        #: the list of messages that was parted last: `find_taking` does it, and then who posts them
        self._parted: tuple[Step, Scene, Sequence[tuple[ActiveRanks, Items]]] | None = None

    def part_items(
        self, step: Step, operation: Operation, scene: Scene
    ) -> Sequence[tuple[ActiveRanks, Items]] | None:
        """Return the parts of a list of messages, as `part_items` does, those of a scene once."""
        if self._parted is not None:
            known, before, parts = self._parted
            is_same = before.active is scene.active and before.variables is scene.variables
            if known is step and is_same:
                return parts
        return part_items(step, operation, self._evaluation, scene)

    def find_taking(self, step: Step, scene: Scene, *, fits: bool = True) -> ActiveRanks | None:
        """Return which of the active ranks take a step; None for none of them.

        Of a step that does not fit, all that its text does not rule out.
        """
        active: ActiveRanks | None = scene.active
        if step.ranks is not None:
            active = self._evaluation.select(step.ranks, scene)
        elif step.operation is not None and fits:
            active = self._find_members(group_of(step), scene.active)
        if not fits:
            return active
        if active is not None and step.operation is not None:
            inner = Scene(active, scene.variables)
            parts = part_items(step, step.operation, self._evaluation, inner)
            if parts is not None:
                ranks = [part.ranks for part, _ in parts]
                active = (
                    active.among(np.isin(active.ranks, np.concatenate(ranks))) if ranks else None
                )
                if active is not None:
                    self._parted = (step, Scene(active, scene.variables), parts)
        if active is None or step.operation is None or step.handle is None:
            named = step.arguments.get("handles")
            if active is None or named is None:
                return active
            return self._find_concerned(named, active, scene)
        for name, ranks in [
            (step.handle, active.index),
            *self.name_handles(step, Scene(active, scene.variables)),
        ]:
            nowhere = np.zeros(active.world_size, np.bool_)
            self._started.setdefault(name, nowhere)[ranks] = True
        return active

    def name_handles(self, step: Step, scene: Scene) -> list[tuple[str, Any]]:
        """Return the handles that a call gives its work, each with the ranks that do."""
        active = scene.active
        if step.handle is None:
            return []
        if step.handle_index is None:
            return [(step.handle, active.index)]
        index = self._evaluation.read(step.handle_index, scene, read_integer)
        return [(name, active.ranks[rows]) for name, rows in _index(step.handle, index)[0].items()]

    def _find_concerned(self, named: Form, active: ActiveRanks, scene: Scene) -> ActiveRanks | None:
        """Return the ranks that started some of the work that is waited for."""
        mask = np.zeros(active.size, np.bool_)
        for handle in self._names(named, Scene(active, scene.variables))[0]:
            for name, rows in handle.items():
                if name in self._started:
                    mask[rows] |= self._started[name][active.ranks[rows]]
        return active.among(mask) if mask.any() else None

    def _names(self, named: Form, scene: Scene) -> tuple[list[dict[str, Any]], Any]:
        """Return the handles that are waited for, in order, and the argument as a label shows it.

        Each handle is by its name with the rows on which that is meant. `[w, rank % 2]`, an item of
        a list of handles, means `w[0]` on the even rows and `w[1]` on the odd ones.
        """
        given = self._evaluation.read(named, scene, _read_handles)
        found: list[dict[str, Any]] = []
        description: list[Any] = []
        for each in [given] if isinstance(given, str) else given:
            if isinstance(each, str):
                found.append({each: slice(None)})
                description.append(each)
                continue
            rows, number = _index(*each)
            found.append(rows)
            description.append([each[0], number])
        return found, given if isinstance(given, str) else description

    def _find_members(self, group: str, active: ActiveRanks) -> ActiveRanks | None:
        """Return the ranks that are members of their group of a name; None if none is.

        For a group without all ranks the numbers of the others are negative. Groups never change
        once they are made, so that the answer for the whole world is kept.
        """
        if group == WORLD:
            return active
        if active.everyone and group in self._members:
            return self._members[group]
        mask = concerns(self._memory.group_numbers(group)[active.index])
        inside = active.among(mask) if mask.any() else None
        if active.everyone:
            self._members[group] = inside
        return inside

    def handles(
        self, step: Step, operation: Waiting, scene: Scene
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the handles that are waited for, by their rows, and the arguments."""
        (param,) = operation.params
        names, description = self._names(step.arguments[param.name], scene)
        return names, {param.name: description}

    # ------------------------------------------------------------------ collectives

    def collective(
        self, step: Step, operation: Collective, scene: Scene
    ) -> tuple[dict[str, Value], str]:
        """Return the arguments of a collective: tensors, and what is the same for all or `[L]`."""
        arguments: dict[str, Value] = {}
        for param in operation.params:
            form = step.arguments.get(param.name)
            if param.kind == "group" or (param.kind in {"tensor", "tensors"} and form is None):
                continue
            if param.kind == "tensors":
                arguments[param.name] = self._evaluation.tensors(form, scene)
            elif param.kind == "tensor":
                arguments[param.name] = self._evaluation.argument(form, scene)
            else:
                arguments[param.name] = self._plain(step, param, scene)
        return arguments, group_of(step)

    def plain(self, step: Step, operation: Operation, scene: Scene) -> dict[str, Any]:
        """Return arguments without tensors; raises CohortError where ranks differ in them."""
        return {param.name: self._plain(step, param, scene) for param in operation.params}

    def _plain(self, step: Step, param: Param, scene: Scene) -> Value:
        form = step.arguments.get(param.name)
        if form is None:
            return param.default
        value = form.value if isinstance(form, Constant) else self._evaluation.value(form, scene)
        if value is None:
            return param.default
        return self._evaluation.guard(lambda: _convert(param, value))

    # ------------------------------------------------------------------ expectations

    def observe(self, step: Step, scene: Scene, looked_at: frozenset[str]) -> dict[str, Value]:
        """Return the values of the step's expectation keys that are more than a name, by text.

        With them are the numbers among the names that are `looked_at`.
        """
        found: dict[str, Value] = {}
        assert step.expect is not None
        for value in step.expect.values:
            key = value.key
            if key.before or self._is_name(key.text, scene):
                continue
            found[key.text] = copy_value(self._evaluation.value(key, scene))
        named = sorted(self._plan.numbers & looked_at & scene.variables.keys())
        return found | {name: self._evaluation.number(name, scene) for name in named}

    def _is_name(self, text: str, scene: Scene) -> bool:
        scenario = self._plan.scenario
        known = (scenario.tensors, scenario.constants, self._plan.introduced, scene.variables)
        return any(text in names for names in known) or text in {"rank", "world_size"}


def _read_handles(given: Value) -> str | list[Any]:
    """Return one handle, or several, an item of which is a name, or a name and an index."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise TypeError(given)
    return [each if isinstance(each, str) else [each[0], read_integer(each[1])] for each in given]


def _index(name: str, index: int | Lanes) -> tuple[dict[str, Any], Any]:
    """Return the handles `name[index]` by the rows on which each is meant, and the index itself.

    >>> _index("w", 3)
    ({'w[3]': slice(None, None, None)}, 3)
    >>> handles, numbers = _index("w", Lanes(np.array([0, 1, 0])))
    >>> {name: rows.tolist() for name, rows in handles.items()}, numbers.tolist()
    ({'w[0]': [0, 2], 'w[1]': [1]}, [0, 1, 0])
    """
    if isinstance(index, int):
        return {f"{name}[{index}]": slice(None)}, index
    numbers = index.values.astype(np.int64)
    parted = np.unique(numbers).tolist()
    return {f"{name}[{each}]": np.flatnonzero(numbers == each) for each in parted}, numbers


def _convert(param: Param, value: Value) -> Value:
    """Return a plain argument in the type of its kind, as the evaluator does.

    A rank may differ from rank to rank: then it is `[L]`. What cannot be read raises one of
    `CANNOT_COMPUTE`: the other engine says why.
    """
    if isinstance(value, Lanes) and value.kind == "i" and param.kind in {"rank", "group_rank"}:
        return value.values
    read = READ.get(param.kind)
    return read_same(value) if read is None else read(read_same(value))
