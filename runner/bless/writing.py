"""A file is replaced whole or not at all; its mode, its links and its byte order mark stay."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runner.bless.refusal import refuse

if TYPE_CHECKING:
    from runner.bless.proposing import Proposal

_BOM = b"\xef\xbb\xbf"


def write(proposal: Proposal) -> None:
    """Write a proposal's text over its file, if that still holds what it was made from.

    Raises RefusedError where it does not, OSError where it cannot be written.
    """
    path = proposal.path.resolve()
    now = path.read_bytes()
    if now.removeprefix(_BOM) != proposal.before.encode():
        refuse("file_changed", "the file changed while it was blessed; bless it again")
    mark = _BOM if now.startswith(_BOM) else b""
    mode = path.stat().st_mode
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(mark + proposal.after.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode & 0o7777)
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
