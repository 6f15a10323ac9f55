"""A loop that some ranks take more often than others."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    ASKS_RANK,
    DecidedParting,
    Reason,
    Tallies,
    Tally,
    count_turns,
    list_times,
    short,
)
from torch_scenarios.record.evidence.divergence import Frames, Parting
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.reasons.earlier_condition import is_idle
from torch_scenarios.record.evidence.reasons.given import list_differing, tell_behind, tell_given
from torch_scenarios.record.evidence.reasons.left_out import BATCH_ENDS, tell_left_out
from torch_scenarios.record.evidence.reasons.origin import tell_contents, word_values
from torch_scenarios.record.evidence.reasons.unlike_value import is_read_otherwise
from torch_scenarios.record.evidence.script import (
    Script,
    end_of,
    has_line,
    name_of,
    place_at,
    script_at,
)
from torch_scenarios.record.format import (
    BlockingCall,
    Decision,
    RankRecord,
    RecordedCall,
    RecordedWait,
)
from torch_scenarios.verdict.finding import ranks_text

#: loops over data
_BATCHES = re.compile(r"load|batch|data|sampler|step|epoch|iter", re.IGNORECASE)
#: calls that read a clock of the rank's own
CLOCKS = re.compile(r"\b(?:time|monotonic|perf_counter|process_time)(?:_ns)?\(|\b(?:utc)?now\(")


def find_turns(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> tuple[Clause, str] | None:
    """Return that some ranks come to a line of a loop once more than others, and how often."""
    for ranks, frames in parting.sides:
        if not frames:
            continue
        call = parting.calls[ranks[0]]
        if isinstance(call, BlockingCall):
            return None
        maker = call.maker
        counts = {
            rank: count_passes(records[rank], frames, maker, parting.calls.get(rank))
            for rank in (*parting.calls, *parting.missing)
        }
        own, others = counts[ranks[0]], {counts[r] for r in counts if r not in ranks}
        if not others or max(others) >= own:
            continue
        elsewhere = [each for _, each in parting.sides if each != frames]
        loop = loop_of(frames, elsewhere)
        if loop is None:
            continue
        text, line, file = loop
        outer = _longer_loop(DecidedParting(parting, records, folder), ranks, frames, elsewhere)
        if outer is not None:
            (text, line, file), counts = outer
        elif _is_begun_more_often(DecidedParting(parting, records, folder), ranks, file, line):
            continue
        inner = _find_ended(DecidedParting(parting, records, folder), ranks, file, line)
        if inner is not None:
            return inner
        joined = _explain_join(parting, records, folder, (file, line))
        if joined is not None:
            return joined
        return _tell_longer(
            DecidedParting(parting, records, folder),
            (text, line, file),
            (call, short(frames, folder)),
            counts,
            is_outer=outer is not None,
        )
    return None


def _tell_longer(
    parted: DecidedParting,
    loop: tuple[str, int, str],
    made: tuple[RecordedCall, str],
    counts: Mapping[int, int],
    *,
    is_outer: bool,
) -> Reason:
    """Return that a loop has more turns on some ranks, with what sets them, and what mends it."""
    (text, line, file), (call, where) = loop, made
    what = "backward passes" if call.maker == Maker.BACKWARD else f"calls of {where}"
    before, decided = _tell_before(parted, file, line)
    setter = decided if decided is not None and _is_set_under(decided, (file, line)) else None
    origin = _origin_of_loop(text, line, file, parted.folder)
    origin = origin if setter is None else origin.partition(_DEPENDS)[0]
    is_known = bool(before) or _DEPENDS in origin
    held, chosen = ("", "") if is_known else tell_filled(parted, (file, line))
    if ASKS_RANK.search(chosen) and is_read_otherwise(parted):
        held, chosen = "", ""  # it is what one rank does for all, such as to write the files
    shown = re.findall(r"`([^`]+)`", held)[-1:]
    held = "" if not chosen and any(each in origin for each in shown) else held
    has_reason = bool(chosen or before)
    left_out, kept = ("", "") if has_reason else tell_left_out(parted, (file, line), counts)
    has_option = bool(_BATCHES.search(text)) and not left_out.startswith(BATCH_ENDS)
    option = _find_uneven_option(parted) if has_option else ("", "")
    longer = _LongerLoop(
        text=text,
        at=(file, line),
        folder=parted.folder,
        is_backward=call.maker in {Maker.BACKWARD, Maker.CPP},
        origin=origin,
        before=before,
        setter="" if setter is None else f"`{setter.text}` ({parted.place(setter)})",
        held="" if option[0] and not chosen else held,
        chosen=chosen,
        left_out=(left_out, kept),
        evened=_tell_evened((file, line), parted.folder) or ("", ""),
        option=option,
    )
    times = f"{'turns' if is_outer else what}: {list_times(counts)}"
    return Clause(longer.tell(times)), longer.advise()


#: a loop that goes on until a value is large or small enough
_THRESHOLD = re.compile(r"while .*[<>]")


class _LongerLoop(Struct, frozen=True, kw_only=True):
    """A loop that has more turns on some ranks: all that is known of why, each part or "".

    `origin` is what it goes through, `before` the `if` that ranks take otherwise before it,
    `setter` the one among these that sets what it goes through, `held` what that holds on each rank
    and `chosen` what chooses it. Of items that are `left_out`, of what deals them `evened`, and of
    an `option` by which batches are uneven, the second part is what mends it.
    """

    text: str
    at: tuple[str, int]
    folder: str
    is_backward: bool
    origin: str
    before: str
    setter: str
    held: str
    chosen: str
    left_out: tuple[str, str]
    evened: tuple[str, str]
    option: tuple[str, str]

    @property
    def place(self) -> str:
        """The place of the loop."""
        return place_at(*self.at, self.folder)

    def tell(self, times: str) -> str:
        """Return that ranks have other numbers of turns, and all that is known of why."""
        more = (
            f"before it, {self.before}" if self.before else "",
            self.held,
            self.left_out[0],
            self.evened[0],
            f"{self.option[0]} leaves the numbers of batches as they are" if self.option[0] else "",
        )
        words = f"the loop `{self.text}` ({self.place}) has more turns on some ranks; {times}"
        return "; ".join([words + self.origin, *filter(None, more)])

    def advise(self) -> str:
        """Return what mends it, the first that fits."""
        place = self.place
        if self.chosen and self.text.startswith("for "):
            filled = self.held.partition("` ")[0].strip("`")
            return f"put the same into `{filled}` on every rank: take {self.chosen} alike."
        is_counted = " in range(" in self.text and (_DEPENDS in self.origin or self.held)
        if is_counted and not self.left_out[0] and not self.setter:
            after = self.origin.partition(f"{_DEPENDS} ")[2]
            behind = after or self.held.partition(" comes from ")[2]
            behind = behind.split(", and that from ")[0]
            return (
                f"give every rank the same number of turns of the loop at {place}: let {behind} "
                "give the same on all ranks, or agree on one number first (an `all_reduce` with "
                "`op=min`)."
            )
        if self.before and not self.setter:
            return f"let all ranks take that `if` the same way, and {self._advise_choice()}"
        drawn = _DRAWN_BY.search(self.held)
        if drawn is not None and _THRESHOLD.match(self.text):
            return (
                f"agree in each turn on what the loop at {place} asks for (an `all_reduce` of it), "
                f"so that all ranks leave it together; or let them draw the same (`{drawn[1]}`, "
                f"{drawn[2]}), where what they draw is not to differ."
            )
        if drawn is not None:
            return (
                f"let all ranks draw the same there (`{drawn[1]}`, {drawn[2]}): seed it with one "
                "number on all of them, or let one rank draw and send it; each of them needs the "
                f"same number of turns of the loop at {place}."
            )
        return self._advise_choice()

    def _advise_choice(self) -> str:
        """Return what makes ranks choose alike; of what they do not choose, what evens turns."""
        sends = "the same way, or send what it sets from one to all"
        if self.chosen:
            return f"let all ranks take {self.chosen} {sends}."
        if self.setter:
            return f"let all ranks take {self.setter} {sends} before the loop at {self.place}."
        fix = self.left_out[1] or advise_turns(
            self.text, self.at, self.place, is_backward=self.is_backward
        )
        if _BY_NODE.search(self.origin):
            fix = (
                f"give every rank the same number of turns of the loop at {self.place}: whole "
                "files are dealt to the ranks there, and these hold other numbers of rows. Write "
                "as many rows to each, end each epoch after as many batches as all ranks have "
                "(`with_epoch` of webdataset), or agree on that first"
                f"{_JOINED * self.is_backward}."
            )
        fix = f"{self.evened[1]}. Or {fix}" if self.evened[0] else fix
        option, without = self.option
        return f"leave out {option}: without it {without}. Or {fix}" if option else fix


#: options that are False where ranks may have other numbers of batches, and what they would do
_EVENING = {
    "even_batches": "accelerate repeats rows until all ranks have as many batches",
    "use_distributed_sampler": "Lightning deals the rows so that all ranks have as many batches",
}


def _find_uneven_option(parted: DecidedParting) -> tuple[str, str]:
    """Return an option with its place, and what leaving it out does; both empty without one.

    accelerate repeats rows until all ranks have as many batches, and Lightning deals rows by a
    sampler that does; a script may ask both not to, as by `even_batches=False`.
    """
    files = dict.fromkeys(
        [
            *(file for _, at in parted.parting.sides for file, _, _ in at),
            *(each.decision.file for own in parted.records.values() for each in own.ways),
        ]
    )
    for source in filter(None, map(script_at, files)):
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.keyword) or node.arg not in _EVENING:
                continue
            if isinstance(node.value, ast.Constant) and node.value.value is False:
                place = source.place(node.value.lineno, parted.folder)
                return f"`{node.arg}=False` ({place})", _EVENING[node.arg]
    return "", ""


#: how it is said that a list is parted for the ranks in parts that are not equally long
PARTS_UNLIKE = "parts what does not divide in parts of other lengths"
#: functions that part a list for the ranks, each with what makes the parts of one length
_PARTS_EVENLY = {
    "split_between_processes": ("apply_padding", "repeats the last item of a short part"),
    "partition_dataset": ("even_divisible", "repeats rows until all parts have as many"),
}


def _tell_evened(at: tuple[str, int], folder: str) -> tuple[str, str] | None:
    """Return the line that parts a list for the ranks in parts of other lengths, and what mends it.

    None where the loop does not go over such a part, or where these are made of one length.
    """
    source = script_at(at[0])
    node = source.find_for(at[1]) if source is not None else None
    for script, line in source.traces(node.iter, at[1]) if source and node is not None else ():
        for call in script.calls(line):
            name, what = _PARTS_EVENLY.get(name_of(call.func), ("", ""))
            passed = {each.arg: ast.unparse(each.value) for each in call.keywords}
            if name and None not in passed and passed.get(name, str(False)) == str(False):
                place = script.place(call.lineno, folder)
                text = ast.unparse(call.func)
                return (
                    f"`{text}` ({place}) {PARTS_UNLIKE}",
                    f"pass `{name}=True` to `{text}` ({place}), which {what}",
                )
    return None


#: a line at the end of an origin that seeds what is drawn, or draws it
_DRAWN_BY = re.compile(
    r".*`([^`]*(?:seed|default_rng|Random|rand(?:int|perm|range)?)\([^`]*)` \(([^()]*)\)$"
)
#: how a loop is tied to a line that reads what differs between ranks
_DEPENDS = ", which depends on"


def tell_filled(
    parted: DecidedParting, at: tuple[str, int], without: Collection[int] = ()
) -> tuple[str, str]:
    """Return the `if` under which that is filled which a loop goes through, as two sets of words.

    The second names the `if` alone. Both are empty where it is filled alike on all ranks.
    """
    source = script_at(at[0])
    node = source.find_loop(at[1]) if source is not None else None
    if node is None:
        return "", ""
    read = node.test if isinstance(node, ast.While) else node.iter
    return tell_contents(parted, at, read, without)


#: what deals whole files to ranks
_BY_NODE = re.compile(r"by_node\b")
#: what mends a loop as well whose model is under DDP
_JOINED = "; with DDP also `with Join([model]):` around the loop"


def advise_turns(text: str, at: tuple[str, int], place: str, *, is_backward: bool) -> str:
    """Return how ranks take as many turns of a loop, by what it goes on for."""
    if text.startswith("while "):
        clock = "each rank reads its own clock there: " * _reads_clock(*at)
        return (
            f"{clock}let all ranks end the loop at {place} in the same turn: let one of them "
            "decide and `broadcast` it, or `all_reduce` a flag in each turn."
        )
    turns = f"give every rank the same number of turns of the loop at {place}: "
    join = _JOINED * is_backward
    bounds = re.search(r" in range\((.*)\)$", text)
    if bounds is not None and not bounds[1].startswith("len("):
        return f"{turns}let `{bounds[1]}` be the same on all ranks, or agree on it first{join}."
    if _is_iterable(*at):
        return (
            f"{turns}deal as many items to each rank and worker, or let all ranks end an epoch "
            f"after one number of steps that they agree on (an `all_reduce` with `op=min`){join}. "
            "`drop_last=True` evens nothing out here: each rank's own items are batched."
        )
    if is_backward or _BATCHES.search(text):
        return (
            f"{turns}uneven batches need `drop_last=True` (of the sampler and the loader), or one "
            f"number of steps that the ranks agree on{join}."
        )
    return (
        f"{turns}let it go over the same items on all ranks, or agree on its length first (an "
        "`all_reduce` with `op=max`)."
    )


def _is_iterable(file: str, line: int) -> bool:
    """Whether a loop goes over a loader of a script's `IterableDataset`, which has no sampler."""
    source = script_at(file)
    node = source.find_for(line) if source is not None else None
    if source is None or node is None:
        return False
    made = [call for script, at in source.traces(node.iter, line) for call in script.calls(at)]
    made += [each for each in ast.walk(node.iter) if isinstance(each, ast.Call)]
    if not any(name_of(each.func).endswith("DataLoader") for each in made):
        return False
    names = {name_of(each.func) for each in made}
    return any(
        isinstance(kind, ast.ClassDef)
        and kind.name in names
        and any(name_of(base) == "IterableDataset" for base in kind.bases)
        for script in (source, *source.imported())
        for kind in ast.walk(script.tree)
    )


