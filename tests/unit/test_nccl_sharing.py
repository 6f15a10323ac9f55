"""How ranks share GPUs: a function of NCCL's version and two counts, or a reason why not."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.errors import LaunchError, UnsupportedError
from torch_scenarios.execution import backends as gpus
from torch_scenarios.execution import backends as nccl
from torch_scenarios.execution.backends import (
    LaunchOptions,
    Sharing,
    choose_backend,
    decode_version,
    find_sharing,
)
from torch_scenarios.execution.launcher import Launcher
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.model.traits import carrier, device_type, names_in
from torch_scenarios.reference import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.scenario import Scenario

NEW, OLD = (2, 30, 7), (2, 29, 7)


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test's own torch say the version, also where a real NCCL is loaded."""
    monkeypatch.setattr(nccl, "_find_library_version", lambda: None)


def shared(version: tuple[int, int, int], ranks: int, gpus: int) -> Sharing:
    found = find_sharing(version, ranks, gpus)
    assert isinstance(found, Sharing)
    return found


def test_nccl_from_2_30_3_on_is_told_to_allow_it() -> None:
    found = shared((2, 30, 3), 2, 1)
    assert found.environment(1) == {
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "NCCL_MAX_CTAS": "4",
        "NCCL_NVLS_ENABLE": "0",
    }


def test_an_older_nccl_takes_each_rank_for_a_host_of_its_own() -> None:
    found = shared(OLD, 2, 1)
    first, second = found.environment(0), found.environment(1)
    assert (first.pop("NCCL_HOSTID"), second.pop("NCCL_HOSTID")) == ("rank-0", "rank-1")
    assert first == second
    assert (first["NCCL_NET"], first["NCCL_SOCKET_IFNAME"]) == ("Socket", "lo")
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in first


@pytest.mark.parametrize("version", [(2, 30, 2), (2, 29, 7), (2, 30, 0)])
def test_the_switch_came_with_the_third_patch(version: tuple[int, int, int]) -> None:
    assert shared(version, 2, 1).own_host


def test_channels_are_bounded_by_the_name_that_the_version_knows() -> None:
    assert shared((2, 16, 5), 2, 1).common["NCCL_MAX_NCHANNELS"] == "4"
    assert "NCCL_MAX_CTAS" not in shared((2, 16, 5), 2, 1).common


@pytest.mark.parametrize(("ranks", "gpus", "channels"), [(2, 1, "4"), (4, 1, "2"), (8, 1, "1")])
def test_the_more_ranks_on_a_gpu_the_fewer_channels_each(
    ranks: int, gpus: int, channels: str
) -> None:
    assert shared(NEW, ranks, gpus).common["NCCL_MAX_CTAS"] == channels
    assert shared(NEW, 2 * ranks, 2 * gpus).common["NCCL_MAX_CTAS"] == channels


def test_ranks_with_a_gpu_each_need_nothing() -> None:
    assert find_sharing(OLD, 4, 4) is None
    assert find_sharing(None, 2, 8) is None


@pytest.mark.parametrize(
    ("version", "ranks", "gpus", "reason"),
    [
        (None, 2, 1, "the version of NCCL is not known"),
        ((2, 4, 8), 2, 1, "NCCL 2.4.8 takes one rank a GPU; 2.30.3 and newer take more"),
        (NEW, 33, 1, "33 ranks would share a GPU; more than 32 would block each other"),
        (NEW, 2, 0, "there is no GPU to share"),
    ],
)
def test_where_neither_way_works_the_reason_is_said(
    version: tuple[int, int, int] | None, ranks: int, gpus: int, reason: str
) -> None:
    found = find_sharing(version, ranks, gpus)
    assert isinstance(found, str)
    assert found.startswith(reason)


def test_the_note_names_the_ranks_the_gpus_and_the_way() -> None:
    note = shared(NEW, 8, 1).note(4)
    assert note == "4 ranks shared 1 GPU (NCCL_MULTI_RANK_GPU_ENABLE): its times mean nothing"


