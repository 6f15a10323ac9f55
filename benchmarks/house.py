"""How the source of the package reads: `python -m benchmarks.house [CHECKOUT ...]`.

One column a checkout (by default this one), so that two trees are measured by one script:

    git worktree add /tmp/before COMMIT
    python -m benchmarks.house /tmp/before .

Most figures come from the syntax of `runner/torch_scenarios`. The floors and the circles are those
of the checkout's own tests/test_architecture.py. The hops of an all_reduce are counted while it
runs: two ranks are simulated whose only step is one all_reduce. Each function of the package's
`reference` that runs from the step of the first rank until its result is stored counts once; the
second figure is how deep they call one another.
"""

from __future__ import annotations

import ast
import os
import re
import statistics
import subprocess
import sys
import tokenize
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HERE = Path(__file__).parents[1]
#: a function that is longer than this is counted
LONG = 40
#: a file that is shorter than this needs no ruled section comments
RULED = 400
#: functions of one module that take the same owner first: fewer are a coincidence
OWNED = 3
#: participles that do not end in `ed`, but for those that are the verb itself (`put`, `read`)
IRREGULAR = """
    begun built caught chosen done drawn driven fallen found given gone grown had held hidden kept
    known laid left lent lost made meant met paid said seen sent shown spent spoilt spoken stood
    swept taken thought thrown told torn understood woken won worn written
"""
#: verbs that end as participles and gerunds do
VERBS = frozenset({"bring", "embed", "exceed"})

BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source(NamedTuple):
    """One module: its path, its text and its tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.text.splitlines()

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Yield each function and method, nested ones too."""
        yield from (node for node in ast.walk(self.tree) if isinstance(node, FUNCTIONS))

    def prose(self) -> int:
        """Return the lines of comments and docstrings."""
        with tokenize.open(self.path) as file:
            comments = {
                token.start[0]
                for token in tokenize.generate_tokens(file.readline)
                if token.type == tokenize.COMMENT
            }
        holders = (ast.Module, ast.ClassDef, *FUNCTIONS)
        for node in ast.walk(self.tree):
            if isinstance(node, holders) and ast.get_docstring(node, clean=False) is not None:
                text = node.body[0]
                comments |= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
        return len(comments)


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Return how deep blocks stand in one another within a function; `elif` is no deeper."""
    deepest = depth
    for name, child in ((n, c) for n, v in ast.iter_fields(node) for c in _nodes(v)):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            continue
        chained = isinstance(node, ast.If) and name == "orelse" and isinstance(child, ast.If)
        deeper = isinstance(child, BLOCKS) and not chained
        deepest = max(deepest, nesting(child, depth + deeper))
    return deepest


def _nodes(value: object) -> Iterable[ast.AST]:
    every = value if isinstance(value, list) else [value]
    return [each for each in every if isinstance(each, ast.AST)]


def participle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function's name begins with a participle or a gerund (`told`, `_named_in`).

    A property that is a `bool` is an adjective (`finished`), so that it may.
    """
    if _is_bool(function):
        return False
    first = function.name.strip("_").split("_")[0]
    ends = re.fullmatch(r"[a-z]{2,}[^e]ed|[a-z]{3,}ing", first) is not None
    return first in IRREGULAR.split() or (ends and first not in VERBS)


