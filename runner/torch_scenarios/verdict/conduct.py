"""What each rank raised, which ranks are blocked, and how the scenario ended.

Each statement of the author is held against the prediction (`mine`: how the reference contradicts
it) and against the run (`seen`), and :func:`torch_scenarios.verdict.finding.blame` says who is
alone. Where the semantics leave something open the reference has no opinion: only the run can then
contradict the author.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from torch_scenarios.cost.structure import UNKNOWN
from torch_scenarios.errors import Clause, Mark, Problem, ScenarioError, make_warning
from torch_scenarios.expressions.evaluator import CANNOT_COMPUTE
from torch_scenarios.expressions.values import Constant, PerRank
from torch_scenarios.model.scenario import (
    Bounds,
    CostExpectation,
    ElapsedBounds,
    Expectation,
    FinalExpectation,
    RaiseSpec,
    Scenario,
    Step,
    steps_of,
)
from torch_scenarios.model.trace import Diagnosis, Event, RankTrace, Trace
from torch_scenarios.model.traffic import Structure
from torch_scenarios.model.versions import find_torch_version, is_version, release_of
from torch_scenarios.operations.base import GroupCreation
from torch_scenarios.verdict.finding import (
    Finding,
    StatedCost,
    Witness,
    blame,
    ranks_do,
    ranks_text,
)
from torch_scenarios.verdict.repairs import repair_of
from torch_scenarios.verdict.witnesses import (
    Case,
    Memories,
    Side,
    StepInstance,
    version_meant,
    view_at_end,
    view_of,
)
from torch_scenarios.vocabulary import DIAGNOSES, OUTCOMES

# -------------------------------------------------------------------------------------------------
# What a backend is known to make of a program, in words.

#: facts of a backend that one note names
TOLD = 3

ENDS = {
    "completes": "complete",
    "deadlock": "end in a deadlock",
    "error": "end in an error",
    "crash": "end in a crash",
}


def note_of(case: Case) -> str | None:
    """Return what a report says of a forecast that is not what is predicted anyway, or None.

    A backend's forecast is what the analysis makes of the program with facts about that backend, by
    its version (:mod:`torch_scenarios.model.traits`). The report names up to three of them.
    """
    forecast, general = case.prediction, case.general
    if forecast is general:
        return None
    because = "; ".join(forecast.because[:TOLD])
    because = f", because {because}" if because else ""
    where = f"on {forecast.backend}"
    run = case.run
    if run is None or run.outcome == general.outcome != forecast.outcome:
        was = "it is" if run is None else "it was"
        return f"{where} {was} predicted to {_ends(forecast, general)}{because}"
    came = "as predicted" if run.outcome == forecast.outcome else "not as predicted"
    came = "as it may" if run.outcome in {*forecast.open} - {*general.open} else came
    return f"{where}, {came}: {run.outcome}{because}"


def warnings_of_gloo(
    scenario: Scenario, predicted: Trace, torch: str | None = None
) -> tuple[Problem, ...]:
    """Return a warning where Gloo is known to bring to another end what is meant for every backend.

    Gloo comes with torch and runs everywhere; what another backend makes of a program is said where
    it is asked for. To be asked where no backend is named. `torch` is a version of torch.
    """
    meant = not scenario.backends or "gloo" in scenario.backends
    if not meant or "gloo" in scenario.expect.backends:
        return ()
    averages = tuple(_integer_averages(scenario, predicted))
    forecast = predicted.on("gloo", torch or version_meant(scenario))
    if forecast is predicted:
        return averages
    because = f", because {forecast.because[0]}" if forecast.because else ""
    fix = "state what Gloo does under `gloo:` in `expect`"
    if any(isinstance(each.operation, GroupCreation) for each in steps_of(scenario.steps)):
        fix += (
            ", or let all members of such a group be in equally many groups, made by equally many "
            "calls, when they create it"
        )
    return (
        *averages,
        make_warning(
            "gloo_differs",
            f"on gloo it is predicted to {_ends(forecast, predicted)}{because}",
            scenario.expect.place_of("outcome") or scenario.mark,
            fix,
        ),
    )


def _integer_averages(scenario: Scenario, predicted: Trace) -> Iterator[Problem]:
    """Yield a warning for each step that averages integers, which NCCL does and Gloo does not.

    On Gloo torch computes a float in the end, which it cannot store in such a tensor: it raises.
    The dtype is that of what a rank has written in the prediction, since an expression may decide
    it.
    """
    averages = {step.index: step for step in steps_of(scenario.steps) if _takes_average(step)}
    dtypes: dict[int, str] = {}
    for rank in predicted.ranks if averages else ():
        for event in rank.events:
            if event.index not in averages or event.state != "done":
                continue
            for value in event.writes.values():
                dtype = getattr(value, "dtype", None)
                if getattr(dtype, "kind", "") in {"i", "u"}:
                    dtypes.setdefault(event.index, str(dtype))
    for index, step in averages.items():
        if index in dtypes:
            yield make_warning(
                "gloo_differs",
                f"gloo refuses `op: avg` of {dtypes[index]}, which nccl computes",
                step.mark,
                "write `backends: [nccl]`, or sum and divide with `compute`",
            )


def _takes_average(step: Step) -> bool:
    """Whether a step reduces by `avg`, torch's ReduceOp.AVG, on every rank alike."""
    op = step.arguments.get("op")
    return isinstance(op, Constant) and op.value == "avg"


def _ends(forecast: Trace, general: Trace) -> str:
    """Say how a forecast ends, and whether that is how the program ends everywhere."""
    end = ENDS[forecast.outcome]
    if forecast.outcome != general.outcome:
        return end
    more = sorted({*forecast.open} - {*general.open})
    return f"{end}, or in {' or '.join(more)}" if more else f"{end} in another way"


