"""`scenario run --watch`, driven as a person drives it: saves, and what the screen says then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import left_in, of_folder, until
from sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warm_hosts import WarmHosts

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: seconds that anything may take on a busy machine
LONG_S = 60.0
READY = "Ctrl-C ends"

SUM = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [2, 4]}
"""
WRONG = SUM.replace("[2, 4]", "[2, 5]")
HANGS = """\
world_size: 2
timeout: 600s
tensors: {x: [1]}
steps:
  - {ranks: 0, sleep: 300s}
  - all_reduce: {tensor: x}
"""
PART = "inputs: [t]\nsteps:\n  - all_reduce: {tensor: t}\n"
USES = """\
world_size: 2
tensors: {x: [1]}
steps:
  - use: {file: lib/part.yaml, with: {t: x}}
expect: {x: [2]}
"""


class Watching:
    """A `scenario run --watch`, or `check --watch`, of a folder."""

    def __init__(self, hosts: WarmHosts, folder: Path, command: str, *arguments: str) -> None:
        """Start it; its words go to a file."""
        self.folder = folder
        self.temporary = folder.parent / "tmp"
        self.temporary.mkdir()
        self._words = folder.parent / "said.txt"
        self._read = 0
        with self._words.open("w") as file:
            self.process = subprocess.Popen(
                hosts.command("scenario", command, "--watch", *arguments),
                cwd=folder,
                env={**os.environ, "TMPDIR": str(self.temporary)},
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def save(self, name: str, text: str) -> None:
        """Save a file as an editor does: a new one is renamed over it."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(text, encoding="utf-8")
        beside.rename(path)

    def says(self, *words: str) -> str:
        """Wait until all of the words were said in this order, since the last call."""

        def all_said() -> bool:
            at = 0
            for word in words:
                found = self._since().find(word, at)
                if found < 0:
                    return False
                at = found + len(word)
            return True

        assert until(all_said, LONG_S), f"waited for {words}; it said:\n{self._since()}"
        said = self._since()
        self._read += said.rindex(words[-1]) + len(words[-1])
        return said

    def hangs(self) -> None:
        """Wait until rank 0 of what HANGS sleeps: a save before that finds nothing to abandon.

        A rank without a case waits for the store, and the processes above it have children.
        """

        def asleep(pid: int) -> bool:
            try:
                above = any(
                    task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")
                )
                return not above and "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()
            except OSError:
                return False  # it has ended meanwhile

        assert until(lambda: any(map(asleep, self.processes())), LONG_S)

    def processes(self) -> list[int]:
        """Return its processes, itself the first."""
        return of_folder(self.folder)

    def _since(self) -> str:
        return self._words.read_text(encoding="utf-8")[self._read :]

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Interrupt it; return its exit code once nothing is left of it."""
        self.process.send_signal(number)
        code = self.process.wait(LONG_S)
        assert until(lambda: self.processes() == [], 5)
        assert left_in(self.temporary) == []
        return code


@pytest.fixture
def watching(tmp_path: Path, forked_hosts: WarmHosts) -> Iterator[Callable[..., Watching]]:
    begun: list[Watching] = []

    def begin(*arguments: str, command: str = "run", **files: str) -> Watching:
        folder = tmp_path / "work"
        folder.mkdir()
        (folder / "pyproject.toml").touch()  # what is used must lie in a project
        for name, text in files.items():
            path = folder / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        begun.append(Watching(forked_hosts, folder, command, *(arguments or (".",))))
        return begun[-1]

    yield begin
    for each in begun:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def test_a_save_shows_the_new_verdict_of_what_changed(watching: Callable[..., Watching]) -> None:
    watch = watching(one=SUM, two=SUM)
    watch.says("PASSED       one.yaml::one", "PASSED       two.yaml::two", "2 passed", READY)
    watch.save("one.yaml", WRONG)
    said = watch.says("one.yaml changed", "FAILED       one.yaml::one", "1 failed", "1 passed")
    assert "two.yaml" not in said
    (watch.folder / "one.yaml").write_text(SUM, encoding="utf-8")
    watch.says("one.yaml changed", "PASSED       one.yaml::one", "all 2: 2 passed")
    assert watch.end() == 130
    watch.says("stopped watching")


@pytest.mark.nightly
def test_what_failed_last_is_remembered(watching: Callable[..., Watching]) -> None:
    watch = watching(one=SUM, two=SUM)
    watch.says("2 passed", READY)
    watch.save("one.yaml", WRONG)
    watch.says("1 failed", "1 passed")
    assert watch.end() == 130
    again = subprocess.run(
        [sys.executable, "-m", "torch_scenarios.cli", "run", "--dry-run", "--last-failed", "."],
        cwd=watch.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "one.yaml::one" in again.stdout
    assert "two.yaml" not in again.stdout


def test_what_uses_a_changed_file_runs_again(watching: Callable[..., Watching]) -> None:
    watch = watching("a.yaml", "b.yaml", a=USES, b=SUM, lib__part=PART)
    watch.says("2 passed", READY)
    watch.save("lib/part.yaml", PART.replace("tensor: t", "tensor: t, op: max"))
    said = watch.says("part.yaml changed", "FAILED       a.yaml::a", "all 2:")
    assert "b.yaml" not in said
    (watch.folder / "lib" / "part.yaml").unlink()
    watch.says("part.yaml changed", "INVALID      a.yaml", "there is no file", "all 2:")
    watch.save("lib/part.yaml", PART)
    watch.says("part.yaml changed", "PASSED       a.yaml::a", "all 2: 2 passed")


def test_it_survives_what_is_no_scenario(watching: Callable[..., Watching]) -> None:
    watch = watching(one="world_size: [\n")
    watch.says(
        "INVALID      one.yaml", "the file ends where a value is expected", "1 invalid", READY
    )
    watch.save("one.yaml", "world_size: two\nstep: []\n")
    watch.says("one.yaml changed", "INVALID", "did you mean `steps`?", "1 invalid")
    watch.save("one.yaml", "")
    watch.says("one.yaml changed", "INVALID", "the file is empty", "1 invalid")
    (watch.folder / "one.yaml").write_bytes(b"\xff\xfe\x00")
    watch.says("one.yaml changed", "INVALID", "1 invalid")
    watch.save("one.yaml", SUM)
    watch.says("one.yaml changed", "PASSED       one.yaml::one", "1 passed")


def test_files_come_and_go(watching: Callable[..., Watching]) -> None:
    watch = watching(one=SUM)
    watch.says("1 passed", READY)
    watch.save("sub/new.yaml", SUM)
    watch.says("new.yaml appeared", "PASSED       sub/new.yaml::new", "all 2: 2 passed")
    (watch.folder / "one.yaml").unlink()
    watch.says("one.yaml deleted", "nothing to run; all 1: 1 passed")
    (watch.folder / "sub" / "new.yaml").rename(watch.folder / "sub" / "moved.yaml")
    watch.says("moved.yaml appeared, new.yaml deleted", "PASSED       sub/moved.yaml::moved")
    (watch.folder / "sub" / "moved.yaml").unlink()
    watch.says("moved.yaml deleted", "nothing to run")
    watch.save("one.yaml", SUM)
    watch.says("one.yaml appeared", "PASSED       one.yaml::one")


def test_a_named_file_that_goes_and_comes_back_is_still_watched(
    watching: Callable[..., Watching],
) -> None:
    watch = watching("sub/one.yaml", sub__one=SUM, other=SUM)
    watch.says("1 passed", READY)
    (watch.folder / "sub" / "one.yaml").unlink()
    (watch.folder / "sub").rmdir()
    watch.says("one.yaml deleted")
    watch.save("sub/one.yaml", WRONG)
    said = watch.says("one.yaml appeared", "FAILED       sub/one.yaml::one")
    assert "other" not in said


def test_a_hang_does_not_hold_up_a_save(watching: Callable[..., Watching]) -> None:
    watch = watching(one=SUM)
    watch.says("1 passed", READY)
    watch.save("one.yaml", HANGS)
    watch.says("one.yaml changed")
    watch.hangs()
    watch.save("two.yaml", SUM)
    watch.says("abandoned    one.yaml::one: a file changed", "PASSED       two.yaml::two")
    watch.save("one.yaml", HANGS + "  - barrier:\n")
    watch.save("two.yaml", SUM + "  - barrier:\n")
    watch.says("PASSED       two.yaml::two")
    watch.hangs()
    watch.save("one.yaml", WRONG)
    watch.says("abandoned    one.yaml::one", "one.yaml changed", "FAILED       one.yaml::one")
    watch.save("one.yaml", SUM)
    watch.says("PASSED       one.yaml::one", "all 2: 2 passed")


def test_a_change_of_what_hangs_ends_the_hang(watching: Callable[..., Watching]) -> None:
    watch = watching(one=HANGS)
    assert until(lambda: len(watch.processes()) >= 4, LONG_S)
    watch.save("one.yaml", SUM)
    watch.says(
        "abandoned    one.yaml::one", "one.yaml changed", "PASSED       one.yaml::one", READY
    )
    assert watch.end(signal.SIGTERM) == 130


@pytest.mark.nightly
def test_a_hang_that_is_deleted_ends(watching: Callable[..., Watching]) -> None:
    watch = watching(one=HANGS, two=SUM)
    assert until(lambda: len(watch.processes()) >= 4, LONG_S)
    (watch.folder / "one.yaml").unlink()
    watch.says(
        "abandoned    one.yaml::one", "one.yaml deleted", "PASSED       two.yaml::two", READY
    )
    watch.save("two.yaml", WRONG)
    watch.says("FAILED       two.yaml::two", "1 failed")
    assert watch.end() == 130


@pytest.mark.parametrize("moment", sampled(["at once", "while a case runs", "while it waits"], 2))
def test_an_interrupt_leaves_nothing(moment: str, watching: Callable[..., Watching]) -> None:
    watch = watching(one=SUM if moment == "while it waits" else HANGS)
    if moment == "at once":
        assert until(lambda: len(watch.processes()) >= 2, LONG_S)
    elif moment == "while a case runs":
        assert until(lambda: len(watch.processes()) >= 4, LONG_S)
    else:
        watch.says(READY)
    codes = {130}
    if moment == "at once":
        # caught while a dataclass was being made (Python runs text for that), CPython ends by the
        # signal nevertheless, which a shell calls 130 as well
        codes.add(-signal.SIGINT)
    assert watch.end() in codes


@pytest.mark.nightly
def test_a_launch_that_is_lost_is_replaced(watching: Callable[..., Watching]) -> None:
    watch = watching(one=SUM)

    def is_gone(pid: int) -> bool:
        return pid not in watch.processes()

    watch.says("1 passed", READY)
    for victims in (slice(1, 2), slice(2, 3)):  # the host with all its workers, then a worker
        (victim,) = watch.processes()[victims]
        os.kill(victim, signal.SIGKILL)
        watch.save("one.yaml", WRONG)
        watch.says("FAILED       one.yaml::one")
        assert until(partial(is_gone, victim), LONG_S)
        watch.save("one.yaml", SUM)
        watch.says("PASSED       one.yaml::one")


@pytest.mark.parametrize("command", [("run", "--dry-run"), ("check",)])
def test_an_analysis_alone_starts_no_process(
    command: tuple[str, ...], watching: Callable[..., Watching]
) -> None:
    name, *arguments = command
    watch = watching(*arguments, ".", command=name, one=SUM)
    watch.says("PASSED       one.yaml::one", READY)
    assert watch.processes() == [watch.process.pid]
    watch.save("one.yaml", WRONG)
    watch.says("FAILED       one.yaml::one")
    assert watch.end() == 130


@pytest.mark.parametrize(
    ("arguments", "told"),
    sampled(
        [
            (("--json", "out.json", "."), "--json is for a run that ends"),
            (("--shard", "1/2", "."), "--shard is for a run that ends"),
            (("on.yaml",), "there is no file on.yaml"),
            ((".", "-k", "one and"), "-k 'one and' cannot be read"),
        ],
        2,
    ),
)
def test_a_command_line_that_makes_no_sense_is_not_watched(
    arguments: tuple[str, ...], told: str, watching: Callable[..., Watching]
) -> None:
    watch = watching(*arguments, one=SUM)
    assert watch.process.wait(LONG_S) == 2
    watch.says(told)


@pytest.mark.nightly
def test_a_selection_is_kept(watching: Callable[..., Watching]) -> None:
    matrix = SUM.replace("tensors:", "matrix: {n: [1, 2]}\ntensors:")
    watch = watching("one.yaml::one[n=2]", one=matrix)
    watch.says("PASSED       one.yaml::one[n=2]", "1 passed", READY)
    watch.save("one.yaml", matrix.replace("[2, 4]", "[2, 5]"))
    watch.says("FAILED       one.yaml::one[n=2]", "1 failed")
    watch.save("one.yaml", SUM)
    watch.says("INVALID", "no such case", "1 invalid")
