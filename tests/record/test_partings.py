"""Why ranks part, by records written by hand: what one line passes, what a loop counts, by whom."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from torch_scenarios.errors import AwaitedAct, Clause, Mark, Source
from torch_scenarios.record.evidence.choice import DecidedParting, Tally, list_values
from torch_scenarios.record.evidence.divergence import Parting, find_difference
from torch_scenarios.record.evidence.reasons import (
    add_reasons,
    explain_idle,
    explain_message,
    find_late_rank,
    list_own_ways,
)
from torch_scenarios.record.evidence.reasons.caller import find_caller
from torch_scenarios.record.evidence.reasons.earlier_condition import is_idle
from torch_scenarios.record.evidence.reasons.given import find_given_amount
from torch_scenarios.record.evidence.reasons.loop import tell_progress
from torch_scenarios.record.evidence.reasons.model_error import explain_error
from torch_scenarios.record.format import (
    CREATION,
    RENDEZVOUS,
    BlockingCall,
    BranchTaken,
    CaughtError,
    Decision,
    FileChange,
    LostThread,
    RankRecord,
    RecordedCall,
    ScriptPlace,
    Tensor,
)
from torch_scenarios.verdict import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence
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
BACKWARDS = """\
for tag, x in enumerate(rows):
    dist.send(x, dst=1, tag=tag)
while kept:
    tag, x = kept.pop()
    dist.recv(x, src=0, tag=tag)
"""
METRIC = """\
if not scores:
    return 0
value = torch.tensor([recall])
dist.all_reduce(value)
"""
GROUPS = """\
def in_order(self):
    return sorted(self.members, key=self.is_other)
for i in layout.in_order():
    groups[i] = dist.new_group(layout.members[i])
"""
EPOCHS = """\
for epoch in range(9):
    fit([draw() for _ in range(2)])
    if stopping.update(loss):
        break
dist.all_reduce(total)
"""
LOGS = """\
def __str__(self):
    dist.all_reduce(self.total)
def train():
    dist.all_reduce(gradient)
    log.debug("%s", meter)
def main():
    train()
main()
"""
PREPARES = """\
if rank == 0:
    tokenize()
dist.init_process_group("gloo", timeout=timedelta(seconds=4))
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
FIT = """\
def training_step(self, batch, i):
    if self.global_rank == 1 and i == 2:
        self.trainer.should_stop = True
for shard in shards[rank::2]:
    yield shard
trainer.fit(net)
dist.barrier()
"""
PREPARES = """\
def prepare():
    for word in words[rank]:
        if rank == 0:
            table[word] = make(word)
for shard in shards[rank::2]:
    yield shard
trainer.fit(net)
"""
TRIES = """\
def load(open_it):
    for attempt in range(5):
        try:
            return open_it()
        except OSError:
            print("once more")
def main():
    load(read)
    if rank == 0:
        dist.all_reduce(x)
    dist.barrier()
"""
BOTH_WAYS = """\
if rank == 0:
    for value, _ in zip(full, sharded):
        dist.broadcast(value, src=0)
else:
    for value in sharded:
        dist.broadcast(value, src=0)
"""
EXPERTS = """\
def forward(self, x):
    for name in sorted(counts, key=counts.get):
        x = x + getattr(self, name)(x)
for batch in loader:
    model(batch)
"""
SAVES = """\
for step in range(3):
    engine.backward(loss)
    if rank == 0:
        engine.save_checkpoint(where)
"""
METHOD = """\
@rank_zero_only
def report(metric):
    print(metric.compute())
report(metric)
step()
"""


SKIPS = """\
def rows(loader):
    it = iter(loader)
    while True:
        try:
            yield next(it)
        except StopIteration:
            return
        except ValueError:
            continue
for row in rows(loader):
    dist.all_reduce(row)
dist.barrier()
"""
ANEW = """\
def next_row(self):
    try:
        return next(self.it)
    except StopIteration:
        self.it = iter(self.loader)
    return next(self.it)
if rank == 0:
    dist.all_reduce(x)
dist.barrier()
"""
LOSSES = """\
def mean(losses):
    for name, value in losses.items():
        total = value.detach().clone()
        dist.all_reduce(total)
"""


PADS = """\
def gather(t):
    dist.all_reduce(t)


def predict(batches):
    for x in batches:
        gather(model(x))
predict(batches)
"""
COUNTS = """\
def total(self):
    t = torch.tensor(self.lengths).sum()
    return t
def reduce(self):
    value = self.total()
    dist.all_reduce(value)
"""
JOINED = """\
with Join([model]):
    for x in rows:
        model(x)
        dist.all_reduce(loss)
dist.barrier()
"""
TRACKS = """\
def reduce(tracker):
    for name in tracker:
        dist.all_reduce(tracker[name])
for step in range(3):
    dist.send(x, 1)
    reduce(tracker)
"""
STEPS = """\
def first(n):
    for i in range(n):
        dist.send(x, 1)
def last(n):
    for i in range(n):
        dist.recv(x, 0)
    dist.send(g, 0)
"""
ENGINE = """\
def step(engine, batch):
    dist.all_reduce(loss)
engine = Engine(step)
engine.run(loader)
dist.barrier()
"""
READS = """\
class Rows:
    def __next__(self):
        while True:
            line = next(self.lines)
            try:
                return json.loads(line)
            except ValueError:
                self.skipped += 1
while True:
    try:
        row = next(reader)
    except StopIteration:
        break
    dist.all_reduce(row)
dist.barrier()
"""
AGREES = """\
def stop(own):
    dist.all_reduce(own)
for epoch in range(9):
    fit(model)
    if stop(
        value,
    ):
        break
"""
STOPS = """\
for epoch in range(9):
    fit(model)
    value = evaluate(model)
    if value < target:
        break
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


def clause(words: str, mark: Mark | None = None) -> Clause:
    """Return a clause with what its words say of a rank that waits."""
    found = re.match(
        r"rank (\d+) (waits in|sends to|receives from)(?: rank (\d+) in)? `([^`]+)`", words
    )
    assert found is not None, words
    rank, does, peer, call = found.groups()
    act = {"sends to": "receive", "receives from": "send"}.get(does)
    if act is None:
        waits = re.search(r"for rank (\d+) to (\w+)", words)
        assert waits is not None, words
        peer, act = waits.groups()
    awaits = AwaitedAct(rank=int(rank), peer=int(peer), act=act, call=call)
    return Clause(words, mark, awaits=awaits)


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


SERVED = """\
if rank == 0:
    task = torch.tensor([given])
    dist.send(task, dst=1)
else:
    task = torch.empty(1)
    dist.recv(task, src=0)
"""


def test_a_tensor_of_a_message_is_set_before_its_line_also_outside_of_functions(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, SERVED)
    records = {
        0: record(0, call("send", place(file, 3), peer=1)),
        1: record(1, call("recv", place(file, 6), rows=3, peer=0)),
    }
    reason = explain_message(finding("dtype_mismatch", 0, 1), records, str(tmp_path))
    assert reason is not None
    assert "rank 0 sends `task`, which is set by `task = torch.tensor([given])`" in reason[0].words


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


def test_messages_that_are_taken_in_another_order_are_told_by_their_tags(tmp_path: Path) -> None:
    file = script(tmp_path, BACKWARDS)
    sends = [call("send", place(file, 2), peer=1, tag=tag) for tag in (0, 1)]
    takes = [call("recv", place(file, 5), peer=0, tag=tag) for tag in (1, 0)]
    found = finding("circular_wait", 0, 1)
    text = Source(path="scenario.yaml", text="")
    places = [f"train.py:{line}" for line in (2, 5)]
    marks = [Clause("", Mark(source=text, line=1, column=1, at=each)) for each in places]
    found = replace(found, notes=tuple(marks))
    reason = explain_message(found, {0: record(0, *sends), 1: record(1, *takes)}, str(tmp_path))
    assert reason is not None
    assert "rank 1 receives tag 1 from rank 0 (train.py:5), which sends tag 0 before it" in (
        reason[0].words
    )
    assert "`tag` is set by `tag, x = kept.pop()` (:4)" in reason[0].words


def test_dtypes_apart_are_told_with_the_line_that_makes_the_tensor(tmp_path: Path) -> None:
    file = script(tmp_path, METRIC)
    whole = call("all_reduce", place(file, 4))
    whole.inputs = (Tensor(dtype="int64", shape=(4,)),)
    records = {0: record(0, call("all_reduce", place(file, 4))), 1: record(1, whole)}
    (found,) = add_reasons([finding("dtype_mismatch", 0, 1)], records, str(tmp_path))
    assert "`value`, which is set by `value = torch.tensor([recall])` (train.py:3)" in (
        found.notes[0].words
    )
    assert "(`dtype=`)" in str(found.fix)


def groups_in_two_orders(at: ScriptPlace) -> dict[int, RankRecord]:
    """Two ranks that make the groups of one rank each, rank 1 in the opposite order."""
    return {
        rank: RankRecord(
            rank=rank,
            world_size=2,
            items=[
                BlockingCall(number=each, what=CREATION, place=at, ranks=(each ^ rank,))
                for each in (0, 1)
            ],
        )
        for rank in (0, 1)
    }


def test_groups_in_another_order_are_told_with_the_loop_and_what_orders_it(tmp_path: Path) -> None:
    at = place(script(tmp_path, GROUPS), 4)
    records = groups_in_two_orders(at)
    (found,) = add_reasons([finding("group_creation", 0, 1)], records, str(tmp_path))
    assert found.notes[0].words == (
        "`for i in layout.in_order()` (train.py:3) makes another group on some ranks: "
        "`return sorted(self.members, key=self.is_other)` (train.py:2)"
    )


@pytest.mark.parametrize(
    ("made", "lines"),
    [
        ("os.listdir(folder)", ("names.reverse()` (train.py:2)", "listdir(folder)` (train.py:1)")),
        ("list(metrics)", ("names.reverse()` (train.py:2)",)),
    ],
)
def test_a_list_that_is_reversed_is_told_with_what_gives_it_another_order(
    tmp_path: Path, made: str, lines: tuple[str, ...]
) -> None:
    text = f"names = {made}\nnames.reverse()\nfor name in names:\n    new_group(name)\n"
    at = place(script(tmp_path, text), 4)
    records = groups_in_two_orders(at)
    (found,) = add_reasons([finding("group_creation", 0, 1)], records, str(tmp_path))
    words = found.notes[0].words
    assert [line in words for line in lines] == [True] * len(lines)
    assert words.count("train.py:1)") == len(lines) - 1


def test_a_way_out_comes_before_the_turns_of_a_comprehension(tmp_path: Path) -> None:
    file = script(tmp_path, EPOCHS)
    drawn = Decision(kind="each", file=file, line=2, text="[draw() for _ in range(2)]")
    fit, total = call("all_reduce", place(file, 2)), call("all_reduce", place(file, 5), rows=1)
    records = {
        rank: record(
            rank,
            fit,
            fit if rank == 0 else total,
            ways=[
                BranchTaken(before=0, decision=drawn, yes=2, no=0),
                BranchTaken(
                    before=1, decision=_if(file, 3, "stopping.update(loss)"), yes=rank, no=1 - rank
                ),
                *[BranchTaken(before=1, decision=drawn, yes=2, no=0)] * (rank == 0),
            ],
        )
        for rank in (0, 1)
    }
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "rank 1 alone takes the `break`:4 under `if stopping.update(loss)`" in words
    assert "more turns" not in words


def test_what_one_rank_communicates_under_is_its_own_line_below_those_of_both(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, LOGS)
    texts = ["", *LOGS.splitlines()]
    frames = [
        tuple((file, line, texts[line]) for line in lines) for lines in ((4, 7, 8), (2, 5, 7, 8))
    ]
    records = {
        rank: record(
            rank,
            call("all_reduce", ScriptPlace(frames=frames[rank]), rows=4 - rank),
            ways=[BranchTaken(before=0, decision=_if(file, 9, "x"), yes=1, no=0)],
        )
        for rank in (0, 1)
    }
    parting = Parting(
        group="0", at=0, calls={rank: each.calls[0] for rank, each in records.items()}
    )
    reason = find_caller(DecidedParting(parting, records, str(tmp_path)))
    assert reason is not None
    assert (
        'rank 1 alone communicates under `log.debug("%s", meter)` (train.py:5)' in reason[0].words
    )


@pytest.mark.parametrize("mode", ["live", "fake"])
def test_a_rank_that_comes_to_init_after_the_timeout_of_another_is_late(
    tmp_path: Path, mode: str
) -> None:
    at = place(script(tmp_path, PREPARES), 3)
    records = {
        rank: RankRecord(
            rank=rank,
            world_size=2,
            about={"mode": mode, "time": 100.0 + rank * (mode == "live")},
            items=[
                BlockingCall(
                    number=0,
                    what=RENDEZVOUS,
                    place=at,
                    began_us=9_000_000 * (rank == 0),
                    failed="DistStoreError: wait timeout after 4000ms" if rank else None,
                )
            ],
            timeout_s=4.0,
        )
        for rank in (0, 1)
    }
    found = find_late_rank(records, str(tmp_path))
    assert found is not None
    assert found.prose == "rank 0 comes too late, and rank 1 gives up before"
    records[0].items[0] = replace(records[0].items[0], began_us=4_000_000)
    assert find_late_rank(records, str(tmp_path)) is None


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
            ways=[
                BranchTaken(before=0, decision=_if(file, 2, "rank > 0"), yes=rank > 0, no=rank == 0)
            ],
        )
        for rank in range(3)
    }
    words = "rank 2 receives from rank 0 in `batch_isend_irecv`, and rank 0 never sends"
    lonely = replace(finding("unmatched_recv", 2), notes=(clause(words),))
    reason = explain_message(lonely, records, str(tmp_path))
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
    (told,) = tell_progress(DecidedParting(parting, records, str(tmp_path)))
    assert told.words == "done so far: all_reduce at train.py:6: rank 0 4 times, rank 1 twice"


def test_a_rank_that_is_not_counted_in_the_store_is_named_with_its_way(tmp_path: Path) -> None:
    file = script(tmp_path, COUNTER)
    records = {
        rank: record(
            rank,
            size=3,
            ways=[
                BranchTaken(
                    before=0, decision=_if(file, 2, "not rows"), yes=rank == 2, no=rank != 2
                )
            ],
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


def ended_after(file: str, line: int, *ways: BranchTaken) -> dict[int, RankRecord]:
    """Two ranks in one line of a framework, of which rank 1 ends a call earlier."""
    fit = [call("all_reduce", place(file, line)) for _ in range(2)]
    own = [[replace(each, yes=yes, no=2 - yes) for each in ways] for yes in (2, 1)]
    return {0: record(0, *fit, ways=own[0]), 1: record(1, fit[0], ways=own[1])}


def test_a_rank_that_ends_early_in_a_framework_has_the_loop_that_it_takes_less_often(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, FIT)
    loop = Decision(kind="for", file=file, line=4, text="for shard in shards[rank::2]")
    records = ended_after(file, 6, BranchTaken(before=1, decision=loop))
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "`for shard in shards[rank::2]` (train.py:4) has more turns on some ranks" in words
    assert "rank 0 twice, rank 1 once" in words
    assert "the same number of turns of the loop at train.py:4" in str(found.fix)


VALIDATES = """\
class Validator:
    def __init__(self, loader):
        self.dims, self.loader = dims, loader

    def run(self, model):
        for tokens in self.loader:
            model(tokens)
        return mean(losses)


loader = DataLoader(
    Tokens(documents, dist.get_rank())
)
validator = Validator(loader)
validator.run(model)
for step in range(start, 6):
    train(model)
finish()
"""


@pytest.mark.parametrize(
    ("lines", "head", "told", "fix"),
    [
        ((7, 8), 6, "from `loader = DataLoader(Tokens(documents, dist.get_rank()))`", "give every"),
        ((17, 18), 16, "has more turns", "let `start, 6` be the same on all ranks"),
    ],
)
def test_what_a_loop_goes_through_is_followed_through_an_attribute(
    lines: tuple[int, int], head: int, told: str, fix: str, tmp_path: Path
) -> None:
    file = script(tmp_path, VALIDATES)
    text = VALIDATES.splitlines()[head - 1].strip(" :")
    turns = Decision(kind="for", file=file, line=head, text=text)
    records = {
        rank: record(
            rank,
            *(call("all_gather", place(file, lines[0])) for _ in range(count)),
            call("all_reduce", place(file, lines[1])),
            ways=[BranchTaken(before=0, decision=turns, yes=count, no=1)],
        )
        for rank, count in ((0, 2), (1, 1))
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert told in words
    assert fix in str(found.fix)


def test_a_rank_that_ends_early_in_a_framework_has_the_if_that_it_decided_otherwise(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, FIT)
    asks = _if(file, 2, "self.global_rank == 1")
    records = ended_after(
        file, 6, BranchTaken(before=0, decision=asks), BranchTaken(before=1, decision=asks)
    )
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    assert "`if self.global_rank == 1` (train.py:2)" in found.notes[0].words
    assert found.fix == "decide `if self.global_rank == 1` (train.py:2) the same way on all ranks."


DEALS_FILES = """\
class Rows:
    def __init__(self, files, rank):
        self.files = sorted(files)[rank::2]

    def __iter__(self):
        for file in self.files:
            for row in read_rows(file):
                yield row


