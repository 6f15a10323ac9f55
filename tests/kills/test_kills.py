"""Random killings of a run: whichever process a signal hits, and when, nothing is left behind.

Each killing starts a run of its own, sends one signal to the launcher, the process that holds the
workers or a worker, and looks at what there is afterwards. `SCENARIO_KILLS` is how many there are
(two; `.ci/nightly` asks for 200), `SCENARIO_KILLS_SEED` where they begin: a number and a seed
are one killing.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from xml.etree import ElementTree as ET

import pytest
from processes import of_run, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.torch, pytest.mark.slow]

KILLS = int(os.environ.get("SCENARIO_KILLS", "2"))
SEED = int(os.environ.get("SCENARIO_KILLS_SEED", "10"))
ROOT = Path(__file__).parents[2]

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL", "SIGSTOP")
VICTIMS = ("launcher", "host", "worker")
#: signals that end a run in order: its launcher lives until its reports are written
ORDERLY = frozenset({"SIGINT", "SIGTERM", "SIGHUP"})

#: seconds until a process that has to go is gone
GONE_S = 20.0
#: seconds until a run must have ended, also one that waits for a process that is stopped
ENDED_S = 240.0
#: seconds that a stopped launcher stands
STANDS_S = 1.0
#: seconds over which the moments are spread, from the start of the command
SPREAD_S = 7.0
#: killings under way at a time
AT_ONCE = 3

CASES = """\
world_size: 3
timeout: 5s
matrix: {n: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}
tensors: {x: "full(4, rank + n)"}
steps:
  - {ranks: n % 3, sleep: 0.1s}
  - all_reduce: {tensor: x}
  - barrier: {}
"""
FINISHED = re.compile(r"^(?:PASSED|FAILED|INCONCLUSIVE) +\S+::(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Killing:
    """One signal to one process, some seconds after the command was started."""

    signal: str
    victim: str
    after_s: float

    def __str__(self) -> str:
        """Return how it is named in a report."""
        return f"{self.signal} to the {self.victim} after {self.after_s:.2f} s"


def killings() -> list[Killing]:
    """Return the killings of this seed; every signal meets every victim before one does again."""
    chance = random.Random(SEED)  # noqa: S311 -- no secret
    found: list[Killing] = []
    while len(found) < KILLS:
        pairs = [(each, victim) for each in SIGNALS for victim in VICTIMS]
        chance.shuffle(pairs)
        for name, victim in pairs:
            after_s = round(chance.uniform(0, SPREAD_S), 2)
            found.append(Killing(signal=name, victim=victim, after_s=after_s))
    return found[:KILLS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that was started, where it works, and by what its processes are known."""

    process: subprocess.Popen[bytes]
    folder: Path
    mark: str

    def others(self) -> set[int]:
        """Return every process of the run but the launcher."""
        return set(of_run(self.mark)) - {self.process.pid}

    def victim(self, which: str) -> int | None:
        """Return a process of that kind; None where there is none yet."""
        if which == "launcher":
            return self.process.pid
        parents = {pid: _parent(pid) for pid in self.others()}
        hosts = [pid for pid, parent in parents.items() if parent == self.process.pid]
        workers = [pid for pid, parent in parents.items() if parent in hosts]
        found = hosts if which == "host" else workers
        return max(found, default=None)

    def said(self) -> str:
        """Return its standard output and error so far."""
        return (self.folder / "out.txt").read_text(encoding="utf-8", errors="replace")


