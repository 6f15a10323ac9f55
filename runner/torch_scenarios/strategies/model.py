"""A model that is trained, its strategies, and one step of training, as a scenario states them."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import Mark, Marked
from torch_scenarios.expressions.values import Form
from torch_scenarios.modules import Sequential
from torch_scenarios.modules.base import Array, Declared
from torch_scenarios.modules.loss import Loss
from torch_scenarios.modules.optimizer import Optimizer
from torch_scenarios.modules.sequential import LowPrecision
from torch_scenarios.operations.base import Group, Part
from torch_scenarios.operations.placement import LAYOUTS, chunks
from torch_scenarios.strategies.sampler import indices

Arrays: TypeAlias = dict[str, Array]
Calls: TypeAlias = Generator[Part, None, None]


class Strategy(Declared, frozen=True):
    """One entry of `parallel:`, by torch's name and arguments, which are its fields.

    Each is stated twice, on purpose. `apply` lets torch's own class have the model, in a worker.
    What torch then sends and computes is lowered by hand to the operations of the language, in a
    :class:`torch_scenarios.strategies.trainee.Trainee`, and the analysis takes that. A run compares
    the two call by call, so that a release of torch that sends something else is noticed.

        parallel: [{DistributedDataParallel: {bucket_cap_mb: 1}}]
    """

    name: ClassVar[str]
    #: modules of torch's that have to be imported for it
    imports: ClassVar[tuple[str, ...]] = ()
    #: arguments of torch's, or values (`schedule=ScheduleDualPipeV`), that are left out -> why
    left_out: ClassVar[Mapping[str, str]] = {}

    @property
    def broken(self) -> Mapping[str, str]:
        """Versions of torch in which it cannot be run, with the reason."""
        return {}

    @property
    def compute_dtype(self) -> str:
        """The dtype of forward and backward."""
        return "float32"

    @property
    def reduce_dtype(self) -> str:
        """The dtype in which gradients travel."""
        return self.compute_dtype

    @property
    @abstractmethod
    def where(self) -> str | None:
        """The group, or the mesh, over which it works; None is the world."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that it names."""
        return () if self.where is None else (self.where,)

    @abstractmethod
    def apply(self, real: Any) -> None:
        """Let torch apply it to a model that was built, in the worker."""

    def distributes(self, parameter: str) -> bool:
        """Whether torch holds that parameter as a distributed tensor."""
        return False

    def find_mismatch(self, network: Sequential) -> str | None:
        """Return why it does not go with the layers of a model, or None.

        Raises LeftOutError where torch lets it go with them, and no model here does.
        """
        return None


class LeftOutError(Exception):
    """What torch has, or has elsewhere, and no model here: the reason.

    It is no mistake of the author: the case is UNSUPPORTED, and the words say what is left out.
    """


