"""The names of tensors, and what each of them is declared to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Slot
from torch_scenarios.record.format import RecordedCall, Tensor
from torch_scenarios.record.kernels.ledger import ACTIVATIONS
from torch_scenarios.record.program.sizes import Sizes
from torch_scenarios.vocabulary import DTYPES

#: operation of one message -> the argument that names the other rank
MESSAGES = {"send": "dst", "recv": "src"}

_SHORT = {"float": "f", "bfloat": "bf", "uint": "u", "int": "i", "complex": "c", "bool": "b"}

AHEAD = "ahead"

#: what marks a tensor that is sent while the rank goes on: it may receive meanwhile
SENT = "sent"

#: operations whose tensors are rows of any number, which may differ by rank
ROWS = frozenset({"all_to_all_single"})

#: memory that is not known
NOWHERE = Tensor(dtype="", shape=())


class TensorInUse(Struct, frozen=True, kw_only=True):
    """A tensor that an operation uses, by the name that it has in the scenario."""

    name: str
    tensor: Tensor
    writes: bool


#: work in flight on a rank, by its handle: the number of its call, and what it uses
InUse: TypeAlias = dict[str, tuple[int, tuple[TensorInUse, ...]]]


class TouchedEarlyError(Exception):
    """The memory of a receive is touched before it is over.

    Then its name matters: a scenario that gave it memory of its own would hide a race.
    """


class Tensors:
    """The tensors of a scenario: two have one name where they are alike and never in use at once.

    `declared` has the declaration of each name, as YAML.

    A training script makes new tensors in each turn. By address they would be thousands; by dtype
    and shape a file has a few: `f32_64x64`, and `f32_64x64_n2` where two are in use at once. Where
    memory overlaps in the record, one name is used for both, so that a race in the script is one in
    the scenario.
    """

    def __init__(self, sizes: Sizes) -> None:
        """Name none yet."""
        self._sizes = sizes
        self.declared: dict[str, str] = {}
        #: tensors of receives that are numbered: dtype and shape of one
        self._ahead: dict[str, tuple[str, tuple[int, ...]]] = {}
        #: the bytes of each tensor, by its name
        self._bytes: dict[str, int] = {}

    def name_ahead(self, call: RecordedCall, in_use: InUse) -> TensorInUse:
        """Return the tensor of a receive without a name, which is waited for later.

        Raises TouchedEarlyError where its memory is in use: then names matter.
        """
        (tensor,) = call.outputs
        if any(_overlap(tensor, each.tensor) for _, held in in_use.values() for each in held):
            raise TouchedEarlyError
        dtype = tensor.dtype if tensor.dtype in DTYPES else "uint8"
        shape = self._find_shape(call, tensor)
        name = f"{_shorten_dtype(dtype)}_{'x'.join(map(str, shape)) or 'scalar'}_{AHEAD}"
        self._ahead[name] = dtype, shape
        return TensorInUse(name=name, tensor=tensor, writes=True)

    def declare_ahead(self, sizes: Callable[[str], Iterable[tuple[str, int]]]) -> None:
        """Declare the tensors of receives: for each name its pools, and how many are in each."""
        for name, (dtype, shape) in self._ahead.items():
            for pool, size in sizes(name):
                dims = ", ".join(map(str, shape if size == 1 else (size, *shape)))
                self.declared[f"{name}{pool}"] = _declare(dtype, f'"zeros([{dims}])"')

    def declare_held(self, held: Mapping[str, int]) -> dict[str, str]:
        """Return tensors for what a rank holds, in bytes by kind, but for what it communicates."""
        sent = sum(self._bytes[name] for name in self.declared if name in self._bytes)
        found = {}
        for kind, size in held.items():
            rest = max(0, size - sent) if kind == ACTIVATIONS else size
            if rest:
                found[f"held_{kind}"] = f"{{shape: {rest}, value: 0, dtype: uint8}}"
        return found

    def name_all(
        self,
        call: RecordedCall,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        in_use: InUse,
        used: list[TensorInUse],
    ) -> tuple[str, ...]:
        """Return the names of what a call passes, in the order of the operation's arguments."""
        found = []
        for slot in tensor_slots(call.operation):
            writes = slot.of.startswith("out") or BY_NAME[call.operation].in_place
            tensors = inputs if slot.of.startswith("in") else outputs
            if slot.of.endswith("s"):
                # a rank that is not the root passes no list: there is one tensor for each member
                other = outputs if tensors is inputs else inputs
                listed = tensors or (_merge(other[0], len(call.group)),)
                found.append(self._name_list(call, listed, in_use, used, slot.mark, writes=writes))
            elif tensors:
                first = tensors[0]
                shape = self._find_shape(call, first)
                is_sent = MESSAGES.get(call.operation) == "dst" and not call.completes
                mark = SENT if is_sent else slot.mark
                found.append(self._name_tensor(first, shape, in_use, used, mark, writes=writes))
        return tuple(found)

    def _find_shape(self, call: RecordedCall, tensor: Tensor) -> tuple[int, ...]:
        if call.operation in ROWS and self._sizes.reduced:
            return tensor.shape[:1]
        return self._sizes.of(tensor)

    def _name_tensor(
        self,
        tensor: Tensor,
        shape: tuple[int, ...],
        in_use: InUse,
        used: list[TensorInUse],
        mark: str = "",
        *,
        writes: bool,
    ) -> str:
        dtype = tensor.dtype if tensor.dtype in DTYPES else "uint8"
        base = f"{_shorten_dtype(dtype)}_{'x'.join(map(str, shape)) or 'scalar'}"
        base += f"_{mark}" if mark else ""
        value = f"zeros([{', '.join(map(str, shape))}])"
        return self._choose(base, dtype, f'"{value}"', tensor, in_use, used, writes=writes)

    def _name_list(
        self,
        call: RecordedCall,
        tensors: Sequence[Tensor],
        in_use: InUse,
        used: list[TensorInUse],
        mark: str = "",
        *,
        writes: bool,
    ) -> str:
        """Return the name of a list of tensors; members of one shape are a comprehension.

        The memory of a list is taken to be from the lowest address on, as long as all of its
        members together.
        """
        first = tensors[0] if tensors else Tensor(dtype="float32", shape=())
        dtype = first.dtype if first.dtype in DTYPES else "uint8"
        shapes = [self._find_shape(call, each) for each in tensors for _ in range(each.count)]
        if len(set(shapes)) == 1:
            inner = ", ".join(map(str, shapes[0]))
            value = f"[zeros([{inner}]) for i in range({len(shapes)})]"
            size = "x".join(map(str, shapes[0])) or "scalar"
            base = f"{_shorten_dtype(dtype)}_{size}_of_{len(shapes)}"
        else:
            value = f"[{', '.join(f'zeros({list(each)})' for each in shapes)}]"
            base = f"{_shorten_dtype(dtype)}_list_of_{len(shapes)}"
        base += f"_{mark}" if mark else ""
        whole = Tensor(
            dtype=dtype,
            shape=(),
            address=min((each.address for each in tensors), default=0),
            size=sum(each.size for each in tensors),
        )
        return self._choose(base, dtype, f'"{value}"', whole, in_use, used, writes=writes)

    def _choose(
        self,
        base: str,
        dtype: str,
        value: str,
        tensor: Tensor,
        in_use: InUse,
        used: list[TensorInUse],
        *,
        writes: bool,
    ) -> str:
        """Return the first name that no work in flight uses for other memory.

        A tensor of which work is under way keeps the name that this has for its memory, so that a
        race in the script is one in the scenario. Otherwise names stand for shapes and not for
        tensors: `f32_4x8` is used again and again, and a second one, `f32_4x8_n2`, only where the
        first is in use.
        """
        open_accesses = [each for _, held in in_use.values() for each in held]
        for each in open_accesses:
            if each.name in self._ahead and _overlap(tensor, each.tensor):
                raise TouchedEarlyError
            if _overlap(tensor, each.tensor) and self.declared.get(each.name) == _declare(
                dtype, value
            ):
                used.append(TensorInUse(name=each.name, tensor=tensor, writes=writes))
                return each.name
        # many may read one tensor at once
        taken = {each.name for each in open_accesses if writes or each.writes}
        taken |= {each.name for each in used}
        count = 1
        while True:
            name = base if count == 1 else f"{base}_n{count}"
            wanted = _declare(dtype, value)
            if name not in taken and self.declared.get(name, wanted) == wanted:
                self.declared[name] = wanted
                self._bytes[name] = tensor.size
                used.append(TensorInUse(name=name, tensor=tensor, writes=writes))
                return name
            count += 1


def tensor_slots(operation: str) -> tuple[Slot, ...]:
    """Return the arguments of an operation that hold tensors."""
    found = BY_NAME[operation].slots
    assert found is not None
    return found


def _merge(tensor: Tensor, count: int) -> Tensor:
    return Tensor(
        dtype=tensor.dtype, shape=tensor.shape, address=0, size=tensor.size * count, count=count
    )


def _overlap(one: Tensor, two: Tensor) -> bool:
    """Whether two tensors share memory, by their addresses; False where one is not known."""
    if not one.address or not two.address:
        return False
    return one.address < two.address + two.size and two.address < one.address + one.size


def _shorten_dtype(dtype: str) -> str:
    """Return a dtype as names have it: `f32`, `bf16`, `i64`."""
    head = dtype.rstrip("0123456789")
    if head in _SHORT:
        return _SHORT[head] + dtype[len(head) :]
    return dtype


def _declare(dtype: str, value: str) -> str:
    return f"{{dtype: {dtype}, value: {value}}}"
