"""The events that a rank writes of its values: one class a kind, one field a number of its line.

The witness makes an event and hands it to `put`; the line is its kind and its fields in their
order (:meth:`ValueEvent.as_line`). The reader makes the same event of the line (`format.record`),
so that the place of a field in a line is written here alone. They are dataclasses, and no
Structs as what is read elsewhere is, as the user's environment may have no msgspec.

Words that many events share:

- `turn` is the number of the training step, from 0: a forward pass that follows a step of an
  optimizer begins the next one;
- `place` is the number of a place in the user's files (`ValueRecord.places` has its frames), -1
  where none is known;
- `parameter` and `parameters` are numbers of parameters or buffers on this rank
  (`ValueRecord.parameters`);
- `ranks` are ranks of the world, in the order of their group;
- a hash is that of :mod:`record.values.digest`: equal where the bytes of two tensors are.

A new kind of event is a new class here, and nothing else. A new field comes last and has a
default, so that lines without it are read, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, ClassVar

#: the version of the files
VERSION = 1


@dataclass
class ValueEvent:
    """What one line says; `at` is the number of the line in its file, from 0.

    The writer leaves `at` alone: `BackwardPass(turn=0, place=4)` is the line `["bw", 0, 4, true]`.
    """

    #: the first word of the line
    KIND: ClassVar[str]
    at: int = field(default=-1, init=False)

    def as_line(self) -> tuple[Any, ...]:
        """Return the line: the kind, and the fields in their order."""
        line: tuple[Any, ...] = _LINES[self.KIND](self)
        return line


# ------------------------------------------------------------------ the witness itself


@dataclass
class WitnessFailure(ValueEvent):
    """The witness has failed: the user's script goes on, and something is not seen.

    Written where the witness catches an exception of its own: `error` is its type and message,
    `where` the function, the file and the line of ours that raised it.
    """

    KIND = "failure"
    error: str
    where: str


# ------------------------------------------------------------------ data


@dataclass
class ModelInput(ValueEvent):
    """The model is called with data of the script: the rows that a step trains on.

    Written where a module is called from outside of any other, in training with gradients on, if
    no loader has given a batch since the last step (in a comparison: always). Tensors that a graph
    has computed, or that another stage has sent, are no data.
    """

    KIND = "in"
    turn: int
    #: the hash of each row of all tensors together, at most `witness.MOST_ROWS`
    rows: tuple[str, ...]
    #: the number of the module that is called, among those called from outside
    root: int
    place: int
    #: the shape of a row (without the first dimension), of each tensor
    shapes: tuple[tuple[int, ...], ...]


@dataclass
class LoadedBatch(ValueEvent):
    """A loader, or a line that names its batch (`torch_scenarios.batch`), has given a batch.

    Batch `number` of epoch `epoch` of loader `loader`. `rows` has the hash of each row, `indices`
    its number in the dataset where the loader's sampler says it. Whether the batch is trained on
    is known later: the reader sets `trained` where a backward pass uses it.
    """

    KIND = "b"
    loader: int
    epoch: int
    number: int
    place: int
    rows: tuple[str, ...]
    indices: tuple[int, ...] | None
    trained: bool = field(default=False, init=False)


@dataclass
class DealtBatch(ValueEvent):
    """A further run has met a batch of its plan: rows of another rank take the place of its own.

    Written by `record --redeal` where a loader, or a line of the script, gives a batch: batch
    `number` of epoch `epoch` of loader `loader`.
    """

    KIND = "dealt"
    loader: int
    epoch: int
    number: int
    #: `indices` or `tensors`: what was replaced; `unlike`: nothing, as the sampler has drawn other
    #: rows than in the first run
    how: str


@dataclass
class LoaderDraw(ValueEvent):
    """Random numbers were drawn while a loader made a batch: an augmentation of its rows.

    Written in the first turns, before the batch itself. `states` are the hashes of the generators
    that were drawn from, as they were before the batch.
    """

    KIND = "augmented"
    turn: int
    place: int
    states: tuple[str, ...]


# ------------------------------------------------------------------ random numbers


@dataclass
class RandomDraw(ValueEvent):
    """Random numbers were drawn between a batch, or the model's call, and the backward pass.

    Written at the backward pass, in whose line `place` is. `before` and `after` are the hashes of
    the generators that were drawn from: torch's, CUDA's, `random`'s, NumPy's, the script's own.
    """

    KIND = "drawn"
    turn: int
    place: int
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass
class NoiseDraw(ValueEvent):
    """`torch.randn`, `randn_like` or `normal` is called in a training step: noise of the script.

    Written in the first turns, outside of backward passes and optimizers. `noise` is the hash of
    the tensor that was drawn, `shape` its shape.
    """

    KIND = "noise"
    turn: int
    place: int
    noise: str
    shape: tuple[int, ...]


@dataclass
class DropoutCall(ValueEvent):
    """A call drops elements at random: `dropout`, or an attention with `dropout_p`.

    Written before the call, with gradients on. `state` is the hash of the generator that it draws
    from, `input` that of the tensor whose elements are dropped, `shape` the shape of this tensor.
    """

    KIND = "rand"
    turn: int
    place: int
    state: str
    input: str
    shape: tuple[int, ...]


# ------------------------------------------------------------------ modules


@dataclass
class EmbeddingWeight(ValueEvent):
    """A parameter is the weight of an `nn.Embedding`. Written behind the parameter's own line."""

    KIND = "embedding"
    parameter: int


