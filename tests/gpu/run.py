"""Everything that is run on real devices: `make test-gpu`. Without one it says so, claims nothing, and ends with 0.

On each GPU that works: the Python tests, the Go conformance suite, the sweep under a budget of a third of its peak, and figures
(bench/RESULTS-gpu.md). ARGS="--only python --devices cuda:1" runs a part, on one of them.

Of the Python tests those run there that take a device from the fixtures `device` and `any_device` (tests/py/conftest.py), whether they use it in pytest's
process or in a script of their own. At the end pytest says how many these are, and how many of each other kind it left out:
- Tests that steer a software driver (fixtures `soft`, `steered`, `simulated`): they make calls fail, copies slow, the device small, really full or lost, or
  look at what the driver counts. A vendor's driver has no such controls. In Go a budget stands in for the full device, as in the sweep.
- Tests of frameworks (`flavour`, `vendor`): the kernels of their stand-ins are Python functions that compute in the device's memory itself, which the host
  can read there on a software driver alone. examples/plugged_in.py, where kernels compute on a copy, runs on the devices, too.
- Tests of texts, settings, packaging, the CPU; and those that name a device, because what they test is one: names, the switches of simulated devices.
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
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="run these parts alone")
    parser.add_argument("--devices", metavar="NAMES", help='run on these alone, separated by commas: "cuda:0,cuda:1"')
    parser.add_argument("--quick", action="store_true", help="a small sweep and fewer measurements, to see whether all of it runs")
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE", help="of the Python tests these alone, as pytest takes them")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where figures and pictures go (default: bench/RESULTS-gpu.md and build/gpu)")
    options = parser.parse_args()
    told = subprocess.run([sys.executable, "-m", "tack_memory", "doctor", "--json"], check=False, stdout=subprocess.PIPE, text=True)
    found = [device for device in json.loads(told.stdout)["devices"] if device["kind"] in KINDS]
    devices = [device["name"] for device in found if device["spills"]]
    for device in found:
        print(f"test-gpu: {device['name']}: {device['product'] or ''} {'' if device['usable'] else 'not usable: ' + device['why']}".rstrip())
    if options.devices:
        chosen = [name.strip() for name in options.devices.split(",")]
        if wrong := [name for name in chosen if name not in devices]:
            parser.error(f"--devices: no GPU {', '.join(wrong)} whose memory can be spilled works here; there are: {', '.join(devices) or 'none'}")
        devices = chosen
    if not devices:
        print("test-gpu: no GPU whose memory can be spilled works here: nothing was run on a real device, and nothing is claimed about one.")
        return 0
    environment = {**os.environ, DEVICES: ",".join(devices)}
    pictures, figures = ROOT / "build" / "gpu", ROOT / "bench" / "RESULTS-gpu.md"
    if options.output:
        pictures = options.output.resolve()
        figures = pictures / "RESULTS-gpu.md"
    go = [sys.executable, "buildsystem/toolchain.py", "go", "test", "-count=1", "-tags", "invariants", "-run", "^TestReal$", "-v", "./tests/go/conformance/..."]
    size, rounds = (["--cells", "1000", "--steps", "2"], ["--rounds", "2"]) if options.quick else ([], [])
    steps = {
        "python": [[sys.executable, "-m", "pytest", "-q", "-m", "gpu", *options.tests]],
        "go": [go],
        "sweep": [[sys.executable, "examples/sweep.py", "--device", name, "--budget", "33%", *size, "--output", str(pictures / name)] for name in devices],
        "figures": [[sys.executable, "bench/gpu.py", *rounds, "--output", str(figures), *devices]],
    }
    failed = []
    for part in [part for part in PARTS if part in options.only]:
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
