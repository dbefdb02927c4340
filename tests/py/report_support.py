"""Reports that are made up: all that one can have, with names that would be dangerous in a page."""

from __future__ import annotations

from typing import Any

from tack_memory import MemoryReport
from tack_memory._snapshot import of_dict

HOSTILE = "</script><img src=x onerror=alert(1)>"
MIB = 2**20

INFO: dict[str, Any] = {
    "device": "cuda:0", "in_use": 6 * MIB, "peak": 9 * MIB, "cached": None, "spilled": 4 * MIB, "device_free": None, "device_total": None, "budget": 8 * MIB,
    "strict": False, "footprint": 10 * MIB, "available": None, "reserved": 0, "pending_free": 0, "over_budget": 0, "over_budget_count": 0, "spill_count": 5,
    "restore_count": 3, "spilled_bytes": 20 * MIB, "restored_bytes": 12 * MIB, "host_bytes": 4 * MIB, "driver_allocated": None,
}  # fmt: skip


def holder(label: str | None, origin: str | None, resident: int, spilled: int = 0, count: int = 1, stack: list[str] | None = None) -> dict[str, Any]:
    figures = {"bytes": resident + spilled, "resident": resident, "spilled": spilled, "count": count}
    return {"label": label, "origin": origin, "stack": stack, "device": "cuda:0", "holds": "", **figures}


STACK = ["/home/me/project/mesh.py:7 points", "/home/me/project/main.py:3 <module>"]


def told(*holders: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What `to_dict` gives of a report with these holders and nothing else."""
    in_use, spilled = (sum(one[part] for one in holders) for part in ("resident", "spilled"))
    return {
        "device": "cuda:0", "time_ns": 1_700_000_000_000_000_000, "info": {**INFO, "in_use": in_use, "spilled": spilled, "peak": max(in_use, 9 * MIB)},
        "holders": list(holders), "at_peak": None, "holds": {}, "spilled": spilled, "spills": [], "spills_lost": 0, "thrashing": None, "cached": None,
        "host_pool": {"used": spilled, "pooled": 0}, "origins": "off", **changes,
    }  # fmt: skip


def report(*holders: dict[str, Any], **changes: Any) -> MemoryReport:
    return of_dict(told(*holders, **changes))


def whole() -> MemoryReport:
    """With all parts."""
    points = holder("points", "/home/me/project/mesh.py:7", 4 * MIB, stack=STACK)
    odd = holder(HOSTILE, "/tmp/<i>.py:1", 2 * MIB, 4 * MIB, 3)
    return report(
        points,
        odd,
        at_peak={"bytes": 9 * MIB, "spilled": 0, "time_ns": 1_699_999_990_000_000_000, "holders": [{**points, "bytes": 9 * MIB, "resident": 9 * MIB}]},
        spills=[
            {
                "label": HOSTILE, "origin": "/tmp/<i>.py:1", "stack": None, "bytes": 20 * MIB, "nbytes": 4 * MIB, "count": 5, "restores": 3,
                "out_ns": 2_500_000_000, "still_out": 2, "cause": "budget", "by_label": "points", "by_origin": "/home/me/project/mesh.py:7",
                "by_stack": STACK, "by_nbytes": 4 * MIB, "last_ns": 1_699_999_999_000_000_000,
            }
        ],
        spills_lost=2,
        thrashing={
            "rounds": 4, "bytes": 32 * MIB, "since_ns": 1_699_999_995_000_000_000,
            "holders": [{"label": HOSTILE, "origin": "/tmp/<i>.py:1", "stack": None, "spills": 4, "restores": 3, "bytes": 28 * MIB}],
        },
        holds={f"hold: {HOSTILE}": MIB},
        origins="stack",
    )  # fmt: skip
