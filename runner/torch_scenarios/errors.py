"""What is wrong, where, and what would be right.

A :class:`Problem` is data: a stable code, a place, a message and a hint. Every stage that reads
what a person wrote raises :class:`ScenarioError` with all the problems it found; nothing here
prints, and nothing here knows which stage complains.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import force_setattr

from torch_scenarios import display

#: problems of one file that are reported: the others are mostly the same
MOST_PROBLEMS = 50

#: names among which the nearest one is looked for
_MOST_NAMES = 500


@lru_cache(maxsize=4)
def _lines(text: str) -> list[str]:
    """Return the lines of a text, which is asked for many of them."""
    return text.splitlines()


class Compared(Struct, frozen=True, eq=False):
    """A value that equals another of its class where all of its fields do, but for some.

    An heir names those in `apart`: they take no part in `==`, in the hash, or in `repr`.

    >>> class Step(Compared, frozen=True):
    ...     apart = ("line",)
    ...     name: str
    ...     line: int
    >>> Step("a", line=1) == Step("a", line=2), Step("a", line=1)
    (True, Step(name='a'))
    """

    apart: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        """Whether the other one is of this class, and all that is compared is equal."""
        if self is other:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        compared = _make_key(self.__class__)
        return bool(compared(self) == compared(other))

    def __hash__(self) -> int:
        """Equal ones have one hash. TypeError where a field has none."""
        return hash(_make_key(self.__class__)(self))

    def __repr__(self) -> str:
        """Return the class and what is compared, by name."""
        fields = (
            f"{name}={getattr(self, name)!r}"
            for name in self.__struct_fields__
            if name not in self.apart
        )
        return f"{self.__class__.__qualname__}({', '.join(fields)})"


@cache
def _make_key(kind: type[Compared]) -> Callable[[Any], Any]:
    """Return what gives the fields of a value that are compared; those without any are equal."""
    names = [name for name in kind.__struct_fields__ if name not in kind.apart]
    return attrgetter(*names) if names else lambda _: ()


@lru_cache(maxsize=4)
def _line_starts(text: str) -> list[int]:
    """Return where each line of a text begins, and where the text ends."""
    return list(accumulate(map(len, text.splitlines(keepends=True)), initial=0))


class Source(Compared, frozen=True, kw_only=True):
    r"""A file as it was read: its path as the user named it, and its text.

    >>> source = Source(path="a.yaml", text="world_size: 2\nsteps: []\n")
    >>> source.line(2), source.offset(2, 1), source.place(14)
    ('steps: []', 14, (2, 1))
    """

    apart = ("text",)

    path: str
    text: str

    def line(self, number: int) -> str:
        """Return line `number` (1-based) without its line break, or an empty string."""
        lines = _lines(self.text)
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def offset(self, line: int, column: int) -> int:
        """Return where a line and a column, both from 1, are in the text, in characters."""
        starts = _line_starts(self.text)
        return min(starts[min(line, len(starts)) - 1] + column - 1, len(self.text))

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line and the column, both from 1, of a character of the text."""
        starts = _line_starts(self.text)
        line = max(1, bisect_right(starts, offset))
        if line == len(starts) and not self.text.endswith(("\n", "\r")):
            line = max(1, line - 1)  # the end of a last line that no line break ends
        return line, offset - starts[line - 1] + 1


class Mark(Compared, frozen=True, kw_only=True):
    """A place in a source: line and column count from 1; the end is exclusive.

    >>> mark = Mark(source=Source(path="shared/a.yaml", text=""), line=3, column=5)
    >>> str(mark), mark.short
    ('shared/a.yaml:3:5', 'a.yaml:3')
    """

    apart = ("at",)

    source: Source
    line: int
    column: int
    end_line: int | None = None
    end_column: int | None = None
    #: the place that it was recorded from, in words, as `train.py:19`; it is never opened
    at: str | None = None

    def __str__(self) -> str:
        """Return `file:line:column`."""
        return f"{self.source.path}:{self.line}:{self.column}"

    @property
    def short(self) -> str:
        """`file:line` with the file's own name only, as prose names a step's place.

        The place of the program that the step was recorded from comes first.
        """
        own = f"{self.source.path.rsplit('/', 1)[-1]}:{self.line}"
        return own if self.at is None else f"{display.brief(self.at)}, {own}"


