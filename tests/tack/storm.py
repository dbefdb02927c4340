"""Two threads that launch, one that reads, and one that spills by changing the budget, for a minute. The work itself is the host tests' own.

python tests/tack/storm.py [seconds]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.update(TACK_MEMORY_AUTOINSTALL="0", TACK_MEMORY_SIM="256 MiB,64 MiB")
for folder in ("tests/py", "tests/py/hosts", "tests/py/hosts/field"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / folder))

import tack  # noqa: E402
from test_field_simulated import storm  # noqa: E402

import tack_memory  # noqa: E402

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
for addresses in ("fresh", "reuse"):
    tack.init("cpu")
    tack_memory.install(tack, simulate=0, simulate_addresses=addresses)
    storm(tack, tack.memory_info().device, seconds / 2)
    info = tack.memory_info()
    print(f"storm: {seconds / 2:.0f} s, addresses {addresses}: right; {info.spill_count} spills and {info.restore_count} restores so far")
    tack_memory.uninstall(tack)
