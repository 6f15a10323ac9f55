"""Scripts that hang or crash: what torch's own tools say of them, and what `scenario record` says.

    python -m benchmarks.hangs [NAME...]      # those of tests/record/scripts/hangs in SCRIPTS

A line of the table for each script. Under torchrun it runs without more and with
`TORCH_DISTRIBUTED_DEBUG=DETAIL`, each at most :data:`LIMIT_S`; before the first is ended its ranks
dump torch's flight recorder, which `torch.distributed.flight_recorder.fr_trace` then reads; at last
it runs under `scenario record`. *Cause* means that what is printed names a line of the script that
is marked with `# cause`: the line, or the value, that has to be changed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SCRIPTS = (
    *("uneven_batches", "suppressed_error", "rank_0_logs", "early_stopping", "late_rank"),
    *("crossed_groups", "ddp_other_width", "unused_branch", "leaves_without_data"),
    *("group_of_another", "mesh_dimensions_swapped", "middle_stage_is_left_out"),
)
FOLDER = Path(__file__).parent.parent / "tests" / "record" / "scripts" / "hangs"
#: seconds after which torchrun is ended, and before which its ranks dump the flight recorder
LIMIT_S, DUMP_S = 75.0, 25.0
HEAD = "| script | torchrun | DETAIL | flight recorder | `scenario record` |"

_MARK = re.compile(r"\s+# (?:cause|right:).*$")
#: what ends a rank's last words in the output of a run
_ERROR = re.compile(r"(?:\]:|^)\s*(?:\w+\.)*(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_OF_BACKEND = re.compile(r"\[/\S+\.cc:\d+\] |\s*\[[\d.]+\]:\d+")
_SIGNAL = re.compile(r"\b(SIG[A-Z]+)\b|Signal \d+ \((SIG[A-Z]+)\)")
#: at the start of each process: dump what the flight recorder has, before the run is ended
_DUMP = """\
import os, threading, time
def dump():
    import sys
    inner = sys.modules.get("torch._C._distributed_c10d")
    take = getattr(inner, "_dump_fr_trace", None) if inner else None
    if take is not None and "RANK" in os.environ:
        found, path = take(), f"{os.environ['DUMPS']}/rank_{os.environ['RANK']}"
        with open(path, "wb") as file:
            file.write(found)
timer = threading.Timer(float(os.environ["DUMP_AT"]) - time.time(), dump)
timer.daemon = True
timer.start()
"""


def main() -> None:
    """Print a line for each script."""
    print(HEAD, "|---" * 5 + "|", sep="\n", flush=True)
    for name in sys.argv[1:] or SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            print(line(FOLDER / f"{name}.py", Path(folder)), flush=True)


def line(path: Path, folder: Path) -> str:
    """Return what is said of a script as a line of the table."""
    text = path.read_text(encoding="utf-8")
    causes = [at for at, each in enumerate(text.splitlines(), 1) if "  # cause" in each]
    script = folder / path.name
    script.write_text("\n".join(_MARK.sub("", each) for each in text.splitlines()) + "\n")
    ranks = re.search(r"^Ranks: (\d+)$", text, re.MULTILINE)
    assert ranks is not None
    with ThreadPoolExecutor(2) as pool:
        ways = [pool.submit(run_torch, script, ranks[1], folder, level) for level in ("", "DETAIL")]
        plain, detail = (each.result() for each in ways)
    command = [str(Path(sys.executable).parent / "scenario"), "record", "-n", ranks[1]]
    command += ["-o", str(folder / "record"), "--", str(script)]
    recorded = run(command, folder, {}, 4 * LIMIT_S)
    cells = [
        cell(*plain, script.name, causes),
        cell(*detail, script.name, causes),
        cell(*read_dumps(folder), script.name, causes),
        cell(*recorded, script.name, causes),
    ]
    return f"| {path.stem.replace('_', ' ')} | " + " | ".join(cells) + " |"


def run_torch(script: Path, ranks: str, folder: Path, level: str) -> tuple[str, float]:
    """Return what a script prints under torchrun, and after how many seconds it ended."""
    start = folder / f"start{level}"
    start.mkdir()
    (start / "sitecustomize.py").write_text(_DUMP, encoding="utf-8")
    environment = {"TORCH_DISTRIBUTED_DEBUG": level, "DUMPS": str(folder / f"dumps{level}")}
    environment |= {"PYTHONPATH": str(start), "DUMP_AT": str(time.time() + LIMIT_S - DUMP_S)}
    environment |= {"TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1"}
    Path(environment["DUMPS"]).mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", ranks, str(script)]
    return run(command, folder, {k: v for k, v in environment.items() if v}, LIMIT_S)


def run(
    command: list[str], folder: Path, environment: dict[str, str], limit: float
) -> tuple[str, float]:
    """Return what a command prints, and after how many seconds it ended, or was ended."""
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit)
        return said, time.monotonic() - began
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # torchrun ends its ranks
        said, _ = process.communicate()
        return said.partition("Received Signals.SIGTERM")[0].partition("SignalException")[0], -1.0


def read_dumps(folder: Path) -> tuple[str, float]:
    """Return what torch's reader of flight recorders says of the dumps of the plain run."""
    dumps = folder / "dumps"
    if not any(dumps.iterdir()):
        return "", 0.0
    module = "torch.distributed.flight_recorder.fr_trace"
    return run([sys.executable, "-m", module, str(dumps), "-p", "rank_"], folder, {}, LIMIT_S)


def cell(said: str, seconds: float, script: str, causes: list[int]) -> str:
    """Return what a tool says as a cell of the table: the cause, or its words."""
    named = any(re.search(rf"{script}(?::|\", line ){at}\b", said) for at in causes)
    took = f"; {seconds:.1f} s" if seconds > 0 else ", and was ended"
    if named:
        return f"**cause**{took}"
    if not said and not seconds:
        return "no dump: it ended before"
    errors = _ERROR.findall(_OF_BACKEND.sub("", said))
    killed = _SIGNAL.search(said.replace("SIGTERM", ""))  # by which torchrun ends the others
    if not errors and killed is None:
        return "nothing" if seconds < 0 else f"no line of the cause{took}"
    kind, words = errors[0] if errors else (killed[1] or killed[2], "")  # type: ignore[index]
    text = f"`{kind}`" + (f": {words.partition('. ')[0][:80]}" if words else "")
    return text.replace("|", "/") + took


if __name__ == "__main__":
    main()
