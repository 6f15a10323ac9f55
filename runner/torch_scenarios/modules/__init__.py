"""The layers of models, one file each, in one explicit table; losses and optimizers beside them.

To add one: read a neighbour, write its file, add it to `LAYERS`, to a model in `scenarios/` and to
the trials against torch in `tests/strategies/test_modules.py`.
"""

from __future__ import annotations

from torch_scenarios.modules.attention import CausalSelfAttention
from torch_scenarios.modules.base import Layer
from torch_scenarios.modules.batch_norm import BatchNorm1d, SyncBatchNorm
from torch_scenarios.modules.embedding import Embedding
from torch_scenarios.modules.gelu import GELU
from torch_scenarios.modules.layer_norm import LayerNorm
from torch_scenarios.modules.linear import Linear
from torch_scenarios.modules.relu import ReLU
from torch_scenarios.modules.rms_norm import RMSNorm
from torch_scenarios.modules.sequential import Residual, Sequential
from torch_scenarios.modules.tanh import Tanh

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
