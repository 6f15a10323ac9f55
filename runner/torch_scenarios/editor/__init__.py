"""What an editor asks while a person types: the language server, and what it knows of a text."""
