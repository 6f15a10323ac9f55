"""What a session chose: the command line first, then the configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runner.execution.backends import unknown
from runner.execution.options import LaunchOptions

if TYPE_CHECKING:
    from collections.abc import Iterator


def launch_options(config: pytest.Config) -> LaunchOptions:
    """Return how the session executes scenarios. Raises UsageError for an unknown backend."""
    given = config.getoption
    backend = given("scenario_backend") or config.getini("scenario_backend")
    plugins = tuple(given("scenario_plugin") or config.getini("scenario_plugins"))
    fault = None if backend == "auto" else unknown(backend, plugins)
    if fault is not None:
        raise pytest.UsageError(fault.replace("--plugin", "--scenario-plugin"))
    return LaunchOptions(
        backend=backend,
        plugins=plugins,
        isolate=given("scenario_isolate") or config.getini("scenario_isolate"),
    )


def is_strict(config: pytest.Config) -> bool:
    """Return whether a warning is a failure."""
    return bool(config.getoption("scenario_strict") or config.getini("scenario_strict"))


def timeout_s(config: pytest.Config) -> float | None:
    """Return the timeout in place of each scenario's own, in seconds. Raises UsageError."""
    option, text = "--scenario-timeout", config.getoption("scenario_timeout")
    if text is None:
        option, text = "scenario_timeout", config.getini("scenario_timeout")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        message = f"{option}: {text!r} is no number of seconds above 0"
        raise pytest.UsageError(message)
    return seconds


def scenario_paths(config: pytest.Config) -> tuple[Path, ...]:
    """Return the configuration's `scenario_paths`, absolute.

    Raises UsageError for one that does not exist: scenarios that nobody misses would never run.
    """
    found = tuple(Path(os.path.abspath(path)) for path in config.getini("scenario_paths"))  # noqa: PTH100 -- links stay
    for path in found:
        if not path.exists():
            where = config.inipath or "the command line"
            message = f"scenario_paths in {where}: there is no file or folder {path}"
            raise pytest.UsageError(message)
    return found


def named_on_the_command_line(config: pytest.Config) -> Iterator[tuple[Path, str]]:
    """Yield each path that the session was given, absolute, with what stands behind its `::`."""
    for argument in config.args:
        path, _, inside = str(argument).partition("::")
        whole = os.path.join(config.invocation_params.dir, path)  # noqa: PTH118 -- links stay
        yield Path(os.path.normpath(whole)), inside
