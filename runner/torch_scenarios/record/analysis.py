"""A record -> a scenario -> a verdict: the same analysis as of any other scenario.

Where the record of a rank ends, its program goes on (`truncated`): what is found is wrong whatever
comes later. The words are those of a person who wrote a script and states nothing.

    record          run a program, watch it, judge what it wrote
    judge_records   records of any origin: a live run, torch's dumps, an archive
    make_trace      what a run came to, as the observed trace of the verdict
"""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import Clause, LaunchError, ScenarioError
from torch_scenarios.language.document import load_content
from torch_scenarios.limits import DEFAULT, Limits, OverdueError
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.model.trace import Event, Failure, RankTrace, Trace
from torch_scenarios.pipeline.attempts import analyse, analyse_part, case_result
from torch_scenarios.pipeline.results import Result
from torch_scenarios.record.evidence.files import list_races
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.initialization import (
    JobStart,
    absent_ranks,
    find_in_start,
    read_claims,
    tell_nodes,
    tell_parent_error,
)
from torch_scenarios.record.evidence.reasons import (
    SINCE,
    add_reason,
    add_reasons,
    explain_absence,
    explain_anyone,
    explain_idle,
    explain_message,
    explain_parent,
    find_anyone,
    find_endless,
    find_endless_loop,
    find_late_rank,
    find_other_unit,
    list_own_ways,
    waits_for_items,
)
from torch_scenarios.record.evidence.reasons.remote_call import (
    explain_remote,
    find_workers,
    list_remote,
)
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.evidence.stack import know_killed
from torch_scenarios.record.evidence.standstill import STANDSTILL_S
from torch_scenarios.record.findings import (
    find_forked,
    find_joined,
    find_left_in_rpc,
    find_locked,
    find_refused_call,
    find_turning,
    tell_position,
    tell_rpc,
    verdict_on_records,
)
from torch_scenarios.record.format import (
    BlockingCall,
    LaunchRecord,
    RankRecord,
    RecordedCall,
    RecordedWait,
    is_record,
    know_exits,
    names_lost_peer,
    ranks_of_processes,
    read,
    read_file,
    read_starts,
    refusal,
    set_earlier_aside,
    signal_name,
    wait_in_backward,
)
from torch_scenarios.record.kernels.schedule import add_twins, take_last_step
from torch_scenarios.record.live import (
    ENDLESS_S,
    JOIN_S,
    JOINED,
    Launcher,
    RunEnd,
    RunOrder,
    place_of,
    prepare,
    run,
)
from torch_scenarios.record.mapped_file import EARLIER
from torch_scenarios.record.program import RecordedProgram, program_of
from torch_scenarios.record.scratch import SCRATCH
from torch_scenarios.verdict import Finding, Verdict


class JudgedRecord(Struct, frozen=True, kw_only=True):
    """What came of a record: its scenario, and the result with the words for a person.

    `scenario` is None where the record could not be made into one.
    """

    program: RecordedProgram
    scenario: Scenario | None
    result: Result

    @property
    def found(self) -> bool:
        """Whether something is wrong with the program."""
        return self.result.verdict.status == "FAILED"


class RecordedRun(Struct, frozen=True, kw_only=True):
    """A program that was run and recorded: its records, how it ran, and what came of it.

    `records` are by rank of the world, `notes` lines for a person, `path` the scenario that was
    written, `home` the folder that places such as `train.py:19` are relative to.
    """

    judged: JudgedRecord
    records: dict[int, RankRecord]
    ran: RunEnd
    notes: tuple[str, ...]
    path: Path
    home: str
    #: what ranks in no call wait for, and what helps
    waits: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every rank came to the end of the program, and nothing is wrong with it."""
        torn = any(record.truncated for record in self.records.values())
        return not (self.judged.found or self.ran.code or torn)

    @property
    def reason(self) -> str:
        """The first finding in a line, else the verdict's reason."""
        verdict = self.judged.result.verdict
        return next((each.title for each in verdict.findings), verdict.reason or "")


#: ranks whose rest is told, and calls of each
MOST_RESTS, MOST_NEXT = 8, 3

#: what a run is called off with where no rank came to communicate
NOTHING = "no rank communicated: nothing is recorded"


def record(
    order: RunOrder,
    *,
    notice: Callable[[str], None] = lambda _: None,
    start: Launcher | None = None,
    limits: Limits = DEFAULT,
) -> RecordedRun:
    """Run a program, judge its record and write its scenario beside that.

    Raises LaunchError where it cannot be started, NothingRecordedError where no rank communicates,
    KeyboardInterrupt where it is interrupted before.

    What is judged depends on how far the ranks came: not all of them met (`wrong_start`), they met
    and one is surely blocked, they ended. `start` is what starts the ranks, where not this program
    does. Fake ranks of a script that asks how often it was started are started once more where one
    has raised, as torchrun does it.
    """
    found = _record_once(order, notice, start, limits)
    raised = _find_restart(found) if order.fake and not order.restarts else ""
    if not raised:
        return found
    _run_first_start(replace(order, meets=True), notice, start, limits)
    again = _record_once(replace(order, restarts=1), notice, start, limits)
    line = (
        f"{raised}, and the script asks for {_RESTARTS}: all ranks were started once more, as by "
        "`torchrun --max-restarts 1`"
    )
    return replace(again, notes=(line, *again.notes))