@pytest.mark.parametrize(
    ("code", "version"), [(22907, (2, 29, 7)), (23003, (2, 30, 3)), (2804, (2, 8, 4)), (0, None)]
)
def test_a_version_code_is_decoded(code: int, version: tuple[int, int, int] | None) -> None:
    assert decode_version(code) == version


def test_nothing_of_torchs_may_end_a_worker_before_it_was_judged() -> None:
    assert nccl.ENVIRONMENT["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert nccl.ENVIRONMENT["TORCH_NCCL_ENABLE_MONITORING"] == "0"
    assert nccl.ENVIRONMENT["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "0"


def test_what_decides_a_verdict_is_ours_whatever_the_shell_says() -> None:
    around = {"TORCH_NCCL_BLOCKING_WAIT": "1", "NCCL_RUNTIME_CONNECT": "1", "PATH": "/bin"}
    found = nccl.make_environment(around)
    assert found["TORCH_NCCL_BLOCKING_WAIT"] == "0"
    assert found["NCCL_RUNTIME_CONNECT"] == "1"  # a choice of the user's that only moves a hang
    assert found["TORCH_NCCL_USE_COMM_NONBLOCKING"] == "0"
    assert found["PATH"] == "/bin"
    assert nccl.make_environment(found) == found


def test_results_have_what_the_shell_says_to_nccl_and_what_of_it_is_not_used() -> None:
    around = {"TORCH_NCCL_BLOCKING_WAIT": "1", "NCCL_DEBUG": "WARN", "NCCL_RAS_ENABLE": "0"}
    said = nccl.describe_settings(nccl.make_environment(around))
    assert said == "NCCL_DEBUG=WARN not used: TORCH_NCCL_BLOCKING_WAIT=1"
    assert nccl.describe_settings(nccl.make_environment({"HOME": "/"})) == ""


def test_slices_of_a_gpu_are_counted_by_a_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nccl, "SLICES", tmp_path)
    monkeypatch.setattr(nccl, "may_be_here", lambda: True)
    monkeypatch.setattr(nccl, "count_gpus", lambda: 1)
    assert nccl.count(fake_torch(8)) == 8
    (tmp_path / "gpu0" / "mig" / "gi1").mkdir(parents=True)
    assert nccl.count(fake_torch(8)) == 1


STEP = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "1"}


@pytest.mark.parametrize(
    ("around", "bound"),
    [
        ({**STEP, "SLURM_GPUS_PER_TASK": "1"}, True),
        ({**STEP, "SLURM_GPU_BIND": "single:1"}, True),
        ({**STEP, "SLURM_GPU_BIND": "verbose,map_gpu:0,1"}, True),
        ({**STEP, "SLURM_GPUS_PER_TASK": "1", "SLURM_GPU_BIND": "none"}, False),
        (STEP, False),
        ({"SLURM_GPUS_PER_TASK": "8"}, False),  # in the script of a batch job
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_GPUS_PER_TASK": "8"}, False),
        ({**STEP, "SLURM_GPUS_PER_TASK": "1", "TORCHELASTIC_RUN_ID": "x"}, False),
    ],
)
def test_tasks_of_slurm_that_have_gpus_of_their_own_are_known(
    around: dict[str, str], *, bound: bool
) -> None:
    assert nccl.is_bound(around) is bound
    assert nccl.count_for(fake_torch(1), 8, around) == (8 if bound else 1)


@pytest.mark.parametrize(
    ("devices", "nodes", "found"),
    [
        ("01234567", 2, ["0,1,2,3", "4,5,6,7"]),
        ("012", 2, ["0", "1"]),
        ("0", 2, ["0", ""]),
        ("", 2, ["", ""]),
    ],
)
def test_hosts_of_one_machine_have_gpus_apart(devices: str, nodes: int, found: list[str]) -> None:
    assert nccl.split_devices(devices, nodes) == found


def test_gpus_are_named_as_the_shell_names_them() -> None:
    assert nccl.list_visible(fake_torch(2), {}) == ("0", "1")
    assert nccl.list_visible(fake_torch(1), {"CUDA_VISIBLE_DEVICES": "5"}) == ("5",)


