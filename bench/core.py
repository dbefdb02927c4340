"""What is measured in Go: choosing victims, and the memory of a live buffer."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from measure import Row, Times

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
PATTERNS = {
    "none": "nothing used in between",
    "set": "the same n/100 used in between (a working set)",
    "random": "another n/100 used in between each time",
    "all": "all used in between (the worst case)",
}
LINE = re.compile(r"^BenchmarkVictimChoice/(\w+)/(\d+)\S*\s+1\s+(.*)$", re.MULTILINE)


def victims(rounds: int) -> list[Row]:
    command = ["go", "test", "-run", "^$", "-bench", "^BenchmarkVictimChoice$", "-benchtime", "1x", "-count", str(rounds), "./gomem"]
    text = subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for pattern, n, figures in LINE.findall(text):
        for value, unit in re.findall(r"([\d.eE+-]+) (\S+)", figures):
            found.setdefault((pattern, int(n)), {}).setdefault(unit, []).append(float(value))
    if len(found) != 5 * len(PATTERNS):
        raise RuntimeError(f"the Go benchmark gave {len(found)} results:\n{text}")
    rows = []
    for (pattern, n), figures in sorted(found.items(), key=lambda item: (list(PATTERNS).index(item[0][0]), item[0][1])):
        choice = Times(figures["ns/choice"])
        note = f"{max(figures['choices/pass']):.0f} choices a pass"
        if pattern == "all":
            each = Times(figures["ns/choice/buffer"])
            rows.append(
                Row(f"victim, {n:,} live, {PATTERNS[pattern]}, a live buffer", each.least, "ns", 5, median=each.median, note=f"{choice.least:,.0f} ns a choice")
            )
        else:
            rows.append(Row(f"victim, {n:,} live, {PATTERNS[pattern]}", choice.least, "ns", 1000, median=choice.median, note=note))
    return rows


def memory() -> list[Row]:
    text = subprocess.run(["go", "run", "./perbuffer"], cwd=BENCH, check=True, text=True, stdout=subprocess.PIPE).stdout
    found = json.loads(text)
    return [
        Row(
            f"memory of one live buffer, at {found['buffers']:,.0f}, without its Python object",
            found["resident"],
            "B",
            256,
            note=f"of it {found['heap']:.0f} B in Go's heap; the rest is its record",
        ),
    ]
