"""A link that is slow or loses packets, between two bridges: a program that forwards their frames.

    bridge A - tap [this program: waits, drops] tap - bridge B

For a kernel without `netem`. Each frame waits for a time before it is handed on, in order; a part
of the frames is dropped, by a seeded generator, so that two runs drop the same ones of a stream.
Runs inside the namespace of the bridges, as root, with /dev/net/tun:

    python link.py BRIDGE_A BRIDGE_B DELAY_S LOSS SEED
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

TUN = Path("/dev/net/tun")
#: linux/if_tun.h: what makes a descriptor of /dev/net/tun an interface, for frames without a header
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
#: bytes of the longest frame: the interfaces' 1500, an Ethernet header, a VLAN tag
FRAME = 2048


def why_not() -> str | None:
    """Return why this machine can have no such link; None where it can."""
    try:
        os.close(os.open(TUN, os.O_RDWR))
    except OSError as error:
        return f"{TUN} cannot be opened: {error.strerror}"
    return None


@dataclass(slots=True)
class Side:
    """One end: what came in there, and when it is due at the other."""

    descriptor: int
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)


def tap(name: str, bridge: str) -> Side:
    """Make an interface, a port of a bridge, whose frames this process reads and writes."""
    descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    subprocess.run(
        [shutil.which("ip") or "ip", "link", "set", name, "master", bridge, "up"], check=True
    )
    return Side(descriptor)


def forward(sides: tuple[Side, Side], *, delay_s: float, loss: float, seed: int) -> None:
    """Carry frames between both sides until killed."""
    drawn = [random.Random(f"{seed}/{number}") for number in range(2)]  # noqa: S311 -- no secret
    poll = select.poll()
    for side in sides:
        poll.register(side.descriptor, select.POLLIN)
    while True:
        due = [side.waiting[0][0] for side in sides if side.waiting]
        wait_s = max(0.0, min(due) - time.monotonic()) if due else None
        poll.poll(None if wait_s is None else 1000 * wait_s)
        now_s = time.monotonic()
        for side, numbers in zip(sides, drawn, strict=True):
            while (frame := _read(side.descriptor)) is not None:
                if numbers.random() >= loss:
                    side.waiting.append((now_s + delay_s, frame))
        now_s = time.monotonic()
        for side, other in (sides, sides[::-1]):
            while side.waiting and side.waiting[0][0] <= now_s:
                _write(other.descriptor, side.waiting.popleft()[1])


def _read(descriptor: int) -> bytes | None:
    try:
        return os.read(descriptor, FRAME)
    except BlockingIOError:
        return None


def _write(descriptor: int, frame: bytes) -> None:
    try:
        os.write(descriptor, frame)
    except OSError:  # the interface is down, or its queue is full: a link loses the frame then
        return


def main(words: list[str]) -> None:
    """Make both interfaces, say that they are there, and forward."""
    first, second, delay, loss, seed = words
    sides = (tap("t0", first), tap("t1", second))
    sys.stdout.write("forwards\n")
    sys.stdout.flush()
    forward(sides, delay_s=float(delay), loss=float(loss), seed=int(seed))


if __name__ == "__main__":
    main(sys.argv[1:])
