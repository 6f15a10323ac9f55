"""A file is replaced whole or not at all: who reads it meanwhile sees the old one or the new."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write the file anew; its mode stays, and so does a link to it. Raises OSError.

    A `durable` one is on the disk before it takes the old one's place, so that a crash of the
    machine in between loses neither; what can be made again need not wait for the disk.
    """
    real = path.resolve()
    number, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    beside = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if real.exists():
            beside.chmod(stat.S_IMODE(real.stat().st_mode))
        beside.replace(real)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
