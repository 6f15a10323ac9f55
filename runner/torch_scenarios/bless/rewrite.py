"""Answers -> the new text of a file, proved against the reference and confirmed by runs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
from msgspec import Struct

from torch_scenarios.bless.answers import REST, Answer, answers, state_answers
from torch_scenarios.bless.draft import (
    CODES,
    AnalysedCase,
    Draft,
    ExpectPlace,
    NotBlessedError,
    Objection,
    draft,
    is_long_form,
    places,
    refuse,
)
from torch_scenarios.errors import Edit
from torch_scenarios.expressions.values import Undefined
from torch_scenarios.files import replace_file
from torch_scenarios.language.document import cases_as_written, load_content
from torch_scenarios.limits import DEFAULT, Limits
from torch_scenarios.model.groups import plan
from torch_scenarios.model.trace import Value
from torch_scenarios.operations.base import dtype_name
from torch_scenarios.pipeline.attempts import analyse, execute
from torch_scenarios.pipeline.results import Analysis, Executor
from torch_scenarios.reference import simulate
from torch_scenarios.source import edit
from torch_scenarios.source.documents import read_document
from torch_scenarios.source.tree import decode, parse
from torch_scenarios.verdict import Finding, Verdict, judge

# -------------------------------------------------------------------------------------------------
# Answers -> edits: the value spans that are open or wrong, stated anew.

#: what stands between two commas; a comma inside quotes does not count
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|,(?! )|[^,"'])+(?:, )?""")
#: the number in an author's `full(shape, number)`
_FULL = re.compile(r"full\([^()]*(?:\[[^\]]*\])?[^()]*, (-?\d+(?:\.\d+)?)\)")
#: columns of a line, unless what must not be broken is longer
WIDTH = 100


class BlessedValue(Struct, frozen=True, kw_only=True):
    """One value in the draft: its key, the whole value, and the `expect` that it stands in.

    expect: {x: 0}       ->   expect: {x: [3, 3]}          the same on each rank
                         ->   expect: {x: {0: [3], else: [0]}}
    """

    key: edit.Span
    value: edit.Span
    parent: edit.Span


def restate(
    draft: Draft, entry: BlessedValue, found: Iterable[Answer], groups: Mapping[frozenset[int], str]
) -> Iterator[Edit]:
    """Yield the edits that make one expectation true. Raises RefusedError where none can."""
    by_path: dict[tuple[int, ...], list[Answer]] = defaultdict(list)
    for answer in found:
        by_path[answer.path].append(answer)
    for path, given in by_path.items():
        leaf, above = _leaf(entry.value, path)
        if is_long_form(leaf):
            yield from _edit_long_form(draft, entry, leaf, given, groups)
        elif leaf.start in draft.open or any(answer.wrong for answer in given):
            _police(draft, entry, leaf, given)
            kept = _refill(draft, leaf, given)
            if kept is not None:
                yield kept
                continue
            made = state_answers(entry.key, given, edit.word_value, groups, rest=above is None)
            yield _replace_leaf(draft.text, entry, leaf, above, made)


def _leaf(
    value: edit.Span, path: tuple[int, ...]
) -> tuple[edit.Span, tuple[edit.Span, edit.Span] | None]:
    """Return the value at the end of a path, and its key with the mapping that it stands in."""
    above = None
    for step in path:
        _police_dressed(value)
        plain = [entry for entry in value.entries if entry[0].text != "else"]
        rest = [entry for entry in value.entries if entry[0].text == "else"]
        key, inner = rest[0] if step == REST else plain[step]
        above, value = (key, value), inner
    return value, above


def _police(draft: Draft, entry: BlessedValue, leaf: edit.Span, given: Sequence[Answer]) -> None:
    _police_dressed(leaf)
    undefined = [answer for answer in given if isinstance(answer.value, Undefined)]
    everywhere = len(undefined) == len(given)
    if undefined and (everywhere or leaf.start not in draft.open):
        value = undefined[0].value
        message = f"`{entry.key.text}` is undefined on {_ranks(undefined)} after {value.cause}"
        refuse("value_undefined", message + ": no value may be relied on", entry.key.line)
    if all(answer.value is None for answer in given):
        message = f"`{entry.key.text}` does not exist on {_ranks(given)}"
        refuse("value_undefined", message, entry.key.line)


def _police_dressed(span: edit.Span) -> None:
    if span.kind == "alias" or span.dressed:
        message = "this value has an anchor, an alias or a tag: to change it here could change it "
        refuse("shared_value", message + "elsewhere; write it out", span.line)


