"""What `scenario merge` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from torch_scenarios.cli.answers.reports import report
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.pipeline.merge import merge_outcomes
from torch_scenarios.pipeline.results import Outcome
from torch_scenarios.report.html.page import PageCase, cases_of, draw, is_page
from torch_scenarios.report.json import results_of
from torch_scenarios.report.output import Reports


def merge(options: Mapping[str, Any]) -> NoReturn:
    """Join the results of several runs, and report them as one."""
    report(options, lambda reports: _merge_reports(options["results"], reports))


def _merge_reports(paths: tuple[str, ...], reports: Reports) -> Outcome:
    """Join results of files that `--json` wrote, with pictures of pages that `--html` wrote.

    All that is wrong with any of the files is reported at once.
    """
    problems: list[Problem] = []
    outcomes: dict[str, Outcome] = {}
    pages: dict[str, Mapping[tuple[str, str], PageCase]] = {}
    for path in paths:
        if path in outcomes or path in pages:
            message = f"{path} is named twice"
            problems.append(Problem(code="not_mergeable", message=message))
            continue
        try:
            if is_page(path):
                pages[path] = cases_of(path)
            else:
                outcomes[path] = results_of(path)
        except ScenarioError as error:
            problems += error.problems
    if not outcomes and not problems:
        message = "pages alone cannot be joined: name also what --json wrote with them"
        problems.append(Problem(code="not_mergeable", message=message))
    if problems:
        raise ScenarioError(problems)
    outcome = draw(merge_outcomes(outcomes), pages)
    reports.begin(len(outcome.results))
    for result in outcome.results:
        reports.finish(result)
    return outcome
