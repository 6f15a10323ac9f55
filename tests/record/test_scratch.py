"""What fake ranks write is kept aside; and no process outlives its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli
from torch_scenarios.record.scratch import Scratch

T = TypeVar("T")

#: a process that keeps aside what it writes, in the folder that it runs in
BEGIN = """
import os, pathlib, shutil, sys
from torch_scenarios.record.scratch import Scratch
Scratch(sys.argv[1], own=(os.getcwd(),)).install()
"""


def keep_aside(folder: Path, script: str) -> str:
    """Run a script whose files are kept aside; return what it prints."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "old.txt").write_text("old", encoding="utf-8")
    (work / "tree").mkdir(exist_ok=True)
    (work / "tree" / "leaf").write_text("leaf", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(script), str(folder / "scratch")],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (work / "old.txt").read_text(encoding="utf-8") == "old"
    assert (work / "tree" / "leaf").read_text(encoding="utf-8") == "leaf"
    assert sorted(each.name for each in work.iterdir()) == ["old.txt", "tree"]
    return done.stdout.strip()


def test_a_compressed_file_is_kept_aside_whose_module_has_kept_the_function_open(
    tmp_path: Path,
) -> None:
    script = """
    import bz2
    with bz2.open("words.bz2", "wt") as file:
        file.write("packed")
    print(bz2.open("words.bz2", "rt").read(), sorted(os.listdir()))
    """
    assert keep_aside(tmp_path, script) == "packed ['old.txt', 'tree', 'words.bz2']"


def test_a_file_that_is_written_anew_is_read_back_and_the_own_one_stays(tmp_path: Path) -> None:
    script = """
    pathlib.Path("old.txt").write_text("new")
    open("more.txt", "x").close()
    print(open("old.txt").read(), os.stat("old.txt").st_size, sorted(os.listdir()))
    """
    assert keep_aside(tmp_path, script) == "new 3 ['more.txt', 'old.txt', 'tree']"


def test_a_file_that_is_appended_to_begins_as_it_was(tmp_path: Path) -> None:
    script = """
    with open("old.txt", "a") as file:
        file.write("er")
    print(open("old.txt").read())
    """
    assert keep_aside(tmp_path, script) == "older"


def test_what_is_removed_or_renamed_is_not_there_any_more(tmp_path: Path) -> None:
    script = """
    os.replace("old.txt", "tree/older.txt")
    shutil.rmtree("tree")
    print(os.path.exists("old.txt"), os.path.exists("tree/leaf"), os.listdir())
    os.makedirs("tree/again")
    print(os.listdir("tree"), [each.name for each in os.scandir("tree")])
    """
    assert keep_aside(tmp_path, script) == "False False []\n['again'] ['again']"


def test_an_empty_path_is_no_folder(tmp_path: Path) -> None:
    script = """
    print(os.path.isdir(""), os.path.isdir(b""), os.path.exists(os.environ.get("UNSET", "")))
    """
    assert keep_aside(tmp_path, script) == "False False False"


def test_another_process_sees_the_copies(tmp_path: Path) -> None:
    keep_aside(tmp_path, "open('old.txt', 'w').write('of another')")
    assert keep_aside(tmp_path, "print(open('old.txt').read())") == "of another"


def test_a_whole_folder_is_renamed_and_changed_into(tmp_path: Path) -> None:
    script = """
    os.rename("tree", "wood")
    os.chdir("wood")
    print(open("leaf").read(), open("../old.txt").read(), os.path.isdir("../tree"))
    """
    assert keep_aside(tmp_path, script) == "leaf old False"


def test_what_is_not_redirected_is_refused_with_the_way_out(tmp_path: Path) -> None:
    script = """
    import io
    try:
        io.FileIO("old.txt", "w")
    except PermissionError as error:
        print(error.strerror, os.path.basename(error.filename))
    """
    found = keep_aside(tmp_path, script)
    assert "--writes-allowed" in found
    assert found.endswith("old.txt")


