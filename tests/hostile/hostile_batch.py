"""Runs `scenario` on one hostile file after another, each in a process of its own with bounds.

One process imports the command and forks a child for each row, so that a row costs some
milliseconds and not an import. `python hostile_batch.py` takes a folder and arguments as JSON in
each line of standard input, and says how it ended in each line of standard output.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from typing import Any, TextIO

import torch_scenarios.cli.answers.check
import torch_scenarios.model.plan
import torch_scenarios.pipeline.run
import torch_scenarios.reference  # noqa: F401 -- imported once, before the forks
from torch_scenarios.cli import ONE_THREAD, main

#: what one row may take: 10 s of CPU are wanted, and a core that others keep busy takes up to twice
CPU_S, MEMORY_BYTES = 20, 3 << 29
#: seconds after which a child that waits for something is ended: far more than any row needs
PATIENCE_S = 120
#: what of a child's output is kept
KEPT_BYTES = 1 << 20
#: what a child that only analyses never does
FORBIDDEN = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect")


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksEnded:
    """How a command ended: its exit code (a signal is negative), its cost, what it said and did.

    `size` is how many bytes it said, of which `said` keeps the first; `did` are the files it opened
    and what no analysis does (processes, connections).
    """

    code: int
    cpu_s: float
    wall_s: float
    memory: int
    said: str
    size: int
    did: list[str]


def serve(asked: TextIO, answered: TextIO) -> None:
    """Run row after row, for as long as one is asked for."""
    for line in asked:
        folder, arguments = json.loads(line)
        print(json.dumps(_ended(folder, arguments)), file=answered, flush=True)


def _ended(folder: str, arguments: list[str]) -> dict[str, Any]:
    """Run one row and return its exit code, what it took, what it said and what it opened."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as done:
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _child(folder, arguments, said.fileno(), done.fileno())
        _, status, used = os.wait4(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        said.seek(0)
        done.seek(0)
        return {
            "code": code,
            "cpu_s": used.ru_utime + used.ru_stime,
            "wall_s": time.monotonic() - began,
            "memory": used.ru_maxrss << 10,
            "said": said.read(KEPT_BYTES).decode(errors="surrogateescape"),
            "size": os.fstat(said.fileno()).st_size,
            "did": done.read().decode(errors="surrogateescape").splitlines(),
        }


def _child(folder: str, arguments: list[str], said: int, done: int) -> None:
    """Be the command, in bounds; never return."""
    code = 99
    try:
        os.chdir(folder)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for near, far in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(near, far)
        signal.alarm(PATIENCE_S)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        if arguments[0] != "run":  # torch alone maps more than that
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            sys.addaudithook(lambda event, args: _note(done, event, args))
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        sys.argv = ["scenario", *arguments]
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 -- whatever it is, it is what is found
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _note(done: int, event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(args[0], str | bytes):
        os.write(done, b"open " + os.fsencode(args[0]).replace(b"\n", b"?") + b"\n")
    elif event in FORBIDDEN:
        os.write(done, f"{event} {str(args)[:200]}\n".encode())


if __name__ == "__main__":
    os.environ.setdefault(*ONE_THREAD)
    serve(sys.stdin, sys.stdout)
