"""A file held against the scenario schema: whether it fits, and where not, in our words.

    compiled_schema().fits(node)  the schema as one function over marked nodes: every file, 30 us
    findings(node)                what jsonschema finds where a file does not fit, with its node
    problems_of(finding)          its place, code, message and hint, from one table

The schema file is the contract, and jsonschema judges by it. :class:`CompiledSchema` holds each
part of the schema as a compiled test, so that jsonschema looks only at the files, and in them at
the places, where something is wrong. A test shows that both always agree.

The semantics of the keywords are those of JSON Schema, draft 2020-12
(https://json-schema.org/draft/2020-12/json-schema-validation). One rule of it shapes every test
below: a keyword says nothing of values of another type. `minimum` holds for each text, and
`required` for each list; which type a value must have is up to `type` alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Mapping as Mapping_
from functools import cache, partial
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct

from torch_scenarios.errors import Mark
from torch_scenarios.files import schema_file
from torch_scenarios.language.context import STEPS, Problems, correct, likely
from torch_scenarios.language.keys import (
    ACTIONS,
    BESIDE,
    BODY,
    GROUP_FORMS,
    PREMUL_SUM,
    REPEAT,
    SCENARIO_KEYS,
    Schema,
)
from torch_scenarios.limits import account
from torch_scenarios.operations import BY_NAME
from torch_scenarios.source.repairs import move_inside
from torch_scenarios.source.tree import (
    Mapping,
    Node,
    Scalar,
    Sequence,
    key_text,
    kind_of,
    source_text,
)

# -------------------------------------------------------------------------------------------------
# The schema, compiled: each part is a function that says whether a node fits.

Test: TypeAlias = "Callable[[Node], bool]"

_CLASSES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (Sequence,),
    "object": (Mapping,),
}
_NUMBERS = (int, float)


def _fits_always(node: Node) -> bool:
    return True


def _fits_never(node: Node) -> bool:
    return False


#: keywords that say nothing about what fits
_ANNOTATIONS = {"$schema", "$defs", "title", "description", "examples", "default", "errorMessage"}
_ANNOTATIONS |= {"enumDescriptions", "x-is", "x-wanted"}


class CompiledSchema:
    """The compiled schema. Its keywords are those of `_makers`; another one is a KeyError.

    A schema is compiled to closures once, since each step of a file asks it many times. That they
    mean what `jsonschema` means is tested against it (decision 44): that one is the judge.

    >>> from torch_scenarios.errors import Source
    >>> from torch_scenarios.limits import DEFAULT
    >>> from torch_scenarios.source.tree import parse
    >>> step = CompiledSchema({"type": "object", "required": ["tensor"]})
    >>> step.fits(parse(Source(path="x", text="{tensor: x}"), limits=DEFAULT))
    True
    >>> step.fits(parse(Source(path="x", text="{tensr: x}"), limits=DEFAULT))
    False
    """

    def __init__(self, schema: Schema) -> None:
        """Compile a schema with the parts that it refers to."""
        self.schema = schema
        self._parts: dict[str, Test] = {}
        #: id of a part of the schema -> its test
        self.tests: dict[int, Test] = {}
        self.fits = self.test(schema)

    def part(self, name: str) -> Test:
        """Return the test of one of `$defs`."""
        if name not in self._parts:
            self._parts[name] = self.test(self.schema["$defs"][name])
        return self._parts[name]

    def later(self, name: str) -> Test:
        """Return the test of one of `$defs`, compiled when a node is held against it.

        A part may refer to itself, and a file uses few of them.
        """
        return self._parts.get(name) or partial(self._make, name)

    def whole(self) -> dict[int, Test]:
        """Return the tests of all parts, by the identity of the part."""
        for name in self.schema["$defs"]:
            self.part(name)
        return self.tests

    def _make(self, name: str, node: Node) -> bool:
        return self.part(name)(node)

    def test(self, schema: Any) -> Test:
        """Return the test of a part: all of its keywords hold. `true` fits all, `false` nothing.

        Each test is kept by the identity of its part, so that :func:`_judge` can ask it when
        jsonschema comes to the same part.
        """
        if isinstance(schema, bool):
            return _fits_always if schema else _fits_never
        unknown = schema.keys() - self._known
        if unknown:
            message = f"the schema says {sorted(unknown)}, which are not compiled"
            raise KeyError(message)
        tests = [make(self, schema) for words, make in self._makers if not words.isdisjoint(schema)]
        made = _all_of([test for test in tests if test is not _fits_always])
        self.tests[id(schema)] = made
        return made

    def _type(self, schema: Schema) -> Test:
        """Test for a class of node, or of a scalar's value.

        Classes are compared, never `isinstance`: `True` is an `int` for Python, and no number for
        JSON.
        """
        named = schema["type"]
        names = [named] if isinstance(named, str) else named
        classes = frozenset(each for name in names for each in _CLASSES[name])

        def fits(node: Node) -> bool:
            return (node.value if isinstance(node, Scalar) else node).__class__ in classes

        return fits

    def _enum(self, schema: Schema) -> Test:
        """Test for one of some words, with its class: `1`, `1.0` and `true` are equal in Python."""
        words = schema["enum"] if "enum" in schema else [schema["const"]]
        known = frozenset((word.__class__, word) for word in words)

        def fits(node: Node) -> bool:
            return isinstance(node, Scalar) and (node.value.__class__, node.value) in known

        return fits

    def _least(self, schema: Schema) -> Test:
        least = schema["minimum"]

        def fits(node: Node) -> bool:
            if not isinstance(node, Scalar) or node.value.__class__ not in _NUMBERS:
                return True
            return not node.value < least  # not a number is not less

        return fits

    def _text(self, schema: Schema) -> Test:
        least, pattern = schema.get("minLength", 0), re.compile(schema.get("pattern", ""))

        def fits(node: Node) -> bool:
            if not isinstance(node, Scalar) or not isinstance(node.value, str):
                return True
            return len(node.value) >= least and pattern.search(node.value) is not None

        return fits

    def _items(self, schema: Schema) -> Test:
        least, item = schema.get("minItems", 0), self.test(schema.get("items", True))

        def fits(node: Node) -> bool:
            if not isinstance(node, Sequence):
                return True
            return len(node.items) >= least and all(map(item, node.items))

        return fits

    def _entries(self, schema: Schema) -> Test:
        own = {name: self.test(part) for name, part in schema.get("properties", {}).items()}
        alike = [
            (re.compile(pattern), self.test(part))
            for pattern, part in schema.get("patternProperties", {}).items()
        ]
        other = self.test(schema.get("additionalProperties", True))

        def fits(node: Node) -> bool:
            if not isinstance(node, Mapping):
                return True
            for key, value in node.entries:
                name = key_text(key)
                test = own.get(name)
                if test is None:
                    test = next((test for pattern, test in alike if pattern.search(name)), other)
                if not test(value):
                    return False
            return True

        return fits

    def _keys(self, schema: Schema) -> Test:
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", float("inf"))
        required = frozenset(schema.get("required", ()))
        known = frozenset(schema["propertyNames"]["enum"]) if "propertyNames" in schema else None
        together = [(name, set(keys)) for name, keys in schema.get("dependentRequired", {}).items()]

        def fits(node: Node) -> bool:
            if not isinstance(node, Mapping):
                return True
            keys = set(node.words())
            return (
                least <= len(keys) <= most
                and required <= keys
                and (known is None or keys <= known)
                and all(needed <= keys for name, needed in together if name in keys)
            )

        return fits

    def _alternatives(self, parts: list[Schema]) -> tuple[Callable[[Node], int], list[Test]]:
        """Return how many alternatives that require one key fit, and the tests of the others.

        A step is `oneOf` some 50 alternatives, `{"required": ["all_reduce"]}` and so on. Which of
        them fit is known from one look at the keys of the step, and not from 50 tests of it.
        """
        names = frozenset(part["required"][0] for part in parts if _requires_one(part))
        others = [self.test(part) for part in parts if not _requires_one(part)]

        def count_fitting(node: Node) -> int:
            if not isinstance(node, Mapping):
                return len(names)
            return sum([key_text(key) in names for key, _ in node.entries]) if names else 0

        return count_fitting, others

    def _any_of(self, schema: Schema) -> Test:
        one, other = schema["anyOf"][0], schema["anyOf"][-1]
        if "enum" in one and other == {"not": {"enum": one["enum"]}}:
            return _fits_always  # words for editors to complete
        fitting, others = self._alternatives(schema["anyOf"])
        return lambda node: fitting(node) > 0 or any(test(node) for test in others)

    def _one_of(self, schema: Schema) -> Test:
        fitting, others = self._alternatives(schema["oneOf"])
        return lambda node: fitting(node) + sum([test(node) for test in others]) == 1

    def _every_of(self, schema: Schema) -> Test:
        return _all_of([self.test(part) for part in schema["allOf"]])

    def _not(self, schema: Schema) -> Test:
        test = self.test(schema["not"])
        return lambda node: not test(node)

    def _reference(self, schema: Schema) -> Test:
        return self.later(schema["$ref"].rpartition("/")[2])

    def _choice(self, schema: Schema) -> Test:
        test, then = self.test(schema["if"]), self.test(schema.get("then", True))
        otherwise = self.test(schema.get("else", True))
        return lambda node: then(node) if test(node) else otherwise(node)

    _makers: ClassVar[
        tuple[tuple[frozenset[str], Callable[[CompiledSchema, Schema], Test]], ...]
    ] = (
        (frozenset({"type"}), _type),
        (frozenset({"enum", "const"}), _enum),
        (frozenset({"minimum"}), _least),
        (frozenset({"minLength", "pattern"}), _text),
        (frozenset({"items", "minItems"}), _items),
        (
            frozenset({"minProperties", "maxProperties", "required"})
            | {"propertyNames", "dependentRequired"},
            _keys,
        ),
        (frozenset({"properties", "patternProperties", "additionalProperties"}), _entries),
        (frozenset({"anyOf"}), _any_of),
        (frozenset({"oneOf"}), _one_of),
        (frozenset({"allOf"}), _every_of),
        (frozenset({"not"}), _not),
        (frozenset({"$ref"}), _reference),
        (frozenset({"if", "then", "else"}), _choice),
    )
    _known: ClassVar = frozenset.union(*(words for words, _ in _makers)) | _ANNOTATIONS


def _all_of(tests: list[Test]) -> Test:
    match tests:
        case []:
            return _fits_always
        case [one]:
            return one
        case [one, other]:
            return lambda node: one(node) and other(node)
        case _:
            return lambda node: all(test(node) for test in tests)


def _requires_one(part: Schema) -> bool:
    return part.keys() - _ANNOTATIONS == {"required"} and len(part["required"]) == 1


@cache
def compiled_schema() -> CompiledSchema:
    """Return the schema of scenario files, compiled.

    Raises StaleSchemaError where it was written before the operations that there are now.
    """
    schema = json.loads(schema_file("scenario.schema.json").read_text(encoding="utf-8"))
    require_all(schema["$defs"]["step"]["properties"], BY_NAME)
    return CompiledSchema(schema)


class StaleSchemaError(LookupError):
    """The schema was written before an operation was added; the message is what to run."""


def require_all(steps: Collection[str], operations: Iterable[str]) -> None:
    """Raise StaleSchemaError where the schema's steps lack an operation.

    >>> require_all({"send"}, ["send", "recv"])
    Traceback (most recent call last):
    torch_scenarios.language.validation.StaleSchemaError: schemas/...
    """
    missing = [name for name in operations if name not in steps]
    if missing:
        message = (
            f"schemas/scenario.schema.json has no `{missing[0]}`; write it anew: "
            "`python -m torch_scenarios.language.schema > schemas/scenario.schema.json`"
        )
        raise StaleSchemaError(message)


# -------------------------------------------------------------------------------------------------
# What jsonschema finds, with the nodes that it is about.


class Level(Struct, frozen=True, kw_only=True):
    """One step of the way from the root to a finding.

    `key` is the key's own node (None for an item of a list), `sort` the innermost `x-is` of the
    schema there, `wanted` its `x-wanted`.

    The way to `tag: -1` in the second step has five levels: the file, `steps`, an item (the step),
    `send` and `tag`.
    """

    node: Node
    key: Node | None = None
    name: str = ""
    sort: str = ""
    wanted: str = ""


class SchemaMismatch(Struct, frozen=True, kw_only=True):
    """What does not fit: the `keyword` of the schema `part` that the last level breaks.

    A step may fit none of the operations. The message is that of the one it is most likely meant to
    be, by the key that it has, and not one for each of them.

        steps: [{all_reduce: {tensr: x}}]

    has two mismatches, at the same node: `additionalProperties` (there is no `tensr`) and
    `required` (there is no `tensor`). Both are noted as one problem, because the strange word is
    near the missing one.
    """

    way: tuple[Level, ...]
    keyword: str
    part: Schema
    #: what the root is called, where that is not a file
    whole: str = ""

    @property
    def here(self) -> Level:
        """Where it is."""
        return self.way[-1]

    @property
    def node(self) -> Node:
        """What does not fit."""
        return self.way[-1].node

    def find_level(self, levels: int = 1) -> Level:
        """Return a level further out; the root's own where no level is further out."""
        return self.way[max(0, len(self.way) - 1 - levels)]

    def note_wrong(self, problems: Problems) -> list[Node]:
        """Note what is wrong; return the nodes that nothing can be read from.

        Words come from three places, the most special first: a method for the sort of the place and
        the keyword (`_own`), a row of the table `_TOLD` for both, and "NOUN cannot be KIND, write
        WANTED". What is returned is taken out of the tree, so that one mistake is one problem: the
        readers do not see it again.
        """
        for sort in (self.here.sort, ""):
            own = self._own.get((sort, self.keyword))
            if own is not None:
                return own(self, problems)
            if self.keyword in _TOLD.get(sort, {}):
                break
        one = self._find_list_item()
        if one is not None:
            problems.add(
                "wrong_type",
                f"`{one.name}` is a mapping, where a list is wanted",
                one.node.mark,
                f"write a list: `{one.name}: [{{op: ...}}, ...]`",
            )
            return [one.node]
        if isinstance(self.node, Sequence) and self.find_level().sort == "group":
            return self._lists_of_ranks(problems)
        code, message, hint = _TOLD.get(sort, {}).get(self.keyword, _WRONG_KIND)
        node = self.node
        if isinstance(node, Scalar) and node.value is None and self.here.sort in _EMPTY:
            code, message, hint = _EMPTY[self.here.sort]
        general = (code, message, hint) == _WRONG_KIND
        meant = self._find_missing_dashes() if general else None
        if general and self.keyword == "type" and self._lacks_dashes():
            hint = "write {wanted}, with a `-` in front of each: `- {meant}: ...`"
            meant = self.node.words()[0].removeprefix("-")  # type: ignore[union-attr]  # a mapping
        elif meant is not None:
            hint = "write {wanted}, without a `-` in front: `{meant}: ...`"
        words = {
            "noun": self.noun(),
            "key": self.here.name,
            "outer": self.find_level().name,
            "kind": kind_of(node),
            "text": source_text(node),
            "wanted": self.here.wanted or "another value",
            "shown": _show(node),
            "meant": meant,
        }
        mark = node.mark
        if code in {"missing_key", "bad_loop"} and self.keyword in {"minItems", "required"}:
            mark = self._place()
        problems.add(code, message.format(**words), mark, hint and hint.format(**words))
        return [] if self._is_read_all_the_same() else [node]

    def _is_read_all_the_same(self) -> bool:
        """Whether the reader goes on with what stands there: a reader of its name is not wrong too.

        A loop's body is read in any case, and one value of a matrix key as a list of this value.
        """
        node, sort = self.node, self.here.sort
        lone = isinstance(node, Scalar) and node.value is not None
        return sort == "loop" or (lone and sort == "matrix_key")

    def _find_list_item(self) -> Level | None:
        """Return the argument that is an item of the list that it should be, with its keys."""
        for level in self.way:
            words = level.node.words() if isinstance(level.node, Mapping) else []
            if level.name == "p2p_op_list" and "op" in words:
                return level
        return None

    def _find_missing_dashes(self) -> str | None:
        """Return the first key of a list of mappings where one mapping is wanted; else None."""
        node, kinds = self.node, self.part.get("type", ())
        if "object" not in kinds or "array" in kinds or not isinstance(node, Sequence):
            return None
        entries = [
            entry for item in node.items if isinstance(item, Mapping) for entry in item.entries
        ]
        if not entries or not all(isinstance(item, Mapping) for item in node.items):
            return None
        return key_text(entries[0][0])

    def _lacks_dashes(self) -> bool:
        """Whether a mapping is given where a list of steps is wanted, and is not empty."""
        if self.here.sort not in {"program", "body"} or not isinstance(self.node, Mapping):
            return False
        return bool(self.node.words())

    def noun(self, up: int = 0) -> str:
        """Return what messages call the place of a finding, or the place some levels above it."""
        if up >= len(self.way):
            return self.whole or "this"
        level = self.way[-1 - up]
        if level.sort in _NOUNS and (level.key is not None or "{key}" not in _NOUNS[level.sort]):
            return _NOUNS[level.sort].format(key=level.name)
        if up == len(self.way) - 1:
            return self.whole or "this"
        if level.key is None:
            return f"an item of {self.noun(up + 1)}"
        if self.find_level(up + 1).sort == "per_rank":
            return self.noun(up + 1)
        return f"`{level.name}`"

    def _place(self, up: int = 0) -> Mark:
        """Return where a key is that has less than it needs; the value where there is no key."""
        level = self.find_level(up)
        return level.node.mark if level.key is None else level.key.mark

    def _unknown_keys(self) -> list[tuple[Node, Node]]:
        """Return the entries whose key the schema does not know at this place."""
        assert isinstance(self.node, Mapping)
        known = self.part.get("enum") or self.part["properties"]
        return [entry for entry in self.node.entries if key_text(entry[0]) not in known]

    def _find_missing(self) -> list[str]:
        assert isinstance(self.node, Mapping)
        return [name for name in self.part["required"] if self.node.get(name) is None]

    def _report_unknown(self, problems: Problems) -> list[Node]:
        """A word that the schema does not know: a key, an argument, a kind, a capability."""
        sort, node = self.here.sort, self.node
        if sort == "file" and is_library(node):
            return []  # it has fewer keys, and that is noted
        code, message, listed, word_sort = _UNKNOWN.get(sort, _UNKNOWN[""])
        known = tuple(self.part.get("enum") or self.part["properties"])
        is_mapping = isinstance(node, Mapping)
        entries = self._unknown_keys() if is_mapping else [(node, node)]
        for key, _ in entries:
            word = key_text(key) if is_mapping else source_text(key)
            problems.unknown(
                code,
                message.format(word=word, taker=self._taker(), owner=self._owner()),
                word,
                SCENARIO_KEYS if sort == "file" else known,
                key.mark,
                listed=listed,
                sort=word_sort,
            )
        return [node] if sort == "raised" else [value for _, value in entries]

    def _owner(self) -> str:
        return _OWNERS.get(self.here.sort, "of `{key}`").format(key=self.here.name)

    def _inputs_of_a_scenario(self, problems: Problems) -> list[Node]:
        message = "a file has either `inputs`, to be used by others, or `world_size`, to be run"
        problems.add("inputs_with_world_size", message, self._place())
        return []

    def _taker(self) -> str:
        return "a message" if self.here.sort == "message" else self.here.name

    def _report_missing_key(self, problems: Problems) -> list[Node]:
        """A key that an unknown one near it means is not missing."""
        assert isinstance(self.node, Mapping)
        known = self._list_known()
        strangers = [word for word in self.node.words() if word not in known]
        sort = "key of the file" if self.here.sort in {"scenario", "file"} else None
        meant = {likely(word, known, sort) for word in strangers}
        examples = {"world_size": "world_size: 2", "steps": "steps: [...]"}
        for name in self._find_missing():
            if name in meant:
                continue
            if self.here.sort == "long_form":
                hint, message = "write `{value: ..., dtype: ...}`", "this long form has no `value`"
                problems.add("missing_key", message, self.node.mark, hint)
            elif self.here.sort == "use":
                if not strangers:
                    message, hint = "this `use` names no `file`", "write `{file: part.yaml}`"
                    problems.add("missing_key", message, self._place(), hint)
            else:
                hint = f"add `{examples.get(name, f'{name}: ...')}`"
                problems.add("missing_key", f"{self.noun()} has no `{name}`", self._place(), hint)
        return []

    def _list_known(self) -> tuple[str, ...]:
        return SCENARIO_KEYS if self.here.sort == "scenario" else tuple(self.part["properties"])

    def _report_missing_argument(self, problems: Problems) -> list[Node]:
        """Note arguments that are not there, but for those that a misspelt one is meant for.

        An argument of several spellings (`output` or `output_tensor`) is an `anyOf` of them in the
        schema; the message names the first, which is torch's current one.
        """
        assert isinstance(self.node, Mapping)
        known = self.part.get("properties") or self.part
        if "anyOf" in self.part:  # an argument of several spellings
            name = self.part["anyOf"][0]["required"][0]
            missing, known = [name], self._arguments()
        else:
            missing = self._find_missing()
        meant = {likely(word, known, "argument") for word in self.node.words() if word not in known}
        about = self._arguments()
        for name in missing:
            spellings = {name, *_twins(name, self)}
            if spellings.isdisjoint(meant):
                problems.add(
                    "missing_argument",
                    f"{self._taker()} has no `{name}`",
                    self._place() if self.here.sort == "arguments" else self.node.mark,
                    f"{name}: {about.get(name, {}).get('description', '')}",
                )
        return []

    def _arguments(self) -> dict[str, Schema]:
        """Return the arguments that an action takes, with their parts."""
        if "properties" in self.part:
            properties: dict[str, Schema] = self.part["properties"]
            return properties
        part: Schema = (
            compiled_schema().schema["$defs"]["step"]["properties"].get(self.here.name, {})
        )
        inner: dict[str, Schema] = part.get("properties") or part.get("then", {}).get(
            "properties", {}
        )
        return inner

    def _no_arguments(self, problems: Problems) -> list[Node]:
        """The arguments of an action are no mapping."""
        name, node = self.here.name, self.node
        if isinstance(node, Scalar) and node.value is None:
            for each in self._list_required():
                hint = f"{each}: {self._arguments().get(each, {}).get('description', '')}"
                problems.add("missing_argument", f"{name} has no `{each}`", self._place(), hint)
            return []
        shown = usage(name, node)
        message = f"the arguments of {name} are {kind_of(node)}, not a mapping"
        hint = f"write `{shown}`; `scenario ops {name}` shows an example"
        problems.add("wrong_type", message, node.mark, hint)
        return []  # the step has its action all the same

    def _list_required(self) -> list[str]:
        """Return the arguments that an action must have; of several spellings of one, the first."""
        spelt = [each["anyOf"][0]["required"][0] for each in self.part.get("allOf", ())]
        return [*self.part.get("required", ()), *spelt]

    def _no_step(self, problems: Problems) -> list[Node]:
        node = self.node
        hint = "write `- barrier: {}`, an operation and its arguments"
        if isinstance(node, Scalar) and node.text in BY_NAME:
            hint = f"write `{usage(node.text)}`"
        problems.add("wrong_type", f"a step is {kind_of(node)}, not a mapping", node.mark, hint)
        return [node]

    def _actions(self) -> list[tuple[Node, Node]]:
        assert isinstance(self.node, Mapping)
        return [
            (key, value)
            for key, value in self.node.entries
            if key_text(key) in BY_NAME or key_text(key) in ACTIONS
        ]

    def _find_unknown_keys(self, problems: Problems) -> list[Node]:
        """A key of a step that is neither an action nor stands beside one."""
        entries, actions = self._unknown_keys(), [key_text(key) for key, _ in self._actions()]
        for key, value in entries:
            name = key_text(key)
            instead = STEPS.get(name.lower().replace("-", "_"))
            if not actions:
                known = (*BY_NAME, *ACTIONS, *BESIDE)
                close = likely(name, known)
                hint = (
                    f"did you mean `{close}`?" if close else "`scenario ops` lists the operations"
                )
                message = f"there is no operation `{name}`"
                repair = None if instead else correct(name, close, known, key.mark)
                problems.add("unknown_operation", message, key.mark, instead or hint, repair)
                continue
            beside = (*BESIDE, BODY) if REPEAT in actions else tuple(BESIDE)
            parts = self.part["properties"]
            taker = next((each for each in actions if name in _list_arguments(parts[each])), None)
            known = (*beside, *BY_NAME, *ACTIONS)
            close = likely(name, beside) or likely(name, (*BY_NAME, *ACTIONS))
            hint = f"next to an action only these keys are allowed: {', '.join(beside)}"
            repair = None
            if taker is not None:
                hint = f"`{name}` is an argument: write it inside, `{taker}: {{..., {name}: ...}}`"
                given = next(each for word, each in self._actions() if key_text(word) == taker)
                repair = move_inside(key, value, given, taker)
            elif close and instead is None:
                hint = f"did you mean `{close}`?"
                repair = correct(name, close, known, key.mark)
            message = f"unknown key `{name}` of a step"
            problems.add("unknown_key", message, key.mark, instead or hint, repair)
        return [value for _, value in entries]

    def _action_count(self, problems: Problems) -> list[Node]:
        """A step has several actions, or none and no expectation."""
        if not isinstance(self.node, Mapping):
            return []  # what it is instead is reported already
        actions = self._actions()
        for key, _ in actions[1:]:
            problems.add(
                "several_actions",
                f"`{key_text(actions[0][0])}` and `{key_text(key)}` are two actions in one step",
                key.mark,
                "give each action its own step: a `-` in front of it",
            )
        known = self.part["properties"]
        stranger = any(word not in known for word in self.node.words())
        if not actions and not stranger and self.node.get(BODY) is None:
            problems.add(
                "empty_step",
                "this step does nothing and expects nothing",
                self.node.mark,
                "add an operation, or an `expect`; `scenario ops` lists the operations",
            )
        return [value for _, value in actions[1:]]

    def _loop_alone(self, problems: Problems) -> list[Node]:
        """`for` without `steps`, or `steps` without `for`."""
        assert isinstance(self.node, Mapping)
        keys = {key_text(key): key for key, _ in self.node.entries}
        if REPEAT not in keys:
            message = f"`{BODY}` has a meaning only next to `{REPEAT}`"
            problems.add("unknown_key", message, keys[BODY].mark, f"add a `{REPEAT}:`")
        elif not any(likely(word, (BODY,)) for word in keys):
            message, hint = f"this `{REPEAT}` has no `{BODY}`", f"add `{BODY}: [...]` next to it"
            problems.add("missing_key", message, self.node.mark, hint)
        return []

    def _group_forms(self, problems: Problems) -> list[Node]:
        assert isinstance(self.node, Mapping)
        given = [word for word in self.node.words() if word in GROUP_FORMS]
        states = " and ".join(given) if given else "no ranks"
        hint = "state exactly one of ranks, partition, size, or shape with dims"
        problems.add("bad_group", f"{self.noun()} states {states}", self._place(), hint)
        return [self.node]

    def _lists_of_ranks(self, problems: Problems) -> list[Node]:
        """A group written as torch's new_subgroups_by_enumeration takes it."""
        group = self.find_level()
        hint = (
            f"write `{group.name}: {{partition: {source_text(group.node)}}}`: a group for each list"
        )
        problems.add("wrong_type", f"{self.noun(1)} lists lists of ranks", group.node.mark, hint)
        return [group.node]

    def _group_keys(self, problems: Problems) -> list[Node]:
        """A key of a group that does not go with the form that is given."""
        assert isinstance(self.node, Mapping)
        keys = {key_text(key): (key, value) for key, value in self.node.entries}
        form = next((word for word in GROUP_FORMS if word in keys), None)
        unfit: list[Node] = []
        for name, needed in self.part["dependentRequired"].items():
            if name not in keys or all(each in keys for each in needed) or form is None:
                continue
            if name == "shape":
                message = f"the mesh `{self.here.name}` has no `dims`"
                hint = "name each dimension: {shape: [2, 4], dims: [dp, tp]}"
                problems.add("missing_key", message, self._place(), hint)
                continue
            key, value = keys[name]
            message = f"`{name}` does not go with `{form}` in the group `{self.here.name}`"
            problems.add("unknown_key", message, key.mark, f"it goes with `{needed[0]}`")
            unfit.append(value)
        return unfit

    def _find_several_kinds(self, problems: Problems) -> list[Node]:
        assert isinstance(self.node, Mapping)
        problems.add(
            "bad_value",
            "several kinds of error, each with its own words",
            self.node.entries[1][0].mark,
            "write one kind with its words, a list of kinds, or a mapping from ranks",
        )
        return [self.node]

    def _no_group_name(self, problems: Problems) -> list[Node]:
        message = f"{self.noun()} cannot be {kind_of(self.node)}: a step names its group"
        if isinstance(self.node, Sequence):
            message = "a step names its group, and does not list its ranks"
        hint = "make the group under `groups:`, or in a `new_group` step"
        problems.add("wrong_type", message, self.node.mark, hint)
        return [self.node]

    def _no_reduce_op(self, problems: Problems) -> list[Node]:
        """A number by itself is a factor."""
        key = self.here.key
        if key is not None and likely(key_text(key), (PREMUL_SUM,)):
            message = f"unknown reduce op `{key_text(key)}`"
            close, known = PREMUL_SUM, (PREMUL_SUM,)
            repair = correct(key_text(key), close, known, key.mark)
            problems.add("unknown_op", message, key.mark, f"did you mean `{close}`?", repair)
            return [self.find_level().node]
        message = f"{self.noun()} cannot be {kind_of(self.node)}"
        problems.add("wrong_type", message, self.node.mark, f"write {self.here.wanted}")
        return [self.node]

    #: sort of a place, keyword -> what notes it, where it takes more than words
    _own: ClassVar[dict[tuple[str, str], Callable[[SchemaMismatch, Problems], list[Node]]]] = {
        ("", "additionalProperties"): _report_unknown,
        ("library", "enum"): _report_unknown,
        ("", "None"): _inputs_of_a_scenario,
        ("", "required"): _report_missing_key,
        ("arguments", "additionalProperties"): _report_unknown,
        ("arguments", "required"): _report_missing_argument,
        ("arguments", "anyOf"): _report_missing_argument,
        ("arguments", "type"): _no_arguments,
        ("message", "additionalProperties"): _report_unknown,
        ("message", "required"): _report_missing_argument,
        ("step", "type"): _no_step,
        ("step", "additionalProperties"): _find_unknown_keys,
        ("step", "oneOf"): _action_count,
        ("step", "dependentRequired"): _loop_alone,
        ("group", "oneOf"): _group_forms,
        ("group", "dependentRequired"): _group_keys,
        ("raised", "additionalProperties"): _report_unknown,
        ("raised", "maxProperties"): _find_several_kinds,
        ("group_name", "type"): _no_group_name,
        ("reduce_op", "anyOf"): _no_reduce_op,
        ("need", "enum"): _report_unknown,
    }