class Model(Marked, frozen=True, kw_only=True):
    """One entry of `models:`. `init` has the forms of those weights that are stated.

    >>> from torch_scenarios.modules.linear import Linear
    >>> from torch_scenarios.modules.loss import MseLoss
    >>> from torch_scenarios.modules.optimizer import SGD
    >>> layers = (("up", Linear(in_features=2, out_features=1)),)
    >>> net = Model(name="net", network=Sequential(layers=layers), loss=MseLoss(), optimizer=SGD())
    >>> net.parameters, net.compute_dtype
    (('up.weight', 'up.bias'), 'float32')
    >>> net.values[:2]
    ('net.up.weight', 'net.up.bias')

    Loss and optimizer are twice in a model: what the ranks do, and what one process would do in
    their place (`oracle_loss`, `oracle_optimizer`). A learning rate that is scaled by the number of
    ranks is right for a gradient that is a mean, and the author says so by the second.
    """

    apart = ("mark", "moments")

    name: str
    network: Sequential
    loss: Loss
    optimizer: Optimizer
    parallel: tuple[Strategy, ...] = ()
    init: Mapping[str, Form] = field(default_factory=dict)
    #: what one process uses in their place
    oracle_loss: Loss | None = None
    oracle_optimizer: Optimizer | None = None
    #: the optimizer of each rank, where an argument depends on the rank; one process has the most
    #: common one
    optimizers: tuple[Optimizer, ...] = ()
    #: why it is not trained here although torch may know it, or None
    lacking: str | None = None
    #: what one process has, by the weights that it began with: ranks share it
    moments: dict[Any, Any] = field(default_factory=dict)

    @property
    def where(self) -> str | None:
        """The group, or the mesh, whose members train it; None is the world."""
        return self.parallel[0].where if self.parallel else None

    def of_rank(self, rank: int) -> Model:
        """Return the model with the optimizer that a rank has."""
        return replace(self, optimizer=self.optimizers[rank]) if self.optimizers else self

    def as_trained(self) -> Model:
        """Return the model without what one process uses in the place of its loss and optimizer."""
        return replace(self, oracle_loss=None, oracle_optimizer=None, moments={})

    @property
    def coarse(self) -> Sequential:
        """The layers in the dtype in which ranks compute."""
        if self.compute_dtype == "float32":
            return self.network
        return LowPrecision(layers=self.network.layers, dtype=self.compute_dtype)

    @property
    def compute_dtype(self) -> str:
        """The dtype in which ranks go forward and backward."""
        coarse = (each.compute_dtype for each in self.parallel if each.compute_dtype != "float32")
        return next(coarse, "float32")

    @property
    def reduce_dtype(self) -> str:
        """The coarsest dtype in which gradients travel."""
        return next(
            (each.reduce_dtype for each in self.parallel if each.reduce_dtype != "float32"),
            "float32",
        )

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules of torch's that its strategies need."""
        # the first step of any optimizer imports torch._dynamo, which takes seconds
        own = tuple(module for each in self.parallel for module in each.imports)
        return ("torch._dynamo", *own)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters: `up.weight`."""
        return tuple(self.network.shapes())

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of what a rank holds before it trains: parameters, and buffers of layers."""
        return (*self.parameters, *self.network.buffers())

    @property
    def values(self) -> tuple[str, ...]:
        """The names that a scenario may ask for, as it writes them: `net.up.weight.grad`."""
        grads = [f"{each}.grad" for each in self.parameters]
        own = (*self.value_names, *grads, "loss", "memory", LAYOUTS)
        return tuple(f"{self.name}.{each}" for each in own)

    def is_distributed(self, parameter: str) -> bool:
        """Whether a parameter of its layers, by its name, is a distributed tensor."""
        known = parameter in self.parameters
        return known and any(each.distributes(parameter) for each in self.parallel)

    def strategy(self, kind: type[Any]) -> Any:
        """Return the entry of `parallel:` of that kind, or None."""
        return next((each for each in self.parallel if isinstance(each, kind)), None)


class Rows(Struct, frozen=True, kw_only=True):
    """Which rows a rank takes of what it holds.

    Those that `torch.chunk` gives the member of a group; `sizes` cuts unevenly; a `sampler` picks
    by index (:mod:`torch_scenarios.strategies.sampler`). `dim` is the dimension that is cut: 1 is
    that of the positions of a sequence.

    >>> even, uneven = Rows(group="world"), Rows(group="world", sizes=(3, 1))
    >>> [even.rows(4, 2, at) for at in range(2)], [uneven.rows(4, 2, at) for at in range(2)]
    ([slice(0, 2, None), slice(2, 4, None)], [slice(0, 3, None), slice(3, 4, None)])

    With 3 and 1 rows, the mean of the two ranks' means is not the mean of the four rows: the one
    row counts three times as much.
    """

    group: str
    dim: int = 0
    sizes: tuple[int, ...] | None = None
    sampler: Mapping[str, Any] | None = None

    @staticmethod
    def of(given: Mapping[str, Any]) -> Rows:
        """Return what `batch:` says."""
        rest = dict(given)
        group, sizes = rest.pop("group") or "world", rest.pop("sizes", None)
        dim = rest.pop("dim", 0)
        sampler = rest if rest.pop("DistributedSampler", False) else None
        cut = None if sizes is None else tuple(sizes)
        return Rows(group=group, dim=dim, sizes=cut, sampler=sampler)

    def rows(self, count: int, size: int, at: int) -> Any:
        """Return an index for the rows of member `at` of `size`."""
        if self.sampler is not None:
            return indices(count, **{"num_replicas": size, "rank": at, **self.sampler})
        sizes = self.sizes if self.sizes is not None else chunks(count, size)
        start = sum(sizes[:at])
        return slice(start, start + sizes[at] if at < len(sizes) else start)


