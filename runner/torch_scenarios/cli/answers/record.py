"""What `scenario record`, `import` and `diff` do: programs as they are, recorded and judged."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from msgspec import to_builtins
from msgspec.structs import replace

from torch_scenarios.cli.options import refuse, refuse_usage, write_text
from torch_scenarios.cost.topology import topology
from torch_scenarios.display import clean, clean_line
from torch_scenarios.errors import LaunchError, ScenarioError
from torch_scenarios.explain import explanation
from torch_scenarios.pipeline.interruption import interrupt_on_termination
from torch_scenarios.pipeline.results import Outcome
from torch_scenarios.record import analysis
from torch_scenarios.record.analysis import JudgedRecord, RecordedRun
from torch_scenarios.record.difference import (
    CalledLine,
    ComparedProgram,
    ProgramDifference,
    difference_words,
    differences,
    sides_of,
)
from torch_scenarios.record.evidence.claim import make_environment
from torch_scenarios.record.evidence.flight_recorder import read_dumps
from torch_scenarios.record.evidence.job_log import find_in_log, log_lines, read_job_log
from torch_scenarios.record.evidence.nemesis import strike_calls
from torch_scenarios.record.evidence.script import closed_scripts, script_at
from torch_scenarios.record.evidence.stack import know_killed
from torch_scenarios.record.findings import position, tell_position
from torch_scenarios.record.format import (
    LaunchRecord,
    RankRecord,
    is_record,
    know_exits,
    normalise_lost_peer,
    read,
    read_launch,
    read_starts,
)
from torch_scenarios.record.live import (
    KEPT_FOR_PARITY,
    SEEN,
    RunOrder,
    make_value_environment,
    stack_of,
)
from torch_scenarios.record.values.deal import insert_batch
from torch_scenarios.record.values.further_run import UnsuitedError, disturb
from torch_scenarios.record.values.redeal import deal_again
from torch_scenarios.record.values.verdict import (
    NOT_COMPARED,
    ValueVerdict,
    judge_folder,
    lines_of_values,
)
from torch_scenarios.report.html.page import changes, compare_pages, content_of, is_page
from torch_scenarios.report.json import text
from torch_scenarios.verdict import Finding, Verdict
from torch_scenarios.verdict.finding import among_text

INCONCLUSIVE, FOUND = 3, 1
#: what a script has that may start its ranks itself
STARTS_RANKS = re.compile(r"\b(?:mp|multiprocessing)\.spawn\(")
#: ranks whose stacks are shown, and lines of each
MOST_STACKS, MOST_LINES = 4, 6
#: different positions of ranks that are shown
MOST_POSITIONS = 16
#: kind of redeal -> what further runs do
FURTHER = {
    "rows": "two more runs deal the same batches to other ranks",
    "ranks": "two more runs pass whole batches on to other ranks",
    "micro": "two more runs deal the rows of each step to its microbatches",
    "world": "two more runs have half as many ranks, and rows in another order",
    "resume": "two more runs stop after a checkpoint, and go on from it",
}


def record(options: Mapping[str, Any]) -> None:
    """Record a script and judge it, and leave with the exit code; or print how to record.

    --attach            prints the variables under which any program records itself
    a script, -m NAME   is started here, `-n` ranks of it
    torchrun ...        starts the ranks itself, and is watched
    """
    folder = Path(options["folder"] or tempfile.mkdtemp(prefix="scenario-record-"))
    if options["attach"]:
        folder = Path(options["folder"] or "scenario-record").absolute()
        values = make_value_environment(_values(options))
        for name, value in (
            make_environment(folder, os.environ.get("PYTHONPATH", "")) | values
        ).items():
            click.echo(f"export {name}={shlex.quote(value)}")
        click.echo(f"# then run your program, and `scenario import {folder}`", err=True)
        return
    command = tuple(options["command"])
    module = options["module"] or command[:1] == ("-m",)  # as `python -m` and `torchrun -m` have it
    command = command[command[:1] == ("-m",) :]
    if not command:
        refuse_usage("there is nothing to record: write `scenario record -n 4 -- train.py`")
    _require_values(options, command)
    if options["nemesis"] and options["fake"]:
        refuse_usage("`--nemesis` needs ranks that wait for each other: leave `--fake` out")
    gpu = _gpu(options)
    world = options["world_size"] or (2 if not options["fake"] else 8)
    order = RunOrder(
        command=command,
        folder=folder,
        world_size=world,
        ranks=_parse_ranks(options["ranks"], world) if options["fake"] else tuple(range(world)),
        module=module,
        fake=options["fake"],
        jobs=options["jobs"] or min(os.cpu_count() or 1, 8),
        cuda_as_cpu=options["cuda_as_cpu"],
        max_seconds=options["max_seconds"],
        keep=options["keep"],
        aside=options["as_json"] == "-",
        join=options["join"],
        writes_allowed=options["writes_allowed"],
        gpu=gpu,
        written=options["yaml"],
        values=_values(options),
    )
    if not order.own_launcher and not order.module and not Path(command[0]).is_file():
        refuse_usage(f"there is no script `{command[0]}`")
    if options["nemesis"] and order.own_launcher:
        refuse_usage("`--nemesis` starts the ranks itself: name the script, `-- train.py`")
    order = _start_by_itself(order)
    interrupt_on_termination()
    try:
        _record(order, options)
    except ScenarioError as error:
        refuse(error)
    except LaunchError as error:
        click.echo(clean(str(error)), err=True)
        sys.exit(INCONCLUSIVE)


def _gpu(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the GPU that kernels are reckoned for; nothing where none is asked for."""
    if not options["machine"]:
        return {}
    if not options["fake"]:
        refuse_usage("`--times-on` reckons what is not run: give --fake too")
    try:
        machine = topology(options["machine"])
    except ScenarioError as error:
        refuse(error)
    if machine.gpu is None:
        refuse_usage(
            f"topology {machine.name} has no `gpu` that says what kernels take: "
            "`scenario topology show h100-8x400g` has one"
        )
    gpu: dict[str, Any] = to_builtins(machine.gpu)
    return {"machine": options["machine"], **gpu, "host": to_builtins(machine.host)}


