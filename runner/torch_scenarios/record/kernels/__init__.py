"""What the kernels of a rank take on a machine that is not here, and what they hold in its memory.

The script runs on tensors without memory. Nothing here is a measurement: a kernel is as long as its
FLOPs, or its bytes, take at what such GPUs reach (:mod:`torch_scenarios.record.kernels.roofline`).
All but the schedule runs in the user's own processes, on the standard library and torch alone.
"""
