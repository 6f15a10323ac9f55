"""Logs of nccl-tests, of every release and launcher, and what a topology makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from torch_scenarios.cli import cli
from torch_scenarios.cost.logs import Log, LogRow, merge, read_logs
from torch_scenarios.cost.topology import topology
from torch_scenarios.errors import ScenarioError

LOG = """
# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20
#  Rank  0 Group  0 Pid  12 on    host-1 device  0 [0x07] NVIDIA H100
#  Rank  1 Group  0 Pid  13 on    host-1 device  1 [0x0b] NVIDIA H100
#    size   count   type redop root   time  algbw  busbw #wrong   time  algbw  busbw #wrong
#     (B)  (elements)                 (us) (GB/s) (GB/s)          (us) (GB/s) (GB/s)
        8       2  float   sum   -1  25.20   0.00   0.00      0  24.11   0.00   0.00      0
  1048576  262144  float   sum   -1  43.70  23.99  23.99      0  43.10  24.33  24.33    N/A
# Out of bounds values : 0 OK
"""


def read(text: str) -> tuple[Log, ...]:
    return read_logs(Path("log.txt"), text.encode())


def rows(text: str, collective: str | None = None) -> dict[float, float]:
    (log,) = read(text)
    table = log.table(collective)
    return dict(zip(table.sizes, table.times, strict=True))


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments))
    return result.exit_code, result.output


def refused(text: str) -> str:
    with pytest.raises(ScenarioError) as raised:
        read(text)
    return raised.value.problems[0].message


def test_a_log_of_nccl_tests_makes_a_topology(tmp_path: Path) -> None:
    log_file = tmp_path / "all.txt"
    log_file.write_text("./build/all_reduce_perf -b 8\n" + LOG, encoding="utf-8")
    (found,) = read_logs(log_file, log_file.read_bytes())
    assert (found.ranks, found.collective) == (2, "all_reduce")
    assert (found.table().sizes, found.table().times) == ((8, 1048576), (24.11, 43.10))
    made = tmp_path / "made.yaml"
    code, output = invoke("topology", "fit", str(log_file), "-o", str(made), "--source", "here")
    assert (code, output) == (0, "")
    assert topology(str(made)).tables["all_reduce"][2].at(1048576) == pytest.approx(43.10)
    named = tmp_path / "named.yaml"
    named.write_text(
        "{topology: named, describes: a log, source: here, "
        "collectives: {model: table, all_reduce: {2: all.txt}}}\n"
    )
    assert topology(str(named)).tables["all_reduce"][2].at(8) == pytest.approx(24.11)


def test_a_log_tells_the_half_that_torch_calls() -> None:
    """Torch reduces in place, and gathers out of place."""
    assert rows(LOG, "all_reduce")[8] == 24.11
    assert rows(LOG, "all_gather")[8] == 25.20
    assert rows("# all_gather_perf\n" + LOG)[8] == 25.20
    assert rows("# all_reduce_perf\n" + LOG)[8] == 24.11


#: a header and a row of each layout that nccl-tests has had -> the times out of place and in place
LAYOUTS = {
    "2.19, with a time stamp (-S)": (
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp",
        "  64  16  float  sum  -1  24.29 0.00 0.00  0  23.50 0.00 0.00  0  2026-04-19 11:16:43",
        (24.29, 23.50),
    ),
    "2.19, with times of each iteration (-I 1)": (
        (
            "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv%"
            " time algbw busbw #wrong i_min i_max i_p99 i_cv%"
        ),
        "  64  16  float  sum  -1  24.29 0 0 0 20.0 30.0 29.0 4.5  23.50 0 0 0 19.0 31.0 30.5 4.1",
        (24.29, 23.50),
    ),
    "2.13, checked (-c 1)": (
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        "  64  16  float  none  -1  24.29 0.00 0.00  0  23.50 0.00 0.00  N/A",
        (24.29, 23.50),
    ),
    "2.13, unchecked (-c 0)": (
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        "  64  16  bfloat16  sum  -1  24.29 0.00 0.00  N/A  23.50 0.00 0.00  N/A",
        (24.29, 23.50),
    ),
    "in place not measured": (
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        "  64  16  float  sum  -1  24.29 0.00 0.00  0  N/A  N/A  N/A  N/A",
        (24.29, None),
    ),
    "one half alone": (
        "# size count type redop root time algbw busbw #wrong",
        "  64  16  float  sum  -1  24.29 0.00 0.00  0",
        (24.29, None),
    ),
    "torn after a half": (
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        "  64  16  float  sum  -1  24.29 0.00 0.00",
        (24.29, None),
    ),
    "wrong values in a half": (
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        "  64  16  float  sum  -1  24.29 0.00 0.00  7  23.50 0.00 0.00  0",
        (None, 23.50),
    ),
    "copies beside, a column more": (
        (
            "# size count type redop root time algbw busbw copybw #wrong"
            " time algbw busbw copybw #wrong"
        ),
        "  64  16  float  sum  -1  24.29 0.00 0.00 9.00 0  23.50 0.00 0.00 8.00 0",
        (24.29, 23.50),
    ),
    "2.0, all_reduce": (
        "# size count type redop time algbw busbw error time algbw busbw error",
        "  64  16  float  sum  35215 30.49 57.17 4e-07  35198 30.51 57.20 4e-07",
        (35215, 35198),
    ),
    "2.0, all_gather": (
        "# size count type time algbw busbw error time algbw busbw error",
        "  64  16  float  24.29 0.00 0.00 0e+00  23.50 0.00 0.00 0e+00",
        (24.29, 23.50),
    ),
    "2.0, broadcast": (
        "# size count type root time algbw busbw error time algbw busbw error",
        "  64  16  float  0  24.29 0.00 0.00 0e+00  23.50 0.00 0.00 0e+00",
        (24.29, 23.50),
    ),
    "2017, milliseconds": (
        "# bytes N type op time algbw busbw res time algbw busbw res",
        "  64  16  float  sum  0.024 0.00 0.00 0e+00  0.023 0.00 0.00 N/A",
        (24, 23),
    ),
    "a header without its `#`, type first of two words": (
        "  size   count   type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong",
        "  64  16  fp8_e4m3  sum  -1  24.29 0.00 0.00  0  23.50 0.00 0.00  0",
        (24.29, 23.50),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_row_is_read_by_its_header(layout: str) -> None:
    header, row, (out_of_place, in_place) = LAYOUTS[layout]
    (log,) = read(f"{header}\n#  (B) (elements)  (us) (GB/s) (GB/s)\n{row}\n")
    (found,) = log.rows
    assert found.size == 64
    assert found.out_of_place == pytest.approx(out_of_place)
    assert found.in_place == pytest.approx(in_place)


@pytest.mark.parametrize(
    "row",
    [
        "  64  16  float  sum  -1  24.29  0.00  0.00  0  23.50  0.00  0.00  N/A",
        "  64  16  float  sum  24.29  0.00  0.00  4e-07  23.50  0.00  0.00  4e-07",
        "  64  16  float  24.29  0.00  0.00  4e-07  23.50  0.00  0.00  4e-07",
        "  64  16  float  sum  -1  24.29  0.00  0.00  0  23.50  0.00  0.00  0  2026-04-19 11:16:43",
    ],
)
def test_a_row_without_a_header_is_read_by_its_length(row: str) -> None:
    (log,) = read(row)
    assert log.rows == (LogRow(64, 24.29, 23.50),)


PREFIXES = (
    "[0]",
    "[1,0]<stdout>:",
    "[1,0]<stdout>: ",
    " 0: ",
    "[0] ",
    "2024-07-19T08:11:02.123Z ",
    "nccl-test-worker-0 | ",
    "\x1b[32m",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_log_may_have_the_prefixes_of_a_launcher(prefix: str) -> None:
    (found,) = read("\n".join(prefix + line for line in LOG.splitlines()))
    assert (found.ranks, found.table().sizes) == (2, (8, 1048576))


def test_a_row_may_have_prefixes_inside() -> None:
    """As where a launcher writes each piece that a process prints (NVIDIA/nccl issue 1453)."""
    row = "[0]  1048576  262144  float  sum  -1[0]  1626.5  0.64  1.24  0[0]  2302.3  0.46  0.87  0"
    assert rows(row, "all_reduce") == {2**20: 2302.3}


def test_a_log_may_have_lost_its_comment_signs() -> None:
    assert rows(LOG.replace("#", " "), "all_gather")[8] == 25.20
    assert read(LOG.replace("# ", "  "))[0].ranks == 2


def test_what_stands_between_rows_is_passed_over() -> None:
    noise = """host-1:12:34 [0] NCCL INFO Channel 00/24 :    0   1
