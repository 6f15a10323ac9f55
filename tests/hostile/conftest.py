"""What the hostile files share: the process that hands them to the command, one after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hostile_batch import RanksEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@pytest.fixture
def ended(
    batch: Callable[[Path, Sequence[str]], RanksEnded],
    record_property: Callable[[str, object], None],
) -> Callable[[Path, Sequence[str]], RanksEnded]:
    """Return what runs `scenario ARGUMENTS` in a folder, and keeps how it ended for the report."""

    def run(folder: Path, arguments: Sequence[str]) -> RanksEnded:
        end = batch(folder, arguments)
        kept = {
            "command": " ".join(["scenario", *arguments]),
            "code": end.code,
            "cpu_s": round(end.cpu_s, 2),
            "mib": end.memory >> 20,
        }
        record_property("ended", json.dumps(kept))
        return end

    return run


@pytest.fixture(scope="session")
def batch() -> Iterator[Callable[[Path, Sequence[str]], RanksEnded]]:
    """Return what runs `scenario ARGUMENTS` in a folder, within bounds."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("hostile_batch.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as server:
        asked, answered = server.stdin, server.stdout
        assert asked is not None
        assert answered is not None

        def run(folder: Path, arguments: Sequence[str]) -> RanksEnded:
            print(json.dumps([str(folder), list(arguments)]), file=asked, flush=True)
            answer: dict[str, Any] = json.loads(answered.readline())
            return RanksEnded(**answer)

        yield run
        asked.close()
