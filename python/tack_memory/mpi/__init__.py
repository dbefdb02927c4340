"""MPI: the device memory of all ranks, a budget that the ranks of one node share, and memory that MPI has the address of.

    import tack_memory.mpi

    tack_memory.mpi.set_memory_budget("80%")     # ranks that share a device split it
    with tack_memory.mpi.memory_peak() as peak:
        ...
    print(peak)                                  # one row a rank; the minimum, the maximum and the sum
    print(tack_memory.mpi.memory_info())

    with tack_memory.mpi.held(array) as held:    # stays where it is while MPI has its address
        request = comm.Isend(..., dest=1)
        held.until(request)

The first three are collective: all ranks of the communicator call them, in the same order. None of them hangs: where a rank is gone, asks for something else or
fails, every rank gets a CollectiveError that says which rank and why.

Importing this module imports mpi4py's MPI, which initializes MPI unless `mpi4py.rc.initialize` is False. `import tack_memory` imports nothing of mpi4py.
"""

from __future__ import annotations

try:
    import mpi4py as _  # noqa: F401
except ImportError as _missing:
    raise ImportError(
        "tack_memory.mpi needs mpi4py, which is not installed here: pip install tack-memory[mpi]; and an MPI library: the system's, or pip install mpich",
        name="mpi4py",
    ) from _missing
try:
    from mpi4py import MPI as _MPI  # noqa: F401
except (ImportError, RuntimeError) as _missing:  # its wheels look for the library now, and raise RuntimeError where there is none
    raise ImportError(f"tack_memory.mpi needs an MPI library: the system's, or pip install mpich; mpi4py says: {_missing}", name="mpi4py.MPI") from _missing

from ._budget import set_memory_budget
from ._collective import CollectiveError
from ._figure import Figure
from ._held import held
from ._peak import RankPeak, RanksPeak, memory_peak
from ._table import RankMemory, RanksMemory, memory_info

__all__ = [
    "CollectiveError",
    "Figure",
    "RankMemory",
    "RankPeak",
    "RanksMemory",
    "RanksPeak",
    "held",
    "memory_info",
    "memory_peak",
    "set_memory_budget",
]
