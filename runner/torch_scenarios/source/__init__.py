"""YAML text with the place of everything in it; knows no scenario."""
