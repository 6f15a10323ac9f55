"""The progress board: what a rank has done, where it is, and copies of what it holds."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct

from torch_scenarios.execution.protocol import Columns, Position, RankAccount
from torch_scenarios.model.trace import Failure, RankTrace

# -------------------------------------------------------------------------------------------------
# Copies of what a rank holds, made beside each step.

#: bytes above which nothing is prepared for a tensor: that would keep it alive
LARGE = 2**20


class Copies:
    """Copies of what a rank holds, which later steps cannot change.

    On the host a tensor is copied as an array. One that is seen again is copied through a view of
    its memory, which is made once: that takes a tenth of a clone's time. On a device a clone is
    enqueued.
    """

    def __init__(
        self, torch: ModuleType, scope: Mapping[str, Any], convert: Callable[[Any], Any] | None
    ) -> None:
        """Copy what names hold in `scope`; `convert` makes arrays of tensors, None clones them."""
        self._torch: Any = torch
        self._scope = scope
        self._convert = convert
        #: name -> a tensor that it held, and what copies it
        self._seen: dict[str, tuple[Any, Callable[[], Any]]] = {}

    def copy_named(self, names: tuple[str, ...]) -> list[Any]:
        """Return copies of what these names hold now."""
        copies = []
        for name in names:
            value, seen = self._scope.get(name), self._seen.get(name)
            if seen is not None and seen[0] is value:
                copies.append(seen[1]())
            else:
                copies.append(self._copy_first(name, value))
        return copies

    def make_copier(self, names: tuple[str, ...]) -> Callable[[], list[Any]]:
        """Return what copies what these names hold by then, again and again."""
        if len(names) != 1:
            return partial(self.copy_named, names)
        (name,) = names
        get, seen = self._scope.get, self._seen

        def copies() -> list[Any]:
            known, value = seen.get(name), get(name)
            if known is not None and known[0] is value:
                return [known[1]()]
            return [self._copy_first(name, value)]

        return copies

    def of(self, value: Any) -> Any:
        """Return a copy: tensors as said above, lists by item, objects deeply."""
        if isinstance(value, self._torch.Tensor):
            return value.clone() if self._convert is None else self._convert(value).copy()
        if isinstance(value, list):
            return [self.of(item) for item in value]
        return copy.deepcopy(value)

    def find_strays(self, board: Board) -> dict[str, Any]:
        """Return what names hold now that hold otherwise than when a step last stored into them.

        A backend that stores into what it was only to read shows here, even where no later step
        looks at it. A device must be done with every step.
        """
        last = dict(board.initial)
        for record in board.records:
            last.update(zip(record.written, record.kept, strict=False))
        found = {}
        for name, kept in last.items():
            value = self._scope.get(name)
            if not self._holds(value, kept, board.convert):
                found[name] = board.convert(self.of(value))
        return found

    def _holds(self, value: Any, kept: Any, convert: Callable[[Any], Any]) -> bool:
        """Return whether a tensor, or each of a list, is bit for bit what was copied of it."""
        if isinstance(value, list) and isinstance(kept, list) and len(value) == len(kept):
            return all(self._holds(*pair, convert) for pair in zip(value, kept, strict=True))
        if not isinstance(value, self._torch.Tensor):
            return True
        now, then = convert(value), convert(kept)
        if not isinstance(then, np.ndarray) or (now.dtype, now.shape) != (then.dtype, then.shape):
            return True
        return bool(now.tobytes() == then.tobytes())

    def _copy_first(self, name: str, value: Any) -> Any:
        """Copy what a name has come to hold, and be ready to copy it again."""
        self._seen.pop(name, None)
        if isinstance(value, self._torch.Tensor) and not is_large(value):
            self._seen[name] = (value, lambda: self._copy_again(name, value))
        return self.of(value)

    def _copy_again(self, name: str, tensor: Any) -> Any:
        """Copy a tensor for the second time, and make a view for the times to come."""
        copying: Callable[[], Any] = partial(self.of, tensor)
        if self._convert is None:
            copying = tensor.clone
        elif _lies_open(tensor):
            copying = self._convert(tensor).copy
        self._seen[name] = (tensor, copying)
        return copying()


def _lies_open(tensor: Any) -> bool:
    """Return whether a view of a tensor's memory shows what it holds; that of an array does."""
    if isinstance(tensor, np.ndarray):
        return True
    return bool(tensor.is_contiguous() and not tensor.is_conj())


