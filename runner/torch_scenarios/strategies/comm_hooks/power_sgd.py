"""`powerSGD_hook`: each large gradient travels as two thin matrices (arXiv 1905.13727).

```text
M [n, m], the rank's gradient and what it lost before      Q [m, r], from the step before
P = M Q            all_reduce         P orthogonalised
Q = M' P           all_reduce, mean   M = P Q'              lost: what M was before, less this
```

The first Q is `torch.randn` from a seed that NumPy's generator draws, so that all ranks have it: it
is made here without torch (:class:`Normal`). What is not worth it, all vectors, travels whole.

As torch 2.13 has it (`powerSGD_hook.py`): three all_reduces a bucket, of what travels whole, of all
P and of all Q, each of them also where it is empty; those of equal shapes lie one behind the other.
Its later calls are callbacks: with more than one bucket those of Gloo, which has two threads for
them, wait for each other for ever.

A column that is nothing but rounding has any direction once it has length 1. So each step is done
once more in float64, with what all ranks give, and tells how far rounding may lead in it
(:func:`bound_of_step`); what a rank carries on from step to step is off by what both are apart.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module
from math import prod
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from torch_scenarios.modules.base import Array
from torch_scenarios.operations.base import Caller, Group, Part
from torch_scenarios.strategies.comm_hooks.all_reduce import average
from torch_scenarios.strategies.comm_hooks.base import AT, Bucket, Hook, HookSide
from torch_scenarios.strategies.one_process import charge
from torch_scenarios.strategies.tolerance import EPSILON, measure_distance
from torch_scenarios.strategies.trainee import sum_over

#: the first step at which buckets stay what they are
SETTLED = 2
#: all_reduces of a bucket
CALLS = 3
#: by how much a column may be turned by rounding, and its direction be known
TURNED = 0.5
#: columns from which on torch orthogonalises by a QR decomposition, and not column by column
BY_QR = 3


class PowerSGD(Hook, frozen=True, kw_only=True):
    """`powerSGD_hook`, with the arguments of `PowerSGDState`."""

    name = "powerSGD_hook"
    matrix_approximation_rank: int = 1
    start_powerSGD_iter: int = 1_000
    min_compression_rate: float = 2
    use_error_feedback: bool = True
    warm_start: bool = True
    orthogonalization_epsilon: float = 0
    random_seed: int = 0
    batch_tensors_with_same_shape: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for what torch refuses, and for no rank at all."""
        if self.matrix_approximation_rank < 1:
            message = "`matrix_approximation_rank` is 1 or more"
            raise ValueError(message)
        if not 0 <= self.random_seed < 1 << 32:
            message = "`random_seed` is between 0 and 2**32 - 1"
            raise ValueError(message)
        keeps = self.use_error_feedback or self.warm_start
        if keeps and self.start_powerSGD_iter < SETTLED:
            message = (
                f"`start_powerSGD_iter` is {SETTLED} or more with `use_error_feedback` or"
                " `warm_start`: buckets are built anew before"
            )
            raise ValueError(message)

    def find_mismatch(self, buckets: int, *, counts: bool) -> str | None:
        """Several buckets stop on Gloo, and so do calls beside its own."""
        if counts:
            return (
                "powerSGD_hook with find_unused_parameters: the used ones are counted while"
                " callbacks make the hook's calls: calls of other sizes meet, and Gloo aborts"
            )
        if buckets == 1:
            return None
        return (
            f"powerSGD_hook over {buckets} buckets: each waits in a thread of Gloo's for its second"
            " all_reduce, and there are two threads"
        )

    def register(self, real: Any, wrapped: Any, group: Any) -> None:
        """Register it with its state, and let its calls be noted in any thread."""
        module: Any = import_module(f"{AT}.powerSGD_hook")
        state = module.PowerSGDState(process_group=group, **asdict(self))
        module.dist = ObservedDistributed(real.torch.distributed)
        wrapped.register_comm_hook(state, module.powerSGD_hook)

    def side(self, group: Group, caller: Caller, shared: dict[Any, Any]) -> HookSide:
        """Return a side that keeps what was lost, and the last matrices."""
        return PowerSide(self, group, caller, shared)