def find_explaining(case: Case) -> tuple[str, ...]:
    """Return the facts of a backend that explain an outcome that the semantics do not have.

    They become notes of the finding, so that "the backend deviates" says how that is known. There
    are none where the forecast of that backend does not have the outcome either.
    """
    forecast, general = case.prediction, case.general
    outcome = case.run.outcome if case.run is not None else forecast.outcome
    explains = {forecast.outcome, *({*forecast.open} - {*general.open})}
    return forecast.because if forecast is not general and outcome in explains else ()


# -------------------------------------------------------------------------------------------------
# What each rank raised beside a step, and when: the author's `raises` and `elapsed`.

#: seconds by which a timer of the operating system, or of a backend, may be early
TIMER_ERROR_S = 0.005
#: seconds that only floating point adds to the reference's clock
CLOCK_ERROR_S = 1e-6

#: what a rank gets whose partner never comes: its own timeout, or the closing of one who gave up
GAVE_UP = frozenset({"timeout", "peer_lost", "aborted"})


def judge_conduct(case: Case) -> list[Finding]:
    """Return the findings on everything that steps are expected to raise, and when they end.

    Ranks that differ alike are one finding: `ranks 0 and 2 raised timeout, expected nothing`.
    """
    found: dict[tuple[object, ...], list[tuple[int, Finding]]] = {}
    for instance in case.instances(_states_conduct):
        expect = instance.step.expect
        assert expect is not None
        for finding in (*_raises(case, instance, expect), *_judge_elapsed(case, instance, expect)):
            key = (finding.index, finding.iteration, finding.code, finding.witness, finding.prose)
            found.setdefault(key, []).append((instance.rank, finding))
    findings = [_unite(entries) for entries in found.values()]
    return findings + _judge_end(case)


def _states_conduct(expect: Expectation) -> bool:
    """Return whether something is stated beside values: what a step raises, or when it ends."""
    return expect.raises is not None or expect.elapsed is not None


def _unite(entries: list[tuple[int, Finding]]) -> Finding:
    """Return one finding for ranks that differ alike, its verb for several.

    raised timeout, expected nothing, by 0 and 2   ranks 0 and 2 raised timeout, expected nothing
    """
    ranks = tuple(sorted(rank for rank, _ in entries))
    first = entries[0][1]
    return Finding(
        witness=first.witness,
        code=first.code,
        prose=ranks_do(ranks, first.prose),
        mark=first.mark,
        ranks=ranks,
        label=first.label,
        index=first.index,
        iteration=first.iteration,
        name=first.name,
    )


# ---------------------------------------------------------------------------- raises


def _raises(case: Case, instance: StepInstance, expect: Expectation) -> list[Finding]:
    """Return the finding on what one rank raised at one instance of a step; empty if all agree."""
    side = instance.predicted or instance.observed
    if expect.raises is None or side is None:
        return []
    spec = _choose(side, expect.raises)
    if not isinstance(spec, RaiseSpec):
        return []
    mine = None
    if case.reference and instance.predicted is not None:
        mine = _contradict_prediction(instance.predicted.event, spec, case)
    seen = _contradict_run(instance.observed.event, spec) if instance.observed else None
    return _contrast(case, instance, (mine, seen), "raises", spec.mark or expect.mark)


def _choose(side: Side, stated: PerRank[RaiseSpec] | RaiseSpec) -> RaiseSpec | None:
    """Return what is stated for a rank; None where a mapping by rank says nothing of it."""
    if isinstance(stated, PerRank):
        chosen = view_of(side).process().choose(stated)
        return chosen if isinstance(chosen, RaiseSpec) else None
    return stated


# What the reference can say about a call that raises, and what it cannot.
#
# Whether a call is refused, the semantics say, and of which kind: there the author may be wrong.
# What a rank gets whose peer is gone, they do not: a timeout, a lost peer, an abort, or nothing. So
# a rank that is predicted to be blocked agrees with each of `GAVE_UP`, and where outcomes are open
# the reference has no opinion, and leaves the statement to the run.
def _contradict_prediction(event: Event, spec: RaiseSpec, case: Case) -> str | None:
    """Return how the reference contradicts the author; None where it may be as stated.

    predicted             stated                  contradiction
    raises shape_mismatch timeout                 "would raise shape_mismatch, expected timeout"
    blocked               timeout, peer_lost      none: who is blocked gives up in the end
    done                  timeout                 "would raise nothing, expected timeout"
    """
    opened = set(case.open)
    if event.failure is not None and event.state == "raised":
        kinds = set(event.failure.kinds)
    elif event.state in {"blocked", "possibly_blocked"}:
        kinds = set(GAVE_UP)
    else:
        kinds = set()
    if not spec.kinds:
        sure = event.state == "raised" and "completes" not in opened
        return f"would raise {_word_any(kinds)}, expected nothing" if sure else None
    if opened & {"error", "deadlock", "crash"}:
        return None
    if kinds & set(spec.kinds):
        return _contradict_run(event, _keep_known(spec, event)) if event.failure else None
    return f"would raise {_word_any(kinds)}, expected {_word_any(set(spec.kinds))}"


def _keep_known(spec: RaiseSpec, event: Event) -> RaiseSpec:
    """Return what the analysis can tell of a spec: not the words, unless the program chose them."""
    if event.failure is not None and event.failure.own:
        return spec
    return replace(spec, contains=None)


