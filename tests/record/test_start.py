"""The start of a job: ranks that never meet are told why, in a second, live and fake."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from recordings import SCRIPTS
from sampling import sampled

from torch_scenarios.cli import cli
from torch_scenarios.record.evidence.claim import (
    OWNER,
    claim_of,
    comes_from_parent,
    has_other_port,
    is_own,
    rank_joined,
    release_programs,
    tell_programs,
)
from torch_scenarios.record.evidence.initialization import (
    Claim,
    JobStart,
    find_in_start,
    tell_nodes,
)
from torch_scenarios.record.evidence.reasons import explain_absence
from torch_scenarios.record.format import (
    RENDEZVOUS,
    BlockingCall,
    BranchTaken,
    Decision,
    RankRecord,
    ScriptPlace,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from recordings import Recording

SCRIPT = SCRIPTS / "starts.py"
#: the line that calls `init_process_group`
LINE = 1 + next(
    at
    for at, line in enumerate(SCRIPT.read_text(encoding="utf-8").splitlines())
    if line.startswith("dist.init_process_group")
)


SPAWNS = (SCRIPTS / "spawns.py").read_text(encoding="utf-8").splitlines()
#: how the error is shown that one of its ranks catches
CAUGHT = f"in `except ValueError` (spawns.py:{1 + SPAWNS.index('        except ValueError:')})"


def claim(rank: int, **more: object) -> Claim:
    """Return what a rank of two says."""
    given = {
        "pid": 100 + rank,
        "host": "a",
        "started_as": rank,
        "rank": rank,
        "world_size": 2,
        "backend": "gloo",
        "method": "env",
        "address": "10.0.0.1",
        "port": 29500,
        "place": ScriptPlace(frames=(("train.py", 8, ""),)),
        **more,
    }
    return Claim(**given)  # type: ignore[arg-type]


def words(*claims: Claim, **more: object) -> str:
    """Return what is found, in one text."""
    found = find_in_start(JobStart(claims=claims, **more))  # type: ignore[arg-type]
    return " | ".join(f"{each.prose} {' '.join(each.because)}" for each in found)


def test_a_rank_that_has_not_come_when_the_run_is_cut_off_may_come() -> None:
    assert "rank 1 never comes" in words(claim(0))
    assert not words(claim(0), is_cut_off=True)
    assert "rank 1 never comes" in words(claim(0), is_cut_off=True, absent={1: "it ended"})


def test_a_world_that_is_complete_is_right() -> None:
    assert words(claim(0), claim(1), is_whole=True) == ""


def test_two_worlds_side_by_side_are_right() -> None:
    other = [claim(rank, port=29600, started_as=2 + rank) for rank in (0, 1)]
    assert words(claim(0), claim(1), *other, is_whole=True) == ""


AGAIN = {"has_old_store": True, "asked_s": 100.0}
WHY_AGAIN = ("rank 1 raised RuntimeError: lost (train.py:9), and all ranks were started again",)


def test_ranks_that_are_started_again_in_one_store_are_told_what_they_find_there() -> None:
    ranks = (claim(0, **AGAIN), claim(1, **AGAIN, failed="RuntimeError: connectFullMesh failed"))
    found = words(*ranks, earlier=(claim(0), claim(1)), why_again=WHY_AGAIN)
    assert "look for processes of the start before in `init_process_group`" in found
    assert f"{WHY_AGAIN[0]} ranks 0 and 1 meet at 10.0.0.1:29500 again (train.py:8)" in found


@pytest.mark.parametrize(
    ("more", "is_wrong"),
    [
        ({"now_s": 101.0}, False),
        ({"now_s": 200.0}, True),
        ({"now_s": 101.0, "is_cut_off": True}, True),
        ({"now_s": 200.0, "earlier": (claim(0, port=29501),)}, False),
    ],
)
def test_ranks_that_are_started_again_may_still_meet(
    more: dict[str, Any], *, is_wrong: bool
) -> None:
    ranks = (claim(0, **AGAIN), claim(1, **AGAIN))
    found = words(*ranks, **{"earlier": (claim(0), claim(1)), **more})
    assert bool(found) is is_wrong


def by_prefix() -> str:
    return "TORCHELASTIC_RESTART_COUNT"


def by_nothing() -> str:
    return ""


@pytest.mark.parametrize(
    ("count", "agent", "create", "is_old"),
    [
        ("1", "True", by_nothing, True),
        ("0", "True", by_nothing, False),
        ("1", "False", by_nothing, False),
        ("1", "True", by_prefix, False),
    ],
)
def test_a_store_is_old_where_torchrun_and_torch_keep_it(
    count: str,
    agent: str,
    create: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_old: bool,
) -> None:
    rendezvous = SimpleNamespace(_create_c10d_store=create)
    monkeypatch.setitem(sys.modules, "torch.distributed.rendezvous", rendezvous)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", agent)
    assert claim_of(("gloo",), {})["old_store"] is is_old


def test_sizes_that_differ_are_named_with_their_lines() -> None:
    found = words(claim(0), claim(1, world_size=3))
    assert "do not agree on the world size" in found
    assert "rank 1 says world_size=3 (train.py:8)" in found


def test_a_rank_that_two_processes_have_is_named_and_the_missing_one() -> None:
    found = words(claim(0), claim(0, pid=7, started_as=1))
    assert "two processes say that they are rank 0" in found
    assert "rank 1 is missing" in found


START = """\
rank = int(os.environ.get("SLURM_PROCID", "0"))
os.environ["MASTER_ADDR"] = "node-7"
folder = tempfile.mkdtemp()
path = f"{folder}/start"
dist.init_process_group("gloo", f"file://{path}", rank=rank, world_size=2)
"""


def test_what_a_start_is_told_has_the_lines_that_it_comes_from(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(START, encoding="utf-8")
    at = {"place": ScriptPlace(frames=((str(script), 5, ""),))}
    found = words(claim(0, **at), claim(0, pid=7, started_as=1, **at))
    assert 'this comes from `rank = int(os.environ.get("SLURM_PROCID", "0"))`' in found
    places = {**at, "method": "file", "port": -1}
    found = words(*(claim(rank, **places, address=f"/{rank}/start") for rank in (0, 1)))
    assert "`folder = tempfile.mkdtemp()`" in found
    found = words(claim(0, **at), is_whole=True)
    assert "rank 1 was never started" in found
    assert "this comes from" not in found
    other = tmp_path / "nodes.py"
    other.write_text(f"n = nodes\n{START.replace('world_size=2', 'world_size=n')}", "utf-8")
    behind = {"place": ScriptPlace(frames=((str(other), 6, ""),))}
    assert "this comes from `n = nodes`" in words(claim(0, **behind), is_whole=True)
    lost = {**at, "address": "node-7", "unresolved": "Name or service not known"}
    found = words(claim(0), claim(1, **lost))
    assert "`node-7` does not resolve on rank 1" in found
    assert '`os.environ["MASTER_ADDR"] = "node-7"`' in found


JOINS = """\
def work(rank):
    dist.init_process_group(os.environ.get("BACKEND", "gloo"), rank=rank, world_size=2)
