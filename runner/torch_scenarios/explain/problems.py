"""Problems of files and of the command line."""

from __future__ import annotations

from functools import partial

from torch_scenarios.errors import Explanation
from torch_scenarios.expressions.signatures import SIGNATURES


def _model(
    *, layer: str = "Linear: {in_features: 2, out_features: 2}", more: str = "init: {}"
) -> str:
    """Return a file with a model of one layer, and one more key of it."""
    return f"""\
world_size: 2
models:
  net:
    layers: [fc: {{{layer}}}]
    loss: mse_loss
    optimizer: {{SGD: {{lr: 0.1}}}}
    {more}
steps:
  - barrier: {{}}
"""


# -------------------------------------------------------------------------------------------------
# A small wrong file, and what is right in place of it.

RIGHT = """\
world_size: 2
parameters: {width: 3}
tensors:
  x: "full(width, rank + 1)"
steps:
  - all_reduce: {tensor: x, op: sum}
    expect:
      x: "full(width, 3)"
"""


def problem(
    code: str, what: str, why: str, fix: str, example: str = "", *, right: str = RIGHT
) -> Explanation:
    """Return the explanation of a problem; `right` is what mends every example of its kind."""
    return Explanation(
        code=code,
        sort="problem",
        what=what,
        why=why,
        fix=fix,
        example=example,
        fixed=right if example else "",
    )


def value(text: str) -> str:
    """Return a file with one tensor of this value."""
    return f"world_size: 2\ntensors:\n  x: {text}\nsteps:\n  - barrier: {{}}\n"


def step(text: str) -> str:
    """Return a file with this one step."""
    return f"world_size: 2\ntensors:\n  x: [1, 2]\nsteps:\n  - {text}\n"


# -------------------------------------------------------------------------------------------------
# Problems of reading: the file, its bytes, its YAML.

_PLAIN = """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x}
"""


_problem = partial(problem, right=_PLAIN)


