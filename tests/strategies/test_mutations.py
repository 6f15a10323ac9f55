"""A sign, a factor or an index that is flipped in a reference turns a scenario red.

Each mutation is one node of the syntax tree of a layer, a loss, an optimizer or a lowering: `+`
becomes `-`, `*` becomes `/`, a small integer the next one, a comparison its opposite. A layer is
what both references share, so it is held against what torch's own ranks held; a lowering against
one process. Functions that a scenario of the sample cannot tell of are left out, with the reason,
and so are the words of a message. `UNSEEN` lists the mutations that change no value, with the
reason; every other one must be seen.

A sample of those of every eighth module is tried in an ordinary run, every one in a nightly one;
scenarios in turn, until one sees it. A mutation may count backwards for ever, so that each is tried
in a process of its own with bounds of time and of memory; one that reaches them is seen.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.util
import inspect
import os
import resource
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sampling import sampled

from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.modules import (
    attention,
    batch_norm,
    embedding,
    gelu,
    layer_norm,
    linear,
    loss,
    optimizer,
    relu,
    rms_norm,
    sequential,
    tanh,
)
from torch_scenarios.modules import base as modules_base
from torch_scenarios.operations import placement
from torch_scenarios.reference import simulate
from torch_scenarios.strategies import (
    checkpoint,
    data_parallel,
    fully_shard,
    model,
    model_averager,
    one_process,
    pipeline,
    tensor_parallel,
    tolerance,
    trainee,
)
from torch_scenarios.strategies.comm_hooks import all_reduce, post_local_sgd, power_sgd
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from torch_scenarios.model.scenario import Scenario

CORPUS = Path(__file__).parents[2] / "scenarios"

#: cases of a scenario that are held against a mutation
MOST_CASES = 5

#: scenarios that tell of what all strategies share
OF_ALL = (
    "ddp_equals_one_process",
    "ddp_accumulates",
    "ddp_clips_gradients",
    "fully_shard_clips_gradients",
    "what_each_stage_keeps",
    "checkpoint_of_other_ranks",
    "ddp_joins_uneven_inputs",
    "sequence_parallel_adamw",
    "ddp_broadcasts_buffers",
    "clipping_leaves_small_gradients",
    "wrong/not_equivalent/weights_differ_at_first_fixed",
    "ddp_sends_gradients_near_a_lower_rank",
)

#: module -> the scenarios that tell of it, cheap ones first: of `strategies`, or with their folder
TOLD_BY: dict[ModuleType, tuple[str, ...]] = {
    linear: ("ddp_equals_one_process",),
    relu: ("layers_of_models",),
    gelu: ("layers_of_models",),
    tanh: ("layers_of_models",),
    layer_norm: ("layers_of_models",),
    rms_norm: ("layers_of_models",),
    modules_base: ("layers_of_models",),
    embedding: ("layers_of_models",),
    sequential: ("layers_of_models", "pipeline_schedules"),
    attention: ("attention_by_heads", "blocks_share_a_batch", "large_scores"),
    loss: ("ddp_equals_one_process", "layers_of_models", "ddp_decays_weights", "large_scores"),
    optimizer: ("ddp_optimizers", "ddp_decays_weights", "layers_of_models"),
    data_parallel: (
        "ddp_equals_one_process",
        "ddp_finds_unused_in_buckets",
        "ddp_finds_unused_parameters",
        "zero1_owns_parameters",
        "ddp_joins_uneven_inputs",
        "ddp_joins_without_a_batch",
        "ddp_broadcasts_buffers",
        "ddp_ends_early",
        "checkpoint_of_owned_states",
        "ddp_sends_gradients_near_a_lower_rank",
    ),
    batch_norm: ("ddp_broadcasts_buffers",),
    model_averager: ("averaged_weights", "ddp_then_local_sgd"),
    all_reduce: ("ddp_compresses_gradients",),
    post_local_sgd: ("ddp_then_local_sgd",),
    power_sgd: (
        "ddp_sends_low_rank_gradients",
        "ddp_sends_gradients_near_a_lower_rank",
        "ddp_sends_small_gradients_whole",
        "wrong/not_equivalent/gradients_of_too_low_a_rank",
    ),
    fully_shard: (
        "fully_shard_pads",
        "fully_shard_root_and_units",
        "fully_shard_clips_gradients",
        "fully_shard_hybrid",
        "fully_shard_reshards_over_two",
        "fully_shard_accumulates",
        "fully_shard_without_bias",
    ),
    tensor_parallel: (
        "column_then_row",
        "tensor_parallel_plans",
        "sequence_parallel_adamw",
        "tensor_parallel_clips_gradients",
        "attention_by_heads",
        "fully_shard_accumulates_partial_sums",
        "losses_of_distributed_outputs",
        "sequence_parallel",
        "local_views_of_two_dimensions",
    ),
    pipeline: (
        "pipeline_schedules",
        "pipeline_interleaved",
        "pipeline_of_few_parts",
        "pipeline_of_three_parts",
        "pipeline_in_a_v",
    ),
    **dict.fromkeys((model, one_process, tolerance, checkpoint, trainee), OF_ALL),
    placement: (
        "shards_count_from_the_end",
        "redistribute_2x2",
        "redistribute_one_dimension",
        "nested_shards",
        "uneven_shards",
        "local_views_of_two_dimensions",
    ),
}

#: seconds of the processor after which a mutation is broken: none takes a tenth of it
PATIENCE_S = 10

#: bytes that a mutation may take beyond what the process has: none takes a tenth of it
ROOM = 1 << 29

#: mutations of an ordinary run, for each module
SAMPLE = 2

OPPOSITE: dict[Any, Any] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.USub: ast.UAdd,
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}

#: functions of which a part tells of nothing that a scenario of the sample shows, and why; so are
#: those that read an argument (`read_...`)
UNTOLD = {
    "turn": "a scenario that is not one process has it: wrong/not_equivalent",
    # what is refused, or read from a file, or handed to torch
    "build": "torch's side",
    "apply": "torch's side",
    "register": "torch's side",
    "collect": "torch's side",
    "_schedule": "torch's side",
    "find_mismatch": "reading",
    "_style": "reading",
    "_read_style": "reading",
    "__post_init__": "reading",
    "not_below_zero": "reading",
    "output_shape": "shapes are checked where a file is read",
    "explain_refusal": "refusals have scenarios of their own",
    "_explain_refusal_of_several": "refusals have scenarios of their own",
    "_unclippable": "refusals have scenarios of their own",
    "_is_distributed": "refusals have scenarios of their own",
    "_attends": "refusals have scenarios of their own",
    "build_style": "torch's side",
    "lies": "reading",
    "begin": "weights are the same on all ranks at first",
    "_reduce": "dtypes have a scenario of their own",
    "fit": "refusals have scenarios of their own",
    "sum_to": "no model of the sample broadcasts its target",
    "call": "torch's side",
    "charge": "what a step costs is an account of its own",
    "unplaceable": "refusals have scenarios of their own",
    "impassable": "refusals have scenarios of their own",
    "_signs": "any signs shake the weights",
    "first": "any signs shake the weights",
    "without": "ranks that pass a layer by have scenarios of their own",
    "coarse": "what a coarse dtype may be off by is more than what its casts are",
    "compute_dtype": "what a coarse dtype may be off by is more than what its casts are",
    "reduce_dtype": "what a coarse dtype may be off by is more than what its casts are",
    "narrow_floats": "integers stay what they are",
    "_convert": "integers stay what they are",
    "widen_floats": "integers stay what they are",
    "broken": "which release has what is a fact of torch",
    "unfit": "refusals have scenarios of their own",
    "tolerance": "held to its numbers by test_tolerance",
    "reach": "held to its numbers by test_tolerance",
    "_decay_off": "held to its numbers by test_tolerance",
    "longest": "held to its numbers by test_tolerance",
    "absolute": "held to its numbers by test_tolerance",
    "bound_of": "held to its numbers by test_tolerance",
    "weigh": "held to its numbers by test_tolerance",
    "terms": "held to its numbers by test_tolerance",
    "terms_of_normalised": "held to its numbers by test_tolerance",
    "_bound_weight": "what cancels has tests of its own: test_cancellation",
    "_follow": "what cancels has tests of its own: test_cancellation",
    "_note": "what cancels has tests of its own: test_cancellation",
    "choose_directions": "any signs tell what follows",
    "leans": "any signs tell what follows",
    "_find_farthest": "held to its numbers by test_tolerance",
    "measure_distance": "held to its numbers by test_tolerance",
    "bound_of_step": "held to its numbers by test_low_rank",
    "_inverse": "held to its numbers by test_low_rank",
    "shake": "any signs shake the weights",
    "_move_weights": "a few last bits more tell as well what follows: test_wrong_models",
    "_move_gradients": "a few last bits more tell as well what follows: test_wrong_models",
    "list_required": "reading",
    "unequal": "held to its numbers by test_tolerance",
    "factor": "held to its numbers by test_tolerance",
}

#: module -> mutations that no scenario of the sample sees: they change no value, or another test
#: sees them, which is named
UNSEEN: dict[ModuleType, dict[str, str]] = {
    optimizer: {
        "step: 1 - self.dampening -> 1 + self.dampening": "no scenario of the sample dampens:"
        " test_modules::test_three_steps_are_those_of_torch",
    },
    data_parallel: {
        "join: self._joins += 1 -> self._joins -= 1": "the number only tells one end from others",
        "_know_rounding: self._exact.get(name, 0.0) + value"
        " -> self._exact.get(name, 0.0) - value": "how far rounding may bring a value:"
        " test_training::test_low_rank_gradients_are_off_by_rounding_alone",
        "update: owner != here -> owner == here": "how far rounding may bring a value:"
        " test_training::test_who_does_not_step_on_a_weight_knows_how_far_off_it_is",
    },
    fully_shard: {
        "_gather_again: at % unit.over -> at // unit.over": "what is gathered again is in a call"
        " alone: test_lowering::test_what_is_gathered_again_is_what_was_gathered",
    },
    tensor_parallel: {
        "_attention: entered[0] -> entered[1]": "queries, keys and values lie alike",
        "distributes: parameter.rpartition('.')[0] -> parameter.rpartition('.')[1]": "whether a"
        " stated placement is INVALID or FAILED: test_local_views",
    },
    pipeline: {
        "learn: xs[0] -> xs[1]": "parts have one shape",
        "_order_v: size - rank -> size + rank": "a gradient by the weights comes earlier, behind "
        "all calls: test_lowering::test_orders_of_several_stages_are_those_that_torch_runs",
        "_order_v: count[BY_INPUT, stage] - count[BY_WEIGHT, stage]"
        " -> count[BY_INPUT, stage] + count[BY_WEIGHT, stage]": "parts there are not are left out",
        "take: kind == FORWARD -> kind != FORWARD": "forwards and backwards are counted apart",
        "_add_rests: done[move.stage] += move.kind in (BACKWARD, BY_WEIGHT)"
        " -> done[move.stage] -= move.kind in (BACKWARD, BY_WEIGHT)": "a turn that only rests is"
        " missing: test_lowering::test_orders_of_several_stages_are_those_that_torch_runs",
    },
    one_process: {
        "load: saved.processes[0] -> saved.processes[1]": "processes have as many weights",
        "after: len(self.processes) + len(self._ways) -> len(self.processes) - len(self._ways)": ""
        "what is charged to the account, not what is computed",
        "after: self.steps + 1 -> self.steps - 1": "the number in a note:"
        " test_cancellation::test_how_closely_a_value_is_known_is_noted",
        "_step: errors[name] * reached.open * choose_directions(number, name, leans[name])"
        " -> errors[name] * reached.open / choose_directions(number, name, leans[name])": ""
        "a direction is 1 or -1",
        "_step: errors[name] * reached.open -> errors[name] / reached.open": "how far a value may"
        " be off: test_cancellation::test_no_seed_makes_a_fault_of_a_bias",
        "_step: exact.sizes[name] == 0 -> exact.sizes[name] != 0": "how far a value may be off:"
        " test_cancellation::test_a_unit_that_is_dead_is_known_exactly",
        "_recall: key[0] -> key[1]": "how far a value may be off:"
        " test_mixed_precision::test_a_factor_is_found",
        "_recall: key[0] == 'grad' -> key[0] != 'grad'": "how far a value may be off:"
        " test_mixed_precision::test_a_factor_is_found",
    },
    trainee: {
        "_read_buffers: value.dtype.kind == 'f' -> value.dtype.kind != 'f'": "buffers of the"
        " sample are as close as their dtype allows by itself",
        "pairs: self.bound_rounding(name)[0] -> self.bound_rounding(name)[1]": "the hook"
        " of the sample brings both as far:"
        " test_training::test_rounding_widens_the_gradient_and_the_weight_that_it_is_told_of",
        "train: more[0] -> more[1]": "the sample has no hook that rounds:"
        " test_training::test_rounding_widens_the_gradient_and_the_weight_that_it_is_told_of",
    },
    checkpoint: {
        "of: pieces[0] -> pieces[1]": "ranks of a model share one process:"
        " test_checkpoints::test_parts_of_ranks_are_joined_where_they_lie",
    },
    tolerance: {
        "coarse_bit: each > EPSILON -> each <= EPSILON": "how far a value may be off:"
        " test_cancellation::test_a_gradient_that_cancels_is_no_fault",
    },
    power_sgd: {
        "bound: each.flat + error -> each.flat - error": "how far rounding may bring a value:"
        " test_low_rank::test_what_was_lost_before_is_in_the_step",
        "bound: self.group.size * EPSILON * np.abs(flats).mean(axis=0)"
        " -> self.group.size * EPSILON / np.abs(flats).mean(axis=0)": "how far rounding may bring a"
        " value: test_low_rank::test_a_gradient_that_travels_whole_is_off_by_its_sum",
        "bound: self.group.size * EPSILON -> self.group.size / EPSILON": "how far rounding may"
        " bring a value: test_low_rank::test_a_gradient_that_travels_whole_is_off_by_its_sum",
        "bound: given[0] -> given[1]": "gradients of all ranks have the same shapes",
        "bound: memories[0] -> memories[1]": "all ranks carry the same Q",
        "_witness: key[2] - 1 -> key[2] + 1": "how far rounding may bring a value:"
        " test_training::test_low_rank_gradients_are_off_by_rounding_alone",
        "_one: at + 1 -> at - 1": "the last bits of a number:"
        " test_training::test_random_numbers_are_those_of_torch",
    },
    placement: {
        "_scatter: parts[0] -> parts[1]": "parts are padded to one shape",
    },
}


def mutations(module: ModuleType) -> Iterator[tuple[str, ast.Module]]:
    """Yield each mutation of a module: where it is, and the tree."""
    text = inspect.getsource(module)
    count = len(list(_places(ast.parse(text))))
    for nth in range(count):
        tree = ast.parse(text)
        function, node = list(_places(tree))[nth]
        before = ast.unparse(node)
        _flip(node)
        yield f"{function}:{node.lineno}: {before} -> {ast.unparse(node)}", tree


def _places(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    words = {id(part) for text in _texts(tree) for part in ast.walk(text)}
    for function, node in _inside(tree, ""):
        if id(node) in words:
            continue
        signed = (ast.BinOp, ast.AugAssign, ast.UnaryOp)
        numeric = isinstance(node, signed) and type(node.op) in OPPOSITE and not _is_axis(node)
        compared = isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITE
        index = isinstance(node, ast.Subscript) and _small(node.slice)
        if (numeric and not _is_text(node)) or compared or index:
            yield function, node


def _inside(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield what is inside of functions with their names; those left out are not gone into."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef):
            if each.name not in UNTOLD and not each.name.startswith("read_"):
                yield from _inside(each, each.name)
            continue
        if function:
            yield function, each
        yield from _inside(each, function)


def _texts(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts that make words: of messages, and of names."""
    return (each for each in ast.walk(tree) if isinstance(each, ast.JoinedStr))