class ObservedDistributed:
    """`torch.distributed`, whose all_reduce is seen by the mode of the thread that trains.

    The callbacks of a future run in the thread that completed it, where no mode is set.
    """

    def __init__(self, dist: Any) -> None:
        """Begin without a mode."""
        self._dist = dist
        self._current = import_module("torch.utils._python_dispatch")._get_current_dispatch_mode
        self._mode: Any = None

    def __getattr__(self, name: str) -> Any:
        """Return what the module has."""
        return getattr(self._dist, name)

    def all_reduce(self, *args: Any, **kwargs: Any) -> Any:
        """Call it under the mode under which the first call of a bucket was made."""
        mode = self._current()
        if mode is not None or self._mode is None:
            self._mode = mode
            return self._dist.all_reduce(*args, **kwargs)
        with self._mode:
            return self._dist.all_reduce(*args, **kwargs)


class BucketState(Struct, frozen=True, kw_only=True):
    """What a rank keeps of a bucket: what it lost, and all Q of the last step, in one array."""

    error: Array | None = None
    q: Array | None = None


#: a step on one bucket: it yields what is to be summed, and is sent the sum
LowRankStep: TypeAlias = Generator[Array, Array, tuple[Array, BucketState]]


class Witness(Struct, kw_only=True):
    """One step of a bucket as all ranks give it, to be done once more in float64.

    Ranks share it: each gives its gradients before the first all_reduce, and behind it one of them
    does the step for all.
    """

    given: dict[int, Bucket] = field(default_factory=dict)
    memories: dict[int, BucketState] = field(default_factory=dict)
    made: Array | None = None
    #: how far rounding may lead in this step, element by element
    off: Array | None = None


