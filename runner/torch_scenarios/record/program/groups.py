"""The groups of all ranks by name: families, and the meshes whose dimensions they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from torch_scenarios.record.format import CREATION, BlockingCall, RankRecord, RecordedCall
from torch_scenarios.record.program.fold import Coordinate

WORLD = "world"

#: dimensions of a mesh at most
MOST_DIMENSIONS = 5

#: words that mean something in every scenario
_NOT_A_GROUP = frozenset({"rank", "world", "world_size", "else", "all", "sum", "min", "max", "i"})


class Family(Struct, kw_only=True):
    """Groups of one name: each rank is in at most one of them.

    >>> Family(name="tp", parts=[(0, 1), (2, 3)]).axis(4)
    (1, 2)
    >>> Family(name="odd", parts=[(0, 3), (1, 2)]).axis(4) is None
    True
    """

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


class Groups:
    """The groups of a world by name, those along the dimensions of a mesh together.

    Groups that no rank is in twice are one family; families that span the world are a mesh.
    """

    def __init__(self, records: Mapping[int, RankRecord], world: int) -> None:
        """Name every group that the ranks of a world know."""
        self._records, self._world = records, world
        self.families: list[Family] = []
        #: the families that are the dimensions of one mesh, by its name
        self.meshes: dict[str, list[Family]] = {}
        #: (rank, number of its group) -> name
        self._named: dict[tuple[int, int], str] = {}
        #: (ranks, how many groups of them there were before) -> name, where creations are steps
        self._created: dict[tuple[tuple[int, ...], int], str] = {}
        #: whether their creations are steps, because ranks differ
        self.is_created = self._find_groups()
        self._find_meshes()
        #: where a rank is in each family that is regular, meshes first
        self.coordinates = self._find_coordinates()

    def name(self, rank: int, number: int | str) -> str:
        """Return the name of the group that has this number on a rank."""
        return self._named.get((rank, int(number)), WORLD)

    def names(self, record: RankRecord) -> tuple[tuple[int, str | None], ...]:
        """Return the names of all groups that a rank knows, with its numbers of them."""
        return tuple((each, self._named.get((record.rank, each))) for each in record.groups)

    def name_created(self, record: RankRecord, item: BlockingCall) -> str:
        """Return the name of the group that a call of `new_group` creates."""
        ranks = list_ranks(item, self._world)
        before = [
            each
            for each in _creations(record)
            if each.number < item.number and list_ranks(each, self._world) == ranks
        ]
        return self._created[ranks, len(before)]

    def members(self, group: str) -> set[int] | None:
        """Return the ranks of all groups of a name; None for the world."""
        family = next((each for each in self.families if each.name == group), None)
        if family is not None:
            return set(family.members())
        if self.is_created:
            found = [ranks for (ranks, _), name in self._created.items() if name == group]
            return set(found[0]) if found else None
        return None

    def _find_groups(self) -> bool:
        """Name all groups; returns whether their creations are steps, because ranks differ.

        `new_group` has to be called by all ranks, in one order, also by those that are not in the
        group (https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.new_group).
        Where all did, groups are made before step 1; where they did not, that may be the mistake,
        and each call is a step.
        """
        created = {rank: _creations(record) for rank, record in self._records.items()}
        lists = {
            rank: [(list_ranks(each, self._world), each.local) for each in calls]
            for rank, calls in created.items()
        }
        local = any(is_local for each in lists.values() for _, is_local in each)
        whole = all(each.over for calls in created.values() for each in calls)
        alike = whole and not local and len({tuple(each) for each in lists.values()}) == 1
        # made in the middle of calls, a group is waited for: all ranks have to come to that at once
        before = {tuple(_count_calls_before(each)) for each in self._records.values()}
        alike = alike and len(before) == 1
        described = {
            (rank, gid): (ranks, desc)
            for rank, record in self._records.items()
            for gid, (_, ranks, desc) in record.groups.items()
        }
        taken: set[str] = {WORLD}
        if alike:
            first = min(lists)
            members = [ranks for ranks, _ in lists[first]]
            families = self._find_families(members, created, described, taken)
            for rank, calls in created.items():
                for family, call in zip(families, calls, strict=True):
                    if call.group is not None:
                        self._named[rank, call.group] = family.name
        else:
            numbers: dict[tuple[tuple[int, ...], int], str] = {}
            for rank, calls in created.items():
                seen: dict[tuple[int, ...], int] = {}
                for call in calls:
                    ranks = list_ranks(call, self._world)
                    at = seen[ranks] = seen.get(ranks, -1) + 1
                    found = numbers.get((ranks, at))
                    if found is None:
                        word = call.place.variable or "group"
                        found = numbers[ranks, at] = _take_free_name(word, taken)
                    if call.group is not None:
                        self._named[rank, call.group] = found
            self._created = numbers
        self._name_others(described, taken)
        return not alike

    def _find_families(
        self,
        members: list[tuple[int, ...]],
        created: Mapping[int, list[Any]],
        described: Mapping[tuple[int, int], tuple[tuple[int, ...], str]],
        taken: set[str],
    ) -> list[Family]:
        """Return the family of each group that all ranks create alike; those in a row may be one.

        They are where they are of one size and no rank is in two.
        """
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
                family = Family(
                    name=_take_free_name(word, taken), is_of_mesh=_is_of_mesh(desc, call)
                )
                self.families.append(family)
            family.parts.append(ranks)
            found.append(family)
        return found

    def _name_others(
        self, described: Mapping[tuple[int, int], tuple[tuple[int, ...], str]], taken: set[str]
    ) -> None:
        """Name the groups whose creation was not seen: the world, and those that C++ made.

        Groups of one description and size are a family, as long as no rank is in two of them: the
        dimension of a mesh has as many groups as the others multiply to, and one name.
        """
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
                    family = Family(name=_take_free_name(_word(desc), taken))
                    known.append(family)
                    self.families.append(family)
                family.parts.append(ranks)
            self._named[rank, gid] = family.name

    def _find_meshes(self) -> None:
        """Name families that are the dimensions of one mesh after it: `mesh.dp`."""
        names: dict[str, str] = {}
        taken = {each.name for each in self.families}
        rest = [
            each for each in self.families if each.is_of_mesh and each.axis(self._world) is not None
        ]
        while rest:
            dims = _mesh_among(rest, self._world)
            if dims is None:
                break
            mesh = _take_free_name("mesh", taken)
            for at, family in enumerate(dims):
                rest.remove(family)
                plain = family.name.startswith("group")
                names[family.name] = f"{mesh}.{f'dim_{at}' if plain else family.name}"
                family.name = names[family.name]
            self.meshes[mesh] = dims
        for key, name in self._named.items():
            self._named[key] = names.get(name, name)

    def _find_coordinates(self) -> list[Coordinate]:
        """Return where a rank is in each family that is regular, meshes first."""
        found = []
        regular = [each for dims in self.meshes.values() for each in dims]
        regular += [each for each in self.families if each not in regular]
        for family in regular:
            axis = family.axis(self._world)
            if axis is not None and 1 < axis[1] < self._world:
                text = f"group_rank({family.name})"
                stride, extent = axis
                found.append(Coordinate(text=text, group=family.name, stride=stride, extent=extent))
        return found


def _creations(record: RankRecord) -> list[BlockingCall]:
    """Return the calls that create groups, in order."""
    return [
        each for each in record.items if isinstance(each, BlockingCall) and each.what == CREATION
    ]


def _count_calls_before(record: RankRecord) -> Iterator[int]:
    """Yield how many calls a rank has made before each group that it creates."""
    count = 0
    for each in record.items:
        if isinstance(each, RecordedCall):
            count += 1
        elif isinstance(each, BlockingCall) and each.what == CREATION:
            yield count


def _is_of_mesh(described: str, creation: BlockingCall | None) -> bool:
    """Whether a group is of a mesh, as far as it is known: torch says so, or the script's line."""
    if creation is None or not creation.place.frames or "mesh" in described:
        return True
    return "mesh" in creation.place.frames[0][2].lower()