def _small(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_axis(node: Any) -> bool:
    """Whether it is a number that counts from the end: an axis, which has another name as well."""
    return isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)


def _is_text(node: Any) -> bool:
    kinds = (ast.JoinedStr, ast.List, ast.Tuple)
    return any(isinstance(each, kinds) for each in ast.iter_child_nodes(node))


def _flip(node: Any) -> None:
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.UnaryOp):
        node.op = OPPOSITE[type(node.op)]()
    elif isinstance(node, ast.Compare):
        node.ops[0] = OPPOSITE[type(node.ops[0])]()
    else:
        node.slice = ast.Constant(value=node.slice.value + 1)


class Mutated(importlib.abc.SourceLoader):
    """A module of another tree, which nothing else imports."""

    def __init__(self, tree: ast.Module) -> None:
        self._text = ast.unparse(tree).encode()

    def get_filename(self, fullname: str) -> str:
        """Return no file's name."""
        return f"<{fullname}>"

    def get_data(self, path: str) -> bytes:
        """Return the text; there is no compiled one."""
        return self._text if path.startswith("<") else b""


def _built(module: ModuleType, tree: ast.Module) -> ModuleType:
    spec = importlib.util.spec_from_loader(module.__name__, Mutated(tree))
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    with contextlib.suppress(Exception):  # a mutation may break what a module does on import
        spec.loader.exec_module(made)
    return made


