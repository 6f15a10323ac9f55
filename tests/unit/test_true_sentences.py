"""What the command line says is true: who does what, what would help, and what is a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from torch_scenarios.cli import cli, main
from torch_scenarios.execution.backends import failure_of, name_lack, unknown
from torch_scenarios.model.trace import Failure
from torch_scenarios.report.markdown import inert
from torch_scenarios.verdict.finding import ranks_do

if TYPE_CHECKING:
    from pathlib import Path

WAITED_FOR_BY_NONE = """\
world_size: 4
tensors: {x: [1]}
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: w
"""
SENT_TO_NONE = """\
world_size: 3
tensors: {x: [1]}
steps:
  - isend: {tensor: x, dst: "(rank + 1) % 3"}
    ranks: [1, 2]
    as: w
  - recv: {tensor: x, src: "(rank - 1) % 3"}
    ranks: [2, 0]
"""
AVERAGE = """\
world_size: 2
tensors: {x: {dtype: int64, value: [2]}}
steps:
  - all_reduce: {tensor: x, op: avg}
"""


def said(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def checked(tmp_path: Path, text: str) -> str:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    return said("check", str(path)).output


TRAINED = """\
world_size: 2
groups: {mesh: {shape: [2], dims: [tp]}}
tensors: {x: "random([4, 2], 1)", y: "random([4, 2], 2)", listed: "[x, y]"}
models:
  net:
    layers: [up: {Linear: {in_features: 2, out_features: 2}}]
    loss: mse_loss
    optimizer: {SGD: {lr: 0.1}}
    parallel: [DistributedDataParallel]
functions:
  push: {arguments: [g], returns: g}
steps:
  - STEP
"""


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            "train: {model: net, input: x, target: y, batch: {group: world, sizes: [1, 1.5]}}",
            "`batch` has no usable value on rank 0: 1.5 is not an integer",
        ),
        (
            "train: {model: net, input: x, target: y, batch: {group: world, sizes: 1 > 0}}",
            "`batch` has no usable value on rank 0: True is not a list",
        ),
        (
            "train: {model: net, input: x, target: y, clip_grad_norm: zeros(2)}",
            "cannot be the text 'zeros(2)'",
        ),
        (
            "rpc_sync: {to: null, func: push, args: [x]}",
            "rank 0 in `rpc_sync push on None`: its `to` is None",
        ),
        (
            "distribute_tensor: {tensor: listed, device_mesh: mesh.tp}",
            "`tensor` is not a tensor on rank 0",
        ),
    ],
)
def test_a_value_of_another_kind_is_told_with_its_argument(
    tmp_path: Path, step: str, words: str
) -> None:
    found = checked(tmp_path, TRAINED.replace("STEP", step))
    assert "INCONCLUSIVE" not in found, found
    assert words in " ".join(found.split()), found


NO_BACKEND = "No backend type associated with device type cpu"


@pytest.mark.parametrize(
    ("ranks", "words", "wanted"),
    [
        ((3,), "hangs here", "rank 3 hangs here"),
        ((0, 1, 2), "hangs here", "ranks 0, 1 and 2 hang here"),
        ((0, 1), "hangs, where", "ranks 0 and 1 hang, where"),
        ((0, 1), "raised timeout", "ranks 0 and 1 raised timeout"),
    ],
)
def test_a_verb_agrees_with_its_ranks(ranks: tuple[int, ...], words: str, wanted: str) -> None:
    assert ranks_do(ranks, words) == wanted


def test_all_ranks_that_never_wait_are_named(tmp_path: Path) -> None:
    text = checked(tmp_path, WAITED_FOR_BY_NONE)
    assert "ranks 0, 1, 2 and 3 start `all_reduce`" in text
    assert "never wait for it" in text


def test_messages_that_no_rank_waits_for_are_named_by_rank(tmp_path: Path) -> None:
    text = checked(tmp_path, SENT_TO_NONE)
    assert "ranks 1 and 2 start `isend to 2` on rank 1, `isend to 0` on rank 2" in text


def test_a_rank_beyond_the_world_is_not_said_to_be_one_of_it(tmp_path: Path) -> None:
    text = "world_size: 4\ntensors: {x: [1]}\nsteps: [broadcast: {tensor: x, src: 4}]\n"
    assert "src 4 is not a rank of the world, which has 4 ranks" in checked(tmp_path, text)


def test_the_number_of_ranks_is_not_to_be_a_tensor(tmp_path: Path) -> None:
    text = checked(tmp_path, "world_size: two\nsteps: [barrier: {}]\n")
    assert "nothing defines the name `two`" in text
    assert "`parameters:`" in text
    assert "`tensors:`" not in text


@pytest.mark.parametrize("backends", ["", "backends: [gloo]\n"])
def test_an_average_of_integers_names_the_backends(tmp_path: Path, backends: str) -> None:
    text = checked(tmp_path, backends + AVERAGE)
    assert "warning[gloo_differs]" in text
    assert "gloo refuses `op: avg` of int64, which nccl computes" in text


@pytest.mark.parametrize(
    "text", ["backends: [nccl]\n" + AVERAGE, AVERAGE.replace("int64", "float32")]
)
def test_an_average_that_every_meant_backend_takes_is_no_warning(tmp_path: Path, text: str) -> None:
    assert "warning" not in checked(tmp_path, text)


@pytest.mark.parametrize("code", ["circular_wait", "group_order"])
def test_a_picture_of_an_explanation_keeps_its_lines(code: str) -> None:
    lines = said("explain", code).output.splitlines()
    drawn = [line for line in lines if "──waits for" in line]
    assert len(drawn) == 2
    assert all(line.startswith("    rank ") for line in drawn)


def test_a_misspelt_version_leads_to_the_version() -> None:
    refused = said("run", "--verison")
    assert refused.exit_code == 2
    assert "scenario --version" in refused.output
    assert "--json" not in refused.output


def test_the_backend_that_exchanges_nothing_is_refused_with_words() -> None:
    assert "exchanges nothing" in str(unknown("fake"))
    assert unknown("gloo") is None


def test_links_and_images_of_a_description_are_inert() -> None:
    text = inert("![x](https://a.example/?q=[1]) [y](//b) www.c.example <img src=x> 1 // 2")
    assert not set("[]<>") & set(text)
    assert "://" not in text
    assert "www." not in text
    assert "1 // 2" in text


def test_a_folder_that_is_gone_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["scenario", "check"])
    with pytest.raises(SystemExit) as end:
        main()
    monkeypatch.chdir(tmp_path)
    assert end.value.code == 3
    assert capsys.readouterr().err == (
        "the current folder is not there any more: change into another one\n"
    )


@pytest.mark.parametrize(
    ("step", "role"),
    [
        ("broadcast: {tensor: x, src: 1, group: even}", "src"),
        ("send: {tensor: x, dst: 1, group: even}", "dst"),
    ],
)
def test_a_rank_outside_of_a_group_is_said_with_what_its_number_means(
    tmp_path: Path, step: str, role: str
) -> None:
    text = "world_size: 4\ngroups: {even: [0, 2]}\ntensors: {x: [1]}\n"
    found = " ".join(checked(tmp_path, f"{text}steps:\n  - {step}\n    ranks: 0\n").split())
    assert f"{role} 1 is not in group even, which has the global ranks 0, 2" in found
    assert f"`{role}` is a global rank, `group_{role}` a rank within the group" in found


class OfTorch:
    """What torch's own process group has; `all_to_all_single` is a newer name."""

    def _allgather_base(self) -> None:
        """Raise in torch."""

    def allreduce(self, tensors: object, options: object) -> None:
        """Raise in torch."""

    def all_to_all_single(self) -> None:
        """Raise in torch."""

    def alltoall_base(self) -> None:
        """Raise in torch."""


