"""A time sweep over an unstructured hexahedral mesh, without a memory budget and with some: the results are the same.

Each step moves the points, then derives faces, the outer surface, unique edges, point-to-cell links, cell volumes, the gradient of a
scalar, and the cells that an isosurface crosses, as visualisation pipelines do. The arrays live on a GPU through minihost, a small array
framework that knows nothing of tack_memory; `tack_memory.install(minihost)` is all it takes.

The sweep runs without a budget, at 60 % and 35 % of the peak that this measured, and on a device that is physically too small. Then
it asks for one launch that cannot fit, to show the error. It runs on the first device of CUDA, HIP or Level Zero that works, else on sim:0:
the same CUDA code over a software driver. "sim-hip:0" and "sim-level_zero:0" are the other vendors' code over theirs.
"""

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import Any

from needed import needed

VENDORS = {"cuda": "CUDA", "hip": "HIP", "level_zero": "Level Zero"}
"""Those that the sweep runs on: kind of device, and name."""

OUTPUT = Path(__file__).resolve().parent.parent / "build" / "demo"


def main() -> int:
    options = parse_options()
    if options.device is None or options.device.startswith("sim"):
        os.environ.setdefault("TACK_MEMORY_SIM", sim_capacity(options))  # read when tack_memory is imported

    with needed("numpy", "rich", "matplotlib", "tack_memory"):
        import minihost
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from sweep import report, runs
        from sweep.mesh import make_mesh

        import tack_memory

    console = Console(width=max(120, Console().width) if not sys.stdout.isatty() else None)
    try:
        device, described = start(options.device or best_device())
        for budget in options.budget:
            if not budget.endswith("%"):
                with tack_memory.memory_budget(budget, device):  # a size that is none is told now, not after the first run
                    pass
    except (ValueError, minihost.DriverError, tack_memory.DeviceLostError) as error:
        sys.exit(f"sweep.py: {error}")
    tack_memory.install(minihost)
    mesh = make_mesh(options.cells)
    gc.collect()
    gc.freeze()  # garbage is collected before anything is spilled: that is quick when it need not look at all that was imported
    console.print(
        f"sweep on [bold]{device}[/]{described}: {len(mesh.cells):,} cells, {len(mesh.points):,} points, {options.steps} steps, {len(options.budget) + 2} runs"
    )

    columns = TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("warm-up", total=options.steps * (len(options.budget) + 2) + 1)

        def run(name: str, **limits: Any) -> runs.Run:
            progress.update(task, description=name)
            return runs.run(name, device, mesh, options.steps, lambda: progress.advance(task), **limits)

        runs.run("warm-up", device, mesh, 1, lambda: progress.advance(task))
        done = [run("no budget")]
        peak = done[0].peak
        for budget in options.budget:
            done.append(run(f"budget {budget}" + (" of peak" if budget.endswith("%") else ""), budget=budget_size(budget, peak)))
        room = peak // 2
        done.append(run("device too small", room=room))
        progress.update(task, description="done")

    report.show(console, done)
    report.picture(done, options.output / "sweep.png")
    console.print(f"\nOne launch that cannot fit, on a device with {report.size(room)} left:")
    text = runs.too_much(device, room)
    console.print(f"[red]DeviceMemoryError[/]: {escape(text)}", highlight=False)

    faults = report.faults(done)
    report.result_file(
        options.output / "result.json", device, done, cells=len(mesh.cells), points=len(mesh.points), steps=options.steps, error=text, faults=faults
    )
    console.print(f"\nWritten: {shown(options.output / 'sweep.png')}, {shown(options.output / 'result.json')}")
    if faults:
        console.print("[red]FAILED[/]: " + escape("\n  ".join(faults)))
        return 1
    console.print(f"[green]All {len(done)} runs gave the same results[/], byte for byte (SHA-256 {done[0].sha256}).")
    return 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--cells", type=positive, default=50_000, metavar="N", help="cells of the mesh, about (default: %(default)s)")
    parser.add_argument("--steps", type=positive, default=8, metavar="N", help="time steps (default: %(default)s)")
    devices = 'where to run: "cuda:0", "hip:0", "level_zero:0", or simulated: "sim:0", "sim-hip:0", "sim-level_zero:0" (default: a real one, else sim:0)'
    parser.add_argument("--device", help=devices)
    budgets = (
        'a budget to run under: a size ("24 MiB"), or a percentage of the peak without one; may be given several times (default: 60%% and 35%%). '
        "The arrays of one launch must be on the device together: they pass any budget that is smaller (here below some 20%% of the peak), and "
        "the demo then says FAILED"
    )
    parser.add_argument("--budget", action="append", metavar="SIZE", help=budgets)
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help="where sweep.png and result.json go (default: build/demo)")
    options = parser.parse_args()
    options.budget = options.budget or ["60%", "35%"]
    for budget in options.budget:
        if budget.endswith("%") and not (budget[:-1].strip().isdecimal() and 0 < int(budget[:-1]) <= 100):
            parser.error(f"--budget {budget}: a percentage of the peak is a whole number from 1 to 100")
    return options


def positive(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number <= 0:
        raise ValueError
    return number


def sim_capacity(options: argparse.Namespace) -> str:
    """Enough for a run without a budget: about 900 bytes a cell, and some to spare."""
    number = (options.device or "").partition(":")[2]
    return ",".join([str(2**28 + 2000 * options.cells)] * (int(number) + 1 if number.isdecimal() else 1))


def best_device() -> str:
    """The first real device that works, else the software CUDA driver."""
    import tack_memory

    return next((name for name in tack_memory.devices() if name.partition(":")[0] in VENDORS), "sim:0")


def start(device: str) -> tuple[str, str]:
    """Load minihost with the driver of that device. Returns the device's full name, and for a simulated one what it is made of."""
    import minihost

    import tack_memory
    from tack_memory.hosts import sim_library

    device = tack_memory.memory_info(device).device  # an error that lists the devices, where there is none of that name
    kind, _, number = device.partition(":")
    simulated = kind.startswith("sim")
    vendor = "cuda" if kind == "sim" else kind.removeprefix("sim-")
    if vendor not in VENDORS:
        raise ValueError(f"the sweep runs on devices of {', '.join(VENDORS.values())}, real (cuda:0) or simulated (sim:0), and not on {device!r}")
    library = sim_library(device) if simulated else os.environ.get(f"TACK_MEMORY_{vendor.upper()}_LIBRARY")
    minihost.init(f"{vendor}:{number}", library=library, host_readable=simulated)
    described = f" ({VENDORS[vendor]} backend over the software {VENDORS[vendor]} driver)" if simulated else ""
    return device, described


def budget_size(text: str, peak: int) -> int | str:
    """A budget as tack_memory takes it; a percentage is one of the peak, not of the device."""
    return peak * int(text[:-1]) // 100 if text.endswith("%") else text


def shown(path: Path) -> str:
    """A path as short as it can be."""
    path = path.resolve()
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
