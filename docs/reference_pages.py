"""What the reference says, written by the code itself, so that it cannot age.

A page holds a line `<!-- generated: NAME -->` for each part, and the part itself up to a line
`<!-- generated: end -->`. `python docs/reference_pages.py` writes all of them anew; a test holds
them fresh, so that the pages can be read where the code is read.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_algorithms import algorithms
from reference_attacks import attacks
from reference_commands import bounds, commands, reports
from reference_decisions import decisions
from reference_lanes import picture_of, pictures
from reference_strategies import strategy
from writing import escaped, table, wrapped, yaml_block

from torch_scenarios.conformance.document import page, read
from torch_scenarios.explain import EXPLANATIONS
from torch_scenarios.explain.corpus import SUBJECTS, examples
from torch_scenarios.expressions.params import KINDS
from torch_scenarios.expressions.signatures import EXAMPLE_NAMES, EXAMPLES, SIGNATURES
from torch_scenarios.files import schema_file
from torch_scenarios.model.needs import CAPABILITIES
from torch_scenarios.modules import LAYERS
from torch_scenarios.modules.loss import LOSSES
from torch_scenarios.modules.optimizer import OPTIMIZERS
from torch_scenarios.operations import OPERATIONS
from torch_scenarios.operations.base import Collective
from torch_scenarios.report.operations import SHAPES
from torch_scenarios.vocabulary import DIAGNOSES, DTYPES, OUTCOMES, RAISE_KINDS, REDUCE_OPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch_scenarios.errors import Explanation
    from torch_scenarios.expressions.params import Param
    from torch_scenarios.modules.base import Declared
    from torch_scenarios.operations.base import Operation

END = "<!-- generated: end -->"
_PLACE = re.compile(
    r"^(?P<head><!-- generated: (?!end)(?P<what>[^\n]+) -->)$"
    rf"(?:(?:(?!<!-- generated).)*?^{END}$)?",
    re.MULTILINE | re.DOTALL,
)
DOCS = Path(__file__).parent

#: sort of a code -> how the page calls it, and what codes of that sort are about
SORTS = {
    "diagnosis": (
        "Diagnoses",
        "What is wrong with a program. Each example states it and passes, and is put right below.",
    ),
    "finding": ("Findings", "Why a scenario is FAILED."),
    "finding of values": (
        "Findings of values",
        (
            "Why a training is wrong that communicates rightly (`record --values`). Below are\n"
            "programs that do the same, and are right."
        ),
    ),
    "warning": ("Warnings", "What passes and should be looked at; with `--strict` it fails."),
    "kind of error": ("Kinds of error", "What `raises:` states, whatever words a backend uses."),
    "problem": ("Problems", "Why a file is INVALID."),
    "verdict": ("Verdicts", "What a case comes out as."),
    "outcome": ("Outcomes", "How a program ends."),
    "word": ("Words", "Further words of a report."),
    "limits": ("Limits", "What a file may ask for."),
    "refusal to bless": ("Refusals to bless", "Why `scenario bless` leaves a file as it is."),
}

WORDS = {
    "outcomes": OUTCOMES,
    "kinds of error": RAISE_KINDS,
    "dtypes": DTYPES,
    "reduce ops": REDUCE_OPS,
}


def filled(page: str, text: str) -> str:
    """Return a page's text with its generated parts; KeyError names a part without a writer."""

    def part(found: re.Match[str]) -> str:
        what = found["what"]
        if what in PARTS:
            body = PARTS[what]()
        elif what.startswith("keys of "):
            body = keys(what.removeprefix("keys of "))
        elif what.startswith("strategy "):
            body = strategy(what.removeprefix("strategy "))
        else:
            message = f"{page} asks for {what!r}, which no function writes"
            raise KeyError(message)
        return f"{found['head']}\n\n{body.strip()}\n\n{END}"

    return _PLACE.sub(part, text)


def stale() -> dict[Path, str]:
    """Return each page whose generated parts are not what the code says, with its right text."""
    texts = {page: page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))}
    right = {page: filled(page.name, text) for page, text in texts.items()} | pictures()
    return {page: text for page, text in right.items() if text != _read(page)}


def _read(page: Path) -> str:
    return page.read_text(encoding="utf-8") if page.exists() else ""


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
    parts = [f"### {operation.name}", wrapped(f"`{operation.name}`{also}: {doc}")]
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
        parts.append(wrapped(f"All members must agree on: {agreed}."))
    parts += [wrapped(f"Source: {operation.source}"), yaml_block(operation.example)]
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


def codes() -> str:
    """Return every code by its sort, with its reason, an example and the fix."""
    parts: list[str] = []
    for sort in dict.fromkeys([*SORTS, *(each.sort for each in EXPLANATIONS.values())]):
        title, about = SORTS.get(sort, (sort.capitalize(), ""))
        parts += [f"## {title}", about]
        parts += [code_section(each) for each in EXPLANATIONS.values() if each.sort == sort]
    return "\n\n".join(part for part in parts if part)


def code_section(explanation: Explanation) -> str:
    """Return what a code means."""
    parts = [f"### {explanation.code}", wrapped(explanation.what)]
    parts += [wrapped(f"*Why:* {explanation.why}")] if explanation.why else []
    parts += [wrapped(f"*Fix:* {explanation.fix}")] if explanation.fix else []
    if explanation.example.strip():
        parts.append(yaml_block(explanation.example))
    parts += [shown] if (shown := picture_of(explanation.code)) else []
    if explanation.fixed.strip():
        parts += ["Fixed:", yaml_block(explanation.fixed)]
    if explanation.table:
        rows = ((f"`{name}`", meaning) for name, meaning in explanation.table)
        parts.append(table(("name", "default, and what it counts"), rows))
    return "\n\n".join(parts)


