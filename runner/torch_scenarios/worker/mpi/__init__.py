"""The ranks of a run on MPI itself: mpi4py and NumPy, and no torch."""
