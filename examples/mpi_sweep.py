"""The sweep's mesh in pieces, one on each rank of an MPI program, and each on a device that is too small for its piece: the results are the same.

    mpiexec -n 4 python examples/mpi_sweep.py

Without mpiexec the program starts itself with it. A single process runs all pieces before, one after another and without a budget. Then each rank gets a
simulated device (the CUDA code over a software driver) with half of the memory that its piece needed there, and a budget of 80 % of that. At the end the steps'
SHA-256 hashes of both are compared, and the memory of all ranks is shown as a table and, over time, as a picture.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needed import needed
from sweep import together

if TYPE_CHECKING:
    from rich.console import Console

    from tack_memory.mpi import RanksMemory, RanksPeak

OUTPUT = Path(__file__).resolve().parent.parent / "build" / "demo"

STARTED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
"""What the environment of a rank has one of, as MPIs set it."""

PACKAGES = ("numpy", "rich", "matplotlib", "mpi4py", "tack_memory")


def main() -> int:
    options = parse_options()
    if not any(name in os.environ for name in STARTED):
        return start_ranks(options.ranks)
    with needed(*PACKAGES):
        from mpi4py import MPI
        from rich.console import Console

    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    console = Console(width=max(140, Console().width) if not sys.stdout.isatty() else None, quiet=rank != 0)
    alone: list[dict[str, Any]] | None = None
    if rank == 0:
        console.print(f"one process runs all {comm.Get_size()} pieces, without a budget ...")
        alone = together.alone(options.cells, options.steps, comm.Get_size())
    wait_for_all(comm)
    alone = comm.bcast(alone)
    if alone is None:
        return 1  # rank 0 has said why

    try:
        capacities = together.capacities(alone, options.share)
    except ValueError as error:
        console.print(str(error), style="red", highlight=False)
        return 1
    os.environ["TACK_MEMORY_SIM"] = str(capacities[rank])  # read when tack_memory is imported
    return sweep(comm, options, alone, console)


def sweep(comm: Any, options: argparse.Namespace, alone: list[dict[str, Any]], console: "Console") -> int:
    """What each rank does, with its small device. `alone` is what one process told of each piece."""
    from sweep import partition
    from sweep.mesh import make_mesh

    import tack_memory
    import tack_memory.mpi

    rank, size = comm.Get_rank(), comm.Get_size()
    together.plug_in()
    piece = partition.partitions(make_mesh(options.cells), size)[rank]
    scope = tack_memory.mpi.memory_peak(comm, label="sweep", timeout=600)
    try:
        tack_memory.mpi.set_memory_budget(options.budget, comm=comm)
        console.print(f"{size} ranks run a piece each, on devices with {options.share} % of the memory that it needs, under a budget of {options.budget} ...")
        wait_for_all(comm)
        with scope as peak, tack_memory.record_timeline(capacity=2000 * (options.steps + 1)) as timeline:
            found = partition.run_part(rank, piece, options.steps)
        memory = tack_memory.mpi.memory_info(comm)
    except (tack_memory.DeviceMemoryError, tack_memory.mpi.CollectiveError) as error:  # every rank gets one
        if rank == 0:
            console.print(f"FAILED: {error}", style="red", highlight=False, markup=False)
        return 1
    told = comm.gather((asdict(found), [(point.seconds, point.in_use, point.spilled) for point in timeline.points]))
    failed = True
    try:
        if told is not None:
            failed = show(options, told, alone, peak, memory, console)
    finally:
        failed = comm.bcast(failed)  # the others wait for it, whatever becomes of the picture
    return int(failed)


def show(options: argparse.Namespace, told: list[Any], alone: list[dict[str, Any]], peak: "RanksPeak", memory: "RanksMemory", console: "Console") -> bool:
    """What rank 0 does with all ranks' results. Returns whether something is wrong."""
    pieces, lines = [one for one, _ in told], [points for _, points in told]
    totals = [row.device_total for row in memory.rows]
    console.print(together.table(pieces, alone, "rank"))
    console.print("Memory of all ranks during the sweep, tack_memory.mpi.memory_peak(comm):")
    console.print(str(peak), highlight=False, markup=False, soft_wrap=True)
    console.print("\nAnd now, tack_memory.mpi.memory_info(comm):")
    console.print(str(memory), highlight=False, markup=False, soft_wrap=True)
    together.picture(lines, pieces, totals, "rank", options.output / "mpi_sweep.png")
    wrong = [*together.faults(pieces, alone, totals, "rank"), *(f"memory_info: {problem}" for problem in memory.problems)]
    result_file(options.output / "mpi_sweep.json", pieces, alone, peak, memory, wrong)
    console.print(f"\nWritten: {together.shown(options.output / 'mpi_sweep.png')}, {together.shown(options.output / 'mpi_sweep.json')}")
    if wrong:
        console.print("FAILED: " + "\n  ".join(wrong), style="red", highlight=False, markup=False)
    else:
        console.print(f"[green]All {len(pieces)} ranks gave the same results as one process[/], byte for byte, in each of {options.steps} steps.")
    return bool(wrong)


def parse_options() -> argparse.Namespace:
    parser = together.parser(__doc__ or "", "mpi_sweep", OUTPUT)
    parser.add_argument("--ranks", type=together.positive, default=4, metavar="N", help="ranks to start where mpiexec started none (default: %(default)s)")
    return parser.parse_args()


def start_ranks(number: int) -> int:
    """Start this program again, with so many ranks."""
    with needed(*PACKAGES):
        pass
    beside = Path(sys.executable).parent  # where pip puts the mpiexec of the wheel
    mpiexec = shutil.which("mpiexec", path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if mpiexec is None:
        sys.exit(f"mpi_sweep.py: there is no mpiexec: `pip install mpich`, or install your system's MPI; then: mpiexec -n {number} python {sys.argv[0]}")
    return subprocess.run([mpiexec, "-n", str(number), sys.executable, *sys.argv], check=False).returncode


def wait_for_all(comm: Any) -> None:
    """A barrier that leaves the cores to the ranks that are still at work: MPI's own keeps them busy."""
    arrived = comm.Ibarrier()
    while not arrived.Test():
        time.sleep(0.005)


def result_file(path: Path, pieces: list[dict[str, Any]], alone: list[dict[str, Any]], peak: "RanksPeak", memory: "RanksMemory", faults: list[str]) -> None:
    """All figures, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = {"ranks": pieces, "alone": alone, "memory_peak": peak.to_dict(), "memory_info": memory.to_dict(), "faults": faults}
    path.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
