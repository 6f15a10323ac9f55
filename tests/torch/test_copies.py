"""Copies of what a rank holds: true at the time, and later steps do not change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torch_scenarios.expressions.arrays import TorchLibrary
from torch_scenarios.worker.board import LARGE, Board, Converter, Copies, Site, TakenStep

if TYPE_CHECKING:
    from collections.abc import Callable

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

TENSORS: dict[str, Callable[[], Any]] = {
    "float32": lambda: torch.arange(6.0),
    "bfloat16": lambda: torch.arange(6.0).to(torch.bfloat16),
    "float8_e4m3fn": lambda: torch.arange(6.0).to(torch.float8_e4m3fn),
    "bool": lambda: torch.tensor([True, False, True]),
    "uint16": lambda: torch.arange(4).to(torch.uint16),
    "complex64": lambda: torch.arange(4).to(torch.complex64) * 1j,
    "a conjugate": lambda: torch.conj(torch.arange(4).to(torch.complex64) * 1j),
    "not contiguous": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "bfloat16, not contiguous": lambda: torch.arange(6.0).reshape(2, 3).t().to(torch.bfloat16).t(),
    "a scalar": lambda: torch.tensor(3.0),
    "nothing in it": lambda: torch.zeros(0, 3),
    "large": lambda: torch.zeros(LARGE),
}


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("made", TENSORS)
def test_a_copy_is_what_the_tensor_was_then(made: str, *, on_host: bool) -> None:
    convert = Converter(torch)
    scope = {"x": TENSORS[made]()}
    copies = Copies(torch, scope, convert if on_host else None)
    kept, wanted = [], []
    for _ in range(4):
        wanted.append(np.array(convert(scope["x"])))
        kept.extend(copies.copy_named(("x",)))
        scope["x"].copy_(torch.zeros_like(scope["x"]) if len(kept) % 2 else TENSORS[made]())
    for copy, value in zip(kept, wanted, strict=True):
        assert convert(copy).dtype == value.dtype
        np.testing.assert_array_equal(convert(copy), value)


def test_a_name_that_comes_to_hold_something_else_is_copied_as_that() -> None:
    scope: dict[str, Any] = {"x": torch.ones(2)}
    copies = Copies(torch, scope, Converter(torch))
    kept = []
    for value in (torch.ones(2), torch.zeros(3), [torch.ones(1)], [{"a": [1]}], None):
        scope["x"] = value
        kept += [copies.copy_named(("x",))[0] for _ in range(3)]
    assert [np.shape(kept[place]) for place in range(6)] == [(2,)] * 3 + [(3,)] * 3
    assert kept[7][0].tolist() == [1.0]
    assert kept[9:12] == [[{"a": [1]}]] * 3
    assert kept[9][0] is not kept[10][0]
    assert kept[12] is None


@pytest.mark.parametrize("made", TENSORS)
def test_what_is_brought_from_a_device_together_is_what_each_is_by_itself(made: str) -> None:
    stacked = []

    def to_host(tensors: list[Any]) -> Any:
        stacked.append(len(tensors))
        return torch.stack(tensors)

    here, there = Converter(torch), Converter(torch, to_host)
    many = [TENSORS[made]() for _ in range(70)]
    found = there([*many, [TENSORS["float32"]()], {"a": 1}])
    for value, tensor in zip(found, many, strict=False):
        assert value.dtype == here(tensor).dtype
        np.testing.assert_array_equal(value, here(tensor))
    assert found[70][0].tolist() == [0, 1, 2, 3, 4, 5]
    assert found[71] == {"a": 1}
    if made == "float32":
        assert stacked == [64, 6, 1]


def test_a_value_goes_to_its_device_without_waiting_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, object]] = []
    to = torch.Tensor.to

    def noted(tensor: object, *args: object, **kwargs: object) -> object:
        asked.append(kwargs)
        return to(tensor, *args, **kwargs)

    library = TorchLibrary(torch, "meta")
    monkeypatch.setattr(torch.Tensor, "to", noted)
    assert library.from_numpy(np.ones(3, np.float32)).device.type == "meta"
    assert asked == [{"non_blocking": True}]


def board_of(copies: Copies, names: tuple[str, ...]) -> Board:
    """Return the account of a rank that holds these names and takes no step."""
    board = Board(0, Converter(torch))
    board.begin(dict(zip(names, copies.copy_named(names), strict=True)))
    return board


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("made", TENSORS)
def test_what_changed_though_no_step_stored_it_is_found(made: str, *, on_host: bool) -> None:
    scope = {"x": TENSORS[made](), "y": [torch.ones(2), torch.ones(3)]}
    copies = Copies(torch, scope, Converter(torch) if on_host else None)
    board = board_of(copies, ("x", "y"))
    assert copies.find_strays(board) == {}
    scope["x"].copy_(torch.full(scope["x"].shape, 7.0).to(scope["x"].dtype))
    scope["y"][1][2] = float("nan")
    found = copies.find_strays(board)
    assert set(found) == ({"x", "y"} if scope["x"].numel() else {"y"})
    assert np.isnan(found["y"][1][2])


def test_what_a_step_stored_is_what_is_held_then() -> None:
    scope = {"x": torch.ones(2)}
    copies = Copies(torch, scope, Converter(torch))
    board = board_of(copies, ("x",))
    scope["x"].fill_(float("nan"))
    record = TakenStep()
    record.site, record.written = Site("all_reduce", communicates=True), ("x",)
    record.kept = copies.copy_named(("x",))
    board.records.append(record)
    assert copies.find_strays(board) == {}
    scope["x"][0] = 3
    assert copies.find_strays(board)["x"].tolist()[0] == 3
