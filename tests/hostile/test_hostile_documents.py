"""Documents that a stranger may send: every command that takes one ends at once, in one line.

Results, records, dumps, pages, logs, topologies and what an earlier run left behind. What is not
such a document at all is refused with exit code 2 (what an earlier run left is passed over); what
has one field of another kind may be read or refused, and never ends in a traceback.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hostile_batch import CPU_S, MEMORY_BYTES
from sampling import sampled, strides

from torch_scenarios.cli import cli

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from _pytest.mark import ParameterSet
    from hostile_batch import RanksEnded

GOOD = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [2, 4]}
"""


def doubled(times: int) -> Any:
    found: Any = "all_reduce"
    for _ in range(times):
        found = (found, found)
    return found


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)  # a name of a socket is short
        try:
            one.bind(path.name)
        finally:
            os.chdir(here)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 100_000_000_000)


def folder(path: Path) -> None:
    path.mkdir()


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def ring(path: Path) -> None:
    path.symlink_to(path.name)


#: what is no document at all: its bytes, or what makes it
NOT_ONE: dict[str, bytes | Callable[[Path], None]] = {
    "empty": b"",
    "blank": b"\n\n",
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "a text": b'"x"',
    "a mapping": b"{}",
    "lists 100,000 deep": b"[" * 100_000,
    "mappings 100,000 deep": b'{"a":' * 100_000,
    "a result 100,000 deep": b'{"format": "scenario-results", "results": ' + b"[" * 100_000,
    "a line 100,000 deep": b'{"format": "scenario-results-lines"}\n' + b"[" * 100_000,
    "lists 500 deep": b"[" * 500 + b"]" * 500,
    "five million lists": b"[" + b"[]," * 5_000_000 + b"[]]",
    "a number of 5,000 digits": b"9" * 5_000,
    "NaN": b'{"format": NaN}',
    "Infinity": b"[Infinity]",
    "cut off": b'{"format": "scenario-results", "results": [',
    "bytes": bytes(range(256)),
    "zeros": bytes(4096),
    "UTF-16": '{"format": "scenario-results"}'.encode("utf-16"),
    "a mark of byte order": b"\xef\xbb\xbf{}",
    "half a surrogate": b'{"a": "\\ud800"}',
    "a pickle": pickle.dumps({"entries": 3}),
    "a pickle of a class": b"cposix\nsystem\n(S'touch MARKER'\ntR.",
    "a tuple doubled sixty times": pickle.dumps({"entries": doubled(60)}),
    "a key doubled sixty times": b"\x80\x04}" + pickle.dumps(doubled(60))[2:-1] + b"Ns.",
    "a pickle of five million parts": b"\x80\x04](" + b"N" * 5_000_000 + b"e.",
    "a FIFO": fifo,
    "a socket": bound,
    "100 GB of nothing": sparse,
    "a folder": folder,
    "a link to /dev/zero": endless,
    "a link to itself": ring,
}

#: a command -> the file that it reads, and its exit code where that is no document at all
READERS: dict[tuple[str, ...], tuple[str, int]] = {
    ("merge", "x.json"): ("x.json", 2),
    ("merge", "x.json", "--html", "out.html"): ("x.json", 2),
    ("conformance", "compare", "x.json", "x.json"): ("x.json", 2),
    ("cost", "good.yaml", "--against", "x.json"): ("x.json", 2),
    ("bench", "good.yaml", "--compare", "x.json"): ("x.json", 2),
    ("topology", "fit", "x.json"): ("x.json", 2),
    ("cost", "good.yaml", "--topology", "./x.yaml"): ("x.yaml", 2),
    ("import", "dump_0"): ("dump_0", 2),
    ("import", "record"): ("record/rank-00000.jsonl", 2),
    ("show", "record"): ("record/rank-00000.jsonl", 2),
    ("diff", "record", "record"): ("record/rank-00000.jsonl", 2),
    ("diff", "x.html", "x.html", "--html", "out.html"): ("x.html", 2),
    ("show", "--last"): (".scenario/timelines.jsonl", 2),
    ("check", "--lf", "good.yaml"): (".scenario/checked.json", 0),
    ("check", "good.yaml"): (".scenario/checked.json", 0),
    ("fmt", "--check", "x.yaml"): ("x.yaml", 2),
}
#: what one of them reads after all: a YAML file may be empty, and laid out
READ_ALL_THE_SAME = {("fmt", name) for name in ("a mapping", "empty", "blank")}


def pairs() -> Iterator[ParameterSet]:
    """Yield each command with each document: all of them in the night, every 36th at the gate."""
    for at, command in enumerate(READERS):
        for number, name in enumerate(NOT_ONE):
            marks = () if (at + number) % 36 == 0 else (pytest.mark.nightly,)
            yield pytest.param(command, name, marks=marks, id=f"{' '.join(command)} {name}")


@pytest.mark.parametrize(("command", "name"), sampled(list(pairs()), 2))
def test_what_is_no_document_is_refused_at_once(
    command: tuple[str, ...],
    name: str,
    tmp_path: Path,
    ended: Callable[[Path, Sequence[str]], RanksEnded],
) -> None:
    file, code = READERS[command]
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    path, made = tmp_path / file, NOT_ONE[name]
    path.parent.mkdir(exist_ok=True)
    if callable(made):
        made(path)
    else:
        path.write_bytes(made)
    end = ended(tmp_path, command)
    assert "Traceback" not in end.said
    assert "bug of" not in end.said
    assert end.code == code or (command[0], name) in READ_ALL_THE_SAME, end.said[:2000]
    assert end.cpu_s < CPU_S
    assert end.memory < MEMORY_BYTES
    assert end.size < 20_000
    assert not (tmp_path / "MARKER").exists()