def diagnoses() -> str:
    """Return the table of diagnoses, each with a link to its page."""
    for name in DIAGNOSES.keys() - EXPLANATIONS.keys():
        message = f"write runner/torch_scenarios/explain/pages/diagnosis/{name}.md"
        raise SystemExit(message)
    return table(
        ("diagnosis", "what is wrong with the program"),
        ((f"[`{name}`](codes.md#{name})", EXPLANATIONS[name].what) for name in DIAGNOSES),
    )


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
        rows.append((f"`{key}`", escaped(_about(schema, value)), _example(value)))
    return table(("key", "meaning", "for example"), rows)


def _described(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part that has keys: the first of the forms of a value that does."""
    part: dict[str, Any] = schema["$defs"][name]
    while "properties" not in part:
        part = part["then"] if "properties" in part["then"] else part["else"]
    return part


def _about(schema: dict[str, Any], value: dict[str, Any]) -> str:
    """Return the description of a key: its own, or the first among what it may be."""
    if "description" in value:
        return str(value["description"])
    choices = [schema["$defs"][str(value["$ref"]).rpartition("/")[2]]] if "$ref" in value else []
    choices += [value[form] for form in ("then", "else") if form in value]
    return next((about for each in choices if (about := _about(schema, each))), "")


def _example(value: dict[str, Any]) -> str:
    if value.get("examples"):
        return f"`{_flow(value['examples'][0])}`"
    return f"default `{_flow(value['default'])}`" if "default" in value else ""


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    plain = not isinstance(value, str) or re.fullmatch(r"[\w.]+( [\w.]+)*", value)
    return str(value) if plain else f'"{value}"'


def result_keys() -> str:
    """Return the keys of a result in --json."""
    schema = json.loads(schema_file("result.schema.json").read_text(encoding="utf-8"))
    found = schema["$defs"]["result"]["properties"]
    rows = ((f"`{key}`", escaped(_about(schema, value))) for key, value in found.items())
    return table(("key", "meaning"), rows)


def corpus() -> str:
    """Return what each scenario of the corpus teaches, by subject."""
    parts = []
    for subject, about in SUBJECTS.items():
        rows = ((f"`{each.name}`", escaped(each.lesson)) for each in examples(subject))
        parts += [
            f"## {subject}",
            wrapped(f"{about}."),
            table(("scenario", "what it teaches"), rows),
        ]
    return "\n\n".join(parts)


def functions() -> str:
    """Return how each function of expressions is called, with an example and its value."""
    rows = (
        (f"`{each.usage}`", f"`{EXAMPLES[name][0]}`", _value(EXAMPLES[name][1]))
        for name, each in SIGNATURES.items()
    )
    head = "The examples are on rank 2 of:"
    return "\n\n".join(
        [head, yaml_block(EXAMPLE_NAMES), table(("function", "for example", "is"), rows)]
    )


def _value(text: str) -> str:
    return text if "`" in text else f"`{text}`"


def capabilities() -> str:
    """Return the words of `needs:`, with what each means and its level of a certificate."""
    rows = (
        (f"`{word}`", f"{each.means[0].upper()}{each.means[1:]}.", each.level or "torch's own")
        for word, each in CAPABILITIES.items()
    )
    return table(("word", "what a case uses", "level"), rows)


def words(name: str) -> Callable[[], str]:
    """Return a writer of fixed words."""
    return lambda: wrapped(" ".join(f"`{word}`" for word in WORDS[name]))


def interface() -> str:
    """Return the public functions of the package, with their signatures."""
    package = importlib.import_module("torch_scenarios")
    parts = []
    for name in package.__all__:
        function = getattr(package, name)
        signature = str(inspect.signature(function)).replace("'", "")
        doc = inspect.cleandoc(function.__doc__ or "")
        parts.append(f"## {name}\n\n```python\n{name}{signature}\n```\n\n{doc}")
    return "\n\n".join(parts)


def what_works_where() -> str:
    """Return docs/conformance.json as tables."""
    return page(read(str(Path(__file__).parent / "conformance.json")))


def entries(known: Mapping[str, type[Declared]]) -> Callable[[], str]:
    """Return what writes the table of layers, losses or optimizers: arguments, and what each is."""

    def argument(given: Parameter) -> str:
        if given.default is Parameter.empty:
            return f"`{given.name}`"
        default = json.dumps(given.default) if given.default is not None else "null"
        return f"`{given.name}: {default}`"

    def written() -> str:
        rows = [
            (
                f"`{name}`",
                ", ".join(map(argument, signature(each).parameters.values())),
                (each.__doc__ or "").partition("\n")[0].replace("|", "\\|"),
            )
            for name, each in known.items()
        ]
        return table(("name", "arguments, with their defaults", "what it is"), rows)

    return written


PARTS: dict[str, Callable[[], str]] = {
    "operations": operations,
    "reports": reports,
    "keys of a result": result_keys,
    "corpus": corpus,
    "codes": codes,
    "diagnoses": diagnoses,
    "commands": commands,
    "bounds": bounds,
    "quickest algorithms": algorithms,
    "attacks": attacks,
    "conformance": what_works_where,
    "decisions": decisions,
    "capabilities": capabilities,
    "functions": functions,
    "interface": interface,
    "layers": entries(LAYERS),
    "losses": entries(LOSSES),
    "optimizers": entries(OPTIMIZERS),
    **{name: words(name) for name in WORDS},
}


if __name__ == "__main__":
    for path, text in stale().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)  # noqa: T201 -- which pages changed
