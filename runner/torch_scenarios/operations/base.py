"""What an operation is: the seam between the language, the reference and the worker.

An operation lives in one file of this package: its arguments, what members must agree on, whom
a member needs, its reference semantics on NumPy arrays, and its torch call. Nothing here
imports torch; `execute` is handed `torch.distributed` by the worker.

The classes below are the few *shapes* that an operation can have. The simulator and the worker
know these shapes and no operation by name:

* :class:`Collective`  matched by its position among a group's operations
* :class:`PointToPoint`  messages, matched by (group, source, destination, tag)
* :class:`Waiting`  completes work that was started before
* :class:`GroupCreation`  matched by its position among a rank's creations
* :class:`Local`  needs no other rank: compute, sleep, destroy_process_group, fault
* :class:`Compound`  several calls of other operations, one after the other: redistribute
* :class:`RemoteCall`  asks another rank to run a function of the file
* :class:`Departure`  the end of a program with such calls: torch leaves the RPC world there
"""

from __future__ import annotations

import io
import pickle
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from msgspec import Struct, field
from msgspec.structs import force_setattr

from torch_scenarios.display import short
from torch_scenarios.errors import Marked
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Expression, Form, PerRank, Record
from torch_scenarios.vocabulary import WORLD

# -------------------------------------------------------------------------------------------------
# A process group, as operations and plans know it.


