"""Where a value comes from by which ranks decide otherwise: what set it, perhaps long before.

An `if` shows that ranks have different values; what is to be mended is where these became so::

    if counter.update(loss):               true on rank 1 alone, in its turn 4
        counter.current = counter.limit    sets what the `if` below reads

    if self.current < self.limit:          where ranks part

The values that an `if` reads are followed through assignments, attributes of any file, parameters
and what functions return. A line under another `if` that ranks took otherwise comes first; else it
is the line that reads what each rank has for itself: its rank, its files, environment, time.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from msgspec.structs import replace

from torch_scenarios.record.evidence.choice import (
    DecidedParting,
    Tally,
    list_times,
    list_values,
)
from torch_scenarios.record.evidence.notes.assignment import CHANGING
from torch_scenarios.record.evidence.reasons.value_source import find_argument_of
from torch_scenarios.record.evidence.script import (
    Script,
    end_of,
    has_line,
    list_targets,
    name_of,
    script_at,
)
from torch_scenarios.record.format import Decision
from torch_scenarios.verdict.finding import ranks_text

#: expressions that are followed at most, and callers of one function
MOST_FOLLOWED, MOST_CALLERS = 60, 3
#: what a line reads that a process has for itself
_OWN = re.compile(
    r"\brank\b|_rank\b|\bRANK\b|is_(?:main|master|rank|first|last)\w*\(|environ|getenv|hostname|"
    r"\bis_(?:\w+_)?(?:main|master)_process\b|\bis_(?:world_process|global)_zero\b|process_index\b|"
    r"listdir|glob\(|random|rand(?:n|int|perm)?\(|multinomial|open\(|\bread_?\w*\(|(?<![a-z])load\w*\(|"
    r"exists\(|is_file\(|\btime\(|monotonic\(|perf_counter\(|getpid|cpu_count|uuid|mkdtemp|stat\("
)
#: what begins from another number in each process
_UNSEEDED = re.compile(r"\b(?:default_rng|RandomState|Random)\(\)")
#: what draws at random
_DRAWN = re.compile(r"\b(?:\w+\.)*(?:random\w*|rand(?:n|int|perm)?(?:_like)?|multinomial)\b")
#: those that give what they take away
_TAKING = frozenset({"pop", "popleft", "popitem"})
#: a line that keeps a parameter under its own name
_KEEPS = re.compile(r"(?:self\.)?(\w+)(?:\s*:[^=]+)? = (\w+)")
#: the words for an `if` under which a value was set, or past which it was
SET_UNDER = re.compile(r"\b(?:is set by|depends on) .*?, (?:under|past) (`.+?` \([^()]+\)), ")
#: characters of a line that is shown
MOST_LINE = 100

#: an expression that is followed, in its script and before a line
Followed: TypeAlias = tuple[Script, ast.expr, int]
#: a line of a script
Place: TypeAlias = tuple[Script, int]


def word_values(
    parted: DecidedParting,
    decision: Decision,
    own: Mapping[int, Tally],
    ranks: Collection[int] | None = None,
) -> str:
    """Return what a condition read on each rank, and where that which differs comes from.

    `ranks` are those whose values are shown; all of them where nothing is given.
    """
    shown = {rank: own[rank] for rank in (own if ranks is None else ranks)}
    if decision.kind == "if":
        shown = {
            rank: replace(each, values=each.read_apart(own.values()))
            for rank, each in shown.items()
        }
    values, origin = list_values(decision, shown), _tell_origin(parted, decision, own)
    line = re.search(r"` comes from (`.*?`) \([^()]*\)$", origin)
    is_shown = line is not None and line[1].strip("`") in values
    drawn = tell_seed(parted, decision)
    return "; ".join(filter(None, (values, "" if is_shown else origin, drawn)))


#: functions that draw at random, and those that say what they begin from
DRAWS = re.compile(
    r"\brand(?:om|int|n|perm|range)?(?:_like)?\(|\bmultinomial\(|"
    r"\.(?:uniform|bernoulli|choices?|sample|shuffle|integers)\("
)
_SEEDS = frozenset(
    {"seed", "manual_seed", "manual_seed_all", "seed_everything", "set_seed", "seed_all"}
    | {"Random", "RandomState", "default_rng", "PRNGKey", "fix_seed", "setup_seed"}
)


#: how what a condition draws is tied to its seed
SEEDED = "it draws at random, and is seeded by"


def draws(decision: Decision) -> bool:
    """Whether what an `if` asks is drawn at random, there or in the line that sets it."""
    source = script_at(decision.file)
    test = _find_test(source, decision) if source is not None else None
    if source is None or test is None:
        return False
    names = [each for each in ast.walk(test) if isinstance(each, ast.Name)]
    set_by = [source.text(at) for each in names if (at := source.assignment(each, test.lineno))]
    return any(map(DRAWS.search, (ast.unparse(test), *set_by)))


def tell_seed(parted: DecidedParting, decision: Decision) -> str:
    """Return the line that seeds each rank otherwise, where a decision draws at random."""
    source = script_at(decision.file)
    if source is None or not draws(decision):
        return ""
    begin = (source, ast.Constant(value=None), decision.line)
    for script, at in list_own_seeds(_Search(parted, decision, begin).scripts)[:1]:
        place = script.place(at, parted.folder)
        return f"{SEEDED} `{script.text(at)}` ({place})"
    return ""


def list_own_seeds(scripts: Sequence[Script]) -> list[Place]:
    """Return the lines of scripts that seed each rank otherwise: by its own number."""
    return [
        (script, call.lineno)
        for script in scripts
        for call in ast.walk(script.tree)
        if isinstance(call, ast.Call) and name_of(call.func) in _SEEDS and call.args
        if any(
            each.names_rank(at) and not each.keeps_rank(at)
            for each, at in [(script, call.lineno), *script.traces(call.args[0], call.lineno)]
        )
    ]


def tell_contents(
    parted: DecidedParting, at: tuple[str, int], read: ast.expr, without: Collection[int] = ()
) -> tuple[str, str]:
    """Return where what a loop goes through became different by rank, and the `if` behind it.

    A list or a dict is filled under an `if` that ranks decide otherwise; with `without`, under one
    that these ranks never go into. Else it is the line that reads what a rank has for itself. Both
    are empty where none is seen.
    """
    (file, line), source = at, script_at(at[0])
    if source is None:
        return "", ""
    decision = Decision(kind="for", file=file, line=line, text=source.text(line))
    calls, own = [each for each in ast.walk(read) if isinstance(each, ast.Call)], ""
    loop = source.find_loop(line)
    # what a `while` reads is set in its own lines too
    last = end_of(loop) if isinstance(loop, ast.While) and loop.test is read else line
    for value in [*_list_read(read).values(), *calls]:
        search = _Search(parted, decision, (source, value, last))
        found = search.tell_decision(without)
        if found:
            chosen = SET_UNDER.search(found)
            return f"`{ast.unparse(value)}` {found}", chosen[1] if chosen is not None else ""
        own = own or (f"`{ast.unparse(value)}` {place}" if (place := search.tell_place()) else "")
    return ("" if without else own), ""


def _tell_origin(parted: DecidedParting, decision: Decision, own: Mapping[int, Tally]) -> str:
    """Return where what an `if` reads became different; nothing where that is not seen."""
    source = script_at(decision.file)
    test = _find_test(source, decision) if source is not None else None
    if source is None or test is None:
        return ""
    for call in _list_calls_of(test):
        search = _Search(parted, decision, (source, call, decision.line))
        found = search.tell_decision()
        if found:
            return f"`{ast.unparse(call.func)}` {found}"
    wanted = _list_wanted(test, decision, own)
    for read in wanted:
        search = _Search(parted, decision, (source, read, decision.line))
        found = search.tell_decision(with_past=False)
        if not found and not search.tell_decision():
            found = search.tell_place()
        if not found:  # what decides how often, or whether, it is set
            search.follow_control()
            found = search.tell_decision() or search.tell_place()
        if found:
            return f"`{ast.unparse(read)}` {found}"
    return ""


def _list_calls_of(test: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of a condition without what they are given: what a function answers by.

    `if metrics.should_log(step)` is decided where `should_log` returns.
    """
    for each in ast.walk(test):
        if isinstance(each, ast.Call) and name_of(each.func):
            yield ast.Call(func=each.func, args=[], keywords=[])