# ---------------------------------------------------------------------- one field of another kind

STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 10**30, 1e308, "", "x", [], {}, [[]], {"a": 1}),
    *(10**400, "9" * 5000, [None] * 3, doubled(60)),
)

ENTRY = {
    "record_id": 0,
    "collective_seq_id": 1,
    "profiling_name": "nccl:all_reduce",
    "process_group": ("0", "default_pg"),
    "input_sizes": ((4,),),
    "input_dtypes": ["Float"],
    "output_sizes": ((4,),),
    "output_dtypes": ["Float"],
    "frames": [{"name": "main", "filename": "/home/me/train.py", "line": 7}],
    "state": "completed",
    "retired": True,
}
DUMP = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "entries": [ENTRY],
}
RECORD: list[Any] = [
    {"scenario_record": 2, "rank": 0, "world_size": 2, "mode": "live"},
    ["s", 0, "all_reduce", [["/home/me/train.py", 7, "dist.all_reduce(x)"]]],
    ["g", 0, "0", [0, 1], "default_pg", "gloo"],
    ["k", 0, "allreduce_", 0, 0, 1, "py", [["float32", [4], 64, 16]], [], {"op": "sum"}, 1],
    ["c", 0, 0, 10],
    ["r", 0, 11],
    ["x", 0, 13],
]
HISTORY = {"format": "scenario-last-run", "version": 1, "failed": [["good.yaml", "good"]]}
ROW = {"case": "good", "ranks": 2, "bytes": 8, "min_us": 1.0, "median_us": 2.0, "collective": None}
BENCH = {"environment": {"torch": "2.13"}, "rows": [ROW]}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each part of a document is."""
    yield path
    items: Any = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list | tuple):
        items = enumerate(value)
    for key, each in items:
        yield from places(each, (*path, key))


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    """Return a document with another part at a place."""
    if not path:
        return to
    if isinstance(value, dict):
        return {**value, path[0]: changed(value[path[0]], path[1:], to)}
    return [changed(each, path[1:], to) if at == path[0] else each for at, each in enumerate(value)]


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def as_lines(value: Any) -> bytes:
    rows = value if isinstance(value, list | tuple) else [value]
    return b"".join(as_json(each) + b"\n" for each in rows)


#: a kind of document -> one that is right, how it is written, its file, the commands that read it
DOCUMENTS: dict[str, tuple[Any, Callable[[Any], bytes], str, tuple[tuple[str, ...], ...]]] = {
    "a dump": (DUMP, pickle.dumps, "dump_0", (("import", "dump_0"),)),
    "a dump as JSON": (DUMP, as_json, "dump_0.json", (("import", "dump_0.json"),)),
    "a record": (RECORD, as_lines, "record/rank-00000.jsonl", (("import", "record"),)),
    "what failed": (HISTORY, as_json, ".scenario/checked.json", (("check", "--lf", "good.yaml"),)),
    "a bench": (BENCH, as_json, "x.json", (("topology", "fit", "x.json"),)),
}


def said_of(folder: Path, command: Sequence[str]) -> Any:
    before = Path.cwd()
    os.chdir(folder)
    try:
        return CliRunner().invoke(cli, list(command))
    finally:
        os.chdir(before)


@pytest.mark.parametrize("stride", strides(12))
@pytest.mark.parametrize("kind", sampled(list(DOCUMENTS), 2))
def test_a_field_of_another_kind_is_no_traceback(kind: str, stride: int, tmp_path: Path) -> None:
    document, write, file, commands = DOCUMENTS[kind]
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    wrong = []
    for number, place in enumerate(places(document)):
        for strange in STRANGE[number % stride :: stride]:
            if write is not pickle.dumps and strange is STRANGE[-1]:
                continue  # JSON shares nothing
            path.write_bytes(write(changed(copy.deepcopy(document), place, strange)))
            for command in commands:
                done = said_of(tmp_path, command)
                calm = done.exception is None or isinstance(done.exception, SystemExit)
                if not calm or "bug of" in done.output or done.exit_code not in {0, 1, 2, 3}:
                    wrong.append((place, repr(strange)[:40], repr(done.exception)[:200]))
    assert wrong == []


@pytest.mark.nightly
@pytest.mark.parametrize("command", [("merge", "all.json"), ("merge", "all.jsonl")])
def test_a_field_of_results_of_another_kind_is_no_traceback(
    command: tuple[str, str], tmp_path: Path
) -> None:
    wrong_value = GOOD.replace("[2, 4]", "[2, 5]")
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(wrong_value, encoding="utf-8")
    said_of(tmp_path, ("check", "good.yaml", "bad.yaml", f"--{command[1][4:]}", command[1]))
    path = tmp_path / command[1]
    lines = path.suffix == ".jsonl"
    text = path.read_text(encoding="utf-8")
    document = [json.loads(each) for each in text.splitlines()] if lines else json.loads(text)
    write = as_lines if lines else as_json
    wrong = []
    for place in places(document):
        for strange in STRANGE[:-1]:
            path.write_bytes(write(changed(document, place, strange)))
            done = said_of(tmp_path, command)
            if not (done.exception is None or isinstance(done.exception, SystemExit)):
                wrong.append((place, repr(strange)[:40], repr(done.exception)[:200]))
    assert wrong == []
