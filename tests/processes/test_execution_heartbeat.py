"""Who beats, who does not, and messages to a peer that stops in the midst of one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from processes import until

from torch_scenarios.execution.channel import Channel
from torch_scenarios.execution.heartbeat import BeatListener, Beats, is_stopped


class Clock:
    """Time, as a test wants it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the seconds so far."""
        return self.now_s


def listening(*places: int) -> tuple[Beats, BeatListener, Clock]:
    beats, clock = Beats.create(len(places)), Clock()
    return beats, BeatListener(beats, dict.fromkeys(places, os.getpid()), clock), clock


def lost_after(listener: BeatListener, clock: Clock, seconds: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for _ in range(seconds):
        clock.now_s += 1
        found = listener.find_lost(stopped_s=3, silent_s=5)
    return found


def test_who_beats_is_not_lost() -> None:
    beats, listener, clock = listening(0, 1)
    for _ in range(20):
        beats.beat(0)
        beats.beat(1)
        assert not lost_after(listener, clock, 1)


def test_who_no_longer_beats_is_lost_and_named() -> None:
    beats, listener, clock = listening(0, 1)
    beats.beat(0)
    beats.beat(1)
    lost_after(listener, clock, 1)
    for _ in range(4):
        beats.beat(0)
        assert not lost_after(listener, clock, 1)
    found = lost_after(listener, clock, 1)
    assert set(found) == {1}
    assert f"process {os.getpid()} shows no sign of life for 5 s" in found[1]


def test_who_never_beat_is_not_up_yet() -> None:
    _, listener, clock = listening(0)
    assert not lost_after(listener, clock, 60)


def test_a_listener_that_did_not_run_itself_blames_no_process() -> None:
    beats, listener, clock = listening(0)
    beats.beat(0)
    lost_after(listener, clock, 1)
    clock.now_s += 3600
    assert not listener.find_lost(stopped_s=3, silent_s=5)


def test_a_stopped_process_is_lost_sooner_and_called_stopped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        child.send_signal(signal.SIGSTOP)
        assert until(lambda: is_stopped(child.pid), 20)
        clock = Clock()
        listener = BeatListener(Beats.create(1), {0: child.pid}, clock)
        assert not lost_after(listener, clock, 2)
        found = lost_after(listener, clock, 1)
        assert found == {0: f"process {child.pid} is stopped (SIGSTOP or the like)"}
        child.send_signal(signal.SIGCONT)
        assert until(lambda: not is_stopped(child.pid), 20)
    finally:
        child.kill()
        child.wait()


def test_another_process_beats_in_the_same_memory() -> None:
    beats = Beats.create(2)
    program = f"""
from torch_scenarios.execution.heartbeat import Beats
import os
beats = Beats(os.open("/proc/{os.getpid()}/fd/{beats.descriptor}", os.O_RDWR))
beats.beat(1)
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
    assert (beats[0], beats[1]) == (0, 1)


def test_a_kept_place_beats_by_itself() -> None:
    beats = Beats.create(1)
    beats.keep(0)
    assert until(lambda: beats[0] > 1, 30)


# ---------------------------------------------------------------------------- a channel


def test_a_message_larger_than_every_buffer_arrives_whole() -> None:
    near, far = socket.socketpair()
    message = bytes(range(256)) * (1 << 15)
    sender = threading.Thread(target=Channel(near).send, args=(message,))
    sender.start()
    other = Channel(far)
    assert other.receive() == message
    sender.join()
    near.close()
    with pytest.raises(EOFError):
        other.receive()
    other.close()


class GivenUpError(Exception):
    """What `idle` raises."""


def test_a_peer_that_stops_in_the_midst_of_a_message_is_given_up() -> None:
    near, far = socket.socketpair()

    def idle() -> None:
        raise GivenUpError

    channel = Channel(near, idle)
    with pytest.raises(GivenUpError):
        channel.send(b"x" * (1 << 24))
    far.send(b"\0\0")
    with pytest.raises(GivenUpError):
        channel.receive()
    channel.close()
    far.close()
