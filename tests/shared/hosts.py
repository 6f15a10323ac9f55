"""Two hosts on one machine: network namespaces joined by a bridge, and torchrun on each of them.

    namespace 0          namespace s            namespace 1
    eth0 10.77.0.1 ----- p0 [bridge] p1 ------- eth0 10.77.0.2

A host can lose its link with a word (its interface goes down) and without one (its port leaves the
bridge: packets are dropped, no address is unreachable, no connection is reset). Its link can be
slow, and lose a part of the packets: its port is in a bridge of its own then, and a program carries
the frames between both (`link`).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PORT = 29500
IP = shutil.which("ip") or "ip"
#: seconds that a launch may take to start its ranks, here with every core busy
START_S = 120.0
#: what every process on a host has in its environment
ON_EACH = {
    "GLOO_SOCKET_IFNAME": "eth0",
    "OMP_NUM_THREADS": "1",
    "SCENARIO_TOKEN": "the token of these tests",
}
TOOLS = ("ip", "unshare", "hostname")
#: scenarios that launches over several hosts run
SUM = "world_size: 4\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}, expect: {x: [4]}}]\n"
#: ranks 0 and 2 sleep, the others wait for them: a loss finds both
LONG = """\
world_size: 4
timeout: 600s
tensors: {x: [1]}
steps:
  - {barrier: {}}
  - {sleep: 120s, ranks: [0, 2]}
  - {all_reduce: {tensor: x}, expect: {x: [4]}}
"""


def why_not() -> str | None:
    """Return why this machine can have no network namespaces; None where it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"{absent[0]!r} is not installed (Debian: iproute2, util-linux, hostname)"
    name = f"scenario-{os.getpid()}-probe"
    try:
        _ip("netns", "add", name)
        try:
            _ip("-n", name, "link", "add", "br0", "type", "bridge")
        finally:
            _ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"this machine makes no network namespace with a bridge: {error.stderr.strip()}"
    return None