def _parent(pid: int) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def started(folder: Path) -> Run:
    work = folder / "work"
    work.mkdir()
    (folder / "tmp").mkdir()
    (work / "cases.yaml").write_text(CASES, encoding="utf-8")
    mark = f"SCENARIO_TEST={folder.name}-{os.getpid()}"
    name, _, value = mark.partition("=")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "torch_scenarios.entry", "run", "cases.yaml"]
    with (folder / "out.txt").open("wb") as out:
        process = subprocess.Popen(
            [*command, "--json", "r.json", "--junit", "r.xml"],
            cwd=work,
            env={**os.environ, name: value, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": path},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Run(process=process, folder=folder, mark=mark)


def strike(run: Run, killing: Killing) -> None:
    """Send the signal at its moment, or as soon as there is such a process."""
    until(lambda: run.process.poll() is not None, killing.after_s)
    until(lambda: run.process.poll() is not None or run.victim(killing.victim) is not None, ENDED_S)
    victim = run.victim(killing.victim)
    if victim is None or run.process.poll() is not None:
        return  # it was over before
    with suppress(ProcessLookupError):
        os.kill(victim, getattr(signal, killing.signal))
    if killing.signal == "SIGSTOP" and killing.victim == "launcher":
        time.sleep(STANDS_S)
        os.kill(victim, signal.SIGCONT)


def shared_memory(pids: set[int]) -> list[str]:
    """Return what the shared memory of the machine holds under the names of these processes."""
    folder = Path("/dev/shm")  # noqa: S108 -- it is looked at
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return [name for name in names if {int(each) for each in re.findall(r"\d+", name)} & pids]


def listening() -> dict[str, str]:
    """Return the inode -> the address of every port at which something listens."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    found[fields[9]] = fields[1]
    return found


def sockets(pids: set[int]) -> set[str]:
    """Return the inodes of the sockets that processes hold."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    found |= set(re.findall(r"socket:\[(\d+)\]", str(entry.readlink())))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a killed run said and left behind."""

    said: str
    code: int
    processes: frozenset[int]
    ports: frozenset[str]
    memory: tuple[str, ...]


def done(killing: Killing, folder: Path) -> Left:
    """Start a run, strike it, and wait until it is over; whatever is left of it is ended."""
    run = started(folder)
    seen: set[int] = set()
    ports: set[str] = set()
    left: set[int] = set()
    try:
        strike(run, killing)
        seen |= run.others() | {run.process.pid}
        ports |= sockets(seen) & set(listening())
        run.process.wait(timeout=ENDED_S)
        until(lambda: not run.others(), GONE_S)
        until(lambda: ports.isdisjoint(listening()), GONE_S)
    finally:
        left |= run.others() | ({run.process.pid} if run.process.poll() is None else set())
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.process.wait()
    return Left(
        said=run.said(),
        code=run.process.returncode,
        processes=frozenset(left),
        ports=frozenset(ports & set(listening())),
        memory=tuple(shared_memory(seen)),
    )


#: number of a killing -> the folder that its run works in, and what will be left of it
Strikes: TypeAlias = "dict[int, tuple[Path, Future[Left]]]"


@pytest.fixture(scope="module")
def striking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strikes]:
    """Begin every killing, a few at a time: mostly they wait."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        begun: Strikes = {}
        for number, killing in enumerate(killings()):
            folder = tmp_path_factory.mktemp("kill")
            begun[number] = folder, pool.submit(done, killing, folder)
        yield begun
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(("number", "killing"), list(enumerate(killings())), ids=str)
def test_a_killing_leaves_nothing_behind_and_loses_no_result(
    number: int,
    killing: Killing,
    striking: Strikes,
    record_property: Callable[[str, object], None],
) -> None:
    folder, future = striking[number]
    left = future.result()
    record_property("ended", json.dumps({"code": left.code}))
    # a Ctrl-C that meets Python before it has begun with the command is answered by Python
    assert "Traceback" not in left.said or "/torch_scenarios/" not in left.said, left.said
    assert not left.processes, left.said
    assert not left.ports
    assert left.memory == ()
    assert list((folder / "tmp").iterdir()) == []
    _assert_files(folder / "work")
    _assert_code(killing, left.code, left.said)
    if left.code >= 0:
        _assert_reports(folder / "work", left.said)


def _assert_files(work: Path) -> None:
    """Nothing lies in the folder but the scenario, whole reports, and what a run remembers."""
    assert {path.name for path in work.iterdir()} <= {"cases.yaml", "r.json", "r.xml", ".scenario"}
    remembered = {path.name for path in (work / ".scenario").glob("*")}
    assert remembered <= {".gitignore", "last.json", "timelines.jsonl"}


def _assert_code(killing: Killing, code: int, said: str) -> None:
    """The code tells what the signal did: ended the run, killed it, cost a case, or nothing."""
    number = int(getattr(signal, killing.signal))
    if killing.victim != "launcher" or killing.signal == "SIGSTOP":
        assert code in {0, 3}, said
    elif killing.signal in ORDERLY:
        # before Python has begun, or after it is done, a signal does what it does by itself
        assert code in {130, 0} or (code == -number and not FINISHED.search(said)), said
    else:
        assert code in {-number, 0}, said


def _assert_reports(work: Path, said: str) -> None:
    """Every result that was told is in the JSON and in the JUnit, and both agree."""
    finished = set(FINISHED.findall(said))
    if not (work / "r.json").exists():
        assert not finished, said
        return
    found = json.loads((work / "r.json").read_text(encoding="utf-8"))
    cases = {each["case"]: each["verdict"] for each in found["results"]}
    suites = ET.parse(work / "r.xml").getroot()  # noqa: S314 -- our own
    assert finished <= set(cases)
    assert {case.get("name") for case in suites.iter("testcase")} == set(cases)
    assert set(cases.values()) <= {"PASSED", "INCONCLUSIVE"}, said
