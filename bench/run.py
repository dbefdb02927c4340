"""Runs the benchmarks and writes bench/RESULTS.md and bench/results.json.

Every figure is compared with something that is measured beside it in the same run, because times of different machines, or of one machine on different
days, say nothing. Started by `make bench`; ARGS="--quick" for a first look, ARGS="--only lane" for a part.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

BENCH = Path(__file__).resolve().parent
PARTS = ("startup", "lane", "host", "bandwidth", "core", "numpy")

# Before tack_memory is imported. Addresses are used again at once, as by a real driver: the quarantine that tests use costs a mapping a block.
os.environ.update(TACK_MEMORY_SIM="8 GiB,8 GiB", TACK_MEMORY_AUTOINSTALL="0", TACK_MEMORY_CHECK="0", TMSOFT_QUARANTINE="0")
for name in [n for n in os.environ if n in ("TACK_MEMORY_BUDGET", "TACK_MEMORY_HOST_LIMIT")]:
    del os.environ[name]
sys.path.insert(0, str(BENCH))

from measure import Row  # noqa: E402


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} processors"


def output(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=BENCH, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def header(seconds: float) -> list[str]:
    commit = output("git", "rev-parse", "--short=12", "HEAD")
    if output("git", "status", "--porcelain", "--", ":!RESULTS.md", ":!results.json") not in ("", "unknown"):
        commit += ", with changes"
    load = os.getloadavg()[0]
    return [
        f"- processor: {processor()}; {platform.system()} {platform.release()}",
        f"- Python {platform.python_version()} ({platform.python_implementation()}), {output('go', 'version').removeprefix('go version ')}",
        f"- commit {commit}, {datetime.now(UTC):%Y-%m-%d}; {seconds:.0f} s; load of the machine at the end {load:.1f}",
    ]


def figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(rows: list[Row]) -> list[str]:
    lines = ["| what | smallest | median | unit | to reach | |  |", "|---|--:|--:|---|--:|---|---|"]
    for row in rows:
        target = "" if row.target is None else f"{'>=' if row.at_least else '<='} {row.target:g}"
        verdict = {True: "ok", False: "**missed**", None: "reported"}[row.ok]
        lines.append(f"| {row.name} | {figure(row.value)} | {figure(row.median)} | {row.unit} | {target} | {verdict} | {row.note} |")
    return lines


def write(rows: list[Row], seconds: float) -> None:
    missed = sum(row.ok is False for row in rows)
    text = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Each figure is compared with something measured beside it in the same process; what counts is the smallest time of many",
        "interleaved rounds, and the medians show how noisy the machine was (a spill changes threads, a plain memcpy does not: a busy machine slows it more).",
        "Devices are simulated: the CUDA backend over the software driver.",
        "",
        *header(seconds),
        "",
        *table(rows),
        "",
        f"{sum(row.ok is True for row in rows)} reached, {missed} missed, {sum(row.ok is None for row in rows)} reported.",
        "",
    ]
    (BENCH / "RESULTS.md").write_text("\n".join(text))
    (BENCH / "results.json").write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds; writes no files")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part only; writes no files")
    options = parser.parse_args()
    parts, rounds = options.only or PARTS, 40 if options.quick else 300
    began, rows = time.monotonic(), []
    gc.disable()
    for part in parts:
        print(f"bench: {part}", file=sys.stderr, flush=True)
        if part == "startup":
            import pytest_plugin
            import startup

            rows += startup.rows(5 if options.quick else 15) + pytest_plugin.rows(3 if options.quick else 9)
        elif part == "core":
            import core

            rows += core.memory() + core.victims(1 if options.quick else 2)
        elif part == "host":
            import host

            rows += host.rows(rounds)
        elif part == "numpy":
            import numpy_memory  # not numpy.py: this folder comes first on the path
            import numpy_shared

            rows += numpy_memory.rows(rounds) + numpy_shared.rows(rounds)
        else:
            import bandwidth
            import baseline
            import lane

            module = {"lane": lane, "bandwidth": bandwidth}[part]
            rows += module.rows(baseline.load(), rounds // 5 if part == "bandwidth" else rounds)
    seconds = time.monotonic() - began
    if not options.quick and not options.only:
        write(rows, seconds)
    print("\n".join([*header(seconds), "", *table(rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
