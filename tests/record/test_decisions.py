"""What the notes in a script do beside counting: the order of sets, and nothing else changes."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from script_notes import run_with_notes

from torch_scenarios.record.evidence.claim import make_environment
from torch_scenarios.record.evidence.notes.decision import Decisions
from torch_scenarios.record.evidence.notes.value_text import describe_given

if TYPE_CHECKING:
    from pathlib import Path

NAMES = frozenset({"encoder", "decoder", "head", "embed", "norm", "gate"})


def ran(source: str, salt: int | None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a script with notes; returns what it has at its end."""
    return noted(source, monkeypatch, salt)[0]


def noted(
    source: str, monkeypatch: pytest.MonkeyPatch, salt: int | None = None
) -> tuple[dict[str, Any], dict[str, tuple[int, int]]]:
    """Run a script with notes; returns what it has at its end, and how often it went which way."""
    found, decisions = followed(source, monkeypatch, salt)
    counted = {
        f"{decisions.places[number].kind}: {decisions.places[number].text}": (yes, no)
        for number, (yes, no, _) in decisions.pending.items()
        if decisions.places[number].kind not in {"answer", "value"}
    }
    return found, counted


def followed(
    source: str, monkeypatch: pytest.MonkeyPatch, salt: int | None = None
) -> tuple[dict[str, Any], Decisions]:
    """Run a script with notes; returns what it has at its end, and the notes."""
    return run_with_notes(source, monkeypatch, {"NAMES": NAMES}, salt=salt)


#: stands for torch's: a number at an address
NUMBER = """
import ctypes
from types import SimpleNamespace
class Tensor:
    def __init__(self, held, device="cpu", shape=()):
        self.held, self.shape, self.dtype = ctypes.c_float(held), shape, "torch.float32"
        self.device = SimpleNamespace(type=device)
    def data_ptr(self):
        return ctypes.addressof(self.held)
    def __lt__(self, other):
        return self.held.value < other
"""


