"""What backends make of what the semantics leave open: facts, one row a backend.

Nothing here is needed to judge a program: what is right is right on every backend. It says where a
backend may differ and still be right, so that a run which differs there is known for what it is.
Gloo's row is measured (tests/torch). NCCL's is read in the sources of NCCL 2.21 to 2.30 and torch
2.6 to 2.13; docs/nccl.md says which of it was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """One backend.

    `device` is where its tensors live. `enqueues`: a call returns before it is done, and calls of
    one group are done in the order of one stream. A message of at most `early_bytes` leaves its
    sender before the receive is posted, one of more than `held_bytes` never does; between the two
    it depends. `connects_late`: the first message between two ranks waits on the host for its
    receive, whatever its size. `tags` tell messages apart; `any_source`: a receive need not name
    its sender. `batch_is_one_call`: what is in `batch_isend_irecv` is posted at one stroke.
    `raises_timeouts`: in the call that timed out, and not in a thread beside it.
    `opened_by_buffering` are diagnoses of programs that a buffer may let finish.
    """

    device: str = "cpu"
    enqueues: bool = False
    early_bytes: int = 0
    held_bytes: int = 0
    connects_late: bool = False
    tags: bool = True
    any_source: bool = True
    batch_is_one_call: bool = False
    raises_timeouts: bool = True
    opened_by_buffering: frozenset[str] = field(default_factory=frozenset)

    def may_leave_early(self, size_bytes: int) -> bool:
        """Return whether a send of `size_bytes` may return with no receive posted."""
        return size_bytes <= self.held_bytes


GLOO = Traits()

#: a message of at most 16 KiB a channel takes the low-latency protocol, whose buffer holds it whole
#: (`P2P_LL_THRESHOLD`, src/enqueue.cc); 64 channels of 4 MiB are all that can ever be buffered
#: (`MAXCHANNELS`, `NCCL_BUFFSIZE`). Connections: `ncclTransportP2pSetup`, src/transport.cc
NCCL = Traits(
    device="cuda",
    enqueues=True,
    early_bytes=16 << 10,
    held_bytes=64 * (4 << 20),
    connects_late=True,
    tags=False,
    any_source=False,
    batch_is_one_call=True,
    raises_timeouts=False,
    opened_by_buffering=frozenset({"buffering_hazard", "unmatched_send"}),
)

TRAITS = {"gloo": GLOO, "nccl": NCCL}


def traits_of(backend: str) -> Traits:
    """Return what is known of a backend; of one that nobody described, what holds for Gloo."""
    return TRAITS.get(backend, GLOO)
