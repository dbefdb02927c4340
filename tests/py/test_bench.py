"""The benchmarks run: what they measure is not looked at here, for machines are noisy; `make bench` writes it down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("part", ["lane", "host", "numpy"])
def test_a_part_runs_and_prints_its_table(part: str) -> None:
    command = [sys.executable, "buildsystem/toolchain.py", sys.executable, "bench/run.py", "--quick", "--only", part]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) > 5 and all(any(verdict in row for verdict in ("| ok |", "| **missed** |", "| reported |")) for row in rows[1:])