def _find_test(source: Script, decision: Decision) -> ast.expr | None:
    """Return the condition of a decision, or what its loop goes through."""
    if decision.kind == "for":
        loop = source.find_for(decision.line)
        return loop.iter if loop is not None else None
    tests = (getattr(node, "test", None) for node in ast.walk(source.tree))
    found = (e for e in tests if isinstance(e, ast.expr) and e.lineno == decision.line)
    return next(found, None)


def _list_wanted(
    test: ast.expr, decision: Decision, own: Mapping[int, Tally]
) -> Sequence[ast.expr]:
    """Return the names of a condition whose value differs by rank, or is not known.

    A rank says itself why it differs. Where all that is known is one value, and not of every rank,
    the others came there in other turns: what they read then differs.
    """
    known: dict[str, set[str | None]] = {}
    for tally in own.values():
        for name, value in zip(decision.names, tally.values, strict=False):
            known.setdefault(name, set()).add(value)
    read = _list_read(test)
    differing = [each for name, each in read.items() if len(known.get(name, set())) > 1]
    unknown = [each for name, each in read.items() if known.get(name, {None}) == {None}]
    if not differing and not unknown and not all(tally.values for tally in own.values()):
        differing = [*read.values()]
    if any(_OWN.search(ast.unparse(each)) for each in differing):
        return ()
    return differing or unknown


