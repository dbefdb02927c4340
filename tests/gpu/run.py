"""Everything that is run on real devices: `make test-gpu`. Without one it says so, claims nothing, and ends with 0.

On each GPU that works: the Python tests, the Go conformance suite, the sweep under a budget of a third of its peak, and figures
(bench/RESULTS-gpu.md). ARGS="--only python" runs a part.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("cuda", "hip", "level_zero")
PARTS = ("python", "go", "sweep", "figures")
DEVICES = "TACK_MEMORY_TEST_DEVICES"
"""The variable that names the devices for the Python tests and the Go suite, separated by commas."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--only", choices=PARTS, help="run this part alone")
    options = parser.parse_args()
    told = subprocess.run([sys.executable, "-m", "tack_memory", "doctor", "--json"], check=False, stdout=subprocess.PIPE, text=True)
    found = [device for device in json.loads(told.stdout)["devices"] if device["kind"] in KINDS]
    devices = [device["name"] for device in found if device["spills"]]
    for device in found:
        print(f"test-gpu: {device['name']}: {device['product'] or ''} {'' if device['usable'] else 'not usable: ' + device['why']}".rstrip())
    if not devices:
        print("test-gpu: no GPU whose memory can be spilled works here: nothing was run on a real device, and nothing is claimed about one.")
        return 0
    environment = {**os.environ, DEVICES: ",".join(devices)}
    go = [sys.executable, "buildsystem/toolchain.py", "go", "test", "-count=1", "-tags", "invariants", "-run", "^TestReal$", "-v", "./tests/go/conformance/..."]
    steps = {
        "python": [[sys.executable, "-m", "pytest", "-q", "-m", "gpu"]],
        "go": [go],
        "sweep": [[sys.executable, "examples/sweep.py", "--device", name, "--budget", "33%", "--output", f"build/gpu/{name}"] for name in devices],
        "figures": [[sys.executable, "bench/gpu.py", *devices]],
    }
    failed = []
    for part in [options.only] if options.only else PARTS:
        for command in steps[part]:
            print(f"test-gpu: {part}: {' '.join(command[1:])}", flush=True)
            if not passes(command, environment):
                failed.append(part)
    print(f"test-gpu: on {', '.join(devices)}: " + (f"FAILED: {', '.join(failed)}" if failed else "all passed"))
    return 1 if failed else 0


def passes(command: list[str], environment: dict[str, str]) -> bool:
    """Runs a command and shows what it says. A test run that found nothing to run has not passed: Go ends it with 0."""
    empty = False
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            empty = empty or "no tests to run" in line
    return process.returncode == 0 and not empty


if __name__ == "__main__":
    sys.exit(main())
