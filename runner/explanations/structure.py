"""Problems of structure: keys, types and forms that the language does not have."""

from __future__ import annotations

from runner.explanations.entry import Explanation

_RIGHT = """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, op: sum}
    expect:
      x: [2, 4]
"""


def _problem(code: str, what: str, why: str, fix: str, example: str = "") -> Explanation:
    return Explanation(
        code=code,
        sort="problem",
        what=what,
        why=why,
        fix=fix,
        example=example,
        fixed=_RIGHT if example else "",
    )


def _step(text: str) -> str:
    return f"world_size: 2\ntensors:\n  x: [1, 2]\nsteps:\n  - {text}\n"


STRUCTURE: tuple[Explanation, ...] = (
    _problem(
        "unknown_key",
        "A key that this part of a scenario does not have.",
        "Every object is closed, so that a misspelt key never passes.",
        "correct it; the message names the nearest key. `scenario schema` gives an editor them "
        "all.",
        _RIGHT + "descripton: adds\n",
    ),
    _problem(
        "missing_key",
        "A key that must be there is not.",
        "A scenario needs a world_size and steps; a long form its parts.",
        "add it.",
        "steps:\n  - barrier: {}\n",
    ),
    _problem(
        "wrong_type",
        "A value of the wrong sort: a list where a mapping belongs, a text where a number does.",
        "Nothing is converted in silence.",
        "write the value in the form that the message names.",
        "world_size: 2\nsteps: {barrier: {}}\n",
    ),
    _problem(
        "bad_value",
        "A value of the right sort that cannot be: an empty list, crossed bounds.",
        "It would select nothing, or could never hold.",
        "write a value in the range that the message names.",
        "world_size: 2\nbackends: []\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "bad_version",
        "What should name versions of torch does not.",
        "`torch:` and sections of `expect` compare versions by >=, <=, ==, !=, > or <.",
        'write `torch: ">=2.7"`, or `"torch>=2.14": {outcome: error}` under `expect`.',
        "world_size: 2\ntorch: newest\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "too_many_sections",
        "`expect` has more than 16 sections for backends and versions of torch.",
        "Any of them may hold together, and each such set is an expectation of its own.",
        "leave out what no version that is in use does, or split the file.",
        "world_size: 1\nsteps:\n  - barrier: {}\nexpect:\n"
        + "".join(f'  "torch>=3.{minor}": {{}}\n' for minor in range(17)),
    ),
    _problem(
        "bad_duration",
        "No duration, or not a positive one.",
        "Durations carry their unit: 1.5s, 200ms, 2min.",
        "write a number with a unit.",
        "world_size: 2\ntimeout: 0s\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "bad_world_size",
        "world_size is no whole number from 1 up.",
        "It is the number of processes; it may depend on parameters only.",
        "write an integer, or an expression over parameters that gives one.",
        "world_size: 0\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "bad_group",
        "An entry of `groups:` has none of the five forms, or two of them.",
        "A group is a list of ranks, {ranks: ...}, {partition: ...}, {size: N}, or {shape: ..., "
        "dims: ...}.",
        "give it exactly one form.",
        "world_size: 2\ngroups:\n  g: {timeout: 1s}\nsteps:\n  - barrier: {group: g}\n",
    ),
    _problem(
        "group_differs",
        "The ranks of a group differ from rank to rank.",
        "`groups:` states what every rank agrees on.",
        "use {partition: [[0, 1], [2, 3]]} where each rank has its own part, or show the "
        "disagreement with new_group steps.",
        'world_size: 2\ngroups:\n  g: "[rank]"\nsteps:\n  - barrier: {group: g}\n',
    ),
    _problem(
        "bad_loop",
        "A `for` that does not name exactly one variable, or repeats over no list.",
        'A loop is `for: {i: "range(3)"}` beside `steps`.',
        "name one variable, and a list or range of integers.",
        _step("for: {}\n    steps:\n      - barrier: {}"),
    ),
    _problem(
        "bad_expectation",
        "An expectation in a form that the language does not have.",
        "A mapping is either per rank or the long form of a value, never both.",
        "put the ranks under the name: `x: {0: [1], else: [2]}`.",
    ),
    _problem(
        "missing_value",
        "A name without a value.",
        "YAML reads `x:` as null; a tensor cannot be null.",
        "write the value, or remove the name.",
    ),
    _problem(
        "empty_mapping",
        "A mapping with no entries where one is needed.",
        "It would state nothing.",
        "fill it, or remove it.",
    ),
    _problem(
        "empty_step",
        "A step that neither acts nor expects.",
        "It would do nothing.",
        "give it an action or an `expect`.",
        _step("name: nothing"),
    ),
    _problem(
        "empty_steps",
        "The list of steps is empty.",
        "A program without steps shows nothing.",
        "write a step; a step may be an `expect` alone.",
        "world_size: 2\nsteps: []\n",
    ),
    _problem(
        "several_actions",
        "A step with more than one action.",
        "The order of the two would be anybody's guess.",
        "make two steps of it.",
        _step("barrier: {}\n    all_reduce: {tensor: x}"),
    ),
    _problem(
        "handle_without_work",
        "`as` beside a step that leaves no work to wait for.",
        "Only an asynchronous step has a handle: `async_op: true`, isend, irecv, "
        "batch_isend_irecv.",
        "make the step asynchronous, or remove `as`.",
        _step("all_reduce: {tensor: x}\n    as: work"),
    ),
    _problem(
        "missing_argument",
        "An operation without an argument that it needs.",
        "Arguments are torch's own; `scenario ops NAME` lists them.",
        "add the argument.",
        _step("all_reduce: {op: sum}"),
    ),
    _problem(
        "unknown_argument",
        "An argument that the operation does not have.",
        "Arguments are torch's own; `scenario ops NAME` lists them.",
        "correct its name.",
        _step("all_reduce: {tensr: x, tensor: x}"),
    ),
    _problem(
        "duplicate_argument",
        "One argument under two of its names.",
        "Older and newer versions of torch name some arguments differently; both mean one.",
        "keep one of them.",
    ),
    _problem(
        "output_not_a_name",
        "An output that is no held tensor, nor a view of one.",
        "The operation stores into it; what it stored into a computed value would be lost.",
        "name a tensor, or a part of one such as x[0:2].",
        _step('all_reduce: {tensor: "x + 1"}'),
    ),
    _problem(
        "ragged_list",
        "A nested list whose rows differ in length.",
        "Data is a tensor, and a tensor has one shape.",
        "make the rows equally long; a list of tensors is an expression in brackets.",
        "world_size: 2\ntensors:\n  x: [[1, 2], [3]]\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "newer_version",
        "The file states a version of the language that this program does not know.",
        "A newer file may mean something else by the same words.",
        "upgrade scenario-runner, or state `version: 1`.",
        "version: 99\nworld_size: 2\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "duplicate_case",
        "Two combinations of the matrix are the same.",
        "Their cases would have one name.",
        "remove the repeated value.",
        "world_size: 2\nmatrix:\n  n: [1, 1]\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "inputs_with_world_size",
        "A file with both `inputs` and `world_size`.",
        "A file with `inputs:` is a library that others `use`; it has no world of its own.",
        "keep one of them.",
    ),
)