def _contradict_run(event: Event, spec: RaiseSpec) -> str | None:
    """Return how what a rank raised contradicts the author; None where it is as stated.

    Compared are kinds, and then the words where the author states some: those are the backend's
    own.
    """
    failure = event.failure
    if not spec.kinds:
        if failure is None:
            return None
        return f"raised {_word_any(set(failure.kinds))}, expected nothing{_quote_message(event)}"
    wanted = _word_any(set(spec.kinds))
    if failure is None:
        return f"{_did(event)}, expected to raise {wanted}"
    if not set(failure.kinds) & set(spec.kinds):
        return f"raised {_word_any(set(failure.kinds))}, expected {wanted}{_quote_message(event)}"
    if spec.contains is not None and spec.contains not in failure.message:
        return f"raised {wanted} without the words {spec.contains!r}{_quote_message(event)}"
    return None


def _did(event: Event) -> str:
    return {"done": "returned", "blocked": "did not return"}.get(event.state, f"was {event.state}")


def _quote_message(event: Event) -> str:
    words = event.failure.message.strip() if event.failure else ""
    return f": {words.splitlines()[0]}" if words else ""


def _word_any(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds)) or "nothing"


def _judge_end(case: Case) -> list[Finding]:
    """Judge the top-level `raises`: what a rank raised that no step expected.

    There `none` states that a rank ended well, or was blocked; a kind that it ended by such an
    error.
    """
    stated = case.final.at_end.raises
    if stated is None:
        return []
    found: dict[tuple[Witness, str], list[tuple[int, Finding]]] = {}
    for rank in range(case.scenario.world_size):
        process = case.predicted.process(rank, case.predicted.final(rank), None, None)
        spec = process.choose(stated) if isinstance(stated, PerRank) else stated
        if not isinstance(spec, RaiseSpec):
            continue
        case.compared += 1
        mine = None
        if case.reference:
            mine = _end_problem(case.predicted.rank(rank), spec, predicted=True)
        if mine and (case.open or case.own_outcome):
            mine = None
        seen = _end_problem(case.observed.rank(rank), spec) if case.observed else None
        prose = mine or seen
        witness = blame(predicted=bool(mine), observed=None if case.run is None else bool(seen))
        if witness and prose:
            mark = spec.mark or case.final.at_end.mark or case.final.mark
            finding = _raise_finding(witness, prose, mark)
            found.setdefault((witness, prose), []).append((rank, finding))
    return [_unite(entries) for entries in found.values()]


def _raise_finding(witness: Witness, prose: str, mark: Mark | None) -> Finding:
    return Finding(witness=witness, code="raises_differs", prose=prose, mark=mark, name="raises")


def _end_problem(
    found: RankTrace | None, spec: RaiseSpec, *, predicted: bool = False
) -> str | None:
    """Return how the end of a rank contradicts what is stated of it, with the step it raised in."""
    last = found.events[-1] if found and found.ending == "raised" and found.events else None
    if last is None:
        if not spec.kinds:
            return None
        return f"raised nothing unexpected, expected {_word_any(set(spec.kinds))}"
    problem = _contradict_run(last, _keep_known(spec, last) if predicted else spec)
    return f"{problem} (in `{last.label}`)" if problem else None


# ---------------------------------------------------------------------------- elapsed


def _judge_elapsed(case: Case, instance: StepInstance, expect: Expectation) -> list[Finding]:
    """Return the finding on when one rank passed one instance of a step.

    The reference has a clock of its own: it adds what `sleep` and timeouts take, and nothing for
    communication. So a bound from below can be proved wrong; one from above only where the sleeps
    alone are longer.
    """
    side = instance.predicted or instance.observed
    if expect.elapsed is None or side is None:
        return []
    process = view_of(side).process()
    bounds = expect.elapsed
    if isinstance(bounds, PerRank):
        bounds = process.choose(bounds)
    if not isinstance(bounds, ElapsedBounds):
        return []
    least = None if bounds.min_s is None else process.seconds(bounds.min_s)
    most = None if bounds.max_s is None else process.seconds(bounds.max_s)
    mine = None
    if case.reference and instance.predicted is not None:
        mine = _bounds(instance.predicted.event, least, most, CLOCK_ERROR_S)
    seen = None
    if instance.observed is not None:
        # a rank that began late waits that much shorter for one that did not
        rank = case.observed.rank(instance.rank) if case.observed else None
        late_s = 0.0 if rank is None else rank.late_s
        seen = _bounds(instance.observed.event, least, most, late_s + TIMER_ERROR_S)
    return _contrast(case, instance, (mine, seen), "elapsed", bounds.mark or expect.mark)


def _bounds(event: Event, least: float | None, most: float | None, error_s: float) -> str | None:
    """Compare the end of a step with its bounds, which count from the scenario's beginning.

    On CUDA a step is issued when its call returns and complete when its event fires: that is meant.
    `error_s` is how much earlier than it should a clock may be.
    """
    ended = event.end_s if event.complete_s is None else event.complete_s
    if ended is None:
        return None
    if least is not None and ended < least - error_s:
        return f"passed this step after {ended:.3g} s, expected at least {least:g} s"
    if most is not None and ended > most + CLOCK_ERROR_S:
        return f"passed this step after {ended:.3g} s, expected at most {most:g} s"
    return None


