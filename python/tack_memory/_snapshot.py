"""Reports in files: written, read again, and with the paths in them shortened."""

from __future__ import annotations

import json
import os

from ._native import _fast
from ._report import INFO_FIELDS, MemoryReport, file_path, write_file
from ._snapshot_check import check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from typing import Any

    from ._native._fast import MemoryInfo

FORMAT, VERSION = "tack_memory report", 1
"""What the file says of itself. A newer version may add keys, and then stays 1; where what is there means something else it becomes 2."""

SEQUENCE = ("in_use", "peak", "cached", "spilled", "device_free", "device_total")
"""The fields that a MemoryInfo has as a tuple."""


def save(report: MemoryReport, path: str | PathLike[str]) -> None:
    """Write a report as JSON."""
    told = {"format": FORMAT, "version": VERSION, **report.to_dict()}
    write_file(path, (json.dumps(told, indent=1) + "\n").encode("utf-8", "backslashreplace"))


def load(path: str | PathLike[str]) -> MemoryReport:
    """Read a report."""
    name = file_path(path)
    with open(name, "rb") as file:
        content = file.read()
    try:
        told = json.loads(content)
        is_ours = isinstance(told, dict) and told.get("format") == FORMAT and type(told.get("version")) is int and told["version"] > 0
    except (ValueError, RecursionError):  # no JSON, or brackets in brackets without end
        is_ours = False
    if not is_ours:
        raise ValueError(f"{name} is no report of tack_memory: memory_report().save(path) writes one")
    if told["version"] > VERSION:
        raise ValueError(f"{name} has version {told['version']} of the format of reports, and this package reads {VERSION}: read it with a newer tack_memory")
    try:
        check(told)
    except ValueError as error:
        raise ValueError(f"{name} is a report of tack_memory that was changed, or cut off: {error}") from error
    return of_dict(told)


def of_dict(told: dict[str, Any]) -> MemoryReport:
    """The report of what its `to_dict` gave."""
    return MemoryReport(_info(told["info"]), {**told, "unspillable": told["holds"]})


def _info(told: dict[str, Any]) -> MemoryInfo:
    others = {name: told.get(name) for name in INFO_FIELDS if name not in SEQUENCE}
    return _fast.MemoryInfo([told.get(name) for name in SEQUENCE], others)  # type: ignore[call-arg]  # as every structure sequence


PLACES = ("origin", "by_origin", "stack", "by_stack")


def relative_to(report: MemoryReport, root: str | PathLike[str]) -> MemoryReport:
    """The report with paths below the root shortened."""
    prefix = os.path.join(os.path.abspath(file_path(root)), "")

    def shortened(told: Any, key: str = "") -> Any:
        if isinstance(told, dict):
            return {name: shortened(value, name) for name, value in told.items()}
        if isinstance(told, list):
            return [shortened(value, key) for value in told]
        return told.removeprefix(prefix) if key in PLACES and isinstance(told, str) else told

    return of_dict(shortened(report.to_dict()))
