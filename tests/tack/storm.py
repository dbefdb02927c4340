"""Two threads that launch, one that reads, and one that spills by changing the budget, for a minute in each address mode. The work itself is the host
tests' own.

python tests/tack/storm.py [seconds in each mode]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.update(TACK_MEMORY_AUTOINSTALL="0", TACK_MEMORY_SIM="256 MiB,64 MiB")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "py" / "hosts"))

import tack
from storms import storm_on_cpu

import tack_memory

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
for addresses in ("fresh", "reuse"):
    tack.init("cpu")
    tack_memory.install(tack, simulate=0, simulate_addresses=addresses)
    done = storm_on_cpu(tack, tack.memory_info().device, seconds)
    print(f"storm: {seconds:.0f} s, addresses {addresses}: right; {done}", flush=True)
    tack_memory.uninstall(tack)
