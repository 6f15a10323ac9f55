"""What the built documentation has beyond its pages: colour in sessions, a page for each code."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Generic, Keyword, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

#: the page that holds every code, each under a heading
CODES = "reference/codes"


class Session(RegexLexer):
    """A session of the command line, in the colours that the terminal has."""

    name = "A session of scenario"
    tokens = {  # noqa: RUF012 -- pygments reads it from the class
        "root": [
            (r"^(\$ )(.*\n)", bygroups(Generic.Prompt, Keyword)),
            (r"^PASSED\b|\b\d+ passed\b", Generic.Inserted),
            (r"^(FAILED|INVALID|FLAKY)\b|\b\d+ (failed|invalid|flaky)\b", Generic.Deleted),
            (r"^(UNSUPPORTED|INCONCLUSIVE)\b", Generic.Emph),
            (r"\berror\[\w+\]|^\s+\^+$|\^{2,}", Generic.Deleted),
            (r"\bwarning\[\w+\]", Generic.Emph),
            (r"^(\s+-->)(.*\n)", bygroups(Comment, Comment)),
            (r"^(\s+= )(help|note)(:)", bygroups(Comment, Generic.Strong, Comment)),
            (r".|\n", Text),
        ]
    }


def pages_of_codes(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each code: `reference/codes/circular_wait.html`."""
    from docutils import nodes

    if CODES not in app.env.found_docs or not hasattr(app.builder, "render_partial"):
        return
    tree = app.env.get_and_resolve_doctree(CODES, app.builder)
    app.builder.imgpath = "../_images"
    for section in tree.findall(nodes.section):
        title = section.next_node(nodes.title).astext()
        if not re.fullmatch(r"[a-z_]+|[A-Z]+", title) or section.next_node(nodes.section):
            continue
        body = app.builder.render_partial(section)["fragment"]
        yield f"{CODES}/{title}", {"title": title, "body": deepened(body)}, "page.html"


def deepened(body: str) -> str:
    """Return HTML of the page of codes as a page one folder below has it."""
    body = re.sub(r'(href|src)="(?![a-z]+:|#|/)', r'\1="../', body)
    return body.replace('href="#', 'href="../codes.html#')
