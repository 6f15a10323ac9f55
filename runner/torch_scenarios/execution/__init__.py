"""The stage `launch`: Plan -> Trace, on real processes, under torchrun's own machinery.

`launcher` is the near side: it never imports torch. `host` is the process that torch is imported
in once and that workers are forked from; `supervisor` tells the workers what to run and learns
from them how it went, through torchrun's own store. What one rank does stands in `rank`.
"""

from __future__ import annotations

from torch_scenarios.execution.backends import LaunchOptions
from torch_scenarios.execution.launcher import Launcher

__all__ = ["LaunchOptions", "Launcher"]
