"""torchrun's agent without log files: nothing is written, so nothing can be left behind."""

from __future__ import annotations

import os

from torch.distributed.elastic.multiprocessing.api import LogsDest, LogsSpecs


class NoLogs(LogsSpecs):
    """Sends every worker's output where the host's goes."""

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
