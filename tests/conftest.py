"""The root of the checkout, last on the path: for `benchmarks`, which is no part of the package.

Last, so that the tests run what is installed and not what lies beside them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
