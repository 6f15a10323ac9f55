"""What bless restores is worth what was there: on the corpus, the same mutations are caught.

Of every corpus file the values that it expects are taken away, and blessed again. Then the file
must catch what it caught before: a run in which one rank holds something else after one step (the
prediction stands in for the run, and the reference's own opinion is switched off, so that the
expectations alone can notice), and a wrong number in an expectation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from judging import at_step
from msgspec.structs import replace
from sampling import sampled, strides

from torch_scenarios.bless import NotBlessedError, confirm, propose
from torch_scenarios.bless.draft import places
from torch_scenarios.errors import Edit
from torch_scenarios.language.document import load_content
from torch_scenarios.model.groups import plan
from torch_scenarios.operations.placement import is_layout
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.reference import simulate
from torch_scenarios.source.edit import Span, spans, splice
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch_scenarios.execution import Launcher
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.model.trace import Event, Trace

CORPUS = Path(__file__).parents[1] / "scenarios"
FILES = sorted(path.relative_to(CORPUS) for path in CORPUS.rglob("*.yaml"))
#: runs that went wrong in one value, for each file
CORRUPTED = 6
WRONG_NUMBERS = 150
RUN = 8
#: folders of what every backend can do, whatever else the machine does
CALM = frozenset({"collectives", "compute", "groups", "objects", "p2p", "rooted"})

#: of so many files one may serve cases whose values differ: that takes an expression, an author
FEW = 20

#: of so many files one is blessed in the ordinary run, where a test needs many
FEWER = 5


def stripped(text: str) -> str:
    """Take away every value that the file expects, of which only the name remains."""
    edits = []
    for place in places(spans(text)):
        for key, value in place.values_of():
            start = text.index(":", key.end) + 1
            assert place.expect is not None
            room = " " if place.expect.flow else ""
            edits.append(Edit(start=start, end=max(start, value.end), text=room))
    return splice(text, edits)


def names(text: str) -> list[list[str]]:
    return [[key.text for key, _ in place.values_of()] for place in places(spans(text))]


STRIPPED = {
    path: text
    for path in FILES
    if (text := stripped(whole := (CORPUS / path).read_text(encoding="utf-8"))) != whole
}


@cache
def blessed(path: Path) -> str | None:
    """Return what comes of a stripped file; None where its values take an expression.

    Cases of one text hold other values, or a tensor is too large to be written out.
    """
    try:
        proposal = propose(CORPUS / path, STRIPPED[path].encode())
    except NotBlessedError as error:
        several = len(cases(path, (CORPUS / path).read_text(encoding="utf-8"))) > 1
        codes = [refusal.code for refusal in error.refusals]
        if (several and codes == ["cases_differ"]) or codes == ["value_too_large"]:
            return None
        raise
    assert proposal is not None
    return proposal.after


@cache
def restored(stride: int = 1) -> list[Path]:
    """Return the files that can be blessed again, of one in so many."""
    return [path for path in list(STRIPPED)[::stride] if blessed(path) is not None]


def cases(path: Path, text: str) -> tuple[Scenario, ...]:
    return load_content(CORPUS / path, text.encode())


def test_the_corpus_expects_much() -> None:
    assert len(STRIPPED) > 200


#: what models and placements hold is compared with their references, stated or not: few files
#: state it, and bless would write out every parameter of every case
UNSTATED = frozenset({"strategies"})


@pytest.mark.parametrize(
    "path", sampled([each for each in FILES if each.parts[0] not in UNSTATED], 16), ids=str
)
def test_a_right_file_is_left_as_it_is(path: Path) -> None:
    content = (CORPUS / path).read_bytes()
    proposal = propose(CORPUS / path, content)
    assert proposal is None or proposal.after.encode() == content


@pytest.mark.nightly
def test_few_files_take_an_expression() -> None:
    # an algorithm is stated for every number of ranks: by expressions alone
    refused = {path for path in STRIPPED if path.parts[0] != "algorithms"} - set(restored())
    assert Path("collectives/all_reduce_any_world.yaml") in refused
    assert len(refused) < len(STRIPPED) / FEW


@pytest.mark.parametrize("path", sampled(list(STRIPPED), 16), ids=str)
def test_blessing_restores_every_expectation_and_nothing_else(path: Path) -> None:
    after = blessed(path)
    if after is None:
        return
    assert names(after) == names((CORPUS / path).read_text(encoding="utf-8"))
    assert stripped(after) == STRIPPED[path]
    again = propose(CORPUS / path, after.encode())
    assert again is not None
    assert not again.changes


# ---------------------------------------------------------------------------- a run goes wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One value that one rank holds after one step."""

    rank: int
    event: Event
    name: str

    def corrupt(self, run: Trace) -> Trace:
        """Return the run with another value there, further off than an order of addition allows."""
        value = other(self.event.writes[self.name], self.event.slack.get(self.name))
        return at_step(self.event.index, self.rank, lambda event: self._changed(event, value))(run)

    def _changed(self, event: Event, value: Any) -> Event:
        if event.iteration != self.event.iteration or self.name not in event.writes:
            return event
        return replace(event, writes={**event.writes, self.name: value})


