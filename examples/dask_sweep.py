"""The sweep's mesh in pieces, one on each worker of a Dask cluster, and each on a device that is too small for its piece: the results are the same.

A single process runs all pieces before, one after another and without a budget. Then a cluster of four worker processes starts, each with a simulated device
(the CUDA code over a software driver) that has half of the memory that a piece needed there, and `tack_memory.dask.DeviceMemory` gives each a budget of 80 % of
its device. At the end the steps' SHA-256 hashes of both are compared, and the memory of all workers is shown as a table and, over time, as a picture.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needed import needed
from sweep import together

if TYPE_CHECKING:
    from rich.console import Console

    from tack_memory.dask import ClusterMemory, ClusterPeak

OUTPUT = Path(__file__).resolve().parent.parent / "build" / "demo"


def main() -> int:
    options = parse_options()
    with needed("numpy", "rich", "matplotlib", "distributed", "tack_memory"):
        import dask.config
        import distributed
        from rich.console import Console

        import tack_memory.dask

    console = Console(width=max(140, Console().width) if not sys.stdout.isatty() else None)
    console.print(f"one process runs all {options.workers} pieces, without a budget ...")
    alone = together.alone(options.cells, options.steps, options.workers)
    if alone is None:
        return 1  # it has said why
    try:
        capacity = min(together.capacities(alone, options.share))
    except ValueError as error:
        console.print(str(error), style="red", highlight=False)
        return 1

    environment = {"TACK_MEMORY_SIM": str(capacity), "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}),  # a forked child can use no device
        distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=options.workers, threads_per_worker=1, processes=True, dashboard_address=":0", env=environment
        ) as cluster,
        distributed.Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        client.run(together.plug_in)
        client.register_plugin(tack_memory.dask.DeviceMemory(budget=options.budget, device="sim:0"))
        console.print(
            f"{options.workers} workers run a piece each, on devices with {options.share} % of the memory that it needs, under a budget of {options.budget} ..."
        )
        with tack_memory.dask.memory_peak(client) as peak:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            runs = [client.submit(run_piece, number, options.cells, options.steps, options.workers, workers=[one]) for number, one in enumerate(workers)]
            try:
                told: Any = client.gather(runs)
            except tack_memory.DeviceMemoryError as error:
                console.print(f"FAILED: {error}", style="red", highlight=False, markup=False)
                return 1
        memory = tack_memory.dask.memory_info(client)
    return int(show(options, told, alone, capacity, peak, memory, console))


def run_piece(number: int, cells: int, steps: int, pieces: int) -> tuple[dict[str, Any], list[tuple[float, int, int]]]:
    """What each worker does: one task. Returns the piece's figures, and what was in use and spilled over time."""
    from sweep.mesh import make_mesh
    from sweep.partition import partitions, run_part

    import tack_memory

    piece = partitions(make_mesh(cells), pieces)[number]
    with tack_memory.record_timeline(capacity=2000 * (steps + 1)) as timeline:
        found = run_part(number, piece, steps)
    return asdict(found), [(point.seconds, point.in_use, point.spilled) for point in timeline.points]


def show(
    options: argparse.Namespace,
    told: list[Any],
    alone: list[dict[str, Any]],
    capacity: int,
    peak: "ClusterPeak",
    memory: "ClusterMemory",
    console: "Console",
) -> bool:
    """Table, picture and figures. Returns whether something is wrong."""
    pieces, lines = [one for one, _ in told], [points for _, points in told]
    totals: list[int | None] = [capacity] * len(pieces)
    console.print(together.table(pieces, alone, "piece"))
    console.print("Memory of all workers during the sweep, tack_memory.dask.memory_peak(client):")
    console.print(str(peak), highlight=False, markup=False, soft_wrap=True)
    console.print("\nAnd now, tack_memory.dask.memory_info(client):")
    console.print(str(memory), highlight=False, markup=False, soft_wrap=True)
    together.picture(lines, pieces, totals, "piece", options.output / "dask_sweep.png")
    wrong = [*together.faults(pieces, alone, totals, "piece"), *(f"memory_info: {problem}" for problem in memory.problems)]
    path = options.output / "dask_sweep.json"
    written = {"pieces": pieces, "alone": alone, "memory_peak": peak.to_dict(), "memory_info": memory.to_dict(), "faults": wrong}
    path.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    console.print(f"\nWritten: {together.shown(options.output / 'dask_sweep.png')}, {together.shown(path)}")
    if wrong:
        console.print("FAILED: " + "\n  ".join(wrong), style="red", highlight=False, markup=False)
    else:
        console.print(f"[green]All {len(pieces)} workers gave the same results as one process[/], byte for byte, in each of {options.steps} steps.")
    return bool(wrong)


def parse_options() -> argparse.Namespace:
    parser = together.parser(__doc__ or "", "dask_sweep", OUTPUT)
    parser.add_argument("--workers", type=together.positive, default=4, metavar="N", help="worker processes (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
