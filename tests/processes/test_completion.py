"""`scenario completion`: what Click generates, and a shell that completes with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner

from torch_scenarios.cli import COMMANDS, cli
from torch_scenarios.cli.show import SHELLS

if TYPE_CHECKING:
    from pathlib import Path

BASH = shutil.which("bash") or ""


def script(shell: str) -> str:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_that_of_click(shell: str) -> None:
    generator = get_completion_class(shell)
    assert generator is not None
    source = generator(cli, {}, "scenario", "_SCENARIO_COMPLETE").source()
    assert script(shell) == source + "\n"
    assert "_SCENARIO_COMPLETE" in source


def test_another_shell_is_refused_with_those_that_are_known() -> None:
    done = CliRunner().invoke(cli, ["completion", "tcsh"])
    assert done.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr


@pytest.mark.skipif(not BASH, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["scenario", ""], set(COMMANDS)),
        (["scenario", "che"], {"check"}),
        (["scenario", "fmt", "--ch"], {"--check"}),
        (["scenario", "completion", ""], set(SHELLS)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bash_completes(words: list[str], found: set[str], tmp_path: Path) -> None:
    """Source the script, and ask its function as bash does when Tab is pressed."""
    command = tmp_path / "scenario"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m torch_scenarios.cli "$@"\n')
    command.chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in words)
    program = f"""
        PATH="{tmp_path}:$PATH"
        {script("bash")}
        complete -p scenario >&2
        COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}
        _scenario_completion scenario "{words[-1]}"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run([BASH, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == found
    assert "_scenario_completion scenario" in done.stderr
