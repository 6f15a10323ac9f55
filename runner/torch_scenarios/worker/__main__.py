"""`python -m torch_scenarios.worker`: one rank that torchrun, Slurm or Open MPI started.

The launcher's variables are read before torch is imported: what is missing is said at once. This
module is on the command line's floor: it hands the command line to the rank that runs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from torch_scenarios.cli.run import plugins, read, spmd
from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import LaunchOptions
from torch_scenarios.execution.launcher import keep_to_loopback
from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.nodes import placement
from torch_scenarios.execution.supervisor import PlanRunner
from torch_scenarios.execution.token import UNPROTECTED, secret_of
from torch_scenarios.worker.frontend import CommandLine


def main() -> None:
    """Find this process's place in its launch, and be that rank of it."""
    try:
        place = placement(os.environ)
        secret = secret_of(os.environ)
    except LaunchError as error:
        sys.exit(str(error))
    os.environ.update(place.variables())
    if place.is_alone:
        keep_to_loopback(os.environ)
    # a rank that comes before rank 0 waits for its store without a word
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from torch_scenarios.worker import serve

    if secret is None and not place.is_alone:
        secret = Secret(b"none")  # there is no way to hand one on
        if place.rank == 0:
            sys.stderr.write(UNPROTECTED.format(address=place.address, port=place.port))
    command_line = CommandLine(read=read, plugins=plugins, run=_run)
    serve.main(place, command_line, secret)


def _run(arguments: Sequence[str], conduct: Callable[[LaunchOptions], PlanRunner]) -> None:
    spmd.main(args=arguments, prog_name="python -m torch_scenarios.worker", obj=conduct)


if __name__ == "__main__":
    main()
