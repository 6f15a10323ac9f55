"""What the near side and the workers say to each other: orders one way, messages the other.

Everything here is a plain value that pickles; nothing knows how it travels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from runner.execution.heartbeat import SILENT_S, STOPPED_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.execution.nccl import Sharing
    from runner.plan import Plan
    from runner.trace import RankTrace

#: where a rank stands: the index of its step and the values of the loop variables around it
Position: TypeAlias = tuple[int, tuple[int, ...]]

#: the order that ends a worker
STOP = -1
#: the key, under a scenario's name, that is there once all its ranks take their steps
BEGUN = "begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One scenario for the workers. `number` tells it from all others of one launch.

    `share_gpu`: ranks may share a GPU; `sharing` is how they do, where they must. With `proof` no
    step is taken: a fresh world is made and used once, after a hang was broken in the last one.
    """

    number: int
    plan: Plan
    backend: str
    plugins: tuple[str, ...] = ()
    share_gpu: bool = False
    sharing: Sharing | None = None
    proof: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where one rank may be in the end, as predicted.

    `positions` are the calls that may hold it for good; `ending` how it ends where it takes its
    last step. `may_end`: it need not be held, because the semantics leave that open.
    """

    ending: str
    positions: frozenset[Position] = frozenset()
    may_end: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to watch a running scenario for.

    `stops` says, for each rank, where it is predicted to end; empty where no deadlock is predicted,
    or where the backend's own timeout is wanted. `patience_s` is the longest time that one
    communication call may block before the backend itself must give up; `settle_s` how long a
    predicted deadlock must stand before it is confirmed. Where a backend is known to bring the
    program to a halt, `anywhere_s` is how long all ranks must stand wherever they do. `stopped_s`
    and `silent_s` are how long a rank's process may be stopped, and how long it may show no sign of
    life (see :mod:`runner.execution.heartbeat`), before it counts as lost. `most_s` is how long the
    whole scenario may take before it is given up, by the option `bound`; None is for ever.
    """

    world_size: int
    patience_s: float
    settle_s: float = 0.03
    anywhere_s: float | None = None
    stopped_s: float = STOPPED_S
    silent_s: float = SILENT_S
    most_s: float | None = None
    bound: str = "--max-seconds"
    stops: Mapping[int, Stop] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One scenario for the host, on a launch of at least `size` workers.

    `watch` is for any backend, `own` for those that the scenario may come to and that are known to
    make something else of it. `fresh` asks for processes that no other scenario ran in.
    """

    order: Order
    watch: Watch
    own: Mapping[str, Watch] = field(default_factory=dict)
    size: int
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A worker is up. `host` and `pid` name its process.

    `versions` are those of what decides a verdict, by name. The first of each node under torchrun
    has read the files of the command line as well: `digest` stands for all of them.
    """

    rank: int
    pid: int
    host: str
    versions: Mapping[str, str]
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A rank has made its world on a device, which may hang without a timeout of its own."""

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A rank has not moved for a while, inside a communication call."""

    rank: int
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """A rank's watching thread comes to its turn, whatever its main thread does."""

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A rank that was stuck has moved on."""

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a rank has to tell, once a scenario: everything that it saw.

    `world_s` is how long it took to make the world, in seconds, before the scenario began, and
    `began_s` when it did, by the monotonic clock that all processes of a `host` share; `spoilt`:
    its process can run no other scenario, because its device's context is lost.
    """

    rank: int
    trace: RankTrace
    backend: str
    notes: tuple[str, ...] = ()
    world_s: float = 0.0
    began_s: float = 0.0
    host: str = ""
    spoilt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """A rank is ready for the next scenario: its stuck call was broken, or its proof came out."""

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unable:
    """A rank could not make its world; `unsupported` where the backend refuses the scenario."""

    rank: int
    reason: str
    unsupported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A rank was told by its agent to end, because another process of its launch died."""

    rank: int


Message: TypeAlias = Hello | Alive | Begun | Stuck | Moved | Told | Free | Unable | Leaving