def put_in(module: ModuleType, tree: ast.Module) -> None:
    """Let the functions and methods of a module be those of the tree, in this process."""
    made = vars(_built(module, tree))
    for name, value in list(vars(module).items()):
        new: Any = made.get(name)
        if new is value or getattr(value, "__module__", "") != module.__name__:
            continue
        if hasattr(value, "cache_clear"):  # a function that remembers its results
            value.cache_clear()
            value.__wrapped__.__code__ = new.__wrapped__.__code__
        elif inspect.isfunction(value):
            value.__code__ = new.__code__
        elif inspect.isclass(value):
            for method, function in list(vars(value).items()):
                bare: Any = getattr(
                    function, "__func__", getattr(function, "fget", None) or function
                )
                other: Any = vars(new).get(method)
                other = getattr(other, "__func__", getattr(other, "fget", None) or other)
                if inspect.isfunction(bare) and inspect.isfunction(other):
                    same = bare.__code__.co_freevars == other.__code__.co_freevars
                    if same and bare.__code__ != other.__code__:
                        bare.__code__ = other.__code__


class Observed:
    """What torch's own ranks held, by scenario: a plan and a trace for each case."""

    def __init__(self, launcher: Any) -> None:
        """Run nothing yet: most mutations are seen by the first scenario of their module."""
        self._launcher = launcher
        self._found: dict[str, list[tuple[Any, Any]]] = {}

    def cases(self, name: str) -> list[tuple[Any, Any]]:
        """Return the cases of a scenario, which is run, and passes without a mutation."""
        if name not in self._found:
            path = CORPUS / f"{name}.yaml" if "/" in name else CORPUS / f"strategies/{name}.yaml"
            planned = map(plan, load(path)[:MOST_CASES])
            runs = [(each, self._launcher.run(each, simulate(each))) for each in planned]
            assert not told(runs), name
            self._found[name] = runs
        return self._found[name]