def other(value: Any, slack: Any) -> Any:
    if isinstance(value, list):
        bounds = slack if isinstance(slack, list) else [None] * len(value)
        return [other(item, bound) for item, bound in zip(value, bounds, strict=True)]
    array = np.asarray(value)
    if array.dtype == bool:
        return ~array
    with np.errstate(over="ignore"):  # an infinity in place of the largest numbers is another value
        changed = (array + array.dtype.type(1)) * array.dtype.type(2)
    return changed if slack is None else changed + (8 * np.asarray(slack)).astype(array.dtype)


def is_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(is_numbers(item) for item in value)
    return isinstance(value, np.ndarray) and value.size > 0


def spots(predicted: Trace) -> Iterator[Spot]:
    for rank in predicted.ranks:
        for event in rank.events:
            for name, value in event.writes.items():
                if is_numbers(value) and not is_layout(name):
                    yield Spot(rank=rank.rank, event=event, name=name)


def catches(scenario: Scenario, run: Trace) -> bool:
    """Whether the author's expectations alone notice something."""
    predicted = simulate(plan(scenario))
    return judge(plan(scenario), predicted, run, "stand_in", reference=False).status == "FAILED"


@pytest.mark.parametrize("path", sampled(list(STRIPPED), 24), ids=str)
def test_blessed_expectations_catch_the_same_runs(path: Path) -> None:
    after = blessed(path)
    if after is None:
        return
    chance = random.Random(str(path))  # noqa: S311 -- a sample, no secret
    written = cases(path, (CORPUS / path).read_text(encoding="utf-8"))
    for mine, theirs in zip(written, cases(path, after), strict=True):
        predicted = simulate(plan(mine))
        run = replace(predicted, backend="stand_in", diagnoses=(), waits=(), open=())
        if catches(mine, run):
            continue  # a backend deviates from it, which the prediction does not
        assert not catches(theirs, run)
        found = list(spots(predicted))
        for spot in chance.sample(found, min(CORRUPTED, len(found))):
            corrupted = spot.corrupt(run)
            if catches(mine, corrupted):
                assert catches(theirs, corrupted), f"{spot.name} on rank {spot.rank}"


def test_the_expectations_of_the_corpus_catch_much() -> None:
    caught = tried = 0
    for path in restored(FEWER):
        (scenario, *_) = cases(path, blessed(path) or "")
        predicted = simulate(plan(scenario))
        run = replace(predicted, backend="stand_in", diagnoses=(), waits=(), open=())
        for spot in list(spots(predicted))[:3]:
            tried += 1
            caught += catches(scenario, spot.corrupt(run))
    assert caught > tried / 2 > 20


# ---------------------------------------------------------------------------- a number is wrong


def numbers(span: Span) -> Iterator[Span]:
    if span.kind == "scalar" and span.plain and span.text.lstrip("-").isdigit():
        yield span
    for child in span.children():
        yield from numbers(child)


def stated_numbers(path: Path) -> list[tuple[Path, Span, str]]:
    text = blessed(path) or ""
    return [
        (path, number, key.text)
        for place in places(spans(text))
        for key, value in place.values_of()
        for number in numbers(value)
    ]


def wrong(number: str) -> str:
    """Return another number, which no dtype rounds to the same; 0 and 1 change places."""
    value = int(number)
    return str(1 - value) if value in {0, 1} else str(3 * value + 1)


@pytest.mark.parametrize("stride", strides(FEWER))
def test_a_wrong_number_in_a_blessed_file_is_caught(stride: int) -> None:
    everything = [found for path in restored(stride) for found in stated_numbers(path)]
    wanted = WRONG_NUMBERS // stride
    assert len(everything) > 5 * wanted
    chance = random.Random(4)  # noqa: S311 -- a sample, no secret
    for path, number, name in chance.sample(everything, wanted):
        edit = Edit(start=number.start, end=number.end, text=wrong(number.text))
        text = splice(blessed(path) or "", [edit])
        statuses = {analyse(scenario).verdict.status for scenario in cases(path, text)}
        assert "FAILED" in statuses, f"{path}:{number.line} {name}"


# ---------------------------------------------------------------------------- real processes


@pytest.mark.torch
def test_gloo_confirms_what_is_blessed(launcher: Launcher) -> None:
    chance = random.Random(6)  # noqa: S311 -- a sample, no secret
    gloo = [path for path in restored(FEWER) if path.parts[0] in CALM]
    for path in chance.sample(gloo, RUN):
        proposal = propose(CORPUS / path, STRIPPED[path].encode())
        assert proposal is not None
        confirm(proposal, launcher)
