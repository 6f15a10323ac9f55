"""`python -m runner.worker`: one rank of a launch that torchrun or a cluster has started."""

from __future__ import annotations

from runner.worker.serve import main

if __name__ == "__main__":
    main()