class Marked(Compared, frozen=True, kw_only=True):
    """A value that a person wrote: it equals another, no matter where both are written.

    >>> here = Mark(source=Source(path="a.yaml", text=""), line=1, column=1)
    >>> Marked(mark=here) == Marked()
    True
    """

    apart: ClassVar[tuple[str, ...]] = ("mark",)

    mark: Mark | None = None


class Edit(Struct, frozen=True, kw_only=True):
    """Replace the characters `start` to `end` (exclusive) of a text by another text.

    >>> edit, text = Edit(start=7, end=10, text="recv"), "rank 0 ecv"
    >>> text[: edit.start] + edit.text + text[edit.end :]
    'rank 0 recv'
    """

    start: int
    end: int
    text: str = ""


class Repair(Struct, frozen=True, kw_only=True):
    """What to change in a file so that a mistake is gone: `edits` of the text of `source`.

    `title` says it to a person: "insert `- wait: h` before line 10". It is `sure` where a program
    may do it unasked. The terminal, JSON, `check --fix` and the language server read the same one.
    """

    title: str
    source: Source
    edits: tuple[Edit, ...]
    sure: bool = True


#: acts that are the other end of a message
MESSAGE_ACTS = frozenset({"send", "receive"})


class AwaitedAct(Struct, frozen=True):
    """What a rank waits for another one to do, for readers that must not parse words.

    `act` is `send`, `receive`, `enter` (a collective), `make` (an operation of that number), `run`
    (a function), `split` or `create` (a group). `rank` waits in `call` for `peer`.

    >>> act = AwaitedAct(rank=0, peer=1, act="receive", call="send to 1")
    >>> f"rank {act.rank} waits for rank {act.peer} to {act.act}"
    'rank 0 waits for rank 1 to receive'
    """

    rank: int
    peer: int
    act: str
    call: str

    @property
    def is_of_message(self) -> bool:
        """Whether the other rank is to make the other end of a message."""
        return self.act in MESSAGE_ACTS


class Clause(Struct, frozen=True):
    """A part of an explanation: what one step has to do with it, and the step's place.

    In prose the place follows `words`; a note begins with it, as a compiler's does. `joint` leads
    to this clause from the one before it in the prose. `awaits` is what it says of a rank that
    waits.

    >>> at = Mark(source=Source(path="stuck.yaml", text=""), line=6, column=3)
    >>> one = Clause("rank 0 waits in `send to 1`", at, " for rank 1")
    >>> sentence_of([one, Clause("rank 1 has ended")])
    'rank 0 waits in `send to 1` (stuck.yaml:6) for rank 1; rank 1 has ended'
    >>> one.bare
    'rank 0 waits in `send to 1` for rank 1'
    """

    words: str
    mark: Mark | None = None
    rest: str = ""
    joint: str = "; "
    awaits: AwaitedAct | None = None

    def __str__(self) -> str:
        """Return it as prose: ``rank 0 waits in `send to 1` (stuck.yaml:6) for rank 1``."""
        place = "" if self.mark is None else f" ({self.mark.short})"
        return f"{self.words}{place}{self.rest}"

    @property
    def bare(self) -> str:
        """The words without the place, which a note names before them."""
        return f"{self.words}{self.rest}"


def sentence_of(clauses: Sequence[Clause]) -> str:
    """Return an explanation as one sentence."""
    parts = ((clause.joint if at else "", str(clause)) for at, clause in enumerate(clauses))
    return "".join(part for pair in parts for part in pair)


