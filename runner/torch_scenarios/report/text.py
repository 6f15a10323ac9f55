"""What a result says to a person, line by line, with the grids of what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from torch_scenarios.cost.structure import structure_phrases
from torch_scenarios.display import MOST_LINE, brief, clean_line, short, wrap
from torch_scenarios.errors import Mark, Problem
from torch_scenarios.model.scenario import Scenario, Step
from torch_scenarios.model.trace import Trace
from torch_scenarios.model.traffic import Structure
from torch_scenarios.pipeline.results import FinalReport, Outcome, Result
from torch_scenarios.pipeline.selection import step_at
from torch_scenarios.report.output import timeline
from torch_scenarios.timeline import Lane, StepSpan
from torch_scenarios.verdict import Difference, Finding, Verdict
from torch_scenarios.verdict.finding import StatedCost, ranks_text

# -------------------------------------------------------------------------------------------------
# What differed, as a grid of ranks and indices: expected against got, of a size a person reads.
#
#     rank │   [0]   [1]   [2]
#        0 │ 17≠16     5     6
#        2 │ 17≠16     5     6
#
# The grid shows the ranks that differ and the first indices at which any of them does; a cell that
# agrees shows its value once.

MOST_ROWS = 8
#: elements that are shown at each end, and the most of a tensor that is shown whole
EACH_SIDE, MOST_COLUMNS = 3, 8
#: columns of a terminal that a grid may take
WIDTH = 88
_DIGITS = 7
#: what a grid is indented by
_BELOW = " " * 6
#: stands for the elements, or the ranks, that are left out
GAP = "..."


def grid_lines(
    differences: Sequence[Difference], world_size: int | None = None, width: int = WIDTH
) -> list[str]:
    """Return the grid of all differences in numbers; no line where no number differs.

    Ranks whose rows are equal share one; with `world_size` that of all ranks says so. Where the
    elements are too many, or too wide for a line of `width` columns, the first and the last are
    shown. Tried is the whole table, then fewer and fewer columns at each end, until it fits.
    """
    numeric = [each for each in differences if each.wrong is not None]
    if not numeric:
        return []
    columns, every = _columns(numeric)
    rows = _rows(numeric, columns)
    shown = rows[:MOST_ROWS]
    names = [_name(ranks, item, world_size) for (_, item), ranks in shown]
    left = max(len("rank"), *(len(name) for name in names))
    table = [[_index(column) for column in columns], *(list(cells) for (cells, _), _ in shown)]
    whole = len(columns) == len(every)
    sides = range(min(EACH_SIDE, len(columns) // 2), 0, -1)
    first = [[row[0], *([GAP] if len(every) > 1 else [])] for row in table]
    cuts = (_cut_middle(table, n) for n in sides)
    for rendered in [*([table] if whole else []), *cuts, first]:
        widths = [max(len(row[at]) for row in rendered) for at in range(len(rendered[0]))]
        if left + 3 + sum(widths) + 2 * (len(widths) - 1) <= width:
            break
    cut = rendered is not table and len(every) > 1
    lines = [
        f"{name:>{left}} │ {_join(row, widths)}".rstrip()
        for name, row in zip(["rank", *names], rendered, strict=True)
    ]
    hidden = sum(len(ranks) for _, ranks in rows[MOST_ROWS:])
    total = sum(_count(each.wrong) for each in numeric)
    if hidden:
        lines.append(f"{GAP} and {hidden} more {'ranks' if hidden > 1 else 'rank'}")
    if hidden or cut:
        lines.append(f"{total} elements differ in all")
    return lines


def _cut_middle(table: list[list[str]], side: int) -> list[list[str]]:
    """Return a table of the first and the last `side` columns, and a gap between them."""
    return [[*row[:side], GAP, *row[-side:]] for row in table]


Row: TypeAlias = tuple[tuple[str, ...], tuple[int, ...]]


def _rows(
    numeric: Sequence[Difference], columns: Sequence[tuple[int, ...]]
) -> list[tuple[Row, list[int]]]:
    """Return the cells of each row, and their list item, with the ranks that show them."""
    rows: dict[Row, list[int]] = {}
    for each in numeric:
        cells = tuple(_cell(each, column) for column in columns)
        rows.setdefault((cells, each.item), []).append(each.rank)
    return list(rows.items())


def _columns(
    rows: Sequence[Difference],
) -> tuple[list[tuple[int, ...]], Sequence[tuple[int, ...]]]:
    """Return the indices that may be shown, and all that there are to show.

    A small tensor is shown whole; of a larger one the first and the last elements that differ.
    """
    shapes = {each.wrong.shape for each in rows if each.wrong is not None}
    only = next(iter(shapes))
    if len(shapes) == 1 and 0 < int(np.prod(only)) <= MOST_COLUMNS:
        whole = list(np.ndindex(*only))
        return whole, whole
    found: set[tuple[int, ...]] = set()
    for each in rows:
        assert each.wrong is not None
        found |= {tuple(int(at) for at in index) for index in np.argwhere(each.wrong)}
    ordered = sorted(found)
    if len(ordered) <= MOST_COLUMNS:
        return ordered, ordered
    return [*ordered[:EACH_SIDE], *ordered[-EACH_SIDE:]], ordered


def _index(column: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, column))}]" if column else "value"


def _name(ranks: Sequence[int], item: tuple[int, ...], world_size: int | None) -> str:
    """Name the ranks of a row: `3`, `1-5`, `0, 2`, `all ranks`; with the position in a list."""
    at = "".join(f"[{position}]" for position in item)
    if world_size is not None and len(ranks) == world_size > 1:
        return f"all ranks{at}"
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    names = ["-".join(map(str, run)) for run in runs]
    if len(names) > EACH_SIDE:
        names = [*names[:EACH_SIDE], GAP]
    return ", ".join(names) + at


def _cell(difference: Difference, column: tuple[int, ...]) -> str:
    """Return what a cell shows: a value where both agree, `expected≠got` where they do not."""
    expected, got = np.asarray(difference.expected), np.asarray(difference.got)
    wrong = difference.wrong
    if wrong is None or len(column) != got.ndim:
        return ""
    if any(at >= size for at, size in zip(column, got.shape, strict=True)):
        return ""
    if not wrong[column]:
        return _number(got[column])
    return f"{_number(expected[column])}≠{_number(got[column])}"


def _number(value: Any) -> str:
    """Return a number as short as its dtype tells it: whole floats without a fraction."""
    plain = np.asarray(value)
    if plain.dtype.kind == "c":
        return f"{complex(plain.item()):.{_DIGITS}g}"
    if plain.dtype.kind in "biuO":
        return str(plain.item())
    return f"{float(plain.item()):.{_DIGITS}g}"


def _join(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _count(wrong: NDArray[Any] | None) -> int:
    return 0 if wrong is None else int(wrong.sum())


# -------------------------------------------------------------------------------------------------
# What a result says to a person, line by line: plain text with the style that a terminal gives it.
#
# Every reporter of text takes its lines from here, so that a terminal, a log in CI and an error in
# pytest say the same.

Style: TypeAlias = Literal[
    "plain",
    "strong",
    "dim",
    "caret",
    "PASSED",
    "FAILED",
    "FLAKY",
    "INCONCLUSIVE",
    "UNSUPPORTED",
    "INVALID",
]

#: what a difference's two numbers are called, by which side stands alone
SIDES = {
    "expectation": "expected≠what the semantics give",
    "backend": "expected≠what the run gave",
    "reference": "expected and run≠what the reference gives",
    "program": "expected≠what the semantics give",
}

#: findings shown whole for one case, and problems of one file; the rest is counted
MOST_FINDINGS, MOST_PROBLEMS = 10, 100
#: cases of which the same is said that are named one by one
MOST_CASES = 8
#: columns of a line of words, and those that a note has after its place
PAGE, EXPLAINING = 100, 72
#: blocked ranks that `-v` tells in one line, and steps that it tells of more
MOST_BLOCKED = 8


class Line(Struct, frozen=True):
    r"""One line of a report.

    >>> "\n" in Line("rank 1\nrank 2").printable
    False

    A message of a file may have line breaks and escape sequences; on a terminal it can forge no
    second line.
    """

    text: str
    style: Style = "plain"

    @property
    def printable(self) -> str:
        """The text as one line that is safe to show, and not longer than a person reads."""
        return clean_line(short(self.text, MOST_LINE))


def headline(result: Result) -> Line:
    """Return the line that names a case and its verdict."""
    status = result.verdict.status
    took = f"  {milliseconds(result.duration_s)}" if result.duration_s else ""
    times = f"  {len(result.attempts)} runs" if result.attempts else ""
    return Line(f"{status:<12} {result.name}{took}{times}", status)


def together(results: Sequence[Result]) -> list[Line]:
    """Return the lines that name several cases of a file, of one verdict, and that verdict.

    A matrix of 40 cases that fail alike is one entry, with the names of eight.
    """
    first = results[0]
    took_s = sum(result.duration_s for result in results)
    common = first.case.partition("[")[0]
    name = f"{first.file}::{common}"
    took = f"  {milliseconds(took_s)}" if took_s else ""
    which = [result.case.removeprefix(common) for result in results]
    if len(which) > MOST_CASES:
        which = [*which[:MOST_CASES], f"and {len(which) - MOST_CASES} more"]
    status = first.verdict.status
    cases = f"in {len(results)} cases: {', '.join(which)}"
    return [Line(f"{status:<12} {name}{took}", status), *_wrap(cases, "  ", "    ")]


def milliseconds(duration_s: float) -> str:
    """Return a duration as a person reads it."""
    return f"{duration_s * 1000:.0f} ms" if duration_s < 1 else f"{duration_s:.2f} s"


def details(result: Result, columns: int | None = None) -> list[Line]:
    """Return everything below the headline: problems, findings, the reason; nothing for a pass.

    A table takes at most `columns`, those of a terminal; of a page if left out. Order and words are
    the same in a terminal, a log of CI, JUnit's text and pytest's error.
    """
    if result.text is not None:  # read back from a file
        return [Line(text) for text in result.text]
    verdict = result.verdict
    lines: list[Line] = []
    if verdict.reason and verdict.status == "FLAKY":
        lines.append(Line(f"  {_shorten(verdict.reason)}"))
    for problem in verdict.problems[:MOST_PROBLEMS]:
        lines += problem_lines(problem, columns)
    if len(verdict.problems) > MOST_PROBLEMS:
        lines.append(
            Line(f"  ... and {len(verdict.problems) - MOST_PROBLEMS} more problems", "dim")
        )
    for finding in verdict.findings[:MOST_FINDINGS]:
        lines += write_finding(finding, result.world_size, columns)
    left_out = len(verdict.findings) - MOST_FINDINGS
    if left_out > 0:
        lines.append(Line(f"  ... and {left_out} more findings", "dim"))
    if verdict.reason and verdict.status != "FLAKY":
        lines.append(Line(f"  {_shorten(verdict.reason)}"))
    if verdict.findings and verdict.observed is not None:
        lines += _hosts(verdict.observed)
    if verdict.status == "FAILED" and verdict.observed is None:
        lines.append(Line("  found by the analysis; no process was started", "dim"))
    return lines


def _hosts(trace: Trace) -> list[Line]:
    """Return which ranks were on which host; nothing where all were on one."""
    by_host: dict[str, list[int]] = {}
    for rank, host in sorted(trace.hosts.items()):
        by_host.setdefault(host, []).append(rank)
    where = "; ".join(f"{ranks_text(ranks)} on {host}" for host, ranks in by_host.items())
    return [Line(f"  hosts: {where}", "dim")] if where else []


def problem_lines(problem: Problem, columns: int | None = None) -> list[Line]:
    """Return a problem: what is wrong, its place, the line with a caret, the help."""
    return _style(problem, "error", "strong", columns)


def write_warning(warning: Problem, columns: int | None = None) -> list[Line]:
    """Return a warning as a problem is shown, below the case that has it."""
    return _style(warning, "warning", "INCONCLUSIVE", columns)


def _style(problem: Problem, kind: str, style: Style, columns: int | None) -> list[Line]:
    lines = problem.lines(kind, None if columns is None else columns - len("  "))
    styles: list[Style] = ["plain"] * len(lines)
    for at, line in enumerate(lines):
        if line.startswith(f"{kind}["):
            styles[at] = style
        elif line.startswith("  --> "):
            styles[at] = "dim"
        elif line and not line.strip(" ^"):
            styles[at] = "caret"
    return [Line(f"  {line}", each) for line, each in zip(lines, styles, strict=True)]


def count_warnings(number: int) -> str:
    """Return how many warnings there are, in words."""
    return f"{number} warning{'' if number == 1 else 's'}"


def write_finding(
    finding: Finding, world_size: int | None = None, columns: int | None = None
) -> list[Line]:
    """Return a finding: its kind, what is wrong, where, which ranks it concerns, and what helps."""
    page = PAGE if columns is None else min(PAGE, columns)
    title = f"error[{finding.kind}]: {_shorten(finding.title)}"
    lines = [Line(line, "strong") for line in wrap(title, page, "  ", "    ")]
    if finding.mark is not None:
        lines.append(Line(f"    --> {finding.mark}{_tell_recorded_place(finding.mark)}", "dim"))
        lines += _excerpt(finding.mark, "        ", columns)
    lines += _notes(finding, page)
    if finding.label is not None:
        lines.append(Line(f"    at step `{finding.label}`{_iterations(finding)}"))
    lines += _numbers(finding, world_size, columns)
    if finding.guess:
        lines.append(Line(f"    perhaps: {finding.guess}"))
    for text in finding.help:
        first, *rest = text.split("\n")
        said = wrap(f"= help: {first}", page, "    ", "            ")
        lines += [Line(line, "dim") for line in said]
        lines += [Line(f"            {line}", "dim") for line in rest]
    return lines


def _notes(finding: Finding, page: int) -> list[Line]:
    """Return a line for each note; a place comes first, in a form that a terminal links.

    The only place is left out where the finding itself is there.
    """
    places = [note.mark for note in finding.notes if note.mark is not None]
    same = (
        len(places) == 1
        and finding.mark is not None
        and _word_place(places[0]) == _word_place(finding.mark)
    )
    lines: list[Line] = []
    for note in finding.notes:
        place = "" if note.mark is None or same else f"{_word_place(note.mark)}: "
        # the words keep their room next to a long path
        width = max(page, len(place) + EXPLAINING) if page == PAGE else page
        text = _shorten(f"{place}{note.bare}")
        lines += [Line(line) for line in wrap(text, width, "    ", "      ")]
    return lines


def _word_place(mark: Mark) -> str:
    """Return `file:line`, and the place that it was recorded from."""
    return f"{mark.source.path}:{mark.line}{_tell_recorded_place(mark)}"


def _tell_recorded_place(mark: Mark) -> str:
    return "" if mark.at is None else f" (at {brief(mark.at)})"


def _wrap(text: str, first: str, rest: str, style: Style = "plain") -> list[Line]:
    """Return words as lines that a page holds."""
    return [Line(line, style) for line in wrap(text, PAGE, first, rest)]


def _shorten(words: str) -> str:
    """Return words that quote no more of a value than a person reads."""
    return brief(words, MOST_LINE)


def _iterations(finding: Finding) -> str:
    at = f", iteration {', '.join(map(str, finding.iteration))}" if finding.iteration else ""
    return f"{at} (and {finding.more} more)" if finding.more else at


def _numbers(finding: Finding, world_size: int | None, columns: int | None) -> list[Line]:
    width = WIDTH if columns is None else columns - len(_BELOW)
    grid = grid_lines(finding.differences, world_size, width)
    if not grid:
        return []
    sides = SIDES[finding.witness]
    if finding.witness == "expectation" and finding.against == "run":
        sides = "expected≠what the run gave"
    lines = [Line(f"    by rank and index, {sides}:", "dim")]
    lines += [Line(f"{_BELOW}{line}") for line in grid]
    absolute = [d.max_abs for d in finding.differences if d.max_abs is not None]
    relative = [d.max_rel for d in finding.differences if d.max_rel is not None]
    if absolute:
        text = f"    largest error: {max(absolute):.6g} absolute"
        lines.append(Line(f"{text}, {max(relative):.6g} relative" if relative else text))
    return lines


def _excerpt(mark: Mark | None, indent: str, columns: int | None) -> list[Line]:
    room = None if columns is None else columns - len(indent)
    shown = Problem(code="", message="", mark=mark).excerpt(room)
    if shown is None or not shown[0].strip():
        return []
    return [Line(f"{indent}{shown[0]}"), Line(f"{indent}{shown[1]}", "caret")]


# ---------------------------------------------------------------------------- what a trace says


def find_blocked(trace: Trace) -> dict[int, str]:
    """Return which ranks a trace leaves blocked (for sure, or as observed), each in which step."""
    return {
        rank.rank: rank.events[-1].label
        for rank in trace.ranks
        if rank.ending == "blocked" and rank.events
    }


def structure_in(verdict: Verdict) -> Structure | None:
    """Return what the program costs; None where it was not counted, or the program has no cost."""
    trace = verdict.predicted
    if trace is None or trace.traffic is None or trace.outcome != "completes":
        return None
    if any(not each.optional for each in trace.diagnoses):
        return None
    return trace.traffic.structure


#: what is stated of a cost -> its unit
_COSTS = {"rounds": "rounds", "messages": "messages", "sent": "bytes sent", "time_us": "us"}


def cost_lines(verdict: Verdict) -> list[str]:
    """Return what the program costs in a line, and a line for each cost that is not as stated."""
    structure = structure_in(verdict)
    if structure is None or not any(structure.sent):
        return []
    holds = bool(verdict.costs) and all(each.holds for each in verdict.costs)
    phrases = "; ".join(structure_phrases(structure))
    lines = [f"cost: {phrases}{', as stated' if holds else ''}"]
    for each in verdict.costs:
        if not each.holds or each.name == "time_us":
            whose = f" by {ranks_text(each.ranks)}" if each.ranks else ""
            found = f"{each.computed:.12g} {_COSTS[each.name]}{whose}"
            lines.append(f"cost: {found}, stated {_bounds(each)}")
    return lines


def _bounds(stated: StatedCost) -> str:
    if stated.low is not None and stated.low == stated.high:
        return f"{stated.low:.12g}"
    named = (("at least", stated.low), ("at most", stated.high))
    return " and ".join(f"{word} {bound:.12g}" for word, bound in named if bound is not None)


def _count_blocked(blocked: dict[int, str]) -> list[Line]:
    """Return who is blocked where, a line for each of the first steps."""
    by_step: dict[str, list[int]] = {}
    for rank, step in blocked.items():
        by_step.setdefault(step, []).append(rank)
    lines = [
        Line(f"      blocked: {ranks_text(ranks)} in `{step}`", "dim")
        for step, ranks in list(by_step.items())[:MOST_BLOCKED]
    ]
    left = len(by_step) - MOST_BLOCKED
    if left > 0:
        lines.append(Line(f"      ... and in {left} more steps", "dim"))
    return lines


#: diagnoses of one name that are reported one by one
MOST_ALIKE = 8


def _diagnoses(trace: Trace) -> list[Line]:
    """Return the prose of each diagnosis, a clause a line where there are several."""
    seen: Counter[str] = Counter()
    lines: list[Line] = []
    for diagnosis in trace.diagnoses:
        seen[diagnosis.name] += 1
        if seen[diagnosis.name] > MOST_ALIKE:
            continue
        first, *rest = _shorten(diagnosis.prose).split("; ")
        lines.append(Line(f"    {diagnosis.name}: {first}{';' if rest else ''}", "dim"))
        ends = [";"] * (len(rest) - 1) + [""]
        lines += [
            Line(f"      {clause}{end}", "dim") for clause, end in zip(rest, ends, strict=False)
        ]
    for name, count in seen.items():
        if count > MOST_ALIKE:
            lines.append(Line(f"    ... and {count - MOST_ALIKE} more {name}", "dim"))
    return lines


def write_details(verdict: Verdict) -> list[Line]:
    """Return what `-v` adds: prediction and observation, the diagnoses' prose, the notes."""
    lines: list[Line] = []
    for title, trace in (("predicted", verdict.predicted), ("observed", verdict.observed)):
        if trace is not None:
            text = f"    {title}: {trace.outcome}"
            blocked = find_blocked(trace)
            if 0 < len(blocked) <= MOST_BLOCKED:
                text += "; blocked: " + ", ".join(f"{r} in `{s}`" for r, s in blocked.items())
            lines.append(Line(text, "dim"))
            if len(blocked) > MOST_BLOCKED:
                lines += _count_blocked(blocked)
    if verdict.predicted is not None:
        lines += _diagnoses(verdict.predicted)
    lines += [Line(f"    {line}", "dim") for line in cost_lines(verdict)]
    if verdict.observed is not None and not verdict.findings:
        lines += _hosts(verdict.observed)
    for note in verdict.notes:
        first, *rest = note.splitlines() or [""]
        lines.append(Line(f"    note: {first}", "dim"))
        lines += [Line(f"      {line}", "dim") for line in rest]
    return lines