def _values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the ranks see their values; nothing where they are not asked to."""
    more = {"no_dropout": True} if options["no_dropout"] else {}
    if options["redeal"]:
        line = options["batch"].rpartition(":")[2]
        batch = {"batch": int(line)} if line else {}
        aside = {"aside": True} if options["redeal"] == "resume" else {}
        return {**KEPT_FOR_PARITY, "redeal": True, **aside, **batch, **more}
    return {**SEEN, **more} if options["values"] else {}


def _require_values(options: Mapping[str, Any], command: tuple[str, ...]) -> None:
    """End the command where options of values do not fit each other, or the script.

    `--batch train.py:31` names the line that makes a batch. It must be a line of the script itself,
    and one that can be dealt anew: it is tried on the text before anything runs.
    """
    if options["fake"] and (options["values"] or options["redeal"]):
        refuse_usage("`--values` compares what real ranks hold: leave `--fake` out")
    if (options["allow"] or options["batch"]) and not options["redeal"]:
        refuse_usage("`--allow` and `--batch` are for `--redeal`")
    if options["batch"]:
        file, _, line = options["batch"].rpartition(":")
        if not line.isdigit() or Path(file).name != Path(command[0]).name:
            refuse_usage(
                f"`--batch {options['batch']}` names no line of the script: write "
                f"`--batch {command[0]}:31`"
            )
        try:
            insert_batch(Path(command[0]).read_text(encoding="utf-8"), command[0], int(line))
        except (OSError, ValueError) as error:
            refuse_usage(str(error))


def _show(line: str) -> None:
    """Print a line, wrapped where a person reads it."""
    if sys.stdout.isatty():
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        columns = max(40, shutil.get_terminal_size().columns)
        line = textwrap.fill(
            line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    for each in line.splitlines():
        click.echo(clean(each))


def _start_by_itself(order: RunOrder) -> RunOrder:
    """Return the order of a script that starts its ranks itself: it runs once, as it would alone.

    That is one which gives `mp.spawn`, or a `Process`, a function that makes the process group; a
    rank that started it would start all of them once more.
    """
    if order.own_launcher or order.module or order.fake:
        return order
    source = script_at(order.command[0])
    line = source.starts_ranks() if source is not None else 0
    command = ("python", *order.command)
    if not line and STARTS_RANKS.search(
        Path(order.command[0]).read_text(encoding="utf-8", errors="replace")
    ):
        words = f"{order.command[0]} calls `mp.spawn`: where it starts all ranks itself, write"
        shown = shlex.join(("scenario", "record", "--", *command))
        click.echo(clean(f"scenario: {words} `{shown}`"), err=True)
    if not line:
        return order
    words = f"{order.command[0]} starts its ranks itself (line {line}), as many as it says: it is"
    shown = shlex.join(("scenario", "record", "--", *command))
    click.echo(clean(f"scenario: {words} recorded by `{shown}`"), err=True)
    return replace(order, command=command)


def _parse_ranks(text: str, world: int) -> tuple[int, ...]:
    if text == "all":
        return tuple(range(world))
    try:
        found = sorted({int(each) for each in text.split(",")})
    except ValueError:
        refuse_usage(f"`--ranks {text}` names no ranks: write `all`, or `0,8`")
    if not found or found[0] < 0 or found[-1] >= world:
        refuse_usage(f"`--ranks {text}` names a rank outside of this world of {world} ranks")
    return tuple(found)


def _record(order: RunOrder, options: Mapping[str, Any]) -> NoReturn:
    """Run, judge, tell, and leave with the exit code.

    What further runs show (`--redeal`, `--nemesis`) is added to the verdict of the first. They make
    no sense for a record that is not whole, and are left out then.
    """
    began = time.monotonic()
    try:
        found = analysis.record(
            order, notice=lambda words: click.echo(f"scenario: {words}", err=True)
        )
    except KeyboardInterrupt:
        sys.exit(130)
    except analysis.NothingRecordedError as error:
        click.echo(str(error), err=True)
        sys.exit(error.code or INCONCLUSIVE)
    verdict = found.judged.result.verdict
    if options["redeal"] and found.is_whole:
        click.echo(f"scenario: {FURTHER[options['redeal']]}", err=True)
        again = deal_again(order, options["redeal"], options["allow"])
        values = judge_folder(
            order.folder,
            verdict,
            found.home,
            more=again.findings,
            scope="" if again.reason else again.words,
            reason=again.reason and again.words,
        )
    else:
        values = judge_folder(order.folder, verdict, found.home)
        if options["values"] and found.is_whole:
            _measure_rounding(order)
    if values is not None:
        found = replace(found, judged=replace_verdict(found.judged, values.verdict))
    found = _strike(order, found, options["nemesis"])
    if options["as_json"] != "-":
        lines = report_lines(found, time.monotonic() - began, values)
        for line in lines[:1] if options["quiet"] else lines:
            _show(line)
    _write(add_scope(found.judged, values, tell_own_code(found)), options)
    if found.ran.interrupted:
        sys.exit(130)
    if options["strict"] and found.judged.result.verdict.warnings:
        sys.exit(FOUND)
    sys.exit(exit_code(found.judged, found.ran.code))


def _strike(order: RunOrder, found: RecordedRun, kinds: str | None) -> RecordedRun:
    """Return what came of a record with what further runs showed, in which a rank has an error."""
    if kinds is None:
        return found
    return strike_calls(
        order, found, kinds, notice=lambda words: click.echo(f"scenario: {words}", err=True)
    )


def _measure_rounding(order: RunOrder) -> None:
    """Run one process some times more, so that its record has what rounding does in it.

    Only the record of one process is held against others: two programs that round otherwise differ
    by as much as these runs do among each other.
    """
    if order.world_size > 1 or order.own_launcher:
        return
    words = "three more runs round otherwise: `scenario parity` compares within what that changes"
    click.echo(f"scenario: {words}", err=True)
    try:
        disturb(order, order.folder)
    except UnsuitedError as error:
        click.echo(clean(f"scenario: what rounding does is not measured: {error}"), err=True)


def replace_verdict(judged: JudgedRecord, verdict: Verdict) -> JudgedRecord:
    """Return what came of a record with another verdict."""
    return replace(judged, result=replace(judged.result, verdict=verdict))


def add_scope(
    judged: JudgedRecord, values: ValueVerdict | None, own_code: str = ""
) -> JudgedRecord:
    """Return what came of a record with what its verdict covers among the notes.

    PASSED of calls alone says nothing of values, which the line says.
    """
    verdict = judged.result.verdict
    remarks = values.remarks if values is not None else ()
    scope = [each for each in (own_code, scope_line(verdict, values), *remarks) if each]
    return replace_verdict(judged, replace(verdict, notes=(*verdict.notes, *scope)))


def write_scenario(path: Path, result: JudgedRecord) -> None:
    """Write the scenario of a record; one that cannot be written ends the command."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(result.program.text, encoding="utf-8")
    except OSError as error:
        refuse_usage(f"{path}: it cannot be written: {error.strerror or error}")


