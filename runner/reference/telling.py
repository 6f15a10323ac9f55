"""Words that several findings share: places, and lists of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.reference.posts import Post, Work

#: ranks that are listed one by one
LISTED = 8


def place(post: Post | Work) -> str:
    """Return ` (file:line)` of the step that posted something, or nothing."""
    mark = post.call.step.mark
    return f" ({mark.short})" if mark else ""


def several(numbers: Sequence[int]) -> str:
    """Return `rank 3`, `ranks 0, 2`, or for many the first few and how many more."""
    if len(numbers) > LISTED:
        shown = ", ".join(map(str, numbers[: LISTED - 1]))
        return f"ranks {shown} and {len(numbers) - LISTED + 1} more"
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))
