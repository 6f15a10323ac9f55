"""Real Gloo ranks for the tests of operations, and entries to call the reference with."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Entry, Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

RANK = Path(__file__).with_name("gloo_rank.py")


GROUPS = {
    "world": Group(key="world", name="world", ranks=(0, 1, 2), timeout_s=20.0),
    "pair": Group(key="pair", name="pair", ranks=(2, 0), timeout_s=20.0),
}


class Gloo:
    """A world of real ranks. Each call is carried out by the ranks that it names."""

    def __init__(self, folder: Path, size: int) -> None:
        """Start the ranks; they join each other while they wait for the first call."""
        self.size = size
        self._ranks = [
            subprocess.Popen(
                [sys.executable, str(RANK), str(folder / "store"), str(rank), str(size)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for rank in range(size)
        ]

    def call(
        self, name: str, arguments: Mapping[int, Mapping[str, Any]], *, wait: bool = True
    ) -> dict[int, Any]:
        """Let each rank call `name` with its arguments; return the answers, unless told not to."""
        for rank, given in arguments.items():
            stdin = self._ranks[rank].stdin
            assert stdin is not None
            pickle.dump((name, dict(given)), stdin)
            stdin.flush()
        return self.answers(arguments) if wait else {}

    def answers(self, ranks: Iterable[int]) -> dict[int, Any]:
        """Return the next answer of each of these ranks."""
        found = {}
        for rank in ranks:
            stdout = self._ranks[rank].stdout
            assert stdout is not None
            found[rank] = pickle.load(stdout)  # noqa: S301 -- from a process of our own
        return found

    def close(self) -> None:
        """End the ranks."""
        for process in self._ranks:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
        for process in self._ranks:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def started(folder: Path) -> Iterator[Gloo]:
    """Yield three real ranks with a group `pair` of ranks 2 and 0, in this order."""
    world = Gloo(folder, 3)
    creation = {"name": "pair", "group_ranks": [2, 0], "sort_ranks": False}
    world.call("new_group", dict.fromkeys(range(3), creation))
    yield world
    world.close()


@pytest.fixture(scope="session")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gloo]:
    """Three real ranks of which each call is carried out by all of its members."""
    yield from started(tmp_path_factory.mktemp("gloo"))


@pytest.fixture(scope="session")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gloo]:
    """Three real ranks of which one makes calls that are refused: they never meet again.

    Gloo counts a collective before it refuses it, so that the rank's next one has another tag.
    """
    yield from started(tmp_path_factory.mktemp("refusing"))


@pytest.fixture
def enter() -> Callable[..., list[Entry]]:
    """Return a function that makes a call's entries, in group order, from each rank's arguments.

    What is left out has its declared default. The groups are those of the fixture `gloo`.
    """

    def make(name: str, arguments: Mapping[int, Mapping[str, Any]]) -> list[Entry]:
        defaults = {param.name: param.default for param in BY_NAME[name].params}
        group = GROUPS[next(iter(arguments.values())).get("group") or "world"]
        return [
            Entry(rank=rank, group=group, arguments={**defaults, **arguments[rank]})
            for rank in sorted(arguments, key=group.group_rank)
        ]

    return make