class PowerSide(HookSide):
    """Low-rank gradients, from a step on.

        gradient [n, m]  ~  P [n, r] Q [m, r]^T        n * m numbers become r * (n + m)

        P = M Q      all_reduce P, orthogonalise
        Q = M^T P    all_reduce Q

    What the product misses is kept on the rank and added to the next gradient (error feedback). So
    the result is not the mean of one step, and is right only over many (Vogels and others 2019).
    """

    rounds = True

    def __init__(
        self, hook: PowerSGD, group: Group, caller: Caller, shared: dict[Any, Any]
    ) -> None:
        """Begin with no step; `shared` is what the ranks of the model have in common."""
        super().__init__(group)
        self._hook, self._rank, self._shared = hook, caller.rank, shared
        self._steps = 0
        self._seeds = np.random.RandomState(hook.random_seed)
        self._memory: dict[int, BucketState] = {}

    def mean(self, bucket: Bucket) -> Generator[Part, None, Array]:
        """Average, or from a step on send P and Q."""
        if self._steps < self._hook.start_powerSGD_iter:
            self._steps += bucket.is_last
            return (yield from average(self.group, bucket.flat))
        self.departure = (
            f"{self._hook.name} sends gradients as matrices of rank"
            f" {self._hook.matrix_approximation_rank}"
        )
        self._steps += bucket.is_last
        key = (self._hook.name, bucket.number, self._steps)
        memory = self._memory.get(bucket.number, BucketState())
        shapes = self._stack(bucket)
        first = self._draw(shapes) if memory.q is None else memory.q
        memory = replace(memory, q=first)
        self._give(key, bucket)
        step = self._step(bucket, bucket.flat, memory)
        sums: Any = None  # what a generator is sent at first
        for _ in range(CALLS):
            sums = yield from sum_over(self.group, step.send(sums))
        made, self._memory[bucket.number] = _return_sums(step, sums)
        self.off = self._witness(key, bucket, first, made)
        return made

    def _step(self, bucket: Bucket, given: Array, memory: BucketState) -> LowRankStep:
        """Do one step on what a rank gives; yield what is summed, and be sent the sum.

        Returns what stands for the mean, and what the rank keeps.
        """
        hook, size = self._hook, given.dtype.type(self.group.size)
        flat = given.copy()
        if hook.use_error_feedback and memory.error is not None:
            flat += memory.error
        before = flat.copy()
        stacks, whole = self._part(bucket.gradients(flat))
        assert memory.q is not None
        qs = [
            orthogonal(each, hook.orthogonalization_epsilon) for each in _cut(memory.q, stacks, 1)
        ]
        ps = [np.stack(stack.held) @ each for stack, each in zip(stacks, qs, strict=True)]
        mean = (yield np.concatenate([flat[:0], *(each.reshape(-1) for each in whole)])) / size
        at = 0
        for gradient in whole:
            gradient[...] = mean[at : at + gradient.size].reshape(gradient.shape)
            at += gradient.size
        p = yield np.concatenate([flat[:0], *(each.reshape(-1) for each in ps)])
        ps = [orthogonal(each, hook.orthogonalization_epsilon) for each in _cut(p, stacks, 0)]
        back = [
            np.stack(stack.held).swapaxes(1, 2) @ each
            for stack, each in zip(stacks, ps, strict=True)
        ]
        q = (yield np.concatenate([flat[:0], *(each.reshape(-1) for each in back)])) / size
        for stack, left, right in zip(stacks, ps, _cut(q, stacks, 1), strict=True):
            for matrix, made in zip(stack.held, left @ right.swapaxes(1, 2), strict=True):
                matrix[...] = made
        return flat, BucketState(error=before - flat, q=q if hook.warm_start else None)

    def _part(self, gradients: list[Array]) -> tuple[list[Matrices], list[Array]]:
        """Return the matrices that are worth it, by their shapes, and the gradients that are not.

        Each matrix is alone, unless those of one shape are taken together.
        """
        alike: dict[tuple[int, ...], list[Array]] = {}
        whole = []
        for gradient in gradients:
            matrix = gradient.reshape(gradient.shape[0], -1)
            rows, columns = matrix.shape
            less = (rows + columns) * self._columns(rows, columns)
            if less * self._hook.min_compression_rate < rows * columns:
                alike.setdefault(matrix.shape, []).append(matrix)
            else:
                whole.append(gradient)
        together = self._hook.batch_tensors_with_same_shape
        return [
            Matrices(held=held, columns=self._columns(*shape))
            for shape, listed in alike.items()
            for held in ([listed] if together else [[each] for each in listed])
        ], whole

    def _columns(self, rows: int, columns: int) -> int:
        return min(rows, columns, self._hook.matrix_approximation_rank)

    def _stack(self, bucket: Bucket) -> list[Matrices]:
        return self._part(bucket.gradients(bucket.flat))[0]

    def _draw(self, stacks: list[Matrices]) -> Array:
        """Return all Q at random, one behind the other."""
        normal = Normal(int(self._seeds.randint(1_000_000_000)))
        sizes = [len(each.held) * each.held[0].shape[1] * each.columns for each in stacks]
        return np.concatenate([np.zeros(0, np.float32), *map(normal.sample, sizes)])

    # ------------------------------------------------------------------ once more, in float64

    def _give(self, key: tuple[Any, ...], bucket: Bucket) -> None:
        """Let all ranks know what this one gives."""
        found = self._shared.get(key)
        if found is None or self._rank in found.given:  # it is one of a run before
            found = self._shared[key] = Witness()
        exact = bucket.flat if bucket.exact is None else bucket.exact
        found.given[self._rank] = replace(bucket, flat=exact.astype(np.float64))

    def _witness(
        self, key: tuple[Any, ...], bucket: Bucket, first: Array, made: Array
    ) -> Array | None:
        """Return how far rounding may bring the mean; None where a rank has not given its part."""
        found: Witness = self._shared[key]
        if found.made is None and len(found.given) == self.group.size:
            before: Witness = self._shared.get((*key[:2], key[2] - 1), Witness())
            charge(bucket.flat.size, (), processes=self.group.size)
            memories = {}
            for rank in found.given:
                memory = before.memories.get(rank, BucketState())
                memories[rank] = replace(memory, q=first.astype(np.float64))
                if memory.q is not None:
                    memories[rank] = memory
            steps = [
                (rank, self._step(bucket, given.flat, memories[rank]))
                for rank, given in found.given.items()
            ]
            sums: Any = None
            for _ in range(CALLS):
                sums = np.sum([step.send(sums) for _, step in steps], axis=0)
            for rank, step in steps:
                found.made, found.memories[rank] = _return_sums(step, sums)
            found.off = self.bound(list(found.given.values()), list(memories.values()))
        if found.made is None or found.off is None:
            return None
        parts = zip(*(bucket.gradients(each) for each in (made, found.made)), strict=True)
        carried = [np.full(mine.size, measure_distance(mine, exact)) for mine, exact in parts]
        carry: Array = np.concatenate(carried)
        return found.off + carry

    def bound(self, given: list[Bucket], memories: list[BucketState]) -> Array:
        """Return how far rounding may lead in one step of all ranks, element by element."""
        lost = [
            memory.error
            if self._hook.use_error_feedback and memory.error is not None
            else np.zeros_like(each.flat)
            for each, memory in zip(given, memories, strict=True)
        ]
        flats = np.stack([each.flat + error for each, error in zip(given, lost, strict=True)])
        # gradients that travel whole are rounded where ranks add them up
        found: Array = self.group.size * EPSILON * np.abs(flats).mean(axis=0)
        held = [self._part(given[0].gradients(each))[0] for each in flats]
        rest = self._part(given[0].gradients(found))[0]
        q = memories[0].q
        assert q is not None
        for at, (stack, right) in enumerate(zip(rest, _cut(q, rest, 1), strict=True)):
            made = bound_of_step(
                np.stack([np.stack(each[at].held) for each in held]),
                right,
                self._hook.orthogonalization_epsilon,
            )
            for matrix, each in zip(stack.held, made, strict=True):
                matrix[...] = each
        return found