for rank in range(2):
    p = mp.Process(target=work, args=(rank,))
    p.start()
    LINE
"""


@pytest.mark.parametrize(
    ("line", "is_told"), [("p.join()", True), ("other.join()", False), ("p.join(5)", False)]
)
def test_a_process_that_is_waited_for_before_the_next_one_starts_is_told(
    line: str, *, is_told: bool, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(JOINS.replace("LINE", line), encoding="utf-8")
    at = {"place": ScriptPlace(frames=((str(script), 2, ""),))}
    (found,) = find_in_start(JobStart(claims=(claim(0, **at),), is_whole=True))
    assert ("`p.join()` (train.py:6) waits in each turn" in " ".join(found.because)) is is_told
    assert ("start all processes first" in str(found.fix)) is is_told


def test_backends_that_differ_have_the_line_that_chooses_them(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        'backend = "nccl" if node.gpus else "gloo"\ndist.init_process_group(backend)\n', "utf-8"
    )
    at = {"place": ScriptPlace(frames=((str(script), 2, ""),))}
    found = words(claim(0, **at), claim(1, **at, backend="nccl"))
    assert 'this comes from `backend = "nccl" if node.gpus else "gloo"` (train.py:1)' in found


def test_a_fake_rank_that_its_world_does_not_have_is_told() -> None:
    assert "rank 2 is not in a world of 2 ranks" in words(
        claim(0), claim(1), claim(2, left=True, host="")
    )


def test_a_machine_that_looks_for_rank_0_at_itself() -> None:
    own = {"address": "localhost", "is_own": False}
    found = words(claim(0, **own), claim(1, host="b", **own))
    assert "rank 1 (on b) asks at localhost:29500" in found


def test_a_rank_that_ended_is_told_with_its_end() -> None:
    found = words(claim(0), absent={1: "it raised ImportError: x (train.py:2)"})
    assert found.startswith("rank 1 never comes to `init_process_group`")
    assert "it raised ImportError: x (train.py:2)" in found


SPARE = """\
if job.is_spare:
    serve_logs()
    sys.exit(0)
