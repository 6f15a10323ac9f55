"""Results as JUnit XML, as GitLab, Jenkins and GitHub viewers read it.

A suite is a file (at one world size), a test case a case. Backend, torch's version and world size
are properties of the suite: a test case may have none in the schema that Jenkins validates with,
and no attribute but its name, class and time. FAILED, FLAKY and INVALID are failures, INCONCLUSIVE
is an error, UNSUPPORTED is skipped. Warnings are the output of their case, and
counted in a property of the suite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TextIO
from xml.etree import ElementTree as ET

from torch_scenarios.display import clean
from torch_scenarios.pipeline.results import FinalReport, Outcome, Result, environment
from torch_scenarios.report.text import details, write_warning

ELEMENTS = {
    "FAILED": "failure",
    "FLAKY": "failure",
    "INVALID": "failure",
    "INCONCLUSIVE": "error",
    "UNSUPPORTED": "skipped",
}


class JunitReport(FinalReport):
    """The whole of a run as one document.

    It is written at the end: a suite states how many of its cases failed before it lists them.
    """

    def __init__(self, file: TextIO) -> None:
        """Write to `file`."""
        self._file = file

    def end(self, outcome: Outcome) -> None:
        """Write the document."""
        self._file.write(text(outcome))


def text(outcome: Outcome) -> str:
    """Return the document as XML text."""
    counts = _counts(outcome.results)
    del counts["skipped"]  # the schema has it on suites only
    root = ET.Element(
        "testsuites", {"name": "scenario", **counts, "time": f"{outcome.duration_s:.3f}"}
    )
    known = environment(outcome)
    root.extend(_suite(name, results, known) for name, results in _suites(outcome).items())
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'


def _suites(outcome: Outcome) -> dict[str, list[Result]]:
    """Return the results of each file; of each world size where a file has cases of several."""
    files: dict[str, dict[int | None, list[Result]]] = {}
    for result in outcome.results:
        files.setdefault(result.file, {}).setdefault(result.world_size, []).append(result)
    return {
        file if len(sizes) == 1 else f"{file} on {size} ranks": results
        for file, sizes in files.items()
        for size, results in sizes.items()
    }


def _suite(name: str, results: Sequence[Result], known: Mapping[str, str]) -> ET.Element:
    took_s = sum(result.duration_s for result in results)
    suite = ET.Element(
        "testsuite",
        {
            "name": _clean(name),
            **_counts(results),
            "time": f"{took_s:.3f}",
            "file": _clean(results[0].file),
        },
    )
    size = results[0].world_size
    ran = next((r.verdict.observed for r in results if r.verdict.observed is not None), None)
    own = {} if ran is None else {"backend": ran.backend}
    facts = {**known, **own, **({} if size is None else {"world_size": str(size)})}
    warned = {warning for result in results for warning in result.verdict.warnings}
    facts |= {"warnings": str(len(warned))} if warned else {}
    if facts:
        properties = ET.SubElement(suite, "properties")
        for key, value in facts.items():
            ET.SubElement(properties, "property", name=_clean(key), value=_clean(value))
    suite.extend(_case(result) for result in results)
    return suite


def _counts(results: Sequence[Result]) -> dict[str, str]:
    kinds = [ELEMENTS.get(result.verdict.status) for result in results]
    return {
        "tests": str(len(kinds)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
    }


def _case(result: Result) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=_clean(result.file),
        name=_clean(result.case),
        time=f"{result.duration_s:.3f}",
    )
    kind = ELEMENTS.get(result.verdict.status)
    if kind is not None:
        lines = [line.printable for line in details(result)]
        message = lines[0].strip() if lines else result.verdict.status
        child = ET.SubElement(case, kind, message=_clean(message), type=result.verdict.status)
        child.text = _clean("\n".join(lines))
    warned = [line.printable for each in result.verdict.warnings for line in write_warning(each)]
    if warned:
        ET.SubElement(case, "system-out").text = _clean("\n".join(warned))
    return case


def _clean(words: str) -> str:
    """Return words without what XML 1.0 cannot hold, even escaped, and what steers a viewer."""
    return clean(words)
