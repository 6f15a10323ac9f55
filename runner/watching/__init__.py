"""`scenario run --watch`: run again what a save changes, in workers that stay warm.

`files` knows which scenarios there are and what each of them was read from; `changes` wakes the
loop when something may have changed; `loop` runs what did; `screen` says so. Events only wake: what
changed is always read from the disk, so that none can be lost.
"""