def _contrast(
    case: Case,
    instance: StepInstance,
    contradictions: tuple[str | None, str | None],
    name: str,
    mark: Mark | None,
) -> list[Finding]:
    """Return the finding on a key of `expect` beside a step; empty where all witnesses agree.

    `contradictions` is how the reference contradicts the author there, and how the run does.
    """
    mine, seen = contradictions
    case.compared += 1
    ran = instance.observed is not None
    witness, event = (
        blame(predicted=bool(mine), observed=bool(seen) if ran else None),
        instance.event,
    )
    prose = mine or seen
    if witness is None or prose is None:
        return []
    return [
        Finding(
            witness=witness,
            code=f"{name}_differs",
            prose=prose,
            mark=mark,
            label=event.label,
            index=event.index,
            iteration=event.iteration,
            name=name,
        )
    ]


# -------------------------------------------------------------------------------------------------
# Who is stuck where, against what the author states in `blocked:`.

STUCK = frozenset({"blocked", "possibly_blocked"})


def judge_blocked(case: Case) -> list[Finding]:
    """Return the findings on ranks that are stuck otherwise than the author states.

    `blocked` names who is *surely* blocked: no correct implementation could let them pass. A run
    may block more ranks than those, which wait for them or which a backend need not have let wait.
    """
    final = case.final
    if final.blocked is None:
        return []
    found: list[Finding] = []
    static = case.reference and case.prediction.outcome in final.ends
    for rank in range(case.scenario.world_size):
        stated = choose_text(case.predicted, rank, final.blocked)
        case.compared += 1
        mine = None
        if static:
            mine = _position(case, case.predicted, rank, stated)
        seen = _position(case, case.observed, rank, stated) if case.observed else None
        prose = mine or seen
        witness = blame(predicted=bool(mine), observed=bool(seen) if case.observed else None)
        if witness and prose:
            place = choose_place(case.predicted, rank, final.blocked)
            found.append(_make_blocked_finding(final, witness, rank, prose, place))
    return found


def _make_blocked_finding(
    final: FinalExpectation, witness: Witness, rank: int, prose: str, place: Mark | None = None
) -> Finding:
    whole = final.blocked.mark if final.blocked is not None else None
    return Finding(
        witness=witness,
        code="blocked_differs",
        prose=prose,
        mark=place or whole or final.mark,
        ranks=(rank,),
        name="blocked",
    )


def choose_text(memories: Memories, rank: int, stated: PerRank[str]) -> str | None:
    """Return the text that a per-rank mapping states for a rank in the end, or None."""
    process = memories.process(rank, memories.final(rank), None, None)
    chosen = process.choose(stated)
    return None if chosen is None else str(chosen)


def choose_place(memories: Memories, rank: int, stated: PerRank[str]) -> Mark | None:
    """Return the place of what is stated for a rank; of the whole where nothing is."""
    process = memories.process(rank, memories.final(rank), None, None)
    return process.place_of(stated)


def _position(case: Case, memories: Memories, rank: int, stated: str | None) -> str | None:
    """Return how a rank's position contradicts what is stated, or None.

    `stated` is the author's name of a step for this rank, None where the rank is not named.
    """
    found = memories.rank(rank)
    stuck = _find_stuck_step(found)
    sure = found is not None and found.ending != "possibly_blocked"
    if stated is None:
        if stuck is None or not sure or not _counts(case, found):
            return None
        if memories is case.observed and _may_block(case, rank, stuck):
            return None
        return f"rank {rank} is blocked in `{stuck.label}`, which `blocked:` does not state"
    if stuck is None:
        ended = found.ending if found else "not there"
        return f"rank {rank} is not blocked (it {_tell_end(ended)}), you expect it in `{stated}`"
    if not sure and memories is case.predicted:
        return (
            f"rank {rank} is only possibly blocked in `{stuck.label}`: an implementation may let "
            f"it pass, so `blocked:` must not state it"
        )
    if _is_named(case, memories, rank, stuck, stated):
        return None
    if memories is case.observed and _may_block(case, rank, stuck):
        return None  # it may stand there before it comes to where it stands for sure
    return f"rank {rank} is blocked in `{stuck.label}`, you expect `{stated}`"


def _counts(case: Case, found: RankTrace | None) -> bool:
    """Return whether a rank is blocked: who gave up is, where the end is a deadlock.

    Ranks of a deadlock end by their timeouts, so that a run of it shows ranks that raised. If the
    file states an error as the end, a rank that raised a timeout has done what is stated.
    """
    gave = found is not None and found.ending == "raised"
    return "deadlock" in case.final.ends or not gave


def _tell_end(ending: str) -> str:
    return {"finished": "takes its last step", "raised": "raises", "died": "dies"}.get(
        ending, f"is {ending}"
    )


def _find_stuck_step(found: RankTrace | None) -> Event | None:
    """Return the step in which a rank is blocked, or gave up; None where it came to its end."""
    if found is None or not found.events:
        return None
    last = found.events[-1]
    if found.ending in STUCK or (found.ending == "raised" and gave_up(found)):
        return last
    return None


def _may_block(case: Case, rank: int, event: Event) -> bool:
    """Return whether a correct backend may leave a rank stuck in this step, though not for sure."""
    predicted = case.predicted.rank(rank)
    if predicted is None:
        return False
    return (
        predicted.ending == "possibly_blocked"
        or (event.index, event.iteration) in predicted.may_block
    )


def _is_named(case: Case, memories: Memories, rank: int, event: Event, stated: str) -> bool:
    """Return whether the words name the step: its name, its whole label, or the operation.

    `blocked: {0: send to 1}` is the label that reports show, `{0: handshake}` a step's `name`, and
    `{0: all_reduce}` will do where it is plain.
    """
    step = case.order.steps.get(event.index)
    if stated == event.label or (step is not None and stated == step.name):
        return True
    operation = step.operation if step is not None else None
    if step is None or operation is None:
        return False
    if stated in {operation.name, *operation.aliases}:
        return True
    # a step that has a name may still be called by its label: `send to 1`
    process = memories.process(rank, memories.final(rank), event, None)
    try:
        return stated == operation.label(memories.entry(process, operation, step))
    except (ScenarioError, *CANNOT_COMPUTE):
        return False