def _list_read(value: ast.expr) -> dict[str, ast.expr]:
    """Return the names and attributes that an expression reads, or whose methods it calls."""
    read: dict[str, ast.expr] = {}
    called = {id(each.func) for each in ast.walk(value) if isinstance(each, ast.Call)}
    inner = {id(each.value) for each in ast.walk(value) if isinstance(each, ast.Attribute)}
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and id(node) in called:
            owner = node.value
            if isinstance(owner, ast.Name | ast.Attribute):
                read[ast.unparse(owner)] = owner
        elif isinstance(node, ast.Name | ast.Attribute) and id(node) not in called | inner:
            read[ast.unparse(node)] = node
    return read


class _Search:
    """Follows a value back from a decision, through all scripts that ranks come from."""

    def __init__(self, parted: DecidedParting, decision: Decision, begin: Followed) -> None:
        self._parted, self._decision = parted, decision
        self._folder, self._read = parted.folder, begin[1]
        files = dict.fromkeys(
            [
                begin[0].file,
                *(each.decision.file for own in parted.records.values() for each in own.ways),
                *(file for _, at in parted.parting.sides for file, _, _ in at),
            ]
        )
        own = [each for each in map(script_at, files) if each is not None]
        imported = (other for each in own for other in each.imported())
        self._scripts = [*{each.file: each for each in (*own, *imported)}.values()]
        self._apart = parted.tallies(whole=True)
        self._asked = {
            (each.file, each.line): own
            for each, own in parted.tallies(whole=True, alike=True).items()
            if each.kind == "if"
        }
        self._inside = self._span()
        #: lines that set the value, or what it comes from, the nearest first, and to what they do
        self._found: dict[tuple[str, int], tuple[Script, ast.expr | None]] = {}
        self._known: set[tuple[str, str, int]] = set()
        self._with_control = False
        self._follow([begin])

    @property
    def scripts(self) -> Sequence[Script]:
        """The scripts that ranks come from."""
        return self._scripts

    def _span(self) -> tuple[int, int]:
        """Return the lines that the decision leads into: they come after it."""
        source = script_at(self._decision.file)
        node = source.condition(self._decision.line) if source is not None else None
        if not isinstance(node, ast.If):
            return 0, -1
        return node.body[0].lineno, end_of(node)

    def _follow(self, waiting: list[Followed]) -> None:
        while waiting and len(self._known) < MOST_FOLLOWED:
            source, read, line = waiting.pop(0)
            for node in ast.walk(read):
                key = (source.file, ast.unparse(node), line)
                if key in self._known:
                    continue
                if isinstance(node, ast.Call):
                    self._known.add(key)
                    waiting += self._list_returned(source, node, line)
                elif isinstance(node, ast.Name | ast.Attribute):
                    self._known.add(key)
                    waiting += self._list_set(source, node, line)

    def follow_control(self) -> None:
        """Follow the conditions under which these lines run, and what leaves their loop."""
        self._with_control = True
        self._follow(
            [
                (script, test, test.lineno)
                for (_, at), (script, _) in [*self._found.items()]
                for test in _list_control(script, at)
            ]
        )

    def _list_returned(self, begin: Script, call: ast.Call, line: int) -> Iterator[Followed]:
        """Yield what a function of the scripts returns or yields: none where several have its name.

        Where none has it, it is what a class, or an object of one, gives.
        """
        name = name_of(call.func)
        made = [(each, node) for each in self._scripts for node in _index(each).functions[name]]
        for source, function in made if len(made) == 1 else ():
            for each in ast.walk(function):
                if isinstance(each, ast.Return | ast.Yield) and each.value is not None:
                    self._found.setdefault((source.file, each.lineno), (source, each.value))
                    yield source, each.value, each.lineno
        for source, at, value in begin.gives(call, line) if not made else ():
            self._found.setdefault((source.file, at), (source, value))
            yield source, value, at

    def _list_set(
        self, source: Script, node: ast.Name | ast.Attribute, line: int
    ) -> Iterator[Followed]:
        """Yield what sets a name or an attribute, and keep the lines that do."""
        scope = source.scope(line)
        is_local = isinstance(node, ast.Name) and _is_local(scope, node.id)
        is_own = isinstance(node, ast.Name)
        agreed = _find_agreed(scope, node.id, line) if isinstance(node, ast.Name) else 0
        for script in [source] if is_own else self._scripts:
            for at, value in _index(script).changes[_key_of(node)]:
                if is_local and not (_is_within(scope, at) and at <= line):
                    continue
                if at < agreed or not self._has_run(script, at):
                    continue
                if isinstance(node, ast.Name) and _is_of_other(script, at, node.id, line):
                    continue
                if not self._is_later(script, at):
                    self._found.setdefault((script.file, at), (script, value))
                    if value is not None:
                        yield script, value, at
        if isinstance(node, ast.Name) and not agreed:
            yield from self._list_passed(source, node.id, line)
        elif isinstance(node, ast.Attribute) and (option := source.option(node)) is not None:
            (script, at), value = option
            self._found.setdefault((script.file, at), (script, value))
            yield script, value, at

    def _has_run(self, script: Script, at: int) -> bool:
        """Whether a line may have run: it is in no part of an `if` that no rank has gone into."""
        for node, part in script.find_statements(at):
            own = self._asked.get((script.file, getattr(node, "test", node).lineno))
            if own is None or not isinstance(node, ast.If) or part not in {"body", "orelse"}:
                continue
            if not any(each.yes if part == "body" else each.no for each in own.values()):
                return False
        return True

    def _is_later(self, script: Script, at: int) -> bool:
        first, last = self._inside
        return script.file == self._decision.file and first <= at <= last

    def _list_passed(self, source: Script, name: str, line: int) -> Iterator[Followed]:
        """Yield what callers pass as a parameter."""
        scope = source.scope(line)
        names = [each.arg for each in scope.args.args] if isinstance(scope, ast.FunctionDef) else []
        if name not in names or not isinstance(scope, ast.FunctionDef) or name in {"self", "cls"}:
            return
        place = names.index(name) - (names[0] in {"self", "cls"})
        calls = self._list_calls(source, scope)
        if not calls:  # a module is called by its own name
            yield from self._list_passed_in_frames(source, name, scope)
        for script, call in calls:
            given = {each.arg: each.value for each in call.keywords}
            args = call.args[1:] if name_of(call.func) == "partial" else call.args
            value = given.get(name) or (args[place] if place < len(args) else None)
            if value is not None:
                self._found.setdefault((script.file, call.lineno), (script, value))
                yield script, value, call.lineno

    def _list_passed_in_frames(
        self, source: Script, name: str, function: ast.FunctionDef
    ) -> Iterator[Followed]:
        """Yield what is passed as a parameter where ranks came through its function and parted."""
        for _, frames in self._parted.parting.sides:
            for depth, (file, at, _) in enumerate(frames[:-1]):
                if file != source.file or source.scope(at) is not function:
                    continue
                (caller, line, _), behind = frames[depth + 1], frames[depth + 1 :]
                value, script = find_argument_of(source, name, at, behind), script_at(caller)
                if value is not None and script is not None:
                    self._found.setdefault((caller, line), (script, value))
                    yield script, value, line

    def _list_calls(
        self, source: Script, function: ast.FunctionDef
    ) -> Sequence[tuple[Script, ast.Call]]:
        """Return the lines that call a function, or make an object of its class."""
        name = function.name
        if name == "__init__":
            kinds = [
                each
                for each in ast.walk(source.tree)
                if isinstance(each, ast.ClassDef) and function in each.body
            ]
            name = kinds[0].name if kinds else name
        found = [
            (each, call)
            for each in self._scripts
            for call in _index(each).calls[name]
            if not _is_of_another(each, call, function)
        ]
        found += [
            (each, call)
            for each in self._scripts
            for call in _index(each).calls["partial"]
            if call.args and name_of(call.args[0]) == name
        ]
        parting = [each for each in found if self._is_at(each[0], each[1].lineno)]
        found = parting or found  # where ranks part, the function was called from one of them
        return found if len(found) <= MOST_CALLERS else ()

    def _is_at(self, script: Script, line: int) -> bool:
        """Whether a line is one of those by which ranks came to where they part."""
        return any(
            (script.file, line) == (file, at)
            for _, frames in self._parted.parting.sides
            for file, at, _ in frames
        )

    def tell_decision(self, without: Collection[int] = (), *, with_past: bool = True) -> str:
        """Return the `if` under which the value was set, and that ranks took otherwise before.

        Where there are several, it is the one in which ranks went different ways first. With
        `without`, it is one that these ranks have not gone into; `with_past` counts one that leads
        past the line too.
        """
        found = [
            (since, is_past, order, script, at, each)
            for order, ((_, at), (script, _)) in enumerate(self._found.items())
            for past in [[test.lineno for test in _list_past(script, at)]]
            for each in self._list_around(script, at)
            if not any(self._apart[each][rank].yes for rank in without)
            if (since := self._find_first(each)) is not None
            for is_past in [each.file == script.file and each.line in past]
            if with_past or not is_past
        ]
        if not found:
            return ""
        _, is_past, _, script, at, decision = min(found, key=lambda each: each[:3])
        text, place = self._show(script, at), self._parted.place(decision)
        own = self._apart[decision]
        verb = "is set by" if self._sets(script, at) else "depends on"
        where = "past" if is_past else "under"
        words = f"{verb} {text}, {where} `{decision.text}` ({place}), {_word_turns(own)}"
        return words + self._tell_rank_behind(decision, own)

    def _tell_rank_behind(self, decision: Decision, own: Mapping[int, Tally]) -> str:
        """Return the line that sets what an `if` reads by what a rank has for itself, if any."""
        source = script_at(decision.file)
        test = _find_test(source, decision) if source is not None else None
        if source is None or test is None:
            return ""
        for read in _list_wanted(test, decision, own):
            search = _Search(self._parted, decision, (source, read, decision.line))
            place = search.tell_place()
            if place:
                return f"; `{ast.unparse(read)}` {place}"
        return ""

    def _list_around(self, script: Script, at: int) -> Iterator[Decision]:
        """Yield the `if`s and handlers around a line that ranks have decided otherwise."""
        waiting, known = [(script, at)], set[tuple[str, int]]()
        while waiting and len(known) < MOST_FOLLOWED:
            source, line = waiting.pop(0)
            known.add((source.file, line))
            lines = {
                each
                for node, part in source.find_statements(line)
                for each in _lines_of(node, part, line)
            }
            lines |= {test.lineno for test in _list_past(source, line)}
            if self._with_control:
                lines |= {test.lineno for test in _list_control(source, line)}
            found = [
                each
                for each in self._apart
                if each.file == source.file
                and each.line in lines
                and each.kind in {"if", "except"}
                and each != self._decision
            ]
            yield from found
            scope = source.scope(line)
            if not found and isinstance(scope, ast.FunctionDef) and scope.name != "__init__":
                calls = self._list_calls(source, scope)
                waiting += [
                    (each, call.lineno)
                    for each, call in calls
                    if (each.file, call.lineno) not in known
                    and not (self._is_later(each, call.lineno))
                ]

    def _find_first(self, decision: Decision) -> tuple[int, int] | None:
        """Return when ranks went different ways first: before which item, and as which decision.

        None where they went the same ways.
        """
        ways: dict[int, dict[int, tuple[int, int]]] = {}
        order: dict[int, int] = {}
        for rank in self._parted.ranks:
            for at, way in enumerate(self._parted.records[rank].ways):
                if way.decision == decision:
                    yes, no = ways.setdefault(way.before, {}).get(rank, (0, 0))
                    ways[way.before][rank] = yes + way.yes, no + way.no
                    order[way.before] = min(at, order.get(way.before, at))
        for before in sorted(ways):
            if len({ways[before].get(rank, (0, 0)) for rank in self._parted.ranks}) > 1:
                return before, order[before]
        return None

    def tell_place(self) -> str:
        """Return the line that sets the value by what each rank has for itself."""
        lines = [
            (script, at, ast.unparse(value))
            for (_, at), (script, value) in self._found.items()
            if value is not None and not _is_fixed(value)
            if not _is_kept(script.text(at)) and not script.keeps_rank(at)
        ]
        own = [
            (script, at, text)
            for script, at, text in lines
            if _OWN.search(self._drop_draws(text)) or _UNSEEDED.search(text) or script.chooses(at)
        ]
        if not own:
            return ""
        own = [each for each in own if _EVEN not in each[2]] or own
        own = [each for each in own if each[0].names_rank(each[1])] or own  # what it draws by
        own = [each for each in own if not self._only_passes(*each[:2])] or own
        own = [self._find_inner(own), *own]
        near = [each for each in lines[:1] if each != own[0] and not self._sets(*own[0][:2])]
        return "comes from " + ", and that from ".join(
            self._show(script, at) + self._tell_table(script, at)
            for script, at, _ in [*near, own[0]]
        )

    def _only_passes(self, script: Script, at: int) -> bool:
        """Whether a line does no more with the rank than give it to a class of the scripts.

        What the class makes of it is in another line.
        """
        value = self._found[script.file, at][1]
        name = name_of(value.func) if isinstance(value, ast.Call) else ""
        return name[:1].isupper() and any(script.makers(name))

    def _drop_draws(self, text: str) -> str:
        """Return a line without what it draws at random, where all ranks draw the same."""
        return _DRAWN.sub("", text) if self._is_seeded_alike() else text

    def _is_seeded_alike(self) -> bool:
        """Whether the scripts seed what is drawn, and never by what a rank has for itself."""
        given = [
            (script, call.args[0] if call.args else call.keywords[0].value, call.lineno)
            for script in self._scripts
            for name in _SEEDS
            for call in _index(script).calls[name]
            if call.args or call.keywords
        ]
        return bool(given) and not any(
            _OWN.search(ast.unparse(value)) or script.tests_rank(value, at)
            for script, value, at in given
        )

    def _find_inner(self, own: Sequence[tuple[Script, int, str]]) -> tuple[Script, int, str]:
        """Return the line inside of the function that the first one calls; else the first one."""
        value = self._found[own[0][0].file, own[0][1]][1]
        called = {
            name_of(each.func)
            for each in ast.walk(value or ast.Constant(value=None))
            if isinstance(each, ast.Call)
        }
        for script, at, text in own[1:]:
            scope = script.scope(at)
            if isinstance(scope, ast.FunctionDef) and scope.name in called:
                return script, at, text
        return own[0]

    def _tell_table(self, script: Script, at: int) -> str:
        """Return the table of a script that a line takes a rank's own entry from; or nothing."""
        value = self._found[script.file, at][1]
        for node in ast.walk(value) if value is not None else ():
            table = node.value if isinstance(node, ast.Subscript) else None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                table = node.func.value if node.func.attr == "get" else None
            set_at = script.constant(table, at) if table is not None else 0
            if set_at and set_at != at:
                return f", of {self._show(script, set_at)}"
        return ""

    def _sets(self, script: Script, at: int) -> bool:
        """Whether a line sets, or changes, what the condition reads itself."""
        return any(line == at for line, _ in _index(script).changes[_key_of(self._read)])

    def _show(self, script: Script, at: int) -> str:
        text = script.text(at)
        if text.endswith(("(", "[", "{")):  # what is written in several lines is shown in one
            first, last = script.span(at)
            whole = " ".join(script.text(line) for line in range(first, last + 1))
            text = re.sub(r"(?<=[(\[{]) | (?=[)\]}])", "", whole)
        text = text if len(text) <= MOST_LINE else f"{text[:MOST_LINE]} ..."
        return f"`{text}` ({script.place(at, self._folder)})"