@dataclass
class ExpertModule(ValueEvent):
    """A module is called between two exchanges of activations: an expert, on rows of other ranks.

    Written at its first such call. `parameters` are its own, without those of modules within.
    """

    KIND = "expert"
    parameters: tuple[int, ...]


@dataclass
class GatheredModule(ValueEvent):
    """A module works on gathered activations whose products are not summed yet.

    As the layers of tensor parallelism that split a sequence: this rank has a part of their
    weights. Written at its first such call; `parameters` as of :class:`ExpertModule`.
    """

    KIND = "gathered_in"
    parameters: tuple[int, ...]


@dataclass
class ModuleOutput(ValueEvent):
    """A module has given back a tensor that is kept in the file of values: `out/CALL` there.

    Written by a comparison in its first steps, in training with gradients on. `call` is the name
    of the module, `#` and the number of its call since the last step; `module_type` its class.
    """

    KIND = "out"
    turn: int
    call: str
    module_type: str
    place: int

    @property
    def module(self) -> str:
        """The name of the module, as `named_modules` has it; empty for the model itself."""
        return self.call.partition("#")[0]


@dataclass
class FirstNan(ValueEvent):
    """The first NaN or infinity of this rank, or the first behind a `NanLeftOut`.

    `what` is `output` (of a module), `loss` or `gradient`; `name` the class of the module, nothing
    for a loss, the name of the parameter. With a GradScaler only outputs are looked at.
    """

    KIND = "nan"
    turn: int
    what: str
    name: str
    place: int


@dataclass
class NanLeftOut(ValueEvent):
    """An optimizer steps behind a `FirstNan`, and all gradients are numbers: none has used it."""

    KIND = "nan_left_out"
    turn: int
    place: int


@dataclass
class NumberRead(ValueEvent):
    """The script reads a number out of a tensor (`item`, `float`): what it prints or decides by.

    Written by a comparison for the first `witness.MOST_NUMBERS` of them.
    """

    KIND = "number"
    turn: int
    place: int
    number: float


# ------------------------------------------------------------------ wrappers


@dataclass
class DataParallelWrapper(ValueEvent):
    """The script wraps a model in DistributedDataParallel. Written once it is made.

    It has sent the weights of its first rank by then: `changed` are the parameters and buffers
    that are others since they were hashed last, with their new hash.
    """

    KIND = "ddp"
    #: the number of the wrapper among the modules that are called from outside
    root: int
    ranks: tuple[int, ...]
    place: int
    #: whether `broadcast_buffers` is on
    keeps_buffers: bool
    #: what it reduces the gradients of; `parameters_to_ignore` are not among them
    parameters: tuple[int, ...]
    buffers: tuple[int, ...]
    changed: tuple[tuple[int, str], ...]


@dataclass
class CommunicationHook(ValueEvent):
    """The script gives DistributedDataParallel a hook that reduces its gradients.

    One event for the hook and each function that it wraps or calls; `name` is its qualified name.
    `Join` is the name where ranks join with uneven inputs.
    """

    KIND = "hook"
    name: str


