"""`scenario fmt`: one layout, the same meaning, every comment; and what it leaves alone."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import Writer

import torch_scenarios
from torch_scenarios.cli import cli
from torch_scenarios.cli.starts import STARTER
from torch_scenarios.errors import ScenarioError
from torch_scenarios.language.format import format_file, space
from torch_scenarios.limits import DEFAULT
from torch_scenarios.source.tree import Mapping, Sequence, key_text, read_tree

if TYPE_CHECKING:
    from click.testing import Result
    from hypothesis.strategies import DrawFn

    from torch_scenarios.source.tree import Node

SCENARIOS = Path(__file__).parents[2] / "scenarios"
CORPUS = sorted(SCENARIOS.rglob("*.yaml"))


def fmt(text: str) -> str:
    return format_file("some.yaml", text.encode(), DEFAULT).decode()


def call(*arguments: str, given: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["fmt", *arguments], input=given)


# ---------------------------------------------------------------------- what it does


UGLY = """\


# yaml-language-server: $schema=scenario.schema.json
steps:
-   expect: {x: [3]}   # after the sum
    all_reduce:
        tensor: x

        # the default
        op: sum
    name: sum
- barrier:


world_size: 2   \nversion: 1
# one float a rank
tensors:
      x: "full(1, rank + 1)"
description: >
    Two ranks.

      Kept as it is.
    # this is text
"""

FINE = """\
# yaml-language-server: $schema=scenario.schema.json
version: 1
description: >
  Two ranks.

    Kept as it is.
  # this is text

world_size: 2
# one float a rank
tensors:
  x: "full(1, rank + 1)"
steps:
  - name: sum
    all_reduce:
      tensor: x

      # the default
      op: sum
    expect: {x: [3]}   # after the sum
  - barrier:
