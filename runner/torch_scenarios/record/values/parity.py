"""n processes against one: whether gradients and weights are those of the reference.

What is where is learnt from the initial weights, and must hold ever after: each rank's parameter is
the whole of a reference's, or some of its rows along a dimension, in any order. Every gradient at
an optimizer and every weight after it is then held against that part of the reference's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.record.format import read_bounded, refusal
from torch_scenarios.record.values.format import OptimizerStep, ValueRecord, read_values
from torch_scenarios.record.values.invariants import Judgement, ValueFinding
from torch_scenarios.record.values.source import frames_of_loss, frames_of_return, is_in_forward
from torch_scenarios.verdict.finding import ranks_text

Array = NDArray[Any]
Records = Mapping[int, ValueRecord]
#: step -> name -> value
Values = dict[int, dict[str, Array]]

#: times the unit roundoff and the root of the fan-in that a value may be off; times that, from
#: which it is wrong for sure
SLACK, SURE = 16.0, 100.0
#: part of the largest gradient of a step below which one is compared with that part: a bias before
#: a norm, whose gradient is zero but for rounding
CANCELLED = 1e-2
#: times of what disturbed runs of the reference change that a value may be off
MEASURED = 8.0
#: relative distance from which an output is not that of one process
OUTPUTS_APART = 1e-3
#: places of a value at which a block of it is looked for
MOST_BLOCKS = 64
#: how much more may be off a step later
LATER = 4.0
#: names of the format -> dtypes
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
    "BF16": "bfloat16",
}
EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


class Arrangement(Struct, frozen=True, kw_only=True):
    """Which part of a parameter a rank has: rows along a dimension; the whole where that is -1.

    Or a block, which begins at an element and is smaller along several dimensions.
    """

    name: str
    dimension: int = -1
    rows: tuple[int, ...] = ()
    block: tuple[tuple[int, int], ...] = ()

    def part_of(self, whole: Array) -> Array:
        """Return the part of a value of the reference's that is laid out alike."""
        if self.block:
            return whole[tuple(slice(start, end) for start, end in self.block)]
        if self.dimension < 0:
            return whole
        return np.take(whole, self.rows, axis=self.dimension)


class Parity(Struct, frozen=True, kw_only=True):
    """What a comparison says: FAILED with findings, INCONCLUSIVE with a reason, or PASSED."""

    status: str
    judgement: Judgement
    reason: str = ""
    compared: int = 0
    later: int = 0
    #: whether what rounding does decides: it is worth to be measured
    is_close: bool = False


def read_tensors(folder: Path, rank: int) -> Values:
    """Return what a rank kept of each step. Raises ScenarioError where a file cannot be read."""
    return {
        int(path.stem.rpartition("-")[2]): read_tensor_file(path)
        for path in folder.glob(f"values-{rank:05d}-step-*.safetensors")
    }


#: bytes of the tensors that a rank keeps at one step
MOST_BYTES = 1 << 33


def read_tensor_file(path: Path) -> dict[str, Array]:
    """Return the tensors of a file. Raises ScenarioError where it cannot be read."""
    import ml_dtypes
    from safetensors import SafetensorError, deserialize

    content = read_bounded(path, MOST_BYTES)
    try:
        read: Any = deserialize
        entries = read(content)
    except SafetensorError as error:
        raise refusal(path, "bad_record", f"it cannot be read: {error}") from None
    found = {}
    for name, entry in entries:
        kind = DTYPES.get(entry["dtype"])
        if kind is not None:
            dtype = np.dtype(ml_dtypes.bfloat16) if kind == "bfloat16" else np.dtype(kind)
            found[name] = np.frombuffer(entry["data"], dtype=dtype).reshape(entry["shape"])
    return found


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
    if reason := _another_batch(first, together):
        return _open(reason)
    found = [*_find_missing_rows(first, together)]
    rates = [*_other_rates(first, together)]
    try:
        layout = arrange(reference, held, together)
    except _UnlikeError as error:
        if found:
            return _fail(found)
        return _open(str(error), code="not_initialised_alike")
    found += _wrong_arrangement(reference, layout, together)
    noise = _noise(reference, [read_tensors(each, min(alone)) for each in disturbed])
    deviations = [*_deviations(reference, held, layout, together, noise)]
    sure = [each for each in deviations if each.sure]
    compared = sum(len(values) for rank in held for values in held[rank].values())
    if sure and not found:
        output = _first_output(first, reference, held, together, sure[0].step)
        telling = _choose_deviation(sure, reference, layout)
        found.append(output or _make_finding(telling, reference, held, layout, together))
    found = [*rates, *found]
    random = any(True for r in (*together.values(), first) for _ in r.of_kind("rand"))
    if found and random and found[0].code == "not_equivalent":
        return _open(
            "random numbers are drawn in the forward pass (random_in_forward): one process and "
            "several draw others; turn dropout off in both by `--no-dropout`",
            code="random_in_forward",
        )
    if found:
        return _fail(sorted(found, key=lambda each: each.turn), compared, len(sure) - 1)
    if deviations:
        reason = (
            f"{len(deviations)} of {compared} values are off by more than rounding should make, "
            "and by less than a mistake does"
        )
        return replace(_open(reason), is_close=True)
    if not compared or not reference:
        return _open("no optimizer has stepped: there is nothing to compare")
    judgement = Judgement(findings=(), judged=("not_equivalent",), open=())
    return Parity(status="PASSED", judgement=judgement, compared=compared)


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
        is_close=any("times what rounding does" in each.message for each in found[:1]),
    )


