"""The parameters that a process has, by name: found where modules run and optimizers step.

Names must be one and the same on all ranks, and in one process: they are those of the largest
module that a variable of the script holds, without the parts that wrappers put there (`module.` of
DDP). A parameter of no module has the name of its variable. A tensor is hashed again where its
version, its place in memory or some of its bytes have changed, and where something writes that
leaves the version alone: a step, or a collective, of `p.data`.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

import torch

from torch_scenarios.record.values.digest import (
    digest,
    is_constant,
    is_held,
    local_part,
    plain_tensor,
    refuse_in_capture,
)
from torch_scenarios.record.values.format.event import EmbeddingWeight
from torch_scenarios.record.values.store import read_tensors

#: parts of a name that wrappers put there
WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
#: frames that are searched for the variable that holds a module
MOST_FRAMES = 60
#: bytes that are looked at, at each place of a parameter
PEEKED = 8
#: about how many elements of a parameter are written down
MOST_ELEMENTS = 16


class KnownParameter:
    """One parameter: its number, its name, and what of it was hashed last."""

    __slots__ = ("hash", "key", "name", "number", "reference", "shape", "version")

    def __init__(self, number: int, name: str, tensor: Any, reference: Any) -> None:
        """Know it by a weak reference: it dies when the program lets it go."""
        self.number, self.name, self.reference = number, name, reference
        self.key, self.shape = id(tensor), tuple(tensor.shape)
        self.version: Any = None
        self.hash = ""

    @property
    def tensor(self) -> Any:
        """The parameter, or None where the program has it no more."""
        return self.reference()


class Parameters:
    """All parameters and buffers that were seen; each is written once, with its first hash."""

    def __init__(
        self, torch: Any, put: Callable[[Any], None], is_foreign: Callable[[str], bool]
    ) -> None:
        """Know none; `is_foreign` says whether a file is not the user's own."""
        self._torch, self._put, self._weak = torch, put, weakref.ref
        self._is_foreign = is_foreign
        self.known: dict[int, KnownParameter] = {}
        self._names: set[str] = set()
        self._roots: dict[int, Any] = {}
        self._prefixes: dict[int, str] = {}
        #: a reference's first weights, and the parameters that have them
        self._given: dict[str, Any] = {}
        self._loaded: set[int] = set()
        self._modules: dict[int, tuple[Any, str]] = {}
        self._count = 0
        #: parameters that a script passes to `functional_call`, by name
        self._functional: dict[str, KnownParameter] = {}
        #: id of a parameter -> itself, and the place at which it was made
        self.births: dict[int, tuple[Any, int]] = {}

    def find(self, tensor: Any) -> KnownParameter | None:
        """Return what is known of a parameter, or None."""
        found = self.known.get(id(tensor))
        return found if found is not None and found.tensor is tensor else None

    def register(self, tensor: Any, name: str, kind: str, place: int, root: int) -> KnownParameter:
        """Know a parameter, and write its name, shape, placements and first hash down."""
        known = self.find(tensor)
        if known is not None:
            return known
        known = KnownParameter(self._count, name, tensor, self._weak(tensor))
        self._count += 1
        self.known[id(tensor)] = known
        local = local_part(tensor)
        known.hash, known.version = self._hash(tensor), version_of(tensor)
        about = {
            "kind": kind,
            "shape": list(tensor.shape),
            "local": list(local.shape),
            "dtype": str(local.dtype)[6:],
            "constant": is_constant(local),
            "frozen": not tensor.requires_grad,
            "root": root,
            "made": self._birth(tensor),
            **layout_of(tensor),
        }
        self._put(["p", known.number, name, place, known.hash, about])
        return known

    def _birth(self, tensor: Any) -> int:
        found = self.births.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else -1

    def _hash(self, tensor: Any) -> str:
        return "" if local_part(tensor).is_meta else digest(tensor)

    def load(self, path: str) -> None:
        """Write a reference's first weights into parameters of its names, each rank its part."""
        with self._torch.no_grad():
            if not self._given:
                self._given = read_tensors(path, self._torch)
            for known in self.known.values():
                whole = self._given.get(f"before/{known.name}")
                tensor = known.tensor
                if whole is None or tensor is None or known.number in self._loaded:
                    continue
                if tuple(whole.shape) == tuple(tensor.shape):
                    local_part(tensor).copy_(part_of(whole, tensor))
                    self._loaded.add(known.number)

    def rehash(self, known: KnownParameter) -> bool:
        """Hash a parameter again where it was written since; whether it holds something else."""
        tensor = known.tensor
        if tensor is None:
            return False
        version = version_of(tensor)
        if version == known.version or not is_held(tensor):
            return False
        known.version = version
        before, known.hash = known.hash, self._hash(tensor)
        return known.hash != before

    def sample(self, known: KnownParameter) -> list[float]:
        """Return some elements of a parameter, of places all over it."""
        tensor = known.tensor
        if tensor is None or not is_held(tensor):
            return []
        plain = local_part(tensor).flatten()
        return [float(each) for each in plain[:: max(1, plain.numel() // MOST_ELEMENTS)]]

    def in_training(self) -> list[int]:
        """Return what a step of training may write: all but frozen parameters."""
        frozen = self._torch.nn.Parameter
        return [
            each.number
            for each in self.known.values()
            if (tensor := each.tensor) is not None
            and (tensor.requires_grad or not isinstance(tensor, frozen))
        ]

    def at_rest(self, module: Any) -> list[int]:
        """Return the parameters of a module that no gradient has reached: averages, teachers."""
        own = [*module.parameters()]
        if any(each.grad is not None for each in own):
            return []
        return [known.number for each in own if (known := self.find(each)) is not None]

    def distrust(self, numbers: Iterable[int]) -> None:
        """Hash parameters again whatever their version says: what writes `p.data` leaves that."""
        wanted = set(numbers)
        if wanted:
            for each in self.known.values():
                if each.number in wanted:
                    each.version = None

    def register_root(self, module: Any, frame: Any, place: int) -> int:
        """Know the parameters of a module that is called from outside of any other.

        Where a variable of the caller holds a module that contains it, all of that are known, by
        its names. Returns the number of the root.
        """
        known = self._roots.get(id(module))
        if known is not None and known[0]() is module:
            number, owner, variable = known[1], known[2](), ""
            owner = module if owner is None else owner
        else:
            number = len(self._roots)
            owner, variable = _owner(
                module, _scopes(frame, self._is_foreign), self._torch.nn.Module
            )
            self._roots[id(module)] = (self._weak(module), number, self._weak(owner))
            self._prefixes.setdefault(id(owner), self._prefix(owner, variable))
        prefix = self._prefixes.get(id(owner), "")
        kind = self._torch.nn.Embedding
        embeddings = {id(each.weight) for each in owner.modules() if isinstance(each, kind)}
        if known is None:
            for name, each in modules_of(owner, prefix):
                own = name or (variable if number else "")  # the first one is the model
                self._modules[id(each)] = (self._weak(each), own)
        for name, tensor, kind in tensors_of(owner, prefix):
            if kind == "parameter" and self._is_of_function(name, tensor, frame):
                continue
            if self.find(tensor) is None and not self._is_sharded(name):
                self._names.add(name)
                known = self.register(tensor, name, kind, place, number)
                if id(tensor) in embeddings:
                    self._put(EmbeddingWeight(known.number))
        return int(number)

    def _is_sharded(self, name: str) -> bool:
        """Whether a parameter of a name is a shard: another tensor is what FSDP2 has gathered.

        The module has that in the place of the shard, for a while.
        """
        shards = (each for each in self.known.values() if each.name == name)
        return any((held := each.tensor) is not None and layout_of(held) for each in shards)

    def _is_of_function(self, name: str, tensor: Any, frame: Any) -> bool:
        """Whether a tensor has the place of a known parameter, by `torch.func.functional_call`.

        That parameter is this tensor from now on, and the module's own is not looked at.
        """
        known = self._functional.get(name)
        if isinstance(tensor, self._torch.nn.Parameter):
            return known is not None
        if layout_of(tensor) or not _is_functional(frame):
            return False
        plain = plain_tensor(tensor)
        known = known or next((e for e in self.known.values() if e.name == name), None)
        if known is None or known.shape != tuple(plain.shape):
            return False
        self.known.pop(known.key, None)
        known.reference, known.key, known.version = self._weak(plain), id(plain), None
        self.known[known.key] = self._functional[name] = known
        return True

    def name_module(self, module: Any) -> str | None:
        """Return the name of a module, or None where it is not known."""
        found = self._modules.get(id(module))
        return found[1] if found is not None and found[0]() is module else None

    def register_scopes(self, frame: Any, place: int) -> None:
        """Know the modules that the variables of a frame and of its callers hold.

        And those that fields of a script's own objects hold: what keeps an average, a trainer.
        """
        kind = self._torch.nn.Module
        for values in _scopes(frame, self._is_foreign):
            for name, value in [*values.items()]:
                is_own = name == "self" or self._is_of_script(value)
                held = [*vars(value).values()] if is_own and _is_plain(value) else []
                for each in (value, *held):
                    if isinstance(each, kind):
                        self.register_root(each, frame, place)

    def _is_of_script(self, value: Any) -> bool:
        """Whether a script has written the class of a value: one of its functions is there."""
        if isinstance(value, self._torch.nn.Module):
            return False
        own = (each for each in vars(type(value)).values() if isinstance(each, FunctionType))
        first = next(own, None)
        return first is not None and not self._is_foreign(first.__code__.co_filename)

    def _prefix(self, owner: Any, variable: str) -> str:
        """Return what tells the names of a module from those of another one."""
        fresh = [name for name, each, _ in tensors_of(owner, "") if self.find(each) is None]
        if self._names.isdisjoint(fresh):
            return ""
        return variable or f"model{len(self._prefixes)}"

    def name_stray(self, tensor: Any, frame: Any, otherwise: str) -> str:
        """Return the name of a parameter of no module: the variable that holds it."""
        for values in _scopes(frame, self._is_foreign):
            for name, value in values.items():
                if value is tensor:
                    return self._free(name)
                if type(value) in {list, tuple} and len(value) < 1000:
                    for at, each in enumerate(value):
                        if each is tensor:
                            return self._free(f"{name}[{at}]")
                if type(value) is dict and len(value) < 1000:
                    for key, each in value.items():
                        if each is tensor:
                            return self._free(f"{name}[{key}]")
        return self._free(otherwise)

    def _free(self, name: str) -> str:
        found, more = name, 1
        while found in self._names:
            more += 1
            found = f"{name}#{more}"
        self._names.add(found)
        return found


def version_of(tensor: Any) -> Any:
    """Return what changes when a tensor is written: its place in memory, its version, some bytes.

    What writes through `p.data` leaves the version as it was.
    """
    local = getattr(tensor, "_local_tensor", tensor)
    try:
        return local.data_ptr(), local._version, _peek(local)
    except RuntimeError:
        return None


def _peek(tensor: Any) -> bytes:
    """Return the bytes at the beginning, in the middle and at the end of what a tensor holds.

    Memory that was given back, as FSDP does, has an address behind an offset still.
    """
    if tensor.is_meta or not tensor.is_contiguous():
        return b""
    address, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    if not address or size < PEEKED or not is_held(tensor):
        return b""
    if tensor.device.type != "cpu":
        return peek_on_device(tensor)
    middle = size // 2 // PEEKED * PEEKED
    places = (address, address + middle, address + size - PEEKED)
    return b"".join(ctypes.string_at(each, PEEKED) for each in places)


def peek_on_device(tensor: Any) -> bytes:
    """Return the bytes of the first, the middle and the last element of a tensor, in one copy."""
    refuse_in_capture(tensor)
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        some = torch.stack((flat[0], flat[flat.numel() // 2], flat[-1]))
        return bytes(some.cpu().view(torch.uint8).tolist())


def tensors_of(module: Any, prefix: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the parameters and float buffers of a module, by names without those of wrappers."""
    seen: set[int] = set()
    for path, at in modules_of(module, prefix):
        for kind, named in (("parameter", at._parameters), ("buffer", at._buffers)):
            for name, tensor in named.items():
                if tensor is None or id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                if kind == "parameter" or tensor.is_floating_point():
                    yield _join_path(path, name), tensor, kind


def modules_of(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield a module and those in it, each once, by names without those of wrappers."""
    seen: set[int] = set()
    waiting = [(module, prefix)]
    while waiting:
        at, path = waiting.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        yield path, at
        children = [(part, each) for part, each in at._modules.items() if each is not None]
        for part, child in reversed(children):
            is_hidden = part in WRAPPERS or (part == "module" and is_wrapper(at))
            waiting.append((child, path if is_hidden else _join_path(path, part)))


def _is_plain(value: Any) -> bool:
    """Whether a value has attributes that can be looked at without running anything."""
    return hasattr(type(value), "__dict__") and isinstance(getattr(value, "__dict__", None), dict)


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def part_of(whole: Any, tensor: Any) -> Any:
    """Return this rank's part of a value that is laid out as a DTensor is; else the value."""
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return whole
    mesh = tensor.device_mesh
    for dimension, each in enumerate(placements):
        if each.is_shard():
            parts = whole.chunk(mesh.size(dimension), each.dim)
            at = mesh.get_local_rank(dimension)
            whole = parts[at] if at < len(parts) else whole.narrow(each.dim, 0, 0)
    return whole


def layout_of(tensor: Any) -> dict[str, Any]:
    """Return the mesh and the placements of a DTensor; nothing of any other tensor."""
    placements = getattr(tensor, "placements", None)
    mesh = getattr(tensor, "device_mesh", None)
    if placements is None or mesh is None:
        return {}
    details = [
        f"S{each.dim}" if each.is_shard() else "R" if each.is_replicate() else "P"
        for each in placements
    ]
    return {"placements": details, "mesh": mesh.mesh.tolist()}


def _scopes(frame: Any, is_foreign: Callable[[str], bool]) -> Iterator[dict[str, Any]]:
    """Yield the variables of the user's frames, the innermost first, and then their globals."""
    seen = 0
    last = None
    while frame is not None and seen < MOST_FRAMES:
        seen += 1
        if not is_foreign(frame.f_code.co_filename):
            yield dict(frame.f_locals)
            last = frame
        frame = frame.f_back
    if last is not None:
        yield last.f_globals


def _owner(module: Any, scopes: Iterator[dict[str, Any]], kind: Any) -> tuple[Any, str]:
    """Return the largest module that a variable holds and that contains one, and the variable."""
    best, variable, size = module, "", -1
    for values in scopes:
        for name, value in values.items():
            if not isinstance(value, kind):
                continue
            parts = [*value.modules()]
            if len(parts) > size and any(each is module for each in parts):
                best, variable, size = value, name, len(parts)
    return best, variable


def _is_functional(frame: Any) -> bool:
    """Whether a module is called by `torch.func.functional_call`."""
    deep = 0
    while frame is not None and deep < MOST_FRAMES:
        if frame.f_code.co_filename.endswith(("functional_call.py", "utils/stateless.py")):
            return True
        frame, deep = frame.f_back, deep + 1
    return False


def is_wrapper(module: Any) -> bool:
    """Whether a module is DistributedDataParallel, or another that holds one as `module`."""
    return type(module).__name__ in {"DistributedDataParallel", "DataParallel"}