#: how a script asks how often torchrun has started it before
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"


def _find_restart(found: RecordedRun) -> str:
    """Return which rank has raised where, in scripts that ask for their restarts; or nothing."""
    for rank, record in sorted(found.records.items()):
        frames = record.raised_at.frames
        scripts = [each for each in (script_at(file) for file, _, _ in frames) if each is not None]
        asks = any(
            isinstance(node, ast.Constant) and node.value == _RESTARTS
            for script in scripts
            for node in ast.walk(script.tree)
        )
        if record.error is not None and asks:
            return f"rank {rank} raised at {record.raised_at.short(found.home)}"
    return ""


def _run_first_start(
    order: RunOrder, notice: Callable[[str], None], start: Launcher | None, limits: Limits
) -> None:
    """Run a first start once more, so that its ranks write what real ones do before an error.

    A fake rank that waits for none of the others goes past the error of one of them, and writes
    snapshots of steps that no real rank would come to.
    """
    prepare(order.folder)
    run(order, Questions(order, order.folder / "scenario.yaml", limits), notice, start)


def _record_once(
    order: RunOrder, notice: Callable[[str], None], start: Launcher | None, limits: Limits
) -> RecordedRun:
    """Run a program, judge its record and write its scenario beside that."""
    path = order.folder / "scenario.yaml"

    prepare(order.folder, is_again=order.restarts > 0)
    ran = _run(order, Questions(order, path, limits), notice, start)
    if not is_record(order.folder):
        if ran.interrupted:
            raise KeyboardInterrupt
        started = bool(ran.launch.pids) or not order.own_launcher
        nodes = "" if started else tell_nodes(order.command)
        why = tell_parent_error(order.folder, " ".join(order.command), ran.code)
        raise NothingRecordedError(ran.code, why or nodes)
    is_cut_off = ran.interrupted or ran.timed_out  # a rank that imports for long has not come yet
    is_whole = order.ranks == tuple(range(order.world_size)) and not is_cut_off
    wrong = wrong_start(
        order.folder, ran.launch, order, is_whole=is_whole, is_cut_off=ran.timed_out
    )
    records = read_starts(order.folder) if wrong else read(order.folder)
    names = ranks_of_processes(records, ran.launch)
    ran.stacks = {names.get(rank, rank): each for rank, each in ran.stacks.items()}
    know_exits(records, ran.launch)
    know_killed(records, order.folder)
    if ran.stuck:
        _know_reducers(records)
    script, home = script_of(order, records)
    notes = tuple(_notes(order, records))
    if wrong:
        result = judge_start(records, path, _add_waits(wrong, ran, records, home), script=script)
        path.write_text(result.program.text, encoding="utf-8")
        return RecordedRun(
            judged=result, records=records, ran=ran, notes=notes, path=path, home=home
        )
    notes = (*notes, *_tell_earlier_start(order.folder, records, home))
    result = _judge_run(order, records, ran, path, notes=notes, limits=limits)
    if ran.stuck and not result.found and _know_backward(records):
        result = _judge_run(order, records, ran, path, notes=notes, limits=limits)
    result = add_why(result, records, home)
    notes = (*notes, *(() if result.found else _list_other_ways(records, home)))
    result = _add_processes(result, records, ran, home)
    ranks, outside = _find_outside(ran, records)
    waits = _explain_waits(ran, records, ranks, home)
    if outside and result.result.verdict.status == "INCONCLUSIVE":
        result = _put_reason(result, outside)
    elif outside:
        notes = (*notes, outside)
    result = _cut_off(result, ran, is_waiting=bool(waits))
    if ran.stuck and not order.own_launcher and not order.fake:
        if order.join:
            result, lines = _complete(order, records, result, start, limits)
        else:
            lines = [
                "`--join` runs it again with fake ranks, and tells what the ranks would do next"
            ]
        notes = (*notes, *lines)
    result, weighed = _word_kernels(order, result, records)
    notes = (*notes, *weighed)
    path.write_text(result.program.text, encoding="utf-8")
    return RecordedRun(
        judged=result, records=records, ran=ran, notes=notes, path=path, home=home, waits=waits
    )


def _explain_waits(
    ran: RunEnd, records: Mapping[int, RankRecord], ranks: Sequence[int], home: str
) -> tuple[str, ...]:
    """Return what ranks outside of any call wait for, and the program that has started them."""
    turning = [each for each in records.values() if each.turns_by_chance]
    if turning and (found := find_endless_loop(records, home)) is not None:
        return (*found[1], f"fix: {found[2]}")
    if ranks:
        stacks = {rank: ran.stacks.get(rank, "") for rank in ranks}
        parent = explain_parent(ran.parent, stacks, home, records)
        remote = explain_remote(records, ran.stacks, home)
        return (*parent, *(remote or explain_idle(records, stacks, ran.programs, home)))
    if not ran.stacks and (ran.left or ran.interrupted or ran.timed_out):
        return tuple(explain_parent(ran.parent, {}, home, records))
    return ()


