"""The reductions: each takes a search, and leaves it with a smaller text of the same signature.

They are one thing: entries of one tuple (`PASSES`) that work on one tree of spans, and that take
turns until none finds more. The search is delta debugging (A. Zeller, R. Hildebrandt: Simplifying
and Isolating Failure-Inducing Input, 2002), on the tree and not on characters, as in hierarchical
delta debugging (G. Misherghi, Z. Su, 2006): so what is tried is YAML in nearly every case.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod

from msgspec import Struct, field

from torch_scenarios.errors import Edit
from torch_scenarios.language.expectations import is_section
from torch_scenarios.minimize.search import Search, ddmin
from torch_scenarios.minimize.signature import RESTATED
from torch_scenarios.source.edit import Span, line_end, line_start, remove_items, spans, splice

# -------------------------------------------------------------------------------------------------
# Reductions of the tree: whatever can be left out of a list or a mapping is, level by level.

#: what a file says about itself, and where it runs: no part of the program
KEPT = frozenset(
    {
        *(
            "version",
            "name",
            "description",
            "tags",
            "world_size",
            "backends",
            "needs",
            "torch",
            "timeout",
            "debug",
        ),
        "steps",
    }
)
#: what the author says of how it ends is no part of the program either
CONCLUSIONS = RESTATED | {"outcome", "diagnosis", "raises"}
#: what makes more of a step if it is left out: every rank takes it, a receive takes from anyone
_FEWER = frozenset({"ranks", "src", "dst", "group_src", "group_dst", "peer"})


def reduce_coarse(search: Search) -> None:
    """Leave out sections, steps, groups and tensors."""
    for depth in (0, 1):
        _reduce_level(search, depth)


def reduce_tree(search: Search) -> None:
    """Leave out entries and items, coarse ones first, until none on any level can go alone.

    A step that goes takes its arguments along, so that these are tried only of steps which stay.
    """
    depth = 0
    while _reduce_level(search, depth):
        depth += 1


def reduce_alike(search: Search) -> None:
    """Leave out what only makes sense together: an argument with one value in every step.

    `group: dp` in each of four steps cannot go from one of them alone: the calls would be of two
    groups. All four at once may.
    """
    seen: set[tuple[str, str]] = set()
    while True:
        text = search.text
        found: dict[tuple[str, str], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        parents = list(_mappings(search.root))
        for parent in parents:
            for number in _removable(parent):
                key, value = parent.entries[number]
                found[key.text, text[value.start : value.end]][id(parent)].add(number)
        alike = [what for what, where in found.items() if len(where) > 1 and what not in seen]
        if not alike:
            return
        seen.add(alike[0])
        edits = _edits(text, found[alike[0]], parents)
        if edits is not None:
            search.edits(edits)


def _mappings(root: Span) -> Iterator[Span]:
    """Yield the arguments of every step."""
    steps = root.get("steps")
    waiting = list(steps.items) if steps is not None else []
    while waiting:
        span = waiting.pop(0)
        waiting += span.children()
        if span.kind == "mapping" and span.flow and span.entries:
            yield span


def removals(text: str, root: Span) -> Iterator[str]:
    """Yield the texts that lack one entry or item: what 1-minimal is about."""
    depth = 0
    while parents := list(_parents(root, depth)):
        for parent in parents:
            for number in _removable(parent):
                edits = _edits(text, {id(parent): {number}}, parents)
                if edits is not None:
                    yield splice(text, edits)
        depth += 1


def _reduce_level(search: Search, depth: int) -> bool:
    """Leave out what can go at a depth; return whether there is anything as deep."""
    text = search.text
    parents = list(_parents(search.root, depth))
    items = [(id(parent), number) for parent in parents for number in _removable(parent)]

    def holds(kept: Iterable[tuple[int, int]]) -> bool:
        gone: dict[int, set[int]] = defaultdict(set)
        for parent, number in set(items) - set(kept):
            gone[parent].add(number)
        edits = _edits(text, gone, parents)
        return edits is not None and search.tries(splice(text, edits))

    ddmin(items, holds)
    return bool(parents)


#: what a step is called and where it stands: for people
_SAID = frozenset({"name", "at"})
_STAYING = _FEWER | CONCLUSIONS | _SAID


def _is_root(parent: Span) -> bool:
    return parent.get("steps") is not None and parent.get("world_size") is not None


def _parents(root: Span, depth: int) -> Iterator[Span]:
    """Yield the lists and mappings at a depth below the root."""
    level = [root]
    for _ in range(depth):
        level = [child for parent in level for child in _inner(parent)]
    yield from (span for span in level if span.items or span.entries)


def _inner(parent: Span) -> Iterator[Span]:
    kept = KEPT - {"steps"} if _is_root(parent) else CONCLUSIONS | _SAID
    yield from parent.items
    yield from (value for key, value in parent.entries if key.text not in kept)


def _removable(parent: Span) -> list[int]:
    if parent.kind == "sequence":
        return list(range(len(parent.items)))
    kept = KEPT if _is_root(parent) else _STAYING
    return [
        number
        for number, (key, value) in enumerate(parent.entries)
        if key.text not in kept and not (key.text != "expect" and is_section(key, value))
    ]


def _edits(text: str, gone: dict[int, set[int]], parents: Sequence[Span]) -> list[Edit] | None:
    """Return the edits that leave some children out; None where a list would become empty.

    An empty tensor is another program than a small one; an operation without arguments is not.
    """
    edits: list[Edit] = []
    for parent in parents:
        numbers = gone.get(id(parent))
        if not numbers:
            continue
        if len(numbers) < len(parent.items) + len(parent.entries):
            edits += remove_items(text, parent, numbers)
        elif parent.kind == "sequence":
            return None
        else:
            edits.append(_empty(text, parent))
    return edits


def _empty(text: str, parent: Span) -> Edit:
    if parent.flow:
        return Edit(start=parent.start, end=parent.end, text="{}")
    before = text[: parent.start].rstrip()
    return Edit(start=len(before), end=parent.end, text=" {}")


# -------------------------------------------------------------------------------------------------
# One case of the matrix, and names that are replaced by what they stand for.

#: keys whose text is for people, or any word
PROSE = frozenset(
    {"name", "description", "tags", "version", "backends", "needs", "torch", "inputs", "at"}
)
_SECTIONS = ("matrix", "cases", "parameters")


def one_case(text: str, number: int) -> str:
    """Return the text whose matrix and `cases` have only the combination of case `number`.

    The order is that of :func:`torch_scenarios.language.document.cases`: the keys of `matrix`, then
    `cases`, the last one fastest.
    """
    root = spans(text)
    matrix, stated = root.get("matrix"), root.get("cases")
    lists = [value for _, value in matrix.entries] if matrix is not None else []
    lists += [stated] if stated is not None else []
    chosen = list(product(*(range(len(values.items)) for values in lists)))[number]
    edits: list[Edit] = []
    for values, kept in zip(lists, chosen, strict=True):
        gone = set(range(len(values.items))) - {kept}
        edits += remove_items(text, values, gone) if gone else []
    return splice(text, edits)


def inline_constants(search: Search) -> None:
    """Write parameters and matrix keys of one value out wherever they are named.

    What is left has no names to look up: `full(4, rank)` in place of `full(width, rank)`.
    """
    for section in _SECTIONS:
        found = _section(search.root, section)
        for name in [key.text for key, _ in found.entries] if found is not None else []:
            edits = _inline(search.text, section, name)
            if edits is not None:
                search.edits(edits)


def _section(root: Span, section: str) -> Span | None:
    """Return the mapping of a section's constants: of `cases`, the one case that is left."""
    found = root.get(section)
    if section == "cases" and found is not None:
        return found.items[0] if len(found.items) == 1 else None
    return found