def _reads_clock(file: str, line: int) -> bool:
    """Whether the condition of a `while`, or what it reads, calls a clock."""
    source = script_at(file)
    node = source.find_loop(line) if source is not None else None
    if source is None or not isinstance(node, ast.While):
        return False
    read = (script.text(at) for script, at in source.traces(node.test, line))
    return any(CLOCKS.search(text) for text in (ast.unparse(node.test), *read))


def _is_set_under(decision: Decision, loop: tuple[str, int]) -> bool:
    """Whether an `if` leads to a line that sets what bounds a loop."""
    file, line = loop
    source, inner = script_at(file), script_at(decision.file)
    node = inner.condition(decision.line) if inner is not None else None
    head = source.find_for(line) if source is not None else None
    if source is None or head is None or not isinstance(node, ast.If):
        return False
    return any(
        script.file == decision.file and node.lineno < at <= end_of(node)
        for script, at in source.traces(head.iter, line)
    )


def _tell_before(parted: DecidedParting, file: str, line: int) -> tuple[str, Decision | None]:
    """Return the last `if` that ranks decide otherwise between their last call and a loop."""
    span = _span(file, line)
    found: dict[Decision, dict[int, Tally]] = {}
    for rank in parted.ranks:
        ways = parted.records[rank].ways
        entries = [
            (each.before, order)
            for order, each in enumerate(ways)
            if (each.decision.file, each.decision.line) == (file, line)
            and (each.no if each.decision.kind == "for" else each.yes)
        ]
        last, entry = max(entries, default=(-1, -1)) if span is not None else (-1, -1)
        for order, way in enumerate(ways):
            at = way.decision
            is_inside = span is not None and at.file == file and span[0] <= at.line <= span[1]
            is_inside |= order > entry  # in what the loop calls
            if way.before == last and at.kind == "if" and not is_inside:
                own = found.setdefault(at, {each: Tally() for each in parted.ranks})[rank]
                own.yes, own.no = own.yes + way.yes, own.no + way.no
    apart = [
        each
        for each, own in found.items()
        if len({tally.yes for tally in own.values()}) > 1 and not is_idle(each)
    ]
    if not apart:
        return "", None
    nearest, tallies = apart[-1], found[apart[-1]]
    words, values = count_turns(parted, nearest, tallies), word_values(parted, nearest, tallies)
    return words + (f", where {values}" if values else ""), nearest