def exit_code(result: JudgedRecord, code: int) -> int:
    """Return 1 for a finding, 3 where the record is not the whole, else the script's own.

    So `scenario record` may take the place of `python` in a script of CI: a program that is right
    and leaves by `sys.exit(4)` leaves by 4.
    """
    if result.found:
        return FOUND
    if result.result.verdict.status != "PASSED":
        return INCONCLUSIVE
    return code


def tell_own_code(found: RecordedRun) -> str:
    """Return whose exit code the command ends with, where it finds nothing and the program has one.

    Without these words a right program that leaves by `sys.exit(1)` would fail without a reason.
    """
    code = exit_code(found.judged, found.ran.code)
    if found.judged.result.verdict.status != "PASSED" or not code:
        return ""
    ranks = [rank for rank, each in sorted(found.records.items()) if each.code == code]
    places = {found.records[rank].left_at.short(found.home) for rank in ranks} - {""}
    who = among_text(ranks, len(found.records)) if ranks else "the launcher"
    line = f", by `sys.exit` in {' and '.join(sorted(places))}" if places else ""
    return f"exit code {code} is the program's own, that of {who}{line}"


def _write(result: JudgedRecord, options: Mapping[str, Any]) -> None:
    if options.get("yaml"):
        write_scenario(Path(options["yaml"]), result)
    if options.get("as_json"):
        outcome = Outcome(results=(result.result,), cases=1, selected=1)
        write_text(options["as_json"], text(outcome))


