"""`models:` and `strategies:`: layers, weights, losses, optimizers and strategies, as data.

Classes come from closed tables, by torch's names, and take torch's arguments; nothing is imported
by the name that a file gives.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from collections.abc import Mapping as Mapping_
from math import prod
from typing import Any, TypeVar

from msgspec.structs import replace

from torch_scenarios.expressions.values import Form
from torch_scenarios.language import values
from torch_scenarios.language.context import Context
from torch_scenarios.model.scenario import Step, steps_of
from torch_scenarios.modules import LAYERS, Layer, Residual, Sequential
from torch_scenarios.modules.base import Declared
from torch_scenarios.modules.loss import LOSSES, REDUCTIONS, Loss
from torch_scenarios.modules.optimizer import OPTIMIZERS, SGD, Optimizer
from torch_scenarios.operations.base import Compound
from torch_scenarios.operations.join import Join
from torch_scenarios.operations.model import model_in
from torch_scenarios.source.tree import Mapping, Node, Scalar, Sequence, key_text, source_text
from torch_scenarios.strategies import LEFT_OUT, STRATEGIES, TRAINEES, LeftOutError, Model, Strategy
from torch_scenarios.strategies.data_parallel import DistributedDataParallel

D = TypeVar("D", bound=Declared)

MODEL_KEYS = ("layers", "init", "loss", "optimizer", "parallel", "oracle")
ORACLE_KEYS = ("loss", "optimizer")

#: labels of layers that mean something in the names of values
TAKEN = frozenset({"loss", "grad", "init"})

#: layers of a model
MOST_LAYERS = 64

#: what people write for what a table has not
STRANGERS = {
    "Dropout": "what is random has no one result: leave it out",
    "Lambda": "a model is data: its layers are those of the table",
}


# -------------------------------------------------------------------------------------------------
# Plain data: what the arguments of layers and strategies are made of.


class _UnreadError(Exception):
    """An expression has no value; the problem is noted."""


def data(node: Node, context: Context, *, what: str, extra: dict[str, Any] | None = None) -> Any:
    """Return what a node says as plain data: parameters and expressions over them are computed.

    `what` names it in messages; `extra` are further names that an expression may read. Raises
    _UnreadError. A word with dots stays one (`mesh.dp`, `up.weight`): it names a group or a
    parameter.
    """
    node, context = context.resolve(node)
    match node:
        case Mapping():
            return {
                key_text(key): data(value, context, what=what, extra=extra)
                for key, value in node.entries
            }
        case Sequence():
            return [data(item, context, what=what, extra=extra) for item in node.items]
        case Scalar(value=str()):
            constants = context.names.constants
            if node.value in constants:
                return constants[node.value]
            if all(part.isidentifier() for part in node.value.split(".")):
                return node.value
            found = values.constant_value(node, context, what=what, extra=extra)
            if found is None:
                raise _UnreadError
            return found
        case _:
            return node.value if isinstance(node, Scalar) else None


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (lambda value: type(value) is int and value > 0, "a positive integer"),
    "float": (
        lambda value: isinstance(value, int | float) and not isinstance(value, bool),
        "a number",
    ),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "str": (lambda value: isinstance(value, str), "a name"),
}


def build(kind: type[D], node: Node, context: Context, *, what: str) -> D | None:
    """Return a class of a table with the arguments of a mapping; every problem is noted.

        kind    the class: its fields are the arguments, their annotations say what fits
        node    `{in_features: 4, out_features: 8}`, or nothing
        what    its name in messages

    A class may read an argument itself (`read_dim`), as where torch takes an integer or a pair of
    them. Raises LeftOutError for what torch has and the reference does not model: the case is
    UNSUPPORTED, with the reason, and not INVALID.
    """
    known = kind.types()
    if isinstance(node, Scalar) and node.value is None:
        node = Mapping(node.mark, [])
    if not isinstance(node, Mapping):
        values.wrong_type(node, context, f"the arguments of {what}", "a mapping")
        return None
    given: dict[str, Any] = {}
    good = True
    for key, value in node.entries:
        name = key_text(key)
        try:
            _refuse_left_out(kind, name, value, context, what=what)
            extra = _names_of(kind, name, context)
            known_as = f"`{name}` of {what}"
            found = data(value, context, what=known_as, extra=extra) if name in known else None
        except _UnreadError:
            good = False
            continue
        if name not in known:
            context.problems.unknown(
                "unknown_argument",
                f"unknown argument `{name}` of {what}",
                name,
                (*known, *(word for word in getattr(kind, "left_out", ()) if word.isidentifier())),
                key.mark,
                listed="its arguments are",
                sort="argument",
            )
            good = False
            continue
        read = getattr(kind, f"read_{name}", None)
        if read is not None:
            try:
                given[name] = read(found)
            except (ValueError, TypeError) as error:
                context.problems.add("bad_value", f"`{name}` of {what}: {error}", value.mark)
                good = False
            continue
        good = _fits(known[name], found, value, context, f"`{name}` of {what}") and good
        given[name] = tuple(found) if isinstance(found, list) else found
    return _make(kind, given, node, context, what=what) if good else None


def _names_of(kind: type[Declared], argument: str, context: Context) -> dict[str, Any] | None:
    """Return what an argument may read: `rank`, where each rank may have another value."""
    by_rank = issubclass(kind, Optimizer) and argument in BY_RANK
    return {**context.world, "rank": 0} if by_rank else None


def _refuse_left_out(kind: Any, name: str, value: Node, context: Context, *, what: str) -> None:
    """Raise LeftOutError for an argument, or a value of it, that is known and is not there."""
    known = getattr(kind, "left_out", {})
    if name in known:
        message = f"`{name}` of {what}: {known[name]}"
        raise LeftOutError(message)
    if any(each.startswith(f"{name}=") for each in known) and isinstance(value, Scalar):
        found = data(value, context, what=f"`{name}` of {what}")
        if f"{name}={found}" in known:
            message = f"{found}: {known[f'{name}={found}']}"
            raise LeftOutError(message)


def _make(
    kind: type[D], given: dict[str, Any], node: Node, context: Context, *, what: str
) -> D | None:
    """Return what it makes, unless an argument is missing or it refuses what it is given."""
    lacking = [name for name in kind.list_required() if name not in given]
    if lacking:
        context.problems.add("missing_argument", f"{what} has no `{lacking[0]}`", node.mark)
        return None
    try:
        return kind(**given)
    except ValueError as error:
        refused = re.match(r"`(\w+)`", str(error))
        place = node.get(refused[1]) if refused and isinstance(node, Mapping) else None
        context.problems.add("bad_value", f"{what}: {error}", (place or node).mark)
        return None


def _fits(declared: str, found: Any, node: Node, context: Context, what: str) -> bool:
    """Note a value, or an item of a list, of another type; return whether everything fits."""
    wrong = _explain_mismatch(declared, found)
    item = declared.partition("[")[2].partition(",")[0]
    if wrong is None and isinstance(found, list) and isinstance(node, Sequence):
        for given, each in zip(found, node.items, strict=True):
            wrong = _explain_mismatch(item, given)
            if wrong is not None:
                node, what = each, f"an item of {what}"
                break
    if wrong is not None:
        values.wrong_type(node, context, what, wrong)
    return wrong is None


def _explain_mismatch(declared: str, found: Any) -> str | None:
    """Return what is wanted where a value is of another type; None where it fits.

    `declared` is the text of the field's annotation: `int`, `float | None`, `tuple[int, ...]`.
    """
    if declared.startswith("tuple"):
        return None if isinstance(found, list) else "a list"
    kinds = [each.strip() for each in declared.split("|")]
    if found is None and "None" in kinds:
        return None
    wanted = [_KINDS[each] for each in kinds if each in _KINDS]
    if not wanted or any(fits(found) for fits, _ in wanted):
        return None
    return wanted[0][1]


_NAMED = "a name with its arguments: `{SGD: {lr: 0.1}}`"
#: what is named -> how it is written
_NAMED_FORMS = {
    "a layer": "a class with its arguments: `{Linear: {in_features: 4, out_features: 4}}`"
}


def _read_entry(node: Node, context: Context, what: str) -> tuple[Node, Node] | None:
    """Return the name and the arguments of `{Name: {arguments}}`, or of a name alone.

    The name may be a parameter's, so that a matrix runs one model under several optimizers.
    """
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and isinstance(node.value, str):
        held = context.names.constants.get(node.value)
        name = held if isinstance(held, str) else node.value
        return Scalar(mark=node.mark, value=name, text=name), Mapping(node.mark, [])
    if isinstance(node, Mapping) and len(node.entries) == 1:
        key, arguments = node.entries[0]
        held = context.names.constants.get(key_text(key))
        name = held if isinstance(held, str) else key_text(key)
        return Scalar(mark=key.mark, value=name, text=name), arguments
    values.wrong_type(node, context, what, _NAMED_FORMS.get(what, _NAMED))
    return None


def _read_from_table(
    node: Node, context: Context, table: Mapping_[str, type[D]], *, what: str
) -> D | None:
    """Return what a class of a table makes of its arguments; None, noted, where they fail."""
    found = _read_entry(node, context, what)
    if found is None:
        return None
    key, arguments = found
    name = key_text(key)
    if name not in table:
        context.problems.unknown(
            "unknown_word",
            f"there is no {what} `{name}` here",
            name,
            tuple(table),
            key.mark,
            listed="known are",
        )
        return None
    return build(table[name], arguments, context, what=name)


# -------------------------------------------------------------------------------------------------
# Layers.


def _layers(node: Node | None, context: Context, *, what: str) -> tuple[tuple[str, Layer], ...]:
    """Return the layers of a model by their labels, in order: they are called one after another."""
    if node is None:
        return ()
    node, context = context.resolve(node)
    if not isinstance(node, Sequence):
        values.wrong_type(node, context, what, "a list: `[up: {Linear: {in_features: 4, ...}}]`")
        return ()
    found: dict[str, Layer] = {}
    for item in node.items:
        if not isinstance(item, Mapping) or len(item.entries) != 1:
            values.wrong_type(item, context, "a layer", "`label: {Class: {arguments}}`")
            continue
        key, value = item.entries[0]
        label = key_text(key)
        if not label.isidentifier() or label in TAKEN:
            message = f"`{label}` cannot be the label of a layer"
            hint = "a label is a name, and none of loss, grad, init"
            context.problems.add("bad_name", message, key.mark, hint)
        elif label in LAYERS and not _is_layer(value):
            message = f"`{label}` is the class of a layer, where its label is wanted"
            hint = f"label it: `up: {source_text(item)}`"
            context.problems.add("bad_name", message, key.mark, hint)
        elif label in found:
            context.problems.add("duplicate_name", f"two layers are called `{label}`", key.mark)
        else:
            layer = _layer(value, context)
            if layer is not None:
                found[label] = layer
    return tuple(found.items())


def _is_layer(node: Node) -> bool:
    """Whether a node is `Class`, or `{Class: {arguments}}`."""
    if isinstance(node, Scalar):
        return node.text in LAYERS
    known = (*LAYERS, Residual.name, *STRANGERS)
    return isinstance(node, Mapping) and any(word in known for word in node.words())


def _layer(node: Node, context: Context) -> Layer | None:
    """Return one layer. `Residual` alone has layers itself: its input is added to their result."""
    found = _read_entry(node, context, "a layer")
    if found is None:
        return None
    key, arguments = found
    name = key_text(key)
    if name == Residual.name:
        inside = _layers(arguments, context, what="the layers of Residual")
        return Residual(layers=inside) if inside else None
    message = f"there is no layer `{name}` here"
    if name in STRANGERS:
        context.problems.add("unknown_layer", message, key.mark, STRANGERS[name])
        return None
    if name not in LAYERS:
        known = (*LAYERS, Residual.name)
        context.problems.unknown(
            "unknown_layer", message, name, known, key.mark, listed="layers are"
        )
        return None
    return build(LAYERS[name], arguments, context, what=name)


# -------------------------------------------------------------------------------------------------
# Strategies.


def strategy_lists(node: Node | None, context: Context) -> dict[str, Node]:
    """Return the entries of `strategies:`, still to be read where a model names them."""
    if node is None:
        return {}
    if not isinstance(node, Mapping):
        values.wrong_type(node, context, "`strategies`", "a mapping from names to lists")
        return {}
    return {key_text(key): value for key, value in node.entries}


def _parallel(
    node: Node | None, context: Context, named: Mapping_[str, Node]
) -> tuple[Strategy, ...]:
    """Return the strategies of a model, in the order in which they are applied.

    Which may follow which is a closed list (`TRAINEES`): two that torch composes and the reference
    does not lower are UNSUPPORTED, a single one that no model is trained by is INVALID.
    """
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return ()
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and isinstance(node.value, str):
        held = context.names.constants.get(node.value, node.value)
        if not isinstance(held, str) or held not in named:
            context.problems.unknown(
                "unknown_name",
                f"there is no strategy list `{held}`",
                str(held),
                tuple(named),
                node.mark,
                listed="`strategies:` has",
            )
            return ()
        return _parallel(named[held], context, {})
    if not isinstance(node, Sequence):
        values.wrong_type(node, context, "`parallel`", "a list of strategies, or the name of one")
        return ()
    found = [_strategy(item, context) for item in node.items]
    made = tuple(each for each in found if each is not None)
    kinds = tuple(each.name for each in made)
    if "parallelize_module" in kinds and any(each.reduce_dtype != "float32" for each in made):
        message = "mixed precision of layers that are cut is not lowered here"
        raise LeftOutError(message)
    if len(made) == len(found) > 1 and kinds not in TRAINEES and kinds[0] not in OVER_OTHERS:
        message = f"models are not trained by {', then '.join(kinds)} here"
        raise LeftOutError(message)
    if len(made) == len(found) and kinds not in TRAINEES:
        context.problems.add(
            "unsupported_strategy",
            f"no model is trained by {', then '.join(kinds)} here",
            node.mark,
            f"there are {'; '.join(', then '.join(each) for each in TRAINEES if each)}",
        )
        return ()
    return made


#: strategies that only follow another
OVER_OTHERS = ("ZeroRedundancyOptimizer",)


def _strategy(node: Node, context: Context) -> Strategy | None:
    named = _read_entry(node, context, "a strategy")
    if named is not None and (name := key_text(named[0])) in LEFT_OUT:
        message = f"{name}: {LEFT_OUT[name]}"
        raise LeftOutError(message)
    return _read_from_table(node, context, STRATEGIES, what="strategy")


# -------------------------------------------------------------------------------------------------
# Models.


def models(node: Node | None, context: Context, named: Mapping_[str, Node]) -> dict[str, Model]:
    """Return the entries of `models:`, by their names."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return {}
    if not isinstance(node, Mapping):
        values.wrong_type(node, context, "`models`", "a mapping from names to models")
        return {}
    found = {}
    for key, value in node.entries:
        model = _model(key_text(key), key, value, context, named)
        if model is not None:
            found[model.name] = model
    return found


