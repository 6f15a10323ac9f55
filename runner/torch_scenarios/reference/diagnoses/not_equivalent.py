"""`not_equivalent`: a model that is not trained as one process would train it.

Found by :mod:`torch_scenarios.strategies`, which trains it both ways.
"""

from __future__ import annotations

from torch_scenarios.errors import diagnosis

EXPLANATIONS = (
    diagnosis(
        "not_equivalent",
        "A model is not trained as one process would train it.",
        "A strategy is right when every loss, gradient and weight is what one process has that "
        "takes the whole batch. The report names the first value that differs, and its factor if "
        "it has one: 2.000 for a gradient that is summed over two ranks and not averaged.",
        "divide the loss, or the learning rate, as the number of ranks asks; give each rank rows "
        "of its own; leave no synchronisation out.",
        """\
world_size: 2
models:
  net:
    layers: [fc: {Linear: {in_features: 2, out_features: 1}}]
    loss: {mse_loss: {reduction: sum}}
    optimizer: {SGD: {lr: 0.1}}
    parallel: [DistributedDataParallel: {}]
    oracle: {loss: mse_loss}
tensors:
  x: "random([4, 2], 1)"
  y: "random([4, 1], 2)"
steps:
  - train: {model: net, input: x, target: y, batch: world}
expect:
  diagnosis: not_equivalent
""",
        """\
world_size: 2
models:
  net:
    layers: [fc: {Linear: {in_features: 2, out_features: 1}}]
    loss: mse_loss
    optimizer: {SGD: {lr: 0.1}}
    parallel: [DistributedDataParallel: {}]
tensors:
  x: "random([4, 2], 1)"
  y: "random([4, 1], 2)"
steps:
  - train: {model: net, input: x, target: y, batch: world}
""",
    ),
)
