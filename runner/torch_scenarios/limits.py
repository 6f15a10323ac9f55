"""Bounds on a scenario and on its analysis, and the flags that raise them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import NoReturn

from msgspec import Struct

from torch_scenarios.errors import Mark, Problem, ScenarioError

# -------------------------------------------------------------------------------------------------
# How large a scenario may be: a file is data, and may come from a stranger's pull request.
#
# Every bound has a flag of the command line that raises it, and every complaint about a bound
# names that flag. A bound is inclusive: a world of exactly `max_ranks` ranks is allowed.


class Limits(Struct, frozen=True, kw_only=True):
    """The bounds on a scenario file, on the program in it, and on one expression.

    What each counts is in :data:`COUNTS`.

    >>> Limits(max_ranks=8).max_steps
    50000000

    Most are counts and not seconds: what a file is refused for is then the same on every machine.
    """

    max_ranks: int = 64
    max_elements: int = 2**26
    max_items: int = 2**18
    max_steps: int = 50_000_000
    max_turns: int = 2_000_000
    max_work: int = 1_500_000_000
    max_bytes: int = 2**30
    max_run_bytes: int = 2**32
    max_seconds: int = 120
    max_total_seconds: int = 86_400
    max_schedules: int = 1_024
    max_loop: int = 100_000
    max_expression_chars: int = 4_000
    max_expression_nodes: int = 1_000
    max_nesting: int = 64
    max_file_bytes: int = 2**20
    max_anchor_expansion: int = 10_000
    max_use_depth: int = 16
    max_file_steps: int = 10_000
    max_matrix_cases: int = 1_000
    #: whether a link may lead out of the project: no bound, and chosen in the same place
    follow_links: bool = False


DEFAULT = Limits()

#: name of a bound -> what it counts
COUNTS = {
    "max_ranks": "ranks of the world",
    "max_elements": "elements of one tensor",
    "max_items": "list items made by one expression",
    "max_steps": "steps taken, over all ranks",
    "max_turns": "turns of loops, taken or not, over all ranks",
    "max_work": "elements and operations computed by the analysis of a case",
    "max_bytes": "bytes made by the analysis, over all ranks and steps",
    "max_run_bytes": "bytes that the ranks of a run hold, with a copy of each result",
    "max_seconds": "processor seconds of the analysis of a case, and seconds of its run",
    "max_total_seconds": "seconds of all cases together; what is left is not run",
    "max_schedules": "orders of arrival at the receives from anyone",
    "max_loop": "iterations of one `for`",
    "max_expression_chars": "characters of one expression",
    "max_expression_nodes": "names, numbers and operators of one expression",
    "max_nesting": "levels of nesting",
    "max_file_bytes": "bytes of one file",
    "max_anchor_expansion": "nodes that YAML aliases expand to",
    "max_use_depth": "files that `use` each other",
    "max_file_steps": "steps written, after `use`",
    "max_matrix_cases": "cases of one matrix",
}

#: name of a bound -> its flag, which help does not list
FLAGS = {name: f"--{name.replace('_', '-')}" for name in COUNTS}

#: name of a bound -> the option that raises it, as a person writes it
RAISING = {name: f"`--limit {flag.removeprefix('--max-')}=N`" for name, flag in FLAGS.items()}


def explain_bound(name: str, limits: Limits = DEFAULT) -> str:
    """Return the words for a bound that was passed: what it counts, how many, which flag."""
    return f"at most {getattr(limits, name)} {COUNTS[name]} ({RAISING[name]} raises it)"


# -------------------------------------------------------------------------------------------------
# What one expression may make, and what the reading of a file or the analysis of a case may take.
#
# A :class:`Budget` is reset when the evaluation of an expression begins, and charged before
# anything is allocated. The bounds come with the compiled expression, so that the code that
# compiled it has decided.
#
# An :class:`Account` is opened for one file that is read, or for one case that is analysed
# (:func:`open_account`). Everything is charged to it: what expressions compute, every step, every
# turn of a loop, every byte that is kept. It ends the analysis by what was counted, so that the
# verdict is the same on every machine. Where counting fails to, the processor time of the thread
# that computes ends it: a machine that is busy with other things takes none of that away.

#: tensors that one expression may make, each of the largest size
_WORK = 4

#: multiplications of a matrix product that count as one element
MATMUL = 64

#: operations in comprehensions and on list items, for each item that may be made
_OPERATIONS = 16

#: bytes of the widest element of a tensor that is made on the way to a value
_WIDEST = 8

# One unit of work is an element of a tensor computed, some 4 ns. Measured against it:

#: units of one evaluation, whatever it computes
EVALUATION = 256

#: units of one operation on a plain number or a list item
_OPERATION = 24

#: units of one item of a list that is made
_ITEM = 8

#: units between two looks at the clock
_GLANCE = 1 << 20


class BoundError(ScenarioError):
    """A bound of an account was passed: all that is computed for the case ends.

    An error in one expression is the problem of one step, and others may be found after it. This
    one is not caught on the way: what is left of the account is nothing.
    """


class OverdueError(Exception):
    """The time for a file, or for the analysis of a case, is over: nothing is decided.

    It is no ScenarioError: a machine that is slow says nothing about a file.
    """

    def __init__(self, problem: Problem) -> None:
        """Keep which time is over, and the place that the analysis had come to."""
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        """Return it in one line."""
        return self.problem.sentence


class Account:
    """What one file, or one case, may still take: units of work, turns of loops, bytes, time.

    Its seconds are processor time of the thread that opens it, which alone charges it.

    >>> opened = Account(Limits(max_bytes=100))
    >>> opened.keep(60)
    >>> try:
    ...     opened.keep(60)
    ... except BoundError as error:
    ...     print(error.problems[0].code)
    too_much_memory

    A unit is an element of a tensor computed, some 4 ns. Everything that a text can make large
    charges before it computes.
    """

    __slots__ = (
        "_ends_s",
        "_next",
        "_passed",
        "at",
        "bytes_left",
        "limits",
        "run_bytes",
        "turns_left",
        "work_left",
    )

    def __init__(self, limits: Limits = DEFAULT) -> None:
        """Open it now: its seconds begin."""
        self.limits = limits
        self.work_left = limits.max_work
        self.bytes_left = limits.max_bytes
        self.turns_left = limits.max_turns
        self._ends_s = time.thread_time() + limits.max_seconds
        self._next = self.work_left if session_over() else self.work_left - _GLANCE
        #: the bound that was passed: whatever goes on all the same ends at its next charge
        self._passed: BoundError | OverdueError | None = None
        #: bytes that the ranks of a run would hold, by the simulation in which they hold most
        self.run_bytes = 0
        #: the place of what is computed now, for what is charged without one
        self.at: Mark | None = None

    def spend(self, work: int, mark: Mark | None = None) -> None:
        """Charge units of work; BoundError beyond `max_work`, OverdueError after its time."""
        self.work_left -= work
        if self.work_left < self._next:
            self._look(mark)

    def _look(self, mark: Mark | None) -> None:
        if self._passed is not None:
            raise self._passed
        if self.work_left < 0:
            self._refuse("too_much_work", "max_work", "takes too much work", mark)
        if time.thread_time() > self._ends_s:
            self._end("max_seconds", mark)
        if session_over():
            self._end("max_total_seconds", mark)
        self._next = self.work_left - _GLANCE

    def _end(self, bound: str, mark: Mark | None) -> NoReturn:
        message = f"this takes too long: {explain_bound(bound, self.limits)}"
        self._passed = OverdueError(Problem(code="too_slow", message=message, mark=mark or self.at))
        self._next = self.work_left
        raise self._passed

    def turn(self, mark: Mark | None = None, work: int = EVALUATION) -> None:
        """Charge one turn of a loop, whether or not anything is done in it."""
        self.at = mark
        self.turns_left -= 1
        if self.turns_left < 0:
            self._refuse("too_many_turns", "max_turns", "takes too many turns of loops", mark)
        self.spend(work, mark)

    def keep(self, count: int, mark: Mark | None = None) -> None:
        """Charge bytes that are kept, before they are made; BoundError beyond `max_bytes`."""
        self.room(count, mark)
        self.bytes_left -= count

    def room(self, count: int, mark: Mark | None = None) -> None:
        """Raise BoundError where so many bytes cannot be made beside what is kept."""
        if count > self.bytes_left:
            self._refuse("too_much_memory", "max_bytes", "holds too much", mark)

    def _refuse(self, code: str, bound: str, what: str, mark: Mark | None) -> NoReturn:
        message = f"the program {what}: {explain_bound(bound, self.limits)}"
        self._passed = BoundError([Problem(code=code, message=message, mark=mark or self.at)])
        self._next = self.work_left
        raise self._passed


class _Open:
    """The account that is open in this process; no two analyses overlap in it.

    `ends_s` is when the session ends, by the monotonic clock; None where nothing bounds it.
    """

    account: Account | None = None
    ends_s: float | None = None


@contextmanager
def session(limits: Limits) -> Iterator[None]:
    """Bound all that is read, analysed and run inside by `max_total_seconds`."""
    before = _Open.ends_s
    _Open.ends_s = time.monotonic() + limits.max_total_seconds
    try:
        yield
    finally:
        _Open.ends_s = before


def session_left_s() -> float | None:
    """Return the seconds that are left to the session, zero or less behind its end; or None."""
    return None if _Open.ends_s is None else _Open.ends_s - time.monotonic()


def session_over() -> bool:
    """Whether the session has no time left."""
    return _Open.ends_s is not None and time.monotonic() > _Open.ends_s


@contextmanager
def open_account(limits: Limits = DEFAULT) -> Iterator[Account]:
    """Open an account for all that is computed inside; within another one, that one goes on."""
    found = _Open.account
    if found is not None:
        yield found
        return
    _Open.account = opened = Account(limits)
    try:
        yield opened
    finally:
        _Open.account = None


def account() -> Account | None:
    """Return the account that is open; None where nothing is analysed, as in a worker."""
    return _Open.account


class Budget:
    """The state of one executor's evaluation; evaluations never overlap in it.

    It stands between an expression and the :class:`Account` of the case: an expression gets a grant
    and charges that, which takes a subtraction in place of a call, and what it took is charged when
    the next one begins.
    """

    __slots__ = (
        "_account",
        "_granted",
        "elements",
        "items",
        "items_left",
        "operations_left",
        "work_left",
    )

    def __init__(self, limits: Limits = DEFAULT) -> None:
        """Open it with bounds for what is made outside of expressions."""
        self._account: Account | None = None
        self._granted = self.work_left = self.items = self.items_left = self.operations_left = 0
        self.begin(limits.max_elements, limits.max_items)

    def begin(self, elements: int, items: int) -> None:
        """Open the budget of one evaluation; what the one before took is charged now."""
        found = _Open.account
        granted = elements * _WORK
        if found is not None:
            if found is self._account:
                found.spend(
                    EVALUATION
                    + self._granted
                    - self.work_left
                    + _OPERATION * (self.items * _OPERATIONS - self.operations_left)
                    + _ITEM * (self.items - self.items_left)
                )
            granted = min(granted, found.bytes_left // _WIDEST)
        self._account = found
        self.elements = elements
        self.work_left = self._granted = granted
        self.items = self.items_left = items
        self.operations_left = items * _OPERATIONS

    def tensor(self, count: int) -> None:
        """Charge a tensor of `count` elements; ValueError where it is too large."""
        if count > self.elements:
            raise ValueError(explain_size(count, self.elements))
        if count > self.work_left and self._account is not None:
            self._account.room(count * _WIDEST)
        self.work(count)

    def work(self, count: int) -> None:
        """Charge a look at `count` elements."""
        self.work_left -= count
        if self.work_left < 0:
            whole = self._granted == self.elements * _WORK
            message = f"it computes more than {self._granted} elements in all"
            raise ValueError(_tell_bound(message, "max_elements" if whole else "max_bytes"))

    def charge_shape(self, shape: Iterable[int]) -> None:
        """Charge a tensor of that shape."""
        self.tensor(prod(shape))

    def matmul(self, multiplications: int) -> None:
        """Charge the multiplications of a matrix product."""
        self.work(multiplications // MATMUL)

    def operations(self, count: int) -> None:
        """Charge `count` operations on plain numbers and list items."""
        self.operations_left -= count
        if self.operations_left < 0:
            most = self.items * _OPERATIONS
            raise ValueError(_tell_bound(f"it takes more than {most} operations", "max_items"))

    def charge_items(self, count: int) -> None:
        """Charge `count` list items; ValueError where they are too many."""
        self.items_left -= count
        if self.items_left < 0:
            message = f"its lists have more than {self.items} items in all"
            raise ValueError(_tell_bound(message, "max_items"))

    def charge_nested(self, value: object) -> int:
        """Charge every item of a nested list, as often as it is reached; return how many."""
        if not isinstance(value, list | tuple | range):
            return 0
        self.charge_items(len(value))
        if isinstance(value, range):
            return len(value)
        return len(value) + sum(self.charge_nested(item) for item in value)


def explain_size(count: int, most: int) -> str:
    """Return the complaint about a tensor of too many elements."""
    flag = RAISING["max_elements"]
    return f"a tensor of {count} elements is too large; at most {most} ({flag} raises the bound)"


def _tell_bound(message: str, bound: str) -> str:
    return f"{message} ({RAISING[bound]} raises the bound)"


# -------------------------------------------------------------------------------------------------
# When Python's cyclic collector may walk the heap: not while a large world is built or kept.


@contextmanager
def pause_collector() -> Iterator[None]:
    """Keep the collector away while many objects are made that all stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def freeze_objects() -> Iterator[None]:
    """Let the collector leave alone whatever there is by now, and look at what comes after.

    It looks again where it was kept away: a walk over what stays would come between the two. What
    the process that runs this has frozen before, as a session of tests does, stays so.
    """
    enabled = gc.isenabled()
    frozen = gc.get_freeze_count()
    gc.freeze()
    gc.enable()
    try:
        yield
    finally:
        if not enabled:
            gc.disable()
        if not frozen:
            gc.unfreeze()