def _model(
    name: str, key: Node, node: Node, context: Context, named: Mapping_[str, Node]
) -> Model | None:
    """Return a model; None where it cannot be made of what is stated.

    What torch knows and the reference does not (`lacking`) is kept with the model, and reported
    when the case is run: a file for one machine stays valid on all.
    """
    if not isinstance(node, Mapping):
        values.wrong_type(node, context, f"the model `{name}`", "a mapping with `layers`")
        return None
    _police_keys(node, MODEL_KEYS, f"the model `{name}`", context)
    layers = _layers(node.get("layers"), context, what="`layers`")
    loss = _loss(node.get("loss"), context)
    oracle = node.get("oracle")
    if oracle is not None and isinstance(oracle, Mapping):
        _police_keys(oracle, ORACLE_KEYS, "`oracle`", context)
    under = oracle if isinstance(oracle, Mapping) else Mapping(node.mark, [])
    unmodelled = None
    try:
        optimizers = _optimizers(node.get("optimizer"), context)
        common = next(iter(Counter(optimizers).most_common(1)), None)
        optimizer = _optimizer(node.get("optimizer"), context) if common is None else common[0]
        oracle_optimizer = _optimizer(under.get("optimizer"), context)
    except LeftOutError as error:
        optimizers, optimizer, oracle_optimizer, unmodelled = (), SGD(), None, str(error)
    if not layers or loss is None or optimizer is None:
        return None
    network = Sequential(layers=layers)
    if not _is_small(name, network, key, context):
        return None
    lacks = (layer.lacking for _, layer in network.leaves() if layer.lacking)
    lacking = unmodelled or next(lacks, None)
    try:
        parallel = _parallel(node.get("parallel"), context, named)
    except LeftOutError as error:
        parallel, lacking = (), str(error)
    if network.buffers() and any(each.name not in BUFFERED for each in parallel):
        parallel, lacking = (), UNBUFFERED
    try:
        for strategy in parallel:
            _police_strategy(strategy, network, node.get("parallel") or key, context)
    except LeftOutError as error:
        parallel, lacking = (), str(error)
    return Model(
        name=name,
        network=network,
        loss=loss,
        optimizer=optimizer,
        optimizers=tuple(each for each in optimizers if each is not None),
        parallel=parallel,
        lacking=lacking,
        init=_init(node.get("init"), context, network),
        oracle_loss=_loss(under.get("loss"), context),
        oracle_optimizer=oracle_optimizer,
        mark=key.mark,
    )


