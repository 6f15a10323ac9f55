"""What torch's DETAIL, and Gloo, say of ranks that meet with different calls or sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torch_scenarios.display import clean_line
from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.job_log.log import JobLog, make_finding
from torch_scenarios.verdict import Finding

#: the words of the error
SAYS = "Detected mismatch between collectives"
_MISMATCH = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\(SequenceNumber=(\d+), "
    r"OpType=(\w+)(?:, TensorShape=(\[[\d, ]*\]))?"
)


#: what Gloo says where a rank receives more than it expects; it ends the process then
_SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")


def read(lines: Sequence[str], log: JobLog) -> None:
    """Read what each of two ranks calls, and how many bytes came where others were expected."""
    for line in lines:
        if (sizes := _SIZES.search(line)) is not None and log.received is None:
            log.received = int(sizes[1][:18]), int(sizes[2][:18])
        if SAYS not in line:
            continue
        for one, number, kind, shape in _MISMATCH.findall(line):
            words = clean_line(f"{kind[:40]} {shape[:80]}".strip())
            log.mismatch.setdefault(int(one[:9]), (int(number[:12]), words))


def find(log: JobLog) -> Iterator[Finding]:
    """Yield which calls of ranks meet in one collective, as torch's DETAIL or Gloo saw it."""
    if len(log.mismatch) < 2:
        yield from _find_sizes(log)
        return
    places = {rank: each.place for rank, each in log.errors.items() if each.place}
    notes = [
        Clause(f"rank {rank} is in {words}" + (f" ({places[rank]})" if rank in places else ""))
        for rank, (_, words) in sorted(log.mismatch.items())
    ]
    number = next(iter(log.mismatch.values()))[0]
    one_line = {*log.mismatch} <= {*places} and len({places[rank] for rank in log.mismatch}) == 1
    kinds = {words.partition(" ")[0] for _, words in log.mismatch.values()}
    if len(kinds) == 1:
        code = "shape_mismatch"
        words = f"the ranks pass other shapes to {next(iter(kinds))} in collective {number}"
    else:
        code = "call_mismatch"
        words = f"the ranks meet with different calls in collective {number}"
    fix = (
        "find which way one of the two went before: `scenario record` on the script names the `if` "
        "or the loop."
    )
    if len(kinds) == 1 and one_line:
        place = places[next(iter(log.mismatch))]
        fix = (
            f"give the tensor at {place} the same shape on all ranks: print it there, and look at "
            "what it depends on (a last batch, a rank's own data)."
        )
    yield make_finding(code, words, sorted(log.mismatch), notes, fix)


def _find_sizes(log: JobLog) -> Iterator[Finding]:
    """Yield that a rank has received more bytes than it expected: Gloo compares nothing else."""
    if log.received is None:
        return
    came, expected = log.received
    words = f"ranks meet in one call of Gloo with tensors of other sizes: {came} bytes came where "
    words += f"{expected} were expected"
    notes = [
        Clause(f"rank {rank} waited at {each.place}")
        for rank, each in sorted(log.errors.items())
        if each.place
    ]
    fix = (
        "either a tensor has another size on each rank, or the ranks are in calls of different "
        "lines: `scenario record` on the script names the lines, and the `if` or the loop before."
    )
    yield make_finding("shape_mismatch", words, sorted(log.errors), notes, fix)
