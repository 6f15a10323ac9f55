"""Executable statements about the semantics of collective communication."""