def _add_waits(
    wrong: Sequence[Finding], ran: RunEnd, records: Mapping[int, RankRecord], home: str
) -> list[Finding]:
    """Return what keeps ranks apart, with what those wait for that never came."""
    outside, _ = _find_outside(ran, records)
    stacks = {rank: ran.stacks.get(rank, "") for rank in outside if rank in wrong[0].ranks}
    waits = explain_idle(records, stacks, ran.programs, home) if stacks else []
    words = [Clause(each) for each in waits if not each.startswith("fix: ")]
    fix = next((each.removeprefix("fix: ") for each in waits if each.startswith("fix: ")), "")
    return [add_reason(wrong[0], words, fix), *wrong[1:]] if words else list(wrong)


def _judge_run(
    order: RunOrder,
    records: Mapping[int, RankRecord],
    ran: RunEnd,
    path: Path,
    *,
    notes: tuple[str, ...],
    limits: Limits,
) -> JudgedRecord:
    """Return what is said of the records of a run, which real ranks show by how they ended too."""
    script, home = script_of(order, records)
    observed = None
    if not order.fake:
        observed = make_trace(
            records,
            {r: code for r, code in ran.launch.exits.items() if r not in ran.launch.stopped},
            backend="gloo",
            stuck=ran.stuck,
            duration_s=ran.duration_s,
            notes=notes,
        )
    return judge_records(
        records, path, script=script, observed=observed, folder=home, limits=limits
    )


def _add_processes(
    result: JudgedRecord, records: Mapping[int, RankRecord], ran: RunEnd, home: str
) -> JudgedRecord:
    """Return a result with what the processes show: forks, programs, and locks on files.

    None of these is a call of torch, so that no scenario has them: a worker of a DataLoader that
    all-reduces in the group of the rank it was forked from hangs with a record that is right.
    """
    names = ranks_of_processes(records, ran.launch)
    forked = {names.get(rank, rank): place for rank, place in ran.launch.forked.items()}
    joined = {names.get(rank, rank): each for rank, each in ran.launch.joined.items()}
    found = [
        each
        for each in (
            find_forked(records, forked, home),
            find_joined(records, joined, home),
            find_locked(records, ran.locks, home),
        )
        if each is not None
    ]
    return _put_first(add_unjudged(result, records, home), found)


def add_unjudged(
    result: JudgedRecord, records: Mapping[int, RankRecord], home: str
) -> JudgedRecord:
    """Return a result with what records alone show of calls that no scenario has.

    These are waits for workers of an RPC world, and calls that torch has refused.
    """
    found = [
        find_workers(records, home),
        find_turning(records, home),
        find_left_in_rpc(records, home) if not result.found else None,
        find_refused_call(records, home) if not result.found else None,
    ]
    return _put_first(result, [each for each in found if each is not None])


def _put_first(result: JudgedRecord, found: Sequence[Finding]) -> JudgedRecord:
    """Return a result that begins with other findings; as it is where there are none."""
    if not found:
        return result
    verdict = result.result.verdict
    verdict = replace(verdict, status="FAILED", reason=None, findings=(*found, *verdict.findings))
    return replace(result, result=replace(result.result, verdict=verdict))


def _word_kernels(
    order: RunOrder, result: JudgedRecord, records: Mapping[int, RankRecord]
) -> tuple[JudgedRecord, tuple[str, ...]]:
    """Return a result whose scenario is a step with its kernels, where these were reckoned."""
    if not order.gpu or result.found:
        return result, ()
    script, home = script_of(order, records)
    program = program_with_times(records, script=script, folder=home)
    path = order.written or order.folder / "scenario.yaml"
    words = f"`scenario cost {path} --topology {order.gpu['machine']}` weighs the step"
    return replace(result, program=program), (*program.notes, words)


def program_with_times(
    records: Mapping[int, RankRecord], *, script: str = "", folder: str = ""
) -> RecordedProgram:
    """Return the last step of records with the times of its kernels, for all ranks of the world.

    The first steps compile, allocate and warm up; `take_last_step` takes the one between the last
    two `optimizer.step()`. Ranks that were not run are twins of those that were, moved along the
    mesh.
    """
    steps = {rank: take_last_step(record) for rank, record in records.items()}
    whole = add_twins(steps)
    about = "one step of an optimizer, in the order of the GPU; kernels are reckoned, not measured"
    program = program_of(
        steps if whole is None else whole,
        name=Path(script).stem or "recorded",
        about=about,
        folder=folder,
        is_timed=True,
    )
    if whole is None:
        note = "a group of a rank is not along a dimension of a mesh: record all ranks"
        program = replace(program, notes=(*program.notes, note))
    return program