def _ranks(given: Sequence[Answer]) -> str:
    ranks = sorted({answer.rank for answer in given})
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _refill(draft: Draft, leaf: edit.Span, given: Sequence[Answer]) -> Edit | None:
    """Return the edit of the number in an author's `full(shape, number)`, if only that is wrong.

    An author's own expression is kept where it can be: `full(width, 3)` becomes `full(width, 4)`
    and no list.
    """
    found = _FULL.search(draft.text, leaf.start, leaf.end)
    if found is None or leaf.start in draft.open:
        return None
    if found.start() > leaf.start + 1 or found.end() < leaf.end - 1:
        return None  # there is more around it than quotes
    texts = {_find_fill(answer) for answer in given}
    text = texts.pop()
    if texts or text is None:
        return None
    return Edit(start=found.start(1), end=found.end(1), text=text)


def _find_fill(answer: Answer) -> str | None:
    """Return the number that a tensor holds everywhere; None where it has several, or no place."""
    value = answer.value
    if "extent" in answer.wrong or not isinstance(value, np.ndarray) or not value.size:
        return None
    if value.dtype.kind not in "iuf" or bool((value != value.reshape(-1)[0]).any()):
        return None
    return edit.word_value(value.reshape(-1)[0])


# ---------------------------------------------------------------------------- the long form


def _text_of_dtype(value: Value) -> str:
    return dtype_name(value.dtype)


def _text_of_shape(value: Value) -> str:
    return str(list(value.shape))


_PARTS = {"value": edit.word_value, "dtype": _text_of_dtype, "shape": _text_of_shape}


def _edit_long_form(
    draft: Draft,
    entry: BlessedValue,
    leaf: edit.Span,
    given: Sequence[Answer],
    groups: Mapping[frozenset[int], str],
) -> Iterator[Edit]:
    """Yield the edits of the parts of a `{value: ..., dtype: ..., shape: ...}`."""
    wrong = {part.replace("extent", "value") for answer in given for part in answer.wrong}
    for name, text_of in _PARTS.items():
        part = leaf.get(name)
        if part is not None and (part.start in draft.open or name in wrong):
            _police(draft, entry, part, given)
            made = state_answers(entry.key, given, text_of, groups)
            yield _fit(draft.text, entry, part, made.line)
    if "value" in wrong and leaf.get("value") is None:
        message = f"`{entry.key.text}` states no value, and is not what it states"
        refuse("not_proved", message, entry.key.line)


# ---------------------------------------------------------------------------- how it is laid out


def _replace_leaf(
    text: str,
    entry: BlessedValue,
    leaf: edit.Span,
    above: tuple[edit.Span, edit.Span] | None,
    made: edit.Stated,
) -> Edit:
    if made.alone is not None:
        return _fit(text, entry, leaf, made.alone)
    if above is None:
        return _state_ranks(text, entry, made)
    key, mapping = above
    glue = ", "
    if not mapping.flow:
        glue = edit.newline(text) + " " * edit.indentation(text, mapping)
    parts = [f"{selector}: {value}" for selector, value in made.entries]
    return Edit(start=key.start, end=max(key.end, leaf.end), text=glue.join(parts))


def _state_ranks(text: str, entry: BlessedValue, made: edit.Stated) -> Edit:
    """Return the edit that states ranks that differ: in one line where it fits."""
    span = entry.value
    start = _find_value(text, entry)
    column = entry.key.start - edit.line_start(text, entry.key.start)
    fits = start - edit.line_start(text, start) + 1 + len(made.line) <= WIDTH
    if fits or entry.parent.flow:
        return _fit(text, entry, span, made.line)
    indent = edit.newline(text) + " " * (column + 2)
    lines = "".join(f"{indent}{selector}: {value}" for selector, value in made.entries)
    return edit.put_below(text, start, span, lines)


def _fit(text: str, entry: BlessedValue, span: edit.Span, value: str) -> Edit:
    """Return the edit that puts a value in place of a span, broken where the line is too long."""
    start, end = span.start, span.end
    block = span.kind in {"mapping", "sequence"} and not span.flow
    if block and span is entry.value:
        start = _find_value(text, entry)
        value = " " + value  # what was below its key now stands beside it
    at = start - edit.line_start(text, start)
    if at + len(value) > WIDTH:
        value = break_lines(value, at, edit.indentation(text, entry.parent) + 4, edit.newline(text))
    return Edit(start=start, end=end, text=value)


def _find_value(text: str, entry: BlessedValue) -> int:
    return text.index(":", entry.key.end) + 1


def break_lines(value: str, at: int, indent: int, line_end: str) -> str:
    """Return flow YAML with line breaks after commas; `at` is the column where it begins."""
    lines, line = [], ""
    room = WIDTH - at
    for part in _PART.findall(value):
        if line and len(line) + len(part.rstrip()) > room:
            lines.append(line.rstrip())
            line, room = part, WIDTH - indent
        else:
            line += part
    return (line_end + " " * indent).join([*lines, line])


# -------------------------------------------------------------------------------------------------
# Whether a program may be blessed at all, and whether a new text holds.

