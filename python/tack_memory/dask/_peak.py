"""The peaks of all workers' devices during a block of code."""

from __future__ import annotations

import pickle
import uuid
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .._sizes import format_bytes
from . import _on_scheduler, _on_worker
from ._carried import Carried, by_value, carried
from ._table import TIMEOUT, ask, check_timeout, html_table, missing_of, natural, said, text_table, wait

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPeak:
    """What one worker's device held during the block. Sizes are bytes, and mean what they mean in a MemoryPeak.

    Attributes
    ----------
    worker, name, host : str
        The worker's address and name, and the machine that it runs on.
    pid : int
        Its process, on that machine.
    device : str
        "cuda:0", as the worker calls it.
    bytes, start, end, delta, own, footprint, spilled_bytes, restored_bytes : int or None
        The most that was in use; at the beginning and at the end (None while the block runs); `bytes - start`; the most of what was allocated in the block; the
        most in use and spilled together; moved in the block.
    seconds : float
        How long this worker's scope was open.
    whole : bool
        False: the worker joined in the middle, so its figures begin there.
    """

    worker: str
    name: str
    host: str
    pid: int
    device: str
    bytes: int
    start: int
    end: int | None
    delta: int
    own: int
    footprint: int
    spilled_bytes: int
    restored_bytes: int
    seconds: float
    whole: bool