def _span(file: str, line: int) -> tuple[int, int] | None:
    source = script_at(file)
    return source.loop(line) if source is not None else None


#: contexts in which a rank whose loop has ended answers the calls of models: torch's, accelerate's
_JOINS = frozenset({"Join", "join", "join_uneven_inputs"})
#: functions of a framework that communicate and do not belong to a model
_OF_FRAMEWORKS = re.compile(r"reduce|gather|broadcast|barrier|wait_for_|scatter|pad_across")


def _find_join(file: str, line: int) -> int:
    """Return the line of the `with Join(...)` that a line is under; 0 for none."""
    source = script_at(file)
    for node, name in source.find_statements(line) if source is not None else ():
        if name == "body" and isinstance(node, ast.With):
            for each in node.items:
                call = each.context_expr
                made = call.func if isinstance(call, ast.Call) else call
                if name_of(made) in _JOINS:
                    return node.lineno
    return 0


def _name_join(file: str, line: int) -> str:
    """Return which context of `_JOINS` a line enters."""
    source = script_at(file)
    names = source.called(line) & _JOINS if source is not None else set()
    return next(iter(names), "Join")


def _explain_join(
    parting: Parting,
    records: Mapping[int, RankRecord],
    folder: str,
    at: tuple[str, int],
) -> Reason | None:
    """Return the script's own call in a loop under `with Join(...)`; None where there is none.

    A rank whose loop has ended answers what the models call that Join is given, and no other call.
    """
    file, line = at
    joined, source = _find_join(file, line), script_at(file)
    span = source.loop(line) if source is not None and joined else None
    if span is None:
        return None
    calls = [call for rank in parting.calls for call in records[rank].calls]
    named = {
        _name_call(call): call
        for call in reversed(calls)
        if call.maker not in {Maker.BACKWARD, Maker.CPP}
        and any(
            each == file and span[0] < number <= span[1] for each, number, _ in call.place.frames
        )
    }
    head, loop = (place_at(file, number, folder) for number in (joined, line))
    context = _name_join(file, joined)
    is_joined = named.pop("", None) is not None or context != "join_uneven_inputs"
    turns = f"give every rank as many turns of the loop at {loop}"
    if not is_joined:
        words = f"`with {context}` ({head}) has no effect here: accelerate joins models under DDP "
        words += "on several GPUs alone, and where `even_batches` is False"
        return Clause(words), f"{turns} (`even_batches=True`), or use torch's `with Join`."
    for name, call in named.items():
        where = short(call.place.frames, folder)
        words = (
            f"under `with {context}` ({head}) a rank whose loop has ended answers the calls of "
            f"the models alone, and not the `{name}` at {where}"
        )
        return Clause(words), f"take the call at {where} out of the loop at {loop}, or {turns}."
    files = dict.fromkeys(frame[0] for call in calls for frame in call.place.frames)
    wrapped = {name for each in files for name in _list_wrapped(each)}
    return _explain_unjoined(file, joined, span, wrapped, folder)


