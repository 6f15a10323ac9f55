"""Notes in a script that a launcher of the user's own starts, as `torchrun train.py` does.

Python compiles the script that it is given before any module of ours could, unless something on
`sys.path_hooks` takes the path: that is how it runs a zip file. So the script is taken there and
compiled with notes (`evidence/decision.py`), and runs as `__main__` with all that it had: its
arguments, its folder on `sys.path`, its lines. What it imports of its own folder has notes too.
So has the script in a process that it spawns (`mp.spawn`), which runs it again for its functions.
This runs at the start of a Python process: it imports the standard library alone.
"""

from __future__ import annotations

import builtins
import importlib.util
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType
from typing import Any

from torch_scenarios.record.evidence.notes import decision
from torch_scenarios.record.recorder import describe_error, is_foreign

#: options of Python that have a word after them
_WITH_WORD = frozenset({"-X", "-W", "--check-hash-based-pycs"})
#: programs that run a script themselves, as `ipython train.py` does: they compile what they read
_HOSTS = frozenset({"ipython", "ipython3", "IPython"})
#: the word by which Python starts a process that a script spawns
SPAWNED = "--multiprocessing-fork"
#: what runs the script, and what records it
_RUNNERS = ("<frozen runpy>", os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def take_script(argv: Sequence[str]) -> None:
    """Let the script that this process runs have notes; nothing where it runs none of the user's.

    `argv` are the words that Python was started with. A framework's own worker (Ray's) runs
    functions that the program has sent it by value: their notes have the program's places.
    """
    hosted = _find_hosted(argv)
    script = hosted if hosted is not None else _script_of(argv)
    if script is not None and (not script.endswith(".py") or not os.path.isfile(script)):
        return
    path = os.path.abspath(script) if script is not None else ""
    is_spawned = SPAWNED in argv
    if path and is_foreign(path):
        _receive()
        return
    if script is None and "-m" not in argv and not is_spawned:
        return
    folders = [*filter(None, dict.fromkeys((os.getcwd(), os.path.dirname(path))))]

    def is_own(file: str) -> bool:
        within = tuple(f"{each}{os.sep}" for each in folders)
        return os.path.abspath(file).startswith(within) and not is_foreign(file)

    decisions = decision.Decisions(describe_error)
    decisions.install(is_own, is_tracing=lambda: False)
    decision.of_script = decisions
    if is_spawned:
        sys.path_hooks.insert(0, _Spawned(folders, decisions))
    elif hosted is not None:
        _note_compiled(path, decisions)
    elif script is not None:
        sys.path_hooks.insert(0, _Hook(script, path, decisions))
        sys.excepthook = _shorten(sys.excepthook)


def _find_hosted(argv: Sequence[str]) -> str | None:
    """Return the script that a program runs itself (`ipython train.py`); None for no such."""
    words = [*argv[1:]]
    if words[:1] == ["-m"]:
        del words[0]
    if not words or os.path.basename(words[0]) not in _HOSTS:
        return None
    return next((each for each in words[1:] if each.endswith(".py")), None)


def _note_compiled(path: str, decisions: decision.Decisions) -> None:
    """Let one script have notes, where another program compiles it, once."""
    raw = builtins.compile

    def compile_noted(source: Any, filename: Any, mode: str, *args: Any, **kwargs: Any) -> Any:
        is_script = (
            mode == "exec"
            and isinstance(source, str | bytes)
            and isinstance(filename, str | os.PathLike)
            and os.path.abspath(filename) == path
        )
        if not is_script:
            return raw(source, filename, mode, *args, **kwargs)
        builtins.compile = raw
        text = source if isinstance(source, bytes) else source.encode()
        code = decisions.compile(text, path, is_main=True)
        decisions.send()
        return code

    builtins.compile = compile_noted


def _receive() -> None:
    """Let notes of functions that the program sends to this process be of its places."""
    decisions = decision.Decisions(describe_error)
    if decisions.receive():
        decisions.install(is_own=lambda _: False, is_tracing=lambda: False)
        decision.of_script = decisions


def _script_of(argv: Sequence[str]) -> str | None:
    """Return the script among the words that Python was started with; None for `-m` and `-c`."""
    words = iter(argv[1:])
    for word in words:
        if word in {"-m", "-c", "-"}:
            return None
        if word in _WITH_WORD:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


class _Hook:
    """Takes the path of one script, once, and gives its code with notes."""

    def __init__(self, script: str, path: str, decisions: decision.Decisions) -> None:
        self._script, self._path, self._decisions = script, path, decisions

    def __call__(self, path: str) -> _Hook:
        """Return what imports from a path; raises ImportError where it is another one."""
        if path not in {self._script, self._path}:
            raise ImportError(path)
        sys.path_hooks.remove(self)
        return self

    def find_spec(self, name: str, target: object = None) -> ModuleSpec | None:
        """Return where the script is; None for any other module."""
        if name != "__main__":
            return None
        return importlib.util.spec_from_loader(name, self, origin=self._path)  # type: ignore[arg-type]

    def get_code(self, name: str) -> CodeType:
        """Return the code of the script, with its folder in place of its path on `sys.path`."""
        if sys.path and sys.path[0] in {self._script, self._path}:
            sys.path_importer_cache.pop(sys.path[0], None)
            sys.path[0] = os.path.dirname(os.path.realpath(self._path))
            if getattr(sys.flags, "safe_path", False):
                del sys.path[0]
        with open(self._path, "rb") as file:
            source = file.read()
        code: CodeType = self._decisions.compile(source, self._path, is_main=True)
        if "RANK" not in os.environ:
            self._decisions.send()
        return code


class _Spawned:
    """Takes the script of the process that has spawned this one: the first that is to be run."""

    def __init__(self, folders: list[str], decisions: decision.Decisions) -> None:
        self._folders, self._decisions = folders, decisions

    def __call__(self, path: str) -> _Hook:
        """Return what imports from a path; raises ImportError where it is no script."""
        if not path.endswith(".py") or not os.path.isfile(path) or is_foreign(path):
            raise ImportError(path)
        sys.path_hooks.remove(self)
        whole = os.path.abspath(path)
        self._folders.append(os.path.dirname(whole))
        sys.path_hooks.insert(0, hook := _Hook(path, whole, self._decisions))
        return hook(path)


def _shorten(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that shows an error without the frames of what runs the script."""

    def show(kind: Any, error: BaseException, trace: Any) -> None:
        frames = []
        while trace is not None:
            if not trace.tb_frame.f_code.co_filename.startswith(_RUNNERS):
                frames.append(trace)
            trace = trace.tb_next
        for one, after in itertools.pairwise([*frames, None]):
            if one is not None:
                one.tb_next = after
        first = frames[0] if frames else None
        hook(kind, error.with_traceback(first), first)

    return show
