"""The floors of the house: what may import what, where torch may be, how modules are named.

What is not yet as it should be is counted here, and each count may only fall.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import NAME, PACKAGE

import torch_scenarios
from torch_scenarios.operations import BY_NAME
from torch_scenarios.report.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FILES = sorted(PACKAGE.rglob("*.py"))

#: the floors, the lowest first: a package imports from the floors below its own
FLOORS = (
    ("display", "vocabulary"),
    ("errors",),
    ("limits", "modules"),
    ("expressions", "files"),
    ("operations", "source"),
    ("strategies",),
    ("model",),
    ("cost", "execution", "language", "reference", "timeline"),
    ("explain", "verdict", "worker"),
    ("pipeline", "stages"),
    ("bless", "conformance", "minimize", "record", "report"),
    ("doctor", "editor", "pytest_plugin", "watch"),
    ("cli",),
    ("entry",),
)
FLOOR_OF = {package: floor for floor, packages in enumerate(FLOORS) for package in packages}

#: modules on another floor than their package's: `python -m torch_scenarios.worker` is a command
#: line
ENTRIES = {"worker.__main__": FLOOR_OF["cli"]}

#: an operation's own module may also hold its asynchronous twin
TWINS = {"isend": "send", "irecv": "recv"}
TWINS |= dict.fromkeys(("rpc_sync", "rpc_async", "remote", "to_here"), "rpc")

#: packages of many entries, one file each; their number is no fault
TABLES = {
    "record.values.invariants",
    "operations",
    "modules",
    "strategies",
    "reference.diagnoses",
    "reference.rules",
    "explain",
    "record.evidence.job_log",
    "record.evidence.reasons",
}
#: modules of a package at most, tables excepted
LARGEST = 18
#: modules beside the packages at most
BESIDE = 8
#: what one other module alone imports is a section of that module, unless it is a real seam, or has
#: a floor of its own
SINGLE_IMPORTER = 38
#: what a command does has one importer, its options (decision 0114)
ANSWERS = "cli.answers."
#: seams: what runs in a process of its own, or is an entry of a table outside of a package of them
SEAMS = {
    "cost.chakra": "what other simulators read, and nothing here",
    "record.fake": "all ranks in one process of the user's",
    "record.launch": "the user's process before his script",
    "record.values.carriage": "what runs in the user's process",
    "record.values.deal": "the same",
    "record.values.parameters": "the same",
    "record.values.store": "the same",
    "record.values.witness": "the same",
    "record.shim": "the same, at the start of every Python",
    "record.evidence.process": "processes of a job that runs, which nothing else looks at",
    "record.evidence.job_log": "what a job printed, which nothing else reads",
    "record.evidence.tensor_names": "the user's models, in the user's process",
    "record.scratch": "the user's files, in the user's process",
    "report.diagram.svg": "the same rows in another medium",
    "report.github": "what GitHub alone reads",
    "worker.agent": "a process of its own on each node",
    "worker.inventory": "a process of its own, which asks CUDA",
    "worker.jax.calls": "in the place of torch.distributed",
    "worker.jax.world": "the same",
    "worker.mpi.calls": "in the place of torch.distributed",
    "worker.mpi.world": "the same",
}
#: what a process that runs a user's script imports once torch is there, and no other process
ON_TORCH = {
    "record.fake",
    "record.kernels.clock",
    "record.kernels.lanes",
    "record.launch",
    "record.shim",
    "record.values.carriage",
    "record.values.parameters",
    "record.values.witness",
}
#: what the command line's start imports: there NumPy, rich and most of this package are for types
STARTING = {"", "cli", "pytest_plugin", "report", "stages"}
#: rules of the linter that a line switches off for itself, in the whole package
SUPPRESSIONS = 44
#: places at which cohorts leave a program to the engine that walks rank by rank
LEFT_TO_WALKING = 92


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


@cache
def trees() -> Mapping[str, ast.Module]:
    """Return each module's tree, read once: no session that only collects tests waits for it."""
    return {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in MODULES.items()}


