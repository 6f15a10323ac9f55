"""What a rank says of itself before `init_process_group`: its number, its world, where it meets it.

Torch's call may never end, and then says nothing for minutes. So what it is called with is written
down first, by the rule by which torch reads it: arguments, the URL, then the environment. This runs
in the user's own process: it imports the standard library alone.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

#: what torch's `init_process_group` takes by position
_ARGUMENTS = ("backend", "init_method", "timeout", "world_size", "rank", "store")
#: addresses of every machine itself
_LOCAL = ("127.0.0.1", "localhost", "::1", "")
#: which process is a rank, of which world and where it meets: for programs that it starts
OWNER = "SCENARIO_RECORD_RANK"


def claim_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call of `init_process_group` says of its rank.

    `rank` and `world_size` are -1 where nothing says them; `method` is `env`, `tcp`, `file`,
    `store` or the scheme of another rendezvous, `address` and `port` (or a path) where ranks meet.
    """
    given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
    found: dict[str, Any] = {"backend": str(given.get("backend") or "").lower(), "address": ""}
    method = str(given.get("init_method") or "env://")
    parts = urlsplit(method)
    query = dict(parse_qsl(parts.query))
    found["method"] = "store" if given.get("store") is not None else parts.scheme
    for name in ("rank", "world_size"):
        value = given.get(name)
        value = _number(-1 if value is None else value)
        value = _number(query.get(name, -1)) if value < 0 else value
        if value < 0 and found["method"] == "env":
            value = _number(os.environ.get(name.upper(), "-1"))
        found[name] = value
    if found["method"] == "tcp":
        found["address"], found["port"] = parts.hostname or "", _port(parts)
    elif found["method"] == "env":
        found["address"] = os.environ.get("MASTER_ADDR", "")
        found["port"] = _number(os.environ.get("MASTER_PORT", "-1"))
        found["old_store"] = _may_find_old_keys()
    elif found["method"] == "store":
        store = given["store"]
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        found["address"] = str(getattr(store, "host", "") or getattr(store, "path", ""))
        found["port"] = _number(getattr(store, "port", -1))
    else:
        found["address"] = f"{parts.netloc}{parts.path}"
    timeout: Any = given.get("timeout")
    if hasattr(timeout, "total_seconds"):
        found["timeout_s"] = timeout.total_seconds()
    return found


def _may_find_old_keys() -> bool:
    """Whether ranks are started again, and meet in a store that torchrun may have kept.

    The processes of each start write their addresses under the same keys of the launcher's store.
    Earlier versions of torch put the number of the start before them
    (https://github.com/pytorch/pytorch/issues/135712).
    """
    is_again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if not is_again or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
        return False
    rendezvous = sys.modules.get("torch.distributed.rendezvous")
    create = getattr(rendezvous, "_create_c10d_store", None)
    code = getattr(create, "__code__", None)
    return code is not None and "TORCHELASTIC_RESTART_COUNT" not in code.co_consts


#: how far a port may be from a number that a rank is passed, and is still made of it
_NEAR = 1000
#: how deep what a rank is passed is looked into, and characters of a path that tell a folder
_DEPTH, _PATH = 4, 4


def comes_from_parent(claim: Mapping[str, Any], given: Sequence[Any]) -> bool:
    """Whether the place where a spawned rank meets the others may come from what it is passed.

    What it is passed is its function's arguments, and the plain values of the environment and the
    module before it began. A port or folder that is in none of them, the rank has chosen itself.
    """
    if claim["method"] not in {"env", "tcp", "file"}:
        return True
    port, address = int(claim.get("port", -1)), str(claim["address"])

    def tells(value: Any, depth: int) -> bool:
        if value is None or isinstance(value, bool | float):
            return False
        if isinstance(value, int):
            return port > 0 and abs(value - port) <= _NEAR
        if isinstance(value, bytes | os.PathLike):
            value = os.fsdecode(value)
        if isinstance(value, str):
            is_path = len(value) >= _PATH and os.sep in value and value in address
            return str(port) in value if port > 0 else is_path or value == address
        if depth <= 0:
            return True
        if isinstance(value, Mapping):
            return any(tells(each, depth - 1) for each in value.values())
        if isinstance(value, list | tuple | set | frozenset):
            return any(tells(each, depth - 1) for each in value)
        held = getattr(value, "__dict__", None)  # of other objects, such as a queue, all is open
        is_plain = isinstance(held, dict) and type(value).__module__ in {"argparse", "__main__"}
        return not is_plain or tells(held, depth - 1)

    return any(tells(each, _DEPTH) for each in given)