# ---------------------------------------------------------------------------- the choice


def fake_torch(gpus: int, *, built: bool = True, version: Any = (2, 30, 4)) -> ModuleType:
    """Return as much of torch as the choice of a backend asks."""
    torch = ModuleType("torch")
    dist = SimpleNamespace(is_nccl_available=lambda: built)
    cuda = SimpleNamespace(
        _is_compiled=lambda: built,
        _device_count_nvml=lambda: gpus,
        nccl=SimpleNamespace(version=lambda: version),
    )
    vars(torch).update(
        distributed=dist, cuda=cuda, __version__="2.13.0", version=SimpleNamespace(cuda="13.0")
    )
    return torch


@pytest.fixture
def four(tmp_path: Path) -> Scenario:
    return scenario(tmp_path, "world_size: 4")


def scenario(folder: Path, head: str) -> Scenario:
    path = folder / "scenario.yaml"
    path.write_text(f"{head}\ntensors: {{x: [1]}}\nsteps: [{{all_reduce: {{tensor: x}}}}]\n")
    (loaded,) = load(path)
    return loaded


def chosen(torch: ModuleType, four: Scenario, *, share: bool = False, here: int = 8) -> Any:
    return choose_backend(torch, "auto", plan(four), share_gpu=share, here=here)


def test_auto_takes_nccl_with_a_gpu_for_each_rank(four: Scenario) -> None:
    choice = chosen(fake_torch(4), four)
    assert (choice.backend, choice.sharing, choice.notes) == ("nccl", None, ())
    assert choice.environment["nccl"] == "2.30.4"


def test_auto_takes_gloo_with_fewer_and_offers_to_share(four: Scenario) -> None:
    choice = chosen(fake_torch(1), four)
    assert choice.backend == "gloo"
    (note,) = choice.notes
    assert note.startswith("it ran on Gloo: it has 4 ranks and this machine 1 GPU. --share-gpu ")


def test_auto_offers_nothing_without_a_gpu(four: Scenario) -> None:
    assert chosen(fake_torch(0), four).notes == ()
    assert chosen(fake_torch(2, built=False), four).backend == "gloo"


def test_a_shared_result_is_marked(four: Scenario) -> None:
    choice = chosen(fake_torch(1), four, share=True)
    assert choice.backend == "nccl"
    assert choice.environment["gpus"] == "1, shared by 4 ranks"
    assert "its times mean nothing" in choice.notes[0]


def test_one_launch_has_one_environment_whatever_a_scenario_needs(four: Scenario) -> None:
    torch = fake_torch(4)
    choice = chosen(torch, four, share=True, here=8)
    assert choice.notes == ()
    assert choice.environment["gpus"] == "4"
    assert choice.sharing == find_sharing((2, 30, 4), 8, 4)


def test_ranks_on_other_machines_need_no_gpu_here(four: Scenario) -> None:
    assert chosen(fake_torch(2), four, here=2).backend == "nccl"


def test_too_few_gpus_are_unsupported_and_the_ways_out_are_named(four: Scenario) -> None:
    with pytest.raises(UnsupportedError, match=r"4 ranks .* 1 GPU; .*--share-gpu.*--backend gloo"):
        choose_backend(fake_torch(1), "nccl", plan(four), share_gpu=False, here=4)


def test_an_nccl_that_cannot_share_is_unsupported_with_its_reason(four: Scenario) -> None:
    with pytest.raises(UnsupportedError, match=r"NCCL 2\.4\.8 takes one rank a GPU"):
        choose_backend(fake_torch(1, version=(2, 4, 8)), "nccl", plan(four), share_gpu=True, here=4)


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (fake_torch(0), "NCCL needs a GPU, and torch sees none here"),
        (fake_torch(0, built=False), "is built without NCCL"),
    ],
)
def test_a_machine_without_cuda_is_told_one_paragraph(
    torch: ModuleType, words: str, four: Scenario
) -> None:
    with pytest.raises(LaunchError, match=words) as raised:
        choose_backend(torch, "nccl", plan(four), share_gpu=True, here=4)
    assert "\n" not in str(raised.value)
    assert "--backend gloo" in str(raised.value)


