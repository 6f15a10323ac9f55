"""Bytes -> a marked tree, by the YAML 1.2 core schema, with aliases and depth bounded.

PyYAML reads YAML 1.1, in which `no` is false and `12:30` is 750. Only its scanner and parser are
used here, whose events have places; what a scalar means is decided by the rules of YAML 1.2,
chapter 10.3 (https://yaml.org/spec/1.2.2/#103-core-schema).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, TypeAlias

import yaml
from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import (
    MOST_PROBLEMS,
    Edit,
    Mark,
    Problem,
    Repair,
    ScenarioError,
    Source,
    cut_problems,
)
from torch_scenarios.limits import Limits, explain_bound

# -------------------------------------------------------------------------------------------------
# The tree that a YAML file is read into: values and the place of every one of them.
#
# Made by :mod:`torch_scenarios.source.tree`; nothing here knows what a scenario is. Aliases are
# already resolved: an aliased node occurs in several places and keeps the mark of its anchor.


class Scalar(Struct, eq=False):
    """One value of the core schema: None, a boolean, an integer, a float or a string.

    `text` is what the author wrote, without quotes.

        1e3       a float: the core schema of YAML 1.2
        0o17      15
        no        a string: only `true` and `false` are booleans, unlike in YAML 1.1
    """

    mark: Mark
    value: Any
    text: str


class Sequence(Struct, eq=False):
    """A YAML list.

    An alias is the same object as its anchor, so that a list may be in a tree twice; it is never
    within itself, which the composer refuses.
    """

    mark: Mark
    items: list[Node]


class Mapping(Struct, eq=False):
    """A YAML mapping in the order of the file; keys are unique, and may be lists.

    A key that is written twice is a problem: YAML calls it an error, and most readers silently keep
    the last one.
    """

    mark: Mark
    entries: list[tuple[Node, Node]]
    _index: dict[str, Node] | None = None

    def get(self, name: str) -> Node | None:
        """Return the value of the key `name`, or None; call only once the mapping is complete."""
        if self._index is None:
            self._index = {}
            for key, value in self.entries:
                self._index.setdefault(key_text(key), value)
        return self._index.get(name)

    def words(self) -> list[str]:
        """Return the text of every key."""
        return [key_text(key) for key, _ in self.entries]


Node: TypeAlias = "Scalar | Sequence | Mapping"


def key_text(key: Node) -> str:
    """Return a key as the author may write it: `0`, `x`, `[0, 2]`."""
    return key.text if isinstance(key, Scalar) else source_text(key)


def source_text(node: Node) -> str:
    """Return a node as one line of flow YAML, for messages."""
    match node:
        case Scalar():
            return node.text
        case Sequence():
            return "[" + ", ".join(source_text(item) for item in node.items) + "]"
        case Mapping():
            parts = (f"{source_text(key)}: {source_text(value)}" for key, value in node.entries)
            return "{" + ", ".join(parts) + "}"


def kind_of(node: Node) -> str:
    """Return what a node is, as messages call it.

    "a list", "the number 3", "the text 'x'", "empty".
    """
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    match node.value:
        case None:
            return "empty"
        case bool():
            return f"the boolean {node.text}"
        case int() | float():
            return f"the number {node.text}"
        case _:
            return f"the text {node.text!r}"


def plain(node: Node) -> Any:
    """Return the value of a node without marks: dicts, lists and scalars.

    A list as a key is a tuple.
    """
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {_hashable(plain(key)): plain(value) for key, value in node.entries}


def _hashable(value: Any) -> Any:
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value


# -------------------------------------------------------------------------------------------------
# Plain YAML scalars by the core schema of YAML 1.2 (chapter 10.3.2), and no other rule.
#
# `no`, `on`, `12:30` and `2024-01-01` are strings, `012` is twelve, `1e-5` is a number.

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float("inf") for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **{"-" + word: float("-inf") for word in (".inf", ".Inf", ".INF")},
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

#: a longer number is no number that any dtype holds, and costs time to read
MAX_DIGITS = 400

TAG_PREFIX = "tag:yaml.org,2002:"
#: tag -> the type that a scalar so tagged must have
SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    TAG_PREFIX + "str": (str,),
    TAG_PREFIX + "int": (int,),
    TAG_PREFIX + "float": (int, float),
    TAG_PREFIX + "bool": (bool,),
    TAG_PREFIX + "null": (type(None),),
}


def resolve_plain(text: str) -> Any:
    """Return the value of an unquoted scalar; ValueError for a number of absurd length.

    >>> [resolve_plain(text) for text in ("no", "012", "0o17", "1e3", ".inf", "~", "12:30")]
    ['no', 12, 15, 1000.0, inf, None, '12:30']
    """
    if text in _WORDS:
        return _WORDS[text]
    if not (text[0].isdigit() or text[0] in "+-."):
        return text
    for pattern, read in _NUMBERS:
        if pattern.fullmatch(text):
            if len(text) > MAX_DIGITS:
                message = f"a number of {len(text)} characters is too long"
                raise ValueError(message)
            return read(text)
    return text


_NUMBERS = (
    (_DECIMAL, int),
    (_OCTAL, lambda text: int(text, 0)),
    (_HEXADECIMAL, lambda text: int(text, 0)),
    (_FLOAT, float),
)


def resolve_tagged(text: str, tag: str) -> Any:
    """Return the value of a scalar with one of `SCALAR_TAGS`; ValueError for other texts.

    >>> resolve_tagged("1", "tag:yaml.org,2002:str"), resolve_tagged("1", "tag:yaml.org,2002:float")
    ('1', 1.0)
    """
    if tag == TAG_PREFIX + "str":
        return text
    value = resolve_plain(text)
    wanted = SCALAR_TAGS[tag]
    if type(value) not in wanted:
        message = f"{text!r} is not of type {tag.removeprefix(TAG_PREFIX)}"
        raise ValueError(message)
    return float(text) if float in wanted else value


# -------------------------------------------------------------------------------------------------
# From YAML events to the marked tree, without recursion, policing aliases and depth.

_MERGE = "<<"


class _Open(Struct):
    """A collection whose end has not come yet; `size` counts its nodes, aliases expanded.

    Its node gets its place at the end: that of its first key, or all of it between brackets. `seen`
    has the keys so far, each with its place, for a message about the second one.
    """

    node: Sequence | Mapping
    event: Any
    anchor: str | None
    size: int = 1
    depth: int = 1
    key: Node | None = None
    seen: dict[Hashable, Mark] = field(default_factory=dict)


class Composer:
    """Takes the events of one stream; afterwards `root` is its tree, `problems` what is wrong.

    It is ours because of the marks: each node has its place, a key too, and a message points at it.
    It counts what aliases expand to while they are met, so that ten lines cannot be a billion
    nodes:

        a: &a [x, x, x, x, x, x, x, x, x, x]
        b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]
        c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]   1,000 nodes, ten times as many a line

    An alias adds the size of its anchor to all lists around it, and its depth to theirs, without a
    look at what is in it.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        """Start with nothing read."""
        self.source = source
        self.limits = limits
        self._start = Mark(source=source, line=1, column=1)
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._stack: list[_Open] = []
        #: anchor -> the node, its size and its depth; None while it is open
        self._anchors: dict[str, tuple[Node, int, int] | None] = {}
        self._expanded = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        """Take the next event; raises ScenarioError where reading on would cost too much."""
        take = self._taking.get(type(event))
        if take is not None:
            take(self, event)

    # ------------------------------------------------------------------ events

    def _document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            self._stop(
                "several_documents",
                "a second document begins here; a file holds one scenario",
                self._mark(event),
                "put the second scenario into another file",
            )

    def _scalar(self, event: Any) -> None:
        """Take a scalar.

        Quoted ones are texts, plain ones are resolved, tagged ones have to be of their type.
        """
        mark = self._mark(event)
        text = event.value
        node = Scalar(mark, text, text)
        try:
            if event.tag is not None and event.tag != "!":
                if event.tag in SCALAR_TAGS:
                    node.value = resolve_tagged(text, event.tag)
                else:
                    self._unknown_tag(event, mark)
            elif event.implicit[0] and event.tag is None:
                node.value = resolve_plain(text)
        except ValueError as error:
            long = "too long" in str(error)
            hint = "write it with an exponent: 1e100" if long else None
            self._problem("bad_scalar", str(error), mark, hint)
        self._anchor(event.anchor, node, 1, 1)
        self._add(node, 1, 1)

    def _open_mapping(self, event: Any) -> None:
        self._open(event, Mapping(self._start, []))

    def _sequence(self, event: Any) -> None:
        self._open(event, Sequence(self._start, []))

    def _open(self, event: Any, node: Sequence | Mapping) -> None:
        wanted = TAG_PREFIX + ("map" if isinstance(node, Mapping) else "seq")
        if event.tag not in {None, "!", wanted}:
            self._unknown_tag(event, self._mark(event))
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(node, event, event.anchor))
        if len(self._stack) > self.limits.max_nesting:
            self._limit_depth(len(self._stack), self._mark(event))

    def _close(self, event: Any) -> None:
        opened = self._stack.pop()
        node, begun = opened.node, opened.event
        if begun.flow_style:
            node.mark = Mark(
                source=self.source,
                line=begun.start_mark.line + 1,
                column=begun.start_mark.column + 1,
                end_line=event.end_mark.line + 1,
                end_column=event.end_mark.column + 1,
            )
        elif isinstance(node, Mapping) and node.entries:
            node.mark = node.entries[0][0].mark
        else:
            node.mark = self._mark(begun)
        self._anchor(opened.anchor, node, opened.size, opened.depth)
        self._add(node, opened.size, opened.depth)

    def _alias(self, event: Any) -> None:
        """Take an alias: the very node of its anchor, counted as often as it occurs.

        An anchor that is still open is within itself: the tree would be without end.
        """
        mark = self._mark(event)
        if event.anchor not in self._anchors:
            self._stop(
                "unknown_alias",
                f"no anchor `&{event.anchor}` comes before this alias",
                mark,
                "an anchor must come before its alias; put a text that begins with `*` into quotes",
            )
        known = self._anchors[event.anchor]
        if known is None:
            self._stop("recursive_alias", f"`*{event.anchor}` is used inside its own anchor", mark)
            return
        node, size, depth = known
        self._expanded += size
        if self._expanded > self.limits.max_anchor_expansion:
            self._stop(
                "alias_expansion",
                f"the aliases expand too far: {explain_bound('max_anchor_expansion', self.limits)}",
                mark,
                "state large values as expressions",
            )
        self._limit_depth(len(self._stack) + depth, mark)
        self._add(node, size, depth)

    _taking: ClassVar[dict[type, Callable[[Composer, Any], None]]] = {
        yaml.ScalarEvent: _scalar,
        yaml.MappingStartEvent: _open_mapping,
        yaml.SequenceStartEvent: _sequence,
        yaml.MappingEndEvent: _close,
        yaml.SequenceEndEvent: _close,
        yaml.AliasEvent: _alias,
        yaml.DocumentStartEvent: _document,
    }

    # ------------------------------------------------------------------ the tree

    def _add(self, node: Node, size: int, depth: int) -> None:
        if not self._stack:
            self.root = node
            return
        top = self._stack[-1]
        top.size += size
        top.depth = max(top.depth, depth + 1)
        if isinstance(top.node, Sequence):
            top.node.items.append(node)
        elif top.key is None:
            self._police_key(top, node)
            top.key = node
        else:
            top.node.entries.append((top.key, node))
            top.key = None

    def _police_key(self, top: _Open, key: Node) -> None:
        """Note a key that YAML 1.2 does not have, or that was given before in its mapping."""
        if key.__class__ is Scalar and key.value.__class__ is str and key.value != _MERGE:
            self._police_repeats(top, key, ("str", key.value))  # as nearly every key is
            return
        if isinstance(key, Scalar) and key.value == _MERGE:
            self._problem(
                "merge_key",
                "`<<` is not a key of YAML 1.2: nothing is merged",
                key.mark,
                "write the keys out, or share steps with `use` and values with `parameters`",
            )
            return
        if _holds_mapping(key):
            line = key.mark.source.line(key.mark.line)
            template = line[key.mark.column - 2 : key.mark.column] == "{{"
            hint = "there is no template syntax: write the name alone" if template else None
            self._problem("bad_key", "a mapping cannot be a key", key.mark, hint)
            return
        self._police_repeats(top, key, _identity(plain(key)))

    def _police_repeats(self, top: _Open, key: Node, identity: Hashable) -> None:
        if identity in top.seen:
            self._problem(
                "duplicate_key",
                f"the key `{key_text(key)}` is given twice in this mapping",
                key.mark,
                f"it is given first in line {top.seen[identity].line}",
            )
        top.seen.setdefault(identity, key.mark)

    def _anchor(self, anchor: str | None, node: Node, size: int, depth: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, size, depth)

    def _limit_depth(self, depth: int, mark: Mark) -> None:
        if depth > self.limits.max_nesting:
            self._stop(
                "nesting", f"nested too deep: {explain_bound('max_nesting', self.limits)}", mark
            )

    # ------------------------------------------------------------------ faults

    def _mark(self, event: Any) -> Mark:
        start, end = event.start_mark, event.end_mark
        return Mark(
            source=self.source,
            line=start.line + 1,
            column=start.column + 1,
            end_line=end.line + 1,
            end_column=end.column + 1,
        )

    def _unknown_tag(self, event: Any, mark: Mark) -> None:
        tag = event.tag
        shown = f"!!{tag.removeprefix(TAG_PREFIX)}" if tag.startswith(TAG_PREFIX) else tag
        self._problem(
            "unknown_tag",
            f"the tag `{shown}` is unknown",
            mark,
            "a scenario needs no tags; the core schema's !!str, !!int and so on are allowed",
        )

    def _problem(self, code: str, message: str, mark: Mark, hint: str | None = None) -> None:
        self.problems.append(Problem(code=code, message=message, mark=mark, hint=hint))
        if len(self.problems) > MOST_PROBLEMS:
            raise ScenarioError(cut_problems(self.problems))

    def _stop(self, code: str, message: str, mark: Mark, hint: str | None = None) -> None:
        self._problem(code, message, mark, hint)
        raise ScenarioError(self.problems)


