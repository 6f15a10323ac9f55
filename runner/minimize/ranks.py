"""Ranks: one that goes takes its steps, its values and its places in groups with it.

A rank is in many places of a file at once, so that no removal of a node makes a world smaller.
Here the world loses one rank, and everything that names ranks by number is renumbered: rank 2 of
four goes, and 3 is 2 from then on. Expressions of `rank` stay as they are; whether the fault
does is asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.language.spans import spans as spans_of
from runner.language.splice import Edit, splice, without
from runner.minimize.constants import PROSE
from runner.minimize.ddmin import ddmin
from runner.minimize.sizes import resizing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runner.language.spans import Span
    from runner.minimize.search import Search

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
        smaller = without_ranks(text, kept, keep_peers=keep_peers)
        yield smaller
        resized = splice(smaller, resizing(smaller, spans_of(smaller), count, len(kept)))
        if resized != smaller:
            yield resized


def without_ranks(text: str, kept: Sequence[int], *, keep_peers: bool = False) -> str:
    """Return the text of a world in which only some ranks are left, renumbered from 0.

    A step that names a rank which is gone as its peer or root goes with it, or with `keep_peers`
    names rank 0 instead.
    """
    world = spans_of(text).get("world_size")
    count = int(world.text) if world is not None else 0
    for rank in sorted(set(range(count)) - set(kept), reverse=True):
        text = _without_rank(text, rank, keep_peers=keep_peers)
    return text


def _without_rank(text: str, rank: int, *, keep_peers: bool) -> str:
    root = spans_of(text)
    world = root.get("world_size")
    assert world is not None  # noqa: S101 -- asked by the callers
    less = Edit(start=world.start, end=world.end, text=str(int(world.text) - 1))
    going = _Going(text=text, rank=rank, keep_peers=keep_peers)
    going.visit(root, "")
    return splice(text, [less, *going.edits])


@dataclass(slots=True, kw_only=True)
class _Going:
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
        self.edits = [edit for edit in self.edits if not _within(edit, inside)]
        self.edits += without(self.text, span, gone)
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
            told = _COMPARED.sub(self._compared, said)
            told = _RANGE.sub(self._ranged, told) if key in _LISTS else told
            if told != said:
                self._replace(span, told)
        return False

    def _compared(self, found: re.Match[str]) -> str:
        number = int(found[3])
        beyond = number >= self.rank if found[2] in {">", "<="} else number > self.rank
        return f"{found[1]}{number - 1 if beyond and number else number}"

    def _ranged(self, found: re.Match[str]) -> str:
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
        """Whether a step goes because nobody is left to take it, or to be its peer."""
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


def _within(edit: Edit, spans: Sequence[Span]) -> bool:
    return any(span.start <= edit.start and edit.end <= span.end for span in spans)
