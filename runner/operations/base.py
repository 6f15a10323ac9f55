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
* :class:`Local`  needs nobody: compute, sleep, destroy_process_group, fault
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from runner.operations.entries import Disagreement, Entry, Message, Refusal, dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from runner.operations.params import Param
    from runner.plan import Group
    from runner.program import Process
    from runner.scenario import Step


class Operation(ABC):
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
    #: the operation returns a work handle without being told to (`isend`)
    asynchronous: ClassVar[bool] = False
    #: it carries what ranks hold from one to another
    exchanges: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Say where torch documents the operation, unless it is documented elsewhere."""
        if not cls.source and hasattr(cls, "name"):
            cls.source = f"torch.distributed.{cls.name}"

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

    def refuse(self, entry: Entry) -> Refusal | None:  # noqa: ARG002 -- the default
        """Return what torch itself would refuse when called so, or None."""
        return None

    def looks_up(self, entry: Entry) -> bool | None:  # noqa: ARG002 -- the default
        """Return whether torch asks its table of groups, so that a destroyed one raises ValueError.

        False: it hands the call to the group itself, which on Gloo carries it out even then. None:
        the call has nothing to do with a group. Measured on torch 2.13.
        """
        return None

    def backend_kinds(self, entry: Entry) -> frozenset[str]:  # noqa: ARG002 -- the default
        """Return the kinds that a backend may raise at this call although torch allows it."""
        return frozenset({"unsupported"})

    def reads(self, param: Param, entry: Entry) -> bool:  # noqa: ARG002 -- the default
        """Return whether this call reads what the argument holds (an output it only writes)."""
        return param.reads

    def writes(self, param: Param, entry: Entry) -> bool:  # noqa: ARG002 -- the default
        """Return whether this call may store into the argument, on this rank."""
        return param.writes

    def group_of(self, process: Process, step: Step) -> str | None:
        """Return the name of the group of a step; None is the world."""
        name: str | None = process.evaluate(step.arguments.get("group"))
        return name

    def roots(self, process: Process, step: Step) -> dict[str, frozenset[str]]:
        """Map each argument to the names of held tensors whose storage it may share here."""
        return {
            param.name: process.roots(step.arguments[param.name])
            for param in self.params
            if param.name in step.arguments
        }

    def read(self, entry: Entry, roots: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the names of the held tensors that this call looks at."""
        names = (roots.get(param.name, ()) for param in self.params if self.reads(param, entry))
        return frozenset().union(*names)

    def written(self, entry: Entry, roots: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the names of the held tensors that this call may store into."""
        names = (roots.get(param.name, ()) for param in self.params if self.writes(param, entry))
        return frozenset().union(*names)

    def introduces(self, step: Step) -> tuple[str, ...]:  # noqa: ARG002 -- the default
        """Return the names that the step may make: a name with no value yet is None."""
        return ()

    def concerns(self, process: Process, step: Step) -> bool:  # noqa: ARG002 -- the default
        """Return whether a member that no `ranks:` selected takes the step."""
        return True

    def evaluate(self, process: Process, step: Step) -> dict[str, Any]:
        """Evaluate the step's arguments on one rank; defaults fill what is left out."""
        return {
            param.name: process.evaluate_argument(param, step.arguments.get(param.name))
            for param in self.params
        }

    def bound(self, dist: ModuleType, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Return torch's call, to be made once or any number of times with the same arguments.

        `arguments` are torch's own: tensors, process groups, `dist.ReduceOp`; those that were left
        out and have no default are left out here as well. What is returned takes another tensor for
        an argument by its name. Raises what the call would raise where that can be told before.
        """
        return partial(getattr(dist, self.name), **arguments)

    def execute(self, dist: ModuleType, arguments: dict[str, Any]) -> Any:  # noqa: ANN401
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

    def root(self, entry: Entry) -> int:
        """Return the root's group rank; call only on an entry that was not refused."""
        assert self.rooted is not None  # noqa: S101 -- a fault of the definition, not of input
        inside = entry[f"group_{self.rooted}"]
        if inside is not None:
            return int(inside)
        given = entry[self.rooted]
        world = self.default_root if given is None else given
        assert isinstance(world, int)  # noqa: S101 -- a missing root is refused before
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
        assert role is not None  # noqa: S101 -- a fault of the definition, not of input
        world, inside = entry[role], entry[f"group_{role}"]
        if world is not None and inside is not None:
            return Refusal(
                kind="invalid_argument", message=f"both {role} and group_{role} are given"
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
                    message=f"group_{role} {inside} is no rank of a group of {entry.size}",
                )
        elif entry.group.group_rank(world) < 0:
            return Refusal(
                kind="invalid_argument",
                message=f"{role} {world} (a rank of the world) is not in group {entry.group.name}",
            )
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
        found = []
        for what in self.agree:
            values = {
                entry.group_rank: text
                for entry in entries
                if (text := self.agreed(what, entry)) is not None
            }
            if len(set(values.values())) > 1:
                found.append(Disagreement(diagnosis=diagnosis_of(what), what=what, values=values))
        return found

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

    def looks_up(self, entry: Entry) -> bool:
        """A root counted in the world must be found among the group's ranks."""
        return self.rooted is not None and entry[f"group_{self.rooted}"] is None

    @abstractmethod
    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """Return what each member's written arguments hold afterwards, in group order.

        `entries` has every member, in agreement. Tensors are NumPy arrays and must not be
        changed in place; a result is an array, a list of arrays, or :class:`Undefined`.
        """


class PointToPoint(Operation):
    """Messages between two ranks."""

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
    """Completes work that an asynchronous operation started."""

    @abstractmethod
    def handles(self, entry: Entry) -> tuple[str, ...]:
        """Return the names of the handles that are waited for, in order."""


class GroupCreation(Operation):
    """Creates a process group while the program runs."""

    def looks_up(self, entry: Entry) -> bool:  # noqa: ARG002 -- every creation does
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
    """Concerns nobody else."""

    #: the worker calls `execute` as well, because torch has a part in it
    calls_torch: ClassVar[bool] = False

    #: seconds that pass on this rank
    def duration_s(self, entry: Entry) -> float:  # noqa: ARG002 -- the default
        """Return how long the rank is busy with it, in seconds of its own clock."""
        return 0.0

    def ends(self, entry: Entry) -> bool:  # noqa: ARG002 -- the default
        """Return whether the rank's program ends here: a fault."""
        return False

    @abstractmethod
    def run(self, process: Process, entry: Entry) -> None:
        """Do it to the process: the same code in the reference and in the worker."""


@cache
def everyone(size: int) -> frozenset[int]:
    """Return the group ranks of all members: the same object for the same size."""
    return frozenset(range(size))


def operation_named(name: str) -> Operation:
    """Return the operation of that name from the table."""
    from runner.operations import BY_NAME  # noqa: PLC0415 -- the table imports this module

    return BY_NAME[name]


def diagnosis_of(what: str) -> str:
    """Return the diagnosis for a disagreement on `what`."""
    if what in {"root", "op"}:
        return f"{what}_mismatch"
    return "dtype_mismatch" if what.endswith(".dtype") else "shape_mismatch"


def describe(value: Any, attribute: str) -> str:  # noqa: ANN401 -- an argument has any type
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