class Problem(Struct, frozen=True, kw_only=True):
    r"""What is wrong with a file: `code` is stable, `message` says it, `hint` what would be right.

    What they quote of a file is cut to what a person reads. `repair` is the edit that the hint
    means, where it is one.

    >>> source = Source(path="a.yaml", text="world_sise: 2\n")
    >>> mark = Mark(source=source, line=1, column=1, end_column=11)
    >>> print(Problem(code="unknown_key", message="unknown key", mark=mark, hint="world_size"))
    error[unknown_key]: unknown key
      --> a.yaml:1:1
          world_sise: 2
          ^^^^^^^^^^
      = help: world_size
    """

    code: str
    message: str
    mark: Mark | None = None
    hint: str | None = None
    repair: Repair | None = None

    def __post_init__(self) -> None:
        """Keep of a stranger's words what may be shown."""
        force_setattr(self, "message", display.brief(self.message))
        if self.hint is not None:
            force_setattr(self, "hint", display.brief(self.hint))

    def excerpt(self, columns: int | None = None) -> tuple[str, str] | None:
        """Return the source line and a line of carets under the fault, or None without a place.

        Both take at most `columns`, where they are given.
        """
        if self.mark is None:
            return None
        line = self.mark.source.line(self.mark.line)
        start = self.mark.column - 1
        if self.mark.end_column is None:
            width = 1
        elif self.mark.end_line in {None, self.mark.line}:
            width = max(1, self.mark.end_column - self.mark.column)
        else:
            width = max(1, len(line) - start)
        return display.excerpt(line, start, min(width, max(1, len(line) - start)), columns)

    def lines(self, kind: str = "error", columns: int | None = None) -> list[str]:
        """Return the whole message as lines: what is wrong, the place, line and caret, the help.

        Its words take at most `columns`, or those of a page if left out.
        """
        page = PAGE if columns is None else min(PAGE, columns)
        parts = display.wrap(f"{kind}[{self.code}]: {self.message}", page, "", "  ")
        if self.mark is not None:
            parts.append(f"  --> {self.mark}")
        shown = self.excerpt(None if columns is None else columns - len("      "))
        if shown and shown[0].strip():
            parts += [f"      {shown[0]}", f"      {shown[1]}"]
        if self.hint:
            parts += display.wrap(f"= help: {self.hint}", page, "  ", "          ")
        return [display.clean(part) for part in parts]

    def line(self, kind: str = "error") -> str:
        """Return the message in one line, as a list of many has it: place, message, code."""
        return f"{kind}: {self.sentence}"

    @property
    def sentence(self) -> str:
        """The message as a reason that other words lead to: place, message, code."""
        place = f"{self.mark}: " if self.mark else ""
        return display.clean_line(f"{place}{self.message} [{self.code}]")

    def __str__(self) -> str:
        """Return the whole message as plain text."""
        return "\n".join(self.lines())


#: columns of a line of words, below the headline of a case that indents it by two
PAGE = 98


#: the stable codes of warnings; `scenario explain` has a page for each
WARNING_CODES = (
    "step_without_ranks",
    "group_before_creation",
    "file_passed_over",
    "outcome_open",
    "unknown_backend",
    "truncated",
    "gloo_differs",
    "outside_of_group",
    "steps_apart",
    "empty_slice",
    "need_refuted",
    "lacks_what_it_passes",
    "backend_lacks",
)


def make_warning(
    code: str, message: str, mark: Mark | None = None, hint: str | None = None
) -> Problem:
    """Return a warning: what passes and should be looked at.

    A warning has the shape of a problem and refuses nothing. To add one: put its code into
    :data:`WARNING_CODES`, explain it with an example (a page in
    runner/torch_scenarios/explain/pages/warning), and hand it over at the stage that notices it:

    - reading a file: `context.problems.warn(code, message, mark, hint)`, kept in
      :attr:`Scenario.warnings`;
    - a file of a folder that is passed over, so that there is no case: in
      :attr:`LoadedFiles.warnings`, kept in :attr:`Outcome.warnings`;
    - the analysis: in :attr:`Trace.warnings` of the predicted trace;
    - the verdict: `case.warn(code, message, mark, hint)`.

    All of a case end in :attr:`Verdict.warnings`; reports, counts and `--strict` follow from that.
    """
    assert code in WARNING_CODES
    return Problem(code=code, message=message, mark=mark, hint=hint)


class ScenarioError(Exception):
    """A scenario, or the command line, is invalid. Carries every problem that was found.

    >>> error = ScenarioError([Problem(code="bad_value", message="`tag` is negative")])
    >>> [problem.code for problem in error.problems], str(error)
    (['bad_value'], 'error[bad_value]: `tag` is negative')

    All of them, for an author who corrects a file wants to see at once what is wrong with it.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Keep the problems, in the order in which they were found."""
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        """Return every problem as plain text."""
        return "\n".join(str(problem) for problem in self.problems)


