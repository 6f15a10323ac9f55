"""What each rank has raised, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.job_log.log import (
    MOST_LINE,
    MOST_PREFIX,
    WORLD_RANK,
    JobLog,
    make_finding,
    read_rank,
)
from torch_scenarios.record.evidence.job_log.printed_error import (
    HEAD,
    PrintedError,
    make_error,
    read_error,
    read_errors,
    read_frame,
)
from torch_scenarios.record.evidence.stack import RankStack, StackFrame
from torch_scenarios.source.documents import DocumentError, decode_json
from torch_scenarios.verdict import Finding

_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$")
#: errors of a rank that waited in a call of Gloo's, where others did not come
WAITED = re.compile(r"Timed out waiting|Connection (?:closed|reset) by peer")
#: what raises anew the error of a worker of a loader, whose own traceback follows
_CAUGHT = re.compile(r": Caught \w+ in DataLoader worker process \d+\.")
#: errors of a rank that lost another one: that one is where to look
_LOST = re.compile(
    r"DistBackendError|DistNetworkError|Connection (?:closed|reset)|NCCL|timed? ?out|"
    r"monitoredBarrier|Detected mismatch between collectives",
    re.IGNORECASE,
)
#: what NCCL says last, a line behind the error
_LAST_ERROR = "Last error:"
#: which gradients DDP waits for
_UNUSED = re.compile(r"Parameter indices which did not receive grad for rank (\d+): ([\d ]+)")
#: errors, and what to do about each
_ADVICE = (
    (
        re.compile(r"clients joined"),
        (
            "a rank never came: compare WORLD_SIZE, MASTER_ADDR and MASTER_PORT on all nodes; "
            "`scenario doctor` looks at each."
        ),
    ),
    (
        re.compile(r"wait timeout after \d+ms, keys: /default_pg"),
        (
            "a rank did not come to `init_process_group` in that time: look for one that ended "
            "before it, or starts late (an import, a download, a cache); `timeout=` gives more."
        ),
    ),
    (
        re.compile(r"finished reduction in the prior iteration"),
        (
            "let every rank use all parameters in each forward pass, or pass "
            "`find_unused_parameters=True` to DDP; `scenario record` names the parameters."
        ),
    ),
    (
        re.compile(r"Duplicate GPU detected"),
        (
            "give each rank its own GPU before `init_process_group`: "
            "`torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`."
        ),
    ),
    (
        re.compile(r"illegal memory access|device-side assert"),
        "a kernel of this rank failed before: run with CUDA_LAUNCH_BLOCKING=1 to see which.",
    ),
    (
        re.compile(r"out of memory", re.IGNORECASE),
        "the others wait for this rank: let no rank skip what the others call (a smaller batch).",
    ),
)


#: the error that torchrun raises where a rank has failed
_LAUNCHER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"


def read(lines: Sequence[str], log: JobLog) -> None:
    """Read the errors that a rank's prefix stands before; the first of each rank counts."""
    frames: dict[int, list[StackFrame]] = {}
    caught: dict[int, PrintedError] = {}
    last: set[int] = set()
    for line in lines:
        if (unused := _UNUSED.search(line)) is not None:
            log.unused.setdefault(int(unused[1][:9]), unused[2][:200].strip())
        world = WORLD_RANK.search(line, 0, MOST_PREFIX)
        rank = None if world is None else read_rank(world[1])
        if world is None or rank is None:
            continue
        text = line[world.end() :].removeprefix(" ")
        if rank in log.errors:
            _read_last(text, rank, last, log.errors)
        elif HEAD.search(text):
            frames[rank] = []
        elif rank in frames and (frame := read_frame(text)) is not None:
            frames[rank].append(frame)
        elif (error := _ERROR.match(text)) is not None:
            found = caught if _CAUGHT.search(text) else log.errors
            found[rank] = make_error(error[1], frames.get(rank, ()))
    log.errors = {**caught, **log.errors}
    if _have_all_waited(log):  # where each raised is where it waited
        raised = {r: RankStack(rank=r, frames=each.frames) for r, each in log.errors.items()}
        log.stacks = {**log.stacks, **raised}


