"""Results as TAP 14 (testanything.org), a test point for each result as it comes.

UNSUPPORTED is skipped; every other verdict but PASSED is `not ok`, with a YAML block that says why.
Its values are written as JSON, which YAML reads: nothing in them can look like the block's end.
"""

from __future__ import annotations

import json
from typing import Any, TextIO

from torch_scenarios.display import clean_line
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.report.json import place_of
from torch_scenarios.report.text import count_warnings, details


class TapReport:
    """Writes the plan first: a stream that ends early is seen to be cut short.

    TAP version 14
    1..2
    ok 1 - scenarios/p2p/send_recv.yaml
    not ok 2 - scenarios/a.yaml
    """

    def __init__(self, file: TextIO) -> None:
        """Write to `file`."""
        self._file = file
        self._number = 0

    def begin(self, total: int) -> None:
        """Write the version and the plan."""
        nothing = " # SKIP nothing was selected" if total == 0 else ""
        self._write("TAP version 14", f"1..{total}{nothing}")

    def start(self, case: str) -> None:
        """Write nothing."""

    def finish(self, result: Result) -> None:
        """Write the test point."""
        self._number += 1
        status = result.verdict.status
        said = "ok" if status in {"PASSED", "UNSUPPORTED"} else "not ok"
        skip = f" # SKIP {_line(result.verdict.reason or '')}" if status == "UNSUPPORTED" else ""
        self._write(f"{said} {self._number} - {_line(result.name)}{skip}", *_block(_facts(result)))

    def end(self, outcome: Outcome) -> None:
        """Count the warnings; say why tests of the plan are missing."""
        for each in outcome.warnings:
            self._write(f"# {_line(each.line('warning'))}")
        if outcome.all_warnings:
            self._write(f"# {count_warnings(len(outcome.all_warnings))}")
        if outcome.interrupted:
            self._write("Bail out! interrupted")
        elif outcome.not_run and outcome.counts["INVALID"]:
            self._write("Bail out! with an invalid file nothing runs")
        elif outcome.not_run:
            self._write("Bail out! stopped at the first failure")

    def _write(self, *lines: str) -> None:
        self._file.write("".join(f"{clean_line(line)}\n" for line in lines))
        self._file.flush()


def _facts(result: Result) -> dict[str, Any]:
    facts: dict[str, Any] = {"duration_ms": round(result.duration_s * 1000, 3)}
    warned = [w.line("warning") for w in result.verdict.warnings]
    if warned:
        facts["warnings"] = warned
    if result.verdict.status in {"PASSED", "UNSUPPORTED"}:
        return facts
    mark = place_of(result)
    lines = [line.printable for line in details(result)]
    return {
        "message": lines[0].strip() if lines else result.verdict.status,
        "severity": "fail",
        "verdict": result.verdict.status,
        "at": {
            "file": result.file if mark is None else mark.source.path,
            **({} if mark is None else {"line": mark.line, "column": mark.column}),
        },
        "codes": [
            *(problem.code for problem in result.verdict.problems),
            *(finding.kind for finding in result.verdict.findings),
        ],
        "text": lines,
        **facts,
    }


def _block(facts: dict[str, Any]) -> list[str]:
    lines = ["  ---"]
    for name, value in facts.items():
        if name == "text" and not any(line.lstrip().startswith("...") for line in value):
            lines += [f"  {name}: |2", *(f"    {line}".rstrip() for line in value)]
        elif name == "text":  # some readers take this for the end of the block
            lines.append(f"  {name}: {_json(chr(10).join(value))}")
        elif isinstance(value, list) and value:
            lines += [f"  {name}:", *(f"    - {_json(item)}" for item in value)]
        else:
            lines.append(f"  {name}: {_json(value)}")
    return [*lines, "  ..."]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _line(words: str) -> str:
    """Return words as a description may have them: `#` and a backslash are escaped."""
    return " ".join(words.replace("\\", "\\\\").replace("#", "\\#").split())
