"""What only a GPU can show, as one command: `python -m tests.gpu`.

It runs the corpus on NCCL, compares NCCL with Gloo and with the reference cell by cell, measures
what is promised of speed, and writes what it saw to docs/nccl.md and docs/nccl.json. With
`--backend gloo` it is the same command on a machine without a GPU.
"""
