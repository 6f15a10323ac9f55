"""Another user connects to all that a run has open: he runs no code, and writes no message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import intruder
import pytest
from sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="to be another user needs root"),
]

ENDS_S = 120.0
#: looks, a tenth of a second apart, at which the same ports have to be open
STILL = 15
#: a word of the scenario, which is in its plan, its marks and its trace
WORD = "unheard_of"
RIGHT = f"""\
world_size: 2
timeout: 60s
tensors: {{{WORD}: [1]}}
steps:
  - compute: {{{WORD}: {WORD} + 20}}
  - barrier: {{}}
  - sleep: 20s
  - all_reduce: {{tensor: {WORD}}}
    expect: {{{WORD}: [42]}}
"""
#: a backend that is wrong: only a run can find that out
WRONG = """\
import torch.distributed as dist

right = dist.all_reduce


def all_reduce(tensor, *words, **more):
    work = right(tensor, *words, **more)
    tensor += 1
    return work


dist.all_reduce = all_reduce
"""


def started(
    words: Sequence[str], folder: Path, more: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(more or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until_ranks_sleep(run: subprocess.Popen[str], most: int) -> None:
    """Wait until the ranks of a run listen to each other, which is so while they sleep."""
    ports, same = set[tuple[int, str, int]](), 0
    while run.poll() is None and (len(ports) < most or same < STILL):
        time.sleep(0.1)
        before, ports = ports, {*intruder.opens(intruder.processes(run.pid))[0]}
        same = same + 1 if ports == before else 0


def intrude(words: Sequence[str], folder: Path, made: Path, how: str) -> tuple[dict[str, Any], str]:
    """Run a case with an intruder; return what he found, and what the run printed."""
    him = subprocess.Popen(
        [sys.executable, intruder.__file__, str(made), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert him.stdout is not None
    assert him.stdout.readline() == "ready\n"
    run = started(words, folder)
    if how not in intruder.EAGER:
        until_ranks_sleep(run, 3)
    found: dict[str, Any] = json.loads(him.communicate(f"{run.pid}\n", timeout=ENDS_S)[0])
    return found, run.communicate(timeout=ENDS_S)[0]


BIN = Path(sys.executable).parent
RUN = [str(BIN / "scenario"), "run", "--no-cache", "--json", "results.json", "case.yaml"]
TORCHRUN = [
    *(str(BIN / "torchrun"), "--nproc-per-node", "2", "-m", "torch_scenarios.worker"),
    *("--json", "results.json", "case.yaml"),
]


#: the page that says what he can do, whose table is held to what is seen here
SAFETY = Path(__file__).parents[2] / "docs" / "explanation" / "safety.md"
BRIEF = RIGHT.replace("20s", "8s")


def rows() -> dict[str, tuple[str, str]]:
    """Return what the page says of each way: the verdicts with a right backend, and a wrong one."""
    text = SAFETY.read_text(encoding="utf-8")
    table = text.partition("<!-- intruder -->")[2].partition("<!-- intruder: end -->")[0]
    found = {}
    for line in table.strip().splitlines()[2:]:
        way, right, wrong = (cell.strip() for cell in line.strip().strip("|").split("|"))
        found[way.removeprefix("he ")] = right, wrong
    return found


def test_the_page_has_each_way() -> None:
    assert rows().keys() == intruder.WAYS.keys() | intruder.EAGER.keys()
    assert all(wrong != "PASSED" for _, wrong in rows().values())


@pytest.mark.nightly
@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
@pytest.mark.parametrize("way", [*intruder.WAYS, *intruder.EAGER])
def test_what_he_does_to_torchs_own_store_and_ports_never_lets_a_wrong_backend_pass(
    way: str, tmp_path: Path, *, wrong: bool
) -> None:
    (tmp_path / "case.yaml").write_text(BRIEF, encoding="utf-8")
    made = Path("/tmp") / f"planted-{os.getpid()}"  # noqa: S108 -- where any user may write
    command = with_a_wrong_backend(tmp_path) if wrong else RUN
    found, output = intrude(command, tmp_path, made, way)
    (verdict,) = verdicts(tmp_path)
    program = "a wrong backend" if wrong else "a right one"
    sys.stdout.write(f"he {way} ({found['did']}) | {program} | {verdict}\n")  # `pytest -rP`
    assert way in intruder.EAGER or found["ports"] >= 3, output
    assert not found["did"].startswith("0 "), found
    assert verdict in {rows()[way][wrong], "INCONCLUSIVE"}, output
    assert "Traceback" not in output


@pytest.mark.parametrize("is_by_hand", sampled([True, False], 2))
def test_every_port_of_a_run_of_ours_is_of_the_loopback_interface(
    tmp_path: Path, *, is_by_hand: bool
) -> None:
    """Where another launcher started the ranks on one machine as well, but for torchrun's own."""
    (tmp_path / "case.yaml").write_text(BRIEF, encoding="utf-8")
    runs = by_hand(tmp_path) if is_by_hand else [started(RUN, tmp_path)]
    until_ranks_sleep(runs[0], 2)
    pids = [pid for run in runs for pid in intruder.processes(run.pid)]
    ports = intruder.opens(pids)[0]
    hosts = {intruder.host_of(number, address) for number, address, _ in ports}
    everywhere = [each for each in ports if set(each[1]) == {"0"}]
    outputs = [run.communicate(timeout=ENDS_S)[0] for run in runs]
    assert len(ports) >= 3, outputs
    assert not everywhere, outputs
    assert hosts == {"127.0.0.1"}
    assert verdicts(tmp_path) == ["PASSED"], outputs


