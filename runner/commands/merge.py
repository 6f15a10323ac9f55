"""`scenario merge`: the results of shards, or of several runs, as one; its exit code is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from runner.commands.grouping import GroupedCommand
from runner.commands.options import reported, reporting_as
from runner.problems import Problem, ScenarioError
from runner.report.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.report.html.pages import Shown
    from runner.report.several import Reports
    from runner.results import Outcome


@click.command("merge", cls=GroupedCommand)
@click.argument("results", nargs=-1, required=True, type=click.Path(dir_okay=False))
@reporting_as([kind for kind in FORMATS if kind.again])
def command(**options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Join the results of several runs: the shards of one, or runs of different files.

    RESULTS are files that `scenario run` wrote with --json or --jsonl, and for --html the pages of
    these runs as well, whose pictures the new page takes over. A case that is in two of them,
    results of different versions of torch or of this tool, and a shard that is missing are errors.
    What did not pass is shown once more; the exit code is what the whole run's would be.
    """
    reported(options, lambda reports: _joined(options["results"], reports), quiet=True)


def _joined(paths: tuple[str, ...], reports: Reports) -> Outcome:
    from runner.merging import merged  # noqa: PLC0415 -- after the command line is parsed
    from runner.report.html.pages import cases_of, drawn, is_page  # noqa: PLC0415 -- the same
    from runner.report.reading import results_of  # noqa: PLC0415 -- the same

    problems: list[Problem] = []
    outcomes: dict[str, Outcome] = {}
    pages: dict[str, Mapping[tuple[str, str], Shown]] = {}
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
        message = "pages alone cannot be joined: name what --json wrote beside them, too"
        problems.append(Problem(code="not_mergeable", message=message))
    if problems:
        raise ScenarioError(problems)
    outcome = drawn(merged(outcomes), pages)
    reports.begin(len(outcome.results))
    for result in outcome.results:
        reports.finish(result)
    return outcome
