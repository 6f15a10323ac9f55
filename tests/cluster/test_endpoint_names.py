"""Names and addresses at which nodes meet, each on two hosts: what runs, and what is said."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hosts import SUM, address, until

from torch_scenarios.execution import netns

if TYPE_CHECKING:
    from pathlib import Path

    from hosts import Hosts

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]

SCENARIO = [sys.executable, "-P", "-c", "from torch_scenarios.cli import main; main()"]
RUN_S = 300.0
GIVEN = {"SCENARIO_TOKEN": "the token of these tests", "OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def able() -> None:
    """Skip where no hosts can be simulated, with the reason."""
    reason = netns.lack()
    if reason is not None:
        pytest.skip(reason)


class Runs:
    """`scenario run --nnodes 2` on one host or both."""

    def __init__(self, hosts: Hosts, endpoint: str, *numbers: int) -> None:
        self.hosts = hosts
        self.report = hosts.folder / "report.json"
        self._endpoint = endpoint
        self.started: dict[int, subprocess.Popen[bytes]] = {}
        (hosts.folder / "sum.yaml").write_text(SUM, encoding="utf-8")
        for number in numbers:
            self.start(number)

    def start(self, number: int) -> None:
        """Start it on one host."""
        words = ["run", "--nnodes", "2", "--nproc-per-node", "2", "--no-cache"]
        words += ["--rdzv-endpoint", self._endpoint, "--json", str(self.report)]
        more = {**GIVEN, "GLOO_SOCKET_IFNAME": "eth0"}
        with self._log(number).open("wb") as output:
            agent = self.hosts.start(
                number,
                [*SCENARIO, *words, str(self.hosts.folder / "sum.yaml")],
                output=output,
                environment=more,
            )
        self.started[number] = agent
        self.hosts.agents.append(agent)

    def _log(self, number: int) -> Path:
        return self.hosts.folder / f"run{number}.txt"

    def output(self, number: int) -> str:
        """Return what a host has printed so far."""
        return self._log(number).read_text(encoding="utf-8", errors="replace")

    def codes(self) -> dict[int, int]:
        """Wait for the ends, and return the exit code of each host."""
        return {number: agent.wait(RUN_S) for number, agent in self.started.items()}

    def verdicts(self) -> list[str]:
        """Return the verdicts of the report."""
        results = json.loads(self.report.read_text(encoding="utf-8"))["results"]
        return [each["verdict"] for each in results]


def pass_on_both(runs: Runs) -> None:
    codes = runs.codes()
    assert codes == {0: 0, 1: 0}, (runs.output(0), runs.output(1))
    assert runs.verdicts() == ["PASSED"]


def test_a_name_with_an_address_of_ipv6_alone(hosts: Hosts) -> None:
    hosts.add_ipv6()
    hosts.rows.append("fd79::10 six")
    pass_on_both(Runs(hosts, "six:29400", 0, 1))


def test_an_address_of_ipv6_in_brackets(hosts: Hosts) -> None:
    hosts.add_ipv6()
    pass_on_both(Runs(hosts, "[fd79::10]:29400", 0, 1))


def test_a_name_with_an_address_of_each_kind(hosts: Hosts) -> None:
    hosts.add_ipv6()
    hosts.rows += ["fd79::10 both", f"{address(0)} both"]
    pass_on_both(Runs(hosts, "both:29400", 0, 1))


def test_a_name_that_is_known_later_is_waited_for_with_a_line(hosts: Hosts) -> None:
    """So it is with a headless Service, whose pods have no name before they are ready."""
    runs = Runs(hosts, "pod-0.scenarios:29400", 0, 1)
    until(lambda: all("does not resolve yet" in runs.output(number) for number in range(2)))
    for number in range(2):
        assert "the name pod-0.scenarios of pod-0.scenarios:29400" in runs.output(number)
    hosts.know(f"{address(0)} pod-0.scenarios")
    pass_on_both(runs)


def test_a_first_node_that_comes_later_is_waited_for_with_a_line(hosts: Hosts) -> None:
    runs = Runs(hosts, "host0:29400", 1)
    until(lambda: "waiting for host0:29400: " in runs.output(1))
    runs.start(0)
    pass_on_both(runs)


def test_another_node_that_comes_later_is_waited_for_with_a_line(hosts: Hosts) -> None:
    runs = Runs(hosts, "host0:29400", 0)
    until(lambda: "waiting for 1 of 2 nodes at host0:29400; there are node0" in runs.output(0))
    runs.start(1)
    pass_on_both(runs)


#: listens, and answers as another program does
OTHER = """\
import socket
listener = socket.create_server(('0.0.0.0', 29400))
while True:
    line, _ = listener.accept()
    line.sendall(b'SSH-2.0-OpenSSH_9.2\\r\\n')
    line.close()
"""


def test_a_port_in_use_ends_both_nodes_at_once_with_its_reason(hosts: Hosts) -> None:
    holder = hosts.start(0, [sys.executable, "-c", OTHER], output=subprocess.DEVNULL)
    hosts.agents.append(holder)
    taken = "import socket; socket.create_connection(('10.77.0.1', 29400))"
    until(
        lambda: (
            hosts.start(0, [sys.executable, "-c", taken], output=subprocess.DEVNULL).wait(RUN_S)
            == 0
        )
    )
    runs = Runs(hosts, "host0:29400", 0, 1)
    assert runs.codes() == {0: 3, 1: 3}
    for number in range(2):
        assert "another program has the port" in runs.output(number)
        assert len(runs.output(number).splitlines()) <= 3
    holder.kill()


def test_a_name_that_never_resolves_ends_with_its_reason(hosts: Hosts) -> None:
    """In five minutes; here a process has a moment."""
    brief = "from torch_scenarios.execution import rendezvous as r; r.COMES_S = 6.0; "
    words = [sys.executable, "-P", "-c", brief + SCENARIO[-1], "run", "--nnodes", "2"]
    words += ["--rdzv-endpoint", "no-such-host:29400", "."]
    log = hosts.folder / "log.txt"
    with log.open("wb") as output:
        agent = hosts.start(0, words, output=output, folder=hosts.folder, environment=GIVEN)
    hosts.agents.append(agent)
    assert agent.wait(RUN_S) == 3
    waits, ends = log.read_text(encoding="utf-8").splitlines()
    assert "does not resolve yet" in waits
    assert ends.startswith("the name no-such-host of no-such-host:29400 cannot be resolved: ")
