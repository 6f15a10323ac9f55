"""`CausalSelfAttention`: each position takes of those up to itself, by heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from torch_scenarios.errors import DataError
from torch_scenarios.modules.base import (
    Array,
    Layer,
    Params,
    Weighed,
    check_features,
    inner,
    prefix_names,
)
from torch_scenarios.modules.linear import Linear

#: its layers, in torch's order: three of the input, and the one of the output
ENTRIES, EXIT = ("q", "k", "v"), "o"


class CausalSelfAttention(Layer, frozen=True, kw_only=True):
    """Linear layers `q`, `k`, `v` and `o` around `scaled_dot_product_attention(is_causal=True)`.

    The input is `[batch, positions, embed_dim]`. A rank that has some features of q, k and v, and
    so some heads, computes these.

    >>> attention = CausalSelfAttention(embed_dim=4, num_heads=2, bias=False)
    >>> list(attention.shapes())
    ['q.weight', 'k.weight', 'v.weight', 'o.weight']

    A head is `embed_dim / num_heads` features next to each other. Tensor parallelism that cuts q, k
    and v by rows gives each rank whole heads only if the heads divide by the ranks; else ranks
    would share one, and no rank could compute its softmax.

    >>> CausalSelfAttention(embed_dim=4, num_heads=3)
    Traceback (most recent call last):
        ...
    ValueError: 4 features do not divide into 3 heads
    """

    name = "CausalSelfAttention"
    embed_dim: int
    num_heads: int
    bias: bool = True

    def __post_init__(self) -> None:
        """Refuse heads that do not divide the features, with ValueError."""
        if self.embed_dim % self.num_heads:
            message = f"{self.embed_dim} features do not divide into {self.num_heads} heads"
            raise ValueError(message)

    @property
    def layers(self) -> tuple[tuple[str, Layer], ...]:
        """The four Linear layers by their labels."""
        made = Linear(in_features=self.embed_dim, out_features=self.embed_dim, bias=self.bias)
        return tuple((label, made) for label in (*ENTRIES, EXIT))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Those of the four layers, below their labels."""
        return {
            f"{label}.{name}": shape
            for label, layer in self.layers
            for name, shape in layer.shapes().items()
        }

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """Project, attend, project."""
        layers = dict(self.layers)
        made = [layers[each].forward(inner(params, each), x) for each in ENTRIES]
        mixed, attended = self.attend(*(y for y, _ in made))
        y, kept = layers[EXIT].forward(inner(params, EXIT), mixed)
        return y, ([saved for _, saved in made], attended, kept)

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """Back through the output, the heads, and the three projections."""
        dx, (grads,) = self._go_back("backward", params, saved, dy)
        return dx, grads

    def weigh(self, params: Params, saved: Any, dy: Array, size: Array | None = None) -> Weighed:
        """Back through the output, the heads, and the three projections.

        What the terms behind a softmax amount to says too little, and goes no further than `o`.
        """
        dx, (grads, sizes) = self._go_back("weigh", params, saved, dy, size)
        return dx, grads, sizes, None

    def _go_back(
        self, direction: str, params: Params, saved: Any, dy: Array, *sizes: Array | None
    ) -> tuple[Array, list[dict[str, Array]]]:
        """Go back by a method of the four layers; return what they have of their parameters.

        `sizes` is what more the method takes behind the gradient, of the last layer.
        """
        entered, attended, kept = saved
        layers = dict(self.layers)
        of_exit = getattr(layers[EXIT], direction)(inner(params, EXIT), kept, dy, *sizes)
        along = self.attend_back(attended, of_exit[0])
        made = {
            label: getattr(layers[label], direction)(inner(params, label), each, given)
            for label, each, given in zip(ENTRIES, entered, along, strict=True)
        }
        dx = made["q"][0] + made["k"][0] + made["v"][0]
        listed = [(label, made[label][1:3]) for label in ENTRIES] + [(EXIT, of_exit[1:3])]
        found: list[dict[str, Array]] = [{} for _ in of_exit[1:3]]
        for label, parts in listed:
            for known, part in zip(found, parts, strict=True):
                known.update(prefix_names(label, part))
        return dx, found

    def attend(self, q: Array, k: Array, v: Array) -> tuple[Array, Any]:
        """Return what each position takes of the others, head by head, and what is kept."""
        q, k, v = (self._heads(each) for each in (q, k, v))
        scale = q.dtype.type(1 / math.sqrt(q.shape[-1]))
        scores = (q @ k.swapaxes(-1, -2)) * scale
        hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
        scores = np.where(hidden, -np.inf, scores).astype(q.dtype)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        share = powers / powers.sum(axis=-1, keepdims=True)
        return self._join_heads(share @ v), (q, k, v, share, scale)

    def attend_back(self, saved: Any, dy: Array) -> tuple[Array, Array, Array]:
        """Return the gradients of q, k and v."""
        q, k, v, share, scale = saved
        given = self._heads(dy)
        along = given @ v.swapaxes(-1, -2)
        scores = share * (along - (along * share).sum(axis=-1, keepdims=True)) * scale
        return (
            self._join_heads(scores @ k),
            self._join_heads(scores.swapaxes(-1, -2) @ q),
            self._join_heads(share.swapaxes(-1, -2) @ given),
        )

    def _heads(self, x: Array) -> Array:
        """Return `[batch, heads, positions, features of a head]`."""
        width = self.embed_dim // self.num_heads
        return x.reshape(*x.shape[:-1], x.shape[-1] // width, width).swapaxes(-2, -3)

    @staticmethod
    def _join_heads(x: Array) -> Array:
        """Return `[batch, positions, features]`."""
        y = x.swapaxes(-2, -3)
        return np.ascontiguousarray(y).reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1])

    def build(self, nn: Any) -> Any:
        """A module of the four layers, with torch's own attention between."""
        width, made = self.embed_dim // self.num_heads, dict(self.layers)

        class Attention(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                for label, layer in made.items():
                    self.add_module(label, layer.build(nn))

            def forward(self, given: Any) -> Any:
                q, k, v = (
                    each.unflatten(-1, (-1, width)).transpose(-2, -3)
                    for each in (self.q(given), self.k(given), self.v(given))
                )
                mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                return self.o(mixed.transpose(-2, -3).flatten(-2))

        return Attention()

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The same."""
        check_features(shape, self.embed_dim, self.name)
        if len(shape) != 3:
            message = f"{self.name} takes [batch, positions, features], and gets {list(shape)}"
            raise DataError(message)
        return shape
