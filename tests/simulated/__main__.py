"""`python -m tests.simulated [--gpus 8] [--nccl 2.28.9] COMMAND ...`: run a command with them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.simulated.build import NotHereError
from tests.simulated.surroundings import NCCL, surroundings

#: exit code where they cannot be built, as that of `scenario run` without a GPU
NO_MACHINE = 3


def main() -> None:
    """Build if need be, and become the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulated", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--nccl", default=NCCL, metavar="VERSION")
    parser.add_argument("--into", type=Path, help="where the build lies")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    try:
        into = chosen.into and chosen.into.absolute()
        around = surroundings(os.environ, gpus=chosen.gpus, version=chosen.nccl, into=into)
    except NotHereError as error:
        sys.stderr.write(f"no simulated GPUs: {error}\n")
        sys.exit(NO_MACHINE)
    command = chosen.command or [sys.executable]
    os.execvpe(command[0], command, around)  # noqa: S606 -- the command that was asked for


if __name__ == "__main__":
    main()
