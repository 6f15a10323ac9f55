"""What a layer is: its arguments, its parameters, and both directions, in NumPy.

A layer computes in the dtype that it is given, so that one process in float64 and a rank in float32
are the same code. It imports no torch: `build` is handed `torch.nn`.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

import numpy as np
from msgspec import NODEFAULT, Struct, StructMeta
from numpy.typing import NDArray

from torch_scenarios.errors import DataError

Array: TypeAlias = NDArray[Any]
Params: TypeAlias = Mapping[str, Array]
#: the gradients of the input and of each parameter, what the terms of these amount to, and what
#: those of the input's do where they cancel
Weighed: TypeAlias = tuple[Array, dict[str, Array], dict[str, Array], Array | None]


class _Class(StructMeta, ABCMeta):
    """The class of what is declared: an heir has fields, and must have the abstract methods."""


class Declared(Struct, frozen=True, metaclass=_Class):
    """A class or function of torch's; an heir's fields are its arguments, by torch's names.

    The language, the schema and the messages read the fields, so that a class is declared once: a
    field that is added is known to them all.

    >>> from torch_scenarios.modules.linear import Linear
    >>> Linear.types()
    {'in_features': 'int', 'out_features': 'int', 'bias': 'bool'}
    >>> Linear.list_required()
    ('in_features', 'out_features')
    """

    @classmethod
    def types(cls) -> dict[str, str]:
        """Return the type of each argument, as it is written."""
        written = {
            name: str(each)
            for kind in reversed(cls.__mro__)
            for name, each in vars(kind).get("__annotations__", {}).items()
        }
        return {name: written[name] for name in cls.__struct_fields__}

    @classmethod
    def list_required(cls) -> tuple[str, ...]:
        """Return the arguments that must be given."""
        names, defaults = cls.__struct_fields__, cls.__struct_defaults__
        known = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        return tuple(name for name in names if known.get(name, NODEFAULT) is NODEFAULT)


class Layer(Declared, frozen=True):
    """One class of `torch.nn`, by torch's name and arguments, which are its fields.

    `name` is torch's. Parameters are named as torch names them, `weight` and `bias`, in its order.

    >>> from torch_scenarios.modules.linear import Linear
    >>> layer = Linear(in_features=2, out_features=1, bias=False)
    >>> x, weight = np.array([[1.0, 2.0]]), {"weight": np.array([[3.0, 4.0]])}
    >>> y, saved = layer.forward(weight, x)
    >>> y
    array([[11.]])
    >>> dx, grads = layer.backward(weight, saved, np.ones_like(y))
    >>> dx, grads["weight"]
    (array([[3., 4.]]), array([[1., 2.]]))

    A backward has no graph: what it needs is what the forward returned next to its output. So a
    layer is the same for one process in float64, which knows what is right, and for a rank in
    float32, which is compared with it. How far the two may be apart is asked of `weigh`.
    """

    name: ClassVar[str]
    #: whether what it makes of a row depends on the other rows
    over_batch: ClassVar[bool] = False
    #: whether the terms of its input's gradient cancel: more is rounded than what is left
    cancels: ClassVar[bool] = False
    #: why no model is trained with it here although torch has it, or None
    lacking: ClassVar[str | None] = None

    def buffers(self) -> dict[str, Array]:
        """Return what each buffer holds at first, in torch's order."""
        return {}

    def update_buffers(self, buffers: Mapping[str, Array], saved: Any) -> dict[str, Array]:
        """Return the buffers after a forward, of which `saved` is what the backward needs."""
        return dict(buffers)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each parameter, in torch's order."""
        return {}

    def ready(self) -> tuple[str, ...]:
        """Return the parameters in the order in which the backward has their gradients."""
        return tuple(reversed(self.shapes()))

    @abstractmethod
    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """Return the output, and what the backward needs."""

    @abstractmethod
    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """Return the gradients of the input and of each parameter.

        :meth:`weigh` asks for them of absolute values as well, and then they are no less than they
        are with any signs: where terms are subtracted :meth:`terms` is overridden.
        """

    def weigh(self, params: Params, saved: Any, dy: Array, size: Array | None = None) -> Weighed:
        """Go backward; return as well what the terms of each gradient amount to.

        That is the sum of their absolute values, in the shape of the parameter: however they
        cancel, rounding may leave a part of it, and where it is 0 there is nothing to round. `size`
        is what the terms of `dy` amount to, where that is more than itself.
        """
        dx, grads = self.backward(params, saved, dy)
        most = np.abs(dy) if size is None else size
        sizes = self.backward(params, absolute(saved), most)[1] if grads else {}
        if size is None and not self.cancels:
            return dx, grads, sizes, None
        return dx, grads, sizes, self.terms(params, saved, most)

    def terms(self, params: Params, saved: Any, size: Array) -> Array:
        """Return what the terms of the input's gradient amount to, of an output's with `size`."""
        return self.backward(absolutes(params), absolute(saved), size)[0]

    @abstractmethod
    def build(self, nn: Any) -> Any:
        """Return torch's own module, with whatever weights it begins with."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the output for an input of that shape. DataError where none fits."""
        return shape


