"""What can be told of a form from its text: the names it reads, and whether it asks for groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.forms import Expression, ListForm, PerRank, Record, Typed

if TYPE_CHECKING:
    from runner.forms import Form
    from runner.scenario import Expectation, Unchanged


def names_of(form: Form | Unchanged | None) -> frozenset[str]:
    """Return every name that a form may read."""
    match form:
        case Expression():
            return form.names
        case ListForm():
            return frozenset().union(*map(names_of, form.items))
        case Record():
            return frozenset().union(*map(names_of, form.fields.values()))
        case PerRank():
            parts = [names_of(selector.form) | names_of(value) for selector, value in form.branches]
            return frozenset().union(*parts, names_of(form.otherwise))
        case Typed():
            return names_of(form.value) | names_of(form.dtype) | names_of(form.shape)
        case _:
            return frozenset()


def calls_of(form: Form | None) -> bool:
    """Return whether a form may ask for a group."""
    match form:
        case Expression():
            return bool(form.calls & {"group_rank", "group_size", "group_ranks"})
        case ListForm():
            return any(map(calls_of, form.items))
        case Record():
            return any(map(calls_of, form.fields.values()))
        case PerRank():
            parts = [
                calls_of(selector.form) or calls_of(value) for selector, value in form.branches
            ]
            return any(parts) or calls_of(form.otherwise)
        case Typed():
            return any(map(calls_of, (form.value, form.dtype, form.shape)))
        case _:
            return False


def looked_at(expect: Expectation) -> frozenset[str]:
    """Return every name that an expectation may read."""
    bounds: list[Any] = [expect.elapsed]
    if isinstance(expect.elapsed, PerRank):
        bounds = [each for _, each in expect.elapsed.branches] + [expect.elapsed.otherwise]
        found = [names_of(selector.form) for selector, _ in expect.elapsed.branches]
    else:
        found = []
    for bound in bounds:
        if bound is not None:
            found += [names_of(bound.min_s), names_of(bound.max_s)]
    for value in expect.values:
        found += [value.key.names, value.key.before, names_of(value.wanted)]
    return frozenset().union(*found)
