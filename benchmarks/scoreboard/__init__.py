"""A scoreboard of wrong programs: what the analysis says, what torch says, what a run confirms.

    python -m benchmarks.scoreboard

:mod:`.catalogue` generates the programs; right and wrong is known by construction, never from the
analysis that is measured.
"""