Trainer(Rows(files, rank)).train()
"""


def test_an_inner_loop_has_what_the_loop_around_it_goes_through(tmp_path: Path) -> None:
    file = script(tmp_path, DEALS_FILES)
    files = Decision(kind="for", file=file, line=6, text="for file in self.files")
    rows = Decision(kind="for", file=file, line=7, text="for row in read_rows(file)")
    records = ended_after(file, 11, BranchTaken(before=1, decision=rows))
    for each in records.values():
        each.ways.append(BranchTaken(before=1, decision=files, yes=2, no=1))
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "`for row in read_rows(file)` (train.py:7) has more turns on some ranks" in words
    assert "and that from `self.files = sorted(files)[rank::2]` (train.py:3)" in words
    assert "let `self.files = sorted(files)[rank::2]` (train.py:3) give" in str(found.fix)


LOGS_RARE = """\
class Model:
    def validation_step(self, batch):
        if (batch == 1).any():
            recall = score(batch)
            self.log("val/recall", recall, sync_dist=True)


fit(Model())
"""


def test_what_some_ranks_log_is_told_where_a_framework_reduces_it_later(tmp_path: Path) -> None:
    file = script(tmp_path, LOGS_RARE)
    rare = _if(file, 3, "(batch == 1).any()")
    records = ended_after(file, 8, BranchTaken(before=0, decision=rare))
    records[1].ways = [BranchTaken(before=0, decision=rare, no=2)]
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    words = found.notes[0].words
    assert words.startswith("before that, `if (batch == 1).any()` (train.py:3) is true on rank 0")
    assert '`self.log("val/recall", recall, sync_dist=True)` (train.py:5)' in words
    assert "log the same names on every rank" in str(found.fix)


CHOOSES_RUN = """\
def choose(accelerator):
    run = [None]
    if accelerator.is_main_process:
        runs = listdir(root)
        if runs:
            return runs[-1]
        run[0] = make_name()
    broadcast(run)
    return run[0]


choose(accelerator)
fit(model)
"""


def test_a_way_out_that_others_never_come_to_has_the_if_around_it(tmp_path: Path) -> None:
    file = script(tmp_path, CHOOSES_RUN)
    is_main, has_runs = _if(file, 3, "accelerator.is_main_process"), _if(file, 5, "runs")
    records = {
        0: record(0, call("all_gather", place(file, 13))),
        1: record(1, call("broadcast", place(file, 8, 12))),
    }
    records[0].ways = [BranchTaken(before=0, decision=each, yes=1) for each in (is_main, has_runs)]
    records[1].ways = [BranchTaken(before=0, decision=is_main, no=1)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "rank 0 alone takes the `return`:6 under `if runs` (train.py:5)" in words
    assert (
        "rank 1 does not come there: it does not go into `if accelerator.is_main_process` "
        "(train.py:3)"
    ) in words
    assert "let every rank come to train.py:8" in str(found.fix)
    assert "put under `if accelerator.is_main_process` (train.py:3)" in str(found.fix)


DUE_BY_CLOCK = """\
class Metrics:
    def due(self, step):
        if perf_counter() - self.last > 0.5:
            self.last = perf_counter()
            return True
        return False


if metrics.due(step):
    all_reduce(loss)
all_gather(loss)
"""


def test_what_a_function_answers_by_is_told_with_the_if_inside_of_it(tmp_path: Path) -> None:
    file = script(tmp_path, DUE_BY_CLOCK)
    inner, outer = (
        _if(file, 3, "perf_counter() - self.last > 0.5"),
        _if(file, 9, "metrics.due(step)"),
    )
    records = {
        rank: record(
            rank,
            call(("all_reduce", "all_gather")[rank], place(file, 10 + rank)),
            ways=[BranchTaken(before=0, decision=e, yes=1 - rank, no=rank) for e in (inner, outer)],
        )
        for rank in (0, 1)
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "`if metrics.due(step)` (train.py:9)" in words
    assert (
        "`metrics.due` depends on `return True` (train.py:5), under "
        "`if perf_counter() - self.last > 0.5` (train.py:3), which rank 0 alone goes into"
    ) in words


CHOSEN_FOLDER = """\
node = get_rank()
{seed}
folder = {folder}
rows = torch.randn(4)
if {test}:
    all_reduce(rows)
all_gather(rows)
"""


@pytest.mark.parametrize(
    ("seed", "folder", "test", "told"),
    [
        (
            "",
            "shared if node == 0 else local",
            "folder.here",
            "`folder.here` comes from `folder = shared if",
        ),
        ("", "local", "rows.sum() > 0", "`rows` comes from `rows = torch.randn(4)` (train.py:4)"),
        ("manual_seed(0)", "local", "rows.sum() > 0", ""),
        ("set_seed(args.seed)", "local", "rows.sum() > 0", ""),
        (
            "manual_seed(node)",
            "local",
            "rows.sum() > 0",
            "`rows` comes from `rows = torch.randn(4)`",
        ),
    ],
)
def test_what_ranks_draw_alike_is_not_where_their_values_differ(
    seed: str, folder: str, test: str, told: str, tmp_path: Path
) -> None:
    file = script(tmp_path, CHOSEN_FOLDER.format(seed=seed, folder=folder, test=test))
    asks = _if(file, 5, test)
    records = {
        rank: record(
            rank,
            call(("all_reduce", "all_gather")[rank], place(file, 6 + rank)),
            ways=[BranchTaken(before=0, decision=asks, yes=1 - rank, no=rank)],
        )
        for rank in (0, 1)
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert told in words
    assert ("comes from `" in words) is bool(told)


GATHERS_ON_MAIN = """\
for x in val:
    if accelerator.is_main_process:
        gather(x)
train()
"""


@pytest.mark.parametrize("came", [False, True])
def test_without_notes_an_if_of_the_main_process_comes_before_the_loop_around_it(
    *, came: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, GATHERS_ON_MAIN)
    gathers = [call("all_gather", place(file, 3)) for _ in range(2 + came)]
    records = {
        0: record(0, *gathers[: 1 + came]),
        1: record(1, *gathers[2:], call("all_reduce", place(file, 4))),
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    told = "rank 0 alone goes into `if accelerator.is_main_process` (train.py:2)"
    assert (told in words) is not came
    assert ("more turns on some ranks" in words) is came


KEEPS_BEST = """\
class KeepBest:
    def __init__(self, loader):
        self.loader, self.best = loader, None

    def __call__(self, score):
        if self.best is not None and score <= self.best:
            return
        self.best = score
        evaluate(self.loader)


best = KeepBest(auto_dataloader(rows))
best(loss)
train()
"""


def test_of_what_is_set_together_each_name_comes_from_its_own_part(tmp_path: Path) -> None:
    file = script(tmp_path, KEEPS_BEST)
    asks = replace(
        _if(file, 6, "self.best is not None and score <= self.best"), names=("self.best",)
    )
    records = {
        0: record(0, call("all_reduce", place(file, 9, 13))),
        1: record(1, call("all_gather", place(file, 14))),
    }
    for rank, each in records.items():
        each.ways = [
            BranchTaken(before=0, decision=asks, yes=rank, no=1 - rank, values=(f"0.{rank}",))
        ]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "rank 1 alone takes the `return`:7" in words
    assert "comes from `" not in words


@pytest.mark.parametrize("line", [4, 1])
def test_a_call_at_which_ranks_part_is_not_one_that_was_not_waited_for(
    line: int, tmp_path: Path
) -> None:
    file = script(tmp_path, "x.backward()\nif rank == 0:\n    evaluate()\nbackward()\n")
    asks = _if(file, 2, "rank == 0")
    records = {
        0: record(0, call("all_gather", place(file, 3))),
        1: record(1, call("all_reduce", place(file, 4), maker="bw")),
    }
    for rank, each in records.items():
        each.ways = [BranchTaken(before=0, decision=asks, yes=1 - rank, no=rank)]
    at = f"train.py:{line}"
    mark = Mark(source=Source(path="scenario.yaml", text=""), line=1, column=1, at=at)
    unwaited = replace(finding("missing_wait", 1), notes=(Clause("starts it", mark),))
    found = add_reasons([finding("call_mismatch", 0, 1), unwaited], records, str(tmp_path))
    assert len(found) == (1 if line == 4 else 2)


def test_a_loop_of_the_preparation_is_not_the_one_that_leads_to_the_calls(tmp_path: Path) -> None:
    file = script(tmp_path, PREPARES)
    words, shards = (Decision(kind="for", file=file, line=at, text="for x in y") for at in (2, 5))
    ways = BranchTaken(before=0, decision=words), BranchTaken(before=0, decision=shards)
    records = ended_after(file, 7, *ways, BranchTaken(before=1, decision=shards))
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    assert "(train.py:5) has more turns on some ranks" in found.notes[0].words
    assert "train.py:5" in str(found.fix)


def test_what_ranks_only_prepare_otherwise_is_named_without_advice(tmp_path: Path) -> None:
    file = script(tmp_path, PREPARES)
    loop = Decision(kind="for", file=file, line=2, text="for word in words[rank]")
    asks = _if(file, 3, "rank == 0")
    records = ended_after(
        file, 7, BranchTaken(before=0, decision=loop), BranchTaken(before=0, decision=asks)
    )
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    assert found.notes[0].words == (
        "nothing near the calls differs; long before, ranks differ in "
        "`for word in words[rank]` (train.py:2) and `if rank == 0` (train.py:3)"
    )
    assert not found.fix


@pytest.mark.parametrize("at", [8, 10])
def test_an_error_after_which_a_rank_tries_again_is_not_why_it_goes_another_way(
    at: int, tmp_path: Path
) -> None:
    """Behind the loop an `if` around the call is told; within it, what is tried makes the call."""
    file = script(tmp_path, TRIES)
    fails = Decision(kind="except", file=file, line=5, text="except OSError")
    caught = CaughtError(before=0, decision=fails, words="OSError: busy", raised_at=place(file, 4))
    asks = _if(file, 9, "rank == 0")
    tried = place(file, 10, 4) if at == 8 else place(file, 10)
    records = {
        0: record(0, call("all_reduce", tried), ways=[BranchTaken(before=0, decision=asks, yes=1)]),
        1: record(
            1, call("barrier", place(file, 11)), ways=[BranchTaken(before=0, decision=asks, no=1)]
        ),
    }
    records[1].caught = [caught]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert ("rank 1 catches OSError: busy" in words) is (at == 8)
    assert ("`if rank == 0` (train.py:9)" in words) is (at == 10)


def _ends(file: str, line: int) -> Decision:
    return Decision(kind="except", file=file, line=line, text="except StopIteration")


def test_an_iterator_that_ends_earlier_is_uneven_and_no_error(tmp_path: Path) -> None:
    file = script(tmp_path, SKIPS)
    ends = CaughtError(before=0, decision=_ends(file, 6), words="StopIteration: ")
    records = {
        0: record(0, call("all_reduce", place(file, 11))),
        1: record(1, call("barrier", place(file, 12)), ways=[_way(file)], caught=[ends]),
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "the iterator of rank 1 has no more, which `except StopIteration` (train.py:6)" in words
    assert "`drop_last=True`" in str(found.fix)


def test_what_a_rank_leaves_out_of_an_iterator_is_why_it_ends_earlier(tmp_path: Path) -> None:
    file = script(tmp_path, SKIPS)
    skips = Decision(kind="except", file=file, line=8, text="except ValueError")
    caught = [
        CaughtError(before=0, decision=skips, words="ValueError: no row", raised_at=place(file, 5)),
        CaughtError(before=1, decision=_ends(file, 6), words="StopIteration: "),
    ]
    row = call("all_reduce", place(file, 11))
    records = {
        0: record(0, row, call("all_reduce", place(file, 11))),
        1: record(1, row, call("barrier", place(file, 12)), ways=[_way(file)], caught=caught),
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "rank 1 catches ValueError: no row (train.py:5) in `except ValueError`" in words
    assert "train.py:8 on one rank alone" in str(found.fix)


@pytest.mark.parametrize(("name", "is_told"), [("__next__", True), ("describe", False)])
def test_what_an_iterator_leaves_out_itself_is_why_it_ends_earlier(
    name: str, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, READS.replace("__next__", name))
    skips = Decision(kind="except", file=file, line=7, text="except ValueError")
    caught = [
        CaughtError(before=0, decision=skips, words="ValueError: no row", raised_at=place(file, 6)),
        CaughtError(before=1, decision=_ends(file, 12), words="StopIteration: "),
    ]
    row = call("all_reduce", place(file, 14))
    records = {
        0: record(0, row, row),
        1: record(1, row, call("barrier", place(file, 15)), ways=[_way(file)], caught=caught),
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert ("rank 1 catches ValueError: no row (train.py:6)" in words) is is_told
    assert ("`drop_last=True`" in str(found.fix)) is not is_told


def test_an_iterator_that_is_begun_once_more_is_no_reason(tmp_path: Path) -> None:
    file = script(tmp_path, ANEW)
    asks = _if(file, 7, "rank == 0")
    ends = CaughtError(before=0, decision=_ends(file, 4), words="StopIteration: ")
    yes, no = (
        BranchTaken(before=0, decision=asks, yes=1),
        BranchTaken(before=0, decision=asks, no=1),
    )
    records = {
        0: record(0, call("all_reduce", place(file, 8)), ways=[yes]),
        1: record(1, call("barrier", place(file, 9)), ways=[no], caught=[ends]),
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "StopIteration" not in words
    assert "`if rank == 0` (train.py:7)" in words


def _way(file: str) -> BranchTaken:
    turn = Decision(kind="while", file=file, line=3, text="while True")
    return BranchTaken(before=0, decision=turn, yes=1)


@pytest.mark.parametrize(
    ("head", "fix"),
    [
        ("name, value in losses.items()", "sorted"),
        ("at, value in enumerate(losses.values())", "sorted"),
        ("value in loader", "pad to it"),
    ],
)
def test_what_is_made_of_the_values_of_a_dict_comes_in_its_order(
    head: str, fix: str, tmp_path: Path
) -> None:
    """A loader's last batch is another matter: it is smaller, and in no other order."""
    at = place(script(tmp_path, LOSSES.replace("name, value in losses.items()", head)), 4)
    records = {0: record(0, call("all_reduce", at)), 1: record(1, call("all_reduce", at, rows=9))}
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    reaches = f"`for {head}` (train.py:2) reaches another tensor" in found.notes[0].words
    assert reaches is (fix == "sorted")
    assert fix in str(found.fix)


