"""Hosts of launches that are forked from a process in which torch is imported already.

A host imports torch, which takes some two seconds of a processor; a test that ends hosts needs
many. Between the test, or a command that it starts, and its host stands one process of a session:

    test, command --- descriptors, environment, folder -->   warm process
                  <-- the host's id, then its exit code ---       |  fork
                  --- jobs ------------------------------------> host

A host is forked with everything imported, as its workers are, and runs what a started one runs.
What the imports themselves depend on makes a process of its own: see `COLD`. In /proc a forked host
has the warm process's environment, but the folder of its own launch.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from torch_scenarios.execution import launcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch_scenarios.execution.launcher import HostProcess

#: how variables begin that Python, the linker, torch and its libraries read while they are imported
COLD = ("PYTHON", "LD_", "TORCH", "PYTORCH", "CUDA", "OMP", "OPENBLAS", "MKL", "PATH")
#: bytes of one order at most
ORDER = 1 << 20

#: an id, or an exit code
NUMBER = struct.Struct("q")
#: an id of no process: the host must be a process of its own
COLD_START = 0
#: descriptor that is readable once a host has ended -> its id, and the end of its pipe
Hosts: TypeAlias = dict[int, tuple[int, int]]
#: what `WarmHosts.command` starts
COMMAND = Path(__file__).with_name("warm_command.py")

real_start = launcher.start_host


class ForkedHost:
    """A host that is the warm process's child: its id and its exit code come through a pipe."""

    def __init__(self, reply: int) -> None:
        """Wait for its id."""
        self._reply = reply
        self._code: int | None = None
        self.pid = self._number(None)

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it ends. Raises subprocess.TimeoutExpired after `timeout` s."""
        if self._code is None:
            self._code = self._number(timeout)
            os.close(self._reply)
        return self._code

    def _number(self, timeout: float | None) -> int:
        ready, _, _ = select.select([self._reply], [], [], timeout)
        if not ready:
            raise subprocess.TimeoutExpired(sys.executable, timeout or 0)
        number: int = NUMBER.unpack(os.read(self._reply, NUMBER.size))[0]
        return number


def forked_host(
    address: str, descriptors: tuple[int, int, int], output: int, environment: Mapping[str, str]
) -> HostProcess:
    """Have a host forked by the warm process at `address`, or start it where it must be cold."""
    reply, given = os.pipe()
    order = {"environment": dict(environment), "folder": str(Path.cwd())}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(address)
        socket.send_fds(line, [json.dumps(order).encode()], [given, output, *descriptors])
    os.close(given)
    host = ForkedHost(reply)
    if host.pid != COLD_START:
        return host
    os.close(reply)
    return real_start(descriptors, output, environment)


class WarmHosts:
    """One warm process, which is started when it is first needed."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._address = f"\0warm-hosts-{os.getpid()}-{id(self)}"

    def start(
        self, descriptors: tuple[int, int, int], output: int, environment: Mapping[str, str]
    ) -> HostProcess:
        """Start a host, as `launcher.start_host` does."""
        self._begin()
        return forked_host(self._address, descriptors, output, environment)

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command line of `scenario`, or `pytest`, whose hosts are forked."""
        self._begin()
        return [sys.executable, str(COMMAND), self._address[1:], program, *arguments]

    def _begin(self) -> None:
        if self._process is not None:
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self._address)
        listener.listen()
        held, self._lifeline = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(listener.fileno()), str(held)],
            pass_fds=[listener.fileno(), held],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=launcher.environment(),
        )
        listener.close()
        os.close(held)

    def close(self) -> None:
        """End the warm process, and what it has forked."""
        if self._process is not None:
            assert self._lifeline is not None
            os.close(self._lifeline)
            self._process.wait()


def imported_with(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the imports of a host depend on."""
    return {name: value for name, value in environment.items() if name.startswith(COLD)}


# ------------------------------------------------------------------------ the warm process


def serve(listener: socket.socket, lifeline: int) -> None:
    """Fork hosts until the other end of the lifeline is closed; then end them all."""
    import torch.distributed.launcher.api

    import torch_scenarios.worker.fork_server
    import torch_scenarios.worker.serve  # noqa: F401 -- what a host imports

    assert torch
    gc.freeze()
    hosts: Hosts = {}
    while True:
        waited: list[Any] = [listener, lifeline, *hosts]
        ready, _, _ = select.select(waited, [], [])
        for each in hosts.keys() & set(ready):
            pid, reply = hosts.pop(each)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with suppress(BrokenPipeError):  # whoever started it has no more interest
                os.write(reply, NUMBER.pack(code))
            os.close(reply)
            os.close(each)
        if lifeline in ready:
            break
        if listener in ready:
            line, _ = listener.accept()
            with line:
                order, received, _, _ = socket.recv_fds(line, ORDER, 8)
            if order:
                begin(json.loads(order), received, hosts, (listener.fileno(), lifeline))
    for pid, _ in hosts.values():
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def begin(
    order: Mapping[str, Any], received: list[int], hosts: Hosts, own: tuple[int, ...]
) -> None:
    """Fork a host, which keeps none of the `own` descriptors, or say that it must be cold."""
    reply, output, *descriptors = received
    if imported_with(order["environment"]) != imported_with(os.environ):
        os.write(reply, NUMBER.pack(COLD_START))
        os.close(reply)
    elif pid := os.fork():
        hosts[os.pidfd_open(pid)] = pid, reply
    else:
        for each in (*own, *hosts, *(other for _, other in hosts.values())):
            os.close(each)
        os.setsid()  # before anybody has its id, who may then end all its processes
        os.write(reply, NUMBER.pack(os.getpid()))
        os.close(reply)
        be_host(order, output, descriptors)
    for each in (output, *descriptors):
        os.close(each)


def be_host(order: Mapping[str, Any], output: int, descriptors: list[int]) -> NoReturn:
    """Be a host in the process that is forked for it."""
    from torch_scenarios.worker.fork_server import main

    code = 1
    try:
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        sys.argv = ["fork_server", *map(str, descriptors)]
        main()
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
