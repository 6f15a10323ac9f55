"""Every code is explained, and every example in an explanation shows what it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from sampling import sampled

import torch_scenarios
from torch_scenarios.cli import cli
from torch_scenarios.errors import WARNING_CODES, ScenarioError
from torch_scenarios.explain import EXPLANATIONS, explanation, page
from torch_scenarios.explain.prose import PAGES
from torch_scenarios.language import load
from torch_scenarios.limits import FLAGS
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.verdict import FINDING_CODES, STATUSES
from torch_scenarios.vocabulary import DIAGNOSES, OUTCOMES, RAISE_KINDS

if TYPE_CHECKING:
    from torch_scenarios.errors import Explanation

PACKAGE = Path(torch_scenarios.__file__).parent
GOLDEN = Path(__file__).parent.parent / "problems"

#: calls that make a problem, with the position of its code
MAKERS = {
    "Problem": None,
    "Refusal": None,
    "_RefusedError": None,
    "Difference": None,
    "Finding": None,
    "add": 0,
    "unknown": 0,
    "fixed": None,
    "fixed_form": None,
    "refuse": None,
    "_problem": 0,
    "_stop": 0,
    "warn": 0,
    "warning": 0,
}
CODE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)+")

#: words that stand in such calls and are no codes: functions of torch, names of bounds, keys
NO_CODES = re.compile(r"max_.*|new_group|new_subgroups.*|init_device_mesh|world_size|.*_mismatch")

EXPECTED = {
    "diagnosis": "PASSED",
    "finding": "FAILED",
    "problem": "INVALID",
    "warning": "PASSED",
}


def codes_in(file: Path) -> set[str]:
    """Return the codes that a module passes to whatever makes a problem."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name not in MAKERS:
            continue
        values = [*node.args, *(k.value for k in node.keywords if k.arg in {"code", "name"})]
        found.update(
            value.value
            for value in values
            if isinstance(value, ast.Constant)
            and isinstance(value.value, str)
            and CODE.fullmatch(value.value)
            and not NO_CODES.fullmatch(value.value)
        )
    return found


def test_every_code_that_a_module_uses_is_explained() -> None:
    used = {code: file.name for file in PACKAGE.rglob("*.py") for code in codes_in(file)}
    assert "duplicate_key" in used
    assert {code: file for code, file in used.items() if code not in EXPLANATIONS} == {}


def test_every_code_in_the_golden_messages_is_explained() -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in GOLDEN.glob("*.txt"))
    found = set(re.findall(r"^error\[(\w+)\]:", text, re.MULTILINE))
    assert found
    assert found <= EXPLANATIONS.keys()


def test_every_diagnosis_finding_and_kind_is_explained() -> None:
    unexplained = {*DIAGNOSES, *FINDING_CODES, *RAISE_KINDS} - EXPLANATIONS.keys()
    assert not unexplained, "write a page NAME.md for each in a folder of explain/pages/"


def test_every_word_of_a_report_is_explained_in_any_case() -> None:
    told = ("blocked", "predicted", "observed", "perhaps", "warning", "interrupted")
    words = [*STATUSES, *OUTCOMES, *told, *(name.replace("_", "-") for name in FLAGS), "limits"]
    for word in words:
        found = explanation(word)
        assert found is not None, word
        assert found is explanation(word.lower()) is explanation(word.upper())
    assert explanation("error[circular_wait]") is EXPLANATIONS["circular_wait"]
    assert explanation("nothing_of_the_sort") is None
    assert "ranks" in page(EXPLANATIONS["limits"])


def test_every_warning_is_explained_as_one() -> None:
    assert {each.code for each in EXPLANATIONS.values() if each.sort == "warning"} == {
        *WARNING_CODES
    }


def judged(text: str, folder: Path) -> tuple[str, set[str]]:
    """Return the static verdict on a scenario, with every code that it names."""
    file = folder / "shown.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        cases = load(file)
    except ScenarioError as error:
        return "INVALID", {problem.code for problem in error.problems}
    analysis = analyse(cases[0])
    codes = {problem.code for problem in analysis.verdict.problems}
    codes |= {finding.code for finding in analysis.verdict.findings}
    codes |= {warning.code for warning in analysis.verdict.warnings}
    diagnoses = analysis.predicted.diagnoses if analysis.predicted else ()
    return analysis.verdict.status, codes.union(*({d.name, *d.also} for d in diagnoses))


SHOWN = [each for each in EXPLANATIONS.values() if each.example]


@pytest.mark.parametrize("explanation", sampled(list(SHOWN), 2), ids=lambda each: each.code)
def test_an_example_shows_its_code(explanation: Explanation, tmp_path: Path) -> None:
    status, codes = judged(explanation.example, tmp_path)
    assert status == EXPECTED[explanation.sort]
    assert explanation.code in codes


@pytest.mark.parametrize("explanation", SHOWN, ids=lambda each: each.code)
def test_a_fixed_example_passes(explanation: Explanation, tmp_path: Path) -> None:
    status, codes = judged(explanation.fixed, tmp_path)
    assert status == "PASSED"
    assert explanation.code not in codes


@pytest.mark.parametrize("file", sorted(PAGES.rglob("*.md")), ids=lambda file: file.stem)
def test_a_page_is_read_whole(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    found = EXPLANATIONS[file.stem]
    heading, _, *more = re.sub(r"```yaml.*?```", "```", text, flags=re.DOTALL).split("\n\n")
    assert heading == f"# {file.stem}"
    texts = [part for part in more if not part.startswith("    ")]  # a picture belongs to `Why:`
    starts = [re.split(r":|(?<=\|)|(?<=```)", part)[0] for part in texts]
    parts = {"Why": found.why, "Example": found.example, "Fix": found.fix, "Fixed": found.fixed}
    shown = [name for name, part in parts.items() if part]
    assert [each for each in starts if each not in {"```", "|"}] == shown


def test_a_page_shows_what_why_example_and_fix() -> None:
    text = page(EXPLANATIONS["circular_wait"])
    positions = [text.index(word) for word in ("ring", "Why:", "Example:", "Fix:", "Fixed:")]
    assert positions == sorted(positions)


#: a word with which a line of a report begins, or a headline
LABELS = re.compile(r"^ {0,6}(?:= )?([a-z]+)(?=:|\[| \d+/\d+:)|^([A-Z]{5,})\b", re.MULTILINE)
#: the line that counts, and its words
COUNTS = re.compile(r"^.* in [\d.]+ m?s$", re.MULTILINE)
COUNTED = re.compile(r"\d+ ([a-z]+)(?=,| in)")
PROGRAMS = {
    "passes": "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n",
    "hangs": "world_size: 2\ntensors: {x: [1]}\nsteps: [{ranks: 0, all_reduce: {tensor: x}}]\n",
    "differs": "world_size: 2\ntensors: {x: [1]}\n"
    "steps: [{all_reduce: {tensor: x}, expect: {x: [1]}}]\n",
    "invalid": "world_sise: 2\nsteps: [{barrier: {}}]\n",
    "warned": "world_size: 2\nsteps: [{ranks: [], barrier: {}}, {barrier: {}}]\n",
}


def test_every_word_that_a_report_prints_as_a_label_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in PROGRAMS.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    shown = "".join(
        CliRunner().invoke(cli, ["check", ".", *more]).output
        for more in ([], ["-v"], ["--strict"], ["--shard", "1/2"])
    )
    words = {word for found in LABELS.finditer(shown) for word in found.groups() if word}
    words |= {word for line in COUNTS.findall(shown) for word in COUNTED.findall(line)}
    assert {"help", "note", "warning", "FAILED", "invalid", "shard", "predicted"} <= words
    assert {word for word in words if explanation(word) is None} == set()


def test_a_word_is_explained_as_it_is_printed() -> None:
    for word in ("rank", "step", "tensor", "strict", "--strict", "cases", "note:", "workers"):
        assert explanation(word) is not None, word


def test_the_list_of_codes_keeps_to_its_width() -> None:
    listed = CliRunner().invoke(cli, ["explain"]).output
    assert max(map(len, listed.splitlines())) <= 100
    assert set(re.findall(r"^  (\w+) ", listed, re.MULTILINE)) == set(EXPLANATIONS)
    assert "\n  circular_wait           Ranks wait for each other in a ring, so that" in listed
