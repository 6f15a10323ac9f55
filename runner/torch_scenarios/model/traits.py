"""What backends make of what the semantics leave open: facts, one row a backend.

Nothing here is needed to judge a program: what is right is right on every backend. It says where a
backend may differ, so that a run which differs there is known for what it is: the reference reads
a program once more with them (:mod:`torch_scenarios.reference.backends`).
Gloo's row is measured (tests/torch). NCCL's is read in the sources of NCCL 2.21 to 2.30 and torch
2.6 to 2.13; docs/nccl.md says which of it was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.model.versions import VersionRange
from torch_scenarios.vocabulary import BACKENDS

KNOWN_BACKENDS = frozenset(BACKENDS)


#: what a process counts for the name of a group that its members find each other under: the groups
#: that it is in, in the names of those that only their members create
#: (`use_local_synchronization`); or its calls that create a group, in the names of all
Counts: TypeAlias = Literal["groups", "calls"] | None


class Traits(Struct, frozen=True, kw_only=True):
    """One backend.

    `device` is where its tensors live. `enqueues`: a call returns before it is done, and calls of
    one group are done in the order of one stream. A message of at most `early_bytes` leaves its
    sender before the receive is posted, as long as no more than `early_messages` of the same two
    ranks are on their way; one of more than `held_bytes` never does; between the two it depends.
    `connects_late`: the first message between two ranks waits on the host for its receive,
    whatever its size; collectives `by_messages` connect as well, and after those that `join_hosts`
    the host goes on only once every member has called them. `tags` tell messages apart;
    `any_source`: a receive need not name its sender. `splits_world`: a new group is split off the
    world's communicator, in a call that every rank of the world makes. `counts`: the members of a
    group look for each other under what each has counted. `carriers` are the backend's own calls
    that carry an operation: what two operations send can meet only in one that they have in common.
    An operation that is not listed, or any of a backend without them, may meet any. `lacks` are
    words of :data:`torch_scenarios.model.needs.CAPABILITIES`.
    """

    device: str = "cpu"
    enqueues: bool = False
    early_bytes: int = 0
    early_messages: int = 0
    held_bytes: int = 0
    connects_late: bool = False
    by_messages: frozenset[str] = field(default_factory=frozenset)
    join_hosts: frozenset[str] = field(default_factory=frozenset)
    tags: bool = True
    any_source: bool = True
    splits_world: bool = False
    counts: Counts = None
    carriers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()

    def may_show_anywhere(self) -> bool:
        """Whether it states a fact that is not of :data:`CONFINED`."""
        plain = type(self)()
        facts = (name for name in self.__struct_fields__ if name not in CONFINED)
        return any(getattr(self, name) != getattr(plain, name) for name in facts)

    def meet(self, one: str, other: str) -> bool:
        """Return whether what one operation sends can arrive in the other, by their names."""
        mine, yours = self.carriers.get(one), self.carriers.get(other)
        return mine is None or yours is None or not mine.isdisjoint(yours)


#: facts of which it is known in which programs they may show
#: (:mod:`torch_scenarios.reference.backends`, `Turns.is_untouched_by` of `reference.vector`). For
#: the sake of any other fact each program is walked: correct, and slower
CONFINED = frozenset(
    {
        *("device", "enqueues", "early_bytes", "early_messages", "held_bytes", "connects_late"),
        *("by_messages", "join_hosts", "tags", "any_source", "splits_world", "counts"),
        *("carriers", "lacks"),
    }
)


#: what Gloo tells apart by the kind of a collective (`SlotPrefix`, gloo/types.h), and what torch
#: builds of it (ProcessGroupGloo.cpp, and distributed_c10d.py for objects): an object is its size,
#: then its bytes. The messages of `monitored_barrier` have small tags, as a scenario's own have
_CARRIED_BY_GLOO = {
    "message": "send recv isend irecv batch_isend_irecv monitored_barrier send_object_list "
    "recv_object_list",
    "broadcast": "broadcast broadcast_object_list scatter_object_list",
    "all_gather": "all_gather all_gather_single all_gather_coalesced all_gather_object "
    "gather_object",
    "gather": "gather gather_object",
    "scatter": "scatter scatter_object_list",
    "all_reduce": "all_reduce all_reduce_coalesced reduce_scatter reduce_scatter_single",
    "reduce": "reduce",
    "all_to_all": "all_to_all all_to_all_single",
    "barrier": "barrier",
}


def _carriers(carried: Mapping[str, str]) -> dict[str, frozenset[str]]:
    names = {name for text in carried.values() for name in text.split()}
    return {
        name: frozenset(call for call, text in carried.items() if name in text.split())
        for name in names
    }


#: A process that makes a Gloo group waits until it finds every other member in the store, under a
#: prefix that torch takes from the group's name. With `use_local_synchronization` the name is a
#: hash of the ranks and of `len(_world.pg_names)`: the groups that the process is a member of, the
#: world included, those destroyed left out (`_hash_ranks_to_str` in
#: torch/distributed/distributed_c10d.py, 2.6 to 2.13; pytorch#173608). NCCL's members are split off
#: the world, whatever the name
GLOO = Traits(counts="groups", carriers=_carriers(_CARRIED_BY_GLOO))

#: From torch 2.14 on a process counts the calls that came as far as to name a group, also one that
#: it is no member of, and never counts back (`_process_group_name`, 2.14.1). The same number names
#: ordinary groups, so that one hangs which follows local ones of unequal number
GLOO_2_14 = replace(GLOO, counts="calls")

#: a message of at most 16 KiB a channel takes the low-latency protocol, whose buffer holds it whole
#: (`P2P_LL_THRESHOLD`, src/enqueue.cc); 64 channels of 4 MiB are all that can ever be buffered
#: (`MAXCHANNELS`, `NCCL_BUFFSIZE`). A buffer has `NCCL_STEPS` parts (src/include/device.h), of
#: which a small message takes one. Connections: `ncclTransportP2pSetup`, src/transport.cc. That
#: single messages take their turn among a group's calls is what torch warns of where communicators
#: are made with the world (ProcessGroupNCCL.cpp, "treated as independent collective ops"), as our
#: workers make them: there `new_group` is `ncclCommSplit`, coloured by the members that a rank
#: names, and who is no member calls it without a colour (`_new_process_group_helper`,
#: torch/distributed/distributed_c10d.py)
NCCL = Traits(
    device="cuda",
    enqueues=True,
    early_bytes=16 << 10,
    early_messages=8,
    held_bytes=64 * (4 << 20),
    connects_late=True,
    by_messages=frozenset({"all_to_all", "all_to_all_single", "gather", "scatter"}),
    join_hosts=frozenset({"barrier", "all_gather_object"}),
    tags=False,
    any_source=False,
    splits_world=True,
    # torch raises in no call of NCCL's: another thread finds out that one waited in vain
    lacks=frozenset({"tags", "any_source", "crossing_messages", "monitored_barrier", "timeouts"}),
)

#: lacks that a backend's forecast shows: where the program comes to the same, it does without them
FORECAST = frozenset({"tags", "crossing_messages"})

#: of a backend that nothing is known of; torch itself refuses that call of all but Gloo
OTHER = replace(GLOO, counts=None, carriers={}, lacks=frozenset({"monitored_barrier"}))

#: MPI itself, as the MPI 4.1 standard has it: no call has a timeout, no reduction is an average
#: (6.9.2), each collective has one buffer, and no datatype is half a float or less
MPI = replace(
    OTHER,
    lacks=frozenset(
        {
            *("avg", "premul_sum", "float16", "bfloat16", "float8"),
            *("coalesced", "objects", "rpc", "monitored_barrier", "timeouts"),
        }
    ),
)

#: JAX's collectives on CPU devices, `jax.lax` of 0.10: no word for a tag, for a sender that is not
#: named, or for parts that differ; a call that hangs keeps its thread
JAX = replace(
    OTHER,
    lacks=frozenset(
        {
            *("tags", "any_source", "uneven_split", "premul_sum", "coalesced", "objects"),
            *("rpc", "monitored_barrier", "timeouts", "abort"),
        }
    ),
)

TRAITS = {"gloo": GLOO, "nccl": NCCL, "mpi": MPI, "jax": JAX}

#: backends that differ between versions of torch: what is known of them by the versions
VARIANTS: Mapping[str, Mapping[VersionRange, Traits]] = {
    "gloo": {VersionRange.read("<2.14"): GLOO, VersionRange.read(">=2.14"): GLOO_2_14}
}


def traits_of(name: str) -> Traits:
    """Return what is known of a backend, or of one with its versions, as :func:`variants` has it.

    Of one that no one described that is what holds for Gloo.
    """
    backend, _, versions = name.partition(" torch")
    for meant, traits in VARIANTS.get(backend, {}).items():
        if str(meant) == versions:
            return traits
    return TRAITS.get(backend, OTHER)


def variants(backend: str) -> tuple[str, ...]:
    """Return a backend's name with each of the versions that differ: `gloo torch>=2.14`."""
    return tuple(f"{backend} torch{versions}" for versions in VARIANTS.get(backend, {}))


