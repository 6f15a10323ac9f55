"""The records of all ranks -> one scenario file: a short program that does what they did.

Each call becomes a step with the function and arguments of `torch.distributed`, without values:
its tensors are zeros, and two have one name where they are alike and are never in use at once. The
place in the user's own files is the step's `at`. Names that a record holds are words: they become
no expression and no name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.record.format import RankRecord
from torch_scenarios.record.program.fold import Item, Loop, Node, merge
from torch_scenarios.record.program.groups import Groups
from torch_scenarios.record.program.sizes import Sizes
from torch_scenarios.record.program.steps import ScriptPlaces, Steps, find_distance, find_way
from torch_scenarios.record.program.tensors import MESSAGES, Tensors, TouchedEarlyError
from torch_scenarios.record.program.text import ScenarioText, quote
from torch_scenarios.record.program.work import NumberedParts, NumberedWork, UnnamedWork

__all__ = ["MESSAGES", "RecordedProgram", "program_of", "quote"]

#: steps of a program from which on such receives are numbered where that makes it shorter
MOST_NAMED = 40

#: how much shorter it must become
SHORTER = 0.9


class RecordedProgram(Struct, frozen=True, kw_only=True):
    """One list of steps for all ranks, and the text of the scenario that it is.

    `programs` has each rank's own steps, of which `nodes` is the merged list; `steps` counts its
    nodes.
    """

    text: str
    nodes: list[Node]
    programs: Mapping[int, Sequence[Item]]
    steps: int
    notes: tuple[str, ...] = ()


class _Folded(Struct, frozen=True, kw_only=True):
    """The programs of all ranks, one list of nodes for them, and what these name."""

    programs: dict[int, tuple[Item, ...]]
    nodes: list[Node]
    steps: Steps
    tensors: Tensors
    #: `id` of a step -> the names of its work; None where no names do what the records do
    names: dict[int, list[str]] | None
    #: `id` of a step -> the part of a tensor that it takes
    parts: Mapping[int, str] = {}


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
    world = max((each.world_size for each in records.values()), default=1)
    sizes = Sizes(records, is_true=is_timed)
    notes: list[str] = []
    if sizes.reduced:
        notes.append(
            "the sizes of tensors are reduced: equal ones stay equal, and multiples multiples"
        )
    groups = Groups(records, world)
    folded = _Attempts(records, groups, sizes, ScriptPlaces(folder), world).fold()
    held: dict[str, str] = {}
    if is_timed:
        most = max((each.held for each in records.values()), key=lambda x: sum(x.values()))
        held = folded.tensors.declare_held(most)
    text = ScenarioText(
        records,
        groups,
        folded.tensors,
        name=name,
        description=" ".join([about, *notes]).strip(),
        names=folded.names or {},
        parts=folded.parts,
        held=held,
    )
    return RecordedProgram(
        text=text.write(folded.nodes),
        nodes=folded.nodes,
        programs=folded.programs,
        steps=_count(folded.nodes),
        notes=tuple(notes),
    )


class _Attempts:
    """Folds the programs of all ranks into one list of nodes, in the way that is the shortest.

    How work is named decides which steps of two ranks are equal, and so how short the list becomes;
    that is known only when it is made. So a few ways are made, and the shortest that is right is
    taken.
    """

    def __init__(
        self,
        records: Mapping[int, RankRecord],
        groups: Groups,
        sizes: Sizes,
        places: ScriptPlaces,
        world: int,
    ) -> None:
        self._records, self._groups = records, groups
        self._sizes, self._places, self._world = sizes, places, world

    def fold(self) -> _Folded:
        """Return the programs, folded.

        Work that is waited for together has no name while it is folded. Where no names do what the
        records do, all work has a name of its own from the start, as it has on its rank.
        """
        found = self._attempt(find_distance)
        if found.names is None:
            found = self._attempt(find_distance, is_together=False)
        if _count(found.nodes) > MOST_NAMED and any(
            map(found.steps.find_lone_receives, self._records.values())
        ):
            return self._number(SHORTER * _count(found.nodes)) or found
        return found

    def _attempt(
        self,
        like: Callable[[int, int, Any], Hashable],
        *,
        is_together: bool = True,
        is_numbered: bool = False,
    ) -> _Folded:
        """Return programs, and their nodes: messages that go as far, by `like`, are one step."""
        tensors = Tensors(self._sizes)
        steps = Steps(
            self._records,
            self._groups,
            tensors,
            self._places,
            is_together=is_together,
            is_numbered=is_numbered,
        )
        known: dict[tuple[Item, ...], tuple[Item, ...]] = {}
        programs = {}
        for rank, record in sorted(self._records.items()):
            program = steps.program(record)
            programs[rank] = known.setdefault(program, program)
        nodes = merge(programs, partial(like, self._world))
        alike = {
            (id(programs[rank]), tuple(links)): rank for rank, links in steps.links.items() if links
        }
        links = {rank: each for (_, each), rank in alike.items()}
        names = UnnamedWork(nodes, links).names()
        return _Folded(programs=programs, nodes=nodes, steps=steps, tensors=tensors, names=names)

    def _number(self, most: float) -> _Folded | None:
        """Return programs and nodes whose receives are numbered.

        None where that has more than so many steps, or where no index says what a step waits for.
        """
        chosen: tuple[_Folded, NumberedParts] | None = None
        for like in (find_distance, find_way):
            try:
                found = self._attempt(like, is_numbered=True)
            except TouchedEarlyError:
                break
            if found.names is None or _count(found.nodes) > most:
                continue
            coordinates = self._groups.coordinates
            parts = NumberedWork(found.nodes, found.steps.orders, self._world, coordinates).parts()
            if parts is not None:
                most = _count(found.nodes) - 1
                chosen = found, parts
        if chosen is None:
            return None
        found, parts = chosen
        found.tensors.declare_ahead(parts.sizes)
        names = {**(found.names or {}), **parts.handles}
        return replace(found, names=names, parts=parts.tensors)


def _count(nodes: Sequence[Node]) -> int:
    return sum(1 + _count(node.body) if isinstance(node, Loop) else 1 for node in nodes)