# -------------------------------------------------------------------------------------------------
# Rows and rates.


def _rows_before_step(record: ValueRecord) -> list[str]:
    """Return the rows that a rank trains on before its first step ends."""
    until = record.steps[0].at if record.steps else 0
    loaded = [each for each in record.batches if each.trained and each.at < until]
    passes = sum(each.at < until for each in record.of_kind("bw"))
    if 0 < passes < len(loaded):
        loaded = loaded[:passes]  # those behind are read ahead
    rows = [row for batch in loaded for row in batch.rows]
    if rows:
        return rows
    return [row for each in record.of_kind("in") if each.at < until for row in each.details[1]]


def _another_batch(first: ValueRecord, together: Records) -> str:
    """Return that one process trains on other rows than several do, or nothing."""
    own = set(_rows_before_step(first))
    together = {r: each for r, each in together.items() if not _is_later_stage(each, own)}
    rows = {rank: _rows_before_step(record) for rank, record in together.items()}
    union = {row for each in rows.values() for row in each}
    if not own or not union or own == union:
        return ""
    if (sizes := _other_shapes(first, together)) is not None:
        alone, several = sizes
        if alone == several:
            return ""  # parts of a sequence, which have no rows in common
        return (
            f"the global batch is another one: one process calls its model with {alone} elements "
            f"before its first step, {len(together)} ranks with {several}"
        )
    if union < own and len(_rows_before_step(first)) == sum(map(len, rows.values())):
        return ""
    return (
        f"the global batch is another one: one process trains on {len(own)} rows before its first "
        f"step, {len(together)} ranks on {len(union)}, of which {len(own & union)} are the same"
    )


def _is_later_stage(record: ValueRecord, rows: set[str]) -> bool:
    """Whether a rank's inputs are what another one has sent it, and no rows of the data."""
    received = next((each.at for each in record.calls if each.operation == "recv_"), None)
    called = next((each.at for each in record.of_kind("in")), None)
    is_sent = received is not None and called is not None and received < called
    return is_sent and rows.isdisjoint(_rows_before_step(record))


def _other_shapes(first: ValueRecord, together: Records) -> tuple[int, int] | None:
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
    found = [each.details for each in record.of_kind("in") if each.at < until]
    return [(len(rows), tuple(shapes[0])) for _, rows, _, _, shapes in found if shapes]


def _find_missing_rows(first: ValueRecord, together: Records) -> Iterator[ValueFinding]:
    """Yield rows of the reference's batch that no rank has, where ranks have others twice."""
    own = set(_rows_before_step(first))
    together = {r: each for r, each in together.items() if not _is_later_stage(each, own)}
    rows = {rank: _rows_before_step(record) for rank, record in together.items()}
    union = {row for each in rows.values() for row in each}
    if not own or not union or own == union or _other_shapes(first, together):
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


def _other_rates(first: ValueRecord, together: Records) -> Iterator[ValueFinding]:
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


# -------------------------------------------------------------------------------------------------
# What is where.


class _UnlikeError(Exception):
    """A rank's parameter is no part of the reference."""


Layout = dict[int, dict[str, Arrangement]]


