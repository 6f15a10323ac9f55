"""The file that each rank writes of its values: its events, and the record they are read into.

`event` says what a line of the file means. It is imported in the user's processes, which write the
lines, and needs the standard library alone. `record` reads the files back, and checks each line.
"""
