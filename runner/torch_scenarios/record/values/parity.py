"""n processes against one: whether gradients and weights are those of the reference.

What is where is learnt from the initial weights, and must hold ever after: each rank's parameter is
the whole of a reference's, or some of its rows along a dimension, in any order. Every gradient at
an optimizer and every weight after it is then held against that part of the reference's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import refusal
from torch_scenarios.record.values.algorithm import (
    CODE,
    find_sent_precision,
    tell_another_algorithm,
    tell_own_rates,
    tell_whole_numbers,
)
from torch_scenarios.record.values.arrangement import (
    Layout,
    Records,
    UnlikeError,
    Values,
    arrange,
    find_stepped,
    find_wrong_arrangement,
    read_tensors,
)
from torch_scenarios.record.values.deviation import (
    ABOUT,
    Deviation,
    choose_deviation,
    find_coarsest,
    find_deviations,
    find_first_output,
    find_loss,
    find_own_statistics,
    has_near_rows,
    is_about_a_multiple,
    is_left_apart,
    is_on_several,
    leave_out_reduced,
    leaves_right,
    make_finding,
    measure_noise,
)
from torch_scenarios.record.values.format.event import (
    BackwardPass,
    CallMistake,
    DropoutCall,
    LoadedBatch,
    LoaderDraw,
    LossScale,
    ModelInput,
    ModuleLoad,
    NumberRead,
    RandomDraw,
)
from torch_scenarios.record.values.format.record import ValueRecord, read_values
from torch_scenarios.record.values.invariants import Judgement, judge_values
from torch_scenarios.record.values.invariants.finding import Cause, ValueFinding, tell_line
from torch_scenarios.record.values.invariants.numbers import find_low_sum, tell_low_sum
from torch_scenarios.record.values.invariants.proofs import PROVED
from torch_scenarios.record.values.roles import find_roles
from torch_scenarios.record.values.source import find_batch_line, is_shown
from torch_scenarios.verdict.finding import ranks_text


class Parity(Struct, frozen=True, kw_only=True):
    """What a comparison says: FAILED with findings, INCONCLUSIVE with a reason, or PASSED."""

    status: str
    judgement: Judgement
    reason: str = ""
    compared: int = 0
    later: int = 0
    #: whether what rounding does decides: it is worth to be measured
    is_close: bool = False
    #: what the comparison does not cover, in words
    notes: tuple[str, ...] = ()


#: the finding of a call that takes a tensor with strides
STRIDED = "in_place_of_strided"
#: what no mixing of elements makes of a gradient
UNMIXED = {
    *(Cause.MULTIPLE, Cause.FRACTION, Cause.ROOT, Cause.OWN, Cause.OWN_IN_OPTIMIZER),
    *(Cause.SCALED, Cause.STALE, Cause.SHIFTED, Cause.ZERO),
}


#: relative difference of two ratios of numbers that rounding does not make
REPORTED_APART = 1e-3


def compare(one: Path, many: Path, disturbed: Sequence[Path] = ()) -> Parity:
    """Compare a record of one process with one of several. Raises ScenarioError.

    `disturbed` are records of the reference whose modules rounded otherwise: what they change is
    what rounding does.
    """
    alone, together = read_values(one), read_values(many)
    if not alone or not together:
        folder = many if alone else one
        raise refusal(folder, "bad_record", "no values are in it: record it with --values")
    reference = read_tensors(one, min(alone))
    held = {rank: read_tensors(many, rank) for rank in together}
    first = alone[min(alone)]
    skips = _find_other_skip(first, together)
    reason = skips[1] if skips[0] == 0 else _another_batch(first, together)
    is_near = bool(reason) and has_near_rows(reference, held)
    if reason and not is_near:
        rank = find_own_statistics(reference, held)
        return _open(reason) if rank is None else _fail([_tell_statistics(together, rank)])
    found = [] if is_near else [*_find_missing_rows(first, together)]
    try:
        layout = arrange(reference, held)
    except UnlikeError as error:
        if found:
            return _fail(found)
        return _open(str(error), code="not_initialised_alike")
    found += find_wrong_arrangement(reference, layout, together)
    sent = find_sent_precision(together)
    noise = measure_noise(reference, [read_tensors(each, min(alone)) for each in disturbed])
    deviations = [*find_deviations(reference, held, layout, together, noise, sent)]
    deviations = leave_out_reduced(deviations, reference, held, layout)
    rates = [*_find_other_rates(first, together)]
    if _weigh_each_other(first, together, rates, deviations):
        rates, deviations = [], []
    sides = (reference, held, layout)
    sure = [each for each in deviations if each.sure or is_left_apart(each, *sides)]
    compared = sum(len(values) for rank in held for values in held[rank].values())
    since = min((each.step for each in sure), default=-1)
    if not found and (reason := _tell_other_steps(first, together, layout, since, skips)):
        return _open(reason)
    if sure and not found:
        output = find_first_output(first, reference, held, layout, together, sure[0].step)
        coarse = find_coarsest([reference, *held.values()], sure[0].step)
        output = output or find_loss(first, together, sure[0], coarse)
        telling = choose_deviation(sure, reference, layout)
        deviation = output or make_finding(telling, sure, reference, held, layout, together)
        deviation = _blame_strides(deviation, together, is_forward=output is not None)
        deviation = _blame_half_precision(deviation, together, telling)
        found.append(_join_witness(deviation, together))
    found = [*rates, *found]
    if found:
        excuse = _excuse(sure, found[0], (first, together), reference, held, layout)
        ordered = sorted(found, key=lambda each: each.turn)
        return excuse or _fail(ordered, compared, len(sure) - 1)
    if not deviations:
        return _pass(first, reference, together, compared)
    reason = (
        f"{len(deviations)} of {compared} values are off by more than rounding should make, "
        "and by less than a mistake does"
    )
    return replace(_open(reason), is_close=True)


def _find_other_skip(first: ValueRecord, together: Records) -> tuple[float, str]:
    """Return the step from which a GradScaler leaves others out than in one process, and its words.

    A rank's own rows may overflow where the mean of all does not, so that it is no mistake.
    """
    wanted = first.of(LossScale)
    for rank, record in together.items():
        for one, other in zip(wanted, record.of(LossScale), strict=False):
            if one.skips == other.skips:
                continue
            who, where = (f"on rank {rank}", "in one process")
            who, where = (who, where) if other.skips else (where, who)
            return min(one.turn, other.turn), (
                f"the GradScaler leaves a step of the optimizer out {who}, by a scale of "
                f"{other.scale:g}{tell_line(record, other.place)}, and not {where}: the steps that "
                "follow are others. Set an `init_scale` that is small enough for all of them"
            )
    return inf, ""


def _blame_half_precision(
    found: ValueFinding, together: Records, telling: Deviation
) -> ValueFinding:
    """Return a gradient that is infinite with what sums it in half precision, if something does."""
    if telling.kind != "gradient" or found.cause is not Cause.INFINITE:
        return found
    record = together[telling.rank]
    step = next((each for each in record.steps if each.turn == telling.step), None)
    low = find_low_sum(record, step.at) if step is not None else None
    return found if low is None else replace(found, hint=tell_low_sum(record, low))


def _tell_other_steps(
    first: ValueRecord, together: Records, layout: Layout, since: int, skips: tuple[float, str]
) -> str:
    """Return why the steps are others than in one process up to the first that is off, or nothing.

    Nothing is off where `since` is negative.
    """
    if since >= skips[0]:
        return skips[1]
    return _tell_own_optimizers(first, together, layout) if since > 0 else ""


def _tell_own_optimizers(first: ValueRecord, together: Records, layout: Layout) -> str:
    """Return that a rank steps fewer optimizers than one process, or nothing.

    Steps are counted one by one, so that those of a rank are others then. All that one process
    steps is stepped by some rank: no optimizer is forgotten.
    """
    stepped = find_stepped(together, layout)
    count = len({step.optimizer for step in first.steps})
    for rank, record in together.items():
        own = len({step.optimizer for step in record.steps})
        if 0 < own < count and first.stepped <= stepped:
            return (
                f"one process steps {count} optimizers, and rank {rank} steps {own}: values are "
                "compared step by step, and these steps are others"
            )
    return ""


def _tell_statistics(together: Records, rank: int) -> ValueFinding:
    place = together[rank].forwards[0].place
    line = find_batch_line(together[rank], place)
    script = script_at(line[0]) if line is not None else None
    return ValueFinding(
        code="not_equivalent",
        message=f"the rows that {ranks_text((rank,))} trains on are those of one process, each "
        "column times a number and plus another one: they are normalised by the statistics of "
        "this rank's own rows",
        ranks=(rank,),
        rank=rank,
        place=place,
        frames=(script.frame(line[1]),) if script is not None and line is not None else (),
        hint="compute the statistics over the rows of all ranks (`all_reduce` of the count, the "
        "sum and the sum of squares), or on one rank, and broadcast them",
    )


def _blame_strides(found: ValueFinding, together: Records, *, is_forward: bool) -> ValueFinding:
    """Return a deviation with the call before it that hands Gloo a tensor with strides.

    What is another value times a number, or a rank's own, is not mixed.
    """
    if found.cause in UNMIXED:
        return found
    for record in together.values():
        until = max((step.at for step in record.steps if step.turn <= found.turn), default=0)
        if is_forward:
            passes = (e.at for e in record.of(BackwardPass) if e.turn == found.turn)
            until = next(passes, until)
        for each in record.of(CallMistake):
            if each.code == STRIDED and each.at < until:
                line = tell_line(record, each.place)
                message = (
                    f"{found.message}; a call before it{line} hands Gloo a tensor with strides, "
                    "whose elements it takes as they lie in memory"
                )
                return replace(found, message=message, hint=PROVED[each.code][1])
    return found


def _find_shown(together: Records, turn: int, without: str = "") -> ValueFinding | None:
    """Return the first error that ranks show of themselves up to a step, not of one code."""
    found = judge_values(together, find_roles(together)).findings
    errors = (each for each in found if each.error and each.code != without)
    return next((each for each in errors if each.turn <= turn), None)


def _join_witness(found: ValueFinding, together: Records) -> ValueFinding:
    """Return a deviation with what the ranks show of themselves, if an invariant fails no later.

    What must agree between ranks and does not is nearer to the cause than a value that follows.
    Whether a call with strides comes before the value is known otherwise.
    """
    shown = _find_shown(together, found.turn, without=STRIDED)
    if shown is None:
        return found
    return replace(
        found,
        message=f"{found.message}; the ranks show of themselves ({shown.code}): {shown.message}",
        ranks=shown.ranks,
        rank=shown.rank,
        place=shown.place,
        frames=shown.frames,
        hint=shown.hint,
    )


def _pass(first: ValueRecord, reference: Values, together: Records, compared: int) -> Parity:
    """Return that all values are right, with what the script reports and does not compare."""
    if not compared or not reference:
        return _open("no optimizer has stepped: there is nothing to compare")
    reported = tuple(find_reported(first, together))
    judgement = Judgement(findings=reported, judged=("not_equivalent",), open=())
    notes = tuple(_tell_later_load(reference, together))
    return Parity(status="PASSED", judgement=judgement, compared=compared, notes=notes)


def _weigh_each_other(
    first: ValueRecord,
    together: Records,
    rates: Sequence[ValueFinding],
    deviations: Sequence[Deviation],
) -> bool:
    """Whether learning rates and gradients deviate, and every weight moves as in one process.

    As by a sum over ranks, and a rate that is as many times smaller at all steps.
    """
    if not rates or not deviations or any(each.kind != "gradient" for each in deviations):
        return False
    ratios = [
        mine / theirs if theirs else 0.0
        for record in together.values()
        for one, other in zip(record.steps, first.steps, strict=False)
        for mine, theirs in zip(one.rates, other.rates, strict=False)
    ]
    return max(ratios) - min(ratios) <= REPORTED_APART * min(ratios)


def _excuse(
    sure: Sequence[Deviation],
    found: ValueFinding,
    records: tuple[ValueRecord, Records],
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
) -> Parity | None:
    """Return why several ranks compute something else, and are not wrong; None where they are."""
    first, together = records
    if found.code != "not_equivalent":
        return None
    if reason := _find_draws(first, together):
        return _open(reason, code="random_in_forward")
    if reason := tell_own_rates(together):
        return _open(reason, code=CODE)
    if not sure:
        return None
    off = choose_deviation(sure, reference, layout)
    is_right = leaves_right(off, reference, held, layout)
    if not is_right and is_about_a_multiple(off, reference, held, layout):
        return None
    is_shared = is_on_several(off, layout)
    reason = tell_another_algorithm(
        together, found.turn, off.name, is_left_right=is_right, is_shared=is_shared
    )
    if not reason and off.off <= ABOUT and _find_shown(together, found.turn) is None:
        reason = tell_whole_numbers(together, found.turn)
    return _open(reason, code=CODE) if reason else None


def find_reported(first: ValueRecord, together: Records) -> Iterator[ValueFinding]:
    """Yield a number that a script reads at a line as many times too large as there are ranks.

    It is what people look at: a loss that is summed over ranks and not divided. Numbers that do not
    change, whole ones and those of one reading are no losses, and one that is divided or kept as it
    is read may be divided later.
    """
    own = _numbers_by_line(first)
    for rank, record in together.items():
        for line, (place, mine) in _numbers_by_line(record).items():
            theirs = own.get(line, (0, []))[1]
            if len(mine) != len(theirs) or len({*theirs}) < 2 or 0.0 in theirs:
                continue
            if all(each.is_integer() for each in mine):
                continue
            ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
            many = max(ratios[0], 1 / ratios[0]) if ratios[0] > 0 else 1.0
            times = round(many)
            is_one = max(ratios) - min(ratios) <= REPORTED_APART * ratios[0]
            if times < 2 or times > len(together) or abs(many - times) > REPORTED_APART * times:
                continue
            if is_one and is_shown(record, place):
                shown = f"{times}" if ratios[0] > 1 else f"1/{times}"
                yield ValueFinding(
                    code="not_equivalent",
                    message=f"weights are right, and the number that is read here is {shown} times "
                    f"what one process reads, each time ({mine[0]:.5g} on rank {rank}, "
                    f"{theirs[0]:.5g} in one process)",
                    ranks=(rank,),
                    rank=rank,
                    place=place,
                    hint="divide what is summed over ranks by their number before it is shown, or "
                    "reduce it by `dist.ReduceOp.AVG`",
                    error=False,
                )
                return


def _numbers_by_line(record: ValueRecord) -> dict[tuple[str, int], tuple[int, list[float]]]:
    """Return the numbers that a rank reads, by the file and line at which it does."""
    found: dict[tuple[str, int], tuple[int, list[float]]] = {}
    for each in record.of(NumberRead):
        if frames := record.places.get(each.place, ()):
            own = found.setdefault((frames[0][0], frames[0][1]), (each.place, []))
            own[1].append(each.number)
    return found


def _find_draws(first: ValueRecord, together: Records) -> str:
    """Return that one process and several draw other random numbers, or nothing."""
    reason = (
        "random numbers are drawn in the forward pass (random_in_forward): one process and several "
        "draw others; "
    )
    if any(each.of(DropoutCall) for each in (*together.values(), first)):
        return reason + "turn dropout off in both by `--no-dropout`"
    if augmented := _find_augmented(first, together):
        record, place = augmented
        return (
            "random numbers are drawn where a batch is loaded (random_in_forward), so that rows of "
            f"one number differ{tell_line(record, place)}; draw them by the number of the row, or "
            "turn the augmentation off in both"
        )
    own = [each.after for each in first.of(RandomDraw)]
    for rank, record in together.items():
        drawn = record.of(RandomDraw)
        if drawn and [each.after for each in drawn] != own:
            line = tell_line(record, drawn[0].place)
            return (
                f"{reason}rank {rank} before the backward pass{line}: draw them for the rows of "
                "all ranks from one seed, and take each rank's part"
            )
    return ""


def _find_augmented(first: ValueRecord, together: Records) -> tuple[ValueRecord, int] | None:
    """Return where a loader draws random numbers for rows that one process has otherwise."""
    alone = _rows_by_number(first)
    for record in together.values():
        own = _rows_by_number(record)
        drawn = next((each.place for each in record.of(LoaderDraw)), None)
        if drawn is not None and any(alone.get(n, row) != row for n, row in own.items()):
            return record, drawn
    return None


def _rows_by_number(record: ValueRecord) -> dict[int, str]:
    """Return the content of each row before the first step, by its number in the dataset."""
    batches = [each for each in _batches_before_step(record) if each.indices is not None]
    pairs = [pair for e in batches for pair in zip(e.indices or (), e.rows, strict=False)]
    return dict(pairs)


def _tell_later_load(reference: Values, together: Records) -> Iterator[str]:
    """Yield that a state is loaded behind the steps that are compared."""
    for rank, record in together.items():
        for each in record.of(ModuleLoad):
            if each.turn >= len(reference):
                line = tell_line(record, each.place)
                yield (
                    f"rank {rank} loads a state after step {each.turn}{line}, behind the "
                    f"{len(reference)} steps that are compared: see `--steps {each.turn + 3}`"
                )
                return


def _open(reason: str, code: str = "") -> Parity:
    judgement = Judgement(findings=(), judged=(), open=(code,) if code else ())
    return Parity(status="INCONCLUSIVE", judgement=judgement, reason=reason)


def _fail(found: list[ValueFinding], compared: int = 0, later: int = 0) -> Parity:
    judgement = Judgement(findings=tuple(found[:1]), judged=("not_equivalent",), open=())
    return Parity(
        status="FAILED",
        judgement=judgement,
        compared=compared,
        later=max(later, 0),
        is_close=found[0].is_measured,
    )


def _rows_before_step(record: ValueRecord) -> list[str]:
    """Return the rows that a rank trains on before its first step ends."""
    rows = [row for batch in _batches_before_step(record) for row in batch.rows]
    if rows:
        return rows
    until = record.steps[0].at if record.steps else 0
    return [row for each in record.of(ModelInput) if each.at < until for row in each.rows]


def _batches_before_step(record: ValueRecord) -> list[LoadedBatch]:
    """Return the batches that a rank trains on before its first step ends."""
    until = record.steps[0].at if record.steps else 0
    loaded = [each for each in record.batches if each.trained and each.at < until]
    passes = sum(each.at < until for each in record.of(BackwardPass))
    # those behind are read ahead
    return loaded[:passes] if 0 < passes < len(loaded) else loaded


def _has_same_numbers(first: ValueRecord, together: Records) -> bool:
    """Whether ranks train on the rows of one process by their numbers in datasets of one size.

    Rows that are padded to the longest of a batch have other contents in another batch.
    """
    sides = ([first], [*together.values()])
    numbers: list[Counter[int]] = []
    for side in sides:
        batches = [(record, each) for record in side for each in _batches_before_step(record)]
        if not batches or any(each.indices is None for _, each in batches):
            return False
        numbers.append(Counter(n for _, each in batches for n in each.indices or ()))
    sizes = {
        (record.loaders.get(each.loader, {}).get("rows"), record.loaders[each.loader]["dataset"])
        for side in sides
        for record in side
        for each in _batches_before_step(record)
    }
    return numbers[0] == numbers[1] and len(sizes) == 1


def _another_batch(first: ValueRecord, together: Records) -> str:
    """Return that one process trains on other rows than several do, or nothing."""
    own = set(_rows_before_step(first))
    together = {r: each for r, each in together.items() if not _is_later_stage(each, own)}
    rows = {rank: _rows_before_step(record) for rank, record in together.items()}
    union = {row for each in rows.values() for row in each}
    if not own or not union or own == union or _has_same_numbers(first, together):
        return ""
    if (sizes := _compare_inputs(first, together)) is not None:
        alone, several = sizes
        if alone == several:
            return ""  # parts of a sequence, which have no rows in common
        return (
            f"the global batch is another one: one process calls its model with {alone} elements "
            f"before its first step, {len(together)} ranks with {several}"
        )
    if union < own and len(_rows_before_step(first)) == sum(map(len, rows.values())):
        return ""
    computed = (
        ": if they are drawn at random, one process may have drawn other numbers before them, such "
        "as whole weights of which each rank draws a part (give the data a generator of its own); "
        "if they are computed from the data (a normalisation), is it from the rows of all ranks?"
    )
    return (
        f"the global batch is another one: one process trains on {len(own)} rows before its first "
        f"step, {len(together)} ranks on {len(union)}, of which {len(own & union)} are the same"
        f"{computed if len(own) == len(union) and own.isdisjoint(union) else ''}"
    )


def _is_later_stage(record: ValueRecord, rows: set[str]) -> bool:
    """Whether a rank's inputs are what another one has sent it, and no rows of the data."""
    received = next((each.at for each in record.calls if each.operation == "recv_"), None)
    called = next((each.at for each in record.of(ModelInput)), None)
    is_sent = received is not None and called is not None and received < called
    return is_sent and rows.isdisjoint(_rows_before_step(record))


