"""Edits of YAML by its text: what they do not name stays to the byte."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.errors import Edit, Source
from torch_scenarios.limits import DEFAULT
from torch_scenarios.source.edit import Span, remove_items, spans, splice, splice_edits
from torch_scenarios.source.tree import Mapping, Node, Scalar, Sequence, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPUS = sorted((Path(__file__).parents[2] / "scenarios").rglob("*.yaml"))


def tree(text: str) -> Node:
    return parse(Source(path="a.yaml", text=text), limits=DEFAULT)


def every(span: Span) -> Iterator[Span]:
    yield span
    for child in span.children():
        yield from every(child)


def test_edits_are_made_where_they_say() -> None:
    edits = [Edit(start=4, end=5, text="xyz"), Edit(start=0, end=1), Edit(start=2, end=2, text="_")]
    assert splice("abcdef", edits) == "b_cdxyzf"
    assert splice_edits("abcdef", edits)[1] == [4, 0, 1]


def test_overlapping_deletions_delete_once() -> None:
    assert splice("abcdef", [Edit(start=1, end=4), Edit(start=2, end=5)]) == "af"


def agree(node: Node, span: Span, text: str) -> None:
    """Compare the reader's tree with the spans."""
    if span.kind == "alias":
        return
    if not span.dressed:
        assert (node.mark.line, node.mark.column) == span.place
    match node:
        case Scalar():
            assert (span.kind, span.text) == ("scalar", node.text)
        case Sequence():
            assert span.kind == "sequence"
            for item, inner in zip(node.items, span.items, strict=True):
                agree(item, inner, text)
        case Mapping():
            for (key, value), (one, other) in zip(node.entries, span.entries, strict=True):
                agree(key, one, text)
                agree(value, other, text)


@pytest.mark.parametrize("path", CORPUS[::7], ids=lambda path: path.stem)
def test_spans_are_those_of_the_tree(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    agree(tree(text), spans(text), text)


def test_spans_know_aliases_tags_and_texts_over_lines() -> None:
    text = "a: &x [1, 2]\nb: *x\nc: |\n  one\n  two\n\nd: !!str 3\ne:\n"
    agree(tree(text), spans(text), text)
    root = spans(text)
    shown = {key.text: text[value.start : value.end] for key, value in root.entries}
    expected = {"a": "&x [1, 2]", "b": "*x", "c": "|\n  one\n  two", "d": "!!str 3", "e": ""}
    assert shown == expected
    assert [value.dressed for _, value in root.entries] == [True, False, False, True, False]


@pytest.mark.parametrize("path", CORPUS[::5], ids=lambda path: path.stem)
def test_what_is_not_removed_stays(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    chance = random.Random(str(path))  # noqa: S311 -- a sample, no secret
    for parent in every(spans(text)):
        count = len(parent.items) + len(parent.entries)
        gone = {number for number in range(count) if chance.random() < 0.4}
        if not gone or len(gone) == count:
            continue
        kept = [child for number, child in enumerate(parent.children()) if number not in gone]
        after = spans(splice(text, remove_items(text, parent, gone)))
        found = [
            [text_of(each) for each in other.children()]
            for other in every(after)
            if other.kind == parent.kind
        ]
        assert [text_of(each) for each in kept] in found


def text_of(span: Span) -> tuple[str, ...]:
    return tuple(each.text for each in every(span) if each.kind != "mapping")


@pytest.mark.parametrize(
    ("text", "gone", "after"),
    [
        ("a: [1, 2, 3]\n", {0}, "a: [2, 3]\n"),
        ("a: [1, 2, 3]\n", {2}, "a: [1, 2]\n"),
        ("a: [1,  2,3 ]\n", {0, 1}, "a: [3 ]\n"),
        ("a: {x: 1, y: 2}  # c\n", {1}, "a: {x: 1}  # c\n"),
        ("a:\n  - 1\n  # two\n  - 2\n  - 3  # three\n", {1}, "a:\n  - 1\n  - 3  # three\n"),
        ("a:\n  - x: 1\n    # y\n    y: 2\n  - 3\n", {0}, "a:\n  - 3\n"),
        ("a:\n  - 1\n  - 2", {1}, "a:\n  - 1\n"),
        ("a:\r\n- 1\r\n- 2\r\n", {0}, "a:\r\n- 2\r\n"),
    ],
)
def test_items_are_removed_with_their_lines(text: str, gone: set[int], after: str) -> None:
    parent = spans(text).entries[0][1]
    assert splice(text, remove_items(text, parent, gone)) == after


def test_the_first_key_beside_a_dash_is_removed() -> None:
    text = "- ranks: 0  # who\n  send: {x: 1}\n"
    assert splice(text, remove_items(text, spans(text).items[0], {0})) == "- send: {x: 1}\n"


def test_something_must_remain() -> None:
    text = "[1, 2]"
    with pytest.raises(ValueError, match="nothing would remain"):
        remove_items(text, spans(text), {0, 1})