def _know_reducers(records: Mapping[int, RankRecord]) -> None:
    """Let records of a stuck run know that what C++ made last, it still waits for.

    DDP's reducer calls c10d from C++ (torch/csrc/distributed/c10d/reducer.cpp), where no end of a
    call reaches the recorder.
    """
    for each in records.values():
        last = each.items[-1] if each.items else None
        is_last = each.truncated and not each.turns_at.frames
        if is_last and isinstance(last, RecordedCall) and last.maker == Maker.CPP:
            each.inside = True


def _know_backward(records: Mapping[int, RankRecord]) -> bool:
    """Let ranks of a stuck run wait for what their backward passes have begun, if any has."""
    return bool([rank for rank, each in records.items() if wait_in_backward(each)])


#: diagnoses of programs that are wrong, and go on
_GOING_ON = frozenset(
    {
        *("message_race", "buffer_race", "missing_wait", "double_wait", "undefined_read"),
        "op_mismatch",
    }
)


def _is_block(finding: Finding) -> bool:
    """Whether no rank goes on because of what is found."""
    return finding.diagnosis not in _GOING_ON


class Questions(Struct, frozen=True):
    """What is asked of a record while its program runs.

    The run is ended early only on a proof: that a rank is blocked whatever comes later. A quiet
    rank may compute, load data or write a checkpoint.
    """

    order: RunOrder
    path: Path
    limits: Limits

    def blocks(self, records: Mapping[int, RankRecord]) -> bool:
        """Whether a rank is surely blocked.

        The record so far is a scenario in which every rank goes on (`truncated`), so that a rank
        which has not come yet is no reason: two calls that met and do not fit are.
        """
        script, home = script_of(self.order, records)
        try:
            result = judge_records(
                records, self.path, script=script, folder=home, limits=self.limits
            )
        except (ScenarioError, OverdueError):  # of half a record there may be no program yet
            return False
        found = any(_is_block(each) for each in result.result.verdict.findings)
        of_rpc = find_left_in_rpc(records, home) or find_workers(records, home)
        return found or of_rpc is not None or find_turning(records, home) is not None

    def explain(
        self,
        records: Mapping[int, RankRecord],
        stacks: Mapping[int, str],
        programs: Mapping[int, str],
    ) -> Sequence[str]:
        """Return what ranks outside of any call wait for, and what helps."""
        home = script_of(self.order, records)[1]
        return explain_idle(records, stacks, programs, home)

    def endless(
        self,
        records: Mapping[int, RankRecord],
        stacks: Mapping[int, str],
        programs: Mapping[int, str],
    ) -> Sequence[int]:
        """Return which of these ranks wait for what nothing outside of the job gives them."""
        home = script_of(self.order, records)[1]
        return find_endless(records, stacks, programs, home)

    def leaves(self, stack: str) -> bool:
        """Whether the program that has started the ranks waits for what they would put there."""
        return waits_for_items(stack)

    def never_meets(self, launch: LaunchRecord, *, is_whole: bool) -> bool:
        """Whether the ranks can never meet in `init_process_group`."""
        return bool(wrong_start(self.order.folder, launch, self.order, is_whole=is_whole))


def wrong_start(
    folder: Path,
    launch: LaunchRecord,
    order: RunOrder | None = None,
    *,
    is_whole: bool = False,
    is_cut_off: bool = False,
) -> list[Finding]:
    """Return what keeps the ranks of a record apart at their start.

    `init_process_group` waits for `world_size` processes under one address. Each process writes
    down what it asks for (`evidence.claim`) before it waits: two that claim rank 0, another port, a
    world of another size. `is_whole` says that no other process can still come, `is_cut_off` that
    the run was ended before it was over.
    """
    claims = read_claims(folder)
    if not claims:
        return []
    records = read_starts(folder)
    home = (script_of(order, records) if order is not None else find_script(records))[1]
    exits = {r: code for r, code in launch.exits.items() if r not in launch.stopped}
    absent = absent_ranks(records, claims, exits if is_cut_off else launch.exits)
    is_again = any(each.has_old_store for each in claims)
    found = find_in_start(
        JobStart(
            claims=claims,
            earlier=read_claims(folder, EARLIER) if is_again else (),
            why_again=tuple(_tell_earlier_start(folder, records, home)) if is_again else (),
            absent=absent,
            is_whole=is_whole,
            is_cut_off=is_cut_off,
            now_s=time.time(),
            home=home,
        )
    )
    gone = [rank for rank in absent if rank in records and records[rank].error is None]
    why = explain_absence(records, gone, home) if gone and found else None
    if why is None or not {*gone} <= {*found[0].ranks}:
        return found
    return [replace(found[0], notes=(*found[0].notes, why)), *found[1:]]


def _tell_earlier_start(
    folder: Path, records: Mapping[int, RankRecord], home: str
) -> Iterator[str]:
    """Yield how the start before ended, where a launcher has begun the ranks again."""
    launch = next((each.about.get("launch") for each in records.values()), None)
    for path in sorted(folder.glob(f"{EARLIER}rank-*.jsonl")):
        record = read_file(path)
        error = record.error or ""
        if record.about.get("launch") != launch and error and not names_lost_peer(error):
            where = record.raised_at.short(home)
            place = f" ({where})" if where else ""
            yield f"rank {record.rank} raised {error}{place}, and all ranks were started again"
            return