dist.init_process_group("gloo")
"""


def test_a_rank_that_ended_is_told_with_the_way_that_it_alone_went(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SPARE)
    spare = Decision(kind="if", file=str(script), line=1, text="if job.is_spare")
    entered = BlockingCall(
        number=0, what=RENDEZVOUS, place=ScriptPlace(frames=((str(script), 4, ""),))
    )
    records = {
        rank: RankRecord(
            rank=rank,
            world_size=2,
            items=[entered] if rank == 0 else [],
            ways=[BranchTaken(before=0, decision=spare, yes=rank, no=1 - rank)],
        )
        for rank in (0, 1)
    }
    clause = explain_absence(records, [1], str(tmp_path))
    assert clause is not None
    assert "rank 1 alone takes the `sys.exit(0)`:3 under `if job.is_spare` (train.py:1)" in (
        clause.words
    )


def test_a_rank_whose_record_is_not_there_is_not_missing_where_the_others_met() -> None:
    assert words(claim(0, left=True)) == ""


def test_a_default_backend_and_one_of_several_devices_go_together() -> None:
    assert words(claim(0, backend="cpu:gloo,cuda:nccl"), claim(1)) == ""
    assert words(claim(0, backend=""), claim(1)) == ""
    assert 'rank 0 asks for "nccl"' in words(claim(0, backend="nccl"), claim(1))


@pytest.mark.parametrize(
    ("args", "kwargs", "rank", "world", "where"),
    [
        (("gloo",), {"rank": 1, "world_size": 4}, 1, 4, ("h", 5)),
        (("gloo", "tcp://n:7?rank=2&world_size=3"), {}, 2, 3, ("n", 7)),
        ((), {}, 3, 8, ("h", 5)),
        (("gloo", "file:///x", None, 2, 1), {}, 1, 2, ("/x", -1)),
    ],
)
def test_a_claim_is_read_as_torch_reads_it(
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    rank: int,
    world: int,
    where: tuple[str, int],
) -> None:
    given = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "h", "MASTER_PORT": "5"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    found = claim_of(args, kwargs)
    assert (found["rank"], found["world_size"]) == (rank, world)
    assert (found["address"], found.get("port", -1)) == where


def test_addresses_of_this_machine() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")


KINDS = {
    "missing": "rank 1 never comes to `init_process_group`",
    "sizes": "rank 1 says world_size=3",
    "larger": "rank 2 was never started",
    "twice": "two processes say that they are rank 0",
    "port": "is in use by another program",
    "own_port": "it listens there itself since starts.py:",
    "name": "the address `trainer-0.invalid` does not resolve",
    "places": "rank 1 meets at 127.0.0.1:29871",
    "backends": 'rank 0 asks for "nccl"',
}


def starts(kinds: Iterable[str], always_fake: Collection[str]) -> list[object]:
    """Return each kind with how it is recorded; fake ranks take the same way to a finding."""
    return [
        pytest.param(
            kind,
            ("--fake",) if fake else (),
            id=f"{kind}-{'fake' if fake else 'live'}",
            marks=[pytest.mark.nightly] if fake and kind not in always_fake else [],
        )
        for kind in kinds
        for fake in (False, True)
    ]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "how"), starts(KINDS, {"sizes", "twice"}))
def test_ranks_that_never_meet_are_told_why(
    recording: Recording, kind: str, how: tuple[str, ...]
) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ran = recording.of("starts.py", "-n", "2", *how, KIND=kind, TAKEN=port)
    assert ran.code == 1, ran.output
    assert KINDS[kind] in ran.output
    assert f"starts.py:{LINE}" in ran.output


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "how"), starts(["right", "turned"], {"right"}))
def test_ranks_that_meet_are_as_they_say(
    recording: Recording, kind: str, how: tuple[str, ...]
) -> None:
    ran = recording.of("starts.py", "-n", "2", *how, KIND=kind)
    assert ran.code == 0, ran.output


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(False, id="right", marks=pytest.mark.nightly),
        pytest.param(True, id="wrong"),
    ],
)
def test_ranks_that_a_script_spawns_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, wrong: bool
) -> None:
    if wrong:
        monkeypatch.setenv("WRONG", "1")
    command = ["record", "-o", str(tmp_path / "out"), "--", sys.executable]
    done = CliRunner().invoke(cli, [*command, str(SCRIPTS / "spawns.py")])
    assert done.exit_code == int(wrong), done.output
    assert "2 ranks" in done.output
    assert (CAUGHT in done.output) == wrong


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("one_by_one", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_script_that_starts_its_ranks_itself_is_started_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, one_by_one: bool
) -> None:
    monkeypatch.setenv("WRONG", "1")
    if one_by_one:
        monkeypatch.setenv("ONE_BY_ONE", "1")
    folder = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join((folder, os.environ["PATH"])))
    command = ["record", "-n", "2", "-o", str(tmp_path / "out"), "--"]
    done = CliRunner().invoke(cli, [*command, str(SCRIPTS / "spawns.py")])
    assert done.exit_code == 1, done.output
    assert "spawns.py starts its ranks itself (line " in done.stderr
    assert CAUGHT in done.output


@pytest.mark.torch
@pytest.mark.slow
def test_a_process_that_raises_before_it_is_a_rank_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch.distributed as dist, torch.multiprocessing as mp\n"
        "def work(rank, world):\n"
        "    port = os.environ['PORT_TO_MEET_AT']\n"
        "    place = f'tcp://127.0.0.1:{port}'\n"
        "    dist.init_process_group('gloo', place, rank=rank, world_size=world)\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(work, args=(2,), nprocs=2)\n"
    )
    monkeypatch.chdir(tmp_path)
    command = ["record", "-o", str(tmp_path / "out"), "--", sys.executable, "train.py"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1, done.output
    assert "train.py  ended with code 1 before any rank came to `init_process_group`" in done.stderr
    assert "raises KeyError: 'PORT_TO_MEET_AT' (train.py:3)" in done.stderr


@pytest.mark.torch
@pytest.mark.parametrize("wrong", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_fake_ranks_are_judged_whose_parent_waits_for_what_all_of_them_put(
    tmp_path: Path, *, wrong: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist, torch.multiprocessing as mp\n"
        "def work(rank, results):\n"
        "    place = 'tcp://127.0.0.1:29411'\n"
        "    dist.init_process_group('gloo', place, rank=rank, world_size=2)\n"
        f"    if rank < {1 if wrong else 2}:\n"
        "        dist.all_reduce(torch.ones(1))\n"
        "    results.put(rank)\n"
        "    dist.destroy_process_group()\n"
        "if __name__ == '__main__':\n"
        "    results = mp.get_context('spawn').SimpleQueue()\n"
        "    mp.spawn(work, args=(results,), nprocs=2)\n"
        "    print(sorted(results.get() for _ in range(2)))\n"
    )
    command = ["record", "--fake", "-n", "2", "-o", str(tmp_path / "out"), "--", str(script)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == (1 if wrong else 3), done.output
    if wrong:
        assert "rank 0 alone goes into `if rank < 1` (train.py:5)" in done.output
    else:
        assert "outside of any call, at train.py:12" in done.output


@pytest.mark.torch
@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_fake_ranks_run_what_a_script_spawns_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, wrong: bool, one_by_one: bool
) -> None:
    if wrong:
        monkeypatch.setenv("WRONG", "1")
    if one_by_one:
        monkeypatch.setenv("ONE_BY_ONE", "1")
    command = ["record", "--fake", "-n", "2", "-o", str(tmp_path / "out"), "--"]
    done = CliRunner().invoke(cli, [*command, str(SCRIPTS / "spawns.py")])
    assert done.exit_code == int(wrong), done.output
    assert "calls `mp.spawn`" not in done.stderr
    assert (CAUGHT in done.output) == wrong


@pytest.mark.torch
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(("--fake", "-n", "2"), id="fake"),
        pytest.param((), id="live", marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
)
@pytest.mark.parametrize("one_by_one", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_spawned_ranks_that_each_choose_a_port_never_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...], *, one_by_one: bool
) -> None:
    monkeypatch.setenv("OWN_PORT", "1")
    if one_by_one:
        monkeypatch.setenv("ONE_BY_ONE", "1")
    script = str(SCRIPTS / "spawns.py")
    program = [script] if how else [sys.executable, script]
    done = CliRunner().invoke(cli, ["record", *how, "-o", str(tmp_path / "out"), "--", *program])
    assert done.exit_code == 1, done.output
    assert "never_meets: the ranks look for each other at different places" in done.output
    line = 1 + SPAWNS.index('        os.environ["MASTER_PORT"] = find_port()')
    assert f"(spawns.py:{line})" in done.output


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_the_error_of_a_spawned_rank_is_told_where_its_group_is_destroyed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAISES", "1")
    command = ["record", "-o", str(tmp_path / "out"), "--", sys.executable]
    done = CliRunner().invoke(cli, [*command, str(SCRIPTS / "spawns.py")])
    assert done.exit_code == 1, done.output
    line = 1 + SPAWNS.index('                raise ValueError("no batch")')
    assert f"rank 1 raises ValueError: no batch (spawns.py:{line})" in done.output


@pytest.mark.parametrize(
    ("address", "port", "given"),
    [
        ("localhost", 41000, [(2, 41000)]),
        ("localhost", 41000, [("41000",)]),
        ("localhost", 41000, ["tcp://localhost:41000"]),
        ("localhost", 41000, [{"dist": {"base_port": 40990}}]),
        ("localhost", 41000, [argparse.Namespace(port=41000)]),
        ("localhost", 41000, [object()]),
        ("/srv/a/meets", -1, ["/srv/a"]),
    ],
)
def test_a_place_that_a_spawned_rank_is_passed_is_its_parents(
    address: str, port: int, given: list[object]
) -> None:
    said = {"method": "env" if port > 0 else "file", "address": address, "port": port}
    assert comes_from_parent(said, given)
    assert not comes_from_parent(said, [2, 0.5, None, "gloo", {"lr": 3}])


@pytest.mark.parametrize(
    ("given", "first", "is_other"),
    [
        ([2, 41000], [0, 40900], True),
        ([{"MASTER_PORT": "41000"}], [{"MASTER_PORT": "40900"}], True),
        ([("tcp://localhost:41000",)], [("tcp://localhost:40900",)], True),
        ([2, 41000], [0, 41000], False),
        ([2, 41000, 41002], [0, 41000, 41001], False),
        ([2, 41001, 41000], [0, 41000, 41000], False),
        ([{"MASTER_PORT": "41000"}], [{"RANK": "0"}], False),
        ([41000], [None], False),
    ],
)
def test_a_port_that_the_first_rank_is_not_passed_is_another_place(
    given: list[object], first: list[object], *, is_other: bool
) -> None:
    said = {"method": "env", "address": "localhost", "port": 41000}
    assert has_other_port(said, given, first) == is_other


@pytest.mark.torch
@pytest.mark.parametrize("port", ["port", "port + (rank == 2)"])
def test_fake_ranks_whose_parent_gives_one_another_port_never_meet(
    tmp_path: Path, port: str
) -> None:
    script = tmp_path / "starts.py"
    script.write_text(
        "import os, random, torch.distributed as dist, torch.multiprocessing as mp\n"
        "def work(environment):\n"
        "    os.environ.update(environment)\n"
        "    dist.init_process_group('gloo')\n"
        "    dist.barrier()\n"
        "port = random.randrange(30000, 60000)\n"
        "for rank in range(3):\n"
        "    own = {'MASTER_ADDR': 'localhost', 'RANK': str(rank), 'WORLD_SIZE': '3'}\n"
        f"    own['MASTER_PORT'] = str({port})\n"
        "    mp.Process(target=work, args=(own,)).start()\n"
    )
    command = ["record", "--fake", "-n", "3", "-o", str(tmp_path / "out"), "--", str(script)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == (1 if "rank" in port else 0), done.output
    assert ("rank 2 meets at a port that their parent gives rank 2 alone" in done.output) == (
        "rank" in port
    )


@pytest.mark.torch
def test_processes_that_are_no_whole_world_are_told_with_the_loop_that_starts_them(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch.distributed as dist, torch.multiprocessing as mp\n"
        "def work(rank):\n"
        "    dist.init_process_group('gloo', init_method='file:///x', rank=rank, world_size=2)\n"
        "for rank in range(1, 2):\n"
        "    mp.Process(target=work, args=(rank,)).start()\n"
    )
    command = ["record", "--fake", "-n", "2", "-o", str(tmp_path / "out"), "--", str(script)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1, done.output
    assert "rank 0 never comes to `init_process_group`" in done.output
    assert "the script starts processes by `for rank in range(1, 2)` (train.py:4)" in done.output


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.parametrize("fake", sampled([False, True], 2))
def test_spawned_ranks_that_count_from_one_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fake: bool
) -> None:
    monkeypatch.setenv("FIRST", "1")
    command = ["record", "-o", str(tmp_path / "out"), *["--fake", "-n", "2"] * fake, "--"]
    command += [] if fake else [sys.executable]
    done = CliRunner().invoke(cli, [*command, str(SCRIPTS / "spawns.py")])
    assert done.exit_code == 1, done.output
    assert "rank 2 is not in a world of 2 ranks" in done.output
    assert "`rank = int(os.environ.get('FIRST', '0')) + place`" in done.output.replace('"', "'")


class Job:
    """What `torch.distributed` says of the job of a rank."""

    def __init__(self) -> None:
        self.joined: list[str] = []

    def is_initialized(self) -> bool:
        """Return whether the rank is in a group."""
        return bool(self.joined)

    def destroy_process_group(self) -> None:
        """Leave the group."""
        self.joined.clear()


def spawner_of(job: Job) -> SimpleNamespace:
    """Return what a script calls that starts ranks, as rank 1 of two."""
    from torch_scenarios.record.fake import Spawner

    starts = SimpleNamespace(spawn=helpers, start_processes=helpers)
    recorder = SimpleNamespace(is_spawned=False, note_return=lambda: None)
    Spawner(recorder, job, rank=1, world=2).install(starts)
    return starts


def helpers(fn: Callable[..., object], args: tuple[object, ...], nprocs: int, join: object) -> str:
    return f"{nprocs} helpers of {fn.__name__}{args}, {join}"


@pytest.mark.torch
def test_what_a_script_would_start_runs_in_the_rank_that_is_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    starts = spawner_of(Job())
    starts.spawn(print, ("job",), 2)
    assert starts.start_processes(print, args=("again",), nprocs=2, join=False).join()
    assert capsys.readouterr().out == "1 job\n1 again\n"
    with pytest.raises(SystemExit, match="starts 4 ranks, and is recorded with 2: write"):
        starts.spawn(print, nprocs=4)


@pytest.mark.torch
def test_what_a_rank_starts_that_has_joined_its_job_are_its_helpers() -> None:
    job = Job()
    job.joined.append("world")
    assert spawner_of(job).spawn(print, (3,), 4) == "4 helpers of print(3,), True"


@pytest.mark.torch
def test_helpers_that_are_started_before_the_job_are_started() -> None:
    spawned = spawner_of(Job()).spawn(helpers, (3,), 4)
    assert spawned == "4 helpers of helpers(3,), True"


@pytest.mark.torch
def test_a_second_spawn_finds_no_group_of_the_first() -> None:
    job = Job()
    found: list[tuple[int, str, list[str]]] = []

    def demonstrate(rank: int, name: str) -> None:
        found.append((rank, name, [*job.joined]))
        job.joined.append(name)

    starts = spawner_of(job)
    for name in "first", "second":
        starts.spawn(demonstrate, (name,), 2)
    assert found == [(1, "first", []), (1, "second", [])]


@pytest.mark.torch
def test_a_script_that_may_start_its_ranks_itself_is_told_how_it_is_recorded(
    tmp_path: Path,
) -> None:
    script = tmp_path / "spawns.py"
    script.write_text("import torch.multiprocessing as mp\nif False:\n    mp.spawn(print)\n")
    done = CliRunner().invoke(cli, ["record", "-n", "1", "-o", str(tmp_path / "o"), str(script)])
    assert f"`scenario record -- python {script}`" in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("torchrun", "--nnodes", "2", "train.py"), "waits for 2 nodes (`--nnodes 2`)"),
        (("torchrun", "--nnodes=2:4", "train.py"), "waits for 2 nodes (`--nnodes 2:4`)"),
        (("accelerate", "launch", "--num_machines", "3", "train.py"), "waits for 3 nodes"),
        (("torchrun", "--nnodes", "1", "train.py"), ""),
        (("torchrun", "train.py"), ""),
        (("torchrun", "--nnodes"), ""),
    ],
)
def test_a_launcher_that_waits_for_other_nodes_is_told(
    command: tuple[str, ...], words: str
) -> None:
    said = tell_nodes(command)
    assert words in said
    assert bool(said) is bool(words)


def test_a_program_that_a_rank_starts_knows_whose_place_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim = {"rank": 1, "world_size": 2, "address": "node", "port": 29500}
    monkeypatch.delenv(OWNER, raising=False)
    assert rank_joined(claim) is None
    monkeypatch.setenv(OWNER, "")  # it is as it was behind the test
    tell_programs(1, claim)
    assert rank_joined(claim) is None, "the rank itself"
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert rank_joined(claim) == 1
    for other in ({"rank": 0}, {"world_size": 1}, {"port": 29501}, {"address": "other"}):
        assert rank_joined({**claim, **other}) == -1, "a world of its own"
    release_programs()
    monkeypatch.setattr(os, "getpid", lambda: 2)
    assert rank_joined(claim) == -1, "its parent has left its world"


@pytest.mark.torch
def test_a_module_is_recorded_by_the_words_that_python_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    command = ["record", "-n", "1", "-o", str(tmp_path / "o"), "--", "-m", "job.train"]
    assert "job.train  1 rank, ran" in CliRunner().invoke(cli, command).output


def test_ranks_inherit_nothing_of_the_store_that_they_meet_in(
    recording: Recording, tmp_path: Path
) -> None:
    """A lock that a thread of the store held while a rank was forked stayed locked in that rank."""
    ran = recording.of("inherits.py", "-n", "4", OUT=str(tmp_path))
    assert ran.code == 0, ran.output
    assert {
        path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()
    } == dict.fromkeys("0123", "")