def _identity(value: Any) -> Hashable:
    """Return what makes two keys the same key: `1` and `1.0` and `true` are three.

    >>> len({_identity(1), _identity(1.0), _identity(True)})
    3
    """
    if value.__class__ is str:
        return ("str", value)
    if isinstance(value, list):
        return ("list", *(_identity(item) for item in value))
    if isinstance(value, float) and math.isnan(value):
        return ("float", "nan")
    return (type(value).__name__, value)


def _holds_mapping(key: Node) -> bool:
    if isinstance(key, Sequence):
        return any(_holds_mapping(item) for item in key.items)
    return isinstance(key, Mapping)


# -------------------------------------------------------------------------------------------------
# The stage from bytes to a marked tree. Knows YAML 1.2, and no scenario.
#
# PyYAML's parser (in C where it is built in) gives events with exact places; composing them here,
# without recursion, polices what a stranger's file may do: its size, its depth, and how far its
# aliases expand. Every fault is a :class:`Problem` with its place.

#: PyYAML's parser: in C where it was built in, which is ten times as fast
_FAST = getattr(yaml, "CSafeLoader", None)
_Parser: Any = _FAST or yaml.SafeLoader

#: the pure parser words its faults better, but reads only so much in a bearable time
_PURE_LIMIT = 100_000