class Clip(Struct, frozen=True, kw_only=True):
    """To which norm gradients are clipped: `most` by rank. `local`: by the norm of a rank alone.

    >>> Clip(most=(1.0, 1.0, 2.0)).of_one
    1.0

    Each rank of FSDP has a part of each gradient. The norm of all is the root of the sum of squares
    over the ranks; a rank that clips by its own part's norm scales by another factor than its
    peers.
    """

    most: tuple[float, ...]
    local: bool = False

    @property
    def of_one(self) -> float:
        """What one process clips to: what most ranks do."""
        ((most, _),) = Counter(self.most).most_common(1)
        return most


class TrainStep(Struct, frozen=True, kw_only=True):
    """One `train`: the arguments of the step, evaluated on one rank.

    >>> import numpy as np
    >>> order = TrainStep(input=np.arange(4.0).reshape(4, 1), target=np.zeros(4), sync=False)
    >>> order.index(lambda name: None, 0), order.zero_grad
    (Ellipsis, True)

    A step with `sync: false` is one within `no_sync()`: gradients are summed on the rank, and
    nothing is sent. `step: false` leaves the optimizer out, as a loop over microbatches does.
    """

    input: Any
    target: Any
    batch: Rows | None = None
    zero_grad: bool = True
    step: bool = True
    sync: bool = True
    skip: tuple[str, ...] = ()
    clip: Clip | None = None
    #: what the gradients of one process are multiplied by: the part of the ranks that have rows
    weight: float = 1.0

    @staticmethod
    def of(given: Mapping[str, Any]) -> TrainStep:
        """Return what the arguments of a step ask for."""
        batch = given["batch"]
        return TrainStep(
            input=given["input"],
            target=given["target"],
            batch=None if batch is None else Rows.of(batch),
            zero_grad=given["zero_grad"],
            step=given["step"],
            sync=given["sync"],
            skip=tuple(given["skip"] or ()),
            clip=None if given["clip_grad_norm_"] is None else Clip(**given["clip_grad_norm_"]),
        )

    def local(self, group: Callable[[str], Group], rank: int) -> tuple[Any, Any]:
        """Return the rows of input and target that a rank takes."""
        index = self.index(group, rank)
        return self.input[index], self.target[index]

    def index(self, group: Callable[[str], Group], rank: int) -> Any:
        """Return where they are. Raises DataError for a sampler that has none for the rank."""
        if self.batch is None:
            return ...
        members = group(self.batch.group)
        dim, at = self.batch.dim % self.input.ndim, members.group_rank(rank)
        rows = self.batch.rows(self.input.shape[dim], members.size, at)
        return (*(slice(None) for _ in range(dim)), rows)


def weights(
    model: Model, caller: Any, rank: int, drawn: Mapping[str, Array] | None = None
) -> Arrays:
    """Return the whole weights with which a rank begins: those stated, else small random numbers.

    The n-th parameter of a model is `random(shape, n) / 2`, from 1, on every rank; `drawn` has
    those of another one.
    """
    found: Arrays = {}
    random = caller.arrays.functions()["random()"]
    own, caller.scope["rank"], caller.rank = caller.rank, rank, rank
    try:
        for number, (name, shape) in enumerate(model.network.shapes().items(), start=1):
            form = model.init.get(name)
            if form is None and drawn is not None:
                found[name] = drawn[name]
                continue
            if form is None:
                found[name] = random(list(shape), number) / 2
                continue
            value = caller.tensor_value(form, dtype="float32")
            if isinstance(value, list) or value is None or tuple(value.shape) != shape:
                given = "nothing" if value is None else "a list of tensors"
                if not isinstance(value, list | None):
                    given = f"a tensor of {list(value.shape)}"
                message = f"{model.name}.{name} is {list(shape)}, and `init` gives it {given}"
                raise WeightError(message, getattr(form, "mark", None) or model.mark)
            found[name] = value
    finally:
        caller.scope["rank"] = caller.rank = own
    return found


class WeightError(Exception):
    """A weight that is stated with another shape.

    It has the place of the weight in the file, for it is found when values are known, after the
    file was read.
    """

    def __init__(self, message: str, mark: Mark | None) -> None:
        """Keep the place."""
        super().__init__(message)
        self.mark = mark


def unknown_label(network: Sequential, labels: Any) -> str | None:
    """Return words for a label that no layer has, or None."""
    known = [label for label, _ in network.layers]
    stranger = next((each for each in labels if str(each) not in known), None)
    return None if stranger is None else f"no layer is called `{stranger}`: {', '.join(known)} are"