def _ip(*words: str) -> str:
    done = subprocess.run([IP, *words], check=True, capture_output=True, text=True)
    return done.stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksEnded:
    """What a launch came to: exit codes and output by host, and the JSON report where there is one.

    `seconds` is the time from what was done to it, or from its start, to the end of the last host.
    """

    codes: tuple[int | None, ...]
    output: tuple[str, ...]
    seconds: float
    report: dict[str, Any] | None
    junit: str | None

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each case."""
        assert self.report is not None, self.output
        return {result["case"]: result["verdict"] for result in self.report["results"]}

    def reason(self, case: str) -> str:
        """Return what keeps a case from a verdict."""
        assert self.report is not None, self.output
        found = next(each for each in self.report["results"] if each["case"] == case)
        return str(found.get("reason"))


class Hosts:
    """The namespaces, and what runs in them; a context manager that leaves nothing behind."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.folder = folder
        self.names = [f"scenario-{os.getpid()}-{number}" for number in range(count)]
        self.switch = f"scenario-{os.getpid()}-s"
        self.agents: list[subprocess.Popen[bytes]] = []
        #: a folder that a host has for itself, by its number: it does not see what others write
        self.private: dict[int, Path] = {}
        #: names beyond those of the hosts: rows of /etc/hosts
        self.rows: list[str] = []
        self._links: list[subprocess.Popen[str]] = []
        self._since_s = 0.0
        self._report = folder / "report.json"
        self._junit = folder / "report.xml"

    # ------------------------------------------------------------------ the network

    def __enter__(self) -> Self:
        """Make the namespaces; those of tests that were killed go first."""
        sweep()
        try:
            _ip("netns", "add", self.switch)
            _ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", self.switch, "link", "set", "br0", "up")
            for number, name in enumerate(self.names):
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
                port = ("peer", "name", f"p{number}", "netns", self.switch)
                _ip("link", "add", "eth0", "netns", name, "type", "veth", *port)
                _ip("-n", name, "addr", "add", f"{address(number)}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
                _ip("-n", self.switch, "link", "set", f"p{number}", "master", "br0", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End every process in them, and take them away."""
        for name in (*self.names, self.switch):
            for pid in self.processes(name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for agent in self.agents:
            agent.wait(timeout=30)
        for carrier in self._links:
            carrier.communicate(timeout=30)
        for name in (*self.names, self.switch):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)

    def link_down(self, number: int) -> None:
        """Take a host's interface down: its kernel knows."""
        _ip("-n", self.names[number], "link", "set", "eth0", "down")

    def cut_silently(self, number: int) -> None:
        """Drop every packet from and to a host; no side is told."""
        _ip("-n", self.switch, "link", "set", f"p{number}", "nomaster")

    def impair(
        self, number: int, *, delay_s: float = 0.0, loss: float = 0.0, seed: int = 1
    ) -> None:
        """Let the link of a host take a time, each way, and lose a part (0 to 1) of its packets."""
        bridge = f"br{number + 1}"
        _ip("-n", self.switch, "link", "add", bridge, "type", "bridge")
        _ip("-n", self.switch, "link", "set", bridge, "up")
        _ip("-n", self.switch, "link", "set", f"p{number}", "master", bridge)
        how = (str(delay_s), str(loss), str(seed))
        carrier = subprocess.Popen(
            [
                *(IP, "netns", "exec", self.switch),
                *(sys.executable, link.__file__, "br0", bridge, *how),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._links.append(carrier)
        assert carrier.stdout is not None
        assert carrier.stdout.readline() == "forwards\n"

    def add_ipv6(self) -> None:
        """Give each host an address of IPv6 as well."""
        for number, name in enumerate(self.names):
            _ip("-n", name, "addr", "add", f"{address6(number)}/64", "dev", "eth0", "nodad")

    def know(self, row: str) -> None:
        """Let every host know a name, from now on; those that run read the file anew."""
        self.rows.append(row)
        self._names()

    # ------------------------------------------------------------------ processes

    def kill_agent(self, number: int) -> None:
        """Kill a host's torchrun."""
        os.kill(self.agents[number].pid, signal.SIGKILL)

    def send(self, rank: int, number: int) -> None:
        """Send a rank's process a signal."""
        os.kill(self.worker(rank), number)

    def processes(self, name: str) -> list[int]:
        """Return the processes of a namespace."""
        with suppress(subprocess.CalledProcessError):
            return [int(pid) for pid in _ip("netns", "pids", name).split()]
        return []

    def everywhere(self) -> list[int]:
        """Return the processes of every host."""
        return [pid for name in self.names for pid in self.processes(name)]

    def worker(self, rank: int) -> int:
        """Return the process id of a rank, once it is there; -1 is the command line's.

        The worker of rank 0 is a child of the command line.
        """
        return self._process(max(rank, 0), of_agent=rank != 0)

    def _process(self, rank: int, *, of_agent: bool) -> int:
        agents = {agent.pid for agent in self.agents}
        wanted = f"RANK={rank}".encode()

        def found() -> int | None:
            for pid in self.everywhere():
                with suppress(OSError):
                    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
                    parent = int(stat.rpartition(")")[2].split()[1])
                    if wanted in variables and (parent in agents) == of_agent:
                        return pid
            return None

        pid: int = until(found)
        return pid

    def launch(
        self,
        *arguments: str,
        ranks: int = 2,
        rendezvous: str = "c10d",
        environment: dict[int, dict[str, str]] | None = None,
        folders: dict[int, Path] | None = None,
    ) -> None:
        """Start torchrun on every host, with as many ranks on each.

        `rendezvous` is `c10d` (the agents meet on the first host), `far` (on the second) or
        `static`.
        """
        self._since_s = time.monotonic()
        for number in range(len(self.names)):
            store = 1 if rendezvous == "far" else 0
            how = (
                [f"--node-rank={number}", f"--master-addr={address(0)}"]
                if rendezvous == "static"
                else [
                    "--rdzv-backend=c10d",
                    f"--rdzv-endpoint={address(store)}:{PORT}",
                    "--rdzv-id=test",
                ]
            )
            command = [
                *(sys.executable, "-m", "torch.distributed.run"),
                *(f"--nnodes={len(self.names)}", f"--nproc-per-node={ranks}"),
                *(*how, f"--local-addr={address(number)}"),
                *("-m", "torch_scenarios.worker", "-v", "--json", str(self._report)),
                *("--junit", str(self._junit), *arguments),
            ]
            more = {**ON_EACH, "TORCH_CPP_LOG_LEVEL": "ERROR"}
            with self._output(number).open("wb") as output:
                agent = self.start(
                    number,
                    command,
                    output=output,
                    folder=(folders or {}).get(number),
                    environment={**more, **(environment or {}).get(number, {})},
                )
            self.agents.append(agent)

    def spread(
        self,
        *arguments: str,
        ranks: int = 2,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start `scenario run --nnodes` on every host, with as many ranks on each."""
        self._since_s = time.monotonic()
        for number in range(len(self.names)):
            command = [
                *(sys.executable, "-P", "-c", "from torch_scenarios.cli import main; main()"),
                *("run", "--nnodes", str(len(self.names)), "--nproc-per-node", str(ranks)),
                *("--rdzv-endpoint", f"{address(0)}:{PORT}", "--no-cache"),
                *("-v", "--json", str(self._report), "--junit", str(self._junit), *arguments),
            ]
            with self._output(number).open("wb") as output:
                more = {**ON_EACH, **(environment or {})}
                self.agents.append(self.start(number, command, output=output, environment=more))

    def start(
        self,
        number: int,
        command: Sequence[str],
        *,
        output: IO[bytes] | int,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command on a host, whose name it sees, and the addresses of all of them."""
        own = self.private.get(number)
        mount = "" if own is None else f"mount -t tmpfs own {shlex.quote(str(own))} && "
        there = (
            *(IP, "netns", "exec", self.names[number], "unshare", "--uts", "--mount", "sh", "-c"),
            f'{mount}hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"',
            *(f"node{number}", str(self._names())),
        )
        return subprocess.Popen(
            [*there, *command],
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, **(environment or {})},
        )

    def _names(self) -> Path:
        """Return what the hosts have as /etc/hosts: there is no name server to ask."""
        path = self.folder / "hosts"
        lines = [f"{address(n)} node{n} host{n}" for n in range(len(self.names))]
        rows = ["127.0.0.1 localhost", *lines, *self.rows, ""]
        path.write_text("\n".join(rows), encoding="utf-8")
        return path

    def _output(self, number: int) -> Path:
        return self.folder / f"node{number}.log"

    def output(self, number: int) -> str:
        """Return what a host's torchrun and ranks have printed so far."""
        return self._output(number).read_text(encoding="utf-8", errors="replace")

    def until(self, seen: Callable[[], Any]) -> None:
        """Wait until something is so, and count the time from then on."""
        until(seen)
        self._since_s = time.monotonic()

    def ended(self, within_s: float = START_S) -> RanksEnded:
        """Wait for every host's torchrun, and return what the launch came to."""
        return self._ended(self.agents, within_s)

    def ended_on(self, number: int, within_s: float) -> RanksEnded:
        """Wait for one host's torchrun only."""
        return self._ended([self.agents[number]], within_s)

    def _ended(self, agents: list[subprocess.Popen[bytes]], within_s: float) -> RanksEnded:
        deadline_s = time.monotonic() + within_s
        for agent in agents:
            agent.wait(timeout=max(0.0, deadline_s - time.monotonic()))
        seconds = time.monotonic() - self._since_s
        report = None
        if self._report.exists():
            report = json.loads(self._report.read_text(encoding="utf-8"))
        return RanksEnded(
            codes=tuple(agent.poll() for agent in self.agents),
            output=tuple(self.output(number) for number in range(len(self.names))),
            seconds=seconds,
            report=report,
            junit=self._junit.read_text(encoding="utf-8") if self._junit.exists() else None,
        )


def sweep() -> None:
    """End what killed tests have left: their process is in the names of the namespaces."""
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0]
        found = re.fullmatch(r"scenario-(\d+)-\w+", name)
        if found is None or Path(f"/proc/{found[1]}").exists():
            continue
        for pid in map(int, _ip("netns", "pids", name).split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "del", name)


def address(number: int) -> str:
    """Return the address of a host; it exists inside the namespaces only."""
    return f"10.77.0.{number + 1}"


def address6(number: int) -> str:
    """Return the address of IPv6 that a host has once it was given one."""
    return f"fd79::{number + 1}0"


def until(seen: Callable[[], Any]) -> Any:
    """Wait until something is so, and return what it is."""
    deadline_s = time.monotonic() + START_S
    while not (found := seen()):
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.05)
    return found