#: strategies of models whose layers have buffers, and why there are not more
BUFFERED = ("DistributedDataParallel", "ZeroRedundancyOptimizer")
UNBUFFERED = (
    "layers with buffers: a model that has them is trained by DistributedDataParallel, or alone"
)
#: why a model with buffers is not saved here
UNSAVED = (
    "save and load of layers with buffers: they differ from rank to rank, and which rank's a"
    " checkpoint has depends on how torch shares out the writing"
)


def note_checkpoints(made: dict[str, Model], steps: tuple[Step, ...]) -> dict[str, Model]:
    """Return the models; one with buffers that a step saves or loads lacks what that needs."""
    saving = [
        step
        for step in steps_of(steps)
        if isinstance(step.operation, Compound) and step.operation.checkpoints
    ]
    asked = {getattr(model_in(step.arguments), "name", None) for step in saving}
    found = {}
    for name, model in made.items():
        lacks = name in asked and model.network.buffers()
        found[name] = replace(model, lacking=model.lacking or UNSAVED) if lacks else model
    return found


def police_joins(made: Mapping_[str, Model], steps: tuple[Step, ...], context: Context) -> None:
    """Note a `join` of a model that is not trained within a context to leave.

    `torch.distributed.algorithms.join.Join` lets a rank without further batches answer the
    collectives of the others. Without it the others wait for that rank.
    """
    for step in steps_of(steps):
        if not isinstance(step.operation, Join):
            continue
        model = made.get(getattr(model_in(step.arguments), "name", ""))
        if model is None or model.lacking is not None or context.problems:
            continue
        strategy = model.strategy(DistributedDataParallel)
        if strategy is None or strategy.join is None:
            context.problems.add(
                "bad_value",
                f"`{model.name}` is not trained within `join`, so that no rank can leave it",
                step.mark,
                "say so in its strategy: `DistributedDataParallel: {join: {}}`",
            )


