"""Hosts of launches that are forked from a process in which torch is imported already.

A host imports torch, which takes some two seconds of a processor; a test that ends hosts needs
many. Between the test and its host stands one process of a session:

    test      --- descriptors, environment, folder -->   warm process
              <-- the host's id, then its exit code ---       |  fork
              --- jobs ------------------------------------> host

A host is forked with everything imported, as its workers are, and runs what a started one runs.
What the imports themselves depend on makes a process of its own: see `COLD`.
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
from typing import TYPE_CHECKING, Any, NoReturn

from runner.execution import launcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.execution.launcher import HostProcess

#: how variables begin that Python, the linker, torch and its libraries read while they are imported
COLD = ("PYTHON", "LD_", "TORCH", "PYTORCH", "CUDA", "OMP", "OPENBLAS", "MKL", "PATH")
#: bytes of one order at most
ORDER = 1 << 20

#: an id, or an exit code
NUMBER = struct.Struct("q")

real_start = launcher.started_host


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


class WarmHosts:
    """Starts hosts: forked from one warm process; as the launcher does where they must be cold."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._environment: Mapping[str, str] = {}

    def start(
        self, descriptors: tuple[int, int, int], output: int, environment: Mapping[str, str]
    ) -> HostProcess:
        """Start a host, as `launcher.started_host` does."""
        if self._line is None:
            self._begin(environment)
        assert self._line is not None
        if imported_with(environment) != imported_with(self._environment):
            return real_start(descriptors, output, environment)
        reply, given = os.pipe()
        order = {"environment": dict(environment), "folder": str(Path.cwd())}
        socket.send_fds(self._line, [json.dumps(order).encode()], [given, output, *descriptors])
        os.close(given)
        return ForkedHost(reply)

    def _begin(self, environment: Mapping[str, str]) -> None:
        self._line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._environment = dict(environment)
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(far.fileno())],
            pass_fds=[far.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
        far.close()

    def close(self) -> None:
        """End the warm process, and what it has forked."""
        if self._process is not None:
            assert self._line is not None
            self._line.close()
            self._process.wait()


def imported_with(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the imports of a host depend on."""
    return {name: value for name, value in environment.items() if name.startswith(COLD)}


# ------------------------------------------------------------------------ the warm process


def serve(line: socket.socket) -> None:
    """Fork hosts until the other end of the line is closed; then end them all."""
    import torch.distributed.launcher.api

    import runner.worker.fork_server
    import runner.worker.serve  # noqa: F401 -- what a host imports

    assert torch
    gc.freeze()
    #: descriptor that is readable once a host has ended -> its id, and the end of its pipe
    hosts: dict[int, tuple[int, int]] = {}
    while True:
        waited: list[Any] = [line, *hosts]
        ready, _, _ = select.select(waited, [], [])
        for each in ready:
            if each in hosts:
                pid, reply = hosts.pop(each)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(BrokenPipeError):  # whoever started it has no more interest
                    os.write(reply, NUMBER.pack(code))
                os.close(reply)
                os.close(each)
        if line in ready:
            order, received, _, _ = socket.recv_fds(line, ORDER, 8)
            if not order:
                break
            reply, output, *descriptors = received
            pid = os.fork()
            if not pid:
                for each, (_, other) in hosts.items():
                    os.close(each)
                    os.close(other)
                line.close()
                os.setsid()  # before anybody has its id, who may then end all its processes
                os.write(reply, NUMBER.pack(os.getpid()))
                os.close(reply)
                be_host(json.loads(order), output, descriptors)
            for each in (output, *descriptors):
                os.close(each)
            hosts[os.pidfd_open(pid)] = pid, reply
    for pid, _ in hosts.values():
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def be_host(order: Mapping[str, Any], output: int, descriptors: list[int]) -> NoReturn:
    """Be a host in the process that is forked for it."""
    from runner.worker.fork_server import main

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
    serve(socket.socket(fileno=int(sys.argv[1])))
