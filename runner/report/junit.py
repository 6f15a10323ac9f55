"""Results as JUnit XML, as CI servers read it: one suite, one test case a scenario case.

FAILED and INVALID are failures, INCONCLUSIVE an error, UNSUPPORTED skipped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from runner.report.at_end import AtEnd
from runner.report.prose import details

if TYPE_CHECKING:
    from typing import TextIO

    from runner.results import Outcome, Result

ELEMENTS = {
    "FAILED": "failure",
    "INVALID": "failure",
    "INCONCLUSIVE": "error",
    "UNSUPPORTED": "skipped",
}

#: what XML 1.0 cannot hold, even escaped
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JunitReport(AtEnd):
    """The whole of a run as one document."""

    def __init__(self, file: TextIO) -> None:
        """Write to `file`."""
        self._file = file

    def end(self, outcome: Outcome) -> None:
        """Write the document."""
        self._file.write(text(outcome))


def text(outcome: Outcome) -> str:
    """Return the document as XML text."""
    statuses = [result.verdict.status for result in outcome.results]
    kinds = [ELEMENTS.get(status) for status in statuses]
    suite = ET.Element(
        "testsuite",
        name="scenario",
        tests=str(len(kinds)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{outcome.duration_s:.3f}",
    )
    for result in outcome.results:
        suite.append(_case(result))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'


def _case(result: Result) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=_clean(result.file),
        name=_clean(result.case),
        file=_clean(result.file),
        time=f"{result.duration_s:.3f}",
    )
    kind = ELEMENTS.get(result.verdict.status)
    if kind is not None:
        lines = [line.text for line in details(result)]
        message = lines[0].strip() if lines else result.verdict.status
        child = ET.SubElement(case, kind, message=_clean(message), type=result.verdict.status)
        child.text = _clean("\n".join(lines))
    return case


def _clean(words: str) -> str:
    return _FORBIDDEN.sub("?", words)
