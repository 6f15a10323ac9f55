"""`isend`: starts to send one message; the handle completes it."""

from __future__ import annotations

from runner.operations.send import Send


class ISend(Send):
    """Start to send a tensor to one rank. It must not change before the handle's `wait`."""

    name = "isend"
    asynchronous = True
    example = """\
world_size: 2
tensors:
  x: {0: [1, 2, 3], 1: [0, 0, 0]}
steps:
  - ranks: 0
    isend: {tensor: x, dst: 1}
    as: sending
  - ranks: 1
    recv: {tensor: x, src: 0}
    expect:
      x: [1, 2, 3]
  - wait: sending
"""
