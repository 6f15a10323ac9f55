"""What one rank does: its world, its program, its progress board, its last words.

The modules here run inside a worker only. They are handed `torch` and `torch.distributed` by
:mod:`runner.worker`, which is the one module that imports them.
"""