def has_other_port(claim: Mapping[str, Any], given: Sequence[Any], first: Sequence[Any]) -> bool:
    """Whether a spawned rank is passed another port than the first one, at the same place.

    `given` and `first` are the arguments of both, of one parent: `work({"MASTER_PORT": "29500"})`.
    """
    port = int(claim.get("port", -1))

    def differs(mine: Any, other: Any, depth: int) -> bool:
        if type(mine) is not type(other) or depth < 0:
            return False
        if isinstance(mine, Mapping):
            return any(differs(mine[key], other[key], depth - 1) for key in mine if key in other)
        if isinstance(mine, list | tuple):
            return any(differs(*each, depth - 1) for each in zip(mine, other, strict=False))
        if isinstance(mine, int | str) and not isinstance(mine, bool):
            ports = [re.findall(r"\d{4,5}", str(each)) for each in (mine, other)]
            return str(port) in ports[0] and bool(ports[1]) and str(port) not in ports[1]
        return False

    return port > 0 and differs([*given], [*first], _DEPTH)


def make_environment(folder: str | os.PathLike[str], python_path: str) -> dict[str, str]:
    """Return the environment variables under which a process records itself, or says what it is."""
    site = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "site")
    return {
        "SCENARIO_RECORD": os.path.realpath(folder),
        "PYTHONPATH": f"{site}{os.pathsep}{python_path}" if python_path else site,
    }


def tell_programs(rank: int, claim: Mapping[str, Any]) -> None:
    """Let programs that this process starts know which rank of which world it is."""
    world, place = claim["world_size"], [claim["address"], claim.get("port", -1)]
    os.environ[OWNER] = json.dumps([os.getpid(), rank, world, place])


def release_programs() -> None:
    """Let programs that this process starts know that it is in no world any more."""
    if OWNER in os.environ:
        os.environ[OWNER] = json.dumps([os.getpid()])


def rank_joined(claim: Mapping[str, Any]) -> int | None:
    """Return the rank that has started this program, and whose place in its world it takes.

    -1 where it is started by a rank and joins no world of that; None where it is started by none.
    """
    try:
        pid, *rest = json.loads(os.environ.get(OWNER, ""))
    except ValueError:
        return None
    if pid == os.getpid():
        return None
    place = [claim["address"], claim.get("port", -1)]
    same = bool(rest) and rest[1:] == [claim["world_size"], place] and claim["rank"] == rest[0]
    return int(rest[0]) if same else -1


def _number(value: object) -> int:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return -1


def _port(parts: Any) -> int:
    try:
        return int(parts.port or -1)
    except ValueError:
        return -1


def examine(claim: dict[str, Any]) -> None:
    """Add what this machine knows of the address: `unresolved`, or `taken` for a port in use.

    The port is tried where this rank is to listen: rank 0, by its own address.
    """
    address, port = claim["address"], claim.get("port", -1)
    if claim["method"] not in {"env", "tcp"} or not 0 < port < 65_536:
        return
    if address not in _LOCAL:
        try:
            socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            claim["unresolved"] = str(getattr(error, "strerror", None) or error)
            return
    claim["own"] = is_own(address)
    serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True)
    if claim["rank"] == 0 and serves and claim["own"]:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("", port))
            except OSError as error:
                claim["taken"] = str(error.strerror or error)
                claim["self"] = _listens(port)


def _listens(port: int) -> bool:
    """Whether this process itself listens at a port; False where that is not known."""
    held = set()
    with suppress(OSError):  # no `/proc`
        for each in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # it was open to list them
                held.add(os.readlink(f"/proc/self/fd/{each}"))
    for table in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/net/{table}", encoding="ascii") as rows:
            for row in [each.split() for each in rows][1:]:
                is_open = row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port
                if is_open and f"socket:[{row[9]}]" in held:
                    return True
    return False


#: the state of a socket that waits for others, as the kernel writes it
_LISTENS = "0A"


def is_own(address: str) -> bool:
    """Whether an address, or a name, is of this machine."""
    if address in _LOCAL:
        return True
    try:
        for family, kind, _, _, place in socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as trial:
                trial.bind(place)
            return True
    except OSError:
        return False
    return False


def watch_claims(
    recorder: Any, module: Any, dist: Any, agree: Callable[[dict[str, Any]], None]
) -> None:
    """Let the recorder know what each call of `init_process_group` says, before it is made.

    It stands before everything else that changes the call. `agree` may change the environment.
    """
    begin = dist.init_process_group

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        claim = claim_of(args, kwargs)
        agree(claim)
        if recorder.is_spawned and comes_from_parent(claim, recorder.given):
            # each fake rank runs its parent, which chooses one place for all of them
            claim |= {"method": "spawn", "address": "the place that their parent chooses"}
            if has_other_port(claim, recorder.given, recorder.given_first):
                claim["address"] = f"a port that their parent gives rank {claim['rank']} alone"
        examine(claim)
        recorder.claim = claim
        try:
            return begin(*args, **kwargs)
        finally:
            recorder.claim = None

    init_process_group.__name__, init_process_group.__doc__ = begin.__name__, begin.__doc__
    for holder in (module, dist):
        holder.init_process_group = init_process_group
