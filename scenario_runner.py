"""The entry of the command `scenario`: a guard around its import, and nothing else.

Ctrl-C while Python imports the command has nothing to save and nothing to say: it ends at once with
exit code 130. Whatever the modules in between make of an exception that is raised inside of them,
none is.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130


def main() -> None:
    """Run the command line; Ctrl-C ends it at once until it says otherwise."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from runner.cli import main as command

    command()


if __name__ == "__main__":
    main()