def _is_bool(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a property that is annotated as a `bool`."""
    returned = "" if function.returns is None else ast.unparse(function.returns)
    marks = {ast.unparse(mark) for mark in function.decorator_list}
    return returned == "bool" and bool(marks & {"property", "cached_property"})


class House:
    """The figures of one checkout."""

    def __init__(self, checkout: Path) -> None:
        """Read every module of the package."""
        self.checkout = checkout.resolve()
        package = self.checkout / "runner" / "torch_scenarios"
        texts = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
        self.sources = [Source(path, text, ast.parse(text)) for path, text in texts.items()]
        self.reference = package / "reference"

    @cached_property
    def lines(self) -> int:
        """The lines of the package."""
        return sum(len(source.lines) for source in self.sources)

    def per_kloc(self, count: float) -> str:
        """Return a count by thousand lines."""
        return f"{1000 * count / self.lines:.1f}"

    def lengths(self) -> str:
        """Return the lengths of functions: median, p95, share over LONG."""
        found = [
            (node.end_lineno or node.lineno) - node.lineno + 1
            for source in self.sources
            for node in source.functions()
        ]
        high = statistics.quantiles(found, n=100)[94]
        share = sum(each > LONG for each in found) / len(found)
        return f"{statistics.median(found):.0f}, {high:.0f}, {share:.1%}"

    def depths(self) -> str:
        """Return how deep functions nest: p95, most."""
        found = [nesting(node) for source in self.sources for node in source.functions()]
        return f"{statistics.quantiles(found, n=100)[94]:.0f} / {max(found)}"

    def suppressions(self) -> int:
        """Return the places at which a linter or the type checker is switched off."""
        marks = ("# noqa", "# type: ignore", "# pyright: ignore")
        return sum(mark in line for s in self.sources for line in s.lines for mark in marks)

    def imported(self) -> int:
        """Return the names in import statements."""
        kinds = (ast.Import, ast.ImportFrom)
        nodes = (node for source in self.sources for node in ast.walk(source.tree))
        return sum(
            len(node.names)
            for node in nodes
            if isinstance(node, kinds) and getattr(node, "module", "") != "__future__"
        )

    def deferred(self) -> int:
        """Return the import statements within functions, and the calls that import by a name."""
        inner = {
            (source.path, node.lineno)
            for source in self.sources
            for function in source.functions()
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
            or (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"))
        }
        return len(inner)

    def participles(self) -> str:
        """Return how many functions a participle or a gerund names, of all."""
        functions = [node for source in self.sources for node in source.functions()]
        return f"{sum(map(participle, functions))} of {len(functions)}"

    def owned(self) -> int:
        """Return the free functions that take a class of the package first, OWNED in one module."""
        classes = {
            node.name
            for source in self.sources
            for node in ast.walk(source.tree)
            if isinstance(node, ast.ClassDef)
        }
        found = 0
        for source in self.sources:
            if self.reference / "rules" in source.path.parents:
                continue
            firsts = Counter(
                (first.arg, ast.unparse(first.annotation))
                for node in source.tree.body
                if isinstance(node, FUNCTIONS) and node.args.args
                for first in node.args.args[:1]
                if first.annotation is not None and ast.unparse(first.annotation) in classes
            )
            found += sum(count for count in firsts.values() if count >= OWNED)
        return found

    def ruled(self) -> str:
        """Return the ruled lines that part sections, and those in files of fewer than RULED."""
        found = [
            (len(source.lines), sum(bool(re.match(r"\s*# -{20,}", line)) for line in source.lines))
            for source in self.sources
        ]
        return f"{sum(n for _, n in found)}, {sum(n for size, n in found if size < RULED)}"

    def engines(self) -> int:
        """Return the places that judge, for an engine, whether members of a collective agree."""
        asks = [
            source.path
            for source in self.sources
            if self.reference in source.path.parents
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "disagreements"
        ]
        return len(set(asks))

    def given_up(self) -> int:
        """Return the places at which cohorts leave a program to the walk."""
        return sum(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "leave"
            for source in self.sources
            if self.reference in source.path.parents
            for node in ast.walk(source.tree)
        )

    def asked(self, program: str) -> str:
        """Return what a program prints that runs with the code of this checkout."""
        paths = [self.checkout / part for part in ("runner", "tests", "tests/shared", ".")]
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout.strip()

    def rows(self) -> dict[str, str]:
        """Return every figure, by what it is."""
        prose = sum(source.prose() for source in self.sources)
        reference = [s for s in self.sources if self.reference in s.path.parents]
        architecture = self.asked(ARCHITECTURE).split()
        return {
            "lines": f"{self.lines:,}",
            "files": str(len(self.sources)),
            f"functions: median, p95, over {LONG} lines": self.lengths(),
            "nesting: p95 / max": self.depths(),
            "suppressions per kloc": self.per_kloc(self.suppressions()),
            "imported names per kloc": self.per_kloc(self.imported()),
            "comments and docstrings": f"{prose / self.lines:.1%}",
            "functions named by a participle or a gerund": self.participles(),
            "deferred imports": str(self.deferred()),
            "floors": architecture[0],
            "circles, and with types and what functions import": " / ".join(architecture[1:]),
            "free functions that take their owner first": str(self.owned()),
            f"ruled section comments, and in files under {RULED} lines": self.ruled(),
            "lines of reference/": f"{sum(len(s.lines) for s in reference):,}",
            "modules of reference/ that ask whether members agree": str(self.engines()),
            "places where cohorts give up": str(self.given_up()),
            "functions that an all_reduce passes through, and how deep": self.asked(TALE),
        }


ARCHITECTURE = """
import ast
import test_architecture as rules
loaded = {
    module: frozenset(
        name
        for statement in rules.module_level(tree)
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for name in rules.own_imports(ast.Module(body=[statement], type_ignores=[]))
    ) - {module, ""}
    for module, tree in rules.trees().items()
}
every = {module: found - {""} for module, found in rules.imports().items()}
print(len(rules.FLOORS), len(rules.rings(loaded)), len(rules.rings(every)))
"""

TALE = """
import sys
import tempfile
from pathlib import Path
import torch_scenarios
from torch_scenarios import load, plan, simulate

TEXT = "world_size: 2\\ntensors: {x: [1.0]}\\nsteps:\\n- all_reduce: {tensor: x}\\n"
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "tale.yaml")
    path.write_text(TEXT, encoding="utf-8")
    (scenario,) = load(path)
prepared = plan(scenario)
simulate(prepared)
home = str(Path(torch_scenarios.__file__).parent / "reference")
calls = []

def look(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(home) and code.co_name[0] != "<":
        depth, outer = 1, frame.f_back
        while outer is not None:
            depth += outer.f_code.co_filename.startswith(home)
            outer = outer.f_back
        calls.append((code, depth))

sys.setprofile(look)
simulate(prepared)
sys.setprofile(None)
names = [code.co_name for code, _ in calls]
began, stored = names.index("check"), names.index("store")
tale = calls[began:stored + 1]
print(f"{len({code for code, _ in tale})}, {1 + max(d for _, d in tale) - min(d for _, d in tale)}")
"""


def main() -> None:
    """Print a table, one column a checkout."""
    checkouts = [Path(name) for name in sys.argv[1:]] or [HERE]
    columns = [House(checkout).rows() for checkout in checkouts]
    print("| measured |" + "".join(f" {path.resolve().name} |" for path in checkouts))
    print("|---|" + "---|" * len(checkouts))
    for what in columns[0]:
        print(f"| {what} |" + "".join(f" {column[what]} |" for column in columns))


if __name__ == "__main__":
    main()