READING: tuple[Explanation, ...] = (
    _problem(
        "file_not_found",
        "There is no file or folder of this name.",
        "Paths count from the folder you are in; those of `use` from the file that uses.",
        "name an existing file; the message names one of the same name where it is near.",
    ),
    _problem(
        "unreadable_file",
        "A file or folder exists but cannot be read.",
        "Its permissions forbid it, or it is not a regular file.",
        "give it read permission, or name another.",
    ),
    _problem(
        "link_outside_project",
        "The file is a link to a file outside of its project.",
        "A scenario may come from a stranger, and a link in its place could show any file that you "
        "can read. The project is the nearest folder above with a pyproject.toml or .git, else the "
        "file's own folder.",
        "copy the file into the project, or pass --follow-links where you trust it, as for mounted "
        "configuration.",
    ),
    _problem(
        "file_too_large",
        "The file is larger than a scenario may be.",
        "A file may come from a stranger; its size is bounded before it is parsed.",
        "compute large tensors with an expression such as full(1000, 1), or raise the bound.",
    ),
    _problem(
        "too_many_problems",
        "More is wrong with the file than is shown: only its first problems are.",
        "What is wrong hundreds of times in one file mostly has one cause.",
        "correct what is shown first, and check again.",
    ),
    _problem(
        "empty_file",
        "The file holds nothing, or only comments.",
        "A scenario needs at least a world_size and steps.",
        "`scenario new NAME` writes one to start from.",
        "# nothing yet\n",
    ),
    _problem(
        "not_utf8",
        "The file is not encoded in UTF-8.",
        "YAML files are Unicode text.",
        "save it as UTF-8.",
    ),
    _problem(
        "control_character",
        "The file holds a character that YAML does not allow.",
        "It came in by copying, or the file is not text.",
        "delete it; inside a quoted string write an escape.",
    ),
    _problem(
        "yaml_syntax",
        "The file is not YAML.",
        "A bracket or a quote is not closed, or the indentation does not fit.",
        "look at the place that the message names, and at the line before it.",
        "world_size: 2\nsteps: [\n",
    ),
    _problem(
        "yaml_tab",
        "A tab indents a line.",
        "YAML indents with spaces only.",
        "replace the tab by spaces.",
        "world_size: 2\nsteps:\n\t- barrier: {}\n",
    ),
    _problem(
        "duplicate_key",
        "A key is given twice in one mapping.",
        "YAML readers keep one of them in silence; which one would be luck.",
        "remove or rename one of them.",
        "world_size: 2\nworld_size: 3\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "bad_key",
        "A mapping is written where a key belongs.",
        "A key is a name, a number, or a list of ranks.",
        "write the key as a name; often a brace is one too many.",
        "world_size: 2\nsteps:\n  - barrier: {}\n{a: 1}: 2\n",
    ),
    _problem(
        "merge_key",
        "`<<` is not a key of YAML 1.2.",
        "It is an extension of YAML 1.1.",
        "write the keys out, or refer to one whole value with an alias.",
        """\
world_size: 2
steps:
  - barrier: &all {}
  - barrier: {<<: *all}
""",
    ),
    _problem(
        "several_documents",
        "The file holds more than one YAML document.",
        "One file is one scenario.",
        "split it at `---`; a matrix makes many cases of one file.",
        "world_size: 2\nsteps:\n  - barrier: {}\n---\nworld_size: 3\n",
    ),
    _problem(
        "unknown_tag",
        "A value has a YAML tag that the language does not know.",
        "A tag could make a reader build any object; a scenario is data.",
        "remove the tag.",
        "world_size: !!python/int 2\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "unknown_alias",
        "An alias names an anchor that is not there.",
        "`*name` repeats what `&name` marked further up in the same file.",
        "define the anchor before it is used; quote a text that begins with `*`.",
        "world_size: *n\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "recursive_alias",
        "An alias is used inside the very value that it repeats.",
        "It would have no end.",
        "write the inner value out.",
        "world_size: 2\nsteps: &all\n  - barrier: {}\n  - *all\n",
    ),
    _problem(
        "alias_expansion",
        "Aliases expand to more values than a file may hold.",
        "A few lines of nested aliases can mean billions of values.",
        "use a `for` or a matrix to repeat; `--limit anchor-expansion=N` raises the bound.",
    ),
    _problem(
        "bad_scalar",
        "A value looks like a number or a date of YAML but cannot be one.",
        "YAML 1.2's core schema reads plain words; this one begins as a number and does not end "
        "as one.",
        "write the number in full, or quote a text.",
    ),
)


# -------------------------------------------------------------------------------------------------
# Problems of structure: keys, types and forms that the language does not have.

_RIGHT = """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, op: sum}
    expect:
      x: [2, 4]
"""


_structure = partial(problem, right=_RIGHT)


def _step(text: str) -> str:
    return f"world_size: 2\ntensors:\n  x: [1, 2]\nsteps:\n  - {text}\n"


