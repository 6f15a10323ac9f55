"""Hosts simulated on one machine: network namespaces, joined by a bridge in one more.

    node 0 (eth0 10.77.0.1) --- p0 [bridge] p1 --- (eth0 10.77.0.2) node 1

None of them has a name, and each lives as long as a process in it: every process here dies with
its parent, so that nothing outlives a run, however it ends. All are forked from the process of the
command line, and named after their host. Without root the namespaces belong to
a user namespace. Needs `ip` (iproute2). Knows nothing of scenarios and nothing of torch.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWUTS = 0x10000000, 0x40000000, 0x04000000
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
PORT = 29400
#: addresses inside the namespaces; they exist nowhere else
NETWORK = "10.77.0."
INTERFACE = "eth0"
#: this file as a program: as a module of the package it would import what it does not need
_OURSELVES = (sys.executable, "-I", "-S", os.path.abspath(__file__))


def address(number: int) -> str:
    """Return the address of a node."""
    return f"{NETWORK}{number + 1}"


def lack() -> str | None:
    """Return why this machine can simulate no hosts; None where it can. Tried, in a process."""
    if shutil.which("ip") is None:
        return "`ip` is not installed (Debian: iproute2)"
    done = subprocess.run(_OURSELVES, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines()
    return said[-1] if said else "network namespaces cannot be made here"


def run(nodes: int, command: Callable[[], object]) -> int:
    """Call something on each of some simulated hosts; return the exit code of the first one's.

    Each host is a process forked from this one, so that what is imported here is imported once;
    to be called before this process has threads. `command` finds the number of its host in `NODE`,
    and `GLOO_SOCKET_IFNAME` set; its exit code is that of the SystemExit that it raises.
    """
    own = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    switch = os.fork()
    if switch == 0:
        code = 3
        try:
            _die_with(own)
            code = _switch(nodes, command)
        except OSError as error:
            os.write(2, f"{error.strerror or error}\n".encode())
        finally:
            os._exit(code)
    while True:
        try:
            return os.waitstatus_to_exitcode(os.waitpid(switch, 0)[1])
        except KeyboardInterrupt:  # the hosts have it as well, and end as they should
            continue


# Inside: the process of the switch, and one for each node.


def _die_with(parent: int) -> None:
    """Let this process be killed as soon as its parent has ended, or now where it has."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(3)


def _unshare(flags: int) -> None:
    """Move this process into new namespaces. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        flags |= CLONE_NEWUSER
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(flags) != 0:
        code = ctypes.get_errno()
        what = "a user namespace" if flags & CLONE_NEWUSER else "a network namespace"
        message = f"this process may not make {what} ({os.strerror(code)})"
        raise OSError(code, message)
    if flags & CLONE_NEWUSER:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {user} 1"),
            ("gid_map", f"0 {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(done.returncode, f"`ip {' '.join(words)}`: {done.stderr.strip()}")


def _switch(nodes: int, command: Callable[[], object]) -> int:
    """Make the network, start the command on each host, wait for the first one's.

    This process has a namespace of its own, with a bridge in it. Of each host a pipe says when its
    namespace is there (`near`), and another that its end of the cable is in it (`far`):

        host     unshare, write to near, read far ...      set the address, run the command
        switch   read near, make the cable, close far

    The names of interfaces are free, since nothing of it is visible outside.
    """
    own = os.getpid()
    _unshare(CLONE_NEWNET)
    _ip("link", "add", "br0", "type", "bridge")
    _ip("link", "set", "br0", "up")
    hosts = []
    for number in range(nodes):
        near, far = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            _be_host(number, own, near, far, command)
        os.close(near[1])
        os.close(far[0])
        os.read(near[0], 1)  # it is in its namespaces
        _ip(
            "link",
            "add",
            f"p{number}",
            "type",
            "veth",
            "peer",
            "name",
            INTERFACE,
            "netns",
            str(pid),
        )
        _ip("link", "set", f"p{number}", "master", "br0", "up")
        os.close(far[1])
        hosts.append(pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(hosts))
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in hosts]
    return codes[0] if codes[0] >= 0 else 128 - codes[0]


def _pass_on(hosts: Sequence[int]) -> None:
    for pid in hosts:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _be_host(
    number: int,
    switch: int,
    near: tuple[int, int],
    far: tuple[int, int],
    command: Callable[[], object],
) -> NoReturn:
    """Be a node: take the interface, and do what the command does."""
    code = 3
    try:
        _die_with(switch)
        _unshare_host()
        name = f"node{number}"
        socket.sethostname(name)
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())
        os.write(near[1], b".")
        os.close(far[1])
        os.read(far[0], 1)
        _ip("link", "set", "lo", "up")
        _ip("addr", "add", f"{address(number)}/24", "dev", INTERFACE)
        _ip("link", "set", INTERFACE, "up")
        os.environ.update(NODE=str(number), GLOO_SOCKET_IFNAME=INTERFACE)
        command()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        code = 130
    except OSError as error:
        os.write(2, f"{error.strerror or error}\n".encode())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _unshare_host() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def main() -> int:
    """Try whether a host can be made."""
    try:
        return _switch(1, lambda: None)
    except OSError as error:
        sys.stderr.write(f"{error.strerror or error}\n")
        return 3


if __name__ == "__main__":
    sys.exit(main())
