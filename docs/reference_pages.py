"""What the reference says, written by the code itself: pages ask for it, so that it cannot age.

A page holds a line `<!-- generated: NAME -->` for each part; `filled` puts the Markdown there.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from typing import TYPE_CHECKING, Any

import click

from runner.cli import COMMANDS, cli
from runner.explanations import EXPLANATIONS
from runner.language.limits import DEFAULT, FLAGS, Limits
from runner.language.signatures import SIGNATURES
from runner.operations import OPERATIONS
from runner.operations.base import Collective
from runner.operations.params import KINDS
from runner.report.operations import SHAPES
from runner.scenario import DIAGNOSES, DTYPES, OUTCOMES, RAISE_KINDS, REDUCE_OPS
from runner.schema_files import schema_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runner.explanations import Explanation
    from runner.operations.base import Operation
    from runner.operations.params import Param

_PLACE = re.compile(r"^<!-- generated: (?P<what>.+) -->$", re.MULTILINE)

#: how pages call the sorts of codes
SORTS = {
    "diagnosis": "Diagnoses",
    "finding": "Findings",
    "kind of error": "Kinds of error",
    "problem": "Problems",
}

WORDS = {
    "outcomes": OUTCOMES,
    "kinds of error": RAISE_KINDS,
    "dtypes": DTYPES,
    "reduce ops": REDUCE_OPS,
}


def filled(page: str, text: str) -> str:
    """Return a page's text with its generated parts; KeyError names a part that nobody writes."""

    def part(found: re.Match[str]) -> str:
        what = found["what"]
        if what.startswith("keys of "):
            return keys(what.removeprefix("keys of "))
        if what.startswith("codes "):
            return codes(what.removeprefix("codes "))
        if what not in PARTS:
            message = f"{page} asks for {what!r}, which nobody writes"
            raise KeyError(message)
        return PARTS[what]()

    return _PLACE.sub(part, text)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(_cell(each) for each in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _yaml(text: str) -> str:
    return f"```yaml\n{text.rstrip()}\n```"


# ---------------------------------------------------------------------- operations


def operations() -> str:
    """Return every operation whole, by its shape."""
    parts: list[str] = []
    for shape, title in SHAPES:
        found = [operation for operation in OPERATIONS if isinstance(operation, shape)]
        if found:
            parts += [f"## {title}", *map(operation_section, found)]
    return "\n\n".join(parts)


def operation_section(operation: Operation) -> str:
    """Return one operation: what it does, its arguments, an example that passes."""
    also = "".join(f", also `{name}`" for name in operation.aliases)
    doc = inspect.cleandoc(type(operation).__doc__ or "")
    parts = [f"(op-{operation.name})=\n### {operation.name}", f"`{operation.name}`{also}: {doc}"]
    if operation.params:
        if operation.bare is not None:
            parts.append(f"The value of `{operation.name}:` is the argument itself.")
        rows = (
            (_name(param), _meaning(param), KINDS[param.kind], _facts(param))
            for param in operation.params
        )
        parts.append(table(("argument", "meaning", "value", ""), rows))
    if isinstance(operation, Collective) and operation.agree:
        agreed = ", ".join(f"`{name}`" for name in operation.agree)
        parts.append(f"All members must agree on: {agreed}.")
    parts += [f"Source: {operation.source}", _yaml(operation.example)]
    return "\n\n".join(parts)


def _name(param: Param) -> str:
    return ", ".join(f"`{name}`" for name in (param.name, *param.aliases))


def _meaning(param: Param) -> str:
    words = f" One of {', '.join(f'`{word}`' for word in param.words)}." if param.words else ""
    return f"{param.description}{words}"


def _facts(param: Param) -> str:
    facts = ["required"] if param.required else []
    if not param.required and param.default is not None:
        facts.append(f"default `{str(param.default).lower()}`")
    if param.writes:
        facts.append("written")
    return ", ".join(facts)


# ---------------------------------------------------------------------- codes


def codes(sort: str) -> str:
    """Return every code of one sort, with its reason, an example and the fix."""
    found = [each for each in EXPLANATIONS.values() if each.sort == sort]
    if not found:
        raise KeyError(sort)
    return "\n\n".join(map(code_section, found))


def code_section(explanation: Explanation) -> str:
    """Return what a code means."""
    parts = [f"(code-{explanation.code})=\n### {explanation.code}", explanation.what]
    parts += [f"*Why:* {explanation.why}"] if explanation.why else []
    parts += [f"*Fix:* {explanation.fix}"] if explanation.fix else []
    if explanation.example.strip():
        parts.append(_yaml(explanation.example))
    if explanation.fixed.strip():
        parts += ["Fixed:", _yaml(explanation.fixed)]
    return "\n\n".join(parts)


def diagnoses() -> str:
    """Return the table of diagnoses, each with a link to its page."""
    return table(
        ("diagnosis", "what is wrong with the program"),
        ((f"[`{name}`](#code-{name})", EXPLANATIONS[name].what) for name in DIAGNOSES),
    )


# ---------------------------------------------------------------------- the command line


def commands() -> str:
    """Return every command with its options."""
    parts = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if command is not None:
            parts.append(command_section(name, command))
    return "\n\n".join(parts)


def command_section(name: str, command: click.Command) -> str:
    """Return one command: how it is called, what it does, its options and bounds."""
    context = click.Context(command, info_name=f"scenario {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"(command-{name})=\n## scenario {name}", f"```text\nscenario {name} {usage}\n```"]
    parts.append(_prose(command.help or ""))
    parts += option_tables(command, context)
    return "\n\n".join(parts)


def option_tables(command: click.Command, context: click.Context) -> list[str]:
    """Return a table for each group of options that the help of the command has."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(context):
        record = param.get_help_record(context) if isinstance(param, click.Option) else None
        if record is not None and record[0].split()[0] not in FLAGS.values():
            groups.setdefault(getattr(param, "group", "Other"), []).append(record)
    tables = []
    for title, records in groups.items():
        head = title if len(groups) > 1 else "option"
        rows = ((f"`{option}`", _words(help_)) for option, help_ in records)
        tables.append(table((head, ""), rows))
    if any(option in FLAGS.values() for param in command.params for option in param.opts):
        tables.append("It takes the [bounds](#bounds) as options, too.")
    return tables


def _prose(text: str) -> str:
    """Return a command's help: paragraphs; those that keep their lines as text."""
    shown = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            shown.append(f"```text\n{paragraph[1:].strip()}\n```")
        else:
            shown.append(_words(paragraph))
    return "\n\n".join(shown)


def _words(text: str) -> str:
    """Escape what Markdown would read as markup outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*<\[\]_])", r"\\\1", part) for part in parts
    )


def bounds() -> str:
    """Return the bounds on a scenario, and the options that raise them."""
    rows = []
    for option, name, counts in (
        (each.metadata["flag"], each.name, each.metadata["counts"])
        for each in Limits.__dataclass_fields__.values()
    ):
        rows.append(
            (f"`{option}`", f"at most {getattr(DEFAULT, name):,}".replace(",", " "), counts)
        )
    return table(("option", "default", "counts"), rows)


# ---------------------------------------------------------------------- the language


def keys(name: str) -> str:
    """Return the table of the keys of one part of a scenario file, from its schema."""
    schema = json.loads(schema_file("scenario.schema.json").read_text(encoding="utf-8"))
    part = schema if name == "the file" else _described(schema, name)
    actions = {each for operation in OPERATIONS for each in (operation.name, *operation.aliases)}
    rows = []
    for key, value in part["properties"].items():
        if name == "step" and key in actions:
            continue
        rows.append((f"`{key}`", _words(_about(schema, value)), _example(value)))
    return table(("key", "meaning", "for example"), rows)


def _described(schema: dict[str, Any], name: str) -> dict[str, Any]:
    part: dict[str, Any] = schema["$defs"][name]
    if "properties" in part:
        return part
    merged: dict[str, Any] = {}
    for choice in part["anyOf"]:
        merged |= choice.get("properties", {})
    return {"properties": merged}


def _about(schema: dict[str, Any], value: dict[str, Any]) -> str:
    """Return the description of a key: its own, or the first among what it may be."""
    if "description" in value:
        return str(value["description"])
    choices = [schema["$defs"][str(value["$ref"]).rpartition("/")[2]]] if "$ref" in value else []
    choices += value.get("anyOf", [])
    return next((about for each in choices if (about := _about(schema, each))), "")


def _example(value: dict[str, Any]) -> str:
    if value.get("examples"):
        return f"`{_flow(value['examples'][0])}`"
    return f"default `{_flow(value['default'])}`" if "default" in value else ""


def _flow(value: Any) -> str:  # noqa: ANN401 -- a YAML value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    plain = not isinstance(value, str) or re.fullmatch(r"[\w.]+( [\w.]+)*", value)
    return str(value) if plain else f'"{value}"'


def functions() -> str:
    """Return how each function of the expressions is called."""
    return "```text\n" + "\n".join(each.usage for each in SIGNATURES.values()) + "\n```"


def words(name: str) -> Callable[[], str]:
    """Return a writer of fixed words."""
    return lambda: " ".join(f"`{word}`" for word in WORDS[name])


def interface() -> str:
    """Return the public functions of the package, with their signatures."""
    package = importlib.import_module("runner")
    parts = []
    for name in package.__all__:
        function = getattr(package, name)
        signature = str(inspect.signature(function)).replace("'", "")
        doc = inspect.cleandoc(function.__doc__ or "")
        parts.append(f"## {name}\n\n```python\n{name}{signature}\n```\n\n{doc}")
    return "\n\n".join(parts)


PARTS: dict[str, Callable[[], str]] = {
    "operations": operations,
    "diagnoses": diagnoses,
    "commands": commands,
    "bounds": bounds,
    "functions": functions,
    "interface": interface,
    **{name: words(name) for name in WORDS},
}
