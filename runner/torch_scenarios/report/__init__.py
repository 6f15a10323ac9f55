"""What came of a run, told: to people on a terminal, to CI servers, to other programs.

Each report is a :class:`torch_scenarios.pipeline.results.Report`: it hears of every result as it
comes, and of the whole at the end. `formats` is the table of those that write a file, `several`
lets one run have many, `target` is the file that each writes to.
"""

from __future__ import annotations
