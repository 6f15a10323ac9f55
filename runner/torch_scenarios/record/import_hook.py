"""Work that waits until a script imports a module: nothing is imported for it before.

Each recorded process reads this at its start, so that it imports nothing that Python has not.
"""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any


class ImportHook(importlib.abc.MetaPathFinder):
    """Calls functions with the modules of some names, each once, when these have been imported."""

    def __init__(self, awaited: Mapping[str, Callable[[Any], None]]) -> None:
        """`awaited` holds what is called with a module, by the module's full name."""
        self._awaited = dict(awaited)

    def install(self) -> None:
        """Call what waits for modules that are imported already, and wait for the others."""
        for name in [each for each in self._awaited if each in sys.modules]:
            self._awaited.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Let the others find the module, and call what waits for it behind its last line."""
        follow = self._awaited.pop(name, None)
        spec = importlib.util.find_spec(name) if follow else None
        if spec is None or spec.loader is None or follow is None:
            return spec
        run = spec.loader.exec_module

        def execute(module: Any) -> None:
            run(module)
            follow(module)

        spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec
