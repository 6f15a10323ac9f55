"""Edits that take a mistake away: what is changed, what stays, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result
from sampling import sampled

from torch_scenarios.cli import cli
from torch_scenarios.errors import is_slip, slips
from torch_scenarios.files import schema_file
from torch_scenarios.pipeline.repair import look, repair
from torch_scenarios.source.edit import remove_items, spans, splice

CORPUS = Path(__file__).parents[2] / "scenarios"
PROBLEMS = Path(__file__).parents[1] / "problems"
TOP = "world_size: 2\ntensors: {x: [1, 2], y: [0, 0]}\nsteps:\n"

#: what is wrong -> the text, and what it must become
REPAIRS = {
    "words in a step and in an expression": (
        TOP + "  - all_redcue: {tensro: x, op: summ}  # the sum\n  - compute: {y: x + rnak}\n",
        TOP + "  - all_reduce: {tensor: x, op: sum}  # the sum\n  - compute: {y: x + rank}\n",
    ),
    "a word in quotes": (
        TOP + '  - all_reduce: {tensor: x, op: "MAX"}\n',
        TOP + '  - all_reduce: {tensor: x, op: "max"}\n',
    ),
    "a wait before the step that touches the tensor": (
        TOP + "  - all_reduce: {tensor: x, async_op: true}\n    as: h\n  - barrier: {}\n\n"
        "  # twice\n  - compute: {y: 2 * x}\n",
        TOP + "  - all_reduce: {tensor: x, async_op: true}\n    as: h\n  - barrier: {}\n\n"
        "  - wait: h\n  # twice\n  - compute: {y: 2 * x}\n",
    ),
    "a wait at the end, and a name": (
        TOP + "  - {all_reduce: {tensor: x, async_op: true}}\n  - barrier: {}",
        TOP + "  - {all_reduce: {tensor: x, async_op: true}, as: work}\n  - barrier: {}\n"
        "  - wait: work",
    ),
    "a wait in a loop": (
        TOP
        + "  - for: {i: range(3)}\n    steps:\n      - all_reduce: {tensor: x, async_op: true}\n"
        "        as: h\n",
        TOP
        + "  - for: {i: range(3)}\n    steps:\n      - all_reduce: {tensor: x, async_op: true}\n"
        "        as: h\n      - wait: h\n",
    ),
    "a root that was counted inside of the group": (
        (
            "world_size: 4\ngroups: {pair: [2, 3]}\ntensors: {x: [1]}\nsteps:\n"
            "  - broadcast:\n      tensor: x\n      src: 0  # the first\n      group: pair\n"
        ),
        (
            "world_size: 4\ngroups: {pair: [2, 3]}\ntensors: {x: [1]}\nsteps:\n"
            "  - broadcast:\n      tensor: x\n      group_src: 0  # the first\n      group: pair\n"
        ),
    ),
    "the only rank of a group": (
        (
            "world_size: 4\ngroups: {one: [2]}\ntensors: {x: [1]}\nsteps:\n"
            "  - broadcast: {tensor: x, src: 3, group: one}\n"
        ),
        (
            "world_size: 4\ngroups: {one: [2]}\ntensors: {x: [1]}\nsteps:\n"
            "  - broadcast: {tensor: x, src: 2, group: one}\n"
        ),
    ),
    "a message without its ranks": (
        TOP + "  - send: {tensor: x, dst: 1}\n  - recv: {tensor: y, src: 0}  # here\n",
        TOP + "  - send: {tensor: x, dst: 1}\n    ranks: 0\n"
        "  - recv: {tensor: y, src: 0}  # here\n    ranks: 1\n",
    ),
    "an argument next to its call": (
        TOP + "  - broadcast: {tensor: x}\n    src: 0\n",
        TOP + "  - broadcast: {tensor: x, src: 0}\n",
    ),
    "an argument with a comment next to its call": (
        TOP + "  - broadcast: {tensor: x}\n    src: 0  # the first\n  - barrier: {}\n",
        TOP + "  - broadcast: {tensor: x, src: 0}\n    # the first\n  - barrier: {}\n",
    ),
    "a handle of a call that waits": (
        TOP + "  - all_reduce: {tensor: x}\n    as: h\n  - wait: h\n",
        TOP + "  - all_reduce: {tensor: x, async_op: true}\n    as: h\n  - wait: h\n",
    ),
    "a word that was a boolean once": (
        TOP + "  - all_reduce: {tensor: x, async_op: yes}\n    as: h\n  - wait: h\n",
        TOP + "  - all_reduce: {tensor: x, async_op: true}\n    as: h\n  - wait: h\n",
    ),
    "a colon that is missing": (
        "world_size: 2\nsteps\n  - barrier: {}\n",
        "world_size: 2\nsteps:\n  - barrier: {}\n",
    ),
    "a blank that is missing": (
        "world_size:2\nsteps:\n  - barrier: {}\n",
        "world_size: 2\nsteps:\n  - barrier: {}\n",
    ),
}

#: what no edit is plainly meant for
ALONE = {
    "a rank of a group of several": "world_size: 4\ngroups: {pair: [2, 3]}\ntensors: {x: [1]}\n"
    "steps:\n  - broadcast: {tensor: x, src: 7, group: pair}\n",
    "a word that is far from any": TOP + "  - all_reduce: {tensor: x, op: combine}\n",
    "a short name": TOP + "  - all_reduce: {tensor: z}\n",
    "one letter from two names": "world_size: 2\ntensors: {grad_a: [1], grad_b: [1]}\nsteps:\n"
    "  - all_reduce: {tensor: grad_c}\n",
    "work that some ranks wait for": TOP
    + "  - all_reduce: {tensor: x, async_op: true}\n    as: h\n"
    "  - wait: h\n    ranks: 0\n",
    "a hang": TOP + "  - barrier: {}\n    ranks: 0\n",
    "a wrong value": TOP + "  - all_reduce: {tensor: x}\n    expect: {x: [1, 1]}\n",
}


def fixed(text: str) -> str:
    return repair(Path("case.yaml"), text.encode()).after


@pytest.mark.parametrize("what", REPAIRS)
def test_a_mistake_is_edited_away(what: str) -> None:
    before, after = REPAIRS[what]
    assert fixed(before) == after
    assert look(Path("case.yaml"), after).all == frozenset()
    assert fixed(after) == after


@pytest.mark.parametrize("what", [*REPAIRS])
def test_line_ends_of_windows_stay(what: str) -> None:
    before, after = REPAIRS[what]
    assert fixed(before.replace("\n", "\r\n")) == after.replace("\n", "\r\n")


@pytest.mark.parametrize("what", ALONE)
def test_what_is_not_plain_stays(what: str) -> None:
    assert look(Path("case.yaml"), ALONE[what]).all
    assert fixed(ALONE[what]) == ALONE[what]


def test_an_edit_that_does_not_help_is_not_made() -> None:
    # rank 1 never enters the barrier: with a `wait` before it, nothing else would be right
    text = TOP + "  - isend: {tensor: x, dst: 0}\n    ranks: 1\n  - barrier: {}\n"
    before, after = look(Path("case.yaml"), text), look(Path("case.yaml"), fixed(text))
    assert after.kinds <= before.kinds


def test_a_finding_with_several_edits_is_made_whole() -> None:
    found = repair(Path("case.yaml"), REPAIRS["a message without its ranks"][0].encode())
    assert found.titles == (
        "add `ranks: 0` to the step in line 4 and `ranks: 1` to the step in line 5",
    )


@pytest.mark.parametrize("file", sorted(PROBLEMS.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_wrong_file_is_never_made_worse(file: Path) -> None:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    made = repair(file, text.encode())
    before, after = look(file, text), look(file, made.after)
    if made.changes:
        assert len(after.problems) < len(before.problems) or not after.is_invalid


@pytest.mark.parametrize(
    "file", sampled(sorted((CORPUS / "wrong").rglob("*.yaml")), 5), ids=lambda file: file.stem
)
def test_a_wrong_program_gets_no_other_diagnosis(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    root = spans(text)
    number = root.entry("expect")
    bare = text if number is None else splice(text, remove_items(text, root, {number}))
    before = look(file, bare)
    made = repair(file, bare.encode())
    if made.changes:
        after = look(file, made.after)
        assert after.kinds < before.kinds


def test_slips_of_the_pen() -> None:
    assert [slips("abcd", word) for word in ("abcd", "abdc", "abd", "abxd", "abcde")] == [
        0, 1, 1, 1, 1,
    ]  # fmt: skip
    assert slips("abcd", "wxyz") == 4
    assert is_slip("tensro", "tensor", ["tensor", "tag"])
    assert not is_slip("dsr", "dst", ["dst", "dsa"])
    assert not is_slip("z", "x", ["x"])


# -------------------------------------------------------------------------------------------------
# `scenario check --fix` and `--diff`.


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "sum.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + REPAIRS["a blank that is missing"][0].encode())
    return path


def called(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, words, input=text)


def test_a_file_is_fixed_and_checked(file: Path) -> None:
    done = called("check", "--fix", "sum.yaml")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == ["fixed sum.yaml: write `world_size: 2`", "1 edit in 1 file"]
    assert "1 passed" in done.stdout
    assert file.read_bytes() == b"\xef\xbb\xbf" + REPAIRS["a blank that is missing"][1].encode()


def test_a_diff_writes_nothing(file: Path) -> None:
    before = file.read_bytes()
    done = called("check", "--diff", "sum.yaml")
    assert done.exit_code == 1
    assert "-world_size:2\n+world_size: 2\n" in done.stdout
    assert file.read_bytes() == before
    called("check", "--fix", "sum.yaml")
    assert called("check", "--diff", "sum.yaml").exit_code == 0


def test_the_summary_says_that_there_are_edits(file: Path) -> None:
    assert "`scenario check --fix sum.yaml` makes this edit" in called("check", "sum.yaml").output


def test_results_have_the_edit_and_fit_their_schema(file: Path) -> None:
    found = json.loads(called("check", "sum.yaml", "--json", "-").stdout)
    jsonschema.validate(found, json.loads(schema_file("result.schema.json").read_text("utf-8")))
    edit = found["results"][0]["problems"][0]["repair"]
    assert edit == {
        "title": "write `world_size: 2`",
        "sure": True,
        "file": "sum.yaml",
        "edits": [{"line": 1, "column": 12, "end_line": 1, "end_column": 12, "text": " "}],
    }


@pytest.mark.usefixtures("file")
def test_watch_does_not_edit() -> None:
    assert called("check", "--fix", "--watch", "sum.yaml").exit_code == 2


# -------------------------------------------------------------------------------------------------
# `scenario check -`.

RIGHT = TOP + "  - all_reduce: {tensor: x}\n    expect: {x: [2, 4]}\n"


def test_standard_input_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = called("check", "-", text=RIGHT)
    assert done.exit_code == 0
    assert done.output.startswith("1 passed in ")
    done = called("check", "-", "--stdin-filename", "a/sum.yaml", text=RIGHT.replace("4]", "5]"))
    assert done.exit_code == 1
    assert "--> a/sum.yaml:5:17" in done.output
    assert list(tmp_path.iterdir()) == []


def test_standard_input_is_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = called("check", "-", "--fix", text=RIGHT.replace("tensor:", "tensro:"))
    assert (done.exit_code, done.stdout) == (0, RIGHT)
    assert "1 passed" in done.stderr


def test_standard_input_finds_what_its_name_stands_next_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "part.yaml").write_text("inputs: [t]\nsteps:\n  - all_reduce: {tensor: t}\n")
    text = TOP + "  - use: {file: part.yaml, with: {t: x}}\n"
    assert (
        called("check", "-", "--stdin-filename", str(tmp_path / "s.yaml"), text=text).exit_code == 0
    )


def test_standard_input_is_used_alone() -> None:
    assert called("check", "-", "other.yaml", text=RIGHT).exit_code == 2
    assert called("check", "-", "--watch", text=RIGHT).exit_code == 2