def judge_start(
    records: Mapping[int, RankRecord], path: Path, wrong: Sequence[Finding], *, script: str
) -> JudgedRecord:
    """Return the verdict on ranks that never met: there is no program of theirs yet.

    Its scenario is one of all ranks and no steps, so that reports need no other case.
    """
    empty = {
        rank: RankRecord(rank=rank, world_size=each.world_size, about=each.about)
        for rank, each in records.items()
    }
    result = judge_records(empty, path, script=script)
    verdict = replace(
        result.result.verdict, status="FAILED", findings=tuple(wrong), reason=None, notes=()
    )
    return replace(result, result=replace(result.result, verdict=verdict))


def _run(
    order: RunOrder, asked: Questions, notice: Callable[[str], None], start: Launcher | None
) -> RunEnd:
    """Run a program, and keep the records of its newest launch where it was started anew.

    torchrun with `--max-restarts` starts all ranks again after one has failed.
    """
    ran = run(order, asked, notice, start)
    if order.own_launcher:
        set_earlier_aside(order.folder)
    return ran


def _list_other_ways(records: Mapping[int, RankRecord], home: str) -> list[str]:
    """Return where another run may go another way, though nothing is wrong in this one."""
    return [*list_races(records, home), *list_own_ways(records, home)]


#: ranks outside of any call that are named with their places
MOST_OUTSIDE = 8


def _find_outside(ran: RunEnd, records: Mapping[int, RankRecord]) -> tuple[Sequence[int], str]:
    """Return which ranks were outside of any call at the end, and in words where; or nothing."""
    if ran.launch.outside:
        ranks = ran.launch.outside
        why = f"no rank moved any more for {STANDSTILL_S:.0f} s, and the run was ended; a live run"
        why += " goes on where something may still come"
    elif ran.endless:
        ranks = ran.endless
        why = f"nothing moved any more for {ENDLESS_S:.0f} s, and the run was ended"
    elif ran.timed_out or ran.interrupted:
        own = ranks_of_processes(records, ran.launch)
        ended = {own[rank] for rank in ran.launch.exits}
        ranks = tuple(
            r
            for r, each in records.items()
            if each.truncated and (not each.inside or r in list_remote(records)) and r not in ended
        )
        why = f"the run was {'ended at --max-seconds' if ran.timed_out else 'interrupted'}"
    else:
        return (), ""
    alike: dict[tuple[str, str], list[int]] = {}
    remote = list_remote(records)
    for rank in sorted(ranks):
        where = "in a remote procedure call" if rank in remote else "outside of any call"
        alike.setdefault((where, place_of(ran.stacks.get(rank, ""))), []).append(rank)
    lines = [
        f"{_word_several(who)} {'is' if len(who) == 1 else 'are'} {where}"
        + (f", at {place}" if place else "")
        for (where, place), who in [*alike.items()][:MOST_OUTSIDE]
    ]
    return ranks, "; ".join([*lines, why]) if lines else ""


#: diagnoses of messages whose two ends do not fit
OF_MESSAGE = frozenset({"dtype_mismatch", "shape_mismatch"})


def add_why(result: JudgedRecord, records: Mapping[int, RankRecord], home: str) -> JudgedRecord:
    """Return a result whose first finding says where the ranks part, and why.

    "Rank 1 does not come to this all_reduce" is what the calls show. Why, the script shows: rank 1
    left the loop at `if loss < best:`, which was true on it alone. Reasons come from the notes that
    traced code took (`evidence.reasons`).
    """
    verdict = result.result.verdict
    late = find_late_rank(records, home)
    if late is not None and not any(each.diagnosis for each in verdict.findings):
        why = explain_absence(records, late.ranks[-1:], home)  # what took the late one so long
        if why is not None and not any(each.words.startswith(SINCE) for each in late.notes):
            late = replace(late, notes=(*late.notes, why))
        verdict = replace(verdict, status="FAILED", reason=None, findings=(late,))
    unsent = None if verdict.findings else find_anyone(records, home) or find_other_unit(records)
    if unsent is not None:
        verdict = replace(verdict, status="FAILED", reason=None, findings=(unsent,))
    listed = [explain_anyone(each, records, home) for each in verdict.findings]
    findings = [*add_reasons(listed, records, home)]
    for at, each in enumerate(findings):
        reason = explain_message(each, records, home)
        if reason is not None:
            # two ends of a message are in lines of their own: that ranks part there is no reason
            about = listed[at] if each.diagnosis in OF_MESSAGE else each
            findings[at] = add_reason(about, [reason[0]], reason[1])
            break
    verdict = replace(verdict, findings=tuple(findings))
    return replace(result, result=replace(result.result, verdict=verdict))


