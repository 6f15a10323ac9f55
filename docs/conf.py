"""How the documentation is built: Markdown by MyST."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

project = "torch-scenarios"
author = "the authors of torch-scenarios"
release = metadata.version("torch-scenarios")

extensions = ["myst_parser", "sphinx_copybutton"]
copybutton_prompt_text = "$ "  # of a session the commands are copied, without their output
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["misc.highlighting_failure"]
nitpicky = True


def setup(app: Any) -> None:
    """Draw the figure of residuals before the pages are read; colour sessions; part the codes."""
    sys.path.insert(0, str(Path(__file__).parent))
    from codes_site import Session, pages_of_codes
    from figure_residuals import write

    app.add_lexer("console", Session)
    app.connect("builder-inited", lambda _: write())
    app.connect("doctree-read", _keep_out_of_navigation)
    app.connect("html-collect-pages", pages_of_codes)
    app.connect("html-page-context", _reach_code_by_keys)


def _keep_out_of_navigation(app: Any, _: Any) -> None:
    """Let decisions be reached from their index alone.

    The theme draws its navigation anew on each page, and theirs would be two thirds of it.
    """
    if app.env.docname.startswith("decisions/"):
        app.env.metadata[app.env.docname]["orphan"] = True


def _reach_code_by_keys(
    app: Any, name: str, template: str, context: dict[str, Any], _: Any
) -> None:
    """Let the keyboard reach each block of code: a narrow window scrolls it sideways."""
    if "body" in context:
        context["body"] = context["body"].replace("<pre>", '<pre tabindex="0">')


html_theme = "furo"
html_title = f"torch-scenarios {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["session.css"]
html_show_copyright = False
