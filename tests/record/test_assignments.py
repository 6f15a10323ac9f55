"""What a script's lines set is noted, where it changes, and nothing is computed again for it."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest
from script_notes import run_with_notes

from torch_scenarios.record.evidence.notes.assignment import MOST_CHANGES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recordings import Recording

    from torch_scenarios.record.evidence.notes.decision import Decisions


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[dict[str, Any], Decisions]]:
    """Run a script with notes; returns what it has at its end, and the notes."""

    def run_script(source: str) -> tuple[dict[str, Any], Decisions]:
        return run_with_notes(source, monkeypatch, {"__name__": "train"})

    return run_script


def values(decisions: Decisions) -> list[tuple[str, str, int, tuple[str, ...]]]:
    """Return what was set, in order: the name, its function or class, the line, the value."""
    return [
        (*at.names, at.line, words)
        for number, (_, _, words) in decisions.pending.items()
        for at in [decisions.places[number]]
        if at.kind == "value"
    ]


#: a call that sets something for the whole process
SETS_UP = ("torch.set_default_dtype", "", 3, ("int",))


@pytest.mark.parametrize(
    ("source", "noted"),
    [
        ("x = 3", [("x", "", 1, ("3",))]),
        ("x, (y, *_) = 1, (2, 3)", [("x", "", 1, ("1",)), ("y", "", 1, ("2",))]),
        ("x = [1]\nx += [2]", [("x", "", 1, ("[1]",)), ("x", "", 2, ("[1, 2]",))]),
        ("x: int = 3", [("x", "", 1, ("3",))]),
        ("x = []\nx.append('a')", [("x", "", 1, ("[]",)), ("x", "", 2, ("['a']",))]),
        ("for x in 'ab': pass", [("x", "", 1, ("'b'",))]),
        ("for at, x in enumerate('ab'): pass", [("x", "", 1, ("'b'",))]),
        ("for at in range(3): pass", []),
        ("x = 0.25", []),
        ("x = list(range(20))", [("x", "", 1, ("20 items (int, ...)",))]),
        ("x = {'lr': 1, 'n': 2}", [("x", "", 1, ("**", "lr: 1", "n: 2"))]),
        ("x = {each: 0 for each in range(20)}", [("x", "", 1, ("20 items",))]),
        ("x = {}\nx['n'] = 1", [("x", "", 1, ("0 items",)), ("x['n']", "", 2, ("1",))]),
        (
            "x = {}\ny = 'n'\nx[y] = 1",
            [
                *(("x", "", 1, ("0 items",)), ("y", "", 2, ("'n'",))),
                *(("x[y]", "", 3, ("1",)), ("x", "", 3, ("**", "n: 1"))),
            ],
        ),
        (
            "def f(a, *, b=2):\n    return a\nf(1)",
            [("a", "f", 1, ("1",)), ("b", "f", 1, ("2",)), ("return", "f", 2, ("1",))],
        ),
        (
            "class C:\n    def __init__(self, n):\n        self.n = n + 1\nC(1)",
            [("n", "C.__init__", 2, ("1",)), ("self.n", "C", 3, ("2",))],
        ),
        (
            "n = 0\ndef f():\n    global n\n    n = 1\nf()",
            [("n", "", 1, ("0",)), ("n", "", 4, ("1",))],
        ),
        ("if True:\n    x = 1\nelse:\n    x = 2", [("x", "", 2, ("1",))]),
        ("try:\n    x = 1\nfinally:\n    y = 2", [("x", "", 2, ("1",)), ("y", "", 4, ("2",))]),
        ("class C:\n    n = 3", []),
        (
            "class torch:\n    def set_default_dtype(kind): pass\ntorch.set_default_dtype(int)",
            [("kind", "torch.set_default_dtype", 2, ("int",)), SETS_UP],
        ),
        (
            "x = {'n': 1}\ny = x\ny['m'] = 2\nfor each in sorted(x.items()): pass",
            [
                *(("x", "", 1, ("**", "n: 1")), ("y", "", 2, ("**", "n: 1"))),
                *(("y['m']", "", 3, ("2",)), ("x", "", 4, ("**", "n: 1", "m: 2"))),
                ("each", "", 4, ("('n', 1)",)),
            ],
        ),
        (
            "class Config: n = 1\nx = Config()\nsetattr(x, 'n', 2)",
            [("x", "", 2, ("a Config",)), ("x", "", 3, ("**", "n: 2"))],
        ),
    ],
)
def test_what_a_line_sets_is_noted(run: Any, source: str, noted: list[Any]) -> None:
    assert values(run(source)[1]) == noted


def test_a_value_is_written_where_it_changes(run: Any) -> None:
    source = f"for at in range({MOST_CHANGES + 5}):\n    x = 7\n    y = at\n"
    assert values(run(source)[1]) == [
        ("x", "", 2, ("7",)),
        ("y", "", 3, (str(MOST_CHANGES - 1),)),
    ]


def test_a_name_that_two_lines_set_is_one_variable(run: Any) -> None:
    """A line that sets what another one has set already changes nothing."""
    source = "x = 1\nif x:\n    x = 1\n"
    assert [each[2] for each in values(run(source)[1])] == [1]


def test_notes_compute_nothing_again(run: Any) -> None:
    source = """