#: findings about values: where those are stated anew it is seen what is undefined, and what no rank
#: reaches (until then what is open has a key that selects no rank)
VALUES = frozenset(
    {
        "value_differs",
        "shape_differs",
        "dtype_differs",
        "value_missing",
        "undefined_read",
        "expectation_unreached",
    }
)
#: how a program ends otherwise than stated -> why that is never blessed
_ENDINGS = {
    "deadlock": "program_hangs",
    "crash": "program_crashes",
    "error": "program_raises",
}


def analyse_text(path: Path, text: str, limits: Limits) -> list[AnalysedCase]:
    """Return the cases of a text, simulated.

    Raises ScenarioError, and NotBlessedError where one asks for what is left out here.
    """
    found = []
    for scenario in load_content(path, text.encode(), limits=limits):
        if scenario.lacking is not None:
            refuse("left_open", scenario.lacking)
        resolved = plan(scenario, limits=limits)
        predicted = simulate(resolved, limits=limits)
        found.append(AnalysedCase(scenario=scenario, plan=resolved, predicted=predicted))
    return found


def police(cases: Sequence[AnalysedCase], limits: Limits) -> None:
    """Raise NotBlessedError where something else than a value is wrong with a program.

    To state what a program that hangs happens to hold would make a mistake the expectation.
    """
    for case in cases:
        verdict = judge(case.plan, case.predicted, limits=limits, cases_of=cases_as_written)
        for finding in verdict.findings:
            if finding.code not in VALUES:
                raise NotBlessedError(_refusal(case, finding))
        if case.predicted.limits:
            refuse("left_open", "; ".join(case.predicted.limits))


def _refusal(case: AnalysedCase, finding: Finding) -> Objection:
    line = finding.mark.line if finding.mark is not None else None
    code = "wrong_program"
    if finding.code in {"diagnosis_undeclared", "outcome_differs"}:
        code = _ENDINGS.get(case.predicted.outcome, code)
        if code in {_ENDINGS.get(end) for end in case.scenario.expect.ends}:
            code = "wrong_program"  # it ends as stated, for a reason that is not
    return Objection(code=code, message=f"{CODES[code]}: {_tell_finding(finding)}", line=line)


def _tell_finding(finding: Finding) -> str:
    return "; ".join(filter(None, (finding.prose, finding.explanation)))


def prove(path: Path, text: str, limits: Limits) -> tuple[Analysis, ...]:
    """Return the analyses of a new text, all of which pass. Raises NotBlessedError where one fails.

    What is written was computed by the reference; this asks the whole text once more, as a reader
    would.
    """
    found = tuple(
        analyse(scenario, limits) for scenario in load_content(path, text.encode(), limits=limits)
    )
    for analysis in found:
        verdict = analysis.verdict
        if verdict.status == "INCONCLUSIVE":
            refuse("left_open", verdict.reason or "the analysis left it open")
        if verdict.status != "PASSED":
            lines = [_tell_finding(finding) for finding in verdict.findings]
            lines += [problem.message for problem in verdict.problems]
            refuse("not_proved", f"what would be written does not hold: {lines[0]}")
    return found


# -------------------------------------------------------------------------------------------------
# A proposal, run: every case, several times, and every time it must pass.


def confirm(proposal: Proposal, executor: Executor, *, runs: int = 2) -> None:
    """Run each case of a proposal `runs` times. Raises NotBlessedError unless it always passes.

    The reference may be wrong as well: with a run there is a second witness for what is written.
    """
    for analysis in proposal.analyses:
        verdicts = [execute(analysis, executor).verdict for _ in range(runs)]
        failed = [verdict for verdict in verdicts if verdict.status != "PASSED"]
        if failed:
            _refuse(analysis, verdicts, failed[0])


def _refuse(analysis: Analysis, verdicts: list[Verdict], failed: Verdict) -> NoReturn:
    case = analysis.scenario.case
    run = _describe_run(failed)
    line = next((each.mark.line for each in failed.findings if each.mark is not None), None)
    if failed.status == "UNSUPPORTED":
        refuse("cannot_run", f"{case} cannot run here: {run}")
    if failed.status == "INCONCLUSIVE":
        refuse("left_open", f"{case}: {run}")
    if any(verdict.status == "PASSED" for verdict in verdicts):
        message = f"{case} passes in one run and fails in another: {run}"
        refuse("runs_differ", message, line)
    refuse("reference_disagrees", f"{case}: {run}", line)


def _describe_run(verdict: Verdict) -> str:
    if verdict.findings:
        return verdict.findings[0].prose
    return verdict.reason or verdict.status


# -------------------------------------------------------------------------------------------------
# A file is replaced whole or not at all; its mode, its links and its byte order mark stay.

_BOM = b"\xef\xbb\xbf"