def _name_call(call: RecordedCall) -> str:
    """Return what a line says that makes a call; nothing of one that torch makes by itself."""
    inner = script_at(call.place.frames[0][0]) if call.place.frames else None
    if inner is None:
        return ""
    number = call.place.frames[0][1]
    if f"{call.operation}(" in inner.text(number):
        return call.operation
    named = [each for each in sorted(inner.called(number)) if _OF_FRAMEWORKS.search(each)]
    return "".join(named[:1]) if call.place.via else ""


#: what wraps a model whose backward passes communicate
_DATA_PARALLEL = frozenset({"DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP"})


def _list_wrapped(file: str) -> Iterator[str]:
    """Yield the names of the models that a script wraps, so that they communicate."""
    source = script_at(file)
    for node in ast.walk(source.tree) if source is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = node.value.func
            if name_of(made) in _DATA_PARALLEL:
                yield from (ast.unparse(each) for each in node.targets)


def _explain_unjoined(
    file: str, joined: int, span: tuple[int, int], wrapped: Collection[str], folder: str
) -> Reason | None:
    """Return the model that a loop under `with Join(...)` calls, and that Join is not given."""
    source = script_at(file)
    head = source.text(joined) if source is not None else ""
    for node in ast.walk(source.tree) if source is not None else ():
        if not isinstance(node, ast.Call) or not span[0] <= node.lineno <= span[1]:
            continue
        name = ast.unparse(node.func)
        is_given = re.search(rf"\b{re.escape(name)}\b", head) is not None
        if name not in wrapped or is_given:
            continue
        where, at = (place_at(file, line, folder) for line in (joined, node.lineno))
        words = (
            f"under `{head}` ({where}) a rank whose loop has ended answers the calls of the models "
            f"that Join is given, and not those of `{name}`, which the loop calls too ({at})"
        )
        return Clause(words), f"give `{name}` to Join too ({where}): every model of the loop."
    return None


def _find_ended(
    parted: DecidedParting, ranks: Sequence[int], file: str, line: int
) -> Reason | None:
    """Return the loop inside `while True` that has ended on ranks which begin its next turn.

    `while True` has more turns there because a pass over the data, in it, has fewer.
    """
    source, span = script_at(file), _span(file, line)
    if source is None or span is None:
        return None
    outer = source.find_loop(line)
    if not isinstance(outer, ast.While) or not isinstance(outer.test, ast.Constant):
        return None
    for decision, own in parted.tallies(whole=True).items():
        if decision.kind != "for" or decision.file != file:
            continue
        rest = [each for rank, each in own.items() if rank not in ranks]
        mine = [each for rank, each in own.items() if rank in ranks]
        is_inside = span[0] < decision.line <= span[1]
        is_begun = all(each.no for each in (*mine, *rest))
        if is_inside and is_begun and max(e.yes for e in mine) < min(e.yes for e in rest):
            place, around = parted.place(decision), source.place(line, parted.folder)
            turns = list_times({rank: each.yes for rank, each in own.items()})
            words = (
                f"the loop `{decision.text}` ({place}) has ended on {ranks_text([*ranks])}, which "
                f"{'begins' if len(ranks) == 1 else 'begin'} the next turn of "
                f"`{source.text(line)}` ({around}); turns: {turns}"
            )
            return Clause(words), advise_turns(
                decision.text, (file, decision.line), place, is_backward=False
            )
    return None


def _is_begun_more_often(
    parted: DecidedParting, ranks: Sequence[int], file: str, line: int
) -> bool:
    """Whether ranks come to a loop more often than the others do, or take as many turns of it.

    Then it is what leads there, or what a turn leaves out, that differs.
    """
    for decision, own in parted.tallies(whole=True, alike=True).items():
        if (decision.file, decision.line) == (file, line) and decision.kind in {"for", "while"}:
            rest = [each for rank, each in own.items() if rank not in ranks]
            mine = [own[rank] for rank in ranks if rank in own]
            if not rest or not mine:
                return False
            is_longer = max(e.yes for e in mine) > min(e.yes for e in rest)
            is_entered = decision.kind == "for" and max(e.no for e in mine) > max(
                e.no for e in rest
            )
            return is_entered or not is_longer
    return False