def _police_keys(node: Mapping, known: tuple[str, ...], what: str, context: Context) -> None:
    for key, _ in node.entries:
        if key_text(key) not in known:
            context.problems.unknown(
                "unknown_key",
                f"unknown key `{key_text(key)}` of {what}",
                key_text(key),
                known,
                key.mark,
                listed="its keys are",
            )


def _police_strategy(strategy: Strategy, network: Sequential, node: Node, context: Context) -> None:
    """Note a strategy that names a layer or a group that is not there, or that does not fit."""
    mismatch = strategy.find_mismatch(network)
    if mismatch is not None:
        context.problems.add("bad_value", f"{strategy.name}: {mismatch}", node.mark)
    dims = {name for name in context.names.groups if "." in name}
    known = {*context.names.groups, "world", *(name.partition(".")[0] for name in dims)}
    for group in strategy.groups:
        if group not in known:
            context.problems.unknown(
                "unknown_group",
                f"{strategy.name} works on `{group}`, and there is no such group",
                group,
                tuple(sorted(known)),
                node.mark,
                listed="known are",
            )


def _is_small(name: str, network: Sequential, key: Node, context: Context) -> bool:
    """Whether a model is small enough: its elements are counted from shapes, before any is made."""
    elements = sum(prod(shape) for shape in network.shapes().values())
    if elements <= context.limits.max_elements and len(network.layers) <= MOST_LAYERS:
        return True
    message = f"the model `{name}` has {len(network.layers)} layers with {elements} elements"
    hint = f"at most {MOST_LAYERS} layers, and as many elements as `--limit elements=N` allows"
    context.problems.add("model_too_large", message, key.mark, hint)
    return False


