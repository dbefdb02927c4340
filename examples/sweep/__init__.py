"""The parts of sweep.py: a mesh, the filters that a time step runs, the runs that are compared, and their report."""
