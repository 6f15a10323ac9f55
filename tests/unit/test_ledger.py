"""The bytes of tensors without memory: those in registers count once they are written."""

from __future__ import annotations

from typing import Any

from torch_scenarios.record.kernels.ledger import ACTIVATIONS, HeldMemory


class Storage:
    """Memory of some bytes at an address."""

    def __init__(self, at: int, size: int) -> None:
        self._cdata, self._size = at, size

    def nbytes(self) -> int:
        """Return its bytes."""
        return self._size


class OneTensor:
    """A tensor whose memory nothing else has."""

    def __init__(self, at: int, size: int = 1024) -> None:
        self._storage = Storage(at, size)

    def untyped_storage(self) -> Any:
        """Return its memory."""
        return self._storage


def test_what_can_be_made_anew_has_no_memory_until_something_needs_it() -> None:
    ledger = HeldMemory()
    gate, inner, out = OneTensor(1), OneTensor(2), OneTensor(3)
    ledger.add([gate])
    ledger.add_made_of([gate], [inner])
    ledger.add_made_of([inner], [out])
    assert ledger.held[ACTIVATIONS] == 1024
    ledger.keep([out])
    ledger.keep([out])
    assert ledger.held[ACTIVATIONS] == 2048
    del inner, out
    assert ledger.held[ACTIVATIONS] == 1024
    assert ledger.most[ACTIVATIONS] == 2048


def test_what_is_made_of_a_tensor_that_is_dropped_is_held() -> None:
    ledger = HeldMemory()
    x, product, inner, out = (OneTensor(at) for at in range(4))
    ledger.add([x, product])
    ledger.add_made_of([x, product], [inner])
    ledger.add_made_of([inner], [out])
    del inner  # `out` can be made anew of what `inner` is made of
    assert ledger.held[ACTIVATIONS] == 2048
    del product  # and now it cannot
    assert ledger.held[ACTIVATIONS] == 2048
    del x
    assert ledger.held[ACTIVATIONS] == 1024
    del out
    assert ledger.held[ACTIVATIONS] == 0


def test_the_smaller_of_a_tensor_and_what_is_made_of_it_is_held_on() -> None:
    ledger = HeldMemory()
    x, wide = OneTensor(1, 1024), OneTensor(2, 4096)
    ledger.add([x])
    ledger.add_made_of([x], [wide])
    del x
    x = OneTensor(1, 512)  # at the same address
    ledger.add([x])
    assert ledger.held[ACTIVATIONS] == 1024 + 512
    del x
    assert ledger.held[ACTIVATIONS] == 1024
    ledger.keep([wide])
    assert ledger.held[ACTIVATIONS] == 4096
    del wide
    assert ledger.held[ACTIVATIONS] == 0


def test_what_is_dropped_with_what_it_is_made_of_was_never_held() -> None:
    ledger = HeldMemory()
    x, inner = OneTensor(1), OneTensor(2)
    ledger.add([x])
    ledger.add_made_of([x], [inner])
    del inner
    del x
    assert ledger.most[ACTIVATIONS] == 1024


def test_an_address_may_be_another_tensor_later() -> None:
    ledger = HeldMemory()
    x, inner = OneTensor(1), OneTensor(2)
    ledger.add([x])
    ledger.add_made_of([x], [inner])
    del inner
    kept = OneTensor(2, 2048)
    ledger.add([kept])
    ledger.keep([kept])
    del x
    assert ledger.held[ACTIVATIONS] == 2048
