"""Answers -> what is stated: one value, values by rank, or by round of a loop and then by rank."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from runner.bless.refusal import RefusedError, refuse
from runner.bless.selectors import Stated, stated
from runner.bless.wording import CannotWordError
from runner.operations.entries import Undefined
from runner.verdict.comparison import Wanted, differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from runner.bless.asking import Answer
    from runner.language.spans import Span
    from runner.trace import Value

    TextOf: TypeAlias = Callable[[Value], str]

#: rounds of a loop that are told apart; more belong into an expression
MOST_ROUNDS = 8


def said(
    key: Span,
    given: Sequence[Answer],
    text_of: TextOf,
    groups: Mapping[frozenset[int], str],
    *,
    rest: bool = True,
) -> Stated:
    """Return what states the answers to the expectation `key`; `text_of` words a value.

    `rest` tells whether nothing else in the mapping speaks of further ranks. Raises RefusedError.
    """
    try:
        return stated(_by_rank(key, given, text_of), groups, rest=rest)
    except RefusedError as error:
        if error.refusals[0].code != "rounds_differ":
            raise
        rounds = _rounds(given)
        if len(rounds) > MOST_ROUNDS:
            raise
    lines: dict[str, list[tuple[tuple[str, int], ...]]] = defaultdict(list)
    for variables, answers in rounds.items():
        by_rank = _by_rank(key, answers, text_of)
        if any(text is not None for text in by_rank.values()):
            lines[stated(by_rank, groups).line].append(variables)
    return Stated(entries=tuple((_in_rounds(each), line) for line, each in lines.items()))


def _rounds(given: Iterable[Answer]) -> dict[tuple[tuple[str, int], ...], list[Answer]]:
    found: dict[tuple[tuple[str, int], ...], list[Answer]] = {}
    for answer in sorted(given, key=lambda each: each.round):
        found.setdefault(answer.round, []).append(answer)
    return found


def _in_rounds(rounds: Sequence[tuple[tuple[str, int], ...]]) -> str:
    """Return the selector of some rounds: `"i == 0"`, `"i in [0, 2]"`, `"i == 0 and j == 1"`."""
    if len(rounds) > 1 and all(len(variables) == 1 for variables in rounds):
        name = rounds[0][0][0]
        return f'"{name} in {[value for ((_, value),) in rounds]}"'
    each = (" and ".join(f"{name} == {value}" for name, value in one) for one in rounds)
    return '"' + " or ".join(each) + '"'


def _by_rank(key: Span, given: Iterable[Answer], text_of: TextOf) -> dict[int, str | None]:
    """Return the text of each rank's value; None where there is none, or none that is defined."""
    spoken: dict[int, tuple[str, Answer]] = {}
    silent: dict[int, None] = {}
    for answer in given:
        if answer.value is None or is_undefined(answer.value):
            silent[answer.rank] = None
            continue
        try:
            text = text_of(answer.value)
        except CannotWordError as error:
            refuse("value_too_large", f"`{key.text}` {error}", key.line)
        before = spoken.setdefault(answer.rank, (text, answer))
        if before[0] != text:
            spoken[answer.rank] = _common(key, before, (text, answer))
    both = sorted(spoken.keys() & silent.keys())
    if both:
        message = f"`{key.text}` has a value on rank {both[0]} in one case or round, and none in "
        refuse("cases_differ", message + "another", key.line)
    return {**{rank: text for rank, (text, _) in spoken.items()}, **silent}


def is_undefined(value: Value) -> bool:
    """Whether a value, or a part of it, is undefined."""
    if isinstance(value, list | tuple):
        return any(is_undefined(item) for item in value)
    return isinstance(value, Undefined)


def _common(key: Span, one: tuple[str, Answer], other: tuple[str, Answer]) -> tuple[str, Answer]:
    """Return which of two texts says both values, as `[1, 0]` says [true, false]; or raise."""
    first, second = one[1], other[1]
    if first.case == second.case or differences(
        first.rank, Wanted(value=first.value), second.value
    ):
        _refuse_both(key, one, other)
    return min(one, other, key=lambda each: (*_odd(each[0]), -len(each[0])))


def _refuse_both(key: Span, one: tuple[str, Answer], other: tuple[str, Answer]) -> NoReturn:
    (text, first), (instead, second) = one, other
    line, name, rank = key.line, key.text, first.rank
    if first.case != second.case:
        message = f"`{name}` on rank {rank} is {text} in {first.case} and {instead} in "
        message += f"{second.case}: one text serves both, so state it as an expression"
        refuse("cases_differ", message, line)
    message = f"`{name}` on rank {rank} is {text} with {_told(first)} and {instead} with "
    message += f"{_told(second)}: state it as an expression, or beside the `for`"
    refuse("rounds_differ", message, line)


def _odd(text: str) -> tuple[bool, bool]:
    """Return what makes a text less general: complex numbers, booleans."""
    return text.startswith('"'), "true" in text or "false" in text


def _told(answer: Answer) -> str:
    return ", ".join(f"{name} = {value}" for name, value in answer.round) or "the last round"
