"""The ranks of a run on JAX: its collectives on CPU devices, and no torch."""