def scope_line(verdict: Verdict, values: ValueVerdict | None) -> str:
    """Return what a verdict without a finding covers; nothing of any other."""
    if verdict.status != "PASSED":
        return ""
    return values.scope if values is not None else NOT_COMPARED


def report_lines(
    found: RecordedRun, seconds: float, values: ValueVerdict | None = None
) -> list[str]:
    """Return the verdict first, then why, where the ranks are, and what was written."""
    result, records, ran, home = found.judged, found.records, found.ran, found.home
    verdict = result.result.verdict
    world = len(records)
    how = "raised" if any(each.error is not None for each in records.values()) else "ran"
    how = "ended at --max-seconds" if ran.timed_out else how
    how = "stuck" if ran.stuck or ran.endless or ran.left else how
    how = "crashed" if any(each.died is not None for each in records.values()) else how
    how = "interrupted" if ran.interrupted else how
    under = f" under {ran.launch.launcher}" if ran.launch.launcher else ""
    who = f"{world} rank{'s' * (world > 1)}{under}"
    scope = scope_line(verdict, values)
    head = f"{verdict.status:12} {result.result.file}  {who}, {how}, {seconds:.1f} s"
    lines = lines_of_values(values) if values is not None else []
    parts = [f"{head}; {scope}" if scope else head, *lines]
    positions: list[str] = []
    if result.found or ran.stuck or ran.timed_out or ran.interrupted or ran.endless or ran.left:
        positions = tell_positions(records, home, ran.launch)
        outside = [
            rank
            for rank, each in records.items()
            if each.truncated and not each.inside and each.error is None
        ]
        for rank in [r for r in outside if r in ran.stacks][:MOST_STACKS]:
            is_async = records[rank].on_device
            where = "waits for its device, or computes" if is_async else "is outside of any call"
            head = f"  rank {rank} {where}; its Python stack, innermost first:"
            stack = [f"    {line}" for line in stack_of(ran.stacks[rank], MOST_LINES)]
            positions += [head, *stack]
    shown = _leave_out_values(result, values)
    if shown.result.verdict.findings:
        parts += tell_result(shown, records, positions, (*found.waits, *found.notes))
    else:  # what a rank waits for is the nearest to a cause that is known
        parts += [f"  {each}" for each in found.waits]
        parts += tell_result(shown, records, positions, found.notes)
    if own_code := tell_own_code(found):
        parts.append(f"  {own_code}")
    if scope and values is None:
        parts.append("  values: `scenario record --values` compares what the ranks hold")
    steps = result.program.steps
    parts.append(f"  scenario: {found.path} ({steps} step{'s' * (steps != 1)})")
    return parts


