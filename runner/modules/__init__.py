"""The layers of models, one file each, in one explicit table; losses and optimizers beside them.

To add one: read a neighbour, write its file, add it to `LAYERS`.
"""

from __future__ import annotations

from runner.modules.attention import CausalSelfAttention
from runner.modules.base import Layer
from runner.modules.batch_norm import BatchNorm1d, SyncBatchNorm
from runner.modules.embedding import Embedding
from runner.modules.gelu import GELU
from runner.modules.layer_norm import LayerNorm
from runner.modules.linear import Linear
from runner.modules.relu import ReLU
from runner.modules.rms_norm import RMSNorm
from runner.modules.sequential import Residual, Sequential
from runner.modules.tanh import Tanh

#: every class that a model may be made of, by torch's name
LAYERS: dict[str, type[Layer]] = {
    each.name: each
    for each in (
        Linear,
        Embedding,
        LayerNorm,
        RMSNorm,
        BatchNorm1d,
        SyncBatchNorm,
        ReLU,
        GELU,
        Tanh,
        CausalSelfAttention,
    )
}

__all__ = ["LAYERS", "Layer", "Residual", "Sequential"]
