"""How the documentation is built: Markdown by MyST, and reference pages that the code writes."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import reference_pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "scenario-runner"
author = "the authors of scenario-runner"
release = metadata.version("scenario-runner")

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["misc.highlighting_failure"]
nitpicky = True

html_theme = "furo"
html_title = f"scenario-runner {release}"
html_copy_source = False
html_show_copyright = False


def fill(_app: Sphinx, name: str, source: list[str]) -> None:
    """Put what the code says where a page asks for it."""
    source[0] = reference_pages.filled(name, source[0])


def written_by_code(app: Sphinx, *_: object) -> list[str]:
    """Name the pages that must be read again although their own text is as it was."""
    return [
        name
        for name in app.env.found_docs
        if "<!-- generated: " in Path(app.env.doc2path(name)).read_text(encoding="utf-8")
    ]


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the generator of reference pages."""
    app.connect("source-read", fill)
    app.connect("env-get-outdated", written_by_code)
    return {"parallel_read_safe": True}
