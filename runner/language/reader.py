"""The stage from bytes to a marked tree. Knows YAML 1.2, and no scenario.

PyYAML's parser (in C where it is built in) gives events with exact places; composing them here,
without recursion, polices what a stranger's file may do: its size, its depth, and how far its
aliases expand. Every fault is a :class:`Problem` with its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from runner.language.compose import Composer
from runner.language.limits import Limits, beyond
from runner.problems import Mark, Problem, ScenarioError, Source

if TYPE_CHECKING:
    from runner.language.tree import Node

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
    return parse(decoded(path, content, limits), limits=limits)


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


def decoded(path: str, content: bytes, limits: Limits) -> Source:
    """Return a file's text; raises ScenarioError where it is too large or not UTF-8."""
    blank = Source(path=path, text="")
    start = Mark(source=blank, line=1, column=1)
    if len(content) > limits.max_file_bytes:
        raise ScenarioError(
            [
                Problem(
                    code="file_too_large",
                    message=f"the file is too large: {beyond('max_file_bytes', limits)}",
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
                message=f"the character U+{ord(found.group()):04X} must not stand in YAML",
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
    """Turn a fault of the C parser into a problem, in the words of the pure one."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if _FAST is not None and (mark is None or mark.index < _PURE_LIMIT):
        try:
            for _ in yaml.parse(source.text, Loader=yaml.SafeLoader):
                pass
        except yaml.MarkedYAMLError as worded:
            error = worded
        except yaml.YAMLError:
            pass
    return _worded(source, error)


def _worded(source: Source, error: yaml.YAMLError) -> Problem:
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
    context = getattr(error, "context", None)
    message = f"not YAML: {context}, {said}" if context else f"not YAML: {said}"
    return Problem(code="yaml_syntax", message=message, mark=place, hint=_syntax_hint(said))


def _syntax_hint(said: str) -> str | None:
    hints = {
        "mapping values are not allowed": "put a text that contains `: ` into quotes",
        "could not find expected ':'": "every key is followed by `: ` and a value",
        "expected <block end>": "the items of one mapping or list start in the same column",
        "cannot start any token": "put a text that begins with this character into quotes",
        "but got '['": "put an expression with brackets into quotes",
        "found undefined alias": "an anchor `&name` must come before its alias `*name`",
        "but got '<stream end>'": "a bracket, brace or quote is not closed",
        "found unexpected end of stream": "a quote is not closed",
    }
    return next((hint for part, hint in hints.items() if part in said), None)
