"""Expression text -> :class:`runner.forms.Expression`: parsed, allow-listed, compiled.

The language is a part of Python's own syntax. What :mod:`runner.language.grammar` does not list
is refused, with its place inside the expression. The compiled code reads variables under their own
names, and functions and guarded operators under names that no author can write (`sum()`, `**`).
It is ordinary code, evaluated at ordinary speed.

Knows neither which variables exist nor what they hold: `names` lists what the code reads, and the
caller knows the scope.
"""

from __future__ import annotations

import ast
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING

from runner.forms import Expression
from runner.language.guarded import Refusal
from runner.language.guarding import Guarding
from runner.language.limits import COUNTS, DEFAULT, FLAGS, Limits
from runner.problems import Mark, Problem, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Collection

_OPENING = "([{"
_CLOSING = ")]}"


def compile_expression(
    text: str, mark: Mark | None, *, groups: Collection[str] = (), limits: Limits = DEFAULT
) -> Expression:
    """Compile an expression; `groups` are the names of all groups, dotted ones included.

    Raises ScenarioError with every problem found, each at its place inside the expression where
    the source shows the text as it is.
    """
    try:
        parts = _compiled(text, frozenset(groups), limits)
    except _RefusedError as refused:
        problems = [_problem(refusal, text, mark) for refusal in refused.refusals]
        raise ScenarioError(problems) from None
    return Expression(
        text=text,
        code=parts.code,
        names=parts.names,
        reads=parts.reads,
        roots=parts.roots,
        calls=parts.calls,
        before=parts.before,
        mark=mark,
    )


class _RefusedError(Exception):
    """The text is no expression of the language."""

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__()
        self.refusals = refusals


@lru_cache(maxsize=4096)
def _compiled(text: str, groups: frozenset[str], limits: Limits) -> Expression:
    _police_text(text, limits)
    source = _one_line(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's advice on `1 is 2` is not for this language
        guarding = Guarding(groups=groups, limits=limits, spans=lambda node: _span(node, source))
        try:
            tree = _parsed(source, limits)
            guarded = guarding.guard(tree)
            if guarding.refusals:
                raise _RefusedError(*guarding.refusals)
            code = compile(guarded, "<expression>", "eval", dont_inherit=True)
        except (RecursionError, MemoryError):
            raise _RefusedError(_too_deep(limits)) from None
    return Expression(
        text=text,
        code=code,
        names=frozenset(guarding.names),
        reads=frozenset(guarding.reads),
        roots=frozenset(guarding.roots),
        calls=frozenset(guarding.calls),
        before=frozenset(guarding.before),
    )


def _police_text(text: str, limits: Limits) -> None:
    """Refuse what Python's own parser would choke on, before it sees it."""
    if len(text) > limits.max_expression_chars:
        words = f"{len(text)} characters; {_at_most('max_expression_chars', limits)}"
        raise _RefusedError(Refusal("expression_too_large", f"the expression has {words}"))
    if not text.strip():
        raise _RefusedError(Refusal("expression_syntax", "the expression is empty"))
    if "#" not in text and sum(map(text.count, _OPENING)) <= limits.max_nesting:
        return
    depth = 0
    for at, character in enumerate(text):
        if character in _OPENING:
            depth += 1
            if depth > limits.max_nesting:
                raise _RefusedError(_too_deep(limits, (at, at + 1)))
        elif character in _CLOSING:
            depth -= 1
        elif character == "#":
            message = "an expression has no comments"
            raise _RefusedError(Refusal("expression_syntax", message, span=(at, at + 1)))


def _too_deep(limits: Limits, span: tuple[int, int] | None = None) -> Refusal:
    message = f"the expression is nested too deeply; {_at_most('max_nesting', limits)}"
    return Refusal("expression_too_large", message, span=span)


def _at_most(name: str, limits: Limits) -> str:
    return f"at most {getattr(limits, name)} {COUNTS[name]} are allowed ({FLAGS[name]} raises it)"


def _one_line(text: str) -> str:
    """Return the text with every space a blank, so that offsets in it are offsets in the line."""
    if text.isprintable():
        return text
    return "".join(" " if character.isspace() else character for character in text)


def _parsed(source: str, limits: Limits) -> ast.expr:
    body = source.lstrip()
    indent = len(source) - len(body)
    try:
        return ast.parse(body, mode="eval").body
    except SyntaxError as error:
        start = indent + error.offset - 1 if error.offset else len(source)
        end = start + 1
        if error.end_offset is not None and error.end_lineno == error.lineno:
            end = max(indent + error.end_offset - 1, end)
        raise _RefusedError(_syntax(error, source, (start, end))) from None
    except ValueError as error:  # a NUL byte
        raise _RefusedError(Refusal("expression_syntax", f"not an expression: {error}")) from None
    except (RecursionError, MemoryError):
        raise _RefusedError(_too_deep(limits)) from None


def _syntax(error: SyntaxError, source: str, span: tuple[int, int]) -> Refusal:
    """Return what is wrong with the syntax, in the language's words rather than Python's."""
    start = min(span[0], max(len(source.rstrip()) - 1, 0))
    inside = (start, max(min(span[1], len(source)), start + 1))
    said = (error.msg or "invalid syntax").removesuffix(". Perhaps you forgot a comma?")
    if source[inside[0] : inside[1]] == "=":
        return Refusal(
            "expression_syntax", "an expression assigns nothing", "compare with `==`", inside
        )
    hint = "there is no template syntax: a name stands alone" if "$" in source else None
    for symbol, word in (("&&", "and"), ("||", "or"), ("!", "not")):
        if symbol in source.replace("!=", ""):
            hint = f"write `{word}` for `{symbol}`"
            break
    return Refusal("expression_syntax", f"not an expression: {said}", hint, inside)


def _span(node: ast.expr | ast.keyword, source: str) -> tuple[int, int]:
    """Return the node's start and end in characters; `ast` counts bytes of UTF-8."""
    indent = len(source) - len(source.lstrip())
    start, end = node.col_offset, node.end_col_offset or node.col_offset + 1
    if source.isascii():
        return indent + start, indent + end
    encoded = source.lstrip().encode()
    return (
        indent + len(encoded[:start].decode(errors="ignore")),
        indent + len(encoded[:end].decode(errors="ignore")),
    )


def _problem(refusal: Refusal, text: str, mark: Mark | None) -> Problem:
    return Problem(
        code=refusal.code,
        message=refusal.message,
        mark=_inside(mark, text, refusal.span),
        hint=refusal.hint,
    )


def _inside(mark: Mark | None, text: str, span: tuple[int, int] | None) -> Mark | None:
    """Return the part of a scalar's place that `span` covers; the whole where it is not on a line.

    A scalar with escapes, or folded over lines, does not show its text as it is.
    """
    if mark is None or span is None:
        return mark
    line = mark.source.line(mark.line)
    start = mark.column - 1
    if line[start : start + 1] in {'"', "'"}:
        start += 1
    if line[start : start + len(text)] != text:
        return mark
    return Mark(
        source=mark.source,
        line=mark.line,
        column=start + span[0] + 1,
        end_line=mark.line,
        end_column=start + span[1] + 1,
    )