def _word_turns(own: Mapping[int, Tally]) -> str:
    """Return which ranks go into a condition, or how often each rank does."""
    yes = {rank: tally.yes for rank, tally in own.items()}
    into = [rank for rank, count in sorted(yes.items()) if count]
    if into and len(into) < len(yes):
        return f"which {ranks_text(into)} alone {'goes' if len(into) == 1 else 'go'} into"
    if len(set(yes.values())) > 1:
        return f"which is true more often on some ranks: {list_times(yes)}"
    return f"which is asked {list_times({r: each.yes + each.no for r, each in own.items()})}"


def _is_kept(text: str) -> bool:
    """Whether a line only keeps parameters: `self.enabled = enabled`, `self.a, self.b = a, b`."""
    left, _, right = text.partition(" = ")
    pairs = list(zip(left.split(", "), right.split(", "), strict=False))
    kept = [_KEEPS.fullmatch(f"{one} = {other}") for one, other in pairs]
    return all(each is not None and each[1].strip("_") == each[2].strip("_") for each in kept)


def _lines_of(node: ast.stmt, part: str, line: int) -> Iterator[int]:
    """Yield the lines by which a statement decides whether a part of it runs."""
    if isinstance(node, ast.If) and part in {"body", "orelse"}:
        yield node.test.lineno
    for handler in getattr(node, "handlers", ()) if part == "except" else ():
        if has_line(handler, line):
            yield handler.lineno


