"""The error of a program that starts its ranks itself, and ends before any of them communicates.

`mp.spawn` raises in the parent what the first of its processes has raised, with its traceback::

    -- Process 1 terminated with the following error:
      File "train.py", line 8, in work
    KeyError: 'WORLD'
"""

from __future__ import annotations

import re
from pathlib import Path

from torch_scenarios.record.evidence.choice import short

#: the file of a record that has the traceback of the program which starts the ranks
PARENT_ERROR = "parent.error"
#: bytes of it that are read
MOST_READ = 1 << 16
_FRAME = re.compile(r'^ +File "([^"]+)", line (\d+), in ', re.MULTILINE)
_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))\b(.*)$", re.MULTILINE)
_PROCESS = re.compile(r"-- Process (\d+) terminated")
#: paths of code that is not the user's
_FOREIGN = re.compile(r"site-packages|dist-packages|/lib/python\d|^<")


def tell_parent_error(folder: Path, command: str, code: int) -> str:
    """Return why a program ended before any rank came to `init_process_group`; or nothing."""
    path = folder / PARENT_ERROR
    if not code or not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as kept:
        text = kept.read(MOST_READ)
    errors = _ERROR.findall(text)
    if not errors:
        return ""
    begin = _PROCESS.search(text)
    who = f"process {begin[1]} that it starts" if begin is not None else "it"
    frames = [
        (file, int(line), "")
        for file, line in _FRAME.findall(text[begin.start() if begin is not None else 0 :])
        if not _FOREIGN.search(file)
    ]
    kind, words = errors[-1]
    where = f" ({short((frames[-1],), str(Path.cwd()))})" if frames else ""
    return (
        f"FAILED       {command}  ended with code {code} before any rank came to "
        f"`init_process_group`\n  {who} raises {kind.rpartition('.')[2]}{words}{where}"
    )
