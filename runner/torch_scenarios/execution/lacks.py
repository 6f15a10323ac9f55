"""What a plugin declares that its backend lacks: `LACKS = ["tags"]`.

The list is read from the source of its module and not run, so that it is known before
a process starts, and torch is not imported here.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

from torch_scenarios.errors import Problem, ScenarioError, nearest
from torch_scenarios.model.needs import CAPABILITIES

#: the name of the list in a plugin
LACKS = "LACKS"


@cache
def read_lacks(module: str) -> tuple[str, ...]:
    """Return what a plugin declares; nothing where it has no source, or declares nothing.

    Raises ScenarioError where it is not a list of capabilities, written out.
    """
    path = _source_of(module)
    if path is None:
        return ()
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()  # the workers say what is wrong with it
    for statement in tree.body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets = [statement.target]
        if any(isinstance(target, ast.Name) and target.id == LACKS for target in targets):
            assert isinstance(statement, ast.Assign | ast.AnnAssign)
            assert statement.value is not None
            return _capabilities(module, f"{path}:{statement.lineno}", statement.value)
    return ()


def _source_of(module: str) -> Path | None:
    """Return the file of a module that is installed, or lies in the current folder; or a file."""
    if module.endswith(".py"):
        return Path(module)
    for folder in (*sys.path, str(Path.cwd())):
        base = Path(folder, *module.split("."))
        for path in (base / "__init__.py", base.parent / f"{base.name}.py"):
            if path.is_file():
                return path
    return None


def _capabilities(module: str, place: str, value: ast.expr) -> tuple[str, ...]:
    """Return the words of a plugin's list. Raises ScenarioError where one is not a capability."""
    call = value.args[0] if isinstance(value, ast.Call) and len(value.args) == 1 else value
    try:
        words: object = ast.literal_eval(call)
    except ValueError:
        words = None
    if not isinstance(words, list | tuple | set | frozenset):
        message = f"{place}: `{LACKS}` of the plugin {module!r} is not a list of words, written out"
        hint = f'write `{LACKS} = ["tags"]`: it is read, and not run'
        raise ScenarioError([Problem(code="bad_value", message=message, hint=hint)])
    for word in words:
        if word not in CAPABILITIES:
            close = nearest(str(word), CAPABILITIES)
            hint = f"did you mean `{close}`?" if close else f"there are {', '.join(CAPABILITIES)}"
            message = f"{place}: `{word}` in `{LACKS}` of {module!r} is not a capability"
            raise ScenarioError([Problem(code="unknown_word", message=message, hint=hint)])
    return tuple(sorted(words))