# ---------------------------------------------------------------------------- spellings


def test_torchs_long_spelling_is_taken_apart() -> None:
    mixed = "cpu:gloo,cuda:nccl"
    assert names_in(mixed) == ("gloo", "nccl")
    assert (device_type(mixed), carrier(mixed)) == ("cuda", "nccl")
    assert (device_type("cpu:gloo"), carrier("cpu:gloo")) == ("cpu", "gloo")
    assert (device_type("nccl"), carrier("nccl")) == ("cuda", "nccl")
    assert (device_type("borrowed"), carrier("borrowed")) == ("cpu", "borrowed")
    assert (device_type("cuda:gloo"), carrier("cuda:gloo")) == ("cuda", "gloo")


def test_a_scenario_for_mixed_backends_gets_both_with_gpus_and_one_without(tmp_path: Path) -> None:
    mixed = scenario(tmp_path, "world_size: 2\nbackends: [cpu:gloo,cuda:nccl]")
    assert mixed.backends == ("cpu:gloo", "cuda:nccl")
    assert chosen(fake_torch(2), mixed).backend == "cpu:gloo,cuda:nccl"
    assert chosen(fake_torch(0), mixed).backend == "cpu:gloo"


@pytest.mark.parametrize(
    ("meant", "run_on"),
    [("[nccl]", "cpu:gloo,cuda:nccl"), ("[cuda:nccl]", "nccl"), ("[cpu:gloo]", "gloo")],
)
def test_a_kind_of_device_that_one_side_leaves_open_fits(
    meant: str, run_on: str, tmp_path: Path
) -> None:
    loaded = scenario(tmp_path, f"world_size: 2\nbackends: {meant}")
    found = choose_backend(fake_torch(2), run_on, plan(loaded), share_gpu=False, here=2)
    assert found.backend == run_on


def test_nothing_starts_for_a_file_that_is_for_another_backend(tmp_path: Path) -> None:
    whole = plan(scenario(tmp_path, "world_size: 2\nbackends: [nccl]"))
    launcher = Launcher(LaunchOptions(backend="gloo"))
    with pytest.raises(UnsupportedError, match="it is meant for nccl; this run is on gloo"):
        launcher.run(whole, simulate(whole))
    assert launcher.processes() == ()


@pytest.mark.parametrize(("meant", "run_on"), [("[nccl]", "gloo"), ("[cuda:gloo]", "cpu:gloo")])
def test_another_name_or_another_kind_of_device_does_not_fit(
    meant: str, run_on: str, tmp_path: Path
) -> None:
    loaded = scenario(tmp_path, f"world_size: 2\nbackends: {meant}")
    with pytest.raises(UnsupportedError, match="it is meant for"):
        choose_backend(fake_torch(2), run_on, plan(loaded), share_gpu=False, here=2)


# ---------------------------------------------------------------------------- counting


def test_a_cpu_build_has_no_gpus_and_asks_nobody() -> None:
    assert gpus.count(fake_torch(4, built=False)) == 0


def test_the_drivers_library_is_asked_and_not_cuda() -> None:
    assert gpus.count(fake_torch(4)) == 4


def test_where_the_driver_does_not_answer_a_process_of_its_own_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpus, "DEVICES", (str(tmp_path),))
    monkeypatch.setattr(gpus, "count_gpus", lambda: 1)
    assert gpus.count(fake_torch(-1)) == 1


def test_without_a_device_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "DEVICES", ("/dev/null/none",))
    monkeypatch.setattr(gpus, "count_gpus", lambda: 1)
    assert gpus.count(fake_torch(-1)) == 0


@pytest.mark.parametrize(("program", "found"), [("print(2)", 2), ("print('no')", 0), ("1/0", 0)])
def test_a_process_says_a_number_or_nothing(
    program: str, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "ASK", program)
    assert gpus.count_gpus() == found
