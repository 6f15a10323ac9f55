"""Problems of size: every bound on a scenario, and the flag that raises it."""

from __future__ import annotations

from runner.explanations.entry import Explanation


def _limit(code: str, what: str, flag: str, example: str = "", fixed: str = "") -> Explanation:
    return Explanation(
        code=code,
        sort="problem",
        what=what,
        why="A file is data, and may come from a stranger: it must not take unbounded memory, "
        "time or processes.",
        fix=f"make it smaller, or raise the bound with {flag} where you trust the file.",
        example=example,
        fixed=fixed,
    )


_SMALL = "world_size: 2\nsteps:\n  - barrier: {}\n"

LIMITS: tuple[Explanation, ...] = (
    _limit(
        "too_many_ranks",
        "world_size is larger than the bound.",
        "--max-ranks",
        "world_size: 1000\nsteps:\n  - barrier: {}\n",
        _SMALL,
    ),
    _limit(
        "too_many_cases",
        "The matrix has more combinations than the bound.",
        "--max-matrix-cases",
    ),
    _limit(
        "too_many_steps",
        "The program takes, or the file writes, more steps than the bound.",
        "--max-steps or --max-file-steps",
    ),
    _limit(
        "too_much_memory",
        "The tensors of all ranks, and the copies that the analysis keeps after each step, take "
        "more bytes than the bound.",
        "--max-bytes",
    ),
    _limit(
        "loop_too_long",
        "A `for` has more iterations than the bound.",
        "--max-loop",
    ),
    _limit(
        "expression_too_large",
        "An expression is longer, or nested deeper, than the bound.",
        "--max-expression-chars, --max-expression-nodes or --max-nesting",
    ),
    _limit("use_too_deep", "Files use files beyond the bound.", "--max-use-depth"),
)
