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
        "The tensors of all ranks, the values that expressions make, and the copies that the "
        "analysis keeps after each step, take more bytes than the bound. They are counted before "
        "they are made.",
        "--max-bytes",
    ),
    _limit(
        "too_much_work",
        "To compute all values of the program, on every rank and in every round of its loops, "
        "takes more work than the bound: it counts each element of a tensor, each operation in a "
        "comprehension, each step. The count is the same on every machine. A file's matrix with "
        "very many cases of very many steps passes it too.",
        "--max-work",
        'world_size: 2\ntensors: {x: [0]}\nsteps:\n  - for: {i: "range(100000)"}\n    steps:\n'
        '      - compute: {x: "[sum([a * b for a in range(500) for b in range(500)])]"}\n',
        "world_size: 2\ntensors: {x: [0]}\nsteps:\n"
        '  - compute: {x: "[sum([a * b for a in range(5) for b in range(5)])]"}\n',
    ),
    _limit(
        "too_many_turns",
        "The loops of the program turn more often than the bound, over all ranks, whether or not "
        "a rank takes a step in them.",
        "--max-turns",
    ),
    _limit(
        "too_slow",
        "The analysis of a case, or the reading of a file, takes longer than the bound: nothing is "
        "decided, the case is INCONCLUSIVE.",
        "--max-seconds",
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