STRUCTURE: tuple[Explanation, ...] = (
    _structure(
        "unknown_key",
        "A key that this part of a scenario does not have.",
        "Every object is closed, so that a misspelt key never passes.",
        "correct it; the message names the nearest key. `scenario schema` gives an editor them "
        "all.",
        _RIGHT + "descripton: adds\n",
    ),
    _structure(
        "missing_key",
        "A key that must be there is not.",
        "A scenario needs a world_size and steps; a long form its parts.",
        "add it.",
        "steps:\n  - barrier: {}\n",
    ),
    _structure(
        "wrong_type",
        "A value of the wrong sort: a list where a mapping belongs, a text where a number does.",
        "Nothing is converted in silence.",
        "write the value in the form that the message names.",
        "world_size: 2\nsteps: {barrier: {}}\n",
    ),
    _structure(
        "bad_value",
        "A value of the right sort that cannot be: an empty list, crossed bounds.",
        "It would select nothing, or could never hold.",
        "write a value in the range that the message names.",
        "world_size: 2\nbackends: []\nsteps:\n  - barrier: {}\n",
    ),
    _structure(
        "bad_version",
        "What should name versions of torch does not.",
        "`torch:` and sections of `expect` compare versions by >=, <=, ==, !=, > or <.",
        'write `torch: ">=2.7"`, or `"torch>=2.14": {outcome: error}` under `expect`.',
        "world_size: 2\ntorch: newest\nsteps:\n  - barrier: {}\n",
    ),
    _structure(
        "too_many_sections",
        "`expect` has more than 16 sections for backends and versions of torch.",
        "Any of them may hold together, and each such set is an expectation of its own.",
        "leave out what no version that is in use does, or split the file.",
        "world_size: 1\nsteps:\n  - barrier: {}\nexpect:\n"
        + "".join(f'  "torch>=3.{minor}": {{}}\n' for minor in range(17)),
    ),
    _structure(
        "bad_duration",
        "No duration, or not a positive one.",
        "Durations carry their unit: 1.5s, 200ms, 2min.",
        "write a number with a unit.",
        "world_size: 2\ntimeout: 0s\nsteps:\n  - barrier: {}\n",
    ),
    _structure(
        "bad_world_size",
        "world_size is not a whole number from 1 up.",
        "It is the number of processes; it may depend on parameters only.",
        "write an integer, or an expression over parameters that gives one.",
        "world_size: 0\nsteps:\n  - barrier: {}\n",
    ),
    _structure(
        "bad_group",
        "An entry of `groups:` has none of the five forms, or two of them.",
        "A group is a list of ranks, {ranks: ...}, {partition: ...}, {size: N}, or {shape: ..., "
        "dims: ...}.",
        "give it exactly one form.",
        "world_size: 2\ngroups:\n  g: {timeout: 1s}\nsteps:\n  - barrier: {group: g}\n",
    ),
    _structure(
        "unknown_layer",
        "A layer that models do not have.",
        "Layers come from a table, by torch's names: what a name means is never imported. "
        "Each has a backward of its own in the analysis; what is random has no one result.",
        "use a layer that the message lists.",
        _model(layer="Lambda: {}"),
    ),
    _structure(
        "model_too_large",
        "A model with more layers, or more elements, than the limits allow.",
        "Every rank of the analysis holds it several times over.",
        "make it smaller: few features show the same, and two layers what twenty show.",
        _model(layer="Linear: {in_features: 100000, out_features: 100000}"),
    ),
    _structure(
        "unsupported_strategy",
        "Strategies that no model is trained by here, one after the other.",
        "The message lists what there is. Others may be right programs: their calls and values are "
        "not known to the analysis.",
        "use one of those lists, in its order.",
        _model(more="parallel: [ZeroRedundancyOptimizer: {}]"),
    ),
    _structure(
        "bad_model",
        "A weight is stated with another shape than the layer has.",
        "A Linear's weight is [out_features, in_features], as in torch.",
        "state a tensor of the shape that the message names, or leave it out of `init`.",
        _model(more='init: {fc.weight: "ones([3, 2])"}'),
    ),
    _structure(
        "group_differs",
        "The ranks of a group differ from rank to rank.",
        "`groups:` states what every rank agrees on.",
        "use {partition: [[0, 1], [2, 3]]} where each rank has its own part, or show the "
        "disagreement with new_group steps.",
        'world_size: 2\ngroups:\n  g: "[rank]"\nsteps:\n  - barrier: {group: g}\n',
    ),
    _structure(
        "bad_loop",
        "A `for` that does not name exactly one variable, or repeats over no list.",
        'A loop is `for: {i: "range(3)"}` next to `steps`.',
        "name one variable, and a list or range of integers.",
        _step("for: {}\n    steps:\n      - barrier: {}"),
    ),
    _structure(
        "bad_expectation",
        "An expectation in a form that the language does not have.",
        "A mapping is either per rank or the long form of a value, never both.",
        "put the ranks under the name: `x: {0: [1], else: [2]}`.",
    ),
    _structure(
        "missing_value",
        "A name without a value.",
        "YAML reads `x:` as null; a tensor cannot be null.",
        "write the value, or remove the name.",
    ),
    _structure(
        "empty_mapping",
        "A mapping with no entries where one is needed.",
        "It would state nothing.",
        "fill it, or remove it.",
    ),
    _structure(
        "empty_step",
        "A step that neither acts nor expects.",
        "It would do nothing.",
        "give it an action or an `expect`.",
        _step("name: nothing"),
    ),
    _structure(
        "empty_steps",
        "The list of steps is empty.",
        "A program without steps shows nothing.",
        "write a step; a step may be an `expect` alone.",
        "world_size: 2\nsteps: []\n",
    ),
    _structure(
        "several_actions",
        "A step with more than one action.",
        "The order of the two would be anybody's guess.",
        "make two steps of it.",
        _step("barrier: {}\n    all_reduce: {tensor: x}"),
    ),
    _structure(
        "handle_without_work",
        "`as` next to a step that leaves no work to wait for.",
        "Only an asynchronous step has a handle: `async_op: true`, isend, irecv, "
        "batch_isend_irecv.",
        "make the step asynchronous, or remove `as`.",
        _step("all_reduce: {tensor: x}\n    as: work"),
    ),
    _structure(
        "missing_argument",
        "An operation without an argument that it needs.",
        "Arguments are torch's own; `scenario ops NAME` lists them.",
        "add the argument.",
        _step("all_reduce: {op: sum}"),
    ),
    _structure(
        "unknown_argument",
        "An argument that the operation does not have.",
        "Arguments are torch's own; `scenario ops NAME` lists them.",
        "correct its name.",
        _step("all_reduce: {tensr: x, tensor: x}"),
    ),
    _structure(
        "duplicate_argument",
        "One argument under two of its names.",
        "Older and newer versions of torch name some arguments differently; both mean one.",
        "keep one of them.",
    ),
    _structure(
        "output_not_a_name",
        "An output that is not a held tensor, nor a view of one.",
        "The operation stores into it; what it stored into a computed value would be lost.",
        "name a tensor, or a part of one such as x[0:2].",
        _step('all_reduce: {tensor: "x + 1"}'),
    ),
    _structure(
        "ragged_list",
        "A nested list whose rows differ in length.",
        "Data is a tensor, and a tensor has one shape.",
        "make the rows equally long; a list of tensors is an expression in brackets.",
        "world_size: 2\ntensors:\n  x: [[1, 2], [3]]\nsteps:\n  - barrier: {}\n",
    ),
    _structure(
        "newer_version",
        "The file states a version of the language that this program does not know.",
        "A newer file may mean something else by the same words.",
        "upgrade torch-scenarios, or state `version: 1`.",
        "version: 99\nworld_size: 2\nsteps:\n  - barrier: {}\n",
    ),
    _structure(
        "duplicate_case",
        "Two combinations of the matrix, or two of `cases`, are the same.",
        "Their cases would have one name.",
        "remove the repeated value.",
        "world_size: 2\nmatrix:\n  n: [1, 1]\nsteps:\n  - barrier: {}\n",
    ),
    _structure(
        "unequal_cases",
        "A case of `cases:` has other keys than the first one.",
        "Each key is a parameter of the file, which needs a value in every case.",
        "give each case the same keys.",
        "world_size: 2\ncases: [{n: 1, m: 2}, {n: 3}]\nsteps:\n  - barrier: {}\n",
    ),
    _structure(
        "inputs_with_world_size",
        "A file with both `inputs` and `world_size`.",
        "A file with `inputs:` is a library that others `use`; it has no world of its own.",
        "keep one of them.",
    ),
)


