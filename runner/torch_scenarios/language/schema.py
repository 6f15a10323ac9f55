"""The JSON Schema of scenario files: the keys, and what the operations declare.

It is the contract: `load` validates every file against it
(:mod:`torch_scenarios.language.validation`), and an editor's YAML language server completes and
explains every key from it.

    python -m torch_scenarios.language.schema > schemas/scenario.schema.json
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any

import yaml

from torch_scenarios.expressions.params import Param
from torch_scenarios.language import keys
from torch_scenarios.model.needs import CAPABILITIES
from torch_scenarios.modules.loss import LOSSES
from torch_scenarios.modules.optimizer import OPTIMIZERS
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Operation
from torch_scenarios.vocabulary import DIAGNOSES


def scenario_schema() -> keys.Schema:
    """Return the schema of a scenario file, and of a file with `inputs:`."""
    whole = {**keys.file(), "$defs": {**keys.parts(), "step": step()}}
    model = whole["$defs"]["model_spec"]["properties"]
    for key, table in (("loss", LOSSES), ("optimizer", OPTIMIZERS)):
        model[key] = {**model[key], "x-words": list(table)}
    made: keys.Schema = _Editors(whole["$defs"]).render(whole)
    made["title"] = made.pop("x-wanted")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def scenario_schema_text() -> str:
    """Return the schema as the text of schemas/scenario.schema.json."""
    return json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"


#: words and what each means, of lists that have no others
_MEANINGS = (DIAGNOSES, {word: each.means for word, each in CAPABILITIES.items()})


#: keywords whose values are no schemas
_RAW = {"examples", "default", "propertyNames", "dependentRequired"}


def _is_plain(value: Any) -> bool:
    """Whether an example is a scalar: a server offers others as `[object Object]`."""
    return not isinstance(value, dict | list)


class _Editors:
    """The schema as an editor's language server reads it; what fits stays the same.

    Its `title` heads a hover, so that it is the name of the key; what a message calls a value is
    `x-wanted`. A server completes the words of `enum` and `anyOf`, and none within `if`: so these
    words are also given flat, in an `anyOf` that everything fits.
    """

    def __init__(self, defs: dict[str, keys.Schema]) -> None:
        self.defs = defs

    def render(self, part: Any, heading: str | None = None, action: str | None = None) -> Any:
        """Return a part; `heading` is its title, `action` the operation that it belongs to."""
        if not isinstance(part, dict):
            return part
        made: keys.Schema = {} if heading is None else {"title": heading}
        for word, value in part.items():
            if word == "title":
                made["x-wanted"] = value
            elif word in {"properties", "$defs"}:
                made[word] = {
                    name: self._render_property(word, name, inner, action)
                    for name, inner in value.items()
                }
            elif word in {"anyOf", "oneOf", "allOf"}:
                made[word] = [self.render(each, None, action) for each in value]
            elif word in _RAW:
                made[word] = value
            elif word != "x-words":
                made[word] = self.render(value, None, action)
        return self._offer_words(part, made)

    def _offer_words(self, part: keys.Schema, made: keys.Schema) -> keys.Schema:
        """Return a part with its words where a server sees them, and with what each means.

        `{"anyOf": [{"enum": WORDS}, {"not": {"enum": WORDS}}]}` fits anything: it says which words
        there are, and refuses none.
        """
        listed = made
        if ("if" in part or "x-words" in part) and "anyOf" not in part:
            words = list(dict.fromkeys(self._list_words(part, set())))
            if words:
                listed = {"enum": words}
                made["anyOf"] = [listed, {"not": {"enum": words}}]
                plain = [each for each in made.pop("examples", ()) if _is_plain(each)]
                made |= {"examples": plain} if plain else {}
        for table in _MEANINGS:
            if "enum" in listed and table.keys() >= set(listed["enum"]):
                listed["enumDescriptions"] = [table[word] for word in listed["enum"]]
        return made

    def _render_property(self, word: str, name: str, part: Any, action: str | None) -> Any:
        if word == "$defs":
            return self.render(part)
        within = name if part is not True and name in BY_NAME and action is None else action
        return self.render(part, name if action is None else f"{name} of {action}", within)

    def _list_words(self, part: Any, seen: set[str]) -> Iterator[Any]:
        """Yield the words that a value may be, wherever the part says it of the value itself."""
        if not isinstance(part, dict):
            return
        yield from part.get("x-words", ())
        yield from (word for word in part.get("enum", ()) if word is not None)
        if "const" in part:
            yield part["const"]
        if "boolean" in part.get("type", ()) and "number" not in part["type"]:
            yield from (True, False)
        name = part.get("$ref", "").rpartition("/")[2]
        if name and name not in seen:
            yield from self._list_words(self.defs[name], seen | {name})
        for inner in (part.get("then"), part.get("else"), *part.get("anyOf", ())):
            yield from self._list_words(inner, seen)


#: what an editor says of a step without an action, or with a misspelt one
ONE_ACTION = "A step has one action, such as `all_reduce: {tensor: x}`, or an `expect`."


def step() -> keys.Schema:
    """Return the part of one step: at most one action, and what is written next to it.

    `oneOf` has an alternative for each action and one for an expectation alone, so that two actions
    in one step fit two of them, and a step without either fits none.
    """
    actions = {
        **{name: action(operation, name) for name, operation in BY_NAME.items()},
        **keys.ACTIONS,
    }
    one = [{"required": [name]} for name in actions]
    worded = {**one[0], "errorMessage": ONE_ACTION}
    return {
        "description": "At most one action, and the keys next to it.",
        "x-is": "step",
        **keys.close({**keys.BESIDE, keys.BODY: keys.BODY_PART, **actions}),
        "oneOf": [worded, *one[1:], {"required": ["expect"], "not": {"anyOf": one}}],
        "dependentRequired": {keys.BODY: [keys.REPEAT], keys.REPEAT: [keys.BODY]},
    }


def action(operation: Operation, name: str) -> keys.Schema:
    """Return the part of an operation's arguments, under one of its names.

    Four forms, by what the operation declares: a value that is all of it (`bare`: `wait: up`), a
    list of messages, arguments some of which are required, and arguments that are all optional
    (`barrier:` alone).
    """
    described: keys.Schema = {"description": _describe(operation, name)}
    properties = {
        spelling: argument(param)
        for param in operation.params
        for spelling in (param.name, *param.aliases)
    }
    required = [param.name for param in operation.params if param.required and not param.aliases]
    any_spelling = [
        {"anyOf": [{"required": [spelling]} for spelling in (param.name, *param.aliases)]}
        for param in operation.params
        if param.required and param.aliases
    ]
    arguments = keys.close(
        properties,
        **{"x-is": "arguments"},
        **({"required": required} if required else {}),
        **({"allOf": any_spelling} if any_spelling else {}),
    )
    whole = next((p for p in operation.params if p.name == operation.bare), None)
    if whole is not None:
        alone = keys.require_any(whole.name, *whole.aliases)
        if whole.kind in {"assignments", "numbers"}:  # any name may be assigned to, also this one
            inside = {**keys.MAPPING, "properties": {whole.name: keys.MAPPING}, "maxProperties": 1}
            alone = {**alone, **inside}
        return {**described, **keys.choose_case((alone, arguments), otherwise=argument(whole))}
    listed = next((p for p in operation.params if p.kind == "p2p_ops"), None)
    if listed is not None:
        named = {
            **keys.MAPPING,
            "not": {**keys.MAPPING, "required": ["else"]},
            **keys.require_any(listed.name),
        }
        return {**described, **keys.choose_case((named, arguments), otherwise=argument(listed))}
    if required or any_spelling:
        return {**described, **arguments, "examples": _examples(operation)}
    return {**described, **keys.choose_case((keys.kind("null"), {}), otherwise=arguments)}


def argument(param: Param) -> keys.Schema:
    """Return the part of one argument: that of its kind, with its own description."""
    described: keys.Schema = {"description": param.description}
    if param.default is not None:
        described["default"] = param.default
    match param.kind:
        case "name":
            return keys.ref("new_name", **described)
        case "word":
            return {**described, **_words(param)}
        case "p2p_ops":
            return {**described, **_messages(param)}
        case name:
            return keys.ref(name, **described)


def _words(param: Param) -> keys.Schema:
    """Return the part of one of some words, by rank or not; `worded` ones have a text below."""
    plain = ", ".join(word for word in param.words if word not in param.worded)
    one = {
        "title": f"one of {', '.join(param.words)}",
        "anyOf": [{"enum": list(param.words)}, {"type": "string"}],
    }
    if not param.worded:
        return keys.choose_case((keys.MAPPING, keys.describe_per_rank(one)), otherwise=one)
    worded = keys.close(
        {word: {**keys.TEXT, "x-is": "words_of", "title": "some text"} for word in param.worded},
        **{"x-is": "worded", "title": f"`{{{param.worded[0]}: text}}`, or one word: {plain}"},
        maxProperties=1,
    )
    return keys.choose_case(
        (keys.require_any(*param.words), worded),
        (keys.MAPPING, keys.describe_per_rank(one)),
        otherwise=one,
    )


def _messages(param: Param) -> keys.Schema:
    """Return the part of a batch's messages: `P2POp`s by their fields, or `isend`, `irecv`."""
    fields = {field.name: argument(field) for field in param.fields}
    required = [field.name for field in param.fields if field.required]
    short: list[tuple[keys.Schema, keys.Schema]] = []
    for word, role in keys.PEERS.items():
        renamed = {"peer": role, "group_peer": f"group_{role}"}
        inner = {renamed.get(name, name): part for name, part in fields.items() if name != "op"}
        needed = [renamed.get(name, name) for name in required if name != "op"]
        arguments = keys.close(inner, **{"x-is": "arguments"}, required=needed)
        message = keys.close({word: arguments, **keys.BESIDE_MESSAGE}, **{"x-is": "message"})
        short.append((keys.require_any(word), message))
    item = keys.choose_case(
        *short,
        (
            keys.MAPPING,
            keys.close({**fields, **keys.BESIDE_MESSAGE}, **{"x-is": "message"}, required=required),
        ),
        otherwise=keys.kind("object", title="`{op: isend, tensor: x, peer: 1}`"),
    )
    listed = keys.lists(item)
    return keys.choose_case(
        (keys.LIST, listed),
        (keys.MAPPING, keys.describe_per_rank(listed)),
        otherwise=keys.kind("array", title="a list of isend and irecv"),
    )


def _describe(operation: Operation, name: str) -> str:
    text = inspect.getdoc(type(operation)) or operation.name
    other = "" if name == operation.name else f"\n\nThe older name of `{operation.name}`."
    return f"{text}{other}\n\nSee {operation.source}."


def _examples(operation: Operation) -> list[Any]:
    """Return the operation's arguments as its own example has them, where it has one."""
    steps = (yaml.safe_load(operation.example) or {}).get("steps", ())
    return [step[operation.name] for step in steps if operation.name in step][:1]


if __name__ == "__main__":
    sys.stdout.write(scenario_schema_text())
