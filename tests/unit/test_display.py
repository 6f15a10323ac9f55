"""What is shown of a stranger's words: nothing that steers what shows it, and not all of it."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from html_page import data_of
from hypothesis import given
from hypothesis import strategies as st

from torch_scenarios import cli, display
from torch_scenarios.errors import Mark, Problem, Source

if TYPE_CHECKING:
    from collections.abc import Callable

STEERING = "a\x1b[2Jb\x07c\x7fd\x9be\u202ef\u2066g\u2028h\ud800i\rj\ufeffk"
SHOWN = "a\ufffd[2Jb\ufffdc\ufffdd\ufffde\ufffdf\ufffdg\ufffdh\ufffdi\ufffdj\ufffdk"


def test_what_steers_is_replaced_in_its_place() -> None:
    assert display.clean(f"{STEERING}\n\t{STEERING}") == f"{SHOWN}\n\t{SHOWN}"
    assert display.clean_line(f"x\n\ty{STEERING}") == f"x\ufffd\ty{SHOWN}"


@given(st.text())
def test_words_of_all_languages_stay_as_they_are(text: str) -> None:
    cleaned = display.clean(text)
    assert len(cleaned) == len(text)
    assert display.clean(cleaned) == cleaned
    assert all(new in {old, "\ufffd"} for old, new in zip(text, cleaned, strict=True))


@given(st.text(st.characters()))
def test_json_says_the_same_when_it_is_cleaned(text: str) -> None:
    written = display.clean_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert json.loads(written) == {text: [text]}
    assert not display.UNSAFE.search(written)
    written.encode()


@pytest.mark.parametrize("quote", ["`{}`", "'{}'", '"{}"', "{}"])
@pytest.mark.parametrize("value", ["n" * 900_000, "x y " * 200_000])
def test_a_message_quotes_no_more_than_a_person_reads(quote: str, value: str) -> None:
    said = Problem(code="x", message=f"there is no {quote.format(value)} here", hint=value)
    most = display.MOST_MESSAGE if "y" in value and quote == "{}" else 2 * display.MOST_WORD
    assert len(said.message) <= most
    assert said.message.startswith("there is no ")
    assert said.hint is not None
    assert len(said.hint) <= display.MOST_MESSAGE


def test_a_message_of_usual_length_stays_as_it_is() -> None:
    text = "it isn't `x`, as rank 1's `y` is; " * 6 + "see /" + "a" * 70 + "/b.yaml"
    assert Problem(code="x", message=text).message == text


def test_what_stands_between_two_quotations_is_none() -> None:
    text = "`a` takes what comes from `b`".replace("takes", "takes " + "and takes " * 12)
    assert Problem(code="x", message=text).message == text


@pytest.mark.parametrize("column", [1, 30, 5_000, 9_999])
def test_of_a_long_line_only_what_is_near_the_fault_is_shown(column: int) -> None:
    line = "".join(chr(ord("a") + at % 26) for at in range(10_000))
    mark = Mark(source=Source(path="x", text=line), line=1, column=column, end_column=column + 3)
    shown = Problem(code="x", message="", mark=mark).excerpt()
    assert shown is not None
    text, carets = shown
    assert len(text) < display.MOST_WORD
    at = carets.index("^")
    assert text[at] == line[column - 1]
    assert set(carets) <= {" ", "^"}


def test_carets_stay_below_what_was_replaced() -> None:
    mark = Mark(source=Source(path="x", text="\u202e\u202eab"), line=1, column=3, end_column=5)
    assert Problem(code="x", message="", mark=mark).excerpt() == ("\ufffd\ufffdab", "  ^^")


FAILING = """\
name: "n\\u202e\\e"
description: "d\\u202e"
world_size: 2
tensors: {x: [1]}
steps:
  - name: "s\\u202e"
    all_reduce: {tensor: x}
    expect: {x: [3]}
"""


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["scenario", *arguments])
        handler = signal.getsignal(signal.SIGINT)
        try:
            with pytest.raises(SystemExit):
                cli.main()
        finally:
            signal.signal(signal.SIGINT, handler)  # a command leaves interrupts ignored at its end
        return capsys.readouterr().out

    return run


def test_a_page_shows_no_character_that_turns_a_text(command: Callable[..., str]) -> None:
    Path("x.yaml").write_text(FAILING, encoding="utf-8")
    command("check", "--html", "x.html", "x.yaml")
    parts = zlib.decompress(base64.b64decode(data_of(Path("x.html").read_text()))).decode()
    assert not display.UNSAFE.search(parts)
    assert "d\ufffd" in parts


def test_a_file_name_that_is_not_utf_8_keeps_its_results(command: Callable[..., str]) -> None:
    name = os.fsdecode(b"caf\xe9.yaml")
    Path(name).write_text(FAILING, encoding="utf-8")
    (result,) = json.loads(command("check", "--json", "-", "."))["results"]
    assert result["file"] == name
    assert result["verdict"] == "FAILED"
    for report in ("--jsonl", "--tap", "--junit", "--markdown", "--html", "--trace"):
        command("check", report, f"out{report}", ".")
        assert Path(f"out{report}").stat().st_size > 0
    assert "caf\ufffd.yaml" in command("check", ".")


@pytest.mark.parametrize("columns", [20, 40, 60, 92, 200])
@pytest.mark.parametrize("start", [0, 5, 50, 95])
def test_an_excerpt_fits_its_columns_and_keeps_the_caret_under_the_fault(
    columns: int, start: int
) -> None:
    line = "".join(chr(ord("a") + at % 26) for at in range(100))
    shown, carets = display.excerpt(line, start, 30, columns)
    assert max(len(shown), len(carets)) <= columns
    assert shown[carets.index("^")] == line[start]
    assert (shown == line) == (columns >= len(line))


@pytest.mark.parametrize("unseen", "\u00ad\u200b\u200d\u2060\U000e0001\U000e007f")
def test_what_no_person_sees_is_shown_as_something(unseen: str) -> None:
    assert display.clean(f"pass{unseen}ed") == "pass\N{REPLACEMENT CHARACTER}ed"