_BOM = b"\xef\xbb\xbf"
_FOREIGN = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def read_tree(path: str, content: bytes, *, limits: Limits) -> Node:
    """Return the tree of a file; `path` is what messages call it.

    Raises ScenarioError: too large, not UTF-8, not YAML, empty, several documents, duplicate
    keys, unknown tags, aliases that expand too far.
    """
    return parse(decode(path, content, limits), limits=limits)


def parse(source: Source, *, limits: Limits) -> Node:
    """Return the tree of a text; raises ScenarioError with every fault up to the first of YAML."""
    _refuse_control_characters(source)
    composer = Composer(source, limits)
    try:
        parser = _Parser(source.text)
        while parser.check_event():
            composer.take(parser.get_event())
    except yaml.YAMLError as error:
        raise ScenarioError([*composer.problems, _yaml_problem(source, error)]) from None
    tree = composer.root
    if composer.problems:
        raise ScenarioError(composer.problems)
    if tree is None:
        raise ScenarioError(
            [
                Problem(
                    code="empty_file",
                    message="the file is empty",
                    mark=Mark(source=source, line=1, column=1),
                    hint="`scenario new NAME` writes a scenario to start from",
                )
            ]
        )
    return tree


def decode(path: str, content: bytes, limits: Limits) -> Source:
    """Return a file's text; raises ScenarioError where it is too large or not UTF-8."""
    blank = Source(path=path, text="")
    start = Mark(source=blank, line=1, column=1)
    if len(content) > limits.max_file_bytes:
        raise ScenarioError(
            [
                Problem(
                    code="file_too_large",
                    message=f"the file is too large: {explain_bound('max_file_bytes', limits)}",
                    mark=start,
                    hint="state large tensors as expressions, such as `arange(1000000)`",
                )
            ]
        )
    content = content.removeprefix(_BOM)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        foreign = _FOREIGN.get(content[:2])
        before = content[: error.start].decode("utf-8")
        shown = Source(path=path, text="" if foreign else content.decode("utf-8", "replace"))
        raise ScenarioError(
            [
                Problem(
                    code="not_utf8",
                    message=f"the file is {foreign}, not UTF-8"
                    if foreign
                    else f"byte 0x{content[error.start]:02x} is not UTF-8",
                    mark=Mark(
                        source=shown,
                        line=before.count("\n") + 1,
                        column=len(before) - (before.rfind("\n") + 1) + 1,
                    ),
                    hint="save the file as UTF-8",
                )
            ]
        ) from None
    return Source(path=path, text=text)