def test_temporary_files_and_devices_are_as_ever(tmp_path: Path) -> None:
    script = """
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x")
        open(path, "w").close()
        print(open(path).fileno() >= 0, sorted(os.listdir(sys.argv[1] + "/copies")))
    open(os.devnull, "w").close()
    """
    assert keep_aside(tmp_path, script) == "True []"


def test_a_temporary_file_copies_nothing_of_the_folder_that_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python opens the folder to write, for a file without a name or by an opener of its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "link").symlink_to("nowhere")
    script = """
    import tempfile
    with tempfile.NamedTemporaryFile() as named, tempfile.TemporaryFile() as other:
        named.write(b"x"), other.write(b"y")
        print(os.path.dirname(named.name) == os.environ["TMPDIR"], end=" ")
    print(sorted(os.listdir(sys.argv[1] + "/copies")))
    try:
        open("tree", "w")
    except IsADirectoryError as error:
        print(os.path.basename(error.filename))
    """
    assert keep_aside(tmp_path, script) == "True []\ntree"


@pytest.mark.parametrize(
    ("own", "is_free"),
    [("", True), ("t", True), ("t/tmpabcd1234", True), ("t/pymp-abcd1234", False)],
)
def test_temporary_files_are_as_ever_in_a_folder_that_holds_theirs(
    own: str, *, is_free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a DataLoader binds a socket there, which no path of Python's leads to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    scratch = Scratch(str(tmp_path / "scratch"), own=(str(tmp_path / own),))
    assert scratch.is_free(str(tmp_path / "t/pymp-abcd1234/listener-1")) is is_free
    assert not scratch.is_free(str(tmp_path / own / "model.pt"))


CHECKPOINT = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
epoch = torch.load("snapshot.pt")["epoch"]
dist.all_reduce(torch.ones(2))
if dist.get_rank() == 0:
    torch.save({"epoch": epoch + 1}, "part.pt")
    os.replace("part.pt", "snapshot.pt")
dist.barrier()
assert torch.load("snapshot.pt")["epoch"] == epoch + 1
dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.slow
def test_fake_ranks_leave_a_checkpoint_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(CHECKPOINT, encoding="utf-8")
    torch.save({"epoch": 7}, "snapshot.pt")
    before = Path("snapshot.pt").read_bytes()
    command = ["record", "--fake", "-n", "2", "-o", "out"]
    done = CliRunner().invoke(cli, [*command, "--", "train.py"])
    assert done.exit_code == 0, done.output
    assert Path("snapshot.pt").read_bytes() == before
    assert "--writes-allowed" in done.output
    done = CliRunner().invoke(cli, [*command, "--writes-allowed", "--", "train.py"])
    assert done.exit_code == 0, done.output
    assert torch.load("snapshot.pt")["epoch"] == 8


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is of Linux")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--fake", "--writes-allowed"), id="fake"),
        pytest.param((), id="live", marks=pytest.mark.nightly),
    ],
)
def test_no_process_outlives_a_recording_that_is_killed(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"import os, time\nopen({str(tmp_path)!r} + f'/pid-{{os.getpid()}}-', 'w').close()\n"
        "time.sleep(300)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "torch_scenarios.cli", "record", "-n", "2"]
    command += ["-o", str(tmp_path / "out"), *options]
    with subprocess.Popen([*command, "--", str(script)], start_new_session=True) as process:
        try:
            started = until(lambda: pids(tmp_path, 2))
            parents = {
                Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
                for pid in started
            }
        finally:
            process.send_signal(signal.SIGKILL)
    assert until(lambda: not any(map(lives, [*started, *map(int, parents)])))


def pids(folder: Path, wanted: int) -> list[int]:
    """Return the processes that ran the script, once there are so many."""
    found = [int(path.name.split("-")[1]) for path in folder.glob("pid-*")]
    return found if len(found) == wanted else []


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    except OSError:
        return False
    return state.split()[0] not in "ZX"


def until(true: Callable[[], T], seconds: float = 120.0) -> T:
    """Return what is true at last."""
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.1)
    return found
