"""Record this process, where `SCENARIO_RECORD` names a folder; then do what was here before.

`scenario record --attach` puts this folder on `PYTHONPATH`: nothing is installed. Python imports a
module of this name at its start. The recorder comes to life when `torch.distributed` is imported,
so that a process without it costs nothing.
"""

import builtins
import importlib.util
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _wait_for_torch() -> None:
    """Begin behind torch's module of a rank, and behind that by which a launcher starts ranks."""
    _find_package()
    from torch_scenarios.record.import_hook import ImportHook

    launcher = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
    awaited = {
        "torch.distributed.distributed_c10d": _begin_at_first_group,
        launcher: _watch_launch,
    }
    ImportHook(awaited).install()


def _begin_at_first_group(module: Any) -> None:
    """Begin once `torch.distributed` is whole: at the first group that is made."""
    first = module.init_process_group

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        import torch.distributed as dist

        module.init_process_group = first
        dist.init_process_group = first
        recorder = _recorder()
        if recorder is not None:
            recorder.attach(os.environ["SCENARIO_RECORD"], args, kwargs)
        return dist.init_process_group(*args, **kwargs)

    init_process_group.__doc__ = first.__doc__
    module.init_process_group = init_process_group


def _watch_launch(module: Any) -> None:
    """See how the ranks end that this process starts."""
    recorder = _recorder()
    if recorder is not None:
        recorder.watch_launcher(module, os.environ["SCENARIO_RECORD"])


def _recorder() -> Any:
    """Return the module that records; None where recording is no longer asked for."""
    if not os.environ.get("SCENARIO_RECORD"):
        return None
    _find_package()
    import torch_scenarios.record.recorder

    return torch_scenarios.record.recorder


def _note_script() -> None:
    """Let the script of this process note which way it goes, where it is one of the user's own."""
    argv = sys.orig_argv
    started = ("-m", "--multiprocessing-fork")  # a module, or a process that a script spawns
    if not any(word.endswith(".py") or word in started for word in argv[1:]):
        return
    _find_package()
    import torch_scenarios.record.evidence.main_script

    torch_scenarios.record.evidence.main_script.take_script(argv)


def _show_stack() -> None:
    """Let the first program that runs write its Python stack when it is asked for it by SIGUSR1.

    That is the one which starts the ranks (`python train.py` with `mp.spawn`); it has no rank.
    """
    import faulthandler
    import signal

    path = os.path.join(os.environ["SCENARIO_RECORD"], "parent.stack")
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    except OSError:  # another one was before
        return
    os.write(file, f"{os.getpid()}\n".encode())
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)


def _keep_error() -> None:
    """Let the first program that runs write the traceback of the error that ends it.

    Where a process that it starts has raised before it had a rank, that says so.
    """
    path = os.path.join(os.environ["SCENARIO_RECORD"], "parent.error")
    before = sys.excepthook

    def keep(kind: Any, error: Any, at: Any) -> None:
        import traceback

        try:
            with open(path, "x", encoding="utf-8", errors="replace") as file:
                file.writelines(traceback.format_exception(kind, error, at))
        except OSError:  # another one was before
            pass
        before(kind, error, at)

    sys.excepthook = keep


def _ignore_notes() -> None:
    """Let code of the script run that another process has put notes into and sent here.

    Ray and others send functions by value: their notes are numbers of places that are known there.
    """
    builtins.__scenario_traced__ = lambda: True  # type: ignore[attr-defined]


def _find_package() -> None:
    """Let this environment import our package by its path, and nothing that lies beside it.

    The ranks may run in an environment where it is not installed. A folder on `sys.path` would
    bring along the packages of the environment that `scenario` is installed in.
    """
    if "torch_scenarios" in sys.modules:
        return
    folder = os.path.dirname(os.path.dirname(_HERE))
    spec = importlib.util.spec_from_file_location(
        "torch_scenarios",
        os.path.join(folder, "__init__.py"),
        submodule_search_locations=[folder],
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["torch_scenarios"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _chain() -> None:
    """Run the `sitecustomize` that this one stands before."""
    for folder in sys.path:
        path = os.path.join(folder or ".", "sitecustomize.py")
        if os.path.abspath(folder or ".") != _HERE and os.path.isfile(path):
            spec = importlib.util.spec_from_file_location("sitecustomize", path)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            return


if os.environ.get("SCENARIO_RECORD"):
    _wait_for_torch()
    if os.environ.get("SCENARIO_RECORD_DECISIONS") != "0":
        _ignore_notes()
        if "SCENARIO_RECORD_RANK" not in os.environ:  # what a rank starts is no part of its record
            _note_script()
    is_program = any(word.endswith(".py") for word in sys.orig_argv[1:])
    if "SCENARIO_RECORD_STACKS" in os.environ and is_program:
        _show_stack()
        _keep_error()
_chain()
