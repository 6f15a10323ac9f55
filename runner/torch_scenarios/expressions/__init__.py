"""Values of scenarios: text -> compiled value, over NumPy, torch, or many ranks at once."""
