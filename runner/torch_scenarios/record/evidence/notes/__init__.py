"""What a script decides, sets and does, written down in the process that runs it."""
