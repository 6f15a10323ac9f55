"""torchrun's agent without log files: nothing is written, so nothing can be left behind."""

from __future__ import annotations

import os
from typing import Any


def no_logs() -> Any:  # noqa: ANN401 -- a LogsSpecs of torch's
    """Return what sends every worker's output where the host's goes; imports torch."""
    from torch.distributed.elastic.multiprocessing.api import (  # noqa: PLC0415 -- the host's only
        LogsDest,
        LogsSpecs,
    )

    class NoLogs(LogsSpecs):
        def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
            """Return no destinations, and no error files."""
            ranks = range(len(envs))
            for local_rank in ranks:
                envs[local_rank]["TORCHELASTIC_ERROR_FILE"] = ""
            return LogsDest(
                stdouts=dict.fromkeys(ranks, ""),
                stderrs=dict.fromkeys(ranks, ""),
                error_files=dict.fromkeys(ranks, os.devnull),
            )

        @property
        def root_log_dir(self) -> str:
            """There is none."""
            return os.devnull

    return NoLogs()