def _refuse_control_characters(source: Source) -> None:
    if source.text.isascii() and source.text.isprintable():
        return
    found = yaml.reader.Reader.NON_PRINTABLE.search(source.text)
    if found is None:
        return
    before = source.text[: found.start()]
    raise ScenarioError(
        [
            Problem(
                code="control_character",
                message=f"the character U+{ord(found.group()):04X} is not allowed in YAML",
                mark=Mark(
                    source=source,
                    line=before.count("\n") + 1,
                    column=len(before) - (before.rfind("\n") + 1) + 1,
                ),
                hint='inside double quotes it may be written as an escape, such as "\\u0007"',
            )
        ]
    )


def _yaml_problem(source: Source, error: yaml.YAMLError) -> Problem:
    """Turn an error of the C parser into a problem, in the words of the pure one.

    Both find the same errors, and word them otherwise; messages are chosen by the words of the pure
    one (`_SYNTAX`), which reads a text of up to 100,000 characters again for that.
    """
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if _FAST is not None and (mark is None or mark.index < _PURE_LIMIT):
        worded = _parse_purely(source.text, error)
        at = getattr(worded, "problem_mark", None)
        if "'\\t'" in str(worded) and mark is not None and at is not None and at.line != mark.line:
            # a tab that the C parser takes, unlike the pure one; the fault is another
            worded = _parse_purely(source.text.replace("\t", " "), error)
        error = worded
    return _word_error(source, error)


