"""A state that `get_state_dict` makes before the first step counts a step that was never taken.

torch 2.6, 2.13 and 2.14.1, CPU, one process. Adam, saved by torch.distributed.checkpoint.state_dict
before it has stepped and loaded again, corrects its first step as a second one: no error is raised,
and the weight moves by two thirds of what it does without the checkpoint.

    python checkpoint_before_the_first_step.py
"""

# mypy: ignore-errors

import sys

import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def moved(*, checkpoint: bool) -> float:
    """Return the weight after one step, with or without a state that was taken and given back."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=3.0, betas=(0.5, 0.0))
    if checkpoint:
        weights, state = get_state_dict(model, optimizer)
        sys.stdout.write(f"step saved: {state['state']['weight']['step'].item():.0f}\n")
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    loss = (model(torch.ones(1, 1)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    return model.weight.item()


if __name__ == "__main__":
    sys.stdout.write(f"one step: {moved(checkpoint=False):.4f}\n")
    sys.stdout.write(f"after a checkpoint of a fresh model: {moved(checkpoint=True):.4f}\n")
