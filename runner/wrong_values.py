"""What is told where a value is computed, and is not what its place wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.forms import Expression, Selector
    from runner.operations.params import Param
    from runner.problems import Mark


def cannot_compute(what: str, mark: Mark | None, rank: int, error: Exception) -> Problem:
    """Return the problem for an expression that has no value on a rank."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return Problem(
        code="cannot_compute",
        message=f"{what} cannot be computed on rank {rank}: {reason}",
        mark=mark,
    )


def valueless(form: Expression, made: Mapping[str, Mark | None], rank: int) -> Problem:
    """Return the problem for an expression over names that have no value on a rank.

    `made` maps each to the place of the first step that gives it a value, if one does.
    """
    later = {
        name: mark.line
        for name, mark in made.items()
        if mark is not None and form.mark is not None and mark.line >= form.mark.line
    }
    names = " and ".join(f"`{name}`" for name in made) or "a name in it"
    has = "have" if len(made) > 1 else "has"
    reason = f"{names} {has} no value there"
    hint = "select the ranks that hold it with `ranks:`, or add an `else` where it is made"
    if later:
        name, line = next(iter(later.items()))
        reason += f"; `{name}` is made further down (line {line})"
        hint = f"make `{name}` before, or give it a value under `tensors:`"
    return Problem(
        code="cannot_compute",
        message=f"`{form.text.strip()}` cannot be computed on rank {rank}: {reason}",
        mark=form.mark,
        hint=hint,
    )


def wrong_argument(param: Param, mark: Mark | None, rank: int, error: Exception) -> Problem:
    """Return the problem for an argument whose value is not of its kind."""
    return Problem(
        code="wrong_type",
        message=f"`{param.name}` has no usable value on rank {rank}: {error}",
        mark=mark,
        hint=f"`{param.name}`: {param.description}",
    )


def not_given(param: Param, mark: Mark | None, rank: int) -> Problem:
    """Return the problem for a required argument that a rank has no value for."""
    return Problem(
        code="missing_argument",
        message=f"`{param.name}` has no value on rank {rank}",
        mark=mark,
        hint="select who takes the step with `ranks:`, or add an `else`",
    )


def no_selector(selector: Selector, value: Any) -> Problem:  # noqa: ANN401 -- anything
    """Return the problem for a selector whose value selects nobody and everybody alike."""
    hint = "write a condition such as `rank % 2 == 0`, a rank, or a list of ranks"
    if isinstance(value, float):
        hint = "`//` divides integers"
    elif hasattr(value, "shape"):
        hint = "look at one of its elements: `x[0] > 3`"
    return Problem(
        code="bad_selector",
        message=f"the selector `{selector.text}` is neither a boolean, a rank nor a list of ranks",
        mark=selector.mark,
        hint=hint,
    )


def not_countable(
    variable: str,
    values: Any,  # noqa: ANN401 -- whatever the expression yields
    mark: Mark | None,
    rank: int,
    error: Exception,
) -> Problem:
    """Return the problem for a `for` over what is no list of integers."""
    if isinstance(values, bool | int | float):
        message = f"`for {variable}` cannot run over the number {values} on rank {rank}"
        return Problem(
            code="bad_loop", message=message, mark=mark, hint="`range(n)` counts from 0 to n - 1"
        )
    if values is None:
        reason = f"has nothing to run over on rank {rank}"
    else:
        reason = f"cannot run over this on rank {rank}: {error}"
    return Problem(
        code="bad_loop",
        message=f"`for {variable}` {reason}",
        mark=mark,
        hint='a loop runs over integers: `"range(3)"`, `[0, 2]`',
    )
