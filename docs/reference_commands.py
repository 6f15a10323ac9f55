"""The reference of the command line: commands, options, bounds and reports, as declared."""

from __future__ import annotations

import inspect

import click
from writing import escaped, table, wrapped

from torch_scenarios.cli import COMMANDS, cli
from torch_scenarios.limits import COUNTS, DEFAULT, FLAGS
from torch_scenarios.report.formats import FORMATS


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
    parts = [f"## scenario {name}", f"```text\nscenario {name} {usage}\n```"]
    parts.append(_prose(command.help or ""))
    parts += option_tables(command, context)
    if isinstance(command, click.Group):
        parts += [
            command_section(f"{name} {each}", command.commands[each]) for each in command.commands
        ]
    return "\n\n".join(parts)


def option_tables(command: click.Command, context: click.Context) -> list[str]:
    """Return a table for each group of options that the help of the command has."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for param in command.params:
        record = param.get_help_record(context) if isinstance(param, click.Option) else None
        if record is not None and record[0].split()[0] not in FLAGS.values():
            groups.setdefault(getattr(param, "group", "Other"), []).append(record)
    tables = []
    for title, records in groups.items():
        head = title if len(groups) > 1 else "option"
        rows = ((f"`{option}`", escaped(help_)) for option, help_ in records)
        tables.append(table((head, ""), rows))
    if any(option in FLAGS.values() for param in command.params for option in param.opts):
        tables.append("It takes the [bounds](#bounds) by `--limit NAME=N`.")
    return tables


def _prose(text: str) -> str:
    """Return a command's help: paragraphs; those that keep their lines as text."""
    shown = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            shown.append(f"```text\n{paragraph[1:].strip()}\n```")
        else:
            shown.append(wrapped(escaped(" ".join(paragraph.split()))))
    return "\n\n".join(shown)


def bounds() -> str:
    """Return the bounds on a scenario, and the options that raise them."""
    rows = [
        (f"`{FLAGS[name]}`", f"at most {getattr(DEFAULT, name):,}".replace(",", " "), counts)
        for name, counts in COUNTS.items()
    ]
    return table(("option", "default", "counts"), rows)


def reports() -> str:
    """Return the table of reports."""
    rows = ((f"`{each.option} FILE`", escaped(each.help)) for each in FORMATS)
    return table(("option", ""), rows)