def gave_up(rank: RankTrace) -> bool:
    """Return whether a rank ended because it, or its peer, waited no longer."""
    last = rank.events[-1] if rank.events else None
    return bool(last and last.failure and set(last.failure.kinds) & GAVE_UP)


# -------------------------------------------------------------------------------------------------
# How the scenario ended, against what the author states: outcome, blocked, diagnosis, dies.
#
# Where the reference leaves the outcome open (`Trace.open`), only the run can contradict the
# author.


def judge_ending(case: Case, diagnoses: Sequence[Finding] = ()) -> list[Finding]:
    """Return the findings on how the scenario ended.

    Where the file states no outcome, `diagnoses` (findings on what is wrong with the program) say
    already why it does not complete. Who is blocked is asked only where the outcome is right: a
    program that was to hang and completes has no one blocked, which is the same finding twice.
    """
    said = case.run is None and not case.final.outcomes and any(f.diagnosis for f in diagnoses)
    found = [*([] if said else _outcome(case)), *_dies(case), *_judge_time(case)]
    if not found or case.run is None:
        found += judge_blocked(case)
    return found


# -------------------------------------------------------------------------------------------------
# What a program costs, held against what the author states: proved, and the same on any machine.

#: relative difference of numbers of bytes that are modelled: fractions of a tensor
FRACTION = 1e-9


def judge_cost(case: Case) -> list[Finding]:
    """Return the findings on rounds, messages and bytes.

    Raises ScenarioError where the program has no such cost: it is wrong, or has a collective. The
    witness is the author: the analysis counts what the program sends, and no run is asked.
    """
    stated = case.final.cost
    if stated is None or not case.reference:
        return []
    structure = _structure(case, stated)
    if structure is None:
        return []
    case.compared += 1
    found = [
        _cost_finding(case, name, value, bounds)
        for name, value, bounds in (
            ("rounds", structure.rounds, stated.rounds),
            ("messages", structure.messages, stated.messages),
            ("sent", max(structure.sent), stated.sent),
        )
        if bounds is not None and value is not None and not _holds(case, name, value, bounds)
    ]
    return [*found, *_judge_sent(case, structure, stated), *_time(case, stated)]


def _time(case: Case, stated: CostExpectation) -> list[Finding]:
    """Return the finding on the time that is forecast on a topology."""
    asked, traffic = stated.time, case.general.traffic
    if asked is None or traffic is None:
        return []
    # the models of machines, which only a file that states a time needs: 14 ms of each start
    from torch_scenarios.cost.forecast import forecast
    from torch_scenarios.cost.topology import topology

    bounds = Bounds(low=asked.low, high=asked.high, mark=asked.mark)
    try:
        machine = topology(asked.on, Path(case.scenario.source.path).parent)
        found = forecast(traffic, machine)
    except ScenarioError as error:
        problems = [
            each if each.mark else replace(each, mark=asked.mark) for each in error.problems
        ]
        raise ScenarioError(problems) from None
    if _holds(case, "time_us", found.time, bounds):
        return []
    prose = (
        f"the forecast is {found.time:.6g} us ({found.origin}), the expectation is "
        f"{_tell_bounds(bounds)} us; known error: {found.error}"
    )
    return [
        Finding(
            witness="expectation", code="cost_differs", prose=prose, mark=asked.mark, name="time"
        )
    ]


def _structure(case: Case, stated: CostExpectation) -> Structure | None:
    """Return what the program costs; None where a finding says already that it is wrong."""
    traffic = case.general.traffic
    wrong = [each.name for each in case.general.diagnoses if not each.optional]
    if wrong and not case.final.diagnoses:
        return None
    if traffic is None or wrong or case.general.outcome != "completes":
        why = f"it has {wrong[0]}" if wrong else f"it ends in {case.general.outcome}"
        message = f"the program has no cost: {why}"
        raise ScenarioError(
            [Problem(code="no_cost", message=message, mark=stated.mark, hint="leave `cost` out")]
        )
    structure = traffic.structure
    if structure.collectives and (stated.rounds is not None or stated.messages is not None):
        shown = ", ".join(f"`{name}`" for name in structure.collectives)
        message = f"{shown} is one call, whose rounds and messages each backend chooses"
        hint = "write the algorithm out, or `use` its file; `sent` counts it by the ring's volume"
        raise ScenarioError(
            [Problem(code="cost_of_collective", message=message, mark=stated.mark, hint=hint)]
        )
    if traffic.unknown and (stated.sent is not None or stated.sent_by is not None):
        message = UNKNOWN
        hint = "leave `sent` out, or send tensors"
        raise ScenarioError([Problem(code="no_cost", message=message, mark=stated.mark, hint=hint)])
    return structure


def _holds(
    case: Case, name: str, value: float, bounds: Bounds, ranks: tuple[int, ...] = ()
) -> bool:
    """Return whether a cost is as it is stated, and keep both for reports."""
    holds = _is_within_bounds(value, bounds)
    case.costs.append(
        StatedCost(
            name=name,
            low=bounds.low,
            high=bounds.high,
            computed=value,
            holds=holds,
            ranks=ranks,
        )
    )
    return holds


def _is_within_bounds(value: float, bounds: Bounds) -> bool:
    slack = FRACTION * abs(value)
    return (bounds.low is None or value >= bounds.low - slack) and (
        bounds.high is None or value <= bounds.high + slack
    )