@cache
def nodes() -> Mapping[str, Sequence[ast.AST]]:
    """Return all nodes of each module's tree: several tests look at each of them."""
    return {module: tuple(ast.walk(tree)) for module, tree in trees().items()}


def package_of(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def floor_of(module: str) -> int:
    return ENTRIES.get(module, FLOOR_OF[package_of(module)])


#: the modules that report.formats names
REPORTS = {each.made_by.partition(":")[0].removeprefix(f"{NAME}.") for each in FORMATS}


def in_table(module: str) -> bool:
    """Whether a module is an entry of a table of many alike, or the package of one."""
    return package_of(module) in TABLES or module.rpartition(".")[0] in TABLES or module in REPORTS


def own_imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of this package that a tree imports, anywhere, types included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            head, _, rest = name.partition(".")
            if head == NAME:
                yield rest if rest in MODULES else rest.rpartition(".")[0]


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Return which modules of this package each one imports."""
    return {module: frozenset(own_imports(tree)) - {module} for module, tree in trees().items()}


def rings(arrows: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in sorted(arrows.get(module, ())):
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            ring = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(ring) > 1:
                found.append(sorted(ring))

    for module in sorted(arrows):
        if module not in number:
            visit(module)
    return found


def module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported, into `if` and `try`."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            waiting += statement.orelse
            continue
        yield statement
        for block in ("body", "orelse", "finalbody"):
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                waiting += getattr(statement, block, [])


def imports_torch(tree: ast.Module) -> bool:
    for statement in module_level(tree):
        names = [alias.name for alias in getattr(statement, "names", ())]
        if isinstance(statement, ast.ImportFrom):
            names = [statement.module or ""]
        elif not isinstance(statement, ast.Import):
            continue
        if any(name.split(".")[0] == "torch" for name in names):
            return True
    return False


def is_on_torch(module: str) -> bool:
    return package_of(module) == "worker" or module in ON_TORCH


def test_only_the_worker_and_what_runs_in_recorded_ranks_import_torch() -> None:
    strangers = [
        module
        for module, tree in trees().items()
        if imports_torch(tree) and not is_on_torch(module)
    ]
    assert not strangers, f"torch is imported at module level by {strangers}"


def test_everything_else_imports_without_torch() -> None:
    modules = [f"{NAME}.{module}".rstrip(".") for module in MODULES if not is_on_torch(module)]
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n"
        "    if not name.endswith('__main__'):\n"
        "        importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_recorder_needs_the_standard_library_alone() -> None:
    """It is imported by the ranks of a user's own launcher, in an environment of theirs."""
    subprocess.run(
        [sys.executable, "-S", "-c", "import torch_scenarios.record.recorder"],
        check=True,
        cwd=PACKAGE.parent,
        stdin=subprocess.DEVNULL,
    )


def test_every_package_has_a_floor() -> None:
    assert {package_of(module) for module in MODULES} - {""} == FLOOR_OF.keys()


def test_imports_point_down() -> None:
    up = [
        f"{module} imports {other}, which is not below it"
        for module, found in imports().items()
        for other in sorted(found - {""})
        if module
        and package_of(other) != package_of(module)
        and floor_of(other) >= floor_of(module)
        and (module not in ENTRIES or floor_of(other) > floor_of(module))
    ]
    assert up == []


def test_no_modules_import_each_other() -> None:
    """Types included, and what functions import."""
    tables = {module for module in MODULES if in_table(module)}
    arrows = {module: imports()[module] for module in set(MODULES) - tables - {""}}
    assert rings(arrows) == []


def test_no_module_is_a_ring_when_it_runs() -> None:
    """Imports at module level, without types, have no circle at all."""
    arrows = {
        module: frozenset(
            name
            for statement in module_level(tree)
            if isinstance(statement, ast.Import | ast.ImportFrom)
            for name in own_imports(ast.Module(body=[statement], type_ignores=[]))
        )
        - {module, ""}
        for module, tree in trees().items()
    }
    assert rings(arrows) == []


@cache
def faces() -> Mapping[str, frozenset[str]]:
    """Return the names that each package lists in `__all__`."""
    found: dict[str, frozenset[str]] = {}
    for path in FILES:
        if path.name != "__init__.py":
            continue
        for statement in trees()[module_of(path)].body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                found[module_of(path)] = frozenset(ast.literal_eval(statement.value))
    return found


@cache
def origins() -> Mapping[str, str]:
    """Return, for each name that a package lists and imports, the module that it comes from."""
    return {
        f"{package}.{alias.name}": statement.module.removeprefix(f"{NAME}.")
        for package, names in faces().items()
        for statement in trees()[package].body
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
        for alias in statement.names
        if alias.name in names
    }


def test_modules_with_one_importer_only_get_fewer() -> None:
    """Who imports a name from a package imports the module that it comes from, too."""
    through = {
        module: {
            origins()[name]
            for statement in found
            if isinstance(statement, ast.ImportFrom) and statement.module is not None
            for alias in statement.names
            if (name := f"{statement.module.removeprefix(f'{NAME}.')}.{alias.name}") in origins()
        }
        for module, found in nodes().items()
    }
    importers = Counter(
        other for module, found in imports().items() for other in found | through[module]
    )
    single = [
        module
        for module in MODULES
        if importers[module] == 1
        and not in_table(module)
        and module not in SEAMS
        and module not in FLOOR_OF
        and module not in faces()
        and "__" not in module
        and not module.startswith(ANSWERS)
    ]
    assert len(single) <= SINGLE_IMPORTER, sorted(single)


def test_what_a_package_lists_is_imported_from_it() -> None:
    past = []
    for module, tree in trees().items():
        for statement in module_level(tree):
            if not isinstance(statement, ast.ImportFrom) or statement.module is None:
                continue
            head, _, room = statement.module.partition(".")
            packages = [
                ".".join(room.split(".")[:depth]) for depth in range(1, room.count(".") + 1)
            ]
            past += [
                f"{module}: {alias.name} from {room}"
                for package in packages
                if head == NAME and not f"{module}.".startswith(f"{package}.")
                for alias in statement.names
                if alias.name in faces().get(package, ())
            ]
    assert past == []


def test_few_modules_stand_beside_the_packages() -> None:
    beside = sorted(path.name for path in PACKAGE.glob("*.py") if path.name != "__init__.py")
    assert len(beside) <= BESIDE, beside


def test_a_package_has_few_modules() -> None:
    sizes = Counter(
        module.rpartition(".")[0] for module in MODULES if "." in module and (module not in REPORTS)
    )
    large = {name: size for name, size in sizes.items() if size > LARGEST and name not in TABLES}
    assert not large


def test_no_module_is_named_by_a_gerund() -> None:
    # nouns of the field: torch.nn.Embedding, a judge's finding, MPI's message matching, and the
    # shape of operations that a room of rules is about
    allowed = {"embedding", "finding", "matching", "waiting"}
    found = {module for module in MODULES if module.rpartition(".")[2].endswith("ing")}
    assert {module for module in found if module.rpartition(".")[2] not in allowed} == set()


def test_types_are_imported_as_all_else() -> None:
    """What only `TYPE_CHECKING` can import points up, or is imported in a ring."""
    hidden = [
        f"{module}: {alias.name}"
        for module, found in nodes().items()
        if package_of(module) not in STARTING
        for block in found
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
        if (getattr(statement, "module", None) or alias.name).split(".")[0]
        not in sys.stdlib_module_names
    ]
    assert hidden == []


def test_no_class_name_stands_twice() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees().items():
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                places[statement.name].add(module)
    shared = {name: sorted(found) for name, found in places.items() if len(found) > 1}
    assert shared == {}


def test_suppressions_of_the_linter_are_few() -> None:
    """A rule that does not fit is switched off in pyproject.toml, with the reason."""
    lines = (line for path in FILES for line in path.read_text(encoding="utf-8").splitlines())
    assert sum("# noqa" in line for line in lines) <= SUPPRESSIONS


def test_no_ladder_over_operation_names() -> None:
    """Outside the operations themselves, no code decides by an operation's name."""
    named = []
    for module, found in nodes().items():
        if package_of(module) in {"operations", "explain"} or in_table(module):
            continue
        compared = [
            constant
            for node in found
            if isinstance(node, ast.Compare | ast.match_case)
            for constant in ast.walk(node if isinstance(node, ast.Compare) else node.pattern)
            if isinstance(constant, ast.Constant) and constant.value in BY_NAME
        ]
        named += [f"{module}:{node.lineno} {node.value!r}" for node in compared]
    assert not named, f"operation names are compared with in {named}"


def test_public_names() -> None:
    assert set(vars(torch_scenarios)["__all__"]) >= {"load", "plan", "simulate", "launch", "judge"}
    assert all(callable(getattr(torch_scenarios, name)) for name in ("load", "simulate", "judge"))


def test_an_operation_is_one_file() -> None:
    """Each operation's class is in the module of its own name, or of its blocking twin."""
    for operation in set(BY_NAME.values()):
        home = TWINS.get(operation.name, operation.name)
        assert type(operation).__module__ == f"{NAME}.operations.{home}"


def test_cohorts_leave_no_more_to_the_engine_that_walks() -> None:
    calls = [
        node
        for module, found in nodes().items()
        if module.startswith("reference.vector")
        for node in found
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    left = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "leave"]
    assert len(left) <= LEFT_TO_WALKING


@pytest.mark.parametrize("folder", ["unit", "sweeps", "processes"])
def test_tests_without_torch_import_none(folder: str) -> None:
    """Neither do the modules of tests/shared that they use; tests/unit starts no process."""
    tests = Path(__file__).parent
    shared = {path.stem: path for path in (tests / "shared").glob("*.py")}
    waiting = sorted((tests / folder).rglob("*.py"))
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        for name in imported_names(ast.parse(path.read_text(encoding="utf-8"))):
            assert name.partition(".")[0] != "torch", path
            assert folder != "unit" or name != "subprocess", path
            if shared.get(name) not in {None, *seen}:
                waiting.append(shared[name])


#: private names of this package that tests use, with what no public name shows
PRIVATE = {
    "ColumnEvents._event": "how many events are made, which only their time shows",
    "DataParallel._reduce": "a fault of ours within a strategy",
    "Process._last": "the memory of calls, which a program is compared without",
    "TerminalReport._bar": "what a bar is told, which a terminal redraws",
    "files._link": "a file system that cannot name an unnamed file",
    "files._open_unnamed": "a file system without unnamed files",
    "nccl._find_library_version": "a torch whose NCCL is not loaded",
}


#: whose private names are a test's own, or another library's
OWN_OR_FOREIGN = {"self", "cls", "torch", "os", "etree"}


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a test imports, replaces, or takes of what is not its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(NAME):
            yield from (alias.name for alias in node.names if private(alias.name))
        elif isinstance(node, ast.Attribute) and private(node.attr):
            owner = node.value
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            if not (isinstance(owner, ast.Name) and owner.id in OWN_OR_FOREIGN):
                yield node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "setattr"
            and not (isinstance(node.args[0], ast.Name) and node.args[0].id in OWN_OR_FOREIGN)
        ):
            last = [
                each.value.rpartition(".")[2]
                for each in node.args[:2]
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            yield from filter(private, last)


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_tests_use_public_names() -> None:
    """What a private name does, a test sees by a public one: of the package, or of the command."""
    folder = Path(__file__).parent
    known = {name.rpartition(".")[2] for name in PRIVATE}
    used: dict[str, set[str]] = defaultdict(set)
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).parts
        if parts[:2] == ("record", "scripts") or parts[:2] == ("torch", "upstream"):
            continue  # scripts as people write them
        for name in private_names(ast.parse(path.read_text(encoding="utf-8"))):
            used[name].add(path.name)
    assert used.keys() == known, dict(used)


def imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_no_two_test_files_share_a_name() -> None:
    """The folders of tests are no packages: pytest could not import the second one."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
