"""What a job printed -> one verdict: watchdogs, tables of errors, barriers, stacks, RAS.

Each of these says a part::

    [rank1]: ... WorkNCCL(SeqNum=1174, OpType=BROADCAST, ...) ran for 600061 ms    how far a rank is
    ... last enqueued NCCL work: 1176, last completed NCCL work: 1173              and what it did
    Root Cause (first observed failure): rank : 2  exitcode : -9                   who died first
    Process 4711: python train.py                                                  where it is
    {"communicators": [{"ranks": [...], "missing_ranks": [...]}]}                  NCCL's own view
    Ranks 1, 3 failed to pass monitoredBarrier in 60000 ms                         who did not come
    Detected mismatch between collectives on ranks. Rank 0 is running ...          what meets
    srun: error: node12: task 5: Out Of Memory                                     who was killed
    ... Received a dump signal ... Last enqueued NCCL work: 21, last completed ...: 21    who idles
    Stack trace of the failed collective:  #0 broadcast from ...                   who called it
    The client socket has timed out ... while trying to connect to (node1, 29500)  who is not there
    {"message": {"message": "...", "extraInfo": {"py_callstack": "..."}}}      torchrun's error file
    [Gloo] Rank 3 is connected to 1 peer ranks. Expected number ... is : 3         who is alone
    enforce fail at pair.cc ... op.preamble.length <= op.nbytes. 8 vs 4        whose sizes differ

A log is data of a stranger: it is read with a bound, as text of any bytes, and nothing that it
names is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch_scenarios.record.evidence.job_log import (
    barrier,
    connection,
    end,
    error,
    mismatch,
    ras,
    watchdog,
)
from torch_scenarios.record.evidence.job_log.log import MOST_LINE, MOST_PREFIX, WORLD_RANK, JobLog
from torch_scenarios.record.evidence.stack import read_faults, read_stacks
from torch_scenarios.record.evidence.stack.position import (
    find_in_stacks,
    position_lines,
    value_lines,
)
from torch_scenarios.record.format import read_bounded, refusal
from torch_scenarios.verdict import Finding

#: bytes of a log
MOST_BYTES = 1 << 28
#: lines into which a terminal may have wrapped one
MOST_WRAPS = 8


def read_job_log(path: Path) -> JobLog:
    """Return what a log says. Raises ScenarioError where nothing that is known is in it."""
    content = read_bounded(path, MOST_BYTES)
    printed = [each[:MOST_LINE] for each in content.decode("utf-8", "replace").splitlines()]
    lines = [*_join_wrapped(printed)]
    log = JobLog(
        stacks={**read_faults(lines), **read_stacks(lines)},
        communicators=[*ras.read_communicators(content, lines)],
        unnamed=error.read_error_file(content),
    )
    for kind in (end, error, watchdog, barrier, mismatch, connection):
        kind.read(lines, log)
    if not log.errors and log.unnamed is None:
        error.read_unnamed(lines, log)
    if log.is_empty:
        words = (
            "nothing that is known is in it: no line of NCCL's watchdog, table of torchrun, stack "
            "of py-spy or faulthandler, error of a rank (`[rank0]: ...`), or JSON of NCCL's RAS"
        )
        raise refusal(path, "bad_record", words)
    return log


def _join_wrapped(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines, those of a work whole that a terminal has wrapped."""
    rest = iter(lines)
    for line in rest:
        whole = line
        for _ in range(MOST_WRAPS):
            begun = whole.rfind("WorkNCCL(")
            if begun < 0 or "ran for" in whole[begun:] or len(whole) > MOST_PREFIX * 5:
                break
            if (after := next(rest, None)) is None:
                break
            if "WorkNCCL(" in after or WORLD_RANK.search(after):
                yield whole
                whole = after
            else:
                whole += after
        yield whole


def find_in_log(log: JobLog) -> list[Finding]:
    """Return what is wrong, the nearest to the cause first."""
    kinds = (mismatch, error, end, barrier, watchdog, ras)
    found = [finding for kind in kinds for finding in kind.find(log)]
    found += [] if found else watchdog.find_halted(log)
    found += [*connection.find(log), *find_in_stacks(log.stacks, parses=False)]
    return found or [*connection.find_unreached(log), *error.find_lost(log)]


def log_lines(log: JobLog) -> list[str]:
    """Return where the ranks are by the stacks of a log."""
    return [*position_lines(log.stacks), *value_lines(log.stacks)]
