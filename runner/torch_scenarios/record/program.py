"""The records of all ranks -> one scenario file: a short program that does what they did.

Each call becomes a step with the function and arguments of `torch.distributed`, without values:
its tensors are zeros, and two have one name where they are alike and are never in use at once. The
place in the user's own files is the step's `at`. Names that a record holds are words: they become
no expression and no name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import count as count_from
from itertools import pairwise
from math import gcd, inf
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.display import clean_line
from torch_scenarios.errors import ScenarioError
from torch_scenarios.language.format import format_file
from torch_scenarios.limits import DEFAULT
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Collective, Slot
from torch_scenarios.record.fold import (
    Coordinate,
    Item,
    Leaf,
    Loop,
    Node,
    as_key,
    count,
    merge,
    number,
    ranks_text,
    selector,
)
from torch_scenarios.record.format import (
    BATCH,
    CREATION,
    RENDEZVOUS,
    Blocking,
    RankRecord,
    RecordedCall,
    RecordedKernels,
    RecordedWait,
    ScriptPlace,
    Tensor,
)
from torch_scenarios.vocabulary import DTYPES, REDUCE_OPS

WORLD = "world"

#: elements of all tensors of all ranks together from which on their sizes are reduced
MOST_ELEMENTS = 1 << 24

_SHORT = {"float": "f", "bfloat": "bf", "uint": "u", "int": "i", "complex": "c", "bool": "b"}

#: characters of an error, or of a place, that a scenario carries
MOST_WORDS = 180

#: columns of a line of YAML
WIDTH = 100

#: characters of a list that is written as it is, and not computed
SHORT = 30

#: dimensions of a mesh at most
MOST_DIMENSIONS = 5


#: operation of one message -> the argument that names the other rank
MESSAGES = {"send": "dst", "recv": "src"}
#: operations that leave something undefined where they are no root
LEAVING = frozenset({"reduce"})
#: what marks a tensor that is sent while the rank goes on: it may receive meanwhile
SENT = "sent"
#: operations whose tensors are rows of any number, which may differ by rank
ROWS = frozenset({"all_to_all_single"})


class TensorInUse(Struct, frozen=True, kw_only=True):
    """A tensor that an operation uses, by the name that it has in the scenario."""

    name: str
    tensor: Tensor
    writes: bool


#: work in flight on a rank, by its handle: the number of its call, and what it uses
Busy: TypeAlias = dict[str, tuple[int, tuple[TensorInUse, ...]]]

#: stands for the name of work that is waited for together with other work
TOGETHER = "*"
#: stands for the name of a receive that is waited for alone; marks its tensor
IN_ORDER = "#"
AHEAD = "ahead"
#: steps of a program from which on such receives are numbered where that makes it shorter
MOST_NAMED = 40
#: marks a wait that is at no place of the script: in torch's own code, or in another thread
ELSEWHERE = "elsewhere"
#: how much shorter it must become
SHORTER = 0.9
#: the kind of memory among which the buffers of calls count
BUFFERS = "activations"
#: turns of a loop whose numbers are listed, where they do not grow by as much in each
MOST_LISTED = 6


class ProgramStep(Struct, frozen=True, kw_only=True):
    """What a step has in common on all ranks that take it.

    `kind` is `call`, `await`, `create` (a group), `reset` (a tensor), `kernels` (`words` says how
    long they take) or `fail`.
    """

    kind: str = "call"
    operation: str = ""
    group: str = WORLD
    tensors: tuple[str, ...] = ()
    op: str | None = None
    root: int | None = None
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    handle: str | None = None
    is_async: bool = False
    has_peer: bool = False
    handles: tuple[str, ...] = ()
    words: str = ""
    ranks: tuple[int, ...] = ()
    local: bool = False


class BatchedMessage(Struct, frozen=True, kw_only=True):
    """One message of a `batch_isend_irecv`: how far its other rank is, by the way up."""

    operation: str
    tensor: str
    far: int
    tag: int


class Family(Struct, kw_only=True):
    """Groups of one name: each rank is in at most one of them."""

    name: str
    parts: list[tuple[int, ...]] = field(default_factory=list)
    #: whether they may be a dimension of a mesh, and are not groups that the script made one by one
    is_of_mesh: bool = True

    def members(self) -> list[int]:
        """Return the ranks that are in one of them."""
        return sorted(rank for part in self.parts for rank in part)

    def axis(self, world: int) -> tuple[int, int] | None:
        """Return stride and extent where the groups are those along one dimension of a mesh.

        None where they are not: the mesh has every rank of the world, row-major, the last
        dimension fastest, as in `torch.distributed.init_device_mesh`.
        """
        extent = len(self.parts[0])
        if extent * len(self.parts) != world:
            return None
        stride = self.parts[0][1] - self.parts[0][0] if extent > 1 else 0
        if stride < 0 or (extent > 1 and (not stride or world % (stride * extent))):
            return None
        for part in self.parts:
            first = part[0]
            if part != tuple(first + at * stride for at in range(extent)):
                return None
            if extent > 1 and first // stride % extent:
                return None
        return stride, extent


class RecordedProgram(Struct, frozen=True, kw_only=True):
    """One list of steps for all ranks, and the text of the scenario that it is."""

    text: str
    nodes: list[Node]
    programs: Mapping[int, Sequence[Item]]
    steps: int
    notes: tuple[str, ...] = ()


def program_of(
    records: Mapping[int, RankRecord],
    *,
    name: str = "recorded",
    about: str = "",
    folder: str = "",
    is_timed: bool = False,
) -> RecordedProgram:
    """Return the program of records by rank; ranks of the world without one are truncated.

    One that `is_timed` is there to be weighed, and not to be run: it has the sizes of the record,
    and tensors for the memory that the rank holds which holds most.
    """
    return _ProgramWriter(records, name, about, folder, is_timed=is_timed).program()


class _ProgramWriter:
    """Makes one scenario of the records of all ranks."""

    def __init__(
        self,
        records: Mapping[int, RankRecord],
        name: str,
        about: str,
        folder: str,
        *,
        is_timed: bool,
    ) -> None:
        self._records = records
        self._is_timed = is_timed
        #: the bytes of each tensor, by its name
        self._bytes: dict[str, int] = {}
        self._name, self._about, self._folder = name, about, folder
        self._world = max((each.world_size for each in records.values()), default=1)
        self._tensors: dict[str, str] = {}
        self._assumed: dict[Hashable, tuple[Item, ...]] = {}
        self._places_told: dict[tuple[int, bool], str] = {}
        self._notes: list[str] = []
        self._sizes = Sizes(records, is_true=is_timed)
        if self._sizes.reduced:
            self._notes.append(
                "the sizes of tensors are reduced: equal ones stay equal, and multiples multiples"
            )
        self._families: list[Family] = []
        #: the families that are the dimensions of one mesh, by its name
        self._meshes: dict[str, list[Family]] = {}
        #: whether some rank did not come to its end
        self._torn = any(each.truncated for each in records.values())
        #: whether a rank waits for others to begin
        self._waits_to_begin = any(
            isinstance(item, Blocking) and item.what == RENDEZVOUS and not item.over
            for record in records.values()
            for item in record.items[:8]
        )
        #: (rank, number of its group) -> name
        self._named: dict[tuple[int, int], str] = {}
        #: whether work that is waited for together is folded without a name
        self._is_together = True
        #: what a rank's steps of such work begin, or wait for
        self._links: dict[int, list[tuple[int, ...]]] = {}
        self._names: Mapping[int, Sequence[str]] = {}
        #: whether receives that are waited for alone are folded without a name, and those of steps
        self._is_numbered = False
        self._orders: dict[int, list[int]] = {}
        #: tensors of such receives: dtype and shape of one
        self._ahead: dict[str, tuple[str, tuple[int, ...]]] = {}
        #: `id` of a step -> the part of such a tensor that it takes
        self._parts: Mapping[int, str] = {}
        self._creating = self._find_groups()
        self._find_meshes()
        self._coordinates = self._dimensions()

    # ------------------------------------------------------------------ groups

    def _find_groups(self) -> bool:
        """Name all groups; returns whether their creations are steps, because ranks differ."""
        created = {rank: _creations(record) for rank, record in self._records.items()}
        lists = {
            rank: [(_list_ranks(each, self._world), each.local) for each in calls]
            for rank, calls in created.items()
        }
        local = any(is_local for each in lists.values() for _, is_local in each)
        whole = all(each.over for calls in created.values() for each in calls)
        alike = whole and not local and len({tuple(each) for each in lists.values()}) == 1
        described = {
            (rank, gid): (ranks, desc)
            for rank, record in self._records.items()
            for gid, (_, ranks, desc) in record.groups.items()
        }
        taken: set[str] = {WORLD}
        if alike:
            first = min(lists)
            members = [ranks for ranks, _ in lists[first]]
            families = self._families_of(members, created, described, taken)
            for rank, calls in created.items():
                for family, call in zip(families, calls, strict=True):
                    if call.group is not None:
                        self._named[rank, call.group] = family.name
        else:
            numbers: dict[tuple[tuple[int, ...], int], str] = {}
            for rank, calls in created.items():
                seen: dict[tuple[int, ...], int] = {}
                for call in calls:
                    ranks = _list_ranks(call, self._world)
                    at = seen[ranks] = seen.get(ranks, -1) + 1
                    found = numbers.get((ranks, at))
                    if found is None:
                        word = call.place.variable or "group"
                        found = numbers[ranks, at] = _fresh(word, taken)
                    if call.group is not None:
                        self._named[rank, call.group] = found
            self._step_names = numbers
        self._rest(described, taken)
        return not alike

    def _families_of(
        self,
        members: list[tuple[int, ...]],
        created: Mapping[int, list[Any]],
        described: Mapping[tuple[int, int], tuple[tuple[int, ...], str]],
        taken: set[str],
    ) -> list[Family]:
        found: list[Family] = []
        family: Family | None = None
        for at, ranks in enumerate(members):
            fits = (
                family is not None
                and len(ranks) == len(family.parts[0])
                and not set(ranks) & {rank for part in family.parts for rank in part}
            )
            if not fits or family is None:
                call = created[ranks[0]][at] if ranks and ranks[0] in created else None
                desc = described.get((ranks[0], call.group), ((), ""))[1] if call else ""
                word = _word(desc)
                if word == "group" and call is not None:
                    word = call.place.variable or word
                family = Family(name=_fresh(word, taken), is_of_mesh=_is_of_mesh(desc, call))
                self._families.append(family)
            family.parts.append(ranks)
            found.append(family)
        return found

    def _rest(
        self, described: Mapping[tuple[int, int], tuple[tuple[int, ...], str]], taken: set[str]
    ) -> None:
        """Name the groups whose creation was not seen: the world, and those that C++ made."""
        whole = tuple(range(self._world))
        wholes: dict[int, bool] = {}  # ranks that share a list of members are not asked again
        families: dict[tuple[str, int], list[Family]] = {}
        for (rank, gid), (ranks, desc) in sorted(described.items()):
            if (rank, gid) in self._named:
                continue
            is_whole = wholes.get(id(ranks))
            if is_whole is None:
                is_whole = wholes[id(ranks)] = ranks == whole
            if is_whole and desc in {"default_pg", "", "undefined"}:
                self._named[rank, gid] = WORLD
                continue
            known = families.setdefault((desc, len(ranks)), [])
            family = next((each for each in known if ranks in each.parts), None)
            if family is None:
                family = next(
                    (
                        each
                        for each in known
                        if not set(ranks) & {one for part in each.parts for one in part}
                    ),
                    None,
                )
                if family is None:
                    family = Family(name=_fresh(_word(desc), taken))
                    known.append(family)
                    self._families.append(family)
                family.parts.append(ranks)
            self._named[rank, gid] = family.name

    def _find_meshes(self) -> None:
        """Name families that are the dimensions of one mesh after it: `mesh.dp`."""
        names: dict[str, str] = {}
        taken = {each.name for each in self._families}
        rest = [
            each
            for each in self._families
            if each.is_of_mesh and each.axis(self._world) is not None
        ]
        while rest:
            dims = _mesh_among(rest, self._world)
            if dims is None:
                break
            mesh = _fresh("mesh", taken)
            for at, family in enumerate(dims):
                rest.remove(family)
                plain = family.name.startswith("group")
                names[family.name] = f"{mesh}.{f'dim_{at}' if plain else family.name}"
                family.name = names[family.name]
            self._meshes[mesh] = dims
        for key, name in self._named.items():
            self._named[key] = names.get(name, name)

    def _dimensions(self) -> list[Coordinate]:
        """Return where a rank is in each family that is regular, meshes first."""
        found = []
        regular = [each for dims in self._meshes.values() for each in dims]
        regular += [each for each in self._families if each not in regular]
        for family in regular:
            axis = family.axis(self._world)
            if axis is not None and 1 < axis[1] < self._world:
                text = f"group_rank({family.name})"
                stride, extent = axis
                found.append(Coordinate(text=text, group=family.name, stride=stride, extent=extent))
        return found

    # ------------------------------------------------------------------ steps

    def program(self) -> RecordedProgram:
        """Return the program."""
        programs, nodes = self._fold()
        lines = self._lines(nodes)
        return RecordedProgram(
            text=_lay_out("\n".join(lines) + "\n"),
            nodes=nodes,
            programs=programs,
            steps=_count(nodes),
            notes=tuple(self._notes),
        )

    def _fold(self) -> tuple[dict[int, tuple[Item, ...]], list[Node]]:
        """Return the program of each rank, and one list of nodes for all of them.

        Work that is waited for together has no name while it is folded. Where no names do what the
        records do, all work has a name of its own from the start, as it has on its rank.
        """
        for self._is_together in (True, False):
            programs, nodes, names = self._attempt(self._distance)
            if names is not None:
                break
        self._names = names or {}
        if _count(nodes) > MOST_NAMED and any(
            map(self._find_lone_receives, self._records.values())
        ):
            kept = dict(self._tensors)
            numbered = self._number(SHORTER * _count(nodes))
            if numbered is not None:
                return numbered
            self._tensors = kept
        return programs, nodes

    def _attempt(
        self, like: Callable[[int, Any], Hashable]
    ) -> tuple[dict[int, tuple[Item, ...]], list[Node], dict[int, list[str]] | None]:
        """Return programs, their nodes, and names of work; None where no names do."""
        self._tensors, self._assumed, self._links = {}, {}, {}
        self._orders, self._ahead = {}, {}
        known: dict[tuple[Item, ...], tuple[Item, ...]] = {}
        programs = {}
        for rank, record in sorted(self._records.items()):
            program = self._program(record)
            programs[rank] = known.setdefault(program, program)
        nodes = merge(programs, like)
        alike = {
            (id(programs[rank]), tuple(links)): rank for rank, links in self._links.items() if links
        }
        links = {rank: each for (_, each), rank in alike.items()}
        return programs, nodes, _UnnamedWork(nodes, links).names()

    def _number(self, most: float) -> tuple[dict[int, tuple[Item, ...]], list[Node]] | None:
        """Return programs and nodes whose receives are numbered.

        None where that has more than so many steps, or where no index says what a step waits for.
        """
        self._is_together, self._is_numbered = True, True
        chosen = None
        for like in (self._distance, self._way):
            try:
                programs, nodes, names = self._attempt(like)
            except _TouchedEarlyError:
                break
            if names is None or _count(nodes) > most:
                continue
            found = _NumberedWork(nodes, self._orders, self._world, self._coordinates).parts()
            if found is not None:
                most = _count(nodes) - 1
                chosen = programs, nodes, names, found, self._tensors, self._ahead
        self._is_numbered = False
        if chosen is None:
            return None
        programs, nodes, names, found, self._tensors, ahead = chosen
        for name, (dtype, shape) in ahead.items():
            for pool, size in found.sizes(name):
                dims = ", ".join(map(str, shape if size == 1 else (size, *shape)))
                self._tensors[f"{name}{pool}"] = _value(dtype, f'"zeros([{dims}])"')
        self._names, self._parts = {**names, **found.handles}, found.tensors
        return programs, nodes

    def _find_lone_receives(self, record: RankRecord) -> frozenset[int]:
        """Return the receives that are waited for later, once, in a step of their own."""
        if record.threaded:
            return frozenset()
        together = self._find_joint_waits(record) | self._batches(record).keys()
        waits = [each for each in record.items if isinstance(each, RecordedWait)]
        times = Counter(number for each in waits for number in each.numbers)
        return frozenset(
            call.number
            for call in record.calls
            if MESSAGES.get(call.operation) == "src"
            and not (call.completes or call.loose or call.coalesced)
            and call.waited
            and times[call.number] == 1
            and call.number not in together
            and len(call.outputs) == 1
        )

    def _way(self, rank: int, own: Any) -> Hashable:
        """Return how far from a rank its messages go by the shorter way around."""
        if own is not None and isinstance(own[0], int):
            return own[0] if own[0] <= self._world // 2 else own[0] - self._world
        return self._distance(rank, own)

    def _distance(self, rank: int, own: Any) -> Hashable:
        """Return how far from a rank its messages go, or those that it waits for."""
        if own is None or own[0] is None:
            return None
        far: Hashable = own
        if isinstance(own[0], int):
            far = (rank + own[0]) % self._world - rank
        elif isinstance(own[0], BatchedMessage):
            far = tuple((rank + each.far) % self._world - rank for each in own)
        return far

    def _program(self, record: RankRecord) -> tuple[Item, ...]:
        """Return the program of a rank; of those that only do their part in collectives, once."""
        if record.about.get("mode") != "assumed":
            return tuple(self._items(record))
        names = tuple((gid, self._named.get((record.rank, gid))) for gid in record.groups)
        key = (id(record.items), names)
        if key not in self._assumed:
            self._assumed[key] = tuple(self._items(record))
        return self._assumed[key]

    def _place(self, place: ScriptPlace, *, is_named: bool = True) -> str:
        """Return where a place stands, told from the folder of the script.

        With the function of torch that calls, if `is_named` and where the step does not say it.
        """
        key = id(place), is_named
        found = self._places_told.get(key)
        if found is None:
            brief = place if is_named else replace(place, api="")
            found = self._places_told[key] = brief.short(self._folder)
        return found

    def _items(self, record: RankRecord) -> Iterable[Item]:
        links = self._links[record.rank] = []
        work = _RankWork(
            together=self._find_joint_waits(record) if self._is_together else frozenset(),
            alone=self._find_lone_receives(record) if self._is_numbered else frozenset(),
            batches=self._batches(record),
            links=links,
            waits=_WaitStep(links),
        )
        self._orders[record.rank] = work.order
        for item in record.items:
            if isinstance(item, RecordedWait):
                yield from self._wait_of(item, work)
                continue
            yield from work.waits.steps()
            if isinstance(item, RecordedCall):
                yield from self._call_of(record.rank, item, work)
            elif isinstance(item, RecordedKernels):
                at = self._place(item.place) if item.synchronizes else ""
                yield ProgramStep(kind="kernels", words=_kernels_text(item)), (at, None)
            else:
                yield from self._write_blocking(record, item, self._place(item.place))
        yield from work.waits.steps()
        yield from self._end_of(record, work.loose.values(), work.in_use)

    def _wait_of(self, item: RecordedWait, work: _RankWork) -> Iterable[Item]:
        """Yield the steps of a wait, where it does not belong to one that goes on."""
        at = self._place(item.place, is_named=item.numbers[0] not in work.batches)
        names = [name for each in item.numbers for name in work.handles.get(each, ())]
        for each in item.numbers:
            for other in work.batches.get(each, ()):  # their one handle is waited for once
                work.handles[other.number] = []
        for name in names:
            work.in_use.pop(name, None)
        if not work.alone.isdisjoint(item.numbers):
            work.order += item.numbers
            yield from work.waits.alone(at)
        elif names:
            yield from work.waits.take(names, at)

    def _call_of(self, rank: int, item: RecordedCall, work: _RankWork) -> Iterable[Item]:
        """Yield the steps of a call; of a batch, where it begins."""
        at = self._place(item.place, is_named=item.number not in work.batches)
        batch = work.batches.get(item.number)
        if batch is not None:
            if item is batch[0]:
                begun = self._batch(rank, batch, at, work.handles, work.in_use)
                yield from _link([begun], work.waits, work.links)
            return
        if item.completes and item.operation not in MESSAGES and item.group_name in work.loose:
            # operations of a group end in order: what torch awaits somewhere has ended
            yield self._write_wait(work.loose.pop(item.group_name), work.in_use)
        if item.number in work.alone:
            work.order.append(item.number)
            yield self._ahead_of_use(rank, item, at, work.handles, work.in_use)
            return
        is_together = item.number in work.together
        called = self._call(rank, item, at, work.handles, work.in_use, is_together=is_together)
        yield from _link(called, work.waits, work.links)
        if item.loose:
            work.loose.setdefault(item.group_name, []).extend(work.handles[item.number])

    def _find_joint_waits(self, record: RankRecord) -> frozenset[int]:
        """Return the calls whose work is waited for once, in one step with the work of others."""
        runs = self._runs_of_waits(record)
        times = Counter(each for run in runs for each in run)
        return frozenset(each for run in runs if len(run) > 1 for each in run if times[each] == 1)

    def _runs_of_waits(self, record: RankRecord) -> list[list[int]]:
        """Return the numbers that a rank waits for without a call in between, at one place."""
        found: list[list[int]] = []
        before: tuple[bool, str] = False, ""
        for item in record.items:
            is_wait = isinstance(item, RecordedWait)
            now = is_wait, self._place(item.place)
            if isinstance(item, RecordedWait):
                if now != before:
                    found.append([])
                found[-1] += item.numbers
            before = now
        return found

    def _batches(self, record: RankRecord) -> dict[int, list[RecordedCall]]:
        """Return the messages of each `batch_isend_irecv` that is a step, by their numbers.

        It has one handle in a scenario, so its work is waited for once, in one step: the last one
        of the rank may have waited for a part of it only.
        """
        batches: dict[int, list[RecordedCall]] = {}
        after: dict[int, int] = {}
        for at, item in enumerate(record.items):
            if isinstance(item, RecordedCall) and item.batch is not None:
                if after.setdefault(item.batch, at) == at:
                    after[item.batch] = at + 1
                    batches.setdefault(item.batch, []).append(item)
                else:  # calls of another thread lie in between
                    batches[item.batch] = []
        if not batches:
            return {}
        runs = self._runs_of_waits(record)
        in_run = {each: at for at, run in enumerate(runs) for each in run}
        times = Counter(each for run in runs for each in run)
        last = len(runs) - 1 if record.truncated else -1
        if not isinstance(record.items[-1], RecordedWait):
            last = -1
        found: dict[int, list[RecordedCall]] = {}
        for batch in batches.values():
            waited = [in_run[call.number] for call in batch if call.number in in_run]
            is_whole = len(waited) in {0, len(batch)} or set(waited) == {last}
            if (
                is_whole
                and len(set(waited)) <= 1
                and all(times[call.number] <= 1 for call in batch)
                and len({call.group_name for call in batch}) == 1
                and not any(call.completes or call.loose or call.peer is None for call in batch)
            ):
                found.update((call.number, batch) for call in batch)
        return found

    def _write_blocking(self, record: RankRecord, item: Blocking, at: str) -> Iterable[Item]:
        """Yield the step of a call that is no operation, where it has one."""
        if item.what == CREATION and self._creating:
            ranks = _list_ranks(item, self._world)
            name = self._step_name(record, item, ranks)
            yield (
                ProgramStep(kind="create", words=name, ranks=ranks, local=item.local),
                (at, None),
            )
        elif item.what == RENDEZVOUS and self._waits_to_begin:
            # it waits for every rank, as a barrier does; a later one is of another world
            before = [
                each
                for each in record.items
                if isinstance(each, Blocking)
                and each.what == RENDEZVOUS
                and each.number < item.number
            ]
            name = f"{RENDEZVOUS}_{len(before) + 1}" if before else RENDEZVOUS
            yield ProgramStep(operation="barrier", words=name), (at, None)

    def _write_wait(self, names: list[str], busy: dict[str, Any]) -> Item:
        for name in names:
            busy.pop(name, None)
        # its words keep it apart from a wait of another rank that is at a place of the script
        return ProgramStep(kind="await", handles=tuple(names), words=ELSEWHERE), ("", None)

    def _end_of(
        self, record: RankRecord, loose: Iterable[list[str]], busy: dict[str, Any]
    ) -> Iterable[Item]:
        """Yield the waits that are nowhere else, and how a rank fails, where it does."""
        for names in loose if not record.truncated else ():
            yield self._write_wait(names, busy)
        if record.ending == "raised" and record.error is not None:
            at = record.raised_at.short(self._folder)
            yield ProgramStep(kind="fail", words=record.error), (at, None)
        elif record.ending == "ended" and record.code and self._torn:
            yield ProgramStep(kind="fail"), ("", None)

    def _step_name(self, record: RankRecord, item: Blocking, ranks: tuple[int, ...]) -> str:
        before = [
            each
            for each in _creations(record)
            if each.number < item.number and _list_ranks(each, self._world) == ranks
        ]
        return self._step_names[ranks, len(before)]

    def _call(
        self,
        rank: int,
        call: RecordedCall,
        at: str,
        handles: dict[int, list[str]],
        busy: Busy,
        *,
        is_together: bool,
    ) -> Iterable[Item]:
        """Yield the steps of a call: one, or one for each tensor of a coalesced one."""
        group = self._named.get((rank, int(call.group_name)), WORLD)
        is_async = not call.completes
        parts: list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = [(call.inputs, call.outputs)]
        if call.coalesced and call.operation.endswith("single"):
            parts = [
                ((one,), (other,)) for one, other in zip(call.inputs, call.outputs, strict=True)
            ]
        for inputs, outputs in parts:
            used: list[TensorInUse] = []
            names = self._tensors_of(call, inputs, outputs, busy, used)
            handle = None
            if is_async:
                is_named = not is_together or call.loose
                handle = next(name for name in _handles() if name not in busy)
                if not is_named:
                    handle = f"{TOGETHER}{len(handles)}.{len(handles.get(call.number, ()))}"
                # work that is never waited for may use its memory at any time
                held = (
                    used
                    if call.waited and not call.loose
                    else [replace(each, tensor=_NOWHERE, writes=True) for each in used]
                )
                busy[handle] = (call.number, tuple(held))
                handles.setdefault(call.number, []).append(handle)
                ended = call.dropped or not self._records[rank].truncated
                if ended and not call.waited and not call.loose:
                    # its handle is lost: the next one has another name
                    lost = handle
                    handle = None
                    del busy[lost]
            operation = call.operation
            root = None
            if call.root is not None:
                root = call.group.index(call.root)
            if operation in LEAVING:
                yield ProgramStep(kind="reset", tensors=names), (at, None)
            own: Hashable = None
            if call.peer is not None:
                own = ((call.peer - rank) % self._world, call.tag)
            elif operation in MESSAGES:
                own = (None, call.tag)
            yield (
                ProgramStep(
                    operation=operation,
                    group=group,
                    tensors=names,
                    op=call.op if call.op in {*REDUCE_OPS} else ("sum" if call.op else None),
                    root=root,
                    splits=call.splits,
                    handle=handle,
                    is_async=is_async,
                    has_peer=call.peer is not None,
                ),
                (at, own),
            )

    def _batch(
        self,
        rank: int,
        batch: Sequence[RecordedCall],
        at: str,
        handles: dict[int, list[str]],
        open_work: Busy,
    ) -> Item:
        """Return the step of a `batch_isend_irecv`."""
        first = batch[0]
        handle = next(name for name in _handles() if name not in open_work)
        if self._is_together:
            handle = f"{TOGETHER}{len(handles)}"
        waited = any(call.waited for call in batch)
        held: list[TensorInUse] = []
        parts = []
        for call in batch:
            used: list[TensorInUse] = []
            (tensor,) = self._tensors_of(call, call.inputs, call.outputs, open_work, used)
            held += used if waited else [replace(x, tensor=_NOWHERE, writes=True) for x in used]
            open_work[handle] = first.number, tuple(held)
            handles[call.number] = [handle]
            assert call.peer is not None
            parts.append(
                BatchedMessage(
                    operation=f"i{call.operation}",
                    tensor=tensor,
                    far=(call.peer - rank) % self._world,
                    tag=call.tag,
                )
            )
        ended = any(call.dropped for call in batch) or not self._records[rank].truncated
        is_lost = ended and not waited
        if is_lost:
            del open_work[handle]
        step = ProgramStep(
            operation=BATCH,
            group=self._named.get((rank, int(first.group_name)), WORLD),
            handle=None if is_lost else handle,
            is_async=True,
        )
        return step, (at, tuple(parts))

    def _ahead_of_use(
        self, rank: int, call: RecordedCall, at: str, handles: dict[int, list[str]], open_work: Busy
    ) -> Item:
        """Return the step of a receive without a name, which is waited for later.

        Raises _TouchedEarlyError where its memory is in use: then names matter.
        """
        (tensor,) = call.outputs
        if any(_overlap(tensor, each.tensor) for _, held in open_work.values() for each in held):
            raise _TouchedEarlyError
        dtype = tensor.dtype if tensor.dtype in DTYPES else "uint8"
        shape = self._shape(call, tensor)
        name = f"{_short(dtype)}_{'x'.join(map(str, shape)) or 'scalar'}_{AHEAD}"
        self._ahead[name] = dtype, shape
        handle = f"{IN_ORDER}{call.number}"
        open_work[handle] = (call.number, (TensorInUse(name=name, tensor=tensor, writes=True),))
        handles[call.number] = [handle]
        own = None if call.peer is None else (call.peer - rank) % self._world
        step = ProgramStep(
            operation=call.operation,
            group=self._named.get((rank, int(call.group_name)), WORLD),
            tensors=(name,),
            handle=IN_ORDER,
            is_async=True,
            has_peer=call.peer is not None,
        )
        return step, (at, (own, call.tag))

    def _tensors_of(
        self,
        call: RecordedCall,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        busy: Busy,
        used: list[TensorInUse],
    ) -> tuple[str, ...]:
        """Return the names of what a call passes, in the order of the operation's arguments."""
        found = []
        for slot in _slots(call.operation):
            writes = slot.of.startswith("out") or BY_NAME[call.operation].in_place
            tensors = inputs if slot.of.startswith("in") else outputs
            if slot.of.endswith("s"):
                # who is no root passes no list: its size is that of the group
                other = outputs if tensors is inputs else inputs
                listed = tensors or (_many(other[0], len(call.group)),)
                found.append(self._list_of(call, listed, busy, used, slot.mark, writes=writes))
            elif tensors:
                first = tensors[0]
                shape = self._shape(call, first)
                is_sent = MESSAGES.get(call.operation) == "dst" and not call.completes
                mark = SENT if is_sent else slot.mark
                found.append(self._name_of(first, shape, busy, used, mark, writes=writes))
        return tuple(found)

    def _shape(self, call: RecordedCall, tensor: Tensor) -> tuple[int, ...]:
        if call.operation in ROWS and self._sizes.reduced:
            return tensor.shape[:1]
        return self._sizes.of(tensor)

    def _name_of(
        self,
        tensor: Tensor,
        shape: tuple[int, ...],
        busy: Busy,
        used: list[TensorInUse],
        mark: str = "",
        *,
        writes: bool,
    ) -> str:
        dtype = tensor.dtype if tensor.dtype in DTYPES else "uint8"
        base = f"{_short(dtype)}_{'x'.join(map(str, shape)) or 'scalar'}"
        base += f"_{mark}" if mark else ""
        value = f"zeros([{', '.join(map(str, shape))}])"
        return self._slot(base, dtype, f'"{value}"', tensor, busy, used, writes=writes)

    def _list_of(
        self,
        call: RecordedCall,
        tensors: Sequence[Tensor],
        busy: Busy,
        used: list[TensorInUse],
        mark: str = "",
        *,
        writes: bool,
    ) -> str:
        first = tensors[0] if tensors else Tensor(dtype="float32", shape=())
        dtype = first.dtype if first.dtype in DTYPES else "uint8"
        shapes = [self._shape(call, each) for each in tensors for _ in range(each.count)]
        if len(set(shapes)) == 1:
            inner = ", ".join(map(str, shapes[0]))
            value = f"[zeros([{inner}]) for i in range({len(shapes)})]"
            base = f"{_short(dtype)}_{'x'.join(map(str, shapes[0])) or 'scalar'}_of_{len(shapes)}"
        else:
            value = f"[{', '.join(f'zeros({list(each)})' for each in shapes)}]"
            base = f"{_short(dtype)}_list_of_{len(shapes)}"
        base += f"_{mark}" if mark else ""
        whole = Tensor(
            dtype=dtype,
            shape=(),
            address=min((each.address for each in tensors), default=0),
            size=sum(each.size for each in tensors),
        )
        return self._slot(base, dtype, f'"{value}"', whole, busy, used, writes=writes)

    def _slot(
        self,
        base: str,
        dtype: str,
        value: str,
        tensor: Tensor,
        busy: Busy,
        used: list[TensorInUse],
        *,
        writes: bool,
    ) -> str:
        """Return the first name that no work in flight uses for other memory."""
        open_accesses = [each for _, held in busy.values() for each in held]
        for each in open_accesses:
            if each.name in self._ahead and _overlap(tensor, each.tensor):
                raise _TouchedEarlyError
            if _overlap(tensor, each.tensor) and self._tensors.get(each.name) == _value(
                dtype, value
            ):
                used.append(TensorInUse(name=each.name, tensor=tensor, writes=writes))
                return each.name
        # many may read one tensor at once
        taken = {each.name for each in open_accesses if writes or each.writes}
        taken |= {each.name for each in used}
        count = 1
        while True:
            name = base if count == 1 else f"{base}_n{count}"
            wanted = _value(dtype, value)
            if name not in taken and self._tensors.get(name, wanted) == wanted:
                self._tensors[name] = wanted
                self._bytes[name] = tensor.size
                used.append(TensorInUse(name=name, tensor=tensor, writes=writes))
                return name
            count += 1

    # ------------------------------------------------------------------ the text

    def _lines(self, nodes: list[Node]) -> list[str]:
        truncated = sorted(
            rank
            for rank in range(self._world)
            if rank not in self._records or self._records[rank].truncated
        )
        lines = ["version: 1", f"name: {quote(self._name)}"]
        if self._about or self._notes:
            lines.append(f"description: {quote(' '.join([self._about, *self._notes]).strip())}")
        lines += ["tags: [recorded]", f"world_size: {self._world}"]
        lines += self._group_lines()
        steps = self._step_lines(nodes, range(self._world), 1)
        reset = {
            name
            for node in _leaves(nodes)
            if node.key.kind == "reset"  # type: ignore[attr-defined]
            for name in node.key.tensors  # type: ignore[attr-defined]
        }
        named = {name: value for name, value in self._tensors.items() if name not in reset}
        if self._is_timed:
            named |= self._declare_held()
        if named:
            lines.append("tensors:")
            lines += [f"  {name}: {value}" for name, value in sorted(named.items())]
        lines.append("steps:")
        lines += steps or ["  - sleep: 0s"]
        if truncated:
            which = "all" if len(truncated) == self._world else ranks_text(truncated)
            lines.append(f"truncated: {which}")
        return lines

    def _declare_held(self) -> dict[str, str]:
        """Return tensors for what the rank holds that holds most, but for what it communicates."""
        most = max((each.held for each in self._records.values()), key=lambda x: sum(x.values()))
        sent = sum(self._bytes[name] for name in self._tensors if name in self._bytes)
        found = {}
        for kind, size in most.items():
            rest = max(0, size - sent) if kind == BUFFERS else size
            if rest:
                found[f"held_{kind}"] = f"{{shape: {rest}, value: 0, dtype: uint8}}"
        return found

    def _group_lines(self) -> list[str]:
        lines = []
        dims = {id(each): mesh for mesh, found in self._meshes.items() for each in found}
        written: set[str] = set()
        for family in self._families:
            mesh = dims.get(id(family))
            if mesh is None:
                lines.append(f"  {family.name}: {self._group_text(sorted(family.parts))}")
            elif mesh not in written:
                written.add(mesh)
                shape = [len(each.parts[0]) for each in self._meshes[mesh]]
                names = [each.name.removeprefix(f"{mesh}.") for each in self._meshes[mesh]]
                lines.append(f"  {mesh}: {{shape: {shape}, dims: {_flow(names)}}}")
        return ["groups:", *lines] if lines else []

    def _group_text(self, parts: list[tuple[int, ...]]) -> str:
        if len(parts) == 1:
            if list(parts[0]) != sorted(parts[0]):
                return f"{{ranks: {list(parts[0])}, sort_ranks: false}}"
            return ranks_text(parts[0])
        axis = Family(name="", parts=parts).axis(self._world)
        if axis is not None and axis[0] < 2:
            return f"{{size: {axis[1]}}}"
        listed = str([list(part) for part in parts])
        if axis is None or len(listed) < SHORT:
            return f"{{partition: {listed}}}"
        stride, extent = axis
        if stride * extent == self._world:
            return f'{{partition: "[range(i, {self._world}, {stride}) for i in range({stride})]"}}'
        block = stride * extent
        inner = f"range(i + j, i + j + {block}, {stride})"
        outer = f"for i in range(0, {self._world}, {block}) for j in range({stride})"
        return f'{{partition: "[{inner} {outer}]"}}'

    def _step_lines(self, nodes: Sequence[Node], among: Iterable[int], depth: int) -> list[str]:
        lines: list[str] = []
        indent = "  " * depth
        inside = list(among)
        for node in nodes:
            if isinstance(node, Loop):
                ranks = sorted(node.ranks)
                chosen = selector(ranks, inside, self._world, self._coordinates)
                turns = count(node.ranks, self._world, self._coordinates)
                first = f'for: {{i{depth // 2}: "range({turns})"}}'
                lines.append(f"{indent}- {first}")
                if chosen is not None:
                    lines.append(f"{indent}  ranks: {chosen}")
                lines.append(f"{indent}  steps:")
                lines += self._step_lines(node.body, ranks, depth + 2)
                continue
            lines += self._leaf_lines(node, inside, indent)
        return lines

    def _leaf_lines(self, node: Leaf, inside: list[int], indent: str) -> list[str]:
        step: Any = node.key
        if id(node) in self._parts:
            step = replace(step, tensors=(self._parts[id(node)],))
        ranks = sorted(node.ranks)
        members = self._members(step.group) if step.kind == "call" else None
        everyone = inside if members is None else [rank for rank in inside if rank in members]
        chosen = selector(ranks, everyone, self._world, self._coordinates)
        lines = [self._action(step, node.ranks) if step.kind != "await" else self._wait(node)]
        if step.kind == "call" and step.words:
            lines.insert(0, f"name: {step.words}")
        if chosen is not None:
            lines.insert(0, f"ranks: {chosen}")
        if step.handle is not None:
            is_named = step.handle not in {TOGETHER, IN_ORDER}
            handle = step.handle if is_named else self._names[id(node)][0]
            lines.append(f"as: {handle}")
        places = {rank: str(place) for rank, (place, _) in node.ranks.items() if place}
        if places:
            lines.append(f"at: {self._places(places)}")
        line = f"{indent}- {{{', '.join(lines)}}}"
        if len(line) <= WIDTH:
            return [line]
        if step.operation == BATCH:
            listed = [f"    - {each}" for each in self._write_batch(step, node.ranks)]
            at = next(at for at, part in enumerate(lines) if part.startswith(BATCH))
            lines[at : at + 1] = [f"{BATCH}:", "  p2p_op_list:", *listed]
        return [f"{indent}{'- ' if at == 0 else '  '}{part}" for at, part in enumerate(lines)]

    def _places(self, places: Mapping[int, str]) -> str:
        """Return where a step stands: on each rank at its own place, or everywhere at one."""
        by_place: dict[str, list[int]] = {}
        for rank, place in sorted(places.items()):
            by_place.setdefault(place, []).append(rank)
        if len(by_place) == 1:
            return quote(next(iter(by_place)))
        last = max(by_place, key=lambda place: len(by_place[place]))
        everyone = sorted(places)
        lines = []
        for place, ranks in by_place.items():
            if place != last:
                chosen = selector(ranks, everyone, self._world, self._coordinates)
                lines.append(f"{as_key(str(chosen))}: {quote(place)}")
        return f"{{{', '.join([*lines, f'else: {quote(last)}'])}}}"

    def _members(self, group: str) -> set[int] | None:
        family = next((each for each in self._families if each.name == group), None)
        if family is not None:
            return set(family.members())
        if self._creating:
            found = [ranks for (ranks, _), name in self._step_names.items() if name == group]
            return set(found[0]) if found else None
        return None

    def _action(self, step: ProgramStep, own: Mapping[int, Any]) -> str:
        """Return the operation with its arguments, as YAML."""
        if step.kind != "call":
            return self._other(step)
        if step.operation == BATCH:
            return f"{BATCH}: {{p2p_op_list: [{', '.join(self._write_batch(step, own))}]}}"
        given: list[str] = []
        for slot, name in zip(_slots(step.operation), step.tensors, strict=False):
            value = f"'[{name}]'" if slot.wrapped else name
            given.append(
                self._at_root(slot.name, name, step) if slot.at_root else f"{slot.name}: {value}"
            )
        if step.splits[0]:
            given.append(f"output_split_sizes: {list(step.splits[0])}")
        if step.splits[1]:
            given.append(f"input_split_sizes: {list(step.splits[1])}")
        given += self._number_peers(step, own)
        if step.op is not None and step.op != "sum":
            given.append(f"op: {step.op}")
        if step.group != WORLD:
            given.append(f"group: {step.group}")
        message = step.operation in MESSAGES
        if step.is_async and not message:
            given.append("async_op: true")
        name = f"i{step.operation}" if step.is_async and message else step.operation
        return f"{name}: {{{', '.join(given)}}}"

    def _write_batch(self, step: ProgramStep, own: Mapping[int, Any]) -> Iterator[str]:
        """Yield each message of a batch as YAML: those of all ranks that take the step."""
        programs = {
            rank: [((each.operation, each.tensor), ("", (each.far, each.tag))) for each in parts]
            for rank, (_, parts) in own.items()
        }
        for node in merge(programs, self._distance, is_folded=False):
            assert isinstance(node, Leaf)
            key: Any = node.key
            operation, tensor = key
            given = [f"op: {operation}", f"tensor: {tensor}"]
            far = {rank: each for rank, (_, each) in node.ranks.items()}
            peers = {rank: (rank + each) % self._world for rank, (each, _) in far.items()}
            given.append(f"peer: {number(peers, self._world, self._coordinates)}")
            tags = {rank: tag for rank, (_, tag) in far.items()}
            if any(tags.values()):
                given.append(f"tag: {number(tags, self._world, self._coordinates)}")
            if step.group != WORLD:
                given.append(f"group: {step.group}")
            chosen = selector(node.ranks, sorted(own), self._world, self._coordinates)
            if chosen is not None:
                given.append(f"ranks: {chosen}")
            yield f"{{{', '.join(given)}}}"

    def _wait(self, node: Leaf) -> str:
        step: Any = node.key
        names = [each for each in step.handles if each not in {TOGETHER, IN_ORDER}]
        names += self._names.get(id(node), ())
        return f"wait: {names[0] if len(names) == 1 else _flow(names)}"

    def _other(self, step: ProgramStep) -> str:
        """Return what is no call of a collective or a message, as YAML."""
        if step.kind == "kernels":
            return f"compute: {{{step.words}}}"
        if step.kind == "fail":
            return f"fault: {f'{{raise: {quote(step.words)}}}' if step.words else 'exit'}"
        if step.kind == "create":
            more = ", use_local_synchronization: true" if step.local else ""
            return f"new_group: {{name: {step.words}, group_ranks: {list(step.ranks)}{more}}}"
        name = step.tensors[0]
        value = self._tensors[name]
        inner = value.partition("value: ")[2].rstrip("}").strip('"')
        dtype = value.partition("dtype: ")[2].partition(",")[0]
        return f'compute: {{{name}: "astype({inner}, {dtype})"}}'

    def _number_peers(self, step: ProgramStep, placed: Mapping[int, tuple[Any, Any]]) -> list[str]:
        """Return the arguments that name another rank."""
        if step.root is not None:
            operation = BY_NAME[step.operation]
            assert isinstance(operation, Collective)
            word = f"group_{operation.rooted}"
            if step.group == WORLD:
                word = word.removeprefix("group_")
            return [f"{word}: {step.root}"]
        if step.operation not in MESSAGES:
            return []
        own = {rank: each for rank, (_, each) in placed.items()}
        given = []
        if step.has_peer:
            peers = {rank: (rank + each[0]) % self._world for rank, each in own.items()}
            numbers = number(peers, self._world, self._coordinates)
            given.append(f"{MESSAGES[step.operation]}: {numbers}")
        tags = {rank: each[1] for rank, each in own.items()}
        if any(tags.values()):
            given.append(f"tag: {number(tags, self._world, self._coordinates)}")
        return given

    def _at_root(self, word: str, name: str, step: ProgramStep) -> str:
        if step.group == WORLD:
            return f"{word}: {{{step.root}: {name}}}"
        return f'{word}: {{"group_rank({step.group}) == {step.root}": {name}}}'