# -------------------------------------------------------------------------------------------------
# What each rank holds after the step at a line: for `scenario run sum.yaml:42`.

#: passes of a loop that are shown: the first ones
MOST_PASSES = 4


class StepValues(FinalReport):
    """Prints, below the result of each case, the values of the steps that were asked for."""

    def __init__(
        self, show: Callable[[Iterable[Line]], None], lines: Mapping[str, list[int]]
    ) -> None:
        """Print by `show`; `lines` are those asked for, by the file's path as results name it."""
        self._show = show
        self._lines = lines

    def finish(self, result: Result) -> None:
        """Print the values."""
        if result.scenario is None:
            return
        for line in self._lines.get(result.file, ()):
            step = _find_last(step_at(result.scenario, line))
            if step is None:
                place = f"{result.file}:{line}"
                self._show([Line(f"    {place} is in no step: the whole case is meant", "dim")])
            else:
                self._show(_values(result, result.scenario, step))

    def end(self, outcome: Outcome) -> None:
        """Print nothing."""


def _find_last(step: Step | None) -> Step | None:
    """Return the step itself, or the last one in the body of a loop."""
    while step is not None and step.body:
        step = step.body[-1]
    return step


def _values(result: Result, scenario: Scenario, step: Step) -> list[Line]:
    verdict = result.verdict
    trace = verdict.observed or verdict.predicted
    if trace is None or verdict.predicted is None:
        return []
    held = _find_held(scenario, trace, verdict.predicted, step)
    should = held if trace is verdict.predicted else None
    if should is None:
        should = _find_held(scenario, verdict.predicted, verdict.predicted, step)
    place = f"{step.mark.short}" if step.mark is not None else scenario.case
    verb = "held" if verdict.observed is not None else "must hold, by the analysis"
    passes = sorted({iteration for iteration, _ in should} | {iteration for iteration, _ in held})
    lines: list[Line] = []
    for iteration in passes[:MOST_PASSES]:
        turn = f", iteration {', '.join(map(str, iteration))}" if iteration else ""
        lines.append(Line(f"    after {place}{turn} each rank {verb}:", "dim"))
        ranks = sorted({rank for at, rank in (*held, *should) if at == iteration})
        for rank in ranks:
            key = iteration, rank
            lines.append(Line(f"      rank {rank}: {_tell_held(held.get(key), should.get(key))}"))
    if not passes:
        return [Line(f"    no rank took the step at {place}", "dim")]
    if len(passes) > MOST_PASSES:
        lines.append(Line(f"    ... and {len(passes) - MOST_PASSES} more iterations", "dim"))
    return lines