def _parse_purely(text: str, error: yaml.YAMLError) -> Any:
    """Return what the pure parser says of a text; `error` where it says nothing with a place."""
    try:
        for _ in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.MarkedYAMLError as worded:
        return worded
    except yaml.YAMLError:
        pass
    return error


def _word_error(source: Source, error: yaml.YAMLError) -> Problem:
    """Return an error of YAML in words that say what to write.

    At the line that was meant, where that is known.
    """
    said = getattr(error, "problem", None) or str(error)
    at = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = Mark(
        source=source,
        line=at.line + 1 if at else 1,
        column=at.column + 1 if at else 1,
    )
    opened = getattr(error, "context_mark", None)
    if opened is not None and not source.line(place.line).strip():
        place = Mark(source=source, line=opened.line + 1, column=opened.column + 1)
    line = source.line(place.line)
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation or "'\\t'" in said:
        column = line.find("\t") + 1
        place = Mark(source=source, line=place.line, column=column or place.column)
        return Problem(
            code="yaml_tab",
            message="a tab indents this line; YAML allows only spaces",
            mark=place,
            hint="replace the tab by spaces",
        )
    special = _find_unclosed(source, said, place, opened) or _key_before(source, said, place)
    if special is not None:
        return special
    here = line[place.column - 1 : place.column]
    if "expected alphabetic or numeric" in said and place.column > 1:
        here = line[place.column - 2]
        place = replace(place, column=place.column - 1)
    message, hint = next(
        (words for part, words in _SYNTAX.items() if part in said),
        ("this cannot be read as YAML", "look at the quotes, brackets and colons up to here"),
    )
    return Problem(
        code="yaml_syntax",
        message=message.replace("HERE", f"`{here}`"),
        mark=place,
        hint=hint.replace("HERE", f"`{here}`"),
    )


