"""`scenario doctor` on two hosts: what is right, and each thing that is wrong on one of them."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hosts import address

from torch_scenarios.execution import netns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hosts import Hosts

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md"
SCENARIO = [sys.executable, "-P", "-c", "from torch_scenarios.cli import main; main()"]
RUN_S = 300.0
GIVEN = "the token of these tests"


@pytest.fixture(autouse=True)
def able() -> None:
    """Skip where no hosts can be simulated, with the reason."""
    reason = netns.lack()
    if reason is not None:
        pytest.skip(reason)


class Examined:
    """What both hosts came to."""

    def __init__(
        self,
        hosts: Hosts,
        endpoint: str = "host0:29400",
        *,
        environments: Mapping[int, Mapping[str, str]] | None = None,
        wait_s: int = 60,
        only: int | None = None,
    ) -> None:
        """Start the doctor on each host, or on one, and wait for the ends."""
        self.paths = [hosts.folder / f"doctor{number}.json" for number in range(2)]
        self.logs = [hosts.folder / f"doctor{number}.txt" for number in range(2)]
        started = []
        for number in range(2):
            if only not in {None, number}:
                continue
            words = ["doctor", "--nnodes", "2", "--nproc-per-node", "2", "--wait", str(wait_s)]
            words += ["--rdzv-endpoint", endpoint, "--json", str(self.paths[number])]
            more = {"SCENARIO_TOKEN": GIVEN, **(environments or {}).get(number, {})}
            with self.logs[number].open("wb") as output:
                agent = hosts.start(number, [*SCENARIO, *words], output=output, environment=more)
            started.append(agent)
        hosts.agents += started
        self.codes = [agent.wait(RUN_S) for agent in started]

    def output(self) -> list[str]:
        """Return what each host has printed."""
        return [path.read_text(encoding="utf-8") for path in self.logs if path.exists()]

    def checks(self, number: int, host: str) -> list[dict[str, Any]]:
        """Return the checks of a host, as another one (or itself) reports them."""
        document = json.loads(self.paths[number].read_text(encoding="utf-8"))
        return [
            check for each in document["hosts"] if each["host"] == host for check in each["checks"]
        ]

    def wrong(self, number: int, host: str) -> dict[str, str]:
        """Return the message of each check that is not fine, by its name."""
        return {
            check["name"]: check["message"]
            for check in self.checks(number, host)
            if check["status"] in {"wrong", "untested"}
        }


def test_two_hosts_that_are_right_end_with_0_on_both(hosts: Hosts) -> None:
    found = Examined(hosts)
    assert found.codes == [0, 0], found.output()
    for name in ("nodes", "reach", "port"):
        assert [c["status"] for c in found.checks(0, "node0") if c["name"] == name] == ["ok"]
    for name in ("versions", "clock", "reach", "token"):
        assert [c["status"] for c in found.checks(0, "node1") if c["name"] == name] == ["ok"]
    assert found.checks(0, "node1") == found.checks(1, "node1")


def test_the_command_of_the_page_runs_on_both_hosts(hosts: Hosts) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("scenario doctor ")]
    words = [*SCENARIO, *shlex.split(line)[1:]]
    for number in range(2):
        more = {"SCENARIO_TOKEN": GIVEN}
        hosts.agents.append(hosts.start(number, words, output=subprocess.DEVNULL, environment=more))
    assert [agent.wait(RUN_S) for agent in hosts.agents] == [0, 0]


def test_over_ipv6_alone(hosts: Hosts) -> None:
    hosts.add_ipv6()
    hosts.rows.append("fd79::10 six")
    found = Examined(hosts, "six:29400")
    assert found.codes == [0, 0], found.output()
    assert "six:29400 is at fd79::10" in found.output()[1]


def test_a_name_that_leads_to_the_loopback_is_wrong_on_both(hosts: Hosts) -> None:
    hosts.rows.append("127.0.1.1 looped")
    found = Examined(hosts, "looped:29400", wait_s=3)
    assert found.codes == [1, 1], found.output()
    for number in range(2):
        wrong = found.wrong(number, f"node{number}")
        assert "looped leads to 127.0.1.1 alone" in wrong["endpoint"]
        assert "1 of 2 nodes came" in wrong["nodes"]


def test_a_name_that_does_not_resolve_is_wrong(hosts: Hosts) -> None:
    found = Examined(hosts, "no-such-host:29400", wait_s=3)
    assert found.codes == [1, 1], found.output()
    assert "no-such-host does not resolve" in found.wrong(0, "node0")["endpoint"]


def test_a_port_in_use_is_wrong_with_the_process_that_has_it(hosts: Hosts) -> None:
    holds = "import socket, time; s = socket.create_server(('0.0.0.0', 29400)); time.sleep(600)"
    holder = hosts.start(0, [sys.executable, "-c", holds], output=subprocess.DEVNULL)
    hosts.agents.append(holder)
    found = Examined(hosts, wait_s=6, only=0)
    assert found.codes == [1], found.output()
    message = found.wrong(0, "node0")["port"]
    assert "port 29400 is in use here: process " in message
    holder.kill()


def test_a_firewall_between_the_hosts_is_told(hosts: Hosts) -> None:
    hosts.cut_silently(1)
    found = Examined(hosts, address(0) + ":29400", wait_s=8)
    assert found.codes == [3, 3], found.output()
    assert "1 of 2 nodes came" in found.wrong(0, "node0")["nodes"]
    assert "cannot be reached" in found.wrong(1, "node1")["nodes"]


def test_gloo_at_the_loopback_is_wrong_and_the_other_cannot_connect(hosts: Hosts) -> None:
    found = Examined(hosts, environments={1: {"GLOO_SOCKET_IFNAME": "lo"}})
    assert found.codes == [1, 1], found.output()
    assert "its Gloo listens at the loopback alone" in found.wrong(0, "node0")["reach"]


def test_what_differs_on_one_host_is_told_there(hosts: Hosts) -> None:
    environments = {0: {"NCCL_ALGO": "Ring"}, 1: {"GLOO_SOCKET_IFNAME": "eth7"}}
    found = Examined(hosts, environments=environments)
    assert found.codes == [1, 1], found.output()
    wrong = found.wrong(0, "node1")
    assert wrong["environment"] == "NCCL_ALGO is not set here, and NCCL_ALGO=Ring on node0"
    assert "this host has no interface 'eth7'" in wrong["interfaces"]


def test_another_token_is_told_where_it_is(hosts: Hosts) -> None:
    environments = {1: {"SCENARIO_TOKEN": "a token of another run"}}
    found = Examined(hosts, environments=environments, wait_s=10)
    assert found.codes == [3, 1], found.output()
    assert "does not have the token of this node" in found.wrong(1, "node1")["nodes"]


def test_no_token_on_another_host_is_told_there(hosts: Hosts) -> None:
    found = Examined(hosts, environments={1: {"SCENARIO_TOKEN": ""}}, wait_s=3)
    assert found.codes == [3, 1], found.output()
    assert "this node needs the token of the run" in found.wrong(1, "node1")["token"]


def test_nothing_is_left_at_the_port(hosts: Hosts) -> None:
    Examined(hosts, wait_s=2, only=0)
    ends = "import socket; socket.create_server(('0.0.0.0', 29400))"
    again = hosts.start(0, [sys.executable, "-c", ends], output=subprocess.DEVNULL)
    hosts.agents.append(again)
    assert again.wait(RUN_S) == 0
    assert socket.gethostname() not in {"node0", "node1"}