def _cut_off(result: JudgedRecord, ran: RunEnd, *, is_waiting: bool) -> JudgedRecord:
    """Return a result that is in doubt where nothing is wrong in a run that was ended before.

    `is_waiting` says that something of it waits, also where it is interrupted.
    """
    verdict = result.result.verdict
    is_over = ran.timed_out or ran.endless or ran.left or (ran.interrupted and is_waiting)
    if verdict.status != "PASSED" or not is_over:
        return result
    when = "at --max-seconds" if ran.timed_out else "where nothing moved any more"
    when = "by its user" if ran.interrupted else when
    words = (
        f"the run was ended {when}, before each rank and what it started came to an end; "
        "up to there the ranks communicate as they should"
    )
    verdict = replace(verdict, status="INCONCLUSIVE", reason=words)
    return replace(result, result=replace(result.result, verdict=verdict))


def _put_reason(result: JudgedRecord, words: str) -> JudgedRecord:
    """Return a result that is in doubt with a better reason for that."""
    verdict = replace(result.result.verdict, reason=words)
    return replace(result, result=replace(result.result, verdict=verdict))


def _complete(
    order: RunOrder,
    records: Mapping[int, RankRecord],
    result: JudgedRecord,
    start: Launcher | None,
    limits: Limits,
) -> tuple[JudgedRecord, list[str]]:
    """Return what came of a stuck record whose rest is known, and the rest of each rank in words.

    The script runs once more, on fake ranks: where each rank's record is how that begins, that is
    the whole program, of which the record is the part that was done.

    Fake ranks communicate nothing and so are never blocked: they show what each rank would have
    called next. A script whose way depends on what it receives goes another way on them, which is
    noticed where its first calls differ from the record.
    """
    folder = order.folder / JOINED
    script, home = script_of(order, records)
    jobs = min(os.cpu_count() or 1, 8)
    again: RunOrder = replace(
        order, folder=folder, fake=True, jobs=jobs, keep=False, max_seconds=JOIN_S, silent=True
    )
    try:
        prepare(folder)
        run(again, Questions(again, folder / "scenario.yaml", limits), lambda _: None, start)
        whole = read(folder)
    except (LaunchError, ScenarioError, OverdueError) as error:
        return result, [f"it is not joined with fake ranks: {error}"]
    for rank, record in sorted(records.items()):
        own, all_of_it = record.calls, whole[rank].calls if rank in whole else []
        for at, call in enumerate(own):
            if at >= len(all_of_it) or _describe_call(call) != _describe_call(all_of_it[at]):
                text = f"{call.operation} ({call.place.short(home)})"
                words = f"fake ranks go another way than the run: rank {rank} at {text}"
                return result, [f"{words}; see {folder / 'output.log'}"]
    observed = result.result.verdict.observed
    path = order.folder / "scenario.yaml"
    found = judge_records(whole, path, script=script, observed=observed, folder=home, limits=limits)
    found = add_why(found, whole, home)
    alike: dict[str, list[int]] = {}
    for rank, record in sorted(records.items()):
        rest = _word_next_calls(whole[rank].calls[len(record.calls) :], home)
        alike.setdefault(rest, []).append(rank)
    shown = [
        f"{_word_several(ranks)} would go on with {rest}"
        for rest, ranks in [*alike.items()][:MOST_RESTS]
    ]
    if len(alike) > MOST_RESTS:
        shown.append(f"other ranks go on otherwise: `scenario import {folder}` has all")
    chosen = found if found.found else result
    verdict = replace(chosen.result.verdict, notes=(*chosen.result.verdict.notes, *shown))
    return replace(chosen, result=replace(chosen.result, verdict=verdict)), shown


def _describe_call(call: RecordedCall) -> tuple[Any, ...]:
    """Return what is the same of a call on real ranks and on fake ones.

    Not its values, nor its memory.
    """
    tensors = tuple((each.dtype, each.shape) for each in call.inputs or call.outputs)
    return call.operation, call.group, call.peer, call.root, call.tag, tensors


def _word_next_calls(calls: Sequence[RecordedCall], home: str) -> str:
    """Return the next calls of a rank in words, the first few with their places."""
    if not calls:
        return "no other call"
    lines = [f"{call.operation} ({call.place.short(home)})" for call in calls[:MOST_NEXT]]
    more = len(calls) - len(lines)
    return ", ".join(lines) + (f", and {more} more call{'s' * (more > 1)}" if more else "")


class NothingRecordedError(Exception):
    """No rank came to communicate; `code` is what the script ended with.

    It is no error of the program: a script that prints its usage and leaves is one.
    """

    def __init__(self, code: int, why: str = "") -> None:
        """Keep the exit code; `why` says what the launcher waits for."""
        super().__init__(why or NOTHING)
        self.code = code


def script_of(order: RunOrder, records: Mapping[int, RankRecord]) -> tuple[str, str]:
    """Return the script of a run, and the folder that its places are relative to."""
    if order.own_launcher:
        return find_script(records)
    script = order.command[0]
    return script, str(Path.cwd() if order.module else Path(script).absolute().parent)


def find_script(records: Mapping[int, RankRecord], otherwise: str = "") -> tuple[str, str]:
    """Return the script that the records name, and the folder that it is in."""
    about = next(iter(records.values())).about
    argv, cwd = about.get("argv"), Path(str(about.get("cwd", "")))
    path = Path(str(argv[0]) if isinstance(argv, list) and argv else otherwise)
    home = str((cwd / path).parent)
    if path.is_absolute() and path.is_relative_to(cwd):
        path = path.relative_to(cwd)
    return str(path), home