"""


def test_layout_is_put_right() -> None:
    assert fmt(UGLY) == FINE


def test_what_is_fine_stays() -> None:
    assert fmt(FINE) == FINE
    starter = STARTER.format(file="new.yaml")
    assert fmt(starter) == starter


STEPS = "world_size: 2\nsteps:\n"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("  - as: work\n    isend: {tensor: x, dst: 1}\n    ranks: 0\n", None),
        ("-\n  barrier: {}\n", "  -\n    barrier: {}\n"),
        ("-  # why\n   barrier: {}\n", "  -  # why\n    barrier: {}\n"),
        (
            "   - steps:\n     - ranks: 0\n       sleep: 0s\n     for: {i: [1]}\n",
            "  - for: {i: [1]}\n    steps:\n      - ranks: 0\n        sleep: 0s\n",
        ),
        (
            "- all_reduce: {tensor: x,\n                op: sum}\n",
            "  - all_reduce: {tensor: x, op: sum}\n",
        ),
        (
            '- compute: {x: "x +\n  1"}\n- barrier: {}\n',
            '  - compute: {x: "x +\n    1"}\n  - barrier: {}\n',
        ),
        ("- name: two\n   words\n  barrier:\n", "  - name: two\n      words\n    barrier:\n"),
        ("- barrier: {}\n# about the second\n- barrier: {}\n", None),
        ("  - barrier: {}\n      # deeper\n  - barrier: {}\n", None),
    ],
)
def test_steps_are_laid_out(given: str, wanted: str | None) -> None:
    made = fmt(STEPS + given)
    if wanted is None:
        expected = {
            "  - as": "  - ranks: 0\n    isend: {tensor: x, dst: 1}\n    as: work\n",
            "- barri": "  - barrier: {}\n  # about the second\n  - barrier: {}\n",
        }
        wanted = expected.get(given[:7] if given.startswith("-") else given[:6], given)
    assert made == STEPS + wanted


WIDE = ", ".join(f"name_{number}: {number}" for number in range(9))
AFRESH = ",\n"
NARROWER = WIDE.replace(", name_8", f"{AFRESH}            name_8")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("x: {a: 1,b : [ 1,2 ],}", "x: {a: 1, b: [1, 2]}"),
        ("x:   { }", "x: {}"),
        ("x : [\n]", "x: []"),
        ("x: {a, b: , c: ~}", "x: {a, b: , c: ~}"),
        ("x: [a: 1,  {b: 2}]", "x: [a: 1, {b: 2}]"),
        ("x: {\"a\":  1, 'b' : 'it''s  so'}", "x: {\"a\": 1, 'b': 'it''s  so'}"),
        ("x: &a {b:  1}", "x: &a {b: 1}"),
        ("{a:   1,b: 2}: x", "{a: 1, b: 2}: x"),
        ("x: {[0,1]: a}", "x: {[0, 1]: a}"),
        # in a comment and in a text nothing moves
        ("x: 1   # {a:1}", "x: 1   # {a:1}"),
        ('x: "{a:1,b}"', 'x: "{a:1,b}"'),
        ("x: |\n  {a:1}", "x: |\n  {a:1}"),
        # broken after a comma where it does not fit, below the first entry
        (
            f"x: {{{WIDE}}}",
            f"x: {{{WIDE.replace(', name_8', AFRESH + '    name_8')}}}",
        ),
        (
            f"x: {{rows: [[1, 2], [3, 4]], first: {{{WIDE}}}}}",
            f"x: {{rows: [[1, 2], [3, 4]]{AFRESH}    first: {{{NARROWER}}}}}",
        ),
        ("x: [" + "1" * 200 + ", 2]", "x: [" + "1" * 200 + ",\n    2]"),
        ("x: [1, 2]  # " + "long " * 30 + "note", "x: [1, 2]  # " + "long " * 30 + "note"),
        # comments stay at their entries
        ("x: {a: 1, # one\n  b: 2}", "x: {a: 1,  # one\n    b: 2}"),
        (
            "x: [ # all\n 1,\n   # two\n 2 # last\n ]",
            "x: [  # all\n    1,\n    # two\n    2  # last\n   ]",
        ),
        ("x: [1\n # end\n]", "x: [1\n    # end\n   ]"),
        ("x: {a: [1, # one\n 2], b: 3}", "x: {a: [1,  # one\n        2], b: 3}"),
    ],
)
def test_a_flow_collection_has_one_layout(given: str, wanted: str) -> None:
    assert space(f"{given}\n") == f"{wanted}\n"
    assert space(f"{wanted}\n") == f"{wanted}\n"


@pytest.mark.parametrize(
    "given",
    [
        "x: [*a,  1]",
        "x: {? b :  1}",
        "x: {: 1,  b: 2}",
        "x: [!!str  1]",
        'x: {a: "two\n  lines",  b: 1}',
        "x: {a: two\n  lines,  b: 1}",
        "x: {a: # why\n  1,  b: 2}",
    ],
)
def test_a_flow_collection_that_is_unusual_stays(given: str) -> None:
    assert space(f"{given}\n") == f"{given}\n"


def test_blank_lines_between_sections_stay_between_them() -> None:
    given = "steps:\n  - barrier: {}\n\n\n\nworld_size: 2\n"
    assert fmt(given) == "world_size: 2\n\nsteps:\n  - barrier: {}\n"


def test_line_ends_are_those_of_the_first_line() -> None:
    given = "steps:\r\n- barrier: {}\r\nworld_size: 2"
    assert fmt(given) == "world_size: 2\r\nsteps:\r\n  - barrier: {}\r\n"


# ---------------------------------------------------------------------- what it leaves alone


@pytest.mark.parametrize(
    "text",
    [
        # whose comment is it?
        "# about the steps, or about the file\nsteps:\n  - barrier: {}\nworld_size: 2\n",
        "steps:\n  - barrier: {}\n  # the end of the steps\nworld_size: 2\n",
        "steps:\n  - barrier: {}\n# a section\n\nworld_size: 2\n",
        "steps:\n  - barrier: {}\nworld_size: 2\n# the end of the file\n",
        # an anchor comes before its alias
        "steps:\n  - sleep: &t 0s\n  - sleep: *t\nworld_size: 2\n",
        # complex keys, several documents' marks
        "? steps\n:   - barrier: {}\n? world_size\n: 2\n",
        "---\nsteps:\n- barrier: {}\nworld_size: 2\n",
        # the order of these has a meaning
        STEPS + "  - compute: {b: 1, a: 2}\n",
        "world_size: 2\nmatrix:\n  b: [1]\n  a: [2]\nsteps:\n  - barrier: {}\n",
        # the last line break of a text is a part of it
        STEPS + "  - barrier: {}\n    name: |\n      foo",
        STEPS + "  - barrier: {}\n    name: |+\n      foo\n\n\n",
        # an escaped blank, a line break of another kind
        STEPS + '  - name: "a\\ \n      b"\n    barrier: {}\n',
        STEPS + '- name: "a\u2028b"\n  barrier: {}\n',
    ],
)
def test_what_is_not_certain_is_left_alone(text: str) -> None:
    if "|" in text:
        text = text.replace("  - barrier: {}\n    name", "  - name")
    assert fmt(text) == text


def test_a_comment_never_becomes_a_part_of_the_text_above() -> None:
    given = (
        "world_size: 2\nsteps:\n  - barrier: {}\ndescription: >\n     text\n   # note\nexpect: {}\n"
    )
    made = fmt(given)
    assert yaml.safe_load(made) == yaml.safe_load(given)
    assert made.count("# note") == 1


def test_blanks_in_a_text_are_a_part_of_it() -> None:
    given = "description: |\n   a\n\n     \nsteps:\n  - barrier: {}\nworld_size: 2\n"
    made = fmt(given)
    assert made == "description: |\n  a\n\n    \nworld_size: 2\nsteps:\n  - barrier: {}\n"
    assert yaml.safe_load(made) == yaml.safe_load(given)


def test_an_indicator_of_indentation_keeps_its_meaning() -> None:
    given = "world_size: 2\nsteps:\n- name: |4\n       x\n  barrier: {}\n"
    made = fmt(given)
    assert yaml.safe_load(made) == yaml.safe_load(given)
    assert made == "world_size: 2\nsteps:\n  - name: |4\n         x\n    barrier: {}\n"


# ---------------------------------------------------------------------- the whole corpus


def test_corpus_is_formatted() -> None:
    """`scenario fmt --check scenarios`, which .ci/run calls too, says it of each file."""
    contents = {file: file.read_bytes() for file in CORPUS[::4]}
    assert [
        file for file, text in contents.items() if format_file(file, text, DEFAULT) != text
    ] == []


@st.composite
def laid_out(draw: DrawFn, *, comments: bool = True) -> tuple[Path, str, str]:
    """Draw a file of the corpus and two layouts of it; without comments they differ little."""
    file = draw(st.sampled_from(CORPUS))
    tree = read_tree(str(file), file.read_bytes(), limits=DEFAULT)
    style = draw(st.integers(0, 2**32))
    texts = []
    for _ in range(2):
        writer = Writer(style, draw(st.integers(0, 2**32)), comments=comments)
        texts.append(writer.file(tree))
    return file, texts[0], texts[1]


MANY = settings(max_examples=75, deadline=None)


def in_order(tree: Node, *, movable: bool = True) -> Any:
    """Return the values of a tree; the keys of its top and its steps sorted."""
    if isinstance(tree, Mapping):
        entries = [
            (key_text(key), in_order(value, movable=movable and key_text(key) == "steps"))
            for key, value in tree.entries
        ]
        return sorted(entries) if movable else entries
    if isinstance(tree, Sequence):
        return [in_order(item, movable=movable) for item in tree.items]
    return type(tree.value), repr(tree.value), tree.text


@MANY
@given(drawn=laid_out())
def test_any_layout_is_formatted_without_a_change_of_meaning(drawn: tuple[Path, str, str]) -> None:
    file, given, _ = drawn
    made = fmt(given)
    before, after = (
        in_order(read_tree("", text.encode(), limits=DEFAULT)) for text in (given, made)
    )
    assert before == after, file
    assert fmt(made) == made


@MANY
@given(drawn=laid_out())
def test_every_comment_stays_once_and_beside_what_it_stood(drawn: tuple[Path, str, str]) -> None:
    _, given, _ = drawn
    places = [
        sorted(
            (found["note"], re.findall(r"[^\s,{}\[\]]+", found["beside"].strip(" -"))[-1:])
            for found in re.finditer(r"^(?P<beside>.*)(?P<note># c\d+)$", text, re.MULTILINE)
        )
        for text in (given, fmt(given))
    ]
    assert places[0] == places[1]


@MANY
@given(drawn=laid_out(comments=False))
def test_layouts_that_differ_in_columns_and_order_become_one(drawn: tuple[Path, str, str]) -> None:
    _, one, other = drawn
    assert fmt(one) == fmt(other)


@settings(max_examples=40, deadline=None)
@given(drawn=laid_out())
def test_any_layout_loads_to_equal_scenarios(drawn: tuple[Path, str, str]) -> None:
    file, given, _ = drawn
    loaded = []
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(SCENARIOS / "language" / "parts", Path(name, "parts"))
        path = Path(name, file.name)
        for text in (given, fmt(given)):
            path.write_text(text, encoding="utf-8")
            loaded.append(torch_scenarios.load(path))
    assert loaded[0] == loaded[1]


NOISE = [
    " ",
    "\t",
    "#",
    " # x",
    "- ",
    "-",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "'",
    '"',
    "|",
    ">",
    "&a ",
    "*a",
]
NOISE += [
    "!",
    "!!str ",
    "? ",
    ",",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\\",
    "---\n",
    "...\n",
    "|+\n",
    "|2\n",
]


@st.composite
def broken(draw: DrawFn) -> str:
    """Draw a layout with some characters put in or taken out, so that many are no YAML."""
    _, text, _ = draw(laid_out())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 3))
        text = text[:at] + draw(st.sampled_from([*NOISE, ""])) + text[at + cut :]
    return text


@MANY
@given(given=broken())
def test_whatever_is_yaml_keeps_its_meaning(given: str) -> None:
    try:
        made = fmt(given)
    except ScenarioError:
        return  # no YAML, or no scenario: told, as everywhere
    before, after = (
        in_order(read_tree("", text.encode(), limits=DEFAULT)) for text in (given, made)
    )
    assert before == after
    assert fmt(made) == made


# ---------------------------------------------------------------------- the command


def test_files_are_written_whole_and_keep_their_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "a.yaml", tmp_path / "link.yaml"
    file.write_text(UGLY, encoding="utf-8")
    file.chmod(0o640)
    link.symlink_to(file)
    done = call(str(link))
    assert (done.exit_code, done.stdout) == (0, f"formatted {link}\n")
    assert file.read_text(encoding="utf-8") == FINE
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [file, link]
    again = call(str(tmp_path))
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "1 file left as it is\n")


def test_check_names_the_files_and_writes_nothing(tmp_path: Path) -> None:
    ugly, fine = tmp_path / "ugly.yaml", tmp_path / "fine.yaml"
    ugly.write_text(UGLY, encoding="utf-8")
    fine.write_text(FINE, encoding="utf-8")
    done = call("--check", str(tmp_path))
    assert (done.exit_code, done.stdout) == (1, f"would change {ugly}\n")
    assert "1 file would change, 1 file left as it is" in done.stderr
    assert ugly.read_text(encoding="utf-8") == UGLY
    assert call("--check", str(fine)).exit_code == 0


def test_diff_is_a_patch_and_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    given = "world_size: 2\nsteps:\n- barrier: {}\n"
    file.write_text(given, encoding="utf-8")
    done = call("--diff", str(file))
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"--- {file}",
        f"+++ {file} (formatted)",
        "@@ -1,3 +1,3 @@",
        " world_size: 2",
        " steps:",
        "-- barrier: {}",
        "+  - barrier: {}",
    ]
    assert file.read_text(encoding="utf-8") == given
    assert call("--diff", "--check", str(file)).exit_code == 1


def test_standard_input_goes_to_standard_output() -> None:
    done = call("-", given=UGLY)
    assert (done.exit_code, done.stdout) == (0, FINE)
    assert call("-", "--check", given=UGLY).exit_code == 1
    refused = call("-", "--stdin-filename", "mine.yaml", given="steps: [")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "the file ends where a value is expected" in refused.stderr
    assert "--> mine.yaml:1:9" in refused.stderr


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("world_size: 2\nsteps: [\n", "yaml_syntax"),
        ("version: 2\nworld_size: 2\nsteps:\n- barrier: {}\n", "newer_version"),
        ("services:\n    web: {image: nginx}\n", "unknown_key"),
        ("", "empty_file"),
        ("- a\n", "wrong_type"),
    ],
)
def test_what_is_no_scenario_is_reported_and_left(text: str, code: str, tmp_path: Path) -> None:
    bad, ugly = tmp_path / "bad.yaml", tmp_path / "ugly.yaml"
    bad.write_text(text, encoding="utf-8")
    ugly.write_text(UGLY, encoding="utf-8")
    done = call(str(tmp_path))
    assert done.exit_code == 2
    assert f"[{code}]" in done.stderr
    assert "1 file formatted, 1 invalid" in done.stderr.replace("1 file invalid", "1 invalid")
    assert bad.read_text(encoding="utf-8") == text
    assert ugly.read_text(encoding="utf-8") == FINE


def test_faults_inside_the_steps_do_not_keep_a_file_from_being_formatted() -> None:
    given = "steps:\n- all_reduce: {tensor: nowhere}\nworld_size: 2\n"
    assert fmt(given) == "world_size: 2\nsteps:\n  - all_reduce: {tensor: nowhere}\n"


def test_a_folder_without_scenarios_selects_nothing(tmp_path: Path) -> None:
    assert call(str(tmp_path)).exit_code == 5
    assert call(str(tmp_path / "none.yaml")).exit_code == 2
    assert call("-", str(tmp_path)).exit_code == 2


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(UGLY, encoding="utf-8")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch_scenarios.files._open_unnamed", refuse)
        done = call(str(file))
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert "the file cannot be read or written: Permission denied" in said
    assert "a.yaml:1:1" in done.stderr
    assert file.read_text(encoding="utf-8") == UGLY
