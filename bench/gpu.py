"""Figures of real devices: how fast memory is copied, allocated, spilled and restored there. Writes bench/RESULTS-gpu.md.

Started by `make test-gpu`; ARGS go elsewhere, so run it by hand for other options: .venv/bin/python bench/gpu.py --help. Each device is measured in a
process of its own, beside the vendor's own calls (through examples/minihost) in the same process.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
RESULTS = BENCH / "RESULTS-gpu.md"
KINDS = ("cuda", "hip", "level_zero")
LARGE, SMALL = 64 << 20, 4 << 10
GIB = float(1 << 30)
LIBRARY = "TACK_MEMORY_{}_LIBRARY"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("devices", nargs="*", help='devices ("cuda:0"); all GPUs that work, if left out')
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="times that each thing is measured (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE", help="where the tables go (default: bench/RESULTS-gpu.md)")
    parser.add_argument("--measure", metavar="DEVICE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.rounds)))
        return 0

    import tack_memory

    devices = options.devices or [name for name in tack_memory.devices() if name.partition(":")[0] in KINDS]
    if not devices:
        print("bench/gpu.py: no GPU works here, so nothing was measured; see python -m tack_memory doctor", file=sys.stderr)
        return 0
    examined = json.loads(subprocess.run([sys.executable, "-m", "tack_memory", "doctor", "--json"], check=False, capture_output=True, text=True).stdout)
    told = {device["name"]: device for device in examined["devices"]}
    sections = []
    for name in devices:
        command = [sys.executable, __file__, "--measure", name, "--rounds", str(options.rounds)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        sections.append(section(told[name], json.loads(done.stdout)))
    lines = [
        "# Figures of real devices",
        "",
        "Written by `make test-gpu`. Medians; the vendor's own calls are measured in the same process.",
        "",
        f"- {platform.system()} {platform.release()}, Python {platform.python_version()}, {os.cpu_count()} processors",
        f"- {datetime.now(UTC):%Y-%m-%d}, tack_memory {examined['version']}",
    ]
    options.output.write_text("\n".join([*lines, *(line for part in sections for line in part), ""]))
    print(f"written: {options.output}")
    return 0


def section(device: dict[str, Any], rows: list[list[Any]]) -> list[str]:
    pools = {True: "with memory pools", False: "without memory pools", None: "pools unknown"}[device["pools"]]
    total = "unknown" if device["total"] is None else f"{device['total'] / GIB:.1f} GiB"
    return [
        "",
        f"## {device['name']}: {device['product'] or 'unknown product'}",
        "",
        f"- {total}, {pools}; driver {device['library']}, version {device['version'] or 'unknown'}",
        "",
        "| what | median | unit |",
        "|---|--:|---|",
        *(f"| {what} | {value:.2f} | {unit} |" for what, value, unit in rows),
    ]


def measure(name: str, rounds: int) -> list[list[Any]]:
    """The rows of one device: what, figure, unit."""
    sys.path.insert(0, str(BENCH.parent / "examples"))
    import minihost
    import numpy as np

    import tack_memory

    kind = name.partition(":")[0]
    minihost.init(name, library=os.environ.get(LIBRARY.format(kind.upper())) or None)
    backend = minihost.current_backend()
    rows: list[list[Any]] = []

    def add(what: str, unit: str, scale: Callable[[float], float], work: Callable[[], object], before: Callable[[], object] | None = None) -> None:
        work()  # warm
        times = []
        for _ in range(rounds):
            if before is not None:
                before()
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        rows.append([what, scale(statistics.median(times)), unit])

    def rate(seconds: float) -> float:
        return LARGE / seconds / GIB

    def micro(seconds: float) -> float:
        return seconds * 1e6

    def copied(destination: int, source: int, nbytes: int) -> None:
        backend.copy(destination, source, nbytes)
        backend.synchronize_stream()

    block = backend.allocate(LARGE)
    pageable = np.ones(LARGE, np.uint8)
    pinned = pinned_memory(backend, LARGE)
    for what, host in (("pageable", pageable.ctypes.data), ("pinned", pinned)):
        if host is None:
            continue
        add(f"copy to the device, {what}, 64 MiB", "GiB/s", rate, lambda host=host: copied(block, host, LARGE))
        add(f"copy to the host, {what}, 64 MiB", "GiB/s", rate, lambda host=host: copied(host, block, LARGE))
        add(f"copy to the device, {what}, 4 KiB", "us", micro, lambda host=host: copied(block, host, SMALL))
        add(f"copy to the host, {what}, 4 KiB", "us", micro, lambda host=host: copied(host, block, SMALL))
    backend.free(block)
    backend.synchronize()

    def vendor_cycle(nbytes: int, pools: bool) -> None:
        had, backend.has_pools = backend.has_pools, pools
        try:
            pointer = backend._allocate(nbytes)
            backend._free(pointer)
        finally:
            backend.has_pools = had

    for nbytes, text in ((SMALL, "4 KiB"), (LARGE, "64 MiB")):
        if backend.has_pools:
            add(f"allocate and free, the vendor's pool, {text}", "us", micro, lambda nbytes=nbytes: vendor_cycle(nbytes, True))
        add(f"allocate and free, the vendor's without pools, {text}", "us", micro, lambda nbytes=nbytes: vendor_cycle(nbytes, False))
        add(f"allocate and free, tack_memory, {text}", "us", micro, lambda nbytes=nbytes: tack_memory.allocate(nbytes, name, zero=False).free())

    buffer = tack_memory.allocate(LARGE, name)
    add("spill, 64 MiB", "GiB/s", rate, buffer.spill, buffer.restore)
    add("restore, 64 MiB", "GiB/s", rate, buffer.restore, buffer.spill)
    add("memory_info", "us", micro, lambda: tack_memory.memory_info(name))
    buffer.restore()

    def thousand_reads() -> None:
        for _ in range(1000):
            buffer.device_ptr  # noqa: B018  # reading it is the work

    add("device_ptr, in a loop", "ns", lambda seconds: seconds * 1e6, thousand_reads)
    return rows


def pinned_memory(backend: Any, nbytes: int) -> int | None:
    """Host memory that the vendor's driver allocated, for the process' life; None where that fails."""
    loaded = backend.driver._loaded
    place = ctypes.c_void_p()
    backend._enter()
    if backend.name == "level_zero":
        description = (ctypes.c_uint32 * 6)(0x16)  # ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC; no next, no flags
        allocate = loaded.zeMemAllocHost
        allocate.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
        code = allocate(backend.context, ctypes.byref(description), nbytes, 0, ctypes.byref(place))
    else:
        allocate = loaded.cuMemHostAlloc if backend.name == "cuda" else loaded.hipHostMalloc
        allocate.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
        code = allocate(ctypes.byref(place), nbytes, 0)
    return None if code else place.value


if __name__ == "__main__":
    sys.exit(main())