class Group(Marked, frozen=True, kw_only=True):
    """One process group. `ranks` are global ranks; their order is that of the group ranks.

    `key` is unique in a scenario (`even`, `pair#1`, `mesh.dp#0`); `name` is what an author writes.

    >>> even = Group(key="even", name="even", ranks=(0, 2, 4), timeout_s=10.0)
    >>> even.size, even.group_rank(4), even.group_rank(1)
    (3, 2, -1)

    `src=2` in torch is world rank 2, which is group rank 1 here; `group_src=2` is world rank 4. To
    take the one for the other is a common mistake of subgroups (scenario
    `reported/group_rank_as_source`).
    """

    apart = ("mark", "_at", "listed")

    key: str
    name: str
    ranks: tuple[int, ...]
    timeout_s: float
    backend: str | None = None
    #: world rank -> group rank; and the ranks as the list that an expression sees
    _at: dict[int, int] = field(default_factory=dict)
    listed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Index the members once: a world may have many thousands."""
        at = {rank: number for number, rank in reversed(list(enumerate(self.ranks)))}
        force_setattr(self, "_at", at)
        force_setattr(self, "listed", list(self.ranks))

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.ranks)

    def group_rank(self, rank: int) -> int:
        """Return the rank inside the group of world rank `rank`, or -1 for a non-member.

        As `torch.distributed.get_rank(group)`.
        """
        return self._at.get(rank, -1)


# -------------------------------------------------------------------------------------------------
# The values that operations take and give: what each rank enters with, and what it gets.


class Refusal(Struct, frozen=True, kw_only=True):
    """What torch raises at the call itself, on this rank, before anything is communicated.

    `kind` is one of :data:`torch_scenarios.vocabulary.RAISE_KINDS`. The diagnosis is
    `invalid_argument`. A `late` one is raised by the wait where the call is asynchronous. `about`
    is the argument that is wrong, where it is one; `lacks` the argument that has no value on this
    rank, where that is why.

    A refusal hangs no rank by itself. Its peers hang that made the same call rightly: they wait for
    a rank that raised before it sent anything.
    """

    kind: str
    message: str
    late: bool = False
    about: str | None = None
    lacks: str | None = None


class Slot(Struct, frozen=True, kw_only=True):
    """An argument that holds tensors: the first or all of what a call passes in, or takes.

    `of` is `in` or `out`, `ins` or `outs` of all. `mark` tells its tensor's name from others in a
    recorded program, `at_root` that only the root passes it, `wrapped` that it is a list of one.

        all_gather_single(output, input)      OUT_IN: the record's output and input, in this order
        broadcast(tensor)                     SENT: what the record has as input

    >>> [slot.of for slot in OUT_IN]
    ['out', 'in']
    """

    name: str
    of: str
    mark: str = ""
    at_root: bool = False
    wrapped: bool = False


OUT_IN = (Slot(name="output", of="out"), Slot(name="input", of="in"))
SENT = (Slot(name="tensor", of="in"),)


class Trial(Struct, frozen=True):
    """A call that is right on two ranks with any dtype: tensors by name, and its arguments.

        all_reduce    Trial({"x": VALUE}, {"tensor": "x"})

    `scenario conformance` asks a backend each operation with each dtype by it, so that a new
    operation is in that table once it has a trial.
    """

    tensors: Mapping[str, Any]
    arguments: Mapping[str, Any]


#: values of a trial: small integers that every dtype holds, different on each rank
VALUE = "[rank + 1, rank]"
LIST, EMPTY = "[full(2, rank + 1), full(2, rank)]", "[zeros(2), zeros(2)]"


class Disagreement(Struct, frozen=True, kw_only=True):
    """Members of one operation whose arguments do not fit together.

    `diagnosis` is one of `root_mismatch` `op_mismatch` `dtype_mismatch` `shape_mismatch`; `values`
    maps each group rank to what it passed, as text.

    >>> Disagreement(diagnosis="root_mismatch", what="root", values={0: "0", 1: "1"}).values[1]
    '1'
    """

    diagnosis: str
    what: str
    values: Mapping[int, str]


class PremulSum(Struct, frozen=True, kw_only=True):
    """The reduce op `{premul_sum: factor}`: every contribution times `factor`, then the sum.

    With the factor 1 / n it is a mean that no rank divides for: the factor is applied before the
    sum, so that a sum that would overflow float16 does not.
    """

    factor: float


class Volume(Struct, frozen=True, kw_only=True):
    """The bytes of a collective: `size` as nccl-tests counts them, `sent` by one rank in a ring.

    NaN where nothing tells: objects are pickled. The ring is that of Patarasuk and Yuan (2009); a
    rooted one hands the whole on from rank to rank.

        all_reduce of 4 bytes on 4 ranks    size 4, sent 2 * 3/4 * 4 = 6: two turns, less a hop
        broadcast of 4 bytes                size 4, sent 4: each rank hands the whole on
    """

    size: float
    sent: float


class TensorCall(Struct, frozen=True, kw_only=True):
    """One collective of tensors that a collective of objects makes.

    `size` are its bytes as nccl-tests counts them, `sent` those of each member in a ring.

        all_gather_object    an all_gather of lengths, then one of pickles, padded to the longest

    So one rank with a large object makes every rank send as much.
    """

    name: str
    size: float
    sent: tuple[float, ...]


#: bytes of the integer by which torch says how long a pickle is
LENGTH = 8


def measure_pickle(value: Any) -> int | None:
    """Return the bytes that torch pickles a plain value to; None where nothing tells for sure.

    That is `_object_to_tensor` of torch.distributed.distributed_c10d: a `pickle.Pickler` of the
    default protocol. A text, list or mapping that occurs twice is written once where it is the same
    object in memory, which a worker need not share with this process.
    """
    known: set[Any] = set()
    stack = [value]
    while stack:
        each = stack.pop()
        if each is None or type(each) in {bool, int, float}:
            continue
        if type(each) not in {str, list, dict}:
            return None
        seen = each if isinstance(each, str) else id(each)
        if seen in known:
            return None
        known.add(seen)
        if isinstance(each, dict):
            stack += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            stack += each
    file = io.BytesIO()
    pickle.Pickler(file).dump(value)
    return len(file.getvalue())


def measure_pickles(values: Iterable[Any]) -> list[int] | None:
    """Return the bytes of each value's pickle; None where one is not known."""
    found = [measure_pickle(value) for value in values]
    sizes = [size for size in found if size is not None]
    return sizes if len(sizes) == len(found) else None


NAN = float("nan")


def count_array_bytes(value: Any) -> float:
    """Return the bytes of an array, or of a list of arrays; 0 for None."""
    if isinstance(value, list | tuple):
        return sum(map(count_array_bytes, value))
    return 0.0 if value is None else float(value.nbytes)


