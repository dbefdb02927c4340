"""What `import tack_memory` costs, in fresh processes, above the bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from measure import Row, Times, interleave

MIB = float(1 << 20)
CASES = {"bare": "pass", "tack_memory": "import tack_memory", "json, typing": "import json, typing"}
REPORT = """
import os, sys
pages = int(open("/proc/self/statm").read().split()[1])
print(pages * os.sysconf("SC_PAGE_SIZE"), *(m for m in ("numpy", "matplotlib") if m in sys.modules))
"""


def run(code: str) -> tuple[float, float]:
    """Seconds of a fresh interpreter: of the processors (all threads), and of the clock."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{code!r} exited with {process.returncode}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def rows(rounds: int) -> list[Row]:
    memory: dict[str, list[float]] = {name: [] for name in CASES}
    clock: dict[str, list[float]] = {name: [] for name in CASES}
    intruders: set[str] = set()

    def processor(name: str) -> float:
        seconds, elapsed = run(CASES[name])
        clock[name].append(elapsed)
        report = subprocess.run([sys.executable, "-c", f"{CASES[name]}\n{REPORT}"], check=True, text=True, stdout=subprocess.PIPE)
        resident, *modules = report.stdout.split()
        memory[name].append(float(resident))
        intruders.update(modules)
        return seconds

    for code in CASES.values():
        run(code)  # the files are in the cache, the bytecode is written
    times = interleave({name: lambda name=name: processor(name) for name in CASES}, rounds)

    def above(t: dict[str, Times], name: str, unit: float) -> tuple[float, float]:
        return (t[name].least - t["bare"].least) / unit, (t[name].median - t["bare"].median) / unit

    def kept(values: dict[str, list[float]]) -> dict[str, Times]:
        return {name: Times(v) for name, v in values.items()}

    work, others = above(times, "tack_memory", 1e-3), above(times, "json, typing", 1e-3)
    wall, room = above(kept(clock), "tack_memory", 1e-3), above(kept(memory), "tack_memory", MIB)
    return [
        Row(
            "import tack_memory, above the bare interpreter: processor time of all threads",
            work[0],
            "ms",
            60,
            median=work[1],
            note=f"no less than the wall time of a machine with nothing else to do; import json, typing: {others[0]:.0f} ms",
        ),
        Row("the same, wall time", wall[0], "ms", median=wall[1]),
        Row("memory of import tack_memory, above the bare interpreter", room[0], "MiB", 12, median=room[1]),
        Row("NumPy and matplotlib imported by it", float(len(intruders)), "modules", 0, note=", ".join(sorted(intruders))),
    ]
