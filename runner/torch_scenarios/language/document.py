"""A file -> its cases: parameters, matrix, groups, and one Scenario for each case.

    read_tree      bytes -> a tree of marked nodes
    validate       the schema: what does not fit is noted, and taken out
    cases          parameters, `matrix`, `cases`, --set -> the constants of each case
    _scenario      one tree and its constants -> one Scenario

The tree is read once. All that depends on a constant is read anew for each case.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from collections.abc import Mapping as Mapping_
from collections.abc import Sequence as Sequence_
from difflib import SequenceMatcher
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.display import short
from torch_scenarios.errors import Mark, Problem, ScenarioError, Source, nearest
from torch_scenarios.expressions.values import Expression, Form
from torch_scenarios.files import read_file
from torch_scenarios.language import values
from torch_scenarios.language.context import (
    Context,
    DefinedNames,
    Definition,
    InlinedNames,
    Library,
    Problems,
    UnboundName,
    add_hints,
    correct,
    spelt_out,
    unmade,
)
from torch_scenarios.language.expectations import final_expectation
from torch_scenarios.language.functions import function_steps, functions_of
from torch_scenarios.language.keys import VERSION
from torch_scenarios.language.models import models, note_checkpoints, police_joins, strategy_lists
from torch_scenarios.language.names import (
    HANDLES,
    NUMBER,
    find_distributed,
    handles_of,
    is_text,
    list_names,
    police_definitions,
    police_length,
    refusal_of,
)
from torch_scenarios.language.steps import step_list
from torch_scenarios.language.use import list_definitions, police_library, read_inputs
from torch_scenarios.language.validation import is_library, top_findings, validate
from torch_scenarios.language.values import constant_value, expression, object_value
from torch_scenarios.limits import DEFAULT, Limits, explain_bound, open_account
from torch_scenarios.model.needs import StatedNeed
from torch_scenarios.model.scenario import GroupSpec, Scenario
from torch_scenarios.model.traits import KNOWN_BACKENDS
from torch_scenarios.model.versions import VersionRange
from torch_scenarios.source.tree import (
    Mapping,
    Node,
    Scalar,
    Sequence,
    key_text,
    parse,
    plain,
    read_tree,
)
from torch_scenarios.vocabulary import BACKEND

# -------------------------------------------------------------------------------------------------
# The five forms of an entry of `groups:`.

#: letters of a word, and how alike it is to a known backend, where it is a near miss of that
MOST_WORD, NEAR = 20, 0.85


def group_specs(
    node: Mapping, context: Context, unmade: dict[str, UnboundName]
) -> tuple[GroupSpec, ...]:
    """Return the entries of `groups:` in order; what is made is taken out of `unmade`.

    Every rank creates them in this order before step 1. An entry may therefore read the groups
    before it (`"group_ranks(even)[:2]"`), and is refused those behind it.
    """
    found = []
    parts: dict[str, list[str]] = {}
    for each in unmade:
        parts.setdefault(each.partition(".")[0], []).append(each)
    for key, value in node.entries:
        name = key_text(key)
        found.append(_group(key, value, context.change(unmade=unmade, making=name)))
        for made in parts.pop(name, ()):
            del unmade[made]
    return tuple(found)


def _group(key: Node, node: Node, context: Context) -> GroupSpec:
    name = key_text(key)
    is_text(key, context.problems, of="a group")
    if isinstance(node, Mapping):
        return _long(name, key, node, context)
    ranks = values.integers(node, context)
    return GroupSpec(name=name, ranks=ranks, mark=key.mark)


def _long(name: str, key: Node, node: Mapping, context: Context) -> GroupSpec:
    fields: dict[str, Any] = {}
    for word, value in node.entries:
        fields |= _field(key_text(word), value, context)
    return GroupSpec(name=name, **fields, mark=key.mark)


def _field(word: str, node: Node, context: Context) -> dict[str, Any]:
    """Return a field of a group's long form, under its name in :class:`GroupSpec`."""
    match word:
        case "ranks" | "shape":
            return {word: values.integers(node, context)}
        case "partition":
            return {word: _partition(node, context)}
        case "size":
            return {word: values.integer(node, context)}
        case "dims":
            return {word: _dims(node, context)}
        case "timeout":
            return {"timeout_s": values.read_seconds(node, context, what="`timeout`")}
        case "sort_ranks" | "flatten":
            return {word: plain(node)}
        case _:
            return {word: backend_name(node, context)}