def _tell_bounds(bounds: Bounds) -> str:
    if bounds.low == bounds.high and bounds.low is not None:
        return f"{bounds.low:g}"
    parts = [
        f"at least {bounds.low:g}" if bounds.low is not None else "",
        f"at most {bounds.high:g}" if bounds.high is not None else "",
    ]
    return " and ".join(part for part in parts if part)


def _number(value: Any) -> float:
    return float(value.item() if hasattr(value, "item") else value)


#: what a cost is called
_COSTS = {
    "rounds": "the longest chain of messages has {value:g} rounds",
    "messages": "there are {value:g} messages",
    "sent": "the most bytes that one rank sends are {value:.12g}",
}


def _cost_finding(case: Case, name: str, value: float, bounds: Bounds) -> Finding:
    return Finding(
        witness="expectation",
        code="cost_differs",
        prose=f"{_COSTS[name].format(value=value)}, the expectation is {_tell_bounds(bounds)}",
        mark=bounds.mark or case.final.mark,
        name=name,
    )


def _judge_sent(case: Case, structure: Structure, stated: CostExpectation) -> list[Finding]:
    """Return the finding on the bytes that each rank sends, if some rank's are not as stated.

    `sent: {0: "<= 4096", else: 1024}` may state another bound for each rank. Ranks with the same
    bytes and the same bounds are noted together.
    """
    if stated.sent_by is None:
        return []
    wrong: list[tuple[int, float, Bounds]] = []
    alike: dict[tuple[float, float | None, float | None], list[int]] = {}
    for rank, sent in enumerate(structure.sent):
        process = view_at_end(case.predicted, rank).process()
        asked: Any = process.choose(stated.sent_by)
        if asked is None:
            continue
        low, high = (
            None if form is None else _number(process.evaluate(form))
            for form in (asked.low, asked.high)
        )
        bounds = Bounds(low=low, high=high, mark=asked.mark)
        alike.setdefault((sent, low, high), []).append(rank)
        if not _is_within_bounds(sent, bounds):
            wrong.append((rank, sent, bounds))
    for (sent, low, high), ranks in alike.items():
        _holds(case, "sent", sent, Bounds(low=low, high=high), tuple(ranks))
    if not wrong:
        return []
    shown = "; ".join(
        f"rank {rank} sends {sent:.12g} bytes, the expectation is {_tell_bounds(bounds)}"
        for rank, sent, bounds in wrong[:3]
    )
    more = f"; and {len(wrong) - 3} more ranks differ" if len(wrong) > 3 else ""
    return [
        Finding(
            witness="expectation",
            code="cost_differs",
            prose=shown + more,
            mark=wrong[0][2].mark or case.final.mark,
            ranks=tuple(rank for rank, _, _ in wrong),
            name="sent",
        )
    ]


#: faults of one name at one step that are explained one by one
ALIKE = 3


def judge_diagnoses(case: Case) -> list[Finding]:
    """Return the findings on what the analysis calls the program: static, the same on any run.

    Two things are findings: a diagnosis that the author does not state, and one that is stated and
    not there. One mistake may have several names (`finding` is its number, `also` what else it may
    be called): to state one of them is enough.
    """
    if not case.reference:
        return []
    stated = set(case.final.diagnoses)
    faults: dict[int, list[Diagnosis]] = {}
    for diagnosis in case.prediction.diagnoses:
        faults.setdefault(diagnosis.finding, []).append(diagnosis)
    alike: dict[tuple[str, int], list[Diagnosis]] = {}
    for same in faults.values():
        if not all(diagnosis.optional for diagnosis in same) and not any(
            {diagnosis.name, *diagnosis.also} & stated for diagnosis in same
        ):
            alike.setdefault((same[0].name, same[0].index), []).append(same[0])
    found: list[Finding] = []
    found += [_report_undeclared(case, same) for same in alike.values()]
    names = {diagnosis.name for diagnosis in case.diagnoses}
    also = {name for diagnosis in case.prediction.diagnoses for name in diagnosis.also}
    found += [
        Finding(
            witness="expectation",
            code="diagnosis_absent",
            prose=f"the program has no {name}; it has {', '.join(sorted(names)) or 'no diagnosis'}",
            mark=case.final.place_of("diagnosis"),
            name="diagnosis",
        )
        for name in case.final.diagnoses
        if name not in names | also
    ]
    return found


def _report_undeclared(case: Case, same: Sequence[Diagnosis]) -> Finding:
    """Return the finding on mistakes of one kind at one step, of which a few are explained.

    64 ranks whose `irecv` no one waits for are one mistake in one line of the file.
    """
    diagnosis, *more = same
    others = sorted({rank for each in more for rank in each.ranks})
    clauses = list(diagnosis.clauses)
    if len(same) > ALIKE:
        clauses.append(Clause(f"and so {len(more)} times more, among {ranks_text(others)}"))
    elif more:
        own = dict.fromkeys(clause for each in same for clause in each.clauses)
        clauses = sorted(own, key=lambda clause: clause.mark is None)
    repair = repair_of(case, diagnosis)
    edit = () if repair is None else (repair.title,)
    return Finding(
        witness="expectation",
        code="diagnosis_undeclared",
        prose=DIAGNOSES[diagnosis.name],
        notes=tuple(clauses),
        diagnosis=diagnosis.name,
        help=(*edit, *_help(case, diagnosis)),
        repair=repair,
        mark=_find_place(case, diagnosis) or case.final.mark or case.scenario.mark,
        ranks=tuple(sorted({*diagnosis.ranks, *others})),
        index=diagnosis.index,
        iteration=diagnosis.iteration,
        name="diagnosis",
    )