def _leave_out_values(result: JudgedRecord, values: ValueVerdict | None) -> JudgedRecord:
    """Return a result without the findings of its values, which have lines of their own."""
    if values is None:
        return result
    codes = {each.code for each in values.errors}
    verdict = result.result.verdict
    findings = tuple(each for each in verdict.findings if each.code not in codes)
    return replace_verdict(result, replace(verdict, findings=findings))


def tell_result(
    result: JudgedRecord,
    records: Mapping[int, RankRecord],
    positions: Sequence[str],
    notes: Sequence[str],
) -> list[str]:
    """Return what is found, and where the ranks are: first where none came to its own end.

    Of a hang the places are what a person looks for; of an error it is the error.
    """
    why = tell_findings(result)
    if result.result.verdict.reason:
        why.append(f"  {result.result.verdict.reason}")
    is_hang = all(each.truncated and each.error is None for each in records.values())
    lines = [*positions, *why] if is_hang else [*why, *positions]
    notes = [note if note.startswith("fix: ") else f"note: {note}" for note in notes]
    return [*lines, *(f"  {note}" for note in notes)]


def tell_positions(records: Mapping[int, RankRecord], home: str, launch: LaunchRecord) -> list[str]:
    """Return where the ranks are whose program did not come to its end; some where most did.

    Ranks at one place are one line:

        ranks 0-2: waits in all_reduce, train.py:31
        rank 3: ended after barrier, train.py:28

    Those that ended are named only if others did not: of a program that came to its end it is no
    news.
    """
    going: dict[str, list[int]] = {}
    over: dict[str, list[int]] = {}
    for rank, each in sorted(records.items()):
        at = tell_position(each, home)
        if each.died is not None:
            continue  # a finding tells where
        if each.ending != "stopped":
            over.setdefault(f"{_tell_end(each)} after {at}", []).append(rank)
        elif each.error is not None:
            words = f"raised in {at}: {normalise_lost_peer(each.error)[:160]}"
            going.setdefault(words, []).append(rank)
        else:
            ended = f"ended by {launch.launcher} " if rank in launch.stopped else ""
            if ended and not each.inside and each.ended_at.frames:
                ended += f"at {each.ended_at.short(home)}, "
            going.setdefault(f"{ended}{position(each, home)}", []).append(rank)
    found = [*going.items(), *(over.items() if going else ())]
    return [
        clean(f"  {among_text(ranks, len(records))}: {words}")
        for words, ranks in found[:MOST_POSITIONS]
    ]


def _tell_end(record: RankRecord) -> str:
    return f"exited with code {record.code}" if record.code else "ended"


def tell_findings(result: JudgedRecord) -> list[str]:
    """Return the findings in words: what is wrong, a clause a line why, and once what to change."""
    lines = []
    shown = set()
    for finding in result.result.verdict.findings:
        lines.append(f"  {': '.join(filter(None, (finding.diagnosis, finding.prose)))}")
        lines += [f"    {clause}" for clause in finding.because]
        found = explanation(finding.diagnosis or "")
        fix = finding.fix or (found.fix if found is not None else "")
        if fix and fix not in shown:
            shown.add(fix)
            lines.append(f"    fix: {fix}")
    return lines