def _partition(node: Node, context: Context) -> Form:
    if isinstance(node, Sequence):
        return values.read_list(node, context, values.integers)
    return values.integers(node, context)


def _dims(node: Node, context: Context) -> tuple[str, ...]:
    """Return the names of a mesh's dimensions, outermost first, as torch's `mesh_dim_names` are."""
    names: list[str] = []
    for item in node.items if isinstance(node, Sequence) else [node]:
        name = str(plain(item))
        if (refused := refusal_of(name)) and refused[0] == "bad_name":
            context.problems.add("bad_name", refused[1], item.mark)
        elif name in names:
            context.problems.add("duplicate_name", f"`{name}` is given twice", item.mark)
        else:
            names.append(name)
    return tuple(names)


def backend_name(node: Node, context: Context) -> str:
    """Return the name of a backend: any word, or the word that a parameter of that name holds."""
    assert isinstance(node, Scalar)
    constant = context.names.constants.get(node.value)
    name = constant if isinstance(constant, str) else node.value
    _police_backend(name, node, context)
    return name


def _police_backend(name: str, node: Node, context: Context) -> None:
    """Refuse a near miss of a known backend; warn of any other that only a plugin can register.

    Such a scenario is UNSUPPORTED wherever no backend has that name, which a misspelling is always.
    A backend may be one for each kind of device, as torch takes it: `cpu:gloo,cuda:nccl`.
    """
    for part in name.split(","):
        word = part.strip().rpartition(":")[2].strip()
        if word in KNOWN_BACKENDS:
            continue
        close = next(
            (known for known in sorted(KNOWN_BACKENDS) if _is_near_miss(word, known)), None
        )
        if close is not None:
            context.problems.add(
                "unknown_word",
                f"there is no backend `{word}`",
                node.mark,
                f"did you mean `{close}`?",
                correct(word, close, KNOWN_BACKENDS, node.mark),
            )
        else:
            context.problems.warn(
                "unknown_backend",
                f"no backend `{word}` is known: unless a plugin registers it, nothing runs",
                node.mark,
                f"known are {', '.join(sorted(KNOWN_BACKENDS))}",
            )


def _is_near_miss(word: str, known: str) -> bool:
    """Return whether a word is a known one in other letters' case, order, or with one amiss.

    >>> _is_near_miss("golo", "gloo"), _is_near_miss("GLOO", "gloo"), _is_near_miss("ucc", "nccl")
    (True, True, False)
    """
    folded = word.casefold()
    if sorted(folded) == sorted(known):
        return True
    return SequenceMatcher(None, folded[:MOST_WORD], known).ratio() >= NEAR


# -------------------------------------------------------------------------------------------------
# The keys at the top of a file that are no names: world_size, tags, timeout and so on.

DEBUG = ("off", "info", "detail")

#: ranks that a warning names
MOST_TOLD = 8


def world_size_of(tree: Mapping, context: Context) -> int:
    """Return the number of ranks; 1 where it is not known.

    So that the rest of the file is still read, and all that is wrong with it is reported at once.
    """
    node = tree.get("world_size")
    if node is None:
        return 1
    size = constant_value(node, context, what="`world_size`")
    if size is None:
        return 1
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        context.problems.add(
            "bad_world_size", "`world_size` must be an integer, at least 1", node.mark
        )
        return 1
    if size > context.limits.max_ranks:
        context.problems.add(
            "too_many_ranks",
            f"a world of {size} ranks; {explain_bound('max_ranks', context.limits)}",
            node.mark,
        )
    return size


def world_varies(tree: Mapping, context: Context) -> bool:
    """Return whether the number of ranks depends on a parameter or a matrix key.

    Where it does, a rank beyond the world of one case may be in that of another, and is passed
    over.
    """
    node = tree.get("world_size")
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return not isinstance(node, Scalar)
    form = expression(node, context)
    return not isinstance(form, Expression) or bool(form.names & context.names.constants.keys())


def text_of(tree: Mapping, key: str, context: Context) -> str:
    """Return a text of the top level; empty where there is none."""
    node = tree.get(key)
    if node is None:
        return ""
    assert isinstance(node, Scalar)
    if key == "name":
        police_length(node.text, node.mark, context.problems, what="the `name`")
    return node.text.strip()


def tags_of(node: Node | None, context: Context) -> tuple[str, ...]:
    """Return the tags."""
    if node is None:
        return ()
    items = node.items if isinstance(node, Sequence) else [node]
    for item in items:
        assert isinstance(item, Scalar)
        police_length(item.text, item.mark, context.problems, what="a tag")
    return tuple(item.text for item in items if isinstance(item, Scalar))


