"""The HTML report: one file that holds a whole run, opened by any browser, sent to anyone.

`report` listens to a run and writes the file, `case` says what the page knows of one result,
`page` joins markup, style, program and data. The page itself is report.html, report.css and the .js
files beside this one: no framework, no network, and a security policy under which nothing but them
can run, because what a scenario says comes from strangers.
"""

from __future__ import annotations

from torch_scenarios.report.html.page import HtmlReport

__all__ = ["HtmlReport"]
