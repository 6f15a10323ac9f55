"""Problems of names: what nothing defines, and what may not be taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.explanations.problem import problem, step, value

if TYPE_CHECKING:
    from runner.explanations.entry import Explanation

NAMES: tuple[Explanation, ...] = (
    problem(
        "unknown_name",
        "An expression reads a name that nothing defines.",
        "It may be a parameter, a matrix key, a group, a loop variable inside its loop, a tensor, "
        "rank or world_size.",
        "correct it, or define it; the message names the nearest.",
        value('"full(width, 1)"'),
    ),
    problem(
        "unknown_operation",
        "A step whose action is no operation.",
        "An operation has the name of the function of torch.distributed that it calls.",
        "correct it; `scenario ops` lists them.",
        step("all_redcue: {tensor: x}"),
    ),
    problem(
        "unknown_group",
        "A group that nothing creates.",
        "Groups come from `groups:` or from a new_group step; `world` is always there. A mesh "
        "gives one group for each dimension: mesh.dp.",
        "correct it, or create the group.",
        step("barrier: {group: evn}"),
    ),
    problem(
        "unknown_handle",
        "`wait` for a handle that no step names.",
        "An asynchronous step names its handle with `as`.",
        "correct it, or put `as` beside the asynchronous step.",
        step("wait: work"),
    ),
    problem(
        "unknown_dtype",
        "A dtype that the language does not have.",
        "Dtypes have torch's names, without the module: float32, bfloat16, int64.",
        "correct it.",
        value("{dtype: float23, value: [1]}"),
    ),
    problem(
        "unknown_op",
        "A reduce op that torch does not have.",
        "The ops are sum, avg, product, min, max, band, bor, bxor, and {premul_sum: 0.5}.",
        "correct it.",
        step("all_reduce: {tensor: x, op: add}"),
    ),
    problem(
        "unknown_word",
        "A word where one of a few fixed words is wanted.",
        "Such as off, info, detail for `debug`.",
        "use one of the words that the message lists.",
        "world_size: 2\ndebug: loud\nsteps:\n  - barrier: {}\n",
    ),
    problem(
        "unknown_outcome",
        "An outcome that does not exist.",
        "A scenario completes, or ends in a deadlock, an error or a crash.",
        "use completes, deadlock, error or crash.",
        "world_size: 2\nsteps:\n  - barrier: {}\nexpect:\n  outcome: hangs\n",
    ),
    problem(
        "unknown_diagnosis",
        "A diagnosis that does not exist.",
        "`scenario explain NAME` knows each of them.",
        "correct it; the message names the nearest.",
        "world_size: 2\nsteps:\n  - barrier: {}\nexpect:\n  diagnosis: circular_weight\n",
    ),
    problem(
        "unknown_kind",
        "A kind of error that does not exist.",
        "Kinds do not depend on a backend's wording: timeout, peer_lost, invalid_argument ...",
        'correct it; a part of the message is asked for with {timeout: "words"}.',
        step("barrier: {}\n    expect: {raises: tiemout}"),
    ),
    problem(
        "bad_name",
        "A name that an expression could not read.",
        "Names are letters, digits and _, and begin with no digit.",
        "rename it.",
        "world_size: 2\ntensors:\n  my-x: [1]\nsteps:\n  - barrier: {}\n",
    ),
    problem(
        "reserved_name",
        "A name that means something else in every scenario.",
        "rank, world_size and Python's own words are taken; a parameter cannot be a dtype, "
        "a reduce op or a function either.",
        "choose another name.",
        "world_size: 2\ntensors:\n  in: [1]\nsteps:\n  - barrier: {}\n",
    ),
    problem(
        "duplicate_name",
        "Two things have the same name.",
        "Tensors, groups, parameters, handles and loop variables share one space of names.",
        "rename one of them.",
        "world_size: 2\ngroups:\n  x: [0]\ntensors:\n  x: [1]\nsteps:\n  - barrier: {}\n",
    ),
    problem(
        "duplicate_step_name",
        "Two steps have the same name.",
        "Reports and `blocked:` refer to a step by its name.",
        "rename one of them.",
        step("name: a\n    barrier: {}\n  - name: a\n    barrier: {}"),
    ),
)