def _compare_inputs(first: ValueRecord, together: Records) -> tuple[int, int] | None:
    """Return the elements of the inputs of one process and of all ranks, where rows are longer."""
    if first.batches or any(record.batches for record in together.values()):
        return None
    shapes = {rank: _inputs_before_step(record) for rank, record in together.items()}
    own = _inputs_before_step(first)
    if not own or {each for _, each in own} == {e for each in shapes.values() for _, e in each}:
        return None

    def count(inputs: list[tuple[int, tuple[int, ...]]]) -> int:
        return sum(rows * int(np.prod(shape)) for rows, shape in inputs)

    return count(own), sum(count(each) for each in shapes.values())


def _inputs_before_step(record: ValueRecord) -> list[tuple[int, tuple[int, ...]]]:
    """Return the rows and the shape of a row of each call of a model before the first step."""
    until = record.steps[0].at if record.steps else 0
    found = [each for each in record.of(ModelInput) if each.at < until]
    return [(len(each.rows), each.shapes[0]) for each in found if each.shapes]


def _find_missing_rows(first: ValueRecord, together: Records) -> Iterator[ValueFinding]:
    """Yield rows of the reference's batch that no rank has, where ranks have others twice."""
    own = set(_rows_before_step(first))
    together = {r: each for r, each in together.items() if not _is_later_stage(each, own)}
    rows = {rank: _rows_before_step(record) for rank, record in together.items()}
    union = {row for each in rows.values() for row in each}
    if not own or not union or own == union or _compare_inputs(first, together):
        return
    if _has_same_numbers(first, together):
        return
    counts = Counter(row for each in rows.values() for row in set(each))
    twice = sum(1 for count in counts.values() if count > 1)
    rank = min(together)
    record = together[rank]
    trained = [each.place for each in record.batches if each.trained]
    place = trained[0] if trained else record.forwards[0].place
    yield ValueFinding(
        code="same_samples",
        message=f"{len(own - union)} of the {len(own)} rows that one process trains on are on no "
        f"rank, and {twice} are on several",
        ranks=tuple(together),
        rank=rank,
        place=place,
        hint="deal each row of the batch to exactly one data-parallel rank",
    )


def _find_other_rates(first: ValueRecord, together: Records) -> Iterator[ValueFinding]:
    """Yield the first step at which a learning rate is not that of one process."""
    for rank, record in together.items():
        for mine, theirs in zip(record.steps, first.steps, strict=False):
            if mine.rates != theirs.rates and len(mine.rates) == len(theirs.rates):
                yield ValueFinding(
                    code="not_equivalent",
                    message=f"the learning rate is {mine.rates[0]:g} on {ranks_text((rank,))} at "
                    f"step {mine.turn}, and {theirs.rates[0]:g} in one process",
                    ranks=(rank,),
                    rank=rank,
                    place=mine.place,
                    hint="step the schedule once for each step of the optimizer, however many "
                    "ranks there are",
                    turn=mine.turn,
                )
                return
