"""A script on tensors without memory: what kernels take, when calls begin, what is held."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner
from recordings import SCRIPTS, lacking

from torch_scenarios.cli import cli
from torch_scenarios.record.kernels.roofline import Roofline

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.slow]

MACHINE = "h100-8x400g"
SMALL = ("--layers", "3", "--sequence", "1024", "--vocabulary", "4096")


def steps(nodes: list[Any]) -> list[Any]:
    """Return the steps of a scenario, those of its loops in their place."""
    return [one for node in nodes for one in (steps(node["steps"]) if "for" in node else [node])]


def timed(folder: Path, script: str, *args: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Record rank 0 of 8 with times, and return its scenario; what it is weighed as is `cost`."""
    if reason := lacking(script, live=False):
        pytest.skip(reason)
    path = folder / "step.yaml"
    asked = ("-n", "8", "--ranks", "0", "--fake", "--times-on", MACHINE, *options)
    told = ("-o", str(folder / "record"), "--yaml", str(path))
    done = CliRunner().invoke(cli, ["record", *asked, *told, "--", str(SCRIPTS / script), *args])
    assert path.exists(), done.output
    assert f"`scenario cost {path} --topology {MACHINE}` weighs the step" in done.stdout
    assert "1 of 8 ranks is recorded" in done.stdout
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found | {"cost": cost_of(folder, found)}


@pytest.mark.nightly
def test_fsdp2_gathers_a_layer_while_it_computes_the_one_before(tmp_path: Path) -> None:
    found = timed(tmp_path, "llama_fsdp2.py", *SMALL)
    made = steps(found["steps"])
    gathers = [
        at for at, step in enumerate(made) if "async_op" in step.get("all_gather_single", {})
    ]
    assert len(gathers) >= 5
    for at in gathers[:4]:  # forwards: kernels, in rows, and then the wait
        rows = list(itertools.takewhile(lambda step: "compute" in step, made[at + 1 :]))
        assert any("time" in row["compute"] for row in rows)
        assert "wait" in made[at + 1 + len(rows)]
    exposed = cost_of(tmp_path, in_turn(found))["exposed_us"]
    assert found["cost"]["exposed_us"] < 0.7 * exposed
    kinds = {name for name in found["tensors"] if name.startswith("held_")}
    assert kinds == {"held_parameters", "held_optimizer", "held_activations"}


def in_turn(found: dict[str, Any]) -> dict[str, Any]:
    """Return a scenario in which no call goes on behind kernels."""
    made = []
    for step in steps(found["steps"]):
        told = {
            key: dict(value) if isinstance(value, dict) else value for key, value in step.items()
        }
        told.pop("as", None)
        for value in told.values():
            if isinstance(value, dict):
                value.pop("async_op", None)
        if "wait" not in told:
            made.append(told)
    return {key: value for key, value in found.items() if key != "cost"} | {"steps": made}


def cost_of(folder: Path, scenario: dict[str, Any]) -> dict[str, Any]:
    """Return what a scenario costs on the machine."""
    path = folder / "weighed.yaml"
    path.write_text(yaml.safe_dump(scenario), encoding="utf-8")
    shown = CliRunner().invoke(cli, ["cost", str(path), "--topology", MACHINE, "--json", "-"])
    assert shown.exit_code == 0, shown.output
    (found,) = json.loads(shown.stdout)["cases"]
    return dict(found)


def test_ddp_sums_its_buckets_while_it_goes_backwards(tmp_path: Path) -> None:
    found = timed(tmp_path, "times_of_ddp.py")
    made = steps(found["steps"])
    sums = [at for at, step in enumerate(made) if "all_reduce" in step]
    assert len(sums) == 2
    assert all(made[at]["all_reduce"]["async_op"] for at in sums[:-1])
    # between two buckets the kernels of the backward pass are made
    assert all("compute" in made[at + 1] for at in sums[:-1])
    # 8 products of [2048, 4096] by [4096, 4096] for each layer but the first, which has no input
    flops = 2 * 2048 * 4096 * 4096 * (3 * 8 - 1)
    assert found["cost"]["computing_us"] > flops / (67e6 * 0.60)


def test_a_step_with_convolutions_says_that_none_was_compared(tmp_path: Path) -> None:
    found = timed(tmp_path, "times_of_convolutions.py")
    assert found["tags"] == ["recorded", "convolution"]
    cost = found["cost"]
    assert cost["error"] == "never compared with a measurement: no step with convolutions was"
    assert cost["never_compared_us"] == cost["time_us"] > 0


def test_a_script_of_images_for_a_gpu_is_reckoned(tmp_path: Path) -> None:
    found = timed(tmp_path, "times_of_images.py", options=("--cuda-as-cpu",))
    names = [name for step in steps(found["steps"]) for name in step if name.startswith("all_")]
    assert names[:2] == ["all_gather_single", "all_reduce"]  # of SyncBatchNorm, there and back
    kinds = {name for name in found["tensors"] if name.startswith("held_")}
    assert "held_optimizer" in kinds  # the scaler finds no gradient that is infinite
    assert found["cost"]["computing_us"] > 0


