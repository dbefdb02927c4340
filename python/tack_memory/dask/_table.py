"""The memory of all workers in one table."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .._page import escaped
from .._sizes import format_bytes, format_seconds
from .._version import __version__
from . import _on_scheduler, _on_worker
from ._carried import Carried, carried

if TYPE_CHECKING:
    from distributed import Client

TIMEOUT = 10.0
"""Seconds that a worker has to answer in, by default. One that is busy with a task answers from another thread; this is for one that is stuck."""

_ADDED = ("in_use", "peak", "cached", "spilled", "spill_count", "restore_count", "spilled_bytes", "restored_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMemory:
    """One worker and one of its devices. Sizes are bytes; what is unknown is None.

    Attributes
    ----------
    worker, name, host : str
        The worker's address and name, and the machine that it runs on, as the scheduler knows it.
    pid : int
        Its process, on that machine.
    device : str or None
        "cuda:0", as the worker calls it; None where it has none that can be counted, and then `problem` says why.
    in_use, peak, cached, spilled, device_free, device_total, budget : int or None
        Figures of its MemoryInfo; `budget` is this worker's part.
    spill_count, restore_count, spilled_bytes, restored_bytes : int or None
        Totals since the device was opened.
    share : str or None
        The part of the device's budget that this worker has, "1/2"; None where no DeviceMemory is registered.
    version : str or None
        Of tack_memory there.
    problem : str or None
        What is not as it should be.
    """

    worker: str
    name: str
    host: str
    pid: int
    device: str | None = None
    in_use: int | None = None
    peak: int | None = None
    cached: int | None = None
    spilled: int | None = None
    device_free: int | None = None
    device_total: int | None = None
    budget: int | None = None
    spill_count: int | None = None
    restore_count: int | None = None
    spilled_bytes: int | None = None
    restored_bytes: int | None = None
    share: str | None = None
    version: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterMemory:
    """The memory of a cluster's devices, worker by worker: what `memory_info(client)` returns. Print it, or show it in a notebook.

    Attributes
    ----------
    rows : list of WorkerMemory
        One a worker and device, ordered by the worker's name.
    totals : dict of str to int
        Sums over all rows, in bytes or counts: in_use, peak, cached, spilled, spill_count, restore_count, spilled_bytes, restored_bytes. Workers that are
        threads of one process have the same figures, which count once. The sum of the peaks is an upper bound: they need not have been at one time.
    missing : dict of str to str
        The address of each worker that did not answer, or that died and was not started again; and why.
    problems : list of str
        What is not as it should be, a line for each.
    """

    rows: list[WorkerMemory]
    totals: dict[str, int]
    missing: dict[str, str]
    problems: list[str]

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values, for JSON. Sizes are bytes."""
        return {"rows": [asdict(row) for row in self.rows], "totals": dict(self.totals), "missing": dict(self.missing), "problems": list(self.problems)}

    def __str__(self) -> str:
        heads, lines = self._cells()
        return "\n".join([text_table(heads, lines), *self.problems])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(*self._cells(), self.problems)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        heads = ["worker", "device", "in use", "peak", "spilled", "budget", "share", "free", "total", "spills", "restores"]
        lines = [
            [
                row.name, row.device or "-", _size(row.in_use), _size(row.peak), _size(row.spilled), _size(row.budget), row.share or "-",
                _size(row.device_free), _size(row.device_total), _text(row.spill_count), _text(row.restore_count),
            ]
            for row in self.rows
        ]  # fmt: skip
        total = self.totals
        sums = [_size(total["in_use"]), _size(total["peak"]), _size(total["spilled"]), "", "", "", "", str(total["spill_count"]), str(total["restore_count"])]
        lines.append([f"total of {len({row.worker for row in self.rows})}", "", *sums])
        return heads, lines


def memory_info(client: Client, *, timeout: float = TIMEOUT) -> ClusterMemory:
    """Return the memory of all workers' devices, one row a worker and device.

    All workers are asked at the same time, by the scheduler. One that is dead, stuck or has another version of the package never makes this fail: it is in
    `missing`, or its row says what is the matter.

    Parameters
    ----------
    client : distributed.Client
        The cluster's. With an asynchronous client the result must be awaited.
    timeout : float
        Seconds that each worker has to answer in.

    Returns
    -------
    ClusterMemory
        Sizes are in bytes.

    Raises
    ------
    ValueError, TypeError
        The timeout is no number above 0.
    Exception
        Whatever the client raises where it cannot reach the scheduler.

    Notes
    -----
    May be called from any thread. It works without DeviceMemory, too; then it cannot tell of workers that died before, since nothing remembered them.
    """
    check_timeout(timeout)
    result: ClusterMemory = wait(client, _memory_info, client, timeout)
    return result


async def _memory_info(client: Client, timeout: float) -> ClusterMemory:
    return table(await ask(client, _on_worker.figures, (), timeout))


