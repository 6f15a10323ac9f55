"""Training scripts as people write them, recorded on real ranks and on fake ones."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner
from recordings import SCRIPTS, lacking
from sampling import sampled

from torch_scenarios.cli import cli
from torch_scenarios.language.document import load
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.record import live
from torch_scenarios.record.format import read
from torch_scenarios.record.program import program_of

if TYPE_CHECKING:
    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

LIVE, FAKE = ("-n", "4"), ("-n", "4", "--fake")

#: a script that is wrong: its variables, what it is called, what its report names
WRONG = [
    pytest.param("ring.py", {}, "circular_wait", ["ring.py:21"], id="ring"),
    pytest.param("ring.py", {"BUG": "2"}, "tag_mismatch", ["ring.py:15", "ring.py:18"], id="tag"),
    pytest.param(
        "rank0_evaluates.py",
        {},
        "call_mismatch",
        ["rank0_evaluates.py:8 called from :13, :20", "rank0_evaluates.py:21"],
        id="rank 0 evaluates",
    ),
    pytest.param(
        "uneven_loader.py",
        {},
        "call_mismatch",
        ["uneven_loader.py:12", "uneven_loader.py:14 in all_gather_object"],
        id="uneven loader",
    ),
]

RIGHT = [
    pytest.param("handles.py", {}, 9, id="handles"),
    pytest.param("fsdp2.py", {}, 8, id="FSDP2"),
    pytest.param("tensor_parallel.py", {}, 9, id="TP"),
    pytest.param("tensor_parallel.py", {"TP": "2"}, 16, id="TP and FSDP2"),
    pytest.param("pipeline.py", {}, 32, id="1F1B"),
    pytest.param("right/halo_exchange.py", {}, 3, id="batches"),
    pytest.param(
        "right/interleaved_pipeline.py", {}, 93, id="interleaved 1F1B", marks=pytest.mark.nightly
    ),
]


def place_of(text: str, word: str) -> str:
    return text if word in text else f"{word} is missing in: {text}"


@pytest.mark.parametrize("how", [LIVE, FAKE], ids=["live", "fake"])
@pytest.mark.parametrize(("script", "variables", "diagnosis", "places"), sampled(WRONG, 4))
def test_a_wrong_script_is_told_with_the_lines_of_both_sides(
    recording: Recording,
    how: tuple[str, ...],
    script: str,
    variables: dict[str, str],
    diagnosis: str,
    places: list[str],
) -> None:
    ran = recording.of(script, *how, **variables)
    assert ran.code == 1, ran.output + ran.errors
    assert ran.diagnoses[0] == diagnosis
    assert "unmatched_send" not in ran.diagnoses
    for place in places:
        assert place in ran.messages, ran.messages
    assert ran.output.startswith("FAILED")
    assert "    fix: " in ran.output
    if how == LIVE:
        assert ran.result["observed"]["outcome"] == "deadlock"
    ran.is_projected()


@pytest.mark.parametrize("how", [LIVE, FAKE], ids=["live", "fake"])
@pytest.mark.parametrize(("script", "variables", "steps"), sampled(RIGHT, 6))
def test_a_right_script_has_no_finding_and_a_short_scenario(
    recording: Recording, how: tuple[str, ...], script: str, variables: dict[str, str], steps: int
) -> None:
    ran = recording.of(script, *how, **variables)
    assert ran.code == 0, ran.output + ran.errors
    assert ran.diagnoses == []
    (scenario,) = load(ran.folder / "scenario.yaml")
    assert analyse(scenario).verdict.status == "PASSED"
    program = program_of(read(ran.folder))
    if not lacking(script, live=True):  # what a schedule waits for differs
        assert program.steps <= steps, program.text
    ran.is_projected()


@pytest.mark.parametrize(("script", "variables", "_"), sampled(list(RIGHT), 2))
def test_fake_ranks_call_what_real_ones_do(
    recording: Recording, script: str, variables: dict[str, str], _: int
) -> None:
    live = read(recording.of(script, *LIVE, **variables).folder)
    fake = read(recording.of(script, *FAKE, **variables).folder)

    def told(folder: dict[int, object], rank: int) -> list[object]:
        return [
            (call.operation, call.group, call.inputs and call.inputs[0].shape, call.peer, call.tag)
            for call in folder[rank].calls  # type: ignore[attr-defined]
        ]

    for rank in range(4):
        assert told(fake, rank) == told(live, rank)  # type: ignore[arg-type]


def test_what_aborts_in_the_backend_is_told_by_the_calls_that_led_there(
    recording: Recording,
) -> None:
    ran = recording.of("ddp_uneven_use.py", *LIVE)
    assert ran.code == 1
    assert ran.diagnoses[0] == "shape_mismatch"
    assert "rank 1 dies by SIGABRT in all_reduce (ddp_uneven_use.py:25" in ran.messages
    assert re.search(
        r"rank 1 passes \[\] \(ddp_uneven_use\.py:25.*"
        r"ranks 0, 2, 3 pass \[\d+\] \(ddp_uneven_use\.py:23",
        ran.messages,
    ), ran.messages
    last = read(ran.folder)[1].calls[-1]
    assert last.place.short().startswith("ddp_uneven_use.py:25")
    ran.is_projected()


def test_the_scenario_of_an_uneven_loader_shrinks_to_the_two_calls(recording: Recording) -> None:
    ran = recording.of("uneven_loader.py", *LIVE)
    done = CliRunner().invoke(cli, ["minimize", str(ran.folder / "scenario.yaml")])
    assert done.exit_code == 0, done.output
    steps = yaml.safe_load(done.stdout)["steps"]
    assert len(steps) <= 2, done.stdout
    places = [str(step["at"]) for step in steps]
    assert any("uneven_loader.py:12" in each for each in places)
    assert any("uneven_loader.py:14 in all_gather_object" in each for each in places)


def test_a_stuck_run_is_joined_with_what_its_ranks_would_do_next(recording: Recording) -> None:
    alone = recording.of("rank0_evaluates.py", *LIVE)
    assert "`--join` runs it again with fake ranks" in alone.output
    ran = recording.of("rank0_evaluates.py", *LIVE, "--join")
    assert ran.code == 1
    assert ran.diagnoses == ["call_mismatch"]
    assert ran.result["observed"]["outcome"] == "deadlock"
    assert "rank 0: in all_reduce (rank0_evaluates.py:8 called from :13, :20)" in ran.output
    assert "rank 0 alone goes into `if dist.get_rank() == 0` (rank0_evaluates.py:19)" in ran.output
    assert "rank 0 would go on with barrier (rank0_evaluates.py:21)" in ran.output
    assert (
        "ranks 1, 2, 3 would go on with all_reduce (rank0_evaluates.py:18), "
        "barrier (rank0_evaluates.py:21)" in ran.output
    )
    (scenario,) = load(ran.folder / "scenario.yaml")
    assert not scenario.truncated  # the whole program, not as far as it went
    assert analyse(scenario).verdict.status == "FAILED"


@pytest.mark.parametrize("how", [LIVE, FAKE], ids=["live", "fake"])
def test_every_way_to_call_is_seen_and_the_planted_fault_is_found(
    recording: Recording, how: tuple[str, ...]
) -> None:
    ran = recording.of("every_call.py", *how)
    assert ran.diagnoses == ["missing_wait"]
    assert "every_call.py:23" in ran.messages
    records = read(ran.folder)
    assert [len(record.calls) for record in records.values()] == [25, 25, 22, 22]
    assert not any(record.error for record in records.values())
    ran.is_projected()


def test_a_rank_that_sleeps_is_not_stuck(recording: Recording) -> None:
    ran = recording.of("slow.py", *LIVE)
    assert ran.code == 0, ran.output
    assert ran.diagnoses == []


@pytest.mark.parametrize(
    ("how", "place"),
    [
        ("lock", "outside.py:21"),
        pytest.param("queue", "outside.py:23 (in `get`, queue.py:", marks=pytest.mark.nightly),
        pytest.param("sleep", "outside.py:2", marks=pytest.mark.nightly),
        pytest.param("socket", "outside.py:33", marks=pytest.mark.nightly),
        pytest.param("thread", "outside.py:38 (in `join`, threading.py", marks=pytest.mark.nightly),
    ],
)
def test_a_fake_rank_that_waits_outside_of_any_call_ends_the_run(
    recording: Recording, tmp_path: Path, how: str, place: str
) -> None:
    ran = recording.of("outside.py", *FAKE, HOW=how, FLAG=str(tmp_path / "never"))
    assert ran.code == 3, ran.output
    assert ran.result["reason"].startswith(f"rank 1 is outside of any call, at {place}")
    assert ran.result["reason"].endswith("something may still come")
    assert "no rank moved any more for 20 s, and the run was ended" in ran.result["reason"]
    assert "rank 1 is outside of any call; its Python stack, innermost first" in ran.output
    # torch 2.15 gathers the sizes of objects by all_gather_single
    waits = r"ranks 0, 2 and 3: in all_gather(_single)? \(outside\.py:39 in all_gather_object\)"
    assert re.search(waits, ran.output)


def test_a_fake_run_at_its_limit_says_which_rank_is_outside_of_any_call(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    options = ["record", *FAKE, "-o", str(folder), "--max-seconds"]
    variables = {"HOW": "compute", "FLAG": str(tmp_path / "never")}
    command = ["--", str(SCRIPTS / "outside.py")]
    for seconds in ("3", "12", "120"):  # late enough for the ranks to come to where they stand
        done = CliRunner().invoke(cli, [*options, seconds, *command], env=variables)
        if folder.exists() and _all_in_a_call(folder, 4, but=1):
            break
    assert done.exit_code == 3, done.output
    assert "rank 1 is outside of any call, at outside.py:" in done.output
    assert "; the run was ended at --max-seconds" in done.output


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("raise", 1, "rank 1 raises ValueError: no data on rank 1 (ends.py:15)"),
        ("exit", 1, "rank 1 exits with code 3"),
        ("leave", 1, "rank 1 exits with code 7 after all_reduce (ends.py:12)"),
        ("kill", 1, "rank 1 dies by SIGKILL"),
        ("return", 1, "rank 1 never enters `all_reduce`, where ranks 0, 2 wait (ends.py:24"),
    ],
)
def test_a_rank_that_ends_is_told_before_what_the_others_waited_for(
    recording: Recording, how: str, code: int, words: str
) -> None:
    ran = recording.of("ends.py", "-n", "3", HOW=how)
    assert ran.code == code, ran.output
    assert words in ran.messages


def test_a_fake_rank_that_is_killed_for_memory_is_told_with_what_needs_less(
    recording: Recording, tmp_path: Path
) -> None:
    script = tmp_path / "large.py"
    script.write_text(
        "import os\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "dist.barrier()\nif dist.get_rank() == 1:\n    os.system(f'kill -9 {os.getpid()}')\n"
        "dist.barrier()\n",
        encoding="utf-8",
    )
    ran = recording.record(script, "--fake", "-n", "2")
    assert (ran.code, "rank 1 dies by SIGKILL" in ran.output) == (1, True), ran.output
    assert "every fake rank holds a whole model on this machine" in ran.output


def test_ranks_that_are_not_recorded_wait_where_the_recorded_one_does(
    recording: Recording, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nimport torch.distributed as dist\n"
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "dist.init_process_group('gloo')\nmodel = DDP(torch.nn.Linear(4, 4))\n"
        "for _ in range(3):\n    model(torch.ones(2, 4)).sum().backward()\n"
        "dist.destroy_process_group()\n",
        encoding="utf-8",
    )
    ran = recording.record(script, "--fake", "-n", "4", "--ranks", "0")
    assert ran.code == 3, ran.output
    assert "1 of 4 ranks is recorded: nothing is wrong with what it does" in ran.output


def test_a_long_run_of_fake_ranks_says_how_far_it_is(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PROGRESS_S", 0.3)
    script = tmp_path / "slow.py"
    script.write_text(
        "import time\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "time.sleep(2)\ndist.barrier()\n",
        encoding="utf-8",
    )
    ran = recording.record(script, "--fake", "-n", "2")
    assert ran.code == 0, ran.output
    assert "scenario: 0 of 2 fake ranks have ended after" in ran.errors
    quicker = "quicker with fewer ranks (`--ranks 0,1`) and tensors without memory (`--times-on`)"
    assert ran.errors.count("quicker with") == ran.errors.count(quicker) == 1


def test_a_right_program_that_ends_with_a_code_of_its_own_says_so(recording: Recording) -> None:
    ran = recording.of("ends.py", "-n", "3", HOW="all")
    words = "exit code 3 is the program's own, that of all 3 ranks, by `sys.exit` in ends.py:26"
    assert ran.code == 3
    assert ran.result["verdict"] == "PASSED"
    assert f"  {words}" in ran.output.splitlines()
    assert words in ran.result["notes"]


def test_who_interrupts_a_run_hears_what_is_recorded_so_far(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    running = subprocess.Popen(
        [
            *(
                sys.executable,
                "-m",
                "torch_scenarios.cli",
                "record",
                "-n",
                "2",
                "--keep",
                "-o",
                str(folder),
            ),
            *("--", str(SCRIPTS / "ring.py")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stderr is not None
        # it is stuck, and no one ends it
        until = time.monotonic() + 240
        while time.monotonic() < until and not _all_in_a_call(folder, 2):
            time.sleep(0.2)
        running.send_signal(signal.SIGTERM)
        output, errors = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 130, errors
    assert "2 ranks, interrupted" in output
    assert "  all 2 ranks: in send (ring.py:21)" in output
    assert (folder / "scenario.yaml").exists()


def _all_in_a_call(folder: Path, ranks: int, but: int | None = None) -> bool:
    if not (folder / f"rank-{ranks - 1:05d}.jsonl").exists():
        return False
    records = read(folder)
    calling = [each.calls and each.inside != (rank == but) for rank, each in records.items()]
    return len(records) == ranks and all(calling)


UNWAITED = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
box, works = torch.zeros(()), []
for step in range(4):
    works.append(dist.all_reduce(box, async_op=True))
    print(box.item())
dist.barrier()
dist.destroy_process_group()
"""


def test_calls_of_a_line_that_are_never_waited_for_are_one_finding(
    recording: Recording, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(UNWAITED, encoding="utf-8")
    ran = recording.record(script, "-n", "2", "--fake")
    assert ran.diagnoses == ["missing_wait"], ran.output
    assert "train.py:7" in ran.output