def _longer_loop(
    parted: DecidedParting, ranks: Sequence[int], frames: Frames, others: Sequence[Frames]
) -> tuple[tuple[str, int, str], dict[int, int]] | None:
    """Return the loop around the innermost one that the ranks in it take more often than others.

    Each of its turns may have as many turns of the inner loop on all ranks: then it is the one that
    is longer. None where the innermost loop is.
    """
    tallies = parted.tallies(whole=True)
    found = None
    for text, line, file in [*_loops_of(frames, others)][1:]:
        own = next(
            (
                each
                for decision, each in tallies.items()
                if decision.kind in {"for", "while"}
                and (decision.file, decision.line) == (file, line)
            ),
            None,
        )
        counts = {rank: own[rank].yes for rank in parted.ranks} if own is not None else {}
        rest = [count for rank, count in counts.items() if rank not in ranks]
        is_left_out = own is not None and not any(
            own[rank].yes or own[rank].no for rank in counts if rank not in ranks
        )  # the others never come to it: they went another way before
        if rest and not is_left_out and min(counts[rank] for rank in ranks) > max(rest):
            found = (text, line, file), counts
    return found


def _origin_of_loop(text: str, line: int, file: str, folder: str) -> str:
    """Return where the script sets the one variable that bounds a loop, and what that depends on.

    That is the nearest line which reads what differs between ranks by itself. Or nothing.
    """
    source = script_at(file)
    if source is None:
        return ""
    names = re.findall(r"[A-Za-z_]\w*", text.partition(" in ")[2])
    set_at = {name: source.assignment(ast.Name(name), line) for name in names}
    own = [at for at in set_at.values() if at and not source.keeps_rank(at)]
    known = [f"{source.text(at)}, :{at}" for at in own]
    words = f" (`{known[0]}`)" if len(known) == 1 else ""
    node = source.find_for(line)
    if node is None:
        return words
    traced = [*source.traces(node.iter, line)]
    options = [each for each in traced if ".add_argument(" in each[0].text(each[1])]
    asking = [
        (script, at) for script, at in traced if script.asks_rank(at) and not script.keeps_rank(at)
    ]
    dealt = _find_dealt(asking)
    asking = [each for each in asking if f"{each[0].text(each[1])}, :{each[1]}" not in known]
    # what a function returns is made of what it has set before
    is_made = bool(asking) and asking[0][0].text(asking[0][1]).startswith("return ")
    behind = [
        script.quote(at, folder)
        for script, at in dict.fromkeys([*options[:1], *asking[: 2 if is_made else 1], *dealt])
    ]
    if asking or dealt:
        words = "" if _is_of_script(source, node.iter) else words
        return f"{words}{_DEPENDS} {', and that from '.join(behind)}"
    return words


def _find_dealt(asking: Sequence[tuple[Script, int]]) -> list[tuple[Script, int]]:
    """Return the line behind the first one that names the rank, where that one does not itself.

    It passes what is a rank's own, `Reader(self.mine)`; or it passes the rank to an object of the
    scripts, which deals by it where it is gone through.
    """
    if not asking:
        return []
    source, line = asking[0]
    if not source.names_rank(line):
        return [(script, at) for script, at in asking[1:] if script.names_rank(at)][:1]
    return [
        (script, each.lineno)
        for name in source.called(line)
        for script in (source, *source.imported())
        for kind in ast.walk(script.tree)
        if isinstance(kind, ast.ClassDef) and kind.name == name
        for method in kind.body
        if isinstance(method, ast.FunctionDef) and method.name == "__iter__"
        for each in ast.walk(method)
        if isinstance(each, ast.Subscript)
        and isinstance(each.slice, ast.Slice)
        and _is_by_rank(script, each.slice, each.lineno)
    ][:1]


def _is_by_rank(script: Script, part: ast.Slice, line: int) -> bool:
    """Whether the bounds of a slice name the rank, or are made of what does."""
    bounds = ast.Tuple([each for each in (part.lower, part.upper) if each], ast.Load())
    return any(map(script.names_rank, (line, *script.origins(bounds, line))))


def _is_of_script(source: Script, value: ast.expr) -> bool:
    """Whether a function or an object of the script's own gives what a loop goes through."""
    name = name_of(value.func) if isinstance(value, ast.Call) else ""
    is_object = bool(name) and source.assignment(ast.Name(name), value.lineno, in_parts=True) > 0
    return is_object or (bool(name) and any(source.functions(name)))


def count_passes(
    record: RankRecord, frames: Frames, maker: str, until: RecordedCall | BlockingCall | None
) -> int:
    """Return how often a rank comes to a place, up to a call; the buckets of a backward are one."""
    count, is_open = 0, False
    for item in record.items:
        if not isinstance(item, RecordedCall):
            is_open = is_open and not isinstance(item, RecordedWait)
            continue
        if item.place.frames == frames and item.maker == maker:
            count += not (is_open and item.maker == Maker.BACKWARD)
            is_open = item.maker == Maker.BACKWARD and not item.completes
        if item is until:
            break
    return count


def loop_of(frames: Frames, others: Sequence[Frames]) -> tuple[str, int, str] | None:
    """Return the innermost loop that a place is in and the other places are not."""
    return next(_loops_of(frames, others), None)


def _loops_of(frames: Frames, others: Sequence[Frames]) -> Iterator[tuple[str, int, str]]:
    """Yield the loops that a place is in and the other places are not: text, line and file."""
    for file, line, _ in frames:
        source = script_at(file)
        if source is None:
            continue
        for node, _branch_name in source.find_statements(line):
            if isinstance(node, ast.For | ast.AsyncFor | ast.While):
                inside = [
                    at
                    for other in others
                    for name, at, _ in other
                    if name == file and has_line(node, at)
                ]
                if not inside:
                    yield source.text(node.lineno), node.lineno, file


def find_surrounding_loop(file: str, line: int) -> ast.For | None:
    """Return the innermost loop around a line that reads its variable; None for loops over data."""
    source = script_at(file)
    for node, _ in source.find_statements(line) if source is not None else ():
        if not isinstance(node, ast.For) or source is None:
            continue
        names = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        read = set(re.findall(r"[A-Za-z_]\w*", source.text(line)))
        if names & read:
            return None if _BATCHES.search(source.text(node.lineno)) else node
    return None