def _return_sums(step: LowRankStep, sums: Array) -> tuple[Array, BucketState]:
    """Send the last sum; return what the step returns."""
    try:
        step.send(sums)
    except StopIteration as end:
        made: tuple[Array, BucketState] = end.value
        return made
    message = "a step has more calls than it makes"
    raise AssertionError(message)


class Matrices(Struct, frozen=True, kw_only=True):
    """Matrices of one shape that are taken together, and the columns of their P and Q.

    Torch multiplies all of them in one call (`torch.bmm`); the order of additions is that of a
    batch.
    """

    held: list[Array]
    columns: int


def _cut(flat: Array, stacks: list[Matrices], axis: int) -> list[Array]:
    """Return the thin matrices of each stack: `[matrices, rows, columns]`.

    The rows are those of the matrices (axis 0), or their columns (axis 1).
    """
    found, at = [], 0
    for stack in stacks:
        shape = (len(stack.held), stack.held[0].shape[axis], stack.columns)
        size = prod(shape)
        found.append(flat[at : at + size].reshape(shape))
        at += size
    return found


def orthogonal(matrices: Array, epsilon: float) -> Array:
    """Return matrices `[n, rows, columns]` whose columns are orthogonal, and of length 1.

    Column by column (Gram-Schmidt) up to two columns, by a QR decomposition from three on;
    `epsilon` is added to a length before it divides: without it a column of zeros becomes NaN.
    """
    if matrices.shape[2] >= BY_QR:
        return np.stack([np.linalg.qr(each)[0] for each in matrices])
    found: Array = matrices.copy()
    with np.errstate(all="ignore"):
        for at in range(found.shape[2]):
            column = found[:, :, at : at + 1]
            length = np.sqrt((column**2).sum(axis=1, keepdims=True))
            column /= length + length.dtype.type(epsilon)
            rest = found[:, :, at + 1 :]
            rest -= (column * rest).sum(axis=1, keepdims=True) * column
    return found


