"""Help that stays readable with many options: they stand in groups, each under its title."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any] | click.Command")

WHICH = "Which cases, in which order"
HOW = "How they run"
REPORTS = "Reports (FILE may be - for standard output)"
BOUNDS = "Bounds on what a file may ask for"
OTHER = "Other"

_ORDER = (WHICH, HOW, REPORTS, BOUNDS, OTHER)


class GroupedOption(click.Option):
    """An option that stands in a group of the help."""

    def __init__(self, *names: Any, group: str = OTHER, **rest: Any) -> None:  # noqa: ANN401 -- click's
        """Stand under the title `group`."""
        super().__init__(*names, **rest)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help has a section for each group of options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        found: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if not isinstance(parameter, click.Option):
                continue
            record = parameter.get_help_record(ctx)
            if record is not None:
                group = parameter.group if isinstance(parameter, GroupedOption) else OTHER
                found.setdefault(group, []).append(record)
        for group in sorted(found, key=lambda name: _ORDER.index(name) if name in _ORDER else -1):
            with formatter.section(group):
                formatter.write_dl(found[group])


def option(group: str, *names: str, **rest: Any) -> Callable[[F], F]:  # noqa: ANN401 -- click's
    """Return a decorator that adds an option to a group."""
    return click.option(*names, cls=GroupedOption, group=group, **rest)
