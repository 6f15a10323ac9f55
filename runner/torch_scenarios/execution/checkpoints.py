"""The folder in which a scenario's checkpoints lie: made for one run of it, and gone with it.

All ranks write to it, and each reads what another has written. On one machine they all see it. Over
nodes they do where these share the folder for temporary files of rank 0's node: simulated hosts do,
and so do the nodes of a cluster where TMPDIR names a folder of a network file system. A secret in
the folder tells it from another of its name.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.operations.base import Compound

#: the file that holds the secret; no checkpoint has such a name
MARK = ".of-this-run"


class CheckpointFolder(Struct, frozen=True, kw_only=True):
    """A folder of this run's own, by its path, and the secret that lies in it.

    >>> CheckpointFolder(path="/nonexistent", secret="a").lack()
    'does not see /nonexistent'

    Ranks on two hosts may each have a folder of that path. Only if each finds the secret do they
    write to one, and only then can a rank load what another has saved (decision 54).
    """

    path: str
    secret: str

    def lack(self) -> str | None:
        """Return why this process cannot use it, as the end of a sentence; None where it can.

        What is read from it is unpickled by torch: it must be this user's alone.
        """
        try:
            found = Path(self.path).lstat()
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != stat.S_IRWXU:
                return f"finds a folder {self.path} that is not its user's alone"
            secret = Path(self.path, MARK).read_text(encoding="ascii", errors="replace")
        except OSError:
            return f"does not see {self.path}"
        if secret != self.secret:
            return f"finds another folder {self.path}"
        return None if os.access(self.path, os.W_OK) else f"may not write to {self.path}"


@contextmanager
def checkpoint_folder(plan: Plan) -> Iterator[CheckpointFolder | None]:
    """Make the folder that a plan's checkpoints need, for as long as the plan runs.

    None where it has none.
    """
    steps = steps_of(plan.scenario.steps)
    if not any(
        isinstance(each.operation, Compound) and each.operation.checkpoints for each in steps
    ):
        yield None
        return
    with TemporaryDirectory(prefix="scenario-checkpoints-") as path:
        secret = secrets.token_hex()
        Path(path, MARK).write_text(secret, encoding="ascii")
        yield CheckpointFolder(path=path, secret=secret)