OfTorch.__module__ = "torch._C"


class OfAPlugin(OfTorch):
    """A process group that has some methods."""

    def allreduce(self, tensors: object) -> None:  # type: ignore[override]
        """Reduce."""

    def alltoall_base(self) -> None:
        """Exchange."""


class OfAnHeir(OfAPlugin):
    """A process group whose methods are those of a plugin."""


@pytest.mark.parametrize("group", [OfAPlugin, OfAnHeir])
@pytest.mark.parametrize(
    ("function", "message", "words"),
    [
        ("all_gather_single", NO_BACKEND, " has no method `_allgather_base`, which torch"),
        ("all_to_all_single", NO_BACKEND, " has no method `all_to_all_single`, which torch"),
        ("all_reduce", NO_BACKEND, NO_BACKEND),
        ("all_gather_single", "Connection reset by peer", "Connection reset by peer"),
    ],
)
def test_a_method_that_a_plugin_lacks_is_named(
    group: type, function: str, message: str, words: str
) -> None:
    failure = Failure(kinds=("unsupported",), message=message)
    found = name_lack(failure, RuntimeError(message), function, group)
    assert words in found.message


def test_a_method_that_takes_other_arguments_is_lacking_and_named() -> None:
    try:
        namespace = {"__name__": "torch.distributed", "group": OfAPlugin()}
        exec("group.allreduce([], None)", namespace)  # noqa: S102 -- as torch calls it
    except TypeError as error:
        found = name_lack(failure_of(error), error, "all_reduce", OfAPlugin)
    assert found.kinds == ("unsupported",)
    assert found.message == (
        "torch calls the method `allreduce` of the process group test_true_sentences.OfAPlugin "
        "with arguments that it does not take: OfAPlugin.allreduce() takes 2 positional arguments "
        "but 3 were given"
    )


@pytest.mark.parametrize("arguments", ["[], None", "[], tensors=[]"])
def test_the_method_of_a_class_that_a_function_makes_is_named_too(arguments: str) -> None:
    """Python names it with `<locals>`: `make.<locals>.Group.allreduce() takes 2 ...`."""

    class Group(OfTorch):
        def allreduce(self, tensors: object) -> None:  # type: ignore[override]
            """Reduce."""

    try:
        namespace = {"__name__": "torch.distributed", "group": Group()}
        exec(f"group.allreduce({arguments})", namespace)  # noqa: S102 -- as torch calls it
    except TypeError as error:
        found = name_lack(failure_of(error), error, "all_reduce", Group)
    assert found.kinds == ("unsupported",)
    assert "torch calls the method `allreduce` of the process group" in found.message
