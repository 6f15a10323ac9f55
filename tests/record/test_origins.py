"""What a thread, a task of a pool or an exit calls has the line that handed it over."""

from __future__ import annotations

import atexit
import threading
import time
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torch_scenarios.record.evidence import frame
from torch_scenarios.record.recorder import is_foreign, is_framework


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """See what is handed over in this file."""
    for holder, name in ((threading.Thread, "start"), (ThreadPoolExecutor, "submit")):
        monkeypatch.setattr(holder, name, getattr(holder, name))
    monkeypatch.setattr(atexit, "register", atexit.register)
    frame.watch_handovers(lambda file: file != __file__)


def line_of(function: object) -> int:
    return int(function.__code__.co_firstlineno)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("watched")
def test_a_task_knows_the_line_that_submits_it() -> None:
    def submit() -> frame.Places:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(int).result()
            return pool.submit(frame.handover_places).result()

    assert submit()[0] == (__file__, line_of(submit) + 3)
    assert frame.handover_places() == ()


@pytest.mark.usefixtures("watched")
def test_a_thread_knows_the_line_that_starts_it_also_from_another_thread() -> None:
    seen: list[frame.Places] = []

    class Own(threading.Thread):
        def run(self) -> None:
            seen.append(frame.handover_places())
            inner = threading.Timer(0, lambda: seen.append(frame.handover_places()))
            inner.start()
            inner.join()

    thread = Own()
    thread.start()
    thread.join()
    outer, inner = seen
    assert outer[0][0] == __file__
    assert inner[1:] == outer[: len(inner) - 1]
    assert "run" not in vars(thread)
    alive = weakref.ref(thread)
    del thread
    assert alive() is None


@pytest.mark.usefixtures("watched")
def test_a_thread_runs_what_the_script_has_set_on_it() -> None:
    seen: list[frame.Places] = []
    thread = threading.Thread()
    thread.run = lambda: seen.append(frame.handover_places())  # type: ignore[method-assign]
    thread.start()
    thread.join()
    assert [places[0][0] for places in seen] == [__file__]


def test_an_exit_knows_the_line_that_registers_it_and_can_be_taken_back(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    registered: list[object] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    request.getfixturevalue("watched")
    assert atexit.register(frame.handover_places) is frame.handover_places
    (kept,) = registered
    assert kept == frame.handover_places  # which `atexit.unregister` asks
    assert isinstance(kept, frame.Handover)
    assert kept()[0][0] == __file__


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("own", [False, True])
def test_what_is_handed_over_raises_without_a_frame_of_ours(
    *, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError

    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_value))
    thread = threading.Thread(target=fail)
    if own:
        thread.run = fail  # type: ignore[method-assign]
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        raised.append(pool.submit(fail).exception())
    assert len(raised) == 2
    for error in raised:
        assert error is not None
        files = [each.f_code.co_filename for each, _ in traceback.walk_tb(error.__traceback__)]
        assert files[-1] == __file__
        assert frame.__file__ not in files


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("waits", [False, True])
def test_a_thread_knows_since_when_it_has_its_work_and_whether_the_main_one_waits(
    *, waits: bool
) -> None:
    seen: list[tuple[int, bool]] = []
    begin = threading.Event()

    def look() -> None:
        begin.wait(30)
        time.sleep(0.05 if waits else 0)
        seen.append((frame.handover_ns(), frame.is_main_waiting()))

    before = time.perf_counter_ns()
    thread = threading.Thread(target=look)
    thread.start()
    after = time.perf_counter_ns()
    begin.set()
    while not waits and not seen:
        sum(range(100))  # work of its own: a loop that only asks for the thread is a wait
    thread.join()
    ((since, is_waiting),) = seen
    assert before < since < after
    assert is_waiting is waits
    assert frame.handover_ns() == 0


@pytest.mark.parametrize(
    ("file", "is_one"),
    [
        ("accelerate/accelerator.py", True),
        ("torch/distributed/distributed_c10d.py", False),
        ("typing_extensions.py", False),
    ],
)
def test_a_framework_is_what_calls_torch_and_not_what_torch_is_wrapped_in(
    file: str, *, is_one: bool
) -> None:
    assert is_framework(f"/env/lib/python3.11/site-packages/{file}") is is_one


@pytest.mark.parametrize("has_record", [True, False])
def test_a_package_is_installed_where_its_record_lies_next_to_it(
    *, has_record: bool, tmp_path: Path
) -> None:
    package = tmp_path / "kit" / "utils"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    if has_record:
        (tmp_path / "kit-1.0.dist-info").mkdir()
    assert is_framework(f"{package}/distributed.py") is has_record
    assert is_foreign(f"{package}/distributed.py") is has_record
    assert not is_foreign(f"{tmp_path}/train.py")