@pytest.mark.parametrize(("turns", "is_mixed"), [(("float32",), False), (("int64",), True)])
def test_a_tensor_of_one_shape_in_another_dtype_is_the_same_turn_of_its_loop(
    turns: tuple[str, ...], *, is_mixed: bool, tmp_path: Path
) -> None:
    """What ranks decided before it may be why they hold it otherwise."""
    loop = "for p in model.parameters():\n    dist.broadcast(p.data, src=0)\n"
    at = place(script(tmp_path, loop), 2)
    (tmp_path / "resume.py").write_text("if rank == 0:\n    model.load(path)\n")
    asked = _if(str(tmp_path / "resume.py"), 1, "rank == 0")
    half = call("broadcast", at)
    half.inputs = (Tensor(dtype="bfloat16", shape=(4,)),)
    more = [call("broadcast", at) for _ in turns]
    for each, dtype in zip(more, turns, strict=True):
        each.inputs = (Tensor(dtype=dtype, shape=(4,)),)
    records = {
        0: record(0, half, ways=[BranchTaken(before=0, decision=asked, yes=1)]),
        1: record(
            1, call("broadcast", at), *more, ways=[BranchTaken(before=0, decision=asked, no=1)]
        ),
    }
    (found,) = add_reasons([finding("dtype_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert ("reaches another tensor" in words) is is_mixed
    assert ("before that, `if rank == 0` (resume.py:1)" in words) is not is_mixed
    assert ("in one dtype on every rank" in str(found.fix)) is not is_mixed


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("if rank == 0:\n    rows.append(loss)\n    n += 1\nprint(rows, n)\n", True),
        ("if rank == 0:\n    self.rows.add(loss)\nlog.info(self.rows)\n", True),
        ("if rank == 0:\n    rows.append(loss)\nif rows:\n    dist.barrier()\n", False),
        ("if rank == 0:\n    self.hooks.append(1)\nrun(self.hooks)\n", False),
        ("if rank == 0:\n    self.trainer.left += 1\n", False),
        ("if rank == 0:\n    self.log('loss', loss, sync_dist=True)\n", False),
        ("if rank == 0:\n    logger.log('loss', loss)\n", True),
        ("if rank == 0:\n    self.trainer.should_stop = True\n", False),
    ],
)
def test_an_if_that_only_collects_what_is_told_decides_nothing(
    text: str, *, is_told: bool, tmp_path: Path
) -> None:
    assert is_idle(_if(script(tmp_path, text), 1, "rank == 0")) is is_told


def test_a_rank_that_alone_went_a_way_shows_what_it_read_there() -> None:
    skips = Tally(yes=1, no=3, values=("5.0",), led=("nan",), left=("5.0",))
    never, always = Tally(no=4), Tally(yes=4)
    assert skips.read_apart([never, skips]) == ("nan",)
    assert skips.read_apart([always, skips]) == ("5.0",)
    assert replace(skips, values=("6.0",)).read_apart([skips, skips]) == ("6.0",)


def test_a_shape_that_all_ranks_have_is_no_reason() -> None:
    asks = replace(_if("train.py", 1, "torch.isfinite(loss)"), names=("loss",))
    values = [("shape []",), ("shape []",), ("shape [2]",)]
    own = {rank: Tally(values=each) for rank, each in enumerate(values)}
    assert list_values(asks, {rank: own[rank] for rank in (0, 1)}) == ""
    assert list_values(asks, own).startswith("loss has shape [] on ranks 0 and 1; ")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("39.6109619140625", "0.7"), "loss = 39.61 on rank 0; loss = 0.7 on rank 1"),
        (("0.12345678", "0.12345679"), "loss = 0.12345678 on rank 0; loss = 0.12345679 on rank 1"),
    ],
)
def test_numbers_have_four_digits_where_they_still_differ(
    values: tuple[str, str], words: str
) -> None:
    asks = Decision(kind="if", file="train.py", line=1, text="if loss < 1", names=("loss",))
    tallies = {rank: Tally(yes=1, values=(each,)) for rank, each in enumerate(values)}
    assert list_values(asks, tallies) == words


def test_an_error_of_a_framework_has_the_if_since_the_last_call(tmp_path: Path) -> None:
    file = script(tmp_path, FIT)
    fit = call("all_reduce", place(file, 6))
    early = BranchTaken(before=0, decision=_if(file, 9, "rank == 0"), no=1)
    way = BranchTaken(before=1, decision=_if(file, 2, "self.global_rank == 1"), yes=1)
    records = {
        0: record(0, fit, ways=[replace(early, yes=1, no=0), replace(way, yes=0, no=1)]),
        1: record(1, fit, ways=[early, way], error="RuntimeError: None", raised_at=place(file, 6)),
    }
    raised = replace(finding("outcome_differs", 1), diagnosis=None)
    (found,) = add_reasons([raised], records, str(tmp_path))
    (why,) = found.notes
    assert why.words == (
        "before that, `if self.global_rank == 1` (train.py:2) is true on rank 1 alone"
    )


def test_both_ways_of_an_if_that_make_one_call_are_no_call_under_a_condition(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, BOTH_WAYS)
    asks = _if(file, 1, "rank == 0")
    records = {
        0: record(
            0, call("broadcast", place(file, 3)), ways=[BranchTaken(before=0, decision=asks, yes=1)]
        ),
        1: record(
            1,
            call("broadcast", place(file, 6), rows=5),
            ways=[BranchTaken(before=0, decision=asks, no=1)],
        ),
    }
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "both ways of `if rank == 0` (train.py:1) make the call, with other tensors" in words
    assert "train.py:3" in str(found.fix)
    assert "train.py:6" in str(found.fix)


