"""Executable statements about the semantics of collective communication.

The pipeline, one stage a function, for a notebook, a test or another tool::

    for scenario in torch_scenarios.load("groups_even.yaml"):
        prepared = torch_scenarios.plan(scenario)
        predicted = torch_scenarios.simulate(prepared)
        observed = torch_scenarios.launch(prepared, predicted)
        print(torch_scenarios.judge(prepared, predicted, observed).status)

`batch(x, y)` returns its arguments and names them as a batch of a training, which
`scenario record --redeal` deals to other ranks.

Importing this package imports nothing: :mod:`torch_scenarios.stages`, which holds the functions, is
imported when one of them is first asked for.
"""

# A type checker takes this for true. The module `typing` is not imported for it: the command
# imports this package before it can handle Ctrl-C (`torch_scenarios.entry`).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from torch_scenarios.record.values.deal import batch
    from torch_scenarios.stages import judge, launch, load, plan, simulate

__all__ = ["batch", "judge", "launch", "load", "plan", "simulate"]


def __getattr__(name: str) -> object:
    """Return a function of the package, by its name."""
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    if name == "batch":
        from torch_scenarios.record.values.deal import batch

        return batch
    from torch_scenarios import stages

    return getattr(stages, name)