def _list_control(script: Script, line: int) -> Iterator[ast.expr]:
    """Yield the conditions and loops around a line, and the conditions that end such a loop."""
    for node, _ in script.find_statements(line):
        if isinstance(node, ast.If | ast.While):
            yield node.test
        if isinstance(node, ast.For):
            yield node.iter
        if isinstance(node, ast.For | ast.While):
            for each in ast.walk(node):
                if isinstance(each, ast.If) and isinstance(each.body[-1], _LEAVES):
                    yield each.test


def _list_past(script: Script, line: int) -> Iterator[ast.expr]:
    """Yield the conditions before a line, in its own block or one around it, that lead past it."""
    around = [script.scope(line), *(node for node, _ in script.find_statements(line))]
    for node in around:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, [])
            at = [number for number, each in enumerate(block) if each.lineno <= line]
            if not at or line > end_of(block[at[-1]]):
                continue
            for each in block[: at[-1]]:
                if isinstance(each, ast.If) and isinstance(each.body[-1], _LEAVES):
                    yield each.test


#: statements that end a turn or a loop
_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Raise)


def _is_local(where: ast.AST, name: str) -> bool:
    """Whether a function has a name for itself: it sets it, or is passed it."""
    return any(
        (isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Store))
        or (isinstance(each, ast.arg) and each.arg == name)
        for each in ast.walk(where)
    )


