"""Minimise: shrink a scenario to a smallest one that has the same fault.

    text -> one case -> Signature (what is to stay) -> reductions, each kept if the signature stays
         -> Minimized (the smallest text, proved once more)

The search is delta debugging (Zeller, Hildebrandt: Simplifying and isolating failure-inducing
input, 2002) level by level over the YAML tree (Misherghi, Su: HDD, 2006), with reductions of its
own for what a tree does not show: a rank, which is in many places at once, a loop, a parameter, a
size. All of them edit the text, so that comments and layout stay. Nothing here prints or writes.
"""

from __future__ import annotations

from runner.minimize.minimizing import Minimized, NothingToMinimizeError, minimize
from runner.minimize.search import Progress
from runner.minimize.signature import Signature, analysis_oracle, run_oracle

__all__ = [
    "Minimized",
    "NothingToMinimizeError",
    "Progress",
    "Signature",
    "analysis_oracle",
    "minimize",
    "run_oracle",
]
