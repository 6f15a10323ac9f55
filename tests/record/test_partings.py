"""Why ranks part, by records written by hand: what one line passes, what a loop counts, by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted
from torch_scenarios.record.evidence.divergence import Parting, find_difference
from torch_scenarios.record.evidence.reasons import (
    add_reasons,
    explain_idle,
    explain_message,
)
from torch_scenarios.record.evidence.reasons.loop import tell_progress
from torch_scenarios.record.format import (
    Decision,
    FileChange,
    RankRecord,
    RecordedCall,
    ScriptPlace,
    Tensor,
    Way,
)
from torch_scenarios.verdict import Finding

if TYPE_CHECKING:
    from pathlib import Path

SHARDS = """\
def main():
    texts = read(rank)
    vocab = build(texts)
    table = distribute_tensor(embed(vocab), mesh)


if __name__ == "__main__":
    main()
"""
STAGES = """\
def run(self, x):
    if self.rank == 0:
        return dist.send(self.layer(x), dst=1)
    x = torch.empty(4, self.hidden)
    dist.recv(x, src=0)
"""
EXCHANGE = """\
def exchange():
    if rank > 0:
        ops.append(P2POp(dist.isend, x, rank - 1))
    if rank <= world - 1:
        ops.append(P2POp(dist.irecv, y, (rank + 1) % world))
    batch_isend_irecv(ops)
"""
COUNTER = """\
def write(merge, rows):
    if not rows:
        return
    store.add("rows", 1)


write(merge, rows)
while store.add("rows", 0) < world:
    time.sleep(0.1)
"""


def script(folder: Path, text: str) -> str:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def place(file: str, *lines: int) -> ScriptPlace:
    return ScriptPlace(frames=tuple((file, line, "") for line in lines))


def call(operation: str, at: ScriptPlace, *, rows: int = 4, **more: object) -> RecordedCall:
    tensor = Tensor(dtype="float32", shape=(rows,), size=4 * rows)
    return RecordedCall(
        number=0,
        operation=operation,
        group=(0, 1),
        group_name="0",
        place=at,
        inputs=(tensor,),
        **more,  # type: ignore[arg-type]
    )


def record(rank: int, *items: RecordedCall, size: int = 2, **more: object) -> RankRecord:
    groups = {0: ("0", tuple(range(size)), "default_pg")}
    return RankRecord(rank=rank, world_size=size, items=[*items], groups=groups, **more)  # type: ignore[arg-type]


def finding(diagnosis: str, *ranks: int, words: str = "") -> Finding:
    notes = (Clause(words),) if words else ()
    return Finding(
        witness="program",
        code=diagnosis,
        diagnosis=diagnosis,
        prose="",
        notes=notes,
        ranks=ranks,
        name="outcome",
    )


def test_one_line_with_tensors_apart_is_told_with_what_they_are_made_of(tmp_path: Path) -> None:
    at = place(script(tmp_path, SHARDS), 4, 8)
    records = {0: record(0, call("scatter", at)), 1: record(1, call("scatter", at, rows=5))}
    assert find_difference(records) is not None
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    (why,) = (each.words for each in found.notes)
    assert "`vocab = build(texts)` (train.py:3), `texts = read(rank)` (train.py:2)" in why
    assert "__main__" not in why + str(found.fix)


def test_a_message_of_another_shape_is_told_with_the_buffer_at_both_ends(tmp_path: Path) -> None:
    file = script(tmp_path, STAGES)
    records = {
        0: record(0, call("send", place(file, 3), peer=1)),
        1: record(1, call("recv", place(file, 5), rows=3, peer=0)),
    }
    reason = explain_message(finding("shape_mismatch", 0, 1), records, str(tmp_path))
    assert reason is not None
    assert "rank 1 receives into `x`, which is set by `x = torch.empty(4, self.hidden)` " in (
        reason[0].words
    )
    assert "rank 0 sends `self.layer(x)`" in reason[0].words
    assert "(train.py:4) the shape of what is sent" in reason[1]


def test_a_message_that_no_rank_answers_has_the_if_around_the_line_that_makes_it(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, EXCHANGE)
    batch, made_at = place(file, 6), place(file, 5)
    records = {
        rank: record(
            rank,
            *[call("send", batch, peer=rank - 1, made_at=place(file, 3))] * bool(rank),
            call("recv", batch, peer=(rank + 1) % 3, made_at=made_at),
            size=3,
            ways=[Way(before=0, decision=_if(file, 2, "rank > 0"), yes=rank > 0, no=rank == 0)],
        )
        for rank in range(3)
    }
    words = "rank 2 receives from rank 0 in `batch_isend_irecv`, and rank 0 never sends"
    reason = explain_message(finding("unmatched_recv", 2, words=words), records, str(tmp_path))
    assert reason is not None
    assert "under `if rank <= world - 1` (train.py:4)" in reason[0].words
    assert "rank 0 does not go into `if rank > 0` (train.py:2)" in reason[0].words


def _if(file: str, line: int, test: str) -> Decision:
    return Decision(kind="if", file=file, line=line, text=f"if {test}")


def test_calls_of_a_line_are_counted_together_from_wherever_it_is_called(tmp_path: Path) -> None:
    file = script(tmp_path, EXCHANGE)
    once, again = call("all_reduce", place(file, 6, 9)), call("all_reduce", place(file, 6, 8))
    records = {0: record(0, once, again, once, again), 1: record(1, once, once)}
    parting = Parting(group="0", at=1, calls={0: again, 1: once})
    (told,) = tell_progress(Parted(parting, records, str(tmp_path)))
    assert told.words == "done so far: all_reduce at train.py:6: rank 0 4 times, rank 1 twice"


def test_a_rank_that_is_not_counted_in_the_store_is_named_with_its_way(tmp_path: Path) -> None:
    file = script(tmp_path, COUNTER)
    records = {
        rank: record(
            rank,
            size=3,
            ways=[Way(before=0, decision=_if(file, 2, "not rows"), yes=rank == 2, no=rank != 2)],
            changes=[
                FileChange(before=0, what="sets", path="rows", place=place(file, line))
                for line in ((4, 8) if rank == 0 else (4,) if rank == 1 else ())
            ],
        )
        for rank in range(3)
    }
    stack = f'Current thread 0x1 (most recent call first):\n  File "{file}", line 9 in <module>'
    lines = explain_idle(records, {0: stack}, {}, str(tmp_path))
    assert lines[0] == (
        "rank 2 has not set the key `rows` of the store, which ranks 0 and 1 set at train.py:4: "
        "rank 2 alone takes the `return`:3 under `if not rows` (train.py:2)"
    )
