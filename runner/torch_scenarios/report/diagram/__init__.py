"""Timeline -> a space-time diagram in text: one lane per rank, time downwards, one row per step.

        rank 0    1    2
      4     ●━━━━━●━━━━●   all_reduce         a collective, over its members
      6     ●────▶●    │   send / recv        a message; rank 2 takes no part
      8     │     ✗╌╌╌▷│   send to 2          stuck: rank 2 never receives

Left stand lines of the file. What is wrong is explained below, and which rank waits for which.
Lines are pieces of text with a style; a terminal gives them colours. The same rows make a picture
in SVG.
"""

from __future__ import annotations

from torch_scenarios.report.diagram.lanes import Line, Printer, StyledText, picture
from torch_scenarios.report.diagram.layout import NoStepsError, PictureView
from torch_scenarios.report.diagram.svg import svg

__all__ = ["Line", "NoStepsError", "PictureView", "Printer", "StyledText", "picture", "svg"]