@dataclass
class UnitGather(ValueEvent):
    """FSDP2 gathers the parameters of one unit (`fully_shard`). Written before the all_gather.

    `names` are those of its parameters, empty ones where FSDP2 knows none.
    """

    KIND = "unit"
    turn: int
    ranks: tuple[int, ...]
    names: tuple[str, ...]
    place: int


@dataclass
class FlatWrapper(ValueEvent):
    """The script wraps a module in FullyShardedDataParallel, which splits its flat parameters.

    Over `ranks`. Written once it is made; nothing is written for `NO_SHARD`.
    """

    KIND = "sharded"
    ranks: tuple[int, ...]
    place: int


@dataclass
class LateParameter(ValueEvent):
    """A parameter came into a model after something took its list of parameters.

    Written where that shows: at a call of the model, or of DistributedDataParallel's forward.
    `owner` is whose list it is: `optimizer`, `DistributedDataParallel` or `FSDP`; `ranks` are
    those that FSDP shards over, none for the others.
    """

    KIND = "late"
    parameter: int
    owner: str
    place: int
    ranks: tuple[int, ...] = ()


# ------------------------------------------------------------------ backward passes


@dataclass
class BackwardPass(ValueEvent):
    """A backward pass begins, at `place`.

    `is_loss` is whether each of its roots is one number: a stage of a pipeline begins with a
    gradient that another rank has sent.
    """

    KIND = "bw"
    turn: int
    place: int
    is_loss: bool = True


@dataclass
class LossValues(ValueEvent):
    """The losses that a backward pass begins with: those of its roots that are one number.

    Written by a comparison in its first steps.
    """

    KIND = "loss"
    turn: int
    values: tuple[float, ...]


@dataclass
class BackwardResult(ValueEvent):
    """A backward pass has ended that adds to gradients of parameters.

    `gradients` is one hash of all gradients that it left, but of shards; `place` where it began.
    """

    KIND = "left"
    turn: int
    place: int
    gradients: str


@dataclass
class StepClosure(ValueEvent):
    """A backward pass begins within the step of an optimizer: a closure, as L-BFGS calls one."""

    KIND = "closure"
    turn: int
    place: int


@dataclass
class ConstantTerm(ValueEvent):
    """A call has gathered a tensor with a graph, and the loss has a term without a graph.

    Written at the backward pass; the term may be computed of what was gathered. `place` is that
    of the call, `size` and `shape` those of the tensor that it took.
    """

    KIND = "gathered"
    place: int
    size: int
    shape: tuple[int, ...]


@dataclass
class CarriedReduction(ValueEvent):
    """A backward pass has added to gradients that a call reduced, and a call takes them once more.

    `place` is of the backward pass. `parameters` are those whose gradients waited. What the first
    call left of them was multiplied by `factor` up to the second; where that is made within the
    backward pass, up to its beginning (`within`).
    """

    KIND = "carried"
    turn: int
    place: int
    factor: float
    parameters: tuple[int, ...]
    within: bool = False


@dataclass
class CallMistake(ValueEvent):
    """A mistake that this process alone proves of a call: `code` names the finding.

    `place` is that of the call. What `about` has depends on the code:

    - `in_place_of_strided`: `shape`, that of the tensor; `trained` where what is trained depends on
      it, and its elements come to other places;
    - `result_dropped`: `argument`, the text of the temporary, or `parts`, how often a list has one
      tensor;
    - `no_gradient_through`: `how` the loss depends on the call, or `function`, the script's own
      whose backward calls nothing; `size` and `shape` of its tensor; `arrives` where parts are
      joined or summed: the norm and the sum of the gradient there;
    - `touched_in_flight`: `how` (`read`, `written`, or `left`: nothing ever waits), `by` what and
      `at` which place it is read, `shape`; how many `steps` have left it, from which `turn`.
    """

    KIND = "x"
    code: str
    place: int
    about: dict[str, Any]


# ------------------------------------------------------------------ between backward and the step


@dataclass
class NormClip(ValueEvent):
    """`clip_grad_norm_` has scaled gradients: `norm` is what they had before, `most` the limit.

    `is_global` is whether DTensors were clipped: their norm is that of all ranks, and `norm` is 0.
    """

    KIND = "clip"
    turn: int
    place: int
    norm: float
    most: float
    is_global: bool
    parameters: tuple[int, ...]


