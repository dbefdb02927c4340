"""The worker plugin: Tack plugged in, a budget that is this worker's share of its device, and the metrics."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import WorkerPlugin

from .._budget import get_memory_budget, set_memory_budget
from .._devices import resolve, resolve_name, size_on
from .._logging import logger
from .._native import _fast
from .._physical import physical
from .._settings import parse_device_name
from .._sizes import format_bytes, parse_size
from .._travel import set_arrival_device
from . import _metrics, _on_scheduler, _on_worker
from ._carried import Carried, by_value

if TYPE_CHECKING:
    from distributed import Worker

    from .._sizes import Size

_lock = threading.Lock()  # guards the two below
_before: dict[str, tuple[int, int | None, bool]] = {}
"""Device -> how many plugins of this process have set its budget, and what it was before the first. Workers may be threads of one process."""

_arrivals: list[str | None] = []
"""One for each plugin of this process that has said where buffers arrive: what was said before."""


class DeviceMemory(WorkerPlugin):
    """Plugs Tack in on every worker of a cluster, and gives each its share of its device as a budget.

    `client.register_plugin(DeviceMemory(budget="80%"))` does so on all workers that are there and on all that come, a worker that its nanny starts again
    included. Registering another one changes the budget; `client.unregister_worker_plugin("tack_memory")` gives back the budget from before.

    Parameters
    ----------
    budget : int, str or None
        For each device: bytes, "8 GiB", or a share of the total memory of the device, "80%". Worker processes that use the same device have equal parts of
        it. None: the budgets stay as they are, and only the metrics are added.
    device : str or int, optional
        Which device of a worker; by default its default device.
    host : str or module, optional
        Another array framework to plug in to, by the name of its module: it is imported on the worker and given to `tack_memory.install`. Tack needs no
        naming.
    strict : bool
        As in `set_memory_budget`: what would pass the budget raises DeviceMemoryError.

    Attributes
    ----------
    name : str
        "tack_memory", always: one cluster has one of these.

    Raises
    ------
    ValueError
        The budget is no size, or 0; the device's name is none.
    TypeError
        An argument of another type. A framework's own device object does not travel: name the device.

    Notes
    -----
    All arguments are checked at once, at the client. What is wrong on a worker alone (it has no such device, or another version of the package) never stops it:
    it is logged there, and `memory_info(client)` says so in the worker's row.

    Which workers share a device is found out by the device's UUID and the machine, not by its name: with CUDA_VISIBLE_DEVICES each calls its own "cuda:0".
    Buffers that other workers send arrive on this worker's device, whatever theirs is called (`tack_memory.set_arrival_device`).

    Only processes count; workers that are threads of one process have one budget together. When a worker joins or is gone, the others of its device get their
    new share at once; a budget that becomes lower spills at once, in a thread of its own.

    May be made in any thread. Its methods are called by the worker.
    """

    name = _on_worker.PLUGIN

    def __init__(self, budget: Size | None = None, *, device: str | int | None = None, host: str | ModuleType | None = None, strict: bool = False) -> None:
        if budget is not None and not isinstance(budget, str):
            budget = parse_size(budget)
        if budget is not None and parse_size(budget, lambda: 2**40) == 0:  # of which device is known on the workers
            raise ValueError("a budget cannot be 0; None is: no budget")
        if isinstance(device, bool) or not isinstance(device, (str, int, type(None))):
            raise TypeError(f"a device is named here by a str or an int, which each worker looks up by itself; not by a {type(device).__name__}")
        if isinstance(device, str) and parse_device_name(device) is None:
            raise ValueError(f'unknown device {device!r}; write for example "cuda:0" or "cuda"')
        if isinstance(device, int) and device < 0:
            raise ValueError(f"unknown device {device}: devices are numbered from 0")
        if isinstance(host, ModuleType):
            host = host.__name__
        if not isinstance(host, (str, type(None))):
            raise TypeError(f"host must be a module or a module's name, not {host!r}")
        if not isinstance(strict, bool):
            raise TypeError(f"strict must be True or False, not {strict!r}")
        self._arguments = {"budget": budget, "device": device, "host": host, "strict": strict}
        self.budget: Size | None = budget
        self.host: str | None = host
        self.strict: bool = strict
        self.device: str | None = None  # on a worker: the full name of its device
        self.sharing: int | None = None  # on a worker: how many processes use the device, this one included
        self.problem: str | None = None  # on a worker: why it has no budget
        self._change = -1  # the scheduler's number of the change that `sharing` is from
        self._setting: asyncio.Lock | None = None  # one budget is set at a time, and the last one told is set last
        self._tasks: set[asyncio.Task[None]] = set()  # asyncio itself keeps none alive
        self._holds = False  # this one is counted in _before
        self._gone = False  # it was replaced or taken out, perhaps in the middle of its setup

    def __reduce__(self) -> tuple[Any, ...]:
        if type(self) is DeviceMemory:  # on the worker it is made by that one's version, or says why it cannot be
            return Carried(_on_worker.rebuild), (self._arguments,)
        return _make, (type(self), self._arguments)

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self._arguments.items() if value not in (None, False))
        return f"{type(self).__name__}({told})"

    def physical(self, device: str) -> str:
        """Which piece of hardware a device of this worker is: the same text in two processes exactly where they share it."""
        return physical(device)

    async def setup(self, worker: Worker) -> None:
        """Called by the worker: plug in, find the device, tell the scheduler, set the budget, add the metrics."""
        self._setting = asyncio.Lock()
        try:
            device, hardware = await asyncio.to_thread(self._plug_in)
        except Exception as error:
            self._say(f"its device cannot be used: {error}")
            return
        if self._gone:
            return
        self.device = device
        with _lock:
            _arrivals.append(set_arrival_device(device))
        _metrics.add(worker, device)
        if device == "cpu":
            self._say("has no GPU that can be used: its default device is the CPU, where nothing is spilled; no budget was set")
            return
        worker.stream_handlers[_on_scheduler.SHARE] = _share_changed(worker)
        try:
            answer = await self._join(worker, hardware)
        except Exception as error:
            self._say(f"the scheduler could not say who shares {device}, so its budget is the whole: {type(error).__name__}: {error}")
            answer = {"processes": 1, "change": 0}
        if self._gone:  # what it has done so far is undone; but it may have joined after it left
            if worker.plugins.get(self.name) is None:
                await self._leave(worker, device)
            return
        await self._take(**answer)

    async def teardown(self, worker: Worker) -> None:
        """Called by the worker when it closes or the plugin is replaced or taken out: what `setup` did is undone."""
        self._gone = True
        _metrics.remove(worker)
        device, self.device = self.device, None
        if device is None or self._setting is None:
            return
        with _lock:
            before = _arrivals.pop()
            if not _arrivals:
                set_arrival_device(before)
        async with self._setting:  # a share that is being set is set before
            await asyncio.to_thread(self._give_back, device)
        if worker.status.name == "running":  # the scheduler sees by itself that a worker closes
            await self._leave(worker, device)

    @staticmethod
    async def _leave(worker: Worker, device: str) -> None:
        try:
            await getattr(worker.scheduler, _on_scheduler.LEAVE)(worker=worker.address)
        except Exception as error:
            logger().warning("Dask: the scheduler could not be told that %s is not used any more: %s", device, error)

    def _plug_in(self) -> tuple[str, str]:
        if self.host is not None:
            from ..hosts import install

            install(importlib.import_module(self.host))
        device = resolve_name(self._arguments["device"])
        if isinstance(self.budget, str):
            size_on(self.budget, resolve(device))  # a percentage of an unknown total
        return device, self.physical(device)

    async def _join(self, worker: Worker, hardware: str) -> dict[str, int]:
        sharing = by_value(_on_scheduler.SharedDevices())
        await worker.scheduler.register_scheduler_plugin(plugin=sharing, name=_on_scheduler.SHARING, idempotent=True)
        answer: dict[str, int] = await getattr(worker.scheduler, _on_scheduler.JOIN)(worker=worker.address, device=hardware, process=str(os.getpid()))
        return answer

    def share_changed(self, processes: int, change: int) -> None:
        """Called in the worker's event loop when the scheduler says that another number of processes share the device."""
        task = asyncio.get_running_loop().create_task(self._take(processes, change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, processes: int, change: int) -> None:
        assert self._setting is not None
        async with self._setting:
            if self._gone or change <= self._change or self.device is None:
                return  # an older answer came later, or the plugin was taken out
            self._change, self.sharing = change, processes
            if self.budget is not None:
                await asyncio.to_thread(self._set, self.budget, self.device, processes)

    def _set(self, budget: Size, device: str, processes: int) -> None:
        """Not in the event loop, which has to go on: a lower budget spills at once."""
        share = max(1, size_on(budget, resolve(device)) // processes)
        if not self._holds:
            with _lock:
                users, before, was_strict = _before.get(device, (0, get_memory_budget(device), _fast.get_strict(device)))
                _before[device] = users + 1, before, was_strict
            self._holds = True
        try:
            set_memory_budget(share, device, strict=self.strict)
        except Exception as error:  # host memory ran out: the budget is set all the same
            self._say(str(error))
        logger().info("Dask: budget of %s: %s, shared by %d processes", device, format_bytes(share), processes)

    def _give_back(self, device: str) -> None:
        if not self._holds:
            return
        self._holds = False
        with _lock:
            users, before, was_strict = _before.pop(device)
            if users > 1:
                _before[device] = users - 1, before, was_strict
                return
        try:
            set_memory_budget(before, device, strict=was_strict)
        except Exception as error:
            logger().warning("Dask: going back to the budget from before on %s: %s", device, error)

    def _say(self, problem: str) -> None:
        self.problem = problem
        logger().warning("Dask: %s", problem)


def _share_changed(worker: Worker) -> Any:
    """The handler of the scheduler's message. It stays when the plugin goes: a message without a handler would end the worker."""

    def told(processes: int, change: int, **more: Any) -> None:
        plugin = worker.plugins.get(_on_worker.PLUGIN)
        if isinstance(plugin, DeviceMemory):
            plugin.share_changed(processes, change)

    return told


def _make(kind: type[DeviceMemory], arguments: dict[str, Any]) -> DeviceMemory:
    return kind(**arguments)
