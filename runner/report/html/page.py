"""Markup, style, program and data -> one page that needs nothing else.

The data are compressed and in base64: no text of a scenario is ever part of the markup, but the
title, which is escaped. The page's own security policy allows its one style sheet and its one
program, by their hashes, and no connection: even a mistake in the program could not run what a
scenario says.
"""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib import resources
from string import Template

from runner.display import clean_line

#: the program, in the order in which its parts build on each other
PROGRAM = (
    "model.js",
    "source.js",
    "palette.js",
    "geometry.js",
    "meetings.js",
    "waiting.js",
    "pointed.js",
    "distant.js",
    "names.js",
    "paint.js",
    "diagram.js",
    "values.js",
    "story.js",
    "cases.js",
    "controls.js",
    "main.js",
)


def page(title: str, data: bytes) -> str:
    """Return the whole file. `data` is a zlib stream of lines of JSON."""
    style, program = _dense("report.css"), _program()
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(program)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Template(_read("report.html")).substitute(
        title=html.escape(clean_line(title)),
        policy=policy,
        style=style,
        program=program,
        data=base64.b64encode(data).decode(),
    )


@cache
def _program() -> str:
    parts = "\n".join(_dense(name) for name in PROGRAM)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'


@cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _dense(name: str) -> str:
    """Return a file without indentation and without the lines that are comments."""
    lines = (line.strip() for line in _read(name).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))


def _hash(part: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}"
