"""What `scenario import` says of a record: where every rank is, then what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from handwritten_records import ALL_REDUCE, BARRIER, LARGER, recorded

from torch_scenarios.cli import cli
from torch_scenarios.record.analysis import judge_records
from torch_scenarios.record.format import read, set_earlier_aside, wait_in_backward
from torch_scenarios.vocabulary import DIAGNOSES

#: a kind of call, with which a thread says whether the main one waits
OTHER_KIND = ["k", 9, "barrier", 0, 0, 2, "py", [], [], {}, 0]


def said_of(folder: Path) -> list[str]:
    said = CliRunner().invoke(cli, ["import", str(folder)])
    assert said.exit_code == 1, said.output
    return said.output.splitlines()


def ended_by(folder: Path, rank: int, *last: Any) -> None:
    """Replace how a rank ends, and the end of its last wait."""
    path = folder / f"rank-{rank:05d}.jsonl"
    kept = path.read_text(encoding="utf-8").splitlines()[:-2]
    path.write_text("\n".join([*kept, *map(json.dumps, last)]) + "\n", encoding="utf-8")


def test_of_a_hang_where_the_ranks_are_comes_first_each_place_once(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE, BARRIER), *[(ALL_REDUCE, ALL_REDUCE)] * 3)
    for rank in range(4):
        ended_by(folder, rank)
    lines = said_of(folder)
    assert lines[1:4] == [
        "  rank 0: in barrier (train.py:13)",
        "  ranks 1, 2 and 3: in all_reduce (train.py:12)",
        f"  call_mismatch: {DIAGNOSES['call_mismatch']}",
    ]


def test_a_rank_that_handles_an_error_in_a_call_is_told_with_it(tmp_path: Path) -> None:
    words = "ValueError: no <torch.Group object at 0x7f12>"
    handled = {"handled": [words, [["/me/data.py", 3, "raise"]]]}
    late = (*BARRIER[:3], handled, 20)
    folder = recorded(tmp_path / "a", (ALL_REDUCE, late), *[(ALL_REDUCE, ALL_REDUCE)] * 2)
    for rank in range(3):
        ended_by(folder, rank)
    told = "while it handles ValueError: no Group (data.py:3)"
    assert said_of(folder)[1] == f"  rank 0: in barrier (train.py:20), {told}"


def test_ranks_that_raise_alike_are_one_line(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", *[(ALL_REDUCE,)] * 8)
    for rank in range(8):
        words = "ValueError: no data" if rank < 7 else "ValueError: no file"
        ended_by(folder, rank, ["raise", words, [["/me/data.py", 3, "raise"]], 99])
    assert said_of(folder)[1:3] == [
        "  ranks 0, 1, 2, 3, 4, 5 and 6 raise ValueError: no data (data.py:3)",
        "  rank 7 raises ValueError: no file (data.py:3)",
    ]


@pytest.mark.parametrize(
    ("mode", "words", "is_named"),
    [
        ("fake", "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", False),
        ("fake", "ValueError: no data", True),
        ("live", "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", True),
    ],
)
def test_what_a_fake_rank_raises_that_reads_an_object_out_of_another_call_is_left_out(
    tmp_path: Path, mode: str, words: str, *, is_named: bool
) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE,), (BARRIER,))
    for rank in range(2):
        path = folder / f"rank-{rank:05d}.jsonl"
        path.write_text(path.read_text("utf-8").replace('"live"', f'"{mode}"'), "utf-8")
    ended_by(folder, 1, ["raise", words, [["/me/data.py", 3, "raise"]], 99])
    output = "\n".join(said_of(folder))
    assert "call_mismatch" in output
    assert ("rank 1 raises" in output) is is_named


def test_ranks_that_are_at_one_place_are_one_line(tmp_path: Path) -> None:
    takes: list[tuple[Any, ...]] = [
        ("recv_", [], [["float32", [4], 64, 16]], {"peer": peer}, 14) for peer in (1, 0)
    ]
    folder = recorded(tmp_path / "a", (BARRIER, takes[0]), (BARRIER, takes[1]))
    for rank in range(2):
        ended_by(folder, rank)
    assert said_of(folder)[1] == "  all 2 ranks: in recv (train.py:14)"


def test_what_ranks_raise_because_another_is_gone_comes_last_without_addresses(
    tmp_path: Path,
) -> None:
    calls = (ALL_REDUCE, BARRIER)
    folder = recorded(tmp_path / "a", calls, calls, calls[:1])
    for rank in range(2):
        words = (
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
            f"Connection closed by peer [127.0.0.1]:{2249 + rank}. This is typically caused by a "
            "remote worker crashing. Check the logs"
        )
        ended_by(folder, rank, ["e", 1, 20, words], ["raise", words, [], 21])
    lines = said_of(folder)
    assert lines[1].startswith("  missing_participant: ")
    assert lines[-2:] == [
        "  ranks 0 and 1: raised in barrier (train.py:13): RuntimeError: Connection closed by peer",
        "  rank 2: ended after all_reduce (train.py:12)",
    ]


def test_shapes_of_a_list_that_are_alike_are_one(tmp_path: Path) -> None:
    def gather(rows: int) -> tuple[Any, ...]:
        outs = [["float32", [rows, 2], 96 + 64 * at, 8 * rows] for at in range(3)]
        return ("allgather_", [["float32", [rows, 2], 64, 8 * rows]], outs, {}, 15)

    lines = said_of(recorded(tmp_path / "a", (gather(3),), (gather(3),), (gather(2),)))
    assert any("pass tensor [3, 2], tensor_list 3 x [3, 2] (" in line for line in lines), lines


#: an all_reduce of other data at another line
ELSEWHERE: tuple[Any, ...] = ("allreduce_", [["int64", [1], 64, 8]], [], {"op": "sum"}, 18)


def result_of(folder: Path) -> dict[str, Any]:
    said = CliRunner().invoke(cli, ["import", str(folder), "--json", "-"])
    (result,) = json.loads(said.output)["results"]
    return dict(result)


def test_calls_of_different_lines_that_meet_are_one_finding_out_of_step(tmp_path: Path) -> None:
    stays = (ALL_REDUCE, ALL_REDUCE, ALL_REDUCE, ELSEWHERE)
    folder = recorded(tmp_path / "a", stays, (ALL_REDUCE, ELSEWHERE), stays)
    lines = said_of(folder)
    what = "the ranks are out of step: calls of different lines meet in one operation"
    parts = "rank 1 comes from train.py:18; ranks 0 and 2 come from train.py:12"
    assert [line.partition(" (")[0] for line in lines[1:8]] == [
        f"  dtype_mismatch: {what}",
        f"    the ranks part at operation 2: {parts}",
        "    done so far: all_reduce at train.py:12: ranks 0 and 2 3 times, rank 1 once",
        "    the members of world enter `all_reduce` from other lines",
        "    rank 1 passes int64, [1]",
        "    ranks 0, 2 pass float32, [4]",
        "    fix: find why rank 1 comes to train.py:18 when ranks 0 and 2 come to train.py:12",
    ]
    assert not any("missing_participant" in line or "the same dtype" in line for line in lines)
    result = result_of(folder)
    assert result["predicted"]["diagnoses"] == ["dtype_mismatch"]
    assert "train.py:18" in result["problems"][0]["message"]
    assert "train.py:12" in result["problems"][0]["message"]
    assert result["problems"][0]["hint"].startswith("find why rank 1 comes to train.py:18")


def test_two_ways_to_one_operation_are_in_step(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE, BARRIER), (ELSEWHERE, BARRIER))
    told = "\n".join(said_of(folder))
    assert "out of step" not in told
    assert "fix: give the tensor the same dtype on every rank" in told


def test_lines_that_met_before_are_in_step(tmp_path: Path) -> None:
    same = (*ALL_REDUCE[:4], 18)
    takes_turns = (ALL_REDUCE, same, ALL_REDUCE)
    other = (same, ALL_REDUCE, ELSEWHERE)
    told = "\n".join(said_of(recorded(tmp_path / "a", takes_turns, other)))
    assert "out of step" not in told
    assert "fix: give the tensor the same shape on every rank" in told


def test_a_call_in_an_except_is_told_with_its_error(tmp_path: Path) -> None:
    handled = {"op": "sum", "handled": ["ValueError: no data", [["/me/data.py", 3, "raise"]]]}
    late = (*ELSEWHERE[:3], handled, 18)
    folder = recorded(tmp_path / "a", (ALL_REDUCE,), (late,), (ALL_REDUCE,))
    told = "\n".join(said_of(folder))
    assert "out of step" in told
    assert "    fix: rank 1 handles ValueError: no data (data.py:3): in a `finally`" in told


def test_a_dead_rank_is_told_once_and_behind_what_is_wrong(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE,), (LARGER,), (ALL_REDUCE,))
    died(folder, 1, -6)
    lines = said_of(folder)
    assert lines[1].startswith("  shape_mismatch: ")
    assert [line for line in lines if "rank 1" in line and "passes" not in line] == [
        "  rank 1 dies by SIGABRT in all_reduce (train.py:12)"
    ]


def died(folder: Path, rank: int, code: int) -> None:
    """Let a rank end inside of its last call, with an exit code that its launcher saw."""
    path = folder / f"rank-{rank:05d}.jsonl"
    first, *kept = path.read_text(encoding="utf-8").splitlines()[:-4]
    first = json.dumps({**json.loads(first), "pid": 7})
    path.write_text("\n".join([first, *kept]) + "\n", encoding="utf-8")
    entries = [{"launch": 1, "pid": 6}, {"rank": rank, "pid": 7}]
    entries.append({"rank": rank, "pid": 7, "exit": code})
    text = "".join(f"{json.dumps(each)}\n" for each in entries)
    (folder / "launch.jsonl").write_text(text, encoding="utf-8")


def refused(folder: Path, text: str, *more: Any) -> str:
    """Return what is said of a rank 2 whose call torch refuses, as a line of its script has it."""
    words = "ValueError: Global rank 1 is not part of group <torch.ProcessGroup object at 0x7f12>"
    for rank in range(4):
        if rank == 2:
            ended_by(folder, rank, *more, ["raise", words, [["/me/train.py", 9, text]], 99])
        else:
            ended_by(folder, rank)
    return "\n".join(said_of(folder))


@pytest.mark.parametrize(
    ("words", "root"),
    [
        ("Argument ``scatter_list`` must NOT be specified on non-source ranks.", "src"),
        ("Argument ``scatter_list`` must be specified on source rank.", "src"),
        ("Argument ``gather_list`` must be specified on destination rank.", "dst"),
    ],
)
def test_a_list_that_one_rank_alone_passes_is_told(tmp_path: Path, words: str, root: str) -> None:
    folder = recorded(tmp_path / "a", *[(BARRIER,)] * 2)
    text = "dist.scatter(mine, parts, src=0)"
    ended_by(folder, 1, ["raise", f"ValueError: {words}", [["/me/train.py", 9, text]], 99])
    found = "\n".join(said_of(folder))
    assert f"on the rank that `{root}` names, and None on all others" in found


def test_a_rank_outside_of_its_group_is_told_with_the_one_that_is_meant(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", *[(BARRIER,)] * 4)
    said = refused(folder, "dist.recv(x, src=1, group=hi)", ["g", 1, "1", [2, 3], "", "gloo"])
    assert "rank 1 is not in [2, 3]: for its rank 1 write `src=3`, or `group_src=1`." in said


def test_a_rank_outside_of_one_of_several_groups_is_told_without_a_guess(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", *[(BARRIER,)] * 4)
    groups = [["g", 1, "1", [2, 3], "", "gloo"], ["g", 2, "2", [0, 2], "", "gloo"]]
    said = refused(folder, "dist.reduce(x, 1, group=hi)", *groups)
    assert "pass a rank that is in it, or its number in the group as `group_dst`." in said


def test_a_call_that_receives_from_one_is_told_by_its_src(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", *[(BARRIER,)] * 4)
    group = ["g", 1, "1", [2, 3], "", "gloo"]
    said = refused(folder, "dist.broadcast_object_list(plan, rank, group=hi)", group)
    assert "rank 1 is not in [2, 3]: for its rank 1 write `src=3`, or `group_src=1`." in said


def test_a_message_and_a_barrier_that_wait_for_each_other_are_mended_at_the_message(
    tmp_path: Path,
) -> None:
    sends: tuple[Any, ...] = ("send", [["float32", [4], 64, 16]], [], {"peer": 1, "tag": 0}, 14)
    folder = recorded(tmp_path / "a", (sends, BARRIER), (BARRIER,))
    for rank in range(2):
        ended_by(folder, rank)
    fix = "let rank 1 receive it from rank 0 before its `barrier`, or leave that message out."
    assert f"    fix: {fix}" in said_of(folder)


def test_two_threads_on_one_group_are_told_to_have_a_group_each(tmp_path: Path) -> None:
    calls = (ALL_REDUCE, ELSEWHERE)
    folder = recorded(tmp_path / "a", calls, calls[::-1])
    for rank in range(2):
        path = folder / f"rank-{rank:05d}.jsonl"
        lines = [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()]
        for line in lines[1:]:
            if line[0] == "c" and line[8][0][0] == "int64":
                line[6] = 2
        path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
    told = "\n".join(said_of(folder))
    assert "fix: two threads of rank 0 communicate in one group" in told
    assert "rank 0 passes" in told
    assert "rank 1 passes" in told


def test_a_message_to_no_rank_is_told_and_is_no_bad_record(tmp_path: Path) -> None:
    sends: tuple[Any, ...] = ("send", [["float32", [4], 64, 16]], [], {"peer": 2, "tag": 0}, 14)
    takes: tuple[Any, ...] = ("recv_", [], [["float32", [4], 64, 16]], {"peer": -1, "tag": 0}, 15)
    told = said_of(recorded(tmp_path / "a", (takes,), (sends,)))
    assert told[2:4] == [
        "    rank 0 receives from rank -1 (train.py:15), and the world has ranks 0 to 1",
        "    rank 1 sends to rank 2 (train.py:14), and the world has ranks 0 to 1",
    ]


def test_a_rank_that_a_signal_kills_outside_of_a_call_is_told_with_its_line(
    tmp_path: Path,
) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE,), (ALL_REDUCE,), (ALL_REDUCE,))
    path = folder / "rank-00001.jsonl"
    first, *kept = path.read_text(encoding="utf-8").splitlines()[:-1]
    kept[:0] = [json.dumps({**json.loads(first), "pid": 7})]
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    entries = [{"launch": 1}, {"rank": 1, "pid": 7}, {"rank": 1, "pid": 7, "exit": -11}]
    text = "".join(f"{json.dumps(each)}\n" for each in entries)
    (folder / "launch.jsonl").write_text(text, encoding="utf-8")
    printed = "Fatal Python error: Segmentation printed\n\nStack (most recent call first):\n"
    printed += (
        '  File "/me/data.py", line 7 in decode\n  File "/me/train.py", line 30 in <module>\n'
    )
    (folder / "rank-00001.stack").write_text(printed, encoding="utf-8")
    assert "dies by SIGSEGV at data.py:7 called from train.py:30" in "\n".join(said_of(folder))


def test_where_no_rank_came_to_communicate_what_one_raised_is_told(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", (), ())
    words = "RuntimeError: [gloo/transport/tcp/pair.cc:152] timed out connecting"
    ended_by(folder, 0, ["raise", words, [["/me/train.py", 3, "dist.init_process_group()"]], 99])
    said = CliRunner().invoke(cli, ["import", str(folder)])
    assert said.exit_code == 3, said.output
    assert "no rank communicated: nothing is recorded; rank 0 raised RuntimeError" in said.output
    assert "(train.py:3)" in said.output


@pytest.mark.parametrize(
    ("handed_us", "is_race"), [((5, 5), True), ((15, 25), False), ((15, 15), True)]
)
def test_what_threads_of_torch_call_at_random_in_a_group_is_one_finding_with_advice(
    tmp_path: Path, handed_us: tuple[int, int], *, is_race: bool
) -> None:
    """The main thread makes the second call after two threads of a checkpoint got theirs.

    Or each of them got it before the other one made its own.
    """
    half = (ALL_REDUCE[0], [["float16", [4], 64, 8]], *ALL_REDUCE[2:4], 15)
    planned = ((*ALL_REDUCE[:4], 14), (*ALL_REDUCE[:4], 15)), ((*LARGER[:4], 14), half)
    folder = recorded(tmp_path / "a", *((BARRIER, BARRIER, *order) for order in planned))
    for rank in range(2):
        path = folder / f"rank-{rank:05d}.jsonl"
        lines = [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()]
        lines[3:3] = [["b", 0, "init_process_group", 0, 0, {"thread": 1}], ["be", 0, 1, {}, None]]
        found: list[Any] = []
        for line in lines:
            if isinstance(line, list) and line[0] == "c" and line[1] > 1:
                _, number, operation, group, place, us, _, maker, *rest = line
                assert maker == "py"
                found.append(["j", number, handed_us[number - 2], 1])
                found.append(["k", number, operation, group, place, number, "to", *rest, 0])
                line = ["c", number, number, us]  # noqa: PLW2901 - this line in its newer form
            found.append(line)
        path.write_text("".join(f"{json.dumps(each)}\n" for each in found), encoding="utf-8")
    said = said_of(folder)
    advice = (
        "    fix: two threads of rank 0 communicate in one group, and which of them comes first "
    )
    assert any(each.startswith(advice) for each in said) is is_race, said
    assert sum("_mismatch: " in each for each in said) == (1 if is_race else 2), said


@pytest.mark.parametrize(
    ("handed", "races"),
    [
        ([], False),
        ([["j", 2, 5, 0]], True),
        ([["j", 2, 5, 1]], False),
        ([["j", 2, 15, 0]], False),
        ([["j", 2, 5, 0], OTHER_KIND, ["j", 2, 5, 1], "this"], False),
        ([["j", 2, 5, 1], "this", ["j", 2, 5, 0], OTHER_KIND], False),
        ([["j", 2, 5, 0], "this", ["j", 2, 5, 1], OTHER_KIND], True),
    ],
    ids=[
        "unknown",
        "goes on",
        "waits",
        "handed over after its own call",
        "went on before",
        "goes on later",
        "waits later",
    ],
)
def test_threads_of_one_group_race_where_the_main_one_goes_on(
    tmp_path: Path, handed: list[Any], *, races: bool
) -> None:
    folder = recorded(tmp_path / "a", (BARRIER, ALL_REDUCE, BARRIER), (BARRIER,) * 3)
    path = folder / "rank-00000.jsonl"
    lines = [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()]
    began = ["b", 0, "init_process_group", 0, 0, {"thread": 1}]
    lines[3:3] = [began, ["be", 0, 1, {}, None]]
    other = next(each for each in lines if isinstance(each, list) and each[:2] == ["c", 2])
    _, number, operation, group, place, us, _, *rest = other
    at = lines.index(other)
    this = [["k", 0, operation, group, place, 2, *rest, 0], ["c", number, 0, us]]
    handed = handed if "this" in handed else [*handed, "this"]
    lines[at : at + 1] = [line for each in handed for line in (this if each == "this" else [each])]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
    record = read(folder)[0]
    assert "several threads of a rank communicate in one group" in record.notes[0]
    assert record.racing == ("train.py:12 and train.py:13" if races else "")


@pytest.mark.parametrize("waits", [True, False])
def test_a_backward_pass_waits_for_a_rank_that_waits_for_a_group(
    tmp_path: Path, *, waits: bool
) -> None:
    """C++ waits at the end of the pass: until then it may begin what the other rank waits for."""
    folder = recorded(tmp_path / "a", (ALL_REDUCE, ALL_REDUCE), (ALL_REDUCE,))
    group = ["b", 1, "new_group", 0, 20, {"ranks": None, "local": False, "thread": 1}]
    for rank, last in ((0, []), (1, [group])):
        path = folder / f"rank-{rank:05d}.jsonl"
        lines = [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()][:-1]
        if rank == 0:
            del lines[-2:]  # it is begun by C++, and nothing is known of its end
            lines[-2][7] = "bw"
        text = "".join(f"{json.dumps(each)}\n" for each in (*lines, *last))
        path.write_text(text, encoding="utf-8")
    records = read(folder)
    assert records[0].inside
    assert not waits or [rank for rank, each in records.items() if wait_in_backward(each)] == [0]
    verdict = judge_records(records, folder / "scenario.yaml", script="train.py").result.verdict
    assert verdict.status == ("FAILED" if waits else "INCONCLUSIVE")
    assert [each.diagnosis for each in verdict.findings] == ["circular_wait"] * waits


def test_the_records_of_an_earlier_launch_are_set_aside(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE,), (ALL_REDUCE,), (ALL_REDUCE,))
    for rank, (launch, time) in enumerate([("b", 20.0), ("a", 10.0), ("b", 21.0)]):
        path = folder / f"rank-{rank:05d}.jsonl"
        head, *rest = path.read_text(encoding="utf-8").splitlines()
        about = json.loads(head) | {"launch": launch, "time": time}
        path.write_text("\n".join([json.dumps(about), *rest]) + "\n", encoding="utf-8")
    set_earlier_aside(folder)
    assert sorted(read(folder)) == [0, 2]
    assert (folder / "earlier-rank-00001.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "is_own"),
    [
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", True),
        ("RuntimeError: Timed out waiting 1800000ms for send operation", False),
    ],
)
def test_a_worker_that_is_killed_while_its_rank_is_in_a_call_is_why_it_raises(
    words: str, *, is_own: bool, tmp_path: Path
) -> None:
    """Torch's handler of the signal raises wherever the rank is; a backend's error is of a call."""
    folder = recorded(tmp_path / "a", (ALL_REDUCE,), (ALL_REDUCE,))
    lost = "RuntimeError: Connection closed by peer"
    for rank, each in enumerate((lost, words)):
        path = folder / f"rank-{rank:05d}.jsonl"
        *head, _, _, _, _ = path.read_text(encoding="utf-8").splitlines()
        raised = ["raise", each, [["/me/train.py", 12, "x"]], 9]
        tail = [json.dumps(line) for line in (["e", 0, 8, each], raised, ["end", 1, 10])]
        path.write_text("\n".join([*head, *tail]) + "\n", encoding="utf-8")
    shown = CliRunner().invoke(cli, ["import", str(folder)]).output
    assert (f"rank 1 raises {words} (train.py:12)" in shown) is is_own