def backends_of(node: Node | None, context: Context) -> tuple[str, ...] | None:
    """Return the backends, or None for every one."""
    if node is None:
        return None
    items = node.items if isinstance(node, Sequence) else [node]
    return tuple(backend_name(item, context) for item in items)


def needs_of(node: Node | None, context: Context) -> tuple[StatedNeed, ...]:
    """Return what a file states that it needs of a backend, beside what the analysis derives."""
    items = node.items if isinstance(node, Sequence) else []
    found: dict[str, StatedNeed] = {}
    for item in items:
        word = str(plain(item))
        if word in found:
            context.problems.add(
                "duplicate_name", f"`needs` names `{word}` twice", item.mark, "keep it once"
            )
        found[word] = StatedNeed(word=word, mark=item.mark)
    return tuple(found.values())


def torch_of(node: Node | None, context: Context) -> VersionRange | None:
    """Return the versions of torch for which a scenario is meant, or None for every one."""
    if node is None:
        return None
    assert isinstance(node, Scalar)
    try:
        return VersionRange.read(node.text)
    except ValueError:
        context.problems.add(
            "bad_version",
            f"`{node.text}` names no versions of torch",
            node.mark,
            'versions are written as in `torch: ">=2.7"` or `torch: ">=2.7, <2.14"`',
        )
    return None


def timeout_of(tree: Mapping, context: Context) -> float:
    """Return the process groups' timeout in seconds."""
    node = tree.get("timeout")
    default = 10.0
    if node is None:
        return default
    return values.read_seconds(node, context, what="`timeout`") or default


def debug_of(node: Node | None, context: Context) -> str:
    """Return `off`, `info` or `detail`."""
    if node is None:
        return "off"
    if isinstance(node, Scalar) and node.value is False:
        return "off"
    return values.read_fixed(node, context, DEBUG, code="unknown_word", what="`debug`") or "off"


def read_truncated(node: Node | None, world_size: int, context: Context) -> frozenset[int]:
    """Return the ranks whose program goes on beyond what is written.

    They are selected as in `ranks:`, by what is known before the groups are: parameters, `rank`
    and `world_size`; `all` are the ranks of the world.
    """
    if node is None:
        return frozenset()
    if isinstance(node, Scalar) and node.text == "all" and "all" not in context.names.constants:
        found = frozenset(range(world_size))
    else:
        found = _select(node, world_size, context)
    if found:
        context.problems.warn(
            "truncated",
            f"the program of {_word_several(sorted(found), world_size)} goes on beyond what is "
            "written: nothing is known of the rest",
            node.mark,
        )
    return found


def _word_several(ranks: list[int], world_size: int) -> str:
    if len(ranks) == world_size:
        return "all ranks" if world_size > 1 else "rank 0"
    shown = ", ".join(map(str, ranks[:MOST_TOLD]))
    more = f" and {len(ranks) - MOST_TOLD} more" if len(ranks) > MOST_TOLD else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {shown}{more}"


def _select(node: Node, world_size: int, context: Context) -> frozenset[int]:
    """Return the ranks that `truncated` selects; none where something is wrong with a selector.

    An expression may be a condition (`rank > 0`), a rank (`world_size - 1`) or a collection of
    ranks: it is computed on each rank, as the selector of a step is.
    """
    values.selector(node, context)  # notes what is no selector, and ranks outside of the world
    known = len(context.problems.in_order())
    items = node.items if isinstance(node, Sequence) else [node]
    found: set[int] = set()
    for item in items:
        for rank in range(world_size) if _is_expression(item) else ():
            there = {**context.world, "rank": rank}
            value = constant_value(item, context, what="`truncated`", extra=there)
            if len(context.problems.in_order()) > known:
                return frozenset()
            if not isinstance(value, bool | int | list | tuple | range):
                values.wrong_type(item, context, "`truncated`", "ranks, or a condition of `rank`")
                return frozenset()
            chosen = value if isinstance(value, list | tuple | range) else [value]
            if value is True or (value is not False and rank in chosen):
                found.add(rank)
        given = item.value if isinstance(item, Scalar) else None
        if given is True:
            found.update(range(world_size))
        elif given.__class__ is int and given in range(world_size):
            found.add(given)
    return frozenset(found)


def _is_expression(node: Node) -> bool:
    return isinstance(node, Scalar) and isinstance(node.value, str)


# -------------------------------------------------------------------------------------------------
# Parameters, the matrix, `cases` and `--set`: which constants each case of a file has.