def list_ranks(item: BlockingCall, world: int) -> tuple[int, ...]:
    """Return the ranks of the group that a call creates."""
    return tuple(range(world)) if item.ranks is None else tuple(sorted(item.ranks))


def _word(described: str) -> str:
    """Return a name for a group, from torch's own description of it."""
    letters = "".join(each if each.isascii() and each.isalnum() else "_" for each in described)
    letters = letters.strip("_").removeprefix("mesh_")
    return letters[:30] if letters and letters[0].isalpha() and letters != "undefined" else "group"


def _take_free_name(wanted: str, taken: set[str]) -> str:
    """Return a name that is not taken, and take it."""
    name, count = wanted, 1
    while name in taken or name in _NOT_A_GROUP:
        count += 1
        name = f"{wanted}_{count}"
    taken.add(name)
    return name


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
    """Whether families are the dimensions of one mesh, the outermost first.

    Their strides multiply up.

    >>> rows = Family(name="tp", parts=[(0, 1), (2, 3)])
    >>> columns = Family(name="dp", parts=[(0, 2), (1, 3)])
    >>> _is_mesh([columns, rows], 4), _is_mesh([rows, columns], 4)
    (True, False)
    """
    stride = 1
    for family in reversed(dims):
        step, extent = family.axis(world) or (0, 0)
        if extent > 1 and step != stride:
            return False
        stride *= extent
    return stride == world