def is_large(value: Any) -> bool:
    """Return whether a value is a tensor of many bytes, or has one in it."""
    if isinstance(value, list):
        return any(is_large(item) for item in value)
    return bool(getattr(value, "nbytes", 0) > LARGE)


def _count_bytes(value: Any) -> int:
    """Return the bytes of a tensor, or of the tensors in a list."""
    if isinstance(value, list):
        return sum(map(_count_bytes, value))
    return int(getattr(value, "nbytes", 0))


# -------------------------------------------------------------------------------------------------
# The copies of a rank become the values of a trace: NumPy arrays, when the account is given.

#: dtypes that NumPy lacks: torch's name -> an integer type of the same width, NumPy's extension
EXTENSIONS: dict[str, tuple[str, Any]] = {
    "bfloat16": ("int16", ml_dtypes.bfloat16),
    "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "float8_e4m3fnuz": ("uint8", ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2fnuz": ("uint8", ml_dtypes.float8_e5m2fnuz),
}
#: dtypes that every device stacks; others come one by one
STACKED = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool", "complex64")
#: small tensors that are brought from a device at once
TOGETHER = 64


@cache
class DeviceCopies:
    """Brings tensors to the host on another stream; one for each device, for every scenario.

    The account of a rank is given while its stream hangs: what is copied there would wait for ever
    behind the call that hangs, although the tensor itself has been ready for long.
    """

    def __init__(self, torch: ModuleType, device: Any) -> None:
        """Make the stream, and let CUDA load what stacks tensors: in a hang it may not."""
        self._torch = torch
        self._cuda: Any = torch.cuda
        self._device = device
        self._stream = self._cuda.Stream(device=device)
        self([torch.zeros(1, device=device)] * 2)

    def __call__(self, tensors: list[Any]) -> Any:
        """Return tensors of one dtype and shape, stacked on the host.

        Waits for their copy, and for nothing else on the device.
        """
        with self._cuda.device(self._device), self._cuda.stream(self._stream):
            return (self._torch.stack(tensors) if tensors[1:] else tensors[0][None]).cpu()


class Converter:
    """Makes NumPy arrays of tensors, wherever they stand in a value; the rest stays as it is."""

    def __init__(
        self, torch: ModuleType, to_host: Callable[[list[Any]], Any] | None = None
    ) -> None:
        """Convert tensors of the host; others `to_host` stacks there, of one dtype and shape."""
        self._tensor: Any = torch.Tensor
        self._to_host = to_host
        self._carried = {
            getattr(torch, name): (getattr(torch, carrier), np.dtype(extension))
            for name, (carrier, extension) in EXTENSIONS.items()
            if hasattr(torch, name)
        }
        self._stacked = {getattr(torch, name) for name in STACKED}

    def __call__(self, value: Any) -> Any:
        """Return the value of a trace; an array may share the tensor's memory."""
        if isinstance(value, self._tensor):
            tensor = value.detach() if value.requires_grad else value
            return self._array(tensor if self._to_host is None else self._to_host([tensor])[0])
        if isinstance(value, list):
            brought = self._copy_together(value)
            return [
                brought[place] if place in brought else self(item)
                for place, item in enumerate(value)
            ]
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        return list(value) if isinstance(value, range) else value

    def _array(self, tensor: Any) -> Any:
        carried = self._carried.get(tensor.dtype)
        if carried is None:
            return tensor.resolve_conj().numpy()
        carrier, extension = carried
        return tensor.contiguous().view(carrier).numpy().view(extension)

    def _copy_together(self, values: list[Any]) -> dict[int, Any]:
        """Bring the small tensors among values from the device, many at a time: place -> array."""
        brought: dict[int, Any] = {}
        if self._to_host is None:
            return brought
        alike: dict[Any, list[int]] = {}
        for place, value in enumerate(values):
            if isinstance(value, self._tensor) and value.dtype in self._stacked:
                alike.setdefault((value.dtype, value.shape, is_large(value)), []).append(place)
        for (_, _, large), places in alike.items():
            count = 1 if large else TOGETHER
            for start in range(0, len(places), count):
                some = places[start : start + count]
                rows = self._array(self._to_host([values[place].detach() for place in some]))
                brought.update((place, rows[row, ...]) for row, place in enumerate(some))
        return brought


