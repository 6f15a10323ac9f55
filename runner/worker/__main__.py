"""`python -m runner.worker`: one rank of a launch that torchrun, Slurm or Open MPI has started.

The launcher's variables are read before torch is imported: what is missing is said at once. This
module is on the command line's floor: it hands the command line to the rank that runs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from runner.cli.run import plugins, read, spmd
from runner.errors import LaunchError
from runner.execution import LaunchOptions
from runner.execution.nodes import placement
from runner.execution.supervisor import Conductor
from runner.worker.frontend import CommandLine


def main() -> None:
    """Find this process's place in its launch, and be that rank of it."""
    try:
        place = placement(os.environ)
    except LaunchError as error:
        sys.exit(str(error))
    os.environ.update(place.variables())
    # a rank that comes before rank 0 waits for its store without a word
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from runner.worker import serve

    serve.main(place.rank, place.world_size, CommandLine(read=read, plugins=plugins, run=_run))


def _run(arguments: Sequence[str], conduct: Callable[[LaunchOptions], Conductor]) -> None:
    spmd.main(args=arguments, prog_name="python -m runner.worker", obj=conduct)


if __name__ == "__main__":
    main()
