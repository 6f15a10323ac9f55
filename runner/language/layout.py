"""The one layout of scenario files: columns, blanks, the order of keys; nothing else is touched.

Takes the text of a file, gives back the text as it should be laid out. What the result says is
compared with what the text said, node by node and comment by comment: a layout that would change
either is not taken. So a formatted file loads to an equal scenario, because the loader sees an
equal tree.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from runner.language.document import police_top
from runner.language.layout_lines import indented
from runner.language.layout_order import is_step_list, ordered
from runner.language.layout_scan import ExoticLayoutError
from runner.language.reader import decoded, parse
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text
from runner.problems import ScenarioError, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runner.language.limits import Limits

#: PyYAML breaks lines at these as well; a text that holds one is left alone
_RARE_BREAKS = ("\x85", "\u2028", "\u2029")


def formatted(path: Path | str, content: bytes, limits: Limits) -> bytes:
    """Return the content of a scenario file in its layout; that of a file which is so already.

    `path` is what messages call the file. The line ends of its first line are used throughout.
    Raises ScenarioError where the file is no YAML, where its top is no scenario's, or where it is
    in a newer version of the language: what is wrong inside the steps does not matter here.
    """
    source = decoded(str(path), content, limits)
    tree = parse(source, limits=limits)
    police_top(tree, Path(path), limits)
    ends = "\r\n" if source.text.partition("\n")[0].endswith("\r") else "\n"
    text = source.text.replace("\r\n", "\n")
    if "\r" in text or any(each in text for each in _RARE_BREAKS):
        return content
    for lay in (_ordered, _indented):
        made = _tried(lay, text, source.path, limits)
        if made is not None and _says_the_same(text, made, tree, source.path, limits):
            return made.replace("\n", ends).encode()
    return content


def _indented(text: str, path: str, limits: Limits) -> str:  # noqa: ARG001 -- one way of laying out
    return indented(text)


def _ordered(text: str, path: str, limits: Limits) -> str:
    made = indented(text)
    return ordered(made, parse(Source(path=path, text=made), limits=limits))


def _tried(
    lay: Callable[[str, str, Limits], str], text: str, path: str, limits: Limits
) -> str | None:
    try:
        return lay(text, path, limits)
    except (ExoticLayoutError, ScenarioError, yaml.YAMLError):
        return None


def _says_the_same(text: str, made: str, tree: Node, path: str, limits: Limits) -> bool:
    try:
        after = parse(Source(path=path, text=made), limits=limits)
    except ScenarioError:
        return False
    return meaning(after) == meaning(tree) and comments(made) == comments(text)


def meaning(tree: Node) -> Any:  # noqa: ANN401 -- nested tuples
    """Return what the loader sees of a tree: all but places, and the order of keys that may move.

    The order of the entries matters everywhere but at the top and in a step: a matrix names its
    cases by it, `compute` assigns by it, a mapping by rank is searched by it.
    """
    return _meaning(tree, movable=True)


def _meaning(node: Node, *, movable: bool) -> Any:  # noqa: ANN401
    match node:
        case Scalar():
            return type(node.value).__name__, repr(node.value), node.text
        case Sequence():
            return tuple(_meaning(item, movable=False) for item in node.items)
        case Mapping():
            entries = [
                (_meaning(key, movable=False), _entry(key_text(key), value, movable=movable))
                for key, value in node.entries
            ]
            return ("mapping", *(sorted(entries, key=repr) if movable else entries))


def _entry(key: str, value: Node, *, movable: bool) -> Any:  # noqa: ANN401
    if movable and is_step_list(key) and isinstance(value, Sequence):
        return tuple(_meaning(item, movable=True) for item in value.items)
    return _meaning(value, movable=False)


def comments(text: str) -> Counter[str]:
    """Return every comment of a text, and how often it stands there."""
    return Counter(_comments(text))


def _comments(text: str) -> Iterator[str]:
    """Yield what follows each `#` that the scanner passes over between two tokens."""
    lines = text.split("\n")
    line = column = 0
    for token in yaml.scan(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        end = token.start_mark
        for number in range(line, min(end.line + 1, len(lines))):
            begin = column if number == line else 0
            stop = end.column if number == end.line else len(lines[number])
            _, hash_, rest = lines[number][begin:stop].partition("#")
            if hash_:
                yield rest.rstrip()
        if isinstance(token, yaml.ScalarToken) and token.style in {"|", ">"}:
            yield from lines[end.line][end.column :].partition("#")[2:]
        line, column = token.end_mark.line, token.end_mark.column
