"""`python -m runner.worker`: one rank of a launch that torchrun, Slurm or Open MPI has started.

The launcher's variables are read before torch is imported: what is missing is said at once.
"""

from __future__ import annotations

import os
import sys

from runner.errors import LaunchError
from runner.execution.nodes import placement


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

    serve.main(place.rank, place.world_size)


if __name__ == "__main__":
    main()