def inner(params: Params, label: str) -> dict[str, Array]:
    """Return the parameters below a label, by the names that they have there."""
    return {short: params[name] for name, short in _names_below(tuple(params), label)}


@lru_cache(maxsize=1024)
def _names_below(names: tuple[str, ...], label: str) -> tuple[tuple[str, str], ...]:
    """Return the names below a label, each with what it is called there.

    Each layer of each step asks for its own, and a model of sixteen blocks has some two hundred.
    """
    start = f"{label}."
    return tuple((name, name[len(start) :]) for name in names if name.startswith(start))


def prefix_names(label: str, found: Params) -> dict[str, Array]:
    """Return what a layer has of each parameter, by the names that they have above its label."""
    return {f"{label}.{name}": value for name, value in found.items()}


def absolute(saved: Any) -> Any:
    """Return what a backward needs, an array or a tuple of them, in absolute values."""
    return tuple(map(np.abs, saved)) if isinstance(saved, tuple) else np.abs(saved)


def absolutes(params: Params) -> dict[str, Array]:
    """Return parameters in absolute values."""
    return {name: np.abs(value) for name, value in params.items()}


def flat(x: Array) -> Array:
    """Return an array as rows of its last dimension."""
    return x.reshape(-1, x.shape[-1])


def check_features(shape: tuple[int, ...], wanted: int, what: str) -> None:
    """Raise DataError where the last dimension is not as wide as a layer takes it."""
    if not shape or shape[-1] != wanted:
        message = f"{what} takes {wanted} features, and gets an input of {list(shape)}"
        raise DataError(message)


def terms_of_normalised(scaled: Array, saved: Any, axes: int | tuple[int, ...]) -> Array:
    """Return what the terms of the gradient of what was normalised over some axes amount to.

    It is the gradient behind, without its mean, and without what goes along the rows. `scaled` is
    what that amounts to; `saved` begins with the rows and the factor.
    """
    rows, factor = map(np.abs, saved[:2])
    mean = scaled.mean(axis=axes, keepdims=True)
    along = (scaled * rows).mean(axis=axes, keepdims=True)
    return np.asarray(factor * (scaled + mean + rows * along))


def normalise(x: Array, eps: float, *, centred: bool) -> tuple[Array, Array]:
    """Return the rows of an array at unit variance, and the factor by which each was brought there.

    `centred` takes the mean away first.

    >>> rows, factor = normalise(np.array([[1.0, 3.0]]), 0.0, centred=True)
    >>> rows, factor
    (array([[-1.,  1.]]), array([[1.]]))
    """
    given = x - x.mean(axis=-1, keepdims=True) if centred else x
    factor = 1 / np.sqrt((given * given).mean(axis=-1, keepdims=True) + x.dtype.type(eps))
    return given * factor, factor.astype(x.dtype)
