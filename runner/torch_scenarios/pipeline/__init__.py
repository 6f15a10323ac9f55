"""From files to results: selection, analysis, runs, verdicts."""
