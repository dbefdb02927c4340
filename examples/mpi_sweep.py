"""The sweep's mesh in pieces, one on each rank of an MPI program, and each on a device that is too small for its piece: the results are the same.

    mpiexec -n 4 python examples/mpi_sweep.py

Without mpiexec the program starts itself with it. A single process runs all pieces before, one after another and without a budget. Then each rank gets a
simulated device (the CUDA code over a software driver) with half of the memory that its piece needed there, and a budget of 80 % of that. At the end the steps'
SHA-256 hashes of both are compared, and the memory of all ranks is shown as a table and, over time, as a picture.
"""

import argparse
import gc
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

if TYPE_CHECKING:
    from rich.console import Console

    from tack_memory.mpi import RanksMemory, RanksPeak

OUTPUT = Path(__file__).resolve().parent.parent / "build" / "demo"

STARTED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
"""What the environment of a rank has one of, as MPIs set it."""

PACKAGES = ("numpy", "rich", "matplotlib", "mpi4py", "tack_memory")


def main() -> int:
    options = parse_options()
    if options.reference is not None:
        return reference(options)
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
        alone = run_reference(options, comm.Get_size())
    wait_for_all(comm)
    alone = comm.bcast(alone)
    if alone is None:
        return 1  # rank 0 has said why

    capacities = [piece["footprint"] * options.share // 100 for piece in alone]
    if min(capacities) < 2**20:
        console.print("a simulated device has 1 MiB or more: take more --cells, or a larger --share", style="red", highlight=False)
        return 1
    os.environ["TACK_MEMORY_SIM"] = str(capacities[rank])  # read when tack_memory is imported
    return sweep(comm, options, alone, console)


def sweep(comm: Any, options: argparse.Namespace, alone: list[dict[str, Any]], console: "Console") -> int:
    """What each rank does, with its small device. `alone` is what one process told of each piece."""
    import tack_memory
    import tack_memory.mpi

    rank, size = comm.Get_rank(), comm.Get_size()
    part = plug_in()
    piece = part.partitions(the_mesh(options), size)[rank]
    scope = tack_memory.mpi.memory_peak(comm, label="sweep", timeout=600)
    try:
        tack_memory.mpi.set_memory_budget(options.budget, comm=comm)
        console.print(f"{size} ranks run a piece each, on devices with {options.share} % of the memory that it needs, under a budget of {options.budget} ...")
        wait_for_all(comm)
        with scope as peak, tack_memory.record_timeline(capacity=2000 * (options.steps + 1)) as timeline:
            found = part.run_part(rank, piece, options.steps)
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
    console.print(table(pieces, alone))
    console.print("Memory of all ranks during the sweep, tack_memory.mpi.memory_peak(comm):")
    console.print(str(peak), highlight=False, markup=False, soft_wrap=True)
    console.print("\nAnd now, tack_memory.mpi.memory_info(comm):")
    console.print(str(memory), highlight=False, markup=False, soft_wrap=True)
    picture(lines, pieces, memory, options.output / "mpi_sweep.png")
    wrong = faults(pieces, alone, memory)
    result_file(options.output / "mpi_sweep.json", pieces, alone, peak, memory, wrong)
    console.print(f"\nWritten: {shown(options.output / 'mpi_sweep.png')}, {shown(options.output / 'mpi_sweep.json')}")
    if wrong:
        console.print("FAILED: " + "\n  ".join(wrong), style="red", highlight=False, markup=False)
    else:
        console.print(f"[green]All {len(pieces)} ranks gave the same results as one process[/], byte for byte, in each of {options.steps} steps.")
    return bool(wrong)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--cells", type=positive, default=60_000, metavar="N", help="cells of the mesh, about (default: %(default)s)")
    parser.add_argument("--steps", type=positive, default=6, metavar="N", help="time steps (default: %(default)s)")
    parser.add_argument("--share", type=positive, default=50, metavar="PERCENT", help="memory of each device, of what its piece needs (default: %(default)s)")
    parser.add_argument("--budget", default="80%", metavar="SIZE", help="budget of each device: a size, or a percentage of its memory (default: 80%%)")
    parser.add_argument("--ranks", type=positive, default=4, metavar="N", help="ranks to start where mpiexec did not start this (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help="where mpi_sweep.png and mpi_sweep.json go (default: build/demo)")
    parser.add_argument("--reference", type=positive, metavar="N", help=argparse.SUPPRESS)  # be the one process that runs all N pieces
    return parser.parse_args()


def positive(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number <= 0:
        raise ValueError
    return number


def start_ranks(number: int) -> int:
    """Start this program again, with so many ranks."""
    with needed(*PACKAGES):
        pass
    beside = Path(sys.executable).parent  # where pip puts the mpiexec of the wheel
    mpiexec = shutil.which("mpiexec", path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if mpiexec is None:
        sys.exit(f"mpi_sweep.py: there is no mpiexec: `pip install mpich`, or install your system's MPI; then: mpiexec -n {number} python {sys.argv[0]}")
    return subprocess.run([mpiexec, "-n", str(number), sys.executable, *sys.argv], check=False).returncode


def run_reference(options: argparse.Namespace, pieces: int) -> list[dict[str, Any]] | None:
    """All pieces in one process of its own, which knows nothing of MPI; None where it failed."""
    command = [sys.executable, __file__, "--reference", str(pieces), "--cells", str(options.cells), "--steps", str(options.steps)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TACK_MEMORY_BUDGET")}
    environment["TACK_MEMORY_SIM"] = str(2**28 + 4000 * options.cells)  # enough for any piece
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def reference(options: argparse.Namespace) -> int:
    """Be that process."""
    with needed(*PACKAGES):
        part = plug_in()
    pieces = part.partitions(the_mesh(options), options.reference)
    print(json.dumps([asdict(part.run_part(number, piece, options.steps)) for number, piece in enumerate(pieces)]))
    return 0


def plug_in() -> Any:
    """Load minihost on the simulated device, and plug tack_memory in. Returns the module that knows the pieces."""
    import minihost
    from sweep import partition

    import tack_memory
    from tack_memory.hosts import sim_library

    minihost.init("cuda:0", library=sim_library("sim:0"), host_readable=True)
    tack_memory.install(minihost)
    gc.collect()
    gc.freeze()  # garbage is collected before anything is spilled: that is quick when it need not look at all that was imported
    return partition


def the_mesh(options: argparse.Namespace) -> Any:
    from sweep.mesh import make_mesh

    return make_mesh(options.cells)


def wait_for_all(comm: Any) -> None:
    """A barrier that leaves the cores to the ranks that are still at work: MPI's own keeps them busy."""
    arrived = comm.Ibarrier()
    while not arrived.Test():
        time.sleep(0.005)


def table(pieces: list[dict[str, Any]], alone: list[dict[str, Any]]) -> Any:
    """One row a rank."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from sweep.report import size

    result = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    headings = ("rank", "cells", "needs", "budget", "peak", "spills", "restores", "moved", "moving", "seconds", "alone", "SHA-256 of the last step", "same")
    for heading in headings:
        result.add_column(heading, justify="right", no_wrap=True)
    for one, other in zip(pieces, alone, strict=True):
        result.add_row(
            str(one["number"]),
            f"{one['cells']:,}",
            size(other["footprint"]),
            size(one["budget"]),
            size(one["peak"]),
            f"{one['spill_count']:,}",
            f"{one['restore_count']:,}",
            size(one["spilled_bytes"] + one["restored_bytes"]),
            f"{one['moving_seconds'] / one['seconds']:.1%}",
            f"{one['seconds']:.2f}",
            f"{other['seconds']:.2f}",
            one["steps"][-1][:16],
            "yes" if one["steps"] == other["steps"] else "NO",
        )
    return result


def picture(lines: list[list[tuple[float, int, int]]], pieces: list[dict[str, Any]], memory: "RanksMemory", path: Path) -> None:
    """In use and spilled over time, one panel a rank, all at one scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(lines), 1, figsize=(10, 2.3 * len(lines)), sharex=True, sharey=True, squeeze=False)
    mib = 2.0**20
    for ax, points, one, row in zip(axes[:, 0], lines, pieces, memory.rows, strict=True):
        seconds = [at for at, _, _ in points]
        in_use, spilled = [used / mib for _, used, _ in points], [gone / mib for _, _, gone in points]
        ax.stackplot(seconds, in_use, spilled, step="post", labels=["in use", "spilled"], colors=["#2f7fe0", "#e3b567"])
        if one["budget"] is not None:
            ax.axhline(one["budget"] / mib, color="#1f2328", linewidth=1, label="budget")
        if row.device_total is not None:
            ax.axhline(row.device_total / mib, color="#7d3c98", linestyle="--", linewidth=1, label="memory of the device")
        ax.set_ylabel("MiB")
        ax.set_title(f"rank {row.rank}: {one['cells']:,} cells, {one['spill_count']} spills, {one['restore_count']} restores", fontsize=10, loc="left")
        ax.margins(x=0)
    axes[-1, 0].set_xlabel("seconds")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="upper right", ncols=4)
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def faults(pieces: list[dict[str, Any]], alone: list[dict[str, Any]], memory: "RanksMemory") -> list[str]:
    """What must not be: other results, more than the budget, a device that was large enough."""
    found = []
    for one, other, row in zip(pieces, alone, memory.rows, strict=True):
        rank = one["number"]
        if one["steps"] != other["steps"]:
            step = next(number for number, (mine, its) in enumerate(zip(one["steps"], other["steps"], strict=True)) if mine != its)
            found.append(f"rank {rank}: results differ from those of one process, first in step {step}")
        if one["over_budget_count"]:
            found.append(f"rank {rank}: went over its budget {one['over_budget_count']} times: the arrays of one launch pass any budget")
        if row.device_total is None or row.device_total >= other["footprint"]:
            found.append(f"rank {rank}: its device was large enough")
        if not one["spill_count"]:
            found.append(f"rank {rank}: nothing was spilled")
    found += [f"memory_info: {problem}" for problem in memory.problems]
    return found


def result_file(path: Path, pieces: list[dict[str, Any]], alone: list[dict[str, Any]], peak: "RanksPeak", memory: "RanksMemory", faults: list[str]) -> None:
    """All figures, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = {"ranks": pieces, "alone": alone, "memory_peak": peak.to_dict(), "memory_info": memory.to_dict(), "faults": faults}
    path.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


def shown(path: Path) -> str:
    """A path as short as it can be."""
    path = path.resolve()
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
