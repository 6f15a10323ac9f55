"""Files and keys that ranks share: what orders two deeds, and what is said where nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from torch_scenarios.record.evidence.files import (
    CallOrder,
    explain_file,
    explain_key,
    list_races,
)
from torch_scenarios.record.format import FileChange, RankRecord, RecordedCall, ScriptPlace
from torch_scenarios.verdict import Finding

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """\
if os.path.exists(path):
    dist.all_reduce(x)
save(path)
dist.barrier()
"""


def call(number: int, operation: str, line: int = 4, peer: int | None = None) -> RecordedCall:
    place = ScriptPlace(frames=(("train.py", line, ""),))
    return RecordedCall(
        number=number, operation=operation, group_name="0", group=(0, 1), place=place, peer=peer
    )


def record(rank: int, calls: list[RecordedCall], *changes: FileChange) -> RankRecord:
    found = RankRecord(rank=rank, world_size=2, items=[*calls], changes=[*changes])
    found.groups[0] = ("world", (0, 1), "")
    return found


def deed(before: int, what: str, line: int = 1, file: str = "train.py") -> FileChange:
    place = ScriptPlace(frames=((file, line, ""),))
    return FileChange(before=before, what=what, path="/x/index.pt", place=place)


def test_a_barrier_orders_what_lies_before_it_and_behind_it() -> None:
    records = {rank: record(rank, [call(1, "barrier")]) for rank in (0, 1)}
    order = CallOrder(records)
    assert order.is_before((0, 0), (1, 1))
    assert not order.is_before((0, 0), (1, 0))
    assert not order.is_before((0, 1), (1, 1))


def test_a_message_orders_one_way() -> None:
    records = {
        0: record(0, [call(1, "send", peer=1), call(2, "barrier")]),
        1: record(1, [call(1, "recv", peer=0), call(2, "barrier")]),
    }
    order = CallOrder(records)
    assert order.is_before((0, 0), (1, 1))
    assert not order.is_before((1, 0), (0, 0))
    assert order.is_before((1, 0), (0, 2))


@pytest.mark.parametrize(("at", "told"), [(0, "no collective lies between"), (1, "")])
def test_a_race_that_a_run_has_won_is_told_where_ranks_communicate_by_it(
    tmp_path: Path, at: int, told: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    file = str(script)
    calls = [
        replace(call(1, "barrier"), place=ScriptPlace(frames=((file, 4, ""),))),
        replace(call(2, "all_reduce"), place=ScriptPlace(frames=((file, 2, ""),))),
    ]
    records = {
        0: record(0, calls, deed(0, "writes", 3, file)),
        1: record(1, calls, deed(at, "misses", 1, file)),
    }
    (line,) = list_races(records, str(tmp_path)) or ("",)
    assert told in line
    assert bool(told) is bool(line)
    records[1].changes.append(deed(0, "awaits", 3, file))  # its store may order them
    assert list_races(records, str(tmp_path)) == []


def test_a_key_that_no_rank_sets_is_told_with_those_that_are_set() -> None:
    wants = FileChange(before=1, what="awaits", path="server", place=deed(0, "").place)
    sets = FileChange(before=0, what="sets", path="server/0", place=deed(0, "", 3).place)
    records = {0: record(0, [call(1, "barrier")], sets), 1: record(1, [call(1, "barrier")], wants)}
    words, fix = explain_key(records, [1], "")
    assert words == (
        "rank 1 waits for the key `server` of the store (train.py:1), which no rank sets; set are "
        "`server/0` by rank 0 (train.py:3)"
    )
    assert fix.startswith("fix: let a rank set `server`")
    assert (
        explain_key({**records, 0: record(0, [], wants, replace(sets, path="server"))}, [1], "")
        == []
    )


def test_a_race_among_many_files_and_calls_is_looked_for_in_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    file, reached = str(script), 0
    reach = CallOrder.reach  # takes a look at all calls

    def count(order: CallOrder, first: tuple[int, int]) -> dict[int, int]:
        nonlocal reached
        reached += 1
        return reach(order, first)

    monkeypatch.setattr(CallOrder, "reach", count)
    calls = [
        replace(call(number, "barrier"), place=ScriptPlace(frames=((file, 2, ""),)))
        for number in range(1, 101)
    ]
    shards = [f"/x/shard{number}.pt" for number in range(100)]
    records = {
        0: record(0, calls, *(replace(deed(0, "writes", 3, file), path=each) for each in shards)),
        1: record(1, calls, *(replace(deed(9, "finds", 1, file), path=each) for each in shards)),
    }
    assert list_races(records, str(tmp_path)) == []
    assert reached <= 2


@pytest.mark.parametrize(("key", "is_told"), [("vocab", True), ("other", False)])
def test_a_key_that_another_rank_sets_after_a_timeout_is_told_with_both_lines(
    key: str, *, is_told: bool
) -> None:
    wants = FileChange(before=0, what="awaits", path="vocab", place=deed(0, "", 9).place)
    sets = FileChange(before=0, what="sets", path=key, place=deed(0, "", 7).place)
    records = {0: record(0, [], sets), 1: record(1, [], wants)}
    records[1].error = "RuntimeError: Wait timeout"
    raised = Finding(witness="program", code="outcome_differs", prose="rank 1 raises", ranks=(1,))
    found = explain_file(raised, records, "")
    words = "rank 0 sets the key `vocab` (train.py:7) too late"
    assert (words in [each.words for each in found.notes]) is is_told
    assert ("a timeout longer than" in str(found.fix)) is is_told
