"""What `scenario doctor` does."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import click
from msgspec.structs import asdict

from torch_scenarios.cli.answers.nodes import find_endpoint, secret_for_all
from torch_scenarios.cli.nodes import require_endpoint
from torch_scenarios.cli.options import write_text
from torch_scenarios.display import clean, clean_line
from torch_scenarios.doctor import Examination, Subject, examine
from torch_scenarios.pipeline.interruption import interrupt_on_termination

VERSION = 1
STATUSES = ("ok", "note", "wrong", "untested")
#: what an exit code means
MEANINGS = {
    0: "runs can start",
    1: "a run would fail, or not be what it seems",
    3: "something could not be tested",
}


def doctor(options: Mapping[str, Any]) -> None:
    """Look at this machine, and at every node of a run, and leave with the exit code."""
    interrupt_on_termination()
    nodes = options["nnodes"]
    if nodes > 1:
        require_endpoint(options)
    elif options["rdzv_endpoint"] is not None:
        message = "--rdzv-endpoint is for several nodes: add --nnodes N"
        raise click.UsageError(message)
    subject = Subject(
        ranks=options["nproc_per_node"],
        nodes=nodes,
        endpoint=find_endpoint(options) if nodes > 1 else None,
        environment=os.environ,
        make_secret=lambda: secret_for_all(None, say),
        say=say,
        within_s=options["wait_s"],
    )
    found = examine(subject)
    if options["as_json"] != "-":
        for line in lines(found):
            click.echo(clean_line(line))
    if options["as_json"]:
        write_text(options["as_json"], json.dumps(document(found, subject), indent=2) + "\n")
    sys.exit(found.code)


def say(words: str) -> None:
    """Print a line about what is waited for."""
    click.echo(clean(words), err=True)


def lines(found: Examination) -> list[str]:
    """Return the lines that are printed: a host, and a line a check."""
    printed = []
    for host, checks in found.hosts:
        printed += [f"host {host}", *(f"  {check}" for check in checks)]
    counts = Counter[str](check.status for _, checks in found.hosts for check in checks)
    listed = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    return [*printed, f"{listed}: {MEANINGS[found.code]}"]


def document(found: Examination, subject: Subject) -> dict[str, Any]:
    """Return what `--json` writes."""
    return {
        "version": VERSION,
        "nnodes": subject.nodes,
        "endpoint": None if subject.endpoint is None else str(subject.endpoint),
        "exit_code": found.code,
        "hosts": [
            {"host": host, "checks": [asdict(check) for check in checks]}
            for host, checks in found.hosts
        ],
    }
