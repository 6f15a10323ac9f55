"""The entry of the command `scenario`: a guard around its import, and nothing else.

Ctrl-C while Python imports the command has nothing to save and nothing to say: it ends at once with
exit code 130. Whatever the modules in between make of an exception that is raised inside of them,
none is. What is imported here is in the interpreter already, so that the guard stands at once; a
Ctrl-C before that meets Python while it starts, and shows its traceback.
"""

import _signal as signal  # type: ignore[import-not-found]
import os

INTERRUPTED = 130


def main() -> None:
    """Run the command line; Ctrl-C ends it at once until it says otherwise."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from torch_scenarios.cli import main as command

    command()


if __name__ == "__main__":
    main()
