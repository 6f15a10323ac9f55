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


def fill(_app: Sphinx, name: str, source: list[str]) -> None:
    """Put what the code says where a page asks for it."""
    source[0] = reference_pages.filled(name, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the generator of reference pages."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True}
