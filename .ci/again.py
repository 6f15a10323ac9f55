"""Run the corpus or the tests; the few that fail run once more, alone (docs/decisions/0079).

Use: python .ci/again.py corpus SUMMARY RESULTS AGAIN
     python .ci/again.py tests SUMMARY [arguments of pytest]

`corpus` runs `scenario run scenarios` and writes its results to the file RESULTS, those of a second
run to AGAIN. Both append what a person must read to the file SUMMARY: a line `flaky: NAME` for each
that failed and then passed; of the tests also the closing line of each run. The exit code is that
of the last run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

#: more failures than these are a change's own
MOST = 10
#: exit codes of pytest, and of `scenario run`, where all was run and some of it is red
TESTS_FAILED = 1
CASES_FAILED = frozenset({1, 3})
GREEN = frozenset({"PASSED", "UNSUPPORTED"})
#: how pytest closes a session
CLOSING = re.compile(r"\b\d+ \w+.* in \d+\.\d+s\b")
#: what came of a test in place of passing, without being red
UNKNOWN = re.compile(r"\b(?:skipped|xfailed|deselected)\b")


def few(failed: Sequence[str]) -> bool:
    """Whether what failed is run once more; says so."""
    again = 0 < len(failed) <= MOST
    if again:
        print(f"\n== once more, alone: {len(failed)} that failed", flush=True)
    return again


def flaky(failed: Sequence[str], still: Collection[str]) -> list[str]:
    """Return a line for each that failed and does not fail any more."""
    return [f"flaky: {name}" for name in failed if name not in still]


# ------------------------------------------------------------------------------- the corpus


def corpus(summary: Path, results: Path, again: Path) -> int:
    """Run the corpus; return the exit code."""
    code = run_cases(results, ["scenarios"])
    failed = red_cases(results) if code in CASES_FAILED else []
    if few(failed):
        code = run_cases(again, ["-j", "1", *failed])
        report(summary, flaky(failed, red_cases(again)))
    return code


def run_cases(results: Path, arguments: Sequence[str]) -> int:
    """Run cases; return the exit code."""
    command = ["scenario", "run", *arguments, "--json", str(results)]
    return subprocess.run(command, check=False).returncode


def red_cases(results: Path) -> list[str]:
    """Return the cases of a run that are not green, as a command line names them."""
    found = json.loads(results.read_text(encoding="utf-8"))["results"]
    return [f"{each['file']}::{each['case']}" for each in found if each["verdict"] not in GREEN]


# -------------------------------------------------------------------------------- the tests


def tests(summary: Path, arguments: Sequence[str]) -> int:
    """Run the tests; return the exit code."""
    with TemporaryDirectory() as folder:
        code, closing = run_tests(folder, arguments)
        failed = red_tests(folder) if code == TESTS_FAILED else []
        lines = [closing]
        if few(failed):
            code, closing = run_tests(folder, ["-q", "-n", "0", *failed])
            if UNKNOWN.search(closing):  # one failed, and has not passed
                code = code or TESTS_FAILED
            else:
                lines = [*flaky(failed, red_tests(folder)), *lines]
            lines.append(closing)
        report(summary, lines)
    return code


def run_tests(folder: str, arguments: Sequence[str]) -> tuple[int, str]:
    """Run tests, which remember in `folder` what failed; return exit code and closing line."""
    # as the script `pytest` does it: what is tested is installed, and not what lies in this folder
    command = [sys.executable, "-P", "-m", "pytest", "-o", f"cache_dir={folder}/cache", *arguments]
    closing = last = ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
            closing = last if CLOSING.search(last) else closing
    return process.returncode, closing or last


def red_tests(folder: str) -> list[str]:
    """Return what failed in the runs so far, and has not passed since."""
    remembered = Path(folder, "cache", "v", "cache", "lastfailed")
    return sorted(json.loads(remembered.read_text(encoding="utf-8"))) if remembered.exists() else []


def report(summary: Path, lines: Sequence[str]) -> None:
    """Append lines to the summary."""
    with summary.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def main() -> int:
    """Do what the command line says."""
    what, summary, *rest = sys.argv[1:]
    if what == "corpus":
        results, again = rest
        return corpus(Path(summary), Path(results), Path(again))
    return tests(Path(summary), rest)


if __name__ == "__main__":
    sys.exit(main())
