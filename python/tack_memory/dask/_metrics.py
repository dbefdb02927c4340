"""What each heartbeat of a worker tells the scheduler, and so the dashboard: plain ints, of one device."""

from __future__ import annotations

import functools
from typing import Any

from .._native import _fast

METRICS = {
    "device_in_use": "in_use",
    "device_spilled": "spilled",
    "device_spills": "spill_count",
    "device_restores": "restore_count",
    "device_spilled_bytes": "spilled_bytes",
    "device_restored_bytes": "restored_bytes",
}
"""The name in the worker's metrics, and that of the MemoryInfo's figure. The dashboard shows each as a column, so they are few and short."""


def add(worker: Any, device: str) -> None:
    """From the next heartbeat on."""
    worker.metrics.update({name: functools.partial(_figure, device, figure) for name, figure in METRICS.items()})


def remove(worker: Any) -> None:
    """Take them out again."""
    for name in METRICS:
        worker.metrics.pop(name, None)


def _figure(device: str, figure: str, worker: Any) -> int:
    """Less than a microsecond, so each figure asks for itself."""
    value: int | None = getattr(_fast.memory_info(device), figure)
    return value or 0
