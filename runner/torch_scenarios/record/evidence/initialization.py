"""What is wrong with the start of a job: `init_process_group` on ranks that can never meet.

Torch's call waits for a world that is complete, for minutes, and then names no rank. What each rank
says of itself before (:mod:`torch_scenarios.record.evidence.claim`) shows at once why it is not::

    rank 0   init_process_group(world_size=2)   waits for 2 ranks at localhost:29500
    rank 1   init_process_group(world_size=3)   waits for 3
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason, short
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.job_log.printed_error import read_error
from torch_scenarios.record.evidence.reasons.value_source import trace_value
from torch_scenarios.record.evidence.script import Script, name_of, place_at, script_at
from torch_scenarios.record.format import (
    BROKEN,
    RENDEZVOUS,
    RankRecord,
    ScriptPlace,
    lines_of,
    script_frames,
)
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: lines of a record in which its first `init_process_group` is looked for
MOST_LINES = 2000
#: processes that are listed one by one
MOST_SHOWN = 8


#: the number of nodes that torchrun is told of, behind an option of its own or in it
_NODES = ("--nnodes", "--nnode", "--num-machines", "--num_machines")


def tell_nodes(command: Sequence[str]) -> str:
    """Return that a launcher waits for other nodes, by its command; nothing where it may not."""
    for at, each in enumerate(command):
        option, equals, value = each.partition("=")
        value = value if equals else next(iter(command[at + 1 : at + 2]), "")
        least = value.partition(":")[0]
        if option in _NODES and least.isdecimal() and int(least) > 1:
            return (
                f"no rank has started: the launcher waits for {least} nodes (`{option} {value}`); "
                f"start it on all of them, or with `{option} 1`"
            )
    return ""


class Claim(Struct, kw_only=True):
    """What one process says of its rank before it meets the others, and whether it has met them."""

    pid: int
    host: str
    #: the rank that its launcher gave it
    started_as: int
    rank: int
    world_size: int
    backend: str
    method: str
    address: str
    port: int
    place: ScriptPlace
    is_own: bool = False
    unresolved: str = ""
    taken: str = ""
    #: the process itself listens at the port that is taken, and this line made it listen
    is_self: bool = False
    listens_at: ScriptPlace | None = None
    left: bool = False
    failed: str = ""
    #: when it asks, in seconds by a clock that all processes of a machine have
    asked_s: float = 0.0
    #: its launcher has started it again, maybe in the store in which it was before
    has_old_store: bool = False
    #: the files that it removes: each path, where, and when
    removed: tuple[tuple[str, ScriptPlace, float], ...] = ()

    @property
    def where(self) -> str:
        """Where it meets the others, as a person writes it."""
        if self.method in {"env", "tcp"} or (self.method == "store" and self.port > 0):
            return f"{self.address or 'no address'}:{self.port}"
        return self.address or self.method

    @property
    def meets(self) -> Hashable:
        """What is the same of all that meet at one place."""
        if self.method in {"env", "tcp"}:
            return (self.host if self.is_own else self.address), self.port
        return self.method if self.method == "store" else (self.method, self.address)


def read_claims(folder: Path, start: str = "") -> list[Claim]:
    """Return what the processes of a record say of themselves, one each; none where they do not.

    `start` is how the names of their files begin: `EARLIER` for those of the start before.
    """
    found = []
    for path in sorted(folder.glob(f"{start}rank-*.jsonl")):
        claim = _read_claim(path)
        if claim is not None:
            found.append(claim)
    return sorted(found, key=lambda each: (each.rank, each.started_as))


def _read_claim(path: Path) -> Claim | None:
    places: dict[Any, ScriptPlace] = {}
    ports: dict[str, ScriptPlace] = {}
    removed: list[tuple[str, ScriptPlace, float]] = []
    claim, number = None, -1
    try:
        lines = itertools.islice(lines_of(path), MOST_LINES)
        about = next(lines, None)
        if not isinstance(about, dict):
            return None
        for line in lines:
            if line[0] == "s":
                places[line[1]] = ScriptPlace(frames=script_frames(line[3]), api=str(line[2]))
            elif line[0] == "a" and line[1] == "binds":
                ports[str(line[2])] = places[line[3]]
            elif line[:2] == ["a", "removes"]:
                removed.append((str(line[2]), places[line[3]], _time(about, line[4])))
            elif claim is None and line[0] == "b" and line[2] == RENDEZVOUS and "init" in line[5]:
                number, claim = line[1], _claim(about, line[5]["init"], places[line[3]])
                claim.listens_at = ports.get(str(claim.port))
                claim.asked_s, claim.removed = _time(about, line[4]), tuple(removed)
            elif claim is not None and line[0] == "be" and line[1] == number:
                claim.left, claim.failed = line[4] is None, str(line[4] or "")
                break
    except (*BROKEN, OSError):
        return None
    return claim


def _time(about: Mapping[str, Any], us: float) -> float:
    return float(about.get("time", 0.0)) + us / 1e6


def _claim(about: Mapping[str, Any], claim: Mapping[str, Any], place: ScriptPlace) -> Claim:
    return Claim(
        pid=int(about.get("pid", 0)),
        host=str(about.get("host", "")),
        started_as=int(about["rank"]),
        rank=int(claim["rank"]),
        world_size=int(claim["world_size"]),
        backend=str(claim["backend"]),
        method=str(claim["method"]),
        address=str(claim["address"]),
        port=int(claim.get("port", -1)),
        is_own=bool(claim.get("own")),
        unresolved=str(claim.get("unresolved", "")),
        taken=str(claim.get("taken", "")),
        is_self=bool(claim.get("self")),
        has_old_store=bool(claim.get("old_store")),
        place=place,
    )


class JobStart(Struct, frozen=True, kw_only=True):
    """How a job started: what its processes say, and who never came to say anything.

    `absent` has the ranks that were started and never came, and in words how each ended. `is_whole`
    says that no process can be there that is not known, `is_cut_off` that the run was ended while
    others may still have come. `earlier` has what the start before said, where a launcher has begun
    the ranks again, and `why_again` how that one ended. `now_s` is when this is asked, by the clock
    of the claims, `home` what places are relative to.
    """

    claims: Sequence[Claim]
    earlier: Sequence[Claim] = ()
    why_again: Sequence[str] = ()
    now_s: float = 0.0
    absent: Mapping[int, str] = {}
    is_whole: bool = False
    is_cut_off: bool = False
    home: str = ""


def find_in_start(start: JobStart) -> list[Finding]:
    """Return what keeps the ranks apart: one finding, the first of what can be wrong."""
    if not start.claims:
        return []
    for look in _LOOKS:
        found = look(start)
        if found is not None:
            return [found]
    return []


def absent_ranks(
    records: Mapping[int, RankRecord], claims: Sequence[Claim], exits: Mapping[int, int]
) -> dict[int, str]:
    """Return the started ranks that ended without `init_process_group`, with how they ended."""
    came = {each.started_as for each in claims}
    found = {}
    for rank in sorted({*records, *exits} - came):
        record = records.get(rank)
        if record is not None and record.error is not None:
            where = record.raised_at.short()
            found[rank] = f"it raised {record.error}" + (f" ({where})" if where else "")
        elif rank in exits and exits[rank] < 0:
            found[rank] = f"it was killed by signal {-exits[rank]}"
        elif rank in exits or (record is not None and record.ending == "ended"):
            left = record.left_at.short() if record is not None else ""
            code = exits.get(rank, record.code if record is not None else 0)
            found[rank] = f"it ended with code {code or 0} before" + (f" ({left})" if left else "")
    return found


# -------------------------------------------------------------------------------------------------
# What can be wrong, the cause before what follows from it.


def _looks_elsewhere(start: JobStart) -> Finding | None:
    """Ranks that meet at different places: another address, port, file or method."""
    claims = [each for each in start.claims if each.method != "store"]
    worlds = _sides(claims, lambda each: each.meets)
    if len(worlds) < 2 or all(_is_complete(each) for each in worlds.values()):
        return None
    if all(each.left for each in claims) and not _is_fake_or_waiting(start):
        return None
    clauses = _clauses(start, worlds, lambda each: f"{{}} at {each.where}", "meets", "meet")
    clauses += [
        Clause(f"`{each.address}` does not resolve on rank {each.rank}: {each.unresolved}")
        for each in claims
        if each.unresolved
    ][:1]
    names = ["init_method"]
    for name, differing in (("MASTER_ADDR", "address"), ("MASTER_PORT", "port")):
        names += [name] * (len({getattr(each, differing) for each in claims}) > 1)
    lines = (each for own in worlds.values() for each in _origin(start, own[0], *names))
    clauses += dict.fromkeys(lines)
    return _make_finding(
        start,
        "the ranks look for each other at different places, and never meet",
        clauses,
        "give every rank the same MASTER_ADDR and MASTER_PORT (or `init_method`), those of rank 0."
        if any(each.method in {"env", "tcp"} or each.port > 0 for each in claims)
        else "give every rank the same `init_method`: one path that all of them see.",
    )


def _is_complete(claims: Sequence[Claim]) -> bool:
    """Whether ranks are a whole world by themselves."""
    sizes = {each.world_size for each in claims}
    return len(sizes) == 1 and sorted(each.rank for each in claims) == list(range(*sizes))


def _is_fake_or_waiting(start: JobStart) -> bool:
    return any(not each.left for each in start.claims) or not any(
        each.host for each in start.claims
    )


def _loops_back(start: JobStart) -> Finding | None:
    """A rank of another machine that looks for rank 0 on its own."""
    hosts = {each.host for each in start.claims}
    first = next((each for each in start.claims if each.rank == 0), None)
    if len(hosts) < 2 or first is None:
        return None
    wrong = [
        each
        for each in start.claims
        if each.host != first.host and each.address in {"localhost", "127.0.0.1", "::1"}
    ]
    if not wrong or wrong[0].left:
        return None
    sides = {each.host: [other for other in wrong if other.host == each.host] for each in wrong}
    return _make_finding(
        start,
        f"rank 0 is on {first.host}, and ranks of other machines look for it at their own address",
        _clauses(
            start, sides, lambda each: f"(on {each.host}) {{}} at {each.where}", "asks", "ask"
        ),
        f"set MASTER_ADDR to the name or address of {first.host} on every machine.",
    )


def _differs_in_size(start: JobStart) -> Finding | None:
    sides = _sides(start.claims, lambda each: each.world_size)
    if len(sides) < 2 or all(
        _is_complete(each) for each in _sides(start.claims, lambda each: each.meets).values()
    ):
        return None
    return _make_finding(
        start,
        "the ranks do not agree on the world size, and `init_process_group` never ends",
        [
            *_clauses(
                start, sides, lambda each: f"{{}} world_size={each.world_size}", "says", "say"
            ),
            *_origin(start, start.claims[0], "world_size", "WORLD_SIZE"),
        ],
        "pass the same `world_size` on every rank: the number of processes that are started "
        "(WORLD_SIZE under torchrun).",
    )


def _is_twice(start: JobStart) -> Finding | None:
    sides = _sides(start.claims, lambda each: (each.meets, each.rank))
    several = next((each for each in sides.values() if len(each) > 1), None)
    if several is None:
        return None
    rank, size = several[0].rank, several[0].world_size
    missing = sorted(set(range(size)) - {each.rank for each in start.claims})
    clauses = [
        Clause(f"{_process(each)} says rank={each.rank}{_place(each, start.home)}")
        for each in several[:MOST_SHOWN]
    ]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        clauses.append(Clause(f"{ranks_text(missing)} {verb} missing in this world of {size}"))
    clauses += _origin(start, several[0], "rank", "RANK")
    return _make_finding(
        start,
        f"{_count(len(several))} processes say that they are rank {rank}, and "
        "`init_process_group` never ends",
        clauses,
        "give each process a rank of its own (RANK under torchrun; LOCAL_RANK is the same on every "
        "machine).",
    )


def _is_removed(start: JobStart) -> Finding | None:
    """A file at which ranks are to meet, and that one of them removes when another has come there.

    A file of an earlier run has to go, and no rank knows whether another one has made it anew.
    """
    for claim in start.claims:
        for path, place, removed_s in claim.removed:
            here = [
                each
                for each in start.claims
                if each.method in {"file", "store"}
                and each.address == path
                and each is not claim
                and each.asked_s < removed_s
            ]
            if not here or (all(each.left for each in start.claims) and claim.host):
                continue
            where = place.short(start.home)
            waits = "waits" if len(here) == 1 else "wait"
            ranks = ranks_text([each.rank for each in here])
            after = removed_s - max(each.asked_s for each in here)
            clauses = [
                Clause(f"{ranks} {waits} at {path}{_place(here[0], start.home)}"),
                Clause(
                    f"rank {claim.rank} removes it ({where}) {after:.1f} s later, and makes one of "
                    "its own"
                ),
            ]
            return _make_finding(
                start,
                f"rank {claim.rank} removes the file at which {ranks} {waits} for it, and they "
                "never meet",
                clauses,
                f"let no rank remove the file ({where}): let what starts the ranks choose a new "
                "file for each run, or meet by `env://`.",
            )
    return None


def _is_outside(start: JobStart) -> Finding | None:
    wrong = [each for each in start.claims if not 0 <= each.rank < each.world_size]
    if not wrong or any(each.left and each.host for each in wrong):  # a fake rank leaves it always
        return None
    sides = _sides(wrong, lambda each: each.rank)
    return _make_finding(
        start,
        f"rank {wrong[0].rank} is not in a world of {wrong[0].world_size} ranks",
        [
            *_clauses(
                start,
                sides,
                lambda each: f"{{}} rank={each.rank}, world_size={each.world_size}",
                "says",
                "say",
            ),
            *_origin(start, wrong[0], "world_size", "WORLD_SIZE", "rank", "RANK"),
        ],
        "ranks count from 0 to world_size - 1: set RANK and WORLD_SIZE, or pass both.",
    )


def _has_no_name(start: JobStart) -> Finding | None:
    lost = [each for each in start.claims if each.unresolved and not each.left]
    fake = [each for each in start.claims if each.unresolved and not each.host]
    lost = lost or fake
    if not lost:
        return None
    sides = _sides(lost, lambda each: each.where)
    return _make_finding(
        start,
        f"the address `{lost[0].address}` does not resolve ({lost[0].unresolved}), and "
        "`init_process_group` never finds rank 0",
        [
            *_clauses(start, sides, lambda each: f"{{}} for rank 0 at {each.where}", "asks", "ask"),
            *_origin(start, lost[0], "init_method", "MASTER_ADDR"),
        ],
        "set MASTER_ADDR (or the host of `init_method`) to a name that every rank's machine "
        "resolves, or to an address.",
    )


def _has_no_port(start: JobStart) -> Finding | None:
    lost = next((each for each in start.claims if each.taken), None)
    if lost is None or (lost.left and lost.host):
        return None
    user = f"rank {lost.rank} itself" if lost.is_self else "another program"
    waiting = [each.rank for each in start.claims if each.rank != lost.rank]
    clauses = [Clause(f"rank {lost.rank} is to listen at {lost.where}{_place(lost, start.home)}")]
    if lost.is_self and lost.listens_at is not None:
        where = lost.listens_at.short(start.home)
        clauses.append(Clause(f"it listens there itself since {where}"))
    if waiting:
        verb = "asks" if len(waiting) == 1 else "ask"
        clauses.append(Clause(f"{ranks_text(waiting)} {verb} the program that listens there"))
    return _make_finding(
        start,
        f"port {lost.port} is in use by {user} ({lost.taken}), and rank 0 cannot listen there",
        clauses,
        "let the script's own server listen at another port, or choose another MASTER_PORT."
        if lost.is_self
        else "choose another MASTER_PORT; or let torchrun choose a free one: "
        "`torchrun --rdzv-backend c10d --rdzv-endpoint localhost:0`.",
    )


def _is_missing(start: JobStart) -> Finding | None:
    """Return the finding that ranks of the world have never come to `init_process_group`.

    None where all came, and where a record that is not whole cannot tell.
    """
    size = max(each.world_size for each in start.claims)
    missing = sorted(set(range(size)) - {each.rank for each in start.claims})
    absent = {rank: words for rank, words in start.absent.items() if rank in missing}
    is_waiting = not start.is_cut_off and not any(each.left for each in start.claims)
    if not missing or not (start.is_whole or absent or is_waiting) or size > 65_536:
        return None
    unknown = [rank for rank in missing if rank not in absent]
    if unknown and not start.is_whole and not is_waiting:
        missing, unknown = sorted(absent), []
    clauses = _clauses(
        start,
        _sides(start.claims, lambda each: each.place.short(start.home)),
        lambda _: "{} in `init_process_group`",
        "waits",
        "wait",
    )
    largest = next(each for each in start.claims if each.world_size == size)
    joined = _find_join(start, largest)
    if joined is None:
        shown = sorted(absent)[:MOST_SHOWN]
        clauses += [Clause(f"rank {rank}: {absent[rank]}") for rank in shown]
    else:
        clauses.append(joined[0])
    if unknown:
        verb = "was" if len(unknown) == 1 else "were"
        clauses.append(
            Clause(f"{ranks_text(unknown)} {verb} never started, or did not come so far")
        )
    if unknown and joined is None:
        clauses += _origin(start, largest, "world_size", "WORLD_SIZE")
        clauses += _tell_starts(start, largest)
    comes = "comes" if len(missing) == 1 else "come"
    return _make_finding(
        start,
        f"{ranks_text(missing)} never {comes} to `init_process_group`, which waits for all "
        f"{size} ranks",
        clauses,
        joined[1]
        if joined is not None
        else "let every rank call `init_process_group`, before any `return`, exit or error of one "
        "rank alone; or start as many processes as `world_size` says.",
        ranks=tuple(missing),
    )


def _differs_in_backend(start: JobStart) -> Finding | None:
    sides = _sides([each for each in start.claims if each.backend], lambda each: each.backend)
    if len(sides) < 2:
        return None
    names = [{part.rpartition(":")[2] for part in str(each).split(",")} for each in sides]
    if set.intersection(*names):
        return None
    return _make_finding(
        start,
        "the ranks ask for different backends, which cannot communicate with each other",
        [
            *_clauses(start, sides, lambda each: f'{{}} for "{each.backend}"', "asks", "ask"),
            *_origin(start, next(iter(sides.values()))[0], "backend"),
        ],
        "pass the same `backend` on every rank (a condition on `torch.cuda.is_available()` differs "
        "where one machine has no GPU).",
    )


#: seconds in `init_process_group` after which ranks that all came there do not meet any more
MOST_INIT_S = 30.0


def _reads_old_keys(start: JobStart) -> Finding | None:
    """Ranks that torchrun has started again, in the store in which it had started them before.

    Gloo's ranks find the addresses of processes that have ended, NCCL's the id of their group.
    """
    known = {(each.address, each.port) for each in start.earlier}
    lost = [
        each
        for each in start.claims
        if each.has_old_store and not each.left and (each.address, each.port) in known
    ]
    since_s = start.now_s - max((each.asked_s for each in start.claims), default=0.0)
    is_over = start.is_cut_off or any(each.failed for each in lost) or since_s > MOST_INIT_S
    if not lost or not is_over:
        return None
    sides = _sides(lost, lambda each: each.where)
    clauses = [
        *map(Clause, start.why_again),
        *_clauses(start, sides, lambda each: f"{{}} at {each.where} again", "meets", "meet"),
        Clause(
            "torchrun keeps its store there over its restarts, and what a process wrote in it for "
            "the others (Gloo its address, NCCL the id of the group) is still there"
        ),
    ]
    return _make_finding(
        start,
        "the ranks that torchrun has started again look for processes of the start before in "
        "`init_process_group`",
        clauses,
        "let each start have its own store: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, and "
        "call torchrun with `--standalone` or `--rdzv-backend c10d`.",
    )


_LOOKS: tuple[Callable[[JobStart], Finding | None], ...] = (
    _looks_elsewhere,
    _loops_back,
    _differs_in_size,
    _is_removed,
    _is_twice,
    _is_outside,
    _has_no_name,
    _has_no_port,
    _is_missing,
    _differs_in_backend,
    _reads_old_keys,
)


# -------------------------------------------------------------------------------------------------
# Words.


def _sides(
    claims: Sequence[Claim], key: Callable[[Claim], Hashable]
) -> dict[Hashable, list[Claim]]:
    found: dict[Hashable, list[Claim]] = {}
    for each in claims:
        found.setdefault(key(each), []).append(each)
    return dict(sorted(found.items(), key=lambda item: len(item[1])))


def _clauses(
    start: JobStart,
    sides: Mapping[Any, Sequence[Claim]],
    words: Callable[[Claim], str],
    one: str,
    many: str,
) -> list[Clause]:
    """Return a clause for each side: its ranks, what they do, and the line that does it."""
    found = []
    for claims in [*sides.values()][:MOST_SHOWN]:
        verb = one if len(claims) == 1 else many
        does = words(claims[0]).format(verb)
        ranks = sorted(each.rank for each in claims)
        found.append(Clause(f"{ranks_text(ranks)} {does}{_place(claims[0], start.home)}"))
    return found


def _place(claim: Claim, home: str) -> str:
    where = claim.place.short(home)
    return f" ({where})" if where else ""


#: where `init_process_group` takes its arguments by position
_POSITIONS = {"backend": 0, "init_method": 1, "world_size": 3, "rank": 4}
#: lines behind an argument that are shown
MOST_BEHIND = 4


def _origin(start: JobStart, claim: Claim, *names: str) -> Iterator[Clause]:
    """Yield the lines of the script that set what a call of `init_process_group` gets.

    `names` are its arguments, and variables of the environment, which are written large.
    """
    lines: dict[tuple[str, int], Script] = {}
    for name in names:
        for frames, value in _list_set(claim.place.frames, name):
            if frames[0] != claim.place.frames[0]:
                lines.update(_list_known((script_at(frames[0][0]), frames[0][1])))
            traced = trace_value(frames, value)
            options = [*_list_options(frames[0][0], value)]
            for script, at in traced:
                for set_to in script.values(at):
                    options += _list_options(script.file, set_to)
            read = {at: script for script, at in options}
            for script, at in [*traced[:1], *((e, at) for at, e in read.items()), *traced[1:]]:
                if not _KEEPS.fullmatch(script.text(at)):
                    lines.update(_list_known((script, at)))
    # the first line says what is passed; then come those that count without their variable
    first = next(iter(lines), None)
    order = sorted(
        lines.items(),
        key=lambda each: each[0] != first and _DEFAULT.search(each[1].text(each[0][1])) is None,
    )
    shown = [
        f"`{script.text(at)}` ({place_at(file, at, start.home)})" for (file, at), script in order
    ]
    if shown:
        yield Clause(f"this comes from {', '.join(shown[:MOST_BEHIND])}")


#: a variable of the environment whose default counts where it is not set: `get("NODES", 1)`
_DEFAULT = re.compile(r"""(?:\bget|getenv)\(["'][A-Z][A-Z0-9_]*["'],(?! *None)""")


#: a line that keeps what it is given: `self.meet = meet`
_KEEPS = re.compile(r"self\.(\w+)(?:: \w+)? = \1")


def _list_known(at: tuple[Script | None, int]) -> dict[tuple[str, int], Script]:
    script, line = at
    return {(script.file, line): script} if script is not None else {}


def _list_set(frames: Frames, name: str) -> Iterator[tuple[Frames, ast.expr]]:
    """Yield what an argument, or a variable of the environment, is set to, and where that is."""
    for number, (file, line, _) in enumerate(frames):
        source = script_at(file)
        if source is None:
            return
        if not name.isupper():
            value = source.argument(line, {name}, {"init_process_group": _POSITIONS[name]})
            if value is not None:
                yield frames, value
            return
        at = source.environment({name})
        if at:
            callers = frames[number + 1 :] if source.scope(at) is source.scope(line) else ()
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Assign) and node.lineno == at:
                    yield ((file, at, ""), *callers), node.value
            return


def _list_options(file: str, value: ast.expr) -> Iterator[tuple[Script, int]]:
    """Yield the options of the command line that a value reads, also those with a fixed default."""
    source = script_at(file)
    read = [each for each in ast.walk(value) if isinstance(each, ast.Attribute)]
    for each in read if source is not None else ():
        assert source is not None
        option = source.option(each, is_fixed=True)
        if option is not None:
            yield option[0]


def _process(claim: Claim) -> str:
    where = f" on {claim.host}" if claim.host else ""
    return f"process {claim.pid}{where}"


def _count(number: int) -> str:
    return {2: "two", 3: "three", 4: "four"}.get(number, str(number))


def _make_finding(
    start: JobStart, prose: str, clauses: Sequence[Clause], fix: str, ranks: tuple[int, ...] = ()
) -> Finding:
    found = ranks or tuple(sorted({each.rank for each in start.claims if each.rank >= 0}))
    return Finding(
        witness="program",
        code="never_meets",
        diagnosis="never_meets",
        prose=prose,
        notes=tuple(clauses),
        ranks=found,
        name="outcome",
        fix=fix,
        help=(fix,),
    )


def find_waiting(claims: Sequence[Claim]) -> Iterator[Claim]:
    """Yield those that wait in `init_process_group`."""
    return (each for each in claims if not each.left and not each.failed)


def _tell_starts(start: JobStart, claim: Claim) -> Iterator[Clause]:
    """Yield where the script itself starts processes, by the loop around the line if one is."""
    for file, _, _ in claim.place.frames[:1]:
        source = script_at(file)
        for line in source.starts() if source is not None else ():
            assert source is not None
            loops = (each for each, _ in source.find_statements(line) if isinstance(each, ast.For))
            at = next((each.lineno for each in loops), line)
            place = source.place(at, start.home)
            yield Clause(f"the script starts processes by `{source.text(at)}` ({place})")


#: what waits for a process to end
_WAITS = frozenset({"join"})


def _find_join(start: JobStart, claim: Claim) -> Reason | None:
    """Return the `join` in a loop that starts processes: each is waited for before the next."""
    for file, _, _ in claim.place.frames[:1]:
        source = script_at(file)
        for line in source.starts() if source is not None else ():
            assert source is not None
            for loop, _ in source.find_statements(line):
                calls = [each for each in ast.walk(loop) if isinstance(each, ast.Call)]
                begun = {_owner(each) for each in calls if name_of(each.func) == "start"}
                ends = [each for each in calls if name_of(each.func) in _WAITS]
                ends = [each for each in ends if _owner(each) in begun and not each.args]
                if not isinstance(loop, ast.For | ast.While) or not ends:
                    continue
                at, place = (
                    source.place(number, start.home) for number in (ends[0].lineno, loop.lineno)
                )
                words = f"`{source.text(ends[0].lineno)}` ({at}) waits in each turn of "
                words += f"`{source.text(loop.lineno)}` ({place}) for the process that was just "
                words += "started, so that the next one is never started"
                fix = f"start all processes first, and `join` them in a second loop ({at})."
                return Clause(words), fix
    return None


def _owner(call: ast.Call) -> str:
    """Return what a method is called on."""
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


#: the file of a record that has the traceback of the program which starts the ranks
PARENT_ERROR = "parent.error"
#: bytes of it that are read
MOST_TRACEBACK = 1 << 16
_PROCESS = re.compile(r"-- Process (\d+) terminated")


def tell_parent_error(folder: Path, command: str, code: int) -> str:
    """Return why a program ended before any rank came to `init_process_group`; or nothing.

    `mp.spawn` raises in the parent what the first of its processes has raised, with its traceback::

        -- Process 1 terminated with the following error:
          File "train.py", line 8, in work
        KeyError: 'WORLD'
    """
    path = folder / PARENT_ERROR
    if not code or not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as kept:
        text = kept.read(MOST_TRACEBACK)
    error = read_error(text.splitlines())
    if error is None:
        return ""
    begin = _PROCESS.search(text)
    who = f"process {begin[1]} that it starts" if begin is not None else "it"
    kind, *words = error.words.split(":", 1)
    raised = ":".join([kind.rpartition(".")[2], *words])
    own = [(each.filename, each.line, "") for each in error.own[:1]]
    where = f" ({short(tuple(own), str(Path.cwd()))})" if own else ""
    return (
        f"FAILED       {command}  ended with code {code} before any rank came to "
        f"`init_process_group`\n  {who} raises {raised}{where}"
    )
