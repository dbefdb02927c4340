"""What runs in the scheduler. It is sent there by value (`_carried`), so it uses nothing of this package but what is sent along with it."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Coroutine
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.serialize import Serialize, Serialized, deserialize

SHARING = "tack_memory-sharing"
"""The name of the plugin that knows who shares a device."""

JOIN, LEAVE, SHARE = "tack_memory_join", "tack_memory_leave", "tack_memory_share"
"""What workers ask of the scheduler; and what it tells a worker when the number of those that share its device has changed."""

_MOST_LOST = 1000  # workers that are remembered as lost


async def ask(function: bytes, arguments: bytes, seconds: float, dask_scheduler: Any) -> dict[str, Any]:
    """Run a function on all workers at a time, and wait for each no longer than that many seconds.

    A broadcast of the client's waits for the slowest: one worker that is stuck would keep the answers of all others.
    """

    async def one(address: str, name: str, host: str) -> dict[str, Any]:
        told: dict[str, Any] = {"name": name, "host": host, "why": None, "told": None}
        message = {"op": "run", "function": function, "args": arguments, "kwargs": b"", "wait": True}
        try:
            answer = await asyncio.wait_for(dask_scheduler.broadcast(msg=message, workers=[address], on_error="return"), seconds)
            answer = answer[address]
        except Exception as error:
            answer = error
        if isinstance(answer, dict) and answer.get("status") == "OK":
            told["told"] = unpacked(answer["result"])
        elif address not in dask_scheduler.workers:
            told["why"] = "gone: its connection to the scheduler broke while it was asked"
        elif isinstance(answer, (TimeoutError, asyncio.TimeoutError)):
            told["why"] = f"did not answer within {seconds:g} s"
        elif isinstance(answer, dict):
            told["why"] = f"could not answer: {answer.get('exception_text')}"
        else:
            told["why"] = f"could not be asked: {type(answer).__name__}: {answer}"
        return told

    there = {address: (str(state.name), state.host) for address, state in dask_scheduler.workers.items()}
    answers = await asyncio.gather(*(one(address, *known) for address, known in there.items()))
    sharing = dask_scheduler.plugins.get(SHARING)
    now = time.time()
    lost = {} if sharing is None else {address: (name, now - when) for name, (address, when) in sharing.lost.items()}
    return {"workers": dict(zip(there, answers, strict=True)), "lost": lost}


def unpacked(result: Any) -> Any:
    """The scheduler hands results on as it gets them, packed; those of workers that run in its own process are not."""
    if isinstance(result, Serialized):
        return deserialize(result.header, result.frames)  # type: ignore[no-untyped-call]
    return result.data if isinstance(result, Serialize) else result


async def keep(plugin: bytes, dask_scheduler: Any) -> None:
    """Register a scheduler plugin that was sent by value."""
    made = pickle.loads(plugin)
    await dask_scheduler.register_scheduler_plugin(plugin=made, name=made.name, idempotent=True)


async def drop(name: str, dask_scheduler: Any) -> None:
    """Take a scheduler plugin out, if it is there, and wait for what it has under way."""
    plugin = dask_scheduler.plugins.get(name)
    if plugin is not None:
        await dask_scheduler.unregister_scheduler_plugin(name)
        await asyncio.gather(*getattr(plugin, "tasks", ()), return_exceptions=True)


class SharedDevices(SchedulerPlugin):
    """Knows which workers use the same physical device, tells each how many processes share its, and remembers workers that died.

    Nothing is sent but when a worker joins or leaves: one answer to the worker itself, and one message to each other worker of the same device. All of it
    runs in the scheduler's event loop, between two awaits.
    """

    name = SHARING
    idempotent = True

    def __init__(self) -> None:
        self.scheduler: Any = None
        self.sharers: dict[str, dict[str, str]] = {}  # physical device -> worker's address -> its process
        self.device_of: dict[str, str] = {}  # worker's address -> physical device
        self.changes = 0  # of any device: a worker that hears of an older one after a newer one knows
        self.names: dict[str, str] = {}  # worker's address -> its name
        self.lost: dict[str, tuple[str, float]] = {}  # name of a worker that died -> its address, seconds since 1970; until one of that name joins

    async def start(self, scheduler: Any) -> None:
        """No await in here: two workers may register this at the same time, and the second one's must find the first one's in place."""
        self.scheduler = scheduler
        self.names = {address: str(state.name) for address, state in scheduler.workers.items()}
        scheduler.handlers[JOIN] = self.join
        scheduler.handlers[LEAVE] = self.leave

    def join(self, worker: str, device: str, process: str) -> dict[str, int]:
        """A worker says which device it uses; it is told how many processes do."""
        if self.device_of.get(worker) != device:
            self.leave(worker)
        if worker in self.scheduler.workers:
            self.device_of[worker] = device
            self.sharers.setdefault(device, {})[worker] = process
            self._tell(device, but=worker)
        return {"processes": self._processes(device), "change": self.changes}

    def leave(self, worker: str) -> None:
        """A worker does not use its device any more."""
        device = self.device_of.pop(worker, None)
        if device is None:
            return
        self.sharers[device].pop(worker, None)
        self._tell(device)
        if not self.sharers[device]:
            del self.sharers[device]

    def add_worker(self, scheduler: Any, worker: str) -> None:
        name = str(scheduler.workers[worker].name)
        self.names[worker] = name
        self.lost.pop(name, None)  # a nanny has started it again

    def remove_worker(self, scheduler: Any, worker: str, **more: Any) -> None:
        self.leave(worker)
        name = self.names.pop(worker, worker)
        if not self._was_asked_to_go(scheduler, worker):
            self.lost[name] = worker, time.time()
            while len(self.lost) > _MOST_LOST:
                del self.lost[next(iter(self.lost))]

    @staticmethod
    def _was_asked_to_go(scheduler: Any, worker: str) -> bool:
        """It was retired, or said that it closes. The scheduler's hook does not tell this, its log of events does."""
        events = [event for _, event in scheduler.get_events(worker) if isinstance(event, dict)]
        return any(event.get("expected") or str(event.get("status", "")).startswith("clos") for event in events)

    def _processes(self, device: str) -> int:
        return len(set(self.sharers.get(device, {}).values())) or 1

    def _tell(self, device: str, but: str | None = None) -> None:
        self.changes += 1
        message = {"op": SHARE, "processes": self._processes(device), "change": self.changes}
        for worker in self.sharers[device]:
            if worker != but and worker in self.scheduler.stream_comms:
                self.scheduler.worker_send(worker, dict(message))


class PeakKeeper(SchedulerPlugin):
    """One open peak of a client: workers that join get a scope, too; and when the client is gone, all scopes are closed."""

    def __init__(self, name: str, client: str, begin: bytes, end: bytes, arguments: bytes, seconds: float) -> None:
        self.name = name
        self.client, self.begin, self.end, self.arguments, self.seconds = client, begin, end, arguments, seconds
        self.tasks: set[asyncio.Task[Any]] = set()  # asyncio itself keeps none alive

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Later, since the scheduler waits for this before it answers the worker."""
        message = {"op": "run", "function": self.begin, "args": self.arguments, "kwargs": b"", "wait": True}
        self._later(asyncio.wait_for(scheduler.broadcast(msg=message, workers=[worker], on_error="return"), self.seconds))

    def remove_client(self, scheduler: Any, client: str) -> None:
        if client == self.client:
            scheduler.remove_plugin(self.name)
            self._later(ask(self.end, self.arguments, self.seconds, scheduler))

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception:  # a worker that could not be asked shows as missing
                pass

        task = asyncio.get_running_loop().create_task(run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