# A step that does not fit costs some 3 ms, one that fits 10 us (measured with 2,000 steps). A
# stranger's file must not buy minutes with 100,000 wrong steps, so this work is charged to the
# account of the file (`limits.account`), which raises when it is spent.
#: units of work of a node that jsonschema looks at
_NODE_WORK = 2_500


def findings(root: Node, part: str | None = None, whole: str = "") -> Iterator[SchemaMismatch]:
    """Yield what jsonschema finds wrong with a file, or with a node for one of `$defs`.

        root   the marked tree, of which jsonschema gets a copy as plain JSON
        part   the name of the part that the node is for; the whole schema where it is None
        whole  what messages call the root, where it is not a file

    jsonschema's errors have the path in the data and the path in the schema
    (https://python-jsonschema.readthedocs.io/en/stable/errors/): from both, each level of the way
    gets its node, which has the line and the column, and its sort.
    """
    seen: set[tuple[int, int, str]] = set()
    nodes: dict[int, Node] = {}
    plain = _plain(root, nodes)
    schema = compiled_schema().schema
    judge = _judge(nodes)
    if part is not None:
        judge = judge.evolve(schema=schema["$defs"][part])
        schema = schema["$defs"][part]
    for error in judge.iter_errors(plain):
        way = _way(root, schema, list(error.absolute_path), list(error.absolute_schema_path))
        about = (id(way[-1].node), id(error.schema), str(error.validator))
        if about not in seen:  # jsonschema says `required` once for each key
            seen.add(about)
            found = error.schema if isinstance(error.schema, dict) else {}
            yield SchemaMismatch(way=way, keyword=str(error.validator), part=found, whole=whole)


