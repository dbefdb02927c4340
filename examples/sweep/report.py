"""What is shown of the runs: a table, a picture, and a file for machines."""

import json
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .runs import Run

RESULT_FIELDS = (
    "name", "sha256", "steps", "seconds", "moving_seconds", "peak", "footprint", "budget", "room", "over_budget_count",
    "spill_count", "restore_count", "spilled_bytes", "restored_bytes",
)  # fmt: skip


UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(nbytes: int | None) -> str:
    """Bytes for people, "12.3 MiB"."""
    if nbytes is None:
        return "-"
    power = max(0, min(4, (int(nbytes).bit_length() - 1) // 10))
    return f"{nbytes} B" if power == 0 else f"{nbytes / 1024**power:.1f} {UNITS[power]}"


def table(runs: list[Run]) -> Table:
    """One row a run."""
    result = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    result.add_column("run", no_wrap=True)
    for heading in ("seconds", "ratio", "budget", "peak", "footprint", "spills", "restores", "moved", "moving", "SHA-256"):
        result.add_column(heading, justify="right", no_wrap=True)
    for one in runs:
        result.add_row(
            one.name,
            f"{one.seconds:.2f}",
            f"{one.seconds / runs[0].seconds:.2f}",
            size(one.budget) if one.room is None else f"({size(one.room)})",
            size(one.peak),
            size(one.footprint),
            str(one.spill_count),
            str(one.restore_count),
            size(one.spilled_bytes + one.restored_bytes),
            f"{one.moving_seconds / one.seconds:.1%}",
            one.sha256[:8],
        )
    return result


def show(console: Console, runs: list[Run]) -> None:
    console.print(table(runs))
    console.print(
        "budget: in brackets, what is left of a device that is physically too small. peak: most bytes on the device; footprint: on the device and "
        "spilled. moved: bytes spilled and restored; moving: share of the time that this took.",
        style="dim",
    )


def picture(runs: list[Run], path: Path) -> None:
    """Resident, spilled and budget over time, one panel a run, all at one scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(runs), 1, figsize=(10, 2.6 * len(runs)), sharex=True, squeeze=False)
    height = 1.05 * max(point.in_use + point.spilled - one.base for one in runs for point in one.timeline.points)
    for ax, one in zip(axes[:, 0], runs, strict=True):
        one.timeline.plot(ax)
        scale = 1024 ** UNITS.index(ax.get_ylabel())
        ax.set_ylim(one.base / scale, (one.base + height) / scale)
        if one.room is not None:
            ax.axhline((one.base + one.room) / scale, color="#7d3c98", linestyle="--", label="what the device has left")
        ax.get_legend().remove()
        ax.set_title(f"{one.name}: {one.spill_count} spills, {one.restore_count} restores, {one.seconds:.1f} s", fontsize=10)
        ax.label_outer()
    parts = {label: handle for ax in axes[:, 0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(parts.values(), parts.keys(), loc="upper right", ncols=len(parts))
    figure.suptitle(f"sweep on {runs[0].timeline.device}", x=0.02, ha="left")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def result_file(path: Path, device: str, runs: list[Run], **more: Any) -> None:
    """All figures, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = {"device": device, **more, "runs": [{name: getattr(one, name) for name in RESULT_FIELDS} for one in runs]}
    path.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


def faults(runs: list[Run]) -> list[str]:
    """What must not be: different results, more than the budget, a budget that moved nothing."""
    found = []
    first = runs[0]
    for one in runs:
        if one.sha256 != first.sha256:
            step = next(i for i, (mine, other) in enumerate(zip(one.steps, first.steps, strict=True)) if mine != other)
            found.append(f"{one.name}: results differ from those of {first.name!r}, first in step {step}")
        if one.over_budget_count:
            found.append(f"{one.name}: went over the budget {one.over_budget_count} times, up to {size(one.peak)}: the arrays of one launch pass any budget")
        elif one.budget is not None and one.peak > one.budget:
            found.append(f"{one.name}: a peak of {size(one.peak)} under a budget of {size(one.budget)} that was never passed")
        limit = one.budget if one.room is None else one.room
        if limit is not None and limit < first.peak and not one.spill_count:
            found.append(f"{one.name}: nothing was spilled")
    return found
