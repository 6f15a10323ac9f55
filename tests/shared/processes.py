"""The processes of a run, by a mark or by its folder; the files that a run leaves; an end."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


#: where the time is at which a process started, behind its state (proc_pid_stat(5))
STARTED = 18


def of_run(mark: str) -> list[int]:
    """Return the processes that carry `mark` in their environment: the run and all its own.

    In the order in which they started: numbers of processes begin anew at a limit.
    """
    return _where(lambda process: mark.encode() in (process / "environ").read_bytes())


def of_folder(folder: Path) -> list[int]:
    """Return the processes that work in `folder`: the run there and all its own, as `of_run`.

    Those of a forked host, too, which have the environment of another process in /proc.
    """
    return _where(lambda process: (process / "cwd").readlink() == folder)


def _where(condition: Callable[[Path], bool]) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            state, *facts = (entry / "stat").read_text().rpartition(")")[2].split()
            if state != "Z" and condition(entry):
                found.append((int(facts[STARTED]), int(entry.name)))
    return [pid for _, pid in sorted(found)]


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, and that are still there."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def left_in(folder: Path) -> list[Path]:
    """Return the files of a run: not torch's, which is there, empty, while a worker is forked.

    A host that is killed in that moment, as no process can help, leaves it.
    """
    found = sorted(folder.iterdir())
    moment = [path for path in folder.glob("pytorch-errorfile-*") if not path.stat().st_size]
    return [path for path in found if path not in moment[:1]]


def ended(process: subprocess.Popen[Any]) -> None:
    """End a process that a failed test may have left: Python would blame a later test for it."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