# -------------------------------------------------------------------------------------------------
# Names of work that is waited for together.

#: names that a step waits for at most, before the work of all of them has one
MOST_NAMES = 8

#: of a rank, in order: the number of the work that a step begins, the numbers that one waits for
Links: TypeAlias = Sequence[tuple[int, ...]]


class _Site(Struct, kw_only=True):
    """A step that begins work: the loops around it, and whose work is in flight beside its own."""

    loops: int
    turns: int
    is_indexed: bool = False
    beside: set[int] = field(default_factory=set)


class _UnnamedWork:
    """The steps that begin work which is waited for together, and those that wait for it."""

    def __init__(self, nodes: Sequence[Node], links: Mapping[int, Links]) -> None:
        self._nodes, self._links = nodes, links
        #: `id` of a step -> the step that begins work, in the order of the program
        self._sites: dict[int, _Site] = {}
        #: `id` of a wait -> those of the steps that begin what it waits for
        self._waits: dict[int, set[int]] = {}
        self._named: set[str] = set()
        #: `id` of a node -> with such steps
        self._has_any: set[int] = set()
        self._look_at(nodes, 0, 1)
        for rank in links:
            self._follow(rank)

    def names(self) -> dict[int, list[str]] | None:
        """Return the name of each step's work, and those that each waits for; None if none fit."""
        for given in (
            self._in_pools(),
            self._give_names(is_shared=True),
            self._give_names(is_shared=False),
        ):
            found = {at: [self._write(at, *each)] for at, each in given.items()}
            for wait, sites in self._waits.items():
                found[wait] = list(dict.fromkeys(given[at][0] for at in given if at in sites))
            if all(self._is_right(rank, given, found) for rank in self._links):
                return found
        return None

    def _look_at(self, nodes: Sequence[Node], loops: int, turns: int) -> bool:
        """Find the steps in some nodes; returns whether there are any."""
        before = len(self._has_any)
        for node in nodes:
            if isinstance(node, Loop):
                if self._look_at(node.body, loops + 1, max(node.ranks.values())):
                    self._has_any.add(id(node))
                continue
            step: Any = node.key
            self._named |= {step.handle, *step.handles} - {None, TOGETHER, IN_ORDER}
            if step.handle == TOGETHER:
                self._sites[id(node)] = _Site(loops=loops, turns=turns)
                self._has_any.add(id(node))
            elif TOGETHER in step.handles:
                self._waits[id(node)] = set()
                self._has_any.add(id(node))
        return len(self._has_any) > before

    def _walk(
        self, nodes: Sequence[Node], rank: int, turns: tuple[int, ...] = ()
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the steps of a rank that begin such work, or wait for it, and the turns then."""
        for node in nodes:
            if rank not in node.ranks or id(node) not in self._has_any:
                continue
            if isinstance(node, Leaf):
                yield id(node), turns
                continue
            for turn in range(node.ranks[rank]):
                yield from self._walk(node.body, rank, (*turns, turn))

    def _follow(self, rank: int) -> None:
        open_accesses: dict[int, int] = {}
        steps = self._walk(self._nodes, rank)
        for (at, _), numbers in zip(steps, self._links[rank], strict=True):
            site = self._sites.get(at)
            if site is None:
                self._waits[at] |= {open_accesses.pop(each) for each in numbers}
                continue
            others = set(open_accesses.values())
            site.is_indexed |= at in others
            for other in others:
                site.beside.add(other)
                self._sites[other].beside.add(at)
            open_accesses[numbers[0]] = at

    def _in_pools(self) -> dict[int, tuple[str, int | None]]:
        """Return names as :meth:`_give_names`; much work that one step waits for has one name."""
        found = self._give_names(is_shared=True)
        pools: dict[int, set[int]] = {at: {at} for at in self._sites}
        for sites in self._waits.values():
            whole = set().union(*(pools[at] for at in sites))
            for at in whole:
                pools[at] = whole
        many = [
            pool
            for pool in {id(each): each for each in pools.values()}.values()
            if len({found[at][0] for at in pool})
            > (1 if any(map(self._is_indexed, pool)) else MOST_NAMES)
        ]
        pooled = set().union(*many)
        taken = self._named | {name for at, (name, _) in found.items() if at not in pooled}
        for pool in many:
            name = next(name for name in _fresh_names("works") if name not in taken)
            taken.add(name)
            offset = 0
            for at in self._sites:
                if at in pool:
                    found[at] = name, offset
                    offset += self._sites[at].turns if self._is_indexed(at) else 1
        return found

    def _is_indexed(self, at: int) -> bool:
        return self._sites[at].is_indexed

    def _give_names(self, *, is_shared: bool) -> dict[int, tuple[str, int | None]]:
        """Return for each step the name of its work, and its index in the first turn, if any.

        With `is_shared` work that is not in flight at once may have one name.
        """
        found: dict[int, tuple[str, int | None]] = {}
        for at, site in self._sites.items():
            taken = set(self._named)
            for other, (name, index) in found.items():
                if not is_shared or site.is_indexed or index is not None or other in site.beside:
                    taken.add(name)
            names = _fresh_names("works") if site.is_indexed else _handles()
            name = next(name for name in names if name not in taken)
            found[at] = name, 0 if site.is_indexed else None
        return found

    def _write(self, at: int, name: str, first: int | None) -> str:
        site = self._sites[at]
        if first is None:
            return name
        if not site.is_indexed:
            return f'"{name}[{first}]"'
        return f'"{name}[{f"{first} + " if first else ""}i{site.loops - 1}]"'

    def _is_right(
        self,
        rank: int,
        given: Mapping[int, tuple[str, int | None]],
        found: Mapping[int, Sequence[str]],
    ) -> bool:
        """Whether a rank waits for what its record waits for, and for nothing twice."""
        open_accesses: dict[str, dict[int, int]] = {}  # name -> turn -> number
        steps = self._walk(self._nodes, rank)
        for (at, turns), numbers in zip(steps, self._links[rank], strict=True):
            site = self._sites.get(at)
            if site is not None:
                name, first = given[at]
                own = open_accesses.setdefault(name, {})
                index = (first or 0) + (turns[-1] if site.is_indexed and turns else 0)
                if index in own:
                    return False
                own[index] = numbers[0]
                continue
            awaited = [open_accesses[name] for name in found[at] if name in open_accesses]
            if not all(awaited):
                return False
            if {each for own in awaited for each in own.values()} != set(numbers):
                return False
            for own in awaited:
                own.clear()
        return True


# -------------------------------------------------------------------------------------------------
# Numbers of receives that are waited for alone.


class _TouchedEarlyError(Exception):
    """The memory of a receive is touched before it is over."""


class _NumberedParts(Struct, frozen=True, kw_only=True):
    """What such receives are called: by the `id` of a step its handle, and its tensor.

    `pools` has by the name of a tensor how many of it there are, in each pool of receives.
    """

    handles: Mapping[int, list[str]]
    tensors: Mapping[int, str]
    pools: Mapping[str, Mapping[str, int]]

    def sizes(self, name: str) -> list[tuple[str, int]]:
        """Return of a tensor the pools, and how many there are in each."""
        return sorted(self.pools.get(name, {}).items())


class _NumberedWork:
    """The steps that begin receives, and those that wait for one: which, is an index.

    Receives of which one step waits for some are a pool. Those of a pool are numbered on each rank
    as they begin, from 0 when none is under way. Where the numbers of a step grow alike with each
    turn of its loop, on every rank, they are its index::

        turn           0     1     2     3
        irecv ahead    2     3     4     5      ahead[i1 + 2]
        wait           0     1     2     3      ahead[i1]
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        orders: Mapping[int, Sequence[int]],
        world: int,
        coordinates: Sequence[Coordinate],
    ) -> None:
        self._nodes, self._world, self._coordinates = nodes, world, coordinates
        #: of each rank, in order: the step, the turns of its loops, the number of its receive
        self._events = {
            rank: [
                (node, turns, each)
                for (node, turns), each in zip(self._walk(nodes, rank), order, strict=True)
            ]
            for rank, order in orders.items()
            if order
        }
        #: `id` of a step -> that of the one which stands for its pool
        self._pools: dict[int, int] = {}
        for events in self._events.values():
            begun: dict[int, int] = {}
            for node, _, each in events:
                if each in begun:
                    self._pools[self._pool(id(node))] = self._pool(begun[each])
                else:
                    begun[each] = id(node)

    def _walk(
        self, nodes: Sequence[Node], rank: int, turns: tuple[int, ...] = ()
    ) -> Iterator[tuple[Leaf, tuple[int, ...]]]:
        for node in nodes:
            if rank not in node.ranks:
                continue
            if isinstance(node, Loop):
                for turn in range(node.ranks[rank]):
                    yield from self._walk(node.body, rank, (*turns, turn))
                continue
            step: Any = node.key
            if step.handle == IN_ORDER or IN_ORDER in step.handles:
                yield node, turns

    def _pool(self, at: int) -> int:
        while self._pools.setdefault(at, at) != at:
            at = self._pools[at]
        return at

    def parts(self) -> _NumberedParts | None:
        """Return what the receives are called; None where no index says which one is meant."""
        return self._name(is_eager=True) or self._name(is_eager=False)

    def _name(self, *, is_eager: bool) -> _NumberedParts | None:
        """Return names; numbers begin anew when none is under way, eagerly or in a new turn."""
        steps: dict[int, Leaf] = {}
        seen: dict[int, dict[int, list[tuple[tuple[int, ...], int]]]] = {}
        for rank, events in self._events.items():
            indices = self._indices(events, is_eager=is_eager)
            for node, turns, each in events:
                steps[id(node)] = node
                seen.setdefault(id(node), {}).setdefault(rank, []).append((turns, indices[each]))
        texts: dict[int, str] = {}
        most: Counter[int] = Counter()
        for at, by_rank in seen.items():
            text = self._index(by_rank)
            if text is None:
                return None
            texts[at] = text
            indices_of = [index for some in by_rank.values() for _, index in some]
            most[self._pool(at)] = max(most[self._pool(at)], 1 + max(indices_of))
        pools = list(dict.fromkeys(map(self._pool, steps)))
        named = {pool: f"_{at}" if at else "" for at, pool in enumerate(pools)}
        sizes: dict[str, dict[str, int]] = {}
        handles, tensors = {}, {}
        for at, node in steps.items():
            pool = self._pool(at)
            ending = named[pool] if most[pool] == 1 else f"{named[pool]}[{texts[at]}]"
            step: Any = node.key
            handles[at] = [_text(f"{AHEAD}{ending}")]
            if step.tensors:
                sizes.setdefault(step.tensors[0], {})[named[pool]] = most[pool]
                tensors[at] = _text(f"{step.tensors[0]}{ending}")
        return _NumberedParts(handles=handles, tensors=tensors, pools=sizes)

    def _indices(
        self, events: Iterable[tuple[Leaf, tuple[int, ...], int]], *, is_eager: bool
    ) -> dict[int, int]:
        """Return the number in its pool of each receive of a rank."""
        following: Counter[int] = Counter()
        pending: Counter[int] = Counter()
        outer: dict[int, int] = {}
        found: dict[int, int] = {}
        for node, turns, each in events:
            pool = self._pool(id(node))
            if each in found:
                pending[pool] -= 1
                continue
            turn = turns[0] if turns else -1
            if not pending[pool] and (is_eager or outer.get(pool) != turn):
                following[pool] = 0
            outer[pool] = turn
            found[each] = following[pool]
            following[pool] += 1
            pending[pool] += 1
        return found

    def _index(self, by_rank: Mapping[int, list[tuple[tuple[int, ...], int]]]) -> str | None:
        """Return the index of a step as an expression of its rank and turns; None without one."""
        firsts = {rank: events[0][1] for rank, events in by_rank.items()}
        grown: dict[int, int] = {}  # turn of the innermost loop -> how much more than in the first
        for rank, events in by_rank.items():
            for turns, index in events:
                turn = turns[-1] if turns else 0
                if grown.setdefault(turn, index - firsts[rank]) != index - firsts[rank]:
                    return None
        first = count(firsts, self._world, self._coordinates)
        slope = grown.get(1, 0)
        if not any(grown.values()):
            return first
        depth = len(next(iter(by_rank.values()))[0][0])
        if all(more == slope * turn for turn, more in grown.items()) and slope > 0:
            turning = f"{f'{slope} * ' if slope > 1 else ''}i{depth - 1}"
        elif len(grown) <= MOST_LISTED:
            turning = f"{[grown[turn] for turn in range(len(grown))]}[i{depth - 1}]"
        else:
            return None
        if first == "0":
            return turning
        return f"{turning} + {f'({first})' if ' if ' in first else first}"


