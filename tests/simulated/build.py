"""Compile the simulated libraries against the headers and the needs of the installed torch.

What torch needs of a library and its sources do not define becomes a function that refuses by name.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
#: what the sources here need; torch's own headers may want a later standard
STANDARD = "17"
#: a header of torch refuses an older compiler by the value of __cplusplus
_WANTED = re.compile(r"__cplusplus < (\d{4})\d\dL")
#: how torch's own `version.py` gives its version
_VERSION = re.compile(r"""^__version__ = ['"]([\w.+-]+)['"]""", re.MULTILINE)
FLAGS = ("-O1", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror")


class NotHereError(Exception):
    """What is missing for the simulated GPUs, in words for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One library: its soname, its sources' folder or file, and whose unmet symbols it refuses."""

    soname: str
    sources: tuple[str, ...]
    links: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    refuses: str = ""
    versioned: bool = False


#: computes torch's own arithmetic; loaded by torch itself, as a backend's plugin
KERNELS = "torch/kernels.cpp"
PLUGIN = """from pathlib import Path


def load():
    import torch

    torch.ops.load_library(str(Path(__file__).with_name("kernels.so")))
"""
ENTRY = "[torch.backends]\nsimulated = simulated_kernels:load\n"
METADATA = "Metadata-Version: 2.1\nName: simulated-kernels\nVersion: 0\n"

LIBRARIES = (
    Library(
        soname="libcudart.so.13",
        sources=(
            "cuda/devices.cpp",
            "cuda/memory.cpp",
            "cuda/streams.cpp",
            "cuda/events.cpp",
            "cuda/copies.cpp",
            "cuda/kernels.cpp",
        ),
        links=("-ldl",),
        prefixes=("cuda", "__cuda"),
        refuses="simulatedRefuses",
        versioned=True,
    ),
    Library(soname="libcuda.so.1", sources=("cuda/driver.cpp",), links=("libcudart.so.13",)),
    Library(soname="libnvidia-ml.so.1", sources=("cuda/nvml.cpp",)),
    Library(
        soname="libnccl.so.2",
        sources=(
            "nccl/api.cpp",
            "nccl/communicator.cpp",
            "nccl/group.cpp",
            "nccl/collectives.cpp",
            "nccl/messages.cpp",
            "nccl/reduction.cpp",
            "nccl/wire.cpp",
        ),
        links=("libcudart.so.13",),
        prefixes=("nccl",),
        refuses="simulatedRefusesNccl",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """The installed torch: its libraries, its headers, and those of CUDA and NCCL beside it."""

    folder: Path
    includes: tuple[Path, ...]

    @property
    def version(self) -> str:
        """The version, as torch spells it: 2.14.1+cu130."""
        text = (self.folder / "version.py").read_text(encoding="utf-8")
        said = _VERSION.search(text)
        if said is None:
            message = f"{self.folder} does not say which version of torch it is"
            raise NotHereError(message)
        return said[1]

    @property
    def standard(self) -> str:
        """The standard of C++ that its headers want: -std=c++20."""
        header = self.folder / "include" / "ATen" / "ATen.h"
        wanted = _WANTED.search(header.read_text(encoding="utf-8", errors="replace"))
        year = wanted[1][2:] if wanted else STANDARD
        return f"-std=c++{max(year, STANDARD)}"


def installed() -> Torch:
    """Return the torch of this interpreter, without importing it. Raises NotHereError."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        message = "torch is not installed"
        raise NotHereError(message)
    folder = Path(spec.origin).parent
    nvidia = folder.parent / "nvidia"
    includes = (nvidia / "cu13" / "include", nvidia / "nccl" / "include")
    if not (folder / "lib" / "libtorch_cuda.so").exists() or not all(map(Path.is_dir, includes)):
        message = "the installed torch is no build for CUDA 13 from the package index"
        raise NotHereError(message)
    for program in ("g++", "nm"):
        if shutil.which(program) is None:
            message = f"there is no {program}"
            raise NotHereError(message)
    return Torch(folder=folder, includes=includes)


def fingerprint(torch: Torch) -> str:
    """Return what the build depends on: the sources, and which torch it is for."""
    found = hashlib.sha256(str(torch.folder).encode())
    found.update((torch.folder / "version.py").read_bytes())
    for path in sorted(HERE.rglob("*")):
        if path.suffix in {".cpp", ".hpp", ".h"} or path.name == "build.py":
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def build(into: Path, torch: Torch) -> tuple[Path, ...]:
    """Compile into a folder, unless it holds this very build; returns what is to be preloaded.

    Raises NotHereError. Of several processes that build at once, one does.
    """
    into.mkdir(parents=True, exist_ok=True)
    mark = into / "built"
    with (into / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text() != fingerprint(torch):
            mark.unlink(missing_ok=True)
            _make(into, torch)
            mark.write_text(fingerprint(torch))
    return tuple(into / library.soname for library in LIBRARIES)


def _make(into: Path, torch: Torch) -> None:
    needed = _needed(torch)
    sources = sorted({source for library in LIBRARIES for source in library.sources})
    with ThreadPoolExecutor() as pool:
        kernels = pool.submit(_plugged, into, torch)
        compiled = pool.map(lambda each: _compiled(each, into, torch), sources)
        objects = dict(zip(sources, compiled, strict=True))
        kernels.result()
    for library in LIBRARIES:
        _linked(library, [objects[source] for source in library.sources], into, needed)


def _plugged(into: Path, torch: Torch) -> None:
    """Compile the kernels against torch's own headers, and make a plugin of them."""
    headers = torch.folder / "include"
    includes = [HERE / "headers", *torch.includes, headers, headers / "torch/csrc/api/include"]
    libraries = ["-ltorch_cpu", "-lc10", "-lc10_cuda"]
    isystem = [f"-isystem{each}" for each in includes]
    out = into / "kernels.so"
    where = f"-L{torch.folder / 'lib'}"
    _run(
        "g++",
        torch.standard,
        *FLAGS,
        *isystem,
        "-shared",
        HERE / KERNELS,
        where,
        *libraries,
        "-o",
        out,
    )
    (into / "simulated_kernels.py").write_text(PLUGIN)
    told = into / "simulated_kernels-0.dist-info"
    told.mkdir(exist_ok=True)
    (told / "METADATA").write_text(METADATA)
    (told / "entry_points.txt").write_text(ENTRY)


def _compiled(source: str, into: Path, torch: Torch) -> Path:
    found = into / f"{source.replace('/', '_')}.o"
    includes = [HERE / "headers", *torch.includes]
    isystem = [f"-isystem{each}" for each in includes]
    _run("g++", torch.standard, *FLAGS, "-c", *isystem, HERE / source, "-o", found)
    return found


def _linked(library: Library, objects: list[Path], into: Path, needed: frozenset[str]) -> None:
    objects = [*objects, *_refusals(library, objects, into, needed)]
    links = [into / link if link.startswith("lib") else link for link in library.links]
    version = into / f"{library.soname}.map"
    version.write_text(f"{library.soname} {{ global: *; }};\n" if library.versioned else "{};\n")
    own = [f"-Wl,--version-script={version}"] if library.versioned else []
    soname = f"-Wl,-soname,{library.soname}"
    out = into / library.soname
    _run("g++", "-shared", "-pthread", soname, *own, *objects, *links, "-o", out)


def _refusals(
    library: Library, objects: list[Path], into: Path, needed: frozenset[str]
) -> list[Path]:
    """Return an object with a refusal for each function that torch needs and the sources lack."""
    if not library.refuses:
        return []
    defined = {name for each in objects for name in _symbols(each, "--defined-only")}
    lacking = sorted(
        name for name in needed if name.startswith(library.prefixes) and name not in defined
    )
    lines = [f'extern "C" int {library.refuses}(const char*);']
    lines += [
        f'extern "C" int {name}() {{ return {library.refuses}("function {name}"); }}'
        for name in lacking
    ]
    source = into / f"{library.soname}.refusals.cpp"
    source.write_text("\n".join(lines))
    found = source.with_suffix(".o")
    _run("g++", f"-std=c++{STANDARD}", *FLAGS, "-c", source, "-o", found)
    return [found]


def _needed(torch: Torch) -> frozenset[str]:
    libraries = sorted((torch.folder / "lib").glob("*.so"))
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda each: _symbols(each, "-D", "--undefined-only"), libraries)
    return frozenset(name for names in found for name in names)


def _symbols(path: Path, *options: str) -> set[str]:
    listed = _run("nm", *options, path)
    return {line.split()[-1].partition("@")[0] for line in listed.splitlines() if line.strip()}


def _run(*words: object) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        message = f"{words[0]} failed"
        raise NotHereError(message)
    return done.stdout
