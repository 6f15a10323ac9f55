"""A record as reports draw a scenario: with the script's lines in place of the YAML, in real times.

The record carries the lines of the script that communicate; the script itself is never opened.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from torch_scenarios.errors import Mark, Source
from torch_scenarios.model.scenario import Scenario, Step
from torch_scenarios.model.trace import Event, Trace
from torch_scenarios.pipeline.results import Result
from torch_scenarios.record.analysis import judge_records, make_trace
from torch_scenarios.record.format import RankRecord
from torch_scenarios.record.program import RecordedProgram
from torch_scenarios.record.program.fold import Item
from torch_scenarios.timeline import STUCK

_PLACE = re.compile(r"^(?P<file>[^\s:]+):(?P<line>[0-9]{1,7})\b")


def picture(records: Mapping[int, RankRecord], path: Path, *, script: str, folder: str) -> Result:
    """Return the result on records, drawn in the script: its times are those of the run.

    Ranks that communicated nothing have no times: then the prediction is drawn alone.
    """
    found = judge_records(
        records, path, script=script, folder=folder, see=lambda each: place_in_script(each, records)
    )
    result, verdict = found.result, found.result.verdict
    real = all(each.about.get("mode") != "fake" for each in records.values())
    scenario = found.scenario
    assert scenario is not None
    if verdict.predicted is not None and real and len(records) == scenario.world_size:
        observed = add_times(verdict.predicted, found.program, records)
        verdict = replace(verdict, observed=observed)
    return replace(result, verdict=verdict, scenario=scenario, file=scenario.source.path)


def place_in_script(scenario: Scenario, records: Mapping[int, RankRecord]) -> Scenario:
    """Return a recorded scenario whose steps stand in the script, as far as the record has it."""
    lines: dict[str, dict[int, str]] = {}
    for record in records.values():
        for item in record.items:
            for frame, line, text in item.place.frames[:1]:
                lines.setdefault(Path(frame).name, {})[line] = text
    sources = {name: _source(name, known) for name, known in lines.items()}
    if not sources:
        return scenario
    main = Counter({name: len(known) for name, known in lines.items()}).most_common(1)[0][0]
    steps = tuple(_step(each, sources) for each in scenario.steps)
    return replace(scenario, source=sources[main], steps=steps)


def _source(name: str, known: Mapping[int, str]) -> Source:
    lines = [known.get(at, "") for at in range(1, max(known) + 1)]
    return Source(path=name, text="\n".join(lines) + "\n")


def _step(step: Step, sources: Mapping[str, Source]) -> Step:
    body = tuple(_step(each, sources) for each in step.body)
    place = _PLACE.match(step.at) if isinstance(step.at, str) else None
    if step.body:  # a loop stands where its first step does
        return replace(step, body=body, mark=body[0].mark)
    source = sources.get(Path(place["file"]).name) if place else None
    if place is None or source is None:
        return step
    return replace(step, at=None, mark=Mark(source=source, line=int(place["line"]), column=1))


def add_times(
    predicted: Trace, program: RecordedProgram, records: Mapping[int, RankRecord]
) -> Trace:
    """Return what was observed: the predicted steps of each rank, at the times of its record."""
    ends = make_trace(records, {}, backend="recorded", stuck=True, duration_s=0.0)
    endings = {each.rank: each for each in ends.ranks}
    first = min(map(_read_start_s, records.values()), default=0.0)
    last = max((each.last_us for each in records.values()), default=0) / 1e6
    ranks = []
    for rank in predicted.ranks:
        record = records[rank.rank]
        late = _read_start_s(record) - first
        events = tuple(_add_times(tuple(rank.events), program.programs[rank.rank], record, late))
        ranks.append(replace(endings[rank.rank], events=events))
    stands = any(each.ending != "finished" for each in ranks)
    return Trace(
        backend="recorded",
        outcome="deadlock" if stands else "completes",
        ranks=tuple(ranks),
        duration_s=last,
    )


def _read_start_s(record: RankRecord) -> float:
    """Return when a record was begun, in seconds of its host's clock; 0 where it does not say."""
    time = record.about.get("time")
    return float(time) if isinstance(time, int | float) else 0.0


def _add_times(
    events: Sequence[Event], items: Sequence[Item], record: RankRecord, late: float
) -> Sequence[Event]:
    """Return events with the times of the calls that they are; others take no time.

    `late` are the seconds by which the record was begun later than the first one.
    """
    calls = iter(record.calls)
    now, found = late, []
    for event, (step, _) in zip(events, items, strict=False):
        start, end = now, None if event.state in STUCK else now
        is_call = getattr(step, "kind", "") == "call" and not getattr(step, "words", "")
        call = next(calls, None) if is_call else None
        if call is not None:
            start = late + call.began_us / 1e6
            over = call.ended_us if call.completes else call.returned_us
            if end is not None:
                end = start if over is None else max(start, late + over / 1e6)
        now = start if end is None else end
        found.append(replace(event, start_s=start, end_s=end))
    return found