#: words that a parameter cannot hold as words: each rank has a number under them
NUMBERS = frozenset({"rank", "world_size"})

_WORLD_IS_COMPUTED = UnboundName(
    "is itself computed from the parameters",
    "state `world_size` as a number, or compute this where it is used",
)

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


# A file is read once, and its cases are made of one tree.
#
#     matrix: {n: [2, 4], dtype: [int64, float32]}     4 cases
#     world_size: n                                    read in each of them, with another n
#
# What is wrong with the text is wrong in each case, and reported once (`context.Problems`). What is
# wrong in one case alone, as an index beyond a list of n, names it.
class Axis(Struct, frozen=True):
    """What the cases of a file are a product of: a key of `matrix`, or all of `cases`.

    Each point has a value for each of its keys.

        matrix: {n: [2, 4], op: [sum, max]}       two axes of two points: four cases
        cases: [{n: 2, op: sum}, {n: 4, op: max}] one axis of two points: two cases
    """

    keys: tuple[str, ...]
    points: tuple[tuple[Node, ...], ...]

    @property
    def repeats(self) -> bool:
        """Whether two points are the same, which is noted where they are read."""
        return len({_identity(point) for point in self.points}) < len(self.points)


def cases(
    tree: Mapping,
    context: Context,
    sets: Mapping_[str, str],
    backend: str,
    found: list[Definition],
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the constants of each case and its suffix: `[dtype=int64]`, or nothing.

    `backend` is what an expression reads under that name, `found` what the whole file defines.

    The constants are read in order, the axes' first, then the parameters, each over those before
    it: `parameters: {half: "n // 2"}` may read the matrix key `n`. Cases are counted before the
    first is made, so that a matrix of ten keys with ten values is refused, and not begun.
    """
    replaced = {name: _set_value(name, text, context) for name, text in sets.items()}
    parameters = _section(tree, "parameters")
    matrix = _section(tree, "matrix")
    stated = _read_cases(tree, context)
    belonging = {key for axis in stated for key in axis.keys}
    _police_sets(replaced, {**parameters, **matrix}, belonging, context)
    axes = [*_matrix(matrix, context, replaced), *stated]
    count = prod(len(axis.points) for axis in axes)
    if count > context.limits.max_matrix_cases:
        section = "matrix" if matrix else "cases"
        subject = "the file" if stated else "the matrix"
        context.problems.add(
            "too_many_cases",
            f"{subject} has {count} cases; {explain_bound('max_matrix_cases', context.limits)}",
            _mark_of(tree, section),
        )
        return
    world = _literal_world(tree)
    parameters |= {name: node for name, node in replaced.items() if name in parameters}
    keys = [key for axis in axes for key in axis.keys]
    suffixes: set[str] = set()
    noted = len(set(keys)) < len(keys) or any(axis.repeats for axis in axes)
    for combination in itertools.product(*(axis.points for axis in axes)):
        constants: dict[str, Any] = {BACKEND: backend}
        later = unmade("parameters", found)
        if not world:
            later["world_size"] = _WORLD_IS_COMPUTED
        chosen = itertools.chain.from_iterable(combination)
        for name, node in (*zip(keys, chosen, strict=True), *parameters.items()):
            there = context.change(
                names=DefinedNames(constants=constants, words=context.names.words),
                world=world,
                unmade=later,
                making=name,
            )
            constants[name] = constant(name, node, there)
            later.pop(name, None)
        if isinstance(held := constants.get(backend), str):  # `backends` names a parameter
            constants[BACKEND] = held
        shown = ",".join(f"{name}={_show(constants[name])}" for name in keys)
        if shown in suffixes and not noted:
            context.problems.add(
                "duplicate_case",
                f"two cases of the {'file' if stated else 'matrix'} are called `[{shown}]`",
                _mark_of(tree, "cases" if stated else "matrix"),
                "let their values differ in more than how they are written",
            )
        suffixes.add(shown)
        yield constants, f"[{shown}]" if shown else ""


def constant(name: str, node: Node, context: Context) -> Any:
    """Return the value of a parameter: data, a word, or an expression over those before it.

    A word stays a word (`dtype: float32`, `g: even`), and so does a duration (`5s`), whose unit
    only its reader knows. Any other text is computed: `"2 * pairs"`.
    """
    if isinstance(node, Sequence):
        return [constant(name, item, context) for item in node.items]
    assert isinstance(node, Scalar)
    if not isinstance(node.value, str):
        return node.value
    known = context.names.constants
    if node.value in known:
        return known[node.value]
    if node.value in context.world:
        return context.world[node.value]
    if (node.value not in NUMBERS and _WORD.fullmatch(node.value)) or values.duration_s(
        node.value
    ) is not None:
        return node.value
    value = constant_value(node, context, what=f"the parameter `{name}`", extra=context.world)
    if isinstance(value, range | tuple):
        value = list(value)
    if value is not None and not _is_data(value):
        context.problems.add(
            "not_constant", f"the parameter `{name}` is not a number, list or word", node.mark
        )
        return None
    return value


def _literal_world(tree: Mapping) -> dict[str, Any]:
    """Return `world_size` where it is a plain number, so that parameters may depend on it."""
    node = tree.get("world_size")
    if isinstance(node, Scalar) and isinstance(node.value, int):
        return {"world_size": node.value}
    return {}


def _is_data(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_data(item) for item in value)
    return isinstance(value, bool | int | float | complex | str)


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return short(str(value).replace(" ", "")).replace(" ", "")


def _words_of(tree: Mapping) -> frozenset[str]:
    """Return the words that parameters and keys of the matrix and of `cases` may hold.

    All cases' words, not only those of this one: `op == avg` is right in a case whose `op` is
    `sum`.
    """
    found: set[str] = set()
    waiting = [tree.get(section) for section in ("parameters", "matrix", "cases")]
    while waiting:
        match waiting.pop():
            case Mapping(entries=entries):
                waiting += [value for _, value in entries]
            case Sequence(items=items):
                waiting += items
            case Scalar(value=str(word)) if word.isidentifier():
                found.add(word)
    return frozenset(found)


def _find_backend(tree: Mapping) -> str:
    """Return the first backend that a file is meant for; gloo where it is meant for any."""
    node = tree.get("backends")
    first = node.items[0] if isinstance(node, Sequence) and node.items else node
    named = first.value if isinstance(first, Scalar) else None
    return named if isinstance(named, str) else "gloo"


def _section(tree: Mapping, name: str) -> dict[str, Node]:
    node = tree.get(name)
    if not isinstance(node, Mapping):
        return {}
    return {key_text(key): value for key, value in node.entries}


# -------------------------------------------------------------------------------------------------
# What the cases are a product of.


def _matrix(
    matrix: Mapping_[str, Node], context: Context, replaced: Mapping_[str, Node]
) -> Iterator[Axis]:
    """Yield one axis for each key of `matrix`; `--set` leaves it one value."""
    for name, node in matrix.items():
        if name in replaced:
            listed: Sequence_[Node] = [replaced[name]]
        else:
            # one value instead of a list is noted, and read, so that its name is known
            listed = node.items if isinstance(node, Sequence) else [node]
            _police_repeats(listed, f"the matrix key `{name}` lists this value twice", context)
        yield Axis(keys=(name,), points=tuple((item,) for item in listed))


def _read_cases(tree: Mapping, context: Context) -> list[Axis]:
    """Return the axis that `cases` is; its keys are in the order of the first case."""
    node = tree.get("cases")
    if not isinstance(node, Sequence):
        return []
    _police_repeats(node.items, "`cases` lists this case twice", context)
    mappings = [item for item in node.items if isinstance(item, Mapping)]
    entries = [{key_text(key): value for key, value in item.entries} for item in mappings]
    if not entries:  # what is wrong with each is noted
        return []
    keys = tuple(entries[0])
    for item in mappings:
        _police_keys(item, keys, context)
    points = tuple(tuple(each[key] for key in keys) for each in entries if set(each) == set(keys))
    return [Axis(keys=keys, points=points)]


def _police_keys(item: Mapping, keys: Sequence_[str], context: Context) -> None:
    """Note where a case has other keys than the first one: at such a key, if it has one."""
    lacking = [key for key in keys if item.get(key) is None]
    strange = [key for key, _ in item.entries if key_text(key) not in keys]
    if not lacking and not strange:
        return
    differs, other = [], [key_text(key) for key in strange]
    if lacking:
        differs.append(f"lacks {_quote(lacking)}")
    if other:
        differs.append(f"has {_quote(other)}")
    context.problems.add(
        "unequal_cases",
        f"this case {' and '.join(differs)}, unlike the first case",
        strange[0].mark if strange else item.mark,
        f"give each case the keys {spelt_out(tuple(keys))}",
    )


def _quote(names: Sequence_[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _police_repeats(items: Sequence_[Node], message: str, context: Context) -> None:
    seen: set[str] = set()
    for item in items:
        identity = _identity([item])
        if identity in seen:
            context.problems.add("duplicate_case", message, item.mark)
        seen.add(identity)


def _identity(nodes: Sequence_[Node]) -> str:
    plainly = [plain(node) for node in nodes]
    return repr([sorted(each.items()) if isinstance(each, dict) else each for each in plainly])


# -------------------------------------------------------------------------------------------------
# What the command line sets.


def _set_value(name: str, text: str, context: Context) -> Node:
    """Return the value of `--set name=text`, typed by reading it as YAML."""
    source = Source(path=f"--set {name}", text=text)
    if not text.strip():
        message = f"--set {name}= states no value"
        context.problems.add(
            "missing_value", message, None, f"write `--set {name}=null` for nothing"
        )
        text = "null"
        source = Source(path=f"--set {name}", text=text)
    try:
        return parse(source, limits=context.limits)
    except ScenarioError as error:
        context.problems.keep(error.problems)
        return Scalar(Mark(source=source, line=1, column=1), None, "")


def _police_sets(
    replaced: Mapping_[str, Node],
    known: Mapping_[str, object],
    belonging: set[str],
    context: Context,
) -> None:
    """Note names that the command line cannot set; `belonging` are the keys of `cases`.

    A key of `cases` belongs to the others of its mapping: `op: max` with the result of `sum` would
    be a case that no one wrote.
    """
    for name in replaced:
        if name in belonging:
            context.problems.add(
                "set_of_a_case",
                f"--set {name}: `{name}` belongs to the other values of its case in `cases`",
                None,
                f"choose a case by its name: `{context.path.name}::NAME`, as `scenario list` shows",
            )
        elif name not in known:
            close = nearest(name, known)
            listed = f"it has: {', '.join(sorted(known))}" if known else "it has none"
            context.problems.add(
                "unknown_parameter",
                f"--set {name}: {context.path.name} has no parameter or matrix key `{name}`",
                None,
                f"did you mean `{close}`?" if close else listed,
            )


def _mark_of(tree: Mapping, name: str) -> Mark:
    return next((key.mark for key, _ in tree.entries if key_text(key) == name), tree.mark)


# -------------------------------------------------------------------------------------------------
# The top level of a file: from its tree to one Scenario for each case.


def scenarios(
    tree: Node, path: Path, sets: Mapping_[str, str], limits: Limits, backend: str | None = None
) -> tuple[Scenario, ...]:
    """Return the cases of a file; none for a library, which is checked all the same.

    `backend` is the one of the run, where it is known: else the first that the file is meant for.
    Raises ScenarioError with every problem, sorted by place.

    What is wrong in several cases is one problem: `Problems` knows them by code, place and message.
    """
    problems = Problems()
    context = _context(problems, limits, DefinedNames(), path)
    _police_version(tree, problems)
    written, tree = tree, validate(tree, problems)
    if not isinstance(written, Mapping) or not isinstance(tree, Mapping):
        problems.raise_any()
        return ()
    found = list_definitions(written, context)
    if is_library(tree):
        _check_library(tree, context, found)
        problems.raise_any()
        return ()
    police_definitions(found, problems)
    context = context.change(names=replace(context.names, words=_words_of(tree)))
    backend = backend or _find_backend(tree)
    made = [
        _scenario(tree, context, found, constants, suffix)
        for constants, suffix in cases(tree, context, sets, backend, found)
    ]
    problems.raise_any()
    if not problems.warnings:
        return tuple(made)
    return tuple(replace(each, warnings=problems.warnings) for each in made)


def police_top(tree: Node) -> None:
    """Raise ScenarioError where the top level of a file is no scenario's, nor a library's.

    What is wrong further inside is not looked at.
    """
    problems = Problems()
    _police_version(tree, problems)
    top_findings(tree, problems)
    problems.raise_any()


def _police_version(tree: Node, problems: Problems) -> None:
    """Raise ScenarioError where a file is in a version that this schema does not describe."""
    node = tree.get("version") if isinstance(tree, Mapping) else None
    given = plain(node) if node is not None else None
    if node is not None and isinstance(given, int) and given > VERSION:
        problems.add(
            "newer_version",
            f"the file is in version {given} of the language; this program knows {VERSION}",
            node.mark,
            "install a newer torch-scenarios",
        )
        problems.raise_any()


def _context(problems: Problems, limits: Limits, names: DefinedNames, path: Path) -> Context:
    resolved = Path(os.path.realpath(path))
    return Context(
        problems=problems,
        limits=limits,
        names=names,
        index=itertools.count(),
        uses=itertools.count(),
        step_names=set(),
        taken=set(names.readable | names.handles),
        library=Library(path),
        path=resolved,
        chain=(resolved,),
    )


def _begin_case(context: Context, names: DefinedNames) -> Context:
    """Return the context of one more case of the same file: its steps are numbered from 0."""
    return context.change(
        names=names,
        index=itertools.count(),
        uses=itertools.count(),
        step_names=set(),
        taken=set(names.readable | names.handles),
        lets=({},),
        asked=set(),
    )


def _scenario(
    tree: Mapping,
    context: Context,
    found: list[Definition],
    constants: dict[str, Any],
    suffix: str,
) -> Scenario:
    """Return one case of a file.

    The order is that of what depends on what: the names that the file defines, the world, the
    models (they define the names of their parameters), the steps, and the expectations, which read
    all of it.
    """
    names = DefinedNames(
        constants=constants,
        words=context.names.words,
        tensors=list_names(found, "tensor"),
        objects=list_names(found, "object"),
        computed=list_names(found, "computed name"),
        groups=list_names(found, "group", "new group"),
        handles=list_names(found, *HANDLES),
        futures=handles_of("rpc_async", tree.get("steps")),
        references=handles_of("remote", tree.get("steps")),
        functions=frozenset(_section(tree, "functions")),
        indexed=list_names(found, "indexed work handle"),
        variables=list_names(found, "loop variable"),
        numbers=list_names(found, NUMBER),
    )
    before = context.asked
    context = _begin_case(context, names)
    world_size = world_size_of(tree, context)
    context = context.change(
        world={"world_size": world_size},
        ranks=None if world_varies(tree, context) else world_size,
    )
    made = models(tree.get("models"), context, strategy_lists(tree.get("strategies"), context))
    asked = frozenset(value for model in made.values() for value in model.values)
    known = {name: made.get(name) for name in list_names(found, "model")}
    names = replace(names, computed=names.computed | asked, models=known)
    context = context.change(names=names)
    context.taken.update(each.name for each in found)
    name = text_of(tree, "name", context) or context.library.path.stem
    backends = backends_of(tree.get("backends"), context)
    context = context.change(distributed=find_distributed(tree.get("steps")))
    steps = step_list(tree.get("steps"), context)
    police_joins(made, steps, context)
    functions = functions_of(tree.get("functions"), context)
    scenario = Scenario(
        source=tree.mark.source,
        name=name,
        case=name + suffix,
        world_size=world_size,
        description=text_of(tree, "description", context),
        tags=tags_of(tree.get("tags"), context),
        constants=constants,
        backends=backends,
        needs=needs_of(tree.get("needs"), context),
        torch=torch_of(tree.get("torch"), context),
        timeout_s=timeout_of(tree, context),
        debug=debug_of(tree.get("debug"), context),
        groups=_groups(tree.get("groups"), context, unmade("groups", found)),
        objects=_values(tree, "objects", context, object_value, found),
        tensors=_values(tree, "tensors", context, values.value, found),
        models=note_checkpoints(made, steps),
        functions=functions,
        steps=function_steps(steps, functions, context),
        truncated=read_truncated(tree.get("truncated"), world_size, context),
        expect=final_expectation(tree.get("expect"), context, backends or ()),
        mark=tree.mark,
    )
    if BACKEND in before | context.asked:
        return replace(scenario, reads_backend=True)
    own = {name: value for name, value in constants.items() if name != BACKEND}
    return replace(scenario, constants=own)


def _check_library(tree: Mapping, context: Context, found: list[Definition]) -> None:
    """Check a file that others use, its inputs standing for anything.

    So `scenario check ring.yaml` finds a misspelt name in it, though no scenario uses it yet.
    """
    police_library(tree, context)
    inputs = frozenset(read_inputs(tree, context))
    own = list_names(found, "computed name", *HANDLES, "new group")
    names = DefinedNames(
        computed=list_names(found, "computed name") | inputs,
        groups=list_names(found, "new group") | inputs,
        handles=list_names(found, *HANDLES) | inputs,
    )
    there = _begin_case(context, names)
    opaque = InlinedNames(
        stem=context.library.path.stem,
        renamed={name: name for name in own},
        variables={name: name for name in list_names(found, "loop variable")},
        opaque=inputs,
    )
    step_list(tree.get("steps"), there.inline(opaque))


# ---------------------------------------------------------------------- its keys


#: what the entries of a section are
_ENTRIES = {"objects": "an object", "tensors": "a tensor"}


def _values(
    tree: Mapping,
    key: str,
    context: Context,
    build: Callable[[Node, Context], Form],
    found: list[Definition],
) -> dict[str, Form]:
    """Return a mapping from names to values; empty where there is none.

    An entry may read those before it. `later` are those behind it: to read one is refused with the
    reason, and not as a name that nothing defines.
    """
    node = tree.get(key)
    if not isinstance(node, Mapping):
        return {}
    made: dict[str, Form] = {}
    later = unmade(key, found)
    for name, value in node.entries:
        if is_text(name, context.problems, of=_ENTRIES[key]):
            made[name.text] = build(value, context.change(unmade=later, making=name.text))
            later.pop(name.text, None)
    return made


def _groups(
    node: Node | None, context: Context, later: dict[str, UnboundName]
) -> tuple[GroupSpec, ...]:
    return group_specs(node, context, later) if isinstance(node, Mapping) else ()


# -------------------------------------------------------------------------------------------------
# `load`: one file, read, checked and built.


def load(
    path: str | Path,
    *,
    sets: Mapping_[str, str] | None = None,
    limits: Limits = DEFAULT,
    backend: str | None = None,
) -> tuple[Scenario, ...]:
    """Return the cases of a scenario file, one for each combination of its matrix and `cases`.

    `sets` replaces parameters and matrix keys by the YAML text given for them. `backend` is what
    expressions read: left out, the first of the file's `backends`, or gloo. A file with `inputs:`
    is a library for others: it is checked, and has no cases. Raises ScenarioError with all problems
    of the file and of the files that it uses, sorted by place.

    See :func:`load_content` for an example.
    """
    path = Path(path)
    text = read_file(path, limits)
    return load_content(path, text, sets=sets, limits=limits, backend=backend)


def cases_as_written(scenario: Scenario, limits: Limits = DEFAULT) -> tuple[Scenario, ...]:
    """Return every case of a scenario's file, without what the command line sets.

    Empty where the file alone is no scenario: a parameter without a value.
    """
    source = scenario.source
    return _read_written(source.path, source.text, limits)


@lru_cache(maxsize=2)
def _read_written(path: str, text: str, limits: Limits) -> tuple[Scenario, ...]:
    try:
        return load_content(Path(path), text.encode(errors="replace"), limits=limits)
    except ScenarioError:
        return ()


#: files that other commands read: what they are, keys that no scenario has, and what takes them
_OTHER_FILES = (
    (
        "the sizes of a model",
        ("layers", "hidden"),
        "`scenario plan {path} --topology h100-8x400g --gpus 64` finds ways to train it",
    ),
    (
        "a machine",
        ("topology", "node"),
        "`scenario cost FILE --topology {path}` forecasts the time of a scenario on it",
    ),
)


def _refuse_other_files(tree: Node, path: Path) -> None:
    """Raise ScenarioError for a file that another command reads, in place of all its keys."""
    keys = {key_text(key) for key, _ in tree.entries} if isinstance(tree, Mapping) else set()
    for what, own, use in _OTHER_FILES:
        if keys.issuperset(own) and "steps" not in keys:
            message = f"the file states {what}, not a scenario: it has no `steps`"
            hint = use.format(path=path.name)
            problem = Problem(code="missing_key", message=message, mark=tree.mark, hint=hint)
            raise ScenarioError([problem])


def load_content(
    path: Path,
    text: bytes,
    *,
    sets: Mapping_[str, str] | None = None,
    limits: Limits = DEFAULT,
    backend: str | None = None,
) -> tuple[Scenario, ...]:
    """Return the cases that a file at `path` would have if it held `text`; raises as `load`.

    >>> file = b'''
    ... matrix: {n: [2, 4]}
    ... world_size: n
    ... tensors: {x: "full(3, rank + 1)"}
    ... steps: [{all_reduce: {tensor: x}}]
    ... '''
    >>> [(case.case, case.world_size) for case in load_content(Path("sum.yaml"), file)]
    [('sum[n=2]', 2), ('sum[n=4]', 4)]

    >>> load_content(Path("sum.yaml"), file.replace(b"tensor: x", b"tensor: y"))
    Traceback (most recent call last):
    torch_scenarios.errors.ScenarioError: ...
    """
    try:
        with open_account(limits):
            tree = read_tree(str(path), text, limits=limits)
            _refuse_other_files(tree, path)
            return scenarios(tree, path, sets or {}, limits, backend)
    except ScenarioError as error:
        raise ScenarioError(add_hints(error.problems)) from None
