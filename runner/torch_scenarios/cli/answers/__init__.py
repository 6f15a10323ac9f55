"""What commands do, imported when they run: `scenario COMMAND --help` waits for none of it."""