def find_loop(parted: DecidedParting, tallies: Tallies) -> tuple[str, int, int] | None:
    """Return the loop that one side is in and the other is past: its file, first and last line."""
    for _, frames in parted.parting.sides:
        loop = loop_of(frames, [each for _, each in parted.parting.sides if each != frames])
        if loop is not None:
            _, line, file = loop
            source = script_at(file)
            assert source is not None
            node = source.find_loop(line)
            assert node is not None
            inside = (file, line, end_of(node))
            if any(each.file == file and inside[1] <= each.line <= inside[2] for each in tallies):
                return inside
    return None


def is_left_earlier(parted: DecidedParting, loop: tuple[str, int, int] | None) -> bool:
    """Whether the ranks past a loop have made fewer turns of it than those that are in it.

    Then an `if` in it that asks for the turn does not explain it: they do not come there again.
    Ranks that never come to the loop have not left it: an `if` leads to it, or past it. Nor have
    those that are between two starts of a loop, as of the batches of the next epoch.
    """
    if loop is None:
        return False
    file, first, last = loop
    inside = {
        rank
        for who, frames in parted.parting.sides
        if any(each == file and first < line <= last for each, line, _ in frames)
        for rank in who
    }
    for decision, own in parted.tallies(whole=True).items():
        if (decision.file, decision.line) == (file, first) and decision.kind in {"for", "while"}:
            mine = [own[rank].yes for rank in parted.ranks if rank in inside]
            rest = [own[rank] for rank in parted.ranks if rank not in inside]
            came = all(each.yes or each.no for each in rest)
            begun = min((own[rank].no for rank in parted.ranks if rank in inside), default=0)
            if decision.kind == "for" and begun > max((each.no for each in rest), default=0):
                return False  # they have begun it anew, which the rest may still do
            return bool(mine and rest) and came and min(mine) > max(each.yes for each in rest)
    return False


def find_longer_argument(parted: DecidedParting) -> Reason | None:
    """Return what a line passes to a framework that goes through it, where it has more items.

    `accelerator.reduce(losses)` makes a call for each key of `losses`: a rank that has put one more
    there comes to the line once more than the others.
    """
    for ranks, frames in parted.sides:
        call = parted.parting.calls.get(ranks[0])
        if not frames or not isinstance(call, RecordedCall) or not call.place.via:
            continue
        counts = {
            rank: count_passes(parted.records[rank], frames, call.maker, parted.parting.calls[rank])
            for rank in parted.parting.calls
        }
        others = [count for rank, count in counts.items() if rank not in ranks]
        if not others or not 0 < max(others) < counts[ranks[0]]:
            continue
        file, line, _ = frames[0]
        source, place = script_at(file), short(frames[:1], parted.folder)
        for passing in source.calls(line) if source is not None else ():
            for value in passing.args:
                held, chosen = tell_contents(parted, (file, line), value)
                if chosen:
                    words = f"{place} goes through what it is given, with a call for each item: "
                    words += f"{list_times(counts)}; {held}"
                    name = ast.unparse(value)
                    fix = f"put the same into `{name}` on every rank: take {chosen} alike."
                    return Clause(words), fix
    return None


def find_shorter(parted: DecidedParting, tallies: Tallies) -> Reason | None:
    """Return the first loop that ranks which leave take less often than those that wait.

    It may be far from the call, as the one of a dataset whose batches a framework asks for.
    """
    calls = parted.parting.calls
    sides = [[*calls]] if parted.parting.missing else [who for who, _ in parted.parting.sides]
    for decision, own in tallies.items():
        counts = {rank: each.yes for rank, each in own.items()}
        is_loop = decision.kind in {"for", "while"} and parted.leads_on(decision)
        for waiting in sides if is_loop else ():
            rest = [count for rank, count in counts.items() if rank not in waiting]
            if decision.kind == "for" and _is_entered_more(own, waiting):
                continue  # what leads there differs: another step, another forward pass
            if _is_within(parted, decision, waiting):
                continue  # a rank that waits in an earlier turn may have as many as the others
            if rest and min(counts[rank] for rank in waiting) > max(rest):
                return _explain_turns(parted, decision, counts)
    return None


def _is_within(parted: DecidedParting, decision: Decision, ranks: Collection[int]) -> bool:
    """Whether a rank other than some is still in a loop."""
    first, last = _span(decision.file, decision.line) or (0, 0)
    return any(
        file == decision.file and first <= line <= last
        for who, frames in parted.sides
        if not {*who} & {*ranks}
        for file, line, _ in frames
    )


def _is_entered_more(own: Mapping[int, Tally], ranks: Sequence[int]) -> bool:
    """Whether some ranks come to a loop more often than the others do."""
    mine = [own[rank].no for rank in ranks]
    rest = [each.no for rank, each in own.items() if rank not in ranks]
    return min(mine, default=0) > max(rest, default=0)


def _explain_turns(parted: DecidedParting, decision: Decision, counts: Mapping[int, int]) -> Reason:
    place = parted.place(decision)
    words = f"the loop `{decision.text}` ({place}) has more turns on some ranks: "
    held, chosen = _tell_dealt(parted, decision)
    behind = chosen or held.partition(" comes from ")[2].rpartition(", and that from ")[2]
    clause = Clause(words + list_times(counts) + (f"; {held}" if held else ""))
    if decision.kind == "while":
        at = decision.file, decision.line
        return clause, advise_turns(decision.text, at, place, is_backward=False)
    fix = (
        f"give every rank the same number of turns of the loop at {place}"
        + (f": let {behind} give as many on every rank" if behind else "")
        + ", or let the ranks agree on a number of steps that each of them has data for."
    )
    return clause, fix


def _tell_dealt(parted: DecidedParting, decision: Decision) -> tuple[str, str]:
    """Return where what a loop goes through, or a loop around it, became different by rank.

    A rank goes through the files that were dealt to it, where these are in an outer loop. Of a
    `while` it is what its condition reads. The second is the `if` behind it; both are empty where
    none is seen.
    """
    source = script_at(decision.file)
    if source is None:
        return "", ""
    if decision.kind == "while":
        return tell_filled(parted, (decision.file, decision.line))
    names: set[str] = set()
    for node, _ in source.find_statements(decision.line):
        if not isinstance(node, ast.For):
            continue
        targets = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        if node.lineno != decision.line and not targets & names:
            continue
        names |= {each.id for each in ast.walk(node.iter) if isinstance(each, ast.Name)}
        held, chosen = tell_contents(parted, (decision.file, node.lineno), node.iter)
        if held:
            return held, chosen
    return "", ""