def _notes(order: RunOrder, records: Mapping[int, RankRecord]) -> list[str]:
    notes = []
    if order.cuda_as_cpu:
        notes.append("the CPU replaced every CUDA device (--cuda-as-cpu)")
    if order.fake:
        notes.append(
            f"on fake ranks nothing is sent: {len(records)} of {order.world_size} ranks were run, "
            "each by itself"
        )
        if any((order.folder / SCRATCH / "copies").glob("*")):
            notes.append(
                f"the files that the script writes are in {order.folder / SCRATCH}, its own are as "
                "they were (`--writes-allowed` writes them)"
            )
    notes += tell_rpc(records)
    notes += sorted({note for each in records.values() for note in each.notes})
    return notes


def judge_records(
    records: Mapping[int, RankRecord],
    path: Path,
    *,
    script: str,
    observed: Trace | None = None,
    about: str = "",
    folder: str = "",
    limits: Limits = DEFAULT,
    see: Callable[[Scenario], Scenario] = lambda each: each,
) -> JudgedRecord:
    """Return the verdict on the records of a program; its scenario would stand at `path`.

    `script` is the name of the result, `folder` the one that places are relative to, `see` may say
    where the scenario's steps stand. `observed` is what the run came to, if it was seen.

    The scenario is written and read back, so that what is judged is what a person gets as a file.
    """
    name = Path(script).stem or "recorded"
    program = program_of(add_stand_ins(records), name=name, about=about, folder=folder)
    # the record is the user's own run: its world is as large as it is
    world = max((each.world_size for each in records.values()), default=1)
    limits = replace(limits, max_ranks=max(limits.max_ranks, world))
    try:
        (read_back,) = load_content(path, program.text.encode(), limits=limits)
    except ScenarioError as error:
        words = f"what it holds is not a program: {error.problems[0].message}"
        raise refusal(path.parent, "bad_record", words) from None
    scenario = see(read_back)
    analysis = (analyse if len(records) == world else analyse_part)(scenario, limits)
    verdict = verdict_on_records(analysis.verdict, records, folder)
    verdict = replace(
        verdict, observed=observed, notes=(*verdict.notes, *program.notes), silently_wrong=False
    )
    verdict = _doubt(verdict, records, scenario, folder)
    result = replace(case_result(scenario, verdict, analysis.duration_s), file=script, case=script)
    return JudgedRecord(program=program, scenario=scenario, result=result)


def add_stand_ins(records: Mapping[int, RankRecord]) -> dict[int, RankRecord]:
    """Return the records, and for a rank without one what it must have done.

    That is its part in collectives that completed on a rank that is recorded: without all members
    they would not have. It waits for them where that rank does. What else it did is unknown.

        rank 0   all_reduce (world) done   all_reduce (world) done   barrier ...   recorded
        rank 1   all_reduce                all_reduce                ?             assumed

    So a dump of one rank of 1,024 can be judged: what is wrong with that rank's own calls shows.
    """
    found = dict(records)
    world = max((each.world_size for each in records.values()), default=0)
    if len(records) == world:
        return found
    ended = {rank: list(_list_completed(record)) for rank, record in records.items()}
    known = {
        rank: [(gid, about, frozenset(about[1])) for gid, about in record.groups.items()]
        for rank, record in records.items()
    }
    items: dict[tuple[int, tuple[int, ...]], list[Any]] = {}
    for rank in range(world):
        if rank in records:
            continue
        parts = {
            other: tuple(at for at, (group, _) in enumerate(groups) if rank in group)
            for other, groups in ended.items()
        }
        source = max(parts, key=lambda other: sum(len(ended[other][at][1]) for at in parts[other]))
        if not parts[source]:
            continue
        kept = items.get((source, parts[source]))
        if kept is None:
            calls = [call for at in parts[source] for call in ended[source][at][1]]
            kept = items[source, parts[source]] = list(_list_part(records[source], calls))
        found[rank] = RankRecord(
            rank=rank,
            world_size=world,
            items=kept,
            groups={gid: about for gid, about, members in known[source] if rank in members},
            about={"mode": "assumed"},
        )
    return found


def _list_part(record: RankRecord, calls: Collection[RecordedCall]) -> Iterator[Any]:
    """Yield some calls of a rank, the waits for them, and what else may block it, in its order."""
    chosen = {id(call) for call in calls}
    numbers = {call.number for call in calls}
    for item in record.items:
        if isinstance(item, RecordedWait):
            if own := tuple(number for number in item.numbers if number in numbers):
                yield replace(item, numbers=own)
        elif isinstance(item, BlockingCall) or id(item) in chosen:
            yield item