def _inline(text: str, section: str, name: str) -> list[Edit] | None:
    root = spans(text)
    found = _section(root, section)
    number = found.entry(name) if found is not None else None
    if found is None or number is None:
        return None
    value = found.entries[number][1]
    if value.kind == "sequence":
        if section != "matrix" or len(value.items) != 1:
            return None
        value = value.items[0]
    if value.kind != "scalar":
        return None
    edits = replace_name(text, _others(root, section, number), name, text[value.start : value.end])
    if len(found.entries) > 1:
        return [*edits, *remove_items(text, found, {number})]
    position = root.entry(section)
    return [*edits, *remove_items(text, root, {position} if position is not None else set())]


def _others(root: Span, section: str, number: int) -> Iterator[Span]:
    """Yield every node that may name a constant."""
    own = _section(root, section)
    for key, value in root.entries:
        if key.text == section and own is not None:
            yield from (other for n, (_, other) in enumerate(own.entries) if n != number)
        elif key.text not in PROSE:
            yield value


def replace_name(text: str, where: Iterator[Span], name: str, value: str) -> list[Edit]:
    """Return the edits that write `value` for a name: alone as it is, in an expression as text.

    Parentheses keep the precedence: `x * n` with `n: a + b` becomes `x * (a + b)`.
    """
    word = re.compile(rf"(?<![\w.'\"]){re.escape(name)}(?![\w'\"(])")
    inside = value.strip("\"'")
    inside = inside if re.fullmatch(r"[\w.]+", inside) else f"({inside})"
    edits = []
    for span in scalars(where):
        said = text[span.start : span.end]
        if span.text == name:
            edits.append(Edit(start=span.start, end=span.end, text=value))
            continue
        quote = said[:1] if said[:1] in {"'", '"'} else ""
        inner = said[len(quote) : len(said) - len(quote)]
        if word.search(inner):
            text_of = f"{quote}{word.sub(inside, inner)}{quote}"
            edits.append(Edit(start=span.start, end=span.end, text=text_of))
    return edits