def _loss(node: Node | None, context: Context) -> Loss | None:
    if node is None:
        return None
    found = _read_from_table(node, context, LOSSES, what="loss")
    if found is not None and found.reduction not in REDUCTIONS:
        message = f"a loss is reduced by {' or '.join(REDUCTIONS)}, not `{found.reduction}`"
        context.problems.add("unknown_word", message, node.mark)
        return None
    return found


def _optimizer(node: Node | None, context: Context) -> Optimizer | None:
    return None if node is None else _read_from_table(node, context, OPTIMIZERS, what="optimizer")


#: arguments of an optimizer that may be another on each rank: a rank's own mistake
BY_RANK = frozenset({"lr", "weight_decay", "momentum"})
_RANK = re.compile(r"\brank\b")


def _optimizers(node: Node | None, context: Context) -> tuple[Optimizer | None, ...]:
    """Return the optimizer of each rank where an argument reads `rank`; nothing where none does.

    `lr: "0.1 * (rank + 1)"` is a rank's own mistake: with DDP the gradients are equal, the steps
    are not, and the replicas drift apart. None is one that cannot be made; the problem is noted.
    """
    if not isinstance(node, Mapping) or len(node.entries) != 1:
        return ()
    key, given = node.entries[0]
    if not isinstance(given, Mapping) or not any(map(_reads_rank, given.entries)):
        return ()
    ranks = range(context.world["world_size"])
    stated = [_narrow_to_rank(given, rank, context) for rank in ranks]
    if None in stated:
        return (None,)
    mine = (each for each in stated if each is not None)
    return tuple(_optimizer(Mapping(node.mark, [(key, each)]), context) for each in mine)


