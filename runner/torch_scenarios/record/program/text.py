"""The text of the scenario that a program is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from torch_scenarios.display import clean_line
from torch_scenarios.errors import ScenarioError
from torch_scenarios.language.format import format_file
from torch_scenarios.limits import DEFAULT
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Collective
from torch_scenarios.record.format import BATCH, RankRecord
from torch_scenarios.record.program.fold import (
    Leaf,
    Loop,
    Node,
    count,
    merge,
    number,
    ranks_text,
    selector,
    write_key,
)
from torch_scenarios.record.program.groups import WORLD, Family, Groups
from torch_scenarios.record.program.steps import ProgramStep, find_distance
from torch_scenarios.record.program.tensors import MESSAGES, Tensors, tensor_slots
from torch_scenarios.record.program.work import IN_ORDER, TOGETHER

#: characters of a list that is written as it is, and not computed
SHORT = 30

#: characters of an error, or of a place, that a scenario carries
MOST_WORDS = 180

#: columns of a line of YAML
WIDTH = 100


class ScenarioText:
    """The scenario that the nodes of a program are, as YAML.

    `names` has by the `id` of a step the names of its work, `parts` the part of a tensor that it
    takes, `held` further tensors.

    The text is laid out by the formatter in the end, so that lines here need only be right YAML.
    """

    def __init__(
        self,
        records: Mapping[int, RankRecord],
        groups: Groups,
        tensors: Tensors,
        *,
        name: str,
        description: str,
        names: Mapping[int, Sequence[str]],
        parts: Mapping[int, str],
        held: Mapping[str, str],
    ) -> None:
        """Begin with what the steps name."""
        self._records, self._groups, self._tensors = records, groups, tensors
        self._world = max((each.world_size for each in records.values()), default=1)
        self._name, self._description = name, description
        self._names, self._parts, self._held = names, parts, held

    def write(self, nodes: Sequence[Node]) -> str:
        """Return the file, in the one layout."""
        truncated = sorted(
            rank
            for rank in range(self._world)
            if rank not in self._records or self._records[rank].truncated
        )
        lines = ["version: 1", f"name: {quote(self._name)}"]
        if self._description:
            lines.append(f"description: {quote(self._description)}")
        kinds = sorted({kind for record in self._records.values() for kind in record.kernel_kinds})
        lines += [f"tags: [{', '.join(['recorded', *kinds])}]", f"world_size: {self._world}"]
        lines += self._group_lines()
        steps = self._step_lines(nodes, range(self._world), 1)
        reset = {
            name
            for node in _leaves(nodes)
            if node.key.kind == "reset"  # type: ignore[attr-defined]
            for name in node.key.tensors  # type: ignore[attr-defined]
        }
        declared = {**self._tensors.declared, **self._held}
        named = {name: value for name, value in declared.items() if name not in reset}
        if named:
            lines.append("tensors:")
            lines += [f"  {name}: {value}" for name, value in sorted(named.items())]
        lines.append("steps:")
        lines += steps or ["  - sleep: 0s"]
        if truncated:
            which = "all" if len(truncated) == self._world else ranks_text(truncated)
            lines.append(f"truncated: {which}")
        return _lay_out("\n".join(lines) + "\n")

    def _group_lines(self) -> list[str]:
        """Return the entry of each group; the families of one mesh are one entry."""
        lines = []
        dims = {id(each): mesh for mesh, found in self._groups.meshes.items() for each in found}
        written: set[str] = set()
        for family in self._groups.families:
            mesh = dims.get(id(family))
            if mesh is None:
                lines.append(f"  {family.name}: {self._write_parts(sorted(family.parts))}")
            elif mesh not in written:
                written.add(mesh)
                shape = [len(each.parts[0]) for each in self._groups.meshes[mesh]]
                names = [each.name.removeprefix(f"{mesh}.") for each in self._groups.meshes[mesh]]
                lines.append(f"  {mesh}: {{shape: {shape}, dims: {_flow(names)}}}")
        return ["groups:", *lines] if lines else []

    def _write_parts(self, parts: list[tuple[int, ...]]) -> str:
        """Return the groups of a family in the shortest way that there is for them.

        one group                          [0, 2], or with `ranks:` if they are in another order
        neighbours of one size             {size: 4}
        few, or with no regular distance   {partition: [[0, 3], [1, 2]]}
        columns of a grid                  {partition: "[range(i, 8, 4) for i in range(4)]"}
        columns of several grids           the same, over the first rank of each
        """
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
        """Return the steps of some nodes that the ranks `among` come to, `depth` levels in.

        Who takes a step is written only where it is not all that come there: `ranks` selects among
        the ranks of the enclosing loop, and among the members of the step's group.
        """
        lines: list[str] = []
        indent = "  " * depth
        inside = list(among)
        for node in nodes:
            if isinstance(node, Loop):
                ranks = sorted(node.ranks)
                chosen = selector(ranks, inside, self._world, self._groups.coordinates)
                turns = count(node.ranks, self._world, self._groups.coordinates)
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
        """Return one step: on one line where it fits, else a line for each of its keys.

        `ranks` selects among those that come here. A call of a group is written without it where
        all members take it, since who is outside of the group passes by itself.
        """
        step: Any = node.key
        if id(node) in self._parts:
            step = replace(step, tensors=(self._parts[id(node)],))
        ranks = sorted(node.ranks)
        members = self._groups.members(step.group) if step.kind == "call" else None
        everyone = inside if members is None else [rank for rank in inside if rank in members]
        chosen = selector(ranks, everyone, self._world, self._groups.coordinates)
        lines = [
            self._write_action(step, node.ranks) if step.kind != "await" else self._write_wait(node)
        ]
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
            lines.append(f"at: {self._write_places(places)}")
        line = f"{indent}- {{{', '.join(lines)}}}"
        if len(line) <= WIDTH:
            return [line]
        if step.operation == BATCH:
            listed = [f"    - {each}" for each in self._write_batch(step, node.ranks)]
            at = next(at for at, part in enumerate(lines) if part.startswith(BATCH))
            lines[at : at + 1] = [f"{BATCH}:", "  p2p_op_list:", *listed]
        return [f"{indent}{'- ' if at == 0 else '  '}{part}" for at, part in enumerate(lines)]

    def _write_places(self, places: Mapping[int, str]) -> str:
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
                chosen = selector(ranks, everyone, self._world, self._groups.coordinates)
                lines.append(f"{write_key(str(chosen))}: {quote(place)}")
        return f"{{{', '.join([*lines, f'else: {quote(last)}'])}}}"

    def _write_action(self, step: ProgramStep, own: Mapping[int, Any]) -> str:
        """Return the operation with its arguments, as YAML."""
        if step.kind != "call":
            return self._write_other(step)
        if step.operation == BATCH:
            return f"{BATCH}: {{p2p_op_list: [{', '.join(self._write_batch(step, own))}]}}"
        given: list[str] = []
        for slot, name in zip(tensor_slots(step.operation), step.tensors, strict=False):
            value = f"'[{name}]'" if slot.wrapped else name
            given.append(
                self._write_at_root(slot.name, name, step)
                if slot.at_root
                else f"{slot.name}: {value}"
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
        """Yield each message of a batch as YAML: those of all ranks that take the step.

        The lists of the ranks are merged like whole programs: where each sends to the next, `peer:
        (rank + 1) % world_size` is one item for all of them. One that some ranks lack gets
        `ranks:`.
        """
        programs = {
            rank: [((each.operation, each.tensor), ("", (each.far, each.tag))) for each in parts]
            for rank, (_, parts) in own.items()
        }
        for node in merge(programs, partial(find_distance, self._world), is_folded=False):
            assert isinstance(node, Leaf)
            key: Any = node.key
            operation, tensor = key
            given = [f"op: {operation}", f"tensor: {tensor}"]
            far = {rank: each for rank, (_, each) in node.ranks.items()}
            peers = {rank: (rank + each) % self._world for rank, (each, _) in far.items()}
            given.append(f"peer: {number(peers, self._world, self._groups.coordinates)}")
            tags = {rank: tag for rank, (_, tag) in far.items()}
            if any(tags.values()):
                given.append(f"tag: {number(tags, self._world, self._groups.coordinates)}")
            if step.group != WORLD:
                given.append(f"group: {step.group}")
            chosen = selector(node.ranks, sorted(own), self._world, self._groups.coordinates)
            if chosen is not None:
                given.append(f"ranks: {chosen}")
            yield f"{{{', '.join(given)}}}"

    def _write_wait(self, node: Leaf) -> str:
        """Return a `wait` for named work, and for what got its name when all was folded."""
        step: Any = node.key
        names = [each for each in step.handles if each not in {TOGETHER, IN_ORDER}]
        names += self._names.get(id(node), ())
        return f"wait: {names[0] if len(names) == 1 else _flow(names)}"

    def _write_other(self, step: ProgramStep) -> str:
        """Return a step that calls neither a collective nor a message, as YAML.

        kernels   `compute:` with what their time is
        fail      `fault:`, the error that a rank raised, or its end
        create    `new_group:`
        reset     a tensor is made anew: `compute:` of its first value
        """
        if step.kind == "kernels":
            return f"compute: {{{step.words}}}"
        if step.kind == "fail":
            return f"fault: {f'{{raise: {quote(step.words)}}}' if step.words else 'exit'}"
        if step.kind == "create":
            more = ", use_local_synchronization: true" if step.local else ""
            return f"new_group: {{name: {step.words}, group_ranks: {list(step.ranks)}{more}}}"
        name = step.tensors[0]
        value = self._tensors.declared[name]
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
            numbers = number(peers, self._world, self._groups.coordinates)
            given.append(f"{MESSAGES[step.operation]}: {numbers}")
        tags = {rank: each[1] for rank, each in own.items()}
        if any(tags.values()):
            given.append(f"tag: {number(tags, self._world, self._groups.coordinates)}")
        return given

    def _write_at_root(self, word: str, name: str, step: ProgramStep) -> str:
        """Return an argument that the root alone passes: `scatter_list: {0: lists}`."""
        if step.group == WORLD:
            return f"{word}: {{{step.root}: {name}}}"
        return f'{word}: {{"group_rank({step.group}) == {step.root}": {name}}}'


def _lay_out(text: str) -> str:
    """Return a scenario in the one layout; what is too large to be read stays as it is."""
    try:
        return format_file("recorded", text.encode(), DEFAULT).decode()
    except ScenarioError:
        return text


def quote(words: str) -> str:
    r"""Return words as a string of YAML, whatever is in them, as many as are read.

    >>> quote('yes: "no"')
    '"yes: \\"no\\""'

    A string of JSON is one of YAML 1.2, so that no word of a record becomes anything but a text.
    """
    plain = clean_line(words)[:MOST_WORDS]
    return json.dumps(plain, ensure_ascii=False)


def _leaves(nodes: Sequence[Node]) -> Iterable[Leaf]:
    for node in nodes:
        if isinstance(node, Loop):
            yield from _leaves(node.body)
        else:
            yield node


def _flow(words: Sequence[str]) -> str:
    return f"[{', '.join(words)}]"