def bound_of_step(held: Array, q: Array, epsilon: float) -> Array:
    """Return how far float32 may be off in one step, element by element: `[n, rows, columns]`.

    `held` are the matrices of all ranks, `[ranks, n, rows, columns]` in float64; `q` is what they
    carry, `[n, columns, rank]`.

    A sum of k products is off by at most k / 2 last bits of what their absolute values amount to
    (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). With P = W R, W orthogonal, what
    P is off by reaches W W' M by the inverse of R: much, where a column of P is nearly a multiple
    of another. Two columns that Gram and Schmidt made orthogonal are so but for as much (19.8).
    From a column on that may be turned by a half nothing is known but its length: it takes any part
    of what the columns before it have left, and of all where it need not be orthogonal.
    """
    ranks, _, rows, columns = held.shape
    bit, mean, sizes = EPSILON / 2, held.mean(axis=0), np.abs(held).mean(axis=0)
    q = np.nan_to_num(orthogonal(q, epsilon))
    p = mean @ q
    w = np.nan_to_num(orthogonal(p, epsilon))
    r = np.linalg.pinv(w) @ p  # a length that has a number added makes w shorter than 1
    off_p = (columns + ranks + 4) * bit * (sizes @ np.abs(q))
    with np.errstate(all="ignore"):
        inverse = _inverse(r)
        lengths = np.linalg.norm(off_p @ np.abs(inverse), axis=1)
        turned = np.sqrt(np.cumsum(lengths**2, axis=1))
    known = turned < TURNED
    inverse = np.where(known[:, :, None] & known[:, None, :], inverse, 0.0)
    w = w * known[:, None, :]
    size, back = np.abs(w), w.swapaxes(1, 2) @ mean
    left = mean - w @ back
    aslant = (rows + 4) * bit * np.broadcast_to(np.eye(r.shape[1]), r.shape)
    if r.shape[1] == BY_QR - 1:
        lost = np.linalg.norm(p[:, :, 1], axis=1) * np.abs(inverse[:, 1, 1])
        aslant = aslant + ((rows + 4) * bit * lost)[:, None, None] * (1 - np.eye(2))
    off = (
        off_p @ np.abs(inverse @ back)
        + size @ (off_p @ np.abs(inverse)).swapaxes(1, 2) @ np.abs(left)
        + size @ aslant @ np.abs(back)
        + (rows + ranks + 1) * bit * (size @ size.swapaxes(1, 2) @ sizes)
        + (r.shape[1] + 1) * bit * (size @ np.abs(back))
    )
    # the inverse is that of P as it is: one that is further off has a larger one
    off /= 1 - np.where(known, turned, 0.0).max(axis=1)[:, None, None]
    rest = np.linalg.norm(left if r.shape[1] >= BY_QR else mean, axis=1)
    return np.asarray(off + 2 * np.where(known.all(axis=1)[:, None], 0.0, rest)[:, None, :])


def _inverse(r: Array) -> Array:
    """Return the inverses of triangles `[n, k, k]`: none behind a column of zeros is finite."""
    found = np.zeros_like(r)
    for at in range(r.shape[1]):
        found[:, at, at] = 1 / r[:, at, at]
        before = (found[:, :at, :at] @ r[:, :at, at : at + 1])[:, :, 0]
        found[:, :at, at] = -before / r[:, at, at][:, None]
    return found


#: so many numbers torch fills at once, and with fewer it draws them one by one
FILLED = 16


class Normal:
    """`torch.randn` in float32 on a CPU, behind `torch.manual_seed`, without torch.

    The generator is the Mersenne twister that NumPy has as well; normal numbers are made in pairs
    (Box and Muller), as torch 2.13 makes them (`aten/src/ATen/native/cpu/DistributionTemplates.h`):
    16 at once from numbers of 24 bits, or one by one from numbers of 53 bits, whose second waits.
    """

    def __init__(self, seed: int) -> None:
        """Begin with a seed below 2**32."""
        self._bits = np.random.RandomState(seed)
        self._waiting: float | None = None

    def sample(self, count: int) -> Array:
        """Return so many numbers, in float32."""
        if count < FILLED:
            return np.asarray([self._one() for _ in range(count)], np.float32)
        found = self._uniform(count)
        for at in range(0, count - FILLED + 1, FILLED):
            found[at : at + FILLED] = _pairs(found[at : at + FILLED])
        if count % FILLED:
            found[-FILLED:] = _pairs(self._uniform(FILLED))
        return found

    def _words(self, count: int) -> Array:
        return self._bits.randint(0, 1 << 32, size=count, dtype=np.uint32)

    def _uniform(self, count: int) -> Array:
        """Return numbers from 0 to 1, of 24 bits each."""
        return (self._words(count) & ((1 << 24) - 1)).astype(np.float32) / np.float32(1 << 24)

    def _one(self) -> float:
        if self._waiting is not None:
            found, self._waiting = self._waiting, None
            return found
        words = self._words(4).astype(object)
        first, second = (
            ((words[at] << 32 | words[at + 1]) & ((1 << 53) - 1)) / (1 << 53) for at in (0, 2)
        )
        radius = np.sqrt(-2 * np.log1p(-second))
        self._waiting = float(radius * np.sin(2 * np.pi * first))
        return float(radius * np.cos(2 * np.pi * first))


def _pairs(uniform: Array) -> Array:
    """Return 16 normal numbers of 16 uniform ones: lengths from one half, angles from the other."""
    half = FILLED // 2
    radius = np.sqrt(np.float32(-2) * np.log(np.float32(1) - uniform[:half]))
    angle = np.float32(2 * np.pi) * uniform[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
