"""Which backend a scenario runs on, and why it cannot run on one.

Handed `torch` by its callers; imports nothing of it. A backend is spelled as torch spells it: a
name (`gloo`), one for a kind of device (`cuda:nccl`), or several (`cpu:gloo,cuda:nccl`).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from runner.execution import nccl
from runner.execution.gpus import count as gpu_count
from runner.forms import Constant
from runner.plan import WORLD
from runner.problems import LaunchError, UnsupportedError, nearest
from runner.scenario import steps_of
from runner.traits import KNOWN_BACKENDS, traits_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import ModuleType

    from runner.execution.nccl import Sharing
    from runner.operations.base import Operation
    from runner.plan import Plan
    from runner.scenario import Scenario, Step
    from runner.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a scenario runs on. `sharing` is how the ranks of its launch share GPUs, if they do.

    `notes` is what the report must say of it, `environment` what the results keep.
    """

    backend: str
    sharing: Sharing | None = None
    notes: tuple[str, ...] = ()
    environment: dict[str, str]


def parts(backend: str) -> tuple[tuple[str, str], ...]:
    """Return (kind of device, name) of each part; the kind is empty where none is said."""
    split = (part.strip().rpartition(":") for part in backend.lower().split(","))
    return tuple((device, name) for device, _, name in split)


def names(backend: str) -> tuple[str, ...]:
    """Return the names alone: `gloo`, `nccl`."""
    return tuple(name for _, name in parts(backend))


def device_type(backend: str) -> str:
    """Return where the tensors of a scenario live: `cuda` if any part serves a GPU, else `cpu`."""
    split = parts(backend)
    devices = {device or traits_of(name).device for device, name in split}
    return "cuda" if "cuda" in devices else "cpu"


def carrier(backend: str) -> str:
    """Return the one backend that moves a scenario's tensors, whose section of `expect` holds."""
    by_device = dict(parts(backend))
    return by_device.get(device_type(backend)) or by_device.get("") or names(backend)[0]


def resolve(
    torch: ModuleType,
    requested: str,
    scenario: Scenario,
    *,
    share_gpu: bool,
    here: int,
) -> Choice:
    """Return what a scenario runs on: `auto` is NCCL where each rank has a GPU, else Gloo.

    `here` is how many processes of the launch are on this machine. Raises UnsupportedError where
    the scenario excludes the backend, LaunchError where the machine cannot run it.
    """
    ranks = min(here, scenario.world_size)
    backend = requested.lower()
    offered: tuple[str, ...] = ()
    if backend == "auto":
        backend, offered = _automatic(torch, scenario, ranks, share_gpu=share_gpu)
    other_version = scenario.not_for(str(torch.__version__))
    if other_version is not None:
        raise UnsupportedError(other_version)
    _require_meant(backend, scenario)
    environment = {"torch": str(torch.__version__), "backend": backend}
    if device_type(backend) == "cpu":
        return Choice(backend=backend, notes=offered, environment=environment)
    _require_gpus(torch, backend, ranks, share_gpu=share_gpu)
    environment |= described(torch, backend)
    shared = _shared(torch, ranks, here) if share_gpu else None
    if shared is None or ranks <= shared.gpus:
        return Choice(backend=backend, sharing=shared, environment=environment)
    environment["gpus"] = f"{shared.gpus}, shared by {ranks} ranks"
    return Choice(
        backend=backend, sharing=shared, notes=(shared.note(ranks),), environment=environment
    )


def _automatic(
    torch: Any,  # noqa: ANN401 -- the module
    scenario: Scenario,
    ranks: int,
    *,
    share_gpu: bool,
) -> tuple[str, tuple[str, ...]]:
    """Return the backend, and what `auto` has to say about it."""
    dist = torch.distributed
    gpus = gpu_count(torch) if dist.is_nccl_available() else 0
    able = gpus >= ranks or bool(gpus and share_gpu)
    spelled = _spelled(scenario.backends or (), able=able)
    if spelled is not None:
        return spelled, ()
    if able:
        return "nccl", ()
    return "gloo", (nccl.offer(ranks, gpus),) if gpus else ()


def _spelled(meant: tuple[str, ...], *, able: bool) -> str | None:
    """Return the long spelling that a scenario's own `backends` make, as far as there are GPUs."""
    if not meant or not all(device for name in meant for device, _ in parts(name)):
        return None
    usable = [name for name in meant if able or device_type(name) == "cpu"]
    return ",".join(usable) or None


def _require_meant(backend: str, scenario: Scenario) -> None:
    meant = scenario.backends
    if meant is None:
        return
    wanted = {part for name in meant for part in parts(name)}
    # a kind of device that one side leaves open fits every kind
    fits = any(
        name == other and (not device or not kind or device == kind)
        for device, name in parts(backend)
        for kind, other in wanted
    )
    if not fits:
        message = f"it is meant for {', '.join(meant)}; this run is on {backend}"
        raise UnsupportedError(message)


def _require_gpus(
    torch: Any,  # noqa: ANN401 -- the module
    backend: str,
    ranks: int,
    *,
    share_gpu: bool,
) -> None:
    """Raise where a backend on GPUs has not what it needs here."""
    if "nccl" in names(backend) and not torch.distributed.is_nccl_available():
        message = (
            f"the installed torch {torch.__version__} is built without NCCL. Install a CUDA build "
            "of torch, or run with --backend gloo."
        )
        raise LaunchError(message)
    gpus = gpu_count(torch)
    if gpus == 0:
        what = "NCCL" if "nccl" in names(backend) else f"the backend {backend}"
        message = f"{what} needs a GPU, and torch sees none here. Run with --backend gloo."
        raise LaunchError(message)
    if gpus < ranks and not share_gpu:
        message = (
            f"it has {ranks} ranks and this machine {gpus} GPU{'s'[: gpus != 1]}; NCCL takes "
            "one rank a GPU. Run it with --share-gpu, or with --backend gloo."
        )
        raise UnsupportedError(message)


