"""What is told where a value is computed, and is not what its place wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.problems import Problem

if TYPE_CHECKING:
    from runner.operations.params import Param
    from runner.problems import Mark
    from runner.scenario import Selector


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
        message = f"`for {variable}` has the number {values} to run over on rank {rank}"
        return Problem(
            code="bad_loop", message=message, mark=mark, hint="`range(n)` counts from 0 to n - 1"
        )
    if values is None:
        reason = f"nothing to run over on rank {rank}"
    else:
        reason = f"what it cannot run over on rank {rank}: {error}"
    return Problem(
        code="bad_loop",
        message=f"`for {variable}` has {reason}",
        mark=mark,
        hint='a loop runs over integers: `"range(3)"`, `[0, 2]`',
    )
