"""Which loops are never left: their turns begin alike, and call nothing that asks the world."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from recordings import Recording

#: what is before a loop, its turn, and whether it is never left
LOOPS = {
    "draws": (
        "items = [3, 3]\ndice = random.Random(0)",
        "x = dice.choice(items)\nif x > 3: break",
        True,
    ),
    "waits": ("done = [False]", "if done[0]: break", True),
    "still_object": ("own = Own()", "if own.is_done(): break", True),
    "counts": ("n = 0", "n += 1\nif n < 0: break", False),
    "grows": ("seen = []", "seen.append(1)\nif len(seen) < 0: break", False),
    "time": ("until = time.time() + 1e9", "if time.time() > until: break", False),
    "file": ("path = 'nowhere'", "if os.path.exists(path): break", False),
    "iterates": ("numbers = itertools.count()", "x = next(numbers)\nif x < 0: break", False),
    "object": ("own = Own()", "own.step()\nif own.is_done(): break", False),
    "global": ("pass", "step()\nif STATE['n'] < 0: break", False),
    "array": ("pass", "TABLE[0] += 1\nif TABLE[0] < 0: break", False),
    "event": ("done = threading.Event()", "if done.is_set(): break", False),
    "lock": ("lock = threading.Lock()", "if lock.locked(): break", False),
}
SCRIPT = """\
import itertools, os, random, threading, time
STATE = {{"n": 0}}
TABLE = [0] * 100


class Own:
    def __init__(self):
        self.parts, self.n, self.other = [1, 2], 0, open(os.devnull)

    def step(self):
        self.n += 1

    def is_done(self):
        return self.n < 0


def step():
    STATE["n"] += 1


def turn():
{before}
    while True:
{body}
"""
#: runs each of them, and looks at it where its condition is asked; no other thread may live
DRIVER = """\
import json, sys
from torch_scenarios.record.evidence.frame import FIRST_TURN, Repetition


class LeftError(Exception):
    pass


def is_never_left(path):
    space = {"__name__": "__main__"}
    with open(path) as file:
        text = file.read()
    exec(compile(text, path, "exec"), space)
    asks = next(at for at, each in enumerate(text.splitlines(), 1) if each.endswith("break"))
    repetition, count, told = Repetition(), FIRST_TURN - 1, []

    def trace(frame, event, arg):
        nonlocal count
        if frame.f_code.co_filename == path and event == "line" and frame.f_lineno == asks:
            count += 1
            if repetition.turn(count, frame):
                told.append(count)
            if told or (count > FIRST_TURN + 30_000 and "dice" not in text):
                sys.settrace(None)
                raise LeftError
        return trace

    sys.settrace(trace)
    try:
        space["turn"]()
    except LeftError:
        pass
    repetition.close()
    assert sys.getprofile() is None
    return bool(told)


print(json.dumps({path: is_never_left(path) for path in sys.argv[1:]}))
"""


def test_a_loop_that_nothing_changes_is_told_and_no_other(tmp_path: Path) -> None:
    paths = {}
    for name, (before, body, _) in LOOPS.items():
        paths[name] = tmp_path / f"{name}.py"
        text = SCRIPT.format(
            before=textwrap.indent(before, " " * 4), body=textwrap.indent(body, " " * 8)
        )
        paths[name].write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", DRIVER, *map(str, paths.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert {name: found[str(path)] for name, path in paths.items()} == {
        name: is_endless for name, (_, _, is_endless) in LOOPS.items()
    }


#: a search that finds one draw in many millions: slow, and right
SEARCH = """\
import random

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dice = random.Random(dist.get_rank())


def find():
    while True:
        found = dice.random()
        if found < LEAST:
            return found


find()
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.nightly
@pytest.mark.parametrize(("least", "code"), [("1e-12", 3), ("1e-3", 0)])
def test_a_loop_that_a_draw_may_end_is_not_wrong(
    recording: Recording, tmp_path: Path, least: str, code: int
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SEARCH.replace("LEAST", least), encoding="utf-8")
    ran = recording.record(script, "-n", "2", "--fake")
    assert ran.code == code, ran.output
    words = "for more than 20 s in `while True` (train.py:11) until `found < 1e-12`"
    assert (words in ran.output) == (code == 3), ran.output
