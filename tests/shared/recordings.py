"""What the tests of records share: scripts that are recorded, once a session each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[1] / "record" / "scripts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What `scenario record` said of a script."""

    code: int
    output: str
    errors: str
    folder: Path
    result: dict[str, Any]

    @property
    def diagnoses(self) -> list[str]:
        """The names of what is wrong."""
        return list(self.result["predicted"]["diagnoses"])

    @property
    def messages(self) -> str:
        """All that is told of what is wrong."""
        return " ".join(problem["message"] for problem in self.result["problems"])


class Recording:
    """Records scripts, the same one once."""

    def __init__(self, folder: Path) -> None:
        """Keep records under a folder."""
        self._folder = folder
        self.of = cache(self._of)

    def _of(self, script: str, *options: str, **variables: str) -> Ran:
        folder = self._folder / f"record{len(list(self._folder.iterdir()))}"
        results = folder / "result.json"
        command = [sys.executable, "-m", "runner.cli", "record", *options, "-o", str(folder)]
        command += ["--json", str(results), "--max-seconds", "240", "--", str(SCRIPTS / script)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
            env={**os.environ, **variables},
        )
        assert results.exists(), done.stdout + done.stderr
        (result,) = json.loads(results.read_text(encoding="utf-8"))["results"]
        return Ran(
            code=done.returncode,
            output=done.stdout,
            errors=done.stderr,
            folder=folder,
            result=result,
        )