def wait(client: Any, function: Any, *arguments: Any) -> Any:
    """Run a coroutine in the client's event loop, and wait for it; with an asynchronous client the caller waits. (Untyped, as the client's methods are.)"""
    return client.sync(function, *arguments)


async def ask(client: Any, function: Any, arguments: tuple[Any, ...], timeout: float) -> dict[str, Any]:
    """Have the scheduler run a function of `_on_worker` on all workers. Called in the client's event loop."""
    answer: dict[str, Any] = await client.run_on_scheduler(Carried(_on_scheduler.ask), carried(function), pickle.dumps(arguments), timeout)
    return answer


def table(answer: dict[str, Any]) -> ClusterMemory:
    """The table of what the scheduler told."""
    rows: list[WorkerMemory] = []
    for address, found in sorted(answer["workers"].items(), key=lambda item: natural(item[1]["name"])):
        told = found["told"]
        if told is None:
            continue
        common = {"worker": address, "name": found["name"], "host": found["host"], "pid": told["pid"], "version": told["version"], "problem": told["problem"]}
        for device in told["devices"]:
            figures = {name: device.get(name) for name in _on_worker.FIGURES}
            share = None if device["sharing"] is None else f"1/{device['sharing']}"
            rows.append(WorkerMemory(**common, device=device["device"], share=share, **figures))
        if not told["devices"]:
            rows.append(WorkerMemory(**common))
    missing = missing_of(answer)
    once = {(row.host, row.pid, row.device): row for row in rows}.values()
    totals = {name: sum(getattr(row, name) or 0 for row in once) for name in _ADDED}
    return ClusterMemory(rows, totals, {address: why for address, (_, why) in missing.items()}, [*_problems(rows), *said(missing)])


def missing_of(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Address -> name, and why it has no row."""
    silent = {address: (found["name"], found["why"]) for address, found in answer["workers"].items() if found["why"] is not None}
    lost = {address: (name, f"died {format_seconds(ago)} ago and was not started again") for address, (name, ago) in answer["lost"].items()}
    return {**lost, **silent}


def said(missing: dict[str, tuple[str, str]]) -> list[str]:
    """A line for each."""
    return [f"missing: worker {name} ({address}) {why}" if name != address else f"missing: worker {address} {why}" for address, (name, why) in missing.items()]


def _problems(rows: Sequence[WorkerMemory]) -> list[str]:
    once = {row.worker: row for row in rows}.values()
    lines = []
    versions = Counter(row.version for row in once if row.version not in (None, __version__))
    for version, count in versions.items():
        lines.append(f"{count} worker{'' if count == 1 else 's'} run{'s' if count == 1 else ''} tack_memory {version}, the client {__version__}")
    lines += [f"worker {row.name} ({row.worker}): {row.problem}" for row in once if row.problem is not None]
    kinds = Counter(row.device.partition(":")[0] for row in rows if row.device is not None)
    if len(kinds) > 1:
        lines.append("the workers' devices differ: " + ", ".join(f"{count} x {kind}" for kind, count in kinds.items()))
    return lines


def check_timeout(timeout: object) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not timeout > 0:
        raise ValueError(f"timeout must be above 0 seconds, not {timeout!r}")


def natural(name: str) -> tuple[int, int, str]:
    """Workers are mostly named by numbers: 2 comes before 10."""
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)


def text_table(heads: Sequence[str], lines: Sequence[Sequence[str]], totals: int = 1) -> str:
    """Aligned, the first two columns to the left; so many of the last lines are totals."""
    widths = [max(len(line[column]) for line in (heads, *lines)) for column in range(len(heads))]

    def aligned(line: Sequence[str]) -> str:
        cells = (cell.ljust(width) if place < 2 else cell.rjust(width) for place, (cell, width) in enumerate(zip(line, widths, strict=True)))
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([aligned(heads), rule, *map(aligned, lines[:-totals]), rule, *map(aligned, lines[-totals:])])


def html_table(heads: Sequence[str], lines: Sequence[Sequence[str]], notes: Iterable[str]) -> str:
    """For notebooks."""
    from .._cards import card

    def row(cells: Sequence[str], tag: str) -> str:
        kinds = [' class="tm-name"'] * 2 + [""] * (len(cells) - 2)
        return "<tr>" + "".join(f"<{tag}{kind}>{escaped(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True)) + "</tr>"

    body = "".join(row(line, "td") for line in lines)
    warnings = "".join(f'<div class="tm-warn">{escaped(note)}</div>' for note in notes)
    return card(f'<div class="tm-scroll"><table class="tm-table"><thead>{row(heads, "th")}</thead><tbody>{body}</tbody></table></div>', warnings)


def _size(nbytes: int | None) -> str:
    return "-" if nbytes is None else format_bytes(nbytes)


def _text(count: int | None) -> str:
    return "-" if count is None else str(count)