def _is_of_other(script: Script, at: int, name: str, line: int) -> bool:
    """Whether a line sets a name that a function has for itself, which another line is not in."""
    scope = script.scope(at)
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) or _is_within(scope, line):
        return False
    shared = (each for each in ast.walk(scope) if isinstance(each, ast.Global))
    return _is_local(scope, name) and not any(name in each.names for each in shared)


#: what deals rows so that each rank has as many as the others
_EVEN = "DistributedSampler("
#: functions after which a name that they are given holds the same on all ranks
_AGREEING = frozenset(
    {"broadcast", "broadcast_object_list", "all_reduce", "all_gather", "all_gather_object"}
)


def _find_agreed(scope: ast.AST, name: str, line: int) -> int:
    """Return the last line before another one after which a name is the same on all ranks.

    All ranks of the world take part there, and it is under no `if`; 0 for none.
    """
    body = getattr(scope, "body", [])
    calls = [
        each.value
        for each in body
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) and each.lineno < line
    ]
    found = [
        call.lineno
        for call in calls
        if name_of(call.func) in _AGREEING
        and call.args
        and isinstance(call.args[0], ast.Name)
        and call.args[0].id == name
        and not any(each.arg == "group" for each in call.keywords)
    ]
    return max(found, default=0)


def _is_fixed(value: ast.expr) -> bool:
    """Whether an expression is a number, or an empty list, that reads nothing."""
    return all(
        isinstance(each, ast.Constant | ast.expr_context | ast.List | ast.Tuple | ast.Dict)
        or (isinstance(each, ast.Call) and name_of(each.func) == "float")
        or (isinstance(each, ast.Name) and each.id == "float")
        for each in ast.walk(value)
    )