def test_a_host_that_reads_what_its_gpu_computes_is_said_to_wait_with_its_line(
    tmp_path: Path,
) -> None:
    found = timed(tmp_path, "waits_of_the_host.py")
    waits = [step["at"] for step in steps(found["steps"]) if "synchronize" in str(step)]
    script = (SCRIPTS / "waits_of_the_host.py").read_text(encoding="utf-8").splitlines()
    lines = [script[int(place.rpartition(":")[2]) - 1].strip() for place in waits]
    # a step is from one `optimizer.step()` to the next; what the optimizer counts is no tensor
    assert lines == [
        "print(row, norm.tolist())",
        "if loss.item() > 2:",
        "row = norm.reshape(1).cpu().numpy()",
        "torch.cpu.synchronize()",
    ]
    assert len(found["cost"]["host_waits"]["steps"]) == len(lines)


def test_a_compiled_layer_keeps_no_result_that_one_kernel_alone_needs(tmp_path: Path) -> None:
    eager, compiled = (
        timed(tmp_path, "times_of_compiled.py", *options)["cost"]["held_bytes"]
        for options in ((), ("--compiled",))
    )
    silu = 4 * 8192 * 4096  # bytes of one layer's, in float32
    # each of four layers keeps one, and the last one's backward pass makes another one first
    assert eager - compiled >= 4 * silu
    assert eager - compiled < 6 * silu


@pytest.mark.nightly
def test_what_is_held_is_what_torch_tracks(tmp_path: Path) -> None:
    script = SCRIPTS / "times_of_ddp.py"
    done = subprocess.run(
        [sys.executable, str(script), "--tracked"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    tracked = json.loads(done.stdout)
    found = timed(tmp_path, "times_of_ddp.py", "--alone")
    held = {name: tensor["shape"] for name, tensor in found["tensors"].items() if "held_" in name}
    assert sum(held.values()) == pytest.approx(tracked["peak"], rel=0.05)
    assert held["held_parameters"] == pytest.approx(tracked["parameters"], rel=0.01)


@pytest.mark.nightly
def test_what_a_rank_of_fsdp2_holds_is_what_torch_tracks(tmp_path: Path) -> None:
    script = SCRIPTS / "times_of_fsdp2.py"
    done = subprocess.run(
        [sys.executable, str(script), "--tracked"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    tracked = json.loads(done.stdout.splitlines()[-1])
    found = timed(tmp_path, "times_of_fsdp2.py")
    kinds = {name: tensor["shape"] for name, tensor in found["tensors"].items() if "held_" in name}
    # torch tracks no optimizer there, and has a gather's buffer and what is copied out of it
    held = found["cost"]["held_bytes"] - kinds["held_optimizer"]
    assert held == pytest.approx(tracked["peak"], rel=0.01)
    assert kinds["held_parameters"] == tracked["parameters"]


def test_a_machine_without_kernels_is_refused() -> None:
    asked = ["record", "--fake", "--times-on", "flat", "--", str(SCRIPTS / "ring.py")]
    shown = CliRunner().invoke(cli, asked)
    assert shown.exit_code == 2
    assert "topology flat has no `gpu` that says what kernels take" in shown.output


def test_times_are_for_fake_ranks() -> None:
    asked = ["record", "--times-on", MACHINE, "--", str(SCRIPTS / "ring.py")]
    shown = CliRunner().invoke(cli, asked)
    assert shown.exit_code == 2
    assert "give --fake too" in shown.output


def test_attention_takes_what_heads_of_its_size_reach() -> None:
    import torch

    gpu = {
        "tflops": {"bfloat16": 1000.0, "float32": 60.0},
        "bandwidth": 1e12,
        "matmul": 0.5,
        "attention": [[64, 0.25], [128, 0.5]],
        "attention_backward": [[0, 0.1]],
        "memory": 1.0,
        "least": 0.0,
    }
    roofline = Roofline(gpu)
    func = torch.ops.aten.scaled_dot_product_attention.default

    def attended_us(size: int) -> float:
        args = [torch.empty(1, 8, 1024, size, dtype=torch.bfloat16, device="meta")] * 3
        return roofline.us(func, args, {}, args[0], args, args[:1])

    assert attended_us(64) == pytest.approx(4 * 8 * 1024 * 1024 * 64 / (1000e6 * 0.25))
    assert attended_us(128) == pytest.approx(attended_us(64))


def test_a_product_in_float8_warns_that_nothing_confirms_it() -> None:
    torch = pytest.importorskip("torch")
    one = {"tflops": {"float32": 1, "float8": 8}, "bandwidth": 1e9, "matmul": 0.5, "memory": 1.0}
    roofline = Roofline({**one, "attention": [], "attention_backward": [], "host": {}, "least": 0})
    given = [torch.empty(64, 64, dtype=torch.float8_e4m3fn, device="meta") for _ in range(2)]
    out = torch.empty(64, 64, dtype=torch.bfloat16, device="meta")
    given += [torch.empty((), device="meta") for _ in range(2)]
    func = torch.ops.aten._scaled_mm.default  # noqa: SLF001 -- what torch calls it
    with pytest.warns(UserWarning, match="float8 take the part .* no measurement"):
        us = roofline.us(func, given, {}, out, given, [out])
    assert us == pytest.approx(2 * 64**3 / (8e6 * 0.5))
