"""What is there of a job beside its record: what its ranks say at the start, dumps, a log."""