def scalars(where: Iterator[Span]) -> Iterator[Span]:
    """Yield the scalars below some nodes, keys that are expressions among them."""
    waiting = list(where)
    while waiting:
        span = waiting.pop()
        if span.kind == "scalar":
            yield span
        for key, value in span.entries:
            if key.text not in PROSE:
                waiting.append(value)
                if not key.text.isidentifier():
                    waiting.append(key)
        waiting += span.items


# -------------------------------------------------------------------------------------------------
# Tensors: fewer elements, all that have to be alike at once, and the shortest way to say them.

#: the first argument of what makes a tensor: its shape; and how many a list has that is computed
_MADE = re.compile(
    r"\b(?:(?:full|zeros|ones|arange|random|linspace|eye)\(|for \w+ in range\()"
    r"\s*(\[[\d, ]+\]|\d+)"
)
#: what a loop's variable leaves behind that became a number
_SUM = re.compile(r"(\d{1,6}) ?([+-]) ?(\d{1,6})")
_NUMBER = re.compile(r"\d+")


def reduce_sizes(search: Search) -> None:
    """Make tensors as small as they can be: equal sizes everywhere at once, then alone.

    Sizes that are equal are so for a reason: an all_reduce has tensors of one shape on all ranks.
    Changed one by one they would not fit, which is another diagnosis.
    """
    for size in sorted(_sizes(search.text, search.root), reverse=True):
        for smaller in sorted({1, 2, size // 2, size - 1}):
            if 0 < smaller < size and search.edits(resize(search.text, search.root, size, smaller)):
                break
    at = 0
    while at < len(found := _places(search.text, search.root)):
        start, end, size = found[at]
        for smaller in sorted({1, 2, size // 2, size - 1}):
            edit = Edit(start=start, end=end, text=str(smaller))
            if 0 < smaller < size and search.edits([edit]):
                break
        at += 1
    say_shorter(search)


def _sizes(text: str, root: Span) -> set[int]:
    lengths = {len(span.items) for span in _lists(root)}
    return {size for _, _, size in _places(text, root)} | {each for each in lengths if each > 1}


def _places(text: str, root: Span) -> list[tuple[int, int, int]]:
    """Return where the sizes are that an expression or a `shape` states."""
    numbers = [
        number
        for span in scalars(iter(_values(root)))
        for made in _MADE.finditer(text, span.start, span.end)
        for number in _NUMBER.finditer(text, made.start(1), made.end(1))
    ]
    found = [(number.start(), number.end(), int(number[0])) for number in numbers]
    items = [item for shape in _shapes(root) for item in shape.items or [shape]]
    found += [(item.start, item.end, int(item.text)) for item in items if item.text.isdigit()]
    return sorted(found)


def _values(root: Span) -> list[Span]:
    return [value for key, value in root.entries if key.text in {"tensors", "steps", "expect"}]


def _walk_spans(root: Span) -> Iterator[Span]:
    waiting = _values(root)
    while waiting:
        span = waiting.pop()
        yield span
        waiting += span.children()


def _shapes(root: Span) -> Iterator[Span]:
    for span in _walk_spans(root):
        yield from (value for key, value in span.entries if key.text == "shape")


def _lists(root: Span) -> Iterator[Span]:
    """Yield the lists of data: rows of numbers, and rows of such rows."""
    for key, value in root.entries:
        if key.text in {"tensors", "expect", "steps"}:
            for span in _list_values(value, data=key.text == "tensors"):
                if span.kind == "sequence" and span.flow and _is_data(span):
                    yield span


def _list_values(span: Span, *, data: bool) -> Iterator[Span]:
    """Yield the nodes that are values: below `tensors`, and below `expect` beside steps."""
    if data:
        yield span
    for key, value in span.entries:
        if key.text not in {"ranks", "group_ranks"}:
            yield from _list_values(value, data=data or key.text == "expect")
    for item in span.items:
        yield from _list_values(item, data=data)


def _is_data(span: Span) -> bool:
    return all(
        item.kind == "scalar" or (item.kind == "sequence" and _is_data(item)) for item in span.items
    )


def resize(text: str, root: Span, size: int, smaller: int) -> list[Edit]:
    """Return the edits that make every size of one value another."""
    edits = [
        Edit(start=start, end=end, text=str(smaller))
        for start, end, found in _places(text, root)
        if found == size
    ]
    for span in _lists(root):
        if len(span.items) == size:
            edits += remove_items(text, span, set(range(smaller, size)))
    return edits


def say_shorter(search: Search) -> None:
    """Write `{value: v}` and `{else: v}` as v, `ranks: [0]` as 0, `1 + 2` as 3.

    And leave out that every rank takes a step, where all are listed.
    """
    at = 0
    while at < len(found := _shorter(search.text, search.root)):
        if not search.edits([found[at]]):
            at += 1


def _shorter(text: str, root: Span) -> list[Edit]:
    found = []
    world = root.get("world_size")
    size = int(world.text) if world is not None and world.text.isdigit() else 0
    everyone = [str(rank) for rank in range(size)]
    for span in _walk_spans(root):
        for number, (key, value) in enumerate(span.entries):
            if key.text == "ranks" and [item.text for item in value.items] == everyone:
                found += remove_items(text, span, {number})
                continue
            single = value.items if key.text == "ranks" else []
            if [inner.text for inner, _ in value.entries] in (["value"], ["else"]):
                single = [value.entries[0][1]]
            if len(single) == 1 and value.flow:
                inner = text[single[0].start : single[0].end]
                found.append(Edit(start=value.start, end=value.end, text=inner))
            elif added := _SUM.fullmatch(value.text):
                total = int(added[1]) + int(added[2] + added[3])
                found.append(Edit(start=value.start, end=value.end, text=str(total)))
    return found


# -------------------------------------------------------------------------------------------------
# Ranks: one that goes takes its steps, its values and its places in groups with it.
#
# A rank is in many places of a file at once, so that no removal of a node makes a world smaller.
# Here the world loses one rank, and everything that names ranks by number is renumbered: rank 2 of
# four goes, and 3 is 2 from then on. Expressions of `rank` stay as they are; whether the fault
# does is asked.

#: arguments whose value is a rank of the world
_PEERS = frozenset({"src", "dst", "peer"})
#: what an expression says of its rank: `rank == 2`, `rank < 2`
_COMPARED = re.compile(r"\b(rank\s*(==|!=|<=|>=|<|>)\s*)(\d+)")
_RANGE = re.compile(r"range\((?:(\d+),\s*)?(\d+)\)")
#: keys whose value is a list of ranks, or of lists of them
_LISTS = frozenset({"ranks", "partition", "group_ranks"})
_WRITTEN = re.compile(r"\[\s*\d+(?:\s*,\s*\d+)*\s*\]")


def reduce_ranks(search: Search) -> None:
    """Leave out as many ranks as can go, and then let the world be as small as it can be."""
    world = search.root.get("world_size")
    if world is None or not world.text.isdigit():
        return
    text = search.text
    ranks = list(range(int(world.text)))

    def holds(kept: list[int]) -> bool:
        return bool(kept) and any(
            search.tries(smaller) for smaller in smaller_worlds(text, len(ranks), kept)
        )

    if len(ddmin(ranks, holds)) < len(ranks):
        reduce_ranks(search)


def smaller_worlds(text: str, count: int, kept: Sequence[int]) -> Iterator[str]:
    """Yield the texts in which only some ranks are left, tensors of `count` parts cut or not.

    A step whose peer goes is left out, or has rank 0 as its peer.
    """
    for keep_peers in (False, True):
        smaller = remove_ranks(text, kept, keep_peers=keep_peers)
        yield smaller
        resized = splice(smaller, resize(smaller, spans(smaller), count, len(kept)))
        if resized != smaller:
            yield resized


def remove_ranks(text: str, kept: Sequence[int], *, keep_peers: bool = False) -> str:
    """Return the text of a world in which only some ranks are left, renumbered from 0.

    A step that names a rank which is gone as its peer or root goes with it, or with `keep_peers`
    names rank 0 instead.
    """
    world = spans(text).get("world_size")
    count = int(world.text) if world is not None else 0
    for rank in sorted(set(range(count)) - set(kept), reverse=True):
        text = _remove_rank(text, rank, keep_peers=keep_peers)
    return text


def _remove_rank(text: str, rank: int, *, keep_peers: bool) -> str:
    root = spans(text)
    world = root.get("world_size")
    assert world is not None
    less = Edit(start=world.start, end=world.end, text=str(int(world.text) - 1))
    going = _RankRemoval(text=text, rank=rank, keep_peers=keep_peers)
    going.visit(root, "")
    return splice(text, [less, *going.edits])


class _RankRemoval(Struct, kw_only=True):
    """One rank leaves: what that changes."""

    text: str
    rank: int
    keep_peers: bool
    edits: list[Edit] = field(default_factory=list)

    def visit(self, span: Span, key: str) -> bool:
        """Note what changes below a node; return whether the node itself is to go."""
        if span.kind == "scalar":
            return self._scalar(span, key)
        if span.kind == "alias":
            return False
        kept = list(self.edits)
        children = list(zip(self._keys(span), span.children(), strict=True))
        gone = {
            number
            for number, (inner, child) in enumerate(children)
            if self.visit(child, self._key_below(span, key, inner)) or self._names_it(span, number)
        }
        if span.kind == "mapping" and self._is_step(span) and self._takes_away(span, gone):
            self.edits = kept
            return True
        self._renumber_keys(span, gone)
        if not gone:
            return False
        if len(gone) == len(children):
            self.edits = kept
            return True
        inside = [children[number][1] for number in gone]
        self.edits = [edit for edit in self.edits if not _is_within(edit, inside)]
        self.edits += remove_items(self.text, span, gone)
        return False

    def _key_below(self, span: Span, key: str, inner: str) -> str:
        """Return the key under which a child stands; a group's value is its ranks."""
        if span.kind == "sequence":
            return key if key in _LISTS else inner
        return "ranks" if key == "groups" else inner

    def _keys(self, span: Span) -> list[str]:
        if span.kind == "sequence":
            return [""] * len(span.items)
        return [key.text for key, _ in span.entries]

    def _scalar(self, span: Span, key: str) -> bool:
        if span.plain and span.text.isdigit() and key in _LISTS | _PEERS:
            number = int(span.text)
            if number == self.rank:
                if key in _PEERS and self.keep_peers:
                    self._replace(span, "0")
                    return False
                return True
            if number > self.rank:
                self._replace(span, str(number - 1))
            return False
        if key in _LISTS and _WRITTEN.fullmatch(span.text):
            return self._renumber_written(span)
        if key not in PROSE:
            said = self.text[span.start : span.end]
            lower = _COMPARED.sub(self._compare, said)
            lower = _RANGE.sub(self._lower_range, lower) if key in _LISTS else lower
            if lower != said:
                self._replace(span, lower)
        return False

    def _compare(self, found: re.Match[str]) -> str:
        number = int(found[3])
        beyond = number >= self.rank if found[2] in {">", "<="} else number > self.rank
        return f"{found[1]}{number - 1 if beyond and number else number}"

    def _lower_range(self, found: re.Match[str]) -> str:
        low, high = (int(each or 0) - (int(each or 0) > self.rank) for each in found.groups())
        return f"range({low}, {high})" if found[1] else f"range({high})"

    def _names_it(self, span: Span, number: int) -> bool:
        """Whether an entry's key is the rank that goes."""
        if span.kind != "mapping":
            return False
        key = span.entries[number][0]
        return key.plain and key.text == str(self.rank)

    def _renumber_keys(self, span: Span, gone: set[int]) -> None:
        for number, (key, _) in enumerate(span.entries):
            if number in gone:
                continue
            if key.kind == "scalar" and key.plain and key.text.isdigit():
                if int(key.text) > self.rank:
                    self._replace(key, str(int(key.text) - 1))
            elif key.kind == "scalar" and _WRITTEN.fullmatch(key.text):
                if self._renumber_written(key):
                    gone.add(number)
            elif key.kind == "sequence" and self.visit(key, "ranks"):
                gone.add(number)

    def _renumber_written(self, span: Span) -> bool:
        """Renumber a list of ranks written as an expression; return whether none is left."""
        ranks = [int(each) for each in re.findall(r"\d+", span.text)]
        left = [each - (each > self.rank) for each in ranks if each != self.rank]
        if left and left != ranks:
            self._replace(span, str(left[0]) if len(left) == 1 else f'"{left}"')
        return not left

    def _is_step(self, span: Span) -> bool:
        keys = {key.text for key, _ in span.entries}
        return bool(keys & {"ranks", "peer"}) or any(
            value.kind == "mapping" and {inner.text for inner, _ in value.entries} & _PEERS
            for _, value in span.entries
        )

    def _takes_away(self, span: Span, gone: set[int]) -> bool:
        """Whether a step goes because no rank is left to take it, or to be its peer."""
        for number, (key, value) in enumerate(span.entries):
            if number in gone and key.text in {"ranks", "peer"}:
                return True
            if value.kind == "mapping" and not self.keep_peers:
                for inner, peer in value.entries:
                    if inner.text in _PEERS and peer.plain and peer.text == str(self.rank):
                        return True
        return False

    def _replace(self, span: Span, text: str) -> None:
        self.edits.append(Edit(start=span.start, end=span.end, text=text))


def _is_within(edit: Edit, spans: Sequence[Span]) -> bool:
    return any(span.start <= edit.start and edit.end <= span.end for span in spans)


# -------------------------------------------------------------------------------------------------
# Meshes: a slice of one goes with all the ranks that stand in it.
#
# Without the slice of a 2 x 4 mesh that is at 1 along its second dimension, ranks 1 and 5 are
# gone:
#
#     0 1 2 3        0 . 2 3        0 1 2
#     4 5 6 7   ->   4 . 6 7   =    3 4 5


def reduce_meshes(search: Search) -> None:
    """Take slices away from meshes that hold the whole world, as long as one can go."""
    while any(search.tries(smaller) for smaller in _remove_slices(search.text)):
        pass


def _remove_slices(text: str) -> Iterator[str]:
    root = spans(text)
    world = root.get("world_size")
    if world is None or not world.text.isdigit():
        return
    count = int(world.text)
    for shape in _mesh_shapes(root):
        lengths = [int(each.text) for each in shape]
        if prod(lengths) != count:
            continue
        for axis, length in enumerate(lengths):
            narrower = splice(
                text, [Edit(start=shape[axis].start, end=shape[axis].end, text=str(length - 1))]
            )
            stride = prod(lengths[axis + 1 :])
            for gone in reversed(range(length if length > 1 else 0)):
                kept = [rank for rank in range(count) if rank // stride % length != gone]
                yield from smaller_worlds(narrower, count, kept)


def _mesh_shapes(root: Span) -> Iterator[list[Span]]:
    """Yield the numbers of each mesh whose shape is written as numbers."""
    groups = root.get("groups")
    for _, group in groups.entries if groups is not None else ():
        shape = group.get("shape")
        if shape is not None and shape.items and all(each.text.isdigit() for each in shape.items):
            yield shape.items


# -------------------------------------------------------------------------------------------------
# Loops: fewer rounds, and a body without its loop.

_COUNT = re.compile(r"(?<![\w.])\d+(?![\w.])")
#: as many turns as a list has for each rank
_BY_RANK = re.compile(r"range\(\[(\d+(?:, *\d+)*)\]\[rank\]\)")
#: loops that are small whatever they ran over
_FEW = ("[0]", "[0, 1]")


def reduce_loops(search: Search) -> None:
    """Let every loop run as few rounds as it takes, and stand its body in its place if one does."""
    number = 0
    while number < len(found := list(_loops(search.root))):
        if not _unroll(search, *found[number]):
            _fewer_rounds(search, number)
            number += 1


def _loops(parent: Span) -> Iterator[tuple[Span, Span]]:
    """Yield each loop, and the list that it stands in, outer ones first."""
    steps = parent.get("steps")
    for step in steps.items if steps is not None else ():
        if step.get("for") is not None and steps is not None:
            yield step, steps
        yield from _loops(step)


def _fewer_rounds(search: Search, number: int) -> None:
    step, _ = list(_loops(search.root))[number]
    over = step.get("for")
    if over is None or not over.entries:
        return
    values = over.entries[0][1]
    if values.kind != "scalar":
        return  # a list: its items are removed as others are
    if any(search.edits([Edit(start=values.start, end=values.end, text=few)]) for few in _FEW):
        return
    at = values.start
    while found := _COUNT.search(search.text, at, list(_loops(search.root))[number][0].end):
        over = list(_loops(search.root))[number][0].get("for")
        if over is None or found.start() >= over.end:
            return
        rounds, at = int(found[0]), found.start()
        for fewer in sorted({0, 1, 2, rounds // 2, rounds - 1}):
            edit = Edit(start=at, end=found.end(), text=str(fewer))
            if 0 <= fewer < rounds and search.edits([edit]):
                break
        at += len(str(rounds))


def _unroll(search: Search, step: Span, steps: Span) -> bool:
    """Try to put a loop's body in its place, its variable having the first or the second value.

    All ranks take it then, or those that a loop of another length on each rank leaves with a turn.
    """
    over, body = step.get("for"), step.get("steps")
    if over is None or not over.entries or body is None or body.flow or steps.flow:
        return False
    text = search.text
    variable, values = over.entries[0][0].text, over.entries[0][1]
    top = text.rfind("-", 0, step.start)
    first = line_start(text, body.start)
    dedent = (body.start - first) - (top - line_start(text, top))
    plain_steps = body.items and not any(each.get("ranks") for each in body.items)
    counts = _BY_RANK.fullmatch(values.text) if plain_steps else None
    turning = [at for at, each in enumerate(counts[1].split(",")) if int(each)] if counts else []
    chosen = ["", *([f"[{', '.join(map(str, turning))}]"] if turning else [])]
    for ranks, value in product(chosen, ("0", "1")):
        edits = replace_name(text, iter([body]), variable, value)
        for each in body.items if ranks else ():
            before = (
                f"ranks: {ranks}, " if each.flow else f"ranks: {ranks}\n{_indent_below(text, each)}"
            )
            at = each.start + each.flow
            edits.append(Edit(start=at, end=at, text=before))
        moved = [
            Edit(start=edit.start - first, end=edit.end - first, text=edit.text) for edit in edits
        ]
        end = line_end(text, body.end)
        lines = splice(text[first:end], moved).splitlines(keepends=True)
        inner = "".join(line[dedent:] if not line[:dedent].strip() else line for line in lines)
        whole = text[: line_start(text, top)] + inner + text[line_end(text, step.end) :]
        if search.tries(whole):
            return True
    return False


def _indent_below(text: str, span: Span) -> str:
    """Return the blanks that stand before an entry below another one."""
    return " " * (span.start - line_start(text, span.start))


# -------------------------------------------------------------------------------------------------
# What removing lines leaves behind: blank lines in a row, and at the end.

_BLANKS = re.compile(r"(\r?\n)(?:[ \t]*\r?\n){2,}")
#: blank lines below a key, before the first of what it holds
_FIRST = re.compile(r"(^[ ]*\w+:[ \t]*\r?\n)(?:[ \t]*\r?\n)+", re.MULTILINE)


def tidy(text: str) -> str:
    """Return a text without blank lines in a row or below a key, if it says the same."""
    shorter = _FIRST.sub(r"\1", _BLANKS.sub(r"\1\1", text)).rstrip() + "\n"
    return shorter if _list_words(spans(shorter)) == _list_words(spans(text)) else text


def _list_words(span: Span) -> list[str]:
    found = [span.kind, span.text]
    for key, value in span.entries:
        found += [*_list_words(key), *_list_words(value)]
    for item in span.items:
        found += _list_words(item)
    return found
