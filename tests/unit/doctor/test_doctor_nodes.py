"""The doctor over several nodes: they meet, and the first compares them."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.doctor import examination, network, nodes
from torch_scenarios.doctor.check import Check, fine
from torch_scenarios.doctor.examination import Examination, Subject, examine
from torch_scenarios.doctor.nodes import NodeReport, Survey, compare
from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.rendezvous import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

MISSED_S = 60.0
GIVEN = "the token of these tests"


def of_a_host(host: str, torch: str = "2.13.0") -> Survey:
    return Survey(host=host, checks=(fine("torch", torch),), versions={"torch": torch})


@pytest.fixture
def endpoint() -> Endpoint:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Endpoint(host="127.0.0.1", port=probe.getsockname()[1])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at no host: what is tested is that nodes meet."""
    count = iter(range(100))
    monkeypatch.setattr(examination, "look", lambda _: of_a_host(f"node{next(count)}"))
    monkeypatch.setattr(examination, "NEIGHBOUR_S", MISSED_S)


def subject(
    endpoint: Endpoint,
    environment: Mapping[str, str],
    within_s: float = MISSED_S,
    count: int = 2,
) -> Subject:
    return Subject(
        ranks=1,
        nodes=count,
        endpoint=endpoint,
        environment=environment,
        make_secret=Secret.random,
        say=lambda _: None,
        within_s=within_s,
    )


def together(*subjects: Subject) -> list[Examination]:
    """Examine from several nodes at once, which are threads here."""
    found: list[Examination] = []
    threads = [
        threading.Thread(target=lambda each=each: found.append(examine(each))) for each in subjects
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(MISSED_S)
    assert len(found) == len(subjects)
    return sorted(found, key=lambda each: -len(each.hosts))


def named(found: Examination, name: str) -> list[Check]:
    return [check for _, checks in found.hosts for check in checks if check.name == name]


def test_nodes_meet_and_the_first_has_the_checks_of_all(endpoint: Endpoint) -> None:
    each = subject(endpoint, {"SCENARIO_TOKEN": GIVEN}, count=3)
    first, *others = together(each, each, each)
    assert len(first.hosts) == 3
    assert [check.status for check in named(first, "versions")] == ["ok", "ok"]
    assert [check.status for check in named(first, "clock")] == ["ok", "ok"]
    (check,) = named(first, "nodes")
    assert check.message.startswith("all 3 came: ")
    # they listen at the loopback of one host here, which no other host reaches
    assert {check.status for check in named(first, "reach")} == {"wrong"}
    assert all(other.code == first.code == 1 for other in others)


def test_a_node_that_does_not_come_leaves_the_check_untested(endpoint: Endpoint) -> None:
    found = examine(subject(endpoint, {"SCENARIO_TOKEN": GIVEN}, within_s=0.2))
    (check,) = named(found, "nodes")
    assert check.status == "untested"
    assert check.message.startswith("1 of 2 nodes came within 0 s (node0)")


def test_a_node_with_another_token_is_wrong_and_the_first_does_not_know_it(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "look_at_port", lambda _: [])
    first = subject(endpoint, {"SCENARIO_TOKEN": GIVEN}, within_s=5.0)
    other = subject(endpoint, {"SCENARIO_TOKEN": "a token of another run"}, within_s=5.0)
    codes = {found.code for found in together(first, other)}
    assert 1 in codes


def test_a_node_without_a_token_is_wrong(endpoint: Endpoint) -> None:
    with socket.create_server((endpoint.host, endpoint.port)):
        found = examine(subject(endpoint, {}))
    (check,) = named(found, "token")
    assert check.status == "wrong"
    (check,) = named(found, "port")
    assert "is in use here" in check.message


def test_a_first_node_that_is_not_there_is_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endpoint, "open", lambda *_: [])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = Endpoint(host="127.0.0.1", port=probe.getsockname()[1])
    monkeypatch.setattr(network, "look_at_port", lambda _: [])
    found = examine(subject(endpoint, {"SCENARIO_TOKEN": GIVEN}, within_s=0.2))
    (check,) = named(found, "nodes")
    assert check.status == "untested"
    assert "nothing listens there yet" in check.message


def test_versions_that_differ_are_told_with_both() -> None:
    reports = [
        NodeReport(talk=None, survey=of_a_host("node0")),
        NodeReport(talk=None, survey=of_a_host("node1", "2.12.1")),
    ]
    compare(reports)
    (check,) = reports[1].found
    assert check.status == "wrong"
    assert check.message == "this node has torch 2.12.1, and node0 has 2.13.0"


@pytest.mark.parametrize(("skew_s", "status"), [(0.1, "ok"), (-4.0, "ok"), (60.0, "wrong")])
def test_a_clock_that_is_off_is_told(skew_s: float, status: str) -> None:
    assert nodes.judge_clock(skew_s, 0.5, "node0").status == status