def import_records(options: Mapping[str, Any]) -> NoReturn:
    """Judge what is there already, and leave with the exit code.

        a folder of a record   what `scenario record` does with it, but for further runs
        dumps of torch         the calls of each rank, those that it had under way, and where
        the log of a job       what its ranks printed: errors, timeouts of collectives

    Which one is seen from its content. It may be another person's, so that the scripts which it
    names are not opened (decision 92).
    """
    folder, launch = Path(options["folder"]), LaunchRecord()
    if folder.is_file() and not _is_dump(folder):
        _import_log(folder, quiet=options["quiet"])
    wrong: list[Finding] = []
    try:
        if folder.is_dir() and is_record(folder):
            launch = read_launch(folder)
            wrong = analysis.wrong_start(folder, launch)
            records = read_starts(folder) if wrong else read(folder)
            know_exits(records, launch)
            know_killed(records, folder)
        else:
            records = read_dumps(folder)
        script, home = analysis.find_script(records, str(folder))
        path = (folder if folder.is_dir() else folder.parent) / "scenario.yaml"
        if wrong:
            result = analysis.judge_start(records, path, wrong, script=script)
        else:
            result = analysis.judge_records(records, path, script=script, folder=home)
            with closed_scripts():  # a record may be another person's (decision 0092)
                result = analysis.add_why(result, records, home)
                result = analysis.add_unjudged(result, records, home)
    except ScenarioError as error:
        refuse(error)
    with closed_scripts():
        values = judge_folder(folder, result.result.verdict, home) if folder.is_dir() else None
    if values is not None:
        result = replace_verdict(result, values.verdict)
    verdict = result.result.verdict
    scope = scope_line(verdict, values)
    head = clean_line(f"{verdict.status:12} {script}  {len(records)} ranks, recorded")
    shown = values if not options["quiet"] else None
    lines = [
        f"{head}; {scope}" if scope else head,
        *(lines_of_values(shown) if shown is not None else ()),
    ]
    if not options["quiet"]:
        positions: list[str] = []
        if result.found or verdict.status != "PASSED":
            positions = tell_positions(records, home, launch)
        lines += tell_result(
            _leave_out_values(result, values), records, positions, _notes_of(records)
        )
    for line in lines if options["as_json"] != "-" else ():
        click.echo(clean(line))
    _write(add_scope(result, values), options)
    sys.exit(exit_code(result, 0))


def _is_dump(path: Path) -> bool:
    """Whether a file may be a dump of the flight recorder: a pickle, or JSON with its entries."""
    with path.open("rb") as file:
        head = file.read(1 << 16).lstrip()
    is_printed = b'"communicators"' in head or b'"py_callstack"' in head
    return head[:1] == b"\x80" or (head[:1] == b"{" and not is_printed)


def _import_log(path: Path, *, quiet: bool) -> NoReturn:
    """Judge what a job has printed, and leave with the exit code."""
    try:
        log = read_job_log(path)
    except ScenarioError as error:
        refuse(error)
    found = find_in_log(log)
    ranks = len(log.ranks)
    of = f"  of {ranks} rank{'s' * (ranks != 1)}" if ranks else ""
    click.echo(clean(f"{'FAILED' if found else 'INCONCLUSIVE':12} {path}{of}"))
    for line in () if quiet else log_lines(log):
        click.echo(clean(f"  {line}"))
    for each in () if quiet else found:
        name = "" if each.code == "outcome_differs" else f"{each.code}: "
        _show(f"  {name}{each.prose}")
        for clause in each.because:
            _show(f"    {clause}")
        if each.fix:
            _show(f"    fix: {each.fix}")
    sys.exit(FOUND if found else INCONCLUSIVE)


def _notes_of(records: Mapping[int, RankRecord]) -> list[str]:
    return sorted({note for each in records.values() for note in each.notes})


def diff(options: Mapping[str, Any]) -> NoReturn:
    """Compare two programs, or the pages of two runs, and leave with the exit code.

    Programs are two scenarios or two records, compared by what their ranks call, in order; pages by
    the verdicts of their cases. The exit code is 1 where anything differs.
    """
    pages = [_is_page(options[side]) for side in "ab"]
    if any(pages) or options["html_file"]:
        _require_pages(options, pages)
        _compare_pages(options)
    try:
        a, b = sides_of(options["a"], options["b"])
        found = differences(a, b)
    except ScenarioError as error:
        refuse(error)
    quiet = options["as_json"] == "-"
    if options["as_json"] is not None:
        write_text(options["as_json"], difference_json(a, b, found))
    for line in [] if quiet else difference_lines(a, b, found):
        click.echo(clean(line))
    sys.exit(FOUND if found or a.world_size != b.world_size else 0)


