"""The commands of `scenario`, a module each; `runner.cli` imports one when it is asked for."""
