"""The answers of `scenario ops`, `examples` and `explain`: what the package says of itself."""

from __future__ import annotations

import textwrap
from itertools import groupby

import click

from torch_scenarios.cli.options import refuse_usage
from torch_scenarios.errors import nearest
from torch_scenarios.explain import EXPLANATIONS, explanation, page
from torch_scenarios.explain.corpus import SUBJECTS
from torch_scenarios.explain.corpus import examples as examples_of
from torch_scenarios.operations import BY_NAME
from torch_scenarios.report.operations import functions as every_function
from torch_scenarios.report.operations import overview
from torch_scenarios.report.operations import page as page_of


def show_operations(name: str | None, *, functions: bool) -> None:
    """Print every operation, or one whole."""
    if functions:
        click.echo(every_function())
        return
    if name is None:
        click.echo(overview())
        return
    operation = BY_NAME.get(name)
    if operation is None:
        close = nearest(name, BY_NAME)
        hint = f"did you mean {close}?" if close else "`scenario ops` lists them all"
        refuse_usage(f"there is no operation {name}; {hint}")
    click.echo(page_of(operation))


def list_examples(subject: str | None) -> None:
    """Print the subjects of the corpus, or the scenarios of one."""
    if subject is None:
        width = max(map(len, SUBJECTS))
        for name, about in SUBJECTS.items():
            click.echo(f"{name:<{width}}  {about}")
        click.echo("\n`scenario examples SUBJECT` lists those of one.")
        return
    if subject not in SUBJECTS:
        close = nearest(subject, SUBJECTS)
        hint = f"did you mean {close}?" if close else "`scenario examples` lists the subjects"
        refuse_usage(f"there is no subject {subject}; {hint}")
    for each in examples_of(subject):
        click.echo(each.name)
        click.echo(textwrap.fill(each.lesson, 96, initial_indent="    ", subsequent_indent="    "))


def explain(code: str | None) -> None:
    """Print what a code means, or all codes.

    All are listed by sort, each with its first sentence. For an unknown code the nearest is named;
    one that is an operation (`all_reduce`) has its page under `scenario ops`.
    """
    if code is None:
        width = max(map(len, EXPLANATIONS)) + 4
        for sort, codes in groupby(EXPLANATIONS.values(), key=lambda each: each.sort):
            click.echo(f"{sort}:")
            for each in codes:
                first = each.what.partition(". ")[0].removesuffix(".")
                text, hung = f"  {each.code:<{width - 2}}{first}.", " " * width
                click.echo(textwrap.fill(text, 100, subsequent_indent=hung, break_on_hyphens=False))
        return
    found = explanation(code)
    if found is None:
        close = nearest(code, EXPLANATIONS)
        hint = f"did you mean {close}?" if close else "`scenario explain` lists them all"
        if code in BY_NAME:
            hint = f"`scenario ops {code}` shows the operation"
        refuse_usage(f"there is no code {code}; {hint}")
    click.echo(page(found))
