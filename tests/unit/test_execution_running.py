"""The account of a rank: given once, and taken before the groups are let go of."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.execution.protocol import ABSENT
from torch_scenarios.model.trace import Failure, RankTrace
from torch_scenarios.worker.watcher import WatchedScenario

if TYPE_CHECKING:
    from collections.abc import Callable


class Rank:
    """A rank whose device is done with everything once its groups are let go of."""

    def __init__(
        self, account: Callable[[], None] = lambda: None, *, on_device: bool = False
    ) -> None:
        self.happened: list[str] = []
        board = SimpleNamespace(rank=0, account=self._account, fault=None, moves=1, begin_s=0.0)
        self._board = board
        world = SimpleNamespace(made_s=0.0, spoilt=False, witness=tuple, on_device=on_device)
        world.poison, world.error = self.let_go, lambda: None
        more: dict[str, Any] = {"backend": "nccl", "world": world, "cut": lambda: None}
        store: Any = SimpleNamespace()
        self.running = WatchedScenario(store, "scenario/1", board, **more)  # type: ignore[arg-type]
        self._meanwhile = account

    def stand_at(self, record: object, fail: Callable[..., None]) -> None:
        """Let the device stand at a call."""
        self._board.position, self._board.fail = record, fail

    def _account(self, ending: str, died: str | None) -> RankTrace:
        self._meanwhile()
        self.happened.append("account")
        return RankTrace(rank=0, ending=ending, died=died)

    def let_go(self) -> None:
        """Let go of the groups."""
        self.happened.append("let go")

    def post(self, _: object) -> None:
        """Give the word."""
        self.happened.append("word")


def test_the_account_comes_before_the_groups_are_let_go_and_the_word_after() -> None:
    rank = Rank()
    rank.running.tell("raised", via=rank, then=rank.let_go)
    assert rank.happened == ["account", "let go", "word"]


@pytest.mark.parametrize("then", [True, False])
def test_whoever_comes_second_waits_for_the_account_of_the_first_where_it_lets_go(
    *, then: bool
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def meanwhile() -> None:
        entered.set()
        go_on.wait(5)

    rank = Rank(meanwhile)
    first = threading.Thread(target=rank.running.tell, args=("blocked",), kwargs={"via": rank})
    first.start()
    entered.wait(5)
    second = threading.Thread(
        target=rank.running.tell,
        args=("blocked",),
        kwargs={"via": rank, "then": rank.let_go if then else None},
    )
    second.start()
    second.join(0.05)
    assert rank.happened == []
    go_on.set()
    first.join(5)
    second.join(5)
    assert sorted(rank.happened) == (["account", "let go", "word"] if then else ["account", "word"])
    assert rank.happened[0] == "account"


def test_on_a_device_nothing_is_let_go_before_every_rank_is_heard() -> None:
    rank = Rank(on_device=True)
    asked: list[str] = []

    def look(key: str, absent: str, _: str) -> bytes:
        asked.append(key)
        return b"1" if len(asked) == 3 else absent.encode()

    store: Any = SimpleNamespace(compare_set=look)
    rank.running.tell("blocked", via=rank)
    rank.running.settle(store)
    assert asked == 3 * ["scenario/1/over"]


def test_a_device_that_is_overdue_is_given_up_though_the_main_thread_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = Rank(on_device=True)
    posted: list[Any] = []
    monkeypatch.setattr(rank.running.outbox, "post", posted.append)
    failed: list[tuple[Any, Failure]] = []
    record = SimpleNamespace(event=object(), timeout_s=0.3, position=(0, ()))
    rank.stand_at(record, lambda *words: failed.append(words))
    now_s = 100.0
    monkeypatch.setattr("torch_scenarios.worker.watcher.time.monotonic", lambda: now_s)
    never: Any = SimpleNamespace(compare_set=lambda *_: ABSENT.encode())
    rank.running.look(never)
    assert failed == []
    now_s = 104.0
    rank.running.look(never)
    ((at, failure),) = failed
    assert (at, failure.kinds) == (record, ("timeout",))
    assert rank.happened == ["account", "let go"]
    assert posted[-1].trace.ending == "raised"
