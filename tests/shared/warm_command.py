"""`scenario`, or `pytest`, as a process whose hosts are forked from the warm one of a session.

Use: python warm_command.py ADDRESS scenario|pytest [arguments]       (see `WarmHosts.command`)
"""

from __future__ import annotations

import sys
from functools import partial


def fork_hosts(address: str) -> None:
    """Let the launchers of this process have their hosts forked."""
    from warm_hosts import forked_host

    from torch_scenarios.execution import launcher

    launcher.start_host = partial(forked_host, f"\0{address}")


class ForkedHosts:
    """A plugin of pytest: what it imports of our package, pytest wants to have imported first."""

    def __init__(self, address: str) -> None:
        """Fork at this address."""
        self._address = address

    def pytest_configure(self) -> None:
        """Let all scenarios of the session run on forked hosts."""
        fork_hosts(self._address)


if __name__ == "__main__":
    _, address, program, *arguments = sys.argv
    sys.argv = [program, *arguments]
    if program == "pytest":
        import pytest

        sys.exit(pytest.main(arguments, plugins=[ForkedHosts(address)]))

    from torch_scenarios.cli import main

    fork_hosts(address)
    main()