def _read_last(text: str, rank: int, last: set[int], errors: dict[int, PrintedError]) -> None:
    """Read what NCCL says last of an error: it is a line behind `Last error:`, on `last` ranks."""
    if rank in last and text.strip():
        words = make_error(f"{errors[rank].words}: {text.strip()[:500]}").words
        errors[rank] = replace(errors[rank], words=words)
        last.discard(rank)
    elif text.startswith(_LAST_ERROR):
        last.add(rank)


def _have_all_waited(log: JobLog) -> bool:
    """Whether each rank of which a log says anything has waited in a call up to its timeout.

    One may have lost its connection to another, which ended before by its own timeout.
    """
    errors = log.errors.values()
    return (
        len(errors) > 1
        and all(each.frames and WAITED.search(each.words) for each in errors)
        and {*log.ends} <= {*log.errors}
        and any("imed out" in each.words for each in errors)
    )


def read_error_file(content: bytes) -> PrintedError | None:
    """Return what torchrun's file of an error says, where a log is one."""
    try:
        document = decode_json(content) if content.lstrip()[:1] == b"{" else None
    except DocumentError:
        return None
    given = document.get("message") if isinstance(document, dict) else None
    if isinstance(given, str):
        return make_error(given) if given else None
    if not isinstance(given, dict):
        return None
    extra = given.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    found = read_error(each[:MOST_LINE] for each in str(stack).splitlines())
    if found is not None:
        return found
    words = str(given.get("message", "")).strip()
    return make_error(words.splitlines()[-1]) if words else None


def read_unnamed(lines: Sequence[str], log: JobLog) -> None:
    """Read the last error without a rank before it, but that of a launcher.

    It is of the rank that failed, where the log names one alone.
    """
    bare = [line for line in lines if WORLD_RANK.search(line, 0, MOST_PREFIX) is None]
    found = [each for each in read_errors(bare) if not each.words.startswith(_LAUNCHER)]
    failed = [rank for rank, code in log.ends.items() if code > 0]
    if found and len(failed) == 1:
        log.errors[failed[0]] = found[-1]
    elif found:
        log.unnamed = found[-1]


def is_own_error(log: JobLog, rank: int) -> bool:
    """Whether a rank has raised what is no loss of another one."""
    return rank in log.errors and _LOST.search(log.errors[rank].words) is None


def find(log: JobLog) -> Iterator[Finding]:
    """Yield what ranks have raised of their own; what the first rank to end raised comes first."""
    if log.unnamed is not None:
        words = f"the rank of this log raises {log.unnamed}"
        yield make_finding("outcome_differs", words, [], fix=advise(log.unnamed))
    own = sorted(rank for rank in log.errors if is_own_error(log, rank))
    for rank in sorted(own, key=lambda each: each != log.first_end):
        yield from _tell(log, rank)


def find_lost(log: JobLog) -> Iterator[Finding]:
    """Yield what the first rank has raised, be it that another is lost."""
    for rank in sorted(log.errors)[:1]:
        yield from _tell(log, rank)


def _tell(log: JobLog, rank: int) -> Iterator[Finding]:
    notes = []
    if rank in log.unused:
        words = f"parameters {log.unused[rank]} of DDP have no gradient on rank {rank}"
        notes = [Clause(words)]
    error = log.errors[rank]
    words = f"rank {rank} raises {error}"
    yield make_finding("outcome_differs", words, [rank], notes, advise(error))


def advise(error: PrintedError) -> str:
    """Return what to do about an error; nothing for one of the script's own."""
    found = next((advice for pattern, advice in _ADVICE if pattern.search(error.words)), "")
    if found or WAITED.search(error.words) is None:
        return found
    call = RankStack(rank=0, frames=error.frames).call
    where = f"in `{call}` " if call else ""
    return (
        f"it waited {where}for another rank, which ended before or never came: look at the logs of "
        "the others first."
    )
