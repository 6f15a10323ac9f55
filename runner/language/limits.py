"""How large a scenario may be: a file is data, and may come from a stranger's pull request.

Every bound has a flag of the command line that raises it, and every complaint about a bound names
that flag. A bound is inclusive: a world of exactly `max_ranks` ranks is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields


def _bound(default: int, flag: str, counts: str) -> int:
    """Declare a bound with its flag and the words that say what it counts."""
    made: int = field(default=default, metadata={"flag": flag, "counts": counts})
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds on a scenario file, on the program in it, and on one expression."""

    max_ranks: int = _bound(64, "--max-ranks", "ranks of the world")
    max_elements: int = _bound(2**26, "--max-elements", "elements of one tensor")
    max_items: int = _bound(2**18, "--max-items", "list items made by one expression")
    max_steps: int = _bound(50_000_000, "--max-steps", "steps taken, over all ranks")
    max_turns: int = _bound(
        2_000_000, "--max-turns", "turns of loops, taken or not, over all ranks"
    )
    max_work: int = _bound(
        1_500_000_000, "--max-work", "elements and operations computed by the analysis of a case"
    )
    max_bytes: int = _bound(
        2**30, "--max-bytes", "bytes made by the analysis, over all ranks and steps"
    )
    max_run_bytes: int = _bound(
        2**32, "--max-run-bytes", "bytes that the ranks of a run hold, with a copy of each result"
    )
    max_seconds: int = _bound(
        120, "--max-seconds", "seconds of the analysis of a case, and of its run"
    )
    max_total_seconds: int = _bound(
        86_400, "--max-total-seconds", "seconds of all cases together; what is left is not run"
    )
    max_schedules: int = _bound(
        1_024, "--max-schedules", "orders of arrival at the receives from anyone"
    )
    max_loop: int = _bound(100_000, "--max-loop", "iterations of one `for`")
    max_expression_chars: int = _bound(
        4_000, "--max-expression-chars", "characters of one expression"
    )
    max_expression_nodes: int = _bound(
        1_000, "--max-expression-nodes", "names, numbers and operators of one expression"
    )
    max_nesting: int = _bound(64, "--max-nesting", "levels of nesting")
    max_file_bytes: int = _bound(2**20, "--max-file-bytes", "bytes of one file")
    max_anchor_expansion: int = _bound(
        10_000, "--max-anchor-expansion", "nodes that YAML aliases expand to"
    )
    max_use_depth: int = _bound(16, "--max-use-depth", "files that `use` each other")
    max_file_steps: int = _bound(10_000, "--max-file-steps", "steps written, after `use`")
    max_matrix_cases: int = _bound(1_000, "--max-matrix-cases", "cases of one matrix")
    #: whether a link may lead out of the project: no bound, and chosen in the same place
    follow_links: bool = False


DEFAULT = Limits()

#: the bounds themselves
BOUNDS = tuple(each for each in fields(Limits) if each.metadata)

#: name of a bound -> the flag that raises it
FLAGS = {each.name: str(each.metadata["flag"]) for each in BOUNDS}

#: name of a bound -> what it counts
COUNTS = {each.name: str(each.metadata["counts"]) for each in BOUNDS}


def beyond(name: str, limits: Limits = DEFAULT) -> str:
    """Return the words for a bound that was passed: what it counts, how many, which flag."""
    return f"at most {getattr(limits, name)} {COUNTS[name]} ({FLAGS[name]} raises it)"
