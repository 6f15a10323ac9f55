"""What differed, as a grid of ranks and indices: expected against got, of a size a person reads.

    rank │   [0]   [1]   [2]
       0 │ 17≠16     5     6
       2 │ 17≠16     5     6

The grid shows the ranks that differ and the first indices at which any of them does; a cell that
agrees shows its value once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from runner.verdict.finding import Difference

MOST_ROWS = 8
MOST_COLUMNS = 8
_DIGITS = 7


def grid_lines(differences: Sequence[Difference]) -> list[str]:
    """Return the grid of all differences in numbers; no line where there is none."""
    numeric = [each for each in differences if each.wrong is not None]
    if not numeric:
        return []
    rows = numeric[:MOST_ROWS]
    columns = _columns(rows)
    heads = [_index(column) for column in columns]
    names = [_name(each) for each in rows]
    cells = [[_cell(each, column) for column in columns] for each in rows]
    widths = [max(len(head), *(len(row[at]) for row in cells)) for at, head in enumerate(heads)]
    left = max(len("rank"), *(len(name) for name in names))
    lines = [f"{'rank':>{left}} │ {_joined(heads, widths)}".rstrip()]
    lines += [
        f"{name:>{left}} │ {_joined(row, widths)}".rstrip()
        for name, row in zip(names, cells, strict=True)
    ]
    return [*lines, *_left_out(numeric, rows, columns)]


def _columns(rows: Sequence[Difference]) -> list[tuple[int, ...]]:
    """Return the first indices at which any row is wrong; a small tensor is shown whole."""
    shapes = {each.wrong.shape for each in rows if each.wrong is not None}
    only = next(iter(shapes))
    if len(shapes) == 1 and 0 < int(np.prod(only)) <= MOST_COLUMNS:
        return list(np.ndindex(*only))
    found: dict[tuple[int, ...], None] = {}
    for each in rows:
        assert each.wrong is not None  # noqa: S101 -- chosen so
        for index in np.argwhere(each.wrong)[:MOST_COLUMNS]:
            found[tuple(int(at) for at in index)] = None
    return sorted(found)[:MOST_COLUMNS]


def _index(column: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, column))}]" if column else "value"


def _name(difference: Difference) -> str:
    item = "".join(f"[{position}]" for position in difference.item)
    return f"{difference.rank}{item}"


def _cell(difference: Difference, column: tuple[int, ...]) -> str:
    expected, got = np.asarray(difference.expected), np.asarray(difference.got)
    wrong = difference.wrong
    if wrong is None or len(column) != got.ndim:
        return ""
    if any(at >= size for at, size in zip(column, got.shape, strict=True)):
        return ""
    if not wrong[column]:
        return _number(got[column])
    return f"{_number(expected[column])}≠{_number(got[column])}"


def _number(value: Any) -> str:  # noqa: ANN401 -- a scalar of any dtype
    """Return a number as short as its dtype tells it: whole floats without a fraction."""
    plain = np.asarray(value)
    if plain.dtype.kind == "c":
        return f"{complex(plain.item()):.{_DIGITS}g}"
    if plain.dtype.kind in "biuO":
        return str(plain.item())
    return f"{float(plain.item()):.{_DIGITS}g}"


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _left_out(
    numeric: Sequence[Difference], rows: Sequence[Difference], columns: Sequence[Any]
) -> list[str]:
    total = sum(_count(each.wrong) for each in numeric)
    shown = sum(
        bool(each.wrong[column])
        for each in rows
        for column in columns
        if each.wrong is not None and _inside(each.wrong, column)
    )
    return [f"... and {total - shown} more elements"] if total > shown else []


def _count(wrong: NDArray[Any] | None) -> int:
    return 0 if wrong is None else int(wrong.sum())


def _inside(wrong: NDArray[Any], column: tuple[int, ...]) -> bool:
    return len(column) == wrong.ndim and all(
        at < size for at, size in zip(column, wrong.shape, strict=True)
    )
