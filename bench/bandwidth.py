"""How fast arrays move: spill and restore of 64 MiB, against one thread's memcpy into warm memory."""

from __future__ import annotations

import statistics
import threading
import time
from types import ModuleType

from measure import Row, Times, interleave

import tack_memory

NBYTES = 64 << 20
GIB = float(1 << 30)


def rate(t: Times) -> str:
    return f"{NBYTES / t.least / GIB:.1f} GiB/s"


def rows(baseline: ModuleType, rounds: int) -> list[Row]:
    buffers = {device: tack_memory.allocate(NBYTES, device) for device in ("sim:0", "sim:1")}
    one = buffers["sim:0"]
    one.fill(7)
    buffers["sim:1"].fill(9)

    def spill() -> float:
        began = time.perf_counter()
        assert one.spill() == NBYTES
        return time.perf_counter() - began

    def restore() -> float:
        began = time.perf_counter()
        one.restore()
        return time.perf_counter() - began

    def both(work: list[object]) -> float:
        """Seconds until two threads are done, each with its own part; they start together."""
        gate = threading.Barrier(3)

        def run(part: object) -> None:
            gate.wait()
            part()  # type: ignore[operator]

        threads = [threading.Thread(target=run, args=(part,)) for part in work]
        for thread in threads:
            thread.start()
        gate.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began

    for _ in range(2):  # warm: the host pool has its memory, the driver its own
        for buffer in buffers.values():
            buffer.spill()
        for buffer in buffers.values():
            buffer.restore()
    t = interleave(
        {
            "memcpy": lambda: float(baseline.copy(NBYTES)),
            "spill": spill,
            "restore": restore,
            "memcpy, two threads": lambda: both([lambda: baseline.copy(NBYTES, 0), lambda: baseline.copy(NBYTES, 1)]),
            "spill, two threads": lambda: both([b.spill for b in buffers.values()]),
            "restore, two threads": lambda: both([b.restore for b in buffers.values()]),
        },
        rounds,
    )

    def best(ours: str, theirs: str) -> float:
        return t[theirs].least / t[ours].least

    def middle(ours: str, theirs: str) -> float:
        return statistics.median(base / mine for mine, base in zip(t[ours].rounds, t[theirs].rounds, strict=True))

    found = []
    for what in ("spill", "restore"):
        found.append(
            Row(
                f"{what} of 64 MiB, part of the rate of one thread's memcpy into warm memory",
                best(what, "memcpy"),
                "x",
                0.9,
                at_least=True,
                median=middle(what, "memcpy"),
                note=f"at best {rate(t[what])} against {rate(t['memcpy'])}",
            )
        )
    for what in ("spill", "restore"):
        name = f"{what}, two threads"
        found.append(
            Row(
                f"{what} of 2 x 64 MiB by two threads (two devices), part of the rate of two threads' memcpy",
                best(name, "memcpy, two threads"),
                "x",
                median=middle(name, "memcpy, two threads"),
                note=f"at best {2 * NBYTES / t[name].least / GIB:.1f} GiB/s together",
            )
        )
    return found