@pytest.mark.parametrize(("lines", "loop"), [((3, 5), 2), ((5,), 0)])
def test_parts_of_a_model_in_another_order_have_the_loop_that_goes_through_them(
    lines: tuple[int, ...], loop: int, tmp_path: Path
) -> None:
    at = place(script(tmp_path, EXPERTS), *lines)
    records = {
        rank: record(
            rank,
            *[
                call("all_gather_single", at, carries=f"the unit {each}", maker="to")
                for each in own
            ],
            ways=[BranchTaken(before=0, decision=_if(at.frames[0][0], 9, "x"), yes=1)],
        )
        for rank, own in enumerate((["large", "small"], ["small", "large"]))
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert ("`for name in sorted(counts, key=counts.get)` (train.py:2)" in words) is bool(loop)
    assert "gradients" not in words


def test_parts_of_a_model_have_the_if_before_them_and_the_advice_to_decide_it_alike(
    tmp_path: Path,
) -> None:
    at = place(script(tmp_path, EXPERTS), 5)
    asks = _if(at.frames[0][0], 9, "rank % 2 == 0")
    records = {
        rank: record(
            rank,
            *[
                call("all_gather_single", at, carries=f"the unit {each}", maker="to")
                for each in own
            ],
            ways=[BranchTaken(before=0, decision=asks, yes=1 - rank, no=rank)],
        )
        for rank, own in enumerate((["large", "small"], ["small", "large"]))
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    assert "before that, `if rank % 2 == 0` (train.py:9)" in found.notes[1].words
    assert str(found.fix).startswith(
        "decide that the same way on all ranks, or let every rank pass"
    )


def test_ranks_of_two_groups_that_leave_out_a_condition_make_its_calls(tmp_path: Path) -> None:
    file = script(tmp_path, SAVES)
    asks = _if(file, 3, "rank == 0")
    wait, reduce = call("barrier", place(file, 4)), call("all_reduce", place(file, 2))
    reduce.group_name = "1"
    records = {
        0: record(0, reduce, wait, ways=[BranchTaken(before=1, decision=asks, yes=1)]),
        1: record(1, reduce, reduce, ways=[BranchTaken(before=1, decision=asks, no=1)]),
    }
    for each in records.values():
        each.groups[1] = ("1", (0, 1), "")
    (found,) = add_reasons([finding("group_order", 0, 1)], records, str(tmp_path))
    assert "let every rank of the group make the calls under `if rank == 0`" in str(found.fix)


@pytest.mark.parametrize("decides", [True, False])
def test_a_function_for_one_rank_is_told_with_its_decorator(
    tmp_path: Path, *, decides: bool
) -> None:
    file = script(tmp_path, METHOD)
    records = {
        0: record(0, call("all_gather", place(file, 3, 4))),
        1: record(1, call("all_reduce", place(file, 5))),
    }
    for each in records.values() if decides else ():
        each.ways = [BranchTaken(before=9, decision=_if(file, 9, "x"), yes=1)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "in `report`, which `@rank_zero_only` (train.py:1) runs on some ranks alone" in words


def test_a_metric_of_a_function_for_one_rank_has_its_decorator_where_others_never_come(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, METHOD)
    step = call("all_reduce", place(file, 5))
    records = {
        0: record(0, step, call("all_gather", place(file, 3, 4))),
        1: record(1, step, ways=[_way(file)]),
    }
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "rank 0 alone communicates in `report`, which `@rank_zero_only` (train.py:1)" in words


def test_a_loop_that_a_rank_comes_to_more_often_is_not_why_it_goes_on(tmp_path: Path) -> None:
    file = script(tmp_path, PREPARES)
    loop = Decision(kind="for", file=file, line=2, text="for word in words[rank]")
    turns = [(1, 4, 2), (0, 2, 1)]  # rank, turns, entries
    records = {
        0: record(0, call("all_gather", place(file, 9))),
        1: record(1, call("all_reduce", place(file, 7))),
    }
    for rank, yes, no in turns:
        records[rank].ways = [BranchTaken(before=0, decision=loop, yes=yes, no=no)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    assert "has more turns" not in " ".join(each.words for each in found.notes)


def test_a_tensor_that_a_function_is_given_is_told_by_its_caller(tmp_path: Path) -> None:
    at = place(script(tmp_path, PADS), 2, 7, 8)
    records = {0: record(0, call("all_reduce", at)), 1: record(1, call("all_reduce", at, rows=3))}
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    assert found.notes[0].words == "the tensor is `model(x)`, which is passed at train.py:7"
    assert "give `model(x)` (train.py:7) the same shape" in str(found.fix)


def test_a_tensor_that_a_function_gives_is_told_by_what_makes_it_there(tmp_path: Path) -> None:
    at = place(script(tmp_path, COUNTS), 6)
    whole = call("all_reduce", at)
    whole.inputs = (Tensor(dtype="int64", shape=(4,)),)
    records = {0: record(0, call("all_reduce", at)), 1: record(1, whole)}
    (found,) = add_reasons([finding("dtype_mismatch", 0, 1)], records, str(tmp_path))
    assert "`t = torch.tensor(self.lengths).sum()` (train.py:2)" in found.notes[0].words


def test_a_call_of_ones_own_under_join_is_taken_out_of_the_loop(tmp_path: Path) -> None:
    file = script(tmp_path, JOINED)
    lines = {0: (3, 4, 3, 4), 1: (3, 4, 5)}
    records = {
        rank: record(rank, *[call("all_reduce", place(file, line)) for line in own])
        for rank, own in lines.items()
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    assert "and not the `all_reduce` at train.py:4" in found.notes[-1].words
    assert "take the call at train.py:4 out of the loop at train.py:2" in str(found.fix)


def _waits(*words: str) -> Finding:
    return replace(finding("circular_wait", 0, 1), notes=tuple(map(clause, words)))


@pytest.mark.parametrize(("turns", "is_told"), [(0, True), (1, False)])
def test_a_collective_that_another_rank_went_past_is_told_with_its_loop(
    turns: int, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, TRACKS)
    loop = Decision(kind="for", file=file, line=2, text="for name in tracker")
    records = {
        0: record(0, call("send", place(file, 5), peer=1)),
        1: record(1, call("all_reduce", place(file, 3, 6))),
    }
    records[0].ways = [BranchTaken(before=0, decision=loop, yes=turns, no=1)]
    records[1].ways = [BranchTaken(before=0, decision=loop, yes=1, no=1)]
    waits = _waits(
        "rank 0 waits in `send to 1` for rank 1 to receive",
        "rank 1 waits in `all_reduce` for rank 0 to enter `all_reduce`",
    )
    reason = explain_message(waits, records, str(tmp_path))
    assert (reason is not None and "(train.py:2) has more turns" in reason[0].words) is is_told


@pytest.mark.parametrize("is_fake", [False, True])
@pytest.mark.parametrize(("turns", "is_told"), [(1, True), (2, False)])
def test_a_loop_of_messages_that_one_end_left_earlier_is_told_with_both(
    turns: int, *, is_told: bool, is_fake: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, STEPS)
    sends = Decision(kind="for", file=file, line=2, text="for i in range(n)")
    takes = Decision(kind="for", file=file, line=5, text="for i in range(n)")
    records = {
        0: record(0, *[call("send", place(file, 3), peer=1)] * 2),
        1: record(1, call("recv", place(file, 6), peer=0), call("send", place(file, 7), peer=0)),
    }
    if is_fake:  # such ranks go on behind where they would be stuck
        records[0].items.append(call("recv", place(file, 9), peer=1))
        records[1].items.append(call("recv", place(file, 6), peer=0))
    records[0].ways = [BranchTaken(before=0, decision=sends, yes=2, no=1)]
    records[1].ways = [BranchTaken(before=0, decision=takes, yes=turns, no=1)]
    waits = _waits(
        "rank 0 waits in `send to 1` for rank 1 to receive",
        "rank 1 waits in `send to 0` for rank 0 to receive",
    )
    reason = explain_message(waits, records, str(tmp_path))
    words = reason[0].words if reason is not None else ""
    assert ("rank 1 has taken its loop `for i in range(n)` (train.py:5)" in words) is is_told


@pytest.mark.parametrize(("turns", "is_told"), [(2, True), (1, False)])
def test_a_loop_of_one_message_more_is_told_with_that_of_the_rank_that_left(
    turns: int, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, STEPS)
    sends = Decision(kind="for", file=file, line=2, text="for x in inputs")
    takes = Decision(kind="for", file=file, line=5, text="for y in targets")
    records = {
        0: record(0, call("send", place(file, 3), peer=1)),
        1: record(1, *[call("recv", place(file, 6), peer=0) for _ in range(2)]),
    }
    records[0].ways = [BranchTaken(before=0, decision=sends, yes=1, no=1)]
    records[1].ways = [BranchTaken(before=0, decision=takes, yes=turns)]
    lacks = replace(
        finding("unmatched_recv", 0, 1),
        notes=(clause("rank 1 receives from rank 0 in `recv from 0`, and rank 0 never sends"),),
    )
    reason = explain_message(lacks, records, str(tmp_path))
    words = reason[0].words if reason is not None else ""
    assert ("rank 0 has taken its loop `for i in range(n)` (train.py:2) once" in words) is is_told
    assert ("rank 1 takes its own, `for i in range(n)` (train.py:5), twice" in words) is is_told


@pytest.mark.parametrize(
    ("values", "is_told"), [(("0.5", "0.25"), True), (("0.5", "0.5"), False), (("1", "2"), False)]
)
def test_a_way_out_by_a_number_of_each_rank_is_noted(
    values: tuple[str, str], *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, STOPS)
    asks = Decision(kind="if", file=file, line=4, text="if value < target", names=("value",))
    records = {
        rank: record(
            rank,
            call("all_reduce", place(file, 2)),
            ways=[BranchTaken(before=1, decision=asks, no=1, values=(value,))],
        )
        for rank, value in enumerate(values)
    }
    lines = list_own_ways(records, str(tmp_path))
    assert bool(lines) is is_told
    assert all("`if value < target` (train.py:4) leaves the loop at :1" in line for line in lines)


#: a gradient that is scaled on all ranks where one of them has a large one
CLIPS = """\
def largest(norm):
    dist.all_reduce(norm, op=dist.ReduceOp.MAX)
def scale(grads, norm, limit):
    if norm > limit:
        BODY
    dist.all_reduce(grads)
"""


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("largest(norm)", True),
        ("dist.broadcast(norm, 0)", True),
        ("print(norm)", False),
        ("norm.gather(0, at)", False),
    ],
)
def test_a_way_to_communication_by_a_number_of_each_rank_is_noted(
    body: str, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, CLIPS.replace("BODY", body))
    asks = Decision(kind="if", file=file, line=4, text="if norm > limit", names=("norm", "limit"))
    records = {
        rank: record(
            rank,
            call("all_reduce", place(file, 6)),
            ways=[BranchTaken(before=0, decision=asks, no=1, values=(value, "5.0"))],
        )
        for rank, value in enumerate(("0.5", "0.25"))
    }
    lines = list_own_ways(records, str(tmp_path))
    assert bool(lines) is is_told
    assert all("`if norm > limit` (train.py:4) leads to communication (:5)" in e for e in lines)
    assert not any("fake ranks cannot decide it" in line for line in lines)
    for each in records.values():
        each.about = {"mode": "fake"}
    told = list_own_ways(records, str(tmp_path))
    assert all("fake ranks cannot decide it" in line for line in told)


ENDS = """\
class Stop(Callback):
    def on_train_batch_end(self, trainer, outputs):
        small = outputs["loss"].item() < self.target
        if small and trainer.global_step > 4:
            trainer.should_stop = True
trainer.fit(model)
"""


@pytest.mark.parametrize(
    ("mode", "at", "is_told"), [("fake", 6, True), ("fake", 3, False), ("live", 6, False)]
)
def test_an_end_of_a_training_by_a_number_that_a_fake_rank_reads_is_noted(
    mode: str, at: int, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, ENDS)
    asks = _if(file, 4, "small and trainer.global_step > 4")
    records = {
        rank: record(
            rank,
            call("all_reduce", place(file, at)),
            ways=[BranchTaken(before=1, decision=asks, yes=1, values=("True", None))],
        )
        for rank in (0, 1)
    }
    for each in records.values():
        each.about = {"mode": mode}
    told = " ".join(list_own_ways(records, str(tmp_path)))
    assert ("ends the training (`trainer.should_stop = True`, :5)" in told) is is_told
    assert ('reads for itself (`small = outputs["loss"].item() < self.target`, :3)' in told) is (
        is_told
    )
    assert ("fake ranks cannot decide it" in told) is is_told


CLOCK = """import time
def is_over(begin):
    return time.monotonic() - begin > 5
def run(begin):
    while not is_over(begin):
        dist.all_reduce(x)
"""


@pytest.mark.parametrize(("lines", "is_told"), [((6,), True), ((6, 3), False), ((1,), False)])
def test_a_loop_that_ends_by_the_clock_of_each_rank_is_noted(
    lines: tuple[int, ...], *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, CLOCK)
    asks = Decision(kind="while", file=file, line=5, text="while not is_over(begin)")
    records = {
        rank: record(
            rank,
            *(call("all_reduce", place(file, line)) for line in lines),
            ways=[BranchTaken(before=1, decision=asks, yes=1)],
        )
        for rank in range(2)
    }
    told = " ".join(list_own_ways(records, str(tmp_path)))
    assert ("`while not is_over(begin)` (train.py:5) ends by each rank's own clock" in told) is (
        is_told
    )


LEADS_PAST = """import time
def keep(model, loss, best):
    now = time.time() - loss
    if ASKED:
        return False
    dist.all_reduce(model)
"""


@pytest.mark.parametrize(
    ("asked", "line", "words"),
    [
        ("loss > best", 6, "leads past communication (:6) by each rank's own number"),
        ("now > best", 6, "leads past communication (:6) by each rank's own clock"),
        ("loss > best", 1, ""),
    ],
)
def test_a_way_out_before_communication_is_noted_where_ranks_decide_it_by_numbers(
    asked: str, line: int, words: str, tmp_path: Path
) -> None:
    file = script(tmp_path, LEADS_PAST.replace("ASKED", asked))
    asks = Decision(kind="if", file=file, line=4, text=f"if {asked}", names=("loss",))
    records = {
        rank: record(
            rank,
            call("all_reduce", place(file, line)),
            ways=[BranchTaken(before=1, decision=asks, no=1, values=(f"0.{rank + 1}",))],
        )
        for rank in range(2)
    }
    lines = list_own_ways(records, str(tmp_path))
    assert len(lines) == bool(words)
    assert words in "".join(lines)


@pytest.mark.parametrize(("asked_at", "is_told"), [((2, 5), False), ((2, 4), True)])
def test_a_way_out_that_ranks_agree_on_in_the_condition_is_not_noted(
    asked_at: tuple[int, int], *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, AGREES)
    asks = Decision(kind="if", file=file, line=5, text="if stop(value)", names=("value",))
    records = {
        rank: record(
            rank,
            call("all_reduce", place(file, *asked_at)),
            ways=[BranchTaken(before=1, decision=asks, no=1, values=(value,))],
        )
        for rank, value in enumerate(("0.5", "0.25"))
    }
    assert bool(list_own_ways(records, str(tmp_path))) is is_told


@pytest.mark.parametrize(
    ("passes", "words"),
    [
        (
            1,
            "rank 1 has left `engine.run(loader)` (train.py:4), in which rank 0 still communicates",
        ),
        (0, "rank 0 alone communicates under `engine.run(loader)` (train.py:4)"),
    ],
)
def test_a_rank_that_leaves_a_framework_earlier_is_told_with_the_line(
    passes: int, words: str, tmp_path: Path
) -> None:
    file = script(tmp_path, ENGINE)
    at = ScriptPlace(frames=((file, 2, ""), (file, 4, "engine.run(loader)")))
    records = {
        0: record(0, *[call("all_reduce", at) for _ in range(passes + 1)]),
        1: record(1, *[call("all_reduce", at)] * passes, call("barrier", place(file, 5))),
    }
    for each in records.values():
        each.ways = [BranchTaken(before=9, decision=_if(file, 9, "x"), yes=1)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    assert words in " ".join(each.words for each in found.notes)
    assert ("agree first on what ends it there" in str(found.fix)) is bool(passes)


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("stopper = EarlyStopping(score, engine)", True),
        ("engine.should_stop = loss < best", True),
        ("engine.should_stop = False", False),
        ("engine.resume(state)", False),
    ],
)
def test_what_may_end_the_loop_of_a_framework_is_told(
    line: str, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, ENGINE.replace("engine = Engine(step)", f"engine = new(); {line}"))
    at = ScriptPlace(frames=((file, 2, ""), (file, 4, "engine.run(loader)")))
    records = {
        0: record(0, *[call("all_reduce", at) for _ in range(2)]),
        1: record(1, call("all_reduce", at), call("barrier", place(file, 5))),
    }
    for each in records.values():
        each.ways = [BranchTaken(before=9, decision=_if(file, 9, "x"), yes=1)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert ("what may end it: `engine = new(); " in told and "(train.py:3)" in told) is is_told


@pytest.mark.parametrize("died", ["SIGABRT", None])
def test_a_rank_that_dies_of_what_is_passed_has_not_taken_its_loop_less_often(
    died: str | None, tmp_path: Path
) -> None:
    file = script(tmp_path, EPOCHS.replace("fit([draw() for _ in range(2)])", "dist.all_reduce(x)"))
    records = {
        0: record(0, call("all_reduce", place(file, 2)), died=died),
        1: record(1, *[call("all_reduce", place(file, 2)) for _ in range(2)]),
    }
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert ("has more turns" in words) is (died is None)


HANDLERS = """\
if rank == 0:
    RunningAverage().attach(trainer, "loss")
trainer.run(loader)
barrier()
"""
IN_TURN = """\
def prepare():
    if rank == 0:
        save(rows)
    fabric.barrier()
with fabric.rank_zero_first():
    rows = prepare()
"""
SCHEDULED = """\
def run(schedule, x, y):
    if rank == 0:
        schedule.step(x)
    else:
        if not isfinite(y):
            return False
        schedule.step(target=y)
"""


@pytest.mark.parametrize(("text", "is_told"), [(HANDLERS, True), (PREPARES, False)])
def test_a_handler_that_some_ranks_register_long_before_is_why_their_calls_differ(
    text: str, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, text)
    asks = _if(file, 1 if is_told else 3, "rank == 0")
    records = {
        0: record(0, call("barrier", place(file, 3)), call("all_reduce", place(file, 3))),
        1: record(1, call("barrier", place(file, 3)), call("broadcast", place(file, 4))),
    }
    records[0].ways = [BranchTaken(before=0, decision=asks, yes=1)]
    records[1].ways = [BranchTaken(before=0, decision=asks, no=1)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert ("what is registered under it (train.py:2) is called later" in told) is is_told
    assert ("register at train.py:2 on every rank" in str(found.fix)) is is_told


@pytest.mark.parametrize("lines", [(5,), (3, 5)], ids=["of a framework", "of the script"])
@pytest.mark.parametrize("head", ["fabric.rank_zero_first()", "torch.no_grad()"])
def test_a_call_under_a_context_that_lets_ranks_in_one_by_one_is_told(
    head: str, lines: tuple[int, ...], tmp_path: Path
) -> None:
    file = script(tmp_path, IN_TURN.replace("fabric.rank_zero_first()", head))
    records = {
        0: record(0, call("barrier", place(file, 4, 6))),
        1: record(1, call("broadcast", place(file, *lines))),
    }
    asks = _if(file, 2, "rank == 0")
    records[0].ways = [BranchTaken(before=0, decision=asks, yes=1)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    is_told = "rank 1 waits there to be let in, and never comes to train.py:4" in told
    assert is_told is ("first" in head)
    fix = "take the call at train.py:6, which comes to train.py:4, out of"
    assert (fix in str(found.fix)) is is_told


@pytest.mark.parametrize(("taken", "is_told"), [(1, True), (0, False)])
def test_a_message_of_a_framework_that_a_rank_does_not_take_has_the_way_out(
    taken: int, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, SCHEDULED)
    asks = _if(file, 5, "not isfinite(y)")
    records = {
        0: record(0, *[call("send", place(file, 3), peer=1)] * 2),
        1: record(1, *[call("recv", place(file, 7), peer=0)]),
    }
    records[1].ways = [
        BranchTaken(before=0, decision=asks, no=1),
        BranchTaken(before=1, decision=asks, yes=taken),
    ]
    waits = replace(
        finding("unmatched_send", 0, 1),
        notes=(clause("rank 0 sends to rank 1 in `isend to 1`, and rank 1 never receives it"),),
    )
    reason = explain_message(waits, records, str(tmp_path))
    words = reason[0].words if reason is not None else ""
    assert ("rank 1 alone takes the `return`:6 under" in words) is is_told


TRAINS = """\
def loader(rank):
    return DataLoader(rows[rank], batch_size=4)
trainer = Trainer(loader)
trainer.train()
"""


def apart_in_framework(file: str, line: int) -> dict[int, RankRecord]:
    """Return two ranks that part in what a line calls, in two lines of a framework."""
    one, other = (replace(place(file, line), via=f"framework.py:{inner}") for inner in (7, 9))
    return {
        0: record(0, call("all_reduce", one), call("all_reduce", one)),
        1: record(1, call("all_reduce", one), call("all_gather", other)),
    }


@pytest.mark.parametrize("has_ways", [True, False])
@pytest.mark.parametrize(("batches", "is_told"), [((7, 5), True), ((5, 5), False)])
def test_a_loader_of_more_batches_on_one_rank_is_why_a_framework_goes_on_there(
    batches: tuple[int, int], *, is_told: bool, has_ways: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, TRAINS)
    records = apart_in_framework(file, 4)
    for rank, each in records.items():
        made = FileChange(before=0, what="loads", path=str(batches[rank]), place=place(file, 2, 4))
        each.changes = [made]
        each.ways = [BranchTaken(before=0, decision=_if(file, 9, "x"), yes=1)] * has_ways
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    words = "the loader made at train.py:2 has 7 batches on rank 0, 5 batches on rank 1"
    assert (words in told) is is_told
    assert ("give the loader at train.py:2 as many batches" in str(found.fix)) is is_told


@pytest.mark.parametrize(
    ("batches", "is_told"), [(((16, 1), (16,)), False), (((16, 1), (15,)), True)]
)
def test_loaders_of_one_line_are_compared_in_the_order_in_which_they_are_made(
    batches: tuple[tuple[int, ...], ...], *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, TRAINS)
    records = apart_in_framework(file, 4)
    for rank, each in records.items():
        each.changes += [
            FileChange(before=0, what="loads", path=str(count), place=place(file, 4))
            for count in batches[rank]
        ]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    assert ("has 16 batches on rank 0, 15 batches on rank 1" in str(found.notes)) is is_told


FILLS = """\
class Batches(Sampler):
    def __iter__(self):
        for at in self.mine:
            if self.used + lengths[at] > self.budget:
                yield self.batch
def loader(rows):
    batches = Batches(rows, 12)
    return DataLoader(rows, batch_sampler=batches)
trainer = Trainer(loader)
trainer.train()
"""


@pytest.mark.parametrize(
    ("line", "often", "is_told"),
    [(4, ((1, 4), (4, 1)), True), (4, ((2, 2), (2, 2)), False), (6, ((1, 4), (4, 1)), False)],
)
def test_a_loader_of_more_batches_is_told_with_the_if_of_its_sampler(
    line: int, often: tuple[tuple[int, int], ...], *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, FILLS)
    records = apart_in_framework(file, 10)
    for rank, each in records.items():
        (yes, no), count = often[rank], (2, 5)[rank]
        made = FileChange(before=0, what="loads", path=str(count), place=place(file, 8, 10))
        each.changes = [made]
        each.ways = [BranchTaken(before=0, decision=_if(file, line, "full"), yes=yes, no=no)]
        each.ways += [BranchTaken(before=1, decision=_if(file, 9, "True"), yes=1)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    words = "5 batches on rank 1: `if full` (train.py:4) is not true as often on all ranks: rank 0"
    assert (words in told) is is_told, told


FETCHES = """\
def loader():
    node = os.environ["LOCAL_RANK"]
    rows = Files(node)
    return DataLoader(rows, batch_size=2)
trainer = Trainer(loader)
trainer.train()
"""


def test_a_loader_that_the_script_makes_comes_before_what_a_framework_makes_of_it(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, FETCHES)
    records = apart_in_framework(file, 6)
    for rank, each in records.items():
        each.changes = [
            FileChange(before=0, what="loads", path=str(batches[rank]), place=place(file, *at))
            for batches, at in (((8, 6), (4, 6)), ((4, 3), (6,)))
        ]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert "the loader made at train.py:4 has 8 batches on rank 0, 6 batches on rank 1" in told
    assert 'and that from `node = os.environ["LOCAL_RANK"]` (train.py:2)' in told


OPTIONS = """\
own = {"rows": read(rank)}
kit = Kit(**own)
trainer = Trainer(kit, steps(rank))
trainer.train()
"""


@pytest.mark.parametrize(
    ("line", "text", "given", "told"),
    [
        (3, "steps(rank)", ("4", "2"), "`steps(rank)`, passed to `Kit` (train.py:3), is 4 on rank"),
        (3, "local_rank", ("4", "2"), ""),
        (3, "place", ("'cpu:0'", "'cpu:1'"), ""),
        (3, "name=name(rank)", ("'sgd'", "'adam'"), "`name=name(rank)` (train.py:3) is 'sgd' on"),
        (
            2,
            "**own",
            ("**|steps: 4|dir: a", "**|dir: b|lr.first: 1"),
            "(train.py:2), differs: `steps` is 4 on rank 0, not given on rank 1; `lr.first` is not",
        ),
        (2, "**own", ("**|seed: 4", "**|seed: 7"), ""),
        (2, "disable_tqdm=other", ("True", "False"), ""),
    ],
)
def test_what_a_framework_is_given_otherwise_is_told_by_its_key(
    line: int, text: str, given: tuple[str, str], told: str, tmp_path: Path
) -> None:
    file = script(tmp_path, OPTIONS)
    at = replace(place(file, 4), via="kit.py:9")
    decision = Decision(kind="given", file=file, line=line, text=text, names=("Kit",))
    values = [tuple(each.split("|")) for each in given]
    records = {
        rank: record(
            rank,
            *[call("all_reduce", at) for _ in range(2 - rank)],
            ways=[BranchTaken(before=0, decision=decision, yes=1, values=values[rank])],
        )
        for rank in (0, 1)
    }
    (found,) = add_reasons([finding("missing_participant", 0)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert (f"` on all ranks (train.py:{line})" in str(found.fix)) is bool(told)
    assert told in words
    assert bool(told) or f"train.py:{line}), is" not in words


def test_what_makes_the_object_that_raises_is_told_where_ranks_were_given_it_otherwise(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, OPTIONS)
    decision = Decision(kind="given", file=file, line=3, text="steps(rank)", names=("Trainer",))
    records = {
        rank: record(
            rank,
            call("all_reduce", place(file, 4)),
            ways=[BranchTaken(before=0, decision=decision, yes=1, values=(str(4 - rank),))],
        )
        for rank in (0, 1)
    }
    records[1].error, records[1].raised_at = "RuntimeError: size 2 is not 4", place(file, 4)
    raised = replace(finding("", 1), diagnosis=None)
    found = explain_error(raised, records, str(tmp_path))
    assert "`steps(rank)`, passed to `Trainer` (train.py:3), is 4 on rank 0" in str(found.notes)


VARIABLE = """\
if local_rank == 1:
    os.environ["ACCUMULATE"] = "4"
accelerator = Accelerator()
for batch in loader:
    accelerator.backward(loss)
accelerator.wait_for_everyone()
"""


def test_a_variable_that_one_rank_sets_is_told_and_no_loop_in_which_a_rank_still_waits(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, VARIABLE)
    inside, outside = (replace(place(file, line), via="kit.py:9") for line in (5, 6))
    loop = Decision(kind="for", file=file, line=4, text="for batch in loader")
    records = {
        0: record(0, call("all_reduce", inside), call("all_reduce", inside)),
        1: record(1, call("all_reduce", inside), call("barrier", outside)),
    }
    for rank, each in records.items():
        each.ways = [
            BranchTaken(before=0, decision=_if(file, 1, "local_rank == 1"), yes=rank, no=1 - rank),
            BranchTaken(before=0, decision=loop, yes=3, no=1),
            BranchTaken(before=1, decision=loop, yes=3 + 2 * rank),
        ]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert (
        '`os.environ["ACCUMULATE"] = "4"` (train.py:2) is set, which a framework may read' in words
    )
    assert "more turns" not in words
    assert found.fix == "set the same variable on all ranks (train.py:2)."


METRICS = """\
def make(labels):
    metrics = {"loss": Mean()}
    if (labels == 3).any():
        metrics["rare"] = Mean()
    return Collection(metrics)
def main():
    labels = rare if rank == 0 else common
    metrics = make(labels)
    metrics.compute()
    dist.barrier()
main()
"""


def test_an_if_in_the_program_of_all_ranks_is_not_taken_for_what_makes_an_argument(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, METRICS)
    given = Decision(kind="given", file=file, line=5, text="metrics", names=("Collection",))
    at = {
        0: replace(place(file, 9, 11), via="kit.py:9"),
        1: place(file, 10, 11),
    }
    records = {0: record(0, call("all_gather", at[0])), 1: record(1, call("barrier", at[1]))}
    for rank, each in records.items():
        held = ("**", "loss: Mean", *["rare: Mean"] * (rank == 0))
        each.ways = [
            BranchTaken(before=0, decision=_if(file, 3, "x"), yes=1 - rank, no=rank),
            BranchTaken(before=0, decision=given, yes=1, values=held),
            BranchTaken(before=0, decision=_if(file, 7, "y"), yes=1 - rank, no=rank),
        ]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "`metrics`, passed to `Collection` (train.py:5), differs: `rare` is Mean on" in words
    assert "behind it, `if x` (train.py:3) is true on rank 0 alone" in words


SHARDED = """\
def wrap(model, profile):
    return FSDP(model, STRATEGIES[profile])
model = wrap(layers, "small" if rank else "large")
model(x).backward()
"""


def test_what_makes_a_model_otherwise_is_told_where_ranks_are_in_one_line_of_the_script(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, SHARDED)
    at = place(file, 4)
    text = "STRATEGIES[profile]"
    given = Decision(kind="given", file=file, line=2, text=text, names=("FSDP",))
    names = ("all_gather_single", "reduce_scatter_single")
    records = {
        rank: record(
            rank,
            call("all_gather_single", at, maker="to"),
            call(names[rank], at, maker="to"),
            ways=[BranchTaken(before=0, decision=given, yes=1, values=(str(rank + 1),))],
        )
        for rank in (0, 1)
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = f"`{text}`, passed to `FSDP` (train.py:2), is 1 on rank 0, 2 on rank 1"
    assert words in " ".join(each.words for each in found.notes)


HANDLES = """\
@trainer.on(Events.ITERATION_COMPLETED(every=every(local_rank)))
def validate(engine):
    evaluator.run(rows)
trainer.run(loader)
"""


@pytest.mark.parametrize("comes", [True, False])
def test_a_handler_that_all_ranks_run_is_not_told_to_be_of_some(
    tmp_path: Path, *, comes: bool
) -> None:
    file = script(tmp_path, HANDLES)
    inside, outside = place(file, 3, 4), place(file, 4)
    records = {
        0: record(0, call("all_reduce", outside), call("barrier", inside)),
        1: record(1, *[call("all_reduce", outside) for _ in range(2)]),
    }
    records[1].items += [call("barrier", inside)] * comes
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert ("(train.py:1) runs at other times on rank 1" in told) is comes
    assert ("(train.py:1) runs on some ranks alone" in told) is not comes


LEFT = """\
trainer = Trainer(max_epochs=left(rank))
trainer.fit(model)
dist.barrier()
"""


@pytest.mark.parametrize(("via", "values"), [("kit.py:9", "32"), ("kit.py:9", "33"), ("", "32")])
def test_a_number_that_a_framework_is_given_otherwise_is_why_it_ends_earlier(
    via: str, values: str, tmp_path: Path
) -> None:
    file = script(tmp_path, LEFT)
    at = replace(place(file, 2), via=via)
    given = Decision(kind="given", file=file, line=1, text="max_epochs=left(rank)")
    records = {
        rank: record(
            rank,
            *[call("all_reduce", at) for _ in range(2 - rank)],
            ways=[BranchTaken(before=0, decision=given, yes=1, values=(values[rank],))],
        )
        for rank in (0, 1)
    }
    (found,) = add_reasons([finding("missing_participant", 0)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    words = "`max_epochs=left(rank)` (train.py:1) is 3 on rank 0, 2 on rank 1"
    is_told = bool(via) and values == "32"
    assert (words in told) is is_told
    assert ("pass the same `max_epochs=left(rank)`" in str(found.fix)) is is_told


SETS = """\
def sets(rank):
    if exists(rank):
        return [easy, hard]
    return [easy]
def other(rank):
    if rank == 0:
        tidy()
other(rank)
valid = sets(rank)
trainer.fit(model, valid)
trainer = Trainer(every=1 if rank == 0 else 4)
"""


@pytest.mark.parametrize(("line", "is_told"), [(2, True), (6, False), (11, True)])
def test_what_makes_an_argument_of_a_framework_is_why_it_goes_another_way(
    line: int, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, SETS)
    places = [replace(place(file, 10), via=f"kit.py:{at}") for at in (7, 9, 7)]
    records = {
        rank: record(
            rank,
            call("barrier", places[0]),
            call("broadcast" if rank else "barrier", places[rank]),
            ways=[BranchTaken(before=0, decision=_if(file, line, "x"), yes=1 - rank, no=rank)],
        )
        for rank in (0, 1)
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    words = f"what train.py:10 uses is made by it: `if x` (train.py:{line}) is true"
    assert (words in told) is is_told
    assert (f"decide `if x` (train.py:{line}) the same way" in str(found.fix)) is is_told


UNEVEN = """\
def step(x):
    return accelerator.reduce(loss(x))
with accelerator.join_uneven_inputs([model]):
    for x in rows:
        history.append(step(x))
dist.barrier()
"""


@pytest.mark.parametrize("name", ["reduce", "forward"])
@pytest.mark.parametrize("joins", [True, False])
def test_a_call_of_a_framework_under_a_join_of_its_own_is_told(
    name: str, *, joins: bool, tmp_path: Path
) -> None:
    """Torch's Join makes a call of its own in each turn, which has no name in the script."""
    file = script(tmp_path, UNEVEN.replace("accelerator.reduce", f"accelerator.{name}"))
    inside = replace(place(file, 2, 5), via="accelerate/operations.py:9")
    own = [call("all_reduce", place(file, 5))] * joins
    records = {
        0: record(0, *own, *[call("all_reduce", inside) for _ in range(3)]),
        1: record(1, *own, *[call("all_reduce", inside) for _ in range(2)]),
    }
    records[1].items.append(call("barrier", place(file, 6)))
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    words = "under `with join_uneven_inputs` (train.py:3) a rank whose loop has ended answers the "
    words += "calls of the models alone, and not the `reduce` at train.py:2"
    assert (words in told) is (joins and name == "reduce")
    has_none = "`with join_uneven_inputs` (train.py:3) has no effect here" in told
    assert has_none is (not joins and name == "reduce")


@pytest.mark.parametrize(("timeout_s", "is_late"), [(-0.001, False), (0.5, True)])
def test_a_group_without_a_timeout_of_its_own_is_not_waited_for_too_long(
    timeout_s: float, *, is_late: bool, tmp_path: Path
) -> None:
    at = place(script(tmp_path, PREPARES), 3)
    records = {
        rank: record(
            rank,
            call("barrier", at, began_us=1_000_000 * (1 + rank), timeout_s=timeout_s),
            about={"mode": "fake"},
            timeout_s=1800.0,
        )
        for rank in (0, 1)
    }
    assert (find_late_rank(records, str(tmp_path)) is not None) is is_late


@pytest.mark.parametrize(("own", "is_told"), [(0, True), (1, False)])
def test_what_a_late_rank_alone_goes_into_before_it_comes_is_told(
    own: int, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(
        tmp_path, "dist.barrier()\nif rank == 0:\n    print(evaluate())\ndist.barrier()\n"
    )
    asked = _if(file, 2, "rank == 0")
    records = {
        rank: record(
            rank,
            call("barrier", place(file, 1), began_us=1_000_000),
            call("barrier", place(file, 4), began_us=2_000_000 + 9_000_000 * (rank == 0)),
            about={"mode": "fake"},
            timeout_s=4.0,
            ways=[BranchTaken(before=1, decision=asked, yes=int(rank <= own), no=int(rank > own))],
        )
        for rank in (0, 1)
    }
    found = find_late_rank(records, str(tmp_path))
    assert found is not None
    words = " ".join(each.words for each in found.notes)
    since = "since barrier (train.py:1), `if rank == 0` (train.py:2) is true on rank 0 alone"
    assert (since in words) is is_told


@pytest.mark.parametrize(("ending", "is_late"), [("stopped", True), ("ended", False)])
def test_a_rank_that_is_ended_before_it_comes_to_a_timeout_is_late(
    ending: str, *, is_late: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, "dist.barrier()\nprepare()\ndist.barrier()\n")
    failed = "RuntimeError: Timed out waiting 4000ms for recv operation to complete"
    met = call("barrier", place(file, 1))
    records = {
        0: record(0, met, ending=ending, ended_at=place(file, 2)),
        1: record(1, met, call("barrier", place(file, 3), failed=failed), error=failed),
    }
    found = find_late_rank(records, str(tmp_path))
    assert (found is not None) is is_late
    if found is not None:
        words = " ".join(each.words for each in found.notes)
        assert "rank 0 has not come there when rank 1 gives up after its timeout of 4 s" in words
        assert "and is ended then, at train.py:2" in words


RETRIED = """\
def train():
    @find_executable_batch_size(starting_batch_size=32)
    def inner(size):
        model = prepare(size)
        for x in rows(size):
            model(x).backward()
    return inner()
train()
"""


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        (RETRIED, True),
        (RETRIED.replace("@find_executable_batch_size(starting_batch_size=32)", ""), False),
        (RETRIED.replace("train()\n", "for epoch in range(3): train()\n")[:-1], False),
    ],
)
def test_a_function_that_its_decorator_begins_anew_on_one_rank_is_told(
    text: str, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, text.replace("def for epoch in range(3): train()", "def train()"))
    prepares, steps = place(file, 4, 7, 8), place(file, 6, 7, 8)
    records = {
        0: record(0, call("all_gather", prepares), call("all_reduce", steps)),
        1: record(1, call("all_gather", prepares), call("all_gather", prepares)),
    }
    for each in records.values():
        each.ways = [BranchTaken(before=0, decision=_if(file, 9, "x"), yes=1)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert ("rank 1 has begun `inner` (train.py:3) anew" in told) is is_told
    assert ("before `@find_executable_batch_size" in str(found.fix)) is is_told


def test_what_ranks_decided_before_they_pass_other_shapes_is_looked_at_first(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, "if memory < 64:\n    least = 200\nmodel(x)\n")
    records = {
        rank: record(rank, call("all_gather", place(file, 3), rows=4 + rank)) for rank in (0, 1)
    }
    asks = _if(file, 1, "memory < 64")
    records[0].ways = [BranchTaken(before=0, decision=asks, yes=1)]
    records[1].ways = [BranchTaken(before=0, decision=asks, no=1)]
    apart = replace(finding("shape_mismatch", 0, 1), fix="use the same parameters.")
    (found,) = add_reasons([apart], records, str(tmp_path))
    assert found.fix == (
        "look first at `if memory < 64` (train.py:1), which ranks decide otherwise; use the same "
        "parameters."
    )


LOCAL_SGD = """\
for epoch in range(1):
    for rows in shard:
        model(rows)
        if step % 3 == 0:
            dist.all_reduce(weight)
dist.all_reduce(total)
"""


@pytest.mark.parametrize(("turns", "is_loop"), [((6, 5), True), ((6, 6), False)])
def test_an_if_that_asks_for_the_turn_is_no_reason_where_others_have_left_the_loop(
    turns: tuple[int, int], *, is_loop: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, LOCAL_SGD)
    loop = Decision(kind="for", file=file, line=2, text="for rows in shard")
    asks = _if(file, 4, "step % 3 == 0")
    inner = call("all_reduce", place(file, 5))
    records = {
        0: record(0, inner, call("all_reduce", place(file, 5))),
        1: record(1, inner, call("all_reduce", place(file, 6), rows=9)),
    }
    for rank, each in records.items():
        each.ways = [
            BranchTaken(before=0, decision=loop, yes=3),
            BranchTaken(before=0, decision=asks, yes=1, no=2),
            BranchTaken(before=1, decision=loop, yes=turns[rank] - 3, no=rank),
            BranchTaken(before=1, decision=asks, yes=1 - rank, no=2),
        ]
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert ("the loop `for rows in shard` (train.py:2) has more turns" in told) is is_loop
    assert ("goes into `if step % 3 == 0` (train.py:4)" in told) is not is_loop


FLATTENS = """\
for step in range(4):
    dist.all_reduce(grad)
    if rank == 0 and step == 1:
        print(parallel.loss_mesh)
dist.all_reduce(loss, group=parallel.loss_mesh)
"""


def test_a_group_that_one_rank_creates_between_calls_is_told_with_the_if(tmp_path: Path) -> None:
    file = script(tmp_path, FLATTENS)
    reduces = call("all_reduce", place(file, 2))
    made = BlockingCall(number=9, what=CREATION, place=place(file, 4), group=1, ranks=(0, 1))
    records = {0: record(0, reduces), 1: record(1, reduces, call("all_reduce", place(file, 2)))}
    records[0].items.append(made)
    asks = _if(file, 3, "rank == 0 and step == 1")
    records[0].ways = [BranchTaken(before=1, decision=asks, yes=1)]
    records[1].ways = [BranchTaken(before=1, decision=asks, no=1)]
    (found,) = add_reasons([finding("circular_wait", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert "rank 0 alone goes into `if rank == 0 and step == 1` (train.py:3)" in told
    assert "create the group of train.py:4 on every rank at one point" in str(found.fix)


PREDICATE = """\
def is_due(step, mesh):
    return step % 2 == 0 and mesh.get_local_rank() == 0
"""
ASKING = """\
from logs import is_due
for step in range(4):
    if is_due(step, mesh):
        dist.all_reduce(x)
    dist.barrier()
"""


def test_a_condition_that_calls_a_function_is_told_with_what_that_returns(tmp_path: Path) -> None:
    (tmp_path / "logs.py").write_text(PREDICATE)
    file = script(tmp_path, ASKING)
    asks = _if(file, 3, "is_due(step, mesh)")
    records = {
        0: record(
            0,
            call("all_reduce", place(file, 4)),
            ways=[BranchTaken(before=0, decision=asks, yes=1)],
        ),
        1: record(
            1, call("barrier", place(file, 5)), ways=[BranchTaken(before=0, decision=asks, no=1)]
        ),
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    expected = "`is_due` returns `step % 2 == 0 and mesh.get_local_rank() == 0` (logs.py:2)"
    assert expected in found.notes[1].words


VOCABULARY = """\
def build(rank):
    words = sorted(TEXTS[rank])
    return words
"""
TAGGER = """\
import data.vocab
def main():
    rank = dist.get_rank()
    words = data.vocab.build(rank)
    model = DistributedDataParallel(Tagger(len(words)))
"""


def test_a_model_of_another_shape_is_told_with_what_makes_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/vocab.py").write_text(VOCABULARY)
    file = script(tmp_path, TAGGER)
    words = (
        "[1]: params[0] in this process with sizes [9, 8] appears not to match sizes of the same"
    )
    records = {0: record(0), 1: record(1, error=words, raised_at=place(file, 5))}
    raised = replace(finding("", 1), diagnosis=None, code="outcome_differs")
    (found,) = add_reasons([raised], records, str(tmp_path))
    assert "`words = sorted(TEXTS[rank])` (data/vocab.py:2)" in found.notes[0].words
    assert found.notes[0].words.startswith("what differs by rank is read in `words = data.vocab")


ROWS = """\
class Rows:
    def __init__(self):
        rank = dist.get_rank()
        self.labels = LABELS[rank]
        self.classes = max(self.labels) + 1
"""
FITS = """\
from rows import Rows
rows = Rows()
model = Classifier(rows.classes)
trainer.fit(model)
"""


def test_a_model_of_another_shape_is_told_with_what_an_object_holds(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(ROWS)
    file = script(tmp_path, FITS)
    words = "DDP expects same model across all ranks, but Rank 0 has 2 params"
    records = {0: record(0), 1: record(1, error=words, raised_at=place(file, 4))}
    raised = replace(finding("", 1), diagnosis=None, code="outcome_differs")
    (found,) = add_reasons([raised], records, str(tmp_path))
    words = found.notes[0].words
    assert "read in `self.labels = LABELS[rank]` (rows.py:4), `rank = dist.get_rank()`" in words
    assert "the model is made of `model = Classifier(rows.classes)` (train.py:3)" in words


ADAPTS = """\
def adapt(rank):
    if not exists(rank):
        return fresh()
    return load(rank)
def main():
    if rank == 0:
        save()
    dist.barrier()
    model = DDP(adapt(rank))
"""


def test_what_makes_the_model_is_nearer_to_an_error_than_what_ranks_decide_before(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, ADAPTS)
    words = "RuntimeError: ... a module doesn't have any parameter that requires a gradient."
    made = _if(file, 2, "not exists(rank)")
    records = {
        rank: record(
            rank,
            call("barrier", place(file, 8)),
            ways=[
                BranchTaken(before=0, decision=_if(file, 6, "rank == 0"), yes=1 - rank, no=rank),
                BranchTaken(before=1, decision=made, yes=rank, no=1 - rank),
            ],
        )
        for rank in (0, 1)
    }
    records[0].error, records[0].raised_at = words, place(file, 9)
    raised = replace(finding("", 0), diagnosis=None, code="outcome_differs")
    (found,) = add_reasons([raised], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert "before that, `if not exists(rank)` (train.py:2) is true on rank 1 alone" in told


TWO_MODELS = """\
critic = DDP(Critic())
generator = DDP(Generator())
with Join([critic]):
    for real in batches:
        critic(real).mean().backward()
        generator(noise).mean().backward()
dist.barrier()
"""


@pytest.mark.parametrize("joined", ["critic", "critic, generator"])
def test_a_model_that_join_is_not_given_is_named(tmp_path: Path, joined: str) -> None:
    file = script(tmp_path, TWO_MODELS.replace("[critic]", f"[{joined}]"))
    lines = {0: (5, 6, 5, 6), 1: (5, 6, 3)}
    records = {
        rank: record(
            rank, *[call("all_reduce", place(file, line), maker="to" * (line > 3)) for line in own]
        )
        for rank, own in lines.items()
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert ("and not those of `generator`, which the loop calls too" in words) is (
        joined == "critic"
    )


RESUMES = """\
def resume(rank):
    if os.path.exists(path(rank)):
        return torch.load(path(rank))
start = resume(rank)
for batch in loader:
    model(batch).backward()
dist.barrier()
"""


@pytest.mark.parametrize(("found", "is_told"), [((1, 0), True), ((1, 1), False)])
def test_a_longer_loop_is_told_with_what_ranks_decide_otherwise_before_it(
    found: tuple[int, int], *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, RESUMES)
    asks = _if(file, 2, "os.path.exists(path(rank))")
    turn = Decision(kind="for", file=file, line=5, text="for batch in loader")
    lines = {0: (6, 7), 1: (6, 6)}
    records = {
        rank: record(
            rank,
            *[call("all_reduce", place(file, line), maker="to" * (line == 6)) for line in own],
            ways=[
                BranchTaken(before=0, decision=asks, yes=found[rank], no=1 - found[rank]),
                BranchTaken(before=0, decision=turn, yes=1, no=1),
                BranchTaken(before=1, decision=turn, yes=rank),
            ],
        )
        for rank, own in lines.items()
    }
    (finds,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in finds.notes)
    assert "(train.py:5) has more turns on some ranks" in words
    assert ("before it, `if os.path.exists(path(rank))` (train.py:2) is true" in words) is is_told
    assert (
        str(finds.fix).startswith("let all ranks take that `if` the same way, and give") is is_told
    )


ROLLOUT = """\
def rollout(model, prompts):
    return [
        model.generate(each)
        for each in prompts
    ]
answers = rollout(model, prompts)
loss(model, answers)
"""


def test_a_model_that_writes_to_each_ranks_own_end_is_told_with_its_own_line(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, ROLLOUT)
    at = ScriptPlace(
        frames=((file, 3, "model.generate(each)"), (file, 6, "answers = rollout(model, prompts)")),
        via="transformers/model.py:608",
    )
    records = {
        0: record(0, call("all_gather", at), call("all_gather", at)),
        1: record(1, call("all_gather", at), call("all_gather", place(file, 7))),
    }
    for each in records.values():
        each.ways = [BranchTaken(before=9, decision=_if(file, 9, "x"), yes=1)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "rank 1 has left `model.generate(each)` (train.py:3), in which rank 0 still" in words
    assert str(found.fix).startswith("pass `synced_gpus=True` at train.py:3")


@pytest.mark.parametrize(("ending", "is_told"), [("ended", True), ("stopped", False)])
def test_a_store_that_is_gone_is_told_with_the_rank_that_has_ended(
    ending: str, *, is_told: bool, tmp_path: Path
) -> None:
    at = place(script(tmp_path, "dist.barrier()\nstore.get('score')\n"), 1)
    words = "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed."
    records = {
        0: record(0, call("barrier", at), ending=ending),
        1: record(1, call("barrier", at), ending="raised", error=words),
    }
    raised = replace(finding("outcome_differs", 1), diagnosis=None)
    (found,) = add_reasons([raised], records, str(tmp_path))
    told = [each.words.partition(":")[0] for each in found.notes]
    assert told == (["rank 0 has ended, the last line train.py"] if is_told else [])
    assert ("a `dist.barrier()` behind" in str(found.fix)) is is_told


@pytest.mark.parametrize(
    ("rows", "call_of_it", "is_told"),
    [
        ("iter(rows)", "warm_up(net, batches)", True),
        ("(x for x in rows)", "warm_up(net, batches)", True),
        ("list(rows)", "warm_up(net, batches)", False),
        ("stream(rows)", "next(batches)", True),
        ("iter(rows)", "warm_up(net)", False),
    ],
)
def test_what_is_given_the_iterator_of_a_loop_on_one_rank_may_take_from_it(
    rows: str, call_of_it: str, *, is_told: bool, tmp_path: Path
) -> None:
    lines = [
        *(f"batches = {rows}", "if rank == 0:", f"    {call_of_it}", "for x in batches:"),
        *("    dist.all_reduce(x)", "dist.barrier()"),
    ]
    file = script(tmp_path, "\n".join(lines))
    turn = Decision(kind="for", file=file, line=4, text="for x in batches")
    asked = _if(file, 2, "rank == 0")
    names = {5: "all_reduce", 6: "barrier"}
    records = {
        rank: record(
            rank,
            *(call(names[line], place(file, line)) for line in (5, 6 - rank)),
            ways=[
                BranchTaken(before=0, decision=asked, yes=int(rank == 0), no=rank),
                *(BranchTaken(before=at, decision=turn, yes=1) for at in range(1 + rank)),
            ],
        )
        for rank in (0, 1)
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "more turns on some ranks" in words
    takes = f"`{call_of_it}` (train.py:3) may take from the iterator of the loop, and `if "
    assert (takes in words) is is_told
    assert ("take from an iterator of its own at train.py:3" in str(found.fix)) is is_told


@pytest.mark.parametrize("head", ["from shards import ready", "import shards"])
@pytest.mark.parametrize(
    ("over", "fix"), [("as_completed(futures)", "were submitted"), ("futures", "sorted, and not")]
)
def test_a_loop_over_a_generator_of_another_file_is_followed_to_what_it_yields(
    head: str, over: str, fix: str, tmp_path: Path
) -> None:
    shards = f"def ready():\n    for each in {over}:\n        yield each.result()\n"
    (tmp_path / "shards.py").write_text(shards, encoding="utf-8")
    name = "ready" if head.startswith("from") else "shards.ready"
    file = script(tmp_path, f"{head}\nfor rows in {name}():\n    dist.all_reduce(rows)\n")
    at = place(file, 3)
    records = {0: record(0, call("all_reduce", at)), 1: record(1, call("all_reduce", at, rows=9))}
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    assert f"on some ranks: `for each in {over}` (shards.py:2)" in found.notes[0].words
    assert fix in str(found.fix)


CACHED = """\
def load(rank, path):
    if rank != 0:
        dist.barrier()
    if path.exists():
        return torch.load(path)
    rows = build()
    if rank == 0:
        dist.barrier()
    return rows
rows = load(rank, path)
model = DDP(Model())
"""


@pytest.mark.parametrize("found", [True, False])
def test_a_way_out_past_the_call_that_answers_is_the_cause(tmp_path: Path, *, found: bool) -> None:
    file = script(tmp_path, CACHED)
    asks, exists = _if(file, 2, "rank != 0"), _if(file, 4, "path.exists()")
    records = {
        0: record(
            0,
            call("all_gather", place(file, 11)),
            ways=[
                BranchTaken(before=0, decision=asks, no=1),
                BranchTaken(before=0, decision=exists, yes=int(found), no=int(not found)),
            ],
        ),
        1: record(
            1,
            call("barrier", place(file, 3, 10)),
            ways=[BranchTaken(before=0, decision=asks, yes=1)],
        ),
    }
    (finds,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in finds.notes)
    way = "rank 0 takes the `return`:5 under `if path.exists()` (train.py:4), before train.py:8"
    assert (way in words) is found
    assert ("which answers train.py:3, where rank 1 waits" in words) is found


SETTINGS = """\
def make():
    steps = STEPS[int(os.environ["LOCAL_RANK"])]
    return Engine(steps)
"""
STEPPING = """\
import settings
rank = int(os.environ["RANK"])
engine = settings.make()
for batch in loader:
    engine.backward(model(batch, rank))
engine.wait()
"""


def test_a_framework_that_is_made_by_the_rank_is_told_where_nothing_else_is_known(
    tmp_path: Path,
) -> None:
    (tmp_path / "settings.py").write_text(SETTINGS)
    file = script(tmp_path, STEPPING)
    records = {
        0: record(0, call("all_reduce", place(file, 5)), call("all_reduce", place(file, 5))),
        1: record(1, call("all_reduce", place(file, 5)), call("barrier", place(file, 6))),
    }
    turn = Decision(kind="for", file=file, line=4, text="for batch in loader")
    for each in records.values():
        each.ways = [BranchTaken(before=0, decision=turn, yes=2, no=1)]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "calls depends on what differs by rank: `steps = STEPS[int(os.environ[" in words
    assert "(settings.py:2)" in words
    assert "(train.py:2)" not in words
    assert str(found.fix).startswith("look first at `steps = STEPS[int(os.environ[")


SHARDED = """\
small = FREE[rank] < 64
for block in model:
    fully_shard(block, reshard_after_forward=small)
model(x).sum().backward()
"""


@pytest.mark.parametrize("kept", ["True", "False"])
def test_units_of_fsdp_that_ranks_shard_otherwise_are_told(tmp_path: Path, *, kept: str) -> None:
    at = place(script(tmp_path, SHARDED), 4)
    records = {
        0: record(0, call("all_gather_single", at, maker="fsdp")),
        1: record(1, call("reduce_scatter_single", at, maker="fsdp")),
    }
    for rank, reshards in (0, "True"), (1, kept):
        records[rank].units = {"the unit 2": {"reshard_after_forward": reshards}}
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    differs = "FSDP shards the unit 2 with another `reshard_after_forward`: True on rank 0; False"
    assert (differs in words) is (kept == "False")
    assert ("`small = FREE[rank] < 64` (train.py:1) decides" in words) is (kept == "False")
    assert str(found.fix).startswith("pass the same `reshard") is (kept == "False")


TREE = """\
while distance < world:
    if partner >= world:
        break
    dist.recv(other, src=partner)
    distance *= 2
dist.barrier()
"""


@pytest.mark.parametrize("breaks", [0, 1])
def test_a_way_out_of_the_loop_of_a_message_is_nearer_than_its_turns(
    tmp_path: Path, breaks: int
) -> None:
    file = script(tmp_path, TREE)
    loop = Decision(kind="while", file=file, line=1, text="while distance < world")
    asks = _if(file, 2, "partner >= world")
    receive, meet = call("recv", place(file, 4), peer=2), call("barrier", place(file, 6))
    records = {
        0: record(0, receive, receive, size=3),
        1: record(1, meet, size=3),
        2: record(2, meet, size=3),
    }
    for rank, own in records.items():
        own.ways = [BranchTaken(before=0, decision=loop, yes=1 if rank else 2, no=0)]
        own.ways += [BranchTaken(before=0, decision=asks, yes=breaks * (rank == 2), no=rank != 2)]
    waits = _waits(
        "rank 0 waits in `recv from 2` (train.py:4) for rank 2 to send",
        "rank 2 waits in `barrier` (train.py:6) for rank 0 to enter `barrier`",
    )
    text = Source(path="scenario.yaml", text="")
    mark = Mark(source=text, line=1, column=1, at="train.py:4")
    waits = replace(waits, notes=(*waits.notes, Clause("", mark)), ranks=(0, 2))
    reason = explain_message(waits, records, str(tmp_path))
    assert reason is not None
    way_out = "rank 2 alone takes the `break`:3 under `if partner >= world` (train.py:2)"
    assert (way_out in reason[0].words) is bool(breaks)
    assert ("has more turns on some ranks: rank 0 twice" in reason[0].words) is not bool(breaks)


PREPARING = """\
class Data(LightningDataModule):
    def prepare_data(self):
        dist.barrier()
trainer.fit(net, datamodule=Data())
Data().prepare_data()
"""


@pytest.mark.parametrize(("line", "is_told"), [(4, True), (5, False)])
def test_a_method_that_lightning_runs_on_one_rank_of_a_node_is_told(
    tmp_path: Path, line: int, *, is_told: bool
) -> None:
    text = PREPARING.splitlines()
    file = script(tmp_path, PREPARING)
    frames = ((file, 3, text[2]), (file, line, text[line - 1]))
    records = {
        0: record(0, call("barrier", ScriptPlace(frames=frames))),
        1: record(1, call("broadcast", place(file, 4))),
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    told = "rank 0 alone communicates in `prepare_data`, which Lightning (train.py:2) runs on some"
    assert (told in words) is is_told
    assert ("do that in `setup`, which it runs on every rank" in str(found.fix)) is is_told


EXPORT = """\
def export(group, weights):
    dist.all_reduce(weights, group=group)
    dist.barrier()
def stop(group):
    dist.barrier(group=group)
    dist.barrier(group=dist.group.WORLD)
if rank < 2:
    export(mine, weights)
dist.all_reduce(total)
"""


@pytest.mark.parametrize(("lines", "is_told"), [((2, 3), True), ((5, 6), False), ((3, 3), False)])
def test_a_call_without_the_group_that_its_function_has_is_told(
    tmp_path: Path, lines: tuple[int, int], *, is_told: bool
) -> None:
    file, world = script(tmp_path, EXPORT), (0, 1, 2, 3)
    before, here = (place(file, line, 8) for line in lines)
    earlier = call("all_reduce", before)
    meet = replace(call("barrier", here), group=world)
    further = replace(call("all_reduce", place(file, 9)), group=world)
    records = {
        rank: record(rank, *([earlier, meet] if rank < 2 else [further]), size=4) for rank in world
    }
    (found,) = add_reasons([finding("call_mismatch", *world)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    group = (
        f"passes `group=group` at train.py:{lines[0]}, and no group at train.py:{lines[1]}: that"
    )
    assert (group in words) is is_told
    assert str(found.fix).startswith("pass `group=group` at train.py:3") is is_told


ROTARY = """\
def grow(self, length):
    self.cos = table(length)
def forward(self, x):
    self.grow(len(x))
model(x)
"""


@pytest.mark.parametrize("grown", [(0, 1), (1,)])
def test_buffers_of_ddp_that_have_another_shape_are_told_with_what_sets_them(
    tmp_path: Path, grown: tuple[int, ...]
) -> None:
    at = place(script(tmp_path, ROTARY), 5)
    records = {
        rank: record(rank, call("broadcast", at, rows=8 + rank, maker="cpp")) for rank in (0, 1)
    }
    step = Decision(kind="for", file=at.frames[0][0], line=5, text="for x in batches")
    for rank, own in records.items():
        own.ways = [BranchTaken(before=0, decision=step, yes=1)]
        if rank in grown:
            own.calls[0].carries = f"the buffers with rope.cos [{8 + rank}]"
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "rank 1 passes the buffers with rope.cos [9]" in words
    assert ("rank 0 passes the buffers with rope.cos [8]" in words) is (0 in grown)
    assert "`self.cos = table(length)` (train.py:2) sets one anew" in words
    assert str(found.fix).startswith("give `cos` the same shape on every rank")


ACCUMULATION = """\
is_last = step % 3 == 2 or step + 1 == len(batches)
model.set_requires_gradient_sync(is_last)
model(x).sum().backward()
"""


@pytest.mark.parametrize("flags", [[False, True], [False, False, True], [True]])
def test_a_switch_of_fsdp_that_ranks_set_otherwise_is_told(
    tmp_path: Path, flags: list[bool]
) -> None:
    file = script(tmp_path, ACCUMULATION)
    passes = Decision(
        kind="flag", file=file, line=2, text="model.set_requires_gradient_sync(is_last)"
    )
    at = place(file, 3)
    records = {
        rank: record(
            rank,
            *(
                call("all_gather_single", at, maker="fsdp", carries=f"the unit {unit}")
                for unit in (0, 2, last)
            ),
        )
        for rank, last in ((0, 2), (1, 0))
    }
    for rank, own in (0, [False, True]), (1, flags):
        records[rank].ways = [
            BranchTaken(before=0, decision=passes, yes=flag, no=not flag) for flag in own
        ]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    turn = {
        1: "turn 1: False on rank 0; True on rank 1",
        3: "turn 2: True on rank 0; False on rank 1",
    }
    told = f"gradient_sync(is_last)` (train.py:2) differs in its {turn.get(len(flags), 'turn')}"
    assert (told in words) is (len(flags) != 2)
    assert ("(`is_last = step % 3 == 2 or" in words) is (len(flags) != 2)


BOUNDARIES = """\
for x in loader:
    boundary = seen + len(x) >= tokens
    {switch}
    engine.backward(engine(x))
"""


@pytest.mark.parametrize(
    "switch",
    [
        "engine.set_gradient_accumulation_boundary(boundary)",
        "model.require_backward_grad_sync = boundary",
        "with fabric.no_backward_sync(model, enabled=boundary): pass",
    ],
)
def test_a_switch_of_ddp_or_deepspeed_that_ranks_set_otherwise_is_told(
    tmp_path: Path, switch: str
) -> None:
    file = script(tmp_path, BOUNDARIES.format(switch=switch))
    passes = Decision(kind="flag", file=file, line=3, text=switch)
    at = replace(place(file, 4), via="deepspeed/comm/torch.py:290")
    records = {0: record(0), 1: record(1, call("all_reduce", at))}
    for rank, own in (0, [False, False]), (1, [False, True]):
        records[rank].ways = [
            BranchTaken(before=0, decision=passes, yes=flag, no=not flag) for flag in own
        ]
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    told = f"`{switch}` (train.py:3) differs in its turn 2: False on rank 0; True on rank 1"
    assert told in words
    assert "(`boundary = seen + len(x) >= tokens`, train.py:2)" in words
    assert "pass the same to it in each turn" in str(found.fix)


@pytest.mark.parametrize("waits", [3, 5], ids=["in the loop", "behind it"])
def test_a_loop_in_which_a_rank_waits_is_not_one_that_it_went_through_otherwise(
    tmp_path: Path, waits: int
) -> None:
    file = script(tmp_path, "steps = 4\nfor step in range(steps):\n    fit()\n\nfinish()\n")
    turns = Decision(kind="for", file=file, line=2, text="for step in range(steps)")
    records = {0: record(0), 1: record(1, call("all_reduce", place(file, waits)))}
    for rank, count in (0, 4), (1, 3):
        records[rank].ways = [BranchTaken(before=0, decision=turns, yes=count, no=1)]
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert ("`for step in range(steps)` (train.py:2)" in words) is (waits == 5)


OWN_COUNT = """\
def build(rank):
    if rank == 0:
        return Stage(first)
    return Stage(last)

def count_rows(rank):
    return batch // rows_that_fit[rank]

stage = build(rank)
schedule = Schedule(stage, count_rows(rank))
schedule.step(x)
"""


def test_what_another_argument_is_made_of_is_not_behind_one_that_differs(tmp_path: Path) -> None:
    file = script(tmp_path, OWN_COUNT)
    asks = _if(file, 2, "rank == 0")
    given = Decision(kind="given", file=file, line=10, text="count_rows(rank)", names=("Schedule",))
    records = {0: record(0), 1: record(1, error="RuntimeError: sizes", raised_at=place(file, 11))}
    for rank, count in (0, "4"), (1, "2"):
        records[rank].ways = [
            BranchTaken(before=0, decision=asks, yes=1 - rank, no=rank),
            BranchTaken(before=0, decision=given, yes=1, values=(count,)),
        ]
    raised = replace(finding("outcome_differs", 1), diagnosis=None, code="outcome_differs")
    found = explain_error(raised, records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "`count_rows(rank)`, passed to `Schedule` (train.py:10), is 4 on rank 0" in words
    assert "behind it is `return batch // rows_that_fit[rank]` (train.py:7)" in words
    assert "if rank == 0" not in f"{words} {found.fix}"


MICRO_STEPS = """\
fits = free(local_rank) // 4
steps = ceil(12 / fits)
for iteration in range(6):
    for micro_step in range(steps):
        model.require_backward_grad_sync = micro_step == 2
        model(x).backward()
"""


def test_a_switch_that_a_loop_of_another_length_sets_has_the_loop(tmp_path: Path) -> None:
    file = script(tmp_path, MICRO_STEPS)
    switch = "model.require_backward_grad_sync = micro_step == 2"
    passes = Decision(kind="flag", file=file, line=5, text=switch)
    turns = Decision(kind="for", file=file, line=4, text="for micro_step in range(steps)")
    records = {0: record(0), 1: record(1, call("all_reduce", place(file, 6), maker="bw"))}
    for rank, own in (0, [False, False, False]), (1, [False, False, True]):
        records[rank].ways = [
            BranchTaken(before=0, decision=passes, yes=flag, no=not flag) for flag in own
        ]
        records[rank].ways.append(BranchTaken(before=0, decision=turns, yes=3, no=2 - rank))
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert "differs in its turn 3: False on rank 0; True on rank 1; the loop around it, " in words
    assert "`for micro_step in range(steps)` (train.py:4), has other turns on some ranks" in words
    assert "and that from `fits = free(local_rank) // 4` (train.py:1)" in words


RING = """\
steps = math.ceil(len(query) / 4)
for _ in range(steps):
    works = dist.batch_isend_irecv(ops)
dist.barrier()
"""


@pytest.mark.parametrize("waiting", [0, 1])
def test_the_loop_of_a_batch_of_messages_is_told_with_what_sets_its_turns(
    tmp_path: Path, waiting: int
) -> None:
    file = script(tmp_path, RING)
    loop = Decision(kind="for", file=file, line=2, text="for _ in range(steps)")
    at = replace(place(file, 3), api="batch_isend_irecv")
    receive, meet = call("recv", at, peer=1), call("barrier", place(file, 4))
    ends = [] if waiting else [meet]
    records = {0: record(0, receive, receive, receive), 1: record(1, receive, receive, *ends)}
    for rank, turns in (0, 3), (1, 2):
        records[rank].ways = [BranchTaken(before=0, decision=loop, yes=turns, no=1)]
    mark = Mark(source=Source(path="scenario.yaml", text=""), line=1, column=1, at="train.py:3")
    pair = f"rank {waiting} receives from rank {1 - waiting}"
    waits = f"{pair} in `batch_isend_irecv`, and rank {1 - waiting} never sends"
    found = replace(finding("unmatched_recv", waiting), notes=(clause(waits, mark),))
    reason = explain_message(found, records, str(tmp_path))
    if waiting:  # it has made fewer turns because it waits
        assert reason is None or "more turns" not in reason[0].words
        return
    assert reason is not None
    words, _ = reason[0].words, reason[1]
    assert "has more turns on some ranks: rank 0 3 times, rank 1 twice; " in words
    assert words.endswith("`steps = math.ceil(len(query) / 4)` (train.py:1) sets them")


@pytest.mark.parametrize(("operation", "words"), [(1, "operation 1"), (3, "later, operation 3")])
def test_an_operation_after_the_one_in_which_ranks_part_is_called_later(
    operation: int, words: str, tmp_path: Path
) -> None:
    file = script(tmp_path, CLIPS.replace("BODY", "largest(norm)"))
    asks = Decision(kind="if", file=file, line=4, text="if norm > limit")
    inside, after = call("all_reduce", place(file, 2, 5)), call("all_reduce", place(file, 6))
    records = {
        rank: record(
            rank,
            *([inside] if rank else []),
            after,
            ways=[BranchTaken(before=0, decision=asks, yes=rank, no=1 - rank)],
        )
        for rank in (0, 1)
    }
    apart = finding("call_mismatch", 0, 1, words=f"operation {operation} on world is not the same")
    (found,) = add_reasons([apart], records, str(tmp_path))
    assert found.notes[0].words.startswith("the ranks part at operation 1: ")
    assert f"{words} on world is not the same" in [each.words for each in found.notes]


SKIP = """\
if index == 3:
    dist.recv(skip, src=0)
if index == 0:
    dist.send(x, dst=2)
"""


def test_two_messages_without_an_end_each_are_told_with_the_if_of_one(tmp_path: Path) -> None:
    file = script(tmp_path, SKIP)
    sends, receives = _if(file, 3, "index == 0"), _if(file, 1, "index == 3")
    calls = {0: call("send", place(file, 4), peer=2), 3: call("recv", place(file, 2), peer=0)}
    records = {
        rank: record(
            rank,
            *([calls[rank]] if rank in calls else []),
            size=4,
            ways=[
                BranchTaken(before=0, decision=receives, yes=rank == 3, no=rank != 3),
                BranchTaken(before=0, decision=sends, yes=rank == 0, no=rank != 0),
            ],
        )
        for rank in range(4)
    }
    words = (
        "rank 0 sends to rank 2 in `send to 2` (train.py:4)",
        "rank 3 receives from rank 0 in `recv from 0` (train.py:2)",
    )
    lonely = replace(finding("unmatched_send", 0, 2), notes=tuple(map(clause, words)))
    reason = explain_message(lonely, records, str(tmp_path))
    assert reason is not None
    assert "rank 2 does not go into `if index == 3` (train.py:1), where it would receive" in (
        reason[0].words
    )


CAPACITY = """\
capacity = len(x) // world
slots = x.new_zeros(world, capacity)
dist.all_to_all_single(received, slots)
dist.all_to_all_single(received, slots, sizes, counts)
"""


@pytest.mark.parametrize(("line", "is_told"), [(3, True), (4, False)])
def test_parts_of_an_exchange_that_are_alike_are_told_with_what_the_tensor_is_made_of(
    tmp_path: Path, line: int, *, is_told: bool
) -> None:
    at = place(script(tmp_path, CAPACITY), line)
    records = {rank: record(rank, call("all_to_all_single", at, rows=8 + rank)) for rank in (0, 1)}
    sizes = "exchange the sizes first."
    (found,) = add_reasons(
        [replace(finding("shape_mismatch", 0, 1), fix=sizes)], records, str(tmp_path)
    )
    words = " ".join(each.words for each in found.notes)
    assert ("`capacity = len(x) // world` (train.py:1)" in words) is is_told
    assert (found.fix == sizes) is not is_told


SPARSE = """\
for p in model.parameters():
    rows = p.grad.values()
    dist.all_reduce(rows)
"""


@pytest.mark.parametrize(("rows", "is_order"), [((6, 3), False), ((6, 5), True)])
def test_a_tensor_of_a_size_that_was_not_there_before_is_no_other_one_of_its_loop(
    tmp_path: Path, rows: tuple[int, int], *, is_order: bool
) -> None:
    at = place(script(tmp_path, SPARSE), 3)
    records = {
        rank: record(rank, *(call("all_reduce", at, rows=each) for each in (6, 5, own)))
        for rank, own in enumerate(rows)
    }
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert ("reaches another tensor on some ranks" in words) is is_order
    assert ("set by `rows = p.grad.values()` (train.py:2)" in words) is not is_order


EXCHANGES = """\
first = rank % 2 == 0
if first:
    dist.send(x, peer)
    dist.recv(y, peer)
else:
    dist.recv(y, peer)
    dist.send(x, peer)
"""


@pytest.mark.parametrize(("line", "way"), [(3, "both go into"), (6, "both take the `else` of")])
@pytest.mark.parametrize("is_alike", [True, False])
def test_ranks_that_wait_for_each_other_by_one_order_have_its_if(
    line: int, way: str, *, is_alike: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, EXCHANGES)
    ranks = (0, 2) if line == 3 else (1, 3)
    operation, what = ("send", "receive") if line == 3 else ("recv", "send")
    records = {
        rank: record(rank, call(operation, place(file, line), peer=peer), size=4)
        for rank, peer in zip(ranks, reversed(ranks), strict=True)
    }
    asks = replace(_if(file, 2, "first"), names=("first",))
    for rank, each in records.items():
        is_true = (line == 3) is (is_alike or rank == ranks[0])
        each.ways = [
            BranchTaken(
                before=0, decision=asks, yes=is_true, no=not is_true, values=(str(is_true),)
            )
        ]
    waits = replace(
        finding("circular_wait", *ranks),
        notes=tuple(
            clause(f"rank {rank} waits in `{operation}` for rank {peer} to {what}")
            for rank, peer in zip(ranks, reversed(ranks), strict=True)
        ),
    )
    reason = explain_message(waits, records, str(tmp_path))
    assert (reason is not None and f"{way} `if first` (train.py:2)" in reason[0].words) is is_alike


MICROBATCHES = """\
example = torch.randn(2, 8)
stage = PipelineStage(module, rank, world, device, input_args=example)
schedule.step(x)
"""


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_stage_that_receives_another_shape_has_what_states_it(
    *, is_repeated: bool, tmp_path: Path
) -> None:
    again = "other = PipelineStage(module, 1, world, device, input_args=example)\n"
    file = script(tmp_path, MICROBATCHES + again * is_repeated)
    records = {
        0: record(0, call("send", place(file, 3), peer=1, rows=32)),
        1: record(1, call("recv", place(file, 3), peer=0, rows=16)),
    }
    reason = explain_message(finding("shape_mismatch", 0, 1), records, str(tmp_path))
    words = "states by `input_args=example` (train.py:2), set by `example = torch.randn(2, 8)`"
    assert (reason is not None and words in reason[0].words) is not is_repeated


@pytest.mark.parametrize("name", ["train.py", "uneven_batches.py"])
@pytest.mark.parametrize(
    ("text", "values", "is_told"),
    [
        ("rows", "34", False),
        ("max_rows", "34", True),
        ("batch", ("a tensor [4]", "a tensor [3]"), False),
    ],
)
def test_what_is_given_is_an_amount_by_its_own_name_and_not_by_its_file(
    name: str, text: str, values: Sequence[str], *, is_told: bool, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(f"kit.run({text})\n", encoding="utf-8")
    at = replace(place(str(path), 1), via="kit.py:9")
    given = Decision(kind="given", file=str(path), line=1, text=text, names=("run",))
    records = {
        rank: record(
            rank,
            call(("all_reduce", "broadcast")[rank], at),
            ways=[BranchTaken(before=0, decision=given, yes=1, values=(values[rank],))],
        )
        for rank in (0, 1)
    }
    difference = find_difference(records)
    assert difference is not None
    parted = DecidedParting(difference, records, str(tmp_path))
    assert (find_given_amount(parted) is not None) is is_told


RESTARTS = """\
for turn in range(3):
    if leaves(turn):
        break
    dist.init_process_group("gloo")
"""


@pytest.mark.parametrize("is_left", [True, False])
def test_ranks_that_start_the_world_anew_wait_for_who_has_left(
    *, is_left: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, RESTARTS)
    start = BlockingCall(number=0, what="init_process_group", place=place(file, 4))
    again = replace(start, number=1)
    records = {0: record(0), 1: record(1)}
    records[0].items += [start, again]
    records[1].items += [start] if is_left else [start, again]
    asks = _if(file, 2, "leaves(turn)")
    for rank, each in records.items():
        ends = is_left and rank == 1
        each.ways = [
            BranchTaken(before=0, decision=asks, no=1),
            BranchTaken(before=1, decision=asks, yes=int(ends), no=int(not ends)),
        ]
    (found,) = add_reasons([finding("missing_participant", 0, 1)], records, str(tmp_path))
    shown = " ".join(each.words for each in found.notes)
    assert ("rank 1 alone takes the `break`:3 under `if leaves(turn)`" in shown) is is_left


SPLIT = """\
def answer(model, prompts):
    with state.split(prompts) as mine:
        for prompt in mine:
            gather(model(prompt))
    barrier()


def save(state, model):
    if state.is_main:
        barrier()
        barrier()


model = build(state)
kit.save(read(open("b")), model)
"""


def test_a_loop_over_what_a_with_gives_has_its_line(tmp_path: Path) -> None:
    file = script(tmp_path, SPLIT)
    loop = Decision(kind="for", file=file, line=3, text="for prompt in mine")
    turns = {0: 2, 1: 1}
    records = {
        rank: record(
            rank,
            *(call("all_gather", place(file, 4)) for _ in range(count)),
            call("barrier", place(file, 5)),
            ways=[BranchTaken(before=0, decision=loop, yes=count, no=1)],
        )
        for rank, count in turns.items()
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    shown = " ".join(each.words for each in found.notes)
    assert "`with state.split(prompts) as mine, :2`" in shown


def test_a_method_of_the_name_of_a_function_passes_it_nothing(tmp_path: Path) -> None:
    file = script(tmp_path, SPLIT)
    asks = replace(_if(file, 9, "state.is_main"), names=("state.is_main",))
    lines = {0: ("barrier", 10), 1: ("all_reduce", 15)}
    records = {
        rank: record(
            rank,
            call(operation, place(file, line)),
            ways=[BranchTaken(before=0, decision=asks, yes=1 - rank, no=rank)],
        )
        for rank, (operation, line) in lines.items()
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    shown = " ".join(each.words for each in found.notes)
    assert "`if state.is_main` (train.py:9)" in shown
    assert "comes from `" not in shown


WAY_PAST = """\
def keep(engine):
    if WAY:
        return
    engine.save("a")


for batch in loader:
    engine.step(batch)
    keep(engine)
"""


@pytest.mark.parametrize(
    ("way", "is_of_rank"),
    [
        *(("rank", True), ("self.global_rank > 0", True), ("loss > 3", False)),
        ("not (due := first(get_rank()))", True),
    ],
)
def test_a_way_out_of_some_ranks_past_a_call_for_all_asks_for_no_vote(
    way: str, *, is_of_rank: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, WAY_PAST.replace("WAY", way))
    asks = _if(file, 2, way)
    lines = {0: ("barrier", (4, 9)), 1: ("all_reduce", (8,))}
    records = {
        rank: record(
            rank,
            call("all_reduce", place(file, 8)),
            call(operation, place(file, *at)),
            ways=[BranchTaken(before=1, decision=asks, yes=rank, no=1 - rank)],
        )
        for rank, (operation, at) in lines.items()
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    assert ("let every rank come to train.py:4" in str(found.fix)) is is_of_rank
    assert ("an `all_reduce` of a flag" in str(found.fix)) is not is_of_rank


TOKENS = """\
def load(cache):
    if exists(cache):
        return read(cache)
    return make()


trainer = kit.Trainer(rows=load(cache))
trainer.train()
"""


def test_rows_that_a_loader_is_given_otherwise_have_the_if_behind_them(tmp_path: Path) -> None:
    file = script(tmp_path, TOKENS)
    records = apart_in_framework(file, 8)
    given = Decision(kind="given", file=file, line=7, text="rows=load(cache)", names=("Trainer",))
    for rank, each in records.items():
        each.changes = [
            FileChange(before=0, what="loads", path=str(6 - rank), place=place(file, 8))
        ]
        each.ways = [
            BranchTaken(before=0, decision=_if(file, 2, "exists(cache)"), yes=rank, no=1 - rank),
            BranchTaken(before=0, decision=given, yes=1, values=(f"{12 - 2 * rank} items",)),
        ]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert "has 6 batches on rank 0, 5 batches on rank 1, as `rows=load(cache)`" in told
    assert "behind it, `if exists(cache)` (train.py:2) is true on rank 1 alone" in told
    assert str(found.fix).startswith("let `rows=load(cache)` (train.py:7) be the same, or give")


STATISTICS = """\
def distribute(model):
    for buffer in buffers:
        all_reduce(buffer)


for epoch in epochs:
    train(model)
    if is_first(args):
        distribute(model)
"""


def test_a_loop_that_some_ranks_never_come_to_is_not_left_by_them(tmp_path: Path) -> None:
    file = script(tmp_path, STATISTICS)
    asks = _if(file, 8, "is_first(args)")
    turn = Decision(kind="for", file=file, line=2, text="for buffer in buffers")
    lines = {0: (3, 9), 1: (7,)}
    records = {
        rank: record(
            rank,
            call("all_reduce", place(file, 7)),
            call("all_reduce", place(file, *at)),
            ways=[
                BranchTaken(before=1, decision=asks, yes=1 - rank, no=rank),
                *([BranchTaken(before=1, decision=turn, yes=1)] if rank == 0 else []),
            ],
        )
        for rank, at in lines.items()
    }
    (found,) = add_reasons([finding("shape_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert "rank 0 alone goes into `if is_first(args)` (train.py:8)" in told
    assert "more turns" not in told


FILTERED = """\
def large(engine):
    return engine.output > 0.5


@trainer.on(event(large))
def tell(engine):
    all_reduce(engine.output)


def step(engine):
    loss.backward()


trainer.run(rows)
"""


def test_a_filter_that_answers_otherwise_is_told_with_what_it_reads(tmp_path: Path) -> None:
    file = script(tmp_path, FILTERED)
    answer = Decision(
        kind="answer",
        file=file,
        line=2,
        text="return engine.output > 0.5",
        names=("engine.output",),
    )
    lines = {0: (11, 14), 1: (7, 14)}
    records = {
        rank: record(
            rank,
            call("all_reduce", place(file, 11, 14)),
            call("all_reduce", place(file, *at)),
            ways=[
                BranchTaken(
                    before=1, decision=answer, yes=rank, no=1 - rank, values=(f"0.{rank}6",)
                )
            ],
        )
        for rank, at in lines.items()
    }
    (found,) = add_reasons([finding("dtype_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert "`return engine.output > 0.5` (train.py:2) is true on rank 1 alone" in told
    assert "which `large` answers with, where engine.output = 0.06 on rank 0" in told
    assert "let `large` (train.py:2) answer the same on all ranks" in str(found.fix)


SIZES = """\
def main():
    options = read(environ["LOCAL_RANK"])
    config = Config(options.batch_size)
    loader = DataLoader(rows, batch_size=config.batch_size)
    for row in loader:
        loss.backward()
    barrier()
"""


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("batch_size=config.batch_size", ("4", "2")),
        ("across_devices=config.both", ("True", "False")),
    ],
)
def test_a_loader_that_is_made_with_another_number_on_each_rank_has_it_and_its_way(
    text: str, values: Sequence[str], tmp_path: Path
) -> None:
    file = script(tmp_path, SIZES)
    read = Decision(kind="given", file=file, line=3, text="options.batch_size", names=("Config",))
    made = Decision(kind="given", file=file, line=4, text=text, names=("DataLoader",))
    turns = Decision(kind="for", file=file, line=5, text="for row in loader")
    records = {}
    for rank, count in ((0, 1), (1, 2)):
        passes = [call("all_reduce", place(file, 6), maker="bw") for _ in range(count)]
        records[rank] = record(rank, *passes, call("barrier", place(file, 7)))
        records[rank].changes = [
            FileChange(before=0, what="loads", path=str(count), place=place(file, 4))
        ]
        records[rank].ways = [
            BranchTaken(before=0, decision=read, yes=1, values=(values[rank],)),
            BranchTaken(before=0, decision=made, yes=1, values=(values[rank],)),
            BranchTaken(before=0, decision=turns, yes=count, no=1),
        ]
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    as_made = "as `options.batch_size`, passed to `Config` (train.py:3), is "
    assert (
        f"{as_made}{values[0]} on rank 0, {values[1]} on rank 1; behind it is `options = " in told
    )
    assert "let them agree on it first, or give the loader at train.py:4" in str(found.fix)


FROZEN = """\
class Model(Module):
    def __init__(self, weights):
        if exists(weights):
            self.embed.freeze()

    def forward(self, x):
        return self.embed(x)


model = Model(path)
optimizer = SGD([each for each in model.parameters() if each.trained])
model(x).backward()
"""


def test_what_a_class_decides_as_it_is_made_is_behind_what_its_objects_give(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, FROZEN)
    text = "[each for each in model.parameters() if each.trained]"
    given = Decision(kind="given", file=file, line=11, text=text, names=("SGD",))
    records = {
        rank: record(
            rank,
            call("all_gather", place(file, 12), maker="fw"),
            call(operation, place(file, *at), maker="fw"),
            ways=[
                BranchTaken(
                    before=0, decision=_if(file, 3, "exists(weights)"), yes=1 - rank, no=rank
                ),
                BranchTaken(before=0, decision=given, yes=1, values=(f"{4 + rank} items",)),
            ],
        )
        for rank, (operation, at) in enumerate((("all_gather", (7, 12)), ("reduce", (12,))))
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert "`if exists(weights)` (train.py:3) is true on rank 0 alone" in told
    assert str(found.fix).startswith("decide `if exists(weights)` (train.py:3) the same way")


UNUSED_HEAD = """\
class Model(Module):
    def forward(self, x, labels):
        loss = self.linear(x)
        if labels.max() > 2:
            loss = loss + self.second(x)
        return loss


train(Model())
"""


@pytest.mark.parametrize(("name", "is_told"), [("second.weight", True), ("third.weight", False)])
def test_an_if_that_no_rank_goes_into_leaves_out_the_parameters_under_it(
    name: str, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, UNUSED_HEAD)
    words = (
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting "
        f"a new one. [of the model's parameters, 2 is {name}]"
    )
    asks = _if(file, 4, "labels.max() > 2")
    records = {
        rank: record(
            rank,
            error=words,
            raised_at=place(file, 9),
            ways=[BranchTaken(before=0, decision=asks, no=1)],
        )
        for rank in (0, 1)
    }
    raised = replace(finding("outcome_differs", 0, 1), diagnosis=None, code="outcome_differs")
    told = explain_error(raised, records, str(tmp_path))
    shown = " ".join(each.words for each in told.notes)
    assert ("`if labels.max() > 2` (train.py:4) may leave a layer out" in shown) is is_told


STEP_OF_NONE = """\
class Detector:
    def __init__(self):
        self.head = Linear(8, 4)

    def training_step(self, boxes):
        if not boxes:
            return None
        return self.head(boxes)


trainer.fit(Detector())
"""


@pytest.mark.parametrize(("before", "is_told"), [(1, True), (0, False)])
def test_ranks_that_raise_in_a_framework_have_each_gone_into_an_if_for_the_first_time(
    before: int, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, STEP_OF_NONE)
    asks = _if(file, 6, "not boxes")
    records = {
        rank: record(
            rank,
            *[call("all_reduce", place(file, 11))] * (rank + 1),
            error="RuntimeError: None is not supported",
            raised_at=place(file, 11),
            ways=[
                BranchTaken(before=0, decision=asks, yes=1 - before, no=before),
                BranchTaken(before=rank + 1, decision=asks, yes=1),
            ],
        )
        for rank in (0, 1)
    }
    raised = replace(finding("outcome_differs", 0, 1), diagnosis=None, code="outcome_differs")
    told = explain_error(raised, records, str(tmp_path))
    shown = " ".join(each.words for each in told.notes)
    words = "before that, each of them takes the `return`:7 under `if not boxes` (train.py:6)"
    assert (words in shown) is is_told
    assert "self.head" not in shown


SAVES_IN_A_THREAD = """\
Thread(target=upload).start()
for step in range(4):
    if is_due(step):
        all_reduce(loss)
    barrier()
"""


@pytest.mark.parametrize(("before", "is_told"), [(1, True), (3, False)])
def test_a_thread_that_dies_after_ranks_have_parted_has_not_led_them_apart(
    before: int, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, SAVES_IN_A_THREAD)
    died = LostThread(before=before, name="Thread-1", words="OSError", raised_at=place(file, 1))
    met, other, last = (call(name, place(file, 5)) for name in ("barrier", "barrier", "barrier"))
    ways = [BranchTaken(before=1, decision=_if(file, 3, "is_due(step)"), yes=1)]
    records = {
        0: record(0, met, call("all_reduce", place(file, 4)), last, ways=ways),
        1: record(1, met, other, last, lost=[died], ways=[replace(ways[0], yes=0, no=1)]),
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    words = " ".join(each.words for each in found.notes)
    assert ("OSError" in words) is is_told
    assert ("rank 0 alone goes into `if is_due(step)` (train.py:3)" in words) is not is_told


PREPARES = """\
import os
def sets(rank):
    if rank == 0:
        os.makedirs(folder)
    if exists(rank):
        rows.append(hard)
    return rows
valid = sets(rank)
trainer.fit(model, valid)
"""


@pytest.mark.parametrize(("line", "is_told"), [(3, False), (5, True)])
def test_an_if_under_which_one_rank_makes_a_folder_makes_no_argument(
    line: int, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, PREPARES)
    ways = [BranchTaken(before=0, decision=_if(file, line, "x"), yes=1)]
    fit = [replace(place(file, 9), via=f"kit.py:{at}") for at in (7, 9)]
    records = {
        0: record(0, call("barrier", fit[0]), call("barrier", fit[0]), ways=ways),
        1: record(
            1,
            call("barrier", fit[0]),
            call("broadcast", fit[1]),
            ways=[replace(ways[0], yes=0, no=1)],
        ),
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert ("what train.py:9 uses is made by it" in told) is is_told


STREAMED = """\
def read(lines):
    for line in lines:
        if len(line) < 3:
            continue
        yield line
trainer = Trainer(data=read(lines))
trainer.train()
"""


def test_a_generator_that_leaves_out_items_on_one_rank_gives_ranks_other_numbers_of_steps(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, STREAMED)
    asks = _if(file, 3, "len(line) < 3")
    at = [replace(place(file, 7), via=f"kit.py:{line}") for line in (5, 9)]
    records = {
        rank: record(
            rank,
            call("all_reduce", at[0]),
            call("barrier" if rank else "all_reduce", at[rank]),
            ways=[BranchTaken(before=1, decision=asks, yes=rank, no=1)],
        )
        for rank in (0, 1)
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert "rank 1 alone takes the `continue`:4 under `if len(line) < 3` (train.py:3)" in told
    assert "as the one that has the fewest items left behind train.py:3" in str(found.fix)


TAGGED = """\
def tag(name):
    return {}(name) % 997
dist.send(loss, 1, tag=tag(name))
dist.recv(loss, 0, tag=tag(name))
"""


@pytest.mark.parametrize(("function", "is_told"), [("hash", True), ("stable_hash", False)])
def test_a_tag_by_the_hash_of_a_string_is_told(
    function: str, *, is_told: bool, tmp_path: Path
) -> None:
    file = script(tmp_path, TAGGED.format(function))
    sends, takes = call("send", place(file, 3), peer=1), call("recv", place(file, 4), peer=0)
    at = Mark(source=Source(path="", text=""), line=1, column=1, at="train.py:3")
    apart = replace(finding("tag_mismatch", 0, 1), notes=(Clause("rank 0 sends", at),))
    records = {0: record(0, sends), 1: record(1, takes)}
    reason = explain_message(apart, records, str(tmp_path))
    told = reason[0].words if reason is not None else ""
    assert ("the hash of a string is another one in each process" in told) is is_told
    assert ("`return hash(name) % 997` (train.py:2)" in told) is is_told


def test_an_error_of_the_connection_in_a_thread_follows_from_what_led_ranks_apart(
    tmp_path: Path,
) -> None:
    file = script(tmp_path, SAVES_IN_A_THREAD)
    words = "RuntimeError: Connection closed by peer [127.0.0.1]:1234"
    died = LostThread(before=1, name="Thread-1", words=words, raised_at=place(file, 1))
    met, last = (call("barrier", place(file, 5)) for _ in range(2))
    records = {
        0: record(0, met, call("all_reduce", place(file, 4)), last),
        1: record(1, met, last, lost=[died]),
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    assert "Connection closed" not in " ".join(each.words for each in found.notes)


BLOCKS = """\
def count_fitting(pool):
    count = 0
    for size in sizes:
        if pool.free < size:
            break
        count += 1
    return count
def poll(pool):
    if rank == 0 and sent:
        pool.free += 1
fitting = count_fitting(pool)
if fitting == 0:
    gather()
reduce()
"""


def test_what_is_set_past_an_if_goes_by_the_if_around_what_that_one_reads(tmp_path: Path) -> None:
    file = script(tmp_path, BLOCKS)
    asks = replace(_if(file, 12, "fitting == 0"), names=("fitting",))
    polls, fits = _if(file, 9, "rank == 0 and sent"), _if(file, 4, "pool.free < size")
    records = {
        rank: record(
            rank,
            call("all_reduce", place(file, 14)),
            call("gather" if rank else "all_reduce", place(file, 13 if rank else 14)),
            ways=[
                BranchTaken(before=1, decision=polls, yes=1 - rank, no=rank),
                BranchTaken(before=1, decision=fits, yes=rank, no=2 * (1 - rank)),
                BranchTaken(
                    before=1, decision=asks, yes=rank, no=1 - rank, values=(str(2 * (1 - rank)),)
                ),
            ],
        )
        for rank in (0, 1)
    }
    (found,) = add_reasons([finding("call_mismatch", 0, 1)], records, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert "`pool.free += 1` (train.py:10), under `if rank == 0 and sent` (train.py:9)" in told


BATCHES = """\
def push(hidden, mask):
    batch_isend_irecv([P2POp(isend, hidden, 1), P2POp(isend, mask, 1)])
def pull(mask, hidden):
    batch_isend_irecv([P2POp(irecv, mask, 0), P2POp(irecv, hidden, 0)])
"""


@pytest.mark.parametrize("taken", [2, 1])
def test_messages_in_another_order_are_told_where_their_receiver_dies_at_the_first(
    tmp_path: Path, taken: int
) -> None:
    file = script(tmp_path, BATCHES)
    sends = [call("send", place(file, 2), peer=1, rows=rows) for rows in (768, 24)]
    takes = [call("recv", place(file, 4), peer=0, rows=rows) for rows in (24, 768)][:taken]
    records = {0: record(0, *sends), 1: record(1, *takes)}
    words = "rank 0 in `isend to 1` sends 768 elements; rank 1 in `irecv from 0` receives 24"
    apart = finding("shape_mismatch", 0, 1, words=words)
    reason = explain_message(apart, records, str(tmp_path))
    told = reason[0].words if reason is not None else ""
    assert "rank 0 sends 768 elements (train.py:2), then 24 elements (train.py:2)" in told
    assert "meet in the order in which they are made" in told
    assert "rank 1 receives 24 elements (train.py:4)" in told