# -------------------------------------------------------------------------------------------------
# The progress board: what a rank has done, and where it is now.
#
# The main thread writes it: one record as a step begins, three stores as it ends. The watching
# thread and the last words of a dying process read it. Values are put into a trace's own terms
# when the account is given, and what a device did is asked for then.


#: bytes of copies that a rank leaves on its device; beyond them those come to the host that the
#: device has made. Ranks may share a device, and a scenario's own tensors need room
MOST_ON_DEVICE = 2**30


class Site(Struct):
    """What a step is called on this rank, and whether it may block on others."""

    label: str
    communicates: bool


class TakenStep:
    """One step as it was taken; `start_s` and `end_s` in seconds of the monotonic clock.

    Who makes one states `site`, `index`, `iteration` and `start_s`. What a step does not have is
    the class's own default, so that a record of most steps is seven stores: one is made between any
    two calls of a rank.
    """

    site: Site
    index: int
    #: the values of the loop variables around it
    iteration: tuple[int, ...]
    start_s: float
    end_s: float | None = None
    failure: Failure | None = None
    #: on a device that only enqueues: the event behind the step
    event: Any = None
    #: seconds that the backend itself would wait for the call, where it may return before
    timeout_s: float | None = None
    #: the names that the step may have stored into, and copies of what they held then
    written: tuple[str, ...] = ()
    kept: Sequence[Any] = ()
    observed: dict[str, Any] | None = None
    #: the collective calls of a step that makes several
    said: Any = None

    @property
    def position(self) -> Position:
        """Where in the program it stands."""
        return self.index, self.iteration