host-1:12:34 [0] NCCL INFO AllReduce: 8 Bytes -> Algo 1 proto 0 time 15.0
# 8 2 float sum -1 1.00 0 0 0 1.00 0 0 0
        0       0  float   sum   -1   0.33   0.00   0.00      0   0.36   0.00   0.00      0
"""
    lines = LOG.splitlines()
    assert rows("\n".join([*lines[:-2], noise, *lines[-2:]])) == rows(LOG)


SECOND = LOG.replace("25.20", "35.20").replace("24.11", "34.11")


def test_a_file_may_hold_several_tables() -> None:
    """Each has the program and the ranks that were named before it."""
    wide = "".join(
        line + "\n" + (line.replace("Rank  1", "Rank  3") + "\n" if "Rank  1" in line else "")
        for line in LOG.splitlines()
    )
    found = read(
        "# Collective test starting: all_reduce_perf\n" + LOG
        + "# Collective test concluded: all_reduce_perf\n"
        + "# Collective test starting: all_gather_perf\n" + SECOND
        + "$ mpirun -np 4 ./all_gather_perf_mpi -b 8\n" + wide
        + "# Collective test starting: sendrecv_perf\n" + LOG
    )  # fmt: skip
    assert [(log.collective, log.ranks, log.table().times[0]) for log in found] == [
        ("all_reduce", 2, 24.11),
        ("all_gather", 2, 35.20),
        ("all_gather", 4, 25.20),
        ("sendrecv_perf", 2, 25.20),
    ]


def test_of_what_was_measured_several_times_the_median_counts(tmp_path: Path) -> None:
    third = LOG.replace("24.11", "90.00")
    name = "# all_reduce_perf\n"
    assert rows(name + LOG + SECOND + third)[8] == 34.11
    files = [tmp_path / each for each in ("a.log", "b.log", "c.log")]
    for file, text in zip(files, (LOG, SECOND, third), strict=True):
        file.write_text(name + text, encoding="utf-8")
    code, output = invoke("topology", "fit", *map(str, files))
    assert code == 0
    made = yaml.safe_load(output)
    assert made["collectives"]["all_reduce"] == {2: {8: "34.11us", 2**20: "43.1us"}}
    assert made["source"] == ", ".join(map(str, files))


def test_ranks_are_those_of_a_group_and_may_be_left_out() -> None:
    devices = [f"#  Rank {rank:2} Group {rank % 2:2} Pid 12 on host device 0" for rank in range(8)]
    body = LOG.splitlines()[4:]
    assert read("\n".join([*devices, *body]))[0].ranks == 4
    one = [line.replace("Group  1", "Group  0") for line in devices]
    assert read("\n".join([one[0], "...", one[7], *body]))[0].ranks == 8
    alone = read("\n".join([devices[0], devices[0], *body]))[0]
    assert alone.ranks is None  # built without MPI: each process is rank 0 of one


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nothing at all", "has no row of nccl-tests"),
        ("", "has no row of nccl-tests"),
        (LOG.replace("time", "cputime"), "times of the host's calls"),
        ("{}", "neither an output of nccl-tests"),
        ('{"rows": []}', "neither an output of nccl-tests"),
        ('{"results": [{"size": "x"}], "args": ["all_reduce_perf"]}', "neither an output"),
        ('{"results": 3}', "neither an output of nccl-tests"),
        ("{", "neither an output of nccl-tests"),
    ],
)
def test_what_is_no_log_is_refused(text: str, told: str) -> None:
    assert told in refused(text)


NCCL_JSON: dict[str, Any] = {
    "version": 1,
    "args": ["/opt/nccl-tests/build/all_reduce_perf", "-J", "x.json"],
    "nccl_version": 23007,
    "config": {
        "nthreads": 1,
        "devices": [{"rank": rank, "group": 0, "pid": 1, "device": rank} for rank in range(8)],
    },
    "results": [
        {
            "size": size,
            "count": size // 4,
            "type": "float",
            "redop": "sum",
            "root": "-1",
            "out_of_place": {"time": 25.5, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0.0},
            "in_place": {"time": 24.5, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": None},
        }
        for size in (0, 8, 1024)
    ],
}


def test_the_json_of_nccl_tests_is_read() -> None:
    (found,) = read(json.dumps(NCCL_JSON))
    assert (found.ranks, found.collective) == (8, "all_reduce")
    assert found.rows == (LogRow(8, 25.5, 24.5), LogRow(1024, 25.5, 24.5))


def test_rows_of_bench_are_kept_apart_by_collective_and_ranks() -> None:
    one = {"case": "a", "ranks": 2, "bytes": 8.0, "min_us": 5.0, "collective": "all_gather_single"}
    whole = {"rows": [one, {**one, "ranks": 4}, {**one, "collective": None, "case": "ring"}]}
    found = read(json.dumps(whole))
    assert [(log.collective, log.ranks) for log in found] == [("all_gather", 2), ("all_gather", 4)]
    (ring,) = read(json.dumps({"rows": [{**one, "collective": None}]}))
    assert ring.collective is None


#: what `fit` is asked for, of a log of all_reduce on two ranks -> its exit code and words
ASKED: dict[tuple[str, ...], tuple[int, str]] = {
    (): (0, "all_reduce:\n    2:"),
    ("--ranks", "2"): (0, "all_reduce:\n    2:"),
    ("--ranks", "16"): (2, "is of 2 ranks, not 16"),
    ("--collective", "all_reduce"): (0, "all_reduce:\n    2:"),
    ("--collective", "all_gather"): (2, "is of all_reduce, and not of all_gather"),
    ("--collective", "all_sum"): (2, "no collective is called all_sum"),
}


@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
def test_fit_takes_what_it_is_asked_for(asked: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("# all_reduce_perf\n" + LOG, encoding="utf-8")
    code, output = invoke("topology", "fit", str(file), *asked)
    assert code == ASKED[asked][0]
    assert " ".join(ASKED[asked][1].split()) in " ".join(output.split())


def test_a_log_of_the_folder_at_hand_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused as a link out of its project."""
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_text("# all_reduce_perf\n" + LOG, encoding="utf-8")
    code, output = invoke("topology", "fit", "a.log", "-o", "mine.yaml")
    assert (code, output) == (0, "")
    assert topology("mine.yaml").tables["all_reduce"][2].at(8) == pytest.approx(24.11)
    code, output = invoke("topology", "fit", "b.log")
    assert (code, "'b.log' does not exist" in output) == (2, True)


