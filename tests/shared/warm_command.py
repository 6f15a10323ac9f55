"""`scenario`, or `pytest`, as a process whose hosts are forked from the warm one of a session.

Use: python warm_command.py ADDRESS scenario|pytest [arguments]       (see `WarmHosts.command`)
"""

from __future__ import annotations

import sys
from functools import partial

from warm_hosts import forked_host

from runner.cli import main
from runner.execution import launcher

if __name__ == "__main__":
    _, address, program, *arguments = sys.argv
    launcher.started_host = partial(forked_host, f"\0{address}")
    sys.argv = [program, *arguments]
    if program == "pytest":
        import pytest

        sys.exit(pytest.main(arguments))
    main()
