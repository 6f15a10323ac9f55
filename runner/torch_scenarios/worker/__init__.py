"""The worker: one rank of a launch; the only package that may import torch."""
