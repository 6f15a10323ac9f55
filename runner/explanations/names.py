"""Problems of names and expressions: what nothing defines, and what may not be said."""

from __future__ import annotations

from runner.explanations.entry import Explanation
from runner.language.signatures import SIGNATURES

_RIGHT = """\
world_size: 2
parameters: {width: 3}
tensors:
  x: "full(width, rank + 1)"
steps:
  - all_reduce: {tensor: x, op: sum}
    expect:
      x: "full(width, 3)"
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


def _value(text: str) -> str:
    return f"world_size: 2\ntensors:\n  x: {text}\nsteps:\n  - barrier: {{}}\n"


def _step(text: str) -> str:
    return f"world_size: 2\ntensors:\n  x: [1, 2]\nsteps:\n  - {text}\n"


NAMES: tuple[Explanation, ...] = (
    _problem(
        "not_a_scenario",
        "A file that others use is asked to run by itself.",
        "A file with `inputs:` in place of `world_size:` holds steps without a world.",
        "run a scenario that says `use: {file: ...}`, or give the file a `world_size`.",
    ),
    _problem(
        "unknown_name",
        "An expression reads a name that nothing defines.",
        "It may be a parameter, a matrix key, a group, a loop variable inside its loop, a tensor, "
        "rank or world_size.",
        "correct it, or define it; the message names the nearest.",
        _value('"full(width, 1)"'),
    ),
    _problem(
        "not_made_yet",
        "An expression reads a name that has no value there yet.",
        "Parameters are known first; then groups, objects and tensors are made, each in the order "
        "of the file; steps come last.",
        "move the name up, or compute the value in a step.",
        _value('"y + 1"\n  y: [1, 2]'),
    ),
    _problem(
        "unknown_function",
        "An expression calls a function that the language does not have.",
        "The functions are a fixed table: the array API standard's names and a few more. They are "
        f"{', '.join(signature.usage for signature in SIGNATURES.values())}.",
        "use one of the table; the message names those nearby.",
        _value('"fill(3, 1)"'),
    ),
    _problem(
        "unknown_operation",
        "A step whose action is no operation.",
        "An operation has the name of the function of torch.distributed that it calls.",
        "correct it; `scenario ops` lists them.",
        _step("all_redcue: {tensor: x}"),
    ),
    _problem(
        "unknown_group",
        "A group that nothing creates.",
        "Groups come from `groups:` or from a new_group step; `world` is always there. A mesh "
        "gives one group for each dimension: mesh.dp.",
        "correct it, or create the group.",
        _step("barrier: {group: evn}"),
    ),
    _problem(
        "unknown_handle",
        "`wait` for a handle that no step names.",
        "An asynchronous step names its handle with `as`.",
        "correct it, or put `as` beside the asynchronous step.",
        _step("wait: work"),
    ),
    _problem(
        "unknown_dtype",
        "A dtype that the language does not have.",
        "Dtypes have torch's names, without the module: float32, bfloat16, int64.",
        "correct it.",
        _value("{dtype: float23, value: [1]}"),
    ),
    _problem(
        "unknown_op",
        "A reduce op that torch does not have.",
        "The ops are sum, avg, product, min, max, band, bor, bxor, and {premul_sum: 0.5}.",
        "correct it.",
        _step("all_reduce: {tensor: x, op: add}"),
    ),
    _problem(
        "unknown_word",
        "A word where one of a few fixed words is wanted.",
        "Such as off, info, detail for `debug`.",
        "use one of the words that the message lists.",
        "world_size: 2\ndebug: loud\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "unknown_outcome",
        "An outcome that does not exist.",
        "A scenario completes, or ends in a deadlock, an error or a crash.",
        "use completes, deadlock, error or crash.",
        "world_size: 2\nsteps:\n  - barrier: {}\nexpect:\n  outcome: hangs\n",
    ),
    _problem(
        "unknown_diagnosis",
        "A diagnosis that does not exist.",
        "`scenario explain NAME` knows each of them.",
        "correct it; the message names the nearest.",
        "world_size: 2\nsteps:\n  - barrier: {}\nexpect:\n  diagnosis: circular_weight\n",
    ),
    _problem(
        "unknown_kind",
        "A kind of error that does not exist.",
        "Kinds do not depend on a backend's wording: timeout, peer_lost, invalid_argument ...",
        'correct it; a part of the message is asked for with {timeout: "words"}.',
        _step("barrier: {}\n    expect: {raises: tiemout}"),
    ),
    _problem(
        "unknown_parameter",
        "`--set` names no parameter and no matrix key of the file.",
        "Only what the file declares can be replaced.",
        "correct the name, or select only the files that declare it.",
    ),
    _problem(
        "unknown_input",
        "`with` gives an input that the used file does not declare.",
        "A library lists its inputs at its top.",
        "correct the name.",
    ),
    _problem(
        "missing_input",
        "A used file declares an input that `with` does not give.",
        "Every input needs a value; a library may give it a default.",
        "add it under `with`.",
    ),
    _problem(
        "bad_name",
        "A name that an expression could not read.",
        "Names are letters, digits and _, and begin with no digit.",
        "rename it.",
        "world_size: 2\ntensors:\n  my-x: [1]\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "reserved_name",
        "A name that means something else in every scenario.",
        "rank, world_size and Python's own words are taken; a parameter cannot be a dtype, "
        "a reduce op or a function either.",
        "choose another name.",
        "world_size: 2\ntensors:\n  in: [1]\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "duplicate_name",
        "Two things have the same name.",
        "Tensors, groups, parameters, handles and loop variables share one space of names.",
        "rename one of them.",
        "world_size: 2\ngroups:\n  x: [0]\ntensors:\n  x: [1]\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "duplicate_step_name",
        "Two steps have the same name.",
        "Reports and `blocked:` refer to a step by its name.",
        "rename one of them.",
        _step("name: a\n    barrier: {}\n  - name: a\n    barrier: {}"),
    ),
    _problem(
        "expression_syntax",
        "A string is no expression.",
        "A string is Python's expression syntax; a fixed name is wanted only where the language "
        "says so.",
        "close the bracket, write the operator. Text belongs into `objects:`.",
        _value('"full(3, 1"'),
    ),
    _problem(
        "expression_not_allowed",
        "An expression uses a part of Python that the language does not have.",
        "No attributes, lambdas, imports, assignments or f-strings: a scenario cannot execute "
        "code.",
        "use the language's functions: shape(x) for x.shape, astype(x, int64) for a cast.",
        _value('"rank.real"'),
    ),
    _problem(
        "wrong_arguments",
        "A function is called with arguments that it does not take.",
        "Each function has the signature of the array API standard, or the one in the docs.",
        "correct the call.",
        _value('"full(3)"'),
    ),
    _problem(
        "before_outside_expect",
        "`before(x, r)` outside an expectation.",
        "A rank cannot know what another holds; only the judge can.",
        "use it in `expect` only.",
        _value('[0]\n  y: "before(x, 0)"'),
    ),
    _problem(
        "not_constant",
        "A value that must be the same on every rank depends on the rank, or on a tensor.",
        "world_size, parameters and matrix keys are known before any rank exists.",
        "use numbers and other parameters only.",
        'world_size: "rank + 1"\nsteps:\n  - barrier: {}\n',
    ),
    _problem(
        "cannot_compute",
        "An expression has no value on some rank.",
        "A division by zero, an index beyond the end, shapes that do not fit, a name with no "
        "value on that rank.",
        "look at the rank that the message names.",
        _value('"full(2, 1 // rank)"'),
    ),
    _problem(
        "bad_selector",
        "A selector is neither a boolean, a rank nor a collection of ranks.",
        "`ranks:` and the keys of a per-rank mapping select ranks.",
        'write 0, [0, 3], even, "rank % 2 == 0" or "range(4)".',
        _step('ranks: "rank + 0.5"\n    compute: {x: "x + 1"}'),
    ),
    _problem(
        "bad_keyword",
        "The expression of -k cannot be read.",
        "It is made of words, `and`, `or`, `not` and parentheses.",
        "close the parentheses and write a word on each side of `and` and `or`.",
    ),
    _problem(
        "unknown_place",
        "The command line names a case, or a line, that the file does not have.",
        "`sum.yaml::case` is a case as the reports print it, `sum.yaml:42` the step at a line.",
        "`scenario list sum.yaml` prints the cases of a file.",
    ),
    _problem(
        "not_a_result",
        "A file that should hold results of `scenario run --json` holds something else.",
        "Results are merged and compared only where nothing in them was changed by hand.",
        "name the file that `--json` or `--jsonl` wrote.",
    ),
    _problem(
        "truncated_result",
        "A file of results ends in the middle.",
        "The command that wrote it was killed, or the file was not copied whole.",
        "run it again; `--jsonl` keeps what was finished also where a run is killed.",
    ),
    _problem(
        "newer_result",
        "A file of results is of a newer version of the format.",
        "What it says cannot be told with certainty by a program that is older.",
        "install the version of scenario-runner that wrote it, or a newer one.",
    ),
    _problem(
        "not_mergeable",
        "Files of results do not belong together.",
        "A case may be told of once, all by one version of torch and of this tool, and no shard "
        "may be missing: a whole that lacks a part must not pass.",
        "give `scenario merge` the results of all shards of one run, or of runs of other files.",
    ),
    _problem(
        "report_unwritable",
        "A report cannot be written where the command line says.",
        "Every path is tried before anything runs, so that no result is lost at the end.",
        "make the folder, choose another file, or give each report a file of its own.",
    ),
    _problem(
        "no_latest_run",
        "`scenario show --last` finds no run to draw here, or cannot read what one kept.",
        "`scenario run` keeps the timelines of its cases in `.scenario/` beside the project; a run "
        "in another folder, `scenario check` and torchrun keep none.",
        "run the scenario first, in this project; or name the file: `scenario show FILE --run`.",
    ),
    _problem(
        "input_in_expression",
        "An input of a library is used where its value cannot be put.",
        "Inputs are replaced before the file is read as a scenario.",
        "use the input by itself.",
    ),
    _problem(
        "not_a_library",
        "`use` names a file without `inputs:`.",
        "Only a file made for it can be used; a whole scenario has a world of its own.",
        "say `inputs:` at its top instead of `world_size:`.",
    ),
    _problem(
        "use_outside_project",
        "`use` names a file outside the project.",
        "A scenario may not read files of the machine it runs on.",
        "copy the file into the project and name it relative to the file that uses it.",
    ),
    _problem(
        "use_cycle",
        "Files use each other in a ring.",
        "It would have no end.",
        "break the ring; `for` repeats.",
    ),
)