def _plain(node: Node, nodes: dict[int, Node]) -> Any:
    """Return a node as JSON has it, every key a text; `nodes` then leads back from the parts.

    Lists and mappings are found again by their identity: jsonschema hands on the very objects.
    """
    made: Any
    match node:
        case Scalar():
            return node.value
        case Sequence():
            made = [_plain(item, nodes) for item in node.items]
        case Mapping():
            made = {key_text(key): _plain(value, nodes) for key, value in node.entries}
    nodes[id(made)] = node
    return made


def _judge(nodes: Mapping_[int, Node]) -> Any:
    """Return jsonschema's validator, which passes over what is known to fit.

    The compiled test of the same part decides whether to look inside a node. A file of 2,000 steps
    with one misspelt argument is then judged in one step, and not in 2,000.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    own = Draft202012Validator.VALIDATORS
    tests, found = compiled_schema().whole(), account()

    def look_at(keyword: str) -> Callable[..., Iterator[Any]]:
        def look(judge: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            node = nodes.get(id(instance))
            if node is not None and found is not None:
                found.spend(_NODE_WORK, node.mark)
            test = tests.get(id(schema))
            if node is None or test is None or not test(node):
                yield from own[keyword](judge, value, instance, schema) or ()

        return look

    def is_integer(_: object, instance: object) -> bool:
        """A number with a point is no integer, as in YAML."""
        return isinstance(instance, int) and not isinstance(instance, bool)

    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", is_integer)
    descending = ("properties", "patternProperties", "additionalProperties", "items", "oneOf")
    known = {word: look_at(word) for word in descending}
    made: Any = extend(Draft202012Validator, known, type_checker=checker)  # type: ignore[no-untyped-call]
    return made(compiled_schema().schema)


def _way(
    root: Node, schema: Schema, path: list[str | int], words: list[str | int]
) -> tuple[Level, ...]:
    """Return the levels to a finding; `words` is the way through the schema to its keyword.

    The path in the schema has more words than the one in the data: `if`, `then`, `allOf` and
    numbers lead to another part for the same node. Only `properties`, `patternProperties`,
    `additionalProperties` and `items` go one level further in. A `$ref` is in no path's way twice:
    the part that it names is followed where the next word is not found beside it.
    """
    nodes: list[tuple[Node, Node | None, str]] = [(root, None, "")]
    for each in path:
        node = nodes[-1][0]
        if isinstance(node, Mapping):
            key, value = next(entry for entry in node.entries if key_text(entry[0]) == each)
            nodes.append((value, key, str(each)))
        else:
            assert isinstance(node, Sequence)
            assert isinstance(each, int)
            nodes.append((node.items[each], None, ""))
    sorts, wanted = [""], [""]
    part: Any = schema
    words = list(words)
    while True:
        if isinstance(part, dict):
            sorts[-1] = part.get("x-is", sorts[-1])
            wanted[-1] = part.get("x-wanted", wanted[-1])
        if not words:
            break
        if isinstance(part, dict) and words[0] not in part:
            part = compiled_schema().schema["$defs"][part["$ref"].rpartition("/")[2]]
            continue
        word = words.pop(0)
        part = part[word]
        inner = word in {"properties", "patternProperties"}
        if inner:
            part = part[words.pop(0)]
        if (inner or word in {"additionalProperties", "items"}) and len(sorts) < len(nodes):
            sorts.append("")
            wanted.append("")
    return tuple(
        Level(node=node, key=key, name=name, sort=sort, wanted=title)
        for (node, key, name), sort, title in zip(nodes, sorts, wanted, strict=True)
    )


# -------------------------------------------------------------------------------------------------
# What a finding says: from the sort of the place and the keyword to a code, a message, a hint.

#: sort of a place -> what messages call it; `{key}` is its key, `{outer}` the key around that
_NOUNS = {
    **dict.fromkeys(("file", "library", "scenario"), "the file"),
    "step": "a step",
    "step_name": "the name of a step",
    "blocked_at": "where a rank is blocked",
    "loop_values": "what `for` runs over",
    "parameter": "the parameter `{key}`",
    "matrix_key": "the matrix key `{key}`",
    "case": "an entry of `cases`",
    "group": "the group `{key}`",
    "tag": "a tag",
    "number": "what `let` names `{key}`",
    "words_of": "the text of `{key}`",
    "message_part": "what the message contains",
}

#: sort of a mapping -> what messages say that its keys are of
_OWNERS = {
    "file": "at the top level",
    "library": "of a file with `inputs:`",
    "group": "of the group `{key}`",
    "long_form": "of a value's long form",
    "input": "of an input",
}

#: sort of a place -> of a word that it does not know: code, message, what introduces the words that
#: it knows, and what sort of word `likely` compares; `{taker}` has arguments, `{owner}` keys
_UNKNOWN: dict[str, tuple[str, str, str, str | None]] = {
    "": ("unknown_key", "unknown key `{word}` {owner}", "its keys are", None),
    "file": ("unknown_key", "unknown key `{word}` {owner}", "its keys are", "key of the file"),
    **dict.fromkeys(
        ("arguments", "message"),
        (
            "unknown_argument",
            "unknown argument `{word}` of {taker}",
            "its arguments are",
            "argument",
        ),
    ),
    "raised": ("unknown_kind", "`{word}` is not a kind of error", "kinds are", None),
    "need": (
        "unknown_word",
        "`needs` cannot name `{word}`: it is not a capability of a backend",
        "capabilities are",
        None,
    ),
}

_WRONG_KIND = ("wrong_type", "{noun} cannot be {kind}", "write {wanted}")

#: sort of a place -> keyword of the schema -> code, message, hint; None is the general hint
_TOLD: dict[str, dict[str, tuple[str, str, str | None]]] = {
    "": {
        "minItems": ("bad_value", "{noun} is empty", "list at least one"),
        "minimum": ("bad_value", "{noun} is negative", "write a number, zero or more"),
        "minLength": ("wrong_type", "{noun} is empty", "write {wanted}"),
        "maxProperties": ("bad_value", "{noun} has too many keys", "keep one of them"),
        "minProperties": ("missing_value", "{noun} is empty", None),
    },
    "per_rank": {
        "minProperties": (
            "empty_mapping",
            "a mapping from ranks to values is empty",
            "write `{{0: ..., else: ...}}`",
        ),
    },
    "numbers": {
        "minProperties": (
            "missing_value",
            "this `let` names nothing",
            'write `let: {{v: "rank + 1"}}`',
        ),
    },
    "program": {
        "minItems": ("empty_steps", "there are no steps, so nothing is tested", None),
    },
    "body": {
        "minItems": ("missing_key", "this `for` has no `steps`", "add `steps: [...]` next to it"),
    },
    "world_size": dict.fromkeys(
        ("type", "minimum"),
        ("bad_world_size", "`world_size` must be an integer, at least 1", None),
    ),
    "tag": {
        "type": ("wrong_type", "a tag is {kind}, not a word", "write `[groups, tutorial]`"),
    },
    "backends": {
        "minItems": (
            "bad_value",
            "`backends` is empty, so the scenario is never run",
            "leave it out for every backend",
        ),
    },
    "needs": {
        "minItems": (
            "bad_value",
            "`needs` is empty, so it says nothing",
            "leave it out: the analysis finds what a scenario needs",
        ),
        "type": ("wrong_type", "`needs` cannot be {kind}", "write a list: `needs: [{text}]`"),
    },
    "matrix_key": {
        "minItems": (
            "bad_value",
            "{noun} has no values, so there is no case",
            "list at least one value",
        ),
        "type": (
            "wrong_type",
            "{noun} cannot be {kind}",
            "write a list of values: `{key}: [{text}]`",
        ),
    },
    "cases": {
        "minItems": (
            "bad_value",
            "`cases` is empty, so there is no case",
            "list at least one: `cases: [{{op: sum, want: 6}}]`",
        ),
        "type": (
            "wrong_type",
            "`cases` cannot be {kind}",
            "write one mapping for each case: `cases: [{{op: sum, want: 6}}]`",
        ),
    },
    "case": {
        "minProperties": (
            "bad_value",
            "this case has no keys",
            "give it the keys of the other cases, or remove it",
        ),
        "type": (
            "wrong_type",
            "a case cannot be {kind}",
            "write its parameters: `{{op: sum, want: 6}}`",
        ),
    },
    "versions": dict.fromkeys(
        ("type", "pattern"),
        (
            "bad_version",
            "{shown} names no versions of torch",
            'versions are written as in `torch: ">=2.7"` or `torch: ">=2.7, <2.14"`',
        ),
    ),
    "duration": {
        "minimum": (
            "bad_duration",
            "{noun} is negative",
            "a duration is never negative: 10s, 0.5s, 200ms",
        ),
    },
    "tolerance": {
        "minimum": (
            "bad_value",
            "{key} must be a number, zero or more",
            "write `{key}: 1e-3`",
        ),
    },
    "file": {
        "type": (
            "wrong_type",
            "{noun} cannot be {kind}",
            "write a mapping with keys such as `steps:`",
        ),
    },
    "dimensions": {
        "minItems": (
            "missing_key",
            "the mesh `{outer}` has no `dims`",
            "name each dimension: {{shape: [2, 4], dims: [dp, tp]}}",
        ),
    },
    "raised": {
        "minItems": ("bad_value", "an empty list of kinds", "write `none` instead"),
    },
    "worded": dict.fromkeys(("additionalProperties", "maxProperties"), _WRONG_KIND),
    "bound": {"not": ("missing_value", "no duration is stated here", None)},
    "loop": dict.fromkeys(
        ("type", "minProperties", "maxProperties"),
        ("bad_loop", "`for` is {kind}, not a variable with its values", "write {wanted}"),
    ),
}
#: the message where the value is left out, by the sort of the place
_EMPTY = {
    "expected": ("missing_value", "no value is stated here", "leave the name out, or state it"),
    "loop_values": ("missing_value", "this `for` has nothing to run over", None),
    "group": ("missing_key", "{noun} has no ranks", None),
}


def _show(node: Node) -> str:
    """Return the text of a scalar, in quotes; of anything else, what kind it is."""
    plain = isinstance(node, Scalar) and node.value is not None and node.text
    return f"`{source_text(node)}`" if plain else kind_of(node)


def _twins(name: str, found: SchemaMismatch) -> list[str]:
    """Return the other spellings of an argument."""
    alternatives = found.part.get("anyOf", ())
    return [each["required"][0] for each in alternatives if each["required"][0] != name]


def usage(name: str, given: Node | None = None) -> str:
    """Return how an action is written; `given` may be the value of its first argument.

    >>> usage("all_reduce"), usage("barrier"), usage("wait")
    ('all_reduce: {tensor: ...}', 'barrier: {}', 'wait: ...')
    """
    operation = BY_NAME[name]
    if operation.bare is not None:
        return f"{name}: ..."
    needed = [param for param in operation.params if param.required]
    text = given.text if isinstance(given, Scalar) and isinstance(given.value, str) else None
    if not needed:
        return f"{name}: {{}}" if text is None else f"{name}: {{group: {text}}}"
    rest = ", ..." if len(needed) > 1 else ""
    return f"{name}: {{{needed[0].name}: {text or '...'}{rest}}}"


def _list_arguments(part: Schema) -> Mapping_[str, Schema]:
    """Return the arguments in the part of an action; of several forms, those of its mapping."""
    inner: Mapping_[str, Schema] = (
        part.get("properties")
        or part.get("then", {}).get("properties")
        or part.get("else", {}).get("properties")
        or {}
    )
    return inner


# -------------------------------------------------------------------------------------------------
# A file as its readers get it: what does not fit is noted and taken out.


def validate(tree: Node, problems: Problems) -> Node:
    """Return a file's tree with nothing in it that does not fit the schema; all of that is noted.

    What an object of `objects:` must be is any plain value, also one that looks like a misspelt
    tensor's: no schema can say which of the two a name is.

    The readers behind this may therefore assume each node's type. Where one asserts it (`assert
    isinstance(node, Scalar)`), the schema has made sure of it.
    """
    if compiled_schema().fits(tree):
        return tree
    objects = _objects(tree)
    unfit: set[int] = set()
    for found in findings(tree):
        names = [level.name for level in found.way]
        if "expect" in names and not objects.isdisjoint(names[names.index("expect") :]):
            continue
        unfit.update(id(node) for node in found.note_wrong(problems))
    return _prune(tree, unfit) if unfit else tree


def is_library(tree: Node) -> bool:
    """Whether a file is there for others to use: it has `inputs`, and no world of its own."""
    if not isinstance(tree, Mapping):
        return False
    return tree.get("inputs") is not None and tree.get("world_size") is None


def top_findings(tree: Node, problems: Problems) -> None:
    """Note what is wrong with the keys of a file, and nothing further inside.

    For the formatter, which lays out a file that has mistakes further inside, too.
    """
    if not compiled_schema().fits(tree):
        for found in findings(tree):
            if len(found.way) == 1 or found.keyword == "None":
                found.note_wrong(problems)


def _objects(tree: Node) -> set[str]:
    """Return the names below `objects:`."""
    held = tree.get("objects") if isinstance(tree, Mapping) else None
    return set(held.words()) if isinstance(held, Mapping) else set()


def _prune(node: Node, unfit: set[int]) -> Node:
    """Return a tree without some of its nodes, each with the key that leads to it."""
    match node:
        case Sequence():
            items = [_prune(item, unfit) for item in node.items if id(item) not in unfit]
            return Sequence(node.mark, items)
        case Mapping():
            entries = [
                (key, _prune(value, unfit)) for key, value in node.entries if id(value) not in unfit
            ]
            return Mapping(node.mark, entries)
        case _:
            return node


def fits(node: Node, part: str, problems: Problems, whole: str) -> bool:
    """Return whether a node fits one of `$defs`; what does not is noted, `whole` says what it is.

    For a value that stands where a file has no more than the name of an input.
    """
    if compiled_schema().part(part)(node):
        return True
    for found in findings(node, part, whole):
        found.note_wrong(problems)
    return False
