"""How the documentation is built: Markdown by MyST."""

from __future__ import annotations

from importlib import metadata

project = "torch-scenarios"
author = "the authors of torch-scenarios"
release = metadata.version("torch-scenarios")

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["misc.highlighting_failure"]
nitpicky = True

html_theme = "furo"
html_title = f"torch-scenarios {release}"
html_copy_source = False
html_show_copyright = False
