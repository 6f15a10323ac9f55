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
    """Draw the figure of residuals anew before the pages are read."""
    sys.path.insert(0, str(Path(__file__).parent))
    from figure_residuals import write

    app.connect("builder-inited", lambda _: write())


html_theme = "furo"
html_title = f"torch-scenarios {release}"
html_copy_source = False
html_show_copyright = False
