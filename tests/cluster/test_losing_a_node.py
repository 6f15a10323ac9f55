"""A process, an agent or a link is lost: the case is inconclusive, reports and exit codes say so.

    host node0: command line, ranks 0, 1 (and the store)      host node1: ranks 2, 3

The command line judges and reports. Where it is lost, or its node, the other says so and ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hosts import IP, LONG, SUM, Hosts, until

if TYPE_CHECKING:
    from pathlib import Path

    from hosts import RanksEnded

pytestmark = [pytest.mark.torch, pytest.mark.slow]

COMMAND_LINE = -1
CASES = {"a_before": SUM, "b_lost": LONG, "c_after": SUM}
#: seconds from a loss to the end of every host: 30 s of silence, and what a busy machine adds
WITHIN_S = 60.0


def scenarios(folder: Path) -> str:
    """Write three cases, the second of which does not end by itself; return their folder."""
    place = folder / "scenarios"
    place.mkdir()
    for name, text in CASES.items():
        (place / f"{name}.yaml").write_text(text, encoding="utf-8")
    return str(place)


def begun(hosts: Hosts) -> None:
    """Wait until the case runs that does not end."""
    hosts.until(lambda: "a_before" in hosts.output(0))


def check_reported(ended: RanksEnded, *, rank: int, host: str) -> None:
    """Assert that rank 0's node has reported everything, and who was lost."""
    assert all(code != 0 for code in ended.codes), ended
    assert ended.verdicts == {
        "a_before": "PASSED",
        "b_lost": "INCONCLUSIVE",
        "c_after": "INCONCLUSIVE",
    }
    for case in ("b_lost", "c_after"):
        assert f"rank {rank}" in ended.reason(case)
        assert host in ended.reason(case)
    assert ended.junit is not None
    assert ended.junit.count("<testcase ") == len(CASES)


@pytest.mark.usefixtures("namespaces")
def test_what_a_killed_test_has_left_is_swept_away(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    name = f"scenario-{gone.pid}-0"
    subprocess.run([IP, "netns", "add", name], check=True)
    left = subprocess.Popen([IP, "netns", "exec", name, "sleep", "600"])
    until(lambda: subprocess.check_output([IP, "netns", "pids", name]))
    with Hosts(tmp_path):
        left.wait()
        names = subprocess.check_output([IP, "netns", "list"], text=True)
    assert name not in names.split()


def test_a_killed_worker_is_named_and_the_launch_ends(hosts: Hosts) -> None:
    hosts.launch(scenarios(hosts.folder))
    begun(hosts)
    hosts.send(3, signal.SIGKILL)
    ended = hosts.ended(WITHIN_S)
    check_reported(ended, rank=3, host="node1")
    hosts.until(lambda: hosts.everywhere() == [])


@pytest.mark.nightly
@pytest.mark.parametrize("rendezvous", ["c10d", "far", "static"])
@pytest.mark.parametrize(
    "loss", ["agent", "worker", "leader", "stopped", "link_down", "silent_cut"]
)
def test_the_loss_of_another_node_is_reported(hosts: Hosts, loss: str, rendezvous: str) -> None:
    hosts.launch(scenarios(hosts.folder), rendezvous=rendezvous)
    begun(hosts)
    rank = 2
    match loss:
        case "agent":
            hosts.kill_agent(1)
        case "worker":
            rank = 3
            hosts.send(3, signal.SIGKILL)
        case "leader":
            hosts.send(2, signal.SIGKILL)
        case "stopped":
            rank = 3
            hosts.send(3, signal.SIGSTOP)
        case "link_down":
            hosts.link_down(1)
        case "silent_cut":
            hosts.cut_silently(1)
    ended = hosts.ended(WITHIN_S)
    check_reported(ended, rank=rank, host="node1")
    if loss in {"link_down", "silent_cut"}:
        assert "host node1 (rank 2) is cut off from rank 0" in ended.output[1]
    hosts.until(lambda: hosts.everywhere() == [])


@pytest.mark.nightly
@pytest.mark.parametrize("rendezvous", ["c10d", "static"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_beside_the_command_line_loses_no_report(
    hosts: Hosts, rank: int, rendezvous: str
) -> None:
    hosts.launch(scenarios(hosts.folder), rendezvous=rendezvous)
    begun(hosts)
    hosts.send(rank, signal.SIGKILL)
    check_reported(hosts.ended(WITHIN_S), rank=rank, host="node0")
    hosts.until(lambda: hosts.everywhere() == [])


@pytest.mark.nightly
@pytest.mark.parametrize("rendezvous", ["c10d", "static"])
@pytest.mark.parametrize("loss", ["agent", "killed", "stopped"])
def test_without_the_command_line_the_other_node_says_why_it_ends(
    hosts: Hosts, loss: str, rendezvous: str
) -> None:
    hosts.launch(scenarios(hosts.folder), rendezvous=rendezvous)
    begun(hosts)
    if loss == "agent":
        hosts.kill_agent(0)
    else:
        hosts.send(COMMAND_LINE, signal.SIGKILL if loss == "killed" else signal.SIGSTOP)
    ended = hosts.ended_on(1, WITHIN_S)
    assert ended.codes[1] not in {0, None}, ended
    assert "host node1 (rank 2) is cut off from rank 0" in ended.output[1]
