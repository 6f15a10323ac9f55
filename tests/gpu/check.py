"""Ten minutes on a machine with GPUs: `python -m tests.gpu.check [-o FOLDER]`.

Whoever has GPUs runs it and sends the folder: `gpu-check.json` has every row, with the commands and
the end of what they printed; `gpu-check.md` is the same to read. Each question is a place where
this project and NCCL might not agree (docs/nccl.md, *What a desk check found*), in the order of
what an answer is worth. A question that takes too long is cut short, and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu import machine
from tests.simulated.surroundings import is_simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT = Path(__file__).parents[2]
GREEN, NO_MACHINE = 0, 3
#: lines that a row keeps of what its commands printed
KEPT = 60
SCENARIO = (sys.executable, "-m", "torch_scenarios.cli")
SUM = """\
world_size: 2
tensors: {x: "full(4, rank)"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: "full(4, 1)"}
  - sleep: 4s
"""
BENCH = """\
world_size: GPUS
parameters: {bytes: 1024}
tensors: {x: {shape: "bytes // 4", value: rank}}
steps:
  - all_reduce: {tensor: x}
"""
#: files whose verdict depends on when a communicator is connected, over simulated GPUs
CONNECTED = (
    "wrong/missing_participant/shows_at_the_wait.yaml",
    "wrong/group_order/crossed_broadcasts.yaml",
    "reported/two_groups_crossed_fixed.yaml",
    "faults/dies_with_work_under_way.yaml",
    "surprises/leaf_is_not_missed.yaml",
)
#: what the analysis may hold of the largest size on eight ranks, at most
MEASURED_BYTES = 16 << 30
#: ranks of the smallest scenario that communicates
RANKS = 2
HANG = "scenarios/wrong/circular_wait/both_receive_first.yaml"


@dataclass(kw_only=True)
class Row:
    """One question: its commands, how long they took, their verdicts, the end of what they said.

    `place` is the row of the desk check that it is about. `found` is what differs by command.
    """

    question: str
    place: str
    commands: list[str] = field(default_factory=list)
    seconds: float = 0.0
    codes: list[int | None] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    output: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """What one command came to; no code where it was cut short."""

    code: int | None
    seconds: float
    output: str


def run(row: Row, words: Sequence[str], around: Mapping[str, str], limit_s: float) -> RunEnd:
    """Run a command as part of a row, with its children, for at most so long."""
    if shutil.which(words[0]) is None:
        row.output.append(f"{words[0]} is not installed")
        return RunEnd(code=None, seconds=0.0, output="")
    said = {name: value for name, value in around.items() if os.environ.get(name) != value}
    row.commands.append(" ".join([*(f"{name}={value}" for name, value in said.items()), *words]))
    began_s = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            words, cwd=ROOT, env=around, stdout=output, stderr=output, start_new_session=True
        )
        code: int | None = None
        try:
            code = process.wait(max(1.0, limit_s))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read()
    seconds = time.monotonic() - began_s
    row.seconds += seconds
    row.codes.append(code)
    row.output += text.splitlines()[-KEPT:]
    return RunEnd(code=code, seconds=seconds, output=text)


class Check:
    """The questions, in the time that is left."""

    def __init__(self, folder: Path, minutes: float) -> None:
        """Begin the clock; files of the questions go into the folder."""
        self.folder = folder
        self.rows: list[Row] = []
        self.gpus = int(machine.machine()["gpus"])
        #: with one GPU all ranks share it
        self.nccl = ["--backend", "nccl", *(["--share-gpu"] if self.gpus < RANKS else [])]
        self._ends_s = time.monotonic() + 60 * minutes
        self._around = {**os.environ, "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN")}

    def ask(self, question: str, place: str) -> Row:
        """Begin a row."""
        row = Row(question=question, place=place)
        self.rows.append(row)
        say(f"{place or '-'}: {question}")
        return row

    def left_s(self, most_s: float) -> float:
        """Return how long the next command may take."""
        return min(most_s, self._ends_s - time.monotonic())

    def scenarios(
        self, row: Row, name: str, *words: str, most_s: float = 60.0, **more: str
    ) -> None:
        """Run scenarios on NCCL; the row keeps their verdicts under a name."""
        results = self.folder / "results.json"
        results.unlink(missing_ok=True)
        command = [*SCENARIO, "run", *self.nccl, "--no-cache", "--json", str(results)]
        ran = run(row, [*command, *words], {**self._around, **more}, self.left_s(most_s))
        row.found[name] = {"seconds": round(ran.seconds, 2), "cases": verdicts(results)}
        say(f"  {name}: {ran.seconds:.1f} s, {short(row.found[name]['cases'])}")

    def look_at_machine(self) -> None:
        """Keep versions, links between GPUs, and what the shell says."""
        row = self.ask("what is this machine?", "")
        row.found = dict(machine.machine())
        for words in (("nvidia-smi",), ("nvidia-smi", "topo", "-m")):
            run(row, words, self._around, self.left_s(20))

    def begin_cold_and_warm(self) -> None:
        """How long a first case takes, and whether its ranks have a context on the first GPU."""
        row = self.ask("a first case, and the next: how long, and contexts on which GPUs?", "N8")
        path = self.folder / "sum.yaml"
        path.write_text(SUM, encoding="utf-8")
        self.scenarios(row, "cold and warm", "--repeat", "2", str(path), most_s=90)
        results = [*SCENARIO, "run", *self.nccl, "--no-cache", "-q", str(path)]
        beside = subprocess.Popen(
            results, cwd=ROOT, env=self._around, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        time.sleep(self.left_s(6))
        asked = "--query-compute-apps=pid,gpu_uuid,used_memory"
        run(row, ["nvidia-smi", asked, "--format=csv"], self._around, self.left_s(10))
        beside.terminate()
        beside.wait()

    def connect_at_run_time(self) -> None:
        """What depends on when rings are connected."""
        row = self.ask("which verdicts depend on when rings are connected?", "N1")
        paths = [f"scenarios/{path}" for path in CONNECTED]
        for switch in ("0", "1"):
            name = f"NCCL_RUNTIME_CONNECT={switch}"
            self.scenarios(row, name, *paths, NCCL_RUNTIME_CONNECT=switch)

    def hang_five_times(self) -> None:
        """Whether processes go on after a hang, with kernels loaded early and late."""
        row = self.ask("five hangs in a row, then the files about NCCL", "N6, N7, N9")
        for loading in ("EAGER", "LAZY"):
            name = f"CUDA_MODULE_LOADING={loading}"
            self.scenarios(row, name, "--repeat", "5", HANG, CUDA_MODULE_LOADING=loading)
        self.scenarios(row, "scenarios/nccl", "scenarios/nccl", most_s=90)

    def see_one_gpu_each(self) -> None:
        """Tasks of Slurm that see one GPU each, and simulated hosts that see a part of all."""
        if self.gpus < RANKS:
            self.ask(
                "a GPU of its own for each task and host: not asked, this is one GPU", "N2, N3"
            )
            return
        row = self.ask("a task with a GPU of its own, as srun gives it", "N2")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        path = str(self.folder / "sum.yaml")
        words = [sys.executable, "-m", "torch_scenarios.worker", "--backend", "nccl", path]
        other = subprocess.Popen(
            words, cwd=ROOT, env=task(self._around, 1, port), stdout=subprocess.DEVNULL
        )
        run(row, words, task(self._around, 0, port), self.left_s(60))
        other.kill()
        other.wait()
        row = self.ask("two hosts of network namespaces, each with half of the GPUs", "N3")
        self.scenarios(row, "--netns 2", "--netns", "2", "--nproc-per-node", "1", path)

    def share_gpus(self) -> None:
        """Four ranks on one GPU."""
        row = self.ask("four ranks on one GPU", "N12")
        path = "scenarios/nccl/many_ranks_one_gpu.yaml"
        self.scenarios(row, "--share-gpu", "--share-gpu", path, CUDA_VISIBLE_DEVICES="0")

    def fill_cells(self) -> None:
        """Each operation in three dtypes."""
        row = self.ask("each operation in float32, bfloat16 and int32", "N16")
        words = [sys.executable, "-m", "tests.gpu", "--minutes", "4", "--only", "cells"]
        dtypes = ["--dtypes", "float32,bfloat16,int32", "--no-write"]
        run(row, [*words, *dtypes], self._around, self.left_s(240))

    def measure(self) -> None:
        """All_reduce by size, to compare with nccl-tests."""
        if self.gpus < RANKS:
            return  # on a GPU that ranks share, times mean nothing
        row = self.ask("all_reduce from 1 KiB to 64 MiB", "")
        path = self.folder / "bench.yaml"
        path.write_text(BENCH.replace("GPUS", str(min(self.gpus, 8))), encoding="utf-8")
        words = ["bench", "--backend", "nccl", "--sizes", "1K:64M:4", "--iters", "20"]
        limit = ["--limit", f"bytes={MEASURED_BYTES}"]
        run(row, [*SCENARIO, *words, *limit, str(path)], self._around, self.left_s(60))


def task(around: Mapping[str, str], rank: int, port: int) -> dict[str, str]:
    """Return the environment of one of two tasks of a step of Slurm, each with a GPU."""
    return {
        **around,
        **dict.fromkeys(("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"), "2"),
        **dict.fromkeys(("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_GPUS_PER_TASK"), "1"),
        **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID"), str(rank)),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "CUDA_VISIBLE_DEVICES": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def verdicts(results: Path) -> list[dict[str, Any]]:
    """Return what results say of each case: its verdict, why, and where ranks are blocked."""
    try:
        document = json.loads(results.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [
        {
            "case": each["case"],
            "verdict": each["verdict"],
            "reason": each["reason"] or "; ".join(one["message"] for one in each["problems"]),
            "blocked": (each["observed"] or {}).get("blocked", {}),
            "duration_s": each["duration_s"],
            "notes": each["notes"],
        }
        for each in document["results"]
    ]


def short(cases: Iterable[Mapping[str, Any]]) -> str:
    """Return the cases of one command in a line."""
    said = [f"{case['case']} {case['verdict']}" for case in cases]
    return ", ".join(said) or "no results"


def page(document: Mapping[str, Any]) -> str:
    """Return what was found as Markdown."""
    lines = ["# GPU check", ""]
    lines += [f"- {name}: {value}" for name, value in document["machine"].items()]
    for row in document["rows"]:
        head = f"{row['place']}: {row['question']}" if row["place"] else row["question"]
        lines += ["", f"## {head}", "", f"{row['seconds']:.1f} s", ""]
        lines += [f"    {command}  ({code})" for command, code in zip_codes(row)]
        for name, each in row["found"].items():
            if not isinstance(each, dict):
                continue
            lines += ["", f"{name}: {each['seconds']} s", ""]
            if each["cases"]:
                lines += ["| case | verdict | blocked | why |", "|---|---|---|---|"]
            for case in each["cases"]:
                at = ", ".join(f"{rank}: {where}" for rank, where in case["blocked"].items())
                why = case["reason"].replace("|", "/").replace("\n", " ")[:200]
                lines.append(f"| {case['case']} | {case['verdict']} | {at} | {why} |")
        if row["output"]:
            lines += ["", "```text", *row["output"], "```"]
    return "\n".join(lines) + "\n"


def zip_codes(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the commands of a row with what each came to."""
    codes = ("cut short" if code is None else f"exit code {code}" for code in row["codes"])
    return list(zip(row["commands"], codes, strict=True))


