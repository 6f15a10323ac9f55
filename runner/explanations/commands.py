"""Problems of the command line, of results and of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.explanations.problem import problem

if TYPE_CHECKING:
    from runner.explanations.entry import Explanation

COMMANDS: tuple[Explanation, ...] = (
    problem(
        "unknown_parameter",
        "`--set` names no parameter and no matrix key of the file.",
        "Only what the file declares can be replaced.",
        "correct the name, or select only the files that declare it.",
    ),
    problem(
        "bad_keyword",
        "The expression of -k cannot be read.",
        "It is made of words, `and`, `or`, `not` and parentheses.",
        "close the parentheses and write a word on each side of `and` and `or`.",
    ),
    problem(
        "unknown_place",
        "The command line names a case, or a line, that the file does not have.",
        "`sum.yaml::case` is a case as the reports print it, `sum.yaml:42` the step at a line.",
        "`scenario list sum.yaml` prints the cases of a file.",
    ),
    problem(
        "not_a_result",
        "A file that should hold results of `scenario run --json` holds something else.",
        "Results are merged and compared only where nothing in them was changed by hand.",
        "name the file that `--json` or `--jsonl` wrote.",
    ),
    problem(
        "truncated_result",
        "A file of results ends in the middle.",
        "The command that wrote it was killed, or the file was not copied whole.",
        "run it again; `--jsonl` keeps what was finished also where a run is killed.",
    ),
    problem(
        "newer_result",
        "A file of results is of a newer version of the format.",
        "What it says cannot be told with certainty by a program that is older.",
        "install the version of scenario-runner that wrote it, or a newer one.",
    ),
    problem(
        "not_mergeable",
        "Files of results do not belong together.",
        "A case may be told of once, all by one version of torch and of this tool, and no shard "
        "may be missing: a whole that lacks a part must not pass.",
        "give `scenario merge` the results of all shards of one run, or of runs of other files.",
    ),
    problem(
        "report_unwritable",
        "A report cannot be written where the command line says.",
        "Every path is tried before anything runs, so that no result is lost at the end.",
        "make the folder, choose another file, or give each report a file of its own.",
    ),
    problem(
        "no_latest_run",
        "`scenario show --last` finds no run to draw here, or cannot read what one kept.",
        "`scenario run` keeps the timelines of its cases in `.scenario/` beside the project; a run "
        "in another folder, `scenario check` and torchrun keep none.",
        "run the scenario first, in this project; or name the file: `scenario show FILE --run`.",
    ),
)