def find_loader(parted: DecidedParting) -> Reason | None:
    """Return the loader of the script that has more batches on some ranks than on others.

    A framework goes through it, and its loop is in no line of the script.
    """
    found: dict[tuple[tuple[str, int], ...], dict[int, list[int]]] = {}
    for rank in parted.ranks:
        for each in parted.records[rank].changes:
            if each.what == "loads" and parted.is_within(rank, each.before, whole=True):
                at = tuple((file, line) for file, line, _ in each.place.frames)
                found.setdefault(at, {}).setdefault(rank, []).append(int(each.path))
    # one that the script makes itself shows more than what a framework makes of it
    latest = [*found.items()][::-1]
    for at, made in sorted(latest, key=lambda each: not _makes_loader(each[0][0])):
        if len(made) < len(parted.ranks):
            continue
        for counts in zip(*(made[rank] for rank in parted.ranks), strict=False):
            if len({*counts}) > 1:
                by_rank = dict(zip(parted.ranks, counts, strict=True))
                return _explain_loader(parted, tuple((*each, "") for each in at), by_rank)
    return None


def _makes_loader(at: tuple[str, int]) -> bool:
    """Whether a line of a script calls what makes a loader."""
    source = script_at(at[0])
    return source is not None and any("Loader" in each for each in source.called(at[1]))


def _tell_rows(parted: DecidedParting, at: Frames) -> str:
    """Return the lines behind what a loader is given that read what a rank has for itself."""
    for file, line, _ in at:
        lines = _trace_calls(script_at(file), line)
        own = next((each for each in lines if each[0].asks_rank(each[1])), None)
        if own is not None:
            shown = [
                script.quote(number, parted.folder)
                for script, number in dict.fromkeys((lines[0], own))
            ]
            return f"; what it is given comes from {', and that from '.join(shown)}"
    return ""


def _trace_calls(source: Script | None, line: int) -> list[tuple[Script, int]]:
    """Return the lines, in its own script, that what the calls of a line are given comes from."""
    if source is None:
        return []
    given = [
        value
        for call in source.calls(line)
        for value in (*call.args, *(each.value for each in call.keywords))
    ]
    lines = [each for value in given for each in source.traces(value, line)]
    for value in given:
        for passed, at in _list_passed(source, value, line):
            lines += [(source, at), *source.traces(passed, at)]
    return [*dict.fromkeys(each for each in lines if each[0] is source)]