def arrange(reference: Values, held: Mapping[int, Values], records: Records) -> Layout:
    """Return which part of the reference each rank's parameters are."""
    wholes = arrays_by_name(reference, 0, "before")
    layout: Layout = {}
    for rank, values in held.items():
        layout[rank] = {}
        waiting = []
        for name, part in arrays_by_name(values, 0, "before").items():
            if not part.size:
                continue
            if _is_constant(part):
                waiting.append((name, part))
                continue
            layout[rank][name] = _match(name, part, wholes, rank)
        for name, part in waiting:
            found = _follow(name, part, wholes, layout[rank], records[rank])
            if found is not None:
                layout[rank][name] = found
    return layout


def arrays_by_name(values: Values, step: int, kind: str) -> dict[str, Array]:
    """Return what a rank keeps of one step and kind, by the names of its parameters."""
    start = f"{kind}/"
    own = values.get(step, {})
    return {name.removeprefix(start): v for name, v in own.items() if name.startswith(start)}


def _is_constant(value: Array) -> bool:
    return bool(value.size < 2 or (value == value.reshape(-1)[0]).all())


def _match(name: str, part: Array, wholes: Mapping[str, Array], rank: int) -> Arrangement:
    """Return what part of the reference a parameter is: of its own name first, else of any."""
    order = [name] if name in wholes else []
    for each in (*order, *(other for other in wholes if other != name)):
        found = _place(each, part, wholes[each])
        if found is not None:
            return found
    message = (
        f"`{name}` of rank {rank} is not a part of any parameter of one process "
        "(not_initialised_alike): load one checkpoint in both, draw the whole model from one seed "
        "and take each rank's part of it, or give the ranks its weights by `--init reference`"
    )
    raise _UnlikeError(message)


def _place(name: str, part: Array, whole: Array) -> Arrangement | None:
    if part.dtype != whole.dtype:
        return None
    if part.shape == whole.shape and np.array_equal(part, whole):
        return Arrangement(name=name)
    if part.ndim != whole.ndim:
        return None
    for dimension in range(part.ndim):
        rest = part.shape[:dimension] + part.shape[dimension + 1 :]
        if rest != whole.shape[:dimension] + whole.shape[dimension + 1 :]:
            continue
        places: dict[bytes, int] = {}
        for at, row in enumerate(np.moveaxis(whole, dimension, 0)):
            places.setdefault(row.tobytes(), at)
        rows = [places.get(row.tobytes()) for row in np.moveaxis(part, dimension, 0)]
        if None not in rows:
            return Arrangement(
                name=name, dimension=dimension, rows=tuple(row for row in rows if row is not None)
            )
    return _block(name, part, whole)


def _block(name: str, part: Array, whole: Array) -> Arrangement | None:
    """Return which block of a value a part is: two strategies split it along two dimensions."""
    if any(own > all_of for own, all_of in zip(part.shape, whole.shape, strict=True)):
        return None
    for at in np.argwhere(whole == part.reshape(-1)[0])[:MOST_BLOCKS]:
        bounds = tuple(
            (int(start), int(start) + size) for start, size in zip(at, part.shape, strict=True)
        )
        found = Arrangement(name=name, block=bounds)
        if np.array_equal(found.part_of(whole), part):
            return found
    return None


def _follow(
    name: str,
    part: Array,
    wholes: Mapping[str, Array],
    known: Mapping[str, Arrangement],
    record: ValueRecord,
) -> Arrangement | None:
    """Return where a constant is: with the other parameters of its module."""
    module, _, own = name.rpartition(".")
    for other, arrangement in known.items():
        if other.rpartition(".")[0] != module:
            continue
        target = ".".join(filter(None, (arrangement.name.rpartition(".")[0], own)))
        whole = wholes.get(target)
        if whole is None:
            continue
        if whole.shape == part.shape:
            return Arrangement(name=target)
        if arrangement.dimension == 0 and len(arrangement.rows) == part.shape[0]:
            return Arrangement(name=target, dimension=0, rows=arrangement.rows)
    whole = wholes.get(name)
    if whole is not None and whole.shape == part.shape:
        return Arrangement(name=name)
    del record
    return None