class Board:
    """The account of one rank in one scenario."""

    def __init__(
        self,
        rank: int,
        convert: Callable[[Any], Any],
        happened_s: Callable[[Any], float] | None = None,
    ) -> None:
        """Begin; `convert` makes a value of a trace from a copy.

        On a device that only enqueues, `happened_s` tells when an event happened, in seconds of the
        device's clock; None where a call that has returned is done.
        """
        self.rank = rank
        self.records: list[TakenStep] = []
        self.initial: Mapping[str, Any] = {}
        #: the numbers that are named in the end
        self.numbers: Mapping[str, Any] = {}
        #: what is held in the end though no step stored it
        self.strays: Mapping[str, Any] = {}
        #: the record of the communication call that the main thread is in
        self.inside: TakenStep | None = None
        self.begin_s = time.monotonic()
        self.convert = convert
        self._happened_s = happened_s
        #: how many records the device has done, from the first on
        self._done = 0
        #: moves that the records do not show
        self._others = 0
        self._device = threading.Lock()
        #: bytes of copies on the device, and how many records' copies have come to the host
        self._on_device = self._brought = 0
        #: what asking the device raised: its context is lost
        self.fault: Exception | None = None

    def begin(self, initial: Mapping[str, Any]) -> None:
        """Start the scenario's clock on this rank."""
        self.initial = initial
        self.begin_s = time.monotonic()

    def enter(self, site: Site, index: int, iteration: tuple[int, ...] = ()) -> TakenStep:
        """Note that a step begins; returns its record."""
        record = TakenStep()
        record.site, record.index, record.iteration = site, index, iteration
        record.start_s = time.monotonic()
        self.records.append(record)
        if site.communicates:
            self.inside = record
        return record

    def leave(self, record: TakenStep) -> None:
        """Note that a step ended, well or not."""
        record.end_s = time.monotonic()
        self.inside = None

    def forget(self, record: TakenStep) -> None:
        """Take the last step out of the account: it was none of the program's."""
        self._others += 2
        self.records.remove(record)

    @property
    def moves(self) -> int:
        """Counts what happens, each entry and each return; unchanged means that nothing did."""
        records = self.records
        inside = bool(records) and records[-1].end_s is None
        return 2 * len(records) - inside + self._others

    # ------------------------------------------------------------------ a device

    def advance(self) -> TakenStep | None:
        """Note what the device has done since; return the record that it is at, None at the end.

        Only asks, and never waits; called by the main thread and by the watching one. What the
        device does is a move. A record that the host has not left yet ends the look.
        """
        if self._happened_s is None:
            return None
        with self._device:
            before = self._done
            try:
                return self._look()
            except RuntimeError as error:
                self.fault = error
                return self.records[self._done]
            finally:
                self._others += self._done - before

    def _look(self) -> TakenStep | None:
        """Find the first record that the device has not done: strides that grow, then halves.

        A device does in order what is enqueued on one stream. So a few questions tell what it has
        done of many steps, and each question takes time from the main thread.
        """
        records, end = self.records, len(self.records)
        if end and records[end - 1].event is None:
            end -= 1  # the host has not left it
        stride, undone = 1, end
        while self._done < undone:
            middle = min(self._done + stride, undone) - 1
            if undone < end:
                middle = (self._done + undone) // 2
            if records[middle].event.query():
                self._done = middle + 1
                stride *= 2
            else:
                undone = middle
        return records[undone] if undone < end else None

    def defer(self, record: TakenStep, event: Any) -> None:
        """Let the last step be done with a later event: more was enqueued for it."""
        with self._device:
            record.event = event
            self._done = min(self._done, len(self.records) - 1)

    def spare(self, record: TakenStep) -> None:
        """Count the copies of the last step, and bring copies to the host where these are too many.

        Copies of what the device has not done yet stay: it may hang before it makes them.
        """
        self._on_device += sum(map(_count_bytes, record.kept))
        if self._on_device <= MOST_ON_DEVICE:
            return
        self.advance()
        while self._on_device > MOST_ON_DEVICE and self._brought < self._done:
            done = self.records[self._brought]
            self._on_device -= sum(map(_count_bytes, done.kept))
            done.kept = self.convert(list(done.kept))
            self._brought += 1

    @property
    def position(self) -> TakenStep | None:
        """The communication call that holds the rank: on the device if there is one, else here."""
        at = self.advance()
        if at is None:
            return self.inside
        return at if at.site.communicates else None

    def fail(self, record: TakenStep, failure: Failure) -> None:
        """Note that a call failed on the device after it had returned to the host."""
        record.failure = failure
        self._others += 1

    # ------------------------------------------------------------------ the account

    def account(self, ending: str, died: str | None = None) -> RankTrace:
        """Give the account so far. A step that has not ended is blocked, or running if local.

        What a device has not done yet is left out, from the step after the first such on.
        """
        records, done = tuple(self.records), self._done
        undone = done < len(records) and records[done].event is not None
        account_ = records[: done + 1] if undone else records
        columns = Columns()
        values: list[Any] = []
        for place, record in enumerate(account_):
            finished = not undone or place < done
            written = record.written if finished else ()
            values += record.kept[: len(written)]
            times_s = self._times_s(record, finished=finished)
            kind = (record.index, record.site.label, written)
            columns.add(
                kind, record.iteration, times_s, self._find_details(record, finished=finished)
            )
        columns.write(self.convert(values))
        return RankTrace(
            rank=self.rank,
            initial={name: self.convert(value) for name, value in self.initial.items()},
            events=RankAccount(columns),
            numbers=dict(self.numbers),
            strays=dict(self.strays),
            ending=ending,
            died=died,
        )

    def _times_s(
        self, record: TakenStep, *, finished: bool
    ) -> tuple[float, float | None, float | None]:
        """Return when a step started and ended here, and when the device was done with it."""
        end_s = None if record.end_s is None else record.end_s - self.begin_s
        complete_s = None
        if self._happened_s is not None and finished and record.event is not None:
            with suppress(RuntimeError):  # the device was lost
                complete_s = self._happened_s(record.event)
        return record.start_s - self.begin_s, end_s, complete_s

    def _find_details(self, record: TakenStep, *, finished: bool) -> dict[str, Any] | None:
        """Return what is reported of a step beside its times, where there is anything to tell."""
        if record.failure is not None:
            other: dict[str, Any] = {"state": "raised", "failure": record.failure}
        elif record.end_s is None or not finished:
            other = {"state": "blocked" if record.site.communicates else "running"}
        elif record.observed is None and record.said is None:
            return None
        else:
            other = {}
        if record.said is not None:
            other["said"] = record.said
        if finished and record.observed:
            seen = record.observed.items()
            other["observed"] = {name: self.convert(value) for name, value in seen}
        return other