@pytest.mark.parametrize(
    ("loss", "shown"),
    [
        ("Tensor(0.5)", "0.5"),
        ("Tensor(float('nan'))", "nan"),
        ("Tensor(0.5, 'cuda')", "shape []"),
        ("Tensor(0.5, shape=(2,))", "shape [2]"),
    ],
)
def test_a_condition_shows_the_number_that_it_reads(
    loss: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"{NUMBER}\nloss = {loss}\nif loss < 1.0:\n    pass\n"
    _, decisions = followed(source, monkeypatch)
    assert values_of_if(decisions) == [(shown,)]


def test_an_if_shows_what_it_read_when_it_led_in(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "for loss in (1.0, 7.0, 2.0):\n    if loss > 5:\n        continue\n"
    _, decisions = followed(source, monkeypatch)
    assert values_of_if(decisions) == [("7.0",)]


def values_of_if(decisions: Decisions) -> list[tuple[str, ...]]:
    return [
        values
        for number, (_, _, values) in decisions.pending.items()
        if decisions.places[number].kind == "if"
    ]


def test_an_error_that_goes_through_a_with_is_not_kept_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = """
import gc, weakref
from contextlib import suppress
class Tensor: pass
def fail():
  global seen
  tensor = Tensor()
  seen = weakref.ref(tensor)
  raise ValueError
gc.disable()
try:
  with suppress(KeyError): fail()
except ValueError: pass
is_gone = seen() is None
gc.enable()
"""
    assert ran(source, None, monkeypatch)["is_gone"]


def test_a_script_with_as_many_blocks_as_python_takes_runs_without_notes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = "from contextlib import suppress\n"
    withs = "".join(" " * depth + "with suppress():\n" for depth in range(19))
    assert ran(f"{head}{withs}{' ' * 19}done = True\n", None, monkeypatch)["done"]


def test_what_asks_for_a_file_is_pickled_and_called_as_before(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(ASKS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True", "True", "set() missing", "['sets', 'awaits']", "10"]


#: beside a recorder, what a script may do with functions that are watched
ASKS = """
import json, os, pathlib, pickle, types
from torch_scenarios.record.evidence.notes.side_effect import SideEffects
class Store:
    def set(self, key, value): return value
    def get(self, key): return key
put = []
inner = types.SimpleNamespace(
    PyTorchFileWriter=None, _distributed_c10d=types.SimpleNamespace(Store=Store)
)
recorder = types.SimpleNamespace(
    torch=types.SimpleNamespace(_C=inner), folder="/nowhere", write_decisions=lambda: None,
    sink=types.SimpleNamespace(put=put.append),
    prefixes=types.SimpleNamespace(of=lambda _: "app"),
)
SideEffects(recorder, lambda file: False, lambda frame: 0).install(lambda error: ("", []))
asks = [os.path.exists, os.path.isfile, os.path.isdir, pathlib.Path.exists, pathlib.Path.is_file]
print(all(pickle.loads(pickle.dumps(each)) is each for each in asks))
print(os.path.isdir(s="/"))
try:
    Store().set()
except TypeError as error:
    print("set() missing" if "2 required positional arguments" in str(error) else error)
Store().set(key="a", value=1), Store().set("a", 1), Store().get("a")
print([each[1] for each in map(json.loads, put) if each[1] in {"sets", "awaits"}])
looked, whole = [], os.path.abspath
os.path.abspath = lambda path: looked.append(path) or whole(path)
for number in range(30_000):
    os.path.exists(f"/data/{number % 10}")
os.path.exists("/data")
print(len(looked))  # once for each, by its line; and not for ever
"""


@pytest.mark.parametrize(
    ("body", "counted"),
    [
        ("with suppress(KeyError): {}['x']", 1),
        ("with suppress(KeyError): 1", 0),
        ("with Keeps(): {}['x']", 1),
        ("with kept(KeyError): {}['x']", 1),
        # the error goes on, and is caught further out
        (
            "for i in (0, 1):\n  try:\n    with Lets(): i and {}['x']\n  except KeyError: pass",
            False,
        ),
        # what is handled around the `with` is no error of it
        ("try: {}['x']\nexcept KeyError:\n  with Lets(): 1", 0),
        (
            "for i in (1, 0):\n  try:\n    with Lets(): i and {}['x']\n  except KeyError: pass",
            False,
        ),
        ("with torch.no_grad(): 1", 0),
        ("with lock: 1", 0),
    ],
)
def test_an_error_that_a_with_keeps_to_itself_is_counted(
    monkeypatch: pytest.MonkeyPatch, body: str, counted: int
) -> None:
    head = (
        "from contextlib import suppress, nullcontext as lock\nimport types\nlock = lock()\n"
        "class Lets:\n  def __enter__(self): pass\n  def __exit__(self, *args): pass\n"
        "class Keeps(Lets):\n  def __exit__(self, *args): return True\n"
        "from contextlib import contextmanager\n"
        "@contextmanager\ndef kept(kind):\n  try: yield\n  except kind: pass\n"
        "torch = types.SimpleNamespace(no_grad=Lets)\n"
    )
    found = noted(head + body, monkeypatch)[1]
    head = body.partition(":")[0]
    assert [key for key in found if "with" in key] == [f"except: {head}"] * counted


ASK = "asked = []\ndef ask(x):\n    asked.append(x)\n    return x > 1\n"


@pytest.mark.parametrize(
    ("source", "counted"),
    [
        ("x = any(ask(i) for i in range(4))", {"each: any(ask(i) for i in range(4))": (3, 0)}),
        ("x = [ask(i) for i in [3, 0] if i]", {"each: [ask(i) for i in [3, 0] if i]": (1, 0)}),
        ("x = [int(i) for i in '12']", {}),
        ("x = 0 or ask(2)", {}),
        ("y = 0\nx = y or ask(2)", {"or: y or ask(2)": (0, 1)}),
        ("y = [7]\nx = y or ask(2)", {"or: y or ask(2)": (1, 0)}),
        ("y = 3\nx = y and ask(y)", {"and: y and ask(y)": (1, 0)}),
        ("y = 3\nx = y and y > 2", {}),
        (
            "y = 1\nif y and ask(y):\n    pass",
            {"and: y and ask(y)": (1, 0), "if: if y and ask(y)": (0, 1)},
        ),
        (
            "y = 'b'\nmatch y:\n    case 'a':\n        x = 1\n    case 'b':\n        x = 2",
            {"if: case 'a'": (0, 1), "if: case 'b'": (1, 0)},
        ),
        (
            "for i in range(2):\n    for j in range(3):\n        pass",
            {"for: for i in range(2)": (2, 1), "for: for j in range(3)": (6, 2)},
        ),
    ],
)
def test_ways_within_expressions_are_counted_and_change_nothing(
    source: str, counted: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, own = noted(ASK + source, monkeypatch)
    plain: dict[str, Any] = {}
    exec(ASK + source, plain)  # noqa: S102
    for name in ("x", "asked"):
        assert found.get(name) == plain.get(name)
    assert own == counted


@pytest.mark.parametrize(
    "source",
    [
        "x = []\nfor each in NAMES:\n    x.append(each)",
        "x = [each for each in NAMES]",
        "x = list(NAMES)",
        "x = [each for _, each in enumerate(NAMES)]",
    ],
)
def test_ranks_of_one_process_go_through_a_set_each_in_an_order_of_its_own(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = {tuple(ran(source, salt, monkeypatch)["x"]) for salt in (None, 1, 2, 3)}
    assert {frozenset(order) for order in orders} == {NAMES}
    assert len(orders) > 1


@pytest.mark.parametrize("value", ["[3, 1, 2]", "{3, 1, 2}", "{'b': 1, 'a': 2}", "'cab'"])
def test_what_has_one_order_in_every_process_keeps_it(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ran(f"y = {value}\nx = [each for each in y]\n", 1, monkeypatch)
    assert found["x"] == [*found["y"]]


def test_ranks_of_one_process_have_each_a_hash_of_a_string(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "x = hash('encoder'), hash(7), hash((1, 2))"
    strings, numbers, pairs = zip(
        *(ran(source, salt, monkeypatch)["x"] for salt in (None, 1, 2)), strict=True
    )
    assert len({*strings}) == 3
    assert strings[0] == hash("encoder")
    assert {*numbers} == {7}
    assert {*pairs} == {hash((1, 2))}


def test_code_with_notes_runs_in_a_process_that_does_not_know_them(tmp_path: Path) -> None:
    """Ray sends functions of the script to its workers, with the notes that are in them."""
    decisions = Decisions(lambda error: (str(error), []))
    source = "for x in set('ab'):\n    if hash(x) or x:\n        pass\nprint('done')"
    code = tmp_path / "code"
    code.write_bytes(marshal.dumps(decisions.compile(source.encode(), "train.py")))
    program = f"import marshal; exec(marshal.loads(open({str(code)!r}, 'rb').read()))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **make_environment(tmp_path / "record", "")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr


def test_what_a_condition_reads_by_keys_and_attributes_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = """
from collections import defaultdict
from types import SimpleNamespace
config = {"eval": {"every": 3}}
run = SimpleNamespace(args=SimpleNamespace(steps=7))
counts = defaultdict(int)
if 6 % config["eval"]["every"] == 0: pass
if run.args.steps > 9: pass
if counts["misses"] == 0: pass
if run.args.epochs if "epochs" in vars(run.args) else 0: pass
"""
    decisions = run_with_notes(source, monkeypatch, {})[1]
    found = [
        dict(zip(decisions.places[number].names, values, strict=False))
        for number, (_, _, values) in decisions.pending.items()
        if decisions.places[number].kind == "if"
    ]
    assert found[:3] == [
        {"config['eval']['every']": "3"},
        {"run.args.steps": "7"},
        {"counts['misses']": None},
    ]


@pytest.mark.parametrize(
    ("step", "rank", "read"),
    [
        (2, 0, {"step": "2", "rank": "0"}),
        (1, 0, {"step": "1"}),
        (2, 1, {"step": "2", "rank": "1", "best": "3"}),
    ],
)
def test_a_condition_shows_what_its_later_parts_have_read(
    monkeypatch: pytest.MonkeyPatch, step: int, rank: int, read: dict[str, str]
) -> None:
    source = """
if rank: best = 3
for _ in range(2):
    if step % 2 == 0 and not (rank == 0 or best < 2): pass
"""
    decisions = run_with_notes(source, monkeypatch, {"step": step, "rank": rank})[1]
    number = next(at for at, each in enumerate(decisions.places) if "best" in each.names)
    names, values = decisions.places[number].names, decisions.pending[number][2]
    found = dict(zip(names, values, strict=False))
    assert {name: each for name, each in found.items() if each is not None} == read


def test_a_switch_of_fsdp_is_noted_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
class Model:
    def set_requires_gradient_sync(self, on, *, recurse=True):
        passed.append(on)
passed, model = [], Model()
for step in range(4):
    is_last = step % 3 == 2
    model.set_requires_gradient_sync(is_last, recurse=False)
model.set_requires_gradient_sync(True)
"""
    found, counted = noted(source, monkeypatch)
    assert found["passed"] == [False, False, True, False, True]
    flags = {text: ways for text, ways in counted.items() if text.startswith("flag")}
    assert flags == {"flag: model.set_requires_gradient_sync(is_last, recurse=False)": (1, 3)}


def test_a_switch_that_is_an_attribute_is_noted_as_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = """
class Model:
    require_backward_grad_sync = True
model = Model()
for step in range(4):
    model.require_backward_grad_sync = step % 3 == 2
model.require_backward_grad_sync = True
"""
    found, counted = noted(source, monkeypatch)
    assert found["model"].require_backward_grad_sync is True
    flags = {text: ways for text, ways in counted.items() if text.startswith("flag")}
    assert flags == {"flag: model.require_backward_grad_sync = step % 3 == 2": (1, 3)}


def test_a_number_that_a_call_is_given_is_noted_and_a_tensor_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = """
class Batch:
    pass
def fit(**options):
    passed.append(options)
def show(**options):
    pass
passed, left, batch = [], [3, 2], Batch()
for each in left:
    fit(max_epochs=each - 1, min_epochs=1, name="a", batch=batch)
    show(name=str(each), lr=each / 2)
fit(max_epochs=1 if left else 2, batch=batch)
"""
    found, counted = noted(source, monkeypatch)
    assert [each["max_epochs"] for each in found["passed"]] == [2, 1, 1]
    assert all(each["batch"] is found["batch"] for each in found["passed"])
    given = {text: ways for text, ways in counted.items() if text.startswith("given")}
    assert given == {
        "given: max_epochs=each - 1": (2, 0),
        "given: max_epochs=1 if left else 2": (1, 0),
    }


def test_what_a_framework_is_given_is_noted_by_place_by_name_and_in_a_dict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = """
import dataclasses
@dataclasses.dataclass
class Options:
    steps: int
    name: str = "adam"
    _hidden: int = 3
class Trainer:
    def __init__(self, *args, **options):
        self.args, self.options = args, options
class Rows:
    def __len__(self):
        raise AssertionError("nothing of the script's own is called")
accumulate, own, rows = 4, {"stage": 2, "optimizer": {"lr": 0.1, "kind": Options}}, Rows()
trainer = Trainer(rows, accumulate, **own)
other = Trainer(Options(accumulate), kind=Options(1), data=[rows, rows], lr=float("1e-3"))
plain = dict(accumulate=accumulate)
print(accumulate, sep=str())
"""
    found, counted = noted(source, monkeypatch)
    assert found["trainer"].args == (found["rows"], 4)
    assert found["trainer"].options == found["own"]
    given = {text for text in counted if text.startswith("given")}
    assert describe_given(found["own"]) == (
        *("**", "stage: 2", "optimizer.lr: 0.1", "optimizer.kind: Options"),
    )
    assert describe_given(found["Options"](4)) == ("**", "steps: 4", "name: 'adam'")
    assert describe_given(found["rows"]) is None
    assert given == {
        "given: accumulate",
        "given: **own",
        "given: data=[rows, rows]",
        'given: lr=float("1e-3")',
        "given: accumulate=accumulate",
    }


ANSWERS = """
class Mask:
    def __bool__(self):
        raise RuntimeError("of several values")
class Rows:
    def __gt__(self, other):
        return Mask()
def large(loss):
    return loss > 0.5
def small(loss):
    return not large(loss)
found = [large(0.7), small(0.7), large(0.2), large(Rows())]
"""


def test_what_a_function_answers_is_counted_where_it_is_yes_or_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, decisions = followed(ANSWERS, monkeypatch)
    assert found["found"][:3] == [True, False, False]
    assert type(found["found"][3]).__name__ == "Mask"
    counted = {
        decisions.places[number].text: values
        for number, values in decisions.pending.items()
        if decisions.places[number].kind == "answer"
    }
    assert counted["return loss > 0.5"][:2] == [2, 1]
    assert counted["return not large(loss)"][:2] == [0, 1]