def _wrong_arrangement(
    reference: Values, layout: Layout, records: Records
) -> Iterator[ValueFinding]:
    """Yield a parameter of the reference of which the ranks together lack a part."""
    for name, whole in arrays_by_name(reference, 0, "before").items():
        parts = {
            rank: each for rank, own in layout.items() for each in own.values() if each.name == name
        }
        if not parts or any(each.dimension < 0 for each in parts.values()):
            continue
        (dimension,) = {each.dimension for each in parts.values()} or {0}
        have = {row for each in parts.values() for row in each.rows}
        lack = whole.shape[dimension] - len(have)
        if lack > 0:
            rank = next(iter(parts))
            step = records[rank].steps[0]
            yield ValueFinding(
                code="wrong_arrangement",
                message=f"{lack} of {whole.shape[dimension]} rows of `{name}` (dimension "
                f"{dimension}) are on no rank, and {ranks_text(tuple(parts))} hold parts of it",
                ranks=tuple(parts),
                rank=rank,
                place=records[rank].parameters[records[rank].names[name]].place
                if name in records[rank].names
                else step.place,
                hint="let each rank of the group take another part: by its number in the group",
                name=name,
            )
            return


# -------------------------------------------------------------------------------------------------
# Values.


def _first_output(
    first: ValueRecord,
    reference: Values,
    held: Mapping[int, Values],
    records: Records,
    step: int,
) -> ValueFinding | None:
    """Return the first module, in the order of computing, whose output no arrangement explains."""
    seen = set()
    for event in first.of_kind("out"):
        turn, call, kind, _ = event.details
        name = call.partition("#")[0]
        if turn != step or name in seen:
            continue
        seen.add(name)
        whole = _output_of(reference, step, name)
        parts = {rank: _output_of(values, step, name) for rank, values in held.items()}
        present = {rank: part for rank, part in parts.items() if part is not None}
        if whole is None or len(present) < len(parts) or _is_arranged(whole, [*present.values()]):
            continue
        rank = next(
            (r for r, part in present.items() if not _is_arranged(whole, [part])), min(present)
        )
        record = records[rank]
        own = next(e for e in record.of_kind("out") if e.details[1].partition("#")[0] == name)
        frames = record.places.get(own.details[3], ())
        shown = f"`{name}` ({kind})" if name else f"the model ({kind})"
        return ValueFinding(
            code="not_equivalent",
            message=f"step {step}, forward: the output of {shown} on {ranks_text((rank,))} "
            f"{_what_it_is(whole, present[rank])}; the modules before it are right",
            ranks=(rank,),
            rank=rank,
            place=own.details[3],
            frames=frames_of_return(frames, kind),
            hint="look at what this module sums, splits or normalises over: the same over all "
            "ranks as in one process, and once",
            turn=step,
            name=name,
        )
    return None


def _output_of(values: Values, step: int, name: str) -> Array | None:
    """Return what a module gave back in a step, the rows of all its calls in order."""
    own = arrays_by_name(values, step, "out")
    calls: list[Array] = []
    while f"{name}#{len(calls)}" in own:
        calls.append(np.atleast_1d(own[f"{name}#{len(calls)}"]))
    if not calls or len({each.shape[1:] for each in calls}) > 1:
        return None
    return np.concatenate(calls).astype(float)


def _is_arranged(whole: Array, parts: Sequence[Array]) -> bool:
    """Whether parts are the whole, its slices along a dimension, or sums of these to come.

    What no arrangement of these kinds can be is not known, and counts as arranged.
    """
    suits = False
    for some in _sums(parts):
        if all(each.shape == whole.shape for each in some):
            suits = True
            if all(_is_near(each, whole) for each in some):
                return True
        for dimension in range(whole.ndim):
            if all(_suits(each, whole, dimension) for each in some):
                suits = True
                if all(_has_rows(each, whole, dimension) for each in some):
                    return True
    return not suits


