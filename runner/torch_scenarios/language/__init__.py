"""The language: from the text of a file to `Scenario`.

`load` reads one file and returns its cases; `discover` finds the files below some paths. Neither
runs anything: what a rank holds, and whether a program finishes, is for later stages.
"""

from torch_scenarios.files import discover
from torch_scenarios.language.document import load

__all__ = ["discover", "load"]
