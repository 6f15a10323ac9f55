"""NCCL's surroundings: what must stand in a worker's environment before it is first used.

Everything here is a function of versions and counts. Nothing imports torch, and nothing needs a GPU
to be tested.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

#: what workers find unless the user set it (torch's ProcessGroupNCCL.cpp reads all of it). The
#: supervisor judges a hang by positions; nothing of torch's may end the process before it did
ENVIRONMENT = {
    # the watchdog reports a timeout and leaves the process and the communicator alone
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    # the monitor of the watchdog's heartbeat would end the process after 8 minutes
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    # no dump is written to a file that would be left behind: it is read from memory
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    # `debug: detail` turns the watchdog's teardown on again: four times this many ms after a
    # timeout, which leaves the supervisor time to be first
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "5000",
    "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING": "0",
    # NCCL's own status service listens on a port of the machine
    "NCCL_RAS_ENABLE": "0",
}

Version = tuple[int, int, int]

#: from here on NCCL lets ranks share a GPU if told to; before, it takes equal hosts for equal GPUs
SHARES: Version = (2, 30, 3)
#: from here on a rank's host can be named (`NCCL_HOSTID`)
NAMES_HOSTS: Version = (2, 5, 6)
#: from here on the channels of a rank are bounded by `NCCL_MAX_CTAS`
BOUNDS_CTAS: Version = (2, 17, 0)
#: ranks on one GPU beyond which their kernels surely have not room to spin side by side
MOST_ON_A_GPU = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How the ranks of a launch share its GPUs: one environment, and what differs by rank.

    `means` says in a phrase which of NCCL's ways it is.
    """

    ranks: int
    gpus: int
    means: str
    common: Mapping[str, str] = field(default_factory=dict)
    own_host: bool = False

    def environment(self, rank: int) -> dict[str, str]:
        """Return what a rank must find in its environment before NCCL is first used."""
        own = {"NCCL_HOSTID": f"rank-{rank}"} if self.own_host else {}
        return {**self.common, **own}

    def note(self, ranks: int) -> str:
        """Say to a person that `ranks` ranks of one scenario shared the GPUs."""
        return f"{_ranks(ranks)} shared {_gpus(self.gpus)} ({self.means}): its times mean nothing"


def sharing(version: Version | None, ranks: int, gpus: int) -> Sharing | str | None:
    """Return how `ranks` share `gpus`; None where each has its own, or the reason why they cannot.

    A GPU runs the kernels of several processes in turns, so that ranks which wait for each other in
    a kernel need few blocks each (NCCL's documentation of `NCCL_MULTI_RANK_GPU_ENABLE`).
    """
    if gpus < 1:
        return "there is no GPU to share"
    if ranks <= gpus:
        return None
    if version is None:
        return "the version of NCCL cannot be told, and how ranks share a GPU depends on it"
    crowd = -(-ranks // gpus)
    if crowd > MOST_ON_A_GPU:
        return f"{crowd} ranks would share a GPU; more than {MOST_ON_A_GPU} would block each other"
    if version < NAMES_HOSTS:
        return (
            f"NCCL {_dotted(version)} takes one rank a GPU; {_dotted(SHARES)} and newer take more"
        )
    channels = str(4 if crowd <= 2 else 2 if crowd <= 4 else 1)  # noqa: PLR2004 -- said above
    bound = "NCCL_MAX_CTAS" if version >= BOUNDS_CTAS else "NCCL_MAX_NCHANNELS"
    common = {"NCCL_NVLS_ENABLE": "0", bound: channels}
    if version >= SHARES:
        common["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
        means = "NCCL_MULTI_RANK_GPU_ENABLE"
        return Sharing(ranks=ranks, gpus=gpus, means=means, common=common)
    common |= {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}
    common["NCCL_MNNVL_ENABLE"] = "0"  # hosts that are none have no NVLink between them
    means = (
        f"a host name for each rank and sockets, as NCCL {_dotted(version)} takes one rank a GPU"
    )
    return Sharing(ranks=ranks, gpus=gpus, means=means, common=common, own_host=True)


def offer(ranks: int, gpus: int) -> str:
    """Say that NCCL could run what `auto` gave to Gloo."""
    return (
        f"it ran on Gloo: it has {_ranks(ranks)} and this machine {_gpus(gpus)}. "
        "--share-gpu runs it on NCCL, with several ranks on a GPU"
    )


def _ranks(count: int) -> str:
    return f"{count} rank{'s'[: count != 1]}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s'[: count != 1]}"


# ---------------------------------------------------------------------------- versions


def version_of(torch: ModuleType) -> Version | None:
    """Return the version of the NCCL that is loaded; None where there is none.

    A newer NCCL may be installed than torch was built with, and torch tells only the latter: so the
    library itself is asked, where it is a shared one.
    """
    if not torch.distributed.is_nccl_available():
        return None
    return _of_the_library() or _of_the_build(torch)


def _of_the_library() -> Version | None:
    found = ctypes.c_int()
    try:
        failed = library().ncclGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed else decoded(found.value)


def library() -> ctypes.CDLL:
    """Return the NCCL that torch has loaded. Raises OSError where there is none that is shared."""
    return ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)


def _of_the_build(torch: Any) -> Version | None:  # noqa: ANN401 -- the module
    try:
        major, minor, patch, *_ = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None
    return int(major), int(minor), int(patch)


def decoded(code: int) -> Version | None:
    """Return the version that NCCL's `NCCL_VERSION_CODE` says: 22907 is 2.29.7, 2804 is 2.8.4."""
    if code <= 0:
        return None
    base = 1000 if code < 10_000 else 10_000  # noqa: PLR2004 -- the coding changed with 2.9
    return code // base, code % base // 100, code % 100


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


def told(version: Version | None) -> str:
    """Return a version as text."""
    return "unknown" if version is None else _dotted(version)