def cut_problems(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of a file, cut at the most that are reported, with one that says so."""
    last = problems[MOST_PROBLEMS - 1]
    message = f"more is wrong with this file: its first {MOST_PROBLEMS} problems are shown"
    return [
        *problems[:MOST_PROBLEMS],
        Problem(code="too_many_problems", message=message, mark=last.mark),
    ]


class DataError(ValueError):
    """Data that a model cannot be trained on: a class that it has no score for, rows that lack.

    It is reported at the step that hands the data over. Any other error of a strategy is a mistake
    of ours, and shown as one.
    """


class LaunchError(Exception):
    """The environment could not run a scenario: no worker, no device, no port.

    It says nothing about the scenario: the case is an ERROR, and neither PASSED nor FAILED.
    """


class StartError(LaunchError):
    """The machine cannot start a launch of `size` processes, and would not if it were asked again.

    Where `size` is 1 it can start none at all.

    >>> StartError("32 processes need 40 GiB", size=32).size
    32

    Cases of that size and above are then not tried one by one, each with its own wait.
    """

    def __init__(self, message: str, size: int = 1) -> None:
        """Keep the smallest size that is known not to start."""
        super().__init__(message)
        self.size = size


class UnsupportedError(Exception):
    """The backend at hand cannot run this scenario; the message says why. Never a pass.

    It is also no failure: a suite on a machine without GPUs is green, and counts what it left out.
    """


class WorkerError(Exception):
    """A worker could not do what the plan asks, for a reason outside the scenario.

    It is an error of ours or of the machine, and shown with its whole text.
    """


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word closest to `word`, or None when none is close.

    Capitals, dashes and underscores make no difference, nor does what a module's name puts before:
    `ReduceOp.SUM` is close to `sum`.

    >>> nearest("ReduceOp.SUM", ["sum", "max"]), nearest("allreduce", ["all_reduce", "reduce"])
    ('sum', 'all_reduce')
    """
    return next(iter(find_near(word, known, most=1)), None)


def find_near(word: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the known words close to `word`, the closest first; see :func:`nearest`."""
    import difflib

    names = sorted(known)
    if len(names) > _MOST_NAMES:
        alike = [name for name in names if abs(len(name) - len(word)) <= 1]
        names = [name for name in alike if name[:1] == word[:1]][:_MOST_NAMES]
    folded = {_fold(name): name for name in reversed(names)}
    for said in (word, word.rpartition(".")[2]):
        if _fold(said) in folded:
            return [folded[_fold(said)]]
    return difflib.get_close_matches(word, names, n=most, cutoff=0.6)


def is_slip(word: str, meant: str, known: Iterable[str]) -> bool:
    """Return whether a word can only be a slip of the pen for `meant`, of all `known` words.

    That is one letter too many, too few or wrong, or two in the wrong order; two such slips in a
    word of six letters and more. Another known word must be further away.

    >>> is_slip("irevc", "irecv", ["irecv", "isend"]), is_slip("iend", "isend", ["isend", "send"])
    (True, False)

    The second is as close to `send`, so that it is not corrected unasked.
    """
    if _fold(word.rpartition(".")[2]) == _fold(meant):
        return True
    far = slips(word, meant)
    most = 0 if len(word) < 3 else 1 if len(word) < 6 else 2
    others = (each for each in known if each != meant)
    return 0 < far <= most and all(slips(word, each) > far for each in others)


def slips(one: str, other: str) -> int:
    """Return how many letters differ, are left out, are added, or have changed places.

    This is the distance of optimal string alignment (Damerau 1964); beyond 3 it is 4.

    >>> slips("recv", "recv"), slips("rcev", "recv"), slips("reduce", "all_reduce")
    (0, 1, 4)
    """
    if abs(len(one) - len(other)) > 3:
        return 4
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        next_row = [at]
        for n, wanted in enumerate(other, 1):
            cost = min(row[n] + 1, next_row[n - 1] + 1, row[n - 1] + (letter != wanted))
            if at > 1 and n > 1 and letter == other[n - 2] and one[at - 2] == wanted:
                cost = min(cost, before[n - 2] + 1)
            next_row.append(cost)
        before, row = row, next_row
    return min(row[-1], 4)


def _fold(word: str) -> str:
    return word.casefold().replace("-", "").replace("_", "")


# What a code means, as `scenario explain` shows it.


class Explanation(Struct, frozen=True, kw_only=True):
    """What a code means. `example` and `fixed` are whole scenario files, or empty.

    `sort` is `problem` (the file is INVALID), `diagnosis` (the program is wrong), `finding` (a
    scenario is FAILED), `warning` (it passes and should be looked at), `kind of error` (what
    `raises:` states), `refusal to bless`, `verdict`, `outcome`, `word` (of a report) or `limits`.
    `table` has rows of a name and what it means.

    Each is a Markdown file below `explain/pages`, and `scenario explain CODE` shows it. The
    examples are run by the tests, so that an explanation cannot show a program that means something
    else.
    """

    code: str
    sort: str
    what: str
    why: str = ""
    fix: str = ""
    example: str = ""
    fixed: str = ""
    table: tuple[tuple[str, str], ...] = ()
