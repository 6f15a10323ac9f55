"""The root of the checkout, last on the path: for `benchmarks`, which is no part of the package.

Last, so that the tests run what is installed and not what lies beside them. And no test may depend
on whether it runs in GitHub Actions, where a run writes annotations by itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
os.environ.pop("GITHUB_ACTIONS", None)