class _Index:
    """What sets or changes each name and attribute of a script, its functions and its calls.

    An attribute is known by its name, whatever the object is called, and may be given to the class
    of the object by a keyword.
    """

    def __init__(self, script: Script) -> None:
        self.changes: defaultdict[str, list[tuple[int, ast.expr | None]]] = defaultdict(list)
        self.functions: defaultdict[str, list[ast.FunctionDef]] = defaultdict(list)
        self.calls: defaultdict[str, list[ast.Call]] = defaultdict(list)
        for node in ast.walk(script.tree):
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name].append(node)
            if isinstance(node, ast.Call):
                self._add_call(node)
            if isinstance(node, ast.Assign) and (taken := _find_taken_from(node.value)) is not None:
                self.changes[_key_of(taken)].append((node.lineno, None))
            targets, value = _list_targets(node)
            values: Sequence[ast.expr | None] = _list_parts(node) or [value] * len(targets)
            for each, held in zip(targets, values, strict=True):
                self.changes[_key_of(each)].append((getattr(node, "lineno", each.lineno), held))

    def _add_call(self, node: ast.Call) -> None:
        name = name_of(node.func)
        self.calls[name].append(node)
        if name in {"eval", "train"} and isinstance(node.func, ast.Attribute):  # of a module
            self.changes[".training"].append((node.lineno, None))
        for given in node.keywords:
            if given.arg and (name[:1].isupper() or name in _COPIES):
                self.changes[f".{given.arg}"].append((given.value.lineno, given.value))