def _list_completed(record: RankRecord) -> Iterator[tuple[frozenset[int], list[RecordedCall]]]:
    """Yield the members of each group of a rank, and the collectives of it that completed."""
    found: dict[int, list[RecordedCall]] = {}
    groups: dict[int, tuple[int, ...]] = {}
    for call in record.calls:
        if call.ended_us is not None and call.peer is None and call.failed is None:
            groups[id(call.group)] = call.group
            found.setdefault(id(call.group), []).append(call)
    for key, calls in found.items():
        yield frozenset(groups[key]), calls


def _doubt(
    verdict: Verdict, records: Mapping[int, RankRecord], scenario: Scenario, folder: str
) -> Verdict:
    """Return INCONCLUSIVE where nothing was found and the record is not the whole program.

    PASSED would say that the program is right. Of a part of it no more is known than that this part
    is.
    """
    if verdict.status == "INVALID":
        words = "; ".join(each.message for each in verdict.problems[:2])
        return replace(verdict, status="INCONCLUSIVE", reason=f"it cannot be analysed: {words}")
    if verdict.status != "PASSED":
        return verdict
    if not any(each.calls for each in records.values()):
        words = _tell_raised(records, folder)
        words = words or ("remote procedure calls are not judged" if tell_rpc(records) else "")
        words = words or "a script that finds no device, or no data, may leave early"
        return replace(verdict, status="INCONCLUSIVE", reason=f"{NOTHING}; {words}")
    for rank, lines in ((rank, each.racing) for rank, each in records.items() if each.racing):
        words = (
            f"two threads of rank {rank} communicate in one group ({lines}), and the main one goes "
            "on while the other does: their order is right in this run, and may not be in the next"
        )
        return replace(verdict, status="INCONCLUSIVE", reason=words)
    waiting = [rank for rank, each in records.items() if each.returned and each.ending == "stopped"]
    if waiting and not scenario.truncated:
        words = (
            f"nothing is wrong with what the ranks call; {_word_several(waiting)} "
            f"{'waits' if len(waiting) == 1 else 'wait'} in the part of the script that starts the "
            "ranks, which each fake rank does for itself"
        )
        return replace(verdict, status="INCONCLUSIVE", reason=words)
    if not scenario.truncated:
        return verdict
    missing = sorted(set(range(scenario.world_size)) - records.keys())
    ended = [rank for rank in sorted(scenario.truncated) if rank in records]
    if missing:
        are, do = ("is", "it does") if len(records) == 1 else ("are", "these do")
        reason = (
            f"{len(records)} of {scenario.world_size} ranks {are} recorded: nothing is wrong with "
            f"what {do}; {_word_several(missing)} {'is' if len(missing) == 1 else 'are'} unknown"
        )
    else:
        reason = (
            f"the record of {_word_several(ended)} ends before the program does, and nothing is "
            "wrong with what is in it"
        )
        raised = _tell_raised(records, folder)
        reason += f"; {raised}" if raised else ""
    return replace(verdict, status="INCONCLUSIVE", reason=reason)


def _tell_raised(records: Mapping[int, RankRecord], folder: str) -> str:
    """Return what the first rank that raised has raised, and where; nothing where none did."""
    raised = next((each for each in records.values() if each.error is not None), None)
    if raised is None:
        return ""
    where = raised.raised_at.short(folder)
    return f"rank {raised.rank} raised {raised.error}" + (f" ({where})" if where else "")


def _word_several(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:6]))
    more = f" and {len(ranks) - 6} more" if len(ranks) > 6 else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {shown}{more}"


# -------------------------------------------------------------------------------------------------
# What was observed while it ran.


def make_trace(
    records: Mapping[int, RankRecord],
    exits: Mapping[int, int],
    *,
    backend: str,
    stuck: bool,
    duration_s: float,
    notes: Sequence[str] = (),
) -> Trace:
    """Return what a run came to, as a trace: which rank ended how, and where it stood.

    Each rank has one event, its last: what came before is in the records, and needs no second
    witness.
    """
    ranks = []
    for rank, record in sorted(records.items()):
        ending, died, failure = "finished", None, None
        last = tell_position(record)
        code = exits.get(rank)
        if stuck and record.ending == "stopped" and record.inside:
            ending = "blocked"
        elif record.error is not None:
            ending = "raised"
            failure = Failure(kinds=("other",), message=record.error, own=True)
        elif code is not None and code < 0:
            ending, died = "died", signal_name(-code)
        elif code:
            ending, died = "died", f"exit {code}"
        elif record.ending == "stopped":
            ending = "possibly_blocked"
        event = Event(
            index=-1,
            label=last,
            state="blocked" if ending == "blocked" else "done",
            failure=failure,
            end_s=record.last_us / 1e6,
        )
        ranks.append(RankTrace(rank=rank, ending=ending, died=died, events=(event,)))
    endings = {each.ending for each in ranks}
    outcome = "completes"
    if "died" in endings and not stuck:
        outcome = "crash"
    elif "raised" in endings and not stuck:
        outcome = "error"
    elif stuck or "blocked" in endings or "possibly_blocked" in endings:
        outcome = "deadlock"
    return Trace(
        backend=backend,
        outcome=outcome,
        ranks=tuple(ranks),
        duration_s=duration_s,
        notes=tuple(notes),
    )
