"""How far a run is: a bar on a terminal, with the name of the case that runs beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from torch_scenarios.display import clean_line, short

if TYPE_CHECKING:
    from rich.console import Console


class ProgressBar:
    """Moves until it is stopped; then nothing of it remains.

    It is for a person who waits: a log would have a thousand lines of it.
    """

    def __init__(self, console: Console, total: int) -> None:
        """Show how many of `total` cases are done: none yet."""
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task("", total=total)

    def name(self, case: str) -> None:
        """Say which case runs."""
        self._progress.update(self._task, description=clean_line(short(case)))

    def reach(self, count: int) -> None:
        """Show how many cases are done."""
        self._progress.update(self._task, completed=count)

    def stop(self) -> None:
        """End it."""
        self._progress.stop()
