"""What the sweeps over several processes share: the pieces in one process, and the table, the picture and the check of what all gave."""

import argparse
import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

Line = Sequence[tuple[float, int, int]]
"""Seconds, bytes in use, bytes spilled."""


def parser(description: str, name: str, output: Path) -> argparse.ArgumentParser:
    """The options that these programs have in common. `name` is that of the files they write."""
    made = argparse.ArgumentParser(description=description.partition("\n\n")[0])
    made.add_argument("--cells", type=positive, default=60_000, metavar="N", help="cells of the mesh, about (default: %(default)s)")
    made.add_argument("--steps", type=positive, default=6, metavar="N", help="time steps (default: %(default)s)")
    made.add_argument("--share", type=positive, default=50, metavar="PERCENT", help="memory of each device, of what its piece needs (default: %(default)s)")
    made.add_argument("--budget", default="80%", metavar="SIZE", help="budget of each device: a size, or a percentage of its memory (default: 80%%)")
    made.add_argument("--output", type=Path, default=output, metavar="DIR", help=f"where {name}.png and {name}.json go (default: build/demo)")
    return made


def positive(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number <= 0:
        raise ValueError
    return number


def plug_in() -> None:
    """Load minihost on the simulated device of this process, and plug tack_memory in."""
    import minihost

    import tack_memory
    from tack_memory.hosts import sim_library

    minihost.init("cuda:0", library=sim_library("sim:0"), host_readable=True)
    tack_memory.install(minihost)
    gc.collect()
    gc.freeze()  # garbage is collected before anything is spilled: that is quick when it need not look at all that was imported


def alone(cells: int, steps: int, pieces: int) -> list[dict[str, Any]] | None:
    """All pieces, one after another and without a budget, in one process of its own that knows of no others. None where it failed; it has said why."""
    command = [sys.executable, "-m", "sweep.together", str(cells), str(steps), str(pieces)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TACK_MEMORY_BUDGET")}
    environment["TACK_MEMORY_SIM"] = str(2**28 + 4000 * cells)  # enough for any piece
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def capacities(alone: list[dict[str, Any]], share: int) -> list[int]:
    """Memory of devices that have that percentage of what each piece needed. A simulated device has 1 MiB or more: less is a ValueError."""
    found = [piece["footprint"] * share // 100 for piece in alone]
    if min(found) < 2**20:
        raise ValueError("a simulated device has 1 MiB or more: take more --cells, or a larger --share")
    return found


def table(pieces: list[dict[str, Any]], alone: list[dict[str, Any]], who: str) -> Any:
    """One row a piece, for rich. `who` runs a piece: "rank", "worker"."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from .report import size

    result = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    headings = (who, "cells", "needs", "budget", "peak", "spills", "restores", "moved", "moving", "seconds", "alone", "SHA-256 of the last step", "same")
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


def picture(lines: Sequence[Line], pieces: list[dict[str, Any]], totals: Sequence[int | None], who: str, path: Path) -> None:
    """In use and spilled over time, one panel a piece, all at one scale. `totals` is the memory of each one's device."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(lines), 1, figsize=(10, 2.3 * len(lines)), sharex=True, sharey=True, squeeze=False)
    mib = 2.0**20
    for ax, points, one, total in zip(axes[:, 0], lines, pieces, totals, strict=True):
        seconds = [at for at, _, _ in points]
        in_use, spilled = [used / mib for _, used, _ in points], [gone / mib for _, _, gone in points]
        ax.stackplot(seconds, in_use, spilled, step="post", labels=["in use", "spilled"], colors=["#2f7fe0", "#e3b567"])
        if one["budget"] is not None:
            ax.axhline(one["budget"] / mib, color="#1f2328", linewidth=1, label="budget")
        if total is not None:
            ax.axhline(total / mib, color="#7d3c98", linestyle="--", linewidth=1, label="memory of the device")
        ax.set_ylabel("MiB")
        ax.set_title(f"{who} {one['number']}: {one['cells']:,} cells, {one['spill_count']} spills, {one['restore_count']} restores", fontsize=10, loc="left")
        ax.margins(x=0)
    axes[-1, 0].set_xlabel("seconds")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="upper right", ncols=4)
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def faults(pieces: list[dict[str, Any]], alone: list[dict[str, Any]], totals: Sequence[int | None], who: str) -> list[str]:
    """What must not be: other results, more than the budget, a device that was large enough."""
    found = []
    for one, other, total in zip(pieces, alone, totals, strict=True):
        name = f"{who} {one['number']}"
        if one["steps"] != other["steps"]:
            step = next(number for number, (mine, its) in enumerate(zip(one["steps"], other["steps"], strict=True)) if mine != its)
            found.append(f"{name}: results differ from those of one process, first in step {step}")
        if one["over_budget_count"]:
            found.append(f"{name}: went over its budget {one['over_budget_count']} times: the arrays of one launch pass any budget")
        if total is None or total >= other["footprint"]:
            found.append(f"{name}: its device was large enough")
        if not one["spill_count"]:
            found.append(f"{name}: nothing was spilled")
    return found


def shown(path: Path) -> str:
    """A path as short as it can be."""
    path = path.resolve()
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def main() -> None:
    """Be the process that runs all pieces: cells, steps, pieces."""
    from .mesh import make_mesh
    from .partition import partitions, run_part

    cells, steps, pieces = map(int, sys.argv[1:])
    plug_in()
    print(json.dumps([asdict(run_part(number, piece, steps)) for number, piece in enumerate(partitions(make_mesh(cells), pieces))]))


if __name__ == "__main__":
    main()