class Entry(Struct, frozen=True, kw_only=True):
    """One rank entering an operation, its arguments evaluated.

    `arguments` holds every declared parameter under its declared name (defaults filled in). Tensors
    are arrays of the executor's namespace (NumPy in the reference), possibly views into what the
    rank holds; lists of tensors are Python lists; roots are integers or None.

    >>> pair = Group(key="pair", name="pair", ranks=(2, 5), timeout_s=10.0)
    >>> entry = Entry(rank=5, group=pair, arguments={"op": "sum"})
    >>> entry.group_rank, entry.size, entry["op"]
    (1, 2, 'sum')
    """

    rank: int
    group: Group
    arguments: Mapping[str, Any]

    @property
    def group_rank(self) -> int:
        """This rank inside the group; -1 for a non-member."""
        return self.group.group_rank(self.rank)

    @property
    def size(self) -> int:
        """The number of members."""
        return self.group.size

    def __getitem__(self, name: str) -> Any:
        """Return the argument `name`."""
        return self.arguments[name]


class Message(Struct, frozen=True, kw_only=True):
    """One message of a point-to-point operation, seen from the rank that posts it.

    `peer` is a world rank, or None for a receive from anyone. `payload` is what is sent; `buffer`
    is where to receive (a tensor, or a list for objects). `group` is None for the call's own.
    `objects` is whether torch sends two, the lengths of the pickles and then their bytes.

    >>> Message(sends=True, peer=1, tag=0, payload=[1.0]).buffer is None
    True
    """

    sends: bool
    peer: int | None
    tag: int
    payload: Any = None
    buffer: Any = None
    group: Group | None = None
    objects: bool = False


class Part(Struct, frozen=True, kw_only=True):
    """One call of those that a compound operation is made of, on one rank.

    `arguments` has every declared parameter; the tensors are those of the operation alone.

        train under DistributedDataParallel      Part(all_reduce, group, {"tensor": bucket 0, ...})
                                                 Part(all_reduce, group, {"tensor": bucket 1, ...})

    The engine carries it out as if the program had made the call. So buckets that differ from rank
    to rank are a `shape_mismatch`, with no word about buckets in any rule.
    """

    operation: Operation
    group: Group
    arguments: Mapping[str, Any]
    #: of one that returns at once: the name under which it is waited for
    handle: str | None = None


class IssuedCall(NamedTuple):
    """One collective call of a compound operation, as `communicates` states it.

    `group` is the author's name of the group, `numel` the elements of the larger side.

    >>> IssuedCall("world", "all_reduce", "float32", 1024).numel
    1024
    """

    group: str
    call: str
    dtype: str
    numel: int


class Caller(Protocol):
    """The rank that takes a step, as an operation asks it: its values, names and handles.

    :class:`torch_scenarios.model.process.Process` is one, in the analysis and in a worker. An
    operation sees no more than this, so that it cannot ask who the other ranks are or what they
    hold.
    """

    rank: int
    #: the way in which what it computes of a model is moved by its rounding; None: it is not
    way: int | None
    scope: dict[str, Any]
    handles: set[str]
    #: what it knows of the tensors that are distributed, by the names that hold their local part
    layouts: dict[str, Any]
    #: the library of its tensors
    arrays: Any
    #: the rank's own part of each model
    trainees: dict[str, Any]
    #: what it knows of the checkpoints that are written, by their names
    checkpoints: dict[str, Any]

    def evaluate(self, form: Form | None) -> Any:
        """Return the value of a form on this rank."""

    def evaluate_argument(self, param: Param, form: Form | None) -> Any:
        """Return the value of an argument, of the type that its parameter declares."""

    def roots(self, form: Form | None) -> frozenset[str]:
        """Return the names of held tensors whose storage a form's value may share."""

    def choose(self, form: PerRank[Any]) -> Any:
        """Return what a per-rank mapping means on this rank."""

    def compute(self, name: str, form: Form) -> None:
        """Let a name hold a copy of a form's value."""

    def store(self, target: Expression, form: Form) -> None:
        """Store a form's value into a part of a tensor, in place."""

    def items(self, records: Iterable[Record]) -> Iterator[Mapping[str, Form]]:
        """Yield the items of a list that are there on this rank, each where its variables are."""

    def let(self, name: str, form: Form) -> None:
        """Let a name stand for a form's number, or list of numbers."""

    def destroy(self, name: str) -> None:
        """Give a group up, or with the world every group."""

    def group(self, name: str | None) -> Group:
        """Return the group that a name means here; None is the world."""

    def mesh(self, name: str) -> tuple[Group, ...]:
        """Return this rank's group along each dimension of a device mesh; empty outside of it."""

    def members(self, model: str) -> Group:
        """Return the group of all ranks that have a part of a model."""

    def is_outside_of_a_mesh(self) -> bool:
        """Return whether there is a device mesh of which this rank is no member."""

    def hold(self, name: str, value: Any) -> None:
        """Let a name hold a value itself, without a copy."""


