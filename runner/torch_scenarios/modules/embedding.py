"""`Embedding`: rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_scenarios.errors import DataError
from torch_scenarios.modules.base import Array, Layer, Params


class Embedding(Layer, frozen=True, kw_only=True):
    """`torch.nn.Embedding`: the input is integers; nothing flows back to it.

    >>> table = Embedding(num_embeddings=3, embedding_dim=2)
    >>> params = {"weight": np.arange(6.0).reshape(3, 2)}
    >>> y, saved = table.forward(params, np.array([2, 0, 2]))
    >>> y
    array([[4., 5.],
           [0., 1.],
           [4., 5.]])
    >>> table.backward(params, saved, np.ones_like(y))[1]["weight"]
    array([[1., 1.],
           [0., 0.],
           [2., 2.]])

    A row that no input asks for has the gradient 0 and not none: AdamW decays it, and a momentum
    moves it on.
    """

    name = "Embedding"
    num_embeddings: int
    embedding_dim: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The table."""
        return {"weight": (self.num_embeddings, self.embedding_dim)}

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """Look the rows up. DataError where the table has no such row."""
        index = x.astype(np.int64)
        wrong = index[(index < 0) | (index >= self.num_embeddings)]
        if wrong.size:
            message = f"an Embedding of {self.num_embeddings} rows has no row {wrong.flat[0]}"
            raise DataError(message)
        return params["weight"][index], index

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """A row's gradient is the sum over where it was looked up."""
        table = np.zeros_like(params["weight"])
        np.add.at(table, saved.reshape(-1), dy.reshape(-1, self.embedding_dim))
        return np.zeros(saved.shape, dy.dtype), {"weight": table}

    def build(self, nn: Any) -> Any:
        """`torch.nn.Embedding`."""
        return nn.Embedding(self.num_embeddings, self.embedding_dim)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One more dimension."""
        return (*shape, self.embedding_dim)