def _list_parts(node: ast.AST) -> list[ast.expr]:
    """Return what each name of `a, b = c, d` is set to; nothing for any other statement."""
    if not isinstance(node, ast.Assign) or len(node.targets) > 1:
        return []
    target, value = node.targets[0], node.value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return []
    whole = (*target.elts, *value.elts)
    is_paired = len(target.elts) == len(value.elts) == len([*list_targets([target])])
    is_plain = not any(isinstance(each, ast.Starred) for each in whole)
    return [*value.elts] if is_paired and is_plain else []


@cache
def _index(script: Script) -> _Index:
    return _Index(script)


def _key_of(node: ast.expr) -> str:
    """Return a name as it is, an attribute behind a dot; nothing for what is neither."""
    if isinstance(node, ast.Name):
        return node.id
    return f".{node.attr}" if isinstance(node, ast.Attribute) else ""


def _is_of_another(script: Script, call: ast.Call, function: ast.FunctionDef) -> bool:
    """Whether a call is of an object's method, where a function has no `self` to be one.

    A module's function is called as a method is, and an imported module is not such an object. Nor
    does it have the methods of a class: `torch.save` is not the `save` of the scripts.
    """
    first = function.args.args[0].arg if function.args.args else ""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is None:
        return False
    kinds = (ast.Import,) if first in {"self", "cls"} else (ast.Import, ast.ImportFrom)
    imported = {
        (each.asname or each.name).partition(".")[0]
        for node in ast.walk(script.tree)
        if isinstance(node, kinds)
        for each in node.names
    }
    return (ast.unparse(owner).partition(".")[0] in imported) == (first in {"self", "cls"})


def _is_within(scope: ast.AST, line: int) -> bool:
    """Whether a line is in a function, or in a module."""
    first, last = getattr(scope, "lineno", 0), getattr(scope, "end_lineno", None)
    return last is None or first <= line <= last


#: functions that make an object of the class that they are called for, or on
_COPIES = frozenset({"cls", "replace", "_replace"})


def _find_set_by_name(held: ast.expr, name: ast.expr) -> ast.expr:
    """Return what `setattr` sets: an attribute that is written there, or else the object."""
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        return ast.copy_location(ast.Attribute(held, name.value, ast.Store()), held)
    return held


def _find_taken_from(value: ast.expr) -> ast.expr | None:
    """Return what an expression takes an item away from: `steps` of `steps.pop(0)`."""
    function = value.func if isinstance(value, ast.Call) else None
    is_taken = isinstance(function, ast.Attribute) and function.attr in _TAKING
    return function.value if isinstance(function, ast.Attribute) and is_taken else None


def _list_targets(node: ast.AST) -> tuple[list[ast.expr], ast.expr | None]:
    """Return what a statement sets or changes, and what it sets it to."""
    if isinstance(node, ast.Assign):
        targets = list_targets(node.targets)
        return [each.value if isinstance(each, ast.Subscript) else each for each in targets], (
            node.value
        )
    if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
        return [node.target], node.value
    if isinstance(node, ast.withitem) and node.optional_vars is not None:
        return [*list_targets([node.optional_vars])], node.context_expr
    if isinstance(node, ast.For):
        return [*list_targets([node.target])], node.iter
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function, given = node.value.func, node.value.args
        if name_of(function) == "setattr" and len(given) == 3:
            return [_find_set_by_name(given[0], given[1])], given[2]
        if isinstance(function, ast.Attribute) and (
            function.attr in CHANGING or function.attr.startswith("set")
        ):
            return [function.value], given[0] if given else None
    return [], None