def write(proposal: Proposal) -> None:
    """Write a proposal's text over its file, if that still holds what it was made from.

    Raises NotBlessedError where it does not, OSError where it cannot be written.
    """
    path = proposal.path.resolve()
    now = read_document(path)
    if now.removeprefix(_BOM) != proposal.before.encode():
        refuse("file_changed", "the file changed while it was blessed; bless it again")
    mark = _BOM if now.startswith(_BOM) else b""
    replace_file(path, mark + proposal.after.encode())


# -------------------------------------------------------------------------------------------------
# One file -> the text that it should have: loaded, stated anew, and proved against the reference.
#
# Nothing here runs a process, reads or writes a file.

_CONFLICT = re.compile(r"^(<{7}|>{7}|={7})( |$)", re.MULTILINE)


class Proposal(Struct, frozen=True, kw_only=True):
    """A file's text as it is and as it should be; equal where nothing is open or wrong.

    `analyses` are the cases of the new text, each proved by the reference; `filled` counts the
    values that are new.
    """

    path: Path
    before: str
    after: str
    analyses: tuple[Analysis, ...]
    filled: int

    @property
    def changes(self) -> bool:
        """Whether the file is to be changed."""
        return self.before != self.after


def propose(
    path: Path, content: bytes, *, every: bool = False, limits: Limits = DEFAULT
) -> Proposal | None:
    """Return what a file of that content should say; None for a part, which has no cases.

    `every` lets every step state what it writes. Raises NotBlessedError with the reason,
    ScenarioError where the file is invalid.
    """
    source = decode(str(path), content, limits)
    text = source.text
    _police_conflict(text)
    parse(source, limits=limits)
    root = edit.spans(text)
    if root.kind == "mapping" and root.get("world_size") is None and root.get("inputs") is not None:
        return None
    made = draft(text, lambda each: analyse_text(path, each, limits), every=every)
    cases = analyse_text(path, made.text, limits)
    police(cases, limits)
    edits = list(_edits(made, cases, limits))
    after = edit.splice(made.text, edits)
    return Proposal(
        path=path,
        before=text,
        after=after,
        analyses=prove(path, after, limits),
        filled=len(edits),
    )


def _police_conflict(text: str) -> None:
    found = _CONFLICT.search(text)
    if found is not None and "<<<<<<<" in text:
        line = text.count("\n", 0, found.start()) + 1
        message = "a conflict is not resolved here: resolve it, then bless"
        refuse("unresolved_conflict", message, line)


# ---------------------------------------------------------------------------- what is stated anew


def _edits(made: Draft, cases: Sequence[AnalysedCase], limits: Limits) -> Iterator[Edit]:
    found = places(edit.spans(made.text))
    stands = dict(_entries(found))
    by_entry: dict[tuple[int, int], list[Answer]] = defaultdict(list)
    for case in cases:
        for expectation, answer in answers(case, limits):
            mark = expectation.mark
            assert mark is not None
            if mark.source.path == case.scenario.source.path:
                by_entry[mark.line, mark.column].append(answer)
            elif answer.wrong:
                message = f"`{expectation.key.text}` is wrong in {mark}: a part serves every "
                refuse("used_part", message + "scenario that uses it, so change it yourself")
    groups = _groups(cases)
    unanswered = set(stands) - by_entry.keys()
    for key, entry in stands.items():
        if key in unanswered:
            _police_unanswered(made, entry)
        else:
            yield from restate(made, entry, by_entry[key], groups)


def _entries(found: Iterable[ExpectPlace]) -> Iterator[tuple[tuple[int, int], BlessedValue]]:
    for place in found:
        for key, value in place.values_of():
            assert place.expect is not None
            yield (key.line, key.column), BlessedValue(key=key, value=value, parent=place.expect)


def _police_unanswered(made: Draft, entry: BlessedValue) -> None:
    if any(entry.value.start <= offset < entry.value.end for offset in made.open):
        message = f"`{entry.key.text}` is asked of no rank: none reaches this place"
        refuse("nothing_written", message, entry.key.line)


def _groups(cases: Sequence[AnalysedCase]) -> Mapping[frozenset[int], str]:
    """Return the sets of ranks that have a name, the same in every case.

    `{even: [3], odd: [7]}` reads better than `{"[0, 2]": [3], "[1, 3]": [7]}`.
    """
    named: list[dict[frozenset[int], str]] = []
    for case in cases:
        found: dict[frozenset[int], str] = {}
        for name, groups in case.plan.names.items():
            if len(groups) == 1 and name.isidentifier() and name != case.plan.world.name:
                found.setdefault(frozenset(groups[0].ranks), name)
        named.append(found)
    first = named[0] if named else {}
    return {
        ranks: name
        for ranks, name in first.items()
        if all(other.get(ranks) == name for other in named)
    }
