"""Who is connected: Gloo's peers, the store of a job and its port."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torch_scenarios.display import clean_line
from torch_scenarios.record.evidence.job_log.log import JobLog, make_finding
from torch_scenarios.verdict import Finding

#: to how many ranks Gloo has connected one, and of how many
_CONNECTED = re.compile(
    r"\[Gloo\] Rank (\d+) is connected to (\d+) peer ranks\. Expected number of connected peer "
    r"ranks is : (\d+)"
)
#: a rank that does not reach the store, or finds its port taken
_UNREACHED = re.compile(
    r"client socket has timed out after (\d+)ms .* to \(([^,()]{1,200}), (\d+)\)"
)
_TAKEN = re.compile(r"failed to bind to \S*?:(\d+) \(errno: \d+ - Address already in use\)")


def read(lines: Sequence[str], log: JobLog) -> None:
    """Read to how many ranks Gloo has connected one, and what is wrong with the store."""
    for line in lines:
        if (joined := _CONNECTED.search(line)) is not None:
            log.connected[int(joined[1][:9])] = (int(joined[2][:9]), int(joined[3][:9]))
        elif (lost := _UNREACHED.search(line)) is not None:
            log.unreached = (clean_line(lost[2]), int(lost[3][:9]), int(lost[1][:12]) / 1000)
        elif (taken := _TAKEN.search(line)) is not None:
            log.taken = int(taken[1][:9])


def find(log: JobLog) -> Iterator[Finding]:
    """Yield the ranks that Gloo has connected to fewer others than there are."""
    few = {rank: each for rank, each in log.connected.items() if each[0] < each[1]}
    for rank, (peers, expected) in sorted(few.items())[:1]:
        words = f"rank {rank} is connected to {peers} of {expected} other ranks"
        fix = (
            "Gloo connects every rank to every other one: let each machine reach the address that "
            "the others publish (GLOO_SOCKET_IFNAME names the interface), and open its ports."
        )
        yield make_finding("missing_participant", words, sorted(few), fix=fix)


def find_unreached(log: JobLog) -> Iterator[Finding]:
    """Yield why a rank has no store: its port is in use, or nothing answers there."""
    if log.taken is not None:
        words = f"port {log.taken} is already in use by another process"
        fix = (
            f"end what `ss -ltnp 'sport = :{log.taken}'` shows (a rank of an earlier job), or take "
            "another MASTER_PORT; `torchrun --standalone` takes a free one."
        )
        yield make_finding("outcome_differs", words, [], fix=fix)
    if log.unreached is not None and not log.errors:
        host, port, seconds = log.unreached
        words = f"a rank has not reached {host}:{port} within {seconds:.4g} s, where the store is"
        fix = (
            "let MASTER_ADDR be the node of rank 0 as the others resolve it, and its port be open; "
            "the process there may have ended: `scenario doctor` looks at each."
        )
        yield make_finding("missing_participant", words, [], fix=fix)
