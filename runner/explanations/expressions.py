"""Problems of expressions: what may not be said, and what cannot be computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.explanations.problem import problem, step, value
from runner.language.signatures import SIGNATURES

if TYPE_CHECKING:
    from runner.explanations.entry import Explanation

EXPRESSIONS: tuple[Explanation, ...] = (
    problem(
        "not_made_yet",
        "An expression reads a name that has no value there yet.",
        "Parameters are known first; then groups, objects and tensors are made, each in the order "
        "of the file; steps come last.",
        "move the name up, or compute the value in a step.",
        value('"y + 1"\n  y: [1, 2]'),
    ),
    problem(
        "unknown_function",
        "An expression calls a function that the language does not have.",
        "The functions are a fixed table: the array API standard's names and a few more. They are "
        f"{', '.join(signature.usage for signature in SIGNATURES.values())}.",
        "use one of the table; the message names those nearby.",
        value('"fill(3, 1)"'),
    ),
    problem(
        "expression_syntax",
        "A string is no expression.",
        "A string is Python's expression syntax; a fixed name is wanted only where the language "
        "says so.",
        "close the bracket, write the operator. Text belongs into `objects:`.",
        value('"full(3, 1"'),
    ),
    problem(
        "expression_not_allowed",
        "An expression uses a part of Python that the language does not have.",
        "No attributes, lambdas, imports, assignments or f-strings: a scenario cannot execute "
        "code.",
        "use the language's functions: shape(x) for x.shape, astype(x, int64) for a cast.",
        value('"rank.real"'),
    ),
    problem(
        "wrong_arguments",
        "A function is called with arguments that it does not take.",
        "Each function has the signature of the array API standard, or the one in the docs.",
        "correct the call.",
        value('"full(3)"'),
    ),
    problem(
        "before_outside_expect",
        "`before(x, r)` outside an expectation.",
        "A rank cannot know what another holds; only the judge can.",
        "use it in `expect` only.",
        value('[0]\n  y: "before(x, 0)"'),
    ),
    problem(
        "not_constant",
        "A value that must be the same on every rank depends on the rank, or on a tensor.",
        "world_size, parameters and matrix keys are known before any rank exists.",
        "use numbers and other parameters only.",
        'world_size: "rank + 1"\nsteps:\n  - barrier: {}\n',
    ),
    problem(
        "cannot_compute",
        "An expression has no value on some rank.",
        "A division by zero, an index beyond the end, shapes that do not fit, a name with no "
        "value on that rank.",
        "look at the rank that the message names.",
        value('"full(2, 1 // rank)"'),
    ),
    problem(
        "bad_selector",
        "A selector is neither a boolean, a rank nor a collection of ranks.",
        "`ranks:` and the keys of a per-rank mapping select ranks.",
        'write 0, [0, 3], even, "rank % 2 == 0" or "range(4)".',
        step('ranks: "rank + 0.5"\n    compute: {x: "x + 1"}'),
    ),
    problem(
        "rank_out_of_range",
        "A selector, or the key of a mapping by rank, is a number beyond the world.",
        "Ranks count from 0: a world of two has the ranks 0 and 1. It is passed over where the "
        "world size depends on a parameter or matrix key, and in a used part. A rank beyond the "
        "world in an argument of torch's (`src: 5`) is the diagnosis `invalid_argument`.",
        "name a rank of the world, or enlarge `world_size`.",
        step('ranks: 5\n    compute: {x: "x + 1"}'),
    ),
)
