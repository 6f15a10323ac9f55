"""Simulated GPUs: torch's own CUDA and NCCL code on a machine without one. See README.md."""