def test_fit_says_what_a_log_does_not(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text(LOG, encoding="utf-8")
    code, output = invoke("topology", "fit", str(file))
    assert (code, "give --collective" in output) == (2, True)
    file.write_text("all_reduce_perf\n  64  16  float  sum  -1  24.29  0.00  0.00  0\n")
    code, output = invoke("topology", "fit", str(file))
    assert (code, "give --ranks" in output) == (2, True)
    file.write_text("sendrecv_perf\n" + LOG, encoding="utf-8")
    code, output = invoke("topology", "fit", str(file))
    assert (code, "no collective is called sendrecv_perf" in output) == (2, True)
    file.write_text("sendrecv_perf\n" + LOG + "all_gather_perf\n" + LOG, encoding="utf-8")
    code, output = invoke("topology", "fit", str(file))
    assert (code, "all_gather" in output, "sendrecv" in output) == (0, True, False)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("all_gather: {2: all.txt}", "is of all_reduce, and not of all_gather"),
        ("all_reduce: {8: all.txt}", "is of 2 ranks, not 8"),
        ("all_redcue: {2: all.txt}", "no collective is called all_redcue"),
        ("all_reduce: {two: all.txt}", "a table is for a number of ranks"),
        ("all_reduce: {2: none.txt}", "none.txt"),
        ("all_reduce: {2: {8: -3us}}", "is negative"),
        ("all_reduce: {2: {eight: 3us}}", "begins with a size"),
    ],
)
def test_a_topology_does_not_take_the_log_of_something_else(
    table: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "all.txt").write_text("# all_reduce_perf\n" + LOG, encoding="utf-8")
    file = tmp_path / "named.yaml"
    file.write_text(
        "{topology: named, describes: a log, source: here, "
        f"collectives: {{model: table, {table}}}}}\n"
    )
    with pytest.raises(ScenarioError) as raised:
        topology(str(file))
    assert told in raised.value.problems[0].message
    assert raised.value.problems[0].mark is not None


def test_logs_of_one_collective_and_as_many_ranks_are_one() -> None:
    row = LogRow(8, 1.0, 2.0)
    logs = [Log(rows=(row,), source=each, ranks=2, collective="all_reduce") for each in "aba"]
    (whole,) = merge(logs)
    assert (len(whole.rows), whole.source) == (3, "a, b")
