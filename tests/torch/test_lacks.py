"""A plugin that declares what it lacks: only the cases that need it do not count."""

from __future__ import annotations

from pathlib import Path

import pytest
from sampling import sampled

from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse, execute
from torch_scenarios.verdict import Verdict

pytestmark = pytest.mark.torch

HEAD = """\
import torch
from datetime import timedelta
from plugins.passing_backend import Passing, register


"""
#: backends that are right but for what the name says
PLUGINS = {
    "right": 'LACKS = ["tags"]\nregister("right")\n',
    "ignores_tags": """\
LACKS = ["tags"]


class Group(Passing):
    def send(self, tensors, peer, tag):
        return self.gloo.send(tensors, peer, 0)

    def recv(self, tensors, peer, tag):
        return self.gloo.recv(tensors, peer, 0)


register("ignores_tags", Group)
""",
    "refuses_tags": """\
LACKS = ["tags"]


class Group(Passing):
    def send(self, tensors, peer, tag):
        if tag:
            raise NotImplementedError("there are no tags here")
        return self.gloo.send(tensors, peer, 0)

    def recv(self, tensors, peer, tag):
        if tag:
            raise NotImplementedError("there are no tags here")
        return self.gloo.recv(tensors, peer, 0)


register("refuses_tags", Group)
""",
    "reduces_wrong": """\
LACKS = ["tags"]


class Group(Passing):
    def allreduce(self, tensors, options=None):
        self.gloo.allreduce(tensors, options).wait()
        tensors[0][-1] += 1
        done = torch.futures.Future()
        done.set_result(tensors)
        return torch._C._distributed_c10d._create_work_from_future(done)


register("reduces_wrong", Group)
""",
}
SUM = "  - all_reduce: {tensor: x}\n"
OUT_OF_ORDER = """\
  - ranks: 0
    isend: {tensor: one, dst: 1, tag: 1}
    as: a
  - ranks: 0
    isend: {tensor: two, dst: 1, tag: 2}
    as: b
  - ranks: 1
    irecv: {tensor: two, src: 0, tag: 2}
    as: b
  - ranks: 1
    irecv: {tensor: one, src: 0, tag: 1}
    as: a
  - wait: [a, b]
"""
TENSORS = """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
  one: {0: [1, 1], else: [0, 0]}
  two: {0: [2, 2], else: [0, 0]}
steps:
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in PLUGINS.items():
        (tmp_path / f"{name}_plugin.py").write_text(HEAD + text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    return tmp_path


def verdicts(folder: Path, name: str, *programs: str) -> list[Verdict]:
    options = LaunchOptions(backend=name, plugins=(f"{name}_plugin",))
    found = []
    with Launcher(options) as launcher:
        for number, program in enumerate(programs):
            path = folder / f"it{number}.yaml"
            path.write_text(TENSORS + program)
            (scenario,) = load(path)
            found.append(execute(analyse(scenario), launcher).verdict)
    return found


def test_only_the_case_that_needs_the_word_is_unsupported_and_a_plugin_that_passes_hears_it(
    folder: Path,
) -> None:
    tagged, plain = verdicts(folder, "right", OUT_OF_ORDER, SUM)
    assert (tagged.status, plain.status) == ("UNSUPPORTED", "PASSED")
    assert tagged.reason is not None
    assert "needs `tags`" in tagged.reason
    assert "the plugin right_plugin lacks" in tagged.reason
    assert [each.code for each in tagged.warnings] == ["lacks_what_it_passes"]
    assert not plain.warnings


@pytest.mark.nightly
def test_a_stated_word_that_is_refuted_excuses_nothing_and_is_one_warning_of_a_run(
    folder: Path,
) -> None:
    (stated,) = verdicts(folder, "right", f"{SUM}needs: [tags]\n")
    assert stated.status == "PASSED"
    assert [each.code for each in stated.warnings] == ["need_refuted"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", sampled(["ignores_tags", "refuses_tags"], 2))
def test_a_plugin_that_lacks_it_indeed_hears_nothing(folder: Path, name: str) -> None:
    tagged, plain = verdicts(folder, name, OUT_OF_ORDER, SUM)
    assert (tagged.status, plain.status) == ("UNSUPPORTED", "PASSED")
    assert not tagged.warnings
    assert not tagged.findings


def test_a_lack_hides_no_wrong_value_of_a_step_that_does_without(folder: Path) -> None:
    both, plain = verdicts(folder, "reduces_wrong", SUM + OUT_OF_ORDER, SUM)
    assert (both.status, plain.status) == ("FAILED", "FAILED")
    assert both.findings[0].code == "value_differs"
    assert any("explains no wrong value" in note for note in both.notes)