def _find_unclosed(source: Source, said: str, place: Mark, opened: Any) -> Problem | None:
    """Return the problem of a bracket: one that the next key ends, or that closes no open one.

    The parser notices a bracket that is never closed where the file ends, or at the next key; what
    is to be changed is where it was opened.
    """
    line = source.line(place.line)
    here = line[place.column - 1 : place.column]
    if said.startswith("expected <block end>") and here in _CLOSING.values():
        message, hint = f"this `{here}` closes a bracket that is not open", "leave it out"
        return Problem(code="yaml_syntax", message=message, mark=place, hint=hint)
    if "expected ',' or" not in said or opened is None:
        return None
    bracket = source.line(opened.line + 1)[opened.column : opened.column + 1]
    if "but got '}'" in said or "but got ']'" in said:
        message = f"the `{bracket}` of line {opened.line + 1} is closed by this `{here}`"
        hint = f"close it with `{_CLOSING.get(bracket, here)}`"
        return Problem(code="yaml_syntax", message=message, mark=place, hint=hint)
    outer = source.line(opened.line + 1)
    deeper = len(line) - len(line.lstrip()) > len(outer) - len(outer.lstrip())
    if place.line == opened.line + 1 or deeper or not _KEY.match(line):
        return None
    mark = Mark(source=source, line=opened.line + 1, column=opened.column + 1)
    hint = f"write `{_CLOSING.get(bracket, '')}` where the value ends"
    return Problem(
        code="yaml_syntax", message=f"this `{bracket}` is never closed", mark=mark, hint=hint
    )


