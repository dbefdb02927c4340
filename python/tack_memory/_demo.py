"""The command `demo`: arrays that together do not fit, on a small device, with the same results as on a large one."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time

from . import _devices, allocate, launch, memory_budget, memory_info, memory_peak, memory_report
from ._errors import DeviceMemoryError, ForkError
from ._report_text import to_text
from ._sizes import format_bytes, format_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._native._fast import Buffer

EXAMPLES = """\
Twelve arrays of 4 MiB, each added to the next, round after round: first without a budget, then under one of 40 % of what that took.

examples:
  python -m tack_memory demo                    on sim:0, a device made of host memory, which needs no GPU
  python -m tack_memory demo --device cuda:0    on a GPU (the sums are made on the host: a demonstration of moving, not of speed)
  python -m tack_memory demo --json             for programs

The larger one, with kernels, a mesh and a picture, is in the sources: make demo

exit codes:
  0  both runs gave the same results
  1  they did not, or the device cannot do it
  2  wrong arguments; there is no such device
"""

ARRAYS, NBYTES, ROUNDS = 12, 4 * 2**20, 3


def add(commands: Any) -> None:
    """Add it to the command line."""
    demo = commands.add_parser(
        "demo", help="arrays that do not fit, with the same results", description=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    demo.add_argument("--device", default="sim:0", help='"cuda:0", "hip:0", "level_zero:0", or one of "sim:0" and its like (default: %(default)s)')
    demo.add_argument("--json", action="store_true", help="the figures for programs")
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    try:
        device = _devices.resolve_name(arguments.device)
        _devices.resolve_with_buffers(device)
    except (ValueError, TypeError) as error:
        print(f"tack_memory demo: {error}", file=sys.stderr)
        return 2
    try:
        runs = [run("no budget", device, None)]
        if runs[0]["report"].holds:
            print(f"tack_memory demo: {device}: nothing is spilled there: {', '.join(runs[0]['report'].holds)}", file=sys.stderr)
            return 1
        runs.append(run("budget 40 %", device, runs[0]["peak"] * 2 // 5))
    except (DeviceMemoryError, ForkError, RuntimeError) as error:
        print(f"tack_memory demo: {error}", file=sys.stderr)
        return 1
    same = len({one["sha256"] for one in runs}) == 1
    if arguments.json:
        print(json.dumps({"device": device, "same": same, "runs": [{k: v for k, v in one.items() if k != "report"} for one in runs]}, indent=2))
        return 0 if same else 1
    print(f"{ARRAYS} arrays of {format_bytes(NBYTES)} on {device}, each added to the next, {ROUNDS} times\n")
    print(f"{'run':12} {'time':>9} {'budget':>9} {'peak':>9} {'spills':>7} {'restores':>9} {'moved':>9}  SHA-256")
    for one in runs:
        budget = "-" if one["budget"] is None else format_bytes(one["budget"])
        figures = f"{format_seconds(one['seconds']):>9} {budget:>9} {format_bytes(one['peak']):>9} {one['spill_count']:>7} {one['restore_count']:>9}"
        print(f"{one['name']:12} {figures} {format_bytes(one['spilled_bytes'] + one['restored_bytes']):>9}  {one['sha256'][:8]}")
    print("\nThe results are the same, byte for byte." if same else "\nTHE RESULTS DIFFER.")
    print(f"\nmemory_report() under the budget, its three largest holders:\n{to_text(runs[1]['report'], 3)}")
    return 0 if same else 1


def run(name: str, device: str, budget: int | None) -> dict[str, Any]:
    """One run, and its figures."""
    with memory_budget(budget, device), memory_peak(device) as peak:
        start = time.perf_counter()
        info = memory_info(device)
        arrays = [allocate(NBYTES, device, label=f"array {number}") for number in range(ARRAYS)]
        for number, array in enumerate(arrays):
            array.copy_from_host(bytes([number + 1]) * NBYTES)
        for _ in range(ROUNDS):
            for one, other in zip(arrays, arrays[1:] + arrays[:1], strict=True):
                add_to(other, one)
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(array.copy_to_host())
        seconds = time.perf_counter() - start
        report = memory_report(device)
    figures = {one: getattr(report.info, one) - getattr(info, one) for one in ("spill_count", "restore_count", "spilled_bytes", "restored_bytes")}
    return {"name": name, "seconds": seconds, "budget": budget, "peak": peak.bytes, **figures, "sha256": digest.hexdigest(), "report": report}


def add_to(total: Buffer, term: Buffer) -> None:
    """total += term, as a large number: what a kernel would do on the device, while both are there."""
    with launch(total, term):
        one, other = (int.from_bytes(buffer.copy_to_host(), "little") for buffer in (total, term))
        total.copy_from_host(((one + other) % (1 << 8 * NBYTES)).to_bytes(NBYTES, "little"))