#: differences that are shown
MOST_DIFFERENCES = 20


def _is_page(path: Path) -> bool:
    return is_page(str(path))


def _require_pages(options: Mapping[str, Any], pages: Sequence[bool]) -> None:
    if not all(pages):
        other = options["ab"[list(pages).index(False)]]
        message = (
            f"{other} is not a page that --html wrote; two pages are compared, or two programs"
        )
        raise click.UsageError(message)
    if options["as_json"] is not None:
        message = "--json is for two programs; two pages are compared in words, and with --html"
        raise click.UsageError(message)


#: cases that changed of which more than a line is shown
MOST_CASES = 20


def _compare_pages(options: Mapping[str, Any]) -> NoReturn:
    """Show, or write as a page, what is another in the second of two runs.

    Cases that are equal are counted. Of the first few that changed the lines of the report are
    shown, of the others the name and both verdicts.
    """
    try:
        before, after = (content_of(str(options[side])) for side in "ab")
        found = changes(before, after)
    except ScenarioError as error:
        refuse(error)
    for number, each in enumerate(found):
        now = each.after or "not in the second run"
        then = f"was {each.before}" if each.before else "new"
        click.echo(clean(f"{now:<12} {each.name}  {then}"))
        for line in each.lines if number < MOST_CASES else ():
            click.echo(clean(f"  {line}"))
    click.echo(clean(f"before: {before.run.summary}"))
    click.echo(clean(f"after:  {after.run.summary}"))
    if not found:
        click.echo(f"equal: {len(after.heads)} cases")
    if options["html_file"]:
        write_text(options["html_file"], compare_pages(before, after, found))
    sys.exit(FOUND if found else 0)


def difference_lines(
    a: ComparedProgram, b: ComparedProgram, found: Sequence[ProgramDifference]
) -> list[str]:
    """Return the differences in words, each with its ranks.

    A single difference is a line of its own. Several are below one that says which ranks
    communicate in another way.
    """
    if a.world_size != b.world_size:
        lines = [f"the worlds differ: {a.world_size} ranks and {b.world_size} ranks"]
    else:
        lines = []
    if not found and not lines:
        return [f"equal: {len(a.lines)} ranks communicate the same way"]

    def who(ranks: Sequence[int]) -> str:
        return among_text(ranks, a.world_size if a.world_size == b.world_size else 0)

    changed = [f"{who(ranks)}: {words}" for ranks, words in difference_words(found)]
    if len(changed) == 1 and not lines:
        return changed
    ranks = sorted({rank for each in found for rank in each.ranks})
    if ranks:
        verb = "communicates" if len(ranks) == 1 else "communicate"
        lines.append(f"{who(ranks)} {verb} in another way")
    lines += [f"  {line}" for line in changed[:MOST_DIFFERENCES]]
    if len(changed) > MOST_DIFFERENCES:
        lines.append(f"  and {len(changed) - MOST_DIFFERENCES} more")
    return lines


def difference_json(
    a: ComparedProgram, b: ComparedProgram, found: Sequence[ProgramDifference]
) -> str:
    """Return the differences as JSON (schemas/diff.schema.json)."""

    def line(each: CalledLine | None) -> dict[str, str] | None:
        return None if each is None else {"call": each.what, "place": each.place}

    def side(each: ComparedProgram) -> dict[str, Any]:
        known = sorted(each.lines)
        return {"path": each.name, "world_size": each.world_size, "ranks": known}

    content = {
        "format": "scenario-diff",
        "version": 1,
        "equal": not found and a.world_size == b.world_size,
        "a": side(a),
        "b": side(b),
        "differences": [
            {
                "kind": each.kind,
                "ranks": list(each.ranks),
                "position": each.position,
                "a": line(each.a),
                "b": line(each.b),
                "before": line(each.before) if each.kind == "moved" else None,
                "calls": [line(call) for call in each.calls],
                "times": each.times if each.kind == "repeated" else 1,
                "message": each.words,
            }
            for each in found
        ],
    }
    return json.dumps(content, indent=2) + "\n"
