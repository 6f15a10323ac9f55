"""38 mistakes of the first days: each message points at the wrong token, in every report.

`first_days/mistakes.yaml` has them, with the token between « and ».
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from torch_scenarios.errors import Mark, ScenarioError
from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse, result_of
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.report.github import annotate_warning, annotation
from torch_scenarios.report.html.page import body
from torch_scenarios.report.json import document
from torch_scenarios.report.text import details, write_warning
from torch_scenarios.verdict.finding import Verdict

MISTAKES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "first_days/mistakes.yaml").read_text(encoding="utf-8")
)
TOP = "world_size: 2\ntensors: {x: [1, 2], w: [1, 2, 3]}\nsteps:\n"


class Token(NamedTuple):
    """A place as it is written between « and »: line and column from 1, and the length."""

    line: int
    column: int
    length: int


def text_of(mistake: dict[str, Any]) -> str:
    if "file" in mistake:
        return str(mistake["file"])
    return TOP + "".join(f"  {line}\n" for line in mistake["steps"].splitlines())


def token_of(text: str) -> Token:
    before, _, rest = text.partition("«")
    return Token(
        before.count("\n") + 1, len(before) - before.rfind("\n"), len(rest.partition("»")[0])
    )


def result(file: Path) -> Result:
    """Return what `scenario check` makes of a file of one case."""
    try:
        (scenario,) = load(file)
    except ScenarioError as error:
        verdict = Verdict(status="INVALID", problems=error.problems)
        return Result(file=str(file), case=file.stem, verdict=verdict, duration_s=0.0)
    return result_of(analyse(scenario))


def token_at(mark: Mark | None) -> Token | None:
    if mark is None or mark.end_column is None:
        return None
    assert mark.end_line in {None, mark.line}
    return Token(mark.line, mark.column, mark.end_column - mark.column)


def first_of(found: Result) -> tuple[str, Mark | None]:
    """Return the code and the place of what is said first."""
    verdict = found.verdict
    for problem in verdict.problems:
        return problem.code, problem.mark
    for finding in verdict.findings:
        return finding.kind, finding.mark
    (warning,) = verdict.warnings
    return warning.code, warning.mark


@pytest.fixture(params=sorted(MISTAKES))
def mistake(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Token, Result]:
    known = MISTAKES[request.param]
    text = text_of(known)
    file = tmp_path / f"{request.param}.yaml"
    file.write_text(text.replace("«", "").replace("»", ""), encoding="utf-8")
    return known["code"], token_of(text), result(file)


def test_there_are_38() -> None:
    assert len(MISTAKES) == 38


def test_the_place_is_the_token(mistake: tuple[str, Token, Result]) -> None:
    code, token, found = mistake
    said, mark = first_of(found)
    assert (said, token_at(mark)) == (code, token)


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_the_edit_is_offered_where_one_is_meant(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.yaml"
    file.write_text(text_of(MISTAKES[name]).replace("«", "").replace("»", ""), encoding="utf-8")
    verdict = result(file).verdict
    repairs = [each.repair for each in (*verdict.problems, *verdict.warnings)]
    repairs += [each.repair for each in verdict.findings]
    repair = next(iter(repairs))
    assert MISTAKES[name].get("edit") == (None if repair is None else repair.title)


def test_the_terminal_underlines_it(mistake: tuple[str, Token, Result]) -> None:
    _, token, found = mistake
    lines = [line.text for line in details(found)]
    lines += [line.text for warning in found.verdict.warnings for line in write_warning(warning)]
    arrow = next(at for at, line in enumerate(lines) if "-->" in line)
    assert lines[arrow].endswith(f":{token.line}:{token.column}")
    source, carets = lines[arrow + 1], lines[arrow + 2]
    indent = len(source) - len(source.lstrip())
    written = Path(found.file).read_text(encoding="utf-8").splitlines()[token.line - 1]
    shift = indent - (len(written) - len(written.lstrip()))
    assert carets.strip() == "^" * token.length
    assert carets.index("^") - shift == token.column - 1


def test_the_page_marks_it(mistake: tuple[str, Token, Result]) -> None:
    _, token, found = mistake
    places = body(found)["places"]
    if found.verdict.status == "PASSED":  # a warning is in the words of the page alone
        assert places == []
        return
    place = places[0]
    assert (place["line"], place["from"], place["to"]) == (
        token.line,
        token.column - 1,
        token.column - 1 + token.length,
    )


def test_the_json_has_it(mistake: tuple[str, Token, Result]) -> None:
    _, token, found = mistake
    (entry,) = document(Outcome(results=(found,)))["results"]
    place = [*entry["problems"], *entry["warnings"]][0]
    assert (place["line"], place["column"]) == (token.line, token.column)
    assert (place["end_line"], place["end_column"] - place["column"]) == (token.line, token.length)


def test_the_annotation_spans_it(mistake: tuple[str, Token, Result]) -> None:
    _, token, found = mistake
    passed = found.verdict.status == "PASSED"
    said = annotate_warning(found.verdict.warnings[0]) if passed else annotation(found)
    fields = dict(re.findall(r"(\w+)=(\d+)", said.split("::")[1]))
    assert {name: int(fields[name]) for name in ("line", "endLine")} == {
        "line": token.line,
        "endLine": token.line,
    }
    assert int(fields["col"]) == token.column
    assert int(fields["endColumn"]) == token.column + token.length - 1