def _list_passed(source: Script, value: ast.expr, line: int) -> list[tuple[ast.expr, int]]:
    """Return what calls of a class give under the name of an attribute that it does not set.

    A class of the script has it from the one of a framework that it is derived from::

        class Own(Trainer):
            def get_train_dataloader(self):
                return DataLoader(self.train_dataset)
        trainer = Own(train_dataset=Shards(files))
    """
    is_own = ast.unparse(value).startswith("self.")
    classes = [node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
    around = [node for node in classes if node.lineno < line <= end_of(node)]
    if not isinstance(value, ast.Attribute) or not is_own or not around:
        return []
    return [
        (each.value, call.lineno)
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and name_of(call.func) == around[-1].name
        for each in call.keywords
        if each.arg == value.attr
    ]


def _explain_loader(parted: DecidedParting, at: Frames, counts: Mapping[int, int]) -> Reason:
    """Return how many batches a loader has on each rank, with what it was given otherwise."""
    place = short(at, parted.folder)
    alike: dict[int, list[int]] = {}
    for rank, count in sorted(counts.items()):
        alike.setdefault(count, []).append(rank)
    shown = ", ".join(
        f"{count} batch{'es' * (count != 1)} on {ranks_text(who)}" for count, who in alike.items()
    )
    words = f"the loader made at {place} has {shown}"
    given = next(iter(list_differing(parted, at, of_items=True)), None)
    more = (
        f"give the loader at {place} as many batches on every rank (`drop_last=True`, or a "
        "`DistributedSampler` over rows that all ranks see), or let the ranks "
        "agree on a number of steps."
    )
    if given is None:
        made = tell_given(parted, at[:1])
        if made is None and (filled := _find_filling(parted, at[:1])):
            decision, own = filled
            words += f": {count_turns(parted, decision, own)}"
            fix = f"let the ranks decide alike at {parted.place(decision)}, or {more}"
            return Clause(words), fix
        if made is None:
            return Clause(words + _tell_rows(parted, at[:1])), more
        return Clause(f"{words}, as {made[0].words}"), f"{made[1].rstrip('.')}, or {more}"
    decision, differs = given
    words += f", as {differs}{tell_behind(parted, decision)}"
    return Clause(words), f"let `{decision.text}` ({parted.place(decision)}) be the same, or {more}"


def _find_filling(
    parted: DecidedParting, at: Frames
) -> tuple[Decision, Mapping[int, Tally]] | None:
    """Return the `if` that ranks decide otherwise in the sampler or data that a loader is given."""
    for file, line, _ in at:
        source = script_at(file)
        if source is None:
            continue
        lines = [line, *(number for _, number in _trace_calls(source, line))]
        names = {name for number in lines for name in source.called(number)}
        spans = [
            (each.lineno, end_of(each))
            for each in ast.walk(source.tree)
            if isinstance(each, ast.ClassDef) and each.name in names
        ]
        fitting = [
            (decision, own)
            for decision, own in parted.tallies(whole=True).items()
            if decision.kind == "if"
            and decision.file == file
            and any(first <= decision.line <= last for first, last in spans)
            and not is_idle(decision)
            and len({_share(each) for each in own.values()}) > 1
        ]
        if fitting:
            return fitting[-1]
    return None


def _share(tally: Tally) -> float:
    """Return how often a condition was true, of all times that it was asked."""
    return tally.yes / ((tally.yes + tally.no) or 1)


def find_taken(parted: DecidedParting, tallies: Tallies) -> Reason | None:
    """Return the line in which some ranks alone take from the iterator that their loop is over."""
    for _, frames in parted.parting.sides:
        others = [each for _, each in parted.parting.sides if each != frames]
        for _, line, file in _loops_of(frames, others):
            for call in _list_takes(file, line):
                found = _explain_taken(parted, tallies, file, call)
                if found is not None:
                    return found
    return None


def _list_takes(file: str, line: int) -> Iterator[ast.Call]:
    """Yield what takes from the iterator that a loop goes through, or is given it, outside of it.

    That is a `next`; and of what is surely an iterator any call, as of a function that warms up.
    """
    source = script_at(file)
    loop = source.find_for(line) if source is not None else None
    if source is None or loop is None or not isinstance(loop.iter, ast.Name | ast.Attribute):
        return
    name, is_iterator = ast.unparse(loop.iter), source.is_iterator(loop.iter, line)
    for call in ast.walk(source.scope(line)):
        if (
            isinstance(call, ast.Call)
            and not has_line(loop, call.lineno)
            and (is_iterator or getattr(call.func, "id", "") == "next")
            and name in {ast.unparse(each) for each in call.args}
        ):
            yield call


def _explain_taken(
    parted: DecidedParting,
    tallies: Tallies,
    file: str,
    call: ast.Call,
) -> Reason | None:
    """Return that ranks make a call under an `if` which they decide otherwise; None for no `if`."""
    source = script_at(file)
    for decision, own in tallies.items():
        asked = source.condition(decision.line) if source and decision.file == file else None
        if isinstance(asked, ast.If) and asked.lineno < call.lineno <= end_of(asked):
            place = place_at(file, call.lineno, parted.folder)
            words = (
                f"`{ast.unparse(call)}` ({place}) may take from the iterator of the loop, and "
                f"{count_turns(parted, decision, own)}"
            )
            fix = (
                f"take from an iterator of its own at {place}, or let every rank take a batch "
                "before the loop."
            )
            return Clause(words), fix
    return None


def find_longest(parted: DecidedParting, tallies: Tallies) -> Reason | None:
    """Return the first loop that ranks take unequally often, where its script is not read."""
    for decision, own in tallies.items():
        if decision.kind in {"for", "while"} and script_at(decision.file) is None:
            return _explain_turns(parted, decision, {rank: each.yes for rank, each in own.items()})
    return None


#: passes from which on a line is one of a loop; lines that are told; calls that are counted
FEWEST, MOST_LINES, MOST_CALLS = 3, 2, 10_000


def tell_progress(parted: DecidedParting) -> list[Clause]:
    """Return how often ranks have come to lines of a loop, those that differ most often done."""
    calls = [
        item
        for rank in parted.ranks
        for item in parted.records[rank].items
        if isinstance(item, RecordedCall) and item.place.frames
    ]
    if len(calls) > MOST_CALLS:
        return []
    places = dict.fromkeys((each.place.frames, each.maker, each.operation) for each in calls)
    found: dict[tuple[Frames, str], dict[int, int]] = {}
    for frames, maker, operation in places:  # a line that other lines come to is one line
        own = found.setdefault(
            (frames[:1], "backward" if maker == Maker.BACKWARD else operation), {}
        )
        for rank in parted.ranks:
            passes = count_passes(parted.records[rank], frames, maker, None)
            own[rank] = own.get(rank, 0) + passes
    found = {
        line: counts
        for line, counts in found.items()
        if len(set(counts.values())) > 1 and max(counts.values()) >= FEWEST
    }
    ordered = sorted(found.items(), key=lambda each: -max(each[1].values()))[:MOST_LINES]
    words = [
        f"{what} at {short(frames, parted.folder)}: {list_times(counts)}"
        for (frames, what), counts in ordered
    ]
    is_fake = any(each.about.get("mode") == "fake" for each in parted.records.values())
    when = "in all" if is_fake else "done so far"  # fake ranks go on behind where they part
    return [Clause(f"{when}: {'; '.join(words)}")] if words else []


#: how a loop is named whose order is that of a set
GOES_THROUGH_SET = "goes through a set"


def find_set(parted: DecidedParting) -> Reason | None:
    """Return the set whose order decides which tensors ranks pass in one line."""
    frames = {each for _, at in parted.sides for each in at}
    for decision in parted.tallies(whole=True, alike=True):
        if decision.kind != "set":
            continue
        source = script_at(decision.file)
        span = source.loop(decision.line) if source is not None else None
        inside = span is None or any(
            file == decision.file and span[0] <= line <= span[1] for file, line, _ in frames
        )
        kept = "" if inside else _tell_kept_order(parted, source, decision.line)
        if not inside and not kept:
            continue
        place = parted.place(decision)
        words = (
            f"`{decision.text}` ({place}) {GOES_THROUGH_SET}, whose order each process has for "
            f"itself: the hashes of strings differ{kept}"
        )
        return Clause(words), f"go through `sorted(...)` of it at {place}, or through a list."
    return None


def _tell_kept_order(parted: DecidedParting, source: Script | None, line: int) -> str:
    """Return in words the dict that a loop fills in its order, where ranks part in a loop over one.

    The loop over the dict is in a function that is given what the first one returns.
    """
    loop = source.find_for(line) if source is not None else None
    if source is None or loop is None:
        return ""
    filled = {
        each.value.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign)
        for each in node.targets
        if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name)
    }
    given = {
        node.value.id
        for node in ast.walk(source.scope(line))
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Name)
    }
    for file, at, _ in (each for _, frames in parted.parting.sides for each in frames):
        inner = script_at(file)
        for node, part in inner.find_statements(at) if inner is not None else ():
            called = node.iter if isinstance(node, ast.For) and part == "body" else None
            function = called.func if isinstance(called, ast.Call) else None
            if filled & given and name_of(function) in {"items", "keys", "values"}:
                name = min(filled & given)
                text = inner.text(node.lineno).rstrip(":") if inner is not None else ""
                where = place_at(file, node.lineno, parted.folder)
                return f"; `{name}` is filled in that order, and `{text}` ({where}) goes through it"
    return ""
