"""The zero-bubble backward of a pipeline's stage fails where the stage ends in a Linear.

torch 2.13, CPU, one process. A Linear with a bias makes a view of an input with three dimensions.
`stage_backward_input`, which the zero-bubble schedules call for every stage but the last, detaches
the stage's output in place, and a view cannot be detached so. With two dimensions, without a bias,
or with an activation behind the Linear it is right.

    python zero_bubble_of_a_view.py
"""

# mypy: ignore-errors

import sys

import torch
from torch.distributed.pipelining._backward import stage_backward_input


def fate(shape: list[int], *, bias: bool, activation: bool) -> str:
    """Return what the backward of a stage by its input comes to."""
    layers = [torch.nn.Linear(4, 4, bias=bias)]
    stage = torch.nn.Sequential(*layers, *([torch.nn.Tanh()] if activation else []))
    entered = torch.ones(shape, requires_grad=True)
    made = stage(entered)
    try:
        stage_backward_input([made], [torch.ones_like(made)], [entered], stage.parameters())
    except RuntimeError as error:
        return str(error.__cause__).partition(".")[0]
    return "right"


if __name__ == "__main__":
    cases = {
        "two dimensions": ([2, 4], True, False),
        "three dimensions": ([2, 3, 4], True, False),
        "three, without a bias": ([2, 3, 4], False, False),
        "three, and an activation": ([2, 3, 4], True, True),
    }
    for name, (shape, bias, activation) in cases.items():
        sys.stdout.write(f"{name}: {fate(shape, bias=bias, activation=activation)}\n")