def _sums(parts: Sequence[Array]) -> Iterator[list[Array]]:
    """Yield the parts, and their sums over sets of ranks of one size, in blocks and in strides."""
    yield [*parts]
    count = len(parts)
    if len({each.shape for each in parts}) > 1:
        return
    for size in (size for size in range(2, count + 1) if count % size == 0):
        yield [np.sum(parts[at : at + size], axis=0) for at in range(0, count, size)]
        if size < count:
            yield [np.sum(parts[at :: count // size], axis=0) for at in range(count // size)]


def _is_near(one: Array, other: Array) -> bool:
    size = float(np.abs(other).max(initial=0.0)) or 1.0
    return float(np.abs(one - other).max(initial=0.0)) <= OUTPUTS_APART * size


def _suits(part: Array, whole: Array, dimension: int) -> bool:
    """Whether a part differs from a whole in the size of one dimension alone."""
    if part.ndim != whole.ndim or part.shape[dimension] >= whole.shape[dimension]:
        return False
    return all(
        a == b
        for at, (a, b) in enumerate(zip(part.shape, whole.shape, strict=True))
        if at != dimension
    )


def _has_rows(part: Array, whole: Array, dimension: int) -> bool:
    """Whether each slice of a part is a slice of the whole, in any order."""
    rows = np.moveaxis(whole, dimension, 0).reshape(whole.shape[dimension], -1)
    own = np.moveaxis(part, dimension, 0).reshape(part.shape[dimension], -1)
    draw = np.random.default_rng(rows.shape[1]).normal(size=rows.shape[1])
    order = np.argsort(rows @ draw)
    sketches = (rows @ draw)[order]
    size = (float(np.abs(whole).max(initial=0.0)) or 1.0) * OUTPUTS_APART
    for each in own:
        at = int(np.searchsorted(sketches, float(each @ draw)))
        near = order[max(at - 2, 0) : at + 2]
        if not any(float(np.abs(rows[n] - each).max(initial=0.0)) <= size for n in near):
            return False
    return True


def _what_it_is(whole: Array, part: Array) -> str:
    """Say what an output is in place of that of one process."""
    power = float((whole * whole).sum())
    if part.shape == whole.shape and power:
        ratio = float((part * whole).sum()) / power
        if abs(ratio) > OUTPUTS_APART and _is_near(part / ratio, whole):
            known = f"{ratio:.4g}" if ratio >= 1 else f"1/{1 / ratio:.4g}"
            return f"is {known} times what one process has"
    return "is not what one process has, nor a part of it, and no sum over ranks is"


def _number_in(numbers: Mapping[str, int]) -> Callable[[tuple[str, Array]], int]:
    return lambda each: numbers.get(each[0], 0)


class _Deviation(Struct, frozen=True, kw_only=True):
    step: int
    kind: str
    rank: int
    name: str
    off: float
    bound: float

    @property
    def sure(self) -> bool:
        return self.off > SURE * self.bound


def _deviations(
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
    records: Records,
    noise: Mapping[tuple[int, str, str], float],
) -> Iterator[_Deviation]:
    """Yield values that are not the reference's: step by step, gradients before weights.

    Gradients come in the order of the backward pass, the last parameter first.
    """
    for step in sorted(reference):
        for kind in ("gradient", "after"):
            wholes = arrays_by_name(reference, step, kind)
            for rank, values in held.items():
                numbers = records[rank].names
                named = sorted(
                    arrays_by_name(values, step, kind).items(),
                    key=_number_in(numbers),
                    reverse=kind == "gradient",
                )
                for name, got in named:
                    at = layout[rank].get(name)
                    whole = wholes.get(at.name) if at is not None else None
                    if at is None or whole is None:
                        continue
                    off, bound = _distance(kind, step, got, whole, at, (reference, values, name))
                    bound = max(bound, MEASURED * noise.get((step, kind, at.name), 0.0))
                    if off > bound:
                        yield _Deviation(
                            step=step, kind=kind, rank=rank, name=name, off=off, bound=bound
                        )


def _noise(reference: Values, disturbed: Sequence[Values]) -> dict[tuple[int, str, str], float]:
    """Return how far each gradient and weight is off where modules round otherwise."""
    found: dict[tuple[int, str, str], float] = {}
    for step in reference:
        for kind in ("gradient", "after"):
            for name, whole in arrays_by_name(reference, step, kind).items():
                at = Arrangement(name=name)
                for other in disturbed:
                    got = arrays_by_name(other, step, kind).get(name)
                    if got is not None:
                        off, _ = _distance(kind, step, got, whole, at, (reference, other, name))
                        found[step, kind, name] = max(found.get((step, kind, name), 0.0), off)
    return found


def bound_of(value: Array, step: int) -> float:
    """Return how far a value may be off, relative to its largest element, by rounding alone."""
    root = float(max(max(value.shape, default=1), 16)) ** 0.5
    return float(SLACK * EPS.get(str(value.dtype), 2.0**-24) * root * LATER**step)


def size_of_gradients(sides: Iterable[Values], step: int) -> float:
    """Return the size below which a gradient is what cancels out of larger ones."""
    largest = [
        float(np.abs(each.astype(float)).max(initial=0.0))
        for values in sides
        for each in arrays_by_name(values, step, "gradient").values()
    ]
    return CANCELLED * max(largest, default=0.0)


def _distance(
    kind: str, step: int, got: Array, whole: Array, at: Arrangement, where: Any
) -> tuple[float, float]:
    """Return how far a value is off, relative to the largest of its whole, and the bound."""
    bound = bound_of(whole, step)
    wanted = at.part_of(whole).astype(float)
    if got.shape != wanted.shape:
        return float("inf"), bound
    if kind == "gradient":
        size = float(np.abs(whole.astype(float)).max(initial=0.0))
        size = max(size, size_of_gradients([where[0]], step))
        apart = float(np.abs(got.astype(float) - wanted).max(initial=0.0))
        return (apart / size if size else apart), bound
    reference, values, name = where
    before = _weights_before(reference, step, at.name)
    mine = _weights_before(values, step, name)
    if before is None or mine is None:
        return 0.0, bound
    moved = wanted - at.part_of(before).astype(float)
    own = got.astype(float) - mine.astype(float)
    size = float(np.linalg.norm(moved))
    apart = float(np.linalg.norm(own - moved))
    # Adam's first step is a sign: single elements near zero say nothing, the whole step does
    scale = float(np.abs(wanted).max(initial=0.0)) * EPS.get(str(whole.dtype), 2.0**-24)
    floor = 4 * scale * moved.size**0.5
    return (max(apart - floor, 0.0) / size if size else 0.0), max(bound, 1e-3)


def _weights_before(values: Values, step: int, name: str) -> Array | None:
    if step == 0:
        return arrays_by_name(values, 0, "before").get(name)
    return arrays_by_name(values, step - 1, "after").get(name)


def _choose_deviation(sure: list[_Deviation], reference: Values, layout: Layout) -> _Deviation:
    """Return the deviation that shows most of those of the first kind: one number says nothing."""
    first = sure[0]
    alike = [each for each in sure if (each.step, each.kind) == (first.step, first.kind)]
    wholes = arrays_by_name(reference, first.step, first.kind)
    return next((e for e in alike if wholes[layout[e.rank][e.name].name].size > 1), first)


def _make_finding(
    first: _Deviation,
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
    records: Records,
) -> ValueFinding:
    what = "the gradient of" if first.kind == "gradient" else "the weight"
    step = next(
        (s for s in records[first.rank].steps if s.turn == first.step),
        records[first.rank].steps[0],
    )
    words, hint = _explain(first, reference, held, layout)
    record = records[first.rank]
    frames = _frames_to_blame(first, record, words)
    changed = _frames_of_change(record, step, first.name)
    is_changed = bool(changed) and _is_left_right(first, reference, held, layout)
    if is_changed and "nothing computes it" not in words:
        frames = changed
        words += ", though what backward leaves is right: it is changed before the optimizer"
        hint = "look at what reduces, scales or copies gradients between backward and the step"
    return ValueFinding(
        code="not_equivalent",
        message=f"step {first.step}: {what} `{first.name}` on rank {first.rank} {words} "
        f"({first.off / first.bound:.3g} times what rounding does)",
        ranks=(first.rank,),
        rank=first.rank,
        place=step.place,
        frames=frames,
        hint=hint,
        turn=first.step,
        name=first.name,
    )


def _is_left_right(
    first: _Deviation, reference: Values, held: Mapping[int, Values], layout: Layout
) -> bool:
    """Whether what backward leaves, on the ranks that hold one part, is what one process has.

    Each rank's loss is the mean of its own rows, or their part of the mean of all: the mean over
    ranks is the reference's, or as many times smaller; an expert's rows are those of all ranks.
    """
    if first.kind != "gradient":
        return False
    at = layout[first.rank][first.name]
    whole = arrays_by_name(reference, first.step, "left").get(at.name)
    parts = [
        arrays_by_name(held[rank], first.step, "left").get(name)
        for rank, own in layout.items()
        for name, each in own.items()
        if each == at
    ]
    left = [each.astype(float) for each in parts if each is not None]
    if whole is None or len(left) < len(parts) or not left:
        return False
    wanted = at.part_of(whole).astype(float)
    if any(each.shape != wanted.shape for each in left) or not wanted.any():
        return False
    mean = np.mean(left, axis=0)
    factors = (1.0, 1 / len(held)) if len(left) > 1 else (1.0, 1 / len(held), float(len(held)))
    return any(_is_near(mean, factor * wanted) for factor in factors)


def _frames_of_change(
    record: ValueRecord, step: OptimizerStep, name: str
) -> tuple[tuple[str, int, str], ...]:
    """Return where a gradient is changed after backward.

    At its last collective, else at any, else where it is clipped.
    """
    passes = [e.at for e in record.of_kind("bw") if e.at < step.at]
    began = passes[-1] if passes else 0
    number = record.names.get(name, -1)
    calls = [each for each in record.calls if began < each.at < step.at]
    own = [c for c in calls if any(t.exact and number in t.parameters for t in c.tensors)]
    clips = [e.details[1] for e in record.of_kind("clip") if began < e.at < step.at]
    places = [each.place for each in own or calls] or clips
    return record.places.get(places[-1], ()) if places else ()


def _frames_to_blame(
    first: _Deviation, record: ValueRecord, words: str
) -> tuple[tuple[str, int, str], ...]:
    """Return where a wrong gradient comes from: its reduction, or the loss; else nowhere."""
    if first.kind != "gradient":
        return ()
    if "nothing computes it" in words:
        module = first.name.rpartition(".")[0]
        for event in record.of_kind("out"):
            frames = record.places.get(event.details[3], ())
            if event.details[1].partition("#")[0] == module and is_in_forward(frames):
                return frames
        return ()
    number = record.names.get(first.name, -1)
    for call in record.calls:
        is_own = any(e.carries == "gradient" and number in e.parameters for e in call.tensors)
        is_other = "times what one process has" in words or call.op not in {"", "sum", "avg"}
        if call.turn == first.step and is_own and is_other:
            return record.places.get(call.place, ())
    passes = [e.details[1] for e in record.of_kind("bw") if e.details[0] == first.step]
    return frames_of_loss(record, passes[0]) if passes else ()


def _explain(
    first: _Deviation, reference: Values, held: Mapping[int, Values], layout: Layout
) -> tuple[str, str]:
    """Return what a value is in place of the reference's, and what to do."""
    at = layout[first.rank][first.name]
    whole = arrays_by_name(reference, first.step, first.kind)[at.name]
    wanted = at.part_of(whole).astype(float)
    got = arrays_by_name(held[first.rank], first.step, first.kind)[first.name].astype(float)
    if first.kind != "gradient" or got.shape != wanted.shape:
        return "is not what one process has", "look at what the optimizer does differently"
    size = float(np.abs(wanted).max(initial=0.0)) or 1.0

    def is_close(value: Array, to: Array) -> bool:
        return float(np.abs(value - to).max(initial=0.0)) <= SURE * first.bound * size

    if not got.any():
        return "is zero", "let the gradient come back to this parameter"
    power = float((wanted * wanted).sum())
    ratio = float((got * wanted).sum()) / power if power else 0.0
    if ratio and is_close(got / ratio, wanted):
        known = f"{ratio:.4g}" if ratio >= 1 else f"1/{1 / ratio:.4g}"
        return (
            f"is {known} times what one process has (there are {len(held)} ranks)",
            (
                "divide by what was really summed: the ranks that hold other rows, the "
                "microbatches, the tokens of all of them"
            ),
        )
    alike = {
        rank: arrays_by_name(values, first.step, first.kind).get(name)
        for rank, values in held.items()
        for name, each in layout[rank].items()
        if each == at
    }
    parts = [each.astype(float) for each in alike.values() if each is not None]
    if len(parts) > 1 and all(each.shape == wanted.shape for each in parts):
        total = np.sum(parts, axis=0)
        for what, value in (("sum", total), ("mean", total / len(parts))):
            if is_close(value, wanted):
                return (
                    (
                        f"is this rank's own: the {what} over {ranks_text(tuple(alike))} is what "
                        "one process has, and nothing computes it"
                    ),
                    "reduce it over these ranks before the optimizer steps",
                )
    before = arrays_by_name(reference, first.step - 1, first.kind).get(at.name)
    if before is not None and is_close(got, at.part_of(before).astype(float)):
        return "is that of the step before", "wait for the reduction before the optimizer steps"
    return (
        "is not what one process has",
        "compare how its loss is averaged: over rows, tokens and ranks",
    )
