"""A function of a repository's tests, recorded on ranks: what it communicates, to be held fast."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from torch_scenarios.model.scenario import Scenario
from torch_scenarios.record.analysis import NothingRecordedError, RecordedRun, record
from torch_scenarios.record.difference import difference_words, differences, read_as_scenario
from torch_scenarios.record.evidence.nemesis import strike_calls
from torch_scenarios.record.live import KEPT_FOR_PARITY, SEEN, RunOrder, WarmLaunch
from torch_scenarios.record.values.further_run import Redeal, disturb
from torch_scenarios.record.values.parity import compare
from torch_scenarios.record.values.redeal import deal_again
from torch_scenarios.record.values.verdict import judge_folder, problems_of
from torch_scenarios.verdict import Verdict
from torch_scenarios.verdict.finding import ranks_text

#: seconds after which ranks that are not over are ended
MOST_SECONDS = 300.0


class RecordedFunction(Struct, frozen=True, kw_only=True):
    """What came of it: the verdict, and the scenario that does what the function did.

    It can be taken apart: `verdict, scenario = record_program(train_step)`.
    """

    verdict: Verdict
    scenario: Scenario
    text: str
    folder: Path
    words: tuple[str, ...]

    def __iter__(self) -> Iterator[Any]:
        """Yield the verdict and the scenario."""
        yield self.verdict
        yield self.scenario

    @property
    def status(self) -> str:
        """`PASSED`, `FAILED` or `INCONCLUSIVE`."""
        return self.verdict.status

    @property
    def diagnoses(self) -> tuple[str, ...]:
        """The names of what is wrong, each once."""
        found = (each.diagnosis for each in self.verdict.findings if each.diagnosis is not None)
        return tuple(dict.fromkeys(found))

    @property
    def output(self) -> str:
        """What the ranks printed."""
        path = self.folder / "output.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def communicates_as(self, path: str | Path) -> None:
        """Raise AssertionError where the ranks communicate otherwise than in a scenario file.

        The message has each difference, with its ranks and the lines of both sides. Where there is
        no file yet, it says what to write there.
        """
        wanted = Path(path)
        if not wanted.exists():
            message = f"{wanted} is not there; what was recorded is:\n\n{self.text}"
            raise AssertionError(message)
        found = differences(
            read_as_scenario(wanted), read_as_scenario(self.folder / "scenario.yaml")
        )
        if found:
            lines = [f"  {ranks_text(ranks)}: {words}" for ranks, words in difference_words(found)]
            message = "\n".join([f"it communicates otherwise than {wanted}:", *lines])
            raise AssertionError(message)


class ProgramRecorder:
    """Records functions, all forked from one process that has imported torch."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        """Ask for a fresh folder for each record; start nothing yet."""
        self._folder = folder
        self._warm = WarmLaunch()

    def close(self) -> None:
        """End the process that has imported torch."""
        self._warm.close()

    def __call__(
        self,
        function: Callable[..., Any],
        world_size: int = 4,
        *,
        fake: bool = True,
        cuda_as_cpu: bool = False,
        values: bool = False,
        redeal: str = "",
        nemesis: str = "",
    ) -> RecordedFunction:
        """Record a function on every rank of a world, in processes of their own.

        The default process group is there when it is called; an `init_process_group` of its own is
        taken for that one. It gets `rank` and `world_size` where it has parameters of these names.
        With `values` the ranks are real, and what they hold is compared: weights, gradients, rows.
        With `redeal` (`rows` or `ranks`) two more runs deal the same batches to other ranks.
        With `nemesis` (`raise`, `die`, `late` or `all`) the ranks are real, and more runs show what
        hangs where one of them has an error. Raises ValueError where other processes cannot find
        the function.
        """
        fake = fake and not nemesis
        how = {**KEPT_FOR_PARITY, "redeal": True} if redeal else SEEN if values else {}
        found, order = self._record(
            function, world_size, fake=fake, cuda_as_cpu=cuda_as_cpu, values=how
        )
        if nemesis:
            found = strike_calls(order, found, nemesis, self._warm.start)
        folder, verdict = order.folder, found.judged.result.verdict
        again = Redeal()
        if redeal and found.is_whole:
            again = deal_again(order, redeal, start=self._warm.start)
        seen = judge_folder(
            folder, verdict, found.home, more=again.findings, reason=again.reason and again.words
        )
        verdict = verdict if seen is None else seen.verdict
        assert found.judged.scenario is not None
        return RecordedFunction(
            verdict=verdict,
            scenario=found.judged.scenario,
            text=found.judged.program.text,
            folder=folder,
            words=tuple(
                "; ".join(filter(None, (each.diagnosis, each.prose, each.explanation)))
                for each in verdict.findings
            ),
        )

    def _record(
        self,
        function: Callable[..., Any],
        world_size: int,
        *,
        fake: bool,
        cuda_as_cpu: bool,
        values: Mapping[str, Any],
    ) -> tuple[RecordedRun, RunOrder]:
        """Record a function; return what came of it, and what was ordered."""
        order = self._order_of(
            function, self._folder(), world_size, values, fake=fake, cuda_as_cpu=cuda_as_cpu
        )
        folder = order.folder
        try:
            return record(order, start=self._warm.start), order
        except NothingRecordedError as error:
            log = (folder / "output.log").read_text(encoding="utf-8", errors="replace")
            message = f"{error}\n{log}"
            raise ValueError(message) from None

    def _order_of(
        self,
        function: Callable[..., Any],
        folder: Path,
        world_size: int,
        values: Mapping[str, Any],
        *,
        fake: bool = False,
        cuda_as_cpu: bool = False,
    ) -> RunOrder:
        """Return how a function is recorded."""
        name, file = _find(function)
        return RunOrder(
            command=(file,),
            folder=folder,
            world_size=world_size,
            ranks=tuple(range(world_size)),
            function=f"{function.__module__}:{name}",
            fake=fake and not values,
            jobs=2,
            cuda_as_cpu=cuda_as_cpu,
            max_seconds=MOST_SECONDS,
            values=values,
        )

    def assert_parity(
        self,
        function: Callable[..., Any],
        reference: Callable[..., Any] | None = None,
        world_size: int = 4,
    ) -> None:
        """Raise AssertionError where n ranks do not compute what one process computes.

        The reference is the function itself in a world of one where it is left out. Gradients at
        the first three steps of the optimizer and the weights after them are compared. Raises
        ValueError where other processes cannot find a function.
        """
        folders = []
        for each, world in ((reference or function, 1), (function, world_size)):
            found, order = self._record(
                each, world, fake=False, cuda_as_cpu=False, values=KEPT_FOR_PARITY
            )
            folder = order.folder
            if not found.is_whole:
                output = (folder / "output.log").read_text(encoding="utf-8", errors="replace")
                ended = f"`{each.__name__}` on {world} ranks does not end well: {found.reason}"
                message = f"{ended}\n{output}"
                raise AssertionError(message)
            folders.append(folder)
        one, many = folders
        parity = compare(one, many)
        if parity.is_close:
            order = self._order_of(reference or function, one, 1, KEPT_FOR_PARITY)
            parity = compare(one, many, disturb(order, one, self._warm.start))
        if parity.status != "PASSED":
            problems = problems_of(parity.judgement.findings, folders[1])
            lines = [line for problem in problems for line in problem.lines("error")]
            message = "\n".join([f"{parity.status}: {parity.reason}".rstrip(": "), *lines])
            raise AssertionError(message)


def _find(function: Callable[..., Any]) -> tuple[str, str]:
    """Return a function's name and file. Raises ValueError where it is inside of another."""
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        message = (
            f"`{name or function}` cannot be found by other processes: "
            "write it at the top of a module"
        )
        raise ValueError(message)
    file = inspect.getsourcefile(function)
    if file is None:
        message = f"`{name}` is not written in a file"
        raise ValueError(message)
    return name, file