class ClusterPeak:
    """The most device memory that each worker held while a block of the client's code ran: what `memory_peak(client)` makes.

    The figures can be read while the block runs, which asks the workers each time, and are frozen when it ends. With an asynchronous client it is
    `async with`, and the figures are there when the block has ended.

    Attributes
    ----------
    rows : list of WorkerPeak
        One a worker and device.
    bytes : int
        The largest peak of one worker's device.
    total : int
        The sum of all workers' peaks. This is an upper bound of what they had at one moment: their peaks need not be at the same time.
    missing : dict of str to str
        The address of each worker without figures, and why: it died, was stuck, or has no tack_memory.

    Raises
    ------
    RuntimeError
        On entering twice, leaving without having entered, and asking for figures before it was entered or, of an asynchronous client, while it is open.
    """

    def __init__(self, client: Client, *, timeout: float = TIMEOUT) -> None:
        check_timeout(timeout)
        self._client: Any = client  # its methods have no types
        self._timeout = timeout
        self._token = uuid.uuid4().hex
        self._state = "new"  # then "open", then "done"
        self._begun: dict[str, str] = {}  # address -> name, of the workers that were there at the beginning
        self._unable: dict[str, tuple[str, str]] = {}  # those of them that could not open a scope -> name, why
        self._rows: list[WorkerPeak] = []
        self._missing: dict[str, tuple[str, str]] = {}

    @property
    def rows(self) -> list[WorkerPeak]:
        """One a worker and device, ordered by the worker's name."""
        self._refresh()
        return list(self._rows)

    @property
    def bytes(self) -> int:
        """The largest peak of one worker's device, in bytes."""
        return max((row.bytes for row in self.rows), default=0)

    @property
    def total(self) -> int:
        """The sum of the workers' peaks, in bytes: an upper bound of what they had at one moment."""
        return _total(self.rows)

    @property
    def missing(self) -> dict[str, str]:
        """The address of each worker without figures, and why."""
        self._refresh()
        return {address: why for address, (_, why) in self._missing.items()}

    def __enter__(self) -> Self:
        if self._client.asynchronous:
            raise RuntimeError("this client is asynchronous: write `async with memory_peak(client) as peak:`")
        self._may_enter()
        wait(self._client, self._begin)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        self._may_leave()
        try:
            wait(self._client, self._end)
        except Exception as failed:
            self._give_up(failed)

    async def __aenter__(self) -> Self:
        self._may_enter()
        await self._begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        self._may_leave()
        try:
            await self._end()
        except Exception as failed:
            self._give_up(failed)

    def _may_enter(self) -> None:
        if self._state != "new":
            raise RuntimeError("this memory_peak was entered already; make another one")

    def _may_leave(self) -> None:
        if self._state != "open":
            raise RuntimeError("this memory_peak is not open")

    async def _begin(self) -> None:
        keeper = _on_scheduler.PeakKeeper(
            f"tack_memory-peak-{self._token}",
            self._client.id,
            carried(_on_worker.begin_peak),
            carried(_on_worker.end_peak),
            pickle.dumps((self._token, False)),
            self._timeout,
        )
        await self._client.run_on_scheduler(Carried(_on_scheduler.keep), by_value(keeper))
        answer = await ask(self._client, _on_worker.begin_peak, (self._token, True), self._timeout)
        self._begun = {address: found["name"] for address, found in answer["workers"].items()}
        for address, found in answer["workers"].items():
            why = found["why"] or (found["told"] or {}).get("problem")
            if why:
                self._unable[address] = found["name"], why
        self._state = "open"

    async def _end(self) -> None:
        # First, or a worker that joins meanwhile would get a scope that nobody closes.
        await self._client.run_on_scheduler(Carried(_on_scheduler.drop), f"tack_memory-peak-{self._token}")
        answer = await ask(self._client, _on_worker.end_peak, (self._token, True), self._timeout)
        self._take(answer)
        self._state = "done"

    def _give_up(self, failed: Exception) -> None:
        """Leaving never raises: without the scheduler there are no figures, which is said."""
        if self._state == "open":
            self._missing = {address: (name, f"could not be asked: {type(failed).__name__}: {failed}") for address, name in self._begun.items()}
            self._state, self._rows = "done", []

    def _refresh(self) -> None:
        if self._state == "done":
            return
        if self._state == "new":
            raise RuntimeError("this memory_peak was not entered")
        if self._client.asynchronous:
            raise RuntimeError("the figures of an asynchronous client's memory_peak can be read when its block has ended")
        self._take(wait(self._client, ask, self._client, _on_worker.read_peak, (self._token, True), self._timeout))

    def _take(self, answer: dict[str, Any]) -> None:
        workers = answer["workers"]
        rows = []
        missing = {address: told for address, told in missing_of(answer).items() if address in workers}
        for address, found in sorted(workers.items(), key=lambda item: natural(item[1]["name"])):
            told = found["told"]
            if told is not None:
                common = {"worker": address, "name": found["name"], "host": found["host"], "pid": told["pid"], "whole": told["whole"]}
                rows += [WorkerPeak(**common, **device) for device in told["devices"]]
            elif found["why"] is None:
                missing[address] = self._unable.get(address, (found["name"], "joined in the middle, and had no scope"))
        for address, name in self._begun.items():
            if address not in workers:
                missing[address] = name, "left in the middle, and took its figures with it"
        self._rows, self._missing = rows, missing

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values, for JSON. Sizes are bytes."""
        rows, missing = self.rows, {address: why for address, (_, why) in self._missing.items()}
        return {"bytes": max((row.bytes for row in rows), default=0), "total": _total(rows), "rows": [asdict(row) for row in rows], "missing": missing}

    def __str__(self) -> str:
        if self._state != "done":
            return f"<ClusterPeak: {'not entered' if self._state == 'new' else 'open'}>"
        heads, lines = self._cells()
        return "\n".join([text_table(heads, lines, totals=2), *said(self._missing)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(*self._cells(), said(self._missing)) if self._state == "done" else str(self)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        heads = ["worker", "device", "peak", "start", "own", "footprint", "spilled", "restored", "from"]
        lines = [
            [
                row.name, row.device, *map(format_bytes, (row.bytes, row.start, row.own, row.footprint, row.spilled_bytes, row.restored_bytes)),
                "start" if row.whole else "join",
            ]
            for row in self._rows
        ]  # fmt: skip
        lines.append(["largest", "", format_bytes(max((row.bytes for row in self._rows), default=0)), *[""] * 6])
        lines.append([f"sum of {len({row.worker for row in self._rows})}", "", format_bytes(_total(self._rows)), *[""] * 6])
        return heads, lines


def memory_peak(client: Client, *, timeout: float = TIMEOUT) -> ClusterPeak:
    """The most device memory that each worker holds during a block: `with memory_peak(client) as peak: ...`, then `print(peak)`.

    A scope is opened on every worker, on its default device (that of DeviceMemory, where it is registered) and on each other that it has opened. A worker
    that joins in the middle has one from then on.

    Parameters
    ----------
    client : distributed.Client
        The cluster's. An asynchronous one needs `async with`.
    timeout : float
        Seconds that each worker has to answer in.

    Returns
    -------
    ClusterPeak
        Sizes are in bytes.

    Raises
    ------
    ValueError, TypeError
        The timeout is no number above 0.

    Notes
    -----
    May be called from any thread; any number may be open at a time. Leaving never raises: a worker that died or is stuck is in `missing`. When the client is
    gone before the block ends, the scopes are closed. All tasks of a worker are counted, whichever client sent them.
    """
    return ClusterPeak(client, timeout=timeout)


def _total(rows: list[WorkerPeak]) -> int:
    """Workers that are threads of one process have the same memory, which counts once."""
    once: dict[tuple[str, int, str], int] = {}
    for row in rows:
        key = row.host, row.pid, row.device
        once[key] = max(once.get(key, 0), row.bytes)
    return sum(once.values())