class ProcessExit(Exception):
    """A `fault: kill` or `fault: exit` step: the process ends here.

    `how` is a signal's name or `exit N`.
    """

    def __init__(self, how: str) -> None:
        """Keep how the process ends."""
        super().__init__(how)
        self.how = how


class RefusedError(ValueError):
    """A local step stores what does not fit: torch raises in the middle of it.

    x[0:2] = zeros(3)      RuntimeError of `Tensor.copy_`: what was stored before stays
    """


class ProgramError(Exception):
    """A `fault: {raise: message}` step: the program raises here, of kind `other`.

    It is the script's own exception, which no backend made: data that cannot be read, an assertion.
    The peers of that rank hang all the same.
    """


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype; NumPy builds it anew each time it is asked."""
    return dtype.name


# -------------------------------------------------------------------------------------------------
# Base.


class _Class(ABCMeta):
    """The class of operations: an heir must have the abstract methods, and no other class counts.

    A step asks many times of what class its operation is. A look at the base classes costs half of
    what a look into the register of other classes does.
    """

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


class Operation(metaclass=_Class):
    """One action of the language. Its class docstring is its description in the reference.

    `name` is torch's. `aliases` are older or newer names of the same function. `example` is the
    YAML of a small complete scenario that passes; it is checked by the contract tests.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    params: ClassVar[tuple[Param, ...]] = ()
    example: ClassVar[str]
    #: the YAML value of the action is this one argument itself, not a mapping of arguments
    bare: ClassVar[str | None] = None
    #: where torch documents it
    source: ClassVar[str] = ""
    #: what it is whatever the form of its tensors, as NCCL and nccl-tests name it: `all_gather` of
    #: `all_gather_single`, `send` of `isend`
    kind: ClassVar[str]
    #: what c10d's dispatcher calls it, and what a dump of torch's flight recorder does
    c10d: ClassVar[tuple[str, ...]] = ()
    dumped: ClassVar[tuple[str, ...]] = ()
    #: the arguments with its tensors, as a record of a script has them; None: it is not recorded
    slots: ClassVar[tuple[Slot, ...] | None] = None
    #: how the differential table of a backend tries it; None: it does not
    trial: ClassVar[Trial | None] = None
    #: the program of nccl-tests that measures it
    bench: ClassVar[str | None] = None
    #: the operation returns a work handle without being told to (`isend`)
    asynchronous: ClassVar[bool] = False
    #: it carries what ranks hold from one to another
    exchanges: ClassVar[bool] = False
    #: modules of torch's that have to be imported for it: seconds, before the program begins
    modules: ClassVar[tuple[str, ...]] = ()
    #: whether the name of its tensor holds a distributed tensor afterwards
    distributes: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Say where torch documents the operation, and what it is, unless it says so itself."""
        if "name" in vars(cls) and "source" not in vars(cls):
            cls.source = f"torch.distributed.{cls.name}"
        if not hasattr(cls, "kind") and hasattr(cls, "name"):
            cls.kind = cls.name

    @property
    def reduces(self) -> bool:
        """Whether it has a reduce op."""
        return any(param.name == "op" for param in self.params)

    @property
    def in_place(self) -> bool:
        """Whether it writes what it reads."""
        return any(param.writes and param.reads for param in self.params)

    @property
    def takes_objects(self) -> bool:
        """Whether what it moves are objects, which torch pickles and unpickles."""
        return any(param.kind in {"object", "objects"} for param in self.params)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: a plan refers to operations, it does not carry them."""
        return operation_named, (self.name,)

    def label(self, entry: Entry) -> str:
        """Name this call in reports: the operation, and the group unless it is the world."""
        return self.name if entry.group.name == "world" else f"{self.name} on {entry.group.name}"

    def refuse(self, entry: Entry) -> Refusal | None:
        """Return what torch itself would refuse when called so, or None."""
        return None

    def looks_up(self, entry: Entry) -> bool | None:
        """Return whether torch asks its table of groups, so that a destroyed one raises ValueError.

        False: it hands the call to the group itself, which on Gloo carries it out even then. None:
        the call has nothing to do with a group. Measured on torch 2.13.
        """
        return None

    def backend_kinds(self, entry: Entry) -> frozenset[str]:
        """Return the kinds that a backend may raise at this call although torch allows it."""
        return frozenset({"unsupported"})

    def reads(self, param: Param, entry: Entry) -> bool:
        """Return whether this call reads what the argument holds (an output it only writes)."""
        return param.reads

    def writes(self, param: Param, entry: Entry) -> bool:
        """Return whether this call may store into the argument, on this rank."""
        return param.writes

    def group_of(self, caller: Caller, given: Mapping[str, Form]) -> str | None:
        """Return the name of the group of a step; None is the world."""
        name: str | None = caller.evaluate(given.get("group"))
        return name

    def roots(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, frozenset[str]]:
        """Map each argument to the names of held tensors whose storage it may share here."""
        return {name: caller.roots(form) for name, form in self.find_shared(given).items()}

    def find_shared(self, given: Mapping[str, Form]) -> Mapping[str, Form]:
        """Return the forms of the arguments that may share the storage of held tensors."""
        return {param.name: given[param.name] for param in self.params if param.name in given}

    def read(self, entry: Entry, roots: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the names of the held tensors that this call looks at."""
        names = (roots.get(param.name, ()) for param in self.params if self.reads(param, entry))
        return frozenset().union(*names)

    def find_written(self, entry: Entry, roots: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the names of the held tensors that this call may store into."""
        found: frozenset[str] = frozenset()
        for param in self.params:
            names = roots.get(param.name)
            if names and self.writes(param, entry):
                found |= names
        return found

    def introduces(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """Return the names that the step may make: a name with no value yet is None."""
        return ()

    def numbers(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """Return the names that the step gives to numbers: a rank does not hold them as tensors."""
        return ()

    def concerns(self, caller: Caller, given: Mapping[str, Form]) -> bool:
        """Return whether a member that no `ranks:` selected takes the step."""
        return True

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate the step's arguments on one rank; defaults fill what is left out."""
        return {
            param.name: caller.evaluate_argument(param, given.get(param.name))
            for param in self.params
        }

    def bound(self, dist: ModuleType, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Return torch's call, to be made once or any number of times with the same arguments.

        `arguments` are torch's own: tensors, process groups, `dist.ReduceOp`; those that were left
        out and have no default are left out here as well. What is returned takes another tensor for
        an argument by its name. Raises what the call would raise where that can be told before.
        """
        return partial(getattr(dist, self.name), **arguments)

    def execute(self, dist: ModuleType, arguments: dict[str, Any]) -> Any:
        """Call torch, with arguments as in :meth:`bound`.

        To be overridden where that is more than one function; overriding `bound` is cheaper.
        """
        return self.bound(dist, arguments)()


class Collective(Operation):
    """An operation that every member of a group takes part in.

    `agree` lists what must be the same on every member: an argument's name, `tensor.dtype`,
    `tensor.shape`, `tensor.numel`, or `root`. `rooted` is the role of the root (`src`, `dst`).
    """

    exchanges = True
    agree: ClassVar[tuple[str, ...]] = ()
    rooted: ClassVar[str | None] = None
    #: the root when neither spelling is given, as a world rank; None: torch demands one
    default_root: ClassVar[int | None] = None
    #: whether what any other member than the root holds follows from the root's arguments and the
    #: member's place in the group alone
    from_root: ClassVar[bool] = False
    #: the argument whose bytes the call is about; with `gathers` every member has as many
    payload: ClassVar[str | None] = None
    gathers: ClassVar[bool] = False
    #: how often each of its n parts goes round a ring, less the last hop; 0: the whole is handed on
    turns: ClassVar[int] = 0

    def root(self, entry: Entry) -> int:
        """Return the root's group rank; call only on an entry that was not refused."""
        assert self.rooted is not None
        inside = entry[f"group_{self.rooted}"]
        if inside is not None:
            return int(inside)
        given = entry[self.rooted]
        world = self.default_root if given is None else given
        assert isinstance(world, int)
        return entry.group.group_rank(world)

    def is_root(self, entry: Entry) -> bool:
        """Return whether this rank is the root; False where the root is refused."""
        return self.refuse_root(entry) is None and self.root(entry) == entry.group_rank

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a root that is missing, given twice, or outside the group."""
        return self.refuse_root(entry) if self.rooted else None

    def refuse_root(self, entry: Entry) -> Refusal | None:
        """Check the root as `torch.distributed` does.

        `distributed_c10d._canonicalize_group_rank`: neither or both spellings, or a rank that is
        not a member, raise ValueError.
        """
        role = self.rooted
        assert role is not None
        world, inside = entry[role], entry[f"group_{role}"]
        if world is not None and inside is not None:
            return Refusal(
                kind="invalid_argument",
                message=f"both {role} and group_{role} are given",
                about=f"group_{role}",
            )
        if world is None and inside is None:
            if self.default_root is None:
                return Refusal(
                    kind="invalid_argument", message=f"neither {role} nor group_{role} is given"
                )
            world = self.default_root
        if inside is not None:
            if not 0 <= inside < entry.size:
                return Refusal(
                    kind="invalid_argument",
                    message=f"group_{role} {inside} is not a rank of a group of {entry.size}",
                    about=f"group_{role}",
                )
        elif entry.group.group_rank(world) < 0:
            message = name_outsider(entry, role, world)
            return Refusal(kind="invalid_argument", message=message, about=role)
        return None

    def needs(self, entry: Entry) -> frozenset[int]:
        """Return the group ranks without whose entry no implementation could let this one pass.

        The default: all of them, because the result depends on every contribution.
        """
        return everyone(entry.size)

    def disagreements(self, entries: Sequence[Entry]) -> list[Disagreement]:
        """Return what the members' arguments disagree on; `entries` in group order.

        Members may be missing. The default compares what `agree` lists.
        """
        found: list[Disagreement] = []
        for what in self.agree:
            if self._agree_on(what, entries):
                continue
            values = {
                entry.group_rank: text
                for entry in entries
                if (text := self.agreed(what, entry)) is not None
            }
            if len(set(values.values())) > 1:
                found.append(Disagreement(diagnosis=diagnosis_of(what), what=what, values=values))
        return found

    def _agree_on(self, what: str, entries: Sequence[Entry]) -> bool:
        """Return whether all entries state the same, where that is plain without words for it."""
        name, _, attribute = what.partition(".")
        if what == "root":
            return False
        first = entries[0].arguments.get(name)
        if attribute in {"dtype", "shape"}:
            if not isinstance(first, np.ndarray):
                return False
            wanted = getattr(first, attribute)
            for entry in entries:
                value = entry.arguments.get(name)
                if not isinstance(value, np.ndarray) or getattr(value, attribute) != wanted:
                    return False
            return True
        return isinstance(first, str) and all(
            entry.arguments.get(name) == first for entry in entries
        )

    def argument_of(self, what: str, entry: Entry) -> str | None:
        """Return the argument that states one agreed property; None for what a tensor has."""
        if what == "root" and self.rooted is not None:
            return self.rooted if entry[f"group_{self.rooted}"] is None else f"group_{self.rooted}"
        return None if "." in what else what

    def agreed(self, what: str, entry: Entry) -> str | None:
        """Return one agreed property of an entry as text; None where the rank does not state it."""
        if what == "root":
            return str(entry.group.ranks[self.root(entry)])
        name, _, attribute = what.partition(".")
        value = entry[name]
        if value is None:
            return None
        if isinstance(value, list) and attribute == "dtype":
            return ", ".join(sorted({describe(item, attribute) for item in value}))
        if isinstance(value, list) and attribute != "length":
            return ", ".join(describe(item, attribute) for item in value)
        return describe(value, attribute)

    def volume(self, entry: Entry) -> Volume:
        """Return the bytes that the call is about, and those that this rank sends in a ring."""
        if self.payload is None:
            return Volume(size=NAN, sent=NAN) if self.takes_objects else Volume(size=0.0, sent=0.0)
        size = count_array_bytes(entry[self.payload]) * (entry.size if self.gathers else 1)
        return Volume(size=size, sent=self.turns * size * (entry.size - 1) / entry.size)

    def tensor_calls(self, entries: Sequence[Entry]) -> tuple[TensorCall, ...]:
        """Return the collectives of tensors that one of objects makes; none where nothing tells.

        `entries` are those of all members, in group order.
        """
        del entries
        return ()

    def looks_up(self, entry: Entry) -> bool:
        """A root counted in the world must be found among the group's ranks."""
        return self.rooted is not None and entry[f"group_{self.rooted}"] is None

    def reduction(self, arguments: Mapping[str, Any]) -> Any:
        """Return the reduce op that makes the results; None where values are handed on unchanged.

        A backend may add in any order, so that a floating-point result has a bound for it. The
        default is the argument `op`; an operation that reduces without one says which it is.
        """
        return arguments.get("op")

    @abstractmethod
    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """Return what each member's written arguments hold afterwards, in group order.

        `entries` has every member, in agreement. Tensors are NumPy arrays and must not be
        changed in place; a result is an array, a list of arrays, or :class:`Undefined`.
        """

    def common(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what every member's written arguments hold afterwards, where all hold the same.

        `arguments` are as in an entry, the tensors of all members stacked `[n, *shape]`. None where
        members hold something of their own: only :meth:`reference` tells. Only an operation whose
        refusals look at no rank says more than the default.
        """
        return None


class PointToPoint(Operation):
    """Messages between two ranks.

        send(x, dst=1)                      one message, and the call waits for it
        isend(x, dst=1)                     one message, and a handle
        batch_isend_irecv([P2POp, P2POp])   two messages that begin as one

    An operation says which messages it posts. Whether they wait, meet and fit is a matter of the
    rules.
    """

    exchanges = True

    def looks_up(self, entry: Entry) -> bool:
        """A peer counted in the world must be found among the group's ranks.

        `recv` with `group_src` looks it up, too, but only to return it, once it has received.
        """
        inside = (entry.arguments.get("group_src"), entry.arguments.get("group_dst"))
        return inside == (None, None)

    @abstractmethod
    def messages(self, entry: Entry) -> tuple[Message, ...]:
        """Return the messages that this call posts, in order."""


class Waiting(Operation):
    """Completes work that an asynchronous operation started.

    h.wait()          one handle
    wait: [h, k]      two, in order: the rank goes on once both are done
    """

    @abstractmethod
    def handles(self, entry: Entry) -> tuple[str, ...]:
        """Return the names of the handles that are waited for, in order."""


def name_outsider(entry: Entry, role: str, rank: int) -> str:
    """Say that a rank which `src` or `dst` names is not in the group, and what the number means."""
    if entry.group.name == WORLD:
        return f"{role} {rank} is not a rank of the world, which has {entry.size} ranks"
    ranks = short(", ".join(map(str, entry.group.ranks)))
    return (
        f"{role} {rank} is not in group {entry.group.name}, which has the global ranks {ranks}: "
        f"`{role}` is a global rank, `group_{role}` a rank within the group"
    )


class GroupCreation(Operation):
    """Creates a process group while the program runs.

    Groups that `groups:` states exist before step 1. This is for a program that makes them on the
    way, or whose ranks do not agree on what they make.
    """

    def looks_up(self, entry: Entry) -> bool:
        """It is made from the world."""
        return True

    @abstractmethod
    def group(self, entry: Entry, timeout_s: float) -> Group:
        """Return the group that this call asks for; its key is its name alone.

        `timeout_s` is what it gets where the call states none.
        """

    @abstractmethod
    def local(self, entry: Entry) -> bool:
        """Return whether only the members need call it."""


class Local(Operation):
    """Concerns no other rank.

    >>> from torch_scenarios.operations.sleep import Sleep
    >>> issubclass(Sleep, Local), Sleep.exchanges
    (True, False)
    """

    #: the worker calls `execute` as well, because torch has a part in it
    calls_torch: ClassVar[bool] = False

    #: seconds that pass on this rank
    def duration_s(self, entry: Entry) -> float:
        """Return how long the rank is busy with it, in seconds of its clock."""
        return 0.0

    def costs(self, entry: Entry) -> Mapping[str, float]:
        """Return what it takes in a forecast (:class:`~torch_scenarios.model.traffic.Pause`).

        `compute` may state what kernels take, and their host.
        """
        return {"seconds": self.duration_s(entry)}

    def ends(self, entry: Entry) -> bool:
        """Return whether the rank's program ends here: a fault."""
        return False

    @abstractmethod
    def run(self, caller: Caller, entry: Entry) -> None:
        """Do it to the process: the same code in the reference and in the worker."""


class Compound(Operation):
    """Several calls of other operations on one rank, one after the other.

    The reference makes each of them, so that ranks meet, wait and disagree as they would if the
    program spelled them out. The worker makes the one call of torch's that stands for all.
    """

    exchanges = True
    modules: ClassVar[tuple[str, ...]] = ("torch.distributed.tensor",)
    #: torch's ranks tell each other what a checkpoint is made of, in torch's objects
    checkpoints: ClassVar[bool] = False

    @abstractmethod
    def parts(self, caller: Caller, entry: Entry) -> Generator[Part, None, Any]:
        """Yield the calls on this rank; each is done when the next is asked for.

        What is returned is the `result` of the entry with which `run` is called.
        """

    @abstractmethod
    def run(self, caller: Caller, entry: Entry) -> None:
        """Let the rank hold what came of it, in the reference."""

    def duration_s(self, entry: Entry) -> float:
        """Return how long the rank is busy beside the calls: no time passes."""
        return 0.0

    def slack(self, entry: Entry) -> dict[str, Any]:
        """Return, by name, how far off the values may be that another order of additions gives."""
        return {}

    def unequal(self, entry: Entry) -> Any:
        """Return the first value that is not what one process has, or None."""
        return None

    def notes(self, entry: Entry) -> tuple[str, ...]:
        """Return what is known of its values less closely than rounding alone has it."""
        return ()

    @abstractmethod
    def take(self, torch: Any, mesh: Callable[[str], Any], caller: Caller, entry: Entry) -> None:
        """Let torch do it, in the worker. `mesh` returns torch's mesh of a name."""


class RemoteCall(Operation):
    """Asks another rank to run a function of the file.

    The callee takes no step for it: it serves from the first step of the program until its
    `Departure`.
    """

    modules: ClassVar[tuple[str, ...]] = ("torch.distributed.rpc",)
    #: whether what the function returns stays where it ran, until it is fetched
    keeps_there: ClassVar[bool] = False

    @abstractmethod
    def callee(self, entry: Entry) -> tuple[int, str]:
        """Return the rank that is called, and the name of the function."""


class Departure(Operation):
    """The end of a program with remote calls: each rank serves until all ranks have come here.

    `torch.distributed.rpc.shutdown` waits for all of them. A rank that leaves earlier would be gone
    when another one calls it.
    """


@cache
def everyone(size: int) -> frozenset[int]:
    """Return the group ranks of all members: the same object for the same size."""
    return frozenset(range(size))


@cache
def operation_named(name: str) -> Operation:
    """Return the operation of that name from the table."""
    from torch_scenarios.operations import BY_NAME, IMPLIED

    return BY_NAME[name] if name in BY_NAME else IMPLIED[name]


def diagnosis_of(what: str) -> str:
    """Return the diagnosis for a disagreement on `what`."""
    if what in {"root", "op"}:
        return f"{what}_mismatch"
    return "dtype_mismatch" if what.endswith(".dtype") else "shape_mismatch"


def describe(value: Any, attribute: str) -> str:
    """Return a property of an argument as text: its dtype, its shape, or itself."""
    if attribute == "dtype":
        return dtype_name(value.dtype)
    if attribute == "shape":
        return str(list(value.shape))
    if attribute == "length":
        return f"{len(value)} items"
    if attribute == "numel":
        return f"{int(np.prod(value.shape))} elements"
    return str(value)