def why_not(here: Mapping[str, str]) -> str:
    """Return why nothing can be asked of a machine without NCCL or a GPU, and what can be done."""
    lack = "has no NCCL" if here["nccl"] == "none" else "sees no GPU"
    return (
        f"nothing was asked: torch {here['torch']} {lack}. With a CUDA build of torch "
        "`python -m tests.simulated --gpus 8 python -m tests.gpu.check` rehearses it without a GPU"
    )


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


#: in the order of what an answer is worth
QUESTIONS: tuple[Callable[[Check], None], ...] = (
    Check.look_at_machine,
    Check.begin_cold_and_warm,
    Check.connect_at_run_time,
    Check.hang_five_times,
    Check.see_one_gpu_each,
    Check.share_gpus,
    Check.fill_cells,
    Check.measure,
)


def answer(check: Check, question: Callable[[Check], None]) -> None:
    """Ask one question; what it raises goes into its row, and the next is asked."""
    before = len(check.rows)
    try:
        question(check)
    except Exception as error:  # noqa: BLE001 -- whoever has the machine has it for ten minutes
        row = check.rows[-1] if len(check.rows) > before else check.ask(question.__name__, "")
        row.output += "".join(traceback.format_exception(error)).splitlines()[-KEPT:]
        say(f"  this question could not be asked to its end: {error}")


def main(words: list[str] | None = None) -> int:
    """Ask all questions; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu-check"), metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=10.0, help="all of it, at most")
    chosen = parser.parse_args(words)
    here = machine.machine()
    if here["nccl"] == "none" or not int(here["gpus"]):
        say(why_not(here))
        return NO_MACHINE
    chosen.output.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python -m tests.gpu.check", *(sys.argv[1:] if words is None else words)])
    document = {"machine": here, "command": command, "simulated": is_simulated()}
    with tempfile.TemporaryDirectory() as folder:
        check = Check(Path(folder), chosen.minutes)
        for question in QUESTIONS:
            if check.left_s(1) > 0:
                answer(check, question)
            document["rows"] = [asdict(row) for row in check.rows]
            write(chosen.output, document)
    say(f"written: {chosen.output}/gpu-check.json, {chosen.output}/gpu-check.md")
    return GREEN


def write(folder: Path, document: Mapping[str, Any]) -> None:
    """Write what is known so far: the machine may be taken away."""
    text = json.dumps(document, indent=1) + "\n"
    (folder / "gpu-check.json").write_text(text, encoding="utf-8")
    (folder / "gpu-check.md").write_text(page(document), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