# -------------------------------------------------------------------------------------------------
# Problems of names: what nothing defines, and what may not be taken.

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
        "fixed_word",
        "A dtype, a reduce op or a backend is where an expression needs a value.",
        "It is known next to `==`, `!=` or `in [...]`, where the other side is a parameter or a "
        "matrix key that holds a word; a dtype also where a function takes one.",
        "compare it with a parameter that holds a word, such as `op == sum`.",
        value('"sum + 1"'),
    ),
    problem(
        "not_distributed",
        "`placements` is stated of a tensor that no step and no strategy distributes.",
        "A plain tensor has no placements; of a model only what `fully_shard` and "
        "`parallelize_module` hold is distributed.",
        "leave `placements` out.",
        "world_size: 2\ntensors: {x: [1]}\nsteps:\n  - barrier: {}\n"
        "expect:\n  x: {placements: [Shard(0)]}\n",
    ),
    problem(
        "unknown_operation",
        "A step whose action is not an operation.",
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
        "correct it, or put `as` next to the asynchronous step.",
        step("wait: work"),
    ),
    problem(
        "name_taken",
        "`let` names a number as something else is called.",
        "A number that `let` names cannot have the name of a tensor, a group, a parameter, a loop"
        " variable, a work handle or a function: an expression could not tell which is meant.",
        "choose another name for the number.",
        step("let: {x: 3}"),
    ),
    problem(
        "unknown_on_rank",
        "An expression reads a number that `let` has not named on some rank.",
        "`let` names a number on the ranks that take its step. What it names in a loop is forgotten"
        " with each turn.",
        "let each rank that reads it take a `let` that names it, or select the readers.",
        """\
world_size: 2
tensors: {x: [1]}
steps:
  - let: {v: 3}
    ranks: 0
  - compute: {x: "x + v"}
""",
    ),
    problem(
        "no_cost",
        "`expect: cost:` of a program that has none.",
        "What a program costs follows from what is proved to happen: a program with a diagnosis, or"
        " one that does not complete, has no cost. How many bytes an object has, nothing tells.",
        "leave `cost` out, or correct the program.",
        """\
world_size: 2
tensors: {x: [1]}
steps:
  - send: {tensor: x, dst: 1}
    ranks: 0
expect: {outcome: deadlock, diagnosis: unmatched_send, cost: {rounds: 1}}
""",
    ),
    problem(
        "bad_topology",
        "A topology that cannot be read, or that lacks what a forecast needs.",
        "A time is an estimate of one machine: the machine must be described, with the source of"
        " each number, and every number with its unit.",
        "correct what the message names; `scenario topology list` names those that are known.",
        """\
world_size: 2
tensors: {x: [1]}
steps:
  - all_reduce: {tensor: x}
expect: {cost: {time: {max: 1ms, on: nowhere}}}
""",
    ),
    problem(
        "no_forecast",
        "A topology that says nothing about this collective.",
        "Tables have the collectives that were measured, torch's model those that DTensor weighs;"
        " the bytes of an object are in no program.",
        "take another topology, or `scenario cost --model steps`.",
        """\
world_size: 16
tensors: {x: "zeros(16)", y: "zeros(16)"}
steps:
  - all_to_all_single: {output: y, input: x}
expect: {cost: {time: {max: 1ms, on: v100-efa}}}
""",
    ),
    problem(
        "beyond_the_table",
        "A forecast of a size, or of a number of ranks, that no measurement is near to.",
        "A table of measurements is believed up to twice its largest row and down to half its"
        " smallest: beyond, another algorithm may be taken.",
        "measure that size, or forecast one that was.",
        """\
world_size: 16
tensors: {x: "zeros(1000)"}
steps:
  - all_reduce: {tensor: x}
expect: {cost: {time: {max: 1ms, on: v100-efa}}}
""",
    ),
    problem(
        "cost_of_collective",
        "`expect: cost:` states rounds or messages of a collective in one call.",
        "How many messages an `all_reduce` takes, each backend decides. What a rank sends is"
        " counted by the ring's volume, and marked as modelled.",
        "write the algorithm out in sends and receives, or `use` its file; or state `sent` alone.",
        _step("all_reduce: {tensor: x}") + "expect: {cost: {rounds: 2}}\n",
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
        "rank, world_size and Python's own words have a meaning already; a parameter cannot be a "
        "dtype, a reduce op or a function either.",
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


# -------------------------------------------------------------------------------------------------
# Problems of expressions: what may not be said, and what cannot be computed.

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
        "A string is not an expression.",
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


# -------------------------------------------------------------------------------------------------
# Problems of size: every bound on a scenario, and the flag that raises it.


def _limit(code: str, what: str, bound: str, example: str = "", fixed: str = "") -> Explanation:
    return Explanation(
        code=code,
        sort="problem",
        what=what,
        why="A file is data, and may come from a stranger: it must not take unbounded memory, "
        "time or processes.",
        fix=f"make it smaller, or allow more with `--limit {bound}=N` where you trust the file.",
        example=example,
        fixed=fixed,
    )


_SMALL = "world_size: 2\nsteps:\n  - barrier: {}\n"

LIMITS: tuple[Explanation, ...] = (
    _limit(
        "too_many_ranks",
        "world_size is larger than the bound.",
        "ranks",
        "world_size: 1000\nsteps:\n  - barrier: {}\n",
        _SMALL,
    ),
    _limit(
        "too_many_cases",
        "The matrix has more combinations than the bound.",
        "matrix-cases",
    ),
    _limit(
        "too_many_steps",
        "The program takes, or the file writes, more steps than the bound.",
        "steps=N` or `--limit file-steps",
    ),
    _limit(
        "too_much_memory",
        "The tensors of all ranks, the values that expressions make, and the copies that the "
        "analysis keeps after each step, take more bytes than the bound. They are counted before "
        "they are made.",
        "bytes",
    ),
    _limit(
        "too_much_work",
        "To compute all values of the program, on every rank and in every round of its loops, "
        "takes more work than the bound: it counts each element of a tensor, each operation in a "
        "comprehension, each step. The count is the same on every machine. A file's matrix with "
        "very many cases of very many steps passes it too.",
        "work",
        'world_size: 2\ntensors: {x: [0]}\nsteps:\n  - for: {i: "range(100000)"}\n    steps:\n'
        '      - compute: {x: "[sum([a * b for a in range(500) for b in range(500)])]"}\n',
        "world_size: 2\ntensors: {x: [0]}\nsteps:\n"
        '  - compute: {x: "[sum([a * b for a in range(5) for b in range(5)])]"}\n',
    ),
    _limit(
        "too_many_turns",
        "The loops of the program turn more often than the bound, over all ranks, whether or not "
        "a rank takes a step in them.",
        "turns",
    ),
    _limit(
        "too_slow",
        "The analysis of a case, or the reading of a file, takes more processor time than the "
        "bound, or the command has no time left: nothing is decided, the case is INCONCLUSIVE. The "
        "other files go on. A machine that is busy with other things takes nothing from that time.",
        "seconds",
    ),
    _limit(
        "loop_too_long",
        "A `for` has more iterations than the bound.",
        "loop",
    ),
    _limit(
        "expression_too_large",
        "An expression is longer, or nested deeper, than the bound.",
        "expression-chars=N`, `--limit expression-nodes=N` or `--limit nesting",
    ),
    _limit("use_too_deep", "Files use files beyond the bound.", "use-depth"),
)


# -------------------------------------------------------------------------------------------------
# Problems of files that use each other.

USING: tuple[Explanation, ...] = (
    problem(
        "not_a_scenario",
        "A file that others use is asked to run by itself.",
        "A file with `inputs:` in place of `world_size:` holds steps without a world.",
        "run a scenario that says `use: {file: ...}`, or give the file a `world_size`.",
    ),
    problem(
        "unknown_input",
        "`with` gives an input that the used file does not declare.",
        "A library lists its inputs at its top.",
        "correct the name.",
    ),
    problem(
        "missing_input",
        "A used file declares an input that `with` does not give.",
        "Every input needs a value; a library may give it a default.",
        "add it under `with`.",
    ),
    problem(
        "input_in_expression",
        "An input of a library is used where its value cannot be put.",
        "Inputs are replaced before the file is read as a scenario.",
        "use the input by itself.",
    ),
    problem(
        "not_a_library",
        "`use` names a file without `inputs:`.",
        "Only a file made for it can be used; a whole scenario has a world of its own.",
        "say `inputs:` at its top instead of `world_size:`.",
    ),
    problem(
        "use_outside_project",
        "`use` names a file outside the project.",
        "A scenario may not read files of the machine it runs on.",
        "copy the file into the project and name it relative to the file that uses it.",
    ),
    problem(
        "use_cycle",
        "Files use each other in a ring.",
        "It would have no end.",
        "break the ring; `for` repeats.",
    ),
)


# -------------------------------------------------------------------------------------------------
# Why `scenario bless` leaves a file as it is.


def _refusal(code: str, what: str, why: str, fix: str) -> Explanation:
    return Explanation(code=code, sort="refusal to bless", what=what, why=why, fix=fix)


_ENDING = (
    "How a scenario ends is its author's to state: a hang that is blessed is a test that passes "
)
_ENDING += "because the program is stuck."

BLESSING: tuple[Explanation, ...] = (
    _refusal(
        "program_hangs",
        "The program hangs, and the file does not say so.",
        _ENDING,
        "correct the program, or state `outcome: deadlock` with its `diagnosis:` and bless again: "
        "values that are reached before the hang are then filled in.",
    ),
    _refusal(
        "program_crashes",
        "A process ends, and the file does not say so.",
        _ENDING,
        "correct the program, or state `outcome: crash` with `dies:`.",
    ),
    _refusal(
        "program_raises",
        "A rank raises what no step expects.",
        _ENDING,
        "correct the program, or state `raises:` next to the step.",
    ),
    _refusal(
        "wrong_program",
        "The analysis finds something wrong with the program that is not a value.",
        "Values of a wrong program are worth nothing: they are what this backend made of it.",
        "`scenario check` shows the finding whole; correct the program, or state its `diagnosis:`.",
    ),
    _refusal(
        "value_undefined",
        "An operation leaves the value undefined there, or the name does not exist.",
        "What a backend happens to leave behind may be another thing tomorrow.",
        "ask for the value on the ranks that hold one: `x: {0: }`.",
    ),
    _refusal(
        "value_too_large",
        "The value has too many elements to be written out.",
        "A list of thousands of numbers says nothing to a reader.",
        'state it as an expression, or a part of it: `"x[0:4]": `.',
    ),
    _refusal(
        "cases_differ",
        "The cases of the matrix hold different values where one text serves them all.",
        "bless writes values and invents no expression.",
        'state an expression of the matrix keys, such as "full(n, 3)".',
    ),
    _refusal(
        "rounds_differ",
        "The rounds of a loop hold different values, and there are too many to be listed.",
        "bless writes values and invents no expression.",
        "state an expression of the loop's variable, or put the `expect` next to the `for`.",
    ),
    _refusal(
        "used_part",
        "The wrong expectation is written in a part that scenarios `use`.",
        "A part serves several scenarios; what one of them makes of it is not for all.",
        "change the part yourself, or state the value next to the `use`.",
    ),
    _refusal(
        "backend_section",
        "The value is asked for in the section of one backend.",
        "Such a section says what a backend does otherwise than the semantics, and only the "
        "semantics give values to bless.",
        "state the value yourself.",
    ),
    _refusal(
        "shared_value",
        "The value has an anchor, an alias or a tag.",
        "To change it in one place would change it in others.",
        "write the value out.",
    ),
    _refusal(
        "nothing_written",
        "An `expect:` is empty, but no rank writes anything there, or reaches it.",
        "There is no value that it could state.",
        "leave the `expect:` out, or name what it is about.",
    ),
    _refusal(
        "reference_disagrees",
        "The run holds other values than the reference, or ends otherwise.",
        "Which of the two is right is not for bless to decide.",
        "`scenario run` shows where they part; a deviation of the backend goes into its section.",
    ),
    _refusal(
        "runs_differ",
        "The scenario passes in one run and fails in another.",
        "A flaky test is worse than none.",
        "`scenario run --repeat 20` shows how often; look for a race, or a timeout that is short.",
    ),
    _refusal(
        "not_proved",
        "What would be written does not pass the analysis.",
        "Nothing is written that is not proved.",
        "state the value yourself: `scenario check` says what it must be.",
    ),
    _refusal(
        "cannot_run",
        "The backend at hand cannot run the scenario.",
        "No run, no second witness.",
        "bless it where its backend is, or with another `--backend`.",
    ),
    _refusal(
        "left_open",
        "The environment failed, or a bound of the analysis was hit.",
        "What is not known is not written.",
        "raise the bound that the message names, or look at the environment, and bless again.",
    ),
    _refusal(
        "unresolved_conflict",
        "The file holds the marks of a merge that was not resolved.",
        "It is two files at once.",
        "resolve the conflict, then bless.",
    ),
    _refusal(
        "file_changed",
        "The file was changed by another program while it was blessed.",
        "Their change would be lost.",
        "bless it again.",
    ),
)


# -------------------------------------------------------------------------------------------------
# Problems of the command line, of results and of reports.

COMMANDS: tuple[Explanation, ...] = (
    problem(
        "unknown_parameter",
        "`--set` names neither a parameter nor a matrix key of the file.",
        "Only what the file declares can be replaced.",
        "correct the name, or select only the files that declare it.",
    ),
    problem(
        "set_of_a_case",
        "`--set` names a key of `cases:`.",
        "The values of a case belong together: another value of one of them is another case.",
        "choose a case by its name, as in `sum.yaml::reduce[op=sum,want=6]`, or add one.",
    ),
    problem(
        "bad_keyword",
        "The expression of -k cannot be read.",
        "It is made of words, `and`, `or`, `not` and parentheses.",
        "close the parentheses and write a word on each side of `and` and `or`.",
    ),
    problem(
        "unknown_place",
        "The command line names a case, or a line, that the file does not have.",
        "`sum.yaml::case` is a case as the reports print it, `sum.yaml:42` the step at a line.",
        "`scenario list sum.yaml` prints the cases of a file.",
    ),
    problem(
        "not_a_result",
        "A file that should hold results of `scenario run --json` holds something else.",
        "Results are merged and compared only where nothing in them was changed by hand.",
        "name the file that `--json` or `--jsonl` wrote.",
    ),
    problem(
        "truncated_result",
        "A file of results ends in the middle.",
        "The command that wrote it was killed, or the file was not copied whole.",
        "run it again; `--jsonl` keeps what was finished also where a run is killed.",
    ),
    problem(
        "newer_result",
        "A file of results is of a newer version of the format.",
        "An older program cannot read with certainty what it says.",
        "install the version of torch-scenarios that wrote it, or a newer one.",
    ),
    problem(
        "not_mergeable",
        "Files of results do not belong together.",
        "Each case may be reported once, all by one version of torch and of this tool, and no "
        "shard may be missing: a whole that lacks a part must not pass.",
        "give `scenario merge` the results of all shards of one run, or of runs of other files.",
    ),
    problem(
        "not_comparable",
        "`scenario conformance compare` cannot compare this file.",
        "It compares one column with another: a column is one backend in one version of torch, as "
        "`scenario conformance -o FILE` writes it.",
        "name files that `scenario conformance` wrote, and the column where one has several: "
        "`compare 'docs/conformance.json#gloo, torch 2.6.0' conformance.json`.",
    ),
    problem(
        "report_unwritable",
        "A report cannot be written where the command line says.",
        "Every path is tried before anything runs, so that no result is lost at the end.",
        "make the folder, choose another file, or give each report a file of its own.",
    ),
    problem(
        "no_latest_run",
        "`scenario show --last` finds no run to draw here, or cannot read what one kept.",
        "`scenario run` keeps the timelines of its cases in `.scenario/` in the project folder; a "
        "run in another folder, `scenario check` and torchrun keep none.",
        "run the scenario first, in this project; or name the file: `scenario show FILE --run`.",
    ),
    problem(
        "bad_record",
        "A file, or a folder, is not a record of a program.",
        "`scenario import` reads what `scenario record` wrote, and torch's flight-recorder dumps. "
        "They are data: what is in neither form is refused.",
        "name the folder that `scenario record -o` wrote, or that of the dumps.",
    ),
    problem(
        "newer_record",
        "A record is of a newer version of the format.",
        "An older program cannot read with certainty what it says.",
        "install the version of torch-scenarios that wrote it, or a newer one.",
    ),
)
