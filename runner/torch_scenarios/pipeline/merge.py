"""The results of several runs as one: of the shards of a run, or of runs of different files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest

from msgspec.structs import replace

from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.pipeline.results import Outcome, Result, environment


def merge_outcomes(outcomes: Mapping[str, Outcome]) -> Outcome:
    """Return one outcome of those that files hold; the exit code is that of the whole.

    Shards come back in the order that the whole run would have had. Raises ScenarioError where they
    cannot belong together: a case twice, other versions or backends, a shard that is missing.
    """
    problems = [*_versions(outcomes), *_shards(outcomes), *_find_repeated(outcomes)]
    if problems:
        raise ScenarioError(problems)
    every = list(outcomes.values())
    sharded = every[0].shard is not None
    seeds = {outcome.seed for outcome in every}
    return Outcome(
        results=tuple(_unite_invalid(every)),
        interrupted=any(outcome.interrupted for outcome in every),
        duration_s=sum(outcome.duration_s for outcome in every),
        cases=sum(outcome.cases for outcome in every),
        selected=every[0].selected if sharded else sum(outcome.selected for outcome in every),
        seed=seeds.pop() if len(seeds) == 1 else None,
        repeat=max(outcome.repeat for outcome in every),
        notes=tuple(dict.fromkeys(note for outcome in every for note in outcome.notes)),
        warnings=tuple(dict.fromkeys(each for outcome in every for each in outcome.warnings)),
        strict=any(outcome.strict for outcome in every),
        release=every[0].release,
    )


def _unite_invalid(outcomes: list[Outcome]) -> Iterable[Result]:
    """Return each result once: every shard reports a file that is invalid.

    Shards deal cases out like cards: case 0 is in shard 1, case 1 in shard 2. So the order of the
    whole run is the first of each, then the second of each:

        1/2   a c e        a b c d e
        2/2   b d
    """
    if outcomes[0].shard is not None:
        outcomes = sorted(outcomes, key=lambda each: each.shard.number if each.shard else 0)
    rows = zip_longest(*(outcome.results for outcome in outcomes))
    results = chain.from_iterable(rows) if outcomes[0].shard is not None else _interleave(outcomes)
    found: dict[tuple[str, str], Result] = {}
    for result in results:
        if result is not None:
            found.setdefault((result.file, result.case), result)
    return found.values()


def _interleave(outcomes: list[Outcome]) -> Iterable[Result]:
    return (result for outcome in outcomes for result in outcome.results)


def _versions(outcomes: Mapping[str, Outcome]) -> list[Problem]:
    """Return where two files tell of different versions; one in which nothing ran tells of none.

    Backends may differ: a scenario may ask for its own.
    """
    known = {
        path: {"torch": found["torch"]}
        for path, outcome in outcomes.items()
        if "torch" in (found := environment(outcome))
    }
    releases = {path: {"torch-scenarios": each.release} for path, each in outcomes.items()}
    return [*_find_differing(known), *_find_differing(releases)]


def _find_differing(known: Mapping[str, Mapping[str, str]]) -> list[Problem]:
    if not known:
        return []
    first, facts = next(iter(known.items()))
    return [
        _refuse_other_run(f"{first} is of {_tell_facts(facts)}, {path} of {_tell_facts(found)}")
        for path, found in known.items()
        if found != facts
    ]


def _tell_facts(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value or 'unknown'}" for name, value in sorted(facts.items()))


def _shards(outcomes: Mapping[str, Outcome]) -> list[Problem]:
    """Return what keeps shards from being one run.

    A whole run among them, other runs, one missing.
    """
    shards = {path: each.shard for path, each in outcomes.items() if each.shard is not None}
    if not shards:
        return []
    whole = [path for path in outcomes if path not in shards]
    if whole:
        return [_refuse_other_run(f"{whole[0]} is of a whole run, {next(iter(shards))} of a shard")]
    parts = {shard.of for shard in shards.values()}
    counts = {outcome.selected for outcome in outcomes.values()}
    if len(parts) > 1 or len(counts) > 1:
        words = ", ".join(
            f"{path} is {shard} of {outcomes[path].selected} cases"
            for path, shard in shards.items()
        )
        return [_refuse_other_run(f"these are shards of different runs: {words}")]
    numbers = [shard.number for shard in shards.values()]
    of = parts.pop()
    missing = [f"{number}/{of}" for number in range(1, of + 1) if number not in numbers]
    if missing:
        return [_refuse_other_run(f"the results of shard {', '.join(missing)} are missing")]
    return []


def _find_repeated(outcomes: Mapping[str, Outcome]) -> list[Problem]:
    """Return the cases that two files have, at most five by name."""
    problems: list[Problem] = []
    seen: dict[tuple[str, str], tuple[str, Result]] = {}
    for path, outcome in outcomes.items():
        for result in outcome.results:
            first, other = seen.setdefault((result.file, result.case), (path, result))
            if first != path and not _is_same_problem(result, other):
                problems.append(_refuse_other_run(f"{result.name} is in {first} and in {path}"))
    most = 5
    if len(problems) > most:
        more = _refuse_other_run(f"and so are {len(problems) - most} more")
        problems = [*problems[:most], more]
    return problems


def _is_same_problem(result: Result, other: Result) -> bool:
    """Return whether two results are the same fault of one file, found twice."""
    if result.verdict.status != "INVALID":
        return False
    return replace(result, duration_s=0.0) == replace(other, duration_s=0.0)


def _refuse_other_run(message: str) -> Problem:
    return Problem(code="not_mergeable", message=message)
