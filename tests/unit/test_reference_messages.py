"""A message has elements and a dtype, and no shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import checked, codes

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE = """\
world_size: SIZE
tensors:
  x: "reshape(arange(4) + 10 * rank, SENT)"
  y: "zeros(TAKEN)"
steps:
  - isend: {tensor: x, dst: "(rank + 1) % world_size"}
    as: sent
  - recv: {tensor: y, src: "(rank - 1) % world_size"}
    expect: {"reshape(y, [4])": "arange(4) + 10 * ((rank - 1) % world_size)"}
  - wait: sent
"""


@pytest.mark.parametrize("size", [2, 20])
@pytest.mark.parametrize(
    ("sent", "taken"), [("[1, 4]", "[2, 2]"), ("[2, 2]", "[4]"), ("[4]", "[4, 1]")]
)
def test_as_many_elements_fill_a_buffer_of_another_shape_in_their_order(
    tmp_path: Path, size: int, sent: str, taken: str
) -> None:
    text = MESSAGE.replace("SIZE", str(size)).replace("SENT", sent).replace("TAKEN", taken)
    verdict = checked(text, tmp_path)
    assert (verdict.status, verdict.findings) == ("PASSED", ())


@pytest.mark.parametrize("taken", ["[3]", "[5]"])
def test_another_number_of_elements_is_a_mismatch(tmp_path: Path, taken: str) -> None:
    text = MESSAGE.replace("SIZE", "2").replace("SENT", "[4]").replace("TAKEN", taken)
    verdict = checked(text.split("    expect:")[0] + "  - wait: sent\n", tmp_path)
    assert codes(verdict) == ["diagnosis_undeclared"]
    assert verdict.findings[0].diagnosis == "shape_mismatch"
