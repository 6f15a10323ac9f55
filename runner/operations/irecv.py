"""`irecv`: starts to receive one message; the handle completes it."""

from __future__ import annotations

from runner.operations.recv import Recv


class IRecv(Recv):
    """Start to receive a tensor. It holds the message only after the handle's `wait`."""

    name = "irecv"
    asynchronous = True
    example = """\
world_size: 2
tensors:
  x: {0: [0, 0], 1: [3, 4]}
steps:
  - ranks: 0
    irecv: {tensor: x, src: 1}
    as: receiving
  - ranks: 1
    send: {tensor: x, dst: 0}
  - wait: receiving
    expect:
      x: [3, 4]
"""