@pytest.fixture(scope="module")
def observed(launcher: Any) -> Observed:
    return Observed(launcher)


def told(cases: list[tuple[Any, Any]]) -> bool:
    """Whether some case is not PASSED, or cannot even be computed."""
    for planned, run in cases:
        _forget(planned.scenario)
        status = "broken"
        with contextlib.suppress(Exception):
            status = judge(planned, simulate(planned), run, run.backend).status
        if status != "PASSED":
            return True
    return False


#: exit codes of a child
SEEN, UNSEEN_HERE = 0, 3


def seen(act: Callable[[], bool], seconds: int = PATIENCE_S) -> bool:
    """Whether a child process says so, or reaches its bounds of seconds and bytes.

    The seconds are those of the processor, so that a busy machine breaks nothing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads wait: none has a lock
        child = os.fork()
    if child == 0:
        code = SEEN
        with contextlib.suppress(BaseException):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            bytes_most = pages * resource.getpagesize() + ROOM
            resource.setrlimit(resource.RLIMIT_AS, (bytes_most, bytes_most))
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            code = SEEN if act() else UNSEEN_HERE
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != UNSEEN_HERE


def _forget(scenario: Scenario) -> None:
    """Let one process be computed anew."""
    for each in scenario.models.values():
        each.moments.clear()


def survivors(
    module: ModuleType, every: list[tuple[str, ast.Module]], observed: Observed
) -> list[str]:
    """Return the mutations of a module that no scenario of the sample sees."""

    def tried(tree: ast.Module, cases: list[tuple[Any, Any]]) -> bool:
        put_in(module, tree)
        return told(cases)

    return [
        what
        for what, tree in every
        if not any(
            seen(partial(tried, tree, observed.cases(name))) for name in TOLD_BY[module]
        )  # a scenario is run when those before it have not seen a mutation
    ]


def unlisted(module: ModuleType, found: list[str]) -> list[str]:
    """Return the mutations that survived and that the table does not have, without their lines."""
    listed = UNSEEN.get(module, {})
    return [what for what in found if without_line(what) not in listed]


def without_line(what: str) -> str:
    """Return a mutation without the number of its line: `forward: x + y -> x - y`."""
    function, _, rest = what.partition(":")
    return f"{function}: {rest.partition(': ')[2]}"


def named(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


@pytest.mark.torch
@pytest.mark.parametrize("module", sampled(list(TOLD_BY), 16), ids=named)
def test_a_mutation_of_a_reference_turns_a_scenario_red(
    module: ModuleType, observed: Observed
) -> None:
    every = list(mutations(module))
    sample = every[:: max(1, len(every) // SAMPLE)][:SAMPLE]
    assert not unlisted(module, survivors(module, sample, observed))


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.parametrize("module", TOLD_BY, ids=named)
def test_every_mutation_of_a_reference_turns_a_scenario_red(
    module: ModuleType, observed: Observed
) -> None:
    found = survivors(module, list(mutations(module)), observed)
    assert not unlisted(module, found)
    assert {without_line(what) for what in found} == set(UNSEEN.get(module, {}))


def test_a_mutation_is_bounded() -> None:
    """One that turns for ever, and one that grows for ever."""

    def turned() -> bool:
        while True:
            pass

    def grown() -> bool:
        held: list[bytes] = []
        while True:
            held.append(bytes(1 << 20))

    assert seen(turned, seconds=1)
    assert seen(grown)
    assert seen(lambda: True)
    assert not seen(lambda: False)


def test_what_is_left_out_is_there() -> None:
    """A function that takes another name takes its row of `UNTOLD` along."""
    parts = (part for each in TOLD_BY for part in ast.walk(ast.parse(inspect.getsource(each))))
    names = {part.name for part in parts if isinstance(part, ast.FunctionDef)}
    assert sorted(UNTOLD.keys() - names) == []


def test_words_are_not_mutated() -> None:
    tree = ast.parse("def f(x):\n    message = f'no row {x[0]} of {x + 1}'\n    return x[1]\n")
    assert [ast.unparse(node) for _, node in _places(tree)] == ["x[1]"]