def _find_place(case: Case, diagnosis: Diagnosis) -> Mark | None:
    """Return where a diagnosis shows: the argument that is wrong, or the call."""
    step = case.order.steps.get(diagnosis.index)
    if step is None:
        marks = (each.mark for each in diagnosis.clauses if each.mark is not None)
        return _find_refused_group(case) or next(marks, None)
    form = step.arguments.get(diagnosis.argument or "")
    ranks = diagnosis.odd or diagnosis.ranks
    if form is None or not ranks:
        return step.mark
    try:
        place = case.predicted.idle(ranks[0]).place_of(form)
    except (ScenarioError, *CANNOT_COMPUTE):
        place = getattr(form, "mark", None)
    return place or step.mark


def _help(case: Case, diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return where to read more, and what states the diagnosis where it is meant to be there."""
    outcome = case.prediction.outcome
    stated = [f"outcome: {outcome}"] if outcome != "completes" else []
    meant = {"deadlock": "the hang", "error": "the error", "crash": "the crash"}
    what = meant.get(outcome, "this")
    pasted = "{" + ", ".join([*stated, f"diagnosis: {diagnosis.name}"]) + "}"
    return (
        f"`scenario explain {diagnosis.name}` shows an example and the fix",
        f"where {what} is intended, state it:\nexpect: {pasted}",
    )


# ---------------------------------------------------------------------------- outcome


def _outcome(case: Case) -> list[Finding]:
    """Return the finding on how it all ended; empty where no witness is alone.

    stated      predicted   run          who is alone
    completes   deadlock    (none)       the expectation
    completes   completes   deadlock     the backend
    deadlock    completes   deadlock     the reference
    completes   deadlock    completes    the reference: the run agrees with the author
    completes   deadlock    deadlock     the expectation
    """
    stated, predicted = case.final.ends, case.prediction.outcome
    allowed = {predicted, *(case.prediction.open if case.run is None else case.open)}
    observed = find_outcome(case)
    case.compared += 1
    if observed is None:
        if not case.reference or allowed.intersection(stated) or case.own_outcome:
            return []
        where = "" if case.prediction is case.general else f" on {case.prediction.backend}"
        words = f"the program's outcome{where} is {predicted}"
        if predicted in {"crash", "error"}:
            words += _explain_missing(case.prediction, is_past=False)
        return [_outcome_finding(case, "expectation", words)]
    if observed in stated:
        if observed in allowed or not case.reference or case.own_outcome:
            return []
        text = f"the reference says {predicted}, the run agrees with you: {observed}"
        return [_outcome_finding(case, "reference", text)]
    meant = {case.general.outcome, *case.general.open}
    words = f"the run's outcome is {observed}"
    words += _explain_missing(case.run, is_past=True) if case.run else ""
    if case.reference and observed != predicted and {*stated, observed} <= meant:
        words = f"the semantics leave the outcome open ({' or '.join(sorted(allowed))}); {words}"
    if case.own_section and case.reference and observed == case.general.outcome:
        return [_report_outdated(case, words)]
    alone: Witness = "expectation" if observed in meant else "backend"
    return [_outcome_finding(case, alone, words)]


def _report_outdated(case: Case, what: str) -> Finding:
    """Return the finding that a backend no longer has the fault that its section states.

    The run does what the semantics say. The author was right about the versions of torch that the
    file was written with; this one is another.
    """
    here = find_torch_version() or "as it is installed"
    meant = case.scenario.torch
    held = [each for each in meant.edges() if meant.holds(each)] if meant else []
    first = min(held, key=release_of, default=None)
    stated = f"of torch {first}" if first else "of this backend"
    finding = _outcome_finding(
        case, "backend", f"torch {here} does something else than the file says {stated}: {what}"
    )
    below = ".".join(map(str, release_of(here)[:2])) if is_version(here) else "X.Y"
    versions = f">={first}, <{below}" if first else f"<{below}"
    help_ = f'where only earlier versions of torch do it, state them: `torch: "{versions}"`'
    return replace(finding, help=(help_,))


def warn_of_open(case: Case) -> None:
    """Warn where the author states no outcome, and another than `completes` stays possible.

    To be asked where nothing else is wrong: a fault that is not stated says more.
    """
    opened = case.prediction.open if case.run is None else case.open
    allowed = {case.prediction.outcome, *opened}
    others = sorted(allowed - {"completes"}, key=OUTCOMES.index)
    if case.final.outcomes or not case.reference or not others or case.scenario.truncated:
        return
    listed = ", ".join(["completes", *others])
    words = " or ".join(filter(None, (", ".join(others[:-1]), others[-1])))
    case.warn(
        "outcome_open",
        f"no outcome is stated, and {words} stays possible",
        case.final.mark or case.scenario.mark,
        f"state `outcome: completes`, or `outcome: [{listed}]` where each of them will do",
    )


def _outcome_finding(case: Case, witness: Witness, what: str) -> Finding:
    """Return the finding that the outcome differs, with what explains it, where it is stated."""
    stated = set(case.final.diagnoses)
    wanted = f"you expect {' or '.join(case.final.ends)}"
    if not case.final.outcomes:
        wanted = "no outcome is stated, so it must complete"
    explained = [
        diagnosis.clauses
        for diagnosis in case.prediction.diagnoses
        if case.run is None and {diagnosis.name, *diagnosis.also} & stated
    ]
    return Finding(
        witness=witness,
        code="outcome_differs",
        prose=f"{what}; {wanted}",
        notes=explained[0] if explained else tuple(map(Clause, find_explaining(case))),
        mark=case.final.places.get("outcome")
        or _find_end(case)
        or case.final.mark
        or case.scenario.mark,
        ranks=tuple(r.rank for r in (case.run or case.prediction).ranks if r.ending != "finished"),
        name="outcome",
    )


def find_outcome(case: Case) -> str | None:
    """Return the run's outcome; None where nothing ran.

    A predicted deadlock that ended because every stuck rank gave up waiting is that deadlock,
    confirmed by the backend's own timeout.
    """
    run = case.run
    if run is None:
        return None
    if run.outcome == "error" and "deadlock" in case.final.ends and "error" not in case.final.ends:
        raised = [rank for rank in run.ranks if rank.ending == "raised"]
        if raised and all(gave_up(rank) for rank in raised):
            return "deadlock"
    return run.outcome


def _find_end(case: Case) -> Mark | None:
    """Return the place of the first step at which a rank that died or raised came to its end."""
    ended = [rank for rank in case.prediction.ranks if rank.ending in {"died", "raised"}]
    indexes = [rank.events[-1].index for rank in ended if rank.events]
    step = case.order.steps.get(min(indexes, default=-1))
    return step.mark if step else _find_refused_group(case)


def _find_refused_group(case: Case) -> Mark | None:
    """Return the place of the group that torch refuses before step 1, if there is one."""
    refused = (each for each in case.predicted.plan.creations if each.refused is not None)
    return next((creation.spec.mark for creation in refused), None)


def _explain_missing(trace: Trace, *, is_past: bool) -> str:
    """Say which ranks did not finish, and why: first who died; what is alike, once.

    What a run did is past, what a program does is not.

    (rank 1 died (SIGKILL) in `fault`; ranks 0 and 2 are blocked in `all_reduce`)
    """
    ends: dict[tuple[str, str], list[int]] = {}
    for rank in sorted(trace.ranks, key=lambda rank: rank.ending != "died"):
        how = _end(rank)
        if how is not None:
            ends.setdefault(how, []).append(rank.rank)
    shown = []
    for (ending, words), ranks in ends.items():
        one, several, past = _ENDINGS[ending]
        verb = past if is_past and past else several if len(ranks) > 1 else one
        shown.append(f"{ranks_text(ranks)} {verb}{words}")
    left = sum(len(ranks) for ranks in list(ends.values())[4:])
    shown = shown[:4] + ([f"{left} more ranks" if left > 1 else "one more rank"] if left else [])
    return f" ({'; '.join(shown)})" if shown else ""


#: how a rank ended -> what one rank does, what several do, and what they did
_ENDINGS = {
    "died": ("dies", "die", "died"),
    "raised": ("raises", "raise", "raised"),
    "blocked": ("is blocked", "are blocked", ""),
}


def _end(rank: RankTrace) -> tuple[str, str] | None:
    """Return how a rank ended and the words that follow; None where it finished or may have."""
    last = rank.events[-1] if rank.events else None
    step = f" in `{last.label}`" if last else ""
    if rank.ending == "died":
        return rank.ending, f" ({rank.died}){step}"
    if rank.ending == "raised" and last is not None and last.failure is not None:
        words = last.failure.message.strip().splitlines()
        kinds = " or ".join(last.failure.kinds)
        return rank.ending, f" {kinds}{step}" + (f": {words[0]}" if words else "")
    return (rank.ending, step) if rank.ending == "blocked" else None


# ---------------------------------------------------------------------------- dies, within


def _dies(case: Case) -> list[Finding]:
    """Return the findings on ranks whose process ended otherwise than `dies:` states.

    Where the prediction leaves open whether a rank crashes (a signal of a peer that is gone), only
    the run can contradict the author.
    """
    final = case.final
    if final.dies is None and "crash" not in final.ends:
        return []
    found: list[Finding] = []
    for rank in range(case.scenario.world_size) if final.dies is not None else ():
        assert final.dies is not None
        stated = choose_text(case.predicted, rank, final.dies)
        case.compared += 1
        predicted, observed = _died(case.predicted, rank), _died(case.observed, rank)
        opened = "crash" in case.open or not case.reference or case.own_outcome
        mine = stated != predicted and not opened
        seen = None if case.observed is None else stated != observed
        witness = blame(predicted=mine, observed=seen)
        if witness is None:
            continue
        got = observed if case.run is not None else predicted
        found.append(
            Finding(
                witness=witness,
                code="dies_differs",
                prose=f"rank {rank} {_death(got)}, you expect that it {_death(stated)}",
                mark=choose_place(case.predicted, rank, final.dies) or final.mark,
                ranks=(rank,),
                name="dies",
            )
        )
    return found


def _died(memories: Memories | None, rank: int) -> str | None:
    found = memories.rank(rank) if memories else None
    return found.died if found else None


def _death(how: str | None) -> str:
    return "does not die" if how is None else f"dies by {how}"


def _judge_time(case: Case) -> list[Finding]:
    """Return the finding on a scenario that takes longer than `within:` allows, in seconds."""
    limit_s = case.final.within_s
    if limit_s is None:
        return []
    case.compared += 1
    predicted_s = case.prediction.duration_s
    mine = case.reference and predicted_s > limit_s + CLOCK_ERROR_S
    seen = None if case.run is None else case.run.duration_s > limit_s
    witness = blame(predicted=mine, observed=seen)
    if witness is None:
        return []
    took_s = case.run.duration_s if case.run is not None and seen else predicted_s
    return [
        Finding(
            witness=witness,
            code="within_exceeded",
            prose=f"it takes {took_s:.3g} s, you expect at most {limit_s:g} s",
            mark=case.final.place_of("within"),
            name="within",
        )
    ]