def by_hand(folder: Path) -> list[subprocess.Popen[str]]:
    """Start two ranks with the variables of Open MPI, which opens no store."""
    words = [sys.executable, "-m", "torch_scenarios.worker", "--json", "results.json", "case.yaml"]
    found = []
    for rank in range(2):
        more = {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "PMIX_NAMESPACE": f"{os.getpid()}",
        }
        found.append(started(words, folder, more))
    return found


def verdicts(folder: Path) -> list[str]:
    text = (folder / "results.json").read_text(encoding="utf-8")
    return [each["verdict"] for each in json.loads(text)["results"]]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(RUN, id="scenario run"),
        pytest.param(TORCHRUN, id="torchrun", marks=pytest.mark.nightly),
    ],
)
def test_he_runs_nothing_and_reads_nothing_of_ours(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(RIGHT, encoding="utf-8")
    made = Path("/tmp") / f"planted-{os.getpid()}"  # noqa: S108 -- where any user may write
    found, output = intrude(words, tmp_path, made, "look")
    assert found["ports"] >= 1, output
    assert found["sockets"] >= 1, output
    assert any(name.startswith("key ") for name in found["read"]), found
    assert WORD not in json.dumps(found)
    assert not made.exists()
    assert verdicts(tmp_path) == ["PASSED"], output


def with_a_wrong_backend(folder: Path) -> list[str]:
    """Return the command of a run whose backend adds one to each sum."""
    (folder / "wrongly.py").write_text(WRONG, encoding="utf-8")
    return [*RUN[:2], "--plugin", "wrongly", *RUN[2:]]


@pytest.mark.nightly
def test_a_wrong_backend_is_found_out_where_he_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(RIGHT.replace("  - sleep: 20s\n", ""), encoding="utf-8")
    run = started(with_a_wrong_backend(tmp_path), tmp_path)
    output = run.communicate(timeout=ENDS_S)[0]
    assert verdicts(tmp_path) == ["FAILED"], output


@pytest.mark.nightly
def test_what_he_disturbs_ends_and_never_passes(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(RIGHT, encoding="utf-8")
    made = Path("/tmp") / f"planted-{os.getpid()}"  # noqa: S108 -- where any user may write
    found, output = intrude(with_a_wrong_backend(tmp_path), tmp_path, made, "disturb")
    assert found["ports"] >= 3, output
    assert not made.exists()
    assert verdicts(tmp_path) != ["PASSED"], output