def _reads_rank(entry: tuple[Node, Node]) -> bool:
    key, value = entry
    text = value.value if isinstance(value, Scalar) else None
    return key_text(key) in BY_RANK and isinstance(text, str) and bool(_RANK.search(text))


def _narrow_to_rank(given: Mapping, rank: int, context: Context) -> Mapping | None:
    """Return the arguments of an optimizer as one rank has them; None where they have no value."""
    entries: list[tuple[Node, Node]] = []
    for key, value in given.entries:
        if _reads_rank((key, value)):
            there = {**context.world, "rank": rank}
            what = f"`{key_text(key)}`"
            number = values.constant_value(value, context, what=what, extra=there)
            if number is None:
                return None
            entries.append((key, Scalar(value.mark, number, str(number))))
        else:
            entries.append((key, value))
    return Mapping(given.mark, entries)


def _init(node: Node | None, context: Context, network: Sequential) -> dict[str, Form]:
    """Return the initial values of parameters, by their names: `up.weight: "ones([8, 4])"`."""
    if node is None:
        return {}
    if not isinstance(node, Mapping):
        values.wrong_type(node, context, "`init`", "a mapping: `{up.weight: ones([8, 4])}`")
        return {}
    known = tuple(network.shapes())
    found = {}
    for key, value in node.entries:
        if key_text(key) not in known:
            context.problems.unknown(
                "unknown_name",
                f"the model has no parameter `{key_text(key)}`",
                key_text(key),
                known,
                key.mark,
                listed="its parameters are",
            )
            continue
        found[key_text(key)] = values.value(value, context)
    return found