def _key_before(source: Source, said: str, place: Mark) -> Problem | None:
    """Return the problem of a line that should have been a key, where the next one is a key.

    world_size 2        the parser complains of the next line, in which a second `: ` comes
    steps: [...]        what is missing is the `:` of this one
    """
    if "mapping values are not allowed" not in said and "could not find expected ':'" not in said:
        return None
    number = place.line - 1
    while number > 1 and not source.line(number).strip():
        number -= 1
    before = source.line(number)
    start = len(before) - len(before.lstrip())
    word = _BARE.fullmatch(before)
    if number < 1 or word is None:
        return None
    mark = Mark(
        source=source, line=number, column=start + 1, end_column=start + 1 + len(word["key"])
    )
    at = source.offset(number, start + 1) + len(word["key"])
    if word["value"] is None:
        message, edit = "no `:` follows the key", Edit(start=at, end=at, text=":")
        meant = f"{word['key']}:"
    else:
        message, edit = "no space follows the `:` of", Edit(start=at + 1, end=at + 1, text=" ")
        meant = f"{word['key']}: {word['value']}"
    return Problem(
        code="yaml_syntax",
        message=f"{message} `{word['key']}`",
        mark=mark,
        hint=f"write `{meant}`",
        repair=Repair(title=f"write `{meant}`", source=source, edits=(edit,)),
    )


_CLOSING = {"[": "]", "{": "}"}
#: a line of a block that begins with a key
_KEY = re.compile(r"\s*[\w.-]+\s*:(\s|$)")
#: a line that is a word alone, or a word and a value without the space between them
_BARE = re.compile(r"\s*(?P<key>[A-Za-z_][\w.]*)(:(?P<value>[^\s:]\S*))?\s*")

#: a part of what the parser says -> what is wrong, and what would be right; the first that fits
_SYNTAX = {
    "mapping values are not allowed": (
        "a second `: ` follows in a value",
        "put a text that contains `: ` into quotes",
    ),
    "could not find expected ':'": (
        "no `: ` follows this key",
        "every key is followed by `: ` and a value",
    ),
    "expected <block end>, but found '<scalar>'": (
        "this follows a value that has ended",
        "put the whole text into quotes; begin a key on a new line",
    ),
    "expected <block end>": (
        "this line does not start in the column of those that it belongs to",
        "the items of one mapping or list start in the same column",
    ),
    "sequence entries are not allowed": (
        "an item of a list cannot begin here",
        "begin it on a new line, below the key",
    ),
    "character '`'": (
        "a text cannot begin with a backtick",
        "leave it out, or put the text into quotes",
    ),
    "cannot start any token": (
        "a text cannot begin with HERE",
        "put a text that begins with this character into quotes",
    ),
    "but got '<stream end>'": (
        "this HERE is never closed",
        "close the bracket or brace, or put the text into quotes",
    ),
    "but got '['": (
        "a `,` or a closing bracket must come before this `[`",
        "put an expression with brackets into quotes",
    ),
    "expected ',' or": (
        "a `,` or a closing bracket must come before HERE",
        "put a `,` between two items; put a text with brackets, commas or colons into quotes",
    ),
    "found undefined alias": (
        "this alias has no anchor",
        "an anchor `&name` must come before its alias `*name`",
    ),
    "found duplicate anchor": ("this anchor is given twice", "choose another name for one"),
    "found unexpected end of stream": ("this HERE is never closed", "close the quote"),
    "found unknown escape": (
        "this escape is not known",
        "write a backslash twice, or use single quotes",
    ),
    "expected alphabetic or numeric": (
        "no name follows this HERE",
        "put a text that begins with this character into quotes",
    ),
    "expected the node content, but found '<stream end>'": (
        "the file ends where a value is expected",
        "write the value, and close the bracket or brace",
    ),
    "expected the node content": ("a value is missing before HERE", "write it, or leave HERE out"),
    "expected escape sequence": (
        "an escape lacks its hexadecimal digits",
        "write a backslash twice, or use single quotes",
    ),
    "expected chomping": (
        "the text of a block begins on the line below",
        "put it there, indented; `|` and `>` stay alone",
    ),
    "expected '<document start>'": (
        "this follows the end of the document, or a line of YAML's own",
        "leave out the line above that begins with `...` or `%`",
    ),
    "undefined tag handle": ("a tag of another kind begins here", "a scenario needs no tags"),
    "expected '>'": ("this tag is never closed", "a scenario needs no tags"),
}
