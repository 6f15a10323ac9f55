"""The stage `Verdict`: what came of a scenario, and every finding that led to it.

Three witnesses speak about every fact of a scenario: the author, the reference and the run. A
finding says which of them stands alone, where in the file, on which ranks, and by how much.
Nothing here judges; nothing here prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.errors import Clause, Compared, Mark, Problem, Repair, sentence_of
from torch_scenarios.model.trace import Trace, Value

# How findings name ranks and values.

#: differences that are reported: with many ranks each may have another one
MOST = 3


def prose_of(name: str, found: list[Difference]) -> str:
    """Say on which ranks which difference shows: equal messages once, ranks in order."""
    by_message: dict[str, list[int]] = {}
    for difference in found:
        item = "".join(f"[{position}]" for position in difference.item)
        by_message.setdefault(f"{name}{item} {difference.message}", []).append(difference.rank)
    lines = [f"{text} on {ranks_text(ranks)}" for text, ranks in by_message.items()]
    if len(lines) > MOST:
        left = {rank for ranks in list(by_message.values())[MOST:] for rank in ranks}
        lines = [*lines[:MOST], f"and otherwise on {ranks_text(sorted(left))}"]
    return "; ".join(lines)


#: verbs of one rank -> of several
_OF_SEVERAL = {"hangs": "hang", "waits": "wait", "is": "are", "was": "were", "has": "have"}


def ranks_do(ranks: list[int] | tuple[int, ...], words: str) -> str:
    """Return what ranks do, `words` of one: `rank 3 hangs`, `ranks 0 and 1 hang`.

    >>> ranks_do([3], "hangs"), ranks_do([0, 1], "hangs")
    ('rank 3 hangs', 'ranks 0 and 1 hang')
    """
    verb, space, rest = words.partition(" ")
    if len(set(ranks)) > 1:
        bare = verb.rstrip(",")
        verb = _OF_SEVERAL.get(bare, bare) + verb[len(bare) :]
    return f"{ranks_text(ranks)} {verb}{space}{rest}"


def ranks_text(ranks: list[int] | tuple[int, ...]) -> str:
    """Return `rank 3`, or `ranks 0, 1 and 4`; many are cut.

    >>> ranks_text([3]), ranks_text([4, 0, 1])
    ('rank 3', 'ranks 0, 1 and 4')
    """
    shown = sorted(set(ranks))
    if len(shown) == 1:
        return f"rank {shown[0]}"
    if len(shown) > 8:
        return f"{len(shown)} ranks ({shown[0]}, {shown[1]}, {shown[2]}, ...)"
    return f"ranks {', '.join(map(str, shown[:-1]))} and {shown[-1]}"


def values_text(values: Mapping[int, str], most: int | None = None) -> str:
    """Return what ranks have, each value with those that have it; of many the first `most`.

    >>> values_text({0: "8", 1: "9", 2: "9"}), values_text({0: "8", 1: "9"}, most=1)
    ('8 on rank 0, 9 on ranks 1 and 2', '8 on rank 0, ...')
    """
    alike: dict[str, list[int]] = {}
    for rank, value in values.items():
        alike.setdefault(value, []).append(rank)
    shown = [f"{value} on {ranks_text(ranks)}" for value, ranks in alike.items()]
    return ", ".join(shown[:most]) + ", ..." * (len(shown) > len(shown[:most]))


def among_text(ranks: Sequence[int], world_size: int) -> str:
    """Return `all 4 ranks` where they are the whole world of several; else as `ranks_text`.

    >>> among_text([0, 1], world_size=2), among_text([0, 1], world_size=4)
    ('all 2 ranks', 'ranks 0 and 1')
    """
    if len(ranks) == world_size > 1:
        return f"all {world_size} ranks"
    return ranks_text(tuple(ranks))


Status: TypeAlias = Literal["PASSED", "FAILED", "FLAKY", "INCONCLUSIVE", "UNSUPPORTED", "INVALID"]
Witness: TypeAlias = Literal["expectation", "backend", "reference", "program"]
ComparedRun: TypeAlias = Literal["reference", "run"]

#: FLAKY is a case that was run several times and did not always come to the same
STATUSES: tuple[Status, ...] = (
    "PASSED",
    "FAILED",
    "FLAKY",
    "INCONCLUSIVE",
    "UNSUPPORTED",
    "INVALID",
)

#: the witness that stands alone -> how a report says so
ALONE: dict[Witness, str] = {
    "expectation": "your expectation is wrong",
    "backend": "the backend deviates",
    "reference": "the reference deviates",
    # of a recorded program, whose file states nothing
    "program": "the program is wrong",
}


def blame(*, predicted: bool, observed: bool | None) -> Witness | None:
    """Return which of author, reference and run contradicts the two others; None where all agree.

    `predicted`: the reference contradicts the author. `observed`: the run does; None where no run
    came to this point, and the reference decides alone.

    >>> blame(predicted=True, observed=True), blame(predicted=False, observed=True)
    ('expectation', 'backend')

    The author's statement is alone where both others contradict it; then it is what has to change.

    >>> blame(predicted=True, observed=False), blame(predicted=False, observed=False) is None
    ('reference', True)
    """
    if predicted:
        return "reference" if observed is False else "expectation"
    return "backend" if observed else None


#: why a case is FAILED that has a warning and no finding
STRICT = "with --strict a warning is a failure"

#: the stable codes of findings; `scenario explain` knows each
FINDING_CODES = (
    "value_differs",
    "shape_differs",
    "placements_differ",
    "dtype_differs",
    "value_missing",
    "holds_in_some_orders",
    "no_such_order",
    "undefined_read",
    "raises_differs",
    "elapsed_differs",
    "within_exceeded",
    "outcome_differs",
    "blocked_differs",
    "dies_differs",
    "diagnosis_undeclared",
    "diagnosis_absent",
    "expectation_unreached",
    "conduct_differs",
    "calls_differ",
    "cost_differs",
)


class Difference(Compared, frozen=True, kw_only=True):
    """How one value on one rank differs from what it should be.

    `expected` and `got` have the same shape where `code` is `value_differs`; `wrong` then marks the
    elements beyond tolerance. `item` is the position inside a list of tensors. `max_abs` and
    `max_rel` are the largest errors over all elements, None where there is no number.

        x   expected [3.0, 3.0]   got [3.0, 1.0]   wrong [False, True]   max_abs 2.0   max_rel 0.67
    """

    apart = ("expected", "got", "wrong")

    rank: int
    code: str
    message: str
    expected: Value
    got: Value
    wrong: NDArray[Any] | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    item: tuple[int, ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """One disagreement: who stands alone, where, on which ranks, and how.

    `notes` explain the prose, one line each: which rank waits for which, and where. `label` names
    the step, `index` and `iteration` its instance (index -1: the scenario as a whole); `name` is
    the key of the expectation. `guess` says which mistake the numbers show. `more` counts further
    iterations of the same step with the same finding. `diagnosis` is that of a program whose file
    does not state it; `help` says what mends the file, with lines to paste, and `fix` what to
    change in the program where that is more than the page on its kind says; `repair` is an edit of
    the file. Where an expectation is alone, `against` says what it was compared with: the
    reference, or (where the reference has no opinion) the run.
    """

    witness: Witness
    code: str
    prose: str
    notes: tuple[Clause, ...] = ()
    mark: Mark | None = None
    ranks: tuple[int, ...] = ()
    label: str | None = None
    index: int = -1
    iteration: tuple[int, ...] = ()
    name: str | None = None
    differences: tuple[Difference, ...] = ()
    guess: str | None = None
    more: int = 0
    against: ComparedRun = "reference"
    diagnosis: str | None = None
    help: tuple[str, ...] = ()
    fix: str | None = None
    repair: Repair | None = None

    @property
    def because(self) -> tuple[str, ...]:
        """The notes as prose, with their places inside."""
        return tuple(map(str, self.notes))

    @property
    def explanation(self) -> str:
        """The notes in one sentence."""
        return sentence_of(self.notes)

    @property
    def kind(self) -> str:
        """The word that names the mistake; `scenario explain` has a page on each."""
        return self.diagnosis or self.code

    @property
    def title(self) -> str:
        """What is wrong, in a line; who stands alone, where the author stated something."""
        if self.diagnosis is not None:
            return self.prose
        return f"{ALONE[self.witness]}: {self.prose}"

    @property
    def summary(self) -> str:
        """The line that stands for the whole finding where there is room for no other."""
        return f"error[{self.kind}]: {self.title}"


class StatedCost(Struct, frozen=True, kw_only=True):
    """A cost that the author states, within bounds (None: without one), and what was computed.

    `name` is rounds, messages, sent (bytes) or time_us; `ranks` are those that it is stated for.

    >>> StatedCost(name="rounds", low=3.0, high=3.0, computed=6.0, holds=False).ranks
    ()
    """

    name: str
    low: float | None
    high: float | None
    computed: float
    holds: bool
    ranks: tuple[int, ...] = ()


class Verdict(Struct, frozen=True, kw_only=True):
    """What came of one case.

    `predicted` is None only where the file is INVALID, `observed` where nothing ran. `reason` says
    why it is UNSUPPORTED or INCONCLUSIVE, or that a warning made it FAILED. `notes` are facts that
    change no verdict and need no care; `warnings` pass and should be looked at (a step that no rank
    takes), and fail with `--strict`. `compared` counts values and statements. `costs` are those
    that the author states, beside what they are. `silently_wrong`: the program has a diagnosis, and
    the backend let it finish as if nothing were the matter.

        author        reference     run            verdict
        completes     completes     completes      PASSED
        completes     deadlock      deadlock       FAILED: the expectation is alone
        deadlock      deadlock      completes      FAILED: the run is alone
        completes     completes     not possible   UNSUPPORTED

    Three witnesses, and who stands alone is named: two that agree are not proof, and a message says
    no more than that.
    """

    status: Status
    findings: tuple[Finding, ...] = ()
    predicted: Trace | None = None
    observed: Trace | None = None
    problems: tuple[Problem, ...] = ()
    reason: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    compared: int = 0
    silently_wrong: bool = False
    costs: tuple[StatedCost, ...] = ()

    def strict(self) -> Verdict:
        """Return what it is under `--strict`: FAILED where it has a warning and no worse fault."""
        if not self.warnings or self.status not in {"PASSED", "UNSUPPORTED"}:
            return self
        return replace(self, status="FAILED", reason=STRICT)
