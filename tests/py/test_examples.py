"""The small examples, run as a reader runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_a_framework_is_plugged_in() -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TACK_MEMORY_", "TMSOFT_"))}
    done = subprocess.run([sys.executable, str(EXAMPLES / "plugged_in.py")], env=inherited, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("MemoryInfo(sim:0: in use 64 MiB, peak 64 MiB, spilled 32 MiB, budget 64 MiB")
    assert last == "last: 66.0 of 66"
