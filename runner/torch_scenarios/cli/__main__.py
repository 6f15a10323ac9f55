"""`python -m torch_scenarios.cli`: the command `scenario`."""

from __future__ import annotations

from torch_scenarios.cli import main

if __name__ == "__main__":
    main()