def _shared(torch: Any, ranks: int, here: int) -> Sharing | None:  # noqa: ANN401 -- the module
    """Return how the launch shares the GPUs. Raises UnsupportedError where the ranks cannot.

    It is the same for every scenario of a launch: NCCL reads its environment once.
    """
    version, gpus = nccl.version_of(torch), gpu_count(torch)
    shared = nccl.sharing(version, here, gpus)
    if not isinstance(shared, str):
        return shared
    if ranks <= gpus:
        return None
    message = f"{shared}. Run it with --backend gloo."
    raise UnsupportedError(message)


def described(torch: Any, backend: str) -> dict[str, str]:  # noqa: ANN401 -- the module
    """Return what the results keep of a machine with GPUs; CUDA need not be initialised."""
    found = {"cuda": str(torch.version.cuda), "gpus": str(gpu_count(torch))}
    if "nccl" in names(backend):
        found["nccl"] = nccl.told(nccl.version_of(torch))
    return found


def unknown(backend: str, plugins: Collection[str] = ()) -> str | None:
    """Return why no torch has a backend of that name, without importing torch; None where one may.

    A module among `plugins`, or an installed extension that torch loads by itself (the entry points
    `torch.backends`), may register any name: the worker asks torch then.
    """
    strange = [name for name in names(backend) if name not in KNOWN_BACKENDS]
    if not strange or plugins or entry_points(group="torch.backends"):
        return None
    close = nearest(strange[0], KNOWN_BACKENDS)
    guess = f" Did you mean {close!r}?" if close else ""
    return (
        f"there is no backend {strange[0]!r}; there are {', '.join(sorted(KNOWN_BACKENDS))}.{guess}"
        " A backend of your own is registered by a module named with --plugin."
    )


def require_known(torch: ModuleType, backend: str) -> None:
    """Raise LaunchError where torch knows no backend of that name, plugins being imported."""
    dist = torch.distributed
    known = [str(name) for name in dist.Backend.backend_list if name != "undefined"]
    for name in names(backend):
        if name not in known:
            message = (
                f"torch {torch.__version__} has no backend {name!r}; it knows {', '.join(known)}. "
                "A backend of your own is registered by a module named with --plugin."
            )
            raise LaunchError(message)
        if name in {"gloo", "nccl", "mpi", "ucc", "xccl"} and not dist.is_backend_available(name):
            message = f"the installed torch {torch.__version__} is built without {name}."
            raise LaunchError(message)


# ---------------------------------------------------------------------------- a stranger's bytes


def require_no_foreign_object(plan: Plan, predicted: Trace, names: tuple[str, ...]) -> None:
    """Raise UnsupportedError where an object operation may unpickle what a tensor operation sent.

    torch's object collectives are a size and some bytes, sent as tensors; where ranks disagree, the
    bytes of any tensor may arrive in their place. A program that the analysis finds right has no
    such meeting. In any other, how far each rank gets is not known for certain, and so it is
    asked whether the program has two such operations, on one group, that `names` (the backends
    that may run it) carry alike. One whose operations can only wait for each other is run.
    """
    if not any(step.operation and step.operation.takes_objects for step in _steps(plan)):
        return
    if all(_is_right(trace) for trace in (predicted, *map(predicted.on, names))):
        return
    taking = [step for step in _steps(plan) if _takes_objects(step)]
    for step in _steps(plan):
        operation = step.operation
        if operation is None or operation.takes_objects or not operation.exchanges:
            continue
        for other in taking:
            if _one_group(step, other) and _may_meet(operation, other.operation, names):
                raise UnsupportedError(_foreign(step, other))


def _steps(plan: Plan) -> tuple[Step, ...]:
    return steps_of(plan.scenario.steps)


def _is_right(trace: Trace) -> bool:
    wrong = trace.diagnoses or trace.open or trace.limits or trace.outcome != "completes"
    return not wrong


def _takes_objects(step: Step) -> bool:
    operation = step.operation
    return operation is not None and any(
        param.kind == "objects" and param.writes for param in operation.params
    )


def _one_group(step: Step, other: Step) -> bool:
    """Return whether two steps may be on the same group."""
    groups = {_group(each) for each in (step, other)}
    return None in groups or len(groups) == 1


def _group(step: Step) -> str | None:
    """Return the name of a step's group; None where only a run can tell."""
    form = step.arguments.get("group")
    if form is None:
        known = step.operation and any(param.name == "group" for param in step.operation.params)
        return WORLD if known else None
    return str(form.value or WORLD) if isinstance(form, Constant) else None


def _may_meet(operation: Operation, other: Operation | None, backends: tuple[str, ...]) -> bool:
    assert other is not None  # noqa: S101 -- asked by the caller
    return any(traits_of(name).meet(operation.name, other.name) for name in backends)


def _foreign(step: Step, taking: Step) -> str:
    assert step.operation is not None  # noqa: S101 -- asked by the caller
    assert taking.operation is not None  # noqa: S101 -- asked by the caller
    places = [f" ({each.mark.short})" if each.mark else "" for each in (step, taking)]
    return (
        f"`{taking.operation.name}`{places[1]} may take the bytes of `{step.operation.name}`"
        f"{places[0]} and unpickle them, which can run any code: `check` analyses it, and no "
        "process runs it"
    )
