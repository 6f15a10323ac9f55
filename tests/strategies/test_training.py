"""Models under strategies, in the analysis: buckets, owners, what is unequal, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runner.errors import ScenarioError
from runner.language import load
from runner.modules.optimizer import SGD