def _kernels_text(item: RecordedKernels) -> str:
    """Return what kernels take, and their host, as `compute` states it."""
    times = {"time": item.us, "host": item.host_us}
    stated = [f"{name}: {_time_text(us)}" for name, us in times.items() if us]
    if item.synchronizes:
        stated = [*(stated or ["host: 0us"]), "synchronize: true"]
    return ", ".join(stated)


def _time_text(us: float) -> str:
    """Return a time with its unit, and four digits."""
    for unit, most in (("us", 1e3), ("ms", 1e6), ("s", inf)):
        if us < most:
            return f"{float(f'{us * 1e3 / min(most, 1e9):.4g}'):.12g}{unit}"
    raise ValueError(us)


def _text(name: str) -> str:
    """Return a name with an index as YAML."""
    return f'"{name}"' if "[" in name else name


# -------------------------------------------------------------------------------------------------
# Sizes: those of a model are too large to be computed with, and only their relations matter.


class Sizes:
    """The shapes of tensors; of large programs reduced, so that relations stay."""

    def __init__(self, records: Mapping[int, RankRecord], *, is_true: bool = False) -> None:
        """Look at every tensor of every call; keep their sizes if `is_true`."""
        self._map: dict[int, int] = {}
        total: dict[tuple[str, tuple[int, ...]], int] = {}
        self._parents: dict[int, int] = {}
        # what a rank is assumed to have called is what another one called
        own = [each for each in records.values() if each.about.get("mode") != "assumed"]
        calls = (call for record in own for call in record.calls)
        for call in calls:
            tensors = [*call.inputs, *call.outputs]
            for each in tensors:
                total[each.dtype, each.shape] = each.elements * each.count
                self._find(each.elements)
            for one, two in pairwise(tensors):
                if one.elements and two.elements:
                    self._parents[self._find(one.elements)] = self._find(two.elements)
        world = max((each.world_size for each in records.values()), default=1)
        self.reduced = not is_true and sum(total.values()) * world > MOST_ELEMENTS
        if self.reduced:
            self._reduce(world)

    def _find(self, size: int) -> int:
        """Return who stands for all sizes that are related to one."""
        parents = self._parents
        parents.setdefault(size, size)
        while parents[size] != size:
            parents[size] = parents[parents[size]]
            size = parents[size]
        return size

    def _reduce(self, world: int) -> None:
        together: dict[int, list[int]] = {}
        for size in self._parents:
            together.setdefault(self._find(size), []).append(size)
        primes = _primes(world)
        for sizes in sorted(together.values()):
            common = gcd(*sizes)
            factor = next(primes)
            for size in sizes:
                self._map[size] = size if size <= 1 else factor * (size // common)

    def of(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the shape that a tensor has in the scenario."""
        if not self.reduced or not tensor.shape:
            return tensor.shape
        return (self._map[tensor.elements],)


def _primes(world: int) -> Iterator[int]:
    found: list[int] = []
    size = 3
    while True:
        if all(size % each for each in found) and (size == 3 or size % 2):
            found.append(size)
            if world % size:
                yield size
        size += 2


# -------------------------------------------------------------------------------------------------
# Small parts.


class _WaitStep:
    """Waits that follow each other at one place: together they are one step.

    `links` hears of each wait for work without a name: the numbers of it.
    """

    def __init__(self, links: list[tuple[int, ...]]) -> None:
        self._names: list[str] = []
        self._at = ""
        self._links = links
        #: the name of work in flight without one of its own -> its number, its operation and peer
        self.unnamed: dict[str, tuple[int, str]] = {}

    def take(self, names: list[str], at: str) -> Iterable[Item]:
        """Take a wait; yields the step of those before, where it is another one."""
        if at != self._at or set(names) & set(self._names):
            yield from self.steps()
        self._names, self._at = [*self._names, *names], at

    def alone(self, at: str) -> Iterable[Item]:
        """Yield the step of those before, and one that waits for a receive without a name."""
        yield from self.steps()
        yield ProgramStep(kind="await", handles=(IN_ORDER,)), (at, None)

    def steps(self) -> Iterable[Item]:
        """Yield the step of what was taken."""
        if self._names:
            unnamed = [self.unnamed.pop(each) for each in self._names if each in self.unnamed]
            named = [each for each in self._names if not each.startswith(TOGETHER)]
            own = None
            if unnamed:
                self._links.append(tuple(number for number, _ in unnamed))
                named.append(TOGETHER)
                own = tuple(sorted({what for _, what in unnamed}))
            yield ProgramStep(kind="await", handles=tuple(named)), (self._at, own)
            self._names = []


class _RankWork(Struct, kw_only=True):
    """What a rank begins and waits for, while its steps are made.

    `together`, `alone` and `batches` say of its calls how they are waited for, `handles` what the
    work of each is called, `in_use` what is in flight, and `loose` what is waited for somewhere.
    """

    together: frozenset[int]
    alone: frozenset[int]
    batches: Mapping[int, Sequence[RecordedCall]]
    links: list[tuple[int, ...]]
    waits: _WaitStep
    order: list[int] = field(default_factory=list)
    handles: dict[int, list[str]] = field(default_factory=dict)
    in_use: Busy = field(default_factory=dict)
    loose: dict[str, list[str]] = field(default_factory=dict)


def _link(called: Iterable[Item], waits: _WaitStep, links: list[tuple[int, ...]]) -> Iterable[Item]:
    """Yield steps; those that begin work without a name are known to `waits` and `links`."""
    for each in called:
        step: Any = each[0]
        if step.handle is not None and step.handle.startswith(TOGETHER):
            own: Any = each[1][1]
            to = "" if own is None else own[0]
            if isinstance(to, BatchedMessage):
                to = [(part.operation, part.far) for part in own]
            waits.unnamed[step.handle] = len(links), f"{step.operation} {to}"
            links.append((len(links),))
            step = replace(step, handle=TOGETHER)
        yield step, each[1]


def _lay_out(text: str) -> str:
    """Return a scenario in the one layout; what is too large to be read stays as it is."""
    try:
        return format_file("recorded", text.encode(), DEFAULT).decode()
    except ScenarioError:
        return text


def quote(words: str) -> str:
    """Return words as a string of YAML, whatever is in them, as many as are read."""
    plain = clean_line(words)[:MOST_WORDS]
    return json.dumps(plain, ensure_ascii=False)


def _creations(record: RankRecord) -> list[Blocking]:
    """Return the calls that create groups, in order."""
    return [each for each in record.items if isinstance(each, Blocking) and each.what == CREATION]


def _is_of_mesh(described: str, creation: Blocking | None) -> bool:
    """Whether a group is of a mesh, as far as it is known: torch says so, or the script's line."""
    if creation is None or not creation.place.frames or "mesh" in described:
        return True
    return "mesh" in creation.place.frames[0][2].lower()


def _list_ranks(item: Blocking, world: int) -> tuple[int, ...]:
    return tuple(range(world)) if item.ranks is None else tuple(sorted(item.ranks))


def _word(described: str) -> str:
    """Return a name for a group, from torch's own description of it."""
    letters = "".join(each if each.isascii() and each.isalnum() else "_" for each in described)
    letters = letters.strip("_").removeprefix("mesh_")
    return letters[:30] if letters and letters[0].isalpha() and letters != "undefined" else "group"


def _fresh(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 1
    while name in taken or name in _NOT_A_GROUP:
        count += 1
        name = f"{wanted}_{count}"
    taken.add(name)
    return name


#: words that mean something in every scenario
_NOT_A_GROUP = frozenset({"rank", "world", "world_size", "else", "all", "sum", "min", "max", "i"})


def _handles() -> Iterator[str]:
    return (f"work_{number}" for number in count_from())


def _fresh_names(word: str) -> Iterator[str]:
    yield word
    yield from (f"{word}_{number}" for number in count_from(2))


#: memory that is not known
_NOWHERE = Tensor(dtype="", shape=())


def _slots(operation: str) -> tuple[Slot, ...]:
    """Return the arguments of an operation that hold tensors."""
    found = BY_NAME[operation].slots
    assert found is not None
    return found


def _many(tensor: Tensor, count: int) -> Tensor:
    return Tensor(
        dtype=tensor.dtype, shape=tensor.shape, address=0, size=tensor.size * count, count=count
    )


def _overlap(one: Tensor, two: Tensor) -> bool:
    if not one.address or not two.address:
        return False
    return one.address < two.address + two.size and two.address < one.address + one.size


def _short(dtype: str) -> str:
    head = dtype.rstrip("0123456789")
    if head in _SHORT:
        return _SHORT[head] + dtype[len(head) :]
    return dtype


def _value(dtype: str, value: str) -> str:
    return f"{{dtype: {dtype}, value: {value}}}"


def _flow(words: Sequence[str]) -> str:
    return f"[{', '.join(words)}]"


def _mesh_among(families: Sequence[Family], world: int) -> list[Family] | None:
    """Return families that are all dimensions of one mesh, in order; None without any.

    Those that follow each other are tried first, as `init_device_mesh` creates its groups; then
    any, the nearest first, as scripts create them by `new_group`.
    """
    for at in range(len(families)):
        for size in range(min(len(families) - at, MOST_DIMENSIONS), 1, -1):
            if _is_mesh(families[at : at + size], world):
                return list(families[at : at + size])
    by_stride: dict[int, list[int]] = {}
    for at, family in enumerate(families):
        stride, _ = family.axis(world) or (0, 0)
        by_stride.setdefault(stride, []).append(at)
    for first in by_stride.get(1, ()):
        found, last, stride = [first], first, len(families[first].parts[0])
        while stride in by_stride:
            last = min(by_stride[stride], key=lambda at, last=last: abs(at - last))  # type: ignore[misc]
            found.append(last)
            stride *= len(families[last].parts[0])
        if stride == world and len(found) > 1:
            return [families[at] for at in reversed(found)]
    return None


def _is_mesh(dims: Sequence[Family], world: int) -> bool:
    stride = 1
    for family in reversed(dims):
        step, extent = family.axis(world) or (0, 0)
        if extent > 1 and step != stride:
            return False
        stride *= extent
    return stride == world


def _leaves(nodes: Sequence[Node]) -> Iterable[Leaf]:
    for node in nodes:
        if isinstance(node, Loop):
            yield from _leaves(node.body)
        else:
            yield node


def _count(nodes: Sequence[Node]) -> int:
    return sum(1 + _count(node.body) if isinstance(node, Loop) else 1 for node in nodes)