@dataclass
class ValueClip(ValueEvent):
    """`clip_grad_value_` limits each element of gradients to `most`. Written before it does."""

    KIND = "limit"
    turn: int
    place: int
    most: float


@dataclass
class LossScale(ValueEvent):
    """A GradScaler has been asked for a step of the optimizer: its `scale`.

    `skips` is 1 where it has left the step out, as some gradient is no number, and 0 else.
    """

    KIND = "scale"
    turn: int
    place: int
    scale: float
    skips: int


@dataclass
class GradientChange(ValueEvent):
    """What has become of the gradients that the last backward pass left, at a step.

    Written before the line of the step, where a backward pass came before it. `place` is that of
    the backward pass. `left` has each parameter whose gradient is another one at the step, with
    the hash of what the pass left (none: it left no gradient, or one that is not hashed). `factor`
    is the one number by which all of these were multiplied, none where there is none.
    """

    KIND = "kept"
    place: int
    left: tuple[tuple[int, str | None], ...]
    factor: float | None


@dataclass
class ShardChange(ValueEvent):
    """By which one number all gradients that are shards were multiplied since the backward pass.

    Written as :class:`GradientChange`, where there are several shards and such a number.
    """

    KIND = "parts"
    place: int
    factor: float


@dataclass
class ReducedChange(ValueEvent):
    """By which one number gradients were multiplied since a call behind the backward pass.

    Of those that a collective has reduced there, and that this rank steps: `count` of them.
    Written as :class:`GradientChange`, where there is such a number.
    """

    KIND = "reduced"
    place: int
    factor: float
    count: int


# ------------------------------------------------------------------ optimizers and weights


@dataclass
class OptimizerSettings(ValueEvent):
    """What an optimizer is set to, at its first step and where that has changed.

    `optimizer` is its number on this rank, `type` its class; `groups` has the settings of each
    group of parameters that are numbers, words or flags, but no learning rates.
    """

    KIND = "set"
    optimizer: int
    type: str
    groups: tuple[dict[str, Any], ...]


@dataclass
class UnreducedGradients(ValueEvent):
    """An optimizer steps while FSDP2 holds whole gradients that it has not reduced: of `names`."""

    KIND = "unreduced"
    turn: int
    place: int
    names: tuple[str, ...]


@dataclass
class WeightElements(ValueEvent):
    """Some elements of weights that something other than an optimizer has written.

    Written at a call of the model or a step, behind a backward pass, in the first turns. Each of
    `elements` is the number of a parameter, and then elements from all over it.
    """

    KIND = "elements"
    turn: int
    elements: tuple[tuple[int | float, ...], ...]


@dataclass
class ModuleLoad(ValueEvent):
    """`load_state_dict` of a module has returned: it has other weights now."""

    KIND = "load"
    turn: int
    place: int


@dataclass
class OptimizerLoad(ValueEvent):
    """`load_state_dict` of an optimizer has returned."""

    KIND = "reload"
    turn: int
    place: int


@dataclass
class LoadedState(ValueEvent):
    """What an optimizer has loaded, at its next step: weights may be loaded behind it.

    `turn` and `place` are those of the load. `states` has, for each parameter: its group and place
    in that (`0.3`), the hash of the parameter, and that of its first state of the same shape that
    is not constant, such as a momentum.
    """

    KIND = "loaded_state"
    turn: int
    place: int
    states: tuple[tuple[str, str, str], ...]


@dataclass
class CheckpointSave(ValueEvent):
    """`torch.save` has returned: a checkpoint can be resumed from `turn`."""

    KIND = "save"
    turn: int
    place: int


#: events of what reduces gradients
WRAPPERS: tuple[type[DataParallelWrapper | UnitGather | FlatWrapper], ...] = (
    DataParallelWrapper,
    UnitGather,
    FlatWrapper,
)
#: the first word of a line -> the class of its event
EVENTS: dict[str, type[ValueEvent]] = {each.KIND: each for each in ValueEvent.__subclasses__()}
#: the same -> the names of its fields, in the order of the line
FIELDS = {
    kind: tuple(each.name for each in fields(event) if each.init) for kind, event in EVENTS.items()
}
_LINES = {kind: attrgetter("KIND", *names) for kind, names in FIELDS.items()}