def variant_of(backend: str, torch: str) -> str:
    """Return a backend's name with those versions that a version is one of, if any differ."""
    for versions in VARIANTS.get(backend, {}):
        if versions.holds(torch):
            return f"{backend} torch{versions}"
    return backend


# A backend as torch spells it: a name (`gloo`), one for a kind of device (`cuda:nccl`), or several
# (`cpu:gloo,cuda:nccl`).


def split_backend(backend: str) -> tuple[tuple[str, str], ...]:
    """Return (kind of device, name) of each part; the kind is empty where none is said."""
    split = (part.strip().rpartition(":") for part in backend.lower().split(","))
    return tuple((device, name) for device, _, name in split)


def names_in(backend: str) -> tuple[str, ...]:
    """Return the names alone: `gloo`, `nccl`."""
    return tuple(name for _, name in split_backend(backend))


@cache
def device_type(backend: str) -> str:
    """Return where the tensors of a scenario live: `cuda` if any part serves a GPU, else `cpu`."""
    split = split_backend(backend)
    devices = {device or traits_of(name).device for device, name in split}
    return "cuda" if "cuda" in devices else "cpu"


def carrier(backend: str) -> str:
    """Return the one backend that moves a scenario's tensors, whose section of `expect` holds."""
    by_device = dict(split_backend(backend))
    return by_device.get(device_type(backend)) or by_device.get("") or names_in(backend)[0]
