"""Interrupts: where they are raised, what they never take away, and what standard output may do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from checkout import PACKAGE
from sampling import sampled

from torch_scenarios.pipeline import interruption
from torch_scenarios.pipeline.interruption import handle_interrupts, hold_back, interruptible

if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD = "world_size: 2\ntensors: {x: [1]}\nsteps:\n- all_reduce: {tensor: x}\n  expect: {x: [2]}\n"
COMMAND = (sys.executable, "-m", "torch_scenarios.entry")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with 40 good scenarios and a wrong one."""
    monkeypatch.chdir(tmp_path)
    for number in range(40):
        (tmp_path / f"good{number}.yaml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "wrong.yml").write_text(GOOD.replace("x: [2]", "x: [3]"), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE.parent))
    return tmp_path


@pytest.fixture
def heard() -> Iterator[None]:
    """Have the signals ignored again that a test handles."""
    before = {number: signal.getsignal(number) for number in interruption.SIGNALS}
    yield
    for number, old in before.items():
        signal.signal(number, old)


def ask(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", interruption.SIGNALS)
def test_an_interrupt_is_raised_inside_and_held_back_elsewhere(number: signal.Signals) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    done = []
    with handle_interrupts():
        ask(number)
        done.append("before")
        with pytest.raises(KeyboardInterrupt), interruptible():
            done.append("never")
        ask(number)
        done.append("after")
    assert done == ["before", "after"]


@pytest.mark.usefixtures("heard")
def test_an_interrupt_waits_for_what_is_whole() -> None:
    done: list[str] = []

    def work() -> None:
        with interruptible():
            with hold_back():
                ask()
                done.append("whole")
            done.append("never")

    with handle_interrupts(), pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["whole"]


@pytest.mark.usefixtures("heard")
def test_a_second_interrupt_does_not_disturb_the_end_of_the_first() -> None:
    done: list[str] = []

    def work() -> None:
        with interruptible():
            try:
                ask()
            finally:
                ask()
                done.append("ended")

    with handle_interrupts(), pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["ended"]


@pytest.mark.usefixtures("heard")
def test_an_interrupt_that_was_lost_is_raised_again() -> None:
    def work() -> None:
        with interruptible():
            with suppress(KeyboardInterrupt):  # as in a destructor, where Python drops it
                ask()
            with hold_back():
                pass

    with handle_interrupts(), pytest.raises(KeyboardInterrupt):
        work()


@pytest.mark.usefixtures("heard")
def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with handle_interrupts(), interruptible():
        ask(signal.SIGHUP)


# ---------------------------------------------------------------------------- the command


def started(*arguments: str, stdout: int | IO[bytes] = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *arguments], stdout=stdout, stderr=subprocess.PIPE)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Return the exit code and what was said on standard error."""
    said = process.communicate(timeout=120)[1].decode()
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    return process.returncode, said


def kept(folder: Path) -> list[str]:
    """Return the verdicts in the JSON that a run left; else only what it remembers."""
    others = {path.name for path in folder.iterdir()} - {"r.json", "r.xml", ".scenario"}
    assert all(name.endswith((".yaml", ".yml")) for name in others), others
    assert (folder / "r.xml").read_text().endswith("</testsuites>\n")
    return [each["verdict"] for each in json.loads((folder / "r.json").read_text())["results"]]


REPORTS = ("--json", "r.json", "--junit", "r.xml")


@pytest.mark.parametrize(
    ("files", "code", "verdicts"),
    [([], 3, ["PASSED"]), (["wrong.yml"], 1, ["PASSED", "FAILED"])],
)
def test_a_full_standard_output_loses_no_report(
    folder: Path, files: list[str], code: int, verdicts: list[str]
) -> None:
    with Path("/dev/full").open("wb") as full:
        found, said = ended(started("check", "good0.yaml", *files, *REPORTS, stdout=full))
    assert found == code
    assert "for people cannot be written: No space left on device" in said
    assert kept(folder) == verdicts


def test_a_reader_that_leaves_loses_no_report(folder: Path) -> None:
    process = started("check", ".", "wrong.yml", *REPORTS)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert ended(process) == (1, "")
    assert kept(folder).count("PASSED") == 40


@pytest.mark.parametrize("closed", sampled(["<&- >&- 2>&-", "", "<&-", ">&-", "2>&-"], 5))
def test_closed_standard_streams_are_no_fault(folder: Path, closed: str) -> None:
    line = f"exec {' '.join(COMMAND)} check good0.yaml {' '.join(REPORTS)} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=False, timeout=120)  # noqa: S607
    assert (done.returncode, done.stderr) == (0, b"")
    assert kept(folder) == ["PASSED"]


def test_a_report_that_standard_output_does_not_take_is_lost(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        code, said = ended(started("check", "good0.yaml", "--json", "-", stdout=full))
    assert code == 3
    assert "the report --json - cannot be written: No space left on device" in said
    assert "1 passed" in said
    assert "r.json" not in {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("arguments", sampled(["list .", "ops", "schema", "explain"], 4))
def test_a_command_without_reports_says_that_its_output_is_full(arguments: str) -> None:
    with Path("/dev/full").open("wb") as full:
        code, said = ended(started(*arguments.split(), stdout=full))
    assert code == 3
    assert "the output cannot be written" in said


ON_IMPORT = """\
import os, signal, sys
class Hook:
    def find_spec(self, name, *_):
        if name == "{module}":
            sys.meta_path.remove(hook)
            for _ in range({times}):
                os.kill(os.getpid(), signal.SIGINT)
hook = Hook()
sys.meta_path.insert(0, hook)
import torch_scenarios.entry
torch_scenarios.entry.main()
"""


#: of these three are imported from a C module, which prints whatever is raised in it
IMPORTED = (
    *(
        "torch_scenarios.errors",
        "numpy._core.multiarray",
        "torch_scenarios.cli.run",
        "ml_dtypes._finfo",
        "yaml",
    ),
    *("torch_scenarios.model.plan", "torch_scenarios.cli", "click", "numpy", "numpy.matrixlib"),
)


@pytest.mark.parametrize(
    ("words", "module", "times"),
    sampled(list(product(("check", "run --dry-run"), IMPORTED, (1, 3))), 5),
)
def test_ctrl_c_while_something_is_imported_is_no_traceback(
    module: str, times: int, words: str
) -> None:
    program = ON_IMPORT.format(module=module, times=times)
    command = [sys.executable, "-c", program, *words.split(), "good0.yaml", *REPORTS]
    code, said = ended(subprocess.Popen(command, stderr=subprocess.PIPE))
    assert code == 130
    assert "Traceback" not in said


def test_the_entry_imports_nothing_that_ctrl_c_could_hit_before_its_guard() -> None:
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import torch_scenarios.entry\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout.split() == [b"torch_scenarios", b"torch_scenarios.entry"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_a_worker_from_its_first_moment(number: signal.Signals) -> None:
    """Torchrun's agent handles signals by raising, of which torch would write a file that stays."""
    program = (
        "import os, signal, sys\n"
        "from torch_scenarios.worker.fork_server import let_signals_end_workers\n"
        "def raises(*_): raise RuntimeError\n"
        f"signal.signal({int(number)}, raises)\n"
        "let_signals_end_workers()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end='')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert int(done.stdout) == -number


# ---------------------------------------------------------------------------- a machine in the way


@pytest.mark.parametrize(
    ("words", "code", "line"),
    sampled(
        [
            ("check good0.yaml", 0, ""),
            ("check good0.yaml --json r.json", 3, "the report --json r.json cannot be written"),
            ("record -- s.py", 3, "no temporary file can be written: let TMPDIR name a folder"),
            ("parity --reference s.py -- s.py", 3, "no temporary file can be written"),
        ],
        2,
    ),
)
def test_no_file_may_be_written_is_one_line(folder: Path, words: str, code: int, line: str) -> None:
    (folder / "s.py").write_text("print(1)\n", encoding="utf-8")
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *COMMAND, *words.split()]
    found, said = ended(subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    assert found == code, said
    assert said.startswith(line)
    assert len(said.splitlines()) == (1 if line else 0), said


@pytest.mark.parametrize("words", ["check", "run", "list", "record -- s.py", "doctor"])
def test_a_folder_that_is_gone_is_one_line(folder: Path, words: str) -> None:
    (folder / "gone").mkdir()
    line = f"cd gone; rmdir ../gone; exec {' '.join(COMMAND)} {words}"
    started_there = subprocess.Popen(["sh", "-c", line], stderr=subprocess.PIPE, cwd=folder)  # noqa: S607
    code, said = ended(started_there)
    assert code == 3
    assert said == "the current folder is not there any more: change into another one\n"


FAKE = "record --fake -- s.py"
#: what is imported before a script is recorded, NumPy among it
OF_A_RECORD = (
    *("torch_scenarios.cli.record", "torch_scenarios.record.live", "torch_scenarios.record"),
    *("numpy", "numpy._core.multiarray", "msgspec", "torch_scenarios.record.launch"),
)


@pytest.mark.parametrize(
    ("module", "words"), sampled(list(product(OF_A_RECORD, ("record -- s.py", FAKE))), 6)
)
def test_ctrl_c_while_record_imports_something_is_no_traceback(
    folder: Path, module: str, words: str
) -> None:
    (folder / "s.py").write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    program = ON_IMPORT.format(module=module, times=1)
    program = program.replace("import torch_scenarios.entry", ALARM, 1)
    command = [sys.executable, "-c", program, *words.split()]
    code, said = ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    assert code == 130, said


#: a module that this process never imports is not waited for: the interrupt comes by itself then
ALARM = """\
import threading
threading.Timer(8.0, os.kill, (os.getpid(), signal.SIGINT)).start()
import torch_scenarios.entry"""


@pytest.mark.parametrize(
    ("after_ms", "words"),
    sampled(
        list(product((50, 100, 200, 400, 700, 1000), ("record -- s.py", FAKE, "check good0.yaml"))),
        4,
    ),
)
def test_ctrl_c_in_the_first_second_is_no_traceback_and_leaves_no_process(
    folder: Path, after_ms: int, words: str
) -> None:
    """As a terminal sends it: to all that a command has begun."""
    (folder / "s.py").write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", FROM_OUR_FIRST_LINE, *words.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"."
    time.sleep(after_ms / 1000)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    code, said = ended(process)
    assert code in {130, *({0} if "check" in words else set())}, said  # a check may be done by then
    with pytest.raises(ProcessLookupError):
        until_gone(process.pid)


#: what Python itself does before is not ours: it may end by the signal, with lines of its own
FROM_OUR_FIRST_LINE = """\
import os
import torch_scenarios.entry
os.write(1, b".")
torch_scenarios.entry.main()
"""


def until_gone(session: int) -> None:
    """Wait until no process of a group is left, which raises ProcessLookupError."""
    deadline_s = time.monotonic() + 30.0
    while time.monotonic() < deadline_s:
        os.killpg(session, 0)
        time.sleep(0.02)


@pytest.mark.nightly
def test_the_parent_of_ranks_ends_in_silence_where_the_command_has_ended() -> None:
    command = [sys.executable, "-m", "torch_scenarios.record.launch"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
