"""From YAML events to the marked tree, without recursion, policing aliases and depth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from runner.language.limits import Limits, beyond
from runner.language.scalars import SCALAR_TAGS, TAG_PREFIX, resolve_plain, resolve_tagged
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, plain
from runner.problems import MOST_PROBLEMS, Mark, Problem, ScenarioError, too_many

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from runner.problems import Source

_MERGE = "<<"


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet; `size` counts its nodes, aliases expanded."""

    node: Sequence | Mapping
    anchor: str | None
    flow: bool
    size: int = 1
    depth: int = 1
    key: Node | None = None
    seen: dict[Hashable, Mark] = field(default_factory=dict)


class Composer:
    """Takes the events of one stream; afterwards `root` is its tree, `problems` what is wrong."""

    def __init__(self, source: Source, limits: Limits) -> None:
        """Start with nothing read."""
        self.source = source
        self.limits = limits
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._stack: list[_Open] = []
        #: anchor -> the node, its size and its depth; None while it is open
        self._anchors: dict[str, tuple[Node, int, int] | None] = {}
        self._expanded = 0
        self._documents = 0

    def take(self, event: Any) -> None:  # noqa: ANN401 -- PyYAML's stubs do not type events
        """Take the next event; raises ScenarioError where reading on would cost too much."""
        take = self._taking.get(type(event))
        if take is not None:
            take(self, event)

    # ------------------------------------------------------------------ events

    def _document(self, event: Any) -> None:  # noqa: ANN401
        self._documents += 1
        if self._documents > 1:
            self._stop(
                "several_documents",
                "a second document begins here; a file holds one scenario",
                self._mark(event),
                "put the second scenario into a file of its own",
            )

    def _scalar(self, event: Any) -> None:  # noqa: ANN401
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
        self._anchored(event.anchor, node, 1, 1)
        self._add(node, 1, 1)

    def _mapping(self, event: Any) -> None:  # noqa: ANN401
        self._open(event, Mapping(self._mark(event), []))

    def _sequence(self, event: Any) -> None:  # noqa: ANN401
        self._open(event, Sequence(self._mark(event), []))

    def _open(self, event: Any, node: Sequence | Mapping) -> None:  # noqa: ANN401
        wanted = TAG_PREFIX + ("map" if isinstance(node, Mapping) else "seq")
        if event.tag not in {None, "!", wanted}:
            self._unknown_tag(event, node.mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(node, event.anchor, bool(event.flow_style)))
        self._limit_depth(len(self._stack), node.mark)

    def _close(self, event: Any) -> None:  # noqa: ANN401
        opened = self._stack.pop()
        node, mark = opened.node, opened.node.mark
        if opened.flow:
            node.mark = Mark(
                source=self.source,
                line=mark.line,
                column=mark.column,
                end_line=event.end_mark.line + 1,
                end_column=event.end_mark.column + 1,
            )
        elif isinstance(node, Mapping) and node.entries:
            node.mark = node.entries[0][0].mark
        self._anchored(opened.anchor, node, opened.size, opened.depth)
        self._add(node, opened.size, opened.depth)

    def _alias(self, event: Any) -> None:  # noqa: ANN401
        mark = self._mark(event)
        if event.anchor not in self._anchors:
            self._stop(
                "unknown_alias",
                f"no anchor `&{event.anchor}` comes before this alias",
                mark,
                "an anchor must come before its alias",
            )
        known = self._anchors[event.anchor]
        if known is None:
            self._stop("recursive_alias", f"`*{event.anchor}` stands inside its own anchor", mark)
            return
        node, size, depth = known
        self._expanded += size
        if self._expanded > self.limits.max_anchor_expansion:
            self._stop(
                "alias_expansion",
                f"the aliases expand too far: {beyond('max_anchor_expansion', self.limits)}",
                mark,
                "state large values as expressions",
            )
        self._limit_depth(len(self._stack) + depth, mark)
        self._add(node, size, depth)

    _taking: ClassVar[dict[type, Callable[[Composer, Any], None]]] = {
        yaml.ScalarEvent: _scalar,
        yaml.MappingStartEvent: _mapping,
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
        if isinstance(key, Scalar) and key.value == _MERGE:
            self._problem(
                "merge_key",
                "`<<` is no key of YAML 1.2: nothing is merged",
                key.mark,
                "write the keys out, or share steps with `use` and values with `parameters`",
            )
            return
        if _holds_mapping(key):
            self._problem("bad_key", "a mapping cannot be a key", key.mark)
            return
        identity = _identity(plain(key))
        if identity in top.seen:
            self._problem(
                "duplicate_key",
                f"the key `{key_text(key)}` stands twice in this mapping",
                key.mark,
                f"it stands first in line {top.seen[identity].line}",
            )
        top.seen.setdefault(identity, key.mark)

    def _anchored(self, anchor: str | None, node: Node, size: int, depth: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, size, depth)

    def _limit_depth(self, depth: int, mark: Mark) -> None:
        if depth > self.limits.max_nesting:
            self._stop("nesting", f"nested too deep: {beyond('max_nesting', self.limits)}", mark)

    # ------------------------------------------------------------------ faults

    def _mark(self, event: Any) -> Mark:  # noqa: ANN401
        start, end = event.start_mark, event.end_mark
        return Mark(
            source=self.source,
            line=start.line + 1,
            column=start.column + 1,
            end_line=end.line + 1,
            end_column=end.column + 1,
        )

    def _unknown_tag(self, event: Any, mark: Mark) -> None:  # noqa: ANN401
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
            raise ScenarioError(too_many(self.problems))

    def _stop(self, code: str, message: str, mark: Mark, hint: str | None = None) -> None:
        self._problem(code, message, mark, hint)
        raise ScenarioError(self.problems)


def _identity(value: Any) -> Hashable:  # noqa: ANN401
    """Return what makes two keys the same key: `1` and `1.0` and `true` are three."""
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
