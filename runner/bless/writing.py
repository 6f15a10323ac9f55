"""A file is replaced whole or not at all; its mode, its links and its byte order mark stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.bless.refusal import refuse
from runner.replacing import replace_file

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
    replace_file(path, mark + proposal.after.encode())