def _find_held(
    scenario: Scenario, trace: Trace, predicted: Trace, step: Step
) -> dict[tuple[tuple[int, ...], int], dict[str, str]]:
    """Return what each rank held after each pass of a step, as text, by iteration and rank."""
    return {
        (span.iteration, lane.rank): values
        for lane in timeline(scenario, trace, predicted).lanes
        for span, values in _list_states(lane)
        if span.index == step.index
    }


def _list_states(lane: Lane) -> Iterable[tuple[StepSpan, dict[str, str]]]:
    """Yield each step of a rank with what it stored into, or with all that the rank then holds.

    A rank that is blocked or raised has that in place of values, under an empty name.
    """
    held = dict(lane.initial)
    for span in lane.spans:
        held.update(span.values)
        if span.stuck:
            yield span, {"": f"{span.state.replace('_', ' ')} in `{span.label}`"}
        elif span.raised:
            yield span, {"": f"raised {span.raised}"}
        else:
            yield span, dict(span.values) or dict(held)


def _tell_held(held: Mapping[str, str] | None, should: Mapping[str, str] | None) -> str:
    """Return what a rank held after a step; where that is wrong, what it should be."""
    if held is None:
        return "did not reach it"
    should = should or {}
    parts = []
    for name, text in held.items():
        value = f"{name} = {text}" if name else text
        wanted = should.get(name)
        wrong = name and wanted is not None and wanted != text
        parts.append(f"{value} (should be {wanted})" if wrong else value)
    return ", ".join(parts) or "nothing"