asked = []
class C:
    def __getattr__(self, name):
        asked.append(name)
        return 1
    @property
    def n(self):
        asked.append("n")
        return 1
    @n.setter
    def n(self, value):
        asked.append("set")
    def __len__(self):
        asked.append("len")
        return 1
    def __repr__(self):
        asked.append("repr")
        return ""
def draw():
    asked.append("draw")
    yield 1
def give():
    "what it says"
    return draw()
c = C()
c.n = 3
c.items = draw()
d = {}
d[len(asked)] = c
for each in give(): pass
"""
    found, _ = run(source)
    assert found["asked"] == ["set", "draw"]
    assert found["give"].__doc__ == "what it says"


def test_lines_of_a_traceback_stay(run: Any) -> None:
    source = "def f(x):\n    y = x\n    return 1 / y\n\nz = 1\nf(0)\n"
    with pytest.raises(ZeroDivisionError) as caught:
        run(source)
    lines = [each.lineno for each in traceback.extract_tb(caught.value.__traceback__)]
    assert lines[-2:] == [6, 3]


def test_an_object_that_cannot_be_looked_at_is_left_out(run: Any) -> None:
    source = """
class Tensor:
    @property
    def shape(self):
        raise RuntimeError("none")
x = Tensor()
done = True
"""
    assert ("done", "", 7, ("True",)) in values(run(source)[1])


#: a width that a cache of names gives, read three functions before ranks part
WIDTH = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")


class Registry:
    def __init__(self, names):
        self.known = {"base": 16}
        for name in names:
            self.known[name] = 8 * len(name)

    def width(self, name):
        return self.known.get(name, self.known["base"])


def plan(registry):
    total = 0
    for name in ("base", "wide"):
        total += registry.width(name)
    return total


class Options:
    names = ()


options = Options()
for name, value in torch.load(PATH)[dist.get_rank()].items():
    setattr(options, name, value)
dist.barrier()
registry = Registry(options.names)
total = plan(registry)
grad = torch.ones(total)
dist.all_reduce(grad)
dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--fake",)], ids=["live", "fake"])
def test_where_values_begin_to_differ_is_named(
    recording: Recording, tmp_path: Path, how: tuple[str, ...]
) -> None:
    import torch

    path = tmp_path / "names.pt"
    torch.save([{"names": ["wide"]}, {"names": []}], path)
    script = tmp_path / "train.py"
    script.write_text(WIDTH.replace("PATH", repr(str(path))), encoding="utf-8")
    ran = recording.record(script, "-n", "2", *how)
    assert ran.code == 1, ran.output
    assert "values differ before: `value` is ['wide'] on rank 0, [] on rank 1" in ran.output
    assert "fix: look first at `value` (train.py:29)" in ran.output


#: a stage, what follows from it, and a flag are of each rank's number
STAGES = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")


class Stage:
    def __init__(self, rank):
        self.stage = rank // 2
        self.warmup = 2 - self.stage

    def first(self):
        return self.stage == 0


stage = Stage(dist.get_rank())
dist.barrier()
if stage.first():
    dist.all_reduce(torch.ones(stage.warmup))
dist.broadcast(torch.ones(3), src=0)
dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.slow
def test_what_a_rank_has_by_its_number_is_not_named(recording: Recording, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STAGES, encoding="utf-8")
    ran = recording.record(script, "-n", "4", "--fake")
    assert ran.code == 1, ran.output
    assert "`if stage.first()` (train.py:18)" in ran.output, ran.output
    assert "values differ before" not in ran.output, ran.output


#: a sampler deals other rows to each rank
ROWS = """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((2,), float(index) * index)


rows = Rows()
sampler = DistributedSampler(rows, shuffle=False)
for batch in DataLoader(rows, batch_size=4, sampler=sampler):
    total = batch.sum()
    if total > 150:
        dist.all_reduce(total)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.slow
def test_the_row_that_a_dataset_is_asked_for_is_not_named(
    recording: Recording, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(ROWS, encoding="utf-8")
    ran = recording.record(script, "-n", "2", "--fake")
    assert ran.code == 1, ran.output
    assert "rank 1 alone goes into `if total > 150` (train.py:21)" in ran.output, ran.output
    assert "`index` is" not in ran.output, ran.output
